//! Values of secrets, taken out of what actions print.
//!
//! An action that prints a secret prints it raw, or in one of the forms in which programs write values:
//! escaped for JSON or a URL, as base64, in hex, one line of several. All of these are looked for, in
//! whole files, so it does not matter how a value was split over writes. What a program makes of a value
//! otherwise is not recognised; neither are values of fewer than four bytes.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use zeroize::Zeroizing;

use super::job::open_regular;

/// What stands where a value stood.
const INSTEAD: &[u8] = b"[secret]";
/// Shorter values stand in too many places by chance.
const SHORTEST: usize = 4;
/// Shorter lines of a value, and shorter pieces of base64, too.
const SHORTEST_PIECE: usize = 8;

/// Finds values, in all of their forms.
#[derive(Default)]
pub(crate) struct Redactor {
    /// By their first byte, the longest first.
    needles: Vec<Vec<Zeroizing<Vec<u8>>>>,
    longest: usize,
}

impl Redactor {
    /// Finds these values.
    pub(crate) fn of<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut all: Vec<Zeroizing<Vec<u8>>> = Vec::new();
        for value in values.filter(|v| v.len() >= SHORTEST) {
            forms(value, &mut all);
        }
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        let longest = all.first().map_or(0, |needle| needle.len());
        let mut needles = vec![Vec::new(); 256];
        for needle in all {
            needles[usize::from(needle[0])].push(needle);
        }
        Self { needles, longest }
    }

    /// The length of the longest form of any value.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// The bytes without values.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        self.part(bytes, 0, bytes.len())
    }

    /// The text without values.
    pub(crate) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// What stands between two places of these bytes, without the values that begin or end there.
    pub(crate) fn part(&self, bytes: &[u8], from: usize, until: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < until.min(bytes.len()) {
            let candidates = self.needles.get(usize::from(bytes[at]));
            let found = candidates.and_then(|c| c.iter().find(|needle| bytes[at..].starts_with(needle)));
            match found {
                Some(needle) => {
                    at += needle.len();
                    if at > from {
                        out.extend_from_slice(INSTEAD);
                    }
                }
                None => {
                    if at >= from {
                        out.push(bytes[at]);
                    }
                    at += 1;
                }
            }
        }
        out
    }

    /// How many bytes at the end may be the beginning of a value whose rest is still to come.
    fn begun(&self, bytes: &[u8]) -> usize {
        let longest = self.longest.saturating_sub(1).min(bytes.len());
        let begins = |end: &[u8]| {
            let mut candidates = self.needles[usize::from(end[0])].iter();
            candidates.any(|needle| needle.len() > end.len() && needle.starts_with(end))
        };
        (1..=longest).rev().find(|n| begins(&bytes[bytes.len() - n..])).unwrap_or(0)
    }

    /// The end of a file that something may still write to: about `max` bytes, without values.
    pub(crate) fn tail(&self, path: &Path, max: usize) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = open_regular(path)?;
            let length = file.metadata()?.len();
            // A value that begins before what is read must not leave its end behind.
            let wanted = (max + self.longest) as u64;
            let begin = length.saturating_sub(wanted);
            file.seek(SeekFrom::Start(begin))?;
            let mut bytes = Vec::new();
            file.take(wanted).read_to_end(&mut bytes)?;
            let bytes = Zeroizing::new(bytes);
            let until = bytes.len() - self.begun(&bytes);
            Ok(self.part(&bytes, if begin == 0 { 0 } else { self.longest }, until))
        };
        read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

