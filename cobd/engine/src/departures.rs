//! Departures: the facts that hosts exchange, and when a host may activate.
//!
//! A departing change object has *departed* when it is in its exit state, with no other grant out, and all change
//! objects that the switch order names before it have departed. From then on it never moves, over every restart, until
//! the switch is over or abandoned. A host activates its next generation when all its departing change objects have
//! departed, and all departures on other hosts that its order makes it wait for.
//!
//! A host asks another host for its facts, repeatedly until it gets an answer, and records them. The asked host
//! remembers the question, and answers as soon as the fact is true. An abandoned switch (by a rollback, or for a newer
//! generation before its end) invalidates its facts: each host counts abandoned switches in its epoch (`turn`), adopts
//! a higher epoch from any message, and accepts a fact only from a host in the same epoch.
//!
//! Without any order the departures of a host happen together, and there are no questions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_types::message::{DepartureReport, MAX_FINALS};
use cob_types::{CobId, GenerationNumber, Item};

use crate::adopt::SwitchTarget;
use crate::engine::{Engine, Timer};
use crate::names::{CobRef, HostRef};
use crate::object::Object;
use crate::record::{Body, Durable, OrderRecord};
use crate::repeat::Repeat;
use crate::spec::Spec;
use crate::time::Time;

/// The most change objects about which another host can wait for an answer.
const OWED_MAX: usize = 100_000;

/// The pending switch of this host.
#[derive(Debug, Clone)]
pub(crate) struct PendingSwitch {
    pub(crate) target: SwitchTarget,
    /// Change objects that are new or changed in it.
    pub(crate) specs: BTreeMap<CobId, Arc<Spec>>,
    /// Change objects that must depart before the activation.
    pub(crate) leaving: BTreeSet<CobRef>,
    pub(crate) since: Time,
    /// Departing change objects that have not departed yet.
    pub(crate) open: BTreeSet<CobRef>,
    /// For each open change object, the departures that it waits for.
    pub(crate) before: BTreeMap<CobRef, BTreeSet<CobRef>>,
    /// The inverse: for each departure, the change objects that wait for it.
    followers: BTreeMap<CobRef, Vec<CobRef>>,
    /// Changed departing change objects: have they departed now?
    pub(crate) look: BTreeSet<CobRef>,
    /// Departures announced by other hosts, and declared by operators.
    pub(crate) told: BTreeSet<CobRef>,
    pub(crate) declared: BTreeSet<CobRef>,
    pub(crate) questions: BTreeMap<HostRef, Question>,
}

/// The question to another host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Question {
    pub(crate) cobs: BTreeSet<CobRef>,
    pub(crate) repeat: Repeat,
}

/// The question of another host.
#[derive(Debug, Clone)]
pub(crate) struct Owed {
    pub(crate) from: GenerationNumber,
    pub(crate) to: GenerationNumber,
    pub(crate) cobs: BTreeSet<CobId>,
}

impl PendingSwitch {
    pub(crate) fn new(
        target: SwitchTarget,
        specs: BTreeMap<CobId, Arc<Spec>>,
        leaving: BTreeSet<CobRef>,
        since: Time,
    ) -> Self {
        Self {
            target,
            specs,
            open: leaving.clone(),
            leaving,
            since,
            before: BTreeMap::new(),
            followers: BTreeMap::new(),
            look: BTreeSet::new(),
            told: BTreeSet::new(),
            declared: BTreeSet::new(),
            questions: BTreeMap::new(),
        }
    }

    /// The order has no waits within or between hosts: all departures happen together.
    fn together(&self) -> bool {
        self.target.order.after.is_empty() && self.target.order.waits.is_empty()
    }

    /// A change object has departed: queues the change objects that waited for it.
    fn is_out(&mut self, cob: CobRef) {
        self.open.remove(&cob);
        for follower in self.followers.remove(&cob).into_iter().flatten() {
            if let Some(before) = self.before.get_mut(&follower) {
                before.remove(&cob);
                self.look.insert(follower);
            }
        }
    }

    fn is_answered(&mut self, host: HostRef, cob: CobRef) -> bool {
        let Some(question) = self.questions.get_mut(&host) else { return false };
        let asked = question.cobs.remove(&cob);
        if question.cobs.is_empty() {
            self.questions.remove(&host);
        }
        asked
    }
}

