//! Ranks: the order of goals where rank decides.
//!
//! A goal `(C, t)` needs `(B, z)`, for every state z of a need's set, if some transition on C's route to t, from any
//! state, depends on B, or t's lock dependencies do. (States that all requesters of the goal accept are excluded as
//! start states, unless C goes to the goal by itself: C does not start there.) The rank of a goal is its level: the
//! longest chain of needs below it, where the goals of a circle count together as a single goal. So a needed goal has
//! the lower rank, and a rank changes only if a goal below it changes: the bundle of an unaffected host keeps its
//! bytes. Ties are broken by id and state when ranks are compared.
//!
//! Many circles exist only through a second state of some set: a change object that is asked for any of several states
//! stays in its state if that is acceptable, and otherwise goes to the first. Within a circle, goals are ordered by
//! their needs counted in this way alone (decision 0004).

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use cob_types::{Cob, CobId, Kind, KindName, LockNeeds, Need, TransitionNeeds};
use rayon::prelude::*;

use cob_forecast::Routes;

/// Sets the ranks of every goal of all change objects. Unknown names are skipped: the check reports these.
pub(super) fn set_ranks(kinds: &BTreeMap<&KindName, &Kind>, hosts: &mut [Vec<(CobId, Cob)>]) {
    let routes: BTreeMap<&KindName, Routes<'_>> = kinds.iter().map(|(name, kind)| (*name, Routes::of(kind))).collect();
    let cobs: Vec<&(CobId, Cob)> = hosts.iter().flatten().collect();
    let firsts = Firsts::of(&routes, &cobs);
    let graph = GoalGraph::of(&firsts, &cobs);
    let alone = LazyCell::new(|| levels(&GoalGraph::by_wish(&firsts, &cobs), |_| 0));
    let all = levels(&graph, |goal| alone[goal]);
    let mut levels = &all[..];
    for (_, cob) in hosts.iter_mut().flatten() {
        let Some(routes) = routes.get(&cob.kind) else { continue };
        let states = &routes.kind.states;
        let (own, rest) = levels.split_at(states.len());
        levels = rest;
        cob.ranks = states.iter().zip(own).map(|(state, level)| (state.clone(), u64::from(*level))).collect();
    }
}

/// The needs of each goal; goals are numbered by change object, then state.
struct GoalGraph {
    /// `needs[starts[g]..starts[g + 1]]` are the goals that g needs.
    starts: Vec<usize>,
    needs: Vec<u32>,
}

impl GoalGraph {
    fn of(firsts: &Firsts<'_>, cobs: &[&(CobId, Cob)]) -> Self {
        let resolved = firsts.resolved(cobs);
        let mut graph = Self { starts: vec![0], needs: Vec::new() };
        graph.add_goals(firsts, &resolved, |graph, cob, entry| {
            graph.needs.extend(cob.needs[entry].iter().flat_map(|need| &cob.goals[need.goals.clone()]));
        });
        graph
    }

    /// The same goals, followed by nodes for the needs that accept several states: such nodes have the needs of the
    /// transitions from states outside the set to its first state.
    fn by_wish(firsts: &Firsts<'_>, cobs: &[&(CobId, Cob)]) -> Self {
        let resolved = firsts.resolved(cobs);
        let mut sets: HashMap<&[u32], u32> = HashMap::new();
        let mut nodes: Vec<(u32, &[u32])> = Vec::new();
        for (cob, need) in resolved.iter().flat_map(|cob| cob.needs.iter().map(move |need| (cob, need))) {
            let wanted = &cob.goals[need.goals.clone()];
            if wanted.len() > 1 && !sets.contains_key(wanted) {
                sets.insert(wanted, firsts.goals + u32::try_from(nodes.len()).unwrap_or(u32::MAX));
                nodes.push((need.on, wanted));
            }
        }
        let mut graph = Self { starts: vec![0], needs: Vec::new() };
        let add = |graph: &mut Self, cob: &Resolved<'_, '_>, entry: Range<usize>| {
            let wanted = cob.needs[entry].iter().map(|need| &cob.goals[need.goals.clone()]);
            graph.needs.extend(wanted.filter_map(|wanted| sets.get(wanted).or(wanted.first())));
        };
        graph.add_goals(firsts, &resolved, add);
        for (on, wanted) in nodes {
            if let Ok(at) = resolved.binary_search_by_key(&on, |cob| cob.first) {
                let cob = &resolved[at];
                let states: Vec<usize> = wanted.iter().map(|goal| (goal - on) as usize).collect();
                for (guarded, entry) in &cob.entries {
                    let counts = match *guarded {
                        Guarded::Grant(state) => states.contains(&state),
                        Guarded::Transition(from, to) => {
                            let transitions = states.iter().map(|state| cob.routes.first[from][*state]);
                            !states.contains(&from) && transitions.flatten().next() == Some(to)
                        }
                    };
                    if counts {
                        add(&mut graph, cob, entry.clone());
                    }
                }
            }
            graph.starts.push(graph.needs.len());
        }
        graph
    }

