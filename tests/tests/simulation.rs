//! Random systems under random delivery, loss, crashes and failed actions.

use cob_engine::sim::{Config, Initial, Outcome, Random, World};
use cob_engine::time::Span;
use cob_tests::draw::{self, Draw};
use cob_tests::system::System;
use cob_types::GenerationNumber;

fn run(system: &System, config: Config) -> Outcome {
    let bundles = system.bundles();
    let trace = std::env::var_os("COB_TRACE").is_some();
    let mut world = World::new(&bundles, &Initial::Given(system.initial()), &[], Config { trace, ..config });
    world.go(GenerationNumber(1), &bundles);
    let outcome = world.run();
    print!("{}", world.trace());
    outcome
}

fn hostile(seed: u64) -> Config {
    Config {
        seed,
        loss: 150,
        double: 100,
        delay_us: (10, 20_000),
        fifo: false,
        fail: 100,
        failures: 5,
        crashes: 4,
        ..Config::default()
    }
}

fn all_converge(name: &str, runs: u64, make: impl Fn(&mut Random) -> System, config: impl Fn(u64) -> Config) {
    let base: u64 = std::env::var("COB_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in base..base + runs {
        let system = make(&mut Random::new(seed));
        let outcome = run(&system, config(seed));
        assert!(outcome.violations.is_empty(), "{name}: {:?}", outcome.violations);
        assert!(
            outcome.converged,
            "{name}: seed {seed} does not converge: {:?} after {} events, {:?}, {} actions\n{system:#?}",
            outcome.troubles,
            outcome.events,
            outcome.end,
            outcome.actions.len()
        );
    }
}

#[test]
fn acyclic_systems_converge() {
    all_converge("acyclic", 2000, |r| draw::any(&Draw::default(), r), |seed| Config { seed, ..Config::default() });
}

#[test]
fn acyclic_systems_converge_under_faults() {
    all_converge("acyclic, faults", 500, |r| draw::any(&Draw::default(), r), hostile);
}

#[test]
fn graphs_of_words_converge() {
    all_converge(
        "words",
        2000,
        |r| draw::with_words((2, 12), (1, 4), r),
        |seed| Config { seed, fifo: false, delay_us: (10, 5000), ..Config::default() },
    );
}

#[test]
fn graphs_of_words_converge_under_faults() {
    all_converge("words, faults", 500, |r| draw::with_words((2, 12), (1, 4), r), hostile);
}

#[expect(dead_code, reason = "used by the exhaustive runs")]
const LIMIT: Span = Span::secs(3600);
