//! Simulated runs of a generation: the real engine, on virtual time, with all kinds of failures.
//!
//! In each run all change objects start in random states; the network delays, loses, duplicates and reorders messages,
//! daemons are killed and come back, and actions fail, all from a single seed. The runs answer an open question of
//! `check`: whether a generation that breaks a condition converges nevertheless.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_engine::sim::{Config, Initial, Outcome, Random, World};
use cob_engine::time::Span;
use cob_types::status::Trouble;
use cob_types::{CobId, Generation, StateName};
use serde::Serialize;

/// Back ends whose work ends with the daemon.
const IN_PROCESS: [&str; 4] = ["noop", "wait", "tcp-check", "http-check"];
/// The virtual time after which a run without convergence counts as failed.
const LIMIT: Span = Span::secs(1800);
const MAX_EVENTS: u64 = 5_000_000;
/// The most deadlocks and violations that are listed; the others are counted.
const TOLD: usize = 20;

/// The results of the runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The number of runs.
    pub runs: u64,
    /// The number of runs that converged.
    pub converged: u64,
    /// The number of runs in which change objects failed, because more failures were injected than their attempts
    /// allow, and all others became idle. An operator would use `cobctl retry` there.
    pub gave_up: u64,
    /// At most twenty of these.
    pub failed: Vec<FailedRun>,
    /// Other runs that did not converge, at most twenty.
    pub deadlocks: Vec<Deadlock>,
    /// Violations of safety: each is a bug in COB itself.
    pub violations: Vec<String>,
}

/// A run in which change objects failed after injected failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedRun {
    /// `--runs 1 --seed` with this number repeats it.
    pub seed: u64,
    /// The failed change objects.
    pub cobs: Vec<FailedObject>,
}

/// A failed change object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedObject {
    /// Its id.
    pub cob: CobId,
    /// The number of attempts.
    pub attempts: u32,
}

/// A run that did not converge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deadlock {
    /// `--runs 1 --seed` with this number repeats it.
    pub seed: u64,
    /// The problems by change object: stuck, chase, flap.
    pub troubles: Vec<TroubleOf>,
}

/// A problem of a change object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TroubleOf {
    /// The change object.
    pub cob: CobId,
    /// The problem.
    #[serde(flatten)]
    pub trouble: Trouble,
}

impl Verified {
    /// Whether every run converged, except for change objects that failed after injected failures, without violations.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.converged + self.gave_up == self.runs && self.violations.is_empty()
    }
}

/// Makes `runs` runs, with consecutive seeds from this seed on, wrapping at the end. `progress` is called after each
/// run with the number of finished runs.
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
                let cobs = failed.into_iter().map(|(cob, attempts)| FailedObject { cob, attempts }).collect();
                all.failed.push(FailedRun { seed, cobs });
            }
        } else if all.deadlocks.len() < TOLD {
            let troubles = troubles.into_iter().map(|(cob, trouble)| TroubleOf { cob, trouble }).collect();
            all.deadlocks.push(Deadlock { seed, troubles });
        }
        progress(run + 1);
    }
    all
}

/// A random state of its kind for every change object.
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
        // The engine's own tests check its invariants; here that would cost a scan per event.
        check: false,
        ..Config::default()
    }
}
