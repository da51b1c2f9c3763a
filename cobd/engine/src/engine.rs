//! The engine: routes events to change objects, routes their messages to each other or to peers, and collects the
//! effects.
//!
//! A tick applies the event, then delivers messages between change objects of this host and lets every touched change
//! object decide, until the queue is empty. Deadlines are in a heap: no event costs a scan of all change objects.

use std::collections::BTreeMap;

use cob_types::{CobId, GenerationNumber, HostName, Incarnation, Number, StateName};

use crate::absent::AbsentObjects;
use crate::bundle::ActiveBundle;
use crate::departures::Departures;
use crate::event::Order;
use crate::faults::Faults;
use crate::justification::Justification;
use crate::limits::Limits;
use crate::mail::{Mail, Msg, Probed};
use crate::names::{CobRef, HostRef, Names};
use crate::object::decide::Scratch;
use crate::object::probe::Probing;
use crate::object::{Cx, Object};
use crate::objects::Objects;
use crate::output::Output;
use crate::peers::Peers;
use crate::record::{Body, OrderRecord};
use crate::time::Time;
use crate::timers::{Timer, Timers};

mod absent;
mod bounds;
#[cfg(feature = "explored")]
#[path = "../tests/explored/engine.rs"]
mod canonical;
mod departures;
mod fenced;
mod incarnations;
pub mod invariants;
mod justify;
mod peers;
mod recover;
mod report;
mod room;
mod switching;
mod tick;
mod wire;

pub use recover::RestartInput;
pub use report::{ActiveObjects, Stops};

/// The change objects of a host and all their knowledge.
#[derive(Debug, Clone)]
pub struct Engine {
    names: Names,
    incarnation: Incarnation,
    generation: GenerationNumber,
    /// The active bundle: `objects` has exactly its change objects.
    active: Option<ActiveBundle>,
    /// The number of activations in this incarnation.
    activations: u64,
    objects: Objects,
    absent: AbsentObjects,
    departures: Departures,
    peers: Peers,
    /// The data that justify requests of other hosts.
    justification: Justification,
    trusts_askers: bool,
    limits: Limits,
    probing: Probing,
    timers: Timers,
    /// The last number given out.
    number: Number,
    lamport: u64,
    /// Events and messages handled in this incarnation.
    handled: u64,
    /// The number of other hosts' items dropped for lack of room.
    left_out: u64,
    out: Output,
    scratch: Scratch,
    faults: Faults,
}

impl Engine {
    /// The engine of a host without a generation, in the first incarnation of its state folder.
    #[must_use]
    pub fn new(host: &HostName, incarnation: Incarnation) -> Self {
        Self {
            names: Names::new(host),
            incarnation,
            generation: GenerationNumber(0),
            active: None,
            activations: 0,
            objects: Objects::default(),
            absent: AbsentObjects::default(),
            departures: Departures::default(),
            peers: Peers::default(),
            justification: Justification::default(),
            trusts_askers: false,
            limits: Limits::default(),
            probing: Probing::default(),
            timers: Timers::default(),
            number: Number { start: incarnation.start, counter: 0 },
            lamport: 0,
            handled: 0,
            left_out: 0,
            out: Output::default(),
            scratch: Scratch::default(),
            faults: Faults::default(),
        }
    }

    /// Plants faults, for tests.
    pub fn plant(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// When [`Event::Tick`](crate::Event::Tick) is due if no other event happens before.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The active generation; zero: none.
    #[must_use]
    pub fn generation(&self) -> GenerationNumber {
        self.generation
    }

    /// The generation of the pending switch.
    #[must_use]
    pub fn pending_generation(&self) -> Option<GenerationNumber> {
        self.departures.pending.as_ref().map(|pending| pending.target.generation)
    }

    /// The pending switch leads to an older generation than the active one.
    fn goes_back(&self) -> bool {
        self.pending_generation().is_some_and(|to| to < self.generation)
    }

    /// The number of events and messages handled in this incarnation.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// This incarnation of the daemon.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The epoch of departures: the number of switches known to have been abandoned.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.departures.epoch
    }

    /// The Lamport number of messages sent now.
    #[must_use]
    pub fn lamport(&self) -> u64 {
        self.lamport
    }

    /// Advances the Lamport number past a message that the daemon handles.
    pub fn note_lamport(&mut self, lamport: u64) {
        self.lamport = self.lamport.max(lamport).saturating_add(1);
    }

