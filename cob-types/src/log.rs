//! Lines of a log: each event is a single line, no matter which texts of peers, servers, users or files are in it.
//!
//! Programs write their logs through [`CleanLog`], so that the code that logs need not care: a text with a line end
//! can't forge a line, and no foreign text controls the terminal. [`LineLimit`] keeps a log short if strangers cause its
//! lines.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::words::put_clean;

/// Writes each event, passed as a whole, as a single line.
#[derive(Debug)]
pub struct CleanLog<W> {
    out: W,
    /// Whether the log's own colours are kept.
    colour: bool,
}

impl<W: Write> CleanLog<W> {
    /// Writes to `out`; with `colour`, sequences that only set colours are kept.
    pub fn new(out: W, colour: bool) -> Self {
        Self { out, colour }
    }
}

impl<W: Write> Write for CleanLog<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.out.write_all(line(&String::from_utf8_lossy(event), self.colour).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The most subjects of a [`LineLimit`]: their names may come from strangers.
const SUBJECTS: usize = 256;
/// No interval is longer.
const LONGEST: Duration = Duration::from_secs(60);

/// Limits lines about the same subject: the first comes at once, later lines at intervals with the number of omitted
/// lines.
#[derive(Debug)]
pub struct LineLimit<S>(Mutex<BTreeMap<S, Said>>);

/// The last line about a subject, and the number of omitted lines since.
#[derive(Debug)]
struct Said {
    at: Instant,
    omitted: u64,
}

impl<S> Default for LineLimit<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S: Ord> LineLimit<S> {
    /// The number of omitted lines about the subject, if a line is due after this interval. Beyond the most subjects,
    /// all further subjects count as `rest`.
    pub fn due(&self, subject: S, rest: S, interval: Duration, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= SUBJECTS && !said.contains_key(&subject) {
            said.retain(|_, said| now.saturating_duration_since(said.at) < LONGEST);
        }
        let subject = if said.len() >= SUBJECTS && !said.contains_key(&subject) { rest } else { subject };
        let Some(last) = said.get_mut(&subject) else {
            said.insert(subject, Said { at: now, omitted: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(last.at) < interval {
            last.omitted += 1;
            return None;
        }
        last.at = now;
        Some(std::mem::take(&mut last.omitted))
    }

    /// As [`Self::due`], with the number as the end of the line.
    pub fn due_end(&self, subject: S, rest: S, interval: Duration, now: Instant) -> Option<String> {
        self.due(subject, rest, interval, now).map(|omitted| match omitted {
            0 => String::new(),
            _ => format!(" (and {omitted} more like it since the last line)"),
        })
    }

    /// The cause is gone: the next line about the subject comes at once.
    pub fn over(&self, subject: &S) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(subject);
    }
}

/// An event as a single line; its own line end is kept.
fn line(event: &str, colour: bool) -> String {
    let (text, end) = event.strip_suffix('\n').map_or((event, ""), |text| (text, "\n"));
    let mut clean = String::with_capacity(event.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = colour.then(|| colour_sequence(rest)).flatten();
        match length {
            Some(length) => clean.push_str(&rest[..length]),
            None => put_clean(&mut clean, c),
        }
        rest = &rest[length.unwrap_or(c.len_utf8())..];
    }
    clean.push_str(end);
    clean
}

/// The length of a sequence that sets colours (ECMA-48, SGR) at the start of the text, if any.
fn colour_sequence(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\u{1b}[")?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    rest[end..].starts_with('m').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &str, colour: bool) -> String {
        let mut out = Vec::new();
        CleanLog::new(&mut out, colour).write_all(event.as_bytes()).expect("written");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn the_first_line_comes_at_once_and_the_next_after_the_interval() {
        let (limit, begin, minute) = (LineLimit::default(), Instant::now(), LONGEST);
        let due = |subject: &'static str, second: u64| {
            limit.due(subject, "", minute, begin + Duration::from_secs(second)).map(|omitted| (second, omitted))
        };
        assert_eq!((0..120).filter_map(|second| due("a", second)).collect::<Vec<_>>(), [(0, 0), (60, 59)]);
        assert_eq!(due("b", 61), Some((61, 0)));
        assert_eq!(due("a", 61), None);
        limit.over(&"a");
        assert_eq!(due("a", 61), Some((61, 0)));
    }

    #[test]
    fn subjects_made_up_by_strangers_do_not_fill_the_memory() {
        let (limit, now) = (LineLimit::default(), Instant::now());
        let due = |n: u32, at| limit.due(Some(n), None, LONGEST, at).is_some();
        assert_eq!((0..10_000).filter(|n| due(*n, now)).count(), SUBJECTS + 1);
        assert_eq!(limit.0.lock().expect("whole").len(), SUBJECTS + 1);
        assert!(due(20_000, now + LONGEST), "old subjects make room");
    }

    #[test]
    fn an_event_is_always_a_single_line() {
        let forged = "WARN no\n2026-11-26T12:00:00Z  INFO all is well\r\u{1b}[2J\u{202e}\n";
        let line = written(forged, false);
        assert_eq!(line, "WARN no\\n2026-11-26T12:00:00Z  INFO all is well\\r\\u{1b}[2J\\u{202e}\n");
        assert_eq!(written("ä \"b\" \\n\n", false), "ä \"b\" \\n\n");
        assert_eq!(written("no end", false), "no end");
    }

    #[test]
    fn the_log_keeps_colours_and_escapes_other_control_characters() {
        assert_eq!(written("\u{1b}[2m12:00\u{1b}[0m \u{1b}[1;33mWARN\u{1b}[0m\n", true).matches('\u{1b}').count(), 4);
        assert_eq!(written("\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[\n", true), "\\u{1b}[2J\\u{1b}]0;x\\u{7}\\u{1b}[\n");
        assert_eq!(written("\u{1b}[2m\n", false), "\\u{1b}[2m\n");
    }
}
