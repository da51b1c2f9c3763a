//! The switch of a host, apart from the work of its change objects: begun, converged, rolled back, stopped.
//!
//! ```text
//!   go ──> under way ──────────── converged, guard confirmed ──> settled
//!             │  ^───────── a host under way in the switch asks ────────────┤
//!             │  a change object fails, or the guard runs out               │
//!             └───────── withdrawn <── another host, an operator ──────────┘
//!                            │ rolls back
//!                            └──> under way (back) ── converged ──> settled
//!                                       └─ fails ──> stopped: an operator must act
//! ```
//!
//! Every change is a [`SwitchRecord`]; only [`Switching::apply`] interprets them. [`Switching::next`] and the other
//! questions derive the next step; the daemon performs it.
//!
//! Rules: a failure after the host has converged (`Settled`) is no failure of the switch, unless a host that is still
//! under way asked a change object here to move: this reopens the switch until the host has converged again. A host
//! switches to a generation that was rolled back (`withdrawn`) only in a later attempt (`round`), which an operator's
//! order begins. A rollback is never rolled back: it stops on a failure. So each rollback moves a host down once. A
//! rollback that cannot start stops as well, and an operator's further order retries it.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::generation::RollbackTarget;
use cob_types::message::UnderWay;
use cob_types::switch::{OnFailure, SwitchPolicy};
use cob_types::{BlobHash, CobId, GenerationNumber, HostName, Manifest, StateName};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::guard::Guard;
use crate::time::{Span, Time};

/// How long a host must be converged to count as settled: restarts on other hosts in the switch may still need it.
pub const SETTLED_AFTER: Span = Span::secs(3);
/// The most rolled-back generations that are remembered: the newest.
const WITHDRAWN_MAX: usize = 64;
/// The most irreversible transitions of a switch that are remembered.
const MADE_MAX: usize = 1000;

/// The terms of an order to switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Terms {
    /// The failure policy, and the guard.
    pub policy: SwitchPolicy,
    /// The number of the attempt: how often the host switched to the generation again after a rollback.
    pub round: u32,
    /// The switch concerns this host only and is not announced.
    pub alone: bool,
}

/// A durable step of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the field names describe their content")]
pub enum SwitchRecord {
    /// The host starts a switch. Written before the `Go` of the first generation on the way.
    Begun {
        /// The previously active generation.
        from: GenerationNumber,
        to: GenerationNumber,
        /// On a rollback: the abandoned generation.
        left: Option<GenerationNumber>,
        terms: Terms,
        /// Under a guard: the hosts that answered before. On a rollback by the guard of this host: the hosts that it
        /// had to reach.
        peers: BTreeSet<HostName>,
    },
    /// Changed terms of the current switch: by an operator's order, or a later attempt.
    Reterm(Terms),
    /// The present guard.
    Guarded(Guard),
    /// The guard is satisfied.
    Confirmed,
    /// An irreversible transition was made.
    Made { cob: CobId, from: StateName, to: StateName },
    /// This host has converged: a later failure is no failure of the switch.
    Settled,
    /// The generation is rolled back on this host.
    Withdrawn(GenerationNumber, Withdrawal),
    /// The rollback cannot be completed; an operator must act.
    Stopped { why: String },
    /// A host that is still under way in the switch sent a request that makes a change object of this host move.
    Reopened { by: HostName },
    /// All removed hosts at the start of a switch, including earlier removed hosts that still need messages.
    Parted(BTreeMap<HostName, RemovedHost>),
    /// Some of these hosts are drained.
    Through(BTreeSet<HostName>),
    /// Whether the switch was cancelled: then it is not announced, until the cancel is revoked.
    Quiet(bool),
    /// The order of a switch waits for maintenance windows; `None` drops the order.
    Waiting(Option<Box<Waiting>>),
    /// The switch to this generation starts outside the maintenance windows, as its order says.
    IgnoresWindows(GenerationNumber),
}

