//! The file of newest versions, as of the last time when the store was idle.
//!
//! ```text
//!   newest    "cobnews1"   then a frame for each shard: name, id of its tree, newest versions of its change objects
//! ```
//! A lookup of each version in the packs takes longer than a check of the files themselves, and maps all packs. The
//! file is only a cache: a shard counts if the repository has it under the same id; missing, damaged or older shards
//! are looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use cob_types::codec;
use git2::Oid;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::frames::{self, Frames, MAX_FRAME, Next};
use super::write::shard_of;
use super::{Current, FORMAT, Newest, PartPlace, Reason, Spec, held_begun};

const NAME: &str = "newest";
/// The format and its number.
const MAGIC: &[u8; 8] = b"cobnews1";

/// The shards of the repository: names, and the ids of their trees.
pub(super) type Shards = BTreeMap<Vec<u8>, Oid>;

/// A shard in a frame. New fields are only added at the end.
#[derive(Serialize, Deserialize)]
struct Shard {
    /// The format of the versions.
    format: u32,
    name: ByteBuf,
    tree: ByteBuf,
    versions: Vec<Line>,
}

/// A version in a frame.
#[derive(Serialize, Deserialize)]
struct Line {
    cob: String,
    id: ByteBuf,
    generation: u64,
    reason: Reason,
    spec: Option<String>,
    before: Option<ByteBuf>,
    applied: Option<ByteBuf>,
    /// The parts of [`super::Begun`], if any.
    begun: Option<[Option<ByteBuf>; 4]>,
}

/// Reads the versions of these shards from the file, and removes from `shards` all that the file has.
pub(super) fn read(store: &Path, shards: &mut Shards) -> Vec<(Box<str>, Box<Current>)> {
    let mut all = Vec::new();
    // If the file is damaged, the remaining shards are looked up.
    let _ = read_some(store, shards, &mut all);
    all
}

fn read_some(store: &Path, shards: &mut Shards, all: &mut Vec<(Box<str>, Box<Current>)>) -> io::Result<()> {
    let file = File::open(store.join(NAME))?;
    let (mut frames, magic) = Frames::begin(&file, MAGIC.len())?;
    if magic != MAGIC {
        return Ok(());
    }
    while let Next::Frame(payload, _) = frames.next()? {
        let shard: Shard = codec::decode(payload, MAX_FRAME).map_err(io::Error::other)?;
        let known = shards.get(&**shard.name).is_some_and(|tree| tree.as_bytes() == &**shard.tree);
        if !known || shard.format > FORMAT {
            continue;
        }
        let versions: Option<Vec<_>> = shard.versions.into_iter().map(Line::current).collect();
        if let Some(versions) = versions {
            all.extend(versions);
            shards.remove(&**shard.name);
        }
    }
    Ok(())
}

/// Writes the file, with the shards whose versions are all in the repository. Returns the names of the other shards.
/// Locks the index only for a moment at a time.
pub(super) fn write(store: &Path, shards: &Shards, index: &RwLock<Newest>) -> io::Result<BTreeSet<Vec<u8>>> {
    let index = || index.read().unwrap_or_else(PoisonError::into_inner);
    let mut others = BTreeSet::new();
    let mut members: BTreeMap<Vec<u8>, Vec<Box<str>>> = BTreeMap::new();
    for cob in index().keys() {
        members.entry(shard_of(cob)).or_default().push(cob.clone());
    }
    let temp = store.join(format!("{NAME}.new"));
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
    let mut file = BufWriter::new(file);
    file.write_all(MAGIC)?;
    let mut bytes = Vec::new();
    for (name, cobs) in members {
        let Some(tree) = shards.get(&name) else { continue };
        // Until all its versions are known.
        others.insert(name.clone());
        let versions: Option<Vec<Line>> = {
            let index = index();
            cobs.iter().map(|cob| Line::of(cob, index.get(cob)?)).collect()
        };
        let Some(versions) = versions else { continue };
        others.remove(&name);
        let (name, tree) = (ByteBuf::from(name), ByteBuf::from(tree.as_bytes()));
        let shard = Shard { format: FORMAT, name, tree, versions };
        bytes.clear();
        frames::put(&codec::encode_packed(&shard).map_err(io::Error::other)?, &mut bytes)?;
        file.write_all(&bytes)?;
    }
    // Not synced: after a power failure it may be empty.
    file.into_inner().map_err(io::IntoInnerError::into_error)?;
    fs::rename(&temp, store.join(NAME))?;
    Ok(others)
}

