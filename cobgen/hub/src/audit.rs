//! The audit: every request that changes something, with the person and the decision, in a chain of hashes.
//!
//! The audit is a file of JSON lines. Each line holds the SHA-256 of the line before, so that a changed, removed or
//! inserted line breaks the chain. The last hash can be kept elsewhere; [`verify`] needs only the file.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cob_hub_api::{AuditLine, AuditNote};
use sha2::{Digest as _, Sha256};

/// The longest line that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Why an audit is not valid.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file can't be read or written.
    #[error("the audit {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A line is no line of an audit.
    #[error("line {line} of the audit is damaged: {what}")]
    Damaged {
        /// The number of the line, from 1.
        line: u64,
        /// The damage.
        what: String,
    },
    /// A line does not continue the line before.
    #[error("line {0} of the audit does not continue line {before}: a line was changed, removed or inserted", before = .0 - 1)]
    Broken(u64),
}

/// The end of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct End {
    /// The number of lines.
    pub lines: u64,
    /// The hash of the last line, in hexadecimal.
    pub hash: String,
    /// The length of the whole lines, in bytes.
    length: u64,
}

/// The audit of a hub.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    inner: Mutex<(File, End)>,
}

impl Audit {
    /// Opens the audit and verifies it. A torn last line is removed: its request was not answered.
    ///
    /// # Errors
    ///
    /// The file can't be read, or the chain is broken.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let failed = |source| AuditError::Io { path: path.to_owned(), source };
        let file = OpenOptions::new().create(true).read(true).append(true).open(path).map_err(failed)?;
        let end = verify(path)?;
        if file.metadata().map_err(failed)?.len() > end.length {
            file.set_len(end.length).map_err(failed)?;
        }
        file.sync_all().map_err(failed)?;
        Ok(Self { path: path.to_owned(), inner: Mutex::new((file, end)) })
    }

    /// Appends a note; it is on the disk when the function returns.
    ///
    /// # Errors
    ///
    /// The disk refused; the note is not part of the audit.
    pub fn append(&self, time_ms: u64, note: AuditNote) -> Result<u64, AuditError> {
        let failed = |source| AuditError::Io { path: self.path.clone(), source };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, end) = &mut *inner;
        let line = AuditLine { number: end.lines + 1, time_ms, note, before: end.hash.clone() };
        let mut text = serde_json::to_vec(&line).map_err(|e| failed(e.into()))?;
        let hash = hash(&text);
        text.push(b'\n');
        if let Err(error) = file.write_all(&text).and_then(|()| file.sync_data()) {
            // A part of the line may be in the file; it must not become the beginning of the next line.
            let _ = file.set_len(end.length);
            return Err(failed(error));
        }
        *end = End { lines: line.number, hash, length: end.length + text.len() as u64 };
        Ok(line.number)
    }

    /// The lines that a filter lets through, at most `most`: the oldest, or the newest in reverse order.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub fn lines(
        &self,
        newest: bool,
        most: usize,
        wanted: impl Fn(&AuditLine) -> bool,
    ) -> Result<Vec<AuditLine>, AuditError> {
        let mut found = VecDeque::new();
        read(&self.path, |line, _| {
            if (newest || found.len() < most) && wanted(&line) {
                found.push_back(line);
                if found.len() > most {
                    found.pop_front();
                }
            }
            Ok(())
        })?;
        if newest {
            found.make_contiguous().reverse();
        }
        Ok(found.into())
    }
}

/// Verifies the chain of a file.
///
/// # Errors
///
/// The file can't be read, or the chain is broken.
pub fn verify(path: &Path) -> Result<End, AuditError> {
    let mut end = End::default();
    let length = read(path, |line, text| {
        if line.number != end.lines + 1 || line.before != end.hash {
            return Err(AuditError::Broken(end.lines + 1));
        }
        end = End { lines: line.number, hash: hash(text), length: 0 };
        Ok(())
    })?;
    Ok(End { length, ..end })
}

/// Reads whole lines. Returns their length.
fn read(path: &Path, mut each: impl FnMut(AuditLine, &[u8]) -> Result<(), AuditError>) -> Result<u64, AuditError> {
    let failed = |source| AuditError::Io { path: path.to_owned(), source };
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let (mut length, mut number) = (0, 0);
    loop {
        let mut text = Vec::new();
        (&mut reader).take(LONGEST).read_until(b'\n', &mut text).map_err(failed)?;
        number += 1;
        let Some(line) = text.strip_suffix(b"\n") else {
            if text.len() as u64 == LONGEST {
                return Err(AuditError::Damaged { line: number, what: "it is too long".to_owned() });
            }
            return Ok(length);
        };
        length += text.len() as u64;
        let parsed = serde_json::from_slice(line)
            .map_err(|error| AuditError::Damaged { line: number, what: error.to_string() })?;
        each(parsed, line)?;
    }
}

fn hash(text: &[u8]) -> String {
    hex::encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(user: &str) -> AuditNote {
        AuditNote {
            user: user.to_owned(),
            request: "PUT /v1/x".to_owned(),
            decision: "allowed".to_owned(),
            ..AuditNote::default()
        }
    }

    #[test]
    fn a_changed_removed_or_inserted_line_breaks_the_chain() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit");
        let audit = Audit::open(&path).expect("opened");
        for user in ["ann", "bob", "cy", "di"] {
            audit.append(7, note(user)).expect("written");
        }
        assert_eq!(verify(&path).expect("valid").lines, 4);
        let good = std::fs::read_to_string(&path).expect("read");
        let lines: Vec<&str> = good.split_inclusive('\n').collect();
        let changed = good.replace("bob", "eve");
        let removed = [lines[0], lines[2], lines[3]].concat();
        let inserted = [lines[0], lines[1], lines[1], lines[2], lines[3]].concat();
        for bad in [changed, removed, inserted] {
            std::fs::write(&path, bad).expect("written");
            assert!(matches!(verify(&path), Err(AuditError::Broken(_))), "{:?}", verify(&path));
            assert!(Audit::open(&path).is_err());
        }
    }

    #[test]
    fn a_torn_line_is_removed_and_the_chain_continues() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit");
        Audit::open(&path).expect("opened").append(7, note("ann")).expect("written");
        let mut file = OpenOptions::new().append(true).open(&path).expect("opened");
        file.write_all(b"{\"number\":2,").expect("written");
        let audit = Audit::open(&path).expect("opened");
        assert_eq!(audit.append(8, note("bob")).expect("written"), 2);
        assert_eq!(verify(&path).expect("valid").lines, 2);
        let lines = audit.lines(false, 10, |line| line.number > 1 && line.note.user == "bob").expect("read");
        assert_eq!(lines.len(), 1);
        let numbers = |newest, most| -> Vec<u64> {
            let lines = audit.lines(newest, most, |_| true).expect("read");
            lines.iter().map(|line| line.number).collect()
        };
        assert_eq!((numbers(false, 10), numbers(true, 10)), (vec![1, 2], vec![2, 1]));
        assert_eq!((numbers(false, 1), numbers(true, 1)), (vec![1], vec![2]));
    }
}
