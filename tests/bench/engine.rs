//! Figures of the engine alone: events a second, memory a change object, a large cluster in
//! simulation. Run with `cargo bench -p cob-tests --bench engine`.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

use std::time::Instant;

use cob_engine::sim::{Config, Initial, World};
use cob_engine::time::Span;
use cob_tests::large::{self, Large};
use cob_types::GenerationNumber;

/// The peak of this process's memory, in MB; zero where the system does not tell.
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

fn main() {
    simulate("1,000 hosts x 50", &Large { hosts: 1000, per_host: 50, dependencies: 3, across: 667, seed: 1 });
    simulate("10 hosts x 100", &Large { hosts: 10, per_host: 100, dependencies: 3, across: 667, seed: 1 });
    let before = memory_mb("VmRSS");
    let large = Large { hosts: 1, per_host: 100_000, dependencies: 3, across: 0, seed: 1 };
    let (bundles, _) = large::bundles(&large);
    let with_bundles = memory_mb("VmRSS");
    println!("one host x 100,000: bundle {} MB", with_bundles.saturating_sub(before));
    drop(bundles);
    simulate("one host x 100,000", &large);
}
