//! Removes the values of secrets from the output of actions.
//!
//! An action that prints a secret prints it raw, or in a form in which programs write values: escaped for JSON, a shell
//! or a URL, as base64, in hex, in lines of any length, or a single line of several. The output is decoded in each of
//! these ways ([`view`]) and compared with the values, in whole files, so it does not matter how a value was split over
//! writes. Other transformations of a value are not recognised, nor are values of fewer than four bytes.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use zeroize::Zeroizing;

use self::view::{LONGEST_RUN, View, Writing};
use super::job::open_regular;

mod view;

/// The replacement for a value.
const INSTEAD: &[u8] = b"[secret]";
/// Shorter values occur by chance too often.
const SHORTEST: usize = 4;
/// The shortest line of a value, and the shortest piece of base64, that is recognised.
const SHORTEST_PIECE: usize = 8;
/// How shells write a quote within quotes; all other characters stay the same.
const QUOTES: [&str; 2] = [r"'\''", r#"'"'"'"#];

/// Finds values in all their forms.
#[derive(Default)]
pub(crate) struct Redactor {
    /// The values and their lines; values with quotes also in the quoting of shells.
    text: Needles,
    hex: Needles,
    base64: Needles,
}

/// The patterns, by first byte, longest first.
#[derive(Default)]
struct Needles {
    by_first: Vec<Vec<Zeroizing<Vec<u8>>>>,
    longest: usize,
}

impl Redactor {
    /// A redactor for these values.
    pub(crate) fn of<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let (mut text, mut hex, mut base64) = (Vec::new(), Vec::new(), Vec::new());
        for value in values.filter(|v| v.len() >= SHORTEST) {
            let lines = value.lines().filter(|line| line.len() >= SHORTEST_PIECE && line.len() < value.len());
            for whole in std::iter::once(value).chain(lines) {
                text.push(Zeroizing::new(whole.as_bytes().to_vec()));
                let quoted = QUOTES.iter().filter(|_| whole.contains('\''));
                text.extend(quoted.map(|quote| Zeroizing::new(whole.replace('\'', quote).into_bytes())));
            }
            hex.push(Zeroizing::new(in_hex(value.as_bytes())));
            let pieces = (0..3).map(|before| Zeroizing::new(base64_within(value.as_bytes(), before)));
            base64.extend(pieces.filter(|piece| piece.len() >= SHORTEST_PIECE));
        }
        Self { text: Needles::of(text), hex: Needles::of(hex), base64: Needles::of(base64) }
    }

    /// The length of the longest form of any value. A form in very short lines may be longer.
    pub(crate) fn longest(&self) -> usize {
        self.text.longest * LONGEST_RUN
    }

    /// Whether these bytes contain a value.
    pub(crate) fn stand_in(&self, bytes: &[u8]) -> bool {
        !self.find(bytes).is_empty()
    }

    /// The bytes without values.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        self.part(bytes, 0, bytes.len())
    }

    /// The text without values.
    pub(crate) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// The bytes between two positions, without values that start or end there.
    pub(crate) fn part(&self, bytes: &[u8], from: usize, until: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = from;
        for (begin, end) in self.find(bytes).into_iter().take_while(|(begin, _)| *begin < until) {
            out.extend_from_slice(bytes.get(at..begin).unwrap_or_default());
            if end > from {
                out.extend_from_slice(INSTEAD);
            }
            at = at.max(end);
        }
        out.extend_from_slice(bytes.get(at..until.min(bytes.len())).unwrap_or_default());
        out
    }

    /// The positions of values in any form, in order and without overlaps.
    fn find(&self, bytes: &[u8]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (needles, view) in self.views(bytes) {
            needles.find(&view.bytes, |from, to| found.push(view.stood(from, to)));
        }
        found.sort_unstable();
        // Overlapping findings are joined, and so is a value found in two forms.
        found.dedup_by(|next, before| {
            let same = next.0 < before.1;
            if same {
                before.1 = before.1.max(next.1);
            }
            same
        });
        found
    }

    /// The decoded forms of the bytes, each with the patterns to search.
    fn views(&self, bytes: &[u8]) -> impl Iterator<Item = (&Needles, View)> {
        let any = Writing::ALL.iter().filter(|_| self.text.longest > 0);
        any.filter_map(move |writing| {
            let needles = match writing {
                Writing::Plain | Writing::Percent | Writing::Form | Writing::Escaped => &self.text,
                Writing::Hex => &self.hex,
                Writing::Base64 => &self.base64,
            };
            Some((needles, View::of(bytes, *writing)?))
        })
    }

    /// Takes the received bytes, up to the possible start of a value whose rest is still to come, and returns them without
    /// values.
    pub(crate) fn take_clean(&self, come: &mut Zeroizing<Vec<u8>>) -> Vec<u8> {
        let until = come.len() - self.begun(come);
        let clean = self.part(come, 0, until);
        let across = self.find(come).into_iter().filter(|(begin, end)| *begin < until && *end > until);
        let taken = across.map(|(_, end)| end).max().unwrap_or(until);
        come.drain(..taken);
        clean
    }

    /// How many bytes at the end may be the start of a value whose rest is still to come.
    fn begun(&self, bytes: &[u8]) -> usize {
        let end = &bytes[bytes.len().saturating_sub(self.longest())..];
        let begun = self.views(end).filter_map(|(needles, view)| {
            let length = view.bytes.len();
            // After a line end a short match means little: most texts would lose their last letter.
            let ended = length > 0 && view.stood(length - 1, length).1 < end.len() && end.ends_with(b"\n");
            let least = if ended { SHORTEST_PIECE } else { 1 };
            let from = length - needles.begun(&view.bytes, least)?;
            Some(end.len() - view.stood(from, length).0)
        });
        begun.max().unwrap_or(0)
    }

    /// The end of a file that is still being written: about `max` bytes, without values.
    pub(crate) fn tail(&self, path: &Path, max: usize) -> String {
        let longest = self.longest();
        let read = || -> io::Result<Vec<u8>> {
            let mut file = open_regular(path)?;
            let length = file.metadata()?.len();
            // The end of a value that starts before the read bytes must not remain.
            let wanted = (max + longest) as u64;
            let begin = length.saturating_sub(wanted);
            file.seek(SeekFrom::Start(begin))?;
            let mut bytes = Vec::new();
            file.take(wanted).read_to_end(&mut bytes)?;
            let bytes = Zeroizing::new(bytes);
            let until = bytes.len() - self.begun(&bytes);
            Ok(self.part(&bytes, if begin == 0 { 0 } else { longest }, until))
        };
        read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

impl Needles {
    fn of(mut all: Vec<Zeroizing<Vec<u8>>>) -> Self {
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        let longest = all.first().map_or(0, |needle| needle.len());
        let mut by_first = vec![Vec::new(); 256];
        for needle in all {
            by_first[usize::from(needle[0])].push(needle);
        }
        Self { by_first, longest }
    }

    fn find(&self, bytes: &[u8], mut found: impl FnMut(usize, usize)) {
        let mut at = 0;
        while at < bytes.len() {
            let mut candidates = self.by_first[usize::from(bytes[at])].iter();
            match candidates.find(|needle| bytes[at..].starts_with(needle)) {
                Some(needle) => {
                    found(at, at + needle.len());
                    at += needle.len();
                }
                None => at += 1,
            }
        }
    }

    /// The longest suffix of these bytes, of at least this length, that is the prefix of a pattern.
    fn begun(&self, bytes: &[u8], least: usize) -> Option<usize> {
        let longest = self.longest.saturating_sub(1).min(bytes.len());
        let begins = |end: &[u8]| {
            let mut candidates = self.by_first[usize::from(end[0])].iter();
            candidates.any(|needle| needle.len() > end.len() && needle.starts_with(end))
        };
        (least..=longest).rev().find(|n| begins(&bytes[bytes.len() - n..]))
    }
}

fn in_hex(bytes: &[u8]) -> Vec<u8> {
    let digit = |n: u8| if n < 10 { b'0' + n } else { b'a' + n - 10 };
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

/// The base64 form of a value after this many other bytes, without characters that depend on its neighbours.
fn base64_within(bytes: &[u8], before: usize) -> Vec<u8> {
    let letter = |n: u8| match n {
        0..=25 => b'A' + n,
        26..=51 => b'a' + n - 26,
        52..=61 => b'0' + n - 52,
        62 => b'+',
        _ => b'/',
    };
    let bit = |at: usize| at.checked_sub(before * 8).map_or(0, |at| bytes[at / 8] >> (7 - at % 8) & 1);
    let (first, end) = ((before * 8).div_ceil(6), (before + bytes.len()) * 8 / 6);
    (first..end).map(|n| letter((0..6).fold(0, |sum, i| sum << 1 | bit(n * 6 + i)))).collect()
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
    fn output_in_pieces_is_redacted_like_the_whole() {
        let value = "hunter2 \"x\"";
        let redactor = Redactor::of([value].into_iter());
        let printed = format!("a {value} b hunter2\nhunter {value}{value} c 68756e746572322022782220 d\n");
        let whole = redactor.text(&printed);
        for size in [1, 2, 3, 5, 8, 13, 100] {
            let (mut come, mut clean) = (Zeroizing::new(Vec::new()), Vec::new());
            for piece in printed.as_bytes().chunks(size) {
                come.extend_from_slice(piece);
                clean.extend(redactor.take_clean(&mut come));
            }
            clean.extend(redactor.bytes(&come));
            assert_eq!(String::from_utf8_lossy(&clean), whole, "pieces of {size}");
        }
    }

    /// In the notations of programs that are available everywhere.
    #[test]
    fn values_are_found_however_they_are_escaped() {
        let value = "It's Pä/ss&wö\"rd\\\t$x 😀";
        let redactor = Redactor::of([value].into_iter());
        for (program, printed) in [
            ("python's json.dumps", r#"It's P\u00e4/ss&w\u00f6\"rd\\\t$x \ud83d\ude00"#),
            ("PHP's json_encode", r#"It's P\u00e4\/ss&w\u00f6\"rd\\\t$x \ud83d\ude00"#),
            ("jq", r#"It's Pä/ss&wö\"rd\\\t$x 😀"#),
            ("urllib.parse.quote", "It%27s%20P%C3%A4/ss%26w%C3%B6%22rd%5C%09%24x%20%F0%9F%98%80"),
            ("urlencode", "It%27s+P%C3%A4%2Fss%26w%C3%B6%22rd%5C%09%24x+%F0%9F%98%80"),
            ("in lower case", "It%27s%20P%c3%a4/ss%26w%c3%b6%22rd%5c%09%24x%20%f0%9f%98%80"),
            ("bash -x", "'It'\\''s Pä/ss&wö\"rd\\\t$x 😀'"),
            ("shlex.quote", "'It'\"'\"'s Pä/ss&wö\"rd\\\t$x 😀'"),
            ("printf %q", r#"$'It\'s P\303\244/ss&w\303\266"rd\\\t$x \360\237\230\200'"#),
            ("python's ascii of bytes", r#"b'It\'s P\xc3\xa4/ss&w\xc3\xb6"rd\\\t$x \xf0\x9f\x98\x80'"#),
        ] {
            let shown = redactor.text(printed);
            let left = shown.replace("[secret]", "");
            assert!(["", "''", "$''", "b''"].contains(&left.as_str()), "{program}: {shown}");
        }
    }

    #[test]
    fn values_are_found_over_the_ends_of_lines() {
        use base64::Engine as _;
        let key = format!("-----BEGIN-----\n{}\n-----END-----", "aGVsbG8gd29ybGQ".repeat(9));
        let long = "0123456789abcdefghij".repeat(6);
        let wrapped = |text: &str, width: usize, end: &str| {
            text.as_bytes().chunks(width).map(|l| String::from_utf8_lossy(l) + end).collect::<String>()
        };
        for value in [&key, &long] {
            let redactor = Redactor::of([value.as_str()].into_iter());
            let base64 = base64::engine::general_purpose::STANDARD.encode(format!("user:{value}"));
            let hex = String::from_utf8(in_hex(value.as_bytes())).expect("digits");
            for printed in [
                wrapped(&base64, 76, "\n"),
                wrapped(&base64, 64, "\r\n  "),
                wrapped(&hex, 60, "\n"),
                wrapped(&hex.to_uppercase(), 2, " "),
                wrapped(&hex, 4, " "),
            ] {
                let shown = redactor.text(&format!("before {printed} after"));
                assert!(shown.len() < 40, "{printed} is shown as {shown}");
                assert!(
                    shown.starts_with("before ") && shown.ends_with(" after") && shown.contains("[secret]"),
                    "{shown}"
                );
            }
        }
    }

    #[test]
    fn the_beginning_of_an_escaped_value_is_not_shown_before_its_end_is_known() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("output");
        let value = "It's Pä and so on, for more than a line";
        let redactor = Redactor::of([value].into_iter());
        let base64 = "SXQncyBQw6QgYW5kIHNvIG9uLCBmb3IgbW9yZSB0aGFuIGEgbGluZQ==";
        for written in [
            r"It'\",
            r"It'\'",
            r"It\u0027s P\u00",
            "It%27s%20P%C3",
            "It%27s+P%",
            "497427732050c3\n",
            &base64[..40],
            &(base64[..40].to_owned() + "\n"),
        ] {
            std::fs::write(&path, format!("one\n{written}")).expect("written");
            assert_eq!(redactor.tail(&path, 200), "one\n", "{written}");
        }
        // Text that only resembles a value.
        for written in ["one\n100%", "it is S\n", "one 4\n", "a\\"] {
            std::fs::write(&path, written).expect("written");
            assert_eq!(redactor.tail(&path, 200), written);
        }
    }

    #[test]
    fn redaction_takes_time_proportional_to_the_output() {
        let value = "abcdefgh".repeat(500);
        let redactor = Redactor::of([value.as_str()].into_iter());
        let printed = "%41\\u0041 abcdefg+".repeat(100_000);
        let began = std::time::Instant::now();
        assert_eq!(redactor.text(&printed), printed);
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
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
        fn a_secret_in_base64_is_found_between_any_bytes(
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
        fn other_output_is_not_changed(bytes in prop::collection::vec(any::<u8>(), 0..200), value in "[a-z]{4,8}") {
            let redactor = Redactor::of([value.as_str()].into_iter());
            let out = redactor.bytes(&bytes);
            prop_assert!(out == bytes || out.windows(INSTEAD.len()).any(|w| w == INSTEAD));
            prop_assert_eq!(Redactor::default().bytes(&bytes), bytes);
        }
    }
}
