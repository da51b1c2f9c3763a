//! Options that a remount accepts without an effect.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::mounted::Mounted;

/// The default root folder of a new `tmpfs`.
const TMPFS_ROOT: [(&str, &str); 3] = [("mode", "1777"), ("uid", "0"), ("gid", "0")];
/// A size is rounded up to whole pages; this is the largest page size.
const PAGE: u64 = 64 << 10;

/// Owner and mode of a mount's root folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Root {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl Root {
    /// The value of the mount option with this name.
    fn option(&self, key: &str) -> String {
        match key {
            "uid" => self.uid.to_string(),
            "gid" => self.gid.to_string(),
            _ => format!("{:o}", self.mode),
        }
    }
}

/// Reads owner and mode of the root folder of the mount at this path.
///
/// # Errors
/// If the folder can't be read.
pub(super) fn root(path: &Path) -> Result<Root, String> {
    let meta = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Root { uid: meta.uid(), gid: meta.gid(), mode: meta.mode() & 0o7777 })
}

/// Sets owner and mode of a mount's root folder.
///
/// # Errors
/// If it can't be changed.
pub(super) fn set_root(path: &Path, wanted: &Root) -> Result<(), String> {
    let is = root(path)?;
    let failed = |error: std::io::Error| format!("{}: owner and mode can't be set: {error}", path.display());
    if (is.uid, is.gid) != (wanted.uid, wanted.gid) {
        chown(path, Some(wanted.uid), Some(wanted.gid)).map_err(failed)?;
    }
    // A change of the owner clears mode bits.
    if root(path)?.mode != wanted.mode {
        fs::set_permissions(path, fs::Permissions::from_mode(wanted.mode)).map_err(failed)?;
    }
    Ok(())
}

/// The options of a file system that a remount can restore: options with values. For a `tmpfs`, also options with
/// default values, which the kernel does not show.
///
/// # Errors
/// If the file system can't be read.
pub(super) fn shown(mounted: &Mounted, path: &Path) -> Result<Vec<String>, String> {
    let mut options: Vec<String> =
        mounted.of_file_system().filter(|option| option.contains('=')).map(str::to_owned).collect();
    if mounted.kind == "tmpfs" {
        let found = rustix::fs::statvfs(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for (key, value) in [("size", found.f_blocks * found.f_frsize), ("nr_inodes", found.f_files)] {
            options.retain(|option| option.split('=').next() != Some(key));
            options.push(format!("{key}={value}"));
        }
    }
    Ok(options)
}

/// The options that lead from the shown options back to the earlier options.
pub(super) fn reverse_options(kind: &str, before: &[String], now: &[String]) -> Vec<String> {
    let is_of_root =
        |option: &str| kind == "tmpfs" && TMPFS_ROOT.iter().any(|(key, _)| option.split('=').next() == Some(*key));
    before.iter().filter(|option| !now.contains(option) && !is_of_root(option)).cloned().collect()
}

/// The difference between two lists of options.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changed {
    kind: String,
    /// New options with values.
    new: Vec<(String, String)>,
    /// Removed options that had values.
    gone: Vec<String>,
}

