//! Unpacks an archive into a new, empty folder.
//!
//! An archive is foreign input. While files are written, the folder has no links: links are made last, and only links
//! that stay inside. Nothing but files, folders and links is made.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown, lchown, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use cob_kinds::{ArchiveFormat, Size};

use super::fetch::Ended;
use crate::kinds::native::not_found;

/// The longest target of a link.
const MAX_LINK: u64 = 4096;

/// An archive and the limits for its content.
#[derive(Debug)]
pub(super) struct Unpack<'a> {
    pub(super) archive: &'a Path,
    pub(super) format: ArchiveFormat,
    /// The number of leading folders that are removed.
    pub(super) strip: usize,
    pub(super) owner: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) max_size: Size,
    pub(super) max_entries: usize,
}

/// The folder that is filled.
struct Target<'a> {
    rules: &'a Unpack<'a>,
    folder: &'a Path,
    bytes: u64,
    entries: usize,
    /// The modes of folders, set at the end.
    modes: BTreeMap<PathBuf, u32>,
    /// Links, with their targets.
    links: BTreeMap<PathBuf, String>,
}

/// The program that unpacks a compression, and its package.
pub(super) fn program(format: ArchiveFormat) -> Option<(&'static str, &'static str)> {
    match format {
        ArchiveFormat::TarXz => Some(("xz", "xz-utils, or xz on Red Hat")),
        ArchiveFormat::TarZst => Some(("zstd", "zstd")),
        ArchiveFormat::Tar | ArchiveFormat::TarGz | ArchiveFormat::Zip => None,
    }
}

impl Unpack<'_> {
    /// Unpacks into an empty folder.
    pub(super) fn run(&self, folder: &Path) -> Result<(), String> {
        let mut target =
            Target { rules: self, folder, bytes: 0, entries: 0, modes: BTreeMap::new(), links: BTreeMap::new() };
        let failed = |why: String| format!("{}: {why}", self.archive.display());
        let file = File::open(self.archive).map_err(|error| failed(error.to_string()))?;
        let size = file.metadata().map_or(0, |meta| meta.len());
        if size > self.max_size.0 {
            return Err(failed(format!("it is larger than {}; `max_size` allows a larger archive", self.max_size)));
        }
        let unpacked = match self.format {
            ArchiveFormat::Zip => target.zip(file),
            ArchiveFormat::Tar => target.tar(&mut io::BufReader::new(file)),
            ArchiveFormat::TarGz => target.tar(&mut flate2::bufread::MultiGzDecoder::new(io::BufReader::new(file))),
            ArchiveFormat::TarXz | ArchiveFormat::TarZst => self.by_program(file, &mut target),
        };
        unpacked.and_then(|()| target.finish()).map_err(failed)
    }

    fn by_program(&self, file: File, target: &mut Target<'_>) -> Result<(), String> {
        let Some((program, package)) = program(self.format) else { return Ok(()) };
        let mut command = Command::new(program);
        let child = command.arg("-dc").stdin(Stdio::from(file)).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                not_found(program, package)
            } else {
                format!("{program}: {error}")
            }
        };
        let mut child = Ended(child.map_err(failed)?);
        let mut out = child.0.stdout.take().ok_or_else(|| format!("{program}: it has no output"))?;
        let unpacked = target.tar(&mut out);
        let status = match unpacked {
            // It would wait for a reader.
            Err(_) => None,
            Ok(()) => Some(child.0.wait().map_err(failed)?),
        };
        match status.filter(|status| !status.success()) {
            Some(status) => Err(format!("{program} fails with {status}: the archive is damaged")),
            None => unpacked,
        }
    }
}

