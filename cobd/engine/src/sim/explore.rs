//! Every run of a small system: each order of deliveries and of ends of checks and actions, with so
//! many lost batches and killed daemons at every place where they can be.
//!
//! A depth-first search over clones of the engines. States that go on alike are visited once
//! ([`crate::canonical`]). Time passes only when nothing else can happen, and then a minute at once, so
//! that everything that is repeated at growing intervals is repeated. In every state the engines'
//! invariants and the safety of the real world are checked; and as the states are finitely many and
//! time passes only when nothing else can happen, *every* run comes to rest exactly if no run comes to
//! a state again in which somebody has not: this is looked for too.
//!
//! Own code rather than a model checker's: the states are the engines themselves, which no other
//! model has to be kept in step with, and merging them needs their canonical form anyway.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cob_types::message::Values;
use cob_types::{Batch, Bundle, CobId, GenerationNumber, HostName, Incarnation, Number, StateName, SwitchOrder};

use crate::canonical::{Form, Places};
use crate::effect::{Effects, Run};
use crate::engine::{Engine, Faults};
use crate::event::{ActionOutcome, Event};
use crate::invariants;
use crate::record::{Body, Durable, Record};
use crate::recover::Return;
use crate::sim::reality::{Begin, Reality};
use crate::sim::trace::describe as describe_item;
use crate::sim::world::{plant, recover};
use crate::time::{Span, Time};

/// Longer than any interval at which something is repeated.
const A_WHILE: Span = Span::secs(61);

/// What is explored.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Batches of one host to another may overtake each other.
    pub any_order: bool,
    /// So many batches get lost.
    pub losses: u8,
    /// So many daemons are killed, and return.
    pub restarts: u8,
    /// So many actions fail.
    pub failures: u8,
    /// Every run must come to rest with everybody where they prefer to be.
    pub must_converge: bool,
    /// No more states than these.
    pub max_states: usize,
    /// Planted faults.
    pub faults: Faults,
    /// Whether two states of one form do go on alike is looked at, each time that such are met.
    pub doubt: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            any_order: false,
            losses: 0,
            restarts: 0,
            failures: 0,
            must_converge: true,
            max_states: 100_000,
            faults: Faults::default(),
            doubt: false,
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Explored {
    /// States that do not go on alike.
    pub states: usize,
    /// Steps from one to another.
    pub steps: usize,
    /// The longest run.
    pub longest: usize,
    /// There were more states than allowed.
    pub cut: bool,
    /// What is wrong, and the run that shows it.
    pub wrong: Option<Wrong>,
}

/// A run that shows something wrong.
#[derive(Debug, Clone)]
pub struct Wrong {
    /// What.
    pub what: String,
    /// The run, a step a line.
    pub run: Vec<String>,
}

/// Explores every run of a first generation.
#[must_use]
pub fn explore(
    bundles: &BTreeMap<HostName, Arc<Bundle>>,
    initial: &BTreeMap<CobId, StateName>,
    plan: &Plan,
) -> Explored {
    let mut places = Places::default();
    for bundle in bundles.values() {
        for (id, cob) in &bundle.cobs {
            places.add(id, bundle.kinds[&cob.kind].states.iter());
        }
    }
    let all: Vec<Arc<Bundle>> = bundles.values().cloned().collect();
    let mut search = Search {
        plan,
        places,
        bundles: &all,
        visited: HashMap::new(),
        next: HashMap::new(),
        found: Explored::default(),
    };
    match search.begin(initial) {
        Ok(cluster) => search.run(cluster),
        Err(what) => search.found.wrong = Some(Wrong { what, run: Vec::new() }),
    }
    search.found
}

/// The search, and what it has seen.
struct Search<'a> {
    plan: &'a Plan,
    places: Places,
    bundles: &'a [Arc<Bundle>],
    /// By hash of the canonical form: whether the run under way has come through it.
    visited: HashMap<u128, bool>,
    /// In doubt: what each form goes on to.
    next: HashMap<u128, Vec<u128>>,
    found: Explored,
}

