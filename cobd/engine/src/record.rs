//! Durable entries, and the state that they add up to.
//!
//! The journal is an intent log. [`Durable::apply`] is the only reading of it: recovery folds
//! records through it, and the simulator compares its result with the living engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::status::Stopped;
use cob_types::{CobId, GenerationNumber, HostName, Incarnation, Number, Rank, SmallMap, StateName, codec};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::promises::Promises;
use crate::switch::{SwitchRecord, Switching};
use crate::time::Time;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When.
    pub at: Time,
    /// Lamport number.
    pub lamport: u64,
    /// The active generation.
    pub generation: GenerationNumber,
    /// What.
    pub body: Body,
    /// Who ordered it, where somebody did: for the history alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A lock that something rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// Of whom.
    pub cob: CobId,
    /// Under which number.
    pub number: Number,
    /// In which state.
    pub state: StateName,
    /// What it carries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: Values,
    /// The content that it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
}

/// A promise that is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantOut {
    /// The request's number.
    pub number: Number,
    /// Its acceptable states.
    pub set: Vec<StateName>,
    /// The state promised.
    pub state: StateName,
    /// The request's rank.
    pub rank: Rank,
    /// The request's origin.
    pub origin: CobId,
    /// The fingerprint that the asker expected.
    pub fingerprint: Option<Fingerprint>,
    /// The granter's own locks that the promise rests on.
    pub rests_on: Vec<HeldLock>,
    /// Its holder has failed, and keeps it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
    /// When it was given. Left away in its record, which has a time of its own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at: Time,
    /// The state folder of the host that asked, if that is another one: the number is of that folder.
    #[serde(default, skip_serializing_if = "is_default")]
    pub folder: Option<u64>,
}

/// A [`GrantOut`] as it is kept: in the bytes in which it is written. In a chain each change object has given one until the
/// last is where it should be, and only a start, which goes through all of them once, wants to know what is in them.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptGrant(Box<[u8]>);

impl KeptGrant {
    /// Keeps a promise.
    #[must_use]
    pub fn of(grant: &GrantOut) -> Self {
        match codec::encode_packed(grant) {
            Ok(bytes) => Self(bytes.into()),
            Err(error) => unreachable!("promises are plain values: {error}"),
        }
    }

    /// The promise.
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
    /// Names the job.
    pub job: Number,
    /// The state left.
    pub from: StateName,
    /// The state to be entered.
    pub to: StateName,
    /// From 1.
    pub attempt: u32,
    /// It is a process that outlives the daemon.
    pub process: bool,
    /// The locks that it runs under.
    pub locks: Vec<HeldLock>,
    /// The token of its budget that it has taken to leave, and keeps until it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Box<HeldLock>>,
    /// The generation by which it runs; zero: written before this was.
    #[serde(default, skip_serializing_if = "is_default")]
    pub generation: GenerationNumber,
}

