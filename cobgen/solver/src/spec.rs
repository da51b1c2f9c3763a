//! The request in canonical form: all lists sorted, names resolved, every rule an entry of a list.
//!
//! The canonical form does not depend on the order of the request; all later stages use it alone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::RequestError;
use crate::outcome::{Rule, RuleKind};
use crate::ratio::Ratio;
use crate::request::{NodeLayout, Nodes, Preference, Request, RuleId, Ruled, ServiceRule, TypeOption};

/// Counts stay far below the point at which their sums would overflow.
const MOST_NODES: u64 = 1 << 40;
/// The most names and the most rules: no real model has more.
const MOST_ENTRIES: usize = 1 << 20;

/// A request in canonical form.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// Sorted by name; elsewhere a service is an index into this list.
    pub(crate) services: Vec<String>,
    pub(crate) hardware: Vec<Type>,
    pub(crate) images: Vec<Type>,
    pub(crate) rules: Vec<SpecRule>,
    pub(crate) nodes: SpecNodes,
    /// In natural order of names.
    pub(crate) existing: Vec<Existing>,
    /// Existing nodes that stay if possible, grouped by types and services. [`Kind::Existing`] indexes this list.
    pub(crate) alike: Vec<Vec<usize>>,
    /// By service: whether it may come to existing nodes and leave them.
    pub(crate) changed: Vec<bool>,
    /// [`Kind::Excluded`] is an index into this list.
    pub(crate) excluded: Vec<Excluded>,
    pub(crate) preference: Preference,
}

/// A hardware or image type.
#[derive(Debug, Clone)]
pub(crate) struct Type {
    pub(crate) name: String,
    pub(crate) cost: u64,
    /// Whether new nodes may have it.
    pub(crate) offered: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum SpecNodes {
    Count(u64),
    /// In natural order of names.
    Hosts(Vec<Host>),
}

impl SpecNodes {
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Count(count) => *count,
            Self::Hosts(hosts) => hosts.len() as u64,
        }
    }
}

/// A machine, with indexes into [`Spec::hardware`] and [`Spec::images`].
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) hardware: usize,
    pub(crate) image: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Existing {
    pub(crate) host: Host,
    /// The services of the node that the cluster keeps.
    pub(crate) services: BTreeSet<usize>,
    /// Whether it is among the hosts of the inventory, or there is no inventory.
    pub(crate) wanted: bool,
}

/// An unwanted layout and its index in the request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Excluded {
    pub(crate) counts: BTreeMap<NodeLayout, u64>,
    pub(crate) index: usize,
}

/// A rule that can be switched off, to see whether it matters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpecRule {
    pub(crate) kind: Kind,
    pub(crate) id: Option<RuleId>,
}

/// Like [`RuleKind`], with indexes instead of names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    SizeMin(u64),
    SizeMax(u64),
    Min(usize, u64),
    Max(usize, u64),
    RatioMin(usize, Ratio),
    RatioMax(usize, Ratio),
    Odd(usize),
    Requires(usize, String, u64),
    Hardware(usize, Vec<String>),
    Image(usize, Vec<String>),
    MustCoexist(Vec<usize>),
    CantCoexist(Vec<usize>),
    Everywhere(usize),
    Existing(usize),
    Excluded(usize),
}

impl Spec {
    pub(crate) fn new(request: &Request) -> Result<Self, RequestError> {
        check_limits(request)?;
        let services = unique(request.services.iter().map(|s| &s.name)).map_err(RequestError::ServiceTwice)?;
        let known: BTreeMap<_, _> = services.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        let hardware = types(&request.hardware, machines(request).map(|(hardware, _)| hardware))?;
        let images = types(&request.images, machines(request).map(|(_, image)| image))?;
        let host = |name: &str, own: &str, image: &str| Host {
            name: name.to_owned(),
            hardware: place(&hardware, own),
            image: place(&images, image),
        };
        let nodes = match &request.nodes {
            Nodes::Count(count) => SpecNodes::Count(*count),
            Nodes::Inventory(hosts) => {
                unique(hosts.iter().map(|h| &h.name)).map_err(RequestError::NodeTwice)?;
                let mut hosts: Vec<_> = hosts.iter().map(|h| host(&h.name, &h.hardware, &h.image)).collect();
                hosts.sort_by(|a, b| natural(&a.name, &b.name));
                SpecNodes::Hosts(hosts)
            }
        };
        unique(request.existing.iter().map(|n| &n.name)).map_err(RequestError::NodeTwice)?;
        let listed: Option<BTreeSet<&str>> = match &nodes {
            SpecNodes::Count(_) => None,
            SpecNodes::Hosts(hosts) => Some(hosts.iter().map(|h| h.name.as_str()).collect()),
        };
        let existing = request.existing.iter().map(|node| Existing {
            host: host(&node.name, &node.hardware, &node.image),
            services: node.services.iter().filter_map(|s| known.get(s.as_str()).copied()).collect(),
            wanted: listed.as_ref().is_none_or(|names| names.contains(node.name.as_str())),
        });
        let mut existing: Vec<_> = existing.collect();
        existing.sort_by(|a, b| natural(&a.host.name, &b.host.name));
        let mut changed = vec![false; services.len()];
        for service in request.changed.iter().filter_map(|s| known.get(s.as_str())) {
            changed[*service] = true;
        }
        let mut excluded: Vec<_> = request.excluded.iter().enumerate().map(|(at, e)| Excluded::new(at, e)).collect();
        excluded.sort();
        let mut rules = rules(request, &known);
        let alike = alike(&existing);
        rules.extend((0..alike.len()).map(|at| SpecRule { kind: Kind::Existing(at), id: None }));
        rules.extend((0..excluded.len()).map(|at| SpecRule { kind: Kind::Excluded(at), id: None }));
        rules.sort();
        drop(known);
        let preference = request.preference.clone();
        Ok(Self { services, hardware, images, rules, nodes, existing, alike, changed, excluded, preference })
    }

