//! What a service prints: its end, and what has come since somebody looked last.
//!
//! A kept service prints into files of its folder; the journal of the machine has what a unit prints. Either is read in
//! pieces, from a *place* that an answer names and the next question gives back: an opaque word.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::folder::{OLD_OUTPUT, OUTPUT, ServiceFolder};

/// The most bytes of one answer. What is kept of a file's end without holes is more than that.
const MAX_BYTES: u64 = 256 << 10;
/// The most bytes that are taken of what `journalctl` prints.
const MAX_JOURNAL: u64 = 4 << 20;
/// So long the journal may be looked through.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(20);
/// Begins the line in which `journalctl` tells where it has stopped.
const CURSOR: &str = "-- cursor: ";

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
}

/// A place in what a kept service prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// The file, by its inode: each life has its own.
    file: u64,
    offset: u64,
}

impl Place {
    fn read(text: &str) -> Option<Self> {
        let (file, offset) = text.strip_prefix("f")?.split_once('.')?;
        Some(Self { file: file.parse().ok()?, offset: offset.parse().ok()? })
    }

    fn word(self) -> String {
        format!("f{}.{}", self.file, self.offset)
    }
}

/// Of a service that is kept here.
pub(super) fn of_kept(folder: &ServiceFolder, query: &LogsQuery) -> Result<LogsAnswer, String> {
    let unread = |error: &io::Error| format!("what it prints can't be read: {error}");
    if query.previous {
        let Some(mut file) = open(folder, OLD_OUTPUT).map_err(|e| unread(&e))? else {
            return Err("nothing is kept of a life before this one".to_owned());
        };
        let (text, next) = last_of(&mut file, query.lines).map_err(|e| unread(&e))?;
        return Ok(answer(text, next));
    }
    let Some(mut file) = open(folder, OUTPUT).map_err(|e| unread(&e))? else {
        return Err(match folder.private_output() {
            Some(_) => "it runs with secrets in its environment: what it prints is kept without their values, and so \
                        not before it has ended"
                .to_owned(),
            None => "nothing is kept of what it prints: it has not been started from here".to_owned(),
        });
    };
    let after = match &query.after {
        Some(word) => Some(Place::read(word).ok_or_else(|| format!("{word:?} is no place that an answer has named"))?),
        None => None,
    };
    let read = match after {
        Some(place) => since(folder, &mut file, place),
        None => last_of(&mut file, query.lines),
    };
    read.map(|(text, next)| answer(text, next)).map_err(|e| unread(&e))
}

fn answer(bytes: Vec<u8>, next: Place) -> LogsAnswer {
    let text = String::from_utf8_lossy(&bytes).into_owned();
    LogsAnswer { source: "output".to_owned(), text, next: next.word() }
}

