//! Brute force: builds and checks every layout of a small request.
//!
//! This code follows the definition of a request alone, and shares only the public types with the solver.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use cob_solver::{ExistingNode, NodeLayout, Nodes, Preference, Request, Rule, RuleId, RuleKind, Ruled, ServiceRule};

/// The active rules. Rules without an id have their own names.
#[derive(Debug, Clone)]
pub(crate) struct Active {
    pub(crate) ids: BTreeSet<RuleId>,
    pub(crate) everywhere: BTreeSet<String>,
    pub(crate) existing: BTreeSet<String>,
    pub(crate) excluded: BTreeSet<usize>,
}

impl Active {
    /// All rules of a request.
    pub(crate) fn all(request: &Request) -> Self {
        let mut ids = BTreeSet::new();
        let size = [&request.size.min, &request.size.max];
        ids.extend(size.into_iter().flatten().map(|r| r.rule));
        ids.extend(request.must_coexist.iter().chain(&request.cant_coexist).map(|r| r.rule));
        for service in &request.services {
            ids.extend(own_rules(service));
        }
        let free = request.services.iter().filter(|s| goes_everywhere(request, s));
        Self {
            ids,
            everywhere: free.map(|s| s.name.clone()).collect(),
            existing: request.existing.iter().map(|n| n.name.clone()).collect(),
            excluded: (0..request.excluded.len()).collect(),
        }
    }

    /// Only these rules.
    pub(crate) fn only(rules: &[Rule]) -> Self {
        let mut active = Self {
            ids: rules.iter().filter_map(|r| r.id).collect(),
            everywhere: BTreeSet::new(),
            existing: BTreeSet::new(),
            excluded: BTreeSet::new(),
        };
        for rule in rules {
            active.switch(rule, true);
        }
        active
    }

    pub(crate) fn without(mut self, rule: &Rule) -> Self {
        self.switch(rule, false);
        self
    }

    fn switch(&mut self, rule: &Rule, on: bool) {
        fn put<T: Ord>(set: &mut BTreeSet<T>, value: T, on: bool) {
            if on {
                set.insert(value);
            } else {
                set.remove(&value);
            }
        }
        match (&rule.kind, rule.id) {
            (_, Some(id)) => put(&mut self.ids, id, on),
            (RuleKind::Everywhere(service), None) => put(&mut self.everywhere, service.clone(), on),
            (RuleKind::Existing(nodes), None) => {
                for node in nodes {
                    put(&mut self.existing, node.clone(), on);
                }
            }
            (RuleKind::Excluded(at), None) => put(&mut self.excluded, *at, on),
            (kind, None) => panic!("{kind} has no place in the model"),
        }
    }

    fn has<'a, T>(&self, rule: &'a Option<Ruled<T>>) -> Option<&'a T> {
        rule.as_ref().filter(|r| self.ids.contains(&r.rule)).map(|r| &r.value)
    }
}

fn own_rules(service: &ServiceRule) -> Vec<RuleId> {
    let q = &service.quantities;
    let mut ids: Vec<_> = service.hardware.iter().chain(&service.images).map(|r| r.rule).collect();
    ids.extend(q.min.iter().chain(&q.max).map(|r| r.rule));
    ids.extend(q.ratio_min.iter().chain(&q.ratio_max).map(|r| r.rule));
    ids.extend(q.odd);
    ids.extend(q.requires.iter().map(|r| r.rule));
    ids
}

fn goes_everywhere(request: &Request, service: &ServiceRule) -> bool {
    let mut layout_rules = request.must_coexist.iter().chain(&request.cant_coexist);
    own_rules(service).is_empty() && !layout_rules.any(|r| r.value.contains(&service.name))
}

/// The source of a node, in the order in which equal layouts are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Existing,
    Host,
    New,
}

/// Nodes with the same options.
struct Class {
    origin: Origin,
    options: Vec<NodeLayout>,
    least: u64,
    most: u64,
}

/// A layout: the number of nodes of each node layout and origin.
type Counts = BTreeMap<(NodeLayout, Origin), u64>;

/// The answer: the number of nodes of each node layout, in order of preference; `None` if there is no layout.
pub(crate) fn best(request: &Request, active: &Active) -> Option<Vec<(NodeLayout, u64)>> {
    if request.preference != Preference::FewestImages {
        return best_with(request, active, None);
    }
    let mut images: BTreeSet<String> = request.images.iter().map(|i| i.name.clone()).collect();
    images.extend(request.existing.iter().map(|n| n.image.clone()));
    if let Nodes::Inventory(hosts) = &request.nodes {
        images.extend(hosts.iter().map(|h| h.image.clone()));
    }
    let mut subsets: Vec<Vec<&String>> = (1..1u32 << images.len())
        .map(|mask| images.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, n)| n).collect())
        .collect();
    subsets.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    subsets.iter().find_map(|subset| best_with(request, active, Some(subset)))
}

