//! Decides whether a problem has a solution: branch and price.
//!
//! A fractional relaxation is solved exactly, with columns generated on demand ([`crate::pricing`]). Without a
//! fractional solution there is no solution. Otherwise the integer parts are taken and the rest is tried; if that
//! fails, the search branches on a column's count, or on both sides of a number that a group's parity forbids. Each
//! branch is a smaller problem of the same form, so the search is complete.

use crate::greedy;
use crate::pricing::{best_set, column};
use crate::problem::{Column, Problem, Solution};
use crate::relaxation::{Certificate, Rows};
use crate::simplex::Tableau;
use crate::steps::{OutOfSteps, Steps};

/// Whether a quick construction is tried before the relaxation. The verdicts are the same without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Construct {
    First,
    #[cfg(test)]
    Never,
}

/// The maximum depth of the search: the stack is finite, and no search has ever gone deeper.
const DEPTH: u32 = 400;

/// The verdict on a problem.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// A solution.
    Solvable(Solution),
    /// There is no solution. If the reason is simple enough, the certificate also refutes other problems.
    Refuted(Option<Certificate>),
}

/// A solution, or `None` if certainly no solution exists.
///
/// # Errors
/// If the steps run out.
pub(crate) fn solve(problem: &Problem, steps: &mut Steps) -> Result<Option<Solution>, OutOfSteps> {
    Ok(match decide(problem.clone(), steps)? {
        Verdict::Solvable(solution) => Some(solution),
        Verdict::Refuted(_) => None,
    })
}

/// Like [`solve`], with the reason if there is no solution.
///
/// # Errors
/// If the steps run out.
pub(crate) fn decide(problem: Problem, steps: &mut Steps) -> Result<Verdict, OutOfSteps> {
    let mut reason = None;
    let found = branch(problem, DEPTH, Construct::First, &mut reason, steps)?;
    Ok(found.map_or(Verdict::Refuted(reason), Verdict::Solvable))
}

/// Sets the reason if the relaxation of the whole problem has no solution.
fn branch(
    mut problem: Problem,
    depth: u32,
    construct: Construct,
    reason: &mut Option<Certificate>,
    steps: &mut Steps,
) -> Result<Option<Solution>, OutOfSteps> {
    steps.spend((problem.groups.len() * (problem.slots.len() + 1)) as u64 + 10)?;
    if !problem.tighten() {
        return Ok(None);
    }
    if problem.nodes == 0 {
        return Ok(Some(Vec::new()));
    }
    if construct == Construct::First
        && let Some(found) = greedy::construct(&problem, steps)?
    {
        return Ok(Some(found));
    }
    let depth = depth.checked_sub(1).ok_or(OutOfSteps)?;
    let fractions = match Relaxation::solve(&problem, steps)? {
        Ok(fractions) => fractions,
        Err(certificate) => {
            *reason = certificate;
            return Ok(None);
        }
    };
    if fractions.whole() {
        let solution = fractions.floors();
        return match wrong_parity(&problem, &solution) {
            None => Ok(Some(solution)),
            Some((group, count)) => split_group(&problem, (group, count), depth, construct, steps),
        };
    }
    if construct == Construct::First
        && let Some(found) = round(&problem, &fractions, steps)?
    {
        return Ok(Some(found));
    }
    let (column, below) = fractions.most_fractional();
    split_column(&problem, (&column, below), depth, construct, steps)
}

/// Takes the integer parts and tries to solve the small rest.
fn round(problem: &Problem, fractions: &Relaxation, steps: &mut Steps) -> Result<Option<Solution>, OutOfSteps> {
    let mut rest = problem.clone();
    let mut taken = fractions.floors();
    let possible = taken.iter().all(|(column, count)| rest.take(column, *count)) && rest.tighten();
    if !possible {
        return Ok(None);
    }
    let Some(found) = greedy::construct(&rest, steps)? else { return Ok(None) };
    taken.extend(found);
    Ok(Some(merge(taken)))
}

fn split_column(
    problem: &Problem,
    (column, below): (&Column, u64),
    depth: u32,
    construct: Construct,
    steps: &mut Steps,
) -> Result<Option<Solution>, OutOfSteps> {
    let mut more = problem.clone();
    if more.take(column, below + 1)
        && let Some(mut found) = branch(more, depth, construct, &mut None, steps)?
    {
        found.push((column.clone(), below + 1));
        return Ok(Some(merge(found)));
    }
    let mut fewer = problem.clone();
    fewer.cap(column, below);
    branch(fewer, depth, construct, &mut None, steps)
}

