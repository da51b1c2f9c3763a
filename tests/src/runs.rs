//! Runs of systems: their number, their seeds, and the output after a failure.
//!
//! Environment variables: `COB_SIM_RUNS` is the size of a full set (10,000 for the full test; the default is small),
//! `COB_SIM_SECONDS` ends each family after this time (or, without `COB_SIM_RUNS`, lets it run for this time),
//! `COB_SEED` runs a single seed, `COB_TRACE=1` prints its trace.

use std::time::{Duration, Instant};

use cob_engine::sim::{Config, Initial, Outcome, Random, World};
use cob_types::GenerationNumber;
use cob_types::status::Wait;

use crate::family::{Family, Weather};
use crate::shrink::shrink;
use crate::system::{IN_PROCESS, System};

/// The default size of a set.
const RUNS: u64 = 2000;
/// How many seeds are tried on each smaller system.
const SHRINK_SEEDS: u64 = 20;

/// The seeds of a test.
#[derive(Debug, Clone)]
pub struct Seeds {
    next: u64,
    end: u64,
    until: Option<Instant>,
}

impl Seeds {
    /// The share `part / whole` of the set that the environment asks for.
    #[must_use]
    pub fn share(part: u64, whole: u64) -> Self {
        let number = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
        if let Some(seed) = number("COB_SEED") {
            return Self { next: seed, end: seed + 1, until: None };
        }
        let budget = number("COB_SIM_SECONDS");
        let runs = number("COB_SIM_RUNS").or(budget.map(|_| u64::MAX / whole)).unwrap_or(RUNS);
        let until = budget.map(|s| Instant::now() + Duration::from_secs(s));
        Self { next: 1, end: 1 + (runs.saturating_mul(part)).div_ceil(whole), until }
    }

    /// Exactly this many seeds, regardless of the environment.
    #[must_use]
    pub fn exactly(runs: u64) -> Self {
        Self { next: 1, end: 1 + runs, until: None }
    }
}

impl Iterator for Seeds {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        if self.next >= self.end || self.until.is_some_and(|u| Instant::now() > u) {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

/// Runs a system from the initial states of its change objects.
#[must_use]
pub fn run(system: &System, config: Config) -> Outcome {
    let config = traced_if_asked(config);
    let (outcome, trace) = traced_run(system, config);
    show(&trace);
    outcome
}

/// Runs a system and keeps the trace, if the configuration asks for one.
#[must_use]
pub fn traced_run(system: &System, config: Config) -> (Outcome, String) {
    let bundles = system.bundles();
    let mut world = World::new(&bundles, &Initial::Given(system.initial()), &[IN_PROCESS], config);
    world.go(GenerationNumber(1), &bundles);
    let outcome = world.run();
    (outcome, world.trace().to_owned())
}

/// The configuration, with a trace if the environment asks for it.
pub(crate) fn traced_if_asked(config: Config) -> Config {
    Config { trace: config.trace || is_trace_wanted(), ..config }
}

fn is_trace_wanted() -> bool {
    std::env::var_os("COB_TRACE").is_some()
}

/// Prints a trace if the environment asks for one.
#[expect(clippy::print_stdout, reason = "asked for by whoever replays a seed")]
pub(crate) fn show(trace: &str) {
    if is_trace_wanted() {
        print!("{trace}");
    }
}

/// Judges a run; an error describes the fault.
pub type Judge = fn(&System, &Outcome) -> Result<(), String>;

/// Safe, and all change objects have converged.
///
/// # Errors
/// The fault, as text.
pub fn converges(_: &System, outcome: &Outcome) -> Result<(), String> {
    is_safe(outcome)?;
    if outcome.converged {
        return Ok(());
    }
    let Outcome { events, end, troubles, actions, .. } = outcome;
    let actions = actions.len();
    Err(format!("does not converge: {events} events, {} s, {actions} actions, {troubles:?}", end.0 / 1_000_000_000))
}

/// Safe, and either all change objects have converged or the problem has a name: deadlock, request churn or flapping,
/// or a state without a route.
///
/// # Errors
/// The fault, as text.
pub fn is_named(_: &System, outcome: &Outcome) -> Result<(), String> {
    is_safe(outcome)?;
    let no_route = |wait: &Wait| matches!(wait, Wait::NoRoute { .. } | Wait::Lock { refused: Some(_), .. });
    if outcome.converged || !outcome.troubles.is_empty() || outcome.waits.iter().any(|w| no_route(&w.1)) {
        return Ok(());
    }
    let Outcome { events, end, actions, .. } = outcome;
    Err(format!("neither rests nor is named: {events} events, {} s, {} actions", end.0 / 1_000_000_000, actions.len()))
}

/// Like [`converges`], and no change object comes up more than once.
///
/// # Errors
/// The fault, as text.
pub fn starts_once(system: &System, outcome: &Outcome) -> Result<(), String> {
    converges(system, outcome)?;
    for thing in 0..system.things.len() {
        let (id, up) = (system.id(thing), system.state(thing, 1));
        let starts = outcome.actions.iter().filter(|a| a.1 == id && a.3 == up).count();
        if starts > 1 {
            return Err(format!("{id} is started {starts} times"));
        }
    }
    Ok(())
}

fn is_safe(outcome: &Outcome) -> Result<(), String> {
    if outcome.violations.is_empty() { Ok(()) } else { Err(format!("violation: {}", outcome.violations.join("; "))) }
}

/// Counts of many runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Systems run.
    pub runs: u64,
    /// Converged runs.
    pub converged: u64,
    /// Actions started.
    pub actions: u64,
    /// Messages between hosts.
    pub messages: u64,
    /// Probes among the messages.
    pub probes: u64,
    /// How often a change object switched to rank order.
    pub ordered: u64,
    /// Daemons killed.
    pub crashes: u64,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.converged += u64::from(outcome.converged);
        self.actions += outcome.actions.len() as u64;
        self.messages += outcome.messages;
        self.probes += outcome.probes;
        self.ordered += outcome.ordered;
        self.crashes += outcome.crashes;
    }
}

