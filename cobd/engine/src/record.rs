//! Durable entries, and the state that they add up to.
//!
//! The journal is an intent log. Only [`Durable::apply`] interprets it: recovery folds records through it, and the
//! simulator compares its result with the running engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::status::Stopped;
use cob_types::{CobId, GenerationNumber, HostName, Incarnation, Number, Rank, SmallMap, StateName, codec};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::grants::Grants;
use crate::switch::{SwitchRecord, Switching};
use crate::time::Time;

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The time.
    pub at: Time,
    /// Lamport number.
    pub lamport: u64,
    /// The active generation.
    pub generation: GenerationNumber,
    /// The content.
    pub body: Body,
    /// The operator of an order, if any: only for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A lock that a grant or action relies on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// The grantor.
    pub cob: CobId,
    /// The number of the request.
    pub number: Number,
    /// The granted state.
    pub state: StateName,
    /// The values that it carries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: Values,
    /// The content that it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
}

/// A grant that is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantOut {
    /// The request's number.
    pub number: Number,
    /// Its acceptable states.
    pub set: Vec<StateName>,
    /// The granted state.
    pub state: StateName,
    /// The request's rank.
    pub rank: Rank,
    /// The request's origin.
    pub origin: CobId,
    /// The fingerprint that the asker expected.
    pub fingerprint: Option<Fingerprint>,
    /// The grantor's own locks that the grant relies on.
    pub rests_on: Vec<HeldLock>,
    /// Its holder has failed, and keeps it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
    /// The time of the grant. Omitted in its record, which has a time of its own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at: Time,
    /// The state folder of the asking host, if that is another host: the number is of that folder.
    #[serde(default, skip_serializing_if = "is_default")]
    pub folder: Option<u64>,
}

/// A [`GrantOut`] in its encoded bytes. In a chain each change object holds a grant until the last has converged, and
/// only a start, which reads each grant once, needs the decoded form.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptGrant(Box<[u8]>);

impl KeptGrant {
    /// Encodes a grant.
    #[must_use]
    pub fn of(grant: &GrantOut) -> Self {
        match codec::encode_packed(grant) {
            Ok(bytes) => Self(bytes.into()),
            Err(error) => unreachable!("grants are plain values: {error}"),
        }
    }

    /// The grant.
    #[must_use]
    pub fn get(&self) -> GrantOut {
        match codec::decode(&self.0, self.0.len()) {
            Ok(grant) => grant,
            Err(error) => unreachable!("these bytes are our own: {error}"),
        }
    }

    /// The request's number.
    #[must_use]
    pub fn number(&self) -> Number {
        self.get().number
    }
}

impl fmt::Debug for KeptGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Serialize for KeptGrant {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(to)
    }
}

impl<'de> Deserialize<'de> for KeptGrant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        GrantOut::deserialize(from).map(|grant| Self::of(&grant))
    }
}

/// An action that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The number of the job.
    pub job: Number,
    /// The state before the transition.
    pub from: StateName,
    /// The state after the transition.
    pub to: StateName,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// It is a process that outlives the daemon.
    pub process: bool,
    /// The locks that it runs under.
    pub locks: Vec<HeldLock>,
    /// The token of its budget that it has taken to leave its state, and keeps until it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Box<HeldLock>>,
    /// The generation by which it runs; zero: written by an older version.
    #[serde(default, skip_serializing_if = "is_default")]
    pub generation: GenerationNumber,
}

