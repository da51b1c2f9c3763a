//! What a service prints: its end, and what has come since somebody looked last.
//!
//! A kept service prints into files of its folder; the journal of the machine has what a unit prints
//! ([`unit::logs`](super::unit::logs)). Either is read in pieces, from a *place* that an answer names and the next question
//! gives back: an opaque word.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use serde::{Deserialize, Serialize};

use super::folder::{OLD_OUTPUT, OUTPUT, ServiceFolder};
use crate::run::{Shape, left_out, open_regular, whole_line};

/// The most bytes of one answer. What is kept of a file's end without holes is more than that.
const MAX_BYTES: u64 = 256 << 10;
/// What is said of a file of the daemon's.
const SOURCE: &str = "output";

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogsQuery {
    /// So many lines at most, the last ones.
    pub lines: usize,
    /// Only what has come since this place.
    pub after: Option<String>,
    /// Of its life before this one.
    pub previous: bool,
}

impl LogsQuery {
    /// The most lines that are asked for at once.
    pub const MAX_LINES: usize = 10_000;
}

/// What it prints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsAnswer {
    /// Where it was found: `output`, a file of the daemon's, or `journal`, that of the machine.
    pub source: String,
    /// What was printed, as it was.
    pub text: String,
    /// Where it ends: what comes later is asked for by this word.
    pub next: String,
    /// Another life of it has begun, and what that prints comes next.
    #[serde(default)]
    pub ended: bool,
}

/// A place in what a kept service prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// In which of its lives.
    life: u64,
    /// Behind so many bytes that it has printed in that.
    printed: u64,
}

impl Place {
    fn read(text: &str) -> Option<Self> {
        let (life, printed) = text.strip_prefix("f")?.split_once('.')?;
        Some(Self { life: life.parse().ok()?, printed: printed.parse().ok()? })
    }

    fn word(self) -> String {
        format!("f{}.{}", self.life, self.printed)
    }
}

/// Of a service that is kept here.
pub(super) fn of_kept(folder: &ServiceFolder, query: &LogsQuery) -> Result<LogsAnswer, String> {
    let after = match &query.after {
        Some(word) => Some(Place::read(word).ok_or_else(|| format!("{word:?} is no place that an answer has named"))?),
        None => None,
    };
    let unread = |error: io::Error| format!("what it prints can't be read: {error}");
    let plan = folder.plan();
    let (life, before) = plan.as_ref().map_or((0, 0), |plan| (plan.life, plan.life_before));
    if query.previous {
        let Some(file) = open(folder, OLD_OUTPUT).map_err(unread)? else {
            return Err("nothing is kept of a life before this one".to_owned());
        };
        return last_of(file, before, query.lines).map_err(unread);
    }
    let this = open(folder, OUTPUT).map_err(unread)?;
    if this.is_none() && plan.is_some_and(|plan| plan.private.is_some()) {
        return Err(
            "it runs with secrets in its environment: what it prints is kept without their values, and so not \
                    before it has ended"
                .to_owned(),
        );
    }
    let old = || open(folder, OLD_OUTPUT).map_err(unread);
    let goes_on = folder.is_running();
    match (after, this) {
        (Some(place), this) if place.life != life => {
            // Its rest, and then what the life after it prints.
            let rest = if place.life == before { old()? } else { None };
            let text = match rest {
                Some(file) => since(file, place, false).map_err(unread)?.text,
                None => String::new(),
            };
            let next = Place { life, printed: 0 }.word();
            let answer = LogsAnswer { source: SOURCE.to_owned(), text, next, ended: true };
            // It is about to begin.
            Ok(if this.is_none() { LogsAnswer { next: place.word(), ..answer } } else { answer })
        }
        (Some(place), Some(file)) => since(file, place, goes_on).map_err(unread),
        (None, Some(file)) => last_of(file, life, query.lines).map_err(unread),
        // It has just been put aside: the next life begins.
        (after, None) => match (after, old()?) {
            (Some(place), Some(file)) => since(file, place, false).map_err(unread),
            // Which one it was nobody can tell.
            (None, Some(file)) => last_of(file, 0, query.lines).map_err(unread),
            (_, None) => Err("nothing is kept of what it prints: it has not been started from here".to_owned()),
        },
    }
}

fn answer(bytes: &[u8], next: Place) -> LogsAnswer {
    let text = String::from_utf8_lossy(bytes).into_owned();
    LogsAnswer { source: SOURCE.to_owned(), text, next: next.word(), ended: false }
}

