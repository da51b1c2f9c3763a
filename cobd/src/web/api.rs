//! The handle through which the API communicates with the daemon's loop.
//!
//! The loop answers each [`Ask`] in the queue. If it is slow or has ended, a request fails after a time limit; it never
//! hangs.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cob_types::api::{Done, FilesAnswer, LogsAnswer, LogsQuery, StatusOf, order};
use cob_types::check_round::CheckRound;
use cob_types::command_run::{RunId, RunOrder, StoredRun};
use cob_types::history::HistoryEntry;
use cob_types::outcome::OutcomeOf;
use cob_types::status::{CobStatus, HostStatus};
use cob_types::switch::OnFailure;
use cob_types::{BlobHash, CobId, GenerationId, GenerationNumber, HostName, PublicKey};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::adhoc::Running;
use crate::kinds::FilesQuery;

use super::access::Access;
use super::epoch::Epochs;
use super::pace::Pace;
use super::rate_limit::RateLimit;
use super::refusal::{Refusal, RefusalKind};
use super::slots::ConnectionPlaces;

/// The time limit of a question. The loop answers between two commits, so a second is long.
const QUESTION: Duration = Duration::from_secs(10);
/// The time limit of an order: `prepare` fetches a bundle.
const ORDER: Duration = Duration::from_secs(60);
/// The most watchers: other connections stay free for questions and orders.
const WATCHERS: usize = 64;

/// A question or an order to the loop, with a channel for the answer.
#[derive(Debug)]
pub enum Ask {
    /// The status of this host.
    Status {
        /// Which of its change objects are listed.
        of: StatusOf,
        /// The most waiting change objects in the list, unless all are listed.
        most_waiting: usize,
        /// The answer.
        reply: oneshot::Sender<HostStatus>,
    },
    /// The newest generations that this host knows.
    Known {
        /// The answer, the newest first.
        reply: oneshot::Sender<Vec<GenerationId>>,
    },
    /// The status of a change object.
    Cob {
        /// The change object.
        id: CobId,
        /// The answer; absent: no such change object here.
        reply: oneshot::Sender<Option<CobStatus>>,
    },
    /// A part of this host's history, in the order of its journal.
    History {
        /// The first position.
        since: u64,
        /// Only entries about this change object.
        cob: Option<CobId>,
        /// The most entries. An answer with fewer entries is complete.
        limit: usize,
        /// If there are more entries, return the newest.
        newest: bool,
        /// The answer.
        reply: oneshot::Sender<Result<Vec<HistoryEntry>, Refusal>>,
    },
    /// The result of the last switch to a generation.
    Outcome {
        /// The generation.
        to: GenerationNumber,
        /// The answer; absent: the switch began in an earlier incarnation of the daemon, and only the history contains
        /// it.
        reply: oneshot::Sender<Option<OutcomeOf>>,
    },
    /// The output of the last action of a change object.
    Output {
        /// The change object.
        cob: CobId,
        /// The answer; absent: no output is kept.
        reply: oneshot::Sender<Option<String>>,
    },
    /// The log of a running change object.
    Logs {
        /// The change object.
        cob: CobId,
        /// The part of the log.
        query: LogsQuery,
        /// The answer.
        reply: oneshot::Sender<Result<LogsAnswer, Refusal>>,
    },
    /// A question or an order about a change object's files.
    Files {
        /// The change object.
        cob: CobId,
        /// A prepared generation; absent: the active generation.
        generation: Option<GenerationNumber>,
        /// The question or order.
        query: FilesQuery,
        /// The author of an order, for the history; absent for a question.
        who: Option<String>,
        /// The answer.
        reply: oneshot::Sender<Result<FilesAnswer, Refusal>>,
    },
    /// An operator's order.
    Order {
        /// The order.
        order: Command,
        /// The author of the order, for the history.
        who: String,
        /// Sent when the order is durable or refused.
        reply: oneshot::Sender<Result<Done, Refusal>>,
    },
    /// Checks change objects now, even if their state is known.
    Check {
        /// The change objects; empty: all of this host.
        cobs: Vec<CobId>,
        /// The answer: the number of the check round.
        reply: oneshot::Sender<Result<u64, Refusal>>,
    },
    /// The progress of a check round, and a channel that reports its end.
    CheckRound {
        /// The number of the round.
        round: u64,
        /// The answer; absent: the round is unknown or forgotten.
        reply: oneshot::Sender<Option<(CheckRound, watch::Receiver<bool>)>>,
    },
    /// Run a command.
    Run {
        /// Which, and how.
        order: Box<RunOrder>,
        /// Who orders it, for the history.
        who: String,
        /// The answer, as soon as it runs; dropping it ends the command.
        reply: oneshot::Sender<Result<Running, Refusal>>,
    },
    /// The kept output of a command.
    StoredRun {
        /// Its number.
        run: RunId,
        /// The answer; absent: the host has no output of the command.
        reply: oneshot::Sender<Option<StoredRun>>,
    },
    /// A counter that increases with each change of the status.
    Watch {
        /// The answer.
        reply: oneshot::Sender<watch::Receiver<u64>>,
    },
}

