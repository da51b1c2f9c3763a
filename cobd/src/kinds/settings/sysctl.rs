//! The kind back end `sysctl`: a parameter of the kernel, now and after a restart.
//!
//! In a folder that is to become a host there is its file alone: that has no kernel yet, and a `/proc` in it is the one of
//! the machine that it is made on.

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
    /// There is a kernel to ask.
    live: bool,
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
        let live = host.root().is_none();
        Ok(Box::new(Parameter { live, host, key: content.key, value, persist: content.persist }))
    }
}

/// As the kernel shows it: words with one space between.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Parameter {
    /// Names of interfaces hold dots, which are written as slashes then.
    fn live_file(&self) -> String {
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

    /// What the kernel has now.
    fn read_live(&self) -> Result<String, String> {
        let live = self.host.read_if_there(&self.live_file())?.ok_or_else(|| {
            format!("the kernel has no parameter {}; does a module have to be loaded first?", self.key)
        })?;
        Ok(plain(&live))
    }

    /// Written as it stands: the kernel takes no other file in its place.
    fn write_live(&self, value: &str) -> Result<(), String> {
        let path = self.host.path(&self.live_file());
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
        let mut found = json!({});
        if self.live {
            found["value"] = json!(self.read_live()?);
        }
        if self.persist {
            found["file"] = json!(self.host.read_if_there(&self.file())?);
        }
        Ok(Some(found))
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({});
        if self.live {
            wanted["value"] = json!(self.value);
        }
        if self.persist {
            wanted["file"] = json!(self.line());
        }
        wanted
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        if self.persist {
            self.host.write(&self.file(), &self.line(), 0o644)?;
        }
        if self.live { self.write_live(&self.value) } else { Ok(()) }
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        // An earlier cobd has set it below a `root`, too: that is put back as long as it can be reached.
        let reached = self.live || self.host.path(&self.live_file()).exists();
        if let Some(value) = before["value"].as_str().filter(|_| reached) {
            self.write_live(value)?;
        }
        match (self.persist, before["file"].as_str()) {
            (false, _) => Ok(()),
            (true, Some(text)) => self.host.write(&self.file(), text, 0o644),
            (true, None) => self.host.remove(&self.file()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join("proc/sys").join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        folder
    }

    /// A parameter of a host that has a kernel, whose files are below a folder.
    fn parameter(host: &tempfile::TempDir, key: &str, value: &str, persist: bool) -> Parameter {
        let host = Host::below(Some(host.path())).expect("absolute");
        Parameter { host, key: key.to_owned(), value: value.to_owned(), persist, live: true }
    }

    #[test]
    fn the_kernel_has_it_now_and_the_file_later_and_both_go_back() {
        let host = host(&[("net/core/somaxconn", "128\n"), ("kernel/pid_max", "9\n")]);
        let read = |name: &str| fs::read_to_string(host.path().join(name)).expect("read");
        let (live, file) = ("proc/sys/net/core/somaxconn", "etc/sysctl.d/60-cob-net.core.somaxconn.conf");
        let both = parameter(&host, "net.core.somaxconn", "1024", true);
        let before = both.before().expect("seen");
        assert_eq!(before, Some(json!({"value": "128", "file": null})));
        for _ in 0..2 {
            both.apply(before.as_ref()).expect("applied");
            assert_eq!(both.look(before.as_ref()).expect("seen"), Some(both.wanted()));
        }
        assert_eq!(
            (read(live).as_str(), read(file).as_str()),
            ("1024\n", "# Written by cobd.\nnet.core.somaxconn = 1024\n")
        );
        fs::write(host.path().join(live), "512\n").expect("written");
        assert_eq!(both.look(before.as_ref()).expect("seen").expect("there")["value"], "512");
        for _ in 0..2 {
            both.restore(before.as_ref()).expect("restored");
        }
        assert_eq!((read(live).as_str(), host.path().join(file).exists()), ("128\n", false));

        let now = parameter(&host, "kernel.pid_max", "10", false);
        let before = now.before().expect("seen");
        now.apply(before.as_ref()).expect("applied");
        assert_eq!(read("proc/sys/kernel/pid_max"), "10\n");
        now.restore(before.as_ref()).expect("restored");
        assert_eq!(read("proc/sys/kernel/pid_max"), "9\n");
        let why = parameter(&host, "net.x.y", "1", true).before().expect_err("missing");
        assert!(why.contains("no parameter net.x.y; does a module have to be loaded"), "{why}");
    }

    #[test]
    fn a_folder_that_is_to_become_a_host_has_no_kernel() {
        let host = host(&[("kernel/pid_max", "9\n")]);
        let proc = || fs::read_to_string(host.path().join("proc/sys/kernel/pid_max")).expect("read");
        let content = |more: &str| format!(r#"{{"root":{:?},"key":"kernel.pid_max","value":10{more}}}"#, host.path());
        let read = |text: &str| Setting::read(&Sysctl, text, "").expect("good");
        let wish = read(&content(""));
        let before = wish.before().expect("seen");
        wish.apply(before.as_ref()).expect("applied");
        assert_eq!((wish.look(before.as_ref()).expect("seen"), proc().as_str()), (Some(wish.wanted()), "9\n"));
        wish.restore(before.as_ref()).expect("restored");
        assert!(!host.path().join("etc/sysctl.d/60-cob-kernel.pid_max.conf").exists());
        // What an earlier program has set there is put back.
        wish.restore(Some(&json!({"value": "8", "file": null}))).expect("restored");
        assert_eq!(proc(), "8\n");
        // There is nothing to do, and nothing is done.
        let nothing = read(&content(r#","persist":false"#));
        assert_eq!(nothing.look(None).expect("seen"), Some(nothing.wanted()));
    }
}
