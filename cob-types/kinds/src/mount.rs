//! The kind `mount`: a file system that is mounted now, and at every boot by a line in `/etc/fstab`.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint, Subject, UNITS};

/// The most options.
const MAX_OPTIONS: usize = 64;

/// The content of `mount`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where: an absolute path. Folders that are missing are made.
    pub path: String,
    /// What: a device, `UUID=…`, `LABEL=…`, `HOST:/PATH`, a folder for `bind`, any word for `tmpfs`.
    #[serde(default)]
    pub source: String,
    /// The type of file system: `ext4`, `nfs`, `tmpfs`, `bind`, `auto`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Options, each separately: `[ro, noexec, size=1g]`; default: `defaults`.
    #[serde(default)]
    pub options: Vec<String>,
    /// In which turn it is checked at the start: 0 (not at all), 1 or 2.
    #[serde(default)]
    pub pass: u8,
    /// Nothing must be mounted at the path, now and at every boot. What was mounted returns when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// A folder that is to become a host, instead of the host itself: its `/etc/fstab` alone.
    pub root: Option<PathBuf>,
}

impl Content for Mount {
    const KIND: Builtin = Builtin { timeout_ms: 120_000, ..Builtin::setting("mount") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !self.mount_point().strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_plain)) {
            let what = format!("{:?} is not a path for a mount", self.path);
            faults.add("path", what, "write it from the root, for example /srv/data");
        }
        if self.absent {
            let has_options = !self.options.is_empty();
            let keys = [("source", &self.source), ("type", &self.kind)].map(|(key, text)| (key, !text.is_empty()));
            let given = keys.into_iter().chain([("options", has_options), ("pass", self.pass != 0)]);
            for (key, _) in given.filter(|(_, is_given)| *is_given) {
                faults.add(
                    key,
                    format!("with `absent` nothing is mounted, so `{key}` has no effect"),
                    "remove the key",
                );
            }
            return;
        }
        let of_source =
            "`source`: What: a device, `UUID=…`, `LABEL=…`, `HOST:/PATH`, a folder for `bind`, any word for `tmpfs`";
        let of_type = "`type`: The type of file system: `ext4`, `nfs`, `tmpfs`, `bind`, `auto`";
        for (key, text, help) in [("source", &self.source, of_source), ("type", &self.kind, of_type)] {
            if text.is_empty() {
                faults.add_as("missing-key", key, format!("the content of `mount` lacks `{key}`"), help);
            }
        }
        if self.source.is_empty() || self.kind.is_empty() {
            return;
        }
        let source = &self.source;
        if source.is_empty() || source.starts_with(['-', '#']) || source.chars().any(char::is_control) {
            faults.add("source", format!("{source:?} can't be mounted"), "a device, UUID=…, HOST:/PATH or a path");
        }
        let is_ignored = |option: &&String| option.contains('=') && !option.starts_with("mode=");
        if let Some(option) = self.options.iter().filter(|_| self.kind == "ramfs").find(is_ignored) {
            faults.add(("options", option), format!("`ramfs` ignores {option:?}"), "`tmpfs` does");
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !self.kind.starts_with(|c: char| c.is_ascii_alphanumeric()) || !self.kind.chars().all(fits) {
            let what = format!("{:?} is not a type of file system", self.kind);
            faults.add("type", what, "ext4, xfs, nfs, tmpfs, bind or auto");
        }
        for option in &self.options {
            let is_word = !option.is_empty() && !option.contains([',', ' ', '\\']);
            if !is_word || option.chars().any(char::is_control) || option == "remount" {
                let what = format!("{option:?} is not an option of a mount");
                faults.add(("options", option), what, "write each option separately, as in [ro, noexec]");
            }
        }
        if self.options.len() > MAX_OPTIONS {
            faults.add("options", format!("there are more than {MAX_OPTIONS} options"), "remove some options");
        }
        if self.pass > 2 {
            let what = format!("`pass` is 0, 1 or 2, and not {}", self.pass);
            faults.add("pass", what, "0: it is not checked at the start");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        // A unit file of this name would take precedence over the line.
        let unit = format!("{UNITS}/{}.mount", unit_name(&self.path));
        Footprint::of(Subject::MOUNT, self.mount_point()).with_shared(&["/etc/fstab"]).with_own([unit])
    }
}

impl Mount {
    /// The path without a slash at its end.
    #[must_use]
    pub fn mount_point(&self) -> &str {
        self.path.trim_end_matches('/')
    }
}

/// The name of a systemd unit for a path: systemd.unit(5), "String Escaping for Inclusion in Unit Names".
#[must_use]
pub fn unit_name(path: &str) -> String {
    let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut name = String::new();
    for (at, byte) in path.join("/").bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at == 0 => name.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => name.push(char::from(byte)),
            byte => name.push_str(&format!("\\x{byte:02x}")),
        }
    }
    if name.is_empty() { "-".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_paths_are_escaped() {
        assert_eq!(["/srv/a-b/", "/", "/.x/ä"].map(unit_name), ["srv-a\\x2db", "-", "\\x2ex-\\xc3\\xa4"]);
    }
}
