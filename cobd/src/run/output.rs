//! The output of actions: bounded while they run, and readable afterwards.
//!
//! The action writes directly into a file, which survives daemon and runner. When the file grows beyond its limit, its
//! middle is removed by punching a hole: the head stays, the tail goes on, and the writer does not notice.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use zeroize::Zeroizing;

use super::job::{OUTPUT, STDOUT, open_regular};
use super::redact::Redactor;
use super::secrets::Opened;
use crate::durable::{self, Sync};

/// The most disk space of a file.
const LIMIT: u64 = 1 << 20;
/// How much of the start of a longer file is kept.
const HEAD: u64 = 64 << 10;
/// How much of its end is kept.
const TAIL: u64 = 512 << 10;
/// The length of the last lines that are shown with a failure.
pub(crate) const LAST_LINES: usize = 2 << 10;

/// A file that actions print into.
#[derive(Debug)]
pub(crate) struct OutputFile {
    folder: PathBuf,
    name: &'static str,
    file: File,
    /// The end of the hole.
    punched: u64,
}

impl OutputFile {
    /// Creates the file, or appends to it.
    pub(crate) fn open(folder: &Path, name: &'static str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(folder.join(name))?;
        Ok(Self { folder: folder.to_owned(), name, file, punched: HEAD })
    }

    /// A handle for a child process.
    pub(crate) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Limits the file; called repeatedly while an action writes. Returns how many bytes were written to it.
    pub(crate) fn bound(&mut self) -> u64 {
        let Ok(length) = self.file.metadata().map(|m| m.len()) else { return 0 };
        let until = length.saturating_sub(TAIL) & !0xffff;
        if length > LIMIT && until > self.punched {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fallocate(&self.file, flags, self.punched, until - self.punched) {
                Ok(()) => self.punched = until,
                Err(_) => self.cut(),
            }
        }
        length
    }

    /// For file systems without holes: cuts off all bytes after the head.
    fn cut(&mut self) {
        let note = format!("{NOTE}{UNCOUNTED}\n");
        let cut = self.file.set_len(HEAD).and_then(|()| self.file.write_all(note.as_bytes()));
        // Best effort: the next call tries again.
        drop(cut);
    }

    /// After the end of the action, writes its output into another folder, without values of secrets.
    pub(crate) fn finish_into(mut self, folder: &Path, redactor: &Redactor) -> io::Result<()> {
        let length = self.bound();
        let mut read = |from: u64, max: u64| -> io::Result<Zeroizing<Vec<u8>>> {
            let mut bytes = Zeroizing::new(Vec::new());
            self.file.seek(SeekFrom::Start(from))?;
            (&self.file).take(max).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let clean = if length <= LIMIT {
            redactor.bytes(&read(0, LIMIT)?)
        } else {
            // No part of a value may remain at a cut.
            let (head, tail) = (read(0, HEAD)?, read(length - TAIL, TAIL)?);
            let mut clean = redactor.part(&head, 0, head.len().saturating_sub(redactor.longest()));
            clean.extend(left_out(length - HEAD - TAIL).into_bytes());
            clean.extend(redactor.part(&tail, redactor.longest(), tail.len()));
            clean
        };
        durable::write_file(folder, self.name, 0o600, &clean, Sync::Later)
    }

    /// Closes the hole after the end of the action: head, a note, tail.
    pub(crate) fn finish(mut self) {
        let length = self.bound();
        if length <= LIMIT {
            return;
        }
        let compact = || -> io::Result<()> {
            let mut bytes = vec![0; HEAD as usize];
            (&self.file).seek(SeekFrom::Start(0))?;
            (&self.file).read_exact(&mut bytes)?;
            bytes.extend(left_out(length - HEAD - TAIL).into_bytes());
            (&self.file).seek(SeekFrom::Start(length - TAIL))?;
            (&self.file).take(TAIL).read_to_end(&mut bytes)?;
            durable::write_file(&self.folder, self.name, 0o600, &bytes, Sync::Later)
        };
        // If this fails, the file is as bounded as before, only less readable.
        drop(compact());
    }
}

/// The note in a file whose middle was left out: its start, and its end with or without the number of bytes.
const NOTE: &str = "\n[... ";
const COUNTED: &str = " bytes left out ...]";
const UNCOUNTED: &str = "output left out ...]";

/// The layout of a service's output file, whose middle may have been left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The number of bytes left out after the head, and the length of the note about them.
    left_out: Option<(u64, u64)>,
    /// The size of the file in bytes.
    length: u64,
}

