//! The history: the versions of a change object's files, their contents, and the restoration of a file.

use std::collections::BTreeMap;

use crate::attributes::{Attributes, Managed};
use crate::disk::{Disk, Found};
use crate::error::{FilesError, MAX_FILE};
use crate::files::Files;
use crate::merge;
use crate::path::TreePath;
use crate::store::{Blob, Info, Listing, Part, Reason, Record, RecordedEntry, RecordedNode, Version};
use crate::wanted::{Entry, Node, Source, Wanted};

/// The most bytes of differences that are shown of a version.
const MAX_SHOWN: usize = 256 << 10;
/// The most bytes of a patch.
const MAX_PATCH: usize = 1 << 20;

/// A version with its id.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The id for `show` and `restore`.
    pub id: String,
    /// When and why the version was made.
    pub info: Info,
}

impl Files {
    /// The versions of a change object, the newest first.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn log(&self, cob: &str, most: usize) -> Result<Vec<Shown>, FilesError> {
        let versions = self.store.versions(cob, most)?;
        Ok(versions.into_iter().map(|(id, v)| Shown { id: id.to_string(), info: v.info }).collect())
    }

    /// The content of a path in a version: the text of others that was found; in a version in which the model was
    /// applied, the file as written then; otherwise the earlier content.
    ///
    /// # Errors
    /// When the version does not exist, or does not have the path.
    pub fn content(&self, cob: &str, version: &str, path: &TreePath) -> Result<Vec<u8>, FilesError> {
        let kept = self.kept(&self.since(cob, version)?, path)?;
        self.content_of(path, kept.map(|kept| kept.node))
    }

    fn content_of(&self, path: &TreePath, node: Option<RecordedNode>) -> Result<Vec<u8>, FilesError> {
        let nothing = |what: &str| FilesError::NotThere(format!("in that version {path} {what}"));
        match node {
            Some(RecordedNode::File(blob)) => Ok(self.store.blob(&blob)?.to_vec()),
            Some(RecordedNode::Link(target)) => Ok(target),
            Some(RecordedNode::Absent) => Err(nothing("was not there")),
            Some(RecordedNode::Folder) => Err(nothing("is a folder")),
            Some(RecordedNode::Secret | RecordedNode::Sealed(_)) => Err(nothing("holds a secret, which is not shown")),
            None => Err(nothing("is not managed")),
        }
    }

    /// The content of a path before it was managed, according to a version.
    ///
    /// # Errors
    /// When the version does not exist, or the path had no content.
    pub fn before(&self, cob: &str, version: &str, path: &TreePath) -> Result<Vec<u8>, FilesError> {
        let versions = self.since(cob, version)?;
        let kept =
            versions.first().map(|v| self.store.listing(&v.before)).transpose()?.and_then(|mut l| l.remove(path));
        match kept.map(|kept| self.bytes(&kept)).transpose()?.flatten() {
            Some(content) => Ok(content),
            None => Err(FilesError::NotThere(format!("no earlier content of {path} is kept"))),
        }
    }

    /// A version as text: its changes against the version before it.
    ///
    /// # Errors
    /// When the version does not exist.
    pub fn show(&self, cob: &str, version: &str) -> Result<String, FilesError> {
        let versions = self.since(cob, version)?;
        let Some(version) = versions.first() else { return Ok(String::new()) };
        let here = self.parts(version)?;
        let last = versions.get(1).map(|last| self.parts(last)).transpose()?;
        // If the version before is pruned, compare with the content from before the first version.
        let is_pruned = last.is_none() && version.info.previous.is_some();
        let last = match last {
            Some(last) => last,
            None if is_pruned => Parts { before: here.before.clone(), ..Parts::default() },
            None => Parts::default(),
        };
        let changes = match version.info.reason {
            Reason::Before => here.kept_beside(&last),
            Reason::Found => here.found_by_others(),
            Reason::Applied => here.applied_over(&last, &version.info.paths, is_pruned),
            Reason::Retired => last.given_back(&here),
        };
        let name = word_of(version.info.reason);
        let mut text = String::new();
        for (path, (was, is)) in changes {
            if text.len() > MAX_SHOWN {
                text.push_str("[the rest is left out]\n");
                break;
            }
            text.push_str(&self.told(name, path, was, is)?);
        }
        if text.is_empty() {
            text = format!("{name}: no difference to the version before\n");
        }
        Ok(text)
    }

    /// The change of a path, as text.
    fn told(
        &self,
        name: &str,
        path: &TreePath,
        was: Option<&RecordedEntry>,
        is: Option<&RecordedEntry>,
    ) -> Result<String, FilesError> {
        let is = is.map_or(&RecordedNode::Absent, |kept| &kept.node);
        let content = |kept: Option<&RecordedEntry>| kept.map(|kept| self.bytes(kept)).transpose();
        Ok(match is {
            RecordedNode::File(blob) => {
                let (old, new) = (content(was)?.flatten(), self.store.blob(blob)?);
                match old.as_deref() == Some(&*new) {
                    true => format!("{name} {path}: a file, with its former content\n"),
                    false => {
                        let difference = merge::diff(old.as_deref(), Some(&new), &path.to_string(), MAX_SHOWN);
                        format!("{name} {path}\n{difference}")
                    }
                }
            }
            RecordedNode::Absent
            | RecordedNode::Sealed(_)
            | RecordedNode::Secret
            | RecordedNode::Folder
            | RecordedNode::Link(_) => {
                format!("{name} {path}: {}\n", word(is))
            }
        })
    }

    fn parts(&self, version: &Version) -> Result<Parts, FilesError> {
        let [before, applied, found] =
            [&version.before, &version.applied, &version.found].map(|p| self.store.listing(p));
        Ok(Parts { before: before?, applied: applied?, found: found? })
    }

    /// Restores a file from a version, as a user's editor would: the model's rules for it stay in force.
    ///
    /// # Errors
    /// When the version does not have the file, or it can't be written.
    pub fn restore(&self, cob: &str, version: &str, path: &TreePath) -> Result<(), FilesError> {
        let disk = Disk::to_change()?;
        let (node, managed) = match self.kept(&self.since(cob, version)?, path)? {
            Some(RecordedEntry { node, managed, .. }) => (Some(node), managed),
            None => (None, Managed::default()),
        };
        if let Some(RecordedNode::Link(target)) = node {
            return match disk.look(path)? {
                Found::Absent | Found::Link { .. } => disk.replace_link(path, &target),
                found @ (Found::File { .. } | Found::Folder { .. } | Found::Other) => {
                    Err(FilesError::InTheWay { path: path.clone(), found: found.word(), wanted: "a link" })
                }
            };
        }
        let content = self.content_of(path, node)?;
        let attributes = match disk.look(path)? {
            Found::File { attributes, .. } => attributes,
            Found::Absent => of_new(managed),
            found @ (Found::Folder { .. } | Found::Link { .. } | Found::Other) => {
                return Err(FilesError::InTheWay { path: path.clone(), found: found.word(), wanted: "a file" });
            }
        };
        self.keep_what_is_there(cob, path, &disk)?;
        disk.replace(path, &content, &attributes.of_new_content(&Managed::default()))
    }

    /// Records the text of others as a version before it is overwritten.
    fn keep_what_is_there(&self, cob: &str, path: &TreePath, disk: &Disk) -> Result<(), FilesError> {
        let found = disk.look(path)?;
        let current = self.store.managed(cob);
        let (Found::File { attributes, .. }, Some(current)) = (&found, current) else { return Ok(()) };
        let live = disk.content(path)?;
        let is_kept = match self.store.listing(&current.applied)?.get(path).map(|kept| &kept.node) {
            Some(RecordedNode::File(blob)) => *self.store.blob(blob)? == *live,
            // Contents with secrets are not kept in the history.
            Some(RecordedNode::Secret | RecordedNode::Sealed(_)) => true,
            Some(RecordedNode::Absent | RecordedNode::Folder | RecordedNode::Link(_)) | None => false,
        };
        if is_kept {
            return Ok(());
        }
        let node = RecordedNode::File(Blob::New(live.into()));
        let kept = RecordedEntry::found(node, Managed::all(attributes));
        self.store.record(Record {
            cob: cob.to_owned(),
            generation: current.generation,
            reason: Reason::Found,
            spec: current.spec.as_ref().map(ToString::to_string),
            paths: vec![path.to_string()],
            before: Part::Same,
            applied: Part::Same,
            found: BTreeMap::from([(path.clone(), kept)]).into(),
            begun: self.store.begun(&current)?.freeze(),
        })
    }

    /// The merged text of a path in conflict, with both sides where they differ, for a person to edit; and the id of
    /// the conflict.
    ///
    /// # Errors
    /// When the path has no conflict that can be edited.
    pub fn hunks(
        &self,
        cob: &str,
        wanted: &Wanted,
        retire: bool,
        path: Option<&TreePath>,
    ) -> Result<(TreePath, Vec<u8>, String), FilesError> {
        let found = self.undecided(cob, wanted, retire)?.into_iter().filter(|c| path.is_none_or(|p| *p == c.path));
        let mut editable = found.filter_map(|c| Some((c.path, c.hunks?, c.id)));
        editable.next().ok_or_else(|| FilesError::NotThere(format!("{cob} has no conflict that can be edited there")))
    }

    /// The changes of others in these files, as a patch for the model. `patch -p1` beside the model applies it to files
    /// that come from there by name; other files have their path on the host in it.
    ///
    /// # Errors
    /// When a file can't be read.
    pub fn patch(&self, wanted: &Wanted, paths: &[TreePath]) -> Result<String, FilesError> {
        let disk = Disk::new()?;
        let mut patch = String::new();
        for path in paths {
            let Some(Entry { node: Node::File(source), secret: false, .. }) = wanted.entries.get(path) else {
                continue;
            };
            let Found::File { size: ..=MAX_FILE, .. } = disk.look(path)? else { continue };
            let (here, text) = (disk.content(path)?, source.read(path)?);
            if here != *text && !wanted.holds_secret(&here) {
                let beside = match source {
                    Source::File(file) => wanted.beside_the_model(file),
                    Source::Inline(_) => None,
                };
                let name = beside.map_or_else(|| path.to_string(), |name| name.display().to_string());
                patch.push_str(&merge::diff(Some(&text), Some(&here), &name, MAX_PATCH.saturating_sub(patch.len())));
            }
        }
        Ok(patch)
    }

    /// Forgets versions older than a time (seconds since 1970), except the newest of each change object: in the
    /// background, when the store is idle. If it fails, the versions stay.
    pub fn prune_later(&self, before: u64) {
        self.store.prune_later(before);
    }

    /// Forgets versions older than a time (seconds since 1970), except the newest of each change object.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn prune(&self, before: u64) -> Result<usize, FilesError> {
        self.store.prune(before)
    }

    /// A version, and the versions before it.
    fn since(&self, cob: &str, id: &str) -> Result<Vec<Version>, FilesError> {
        const SHORTEST: usize = 6;
        if id.len() < SHORTEST {
            let what = format!("{id:?} is too short for a version: write its first {SHORTEST} digits at least");
            return Err(FilesError::NotThere(what));
        }
        let mut all = self.store.versions(cob, usize::MAX)?;
        let at = all.iter().position(|(its, _)| its.to_string().starts_with(id)).ok_or_else(|| {
            FilesError::NotThere(format!(
                "{cob} has no version {id:?}; `cobctl files log` lists the kept versions; older versions may have \
                 been pruned"
            ))
        })?;
        Ok(all.drain(at..).map(|(_, version)| version).collect())
    }

    /// The content of a path in the first of these versions.
    fn kept(&self, versions: &[Version], path: &TreePath) -> Result<Option<RecordedEntry>, FilesError> {
        let Some(version) = versions.first() else { return Ok(None) };
        let parts = self.parts(version)?;
        match parts.newest(path) {
            // The applied text is the model's: an earlier version may have the text that was written.
            Some(kept) if kept.shared == Some(true) => Ok(Some(self.written(versions, path, kept)?)),
            kept => Ok(kept.cloned()),
        }
    }

    /// The text of a shared file that was written when its present model text was applied.
    fn written(
        &self,
        versions: &[Version],
        path: &TreePath,
        applied: &RecordedEntry,
    ) -> Result<RecordedEntry, FilesError> {
        for version in versions {
            if let Some(kept) = self.store.listing(&version.found)?.remove(path) {
                return Ok(kept);
            }
            let same = |kept: RecordedEntry| kept.node == applied.node;
            if !self.store.listing(&version.applied)?.remove(path).is_some_and(same) {
                break;
            }
        }
        Ok(applied.clone())
    }

    fn bytes(&self, kept: &RecordedEntry) -> Result<Option<Vec<u8>>, FilesError> {
        match &kept.node {
            RecordedNode::File(blob) => Ok(Some(self.store.blob(blob)?.to_vec())),
            RecordedNode::Absent
            | RecordedNode::Sealed(_)
            | RecordedNode::Secret
            | RecordedNode::Folder
            | RecordedNode::Link(_) => Ok(None),
        }
    }
}

