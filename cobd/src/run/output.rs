//! What actions print: bounded while they run, and fit for people afterwards.
//!
//! The action writes straight into a file (it survives daemon and runner). When the file grows beyond
//! its limit, the middle is punched out of it: the head stays, the tail goes on, no writer notices.

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

/// A file may take this much room.
const LIMIT: u64 = 1 << 20;
/// Of a longer one, this much of its beginning is kept.
const HEAD: u64 = 64 << 10;
/// And this much of its end.
const TAIL: u64 = 512 << 10;
/// Last lines, as they are shown with a failure.
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
    /// Makes the file, or goes on behind what is in it.
    pub(crate) fn open(folder: &Path, name: &'static str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(folder.join(name))?;
        Ok(Self { folder: folder.to_owned(), name, file, punched: HEAD })
    }

    /// A handle for a child process.
    pub(crate) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Called again and again while something writes. Returns how much the file holds.
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

    /// For file systems without holes: everything behind the head goes.
    fn cut(&mut self) {
        let cut = self.file.set_len(HEAD).and_then(|()| self.file.write_all(b"\n[... output left out ...]\n"));
        // Best effort: the next call tries again.
        drop(cut);
    }

    /// Once the action has ended, writes what it printed into another folder, without values.
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
            // A value that reaches over a cut must not leave a part of itself behind.
            let (head, tail) = (read(0, HEAD)?, read(length - TAIL, TAIL)?);
            let mut clean = redactor.part(&head, 0, head.len().saturating_sub(redactor.longest()));
            clean.extend(left_out(length - HEAD - TAIL).into_bytes());
            clean.extend(redactor.part(&tail, redactor.longest(), tail.len()));
            clean
        };
        durable::write_file(folder, self.name, 0o600, &clean, Sync::Later)
    }

    /// Closes the hole once the action has ended: head, a note, tail.
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
        // Without it the file is as bounded as before, only less nice to read.
        drop(compact());
    }
}

/// Where what a service prints is in its file, of which the middle may have been left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// So many bytes were left out behind the head, and the note of it takes so many.
    left_out: Option<(u64, u64)>,
    /// Bytes in the file.
    length: u64,
}

impl Shape {
    /// Looks at a file.
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

    /// How much was printed in all.
    pub(crate) fn printed(self) -> u64 {
        self.left_out.map_or(self.length, |(bytes, note)| self.length - note + bytes)
    }

    /// Where in the file what was printed from there on is, and how much of that is not there any more. What is far
    /// from the end may be a hole.
    pub(crate) fn find(self, printed: u64) -> (u64, u64) {
        match self.left_out {
            Some((bytes, note)) if printed >= HEAD + bytes => (printed - bytes + note, 0),
            Some((bytes, note)) if printed >= HEAD => (HEAD + note, HEAD + bytes - printed),
            Some(_) | None => (printed, 0),
        }
    }
}

/// Where the first whole line begins at this place or after it; none: there is none. The byte before the place tells
/// whether a line begins there.
pub(crate) fn whole_line(bytes: &[u8], from: usize) -> Option<usize> {
    let before = from.saturating_sub(1);
    let end = bytes.get(before..)?.iter().position(|b| *b == b'\n')?;
    Some(before + end + 1).filter(|at| *at < bytes.len())
}

/// The note where so many bytes were left out.
pub(crate) fn left_out(bytes: u64) -> String {
    format!("\n[... {bytes} bytes left out ...]\n")
}

/// How much a note says was left out, and how long it is.
fn read_note(text: &[u8]) -> Option<(u64, u64)> {
    let line = text.strip_prefix(b"\n[... ")?;
    let end = line.iter().position(|b| *b == b'\n')?;
    let words = std::str::from_utf8(&line[..end]).ok()?;
    let note = ("\n[... ".len() + end + 1) as u64;
    if words == "output left out ...]" {
        return Some((0, note));
    }
    Some((words.strip_suffix(" bytes left out ...]")?.parse().ok()?, note))
}

/// The end of a file, at most `max` bytes, from the beginning of a line if there is one; empty when
/// there is no such file, or something else that an action may have put there.
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

/// The last lines that a job printed: what it complained of, or else what it said. Not for one with secrets that has not
/// ended.
#[must_use]
pub fn last_lines(job_folder: &Path) -> String {
    last_lines_by(|name| tail(&job_folder.join(name), LAST_LINES))
}

/// The same of a job with secrets that has not ended. Without its values nobody can tell what may be shown.
pub(super) fn private_last_lines(private: &Path) -> String {
    let Ok(opened) = Opened::read(private) else { return String::new() };
    let redactor = opened.redactor();
    last_lines_by(|name| redactor.tail(&private.join(name), LAST_LINES))
}

fn last_lines_by(read: impl Fn(&str) -> String) -> String {
    let said = |name: &str| escape(read(name).trim_end());
    let text = said(OUTPUT);
    let text = if text.is_empty() { said(STDOUT) } else { text };
    // Escapes make it longer again: its end is what counts.
    let mut begin = text.len().saturating_sub(LAST_LINES);
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    text[begin..].to_owned()
}

/// Makes text harmless for terminals: control characters but line ends and tabs are written out.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Direction marks can make a line read as something else than it is.
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
    fn a_flood_keeps_head_and_tail_and_little_room() {
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
    fn a_file_system_without_holes_keeps_the_head_and_goes_on() {
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
