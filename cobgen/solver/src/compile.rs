//! Translates the canonical request and its active rules to the integer problem.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::conflict::Conflicts;
use crate::problem::{Group, Mode, Problem, Slot};
use crate::set::Set;
use crate::spec::{Host, Kind, Spec, SpecNodes};
use crate::steps::{OutOfSteps, Steps};
use crate::tier::TypeOrder;

/// The problem, and the meaning of its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) problem: Problem,
    /// For each group its services.
    pub(crate) members: Vec<Vec<usize>>,
    /// For each slot the nodes that it represents.
    pub(crate) sources: Vec<Source>,
    /// For each rank its hardware and image type.
    pub(crate) types: Vec<(usize, usize)>,
}

/// The nodes that a slot represents.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Existing nodes, by index.
    Existing(Vec<usize>),
    /// Existing nodes without fixed services or types, by index.
    Released(Vec<usize>),
    /// Hosts of the inventory, by index.
    Hosts(Vec<usize>),
    /// New nodes.
    New,
}

/// Dominated pairs of types are removed only if there are at most this many pairs.
const MOST_PAIRS: usize = 2_000;
/// Limit for groups times conflicts, and groups times slots: it bounds the memory.
const MOST_CELLS: u64 = 200_000_000;

/// The active rules and the usable image types.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection<'a> {
    /// By rule.
    pub(crate) active: &'a [bool],
    /// By image type; `None`: all.
    pub(crate) images: Option<&'a [bool]>,
}

/// The problem; `None` if a quick check shows that there is no solution.
///
/// # Errors
/// If the steps run out.
pub(crate) fn compile(
    spec: &Spec,
    selection: Selection<'_>,
    steps: &mut Steps,
) -> Result<Option<Compiled>, OutOfSteps> {
    steps.spend((spec.rules.len() + spec.services.len() * 4 + spec.existing.len() * 4 + 10) as u64)?;
    let facts = Facts::gather(spec, selection.active);
    if !facts.possible {
        return Ok(None);
    }
    let Some((groups, members)) = facts.groups(spec) else { return Ok(None) };
    let mut group_of = vec![0; spec.services.len()];
    for (g, services) in members.iter().enumerate() {
        for s in services {
            group_of[*s] = g;
        }
    }
    let cells = (groups.len() as u64 / 64 + 1).saturating_mul(facts.cants.len() as u64 + spec.existing.len() as u64);
    steps.spend(cells.saturating_add(facts.cants.len() as u64 * 8))?;
    if cells > MOST_CELLS {
        return Err(OutOfSteps);
    }
    let cants = facts.cants.iter().map(|all| Set::of(groups.len(), all.iter().map(|s| group_of[*s])));
    let conflicts: BTreeSet<_> = cants.collect();
    if conflicts.iter().any(|c| c.len() == 1) {
        return Ok(None);
    }
    let conflicts = Arc::new(Conflicts::new(groups.len(), conflicts.into_iter().collect()));
    let mut builder =
        Builder { spec, selection, facts: &facts, members: &members, group_of: &group_of, conflicts: &conflicts };
    let Some((slots, sources, types)) = builder.slots(steps)? else { return Ok(None) };
    let nodes = spec.nodes.count();
    let problem = Problem { groups, conflicts, slots, nodes, caps: Vec::new() };
    Ok(Some(Compiled { problem, members, sources, types }))
}

/// The demands of the active rules on services.
struct Facts {
    possible: bool,
    /// By service: minimum, maximum, odd.
    domains: Vec<(u64, u64, bool)>,
    musts: Vec<Vec<usize>>,
    everywhere: Vec<usize>,
    cants: Vec<Vec<usize>>,
    /// By service: the names of the types that it may use.
    hardware: BTreeMap<usize, Vec<String>>,
    images: BTreeMap<usize, Vec<String>>,
    /// By existing node: whether it keeps its services and types.
    kept: Vec<bool>,
}

impl Facts {
    fn gather(spec: &Spec, active: &[bool]) -> Self {
        let nodes = spec.nodes.count();
        let mut facts = Self {
            possible: true,
            domains: vec![(1, nodes, false); spec.services.len()],
            musts: Vec::new(),
            everywhere: Vec::new(),
            cants: Vec::new(),
            hardware: BTreeMap::new(),
            images: BTreeMap::new(),
            kept: vec![false; spec.existing.len()],
        };
        for (rule, _) in spec.rules.iter().zip(active).filter(|(_, active)| **active) {
            facts.add(spec, &rule.kind, nodes);
        }
        facts
    }

