//! Dependencies put together: at most one for each pair in the same transition or lock.
//!
//! Two needs of one pair leave the states that serve both; when there are none, both places are named.

use std::collections::BTreeMap;

use cob_types::{CobId, HostName, Need};

use super::hosts::Hosts;
use super::{ByCob, Report};
use crate::diagnostic::{Diagnostic, shown};
use crate::draft::{Arrow, When};
use crate::model::Mark;

/// The finished dependencies by the change object that has them.
pub(super) type Merged = ByCob<Vec<Arrow>>;

/// Dependencies as they are found.
#[derive(Debug, Default)]
pub(super) struct Arrows(ByCob<Vec<Found>>);

#[derive(Debug)]
struct Found {
    when: When,
    need: Need,
    words: String,
    mark: Mark,
}

impl Arrows {
    /// Adds one to `cob`.
    pub(super) fn add(&mut self, cob: &CobId, when: When, need: Need, words: String, mark: Mark) {
        let found = Found { when, need, words, mark };
        match self.0.get_mut(cob) {
            Some(list) => list.push(found),
            None => {
                self.0.insert(cob.clone(), vec![found]);
            }
        }
    }

    /// A dependency across hosts needs a link, and a link needs both addresses.
    pub(super) fn check_addresses(&self, hosts: &Hosts, report: &mut Report<'_>) {
        let lacks = |name: &str| hosts.0.get(name).filter(|h| h.address.is_none());
        for (cob, list) in &self.0 {
            for found in list.iter().filter(|f| f.need.cob.host_str() != cob.host_str()) {
                for host in [cob.host_str(), found.need.cob.host_str()].into_iter().filter_map(lacks) {
                    no_address(&host.name, host.mark, found.mark, report);
                }
            }
        }
    }

    /// Puts together what stands in the same dependency, in the order written.
    pub(super) fn merged(self, report: &mut Report<'_>) -> Merged {
        self.0.into_iter().map(|(cob, list)| (cob.clone(), merge(&cob, list, report))).collect()
    }
}

fn merge(cob: &CobId, list: Vec<Found>, report: &mut Report<'_>) -> Vec<Arrow> {
    let mut merged: Vec<(Arrow, Mark)> = Vec::with_capacity(list.len());
    let mut index: BTreeMap<(When, CobId), usize> = BTreeMap::new();
    for Found { when, need, words, mark } in list {
        let place = report.place(mark);
        let there = index.get(&(when.clone(), need.cob.clone())).and_then(|i| merged.get_mut(*i));
        let Some((arrow, first)) = there else {
            index.insert((when.clone(), need.cob.clone()), merged.len());
            merged.push((Arrow { when, need, words, place }, mark));
            continue;
        };
        let both: Vec<_> = arrow.need.states.iter().filter(|s| need.states.contains(s)).cloned().collect();
        if both.is_empty() {
            let what = match &when {
                When::Transition { from, to } => format!("the transition {from} -> {to} of {cob}"),
                When::Lock { state } => format!("a promise of {cob} in {state}"),
            };
            let fault = Diagnostic::error("contradiction", format!("`{words}` contradicts another dependency"))
                .note(None, format!("{what} needs {need} by it"))
                .note(Some(report.place(*first)), format!("and {} by `{}` here", arrow.need, arrow.words))
                .help("both can't be at once: leave one of them away, or name a state that serves both");
            report.push(mark, fault);
            continue;
        }
        arrow.need.states = both;
        if *first != mark {
            arrow.words = format!("{}; {words} ({})", arrow.words, shown(&place));
        }
    }
    merged.into_iter().map(|(arrow, _)| arrow).collect()
}

fn no_address(host: &HostName, mark: Mark, at: Mark, report: &mut Report<'_>) {
    let fault = Diagnostic::error("no-address", format!("a dependency across hosts, but {host} has no address"))
        .note(Some(report.place(mark)), format!("{host} is defined here"))
        .help(format!("give it one: `{host}: {{address: \"tcp://127.0.0.1:7077\"}}`"));
    report.push(at, fault);
}