impl Target<'_> {
    fn tar(&mut self, stream: &mut dyn Read) -> Result<(), String> {
        let damaged = |error: io::Error| format!("the archive is damaged: {error}");
        let mut archive = tar::Archive::new(&mut *stream);
        for entry in archive.entries().map_err(damaged)? {
            let mut entry = entry.map_err(damaged)?;
            let kind = entry.header().entry_type();
            if kind.is_pax_global_extensions() {
                continue;
            }
            let name = text(&entry.path_bytes())?;
            let Some(path) = self.next(&name)? else { continue };
            let mode = entry.header().mode().map_err(damaged)? & 0o777;
            let link = entry.link_name_bytes().map(|link| text(&link)).transpose()?;
            if kind.is_dir() {
                self.folder(&path, mode)?;
            } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
                let modified = entry.header().mtime().ok();
                self.file(&path, mode, modified, &mut entry)?;
            } else if kind.is_symlink() {
                self.link(&path, &link.unwrap_or_default())?;
            } else if kind.is_hard_link() {
                self.hard_link(&path, &link.unwrap_or_default())?;
            } else {
                return Err(format!("{name:?} is neither a file nor a folder nor a link"));
            }
        }
        // A program that unpacks waits until all is read.
        let rest = io::copy(&mut stream.take(self.rules.max_size.0), &mut io::sink()).map_err(damaged)?;
        self.count(rest)
    }

    fn zip(&mut self, file: File) -> Result<(), String> {
        let damaged = |error: zip::result::ZipError| format!("the archive can't be read: {error}");
        let mut archive = zip::ZipArchive::new(io::BufReader::new(file)).map_err(damaged)?;
        for number in 0..archive.len() {
            let mut entry = archive.by_index(number).map_err(damaged)?;
            let name = entry.name().map_err(damaged)?.into_owned();
            let Some(path) = self.next(&name)? else { continue };
            let mode = entry.unix_mode().map(|mode| mode & 0o777).filter(|mode| *mode != 0);
            if entry.is_dir() {
                self.folder(&path, mode.unwrap_or(0o755))?;
            } else if entry.is_symlink() {
                let mut link = Vec::new();
                let read = (&mut entry).take(MAX_LINK).read_to_end(&mut link);
                read.map_err(|error| format!("{name:?}: {error}"))?;
                self.link(&path, &text(&link)?)?;
            } else {
                self.file(&path, mode.unwrap_or(0o644), None, &mut entry)?;
            }
        }
        Ok(())
    }

    /// The path of the next entry inside of the folder. `None`: nothing is left of it.
    fn next(&mut self, name: &str) -> Result<Option<PathBuf>, String> {
        self.entries += 1;
        if self.entries > self.rules.max_entries {
            let most = self.rules.max_entries;
            return Err(format!("it has more than {most} entries; `max_entries` allows more"));
        }
        let path = inside(name).ok_or_else(|| format!("the path {name:?} leads out of the folder"))?;
        let path: PathBuf = path.components().skip(self.rules.strip).collect();
        Ok(Some(path).filter(|path| !path.as_os_str().is_empty()))
    }

    fn count(&mut self, bytes: u64) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.rules.max_size.0 {
            return Err(format!("its content is larger than {}; `max_size` allows more", self.rules.max_size));
        }
        Ok(())
    }

    fn folder(&mut self, path: &Path, mode: u32) -> Result<(), String> {
        if self.links.contains_key(path) {
            return Err(format!("{:?} is a link and a folder", path.display().to_string()));
        }
        let full = self.folder.join(path);
        match fs::DirBuilder::new().recursive(true).mode(0o755).create(&full) {
            Err(error) => Err(format!("{:?}: {error}", path.display().to_string())),
            Ok(()) => {
                for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
                    self.modes.entry(above.to_owned()).or_insert(0o755);
                }
                self.modes.insert(path.to_owned(), mode);
                Ok(())
            }
        }
    }

    /// Makes the folders above an entry, and removes an earlier entry with its name.
    fn make_room(&mut self, path: &Path) -> Result<PathBuf, String> {
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            let mode = self.modes.get(above).copied().unwrap_or(0o755);
            self.folder(above, mode)?;
        }
        if let Some(link) = path.ancestors().skip(1).find(|above| self.links.contains_key(*above)) {
            return Err(format!("{:?} is a link and a folder", link.display().to_string()));
        }
        self.links.remove(path);
        let full = self.folder.join(path);
        match fs::remove_file(&full) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{:?}: {error}", path.display().to_string()))
            }
            Ok(()) | Err(_) => Ok(full),
        }
    }

    fn file(&mut self, path: &Path, mode: u32, modified: Option<u64>, content: &mut dyn Read) -> Result<(), String> {
        let full = self.make_room(path)?;
        let rest = self.rules.max_size.0 - self.bytes;
        let (owner, group) = (self.rules.owner, self.rules.group);
        let mut write = || -> io::Result<u64> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&full)?;
            let written = io::copy(&mut content.take(rest + 1), &mut file)?;
            file.flush()?;
            if owner.is_some() || group.is_some() {
                fchown(&file, owner, group)?;
            }
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            if let Some(time) = modified.and_then(|time| UNIX_EPOCH.checked_add(Duration::from_secs(time))) {
                file.set_modified(time)?;
            }
            Ok(written)
        };
        let written = write().map_err(|error| match error.raw_os_error() {
            Some(_) => format!("{:?}: {error}", path.display().to_string()),
            None => format!("the archive is damaged at {:?}: {error}", path.display().to_string()),
        })?;
        self.count(written)
    }

    fn link(&mut self, path: &Path, target: &str) -> Result<(), String> {
        if !stays_inside(path, target) {
            return Err(format!("the link {:?} leads to {target:?}, out of the folder", path.display().to_string()));
        }
        self.make_room(path)?;
        self.links.insert(path.to_owned(), target.to_owned());
        Ok(())
    }

    /// A second name of a file that is already unpacked.
    fn hard_link(&mut self, path: &Path, target: &str) -> Result<(), String> {
        let first = inside(target).map(|path| path.components().skip(self.rules.strip).collect::<PathBuf>());
        let first =
            first.filter(|first| fs::symlink_metadata(self.folder.join(first)).is_ok_and(|meta| meta.is_file()));
        let Some(first) = first.filter(|first| first != path) else {
            let name = path.display().to_string();
            return Err(format!("the link {name:?} leads to {target:?}, which is no earlier file of the archive"));
        };
        let full = self.make_room(path)?;
        let linked = fs::hard_link(self.folder.join(first), full);
        linked.map_err(|error| format!("{:?}: {error}", path.display().to_string()))
    }

    /// Makes the links, and gives all folders their modes.
    fn finish(self) -> Result<(), String> {
        let (owner, group) = (self.rules.owner, self.rules.group);
        let is_given = owner.is_some() || group.is_some();
        let shown = |path: &Path, error: io::Error| format!("{:?}: {error}", path.display().to_string());
        for (path, target) in &self.links {
            let full = self.folder.join(path);
            let made =
                symlink(target, &full).and_then(|()| if is_given { lchown(&full, owner, group) } else { Ok(()) });
            made.map_err(|error| shown(path, error))?;
        }
        let root = (PathBuf::new(), 0o755);
        for (path, mode) in self.modes.into_iter().rev().chain([root]) {
            let full = self.folder.join(&path);
            let set = fs::set_permissions(&full, fs::Permissions::from_mode(mode));
            let set = set.and_then(|()| if is_given { lchown(&full, owner, group) } else { Ok(()) });
            set.map_err(|error| shown(&path, error))?;
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> Result<String, String> {
    let text = String::from_utf8(bytes.to_vec());
    text.map_err(|error| format!("the name {:?} is not UTF-8", String::from_utf8_lossy(error.as_bytes())))
}

/// A path of an archive, if it stays inside of the folder.
fn inside(name: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    let is_odd = name.contains('\0') || name.split(['/', '\\']).any(|part| part == "..");
    Some(path).filter(|_| !is_odd)
}

/// Whether the target of a link is inside of the folder. It may go up first, from a real folder, and then only down:
/// a way down through other links ends inside, too.
fn stays_inside(path: &Path, target: &str) -> bool {
    let mut depth = path.components().count() - 1;
    let mut is_down = false;
    for part in Path::new(target).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if !is_down && depth > 0 => depth -= 1,
            Component::Normal(_) => is_down = true,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    !target.is_empty() && !target.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_of_the_folder_are_found() {
        for (path, target, is) in [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a/b/c", "../../x/./y", true),
            ("a", "../b", false),
            ("a/b", "../../c", false),
            ("a", "/etc/passwd", false),
            // Through another link, the way down may be shorter than it seems.
            ("a/b", "c/../../..", false),
            ("a/b", "c/..", false),
            ("a", "", false),
        ] {
            assert_eq!(stays_inside(Path::new(path), target), is, "{path} -> {target}");
        }
    }

    #[test]
    fn paths_that_lead_out_of_the_folder_are_found() {
        for (name, path) in [
            ("./a//b/", Some("a/b")),
            ("./", Some("")),
            ("a/../b", None),
            ("../a", None),
            ("/a", None),
            ("a\\..\\b", None),
            ("a\\b", Some("a\\b")),
        ] {
            assert_eq!(inside(name), path.map(PathBuf::from), "{name}");
        }
    }
}
