//! Departures: the pending switch of a host, and the facts that hosts exchange about it.
//!
//! A departing change object has *departed* when it is in its exit state, with no other grant out, and all change
//! objects that the switch order names before it have departed. From then on it never moves, over every restart, until
//! the switch is over or abandoned. A host activates its next generation when all its departing change objects have
//! departed, and all departures on other hosts that its order makes it wait for.
//!
//! A host asks another host for its facts, repeatedly until it gets an answer, and records them. The asked host
//! remembers the question, and answers as soon as the fact is true. An abandoned switch (by a rollback, or for a newer
//! generation before its end) invalidates its facts: each host counts abandoned switches in its epoch, adopts a higher
//! epoch from any message, and accepts a fact only from a host in the same epoch.
//!
//! Without any order the departures of a host happen together, and there are no questions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_types::message::DepartureReport;
use cob_types::{CobId, GenerationNumber};

use crate::bundle::SwitchTarget;
use crate::names::{CobRef, HostRef, Names};
use crate::repeat::Repeat;
use crate::spec::Spec;
use crate::time::Time;

/// The most change objects about which another host can wait for an answer.
const OWED_MAX: usize = 100_000;

/// The pending switch, and the knowledge of hosts about departures.
#[derive(Debug, Clone, Default)]
pub(crate) struct Departures {
    pub(crate) pending: Option<PendingSwitch>,
    /// Departures that other hosts have asked about.
    owed: BTreeMap<HostRef, Owed>,
    /// The number of switches known to have been abandoned.
    pub(crate) epoch: u64,
    /// The highest generation that this host has ever switched to.
    pub(crate) highest: GenerationNumber,
    /// An owed answer may have become possible.
    pub(crate) changed: bool,
    /// A switch was abandoned elsewhere: the order of departures must be computed again.
    pub(crate) reordered: bool,
}

/// The question of another host.
#[derive(Debug, Clone)]
pub(crate) struct Owed {
    pub(crate) from: GenerationNumber,
    pub(crate) to: GenerationNumber,
    pub(crate) cobs: BTreeSet<CobId>,
}

impl Departures {
    /// The host switches to a generation; returns whether it has visited the generation, or a later one, before.
    pub(crate) fn visits(&mut self, generation: GenerationNumber) -> bool {
        let visited = generation <= self.highest;
        self.highest = self.highest.max(generation);
        visited
    }

    /// Sets the epoch; returns the open questions of the earlier epoch.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) -> impl Iterator<Item = (HostRef, Owed)> + use<> {
        self.epoch = epoch;
        std::mem::take(&mut self.owed).into_iter()
    }

    /// Another host is in a later epoch: earlier facts no longer count.
    pub(crate) fn forget_facts(&mut self) {
        self.reordered = true;
        if let Some(pending) = &mut self.pending {
            pending.announced.clear();
        }
    }

    /// Remembers the question of another host about change objects of this host.
    pub(crate) fn ask(&mut self, host: HostRef, asked: DepartureReport, here: &str) {
        let DepartureReport { from, to, cobs, .. } = asked;
        let owed = self.owed.entry(host).or_insert_with(|| Owed { from, to, cobs: BTreeSet::new() });
        if (owed.from, owed.to) != (from, to) {
            *owed = Owed { from, to, cobs: BTreeSet::new() };
        }
        let room = OWED_MAX.saturating_sub(owed.cobs.len());
        owed.cobs.extend(cobs.into_iter().filter(|c| c.host_str() == here).take(room));
        self.changed = true;
    }

    #[cfg(feature = "explored")]
    pub(crate) fn owed(&self) -> impl Iterator<Item = (HostRef, &Owed)> {
        self.owed.iter().map(|(host, owed)| (*host, owed))
    }

    /// Takes the questions if an answer may have become possible; the caller puts the rest back.
    pub(crate) fn take_owed(&mut self) -> BTreeMap<HostRef, Owed> {
        if std::mem::take(&mut self.changed) { std::mem::take(&mut self.owed) } else { BTreeMap::new() }
    }

    pub(crate) fn put_owed(&mut self, rest: BTreeMap<HostRef, Owed>) {
        self.owed.extend(rest);
    }

    /// This host awaits a departure on another host.
    pub(crate) fn awaits(&self, host: HostRef) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.questions.contains_key(&host))
    }
}

