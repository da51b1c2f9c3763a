//! Waiting requests: their order, and which of them are reserved.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::lock::{Blockers, Lock, Mode, Target, Targets};
use crate::table::{Table, conflict};

/// How important a request is: the smaller number goes first. Ganeti has -20 (highest) to 19; jobs start with -10
/// (high), 0 (normal) or 10 (low).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(pub i8);

/// How many owners may overtake a waiting request before it is reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Patience(pub u32);

impl Patience {
    /// No request is ever reserved: the behaviour of Ganeti, in which a stream of readers starves a writer.
    pub const ENDLESS: Self = Self(u32::MAX);
}

/// A waiting request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "L: Deserialize<'de> + Ord"))]
pub struct Pending<L: Ord> {
    /// The priority of the first call; a repetition does not change it.
    pub priority: Priority,
    /// Each lock once, in the order of locks.
    pub targets: Vec<(L, Target)>,
    /// Which request came first: numbers count upwards.
    pub arrived: u64,
    /// How many later owners have obtained a conflicting lock since.
    pub overtaken: u32,
}

/// A waiting request in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Waiter<L: Ord, O> {
    pub(crate) priority: Priority,
    pub(crate) targets: Targets<L>,
    pub(crate) arrived: u64,
    pub(crate) overtaken: u32,
    /// The least owner of a conflicting lock at the last try: only when this owner acts, the request is tried again.
    /// Without one, a reservation blocks it, and each round tries it again.
    pub(crate) filed: Option<O>,
}

#[derive(Clone, Debug)]
pub(crate) struct Requests<L: Lock, O: Ord> {
    waiters: BTreeMap<O, Waiter<L, O>>,
    patience: Patience,
    /// The number of the next request.
    next: u64,
}

impl<L: Lock, O: Ord + Clone + Debug> Requests<L, O> {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { waiters: BTreeMap::new(), patience, next: 0 }
    }

    pub(crate) fn get(&self, owner: &O) -> Option<&Waiter<L, O>> {
        self.waiters.get(owner)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&O, &Waiter<L, O>)> {
        self.waiters.iter()
    }

    pub(crate) fn insert(&mut self, owner: O, waiter: Waiter<L, O>) {
        self.next = self.next.max(waiter.arrived.saturating_add(1));
        self.waiters.insert(owner, waiter);
    }

    pub(crate) fn remove(&mut self, owner: &O) -> Option<Waiter<L, O>> {
        self.waiters.remove(owner)
    }

    pub(crate) fn file(&mut self, owner: &O, under: Option<O>) {
        if let Some(waiter) = self.waiters.get_mut(owner) {
            waiter.filed = under;
        }
    }

    /// The number for a request that arrives now.
    pub(crate) fn now(&self) -> u64 {
        self.next
    }

    /// The requests that a round tries, after these owners have acted: the most important first. Among equals the least
    /// owner goes first.
    pub(crate) fn round(&self, acted: &BTreeSet<O>) -> Vec<O> {
        let due = self.waiters.iter().filter(|(_, w)| w.filed.as_ref().is_none_or(|owner| acted.contains(owner)));
        let mut due: Vec<_> = due.map(|(owner, waiter)| (waiter.priority, owner)).collect();
        due.sort();
        due.into_iter().map(|(_, owner)| owner.clone()).collect()
    }

    /// Notes that an owner, whose request or update has this number, has obtained these locks.
    pub(crate) fn note_obtained(&mut self, by: &O, arrived: u64, obtained: &[(L, Mode)]) {
        for (owner, waiter) in &mut self.waiters {
            let conflicts = |wanted| obtained.iter().any(|(lock, mode)| conflict((lock, *mode), wanted));
            if owner != by && waiter.arrived < arrived && waiter.targets.wanted().any(conflicts) {
                waiter.overtaken = waiter.overtaken.saturating_add(1);
            }
        }
    }

    fn is_reserved(&self, waiter: &Waiter<L, O>) -> bool {
        self.patience != Patience::ENDLESS && waiter.overtaken >= self.patience.0
    }

    /// The owners that block an update with these targets, whose number is `arrived`.
    pub(crate) fn blockers(&self, table: &Table<L, O>, owner: &O, targets: &Targets<L>, arrived: u64) -> Blockers<O> {
        let holders = table.blockers(owner, targets);
        let ahead = self.ahead(table, owner, targets, arrived).filter(|other| !self.waits_for(table, other, owner));
        Blockers { holders, reservations: ahead.cloned().collect() }
    }

    /// The owners of reserved requests that conflict with these targets. A reserved request waits only for reserved
    /// requests that arrived earlier.
    fn ahead<'a>(
        &'a self,
        table: &'a Table<L, O>,
        owner: &'a O,
        targets: &'a Targets<L>,
        arrived: u64,
    ) -> impl Iterator<Item = &'a O> {
        let reserved = self.get(owner).is_some_and(|own| self.is_reserved(own));
        let others = self.waiters.iter().filter(move |(other, waiter)| {
            *other != owner && self.is_reserved(waiter) && (!reserved || waiter.arrived < arrived)
        });
        // What an owner has already is no new obstacle for others.
        let new = move |targets: &'a Targets<L>, owner: &'a O| {
            targets.wanted().filter(move |(lock, mode)| table.mode(owner, lock).is_none_or(|held| held < *mode))
        };
        let clash = move |(other, waiter): &(&'a O, &'a Waiter<L, O>)| {
            new(targets, owner).any(|wanted| new(&waiter.targets, other).any(|reserved| conflict(wanted, reserved)))
        };
        others.filter(clash).map(|(other, _)| other)
    }

    /// Whether a waiting owner waits, directly or through others, for the owner `last`: for its locks or its
    /// reservation.
    fn waits_for(&self, table: &Table<L, O>, first: &O, last: &O) -> bool {
        let next = |owner: &O| -> Vec<O> {
            let Some(waiter) = self.get(owner) else { return Vec::new() };
            let mut next: Vec<O> = table.blockers(owner, &waiter.targets).into_iter().collect();
            next.extend(self.ahead(table, owner, &waiter.targets, waiter.arrived).cloned());
            next
        };
        path(first, last, next).is_some()
    }

    /// The circle of owners that a request with these targets would close by waiting: each waits for locks of the next.
    pub(crate) fn circle(&self, table: &Table<L, O>, owner: &O, targets: &Targets<L>) -> Option<Vec<O>> {
        let next = |other: &O| -> Vec<O> {
            let targets = if other == owner { Some(targets) } else { self.get(other).map(|waiter| &waiter.targets) };
            targets.map(|targets| table.blockers(other, targets).into_iter().collect()).unwrap_or_default()
        };
        path(owner, owner, next)
    }
}

/// The owners on a shortest path of at least one step from `first` to `last`, without `last`.
fn path<O: Ord + Clone>(first: &O, last: &O, next: impl Fn(&O) -> Vec<O>) -> Option<Vec<O>> {
    let mut from: BTreeMap<O, O> = BTreeMap::new();
    let mut open = vec![first.clone()];
    while !open.is_empty() {
        let mut further = Vec::new();
        for owner in open {
            for other in next(&owner) {
                if other == *last {
                    let mut path = vec![owner.clone()];
                    let mut at = &owner;
                    while at != first {
                        at = from.get(at)?;
                        path.push(at.clone());
                    }
                    path.reverse();
                    return Some(path);
                }
                if other != *first && !from.contains_key(&other) {
                    from.insert(other.clone(), owner.clone());
                    further.push(other);
                }
            }
        }
        open = further;
    }
    None
}
