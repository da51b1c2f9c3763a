//! Edits files that other programs write as well, without losing their lines.
//!
//! A program may append to the file or replace it at any time, without a lock. Therefore an edit exchanges the new file
//! with the old file, and then compares the old file with the content that it read before. If lines were appended
//! meanwhile, it appends them to the new file. After any other change, it puts the old file back and reads it again.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};

use super::bytes::{bytes_of, text_of};
use super::host::{Host, MAX_FILE, Owned, give_to, own_link, too_long};
use crate::durable;

/// The most repetitions of an edit after concurrent changes.
const ATTEMPTS: u32 = 100;
/// How long an edit waits for programs that have the old file open for writing.
const WRITERS: Duration = Duration::from_secs(2);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// The lines of a text, each with its line end.
pub(in crate::kinds) fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Inserts a line, given without its line end, before the line `at`. A last line without a line end stays the last
/// line.
pub(in crate::kinds) fn insert_line(lines: &mut Vec<String>, at: usize, line: &str) {
    let is_open = lines.last().is_some_and(|last| !last.ends_with('\n'));
    let at = if is_open { at.min(lines.len() - 1) } else { at };
    lines.insert(at, format!("{line}\n"));
}

impl Host {
    /// Edits or creates a file that other programs change as well. `change` returns the new text for a text, or `None`
    /// if no edit is needed. Returns whether the file changed. Owner, group, mode and extended attributes stay.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn edit(
        &self,
        absolute: &str,
        mode: u32,
        change: &dyn Fn(&str) -> Option<String>,
    ) -> Result<bool, String> {
        let path = self.path(absolute);
        let place = || {
            // A link stands for its target.
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            self.is_inside(absolute, &path).map(|()| path)
        };
        edit(&place, &path, &Rules { mode, owner: None, may: &|_| Ok(()) }, change)
    }

    /// The same as [`Self::edit`], with a change that may fail; the file then stays as it is.
    ///
    /// # Errors
    /// The reason as text: of the change, or with the file.
    pub(in crate::kinds) fn try_edit(
        &self,
        absolute: &str,
        mode: u32,
        change: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<(), String> {
        let failed = RefCell::new(None);
        let changed = |text: &str| match change(text) {
            Ok(new) => Some(new).filter(|new| new != text),
            Err(why) => {
                *failed.borrow_mut() = Some(why);
                None
            }
        };
        self.edit(absolute, mode, &changed)?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Whether an edit of the file is under way or was killed.
    pub(in crate::kinds) fn is_half_edited(&self, absolute: &str) -> bool {
        fs::symlink_metadata(self.beside(absolute)).is_ok()
    }

    /// Removes the leftovers of a killed edit beside the file. Only the holder of the file's lock may call this.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn clear_edit(&self, absolute: &str) -> Result<(), String> {
        let beside = self.beside(absolute);
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("{}: {error}", beside.display())),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn beside(&self, absolute: &str) -> PathBuf {
        let path = self.path(absolute);
        beside(&path.canonicalize().unwrap_or(path))
    }
}

/// The rules of an edit.
pub(super) struct Rules<'a> {
    /// The mode of a new file.
    pub(super) mode: u32,
    /// The owner and group of a new file. `None`: of this program.
    pub(super) owner: Option<(u32, u32)>,
    /// Rejects a file that must not be read or written.
    pub(super) may: &'a dyn Fn(&fs::Metadata) -> io::Result<()>,
}

/// Edits or creates the file at the path that `place` returns; `shown` is its path for people.
pub(super) fn edit(
    place: &dyn Fn() -> Result<PathBuf, String>,
    shown: &Path,
    rules: &Rules<'_>,
    change: &dyn Fn(&str) -> Option<String>,
) -> Result<bool, String> {
    let failed = |error: io::Error| format!("{}: {error}", shown.display());
    let mut is_changed = false;
    for _ in 0..ATTEMPTS {
        let path = place()?;
        let old = Old::open(&path, rules).map_err(failed)?;
        let Some(new) = change(&text_of(old.content().to_vec())) else { return Ok(is_changed) };
        let new = bytes_of(&new).into_owned();
        if new.len() as u64 > MAX_FILE {
            return Err(failed(too_long()));
        }
        is_changed |= old.replace(&path, &new, rules).map_err(failed)?;
    }
    Err(format!("{}: other programs change it all the time", shown.display()))
}

/// Opens a file itself, not the target of a link, and does not wait for the other end of a pipe.
pub(super) fn open_itself(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    options.custom_flags(i32::try_from(flags).expect("flags are few bits")).open(path)
}

/// The path of the new file before the exchange, and of the old file after it.
pub(super) fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.cob-new"))
}

/// A file as it was read. `None`: it did not exist.
struct Old(Option<(File, Vec<u8>)>);

