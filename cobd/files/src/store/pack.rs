//! Writes a new pack: objects are hashed, packed and written as they arrive, and durable when the pack is finished.
//!
//! Versions of small files are many objects of a few bytes. libgit2 asks the disk several times for each object, and
//! unpacks what it has just packed; here an object costs only its hash. The format is git's (gitformat-pack), with
//! whole objects and no deltas.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::{Compress, Compression, Crc, FlushCompress};
use git2::{ObjectType, Oid};
use sha1::{Digest as _, Sha1};

/// Compression of shorter objects saves too little for its time.
const PLAIN: usize = 400;
const MODE: u32 = 0o400;
/// The size of a read buffer.
const AT_ONCE: usize = 64 << 10;
/// From here on, an offset needs eight bytes.
const FAR: u64 = 1 << 31;

/// A file that is removed on drop, unless it was moved into its place.
struct Temp(PathBuf);

impl Drop for Temp {
    fn drop(&mut self) {
        // If the removal fails, the next start of the store removes it.
        let _ = fs::remove_file(&self.0);
    }
}

/// A pack that is being written.
pub(super) struct NewPack {
    folder: PathBuf,
    /// Dropped before the file is closed, or after it was moved.
    temp: Temp,
    file: BufWriter<File>,
    offset: u64,
    packer: Compress,
    objects: Vec<(Oid, u32, u64)>,
    /// Only for lookups, never iterated.
    written: HashSet<Oid>,
    packed: Vec<u8>,
}

