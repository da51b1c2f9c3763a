//! Sets of small numbers: the groups of services on a node.

/// A set of numbers below a size that all sets of one problem share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Set(Vec<u64>);

impl Set {
    /// The empty set, with room for numbers below `size`.
    pub(crate) fn empty(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    pub(crate) fn of(size: usize, members: impl IntoIterator<Item = usize>) -> Self {
        let mut set = Self::empty(size);
        for member in members {
            set.insert(member);
        }
        set
    }

    /// The number of machine words, which is the cost of a set operation in steps.
    pub(crate) fn words(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn insert(&mut self, member: usize) {
        self.0[member / 64] |= 1 << (member % 64);
    }

    /// Adds the member, if there is one.
    pub(crate) fn extend_one(&mut self, member: Option<usize>) {
        if let Some(member) = member {
            self.insert(member);
        }
    }

    pub(crate) fn contains(&self, member: usize) -> bool {
        self.0[member / 64] >> (member % 64) & 1 == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }

    pub(crate) fn unite(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a & !b).collect())
    }

    /// The smallest member.
    pub(crate) fn first(&self) -> Option<usize> {
        let at = self.0.iter().position(|w| *w != 0)?;
        Some(at * 64 + self.0[at].trailing_zeros() as usize)
    }

    /// The members in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_contain_their_elements() {
        let mut a = Set::of(130, [0, 64, 129]);
        assert_eq!(a.iter().collect::<Vec<_>>(), [0, 64, 129]);
        assert_eq!((a.len(), a.words(), a.contains(64), a.contains(65)), (3, 3, true, false));
        let b = Set::of(130, [64]);
        assert!(b.is_subset(&a) && !a.is_subset(&b));
        assert_eq!(a.without(&b), Set::of(130, [0, 129]));
        a.unite(&Set::of(130, [5]));
        a.extend_one(Some(6));
        a.extend_one(None);
        assert_eq!(a, Set::of(130, [0, 5, 6, 64, 129]));
        assert!(Set::empty(130).is_empty() && !a.is_empty());
    }
}
