//! The log: records that are not in the repository yet.
//!
//! ```text
//!   log/00000000000000000012   "cobfile1"   then frames ([`super::frames`]), each with a record as packed CBOR
//! ```
//! A record is durable when its frame is; records that arrive together share a write and a sync. A flush
//! ([`super::flush`]) later moves records into the repository and removes their segments. The repository has the number
//! of its last record, so that no record counts twice.
//!
//! Only the end of the newest segment can be torn, because a segment is synced before the next begins: an incomplete
//! frame there was never acknowledged. Elsewhere it is damage, and an error.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::iter;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_types::codec;
use git2::Oid;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_with::skip_serializing_none;

use super::frames::{self, Frames, MAX_FRAME, Next};
use super::{Blob, Frozen, Listing, Part, Reason, Record, RecordedEntry, RecordedNode};
use crate::attributes::Managed;
use crate::path::TreePath;

/// The start of every segment: the format and its number.
const MAGIC: &[u8; 8] = b"cobfile1";

/// A longer segment gets no more records. A batch of records is much shorter.
const LONG: u64 = 1 << 30;

/// The place of a record in the log. It can be read as long as this value exists, even if its segment was removed.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    file: Arc<File>,
    /// The offset of its frame.
    at: u32,
    /// The frame's length.
    length: u32,
}

impl Place {
    fn new(file: &Arc<File>, frame: Range<u64>) -> io::Result<Self> {
        let short =
            |number: u64| u32::try_from(number).map_err(|_| io::Error::other("a segment of the log is too long"));
        Ok(Self { file: file.clone(), at: short(frame.start)?, length: short(frame.end - frame.start)? })
    }

    /// Reads the record.
    pub(super) fn read(&self) -> io::Result<Numbered> {
        let mut bytes = vec![0; self.length as usize];
        self.file.read_exact_at(&mut bytes, self.at.into())?;
        let payload = frames::payload(&bytes).ok_or_else(|| "its checksum is wrong".to_owned());
        let damaged = |what: String| format!("a record at byte {} is damaged: {what}", self.at);
        payload.and_then(decode).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, damaged(what)))
    }
}

/// The waiting records, in order. There may be tens of thousands, with adjacent frames: each takes only its end.
#[derive(Default)]
pub(super) struct Waiting(VecDeque<Stretch>);

/// Frames that follow each other.
struct Stretch {
    file: Arc<File>,
    /// The offset of the first frame.
    at: u32,
    ends: VecDeque<u32>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|stretch| stretch.ends.len()).sum()
    }

    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.0.iter().flat_map(|Stretch { file, at, ends }| {
            let begins = iter::once(at).chain(ends);
            begins.zip(ends).map(|(at, end)| Place { file: file.clone(), at: *at, length: end - at })
        })
    }

    fn push(&mut self, Place { file, at, length }: Place) {
        let end = at + length;
        match self.0.back_mut() {
            Some(last) if Arc::ptr_eq(&last.file, &file) && last.ends.back() == Some(&at) => last.ends.push_back(end),
            _ => self.0.push_back(Stretch { file, at, ends: [end].into() }),
        }
    }

    /// Removes the first `count` records.
    fn advance(&mut self, mut count: usize) {
        while let Some(first) = self.0.front_mut() {
            if count < first.ends.len() {
                first.at = first.ends.drain(..count).next_back().unwrap_or(first.at);
                return;
            }
            count -= first.ends.len();
            self.0.pop_front();
        }
    }
}

/// A record and its place.
pub(super) type Logged = (Numbered, Place);

/// A record with its number in the order of all records.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) number: u64,
    /// In seconds since 1970.
    pub(super) time: u64,
    pub(super) record: Record,
}

/// The log. Its records are only in the file: there may be tens of thousands.
pub(super) struct Log {
    folder: PathBuf,
    segment: u64,
    file: Arc<File>,
    /// The length that is known to be good.
    length: u64,
    /// The last write may not be durable.
    unsynced: bool,
    next: u64,
    pub(super) waiting: Waiting,
    /// The bytes of the waiting records.
    pub(super) bytes: usize,
}

