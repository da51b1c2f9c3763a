//! Simulated runs of a generation: the engine itself, on virtual time, with everything that can go
//! wrong.
//!
//! Each run begins in a random state of every change object and has a network that delays, loses,
//! doubles and overtakes, daemons that are killed and return, and actions that fail, all from one
//! seed. It answers what the conditions of `check` leave open: whether a generation that fails one of
//! them to the letter comes to rest all the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_engine::sim::{Config, Initial, Outcome, Random, World};
use cob_engine::time::Span;
use cob_types::status::Trouble;
use cob_types::{CobId, Generation, StateName};
use serde::Serialize;

/// Back ends whose work dies with the daemon.
const IN_PROCESS: [&str; 4] = ["noop", "wait", "tcp-check", "http-check"];
/// Virtual time after which a run that has not come to rest is said not to.
const LIMIT: Span = Span::secs(1800);
const MAX_EVENTS: u64 = 5_000_000;
/// Deadlocks and violations that are told; the others are counted.
const TOLD: usize = 20;

/// What came of the runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// How many were made.
    pub runs: u64,
    /// How many of them converged.
    pub converged: u64,
    /// In how many of them change objects gave up, because more failures were injected than their attempts allow, and all
    /// others came to rest. An operator would say `cobctl retry` there.
    pub gave_up: u64,
    /// Of these at most twenty.
    pub failed: Vec<FailedRun>,
    /// Runs that did not come to rest otherwise, at most twenty of them.
    pub deadlocks: Vec<Deadlock>,
    /// Breaches of safety: each is a fault of COB itself.
    pub violations: Vec<String>,
}

/// A run in which change objects gave up after failures that were injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedRun {
    /// `--runs 1 --seed` with this number shows it again.
    pub seed: u64,
    /// Which.
    pub cobs: Vec<GaveUp>,
}

/// A change object that has given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GaveUp {
    /// Which.
    pub cob: CobId,
    /// How often it has tried.
    pub attempts: u32,
}

/// A run that did not come to rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deadlock {
    /// `--runs 1 --seed` with this number shows it again.
    pub seed: u64,
    /// What is named: stuck, chase, flap; by change object.
    pub troubles: Vec<Named>,
}

/// Trouble of one change object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// Whose.
    pub cob: CobId,
    /// What.
    #[serde(flatten)]
    pub trouble: Trouble,
}

impl Verified {
    /// Every run converged, but where a change object gave up for injected failures, and nothing was violated.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.converged + self.gave_up == self.runs && self.violations.is_empty()
    }
}

/// Makes `runs` runs, from this seed on; behind the last one there is comes the first. `progress` is called after each with how many were made.
pub fn verify(generation: &Generation, runs: u64, seed: u64, mut progress: impl FnMut(u64)) -> Verified {
    let bundles: BTreeMap<_, _> = generation.bundles.iter().map(|(h, b)| (h.clone(), Arc::new(b.clone()))).collect();
    let mut all = Verified { runs, ..Verified::default() };
    for run in 0..runs {
        let seed = seed.wrapping_add(run);
        let initial = Initial::Given(somewhere(generation, &mut Random::new(seed)));
        let mut world = World::new(&bundles, &initial, &IN_PROCESS, weather(seed, bundles.len()));
        world.go(generation.manifest.generation, &bundles);
        let Outcome { converged, violations, troubles, failed, .. } = world.run();
        all.violations.extend(violations.into_iter().take(TOLD.saturating_sub(all.violations.len())));
        if converged {
            all.converged += 1;
        } else if troubles.is_empty() && !failed.is_empty() {
            all.gave_up += 1;
            if all.failed.len() < TOLD {
                let cobs = failed.into_iter().map(|(cob, attempts)| GaveUp { cob, attempts }).collect();
                all.failed.push(FailedRun { seed, cobs });
            }
        } else if all.deadlocks.len() < TOLD {
            let troubles = troubles.into_iter().map(|(cob, trouble)| Named { cob, trouble }).collect();
            all.deadlocks.push(Deadlock { seed, troubles });
        }
        progress(run + 1);
    }
    all
}

/// Every change object in some state of its kind.
fn somewhere(generation: &Generation, random: &mut Random) -> BTreeMap<CobId, StateName> {
    let mut states = BTreeMap::new();
    for bundle in generation.bundles.values() {
        for cob in bundle.cobs.values() {
            if let Some(kind) = bundle.kinds.get(&cob.kind) {
                states.insert(cob.id.clone(), random.pick(&kind.states).clone());
            }
        }
    }
    states
}

fn weather(seed: u64, hosts: usize) -> Config {
    Config {
        seed,
        loss: 100,
        double: 50,
        delay_us: (50, 20_000),
        fifo: false,
        fail: 50,
        failures: 3,
        crashes: u32::try_from(hosts).unwrap_or(u32::MAX).min(4),
        limit: LIMIT,
        max_events: MAX_EVENTS,
        // The engine's own invariants are tested with the engine; here they would cost a scan an event.
        check: false,
        ..Config::default()
    }
}