impl Engine {
    /// Computes the waits from the order and the known facts, and sends all questions.
    pub(crate) fn lay_out(&mut self, now: Time) {
        let Some(mut going) = self.going.take() else { return };
        let order = going.target.order.clone();
        let mut away = BTreeSet::new();
        going.before.clear();
        going.followers.clear();
        going.questions.clear();
        for cob in &going.open {
            let id = self.names.cob_id(*cob).clone();
            let named: Vec<CobRef> = order.before(&id).filter_map(|b| self.named(b)).collect();
            let mut before = BTreeSet::new();
            for other in named {
                let here = self.names.host_of(other) == self.here;
                if if here { other != *cob && going.open.contains(&other) } else { !going.knows(other) } {
                    before.insert(other);
                    going.followers.entry(other).or_default().push(*cob);
                    away.extend(Some(other).filter(|_| !here));
                }
            }
            going.before.insert(*cob, before);
        }
        let me = self.names.host_name(self.here).clone();
        for id in order.waits_of(&me) {
            let cob = self.names.cob(id);
            away.extend(Some(cob).filter(|c| self.names.host_of(*c) != self.here && !going.knows(*c)));
        }
        if self.faults.ignores_after() {
            going.before.values_mut().for_each(BTreeSet::clear);
        }
        for cob in away {
            going.questions.entry(self.names.host_of(cob)).or_default().cobs.insert(cob);
        }
        going.look = going.open.clone();
        let hosts: Vec<HostRef> = going.questions.keys().copied().collect();
        let held_back: Vec<_> = going.before.iter().map(|(cob, before)| (*cob, !before.is_empty())).collect();
        self.going = Some(going);
        for (cob, held_back) in held_back {
            self.with(cob, now, |o, _| o.lifecycle.hold_back(held_back));
        }
        for host in self.fenced_among(&hosts) {
            self.declare_departed(host, now);
        }
        hosts.into_iter().for_each(|host| self.ask_final(host, now));
    }

    /// For this host only existing change objects, for other hosts any.
    fn named(&mut self, id: &CobId) -> Option<CobRef> {
        let here = id.host_str() == self.names.host_name(self.here).as_str();
        if here { self.names.find_cob(id) } else { Some(self.names.cob(id)) }
    }

    /// Sends a host's question, and schedules its repeat.
    pub(crate) fn ask_final(&mut self, host: HostRef, now: Time) {
        let (from, turn) = (self.generation, self.turn);
        let Some(going) = &mut self.going else { return };
        let Some(question) = going.questions.get_mut(&host) else { return };
        if let Some(at) = question.repeat.schedule(now) {
            self.timers.push(Reverse((at, Timer::Ask(host.0))));
        }
        let mut cobs: Vec<CobId> = question.cobs.iter().map(|c| self.names.cob_id(*c).clone()).collect();
        cobs.sort_unstable();
        for cobs in cobs.chunks(MAX_FINALS) {
            let asked = DepartureReport { from, to: going.target.generation, turn, cobs: cobs.to_vec() };
            self.send.push((host, Item::AskFinal(asked)));
        }
    }

    pub(crate) fn ask_timer(&mut self, host: HostRef, at: Time, now: Time) {
        let question = self.going.as_mut().and_then(|g| g.questions.get_mut(&host));
        if let Some(question) = question.filter(|q| q.repeat.at() == at) {
            question.repeat.count();
            self.ask_final(host, now);
        }
    }

    /// The link to a host is new: repeats the question, and restarts the delays.
    pub(crate) fn ask_anew(&mut self, host: HostRef, now: Time) {
        if let Some(question) = self.going.as_mut().and_then(|g| g.questions.get_mut(&host)) {
            question.repeat = Repeat::default();
            self.ask_final(host, now);
        }
    }

