//! Groups that can't be on the same node, and bounds that follow from pairs of conflicting groups.
//!
//! The conflicts stay the same during a search, so all its problems share them.

use std::collections::BTreeSet;

use crate::set::Set;

/// Sets of groups that can't all be on the same node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Conflicts {
    all: Vec<Set>,
    /// For each group its conflicts.
    of: Vec<Vec<usize>>,
    /// For each group its conflicts of more than two groups.
    larger: Vec<Vec<usize>>,
    /// For each group the groups that can never be on the same node; ordered.
    partners: Vec<Vec<usize>>,
    /// Sets of groups in which each two groups exclude each other.
    cliques: Vec<Vec<usize>>,
}

/// The most clique members per group: every check of a problem visits all cliques.
const MOST_MEMBERS: usize = 16;

impl Conflicts {
    pub(crate) fn new(groups: usize, all: Vec<Set>) -> Self {
        let mut conflicts = Self {
            of: vec![Vec::new(); groups],
            larger: vec![Vec::new(); groups],
            partners: vec![Vec::new(); groups],
            ..Self::default()
        };
        for (at, conflict) in all.iter().enumerate() {
            let members: Vec<_> = conflict.iter().collect();
            for g in &members {
                conflicts.of[*g].push(at);
            }
            if let [a, b] = *members {
                conflicts.partners[a].push(b);
                conflicts.partners[b].push(a);
            } else {
                members.iter().for_each(|g| conflicts.larger[*g].push(at));
            }
        }
        conflicts.partners.iter_mut().for_each(|own| own.sort_unstable());
        conflicts.cliques = conflicts.find_cliques();
        conflicts.all = all;
        conflicts
    }

    pub(crate) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of conflicts with a group.
    pub(crate) fn degree(&self, group: usize) -> usize {
        self.of[group].len()
    }

    /// The conflicts of more than two groups with this group.
    pub(crate) fn larger(&self, group: usize) -> impl Iterator<Item = &Set> {
        self.larger[group].iter().map(|c| &self.all[*c])
    }

    pub(crate) fn partners(&self, group: usize) -> &[usize] {
        &self.partners[group]
    }

    /// Sets of groups in which each two groups exclude each other: not all of these sets, but many.
    pub(crate) fn cliques(&self) -> &[Vec<usize>] {
        &self.cliques
    }

    pub(crate) fn exclude(&self, a: usize, b: usize) -> bool {
        self.partners[a].binary_search(&b).is_ok()
    }

    /// Whether a set contains all groups of a conflict.
    pub(crate) fn broken_by(&self, set: &Set) -> bool {
        set.iter().any(|g| self.of[g].iter().any(|c| self.all[*c].first() == Some(g) && self.all[*c].is_subset(set)))
    }

    /// Whether adding this group to a set would break a conflict.
    pub(crate) fn clashes(&self, set: &Set, group: usize) -> bool {
        self.of[group].iter().any(|c| self.all[*c].iter().all(|g| g == group || set.contains(g)))
    }

    /// Like [`Self::clashes`], but only for conflicts of more than two groups.
    pub(crate) fn closes_larger(&self, set: &Set, group: usize) -> bool {
        self.larger(group).any(|c| c.iter().all(|g| g == group || set.contains(g)))
    }

    /// Greedy: each pair that is not in a clique yet starts a new clique, until there are enough.
    fn find_cliques(&self) -> Vec<Vec<usize>> {
        let mut covered: Vec<Vec<bool>> = self.partners.iter().map(|own| vec![false; own.len()]).collect();
        let mut cliques = Vec::new();
        let mut left = MOST_MEMBERS * self.partners.len();
        for a in 0..self.partners.len() {
            for at in 0..self.partners[a].len() {
                if covered[a][at] || self.partners[a][at] < a {
                    continue;
                }
                let mut clique = vec![a, self.partners[a][at]];
                let others = self.partners[a].iter().filter(|g| **g != self.partners[a][at]);
                for g in others {
                    if clique[1..].iter().all(|member| self.exclude(*member, *g)) {
                        clique.push(*g);
                    }
                }
                let Some(less) = left.checked_sub(clique.len()) else { return cliques };
                left = less;
                clique.sort_unstable();
                for g in &clique {
                    for other in clique.iter().filter(|other| *other != g) {
                        if let Ok(at) = self.partners[*g].binary_search(other) {
                            covered[*g][at] = true;
                        }
                    }
                }
                cliques.push(clique);
            }
        }
        cliques
    }

    /// An upper bound on the weight of conflict-free sets of these groups, and the work done. Cliques get weights: for
    /// every group the cliques with it weigh at least as much as the group. The bound is their sum.
    ///
    /// Groups with few partners come first: then the bound is exact on paths of conflicts, and so on trees.
    pub(crate) fn bound(&self, weighted: impl Iterator<Item = (usize, i128)>) -> (i128, u64) {
        let mut left = vec![0i128; self.partners.len()];
        let mut open = Vec::new();
        for (g, weight) in weighted.filter(|(_, weight)| *weight > 0) {
            left[g] = weight;
            open.push(g);
        }
        let mut work = (self.partners.len() / 8 + open.len()) as u64;
        let mut bound = 0i128;
        let mut degree = vec![0usize; self.partners.len()];
        let mut queue = BTreeSet::new();
        for g in open {
            degree[g] = self.partners[g].iter().filter(|p| left[**p] > 0).count();
            work += self.partners[g].len() as u64 + 1;
            if degree[g] == 0 {
                bound = bound.saturating_add(left[g]);
            } else {
                queue.insert((degree[g], g));
            }
        }
        while let Some((_, first)) = queue.first().copied() {
            let weight = left[first];
            let mut clique = vec![first];
            for g in self.partners[first].iter().filter(|g| left[**g] > 0) {
                if clique[1..].iter().all(|member| self.exclude(*member, *g)) {
                    clique.push(*g);
                }
            }
            work += self.partners[first].len() as u64 + (clique.len() * clique.len()) as u64;
            bound = bound.saturating_add(weight);
            for g in clique {
                left[g] = left[g].saturating_sub(weight).max(0);
                if left[g] > 0 {
                    continue;
                }
                queue.remove(&(degree[g], g));
                work += self.partners[g].len() as u64;
                for other in &self.partners[g] {
                    if queue.remove(&(degree[*other], *other)) {
                        degree[*other] -= 1;
                        queue.insert((degree[*other], *other));
                    }
                }
            }
        }
        (bound, work)
    }
}
