//! Values of secrets in what others have written: it is sealed before it is kept.
//!
//! What the model says of a file stands in the bundle, and holds a secret only where the file is known for it. But people copy
//! such files, and editors leave copies behind. So whatever is about to be recorded of what was found is looked through.

use std::collections::BTreeSet;

use crate::error::FilesError;
use crate::files::Files;
use crate::path::TreePath;
use crate::plan::Plan;
use crate::store::{Begun, Blob, Frozen, Kept, KeptNode, Listing, Part, Record};
use crate::wanted::Wanted;

impl Files {
    /// The record, with what holds a secret sealed in it: now, or when it was recorded before.
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
        let holds = |path: &TreePath, kept: &Kept| {
            let KeptNode::File(Blob::New(text)) = &kept.node else { return false };
            opened.contains(path) || wanted.holds_secret(text)
        };
        if !listing.iter().any(|(path, kept)| holds(path, kept)) {
            return Ok(listing);
        }
        let mut sealed = Listing::new();
        for (path, kept) in listing.iter() {
            let mut kept = kept.clone();
            if let (true, KeptNode::File(Blob::New(text))) = (holds(path, &kept), &kept.node) {
                let text = self.vault.seal(text);
                let text = text.map_err(|what| FilesError::Vault { path: path.clone(), what })?;
                kept.node = KeptNode::Sealed(Blob::New(text.into()));
            }
            sealed.insert(path.clone(), kept);
        }
        Ok(sealed.into())
    }

    /// What was set aside when a change object went off; nothing, if it was not.
    pub(crate) fn set_aside(&self, cob: &str, opened: &mut BTreeSet<TreePath>) -> Result<Begun, FilesError> {
        let mut begun = self.store.set_aside(cob)?.unwrap_or_default();
        self.open_sealed(&mut begun, opened)?;
        Ok(begun)
    }

    /// Opens what was found and what was to be written, so that it can be compared and merged; `opened` says where.
    pub(crate) fn open_sealed(&self, begun: &mut Begun, opened: &mut BTreeSet<TreePath>) -> Result<(), FilesError> {
        for part in [&mut begun.from, &mut begun.result] {
            for (path, kept) in part.iter_mut() {
                let KeptNode::Sealed(blob) = &kept.node else { continue };
                let text = self.vault.open(&self.store.blob(blob)?);
                let text = text.map_err(|what| FilesError::Vault { path: path.clone(), what })?;
                kept.node = KeptNode::File(Blob::New(text.into()));
                opened.insert(path.clone());
            }
        }
        Ok(())
    }
}
