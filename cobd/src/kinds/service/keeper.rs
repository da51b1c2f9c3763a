//! The supervisor (`keeper`): the small process above a service, for as long as the service lives.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::fs::inotify;

use super::commands::words_as;
use super::folder::{LOCK, OUTPUT, Plan, SERVICE_VARIABLE, STOP, STOPPING, ServiceFolder, take_environment};
use crate::run::supervise::{self, Ended, Group, Rest, Watch};
use crate::run::{Exit, Opened, OutputFile, is_file, lead_session, present, remove_folder, sign};

/// The pause between two looks at the service's output. A request to stop wakes the supervisor.
const LOOK: Duration = Duration::from_secs(1);
/// The pause if the system has no inotify watch left.
const LOOK_WITHOUT_ALARM: Duration = Duration::from_millis(100);

/// Supervises the service of a folder until its end. The exit code is only for a start by hand.
pub(crate) fn keep(path: &Path) -> ExitCode {
    let folder = ServiceFolder::new(path.to_owned());
    if !is_file(io::stdin(), &folder.file(LOCK)) {
        return ExitCode::from(2);
    }
    lead_session();
    sign(io::stdin(), None);
    let (exit, asked) = match folder.plan().filter(|p| p.format == Plan::FORMAT) {
        Some(plan) => serve(&folder, &plan),
        None => (Exit::SpawnFailed("its plan can't be read".to_owned()), false),
    };
    let asked = asked || present(&folder.file(STOPPING));
    match folder.write_ended(exit, asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(folder: &ServiceFolder, plan: &Plan) -> (Exit, bool) {
    let words = words_as(plan.run_as.as_ref(), &plan.start);
    let Some((program, arguments)) = words.split_first() else {
        return (Exit::SpawnFailed("an empty command".to_owned()), false);
    };
    let (environment, opened) = match private(plan) {
        Ok(private) => private,
        Err(error) => return (Exit::SpawnFailed(format!("its secrets are gone: {error}")), false),
    };
    let place = plan.private.as_deref().unwrap_or(folder.path());
    let mut outputs = match OutputFile::open(place, OUTPUT) {
        Ok(output) => [output],
        Err(error) => return (Exit::SpawnFailed(format!("its output can't be written: {error}")), false),
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&plan.working_folder).env_clear().envs(&environment);
    command.env(SERVICE_VARIABLE, folder.path());
    let group = Group::begin(&mut command, [&outputs[0], &outputs[0]]);
    drop((command, environment));
    let group = match group {
        Ok(group) => group,
        Err(error) => {
            return (Exit::SpawnFailed(supervise::why_not_begun(&words, &plan.working_folder, &error)), false);
        }
    };
    // If this fails, commands get no process id.
    let _ = folder.note_main(group.leader());
    let alarm = watch_for_stop(folder.path());
    let stop = folder.file(STOP);
    let longest = if alarm.is_some() { LOOK } else { LOOK_WITHOUT_ALARM };
    // Workers without their main process are no service.
    let watch = Watch { asked: &|| present(&stop), alarm: alarm.as_ref(), longest, rest: Rest::End, mark: None };
    let ended = group.wait(&mut outputs, None, Duration::from_millis(plan.grace_ms), &watch);
    let [output] = outputs;
    match (&plan.private, opened) {
        (Some(private), Some(opened)) => {
            // On an error it is better to lose the output than to write a value.
            let _ = output.finish_into(folder.path(), &opened.redactor());
            // If the removal fails, the next start of the service or the daemon repeats it.
            let _ = remove_folder(private);
        }
        (_, _) => output.finish(),
    }
    match ended {
        Ok((status, Ended::Asked)) => (supervise::exit(status, Ended::Itself), true),
        Ok((status, ended)) => (supervise::exit(status, ended), false),
        Err(_) => (Exit::Lost, false),
    }
}

/// The environment and secret values of the service, which are deleted from their files.
fn private(plan: &Plan) -> io::Result<(BTreeMap<String, String>, Option<Opened>)> {
    match &plan.private {
        Some(folder) => Ok((take_environment(folder)?, Some(Opened::take(folder)?))),
        None => Ok((plan.environment.clone(), None)),
    }
}

/// Watches for files that appear in the folder.
fn watch_for_stop(path: &Path) -> Option<OwnedFd> {
    let alarm = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()?;
    inotify::add_watch(&alarm, path, inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO).ok()?;
    Some(alarm)
}
