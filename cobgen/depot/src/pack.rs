//! Writes many blobs as a pack, as git's documentation describes it (gitformat-pack).
//!
//! The git library hashes each object four times while it writes a pack, and compresses the objects one after another
//! at the best level. Bundles come with their hashes, and this module compresses them on all processors: that takes a
//! third of the time for a tenth more bytes.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use git2::Oid;
use rayon::prelude::*;
use sha1::{Digest as _, Sha1};
use tempfile::NamedTempFile;

use crate::depot::sync_folder;

/// Packs are never changed.
pub(crate) const PACK_MODE: u32 = 0o444;
/// A pack is full at this size: positions have 31 bits.
const FULL: u64 = 1 << 30;
/// How many blobs are compressed before they are written.
const AT_ONCE: usize = 512;
const LEVEL: u32 = 3;
/// The type of a blob, combined with the start of its length.
const BLOB: u8 = 3 << 4;
/// Git's name for unfinished files: `git gc` removes leftovers with it.
const UNFINISHED: &str = "tmp_pack_";

/// Git's object id of a blob.
pub(crate) fn blob_id(bytes: &[u8]) -> Result<Oid, git2::Error> {
    let hash = Sha1::new().chain_update(format!("blob {}\0", bytes.len())).chain_update(bytes);
    Oid::from_bytes(&hash.finalize())
}

/// Writes blobs, given with their ids, into a folder of packs. They are durable when this returns.
pub(crate) fn write(folder: &Path, blobs: &[(Oid, &[u8])]) -> io::Result<()> {
    write_up_to(folder, blobs, FULL)
}

fn write_up_to(folder: &Path, blobs: &[(Oid, &[u8])], full: u64) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut blobs = blobs.to_vec();
    blobs.sort_unstable_by_key(|(id, _)| *id);
    blobs.dedup_by_key(|(id, _)| *id);
    let mut left = &blobs[..];
    while !left.is_empty() {
        left = &left[write_one(folder, left, full)?..];
    }
    sync_folder(folder)
}

/// The index entry of an object.
struct Entry {
    id: Oid,
    crc: u32,
    at: u32,
}

/// Writes a pack and its index; returns how many of the blobs it contains.
fn write_one(folder: &Path, blobs: &[(Oid, &[u8])], full: u64) -> io::Result<usize> {
    // The count stands before the blobs, so the blobs that fit are counted first.
    let count = fitting(blobs, full);
    let mut pack = Hashed::new(unfinished(folder)?);
    pack.put(b"PACK")?;
    pack.put(&2_u32.to_be_bytes())?;
    pack.put(&number(count)?.to_be_bytes())?;
    let mut entries = Vec::with_capacity(count);
    for some in blobs[..count].chunks(AT_ONCE) {
        let compress = || Compress::new(Compression::new(LEVEL), true);
        let packed: Vec<io::Result<Vec<u8>>> =
            some.par_iter().map_init(compress, |compress, (_, bytes)| packed(compress, bytes)).collect();
        for ((id, _), bytes) in some.iter().zip(packed) {
            let bytes = bytes?;
            let mut crc = Crc::new();
            crc.update(&bytes);
            entries.push(Entry { id: *id, crc: crc.sum(), at: number(pack.len)? });
            pack.put(&bytes)?;
        }
    }
    let (file, sum) = pack.finish()?;
    let index = index(unfinished(folder)?, &entries, &sum)?;
    let name: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    // Git ignores a pack without its index, so the pack comes first.
    for (file, ending) in [(file, "pack"), (index, "idx")] {
        file.persist(folder.join(format!("pack-{name}.{ending}"))).map_err(|error| error.error)?;
    }
    Ok(count)
}

/// How many of the blobs fit into a pack, at least one: compressed data is hardly ever longer than its source.
fn fitting(blobs: &[(Oid, &[u8])], full: u64) -> usize {
    let mut len = 0;
    let fits = |(_, bytes): &&(Oid, &[u8])| {
        len += bytes.len() as u64;
        len <= full
    };
    blobs.iter().take_while(fits).count().max(1)
}

fn number(number: impl TryInto<u32>) -> io::Result<u32> {
    number.try_into().map_err(|_| io::Error::other("a pack has become too long"))
}

fn unfinished(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)
}

/// A blob as stored in a pack: type and length, then the compressed bytes.
fn packed(compress: &mut Compress, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() / 8 + 64);
    let (mut left, mut first) = (bytes.len() >> 4, BLOB | (bytes.len() & 0x0f) as u8);
    while left > 0 {
        out.push(first | 0x80);
        first = (left & 0x7f) as u8;
        left >>= 7;
    }
    out.push(first);
    compress.reset();
    loop {
        let done = usize::try_from(compress.total_in()).unwrap_or(bytes.len());
        if let Status::StreamEnd = compress.compress_vec(&bytes[done..], &mut out, FlushCompress::Finish)? {
            return Ok(out);
        }
        out.reserve(out.capacity());
    }
}

