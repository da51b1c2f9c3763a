//! Tables of the host that systemd reads at a boot and at a daemon-reload: `/etc/fstab` and `/etc/crypttab`.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::mount::reason;
use crate::kinds::native::{Host, Turn, insert_line, lines, run_bounded};

/// The text in the line before a line of a change object: a line of these tables has no room for a mark.
const MARK: &str = "# cob";
/// Exists if systemd has booted the machine.
const SYSTEMD: &str = "/run/systemd/system";
/// The mode of a new table.
const MODE: u32 = 0o644;

/// A table.
#[derive(Debug)]
pub(super) struct BootTable {
    pub(super) path: &'static str,
    /// The name of the file lock for changes.
    pub(super) turn: &'static str,
    /// The mark in the own folder, from before a change until systemd has read it.
    pub(super) unread: &'static str,
}

/// The table of file systems and swap.
pub(super) const FSTAB: BootTable = BootTable { path: "/etc/fstab", turn: "fstab", unread: "fstab-unread" };

/// Whether systemd has booted this host.
pub(super) fn has_systemd(host: &Host) -> bool {
    host.root().is_none() && host.path(SYSTEMD).is_dir()
}

/// The line before a line of a change object.
pub(super) fn mark_of(cob: &str) -> String {
    format!("{MARK} {cob}")
}

/// The table with the lines about something replaced by a marked line, at its end.
pub(super) fn with_line(text: &str, is_about: impl Fn(&str) -> bool, cob: &str, line: Option<&str>) -> String {
    let mark = mark_of(cob);
    let mut out: Vec<String> = Vec::new();
    for one in lines(text) {
        if is_about(one) {
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
}

impl BootTable {
    /// The lines that are about something.
    pub(super) fn lines(&self, host: &Host, is_about: impl Fn(&str) -> bool) -> Result<Vec<String>, String> {
        let text = host.read(self.path)?;
        Ok(text.lines().filter(|line| is_about(line)).map(str::to_owned).collect())
    }

    /// Whether the table is there, and change objects are not its only authors.
    pub(super) fn is_of_others(&self, host: &Host) -> Result<bool, String> {
        let Some(text) = host.read_if_there(self.path)? else { return Ok(false) };
        let all: Vec<&str> = text.lines().collect();
        let is_mark = |line: &str| line.starts_with(&format!("{MARK} "));
        let is_ours = |at: usize| is_mark(all[at]) || (at > 0 && is_mark(all[at - 1]));
        Ok(all.is_empty() || !(0..all.len()).all(is_ours))
    }

    /// Whether systemd has not read a change by the change object with this folder.
    pub(super) fn is_unread(&self, own: &Path) -> bool {
        own.join(self.unread).exists()
    }

    /// Changes the table, removes an empty table that is not `kept`, and lets systemd read it again. The file lock is
    /// waited for at most `longest`.
    pub(super) fn edit(
        &self,
        (host, own, longest): (&Host, &Path, Duration),
        kept: bool,
        change: &dyn Fn(&str) -> String,
    ) -> Result<(), String> {
        let _turn = Turn::wait(own, self.turn, longest)?;
        let unread = has_systemd(host).then(|| own.join(self.unread));
        let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        // Also true if an earlier attempt was killed in between.
        let was_unread = unread.as_ref().is_some_and(|path| path.exists());
        if let Some(path) = unread.as_ref().filter(|_| !was_unread) {
            fs::write(path, "").map_err(|error| failed(path, error))?;
        }
        let mut is_changed =
            host.edit(self.path, MODE, &|text| Some(change(text)).filter(|changed| changed != text))?;
        if !kept && host.read_if_there(self.path)?.is_some_and(|text| text.is_empty()) {
            host.remove(self.path)?;
            is_changed = true;
        }
        let Some(path) = unread else { return Ok(()) };
        if is_changed || was_unread {
            let ran = run_bounded(Command::new("systemctl").env("LC_ALL", "C.UTF-8").arg("daemon-reload"), b"")?;
            if ran.code != Some(0) {
                let why = reason(&ran);
                return Err(format!("{} was changed, and systemd does not read it again: {why}", self.path));
            }
        }
        fs::remove_file(&path).map_err(|error| failed(&path, error))
    }
}
