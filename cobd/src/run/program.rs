//! How this program executes itself again, and the work of such child processes.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use super::runner;
use crate::kinds::{container, native, plugin, service};

/// First argument of a runner; the second is the folder of jobs.
pub(super) const RUN_ACTIONS: &str = "__run-actions";
/// First argument of a service's supervisor; the second is the service's folder.
pub(crate) const KEEP_SERVICE: &str = "__keep-service";
/// First argument of an action on a service; then the operation and the service's folder.
pub(crate) const MOVE_SERVICE: &str = "__move-service";
/// First argument of an action on a container; the second is the call.
pub(crate) const MOVE_CONTAINER: &str = "__move-container";
/// First argument of an action of a native kind; the second is the call.
pub(crate) const ACT_KIND: &str = "__act-kind";
/// First argument of a call of a plug-in; the second is the call.
pub(crate) const CALL_PLUGIN: &str = "__call-plugin";
/// First argument of the process that restores the earlier state of a service's unit; then the service's folder, the
/// name of the departure, and the folder of the change object that now manages the same unit, if any.
pub(crate) const RESTORE_SERVICE: &str = "__restore-service";

/// Must be called at the very start of `main`, before any parsing: if this process was executed as a runner, does that
/// work and returns the exit code.
#[must_use]
pub fn main_if_runner() -> Option<ExitCode> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    hidden(&args, &Program::this)
}

/// Does the work that a hidden first argument asks for. `program` is called only by work that executes the program
/// again.
pub(super) fn hidden(args: &[OsString], program: &dyn Fn() -> io::Result<Program>) -> Option<ExitCode> {
    let (word, rest) = args.split_first()?;
    let known = [RUN_ACTIONS, KEEP_SERVICE, MOVE_SERVICE, MOVE_CONTAINER, RESTORE_SERVICE, ACT_KIND, CALL_PLUGIN];
    let word = word.to_str().filter(|word| known.contains(word))?;
    // Executed by hand without the other argument: no work to do.
    let Some(what) = rest.first() else { return Some(ExitCode::from(2)) };
    // If the system refuses, the work continues without this protection.
    let _ = crate::process::keep_memory_private();
    Some(match word {
        RUN_ACTIONS => runner::run(),
        KEEP_SERVICE => service::keep(Path::new(what)),
        MOVE_CONTAINER => container::make_move(what),
        ACT_KIND => native::act(what),
        CALL_PLUGIN => plugin::call(what),
        RESTORE_SERVICE => service::restore(Path::new(what), &rest[1..]),
        _ => program().map_or(ExitCode::FAILURE, |program| service::make_move(&program, what)),
    })
}

/// This program, in a form that can be executed again.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    /// Device and inode: after an upgrade another file may have the path.
    identity: Option<(u64, u64)>,
    first: Vec<OsString>,
}

impl Program {
    /// The program of this process.
    ///
    /// # Errors
    /// If `/proc` can't be read.
    pub fn this() -> io::Result<Self> {
        Ok(Self::with_first_arguments(&std::env::current_exe()?, Vec::new()))
    }

    /// A program that calls [`main_if_runner`], or does the same after these first arguments.
    #[must_use]
    pub fn with_first_arguments(path: &Path, first: Vec<OsString>) -> Self {
        Self { path: path.to_owned(), identity: identity(path), first }
    }

    /// The arguments that make it do `word`.
    pub(crate) fn argv(&self, word: &str) -> Vec<OsString> {
        let mut argv = vec![self.executable().into()];
        argv.extend(self.first.iter().cloned());
        argv.push(word.into());
        argv
    }

    /// A command that makes it do `word` in a folder; it inherits only what the caller adds.
    pub(crate) fn command(&self, word: &str, folder: &Path) -> Command {
        let argv = self.argv(word);
        let mut command = Command::new(&argv[0]);
        command.arg0(&self.path).args(&argv[1..]).arg(folder).env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// The path, as long as it leads to the file of this process; after an upgrade the kernel's own handle, because
    /// spec and runner must have the same version.
    fn executable(&self) -> PathBuf {
        let unchanged = self.identity.is_some() && identity(&self.path) == self.identity;
        if unchanged { self.path.clone() } else { "/proc/self/exe".into() }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_program_executes_its_running_version() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("cobd");
        let executed = |program: &Program| program.argv(RUN_ACTIONS)[0].clone();
        // Started after its file had been replaced.
        let program = Program::with_first_arguments(&path, Vec::new());
        assert_eq!(executed(&program), "/proc/self/exe");
        fs::write(&path, "old").expect("written");
        let program = Program::with_first_arguments(&path, vec!["first".into()]);
        assert_eq!(program.argv(RUN_ACTIONS), [path.as_os_str(), "first".as_ref(), RUN_ACTIONS.as_ref()]);
        fs::write(folder.path().join("new"), "new").expect("written");
        fs::rename(folder.path().join("new"), &path).expect("replaced");
        assert_eq!(executed(&program), "/proc/self/exe");
        fs::remove_file(&path).expect("removed");
        assert_eq!(executed(&program), "/proc/self/exe");
    }

    #[test]
    fn only_hidden_words_are_taken() {
        let never = || -> io::Result<Program> { panic!("not asked for") };
        for args in [[].as_slice(), &["run", "--config", "x"], &["--help"], &["run", RUN_ACTIONS, "x"]] {
            let args: Vec<OsString> = args.iter().map(Into::into).collect();
            assert!(hidden(&args, &never).is_none(), "{args:?}");
        }
        assert!(hidden(&[RUN_ACTIONS.into()], &never).is_some());
    }
}
