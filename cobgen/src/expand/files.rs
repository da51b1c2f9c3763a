//! Commands, and the payload files beside the model that they need.
//!
//! A word `./x` of a command names a file beside the model; the file is content and travels in the bundle. If `./x` is
//! the program, it must exist. Other files `./x` travel if they exist: a shell text may also create such a file. Each
//! content is stored once, by its hash.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use cob_types::BlobHash;
use cob_types::canonical::blob_hash;
use cob_types::kind::{Command, PayloadFile};

use super::Report;
use super::file_tree::Below;
use crate::diagnostic::Diagnostic;
use crate::model::{Mark, Marked, Run, RunForm, is_blank_that_is_none};

/// The largest payload file, in bytes.
const MAX_PAYLOAD: u64 = 16 << 20;
/// The most bytes of all payload files together: a bundle holds at most 256 MiB.
const MAX_PAYLOADS: u64 = 192 << 20;

/// The payload files of a kind or a change object: `lib/x.sh` and its content.
pub(super) type Payload = BTreeMap<String, PayloadFile>;

/// All payload files.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Contents by hash.
    pub(super) blobs: BTreeMap<BlobHash, Vec<u8>>,
    /// Hashes by file name.
    pub(super) names: BTreeMap<String, BlobHash>,
    total: u64,
    /// The files read so far; `None` for a faulty file, which is already reported.
    read: BTreeMap<PathBuf, Option<PayloadFile>>,
}

impl Files {
    /// A command in executable form; its files are added to `payload`.
    pub(super) fn command(&mut self, run: &Run, payload: &mut Payload, report: &mut Report<'_>) -> Option<Command> {
        let mark = run.at.mark;
        match &run.what {
            RunForm::Shell(text) if text.trim().is_empty() => {
                report.push(mark, Diagnostic::error("empty-command", "this command is empty"));
                None
            }
            RunForm::Shell(text) => {
                report_odd_signs(text, mark, report);
                let program = text.split_whitespace().next().unwrap_or_default();
                for word in shell_words(text) {
                    self.carry(&word, mark, word == program, payload, report);
                }
                self.must_be_executable(program, mark, payload, report);
                Some(Command::Shell(text.clone()))
            }
            RunForm::Argv(words) => {
                for (i, word) in words.iter().enumerate() {
                    report_odd_signs(&word.value, word.mark, report);
                    self.carry(&word.value, word.mark, i == 0, payload, report);
                }
                if let Some(program) = words.first() {
                    self.must_be_executable(&program.value, program.mark, payload, report);
                }
                if words.first().is_none_or(|w| w.value.trim().is_empty()) {
                    report.push(mark, Diagnostic::error("empty-command", "this command names no program"));
                    return None;
                }
                Some(Command::Argv(words.iter().map(|w| w.value.clone()).collect()))
            }
        }
    }

    /// Reports a program beside the model that is not executable.
    fn must_be_executable(&self, program: &str, mark: Mark, payload: &Payload, report: &mut Report<'_>) {
        let Some(file) = program.strip_prefix("./").and_then(|name| payload.get(name)) else { return };
        if file.mode & 0o111 == 0 {
            let fault = Diagnostic::error("bad-file", format!("`{program}` is a command but not executable"));
            report.push(mark, fault.help(format!("run chmod +x {program}, or name its interpreter: `sh {program}`")));
        }
    }

    /// Adds files that the model lists explicitly.
    pub(super) fn named(&mut self, files: &[Marked<String>], payload: &mut Payload, report: &mut Report<'_>) {
        for file in files {
            if file.value.starts_with("./") {
                self.carry(&file.value, file.mark, true, payload, report);
            } else {
                let fault = Diagnostic::error("bad-file", format!("{:?} does not begin with `./`", file.value))
                    .help("files of a model are beside the model and are named as ./x");
                report.push(file.mark, fault);
            }
        }
    }

    /// The text of a file beside the model that is no payload itself: a template.
    pub(super) fn text(&self, name: &str, mark: Mark, report: &mut Report<'_>) -> Option<String> {
        let word = if name.starts_with("./") { name.to_owned() } else { format!("./{name}") };
        let relative = word.trim_start_matches("./");
        let folder = report.folder(mark);
        let inside = Path::new(relative).components().all(|part| matches!(part, Component::Normal(_)));
        let read = if inside && !relative.is_empty() {
            read_beside(&folder.join(relative), &folder, &word).map(|(bytes, _)| bytes)
        } else {
            let fault = Diagnostic::error("bad-file", format!("{word:?} leaves the model's folder"));
            Err(Box::new(fault.help("put the file beside the model")))
        };
        let text = read.and_then(|bytes| {
            let not_text = |_| Box::new(Diagnostic::error("bad-file", format!("`{word}` is not UTF-8 text")));
            String::from_utf8(bytes).map_err(not_text)
        });
        text.map_err(|fault| report.push(mark, *fault)).ok()
    }

