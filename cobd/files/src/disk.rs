//! The host's files: read without following any link, written beside their place and renamed over.
//!
//! A path is walked from the root, folder by folder, each opened in the one before: what somebody puts in the way meanwhile
//! (a link, another folder) is noticed, and nothing is read or written elsewhere.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::attributes::{Attributes, Bytes};
use crate::error::{FilesError, MAX_ENTRIES, MAX_FILE};
use crate::path::TreePath;

/// The end of the name of a file that is not in its place yet.
const NEW: &[u8] = b".cob-new";
/// No attribute is longer.
const MAX_XATTR: usize = 64 << 10;
/// Held while a folder is made: trees have folders on the way in common.
static MAKING: Mutex<()> = Mutex::new(());
/// The root of the host, opened once: each look begins there.
static ROOT: OnceLock<Arc<OwnedFd>> = OnceLock::new();

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// Its size.
        size: u64,
        /// Owner and the like.
        attributes: Attributes,
    },
    /// A folder.
    Folder {
        /// Owner and the like.
        attributes: Attributes,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        target: Vec<u8>,
    },
    /// Something that is not managed: a device, a socket, a pipe.
    Other,
}

/// Looks at the host's files and changes them. Belongs to one thread.
pub(crate) struct Disk {
    root: Arc<OwnedFd>,
    /// The folder that was opened last: files come in the order of their folders.
    last: RefCell<Option<(TreePath, Arc<OwnedFd>)>>,
    /// The file that was looked at last, until it is read.
    file: RefCell<Option<(TreePath, OwnedFd)>>,
    /// What was seen at a path when it was looked at first, where something is about to be changed.
    seen: Option<RefCell<BTreeMap<TreePath, Seen>>>,
}

/// What tells whether somebody has changed what is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen(Option<Thing>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thing {
    inode: u64,
    sort: FileType,
    size: i64,
    /// Of its content: a rename leaves it as it is.
    modified: (i64, u64),
    /// Of anything: a rename changes it.
    changed: (i64, u64),
}

impl Seen {
    fn of(stat: &rustix::fs::Stat) -> Self {
        Self(Some(Thing {
            inode: stat.st_ino,
            sort: FileType::from_raw_mode(stat.st_mode),
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }))
    }

    fn at(parent: &OwnedFd, name: &[u8]) -> Result<Self, Errno> {
        match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Self::of(&stat)),
            Err(Errno::NOENT) => Ok(Self(None)),
            Err(error) => Err(error),
        }
    }

    /// Whether it is the same under another name.
    fn is_moved(self, other: Self) -> bool {
        let apart = |seen: Self| seen.0.map(|thing| Thing { changed: (0, 0), ..thing });
        apart(self) == apart(other)
    }
}

