//! The engine: routes events to change objects, routes their messages to each other or to peers, and collects the
//! effects.
//!
//! A tick applies the event, then delivers messages between change objects of this host and lets every touched change
//! object decide, until the queue is empty. Deadlines are in a heap: no event costs a scan of all change objects.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use cob_types::{CobId, GenerationNumber, HostName, Incarnation, Item, Number, StateName};

use crate::adopt::ActiveBundle;
use crate::departed::DepartedObjects;
use crate::departures::{Owed, PendingSwitch};
use crate::effect::Run;
use crate::event::Order;
use crate::justify::Justification;
use crate::limit::Limit;
use crate::mail::{Mail, Msg, Probed};
use crate::names::{CobRef, HostRef, Names, StateId};
use crate::object::decide::Scratch;
use crate::object::probe::Probing;
use crate::object::{Activity, Cx, Object, Out};
use crate::peers::Peer;
use crate::record::{Body, OrderRecord};
use crate::time::Time;

mod turn;

const NOWHERE: u32 = u32::MAX;

/// The change objects of a host and all their knowledge.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) names: Names,
    pub(crate) here: HostRef,
    pub(crate) life: Incarnation,
    pub(crate) generation: GenerationNumber,
    /// The active bundle: the slots hold exactly its change objects.
    pub(crate) active: Option<ActiveBundle>,
    pub(crate) going: Option<PendingSwitch>,
    pub(crate) slots: Vec<Option<Object>>,
    /// Slots of departed change objects.
    pub(crate) free: Vec<u32>,
    /// Slots of change objects that are [not idle](Object::is_at_rest) after all have decided: only these need to
    /// handle an event that concerns all change objects.
    pub(crate) restless: BTreeSet<u32>,
    /// The number of activations in this incarnation.
    pub(crate) activations: u64,
    /// The slot of each change object of this host, by its number.
    slot_of: Vec<u32>,
    /// Departed change objects of this host, and the state in which they count as locked.
    pub(crate) gone: BTreeMap<CobRef, StateId>,
    /// The pre-remove states of departed change objects that were kept in another state.
    pub(crate) kept_from: BTreeMap<CobRef, StateId>,
    /// Grants of departed change objects.
    pub(crate) left: DepartedObjects,
    /// Departures that other hosts have asked about.
    pub(crate) owed: BTreeMap<HostRef, Owed>,
    /// The epoch of departures: the number of switches known to have been abandoned.
    pub(crate) turn: u64,
    /// The highest generation that this host has ever switched to.
    pub(crate) highest: GenerationNumber,
    /// An owed answer may have become possible.
    pub(crate) facts_changed: bool,
    /// A switch was abandoned elsewhere: the order of departures must be computed again.
    pub(crate) must_lay_out: bool,
    /// Requests for change objects that this host does not have yet: their generation may come.
    pub(crate) early: BTreeMap<(CobRef, CobRef), Mail>,
    pub(crate) peers: Vec<Peer>,
    dirty: VecDeque<u32>,
    pub(crate) timers: BinaryHeap<Reverse<(Time, Timer)>>,
    pub(crate) counter: u64,
    /// Events and messages handled in this incarnation.
    handled: u64,
    lamport: u64,
    pub(crate) paused: bool,
    /// The switch to this generation was cancelled: no transition starts.
    pub(crate) held: Option<GenerationNumber>,
    pub(crate) limit: Limit,
    /// Budgets of this host with an operator's token limit.
    pub(crate) limited: BTreeMap<CobRef, u32>,
    /// Budgets of this host with an operator's token number until the next generation.
    pub(crate) raised: BTreeMap<CobRef, u32>,
    pub(crate) out: Out,
    scratch: Scratch,
    pub(crate) send: Vec<(HostRef, Item)>,
    /// Hosts that get a message in this tick in any case.
    pub(crate) greet: BTreeSet<HostRef>,
    pub(crate) faults: Faults,
    unsettled: usize,
    pub(crate) probing: Probing,
    /// The data that justify requests of other hosts.
    pub(crate) justification: Justification,
    pub(crate) trusts_askers: bool,
    /// The number of other hosts' items dropped for lack of room.
    pub(crate) left_out: u64,
    activated: bool,
    /// In a tick that activates a generation, the previous generation, to which the earlier records belong. After a
    /// hand-over of records, the generation of the last of these records.
    came_from: Option<GenerationNumber>,
    /// Jobs that were decided before the activation in this tick.
    runs_first: Vec<Run>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Object(u32),
    Peer(u32),
    Ask(u32),
    GivenBack,
}

