//! Dependencies as they are found, and what can be said of them together.
//!
//! Two needs of one pair in the same transition or lock leave the states that serve both; when there
//! are none, both places are named. (They stay two here, each with its words; in the generation they
//! become one.)

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cob_types::{CobId, HostName, Need, StateName};

use super::hosts::Hosts;
use super::{ByCob, Report};
use crate::diagnostic::Diagnostic;
use crate::draft::{Arrow, When};
use crate::model::Mark;

/// Dependencies as they are found.
#[derive(Debug, Default)]
pub(super) struct Arrows {
    found: Vec<Vec<Found>>,
    /// Where those of each change object are.
    of: HashMap<CobId, usize>,
}

#[derive(Debug)]
struct Found {
    when: When,
    need: Need,
    words: Arc<str>,
    mark: Mark,
}

impl Arrows {
    /// Adds one to `cob`.
    pub(super) fn add(&mut self, cob: &CobId, when: When, need: Need, words: Arc<str>, mark: Mark) {
        let found = Found { when, need, words, mark };
        match self.of.get(cob) {
            Some(place) => self.found[*place].push(found),
            None => {
                self.of.insert(cob.clone(), self.found.len());
                self.found.push(vec![found]);
            }
        }
    }

    /// Those of each change object in the order found. A dependency across hosts needs a link, and a link needs both
    /// addresses; those of one pair in the same transition or lock must have a state in common.
    pub(super) fn checked(
        mut self,
        hosts: &Hosts,
        no_address: &mut NoAddress,
        report: &mut Report<'_>,
    ) -> ByCob<Vec<Arrow>> {
        let by_id: BTreeMap<CobId, usize> = self.of.into_iter().collect();
        for (cob, place) in &by_id {
            for found in &self.found[*place] {
                no_address.look(cob, &found.need.cob, found.mark, hosts);
            }
        }
        let mut take = |place: usize| std::mem::take(&mut self.found[place]);
        by_id.into_iter().map(|(cob, place)| (cob.clone(), checked(&cob, take(place), report))).collect()
    }
}

/// The hosts without an address that dependencies across hosts concern: each is told of once.
#[derive(Debug, Default)]
pub(super) struct NoAddress {
    /// By host: where it stands, and where the words stand that concern it.
    named: BTreeMap<HostName, (Mark, BTreeSet<Mark>)>,
    /// The clusters whose nodes are still to be made.
    implied: BTreeSet<Mark>,
}

impl NoAddress {
    /// A dependency across hosts takes an address of both.
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

fn checked(cob: &CobId, list: Vec<Found>, report: &mut Report<'_>) -> Vec<Arrow> {
    if several_of_one(&list) {
        check_common_states(cob, &list, report);
    }
    let arrow = |Found { when, need, words, mark }| Arrow { when, need, words, place: report.place(mark) };
    list.into_iter().map(arrow).collect()
}

/// Whether some pair may occur twice in the same transition or lock; of long lists that is taken for granted.
fn several_of_one(list: &[Found]) -> bool {
    const SHORT: usize = 12;
    let same = |a: &Found, b: &Found| a.need.cob == b.need.cob && a.when == b.when;
    list.len() > SHORT || list.iter().enumerate().any(|(i, a)| list[..i].iter().any(|b| same(a, b)))
}

fn check_common_states(cob: &CobId, list: &[Found], report: &mut Report<'_>) {
    // What is left of each pair's states, and where the first of them was written.
    let mut left: BTreeMap<(&When, &CobId), (Vec<&StateName>, &Found)> = BTreeMap::new();
    for found in list {
        let Found { when, need, words, mark } = found;
        let Some((states, first)) = left.get_mut(&(when, &need.cob)) else {
            left.insert((when, &need.cob), (need.states.iter().collect(), found));
            continue;
        };
        let both: Vec<&StateName> = states.iter().copied().filter(|s| need.states.contains(s)).collect();
        if both.is_empty() {
            let what = match when {
                When::Transition { from, to } => format!("the transition {from} -> {to} of {cob}"),
                When::Lock { state } => format!("a promise of {cob} in {state}"),
            };
            let fault = Diagnostic::error("contradiction", format!("`{words}` contradicts another dependency"))
                .note(None, format!("{what} needs {need} by it"))
                .note(Some(report.place(first.mark)), format!("and {} by `{}` here", first.need, first.words))
                .help("both can't be at once: leave one of them away, or name a state that serves both");
            report.push(*mark, fault);
        } else {
            *states = both;
        }
    }
}

/// Machines that a provider is still to make have addresses later; until then their daemons can't meet.
fn no_addresses(cluster: Mark, report: &mut Report<'_>) {
    let what = "dependencies across hosts, but the nodes of this cluster have no addresses";
    let help = "give it `address: \"tcp://10.0.0.{{ index }}:7077\"`, or write its nodes down in `hosts`";
    report.push(cluster, Diagnostic::warning("no-address", what).help(help));
}

fn no_address(host: &HostName, mark: Mark, at: Mark, count: usize, report: &mut Report<'_>) {
    let what = match count {
        1 => format!("a dependency across hosts, but {host} has no address"),
        n => format!("a dependency across hosts, as in {} more places, but {host} has no address", n - 1),
    };
    let fault = Diagnostic::error("no-address", what)
        .note(Some(report.place(mark)), format!("{host} is defined here"))
        .help(format!("give it one: `{host}: {{address: \"tcp://127.0.0.1:7077\"}}`"));
    report.push(at, fault);
}
