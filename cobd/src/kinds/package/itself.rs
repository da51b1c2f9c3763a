//! The package of this very daemon.
//!
//! The scripts of the package restart the daemon in the midst of the transition. The transition goes on: its process is of
//! the former version and outlives the daemon. So that process watches the new daemon, and installs the former version
//! again if the new daemon does not come up: a host without a daemon receives no rollback.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cob_kinds::Package;

use crate::kinds::native::run_bounded;
use crate::kinds::service::own_unit;

/// The package, and the program that it brings.
const PACKAGE: &str = "cob";
const PROGRAM: &str = "/usr/bin/cobd";
/// The time between two reads of the unit's state.
const PAUSE: Duration = Duration::from_millis(500);
/// The daemon has come up when the same process has run for this time.
const STAYS: Duration = Duration::from_secs(3);
/// After so many automatic restarts the daemon counts as broken.
const RESTARTS: u32 = 3;
/// The longest wait for a daemon: the start timeout of its unit.
const LONGEST: Duration = Duration::from_secs(600);

/// The unit of this daemon, whose program the package brings.
#[derive(Debug)]
pub(super) struct Itself {
    unit: &'static str,
}

/// The unit's state as systemd reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Look {
    active: String,
    result: String,
    pid: u32,
    restarts: u32,
    /// A job of the unit is under way.
    has_job: bool,
    /// The process runs the program that is installed.
    is_installed: bool,
}

/// The meaning of a unit's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The installed program runs.
    Up,
    /// The former program runs on: the package has not restarted it.
    Former,
    /// The start or stop is not over.
    Wait,
    /// An administrator has stopped the unit, or a condition of it does not hold.
    Stopped,
    /// It does not come up.
    Down,
}

impl Itself {
    /// Returns `None` for another package, and for a daemon that was not installed from the package.
    pub(super) fn of(content: &Package, names: &[String]) -> Option<Self> {
        let program = std::env::current_exe().ok()?;
        // The kernel adds this suffix after another file has replaced the program.
        let is_packaged = program.to_str()?.trim_end_matches(" (deleted)") == PROGRAM;
        let is_this = content.root.is_none() && names.iter().any(|name| name == PACKAGE) && is_packaged;
        own_unit().filter(|_| is_this).map(|unit| Self { unit })
    }

