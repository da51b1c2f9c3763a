//! Dependencies between services: provided names, required services, circles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::diagnostic::Diagnostic;
use crate::expand::Report;
use crate::model::{Marked, Named, ServiceEntry, did_you_mean};

/// The stage at which a service needs another service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// For its installation.
    Install,
    /// For its initialization and operation.
    Runtime,
}

impl Stage {
    pub(crate) const ALL: [Self; 2] = [Self::Install, Self::Runtime];

    fn words(self) -> &'static str {
        match self {
            Self::Install => "to be installed",
            Self::Runtime => "to run",
        }
    }
}

/// A service with its conflicts and dependencies.
#[derive(Debug, Default)]
pub(crate) struct ServiceInfo {
    pub(crate) conflicts: Vec<Marked<String>>,
    /// Hard dependencies.
    requires: BTreeMap<Stage, Vec<Marked<String>>>,
    /// Optional dependencies: the service starts after these services if the cluster has them.
    uses: BTreeMap<Stage, Vec<Marked<String>>>,
}

/// All services.
#[derive(Debug, Default)]
pub(crate) struct Services {
    all: BTreeMap<String, ServiceInfo>,
    /// For each provided name the services that provide it under another own name.
    provided: BTreeMap<String, BTreeSet<String>>,
}

impl Services {
    pub(super) fn read(entries: &Named<ServiceEntry>, report: &mut Report<'_>) -> Self {
        let mut services = Self::default();
        for (name, entry) in entries.iter() {
            // The check is done here so that a run that only wants a layout also reports the fault.
            report.segment("service", name);
            let mut info = ServiceInfo::default();
            for provided in entry.dependencies.iter().flat_map(|d| &d.provides) {
                if report.segment("provided name", provided) {
                    services.provided.entry(provided.value.clone()).or_default().insert(name.value.clone());
                }
            }
            let conflicts = entry.conflicts.iter().chain(entry.dependencies.iter().flat_map(|d| &d.conflicts));
            for conflict in conflicts {
                if !info.conflicts.iter().any(|there| there.value == conflict.value) {
                    info.conflicts.push(conflict.clone());
                }
            }
            if let Some(written) = &entry.dependencies {
                for (stage, needs) in [(Stage::Install, &written.install), (Stage::Runtime, &written.runtime)] {
                    let Some(needs) = needs else { continue };
                    info.requires.insert(stage, needs.requires.clone());
                    info.uses.insert(stage, needs.uses.clone());
                }
            }
            services.all.insert(name.value.clone(), info);
        }
        services.check_names(report);
        services.check_circles(report);
        services
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ServiceInfo> {
        self.all.get(name)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.all.keys().map(String::as_str)
    }

    /// The services that a name may refer to: the service with this name, and the services that provide it.
    pub(crate) fn meant<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let own = self.all.contains_key(name).then_some(name);
        let others = self.provided.get(name).into_iter().flatten().map(String::as_str);
        own.into_iter().chain(others.filter(move |other| *other != name))
    }

    /// The hard dependencies of a service, at both stages.
    pub(crate) fn hard(&self, service: &str) -> impl Iterator<Item = (Stage, &Marked<String>)> {
        let all = self.all.get(service).into_iter().flat_map(|s| &s.requires);
        all.flat_map(|(stage, names)| names.iter().map(move |name| (*stage, name)))
    }

    /// The services of a cluster that come before a service at a stage, each with the place that states the dependency.
    pub(crate) fn before(
        &self,
        service: &str,
        stage: Stage,
        has: impl Fn(&str) -> bool,
    ) -> BTreeMap<String, Marked<String>> {
        let named = self.all.get(service).into_iter().flat_map(|s| [s.requires.get(&stage), s.uses.get(&stage)]);
        let mut found = BTreeMap::new();
        for name in named.flatten().flatten() {
            for other in self.meant(&name.value).filter(|other| *other != service && has(other)) {
                found.entry(other.to_owned()).or_insert_with(|| name.clone());
            }
        }
        found
    }

    fn check_names(&self, report: &mut Report<'_>) {
        let known: BTreeSet<&str> = self.names().chain(self.provided.keys().map(String::as_str)).collect();
        let exists = |name: &Marked<String>| known.contains(name.value.as_str());
        for info in self.all.values() {
            let hard = info.requires.values().flatten().chain(&info.conflicts);
            for name in hard.filter(|name| !exists(name)) {
                report.unknown("service", name, known.iter().copied());
            }
            for name in info.uses.values().flatten().filter(|name| !exists(name)) {
                let what = format!("`uses` names `{}`, which no service is called or provides", name.value);
                let help = did_you_mean(&name.value, known.iter().copied());
                report.push(name.mark, Diagnostic::warning("unknown-name", what).maybe_help(help));
            }
        }
    }