    /// A rule with names, for messages.
    pub(crate) fn describe(&self, rule: &SpecRule) -> Rule {
        let name = |s: &usize| self.services[*s].clone();
        let names = |all: &[usize]| all.iter().map(name).collect();
        let kind = match &rule.kind {
            Kind::SizeMin(n) => RuleKind::SizeMin(*n),
            Kind::SizeMax(n) => RuleKind::SizeMax(*n),
            Kind::Min(s, n) => RuleKind::Min(name(s), *n),
            Kind::Max(s, n) => RuleKind::Max(name(s), *n),
            Kind::RatioMin(s, ratio) => RuleKind::RatioMin(name(s), *ratio),
            Kind::RatioMax(s, ratio) => RuleKind::RatioMax(name(s), *ratio),
            Kind::Odd(s) => RuleKind::Odd(name(s)),
            Kind::Requires(s, other, n) => RuleKind::Requires(name(s), other.clone(), *n),
            Kind::Hardware(s, types) => RuleKind::Hardware(name(s), types.clone()),
            Kind::Image(s, types) => RuleKind::Image(name(s), types.clone()),
            Kind::MustCoexist(all) => RuleKind::MustCoexist(names(all)),
            Kind::CantCoexist(all) => RuleKind::CantCoexist(names(all)),
            Kind::Everywhere(s) => RuleKind::Everywhere(name(s)),
            Kind::Existing(at) => {
                let nodes = self.alike[*at].iter().map(|node| self.existing[*node].host.name.clone());
                RuleKind::Existing(nodes.collect())
            }
            Kind::Excluded(at) => RuleKind::Excluded(self.excluded[*at].index),
        };
        Rule { kind, id: rule.id }
    }
}

impl Excluded {
    fn new(index: usize, layout: &[crate::Counted]) -> Self {
        let mut counts = BTreeMap::new();
        for counted in layout.iter().filter(|c| c.count > 0) {
            let mut node = counted.layout.clone();
            node.services.sort();
            let sum: &mut u64 = counts.entry(node).or_default();
            *sum = sum.saturating_add(counted.count);
        }
        Self { counts, index }
    }
}

/// Wanted existing nodes, grouped by equal types and services, in order of their first names.
fn alike(existing: &[Existing]) -> Vec<Vec<usize>> {
    let mut alike: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (at, node) in existing.iter().enumerate().filter(|(_, node)| node.wanted) {
        alike.entry((node.host.hardware, node.host.image, &node.services)).or_default().push(at);
    }
    let mut alike: Vec<_> = alike.into_values().collect();
    alike.sort_unstable();
    alike
}

fn check_limits(request: &Request) -> Result<(), RequestError> {
    let count = match &request.nodes {
        Nodes::Count(count) => *count,
        Nodes::Inventory(hosts) => hosts.len() as u64,
    };
    let entries = request.services.iter().map(|s| 1 + s.quantities.requires.len()).sum::<usize>();
    let layout_rules = request.must_coexist.len() + request.cant_coexist.len();
    let types = request.hardware.len() + request.images.len();
    let checks = [
        ("nodes", count, MOST_NODES),
        ("existing nodes", request.existing.len() as u64, MOST_ENTRIES as u64),
        ("services with their requirements", entries as u64, MOST_ENTRIES as u64),
        ("layout rules", layout_rules as u64, MOST_ENTRIES as u64),
        ("hardware and image types", types as u64, MOST_ENTRIES as u64),
    ];
    for (what, given, most) in checks {
        if given > most {
            return Err(RequestError::TooMany { what, given, most });
        }
    }
    Ok(())
}

/// Sorted names; the error is a name that occurs twice.
fn unique<'a>(names: impl Iterator<Item = &'a String>) -> Result<Vec<String>, String> {
    let mut sorted: Vec<_> = names.cloned().collect();
    sorted.sort();
    match sorted.windows(2).find(|w| w[0] == w[1]) {
        Some(twice) => Err(twice[0].clone()),
        None => Ok(sorted),
    }
}

/// Hardware and image of all existing machines.
fn machines(request: &Request) -> impl Iterator<Item = (&String, &String)> {
    let hosts = match &request.nodes {
        Nodes::Inventory(hosts) => hosts.as_slice(),
        Nodes::Count(_) => &[],
    };
    let existing = request.existing.iter().map(|n| (&n.hardware, &n.image));
    hosts.iter().map(|h| (&h.hardware, &h.image)).chain(existing)
}

