//! The handle through which the API speaks with the daemon's loop.
//!
//! The loop owns the other end of the queue and answers each [`Ask`] when it comes to it. A loop that
//! is slow or gone shows as a refusal after a while, never as a request that hangs.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cob_types::check_round::CheckRound;
use cob_types::history::HistoryEntry;
use cob_types::outcome::OutcomeOf;
use cob_types::status::{CobStatus, HostStatus};
use cob_types::switch::OnFailure;
use cob_types::{BlobHash, CobId, GenerationId, GenerationNumber, HostName, PublicKey};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::kinds::{FilesAnswer, FilesQuery, LogsAnswer, LogsQuery};

use super::access::Access;
use super::brake::Brake;
use super::pace::Pace;
use super::places::Places;
use super::wire::{Done, Refusal, RefusalKind, StopOne};

/// How long a question may wait for the loop. It answers between two commits, so a second is long.
const QUESTION: Duration = Duration::from_secs(10);
/// How long an order may take: `prepare` fetches a bundle.
const ORDER: Duration = Duration::from_secs(60);
/// Watchers among all connections; the rest stays free for questions and orders.
const WATCHERS: usize = 64;

/// A question to the loop, or an order, with a place for the answer.
#[derive(Debug)]
pub enum Ask {
    /// All that is known of this host.
    Status {
        /// Which of its change objects.
        of: StatusOf,
        /// Of those that only wait for others no more than so many, where not all were asked for.
        most_waiting: usize,
        /// The answer.
        reply: oneshot::Sender<HostStatus>,
    },
    /// The newest generations that this host knows.
    Known {
        /// The answer, the newest first.
        reply: oneshot::Sender<Vec<GenerationId>>,
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
        /// If there are more, the newest of them.
        newest: bool,
        /// The answer.
        reply: oneshot::Sender<Result<Vec<HistoryEntry>, Refusal>>,
    },
    /// What came of the last switch to a generation.
    Outcome {
        /// The generation.
        to: GenerationNumber,
        /// The answer; none: this life of the daemon has not seen the switch begin, and the history tells.
        reply: oneshot::Sender<Option<OutcomeOf>>,
    },
    /// What the last action of a change object has printed.
    Output {
        /// Whose.
        cob: CobId,
        /// The answer; none: nothing is kept.
        reply: oneshot::Sender<Option<String>>,
    },
    /// What a change object prints while it runs.
    Logs {
        /// Whose.
        cob: CobId,
        /// What of it.
        query: LogsQuery,
        /// The answer.
        reply: oneshot::Sender<Result<LogsAnswer, Refusal>>,
    },
    /// Something about a change object's files, or an order about them.
    Files {
        /// Whose.
        cob: CobId,
        /// In this generation, which is prepared; none: in the active one.
        generation: Option<GenerationNumber>,
        /// What.
        query: FilesQuery,
        /// Who orders it, for the history; nobody does where it is a question.
        who: Option<String>,
        /// The answer.
        reply: oneshot::Sender<Result<FilesAnswer, Refusal>>,
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
    /// Check change objects now, whatever is known of them.
    Check {
        /// Which; none: all of this host.
        cobs: Vec<CobId>,
        /// The answer: the round's number.
        reply: oneshot::Sender<Result<u64, Refusal>>,
    },
    /// How a round of checks stands, and word of its end.
    CheckRound {
        /// Its number.
        round: u64,
        /// The answer; none: it is not known, or not any more.
        reply: oneshot::Sender<Option<(CheckRound, watch::Receiver<bool>)>>,
    },
    /// A counter that grows whenever the status changes.
    Watch {
        /// The answer.
        reply: oneshot::Sender<watch::Receiver<u64>>,
    },
}

/// Which change objects are listed in a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatusOf {
    /// All.
    #[default]
    All,
    /// Those of which there is something to tell. The others are where they should be, at rest, and are counted.
    Restless,
}

/// An operator's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Get this generation's bundle and manifest and verify them.
    Prepare {
        /// Its number.
        generation: GenerationNumber,
        /// The hash of its manifest; none: the one of the depot.
        manifest: Option<BlobHash>,
    },
    /// `go`: switch to this generation.
    Switch {
        /// Its number.
        generation: GenerationNumber,
        /// The hash of its manifest; none: the one of the depot.
        manifest: Option<BlobHash>,
        /// How.
        how: SwitchHow,
        /// The hosts that it is for, and nobody else is to be told of it; none: everybody.
        only: Vec<HostName>,
        /// The newest generation that whoever orders it knew of on any host: one that is newer has overtaken the order.
        seen: Option<GenerationNumber>,
    },
    /// Stop the switch under way: what runs is asked to end, nothing starts, then the policy applies. A host on which
    /// the generation that is named has converged goes back, too, if the policy says so.
    Cancel {
        /// The generation meant; none: whichever it is.
        generation: Option<GenerationNumber>,
        /// What happens then, in place of what the generation says.
        on_failure: Option<OnFailure>,
    },
    /// Forget a generation that was prepared and to which nobody has said `go`.
    CallOff {
        /// Its number.
        generation: GenerationNumber,
    },
    /// At most so many transitions at a time; none: as many as can go.
    Limit {
        /// So many.
        at_most: Option<u32>,
        /// This budget has so many tokens and no more, instead; none: as many as the model gives it.
        budget: Option<CobId>,
    },
    /// A budget has so many tokens until the next generation; none: as many as the model gives it.
    Budget {
        /// Which.
        budget: CobId,
        /// So many.
        at_most: Option<u32>,
    },
    /// Leave the generation that was gone to last, and return.
    Rollback {
        /// To this one; none: the newest to which a way back is named.
        generation: Option<GenerationNumber>,
        /// Nothing is left yet: where that leads is prepared.
        prepare: bool,
    },
    /// Forget that this change object has given up.
    Retry {
        /// Which.
        cob: CobId,
    },
    /// These change objects go to the state in which they are stopped, and stay there until they are started or the next
    /// generation is activated.
    Stop {
        /// Which.
        cobs: Vec<StopOne>,
        /// Each starts again by itself as soon as it has been stopped.
        restart: bool,
        /// Each starts again by itself when this host has been rebooted.
        until_boot: bool,
    },
    /// These change objects are stopped no more.
    Start {
        /// Which.
        cobs: Vec<CobId>,
    },
    /// Reboot this host, on which all that runs is stopped until then.
    Reboot,
    /// No new transition starts.
    Pause,
    /// They may start again.
    Resume,
    /// A change object that leaves with the switch counts as left for good, though it is not, or nobody can tell.
    DeclareFinal(Departing),
    /// The host will not come back as it was: free what its change objects hold here.
    Fence {
        /// Which.
        host: HostName,
    },
}

