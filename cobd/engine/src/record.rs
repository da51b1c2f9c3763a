//! Durable entries.
//!
//! The journal is an intent log. Only [`Durable::apply`] interprets it: recovery folds records through it, and the
//! simulator compares its result with the running engine.

use std::collections::BTreeMap;
use std::fmt;

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::status::Stopped;
use cob_types::{CobId, GenerationNumber, HostName, Incarnation, Number, Rank, StateName, codec};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_with::skip_serializing_none;

pub use durable::{Durable, DurableCob, Missed};

use crate::switch::SwitchRecord;
use crate::time::Time;

mod durable;

/// An entry.
#[skip_serializing_none]
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
    pub by: Option<String>,
}

/// A lock that a grant or action relies on.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRecord {
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
    pub rests_on: Vec<LockRecord>,
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
pub struct GrantRecord(Box<[u8]>);

impl GrantRecord {
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

impl fmt::Debug for GrantRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Serialize for GrantRecord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(to)
    }
}

impl<'de> Deserialize<'de> for GrantRecord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        GrantOut::deserialize(from).map(|grant| Self::of(&grant))
    }
}

/// An action that has begun.
#[skip_serializing_none]
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
    pub locks: Vec<LockRecord>,
    /// The token of its budget that it has taken to leave its state, and keeps until it is back.
    pub token: Option<Box<LockRecord>>,
    /// The generation by which it runs; zero: written by an older version.
    #[serde(default, skip_serializing_if = "is_default")]
    pub generation: GenerationNumber,
}

/// The content of an entry. `cob` is always the change object of this host that it is about.
#[skip_serializing_none]
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
    Removed { cob: CobId, state: StateName, kept_from: Option<StateName> },
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
        #[serialize_always]
        ok: Option<bool>,
        /// The present state; `None`: unknown.
        #[serialize_always]
        state: Option<StateName>,
        /// Consecutive failed attempts.
        failures: u32,
        /// It has failed.
        failed: bool,
        values: Values,
        /// The content of the transition.
        #[serialize_always]
        applied: Option<Fingerprint>,
        /// The dependencies at that time.
        #[serialize_always]
        rests_on: Option<Fingerprint>,
        /// When the action itself began and ended.
        span: (u64, u64),
        error: String,
        /// The token of its budget that it still keeps: it is not back yet.
        token: Option<Box<LockRecord>>,
        /// A person has to decide a conflict.
        #[serde(default, skip_serializing_if = "is_default")]
        conflict: bool,
    },
    /// A check has ended.
    Checked {
        cob: CobId,
        /// `None`: the check could not determine it.
        #[serialize_always]
        state: Option<StateName>,
        /// The recorded state was another.
        drift: bool,
        failed: bool,
        values: Values,
        /// The dependencies of the running process, if known.
        #[serialize_always]
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
    #[serde(rename = "Lapsed")]
    Invalidated { cob: CobId, from: CobId, number: Number },
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
    MarkDeparted(CobId),
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
    #[serde(rename = "Lapsed")]
    Invalidated { from: CobId },
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
    /// The change object that may have failed: its last attempt did, or its state is not known.
    #[must_use]
    pub fn may_have_failed(&self) -> Option<&CobId> {
        if let Self::Ended { cob, failed: true, .. }
        | Self::Checked { cob, state: None, .. }
        | Self::Checked { cob, unclear: true, .. } = self
        {
            Some(cob)
        } else {
            None
        }
    }

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
            | Body::Invalidated { .. } => true,
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

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
