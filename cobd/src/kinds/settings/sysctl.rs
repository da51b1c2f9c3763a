//! The kind back end `sysctl`: a parameter of the kernel, now and after a restart.

use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Setting, Wish};
use crate::kinds::content;
use crate::kinds::native::Host;

/// The back end `sysctl`.
#[derive(Debug)]
pub(in crate::kinds) struct Sysctl;

/// Its content.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    key: String,
    value: Plain,
    #[serde(default = "super::yes")]
    persist: bool,
    #[serde(default)]
    root: Option<PathBuf>,
}

/// A number or a text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Plain {
    Number(i64),
    Text(String),
}

#[derive(Debug)]
struct Parameter {
    host: Host,
    key: String,
    value: String,
    persist: bool,
}

impl Setting for Sysctl {
    fn name(&self) -> &'static str {
        "sysctl"
    }

    fn read(&self, content: &str, _cob: &str) -> Result<Box<dyn Wish>, String> {
        let content: Content = content::read(content)?;
        let part = |part: &str| {
            !part.is_empty() && part != ".." && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c))
        };
        if !content.key.split('.').all(part) || content.key.starts_with('/') || content.key.contains("//") {
            return Err(format!("content: {:?} is no parameter; write it as in net.ipv4.ip_forward", content.key));
        }
        let value = match content.value {
            Plain::Number(number) => number.to_string(),
            Plain::Text(text) => plain(&text),
        };
        if value.is_empty() || value.chars().any(char::is_control) {
            return Err("content: the value is empty, or has characters that are none".to_owned());
        }
        let host = Host::below(content.root.as_deref())?;
        Ok(Box::new(Parameter { host, key: content.key, value, persist: content.persist }))
    }
}

/// As the kernel shows it: words with one space between.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Parameter {
    /// Names of interfaces hold dots, which are written as slashes then.
    fn live(&self) -> String {
        let swapped = self.key.chars().map(|c| match c {
            '.' => '/',
            '/' => '.',
            other => other,
        });
        format!("/proc/sys/{}", swapped.collect::<String>())
    }

    fn file(&self) -> String {
        format!("/etc/sysctl.d/60-cob-{}.conf", self.key.replace('/', "-"))
    }

    fn line(&self) -> String {
        format!("# Written by cobd.\n{} = {}\n", self.key, self.value)
    }

    /// Written as it stands: the kernel takes no other file in its place.
    fn write_live(&self, value: &str) -> Result<(), String> {
        let path = self.host.path(&self.live());
        fs::write(&path, format!("{value}\n")).map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl Wish for Parameter {
    fn host(&self) -> &Host {
        &self.host
    }

    fn target(&self) -> String {
        if self.persist { format!("{} with its file", self.key) } else { self.key.clone() }
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let live = self.host.read_if_there(&self.live())?.ok_or_else(|| {
            format!("the kernel has no parameter {}; does a module have to be loaded first?", self.key)
        })?;
        let mut found = json!({ "value": plain(&live) });
        if self.persist {
            found["file"] = json!(self.host.read_if_there(&self.file())?);
        }
        Ok(Some(found))
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({ "value": self.value });
        if self.persist {
            wanted["file"] = json!(self.line());
        }
        wanted
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        if self.persist {
            self.host.write(&self.file(), &self.line(), 0o644)?;
        }
        self.write_live(&self.value)
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        if let Some(value) = before["value"].as_str() {
            self.write_live(value)?;
        }
        match (self.persist, before["file"].as_str()) {
            (false, _) => Ok(()),
            (true, Some(text)) => self.host.write(&self.file(), text, 0o644),
            (true, None) => self.host.remove(&self.file()),
        }
    }
}