/// The parts of a version.
#[derive(Default)]
struct Parts {
    before: Listing,
    applied: Listing,
    found: Listing,
}

/// For each path, the old and the new entry.
type Changes<'a> = BTreeMap<&'a TreePath, (Option<&'a RecordedEntry>, Option<&'a RecordedEntry>)>;

impl Parts {
    /// The entry on the host when this version is the newest.
    fn newest(&self, path: &TreePath) -> Option<&RecordedEntry> {
        [&self.found, &self.applied, &self.before].into_iter().find_map(|part| part.get(path))
    }

    /// The entries from before the first application, and the texts of others.
    fn kept_beside(&self, last: &Self) -> Changes<'_> {
        let new = self.before.iter().filter(|(path, _)| !last.before.contains_key(*path));
        let mut changes: Changes<'_> = new.map(|(path, kept)| (path, (None, Some(kept)))).collect();
        changes.extend(self.found_by_others());
        changes
    }

    fn found_by_others(&self) -> Changes<'_> {
        let applied = |path| self.applied.get(path).or_else(|| self.before.get(path));
        self.found.iter().map(|(path, kept)| (path, (applied(path), Some(kept)))).collect()
    }

    /// The changes since the version before; `named` has the paths in this version's record.
    fn applied_over<'a>(&'a self, last: &'a Self, named: &[String], is_pruned: bool) -> Changes<'a> {
        let is_other = |path: &&TreePath| match (self.applied.get(*path), last.applied.get(*path)) {
            (Some(is), Some(was)) => is.node != was.node || is.managed != was.managed,
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => !is_pruned,
        };
        let both = self.applied.keys().chain(last.applied.keys()).filter(is_other);
        let written = self.found.keys().chain(last.found.keys());
        let named = self.applied.keys().filter(|path| named.contains(&path.to_string()));
        let is = |path: &TreePath| {
            let merged = self.found.get(path).or_else(|| self.applied.get(path));
            merged.or_else(|| last.before.get(path))
        };
        both.chain(written).chain(named).map(|path| (path, (last.newest(path), is(path)))).collect()
    }

    /// The entries that are restored when the tree is retired; found entries stay.
    fn given_back<'a>(&'a self, here: &Self) -> Changes<'a> {
        let back = self.before.iter().filter(|(path, _)| !here.found.contains_key(*path));
        back.map(|(path, kept)| (path, (self.newest(path), Some(kept)))).collect()
    }
}

fn word_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Before => "before",
        Reason::Applied => "applied",
        Reason::Found => "found",
        Reason::Retired => "retired",
    }
}

/// Attributes for a file that does not exist, from the kept attributes.
fn of_new(managed: Managed) -> Attributes {
    Attributes {
        mode: managed.mode.unwrap_or(0o644),
        uid: managed.uid.unwrap_or(rustix::process::geteuid().as_raw()),
        gid: managed.gid.unwrap_or(rustix::process::getegid().as_raw()),
        xattrs: managed.xattrs,
    }
}

fn word(node: &RecordedNode) -> String {
    match node {
        RecordedNode::Absent => "not there".to_owned(),
        RecordedNode::File(_) => "a file".to_owned(),
        RecordedNode::Sealed(_) | RecordedNode::Secret => "a file that holds a secret".to_owned(),
        RecordedNode::Folder => "a folder".to_owned(),
        RecordedNode::Link(target) => format!("a link to {}", String::from_utf8_lossy(target).escape_debug()),
    }
}
