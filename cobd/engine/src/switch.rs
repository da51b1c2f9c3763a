//! The switch that a host is in, apart from what its change objects do: gone, settled, withdrawn, stopped.
//!
//! ```text
//!   go ──> under way ──────────── converged, guard confirmed ──> settled
//!             │  ^──────────── another host asks in the switch ─────────────┤
//!             │  a change object gives up, or the guard runs out            │
//!             └───────── withdrawn <── another host, an operator ──────────┘
//!                            │ goes back
//!                            └──> under way (back) ── converged ──> settled
//!                                       └─ gives up ──> stopped: for people
//! ```
//!
//! Everything that changes it is a [`SwitchRecord`]; [`Switching::apply`] is the only reading of them. What is to be
//! done next follows from it by [`Switching::next`] and the other questions; the daemon does it.
//!
//! Rules: a failure after the host has settled is none of the switch, unless something had to move because a host that
//! is still under way asked for it: that opens the switch again, until the host has converged once more. A generation that was withdrawn is gone to
//! again only in a later *round*, which an operator's order begins. A return is never withdrawn: what fails on it
//! stops. So each withdrawal moves a host down once. One that can't even be begun stops as well, and is tried again when
//! an operator says so once more.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::message::UnderWay;
use cob_types::switch::{OnFailure, SwitchPolicy};
use cob_types::{CobId, GenerationNumber, HostName, Manifest, StateName};
use serde::{Deserialize, Serialize};

use crate::guard::Guard;
use crate::time::Time;

/// The most withdrawn generations that are remembered: the newest.
const WITHDRAWN_MAX: usize = 64;
/// The most moves that can't be taken back which are remembered of a switch.
const MADE_MAX: usize = 1000;

/// What was ordered together with a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Terms {
    /// What happens on a failure, and the guard.
    pub policy: SwitchPolicy,
    /// How often the generation was gone to again after it had been withdrawn.
    pub round: u32,
    /// It concerns this host alone: others are told nothing.
    pub alone: bool,
}

/// One durable step of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are named after what they hold")]
pub enum SwitchRecord {
    /// The host sets out for a generation. Written before the `Go` of the first generation on the way.
    Begun {
        /// The generation that was active.
        from: GenerationNumber,
        to: GenerationNumber,
        /// The generation that is left, on a return.
        left: Option<GenerationNumber>,
        terms: Terms,
        /// Under a guard: the hosts that answered before. On a return that the guard of this host has begun: those
        /// that were to be reached.
        peers: BTreeSet<HostName>,
    },
    /// Other terms of the switch that the host is in: an operator's word, or a later round.
    Reterm(Terms),
    /// How the guard stands.
    Guarded(Guard),
    /// The guard is satisfied.
    Confirmed,
    /// A move was made that can't be taken back.
    Made { cob: CobId, from: StateName, to: StateName },
    /// This host has converged: what fails from now on is no failure of the switch.
    Settled,
    /// The generation is withdrawn on this host.
    Withdrawn(GenerationNumber, Withdrawal),
    /// The return can't be ended: for people.
    Stopped { why: String },
    /// A host that is still under way in the switch has asked for something that makes one of this host move.
    Reopened { by: HostName },
    /// The hosts that this one leaves behind as it sets out, all of them: those of before that are still to be spoken to, too.
    Parted(BTreeMap<HostName, Parted>),
    /// Of these, some that have said that they are through.
    Through(BTreeSet<HostName>),
    /// Whether it was cancelled: others are told nothing of it then, until somebody takes that back.
    Quiet(bool),
}

/// A host that is not in the generation which this one goes to or has, and was in one that it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parted {
    /// The last generation of this host that names it.
    pub generation: GenerationNumber,
    /// It has said that it has left, and has nothing more to do with this one.
    pub through: bool,
}

/// Why a generation was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawal {
    /// The generation that is returned to.
    pub to: GenerationNumber,
    /// The round that it ends.
    pub round: u32,
    /// An operator's word.
    pub ordered: bool,
    /// Why, for people.
    pub why: String,
}

/// Where a switch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// It goes on.
    UnderWay,
    /// This host has converged in it.
    Settled,
    /// The return has failed.
    Stopped,
}

/// The switch that the host is in, or was in last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// The generation that was active before.
    pub from: GenerationNumber,
    /// The generation that it leads to, perhaps by others.
    pub to: GenerationNumber,
    /// On a return: the generation that is left.
    pub left: Option<GenerationNumber>,
    /// What was ordered with it.
    pub terms: Terms,
    /// When it began.
    pub at: Time,
    /// Where it is.
    pub stage: Stage,
    /// Why it stopped.
    pub why: String,
    /// Moves of it that can't be taken back; on a return, those of the switch that was withdrawn.
    pub made: Vec<(CobId, StateName, StateName)>,
    /// The hosts that answered before it began; on a return that the guard of this host has begun, those that were to
    /// be reached.
    pub peers: BTreeSet<HostName>,
    /// The guard, from the activation until it is satisfied.
    pub guard: Option<Guard>,
    /// The guard was satisfied, or there was none to be.
    pub confirmed: bool,
    /// It was cancelled: others are told nothing of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
}

