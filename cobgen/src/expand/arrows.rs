//! Collects dependencies and checks that they fit together.
//!
//! If a change object needs another twice in the same transition or lock, only the states that satisfy both needs
//! count. If no state does, both places are reported. Both needs stay here, each with its words; `generation/merge`
//! merges them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cob_types::{CobId, HostName, Need, StateName};

use super::hosts::Hosts;
use super::{ByCob, Report};
use crate::diagnostic::Diagnostic;
use crate::draft::{Arrow, Said, When};
use crate::model::Mark;

/// The dependencies found so far.
#[derive(Debug, Default)]
pub(super) struct Arrows {
    /// Each statement with its place.
    said: Vec<(Arc<Said>, Mark)>,
    /// The statements about each change object.
    found: HashMap<CobId, Vec<Found>>,
}

/// The index of a statement that belongs to this collection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number(usize);

#[derive(Debug)]
struct Found {
    on: CobId,
    said: Number,
}

impl Arrows {
    /// Records a statement that applies to any pair.
    pub(super) fn say(&mut self, said: Said, mark: Mark) -> Number {
        self.said.push((Arc::new(said), mark));
        Number(self.said.len() - 1)
    }

    /// Applies a statement to `cob` as the dependent.
    pub(super) fn add(&mut self, cob: &CobId, on: &CobId, said: Number) {
        let found = Found { on: on.clone(), said };
        match self.found.get_mut(cob) {
            Some(list) => list.push(found),
            None => {
                self.found.insert(cob.clone(), vec![found]);
            }
        }
    }

    /// The dependencies of each change object, in the order found. A dependency across hosts needs a link, and a link
    /// needs both addresses. Dependencies of a pair in the same transition or lock must have a common state.
    pub(super) fn checked(
        self,
        hosts: &Hosts,
        no_address: &mut NoAddress,
        report: &mut Report<'_>,
    ) -> ByCob<Vec<Arrow>> {
        let Self { said, found } = self;
        let by_id: BTreeMap<CobId, Vec<Found>> = found.into_iter().collect();
        let checked = |(cob, list): (CobId, Vec<Found>)| {
            for Found { on, said: Number(number) } in &list {
                no_address.look(&cob, on, said[*number].1, hosts);
            }
            if several_of_one(&list, &said) {
                check_common_states(&cob, &list, &said, report);
            }
            let arrow = |Found { on, said: Number(number) }| Arrow { on, said: Arc::clone(&said[number].0) };
            (cob, list.into_iter().map(arrow).collect())
        };
        by_id.into_iter().map(checked).collect()
    }
}

/// The hosts without an address that dependencies across hosts concern; each host is reported once.
#[derive(Debug, Default)]
pub(super) struct NoAddress {
    /// For each host its place, and the places of the words that concern it.
    named: BTreeMap<HostName, (Mark, BTreeSet<Mark>)>,
    /// The clusters whose nodes do not exist yet.
    implied: BTreeSet<Mark>,
}

impl NoAddress {
    /// Notes missing addresses: a dependency across hosts needs the addresses of both.
    pub(super) fn look(&mut self, cob: &CobId, on: &CobId, mark: Mark, hosts: &Hosts) {
        if cob.host_str() == on.host_str() {
            return;
        }
        let lacks = |name: &str| hosts.0.get(name).filter(|h| h.address.is_none() && !h.misaddressed);
        for host in [cob.host_str(), on.host_str()].into_iter().filter_map(lacks) {
            if host.implied {
                self.implied.insert(host.mark);
            } else if let Some((_, words)) = self.named.get_mut(&host.name) {
                words.insert(mark);
            } else {
                self.named.insert(host.name.clone(), (host.mark, BTreeSet::from([mark])));
            }
        }
    }

    pub(super) fn report(self, report: &mut Report<'_>) {
        for cluster in self.implied {
            no_addresses(cluster, report);
        }
        for (host, (mark, words)) in &self.named {
            if let Some(first) = words.first() {
                no_address(host, *mark, *first, words.len(), report);
            }
        }
    }
}

/// Whether some pair may occur twice in the same transition or lock; long lists always count as yes.
fn several_of_one(list: &[Found], said: &[(Arc<Said>, Mark)]) -> bool {
    const SHORT: usize = 12;
    let same = |a: &Found, b: &Found| a.on == b.on && said[a.said.0].0.when == said[b.said.0].0.when;
    list.len() > SHORT || list.iter().enumerate().any(|(i, a)| list[..i].iter().any(|b| same(a, b)))
}

fn check_common_states(cob: &CobId, list: &[Found], said: &[(Arc<Said>, Mark)], report: &mut Report<'_>) {
    // The remaining states of each pair, and the first statement about it.
    let mut left: BTreeMap<(&When, &CobId), (Vec<&StateName>, &Said)> = BTreeMap::new();
    for Found { on, said: Number(number) } in list {
        let (here, mark) = &said[*number];
        let Said { when, states: wanted, words, .. } = &**here;
        let Some((states, first)) = left.get_mut(&(when, on)) else {
            left.insert((when, on), (wanted.iter().collect(), here));
            continue;
        };
        let both: Vec<&StateName> = states.iter().copied().filter(|s| wanted.contains(s)).collect();
        if both.is_empty() {
            let what = match when {
                When::Transition { from, to } => format!("the transition {from} -> {to} of {cob}"),
                When::Lock { state } => format!("a grant of {cob} in {state}"),
            };
            let need = |states: &[StateName]| Need { cob: on.clone(), states: states.to_vec() };
            let requires = |words: &str, whom: &CobId| *words == *format!("requires: [{whom}]");
            let each_other = requires(words, cob) && requires(&first.words, on)
                || requires(words, on) && requires(&first.words, cob);
            let (fault, help) = if each_other {
                let fault = Diagnostic::error(
                    "contradiction",
                    format!("`{words}`: {} and {} require each other", cob.min(on), cob.max(on)),
                );
                (fault, "neither can start first: remove or reverse either dependency")
            } else {
                let fault = Diagnostic::error("contradiction", format!("`{words}` contradicts another dependency"));
                (fault, "they exclude each other: remove either dependency, or name a state that satisfies both")
            };
            let fault = fault
                .note(None, format!("{what} needs {} because of it", need(wanted)))
                .note(
                    Some(first.place.clone()),
                    format!("and {} because of `{}` here", need(&first.states), first.words),
                )
                .help(help);
            report.push(*mark, fault);
        } else {
            *states = both;
        }
    }
}

/// Machines that a provider has yet to make get addresses later; until then their daemons can't connect.
fn no_addresses(cluster: Mark, report: &mut Report<'_>) {
    let what = "dependencies across hosts, but the nodes of this cluster have no addresses";
    let help = "give it `address: \"tcp://10.0.0.{{ index }}:7077\"`, or list its nodes in `hosts`";
    report.push(cluster, Diagnostic::warning("no-address", what).help(help));
}

fn no_address(host: &HostName, mark: Mark, at: Mark, count: usize, report: &mut Report<'_>) {
    let what = match count {
        1 => format!("a dependency across hosts, but {host} has no address"),
        n => format!("a dependency across hosts, as in {} more places, but {host} has no address", n - 1),
    };
    let fault = Diagnostic::error("no-address", what)
        .note(Some(report.place(mark)), format!("{host} is defined here"))
        .help(format!("add it: `{host}: {{address: \"tcp://127.0.0.1:7077\"}}`"));
    report.push(at, fault);
}
