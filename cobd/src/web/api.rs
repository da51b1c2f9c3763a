//! The handle through which the API speaks with the daemon's loop.
//!
//! The loop owns the other end of the queue and answers each [`Ask`] when it comes to it. A loop that
//! is slow or gone shows as a refusal after a while, never as a request that hangs.

use std::sync::Arc;
use std::time::Duration;

use cob_types::history::HistoryEntry;
use cob_types::status::{CobStatus, HostStatus};
use cob_types::{CobId, GenerationNumber, HostName};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::wire::{Done, Refusal, RefusalKind};

/// How long a question may wait for the loop. It answers between two commits, so a second is long.
const QUESTION: Duration = Duration::from_secs(10);
/// How long an order may take: `prepare` fetches a bundle.
const ORDER: Duration = Duration::from_secs(60);
/// Connections served at once, of both sockets.
const CONNECTIONS: usize = 128;
/// Watchers among them; the rest stays free for questions and orders.
const WATCHERS: usize = 64;

/// A question to the loop, or an order, with a place for the answer.
#[derive(Debug)]
pub enum Ask {
    /// All that is known of this host.
    Status {
        /// The answer.
        reply: oneshot::Sender<HostStatus>,
    },
    /// One change object.
    Cob {
        /// Which.
        id: CobId,
        /// The answer; none: there is no such change object here.
        reply: oneshot::Sender<Option<CobStatus>>,
    },
    /// A part of this host's history, in the order of its journal.
    History {
        /// The first position wanted.
        since: u64,
        /// Only what concerns this change object.
        cob: Option<CobId>,
        /// At most so many entries; fewer in the answer: there are no more.
        limit: usize,
        /// The answer.
        reply: oneshot::Sender<Result<Vec<HistoryEntry>, Refusal>>,
    },
    /// What the last action of a change object has printed.
    Output {
        /// Whose.
        cob: CobId,
        /// The answer; none: nothing is kept.
        reply: oneshot::Sender<Option<String>>,
    },
    /// An operator's word.
    Order {
        /// What is ordered.
        order: Command,
        /// Who orders it, for the history.
        who: String,
        /// Sent when the order is durable, or refused.
        reply: oneshot::Sender<Result<Done, Refusal>>,
    },
    /// A counter that grows whenever the status changes.
    Watch {
        /// The answer.
        reply: oneshot::Sender<watch::Receiver<u64>>,
    },
}

/// An operator's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Get this generation's bundle and manifest and verify them.
    Prepare {
        /// Its number.
        generation: GenerationNumber,
    },
    /// `go`: switch to this generation.
    Switch {
        /// Its number.
        generation: GenerationNumber,
    },
    /// Forget that this change object has given up.
    Retry {
        /// Which.
        cob: CobId,
    },
    /// No new transition starts.
    Pause,
    /// They may start again.
    Resume,
    /// The host will not come back as it was: free what its change objects hold here.
    Fence {
        /// Which.
        host: HostName,
    },
}

/// Where a request came from, as far as the connection tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// The unix socket, and the user who opened it.
    Unix {
        /// The user's number.
        uid: u32,
    },
    /// TCP, from this address.
    Tcp {
        /// The other end.
        peer: std::net::SocketAddr,
    },
}

impl Caller {
    /// The name that stands in the history: what the caller says of itself, and what is known.
    pub(super) fn named(&self, claimed: Option<&str>) -> String {
        let known = match self {
            Caller::Unix { uid } => format!("uid {uid}"),
            Caller::Tcp { peer } => peer.to_string(),
        };
        let claimed: String = claimed.unwrap_or_default().chars().filter(|c| !c.is_control()).take(64).collect();
        if claimed.is_empty() { known } else { format!("{claimed} ({known})") }
    }
}

/// The handle; clones share the queue and the limits.
#[derive(Debug, Clone)]
pub struct Api {
    tx: mpsc::Sender<Ask>,
    /// Connections that may still be opened.
    pub(super) connections: Arc<Semaphore>,
    /// Watchers that may still come.
    pub(super) watchers: Arc<Semaphore>,
}

impl Api {
    /// A handle on the loop that reads the other end of this queue.
    #[must_use]
    pub fn new(tx: mpsc::Sender<Ask>) -> Self {
        Self { tx, connections: Arc::new(Semaphore::new(CONNECTIONS)), watchers: Arc::new(Semaphore::new(WATCHERS)) }
    }

    /// Asks a question.
    pub(super) async fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Refusal> {
        self.within(QUESTION, make).await
    }

    /// Gives an order.
    pub(super) async fn order(&self, order: Command, who: String) -> Result<Done, Refusal> {
        self.within(ORDER, |reply| Ask::Order { order, who, reply }).await?
    }

    async fn within<T>(&self, limit: Duration, make: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Refusal> {
        let stopping = || Refusal::new(RefusalKind::Unavailable, "the daemon is stopping", "ask again when it is back");
        let asked = async {
            let (reply, answer) = oneshot::channel();
            self.tx.send(make(reply)).await.map_err(|_| stopping())?;
            answer.await.map_err(|_| stopping())
        };
        tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| {
            Err(Refusal::new(
                RefusalKind::Unavailable,
                format!("the daemon has not answered for {} s", limit.as_secs()),
                "look at its log and at the load of the host; what was ordered may still take effect",
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_named_by_what_they_say_and_by_what_is_known() {
        let local = Caller::Unix { uid: 1000 };
        assert_eq!(local.named(None), "uid 1000");
        assert_eq!(local.named(Some("ann\u{1b}[31m")), "ann[31m (uid 1000)");
        assert_eq!(local.named(Some(&"x".repeat(1000))).len(), 64 + " (uid 1000)".len());
        let tcp = Caller::Tcp { peer: ([127, 0, 0, 1], 9).into() };
        assert_eq!(tcp.named(Some("ann")), "ann (127.0.0.1:9)");
    }
}
