//! Copies of files in the store: each hub has the files of the catalogue, of clusters and of jobs.
//!
//! A file is a header, and parts that are named by their hashes: a reader sees a whole file or none. Only the holder of a
//! claim writes. What is in the store counts: [`Copies::pull`] makes the local files equal to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_hub_store::{Change, Compare, Entry, Etcd, Event, Op, Query, Refusal, Revision, Store as _, StoreError, Txn};
use cob_journal::durable::{self, Sync, TEMP_SUFFIX};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Circle;

/// A file that each circle has as soon as a hub has filled it.
const FIRST: &str = "catalogue.git/HEAD";
/// The length of a part.
const PART: usize = 512 << 10;
/// The longest file.
const LONGEST: u64 = 256 << 20;
/// The most operations of a transaction.
const MOST_OPS: usize = 100;
/// The most bytes of a transaction.
const MOST_BYTES: usize = 1 << 20;
/// How often a file is read again that changes meanwhile.
const ATTEMPTS: usize = 5;
/// How often a write is sent.
const WRITES: usize = 3;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Why files are not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key is too long.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another hub has the claim.
    #[error("another hub has taken over: this hub writes nothing")]
    Lost,
    /// A file can't be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file is too long.
    #[error("{} has {length} bytes; hubs copy files of at most {LONGEST}", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        length: u64,
    },
    /// A file changes all the time, or its parts are missing.
    #[error("the store has no whole copy of {0}")]
    Torn(String),
}

/// A file in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    mode: u32,
    /// The hash of the whole content, in hexadecimal.
    hash: String,
    /// The hashes of the parts.
    parts: Vec<String>,
}

/// What tells that a local file has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
    mode: u32,
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            inode: meta.ino(),
            length: meta.len(),
            changed: (meta.ctime(), meta.ctime_nsec()),
            mode: meta.permissions().mode() & 0o7777,
        }
    }
}

/// The files of a folder, and their copies.
#[derive(Debug)]
pub(crate) struct Copies {
    circle: Circle,
    store: Etcd,
    root: PathBuf,
    /// What the store has, as far as it was listed.
    stored: BTreeMap<String, Header>,
    /// The hashes of local files that have not changed since.
    equal: BTreeMap<String, (Stamp, String)>,
}

/// A local file that differs from its copy.
struct Changed {
    name: String,
    stamp: Stamp,
    header: Header,
    content: Vec<u8>,
}

/// Operations that are sent together.
struct Batch<'a> {
    store: &'a Etcd,
    fence: &'a Compare,
    ops: Vec<Op>,
    bytes: usize,
}

