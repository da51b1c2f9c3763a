//! The rows of a problem's relaxation, and the proofs that their weights give.

use crate::problem::{Column, Problem};
use crate::simplex::{Row, Sense};

/// The rows of the relaxation, and the rows of each column.
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    /// For each slot the rows that count its nodes.
    slots: Vec<Vec<usize>>,
    /// For each group the rows of its lower and upper bound, if these bind.
    groups: Vec<Vec<usize>>,
    pub(crate) caps: Vec<Option<usize>>,
}

impl Rows {
    pub(crate) fn new(problem: &Problem) -> Self {
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
        // If groups exclude each other, the columns imply a bound.
        let spared = problem.spared();
        let groups = problem.groups.iter().enumerate().map(|(g, group)| {
            let mut own = Vec::new();
            own.extend((group.lo > surely(g)).then(|| row(Sense::AtLeast, group.lo)));
            let used = group.hi > 0 || live.iter().any(|s| s.base.contains(g));
            let binds = used && group.hi < reach(g).min(spared[g]);
            own.extend(binds.then(|| row(Sense::AtMost, group.hi)));
            own
        });
        let groups = groups.collect();
        let usable = |(column, cap): &(Column, u64)| *cap > 0 && problem.most(column) > 0;
        let caps = problem.caps.iter().map(|cap| usable(cap).then(|| row(Sense::AtMost, cap.1))).collect();
        Self { rows, slots, groups, caps }
    }

    pub(crate) fn entries(&self, column: &Column) -> Vec<(usize, i128)> {
        let groups = column.set.iter().flat_map(|g| &self.groups[g]);
        self.slots[column.slot].iter().chain(groups).map(|row| (*row, 1)).collect()
    }

    pub(crate) fn weights(&self, duals: &[i128]) -> Vec<i128> {
        self.groups.iter().map(|rows| rows.iter().map(|row| duals[*row]).sum()).collect()
    }

    pub(crate) fn slot_worth(&self, slot: usize, duals: &[i128]) -> i128 {
        self.slots[slot].iter().map(|row| duals[*row]).sum()
    }
}

/// The reason why a relaxation has no solution: weights of the rows for which no column has a positive sum, but the
/// right sides have.
///
/// It also refutes every other problem over the same or fewer columns for which the sum of the right sides is positive.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    nodes: i128,
    /// By group, for its lower bound (not negative) and its upper bound (not positive).
    groups: Vec<(i128, i128)>,
    /// By slot, for its minimum and maximum of nodes.
    slots: Vec<(i128, i128)>,
    /// Slots without nodes, whose columns were not examined.
    dead: Vec<usize>,
}

impl Certificate {
    /// From weights for which no column has a positive sum. `None` for problems with capped columns, because the
    /// certificate does not cover caps.
    pub(crate) fn new(problem: &Problem, rows: &Rows, duals: &[i128]) -> Option<Self> {
        if !problem.caps.is_empty() {
            return None;
        }
        let sum = |own: &[usize]| {
            own.iter().fold((0, 0), |(lo, hi), row| match rows.rows[*row].0 {
                Sense::AtLeast => (lo + duals[*row], hi),
                Sense::AtMost => (lo, hi + duals[*row]),
                Sense::Equal => (lo + duals[*row].max(0), hi + duals[*row].min(0)),
            })
        };
        let live = |s: &usize| problem.slots[*s].max > 0;
        let (alive, dead): (Vec<_>, Vec<_>) = (0..problem.slots.len()).partition(live);
        // Groups with an upper bound of 0 were left out of the columns. They have weight 0, so adding them to a column
        // does not increase its sum. A column with only one of these groups must not have a positive sum either.
        let lone = alive.iter().map(|s| rows.slot_worth(*s, duals)).max().unwrap_or(0).max(0);
        let group = |(own, group): (&Vec<usize>, &crate::problem::Group)| {
            let (lo, hi) = sum(own);
            let left_out = group.hi == 0 && own.is_empty();
            (lo, if left_out { hi - lone } else { hi })
        };
        Some(Self {
            nodes: duals[0],
            groups: rows.groups.iter().zip(&problem.groups).map(group).collect(),
            slots: rows.slots.iter().map(|own| sum(own.get(1..).unwrap_or(&[]))).collect(),
            dead,
        })
    }

    /// Whether a problem with tightened bounds has no solution for this reason.
    pub(crate) fn refutes(&self, problem: &Problem) -> bool {
        self.dead.iter().all(|s| problem.slots[*s].max == 0) && self.sum(problem).is_some_and(|sum| sum > 0)
    }

    fn sum(&self, problem: &Problem) -> Option<i128> {
        let mut sum = self.nodes.checked_mul(i128::from(problem.nodes))?;
        let bounds = problem.groups.iter().map(|g| (g.lo, g.hi)).chain(problem.slots.iter().map(|s| (s.min, s.max)));
        for ((least, most), (lo, hi)) in self.groups.iter().chain(&self.slots).zip(bounds) {
            sum = sum.checked_add(least.checked_mul(i128::from(lo))?)?;
            sum = sum.checked_add(most.checked_mul(i128::from(hi))?)?;
        }
        Some(sum)
    }
}
