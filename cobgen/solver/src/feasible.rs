//! Whether a problem has a solution: branch and price.
//!
//! A relaxation in fractions is solved exactly, with columns made as they are needed ([`crate::pricing`]);
//! without a fractional solution there is none. Otherwise the whole parts are taken and the rest is tried;
//! when that fails, the search branches on a column's count, or on both sides of a number that a group's
//! parity forbids. Each branch is a smaller problem of the same kind, so the search is complete.

use crate::greedy;
use crate::pricing::{best_set, column};
use crate::problem::{Column, Problem, Solution};
use crate::simplex::{Row, Sense, Tableau};
use crate::steps::{OutOfSteps, Steps};

/// Deeper than this no search has ever had to go; the stack is finite.
const DEPTH: u32 = 400;

/// A solution, or `None` if there is none for certain.
///
/// # Errors
/// When the steps run out.
pub(crate) fn solve(problem: &Problem, steps: &mut Steps) -> Result<Option<Solution>, OutOfSteps> {
    let found = branch(problem.clone(), DEPTH, steps)?;
    debug_assert!(found.as_ref().is_none_or(|s| problem.satisfied_by(s)), "a solution keeps all rules");
    Ok(found)
}

fn branch(mut problem: Problem, depth: u32, steps: &mut Steps) -> Result<Option<Solution>, OutOfSteps> {
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
    let Some(fractions) = Relaxation::solve(&problem, steps)? else { return Ok(None) };
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
        && let Some(mut found) = branch(more, depth, steps)?
    {
        found.push((column.clone(), below + 1));
        return Ok(Some(merge(found)));
    }
    let mut fewer = problem.clone();
    fewer.cap(column, below);
    branch(fewer, depth, steps)
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
    if let Some(found) = branch(more, depth, steps)? {
        return Ok(Some(found));
    }
    let mut fewer = problem.clone();
    let Some(less) = count.checked_sub(1) else { return Ok(None) };
    fewer.groups[group].hi = less;
    branch(fewer, depth, steps)
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
    fn solve(problem: &Problem, steps: &mut Steps) -> Result<Option<Self>, OutOfSteps> {
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
                return Ok(None);
            }
        }
        let (values, denominator) = tableau.values();
        let values = values.into_iter().map(|(at, value)| (columns[at].clone(), value)).collect();
        Ok(Some(Self { values, denominator }))
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

/// The rows of the relaxation, and which of them a column is in.
struct Rows {
    rows: Vec<Row>,
    /// For each slot, the rows that count its nodes.
    slots: Vec<Vec<usize>>,
    /// For each group, the rows of its lower and upper bound where these bind.
    groups: Vec<Vec<usize>>,
    caps: Vec<Option<usize>>,
}

impl Rows {
    fn new(problem: &Problem) -> Self {
        let mut rows = Vec::new();
        let mut row = |sense, right| {
            rows.push((sense, right));
            rows.len() - 1
        };
        let total = row(Sense::Equal, problem.nodes);
        let live: Vec<_> = problem.slots.iter().filter(|s| s.max > 0).collect();
        let single = live.len() == 1;
        let slots = problem.slots.iter().map(|slot| {
            let mut own = vec![total];
            if slot.max == 0 {
                own.clear();
            } else if slot.min == slot.max && !single {
                own.push(row(Sense::Equal, slot.max));
            } else if !single {
                own.extend((slot.min > 0).then(|| row(Sense::AtLeast, slot.min)));
                own.extend((slot.max < problem.nodes).then(|| row(Sense::AtMost, slot.max)));
            }
            own
        });
        let slots = slots.collect();
        let reach = |g: usize| live.iter().filter(|s| s.may(g)).fold(0u64, |sum, s| sum.saturating_add(s.max));
        let surely = |g: usize| live.iter().filter(|s| s.base.contains(g)).map(|s| s.min).sum::<u64>();
        let groups = problem.groups.iter().enumerate().map(|(g, group)| {
            let mut own = Vec::new();
            own.extend((group.lo > surely(g)).then(|| row(Sense::AtLeast, group.lo)));
            let used = group.hi > 0 || live.iter().any(|s| s.base.contains(g));
            let binds = used && group.hi < reach(g).min(problem.nodes);
            own.extend(binds.then(|| row(Sense::AtMost, group.hi)));
            own
        });
        let groups = groups.collect();
        let usable = |(column, cap): &(Column, u64)| *cap > 0 && problem.most(column) > 0;
        let caps = problem.caps.iter().map(|cap| usable(cap).then(|| row(Sense::AtMost, cap.1))).collect();
        Self { rows, slots, groups, caps }
    }

    fn entries(&self, column: &Column) -> Vec<(usize, i128)> {
        let groups = column.set.iter().flat_map(|g| &self.groups[g]);
        self.slots[column.slot].iter().chain(groups).map(|row| (*row, 1)).collect()
    }

    fn weights(&self, duals: &[i128]) -> Vec<i128> {
        self.groups.iter().map(|rows| rows.iter().map(|row| duals[*row]).sum()).collect()
    }

    fn slot_worth(&self, slot: usize, duals: &[i128]) -> i128 {
        self.slots[slot].iter().map(|row| duals[*row]).sum()
    }
}
