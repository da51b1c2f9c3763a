//! Reads the output of a service: its last lines, and the new output since an earlier answer.
//!
//! A supervised service writes into files of its folder; the output of a unit is in the machine's journal
//! ([`unit::logs`](super::unit::logs)). Both are read in pieces. Each answer has a *place*, an opaque word, from which
//! the next query continues.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use cob_types::api::{LogsAnswer, LogsQuery};

use super::folder::{OLD_OUTPUT, OUTPUT, ServiceFolder};
use crate::run::{Shape, half_character, left_out, open_regular, whole_line};

/// The most bytes of an answer. The gapless end that is kept of a file is longer.
const MAX_BYTES: u64 = 256 << 10;
/// The source name of the daemon's files.
const SOURCE: &str = "output";

/// A place in the output of a supervised service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The id of the run.
    life: u64,
    /// The number of bytes that this run printed before the place.
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

/// Reads the output of a supervised service.
pub(super) fn of_kept(folder: &ServiceFolder, query: &LogsQuery) -> Result<LogsAnswer, String> {
    let after = match &query.after {
        Some(word) => Some(Place::read(word).ok_or_else(|| format!("{word:?} is no position of an earlier answer"))?),
        None => None,
    };
    let unread = |error: io::Error| format!("its output can't be read: {error}");
    let plan = folder.plan();
    let (life, before) = plan.as_ref().map_or((0, 0), |plan| (plan.life, plan.life_before));
    if query.previous {
        let Some(file) = open(folder, OLD_OUTPUT).map_err(unread)? else {
            return Err("no output of an earlier run is kept".to_owned());
        };
        return last_of(file, before, query.lines).map_err(unread);
    }
    let this = open(folder, OUTPUT).map_err(unread)?;
    if this.is_none() && plan.is_some_and(|plan| plan.private.is_some()) {
        return Err(
            "it runs with secrets in its environment: its output is kept without the values of the secrets, and so \
                    only after its end"
                .to_owned(),
        );
    }
    let old = || open(folder, OLD_OUTPUT).map_err(unread);
    let goes_on = folder.is_running();
    match (after, this) {
        (Some(place), this) if place.life != life => {
            // The rest of the earlier run; the output of the next run follows.
            let rest = if place.life == before { old()? } else { None };
            let text = match rest {
                Some(file) => since(file, place, false).map_err(unread)?.text,
                None => String::new(),
            };
            let next = Place { life, printed: 0 }.word();
            let answer = LogsAnswer { source: SOURCE.to_owned(), text, next, ended: true };
            // The new run is about to start.
            Ok(if this.is_none() { LogsAnswer { next: place.word(), ..answer } } else { answer })
        }
        (Some(place), Some(file)) => since(file, place, goes_on).map_err(unread),
        (None, Some(file)) => last_of(file, life, query.lines).map_err(unread),
        // The output was just set aside, and the next run starts.
        (after, None) => match (after, old()?) {
            (Some(place), Some(file)) => since(file, place, false).map_err(unread),
            // The run of this file is unknown.
            (None, Some(file)) => last_of(file, 0, query.lines).map_err(unread),
            (_, None) => Err("its output is not kept: it has not been started from here".to_owned()),
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
    // The file may have grown since the length was read.
    let next = Place { life, printed: printed + (begin + bytes.len() as u64).saturating_sub(length) };
    // The answer begins with a whole line, unless a line is longer than the answer.
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

/// The output in a file since a place.
fn since(mut file: File, place: Place, goes_on: bool) -> io::Result<LogsAnswer> {
    let shape = Shape::of(&mut file)?;
    let printed = shape.printed();
    if place.printed > printed {
        // The file was truncated, or its middle could not be left out.
        return Ok(answer(b"", Place { printed, ..place }));
    }
    let (at, gone) = shape.find(place.printed);
    let length = file.metadata()?.len();
    // Early output may be left out already.
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

    /// Starts a run; the supervisor creates the file if it is missing.
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
    fn a_log_query_gives_the_last_lines_and_then_the_new_lines() {
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
    fn the_end_of_a_too_long_line_is_shown() {
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
    fn log_lines_are_neither_lost_nor_repeated_over_restarts() {
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
        // The output is set aside, and the plan of the next run is not written yet.
        append(&folder, b"four\n");
        fs::rename(folder.file(OUTPUT), folder.file(OLD_OUTPUT)).expect("renamed");
        let rest = after(&folder, &more);
        assert_eq!((rest.text.as_str(), rest.ended), ("four\n", false));
        // Two runs are missed.
        begin(&folder);
        begin(&folder);
        append(&folder, b"five\n");
        let missed = after(&folder, &rest);
        assert_eq!((missed.text.as_str(), missed.ended), ("", true));
        assert_eq!(after(&folder, &missed).text, "five\n");
    }

    #[test]
    fn a_long_log_is_cut_at_a_line_and_notes_the_missing_bytes() {
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

        // The run ends, and the file loses the middle of its output.
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
