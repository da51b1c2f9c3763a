//! A small cluster for exploration: engines, their disks, the real states, the messages under way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cob_engine::canonical::Form;
use cob_engine::effect::{Effects, Run};
use cob_engine::engine::{Engine, invariants};
use cob_engine::event::{ActionOutcome, Event};
use cob_engine::record::{Body, Durable, Record};
use cob_engine::sim::{
    Begin, Bundles, Command, Orders, Reality, Restart, Scene, batches, describe as describe_item, known_askers,
};
use cob_engine::time::{Span, Time};
use cob_types::message::Values;
use cob_types::{Batch, Bundle, CobId, GenerationNumber, HostName, Incarnation, Item, Number, Packed, StateName};

use super::{Judge, Plan};

/// Longer than any interval of repeats.
const A_WHILE: Span = Span::secs(61);
/// Long after all default times.
const BEGIN: Time = Time(1_000_000_000_000);

pub(super) const FIRST: GenerationNumber = GenerationNumber(1);
pub(super) const SECOND: GenerationNumber = GenerationNumber(2);

/// The constants of an exploration.
pub(super) struct Setting<'a> {
    pub(super) plan: &'a Plan,
    /// By host.
    pub(super) bundles: Vec<Bundles>,
    /// The same in the form for the engine.
    pub(super) packed: Vec<BTreeMap<GenerationNumber, Arc<Packed>>>,
    /// The order of the switch, and of its rollback.
    pub(super) orders: Orders,
    pub(super) judge: Option<&'a dyn Judge>,
}

/// A state of the cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) now: Time,
    pub(super) daemons: Vec<Daemon>,
    pub(super) reality: Reality,
    /// Under way, by sender and receiver.
    links: BTreeMap<(usize, usize), VecDeque<Batch>>,
    checks: Vec<(usize, CobId, Number)>,
    pub(super) losses: u8,
    pub(super) restarts: u8,
    pub(super) failures: u8,
    /// A switch was ordered.
    switching: bool,
    /// Its rollback was ordered.
    pub(super) turned: bool,
}

#[derive(Clone)]
pub(super) struct Daemon {
    name: HostName,
    engine: Engine,
    /// On the disk.
    synced: Durable,
    /// Written, but not all of it known to be on the disk.
    written: Durable,
    /// Results of actions that ended, until their end is on record.
    results: BTreeMap<Number, ActionOutcome>,
    /// Orders that it has yet to get.
    commands: VecDeque<Command>,
    /// The target of its last order.
    heading: GenerationNumber,
    /// It was ordered to roll back.
    turned: bool,
}

/// A possible step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    /// The daemon dies in its tick: after writing (1), or also after sending (2).
    pub(super) cut: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepKind {
    Deliver {
        from: usize,
        to: usize,
        at: usize,
    },
    Lose {
        from: usize,
        to: usize,
        at: usize,
    },
    Check {
        at: usize,
    },
    End {
        thing: usize,
        fails: bool,
    },
    /// With all written records, or only with the records known to be on the disk.
    Restart {
        host: usize,
        all: bool,
    },
    /// The next order of a switch reaches a host.
    Tell {
        host: usize,
    },
    /// The rollback is ordered, everywhere.
    TurnBack,
    Wait,
}

impl<'a> Setting<'a> {
    pub(super) fn new(plan: &'a Plan, bundles: Vec<Bundles>, orders: Orders, judge: Option<&'a dyn Judge>) -> Self {
        let packed = |bundle: &Arc<Bundle>| Arc::new(Packed::decoded(bundle));
        let of_host = |bundles: &Bundles| bundles.iter().map(|(at, bundle)| (*at, packed(bundle))).collect();
        let packed = bundles.iter().map(of_host).collect();
        Self { plan, bundles, packed, orders, judge }
    }

