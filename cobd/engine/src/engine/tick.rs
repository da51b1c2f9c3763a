//! A tick of the engine: an event goes in, the effects come out.

use super::Engine;
use crate::bundle::{ActiveBundle, SwitchTarget};
use crate::effect::{self, Effects};
use crate::event::Event;
use crate::record::Record;
use crate::time::Time;

/// The number of records per part. The crate's own tests always get several parts.
const PART: usize = if cfg!(test) { 3 } else { 256 };

impl Engine {
    /// Handles a single event, whose time is not before the previous event's, and returns the effects.
    pub fn handle(&mut self, event: Event, now: Time) -> Effects {
        let mut persist = Vec::new();
        let mut effects = self.handle_in_parts(event, now, &mut |mut part| persist.append(&mut part));
        effect::add(&mut persist, std::mem::take(&mut effects.persist));
        effects.persist = persist;
        effects
    }

    /// As [`Self::handle`], for a caller without memory for all records of an event, which may be several for each
    /// change object: the engine passes earlier records to `parts`, in their order, while the tick goes on. They
    /// precede the records in the effects, and must be [on the disk](Effects) with these before any other effect is
    /// performed.
    pub fn handle_in_parts(&mut self, event: Event, now: Time, parts: &mut dyn FnMut(Vec<Record>)) -> Effects {
        self.handled += 1;
        match event {
            Event::Switch { generation, bundle, in_process, order, rollback } => {
                self.switch(
                    SwitchTarget { generation, bundle: ActiveBundle { bundle, in_process }, order },
                    rollback,
                    now,
                );
            }
            Event::Received(mut batch) => {
                self.keep_possible(&mut batch, now);
                self.lamport = self.lamport.max(batch.lamport);
                self.received(batch, now);
            }
            Event::LinkUp(host) => self.link_up(&host, now),
            Event::CheckEnded { cob, job, found } => {
                self.on_object(&cob, now, |o, cx| o.check_ended(cx, job, found));
            }
            Event::ActionEnded { cob, job, outcome, span } => {
                self.on_object(&cob, now, |o, cx| o.action_ended(cx, job, outcome, span));
            }
            Event::CheckWanted(cob) => self.on_object(&cob, now, |o, cx| o.check_now(cx)),
            Event::Askers { generation, askers } => self.on_askers(generation, askers, now),
            Event::Order(order) => self.order(order, now),
            Event::Tick => {}
        }
        self.fire_timers(now);
        self.settle(now, parts);
        self.effects(now)
    }

    /// As [`Event::Tick`], but wakes every change object, with or without a deadline.
    #[cfg(test)]
    pub(crate) fn look_at_all(&mut self, now: Time) -> Effects {
        let all: Vec<_> = self.objects.iter().map(|o| o.me).collect();
        for cob in all {
            self.with(cob, now, |o, cx| o.wake(cx));
        }
        self.handle(Event::Tick, now)
    }

    /// Delivers messages and lets touched change objects decide, until both queues are empty.
    fn settle(&mut self, now: Time, parts: &mut dyn FnMut(Vec<Record>)) {
        loop {
            if self.out.unsigned() >= PART {
                parts(self.sign_records(now));
            }
            if let Some(mail) = self.out.next_mail() {
                self.deliver(mail, now);
            } else if let Some(slot) = self.objects.next_touched() {
                self.decide(slot, false, now);
                let departing = self.objects.in_slot(slot).filter(|o| o.departs() && !o.lifecycle.is_departed());
                if let (Some(object), Some(pending)) = (departing, &mut self.departures.pending) {
                    pending.look_at(object.me);
                }
            } else if !self.start_next(now) && !self.try_activate(now) {
                break;
            }
        }
    }

    fn effects(&mut self, now: Time) -> Effects {
        self.answer_owed();
        self.add_hellos(now);
        let persist = self.sign_records(now);
        if self.out.receivers().next().is_some() {
            self.lamport = self.lamport.saturating_add(1);
        }
        self.out.finish(persist, &self.names)
    }

    fn sign_records(&mut self, now: Time) -> Vec<Record> {
        self.out.sign_records(self.generation, &mut self.lamport, now)
    }
}