impl Old {
    fn open(path: &Path, rules: &Rules<'_>) -> io::Result<Self> {
        match open_itself(path, OpenOptions::new().read(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(None)),
            opened => {
                let file = opened?;
                (rules.may)(&file.metadata()?)?;
                let content = content_of(&file)?;
                Ok(Self(Some((file, content))))
            }
        }
    }

    fn content(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |(_, content)| content)
    }

    /// Replaces the file by the new content, unless it changed meanwhile. Returns whether it did.
    fn replace(&self, path: &Path, new: &[u8], rules: &Rules<'_>) -> io::Result<bool> {
        let folder = path.parent().ok_or_else(|| io::Error::other("no file can be there"))?;
        fs::create_dir_all(folder)?;
        let is = self.0.as_ref().map(|(file, _)| file.metadata()).transpose()?;
        let mode = is.as_ref().map_or(rules.mode, |is| is.permissions().mode() & 0o7777);
        let like = self.0.as_ref().zip(is).map(|((file, _), is)| Owned::of(&own_link(file), &is));
        let fill = |file: &mut File| {
            match (&like, rules.owner) {
                (Some(like), _) => like.give(file)?,
                (None, Some((user, group))) => give_to(file, user, group)?,
                (None, None) => {}
            }
            file.write_all(new)
        };
        let staged = beside(path);
        durable::stage(&staged, mode, fill)?;
        let put = |flags| renameat_with(CWD, &staged, CWD, path, flags).map_err(io::Error::from);
        let exchange = |(file, before): &(File, Vec<u8>)| {
            // The write took a while. Lines that were appended meanwhile keep their place.
            let now = content_of(file)?;
            let added = now.strip_prefix(before.as_slice()).unwrap_or_default();
            append(&staged, added, rules)?;
            let texts = ([before, added].concat(), [new, added].concat());
            match put(RenameFlags::EXCHANGE) {
                // The file was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                exchanged => exchanged.and_then(|()| came_out(&staged, path, file, (&texts.0, &texts.1), rules)),
            }
        };
        let done = match &self.0 {
            Some(old) => exchange(old),
            None => match put(RenameFlags::NOREPLACE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                made => made.map(|()| true),
            },
        };
        if !matches!(done, Ok(true)) || self.0.is_some() {
            let _ = fs::remove_file(&staged);
        }
        durable::sync_folder(folder)?;
        done
    }
}

/// Compares the file that was replaced with the content that was read. Appended text is appended to the new file. After
/// any other change, the two files are exchanged back, and the answer is false.
fn came_out(
    staged: &Path,
    path: &Path,
    file: &File,
    (before, new): (&[u8], &[u8]),
    rules: &Rules<'_>,
) -> io::Result<bool> {
    let is_it = {
        let (out, was) = (fs::symlink_metadata(staged)?, file.metadata()?);
        (out.dev(), out.ino()) == (was.dev(), was.ino())
    };
    let mut failed = None;
    if is_it {
        match wait_for_writers(file).and_then(|()| content_of(file)) {
            Ok(after) => {
                if let Some(added) = after.strip_prefix(before) {
                    append(path, added, rules)?;
                    return Ok(true);
                }
            }
            // For example, appended lines have made it too long.
            Err(error) => failed = Some(error),
        }
    }
    renameat_with(CWD, staged, CWD, path, RenameFlags::EXCHANGE)?;
    let ours = open_itself(staged, OpenOptions::new().read(true))?;
    (rules.may)(&ours.metadata()?)?;
    wait_for_writers(&ours)?;
    append(path, content_of(&ours)?.strip_prefix(new).unwrap_or_default(), rules)?;
    failed.map_or(Ok(false), Err)
}

fn append(path: &Path, added: &[u8], rules: &Rules<'_>) -> io::Result<()> {
    if added.is_empty() {
        return Ok(());
    }
    let mut file = open_itself(path, OpenOptions::new().append(true))?;
    (rules.may)(&file.metadata()?)?;
    file.write_all(added)?;
    file.sync_all()
}

pub(super) fn content_of(file: &File) -> io::Result<Vec<u8>> {
    // A second open file leaves the read position of other readers unchanged.
    let again = File::open(own_link(file))?;
    let mut bytes = Vec::new();
    let read = again.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    // A partial content would be written back as the whole file.
    if read as u64 > MAX_FILE { Err(too_long()) } else { Ok(bytes) }
}