    /// Another host asks.
    pub(crate) fn on_ask_final(&mut self, host: HostRef, asked: DepartureReport) {
        self.hear_turn(asked.turn);
        let DepartureReport { from, to, turn, cobs } = asked;
        if turn < self.turn {
            // It asks again after it has received the newer epoch.
            self.say_turn(host, from, to);
            return;
        }
        let owed = self.owed.entry(host).or_insert_with(|| Owed { from, to, cobs: BTreeSet::new() });
        if (owed.from, owed.to) != (from, to) {
            *owed = Owed { from, to, cobs: BTreeSet::new() };
        }
        let me = self.names.host_name(self.here).as_str();
        let room = OWED_MAX.saturating_sub(owed.cobs.len());
        owed.cobs.extend(cobs.into_iter().filter(|c| c.host_str() == me).take(room));
        self.facts_changed = true;
    }

    fn say_turn(&mut self, host: HostRef, from: GenerationNumber, to: GenerationNumber) {
        let nothing = DepartureReport { from, to, turn: self.turn, cobs: Vec::new() };
        self.send.push((host, Item::Final(nothing)));
    }

    /// Sends the owed answers that are possible now.
    pub(crate) fn answer_owed(&mut self) {
        if !std::mem::take(&mut self.facts_changed) {
            return;
        }
        let mut all = std::mem::take(&mut self.owed);
        all.retain(|host, owed| {
            let (from, to, turn) = (owed.from, owed.to, self.turn);
            let told: Vec<CobId> = owed.cobs.iter().filter(|c| self.is_final_in(from, to, c)).cloned().collect();
            told.iter().for_each(|c| _ = owed.cobs.remove(c));
            for cobs in told.chunks(MAX_FINALS) {
                self.send.push((*host, Item::Final(DepartureReport { from, to, turn, cobs: cobs.to_vec() })));
            }
            !owed.cobs.is_empty()
        });
        self.owed = all;
    }

    /// Whether a change object of this host, in the version of the first generation, has departed in a switch. False
    /// until this host has started that switch itself: its order may be late.
    fn is_final_in(&self, from: GenerationNumber, to: GenerationNumber, cob: &CobId) -> bool {
        // A rollback beyond `to` counts as reached, and so does a generation newer than `from`.
        let reached = |at: GenerationNumber| if from < to { at >= to } else { at <= to || at > from };
        let object = self.names.find_cob(cob).and_then(|c| self.object(c));
        match &self.going {
            Some(going) if !reached(going.target.generation) => false,
            _ if reached(self.generation) => true,
            None => false,
            Some(going) => match object {
                Some(object) if going.leaving.contains(&object.me) => object.lifecycle.is_departed(),
                // In a switch to `to` a change object that stays is not the first generation's.
                Some(_) => going.target.generation == to,
                None => true,
            },
        }
    }

    /// Another host has announced departures.
    pub(crate) fn on_final(&mut self, host: HostRef, told: DepartureReport) {
        if self.hear_turn(told.turn) || told.turn != self.turn {
            return;
        }
        let pair = (self.generation, self.going_to());
        let Some(going) = self.going.as_mut().filter(|_| pair == (told.from, Some(told.to))) else { return };
        let mut news = Vec::new();
        for id in told.cobs {
            let Some(cob) = self.names.find_cob(&id) else { continue };
            if going.is_answered(host, cob) {
                going.told.insert(cob);
                going.is_out(cob);
                news.push(id);
            }
        }
        if !news.is_empty() {
            self.out.record(Body::Told { cobs: news });
        }
    }

    /// Another host knows of an abandoned switch: earlier facts no longer count. Returns whether this was unknown.
    fn hear_turn(&mut self, turn: u64) -> bool {
        if turn <= self.turn {
            return false;
        }
        self.set_turn(turn);
        if let Some(going) = &mut self.going {
            going.told.clear();
        }
        self.must_lay_out = true;
        true
    }

    /// Computes the waits if messages of a batch require it: only once per batch.
    pub(crate) fn lay_out_if_due(&mut self, now: Time) {
        if std::mem::take(&mut self.must_lay_out) {
            self.lay_out(now);
        }
    }

    /// This host abandons a switch: its departures no longer count.
    pub(crate) fn leave_switch(&mut self) {
        self.set_turn(self.turn.saturating_add(1));
    }

    fn set_turn(&mut self, turn: u64) {
        self.turn = turn;
        self.out.record(Body::Turn(turn));
        for (host, owed) in std::mem::take(&mut self.owed) {
            self.say_turn(host, owed.from, owed.to);
        }
    }