    /// Waits until the installed daemon runs, at most for a third of the transition's time: the reinstallation of the
    /// former version needs time, too.
    ///
    /// # Errors
    /// When the daemon does not come up.
    pub(super) fn comes_up(&self, time: Duration) -> Result<(), String> {
        let limit = (time / 3).min(LONGEST);
        let begun = Instant::now();
        let (mut up, mut is_restarted) = (None, false);
        loop {
            // systemd does not answer during its own upgrade.
            let look = self.look().unwrap_or_default();
            match judge(&look) {
                Verdict::Former if !is_restarted => {
                    is_restarted = true;
                    self.restart()?;
                }
                Verdict::Up | Verdict::Former => match up {
                    Some((pid, since)) if pid == look.pid => {
                        if Instant::now().duration_since(since) >= STAYS {
                            return Ok(());
                        }
                    }
                    _ => up = Some((look.pid, Instant::now())),
                },
                Verdict::Wait => up = None,
                Verdict::Stopped => return Ok(()),
                Verdict::Down => return Err(format!("{}: {}{}", self.unit, look.result, self.last_words())),
            }
            if begun.elapsed() >= limit {
                return Err(format!("{}: not up after {} s{}", self.unit, limit.as_secs(), self.last_words()));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Restarts the daemon, also after failed starts.
    pub(super) fn restart(&self) -> Result<(), String> {
        // systemd refuses a start after many failed starts.
        run_bounded(Command::new("systemctl").args(["reset-failed", self.unit]), b"")?;
        run_bounded(Command::new("systemctl").args(["--no-block", "restart", self.unit]), b"")?.ok().map(|_| ())
    }

    fn look(&self) -> Result<Look, String> {
        let properties = "--property=ActiveState,Result,MainPID,NRestarts,Job";
        let said = run_bounded(Command::new("systemctl").args(["show", properties, self.unit]), b"")?.ok()?;
        let look = read(&said);
        let of = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let running = of(&Path::new("/proc").join(look.pid.to_string()).join("exe"));
        Ok(Look { is_installed: running.is_some() && running == of(Path::new(PROGRAM)), ..look })
    }

    /// The last line of the daemon in the journal; empty without a journal.
    fn last_words(&self) -> String {
        let of = format!("_SYSTEMD_UNIT={}", self.unit);
        let arguments = ["--quiet", "--no-pager", "--output=cat", "--boot", "--lines=1", &of];
        let said = run_bounded(Command::new("journalctl").args(arguments), b"").and_then(|ran| ran.ok());
        said.ok().filter(|said| !said.trim().is_empty()).map(|said| format!(" ({})", said.trim())).unwrap_or_default()
    }
}

fn read(said: &str) -> Look {
    let value = |key: &str| {
        let of_key = |line: &&str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with('='));
        said.lines().find(of_key).map(|line| &line[key.len() + 1..]).unwrap_or_default()
    };
    Look {
        active: value("ActiveState").to_owned(),
        result: value("Result").to_owned(),
        pid: value("MainPID").parse().unwrap_or(0),
        restarts: value("NRestarts").parse().unwrap_or(0),
        has_job: !matches!(value("Job"), "" | "0"),
        is_installed: false,
    }
}

fn judge(look: &Look) -> Verdict {
    match look.active.as_str() {
        _ if look.has_job => Verdict::Wait,
        // Its restarts are from the time before the transaction.
        "active" if !look.is_installed => Verdict::Former,
        _ if look.restarts >= RESTARTS => Verdict::Down,
        "active" => Verdict::Up,
        "failed" => Verdict::Down,
        "inactive" => Verdict::Stopped,
        _ => Verdict::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_systemd_is_read() {
        let said = "Job=41\nActiveState=activating\nResult=success\nMainPID=12\nNRestarts=2\n";
        let wanted = Look {
            active: "activating".to_owned(),
            result: "success".to_owned(),
            pid: 12,
            restarts: 2,
            has_job: true,
            is_installed: false,
        };
        assert_eq!(read(said), wanted);
        // A unit without a job has no job number, and an older systemd prints no number of restarts.
        assert_eq!(
            read("ActiveState=active\nMainPID=7\n"),
            Look { active: "active".to_owned(), pid: 7, ..Look::default() }
        );
    }

    #[test]
    fn an_upgraded_daemon_is_judged_by_the_state_of_its_unit() {
        let look = |active: &str, restarts, has_job, is_installed| Look {
            active: active.to_owned(),
            restarts,
            has_job,
            is_installed,
            ..Look::default()
        };
        for (found, verdict) in [
            (look("active", 0, false, true), Verdict::Up),
            // The first start failed, and the second start succeeded.
            (look("active", 1, false, true), Verdict::Up),
            (look("active", 0, false, false), Verdict::Former),
            (look("active", 5, false, false), Verdict::Former),
            // systemd has the order to restart the daemon, and has not begun.
            (look("active", 5, true, false), Verdict::Wait),
            (look("activating", 2, false, false), Verdict::Wait),
            (look("deactivating", 0, true, false), Verdict::Wait),
            // The former daemon has ended, and the new daemon has not started yet.
            (look("inactive", 0, true, false), Verdict::Wait),
            (look("inactive", 0, false, false), Verdict::Stopped),
            (look("failed", 1, false, false), Verdict::Down),
            (look("failed", 0, true, false), Verdict::Wait),
            // The daemon crashes again and again.
            (look("activating", 3, false, false), Verdict::Down),
            (look("active", 4, false, true), Verdict::Down),
            (Look::default(), Verdict::Wait),
        ] {
            assert_eq!(judge(&found), verdict, "{found:?}");
        }
    }
}
