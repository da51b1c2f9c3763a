//! The files of a job: the spec that the daemon writes, and the result that the runner writes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_types::message::{MAX_VALUES, Values};
use cob_types::{Command, canonical};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::output;
use super::redact::Redactor;
use super::secrets::Sealed;
use crate::clock::wall_ns;

/// The format of `spec` and `result`.
pub(super) const FORMAT: u32 = 1;
/// The daemon's spec.
pub(super) const SPEC: &str = "spec";
/// Locked (flock) until the job is done; contains the process id of the runner.
pub(super) const LOCK: &str = "lock";
/// The output of the action.
pub(crate) const OUTPUT: &str = "output";
/// Its standard output, if that is kept separate.
pub(crate) const STDOUT: &str = "stdout";
/// The result of the job.
pub(super) const RESULT: &str = "result";
/// A file that makes the runner end the action.
pub(super) const CANCEL: &str = "cancel";
/// `COB_CONTENT`.
pub(super) const CONTENT: &str = "content.json";
/// `COB_IMPORTS_FILE`.
pub(super) const IMPORTS: &str = "imports.json";
/// `COB_EXPORT_OUT`.
pub(super) const EXPORTS: &str = "exports.json";
/// `COB_RESULT_OUT`.
pub(super) const SAVED: &str = "saved";
/// The longest text that an action may leave in `COB_RESULT_OUT`.
const MAX_SAVED: usize = 64 << 10;
/// The longest spec or result that is read: imports and content are separate files.
const MAX_FILE: usize = 4 << 20;
/// How much of the end of a separate standard output is returned.
const MAX_STDOUT: usize = 4 << 10;

/// The number of a job: unique in its folder of jobs, even across restarts of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JobId {
    pub(super) fn folder(self, root: &Path) -> PathBuf {
        root.join(format!("{:016x}", self.0))
    }

    pub(super) fn from_folder(name: &str) -> Option<Self> {
        (name.len() == 16).then(|| u64::from_str_radix(name, 16).ok()).flatten().map(Self)
    }
}

/// The specification of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The job.
    pub id: JobId,
    /// The caller's label; [`super::Runner::scan`] returns it.
    pub label: String,
    /// The command to execute.
    pub command: Command,
    /// The whole environment, except for the variables that point into the job folder.
    pub environment: BTreeMap<String, String>,
    /// The working folder.
    pub folder: PathBuf,
    /// The time limit.
    pub timeout: Duration,
    /// The time between the request to end and killing the process group.
    pub grace: Duration,
    /// The change object's content, for `COB_CONTENT`.
    pub content: String,
    /// The values carried by the held locks, for `COB_IMPORTS`: JSON.
    pub imports: String,
    /// Whether the standard output is kept separate.
    pub stdout_apart: bool,
    /// Whether the result must survive a power failure.
    pub durable: bool,
    /// The encrypted secrets whose placeholders are in content and environment.
    pub secrets: Sealed,
    /// A command of an operator: it ends with its daemon, and all processes that it has started end with it.
    /// It gets no files, and its secrets are only removed from its output.
    pub attached: bool,
}

/// A [`Spec`] as the runner reads it.
#[skip_serializing_none]
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SpecFile {
    pub(super) format: u32,
    pub(super) label: String,
    pub(super) command: Command,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
    pub(super) timeout_ms: u64,
    pub(super) grace_ms: u64,
    pub(super) stdout_apart: bool,
    pub(super) durable: bool,
    /// The private folder of a job with secrets.
    pub(super) secrets: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) attached: bool,
}

/// The way in which an action ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// By itself, with this exit status.
    Exited(i32),
    /// By a foreign signal.
    Signal(i32),
    /// It was ended because its time was over.
    TimedOut,
    /// It was ended on the daemon's order, or never started.
    Cancelled,
    /// It could not be started, for this reason.
    SpawnFailed(String),
    /// Its runner was killed, so the result is unknown. Remaining processes were ended.
    Lost,
}

/// The content that an action wrote into its result files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Written {
    Nothing,
    Text(String),
    Unusable(String),
}

/// The result as the runner writes it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ResultFile {
    pub(super) format: u32,
    pub(super) exit: Exit,
    pub(super) exports: Written,
    pub(super) saved: Written,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
}

/// The result of a job, with the data that it left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobResult {
    /// The way in which it ended.
    pub exit: Exit,
    /// The content of `COB_EXPORT_OUT`; after an error the action counts as failed.
    pub exports: Result<Values, String>,
    /// The content of `COB_RESULT_OUT`, for the revert.
    pub saved: Result<Option<String>, String>,
    /// The end of its standard output, if that was kept separate.
    pub stdout: String,
    /// The last printed lines, at most 2 KiB, safe for a terminal.
    pub last_lines: String,
    /// The start time, in nanoseconds since 1970; zero: unknown.
    pub began_ns: u64,
    /// The end time.
    pub ended_ns: u64,
}

