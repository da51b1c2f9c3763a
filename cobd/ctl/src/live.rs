//! The cluster as it changes: each daemon is watched, and asked for its status when it says that
//! something has changed.
//!
//! A daemon that can't be watched is asked at intervals. What is shown is never older than
//! [`REFRESH`]: a daemon that has stopped answering shows as unreachable.

use std::collections::BTreeMap;
use std::time::Duration;

use cob_types::status::{ClusterStatus, HostStatus};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::gather::{picture, status, unreachable};
use crate::targets::Target;

/// The least time between two questions to one daemon.
const PACE: Duration = Duration::from_millis(100);
/// When a daemon that said nothing is asked all the same.
const REFRESH: Duration = Duration::from_secs(5);
/// When one that was not reached, or can't be watched, is tried again.
const AGAIN: Duration = Duration::from_millis(400);

/// A live picture of some daemons. Ends with its value.
#[derive(Debug)]
pub struct Live {
    news: mpsc::Receiver<(usize, HostStatus)>,
    hosts: BTreeMap<usize, HostStatus>,
    expected: usize,
    _watchers: JoinSet<()>,
}

impl Live {
    /// Begins to watch.
    #[must_use]
    pub fn start(client: &Client, targets: &[Target]) -> Self {
        let (tell, news) = mpsc::channel(targets.len().max(1) * 2);
        let mut watchers = JoinSet::new();
        for (at, target) in targets.iter().enumerate() {
            watchers.spawn(follow(client.clone(), target.clone(), at, tell.clone()));
        }
        Self { news, hosts: BTreeMap::new(), expected: targets.len(), _watchers: watchers }
    }

    /// Waits until something has changed, or may have.
    pub async fn changed(&mut self) {
        match self.news.recv().await {
            Some((at, status)) => self.hosts.insert(at, status),
            // No watcher ends by itself: there was nobody to watch.
            None => std::future::pending().await,
        };
        while let Ok((at, status)) = self.news.try_recv() {
            self.hosts.insert(at, status);
        }
    }

    /// Whether every daemon has been heard of, if only that it can't be reached.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.hosts.len() == self.expected
    }

    /// The picture.
    #[must_use]
    pub fn cluster(&self) -> ClusterStatus {
        picture(self.hosts.values().cloned())
    }
}

async fn follow(client: Client, target: Target, at: usize, tell: mpsc::Sender<(usize, HostStatus)>) {
    loop {
        let news = match client.watch(&target.endpoint).await {
            Ok(mut changes) => loop {
                let news = status(&client, &target).await;
                let reachable = news.reachable;
                if tell.send((at, news)).await.is_err() || !reachable {
                    break None;
                }
                tokio::time::sleep(PACE).await;
                if let Ok(None) = tokio::time::timeout(REFRESH, changes.next()).await {
                    break None;
                }
            },
            Err(error) if error.is_from_daemon() => Some(status(&client, &target).await),
            Err(error) => Some(unreachable(target.stand_in(), error.in_a_line())),
        };
        if let Some(news) = news
            && tell.send((at, news)).await.is_err()
        {
            return;
        }
        if tell.is_closed() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}
