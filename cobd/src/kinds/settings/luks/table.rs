//! The line in `/etc/crypttab` that opens a device at every boot.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use cob_kinds::Luks;

use super::super::Entry;
use super::super::mount::{MARK, SYSTEMD};
use crate::kinds::native::{Turn, insert_line, lines, run_bounded};

/// The name of the file lock for changes of the table.
pub(super) const TURN: &str = "crypttab";
/// A mark in the own folder, from before a change of the table until systemd has read it.
pub(super) const UNREAD: &str = "crypttab-unread";

impl Entry<Luks> {
    /// The line for a header.
    pub(super) fn line(&self, uuid: &str) -> String {
        format!("{} UUID={uuid} {} luks", self.content.name, self.content.key_file)
    }

    fn mark(&self) -> String {
        format!("{MARK} {}", self.cob)
    }

    fn is_about(&self, line: &str) -> bool {
        line.split_whitespace().next() == Some(self.content.name.as_str())
    }

    /// The lines of the table about this name.
    pub(super) fn table_lines(&self) -> Result<Vec<String>, String> {
        let text = self.host.read(Luks::TABLE)?;
        Ok(text.lines().filter(|line| self.is_about(line)).map(str::to_owned).collect())
    }

    /// Whether the table is there, and change objects are not its only authors.
    pub(super) fn is_table_of_others(&self) -> Result<bool, String> {
        let Some(text) = self.host.read_if_there(Luks::TABLE)? else { return Ok(false) };
        let all: Vec<&str> = text.lines().collect();
        let is_mark = |line: &str| line.starts_with(&format!("{MARK} "));
        let is_ours = |at: usize| is_mark(all[at]) || (at > 0 && is_mark(all[at - 1]));
        Ok(all.is_empty() || !(0..all.len()).all(is_ours))
    }

    /// Replaces the lines about this name. An empty table goes, unless it is to be `kept`.
    pub(super) fn set_table(&self, line: Option<&str>, kept: bool) -> Result<(), String> {
        let _turn = Turn::wait(&self.own, TURN, self.longest)?;
        let unread = self.own.join(UNREAD);
        let failed = |error: io::Error| format!("{}: {error}", unread.display());
        let mark = self.mark();
        let change = |text: &str| {
            let mut out: Vec<String> = Vec::new();
            for one in lines(text) {
                if self.is_about(one) {
                    if out.last().is_some_and(|last| last.trim_end() == mark) {
                        out.pop();
                    }
                } else {
                    out.push(one.to_owned());
                }
            }
            for one in line.iter().flat_map(|line| [mark.as_str(), line]) {
                // A last line without a line end stays the last line.
                let end = out.len();
                insert_line(&mut out, end, one);
            }
            out.concat()
        };
        let text = self.host.read(Luks::TABLE)?;
        let is_changed = change(&text) != text;
        let is_rest = || Ok::<_, String>(!kept && self.host.read_if_there(Luks::TABLE)?.is_some_and(|t| t.is_empty()));
        let is_left = line.is_none() && is_rest()?;
        if !(is_changed || is_left || unread.exists()) {
            return Ok(());
        }
        fs::write(&unread, "").map_err(failed)?;
        if is_changed {
            self.host.edit(Luks::TABLE, 0o644, &|text| Some(change(text)).filter(|changed| changed != text))?;
        }
        if line.is_none() && is_rest()? {
            self.host.remove(Luks::TABLE)?;
        }
        if self.host.root().is_none() && Path::new(SYSTEMD).is_dir() {
            run_bounded(Command::new("systemctl").arg("daemon-reload"), b"")?.ok()?;
        }
        fs::remove_file(&unread).map_err(failed)
    }
}
