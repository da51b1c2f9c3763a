//! Finds the most preferred solution: the lexicographically greatest vector of counts over all columns.
//!
//! Columns are not listed, because there may be 2^n columns. The search visits them tier by tier, within a tier in
//! order of service names, as a tree over the groups; of each column it takes as many nodes as leave a solvable rest.
//! It skips a subtree as soon as no solution has a node in it.
//!
//! Lower bounds on the columns taken so far suffice, and each column is visited only once. Both follow from the order:
//! a solution with more of an earlier column would be greater, and was shown not to exist.

use std::collections::BTreeSet;

use crate::feasible::{self, Verdict};
use crate::problem::{Column, Problem, Slot, Solution};
use crate::relaxation::Certificate;
use crate::set::Set;
use crate::steps::{OutOfSteps, Steps};
use crate::tier::{TierKey, TierOrder};

/// The most preferred solution, its columns in order of preference; `None` if there is no solution.
///
/// # Errors
/// If the steps run out.
pub(crate) fn best(problem: &Problem, order: &TierOrder, steps: &mut Steps) -> Result<Option<Solution>, OutOfSteps> {
    let mut rest = problem.clone();
    if !rest.tighten() {
        return Ok(None);
    }
    let Some(known) = feasible::solve(&rest, steps)? else { return Ok(None) };
    let mut search = Search { rest, known, taken: Vec::new(), failures: 0, hint: None, certificates: Vec::new() };
    for (_, std::cmp::Reverse(services), rank) in tiers(problem, order, steps)? {
        if search.rest.nodes == 0 {
            break;
        }
        search.tier(services, rank, steps)?;
    }
    assert!(search.rest.nodes == 0, "a solvable rest has a next column, and every column is in a tier");
    debug_assert!(problem.satisfied_by(&search.taken), "a solution keeps all rules");
    Ok(Some(search.taken))
}

/// Every possible tier of a node, in order.
fn tiers(problem: &Problem, order: &TierOrder, steps: &mut Steps) -> Result<Vec<TierKey>, OutOfSteps> {
    let mut largest = vec![0; order.ranks()];
    for slot in problem.slots.iter().filter(|s| s.max > 0) {
        for mode in &slot.modes {
            largest[mode.rank] = problem.size_of(&mode.allowed).max(largest[mode.rank]);
        }
        steps.spend(slot.modes.len() as u64 * slot.base.words())?;
    }
    // Groups that exclude each other can't be on the same node.
    let size = |g: usize| i128::try_from(problem.groups[g].size).unwrap_or(i128::MAX);
    let (most, work) = problem.conflicts.bound((0..problem.groups.len()).map(|g| (g, size(g))));
    steps.spend(work)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    largest.iter_mut().for_each(|own| *own = most.min(*own));
    let count: usize = largest.iter().sum();
    steps.spend((count as u64).saturating_mul(8))?;
    if count > 4_000_000 {
        return Err(OutOfSteps);
    }
    let sizes = largest.iter().enumerate().flat_map(|(rank, most)| (1..=*most).map(move |k| order.key(k, rank)));
    let mut tiers: Vec<_> = sizes.collect();
    tiers.sort_unstable();
    Ok(tiers)
}

/// A column's position in the order of all columns.
pub(crate) fn column_key(problem: &Problem, order: &TierOrder, column: &Column) -> (TierKey, Vec<usize>, usize) {
    let rank = problem.slots[column.slot].mode_of(&column.set).map_or(usize::MAX, |m| m.rank);
    (order.key(problem.size_of(&column.set), rank), column.set.iter().collect(), column.slot)
}

struct Search {
    rest: Problem,
    /// A solution of the rest.
    known: Solution,
    taken: Solution,
    /// Columns of this tier that no solution has: after the first failure, a subtree is checked before the search
    /// enters it.
    failures: u32,
    /// A set of this tier that a solution of the rest has.
    hint: Option<Set>,
    /// The reasons why columns failed: the remaining columns become fewer and fewer, so the reasons stay valid.
    certificates: Vec<Certificate>,
}

