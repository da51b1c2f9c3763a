//! The held locks, and the owners that conflict with a wanted lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::lock::{Lock, Mode, Refused, Targets};
use crate::requests::Pending;

/// All that has to be durable: held locks and waiting requests, by owner. As lists of pairs, so that each format can
/// write it, whatever the types of locks and owners are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "L: Deserialize<'de> + Ord, O: Deserialize<'de>"))]
pub struct State<L: Ord, O> {
    /// The locks of each owner, in the order of owners and locks.
    pub held: Vec<(O, Vec<(L, Mode)>)>,
    /// The waiting requests, in the order of owners.
    pub pending: Vec<(O, Pending<L>)>,
}

/// Why a stored state was refused: it can't be the state of any sequence of operations.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Corrupt<L: Lock, O: Debug> {
    /// An owner, or a lock of an owner, is there twice.
    #[error("{0:?} is in the stored locks twice")]
    Twice(O),
    /// Two owners hold conflicting locks.
    #[error("{first:?} and {second:?} both hold {lock:?}, or one of them a group of it")]
    Conflict {
        /// An owner.
        first: O,
        /// Another owner.
        second: O,
        /// The lock of the second owner.
        lock: L,
    },
}

/// The locks of each owner, and the owners of each lock. The table itself keeps no rule: it answers which owners have
/// conflicting locks, held ones or claimed ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table<L: Lock, O: Ord> {
    owners: BTreeMap<O, BTreeMap<L, Mode>>,
    /// The same, by lock.
    holders: BTreeMap<L, BTreeMap<O, Mode>>,
}

impl<L: Lock, O: Ord + Clone + Debug> Default for Table<L, O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Lock, O: Ord + Clone + Debug> Table<L, O> {
    /// Nobody has a lock.
    pub fn new() -> Self {
        Self { owners: BTreeMap::new(), holders: BTreeMap::new() }
    }

    pub(crate) fn owners(&self) -> &BTreeMap<O, BTreeMap<L, Mode>> {
        &self.owners
    }

    pub(crate) fn held(&self, owner: &O) -> Option<&BTreeMap<L, Mode>> {
        self.owners.get(owner)
    }

    pub(crate) fn mode(&self, owner: &O, lock: &L) -> Option<Mode> {
        self.owners.get(owner)?.get(lock).copied()
    }

    /// Whether the owner holds the lock or a group of it, in this mode or a stronger one.
    pub(crate) fn suffices(&self, owner: &O, lock: &L, mode: Mode) -> bool {
        let has = |lock: &L| self.mode(owner, lock).is_some_and(|held| held >= mode);
        has(lock) || lock.groups().iter().any(has)
    }

    /// Gives an owner a lock, or takes it away.
    pub fn set(&mut self, owner: &O, lock: &L, mode: Option<Mode>) {
        if let Some(mode) = mode {
            self.owners.entry(owner.clone()).or_default().insert(lock.clone(), mode);
            self.holders.entry(lock.clone()).or_default().insert(owner.clone(), mode);
            return;
        }
        remove(&mut self.owners, owner, lock);
        remove(&mut self.holders, lock, owner);
    }

    /// Whether these targets change nothing.
    pub(crate) fn fulfils(&self, owner: &O, targets: &Targets<L>) -> bool {
        targets.0.iter().all(|(lock, target)| self.mode(owner, lock) == target.mode())
    }

    pub(crate) fn apply(&mut self, owner: &O, targets: &Targets<L>) {
        for (lock, target) in &targets.0 {
            self.set(owner, lock, target.mode());
        }
    }

    /// The rules of order: an owner takes locks upwards, and no exclusive member below a shared group.
    pub(crate) fn check_order(&self, owner: &O, targets: &Targets<L>) -> Result<(), Refused<L, O>> {
        let Some((top, _)) = self.held(owner).and_then(BTreeMap::last_key_value) else { return Ok(()) };
        for (lock, mode) in targets.wanted() {
            if lock < top && !self.suffices(owner, lock, mode) {
                return Err(Refused::Order { lock: lock.clone(), held: top.clone() });
            }
        }
        for (lock, mode) in targets.wanted().filter(|(_, mode)| *mode == Mode::Exclusive) {
            let shared = |group: &L| self.mode(owner, group).is_some_and(|held| held < mode);
            if let Some(group) = lock.groups().into_iter().find(shared) {
                return Err(Refused::GroupOrder { lock: lock.clone(), group });
            }
        }
        Ok(())
    }

    /// The other owners that hold a lock which conflicts with one of the wanted locks.
    pub(crate) fn blockers(&self, owner: &O, targets: &Targets<L>) -> BTreeSet<O> {
        targets.wanted().flat_map(|(lock, mode)| self.conflicting(owner, lock, mode)).cloned().collect()
    }

    /// The other owners that have this lock, a group or a member of it, in a conflicting mode. An owner can come more
    /// than once.
    pub fn conflicting<'a>(&'a self, owner: &'a O, lock: &'a L, mode: Mode) -> impl Iterator<Item = &'a O> {
        let groups = lock.groups().into_iter().filter_map(|group| self.holders.get(&group));
        // The members of a group follow it without a gap.
        let members = self.holders.range(lock..).take_while(move |(name, _)| related(lock, name));
        let all = groups.chain(members.map(|(_, holders)| holders)).flatten();
        all.filter(move |(other, held)| *other != owner && held.conflicts(mode)).map(|(other, _)| other)
    }

    pub(crate) fn load(held: Vec<(O, Vec<(L, Mode)>)>) -> Result<Self, Corrupt<L, O>> {
        let mut table = Self::new();
        for (owner, locks) in held {
            if table.owners.contains_key(&owner) {
                return Err(Corrupt::Twice(owner));
            }
            for (lock, mode) in locks {
                if table.mode(&owner, &lock).is_some() {
                    return Err(Corrupt::Twice(owner));
                }
                let first = table.conflicting(&owner, &lock, mode).next().cloned();
                if let Some(first) = first {
                    return Err(Corrupt::Conflict { first, second: owner, lock });
                }
                table.set(&owner, &lock, Some(mode));
            }
        }
        Ok(table)
    }
}

/// Whether one lock is the other, or a group of it.
fn related<L: Lock>(group: &L, lock: &L) -> bool {
    group == lock || lock.groups().contains(group)
}

/// Whether two locks can't be held by two owners in these modes.
pub(crate) fn conflict<L: Lock>((a, first): (&L, Mode), (b, second): (&L, Mode)) -> bool {
    first.conflicts(second) && (related(a, b) || related(b, a))
}

fn remove<A: Ord, B: Ord>(map: &mut BTreeMap<A, BTreeMap<B, Mode>>, outer: &A, inner: &B) {
    if let Some(entries) = map.get_mut(outer) {
        entries.remove(inner);
        if entries.is_empty() {
            map.remove(outer);
        }
    }
}
