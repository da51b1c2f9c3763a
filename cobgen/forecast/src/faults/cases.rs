//! The faults that a step of the calm run gives occasion for, each with its class: symmetric faults are of one class.

use std::collections::{BTreeMap, BTreeSet};

use cob_engine::sim::{FaultKind, Happened, SwitchFault, Victim, World, describe};
use cob_types::message::About;
use cob_types::{CobId, Item, StateName};

use super::roles::{Roles, hash_of};

/// A fault to try.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) fault: SwitchFault,
    /// Faults with the same class run once.
    pub(super) class: u64,
    /// The action, message or record of the step, for people.
    pub(super) occasion: String,
}

/// All faults after a step.
pub(super) fn cases(world: &World, happened: &Happened, step: u64, roles: &Roles, seen: &mut Occurrences) -> Vec<Case> {
    let mut cases = Vec::new();
    let hosts: BTreeSet<usize> = happened.hosts.iter().copied().collect();
    for host in hosts {
        kills(world, happened, host, step, roles, &mut cases);
    }
    for thing in &happened.started {
        fails(world, *thing, step, roles, seen, &mut cases);
    }
    losses(world, happened, step, roles, &mut cases);
    cases
}

/// How often each change object has started each transition.
#[derive(Debug, Default)]
pub(super) struct Occurrences(BTreeMap<(CobId, StateName, StateName), u32>);

fn kills(world: &World, happened: &Happened, host: usize, step: u64, roles: &Roles, cases: &mut Vec<Case>) {
    let sent: Vec<_> = happened.sent.iter().filter(|(from, ..)| *from == host).collect();
    let started: Vec<usize> =
        happened.started.iter().copied().filter(|thing| world.thing(*thing).host == host).collect();
    let recorded = happened.recorded.contains(&host);
    if sent.is_empty() && started.is_empty() && !recorded {
        return;
    }
    let name = world.host_name(host);
    let mut told: Vec<u64> = sent.iter().map(|(_, to, item)| message(item, *to, world, roles)).collect();
    told.sort_unstable();
    let mut begun: Vec<u64> = started.iter().map(|thing| roles.cob(&world.thing(*thing).id)).collect();
    begun.sort_unstable();
    let class = hash_of((roles.host(name), on_disk(world, host, roles), told, begun, recorded));
    let occasion = match (started.first(), sent.first()) {
        (Some(thing), _) => action(world, *thing),
        (None, Some((_, to, item))) => format!("sends {} to {}", describe(item), world.host_name(*to)),
        (None, None) => "records a result".to_owned(),
    };
    let acts = !sent.is_empty() || !started.is_empty();
    for victim in [Victim::Host, Victim::Daemon] {
        for early in [false, true] {
            if early && !(recorded && acts) {
                continue;
            }
            let what = FaultKind::Kill { host: name.clone(), victim, early };
            let fault = SwitchFault { what, step };
            cases.push(Case { fault, class: hash_of(("kill", victim, early, class)), occasion: occasion.clone() });
        }
    }
}

fn action(world: &World, thing: usize) -> String {
    let thing = world.thing(thing);
    match &thing.running {
        Some(running) => format!("starts {} {} -> {}", thing.id, running.from, running.to),
        None => format!("starts {}", thing.id),
    }
}

/// The state on the disk of a host, without names.
fn on_disk(world: &World, host: usize, roles: &Roles) -> u64 {
    let durable = world.durable(host);
    let mut cobs: Vec<u64> = durable
        .cobs
        .iter()
        .map(|(id, cob)| {
            let mut grants: Vec<u64> = cob.grants.iter().map(|(to, _)| roles.cob(to)).collect();
            grants.sort_unstable();
            let action = cob.action.as_ref().map(|action| (&action.from, &action.to));
            hash_of((roles.cob(id), &cob.state, cob.failed, cob.failures, action, cob.token.is_some(), grants))
        })
        .collect();
    cobs.sort_unstable();
    let mut departed: Vec<u64> = durable.departed.iter().map(|id| roles.cob(id)).collect();
    departed.sort_unstable();
    hash_of((cobs, departed, durable.active, durable.pending))
}

fn fails(world: &World, thing: usize, step: u64, roles: &Roles, seen: &mut Occurrences, cases: &mut Vec<Case>) {
    let thing_now = world.thing(thing);
    let Some(running) = &thing_now.running else { return };
    let (cob, from, to) = (&thing_now.id, &running.from, &running.to);
    let time = seen.0.entry((cob.clone(), from.clone(), to.clone())).or_default();
    *time += 1;
    for always in [false, true] {
        let fault = SwitchFault { what: FaultKind::Fail { cob: cob.clone(), always }, step };
        let class = hash_of(("fail", always, roles.cob(cob), from, to, *time));
        cases.push(Case { fault, class, occasion: action(world, thing) });
    }
}

fn losses(world: &World, happened: &Happened, step: u64, roles: &Roles, cases: &mut Vec<Case>) {
    let mut links: BTreeMap<(usize, usize, &'static str), Vec<&Item>> = BTreeMap::new();
    for (from, to, item) in &happened.sent {
        links.entry((*from, *to, item.name())).or_default().push(item);
    }
    for ((from, to, name), items) in links {
        let (sender, receiver) = (world.host_name(from), world.host_name(to));
        let kinds: BTreeSet<u64> = items.iter().map(|item| message(item, to, world, roles)).collect();
        let generation = world.engine(sender).map(cob_engine::Engine::generation);
        let class = hash_of((name, roles.host(sender), kinds, generation));
        for long in [false, true] {
            let what = FaultKind::Lose { item: name, from: sender.clone(), to: receiver.clone(), long };
            let occasion = items.first().map(|item| describe(item)).unwrap_or_default();
            let fault = SwitchFault { what, step };
            cases.push(Case { fault, class: hash_of(("lose", long, class)), occasion });
        }
    }
}

/// A message without names and numbers.
fn message(item: &Item, to: usize, world: &World, roles: &Roles) -> u64 {
    let cob = |id: &CobId| roles.cob(id);
    let about = |About { asker, asked, .. }: &About| (cob(asker), cob(asked));
    let content = match item {
        Item::Request(r) => hash_of((cob(&r.asker), cob(&r.asked), &r.set)),
        Item::Grant(g) => hash_of((cob(&g.asker), cob(&g.asked), &g.state)),
        Item::Release(a) | Item::Released(a) | Item::Recall(a) | Item::Query(a) | Item::Invalidated(a) => {
            hash_of(about(a))
        }
        Item::Refused(r) => hash_of(about(&r.about)),
        Item::Probe(p) => hash_of((cob(&p.initiator), cob(&p.to))),
        Item::Hello(_)
        | Item::HelloAck(_)
        | Item::AskDepartures(_)
        | Item::Departures(_)
        | Item::Going(_)
        | Item::Withdrawn(_)
        | Item::Through(_) => 0,
    };
    hash_of((item.name(), roles.host(world.host_name(to)), content))
}
