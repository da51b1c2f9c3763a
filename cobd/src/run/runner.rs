//! The runner: the small process between the daemon and one action.
//!
//! It is given a job with its lock (its standard input from then on, see [`super`]), begins the action, watches it, writes
//! the result and ends. It needs nothing from the daemon and tells it nothing but by the job folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Mode, fstat};

use super::job::{self, Exit, FORMAT, JOB_VARIABLE, ResultFile, SpecFile, Written};
use super::output::OutputFile;
use super::redact::Redactor;
use super::secrets::{self, Opened};
use super::supervise::{self, Group, Rest, Watch};
use crate::durable::{self, Sync};

/// Beyond this a variable is refused by the kernel (`MAX_ARG_STRLEN`, 128 KiB, with its name).
const MAX_VARIABLE: usize = 120 << 10;

/// Between two looks at a long action's output and at cancellation.
const LOOK: Duration = Duration::from_millis(100);

/// Does one job. The exit code is for people who try it by hand: the daemon reads the result.
pub(super) fn run(folder: &Path) -> ExitCode {
    if !holds_lock(&folder.join(job::LOCK)) || job::present(&folder.join(job::RESULT)) {
        // Not begun by the daemon: an action run beside its protocol could do harm.
        return ExitCode::from(2);
    }
    enter_session();
    let began_ns = now_ns();
    let spec = SpecFile::read(folder);
    let durable = spec.as_ref().map_or(true, |spec| spec.durable);
    let private = spec.as_ref().ok().and_then(|spec| spec.secrets.clone());
    let opened = private.as_deref().map(Opened::read).transpose();
    let redactor = opened.as_ref().ok().and_then(Option::as_ref).map(Opened::redactor).unwrap_or_default();
    let place = Place { folder, private: private.as_deref().unwrap_or(folder), redactor };
    let exit = match (&spec, opened) {
        (Ok(spec), Ok(opened)) => act(&place, spec, opened.as_ref()),
        (Ok(_), Err(error)) => Exit::SpawnFailed(format!("its secrets are gone: {error}")),
        (Err(why), _) => Exit::SpawnFailed(why.clone()),
    };
    let result = ResultFile {
        format: FORMAT,
        exit,
        exports: Written::exports(place.private).exported(&place.redactor),
        saved: Written::saved(place.private).redacted(&place.redactor),
        began_ns,
        ended_ns: now_ns(),
    };
    let written = write_result(folder, &result, if durable { Sync::Now } else { Sync::Later });
    if let Some(private) = &private {
        // If it can't, whoever deletes the job does.
        let _ = secrets::remove(private);
    }
    code(&written)
}

/// Writes down why there is no runner for this job.
pub(super) fn refuse(folder: &Path, why: &io::Error) -> ExitCode {
    let now = now_ns();
    let result = ResultFile {
        format: FORMAT,
        exit: Exit::SpawnFailed(format!("no process can be begun for it: {why}")),
        exports: Written::Nothing,
        saved: Written::Nothing,
        began_ns: now,
        ended_ns: now,
    };
    code(&write_result(folder, &result, Sync::Now))
}

fn code(written: &io::Result<()>) -> ExitCode {
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Where a job's files are.
struct Place<'a> {
    /// The job's folder.
    folder: &'a Path,
    /// For what may hold the value of a secret; without secrets the same.
    private: &'a Path,
    redactor: Redactor,
}

/// Whether the standard input is this lock, handed over by who took it.
pub(crate) fn holds_lock(lock: &Path) -> bool {
    let (Ok(stdin), Ok(lock)) = (fstat(io::stdin()), fs::symlink_metadata(lock)) else { return false };
    (stdin.st_dev, stdin.st_ino) == (lock.dev(), lock.ino())
}

/// Leads a session of its own from here on, with the usual mask for new files, and says so in the lock.
pub(crate) fn enter_session() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Away from the daemon's terminal and group. Fails only for a group leader, who is that already.
    let _ = rustix::process::setsid();
    // Whoever finds the lock free and no result looks for what is left in this session.
    let pid = std::process::id().to_string();
    let written = rustix::io::pwrite(io::stdin(), pid.as_bytes(), 0);
    // A shorter number than the last holder's must not end with its digits.
    let _ = written.and_then(|n| rustix::fs::ftruncate(io::stdin(), n as u64));
}

