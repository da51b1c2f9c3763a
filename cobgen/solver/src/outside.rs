//! Finds solutions outside the unwanted layouts.
//!
//! Lawler's partition: if the best solution is unwanted, all other solutions are in a few smaller problems, with the
//! same counts of its first columns, and fewer nodes of the next. Their best solutions compete.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use crate::compile::Compiled;
use crate::feasible;
use crate::lexico::{best as most_preferred, column_key};
use crate::problem::{Problem, Solution};
use crate::request::NodeLayout;
use crate::solve::node_layout;
use crate::spec::{Kind, Spec};
use crate::steps::{OutOfSteps, Steps};
use crate::tier::TierOrder;

/// The most preferred solution that is not unwanted, its columns in order of preference.
///
/// # Errors
/// If the steps run out.
pub(crate) fn best(
    spec: &Spec,
    compiled: &Compiled,
    order: &TierOrder,
    active: &[bool],
    steps: &mut Steps,
) -> Result<Option<Solution>, OutOfSteps> {
    let problem = &compiled.problem;
    let unwanted = unwanted(spec, active);
    let mut regions = vec![Region::new(problem.clone(), Vec::new())];
    let mut found: Vec<(Solution, Region)> = Vec::new();
    loop {
        for region in regions.drain(..) {
            if let Some(rest) = most_preferred(&region.rest, order, steps)? {
                found.push((region.whole(problem, order, rest), region));
            }
        }
        let compare = |a: &(Solution, Region), b: &(Solution, Region)| preferred(problem, order, &a.0, &b.0);
        let Some(at) = (0..found.len()).max_by(|a, b| compare(&found[*a], &found[*b])) else { return Ok(None) };
        let (solution, region) = found.swap_remove(at);
        if !unwanted.contains(&&counts(spec, compiled, &solution)) {
            return Ok(Some(solution));
        }
        regions = region.split(&solution, true, steps)?;
    }
}

/// Any solution that is not unwanted.
///
/// # Errors
/// If the steps run out.
pub(crate) fn exists(
    spec: &Spec,
    compiled: &Compiled,
    active: &[bool],
    steps: &mut Steps,
) -> Result<Option<Solution>, OutOfSteps> {
    let unwanted = unwanted(spec, active);
    let mut regions = vec![Region::new(compiled.problem.clone(), Vec::new())];
    while let Some(region) = regions.pop() {
        let Some(mut solution) = feasible::solve(&region.rest, steps)? else { continue };
        solution.extend(region.taken.iter().cloned());
        let solution = feasible::merge(solution);
        if !unwanted.contains(&&counts(spec, compiled, &solution)) {
            return Ok(Some(solution));
        }
        regions.extend(region.split(&solution, false, steps)?);
    }
    Ok(None)
}

fn unwanted<'a>(spec: &'a Spec, active: &[bool]) -> Vec<&'a BTreeMap<NodeLayout, u64>> {
    let rules = spec.rules.iter().zip(active).filter(|(_, active)| **active);
    let excluded = |kind: &Kind| match kind {
        Kind::Excluded(at) => Some(&spec.excluded[*at].counts),
        Kind::SizeMin(_)
        | Kind::SizeMax(_)
        | Kind::Min(..)
        | Kind::Max(..)
        | Kind::RatioMin(..)
        | Kind::RatioMax(..)
        | Kind::Odd(_)
        | Kind::Requires(..)
        | Kind::Hardware(..)
        | Kind::Image(..)
        | Kind::MustCoexist(_)
        | Kind::CantCoexist(_)
        | Kind::Everywhere(_)
        | Kind::Existing(_) => None,
    };
    rules.filter_map(|(rule, _)| excluded(&rule.kind)).collect()
}

/// The number of nodes of each node layout.
fn counts(spec: &Spec, compiled: &Compiled, solution: &Solution) -> BTreeMap<NodeLayout, u64> {
    let mut counts = BTreeMap::new();
    for (column, count) in solution {
        *counts.entry(node_layout(spec, compiled, column)).or_default() += count;
    }
    counts
}

/// Greater is more preferred; both have their columns in order.
fn preferred(problem: &Problem, order: &TierOrder, a: &Solution, b: &Solution) -> Ordering {
    for ((column_a, count_a), (column_b, count_b)) in a.iter().zip(b) {
        let keys = Reverse(column_key(problem, order, column_a)).cmp(&Reverse(column_key(problem, order, column_b)));
        let order = keys.then(count_a.cmp(count_b));
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// A part of all solutions: some columns with their final counts, and the rest of the problem.
#[derive(Debug, Clone)]
struct Region {
    rest: Problem,
    taken: Solution,
}

impl Region {
    const fn new(rest: Problem, taken: Solution) -> Self {
        Self { rest, taken }
    }

    fn whole(&self, problem: &Problem, order: &TierOrder, rest: Solution) -> Solution {
        let mut all = self.taken.clone();
        all.extend(rest);
        all.sort_by_cached_key(|(column, _)| column_key(problem, order, column));
        all
    }

    /// Partitions all solutions of this region but `solution` into disjoint regions: at least its counts of the first
    /// columns, and fewer nodes of the next column. Every other solution is in a region, because all sums are equal.
    ///
    /// The most preferred solution has the most nodes of its first columns, which makes the regions smaller.
    fn split(self, solution: &Solution, most_preferred: bool, steps: &mut Steps) -> Result<Vec<Self>, OutOfSteps> {
        let taken = |column| self.taken.iter().filter(|(c, _)| c == column).map(|(_, n)| n).sum::<u64>();
        let open: Vec<_> = solution.iter().map(|(column, count)| (column.clone(), count - taken(column))).collect();
        let mut regions = Vec::new();
        let mut same = self;
        for (column, count) in open.into_iter().filter(|(_, count)| *count > 0) {
            steps.spend((same.rest.groups.len() + same.rest.caps.len() + same.taken.len()) as u64)?;
            let mut fewer = same.clone();
            fewer.rest.cap(&column, count - 1);
            regions.push(fewer);
            if !same.rest.take(&column, count) {
                break;
            }
            if most_preferred {
                same.rest.cap(&column, 0);
            }
            same.taken.push((column, count));
        }
        Ok(regions)
    }
}