impl Shape {
    /// Reads the layout of a file.
    pub(crate) fn of(file: &mut File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut left_out = None;
        if length > HEAD {
            let mut note = Vec::new();
            file.seek(SeekFrom::Start(HEAD))?;
            (&mut *file).take(64).read_to_end(&mut note)?;
            left_out = read_note(&note);
        }
        Ok(Self { left_out, length })
    }

    /// So many bytes were left out of its middle.
    pub(crate) fn missing(self) -> u64 {
        self.left_out.map_or(0, |(bytes, _)| bytes)
    }

    /// The total number of printed bytes.
    pub(crate) fn printed(self) -> u64 {
        self.left_out.map_or(self.length, |(bytes, note)| self.length - note + bytes)
    }

    /// The position in the file of this position in the output, and the number of bytes after it that are missing.
    /// Positions far from the end may be in a hole.
    pub(crate) fn find(self, printed: u64) -> (u64, u64) {
        match self.left_out {
            Some((bytes, note)) if printed >= HEAD + bytes => (printed - bytes + note, 0),
            Some((bytes, note)) if printed >= HEAD => (HEAD + note, HEAD + bytes - printed),
            Some(_) | None => (printed, 0),
        }
    }
}

/// The position of the first whole line at or after `from`; `None` if there is no line. The byte before `from` shows
/// whether a line starts there.
pub(crate) fn whole_line(bytes: &[u8], from: usize) -> Option<usize> {
    let before = from.saturating_sub(1);
    let end = bytes.get(before..)?.iter().position(|b| *b == b'\n')?;
    Some(before + end + 1).filter(|at| *at < bytes.len())
}

/// The number of bytes at the end that begin an incomplete character.
pub(crate) fn half_character(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    match std::str::from_utf8(tail) {
        Err(error) if error.error_len().is_none() => tail.len() - error.valid_up_to(),
        // The slice begins inside a character.
        Err(error) if error.valid_up_to() == 0 && tail.len() > 1 => half_character(&tail[1..]),
        Ok(_) | Err(_) => 0,
    }
}

/// The note for this many bytes left out.
pub(crate) fn left_out(bytes: u64) -> String {
    format!("{NOTE}{bytes}{COUNTED}\n")
}

/// The number of bytes in a note, and its length.
fn read_note(text: &[u8]) -> Option<(u64, u64)> {
    let line = text.strip_prefix(NOTE.as_bytes())?;
    let end = line.iter().position(|b| *b == b'\n')?;
    let words = std::str::from_utf8(&line[..end]).ok()?;
    let note = (NOTE.len() + end + 1) as u64;
    if words == UNCOUNTED {
        return Some((0, note));
    }
    Some((words.strip_suffix(COUNTED)?.parse().ok()?, note))
}

/// The end of a file, at most `max` bytes, from the start of a line if possible; empty if the file is missing, or an
/// action has replaced it by another object.
pub(crate) fn tail(path: &Path, max: usize) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = open_regular(path)?;
        let begin = file.metadata()?.len().saturating_sub(max as u64);
        file.seek(SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.take(max as u64).read_to_end(&mut bytes)?;
        if begin > 0 {
            bytes.drain(..whole_line(&bytes, 0).unwrap_or(0));
        }
        Ok(bytes)
    };
    read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The last printed lines of a job: of its error output, or else of its standard output. Not for a running job with