impl Command {
    /// The same for this content, where the order names a generation by its number alone.
    pub(crate) fn with_manifest(mut self, found: Option<BlobHash>) -> Self {
        if let Self::Prepare { manifest, .. } | Self::Switch { manifest, .. } = &mut self {
            *manifest = manifest.or(found);
        }
        self
    }
}

/// What counts as left for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Departing {
    /// A change object, of whatever host.
    Cob(CobId),
    /// All change objects of a host that are waited for.
    Host(HostName),
}

/// So many change objects of an order are named in the log.
const LOGGED: usize = 8;

/// In the words of the command line, for the log.
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
                if only.is_empty() && how.alone {
                    return f.write_str(", told to nobody else");
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

/// How a switch is made, where it is not said by the generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchHow {
    /// What a failure leads to.
    pub on_failure: Option<OnFailure>,
    /// The guard in milliseconds; zero: none.
    pub guard_ms: Option<u64>,
    /// Other hosts are not told to go too.
    pub alone: bool,
}

/// Where a request came from, as far as the connection tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// The unix socket, and the user who opened it.
    Unix {
        /// The user's number.
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
        /// The key that the handshake has proved; none: it showed none.
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
    /// Whose it is: an order that is meant for another host is not taken.
    pub(super) host: HostName,
    /// How many connections there may be.
    pub(super) places: Arc<Places>,
    /// Watchers that may still come.
    pub(super) watchers: Arc<Semaphore>,
    /// Who may look and order, and word of it to the connections that are open.
    access: Arc<watch::Sender<Arc<Access>>>,
    /// Keys of the publishers whom this host trusts: they may ask which generations it knows.
    publishers: Arc<BTreeSet<PublicKey>>,
    /// What slows down those who guess.
    pub(super) brake: Arc<Brake>,
    /// How often watchers are told of changes.
    pub(crate) pace: Arc<Pace>,
}

impl Api {
    /// A handle on the loop that reads the other end of this queue. Until [`Api::set_access`] only root
    /// on this host is let in.
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

    /// The same, for a host that trusts these publishers.
    #[must_use]
    pub fn trusting(self, publishers: BTreeSet<PublicKey>) -> Self {
        Self { publishers: Arc::new(publishers), ..self }
    }

    /// Whether a caller has proved to be a publisher.
    pub(super) fn is_publisher(&self, caller: &Caller) -> bool {
        matches!(caller, Caller::Tls { key: Some(key), .. } if self.publishers.contains(key))
    }

    /// From now on these may look and order. Connections of others are cut, but for those that have given
    /// an order and wait for the answer.
    pub fn set_access(&self, access: Access) {
        self.access.send_if_modified(|now| {
            let changed = **now != access;
            if changed {
                *now = Arc::new(access);
            }
            changed
        });
    }

    /// Hears of changes of the access from now on.
    pub(super) fn access_changes(&self) -> watch::Receiver<Arc<Access>> {
        self.access.subscribe()
    }

    /// Who may look and order.
    #[must_use]
    pub fn access(&self) -> Arc<Access> {
        self.access.borrow().clone()
    }

    /// Requests that were refused because their caller had no right to them.
    #[must_use]
    pub fn denied(&self) -> u64 {
        self.brake.count()
    }

    /// Asks a question.
    pub(super) async fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Refusal> {
        self.within(QUESTION, make).await
    }

    /// Asks about files: a large tree takes its time.
    pub(super) async fn files(
        &self,
        cob: CobId,
        generation: Option<GenerationNumber>,
        query: FilesQuery,
    ) -> Result<FilesAnswer, Refusal> {
        self.within(ORDER, |reply| Ask::Files { cob, generation, query, who: None, reply }).await?
    }

    /// Gives an order about files. One about what is not there is refused before it is on record: nothing comes of it.
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

    /// Asks what a change object prints: a journal takes its time.
    pub(super) async fn logs(&self, cob: CobId, query: LogsQuery) -> Result<LogsAnswer, Refusal> {
        self.within(ORDER, |reply| Ask::Logs { cob, query, reply }).await?
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
