//! Systems whose second generation removes a part, in the middle of the work.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_engine::sim::{Config, Initial, Outcome, Random, World};
use cob_engine::time::{Span, Time};
use cob_types::status::CobStatus;
use cob_types::{Bundle, GenerationNumber, HostName};

use crate::runs;
use crate::shrink::without_thing;
use crate::system::{IN_PROCESS, System};

/// A system before and after the removal.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The first generation.
    pub before: System,
    /// The second.
    pub after: System,
}

/// Removes a random part of a system. The removed change objects are kept as they are; with `undo`, if all are on the
/// same host, some are undone instead (undoing across hosts has no guaranteed order).
#[must_use]
pub fn some_leave(mut before: System, undo: bool, random: &mut Random) -> Pair {
    // With explicit names, change objects keep their names when others are removed.
    let things = 0..before.things.len();
    before.names = things.clone().map(|t| format!("c{t}")).collect();
    let undo = undo && before.things.iter().all(|t| t.host == before.things[0].host);
    let mut after = before.clone();
    for t in things.rev() {
        let keep = !undo || random.permille(500);
        before.things[t].keep = keep;
        if random.permille(400) {
            after = without_thing(&after, t);
        } else {
            after.things[t].keep = keep;
        }
    }
    Pair { before, after }
}

/// Runs the first generation for a while, then announces the second to both hosts.
///
/// # Errors
/// The violated rule, the change objects that do not converge, or a kept change object that moved for its own sake.
pub fn run(pair: &Pair, config: Config) -> Result<Outcome, String> {
    let Pair { before, after } = pair;
    let (first, mut second) = (before.bundles(), after.bundles());
    for host in first.keys() {
        let none = || Arc::new(Bundle::empty(host.clone()));
        second.entry(host.clone()).or_insert_with(none);
    }
    let span = Span(Random::new(config.seed).below(200_000) * 1000);
    let config = runs::traced_if_asked(config);
    let mut world = World::new(&first, &Initial::Given(before.initial()), &[IN_PROCESS], config);
    world.go(GenerationNumber(1), &first);
    world.run_for(span);
    let switched_at = world.now();
    world.go(GenerationNumber(2), &second);
    let outcome = world.run();
    runs::show(world.trace());
    if !outcome.violations.is_empty() {
        return Err(format!("violation: {}", outcome.violations.join("; ")));
    }
    if !outcome.converged {
        let at = |host: &HostName| {
            let engine = world.engine(host)?;
            let astray = |s: &CobStatus| s.state.as_ref() != Some(&s.preferred);
            let astray: Vec<_> = engine.status(world.now()).into_iter().filter(astray).collect();
            Some(format!("{host} in {}, {astray:?}", engine.generation()))
        };
        let hosts: Vec<_> = first.keys().filter_map(at).collect();
        return Err(format!("does not converge: {:?}, {hosts:?}", outcome.troubles));
    }
    moved_by_itself(pair, &second, &outcome, switched_at).map_or(Ok(outcome), Err)
}

/// A removed, kept change object without dependents that moved after the start of the switch.
fn moved_by_itself(
    pair: &Pair,
    second: &BTreeMap<HostName, Arc<Bundle>>,
    outcome: &Outcome,
    switched_at: Time,
) -> Option<String> {
    let Pair { before, .. } = pair;
    let asked = |thing| before.things.iter().any(|t| t.depended_on().any(|on| on == thing));
    let gone = (0..before.things.len()).filter(|t| {
        before.things[*t].keep
            && !asked(*t)
            && !second[&before.host(before.things[*t].host)].cobs.contains_key(&before.id(*t))
    });
    let started = |thing| {
        let id = before.id(thing);
        outcome
            .actions
            .iter()
            .find(|a| a.1 == id && a.0 > switched_at)
            .map(|a| format!("{id} goes from {} to {}", a.2, a.3))
    };
    gone.into_iter().find_map(started)
}