impl JobResult {
    /// Reads the result from a job folder; `None` if there is no valid result.
    ///
    /// # Errors
    /// If the folder can't be read, so that the state is unknown.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let Some(bytes) = read_if_there(&folder.join(RESULT), MAX_FILE)? else { return Ok(None) };
        let file = serde_json::from_slice(&bytes).ok().filter(|f: &ResultFile| f.format == FORMAT);
        Ok(file.map(|file| Self::of(file, folder)))
    }

    fn of(file: ResultFile, folder: &Path) -> Self {
        let saved = match file.saved {
            Written::Nothing => Ok(None),
            Written::Text(text) => Ok(Some(text)),
            Written::Unusable(why) => Err(why),
        };
        Self {
            exit: file.exit,
            exports: exports(file.exports),
            saved,
            stdout: output::tail(&folder.join(STDOUT), MAX_STDOUT),
            last_lines: output::last_lines(folder),
            began_ns: file.began_ns,
            ended_ns: file.ended_ns,
        }
    }

    /// The result of a job that did not start.
    pub(crate) fn not_run(exit: Exit) -> Self {
        let now = wall_ns();
        Self {
            exit,
            exports: Ok(Values::new()),
            saved: Ok(None),
            stdout: String::new(),
            last_lines: String::new(),
            began_ns: now,
            ended_ns: now,
        }
    }

    /// The result of a job whose runner ended without a result.
    pub(super) fn lost(folder: &Path, ended_ns: u64) -> Self {
        let private = SpecFile::read(folder).ok().and_then(|spec| spec.secrets);
        Self {
            exit: Exit::Lost,
            exports: Ok(Values::new()),
            // The data saved so far helps a revert. With secrets it is deleted.
            saved: match Written::saved(folder) {
                Written::Text(text) if private.is_none() => Ok(Some(text)),
                Written::Nothing | Written::Text(_) | Written::Unusable(_) => Ok(None),
            },
            stdout: String::new(),
            last_lines: private
                .map_or_else(|| output::last_lines(folder), |folder| output::private_last_lines(&folder)),
            began_ns: 0,
            ended_ns,
        }
    }
}

/// Checks the exports of an action: an object, each value stored as canonical JSON.
fn exports(written: Written) -> Result<Values, String> {
    let text = match written {
        Written::Nothing => return Ok(Values::new()),
        Written::Text(text) if text.trim().is_empty() => return Ok(Values::new()),
        Written::Text(text) => text,
        Written::Unusable(why) => return Err(format!("exported values: {why}")),
    };
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).map_err(|e| format!("exported values are no JSON object: {e}"))?;
    Ok(object.into_iter().map(|(name, value)| (name, canonical::json(&value))).collect())
}

impl Written {
    /// Reads `COB_EXPORT_OUT`.
    pub(super) fn exports(folder: &Path) -> Self {
        Self::read(&folder.join(EXPORTS), MAX_VALUES)
    }

    /// Reads `COB_RESULT_OUT`.
    pub(super) fn saved(folder: &Path) -> Self {
        Self::read(&folder.join(SAVED), MAX_SAVED)
    }

    /// The exports for a job with secrets. Exported values are not secret, so an export with a secret is refused.
    pub(super) fn exported(self, redactor: &Redactor) -> Self {
        match self {
            Self::Text(text) if redactor.text(&text) != text => Self::Unusable(
                "an exported value contains a secret; exported values are shown to users and kept in the history"
                    .to_owned(),
            ),
            other @ (Self::Nothing | Self::Text(_) | Self::Unusable(_)) => other,
        }
    }

    /// The same content without values of secrets.
    pub(super) fn redacted(self, redactor: &Redactor) -> Self {
        match self {
            Self::Text(text) => Self::Text(redactor.text(&text)),
            other @ (Self::Nothing | Self::Unusable(_)) => other,
        }
    }

    fn read(path: &Path, max: usize) -> Self {
        match read_capped(path, max).map(String::from_utf8) {
            Ok(Ok(text)) => Self::Text(text),
            Ok(Err(_)) => Self::Unusable("not UTF-8".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Nothing,
            Err(error) => Self::Unusable(error.to_string()),
        }
    }
}

impl SpecFile {
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let bytes = read_capped(&folder.join(SPEC), MAX_FILE).map_err(|e| format!("its spec: {e}"))?;
        let file: Self = serde_json::from_slice(&bytes).map_err(|e| format!("its spec: {e}"))?;
        if file.format != FORMAT {
            return Err(format!("its spec has format {}; this program reads {FORMAT}", file.format));
        }
        Ok(file)
    }
}

/// Reads a regular file of at most `max` bytes. A link or a pipe that an action may have put there is neither followed
/// nor waited for.
pub(crate) fn read_capped(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {max} bytes")));
    }
    Ok(bytes)
}

/// Like [`read_capped`]; `None` if the file is missing, or an action has replaced it by another object.
///
/// # Errors
/// If the state is unknown: this process has too many files open, or the disk does not answer.
pub(super) fn read_if_there(path: &Path, max: usize) -> io::Result<Option<Vec<u8>>> {
    read_capped(path, max).map(Some).or_else(|error| if is_absent(&error) { Ok(None) } else { Err(error) })
}

/// Whether an error means that the path holds no regular file.
pub(super) fn is_absent(error: &io::Error) -> bool {
    let link = rustix::io::Errno::LOOP.raw_os_error();
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidData)
        || error.raw_os_error() == Some(link)
}

/// Opens a regular file, and no other object that an action may have put there.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).expect("flags are small numbers");
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    Ok(file)
}

/// Whether the path exists.
pub(crate) fn present(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