/// The order of a switch that waits until the maintenance windows of the hosts that it changes are open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The generation.
    pub generation: GenerationNumber,
    /// The hash of its manifest, where it is known.
    pub manifest: Option<BlobHash>,
    /// The origin of the order.
    pub cause: Cause,
    /// The failure policy, instead of the policy of the generation.
    pub on_failure: Option<OnFailure>,
    /// The guard in milliseconds, instead of the guard of the generation; zero: no guard.
    pub guard_ms: Option<u64>,
    /// Other hosts are not told.
    pub alone: bool,
    /// The hosts of the order; empty: all hosts.
    pub only: Vec<HostName>,
    /// The newest generation that the author of the order knew of.
    pub seen: Option<GenerationNumber>,
    /// The author of the order.
    pub by: Option<String>,
    /// When the order was taken.
    pub since: Time,
}

/// The origin of an order that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// An operator.
    Ordered,
    /// The host follows its depot.
    Followed,
    /// A schedule.
    Scheduled,
}

/// A removed host: named by an earlier generation of this host, but not by its present or pending generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedHost {
    /// The last generation of this host that names it.
    pub generation: GenerationNumber,
    /// It has announced that it is drained and needs no further messages.
    pub through: bool,
}

/// Why a generation was abandoned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Withdrawal {
    /// The generation that the rollback leads to.
    pub to: GenerationNumber,
    /// The attempt that it ends.
    pub round: u32,
    /// Whether an operator ordered it.
    pub ordered: bool,
    /// The reason, for people.
    pub why: String,
    /// The order was a cancel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// Another host has reported it, and is named in the reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heard: bool,
}

/// The stage of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Under way.
    UnderWay,
    /// This host has converged in it.
    Settled,
    /// The rollback has failed.
    Stopped,
}

/// The current or last switch of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// The previously active generation.
    pub from: GenerationNumber,
    /// The target generation, perhaps by way of others.
    pub to: GenerationNumber,
    /// On a rollback: the abandoned generation.
    pub left: Option<GenerationNumber>,
    /// The terms of the order.
    pub terms: Terms,
    /// When it began.
    pub at: Time,
    /// Its stage.
    pub stage: Stage,
    /// Why it stopped.
    pub why: String,
    /// Its irreversible transitions; on a rollback, the abandoned switch's.
    pub made: Vec<(CobId, StateName, StateName)>,
    /// The hosts that answered before it began; on a rollback by the guard of this host, the hosts that it had to
    /// reach.
    pub peers: BTreeSet<HostName>,
    /// The guard, from the activation until it is satisfied.
    pub guard: Option<Guard>,
    /// The guard was satisfied, or the switch has no guard.
    pub confirmed: bool,
    /// The switch was cancelled and is not announced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
}

/// The host's knowledge of switches.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switching {
    /// The current or last switch.
    #[serialize_always]
    pub current: Option<Current>,
    /// Generations that were rolled back and not switched to again.
    pub withdrawn: BTreeMap<GenerationNumber, Withdrawal>,
    /// Rolled-back generations to which a later order rolled back from a newer generation: they are valid again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub regained: BTreeSet<GenerationNumber>,
    /// Removed hosts that may still need messages from this host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parted: BTreeMap<HostName, RemovedHost>,
    /// Removed hosts that have announced that they are drained, with the last generation that names each. Kept for
    /// reports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drained: BTreeMap<HostName, GenerationNumber>,
    /// The order that waits for maintenance windows.
    pub waiting: Option<Box<Waiting>>,
    /// The generation whose waiting order was cancelled last: a host that follows its depot does not follow to it.
    pub dropped: Option<GenerationNumber>,
}

/// The most drained hosts that are remembered.
const DRAINED: usize = 1000;

/// The visible state of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The active generation.
    pub active: GenerationNumber,
    /// The generation of the pending switch.
    pub going: Option<GenerationNumber>,
    /// All change objects have converged under the active generation.
    pub converged: bool,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Record that the host has converged.
    Settle,
    /// Abandon a generation that was rolled back.
    GoBack {
        /// The abandoned generation.
        left: GenerationNumber,
        /// The target of the rollback.
        to: GenerationNumber,
    },
    /// An intermediate generation is active: continue to the target.
    GoOn(GenerationNumber),
    /// The target generation is active, and its guard begins.
    Guard(Guard),
}

/// The consequence of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// The generation is rolled back, if there is a rollback target.
    Withdraw,
    /// The rollback stops.
    Stop,
    /// No consequence: the failure is not part of a switch, or the policy is to stay.
    Hold,
}

impl Current {
    /// The identity of the switch between hosts.
    fn name(&self) -> UnderWay {
        UnderWay { to: self.to, left: self.left, round: self.terms.round }
    }