/// Faults that tests plant, to prove that the checks notice them. Without the feature `planted-faults` there are no
/// faults.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// No probe is ever sent.
    #[cfg(feature = "planted-faults")]
    pub no_probes: bool,
    /// Grants are sent without a record.
    #[cfg(feature = "planted-faults")]
    pub grants_not_durable: bool,
    /// A grant counts under any number.
    #[cfg(feature = "planted-faults")]
    pub takes_any_grant: bool,
    /// The hello does not name the locks of a running action.
    #[cfg(feature = "planted-faults")]
    pub hello_names_nothing: bool,
    /// A restart forgets a running action.
    #[cfg(feature = "planted-faults")]
    pub forgets_actions: bool,
    /// The locks under a grant are not recorded with it.
    #[cfg(feature = "planted-faults")]
    pub forgets_locks_under_grants: bool,
    /// A budget grants a token to every member.
    #[cfg(feature = "planted-faults")]
    pub gives_any_number: bool,
    /// A failed member releases its token if it still serves.
    #[cfg(feature = "planted-faults")]
    pub failed_give_tokens_back: bool,
    /// A restart forgets the token under which a member left its state.
    #[cfg(feature = "planted-faults")]
    pub forgets_tokens: bool,
    /// A departure does not wait for the departures before it.
    #[cfg(feature = "planted-faults")]
    pub ignores_after: bool,
    /// A host does not wait for departures on other hosts.
    #[cfg(feature = "planted-faults")]
    pub ignores_waits: bool,
    /// Releases by change objects of a reinstalled host are remembered under its old numbers.
    #[cfg(feature = "planted-faults")]
    pub keeps_numbers: bool,
    /// Repeated requests are never delayed.
    #[cfg(feature = "planted-faults")]
    pub asks_without_end: bool,
    /// A request of another host counts even if no dependency justifies it.
    #[cfg(feature = "planted-faults")]
    pub believes_any_asker: bool,
}

impl Engine {
    /// A fault is planted that lets records and engine differ.
    pub(crate) fn has_faults(&self) -> bool {
        self.faults.grants_not_durable()
            || self.faults.forgets_actions()
            || self.faults.takes_any_grant()
            || self.faults.forgets_tokens()
    }
}

macro_rules! faults {
    ($($name:ident),*) => {
        impl Faults {
            $(#[cfg(feature = "planted-faults")]
            pub(crate) fn $name(&self) -> bool {
                self.$name
            }
            #[cfg(not(feature = "planted-faults"))]
            pub(crate) const fn $name(&self) -> bool {
                false
            })*
        }
    };
}
faults!(
    no_probes,
    grants_not_durable,
    takes_any_grant,
    hello_names_nothing,
    forgets_actions,
    forgets_locks_under_grants,
    gives_any_number,
    failed_give_tokens_back,
    forgets_tokens,
    ignores_after,
    ignores_waits,
    keeps_numbers,
    asks_without_end,
    believes_any_asker
);

impl Engine {
    /// The engine of a host without a generation, in the first incarnation of its state folder.
    #[must_use]
    pub fn new(host: &HostName, life: Incarnation) -> Self {
        let mut names = Names::default();
        let here = names.host(host);
        Self {
            names,
            here,
            life,
            generation: GenerationNumber(0),
            active: None,
            going: None,
            slots: Vec::new(),
            free: Vec::new(),
            restless: BTreeSet::new(),
            activations: 0,
            slot_of: Vec::new(),
            gone: BTreeMap::new(),
            kept_from: BTreeMap::new(),
            left: DepartedObjects::default(),
            owed: BTreeMap::new(),
            turn: 0,
            highest: GenerationNumber(0),
            facts_changed: false,
            must_lay_out: false,
            early: BTreeMap::new(),
            peers: Vec::new(),
            dirty: VecDeque::new(),
            timers: BinaryHeap::new(),
            counter: 0,
            handled: 0,
            lamport: 0,
            paused: false,
            held: None,
            limit: Limit::default(),
            limited: BTreeMap::new(),
            raised: BTreeMap::new(),
            out: Out::default(),
            scratch: Scratch::default(),
            send: Vec::new(),
            greet: BTreeSet::new(),
            faults: Faults::default(),
            unsettled: 0,
            probing: Probing::default(),
            justification: Justification::default(),
            trusts_askers: false,
            left_out: 0,
            activated: false,
            came_from: None,
            runs_first: Vec::new(),
        }
    }