/// secrets.
#[must_use]
pub fn last_lines(job_folder: &Path) -> String {
    last_lines_by(|name| tail(&job_folder.join(name), LAST_LINES))
}

/// The same for a running job with secrets. The values must be known to remove them.
pub(super) fn private_last_lines(private: &Path) -> String {
    let Ok(opened) = Opened::read(private) else { return String::new() };
    let redactor = opened.redactor();
    last_lines_by(|name| redactor.tail(&private.join(name), LAST_LINES))
}

fn last_lines_by(read: impl Fn(&str) -> String) -> String {
    let said = |name: &str| escape(read(name).trim_end());
    let text = said(OUTPUT);
    let text = if text.is_empty() { said(STDOUT) } else { text };
    // Escapes make the text longer again: keep its end.
    let mut begin = text.len().saturating_sub(LAST_LINES);
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    text[begin..].to_owned()
}

/// Makes text harmless for terminals: escapes control characters except line ends and tabs.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Direction marks can make a line appear as other text.
        let deceptive = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if deceptive || (c.is_control() && !matches!(c, '\n' | '\t')) {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_flood_keeps_its_head_and_tail_in_little_space() {
        let folder = tempfile::tempdir().expect("folder");
        let mut output = OutputFile::open(folder.path(), OUTPUT).expect("opened");
        let mut writer = output.handle().expect("handle");
        let path = folder.path().join(OUTPUT);
        for n in 0..80_000 {
            writeln!(writer, "line {n:08} of a long, long text that nobody will ever read, {n:08}").expect("written");
            if n % 4000 == 0 {
                output.bound();
                let room = std::fs::metadata(&path).expect("there").blocks() * 512;
                assert!(room <= 2 * LIMIT, "{room} bytes on disk after line {n}");
            }
        }
        output.finish();
        let text = std::fs::read_to_string(&path).expect("whole characters");
        assert!((text.len() as u64) < LIMIT, "{}", text.len());
        assert!(text.starts_with("line 00000000"));
        assert!(text.contains("bytes left out"));
        assert!(text.ends_with("00079999\n"));
        assert!(!text.contains('\0'));
        let last = last_lines(folder.path());
        assert!(last.len() <= LAST_LINES && last.ends_with("00079999") && last.starts_with("line "), "{last}");
    }

    #[test]
    fn a_file_system_without_holes_keeps_the_head_and_continues() {
        let folder = tempfile::tempdir().expect("folder");
        let mut output = OutputFile::open(folder.path(), OUTPUT).expect("opened");
        let mut writer = output.handle().expect("handle");
        writer.write_all(&vec![b'a'; 3 << 20]).expect("written");
        output.cut();
        writer.write_all(b"the end").expect("written");
        let text = tail(&folder.path().join(OUTPUT), 1 << 20);
        assert!(text.len() < 70_000 && text.ends_with("left out ...]\nthe end"), "{}", text.len());
    }

    #[test]
    fn last_lines_are_harmless_and_short() {
        let folder = tempfile::tempdir().expect("folder");
        assert_eq!(last_lines(folder.path()), "");
        std::fs::write(folder.path().join(STDOUT), "only this\n").expect("written");
        assert_eq!(last_lines(folder.path()), "only this");
        std::fs::write(folder.path().join(OUTPUT), b"a\x1b[31mred\r\n\tb\xff \xe2\x80\xaex\n\n").expect("written");
        assert_eq!(last_lines(folder.path()), "a\\u{1b}[31mred\\r\n\tb\u{fffd} \\u{202e}x");
        std::fs::write(folder.path().join(OUTPUT), "\u{1b}ä".repeat(3000)).expect("written");
        let last = last_lines(folder.path());
        assert!(last.len() <= LAST_LINES && last.ends_with('ä'));
    }
}
