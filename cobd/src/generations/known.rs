//! The content of each generation number that this host knows.
//!
//! A depot that was restored from an older copy may assign a number a second time, so a number alone does not identify
//! a generation. A number is noted when its generation is first kept here; the note stays when the generation is
//! deleted to make room.
//!
//! ```text
//! N HASH          one line a generation, by number: the hash of its manifest, in hexadecimal
//! HASH            of all lines before it
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cob_types::{BlobHash, GenerationId, GenerationNumber, canonical};
use tracing::warn;

use crate::durable;

/// The file, in the folder of the generations.
const NAME: &str = "known";
/// The most numbers that are remembered: the newest.
const MOST: usize = 1000;

/// The contents by number.
type Noted = BTreeMap<GenerationNumber, BlobHash>;

/// The numbers and their contents; clones share the data.
#[derive(Debug, Clone)]
pub(super) struct Known {
    folder: PathBuf,
    read: Arc<Mutex<Option<Noted>>>,
}

impl Known {
    /// For the generations that are kept in a folder.
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), read: Arc::default() }
    }

    /// The content of a number; absent: it is not known here. `kept` returns the kept generations without a note:
    /// fetched by an earlier version of the daemon.
    pub(super) fn of(
        &self,
        generation: GenerationNumber,
        kept: impl FnOnce(&Noted) -> Vec<GenerationId>,
    ) -> Option<BlobHash> {
        self.all(kept).get_or_insert_default().get(&generation).copied()
    }

    /// The newest generations, at most this many, the newest first.
    pub(super) fn newest(&self, most: usize, kept: impl FnOnce(&Noted) -> Vec<GenerationId>) -> Vec<GenerationId> {
        let mut all = self.all(kept);
        let all = all.get_or_insert_default().iter().rev().take(most);
        all.map(|(generation, manifest)| GenerationId { generation: *generation, manifest: *manifest }).collect()
    }

    /// Notes the content of a number durably.
    pub(super) fn note(&self, id: GenerationId, kept: impl FnOnce(&Noted) -> Vec<GenerationId>) -> io::Result<()> {
        let mut all = self.all(kept);
        let all = all.get_or_insert_default();
        if all.insert(id.generation, id.manifest) == Some(id.manifest) && self.folder.join(NAME).exists() {
            return Ok(());
        }
        while all.len() > MOST {
            all.pop_first();
        }
        self.write(all)
    }

    /// Forgets the content of a number durably: no host has switched to its generation.
    pub(super) fn forget(
        &self,
        generation: GenerationNumber,
        kept: impl FnOnce(&Noted) -> Vec<GenerationId>,
    ) -> io::Result<()> {
        let mut all = self.all(kept);
        let all = all.get_or_insert_default();
        match all.remove(&generation) {
            Some(_) => self.write(all),
            None => Ok(()),
        }
    }

    fn all(&self, kept: impl FnOnce(&Noted) -> Vec<GenerationId>) -> MutexGuard<'_, Option<Noted>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.is_none() {
            let mut all = self.load();
            let unnoted = kept(&all);
            all.extend(unnoted.into_iter().map(|id| (id.generation, id.manifest)));
            *read = Some(all);
        }
        read
    }

    /// The notes in the file; empty if it is damaged: kept generations are known anyway.
    fn load(&self) -> Noted {
        let path = self.folder.join(NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
            Err(error) => {
                warn!(file = %path.display(), %error, "only the kept generations are known: can't read their record");
                return BTreeMap::new();
            }
        };
        parse(&text).unwrap_or_else(|| {
            warn!(file = %path.display(), "only the kept generations are known: their record is damaged");
            BTreeMap::new()
        })
    }

    fn write(&self, all: &Noted) -> io::Result<()> {
        durable::write_file(&self.folder, NAME, 0o600, in_text(all).as_bytes(), durable::Sync::Now)
    }
}

fn in_text(all: &Noted) -> String {
    let mut text: String = all.iter().map(|(generation, hash)| format!("{generation} {hash}\n")).collect();
    let check = canonical::blob_hash(text.as_bytes());
    text.push_str(&format!("{check}\n"));
    text
}

fn parse(text: &str) -> Option<Noted> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let Some((number, hash)) = line.split_once(' ') else { break };
        all.insert(GenerationNumber(number.parse().ok()?), BlobHash::of_hex(hash)?);
    }
    (in_text(&all) == text).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> GenerationId {
        GenerationId { generation: GenerationNumber(number), manifest: canonical::blob_hash(&number.to_be_bytes()) }
    }

    fn none(_: &Noted) -> Vec<GenerationId> {
        Vec::new()
    }

    #[test]
    fn a_number_keeps_its_content_across_restarts_until_it_is_forgotten() {
        let dir = tempfile::tempdir().expect("folder");
        let known = Known::new(dir.path());
        for number in [3, 1, 2] {
            known.note(id(number), none).expect("noted");
        }
        let again = Known::new(dir.path());
        assert_eq!(again.of(GenerationNumber(2), none), Some(id(2).manifest));
        assert_eq!(again.newest(2, none), [id(3), id(2)]);
        again.forget(GenerationNumber(3), none).expect("forgotten");
        again.forget(GenerationNumber(3), none).expect("no entry to forget");
        assert_eq!(Known::new(dir.path()).newest(9, none), [id(2), id(1)]);
    }

    #[test]
    fn entries_of_an_earlier_version_are_known_and_a_damaged_file_is_ignored() {
        let dir = tempfile::tempdir().expect("folder");
        assert_eq!(Known::new(dir.path()).newest(9, |_| vec![id(4)]), [id(4)]);
        let known = Known::new(dir.path());
        known.note(id(5), |_| vec![id(4)]).expect("noted");
        let path = dir.path().join(NAME);
        let bytes = std::fs::read(&path).expect("read");
        assert_eq!(Known::new(dir.path()).newest(9, none), [id(5), id(4)]);
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            std::fs::write(&path, &altered).expect("written");
            assert_eq!(Known::new(dir.path()).newest(9, |_| vec![id(4)]), [id(4)], "byte {at}");
        }
    }

    #[test]
    fn the_newest_numbers_are_remembered() {
        let all: BTreeMap<_, _> = (1..=MOST as u64).map(|n| (GenerationNumber(n), id(n).manifest)).collect();
        let dir = tempfile::tempdir().expect("folder");
        std::fs::write(dir.path().join(NAME), in_text(&all)).expect("written");
        let known = Known::new(dir.path());
        known.note(id(MOST as u64 + 1), none).expect("noted");
        assert_eq!(known.of(GenerationNumber(1), none), None);
        assert_eq!(known.newest(MOST + 1, none).len(), MOST);
    }
}
