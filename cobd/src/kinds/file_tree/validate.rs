//! Runs the commands of `validate`: a program of the host accepts or refuses a new text before the file is written.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cob_files::{TreePath, Validator};
use cob_types::words::shell_word;
use rustix::process::{Pid, Signal, kill_process_group};

use super::watch::real;
use crate::kinds::known::KnownSecrets;

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(60);
/// The pause between two looks at a command.
const LOOK: Duration = Duration::from_millis(5);
/// The longest output in a message, in bytes.
const SHOWN: u64 = 2000;

/// The programs of the host, for a change object.
pub(super) struct Programs {
    /// The private folder of the texts. Only a single job of the change object runs at a time.
    pub(super) folder: PathBuf,
    pub(super) known: Arc<KnownSecrets>,
}

impl Validator for Programs {
    fn validate(
        &self,
        command: &str,
        path: &TreePath,
        text: &[u8],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let asked = self.ask(command, &real(path), text, is_cancelled);
        // A killed daemon leaves the folder to the next attempt.
        let _ = fs::remove_dir_all(&self.folder);
        let (status, output) = asked?;
        if status.success() {
            return Ok(());
        }
        let text = self.folder.to_string_lossy();
        let output = output.trim().replace(&*format!("{text}/"), "");
        let output = self.known.look().map_or_else(|| output.clone(), |known| known.text(&output));
        Err(if output.is_empty() { status.to_string() } else { format!("{status}: {output}") })
    }
}

impl Programs {
    fn ask(
        &self,
        command: &str,
        path: &Path,
        text: &[u8],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(ExitStatus, String), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.folder.display());
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed)?;
        let new = |name: &std::ffi::OsStr| {
            File::options().create_new(true).read(true).write(true).mode(0o600).open(self.folder.join(name))
        };
        // Some programs look at the end of the name.
        let name = path.file_name().unwrap_or_default();
        new(name).and_then(|mut file| file.write_all(text)).map_err(failed)?;
        let mut output = tempfile::tempfile_in(&self.folder).map_err(failed)?;
        let stream = || output.try_clone().map(Stdio::from).map_err(failed);
        let quoted = shell_word(&self.folder.join(name).to_string_lossy());
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command.replace('%', &quoted)).process_group(0);
        shell.stdin(Stdio::null()).stdout(stream()?).stderr(stream()?);
        let child = shell.spawn().map_err(|error| format!("/bin/sh: {error}"))?;
        let status = end_of(child, is_cancelled)?;
        let mut said = Vec::new();
        output.rewind().and_then(|()| output.take(SHOWN).read_to_end(&mut said)).map_err(failed)?;
        Ok((status, String::from_utf8_lossy(&said).into_owned()))
    }
}

/// Waits for the end of a command. A late or cancelled command is killed with its process group.
fn end_of(mut child: Child, is_cancelled: &dyn Fn() -> bool) -> Result<ExitStatus, String> {
    let begun = Instant::now();
    let why = loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Err(error) => break error.to_string(),
            Ok(None) if is_cancelled() => break "it was cancelled".to_owned(),
            Ok(None) if begun.elapsed() > LIMIT => break format!("it did not end within {} s", LIMIT.as_secs()),
            Ok(None) => sleep(LOOK),
        }
    };
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The command is not reaped yet, so the number still belongs to it.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    Err(why)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_cancelled_command_ends_with_its_processes() {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = Programs { folder: folder.path().join("texts"), known: Arc::default() };
        let path = TreePath::new("/etc/x.conf").expect("a path");
        let (pid, cancelled) = (folder.path().join("pid"), AtomicBool::new(false));
        let command = format!("sh -c 'echo $$ > {}; sleep 1000' # %", pid.display());
        let why = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')) {
                    std::thread::yield_now();
                }
                cancelled.store(true, Ordering::Relaxed);
            });
            programs.validate(&command, &path, b"text", &|| cancelled.load(Ordering::Relaxed)).expect_err("cancelled")
        });
        assert_eq!(why, "it was cancelled");
        let pid: i32 = fs::read_to_string(&pid).expect("there").trim().parse().expect("a number");
        let process = Pid::from_raw(pid).expect("a number");
        // Its parent is gone, so its last parent collects it.
        while rustix::process::test_kill_process(process).is_ok() {
            std::thread::yield_now();
        }
        assert!(!programs.folder.exists());
    }

    #[test]
    fn a_name_with_quotes_is_a_single_word() {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = Programs { folder: folder.path().join("it's; false"), known: Arc::default() };
        let path = TreePath::new("/etc/o'ne \"two\"; exit 3").expect("a path");
        assert_eq!(programs.validate("test \"$(cat %)\" = text", &path, b"text", &|| false), Ok(()));
        let why = programs.validate("echo %; exit 4", &path, b"text", &|| false).expect_err("refused");
        assert_eq!(why, "exit status: 4: o'ne \"two\"; exit 3");
    }
}
