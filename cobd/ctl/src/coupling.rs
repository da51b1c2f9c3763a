//! Which hosts can't switch without which others, and why: what a canary set and waves of hosts are closed under.
//!
//! A host that has activated the new generation while another has not gets on as long as nothing that changes lies
//! between the two. Three things tie a host to another one:
//!
//! * it waits, before it activates, for change objects there to leave ([`SwitchOrder::waits`], and what these come
//!   after): they leave only when that host, too, is told to go;
//! * one of its change objects needs, in the new generation, one there that is new or has another content: promises
//!   of the old content are worth nothing to it, so it does not converge before that host goes;
//! * one of its change objects needs, as it is now, one there that changes or leaves: once that host goes, it stands
//!   still until its own host goes too. Nothing waits for it, but a service would be down for the time of the gate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cob_types::switch::SwitchOrder;
use cob_types::{Cob, CobId, Generation, HostName};

/// Why a host goes together with another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The other one waits for this change object, which is here, to leave.
    WaitedFor(CobId),
    /// This one of the other host needs that one of here, which is new or changes.
    Needed(CobId, CobId),
    /// This one of here needs that one of the other host, which changes or leaves.
    Disturbed(CobId, CobId),
}

/// A host that is in a set on account of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// It.
    pub host: HostName,
    /// The one that was in before.
    pub of: HostName,
    /// Why.
    pub why: Why,
}

/// For each host those that have to go with it, and the first reason for each.
#[derive(Debug, Clone, Default)]
pub struct Coupling {
    with: BTreeMap<HostName, BTreeMap<HostName, Why>>,
}

impl Coupling {
    /// Between a generation that is active and the new one; none is active: only what the new one says counts.
    #[must_use]
    pub fn between(old: Option<&Generation>, new: &Generation) -> Self {
        let mut coupling = Self::default();
        let order = old.and_then(|o| new.manifest.switch_order(o.manifest.generation, new.manifest.generation));
        if let Some(order) = order {
            coupling.add_waits(order);
        }
        let old = old.map(cobs).unwrap_or_default();
        let new = cobs(new);
        let same = |id: &CobId| match (old.get(id), new.get(id)) {
            (Some(a), Some(b)) => a.fingerprint == b.fingerprint && a.rests_on == b.rests_on,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        for cob in new.values() {
            for need in cob.needs().filter(|n| new.contains_key(&n.cob) && !same(&n.cob)) {
                coupling.add(&cob.id.host(), &need.cob.host(), Why::Needed(cob.id.clone(), need.cob.clone()));
            }
        }
        for cob in old.values() {
            for need in cob.needs().filter(|n| old.contains_key(&n.cob) && !same(&n.cob)) {
                coupling.add(&need.cob.host(), &cob.id.host(), Why::Disturbed(cob.id.clone(), need.cob.clone()));
            }
        }
        coupling
    }

    /// With what another one knows: hosts that come from different generations are coupled by either.
    pub fn extend(&mut self, other: Self) {
        for (host, with) in other.with {
            for (other, why) in with {
                self.add(&host, &other, why);
            }
        }
    }

    fn add_waits(&mut self, order: &SwitchOrder) {
        for (host, waits) in &order.waits {
            let mut all: BTreeSet<&CobId> = BTreeSet::new();
            let mut next: Vec<&CobId> = waits.iter().collect();
            while let Some(cob) = next.pop() {
                if all.insert(cob) {
                    next.extend(order.before(cob));
                }
            }
            for cob in all {
                self.add(host, &cob.host(), Why::WaitedFor(cob.clone()));
            }
        }
        // What a host has to see leave itself may come after what leaves elsewhere.
        for (cob, before) in &order.after {
            for other in before {
                self.add(&cob.host(), &other.host(), Why::WaitedFor(other.clone()));
            }
        }
    }

    fn add(&mut self, host: &HostName, other: &HostName, why: Why) {
        if host != other {
            self.with.entry(host.clone()).or_default().entry(other.clone()).or_insert(why);
        }
    }

    /// The hosts that must be in a set besides those that were named, the nearest first.
    #[must_use]
    pub fn closure(&self, named: &BTreeSet<HostName>) -> Vec<Added> {
        let mut set = named.clone();
        let mut next: VecDeque<&HostName> = named.iter().collect();
        let mut added = Vec::new();
        while let Some(host) = next.pop_front() {
            for (other, why) in self.with.get(host).into_iter().flatten() {
                if set.insert(other.clone()) {
                    added.push(Added { host: other.clone(), of: host.clone(), why: why.clone() });
                    next.push_back(other);
                }
            }
        }
        added
    }

    /// The hosts in groups of which none has to go with another, in the order of their first names.
    #[must_use]
    pub fn groups(&self, hosts: &BTreeSet<HostName>) -> Vec<BTreeSet<HostName>> {
        let mut either: BTreeMap<&HostName, BTreeSet<&HostName>> = BTreeMap::new();
        for (host, with) in &self.with {
            for other in with.keys() {
                either.entry(host).or_default().insert(other);
                either.entry(other).or_default().insert(host);
            }
        }
        let mut left: BTreeSet<&HostName> = hosts.iter().collect();
        let mut groups = Vec::new();
        while let Some(first) = left.pop_first() {
            let (mut group, mut next) = (BTreeSet::from([first.clone()]), vec![first]);
            while let Some(host) = next.pop() {
                for other in either.get(host).into_iter().flatten() {
                    if left.remove(*other) {
                        group.insert((*other).clone());
                        next.push(other);
                    }
                }
            }
            groups.push(group);
        }
        groups
    }
}

impl Added {
    /// Why, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { host, of, why } = self;
        match why {
            Why::WaitedFor(cob) => format!("{host} goes too: {of} waits for {cob} to leave before it can switch"),
            Why::Needed(asker, cob) => {
                format!("{host} goes too: {asker} needs {cob}, which changes, and would not converge without it")
            }
            Why::Disturbed(asker, cob) => {
                format!(
                    "{host} goes too: {asker} needs {cob}, which changes or leaves, and would stand still meanwhile"
                )
            }
        }
    }
}