/// What is written. `cob` is always the change object of this host that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are named after what they hold")]
pub enum Body {
    /// Everything before is summed up here.
    Snapshot(Box<Durable>),
    /// A new life begins.
    Life(Incarnation),
    /// `go` for a generation.
    Go(GenerationNumber),
    /// A generation is active. What is in it is known from its bundle.
    Activated(GenerationNumber),
    /// A change object has left, in this state. One that was kept counts for whoever leaves beside it as in its
    /// pre-remove state, too.
    Gone {
        cob: CobId,
        state: StateName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_from: Option<StateName>,
    },
    /// A promise is about to leave.
    Granted { cob: CobId, to: CobId, grant: GrantOut },
    /// A promise came back (or was never taken).
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
        /// None: nobody knows.
        ok: Option<bool>,
        /// The state it is in now; none: unknown.
        state: Option<StateName>,
        /// Failed attempts in a row.
        failures: u32,
        /// It has given up.
        failed: bool,
        values: Values,
        /// The content that it was made with.
        applied: Option<Fingerprint>,
        /// What it rests on, at that moment.
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
        /// None: it could not tell.
        state: Option<StateName>,
        /// The recorded state was another.
        drift: bool,
        failed: bool,
        values: Values,
        /// What it rests on, where that is known.
        rests_on: Option<Fingerprint>,
        detail: String,
        /// The check could not tell: the state is the one that was known before.
        #[serde(default, skip_serializing_if = "is_default")]
        unclear: bool,
        /// It had been where it goes by itself for long: its failed attempts of before count no more.
        #[serde(default, skip_serializing_if = "is_default")]
        renewed: bool,
    },
    /// The content changed, or a return found it running inside a daemon that died: its state is not known.
    Unknown {
        cob: CobId,
        /// It rests on something from now on, and rested on nothing before.
        #[serde(default, skip_serializing_if = "is_default")]
        from_nothing: bool,
    },
    /// An operator's word.
    Ordered(OrderRecord),
    /// Told for the history only.
    Note { cob: CobId, note: Note },
    /// A change object of this host is final in the switch under way.
    Final { cob: CobId },
    /// Other hosts have told that these of theirs are final in it.
    Told { cobs: Vec<CobId> },
    /// So many switches are known to have been left before their end: what was told before counts no more.
    Turn(u64),
    /// For the first time since the generation was activated, every change object is where it should be.
    Settled(GenerationNumber),
    /// A step of the switch that the host is in.
    Switch(SwitchRecord),
    /// A promise that was asked back is waited for no longer, as its holder's host is out of reach: it is broken. The
    /// holder is told until it has given it back.
    Lapsed { cob: CobId, from: CobId, number: Number },
}

/// An operator's word, as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are named after what they hold")]
pub enum OrderRecord {
    /// No new transition starts.
    Pause,
    /// They may start again.
    Resume,
    /// A change object is tried again.
    Retry(CobId),
    /// A host's locks were freed; its words under this incarnation are refused from now on.
    Fence(HostName, Option<Incarnation>),
    /// A generation was fetched and verified: it changes nothing.
    Prepare(GenerationNumber),
    /// A change object counts as final in the switch under way.
    DeclareFinal(CobId),
    /// The switch to this generation was cancelled.
    Cancel(GenerationNumber),
    /// A generation that was fetched is forgotten: it changes nothing.
    CallOff(GenerationNumber),
    /// At most so many transitions at a time; none: as many as can go.
    Limit(Option<u32>),
    /// The `go` just said is for these hosts alone, and is not to be carried to others; none: for everybody.
    Only(Vec<HostName>),
    /// A budget has so many tokens and no more; none: as many as the model gives it.
    LimitBudget(CobId, Option<u32>),
    /// What was cancelled leads elsewhere: nothing is held for it any longer.
    Unhold,
    /// A conflict about files is decided, in one of them or in all; in which way, in words.
    Resolve { cob: CobId, path: Option<String>, choice: String },
    /// A file is put back as it was in this version.
    Restore { cob: CobId, path: String, version: String },
    /// A budget has so many tokens until the next generation is activated, whatever the model gives it; none: as many as
    /// that.
    RaiseBudget(CobId, Option<u32>),
    /// A change object is stopped.
    Stop(CobId, Stopped),
    /// It is stopped no more: it was started, or it was to be stopped once and has been.
    Start(CobId),
    /// The host is rebooted: it changes nothing.
    Reboot,
}

/// What is written for people alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are named after what they hold")]
pub enum Note {
    /// Asked for a lock.
    Requested { of: CobId, set: Vec<StateName> },
    /// Gave a lock back.
    Released { of: CobId },
    /// Got a lock.
    Holds { of: CobId, state: StateName },
    /// Asked a holder to give back.
    Recalled { from: CobId },
    /// Told a holder that the promise is broken.
    Lapsed { from: CobId },
    /// A circle was named.
    Stuck { circle: Vec<CobId>, more: bool },
    /// A chase was named.
    Chase { of: CobId, times: u32 },
    /// A flap was named.
    Flap { state: StateName, times: u32, because_of: Option<CobId> },
    /// It goes by rank from now on.
    Ordered,
    /// A budget has given a token beyond its number: those who have one can't be back before this one moves.
    Overdrawn { by: CobId, at_most: u32 },
    /// Was told that a promise which it held is broken.
    Broken { of: CobId },
}

