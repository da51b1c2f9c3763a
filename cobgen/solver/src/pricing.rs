//! Finds the best column of a slot for given weights of the groups: a maximum-weight set without conflicts.
//!
//! Branch and bound over the groups by falling weight. A group without conflicts with later candidates is taken without
//! branching.

use crate::problem::{Column, Problem};
use crate::set::Set;
use crate::steps::{OutOfSteps, Steps};

/// Finds the set of greatest weight, above `floor`, that is a column of the slot and has no cap.
///
/// # Errors
/// If the steps run out.
pub(crate) fn best_set(
    problem: &Problem,
    slot: usize,
    weights: &[i128],
    floor: i128,
    steps: &mut Steps,
) -> Result<Option<(Set, i128)>, OutOfSteps> {
    let mut best = None;
    let mut floor = floor;
    let base = &problem.slots[slot].base;
    if problem.conflicts.broken_by(base) {
        return Ok(None);
    }
    for mode in problem.slots[slot].modes.iter().filter(|m| base.is_subset(&m.allowed)) {
        let mut search = Search::new(problem, slot, &mode.allowed, weights, floor);
        steps.spend(search.candidates.len() as u64 + 4)?;
        let mut draft = Draft { set: base.clone(), shut: problem.empty_set(), weight: 0, size: 0 };
        for g in base.iter() {
            draft.add(problem, g, weights[g]);
        }
        search.extend(0, draft, steps)?;
        floor = search.floor;
        best = search.best.or(best);
    }
    Ok(best)
}

struct Search<'a> {
    problem: &'a Problem,
    slot: usize,
    weights: &'a [i128],
    /// Groups that may be added, by falling weight.
    candidates: Vec<usize>,
    /// For each group its index among the candidates.
    places: Vec<Option<usize>>,
    /// The total weight of the candidates before each candidate, without negative weights.
    sums: Vec<i128>,
    /// The total number of services of the candidates from each index on.
    services: Vec<usize>,
    /// The number of services in the smallest group.
    smallest: usize,
    /// Whether every conflict-free set is a column of this slot.
    plain: bool,
    floor: i128,
    best: Option<(Set, i128)>,
    /// How much deeper the search may go.
    depth: u32,
}

/// The maximum depth of the search: the stack is finite.
const DEPTH: u32 = 1_000;

/// A set under construction.
#[derive(Clone)]
struct Draft {
    set: Set,
    /// Groups that a group of the set excludes.
    shut: Set,
    weight: i128,
    /// The number of services in the set.
    size: usize,
}

