//! Wording shared by all programs: counts, spans of time, errors about the form of a text, and texts that are safe to
//! show.

use std::fmt::{self, Write as _};
use std::str::FromStr;

/// `1 host`, `2 hosts`, `0 entries`.
#[must_use]
pub fn count<N: fmt::Display + PartialEq + From<u8>>(n: N, one: &str) -> String {
    if n == N::from(1) { format!("1 {one}") } else { format!("{n} {}", many(one)) }
}

fn many(one: &str) -> String {
    let before_y = one.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
    match before_y {
        Some(stem) => format!("{stem}ies"),
        None if ["s", "x", "ch", "sh"].iter().any(|end| one.ends_with(end)) => format!("{one}es"),
        None => format!("{one}s"),
    }
}

/// A span of time for people: `340 ms`, `3.2 s`, `42 s`, `5 min 12 s`, `3 h 20 min`, `5 d 3 h`.
#[must_use]
pub fn span(ns: u64) -> String {
    let ms = ns / 1_000_000;
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..=9 => format!("{s}.{} s", ms % 1000 / 100),
        10..=119 => format!("{s} s"),
        120..=7199 => two(s / 60, "min", s % 60, "s"),
        7200..=172_799 => two(s / 3600, "h", s % 3600 / 60, "min"),
        _ => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

fn two(large: u64, of: &str, small: u64, than: &str) -> String {
    if small == 0 { format!("{large} {of}") } else { format!("{large} {of} {small} {than}") }
}

/// `a`, `a and b`, `a, b and 3 more`: at most `shown` names.
#[must_use]
pub fn list<T: ToString>(all: impl IntoIterator<Item = T>, shown: usize) -> String {
    list_and(all, shown, 0)
}

/// The same, with a number of further items that have no names here.
#[must_use]
pub fn list_and<T: ToString>(all: impl IntoIterator<Item = T>, shown: usize, unnamed: usize) -> String {
    let mut names: Vec<String> = all.into_iter().map(|n| n.to_string()).collect();
    let more = names.len().saturating_sub(shown.max(1)).saturating_add(unnamed);
    if more > 0 {
        names.truncate(shown.max(1));
        names.push(format!("{more} more"));
    }
    join(&names, "and")
}

/// `a`, `a and b`, `a, b and c`, with this word before the last.
#[must_use]
pub fn join(parts: &[String], word: &str) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

/// Lines of text that are safe to show: characters that control a terminal are escaped.
#[must_use]
pub fn clean_lines(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_hostile(c) && c != '\n' && c != '\t' {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// A foreign text for a line of a log, a message or an answer: it can't start a line of its own or control a terminal,
/// and at most `most` of its characters are shown.
#[must_use]
pub fn foreign(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    let mut chars = text.chars();
    for c in chars.by_ref().take(most) {
        put_clean(&mut shown, c);
    }
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Appends a character safely: line ends and all other [hostile](is_hostile) characters are escaped.
pub(crate) fn put_clean(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if is_hostile(c) => {
            let _ = write!(out, "{}", c.escape_unicode());
        }
        c => out.push(c),
    }
}

/// Control characters, and characters that change the direction of the text after it.
#[must_use]
pub fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The error of a JSON or TOML parser, without the names of our internal types: `expected struct GenerationOrder`
/// becomes `expected an object`.
#[must_use]
pub fn form(error: impl fmt::Display) -> String {
    let text = error.to_string();
    let mut told = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((at, inside, plain)) = first_of(rest) {
        told.push_str(&rest[..at]);
        told.push_str(plain);
        // Skip the type's name, and its number of fields if any.
        let behind = &rest[at + inside.len()..];
        let name = behind.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(behind.len());
        rest = &behind[name..];
        if let Some(more) = rest.strip_prefix(" with ") {
            let digits = more.bytes().take_while(u8::is_ascii_digit).count();
            let after = &more[digits..];
            if let Some(after) = after.strip_prefix(" elements").or_else(|| after.strip_prefix(" element")) {
                rest = after;
            }
        }
    }
    told.push_str(rest);
    told
}

/// The first mention of an internal type, and its replacement.
fn first_of(text: &str) -> Option<(usize, &'static str, &'static str)> {
    const ALL: [(&str, &str); 7] = [
        ("expected internally tagged enum ", "expected an object"),
        ("expected adjacently tagged enum ", "expected an object"),
        ("expected struct variant ", "expected an object"),
        ("expected tuple struct ", "expected a list"),
        ("expected unit struct ", "expected null"),
        ("expected struct ", "expected an object"),
        ("expected enum ", "expected a word of the enum"),
    ];
    let found = ALL.iter().filter_map(|(inside, plain)| Some((text.find(inside)?, *inside, *plain)));
    found.min_by_key(|(at, ..)| *at)
}

/// Reads a number of digits alone, without a sign.
#[must_use]
pub fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Parses `500ms`, `30s`, `2m`, `1h`.
#[must_use]
pub fn parse_duration(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return None,
    };
    // A number with too many digits is too long a time, not a syntax error.
    if number.is_empty() { None } else { Some(number.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(factor)) }
}

/// Any text as a single word of a shell (POSIX.1-2024, XCU 2.2.2).
#[must_use]
pub fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        let good = [("500ms", 500), ("30s", 30_000), ("2m", 120_000), ("1h", 3_600_000), ("0s", 0)];
        for (text, ms) in good {
            assert_eq!(parse_duration(text), Some(ms), "{text}");
        }
        for text in ["", "s", "30", "30 s", "1.5s", "-1s", "2d", "ä"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(parse_duration("99999999999999999999999h"), Some(u64::MAX));
    }

    #[test]
    fn a_foreign_text_stays_in_its_line_and_has_an_end() {
        assert_eq!(foreign("no\nINFO yes\t\u{1b}[1m\u{2028}ä", 100), "no\\nINFO yes\\t\\u{1b}[1m\\u{2028}ä");
        assert_eq!(foreign("abcdef", 3), "abc…");
        assert_eq!(foreign("abc", 3), "abc");
    }

    #[test]
    fn spans_are_told_in_two_parts_at_most() {
        let s = 1_000_000_000;
        let told: Vec<String> =
            [0, s / 3, 3_290_000_000, 42 * s, 119 * s, 312 * s, 7200 * s, 12_000 * s, 442_800 * s].map(span).into();
        assert_eq!(told, ["0 ms", "333 ms", "3.2 s", "42 s", "119 s", "5 min 12 s", "2 h", "3 h 20 min", "5 d 3 h"]);
    }

    #[test]
    fn only_the_count_one_is_singular() {
        let told = [count(0_usize, "host"), count(1_u64, "host"), count(2_u32, "host"), count(12_u8, "change object")];
        assert_eq!(told, ["0 hosts", "1 host", "2 hosts", "12 change objects"]);
        let told = [count(2_u8, "dependency"), count(2_u8, "key"), count(3_u8, "process"), count(3_u8, "match")];
        assert_eq!(told, ["2 dependencies", "2 keys", "3 processes", "3 matches"]);
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its form matters")]
    struct Inside {
        number: u8,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its form matters")]
    struct Pair(u8, u8);

    #[derive(Debug, Deserialize)]
    enum Word {
        One,
    }

    #[test]
    fn error_messages_contain_no_names_of_rust_types() {
        fn said<T: for<'de> Deserialize<'de> + fmt::Debug>(text: &str) -> String {
            form(serde_json::from_str::<T>(text).expect_err(text))
        }
        assert_eq!(said::<Inside>("5"), "invalid type: integer `5`, expected an object at line 1 column 1");
        assert_eq!(said::<Inside>("[]"), "invalid length 0, expected an object at line 1 column 2");
        assert_eq!(said::<Pair>("5"), "invalid type: integer `5`, expected a list at line 1 column 1");
        assert_eq!(said::<Vec<Inside>>("[5]"), "invalid type: integer `5`, expected an object at line 1 column 2");
        for text in ["5", "\"x\"", "true", "1.5"] {
            let error = said::<Word>(text) + &said::<Inside>(text) + &said::<Pair>(text);
            for name in ["struct", "Inside", "Pair", "Word", "enum"] {
                assert!(!error.contains(name), "{text}: {error}");
            }
        }
        let _ = Word::One;
        assert_eq!(form("missing field `number`"), "missing field `number`");
        assert_eq!(form("construct a house"), "construct a house");
    }
}