/// The most reasons that are stored.
const MOST_CERTIFICATES: usize = 24;

/// The tree of a tier.
struct Tree {
    services: usize,
    rank: usize,
    /// Groups that a node of the tier may have, in order of names.
    candidates: Vec<usize>,
    /// For each index the most services that the candidates from there on can add, as far as pairs show.
    promise: Vec<usize>,
    /// Slots that have nodes in the tier.
    slots: Vec<usize>,
}

/// All sets of a tier with the same prefix.
struct Subtree {
    /// Candidates before this index are decided:
    at: usize,
    /// the groups of this set are on the node, the other decided groups are not.
    set: Set,
    /// The number of services in the set.
    size: usize,
    /// Slots that may have a node like this.
    slots: Vec<usize>,
}

impl Tree {
    fn new(rest: &Problem, services: usize, rank: usize) -> Self {
        let of_rank = |slot: &Slot| slot.max > 0 && slot.modes.iter().any(|m| m.rank == rank);
        let slots: Vec<_> = (0..rest.slots.len()).filter(|s| of_rank(&rest.slots[*s])).collect();
        let mut allowed = rest.empty_set();
        for mode in slots.iter().flat_map(|s| &rest.slots[*s].modes).filter(|m| m.rank == rank) {
            allowed.unite(&mode.allowed);
        }
        let candidates: Vec<_> = allowed.iter().filter(|g| rest.groups[*g].hi > 0).collect();
        let promise = promises(rest, &candidates, services);
        Self { services, rank, candidates, promise, slots }
    }
}

/// For each candidate the most services that it and the later candidates can add: of groups that all exclude each
/// other, only one counts.
fn promises(rest: &Problem, candidates: &[usize], enough: usize) -> Vec<usize> {
    let all: usize = candidates.iter().map(|g| rest.groups[*g].size).sum();
    let mut promise = vec![0; candidates.len() + 1];
    if all < enough || rest.conflicts.is_empty() {
        for (at, g) in candidates.iter().enumerate().rev() {
            promise[at] = promise[at + 1] + rest.groups[*g].size;
        }
        return promise;
    }
    let mut cliques: Vec<(Vec<usize>, usize)> = Vec::new();
    for (at, g) in candidates.iter().enumerate().rev() {
        let size = rest.groups[*g].size;
        let own = rest.conflicts.partners(*g);
        let fits = |members: &[usize]| members.iter().all(|m| own.binary_search(m).is_ok());
        let home = if own.is_empty() { None } else { cliques.iter_mut().find(|(members, _)| fits(members)) };
        promise[at] = match home {
            Some((members, most)) => {
                let gain = size.saturating_sub(*most);
                *most = size.max(*most);
                members.push(*g);
                promise[at + 1] + gain
            }
            None => {
                cliques.push((vec![*g], size));
                promise[at + 1] + size
            }
        };
    }
    promise
}

impl Search {
    fn tier(&mut self, services: usize, rank: usize, steps: &mut Steps) -> Result<(), OutOfSteps> {
        steps.spend((self.rest.slots.len() + self.rest.groups.len()) as u64 + 4)?;
        let tree = Tree::new(&self.rest, services, rank);
        steps.spend(tree.candidates.len() as u64 * (self.rest.conflicts.len() as u64 / 8 + 1))?;
        if tree.slots.is_empty() || tree.promise[0] < services {
            return Ok(());
        }
        self.failures = 0;
        self.hint = None;
        let root = Subtree { at: 0, set: self.rest.empty_set(), size: 0, slots: tree.slots.clone() };
        self.walk(&tree, root, steps)
    }