    /// Plants faults, for tests.
    #[cfg(feature = "planted-faults")]
    pub fn plant(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// When [`Event::Tick`](crate::Event::Tick) is due if no other event happens before.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The active generation; zero: none.
    #[must_use]
    pub fn generation(&self) -> GenerationNumber {
        self.generation
    }

    /// The generation of the pending switch.
    #[must_use]
    pub fn going_to(&self) -> Option<GenerationNumber> {
        self.going.as_ref().map(|g| g.target.generation)
    }

    /// The pending switch leads to an older generation than the active one.
    pub(crate) fn goes_back(&self) -> bool {
        self.going_to().is_some_and(|to| to < self.generation)
    }

    /// The number of events and messages handled in this incarnation.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// This incarnation of the daemon.
    #[must_use]
    pub fn life(&self) -> Incarnation {
        self.life
    }

    /// The epoch of departures: the number of switches known to have been abandoned.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// The Lamport number of messages sent now.
    #[must_use]
    pub fn lamport(&self) -> u64 {
        self.lamport
    }

    /// Advances the Lamport number past a message that the daemon handles.
    pub fn heard(&mut self, lamport: u64) {
        self.lamport = self.lamport.max(lamport).saturating_add(1);
    }

    /// No new transition starts on this host.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused || self.held.is_some()
    }

    /// An operator has paused this host, independent of a cancelled switch.
    #[must_use]
    pub fn is_paused_by_word(&self) -> bool {
        self.paused
    }

    /// The generation of the cancelled switch, as long as it pauses the host.
    #[must_use]
    pub fn held(&self) -> Option<GenerationNumber> {
        self.held
    }

    /// The most parallel transitions; `None`: no limit.
    #[must_use]
    pub fn limit(&self) -> Option<u32> {
        self.limit.at_most()
    }

    /// The number of tokens that the model gives a budget of this host; `None`: the host does not have this budget.
    #[must_use]
    pub fn tokens_of(&self, budget: &CobId) -> Option<u32> {
        self.object(self.names.find_cob(budget)?)?.spec.at_most
    }

    /// Budgets of this host with an operator's token limit.
    #[must_use]
    pub fn limited_budgets(&self) -> BTreeMap<CobId, u32> {
        self.budgets_here(&self.limited)
    }

    /// Budgets of this host with an operator's token number until the next generation.
    #[must_use]
    pub fn raised_budgets(&self) -> BTreeMap<CobId, u32> {
        self.budgets_here(&self.raised)
    }

    fn budgets_here(&self, tokens: &BTreeMap<CobRef, u32>) -> BTreeMap<CobId, u32> {
        let is_here = |cob: &CobRef| self.object(*cob).is_some_and(|o| o.spec.at_most.is_some());
        let here = tokens.iter().filter(|(cob, _)| is_here(cob));
        here.map(|(cob, tokens)| (self.names.cob_id(*cob).clone(), *tokens)).collect()
    }

