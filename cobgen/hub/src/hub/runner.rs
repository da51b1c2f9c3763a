//! Processes of jobs, and the news of these processes.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_jobs::Run;
use cob_jobs::process::{self, Newborn};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tracing::warn;

/// How long a new process has to announce itself.
const ANNOUNCE: Duration = Duration::from_secs(30);
/// How long the programs of a dead job have to end.
const GRACE: Duration = Duration::from_secs(5);

/// How many news wait for the hub; further threads wait for room.
const NEWS: usize = 1024;

/// News of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// It has announced itself, and waits for its confirmation.
    Announced(Run),
    /// It is dead.
    Dead(Run),
}

/// Starts and ends processes. Each call returns at once; threads wait for processes.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    /// This program, as it was when the hub started: a later version may replace its file.
    program: Arc<Path>,
    news: Sender<News>,
    unconfirmed: Arc<Mutex<BTreeMap<Run, Newborn>>>,
}

impl Runner {
    /// A runner, and the news of its processes.
    pub(crate) fn new(program: &Path) -> (Self, Receiver<News>) {
        let (news, receiver) = mpsc::channel(NEWS);
        (Self { program: program.into(), news, unconfirmed: Arc::default() }, receiver)
    }

    /// Starts the process of a job.
    pub(crate) fn start(&self, run: Run, folder: &Path) {
        let (this, folder) = (self.clone(), folder.to_owned());
        let begun = in_thread(run, move || {
            let newborn = begin(&this.program, &folder);
            match newborn {
                Ok(newborn) => {
                    this.newborns().insert(run, newborn);
                    this.tell(News::Announced(run));
                }
                Err(error) => {
                    warn!(job = run.job.0, %error, "a job's process does not start");
                    this.lost(run);
                }
            }
        });
        if !begun {
            self.lost(run);
        }
    }

    /// Permits a process to work.
    pub(crate) fn confirm(&self, run: Run, folder: &Path) {
        let Some(newborn) = self.newborns().remove(&run) else { return };
        let (this, folder) = (self.clone(), folder.to_owned());
        let begun = in_thread(run, move || {
            let (told, of) = (this.clone(), folder.clone());
            let watched = newborn.confirm().map_err(|e| e.to_string());
            let watched =
                watched.and_then(|worker| worker.watch(move |_| told.died(run, &of)).map_err(|e| e.to_string()));
            if let Err(error) = watched {
                warn!(job = run.job.0, %error, "a job's process does not work");
                this.died(run, &folder);
            }
        });
        if !begun {
            // The socket of the process is closed, so it ends without having worked.
            self.lost(run);
        }
    }

    /// Asks a process to end.
    pub(crate) fn terminate(&self, run: Run, folder: &Path) {
        if let Some(newborn) = self.newborns().remove(&run) {
            // Its socket breaks, so it ends without having worked.
            drop(newborn);
            self.lost(run);
        } else if let Err(error) = process::terminate(folder) {
            warn!(job = run.job.0, %error, "a job's process can't be asked to end");
        }
    }

    /// Kills a process and all that it has started.
    pub(crate) fn kill(&self, run: Run, folder: &Path) {
        let kill = move |folder: &Path| {
            if let Err(error) = process::kill(folder) {
                warn!(job = run.job.0, %error, "a job's process can't be killed");
            }
        };
        let of = folder.to_owned();
        if !in_thread(run, move || kill(&of)) {
            kill(folder);
        }
    }

    /// Waits for the death of a process that an earlier hub has started.
    pub(crate) fn watch(&self, run: Run, folder: &Path) {
        let (this, of) = (self.clone(), folder.to_owned());
        if let Err(error) = process::watch(folder, move |_| this.died(run, &of)) {
            warn!(job = run.job.0, %error, "a job's process can't be watched, and is ended");
            self.died(run, folder);
        }
    }

    /// The process is dead, or nobody would notice its death. All programs with the variable of the job end before the
    /// next job of the cluster can start.
    fn died(&self, run: Run, folder: &Path) {
        let count = process::end_leftovers(folder, GRACE);
        if count > 0 {
            warn!(job = run.job.0, count, "programs of a job outlived its process, and were ended");
        }
        self.lost(run);
    }

    /// Drops the processes that were not confirmed: they end.
    pub(crate) fn forget(&self) {
        self.newborns().clear();
    }

    /// The process has never worked.
    pub(crate) fn lost(&self, run: Run) {
        self.tell(News::Dead(run));
    }

    fn tell(&self, news: News) {
        // The receiver is gone only when the hub stops.
        if let Err(TrySendError::Full(news)) = self.news.try_send(news) {
            let sender = self.news.clone();
            std::thread::spawn(move || sender.blocking_send(news));
        }
    }

    fn newborns(&self) -> std::sync::MutexGuard<'_, BTreeMap<Run, Newborn>> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread, and returns whether it did.
fn in_thread(run: Run, work: impl FnOnce() + Send + 'static) -> bool {
    let begun = std::thread::Builder::new().name(format!("job {}", run.job)).spawn(work);
    if let Err(error) = &begun {
        warn!(job = run.job.0, %error, "no thread for a job");
    }
    begun.is_ok()
}

/// Starts a process and waits until it has announced itself.
fn begin(program: &Path, folder: &Path) -> Result<Newborn, String> {
    // The programs of a process that died must not work beside the new process.
    process::end_leftovers(folder, GRACE);
    let mut command = Command::new(program);
    command.arg0(crate::cli::NAME).arg("job").arg(folder);
    let mut newborn = Newborn::start(command, folder).map_err(|e| e.to_string())?;
    newborn.announced(ANNOUNCE).map_err(|e| e.to_string())?;
    Ok(newborn)
}