fn split_group(
    problem: &Problem,
    (group, count): (usize, u64),
    depth: u32,
    construct: Construct,
    steps: &mut Steps,
) -> Result<Option<Solution>, OutOfSteps> {
    let mut more = problem.clone();
    more.groups[group].lo = count + 1;
    if let Some(found) = branch(more, depth, construct, &mut None, steps)? {
        return Ok(Some(found));
    }
    let mut fewer = problem.clone();
    let Some(less) = count.checked_sub(1) else { return Ok(None) };
    fewer.groups[group].hi = less;
    branch(fewer, depth, construct, &mut None, steps)
}

/// A group whose count has the wrong parity, and the count.
fn wrong_parity(problem: &Problem, solution: &Solution) -> Option<(usize, u64)> {
    (0..problem.groups.len()).find_map(|g| {
        let count = solution.iter().filter(|(c, _)| c.set.contains(g)).map(|(_, n)| n).sum();
        (!problem.groups[g].takes(count)).then_some((g, count))
    })
}

/// Adds up the counts of equal columns.
pub(crate) fn merge(mut solution: Solution) -> Solution {
    solution.sort_unstable();
    let mut merged: Solution = Vec::with_capacity(solution.len());
    for (column, count) in solution {
        match merged.last_mut() {
            Some((last, sum)) if *last == column => *sum += count,
            Some(_) | None => merged.push((column, count)),
        }
    }
    merged
}

/// A fractional solution.
struct Relaxation {
    values: Vec<(Column, i128)>,
    denominator: i128,
}

impl Relaxation {
    /// A solution, or the reason why there is no solution.
    fn solve(problem: &Problem, steps: &mut Steps) -> Result<Result<Self, Option<Certificate>>, OutOfSteps> {
        let rows = Rows::new(problem);
        let mut tableau = Tableau::new(&rows.rows, steps)?;
        let mut columns = Vec::new();
        for ((capped, _), cap_row) in problem.caps.iter().zip(&rows.caps) {
            let Some(cap_row) = cap_row else { continue };
            let mut entries = rows.entries(capped);
            entries.push((*cap_row, 1));
            tableau.add(&entries, steps)?;
            columns.push(capped.clone());
        }
        loop {
            tableau.optimize(steps)?;
            if tableau.is_feasible() {
                break;
            }
            let duals = tableau.duals();
            let weights = rows.weights(&duals);
            let known = columns.len();
            for (s, slot) in problem.slots.iter().enumerate().filter(|(_, slot)| slot.max > 0) {
                let floor = -rows.slot_worth(s, &duals);
                steps.spend(slot.modes.len() as u64 + 1)?;
                if let Some((set, _)) = best_set(problem, s, &weights, floor, steps)? {
                    let column = column(s, set);
                    tableau.add(&rows.entries(&column), steps)?;
                    columns.push(column);
                }
            }
            if columns.len() == known {
                return Ok(Err(Certificate::new(problem, &rows, &duals)));
            }
        }
        let (values, denominator) = tableau.values();
        let values = values.into_iter().map(|(at, value)| (columns[at].clone(), value)).collect();
        Ok(Ok(Self { values, denominator }))
    }

    fn whole(&self) -> bool {
        self.values.iter().all(|(_, value)| value % self.denominator == 0)
    }

    fn floors(&self) -> Solution {
        let floor = |value: &i128| u64::try_from(value / self.denominator).expect("counts are bounded by the nodes");
        let counts = self.values.iter().map(|(column, value)| (column.clone(), floor(value)));
        merge(counts.filter(|(_, count)| *count > 0).collect())
    }

