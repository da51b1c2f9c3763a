//! Writes packs, as git's documentation describes them (gitformat-pack): whole objects and no deltas.
//!
//! The git library asks the disk several times for each object, hashes it up to four times, and unpacks what it has just
//! packed. A [`PackWriter`] takes objects as they arrive; the pack is durable when it is finished. Bundles come with their
//! hashes, and are compressed on all processors: that takes a third of the time for a tenth more bytes.

use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use git2::{ObjectType, Oid};
use rayon::prelude::*;
use sha1::{Digest as _, Sha1};
use tempfile::NamedTempFile;

use crate::depot::sync_folder;

/// Packs of depots are never changed.
pub(crate) const PACK_MODE: u32 = 0o444;
/// A pack of a depot is full at this size.
const FULL: u64 = 1 << 30;
/// How many blobs are compressed before they are written.
const BLOBS: usize = 512;
/// The level of compression for depots.
const LEVEL: u32 = 3;
/// Git's name for unfinished files: `git gc` removes leftovers with it.
const UNFINISHED: &str = "tmp_pack_";
/// Compression of shorter objects saves too little for its time.
const PLAIN: usize = 400;
/// The size of a read buffer.
const AT_ONCE: usize = 64 << 10;
/// From here on, an offset needs eight bytes.
const FAR: u64 = 1 << 31;

/// Git's id of an object.
#[must_use]
pub fn object_id(sort: ObjectType, bytes: &[u8]) -> Oid {
    let hash = Sha1::new().chain_update(format!("{} {}\0", sort.str(), bytes.len())).chain_update(bytes);
    Oid::from_bytes(&hash.finalize()).expect("twenty bytes")
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
        let mut pack = PackWriter::begin(folder, PACK_MODE)?;
        while !left.is_empty() && pack.size() < full {
            let (some, rest) = left.split_at(left.len().min(BLOBS));
            let packer = || Packer::new(Compression::new(LEVEL));
            let packed: Vec<io::Result<Vec<u8>>> =
                some.par_iter().map_init(packer, |packer, (_, bytes)| packer.packed(ObjectType::Blob, bytes)).collect();
            some.iter().zip(packed).try_for_each(|((id, _), packed)| pack.add_packed(*id, &packed?))?;
            left = rest;
        }
        pack.finish()?;
    }
    sync_folder(folder)
}

/// A pack that is being written. If it is dropped before its end, its file is removed.
#[derive(Debug)]
pub struct PackWriter {
    folder: PathBuf,
    mode: u32,
    file: BufWriter<NamedTempFile>,
    offset: u64,
    packer: Packer,
    objects: Vec<(Oid, u32, u64)>,
    /// Only for lookups, never iterated.
    written: HashSet<Oid>,
}

impl PackWriter {
    /// Starts a pack in the folder of packs; its files get this mode.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(folder: &Path, mode: u32) -> io::Result<Self> {
        let mut pack = Self {
            folder: folder.to_owned(),
            mode,
            file: BufWriter::with_capacity(256 << 10, unfinished(folder)?),
            offset: 0,
            packer: Packer::new(Compression::default()),
            objects: Vec::new(),
            written: HashSet::new(),
        };
        // The number of objects is filled in at the end.
        pack.put(b"PACK\0\0\0\x02\0\0\0\0")?;
        Ok(pack)
    }

    /// Whether it has this object.
    #[must_use]
    pub fn has(&self, id: Oid) -> bool {
        self.written.contains(&id)
    }

    /// Adds an object, unless the pack has it.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&mut self, id: Oid, sort: ObjectType, bytes: &[u8]) -> io::Result<()> {
        if self.has(id) {
            return Ok(());
        }
        let packed = self.packer.packed(sort, bytes)?;
        self.add_packed(id, &packed)
    }

    /// Adds an object in the form of a [`Packer`], unless the pack has it.
    fn add_packed(&mut self, id: Oid, packed: &[u8]) -> io::Result<()> {
        if self.written.insert(id) {
            let mut sum = Crc::new();
            sum.update(packed);
            self.objects.push((id, sum.sum(), self.offset));
            self.put(packed)?;
        }
        Ok(())
    }

    /// Adds a file of this size, which need not fit into memory. `None`: it has another length, and was not added.
    ///
    /// # Errors
    /// The system's.
    pub fn add_file(&mut self, size: u64, mut from: impl io::Read) -> io::Result<Option<Oid>> {
        let begin = self.offset;
        let mut packed = Vec::new();
        header(ObjectType::Blob, usize::try_from(size).map_err(io::Error::other)?, &mut packed);
        let (mut hash, mut sum) = (Sha1::new(), Crc::new());
        hash.update(format!("{} {size}\0", ObjectType::Blob.str()));
        let (mut chunk, mut read) = (vec![0; AT_ONCE], 0);
        self.packer.0.reset();
        loop {
            let length = from.read(&mut chunk)?;
            read += length as u64;
            hash.update(&chunk[..length]);
            let flush = if length == 0 { FlushCompress::Finish } else { FlushCompress::None };
            let ended = self.packer.squeeze(&chunk[..length], flush, &mut packed)?;
            sum.update(&packed);
            self.put(&packed)?;
            packed.clear();
            if ended || read > size {
                break;
            }
        }
        let id = Oid::from_bytes(&hash.finalize()).map_err(io::Error::other)?;
        if read == size && self.written.insert(id) {
            self.objects.push((id, sum.sum(), begin));
            return Ok(Some(id));
        }
        // The pack has it already, or another process writes to the file.
        self.file.flush()?;
        let file = self.file.get_mut().as_file_mut();
        file.set_len(begin)?;
        file.seek(SeekFrom::Start(begin))?;
        self.offset = begin;
        Ok((read == size).then_some(id))
    }

    /// The bytes of the pack on the disk so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.offset
    }

    /// The ids of its objects.
    pub fn ids(&self) -> impl Iterator<Item = Oid> {
        self.objects.iter().map(|(id, _, _)| *id)
    }

    /// Makes the pack and its index durable under its name, and returns the name.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(mut self) -> io::Result<String> {
        let count = u32::try_from(self.objects.len()).map_err(io::Error::other)?;
        let mut pack = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        pack.seek(SeekFrom::Start(8))?;
        pack.write_all(&count.to_be_bytes())?;
        let sum = sum_of(pack.as_file_mut())?;
        pack.write_all(&sum)?;
        self.objects.sort_unstable();
        let mut index = unfinished(&self.folder)?;
        index.write_all(&index_of(&self.objects, &sum))?;
        let name = format!("pack-{}", Oid::from_bytes(&sum).map_err(io::Error::other)?);
        // The index comes last, because git reads only packs that have an index.
        for (file, end) in [(pack, "pack"), (index, "idx")] {
            file.as_file().set_permissions(Permissions::from_mode(self.mode))?;
            file.as_file().sync_all()?;
            file.persist(self.folder.join(format!("{name}.{end}"))).map_err(|error| error.error)?;
        }
        sync_folder(&self.folder)?;
        Ok(name)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.offset += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