fn open(folder: &ServiceFolder, name: &str) -> io::Result<Option<File>> {
    match File::open(folder.file(name)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The last lines of a file.
fn last_of(file: &mut File, lines: usize) -> io::Result<(Vec<u8>, Place)> {
    let meta = file.metadata()?;
    let begin = meta.len().saturating_sub(MAX_BYTES);
    let mut bytes = part(file, begin)?;
    let next = Place { file: meta.ino(), offset: begin + bytes.len() as u64 };
    // Not in the middle of a line.
    if begin > 0 {
        let line = bytes.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1);
        bytes.drain(..line);
    }
    let end = bytes.len() - usize::from(bytes.ends_with(b"\n"));
    let earlier = bytes[..end].iter().enumerate().rev().filter(|(_, b)| **b == b'\n').nth(lines.saturating_sub(1));
    if let Some((at, _)) = earlier {
        bytes.drain(..=at);
    }
    Ok((bytes, next))
}

/// What was printed since a place: the rest of the life before, where that is whose place it was, and then this one's.
fn since(folder: &ServiceFolder, file: &mut File, place: Place) -> io::Result<(Vec<u8>, Place)> {
    let this = Place { file: file.metadata()?.ino(), offset: 0 };
    if place.file != this.file {
        let mut rest = match open(folder, OLD_OUTPUT)? {
            Some(mut old) if old.metadata()?.ino() == place.file => from(&mut old, place)?.0,
            Some(_) | None => Vec::new(),
        };
        let (now, next) = from(file, this)?;
        rest.extend(now);
        return Ok((rest, next));
    }
    from(file, place)
}

fn from(file: &mut File, place: Place) -> io::Result<(Vec<u8>, Place)> {
    let length = file.metadata()?.len();
    // A file that was cut begins anew behind what is kept of its beginning.
    let offset = place.offset.min(length);
    // What is far back may have been punched out of it already.
    let begin = offset.max(length.saturating_sub(MAX_BYTES));
    let mut bytes = Vec::new();
    if begin > offset {
        bytes.extend(format!("\n[... {} bytes left out ...]\n", begin - offset).into_bytes());
    }
    let read = part(file, begin)?;
    let next = Place { offset: begin + read.len() as u64, ..place };
    bytes.extend(read);
    Ok((bytes, next))
}

fn part(file: &mut File, begin: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Of a unit of systemd: journalctl(1).
pub(super) async fn of_unit(unit: &str, query: &LogsQuery) -> Result<LogsAnswer, String> {
    if query.previous {
        return Err(format!("the journal has all lives of {unit} one after the other: leave `previous` out"));
    }
    let mut command = tokio::process::Command::new("journalctl");
    command.args(["--quiet", "--no-pager", "--output=short-iso", "--show-cursor"]);
    command.arg(format!("--lines={}", query.lines)).arg(format!("--unit={unit}"));
    if let Some(after) = query.after.as_deref().filter(|after| !after.is_empty()) {
        let plain = after.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'=' | b';'));
        if !plain {
            return Err(format!("{after:?} is no place that an answer has named"));
        }
        command.arg(format!("--after-cursor={after}"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let failed = |what: &str| format!("the journal can't be read: journalctl: {what}");
    let mut child = command.spawn().map_err(|error| failed(&error.to_string()))?;
    let read = async {
        use tokio::io::AsyncReadExt as _;
        let (mut text, mut complaint) = (Vec::new(), Vec::new());
        let out = child.stdout.take().expect("piped");
        let err = child.stderr.take().expect("piped");
        // It can end before all of its output is taken, when that is too much.
        tokio::try_join!(async { out.take(MAX_JOURNAL).read_to_end(&mut text).await }, async {
            err.take(MAX_BYTES).read_to_end(&mut complaint).await
        })?;
        io::Result::Ok((child.wait().await?, text, complaint))
    };
    match timeout(JOURNAL_PATIENCE, read).await {
        Ok(Ok((exit, text, _))) if exit.success() => Ok(of_journal(&text, query.after.as_deref().unwrap_or_default())),
        Ok(Ok((_, _, complaint))) => Err(failed(String::from_utf8_lossy(&complaint).trim())),
        Ok(Err(error)) => Err(failed(&error.to_string())),
        Err(_) => Err(failed("it takes too long")),
    }
}

/// Takes apart what `journalctl --show-cursor` prints: lines, and where they end. Without a line there is no cursor.
fn of_journal(printed: &[u8], after: &str) -> LogsAnswer {
    let mut text = String::from_utf8_lossy(printed).into_owned();
    let begin = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
    let cursor = text[begin..].trim_end().strip_prefix(CURSOR).map(ToOwned::to_owned);
    if cursor.is_some() {
        text.truncate(begin);
    }
    LogsAnswer { source: "journal".to_owned(), text, next: cursor.unwrap_or_else(|| after.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder() -> (tempfile::TempDir, ServiceFolder) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = ServiceFolder::new(dir.path().to_owned());
        (dir, folder)
    }

    fn last(lines: usize) -> LogsQuery {
        LogsQuery { lines, after: None, previous: false }
    }

    fn after(answer: &LogsAnswer) -> LogsQuery {
        LogsQuery { after: Some(answer.next.clone()), ..last(10) }
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
        append(&folder, b"one\ntwo\nthree\nfo");
        let texts = [1, 2, 4, 9].map(|n| of_kept(&folder, &last(n)).expect("read").text);
        assert_eq!(texts, ["fo", "three\nfo", "one\ntwo\nthree\nfo", "one\ntwo\nthree\nfo"]);
        let answer = of_kept(&folder, &last(1)).expect("read");
        append(&folder, b"ur\n\xff\n");
        let more = of_kept(&folder, &after(&answer)).expect("read");
        assert_eq!(more.text, "ur\n\u{fffd}\n");
        assert_eq!(of_kept(&folder, &after(&more)).expect("read"), LogsAnswer { text: String::new(), ..more.clone() });
        assert_eq!(of_kept(&folder, &last(1)).expect("read").text, "\u{fffd}\n", "its end counts as no line");
        for wrong in ["", "f", "f1", "f1.", "g1.2", "f1.99999999999999999999"] {
            let query = LogsQuery { after: Some(wrong.to_owned()), ..last(1) };
            assert!(of_kept(&folder, &query).is_err(), "{wrong}");
        }
    }

    #[test]
    fn over_a_restart_nothing_is_missed_or_said_twice() {
        let (_dir, folder) = folder();
        append(&folder, b"one\n");
        assert!(of_kept(&folder, &LogsQuery { previous: true, ..last(9) }).is_err());
        let answer = of_kept(&folder, &last(9)).expect("read");
        append(&folder, b"two\n");
        fs::rename(folder.file(OUTPUT), folder.file(OLD_OUTPUT)).expect("renamed");
        append(&folder, b"three\n");
        let more = of_kept(&folder, &after(&answer)).expect("read");
        assert_eq!(more.text, "two\nthree\n");
        append(&folder, b"four\n");
        assert_eq!(of_kept(&folder, &after(&more)).expect("read").text, "four\n");
        let previous = LogsQuery { previous: true, ..last(9) };
        assert_eq!(of_kept(&folder, &previous).expect("read").text, "one\ntwo\n");
    }

    #[test]
    fn what_is_long_is_cut_at_a_line_and_what_was_missed_is_said() {
        let (_dir, folder) = folder();
        append(&folder, b"begin\n");
        let answer = of_kept(&folder, &last(1)).expect("read");
        for n in 0..100_000 {
            append(&folder, format!("{n:05}\n").as_bytes());
            if n == 10 {
                assert_eq!(of_kept(&folder, &last(1)).expect("read").text, "00010\n");
            }
        }
        let all = of_kept(&folder, &last(100_000)).expect("read").text;
        assert!(all.starts_with("5") && all.ends_with("99999\n") && all.len() as u64 <= MAX_BYTES, "{}", &all[..12]);
        let more = of_kept(&folder, &after(&answer)).expect("read").text;
        assert!(
            more.starts_with("\n[... 337856 bytes left out ...]\n") && more.ends_with("99999\n"),
            "{}",
            &more[..40]
        );
    }

    #[test]
    fn the_journals_lines_are_told_from_where_they_end() {
        let printed = b"2026-11-23T12:00:00+0000 n1 app[7]: up\n-- cursor: s=ab;i=1\n";
        let answer = of_journal(printed, "old");
        assert_eq!(
            (answer.text.as_str(), answer.next.as_str()),
            ("2026-11-23T12:00:00+0000 n1 app[7]: up\n", "s=ab;i=1")
        );
        assert_eq!(of_journal(b"", "old").next, "old");
        assert_eq!(of_journal(b"-- cursor: s=1\n", "").text, "");
    }
}
