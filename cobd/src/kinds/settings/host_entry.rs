//! The kind back end `host-entry`: names of an address in `/etc/hosts`.
//!
//! One line of its own, marked with the change object's id. It stands before the first line that has one of its names,
//! because the first one counts; other lines are left as they are, so what others change meanwhile stays.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Setting, Wish};
use crate::kinds::content;
use crate::kinds::native::Host;

const FILE: &str = "/etc/hosts";

/// The back end `host-entry`.
#[derive(Debug)]
pub(in crate::kinds) struct HostEntry;

/// Its content.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    address: IpAddr,
    names: Vec<String>,
    #[serde(default)]
    root: Option<PathBuf>,
}

#[derive(Debug)]
struct Entry {
    host: Host,
    names: Vec<String>,
    line: String,
    mark: String,
}

impl Setting for HostEntry {
    fn name(&self) -> &'static str {
        "host-entry"
    }

    fn read(&self, content: &str, cob: &str) -> Result<Box<dyn Wish>, String> {
        let content: Content = content::read(content)?;
        let good = |name: &String| {
            !name.is_empty() && name.len() < 254 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        };
        if content.names.is_empty() {
            return Err("content: `names` is empty".to_owned());
        }
        if let Some(name) = content.names.iter().find(|name| !good(name)) {
            return Err(format!("content: {name:?} is no name of a host"));
        }
        let mark = format!("# cob {cob}");
        let line = format!("{} {} {mark}", content.address, content.names.join(" "));
        Ok(Box::new(Entry { host: Host::below(content.root.as_deref())?, names: content.names, line, mark }))
    }
}

impl Entry {
    fn is_ours(&self, line: &str) -> bool {
        line.trim_end().ends_with(&self.mark) && !line.trim_start().starts_with('#')
    }

    /// Whether a line of others gives one of the names an address.
    fn speaks_of(&self, line: &str) -> bool {
        let said = line.split('#').next().unwrap_or_default();
        said.split_whitespace().skip(1).any(|word| self.names.iter().any(|name| name.eq_ignore_ascii_case(word)))
    }

    fn without_ours(&self, text: &str) -> Vec<String> {
        text.lines().filter(|line| !self.is_ours(line)).map(str::to_owned).collect()
    }

    fn write(&self, lines: &[String]) -> Result<(), String> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.host.write(FILE, &text, 0o644)
    }
}

impl Wish for Entry {
    fn host(&self) -> &Host {
        &self.host
    }

    fn target(&self) -> String {
        FILE.to_owned()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let text = self.host.read(FILE)?;
        let ours: Vec<_> = text.lines().filter(|line| self.is_ours(line)).collect();
        let first = text.lines().find(|line| self.speaks_of(line));
        Ok(match ours.as_slice() {
            [] => None,
            [line] if first == Some(line) => Some(json!(line)),
            _ => Some(json!({ "lines": ours, "first": first })),
        })
    }

    fn wanted(&self) -> Value {
        json!(self.line)
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let mut lines = self.without_ours(&self.host.read(FILE)?);
        let place = lines.iter().position(|line| self.speaks_of(line)).unwrap_or(lines.len());
        lines.insert(place, self.line.clone());
        self.write(&lines)
    }

    fn restore(&self, _before: Option<&Value>) -> Result<(), String> {
        let text = self.host.read(FILE)?;
        // A file without our line is nobody's but others'.
        if text.lines().any(|line| self.is_ours(line)) { self.write(&self.without_ours(&text)) } else { Ok(()) }
    }
}
