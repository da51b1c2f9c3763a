//! The simulated cluster: hosts, network, the real states, and the event queue.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use cob_types::message::Values;
use cob_types::{
    Batch, Bundle, CobId, GenerationNumber, HostName, Incarnation, Number, Packed, StateName, SwitchOrder,
};

use crate::effect::{Effects, Run};
use crate::engine::Engine;
use crate::event::{ActionOutcome, Event, Order};
use crate::record::{Body, Durable, Note, Record};
use crate::sim::Random;
use crate::sim::config::{Config, Initial, Outcome};
use crate::sim::daemon::known_askers;
use crate::sim::queue::Queue;
use crate::sim::reality::{Begin, Reality, Thing};
use crate::sim::scene::Scene;
use crate::sim::script::Script;
use crate::sim::switching::{Bundles, Command, Orders};
use crate::sim::trace::describe_note;
use crate::time::{Span, Time};

mod churn;
mod forks;
mod hosts;
mod network;
#[cfg(feature = "scripted")]
#[path = "../../tests/scripted/world.rs"]
mod scripted;
mod supervise;
mod verdict;

use hosts::Hosts;
use supervise::{HostSwitch, Supervision};

pub use forks::{Happened, RunEnd};
pub use supervise::SupervisedSwitch;

#[derive(Clone)]
pub(super) struct Host {
    pub(super) name: HostName,
    /// Its bundle of every generation that was ordered.
    bundles: Bundles,
    /// The same in the form for the engine.
    packed: BTreeMap<GenerationNumber, Arc<Packed>>,
    /// Orders that are not on its record: repeated when it restarts.
    commands: VecDeque<Command>,
    /// The target of its last order.
    heading: GenerationNumber,
    /// It was ordered to roll back.
    turned: bool,
    /// Its active generation and target when `note_kept` last ran.
    kept_in: (GenerationNumber, GenerationNumber),
    /// `None`: the daemon is down.
    pub(super) engine: Option<Engine>,
    pub(super) incarnation: Incarnation,
    durable: Durable,
    /// Written, but not known to be on the disk.
    unsynced: Vec<Record>,
    /// Results of actions that ended, until their end is on record.
    results: BTreeMap<Number, ActionOutcome>,
    tick: Time,
    /// It has lost power since its daemon was last up.
    rebooted: bool,
    /// It was reinstalled, with an empty state folder.
    reinstalled: bool,
    /// The generation whose askers its daemon is looking for.
    looks_for: Option<GenerationNumber>,
    /// A crash cuts the next tick short, after this number of its parts.
    cut: Option<u8>,
    /// Its knowledge of a supervised switch.
    switch: HostSwitch,
}

impl Host {
    /// Its active generation: while its daemon is down, the generation on its disk.
    fn active(&self) -> GenerationNumber {
        self.engine.as_ref().map_or(self.durable.active, Engine::generation)
    }

    /// Its active bundle.
    fn active_bundle(&self) -> Option<&Bundle> {
        self.bundles.get(&self.active()).map(|b| &**b)
    }
}

#[derive(Debug, Clone)]
pub(super) enum Incident {
    Deliver { to: usize, batch: Batch },
    CheckDone { host: usize, start: u32, cob: CobId, job: Number },
    ActionDone { thing: usize, job: Number },
    Tick { host: usize },
    Crash { host: usize, cut: u8 },
    Return { host: usize },
    Askers { host: usize, generation: GenerationNumber },
    Supervise { host: usize },
}

/// A simulated cluster.
#[derive(Clone)]
pub struct World {
    config: Config,
    random: Random,
    pub(super) now: Time,
    pub(super) hosts: Hosts,
    /// Looked up, never iterated.
    pub(super) host_ix: HashMap<HostName, usize>,
    pub(super) reality: Reality,
    pub(super) queue: Queue<Incident>,
    /// Latest arrival on each link, for first-in-first-out delivery.
    last_arrival: HashMap<(usize, usize), Time>,
    in_process: Vec<String>,
    /// The orders of every ordered switch.
    orders: Orders,
    /// Whether the locks under a grant are checked as well. Not in a rollback: there a grant may be older than the lock
    /// dependency of the older generation.
    deep: bool,
    failures_left: u32,
    crashes_pending: u32,
    /// Messages since the last progress, and since when they are counted.
    talk: (u64, Time),
    /// The deviations of a script.
    pub(super) script: Script,
    pub(super) outcome: Outcome,
    trace: String,
    /// How hosts supervise their switch, if they do.
    supervision: Option<Supervision>,
    /// The events and effects of the present step, if they are collected.
    happened: Option<Happened>,
    /// The number of insertions into the queue when the last step began.
    step_began: u64,
}

