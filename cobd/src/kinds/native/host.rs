//! Access of native kinds to a host: files are written as a whole, and programs run with bounded output.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::XattrFlags;

use super::bytes::{bytes_of, text_of};
use crate::durable::{self, Sync};
use crate::run::{Stream, exchange};

/// The most bytes that are kept of each output of a program.
const MAX_OUTPUT: usize = 1 << 20;
/// The longest extended attribute, and the longest list of their names.
const MAX_ATTRIBUTE: usize = 64 << 10;
/// The longest file of the host that is read.
pub(super) const MAX_FILE: u64 = 16 << 20;

/// The host, or a folder tree that becomes a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Host {
    root: PathBuf,
}

/// The end of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Ran {
    /// Exit status. `None`: ended by a signal.
    pub(in crate::kinds) code: Option<i32>,
    /// Its standard output.
    pub(in crate::kinds) out: String,
    /// Its standard error.
    pub(in crate::kinds) err: String,
    what: String,
}

impl Host {
    /// The host with the root folder `root`. `None`: this host.
    ///
    /// # Errors
    /// If the folder is not absolute.
    pub(in crate::kinds) fn below(root: Option<&Path>) -> Result<Self, String> {
        let root = root.unwrap_or(Path::new("/"));
        if root.is_absolute() {
            Ok(Self { root: root.to_owned() })
        } else {
            Err(format!("content: root {:?} must be absolute", root.display().to_string()))
        }
    }

    /// The root folder, unless this is the running host.
    pub(in crate::kinds) fn root(&self) -> Option<&Path> {
        (self.root != Path::new("/")).then_some(&self.root)
    }

    /// The real path of a file of the host.
    pub(in crate::kinds) fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// A file's text; empty if the file does not exist.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn read(&self, absolute: &str) -> Result<String, String> {
        self.read_if_there(absolute).map(Option::unwrap_or_default)
    }

    /// A file's text, if the file exists. Bytes that are not UTF-8 survive a later write.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn read_if_there(&self, absolute: &str) -> Result<Option<String>, String> {
        let path = self.path(absolute);
        let read = || -> io::Result<String> {
            let file = fs::File::open(&path)?;
            let mut bytes = Vec::new();
            let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
            // A partial text would later be written back as the whole file.
            if read as u64 > MAX_FILE {
                return Err(too_long());
            }
            Ok(text_of(bytes))
        };
        match read() {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Replaces or creates a file durably and atomically. Owner, group, mode and extended attributes stay.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn write(&self, absolute: &str, text: &str, mode: u32) -> Result<(), String> {
        // A link stands for its target.
        let path = self.path(absolute);
        let path = path.canonicalize().unwrap_or(path);
        let is = fs::metadata(&path).ok();
        let mode = is.as_ref().map_or(mode, |is| is.permissions().mode() & 0o7777);
        self.put(absolute, &path, text, mode, is.map(|is| Owned::of(&path, &is)).as_ref())
    }

    /// Replaces any file or link durably by a file that belongs to us and has this mode.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn replace(&self, absolute: &str, text: &str, mode: u32) -> Result<(), String> {
        let path = self.path(absolute);
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let path = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name)).unwrap_or(path);
        self.put(absolute, &path, text, mode, None)
    }

    /// Rejects a path that a link leads out of the root folder.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn is_inside(&self, absolute: &str, path: &Path) -> Result<(), String> {
        let root = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        if path.starts_with(&root) {
            return Ok(());
        }
        Err(format!("{absolute}: it leads to {}, out of {}", path.display(), root.display()))
    }

    fn put(&self, absolute: &str, path: &Path, text: &str, mode: u32, like: Option<&Owned>) -> Result<(), String> {
        self.is_inside(absolute, path)?;
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let bytes = bytes_of(text);
        if bytes.len() as u64 > MAX_FILE {
            return Err(failed(too_long()));
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
            return Err(format!("{}: no file can be there", path.display()));
        };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
        let fill = |file: &mut fs::File| {
            like.map_or(Ok(()), |like| like.give(file))?;
            file.write_all(&bytes)
        };
        durable::write_file_with(folder, name, mode, Sync::Now, fill).map_err(failed)
    }

    /// The metadata of a path, without following a link.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn inspect(&self, absolute: &str) -> Result<Option<fs::Metadata>, String> {
        inspect(&self.path(absolute))
    }

    /// Makes a link durably and atomically, in place of any file or link.
    ///
    /// # Errors
    /// The reason as text, with the link.
    pub(in crate::kinds) fn link(&self, absolute: &str, target: &str) -> Result<(), String> {
        let path = self.path(absolute);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            return Err(format!("{}: no link can be there", path.display()));
        };
        let folder = folder.canonicalize().map_err(failed)?;
        self.is_inside(absolute, &folder)?;
        durable::link(&folder, name, Path::new(target)).map_err(failed)
    }

    /// Removes a file durably, if it exists.
    ///
    /// # Errors
    /// The reason as text, with the file.
    pub(in crate::kinds) fn remove(&self, absolute: &str) -> Result<(), String> {
        let path = self.path(absolute);
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.and_then(|()| path.parent().map_or(Ok(()), durable::sync_folder)),
        };
        removed.map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The properties, besides the mode, that a file's replacement inherits.