/// The forms in which programs write a value.
fn forms(value: &str, all: &mut Vec<Zeroizing<Vec<u8>>>) {
    let bytes = value.as_bytes();
    let mut add = |form: String| all.push(Zeroizing::new(form.into_bytes()));
    add(value.to_owned());
    let json = serde_json::Value::from(value).to_string();
    add(json[1..json.len() - 1].to_owned());
    add(bytes.iter().map(|b| format!("{b:02x}")).collect());
    add(bytes.iter().map(|b| format!("{b:02X}")).collect());
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    add(bytes.iter().map(|&b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect());
    for alphabet in [b"+/", b"-_"] {
        for before in 0..3 {
            let piece = base64_within(bytes, before, *alphabet);
            if piece.len() >= SHORTEST_PIECE {
                add(piece);
            }
        }
    }
    for line in value.lines().filter(|line| line.len() >= SHORTEST_PIECE && line.len() < value.len()) {
        add(line.to_owned());
    }
}

/// What base64 makes of a value behind so many other bytes, without what depends on its neighbours.
fn base64_within(bytes: &[u8], before: usize, last_two: [u8; 2]) -> String {
    let letter = |n: u8| match n {
        0..=25 => b'A' + n,
        26..=51 => b'a' + n - 26,
        52..=61 => b'0' + n - 52,
        62 => last_two[0],
        _ => last_two[1],
    };
    let bit = |at: usize| at.checked_sub(before * 8).map_or(0, |at| bytes[at / 8] >> (7 - at % 8) & 1);
    let (first, end) = ((before * 8).div_ceil(6), (before + bytes.len()) * 8 / 6);
    (first..end).map(|n| char::from(letter((0..6).fold(0, |sum, i| sum << 1 | bit(n * 6 + i))))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_found_in_the_forms_that_programs_write() {
        let redactor = Redactor::of(["hunter2 \"x\"", "abc", "-----BEGIN-----\nline of a key\n"].into_iter());
        for (printed, shown) in [
            ("a hunter2 \"x\" b", "a [secret] b"),
            ("{\"pw\":\"hunter2 \\\"x\\\"\"}", "{\"pw\":\"[secret]\"}"),
            ("68756e746572322022782220", "[secret]20"),
            ("http://a:hunter2%20%22x%22@b", "http://a:[secret]@b"),
            ("abc is too short", "abc is too short"),
            (">line of a key<", ">[secret]<"),
            ("hunter2 \"", "hunter2 \""),
        ] {
            assert_eq!(redactor.text(printed), shown);
        }
    }

    #[test]
    fn the_beginning_of_a_value_is_not_shown_before_its_end_is_known() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("output");
        let redactor = Redactor::of(["hunter2"].into_iter());
        for (written, shown) in [
            ("one\nhunt", "one\n"),
            ("one\nhunter2", "one\n[secret]"),
            ("one\nhunter", "one\n"),
            ("hunters", "hunters"),
        ] {
            std::fs::write(&path, written).expect("written");
            assert_eq!(redactor.tail(&path, 100), shown);
        }
        std::fs::write(&path, "x".repeat(50) + "hunter2" + &"y".repeat(20)).expect("written");
        for max in 0..60 {
            let shown = redactor.tail(&path, max);
            assert!(!["unter2", "nter2", "ter2", "er2", "r2", "2"].iter().any(|part| shown.contains(part)), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn base64_is_found_behind_and_before_anything(
            before in prop::collection::vec(any::<u8>(), 0..7),
            value in "[ -~]{8,40}",
            after in prop::collection::vec(any::<u8>(), 0..7),
        ) {
            use base64::Engine as _;
            let whole = [before.as_slice(), value.as_bytes(), after.as_slice()].concat();
            let redactor = Redactor::of([value.as_str()].into_iter());
            for engine in [&base64::engine::general_purpose::STANDARD, &base64::engine::general_purpose::URL_SAFE] {
                prop_assert!(redactor.text(&engine.encode(&whole)).contains("[secret]"));
            }
        }

        #[test]
        fn nothing_else_is_changed(bytes in prop::collection::vec(any::<u8>(), 0..200), value in "[a-z]{4,8}") {
            let redactor = Redactor::of([value.as_str()].into_iter());
            let out = redactor.bytes(&bytes);
            prop_assert!(out == bytes || out.windows(INSTEAD.len()).any(|w| w == INSTEAD));
            prop_assert_eq!(Redactor::default().bytes(&bytes), bytes);
        }
    }
}