    /// Adds all goals, in the order of their numbers; `add` adds the needs of each entry that counts for a goal.
    fn add_goals<'r, 'k>(
        &mut self,
        firsts: &Firsts<'_>,
        resolved: &[Resolved<'r, 'k>],
        add: impl Fn(&mut Self, &Resolved<'r, 'k>, Range<usize>),
    ) {
        let content = contents(resolved, firsts.goals);
        for cob in resolved {
            for target in 0..cob.routes.kind.states.len() {
                let content = content.get(cob.first as usize + target).and_then(Option::as_deref).unwrap_or_default();
                let entries = cob.entries.iter().filter(|(guarded, _)| match *guarded {
                    Guarded::Grant(state) => state == target,
                    Guarded::Transition(from, to) => {
                        !content.contains(&from) && from != target && cob.routes.first[from][target] == Some(to)
                    }
                });
                for (_, entry) in entries {
                    add(self, cob, entry.clone());
                }
                self.starts.push(self.needs.len());
            }
        }
    }

    fn goals(&self) -> usize {
        self.starts.len() - 1
    }
}

/// The first goal of each change object, and its routes. For look-ups only, never iterated.
struct Firsts<'a> {
    of: HashMap<&'a CobId, (u32, &'a Routes<'a>)>,
    /// The number of goals.
    goals: u32,
}

impl<'a> Firsts<'a> {
    fn of(routes: &'a BTreeMap<&KindName, Routes<'a>>, cobs: &[&'a (CobId, Cob)]) -> Self {
        let mut firsts = Self { of: HashMap::with_capacity(cobs.len()), goals: 0 };
        for (id, cob) in cobs {
            if let Some(routes) = routes.get(&cob.kind) {
                firsts.of.insert(id, (firsts.goals, routes));
                firsts.goals += u32::try_from(routes.kind.states.len()).unwrap_or(u32::MAX);
            }
        }
        firsts
    }

    fn resolved(&self, cobs: &[&(CobId, Cob)]) -> Vec<Resolved<'_, 'a>> {
        let resolved = |(id, cob): &&(CobId, Cob)| self.of.get(id).map(|at| Resolved::of(cob, at, self));
        cobs.par_iter().filter_map(resolved).collect()
    }
}

/// For goals that only others request: the states that all these needs accept.
fn contents(cobs: &[Resolved<'_, '_>], goals: u32) -> Vec<Option<Vec<usize>>> {
    let mut found: Vec<Option<Vec<usize>>> = vec![None; goals as usize];
    for (cob, need) in cobs.iter().flat_map(|cob| cob.needs.iter().map(move |need| (cob, need))) {
        // A single state accepts only itself.
        let wanted = &cob.goals[need.goals.clone()];
        if need.on == cob.first {
            continue;
        }
        for goal in wanted {
            match &mut found[*goal as usize] {
                Some(content) => content.retain(|state| wanted.iter().any(|goal| (*goal - need.on) as usize == *state)),
                none => *none = Some(wanted.iter().map(|goal| (*goal - need.on) as usize).collect()),
            }
        }
    }
    for Resolved { first, routes, preferred, .. } in cobs {
        for state in [*preferred, routes.place(&routes.kind.pre_remove)].into_iter().flatten() {
            found[*first as usize + state] = None;
        }
    }
    found
}

/// The event that an entry of dependencies guards, by states.
enum Guarded {
    Transition(usize, usize),
    Grant(usize),
}

/// A change object's dependencies, as goals.
struct Resolved<'r, 'k> {
    /// Its first goal.
    first: u32,
    routes: &'r Routes<'k>,
    preferred: Option<usize>,
    /// The goals that it depends on, need by need, entry by entry.
    goals: Vec<u32>,
    needs: Vec<ResolvedNeed>,
    /// The guarded event of each entry, and the range of its needs.
    entries: Vec<(Guarded, Range<usize>)>,
}

struct ResolvedNeed {
    /// The first goal of the named change object.
    on: u32,
    /// The range of its goals.
    goals: Range<usize>,
}

impl<'r, 'k> Resolved<'r, 'k> {
    fn of(cob: &Cob, at: &(u32, &'r Routes<'k>), firsts: &Firsts<'_>) -> Self {
        let (first, routes) = *at;
        let preferred = routes.place(&cob.preferred);
        let (goals, needs, entries) = (Vec::new(), Vec::new(), Vec::new());
        let mut resolved = Self { first, routes, preferred, goals, needs, entries };
        for TransitionNeeds { from, to, needs } in &cob.transitions {
            if let (Some(from), Some(to)) = (routes.place(from), routes.place(to)) {
                resolved.entry(Guarded::Transition(from, to), needs, firsts);
            }
        }
        for LockNeeds { state, needs } in &cob.locks {
            if let Some(state) = routes.place(state) {
                resolved.entry(Guarded::Grant(state), needs, firsts);
            }
        }
        resolved
    }