/// An operator's order to the loop.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described at its content")]
pub enum Command {
    Prepare(order::Prepare),
    Switch(order::Switch),
    Cancel(order::Cancel),
    Discard(order::Discard),
    Limit(order::Limit),
    Budget(order::Budget),
    Rollback(order::Rollback),
    Retry(order::Retry),
    Stop(order::Stop),
    Start(order::Start),
    Reboot(order::Reboot),
    Pause(order::Pause),
    Resume(order::Resume),
    MarkDeparted(order::MarkDeparted),
    Fence(order::Fence),
}

impl Command {
    /// The generation and its manifest, in an order to prepare it or to switch to it.
    pub(crate) fn named(&mut self) -> Option<(GenerationNumber, &mut Option<BlobHash>)> {
        if let Self::Prepare(order::Prepare { generation, manifest, .. })
        | Self::Switch(order::Switch { generation, manifest, .. }) = self
        {
            return Some((*generation, manifest));
        }
        None
    }
}

/// The most change objects of an order that a log line names.
const LOGGED: usize = 8;

/// The order in the words of the command line, for the log.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = |f: &mut fmt::Formatter<'_>, policy: Option<OnFailure>| match policy {
            Some(OnFailure::Hold) => f.write_str(", on failure hold"),
            Some(OnFailure::Rollback) => f.write_str(", on failure rollback"),
            None => Ok(()),
        };
        let of = |f: &mut fmt::Formatter<'_>, word: &str, generation: Option<GenerationNumber>| match generation {
            Some(generation) => write!(f, "{word} {generation}"),
            None => f.write_str(word),
        };
        let some_of = |f: &mut fmt::Formatter<'_>, cobs: &mut dyn ExactSizeIterator<Item = &CobId>| {
            let more = cobs.len().saturating_sub(LOGGED);
            cobs.take(LOGGED).try_for_each(|cob| write!(f, " {cob}"))?;
            if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
        };
        match self {
            Self::Prepare(order) => write!(f, "prepare {}", order.generation),
            Self::Switch(order) => {
                write!(f, "switch {}", order.generation)?;
                policy(f, order.on_failure)?;
                order.guard_ms.map_or(Ok(()), |ms| write!(f, ", guard {ms} ms"))?;
                f.write_str(if order.now { ", now" } else { "" })?;
                if order.only.is_empty() && order.alone {
                    return f.write_str(", not announced");
                }
                order.only.iter().try_for_each(|host| write!(f, ", only {host}"))
            }
            Self::Cancel(order) => {
                of(f, "cancel", order.generation)?;
                policy(f, order.on_failure)
            }
            Self::Discard(order) => write!(f, "call-off {}", order.generation),
            Self::Limit(order) => {
                match order.at_most {
                    Some(at_most) => write!(f, "limit {at_most}")?,
                    None => f.write_str("limit none")?,
                }
                order.budget.as_ref().map_or(Ok(()), |budget| write!(f, ", budget {budget}"))
            }
            Self::Budget(order::Budget { budget, at_most, .. }) => match at_most {
                Some(at_most) => write!(f, "budget {budget} --at-most {at_most}"),
                None => write!(f, "budget {budget} --at-most model"),
            },
            Self::Rollback(order) => {
                of(f, "rollback", order.generation)?;
                f.write_str(if order.prepare { ", prepare" } else { "" })
            }
            Self::Retry(order) => write!(f, "retry {}", order.cob),
            Self::Reboot(_) => f.write_str("reboot"),
            Self::Stop(order) => {
                f.write_str(if order.restart { "restart" } else { "stop" })?;
                some_of(f, &mut order.cobs.iter().map(|one| &one.cob))
            }
            Self::Start(order) => {
                f.write_str("start")?;
                some_of(f, &mut order.cobs.iter())
            }
            Self::Pause(_) => f.write_str("pause"),
            Self::Resume(_) => f.write_str("resume"),
            Self::MarkDeparted(order::MarkDeparted { cob, host, .. }) => {
                f.write_str("declare-final")?;
                cob.as_ref().map_or(Ok(()), |cob| write!(f, " {cob}"))?;
                host.as_ref().map_or(Ok(()), |host| write!(f, " {host}"))
            }
            Self::Fence(order) => write!(f, "fence {}", order.host),
        }
    }
}

/// The source of a request, as far as the connection shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// The Unix socket, and the user who opened it.
    Unix {
        /// The number of the user.
        uid: u32,
    },
    /// Plain TCP, from this address.
    Tcp {
        /// The other end.
        peer: SocketAddr,
    },
    /// TLS, from this address.
    Tls {
        /// The other end.
        peer: SocketAddr,
        /// The key that the handshake has proved; absent: the client showed no key.
        key: Option<PublicKey>,
    },
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid } => write!(f, "uid {uid}"),
            Self::Tcp { peer } | Self::Tls { peer, .. } => peer.fmt(f),
        }
    }
}