impl Scene for World {
    fn state_of(&self, cob: &CobId) -> Option<&StateName> {
        Some(&self.reality.things[self.reality.find(cob)?].state)
    }

    fn generation_of(&self, host: &HostName) -> Option<GenerationNumber> {
        Some(self.hosts[*self.host_ix.get(host)?].active())
    }

    fn has_turned(&self, host: &HostName) -> bool {
        self.host_ix.get(host).is_some_and(|host| self.hosts[*host].turned)
    }
}

impl World {
    /// A cluster in which no host has a generation yet. Back ends named in `in_process` work inside the daemon.
    #[must_use]
    pub fn new(
        bundles: &BTreeMap<HostName, Arc<Bundle>>,
        initial: &Initial,
        in_process: &[&str],
        config: Config,
    ) -> Self {
        let mut random = Random::new(config.seed);
        let mut world = Self {
            random: random.clone(),
            now: Time(1_000_000_000),
            hosts: Hosts::default(),
            host_ix: HashMap::new(),
            reality: Reality::default(),
            queue: Queue::new(),
            last_arrival: HashMap::new(),
            in_process: in_process.iter().map(|s| (*s).to_owned()).collect(),
            orders: Orders::default(),
            deep: config.check,
            failures_left: config.failures,
            crashes_pending: config.crashes,
            talk: (0, Time(0)),
            script: Script::default(),
            outcome: Outcome::default(),
            trace: String::new(),
            supervision: None,
            happened: None,
            step_began: 0,
            config,
        };
        for name in bundles.keys() {
            world.add_host(name, random.bits());
        }
        let places: Vec<_> = bundles.values().cloned().collect();
        for bundle in places {
            world.add_things(&bundle, initial);
        }
        world.random = random;
        if world.config.limit_actions.is_some() {
            (0..world.hosts.len()).for_each(|h| world.event(h, Event::Order(Order::Limit(world.config.limit_actions))));
        }
        world
    }

    fn add_host(&mut self, name: &HostName, id: u64) {
        let incarnation = Incarnation { id, start: 1 };
        let mut engine = Engine::new(name, incarnation);
        engine.plant(self.config.faults.clone());
        self.host_ix.insert(name.clone(), self.hosts.len());
        self.hosts.push(Host {
            name: name.clone(),
            bundles: BTreeMap::new(),
            packed: BTreeMap::new(),
            commands: VecDeque::new(),
            heading: GenerationNumber(0),
            turned: false,
            kept_in: (GenerationNumber(0), GenerationNumber(0)),
            engine: Some(engine),
            incarnation,
            durable: Durable { incarnation: Some(incarnation), ..Durable::default() },
            unsynced: Vec::new(),
            results: BTreeMap::new(),
            tick: Time::NEVER,
            rebooted: false,
            reinstalled: false,
            looks_for: None,
            cut: None,
            switch: HostSwitch::default(),
        });
    }

    fn add_things(&mut self, bundle: &Bundle, initial: &Initial) {
        let host = self.host_ix.get(&bundle.host).copied().unwrap_or(0);
        for (id, cob) in &bundle.cobs {
            let Some(kind) = bundle.kinds.get(&cob.kind) else { continue };
            let state = match initial {
                Initial::PreRemove => None,
                Initial::Given(states) => states.get(id).cloned(),
            };
            // No daemon starts an observed change object.
            let begins = || if cob.observe { cob.preferred.clone() } else { kind.pre_remove.clone() };
            let state = state.unwrap_or_else(begins);
            self.reality.add(id, host, state, cob.fingerprint);
        }
    }

    /// Orders this generation on every host, with a switch order without waits.
    pub fn go(&mut self, generation: GenerationNumber, bundles: &BTreeMap<HostName, Arc<Bundle>>) {
        self.switch(&SwitchOrder::free(GenerationNumber(0), generation), bundles, false);
    }