impl NewPack {
    /// Starts a pack in the folder of packs.
    pub(super) fn begin(folder: &Path) -> io::Result<Self> {
        // Several packs can be written at the same time.
        static BEGUN: AtomicU64 = AtomicU64::new(0);
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("new-pack-{}-{number}", std::process::id()));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(&path)?;
        let mut pack = Self {
            folder: folder.to_owned(),
            temp: Temp(path),
            file: BufWriter::with_capacity(256 << 10, file),
            offset: 0,
            packer: Compress::new(Compression::default(), true),
            objects: Vec::new(),
            written: HashSet::new(),
            packed: Vec::new(),
        };
        // The number of objects is filled in at the end.
        pack.put(b"PACK\0\0\0\x02\0\0\0\0")?;
        Ok(pack)
    }

    /// The id of an object.
    pub(super) fn id(sort: ObjectType, bytes: &[u8]) -> Oid {
        let mut hash = Sha1::new();
        hash.update(format!("{} {}\0", sort.str(), bytes.len()));
        hash.update(bytes);
        Oid::from_bytes(&hash.finalize()).expect("twenty bytes")
    }

    pub(super) fn has(&self, id: Oid) -> bool {
        self.written.contains(&id)
    }

    /// Adds an object, unless the pack has it.
    pub(super) fn add(&mut self, id: Oid, sort: ObjectType, bytes: &[u8]) -> io::Result<()> {
        if !self.written.insert(id) {
            return Ok(());
        }
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        header(sort, bytes.len(), &mut packed);
        self.pack(bytes, &mut packed)?;
        let mut sum = Crc::new();
        sum.update(&packed);
        self.objects.push((id, sum.sum(), self.offset));
        self.put(&packed)?;
        self.packed = packed;
        Ok(())
    }

    /// Adds a file of this size, which need not fit into memory. `None`: it has another length, and was not added.
    pub(super) fn add_file(&mut self, size: u64, mut from: impl io::Read) -> io::Result<Option<Oid>> {
        let begin = self.offset;
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        header(ObjectType::Blob, usize::try_from(size).map_err(io::Error::other)?, &mut packed);
        let (mut hash, mut sum) = (Sha1::new(), Crc::new());
        hash.update(format!("{} {size}\0", ObjectType::Blob.str()));
        let (mut chunk, mut read) = (vec![0; AT_ONCE], 0);
        self.packer.reset();
        loop {
            let length = from.read(&mut chunk)?;
            read += length as u64;
            hash.update(&chunk[..length]);
            let flush = if length == 0 { FlushCompress::Finish } else { FlushCompress::None };
            let ended = self.squeeze(&chunk[..length], flush, &mut packed)?;
            sum.update(&packed);
            self.put(&packed)?;
            packed.clear();
            if ended || read > size {
                break;
            }
        }
        self.packed = packed;
        let id = Oid::from_bytes(&hash.finalize()).map_err(io::Error::other)?;
        if read == size && self.written.insert(id) {
            self.objects.push((id, sum.sum(), begin));
            return Ok(Some(id));
        }
        // The pack has it already, or another process writes to the file.
        self.file.flush()?;
        self.file.get_mut().set_len(begin)?;
        self.file.get_mut().seek(SeekFrom::Start(begin))?;
        self.offset = begin;
        Ok((read == size).then_some(id))
    }

    /// The bytes of the pack on the disk so far.
    pub(super) fn size(&self) -> u64 {
        self.offset
    }

    /// The ids of its objects.
    pub(super) fn ids(&self) -> impl Iterator<Item = Oid> {
        self.objects.iter().map(|(id, _, _)| *id)
    }

    /// Makes the pack and its index durable under its name, and returns the name.
    pub(super) fn finish(mut self) -> io::Result<String> {
        let count = u32::try_from(self.objects.len()).map_err(io::Error::other)?;
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(8))?;
        file.write_all(&count.to_be_bytes())?;
        let sum = sum_of(&mut file)?;
        file.write_all(&sum)?;
        file.sync_all()?;
        self.objects.sort_unstable();
        let index = index(&self.objects, &sum);
        let name = format!("pack-{}", Oid::from_bytes(&sum).map_err(io::Error::other)?);
        let path = |end: &str| self.folder.join(format!("{name}.{end}"));
        fs::rename(&self.temp.0, path("pack"))?;
        // The index is written last, because git reads only packs that have an index.
        let new = Temp(self.temp.0.with_extension("index"));
        let _ = fs::remove_file(&new.0);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new.0)?;
        file.write_all(&index)?;
        file.sync_all()?;
        fs::rename(&new.0, path("idx"))?;
        File::open(&self.folder)?.sync_all()?;
        Ok(name)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.offset += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Appends the bytes in zlib format.
    fn pack(&mut self, bytes: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
        if let Some(length) = u16::try_from(bytes.len()).ok().filter(|length| usize::from(*length) < PLAIN) {
            // A single stored block, marked as the last.
            to.extend_from_slice(&[0x78, 0x01, 0x01]);
            to.extend_from_slice(&length.to_le_bytes());
            to.extend_from_slice(&(!length).to_le_bytes());
            to.extend_from_slice(bytes);
            to.extend_from_slice(&adler32(bytes).to_be_bytes());
            return Ok(());
        }
        self.packer.reset();
        self.squeeze(bytes, FlushCompress::Finish, to).map(drop)
    }

    /// Compresses all these bytes and appends the output; returns whether the stream ended.
    fn squeeze(&mut self, bytes: &[u8], flush: FlushCompress, to: &mut Vec<u8>) -> io::Result<bool> {
        let begin = self.packer.total_in();
        loop {
            to.reserve(bytes.len() / 2 + 64);
            let at = usize::try_from(self.packer.total_in() - begin).map_err(io::Error::other)?;
            let status = self.packer.compress_vec(&bytes[at..], to, flush).map_err(io::Error::other)?;
            if status == flate2::Status::StreamEnd {
                return Ok(true);
            }
            let all = self.packer.total_in() - begin == bytes.len() as u64;
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
fn index(objects: &[(Oid, u32, u64)], pack: &[u8; 20]) -> Vec<u8> {
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
    use super::*;

    #[test]
    fn what_is_packed_is_read_by_libgit2() {
        let folder = tempfile::tempdir().expect("a folder");
        let repo = git2::Repository::init_bare(folder.path()).expect("made");
        let mut pack = NewPack::begin(&folder.path().join("objects/pack")).expect("begun");
        // Empty, short, around the limit of uncompressed objects, with all byte values, long.
        let noise = |n: usize| (0..n).map(|i| (i * i % 251) as u8 ^ (i >> 3) as u8).collect::<Vec<u8>>();
        let lengths = [0, 1, 15, 16, PLAIN - 1, PLAIN, 2047, 2048, 70_000, 3 << 20];
        let mut objects: Vec<Vec<u8>> = lengths.into_iter().map(noise).collect();
        objects.push(vec![b'x'; 1 << 20]);
        for bytes in &objects {
            let id = NewPack::id(ObjectType::Blob, bytes);
            assert_eq!(id, Oid::hash_object(ObjectType::Blob, bytes).expect("hashed"));
            pack.add(id, ObjectType::Blob, bytes).expect("added");
            pack.add(id, ObjectType::Blob, bytes).expect("and once is enough");
        }
        // The same from files, some of which are in the pack already.
        for bytes in [noise(5), noise(200_000), vec![0; 3 << 20], noise(70_000)] {
            let id = pack.add_file(bytes.len() as u64, &*bytes).expect("read");
            assert_eq!(id, Some(NewPack::id(ObjectType::Blob, &bytes)));
            assert_eq!(pack.add_file(bytes.len() as u64 + 1, &*bytes).expect("read"), None, "it is shorter");
            assert_eq!(pack.add_file(bytes.len() as u64 - 1, &*bytes).expect("read"), None, "it is longer");
            objects.push(bytes);
        }
        drop(NewPack::begin(&folder.path().join("objects/pack")).expect("begun"));
        let left = fs::read_dir(folder.path().join("objects/pack")).expect("listed").count();
        assert_eq!(left, 1, "one that is given up leaves nothing");
        let name = pack.finish().expect("finished");
        for bytes in &objects {
            let blob = repo.find_blob(NewPack::id(ObjectType::Blob, bytes)).expect("there");
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
        let bytes = index(&[(id(1), 7, 12), (id(2), 8, FAR), (id(3), 9, FAR + 5)], &[0; 20]);
        let offsets = 8 + 1024 + 3 * 24;
        assert_eq!(bytes[offsets..offsets + 12], [0, 0, 0, 12, 0x80, 0, 0, 0, 0x80, 0, 0, 1]);
        assert_eq!(bytes[offsets + 12..offsets + 28], [0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 5]);
    }
}
