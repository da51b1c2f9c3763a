//! Frames of bytes in a file, which show up to where the file is complete.
//!
//! ```text
//!   length, CRC-32C (4 bytes each, little-endian), payload
//! ```

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::ops::Range;

/// The bytes of length and checksum.
pub(super) const HEADER: usize = 8;
/// The longest payload.
pub(super) const MAX_FRAME: usize = 64 << 20;
/// The size of a read buffer.
const AT_ONCE: usize = 64 << 10;

/// Appends a frame.
pub(super) fn put(payload: &[u8], frames: &mut Vec<u8>) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|length| *length as usize <= MAX_FRAME);
    let length = length.ok_or_else(|| io::Error::other("a record is too long for a frame"))?;
    frames.extend_from_slice(&length.to_le_bytes());
    frames.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    frames.extend_from_slice(payload);
    Ok(())
}

/// The payload of the frame at the start of these bytes, if it is complete.
pub(super) fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let (length, sum) = (promised(bytes)?, number(bytes, 4)?);
    // Reject a tail of zeros, which a crash can leave: the checksum of an empty payload is zero.
    let length = Some(length).filter(|length| *length > 0)?;
    let payload = bytes.get(HEADER..HEADER.checked_add(length)?)?;
    (crc32c::crc32c(payload) == sum).then_some(payload)
}

/// The length of the payload, according to the frame's header.
fn promised(bytes: &[u8]) -> Option<usize> {
    number(bytes, 0).map(|length| length as usize)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads a file frame by frame; holds a single frame in memory.
pub(super) struct Frames<'f> {
    from: BufReader<&'f File>,
    /// The offset of the next frame.
    at: u64,
    length: u64,
    bytes: Vec<u8>,
}

/// The next item in a file.
pub(super) enum Next<'b> {
    /// A frame: its payload and its place.
    Frame(&'b [u8], Range<u64>),
    /// The end of the file.
    End,
    /// Bytes that are not a complete frame.
    Broken,
}

impl<'f> Frames<'f> {
    /// Starts to read a file, and returns its first bytes: at most `first`.
    pub(super) fn begin(file: &'f File, first: usize) -> io::Result<(Self, Vec<u8>)> {
        let length = file.metadata()?.len();
        let mut from = BufReader::with_capacity(AT_ONCE, file);
        let mut begins = Vec::with_capacity(first);
        from.by_ref().take(first as u64).read_to_end(&mut begins)?;
        Ok((Self { from, at: first as u64, length, bytes: Vec::new() }, begins))
    }

    /// The length up to which all frames were complete.
    pub(super) fn good(&self) -> u64 {
        self.at
    }

    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        if self.at >= self.length {
            return Ok(Next::End);
        }
        self.bytes.clear();
        self.from.by_ref().take(HEADER as u64).read_to_end(&mut self.bytes)?;
        // `take` bounds the read: a damaged header may claim any length.
        self.from.by_ref().take(promised(&self.bytes).unwrap_or(0) as u64).read_to_end(&mut self.bytes)?;
        Ok(match payload(&self.bytes) {
            Some(payload) => {
                let begin = self.at;
                self.at += self.bytes.len() as u64;
                Next::Frame(payload, begin..self.at)
            }
            None => Next::Broken,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn whole_frames_are_read_and_a_broken_tail_is_detected() {
        let mut whole = Vec::new();
        for payload in [&b"one"[..], &[7; 70_000], b"three"] {
            put(payload, &mut whole).expect("a frame");
        }
        let (zeros, promise) = (vec![0; 4096], [&u32::MAX.to_le_bytes()[..], &[1; 40]].concat());
        for tail in [&[][..], &zeros, &promise, &whole[..5], &whole[..10]] {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&[&b"magic"[..], &whole, tail].concat()).expect("written");
            std::io::Seek::rewind(&mut file).expect("rewound");
            let (mut frames, magic) = Frames::begin(&file, 5).expect("read");
            assert_eq!(magic, b"magic");
            let mut lengths = Vec::new();
            let ends = loop {
                match frames.next().expect("read") {
                    Next::Frame(payload, _) => lengths.push(payload.len()),
                    Next::End => break true,
                    Next::Broken => break false,
                }
            };
            assert_eq!((lengths, ends), (vec![3, 70_000, 5], tail.is_empty()));
            assert_eq!(frames.good(), 5 + whole.len() as u64);
        }
    }
}
