//! What native kinds do to a host: files written whole, and programs run with bounded output.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::durable::{self, Sync};

/// Of what a program prints so much is kept, on each of its outputs.
const MAX_OUTPUT: usize = 1 << 20;
/// The longest file of the host that is read.
const MAX_FILE: u64 = 16 << 20;

/// The host, or a tree of files that is to become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Host {
    root: PathBuf,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds) struct Ran {
    /// Exit status; none: a signal.
    pub(in crate::kinds) code: Option<i32>,
    /// Its standard output.
    pub(in crate::kinds) out: String,
    /// Its standard error.
    pub(in crate::kinds) err: String,
    what: String,
}

impl Host {
    /// The host whose files are below `root`; none: this one.
    ///
    /// # Errors
    /// When the folder is not absolute.
    pub(in crate::kinds) fn below(root: Option<&Path>) -> Result<Self, String> {
        let root = root.unwrap_or(Path::new("/"));
        if root.is_absolute() {
            Ok(Self { root: root.to_owned() })
        } else {
            Err(format!("content: root {:?} must be absolute", root.display().to_string()))
        }
    }

    /// A folder instead of this host.
    pub(in crate::kinds) fn root(&self) -> Option<&Path> {
        (self.root != Path::new("/")).then_some(&self.root)
    }

    /// Where a file of the host is.
    pub(in crate::kinds) fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// A file's text; empty where there is none.
    ///
    /// # Errors
    /// In words, with the file.
    pub(in crate::kinds) fn read(&self, absolute: &str) -> Result<String, String> {
        self.read_if_there(absolute).map(Option::unwrap_or_default)
    }

    /// A file's text, if it is there.
    ///
    /// # Errors
    /// In words, with the file.
    pub(in crate::kinds) fn read_if_there(&self, absolute: &str) -> Result<Option<String>, String> {
        let path = self.path(absolute);
        let read = || -> io::Result<String> {
            let file = fs::File::open(&path)?;
            let mut text = String::new();
            let read = file.take(MAX_FILE + 1).read_to_string(&mut text)?;
            // Who reads a part would write it back as the whole.
            if read as u64 > MAX_FILE {
                return Err(too_long());
            }
            Ok(text)
        };
        match read() {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Replaces a file durably, or makes it; it has the old text or the new one, whole. Its mode stays.
    ///
    /// # Errors
    /// In words, with the file.
    pub(in crate::kinds) fn write(&self, absolute: &str, text: &str, mode: u32) -> Result<(), String> {
        // Where a link stands, what it leads to is the file.
        let path = self.path(absolute);
        let path = path.canonicalize().unwrap_or(path);
        let root = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        if !path.starts_with(&root) {
            return Err(format!("{absolute}: it leads to {}, out of {}", path.display(), root.display()));
        }
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        if text.len() as u64 > MAX_FILE {
            return Err(failed(too_long()));
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
            return Err(format!("{}: no file can be there", path.display()));
        };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
        let mode = fs::metadata(&path).map_or(mode, |meta| meta.permissions().mode() & 0o7777);
        durable::write_file(folder, name, mode, text.as_bytes(), Sync::Now).map_err(failed)
    }

    /// Takes a file away durably, if it is there.
    ///
    /// # Errors
    /// In words, with the file.
    pub(in crate::kinds) fn remove(&self, absolute: &str) -> Result<(), String> {
        let path = self.path(absolute);
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.and_then(|()| path.parent().map_or(Ok(()), durable::sync_folder)),
        };
        removed.map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn too_long() -> io::Error {
    io::Error::other(format!("it is longer than {MAX_FILE} bytes"))
}

impl Ran {
    /// Its output, when it succeeded.
    ///
    /// # Errors
    /// How it ended, with the last line that it printed.
    pub(in crate::kinds) fn ok(self) -> Result<String, String> {
        if self.code == Some(0) { Ok(self.out) } else { Err(self.complaint()) }
    }

    /// How it ended, in words.
    pub(in crate::kinds) fn complaint(&self) -> String {
        let last = |text: &str| text.lines().map(str::trim).rfind(|l| !l.is_empty()).map(str::to_owned);
        let how = self.code.map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit status {code}"));
        let said = last(&self.err).or_else(|| last(&self.out)).map(|said| format!(": {said}")).unwrap_or_default();
        format!("{}: {how}{said}", self.what)
    }
}

/// Runs a program to its end, in the action's own process group, with this input. What it prints is kept up to a
/// bound and read to its end, and shown to people as well.
///
/// # Errors
/// When it can't be begun.
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
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (out, err) = std::thread::scope(|scope| {
        // Whoever does not read its input gets none: the pipe's end is all that it misses.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        let err = scope.spawn(move || stderr.map(|pipe| keep(pipe, io::stderr())).unwrap_or_default());
        let out = stdout.map(|pipe| keep(pipe, io::sink())).unwrap_or_default();
        (out, err.join().unwrap_or_default())
    });
    let status = child.wait().map_err(failed)?;
    Ok(Ran { code: status.code(), out, err, what })
}

/// Reads all, keeps the beginning, and shows it.
fn keep(mut pipe: impl io::Read, mut show: impl io::Write) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 8192]);
    while let Ok(n) = pipe.read(&mut buffer) {
        if n == 0 {
            break;
        }
        let room = MAX_OUTPUT.saturating_sub(kept.len()).min(n);
        kept.extend_from_slice(&buffer[..room]);
        let _ = show.write_all(&buffer[..n]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