/// The content of an entry. `cob` is always the change object of this host that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the field names describe their content")]
pub enum Body {
    /// Replaces all earlier entries.
    Snapshot(Box<Durable>),
    /// A new incarnation begins.
    #[serde(rename = "Life")]
    Incarnation(Incarnation),
    /// The switch to a generation starts.
    #[serde(rename = "Go")]
    SwitchStarted(GenerationNumber),
    /// A generation is active. Its bundle has the content.
    Activated(GenerationNumber),
    /// A change object has departed, in this state. For change objects that depart beside it, a kept change object also
    /// counts as being in its pre-remove state.
    #[serde(rename = "Gone")]
    Removed {
        cob: CobId,
        state: StateName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_from: Option<StateName>,
    },
    /// A grant is about to be sent.
    Granted { cob: CobId, to: CobId, grant: GrantOut },
    /// A grant was released (or was never received).
    Returned { cob: CobId, from: CobId, number: Number },
    /// An action is about to start.
    Begun { cob: CobId, begun: Begun },
    /// An action has ended.
    Ended {
        cob: CobId,
        job: Number,
        from: StateName,
        to: StateName,
        attempt: u32,
        /// `None`: unknown.
        ok: Option<bool>,
        /// The present state; `None`: unknown.
        state: Option<StateName>,
        /// Consecutive failed attempts.
        failures: u32,
        /// It has failed.
        failed: bool,
        values: Values,
        /// The content of the transition.
        applied: Option<Fingerprint>,
        /// The dependencies at that time.
        rests_on: Option<Fingerprint>,
        /// When the action itself began and ended.
        span: (u64, u64),
        error: String,
        /// The token of its budget that it still keeps: it is not back yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<Box<HeldLock>>,
    },
    /// A check has ended.
    Checked {
        cob: CobId,
        /// `None`: the check could not determine it.
        state: Option<StateName>,
        /// The recorded state was another.
        drift: bool,
        failed: bool,
        values: Values,
        /// The dependencies of the running process, if known.
        rests_on: Option<Fingerprint>,
        detail: String,
        /// The check could not determine the state: this is the previously known state.
        #[serde(default, skip_serializing_if = "is_default")]
        unclear: bool,
        /// It had been in its own target state for long: earlier failed attempts no longer count.
        #[serde(default, skip_serializing_if = "is_default")]
        renewed: bool,
    },
    /// The content changed, or a restart found it running inside a daemon that died: its state is unknown.
    Unknown {
        cob: CobId,
        /// It has dependencies from now on, and had no dependencies before.
        #[serde(default, skip_serializing_if = "is_default")]
        from_nothing: bool,
    },
    /// An order of an operator.
    Ordered(OrderRecord),
    /// Only for the history.
    Note { cob: CobId, note: Note },
    /// A change object of this host has departed in the pending switch.
    #[serde(rename = "Final")]
    Departed { cob: CobId },
    /// Other hosts have announced departures in the pending switch.
    #[serde(rename = "Told")]
    DeparturesAnnounced { cobs: Vec<CobId> },
    /// The number of switches known to have been abandoned (the epoch): earlier facts no longer count.
    #[serde(rename = "Turn")]
    Epoch(u64),
    /// For the first time since the activation of the generation, every change object has converged.
    Settled(GenerationNumber),
    /// A step of the current switch.
    Switch(SwitchRecord),
    /// A recalled grant is invalidated, as its holder's host is out of reach. The holder is informed until it has
    /// released the grant.
    Lapsed { cob: CobId, from: CobId, number: Number },
}

/// An order of an operator, as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the field names describe their content")]
pub enum OrderRecord {
    /// No new transition starts.
    Pause,
    /// Transitions may start again.
    Resume,
    /// A change object tries again.
    Retry(CobId),
    /// A host's locks were released; its messages under this incarnation are refused from now on.
    Fence(HostName, Option<Incarnation>),
    /// A generation was fetched and verified: no effect here.
    Prepare(GenerationNumber),
    /// A change object counts as departed in the pending switch.
    #[serde(rename = "DeclareFinal")]
    MarkRemoved(CobId),
    /// The switch to this generation was cancelled.
    Cancel(GenerationNumber),
    /// A prepared generation is discarded: no effect here.
    #[serde(rename = "CallOff")]
    Discard(GenerationNumber),
    /// The most parallel transitions; `None`: no limit.
    Limit(Option<u32>),
    /// The switch just ordered is only for these hosts, and is not to be announced to others; empty: for all hosts.
    Only(Vec<HostName>),
    /// A token limit of a budget; `None`: the number of the model.
    LimitBudget(CobId, Option<u32>),
    /// The cancelled switch has a new target: it no longer pauses the host.
    #[serde(rename = "Unhold")]
    EndCancel,
    /// A conflict about files is decided, for a file or for all; the decision, in words.
    Resolve { cob: CobId, path: Option<String>, choice: String },
    /// A file is restored to this version.
    Restore { cob: CobId, path: String, version: String },
    /// The number of tokens of a budget until the next activation, independent of the model; `None`: the number of the
    /// model.
    RaiseBudget(CobId, Option<u32>),
    /// A change object is stopped.
    Stop(CobId, Stopped),
    /// It is no longer stopped: an operator started it, or a single stop was ordered and has happened.
    Start(CobId),
    /// The host reboots: no effect here.
    Reboot,
    /// A command of an operator starts or has ended: the state stays as it is.
    Run(cob_types::command_run::RunRecord),
}

