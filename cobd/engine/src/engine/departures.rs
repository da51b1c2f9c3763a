//! When departures happen, and the messages about them: see [`crate::departures`].

use std::collections::BTreeSet;

use cob_types::message::{DepartureReport, MAX_DEPARTURES};
use cob_types::{CobId, GenerationNumber, Item};

use crate::engine::Engine;
use crate::names::{CobRef, HostRef};
use crate::object::Object;
use crate::record::{Body, Durable, OrderRecord};
use crate::repeat::Repeat;
use crate::time::Time;
use crate::timers::Timer;

impl Engine {
    /// Computes the waits from the order and the known facts, and sends all questions.
    pub(super) fn order_departures(&mut self, now: Time) {
        let Some(pending) = &mut self.departures.pending else { return };
        let (held_back, hosts) = pending.order(&mut self.names, self.faults.ignores_after());
        for (cob, held_back) in held_back {
            self.with(cob, now, |o, _| o.lifecycle.hold_back(held_back));
        }
        for host in hosts.iter().filter(|host| self.peers.is_off(**host)).copied().collect::<Vec<_>>() {
            self.declare_all_departed(host, now);
        }
        hosts.into_iter().for_each(|host| self.ask_departures(host, now));
    }

    /// Sends a host's question, and schedules its repeat.
    fn ask_departures(&mut self, host: HostRef, now: Time) {
        let (from, epoch) = (self.generation, self.departures.epoch);
        let Some(pending) = &mut self.departures.pending else { return };
        let Some(repeat) = pending.repeat_of(host) else { return };
        if let Some(at) = repeat.schedule(now) {
            self.timers.set(at, Timer::Question(host));
        }
        let mut cobs: Vec<CobId> = pending.awaited_of(host).iter().map(|c| self.names.cob_id(*c).clone()).collect();
        cobs.sort_unstable();
        for cobs in cobs.chunks(MAX_DEPARTURES) {
            let asked = DepartureReport { from, to: pending.target.generation, epoch, cobs: cobs.to_vec() };
            self.out.send(host, Item::AskDepartures(asked));
        }
    }

    pub(super) fn question_timer(&mut self, host: HostRef, at: Time, now: Time) {
        let repeat = self.departures.pending.as_mut().and_then(|pending| pending.repeat_of(host));
        if let Some(repeat) = repeat.filter(|repeat| repeat.at() == at) {
            repeat.count();
            self.ask_departures(host, now);
        }
    }

    /// The link to a host is new: repeats the question, and restarts the delays.
    pub(super) fn ask_departures_anew(&mut self, host: HostRef, now: Time) {
        if let Some(repeat) = self.departures.pending.as_mut().and_then(|pending| pending.repeat_of(host)) {
            *repeat = Repeat::default();
            self.ask_departures(host, now);
        }
    }

    /// Another host asks.
    pub(super) fn on_departures_asked(&mut self, host: HostRef, asked: DepartureReport) {
        self.on_epoch(asked.epoch);
        if asked.epoch < self.departures.epoch {
            // It asks again after it has received the newer epoch.
            self.send_epoch(host, asked.from, asked.to);
        } else {
            self.departures.ask(host, asked, self.names.here().as_str());
        }
    }

    fn send_epoch(&mut self, host: HostRef, from: GenerationNumber, to: GenerationNumber) {
        let nothing = DepartureReport { from, to, epoch: self.departures.epoch, cobs: Vec::new() };
        self.out.send(host, Item::Departures(nothing));
    }

    /// Sends the owed answers that are possible now.
    pub(super) fn answer_owed(&mut self) {
        let mut all = self.departures.take_owed();
        let epoch = self.departures.epoch;
        all.retain(|host, owed| {
            let (from, to) = (owed.from, owed.to);
            let departed: Vec<CobId> =
                owed.cobs.iter().filter(|c| self.has_departed_in(from, to, c)).cloned().collect();
            departed.iter().for_each(|c| _ = owed.cobs.remove(c));
            for cobs in departed.chunks(MAX_DEPARTURES) {
                self.out.send(*host, Item::Departures(DepartureReport { from, to, epoch, cobs: cobs.to_vec() }));
            }
            !owed.cobs.is_empty()
        });
        self.departures.put_owed(all);
    }

    /// Whether a change object of this host, in the version of the first generation, has departed in a switch. False
    /// until this host has started that switch itself: its order may be late.
    fn has_departed_in(&self, from: GenerationNumber, to: GenerationNumber, cob: &CobId) -> bool {
        // A rollback beyond `to` counts as reached, and so does a generation newer than `from`.
        let reached = |at: GenerationNumber| if from < to { at >= to } else { at <= to || at > from };
        let object = self.names.find_cob(cob).and_then(|c| self.objects.get(c));
        match &self.departures.pending {
            Some(pending) if !reached(pending.target.generation) => false,
            _ if reached(self.generation) => true,
            None => false,
            Some(pending) => match object {
                Some(object) if pending.departing.contains(&object.me) => object.lifecycle.is_departed(),
                // In a switch to `to` a change object that stays is not the first generation's.
                Some(_) => pending.target.generation == to,
                None => true,
            },
        }
    }