    fn add(&mut self, spec: &Spec, kind: &Kind, nodes: u64) {
        let mut at_least = |s: usize, n: u64| self.domains[s].0 = self.domains[s].0.max(n);
        match kind {
            Kind::SizeMin(n) => self.possible &= nodes >= *n,
            Kind::SizeMax(n) => self.possible &= nodes <= *n,
            Kind::Min(s, n) => at_least(*s, *n),
            Kind::RatioMin(s, ratio) => at_least(*s, ratio.at_least(nodes)),
            Kind::Everywhere(s) => {
                at_least(*s, nodes);
                // All services of `everywhere` are together, then.
                self.everywhere.push(*s);
            }
            // Every service of the cluster is on at least one node, so the other service is needed in any case.
            Kind::Requires(_, other, n) => match spec.services.binary_search(other) {
                Ok(other) => at_least(other, *n),
                Err(_) => self.possible &= *n == 0,
            },
            Kind::Max(s, n) => self.domains[*s].1 = self.domains[*s].1.min(*n),
            Kind::RatioMax(s, ratio) => self.domains[*s].1 = self.domains[*s].1.min(ratio.at_most(nodes)),
            Kind::Odd(s) => self.domains[*s].2 = true,
            Kind::Hardware(s, names) => drop(self.hardware.insert(*s, names.clone())),
            Kind::Image(s, names) => drop(self.images.insert(*s, names.clone())),
            Kind::MustCoexist(all) => self.musts.push(all.clone()),
            Kind::CantCoexist(all) => self.cants.push(all.clone()),
            Kind::Existing(at) => {
                for node in &spec.alike[*at] {
                    self.kept[*node] = true;
                }
            }
            // Checked once there is a solution.
            Kind::Excluded(_) => {}
        }
    }

    /// The services that are always together, and the domains that they share.
    fn groups(&self, spec: &Spec) -> Option<(Vec<Group>, Vec<Vec<usize>>)> {
        let mut leader: Vec<usize> = (0..spec.services.len()).collect();
        for pair in self.musts.iter().chain([&self.everywhere]).flat_map(|all| all.windows(2)) {
            let (a, b) = (find(&mut leader, pair[0]), find(&mut leader, pair[1]));
            leader[a.max(b)] = a.min(b);
        }
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for s in 0..spec.services.len() {
            members.entry(find(&mut leader, s)).or_default().push(s);
        }
        let members: Vec<_> = members.into_values().collect();
        let group = |services: &Vec<usize>| {
            let domain = |s: &usize| self.domains[*s];
            let mut group = Group {
                lo: services.iter().map(|s| domain(s).0).max()?,
                hi: services.iter().map(|s| domain(s).1).min()?,
                odd: services.iter().any(|s| domain(s).2).then_some(true),
                size: services.len(),
            };
            group.align().then_some(group)
        };
        Some((members.iter().map(group).collect::<Option<_>>()?, members))
    }
}

fn find(leader: &mut [usize], mut s: usize) -> usize {
    while leader[s] != s {
        leader[s] = leader[leader[s]];
        s = leader[s];
    }
    s
}

/// The request and everything that slots need.
struct Builder<'a> {
    spec: &'a Spec,
    selection: Selection<'a>,
    facts: &'a Facts,
    members: &'a [Vec<usize>],
    group_of: &'a [usize],
    conflicts: &'a Conflicts,
}

/// A slot before ranks are known.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Draft {
    base: Set,
    modes: Modes,
}

/// Pairs of types with the groups that can be on them.
type Modes = Vec<((usize, usize), Set)>;
type SlotTables = (Vec<Slot>, Vec<Source>, Vec<(usize, usize)>);

