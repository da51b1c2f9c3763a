//! Linear programming in integers: finds a fractional solution, or the reason why there is no solution.
//!
//! The first phase of the simplex method, with columns generated on demand. The tableau consists of integers over a
//! common denominator (Edmonds' pivoting), so no number is ever rounded; a number that does not fit into 128 bits ends
//! the search like running out of steps.

use crate::steps::{OutOfSteps, Steps};

/// How a row's sum and its right side compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sense {
    Equal,
    AtLeast,
    AtMost,
}

/// A row: its sense and a right side that is not negative.
pub(crate) type Row = (Sense, u64);

/// Rows with columns of small coefficients, at some basis.
#[derive(Debug)]
pub(crate) struct Tableau {
    senses: Vec<Sense>,
    /// Row-major; the first columns are the identity (artificial variables, or slacks of `AtMost`), then the surpluses
    /// of `AtLeast`, then the added columns. All values are to be divided by `denominator`.
    cells: Vec<Vec<i128>>,
    right: Vec<i128>,
    /// Reduced costs of the sum of artificial variables.
    costs: Vec<i128>,
    /// The sum of the artificial variables.
    infeasibility: i128,
    denominator: i128,
    basis: Vec<usize>,
    /// Pivots since the infeasibility last fell: a sign of cycling.
    idle: u32,
    /// The basis from which on ties are broken in lexicographic order, if they are.
    anchor: Option<Vec<usize>>,
    /// Where the added columns begin.
    first_added: usize,
}

/// After this many pivots without progress Bland's rule takes over. It can't cycle, but may be slow.
const PATIENCE: u32 = 40;
/// After this many, ties are broken in lexicographic order: that can't cycle either, and rarely stalls.
const LONG_PATIENCE: u32 = 300;
/// The most cells (of 16 bytes each) of a tableau: memory is limited, too.
const MOST_CELLS: usize = 8_000_000;

impl Tableau {
    pub(crate) fn new(rows: &[Row], steps: &mut Steps) -> Result<Self, OutOfSteps> {
        let m = rows.len();
        let surpluses: Vec<_> = (0..m).filter(|i| rows[*i].0 == Sense::AtLeast).collect();
        let width = m + surpluses.len();
        steps.spend((m as u64).saturating_mul(width as u64))?;
        if m * width > MOST_CELLS {
            return Err(OutOfSteps);
        }
        let mut cells = vec![vec![0; width]; m];
        let mut costs = vec![0; width];
        for (i, row) in cells.iter_mut().enumerate() {
            row[i] = 1;
        }
        for (at, i) in surpluses.into_iter().enumerate() {
            cells[i][m + at] = -1;
            costs[m + at] = 1;
        }
        let right: Vec<_> = rows.iter().map(|(_, right)| i128::from(*right)).collect();
        let artificial = |i: &usize| rows[*i].0 != Sense::AtMost;
        Ok(Self {
            senses: rows.iter().map(|(sense, _)| *sense).collect(),
            infeasibility: (0..m).filter(artificial).map(|i| right[i]).sum(),
            cells,
            right,
            costs,
            denominator: 1,
            basis: (0..m).collect(),
            idle: 0,
            anchor: None,
            first_added: width,
        })
    }

    /// Whether the present basis is a solution.
    pub(crate) fn is_feasible(&self) -> bool {
        self.infeasibility == 0
    }

    /// The worth of a unit of each row's right side, over the common denominator: a column helps if its coefficients
    /// times these values have a positive sum.
    pub(crate) fn duals(&self) -> Vec<i128> {
        let dual = |(i, sense): (usize, &Sense)| match sense {
            Sense::AtMost => -self.costs[i],
            Sense::Equal | Sense::AtLeast => self.denominator - self.costs[i],
        };
        self.senses.iter().enumerate().map(dual).collect()
    }