    /// The first generation, after the first checks.
    pub(super) fn begin(&self, initial: &BTreeMap<CobId, StateName>) -> Result<Cluster, String> {
        let mut cluster = Cluster {
            now: BEGIN,
            daemons: Vec::new(),
            reality: Reality::default(),
            links: BTreeMap::new(),
            checks: Vec::new(),
            losses: self.plan.losses,
            restarts: self.plan.restarts,
            failures: self.plan.failures,
            switching: false,
            turned: false,
        };
        for (host, bundles) in self.bundles.iter().enumerate() {
            let name = bundles[&FIRST].host.clone();
            let life = Incarnation { id: host as u64 + 1, start: 1 };
            let mut synced = Durable::default();
            synced.incarnation = Some(life);
            let mut engine = Engine::new(&name, life);
            engine.plant(self.plan.faults.clone());
            let (written, results, commands) = (synced.clone(), BTreeMap::new(), VecDeque::new());
            cluster.daemons.push(Daemon {
                name,
                engine,
                synced,
                written,
                results,
                commands,
                heading: FIRST,
                turned: false,
            });
            for bundle in bundles.values() {
                for (id, cob) in &bundle.cobs {
                    let state = initial.get(id).unwrap_or(&bundle.kinds[&cob.kind].pre_remove);
                    cluster.reality.add(id, host, state.clone(), cob.fingerprint);
                }
            }
        }
        for host in 0..self.bundles.len() {
            self.tell(&mut cluster, host, Command { to: FIRST, back: false }, 0)?;
        }
        // The first checks are not explored separately.
        while !cluster.checks.is_empty() {
            self.take(&mut cluster, Step { kind: StepKind::Check { at: 0 }, cut: 0 })?;
        }
        Ok(cluster)
    }

    /// The first generation when it is idle, reached by a single run; then a switch is ordered.
    pub(super) fn begin_switch(&self, initial: &BTreeMap<CobId, StateName>) -> Result<Cluster, String> {
        let mut cluster = self.begin(initial)?;
        let mut steps = 0;
        while !(cluster.is_quiet() && cluster.has_converged()) {
            let all = self.steps(&cluster);
            let next =
                all.iter().find(|s| s.cut == 0 && !matches!(s.kind, StepKind::Lose { .. } | StepKind::Restart { .. }));
            let next = next.filter(|_| steps < 10_000).ok_or("the first generation does not converge")?;
            self.take(&mut cluster, *next)?;
            steps += 1;
        }
        cluster.switching = true;
        for daemon in &mut cluster.daemons {
            daemon.synced.clone_from(&daemon.written);
            daemon.commands.push_back(Command { to: SECOND, back: false });
        }
        Ok(cluster)
    }

    /// All possible steps in a state.
    pub(super) fn steps(&self, cluster: &Cluster) -> Vec<Step> {
        let mut all = Vec::new();
        for (&(from, to), link) in &cluster.links {
            let reach = if self.plan.any_order { link.len() } else { link.len().min(1) };
            for at in 0..reach {
                all.push(StepKind::Deliver { from, to, at });
                if cluster.losses > 0 {
                    all.push(StepKind::Lose { from, to, at });
                }
            }
        }
        all.extend((0..cluster.checks.len()).map(|at| StepKind::Check { at }));
        for thing in (0..cluster.reality.things.len()).filter(|t| cluster.reality.things[*t].running.is_some()) {
            all.push(StepKind::End { thing, fails: false });
            if cluster.failures > 0 {
                all.push(StepKind::End { thing, fails: true });
            }
        }
        let untold = (0..cluster.daemons.len()).filter(|h| !cluster.daemons[*h].commands.is_empty());
        all.extend(untold.map(|host| StepKind::Tell { host }));
        if self.plan.back && cluster.switching && !cluster.turned {
            all.push(StepKind::TurnBack);
        }
        if cluster.is_quiet() && !cluster.has_converged() && cluster.next_wakeup().is_some() {
            all.push(StepKind::Wait);
        }
        let mut steps: Vec<Step> = all.iter().map(|kind| Step { kind: *kind, cut: 0 }).collect();
        if cluster.restarts > 0 {
            for host in 0..cluster.daemons.len() {
                steps.push(Step { kind: StepKind::Restart { host, all: true }, cut: 0 });
                if cluster.daemons[host].synced != cluster.daemons[host].written {
                    steps.push(Step { kind: StepKind::Restart { host, all: false }, cut: 0 });
                }
            }
            let turns =
                all.iter().filter(|w| !matches!(w, StepKind::Lose { .. } | StepKind::TurnBack | StepKind::Wait));
            steps.extend(turns.flat_map(|kind| [1, 2].map(|cut| Step { kind: *kind, cut })));
        }
        steps
    }

