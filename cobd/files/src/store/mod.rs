//! The store: what was before, what was applied, what was found, in one bare git repository a host.
//!
//! ```text
//!   refs/heads/main ── commit (one for all that is recorded at the same time) ── commit …
//!     cobs/3f/n1+db+config/          a version: the state of one change object's files
//!        info                        when, why, under which generation, and the version before it
//!        before/etc/db.conf          as it was when the path was first managed; nothing was there: only in =meta
//!        applied/etc/db.conf         what was wanted when it was last applied: the base of merges
//!        found/etc/db.conf           what somebody else had made of it, and was overwritten
//!        from/, base/, aim/, result/  what an action finds and is about to do: it has begun, and not ended
//!        …/=meta                     owner, group, mode, attributes of what is in each folder; what git has no names for
//! ```
//! Rules: a version is durable before the first file is written that it is to be taken back with. All that is recorded at
//! the same time goes into one pack, one commit, one wait for the disk. One process opens the store; its threads share it.

mod packs;
mod tree;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use git2::{Oid, Repository, RepositoryInitOptions};
use serde::{Deserialize, Serialize};

use crate::attributes::Managed;
use crate::error::FilesError;
use crate::path::TreePath;

pub(crate) use tree::read_listing;
use write::Writer;

/// The format that is written here; stands in every version.
const FORMAT: u32 = 1;
const MAIN: &str = "refs/heads/main";

/// What is kept of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) node: KeptNode,
    /// The attributes that count: all of what was before, the managed ones of what was applied.
    pub(crate) managed: Managed,
    /// A folder that is only there because something below it is.
    pub(crate) implied: bool,
}

/// What is kept of what was at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeptNode {
    Absent,
    File(Blob),
    /// A file whose content is sealed.
    Sealed(Blob),
    /// A file whose content is not kept.
    Secret,
    Folder,
    Link(Vec<u8>),
}

/// A content, in the store or on its way there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blob {
    Known(Oid),
    New(Vec<u8>),
}

/// What is kept, by path.
pub(crate) type Listing = BTreeMap<TreePath, Kept>;

/// Why a version was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The content of before is kept; nothing was applied yet.
    Before,
    /// The wanted content was applied.
    Applied,
    /// What others had changed is kept, and is about to be overwritten or merged.
    Found,
    /// The change object has left: what was before was brought back.
    Retired,
}

/// What is told of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The format of the version.
    pub format: u32,
    /// The change object.
    pub cob: String,
    /// The generation under which it was made.
    pub generation: u64,
    /// When, in seconds since 1970.
    pub time: u64,
    /// Why.
    pub reason: Reason,
    /// What was wanted when it was applied; none: nothing is applied as a whole.
    pub spec: Option<String>,
    /// The version before it.
    pub previous: Option<String>,
    /// Some of the paths that it is about.
    pub paths: Vec<String>,
}

/// A version as the index has it.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    pub(crate) id: Oid,
    pub(crate) info: Info,
    pub(crate) parts: Parts,
}

/// The trees of a version.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parts {
    pub(crate) before: Option<Oid>,
    pub(crate) applied: Option<Oid>,
    pub(crate) found: Option<Oid>,
    pub(crate) begun: [Option<Oid>; 4],
}

/// What an action is about to do, by path: what it finds (`from`) and on what it rests (`base`), what it applies (`aim`) and
/// writes for that (`result`). If it is killed, this tells whether it had got as far as a path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun {
    pub(crate) from: Listing,
    pub(crate) base: Listing,
    pub(crate) aim: Listing,
    pub(crate) result: Listing,
}

/// A part of a version to be recorded.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// As in the version before.
    Same,
    New(Listing),
}

/// A version to be recorded.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) cob: String,
    pub(crate) generation: u64,
    pub(crate) reason: Reason,
    pub(crate) spec: Option<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) before: Part,
    pub(crate) applied: Part,
    pub(crate) found: Listing,
    pub(crate) begun: Begun,
}

/// The store. Clones share it.
#[derive(Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    index: RwLock<BTreeMap<String, Current>>,
    waiting: Mutex<Vec<(Record, Slot)>>,
    writer: Mutex<Writer>,
    readers: Mutex<Vec<Repository>>,
}

/// Where the answer to a record will be.
type Slot = Arc<Mutex<Option<Result<(), String>>>>;

