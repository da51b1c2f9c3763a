//! The change objects of one kind and host, by subject: the transition of a change object may change another's subject.
//!
//! The daemon writes the list beside the folders of the change objects; the processes of transitions read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cob_types::CobId;

use crate::durable::{self, Sync};
use crate::kinds::backend::{folder_name, make_folder};

/// The subjects of change objects whose preferred state is present.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::kinds) struct Peers(BTreeMap<CobId, String>);

impl Peers {
    pub(super) fn of(subjects: impl Iterator<Item = (CobId, String)>) -> Self {
        Self(subjects.collect())
    }

    /// All change objects.
    pub(super) fn all(&self) -> Vec<CobId> {
        self.0.keys().cloned().collect()
    }

    /// The change objects with these subjects.
    pub(super) fn about(&self, subjects: &BTreeSet<String>) -> Vec<CobId> {
        self.0.iter().filter(|(_, subject)| subjects.contains(*subject)).map(|(cob, _)| cob.clone()).collect()
    }

    /// The change object with a subject.
    pub(in crate::kinds) fn wanting(&self, subject: &str) -> Option<&CobId> {
        self.0.iter().find(|(_, wanted)| *wanted == subject).map(|(cob, _)| cob)
    }

    fn file(backend: &str) -> String {
        format!(".{backend}.peers")
    }

    /// Writes the list into the parent of the change objects' folders.
    pub(super) fn write(&self, cobs: &Path, backend: &str) -> io::Result<()> {
        let path = cobs.join(Self::file(backend));
        if self.0.is_empty() && !path.exists() {
            return Ok(());
        }
        make_folder(cobs)?;
        let text: String = self.0.iter().map(|(cob, subject)| format!("{cob} {subject}\n")).collect();
        durable::write_file(cobs, &Self::file(backend), 0o600, text.as_bytes(), Sync::Later)
    }

    /// Reads the list beside a change object's own folder, without this change object.
    pub(in crate::kinds) fn beside(own: &Path, backend: &str) -> Self {
        let text = fs::read_to_string(own.with_file_name(Self::file(backend))).unwrap_or_default();
        let read = |line: &str| {
            let (cob, subject) = line.split_once(' ')?;
            Some((CobId::new(cob).ok()?, subject.to_owned()))
        };
        let is_other = |(cob, _): &(CobId, String)| own.file_name().is_none_or(|own| own != folder_name(cob).as_str());
        Self(text.lines().filter_map(read).filter(is_other).collect())
    }

    /// Creates the own folder of another change object.
    pub(in crate::kinds) fn folder(own: &Path, cob: &CobId) -> Result<PathBuf, String> {
        let folder = own.with_file_name(folder_name(cob));
        make_folder(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_peers_is_written_and_read_beside_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let cob = |id: &str| CobId::new(id).expect("an id");
        let peers = Peers::of([(cob("h1/a/b"), "one".to_owned()), (cob("h1/c"), "two:i386".to_owned())].into_iter());
        peers.write(folder.path(), "x").expect("written");
        let seen = Peers::beside(&folder.path().join("h1+a+b"), "x");
        assert_eq!((seen.wanting("one"), seen.wanting("two:i386")), (None, Some(&cob("h1/c"))));
        assert_eq!(peers.about(&["two:i386".to_owned(), "three".to_owned()].into()), [cob("h1/c")]);
        assert_eq!(Peers::beside(&folder.path().join("h1+a+b"), "other"), Peers::default());
        Peers::default().write(folder.path(), "x").expect("written");
        assert_eq!(Peers::beside(&folder.path().join("h1+z"), "x"), Peers::default());
    }
}
