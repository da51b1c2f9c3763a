//! Keys of enrolled hosts: `enrolled.json` in the depot's folder.
//!
//! The program that accepts hosts writes the file. `cobgen` reads it and puts a host's keys into the manifest if the
//! model does not name them. The file alone is no proof: only the manifest that a publisher signs counts.
//!
//! A host that enrols again is a host that was lost and installed anew: its new key replaces the old key, which is
//! revoked. Both keys count only if a person says so, while the key of a running host is changed.
//!
//! ```text
//! {"HOST": {"keys": ["ed25519:…"], "at": "RFC 3339", "check": "SHA-256 of the entry", "revoked"?: ["ed25519:…"]}}
//! ```
//!
//! An entry that was written by hand may lack `check`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use cob_types::canonical::blob_hash;
use cob_types::{HostName, PublicKey};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::error::{DepotError, PublishError};
use crate::input::{read_json, write_json};
use crate::lock::PublisherLock;

/// The file's name in the depot's folder.
pub const FILE: &str = "enrolled.json";
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// Keys kept for a host: the newest, and the previous key during a change of keys.
const MAX_KEYS: usize = 2;
/// Revoked keys kept for a host: an older key is in no manifest that `cobgen serve` still reads.
const MAX_REVOKED: usize = 16;
/// How long a writer waits for other writers.
const PATIENCE: Duration = Duration::from_secs(30);

/// The fate of the host's previously enrolled key.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Former {
    /// It is revoked: the host was lost.
    #[default]
    Revoke,
    /// It counts beside the new key until the next key is added: the key of a running host is changed.
    Keep,
}

/// The result of an enrolment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// The host had no key before.
    New,
    /// The host had other keys, which are revoked now.
    Replaced(Vec<PublicKey>),
    /// The host had another key, which counts beside the new key until the next key is added.
    Further,
    /// The host had this key already.
    Known,
}

/// All keys of enrolled hosts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Enrolments {
    /// Valid keys, the newest of a host last.
    pub keys: BTreeMap<HostName, Vec<PublicKey>>,
    /// Keys that were replaced.
    pub revoked: BTreeSet<PublicKey>,
}

/// A host's entry.
#[skip_serializing_none]
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    keys: Vec<PublicKey>,
    at: String,
    /// The hash from [`Entry::sum`], so that damage is noticed: any 43 letters are a valid key.
    check: Option<String>,
    /// Keys that were replaced, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<PublicKey>,
}

impl Entry {
    fn sum(&self, host: &HostName) -> String {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        let mut text = format!("{host}\n{}\n{}", keys.join("\n"), self.at);
        for key in &self.revoked {
            text.push_str(&format!("\nrevoked {key}"));
        }
        blob_hash(text.as_bytes()).to_string()
    }
}

/// The keys of every enrolled host, newest last; empty if no host has enrolled.
///
/// # Errors
/// If the file exists but can't be read, or is damaged.
pub fn read(depot: &Path) -> Result<BTreeMap<HostName, Vec<PublicKey>>, DepotError> {
    Ok(read_all(depot)?.keys)
}

/// Like [`read`], with the replaced keys.
///
/// # Errors
/// As [`read`].
pub fn read_all(depot: &Path) -> Result<Enrolments, DepotError> {
    let mut all = Enrolments::default();
    for (host, entry) in entries(depot)? {
        all.keys.insert(host, entry.keys);
        all.revoked.extend(entry.revoked);
    }
    Ok(all)
}

/// Adds a host's key; `at` is the present time (RFC 3339). The file is replaced atomically: a concurrent reader sees
/// the old or the new file.
///
/// # Errors
/// If another host has the key, the key was replaced, or the file can't be read or written: the file is unchanged then.
pub fn add(depot: &Path, host: &HostName, key: PublicKey, at: &str, former: Former) -> Result<Added, PublishError> {
    let _lock = PublisherLock::take(depot, PATIENCE)?;
    let mut all = entries(depot)?;
    if let Some((other, _)) = all.iter().find(|(name, entry)| *name != host && entry.keys.contains(&key)) {
        let why =
            format!("{other} has enrolled with the key {key}, so {host} can't use it: every host makes its own key");
        return Err(damaged(depot, why).into());
    }
    if all.values().any(|entry| entry.revoked.contains(&key)) {
        let why = format!(
            "the key {key} was replaced and is revoked: delete the key file on the host and run `cobd join` there, \
             which makes a new key"
        );
        return Err(damaged(depot, why).into());
    }
    let entry = all.entry(host.clone()).or_default();
    if entry.keys.contains(&key) {
        return Ok(Added::Known);
    }
    let added = match former {
        _ if entry.keys.is_empty() => Added::New,
        Former::Keep => Added::Further,
        Former::Revoke => {
            entry.revoked.extend(&entry.keys);
            let surplus = entry.revoked.len().saturating_sub(MAX_REVOKED);
            entry.revoked.drain(..surplus);
            Added::Replaced(std::mem::take(&mut entry.keys))
        }
    };
    entry.keys.push(key);
    let surplus = entry.keys.len().saturating_sub(MAX_KEYS);
    entry.keys.drain(..surplus);
    at.clone_into(&mut entry.at);
    entry.check = Some(entry.sum(host));
    // As readable as the rest of the depot: the file contains no secret.
    write_json(&depot.join(FILE), ".enrolled", 0o644, &all)?;
    Ok(added)
}

