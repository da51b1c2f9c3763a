//! The faults of a switch, tried before it: each host killed at each step, each action failing, each message lost.
//!
//! ```text
//!   generations ──> prepare ──> the calm run, without a fault, step by step
//!                                  │ cases: the faults after the step, each with its class (roles)
//!                                  │ a class runs once: a fork of the world, the fault, the run to its end
//!                                  └──────────> judge ──> report
//! ```
//!
//! The world is the judging simulator of the engine ([`cob_engine::sim::World`]): real engines, and rules on the real
//! states. Forks share the hosts that they do not change. An action takes a second, a check 20 ms, a message a
//! millisecond; a killed host is back after a minute without its services, a killed daemon after two seconds.

mod cases;
mod judge;
mod report;
mod roles;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cob_engine::sim::{Config, Happened, Initial, RunEnd, SupervisedSwitch, SwitchFault, World};
use cob_engine::switch::rollback_target;
use cob_engine::time::{Span, Time};
use cob_types::switch::OnFailure;
use cob_types::{Bundle, CobId, Generation, GenerationNumber, HostName, StateName, SwitchOrder};
use rayon::prelude::*;

use cases::{Case, Seen, Step};
pub use judge::{CaseEnd, LeftObject, trouble_in_words};
use judge::{Judged, judge};
pub use report::{FaultReport, Finding};
use roles::Roles;

/// Back ends whose work ends with the daemon.
const IN_PROCESS: [&str; 4] = ["noop", "wait", "tcp-check", "http-check"];
/// The most events of the calm run: for each change object, and besides.
const EVENTS: (u64, u64) = (2000, 100_000);
/// How many times as long as the calm run, and how many events longer, a run with a fault may be.
const LONGER: (u64, u64) = (10, 100_000);
/// The number of cases that run before the limit is looked at.
const BATCH: usize = 64;
/// The most further faults that a finding names.
const ALSO: usize = 20;

/// Why no fault can be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoTrial {
    /// There is no direct switch between the generations.
    NoOrder {
        /// The first generation.
        from: GenerationNumber,
        /// The second generation.
        to: GenerationNumber,
    },
    /// The first generation does not converge by itself.
    Restless(GenerationNumber),
    /// The step gives no occasion for the fault.
    NoOccasion(String),
    /// The second generation is not after the first.
    NotAfter {
        /// The first generation.
        from: GenerationNumber,
        /// The second generation.
        to: GenerationNumber,
    },
}

impl std::fmt::Display for NoTrial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoOrder { from, to } => write!(f, "there is no direct switch from generation {from} to {to}"),
            Self::Restless(from) => write!(f, "generation {from} does not converge by itself, without a switch"),
            Self::NoOccasion(what) => f.write_str(what),
            Self::NotAfter { from, to } => write!(f, "generation {to} is not after generation {from}"),
        }
    }
}

impl std::error::Error for NoTrial {}

impl NoTrial {
    /// The remedy.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoOrder { .. } => "hosts go in steps: verify each step, as `cobgen plan` lists them",
            Self::Restless(_) => "`cobgen verify --depot DIR --generation N` shows why",
            Self::NoOccasion(_) => {
                "steps belong to these two generations: take the fault from the output of --every-fault"
            }
            Self::NotAfter { .. } => "name the older generation first: `--switch 1..2`",
        }
    }
}

/// A switch, ready for faults.
#[derive(Debug)]
pub struct Prepared {
    first: BTreeMap<HostName, Arc<Bundle>>,
    second: BTreeMap<HostName, Arc<Bundle>>,
    /// The hosts that have the first generation.
    installed: BTreeMap<HostName, Arc<Bundle>>,
    order: SwitchOrder,
    on_failure: OnFailure,
    back: Option<(SwitchOrder, BTreeMap<HostName, Arc<Bundle>>)>,
}

/// How far the trial is.
#[derive(Debug, Clone, Copy)]
pub struct TrialProgress {
    /// The step of the calm run, and the number of all.
    pub step: (u64, u64),
    /// The cases tried so far, with the symmetric cases.
    pub cases: u64,
    /// The runs made so far.
    pub runs: u64,
}