fn best_with(request: &Request, active: &Active, images: Option<&[&String]>) -> Option<Vec<(NodeLayout, u64)>> {
    let nodes = match &request.nodes {
        Nodes::Count(count) => *count,
        Nodes::Inventory(hosts) => hosts.len() as u64,
    };
    if active.has(&request.size.min).is_some_and(|min| nodes < *min)
        || active.has(&request.size.max).is_some_and(|max| nodes > *max)
    {
        return None;
    }
    let classes = classes(request, active, nodes, images);
    let mut best: Option<Vec<((NodeLayout, Origin), u64)>> = None;
    let mut visit = |counts: &Counts| {
        if !good(request, active, nodes, counts) {
            return;
        }
        let mut sorted: Vec<_> = counts.iter().filter(|(_, n)| **n > 0).map(|(k, n)| (k.clone(), *n)).collect();
        sorted.sort_by(|a, b| compare_keys(request, &a.0, &b.0));
        if best.as_ref().is_none_or(|b| compare(request, &sorted, b) == Ordering::Greater) {
            best = Some(sorted);
        }
    };
    spread_over(&classes, nodes, &mut Counts::new(), &mut visit);
    best.map(|sorted| {
        let mut plain: Vec<(NodeLayout, u64)> = Vec::new();
        for ((layout, _), count) in sorted {
            match plain.iter_mut().find(|(l, _)| *l == layout) {
                Some((_, sum)) => *sum += count,
                None => plain.push((layout, count)),
            }
        }
        plain
    })
}

/// The approximate number of layouts to check, if no rule were active.
pub(crate) fn effort(request: &Request) -> u64 {
    let nodes = match &request.nodes {
        Nodes::Count(count) => *count,
        Nodes::Inventory(hosts) => hosts.len() as u64,
    };
    let active = Active::only(&[]);
    let ways = |class: &Class| {
        let kinds = class.options.len() as u64;
        (1..=class.most).fold(1u64, |ways, k| ways.saturating_mul(kinds + k) / k)
    };
    classes(request, &active, nodes, None).iter().map(ways).fold(1, u64::saturating_mul)
}

fn spread_over(classes: &[Class], left: u64, counts: &mut Counts, visit: &mut impl FnMut(&Counts)) {
    let Some((class, rest)) = classes.split_first() else {
        if left == 0 {
            visit(counts);
        }
        return;
    };
    for many in class.least..=class.most.min(left) {
        choose(class, &class.options, many, counts, &mut |counts| spread_over(rest, left - many, counts, visit));
    }
}

fn choose(class: &Class, options: &[NodeLayout], many: u64, counts: &mut Counts, then: &mut dyn FnMut(&mut Counts)) {
    let Some((option, rest)) = options.split_first() else {
        if many == 0 {
            then(counts);
        }
        return;
    };
    for here in 0..=many {
        *counts.entry((option.clone(), class.origin)).or_default() += here;
        choose(class, rest, many - here, counts, then);
        *counts.get_mut(&(option.clone(), class.origin)).expect("just put in") -= here;
    }
}

fn classes(request: &Request, active: &Active, nodes: u64, images: Option<&[&String]>) -> Vec<Class> {
    let mut valid = valid_layouts(request, active);
    valid.retain(|l| images.is_none_or(|images| images.contains(&&l.image)));
    let fresh = preferred_types(request, &valid, &|h, i| offered(request, h, i));
    let mut classes = Vec::new();
    match &request.nodes {
        Nodes::Count(_) => {
            let existing = request.existing.len() as u64;
            for node in &request.existing {
                let own = |h: &str, i: &str| offered(request, h, i) || (h == node.hardware && i == node.image);
                let options = if active.existing.contains(&node.name) {
                    kept_options(request, node, &valid)
                } else {
                    preferred_types(request, &valid, &own)
                };
                let least = u64::from(nodes >= existing);
                classes.push(Class { origin: Origin::Existing, options, least, most: 1 });
            }
            let new = nodes.saturating_sub(existing);
            classes.push(Class { origin: Origin::New, options: fresh, least: new, most: new });
        }
        Nodes::Inventory(hosts) => {
            for host in hosts {
                let existing = request.existing.iter().find(|n| n.name == host.name);
                let (hardware, image) = existing.map_or((&host.hardware, &host.image), |n| (&n.hardware, &n.image));
                let keeps = existing.filter(|n| active.existing.contains(&n.name));
                let own = |l: &&NodeLayout| l.hardware == *hardware && l.image == *image;
                let (origin, options) = match keeps {
                    Some(node) => (Origin::Existing, kept_options(request, node, &valid)),
                    None => (Origin::Host, valid.iter().filter(own).cloned().collect()),
                };
                classes.push(Class { origin, options, least: 1, most: 1 });
            }
        }
    }
    join(classes)
}

