//! Requests for certificates: the record of the last request, and the delay before the next request.
//!
//! ACME servers limit the requests of an account, failed requests above all. A request whose end the record does not
//! have was killed; the next attempt, or the departure, cleans up after it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cob_types::{calendar, words};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::super::{place, record};

/// The record, in the own folder.
pub(super) const RECORD: &str = "acme.json";
/// The delay after the first failure, in seconds. Each further failure makes it four times as long: there are at most
/// five failed requests in the first hour, as many as Let's Encrypt permits.
const FIRST_DELAY: u64 = 30;
/// The longest delay.
const LONGEST_DELAY: u64 = 6 * 3600;

/// The record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The checksum of the content and of its secrets: the delay is about the same request.
    pub(super) about: String,
    /// The number of failed requests, one after another.
    pub(super) failures: u32,
    /// The time of the last failure, in seconds since 1970.
    pub(super) failed_at: u64,
    /// The reason of the last failure.
    pub(super) why: String,
    /// The request that runs, or was killed.
    pub(super) running: Option<Running>,
    /// The servers of the last certificates, by the checksums of their texts.
    pub(super) servers: BTreeMap<String, String>,
}

/// What has to be cleaned up after a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Running {
    /// The folder for the files of the proof.
    pub(super) proofs: Option<PathBuf>,
    /// The uppermost folder that was made for them.
    pub(super) made: Option<PathBuf>,
    /// The program of the challenge.
    pub(super) hook: Option<PathBuf>,
}

impl Record {
    /// Reads the record.
    pub(super) fn read(own: &Path) -> Result<Self, String> {
        record::read(own, RECORD).map(Option::unwrap_or_default)
    }

    /// Writes the record durably.
    pub(super) fn write(&self, own: &Path) -> Result<(), String> {
        record::write(own, RECORD, self)
    }

    /// Why no request may begin now. `None`: a request may begin.
    pub(super) fn waits(&self, about: &str, now: u64) -> Option<String> {
        let until = self.failed_at.saturating_add(delay(self.failures));
        // A clock that was set back makes no wait longer.
        let waits = self.about == about && self.failures > 0 && (self.failed_at..until).contains(&now);
        waits.then(|| {
            let failed = words::count(self.failures, "failed request");
            format!(
                "{failed}: the next request may begin after {}; the last reason: {}",
                calendar::utc(until.cast_signed()),
                self.why
            )
        })
    }

    /// Notes a failure.
    pub(super) fn fail(&mut self, about: &str, now: u64, why: &str) {
        let earlier = if self.about == about { self.failures } else { 0 };
        (self.failures, self.failed_at) = (earlier.saturating_add(1), now);
        about.clone_into(&mut self.about);
        why.clone_into(&mut self.why);
    }

    /// Notes the server of a new certificate, beside that of the present certificate.
    pub(super) fn issue(&mut self, server: &str, new: &str, present: Option<&str>) {
        let present = present.map(checksum);
        self.servers.retain(|sum, _| Some(sum) == present.as_ref());
        self.servers.insert(checksum(new), server.to_owned());
        (self.failures, self.failed_at) = (0, 0);
        self.why.clear();
    }

    /// The server of a certificate, if it is known.
    pub(super) fn server_of(&self, text: &str) -> Option<&str> {
        self.servers.get(&checksum(text)).map(String::as_str)
    }
}

impl Running {
    /// Removes the files of the proof that `is_ours` recognizes, and the folders that were made for them.
    pub(super) fn clear_proofs(&self, is_ours: impl Fn(&str, &str) -> bool) -> Result<(), String> {
        let Some(folder) = &self.proofs else { return Ok(()) };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let text = fs::read_to_string(&path).unwrap_or_default();
            if name.to_str().is_some_and(|name| is_ours(name, &text)) {
                place::remove_all(&path)?;
            }
        }
        if let Some(first) = &self.made {
            place::remove_folders(&folder.join("proof"), place::text(first)?);
        }
        Ok(())
    }
}

/// The delay after this number of failures, in seconds.
fn delay(failures: u32) -> u64 {
    let times = 4_u64.saturating_pow(failures.saturating_sub(1));
    FIRST_DELAY.saturating_mul(times).min(LONGEST_DELAY)
}

/// The SHA-256 checksum of a text.
pub(super) fn checksum(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_and_ends_with_another_content_or_time() {
        let mut record = Record::default();
        let waits = |record: &Record, now: u64| record.waits("a", now).is_some();
        assert!(!waits(&record, 100));
        let mut begin = 1_000_000;
        for wanted in [30, 120, 480, 1920, 7680, 21_600, 21_600] {
            record.fail("a", begin, "no reason");
            assert!(waits(&record, begin) && waits(&record, begin + wanted - 1), "{wanted}");
            assert!(!waits(&record, begin + wanted), "{wanted}");
            assert!(!waits(&record, begin - 1), "the clock was set back");
            begin += wanted;
        }
        let said = record.waits("a", begin).unwrap_or_else(|| record.waits("a", begin - 1).expect("waits"));
        assert!(said.contains("7 failed requests") && said.contains("no reason"), "{said}");
        assert_eq!(record.waits("b", begin - 1), None, "another content");
        record.fail("b", begin, "why");
        assert_eq!(record.failures, 1);
        record.issue("server", "text", None);
        assert_eq!((record.failures, record.server_of("text"), record.server_of("other")), (0, Some("server"), None));
    }
}
