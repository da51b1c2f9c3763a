//! The state that the records of a host add up to.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::cob::Fingerprint;
use cob_types::message::Values;
use cob_types::status::Stopped;
use cob_types::{CobId, GenerationNumber, HostName, Incarnation, StateName};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::grants::Grants;
use crate::record::{Begun, Body, GrantOut, GrantRecord, LockRecord, OrderRecord, Record, is_default};
use crate::switch::Switching;
use crate::time::Time;

/// The sum of the records: the knowledge that a daemon needs after a restart.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Durable {
    /// The last incarnation.
    #[serde(rename = "life")]
    #[serialize_always]
    pub incarnation: Option<Incarnation>,
    /// The highest Lamport number seen.
    pub lamport: u64,
    /// The active generation.
    pub active: GenerationNumber,
    /// The generation of the pending switch.
    #[serde(rename = "going_to")]
    #[serialize_always]
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
    #[serde(rename = "held")]
    pub cancelled: Option<GenerationNumber>,
    /// The most parallel transitions.
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

/// The durable part of a change object.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DurableCob {
    /// `None`: unknown.
    #[serialize_always]
    pub state: Option<StateName>,
    /// It has failed.
    pub failed: bool,
    /// Consecutive failed attempts.
    pub failures: u32,
    /// Its exported values. Most change objects export no values.
    pub values: Values,
    /// The content with which its state was last made.
    #[serialize_always]
    pub applied: Option<Fingerprint>,
    /// Its dependencies at that time.
    #[serialize_always]
    pub rests_on: Option<Fingerprint>,
    /// The action under way.
    #[serialize_always]
    pub action: Option<Box<Begun>>,
    /// Grants out, by dependent. Most change objects have at most a single grant.
    pub grants: Grants,
    /// When its state last changed.
    pub since: Time,
    /// The token of its budget under which it left its state.
    pub token: Option<Box<LockRecord>>,
    /// Grants invalidated while their holders were out of reach, by dependent: the holders do not know it yet.
    #[serde(default, skip_serializing_if = "Grants::is_empty")]
    #[serde(rename = "lapsed")]
    pub invalidated: Grants,
    /// Consecutive checks that could not determine the state, since it was known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unclear: u32,
    /// The last failed attempt, while failed attempts count.
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
    /// A person has to decide a conflict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
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
                let DurableCob { grants, invalidated, .. } = *self.cobs.remove(cob).unwrap_or_default();
                if !grants.is_empty() || !invalidated.is_empty() {
                    self.cobs
                        .insert(cob.clone(), Box::new(DurableCob { grants, invalidated, ..DurableCob::default() }));
                }
                self.gone.insert(cob.clone(), state.clone());
                match kept_from {
                    Some(off) => _ = self.kept_from.insert(cob.clone(), off.clone()),
                    None => _ = self.kept_from.remove(cob),
                }
            }
            Body::Granted { cob, to, grant } => {
                let c = self.cob(cob);
                c.invalidated.remove(to);
                // An earlier grant is recorded again when its holder fails.
                let before = c.grants.get(to).map(GrantRecord::get).filter(|g| g.number == grant.number);
                let at = before.map_or(record.at, |g| g.at);
                c.grants.insert(to.clone(), GrantRecord::of(&GrantOut { at, ..grant.clone() }));
            }
            Body::Returned { cob, from, number } => {
                let c = self.cob(cob);
                for promises in [&mut c.grants, &mut c.invalidated] {
                    if promises.get(from).is_some_and(|g| g.number() <= *number) {
                        promises.remove(from);
                    }
                }
                if self.gone.contains_key(cob) && self.cobs.get(cob).is_some_and(|c| **c == DurableCob::default()) {
                    self.cobs.remove(cob);
                }
            }
            Body::Invalidated { cob, from, number } => {
                let c = self.cob(cob);
                if let Some(grant) = c.grants.remove(from).filter(|g| g.number() == *number) {
                    c.invalidated.insert(from.clone(), grant);
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
                conflict,
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
                    let (from, to, error) = (from.clone(), to.clone(), error.clone());
                    Box::new(Missed { from, to, attempt: *attempt, error, conflict: *conflict })
                });
                c.values = values.clone();
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
                c.values = values.clone();
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
                    c.invalidated.retain(|asker| asker.host_str() != host.as_str());
                }
            }
            Body::Ordered(OrderRecord::MarkDeparted(cob)) => _ = self.declared.insert(cob.clone()),
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
