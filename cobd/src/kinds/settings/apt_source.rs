//! The kind back end `apt-source`: a repository of apt, with its key.
//!
//! Before the files change, apt fetches the lists of the new source from files in the change object's own folder: a
//! source that can't be read changes no file of the host, and would otherwise stop every later `apt-get update`. The
//! lists of other sources stay.

use std::fs;

use cob_kinds::AptSource;
use serde_json::{Value, json};

use super::{Entry, Spec};
use crate::durable::{self, Sync};
use crate::kinds::native::{Ran, run_bounded};
use crate::kinds::package::{DPKG, apt_command, apt_settings, wait_for_lists};

/// The name of the file lock: apt has a lock for its lists, and does not wait for it.
const TURN: &str = "apt-lists";
/// The files in the own folder.
const SOURCE: &str = "new.sources";
const KEY: &str = "new.asc";
const SETTINGS: &str = "apt.conf";
/// The most lines of a complaint of apt.
const MAX_LINES: usize = 4;

impl Entry<AptSource> {
    /// The files with their desired text. Without a key, the key file is not ours.
    fn files(&self) -> Vec<(&'static str, String, String)> {
        let key = self.content.key_text().map(|text| ("key", self.content.key_file(), text));
        let source = ("source", self.content.source_file(), self.content.text(&self.content.key_file()));
        key.into_iter().chain([source]).collect()
    }

    fn is_folder(&self, absolute: &str) -> Result<bool, String> {
        Ok(self.host.inspect(absolute)?.is_some())
    }

    /// Fetches the lists of the source, and of no other source.
    fn fetch(&self) -> Result<(), String> {
        let write = |name: &str, text: &str| {
            let written = durable::write_file(&self.own, name, 0o644, text.as_bytes(), Sync::Later);
            written.map_err(|error| format!("{}: {error}", self.own.join(name).display()))
        };
        let shown = |name: &str| self.own.join(name).display().to_string();
        if let Some(text) = self.content.key_text() {
            write(KEY, &text)?;
        }
        write(SOURCE, &self.content.text(&shown(KEY)))?;
        if let Some(text) = apt_settings(&self.host) {
            write(SETTINGS, &text)?;
        }
        wait_for_lists(&self.host, self.longest)?;
        let mut command = apt_command("apt-get", &self.host, &self.own.join(SETTINGS));
        for option in [
            format!("Dir::Etc::sourcelist={}", shown(SOURCE)),
            "Dir::Etc::sourceparts=-".to_owned(),
            "APT::Get::List-Cleanup=0".to_owned(),
            "APT::Update::Error-Mode=any".to_owned(),
            // The user of apt's sandbox has no access to the own folder.
            "APT::Sandbox::User=root".to_owned(),
            // A cache of this source alone is of no use to other programs.
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        let ran = run_bounded(command.arg("update"), b"").map_err(|why| format!("{why}, with the package apt"))?;
        match ran.code {
            Some(0) => Ok(()),
            _ => Err(format!("apt can't read the source {}, which was not written: {}", self.content.name, said(&ran))),
        }
    }

    /// Removes the files from the own folder.
    fn clear(&self) {
        for name in [SOURCE, KEY, SETTINGS] {
            // A file that stays is overwritten later.
            let _ = fs::remove_file(self.own.join(name));
        }
    }
}

/// The complaints of apt; the last line alone only tells that something failed.
fn said(ran: &Ran) -> String {
    let is_complaint = |line: &&str| line.starts_with("E: ") || line.starts_with("W: ");
    let lines: Vec<&str> =
        ran.err.lines().filter(is_complaint).filter(|line| !line.contains("Some index files failed")).collect();
    let last = lines.len().saturating_sub(MAX_LINES);
    if lines.is_empty() { ran.complaint() } else { lines[last..].join("; ") }
}

impl Spec for Entry<AptSource> {
    fn target(&self) -> String {
        self.content.name.clone()
    }

    fn turn(&self) -> Option<&'static str> {
        Some(TURN)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = json!({});
        for (what, file, _) in self.files() {
            found[what] = json!(self.host.read_if_there(&file)?);
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let mut before = self.look(None)?;
        if let Some(before) = &mut before {
            before["sources"] = json!(self.is_folder(AptSource::SOURCES)?);
            before["keys"] = json!(self.is_folder(AptSource::KEYS)?);
        }
        Ok(before)
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({});
        for (what, _, text) in self.files() {
            wanted[what] = json!(text);
        }
        wanted
    }

    fn of_use(&self) -> Result<(), String> {
        match self.host.path(DPKG).is_dir() {
            true => Ok(()),
            false => {
                Err(format!("the host has no apt ({DPKG} does not exist): the kind is for Debian and its relatives"))
            }
        }
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let fetched = self.fetch();
        self.clear();
        fetched?;
        for (_, file, text) in self.files() {
            if self.host.read_if_there(&file)?.as_ref() != Some(&text) {
                self.host.write(&file, &text, 0o644)?;
            }
        }
        // The source has no key any more.
        match before.filter(|_| self.content.key.is_none()).and_then(|before| before.get("key")) {
            Some(Value::String(text)) => self.host.write(&self.content.key_file(), text, 0o644),
            Some(_) => self.host.remove(&self.content.key_file()),
            None => Ok(()),
        }
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        self.clear();
        // The source goes before the key that it names.
        let files: [(&str, String); 2] = [("source", self.content.source_file()), ("key", self.content.key_file())];
        for (what, file) in files {
            match before.get(what) {
                Some(Value::String(text)) => self.host.write(&file, text, 0o644)?,
                Some(_) => self.host.remove(&file)?,
                None => {}
            }
        }
        for (what, folder) in [("sources", AptSource::SOURCES), ("keys", AptSource::KEYS)] {
            if before[what] == json!(false) {
                // It stays if others use it.
                let _ = fs::remove_dir(self.host.path(folder));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "apt_source_test.rs"]
mod tests;