/// Waits until no other program has the replaced file open for writing. Programs can't open it any more.
pub(super) fn wait_for_writers(file: &File) -> io::Result<()> {
    let limit = Instant::now() + WRITERS;
    while cob_processes::has_writer(file)? && Instant::now() < limit {
        thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (tempfile::TempDir, Host, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let host = Host::below(Some(folder.path())).expect("absolute");
        let path = folder.path().join("hosts");
        (folder, host, path)
    }

    fn append_line(path: &Path, line: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(path).expect("open");
        file.write_all(line.as_bytes()).expect("written");
    }

    /// Adds our line once.
    fn with_ours(text: &str) -> Option<String> {
        (!text.contains("ours\n")).then(|| format!("ours\n{text}"))
    }

    #[test]
    fn a_change_of_others_between_reading_and_replacing_stays() {
        for (name, meddle, expected) in [
            ("appended", (|path| append_line(path, "theirs\n")) as fn(&Path), "ours\nold\ntheirs\n"),
            ("rewritten", |path| fs::write(path, "new\n").expect("written"), "ours\nnew\n"),
            (
                "replaced",
                |path| {
                    let other = path.with_extension("new");
                    fs::write(&other, "other\n").expect("written");
                    fs::rename(other, path).expect("renamed");
                },
                "ours\nother\n",
            ),
            ("removed", |path| fs::remove_file(path).expect("removed"), "ours\n"),
        ] {
            let (_folder, host, path) = host();
            fs::write(&path, "old\n").expect("written");
            let is_first = std::cell::Cell::new(true);
            let change = |text: &str| {
                // After the edit has read the file.
                if is_first.replace(false) {
                    meddle(&path);
                }
                with_ours(text)
            };
            assert_eq!(host.edit("/hosts", 0o644, &change), Ok(true), "{name}");
            assert_eq!(fs::read_to_string(&path).expect("read"), expected, "{name}");
            let left = fs::read_dir(path.parent().expect("a folder")).expect("list").count();
            assert_eq!(left, 1, "{name}: no file is left beside it");
        }
    }

    /// A program opened the file earlier, and writes after the replacement.
    #[test]
    fn a_late_write_into_the_replaced_file_stays() {
        let (_folder, host, path) = host();
        fs::write(&path, "old\n").expect("written");
        let mut late = OpenOptions::new().append(true).open(&path).expect("open");
        let before = fs::metadata(&path).expect("there").ino();
        let writer = {
            let path = path.clone();
            thread::spawn(move || {
                while fs::metadata(&path).is_ok_and(|meta| meta.ino() == before) {
                    thread::yield_now();
                }
                late.write_all(b"late\n").expect("written");
            })
        };
        assert_eq!(host.edit("/hosts", 0o644, &with_ours), Ok(true));
        writer.join().expect("ended");
        assert_eq!(fs::read_to_string(&path).expect("read"), "ours\nold\nlate\n");
    }

    #[test]
    fn a_replaced_file_that_became_too_long_returns() {
        let (_folder, _host, path) = host();
        let staged = beside(&path);
        fs::write(&staged, "old\n").expect("written");
        fs::write(&path, "ours\nold\n").expect("written");
        // The files are exchanged. A program appends to the replaced file.
        let old = File::open(&staged).expect("open");
        OpenOptions::new().write(true).open(&staged).expect("open").set_len(MAX_FILE + 1).expect("set");
        let rules = Rules { mode: 0o644, owner: None, may: &|_| Ok(()) };
        came_out(&staged, &path, &old, (b"old\n", b"ours\nold\n"), &rules).expect_err("too long");
        assert_eq!(fs::metadata(&path).expect("there").len(), MAX_FILE + 1);
        assert_eq!(fs::read_to_string(&staged).expect("read"), "ours\nold\n");
    }

    #[test]
    fn lines_of_a_program_that_appends_all_the_time_are_not_lost() {
        let (_folder, host, path) = host();
        fs::write(&path, "").expect("written");
        let writer = {
            let path = path.clone();
            thread::spawn(move || (0..500).for_each(|number| append_line(&path, &format!("{number}\n"))))
        };
        let toggled = |text: &str| {
            Some(if text.contains("ours\n") { text.replacen("ours\n", "", 1) } else { format!("ours\n{text}") })
        };
        let mut changes = 0;
        while !writer.is_finished() || changes == 0 {
            let once = std::cell::Cell::new(true);
            let change = |text: &str| once.replace(false).then(|| toggled(text)).flatten();
            host.edit("/hosts", 0o644, &change).expect("changed");
            changes += 1;
        }
        writer.join().expect("ended");
        let text = fs::read_to_string(&path).expect("read").replace("ours\n", "");
        let mut numbers: Vec<u32> = text.lines().map(|line| line.parse().expect("a whole line")).collect();
        // A line written into the old file just before its removal is appended after lines that the new file already
        // has.
        numbers.sort_unstable();
        assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn an_inserted_line_keeps_all_other_line_ends() {
        for text in ["", "a\n", "a", "a\r\nb\r\n", "a\r\nb"] {
            let mut with: Vec<String> = lines(text).into_iter().map(str::to_owned).collect();
            let at = with.len();
            insert_line(&mut with, at, "ours");
            let without: String = with.iter().filter(|line| *line != "ours\n").map(String::as_str).collect();
            assert_eq!((with.len(), without.as_str()), (lines(text).len() + 1, text));
        }
    }
}