impl Line {
    /// `None`: it is not in the repository.
    fn of(cob: &str, current: &Current) -> Option<Self> {
        let bytes = |id: &Oid| ByteBuf::from(id.as_bytes());
        // A version in the repository has only trees.
        let tree = |held: &PartPlace| match held {
            PartPlace::Tree(id) => Some(bytes(id)),
            PartPlace::Nowhere | PartPlace::Waiting(..) => None,
        };
        Some(Self {
            cob: cob.to_owned(),
            id: bytes(current.id.as_ref()?),
            generation: current.generation,
            reason: current.reason,
            spec: current.spec.as_ref().map(ToString::to_string),
            before: tree(&current.before),
            applied: tree(&current.applied),
            begun: current.begun.as_deref().map(|parts| parts.each_ref().map(tree)),
        })
    }

    /// `None`: an id is not valid.
    fn current(self) -> Option<(Box<str>, Box<Current>)> {
        let id = |bytes: &ByteBuf| Oid::from_bytes(bytes).ok();
        let tree = |part: Option<ByteBuf>| match part {
            Some(bytes) => id(&bytes).map(PartPlace::Tree),
            None => Some(PartPlace::Nowhere),
        };
        let begun = match self.begun.unwrap_or_default().map(tree) {
            [Some(from), Some(base), Some(aim), Some(result)] => held_begun([from, base, aim, result]),
            _ => return None,
        };
        let current = Current {
            number: 0,
            id: Some(id(&self.id)?),
            under: None,
            generation: self.generation,
            reason: self.reason,
            spec: self.spec.as_deref().map(Spec::from),
            before: tree(self.before)?,
            applied: tree(self.applied)?,
            begun,
        };
        Some((self.cob.into_boxed_str(), Box::new(current)))
    }
}

#[cfg(test)]
mod tests {
    use cob_types::canonical;
    use cob_types::cob::Fingerprint;

    use super::super::{Begun, Blob, Frozen, Listing, Part, Record, RecordedEntry, RecordedNode, Store};
    use super::*;
    use crate::attributes::Managed;
    use crate::path::TreePath;

    fn record(cob: usize, text: &str, reason: Reason) -> Record {
        let node = RecordedNode::File(Blob::New(text.as_bytes().into()));
        let kept = RecordedEntry::found(node, Managed::default());
        let listing = Frozen::from(Listing::from([(TreePath::new("/f").expect("a path"), kept)]));
        Record {
            cob: format!("h/c{cob}"),
            generation: 1,
            reason,
            spec: cob.is_multiple_of(3).then(|| text.to_owned()),
            paths: Vec::new(),
            before: Part::New(listing.clone()),
            applied: Part::Same,
            found: Frozen::default(),
            begun: if cob.is_multiple_of(5) {
                Begun::default().freeze().map(|_| listing.clone())
            } else {
                Default::default()
            },
        }
    }

    impl Store {
        fn stale(&self) -> usize {
            super::super::lock(&self.shared.stale).len()
        }
    }

    /// The index of a store that is opened anew, and how many shards had to be looked up.
    fn opened(path: &Path) -> (Fingerprint, usize) {
        let repo = git2::Repository::open_bare(path).expect("a repository");
        let loaded = super::super::write::load(path, &repo).expect("read");
        (canonical::fingerprint(&[format!("{:?}", loaded.newest).as_bytes()]), loaded.stale.len())
    }

    #[test]
    fn the_index_file_gives_the_same_result_as_a_lookup_without_it() {
        const COBS: usize = 300;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.git");
        let file = path.join(NAME);
        let store = Store::open(&path).expect("opened");
        for cob in 0..COBS {
            store.record(record(cob, "old", Reason::Before)).expect("recorded");
        }
        store.shared.tidy().expect("written");
        assert_eq!(store.stale(), 0);
        // A single change is not worth a new file: its shard is looked up.
        store.record(record(7, "new", Reason::Applied)).expect("recorded");
        store.shared.tidy().expect("written");
        drop(store);
        let (with, looked_up) = opened(&path);
        assert_eq!(looked_up, 1);
        let bytes = fs::read(&file).expect("it is there");
        fs::remove_file(&file).expect("removed");
        let shards = opened(&path).1;
        assert!(opened(&path).0 == with && shards > 100, "{shards} shards");
        // A damaged file gives the same index.
        for at in (0..bytes.len()).step_by(211) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            fs::write(&file, &damaged).expect("written");
            assert_eq!(opened(&path).0, with, "byte {at}");
            fs::write(&file, &bytes[..at]).expect("written");
            assert_eq!(opened(&path).0, with, "cut at byte {at}");
        }
        // The next start writes a missing file.
        fs::remove_file(&file).expect("removed");
        let store = Store::open(&path).expect("opened");
        store.shared.tidy().expect("written");
        assert_eq!((opened(&path), store.stale()), ((with, 0), 0));
        // The file is rewritten when many shards differ, without shards that have waiting records.
        for cob in 0..shards / 3 {
            store.record(record(cob, "newer", Reason::Applied)).expect("recorded");
        }
        store.flush().expect("written");
        store.record(record(1, "waits", Reason::Applied)).expect("recorded");
        store.shared.note_newest().expect("written");
        assert_eq!((opened(&path).1, store.stale()), (1, 1));
    }
}