/// The handle; clones share the queue and the limits.
#[derive(Debug, Clone)]
pub struct Api {
    tx: mpsc::Sender<Ask>,
    /// This host: an order for another host is refused.
    pub(super) host: HostName,
    /// The slots for connections.
    pub(super) places: Arc<ConnectionPlaces>,
    /// The free slots for watchers.
    pub(super) watchers: Arc<Semaphore>,
    /// The access rights; open connections are notified of changes.
    access: Arc<watch::Sender<Arc<Access>>>,
    /// The folder of the journal, whose size is a metric.
    journal: Arc<OnceLock<PathBuf>>,
    /// The greatest epoch of a hub.
    pub(super) epochs: Arc<Epochs>,
    /// Keys of the trusted publishers: they may ask which generations this host knows.
    publishers: Arc<BTreeSet<PublicKey>>,
    /// The rate limit against guessed tokens.
    pub(super) tries: Arc<RateLimit>,
    /// How often watchers receive changes.
    pub(crate) pace: Arc<Pace>,
}

impl Api {
    /// A handle to the loop that reads the other end of this queue. Until [`Api::set_access`], only root on this host
    /// has access.
    #[must_use]
    pub fn new(tx: mpsc::Sender<Ask>, host: HostName) -> Self {
        Self {
            tx,
            host,
            places: Arc::default(),
            watchers: Arc::new(Semaphore::new(WATCHERS)),
            access: Arc::new(watch::Sender::default()),
            journal: Arc::default(),
            epochs: Arc::default(),
            publishers: Arc::default(),
            tries: Arc::default(),
            pace: Arc::default(),
        }
    }

    /// Like [`Api::new`], for a host that trusts these publishers.
    #[must_use]
    pub fn trusting(self, publishers: BTreeSet<PublicKey>) -> Self {
        Self { publishers: Arc::new(publishers), ..self }
    }

    /// Names the folder of the journal.
    pub(crate) fn set_journal(&self, folder: PathBuf) {
        // The first name counts: a daemon has one journal.
        let _ = self.journal.set(folder);
    }

    /// Reads the greatest epoch of a hub from the state folder, and keeps it there.
    pub(crate) fn keep_epochs(&self, folder: &Path) -> std::io::Result<()> {
        self.epochs.open(folder)
    }

    /// The folder of the journal, if it is known.
    pub(super) fn journal(&self) -> Option<&Path> {
        self.journal.get().map(PathBuf::as_path)
    }

    /// Whether a caller has proved to be a publisher.
    pub(super) fn is_publisher(&self, caller: &Caller) -> bool {
        matches!(caller, Caller::Tls { key: Some(key), .. } if self.publishers.contains(key))
    }

    /// Sets the access rights. Connections without the necessary right are cut, except those with an order that waits
    /// for its answer.
    pub fn set_access(&self, access: Access) {
        self.access.send_if_modified(|now| {
            let changed = **now != access;
            if changed {
                *now = Arc::new(access);
            }
            changed
        });
    }

    /// Subscribes to changes of the access rights.
    pub(super) fn access_changes(&self) -> watch::Receiver<Arc<Access>> {
        self.access.subscribe()
    }

    /// The access rights.
    #[must_use]
    pub fn access(&self) -> Arc<Access> {
        self.access.borrow().clone()
    }

    /// The number of requests that were refused for a missing right.
    #[must_use]
    pub fn denied(&self) -> u64 {
        self.tries.count()
    }

    /// Asks a question.
    pub(super) async fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Refusal> {
        self.within(QUESTION, make).await
    }

    /// Asks about files; a large tree takes time.
    pub(super) async fn files(
        &self,
        cob: CobId,
        generation: Option<GenerationNumber>,
        query: FilesQuery,
    ) -> Result<FilesAnswer, Refusal> {
        self.within(ORDER, |reply| Ask::Files { cob, generation, query, who: None, reply }).await?
    }

    /// Gives an order about files. If the files are absent, it is refused before it is recorded: it has no effect.
    pub(super) async fn order_files(
        &self,
        cob: CobId,
        generation: Option<GenerationNumber>,
        query: FilesQuery,
        who: String,
    ) -> Result<FilesAnswer, Refusal> {
        self.files(cob.clone(), generation, FilesQuery::Would(Box::new(query.clone()))).await?;
        self.within(ORDER, |reply| Ask::Files { cob, generation, query, who: Some(who), reply }).await?
    }

    /// Asks for the log of a change object; a journal takes time.
    pub(super) async fn logs(&self, cob: CobId, query: LogsQuery) -> Result<LogsAnswer, Refusal> {
        self.within(ORDER, |reply| Ask::Logs { cob, query, reply }).await?
    }

    /// Runs a command.
    pub(super) async fn run(&self, order: RunOrder, who: String) -> Result<Running, Refusal> {
        self.within(ORDER, |reply| Ask::Run { order: Box::new(order), who, reply }).await?
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
                "look at its log and at the load of the host; the order may still take effect",
            ))
        })
    }
}