/// A single fault, replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The report, with this case alone.
    pub report: FaultReport,
    /// The course after the fault, a line for each event.
    pub trace: String,
}

impl Prepared {
    /// Prepares a switch between two generations of a depot, with its rollback target; generation 0 is empty.
    ///
    /// # Errors
    /// If a generation can't be read, or there is no direct switch from the first to the second.
    pub fn read<E: From<NoTrial>>(
        from: GenerationNumber,
        to: GenerationNumber,
        read: impl Fn(GenerationNumber) -> Result<Generation, E>,
    ) -> Result<Self, E> {
        if from >= to {
            return Err(NoTrial::NotAfter { from, to }.into());
        }
        let second = read(to)?;
        let read = |number: GenerationNumber| match number {
            GenerationNumber(0) => Ok(Generation { manifest: second.manifest.emptied(), ..Generation::nothing() }),
            number => read(number),
        };
        let first = read(from)?;
        let back = rollback_target(&second.manifest, Some(from), |_| false).map(read).transpose()?;
        Ok(Self::new(&first, &second, back.as_ref())?)
    }

    /// Prepares a switch. `back` is the rollback target, if any.
    ///
    /// # Errors
    /// If there is no direct switch between the generations.
    pub fn new(from: &Generation, to: &Generation, back: Option<&Generation>) -> Result<Self, NoTrial> {
        let (before, after) = (from.manifest.generation, to.manifest.generation);
        let order = to.manifest.switch_order(before, after).cloned();
        let order = order.or_else(|| (before.0 == 0).then(|| SwitchOrder::free(before, after)));
        let order = order.ok_or(NoTrial::NoOrder { from: before, to: after })?;
        let installed = bundles(from);
        let (mut first, mut second) = (installed.clone(), bundles(to));
        complete(&mut first, &second);
        complete(&mut second, &first);
        let way = |target: &Generation| {
            let order = to.manifest.switch_order(after, target.manifest.generation)?;
            let mut bundles = bundles(target);
            complete(&mut bundles, &second);
            Some((order.clone(), bundles))
        };
        let back = back.and_then(way);
        Ok(Self { first, second, installed, order, on_failure: to.manifest.policy.on_failure, back })
    }

    /// The world in which all hosts are about to get the order.
    fn world(&self) -> Result<World, NoTrial> {
        let states = self.installed.values().flat_map(|bundle| bundle.cobs.values());
        let states: BTreeMap<CobId, StateName> = states.map(|cob| (cob.id.clone(), cob.preferred.clone())).collect();
        let mut world = World::new(&self.first, &Initial::Given(states), &IN_PROCESS, config());
        if self.order.from != GenerationNumber(0) {
            world.go(self.order.from, &self.installed);
            if !world.settle_in(self.events()) {
                return Err(NoTrial::Restless(self.order.from));
            }
        }
        Ok(world)
    }

    fn events(&self) -> u64 {
        let cobs = self.first.values().chain(self.second.values()).map(|bundle| bundle.cobs.len() as u64);
        cobs.sum::<u64>() * EVENTS.0 + EVENTS.1
    }

