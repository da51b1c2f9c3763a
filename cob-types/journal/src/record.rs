//! The byte format of records: how a record is written, and how a segment is read back.
//!
//! ```text
//!   0      4      8         16       18    19    20      24
//!   length CRC-32C sequence  format   what  zero  in group payload …       (numbers big-endian)
//! ```
//!
//! The checksum covers all bytes but itself. `in group` counts from 0 within a commit: a disk may write the pages of a
//! commit in any order, so a bad record followed by good records *of the same commit* is a torn end; followed by a
//! record of a later commit it is damage.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;

use super::WriteSnapshot;

/// The longest payload.
pub const MAX_PAYLOAD: usize = 256 << 20;
/// The format written by this version.
pub(super) const FORMAT: u16 = 1;
/// The size of the header before a payload.
pub(super) const HEADER: usize = 24;

/// A record as read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its sequence number: grows by one with each record.
    pub seq: u64,
    /// The type of the record.
    pub what: What,
    /// The appended bytes.
    pub payload: Bytes,
}

/// The type of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A change of the state.
    Change,
    /// The whole state at the start of a segment.
    Snapshot,
}

/// The content of a segment.
#[derive(Debug)]
pub(super) struct Scan {
    /// All records before the end or the first fault.
    pub(super) entries: Vec<Entry>,
    /// Their size in bytes.
    pub(super) good: usize,
    /// How reading ended.
    pub(super) end: End,
}

/// How reading a segment ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At the last byte.
    Clean,
    /// In an unfinished commit, at `Scan::good`.
    Torn(String),
    /// At a committed record, at `Scan::good`.
    Damaged(String),
    /// At a record of a newer format, at `Scan::good`.
    Newer(u16),
}

/// Adds a record to `out`. The caller has checked the length.
pub(super) fn encode(out: &mut Vec<u8>, seq: u64, what: What, in_group: u32, payload: &[u8]) {
    out.extend(head(seq, what, in_group, payload.len(), |sum| crc32c::crc32c_append(sum, payload)));
    out.extend(payload);
}

/// Writes a record, alone in its commit, into an empty file while its payload is generated. Returns its size.
pub(super) fn write(file: &File, seq: u64, what: What, payload: &mut WriteSnapshot<'_>) -> io::Result<u64> {
    let mut to = file;
    to.seek(SeekFrom::Start(HEADER as u64))?;
    let mut to = BufWriter::with_capacity(64 << 10, Summed { to, length: 0, sum: 0, failed: None });
    let written = payload(&mut to).and_then(|()| to.flush());
    let (Summed { length, sum, failed, .. }, _) = to.into_parts();
    // The serializer reports its own error, which hides the system's error.
    failed.map_or(written, Err)?;
    file.write_all_at(&head(seq, what, 0, length, |head| crc32c::crc32c_combine(head, sum, length)), 0)?;
    Ok((HEADER + length) as u64)
}

/// The header of a payload of this length; `sum` extends a checksum over the payload.
fn head(seq: u64, what: What, in_group: u32, length: usize, sum: impl FnOnce(u32) -> u32) -> [u8; HEADER] {
    let mut head = [0; HEADER];
    let length = u32::try_from(length).expect("payloads are capped far below 4 GiB");
    head[..4].copy_from_slice(&length.to_be_bytes());
    head[8..16].copy_from_slice(&seq.to_be_bytes());
    head[16..18].copy_from_slice(&FORMAT.to_be_bytes());
    head[18] = what.code();
    head[20..].copy_from_slice(&in_group.to_be_bytes());
    let sum = sum(checksum(&head));
    head[4..8].copy_from_slice(&sum.to_be_bytes());
    head
}

/// A payload is longer than [`MAX_PAYLOAD`]; writing stopped at this length.
#[derive(Debug, thiserror::Error)]
#[error("a record of {0} bytes and more")]
pub(super) struct TooLong(pub(super) usize);