/// A state on the run under way, and what is left to try in it.
struct Frame {
    cluster: Cluster,
    hash: u128,
    left: Vec<Step>,
    /// How it was come to; none: it is the first.
    by: Option<Step>,
}

/// One state of the cluster.
#[derive(Clone)]
struct Cluster {
    now: Time,
    daemons: Vec<Daemon>,
    reality: Reality,
    /// Under way, by sender and receiver.
    links: BTreeMap<(usize, usize), VecDeque<Batch>>,
    checks: Vec<(usize, CobId, Number)>,
    losses: u8,
    restarts: u8,
    failures: u8,
}

#[derive(Clone)]
struct Daemon {
    name: HostName,
    engine: Engine,
    /// On the disk.
    synced: Durable,
    /// Written, but not all of it known to be on the disk.
    written: Durable,
    /// Of actions that ended, until their end is on record.
    results: BTreeMap<Number, ActionOutcome>,
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    what: What,
    /// The daemon that it concerns dies in its turn: after writing (1), or after sending as well (2).
    cut: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
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
    /// With all that was written, or only with what is known to be on the disk.
    Restart {
        host: usize,
        all: bool,
    },
    Wait,
}

impl Search<'_> {
    fn begin(&self, initial: &BTreeMap<CobId, StateName>) -> Result<Cluster, String> {
        let mut cluster = Cluster {
            now: Time(1_000_000_000),
            daemons: Vec::new(),
            reality: Reality::default(),
            links: BTreeMap::new(),
            checks: Vec::new(),
            losses: self.plan.losses,
            restarts: self.plan.restarts,
            failures: self.plan.failures,
        };
        for (host, bundle) in self.bundles.iter().enumerate() {
            let life = Incarnation { id: host as u64 + 1, start: 1 };
            let synced = Durable { life: Some(life), ..Durable::default() };
            let mut engine = Engine::new(&bundle.host, life);
            plant(&mut engine, &self.plan.faults);
            let (name, written) = (bundle.host.clone(), synced.clone());
            cluster.daemons.push(Daemon { name, engine, synced, written, results: BTreeMap::new() });
            for (id, cob) in &bundle.cobs {
                let state = initial.get(id).unwrap_or(&bundle.kinds[&cob.kind].pre_remove);
                cluster.reality.add(id, host, state.clone(), cob.fingerprint);
            }
        }
        for host in 0..self.bundles.len() {
            let bundle = self.bundles[host].clone();
            let order = Arc::new(SwitchOrder::free(GenerationNumber(0), GenerationNumber(1)));
            let go = Event::Go { generation: GenerationNumber(1), bundle, in_process: Vec::new(), order };
            self.turn(&mut cluster, host, go, 0)?;
        }
        // The first checks are no story of their own.
        while !cluster.checks.is_empty() {
            self.take(&mut cluster, Step { what: What::Check { at: 0 }, cut: 0 })?;
        }
        Ok(cluster)
    }

    fn run(&mut self, first: Cluster) {
        let mut run: Vec<Frame> = Vec::new();
        if let Some(frame) = self.visit(first, None, &run) {
            run.push(frame);
        }
        while let Some(top) = run.last_mut() {
            let Some(step) = top.left.pop() else {
                self.visited.insert(top.hash, false);
                run.pop();
                continue;
            };
            let mut next = top.cluster.clone();
            self.found.steps += 1;
            match self.take(&mut next, step) {
                Ok(false) => {}
                Ok(true) => {
                    if let Some(frame) = self.visit(next, Some(step), &run) {
                        run.push(frame);
                        self.found.longest = self.found.longest.max(run.len());
                    }
                }
                Err(what) => self.wrong(what, &run, Some(step)),
            }
            if self.found.wrong.is_some() || self.found.cut {
                return;
            }
        }
    }

    /// A state that was come to: a frame to go on from, unless it was visited before.
    fn visit(&mut self, cluster: Cluster, by: Option<Step>, run: &[Frame]) -> Option<Frame> {
        let hash = self.hash(&cluster);
        let left = self.steps(&cluster);
        if self.plan.doubt {
            let next = self.goes_on_to(&cluster, &left);
            if *self.next.entry(hash).or_insert_with(|| next.clone()) != next {
                self.wrong("it is merged with a state that goes on in another way".to_owned(), run, by);
                return None;
            }
        }
        let rests = left.iter().all(|s| s.what != What::Wait) && cluster.is_quiet() && cluster.has_converged();
        match self.visited.entry(hash) {
            Entry::Vacant(entry) => {
                entry.insert(true);
            }
            Entry::Occupied(entry) => {
                if *entry.get() && self.plan.must_converge && !rests {
                    self.wrong("it comes to the same state again and never to rest".to_owned(), run, by);
                }
                return None;
            }
        }
        self.found.states += 1;
        if self.found.states >= self.plan.max_states {
            self.found.cut = true;
            return None;
        }
        if left.is_empty() && !rests && self.plan.must_converge {
            self.wrong("nothing will ever happen, and somebody has not come to rest".to_owned(), run, by);
            return None;
        }
        Some(Frame { cluster, hash, left, by })
    }

    /// The forms of all that can come next.
    fn goes_on_to(&self, cluster: &Cluster, steps: &[Step]) -> Vec<u128> {
        let after = |step: &Step| {
            let mut next = cluster.clone();
            self.take(&mut next, *step).is_ok_and(|is_step| is_step).then(|| self.hash(&next))
        };
        let mut all: Vec<u128> = steps.iter().filter_map(after).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn wrong(&mut self, what: String, run: &[Frame], last: Option<Step>) {
        let steps = run.iter().skip(1).map(|f| f.by).chain([last]);
        let steps = run.iter().zip(steps).filter_map(|(before, step)| Some(describe(&before.cluster, step?)));
        self.found.wrong = Some(Wrong { what, run: steps.collect() });
    }

    fn hash(&self, cluster: &Cluster) -> u128 {
        let mut form = Form::new(&self.places);
        for daemon in &cluster.daemons {
            daemon.engine.canonical(&mut form, cluster.now);
            if cluster.restarts > 0 {
                daemon.synced.canonical(&mut form);
                daemon.written.canonical(&mut form);
                form.word(daemon.results.len() as u64);
            }
        }
        for thing in &cluster.reality.things {
            form.state(&thing.state);
            form.word(u64::from(thing.running.is_some()));
        }
        let left = [cluster.losses, cluster.restarts, cluster.failures];
        left.iter().for_each(|n| form.word(u64::from(*n)));
        for (&(from, to), link) in &cluster.links {
            form.word((from as u64) << 32 | to as u64);
            form.batches(link.iter(), !self.plan.any_order);
        }
        let words = form.finish();
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, &words).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(1) << 64 | half(2)
    }

    /// Everything that can happen in a state.
    fn steps(&self, cluster: &Cluster) -> Vec<Step> {
        let mut all = Vec::new();
        for (&(from, to), link) in &cluster.links {
            let reach = if self.plan.any_order { link.len() } else { link.len().min(1) };
            for at in 0..reach {
                all.push(What::Deliver { from, to, at });
                if cluster.losses > 0 {
                    all.push(What::Lose { from, to, at });
                }
            }
        }
        all.extend((0..cluster.checks.len()).map(|at| What::Check { at }));
        for thing in (0..cluster.reality.things.len()).filter(|t| cluster.reality.things[*t].running.is_some()) {
            all.push(What::End { thing, fails: false });
            if cluster.failures > 0 {
                all.push(What::End { thing, fails: true });
            }
        }
        if cluster.is_quiet() && !cluster.has_converged() && cluster.next_wakeup().is_some() {
            all.push(What::Wait);
        }
        let mut steps: Vec<Step> = all.iter().map(|what| Step { what: *what, cut: 0 }).collect();
        if cluster.restarts > 0 {
            for host in 0..cluster.daemons.len() {
                steps.push(Step { what: What::Restart { host, all: true }, cut: 0 });
                if cluster.daemons[host].synced != cluster.daemons[host].written {
                    steps.push(Step { what: What::Restart { host, all: false }, cut: 0 });
                }
            }
            let turns = all.iter().filter(|w| !matches!(w, What::Lose { .. } | What::Wait));
            steps.extend(turns.flat_map(|what| [1, 2].map(|cut| Step { what: *what, cut })));
        }
        steps
    }

    /// Takes a step. False: it is no step of its own.
    fn take(&self, cluster: &mut Cluster, step: Step) -> Result<bool, String> {
        match step.what {
            What::Deliver { from, to, at } => match cluster.unlink(from, to, at) {
                Some(batch) => self.turn(cluster, to, Event::Received(batch), step.cut),
                None => Ok(false),
            },
            What::Lose { from, to, at } => {
                cluster.losses -= 1;
                Ok(cluster.unlink(from, to, at).is_some())
            }
            What::Check { at } => {
                let (host, cob, job) = cluster.checks.remove(at);
                let found = cluster.reality.look(&cob, Some(&self.bundles[host]));
                self.turn(cluster, host, Event::CheckEnded { cob, job, found }, step.cut)
            }
            What::End { thing, fails } => self.end(cluster, thing, fails, step.cut),
            What::Restart { host, all } => {
                let daemon = &mut cluster.daemons[host];
                if all {
                    daemon.synced = daemon.written.clone();
                }
                self.restart(cluster, host).map(|()| true)
            }
            What::Wait => {
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

    fn end(&self, cluster: &mut Cluster, thing: usize, fails: bool, cut: u8) -> Result<bool, String> {
        let there = &cluster.reality.things[thing];
        let (host, cob) = (there.host, there.id.clone());
        let Some(job) = there.running.as_ref().map(|r| r.job) else { return Ok(false) };
        cluster.failures -= u8::from(fails);
        cluster.reality.end(thing, !fails);
        let outcome = if fails {
            ActionOutcome::Failed { error: "explored".to_owned() }
        } else {
            ActionOutcome::Done { values: Values::new() }
        };
        cluster.daemons[host].results.insert(job, outcome.clone());
        self.turn(cluster, host, Event::ActionEnded { cob, job, outcome, span: (0, 0) }, cut)
    }

    /// One turn of a daemon, perhaps cut short.
    fn turn(&self, cluster: &mut Cluster, host: usize, event: Event, cut: u8) -> Result<bool, String> {
        let effects = cluster.daemons[host].engine.handle(event, cluster.now);
        self.perform(cluster, host, effects, cut)
    }

    fn perform(&self, cluster: &mut Cluster, host: usize, effects: Effects, cut: u8) -> Result<bool, String> {
        let Effects { persist, send, run_first, mut run, .. } = effects;
        run.splice(0..0, run_first);
        let pointless = match cut {
            0 => false,
            1 => send.is_empty() && run.is_empty(),
            _ => run.is_empty(),
        };
        if pointless {
            return Ok(false);
        }
        if self.plan.restarts > 0 {
            cluster.daemons[host].persist(&persist);
        }
        self.verify(&cluster.daemons[host])?;
        if cut != 1 {
            cluster.send(host, send);
        }
        if cut == 0 {
            for run in run {
                self.start(cluster, host, run)?;
            }
            return Ok(true);
        }
        self.restart(cluster, host).map(|()| true)
    }

    fn verify(&self, daemon: &Daemon) -> Result<(), String> {
        invariants::check(&daemon.engine)?;
        if self.plan.restarts > 0 && !daemon.engine.has_faults() {
            invariants::agrees(&daemon.engine, &daemon.written)?;
        }
        Ok(())
    }

    fn start(&self, cluster: &mut Cluster, host: usize, run: Run) -> Result<(), String> {
        match run {
            Run::Check { cob, job } => cluster.checks.push((host, cob, job)),
            Run::Action { cob, job, from, to, .. } => {
                let thing = cluster.reality.find(&cob).ok_or("an action of a change object that is not there")?;
                let begin = Begin { thing, job, from: &from, to: &to, deep: true };
                let begun = cluster.reality.begin(&begin, |host| Some(&self.bundles[host]));
                begun.map_err(|breaches| breaches.join("; "))?;
            }
        }
        Ok(())
    }

    /// The daemon dies and returns at once.
    fn restart(&self, cluster: &mut Cluster, host: usize) -> Result<(), String> {
        cluster.restarts -= 1;
        cluster.checks.retain(|c| c.0 != host);
        let now = cluster.now;
        let daemon = &mut cluster.daemons[host];
        daemon.written = daemon.synced.clone();
        let mut life = daemon.engine.life();
        life.start += 1;
        let (active, going) = daemon.synced.needed_generations();
        let bundle = |generation: Option<GenerationNumber>| generation.map(|_| &self.bundles[host]);
        let back = Return {
            host: &daemon.name,
            life,
            durable: &daemon.synced,
            active: bundle(active),
            going: bundle(going),
            order: Arc::new(SwitchOrder::free(GenerationNumber(0), GenerationNumber(1))),
            in_process: &[],
            same_boot: true,
        };
        let (engine, effects) = recover(&back, &self.plan.faults, now);
        let running = engine.running_actions();
        daemon.engine = engine;
        self.perform(cluster, host, effects, 0)?;
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
    /// Nothing can happen but that time passes.
    fn is_quiet(&self) -> bool {
        self.links.is_empty() && self.checks.is_empty() && self.reality.things.iter().all(|t| t.running.is_none())
    }

    fn has_converged(&self) -> bool {
        self.daemons.iter().all(|d| d.engine.is_converged())
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

    fn send(&mut self, from: usize, send: Vec<(HostName, cob_types::Item)>) {
        let mut by_host: BTreeMap<usize, Vec<cob_types::Item>> = BTreeMap::new();
        for (to, item) in send {
            if let Some(to) = self.daemons.iter().position(|d| d.name == to) {
                by_host.entry(to).or_default().push(item);
            }
        }
        let daemon = &self.daemons[from];
        for (to, items) in by_host {
            let (incarnation, lamport) = (daemon.engine.life(), daemon.engine.lamport());
            let batch = Batch { from: daemon.name.clone(), incarnation, lamport, items };
            self.links.entry((from, to)).or_default().push_back(batch);
        }
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

fn describe(cluster: &Cluster, step: Step) -> String {
    let host = |ix: usize| &cluster.daemons[ix].name;
    let text = match step.what {
        What::Deliver { from, to, at } | What::Lose { from, to, at } => {
            let items = cluster.links.get(&(from, to)).and_then(|l| l.get(at)).map(|b| &b.items);
            let items: Vec<_> = items.into_iter().flatten().map(describe_item).collect();
            let lost = if matches!(step.what, What::Lose { .. }) { "lost: " } else { "" };
            format!("{lost}{} -> {}: {}", host(from), host(to), items.join("; "))
        }
        What::Check { at } => format!("checked {}", cluster.checks[at].1),
        What::End { thing, fails } => {
            format!("{} {}", if fails { "failed" } else { "ended" }, cluster.reality.things[thing].id)
        }
        What::Restart { host: ix, all } => {
            format!("{} restarts{}", host(ix), if all { "" } else { ", what was not synced is lost" })
        }
        What::Wait => "time passes".to_owned(),
    };
    match step.cut {
        0 => text,
        1 => format!("{text} (and the daemon dies before it sends)"),
        _ => format!("{text} (and the daemon dies before it starts anything)"),
    }
}