    /// The entries of a folder beside the model, sorted by name.
    pub(super) fn below(
        &self,
        name: &str,
        mark: Mark,
        most: usize,
        report: &mut Report<'_>,
    ) -> Option<BTreeMap<String, Below>> {
        let folder = report.folder(mark);
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        let root = here.join(name);
        let mut fail = |text: String, help: &str| report.push(mark, Diagnostic::error("bad-file", text).help(help));
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        let real = root.canonicalize().ok().zip(here.canonicalize().ok());
        if !inside || !real.is_some_and(|(real, here)| real.starts_with(here)) {
            fail(
                format!("`./{name}` leaves the model's folder"),
                "put it beside the model: only files there travel to hosts",
            );
            return None;
        }
        let mut all = BTreeMap::new();
        let mut open = vec![String::new()];
        while let Some(relative) = open.pop() {
            let entries = match std::fs::read_dir(root.join(&relative)) {
                Ok(entries) => entries,
                Err(error) => {
                    fail(format!("can't read `./{name}/{relative}`: {error}"), "it travels with all its files");
                    return None;
                }
            };
            for entry in entries.flatten() {
                let Some(last) = entry.file_name().to_str().map(str::to_owned) else {
                    fail(format!("a name in `./{name}/{relative}` is no UTF-8"), "rename it");
                    return None;
                };
                let path = if relative.is_empty() { last } else { format!("{relative}/{last}") };
                let sort = match entry.file_type() {
                    Ok(sort) if sort.is_dir() => {
                        open.push(path.clone());
                        Below::Folder
                    }
                    Ok(sort) if sort.is_symlink() => match std::fs::read_link(entry.path()) {
                        Ok(target) => Below::Link(target.to_string_lossy().into_owned()),
                        Err(_) => continue,
                    },
                    Ok(_) | Err(_) => Below::File,
                };
                all.insert(path, sort);
                if all.len() > most {
                    fail(
                        format!("`./{name}` has more than {most} files and folders"),
                        "download so many files in the action itself",
                    );
                    return None;
                }
            }
        }
        Some(all)
    }

    /// Whether a file is part of a payload.
    pub(super) fn travels(&self, path: &Path) -> bool {
        let Ok(real) = path.canonicalize() else { return false };
        self.read.iter().any(|(path, file)| file.is_some() && path.canonicalize().is_ok_and(|p| p == real))
    }

    /// Adds the file of a word `./x`, if it is a file.
    fn carry(&mut self, word: &str, mark: Mark, needed: bool, payload: &mut Payload, report: &mut Report<'_>) {
        let Some(name) = word.strip_prefix("./").filter(|n| !n.is_empty()) else { return };
        let path = report.folder(mark).join(name);
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if !inside {
            if needed || path.exists() {
                let fault = Diagnostic::error("bad-file", format!("{word:?} leaves the model's folder"))
                    .help("put the file beside the model: only files there travel to hosts");
                report.push(mark, fault);
            }
            return;
        }
        if !needed && !path.exists() {
            return;
        }
        if !self.read.contains_key(&path) {
            let file = self.load(&path, &report.folder(mark), word).map_err(|fault| report.push(mark, *fault)).ok();
            let bytes = file.as_ref().and_then(|file| self.blobs.get(&file.blob));
            if let (Some(bytes), Some(file)) = (bytes, &file) {
                report_line_ends(word, bytes, file.mode & 0o111 != 0, mark, report);
            }
            self.read.insert(path.clone(), file);
        }
        if let Some(Some(file)) = self.read.get(&path) {
            self.names.insert(name.to_owned(), file.blob);
            payload.insert(name.to_owned(), file.clone());
        }
    }

    fn load(&mut self, path: &Path, folder: &Path, word: &str) -> Result<PayloadFile, Box<Diagnostic>> {
        let (bytes, meta) = read_beside(path, folder, word)?;
        let fault = |text: String, help: &str| Box::new(Diagnostic::error("bad-file", text).help(help));
        let size = bytes.len() as u64;
        let blob = blob_hash(&bytes);
        if !self.blobs.contains_key(&blob) {
            self.total += size;
            if self.total > MAX_PAYLOADS {
                let text = format!("with `{word}` the files of this model are larger than {} MiB", MAX_PAYLOADS >> 20);
                return Err(fault(text, "download large files in the action itself"));
            }
            self.blobs.insert(blob, bytes);
        }
        Ok(PayloadFile { mode: mode(&meta), blob })
    }
}