impl Builder<'_> {
    fn slots(&mut self, steps: &mut Steps) -> Result<Option<SlotTables>, OutOfSteps> {
        let order = TypeOrder::new(self.spec);
        let open = self.open_modes(&order, steps)?;
        let mut slots: Vec<(Draft, Source, u64, u64)> = Vec::new();
        let kept = self.facts.kept.iter().filter(|kept| **kept).count() as u64;
        let wanted = self.spec.existing.iter().filter(|e| e.wanted).count() as u64;
        let shrinks = matches!(self.spec.nodes, SpecNodes::Count(n) if n < wanted);
        for (draft, places) in self.kept_nodes(steps)? {
            let count = places.len() as u64;
            let least = if shrinks { 0 } else { count };
            if self.is_viable(&draft) {
                slots.push((draft, Source::Existing(places), least, count));
            } else if !shrinks {
                return Ok(None);
            }
        }
        match &self.spec.nodes {
            SpecNodes::Count(nodes) => {
                for (draft, places) in self.released_nodes(&open, &order) {
                    let count = places.len() as u64;
                    slots.push((draft, Source::Released(places), if shrinks { 0 } else { count }, count));
                }
                let fresh = nodes.saturating_sub(wanted.max(kept));
                if fresh > 0 {
                    slots.push((Draft { base: self.nothing(), modes: open }, Source::New, fresh, fresh));
                }
            }
            SpecNodes::Hosts(hosts) => slots.extend(self.fresh_hosts(hosts, steps)?),
        }
        if slots.iter().any(|(draft, _, least, _)| *least > 0 && !self.is_viable(draft)) {
            return Ok(None);
        }
        slots.sort_by(|a, b| a.1.cmp(&b.1));
        Ok(Some(finish(slots, &order)))
    }

    fn nothing(&self) -> Set {
        Set::empty(self.members.len())
    }

    /// Whether a node of this draft can have any valid layout.
    fn is_viable(&self, draft: &Draft) -> bool {
        let clash = self.conflicts.broken_by(&draft.base);
        let mode = |(_, allowed): &(_, Set)| draft.base.is_subset(allowed) && !allowed.is_empty();
        !clash && draft.modes.iter().any(mode)
    }

    /// The groups whose services can all be on these types.
    fn allowed(&self, hardware: usize, image: usize) -> Set {
        let fits = |rules: &BTreeMap<usize, Vec<String>>, s: &usize, name: &String| {
            rules.get(s).is_none_or(|names| names.binary_search(name).is_ok())
        };
        let (hardware, image) = (&self.spec.hardware[hardware].name, &self.spec.images[image].name);
        let fits = |s: &usize| fits(&self.facts.hardware, s, hardware) && fits(&self.facts.images, s, image);
        let groups = (0..self.members.len()).filter(|g| self.members[*g].iter().all(fits));
        Set::of(self.members.len(), groups)
    }

    /// The only mode of a machine; empty if its image may not be used.
    fn modes_of(&self, host: &Host) -> Modes {
        let usable = self.selection.images.is_none_or(|images| images[host.image]);
        let mode = || ((host.hardware, host.image), self.allowed(host.hardware, host.image));
        usable.then(mode).into_iter().collect()
    }

    /// The pairs of types for new nodes, without pairs that are never the first choice.
    fn open_modes(&self, order: &TypeOrder<'_>, steps: &mut Steps) -> Result<Modes, OutOfSteps> {
        let usable = |image: &usize| self.selection.images.is_none_or(|images| images[*image]);
        let offered = (0..self.spec.hardware.len()).filter(|h| self.spec.hardware[*h].offered).collect();
        let hardware =
            first_of_a_kind(offered, &self.facts.hardware, |h| &self.spec.hardware[h].name, |h| order.hardware_key(h));
        let offered = (0..self.spec.images.len()).filter(|i| self.spec.images[*i].offered).filter(usable).collect();
        let images =
            first_of_a_kind(offered, &self.facts.images, |i| &self.spec.images[i].name, |i| order.image_key(i));
        let mut pairs: Vec<_> = hardware.iter().flat_map(|h| images.iter().map(|i| (*h, *i))).collect();
        steps.spend((pairs.len() as u64).saturating_mul(self.spec.services.len() as u64 + 1))?;
        if pairs.len() as u64 * (self.members.len() as u64 / 64 + 1) > MOST_CELLS {
            return Err(OutOfSteps);
        }
        pairs.sort_by_key(|types| order.key(*types));
        let dominated = pairs.len() <= MOST_PAIRS;
        let mut modes: Modes = Vec::new();
        for (h, i) in pairs {
            let allowed = self.allowed(h, i);
            if !(dominated && modes.iter().any(|(_, before)| allowed.is_subset(before))) {
                modes.push(((h, i), allowed));
            }
        }
        Ok(modes)
    }

    /// Existing nodes that keep their services and types, by their possible layouts.
    fn kept_nodes(&self, steps: &mut Steps) -> Result<BTreeMap<Draft, Vec<usize>>, OutOfSteps> {
        let mut allowed = BTreeMap::new();
        let mut drafts: BTreeMap<Draft, Vec<usize>> = BTreeMap::new();
        for at in (0..self.spec.existing.len()).filter(|at| self.facts.kept[*at]) {
            steps.spend(self.spec.services.len() as u64 + 10)?;
            let node = &self.spec.existing[at];
            let modes: &Vec<_> =
                allowed.entry((node.host.hardware, node.host.image)).or_insert_with(|| self.modes_of(&node.host));
            let (mut base, mut shut) = (self.nothing(), self.nothing());
            for s in 0..self.spec.services.len() {
                match (node.services.contains(&s), self.spec.changed[s]) {
                    (true, false) => base.insert(self.group_of[s]),
                    (false, false) => shut.insert(self.group_of[s]),
                    (_, true) => {}
                }
            }
            let modes = modes.iter().map(|(types, allowed)| (*types, allowed.without(&shut))).collect();
            drafts.entry(Draft { base, modes }).or_default().push(at);
        }
        Ok(drafts)
    }

    /// Existing nodes without fixed layout: they may become like new nodes, or keep their types.
    fn released_nodes(&self, open: &Modes, order: &TypeOrder<'_>) -> Vec<(Draft, Vec<usize>)> {
        let mut by_types: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (at, node) in self.spec.existing.iter().enumerate().filter(|(at, _)| !self.facts.kept[*at]) {
            by_types.entry((node.host.hardware, node.host.image)).or_default().push(at);
        }
        let draft = |(own, places): ((usize, usize), Vec<usize>)| {
            let mut modes = open.clone();
            if !modes.iter().any(|(types, _)| *types == own) {
                modes.extend(self.modes_of(&self.spec.existing[places[0]].host));
            }
            modes.sort_by_key(|(types, _)| order.key(*types));
            (Draft { base: self.nothing(), modes }, places)
        };
        by_types.into_iter().map(draft).collect()
    }

    /// Hosts without services that must stay, by their types.
    fn fresh_hosts(&self, hosts: &[Host], steps: &mut Steps) -> Result<Vec<(Draft, Source, u64, u64)>, OutOfSteps> {
        let kept = self.spec.existing.iter().zip(&self.facts.kept).filter(|(_, kept)| **kept);
        let kept: BTreeSet<&str> = kept.map(|(node, _)| node.host.name.as_str()).collect();
        // A released node keeps its types: removing a rule changes only the effect of that rule.
        let own: BTreeMap<&str, &Host> =
            self.spec.existing.iter().map(|node| (node.host.name.as_str(), &node.host)).collect();
        let mut by_types: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (at, host) in hosts.iter().enumerate().filter(|(_, host)| !kept.contains(host.name.as_str())) {
            let host = own.get(host.name.as_str()).copied().unwrap_or(host);
            by_types.entry((host.hardware, host.image)).or_default().push(at);
        }
        steps.spend((by_types.len() as u64).saturating_mul(self.spec.services.len() as u64 + 1))?;
        let slot = |((hardware, image), places): ((usize, usize), Vec<usize>)| {
            let host = Host { name: String::new(), hardware, image };
            let count = places.len() as u64;
            (Draft { base: self.nothing(), modes: self.modes_of(&host) }, Source::Hosts(places), count, count)
        };
        Ok(by_types.into_iter().map(slot).collect())
    }
}

