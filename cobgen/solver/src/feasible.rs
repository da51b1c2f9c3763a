//! Whether a problem has a solution: branch and price.
//!
//! A relaxation in fractions is solved exactly, with columns made as they are needed ([`crate::pricing`]);
//! without a fractional solution there is none. Otherwise the whole parts are taken and the rest is tried;
//! when that fails, the search branches on a column's count, or on both sides of a number that a group's
//! parity forbids. Each branch is a smaller problem of the same kind, so the search is complete.

use crate::greedy;
use crate::pricing::{best_set, column};
use crate::problem::{Column, Problem, Solution};
use crate::relaxation::{Certificate, Rows};
use crate::simplex::Tableau;
use crate::steps::{OutOfSteps, Steps};

/// Deeper than this no search has ever had to go; the stack is finite.
const DEPTH: u32 = 400;

/// The verdict on a problem.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Here is a solution.
    Solvable(Solution),
    /// There is none, for a reason that refutes other problems, too, if it is simple enough.
    Refuted(Option<Certificate>),
}

/// A solution, or `None` if there is none for certain.
///
/// # Errors
/// When the steps run out.
pub(crate) fn solve(problem: &Problem, steps: &mut Steps) -> Result<Option<Solution>, OutOfSteps> {
    Ok(match decide(problem.clone(), steps)? {
        Verdict::Solvable(solution) => Some(solution),
        Verdict::Refuted(_) => None,
    })
}

/// As [`solve`], with the reason why there is none.
///
/// # Errors
/// When the steps run out.
pub(crate) fn decide(problem: Problem, steps: &mut Steps) -> Result<Verdict, OutOfSteps> {
    let mut reason = None;
    let found = branch(problem, DEPTH, &mut reason, steps)?;
    Ok(found.map_or(Verdict::Refuted(reason), Verdict::Solvable))
}

/// Gives the reason where the relaxation of the whole problem has no solution.
fn branch(
    mut problem: Problem,
    depth: u32,
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
    if let Some(found) = greedy::construct(&problem, steps)? {
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
            Some((group, count)) => split_group(&problem, group, count, depth, steps),
        };
    }
    if let Some(found) = round(&problem, &fractions, steps)? {
        return Ok(Some(found));
    }
    let (column, below) = fractions.most_fractional();
    split_column(&problem, &column, below, depth, steps)
}

/// Takes the whole parts and looks whether the small rest comes out.
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
    column: &Column,
    below: u64,
    depth: u32,
    steps: &mut Steps,
) -> Result<Option<Solution>, OutOfSteps> {
    let mut more = problem.clone();
    if more.take(column, below + 1)
        && let Some(mut found) = branch(more, depth, &mut None, steps)?
    {
        found.push((column.clone(), below + 1));
        return Ok(Some(merge(found)));
    }
    let mut fewer = problem.clone();
    fewer.cap(column, below);
    branch(fewer, depth, &mut None, steps)
}

fn split_group(
    problem: &Problem,
    group: usize,
    count: u64,
    depth: u32,
    steps: &mut Steps,
) -> Result<Option<Solution>, OutOfSteps> {
    let mut more = problem.clone();
    more.groups[group].lo = count + 1;
    if let Some(found) = branch(more, depth, &mut None, steps)? {
        return Ok(Some(found));
    }
    let mut fewer = problem.clone();
    let Some(less) = count.checked_sub(1) else { return Ok(None) };
    fewer.groups[group].hi = less;
    branch(fewer, depth, &mut None, steps)
}

/// A group whose count has the wrong parity, and the count.
fn wrong_parity(problem: &Problem, solution: &Solution) -> Option<(usize, u64)> {
    (0..problem.groups.len()).find_map(|g| {
        let count = solution.iter().filter(|(c, _)| c.set.contains(g)).map(|(_, n)| n).sum();
        (!problem.groups[g].takes(count)).then_some((g, count))
    })
}

/// Counts of equal columns in one.
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

/// A solution in fractions.
struct Relaxation {
    values: Vec<(Column, i128)>,
    denominator: i128,
}

impl Relaxation {
    /// A solution, or why there is none.
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

    /// The column whose count is furthest from a whole number, and the whole number below.
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
