//! Keeps contents before they are overwritten or removed. Only a bounded part of long files is held in memory.

use super::{Comes, Plan, Planner, Step};
use crate::attributes::{Attributes, Managed};
use crate::disk::Found;
use crate::error::{FilesError, MAX_FILE, MAX_TREE};
use crate::path::TreePath;
use crate::sides::{Base, Live, Target, TargetNode};
use crate::store::{Blob, HELD, Listing, RecordedEntry, RecordedNode};

impl Planner<'_> {
    /// Keeps the text of others before it is overwritten, and notes the text to be written.
    pub(super) fn keep_what_goes(
        &self,
        path: &TreePath,
        target: &Target,
        live: &Live<'_>,
        base: &Base<'_>,
        comes: Comes,
        plan: &mut Plan,
    ) -> Result<(), FilesError> {
        if self.same {
            return Ok(());
        }
        let held_secret = self.held_secret(path);
        let changed = match base {
            Base::Recorded(kept) => !live.is(&kept.node)?,
            Base::Same | Base::None => false,
        };
        let ours =
            matches!(base, Base::Recorded(kept) if kept.node == RecordedNode::Secret) || held_secret && !target.secret;
        if changed && !ours && comes != Comes::First && !matches!(live.found, Found::Absent | Found::Folder { .. }) {
            let kept = self.keep(path, live.found, target.secret, plan)?;
            plan.found.insert(path.clone(), kept);
        }
        let aim = match &target.node {
            TargetNode::File(_) if target.secret => RecordedNode::Secret,
            TargetNode::File(bytes) => RecordedNode::File(Blob::New(bytes.clone())),
            TargetNode::Stored { id, .. } => RecordedNode::File(Blob::Known(*id)),
            TargetNode::Link(to) => RecordedNode::Link(to.clone()),
            TargetNode::Absent => RecordedNode::Absent,
            TargetNode::Folder => RecordedNode::Folder,
        };
        let Target { managed, implied, shared, .. } = target;
        let aim = RecordedEntry { node: aim, managed: managed.clone(), implied: *implied, shared: Some(*shared) };
        plan.begun.aim.insert(path.clone(), aim);
        let result = match plan.steps.last().map(|(_, step)| step) {
            _ if target.secret || held_secret => return Ok(()),
            Some(Step::File { content, .. }) => RecordedNode::File(Blob::New(content.clone())),
            Some(Step::Stored { id, .. }) => RecordedNode::File(Blob::Known(*id)),
            Some(Step::Link(to)) => RecordedNode::Link(to.clone()),
            Some(Step::Remove) => RecordedNode::Absent,
            _ => return Ok(()),
        };
        let from = match live.found {
            // As just kept.
            Found::File { .. } if plan.kept_of(path).is_some() => match plan.kept_of(path).map(|kept| &kept.node) {
                Some(node @ RecordedNode::File(_)) => node.clone(),
                _ => return Ok(()),
            },
            Found::File { size, .. } if *size > HELD => match live.id()? {
                Some(id) => RecordedNode::File(Blob::Known(id)),
                None => return Ok(()),
            },
            Found::File { .. } => RecordedNode::File(Blob::New(live.content()?.clone())),
            Found::Link { target } => RecordedNode::Link(target.clone()),
            Found::Absent | Found::Folder { .. } | Found::Other => RecordedNode::Absent,
        };
        // Only a change that is set aside or taken up again has all attributes: this marks it after an interruption.
        let found = live.found.attributes().filter(|_| self.off || comes == Comes::Again).map(Managed::all);
        let written = match plan.steps.last() {
            Some((_, Step::File { attributes, .. })) if comes == Comes::Again && !self.retire => {
                Some(Managed::all(attributes))
            }
            _ => None,
        };
        let begun = &mut plan.begun;
        if let Base::Recorded(base) = base {
            begun.base.insert(path.clone(), (*base).clone());
        }
        begun.from.insert(path.clone(), RecordedEntry::found(from, found.unwrap_or_default()));
        begun.result.insert(path.clone(), RecordedEntry::found(result, written.unwrap_or_default()));
        Ok(())
    }

    /// Sets the attributes of a file. A file that gets another owner is written anew: otherwise an open descriptor or
    /// another hard link would keep its rights.
    pub(super) fn attributes_step(
        &self,
        path: &TreePath,
        live: &Live<'_>,
        attributes: Attributes,
        plan: &mut Plan,
    ) -> Result<Step, FilesError> {
        let (Found::File { size, attributes: had }, true) = (live.found, self.keeps) else {
            return Ok(Step::Attributes(attributes));
        };
        if had.uid == attributes.uid && !live.has_other_names() || *size > MAX_FILE {
            return Ok(Step::Attributes(attributes));
        }
        plan.hold(path, *size)?;
        Ok(Step::File { content: live.content()?.clone(), attributes })
    }

    /// Whether the present text may hold a secret of an earlier content.
    pub(super) fn held_secret(&self, path: &TreePath) -> bool {
        let past = self.past;
        let of = |listing: &Listing| listing.get(path).is_some_and(|kept| kept.node == RecordedNode::Secret);
        of(&past.applied) || of(&past.begun.aim)
    }

    /// The present entry, to be kept. A large file goes into the store at once, and counts when the record is written.
    pub(super) fn keep(
        &self,
        path: &TreePath,
        found: &Found,
        secret: bool,
        plan: &mut Plan,
    ) -> Result<RecordedEntry, FilesError> {
        let node = match found {
            Found::Absent | Found::Other => RecordedNode::Absent,
            Found::Folder { .. } => RecordedNode::Folder,
            Found::Link { target } => RecordedNode::Link(target.clone()),
            Found::File { size, .. } if *size > MAX_FILE => {
                plan.blocked.push(FilesError::TooLarge { path: path.clone(), size: *size });
                RecordedNode::Absent
            }
            // A plan that only checks records no content.
            Found::File { .. } if !self.keeps => RecordedNode::Absent,
            Found::File { size, .. } if *size > HELD && !secret && !self.holds_secret(path)? => {
                RecordedNode::File(Blob::Known(self.put_into_store(path, *size, plan)?))
            }
            Found::File { .. } => {
                let bytes = self.disk.content(path)?;
                plan.hold(path, bytes.len() as u64)?;
                if secret || self.wanted.holds_secret(&bytes) {
                    let sealed = self.vault.seal(&bytes);
                    let sealed = sealed.map_err(|what| FilesError::Vault { path: path.clone(), what })?;
                    RecordedNode::Sealed(Blob::New(sealed.into()))
                } else {
                    RecordedNode::File(Blob::New(bytes.into()))
                }
            }
        };
        Ok(RecordedEntry::found(node, found.attributes().map(Managed::all).unwrap_or_default()))
    }

    /// Adds a file to the store; returns its id.
    fn put_into_store(&self, path: &TreePath, size: u64, plan: &mut Plan) -> Result<git2::Oid, FilesError> {
        let file = self.disk.open(path)?;
        let spool = plan.spool.get_or_insert_with(|| self.store.spool());
        let added = spool.add(size, file);
        let added = added.map_err(|source| FilesError::Disk { doing: "keeping", path: path.clone(), source })?;
        if spool.size() > MAX_TREE {
            return Err(too_much(path));
        }
        added.ok_or_else(|| FilesError::Changed { path: path.clone() })
    }

    /// Whether a file too large for memory holds the value of a secret.
    fn holds_secret(&self, path: &TreePath) -> Result<bool, FilesError> {
        let Some(longest) = self.wanted.longest_secret() else { return Ok(false) };
        let (mut window, mut holds) = (Vec::new(), false);
        self.disk.read(path, |piece| {
            window.extend_from_slice(piece);
            holds = self.wanted.holds_secret(&window);
            // A value may begin in this piece and end in the next.
            window.drain(..window.len().saturating_sub(longest));
            !holds
        })?;
        Ok(holds)
    }
}

impl Plan {
    /// The kept entry of the path's present text.
    fn kept_of(&self, path: &TreePath) -> Option<&RecordedEntry> {
        self.found.get(path).or_else(|| self.new_before.contains(path).then(|| self.before.get(path)).flatten())
    }

    pub(super) fn hold(&mut self, path: &TreePath, bytes: u64) -> Result<(), FilesError> {
        self.held += bytes;
        if self.held > 2 * MAX_TREE { Err(too_much(path)) } else { Ok(()) }
    }
}

fn too_much(path: &TreePath) -> FilesError {
    FilesError::Content(format!("with {path}, COB would have to keep more than {} MiB at once", MAX_TREE >> 20))
}