impl Log {
    /// Opens the log of a store: records after number `recorded` wait, and are passed to `each` in order. There may be
    /// tens of thousands, so they are not held in memory.
    pub(super) fn open(store: &Path, recorded: u64, mut each: impl FnMut(&Numbered, &Place)) -> io::Result<Self> {
        let folder = store.join("log");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let segments = segments(&folder)?;
        let (mut waiting, mut bytes, mut next, mut begun) = (Waiting::default(), 0, recorded + 1, None);
        for (at, segment) in segments.iter().enumerate() {
            let path = folder.join(name(*segment));
            let newest = at + 1 == segments.len();
            let file = Arc::new(File::open(&path)?);
            let good = read(&path, &file, newest, |numbered, frame| {
                if numbered.number < next {
                    return Ok(());
                }
                if numbered.number > next {
                    let (first, last) = (next, numbered.number - 1);
                    let what = format!(
                        "the records {first} to {last} before {} are gone: restore this part from a copy",
                        path.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::NotFound, what));
                }
                next = numbered.number + 1;
                let place = Place::new(&file, frame)?;
                bytes += place.length as usize;
                each(&numbered, &place);
                waiting.push(place);
                Ok(())
            })?;
            if newest && good >= MAGIC.len() as u64 {
                // Its end was never acknowledged, and must not count as damage once there is a newer segment.
                cut(&path, good)?;
            } else if newest {
                begun = Some(path);
            }
        }
        let segment = segments.last().map_or(1, |last| last + 1);
        let file = create(&folder, segment)?;
        // There is always a segment, so that a lost log is noticed.
        begun.map_or(Ok(()), fs::remove_file)?;
        let length = MAGIC.len() as u64;
        let mut log = Self { folder, segment, file, length, unsynced: false, next, waiting, bytes };
        if log.waiting.is_empty() {
            log.done(0, 0, segment);
        }
        Ok(log)
    }

    /// The number of the newest segment.
    pub(super) fn segment(&self) -> u64 {
        self.segment
    }

    /// Appends records; durable if requested. On an error, no record is appended.
    pub(super) fn append(&mut self, records: Vec<Record>, time: u64, durable: bool) -> io::Result<Vec<Logged>> {
        if self.length > LONG {
            self.turn()?;
        }
        let mut frames = Vec::new();
        let mut logged = Vec::new();
        for (record, number) in records.into_iter().zip(self.next..) {
            let numbered = Numbered { number, time, record };
            let start = frames.len();
            encode(&numbered, &mut frames)?;
            let frame = self.length + start as u64..self.length + frames.len() as u64;
            logged.push((numbered, Place::new(&self.file, frame)?));
        }
        let mut file = &*self.file;
        let written = file.write_all(&frames).and_then(|()| if durable { file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // The half-written records must not precede the next records.
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += frames.len() as u64;
        self.unsynced = !durable;
        self.next += logged.len() as u64;
        self.bytes += frames.len();
        logged.iter().for_each(|(_, place)| self.waiting.push(place.clone()));
        Ok(logged)
    }

    /// Starts a new segment, so that earlier segments can be removed once the records that wait now are in the
    /// repository. Returns its number.
    pub(super) fn turn(&mut self) -> io::Result<u64> {
        if self.length > MAGIC.len() as u64 {
            if self.unsynced {
                self.file.sync_data()?;
                self.unsynced = false;
            }
            self.file = create(&self.folder, self.segment + 1)?;
            self.segment += 1;
            self.length = MAGIC.len() as u64;
        }
        Ok(self.segment)
    }

    /// The first `count` waiting records are in the repository: removes the segments before `segment`.
    pub(super) fn done(&mut self, count: usize, bytes: usize, segment: u64) {
        self.waiting.advance(count);
        self.bytes -= bytes;
        for old in segments(&self.folder).unwrap_or_default().into_iter().filter(|old| *old < segment) {
            // A remaining segment is skipped at the next start: the repository has its records.
            let _ = fs::remove_file(self.folder.join(name(old)));
        }
    }
}

/// The newest segment of a log; `None`: the log does not exist.
pub(super) fn newest_segment(folder: &Path) -> Option<u64> {
    segments(folder).ok()?.pop()
}

fn name(segment: u64) -> String {
    format!("{segment:020}")
}

fn segments(folder: &Path) -> io::Result<Vec<u64>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        all.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    all.sort_unstable();
    Ok(all)
}

fn create(folder: &Path, segment: u64) -> io::Result<Arc<File>> {
    let path = folder.join(name(segment));
    // A segment whose creation failed on a full disk has no record.
    if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAGIC.len() as u64) {
        fs::remove_file(&path)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(MAGIC)?;
    file.sync_data()?;
    File::open(folder)?.sync_all()?;
    Ok(Arc::new(file))
}