impl Batch<'_> {
    async fn add(&mut self, op: Op, bytes: usize) -> Result<(), CopyError> {
        if self.ops.len() >= MOST_OPS || self.bytes + bytes > MOST_BYTES {
            self.send().await?;
        }
        self.bytes += bytes;
        self.ops.push(op);
        Ok(())
    }

    /// Sends what was added. A repetition has the same effect.
    async fn send(&mut self) -> Result<(), CopyError> {
        let ops = std::mem::take(&mut self.ops);
        self.bytes = 0;
        if ops.is_empty() {
            return Ok(());
        }
        let txn = Txn { compares: vec![self.fence.clone()], then: ops, or_else: Vec::new() };
        for attempt in 1.. {
            match self.store.txn(txn.clone()).await {
                Ok(answer) if answer.succeeded => break,
                Ok(_) => return Err(CopyError::Lost),
                Err(error @ (StoreError::Unknown { .. } | StoreError::Unavailable { .. })) if attempt < WRITES => {
                    tracing::debug!(%error, "files are sent again");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Copies {
    pub(crate) fn new(circle: &Circle, root: &Path) -> Result<Self, Refusal> {
        Ok(Self {
            circle: circle.clone(),
            store: circle.store()?,
            root: root.to_owned(),
            stored: BTreeMap::new(),
            equal: BTreeMap::new(),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Reads which files of an area the store has. An area is the beginning of paths.
    pub(crate) async fn list(&mut self, area: &str) -> Result<Revision, CopyError> {
        let range = self.store.range(&Query::all(self.circle.under(&format!("files/{area}"))?)).await?;
        self.stored.retain(|name, _| !name.starts_with(area));
        for entry in &range.entries {
            if let Some((name, header)) = self.header(entry) {
                self.stored.insert(name, header);
            }
        }
        Ok(range.revision)
    }

    fn header(&self, entry: &Entry) -> Option<(String, Header)> {
        let name = self.circle.name_of(&entry.key)?.strip_prefix("files/")?.to_owned();
        let header = serde_json::from_slice(&entry.value).ok()?;
        // Whoever writes to the store must not write elsewhere on this machine.
        is_copied(&name).then_some((name, header))
    }

    /// Whether a hub has filled the circle.
    pub(crate) fn is_filled(&self) -> bool {
        self.stored.contains_key(FIRST)
    }

    /// Makes the store equal to the local files of areas.
    pub(crate) async fn push(&mut self, areas: &[String], fence: &Compare) -> Result<(), CopyError> {
        for area in areas {
            self.push_area(area, fence).await?;
        }
        Ok(())
    }

    async fn push_area(&mut self, area: &str, fence: &Compare) -> Result<(), CopyError> {
        // Refs of a repository are read before its objects, and written after these: a ref never stands alone.
        let mut last = Vec::new();
        for name in self.local(area)?.iter().filter(|name| !is_object(name)) {
            last.extend(self.changed(name)?);
        }
        let store = self.store.clone();
        let mut batch = Batch { store: &store, fence, ops: Vec::new(), bytes: 0 };
        let mut sent = Vec::new();
        for name in self.local(area)?.iter().filter(|name| is_object(name)) {
            if let Some(file) = self.changed(name)? {
                self.add(&mut batch, &file).await?;
                sent.push((file.name, file.stamp, file.header));
            }
        }
        for file in last {
            self.add(&mut batch, &file).await?;
            sent.push((file.name, file.stamp, file.header));
        }
        let present: BTreeSet<String> = self.local(area)?.into_iter().collect();
        let is_gone = |name: &&String| name.starts_with(area) && !present.contains(*name);
        let gone: Vec<String> = self.stored.keys().filter(is_gone).cloned().collect();
        for name in &gone {
            batch.add(Op::Delete(self.circle.key(&format!("files/{name}"))?), 0).await?;
            batch.add(Op::DeletePrefix(self.circle.under(&format!("blobs/{name}/"))?), 0).await?;
        }
        batch.send().await?;
        // What was sent before a failure is sent again.
        for (name, stamp, header) in sent {
            self.equal.insert(name.clone(), (stamp, header.hash.clone()));
            self.stored.insert(name, header);
        }
        for name in gone {
            self.stored.remove(&name);
            self.equal.remove(&name);
        }
        Ok(())
    }

    async fn add(&self, batch: &mut Batch<'_>, file: &Changed) -> Result<(), CopyError> {
        let Changed { name, header, content, .. } = file;
        let former = self.stored.get(name).map(|former| former.parts.as_slice()).unwrap_or_default();
        let mut known: BTreeSet<&String> = former.iter().collect();
        for (part, bytes) in header.parts.iter().zip(content.chunks(PART)) {
            if known.insert(part) {
                let key = self.circle.key(&format!("blobs/{name}/{part}"))?;
                batch.add(Op::put(key, bytes.to_vec()), bytes.len()).await?;
            }
        }
        let text = serde_json::to_vec(header).map_err(|source| self.failed(name, source.into()))?;
        let length = text.len();
        batch.add(Op::put(self.circle.key(&format!("files/{name}"))?, text), length).await?;
        let old: BTreeSet<&String> = former.iter().filter(|part| !header.parts.contains(part)).collect();
        for part in old {
            batch.add(Op::Delete(self.circle.key(&format!("blobs/{name}/{part}"))?), 0).await?;
        }
        Ok(())
    }

    fn failed(&self, name: &str, source: io::Error) -> CopyError {
        CopyError::Io { path: self.path(name), source }
    }

    /// The file, if it differs from its copy.
    fn changed(&mut self, name: &str) -> Result<Option<Changed>, CopyError> {
        let path = self.path(name);
        let Some(stamp) = stamp(&path).map_err(|e| self.failed(name, e))? else { return Ok(None) };
        let former = self.stored.get(name);
        let is_known = |(known, hash): &(Stamp, String)| {
            *known == stamp && former.is_some_and(|former| former.hash == *hash && former.mode == stamp.mode)
        };
        if self.equal.get(name).is_some_and(is_known) {
            return Ok(None);
        }
        if stamp.length > LONGEST {
            return Err(CopyError::TooLong { path, length: stamp.length });
        }
        let content = match fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(name, error)),
        };
        let header = Header { mode: stamp.mode, hash: hash(&content), parts: content.chunks(PART).map(hash).collect() };
        if self.stored.get(name) == Some(&header) {
            self.equal.insert(name.to_owned(), (stamp, header.hash));
            return Ok(None);
        }
        Ok(Some(Changed { name: name.to_owned(), stamp, header, content }))
    }

    /// The local files of an area that are copied.
    fn local(&self, area: &str) -> Result<Vec<String>, CopyError> {
        let mut names = Vec::new();
        // The area may end in the middle of a name.
        let folder = area.rfind('/').map_or("", |at| &area[..at]);
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let path = self.path(&folder);
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
                Err(source) => return Err(CopyError::Io { path, source }),
            };
            for entry in entries {
                let Ok(entry) = entry else { continue };
                let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let is_near = name.starts_with(area) || area.starts_with(&format!("{name}/"));
                if kind.is_dir() && is_near && leads_to_copied(&name) {
                    folders.push(name);
                } else if kind.is_file() && name.starts_with(area) && is_copied(&name) {
                    names.push(name);
                }
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes the local files of an area equal to the store. Returns the revision of the list.
    pub(crate) async fn pull(&mut self, area: &str) -> Result<Revision, CopyError> {
        let mut attempt = 1;
        loop {
            let revision = self.list(area).await?;
            let headers: Vec<(String, Header)> = self
                .stored
                .iter()
                .filter(|(name, _)| name.starts_with(area))
                .map(|(name, header)| (name.clone(), header.clone()))
                .collect();
            let mut torn = None;
            for (name, header) in headers {
                if !self.fetch(&name, &header).await? {
                    torn = Some(name);
                }
            }
            // Nobody has filled a new circle yet: the files of the first hub stay.
            if !area.is_empty() || self.is_filled() {
                for name in self.local(area)? {
                    if !self.stored.contains_key(&name) {
                        self.remove(&name)?;
                    }
                }
            }
            match torn {
                None => return Ok(revision),
                Some(name) if attempt == ATTEMPTS => return Err(CopyError::Torn(name)),
                Some(_) => tokio::time::sleep(PAUSE).await,
            }
            attempt += 1;
        }
    }

    /// Follows a change of the store. Files that are torn become whole with a later change.
    pub(crate) async fn follow(&mut self, change: &Change) -> Result<(), CopyError> {
        for event in &change.events {
            match event {
                Event::Put(entry) => {
                    let Some((name, header)) = self.header(entry) else { continue };
                    self.stored.insert(name.clone(), header.clone());
                    self.fetch(&name, &header).await?;
                }
                Event::Deleted(key) => {
                    let name = self.circle.name_of(key);
                    let Some(name) = name.as_deref().and_then(|name| name.strip_prefix("files/")) else { continue };
                    if is_copied(name) {
                        self.stored.remove(name);
                        self.remove(name)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), CopyError> {
        self.equal.remove(name);
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(name, error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Makes a local file equal to its copy. Returns whether the copy is whole.
    async fn fetch(&mut self, name: &str, header: &Header) -> Result<bool, CopyError> {
        let path = self.path(name);
        let present = stamp(&path).map_err(|e| self.failed(name, e))?;
        if let Some(stamp) = present.filter(|stamp| stamp.mode == header.mode) {
            let is_known = self.equal.get(name).is_some_and(|(known, hash)| *known == stamp && *hash == header.hash);
            if is_known || fs::read(&path).is_ok_and(|content| hash(&content) == header.hash) {
                self.equal.insert(name.to_owned(), (stamp, header.hash.clone()));
                return Ok(true);
            }
        }
        let mut content = Vec::new();
        for part in &header.parts {
            match self.store.get(&self.circle.key(&format!("blobs/{name}/{part}"))?).await? {
                Some(entry) => content.extend_from_slice(&entry.value),
                None => return Ok(false),
            }
        }
        if hash(&content) != header.hash {
            return Ok(false);
        }
        let (Some(folder), Some(file)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            return Ok(false);
        };
        let written = fs::create_dir_all(folder).and_then(|()| {
            if file == "HEAD" {
                // git wants these folders, also when they are empty.
                fs::create_dir_all(folder.join("refs"))?;
                fs::create_dir_all(folder.join("objects"))?;
            }
            durable::write_file(folder, file, header.mode, &content, Sync::Later)
        });
        written.map_err(|e| self.failed(name, e))?;
        if let Some(stamp) = stamp(&path).map_err(|e| self.failed(name, e))? {
            self.equal.insert(name.to_owned(), (stamp, header.hash.clone()));
        }
        Ok(true)
    }
}

fn stamp(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(meta.is_file().then(|| Stamp::of(&meta))),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn hash(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// An object of a repository never changes.
fn is_object(name: &str) -> bool {
    name.contains("/objects/")
}

/// Whether a folder can have files that are copied.
fn leads_to_copied(folder: &str) -> bool {
    let parts: Vec<&str> = folder.split('/').collect();
    if parts.iter().any(|part| part.starts_with('.')) {
        return false;
    }
    match parts.as_slice() {
        ["catalogue.git", rest @ ..] => rest.first() != Some(&"hooks"),
        ["clusters", _, _, first, ..] => *first == "depot",
        ["clusters", ..] | ["jobs"] | ["jobs", _] => true,
        _ => false,
    }
}

/// Whether hubs copy a file.
fn is_copied(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let file = parts.last().copied().unwrap_or_default();
    let is_passing = file.ends_with(".lock") || file.ends_with(TEMP_SUFFIX) || file.starts_with("tmp_");
    if is_passing || parts.iter().any(|part| part.is_empty() || part.starts_with('.')) {
        return false;
    }
    match parts.as_slice() {
        ["operator.key"] => true,
        ["catalogue.git", first, ..] => *first != "hooks",
        ["clusters", _, _, "machines.json" | "layout.json"] => true,
        ["clusters", _, _, "depot", first, ..] => *first != "hooks",
        ["jobs", _, "order.json" | "record" | "log"] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_files_of_hubs_are_copied() {
        for name in [
            "operator.key",
            "catalogue.git/HEAD",
            "catalogue.git/objects/ab/cd",
            "clusters/web/a/machines.json",
            "clusters/web/a/depot/refs/heads/main",
            "clusters/web/a/depot/server.key",
            "jobs/7/record",
        ] {
            assert!(is_copied(name), "{name}");
        }
        for name in [
            "hub.sock",
            "audit",
            "store/journal",
            "catalogue.git/refs/heads/main.lock",
            "catalogue.git/objects/pack/tmp_pack_x",
            "catalogue.git/hooks/update",
            "clusters/.gone-1/cluster/machines.json",
            "clusters/web/a/catalogues/c/model.yaml",
            "clusters/web/a/serve.log",
            "clusters/web/a/depot/cob-publish.lock",
            "jobs/7/alive",
            "jobs/../record",
            "clusters/../../etc/depot/x",
            "/etc/passwd",
        ] {
            assert!(!is_copied(name), "{name}");
        }
    }

    #[test]
    fn a_walk_finds_the_files_of_an_area() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = ["clusters/web/a/depot/refs/x", "clusters/web/a/machines.json", "clusters/web/ab/machines.json"];
        for name in names.iter().chain(&["clusters/web/a/serve.log", "jobs/1/record"]) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, name).expect("written");
        }
        let circle =
            Circle { members: vec!["http://127.0.0.1:1".to_owned()], prefix: String::new(), hub: "a".to_owned() };
        let copies = Copies::new(&circle, folder.path()).expect("members");
        assert_eq!(copies.local("clusters/web/a/").expect("read"), names[..2]);
        assert_eq!(copies.local("clusters/").expect("read"), names);
        assert_eq!(copies.local("").expect("read").len(), 4);
        assert_eq!(copies.local("operator.key").expect("read"), Vec::<String>::new());
    }
}