/// An entry only for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the field names describe their content")]
pub enum Note {
    /// Asked for a lock.
    Requested { of: CobId, set: Vec<StateName> },
    /// Released a lock.
    Released { of: CobId },
    /// Got a lock.
    Holds { of: CobId, state: StateName },
    /// Recalled a grant.
    Recalled { from: CobId },
    /// Informed a holder that its grant is invalidated.
    Lapsed { from: CobId },
    /// A deadlock cycle was reported.
    Stuck { circle: Vec<CobId>, more: bool },
    /// A chase was reported.
    Chase { of: CobId, times: u32 },
    /// A flap was reported.
    Flap { state: StateName, times: u32, because_of: Option<CobId> },
    /// It decides by rank from now on.
    Ordered,
    /// A budget has granted a token beyond its number: the other holders cannot come back before this member moves.
    Overdrawn { by: CobId, at_most: u32 },
    /// A held lock was invalidated.
    Broken { of: CobId },
}

impl Body {
    /// Whether it must be on the disk before any message or job of its tick. The others are written with the next
    /// durable record, or a little later.
    #[must_use]
    pub fn must_be_durable(&self) -> bool {
        match self {
            Body::Granted { cob, to, .. } => cob.host_str() != to.host_str(),
            Body::Snapshot(_)
            | Body::Incarnation(_)
            | Body::SwitchStarted(_)
            | Body::Activated(_)
            | Body::Removed { .. }
            | Body::Begun { .. }
            | Body::Ended { .. }
            | Body::Ordered(_)
            | Body::Departed { .. }
            | Body::Epoch(_)
            | Body::Lapsed { .. } => true,
            // The asker asks again.
            Body::Switch(step) => !matches!(step, SwitchRecord::Reopened { .. }),
            // A check can find the state again; a missing release is queried, and so are the facts of other hosts.
            Body::Checked { .. }
            | Body::Unknown { .. }
            | Body::Returned { .. }
            | Body::Note { .. }
            | Body::Settled(_)
            | Body::DeparturesAnnounced { .. } => false,
        }
    }
}

/// The sum of the records: the knowledge that a daemon needs after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Durable {
    /// The last incarnation.
    #[serde(rename = "life")]
    pub incarnation: Option<Incarnation>,
    /// The highest Lamport number seen.
    pub lamport: u64,
    /// The active generation.
    pub active: GenerationNumber,
    /// The generation of the pending switch.
    #[serde(rename = "going_to")]
    pub pending: Option<GenerationNumber>,
    /// No new transition starts.
    pub paused: bool,
    /// Per change object of this host. There are many, and the nodes of a map that is filled in order are half empty:
    /// so the values are small.
    pub cobs: BTreeMap<CobId, Box<DurableCob>>,
    /// Departed change objects, and their last state.
    pub gone: BTreeMap<CobId, StateName>,
    /// Fenced hosts, with the incarnation that is refused.
    pub fenced: BTreeMap<HostName, Option<Incarnation>>,
    /// The pre-remove states of departed change objects that were kept in another state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept_from: BTreeMap<CobId, StateName>,
    /// The number of switches known to have been abandoned (the epoch).
    #[serde(rename = "turn", default, skip_serializing_if = "is_default")]
    pub epoch: u64,
    /// The highest generation that this host has ever switched to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub highest: GenerationNumber,
    /// When the pending switch started.
    #[serde(rename = "going_since", default, skip_serializing_if = "is_default")]
    pub pending_since: Time,
    /// Change objects of this host that have departed in it.
    #[serde(rename = "finals", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub departed: BTreeSet<CobId>,
    /// Departures announced by other hosts.
    #[serde(rename = "told", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub announced: BTreeSet<CobId>,
    /// Change objects declared departed by an operator.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub declared: BTreeSet<CobId>,
    /// The switch to this generation was cancelled, which pauses the host.
    #[serde(rename = "held", default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<GenerationNumber>,
    /// The most parallel transitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The active generation has converged once since its activation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub settled: bool,
    /// The switch order is only for these hosts; empty: for all hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<HostName>,
    /// The current switch, and the rollbacks.
    #[serde(default, skip_serializing_if = "Switching::is_new")]
    pub switching: Switching,
    /// Budgets with an operator's token limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limited: BTreeMap<CobId, u32>,
    /// Budgets with an operator's token number until the next generation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub raised: BTreeMap<CobId, u32>,
    /// Change objects that an operator has stopped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stopped: BTreeMap<CobId, Stopped>,
    /// All change objects with counting failed attempts, and perhaps more: the next generation resets them. Derived
    /// from `cobs`.
    #[serde(skip)]
    pub(crate) failing: BTreeSet<CobId>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The durable part of a change object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DurableCob {
    /// `None`: unknown.
    pub state: Option<StateName>,
    /// It has failed.
    pub failed: bool,
    /// Consecutive failed attempts.
    pub failures: u32,
    /// Its exported values. Most change objects export no values.
    pub values: SmallMap<String, String>,
    /// The content with which its state was last made.
    pub applied: Option<Fingerprint>,
    /// Its dependencies at that time.
    pub rests_on: Option<Fingerprint>,
    /// The action under way.
    pub action: Option<Box<Begun>>,
    /// Grants out, by dependent. Most change objects have at most a single grant.
    pub grants: Grants,
    /// When its state last changed.
    pub since: Time,
    /// The token of its budget under which it left its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Box<HeldLock>>,
    /// Grants invalidated while their holders were out of reach, by dependent: the holders do not know it yet.
    #[serde(default, skip_serializing_if = "Grants::is_empty")]
    pub lapsed: Grants,
    /// Consecutive checks that could not determine the state, since it was known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unclear: u32,
    /// The last failed attempt, while failed attempts count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Box<Missed>>,
}