/// Cuts off an incomplete frame.
fn cut(path: &Path, good: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() > good {
        file.set_len(good)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Passes the records of a segment and their frames' places to `each`; returns the length that is good.
fn read(
    path: &Path,
    file: &File,
    newest: bool,
    mut each: impl FnMut(Numbered, Range<u64>) -> io::Result<()>,
) -> io::Result<u64> {
    let damaged = |at: u64, what: &str| {
        let path = path.display();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{path} is damaged at byte {at}: {what}; if it is moved away, the earlier contents of files in it \
                 are lost"
            ),
        )
    };
    let (mut frames, magic) = Frames::begin(file, MAGIC.len())?;
    if magic != MAGIC {
        return match magic.starts_with(&MAGIC[..7]) && magic.len() == MAGIC.len() {
            true => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} was written by a newer cobd", path.display()),
            )),
            // The segment was created, and never had a record.
            false if newest => Ok(0),
            false => Err(damaged(0, "it does not begin like a log")),
        };
    }
    loop {
        let at = frames.good();
        match frames.next()? {
            Next::Frame(payload, place) => each(decode(payload).map_err(|what| damaged(at, &what))?, place)?,
            Next::Broken if !newest => return Err(damaged(at, "its checksum is wrong")),
            Next::End | Next::Broken => return Ok(at),
        }
    }
}

fn decode(payload: &[u8]) -> Result<Numbered, String> {
    let line: Line = codec::decode(payload, MAX_FRAME).map_err(|e| e.to_string())?;
    line.numbered().ok_or_else(|| "a part of it is invalid".to_owned())
}

fn encode(numbered: &Numbered, frames: &mut Vec<u8>) -> io::Result<()> {
    let payload = codec::encode_packed(&Line::of(numbered)).map_err(io::Error::other)?;
    frames::put(&payload, frames)
}

/// A record in a frame. New fields are only added at the end.
#[derive(Serialize, Deserialize)]
struct Line {
    number: u64,
    time: u64,
    cob: String,
    generation: u64,
    reason: Reason,
    spec: Option<String>,
    paths: Vec<String>,
    before: Option<Vec<Entry>>,
    applied: Option<Vec<Entry>>,
    found: Vec<Entry>,
    from: Vec<Entry>,
    base: Vec<Entry>,
    aim: Vec<Entry>,
    result: Vec<Entry>,
}

/// The entry of a path in a frame.
#[skip_serializing_none]
#[derive(Serialize, Deserialize)]
struct Entry {
    path: ByteBuf,
    sort: Sort,
    /// The id of a content in the repository, or the content, or a link's target.
    #[serialize_always]
    id: Option<ByteBuf>,
    #[serialize_always]
    content: Option<ByteBuf>,
    managed: Managed,
    implied: bool,
    shared: Option<bool>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Sort {
    Absent,
    File,
    Sealed,
    Secret,
    Folder,
    Link,
}

impl Line {
    fn of(numbered: &Numbered) -> Self {
        let Numbered { number, time, record } = numbered;
        let part = |part: &Part| match part {
            Part::Same => None,
            Part::New(listing) => Some(entries(listing)),
        };
        let [from, base, aim, result] = record.begun.each_ref().map(entries);
        Self {
            number: *number,
            time: *time,
            cob: record.cob.clone(),
            generation: record.generation,
            reason: record.reason,
            spec: record.spec.clone(),
            paths: record.paths.clone(),
            before: part(&record.before),
            applied: part(&record.applied),
            found: entries(&record.found),
            from,
            base,
            aim,
            result,
        }
    }