    /// Every change object has converged to its preferred state, a generation is active, and no switch is pending; the
    /// states of observed change objects are known.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        self.active.is_some() && self.going.is_none() && self.unsettled == 0
    }

    /// The running actions, so that the daemon can wait for them after a restart.
    #[must_use]
    pub fn running_actions(&self) -> Vec<(CobId, Number)> {
        let running = self.slots.iter().flatten().filter_map(|o| match &o.activity {
            Activity::Acting(action) => Some((self.names.cob_id(o.me).clone(), action.job)),
            Activity::Idle | Activity::Checking { .. } => None,
        });
        running.collect()
    }

    /// The running actions with other content than the active generation has: the states before and after.
    #[must_use]
    pub fn actions_with_earlier_content(&self) -> Vec<(CobId, StateName, StateName)> {
        let found = self.restless().filter_map(|o| {
            let t = &o.spec.kind.transitions[usize::from(o.action_with_earlier_content()?.transition)];
            let name = |state| self.names.state_name(o.spec.kind.id(state)).clone();
            Some((self.names.cob_id(o.me).clone(), name(t.from), name(t.to)))
        });
        found.collect()
    }

    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled
    }

    pub(crate) fn set_counters(&mut self, lamport: u64) {
        self.lamport = lamport;
    }

    pub(crate) fn slot(&self, cob: CobRef) -> Option<usize> {
        let slot = *self.slot_of.get(cob.0 as usize)?;
        (slot != NOWHERE).then_some(slot as usize)
    }

    pub(crate) fn object(&self, cob: CobRef) -> Option<&Object> {
        self.slots[self.slot(cob)?].as_ref()
    }

    pub(crate) fn object_mut(&mut self, cob: CobRef) -> Option<&mut Object> {
        let slot = self.slot(cob)?;
        self.slots[slot].as_mut()
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.slots.iter().flatten()
    }

    /// Adds a change object, and delivers the requests that came before it.
    pub(crate) fn insert(&mut self, mut object: Object) {
        let (me, slot) = (object.me, self.free.pop().unwrap_or(self.slots.len() as u32));
        if self.slot_of.len() <= me.0 as usize {
            self.slot_of.resize(self.names.cob_count().max(me.0 as usize + 1), NOWHERE);
        }
        self.slot_of[me.0 as usize] = slot;
        object.requests = self.left.take(me).into_iter().map(Box::new).collect();
        object.given_back = self.left.take_given_back(me).into();
        object.restless = true;
        self.restless.insert(slot);
        match self.slots.get_mut(slot as usize) {
            Some(free) => *free = Some(object),
            None => self.slots.push(Some(object)),
        }
        self.unsettled += 1;
        self.gone.remove(&me);
        self.kept_from.remove(&me);
        self.deliver_early(me);
        self.touch(me);
    }

    /// Removes a change object.
    pub(crate) fn remove(&mut self, me: CobRef) -> Option<Object> {
        let slot = self.slot(me)?;
        self.slot_of[me.0 as usize] = NOWHERE;
        let object = self.slots[slot].take()?;
        self.free.push(slot as u32);
        self.restless.remove(&(slot as u32));
        if !object.is_settled() {
            self.unsettled -= 1;
        }
        self.limit.acting -= usize::from(object.acting());
        Some(object)
    }

    /// Queues a change object for a decision.
    pub(crate) fn touch(&mut self, cob: CobRef) {
        if let Some(slot) = self.slot(cob)
            && let Some(object) = self.slots[slot].as_mut()
            && !object.dirty
        {
            object.dirty = true;
            self.dirty.push_back(slot as u32);
        }
    }

    /// Runs `f` on a change object of this host, with its context, and lets it decide afterwards.
    pub(crate) fn with<R>(
        &mut self,
        cob: CobRef,
        now: Time,
        f: impl FnOnce(&mut Object, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let slot = self.slot(cob)?;
        let result = self.with_slot(slot, now, f);
        self.touch(cob);
        result
    }

    fn with_slot<R>(&mut self, slot: usize, now: Time, f: impl FnOnce(&mut Object, &mut Cx<'_>) -> R) -> Option<R> {
        let (paused, goes_back) = (self.is_paused(), self.goes_back());
        let object = self.slots[slot].as_mut()?;
        let (before, acted) = (object.is_settled(), object.acting());
        let mut cx = Cx {
            now,
            names: &self.names,
            here: self.here,
            generation: self.generation,
            paused,
            goes_back,
            limited: self.limit.at_most().is_some(),
            tokens: &self.limited,
            peers: &self.peers,
            raised: &self.raised,
            unsettled: self.unsettled,
            probing: &mut self.probing,
            activations: self.activations,
            start: self.life.start,
            counter: &mut self.counter,
            faults: &self.faults,
            out: &mut self.out,
            scratch: &mut self.scratch,
        };
        let result = f(object, &mut cx);
        match (before, object.is_settled()) {
            (true, false) => self.unsettled += 1,
            (false, true) => self.unsettled -= 1,
            (true, true) | (false, false) => {}
        }
        match (acted, object.acting()) {
            (false, true) => self.limit.acting += 1,
            (true, false) => self.limit.acting -= 1,
            (true, true) | (false, false) => {}
        }
        for (cob, rank) in self.out.ready.drain(..) {
            self.limit.wait(cob, rank);
        }
        Some(result)
    }

    fn on_object(&mut self, cob: &CobId, now: Time, f: impl FnOnce(&mut Object, &mut Cx<'_>)) {
        if let Some(cob) = self.names.find_cob(cob) {
            self.with(cob, now, f);
        }
    }

    fn order(&mut self, order: Order, now: Time) {
        match order {
            Order::Pause | Order::Resume => {
                self.paused = order == Order::Pause;
                self.held = self.held.filter(|_| self.paused);
                self.out.record(Body::Ordered(if self.paused { OrderRecord::Pause } else { OrderRecord::Resume }));
                self.touch_all();
            }
            Order::Cancel(generation) => {
                self.held = Some(generation);
                self.out.record(Body::Ordered(OrderRecord::Cancel(generation)));
                self.touch_all();
            }
            Order::Unhold => {
                if self.held.take().is_some() {
                    self.out.record(Body::Ordered(OrderRecord::Unhold));
                    self.touch_all();
                }
            }
            Order::Limit(at_most) => {
                self.limit.set(at_most);
                self.out.record(Body::Ordered(OrderRecord::Limit(self.limit.at_most())));
                self.touch_all();
            }
            Order::LimitBudget(budget, at_most) => {
                let at_most = at_most.map(|k| k.max(1));
                let cob = self.names.cob(&budget);
                match at_most {
                    Some(tokens) => self.limited.insert(cob, tokens),
                    None => self.limited.remove(&cob),
                };
                self.out.record(Body::Ordered(OrderRecord::LimitBudget(budget, at_most)));
                self.touch(cob);
            }
            Order::RaiseBudget(budget, tokens) => {
                let cob = self.names.cob(&budget);
                match tokens {
                    Some(tokens) => self.raised.insert(cob, tokens),
                    None => self.raised.remove(&cob),
                };
                self.out.record(Body::Ordered(OrderRecord::RaiseBudget(budget, tokens)));
                self.touch(cob);
            }
            Order::Retry(cob) => self.on_object(&cob.clone(), now, |o, cx| {
                o.renew();
                if o.state.is_none() {
                    o.check_at = cx.now;
                }
                cx.record(Body::Ordered(OrderRecord::Retry(cob)));
            }),
            Order::Stop(cob, stopped) => self.on_object(&cob, now, |o, cx| o.stop(cx, stopped)),
            Order::Start(cob) => self.on_object(&cob, now, |o, cx| o.start(cx)),
            Order::Fence(host) => self.fence(&host, now),
            Order::LetLapse(hosts) => self.let_lapse(&hosts, now),
            Order::DeclareFinal(cob) => self.declare_final(cob, now),
        }
    }

    /// If a slot is free, lets the first change object that waits for a slot decide with it.
    fn start_next(&mut self, now: Time) -> bool {
        let Some(cob) = self.limit.next() else { return false };
        if let Some(slot) = self.slot(cob) {
            let deadline = self.with_slot(slot, now, |o, cx| {
                cx.limited = false;
                o.decide(cx);
                o.deadline(cx)
            });
            if let Some(at) = deadline {
                self.schedule_object(slot, at);
                self.note_rest(slot);
            }
        }
        true
    }

    fn deliver(&mut self, mail: Mail, now: Time) {
        self.handled += 1;
        if self.names.host_of(mail.to) != self.here {
            if let Some(answer) = self.answer_for_fenced(&mail) {
                self.out.mail.push_back(answer);
                return;
            }
            let host = self.names.host_of(mail.to);
            let item = self.as_item(&mail);
            self.send.push((host, item));
            return;
        }
        let Mail { from, to, .. } = mail;
        if self.slot(to).is_none() {
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
                Msg::Lapsed(number) => o.on_lapsed(cx, from, number),
                Msg::Refused { number, reason } => o.on_refused(from, number, reason),
                Msg::Probe(probe) => return o.on_probe(cx, from, probe),
            }
            None
        });
        if let Some(probe) = onward.flatten() {
            self.lead_to_leaving(to, probe, now);
        }
    }

    /// A wait for a change object of the next generation is a wait for the departures before that generation.
    pub(crate) fn lead_to_leaving(&mut self, awaited: CobRef, mut probe: Probed, now: Time) {
        let Some(going) = self.going.as_ref().filter(|_| self.probing.may_pass(now)) else { return };
        let open: Vec<CobRef> = going.open.iter().copied().take(if probe.wide { usize::MAX } else { 1 }).collect();
        probe.path.push(awaited);
        self.probing.pass(open.len());
        for cob in open {
            let probe = probe.clone();
            self.with(cob, now, |o, cx| o.lead_on(cx, awaited, probe));
        }
    }

    fn schedule_object(&mut self, slot: usize, at: Time) {
        if let Some(object) = self.slots[slot].as_mut()
            && at < object.scheduled
        {
            object.scheduled = at;
            self.timers.push(Reverse((at, Timer::Object(slot as u32))));
        }
    }

    pub(crate) fn schedule_peer(&mut self, host: HostRef, at: Time) {
        self.timers.push(Reverse((at, Timer::Peer(host.0))));
    }

    fn fire_timers(&mut self, now: Time) {
        while let Some(Reverse((at, timer))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            match timer {
                Timer::Peer(host) => self.peer_timer(HostRef(host), now),
                Timer::Ask(host) => self.ask_timer(HostRef(host), at, now),
                Timer::GivenBack => self.given_back_timer(at, now),
                Timer::Object(slot) => {
                    let due = self.slots[slot as usize].as_mut().filter(|o| o.scheduled == at);
                    if let Some(object) = due {
                        object.scheduled = Time::NEVER;
                        let me = object.me;
                        self.with(me, now, |o, cx| o.wake(cx));
                    }
                }
            }
        }
    }
}
