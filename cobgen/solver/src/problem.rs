//! The integer problem behind a request, free of names.
//!
//! Services that must be together are a *group*. Nodes that are the same before any decision are a *slot* with a
//! multiplicity: existing nodes of the same layout, hosts of the same hardware and image, new nodes. A *column* is a
//! slot with a set of groups that may be on a node of the slot. A solution gives each column a count. The counts of a
//! slot's columns add up to its multiplicity, and the counts of the columns with a group add up to a number in that
//! group's domain.

use std::sync::Arc;

use crate::conflict::Conflicts;
use crate::set::Set;

/// Services that are always on the same nodes, and the domain of their number of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The number of nodes with the group is from `lo` …
    pub(crate) lo: u64,
    /// … to `hi`, both included,
    pub(crate) hi: u64,
    /// and odd (`Some(true)`), even, or either.
    pub(crate) odd: Option<bool>,
    /// The number of services in the group.
    pub(crate) size: usize,
}

impl Group {
    /// Narrows `lo` and `hi` to allowed numbers; returns false if no allowed number is left.
    pub(crate) fn align(&mut self) -> bool {
        if let Some(odd) = self.odd {
            self.lo = self.lo.saturating_add(u64::from((self.lo % 2 == 1) != odd));
            if (self.hi % 2 == 1) != odd {
                match self.hi.checked_sub(1) {
                    Some(hi) => self.hi = hi,
                    None => return false,
                }
            }
        }
        self.lo <= self.hi
    }

    /// Whether this number of nodes may have the group.
    pub(crate) fn takes(&self, count: u64) -> bool {
        self.lo <= count && count <= self.hi && self.odd.is_none_or(|odd| (count % 2 == 1) == odd)
    }
}

/// A hardware and an image type, and the groups that can be on both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Its position among all pairs of types in the order of preference.
    pub(crate) rank: usize,
    /// The groups that every node of it may have.
    pub(crate) allowed: Set,
}

/// Nodes that are alike before any decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Groups that are certainly on each of these nodes.
    pub(crate) base: Set,
    /// The possible types of these nodes, in order of rank; a node has the first mode that allows all of its groups.
    pub(crate) modes: Vec<Mode>,
    /// The slot has at least this many nodes …
    pub(crate) min: u64,
    /// … and at most this many.
    pub(crate) max: u64,
    /// The least and the most services of a node.
    pub(crate) size: (usize, usize),
}

impl Slot {
    /// Whether a mode of the slot allows this group.
    pub(crate) fn may(&self, group: usize) -> bool {
        self.base.contains(group) || self.modes.iter().any(|m| m.allowed.contains(group))
    }

    /// The mode of a node with these groups.
    pub(crate) fn mode_of(&self, set: &Set) -> Option<&Mode> {
        self.modes.iter().find(|m| set.is_subset(&m.allowed))
    }
}

/// A slot with the groups on some of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Column {
    pub(crate) slot: usize,
    pub(crate) set: Set,
}

/// Columns with their numbers of nodes.
pub(crate) type Solution = Vec<(Column, u64)>;

/// The problem to be solved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// In order of the name of their first service.
    pub(crate) groups: Vec<Group>,
    /// Sets of groups that can't all be on the same node.
    pub(crate) conflicts: Arc<Conflicts>,
    /// Existing nodes before hosts before new nodes.
    pub(crate) slots: Vec<Slot>,
    /// The total number of nodes.
    pub(crate) nodes: u64,
    /// Columns with a limit on their number of nodes.
    pub(crate) caps: Vec<(Column, u64)>,
}

impl Problem {
    pub(crate) fn empty_set(&self) -> Set {
        Set::empty(self.groups.len())
    }

    /// The number of services in a set of groups.
    pub(crate) fn size_of(&self, set: &Set) -> usize {
        set.iter().map(|g| self.groups[g].size).sum()
    }

    /// Whether adding this group to a set would break a conflict.
    pub(crate) fn clashes(&self, set: &Set, group: usize) -> bool {
        self.conflicts.clashes(set, group)
    }

    /// Whether a node of this slot may have exactly these groups.
    pub(crate) fn is_column(&self, column: &Column) -> bool {
        let slot = &self.slots[column.slot];
        let size = self.size_of(&column.set);
        !column.set.is_empty()
            && slot.base.is_subset(&column.set)
            && slot.mode_of(&column.set).is_some()
            && (slot.size.0..=slot.size.1).contains(&size)
            && !self.conflicts.broken_by(&column.set)
    }

    /// The most nodes of this column that a quick check allows.
    pub(crate) fn most(&self, column: &Column) -> u64 {
        let cap = self.caps.iter().find(|(c, _)| c == column).map_or(u64::MAX, |(_, cap)| *cap);
        let groups = column.set.iter().map(|g| self.groups[g].hi).min().unwrap_or(u64::MAX);
        cap.min(groups).min(self.slots[column.slot].max).min(self.nodes)
    }