    /// Takes a step. Returns false if it is not a separate step.
    pub(super) fn take(&self, cluster: &mut Cluster, step: Step) -> Result<bool, String> {
        match step.kind {
            StepKind::Deliver { from, to, at } => match cluster.unlink(from, to, at) {
                Some(batch) => self.turn(cluster, to, Event::Received(batch), step.cut),
                None => Ok(false),
            },
            StepKind::Lose { from, to, at } => {
                cluster.losses -= 1;
                Ok(cluster.unlink(from, to, at).is_some())
            }
            StepKind::Check { at } => {
                let (host, cob, job) = cluster.checks.remove(at);
                let active = self.bundles[host].get(&cluster.daemons[host].engine.generation());
                let found = cluster.reality.look(&cob, active.map(|b| &**b));
                self.turn(cluster, host, Event::CheckEnded { cob, job, found }, step.cut)
            }
            StepKind::End { thing, fails } => self.end(cluster, thing, fails, step.cut),
            StepKind::Restart { host, all } => {
                let daemon = &mut cluster.daemons[host];
                if all {
                    daemon.synced = daemon.written.clone();
                }
                self.restart(cluster, host).map(|()| true)
            }
            StepKind::Tell { host } => match cluster.daemons[host].commands.pop_front() {
                Some(command) => self.tell(cluster, host, command, step.cut),
                None => Ok(false),
            },
            StepKind::TurnBack => {
                cluster.turned = true;
                let back = Command { to: FIRST, back: true };
                cluster.daemons.iter_mut().for_each(|d| d.commands.push_back(back));
                Ok(true)
            }
            StepKind::Wait => {
                cluster.now = cluster.now + A_WHILE;
                for host in 0..cluster.daemons.len() {
                    if cluster.daemons[host].engine.next_wakeup().is_some_and(|at| at <= cluster.now) {
                        self.turn(cluster, host, Event::Tick, 0)?;
                    }
                }
                Ok(true)
            }
        }
    }

    fn tell(&self, cluster: &mut Cluster, host: usize, command: Command, cut: u8) -> Result<bool, String> {
        let generation = command.to;
        let Some(bundle) = self.packed[host].get(&generation).cloned() else { return Ok(false) };
        let daemon = &mut cluster.daemons[host];
        let order = self.orders.between(daemon.engine.generation(), generation);
        (daemon.heading, daemon.turned) = (generation, command.back);
        self.note_kept(cluster, host);
        self.turn(cluster, host, command.event(bundle, order, Vec::new()), cut)
    }

    fn note_kept(&self, cluster: &mut Cluster, host: usize) {
        let daemon = &cluster.daemons[host];
        cluster.reality.note_kept(&self.bundles[host], [daemon.engine.generation(), daemon.heading]);
    }

    fn end(&self, cluster: &mut Cluster, thing: usize, fails: bool, cut: u8) -> Result<bool, String> {
        let there = &cluster.reality.things[thing];
        let (host, cob) = (there.host, there.id.clone());
        let Some(job) = there.running.as_ref().map(|r| r.job) else { return Ok(false) };
        cluster.failures -= u8::from(fails);
        cluster.reality.end(thing, !fails);
        let outcome = if fails {
            ActionOutcome::Failed { error: "explored".to_owned(), conflict: false }
        } else {
            ActionOutcome::Done { values: Values::new() }
        };
        cluster.daemons[host].results.insert(job, outcome.clone());
        self.turn(cluster, host, Event::ActionEnded { cob, job, outcome, span: (0, 0) }, cut)
    }

    /// A tick of a daemon, perhaps cut short.
    fn turn(&self, cluster: &mut Cluster, host: usize, event: Event, cut: u8) -> Result<bool, String> {
        let was = cluster.daemons[host].engine.generation();
        let now = cluster.now;
        let engine = &mut cluster.daemons[host].engine;
        let mut effects = engine.handle(event, now);
        // The search for askers takes no time that others could notice.
        while let Some(generation) = engine.wanted_askers() {
            let askers = known_askers(self.packed[host].get(&generation).map(|bundle| &**bundle));
            effects.extend(engine.handle(Event::Askers { generation, askers }, now));
        }
        self.perform(cluster, host, was, effects, cut)
    }