    /// Reports circular dependencies of services, for each stage separately: a strongly connected group is reported
    /// once, with its shortest circle.
    fn check_circles(&self, report: &mut Report<'_>) {
        let names: Vec<&str> = self.names().collect();
        let index: BTreeMap<&str, usize> = names.iter().enumerate().map(|(i, n)| (*n, i)).collect();
        for stage in Stage::ALL {
            let mut graph: DiGraph<(), &Marked<String>> = DiGraph::new();
            for _ in &names {
                graph.add_node(());
            }
            for (name, info) in &self.all {
                let needs = [info.requires.get(&stage), info.uses.get(&stage)];
                for need in needs.into_iter().flatten().flatten() {
                    for other in self.meant(&need.value) {
                        let (from, to) = (index[name.as_str()], index[other]);
                        graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), need);
                    }
                }
            }
            let mut groups = tarjan_scc(&graph);
            groups.iter_mut().for_each(|group| group.sort());
            groups.sort();
            for group in groups {
                let circle = shortest_circle(&graph, &group);
                if let Some(circle) = circle {
                    self.tell_circle(&circle, stage, &names, report);
                }
            }
        }
    }

    fn tell_circle(
        &self,
        circle: &[(NodeIndex, &Marked<String>)],
        stage: Stage,
        names: &[&str],
        report: &mut Report<'_>,
    ) {
        let Some((first, need)) = circle.first() else { return };
        let mut way: Vec<&str> = circle.iter().map(|(node, _)| names[node.index()]).collect();
        way.push(names[first.index()]);
        let what = match circle.len() {
            1 => format!("circular dependency: the service `{}` waits for itself {}", way[0], stage.words()),
            _ => format!("circular dependency: services wait for each other {}: {}", stage.words(), way.join(" -> ")),
        };
        let mut fault = Diagnostic::error("service-circle", what);
        for (pair, (_, need)) in way.windows(2).zip(circle).skip(1) {
            let text = if pair[1] == need.value {
                format!("`{}` waits for `{}`", pair[0], pair[1])
            } else {
                format!("`{}` waits for `{}`, which provides `{}`", pair[0], pair[1], need.value)
            };
            fault = fault.note(Some(report.place(need.mark)), text);
        }
        report.push(need.mark, fault.help("remove a dependency of the circle: these services could never start"));
    }
}

/// The shortest circle within a strongly connected group. It starts at the first member that lies on a circle of that
/// length.
fn shortest_circle<'g>(
    graph: &DiGraph<(), &'g Marked<String>>,
    group: &[NodeIndex],
) -> Option<Vec<(NodeIndex, &'g Marked<String>)>> {
    /// In a large group only this many members are tried as the start.
    const TRIED: usize = 64;
    let inside: BTreeSet<NodeIndex> = group.iter().copied().collect();
    let mut best: Option<Vec<(NodeIndex, &Marked<String>)>> = None;
    for start in group.iter().take(TRIED) {
        if let Some(found) = circle_from(graph, *start, &inside)
            && best.as_ref().is_none_or(|b| found.len() < b.len())
        {
            best = Some(found);
        }
    }
    best
}

fn circle_from<'g>(
    graph: &DiGraph<(), &'g Marked<String>>,
    start: NodeIndex,
    inside: &BTreeSet<NodeIndex>,
) -> Option<Vec<(NodeIndex, &'g Marked<String>)>> {
    // Edges in the order written, so that the same model gives the same circle.
    let edges = |node: NodeIndex| {
        let mut found: Vec<(NodeIndex, &Marked<String>)> = graph
            .neighbors(node)
            .flat_map(|to| graph.edges_connecting(node, to).map(move |e| (to, *e.weight())))
            .collect();
        found.sort_by_key(|(to, need)| (need.mark, *to));
        found.dedup();
        found
    };
    let mut came: BTreeMap<NodeIndex, (NodeIndex, &Marked<String>)> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for (to, need) in edges(node).into_iter().filter(|(to, _)| inside.contains(to)) {
            if to == start {
                let mut circle = vec![(node, need)];
                let mut at = node;
                while at != start {
                    let (before, need) = came[&at];
                    circle.push((before, need));
                    at = before;
                }
                circle.reverse();
                return Some(circle);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = came.entry(to) {
                entry.insert((node, need));
                queue.push_back(to);
            }
        }
    }
    None
}