    fn calm(&self) -> Result<Calm<'_>, NoTrial> {
        let mut world = self.world()?;
        let began = world.now();
        world.watch();
        world.begin_step();
        world.switch_supervised(&SupervisedSwitch {
            order: self.order.clone(),
            bundles: self.second.clone(),
            on_failure: self.on_failure,
            back: self.back.clone(),
        });
        let mut ahead = world.fork(false);
        let ordered = ahead.outcome().events;
        let end = ahead.run_out(self.events());
        let steps = ahead.outcome().events - ordered;
        let judged = judge(&ahead, end, self);
        let happened = world.take_happened();
        let longest = steps.saturating_mul(LONGER.0).saturating_add(LONGER.1);
        Ok(Calm { switch: self, world, began, happened, number: 0, steps, longest, end, judged })
    }

    /// Tries every fault. `goes_on` is called after each batch of runs: the remaining cases are only counted once it
    /// has returned false.
    ///
    /// # Errors
    /// If the switch can't be simulated.
    pub fn try_every(&self, mut goes_on: impl FnMut(TrialProgress) -> bool) -> Result<FaultReport, NoTrial> {
        let mut calm = self.calm()?;
        let mut report = calm.report();
        if !report.is_well() {
            return Ok(report);
        }
        let roles = Roles::of(&self.first, &self.second, &self.order);
        let (mut seen, mut all) = (Seen::default(), Classes::default());
        let mut goes = true;
        loop {
            for case in calm.step(&roles).cases(&mut seen) {
                if let Some(class) = all.note(case.class, goes) {
                    all.waiting.push((class, case, calm.world.fork(false), calm.happened.clone()));
                }
            }
            let is_last = calm.number >= calm.steps;
            if goes && (all.waiting.len() >= BATCH || is_last) {
                all.run(&calm)?;
                let progress = TrialProgress {
                    step: (calm.number, calm.steps),
                    cases: all.weights.iter().sum(),
                    runs: all.results.len() as u64,
                };
                goes = goes_on(progress);
            }
            if is_last || !calm.next() {
                break;
            }
        }
        all.tell(&mut report);
        Ok(report)
    }

    /// Replays a single fault.
    ///
    /// # Errors
    /// If the switch can't be simulated, or the step gives no occasion for the fault.
    pub fn replay(&self, fault: &SwitchFault) -> Result<Replay, NoTrial> {
        let mut calm = self.calm()?;
        let mut report = calm.report();
        while calm.number < fault.step && calm.next() {}
        if calm.number != fault.step {
            let what = format!("the switch has {} steps, and no step {}", calm.steps, fault.step);
            return Err(NoTrial::NoOccasion(what));
        }
        let roles = Roles::of(&self.first, &self.second, &self.order);
        let all = calm.step(&roles).cases(&mut Seen::default());
        let known = all.into_iter().find(|case| case.fault == *fault);
        let occasion = known.map(|case| case.occasion).unwrap_or_default();
        let case = Case { fault: fault.clone(), class: 0, occasion };
        let mut world = calm.world.fork(true);
        let ran = calm.run(&case, &mut world, &calm.happened)?;
        let mut all = Classes::default();
        all.note(0, true);
        all.results.push((case, ran));
        all.tell(&mut report);
        Ok(Replay { report, trace: world.trace().to_owned() })
    }
}

/// The bundles of a generation, without periodic checks: no state drifts in a trial.
fn bundles(generation: &Generation) -> BTreeMap<HostName, Arc<Bundle>> {
    let quiet = |bundle: &Bundle| {
        let mut bundle = bundle.clone();
        for kind in bundle.kinds.values_mut() {
            kind.check.interval_ms = None;
        }
        Arc::new(bundle)
    };
    generation.bundles.iter().map(|(host, bundle)| (host.clone(), quiet(bundle))).collect()
}

/// Adds empty bundles for the hosts that only the other generation has.
fn complete(bundles: &mut BTreeMap<HostName, Arc<Bundle>>, other: &BTreeMap<HostName, Arc<Bundle>>) {
    for host in other.keys() {
        let empty = || Bundle { askers: Some(Arc::default()), ..Bundle::empty(host.clone()) };
        bundles.entry(host.clone()).or_insert_with(|| Arc::new(empty()));
    }
}

fn config() -> Config {
    Config {
        delay_us: (1000, 1000),
        action_us: (1_000_000, 1_000_000),
        check_us: (20_000, 20_000),
        check: false,
        ..Config::default()
    }
}

/// The run without a fault.
struct Calm<'a> {
    switch: &'a Prepared,
    world: World,
    /// The time of the order.
    began: Time,
    /// The events and effects of the step.
    happened: Happened,
    /// The number of the step.
    number: u64,
    /// The number of steps after the order.
    steps: u64,
    /// The most events of a run with a fault.
    longest: u64,
    end: RunEnd,
    judged: Judged,
}

/// A case that ran.
struct Ran {
    judged: Judged,
    took: Span,
}