impl Body {
    /// Whether it must be on the disk before anything of its turn is sent or started. The others
    /// are written with the next that must, or a little later.
    #[must_use]
    pub fn must_be_durable(&self) -> bool {
        match self {
            Body::Granted { cob, to, .. } => cob.host_str() != to.host_str(),
            Body::Snapshot(_)
            | Body::Life(_)
            | Body::Go(_)
            | Body::Activated(_)
            | Body::Gone { .. }
            | Body::Begun { .. }
            | Body::Ended { .. }
            | Body::Ordered(_)
            | Body::Final { .. }
            | Body::Turn(_)
            | Body::Lapsed { .. } => true,
            // Who asked asks again.
            Body::Switch(step) => !matches!(step, SwitchRecord::Reopened { .. }),
            // A state that a check found can be found again; a promise that is not known to be back is asked for, and so
            // is what others have told.
            Body::Checked { .. }
            | Body::Unknown { .. }
            | Body::Returned { .. }
            | Body::Note { .. }
            | Body::Settled(_)
            | Body::Told { .. } => false,
        }
    }
}

/// What the records add up to: all that a daemon must know when it returns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Durable {
    /// The last life.
    pub life: Option<Incarnation>,
    /// The highest Lamport number seen.
    pub lamport: u64,
    /// The active generation.
    pub active: GenerationNumber,
    /// The generation to which `go` was said, when it is not active yet.
    pub going_to: Option<GenerationNumber>,
    /// No new transition starts.
    pub paused: bool,
    /// Per change object of this host. There are many, and the nodes of a map that is filled in order are half empty: what stands in
    /// them is small.
    pub cobs: BTreeMap<CobId, Box<DurableCob>>,
    /// Change objects that have left, and their last state.
    pub gone: BTreeMap<CobId, StateName>,
    /// Fenced hosts, with the incarnation that is refused.
    pub fenced: BTreeMap<HostName, Option<Incarnation>>,
    /// Of those that have left, the pre-remove states of those that were kept in another one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept_from: BTreeMap<CobId, StateName>,
    /// So many switches are known to have been left before their end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub turn: u64,
    /// The highest generation that this host has ever gone to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub highest: GenerationNumber,
    /// When `go` was said for the switch under way.
    #[serde(default, skip_serializing_if = "is_default")]
    pub going_since: Time,
    /// Change objects of this host that are final in it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub finals: BTreeSet<CobId>,
    /// What other hosts have told of theirs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub told: BTreeSet<CobId>,
    /// What a person has declared final.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub declared: BTreeSet<CobId>,
    /// The switch to this generation was cancelled, and the host stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<GenerationNumber>,
    /// At most so many transitions at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The active generation has converged once since it was activated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub settled: bool,
    /// The `go` that this host has heard is for these alone; none: for everybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<HostName>,
    /// The switch that the host is in, and what was withdrawn.
    #[serde(default, skip_serializing_if = "Switching::is_new")]
    pub switching: Switching,
    /// Budgets that have so many tokens and no more: an operator's limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limited: BTreeMap<CobId, u32>,
    /// Budgets to which an operator gives so many tokens until the next generation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub raised: BTreeMap<CobId, u32>,
    /// Change objects that an operator has stopped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stopped: BTreeMap<CobId, Stopped>,
    /// All whose failed attempts count, and perhaps some more: the next generation begins anew with them. Follows from
    /// `cobs`.
    #[serde(skip)]
    pub(crate) failing: BTreeSet<CobId>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The durable part of one change object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DurableCob {
    /// None: unknown.
    pub state: Option<StateName>,
    /// It has given up.
    pub failed: bool,
    /// Failed attempts in a row.
    pub failures: u32,
    /// What it exports. Most export nothing.
    pub values: SmallMap<String, String>,
    /// The content that its state was last made with.
    pub applied: Option<Fingerprint>,
    /// What it rested on then.
    pub rests_on: Option<Fingerprint>,
    /// The action under way.
    pub action: Option<Box<Begun>>,
    /// Promises out, by dependent. Most have one or none.
    pub grants: Promises,
    /// When its state last changed.
    pub since: Time,
    /// The token of its budget under which it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Box<HeldLock>>,
    /// Promises that were broken because their holders were out of reach, by dependent: these have yet to hear it.
    #[serde(default, skip_serializing_if = "Promises::is_empty")]
    pub lapsed: Promises,
    /// Checks in a row that could not tell the state, since it was known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unclear: u32,
    /// The attempt that failed last, while failed attempts count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Box<Missed>>,
}

