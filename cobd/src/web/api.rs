//! The handle through which the API communicates with the daemon's loop.
//!
//! The loop answers each [`Ask`] in the queue. If it is slow or has ended, a request fails after a time limit; it never
//! hangs.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cob_types::check_round::CheckRound;
use cob_types::command_run::{RunId, RunOrder, StoredRun};
use cob_types::history::HistoryEntry;
use cob_types::outcome::OutcomeOf;
use cob_types::status::{CobStatus, HostStatus};
use cob_types::switch::OnFailure;
use cob_types::{BlobHash, CobId, GenerationId, GenerationNumber, HostName, PublicKey};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::adhoc::Running;
use crate::kinds::{FilesAnswer, FilesQuery, LogsAnswer, LogsQuery};

use super::access::Access;
use super::pace::Pace;
use super::rate_limit::RateLimit;
use super::slots::ConnectionPlaces;
use super::wire::{Done, Refusal, RefusalKind, StopOne};

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

/// The change objects that a status lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatusOf {
    /// All.
    #[default]
    All,
    /// Change objects with a report. The others are idle in their desired states, and are only counted.
    Restless,
}

/// An operator's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Fetch and verify the bundle and manifest of this generation.
    Prepare {
        /// The number of the generation.
        generation: GenerationNumber,
        /// The hash of its manifest; absent: the generation of the depot.
        manifest: Option<BlobHash>,
    },
    /// Switch to this generation.
    Switch {
        /// The number of the generation.
        generation: GenerationNumber,
        /// The hash of its manifest; absent: the generation of the depot.
        manifest: Option<BlobHash>,
        /// The terms.
        how: SwitchHow,
        /// The hosts that switch, and to which alone the switch is announced; empty: all hosts.
        only: Vec<HostName>,
        /// The newest generation that the author knew on any host: a newer generation invalidates the order.
        seen: Option<GenerationNumber>,
    },
    /// Stop the switch: running actions are asked to end, no transition starts, then the failure policy applies. If it
    /// is rollback, a host on which the named generation has converged rolls back too.
    Cancel {
        /// The generation; absent: the generation of the present switch.
        generation: Option<GenerationNumber>,
        /// The failure policy in place of the generation's.
        on_failure: Option<OnFailure>,
    },
    /// Discard a prepared generation to which no host has switched.
    CallOff {
        /// The number of the generation.
        generation: GenerationNumber,
    },
    /// Limit the number of concurrent transitions.
    Limit {
        /// The limit; absent: no limit.
        at_most: Option<u32>,
        /// Limit the tokens of this budget instead; without `at_most` it has as many as in the model.
        budget: Option<CobId>,
    },
    /// Set the number of tokens of a budget until the next generation.
    Budget {
        /// The budget.
        budget: CobId,
        /// The number of tokens; absent: as many as in the model.
        at_most: Option<u32>,
    },
    /// Roll back the last generation.
    Rollback {
        /// The rollback target; absent: the newest valid target.
        generation: Option<GenerationNumber>,
        /// Only prepare the rollback target.
        prepare: bool,
    },
    /// Retry a failed change object.
    Retry {
        /// The change object.
        cob: CobId,
    },
    /// Move change objects to their stopped states, until they are started or the next generation is activated.
    Stop {
        /// The change objects.
        cobs: Vec<StopOne>,
        /// Each starts again by itself as soon as it has stopped.
        restart: bool,
        /// Each starts again by itself after a reboot of this host.
        until_boot: bool,
    },
    /// Start stopped change objects.
    Start {
        /// The change objects.
        cobs: Vec<CobId>,
    },
    /// Reboot this host; all that runs on it is stopped first.
    Reboot,
    /// Pause: no new transition starts.
    Pause,
    /// Resume: transitions may start again.
    Resume,
    /// Mark departing change objects as departed, although they are not or their state is unknown.
    DeclareFinal(Departing),
    /// Fence a host that will not come back as it was: release its locks on this host.
    Fence {
        /// The host.
        host: HostName,
    },
}