    /// Orders a switch or rollback on every host. A host that is down gets it after its restart, after all earlier
    /// orders.
    pub fn switch(&mut self, order: &SwitchOrder, bundles: &BTreeMap<HostName, Arc<Bundle>>, back: bool) {
        self.orders.add(order);
        self.deep &= !back;
        for (name, bundle) in bundles {
            self.add_things(bundle, &Initial::PreRemove);
            let Some(host) = self.host_ix.get(name).copied() else { continue };
            let packed = Packed::of(bundle).expect("CBOR carries a bundle");
            self.hosts[host].packed.insert(order.to, Arc::new(packed));
            self.hosts[host].bundles.insert(order.to, bundle.clone());
            self.hosts[host].commands.push_back(Command { to: order.to, back });
            self.give_commands(host);
        }
    }

    /// Gives a host the pending orders, as long as it is up.
    fn give_commands(&mut self, host: usize) {
        while let (Some(command), true) =
            (self.hosts[host].commands.front().copied(), self.hosts[host].engine.is_some())
        {
            let h = &mut self.hosts[host];
            let (bundle, order) = (h.packed[&command.to].clone(), self.orders.between(h.active(), command.to));
            (h.heading, h.turned) = (command.to, command.back);
            self.note_kept(host);
            self.event(host, command.event(bundle, order, self.in_process.clone()));
            // A host that crashed during the order may not have recorded it.
            if self.hosts[host].engine.is_some() {
                self.hosts[host].commands.pop_front();
            }
        }
    }