/// Counts the bytes written through it, and computes their checksum.
struct Summed<'a> {
    to: &'a File,
    length: usize,
    sum: u32,
    /// The error after which it accepts no more bytes.
    failed: Option<io::Error>,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length += bytes.len();
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        let long = self.length > MAX_PAYLOAD;
        let written = if long { Err(io::Error::other(TooLong(self.length))) } else { self.to.write_all(bytes) };
        written.map_err(|error| {
            let kind = error.kind();
            self.failed.get_or_insert(error);
            kind
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a segment whose first record has the number `first`.
pub(super) fn scan(bytes: &Bytes, first: u64) -> Scan {
    let mut entries = Vec::new();
    let mut good = 0;
    let mut expected = first;
    let end = loop {
        if good == bytes.len() {
            break End::Clean;
        }
        match Header::read(bytes, good) {
            Ok(header) if header.format > FORMAT => break End::Newer(header.format),
            Ok(header) if header.seq != expected => {
                break End::Damaged(format!("record {expected} should stand here, found is record {}", header.seq));
            }
            Ok(header) => {
                let Some(what) = What::from_code(header.what) else {
                    break End::Damaged(format!("record {expected} is of the unknown sort {}", header.what));
                };
                let start = good + HEADER;
                good = start + header.length;
                entries.push(Entry { seq: expected, what, payload: bytes.slice(start..good) });
                expected += 1;
            }
            Err(fault) => {
                break match later_commit(bytes, good, expected) {
                    Some((offset, seq)) => End::Damaged(format!(
                        "{fault} where record {expected} should stand, though record {seq} of a later commit is \
                         whole at byte {offset}"
                    )),
                    None => End::Torn(fault.to_owned()),
                };
            }
        }
    };
    Scan { entries, good, end }
}

/// Reads the next record of a segment; `None`: no complete record follows that this version can read.
pub(super) fn next(from: &mut impl Read) -> io::Result<Option<Entry>> {
    let mut bytes = vec![0; HEADER];
    if !fill(from, &mut bytes)? {
        return Ok(None);
    }
    let length = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
    if length > MAX_PAYLOAD {
        return Ok(None);
    }
    bytes.resize(HEADER + length, 0);
    if !fill(from, &mut bytes[HEADER..])? {
        return Ok(None);
    }
    let header = Header::read(&bytes, 0).ok().filter(|header| header.format <= FORMAT);
    let known = header.and_then(|header| Some((header.seq, What::from_code(header.what)?)));
    Ok(known.map(|(seq, what)| Entry { seq, what, payload: Bytes::from(bytes).slice(HEADER..) }))
}

/// Returns false if there are not enough bytes.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Searches after a bad record for a complete record of a later commit.
fn later_commit(bytes: &[u8], bad: usize, expected: u64) -> Option<(usize, u64)> {
    // More records can't follow than fit: this limit excludes chance matches.
    let room = ((bytes.len() - bad) / HEADER) as u64;
    let mut at = bad + 1;
    while at + HEADER <= bytes.len() {
        let seq = u64::from_be_bytes(bytes[at + 8..at + 16].try_into().expect("eight bytes"));
        if seq > expected
            && seq - expected <= room
            && let Ok(header) = Header::read(bytes, at)
        {
            if seq - u64::from(header.in_group).min(seq) > expected {
                return Some((at, seq));
            }
            at += HEADER + header.length;
        } else {
            at += 1;
        }
    }
    None
}

struct Header {
    length: usize,
    seq: u64,
    format: u16,
    what: u8,
    in_group: u32,
}

impl Header {
    /// Reads the header at an offset and checks the record's sum.
    fn read(bytes: &[u8], at: usize) -> Result<Self, &'static str> {
        let rest = &bytes[at..];
        let Some((head, body)) = rest.split_first_chunk::<HEADER>() else {
            return Err("less than a record's header");
        };
        let [l0, l1, l2, l3, c0, c1, c2, c3, s0, s1, s2, s3, s4, s5, s6, s7, f0, f1, what, _, g0, g1, g2, g3] = *head;
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length > MAX_PAYLOAD {
            return Err("a length beyond all bounds");
        }
        if length > body.len() {
            return Err("less than the announced length");
        }
        if checksum(&rest[..HEADER + length]) != u32::from_be_bytes([c0, c1, c2, c3]) {
            return Err("a checksum that does not fit");
        }
        Ok(Self {
            length,
            seq: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            format: u16::from_be_bytes([f0, f1]),
            what,
            in_group: u32::from_be_bytes([g0, g1, g2, g3]),
        })
    }
}

/// The checksum of a whole record, without the bytes of the checksum itself.
fn checksum(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[8..])
}

