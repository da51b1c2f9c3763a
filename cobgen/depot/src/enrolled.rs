//! Keys of hosts that have enrolled: `enrolled.json` in the depot's folder.
//!
//! Written by whoever accepts hosts, read by `cobgen`, which puts a host's keys into the manifest
//! where the model does not name them. The file proves nothing by itself: what counts is the manifest
//! that a publisher signs.
//!
//! ```text
//! {"HOST": {"keys": ["ed25519:…"], "at": "RFC 3339", "check": "SHA-256 of the entry"}}
//! ```
//!
//! An entry that was written by hand may lack `check`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use cob_types::canonical::blob_hash;
use cob_types::{HostName, PublicKey};
use serde::{Deserialize, Serialize};

use crate::depot::sync_folder;
use crate::error::{DepotError, PublishError};
use crate::lock::PublisherLock;

/// The file's name in the depot's folder.
pub const FILE: &str = "enrolled.json";
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// Keys kept of a host: the newest, and the one before it while they roll over.
const MAX_KEYS: usize = 2;
/// How long one writer waits for others.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of an enrolment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The host had no key before.
    New,
    /// The host had another key, which counts beside this one until the next one is added.
    Further,
    /// This key was there already.
    Known,
}

/// One host's entry.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    keys: Vec<PublicKey>,
    at: String,
    /// [`Entry::sum`], so that damage shows: any 43 letters are a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<String>,
}

impl Entry {
    fn sum(&self, host: &HostName) -> String {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        blob_hash(format!("{host}\n{}\n{}", keys.join("\n"), self.at).as_bytes()).to_string()
    }
}

/// The keys of every host that has enrolled, the newest last; empty where none has.
///
/// # Errors
/// When the file is there and can't be read, or is damaged.
pub fn read(depot: &Path) -> Result<BTreeMap<HostName, Vec<PublicKey>>, DepotError> {
    Ok(entries(depot)?.into_iter().map(|(host, entry)| (host, entry.keys)).collect())
}

/// Adds a host's key; `at` is the present time (RFC 3339). Whoever reads meanwhile sees the file as it
/// was or as it will be.
///
/// # Errors
/// When another host has the key, or the file can't be read or written: nothing has changed then.
pub fn add(depot: &Path, host: &HostName, key: PublicKey, at: &str) -> Result<Added, PublishError> {
    let _lock = PublisherLock::take(depot, PATIENCE)?;
    let mut all = entries(depot)?;
    if let Some((other, _)) = all.iter().find(|(name, entry)| *name != host && entry.keys.contains(&key)) {
        let why =
            format!("{other} has enrolled with {key}, so {host} can't have it: every host makes a key of its own");
        return Err(damaged(depot, why).into());
    }
    let entry = all.entry(host.clone()).or_insert_with(|| Entry { keys: Vec::new(), at: String::new(), check: None });
    if entry.keys.contains(&key) {
        return Ok(Added::Known);
    }
    let added = if entry.keys.is_empty() { Added::New } else { Added::Further };
    entry.keys.push(key);
    let surplus = entry.keys.len().saturating_sub(MAX_KEYS);
    entry.keys.drain(..surplus);
    at.clone_into(&mut entry.at);
    entry.check = Some(entry.sum(host));
    write(depot, &all).map_err(DepotError::io(format!("can't write {}", depot.join(FILE).display())))?;
    Ok(added)
}

fn entries(depot: &Path) -> Result<BTreeMap<HostName, Entry>, DepotError> {
    let path = depot.join(FILE);
    let failed = || DepotError::io(format!("can't read {}", path.display()));
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(failed()(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed())?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(damaged(depot, format!("it is longer than {MAX_FILE} bytes")));
    }
    let all: BTreeMap<HostName, Entry> =
        serde_json::from_slice(&bytes).map_err(|error| damaged(depot, cob_types::words::form(error)))?;
    for (host, entry) in &all {
        if entry.check.as_ref().is_some_and(|check| *check != entry.sum(host)) {
            return Err(damaged(depot, format!("the entry of {host} was altered; let the host enrol again")));
        }
    }
    Ok(all)
}

fn write(depot: &Path, all: &BTreeMap<HostName, Entry>) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(all)?;
    text.push(b'\n');
    let mut file = tempfile::Builder::new().prefix(".enrolled").tempfile_in(depot)?;
    file.write_all(&text)?;
    file.as_file().sync_all()?;
    // As readable as the rest of the depot: there is no secret in it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(file.path(), mode)?;
    file.persist(depot.join(FILE)).map_err(|error| error.error)?;
    sync_folder(depot)
}

fn damaged(depot: &Path, why: String) -> DepotError {
    DepotError::Enrolments { path: depot.join(FILE), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("name")
    }

    #[test]
    fn keys_are_added_and_the_newest_two_count() {
        let depot = tempfile::tempdir().expect("folder");
        assert_eq!(read(depot.path()).expect("read"), BTreeMap::new());
        let key = |n| PublicKey([n; 32]);
        let add = |name: &str, n| add(depot.path(), &host(name), key(n), "2026-11-21T12:00:00Z").expect("added");
        assert_eq!([add("n1", 1), add("n1", 1), add("n2", 2)], [Added::New, Added::Known, Added::New]);
        assert_eq!([add("n1", 3), add("n1", 4)], [Added::Further, Added::Further]);
        let all = read(depot.path()).expect("read");
        assert_eq!(all, [(host("n1"), vec![key(3), key(4)]), (host("n2"), vec![key(2)])].into());
    }

    #[test]
    fn a_key_belongs_to_one_host() {
        let depot = tempfile::tempdir().expect("folder");
        let at = "2026-11-21T12:00:00Z";
        add(depot.path(), &host("n1"), PublicKey([1; 32]), at).expect("added");
        let error = add(depot.path(), &host("n2"), PublicKey([1; 32]), at).expect_err("taken").to_string();
        assert!(error.contains("n1 has enrolled with ed25519:"), "{error}");
        assert_eq!(read(depot.path()).expect("read").len(), 1);
    }

    #[test]
    fn a_damaged_file_is_named_and_not_written_over() {
        let depot = tempfile::tempdir().expect("folder");
        fs::write(depot.path().join(FILE), "{\"n1\": {\"keys\": [\"ed25519:x\"]").expect("written");
        let error = read(depot.path()).expect_err("damaged").to_string();
        assert!(error.contains("enrolled.json") && error.contains("another length"), "{error}");
        add(depot.path(), &host("n2"), PublicKey([1; 32]), "").expect_err("damaged");
        assert!(fs::read_to_string(depot.path().join(FILE)).expect("there").contains("ed25519:x"));
    }
}