impl Found {
    /// The sort of thing, in words.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Absent => "nothing",
            Self::File { .. } => "a file",
            Self::Folder { .. } => "a folder",
            Self::Link { .. } => "a link",
            Self::Other => "a device, socket or pipe",
        }
    }

    /// Its attributes, if it has any that are managed.
    pub(crate) fn attributes(&self) -> Option<&Attributes> {
        match self {
            Self::File { attributes, .. } | Self::Folder { attributes } => Some(attributes),
            Self::Absent | Self::Link { .. } | Self::Other => None,
        }
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Disk {
    pub(crate) fn new() -> Result<Self, FilesError> {
        let root = match ROOT.get() {
            Some(root) => root,
            None => {
                let root = rustix::fs::open("/", FOLDER, Mode::empty());
                let root =
                    root.map_err(|e| FilesError::Content(format!("the root of the host can't be opened: {e}")))?;
                ROOT.get_or_init(|| Arc::new(root))
            }
        };
        Ok(Self { root: root.clone(), last: RefCell::default(), file: RefCell::default(), seen: None })
    }

    /// The same, for changing what is found: nothing is replaced or removed that is not as it was seen first.
    pub(crate) fn to_change() -> Result<Self, FilesError> {
        Ok(Self { seen: Some(RefCell::default()), ..Self::new()? })
    }

    fn note(&self, path: &TreePath, seen: Seen) {
        if let Some(all) = &self.seen {
            all.borrow_mut().entry(path.clone()).or_insert(seen);
        }
    }

    fn seen(&self, path: &TreePath) -> Option<Seen> {
        self.seen.as_ref()?.borrow().get(path).copied()
    }

    /// The folder of a path, opened; none: it is not there.
    fn parent(&self, path: &TreePath) -> Result<Option<Arc<OwnedFd>>, FilesError> {
        path.parent().map_or(Ok(Some(self.root.clone())), |parent| self.folder(&parent))
    }

    fn folder(&self, path: &TreePath) -> Result<Option<Arc<OwnedFd>>, FilesError> {
        if let Some((last, fd)) = &*self.last.borrow()
            && last == path
        {
            return Ok(Some(fd.clone()));
        }
        // One call, if nothing is in the way: `RESOLVE_NO_SYMLINKS`. What is in the way is found step by step.
        let bytes: &[u8] = std::borrow::Borrow::borrow(path);
        match rustix::fs::openat2(&self.root, bytes, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(fd) => {
                let fd = Arc::new(fd);
                *self.last.borrow_mut() = Some((path.clone(), fd.clone()));
                return Ok(Some(fd));
            }
            Err(Errno::NOENT) => return Ok(None),
            // Or the kernel, or who watches over us, does not have it.
            Err(_) => {}
        }
        let mut at = self.root.clone();
        for step in path.ancestors().chain([path.clone()]) {
            match rustix::fs::openat(&at, step.name(), FOLDER, Mode::empty()) {
                Ok(fd) => at = Arc::new(fd),
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(in_the_way(&at, &step)),
                Err(error) => return Err(FilesError::disk("opening the folder", &step)(error)),
            }
        }
        *self.last.borrow_mut() = Some((path.clone(), at.clone()));
        Ok(Some(at))
    }

    /// Whether a path, and so each on the way to it, is a folder; false: it is not, or that is not known.
    pub(crate) fn leads_to(&self, path: &TreePath) -> bool {
        matches!(self.folder(path), Ok(Some(_)))
    }

    /// What was opened is opened anew: folders may have been made, removed or exchanged.
    pub(crate) fn forget(&self) {
        self.last.borrow_mut().take();
        self.file.borrow_mut().take();
    }

    /// What is at a path.
    pub(crate) fn look(&self, path: &TreePath) -> Result<Found, FilesError> {
        let Some(parent) = self.parent(path)? else {
            self.note(path, Seen(None));
            return Ok(Found::Absent);
        };
        self.look_in(&parent, path)
    }

    fn look_in(&self, parent: &OwnedFd, path: &TreePath) -> Result<Found, FilesError> {
        let failed = |doing| FilesError::disk(doing, path);
        let stat = match rustix::fs::statat(parent, path.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                self.note(path, Seen(None));
                return Ok(Found::Absent);
            }
            Err(error) => return Err(failed("looking at")(error)),
        };
        self.note(path, Seen::of(&stat));
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let fd = open_file(parent, path).map_err(failed("opening"))?;
                let stat = rustix::fs::fstat(&fd).map_err(failed("looking at"))?;
                let size = u64::try_from(stat.st_size).unwrap_or_default();
                let attributes = attributes(&fd, &stat);
                self.file.replace(Some((path.clone(), fd)));
                Found::File { size, attributes }
            }
            FileType::Directory => {
                let fd = rustix::fs::openat(parent, path.name(), FOLDER, Mode::empty());
                let fd = fd.map_err(failed("opening"))?;
                let stat = rustix::fs::fstat(&fd).map_err(failed("looking at"))?;
                Found::Folder { attributes: attributes(&fd, &stat) }
            }
            FileType::Symlink => {
                let target =
                    rustix::fs::readlinkat(parent, path.name(), Vec::new()).map_err(failed("reading the link"))?;
                Found::Link { target: target.into_bytes() }
            }
            FileType::Fifo
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Socket
            | FileType::Unknown => Found::Other,
        })
    }

    /// The content of a file that was found.
    pub(crate) fn content(&self, path: &TreePath) -> Result<Vec<u8>, FilesError> {
        let fd = match self.file.take().filter(|(looked_at, _)| looked_at == path) {
            Some((_, fd)) => fd,
            None => {
                let gone = || FilesError::disk("reading", path)(Errno::NOENT);
                let parent = self.parent(path)?.ok_or_else(gone)?;
                open_file(&parent, path).map_err(FilesError::disk("opening", path))?
            }
        };
        let size = rustix::fs::fstat(&fd).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or_default());
        let mut bytes = Vec::with_capacity(usize::try_from(size.min(MAX_FILE) + 1).unwrap_or_default());
        let read = File::from(fd).take(MAX_FILE + 1).read_to_end(&mut bytes);
        read.map_err(|source| FilesError::Disk { doing: "reading", path: path.clone(), source })?;
        if bytes.len() as u64 > MAX_FILE {
            let size = match self.look(path)? {
                Found::File { size, .. } => size,
                Found::Absent | Found::Folder { .. } | Found::Link { .. } | Found::Other => bytes.len() as u64,
            };
            return Err(FilesError::TooLarge { path: path.clone(), size });
        }
        Ok(bytes)
    }

    /// Whatever is below a folder, folders before what is in them; nothing of another file system.
    pub(crate) fn below(&self, folder: &TreePath) -> Result<Vec<(TreePath, Found)>, FilesError> {
        let mut all = Vec::new();
        let Some(fd) = self.folder(folder)? else { return Ok(all) };
        let device = rustix::fs::fstat(&fd).map_err(FilesError::disk("looking at", folder))?.st_dev;
        let mut open = vec![folder.clone()];
        while let Some(path) = open.pop() {
            let Some(fd) = self.folder(&path)? else { continue };
            let stat = rustix::fs::fstat(&fd).map_err(FilesError::disk("looking at", &path))?;
            if stat.st_dev != device {
                return Err(FilesError::InTheWay {
                    path,
                    found: "where another file system is mounted",
                    wanted: "a folder that is managed as a whole",
                });
            }
            for name in names(&fd, &path)? {
                let below = path.below(&name);
                let found = self.look_in(&fd, &below)?;
                if matches!(found, Found::Folder { .. }) {
                    open.push(below.clone());
                }
                all.push((below, found));
                if all.len() > MAX_ENTRIES {
                    return Err(FilesError::TooMany { path: folder.clone() });
                }
            }
        }
        Ok(all)
    }

    /// Makes a folder with its attributes from the first moment on. One on the way may have been made meanwhile, by another
    /// tree.
    pub(crate) fn make_folder(&self, path: &TreePath, to: &Attributes, implied: bool) -> Result<(), FilesError> {
        let failed = |doing| FilesError::disk(doing, path);
        let parent = self.parent(path)?.ok_or(Errno::NOENT).map_err(failed("making the folder"))?;
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if implied && matches!(self.look_in(&parent, path)?, Found::Folder { .. }) {
            return Ok(());
        }
        let new = staged_name(path.name());
        match rustix::fs::unlinkat(&parent, &*new, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed("removing what was left beside")(error)),
        }
        rustix::fs::mkdirat(&parent, &*new, Mode::from_raw_mode(0o700)).map_err(failed("making the folder"))?;
        let fd = rustix::fs::openat(&parent, &*new, FOLDER, Mode::empty()).map_err(failed("opening"))?;
        let stat = rustix::fs::fstat(&fd).map_err(failed("looking at"))?;
        let given = apply(&fd, &attributes(&fd, &stat), to);
        given.map_err(failed("setting owner and mode of"))?;
        // One that was made meanwhile stays, and is looked at again.
        match rustix::fs::renameat_with(&parent, &*new, &parent, path.name(), RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = rustix::fs::unlinkat(&parent, &*new, AtFlags::REMOVEDIR);
                Err(failed("putting into its place")(error))
            }
        }
    }

    /// Gives a file or folder its attributes.
    pub(crate) fn set_attributes(&self, path: &TreePath, to: &Attributes) -> Result<(), FilesError> {
        let gone = || FilesError::disk("changing", path)(Errno::NOENT);
        let parent = self.parent(path)?.ok_or_else(gone)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&parent, path.name(), flags, Mode::empty());
        let fd = fd.map_err(FilesError::disk("opening", path))?;
        let stat = rustix::fs::fstat(&fd).map_err(FilesError::disk("looking at", path))?;
        apply(&fd, &attributes(&fd, &stat), to).map_err(FilesError::disk("setting owner and mode of", path))
    }

    /// Writes a file beside its place; it is not durable yet.
    pub(crate) fn stage_file(
        &self,
        path: &TreePath,
        content: &[u8],
        to: &Attributes,
        sync: bool,
    ) -> Result<(), FilesError> {
        let (parent, new) = self.clear_staged(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&parent, &*new, flags, Mode::from_raw_mode(0o600));
        let mut file = File::from(fd.map_err(FilesError::disk("writing", path))?);
        let write = |file: &mut File| -> std::io::Result<()> {
            file.write_all(content)?;
            let stat = rustix::fs::fstat(&*file)?;
            apply(file.as_fd(), &attributes(file.as_fd(), &stat), to)?;
            if sync { file.sync_all() } else { Ok(()) }
        };
        write(&mut file).map_err(|source| {
            // The first error counts; what is left is removed by the next attempt, too.
            let _ = rustix::fs::unlinkat(&parent, &*new, AtFlags::empty());
            FilesError::Disk { doing: "writing", path: path.clone(), source }
        })
    }

    /// Makes a link beside its place.
    pub(crate) fn stage_link(&self, path: &TreePath, target: &[u8]) -> Result<(), FilesError> {
        let (parent, new) = self.clear_staged(path)?;
        rustix::fs::symlinkat(target, &parent, &*new).map_err(FilesError::disk("making the link", path))
    }

    /// Removes what an attempt before has left beside the place of a path.
    pub(crate) fn clear_staged(&self, path: &TreePath) -> Result<(Arc<OwnedFd>, Vec<u8>), FilesError> {
        let gone = || FilesError::disk("writing", path)(Errno::NOENT);
        let parent = self.parent(path)?.ok_or_else(gone)?;
        let new = staged_name(path.name());
        match rustix::fs::unlinkat(&parent, &*new, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok((parent, new)),
            Err(error) => Err(FilesError::disk("removing what was left beside", path)(error)),
        }
    }

    /// Whether something was left beside the place of a path.
    pub(crate) fn has_staged(&self, path: &TreePath) -> Result<bool, FilesError> {
        let Some(parent) = self.parent(path)? else { return Ok(false) };
        Ok(rustix::fs::statat(&parent, &*staged_name(path.name()), AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Puts what was staged into its place, if what is there is what was seen: the two are exchanged, so that what comes
    /// out can be looked at before it is gone.
    pub(crate) fn install(&self, path: &TreePath) -> Result<(), FilesError> {
        let gone = || FilesError::disk("writing", path)(Errno::NOENT);
        let failed = FilesError::disk("putting into its place", path);
        let changed = || FilesError::Changed { path: path.clone() };
        let (parent, new) = (self.parent(path)?.ok_or_else(gone)?, staged_name(path.name()));
        let put = |flags| rustix::fs::renameat_with(&parent, &*new, &parent, path.name(), flags);
        let Some(seen) = self.seen(path) else { return put(RenameFlags::empty()).map_err(failed) };
        if Seen::at(&parent, path.name()).map_err(FilesError::disk("looking at", path))? != seen {
            return Err(changed());
        }
        let exchanged = put(if seen.0.is_none() { RenameFlags::NOREPLACE } else { RenameFlags::EXCHANGE });
        match exchanged {
            Ok(()) if seen.0.is_none() => Ok(()),
            Ok(()) => match Seen::at(&parent, &new) {
                Ok(out) if out.is_moved(seen) => {
                    rustix::fs::unlinkat(&parent, &*new, AtFlags::empty()).map_err(FilesError::disk("removing", path))
                }
                Ok(_) | Err(_) => {
                    put(RenameFlags::EXCHANGE).map_err(failed)?;
                    Err(changed())
                }
            },
            Err(Errno::EXIST | Errno::NOENT) => Err(changed()),
            // A file system that can't do it: what is there was looked at a moment ago.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => put(RenameFlags::empty()).map_err(failed),
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes a file or link, if it is there and is what was seen.
    pub(crate) fn remove(&self, path: &TreePath) -> Result<(), FilesError> {
        let Some(parent) = self.parent(path)? else { return Ok(()) };
        let (failed, new) = (FilesError::disk("removing", path), staged_name(path.name()));
        let gone = |name: &[u8]| match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(FilesError::disk("removing", path)(error)),
        };
        let Some(seen) = self.seen(path) else { return gone(path.name()) };
        let put =
            |from: &[u8], to: &[u8]| rustix::fs::renameat_with(&parent, from, &parent, to, RenameFlags::NOREPLACE);
        match put(path.name(), &new) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let now = Seen::at(&parent, path.name()).map_err(failed)?;
                return if now == seen { gone(path.name()) } else { Err(FilesError::Changed { path: path.clone() }) };
            }
            Err(error) => return Err(failed(error)),
        }
        if Seen::at(&parent, &new).is_ok_and(|out| out.is_moved(seen)) {
            return gone(&new);
        }
        put(&new, path.name()).map_err(failed)?;
        Err(FilesError::Changed { path: path.clone() })
    }

    /// Removes a folder if it is empty; whether it is gone.
    pub(crate) fn remove_folder(&self, path: &TreePath) -> Result<bool, FilesError> {
        let Some(parent) = self.parent(path)? else { return Ok(true) };
        self.forget();
        match rustix::fs::unlinkat(&parent, path.name(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(FilesError::disk("removing the folder", path)(error)),
        }
    }

    /// The file system that the folder of a path is on.
    pub(crate) fn device_of(&self, path: &TreePath) -> Result<Option<u64>, FilesError> {
        let Some(parent) = self.parent(path)? else { return Ok(None) };
        rustix::fs::fstat(&parent).map(|stat| Some(stat.st_dev)).map_err(FilesError::disk("looking at", path))
    }

    /// Makes everything durable that was written to the file system of a path's folder.
    pub(crate) fn sync_all_of(&self, path: &TreePath) -> Result<(), FilesError> {
        match self.parent(path)? {
            Some(parent) => rustix::fs::syncfs(&parent).map_err(FilesError::disk("making durable", path)),
            None => Ok(()),
        }
    }

    /// Makes the names in the folder of a path durable.
    pub(crate) fn sync_folder_of(&self, path: &TreePath) -> Result<(), FilesError> {
        match self.parent(path)? {
            Some(parent) => rustix::fs::fsync(&parent).map_err(FilesError::disk("making durable", path)),
            None => Ok(()),
        }
    }

    /// What tells a file that we have written from one that somebody has touched since.
    pub(crate) fn stamp(&self, path: &TreePath) -> Option<Stamp> {
        let parent = self.parent(path).ok()??;
        let Thing { inode, changed, size, .. } = Seen::at(&parent, path.name()).ok()?.0?;
        Some((inode, changed.0, i64::try_from(changed.1).ok()?, size))
    }
}

/// Inode, time of the last change (seconds and nanoseconds), size.
pub type Stamp = (u64, i64, i64, i64);

/// Whether a name is that of a file that is not in its place yet.
pub(crate) fn is_staged(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(NEW)
}

/// The name beside a name: hidden, and of no sort that programs read by its ending.
fn staged_name(name: &[u8]) -> Vec<u8> {
    let longest = 255 - NEW.len() - 1;
    let mut new = vec![b'.'];
    if name.len() <= longest {
        new.extend_from_slice(name);
    } else {
        // Two long names may begin alike.
        let hash =
            name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        new.extend_from_slice(&name[..longest - 17]);
        new.extend_from_slice(format!("-{hash:016x}").as_bytes());
    }
    new.extend_from_slice(NEW);
    new
}

fn open_file(parent: &OwnedFd, path: &TreePath) -> Result<OwnedFd, Errno> {
    // Not held up by a pipe that has taken the file's place.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(parent, path.name(), flags, Mode::empty())
}

fn in_the_way(parent: &OwnedFd, path: &TreePath) -> FilesError {
    match rustix::fs::readlinkat(parent, path.name(), Vec::new()) {
        Ok(target) => FilesError::Link { path: path.clone(), target: target.to_string_lossy().into_owned() },
        Err(_) => FilesError::InTheWay { path: path.clone(), found: "no folder", wanted: "a folder" },
    }
}

fn names(fd: &OwnedFd, path: &TreePath) -> Result<Vec<Vec<u8>>, FilesError> {
    let dir = Dir::read_from(fd).map_err(FilesError::disk("listing", path))?;
    let mut names = Vec::new();
    for entry in dir {
        let entry = entry.map_err(FilesError::disk("listing", path))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort();
    Ok(names)
}

fn attributes(fd: impl AsFd, stat: &rustix::fs::Stat) -> Attributes {
    Attributes { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid, xattrs: xattrs(fd) }
}

/// What can be read of the extended attributes: file systems without any have none.
fn xattrs(fd: impl AsFd) -> BTreeMap<String, Bytes> {
    let list = whole(|room| rustix::fs::flistxattr(&fd, room)).unwrap_or_default();
    let names = list.split(|b| *b == 0).filter_map(|name| std::str::from_utf8(name).ok()).filter(|n| !n.is_empty());
    let value = |name: &str| whole(|room| rustix::fs::fgetxattr(&fd, name, room));
    names.filter_map(|name| Some((name.to_owned(), Bytes(value(name)?)))).collect()
}

/// What `read` fills in. Most files have no extended attributes, or a short label.
fn whole(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Option<Vec<u8>> {
    let mut short = [0; 256];
    match read(&mut short) {
        Ok(length) => Some(short[..length].to_vec()),
        Err(Errno::RANGE) => {
            let mut long = vec![0; MAX_XATTR];
            let length = read(&mut long).ok()?;
            Some(long[..length].to_vec())
        }
        Err(_) => None,
    }
}

/// Gives an open file its attributes.
fn apply(fd: impl AsFd, from: &Attributes, to: &Attributes) -> Result<(), Errno> {
    let different = |a: u32, b: u32| (a != b).then_some(b);
    let (uid, gid) = (different(from.uid, to.uid), different(from.gid, to.gid));
    if uid.is_some() || gid.is_some() {
        rustix::fs::fchown(&fd, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
    }
    for (name, value) in &to.xattrs {
        if from.xattrs.get(name) != Some(value) {
            match rustix::fs::fsetxattr(&fd, name.as_str(), &value.0, rustix::fs::XattrFlags::empty()) {
                // Labels that the system gives itself, on a system that lets nobody else.
                Err(_) if name.starts_with("security.") || name.starts_with("trusted.") => {}
                other => other?,
            }
        }
    }
    for name in from.xattrs.keys().filter(|name| !to.xattrs.contains_key(*name) && !name.starts_with("security.")) {
        match rustix::fs::fremovexattr(&fd, name.as_str()) {
            Err(Errno::NODATA) | Ok(()) => {}
            Err(error) => return Err(error),
        }
    }
    // After the owner: a change of it takes the set-user-ID bit away.
    if from.mode != to.mode || uid.is_some() || gid.is_some() {
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(to.mode))?;
    }
    Ok(())
}