fn unfinished(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)
}

/// Brings objects into the form of packs.
#[derive(Debug)]
struct Packer(Compress);

impl Packer {
    fn new(level: Compression) -> Self {
        Self(Compress::new(level, true))
    }

    /// An object as stored in a pack: type and length, then the bytes in zlib format.
    fn packed(&mut self, sort: ObjectType, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut to = Vec::with_capacity(bytes.len() / 8 + 64);
        header(sort, bytes.len(), &mut to);
        if let Some(length) = u16::try_from(bytes.len()).ok().filter(|length| usize::from(*length) < PLAIN) {
            // A single stored block, marked as the last.
            to.extend_from_slice(&[0x78, 0x01, 0x01]);
            to.extend_from_slice(&length.to_le_bytes());
            to.extend_from_slice(&(!length).to_le_bytes());
            to.extend_from_slice(bytes);
            to.extend_from_slice(&adler32(bytes).to_be_bytes());
            return Ok(to);
        }
        self.0.reset();
        self.squeeze(bytes, FlushCompress::Finish, &mut to)?;
        Ok(to)
    }

    /// Compresses all these bytes and appends the output; returns whether the stream ended.
    fn squeeze(&mut self, bytes: &[u8], flush: FlushCompress, to: &mut Vec<u8>) -> io::Result<bool> {
        let begin = self.0.total_in();
        loop {
            to.reserve(bytes.len() / 2 + 64);
            let at = usize::try_from(self.0.total_in() - begin).map_err(io::Error::other)?;
            let status = self.0.compress_vec(&bytes[at..], to, flush).map_err(io::Error::other)?;
            if status == Status::StreamEnd {
                return Ok(true);
            }
            let all = self.0.total_in() - begin == bytes.len() as u64;
            if all && !matches!(flush, FlushCompress::Finish) {
                return Ok(false);
            }
        }
    }
}

/// The object's type and length, seven bits a byte.
fn header(sort: ObjectType, length: usize, to: &mut Vec<u8>) {
    let number: u8 = match sort {
        ObjectType::Commit => 1,
        ObjectType::Tree => 2,
        ObjectType::Blob | ObjectType::Any => 3,
        ObjectType::Tag => 4,
    };
    let mut rest = length >> 4;
    let mut byte = (number << 4) | (length & 15) as u8;
    while rest > 0 {
        to.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    to.push(byte);
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (a + b) % 65521)
    });
    (b << 16) | a
}