    /// Adds a column with the given coefficients by row and returns its index among the added columns.
    pub(crate) fn add(&mut self, entries: &[(usize, i128)], steps: &mut Steps) -> Result<usize, OutOfSteps> {
        steps.spend((self.cells.len() * (entries.len() + 1)) as u64)?;
        if self.cells.len() * self.costs.len() > MOST_CELLS {
            return Err(OutOfSteps);
        }
        let duals = self.duals();
        for row in &mut self.cells {
            let value = entries.iter().try_fold(0i128, |sum, (i, a)| sum.checked_add(row[*i].checked_mul(*a)?));
            row.push(value.ok_or(OutOfSteps)?);
        }
        let worth = entries.iter().try_fold(0i128, |sum, (i, a)| sum.checked_add(duals[*i].checked_mul(*a)?));
        self.costs.push(-worth.ok_or(OutOfSteps)?);
        Ok(self.costs.len() - 1 - self.first_added)
    }

    /// Pivots until no present column improves the sum.
    pub(crate) fn optimize(&mut self, steps: &mut Steps) -> Result<(), OutOfSteps> {
        while self.infeasibility > 0 {
            let Some(entering) = self.entering() else { break };
            steps.spend((self.cells.len() * (self.costs.len() + 1)) as u64 + 1)?;
            let leaving = self.leaving(entering)?.ok_or(OutOfSteps)?;
            self.pivot(leaving, entering)?;
        }
        Ok(())
    }

    /// The nonzero values of the added columns (index and numerator), and the common denominator.
    pub(crate) fn values(&self) -> (Vec<(usize, i128)>, i128) {
        let basic = self.basis.iter().zip(&self.right);
        let added = basic.filter(|(column, value)| **column >= self.first_added && **value != 0);
        let mut values: Vec<_> = added.map(|(column, value)| (column - self.first_added, *value)).collect();
        values.sort_unstable();
        (values, self.denominator)
    }

    fn entering(&self) -> Option<usize> {
        let improves = |j: &usize| self.costs[*j] < 0 && !self.is_artificial(*j);
        let mut columns = (0..self.costs.len()).filter(improves);
        let first = self.idle > PATIENCE && self.anchor.is_none();
        if first { columns.next() } else { columns.min_by_key(|j| (self.costs[*j], *j)) }
    }

    fn is_artificial(&self, column: usize) -> bool {
        self.senses.get(column).is_some_and(|sense| *sense != Sense::AtMost)
    }

    /// The row whose basic variable reaches zero first; on a tie the row with the lowest variable, or the least row in
    /// lexicographic order.
    fn leaving(&self, entering: usize) -> Result<Option<usize>, OutOfSteps> {
        let mut best: Option<usize> = None;
        for i in (0..self.cells.len()).filter(|i| self.cells[*i][entering] > 0) {
            let Some(b) = best else {
                best = Some(i);
                continue;
            };
            let (mine, other) = (self.cells[i][entering], self.cells[b][entering]);
            let compare = |x: i128, y: i128| Some(x.checked_mul(other)?.cmp(&y.checked_mul(mine)?));
            let mut order = compare(self.right[i], self.right[b]).ok_or(OutOfSteps)?;
            for k in self.anchor.iter().flatten() {
                if order.is_ne() {
                    break;
                }
                order = compare(self.cells[i][*k], self.cells[b][*k]).ok_or(OutOfSteps)?;
            }
            if order.then(self.basis[i].cmp(&self.basis[b])).is_lt() {
                best = Some(i);
            }
        }
        Ok(best)
    }

