//! Reads the output of a running command from its file, in pieces, without values of secrets.
//!
//! The runner bounds the file by punching a hole into its middle. The zeros of the hole are no output: a slow reader
//! stops there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use cob_types::command_run::MOST_OUTPUT;
use rustix::fs::{SeekFrom, seek};
use zeroize::Zeroizing;

use crate::run::{Redactor, half_character};

/// So much is read at a time.
const WINDOW: usize = 64 << 10;

/// The reader of an output stream.
pub(super) struct Follow {
    file: File,
    /// So much has been read.
    at: u64,
    /// The possible start of a value whose rest is still to come.
    held: Zeroizing<Vec<u8>>,
    /// Of a character, without its end.
    half: Vec<u8>,
    redactor: Arc<Redactor>,
    /// The reader has stopped at the limit or at a hole.
    cut: bool,
}

impl Follow {
    pub(super) fn new(file: File, redactor: Arc<Redactor>) -> Self {
        Self { file, at: 0, held: Zeroizing::new(Vec::new()), half: Vec::new(), redactor, cut: false }
    }

    /// Whether there were new bytes, and the text that can be shown of them.
    pub(super) fn read(&mut self) -> io::Result<(bool, String)> {
        let room = usize::try_from(MOST_OUTPUT.saturating_sub(self.at)).unwrap_or(WINDOW).min(WINDOW);
        if self.cut || room == 0 {
            return Ok((false, String::new()));
        }
        let mut bytes = Zeroizing::new(vec![0; room]);
        let read = self.file.read_at(&mut bytes, self.at)?;
        if read == 0 {
            return Ok((false, String::new()));
        }
        // Looked for behind the read: a hole that is punched from now on does not matter.
        let hole = seek(&self.file, SeekFrom::Hole(self.at)).unwrap_or(u64::MAX);
        let good = usize::try_from(hole.saturating_sub(self.at)).unwrap_or(usize::MAX).min(read);
        self.cut = good < read;
        self.at += good as u64;
        self.held.extend_from_slice(&bytes[..good]);
        let clean = self.redactor.take_clean(&mut self.held);
        Ok((true, self.whole_characters(&clean)))
    }

    /// The rest, once the command has ended and all has been read.
    pub(super) fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        // The end of a value may have been cut off.
        let is_whole = !self.cut && self.at < MOST_OUTPUT;
        let clean = if is_whole { self.redactor.bytes(&held) } else { Vec::new() };
        let mut text = self.whole_characters(&clean);
        text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.half)));
        text
    }

    fn whole_characters(&mut self, clean: &[u8]) -> String {
        self.half.extend_from_slice(clean);
        let whole = self.half.len() - half_character(&self.half);
        let rest = self.half.split_off(whole);
        String::from_utf8_lossy(&std::mem::replace(&mut self.half, rest)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    fn follow(values: &[&str]) -> (File, Follow) {
        let file = tempfile::tempfile().expect("a file");
        let redactor = Arc::new(Redactor::of(values.iter().copied()));
        (file.try_clone().expect("cloned"), Follow::new(file, redactor))
    }

    fn all(follow: &mut Follow) -> String {
        let mut text = String::new();
        while let (true, more) = follow.read().expect("read") {
            text.push_str(&more);
        }
        text
    }

    #[test]
    fn output_comes_in_pieces_with_whole_characters_and_no_secret_values() {
        let (mut file, mut follow) = follow(&["hunter2-secret"]);
        let mut said = Vec::new();
        for piece in ["a ä".as_bytes(), b"\xc3", b"\xa4\nhunter2-", b"secret and hunter2-", b"others\n", b"hunter2-s"]
        {
            file.write_all(piece).expect("written");
            said.push(all(&mut follow));
        }
        assert_eq!(said[1], "", "half a character is held");
        assert_eq!(said[2], "ä\n", "the possible start of a value is held");
        assert_eq!(said.concat() + &follow.finish(), "a ää\n[secret] and hunter2-others\nhunter2-s");
    }

    #[test]
    fn a_flood_is_read_up_to_the_limit() {
        let (mut file, mut follow) = follow(&[]);
        let line = "y".repeat(999) + "\n";
        for _ in 0..2000 {
            file.write_all(line.as_bytes()).expect("written");
        }
        assert_eq!(all(&mut follow).len() as u64, MOST_OUTPUT);
        assert_eq!(follow.finish(), "");
    }

    #[test]
    fn a_reader_that_falls_behind_stops_at_the_hole() {
        let (mut file, mut follow) = follow(&["secret-value"]);
        file.write_all(&[b'a'; 100 << 10]).expect("written");
        assert_eq!(follow.read().expect("read").1.len(), WINDOW);
        file.write_all(&[b'b'; 400 << 10]).expect("written");
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&file, flags, 80 << 10, 200 << 10).is_err() {
            eprintln!("skipped: files have no holes here");
            return;
        }
        let rest = all(&mut follow);
        assert_eq!((rest.len(), rest.contains('\0')), (16 << 10, false));
        file.write_all(b"more").expect("written");
        assert_eq!(all(&mut follow) + &follow.finish(), "", "output after the hole is not shown");
    }
}