    /// No new transition starts on this host.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.limits.is_paused()
    }

    /// An operator has paused this host, independent of a cancelled switch.
    #[must_use]
    pub fn is_paused_by_order(&self) -> bool {
        self.limits.paused
    }

    /// The generation of the cancelled switch, as long as it pauses the host.
    #[must_use]
    pub fn cancelled(&self) -> Option<GenerationNumber> {
        self.limits.cancelled
    }

    /// The most parallel transitions; `None`: no limit.
    #[must_use]
    pub fn limit(&self) -> Option<u32> {
        self.limits.starts.at_most()
    }

    /// The number of tokens that the model gives a budget of this host; `None`: the host does not have this budget.
    #[must_use]
    pub fn tokens_of(&self, budget: &CobId) -> Option<u32> {
        self.objects.get(self.names.find_cob(budget)?)?.spec.at_most
    }

    /// Budgets of this host with an operator's token limit.
    #[must_use]
    pub fn limited_budgets(&self) -> BTreeMap<CobId, u32> {
        self.budgets_here(self.limits.tokens.limited())
    }

    /// Budgets of this host with an operator's token number until the next generation.
    #[must_use]
    pub fn raised_budgets(&self) -> BTreeMap<CobId, u32> {
        self.budgets_here(self.limits.tokens.raised())
    }

    fn budgets_here(&self, tokens: &BTreeMap<CobRef, u32>) -> BTreeMap<CobId, u32> {
        let is_here = |cob: &CobRef| self.objects.get(*cob).is_some_and(|o| o.spec.at_most.is_some());
        let here = tokens.iter().filter(|(cob, _)| is_here(cob));
        here.map(|(cob, tokens)| (self.names.cob_id(*cob).clone(), *tokens)).collect()
    }

    /// Every change object has converged to its preferred state, a generation is active, and no switch is pending; the
    /// states of observed change objects are known.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        self.active.is_some() && self.departures.pending.is_none() && self.objects.unsettled() == 0
    }

    /// The running actions, so that the daemon can wait for them after a restart.
    #[must_use]
    pub fn running_actions(&self) -> Vec<(CobId, Number)> {
        let running = self.objects.iter().filter_map(|o| Some((self.names.cob_id(o.me).clone(), o.action()?.job)));
        running.collect()
    }

    /// The running actions with other content than the active generation has: the states before and after.
    #[must_use]
    pub fn actions_with_earlier_content(&self) -> Vec<(CobId, StateName, StateName)> {
        let found = self.objects.active().filter_map(|o| {
            let t = &o.spec.kind.transitions[usize::from(o.action_with_earlier_content()?.transition)];
            let name = |state| self.names.state_name(o.spec.kind.id(state)).clone();
            Some((self.names.cob_id(o.me).clone(), name(t.from), name(t.to)))
        });
        found.collect()
    }

    /// Runs `f` on a change object of this host, with its context, and lets it decide afterwards.
    fn with<R>(&mut self, cob: CobRef, now: Time, f: impl FnOnce(&mut Object, &mut Cx<'_>) -> R) -> Option<R> {
        let slot = self.objects.slot(cob)?;
        let result = self.with_slot(slot, now, f);
        self.objects.touch(cob);
        result
    }

    fn with_slot<R>(&mut self, slot: usize, now: Time, f: impl FnOnce(&mut Object, &mut Cx<'_>) -> R) -> Option<R> {
        let goes_back = self.goes_back();
        let mut cx = Cx {
            now,
            names: &self.names,
            generation: self.generation,
            paused: self.limits.is_paused(),
            goes_back,
            limited: self.limits.starts.at_most().is_some(),
            tokens: &self.limits.tokens,
            peers: &self.peers,
            unsettled: self.objects.unsettled(),
            probing: &mut self.probing,
            activations: self.activations,
            number: &mut self.number,
            faults: &self.faults,
            out: &mut self.out,
            scratch: &mut self.scratch,
        };
        let result = self.objects.change(slot, |object| f(object, &mut cx));
        for (cob, rank) in self.out.take_ready() {
            self.limits.starts.wait(cob, rank);
        }
        result
    }

    /// Lets a change object decide, and schedules its next deadline.
    fn decide(&mut self, slot: usize, has_slot: bool, now: Time) {
        let deadline = self.with_slot(slot, now, |o, cx| {
            cx.limited &= !has_slot;
            o.decide(cx);
            o.deadline(cx)
        });
        let Some(at) = deadline else { return };
        if self.objects.wake_at(slot, at) {
            self.timers.set(at, Timer::Object(slot as u32));
        }
        self.objects.note_activity(slot);
    }

    fn on_object(&mut self, cob: &CobId, now: Time, f: impl FnOnce(&mut Object, &mut Cx<'_>)) {
        if let Some(cob) = self.names.find_cob(cob) {
            self.with(cob, now, f);
        }
    }

    fn order(&mut self, order: Order, now: Time) {
        match order {
            Order::Pause => {
                self.limits.paused = true;
                self.ordered_for_all(OrderRecord::Pause);
            }
            Order::Resume => {
                (self.limits.paused, self.limits.cancelled) = (false, None);
                self.ordered_for_all(OrderRecord::Resume);
            }
            Order::Cancel(generation) => {
                self.limits.cancelled = Some(generation);
                self.ordered_for_all(OrderRecord::Cancel(generation));
            }
            Order::EndCancel => {
                if self.limits.cancelled.take().is_some() {
                    self.ordered_for_all(OrderRecord::EndCancel);
                }
            }
            Order::Limit(at_most) => {
                self.limits.starts.set(at_most);
                self.ordered_for_all(OrderRecord::Limit(self.limits.starts.at_most()));
            }
            Order::LimitBudget(budget, at_most) => {
                let at_most = at_most.map(|k| k.max(1));
                let cob = self.names.cob(&budget);
                self.limits.tokens.limit(cob, at_most);
                self.out.record(Body::Ordered(OrderRecord::LimitBudget(budget, at_most)));
                self.objects.touch(cob);
            }
            Order::RaiseBudget(budget, tokens) => {
                let cob = self.names.cob(&budget);
                self.limits.tokens.raise(cob, tokens);
                self.out.record(Body::Ordered(OrderRecord::RaiseBudget(budget, tokens)));
                self.objects.touch(cob);
            }
            Order::Retry(cob) => self.on_object(&cob.clone(), now, |o, cx| {
                o.renew();
                if o.state_id().is_none() {
                    o.check_now(cx);
                }
                cx.record(Body::Ordered(OrderRecord::Retry(cob)));
            }),
            Order::Stop(cob, stopped) => self.on_object(&cob, now, |o, cx| o.stop(cx, stopped)),
            Order::Start(cob) => self.on_object(&cob, now, |o, cx| o.start(cx)),
            Order::Fence(host) => self.fence(&host, now),
            Order::InvalidateGrants(hosts) => self.invalidate_grants(&hosts, now),
            Order::MarkDeparted(cob) => self.declare_departed(cob, now),
        }
    }

    /// Records an order that concerns all change objects, which decide again.
    fn ordered_for_all(&mut self, order: OrderRecord) {
        self.out.record(Body::Ordered(order));
        self.objects.touch_active();
    }

    /// If a slot is free, lets the first change object that waits for a slot decide with it.
    fn start_next(&mut self, now: Time) -> bool {
        let Some(cob) = self.limits.starts.next(self.objects.acting()) else { return false };
        if let Some(slot) = self.objects.slot(cob) {
            self.decide(slot, true, now);
        }
        true
    }

    fn deliver(&mut self, mail: Mail, now: Time) {
        self.handled += 1;
        let host = self.names.host_of(mail.to);
        if host != HostRef::HERE {
            match self.answer_for_fenced(&mail) {
                Some(answer) => self.out.post(answer),
                None => self.out.send(host, self.as_item(&mail)),
            }
            return;
        }
        let Mail { from, to, .. } = mail;
        if self.objects.slot(to).is_none() {
            self.answer_for_absent(mail, now);
            return;
        }
        let onward = self.with(to, now, |o, cx| {
            match mail.msg {
                Msg::Request(asked) => o.on_request(cx, from, asked),
                Msg::Release(number) => o.on_release(cx, from, number),
                Msg::Released(number) => o.on_released(from, number),
                Msg::Grant(granted) => o.on_grant(cx, from, granted),
                Msg::Recall(number) => o.on_recall(cx, from, number),
                Msg::Query(number) => o.on_query(cx, from, number),
                Msg::Invalidated(number) => o.on_invalidated(cx, from, number),
                Msg::Refused { number, refusal } => o.on_refused(from, number, refusal),
                Msg::Probe(probe) => return o.on_probe(cx, from, probe),
            }
            None
        });
        if let Some(probe) = onward.flatten() {
            self.lead_to_departing(to, probe, now);
        }
    }

    /// A wait for a change object of the next generation is a wait for the departures before that generation.
    fn lead_to_departing(&mut self, awaited: CobRef, mut probe: Probed, now: Time) {
        let pending = self.departures.pending.as_ref().filter(|_| self.probing.may_pass(now));
        let Some(pending) = pending else { return };
        let open: Vec<CobRef> = pending.open().iter().copied().take(if probe.wide { usize::MAX } else { 1 }).collect();
        probe.path.push(awaited);
        self.probing.pass(open.len());
        for cob in open {
            let probe = probe.clone();
            self.with(cob, now, |o, cx| o.lead_on(cx, awaited, probe));
        }
    }

    fn fire_timers(&mut self, now: Time) {
        while let Some((at, timer)) = self.timers.pop_due(now) {
            match timer {
                Timer::Hello(host) => self.hello_timer(host),
                Timer::Question(host) => self.question_timer(host, at, now),
                Timer::Departed => self.departed_timer(at, now),
                Timer::Object(slot) => {
                    if let Some(cob) = self.objects.woken(slot as usize, at) {
                        self.with(cob, now, |o, cx| o.wake(cx));
                    }
                }
            }
        }
    }
}
