//! Folders that a user controls, such as a home.
//!
//! The daemon has rights that the user lacks, and the user may put a link, a hard link or a pipe in place of a file at
//! any time. Therefore each folder is opened relative to its parent, no link below the home is followed, and files and
//! folders of other users are refused. A link on the way to the home is followed if no other user can change it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::bytes::text_of;
use super::host::{Host, give_to, own_link};
use super::shared::{Rules, beside, content_of, edit, open_itself, wait_for_writers};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The most links on the way to a home.
const MAX_LINKS: u32 = 40;

/// The user of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::kinds) struct Account {
    pub(in crate::kinds) uid: u32,
    pub(in crate::kinds) gid: u32,
}

/// An open folder of a user.
#[derive(Debug)]
pub(in crate::kinds) struct Folder {
    file: File,
    shown: PathBuf,
    account: Account,
}

impl Host {
    /// Opens the home of a user. `None`: it does not exist.
    ///
    /// # Errors
    /// The reason as text, with the folder: another user controls a part of the path.
    pub(in crate::kinds) fn home(&self, absolute: &str, account: Account) -> Result<Option<Folder>, String> {
        let home = self.path(absolute);
        let failed = |at: &Path, why: &dyn std::fmt::Display| format!("{}: {}: {why}", home.display(), at.display());
        let root = self.path("");
        let opened = rustix::fs::open(&root, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty());
        let mut open = vec![opened.map_err(|error| failed(&root, &io::Error::from(error)))?];
        let mut shown = vec![root];
        let mut rest: VecDeque<OsString> = names(Path::new(absolute)).collect();
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            let (at, path) = (&open[open.len() - 1], shown[shown.len() - 1].join(&name));
            if name == ".." {
                open.truncate((open.len() - 1).max(1));
                shown.truncate(open.len());
                continue;
            }
            let stat = match rustix::fs::statat(at, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok(None),
                stat => stat.map_err(|error| failed(&path, &io::Error::from(error)))?,
            };
            let of_others =
                |stat: &Stat| format!("user {} owns it, and could lead the change to another place", stat.st_uid);
            if !account.controls(stat.st_uid) {
                return Err(failed(&path, &of_others(&stat)));
            }
            if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                links += 1;
                if links > MAX_LINKS {
                    return Err(failed(&path, &"there are too many links on the way"));
                }
                let target = rustix::fs::readlinkat(at, &name, Vec::new());
                let target = target.map_err(|error| failed(&path, &io::Error::from(error)))?.into_bytes();
                let target = PathBuf::from(OsString::from_vec(target));
                if target.is_absolute() {
                    open.truncate(1);
                    shown.truncate(1);
                }
                names(&target).rev().for_each(|name| rest.push_front(name));
                continue;
            }
            let (folder, stat) = open_folder(at, &name).map_err(|error| failed(&path, &error))?;
            if !account.controls(stat.st_uid) {
                return Err(failed(&path, &of_others(&stat)));
            }
            if stat.st_mode & 0o1002 == 0o002 {
                return Err(failed(&path, &"all users may write into it, and could lead the change to another place"));
            }
            open.push(folder);
            shown.push(path);
        }
        let file = File::from(open.pop().expect("the root is open"));
        Ok(Some(Folder { file, shown: shown.pop().expect("the root is shown"), account }))
    }
}

impl Account {
    /// Whether a file of this owner may be read and changed for the account.
    fn controls(self, uid: u32) -> bool {
        [0, self.uid, rustix::process::geteuid().as_raw()].contains(&uid)
    }

    /// Rejects files that the user may have put in place of a file, to read or change a file of another user.
    fn may(self, is: &Metadata) -> io::Result<()> {
        if !is.is_file() {
            return Err(io::Error::other("it is not a regular file; remove it"));
        }
        // The user can give a second name to a file of another user.
        if !self.controls(is.uid()) || (is.uid() != self.uid && is.nlink() > 1) {
            return Err(io::Error::other(format!("it belongs to user {}, and not to user {}", is.uid(), self.uid)));
        }
        Ok(())
    }
}

impl Folder {
    /// Opens a folder in it. `None`: it does not exist.
    ///
    /// # Errors
    /// The reason as text, with the folder.
    pub(in crate::kinds) fn folder(&self, name: &str) -> Result<Option<Self>, String> {
        let Some(stat) = self.stat(name)? else { return Ok(None) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(self.complaint(name, &"it is not a folder"));
        }
        let (folder, stat) = open_folder(&self.file, name).map_err(|error| self.complaint(name, &error))?;
        if !self.account.controls(stat.st_uid) {
            let why = format!("it belongs to user {}, and not to user {}", stat.st_uid, self.account.uid);
            return Err(self.complaint(name, &why));
        }
        Ok(Some(Self { file: File::from(folder), shown: self.shown.join(name), account: self.account }))
    }