    /// `was`: the host's generation before the tick.
    fn perform(
        &self,
        cluster: &mut Cluster,
        host: usize,
        was: GenerationNumber,
        effects: Effects,
        cut: u8,
    ) -> Result<bool, String> {
        let Effects { persist, send, run_first, run, .. } = effects;
        let pointless = match cut {
            0 => false,
            1 => send.is_empty() && run_first.is_empty() && run.is_empty(),
            _ => run_first.is_empty() && run.is_empty(),
        };
        if pointless {
            return Ok(false);
        }
        persist.iter().for_each(|record| cluster.reality.note(record));
        if self.plan.restarts > 0 {
            cluster.daemons[host].persist(&persist);
        }
        let daemon = &cluster.daemons[host];
        self.verify(daemon)?;
        if let Some(judge) = self.judge
            && (was, daemon.engine.generation()) == (FIRST, SECOND)
        {
            judge.goes_on(&daemon.name, cluster)?;
        }
        if cut != 1 {
            cluster.send(host, send);
        }
        if cut != 0 {
            return self.restart(cluster, host).map(|()| true);
        }
        // Jobs started before the activation in a tick belong to the previous generation.
        for run in run_first {
            self.start(cluster, host, was, run)?;
        }
        let now = cluster.daemons[host].engine.generation();
        for run in run {
            self.start(cluster, host, now, run)?;
        }
        self.note_kept(cluster, host);
        Ok(true)
    }

    fn verify(&self, daemon: &Daemon) -> Result<(), String> {
        invariants::check(&daemon.engine)?;
        invariants::refuses_no_honest_host(&daemon.engine, None)?;
        if self.plan.restarts > 0 && !self.plan.faults.let_records_differ() {
            invariants::agrees(&daemon.engine, &daemon.written)?;
        }
        Ok(())
    }

    fn start(&self, cluster: &mut Cluster, host: usize, by: GenerationNumber, run: Run) -> Result<(), String> {
        match run {
            Run::Check { cob, job } => cluster.checks.push((host, cob, job)),
            Run::Action { cob, job, from, to, .. } => {
                let thing = cluster.reality.find(&cob).ok_or("an action of a change object that is not there")?;
                if let Some(judge) = self.judge.filter(|_| cluster.switching && !cluster.turned) {
                    judge.moves(&cob)?;
                }
                let begin = Begin { thing, job, from: &from, to: &to, deep: !cluster.turned, void: &[] };
                let generations: Vec<_> = cluster.daemons.iter().map(|d| d.engine.generation()).collect();
                let active = |at: usize| {
                    let generation = if at == host { by } else { generations[at] };
                    self.bundles[at].get(&generation).map(|bundle| &**bundle)
                };
                let begun = cluster.reality.begin(&begin, active);
                begun.map_err(|breaches| breaches.join("; "))?;
            }
        }
        Ok(())
    }

    /// The daemon dies and restarts at once.
    fn restart(&self, cluster: &mut Cluster, host: usize) -> Result<(), String> {
        cluster.restarts -= 1;
        cluster.checks.retain(|c| c.0 != host);
        let now = cluster.now;
        let daemon = &mut cluster.daemons[host];
        daemon.written = daemon.synced.clone();
        let mut incarnation = daemon.engine.incarnation();
        incarnation.start += 1;
        let restart = Restart {
            name: &daemon.name,
            incarnation,
            durable: &daemon.synced,
            orders: &self.orders,
            in_process: &[],
            same_boot: true,
            faults: &self.plan.faults,
        };
        let (was, engine, effects) = restart.recover(|of| self.packed[host].get(&of).cloned(), now);
        let running = engine.running_actions();
        daemon.engine = engine;
        self.perform(cluster, host, was, effects, 0)?;
        for (cob, job) in running {
            if !cluster.reality.runs(&cob, job) {
                let outcome = cluster.daemons[host].results.get(&job).cloned().unwrap_or(ActionOutcome::Lost);
                self.turn(cluster, host, Event::ActionEnded { cob, job, outcome, span: (0, 0) }, 0)?;
            }
        }
        Ok(())
    }
}

impl Cluster {
    /// Only time can pass, or an order can arrive.
    pub(super) fn is_quiet(&self) -> bool {
        self.links.is_empty() && self.checks.is_empty() && self.reality.things.iter().all(|t| t.running.is_none())
    }

    pub(super) fn has_converged(&self) -> bool {
        self.daemons.iter().all(|d| d.engine.is_converged())
    }

    /// An order has yet to arrive, and will.
    pub(super) fn is_untold(&self) -> bool {
        self.daemons.iter().any(|d| !d.commands.is_empty())
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.daemons.iter().filter_map(|d| d.engine.next_wakeup()).min()
    }

