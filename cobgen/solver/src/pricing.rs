//! The best column of a slot for given weights of the groups: a maximum-weight set without conflicts.
//!
//! Branch and bound over the groups by falling weight. What is in no conflict with anything that may still
//! come is taken without looking back.

use crate::problem::{Column, Problem};
use crate::set::Set;
use crate::steps::{OutOfSteps, Steps};

/// Finds the set of greatest weight, above `floor`, that is a column of the slot and has no cap.
///
/// # Errors
/// When the steps run out.
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
    if !base.is_empty() && problem.conflicts.iter().any(|c| c.is_subset(base)) {
        return Ok(None);
    }
    for mode in problem.slots[slot].modes.iter().filter(|m| base.is_subset(&m.allowed)) {
        let mut search = Search::new(problem, slot, &mode.allowed, weights, floor);
        steps.spend(search.candidates.len() as u64 + 4)?;
        let base = base.clone();
        let weight = base.iter().fold(0i128, |sum, g| sum.saturating_add(weights[g]));
        let size = problem.size_of(&base);
        search.extend(0, base, weight, size, steps)?;
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
    /// What the candidates from here on weigh at most together.
    promise: Vec<i128>,
    /// What the candidates from here on have in services.
    services: Vec<usize>,
    /// Whether every set of this slot that breaks no conflict will do.
    plain: bool,
    floor: i128,
    best: Option<(Set, i128)>,
    /// How much deeper the search may go.
    depth: u32,
}

/// Deeper than this the search does not go: the stack is finite.
const DEPTH: u32 = 1_000;

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, slot: usize, allowed: &Set, weights: &'a [i128], floor: i128) -> Self {
        let own = &problem.slots[slot];
        let mut candidates: Vec<_> = allowed.without(&own.base).iter().filter(|g| problem.groups[*g].hi > 0).collect();
        candidates.sort_by_key(|g| (-weights[*g], *g));
        let mut promise = vec![0; candidates.len() + 1];
        let mut services = vec![0; candidates.len() + 1];
        for (at, g) in candidates.iter().enumerate().rev() {
            promise[at] = weights[*g].max(0).saturating_add(promise[at + 1]);
            services[at] = services[at + 1] + problem.groups[*g].size;
        }
        let plain = own.size.1 == usize::MAX && !problem.caps.iter().any(|(c, _)| c.slot == slot);
        Self { problem, slot, weights, candidates, promise, services, plain, floor, best: None, depth: DEPTH }
    }

    fn extend(
        &mut self,
        at: usize,
        mut set: Set,
        mut weight: i128,
        mut size: usize,
        steps: &mut Steps,
    ) -> Result<(), OutOfSteps> {
        let (least, most) = self.problem.slots[self.slot].size;
        for next in at..=self.candidates.len() {
            steps.spend(2 + set.words())?;
            if weight.saturating_add(self.promise[next]) <= self.floor || size + self.services[next] < least {
                return Ok(());
            }
            let group = self.candidates.get(next).copied();
            let helpful = group.is_some_and(|g| self.weights[g] > 0);
            if !helpful && self.is_complete(&set, size) {
                self.floor = weight;
                self.best = Some((set, weight));
                return Ok(());
            }
            let Some(group) = group else { return Ok(()) };
            let larger = size + self.problem.groups[group].size;
            if larger > most || self.problem.clashes(&set, group) {
                continue;
            }
            if !(helpful && self.plain && !self.hinders(group, next)) {
                let mut with = set.clone();
                with.insert(group);
                self.depth = self.depth.checked_sub(1).ok_or(OutOfSteps)?;
                self.extend(next + 1, with, weight.saturating_add(self.weights[group]), larger, steps)?;
                self.depth += 1;
                continue;
            }
            set.insert(group);
            weight = weight.saturating_add(self.weights[group]);
            size = larger;
        }
        Ok(())
    }

    fn is_complete(&self, set: &Set, size: usize) -> bool {
        let (least, most) = self.problem.slots[self.slot].size;
        let capped = || self.problem.caps.iter().any(|(c, _)| c.slot == self.slot && c.set == *set);
        !set.is_empty() && (least..=most).contains(&size) && (self.plain || !capped())
    }

    /// Whether taking this group may keep a later helpful one away.
    fn hinders(&self, group: usize, at: usize) -> bool {
        let later = &self.candidates[at + 1..];
        let mut conflicts = self.problem.conflicts_of[group].iter().map(|c| &self.problem.conflicts[*c]);
        conflicts.any(|c| later.iter().any(|g| self.weights[*g] > 0 && c.contains(*g)))
    }
}

/// The column of a set.
pub(crate) const fn column(slot: usize, set: Set) -> Column {
    Column { slot, set }
}