/// Reports a script whose first line has a Windows line end: the kernel looks for an interpreter whose name ends in a
/// carriage return, and reports "not found" for an existing file. For a program beside the model this is an error.
pub(super) fn report_line_ends(name: &str, bytes: &[u8], program: bool, mark: Mark, report: &mut Report<'_>) {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if !first.starts_with(b"#!") || !first.ends_with(b"\r") {
        return;
    }
    let what = format!("the script `{name}` has Windows line ends (CR LF): Linux does not find its interpreter");
    let fault = if program { Diagnostic::error("line-ends", what) } else { Diagnostic::warning("line-ends", what) };
    let help = "convert it: `sed -i 's/\\r$//' FILE`, and check the editor's and git's `eol` settings";
    report.push(mark, fault.help(help));
}

/// Reports characters in a command that the shell and a person read differently: blanks that are no blanks for the
/// shell, zero-width marks, typographic quotes, Windows line ends.
fn report_odd_signs(text: &str, mark: Mark, report: &mut Report<'_>) {
    if text.contains('\0') {
        let what = "this command has a NUL character, which no program can be given";
        report.push(mark, Diagnostic::error("odd-character", what).help("take the character out"));
        return;
    }
    let is_odd =
        |c: &char| is_blank_that_is_none(*c) || matches!(c, '\r' | '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}');
    let Some((at, sign)) = text.char_indices().find(|(_, c)| is_odd(c)) else { return };
    let line = text[..at].matches('\n').count() + 1;
    let name = match sign {
        '\r' => "a carriage return (Windows line end)".to_owned(),
        '\u{a0}' => "a no-break space (U+00A0)".to_owned(),
        sign if "\u{2018}\u{2019}\u{201c}\u{201d}".contains(sign) => {
            format!("a typographic quote (U+{:04X})", u32::from(sign))
        }
        sign => format!("an invisible character (U+{:04X})", u32::from(sign)),
    };
    let what = format!("line {line} of this command has {name}: the shell treats it as a part of a word");
    let help = "write a plain blank, quote or line end; copied text often contains special characters";
    report.push(mark, Diagnostic::warning("odd-character", what).help(help));
}

/// Reads a file beside the model; a link must not lead out of the model's folder.
fn read_beside(path: &Path, folder: &Path, word: &str) -> Result<(Vec<u8>, std::fs::Metadata), Box<Diagnostic>> {
    let fault = |text: String, help: &str| Box::new(Diagnostic::error("bad-file", text).help(help));
    let unreadable = |e: std::io::Error| {
        fault(format!("can't read `{word}`: {e}"), &format!("it is looked for beside the model, at {}", path.display()))
    };
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let real = path.canonicalize().map_err(unreadable)?;
    if !here.canonicalize().is_ok_and(|here| real.starts_with(here)) {
        let text = format!("`{word}` is a link that leaves the model's folder");
        return Err(fault(text, "put the file itself beside the model: only files there travel to hosts"));
    }
    let meta = std::fs::metadata(&real).map_err(unreadable)?;
    if meta.is_dir() {
        return Err(fault(format!("`{word}` is a folder"), "only files travel; list each file under `files`"));
    }
    if !meta.is_file() {
        return Err(fault(format!("`{word}` is not a regular file"), "only regular files travel"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(&real).and_then(|f| f.take(MAX_PAYLOAD + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_PAYLOAD {
        let text = format!("`{word}` is larger than {} MiB", MAX_PAYLOAD >> 20);
        return Err(fault(text, "download large files in the action itself"));
    }
    Ok((bytes, meta))
}

/// A file that is executable here is executable on the host; only its owner may write to it.
#[cfg(unix)]
fn mode(meta: &std::fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    if meta.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 }
}

/// The words of a shell text that may name a file, without shell syntax.
fn shell_words(text: &str) -> Vec<String> {
    text.split(|c: char| c.is_whitespace() || ";|&()<>\"'`$={}".contains(c))
        .filter(|word| word.starts_with("./"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell_text_are_found_between_its_signs() {
        let text = "A=./a.sh; ./b.sh \"./c d\" && (./e|./f) > ./g `./h` x./i";
        assert_eq!(shell_words(text), ["./a.sh", "./b.sh", "./c", "./e", "./f", "./g", "./h"]);
    }
}