    fn unlink(&mut self, from: usize, to: usize, at: usize) -> Option<Batch> {
        let link = self.links.get_mut(&(from, to))?;
        let batch = link.remove(at);
        if link.is_empty() {
            self.links.remove(&(from, to));
        }
        batch
    }

    fn send(&mut self, from: usize, send: Vec<(HostName, Item)>) {
        let Daemon { name, engine, .. } = &self.daemons[from];
        let find = |to: &HostName| self.daemons.iter().position(|d| d.name == *to);
        for (to, batch) in batches(name, engine, send, find) {
            self.links.entry((from, to)).or_default().push_back(batch);
        }
    }

    /// Adds all data that decides the future.
    pub(super) fn canonical(&self, form: &mut Form<'_>, any_order: bool) {
        for daemon in &self.daemons {
            daemon.engine.canonical(form, self.now);
            form.word(daemon.commands.len() as u64);
            form.word(daemon.heading.0);
            if self.restarts > 0 {
                daemon.synced.canonical(form, self.now);
                daemon.written.canonical(form, self.now);
                form.word(daemon.results.len() as u64);
            }
        }
        // A check may also be under way that no engine awaits any more: its change object has departed and come again.
        let counts = |c: &(usize, CobId, Number)| self.daemons[c.0].engine.awaits_check(&c.1, c.2);
        let mut checks: Vec<_> = self.checks.iter().map(|c| (c.0, &c.1, counts(c))).collect();
        checks.sort_unstable();
        form.word(checks.len() as u64);
        for (_, cob, counts) in checks {
            form.cob(cob);
            form.flags(&[counts]);
        }
        self.reality.canonical(form);
        form.flags(&[self.switching, self.turned]);
        let left = [self.losses, self.restarts, self.failures];
        left.iter().for_each(|n| form.word(u64::from(*n)));
        for (&(from, to), link) in &self.links {
            form.word((from as u64) << 32 | to as u64);
            form.batches(link.iter(), !any_order);
        }
    }

    /// A step from here, in words.
    pub(super) fn describe(&self, step: Step) -> String {
        let host = |ix: usize| &self.daemons[ix].name;
        let text = match step.kind {
            StepKind::Deliver { from, to, at } | StepKind::Lose { from, to, at } => {
                let items = self.links.get(&(from, to)).and_then(|l| l.get(at)).map(|b| &b.items);
                let items: Vec<_> = items.into_iter().flatten().map(describe_item).collect();
                let lost = if matches!(step.kind, StepKind::Lose { .. }) { "lost: " } else { "" };
                format!("{lost}{} -> {}: {}", host(from), host(to), items.join("; "))
            }
            StepKind::Check { at } => format!("checked {}", self.checks[at].1),
            StepKind::End { thing, fails } => {
                format!("{} {}", if fails { "failed" } else { "ended" }, self.reality.things[thing].id)
            }
            StepKind::Restart { host: ix, all } => {
                format!("{} restarts{}", host(ix), if all { "" } else { ", unsynced records are lost" })
            }
            StepKind::Tell { host: ix } => match self.daemons[ix].commands.front() {
                Some(command) => {
                    format!(
                        "{} gets the order to switch {}to {}",
                        host(ix),
                        if command.back { "back " } else { "" },
                        command.to
                    )
                }
                None => format!("{} gets no order", host(ix)),
            },
            StepKind::TurnBack => "the rollback is ordered".to_owned(),
            StepKind::Wait => "time passes".to_owned(),
        };
        match step.cut {
            0 => text,
            1 => format!("{text} (and the daemon dies before it sends)"),
            _ => format!("{text} (and the daemon dies before it starts a transition)"),
        }
    }
}

impl Scene for Cluster {
    fn state_of(&self, cob: &CobId) -> Option<&StateName> {
        Some(&self.reality.things[self.reality.find(cob)?].state)
    }

    fn generation_of(&self, host: &HostName) -> Option<GenerationNumber> {
        Some(self.daemons.iter().find(|d| d.name == *host)?.engine.generation())
    }

    fn has_turned(&self, host: &HostName) -> bool {
        self.daemons.iter().any(|d| d.name == *host && d.turned)
    }
}

impl Daemon {
    fn persist(&mut self, records: &[Record]) {
        for record in records {
            if let Body::Ended { job, .. } = &record.body {
                self.results.remove(job);
            }
            self.written.apply(record);
        }
        if records.iter().any(|r| r.body.must_be_durable()) {
            self.synced.clone_from(&self.written);
        }
    }
}
