//! `desired: stopped` of services and clusters: their change objects prefer the stopped state, and so do all change
//! objects that are only on while a stopped change object is on.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::{CobId, StateName};

use super::objects::{Object, ObjectOrigin, Objects};
use super::scope::World;
use super::{ByCob, Report};
use crate::diagnostic::Diagnostic;
use crate::draft::{Arrow, When};
use crate::model::{Mark, Marked, Sections, ServiceState};

/// Sets the preferred state of change objects that shall be stopped.
pub(super) fn stop(
    sections: &Sections,
    world: &World<'_>,
    objects: &mut Objects,
    arrows: &mut ByCob<Vec<Arrow>>,
    report: &mut Report<'_>,
) {
    let stopped =
        |desired: &Option<Marked<ServiceState>>| desired.as_ref().is_some_and(|d| d.value == ServiceState::Stopped);
    let services = sections.services.iter().filter(|(_, entry)| stopped(&entry.desired));
    let services: BTreeSet<&str> = services.map(|(name, _)| name.value.as_str()).collect();
    let clusters = sections.clusters.iter().filter(|(_, entry)| stopped(&entry.desired));
    let clusters: BTreeSet<&str> = clusters.map(|(name, _)| name.value.as_str()).collect();
    if services.is_empty() && clusters.is_empty() {
        return;
    }
    let is_meant = |object: &Object| match &object.home {
        ObjectOrigin::ByHand => false,
        ObjectOrigin::Service { cluster, service } => {
            let cluster = world.clusters.0.get(*cluster).map(|cluster| cluster.name.as_str());
            services.contains(&**service) || cluster.is_some_and(|name| clusters.contains(name))
        }
    };
    let runs = |object: &Object| object.kind.as_ref().is_some_and(|known| known.kind.runs()) && !object.observe;
    let named = objects.all.iter().filter(|(_, object)| is_meant(object) && runs(object));
    let named: BTreeSet<CobId> = named.map(|(id, _)| id.clone()).collect();
    let along = dependents(objects, arrows, &named);
    let mut told = BTreeSet::new();
    for (id, on) in &along {
        tell_along(objects, id, on, &mut told, report);
    }
    drop_orders(objects, arrows, &named, &along);
    for id in named.iter().chain(along.keys()) {
        let Some(object) = objects.all.get_mut(id) else { continue };
        if let Some(state) = off(object) {
            object.preferred = Some(state);
        }
    }
}

/// Removes `after` dependencies on stopped objects from objects that are not stopped: an order of starts says nothing about
/// an object that does not start. With the dependency the stopped object would start for a moment.
fn drop_orders(
    objects: &Objects,
    arrows: &mut ByCob<Vec<Arrow>>,
    named: &BTreeSet<CobId>,
    along: &BTreeMap<CobId, CobId>,
) {
    let stops = |id: &CobId| named.contains(id) || along.contains_key(id);
    for (id, all) in arrows.iter_mut().filter(|(id, _)| !stops(id)) {
        let Some(preferred) = objects.get(id).and_then(|object| object.preferred.as_ref()) else { continue };
        all.retain(|Arrow { on, said }| {
            let starts = matches!(&said.when, When::Transition { to, .. } if to == preferred);
            let serves = |on| objects.get(on).and_then(off).is_none_or(|state| said.states.contains(&state));
            !starts || !stops(on) || serves(on)
        });
    }
}

/// The stopped state of a change object.
fn off(object: &Object) -> Option<StateName> {
    object.kind.as_ref()?.kind.stopped().cloned()
}

/// All change objects that are on only while a named object is on, each with the named object that stops it.
fn dependents(objects: &Objects, arrows: &ByCob<Vec<Arrow>>, named: &BTreeSet<CobId>) -> BTreeMap<CobId, CobId> {
    let mut by: BTreeMap<&CobId, Vec<(&CobId, &[StateName])>> = BTreeMap::new();
    for (id, all) in arrows {
        let preferred = objects.get(id).and_then(|object| object.preferred.as_ref());
        for Arrow { on, said } in all {
            if matches!((&said.when, preferred), (When::Lock { state }, Some(preferred)) if state == preferred) {
                by.entry(on).or_default().push((id, &said.states));
            }
        }
    }
    let mut along = BTreeMap::new();
    let mut open: Vec<(&CobId, &CobId)> = named.iter().map(|id| (id, id)).collect();
    while let Some((at, root)) = open.pop() {
        let Some(state) = objects.get(at).and_then(off) else { continue };
        for (id, states) in by.get(at).into_iter().flatten() {
            let stops = !states.contains(&state) && objects.get(id).is_some_and(|object| off(object).is_some());
            if stops && !named.contains(*id) && !along.contains_key(*id) {
                along.insert((*id).clone(), root.clone());
                open.push((id, root));
            }
        }
    }
    along
}

/// Warns once for each service, and for each change object outside a service.
fn tell_along(objects: &Objects, id: &CobId, on: &CobId, told: &mut BTreeSet<Mark>, report: &mut Report<'_>) {
    let Some(object) = objects.get(id) else { return };
    let is_gate = object.kind.as_ref().is_some_and(|known| known.builtin.is_some_and(|entry| entry.kind.gate));
    if is_gate || !told.insert(object.mark) {
        return;
    }
    let who = match &object.home {
        ObjectOrigin::Service { service, .. } => format!("the service `{service}`"),
        ObjectOrigin::ByHand => id.to_string(),
    };
    let of = on.name().split('/').next().unwrap_or_default();
    let what = format!("{who} is stopped too: it requires `{of}`, which is `desired: stopped`");
    let warning =
        Diagnostic::warning("stopped-along", what).help("write `desired: stopped` for it, too, to make that explicit");
    report.push(object.mark, warning);
}
