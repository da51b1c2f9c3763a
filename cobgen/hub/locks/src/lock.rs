//! Locks, modes and refusals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};

use serde::{Deserialize, Serialize};

/// A lock: a name with a fixed place in the linear order of all locks. Nobody creates or deletes locks: each possible
/// name exists and is free until somebody holds it.
///
/// The order has two duties, which [`Locks`](crate::Locks) relies on: a group comes before its members, and a lock
/// between a group and one of its members is a member of this group, too.
pub trait Lock: Clone + Ord + Debug {
    /// The groups of this lock: holding a group counts as holding each member in the same mode. Without the lock
    /// itself; groups of groups included.
    fn groups(&self) -> Vec<Self>;
}

/// How a lock is held. An owner with an exclusive lock may do all that the shared lock permits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Any number of owners at a time.
    Shared,
    /// A single owner, and no shared one.
    Exclusive,
}

impl Mode {
    /// Whether two owners can't hold the same lock in these modes.
    pub(crate) fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// What an owner wants of a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// To give the lock back; nothing happens if the owner does not hold it.
    Release,
    /// To hold the lock shared; an exclusive lock becomes a shared one.
    Shared,
    /// To hold the lock exclusively.
    Exclusive,
}

impl Target {
    /// The mode that the owner wants, if it wants the lock.
    pub fn mode(self) -> Option<Mode> {
        match self {
            Self::Release => None,
            Self::Shared => Some(Mode::Shared),
            Self::Exclusive => Some(Mode::Exclusive),
        }
    }
}

impl From<Mode> for Target {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Shared => Self::Shared,
            Mode::Exclusive => Self::Exclusive,
        }
    }
}

/// Why an update or a request was refused. A refusal changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused<L: Lock, O: Ord + Debug> {
    /// Other owners come first.
    #[error("{0}")]
    Blocked(Blockers<O>),
    /// The owner has a waiting request and can't ask for anything else before this is granted or cancelled.
    #[error("another request of this owner waits; cancel it first")]
    Pending,
    /// The list wants two different things of the same lock.
    #[error("the list has {0:?} twice, with different modes")]
    Contradictory(L),
    /// The owner holds a greater lock already. Locks are taken in their order, so that no two owners wait for each
    /// other.
    #[error("{lock:?} comes before {held:?}, which this owner holds; release {held:?} first")]
    Order {
        /// The lock that the owner wants.
        lock: L,
        /// The greatest lock that the owner holds.
        held: L,
    },
    /// The owner holds a group of this lock shared and wants the lock exclusively.
    #[error("this owner holds the group {group:?} shared, so {lock:?} can't become exclusive")]
    GroupOrder {
        /// The lock that the owner wants.
        lock: L,
        /// The group that the owner holds.
        group: L,
    },
    /// The request would wait for itself: each of these owners waits for the next, and the last for the first.
    #[error("the request would wait for itself: {}", circle_text(.0))]
    Deadlock(Vec<O>),
}

/// The owners for which an update has to wait: exactly these. It succeeds when the holders have released their
/// conflicting locks and no reservation is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blockers<O: Ord> {
    /// Owners that hold conflicting locks. Each of them alone blocks the update.
    pub holders: BTreeSet<O>,
    /// Owners of conflicting requests that others have overtaken too often; these come first.
    pub reservations: BTreeSet<O>,
}

impl<O: Ord> Default for Blockers<O> {
    fn default() -> Self {
        Self { holders: BTreeSet::new(), reservations: BTreeSet::new() }
    }
}

impl<O: Ord> Blockers<O> {
    /// Whether nobody blocks the update.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.reservations.is_empty()
    }
}

impl<O: Ord + Debug> fmt::Display for Blockers<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            |owners: &BTreeSet<O>| owners.iter().map(|owner| format!("{owner:?}")).collect::<Vec<_>>().join(", ");
        match (self.holders.is_empty(), self.reservations.is_empty()) {
            (true, true) => write!(f, "nobody holds a conflicting lock"),
            (false, true) => write!(f, "conflicting locks are held by {}", names(&self.holders)),
            (true, false) => write!(f, "the locks are reserved for {}", names(&self.reservations)),
            (false, false) => {
                let (holders, reservations) = (names(&self.holders), names(&self.reservations));
                write!(f, "conflicting locks are held by {holders} and reserved for {reservations}")
            }
        }
    }
}

fn circle_text<O: Debug>(owners: &[O]) -> String {
    let mut text: Vec<String> = owners.iter().map(|owner| format!("{owner:?}")).collect();
    text.extend(owners.first().map(|owner| format!("{owner:?}")));
    text.join(" waits for ")
}

/// A checked list of wishes: each lock once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Targets<L: Ord>(pub(crate) BTreeMap<L, Target>);

impl<L: Lock> Targets<L> {
    pub(crate) fn new<O: Ord + Debug>(list: &[(L, Target)]) -> Result<Self, Refused<L, O>> {
        let mut targets = BTreeMap::new();
        for (lock, target) in list {
            if targets.insert(lock.clone(), *target).is_some_and(|before| before != *target) {
                return Err(Refused::Contradictory(lock.clone()));
            }
        }
        Ok(Self(targets))
    }

    /// The locks that the owner wants to hold afterwards.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (&L, Mode)> {
        self.0.iter().filter_map(|(lock, target)| Some((lock, target.mode()?)))
    }
}
