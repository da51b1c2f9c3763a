//! The line in `/etc/crypttab` that opens a device at every boot.

use cob_kinds::Luks;

use super::super::Entry;
use super::super::boot_table::{BootTable, MARK, with_line};

/// The table of encrypted devices.
pub(super) const CRYPTTAB: BootTable = BootTable { path: Luks::TABLE, turn: "crypttab", unread: "crypttab-unread" };

impl Entry<Luks> {
    /// The line for a header.
    pub(super) fn line(&self, uuid: &str) -> String {
        format!("{} UUID={uuid} {} luks", self.content.name, self.content.key_file)
    }

    fn is_about(&self, line: &str) -> bool {
        line.split_whitespace().next() == Some(self.content.name.as_str())
    }

    /// The lines of the table about this name.
    pub(super) fn table_lines(&self) -> Result<Vec<String>, String> {
        CRYPTTAB.lines(&self.host, |line| self.is_about(line))
    }

    /// Whether the table is there, and change objects are not its only authors.
    pub(super) fn is_table_of_others(&self) -> Result<bool, String> {
        let Some(text) = self.host.read_if_there(CRYPTTAB.path)? else { return Ok(false) };
        let all: Vec<&str> = text.lines().collect();
        let is_mark = |line: &str| line.starts_with(&format!("{MARK} "));
        let is_ours = |at: usize| is_mark(all[at]) || (at > 0 && is_mark(all[at - 1]));
        Ok(all.is_empty() || !(0..all.len()).all(is_ours))
    }

    /// Replaces the lines about this name. Without a line, an empty table goes, unless it is to be `kept`.
    pub(super) fn set_table(&self, line: Option<&str>, kept: bool) -> Result<(), String> {
        let change = |text: &str| with_line(text, |one| self.is_about(one), &self.cob, line);
        CRYPTTAB.edit((&self.host, &self.own, self.longest), kept || line.is_some(), &change)
    }
}
