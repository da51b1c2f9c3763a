//! Tokens issued to new hosts: `tokens.json` in the depot's folder.
//!
//! Only the hash of a token's secret is stored. A token is valid for a single use by a single host until it expires;
//! the same host may show it again with the same key, so that a lost answer does not lock the host out. Every change is
//! made under a lock: if two hosts show the same token at once, only the first gets in.
//!
//! ```text
//! {"format": 1, "unknown": 0, "tokens": [{"host", "hash", "made", "expires", "key"?, …}]}
//! ```

use std::path::Path;
use std::time::Duration;

use cob_types::remote::Standing;
use cob_types::status::RefusedTokens;
use cob_types::{BlobHash, HostName, PublicKey};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::enrolled::{self, Added, Former};
use crate::error::{DepotError, PublishError};
use crate::input::{read_json, write_json};
use crate::lock::PublisherLock;

/// The file's name in the depot's folder.
pub const FILE: &str = "tokens.json";
const LOCK: &str = "cob-tokens.lock";
const FORMAT: u32 = 1;
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// How long a token stays listed after it has expired, in seconds.
const KEPT: u64 = 7 * 24 * 3600;
/// How long a writer waits for other writers.
const PATIENCE: Duration = Duration::from_secs(10);

/// An issued token.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// The host that it is for.
    pub host: HostName,
    /// SHA-256 of the secret, in hexadecimal digits.
    hash: String,
    /// The time of issue, in seconds since 1970-01-01 UTC.
    pub made: u64,
    /// The time of expiry, in seconds since 1970-01-01 UTC.
    pub expires: u64,
    /// The first key that was shown with the token.
    pub key: Option<PublicKey>,
    /// Whether that key waits for a person's approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
    /// How often it was refused: it was used, expired, or for another host.
    #[serde(default)]
    pub refused: u64,
    /// Whether the host's previously enrolled key counts beside the new key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    keep_former: bool,
}

impl Issued {
    fn former(&self) -> Former {
        if self.keep_former { Former::Keep } else { Former::Revoke }
    }
}

/// All tokens, and the number of unknown tokens that were shown.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    format: u32,
    /// How often a token was shown that this server did not issue.
    #[serde(default)]
    pub unknown: u64,
    /// The issued tokens, oldest first.
    pub tokens: Vec<Issued>,
}

/// The authority that admits a host with a valid token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The token alone.
    Token,
    /// A person's check of the key.
    Manual,
}

/// A token shown by a host.
#[derive(Debug, Clone)]
pub struct Shown<'a> {
    /// The host that the token names.
    pub host: &'a HostName,
    /// The hash of the token's secret.
    pub hash: BlobHash,
    /// The key with which the host has connected.
    pub key: PublicKey,
    /// The present time, in seconds since 1970-01-01 UTC.
    pub now: u64,
    /// The present time in RFC 3339.
    pub at: &'a str,
}

/// The reason why a token is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// This server did not issue it.
    #[error("this server did not issue the token; copy all of it, or make another with `cobgen enroll HOST`")]
    Unknown,
    /// It has expired.
    #[error("the token of {0} has expired; make another with `cobgen enroll {0}`")]
    Expired(HostName),
    /// Another key was shown with it first.
    #[error(
        "the token of {0} was already used with another key: if you did not do that, the token was stolen; look at \
         `cobgen enroll --list`, revoke that key in the model, and make another token with `cobgen enroll {0}`"
    )]
    Used(HostName),
    /// The key that was admitted with it does not count any more.
    #[error(
        "the token of {0} was already used, and the key that it enrolled is no longer a key of the host: it was \
         replaced or removed; make another token with `cobgen enroll {0}`"
    )]
    Displaced(HostName),
    /// It was issued for another host.
    #[error("the token is not for {0}; copy all of it, or make another with `cobgen enroll {0}`")]
    OtherHost(HostName),
}

/// Records a new token; unused tokens of the same host become invalid.
///
/// # Errors
/// If the file can't be read or written.
pub fn issue(
    depot: &Path,
    host: &HostName,
    hash: BlobHash,
    (now, lifetime): (u64, u64),
    former: Former,
) -> Result<(), PublishError> {
    change(depot, |all| {
        all.tokens.retain(|t| (t.host != *host || t.key.is_some()) && t.expires.saturating_add(KEPT) > now);
        let expires = now.saturating_add(lifetime);
        let (host, hash) = (host.clone(), hash.to_string());
        let keep_former = former == Former::Keep;
        all.tokens.push(Issued { host, hash, made: now, expires, key: None, pending: false, refused: 0, keep_former });
        Ok(())
    })
}