pub(super) struct Owned {
    user: u32,
    group: u32,
    /// Include access lists and security labels.
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Owned {
    /// Reads the properties of a file.
    pub(super) fn of(path: &Path, is: &fs::Metadata) -> Self {
        Self { user: is.uid(), group: is.gid(), attributes: attributes(path) }
    }

    /// Applies the properties to a replacement file. The caller sets the mode afterwards.
    pub(super) fn give(&self, file: &fs::File) -> io::Result<()> {
        give_to(file, self.user, self.group)?;
        let is = attributes(&own_link(file));
        // The folder may have default access lists for new files.
        for name in is.keys().filter(|name| !self.attributes.contains_key(*name) && !is_of_system(name)) {
            rustix::fs::fremovexattr(file, name.as_slice())?;
        }
        for (name, value) in self.attributes.iter().filter(|(name, value)| is.get(*name) != Some(*value)) {
            match rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
                // Labels that the system assigns itself, on a system where programs may not set them.
                Err(_) if is_of_system(name) => {}
                given => given?,
            }
        }
        Ok(())
    }
}

/// The metadata of a real path, without following a link. `None`: it does not exist.
///
/// # Errors
/// The reason as text, with the file.
pub(in crate::kinds) fn inspect(path: &Path) -> Result<Option<fs::Metadata>, String> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Gives an open file to a user and a group, if another user or group has it.
pub(super) fn give_to(file: &fs::File, user: u32, group: u32) -> io::Result<()> {
    let is = file.metadata()?;
    if (user, group) == (is.uid(), is.gid()) { Ok(()) } else { fchown(file, Some(user), Some(group)) }
}

/// Copies a file durably to `folder/name`, with owner, group, mode, extended attributes and time of the last change.
///
/// # Errors
/// The reason as text, with the file.
pub(in crate::kinds) fn copy(from: &Path, folder: &Path, name: &str) -> Result<(), String> {
    let copied = || -> io::Result<()> {
        let mut source = fs::File::open(from)?;
        let is = source.metadata()?;
        let like = Owned::of(&own_link(&source), &is);
        durable::write_file_with(folder, name, is.permissions().mode() & 0o7777, Sync::Now, |file| {
            io::copy(&mut source, file)?;
            like.give(file)?;
            file.set_modified(is.modified()?)
        })
    };
    copied().map_err(|error| format!("{} as {}: {error}", from.display(), folder.join(name).display()))
}

fn is_of_system(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}

/// The readable extended attributes of a file; empty on file systems without attributes. Checksums are left out,
/// because they belong to the old content.
fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut room = vec![0; MAX_ATTRIBUTE];
    let names = rustix::fs::listxattr(path, room.as_mut_slice()).map_or_else(|_| Vec::new(), |n| room[..n].to_vec());
    let is_sum = |name: &[u8]| [&b"security.ima"[..], b"security.evm"].contains(&name);
    let mut found = BTreeMap::new();
    for name in names.split(|b| *b == 0).filter(|name| !name.is_empty() && !is_sum(name)) {
        if let Ok(length) = rustix::fs::getxattr(path, name, room.as_mut_slice()) {
            found.insert(name.to_vec(), room[..length].to_vec());
        }
    }
    found
}

/// The path of an open file.
pub(in crate::kinds) fn own_link(file: &fs::File) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

pub(super) fn too_long() -> io::Error {
    io::Error::other(format!("it is longer than {MAX_FILE} bytes"))
}

impl Ran {
    /// Its output after success.
    ///
    /// # Errors
    /// The way it ended, with its last output line.
    pub(in crate::kinds) fn ok(self) -> Result<String, String> {
        if self.code == Some(0) { Ok(self.out) } else { Err(self.complaint()) }
    }