    /// Another host has announced departures.
    pub(super) fn on_departures(&mut self, host: HostRef, report: DepartureReport) {
        if self.on_epoch(report.epoch) || report.epoch != self.departures.epoch {
            return;
        }
        let pair = (self.generation, self.pending_generation());
        let pending = self.departures.pending.as_mut().filter(|_| pair == (report.from, Some(report.to)));
        let Some(pending) = pending else { return };
        let mut cobs = report.cobs;
        cobs.retain(|id| self.names.find_cob(id).is_some_and(|cob| pending.announce(host, cob)));
        if !cobs.is_empty() {
            self.out.record(Body::DeparturesAnnounced { cobs });
        }
    }

    /// Another host knows of an abandoned switch: earlier facts no longer count. Returns whether this was unknown.
    fn on_epoch(&mut self, epoch: u64) -> bool {
        let newer = epoch > self.departures.epoch;
        if newer {
            self.set_epoch(epoch);
            self.departures.forget_facts();
        }
        newer
    }

    /// Computes the waits if messages of a batch require it: only once per batch.
    pub(super) fn order_departures_if_due(&mut self, now: Time) {
        if std::mem::take(&mut self.departures.reordered) {
            self.order_departures(now);
        }
    }

    /// This host abandons a switch: its departures no longer count.
    pub(super) fn abandon_switch(&mut self) {
        self.set_epoch(self.departures.epoch.saturating_add(1));
    }

    fn set_epoch(&mut self, epoch: u64) {
        self.out.record(Body::Epoch(epoch));
        for (host, owed) in self.departures.begin_epoch(epoch) {
            self.send_epoch(host, owed.from, owed.to);
        }
    }

    /// Finds the change objects that have departed now, and frees the change objects that waited for them. Returns
    /// whether any was freed.
    pub(super) fn find_departed(&mut self, now: Time) -> (Vec<CobRef>, bool) {
        let (mut departed, mut freed) = (Vec::new(), false);
        while let Some(pending) = &mut self.departures.pending
            && let Some(cob) = pending.next_look()
        {
            let free = pending.before(cob).next().is_none();
            let object = self.objects.get_mut(cob);
            if object.as_ref().is_some_and(|o| o.lifecycle.is_held_back() == free) {
                self.with(cob, now, |o, _| o.lifecycle.hold_back(!free));
                freed = true;
                continue;
            }
            let is_there = object.as_ref().is_none_or(|o| o.has_departed());
            if free && is_there && !pending.is_unordered() && pending.open().contains(&cob) {
                if let Some(object) = object {
                    object.lifecycle.depart();
                }
                pending.departs(cob);
                departed.push(cob);
            }
        }
        (departed, freed)
    }

    /// This host may activate the generation of its pending switch.
    pub(super) fn may_activate(&self) -> bool {
        let departed = |cob: &CobRef| self.objects.get(*cob).is_none_or(Object::has_departed);
        self.departures.pending.as_ref().is_some_and(|pending| {
            pending.has_no_waits(self.faults.ignores_waits()) && pending.departing.iter().all(departed)
        })
    }

    /// An operator declares a change object departed, though it is not, or its state is unknown.
    pub(super) fn declare_departed(&mut self, id: CobId, now: Time) {
        let Some(cob) = self.names.find_cob(&id) else { return };
        let host = self.names.host_of(cob);
        if self.departures.pending.as_mut().is_some_and(|pending| pending.declare(host, cob)) {
            self.with(cob, now, |o, _| o.lifecycle.declare());
            self.out.record(Body::Ordered(OrderRecord::MarkDeparted(id)));
        }
    }

    /// The departures of a fenced host that this host has asked about count as announced.
    pub(super) fn declare_all_departed(&mut self, host: HostRef, now: Time) {
        let awaited = self.departures.pending.as_ref().map(|pending| pending.awaited_of(host));
        for cob in awaited.unwrap_or_default() {
            self.declare_departed(self.names.cob_id(cob).clone(), now);
        }
    }

    /// Restores the facts of the switch after a restart.
    pub(super) fn restore_facts(&mut self, durable: &Durable, now: Time) {
        let names = &mut self.names;
        let [departed, announced, declared] = [&durable.departed, &durable.announced, &durable.declared]
            .map(|ids| -> BTreeSet<CobRef> { ids.iter().map(|id| names.cob(id)).collect() });
        for cob in departed.iter().chain(&declared) {
            self.with(*cob, now, |o, _| {
                if declared.contains(cob) {
                    o.lifecycle.declare();
                }
                if departed.contains(cob) {
                    o.lifecycle.depart();
                }
            });
        }
        if let Some(pending) = &mut self.departures.pending {
            pending.restore(&departed, announced, declared);
        }
        self.order_departures(now);
        if let Some(pending) = &mut self.departures.pending {
            pending.free_declared();
        }
    }

    /// The durable facts, from the running engine.
    pub(super) fn durable_facts(&self, durable: &mut Durable) {
        durable.epoch = self.departures.epoch;
        durable.highest = self.departures.highest;
        let Some(pending) = &self.departures.pending else { return };
        let ids = |cobs: &BTreeSet<CobRef>| cobs.iter().map(|c| self.names.cob_id(*c).clone()).collect();
        durable.pending_since = pending.since;
        durable.announced = ids(pending.announced());
        durable.declared = ids(pending.declared());
        let departed = |cob: &CobRef| self.objects.get(*cob).is_some_and(|o| o.lifecycle.is_departed());
        durable.departed = ids(&pending.departing.iter().copied().filter(departed).collect());
    }
}