/// Of types that suit the same services, only the most preferred type.
fn first_of_a_kind<'a, K: Ord>(
    mut types: Vec<usize>,
    rules: &BTreeMap<usize, Vec<String>>,
    name: impl Fn(usize) -> &'a String,
    key: impl Fn(usize) -> K,
) -> Vec<usize> {
    types.sort_by_key(|t| key(*t));
    let mut seen = BTreeSet::new();
    let signature = |t: usize| {
        let fits = rules.iter().filter(|(_, names)| names.binary_search(name(t)).is_ok());
        fits.map(|(s, _)| *s).collect::<Vec<_>>()
    };
    types.retain(|t| seen.insert(signature(*t)));
    types
}

/// Gives every pair of types its rank.
fn finish(slots: Vec<(Draft, Source, u64, u64)>, order: &TypeOrder<'_>) -> SlotTables {
    let used = slots.iter().flat_map(|(draft, ..)| draft.modes.iter().map(|(types, _)| *types));
    let mut types: Vec<_> = used.collect::<BTreeSet<_>>().into_iter().collect();
    types.sort_by_key(|t| order.key(*t));
    let ranks: BTreeMap<_, _> = types.iter().enumerate().map(|(rank, types)| (*types, rank)).collect();
    let (mut finished, mut sources) = (Vec::new(), Vec::new());
    for (draft, source, min, max) in slots {
        let modes = draft.modes.into_iter().map(|(types, allowed)| Mode { rank: ranks[&types], allowed }).collect();
        finished.push(Slot { base: draft.base, modes, min, max, size: (0, usize::MAX) });
        sources.push(source);
    }
    (finished, sources, types)
}