    /// Visits all sets with the prefix of this subtree, in order of names. The pending subtrees are on an explicit
    /// stack: there may be thousands of groups.
    fn walk(&mut self, tree: &Tree, root: Subtree, steps: &mut Steps) -> Result<(), OutOfSteps> {
        let mut stack = vec![root];
        let mut blind = 0;
        while let Some(mut subtree) = stack.pop() {
            // After a long search without a set of the tier, check subtrees before entering them.
            blind += 1;
            self.failures += u32::from(blind == 8 * tree.candidates.len() + 64);
            steps.spend((subtree.slots.len() as u64 + subtree.set.words()) * 2 + 2)?;
            let possible = subtree.size + tree.promise[subtree.at] >= tree.services && subtree.size <= tree.services;
            if self.rest.nodes == 0 || !possible {
                continue;
            }
            if subtree.size == tree.services {
                self.leaf(tree, &subtree, steps)?;
                blind = 0;
                continue;
            }
            subtree.slots = self.usable(tree, &subtree);
            if subtree.slots.is_empty() || (self.failures > 0 && !self.is_promising(tree, &subtree, steps)?) {
                continue;
            }
            let group = tree.candidates[subtree.at];
            let with = self.with(tree, &subtree, group);
            subtree.at += 1;
            subtree.slots.retain(|s| !self.rest.slots[*s].base.contains(group));
            stack.extend((!subtree.slots.is_empty()).then_some(subtree));
            stack.extend(with);
        }
        Ok(())
    }

    /// The subtree in which this group is on the node, if that is possible.
    fn with(&self, tree: &Tree, subtree: &Subtree, group: usize) -> Option<Subtree> {
        if self.rest.groups[group].hi == 0 || self.rest.clashes(&subtree.set, group) {
            return None;
        }
        let may = |slot: &Slot| slot.modes.iter().any(|m| m.rank == tree.rank && m.allowed.contains(group));
        let slots: Vec<_> = subtree.slots.iter().copied().filter(|s| may(&self.rest.slots[*s])).collect();
        if slots.is_empty() {
            return None;
        }
        let mut set = subtree.set.clone();
        set.insert(group);
        Some(Subtree { at: subtree.at + 1, set, size: subtree.size + self.rest.groups[group].size, slots })
    }

    /// Slots whose nodes may be of the tier's types: no addition forces all of them to types that are more preferred.
    fn usable(&self, tree: &Tree, subtree: &Subtree) -> Vec<usize> {
        let set = &subtree.set;
        let undecided = || tree.candidates[subtree.at..].iter().copied();
        let of_tier = |s: &usize| {
            let slot = &self.rest.slots[*s];
            let mut before = slot.modes.iter().take_while(|m| m.rank < tree.rank);
            slot.max > 0 && before.all(|m| !set.is_subset(&m.allowed) || undecided().any(|g| !m.allowed.contains(g)))
        };
        subtree.slots.iter().copied().filter(of_tier).collect()
    }