/// Handles a token that a host shows. If it is valid, the host's key is enrolled or, with [`Policy::Manual`], recorded
/// for approval. Also returns the keys that the new key has replaced.
///
/// # Errors
/// If a file can't be read or written, or another host has the key. The inner error: the token is not valid.
pub fn show(
    depot: &Path,
    shown: &Shown<'_>,
    policy: Policy,
) -> Result<Result<(Standing, Vec<PublicKey>), Spent>, PublishError> {
    change(depot, |all| {
        let Some(token) = all.tokens.iter_mut().find(|t| t.hash == shown.hash.to_string()) else {
            all.unknown = all.unknown.saturating_add(1);
            return Ok(Err(Spent::Unknown));
        };
        if let Err(spent) = judge(token, shown) {
            token.refused = token.refused.saturating_add(1);
            return Ok(Err(spent));
        }
        if token.pending {
            return Ok(Ok((Standing::Pending, Vec::new())));
        }
        if token.key.is_some() {
            // The token is valid once: it confirms the admission to the same host, but admits no key again.
            let keys = enrolled::read(depot)?;
            if keys.get(shown.host).is_some_and(|keys| keys.contains(&shown.key)) {
                return Ok(Ok((Standing::Accepted, Vec::new())));
            }
            token.refused = token.refused.saturating_add(1);
            return Ok(Err(Spent::Displaced(shown.host.clone())));
        }
        // A key that a person has accepted or entered needs no approval again.
        let accepted = enrolled::read(depot)?.get(shown.host).is_some_and(|keys| keys.contains(&shown.key));
        token.pending = policy == Policy::Manual && !accepted;
        let mut replaced = Vec::new();
        if !token.pending {
            // Before the token is recorded as used: a host interrupted between the two steps can show it again.
            let added = enrolled::add(depot, shown.host, shown.key, shown.at, token.former())?;
            if let Added::Replaced(keys) = added {
                replaced = keys;
            }
        }
        token.key = Some(shown.key);
        Ok(Ok((if token.pending { Standing::Pending } else { Standing::Accepted }, replaced)))
    })
}

fn judge(token: &Issued, shown: &Shown<'_>) -> Result<(), Spent> {
    if token.host != *shown.host {
        return Err(Spent::OtherHost(shown.host.clone()));
    }
    if token.key.is_some_and(|key| key != shown.key) {
        return Err(Spent::Used(token.host.clone()));
    }
    // A key that waits for approval may still ask for the result after the token has expired.
    if token.expires <= shown.now && token.key.is_none() {
        return Err(Spent::Expired(token.host.clone()));
    }
    if token.expires.saturating_add(KEPT) <= shown.now {
        return Err(Spent::Expired(token.host.clone()));
    }
    Ok(())
}

/// Accepts the key that a host has shown, on a person's order; `None` if no key of the host waits. With
/// [`Former::Keep`] the previous key counts beside it, regardless of the token.
///
/// # Errors
/// If a file can't be read or written, or another host has the key.
pub fn accept(
    depot: &Path,
    host: &HostName,
    at: &str,
    former: Former,
) -> Result<Option<(PublicKey, Added)>, PublishError> {
    change(depot, |all| {
        let waiting = all.tokens.iter_mut().rev().find(|t| t.host == *host && t.pending);
        let Some((token, key)) = waiting.and_then(|t| t.key.map(|key| (t, key))) else { return Ok(None) };
        let former = if former == Former::Keep { former } else { token.former() };
        let added = enrolled::add(depot, host, key, at, former)?;
        token.pending = false;
        Ok(Some((key, added)))
    })
}

/// All issued tokens in their present state.
///
/// # Errors
/// If the file exists but can't be read, or is damaged.
pub fn read(depot: &Path) -> Result<Tokens, DepotError> {
    let path = depot.join(FILE);
    let all: Tokens = read_json(&path, MAX_FILE)?.unwrap_or_default();
    if all.format > FORMAT {
        return Err(DepotError::Newer { what: path.display().to_string(), found: all.format, known: FORMAT });
    }
    Ok(all)
}