fn cobs(generation: &Generation) -> BTreeMap<&CobId, &Cob> {
    generation.bundles.values().flat_map(|b| &b.cobs).map(|(id, cob)| (id, &**cob)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cob_types::cob::Fingerprint;
    use cob_types::generation::Security;
    use cob_types::{Bundle, GenerationNumber, LockNeeds, Manifest, Need, StateName};

    use super::*;

    fn id(text: &str) -> CobId {
        CobId::new(text).expect("an id")
    }

    fn name(text: &str) -> HostName {
        HostName::new(text).expect("a name")
    }

    /// `n1/db 1`, `n2/app 1 <- n1/db`: a change object, its content, and what it needs.
    fn generation(number: u64, lines: &[&str]) -> Generation {
        let up = StateName::new("up").expect("a state");
        let before = GenerationNumber(number - 1);
        let manifest = Manifest::empty(GenerationNumber(number), before, Security::LoopbackOnly);
        let mut bundles: BTreeMap<HostName, Bundle> = BTreeMap::new();
        for line in lines {
            let (head, needs) = line.split_once(" <- ").unwrap_or((line, ""));
            let (cob, content) = head.split_once(' ').expect("a content");
            let cob = id(cob);
            let need = |text: &str| Need { cob: id(text), states: vec![up.clone()] };
            let needs: Vec<Need> = needs.split_whitespace().map(need).collect();
            let locks = if needs.is_empty() { vec![] } else { vec![LockNeeds { state: up.clone(), needs }] };
            let made = Cob {
                id: cob.clone(),
                kind: cob_types::KindName::new("noop").expect("a kind"),
                preferred: up.clone(),
                content: content.to_owned(),
                fingerprint: Fingerprint([content.parse().expect("a number"); 16]),
                rests_on: None,
                transitions: Default::default(),
                locks: locks.into(),
                ranks: cob_types::Ranks::default(),
                expects: cob_types::SmallMap::new(),
                files: BTreeMap::new(),
                budget: None,
                at_most: None,
                keep: false,
                observe: false,
            };
            bundles.entry(cob.host()).or_insert_with(|| Bundle::empty(cob.host())).cobs.insert(cob, Arc::new(made));
        }
        Generation { manifest, bundles }
    }

    fn closure(coupling: &Coupling, of: &[&str]) -> Vec<String> {
        let named = of.iter().map(|h| name(h)).collect();
        coupling.closure(&named).iter().map(Added::sentence).collect()
    }

    #[test]
    fn what_does_not_change_ties_nobody() {
        let old = generation(1, &["n1/db 1", "n2/app 1 <- n1/db", "n3/lb 1 <- n2/app"]);
        let new = generation(2, &["n1/db 1", "n2/app 1 <- n1/db", "n3/lb 2 <- n2/app"]);
        let coupling = Coupling::between(Some(&old), &new);
        assert_eq!(closure(&coupling, &["n3"]), [""; 0]);
        assert_eq!(closure(&coupling, &["n1"]), [""; 0]);
    }

    #[test]
    fn who_needs_what_changes_goes_with_it_in_both_directions() {
        let old = generation(1, &["n1/db 1", "n2/app 1 <- n1/db", "n3/lb 1 <- n2/app"]);
        let new = generation(2, &["n1/db 2", "n2/app 1 <- n1/db", "n3/lb 1 <- n2/app"]);
        let coupling = Coupling::between(Some(&old), &new);
        assert_eq!(
            closure(&coupling, &["n1"]),
            ["n2 goes too: n2/app needs n1/db, which changes or leaves, and would stand still meanwhile"]
        );
        assert_eq!(
            closure(&coupling, &["n2"]),
            ["n1 goes too: n2/app needs n1/db, which changes, and would not converge without it"]
        );
        let groups = coupling.groups(&["n1", "n2", "n3"].map(name).into());
        assert_eq!(groups, [BTreeSet::from(["n1", "n2"].map(name)), BTreeSet::from([name("n3")])]);
    }

    #[test]
    fn what_is_new_is_waited_for_by_who_needs_it_alone() {
        let old = generation(1, &["n1/db 1", "n2/app 1"]);
        let new = generation(2, &["n1/db 1", "n1/queue 1", "n2/app 2 <- n1/queue"]);
        let coupling = Coupling::between(Some(&old), &new);
        assert_eq!(closure(&coupling, &["n1"]), [""; 0], "what nobody has yet disturbs nobody");
        assert_eq!(closure(&coupling, &["n2"]).len(), 1);
        assert_eq!(closure(&Coupling::between(None, &new), &["n2"]).len(), 1, "at first all of it is new");
    }

    #[test]
    fn waits_and_what_they_come_after_are_followed() {
        let lines = ["n1/a 1", "n2/b 1", "n3/c 1", "n4/d 1"];
        let (old, mut new) = (generation(1, &lines), generation(2, &lines));
        let mut order = SwitchOrder::free(GenerationNumber(1), GenerationNumber(2));
        order.waits.insert(name("n1"), [id("n2/gone")].into());
        order.after.insert(id("n2/gone"), [id("n3/gone")].into());
        new.manifest.switches.push(order);
        let coupling = Coupling::between(Some(&old), &new);
        assert_eq!(
            closure(&coupling, &["n1"]),
            [
                "n2 goes too: n1 waits for n2/gone to leave before it can switch",
                "n3 goes too: n1 waits for n3/gone to leave before it can switch"
            ]
        );
        assert_eq!(closure(&coupling, &["n4"]), [""; 0]);
        assert_eq!(closure(&coupling, &["n3"]), [""; 0], "who is waited for waits for nobody");
    }
}