/// The index of a pack. Its entries are ordered by id.
fn index(file: NamedTempFile, entries: &[Entry], pack: &[u8; 20]) -> io::Result<NamedTempFile> {
    let mut index = Hashed::new(file);
    index.put(b"\xfftOc")?;
    index.put(&2_u32.to_be_bytes())?;
    for byte in 0..=u8::MAX {
        let up_to = entries.partition_point(|entry| entry.id.as_bytes()[0] <= byte);
        index.put(&number(up_to)?.to_be_bytes())?;
    }
    entries.iter().try_for_each(|entry| index.put(entry.id.as_bytes()))?;
    entries.iter().try_for_each(|entry| index.put(&entry.crc.to_be_bytes()))?;
    entries.iter().try_for_each(|entry| index.put(&entry.at.to_be_bytes()))?;
    index.put(pack)?;
    Ok(index.finish()?.0)
}

/// A file that ends with the hash of all preceding bytes.
struct Hashed {
    file: BufWriter<NamedTempFile>,
    hash: Sha1,
    len: u64,
}

impl Hashed {
    fn new(file: NamedTempFile) -> Self {
        Self { file: BufWriter::new(file), hash: Sha1::new(), len: 0 }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// The complete, durable file and its hash.
    fn finish(self) -> io::Result<(NamedTempFile, [u8; 20])> {
        let Self { mut file, hash, .. } = self;
        let sum: [u8; 20] = hash.finalize().into();
        file.write_all(&sum)?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.as_file().set_permissions(Permissions::from_mode(PACK_MODE))?;
        file.as_file().sync_all()?;
        Ok((file, sum))
    }
}

#[cfg(test)]
mod tests {
    use git2::{ObjectType, Repository};

    use super::*;
    use crate::integrity::Integrity;

    /// Blobs of all lengths around the points at which their headers grow; some are hard to compress.
    fn blobs() -> Vec<Vec<u8>> {
        let mut seed = 1_u32;
        let mut hard = move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let lengths = [0, 1, 15, 16, 17, 2047, 2048, 2049, 70_000, 262_143, 262_144];
        let mut all: Vec<Vec<u8>> = lengths.iter().map(|len| vec![7; *len]).collect();
        all.extend(lengths[1..].iter().map(|len| (0..*len).map(|_| hard()).collect()));
        all.extend((0..900_u32).map(|n| n.to_string().into_bytes()));
        all
    }

    fn written(full: u64) -> (tempfile::TempDir, Repository, Vec<Vec<u8>>, usize) {
        let folder = tempfile::tempdir().expect("a folder");
        let repo = Repository::init_bare(folder.path()).expect("a repository");
        let all = blobs();
        let id = |bytes: &Vec<u8>| Oid::hash_object(ObjectType::Blob, bytes).expect("hashed");
        let mut given: Vec<(Oid, &[u8])> = all.iter().map(|bytes| (id(bytes), &bytes[..])).collect();
        given.push(given[3]);
        let packs = folder.path().join("objects/pack");
        write_up_to(&packs, &given, full).expect("written");
        let names = fs::read_dir(&packs).expect("read").map(|file| file.expect("a file").file_name());
        let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        assert!(names.iter().all(|name| name.starts_with("pack-")), "{names:?}");
        (folder, repo, all, names.len() / 2)
    }

    #[test]
    fn the_library_reads_what_was_written() {
        for (full, several) in [(FULL, false), (100_000, true)] {
            let (_folder, repo, all, packs) = written(full);
            assert_eq!(packs > 1, several, "{packs}");
            let integrity = Integrity::of(&repo);
            for bytes in &all {
                let id = Oid::hash_object(ObjectType::Blob, bytes).expect("hashed");
                assert_eq!(blob_id(bytes).expect("hashed"), id);
                integrity.check(id).expect("whole");
                let odb = repo.odb().expect("objects");
                assert_eq!(odb.read_header(id).expect("there"), (bytes.len(), ObjectType::Blob));
                assert_eq!(odb.read(id).expect("there").data(), &bytes[..]);
            }
        }
    }

    #[test]
    fn the_same_blobs_are_the_same_pack() {
        let (folder, _repo, all, _) = written(FULL);
        let packs = folder.path().join("objects/pack");
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(&packs).expect("read").map(|file| file.expect("a file").file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        let id = |bytes: &Vec<u8>| Oid::hash_object(ObjectType::Blob, bytes).expect("hashed");
        let given: Vec<(Oid, &[u8])> = all.iter().rev().map(|bytes| (id(bytes), &bytes[..])).collect();
        write(&packs, &given).expect("written again");
        assert_eq!(names(), before);
    }
}