fn open(folder: &ServiceFolder, name: &str) -> io::Result<Option<File>> {
    match open_regular(&folder.file(name)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The last lines of a file.
fn last_of(mut file: File, life: u64, lines: usize) -> io::Result<LogsAnswer> {
    let printed = Shape::of(&mut file)?.printed();
    let length = file.metadata()?.len();
    let begin = length.saturating_sub(MAX_BYTES);
    let mut bytes = part(&mut file, begin)?;
    // Between the two looks more may have come.
    let next = Place { life, printed: printed + (begin + bytes.len() as u64).saturating_sub(length) };
    // Not in the middle of a line, but for one that is longer than all of this.
    let first = if begin > 0 { whole_line(&bytes, 0) } else { Some(0) };
    bytes.drain(..first.unwrap_or(0));
    let end = bytes.len() - usize::from(bytes.ends_with(b"\n"));
    let earlier = bytes[..end].iter().enumerate().rev().filter(|(_, b)| **b == b'\n').nth(lines.saturating_sub(1));
    if let Some((at, _)) = earlier {
        bytes.drain(..=at);
    } else if first.is_none() {
        bytes.splice(..0, left_out(begin).into_bytes());
    }
    Ok(answer(&bytes, next))
}

/// What was printed into a file since a place.
fn since(mut file: File, place: Place, goes_on: bool) -> io::Result<LogsAnswer> {
    let shape = Shape::of(&mut file)?;
    let printed = shape.printed();
    if place.printed > printed {
        // Somebody has cut it, or nothing could be left out of its middle.
        return Ok(answer(b"", Place { printed, ..place }));
    }
    let (at, gone) = shape.find(place.printed);
    let length = file.metadata()?.len();
    // What is far back may have been left out already.
    let begin = at.max(length.saturating_sub(MAX_BYTES));
    let mut read = part(&mut file, begin)?;
    let whole = begin + read.len() as u64 >= length;
    if goes_on || !whole {
        let half = half_character(&read);
        read.truncate(read.len() - half);
    }
    let missed = gone + (begin - at);
    let next = Place { printed: place.printed + missed + read.len() as u64, ..place };
    let mut bytes = Vec::new();
    if missed > 0 {
        bytes.extend(left_out(missed).into_bytes());
    }
    bytes.extend(read);
    Ok(answer(&bytes, next))
}

/// How many bytes at the end are the beginning of a character.
fn half_character(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    match std::str::from_utf8(tail) {
        Err(error) if error.error_len().is_none() => tail.len() - error.valid_up_to(),
        // It begins in the midst of another one.
        Err(error) if error.valid_up_to() == 0 && tail.len() > 1 => half_character(&tail[1..]),
        Ok(_) | Err(_) => 0,
    }
}

fn part(file: &mut File, begin: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::kinds::service::folder::Plan;
    use crate::run::OutputFile;

    fn folder() -> (tempfile::TempDir, ServiceFolder) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = ServiceFolder::new(dir.path().to_owned());
        (dir, folder)
    }

    /// It is begun (again); the keeper makes the file anew if there is none.
    fn begin(folder: &ServiceFolder) {
        let plan = serde_json::json!({
            "format": Plan::FORMAT, "identity": "", "boot": "", "start": "true", "stop": null, "environment": {},
            "working_folder": "/", "grace_ms": 0
        });
        folder.prepare(serde_json::from_value(plan).expect("a plan")).expect("prepared");
    }

    fn last(lines: usize) -> LogsQuery {
        LogsQuery { lines, after: None, previous: false }
    }

    fn after(folder: &ServiceFolder, answer: &LogsAnswer) -> LogsAnswer {
        of_kept(folder, &LogsQuery { after: Some(answer.next.clone()), ..last(10) }).expect("read")
    }

    fn append(folder: &ServiceFolder, text: &[u8]) {
        use std::io::Write as _;
        let file = fs::OpenOptions::new().append(true).create(true).open(folder.file(OUTPUT));
        file.expect("opened").write_all(text).expect("written");
    }

    #[test]
    fn the_last_lines_and_then_what_comes() {
        let (_dir, folder) = folder();
        assert!(of_kept(&folder, &last(3)).expect_err("nothing").contains("has not been started from here"));
        begin(&folder);
        append(&folder, b"one\ntwo\nthree\nfo");
        let texts = [1, 2, 4, 9].map(|n| of_kept(&folder, &last(n)).expect("read").text);
        assert_eq!(texts, ["fo", "three\nfo", "one\ntwo\nthree\nfo", "one\ntwo\nthree\nfo"]);
        let answer = of_kept(&folder, &last(1)).expect("read");
        append(&folder, b"ur\n\xff\n");
        let more = after(&folder, &answer);
        assert_eq!(more.text, "ur\n\u{fffd}\n");
        assert_eq!(after(&folder, &more), LogsAnswer { text: String::new(), ..more.clone() });
        assert_eq!(of_kept(&folder, &last(1)).expect("read").text, "\u{fffd}\n", "its end counts as no line");
        for wrong in ["", "f", "f1", "f1.", "g1.2", "f1.99999999999999999999"] {
            let query = LogsQuery { after: Some(wrong.to_owned()), ..last(1) };
            assert!(of_kept(&folder, &query).is_err(), "{wrong}");
        }
    }

    #[test]
    fn of_a_line_that_is_too_long_the_end_is_told() {
        let (_dir, folder) = folder();
        begin(&folder);
        let long = "x".repeat(300_000);
        append(&folder, format!("one\n{long}end\n").as_bytes());
        let length = 300_008 - MAX_BYTES;
        for lines in [1, 2, 100] {
            let text = of_kept(&folder, &last(lines)).expect("read").text;
            assert!(text.starts_with(&left_out(length)) && text.ends_with("xend\n"), "{lines}: {}", text.len());
        }
        append(&folder, b"two\nthree\n");
        assert_eq!(of_kept(&folder, &last(2)).expect("read").text, "two\nthree\n");
        assert_eq!(of_kept(&folder, &last(3)).expect("read").text, "two\nthree\n", "whole lines alone");
    }

    #[test]
    fn over_restarts_nothing_is_missed_or_said_twice() {
        let (_dir, folder) = folder();
        begin(&folder);
        append(&folder, b"one\n");
        assert!(of_kept(&folder, &LogsQuery { previous: true, ..last(9) }).is_err());
        let answer = of_kept(&folder, &last(9)).expect("read");
        append(&folder, b"two\n");
        begin(&folder);
        let rest = after(&folder, &answer);
        assert_eq!((rest.text.as_str(), rest.ended), ("two\n", true));
        let none = after(&folder, &rest);
        assert_eq!((none.text.as_str(), none.ended, &none.next), ("", false, &rest.next));
        append(&folder, b"three\n");
        let more = after(&folder, &none);
        assert_eq!((more.text.as_str(), more.ended), ("three\n", false));
        let previous = LogsQuery { previous: true, ..last(9) };
        assert_eq!(of_kept(&folder, &previous).expect("read").text, "one\ntwo\n");
        // The moment in which a life is put aside and the next one is not on record.
        append(&folder, b"four\n");
        fs::rename(folder.file(OUTPUT), folder.file(OLD_OUTPUT)).expect("renamed");
        let rest = after(&folder, &more);
        assert_eq!((rest.text.as_str(), rest.ended), ("four\n", false));
        // Two lives are missed.
        begin(&folder);
        begin(&folder);
        append(&folder, b"five\n");
        let missed = after(&folder, &rest);
        assert_eq!((missed.text.as_str(), missed.ended), ("", true));
        assert_eq!(after(&folder, &missed).text, "five\n");
    }

    #[test]
    fn what_is_long_is_cut_at_a_line_and_what_was_missed_is_said() {
        let (_dir, folder) = folder();
        begin(&folder);
        append(&folder, b"begin\n");
        let answer = of_kept(&folder, &last(1)).expect("read");
        let lines = |from: u32, to: u32| (from..to).map(|n| format!("{n:06}\n")).collect::<String>();
        append(&folder, lines(0, 100_000).as_bytes());
        let all = of_kept(&folder, &last(100_000)).expect("read").text;
        assert!(all.starts_with("06") && all.ends_with("099999\n") && all.len() as u64 <= MAX_BYTES, "{}", &all[..12]);
        let more = after(&folder, &answer);
        let said = more.text.strip_prefix("\n[... 437856 bytes left out ...]\n").expect("a note");
        assert!(said.len() as u64 == MAX_BYTES && said.ends_with("099999\n"), "{}", &said[..40]);

        // It ends, and the middle of what it has printed is left out of its file for good.
        append(&folder, lines(100_000, 200_000).as_bytes());
        OutputFile::open(folder.path(), OUTPUT).expect("opened").finish();
        assert!(folder.file(OUTPUT).metadata().expect("there").len() < 600 << 10);
        let rest = after(&folder, &more);
        let said = rest.text.strip_prefix("\n[... 437856 bytes left out ...]\n").expect("a note");
        assert!(said.ends_with("199999\n"), "not said twice, and to its end: {}", &said[..40]);
        assert_eq!(after(&folder, &rest).text, "");
        begin(&folder);
        append(&folder, b"again\n");
        let ended = after(&folder, &rest);
        assert_eq!((ended.text.as_str(), ended.ended), ("", true));
        assert_eq!(after(&folder, &ended).text, "again\n");
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        assert_eq!(
            [&b"a\xc3"[..], b"a\xc3\xa9", b"\xe2\x82", b"\xf0\x9f\x98", b"\xff", b"\xa9", b""].map(half_character),
            [1, 0, 2, 3, 0, 0, 0]
        );
        assert_eq!(half_character(b"\x98\x80\xe2"), 1);
    }

    #[test]
    fn neither_links_nor_pipes_are_read() {
        let (_dir, folder) = folder();
        begin(&folder);
        fs::remove_file(folder.file(OUTPUT)).expect("removed");
        std::os::unix::fs::symlink("/etc/passwd", folder.file(OUTPUT)).expect("a link");
        assert!(of_kept(&folder, &last(3)).expect_err("refused").contains("can't be read"));
    }
}
