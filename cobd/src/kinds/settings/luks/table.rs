//! The line in `/etc/crypttab` that opens a device at every boot.

use cob_kinds::Luks;

use super::super::Entry;
use super::super::boot_table::{BootTable, with_line};

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

    /// Replaces the lines about this name. Without a line, an empty table goes, unless it is to be `kept`.
    pub(super) fn set_table(&self, line: Option<&str>, kept: bool) -> Result<(), String> {
        let change = |text: &str| with_line(text, |one| self.is_about(one), &self.cob, line);
        CRYPTTAB.edit((&self.host, &self.own, self.longest), kept || line.is_some(), &change)
    }
}
