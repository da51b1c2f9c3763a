//! Measurements of the engine alone: events per second, memory per change object, a large cluster in simulation. Run
//! with `cargo bench -p cob-tests --bench engine`.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use cob_engine::event::{ActionOutcome, CheckOutcome};
use cob_engine::sim::{Config, Initial, World};
use cob_engine::time::Span;
use cob_engine::{Engine, Event, Run, Time};
use cob_tests::large::{self, Large};
use cob_types::{Bundle, GenerationNumber, Incarnation, Packed, SwitchOrder, canonical};

/// A memory figure of this process, in MB; zero if the system does not report it.
fn memory_mb(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(field)).unwrap_or_default();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
}

fn simulate(label: &str, large: &Large) {
    let (bundles, dependencies) = large::bundles(large);
    let config = Config { check: false, max_events: u64::MAX, limit: Span::secs(3600), ..Config::default() };
    let mut world = World::new(&bundles, &Initial::PreRemove, &["noop"], config);
    let begin = Instant::now();
    world.go(GenerationNumber(1), &bundles);
    let outcome = world.run();
    let took = begin.elapsed().as_secs_f64();
    assert!(outcome.converged && outcome.violations.is_empty(), "{label}: {:?}", outcome.violations);
    let virtual_ms = outcome.end.0.saturating_sub(1_000_000_000) / 1_000_000;
    println!(
        "{label}: {} change objects, {dependencies} dependencies, {} actions, {} messages, {virtual_ms} ms virtual: {took:.2} s, \
         {:.0} engine events/s ({} turns)",
        large.hosts * large.per_host,
        outcome.actions.len(),
        outcome.messages,
        (outcome.events + outcome.messages) as f64 / took,
        outcome.events,
    );
}

fn go(generation: u64, bundle: &Arc<Bundle>) -> Event {
    let order = Arc::new(SwitchOrder::free(GenerationNumber(generation - 1), GenerationNumber(generation)));
    let (generation, in_process) = (GenerationNumber(generation), vec!["noop".to_owned()]);
    Event::Switch { rollback: false, generation, bundle: Arc::new(Packed::decoded(bundle)), in_process, order }
}

/// All checks find this state and all actions succeed at once, until no job is left.
fn end_jobs(engine: &mut Engine, jobs: Vec<Run>, state: &str, now: &mut Time) {
    let state = cob_types::StateName::new(state).expect("well formed");
    let mut jobs = VecDeque::from(jobs);
    while let Some(job) = jobs.pop_front() {
        now.0 += 1000;
        let event = match job {
            Run::Check { cob, job } => {
                let found = CheckOutcome::Found {
                    state: state.clone(),
                    values: BTreeMap::new(),
                    detail: String::new(),
                    fresh: false,
                };
                Event::CheckEnded { cob, job, found }
            }
            Run::Action { cob, job, .. } => {
                let outcome = ActionOutcome::Done { values: BTreeMap::new() };
                Event::ActionEnded { cob, job, outcome, span: (0, 0) }
            }
        };
        jobs.extend(engine.handle(event, *now).run);
    }
    assert!(engine.is_converged());
}

/// A single converged engine switches to generations in which no, one or every hundredth change object differs: the
/// daemon gives it bundles that share equal parts.
fn switches(per_host: usize) {
    let large = Large { hosts: 1, per_host, dependencies: 3, across: 0, seed: 1 };
    let (host, mut bundle) = large::bundles(&large).0.into_iter().next().expect("one host");
    let mut engine = Engine::new(&host, Incarnation { id: 1, start: 1 });
    let mut now = Time(1_000_000_000);
    let jobs = engine.handle(go(1, &bundle), now).run;
    end_jobs(&mut engine, jobs, "down", &mut now);
    let mut line = format!("a switch of one engine, {per_host} change objects");
    let mut generation = 1;
    for (what, every) in [("none differs", 0), ("one", per_host), ("one in a hundred", 100), ("all", 1)] {
        let mut took = Vec::new();
        for _ in 0..5 {
            generation += 1;
            let mut next = (*bundle).clone();
            let differs = |(at, _): &(usize, _)| every > 0 && at % every == 0;
            for (_, (_, cob)) in next.cobs.iter_mut().enumerate().filter(differs) {
                Arc::make_mut(cob).fingerprint = canonical::fingerprint(&[&u64::to_be_bytes(generation)]);
            }
            bundle = Arc::new(next);
            let event = go(generation, &bundle);
            let begin = Instant::now();
            let jobs = engine.handle(event, now).run;
            took.push(begin.elapsed());
            // The changes are in place already.
            end_jobs(&mut engine, jobs, "up", &mut now);
        }
        took.sort_unstable();
        line.push_str(&format!("; {what}: {:.3} ms", took[2].as_secs_f64() * 1e3));
    }
    println!("{line}");
}

/// A single engine converges by direct calls; checks and actions end at once.
fn engine_alone(per_host: usize) {
    let large = Large { hosts: 1, per_host, dependencies: 3, across: 0, seed: 1 };
    let (bundles, dependencies) = large::bundles(&large);
    let (host, bundle) = bundles.into_iter().next().expect("one host");
    let before = memory_mb("VmRSS");
    let mut engine = Engine::new(&host, Incarnation { id: 1, start: 1 });
    let mut now = Time(1_000_000_000);
    let jobs = engine.handle(go(1, &bundle), now).run;
    let begin = Instant::now();
    let first = engine.handled();
    end_jobs(&mut engine, jobs, "down", &mut now);
    let took = begin.elapsed().as_secs_f64();
    let handled = engine.handled() - first;
    println!(
        "engine alone, {per_host} change objects, {dependencies} dependencies: {handled} events and messages in {took:.3} s: \
         {:.0} a second; {} MB",
        handled as f64 / took,
        memory_mb("VmRSS").saturating_sub(before)
    );
}

fn main() {
    for per_host in [1000, 10_000, 100_000] {
        switches(per_host);
    }
    if std::env::args().any(|arg| arg == "switches") {
        return;
    }
    engine_alone(1000);
    engine_alone(100_000);
    simulate("1,000 hosts x 50", &Large { hosts: 1000, per_host: 50, dependencies: 3, across: 667, seed: 1 });
    simulate("10 hosts x 100", &Large { hosts: 10, per_host: 100, dependencies: 3, across: 667, seed: 1 });
}
