//! The keeper: the small process above one service, for as long as that lives.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::fs::inotify;

use super::folder::{LOCK, OUTPUT, Plan, SERVICE_VARIABLE, STOP, STOPPING, ServiceFolder};
use crate::run::supervise::{self, Ended, Group, Rest, Watch};
use crate::run::{Exit, OutputFile, enter_session, holds_lock, present};

/// Between two looks at what the service prints. The wish to stop wakes the keeper by itself.
const LOOK: Duration = Duration::from_secs(1);
/// Where the system gives no more watches.
const LOOK_WITHOUT_ALARM: Duration = Duration::from_millis(100);

/// Keeps the service of a folder; returns when it has ended. The exit code is for people who try it by
/// hand.
pub(crate) fn keep(path: &Path) -> ExitCode {
    let folder = ServiceFolder::new(path.to_owned());
    if !holds_lock(&folder.file(LOCK)) {
        return ExitCode::from(2);
    }
    enter_session();
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
    let words = supervise::words(&plan.start);
    let Some((program, arguments)) = words.split_first() else {
        return (Exit::SpawnFailed("an empty command".to_owned()), false);
    };
    let mut outputs = match OutputFile::open(folder.path(), OUTPUT) {
        Ok(output) => [output],
        Err(error) => return (Exit::SpawnFailed(format!("its output can't be written: {error}")), false),
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&plan.working_folder).env_clear().envs(&plan.environment);
    command.env(SERVICE_VARIABLE, folder.path());
    let group = match Group::begin(&mut command, [&outputs[0], &outputs[0]]) {
        Ok(group) => group,
        Err(error) => {
            return (Exit::SpawnFailed(supervise::why_not_begun(&words, &plan.working_folder, &error)), false);
        }
    };
    let alarm = watch_for_stop(folder.path());
    let stop = folder.file(STOP);
    let longest = if alarm.is_some() { LOOK } else { LOOK_WITHOUT_ALARM };
    // Workers without their master are no service.
    let watch = Watch { asked: &|| present(&stop), alarm, longest, rest: Rest::End };
    let ended = group.wait(&mut outputs, None, Duration::from_millis(plan.grace_ms), &watch);
    let [output] = outputs;
    output.finish();
    match ended {
        Ok((status, Ended::Asked)) => (supervise::exit(status, Ended::Itself), true),
        Ok((status, ended)) => (supervise::exit(status, ended), false),
        Err(_) => (Exit::Lost, false),
    }
}

/// Tells of every file that comes into the folder.
fn watch_for_stop(path: &Path) -> Option<OwnedFd> {
    let alarm = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()?;
    inotify::add_watch(&alarm, path, inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO).ok()?;
    Some(alarm)
}
