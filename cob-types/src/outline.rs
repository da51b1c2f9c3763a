//! Finds the change objects in the bytes of a bundle, from the lengths in the bytes alone.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

use crate::codec;
use crate::generation::{Bundle, MAX_BUNDLE};

/// The layout of a bundle's bytes.
pub(crate) struct Outline<'a> {
    bytes: &'a [u8],
    /// The value with all change objects.
    all: Range<usize>,
    /// The change objects in the order of their ids.
    pub(crate) entries: Vec<Entry<'a>>,
}

/// An entry of the map of change objects.
pub(crate) struct Entry<'a> {
    pub(crate) id: &'a str,
    /// The change object.
    pub(crate) value: &'a [u8],
    /// Id and change object together.
    pub(crate) both: &'a [u8],
}

/// Identifies a change object in other bytes: half a SHA-256.
pub(crate) type Digest = [u8; 16];

impl<'a> Outline<'a> {
    /// `None`: the bytes have another layout than a written bundle, or are too many.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (fields, mut at) = head(bytes, 0, MAP).filter(|_| bytes.len() <= MAX_BUNDLE)?;
        let mut found = None;
        for _ in 0..fields {
            let (field, value) = text(bytes, at)?;
            let end = skip(bytes, value, DEPTH)?;
            if field == "cobs" && found.replace(value..end).is_some() {
                return None;
            }
            at = end;
        }
        let all = found.filter(|_| at == bytes.len())?;
        let (count, mut at) = head(bytes, all.start, MAP)?;
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for _ in 0..count {
            let entry = Entry::at(bytes, at)?;
            if entries.last().is_some_and(|last| last.id >= entry.id) {
                return None;
            }
            at += entry.both.len();
            entries.push(entry);
        }
        Some(Self { bytes, all, entries })
    }

    /// The bundle without its change objects. `None`: it can't be decoded.
    pub(crate) fn frame(&self) -> Option<Bundle> {
        const NO_COBS: u8 = MAP << 5;
        let mut frame = Vec::with_capacity(self.bytes.len() - self.all.len() + 1);
        frame.extend_from_slice(&self.bytes[..self.all.start]);
        frame.push(NO_COBS);
        frame.extend_from_slice(&self.bytes[self.all.end..]);
        codec::decode(&frame, MAX_BUNDLE).ok()
    }
}

impl<'a> Entry<'a> {
    /// `None`: no entry starts here.
    fn at(bytes: &'a [u8], begin: usize) -> Option<Self> {
        let (id, at) = text(bytes, begin)?;
        let end = skip(bytes, at, DEPTH)?;
        Some(Self { id, value: &bytes[at..end], both: &bytes[begin..end] })
    }

    pub(crate) fn digest(&self) -> Digest {
        let full: [u8; 32] = Sha256::digest(self.value).into();
        let mut half = [0; 16];
        half.copy_from_slice(&full[..16]);
        half
    }
}

/// The depth limit of the decoder.
const DEPTH: u32 = 128;
/// The major types of CBOR.
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const LIST: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// The number in the head of a value of this type and a known length, and the end of the head.
fn head(bytes: &[u8], at: usize, wanted: u8) -> Option<(usize, usize)> {
    let (found, number, end) = any_head(bytes, at)?;
    (found == wanted).then_some((number, end))
}

fn any_head(bytes: &[u8], at: usize) -> Option<(u8, usize, usize)> {
    let first = *bytes.get(at)?;
    let (major, short) = (first >> 5, first & 0x1f);
    let len = match short {
        0..=23 => return Some((major, usize::from(short), at + 1)),
        24..=27 => 1_usize << (short - 24),
        // Indefinite length: our encoder never writes it.
        _ => return None,
    };
    let end = at + 1 + len;
    let number = bytes.get(at + 1..end)?.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    Some((major, usize::try_from(number).ok()?, end))
}

/// A text and its end.
fn text(bytes: &[u8], at: usize) -> Option<(&str, usize)> {
    let (len, begin) = head(bytes, at, TEXT)?;
    let end = begin.checked_add(len)?;
    Some((std::str::from_utf8(bytes.get(begin..end)?).ok()?, end))
}

/// The end of the value that starts here.
fn skip(bytes: &[u8], at: usize, depth: u32) -> Option<usize> {
    let (major, number, mut at) = any_head(bytes, at)?;
    let inside = match major {
        BYTES | TEXT => return at.checked_add(number).filter(|end| *end <= bytes.len()),
        LIST => number,
        MAP => number.checked_mul(2)?,
        TAG => 1,
        _ => return Some(at),
    };
    let depth = depth.checked_sub(1)?;
    for _ in 0..inside {
        at = skip(bytes, at, depth)?;
    }
    Some(at)
}