    /// Reduces the problem to the rest after taking this many nodes of the column; returns false if that is impossible.
    pub(crate) fn take(&mut self, column: &Column, count: u64) -> bool {
        if count == 0 {
            return true;
        }
        if count > self.most(column) {
            return false;
        }
        self.nodes -= count;
        let slot = &mut self.slots[column.slot];
        slot.max -= count;
        slot.min = slot.min.saturating_sub(count);
        for (_, cap) in self.caps.iter_mut().filter(|(c, _)| c == column) {
            *cap -= count;
        }
        let mut possible = true;
        for g in column.set.iter() {
            let group = &mut self.groups[g];
            group.lo = group.lo.saturating_sub(count);
            group.hi -= count;
            group.odd = group.odd.map(|odd| odd != (count % 2 == 1));
            possible &= group.align();
        }
        possible
    }

    /// Limits the number of nodes of a column.
    pub(crate) fn cap(&mut self, column: &Column, most: u64) {
        match self.caps.iter_mut().find(|(c, _)| c == column) {
            Some((_, cap)) => *cap = most.min(*cap),
            None => self.caps.push((column.clone(), most)),
        }
    }

    /// Narrows domains to the numbers that the slots alone allow; returns false if a domain becomes empty.
    pub(crate) fn tighten(&mut self) -> bool {
        let fewest = self.slots.iter().fold(0u64, |sum, s| sum.saturating_add(s.min));
        let most = self.slots.iter().fold(0u64, |sum, s| sum.saturating_add(s.max));
        if fewest > self.nodes || most < self.nodes {
            return false;
        }
        for g in 0..self.groups.len() {
            let (mut must, mut may) = (0u64, 0u64);
            for slot in self.slots.iter().filter(|s| s.max > 0) {
                must += if slot.base.contains(g) { slot.min } else { 0 };
                may = may.saturating_add(if slot.may(g) { slot.max } else { 0 });
            }
            let group = &mut self.groups[g];
            group.lo = group.lo.max(must);
            group.hi = group.hi.min(may).min(self.nodes);
            if !group.align() {
                return false;
            }
        }
        self.fill_nodes(fewest) && self.share_nodes()
    }

    /// Whether there are enough placements to fill all nodes, as far as sums show.
    fn fill_nodes(&self, fewest: u64) -> bool {
        let placements = self.groups.iter().map(|g| u128::from(g.hi) * g.size as u128).sum::<u128>();
        let needed = self.slots.iter().map(|s| u128::from(s.min) * s.size.0.max(1) as u128).sum::<u128>();
        placements >= needed + u128::from(self.nodes - fewest)
    }

    /// Groups that exclude each other need separate nodes: no group gets nodes that the others need.
    fn share_nodes(&mut self) -> bool {
        for clique in self.conflicts.cliques() {
            let needed = clique.iter().fold(0u64, |sum, g| sum.saturating_add(self.groups[*g].lo));
            let Some(spare) = self.nodes.checked_sub(needed) else { return false };
            for g in clique {
                let group = &mut self.groups[*g];
                group.hi = group.hi.min(group.lo + spare);
                if !group.align() {
                    return false;
                }
            }
        }
        true
    }

    /// For each group the number of nodes that conflicting groups leave for it: the limit in [`Self::tighten`].
    pub(crate) fn spared(&self) -> Vec<u64> {
        let mut spared = vec![self.nodes; self.groups.len()];
        for clique in self.conflicts.cliques() {
            let needed = clique.iter().fold(0u64, |sum, g| sum.saturating_add(self.groups[*g].lo));
            let spare = self.nodes.saturating_sub(needed);
            for g in clique {
                spared[*g] = spared[*g].min(self.groups[*g].lo + spare);
            }
        }
        spared
    }

    /// Whether a solution satisfies all conditions of this problem.
    pub(crate) fn satisfied_by(&self, solution: &Solution) -> bool {
        let total: u64 = solution.iter().map(|(_, n)| n).sum();
        let slot_count = |s: usize| solution.iter().filter(|(c, _)| c.slot == s).map(|(_, n)| n).sum::<u64>();
        let group_count = |g: usize| solution.iter().filter(|(c, _)| c.set.contains(g)).map(|(_, n)| n).sum::<u64>();
        let column_count = |column: &Column| solution.iter().filter(|(c, _)| c == column).map(|(_, n)| n).sum::<u64>();
        total == self.nodes
            && solution.iter().all(|(c, _)| self.is_column(c))
            && self.slots.iter().enumerate().all(|(s, slot)| (slot.min..=slot.max).contains(&slot_count(s)))
            && self.groups.iter().enumerate().all(|(g, group)| group.takes(group_count(g)))
            && self.caps.iter().all(|(c, cap)| column_count(c) <= *cap)
    }
}