impl Tokens {
    /// The counts of refused tokens.
    #[must_use]
    pub fn refused(&self) -> RefusedTokens {
        let mut refused = RefusedTokens { unknown: self.unknown, ..RefusedTokens::default() };
        for token in self.tokens.iter().filter(|token| token.refused > 0) {
            let count = refused.hosts.entry(token.host.clone()).or_default();
            *count = count.saturating_add(token.refused);
        }
        refused
    }
}

/// Reads, changes and writes the file under the lock.
fn change<T>(depot: &Path, how: impl FnOnce(&mut Tokens) -> Result<T, PublishError>) -> Result<T, PublishError> {
    let _lock = PublisherLock::take_file(depot, LOCK, PATIENCE)?;
    let mut all = read(depot)?;
    let before = all.clone();
    let answer = how(&mut all)?;
    if all != before {
        all.format = FORMAT;
        write_json(&depot.join(FILE), ".tokens", 0o600, &all)?;
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use cob_types::canonical::blob_hash;

    use super::*;

    const HOUR: u64 = 3600;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a name")
    }

    fn try_it(depot: &Path, name: &str, secret: &str, key: u8, now: u64) -> Result<Standing, Spent> {
        by_policy(depot, name, secret, key, now, Policy::Token)
    }

    fn by_policy(depot: &Path, name: &str, secret: &str, key: u8, now: u64, p: Policy) -> Result<Standing, Spent> {
        let hash = blob_hash(secret.as_bytes());
        let shown = Shown { host: &host(name), hash, key: PublicKey([key; 32]), now, at: "2026-11-21T12:00:00Z" };
        show(depot, &shown, p).expect("readable").map(|(standing, _)| standing)
    }

    #[test]
    fn a_token_is_accepted_once_for_its_host_before_it_expires() {
        let dir = tempfile::tempdir().expect("a folder");
        let depot = dir.path();
        for name in ["h1", "h2"] {
            issue(depot, &host(name), blob_hash(name.as_bytes()), (1000, HOUR), Former::Revoke).expect("noted");
        }
        let mode = std::fs::metadata(depot.join(FILE)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(try_it(depot, "h1", "guess", 1, 1001), Err(Spent::Unknown));
        assert_eq!(try_it(depot, "h2", "h1", 1, 1001), Err(Spent::OtherHost(host("h2"))));
        assert_eq!(try_it(depot, "h1", "h1", 1, 1001), Ok(Standing::Accepted));
        assert_eq!(try_it(depot, "h1", "h1", 1, 1002), Ok(Standing::Accepted), "its answer may have been lost");
        assert_eq!(try_it(depot, "h1", "h1", 9, 1002), Err(Spent::Used(host("h1"))));
        assert_eq!(try_it(depot, "h2", "h2", 2, 1000 + HOUR), Err(Spent::Expired(host("h2"))));
        let all = read(depot).expect("read");
        assert_eq!(all.unknown, 1);
        assert_eq!(all.tokens.iter().map(|t| t.refused).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(all.refused(), RefusedTokens { hosts: [(host("h1"), 2), (host("h2"), 1)].into(), unknown: 1 });
        let keys = enrolled::read(depot).expect("read");
        assert_eq!(keys, [(host("h1"), vec![PublicKey([1; 32])])].into());
    }

    #[test]
    fn a_new_token_replaces_an_unused_one() {
        let dir = tempfile::tempdir().expect("a folder");
        issue(dir.path(), &host("h1"), blob_hash(b"old"), (0, HOUR), Former::Revoke).expect("noted");
        issue(dir.path(), &host("h1"), blob_hash(b"new"), (1, HOUR), Former::Revoke).expect("noted");
        assert_eq!(try_it(dir.path(), "h1", "old", 1, 2), Err(Spent::Unknown));
        assert_eq!(try_it(dir.path(), "h1", "new", 1, 2), Ok(Standing::Accepted));
    }

    #[test]
    fn a_used_token_brings_no_key_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let depot = dir.path();
        for (secret, key) in [("one", 1), ("two", 2), ("three", 3)] {
            issue(depot, &host("h1"), blob_hash(secret.as_bytes()), (0, HOUR), Former::Keep).expect("noted");
            assert_eq!(try_it(depot, "h1", secret, key, 1), Ok(Standing::Accepted));
        }
        let keys = || enrolled::read(depot).expect("read").remove(&host("h1")).unwrap_or_default();
        let left = [PublicKey([2; 32]), PublicKey([3; 32])];
        assert_eq!(keys(), left);
        assert_eq!(try_it(depot, "h1", "one", 1, 2), Err(Spent::Displaced(host("h1"))));
        assert_eq!(try_it(depot, "h1", "two", 2, 2), Ok(Standing::Accepted), "it counts beside the newest");
        assert_eq!(keys(), left);
        // Removing a host's enrolment by hand is final.
        std::fs::remove_file(depot.join(enrolled::FILE)).expect("removed");
        assert_eq!(try_it(depot, "h1", "three", 3, 2), Err(Spent::Displaced(host("h1"))));
        assert_eq!(keys(), []);
        assert_eq!(read(depot).expect("read").tokens.iter().map(|t| t.refused).sum::<u64>(), 2);
    }

    #[test]
    fn a_second_token_replaces_the_key_of_the_host() {
        let dir = tempfile::tempdir().expect("a folder");
        let depot = dir.path();
        for (secret, key) in [("one", 1), ("two", 2)] {
            issue(depot, &host("h1"), blob_hash(secret.as_bytes()), (0, HOUR), Former::Revoke).expect("noted");
            assert_eq!(try_it(depot, "h1", secret, key, 1), Ok(Standing::Accepted));
        }
        let all = enrolled::read_all(depot).expect("read");
        assert_eq!(all.keys[&host("h1")], [PublicKey([2; 32])]);
        assert_eq!(all.revoked, [PublicKey([1; 32])].into());
        assert_eq!(try_it(depot, "h1", "one", 1, 2), Err(Spent::Displaced(host("h1"))));
    }

    #[test]
    fn a_person_accepts_a_key_that_waits() {
        let dir = tempfile::tempdir().expect("a folder");
        let depot = dir.path();
        issue(depot, &host("h1"), blob_hash(b"h1"), (0, HOUR), Former::Revoke).expect("noted");
        assert_eq!(accept(depot, &host("h1"), "now", Former::Revoke).expect("read"), None);
        let ask = |key, now| by_policy(depot, "h1", "h1", key, now, Policy::Manual);
        assert_eq!(ask(1, 1), Ok(Standing::Pending));
        assert_eq!(ask(2, 2), Err(Spent::Used(host("h1"))));
        assert_eq!(enrolled::read(depot).expect("read"), [].into(), "nothing is believed yet");
        assert_eq!(
            accept(depot, &host("h1"), "now", Former::Revoke).expect("done"),
            Some((PublicKey([1; 32]), Added::New))
        );
        assert_eq!(ask(1, HOUR + 1), Ok(Standing::Accepted), "it may come late to hear it");
        assert_eq!(enrolled::read(depot).expect("read").len(), 1);
        // A further token: the accepted key is valid at once, another key waits.
        let further = |hash: &[u8], key| {
            let key = PublicKey([key; 32]);
            let shown = Shown { host: &host("h1"), hash: blob_hash(hash), key, now: HOUR + 2, at: "now" };
            show(depot, &shown, Policy::Manual).expect("written").map(|(standing, _)| standing)
        };
        issue(depot, &host("h1"), blob_hash(b"two"), (HOUR, HOUR), Former::Revoke).expect("noted");
        assert_eq!(further(b"two", 1), Ok(Standing::Accepted));
        issue(depot, &host("h1"), blob_hash(b"three"), (HOUR, HOUR), Former::Revoke).expect("noted");
        assert_eq!(further(b"three", 5), Ok(Standing::Pending));
    }

    #[test]
    fn a_token_used_by_many_keys_at_once_is_accepted_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let depot = dir.path();
        issue(depot, &host("h1"), blob_hash(b"h1"), (0, HOUR), Former::Revoke).expect("noted");
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let tries: Vec<_> = (1..9).map(|key| scope.spawn(move || try_it(depot, "h1", "h1", key, 1))).collect();
            tries.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        assert_eq!(outcomes.iter().filter(|o| **o == Ok(Standing::Accepted)).count(), 1, "{outcomes:?}");
        assert_eq!(outcomes.iter().filter(|o| **o == Err(Spent::Used(host("h1")))).count(), 7);
        assert_eq!(read(depot).expect("read").tokens[0].refused, 7);
    }
}
