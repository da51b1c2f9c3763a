//! The runner: the process between the daemon and its actions.
//!
//! It receives jobs with their locks (see [`super::handover`]), starts the action of each, watches it, and writes the
//! result. It needs no data from the daemon and reports only through the job folder and the pipe. Each job has its own
//! thread, and no job waits for another.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, fstat};

use super::alarm::{Alarm, Alarms};
use super::handover::{self, Given};
use super::job::{self, Exit, FORMAT, ResultFile, SpecFile, Written};
use super::output::OutputFile;
use super::redact::Redactor;
use super::secrets::{self, Opened};
use super::supervise::{self, Group, Rest, Watch};
use crate::clock::wall_ns;
use crate::durable::{self, Sync};

/// The kernel refuses longer variables (`MAX_ARG_STRLEN`, 128 KiB, with the name).
const MAX_VARIABLE: usize = 120 << 10;
/// The interval of checks of an action's output. A request to cancel wakes the thread earlier.
const LOOK: Duration = Duration::from_secs(1);
/// The interval if the system has no free watch.
const LOOK_WITHOUT_ALARM: Duration = Duration::from_millis(100);
/// The stack of a job's thread: far more than its calls need.
const STACK: usize = 512 << 10;

/// Does the jobs from the standard input until the daemon has ended, and finishes the jobs taken by then. The exit code
/// is for users who run it by hand.
pub(super) fn run() -> ExitCode {
    lead_session();
    let alarms = Alarms::new();
    // The scope ends when the last job is done.
    thread::scope(|scope| {
        loop {
            match handover::take(io::stdin()) {
                Ok(Some(job)) => begin(scope, &alarms, Arc::new(job)),
                Ok(None) => return ExitCode::SUCCESS,
                // Then no runner has the job, and the daemon detects that.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(_) => return ExitCode::from(2),
            }
        }
    })
}

fn begin<'scope>(scope: &'scope Scope<'scope, '_>, alarms: &'scope Alarms, job: Arc<Given>) {
    job.confirm();
    let its = job.clone();
    let begun = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || {
        work(&its, alarms);
        done(its);
    });
    if let Err(error) = begun {
        refuse(&job.folder, &error);
    }
    done(job);
}

/// Ends the job when the last of its two owners drops it: its thread, or the thread's creator.
fn done(job: Arc<Given>) {
    if let Some(job) = Arc::into_inner(job) {
        job.finish();
    }
}

/// Does a job.
fn work(job: &Given, alarms: &Alarms) {
    let folder = &job.folder;
    if !is_file(&job.lock, &folder.join(job::LOCK)) || job::present(&folder.join(job::RESULT)) {
        // Not started by the daemon: an action outside its protocol could do harm.
        return;
    }
    sign(&job.lock, None);
    let began_ns = wall_ns();
    let spec = SpecFile::read(folder);
    let durable = spec.as_ref().map_or(true, |spec| spec.durable);
    let private = spec.as_ref().ok().and_then(|spec| spec.secrets.clone());
    let opened = private.as_deref().map(Opened::read).transpose();
    let redactor = opened.as_ref().ok().and_then(Option::as_ref).map(Opened::redactor).unwrap_or_default();
    let place = Place { job, folder, private: private.as_deref().unwrap_or(folder), redactor };
    let exit = match (&spec, opened) {
        (Ok(spec), Ok(opened)) => act(&place, spec, opened.as_ref(), alarms),
        (Ok(_), Err(error)) => Exit::SpawnFailed(format!("its secrets are gone: {error}")),
        (Err(why), _) => Exit::SpawnFailed(why.clone()),
    };
    let result = ResultFile {
        format: FORMAT,
        exit,
        exports: Written::exports(place.private).exported(&place.redactor),
        saved: Written::saved(place.private).redacted(&place.redactor),
        began_ns,
        ended_ns: wall_ns(),
    };
    // Without a result the daemon considers the job lost, which is true.
    let _ = write_result(folder, &result, if durable { Sync::Now } else { Sync::Later });
    if let Some(private) = &private {
        // If it fails, the code that deletes the job removes the folder.
        let _ = secrets::remove(private);
    }
}

/// Records why this job can't be done.
fn refuse(folder: &Path, why: &io::Error) {
    let now = wall_ns();
    let result = ResultFile {
        format: FORMAT,
        exit: Exit::SpawnFailed(format!("its supervisor can't be started: {why}")),
        exports: Written::Nothing,
        saved: Written::Nothing,
        began_ns: now,
        ended_ns: now,
    };
    let _ = write_result(folder, &result, Sync::Now);
}

/// The places of a job's files.
struct Place<'a> {
    job: &'a Given,
    /// The job's folder.
    folder: &'a Path,
    /// The folder for files that may contain the value of a secret; without secrets the job's folder.
    private: &'a Path,
    redactor: Redactor,
}