impl Store {
    /// Opens the store of a host, or makes it.
    pub(crate) fn open(path: &Path) -> Result<Self, FilesError> {
        let failed = |what: String| FilesError::Store { path: path.display().to_string(), what };
        let git = |e: git2::Error| failed(e.message().to_owned());
        if !path.join("HEAD").exists() {
            fs::create_dir_all(path).map_err(|e| failed(e.to_string()))?;
            let mut options = RepositoryInitOptions::new();
            options
                .bare(true)
                .initial_head("main")
                .external_template(false)
                .mode(git2::RepositoryInitMode::from_bits_retain(0o700));
            let repo = Repository::init_opts(path, &options).map_err(git)?;
            drop(repo);
        }
        clear_leftovers(path);
        let repo = Repository::open_bare(path).map_err(git)?;
        // Without it git waits for no disk at all.
        repo.config().and_then(|mut c| c.set_bool("core.fsyncObjectFiles", true)).map_err(git)?;
        packs::search_for_deltas(&repo, false);
        let index = write::load(&repo).map_err(|what| failed(what.message().to_owned()))?;
        let writer = Writer::new(path).map_err(git)?;
        let shared = Shared {
            path: path.to_owned(),
            index: RwLock::new(index),
            waiting: Mutex::default(),
            writer: Mutex::new(writer),
            readers: Mutex::new(vec![repo]),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The newest version of a change object.
    pub(crate) fn current(&self, cob: &str) -> Option<Current> {
        self.shared.index.read().unwrap_or_else(PoisonError::into_inner).get(cob).cloned()
    }

    /// Records a version, durably. Those that come meanwhile share the next write.
    pub(crate) fn record(&self, record: Record) -> Result<(), FilesError> {
        let slot = Slot::default();
        lock(&self.shared.waiting).push((record, slot.clone()));
        let mut writer = lock(&self.shared.writer);
        if lock(&slot).is_none() {
            // Nobody has written it while we waited: now it is our turn, for all who wait.
            let batch = std::mem::take(&mut *lock(&self.shared.waiting));
            let (records, slots): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let written = {
                let index = self.shared.index.read().unwrap_or_else(PoisonError::into_inner);
                writer.write(&records, &index)
            };
            let answer = match written {
                Ok(new) => {
                    self.shared.index.write().unwrap_or_else(PoisonError::into_inner).extend(new);
                    Ok(())
                }
                Err(error) => Err(error.message().to_owned()),
            };
            for slot in slots {
                *lock(&slot) = Some(answer.clone());
            }
        }
        drop(writer);
        let answer = lock(&slot).take();
        answer.unwrap_or_else(|| Err("nobody has written it".to_owned())).map_err(|what| self.failed(what))
    }

    /// Reads with a repository of its own.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Repository) -> Result<T, git2::Error>) -> Result<T, FilesError> {
        let taken = lock(&self.shared.readers).pop();
        let repo = match taken {
            Some(repo) => repo,
            None => Repository::open_bare(&self.shared.path).map_err(|e| self.failed(e.message().to_owned()))?,
        };
        let result = read(&repo).map_err(|e| self.failed(e.message().to_owned()));
        lock(&self.shared.readers).push(repo);
        result
    }

    /// A part of a version.
    pub(crate) fn listing(&self, tree: Option<Oid>) -> Result<Listing, FilesError> {
        tree.map_or(Ok(Listing::new()), |tree| self.read(|repo| read_listing(repo, tree)))
    }

    /// What an action has begun.
    pub(crate) fn begun(&self, parts: [Option<Oid>; 4]) -> Result<Begun, FilesError> {
        let [from, base, aim, result] = parts.map(|part| self.listing(part));
        Ok(Begun { from: from?, base: base?, aim: aim?, result: result? })
    }

    /// A content.
    pub(crate) fn blob(&self, blob: &Blob) -> Result<Vec<u8>, FilesError> {
        match blob {
            Blob::New(bytes) => Ok(bytes.clone()),
            Blob::Known(id) => self.read(|repo| Ok(repo.find_blob(*id)?.content().to_vec())),
        }
    }

    /// The versions of a change object, the newest first.
    pub(crate) fn versions(&self, cob: &str, most: usize) -> Result<Vec<Current>, FilesError> {
        let mut next = self.current(cob);
        let mut all = Vec::new();
        while let Some(version) = next.take() {
            let previous = version.info.previous.clone();
            all.push(version);
            if all.len() >= most {
                break;
            }
            // What was pruned is the end of the history.
            let Some(previous) = previous.and_then(|p| Oid::from_str(&p).ok()) else { break };
            next = self.read(|repo| Ok(write::version(repo, previous).ok()))?;
        }
        Ok(all)
    }

    /// Forgets the versions that were made before a time, but for the newest of each change object. How many commits are
    /// left.
    pub(crate) fn prune(&self, before: u64) -> Result<usize, FilesError> {
        let mut writer = lock(&self.shared.writer);
        let left = writer.prune(before).map_err(|e| self.failed(e.message().to_owned()))?;
        // They may have what is gone open.
        lock(&self.shared.readers).clear();
        Ok(left)
    }

    fn failed(&self, what: String) -> FilesError {
        FilesError::Store { path: self.shared.path.display().to_string(), what }
    }
}

impl Blob {
    /// The id that the content has, or would have.
    pub(crate) fn id(&self) -> Option<Oid> {
        match self {
            Self::Known(id) => Some(*id),
            Self::New(bytes) => Oid::hash_object(git2::ObjectType::Blob, bytes).ok(),
        }
    }
}

/// What a process that was killed has left: nobody else has the store open.
fn clear_leftovers(path: &Path) {
    for lock in ["HEAD.lock", "config.lock", "refs/heads/main.lock", "packed-refs.lock"] {
        // If it can't be removed, the write that it hinders says so.
        let _ = fs::remove_file(path.join(lock));
    }
    let Ok(entries) = fs::read_dir(path.join("objects/pack")) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(name.ends_with(".pack") || name.ends_with(".idx")) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
