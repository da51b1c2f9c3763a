//! The servers of depots: `cobgen serve` for each cluster whose hosts have keys.
//!
//! Hosts ask them for new generations and enrol at them. A server that ends is started again. The servers of an earlier
//! hub are ended first: two servers of a port can't work, and its options may have changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cob_jobs::process::end_leftovers;
use cob_processes::JOB_VARIABLE;
use serde::Deserialize;
use tracing::{info, warn};

use super::error::HubError;
use super::{Config, KeySettings};
use crate::durable;

/// The pause before a server is started again.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause between two looks at a server.
const LOOK: Duration = Duration::from_millis(200);
/// How long a server has to end.
const GRACE: Duration = Duration::from_secs(5);

/// The servers of a hub.
#[derive(Debug, Clone)]
pub(super) struct Depots {
    cobgen: PathBuf,
    keys: Option<KeySettings>,
    /// The folders of clusters whose depots are to be served, each with the number of its present keeper.
    served: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
    /// The number of the next keeper.
    next: Arc<AtomicU64>,
}

/// The answer of `cobgen key`.
#[derive(Deserialize)]
struct Key {
    key: String,
}

/// The file of the hub's own key.
pub(super) fn operator_file(config: &Config) -> PathBuf {
    config.folder.join("operator.key")
}

/// The public half of the hub's own key, which is made once.
pub(super) fn operator_key(config: &Config) -> Result<String, HubError> {
    let cobgen = config.programs.join("cobgen");
    let failed = |what: String| HubError::Internal(format!("{} key: {what}", cobgen.display()));
    let output = Command::new(&cobgen)
        .arg("key")
        .arg(operator_file(config))
        .arg("--json")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| failed(e.to_string()))?;
    let Key { key } =
        serde_json::from_slice(&output.stdout).map_err(|e| failed(format!("it ended with {}: {e}", output.status)))?;
    Ok(key)
}

impl Depots {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            cobgen: config.programs.join("cobgen"),
            keys: config.keys.clone(),
            served: Arc::default(),
            next: Arc::default(),
        }
    }

    fn served(&self) -> MutexGuard<'_, BTreeMap<PathBuf, u64>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the depot of a cluster from now on.
    pub(super) fn serve(&self, cluster: &Path, port: u16) {
        if self.keys.is_none() || self.served().contains_key(cluster) {
            return;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.served().insert(cluster.to_owned(), number);
        let (this, cluster) = (self.clone(), cluster.to_owned());
        let spawned =
            std::thread::Builder::new().name(format!("depot {port}")).spawn(move || this.keep(&cluster, port, number));
        if let Err(error) = spawned {
            warn!(port, %error, "no thread for the server of a depot");
        }
    }

    /// Stops to serve the depot of a cluster: its keeper ends the server. A new cluster of the same name may be served at
    /// once.
    pub(super) fn release(&self, cluster: &Path) {
        self.served().remove(cluster);
    }

    /// Stops to serve all depots: another hub serves them.
    pub(super) fn release_all(&self) {
        self.served().clear();
    }

    /// Ends the servers that a killed hub has left behind: another hub of the circle may lead now.
    pub(super) fn end_all_leftovers(clusters: &Path) {
        let folders = |path: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        for cluster in folders(clusters).iter().flat_map(|tenant| folders(tenant)) {
            end_leftovers(&marker(&cluster), GRACE);
        }
    }

    /// Whether the keeper is still the one that is meant to serve the cluster.
    fn is_present(&self, cluster: &Path, number: u64) -> bool {
        self.served().get(cluster) == Some(&number)
    }

    /// Keeps a server until it is to end.
    fn keep(&self, cluster: &Path, port: u16, number: u64) {
        end_leftovers(&marker(cluster), GRACE);
        while self.is_present(cluster, number) {
            match self.start(cluster, port) {
                Ok(mut child) => {
                    info!(cluster = %cluster.display(), port, "the depot is served");
                    while self.is_present(cluster, number) && matches!(child.try_wait(), Ok(None)) {
                        std::thread::sleep(LOOK);
                    }
                    if self.is_present(cluster, number) {
                        warn!(cluster = %cluster.display(), port, "the server of a depot has ended: it is started again");
                    } else {
                        let _ = child.kill();
                    }
                    let _ = child.wait();
                }
                Err(error) => warn!(cluster = %cluster.display(), %error, "the server of a depot can't be started"),
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn start(&self, cluster: &Path, port: u16) -> std::io::Result<Child> {
        let Some(keys) = &self.keys else { return Err(std::io::ErrorKind::NotFound.into()) };
        durable::make_folder(cluster)?;
        let log = std::fs::File::options().create(true).append(true).open(cluster.join("serve.log"))?;
        let mut command = Command::new(&self.cobgen);
        command.arg("serve").arg("--depot").arg(cluster.join("depot"));
        command.arg("--listen").arg(format!("tcp://{}", std::net::SocketAddr::new(keys.address, port)));
        command.arg("--threshold").arg(keys.threshold.to_string());
        for publisher in &keys.publishers {
            command.arg("--trust").arg(publisher);
        }
        command.env(JOB_VARIABLE, marker(cluster)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
    }
}

/// The mark of a cluster's server among all processes.
fn marker(cluster: &Path) -> PathBuf {
    cluster.join("serve")
}