    /// Whether a solution of the rest has a node of this tier that starts with this set.
    fn is_promising(&mut self, tree: &Tree, subtree: &Subtree, steps: &mut Steps) -> Result<bool, OutOfSteps> {
        let Subtree { at, set, slots, .. } = subtree;
        let (decided, undecided) = tree.candidates.split_at(*at);
        if self.hint.as_ref().is_some_and(|hint| decided.iter().all(|g| hint.contains(*g) == set.contains(*g))) {
            return Ok(true);
        }
        let begins = |(column, _): &(Column, u64)| {
            decided.iter().all(|g| column.set.contains(*g) == set.contains(*g))
                && slots.contains(&column.slot)
                && self.rest.size_of(&column.set) == tree.services
                && self.rest.slots[column.slot].mode_of(&column.set).is_some_and(|mode| mode.rank == tree.rank)
        };
        steps.spend(self.known.len() as u64)?;
        if self.known.iter().any(begins) {
            return Ok(true);
        }
        let undecided: BTreeSet<_> = undecided.iter().collect();
        for s in slots {
            let own = &self.rest.slots[*s];
            let mode = own.modes.iter().find(|m| m.rank == tree.rank);
            let Some(mode) = mode.filter(|_| own.max > 0 && self.rest.nodes > 0) else { continue };
            let mut base = own.base.clone();
            base.unite(set);
            let mut mode = mode.clone();
            mode.allowed = Set::of(
                self.rest.groups.len(),
                mode.allowed.iter().filter(|g| base.contains(*g) || undecided.contains(g)),
            );
            if !base.is_subset(&mode.allowed) {
                continue;
            }
            let mut one = self.rest.clone();
            one.slots[*s].max -= 1;
            one.slots[*s].min = own.min.saturating_sub(1);
            let size = (tree.services, tree.services);
            one.slots.push(Slot { base, modes: vec![mode], min: 1, max: 1, size });
            steps.spend((one.groups.len() * one.slots.len()) as u64)?;
            if let Some(solution) = feasible::solve(&one, steps)? {
                let special = one.slots.len() - 1;
                self.hint = solution.into_iter().find(|(c, _)| c.slot == special).map(|(c, _)| c.set);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes as many nodes of this set as possible.
    fn leaf(&mut self, tree: &Tree, subtree: &Subtree, steps: &mut Steps) -> Result<(), OutOfSteps> {
        let set = &subtree.set;
        let mut found = false;
        for s in &subtree.slots {
            let slot = &self.rest.slots[*s];
            let fits = slot.base.is_subset(set) && slot.mode_of(set).is_some_and(|m| m.rank == tree.rank);
            if !fits {
                continue;
            }
            let column = Column { slot: *s, set: set.clone() };
            let count = self.most(&column, steps)?;
            if count > 0 {
                let possible = self.rest.take(&column, count) && self.rest.tighten();
                debug_assert!(possible, "it was tried");
                self.known.retain(|(c, _)| *c != column);
                self.taken.push((column, count));
                self.hint = None;
                found = true;
            }
        }
        self.failures += u32::from(!found);
        Ok(())
    }

    /// The largest count of a column that leaves a solvable rest: if a count does, so do all smaller counts.
    fn most(&mut self, column: &Column, steps: &mut Steps) -> Result<u64, OutOfSteps> {
        let (mut good, mut bad) = (count_of(&self.known, column), self.rest.most(column) + 1);
        let mut next = bad - 1;
        let mut tries = 0;
        while good + 1 < bad {
            if self.leave(column, next, steps)? {
                good = count_of(&self.known, column);
            } else {
                bad = next;
            }
            tries += 1;
            // A known reason refutes more than this count, so try the largest count that no reason refutes. Now and
            // then try the middle instead, to avoid many small steps.
            next = good + (bad - good) / 2;
            if tries % 4 != 0 {
                let (mut open, mut refuted) = (good, bad);
                while open + 1 < refuted {
                    let middle = open + (refuted - open) / 2;
                    if self.is_refuted(column, middle, steps)? {
                        refuted = middle;
                    } else {
                        open = middle;
                    }
                }
                bad = refuted;
                next = open;
            }
        }
        Ok(good)
    }

    fn is_refuted(&self, column: &Column, count: u64, steps: &mut Steps) -> Result<bool, OutOfSteps> {
        let mut rest = self.rest.clone();
        steps.spend(((rest.groups.len() + rest.slots.len()) * (1 + self.certificates.len())) as u64)?;
        let possible = rest.take(column, count) && rest.tighten();
        Ok(!possible || self.certificates.iter().any(|c| c.refutes(&rest)))
    }

    /// Whether this count of a column leaves a solvable rest; if so, `known` is a solution with at least this count.
    fn leave(&mut self, column: &Column, count: u64, steps: &mut Steps) -> Result<bool, OutOfSteps> {
        if self.is_refuted(column, count, steps)? {
            return Ok(false);
        }
        let mut rest = self.rest.clone();
        let possible = rest.take(column, count);
        debug_assert!(possible, "it was tried");
        match feasible::decide(rest, steps)? {
            Verdict::Solvable(mut solution) => {
                solution.push((column.clone(), count));
                self.known = feasible::merge(solution);
                Ok(true)
            }
            Verdict::Refuted(reason) => {
                if self.certificates.len() == MOST_CERTIFICATES {
                    self.certificates.remove(0);
                }
                self.certificates.extend(reason);
                Ok(false)
            }
        }
    }
}

/// The count of a column in a solution.
fn count_of(solution: &Solution, column: &Column) -> u64 {
    solution.iter().filter(|(c, _)| c == column).map(|(_, n)| n).sum()
}