/// Joins classes with the same options: their nodes are interchangeable.
fn join(classes: Vec<Class>) -> Vec<Class> {
    let mut joined: Vec<Class> = Vec::new();
    for class in classes {
        match joined.iter_mut().find(|c| c.origin == class.origin && c.options == class.options) {
            Some(same) => {
                same.least += class.least;
                same.most += class.most;
            }
            None => joined.push(class),
        }
    }
    joined
}

fn offered(request: &Request, hardware: &str, image: &str) -> bool {
    request.hardware.iter().any(|h| h.name == hardware) && request.images.iter().any(|i| i.name == image)
}

/// The possible layouts of an existing node: its unconcerned services stay and no other unconcerned service is added.
fn kept_options(request: &Request, node: &ExistingNode, valid: &[NodeLayout]) -> Vec<NodeLayout> {
    let unconcerned = |s: &&String| !request.changed.contains(s);
    let asked = |s: &&String| request.services.iter().any(|r| r.name == **s);
    let stay: BTreeSet<_> = node.services.iter().filter(unconcerned).filter(asked).collect();
    let suits = |l: &&NodeLayout| {
        l.hardware == node.hardware
            && l.image == node.image
            && l.services.iter().filter(unconcerned).collect::<BTreeSet<_>>() == stay
    };
    valid.iter().filter(suits).cloned().collect()
}

/// For each service set on usable types the first layout.
fn preferred_types(request: &Request, valid: &[NodeLayout], usable: &dyn Fn(&str, &str) -> bool) -> Vec<NodeLayout> {
    let mut first: BTreeMap<&Vec<String>, &NodeLayout> = BTreeMap::new();
    for layout in valid.iter().filter(|l| usable(&l.hardware, &l.image)) {
        let best = first.entry(&layout.services).or_insert(layout);
        if compare_layouts(request, layout, best) == Ordering::Less {
            *best = layout;
        }
    }
    first.into_values().cloned().collect()
}

/// Every service set on all existing types, unless it breaks a rule about single nodes.
fn valid_layouts(request: &Request, active: &Active) -> Vec<NodeLayout> {
    let names: BTreeSet<&String> = request.services.iter().map(|s| &s.name).collect();
    let mut types: BTreeSet<(&String, &String)> = BTreeSet::new();
    types.extend(request.hardware.iter().flat_map(|h| request.images.iter().map(|i| (&h.name, &i.name))));
    types.extend(request.existing.iter().map(|n| (&n.hardware, &n.image)));
    if let Nodes::Inventory(hosts) = &request.nodes {
        types.extend(hosts.iter().map(|h| (&h.hardware, &h.image)));
    }
    let mut layouts = Vec::new();
    for mask in 1..1u32 << names.len() {
        let set = names.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1);
        let services: Vec<String> = set.map(|(_, name)| (*name).clone()).collect();
        for (hardware, image) in &types {
            let layout =
                NodeLayout { services: services.clone(), hardware: (*hardware).clone(), image: (*image).clone() };
            if valid(request, active, &layout) {
                layouts.push(layout);
            }
        }
    }
    layouts
}

fn valid(request: &Request, active: &Active, layout: &NodeLayout) -> bool {
    let asked = |s: &String| request.services.iter().any(|r| r.name == *s);
    let on = |s: &String| layout.services.contains(s);
    let in_force = |r: &&Ruled<Vec<String>>| active.ids.contains(&r.rule);
    let together = request.must_coexist.iter().filter(in_force).all(|rule| {
        let present: Vec<_> = rule.value.iter().filter(|s| asked(s)).collect();
        !present.iter().any(|s| on(s)) || present.iter().all(|s| on(s))
    });
    let apart = request.cant_coexist.iter().filter(in_force).all(|r| r.value.is_empty() || !r.value.iter().all(on));
    let fits = request.services.iter().filter(|s| on(&s.name)).all(|s| {
        active.has(&s.hardware).is_none_or(|types| types.contains(&layout.hardware))
            && active.has(&s.images).is_none_or(|types| types.contains(&layout.image))
    });
    together && apart && fits
}