    /// Finds the change objects that have departed now, and frees the change objects that waited for them. Returns
    /// whether any was freed.
    pub(crate) fn find_final(&mut self, now: Time) -> (Vec<CobRef>, bool) {
        let Some(mut going) = self.going.take() else { return (Vec::new(), false) };
        let (mut news, mut freed) = (Vec::new(), false);
        while let Some(cob) = going.look.pop_first() {
            let free = going.before.get(&cob).is_none_or(BTreeSet::is_empty);
            if self.object(cob).is_some_and(|o| o.lifecycle.is_held_back() == free) {
                self.with(cob, now, |o, _| o.lifecycle.hold_back(!free));
                freed = true;
                continue;
            }
            let is_final = self.object(cob).is_none_or(Object::is_final);
            if free && is_final && !going.together() && going.open.contains(&cob) {
                if let Some(object) = self.object_mut(cob) {
                    object.lifecycle.depart();
                }
                going.is_out(cob);
                news.push(cob);
            }
        }
        self.going = Some(going);
        (news, freed)
    }

    /// This host may activate the generation of its pending switch.
    pub(crate) fn may_activate(&self) -> bool {
        let Some(going) = &self.going else { return false };
        let done = |cob: &CobRef| self.object(*cob).is_none_or(Object::is_final);
        let asked = !going.questions.is_empty() && !self.faults.ignores_waits();
        (going.together() || going.open.is_empty()) && !asked && going.leaving.iter().all(done)
    }

    /// An operator declares a change object departed, though it is not, or its state is unknown.
    pub(crate) fn declare_final(&mut self, id: CobId, now: Time) {
        let Some(cob) = self.names.find_cob(&id) else { return };
        let host = self.names.host_of(cob);
        let Some(going) = &mut self.going else { return };
        let leaves = going.leaving.contains(&cob);
        if !leaves && !going.is_answered(host, cob) {
            return;
        }
        going.declared.insert(cob);
        if leaves {
            going.before.remove(&cob);
            self.with(cob, now, |o, _| o.lifecycle.declare());
        } else {
            going.is_out(cob);
        }
        self.out.record(Body::Ordered(OrderRecord::DeclareFinal(id)));
    }

    /// Restores the facts of the switch after a restart.
    pub(crate) fn restore_facts(&mut self, durable: &Durable, now: Time) {
        let refs = |names: &crate::names::Names, ids: &BTreeSet<CobId>| -> BTreeSet<CobRef> {
            ids.iter().filter_map(|id| names.find_cob(id)).collect()
        };
        for id in durable.told.iter().chain(&durable.declared) {
            self.names.cob(id);
        }
        let finals = refs(&self.names, &durable.finals);
        let declared = refs(&self.names, &durable.declared);
        for cob in finals.iter().chain(&declared) {
            self.with(*cob, now, |o, _| {
                if declared.contains(&o.me) {
                    o.lifecycle.declare();
                }
                if finals.contains(&o.me) {
                    o.lifecycle.depart();
                }
            });
        }
        if let Some(going) = &mut self.going {
            going.told = refs(&self.names, &durable.told);
            going.declared = declared;
            going.open.retain(|c| !finals.contains(c));
        }
        self.lay_out(now);
        if let Some(going) = &mut self.going {
            let declared = &going.declared;
            going.before.retain(|cob, _| !declared.contains(cob));
        }
    }

    /// The durable facts, from the running engine.
    pub(crate) fn durable_facts(&self, durable: &mut Durable) {
        durable.turn = self.turn;
        durable.highest = self.highest;
        let Some(going) = &self.going else { return };
        let ids = |cobs: &BTreeSet<CobRef>| cobs.iter().map(|c| self.names.cob_id(*c).clone()).collect();
        durable.going_since = going.since;
        durable.told = ids(&going.told);
        durable.declared = ids(&going.declared);
        durable.finals = going
            .leaving
            .iter()
            .filter(|c| self.object(**c).is_some_and(|o| o.lifecycle.is_departed()))
            .map(|c| self.names.cob_id(*c).clone())
            .collect();
    }
}

impl PendingSwitch {
    fn knows(&self, cob: CobRef) -> bool {
        self.told.contains(&cob) || self.declared.contains(&cob)
    }
}