impl Draft {
    fn add(&mut self, problem: &Problem, group: usize, weight: i128) {
        self.set.insert(group);
        self.weight = self.weight.saturating_add(weight);
        self.size += problem.groups[group].size;
        for partner in problem.conflicts.partners(group) {
            self.shut.insert(*partner);
        }
    }
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, slot: usize, allowed: &Set, weights: &'a [i128], floor: i128) -> Self {
        let own = &problem.slots[slot];
        let mut candidates: Vec<_> = allowed.without(&own.base).iter().filter(|g| problem.groups[*g].hi > 0).collect();
        candidates.sort_by_key(|g| (-weights[*g], *g));
        let mut places = vec![None; problem.groups.len()];
        let mut sums = vec![0i128];
        for (at, g) in candidates.iter().enumerate() {
            places[*g] = Some(at);
            sums.push(sums[at].saturating_add(weights[*g].max(0)));
        }
        let mut services = vec![0; candidates.len() + 1];
        for (at, g) in candidates.iter().enumerate().rev() {
            services[at] = services[at + 1] + problem.groups[*g].size;
        }
        let smallest = candidates.iter().map(|g| problem.groups[*g].size).min().unwrap_or(1).max(1);
        let plain = own.size.1 == usize::MAX && !problem.caps.iter().any(|(c, _)| c.slot == slot);
        let (best, depth) = (None, DEPTH);
        Self { problem, slot, weights, candidates, places, sums, services, smallest, plain, floor, best, depth }
    }

    fn extend(&mut self, at: usize, mut draft: Draft, steps: &mut Steps) -> Result<(), OutOfSteps> {
        let most = self.problem.slots[self.slot].size.1;
        // Expensive bounds are only checked after the search has branched.
        let mut branched = true;
        for next in at..=self.candidates.len() {
            steps.spend(2 + draft.set.words())?;
            if !self.is_promising(next, &draft) || (branched && self.is_bounded(next, &draft, steps)?) {
                return Ok(());
            }
            branched = false;
            let group = self.candidates.get(next).copied();
            let helpful = group.is_some_and(|g| self.weights[g] > 0);
            if !helpful && self.is_complete(&draft.set, draft.size) {
                self.floor = draft.weight;
                self.best = Some((draft.set, draft.weight));
                return Ok(());
            }
            let Some(group) = group else { return Ok(()) };
            let larger = draft.size + self.problem.groups[group].size;
            let conflicts = &self.problem.conflicts;
            let closed = draft.shut.contains(group) || conflicts.closes_larger(&draft.set, group);
            if larger > most || closed {
                continue;
            }
            let weight = self.weights[group];
            if helpful && self.plain && !self.hinders(group, next, &draft) {
                draft.add(self.problem, group, weight);
                continue;
            }
            let mut with = draft.clone();
            with.add(self.problem, group, weight);
            self.depth = self.depth.checked_sub(1).ok_or(OutOfSteps)?;
            self.extend(next + 1, with, steps)?;
            self.depth += 1;
            branched = true;
        }
        Ok(())
    }

    /// Whether the candidates from `next` on may suffice, as far as sums show.
    fn is_promising(&self, next: usize, draft: &Draft) -> bool {
        let (least, most) = self.problem.slots[self.slot].size;
        let room = most.saturating_sub(draft.size) / self.smallest;
        let end = next.saturating_add(room).min(self.candidates.len());
        let promise = self.sums[end] - self.sums[next];
        draft.weight.saturating_add(promise) > self.floor && draft.size + self.services[next] >= least
    }

    /// Whether these candidates do not suffice, because candidates that exclude each other can't all be added.
    fn is_bounded(&self, next: usize, draft: &Draft, steps: &mut Steps) -> Result<bool, OutOfSteps> {
        let conflicts = &self.problem.conflicts;
        if conflicts.cliques().is_empty() {
            return Ok(false);
        }
        let open = || self.candidates[next..].iter().copied().filter(|g| !draft.shut.contains(*g));
        let (promise, work) = conflicts.bound(open().map(|g| (g, self.weights[g])));
        steps.spend(work)?;
        if draft.weight.saturating_add(promise) <= self.floor {
            return Ok(true);
        }
        let least = self.problem.slots[self.slot].size.0;
        if draft.size >= least {
            return Ok(false);
        }
        let size = |g: usize| i128::try_from(self.problem.groups[g].size).unwrap_or(i128::MAX);
        let (services, work) = conflicts.bound(open().map(|g| (g, size(g))));
        steps.spend(work)?;
        Ok(services < i128::try_from(least - draft.size).unwrap_or(i128::MAX))
    }

    fn is_complete(&self, set: &Set, size: usize) -> bool {
        let (least, most) = self.problem.slots[self.slot].size;
        let capped = || self.problem.caps.iter().any(|(c, _)| c.slot == self.slot && c.set == *set);
        !set.is_empty() && (least..=most).contains(&size) && (self.plain || !capped())
    }

    /// Whether taking this group may exclude a helpful later group.
    fn hinders(&self, group: usize, at: usize, draft: &Draft) -> bool {
        let comes = |g: usize| self.places[g].is_some_and(|p| p > at) && self.weights[g] > 0 && !draft.shut.contains(g);
        let conflicts = &self.problem.conflicts;
        conflicts.partners(group).iter().any(|g| comes(*g))
            || conflicts.larger(group).any(|c| c.iter().all(|g| g == group || draft.set.contains(g) || comes(g)))
    }
}

/// The column of a set.
pub(crate) const fn column(slot: usize, set: Set) -> Column {
    Column { slot, set }
}