/// Runs a family and judges every run.
///
/// # Panics
/// At the first run that the judge rejects, with the command that replays it and the smallest system found that fails
/// in the same way.
pub fn judge_all(
    test: &str,
    family: &Family,
    seeds: Seeds,
    config: impl Fn(Weather, u64) -> Config,
    weather: &[Weather],
    judge: Judge,
) -> Tally {
    let began = Instant::now();
    let mut tally = Tally::default();
    for seed in seeds {
        let weather = weather[(seed % weather.len() as u64) as usize];
        let system = (family.draw)(&mut Random::new(seed));
        let config = config(weather, seed);
        let outcome = run(&system, config.clone());
        tally.add(&outcome);
        if let Err(wrong) = judge(&system, &outcome) {
            // A smaller system draws other delays: without more seeds hardly any part could be removed.
            let fails = |s: &System, seed: u64| {
                let config = Config { seed, ..config.clone() };
                judge(s, &traced_run(s, config).0).is_err()
            };
            let seeds = || seed..seed + SHRINK_SEEDS;
            let small = shrink(&system, |s| seeds().any(|seed| fails(s, seed)));
            let of = seeds().find(|seed| fails(&small, *seed)).unwrap_or(seed);
            panic!(
                "{}: seed {seed}, {weather:?}: {wrong}\n\
                 replay: COB_SEED={seed} COB_TRACE=1 cargo test -p cob-tests --test simulation -- --exact {test} --nocapture\n\
                 the smallest system found that fails, in the delays of seed {of}:\n{small}",
                family.name
            );
        }
    }
    report(family, &tally, began);
    tally
}

#[expect(clippy::print_stdout, reason = "shown by cargo test -- --nocapture")]
fn report(family: &Family, tally: &Tally, began: Instant) {
    let Tally { runs, converged, actions, messages, probes, ordered, crashes } = tally;
    let per_second = *runs as f64 / began.elapsed().as_secs_f64().max(1e-9);
    println!(
        "{:<24} {runs:>6} runs, {converged} converged, {actions} actions, {messages} messages, \
         {probes} probes, {ordered} switches to rank order, {crashes} crashes; {per_second:.0} runs/s",
        family.name
    );
}