    /// Makes a folder with mode 0700 for the user, or completes it after a kill.
    ///
    /// # Errors
    /// The reason as text, with the folder.
    pub(in crate::kinds) fn make_folder(&self, name: &str) -> Result<Self, String> {
        let failed = |error: io::Error| self.complaint(name, &error);
        match rustix::fs::mkdirat(&self.file, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let Some(made) = self.folder(name)? else { return Err(failed(Errno::NOENT.into())) };
        // The user may have put a folder of root there: its entries must not become the user's.
        if made.is_empty().map_err(failed)? {
            give_to(&made.file, self.account.uid, self.account.gid).map_err(failed)?;
        }
        self.sync()?;
        Ok(made)
    }

    /// Removes a folder in it, if it is empty.
    ///
    /// # Errors
    /// The reason as text, with the folder.
    pub(in crate::kinds) fn remove_empty_folder(&self, name: &str) -> Result<(), String> {
        match rustix::fs::unlinkat(&self.file, name, AtFlags::REMOVEDIR) {
            Ok(()) => self.sync(),
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(self.complaint(name, &io::Error::from(error))),
        }
    }

    /// The text of a file in it. `None`: it does not exist.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn read(&self, name: &str) -> Result<Option<String>, String> {
        if self.stat(name)?.is_none() {
            return Ok(None);
        }
        let read = || {
            let file = open_itself(&self.path(name), OpenOptions::new().read(true))?;
            self.account.may(&file.metadata()?)?;
            content_of(&file)
        };
        read().map(|bytes| Some(text_of(bytes))).map_err(|error| self.complaint(name, &error))
    }

    /// Edits or creates a file in it, as [`Host::edit`] does. A new file belongs to the user.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn edit(
        &self,
        name: &str,
        mode: u32,
        change: &dyn Fn(&str) -> Option<String>,
    ) -> Result<bool, String> {
        self.stat(name)?;
        let owner = Some((self.account.uid, self.account.gid));
        let may = |is: &Metadata| self.account.may(is);
        edit(&|| Ok(self.path(name)), &self.shown.join(name), &Rules { mode, owner, may: &may }, change)
    }

    /// Whether an edit of the file is under way or was killed.
    pub(in crate::kinds) fn is_half_edited(&self, name: &str) -> bool {
        std::fs::symlink_metadata(beside(&self.path(name))).is_ok()
    }

    /// Removes the leftovers of a killed edit. Only the holder of the file's lock may call this.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn clear_edit(&self, name: &str) -> Result<(), String> {
        match std::fs::remove_file(beside(&self.path(name))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.complaint(name, &error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes a file in it, if it is empty. Lines that a program appends meanwhile stay.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn remove_empty_file(&self, name: &str) -> Result<(), String> {
        if self.read(name)?.is_none_or(|text| !text.is_empty()) {
            return Ok(());
        }
        let (path, aside) = (self.path(name), beside(&self.path(name)));
        let put = |from: &Path, to: &Path| {
            let put = rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, RenameFlags::NOREPLACE);
            put.map_err(io::Error::from)
        };
        let remove = || {
            put(&path, &aside)?;
            let is_empty = || -> io::Result<bool> {
                let file = open_itself(&aside, OpenOptions::new().read(true))?;
                wait_for_writers(&file)?;
                Ok(file.metadata()?.len() == 0)
            };
            match is_empty() {
                Ok(true) => std::fs::remove_file(&aside),
                Ok(false) => put(&aside, &path),
                Err(error) => put(&aside, &path).and(Err(error)),
            }
        };
        remove().map_err(|error: io::Error| self.complaint(name, &error))?;
        self.sync()
    }

    /// Whether it has no entries.
    fn is_empty(&self) -> io::Result<bool> {
        for entry in Dir::read_from(&self.file)? {
            if ![".", ".."].map(str::as_bytes).contains(&entry?.file_name().to_bytes()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The entry, which must not be a link.
    fn stat(&self, name: &str) -> Result<Option<Stat>, String> {
        match rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                let why = "it is a link, and COB follows no link in the home of a user; put its target there";
                Err(self.complaint(name, &why))
            }
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.complaint(name, &io::Error::from(error))),
        }
    }

    /// The path of an entry below the open folder, wherever the folder is now.
    fn path(&self, name: &str) -> PathBuf {
        own_link(&self.file).join(name)
    }

    fn sync(&self) -> Result<(), String> {
        rustix::fs::fsync(&self.file).map_err(|error| format!("{}: {}", self.shown.display(), io::Error::from(error)))
    }

    fn complaint(&self, name: &str, why: &dyn std::fmt::Display) -> String {
        format!("{}: {why}", self.shown.join(name).display())
    }
}

/// The names in a path.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Opens a folder itself, not the target of a link. Its owner is known only then: a user may exchange folders.
fn open_folder(at: impl AsFd, name: impl rustix::path::Arg) -> io::Result<(OwnedFd, Stat)> {
    let folder = rustix::fs::openat(at, name, FOLDER, Mode::empty())?;
    let stat = rustix::fs::fstat(&folder)?;
    Ok((folder, stat))
}