fn act(place: &Place<'_>, spec: &SpecFile, opened: Option<&Opened>) -> Exit {
    let Place { folder, private, .. } = *place;
    let words = supervise::words(&spec.command);
    let begun = Instant::now();
    let cancel = folder.join(job::CANCEL);
    if job::present(&cancel) {
        return Exit::Cancelled;
    }
    let Some((program, arguments)) = words.split_first() else {
        return Exit::SpawnFailed("an empty command".to_owned());
    };
    let mut environment = spec.environment.clone();
    if let Some(opened) = opened
        && let Err(why) = put_secrets_in(place, opened, &mut environment)
    {
        return Exit::SpawnFailed(why);
    }
    let mut outputs = match outputs(private, spec.stdout_apart) {
        Ok(outputs) => outputs,
        Err(error) => return Exit::SpawnFailed(format!("its output can't be written: {error}")),
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&spec.folder).env_clear().envs(&environment);
    pass_files(&mut command, place);
    let stdout = outputs.first().expect("there are one or two");
    let stderr = outputs.last().expect("there are one or two");
    let group = match Group::begin(&mut command, [stdout, stderr]) {
        Ok(group) => group,
        Err(error) => return Exit::SpawnFailed(supervise::why_not_begun(&words, &spec.folder, &error)),
    };
    let limit = begun + Duration::from_millis(spec.timeout_ms);
    let grace = Duration::from_millis(spec.grace_ms);
    let watch = Watch { asked: &|| job::present(&cancel), alarm: None, longest: LOOK, rest: Rest::Leave };
    let ended = group.wait(&mut outputs, Some(limit), grace, &watch);
    for output in outputs {
        if opened.is_none() {
            output.finish();
        } else {
            // Rather nothing is shown than a value.
            let _ = output.finish_into(folder, &place.redactor);
        }
    }
    match ended {
        Ok((status, ended)) => supervise::exit(status, ended),
        Err(_) => Exit::Lost,
    }
}

fn outputs(folder: &Path, stdout_apart: bool) -> io::Result<Vec<OutputFile>> {
    let both = OutputFile::open(folder, job::OUTPUT)?;
    Ok(if stdout_apart { vec![OutputFile::open(folder, job::STDOUT)?, both] } else { vec![both] })
}

/// Puts values where marks stand: into the variables, and into a content of its own in the private folder.
fn put_secrets_in(
    place: &Place<'_>,
    opened: &Opened,
    environment: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    for value in environment.values_mut() {
        *value = opened.put_into_text(value)?;
    }
    let content = fs::read_to_string(place.folder.join(job::CONTENT)).map_err(|e| format!("its content: {e}"))?;
    let content = opened.put_into_json(&content)?;
    durable::write_file(place.private, job::CONTENT, 0o600, content.as_bytes(), Sync::Later)
        .map_err(|e| format!("its content can't be written: {e}"))
}

/// The variables that point into the job's folders.
fn pass_files(command: &mut Command, place: &Place<'_>) {
    let Place { folder, private, .. } = place;
    command
        .env(JOB_VARIABLE, folder)
        .env("COB_CONTENT", private.join(job::CONTENT))
        .env("COB_IMPORTS_FILE", folder.join(job::IMPORTS))
        .env("COB_EXPORT_OUT", private.join(job::EXPORTS))
        .env("COB_RESULT_OUT", private.join(job::SAVED));
    // Longer ones have to be read from the file.
    if let Ok(imports) = fs::read_to_string(folder.join(job::IMPORTS))
        && imports.len() <= MAX_VARIABLE
    {
        command.env("COB_IMPORTS", imports);
    }
}

fn write_result(folder: &Path, result: &ResultFile, sync: Sync) -> io::Result<()> {
    let bytes = serde_json::to_vec(result).map_err(io::Error::other)?;
    durable::write_file(folder, job::RESULT, 0o600, &bytes, sync).or_else(|_| {
        // On a full disk the result is worth more than the output.
        for name in [job::OUTPUT, job::STDOUT] {
            let _ = fs::write(folder.join(name), "");
        }
        durable::write_file(folder, job::RESULT, 0o600, &bytes, sync)
    })
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