/// All that is known of switches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switching {
    /// The one that the host is in, or was in last.
    pub current: Option<Current>,
    /// Generations that were left by a withdrawal and not gone to again.
    pub withdrawn: BTreeMap<GenerationNumber, Withdrawal>,
    /// Those of them that an order led back to since, from a newer one: they hold again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub regained: BTreeSet<GenerationNumber>,
    /// Hosts that this one has left behind, and may have to do with still.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parted: BTreeMap<HostName, Parted>,
    /// Hosts that were removed and have said that they have left, with the last generation that names each. Kept for reports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drained: BTreeMap<HostName, GenerationNumber>,
}

/// The most drained hosts that are remembered.
const DRAINED: usize = 1000;

/// What the engine shows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The active generation.
    pub active: GenerationNumber,
    /// The one that it is on its way to.
    pub going: Option<GenerationNumber>,
    /// Everything is where it should be under the active one.
    pub converged: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Note that the host has settled.
    Settle,
    /// Leave a generation that was withdrawn.
    GoBack {
        /// The one that is left.
        left: GenerationNumber,
        /// The one that is returned to.
        to: GenerationNumber,
    },
    /// A generation on the way is active: on to the goal.
    GoOn(GenerationNumber),
    /// The generation of the switch is active, and its guard begins.
    Guard(Guard),
}

/// What a failure asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// The generation is withdrawn, if there is a way back.
    Withdraw,
    /// The return stops.
    Stop,
    /// Nothing: it is none of a switch, or the switch holds.
    Hold,
}

impl Current {
    /// Which switch it is, between hosts.
    fn name(&self) -> UnderWay {
        UnderWay { to: self.to, left: self.left, round: self.terms.round }
    }

    /// Whether a generation is one that it may lead by, and it is on its way.
    fn leads_over(&self, step: GenerationNumber) -> bool {
        self.stage == Stage::UnderWay && (self.from..self.to).contains(&step)
    }
}