fn entries(depot: &Path) -> Result<BTreeMap<HostName, Entry>, DepotError> {
    let all: BTreeMap<HostName, Entry> = read_json(&depot.join(FILE), MAX_FILE)?.unwrap_or_default();
    for (host, entry) in &all {
        if entry.check.as_ref().is_some_and(|check| *check != entry.sum(host)) {
            return Err(damaged(depot, format!("the entry of {host} was altered; let the host enrol again")));
        }
    }
    Ok(all)
}

fn damaged(depot: &Path, why: String) -> DepotError {
    DepotError::Enrolments { path: depot.join(FILE), why }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("name")
    }

    #[test]
    fn a_second_enrolment_replaces_and_revokes_the_old_key() {
        let depot = tempfile::tempdir().expect("folder");
        let (name, at, key) = (host("n1"), "2026-11-21T12:00:00Z", |n| PublicKey([n; 32]));
        let add = |n| add(depot.path(), &name, key(n), at, Former::Revoke);
        assert_eq!(add(1).expect("added"), Added::New);
        assert_eq!(add(2).expect("added"), Added::Replaced(vec![key(1)]));
        let all = read_all(depot.path()).expect("read");
        assert_eq!(all, Enrolments { keys: [(name.clone(), vec![key(2)])].into(), revoked: [key(1)].into() });
        let error = add(1).expect_err("revoked").to_string();
        assert!(error.contains("is revoked: delete the key file on the host"), "{error}");
        // The list of old keys is bounded.
        for n in 3..40 {
            add(n).expect("added");
        }
        let all = read_all(depot.path()).expect("read");
        assert_eq!((all.keys[&name].len(), all.revoked.len()), (1, MAX_REVOKED));
        // Altering a replaced key by hand is noticed.
        let text = fs::read_to_string(depot.path().join(FILE)).expect("there");
        fs::write(depot.path().join(FILE), text.replace(&key(30).to_string(), &key(50).to_string())).expect("written");
        assert!(read(depot.path()).expect_err("altered").to_string().contains("was altered"));
    }

    #[test]
    fn where_a_person_says_so_the_newest_two_keys_count() {
        let depot = tempfile::tempdir().expect("folder");
        assert_eq!(read(depot.path()).expect("read"), BTreeMap::new());
        let key = |n| PublicKey([n; 32]);
        let add = |name: &str, n| {
            add(depot.path(), &host(name), key(n), "2026-11-21T12:00:00Z", Former::Keep).expect("added")
        };
        assert_eq!([add("n1", 1), add("n1", 1), add("n2", 2)], [Added::New, Added::Known, Added::New]);
        assert_eq!([add("n1", 3), add("n1", 4)], [Added::Further, Added::Further]);
        let all = read(depot.path()).expect("read");
        assert_eq!(all, [(host("n1"), vec![key(3), key(4)]), (host("n2"), vec![key(2)])].into());
    }

    #[test]
    fn a_key_can_not_enrol_a_second_host() {
        let depot = tempfile::tempdir().expect("folder");
        let at = "2026-11-21T12:00:00Z";
        add(depot.path(), &host("n1"), PublicKey([1; 32]), at, Former::Revoke).expect("added");
        let error =
            add(depot.path(), &host("n2"), PublicKey([1; 32]), at, Former::Revoke).expect_err("taken").to_string();
        assert!(error.contains("n1 has enrolled with the key ed25519:"), "{error}");
        assert_eq!(read(depot.path()).expect("read").len(), 1);
    }

    #[test]
    fn a_damaged_file_is_named_and_not_written_over() {
        let depot = tempfile::tempdir().expect("folder");
        fs::write(depot.path().join(FILE), "{\"n1\": {\"keys\": [\"ed25519:x\"]").expect("written");
        let error = read(depot.path()).expect_err("damaged").to_string();
        assert!(error.contains("enrolled.json") && error.contains("another length"), "{error}");
        add(depot.path(), &host("n2"), PublicKey([1; 32]), "", Former::Revoke).expect_err("damaged");
        assert!(fs::read_to_string(depot.path().join(FILE)).expect("there").contains("ed25519:x"));
    }
}
