//! Saved histories: the output of `cobctl history --json`, read in place of the hosts' histories.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use cob_types::HostName;
use cob_types::history::{HistoryEntry, HistoryEvent};
use cob_types::words::{count, form};

use crate::failure::Failure;
use crate::merge::Merge;
use crate::screen::Screen;
use crate::words::clean_to;

/// The longest line, in bytes. An entry contains no output, and its texts are short.
const MAX_LINE: u64 = 1 << 20;
/// How many invalid lines of a file are reported.
const TOLD: usize = 10;
/// The longest error text of a line, in characters.
const LONGEST: usize = 200;

/// Takes the entries of a history.
///
/// # Errors
/// If the file can't be read, or has invalid lines: all of these are reported. The taken entries are then useless.
pub(super) fn each(file: &Path, screen: &mut Screen, mut take: impl FnMut(HistoryEntry)) -> Result<(), Failure> {
    // `-` is the standard input.
    let text: io::Result<Box<dyn BufRead>> = if file == Path::new("-") {
        Ok(Box::new(io::stdin().lock()))
    } else {
        File::open(file).map(|file| Box::new(BufReader::new(file)) as Box<dyn BufRead>)
    };
    let named = |what: String| Failure::usage(format!("{}{what}", file.display()));
    let wrong = text.and_then(|text| entries(text, &mut take)).map_err(|error| named(format!(": {error}")))?;
    let mut told = wrong.lines.iter().map(|(line, what)| format!(":{line}: not a history entry: {what}"));
    let Some(first) = told.next() else { return Ok(()) };
    for more in told {
        screen.problem("error", &named(more).in_a_line());
    }
    if wrong.more > 0 {
        screen.problem("error", &named(format!(": {} like these", count(wrong.more, "more line"))).in_a_line());
    }
    Err(named(first).hint("`cobctl history --json` prints a valid file"))
}

/// Invalid lines.
#[derive(Default)]
struct Wrong {
    /// The first invalid lines, each with its number and error.
    lines: Vec<(u64, String)>,
    /// The number of further invalid lines.
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
                // The parser sees each line as a separate text.
                let what = form(&error);
                let what = what.split(" at line ").next().unwrap_or(&what);
                wrong.add(number, &format!("at byte {}: {what}", error.column()));
            }
        }
    }
    Ok(wrong)
}

/// Joins the histories of several files: a history may be split by time or by host, and parts may overlap. Entries that
/// can't belong to the same history, for example of another cluster with the same names, stay apart.
#[derive(Debug, Default)]
pub(super) struct Parts(Vec<History>);

/// By host, and by position there: entries of a single write share a position.
type History = BTreeMap<HostName, BTreeMap<u64, Vec<HistoryEntry>>>;

impl Parts {
    /// Adds the entries of a file.
    pub(super) fn add(&mut self, part: Vec<HistoryEntry>) {
        let mut hosts = History::new();
        for entry in part {
            let at = hosts.entry(entry.host.clone()).or_default().entry(entry.seq).or_default();
            if !at.contains(&entry) {
                at.push(entry);
            }
        }
        match self.0.iter_mut().find(|history| are_of_one(history, &hosts)) {
            Some(history) => join(history, hosts),
            None => self.0.push(hosts),
        }
    }

    /// The histories, each in the order of the merged history of its hosts.
    pub(super) fn histories(self) -> impl Iterator<Item = impl Iterator<Item = HistoryEntry>> {
        self.0.into_iter().map(|history| {
            let mut merge = Merge::new(history.len());
            for (at, (_, entries)) in history.into_iter().enumerate() {
                merge.feed(at, entries.into_values().flatten().collect(), false);
            }
            std::iter::from_fn(move || merge.next_entry())
        })
    }
}

/// Whether both may be parts of the same history: a position has only one record, and Lamport numbers rise.
fn are_of_one(history: &History, part: &History) -> bool {
    part.iter().all(|(host, entries)| {
        let Some(known) = history.get(host) else { return true };
        entries.iter().all(|(seq, entries)| {
            let own = |entry: &HistoryEntry| (entry.lamport, entry.generation);
            let this = entries.first().map(own);
            let before = known.range(..seq).next_back().and_then(|(_, e)| e.first()).map(|e| e.lamport);
            let after = known.range(seq + 1..).next().and_then(|(_, e)| e.first()).map(|e| e.lamport);
            let at = known.get(seq).and_then(|e| e.first()).map(own);
            let lamport = this.map(|(lamport, _)| lamport);
            at.is_none_or(|at| Some(at) == this)
                && before.is_none_or(|before| Some(before) <= lamport)
                && after.is_none_or(|after| lamport <= Some(after))
        })
    })
}

fn join(history: &mut History, part: History) {
    for (host, entries) in part {
        let known = history.entry(host).or_default();
        for (seq, entries) in entries {
            let at = known.entry(seq).or_default();
            let new: Vec<_> = entries.into_iter().filter(|entry| !at.contains(entry)).collect();
            // The `failed` entry of a transition comes after its end.
            at.extend(new);
            at.sort_by_key(|entry| matches!(entry.happened(), HistoryEvent::Failed(_)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entry, id};

    fn put_together(files: Vec<Vec<HistoryEntry>>) -> Vec<Vec<u64>> {
        let mut parts = Parts::default();
        files.into_iter().for_each(|file| parts.add(file));
        parts.histories().map(|history| history.map(|entry| entry.lamport).collect()).collect()
    }

    #[test]
    fn parts_of_the_same_history_are_joined_and_others_stay_separate() {
        let at = |host: &str, seq: u64, lamport: u64| entry(host, seq, lamport, lamport);
        let early = vec![at("n1", 1, 1), at("n2", 1, 2), at("n1", 2, 5)];
        let late = vec![at("n1", 2, 5), at("n2", 2, 7), at("n1", 3, 8)];
        for files in [vec![early.clone(), late.clone()], vec![late.clone(), early.clone()]] {
            assert_eq!(put_together(files), [[1, 2, 5, 7, 8]]);
        }
        // The same position is another record, and a later one has a lower number: another cluster's.
        for other in [at("n1", 2, 6), at("n1", 9, 4)] {
            let lamport = other.lamport;
            assert_eq!(put_together(vec![early.clone(), vec![other]]), [vec![1, 2, 5], vec![lamport]]);
        }
        // The end of a transition and its failure share a position, and may be split apart.
        let word = |event: &str| HistoryEntry { event: event.to_owned(), cob: Some(id("n1/db")), ..at("n1", 4, 9) };
        let mut parts = Parts::default();
        parts.add(vec![word("failed")]);
        parts.add(vec![word("end")]);
        let words: Vec<_> = parts.histories().flatten().map(|entry| entry.event).collect();
        assert_eq!(words, ["end", "failed"]);
    }
}