impl Calm<'_> {
    fn step<'s>(&'s self, roles: &'s Roles) -> Step<'s> {
        Step { world: &self.world, happened: &self.happened, number: self.number, roles }
    }

    /// Performs the next step.
    fn next(&mut self) -> bool {
        if self.number >= self.steps || !self.world.next_step() {
            return false;
        }
        self.number += 1;
        self.happened = self.world.take_happened();
        true
    }

    fn run(&self, case: &Case, world: &mut World, happened: &Happened) -> Result<Ran, NoTrial> {
        world.strike(&case.fault, happened).map_err(NoTrial::NoOccasion)?;
        let end = world.run_out(self.longest);
        Ok(Ran { judged: judge(world, end, self.switch), took: world.since(self.began) })
    }

    /// A report without cases; if the switch itself does not converge, with this finding.
    fn report(&self) -> FaultReport {
        let Prepared { order, .. } = self.switch;
        let mut report = FaultReport {
            format: 1,
            from: order.from,
            to: order.to,
            steps: self.steps,
            cases: 0,
            runs: 0,
            not_tried: 0,
            ends: BTreeMap::new(),
            findings: Vec::new(),
        };
        if self.end != RunEnd::Converged || self.judged.end != CaseEnd::Converges {
            report.findings.push(finding(String::new(), String::new(), &self.judged, Span::default()));
        }
        report
    }
}

fn finding(fault: String, occasion: String, judged: &Judged, took: Span) -> Finding {
    let Judged { end, reasons, hosts, objects, left, .. } = judged.clone();
    Finding {
        end,
        fault,
        occasion,
        cases: 0,
        also: Vec::new(),
        reasons,
        hosts,
        objects,
        objects_left: left,
        end_us: took.0 / 1000,
    }
}

/// The classes of cases, in the order of their first cases.
#[derive(Default)]
struct Classes {
    /// Looked up, never iterated.
    known: HashMap<u64, Option<usize>>,
    /// The number of cases of each class that runs.
    weights: Vec<u64>,
    not_tried: u64,
    waiting: Vec<(usize, Case, World, Happened)>,
    results: Vec<(Case, Ran)>,
}

impl Classes {
    /// Counts a case. Returns the number of its class if this is its first case and runs.
    fn note(&mut self, class: u64, goes: bool) -> Option<usize> {
        let next = self.weights.len();
        let is_new = !self.known.contains_key(&class);
        let number = *self.known.entry(class).or_insert(goes.then_some(next));
        match number {
            Some(number) if is_new => {
                self.weights.push(1);
                return Some(number);
            }
            Some(number) => self.weights[number] += 1,
            None => self.not_tried += 1,
        }
        None
    }

    fn run(&mut self, calm: &Calm<'_>) -> Result<(), NoTrial> {
        let waiting = std::mem::take(&mut self.waiting);
        let run = |(_, case, mut world, happened): (usize, Case, World, Happened)| {
            let ran = calm.run(&case, &mut world, &happened)?;
            Ok((case, ran))
        };
        let ran: Result<Vec<_>, NoTrial> = waiting.into_par_iter().map(run).collect();
        self.results.extend(ran?);
        Ok(())
    }

    fn tell(self, report: &mut FaultReport) {
        report.cases += self.weights.iter().sum::<u64>();
        report.runs += self.results.len() as u64;
        report.not_tried += self.not_tried;
        let mut groups: BTreeMap<(CaseEnd, &'static str, Vec<String>), usize> = BTreeMap::new();
        for ((case, Ran { judged, took }), weight) in self.results.into_iter().zip(self.weights) {
            *report.ends.entry(judged.end).or_default() += weight;
            if judged.end == CaseEnd::Converges {
                continue;
            }
            let key = (judged.end, case.fault.what.verb(), judged.common.clone());
            let fault = case.fault.to_string();
            let at = *groups.entry(key).or_insert(report.findings.len());
            match report.findings.get_mut(at) {
                Some(known) if known.also.len() < ALSO => known.also.push(fault),
                Some(_) => {}
                None => report.findings.push(finding(fault, case.occasion, &judged, took)),
            }
            report.findings[at].cases += weight;
        }
    }
}