/// The pending switch of this host.
#[derive(Debug, Clone)]
pub(crate) struct PendingSwitch {
    pub(crate) target: SwitchTarget,
    /// Change objects that are new or changed in it.
    pub(crate) specs: BTreeMap<CobId, Arc<Spec>>,
    /// Change objects that must depart before the activation.
    pub(crate) departing: BTreeSet<CobRef>,
    pub(crate) since: Time,
    /// Departing change objects that have not departed yet.
    open: BTreeSet<CobRef>,
    /// For each open change object, the departures that it waits for.
    before: BTreeMap<CobRef, BTreeSet<CobRef>>,
    /// The inverse: for each departure, the change objects that wait for it.
    followers: BTreeMap<CobRef, Vec<CobRef>>,
    /// Changed departing change objects: have they departed now?
    look: BTreeSet<CobRef>,
    /// Departures announced by other hosts.
    announced: BTreeSet<CobRef>,
    /// Departures declared by operators.
    declared: BTreeSet<CobRef>,
    questions: BTreeMap<HostRef, Question>,
}

/// The question to another host.
#[derive(Debug, Clone, Default)]
struct Question {
    cobs: BTreeSet<CobRef>,
    repeat: Repeat,
}

impl PendingSwitch {
    pub(crate) fn new(
        target: SwitchTarget,
        specs: BTreeMap<CobId, Arc<Spec>>,
        departing: BTreeSet<CobRef>,
        since: Time,
    ) -> Self {
        Self {
            target,
            specs,
            open: departing.clone(),
            departing,
            since,
            before: BTreeMap::new(),
            followers: BTreeMap::new(),
            look: BTreeSet::new(),
            announced: BTreeSet::new(),
            declared: BTreeSet::new(),
            questions: BTreeMap::new(),
        }
    }

    /// Restores the facts after a restart.
    pub(crate) fn restore(
        &mut self,
        departed: &BTreeSet<CobRef>,
        announced: BTreeSet<CobRef>,
        declared: BTreeSet<CobRef>,
    ) {
        self.open.retain(|c| !departed.contains(c));
        (self.announced, self.declared) = (announced, declared);
    }

    /// Computes the waits from the order and the known facts. Returns which open change objects are held back, and the
    /// hosts to ask.
    pub(crate) fn order(&mut self, names: &mut Names, ignores_before: bool) -> (Vec<(CobRef, bool)>, Vec<HostRef>) {
        let order = self.target.order.clone();
        let mut away = BTreeSet::new();
        self.before.clear();
        self.followers.clear();
        self.questions.clear();
        for cob in &self.open {
            let id = names.cob_id(*cob).clone();
            let mut before = BTreeSet::new();
            for id in order.before(&id) {
                let here = id.host_str() == names.here().as_str();
                // Of this host only existing change objects count.
                let Some(other) = (if here { names.find_cob(id) } else { Some(names.cob(id)) }) else { continue };
                if if here { other != *cob && self.open.contains(&other) } else { !self.knows(other) } {
                    before.insert(other);
                    self.followers.entry(other).or_default().push(*cob);
                    away.extend(Some(other).filter(|_| !here));
                }
            }
            self.before.insert(*cob, before);
        }
        for id in order.waits_of(&names.here().clone()) {
            let cob = names.cob(id);
            away.extend(Some(cob).filter(|c| !names.is_here(*c) && !self.knows(*c)));
        }
        if ignores_before {
            self.before.values_mut().for_each(BTreeSet::clear);
        }
        for cob in away {
            self.questions.entry(names.host_of(cob)).or_default().cobs.insert(cob);
        }
        self.look = self.open.clone();
        let held_back = self.before.iter().map(|(cob, before)| (*cob, !before.is_empty()));
        (held_back.collect(), self.questions.keys().copied().collect())
    }