    fn pivot(&mut self, row: usize, column: usize) -> Result<(), OutOfSteps> {
        let before = self.denominator;
        let pivot = self.cells[row][column];
        let pivot_row = std::mem::take(&mut self.cells[row]);
        let pivot_right = self.right[row];
        let reduce = |value: i128, factor: i128, other: i128| reduce(before, pivot, value, factor, other);
        for (i, cells) in self.cells.iter_mut().enumerate().filter(|(i, _)| *i != row) {
            let factor = cells[column];
            if factor == 0 && pivot == before {
                continue;
            }
            for (cell, other) in cells.iter_mut().zip(&pivot_row) {
                *cell = reduce(*cell, factor, *other).ok_or(OutOfSteps)?;
            }
            self.right[i] = reduce(self.right[i], factor, pivot_right).ok_or(OutOfSteps)?;
        }
        let factor = self.costs[column];
        for (cost, other) in self.costs.iter_mut().zip(&pivot_row) {
            *cost = reduce(*cost, factor, *other).ok_or(OutOfSteps)?;
        }
        // The sum of artificial variables is on the other side of its equation.
        let lower = reduce(self.infeasibility, -factor, pivot_right).ok_or(OutOfSteps)?;
        let falls = factor != 0 && pivot_right != 0;
        self.infeasibility = lower;
        self.cells[row] = pivot_row;
        self.denominator = pivot;
        self.basis[row] = column;
        self.idle = if falls { 0 } else { self.idle + 1 };
        if falls {
            self.anchor = None;
        } else if self.idle == LONG_PATIENCE {
            self.anchor = Some(self.basis.clone());
        }
        Ok(())
    }
}

/// The new value of a cell: `(value * pivot - factor * other) / before`, a division without remainder. `None` if the
/// numbers grow too large.
fn reduce(before: i128, pivot: i128, value: i128, factor: i128, other: i128) -> Option<i128> {
    let small = |x: i128| i32::try_from(x).ok().map(i64::from);
    if let (Some(v), Some(f), Some(o), Some(p), Some(b)) =
        (small(value), small(factor), small(other), small(pivot), small(before))
    {
        // Most numbers are small, and dividing 128 bits is slow.
        let product = v * p - f * o;
        return Some(i128::from(if b == 1 { product } else { product / b }));
    }
    Some(value.checked_mul(pivot)?.checked_sub(factor.checked_mul(other)?)? / before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(rows: &[Row], columns: &[&[(usize, i128)]]) -> Option<(Vec<(usize, i128)>, i128)> {
        let mut steps = Steps::new(100_000);
        let mut tableau = Tableau::new(rows, &mut steps).expect("steps");
        for column in columns {
            tableau.add(column, &mut steps).expect("steps");
        }
        tableau.optimize(&mut steps).expect("steps");
        tableau.is_feasible().then(|| tableau.values())
    }

    /// A circle of five groups that exclude their neighbours, covered by the five pairs without conflict.
    fn circle(nodes: u64) -> Option<(Vec<(usize, i128)>, i128)> {
        let mut rows = vec![(Sense::AtMost, nodes)];
        rows.extend([(Sense::AtLeast, 5); 5]);
        let pairs: Vec<_> = (0..5).map(|i| [(0, 1), (1 + i, 1), (1 + (i + 2) % 5, 1)]).collect();
        let columns: Vec<&[_]> = pairs.iter().map(<[_; 3]>::as_slice).collect();
        solve(&rows, &columns)
    }

    #[test]
    fn fractions_are_exact() {
        let (values, denominator) = circle(13).expect("12.5 suffice");
        let sum: i128 = values.iter().map(|(_, v)| v).sum();
        assert!(sum <= 13 * denominator && 2 * sum >= 25 * denominator);
        assert_eq!(circle(12), None);
    }

    #[test]
    fn columns_added_after_optimizing_count_as_well() {
        let mut steps = Steps::new(1_000);
        let rows = [(Sense::Equal, 3), (Sense::AtLeast, 2)];
        let mut tableau = Tableau::new(&rows, &mut steps).expect("steps");
        tableau.add(&[(0, 1)], &mut steps).expect("steps");
        tableau.optimize(&mut steps).expect("steps");
        assert!(!tableau.is_feasible());
        let duals = tableau.duals();
        assert!(duals[0] + duals[1] > 0);
        assert_eq!(tableau.add(&[(0, 1), (1, 1)], &mut steps), Ok(1));
        tableau.optimize(&mut steps).expect("steps");
        assert!(tableau.is_feasible());
        assert_eq!(Tableau::new(&rows, &mut Steps::new(1)).expect_err("too few"), OutOfSteps);
    }
}