impl Changed {
    pub(super) fn of(kind: &str, before: &[String], now: &[String]) -> Self {
        let valued = |options: &[String]| -> Vec<(String, String)> {
            let pairs = options.iter().filter_map(|option| option.split_once('='));
            let pairs = pairs.filter(|(key, _)| !key.starts_with("x-"));
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let (before, now) = (valued(before), valued(now));
        let gone = before.iter().map(|(key, _)| key).filter(|key| now.iter().all(|(named, _)| named != *key));
        Self {
            kind: kind.to_owned(),
            gone: gone.cloned().collect(),
            new: now.iter().filter(|pair| !before.contains(pair)).cloned().collect(),
        }
    }

    /// Explicit default values for removed options.
    pub(super) fn defaults(&self) -> Vec<String> {
        let is_unlimited = self.kind == "tmpfs" && self.gone.iter().any(|key| key == "size");
        is_unlimited.then(|| "size=50%".to_owned()).into_iter().collect()
    }

    /// Applies the options that the remount ignored, and checks the others. `before` and `now` are the mount before and
    /// after; `theirs` is the root folder of another user's original mount.
    ///
    /// # Errors
    /// The option without effect, as text.
    pub(super) fn finish(
        &self,
        path: &Path,
        before: Option<&Mounted>,
        now: Option<&Mounted>,
        theirs: Option<&Root>,
    ) -> Result<(), String> {
        if self.kind == "tmpfs" {
            self.change_root(path, theirs)?;
        }
        for (key, value) in self.new.iter().filter(|(key, _)| !self.is_of_root(key)) {
            let shown = |mounted: Option<&Mounted>| mounted.and_then(|mounted| mounted.value(key)).map(str::to_owned);
            let (was, is) = (shown(before), shown(now));
            let is_in_effect = match (self.kind.as_str(), key.as_str(), bytes(value)) {
                ("tmpfs", "size", Some(wanted)) => (wanted..wanted.saturating_add(PAGE)).contains(&size(path)?),
                ("tmpfs", "size", None) => true,
                // An option with its old value was ignored; an option that is not shown is unknown.
                _ => is.is_none() || is.as_deref() == Some(value) || is != was,
            };
            if !is_in_effect {
                let is = is.unwrap_or_else(|| "another value".to_owned());
                return Err(format!(
                    "a remount of {} does not change `{key}` to {value}: the kernel still shows {is}; unmount it, and it \
                     is mounted with the new options",
                    path.display()
                ));
            }
        }
        Ok(())
    }

    fn is_of_root(&self, key: &str) -> bool {
        self.kind == "tmpfs" && TMPFS_ROOT.iter().any(|(known, _)| *known == key)
    }

    /// The kernel reads owner and mode of a `tmpfs` root folder only at the first mount.
    fn change_root(&self, path: &Path, theirs: Option<&Root>) -> Result<(), String> {
        let wanted = |key: &str| -> Option<String> {
            let new = self.new.iter().find(|(named, _)| named == key).map(|(_, value)| value.clone());
            let own = TMPFS_ROOT.iter().find(|(known, _)| *known == key).map(|(_, value)| (*value).to_owned());
            let default = theirs.map(|theirs| theirs.option(key)).or(own);
            new.or(default.filter(|_| self.gone.iter().any(|gone| gone == key)))
        };
        let failed = |error: std::io::Error| format!("{}: owner and mode can't be set: {error}", path.display());
        let id = |key: &str| {
            let number = |text: &str| text.parse().map_err(|_| format!("option {key}={text}: it is no number"));
            wanted(key).as_deref().map(number).transpose()
        };
        let (uid, gid): (Option<u32>, Option<u32>) = (id("uid")?, id("gid")?);
        if uid.is_some() || gid.is_some() {
            chown(path, uid, gid).map_err(failed)?;
        }
        let Some(mode) = wanted("mode") else { return Ok(()) };
        let number = u32::from_str_radix(&mode, 8).map_err(|_| format!("option mode={mode}: it is no mode"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(number)).map_err(failed)?;
        let is = fs::metadata(path).map_err(failed)?.mode() & 0o7777;
        if is == number { Ok(()) } else { Err(format!("{}: its mode stays {is:o}", path.display())) }
    }
}

/// A size as the kernel reads it: a number with a letter for the power of 1024. `None`: relative to the memory.
fn bytes(text: &str) -> Option<u64> {
    let shift = match text.chars().last()?.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        c if c.is_ascii_digit() => 0,
        _ => return None,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The size of the file system; 0: unlimited.
fn size(path: &Path) -> Result<u64, String> {
    let found = rustix::fs::statvfs(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(found.f_blocks * found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_reverse_remount_names_the_changed_options() {
        let way = |kind: &str, before: &str, now: &str| reverse_options(kind, &options(before), &options(now));
        assert_eq!(way("tmpfs", "size=3072 nr_inodes=9 mode=700", "size=4096 nr_inodes=9"), ["size=3072"]);
        assert_eq!(way("ext4", "commit=30", "commit=60 x=1"), ["commit=30"]);
    }

    #[test]
    fn new_and_removed_mount_options_are_distinguished() {
        let changed = Changed::of("tmpfs", &options("ro size=1m mode=0700 uid=1"), &options("size=2m uid=1 x-a=b"));
        assert_eq!(changed.new, [("size".to_owned(), "2m".to_owned())]);
        assert_eq!(changed.gone, ["mode"]);
        assert_eq!(changed.defaults(), [""; 0]);
        assert_eq!(Changed::of("tmpfs", &options("size=1m"), &options("ro")).defaults(), ["size=50%"]);
        for (text, size) in
            [("4096", Some(4096)), ("1m", Some(1 << 20)), ("2G", Some(2 << 30)), ("50%", None), ("", None)]
        {
            assert_eq!(bytes(text), size, "{text}");
        }
    }
}
