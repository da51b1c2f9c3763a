//! The faults that a step of the calm run gives occasion for, each with its class: symmetric faults are of one class.

use std::collections::{BTreeMap, BTreeSet};

use cob_engine::record::DurableCob;
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

/// The knowledge from earlier steps.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How often each change object has started each transition.
    times: BTreeMap<(CobId, StateName, StateName), u32>,
    /// The state on the disk of each host, without names.
    on_disk: BTreeMap<usize, u64>,
}

/// A step of the calm run.
pub(super) struct Step<'a> {
    /// The world after the step.
    pub(super) world: &'a World,
    pub(super) happened: &'a Happened,
    pub(super) number: u64,
    pub(super) roles: &'a Roles,
}

impl Step<'_> {
    /// All faults after the step.
    pub(super) fn cases(&self, seen: &mut Seen) -> Vec<Case> {
        let mut cases = Vec::new();
        let hosts: BTreeSet<usize> = self.happened.hosts.iter().copied().collect();
        for host in 0..self.world.host_names().count() {
            if hosts.contains(&host) || !seen.on_disk.contains_key(&host) {
                seen.on_disk.insert(host, self.on_disk(host));
            }
        }
        for host in &hosts {
            self.kills(*host, seen, &mut cases);
        }
        for thing in self.happened.started.iter().copied() {
            self.kills_beside(thing, &hosts, &mut cases);
            self.fails(thing, seen, &mut cases);
        }
        self.losses(&mut cases);
        cases
    }

    fn case(&self, what: FaultKind, class: u64, occasion: &str) -> Case {
        Case { fault: SwitchFault { what, step: self.number }, class, occasion: occasion.to_owned() }
    }

    /// Kills of a host that takes part in the step, and of its daemon.
    fn kills(&self, host: usize, seen: &Seen, cases: &mut Vec<Case>) {
        let Self { world, happened, roles, .. } = self;
        let sent: Vec<_> = happened.sent.iter().filter(|(from, ..)| *from == host).collect();
        let started = happened.started.iter().copied().filter(|thing| world.thing(*thing).host == host);
        let started: Vec<usize> = started.collect();
        let recorded = happened.recorded.contains(&host);
        if sent.is_empty() && started.is_empty() && !recorded {
            return;
        }
        let name = world.host_name(host);
        let told: BTreeSet<&str> = sent.iter().map(|(.., item)| item.name()).collect();
        let mut begun: Vec<u64> = started.iter().map(|thing| roles.cob(&world.thing(*thing).id)).collect();
        begun.sort_unstable();
        let class = hash_of((roles.host(name), seen.on_disk.get(&host), told, begun, recorded));
        let occasion = match (started.first(), sent.first()) {
            (Some(thing), _) => self.action(*thing),
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
                cases.push(self.case(what, hash_of(("kill", victim, early, class)), &occasion));
            }
        }
    }

    /// Kills of hosts without a part in the step, when the step moves a member of a budget: between two of its own
    /// steps, a host differs for the others only by its members.
    fn kills_beside(&self, thing: usize, hosts: &BTreeSet<usize>, cases: &mut Vec<Case>) {
        let begun = self.world.thing(thing);
        if !self.roles.is_member(&begun.id) {
            return;
        }
        let ends = begun.running.as_ref().map(|running| (&running.from, &running.to));
        let class = hash_of((self.roles.cob(&begun.id), ends));
        for host in (0..self.world.host_names().count()).filter(|host| !hosts.contains(host)) {
            let name = self.world.host_name(host);
            let durable = self.world.durable(host);
            let members = durable.cobs.iter().filter(|(id, _)| self.roles.is_member(id));
            let members: Vec<_> =
                members.map(|(_, cob)| (&cob.state, cob.action.is_some(), cob.token.is_some())).collect();
            let class = hash_of(("beside", self.roles.host(name), durable.active, members, class));
            let what = FaultKind::Kill { host: name.clone(), victim: Victim::Host, early: false };
            cases.push(self.case(what, class, &self.action(thing)));
        }
    }

    fn action(&self, thing: usize) -> String {
        let thing = self.world.thing(thing);
        match &thing.running {
            Some(running) => format!("starts {} {} -> {}", thing.id, running.from, running.to),
            None => format!("starts {}", thing.id),
        }
    }

    /// The state on the disk of a host, without names.
    fn on_disk(&self, host: usize) -> u64 {
        let roles = self.roles;
        let durable = self.world.durable(host);
        let cob = |id: &CobId, cob: &DurableCob| {
            let mut grants: Vec<u64> = cob.grants.iter().map(|(to, _)| roles.cob(to)).collect();
            grants.sort_unstable();
            let action = cob.action.as_ref().map(|action| (&action.from, &action.to));
            hash_of((roles.cob(id), &cob.state, cob.failed, cob.failures, action, cob.token.is_some(), grants))
        };
        let mut cobs: Vec<u64> = durable.cobs.iter().map(|(id, known)| cob(id, known)).collect();
        cobs.sort_unstable();
        let mut departed: Vec<u64> = durable.departed.iter().map(|id| roles.cob(id)).collect();
        departed.sort_unstable();
        hash_of((cobs, departed, durable.active, durable.pending))
    }

    fn fails(&self, thing: usize, seen: &mut Seen, cases: &mut Vec<Case>) {
        let begun = self.world.thing(thing);
        let Some(running) = &begun.running else { return };
        let (cob, from, to) = (&begun.id, &running.from, &running.to);
        let time = seen.times.entry((cob.clone(), from.clone(), to.clone())).or_default();
        *time += 1;
        for always in [false, true] {
            let class = hash_of(("fail", always, self.roles.cob(cob), from, to, *time));
            cases.push(self.case(FaultKind::Fail { cob: cob.clone(), always }, class, &self.action(thing)));
        }
    }

    fn losses(&self, cases: &mut Vec<Case>) {
        let mut links: BTreeMap<(usize, usize, &'static str), Vec<&Item>> = BTreeMap::new();
        for (from, to, item) in &self.happened.sent {
            links.entry((*from, *to, item.name())).or_default().push(item);
        }
        for ((from, to, name), items) in links {
            let (sender, receiver) = (self.world.host_name(from), self.world.host_name(to));
            let kinds: BTreeSet<u64> = items.iter().map(|item| self.message(item, to)).collect();
            let generation = self.world.engine(sender).map(cob_engine::Engine::generation);
            let class = hash_of((name, self.roles.host(sender), kinds, generation));
            let occasion = items.first().map(|item| describe(item)).unwrap_or_default();
            for long in [false, true] {
                let what = FaultKind::Lose { item: name, from: sender.clone(), to: receiver.clone(), long };
                cases.push(self.case(what, hash_of(("lose", long, class)), &occasion));
            }
        }
    }

    /// A message without names and numbers.
    fn message(&self, item: &Item, to: usize) -> u64 {
        let roles = self.roles;
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
        hash_of((item.name(), roles.host(self.world.host_name(to)), content))
    }
}