/// A failed attempt, so that a restarted daemon can report the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// The state before the transition.
    pub from: StateName,
    /// The state after the transition.
    pub to: StateName,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The reported error.
    pub error: String,
}

impl DurableCob {
    /// Resets the counters of failures.
    fn begin_anew(&mut self) {
        (self.failed, self.failures, self.unclear, self.missed) = (false, 0, 0, None);
    }
}

impl Durable {
    /// Applies a record. Total: a record that does not fit has no effect.
    pub fn apply(&mut self, record: &Record) {
        self.lamport = self.lamport.max(record.lamport);
        match &record.body {
            Body::Snapshot(all) => {
                *self = (**all).clone();
                // The previous version did not write it.
                self.highest = self.highest.max(self.active).max(self.pending.unwrap_or_default());
                self.find_failing();
            }
            Body::Incarnation(life) => self.incarnation = Some(*life),
            Body::SwitchStarted(generation) => {
                self.pending = Some(*generation);
                self.cancelled = None;
                self.only.clear();
                self.highest = self.highest.max(*generation);
                self.pending_since = record.at;
                self.forget_facts();
            }
            Body::Activated(generation) => {
                self.raised.clear();
                self.stopped.clear();
                self.active = *generation;
                self.pending = None;
                self.settled = false;
                self.highest = self.highest.max(*generation);
                self.forget_facts();
                for cob in std::mem::take(&mut self.failing) {
                    self.cobs.entry(cob).and_modify(|c| c.begin_anew());
                }
            }
            Body::Departed { cob } => _ = self.departed.insert(cob.clone()),
            Body::DeparturesAnnounced { cobs } => self.announced.extend(cobs.iter().cloned()),
            Body::Epoch(turn) => {
                self.epoch = *turn;
                self.announced.clear();
            }
            Body::Removed { cob, state, kept_from } => {
                // Its grants stay valid after the departure.
                let DurableCob { grants, lapsed, .. } = *self.cobs.remove(cob).unwrap_or_default();
                if !grants.is_empty() || !lapsed.is_empty() {
                    self.cobs.insert(cob.clone(), Box::new(DurableCob { grants, lapsed, ..DurableCob::default() }));
                }
                self.gone.insert(cob.clone(), state.clone());
                match kept_from {
                    Some(off) => _ = self.kept_from.insert(cob.clone(), off.clone()),
                    None => _ = self.kept_from.remove(cob),
                }
            }
            Body::Granted { cob, to, grant } => {
                let c = self.cob(cob);
                c.lapsed.remove(to);
                // An earlier grant is recorded again when its holder fails.
                let before = c.grants.get(to).map(KeptGrant::get).filter(|g| g.number == grant.number);
                let at = before.map_or(record.at, |g| g.at);
                c.grants.insert(to.clone(), KeptGrant::of(&GrantOut { at, ..grant.clone() }));
            }
            Body::Returned { cob, from, number } => {
                let c = self.cob(cob);
                for promises in [&mut c.grants, &mut c.lapsed] {
                    if promises.get(from).is_some_and(|g| g.number() <= *number) {
                        promises.remove(from);
                    }
                }
                if self.gone.contains_key(cob) && self.cobs.get(cob).is_some_and(|c| **c == DurableCob::default()) {
                    self.cobs.remove(cob);
                }
            }
            Body::Lapsed { cob, from, number } => {
                let c = self.cob(cob);
                if let Some(grant) = c.grants.remove(from).filter(|g| g.number() == *number) {
                    c.lapsed.insert(from.clone(), grant);
                }
            }
            Body::Begun { cob, begun } => {
                let c = self.cob(cob);
                c.action = Some(Box::new(begun.clone()));
                c.token.clone_from(&begun.token);
            }
            Body::Ended {
                cob,
                from,
                to,
                attempt,
                state,
                failures,
                failed,
                values,
                applied,
                rests_on,
                ok,
                token,
                error,
                ..
            } => {
                if *failures > 0 || *failed {
                    self.failing.insert(cob.clone());
                }
                let c = self.cob(cob);
                c.action = None;
                c.token.clone_from(token);
                c.state.clone_from(state);
                c.unclear = 0;
                c.failures = *failures;
                c.failed = *failed;
                c.missed = (*failures > 0 || *failed).then(|| {
                    Box::new(Missed { from: from.clone(), to: to.clone(), attempt: *attempt, error: error.clone() })
                });
                c.values = values.clone().into_iter().collect();
                if *ok == Some(true) {
                    c.applied = *applied;
                    c.rests_on = *rests_on;
                }
                c.since = record.at;
            }
            Body::Checked { cob, state, failed, values, rests_on, unclear, renewed, .. } => {
                if *unclear {
                    self.failing.insert(cob.clone());
                }
                let c = self.cob(cob);
                c.unclear = if *unclear { c.unclear.saturating_add(1) } else { 0 };
                if *renewed {
                    (c.failures, c.missed) = (0, None);
                }
                if c.state != *state {
                    c.since = record.at;
                }
                c.state.clone_from(state);
                c.values = values.clone().into_iter().collect();
                c.failed = *failed;
                c.rests_on = *rests_on;
            }
            Body::Unknown { cob, from_nothing } => {
                let c = self.cob(cob);
                c.begin_anew();
                if *from_nothing {
                    c.rests_on = Some(Fingerprint::NOTHING);
                }
                c.state = None;
                c.since = record.at;
            }
            Body::Ordered(OrderRecord::Pause) => self.paused = true,
            Body::Ordered(OrderRecord::Resume) => {
                self.paused = false;
                self.cancelled = None;
            }
            Body::Ordered(OrderRecord::Cancel(generation)) => self.cancelled = Some(*generation),
            Body::Ordered(OrderRecord::EndCancel) => self.cancelled = None,
            Body::Ordered(OrderRecord::Limit(limit)) => self.limit = *limit,
            Body::Ordered(OrderRecord::LimitBudget(budget, limit)) => {
                match limit {
                    Some(tokens) => self.limited.insert(budget.clone(), *tokens),
                    None => self.limited.remove(budget),
                };
            }
            Body::Ordered(OrderRecord::RaiseBudget(budget, tokens)) => {
                match tokens {
                    Some(tokens) => self.raised.insert(budget.clone(), *tokens),
                    None => self.raised.remove(budget),
                };
            }
            Body::Ordered(OrderRecord::Stop(cob, stopped)) => {
                self.stopped.insert(cob.clone(), stopped.clone());
                self.cob(cob).begin_anew();
            }
            Body::Ordered(OrderRecord::Start(cob)) => {
                self.stopped.remove(cob);
                self.cob(cob).begin_anew();
            }
            Body::Ordered(OrderRecord::Only(hosts)) => self.only.clone_from(hosts),
            Body::Ordered(OrderRecord::Retry(cob)) => {
                self.cob(cob).begin_anew();
            }
            Body::Ordered(OrderRecord::Fence(host, incarnation)) => {
                self.fenced.insert(host.clone(), *incarnation);
                for c in self.cobs.values_mut() {
                    c.grants.retain(|asker| asker.host_str() != host.as_str());
                    c.lapsed.retain(|asker| asker.host_str() != host.as_str());
                }
            }
            Body::Ordered(OrderRecord::MarkRemoved(cob)) => _ = self.declared.insert(cob.clone()),
            Body::Settled(generation) => self.settled |= self.active == *generation,
            Body::Switch(step) => self.switching.apply(step, record.at),
            // There are no records of files.
            Body::Ordered(
                OrderRecord::Prepare(_)
                | OrderRecord::Discard(_)
                | OrderRecord::Reboot
                | OrderRecord::Run(_)
                | OrderRecord::Resolve { .. }
                | OrderRecord::Restore { .. },
            )
            | Body::Note { .. } => {}
        }
    }

    /// The switch is over, or abandoned.
    fn forget_facts(&mut self) {
        self.departed.clear();
        self.announced.clear();
        self.declared.clear();
    }

    /// Computes the failing change objects if `cobs` does not come from records.
    fn find_failing(&mut self) {
        let fails = self.cobs.iter().filter(|(_, c)| c.failed || c.failures > 0 || c.unclear > 0);
        self.failing = fails.map(|(id, _)| id.clone()).collect();
    }

    fn cob(&mut self, id: &CobId) -> &mut DurableCob {
        self.cobs.entry(id.clone()).or_default()
    }
}
