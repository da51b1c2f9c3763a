//! Lines of a log: each event is a single line, no matter which texts of peers, servers, users or files are in it.
//!
//! Programs write their logs through [`CleanLog`], so that the code that logs need not care: a text with a line end
//! can't forge a line, and no foreign text controls the terminal.

use std::io::{self, Write};

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
    fn an_event_is_one_line_whatever_stands_in_it() {
        let forged = "WARN no\n2026-11-26T12:00:00Z  INFO all is well\r\u{1b}[2J\u{202e}\n";
        let line = written(forged, false);
        assert_eq!(line, "WARN no\\n2026-11-26T12:00:00Z  INFO all is well\\r\\u{1b}[2J\\u{202e}\n");
        assert_eq!(written("ä \"b\" \\n\n", false), "ä \"b\" \\n\n");
        assert_eq!(written("no end", false), "no end");
    }

    #[test]
    fn colours_of_the_log_are_kept_and_nothing_else_that_a_terminal_obeys() {
        assert_eq!(written("\u{1b}[2m12:00\u{1b}[0m \u{1b}[1;33mWARN\u{1b}[0m\n", true).matches('\u{1b}').count(), 4);
        assert_eq!(written("\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[\n", true), "\\u{1b}[2J\\u{1b}]0;x\\u{7}\\u{1b}[\n");
        assert_eq!(written("\u{1b}[2m\n", false), "\\u{1b}[2m\n");
    }
}