/// An attempt that has failed: who comes back with it can say why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// The state left.
    pub from: StateName,
    /// The state that was to be entered.
    pub to: StateName,
    /// From 1.
    pub attempt: u32,
    /// What was said of its end.
    pub error: String,
}

impl DurableCob {
    /// What it failed at counts no more.
    fn begin_anew(&mut self) {
        (self.failed, self.failures, self.unclear, self.missed) = (false, 0, 0, None);
    }
}

impl Durable {
    /// Adds one record. Total: a record that fits nothing changes nothing.
    pub fn apply(&mut self, record: &Record) {
        self.lamport = self.lamport.max(record.lamport);
        match &record.body {
            Body::Snapshot(all) => {
                *self = (**all).clone();
                // The version before did not write it.
                self.highest = self.highest.max(self.active).max(self.going_to.unwrap_or_default());
                self.find_failing();
            }
            Body::Life(life) => self.life = Some(*life),
            Body::Go(generation) => {
                self.going_to = Some(*generation);
                self.held = None;
                self.only.clear();
                self.highest = self.highest.max(*generation);
                self.going_since = record.at;
                self.forget_facts();
            }
            Body::Activated(generation) => {
                self.raised.clear();
                self.stopped.clear();
                self.active = *generation;
                self.going_to = None;
                self.settled = false;
                self.highest = self.highest.max(*generation);
                self.forget_facts();
                for cob in std::mem::take(&mut self.failing) {
                    self.cobs.entry(cob).and_modify(|c| c.begin_anew());
                }
            }
            Body::Final { cob } => _ = self.finals.insert(cob.clone()),
            Body::Told { cobs } => self.told.extend(cobs.iter().cloned()),
            Body::Turn(turn) => {
                self.turn = *turn;
                self.told.clear();
            }
            Body::Gone { cob, state, kept_from } => {
                // Who counts on it as it left goes on doing so.
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
                // One that was given before is written again when its holder fails.
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
                self.held = None;
            }
            Body::Ordered(OrderRecord::Cancel(generation)) => self.held = Some(*generation),
            Body::Ordered(OrderRecord::Unhold) => self.held = None,
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
            Body::Ordered(OrderRecord::DeclareFinal(cob)) => _ = self.declared.insert(cob.clone()),
            Body::Settled(generation) => self.settled |= self.active == *generation,
            Body::Switch(step) => self.switching.apply(step, record.at),
            // Of files there is nothing on record.
            Body::Ordered(
                OrderRecord::Prepare(_)
                | OrderRecord::CallOff(_)
                | OrderRecord::Reboot
                | OrderRecord::Resolve { .. }
                | OrderRecord::Restore { .. },
            )
            | Body::Note { .. } => {}
        }
    }

    /// The switch is over, or left.
    fn forget_facts(&mut self) {
        self.finals.clear();
        self.told.clear();
        self.declared.clear();
    }

    /// Adds up who fails, where `cobs` has not come by records.
    fn find_failing(&mut self) {
        let fails = self.cobs.iter().filter(|(_, c)| c.failed || c.failures > 0 || c.unclear > 0);
        self.failing = fails.map(|(id, _)| id.clone()).collect();
    }

    fn cob(&mut self, id: &CobId) -> &mut DurableCob {
        self.cobs.entry(id.clone()).or_default()
    }
}