    /// Whether the switch is under way and may pass through a generation.
    fn leads_over(&self, step: GenerationNumber) -> bool {
        self.stage == Stage::UnderWay && (self.from..self.to).contains(&step)
    }
}

impl Switching {
    /// Whether no switch is known.
    #[must_use]
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// Applies a record. A record that does not fit has no effect.
    pub fn apply(&mut self, record: &SwitchRecord, at: Time) {
        match record {
            SwitchRecord::Begun { from, to, left, terms, peers } => {
                let (from, to, left, terms) = (*from, *to, *left, *terms);
                // A rollback, and a switch that leads as far, replace an order that waits.
                self.waiting.take_if(|waiting| left.is_some() || waiting.generation <= to);
                if left.is_none() {
                    self.withdrawn.remove(&to);
                    self.regained.remove(&to);
                } else if self.withdrawn.contains_key(&to) {
                    self.regained.insert(to);
                }
                let before = self.current.take().filter(|c| left == Some(c.to) && c.left.is_none());
                let made = before.map(|c| c.made).unwrap_or_default();
                let confirmed = left.is_some() || terms.policy.guard_ms.is_none();
                self.current = Some(Current {
                    from,
                    to,
                    left,
                    terms,
                    at,
                    stage: Stage::UnderWay,
                    why: String::new(),
                    made,
                    peers: peers.clone(),
                    guard: None,
                    confirmed,
                    quiet: false,
                });
            }
            SwitchRecord::Withdrawn(generation, withdrawal) => {
                // A further attempt of the rollback.
                self.with(|c| {
                    if c.to == *generation && c.left.is_none() && c.stage == Stage::Stopped {
                        c.stage = Stage::UnderWay;
                        c.why.clear();
                    }
                });
                self.withdrawn.insert(*generation, withdrawal.clone());
                self.regained.remove(generation);
                while self.withdrawn.len() > WITHDRAWN_MAX
                    && let Some((forgotten, _)) = self.withdrawn.pop_first()
                {
                    self.regained.remove(&forgotten);
                }
            }
            SwitchRecord::Reterm(terms) => self.with(|c| c.terms = *terms),
            SwitchRecord::Guarded(guard) => self.with(|c| c.guard = Some(*guard)),
            SwitchRecord::Confirmed => self.with(|c| {
                c.guard = None;
                c.confirmed = true;
            }),
            SwitchRecord::Made { cob, from, to } => self.with(|c| {
                let made = (cob.clone(), from.clone(), to.clone());
                if c.left.is_none() && c.made.len() < MADE_MAX && !c.made.contains(&made) {
                    c.made.push(made);
                }
            }),
            SwitchRecord::Settled => self.with(|c| {
                c.stage = Stage::Settled;
                c.why.clear();
            }),
            SwitchRecord::Stopped { why } => self.with(|c| {
                c.stage = Stage::Stopped;
                c.why.clone_from(why);
            }),
            SwitchRecord::Reopened { .. } => self.with(|c| c.stage = Stage::UnderWay),
            SwitchRecord::Parted(parted) => self.parted.clone_from(parted),
            SwitchRecord::Through(hosts) => {
                let through = self.parted.iter_mut().filter(|(host, _)| hosts.contains(*host));
                for (host, parted) in through {
                    parted.through = true;
                    if self.drained.len() < DRAINED || self.drained.contains_key(host) {
                        self.drained.insert(host.clone(), parted.generation);
                    }
                }
            }
            SwitchRecord::Quiet(quiet) => self.with(|c| c.quiet = *quiet),
            SwitchRecord::Waiting(waiting) => {
                let before = std::mem::replace(&mut self.waiting, waiting.clone());
                self.dropped = before.filter(|_| waiting.is_none()).map(|before| before.generation);
            }
            SwitchRecord::IgnoresWindows(_) => {}
        }
    }

    fn with(&mut self, change: impl FnOnce(&mut Current)) {
        if let Some(current) = &mut self.current {
            change(current);
        }
    }

    /// Whether this host had no generation before a switch.
    #[must_use]
    pub fn came_from_nothing(&self, to: GenerationNumber) -> bool {
        let nothing = GenerationNumber(0);
        self.current.as_ref().is_some_and(|c| c.to == to && c.left.is_none() && c.from == nothing)
    }