impl Switching {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// Adds one record. Total: a record that fits nothing changes nothing.
    pub fn apply(&mut self, record: &SwitchRecord, at: Time) {
        match record {
            SwitchRecord::Begun { from, to, left, terms, peers } => {
                let (from, to, left, terms) = (*from, *to, *left, *terms);
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
                // It is tried once more.
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
        }
    }

    fn with(&mut self, change: impl FnOnce(&mut Current)) {
        if let Some(current) = &mut self.current {
            change(current);
        }
    }

    /// Whether this host had nothing before it went to a generation.
    #[must_use]
    pub fn came_from_nothing(&self, to: GenerationNumber) -> bool {
        let nothing = GenerationNumber(0);
        self.current.as_ref().is_some_and(|c| c.to == to && c.left.is_none() && c.from == nothing)
    }

    /// What is to be done, if anything.
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
            // From elsewhere than on the way nothing leads on: another switch has begun since. Where the way begins the host
            // still is when it was ordered to go on from a step of its way in the moment in which that became active.
            return self.beyond(seen.active).map(Act::GoOn);
        }
        match (current.confirmed, current.guard, current.terms.policy.guard_ms) {
            (false, None, Some(ms)) => return Some(Act::Guard(Guard::new(ms))),
            (false, _, _) => return None,
            (true, _, _) => {}
        }
        // A return that could not be begun is marked, however well the generation serves that was to be left.
        let is_to_be_left = current.left.is_none() && self.is_withdrawn(current.to, current.terms.round);
        (seen.converged && !is_to_be_left).then_some(Act::Settle)
    }

    /// Where the switch leads beyond a generation that is a step of its way: of words about the switch this is the one that
    /// is meant.
    #[must_use]
    pub fn beyond(&self, step: GenerationNumber) -> Option<GenerationNumber> {
        let leads_on = |c: &&Current| c.leads_over(step) && self.withdrawal_of(c).is_none();
        self.current.as_ref().filter(leads_on).map(|c| c.to)
    }

    /// The withdrawal of the generation that a switch leads to, if it is not a return already.
    fn withdrawal_of(&self, current: &Current) -> Option<&Withdrawal> {
        let of = self.withdrawn.get(&current.to)?;
        (current.left.is_none() && of.round >= current.terms.round && current.stage != Stage::Stopped).then_some(of)
    }

    /// What it asks for that a change object of this host has given up, at that moment.
    #[must_use]
    pub fn on_failure(&self, at: Time) -> Failing {
        match &self.current {
            Some(c) if c.stage != Stage::UnderWay || at < c.at || self.withdrawal_of(c).is_some() => Failing::Hold,
            Some(c) if c.left.is_some() => Failing::Stop,
            Some(c) if c.terms.policy.on_failure == OnFailure::Rollback => Failing::Withdraw,
            Some(_) | None => Failing::Hold,
        }
    }

    /// The switch that this host is in and has not settled in.
    #[must_use]
    pub fn under_way(&self) -> Option<UnderWay> {
        let current = self.current.as_ref()?;
        let goes = current.stage == Stage::UnderWay && self.withdrawal_of(current).is_none();
        goes.then(|| current.name())
    }

    /// Whether others are to hear of the switch that this host is in, or was in last: not what was withdrawn, was cancelled,
    /// or is for this host alone.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let told = |c: &Current| c.left.is_none() && !c.terms.alone && !c.quiet;
        self.current.as_ref().is_some_and(|c| told(c) && !self.is_withdrawn(c.to, c.terms.round))
    }

    /// Whether the cancel of a switch to a generation, which may be a step of the way, is of the one that this host is in.
    #[must_use]
    pub fn leads_over(&self, generation: GenerationNumber) -> bool {
        self.current.as_ref().is_some_and(|c| c.left.is_none() && (c.to == generation || c.leads_over(generation)))
    }

    /// Whether this host has settled in a switch in which another one, under way in it, asks something of it.
    #[must_use]
    pub fn has_settled_in(&self, switch: UnderWay) -> bool {
        let settled = |c: &Current| c.stage == Stage::Settled && c.name() == switch && self.withdrawal_of(c).is_none();
        self.current.as_ref().is_some_and(settled)
    }

    /// Whether this host follows another one's withdrawal of a generation.
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

    /// Whether this host goes to a generation, or has gone to it, by an order that came after the withdrawal of this round.
    #[must_use]
    pub fn was_ordered_since(&self, generation: GenerationNumber, round: u32) -> bool {
        let since = |c: &Current| c.to == generation && c.left.is_none() && round < c.terms.round;
        self.current.as_ref().is_some_and(|c| since(c) && self.withdrawal_of(c).is_none())
    }

    /// Whether this host leaves a generation that was gone to in this round.
    #[must_use]
    pub fn is_on_its_way_back_from(&self, generation: GenerationNumber, round: u32) -> bool {
        let leaves = |c: &Current| c.left == Some(generation) && c.stage == Stage::UnderWay;
        let sets_out = |c: &Current| c.to == generation && self.withdrawal_of(c).is_some();
        self.is_withdrawn(generation, round) && self.current.as_ref().is_some_and(|c| leaves(c) || sets_out(c))
    }

    /// Whether a generation is no place to go back to: it was withdrawn, and nobody has ordered it since.
    #[must_use]
    pub fn is_left(&self, generation: GenerationNumber) -> bool {
        self.withdrawn.contains_key(&generation) && !self.regained.contains(&generation)
    }

    /// Whether a generation was withdrawn in this round or a later one.
    #[must_use]
    pub fn is_withdrawn(&self, generation: GenerationNumber, round: u32) -> bool {
        self.withdrawn.get(&generation).is_some_and(|w| w.round >= round)
    }

    /// The round of an order for a generation.
    #[must_use]
    pub fn round_of_order(&self, generation: GenerationNumber) -> u32 {
        let again = self.withdrawn.get(&generation).map(|w| w.round.saturating_add(1));
        let same = self.current.as_ref().filter(|c| c.to == generation && c.left.is_none()).map(|c| c.terms.round);
        again.or(same).unwrap_or(0)
    }

    /// Whom a host leaves behind that sets out from these generations for another; none: it knows that already. Of those
    /// that it left behind before, it remembers who `stays`, and is in none of these.
    ///
    /// A host that leaves itself leaves all behind but those that have nothing to do with it from now on: the new ones.
    #[must_use]
    pub fn parts_with(
        &self,
        me: &HostName,
        from: &[&Manifest],
        to: &Manifest,
        stays: impl Fn(&HostName, Parted) -> bool,
    ) -> Option<SwitchRecord> {
        let mut parted = self.parted.clone();
        parted.retain(|host, of| stays(host, *of));
        for manifest in from.iter().filter(|m| m.hosts.contains_key(me)) {
            let of = Parted { generation: manifest.generation, through: false };
            parted.extend(manifest.hosts.keys().map(|host| (host.clone(), of)));
        }
        if to.hosts.contains_key(me) {
            parted.retain(|host, _| !to.hosts.contains_key(host));
        }
        (parted != self.parted).then_some(SwitchRecord::Parted(parted))
    }

    /// Whether a host that was left behind takes part in the switch that this one is in, or was in last: one that it was
    /// left behind in, and is not through with.
    #[must_use]
    pub fn takes_part(&self, host: &HostName) -> bool {
        let from = self.current.as_ref().map(|c| c.from);
        self.parted.get(host).is_some_and(|of| !of.through && from.is_some_and(|from| of.generation >= from))
    }

    /// The withdrawal that the host has followed, while it is in the generation that it led to.
    #[must_use]
    pub fn returned(&self) -> Option<(GenerationNumber, &Withdrawal)> {
        let left = self.current.as_ref()?.left?;
        Some((left, self.withdrawn.get(&left)?))
    }
}

#[cfg(test)]
#[path = "switch_test.rs"]
mod tests;
