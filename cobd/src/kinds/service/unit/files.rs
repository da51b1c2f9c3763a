//! Unit files and drop-ins in the folder for administrators: read, written, restored.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use cob_types::canonical;
use serde::{Deserialize, Serialize};

use super::bus::UnitState;
use super::content::UnitFiles;
use crate::durable::{self, Sync};
use crate::run::read_capped;

/// The most bytes that are read of a unit file.
const MAX: usize = 4 << 20;
/// The most bytes of a shown difference.
const SHOWN: usize = 2 << 10;
const MODE: u32 = 0o644;
/// The prefix of the generators' folders.
const GENERATED: &str = "/run/systemd/generator";

/// The content of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Found {
    /// No file.
    Absent,
    /// A file.
    File {
        /// Permission bits.
        mode: u32,
        /// Owner and group.
        owner: (u32, u32),
        /// The content.
        bytes: Vec<u8>,
    },
    /// A symbolic link.
    Link(PathBuf),
}

/// Whether this is systemd's link for a masked unit.
pub(super) fn is_mask(found: &Found) -> bool {
    *found == Found::Link("/dev/null".into())
}

/// Reads a place.
///
/// # Errors
/// The error of the file system, or that the place has a type of file that can't be restored.
pub(super) fn find(path: &Path) -> io::Result<Found> {
    let meta = match fs::symlink_metadata(path) {
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(Found::Absent);
        }
        meta => meta?,
    };
    if meta.is_symlink() {
        return Ok(Found::Link(fs::read_link(path)?));
    }
    if !meta.is_file() {
        return Err(io::Error::other("it is neither a file nor a link; move it away"));
    }
    let bytes = read_capped(path, MAX)?;
    Ok(Found::File { mode: meta.permissions().mode() & 0o7777, owner: (meta.uid(), meta.gid()), bytes })
}

/// Restores a place, and creates its folder if necessary. Returns whether the place changed.
///
/// # Errors
/// The error of the file system.
pub(super) fn put_back(path: &Path, found: &Found) -> io::Result<bool> {
    if find(path).is_ok_and(|now| now == *found) {
        return Ok(false);
    }
    match found {
        Found::Absent => {
            fs::remove_file(path)?;
            durable::sync_folder(path.parent().unwrap_or(path))?;
        }
        Found::File { mode, owner: (user, group), bytes } => {
            write(path, bytes, *mode)?;
            chown(path, Some(*user), Some(*group))?;
            fs::set_permissions(path, fs::Permissions::from_mode(*mode))?;
        }
        Found::Link(target) => {
            make_folder_of(path)?;
            let temp = path.with_extension("cob-new");
            match fs::remove_file(&temp) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            symlink(target, &temp)?;
            fs::rename(&temp, path)?;
            durable::sync_folder(path.parent().unwrap_or(path))?;
        }
    }
    Ok(true)
}

/// Writes a desired text. Returns whether the file changed.
///
/// # Errors
/// The error of the file system; the old content is unchanged then.
pub(super) fn write_text(path: &Path, text: &str) -> io::Result<bool> {
    if is_there(path, text) {
        return Ok(false);
    }
    write(path, text.as_bytes(), MODE)?;
    Ok(true)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Err(io::Error::other("it is no place for a file"));
    };
    make_folder_of(path)?;
    durable::write_file(folder, name, mode, bytes, Sync::Now)?;
    // The umask of this process must not restrict files that systemd reads.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn make_folder_of(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) else { return Ok(()) };
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

/// The content of a unit's file; empty if it can't be read.
pub(super) fn read_unit_file(path: &Path) -> Vec<u8> {
    read_capped(path, MAX).unwrap_or_default()
}

/// Whether there is a regular file with this text.
fn is_there(path: &Path, text: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_file())
        && read_capped(path, MAX).is_ok_and(|bytes| bytes == text.as_bytes())
}

/// The differences from the desired files as text; empty without a difference. `once_ours` are the places that were
/// written earlier.
pub(super) fn differences<'a>(
    units: &Path,
    wanted: &UnitFiles,
    once_ours: impl Iterator<Item = (&'a String, &'a Found)>,
) -> String {
    let mut said = String::new();
    for (name, text) in wanted {
        let path = units.join(name);
        if is_there(&path, text) {
            continue;
        }
        match find(&path) {
            Ok(Found::Absent) => said += &format!("{name} is not there\n"),
            Ok(Found::Link(target)) => said += &format!("{name} is a link to {}\n", target.display()),
            Ok(Found::File { bytes, .. }) => {
                said += &format!("{name} differs\n{}", lines_apart(&String::from_utf8_lossy(&bytes), text));
            }
            Err(error) => said += &format!("{name}: {error}\n"),
        }
    }
    for (name, before) in once_ours.filter(|(name, _)| !wanted.contains_key(*name)) {
        if find(&units.join(name)).is_ok_and(|now| now != *before) {
            said += &format!("{name} is no longer wanted\n");
        }
    }
    if said.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|i| said.is_char_boundary(*i)).unwrap_or(0);
        said.truncate(end);
        said += "…\n";
    }
    said
}