    /// A departure that another host has announced, or an operator has declared.
    fn knows(&self, cob: CobRef) -> bool {
        self.announced.contains(&cob) || self.declared.contains(&cob)
    }

    /// The order has no waits within or between hosts: all departures happen together.
    pub(crate) fn is_unordered(&self) -> bool {
        self.target.order.after.is_empty() && self.target.order.waits.is_empty()
    }

    /// All departures that the order counts one by one have happened.
    pub(crate) fn has_no_waits(&self, ignores_questions: bool) -> bool {
        (self.is_unordered() || self.open.is_empty()) && (self.questions.is_empty() || ignores_questions)
    }

    pub(crate) fn open(&self) -> &BTreeSet<CobRef> {
        &self.open
    }

    pub(crate) fn announced(&self) -> &BTreeSet<CobRef> {
        &self.announced
    }

    pub(crate) fn declared(&self) -> &BTreeSet<CobRef> {
        &self.declared
    }

    /// The departures that a change object waits for; empty: none.
    pub(crate) fn before(&self, cob: CobRef) -> impl Iterator<Item = CobRef> {
        self.before.get(&cob).into_iter().flatten().copied()
    }

    /// A departing change object has changed.
    pub(crate) fn look_at(&mut self, cob: CobRef) {
        self.look.insert(cob);
    }

    /// The next changed change object.
    pub(crate) fn next_look(&mut self) -> Option<CobRef> {
        self.look.pop_first()
    }

    /// A change object has departed: queues the change objects that waited for it.
    pub(crate) fn departs(&mut self, cob: CobRef) {
        self.open.remove(&cob);
        for follower in self.followers.remove(&cob).into_iter().flatten() {
            if let Some(before) = self.before.get_mut(&follower) {
                before.remove(&cob);
                self.look.insert(follower);
            }
        }
    }

    /// Another host announces a departure; returns whether this host has asked for it.
    pub(crate) fn announce(&mut self, host: HostRef, cob: CobRef) -> bool {
        let asked = self.answered(host, cob);
        if asked {
            self.announced.insert(cob);
            self.departs(cob);
        }
        asked
    }

    /// An operator declares a departure; returns whether this host has or awaits it.
    pub(crate) fn declare(&mut self, host: HostRef, cob: CobRef) -> bool {
        if self.departing.contains(&cob) {
            self.before.remove(&cob);
        } else if self.answered(host, cob) {
            self.departs(cob);
        } else {
            return false;
        }
        self.declared.insert(cob);
        true
    }

    /// After a restart, a declared departure waits for no other.
    pub(crate) fn free_declared(&mut self) {
        let declared = &self.declared;
        self.before.retain(|cob, _| !declared.contains(cob));
    }

    fn answered(&mut self, host: HostRef, cob: CobRef) -> bool {
        let Some(question) = self.questions.get_mut(&host) else { return false };
        let asked = question.cobs.remove(&cob);
        if question.cobs.is_empty() {
            self.questions.remove(&host);
        }
        asked
    }

    /// The questions to other hosts, with the number of times that each was sent.
    pub(crate) fn questions(&self) -> impl Iterator<Item = (HostRef, &BTreeSet<CobRef>, u64)> {
        self.questions.iter().map(|(host, q)| (*host, &q.cobs, u64::from(q.repeat.times()) + 1))
    }

    /// The departures that this host has asked a host about.
    pub(crate) fn awaited_of(&self, host: HostRef) -> Vec<CobRef> {
        self.questions.get(&host).into_iter().flat_map(|question| question.cobs.iter().copied()).collect()
    }

    /// The schedule of the question to a host.
    pub(crate) fn repeat_of(&mut self, host: HostRef) -> Option<&mut Repeat> {
        self.questions.get_mut(&host).map(|question| &mut question.repeat)
    }
}
