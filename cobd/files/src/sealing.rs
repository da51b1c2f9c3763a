//! Seals texts of others that hold the value of a secret, before they are kept.
//!
//! The model's own text of a file is in the bundle, and holds a secret only if the file is marked for it. But people
//! copy these files, and editors leave backups. So all found texts are searched before they are recorded.

use std::collections::BTreeSet;

use crate::error::FilesError;
use crate::files::Files;
use crate::path::TreePath;
use crate::plan::Plan;
use crate::store::{Begun, Blob, Frozen, Listing, Part, Record, RecordedEntry, RecordedNode};
use crate::wanted::Wanted;

impl Files {
    /// Seals the texts of a record that hold a secret now, or that were sealed in an earlier record.
    pub(crate) fn sealed(&self, wanted: &Wanted, plan: &Plan, record: Record) -> Result<Record, FilesError> {
        if wanted.longest_secret().is_none() && plan.opened.is_empty() {
            return Ok(record);
        }
        let seal = |listing: Frozen| self.seal_some(wanted, &plan.opened, listing);
        let before = match record.before {
            Part::Same => Part::Same,
            Part::New(before) => Part::New(seal(before)?),
        };
        let [from, base, aim, result] = record.begun;
        let begun = [seal(from)?, base, aim, seal(result)?];
        Ok(Record { before, found: seal(record.found)?, begun, ..record })
    }

    fn seal_some(&self, wanted: &Wanted, opened: &BTreeSet<TreePath>, listing: Frozen) -> Result<Frozen, FilesError> {
        let holds = |path: &TreePath, kept: &RecordedEntry| {
            let RecordedNode::File(Blob::New(text)) = &kept.node else { return false };
            opened.contains(path) || wanted.holds_secret(text)
        };
        if !listing.iter().any(|(path, kept)| holds(path, kept)) {
            return Ok(listing);
        }
        let mut sealed = Listing::new();
        for (path, kept) in listing.iter() {
            let mut kept = kept.clone();
            if let (true, RecordedNode::File(Blob::New(text))) = (holds(path, &kept), &kept.node) {
                let text = self.vault.seal(text);
                let text = text.map_err(|what| FilesError::Vault { path: path.clone(), what })?;
                kept.node = RecordedNode::Sealed(Blob::New(text.into()));
            }
            sealed.insert(path.clone(), kept);
        }
        Ok(sealed.into())
    }

    /// The changes that were set aside when a change object was put off; empty if it was not.
    pub(crate) fn set_aside(&self, cob: &str, opened: &mut BTreeSet<TreePath>) -> Result<Begun, FilesError> {
        let mut begun = self.store.set_aside(cob)?.unwrap_or_default();
        self.open_sealed(&mut begun, opened)?;
        Ok(begun)
    }

    /// Opens the found and the written texts for comparison and merge; their paths are added to `opened`.
    pub(crate) fn open_sealed(&self, begun: &mut Begun, opened: &mut BTreeSet<TreePath>) -> Result<(), FilesError> {
        for part in [&mut begun.from, &mut begun.result] {
            for (path, kept) in part.iter_mut() {
                let RecordedNode::Sealed(blob) = &kept.node else { continue };
                let text = self.vault.open(&self.store.blob(blob)?);
                let text = text.map_err(|what| FilesError::Vault { path: path.clone(), what })?;
                kept.node = RecordedNode::File(Blob::New(text.into()));
                opened.insert(path.clone());
            }
        }
        Ok(())
    }
}