    /// The way it ended, as text.
    pub(in crate::kinds) fn complaint(&self) -> String {
        let last = |text: &str| text.lines().map(str::trim).rfind(|l| !l.is_empty()).map(str::to_owned);
        let how = self.code.map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit status {code}"));
        let said = last(&self.err).or_else(|| last(&self.out)).map(|said| format!(": {said}")).unwrap_or_default();
        format!("{}: {how}{said}", self.what)
    }
}

/// Whether a program is installed.
pub(in crate::kinds) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Whether a program is installed.
///
/// # Errors
/// The missing program, with the name of its package.
pub(in crate::kinds) fn needs_program(program: &str, package: &str) -> Result<(), String> {
    if has_program(program) { Ok(()) } else { Err(not_found(program, package)) }
}

/// The message about a missing program.
pub(in crate::kinds) fn not_found(program: &str, package: &str) -> String {
    format!("{program}: not found on this host; install the package {package}")
}

/// Runs a program to its end in the action's process group, with this input. The outputs are read completely, kept up
/// to a bound, and the error output is also shown to users. Background processes of the program are not waited for.
///
/// # Errors
/// If the program can't be started.
pub(in crate::kinds) fn run_bounded(command: &mut Command, input: &[u8]) -> Result<Ran, String> {
    let what = command.get_program().to_string_lossy().into_owned();
    let failed = |error: io::Error| {
        if error.kind() == io::ErrorKind::NotFound {
            format!("{what}: not found; it has to be installed on this host")
        } else {
            format!("{what}: {error}")
        }
    };
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(failed)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let said = exchange(&mut child, input, &mut |stream, bytes| {
        match stream {
            Stream::Out => keep(&mut out, bytes),
            Stream::Err => {
                let _ = io::stderr().write_all(bytes);
                keep(&mut err, bytes);
            }
        }
        ControlFlow::Continue(())
    });
    let status = child.wait().map_err(failed)?;
    said.map_err(failed)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ran { code: status.code(), out: text(out), err: text(err), what })
}

/// Keeps the beginning of the output.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_OUTPUT.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..room]);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    fn shell(script: &str, input: &[u8]) -> Ran {
        run_bounded(Command::new("sh").args(["-c", script]), input).expect("begun")
    }

    #[test]
    fn a_background_process_of_a_program_is_not_waited_for() {
        let begun = Instant::now();
        let ran = shell("sleep 60 & echo $!; echo why >&2; exit 3", b"");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        let left = ran.out.trim().parse().ok().and_then(Pid::from_raw).expect("its number");
        kill_process(left, Signal::KILL).expect("it lives");
        assert_eq!((ran.code, ran.complaint().as_str()), (Some(3), "sh: exit status 3: why"));
    }

    #[test]
    fn a_file_keeps_owner_mode_and_extended_attributes() {
        let folder = tempfile::tempdir().expect("a folder");
        let host = Host { root: folder.path().to_owned() };
        let path = folder.path().join("hosts");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).expect("set");
        // Only root can change the owner.
        let _ = std::os::unix::fs::chown(&path, Some(1), Some(1));
        let noted = rustix::fs::setxattr(&path, "user.noted", b"1", XattrFlags::empty());
        let is = || fs::metadata(&path).map(|is| (is.uid(), is.gid(), is.mode(), attributes(&path))).expect("there");
        let was = is();
        assert!(noted.is_err() || was.3.contains_key(&b"user.noted"[..]), "{was:?}");
        host.write("/hosts", "new", 0o644).expect("written");
        assert_eq!((is(), fs::read_to_string(&path).expect("read").as_str()), (was.clone(), "new"));
        assert_eq!(host.edit("/hosts", 0o644, &|text| (text == "new").then(|| "newer".to_owned())), Ok(true));
        assert_eq!((is(), fs::read_to_string(&path).expect("read").as_str()), (was, "newer"));
    }

    #[test]
    fn the_output_of_a_program_is_read_to_its_end_and_kept_up_to_a_limit() {
        let input = vec![b'x'; 300_000];
        assert_eq!(shell("wc -c", &input).out, "300000\n");
        assert_eq!(shell("true", &input).code, Some(0), "no reader is needed");
        assert_eq!(shell("head -c 60000 /dev/zero; printf . >&2", b"").out.len(), 60_000);
        let ran = shell("head -c 3000000 /dev/zero | tee /dev/stderr; printf .", b"");
        assert_eq!((ran.out.len(), ran.err.len(), ran.code), (MAX_OUTPUT, MAX_OUTPUT, Some(0)));
    }
}