    /// The next step, if any.
    #[must_use]
    pub fn next(&self, seen: Seen) -> Option<Act> {
        let current = self.current.as_ref()?;
        if let Some(withdrawal) = self.withdrawal_of(current) {
            return Some(Act::GoBack { left: current.to, to: withdrawal.to });
        }
        if current.stage == Stage::Settled || seen.going.is_some() {
            return None;
        }
        if seen.active != current.to {
            // Off the way no step leads on: another switch has begun since. The start of the way counts too: the host
            // is there if the order to continue from a step came at the moment when that step became active.
            return self.beyond(seen.active).map(Act::GoOn);
        }
        match (current.confirmed, current.guard, current.terms.policy.guard_ms) {
            (false, None, Some(ms)) => return Some(Act::Guard(Guard::new(ms))),
            (false, _, _) => return None,
            (true, _, _) => {}
        }
        // A rollback that could not start stays visible, even if the generation to abandon has converged.
        let is_to_be_left = current.left.is_none() && self.is_withdrawn(current.to, current.terms.round);
        (seen.converged && !is_to_be_left).then_some(Act::Settle)
    }

    /// The target of the switch beyond a generation on its way: messages about the switch refer to the target.
    #[must_use]
    pub fn beyond(&self, step: GenerationNumber) -> Option<GenerationNumber> {
        let leads_on = |c: &&Current| c.leads_over(step) && self.withdrawal_of(c).is_none();
        self.current.as_ref().filter(leads_on).map(|c| c.to)
    }

    /// The rollback of the target generation, unless the switch is a rollback itself.
    fn withdrawal_of(&self, current: &Current) -> Option<&Withdrawal> {
        let of = self.withdrawn.get(&current.to)?;
        (current.left.is_none() && of.round >= current.terms.round && current.stage != Stage::Stopped).then_some(of)
    }

    /// The consequence if a change object of this host fails at that time.
    #[must_use]
    pub fn on_failure(&self, at: Time) -> Failing {
        match &self.current {
            Some(c) if c.stage != Stage::UnderWay || at < c.at || self.withdrawal_of(c).is_some() => Failing::Hold,
            Some(c) if c.left.is_some() => Failing::Stop,
            Some(c) if c.terms.policy.on_failure == OnFailure::Rollback => Failing::Withdraw,
            Some(_) | None => Failing::Hold,
        }
    }

    /// The current switch, unless this host has converged in it.
    #[must_use]
    pub fn under_way(&self) -> Option<UnderWay> {
        let current = self.current.as_ref()?;
        let goes = current.stage == Stage::UnderWay && self.withdrawal_of(current).is_none();
        goes.then(|| current.name())
    }

