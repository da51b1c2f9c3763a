//! Change objects that edit the same file or folder of others: what a change object made there goes with the last.
//!
//! Each has an entry in a folder of the file, beside the own folders of all change objects: a transition reads the notes of
//! these change objects, and not of all on the host. The entry is made before the note, and each check makes a lost entry
//! again: a power failure may lose it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_kinds::Content;
use cob_types::canonical;
use serde_json::Value;

use super::Entry;
use super::setting::read_note;
use crate::kinds::native::Host;

/// The parent of the folders of all files.
const ALL: &str = ".sharing";
/// Attempts to make an entry: a change object that leaves may remove the empty folder meanwhile.
const ATTEMPTS: usize = 10;

/// Where the change objects of a file are listed.
fn folder(own: &Path, host: &Host, path: &str) -> Option<PathBuf> {
    let root = host.root().map(|root| root.as_os_str().as_encoded_bytes()).unwrap_or_default();
    let name = canonical::fingerprint(&[root, path.as_bytes()]).to_string();
    Some(own.parent()?.join(ALL).join(name))
}

/// Makes the entry of a change object, if it is missing.
///
/// # Errors
/// The reason as text, with the entry.
pub(super) fn join(own: &Path, host: &Host, path: &str) -> Result<(), String> {
    let Some((folder, name)) = folder(own, host, path).zip(own.file_name()) else { return Ok(()) };
    let entry = folder.join(name);
    let make = || File::options().write(true).create(true).truncate(false).open(&entry).map(drop);
    let mut made = make();
    for _ in 0..ATTEMPTS {
        if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            made = fs::create_dir_all(&folder).and_then(|()| make());
        }
    }
    made.map_err(|error| format!("{}: {error}", entry.display()))
}

/// Removes the entry of a change object without a note.
pub(super) fn leave(own: &Path, host: &Host, path: &str) {
    let Some((folder, name)) = folder(own, host, path).zip(own.file_name()) else { return };
    // A remaining entry costs a look at a missing note.
    let _ = fs::remove_file(folder.join(name));
    let _ = fs::remove_dir(folder);
}

/// The noted contents of the other change objects of a file, each with the noted original state. A note that can't be read
/// as a content of the kind is a note of another kind.
pub(super) fn others<C: Content>(own: &Path, host: &Host, path: &str) -> Vec<(Entry<C>, Option<Value>)> {
    let entries = folder(own, host, path).and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let owns = entries.filter_map(|entry| Some(own.parent()?.join(entry.file_name())));
    let noted = |folder: PathBuf| {
        let (content, before) = read_note(&folder)?;
        let entry = Entry::read(&content, "", &folder, Duration::ZERO).ok()?;
        (entry.host == *host).then_some((entry, before))
    };
    owns.filter(|folder| folder != own).filter_map(noted).collect()
}