/// The hash of the whole file, which is left at its end.
fn sum_of(file: &mut File) -> io::Result<[u8; 20]> {
    file.seek(SeekFrom::Start(0))?;
    let (mut hash, mut buffer) = (Sha1::new(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// A version 2 index of objects that are sorted by id.
fn index_of(objects: &[(Oid, u32, u64)], pack: &[u8; 20]) -> Vec<u8> {
    let mut bytes = b"\xfftOc\0\0\0\x02".to_vec();
    let mut counts = [0_u32; 256];
    for (id, _, _) in objects {
        counts[usize::from(id.as_bytes()[0])] += 1;
    }
    let mut all = 0;
    for count in counts {
        all += count;
        bytes.extend_from_slice(&all.to_be_bytes());
    }
    objects.iter().for_each(|(id, _, _)| bytes.extend_from_slice(id.as_bytes()));
    objects.iter().for_each(|(_, sum, _)| bytes.extend_from_slice(&sum.to_be_bytes()));
    let mut far: Vec<u64> = Vec::new();
    for (_, _, offset) in objects {
        let near = match u32::try_from(*offset) {
            Ok(near) if *offset < FAR => near,
            Ok(_) | Err(_) => {
                far.push(*offset);
                u32::try_from(far.len() - 1).unwrap_or(u32::MAX) | 0x8000_0000
            }
        };
        bytes.extend_from_slice(&near.to_be_bytes());
    }
    far.iter().for_each(|offset| bytes.extend_from_slice(&offset.to_be_bytes()));
    bytes.extend_from_slice(pack);
    let sum: [u8; 20] = Sha1::digest(&bytes).into();
    bytes.extend_from_slice(&sum);
    bytes
}

#[cfg(test)]
mod tests {
    use git2::Repository;

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
    fn libgit2_reads_every_object_of_several_packs() {
        for (full, several) in [(FULL, false), (100_000, true)] {
            let (_folder, repo, all, packs) = written(full);
            assert_eq!(packs > 1, several, "{packs}");
            let integrity = Integrity::of(&repo);
            for bytes in &all {
                let id = Oid::hash_object(ObjectType::Blob, bytes).expect("hashed");
                assert_eq!(object_id(ObjectType::Blob, bytes), id);
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

    #[test]
    fn libgit2_reads_the_pack_and_makes_the_same_index() {
        let folder = tempfile::tempdir().expect("a folder");
        let repo = git2::Repository::init_bare(folder.path()).expect("made");
        let mut pack = PackWriter::begin(&folder.path().join("objects/pack"), 0o400).expect("begun");
        // Empty, short, around the limit of uncompressed objects, with all byte values, long.
        let noise = |n: usize| (0..n).map(|i| (i * i % 251) as u8 ^ (i >> 3) as u8).collect::<Vec<u8>>();
        let lengths = [0, 1, 15, 16, PLAIN - 1, PLAIN, 2047, 2048, 70_000, 3 << 20];
        let mut objects: Vec<Vec<u8>> = lengths.into_iter().map(noise).collect();
        objects.push(vec![b'x'; 1 << 20]);
        for bytes in &objects {
            let id = object_id(ObjectType::Blob, bytes);
            assert_eq!(id, Oid::hash_object(ObjectType::Blob, bytes).expect("hashed"));
            pack.add(id, ObjectType::Blob, bytes).expect("added");
            pack.add(id, ObjectType::Blob, bytes).expect("and once is enough");
        }
        // The same from files, some of which are in the pack already.
        for bytes in [noise(5), noise(200_000), vec![0; 3 << 20], noise(70_000)] {
            let id = pack.add_file(bytes.len() as u64, &*bytes).expect("read");
            assert_eq!(id, Some(object_id(ObjectType::Blob, &bytes)));
            assert_eq!(pack.add_file(bytes.len() as u64 + 1, &*bytes).expect("read"), None, "it is shorter");
            assert_eq!(pack.add_file(bytes.len() as u64 - 1, &*bytes).expect("read"), None, "it is longer");
            objects.push(bytes);
        }
        drop(PackWriter::begin(&folder.path().join("objects/pack"), 0o400).expect("begun"));
        let left = fs::read_dir(folder.path().join("objects/pack")).expect("listed").count();
        assert_eq!(left, 1, "one that is given up leaves nothing");
        let name = pack.finish().expect("finished");
        for bytes in &objects {
            let blob = repo.find_blob(object_id(ObjectType::Blob, bytes)).expect("there");
            assert!(blob.content() == bytes.as_slice(), "{}", bytes.len());
        }
        let mut index = git2::Indexer::new(None, folder.path(), 0o644, true).expect("an indexer");
        let pack = fs::read(folder.path().join(format!("objects/pack/{name}.pack"))).expect("read");
        index.write_all(&pack).expect("a pack as git has them");
        index.commit().expect("whole");
        let theirs = fs::read(folder.path().join(format!("{name}.idx"))).expect("under the same name");
        let ours = fs::read(folder.path().join(format!("objects/pack/{name}.idx"))).expect("read");
        assert!(theirs == ours, "the index is the one that libgit2 makes");
    }

    #[test]
    fn far_offsets_have_a_table_of_their_own() {
        let id = |n: u8| Oid::from_bytes(&[n; 20]).expect("an id");
        let bytes = index_of(&[(id(1), 7, 12), (id(2), 8, FAR), (id(3), 9, FAR + 5)], &[0; 20]);
        let offsets = 8 + 1024 + 3 * 24;
        assert_eq!(bytes[offsets..offsets + 12], [0, 0, 0, 12, 0x80, 0, 0, 0, 0x80, 0, 0, 1]);
        assert_eq!(bytes[offsets + 12..offsets + 28], [0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 5]);
    }
}