fn types<'a>(options: &[TypeOption], others: impl Iterator<Item = &'a String>) -> Result<Vec<Type>, RequestError> {
    unique(options.iter().map(|o| &o.name)).map_err(RequestError::TypeTwice)?;
    let mut all: BTreeMap<&str, (u64, bool)> = options.iter().map(|o| (o.name.as_str(), (o.cost, true))).collect();
    for other in others {
        all.entry(other).or_insert((0, false));
    }
    let all = all.into_iter().map(|(name, (cost, offered))| Type { name: name.to_owned(), cost, offered });
    Ok(all.collect())
}

fn place(types: &[Type], name: &str) -> usize {
    types.binary_search_by(|t| t.name.as_str().cmp(name)).expect("every machine's types are listed")
}

fn rules(request: &Request, known: &BTreeMap<&str, usize>) -> Vec<SpecRule> {
    let mut rules = Vec::new();
    let mut rule = |kind, id| rules.push(SpecRule { kind, id });
    if let Some(min) = &request.size.min {
        rule(Kind::SizeMin(min.value), Some(min.rule));
    }
    if let Some(max) = &request.size.max {
        rule(Kind::SizeMax(max.value), Some(max.rule));
    }
    let mut named = BTreeSet::new();
    for layout in request.must_coexist.iter().chain(&request.cant_coexist) {
        named.extend(layout.value.iter().filter_map(|s| known.get(s.as_str()).copied()));
    }
    for service in &request.services {
        let at = known[service.name.as_str()];
        let before = rules.len();
        service_rules(at, service, &mut rules);
        if before == rules.len() && !named.contains(&at) {
            rules.push(SpecRule { kind: Kind::Everywhere(at), id: None });
        }
    }
    let places = |names: &Ruled<Vec<String>>| {
        let set: BTreeSet<_> = names.value.iter().map(|s| known.get(s.as_str()).copied()).collect();
        set.into_iter().collect::<Vec<_>>()
    };
    for must in &request.must_coexist {
        let present: Vec<_> = places(must).into_iter().flatten().collect();
        if present.len() > 1 {
            rules.push(SpecRule { kind: Kind::MustCoexist(present), id: Some(must.rule) });
        }
    }
    for cant in &request.cant_coexist {
        // If the cluster lacks a service of the rule, the whole set can't be on any node.
        if let Some(all) = places(cant).into_iter().collect::<Option<Vec<_>>>()
            && !all.is_empty()
        {
            rules.push(SpecRule { kind: Kind::CantCoexist(all), id: Some(cant.rule) });
        }
    }
    rules
}

fn service_rules(at: usize, service: &ServiceRule, rules: &mut Vec<SpecRule>) {
    let mut rule = |kind, id| rules.push(SpecRule { kind, id: Some(id) });
    let sorted = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    if let Some(hardware) = &service.hardware {
        rule(Kind::Hardware(at, sorted(&hardware.value)), hardware.rule);
    }
    if let Some(images) = &service.images {
        rule(Kind::Image(at, sorted(&images.value)), images.rule);
    }
    let quantities = &service.quantities;
    if let Some(min) = &quantities.min {
        rule(Kind::Min(at, min.value), min.rule);
    }
    if let Some(max) = &quantities.max {
        rule(Kind::Max(at, max.value), max.rule);
    }
    if let Some(ratio) = &quantities.ratio_min {
        rule(Kind::RatioMin(at, ratio.value), ratio.rule);
    }
    if let Some(ratio) = &quantities.ratio_max {
        rule(Kind::RatioMax(at, ratio.value), ratio.rule);
    }
    if let Some(odd) = quantities.odd {
        rule(Kind::Odd(at), odd);
    }
    for requires in &quantities.requires {
        rule(Kind::Requires(at, requires.value.0.clone(), requires.value.1), requires.rule);
    }
}

/// Natural order of names: `n2` before `n10`.
pub(crate) fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (word_a, rest_a) = cut(left, |c| !c.is_ascii_digit());
        let (word_b, rest_b) = cut(right, |c| !c.is_ascii_digit());
        let (number_a, next_a) = cut(rest_a, |c| c.is_ascii_digit());
        let (number_b, next_b) = cut(rest_b, |c| c.is_ascii_digit());
        let (plain_a, plain_b) = (number_a.trim_start_matches('0'), number_b.trim_start_matches('0'));
        let numbers = plain_a.len().cmp(&plain_b.len()).then_with(|| plain_a.cmp(plain_b));
        let order = word_a.cmp(word_b).then(numbers);
        if order != Ordering::Equal {
            return order;
        }
        if next_a.is_empty() && next_b.is_empty() {
            return a.cmp(b);
        }
        (left, right) = (next_a, next_b);
    }
}

fn cut(text: &str, inside: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !inside(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count() {
        let mut names = ["n10", "n2", "a", "n02", "n1x3", "n1x20", "n", "n1"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["a", "n", "n1", "n1x3", "n1x20", "n02", "n2", "n10"]);
    }
}
