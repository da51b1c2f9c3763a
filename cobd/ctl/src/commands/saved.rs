//! Histories that were saved: what `cobctl history --json` printed, read in place of those of the hosts.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use cob_types::history::HistoryEntry;
use cob_types::words::{count, form};

use crate::failure::Failure;
use crate::screen::Screen;
use crate::words::clean_to;

/// The longest line, in bytes. An entry holds no output, and its words are short.
const MAX_LINE: u64 = 1 << 20;
/// So many lines that are no entries are told, of a file.
const TOLD: usize = 10;
/// So much is said of each, in characters.
const LONGEST: usize = 200;

/// Takes the entries of a history.
///
/// # Errors
/// When the file can't be read, or has lines that are no entries: all of them are told. What was taken is then of no use.
pub(super) fn each(file: &Path, screen: &mut Screen, mut take: impl FnMut(HistoryEntry)) -> Result<(), Failure> {
    // `-` is the standard input.
    let text: io::Result<Box<dyn BufRead>> = if file == Path::new("-") {
        Ok(Box::new(io::stdin().lock()))
    } else {
        File::open(file).map(|file| Box::new(BufReader::new(file)) as Box<dyn BufRead>)
    };
    let named = |what: String| Failure::usage(anyhow::anyhow!("{}{what}", file.display()));
    let wrong = text.and_then(|text| entries(text, &mut take)).map_err(|error| named(format!(": {error}")))?;
    let mut told = wrong.lines.iter().map(|(line, what)| format!(":{line}: no entry of a history: {what}"));
    let Some(first) = told.next() else { return Ok(()) };
    for more in told {
        screen.problem("error", &named(more).in_a_line());
    }
    if wrong.more > 0 {
        screen.problem("error", &named(format!(": {} like these", count(wrong.more, "more line"))).in_a_line());
    }
    Err(named(first).hint("`cobctl history --json` prints such a file"))
}

/// Lines that are no entries.
#[derive(Default)]
struct Wrong {
    /// The first ones, with their numbers, and what is wrong with them.
    lines: Vec<(u64, String)>,
    /// How many more there are.
    more: usize,
}

impl Wrong {
    fn add(&mut self, line: u64, what: &str) {
        if self.lines.len() < TOLD {
            self.lines.push((line, clean_to(what, LONGEST)));
        } else {
            self.more += 1;
        }
    }
}

fn entries(mut text: impl BufRead, mut take: impl FnMut(HistoryEntry)) -> io::Result<Wrong> {
    let (mut wrong, mut line) = (Wrong::default(), Vec::new());
    for number in 1.. {
        line.clear();
        if text.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 == MAX_LINE && !line.ends_with(b"\n") {
            wrong.add(number, &format!("it has more than {MAX_LINE} bytes"));
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(line.trim_ascii_end()) {
            Ok(entry) => take(entry),
            Err(error) => {
                // Each line is a text of its own to who reads it.
                let what = form(&error);
                let what = what.split(" at line ").next().unwrap_or(&what);
                wrong.add(number, &format!("at byte {}: {what}", error.column()));
            }
        }
    }
    Ok(wrong)
}