    /// The column whose count is furthest from an integer, and the integer below the count.
    fn most_fractional(&self) -> (Column, u64) {
        let far = |value: i128| {
            let part = value % self.denominator;
            part.min(self.denominator - part)
        };
        let (column, value) =
            self.values.iter().max_by_key(|(column, value)| (far(*value), std::cmp::Reverse(column))).expect("some");
        (column.clone(), u64::try_from(value / self.denominator).expect("counts are bounded by the nodes"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::conflict::Conflicts;
    use crate::problem::{Group, Mode, Slot};
    use crate::set::Set;

    /// The same small problem for the same seed.
    fn random(seed: u64) -> Problem {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        let groups = usize::try_from(2 + below(4)).expect("small");
        let mut set = |percent: u64| Set::of(groups, (0..groups).filter(|_| below(100) < percent));
        let mut conflicts: Vec<_> = (0..groups + 1).map(|_| set(40)).filter(|c| c.len() > 1).collect();
        conflicts.sort();
        conflicts.dedup();
        let allowed: Vec<_> = (0..4).map(|_| set(80)).collect();
        let base = set(20);
        let mut slots = vec![Slot {
            base: Set::empty(groups),
            modes: (0..2).map(|rank| Mode { rank, allowed: allowed[rank].clone() }).collect(),
            min: 0,
            max: 1 + below(4),
            size: (0, usize::MAX),
        }];
        slots[0].min = if below(2) == 0 { slots[0].max } else { below(2) };
        if below(2) == 0 {
            let max = below(4);
            let modes = vec![Mode { rank: 2, allowed: allowed[2].clone() }];
            slots.push(Slot { base, modes, min: below(max + 1), max, size: (0, usize::MAX) });
        }
        let most: u64 = slots.iter().map(|s| s.max).sum();
        let nodes = 1 + below(most);
        let mut domains = || {
            let (lo, more) = (below(3), below(4));
            let odd = [None, None, Some(true), Some(false)][usize::try_from(below(4)).expect("small")];
            Group { lo, hi: (lo + more).min(nodes), odd, size: 1 }
        };
        let all = (0..groups).map(|_| domains()).collect();
        let conflicts = Arc::new(Conflicts::new(groups, conflicts));
        Problem { groups: all, conflicts, slots, nodes, caps: Vec::new() }
    }

    /// All columns of a small problem.
    fn columns(problem: &Problem) -> Vec<Column> {
        let n = problem.groups.len();
        let sets = (1u32..1 << n).map(|mask| Set::of(n, (0..n).filter(|g| mask >> g & 1 == 1)));
        let all = sets.flat_map(|set| (0..problem.slots.len()).map(move |slot| Column { slot, set: set.clone() }));
        all.filter(|c| problem.is_column(c)).collect()
    }

    /// Tries all counts of all columns.
    fn exists(problem: &Problem, columns: &[Column], solution: &mut Solution, left: u64) -> bool {
        let Some((first, rest)) = columns.split_first() else { return left == 0 && problem.satisfied_by(solution) };
        (0..=left).any(|count| {
            solution.push((first.clone(), count));
            let found = exists(problem, rest, solution, left - count);
            solution.pop();
            found
        })
    }

    #[test]
    fn branching_alone_decides_as_enumeration_does() {
        let (mut yes, mut no) = (0, 0);
        for seed in 0..3_000 {
            let mut problem = random(seed);
            let columns = columns(&problem);
            if columns.len() > 14 || problem.nodes > 5 {
                continue;
            }
            if seed % 3 == 0 && !columns.is_empty() {
                problem.cap(&columns[usize::try_from(seed).expect("small") % columns.len()], seed % 2);
            }
            let expected = exists(&problem, &columns, &mut Vec::new(), problem.nodes);
            for construct in [Construct::Never, Construct::First] {
                let steps = &mut Steps::new(10_000_000);
                let found = branch(problem.clone(), DEPTH, construct, &mut None, steps).expect("steps");
                assert_eq!(found.is_some(), expected, "seed {seed} {construct:?}: {problem:?}");
                assert!(found.is_none_or(|s| problem.satisfied_by(&s)), "seed {seed}");
            }
            if expected { yes += 1 } else { no += 1 }
        }
        assert!(yes > 300 && no > 300, "{yes} with and {no} without a solution");
    }

    /// A problem that a certificate refutes has no solution, although the certificate was made for another problem.
    #[test]
    fn certificates_refute_only_unsolvable_problems() {
        let (mut refuted, mut spared) = (0, 0);
        for seed in 0..10_000 {
            let problem = random(seed);
            let steps = &mut Steps::new(10_000_000);
            let Ok(Verdict::Refuted(Some(certificate))) = decide(problem.clone(), steps) else { continue };
            for change in 0..8 {
                let mut other = problem.clone();
                let at = change % other.groups.len();
                match change {
                    0..3 => other.groups[at].lo = 0,
                    3..5 => other.groups[at].hi = 5,
                    5 => other.nodes += 1,
                    _ => {
                        let last = other.slots.len() - 1;
                        other.slots[last].max += 1;
                        other.slots[last].min = 0;
                    }
                }
                if !other.tighten() {
                    continue;
                }
                if certificate.refutes(&other) {
                    refuted += 1;
                    assert!(solve(&other, steps).expect("steps").is_none(), "seed {seed}, change {change}: {other:?}");
                } else {
                    spared += 1;
                }
            }
        }
        assert!(refuted > 300 && spared > 300, "{refuted} refuted, {spared} not");
    }
}