/// Whether this open file is the file at this path.
pub(crate) fn is_file(open: impl AsFd, path: &Path) -> bool {
    let (Ok(open), Ok(file)) = (fstat(open), fs::symlink_metadata(path)) else { return false };
    (open.st_dev, open.st_ino) == (file.dev(), file.ino())
}

/// Starts a new session, with the usual mask for new files.
pub(crate) fn lead_session() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Detach from the daemon's terminal and group. Fails only for a group leader, which has done this already.
    let _ = rustix::process::setsid();
}

/// Writes the owner into a lock, and the process group that it has started: if the lock is free and there is no result,
/// the daemon searches this session for leftovers.
pub(crate) fn sign(lock: impl AsFd, group: Option<i32>) {
    let pid = std::process::id();
    let text = group.map_or_else(|| pid.to_string(), |group| format!("{pid} {group}"));
    let written = rustix::io::pwrite(&lock, text.as_bytes(), 0);
    // The digits of a longer previous number must not remain.
    let _ = written.and_then(|n| rustix::fs::ftruncate(&lock, n as u64));
}

fn act(place: &Place<'_>, spec: &SpecFile, opened: Option<&Opened>, alarms: &Alarms) -> Exit {
    let Place { folder, private, .. } = *place;
    let words = supervise::words(&spec.command);
    let begun = Instant::now();
    let cancel = folder.join(job::CANCEL);
    let alarm = alarms.watch(folder);
    if job::present(&cancel) {
        return Exit::Cancelled;
    }
    let Some((program, arguments)) = words.split_first() else {
        return Exit::SpawnFailed("an empty command".to_owned());
    };
    let mut environment = spec.environment.clone();
    if let Some(opened) = opened.filter(|_| !spec.attached)
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
    command.env(super::JOB_VARIABLE, folder);
    if !spec.attached {
        pass_files(&mut command, place);
    }
    let stdout = outputs.first().expect("there is at least an output file");
    let stderr = outputs.last().expect("there is at least an output file");
    let group = Group::begin(&mut command, [stdout, stderr]);
    // From here on only the action holds its files.
    drop(command);
    let group = match group {
        Ok(group) => group,
        Err(error) => return Exit::SpawnFailed(supervise::why_not_begun(&words, &spec.folder, &error)),
    };
    // An action may clear the variable that identifies it.
    sign(&place.job.lock, Some(group.leader()));
    let limit = begun + Duration::from_millis(spec.timeout_ms);
    let grace = Duration::from_millis(spec.grace_ms);
    // Other actions are in the same session.
    let mark = cob_processes::mark(folder);
    let watch = Watch {
        asked: &|| job::present(&cancel) || spec.attached && place.job.daemon_has_gone(),
        alarm: alarm.as_ref().map(Alarm::wakes),
        longest: if alarm.is_some() && !spec.attached { LOOK } else { LOOK_WITHOUT_ALARM },
        rest: if spec.attached { Rest::EndAll } else { Rest::Leave },
        mark: Some(&mark),
    };
    let ended = group.wait(&mut outputs, Some(limit), grace, &watch);
    if opened.is_none() {
        outputs.into_iter().for_each(OutputFile::finish);
    } else {
        // Files that the action itself has put there may contain values.
        remove_outputs(folder);
        for output in outputs {
            // Rather show no output than a value.
            let _ = output.finish_into(folder, &place.redactor);
        }
    }
    match ended {
        Ok((status, ended)) => supervise::exit(status, ended),
        Err(_) => Exit::Lost,
    }
}

fn remove_outputs(folder: &Path) {
    for name in [job::OUTPUT, job::STDOUT] {
        let _ = fs::remove_file(folder.join(name));
    }
}

fn outputs(folder: &Path, stdout_apart: bool) -> io::Result<Vec<OutputFile>> {
    let both = OutputFile::open(folder, job::OUTPUT)?;
    Ok(if stdout_apart { vec![OutputFile::open(folder, job::STDOUT)?, both] } else { vec![both] })
}

/// Replaces placeholders by values: in the variables, and in a separate content file in the private folder.
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
        .env("COB_CONTENT", private.join(job::CONTENT))
        .env("COB_IMPORTS_FILE", folder.join(job::IMPORTS))
        .env("COB_EXPORT_OUT", private.join(job::EXPORTS))
        .env("COB_RESULT_OUT", private.join(job::SAVED));
    // Longer imports have to be read from the file.
    if let Ok(imports) = fs::read_to_string(folder.join(job::IMPORTS))
        && imports.len() <= MAX_VARIABLE
    {
        command.env("COB_IMPORTS", imports);
    }
}

fn write_result(folder: &Path, result: &ResultFile, sync: Sync) -> io::Result<()> {
    let bytes = serde_json::to_vec(result).map_err(io::Error::other)?;
    durable::write_file(folder, job::RESULT, 0o600, &bytes, sync).or_else(|_| {
        // On a full disk the result is more important than the output.
        remove_outputs(folder);
        durable::write_file(folder, job::RESULT, 0o600, &bytes, sync)
    })
}
