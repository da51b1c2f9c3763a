//! Histories that were saved: what `cobctl history --json` printed, read in place of those of the hosts.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use cob_types::history::HistoryEntry;
use cob_types::words::{count, form};

use crate::failure::Failure;
use crate::screen::Screen;

/// The longest line, in bytes. An entry holds no output, and its words are short.
const MAX_LINE: u64 = 1 << 20;
/// So many lines that are no entries are told, of all files together.
const TOLD: usize = 10;

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
    let Some((line, what)) = wrong.first() else { return Ok(()) };
    let tell = |(line, what): &(u64, String)| format!(":{line}: no entry of a history: {what}");
    for more in wrong.iter().take(TOLD).skip(1) {
        screen.problem("error", &named(tell(more)).in_a_line());
    }
    if wrong.len() > TOLD {
        screen.problem("error", &named(format!(": {} like these", count(wrong.len() - TOLD, "more line"))).in_a_line());
    }
    Err(named(tell(&(*line, what.clone()))).hint("`cobctl history --json` prints such a file"))
}

/// The lines that are no entries, with their numbers, and what is wrong with them.
fn entries(mut text: impl BufRead, mut take: impl FnMut(HistoryEntry)) -> io::Result<Vec<(u64, String)>> {
    let (mut wrong, mut line) = (Vec::new(), Vec::new());
    for number in 1.. {
        line.clear();
        if text.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 == MAX_LINE && !line.ends_with(b"\n") {
            wrong.push((number, format!("it has more than {MAX_LINE} bytes")));
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(entry) => take(entry),
            Err(error) => {
                // Each line is a text of its own to who reads it.
                let what = form(&error);
                let what = what.split(" at line ").next().unwrap_or(&what);
                wrong.push((number, format!("{what} (at byte {})", error.column())));
            }
        }
    }
    Ok(wrong)
}
