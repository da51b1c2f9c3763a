//! The switch orders that a new generation carries: from earlier generations to it, and back.

use std::collections::BTreeMap;

use cob_depot::{Depot, DepotError, stands_for};
use cob_types::generation::MAX_MANIFEST;
use cob_types::{CobId, Generation, GenerationNumber, Manifest, SwitchOrder, codec};

use crate::diagnostic::Diagnostic;
use cob_forecast::{NoOrder, Side, switch_order};

/// The most generations back to which a direct switch is possible, in both directions; beyond, hosts go in steps.
pub(crate) const DIRECTLY: usize = 4;
/// The most members of a circle that are reported.
const TOLD: usize = 8;

/// Gives a new generation its switch orders, and reports missing orders: an error if hosts could not reach it.
///
/// `before` is the generation after which it was made; the depot has the earlier generations.
///
/// # Errors
/// When the depot can't be read.
pub fn give_orders(
    generation: &mut Generation,
    before: &Generation,
    depot: Option<&Depot>,
) -> Result<Vec<Diagnostic>, DepotError> {
    let (from, to) = (before.manifest.generation, generation.manifest.generation);
    if from != GenerationNumber(0) && stands_for(&before.manifest, &generation.manifest) {
        // It will not be published.
        return Ok(Vec::new());
    }
    let mut said = Vec::new();
    let mut orders = Vec::new();
    if from != GenerationNumber(0) {
        match switch_order(&Side::of(before), &Side::of(generation), false) {
            Ok(order) => orders.push(order),
            Err(NoOrder::Depot(error)) => return Err(error),
            Err(NoOrder::Circle(circle)) => said.push(refusal(&circle, from, to)),
        }
    }
    if from != GenerationNumber(0) && generation.manifest.back.iter().any(|way| way.generation == from) {
        match switch_order(&Side::of(generation), &Side::of(before), true) {
            Ok(order) => orders.push(order),
            Err(NoOrder::Depot(error)) => return Err(error),
            Err(NoOrder::Circle(circle)) => {
                generation.manifest.back.retain(|way| way.generation != from);
                said.push(no_way_back(&circle, from, to));
            }
        }
    }
    if let Some(depot) = depot {
        orders.extend(of_earlier(generation, before, depot)?);
    }
    match order_to_nothing(generation)? {
        Ok(order) => orders.extend(order),
        Err(circle) => said.push(no_way_back(&circle, GenerationNumber(0), to)),
    }
    // These orders are optional: without an order hosts go step by step.
    generation.manifest.switches = orders;
    let fits = |generation: &Generation| codec::encode(&generation.manifest).is_ok_and(|m| m.len() <= MAX_MANIFEST);
    while !fits(generation) && generation.manifest.switches.len() > 1 {
        let manifest = &mut generation.manifest;
        let least = (0..manifest.switches.len()).rfind(|at| manifest.switches[*at].from < from);
        manifest.switches.remove(least.unwrap_or(manifest.switches.len() - 1));
    }
    let Manifest { switches, back, .. } = &mut generation.manifest;
    back.retain(|way| switches.iter().any(|order| (order.from, order.to) == (to, way.generation)));
    Ok(said)
}

/// The order back to the empty generation, if that is a target; an error is a circle of departing objects.
fn order_to_nothing(generation: &Generation) -> Result<Result<Option<SwitchOrder>, Vec<CobId>>, DepotError> {
    if !generation.manifest.back.iter().any(|way| way.generation == GenerationNumber(0)) {
        return Ok(Ok(None));
    }
    let empty = Generation { manifest: generation.manifest.emptied(), bundles: BTreeMap::new() };
    match switch_order(&Side::of(generation), &Side::of(&empty), true) {
        Ok(order) => Ok(Ok(Some(order))),
        Err(NoOrder::Depot(error)) => Err(error),
        Err(NoOrder::Circle(circle)) => Ok(Err(circle)),
    }
}

/// The orders between this generation and the generations before the last. Without an order forward, hosts go step by
/// step; without an order back, the generation is no rollback target.
fn of_earlier(generation: &Generation, before: &Generation, depot: &Depot) -> Result<Vec<SwitchOrder>, DepotError> {
    let mut orders = Vec::new();
    let mut earlier = before.manifest.parent;
    for _ in 1..DIRECTLY {
        // A pruned generation is active on no host that could still be reached.
        let Ok(manifest) = depot.read_manifest(earlier) else { break };
        let (old, new) = (Side::near(depot, &manifest, before, &generation.manifest)?, Side::of(generation));
        let goes_back = generation.manifest.back.iter().any(|way| way.generation == earlier);
        let ways = [Some(switch_order(&old, &new, false)), goes_back.then(|| switch_order(&new, &old, true))];
        for order in ways.into_iter().flatten() {
            match order {
                Ok(order) => orders.push(order),
                Err(NoOrder::Circle(_)) => {}
                Err(NoOrder::Depot(error)) => return Err(error),
            }
        }
        earlier = manifest.parent;
    }
    Ok(orders)
}

fn refusal(circle: &[CobId], from: GenerationNumber, to: GenerationNumber) -> Diagnostic {
    let what = format!("no host could switch from generation {from} to this generation, {to}: {}", in_words(circle));
    Diagnostic::error("leaving-order", what).help(
        "remove these objects from the model separately, each in its own generation, or first remove the dependency \
         that \
         causes the circle",
    )
}

fn no_way_back(circle: &[CobId], from: GenerationNumber, to: GenerationNumber) -> Diagnostic {
    let what = format!("no rollback from this generation, {to}, to generation {from}: {}", in_words(circle));
    Diagnostic::warning("no-way-back", what).help("add these objects separately, each in its own generation")
}

fn in_words(circle: &[CobId]) -> String {
    let steps: Vec<String> = circle
        .iter()
        .zip(circle.iter().cycle().skip(1))
        .take(TOLD)
        .map(|(first, second)| format!("{first} must depart before {second}"))
        .collect();
    let more = if circle.len() > TOLD { format!(", and {} more", circle.len() - TOLD) } else { String::new() };
    format!("{}{more}", steps.join(", "))
}
