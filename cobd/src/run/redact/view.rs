//! Decodes output by one way of writing values, and records the original position of each byte.
//!
//! Programs write a value in many ways: with other characters escaped, or all of them, with `\/` or `/`, in long or in
//! short lines. So there is no list of possible forms: the output is decoded by the rules of each way of writing, and
//! compared with the value itself.

use zeroize::Zeroizing;

/// A way of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writing {
    /// As it is.
    Plain,
    /// In URLs: `%20`.
    Percent,
    /// In forms: like URLs, and `+` for a space.
    Form,
    /// In JSON and in texts of shells and languages: `\n`, `\"`, `\/`, `\u00e4`, `\xe4`, `\344`.
    Escaped,
    /// In hexadecimal digits of either case, over any white space.
    Hex,
    /// In base64 of either alphabet, over any white space.
    Base64,
}

/// Separates digits or letters that do not belong together; it is neither.
const BREAK: u8 = 0;
/// The longest run of bytes that encodes one byte of a value, in the ways with bounded runs: `\u0041`.
pub(super) const LONGEST_RUN: usize = 6;

/// The decoded bytes, and the original range of each byte.
pub(super) struct View {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    stood: Vec<(u32, u32)>,
}

/// The result of decoding an escape.
enum Escape {
    /// This many bytes encode these bytes.
    For(usize, [u8; 4], usize),
    /// It is not an escape.
    None,
    /// Its end is still to come.
    Begun,
}

impl Writing {
    pub(super) const ALL: [Self; 6] = [Self::Plain, Self::Percent, Self::Form, Self::Escaped, Self::Hex, Self::Base64];

    /// Whether these bytes may contain this way of writing, with another meaning than the plain text.
    fn is_in(self, bytes: &[u8]) -> bool {
        match self {
            Self::Percent => bytes.contains(&b'%'),
            Self::Form => bytes.contains(&b'+'),
            Self::Escaped => bytes.contains(&b'\\'),
            Self::Plain | Self::Hex | Self::Base64 => true,
        }
    }
}

impl View {
    /// Decodes the bytes; `None` if they do not use this way of writing.
    pub(super) fn of(bytes: &[u8], writing: Writing) -> Option<Self> {
        if !writing.is_in(bytes) {
            return None;
        }
        // Allocate at once: a growing vector leaves copies in memory.
        let mut view =
            Self { bytes: Zeroizing::new(Vec::with_capacity(bytes.len())), stood: Vec::with_capacity(bytes.len()) };
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let escape = match writing {
                Writing::Plain => Escape::None,
                Writing::Percent => percent(rest),
                Writing::Form if rest[0] == b'+' => Escape::For(1, [b' ', 0, 0, 0], 1),
                Writing::Form => percent(rest),
                Writing::Escaped => escaped(rest),
                Writing::Hex => digit(rest[0]),
                Writing::Base64 => letter(rest[0]),
            };
            match escape {
                Escape::For(length, stands_for, count) => {
                    view.push(&stands_for[..count], at, at + length);
                    at += length;
                }
                Escape::None => {
                    view.push(&rest[..1], at, at + 1);
                    at += 1;
                }
                Escape::Begun => break,
            }
        }
        Some(view)
    }

    fn push(&mut self, bytes: &[u8], from: usize, to: usize) {
        if *bytes == [BREAK] && self.bytes.last() == Some(&BREAK) {
            return;
        }
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(bytes);
        self.stood.extend(bytes.iter().map(|_| (place(from), place(to))));
    }

    /// The original range of the decoded bytes in this range.
    pub(super) fn stood(&self, from: usize, to: usize) -> (usize, usize) {
        (self.stood[from].0 as usize, self.stood[to - 1].1 as usize)
    }
}

fn one(length: usize, byte: u8) -> Escape {
    Escape::For(length, [byte, 0, 0, 0], 1)
}

fn percent(rest: &[u8]) -> Escape {
    match rest {
        [b'%', digits @ ..] => match number(digits, 2, 16) {
            Ok(byte) => one(3, byte.to_be_bytes()[3]),
            Err(escape) => escape,
        },
        _ => Escape::None,
    }
}

fn escaped(rest: &[u8]) -> Escape {
    let [b'\\', escape @ ..] = rest else { return Escape::None };
    let as_byte = |length, n: Result<u32, Escape>| n.map_or_else(|e| e, |n| one(length, n.to_be_bytes()[3]));
    match escape {
        [] => Escape::Begun,
        [b'n', ..] => one(2, b'\n'),
        [b't', ..] => one(2, b'\t'),
        [b'r', ..] => one(2, b'\r'),
        [b'b', ..] => one(2, 8),
        [b'f', ..] => one(2, 12),
        [b'x', digits @ ..] => as_byte(4, number(digits, 2, 16)),
        [b'0'..=b'3', ..] => as_byte(4, number(escape, 3, 8)),
        [b'u', digits @ ..] => match number(digits, 4, 16) {
            Ok(high @ 0xd800..=0xdbff) => match rest.get(6..) {
                Some([b'\\', b'u', digits @ ..]) => match number(digits, 4, 16) {
                    Ok(low @ 0xdc00..=0xdfff) => character(12, 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)),
                    Ok(_) => Escape::None,
                    Err(escape) => escape,
                },
                Some([] | [b'\\']) => Escape::Begun,
                Some(_) | None => Escape::None,
            },
            Ok(n) => character(6, n),
            Err(escape) => escape,
        },
        [b'U', digits @ ..] => number(digits, 8, 16).map_or_else(|e| e, |n| character(10, n)),
        [byte, ..] if byte.is_ascii_alphanumeric() => Escape::None,
        [byte, ..] => one(2, *byte),
    }
}

/// Parses this many digits.
fn number(digits: &[u8], count: usize, radix: u32) -> Result<u32, Escape> {
    let there = digits.get(..count).unwrap_or(digits);
    let mut digits = there.iter().map(|b| char::from(*b).to_digit(radix));
    let n = digits.try_fold(0, |n: u32, digit| n.checked_mul(radix)?.checked_add(digit?));
    match n {
        Some(n) if there.len() == count => Ok(n),
        Some(_) => Err(Escape::Begun),
        None => Err(Escape::None),
    }
}

fn character(length: usize, n: u32) -> Escape {
    let Some(c) = char::from_u32(n) else { return Escape::None };
    let mut bytes = [0; 4];
    let count = c.encode_utf8(&mut bytes).len();
    Escape::For(length, bytes, count)
}

fn digit(byte: u8) -> Escape {
    match byte {
        b'0'..=b'9' | b'a'..=b'f' => Escape::None,
        b'A'..=b'F' => one(1, byte.to_ascii_lowercase()),
        _ if byte.is_ascii_whitespace() => Escape::For(1, [0; 4], 0),
        _ => one(1, BREAK),
    }
}

fn letter(byte: u8) -> Escape {
    match byte {
        b'-' => one(1, b'+'),
        b'_' => one(1, b'/'),
        b'+' | b'/' => Escape::None,
        _ if byte.is_ascii_alphanumeric() => Escape::None,
        // JSON may have a backslash before a `/`.
        b'\\' => Escape::For(1, [0; 4], 0),
        _ if byte.is_ascii_whitespace() => Escape::For(1, [0; 4], 0),
        _ => one(1, BREAK),
    }
}