/// Whether a layout of new nodes keeps every rule, at any rank.
pub(crate) fn keeps_all_rules(request: &Request, counts: &[(NodeLayout, u64)]) -> bool {
    let active = Active::all(request);
    let nodes = counts.iter().map(|(_, n)| n).sum();
    let own: Counts = counts.iter().map(|(layout, n)| ((layout.clone(), Origin::New), *n)).collect();
    request.nodes == Nodes::Count(nodes)
        && counts.iter().all(|(l, _)| offered(request, &l.hardware, &l.image) && valid(request, &active, l))
        && good(request, &active, nodes, &own)
}

/// Whether all conditions on the cluster as a whole hold.
fn good(request: &Request, active: &Active, nodes: u64, counts: &Counts) -> bool {
    let number = |service: &String| -> u64 {
        counts.iter().filter(|((l, _), _)| l.services.contains(service)).map(|(_, n)| n).sum()
    };
    let quantities = request.services.iter().all(|service| {
        let n = number(&service.name);
        let q = &service.quantities;
        n >= 1
            && (!active.everywhere.contains(&service.name) || n == nodes)
            && active.has(&q.min).is_none_or(|min| n >= *min)
            && active.has(&q.max).is_none_or(|max| n <= *max)
            && active.has(&q.ratio_min).is_none_or(|r| n >= r.at_least(nodes))
            && active.has(&q.ratio_max).is_none_or(|r| n <= r.at_most(nodes))
            && q.odd.is_none_or(|odd| !active.ids.contains(&odd) || n % 2 == 1)
            && q.requires.iter().all(|r| !active.ids.contains(&r.rule) || number(&r.value.0) >= r.value.1)
    });
    let unwanted = |at: &usize| {
        let mut excluded: BTreeMap<&NodeLayout, u64> = BTreeMap::new();
        for counted in request.excluded[*at].iter().filter(|c| c.count > 0) {
            *excluded.entry(&counted.layout).or_default() += counted.count;
        }
        let mut own: BTreeMap<&NodeLayout, u64> = BTreeMap::new();
        for ((layout, _), count) in counts.iter().filter(|(_, n)| **n > 0) {
            *own.entry(layout).or_default() += count;
        }
        own == excluded
    };
    quantities && !active.excluded.iter().any(unwanted)
}

/// Less is more preferred.
fn compare_layouts(request: &Request, a: &NodeLayout, b: &NodeLayout) -> Ordering {
    let more_services = || b.services.len().cmp(&a.services.len());
    let cost = |name: &str| i128::from(request.hardware.iter().find(|t| t.name == name).map_or(0, |t| t.cost));
    let image_cost = |name: &str| i128::from(request.images.iter().find(|t| t.name == name).map_or(0, |t| t.cost));
    let cheap = || cost(&a.hardware).cmp(&cost(&b.hardware));
    let first = match &request.preference {
        Preference::Default | Preference::FewestImages => Ordering::Equal,
        Preference::CheapestHardware => cheap(),
        Preference::Spread => a.services.len().cmp(&b.services.len()).then_with(cheap),
        Preference::Pack => more_services().then_with(cheap),
        Preference::Weighted(w) => {
            let sum = |l: &NodeLayout| {
                l.services.len() as i128 * i128::from(w.services)
                    + cost(&l.hardware) * i128::from(w.hardware_cost)
                    + image_cost(&l.image) * i128::from(w.image_cost)
            };
            sum(b).cmp(&sum(a))
        }
    };
    first
        .then_with(more_services)
        .then_with(|| a.hardware.cmp(&b.hardware))
        .then_with(|| a.image.cmp(&b.image))
        .then_with(|| a.services.cmp(&b.services))
}

fn compare_keys(request: &Request, a: &(NodeLayout, Origin), b: &(NodeLayout, Origin)) -> Ordering {
    compare_layouts(request, &a.0, &b.0).then_with(|| a.1.cmp(&b.1))
}

/// Greater is more preferred: lexicographic order of the vectors of counts.
fn compare(request: &Request, a: &[((NodeLayout, Origin), u64)], b: &[((NodeLayout, Origin), u64)]) -> Ordering {
    for ((key_a, count_a), (key_b, count_b)) in a.iter().zip(b) {
        match compare_keys(request, key_a, key_b) {
            Ordering::Less => return Ordering::Greater,
            Ordering::Greater => return Ordering::Less,
            Ordering::Equal if count_a != count_b => return count_a.cmp(count_b),
            Ordering::Equal => {}
        }
    }
    a.len().cmp(&b.len())
}