/// The lines that occur in only one of two texts.
fn lines_apart(found: &str, wanted: &str) -> String {
    let only = |sign: char, of: &str, other: &str| -> String {
        let other: Vec<&str> = other.lines().collect();
        of.lines().filter(|line| !other.contains(line)).map(|line| format!("{sign}{line}\n")).collect()
    };
    only('-', found, wanted) + &only('+', wanted, found)
}

/// The fingerprint of all files that make the unit, and the time of the latest change, in microseconds since 1970.
///
/// Generators rewrite their files at every daemon-reload. Instead of a generated file, its source counts if it belongs
/// to this unit alone: an init script, but not a table such as `/etc/fstab`.
pub(super) fn configuration(state: &UnitState) -> (String, u64) {
    let (mut parts, mut newest): (Vec<Vec<u8>>, u64) = (Vec::new(), 0);
    for path in std::iter::once(&state.fragment).chain(&state.drop_ins).filter(|p| !p.as_os_str().is_empty()) {
        parts.push(path.as_os_str().as_encoded_bytes().to_vec());
        parts.push(read_unit_file(path));
        if !is_generated(path) {
            newest = newest.max(changed_us(path));
        }
    }
    if state.source.file_stem().is_some_and(|name| Path::new(&state.id).file_stem() == Some(name)) {
        newest = newest.max(changed_us(&state.source));
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    (canonical::fingerprint(&parts).to_string(), newest)
}

/// Whether a path is below `generator`, `generator.early` or `generator.late`.
fn is_generated(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(GENERATED))
}

/// The change time; zero if it can't be read.
fn changed_us(path: &Path) -> u64 {
    let Ok(meta) = fs::metadata(path) else { return 0 };
    let micros = u64::try_from(meta.mtime()).unwrap_or(0) * 1_000_000;
    micros + u64::try_from(meta.mtime_nsec()).unwrap_or(0) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_original_file_or_link_is_restored_with_its_mode() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("x.service");
        assert_eq!(find(&path).expect("looked"), Found::Absent);
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        let file = find(&path).expect("looked");
        assert!(write_text(&path, "new").expect("written"));
        assert!(!write_text(&path, "new").expect("written"), "it is there already");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, MODE);
        assert!(put_back(&path, &file).expect("put back"));
        assert_eq!(find(&path).expect("looked"), file);
        assert!(!put_back(&path, &file).expect("no change is needed"));
        let link = Found::Link("/dev/null".into());
        assert!(put_back(&path, &link).expect("linked"));
        assert_eq!(find(&path).expect("looked"), link);
        // The text replaces the link itself and not its target.
        assert!(write_text(&path, "new").expect("written"));
        assert!(put_back(&path, &Found::Absent).expect("removed"));
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);
        fs::create_dir(&path).expect("made");
        assert!(find(&path).expect_err("no file").to_string().contains("move it away"));
    }

    #[test]
    fn differences_name_the_file_and_the_lines() {
        let folder = tempfile::tempdir().expect("folder");
        let wanted = UnitFiles::from([("x.service.d/a.conf".to_owned(), "[Service]\nNice=1\n".to_owned())]);
        let none = std::collections::BTreeMap::new();
        let said = |ours: &std::collections::BTreeMap<String, Found>| differences(folder.path(), &wanted, ours.iter());
        assert_eq!(said(&none), "x.service.d/a.conf is not there\n");
        let path = folder.path().join("x.service.d/a.conf");
        write_text(&path, "[Service]\nNice=2\n").expect("written");
        assert_eq!(said(&none), "x.service.d/a.conf differs\n-Nice=2\n+Nice=1\n");
        write_text(&path, &wanted["x.service.d/a.conf"]).expect("written");
        assert_eq!(said(&none), "");
        write_text(&folder.path().join("x.service.d/b.conf"), "").expect("written");
        let ours = std::collections::BTreeMap::from([("x.service.d/b.conf".to_owned(), Found::Absent)]);
        assert_eq!(said(&ours), "x.service.d/b.conf is no longer wanted\n");
    }

    #[test]
    fn a_generated_unit_is_as_old_as_its_source() {
        let folder = tempfile::tempdir().expect("folder");
        let script = folder.path().join("x.sh");
        fs::write(&script, "").expect("written");
        let newest = |fragment: &str, source: &Path| {
            let state = UnitState {
                id: "x.service".into(),
                fragment: fragment.into(),
                source: source.to_owned(),
                ..UnitState::default()
            };
            configuration(&state).1
        };
        let unit_file = folder.path().join("y.service");
        fs::write(&unit_file, "").expect("written");
        assert_eq!(newest(unit_file.to_str().expect("text"), Path::new("")), changed_us(&unit_file));
        let generated = "/run/systemd/generator.late/x.service";
        assert_eq!(newest(generated, &script), changed_us(&script));
        assert_eq!(newest(generated, &unit_file), 0, "a table of many");
        assert!(is_generated(Path::new(generated)) && !is_generated(Path::new("/run/systemd/system/x.service")));
    }
}