    fn numbered(self) -> Option<Numbered> {
        let part = |part: Option<Vec<Entry>>| match part {
            None => Some(Part::Same),
            Some(entries) => listing(entries).map(Part::New),
        };
        let [from, base, aim, result] = [self.from, self.base, self.aim, self.result].map(listing);
        let record = Record {
            cob: self.cob,
            generation: self.generation,
            reason: self.reason,
            spec: self.spec,
            paths: self.paths,
            before: part(self.before)?,
            applied: part(self.applied)?,
            found: listing(self.found)?,
            begun: [from?, base?, aim?, result?],
        };
        Some(Numbered { number: self.number, time: self.time, record })
    }
}

fn entries(listing: &Frozen) -> Vec<Entry> {
    let entry = |(path, kept): &(TreePath, RecordedEntry)| {
        let of_blob = |blob: &Blob| match blob {
            Blob::Known(id) => (Some(ByteBuf::from(id.as_bytes())), None),
            Blob::New(bytes) => (None, Some(ByteBuf::from(bytes.to_vec()))),
        };
        let (sort, (id, content)) = match &kept.node {
            RecordedNode::Absent => (Sort::Absent, (None, None)),
            RecordedNode::File(blob) => (Sort::File, of_blob(blob)),
            RecordedNode::Sealed(blob) => (Sort::Sealed, of_blob(blob)),
            RecordedNode::Secret => (Sort::Secret, (None, None)),
            RecordedNode::Folder => (Sort::Folder, (None, None)),
            RecordedNode::Link(to) => (Sort::Link, (None, Some(ByteBuf::from(to.clone())))),
        };
        let path = ByteBuf::from(std::borrow::Borrow::<[u8]>::borrow(path));
        let RecordedEntry { managed, implied, shared, .. } = kept.clone();
        Entry { path, sort, id, content, managed, implied, shared }
    };
    listing.iter().map(entry).collect()
}

/// `None`: an entry is not valid.
fn listing(entries: Vec<Entry>) -> Option<Frozen> {
    let mut listing = Listing::new();
    for Entry { path, sort, id, content, managed, implied, shared } in entries {
        let blob = || match (&id, &content) {
            (Some(id), None) => Oid::from_bytes(id).ok().map(Blob::Known),
            (None, Some(bytes)) => Some(Blob::New(bytes.as_slice().into())),
            _ => None,
        };
        let node = match sort {
            Sort::Absent => RecordedNode::Absent,
            Sort::File => RecordedNode::File(blob()?),
            Sort::Sealed => RecordedNode::Sealed(blob()?),
            Sort::Secret => RecordedNode::Secret,
            Sort::Folder => RecordedNode::Folder,
            Sort::Link => RecordedNode::Link(content?.into_vec()),
        };
        listing.insert(TreePath::of_bytes(&path), RecordedEntry { node, managed, implied, shared });
    }
    Some(listing.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cob: &str) -> Record {
        let kept = RecordedEntry::found(RecordedNode::File(Blob::New(b"text".as_slice().into())), Managed::default());
        let listing = Listing::from([(TreePath::new("/f").expect("a path"), kept)]);
        Record {
            cob: cob.to_owned(),
            generation: 1,
            reason: Reason::Before,
            spec: None,
            paths: Vec::new(),
            before: Part::New(listing.into()),
            applied: Part::Same,
            found: Frozen::default(),
            begun: Default::default(),
        }
    }

    #[test]
    fn waiting_records_are_read_in_order_across_segments() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = Log::open(folder.path(), 0, |_, _| panic!("nothing was recorded")).expect("opened");
        let names = |numbers: std::ops::Range<u32>| numbers.map(|n| record(&format!("h/{n}"))).collect::<Vec<_>>();
        log.append(names(0..2), 7, false).expect("written");
        log.append(names(2..5), 7, false).expect("written");
        log.turn().expect("turned");
        log.append(names(5..7), 7, true).expect("written");
        for (done, left) in [(0, 0..7), (1, 1..7), (3, 4..7), (1, 5..7), (1, 6..7), (1, 7..7)] {
            log.waiting.advance(done);
            let read = log.waiting.places().map(|place| place.read().expect("read").record.cob);
            assert_eq!(read.collect::<Vec<_>>(), left.clone().map(|n| format!("h/{n}")).collect::<Vec<_>>());
            assert_eq!((log.waiting.len(), log.waiting.is_empty()), (left.len(), left.is_empty()));
        }
    }

    #[test]
    fn a_segment_that_could_not_start_is_started_again() {
        let beside = |bytes: &[u8]| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut log = Log::open(folder.path(), 0, |_, _| panic!("nothing was recorded")).expect("opened");
            log.append(vec![record("h/a")], 7, true).expect("written");
            fs::write(log.folder.join(name(log.segment + 1)), bytes).expect("written");
            log.turn()
        };
        for half in [&MAGIC[..0], &MAGIC[..3], &MAGIC[..]] {
            assert!(beside(half).is_ok());
        }
        // A segment with records is never replaced.
        assert!(beside(&[&MAGIC[..], b"more"].concat()).is_err());
    }

    #[test]
    fn a_record_can_be_read_after_its_segment_is_deleted() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = Log::open(folder.path(), 0, |_, _| panic!("nothing was recorded")).expect("opened");
        let first = log.append(vec![record("h/a"), record("h/b")], 7, true).expect("written");
        let second = log.append(vec![record("h/c")], 8, false).expect("written");
        let segment = log.turn().expect("turned");
        // Another process finds the same records in the same places.
        let mut found = Vec::new();
        Log::open(folder.path(), 1, |n, place| found.push((n.number, n.record.cob.clone(), place.clone())))
            .expect("opened");
        assert_eq!(found.iter().map(|(n, cob, _)| (*n, &**cob)).collect::<Vec<_>>(), [(2, "h/b"), (3, "h/c")]);
        log.done(3, log.bytes, segment);
        assert!(log.waiting.is_empty() && log.bytes == 0);
        let recorded = first.iter().chain(&second).map(|(n, place)| (n.number, n.record.cob.clone(), place.clone()));
        for (number, cob, place) in recorded.chain(found) {
            let read = place.read().expect("read");
            assert_eq!((read.number, &read.record.cob), (number, &cob));
            assert_eq!(read.record.piece(super::super::Piece::Before).thaw().len(), 1);
        }
    }
}