    /// Updates the kept change objects after a change of generation.
    fn note_kept(&mut self, host: usize) {
        let h = &mut self.hosts[host];
        let at = (h.active(), h.heading);
        if std::mem::replace(&mut h.kept_in, at) != at {
            self.reality.note_kept(&h.bundles, at.into());
        }
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Runs from a first generation until all have converged and every planned crash has happened, or until a limit or
    /// a violation.
    pub fn run(&mut self) -> Outcome {
        self.plan_crashes();
        let end = self.now + self.config.limit;
        while self.outcome.violations.is_empty() && self.outcome.events < self.config.max_events {
            if self.crashes_pending == 0 && self.all_converged() {
                break;
            }
            let Some((at, what)) = self.queue.pop() else { break };
            if at > end {
                break;
            }
            self.happen_at(at, what);
        }
        self.conclude()
    }

    pub(super) fn conclude(&mut self) -> Outcome {
        self.outcome.end = self.now;
        self.outcome.converged = self.all_converged();
        self.outcome.troubles.clear();
        self.outcome.waits.clear();
        self.outcome.failed.clear();
        for host in self.hosts.iter() {
            let Some(engine) = &host.engine else { continue };
            for cob in engine.status(self.now) {
                self.outcome.troubles.extend(cob.trouble.into_iter().map(|t| (cob.id.clone(), t)));
                let attempts = cob.action.as_ref().map_or(1, |action| action.attempt);
                self.outcome.failed.extend(cob.failed.then(|| (cob.id.clone(), attempts)));
                self.outcome.waits.extend(cob.waits_for.into_iter().map(|w| (cob.id.clone(), w)));
            }
        }
        self.outcome.clone()
    }

    fn all_converged(&self) -> bool {
        self.hosts.iter().all(|h| h.engine.as_ref().is_some_and(Engine::is_converged))
            && self.reality.things.iter().all(|t| t.running.is_none())
    }

    fn push(&mut self, at: Time, what: Incident) {
        self.queue.push(at, what);
    }

    pub(super) fn happen_at(&mut self, at: Time, what: Incident) {
        self.now = self.now.max(at);
        self.outcome.events += 1;
        if !matches!(what, Incident::Deliver { .. } | Incident::Tick { .. }) {
            self.talk = (0, self.now);
        }
        self.happen(what);
    }

    pub(super) fn happen(&mut self, what: Incident) {
        match what {
            Incident::Deliver { to, mut batch } => {
                // Links end with their host: a message of a replaced machine does not arrive.
                let sender = self.host_ix.get(&batch.from).map(|from| self.hosts[*from].incarnation.id);
                if sender.is_none_or(|id| id == batch.incarnation.id) {
                    self.hear_of_switch(to, &mut batch);
                    self.event(to, Event::Received(batch));
                }
            }
            Incident::CheckDone { host, start, cob, job } => {
                if self.hosts[host].incarnation.start == start && self.hosts[host].engine.is_some() {
                    let found = self.reality.look(&cob, self.hosts[host].active_bundle());
                    self.event(host, Event::CheckEnded { cob, job, found });
                }
            }
            Incident::ActionDone { thing, job } => self.action_done(thing, job),
            Incident::Tick { host } => {
                if self.hosts[host].tick <= self.now {
                    self.hosts[host].tick = Time::NEVER;
                }
                self.event(host, Event::Tick);
            }
            Incident::Crash { host, cut } => {
                self.crashes_pending = self.crashes_pending.saturating_sub(1);
                if self.hosts[host].engine.is_some() && self.hosts[host].cut.is_none() {
                    if cut == 0 {
                        self.crash(host);
                    } else {
                        self.hosts[host].cut = Some(cut);
                        // An idle daemon is killed all the same.
                        self.crashes_pending += 1;
                        self.push(self.now + Span::millis(50), Incident::Crash { host, cut: 0 });
                    }
                }
            }
            Incident::Return { host } => {
                self.end_outage(host);
                self.come_back(host);
            }
            Incident::Supervise { host } => self.look_after_switch(host),
            Incident::Askers { host, generation } => {
                let h = &mut self.hosts[host];
                h.looks_for = None;
                let askers = known_askers(h.packed.get(&generation).map(|bundle| &**bundle));
                self.event(host, Event::Askers { generation, askers });
            }
        }
    }

    fn action_done(&mut self, thing: usize, job: Number) {
        if self.reality.things[thing].running.as_ref().is_none_or(|r| r.job != job) {
            return;
        }
        let running = self.reality.things[thing].running.as_ref();
        let becomes = running.and_then(|r| self.script.fails(thing, &r.from, &r.to));
        let told_to_fail = self.script.must_fail(thing) || becomes.is_some();
        let by_chance = self.failures_left > 0 && self.random.permille(self.config.fail);
        let fails = told_to_fail || by_chance;
        self.failures_left -= u32::from(by_chance);
        // A failed action may have succeeded anyway, or partly: a check finds out.
        let arrives = !fails || (by_chance && self.random.permille(500));
        self.reality.end(thing, arrives);
        if let Some(state) = becomes.flatten() {
            self.reality.things[thing].state = state;
        }
        let outcome = if fails {
            ActionOutcome::Failed { error: "simulated".to_owned(), conflict: false }
        } else {
            ActionOutcome::Done { values: Values::new() }
        };
        let Thing { id: cob, host, .. } = self.reality.things[thing].clone();
        self.line(|w| format!("end {cob} {} {}", w.reality.things[thing].state, if fails { "failed" } else { "ok" }));
        self.hosts[host].results.insert(job, outcome.clone());
        self.event(host, Event::ActionEnded { cob, job, outcome, span: (0, 0) });
    }

    /// A tick of a daemon: the event, then its effects, perhaps cut short by a crash.
    pub(super) fn event(&mut self, host: usize, event: Event) {
        let now = self.now;
        let Some(engine) = self.hosts[host].engine.as_mut() else { return };
        let was = engine.generation();
        if let Some(happened) = &mut self.happened {
            happened.hosts.push(host);
        }
        let effects = engine.handle(event, now);
        self.perform(host, was, effects);
        self.note_kept(host);
        let h = &mut self.hosts[host];
        let wanted = h.engine.as_ref().and_then(Engine::wanted_askers);
        if let Some(generation) = wanted.filter(|wanted| h.looks_for != Some(*wanted)) {
            h.looks_for = wanted;
            self.push(now + Span::millis(1), Incident::Askers { host, generation });
        }
        self.look_after_switch(host);
    }

    /// `was`: the host's generation before the tick.
    fn perform(&mut self, host: usize, was: GenerationNumber, effects: Effects) {
        let cut = if effects.is_empty() { None } else { self.hosts[host].cut.take() };
        if cut == Some(1) {
            self.crash(host);
            return;
        }
        self.persist(host, effects.persist);
        self.verify(host);
        if cut == Some(2) {
            self.crash(host);
            return;
        }
        self.send(host, effects.send);
        if cut == Some(3) {
            self.crash(host);
            return;
        }
        for run in effects.run_first {
            self.start(host, Some(was), run);
        }
        for run in effects.run {
            self.start(host, None, run);
        }
        if cut.is_some() {
            self.crash(host);
            return;
        }
        self.plan_tick(host);
    }

    fn plan_tick(&mut self, host: usize) {
        let Some(at) = self.hosts[host].engine.as_ref().and_then(Engine::next_wakeup) else { return };
        let at = at.max(self.now);
        if at < self.hosts[host].tick {
            self.hosts[host].tick = at;
            self.push(at, Incident::Tick { host });
        }
    }

    fn persist(&mut self, host: usize, records: Vec<Record>) {
        let durable = records.iter().any(|r| r.body.must_be_durable());
        let returned = |r: &&Record| matches!(r.body, Body::Returned { .. });
        let returned: Vec<Record> = records.iter().filter(returned).cloned().collect();
        if let Some(happened) = self.happened.as_mut().filter(|_| durable) {
            happened.recorded.push(host);
        }
        for record in &records {
            self.hear_record(host, record);
            if let Body::Activated(generation) = record.body
                && generation > GenerationNumber(1)
            {
                self.line(|w| format!("{} activates {generation}", w.hosts[host].name));
            }
            self.reality.note(record);
            if let Body::Note { cob, note } = &record.body {
                self.outcome.ordered += u64::from(*note == Note::Ordered);
                self.outcome.overdrawn += u64::from(matches!(note, Note::Overdrawn { .. }));
                if let Some(text) = describe_note(cob, note) {
                    self.line(|_| text);
                }
            }
        }
        let host = &mut self.hosts[host];
        host.unsynced.extend(records);
        if durable {
            for record in host.unsynced.drain(..) {
                if let Body::Ended { job, .. } = &record.body {
                    host.results.remove(job);
                }
                host.durable.apply(&record);
            }
        }
        for record in returned {
            if let Some(breach) = self.token_of_a_failed_member(&record) {
                self.violation(breach);
            }
        }
    }

    /// `was`: the generation of the job, if that is not the active one any more.
    fn start(&mut self, host: usize, was: Option<GenerationNumber>, run: Run) {
        match run {
            Run::Check { cob, job } => {
                let (low, high) = self.config.check_us;
                let at = self.now + Span(self.random.between(low, high) * 1000);
                let start = self.hosts[host].incarnation.start;
                self.push(at, Incident::CheckDone { host, start, cob, job });
            }
            Run::Action { cob, job, from, to, .. } => self.start_action(was, cob, job, from, to),
        }
    }

    fn start_action(&mut self, was: Option<GenerationNumber>, cob: CobId, job: Number, from: StateName, to: StateName) {
        let Some(thing) = self.reality.find(&cob) else { return };
        self.line(|_| format!("start {cob} {from} -> {to}"));
        if let Some(happened) = &mut self.happened {
            happened.started.push(thing);
        }
        self.outcome.actions.push((self.now, cob, from.clone(), to.clone()));
        let here = self.reality.things[thing].host;
        // Until it receives a reinstalled host's hello, this host may still rely on grants of its predecessor.
        let unheard = |host: usize| {
            let Host { name, incarnation, reinstalled, .. } = &self.hosts[host];
            let knows = |engine: &Engine| engine.incarnation_of(name) == Some(*incarnation);
            *reinstalled && host != here && !self.hosts[here].engine.as_ref().is_some_and(knows)
        };
        let void: Vec<usize> = (0..self.hosts.len()).filter(|host| unheard(*host)).collect();
        let begin = Begin { thing, job, from: &from, to: &to, deep: self.deep, void: &void };
        // Jobs started before the activation in a tick belong to the previous generation.
        let active = |host: usize| match was.filter(|_| host == here) {
            Some(was) => self.hosts[host].bundles.get(&was).map(|bundle| &**bundle),
            None => self.hosts[host].active_bundle(),
        };
        let begun = self.reality.begin(&begin, active);
        for breach in begun.err().unwrap_or_default() {
            self.violation(breach);
        }
        self.count_running(thing);
        let (low, high) = self.config.action_us;
        let by_chance = Span(self.random.between(low, high) * 1000);
        let at = self.now + self.script.lasts(thing).unwrap_or(by_chance);
        self.push(at, Incident::ActionDone { thing, job });
    }

    pub(super) fn line(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.config.trace {
            let text = text(self);
            let at = self.now.0.saturating_sub(1_000_000_000) / 1000;
            let _ = writeln!(self.trace, "{at:>9} us  {text}");
        }
    }
}