impl Command {
    /// Adds the manifest to an order that names a generation by its number alone.
    pub(crate) fn with_manifest(mut self, found: Option<BlobHash>) -> Self {
        if let Self::Prepare { manifest, .. } | Self::Switch { manifest, .. } = &mut self {
            *manifest = manifest.or(found);
        }
        self
    }
}

/// The change objects that are marked as departed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Departing {
    /// A change object of any host.
    Cob(CobId),
    /// All awaited change objects of a host.
    Host(HostName),
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
        match self {
            Self::Prepare { generation, .. } => write!(f, "prepare {generation}"),
            Self::Switch { generation, how, only, .. } => {
                write!(f, "switch {generation}")?;
                policy(f, how.on_failure)?;
                how.guard_ms.map_or(Ok(()), |ms| write!(f, ", guard {ms} ms"))?;
                f.write_str(if how.now { ", now" } else { "" })?;
                if only.is_empty() && how.alone {
                    return f.write_str(", not announced");
                }
                only.iter().try_for_each(|host| write!(f, ", only {host}"))
            }
            Self::Cancel { generation, on_failure } => {
                of(f, "cancel", *generation)?;
                policy(f, *on_failure)
            }
            Self::CallOff { generation } => write!(f, "call-off {generation}"),
            Self::Limit { at_most, budget } => {
                match at_most {
                    Some(at_most) => write!(f, "limit {at_most}")?,
                    None => f.write_str("limit none")?,
                }
                budget.as_ref().map_or(Ok(()), |budget| write!(f, ", budget {budget}"))
            }
            Self::Budget { budget, at_most: Some(at_most) } => write!(f, "budget {budget} --at-most {at_most}"),
            Self::Budget { budget, at_most: None } => write!(f, "budget {budget} --at-most model"),
            Self::Rollback { generation, prepare } => {
                of(f, "rollback", *generation)?;
                f.write_str(if *prepare { ", prepare" } else { "" })
            }
            Self::Retry { cob } => write!(f, "retry {cob}"),
            Self::Reboot => f.write_str("reboot"),
            Self::Stop { cobs, restart, .. } => {
                f.write_str(if *restart { "restart" } else { "stop" })?;
                cobs.iter().take(LOGGED).try_for_each(|one| write!(f, " {}", one.cob))?;
                if cobs.len() > LOGGED { write!(f, " and {} more", cobs.len() - LOGGED) } else { Ok(()) }
            }
            Self::Start { cobs } => {
                f.write_str("start")?;
                cobs.iter().take(LOGGED).try_for_each(|cob| write!(f, " {cob}"))?;
                if cobs.len() > LOGGED { write!(f, " and {} more", cobs.len() - LOGGED) } else { Ok(()) }
            }
            Self::Pause => f.write_str("pause"),
            Self::Resume => f.write_str("resume"),
            Self::DeclareFinal(Departing::Cob(cob)) => write!(f, "declare-final {cob}"),
            Self::DeclareFinal(Departing::Host(host)) => write!(f, "declare-final {host}"),
            Self::Fence { host } => write!(f, "fence {host}"),
        }
    }
}

/// The terms of a switch that differ from the generation's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchHow {
    /// The failure policy.
    pub on_failure: Option<OnFailure>,
    /// The time of the guard in milliseconds; zero: no guard.
    pub guard_ms: Option<u64>,
    /// The switch is not announced to other hosts.
    pub alone: bool,
    /// It does not wait for maintenance windows.
    pub now: bool,
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
    /// Keys of the trusted publishers: they may ask which generations this host knows.
    publishers: Arc<BTreeSet<PublicKey>>,
    /// The rate limit against guessed tokens.
    pub(super) brake: Arc<RateLimit>,
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
            publishers: Arc::default(),
            brake: Arc::default(),
            pace: Arc::default(),
        }
    }

    /// Like [`Api::new`], for a host that trusts these publishers.
    #[must_use]
    pub fn trusting(self, publishers: BTreeSet<PublicKey>) -> Self {
        Self { publishers: Arc::new(publishers), ..self }
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
        self.brake.count()
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
