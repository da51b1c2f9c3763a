//! The live status of the cluster: each daemon is watched, and sends its status when it changes.
//!
//! A daemon that only reports the fact of a change is asked for its status. A daemon that can't be watched is asked at
//! intervals, which grow while it can't be reached ([`Backoff`]). A shown status is never older than [`REFRESH`]: a
//! daemon that has stopped answering shows as unreachable.

use std::collections::BTreeMap;
use std::time::Duration;

use cob_types::api::StatusOf;
use cob_types::status::{ClusterStatus, HostStatus};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::client::Client;
use crate::gather::{own_status, picture, status, unreachable, why_silent};
use crate::targets::Target;

/// The least and the greatest pause between an answer of a daemon and the next question to it.
const PACE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// The pause after an answer, as a multiple of the answer time: questions must not slow the daemon down.
const REST: u32 = 4;
/// After this time a silent daemon is asked for its status.
const REFRESH: Duration = Duration::from_secs(5);

/// The pause between two pictures per daemon: more daemons send more changes, and each picture covers all daemons.
const PICTURE: Duration = Duration::from_millis(1);
/// The longest pause between two pictures.
const SLOWEST: Duration = Duration::from_millis(200);

/// A live picture of some daemons. It stops when dropped.
#[derive(Debug)]
pub struct Live {
    news: mpsc::Receiver<(usize, HostStatus)>,
    /// The last status of each daemon, and when it arrived.
    hosts: BTreeMap<usize, (HostStatus, Instant)>,
    /// Whether `changed` has not yet reported a change.
    changed: bool,
    /// When `changed` last reported a change.
    told: Instant,
    targets: Vec<Target>,
    _watchers: JoinSet<()>,
}

impl Live {
    /// Starts to watch these targets.
    #[must_use]
    pub fn start(client: &Client, targets: &[Target], of: StatusOf) -> Self {
        let (tell, news) = mpsc::channel(targets.len().max(1) * 2);
        let mut watchers = JoinSet::new();
        for (at, target) in targets.iter().enumerate() {
            watchers.spawn(follow(client.clone(), target.clone(), of, at, tell.clone()));
        }
        let hosts = BTreeMap::new();
        Self { news, hosts, changed: false, told: Instant::now(), targets: targets.to_vec(), _watchers: watchers }
    }

    /// Waits until a status has changed, or may have. With many daemons it reports less often.
    pub async fn changed(&mut self) {
        if !self.changed {
            let Some((at, status)) = self.news.recv().await else {
                // A watcher never ends by itself: there are no targets to watch.
                return std::future::pending().await;
            };
            self.hosts.insert(at, (status, Instant::now()));
            self.changed = true;
        }
        let daemons = u32::try_from(self.targets.len()).unwrap_or(u32::MAX);
        tokio::time::sleep_until(self.told + PICTURE.saturating_mul(daemons).min(SLOWEST)).await;
        while let Ok((at, status)) = self.news.try_recv() {
            self.hosts.insert(at, (status, Instant::now()));
        }
        (self.changed, self.told) = (false, Instant::now());
    }

    /// Whether the status of every daemon is known, even if only as unreachable.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.hosts.len() == self.targets.len()
    }

    /// The picture. A daemon without an answer so far counts as unreachable.
    #[must_use]
    pub fn cluster(&self) -> ClusterStatus {
        self.picture(|status, _| status.clone())
    }

    /// The picture with the hosts' clocks advanced to the present, so that running durations grow.
    #[must_use]
    pub fn aged(&self) -> ClusterStatus {
        self.picture(|status, heard| {
            let since = u64::try_from(heard.elapsed().as_nanos()).unwrap_or(u64::MAX);
            HostStatus { now_ns: status.now_ns.saturating_add(since), ..status.clone() }
        })
    }

    fn picture(&self, show: impl Fn(&HostStatus, &Instant) -> HostStatus) -> ClusterStatus {
        picture(self.targets.iter().enumerate().map(|(at, target)| match self.hosts.get(&at) {
            Some((status, heard)) => show(status, heard),
            None => unreachable(target.stand_in(), "no report yet".to_owned()),
        }))
    }
}

/// Watches a daemon and sends its status as long as the receiver exists.
async fn follow(client: Client, target: Target, of: StatusOf, at: usize, tell: mpsc::Sender<(usize, HostStatus)>) {
    let mut backoff = Backoff::default();
    while !tell.is_closed() {
        let news = match client.watch(&target.endpoint, of).await {
            Ok(mut changes) => loop {
                let next = tokio::time::timeout(REFRESH, changes.next()).await;
                let (news, pause) = match next {
                    Ok(Ok(Some(Some(status)))) => (own_status(&target, status), Duration::ZERO),
                    // The daemon has no change to report, or has the previous version.
                    Ok(Ok(Some(None))) | Err(_) => {
                        let asked = Instant::now();
                        let news = status(&client, &target, of).await;
                        (news, (asked.elapsed() * REST).clamp(PACE.0, PACE.1))
                    }
                    Ok(Ok(None)) => break None,
                    Ok(Err(error)) => break Some(unreachable(target.stand_in(), why_silent(&error))),
                };
                let reachable = news.reachable;
                if reachable {
                    backoff.answered();
                }
                if tell.send((at, news)).await.is_err() || !reachable {
                    break None;
                }
                tokio::time::sleep(pause).await;
            },
            Err(error) if error.is_from_daemon() => Some(status(&client, &target, of).await),
            Err(error) => Some(unreachable(target.stand_in(), why_silent(&error))),
        };
        if let Some(news) = news
            && tell.send((at, news)).await.is_err()
        {
            return;
        }
        tokio::time::sleep(backoff.pause()).await;
    }
}