impl What {
    fn code(self) -> u8 {
        match self {
            What::Change => 0,
            What::Snapshot => 1,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(What::Change),
            1 => Some(What::Snapshot),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Groups of payloads, each group a commit, as the bytes of a segment that starts with record 5.
    fn segment(groups: &[Vec<Vec<u8>>]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut ends, mut seq) = (Vec::new(), vec![0], 5);
        for group in groups {
            for (i, payload) in group.iter().enumerate() {
                encode(&mut bytes, seq, What::Change, u32::try_from(i).expect("few"), payload);
                ends.push(bytes.len());
                seq += 1;
            }
        }
        (bytes, ends)
    }

    fn sample() -> (Vec<u8>, Vec<usize>) {
        segment(&[vec![b"a".to_vec()], vec![vec![], b"longer than one".to_vec()], vec![b"z".to_vec()]])
    }

    #[test]
    fn a_cut_at_every_length_leaves_a_prefix() {
        let (bytes, ends) = sample();
        for length in 0..=bytes.len() {
            let scan = scan(&Bytes::copy_from_slice(&bytes[..length]), 5);
            let whole = ends.iter().filter(|e| **e > 0 && **e <= length).count();
            assert_eq!(scan.entries.len(), whole, "cut at {length}");
            assert_eq!(scan.good, ends[whole]);
            assert_eq!(scan.end == End::Clean, ends.contains(&length), "cut at {length}: {:?}", scan.end);
            assert!(!matches!(scan.end, End::Damaged(_)), "cut at {length}: {:?}", scan.end);
        }
    }

    #[test]
    fn a_flipped_bit_is_damage_except_in_the_last_commit() {
        let (bytes, ends) = sample();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let scan = scan(&Bytes::from(bytes), 5);
                let hit = ends.iter().filter(|e| **e > 0 && **e <= at).count();
                assert_eq!(scan.entries.len(), hit, "byte {at}: records before the hit one, and no more");
                match scan.end {
                    End::Damaged(_) => assert!(hit < 3, "byte {at}"),
                    End::Torn(_) => assert_eq!(hit, 3, "byte {at}"),
                    End::Clean | End::Newer(_) => panic!("byte {at}: {:?}", scan.end),
                }
            }
        }
    }

    #[test]
    fn a_hole_in_the_last_commit_is_a_torn_tail() {
        let (mut bytes, ends) = segment(&[vec![b"a".to_vec()], vec![b"b".to_vec(), b"c".to_vec(), b"d".to_vec()]]);
        bytes[ends[1]..ends[2]].fill(0);
        let result = scan(&Bytes::from(bytes), 5);
        assert!(matches!(result.end, End::Torn(_)), "{:?}", result.end);
        assert_eq!(result.entries.len(), 1);
    }

    #[test]
    fn a_missing_record_and_a_wrong_beginning_are_damage() {
        let (bytes, ends) = sample();
        let mut short = bytes.clone();
        short.drain(ends[1]..ends[2]);
        let result = scan(&Bytes::from(short), 5);
        assert_eq!(result.end, End::Damaged("record 6 should stand here, found is record 7".into()));
        let result = scan(&Bytes::from(bytes), 4);
        assert!(matches!(result.end, End::Damaged(_)), "{:?}", result.end);
    }

    #[test]
    fn a_newer_format_is_named() {
        let (mut bytes, _) = sample();
        bytes[17] = 9;
        let sum = checksum(&bytes[..HEADER + 1]);
        bytes[4..8].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(scan(&Bytes::from(bytes), 5).end, End::Newer(9));
    }

    #[test]
    fn zeros_behind_the_end_are_a_torn_tail() {
        let (mut bytes, ends) = sample();
        bytes.extend([0; 4096]);
        let result = scan(&Bytes::from(bytes), 5);
        assert!(matches!(result.end, End::Torn(_)), "{:?}", result.end);
        assert_eq!(result.good, *ends.last().expect("some"));
    }

    #[test]
    fn a_record_written_in_pieces_equals_the_record_encoded_at_once() {
        for length in [0, 1, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 300_000] {
            let payload: Vec<u8> = (0..length).map(|n: u32| (n * 7 % 251) as u8).collect();
            for piece in [1, 1000, 1 << 20] {
                let file = tempfile::NamedTempFile::new().expect("a file");
                let long = write(file.as_file(), 9, What::Snapshot, &mut |to| {
                    payload.chunks(piece).try_for_each(|piece| to.write_all(piece))
                });
                let mut whole = Vec::new();
                encode(&mut whole, 9, What::Snapshot, 0, &payload);
                assert_eq!(long.expect("written"), whole.len() as u64);
                assert!(std::fs::read(file.path()).expect("read") == whole, "{length} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn an_error_of_the_system_is_not_hidden_by_an_error_of_the_encoder() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the device");
        let error = write(&full, 1, What::Snapshot, &mut |to| {
            to.write_all(&[1; 200_000]).map_err(|_| io::Error::other("it can't be encoded"))
        });
        assert_eq!(error.expect_err("no room").kind(), io::ErrorKind::StorageFull);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = scan(&Bytes::from(bytes), 5);
        }

        /// Whatever bytes are overwritten, only written records are returned.
        #[test]
        fn damage_never_gives_wrong_data(
            groups in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..4), 1..6),
            at in any::<proptest::sample::Index>(),
            noise in proptest::collection::vec(any::<u8>(), 1..80),
        ) {
            let (mut bytes, ends) = segment(&groups);
            let at = at.index(bytes.len());
            let until = (at + noise.len()).min(bytes.len());
            let changed = bytes[at..until] != noise[..until - at];
            bytes[at..until].copy_from_slice(&noise[..until - at]);
            let written: Vec<Vec<u8>> = groups.concat();
            let result = scan(&Bytes::from(bytes), 5);
            for (entry, payload) in result.entries.iter().zip(&written) {
                prop_assert_eq!(entry.payload.as_ref(), payload.as_slice());
            }
            let before = ends.iter().filter(|e| **e > 0 && **e <= at).count();
            prop_assert!(result.entries.len() >= before);
            prop_assert_eq!(result.end == End::Clean, !changed);
        }
    }
}
