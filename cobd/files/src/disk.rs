//! The host's files: read without following any link, written beside their place and then renamed.
//!
//! A path is walked from the root, and each folder is opened relative to its parent. A link or folder that another
//! process puts in the way meanwhile is noticed, and no other file is read or written.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use crate::attributes::Attributes;
use crate::error::{FilesError, MAX_ENTRIES, MAX_FILE, MAX_NAMES};
use crate::path::TreePath;

mod attributes;
mod staging;

use attributes::{apply, attributes};
pub(crate) use staging::is_staged;
use staging::{NAMES, is_taken, remove_staged, stage, staged_name, staged_name_besides, staged_stem, stem_of};

/// The longest path that the kernel takes in a call, with the NUL at its end.
const LONGEST: usize = 4095;
/// The size of a read buffer for files that are not held in memory.
const AT_ONCE: usize = 64 << 10;
/// Held while a folder is made: trees share their parent folders.
static MAKING: Mutex<()> = Mutex::new(());
/// The host's root, opened once: each path is opened from there.
static ROOT: OnceLock<Arc<OwnedFd>> = OnceLock::new();

/// The file, folder or link at a path, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No entry.
    Absent,
    /// A file.
    File {
        /// Its size.
        size: u64,
        /// Owner, group, mode and extended attributes.
        attributes: Attributes,
    },
    /// A folder.
    Folder {
        /// Owner, group, mode and extended attributes.
        attributes: Attributes,
    },
    /// A symbolic link.
    Link {
        /// The link's target.
        target: Vec<u8>,
    },
    /// A device, socket or pipe, which COB does not manage.
    Other,
}

/// Reads and changes the host's files. Belongs to one thread.
pub(crate) struct Disk {
    root: Arc<OwnedFd>,
    /// The folder that was opened last: paths come in the order of their folders.
    last: RefCell<Option<(TreePath, Arc<OwnedFd>)>>,
    /// The open file of the last lookup, until it is read.
    file: RefCell<Option<(TreePath, OwnedFd)>>,
    /// The state of each path at the first lookup, if files are to be changed.
    seen: Option<RefCell<BTreeMap<TreePath, Seen>>>,
    /// The file staged for each path: its name, and its state when it was made.
    staged: RefCell<BTreeMap<TreePath, (Vec<u8>, Seen)>>,
    /// Names at which no staged file of COB can be.
    free: RefCell<BTreeSet<TreePath>>,
}

/// A fingerprint of a path's entry, which shows whether it was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen(Option<Thing>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thing {
    device: u64,
    inode: u64,
    sort: FileType,
    size: i64,
    /// Changes with the content: a rename keeps it.
    modified: (i64, u64),
    /// Changes with any operation, also with a rename.
    changed: (i64, u64),
}