    fn entry(&mut self, guarded: Guarded, needs: &[Need], firsts: &Firsts<'_>) {
        let first = self.needs.len();
        for need in needs {
            let Some((on, routes)) = firsts.of.get(&need.cob) else { continue };
            let begin = self.goals.len();
            let places = need.states.iter().filter_map(|state| routes.place(state));
            self.goals.extend(places.filter_map(|place| u32::try_from(place).ok()).map(|place| on + place));
            self.needs.push(ResolvedNeed { on: *on, goals: begin..self.goals.len() });
        }
        self.entries.push((guarded, first..self.needs.len()));
    }
}

/// The level of every goal: Tarjan's algorithm returns strongly connected components after the components that they
/// need, so each level follows from known levels. An explicit stack, because chains may be as long as the model.
/// `inside` orders the goals within a circle.
fn levels(graph: &GoalGraph, inside: impl Fn(usize) -> u32) -> Vec<u32> {
    const NEW: u32 = u32::MAX;
    let goals = graph.goals();
    let mut levels = vec![0; goals];
    let mut order = vec![NEW; goals];
    let mut low = vec![NEW; goals];
    let mut on_stack = vec![false; goals];
    let mut component: Vec<usize> = Vec::new();
    let mut walk: Vec<(usize, usize)> = Vec::new();
    let mut counter = 0;
    for root in 0..goals {
        if order[root] == NEW {
            walk.push((root, graph.starts[root]));
        }
        while let Some((goal, next)) = walk.last_mut() {
            let goal = *goal;
            if order[goal] == NEW {
                order[goal] = counter;
                low[goal] = counter;
                counter += 1;
                component.push(goal);
                on_stack[goal] = true;
            }
            if *next < graph.starts[goal + 1] {
                let need = graph.needs[*next] as usize;
                *next += 1;
                if order[need] == NEW {
                    walk.push((need, graph.starts[need]));
                } else if on_stack[need] {
                    low[goal] = low[goal].min(order[need]);
                }
                continue;
            }
            walk.pop();
            if let Some((user, _)) = walk.last() {
                low[*user] = low[*user].min(low[goal]);
            }
            if low[goal] == order[goal] {
                let begin = component.iter().rposition(|member| *member == goal).unwrap_or(0);
                let members = component.split_off(begin);
                for member in &members {
                    on_stack[*member] = false;
                }
                set_level(graph, &members, &inside, &mut levels);
            }
        }
    }
    levels
}

/// The highest level below plus 1; the members of a circle get from there on as many levels as `inside` distinguishes.
/// Members themselves still have level 0 here; `below` skips the members of the circle.
fn set_level(graph: &GoalGraph, members: &[usize], inside: impl Fn(usize) -> u32, levels: &mut [u32]) {
    let circle: BTreeSet<usize> = members.iter().copied().collect();
    let below = |goal: &usize| graph.needs[graph.starts[*goal]..graph.starts[goal + 1]].iter().map(|g| *g as usize);
    let level = members.iter().flat_map(below).filter(|goal| !circle.contains(goal)).map(|goal| levels[goal] + 1).max();
    let level = level.unwrap_or(0);
    if let [member] = members {
        levels[*member] = level;
        return;
    }
    let order: BTreeSet<u32> = members.iter().map(|member| inside(*member)).collect();
    let place: BTreeMap<u32, u32> = order.into_iter().zip(level..).collect();
    members.iter().for_each(|member| levels[*member] = place[&inside(*member)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Sketch, random};

    fn rank(sketch: &Sketch, cob: &str, state: &str) -> u64 {
        let generation = sketch.assembled().generation;
        generation.bundles.values().find_map(|b| b.cobs.get(cob)).expect("there").ranks[state]
    }

    #[test]
    fn a_needed_state_has_the_lower_rank() {
        let mut sketch = Sketch::new();
        sketch.cob("n/a", "up").cob("n/b", "up").cob("n/c", "up");
        sketch.requires("n/a", "n/b").requires("n/b", "n/c");
        // A stop needs the users off, a start needs the requirements on; b leaves `outdated` with a off.
        assert_eq!(
            [rank(&sketch, "n/a", "down"), rank(&sketch, "n/b", "down"), rank(&sketch, "n/c", "down")],
            [0, 1, 2]
        );
        assert_eq!([rank(&sketch, "n/c", "up"), rank(&sketch, "n/b", "up"), rank(&sketch, "n/a", "up")], [2, 3, 4]);
    }

    #[test]
    fn states_in_a_circle_share_a_rank_above_their_needs() {
        let mut sketch = Sketch::new();
        sketch.cob("n/a", "up").cob("n/b", "up").cob("n/c", "up").cob("n/d", "up");
        sketch.after("n/a", "n/b").after("n/b", "n/a").after("n/b", "n/c").after("n/d", "n/a");
        let up = |cob| rank(&sketch, cob, "up");
        assert_eq!([up("n/c"), up("n/b"), up("n/a"), up("n/d")], [0, 1, 1, 2]);
    }

    #[test]
    fn the_shortest_route_decides_which_transitions_count() {
        let mut sketch = Sketch::new();
        sketch.kind("k", &["s", "x", "y", "t"], &["s>y", "s>x", "x>t", "y>t"]);
        sketch.cob_of("k", "n/a", "t").cob("n/b", "up").cob("n/c", "up");
        // Equally short ways over x and y; the kind lists the way over y first.
        sketch.transition("n/a", "s", "x", "n/b@up").transition("n/a", "s", "y", "n/c@up");
        sketch.after("n/c", "n/b");
        assert_eq!(rank(&sketch, "n/a", "t"), 2);
        assert_eq!(rank(&sketch, "n/a", "x"), 1);
    }

    #[test]
    fn unrelated_additions_leave_a_bundle_as_it_is() {
        let mut sketch = Sketch::new();
        sketch.cob("n1/a", "up").cob("n1/b", "up").requires("n1/a", "n1/b");
        let before = sketch.assembled().generation;
        sketch.cob("a0/x", "up").cob("n2/y", "up").after("n2/y", "n1/a").requires("n2/y", "a0/x");
        let after = sketch.assembled().generation;
        let host = cob_types::HostName::new("n1").expect("name");
        // The bundle of a host contains the possible requests for it.
        let without_askers = |bundle: &cob_types::Bundle| cob_types::Bundle { askers: None, ..bundle.clone() };
        assert_ne!(before.bundles[&host].askers, after.bundles[&host].askers);
        assert_eq!(without_askers(&before.bundles[&host]), without_askers(&after.bundles[&host]));
        sketch.cob("n2/z", "up").after("n2/z", "n2/y");
        let unasked = sketch.assembled().generation;
        assert_eq!(after.bundles[&host], unasked.bundles[&host]);
        assert_eq!(after.manifest.hosts[&host].bundle, unasked.manifest.hosts[&host].bundle);
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let mut sketch = Sketch::new();
        for i in 0..20_000 {
            sketch.cob(&format!("n/{i:05}"), "up");
        }
        for i in 0..19_999 {
            sketch.after(&format!("n/{i:05}"), &format!("n/{:05}", i + 1));
        }
        assert_eq!(rank(&sketch, "n/00000", "up"), 19_999);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The rank of every goal is above the ranks of all its needs, except needs in the same circle.
        #[test]
        fn ranks_are_an_order(sketch in random::any_sketch()) {
            let draft = sketch.draft.clone();
            let Ok(assembled) = sketch.assemble() else { return Ok(()) };
            let kinds: BTreeMap<&KindName, &Kind> = draft.kinds.iter().map(|(n, k)| (n, &k.value)).collect();
            let routes = kinds.iter().map(|(name, kind)| (*name, Routes::of(kind))).collect();
            let bundles = assembled.generation.bundles.into_values();
            let mut cobs: Vec<(CobId, Cob)> =
                bundles.flat_map(|b| b.cobs).map(|(id, cob)| (id, (*cob).clone())).collect();
            cobs.sort_by(|(a, _), (b, _)| a.cmp(b));
            let cobs: Vec<&(CobId, Cob)> = cobs.iter().collect();
            let graph = GoalGraph::of(&Firsts::of(&routes, &cobs), &cobs);
            let ranks: Vec<u64> = cobs
                .iter()
                .flat_map(|(_, cob)| routes[&cob.kind].kind.states.iter().map(|s| cob.ranks[s]).collect::<Vec<_>>())
                .collect();
            for goal in 0..graph.goals() {
                for need in &graph.needs[graph.starts[goal]..graph.starts[goal + 1]] {
                    let need = *need as usize;
                    prop_assert!(ranks[need] < ranks[goal] || leads(&graph, need, goal));
                }
            }
        }
    }

    fn leads(graph: &GoalGraph, from: usize, to: usize) -> bool {
        let mut seen = vec![false; graph.goals()];
        let mut queue = vec![from];
        while let Some(goal) = queue.pop() {
            if goal == to {
                return true;
            }
            if !std::mem::replace(&mut seen[goal], true) {
                queue.extend(graph.needs[graph.starts[goal]..graph.starts[goal + 1]].iter().map(|g| *g as usize));
            }
        }
        false
    }
}