    /// Whether the current or last switch is announced: not if it was rolled back, was cancelled, or is for this host
    /// only.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let told = |c: &Current| c.left.is_none() && !c.terms.alone && !c.quiet;
        self.current.as_ref().is_some_and(|c| told(c) && !self.is_withdrawn(c.to, c.terms.round))
    }

    /// Whether a cancel of a switch to this generation, which may be a step of the way, concerns the current switch.
    #[must_use]
    pub fn leads_over(&self, generation: GenerationNumber) -> bool {
        self.current.as_ref().is_some_and(|c| c.left.is_none() && (c.to == generation || c.leads_over(generation)))
    }

    /// Whether this host has converged in a switch in which another host, still under way, sends it a request.
    #[must_use]
    pub fn has_settled_in(&self, switch: UnderWay) -> bool {
        let settled = |c: &Current| c.stage == Stage::Settled && c.name() == switch && self.withdrawal_of(c).is_none();
        self.current.as_ref().is_some_and(settled)
    }

    /// Whether this host follows another host's rollback of a generation.
    #[must_use]
    pub fn follows(&self, generation: GenerationNumber, round: u32, ordered: bool) -> bool {
        self.current.as_ref().is_some_and(|c| {
            c.to == generation
                && c.left.is_none()
                && round >= c.terms.round
                && self.withdrawal_of(c).is_none()
                && !self.is_withdrawn(generation, round)
                && (ordered || c.terms.policy.on_failure == OnFailure::Rollback)
        })
    }

    /// Whether a later order than the rollback of this attempt makes this host switch to a generation.
    #[must_use]
    pub fn was_ordered_since(&self, generation: GenerationNumber, round: u32) -> bool {
        let since = |c: &Current| c.to == generation && c.left.is_none() && round < c.terms.round;
        self.current.as_ref().is_some_and(|c| since(c) && self.withdrawal_of(c).is_none())
    }

    /// Whether this host is rolling back a generation from this attempt.
    #[must_use]
    pub fn is_rolling_back_from(&self, generation: GenerationNumber, round: u32) -> bool {
        let leaves = |c: &Current| c.left == Some(generation) && c.stage == Stage::UnderWay;
        let sets_out = |c: &Current| c.to == generation && self.withdrawal_of(c).is_some();
        self.is_withdrawn(generation, round) && self.current.as_ref().is_some_and(|c| leaves(c) || sets_out(c))
    }

    /// Whether a generation cannot be a rollback target: it was rolled back, and no order has led to it since.
    #[must_use]
    pub fn is_left(&self, generation: GenerationNumber) -> bool {
        self.withdrawn.contains_key(&generation) && !self.regained.contains(&generation)
    }

    /// Whether a generation was rolled back in this attempt or a later one.
    #[must_use]
    pub fn is_withdrawn(&self, generation: GenerationNumber, round: u32) -> bool {
        self.withdrawn.get(&generation).is_some_and(|w| w.round >= round)
    }

    /// The attempt number of an order for a generation.
    #[must_use]
    pub fn round_of_order(&self, generation: GenerationNumber) -> u32 {
        let again = self.withdrawn.get(&generation).map(|w| w.round.saturating_add(1));
        let same = self.current.as_ref().filter(|c| c.to == generation && c.left.is_none()).map(|c| c.terms.round);
        again.or(same).unwrap_or(0)
    }

    /// The record of the removed hosts when this host switches from these generations to another; `None`: already
    /// recorded. Earlier removed hosts remain if `stays` picks them.
    ///
    /// If `to` lacks this host itself, all hosts of `from` are recorded; hosts new in `to` do not concern it.
    #[must_use]
    pub fn parts_with(
        &self,
        me: &HostName,
        from: &[&Manifest],
        to: &Manifest,
        stays: impl Fn(&HostName, RemovedHost) -> bool,
    ) -> Option<SwitchRecord> {
        let mut parted = self.parted.clone();
        parted.retain(|host, of| stays(host, *of));
        for manifest in from.iter().filter(|m| m.hosts.contains_key(me)) {
            let of = RemovedHost { generation: manifest.generation, through: false };
            parted.extend(manifest.hosts.keys().map(|host| (host.clone(), of)));
        }
        if to.hosts.contains_key(me) {
            parted.retain(|host, _| !to.hosts.contains_key(host));
        }
        (parted != self.parted).then_some(SwitchRecord::Parted(parted))
    }

    /// Whether a removed host takes part in the current or last switch: the switch removed it, and it is not drained.
    #[must_use]
    pub fn takes_part(&self, host: &HostName) -> bool {
        let from = self.current.as_ref().map(|c| c.from);
        self.parted.get(host).is_some_and(|of| !of.through && from.is_some_and(|from| of.generation >= from))
    }

    /// The rollback that the host has followed, while it is in the target generation of that rollback.
    #[must_use]
    pub fn returned(&self) -> Option<(GenerationNumber, &Withdrawal)> {
        let left = self.current.as_ref()?.left?;
        Some((left, self.withdrawn.get(&left)?))
    }
}

/// The rollback target: the generation from which the host has come, if the manifest names it, else the newest that the
/// manifest names. Never a generation that was rolled back or has different content here. The empty generation is the
/// target only if the host has come from there and no other target is left: others may have had an installation.
#[must_use]
pub fn rollback_target(
    manifest: &Manifest,
    came_from: Option<GenerationNumber>,
    is_none: impl Fn(&RollbackTarget) -> bool,
) -> Option<GenerationNumber> {
    let ways = manifest.back.iter().filter(|way| way.generation < manifest.generation && !is_none(way));
    let named: BTreeSet<_> = ways.map(|way| way.generation).collect();
    let nothing = GenerationNumber(0);
    let newest = || named.last().copied().filter(|newest| *newest != nothing || came_from == Some(nothing));
    came_from.filter(|from| *from != nothing && named.contains(from)).or_else(newest)
}

#[cfg(test)]
#[path = "switch_test.rs"]
mod tests;