impl Seen {
    fn of(stat: &rustix::fs::Stat) -> Self {
        Self(Some(Thing {
            device: stat.st_dev,
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

    /// Whether this is the same entry under another name.
    fn is_moved(self, other: Self) -> bool {
        let apart = |seen: Self| seen.0.map(|thing| Thing { changed: (0, 0), ..thing });
        apart(self) == apart(other)
    }

    /// Whether this is the same inode, even if it was changed.
    fn is_same(self, other: Self) -> bool {
        let inode = |seen: Self| seen.0.map(|thing| (thing.device, thing.inode));
        inode(self).is_some() && inode(self) == inode(other)
    }
}

impl Found {
    /// The type of the entry, in words.
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

    /// The bytes of link and attributes, which users may have made long.
    fn size_held(&self) -> usize {
        let attributes = self.attributes().into_iter().flat_map(|a| &a.xattrs);
        let link = if let Self::Link { target } = self { target.len() } else { 0 };
        link + attributes.map(|(name, value)| name.len() + value.0.len()).sum::<usize>()
    }

    /// The attributes that COB manages, if the entry has any.
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
        Ok(Self {
            root: root.clone(),
            last: RefCell::default(),
            file: RefCell::default(),
            seen: None,
            staged: RefCell::default(),
            free: RefCell::default(),
        })
    }

    /// Opens the disk for changes: an entry is replaced or removed only if it is still as first seen.
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

    /// The open parent folder of a path; `None`: it does not exist.
    fn parent(&self, path: &TreePath) -> Result<Option<Arc<OwnedFd>>, FilesError> {
        path.parent().map_or(Ok(Some(self.root.clone())), |parent| self.folder(&parent))
    }

    fn folder(&self, path: &TreePath) -> Result<Option<Arc<OwnedFd>>, FilesError> {
        if let Some((last, fd)) = &*self.last.borrow()
            && last == path
        {
            return Ok(Some(fd.clone()));
        }
        // A single call if no link is in the way: `RESOLVE_NO_SYMLINKS`. The step-by-step walk below finds the
        // obstacle.
        match self.open_folder(path) {
            Ok(fd) => {
                *self.last.borrow_mut() = Some((path.clone(), fd.clone()));
                return Ok(Some(fd));
            }
            Err(Errno::NOENT) => return Ok(None),
            // Or the kernel, or a system call filter, refuses the call.
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

    /// Opens a folder in as few calls as the kernel's longest path allows: users can make longer paths.
    fn open_folder(&self, path: &TreePath) -> Result<Arc<OwnedFd>, Errno> {
        let (mut at, mut rest): (_, &[u8]) = (self.root.clone(), std::borrow::Borrow::borrow(path));
        while !rest.is_empty() {
            let end = match rest.get(..LONGEST) {
                Some(most) => most.iter().rposition(|b| *b == b'/').unwrap_or(LONGEST),
                None => rest.len(),
            };
            let step = rustix::fs::openat2(&at, &rest[..end], FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
            at = Arc::new(step);
            rest = rest[end..].strip_prefix(b"/").unwrap_or_default();
        }
        Ok(at)
    }

    /// Whether a path and all its parents are folders. `false`: no, or not known.
    pub(crate) fn leads_to(&self, path: &TreePath) -> bool {
        matches!(self.folder(path), Ok(Some(_)))
    }

    /// Drops the open folder and file: folders may have been made, removed or exchanged.
    pub(crate) fn forget(&self) {
        self.last.borrow_mut().take();
        self.file.borrow_mut().take();
    }

    /// Looks up the entry of a path.
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

    /// Opens a file that was found, at its beginning.
    pub(crate) fn open(&self, path: &TreePath) -> Result<File, FilesError> {
        if let Some((_, fd)) = self.file.take().filter(|(looked_at, _)| looked_at == path) {
            return Ok(File::from(fd));
        }
        let gone = || FilesError::disk("reading", path)(Errno::NOENT);
        let parent = self.parent(path)?.ok_or_else(gone)?;
        open_file(&parent, path).map(File::from).map_err(FilesError::disk("opening", path))
    }

    /// Whether a file has other hard links. `false`: no, or not known.
    pub(crate) fn has_other_names(&self, path: &TreePath) -> bool {
        let stat = self.parent(path).ok().flatten();
        let stat = stat.and_then(|at| rustix::fs::statat(&at, path.name(), AtFlags::SYMLINK_NOFOLLOW).ok());
        stat.is_some_and(|stat| stat.st_nlink > 1)
    }

    /// Passes the content of a file to `each`, piece by piece, until `each` returns `false`.
    pub(crate) fn read(&self, path: &TreePath, mut each: impl FnMut(&[u8]) -> bool) -> Result<(), FilesError> {
        let (mut file, mut piece) = (self.open(path)?, vec![0; AT_ONCE]);
        loop {
            match file.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(length) if each(&piece[..length]) => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(FilesError::Disk { doing: "reading", path: path.clone(), source }),
            }
        }
    }

    /// The content of a file that was found.
    pub(crate) fn content(&self, path: &TreePath) -> Result<Vec<u8>, FilesError> {
        let fd = self.open(path)?;
        let size = rustix::fs::fstat(&fd).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or_default());
        let mut bytes = Vec::with_capacity(usize::try_from(size.min(MAX_FILE) + 1).unwrap_or_default());
        let read = fd.take(MAX_FILE + 1).read_to_end(&mut bytes);
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

    /// All entries below a folder, parents first. Another file system below it is an error.
    pub(crate) fn below(&self, folder: &TreePath) -> Result<Vec<(TreePath, Found)>, FilesError> {
        let mut all = Vec::new();
        let Some(fd) = self.folder(folder)? else { return Ok(all) };
        let device = rustix::fs::fstat(&fd).map_err(FilesError::disk("looking at", folder))?.st_dev;
        let mut open = vec![folder.clone()];
        let (mut room, too_many) = (MAX_NAMES, || FilesError::TooMany { path: folder.clone() });
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
            let left = MAX_ENTRIES - all.len();
            for name in names(&fd, &path, left)?.ok_or_else(too_many)? {
                let below = path.below(&name);
                let found = self.look_in(&fd, &below)?;
                room = room.checked_sub(below.len() + found.size_held()).ok_or_else(too_many)?;
                if matches!(found, Found::Folder { .. }) {
                    open.push(below.clone());
                }
                all.push((below, found));
            }
        }
        Ok(all)
    }

    /// Makes a folder that has its attributes from the start. Another tree may have made an implied folder meanwhile.
    pub(crate) fn make_folder(&self, path: &TreePath, to: &Attributes, implied: bool) -> Result<(), FilesError> {
        let failed = |doing| FilesError::disk(doing, path);
        let parent = self.parent(path)?.ok_or(Errno::NOENT).map_err(failed("making the folder"))?;
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if implied && matches!(self.look_in(&parent, path)?, Found::Folder { .. }) {
            return Ok(());
        }
        let make = |name: &[u8]| rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700));
        let new = stage(&parent, path, self.first_name(path), make).map_err(failed("making the folder"))?;
        let fd = rustix::fs::openat(&parent, &*new, FOLDER, Mode::empty()).map_err(failed("opening"))?;
        let stat = rustix::fs::fstat(&fd).map_err(failed("looking at"))?;
        let made = Seen::of(&stat);
        let given = apply(&fd, &attributes(&fd, &stat), to);
        given.map_err(failed("setting owner and mode of"))?;
        // A folder that was made meanwhile stays, and the caller looks again.
        match rustix::fs::renameat_with(&parent, &*new, &parent, path.name(), RenameFlags::NOREPLACE) {
            Ok(()) => self.is_ours(&parent, path, made),
            Err(error) => {
                let _ = rustix::fs::unlinkat(&parent, &*new, AtFlags::REMOVEDIR);
                Err(failed("putting into its place")(error))
            }
        }
    }

    /// From now on, no entry is made or removed at these paths only for its name.
    pub(crate) fn keep_free(&self, places: &BTreeSet<TreePath>) {
        self.free.replace(places.clone());
    }

    /// The first name to try for a staged file of a path.
    fn first_name(&self, path: &TreePath) -> Vec<u8> {
        let (name, free) = (staged_name(path.name()), self.free.borrow());
        let is_free = |name: &[u8]| free.contains(&path.beside(name));
        if !free.is_empty() && is_free(&name) { staged_name_besides(path.name()) } else { name }
    }

    /// The name of the file staged for a path, and its state.
    fn staged(&self, path: &TreePath) -> (Vec<u8>, Option<Seen>) {
        match self.staged.borrow().get(path) {
            Some((name, made)) => (name.clone(), Some(*made)),
            None => (self.first_name(path), None),
        }
    }

    /// Checks that the entry is the one that was staged: another user with write permission for the folder may have
    /// exchanged it.
    fn is_ours(&self, parent: &OwnedFd, path: &TreePath, made: Seen) -> Result<(), FilesError> {
        let now = Seen::at(parent, path.name()).map_err(FilesError::disk("looking at", path))?;
        if now.is_same(made) { Ok(()) } else { Err(FilesError::Changed { path: path.clone() }) }
    }

    /// Sets the attributes of a file or folder.
    pub(crate) fn set_attributes(&self, path: &TreePath, to: &Attributes) -> Result<(), FilesError> {
        let gone = || FilesError::disk("changing", path)(Errno::NOENT);
        let parent = self.parent(path)?.ok_or_else(gone)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&parent, path.name(), flags, Mode::empty());
        let fd = fd.map_err(FilesError::disk("opening", path))?;
        let stat = rustix::fs::fstat(&fd).map_err(FilesError::disk("looking at", path))?;
        // Another file may be there now, or a link to a file with other names.
        if self.seen(path).is_some_and(|seen| !seen.is_same(Seen::of(&stat))) {
            return Err(FilesError::Changed { path: path.clone() });
        }
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
        let gone = || FilesError::disk("writing", path)(Errno::NOENT);
        let parent = self.parent(path)?.ok_or_else(gone)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = RefCell::new(None);
        let make = |name: &[u8]| {
            let fd = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600))?;
            made.replace(Some(File::from(fd)));
            Ok(())
        };
        let new = stage(&parent, path, self.first_name(path), make).map_err(FilesError::disk("writing", path))?;
        let Some(mut file) = made.take() else { return Err(gone()) };
        let write = |file: &mut File| -> std::io::Result<()> {
            file.write_all(content)?;
            let stat = rustix::fs::fstat(&*file)?;
            self.staged.borrow_mut().insert(path.clone(), (new.clone(), Seen::of(&stat)));
            apply(file.as_fd(), &attributes(file.as_fd(), &stat), to)?;
            if sync { file.sync_all() } else { Ok(()) }
        };
        write(&mut file).map_err(|source| {
            // The first error counts; the next attempt removes the rest, too.
            let _ = rustix::fs::unlinkat(&parent, &*new, AtFlags::empty());
            FilesError::Disk { doing: "writing", path: path.clone(), source }
        })
    }

    /// Makes a link beside its place.
    pub(crate) fn stage_link(&self, path: &TreePath, target: &[u8]) -> Result<(), FilesError> {
        let gone = || FilesError::disk("making the link", path)(Errno::NOENT);
        let parent = self.parent(path)?.ok_or_else(gone)?;
        let make = |name: &[u8]| rustix::fs::symlinkat(target, &parent, name);
        let failed = |e| FilesError::disk("making the link", path)(e);
        let new = stage(&parent, path, self.first_name(path), make).map_err(failed)?;
        let made = Seen::at(&parent, &new).map_err(failed)?;
        self.staged.borrow_mut().insert(path.clone(), (new, made));
        Ok(())
    }

    /// Removes the staged file that an earlier attempt left for a path. If it can't be removed, it is not COB's.
    pub(crate) fn clear_staged(&self, path: &TreePath) -> Result<(), FilesError> {
        let Some(parent) = self.parent(path)? else { return Ok(()) };
        match remove_staged(&parent, &self.staged(path).0) {
            Err(error) if !is_taken(error) => Err(FilesError::disk("removing the leftover file beside", path)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The staged files that earlier attempts left for these paths. Each folder is listed once.
    pub(crate) fn left_beside<'p>(
        &self,
        paths: impl Iterator<Item = &'p TreePath>,
    ) -> Result<Vec<TreePath>, FilesError> {
        let mut left = Vec::new();
        let mut by_folder: BTreeMap<Option<TreePath>, (&TreePath, BTreeSet<Vec<u8>>)> = BTreeMap::new();
        for path in paths {
            let (_, stems) = by_folder.entry(path.parent()).or_insert_with(|| (path, BTreeSet::new()));
            stems.insert(staged_stem(path.name()));
        }
        for (path, stems) in by_folder.into_values() {
            let Some(fd) = self.parent(path)? else { continue };
            // If the folder has more entries, staged files in it stay.
            let names = names(&fd, path, MAX_ENTRIES)?.unwrap_or_default();
            let ours = names.iter().filter(|name| stem_of(name).any(|stem| stems.contains(stem)));
            left.extend(ours.map(|name| path.beside(name)));
        }
        Ok(left)
    }

    /// Removes a staged entry that a killed action left: a file, a link, or an empty folder.
    pub(crate) fn remove_left(&self, path: &TreePath) -> Result<(), FilesError> {
        let Some(parent) = self.parent(path)? else { return Ok(()) };
        match remove_staged(&parent, path.name()) {
            Err(error) if !is_taken(error) => Err(FilesError::disk("removing the leftover file beside", path)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Moves the staged file into its place if the present entry is still as seen: the two are exchanged, so that the
    /// old entry is checked before its deletion.
    pub(crate) fn install(&self, path: &TreePath) -> Result<(), FilesError> {
        let gone = || FilesError::disk("writing", path)(Errno::NOENT);
        let failed = FilesError::disk("putting into its place", path);
        let changed = || FilesError::Changed { path: path.clone() };
        let (parent, (new, made)) = (self.parent(path)?.ok_or_else(gone)?, self.staged(path));
        let put = |flags| rustix::fs::renameat_with(&parent, &*new, &parent, path.name(), flags);
        let is_ours = || made.map_or(Ok(()), |made| self.is_ours(&parent, path, made));
        let Some(seen) = self.seen(path) else {
            return put(RenameFlags::empty()).map_err(failed).and_then(|()| is_ours());
        };
        if Seen::at(&parent, path.name()).map_err(FilesError::disk("looking at", path))? != seen {
            return Err(changed());
        }
        let exchanged = put(if seen.0.is_none() { RenameFlags::NOREPLACE } else { RenameFlags::EXCHANGE });
        match exchanged {
            Ok(()) if seen.0.is_none() => is_ours(),
            Ok(()) => match Seen::at(&parent, &new) {
                Ok(out) if out.is_moved(seen) => {
                    let removed = rustix::fs::unlinkat(&parent, &*new, AtFlags::empty());
                    removed.map_err(FilesError::disk("removing", path)).and_then(|()| is_ours())
                }
                Ok(_) | Err(_) => {
                    put(RenameFlags::EXCHANGE).map_err(failed)?;
                    Err(changed())
                }
            },
            Err(Errno::EXIST | Errno::NOENT) => Err(changed()),
            // The file system can't exchange files: the present entry was checked a moment ago.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                put(RenameFlags::empty()).map_err(failed).and_then(|()| is_ours())
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes a file or link if it exists and is still as seen.
    pub(crate) fn remove(&self, path: &TreePath) -> Result<(), FilesError> {
        let Some(parent) = self.parent(path)? else { return Ok(()) };
        let (failed, mut new) = (FilesError::disk("removing", path), self.first_name(path));
        let gone = |name: &[u8]| match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(FilesError::disk("removing", path)(error)),
        };
        let Some(seen) = self.seen(path) else { return gone(path.name()) };
        let put =
            |from: &[u8], to: &[u8]| rustix::fs::renameat_with(&parent, from, &parent, to, RenameFlags::NOREPLACE);
        let mut aside = put(path.name(), &new);
        for _ in 0..NAMES {
            if !matches!(aside, Err(Errno::EXIST | Errno::NOTEMPTY)) {
                break;
            }
            new = staged_name_besides(path.name());
            aside = put(path.name(), &new);
        }
        match aside {
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

    /// Removes a folder if it is empty. Returns whether it is gone.
    pub(crate) fn remove_folder(&self, path: &TreePath) -> Result<bool, FilesError> {
        let Some(parent) = self.parent(path)? else { return Ok(true) };
        self.forget();
        match rustix::fs::unlinkat(&parent, path.name(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(FilesError::disk("removing the folder", path)(error)),
        }
    }

    /// The file system of a path's parent folder.
    pub(crate) fn device_of(&self, path: &TreePath) -> Result<Option<u64>, FilesError> {
        let Some(parent) = self.parent(path)? else { return Ok(None) };
        rustix::fs::fstat(&parent).map(|stat| Some(stat.st_dev)).map_err(FilesError::disk("looking at", path))
    }

    /// Makes all writes to the file system of a path's parent folder durable.
    pub(crate) fn sync_all_of(&self, path: &TreePath) -> Result<(), FilesError> {
        match self.parent(path)? {
            Some(parent) => rustix::fs::syncfs(&parent).map_err(FilesError::disk("making durable", path)),
            None => Ok(()),
        }
    }

    /// Makes the entries of a path's parent folder durable.
    pub(crate) fn sync_folder_of(&self, path: &TreePath) -> Result<(), FilesError> {
        match self.parent(path)? {
            Some(parent) => rustix::fs::fsync(&parent).map_err(FilesError::disk("making durable", path)),
            None => Ok(()),
        }
    }

    /// A stamp that tells COB's own write of a file from a later write of others.
    pub(crate) fn stamp(&self, path: &TreePath) -> Option<Stamp> {
        let parent = self.parent(path).ok()??;
        let Thing { inode, changed, size, .. } = Seen::at(&parent, path.name()).ok()?.0?;
        Some((inode, changed.0, i64::try_from(changed.1).ok()?, size))
    }
}

/// Inode, time of the last change (seconds and nanoseconds), size.
pub type Stamp = (u64, i64, i64, i64);

fn open_file(parent: &OwnedFd, path: &TreePath) -> Result<OwnedFd, Errno> {
    // Does not block on a pipe that has taken the file's place.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(parent, path.name(), flags, Mode::empty())
}

fn in_the_way(parent: &OwnedFd, path: &TreePath) -> FilesError {
    match rustix::fs::readlinkat(parent, path.name(), Vec::new()) {
        Ok(target) => FilesError::Link { path: path.clone(), target: target.to_string_lossy().into_owned() },
        Err(_) => FilesError::InTheWay { path: path.clone(), found: "no folder", wanted: "a folder" },
    }
}

/// The names in a folder; `None`: more than `most`.
fn names(fd: &OwnedFd, path: &TreePath, most: usize) -> Result<Option<Vec<Vec<u8>>>, FilesError> {
    let dir = Dir::read_from(fd).map_err(FilesError::disk("listing", path))?;
    let mut names = Vec::new();
    for entry in dir {
        let entry = entry.map_err(FilesError::disk("listing", path))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == most {
            return Ok(None);
        }
        names.push(name.to_vec());
    }
    names.sort();
    Ok(Some(names))
}
