//! The operations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::lock::{Blockers, Lock, Mode, Refused, Target, Targets};
use crate::requests::{Patience, Pending, Priority, Requests, Waiter};
use crate::table::{Corrupt, State, Table};

/// Locks and their owners. See the [crate](crate) for the rules.
///
/// Operations return the owners to notify: the operation has granted their waiting requests. The set never contains the
/// acting owner.
#[derive(Clone, Debug)]
pub struct Locks<L: Lock, O: Ord> {
    table: Table<L, O>,
    requests: Requests<L, O>,
}

/// What a request has led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome<O: Ord> {
    /// The owners for which the request waits; empty if the request was granted.
    pub blockers: Blockers<O>,
    /// Other owners whose requests were granted.
    pub notify: BTreeSet<O>,
}

impl<O: Ord> Outcome<O> {
    /// Whether the owner holds now what it asked for.
    pub fn is_granted(&self) -> bool {
        self.blockers.is_empty()
    }
}

impl<L: Lock, O: Ord + Clone + Debug> Locks<L, O> {
    /// All locks are free.
    pub fn new(patience: Patience) -> Self {
        Self { table: Table::new(), requests: Requests::new(patience) }
    }

    /// The locks of a stored state.
    ///
    /// # Errors
    ///
    /// No sequence of operations leads to this state.
    pub fn load(state: State<L, O>, patience: Patience) -> Result<Self, Corrupt<L, O>> {
        let mut locks = Self { table: Table::load(state.held)?, requests: Requests::new(patience) };
        for (owner, pending) in state.pending {
            let targets = Targets::new::<O>(&pending.targets).map_err(|_| Corrupt::Twice(owner.clone()))?;
            if locks.requests.get(&owner).is_some() {
                return Err(Corrupt::Twice(owner));
            }
            let (priority, arrived, overtaken) = (pending.priority, pending.arrived, pending.overtaken);
            let filed = locks.table.blockers(&owner, &targets).into_iter().next();
            locks.requests.insert(owner, Waiter { priority, targets, arrived, overtaken, filed });
        }
        Ok(locks)
    }

    /// What has to be durable before an answer or a notification leaves.
    pub fn state(&self) -> State<L, O> {
        let listed = |locks: &BTreeMap<L, Mode>| locks.iter().map(|(lock, mode)| (lock.clone(), *mode)).collect();
        State {
            held: self.table.owners().iter().map(|(owner, locks)| (owner.clone(), listed(locks))).collect(),
            pending: self.pending().collect(),
        }
    }

    /// The held locks.
    pub fn table(&self) -> &Table<L, O> {
        &self.table
    }

    /// The locks of an owner, with their modes.
    pub fn held(&self, owner: &O) -> BTreeMap<L, Mode> {
        self.table.held(owner).cloned().unwrap_or_default()
    }

    /// All owners of locks.
    pub fn owners(&self) -> &BTreeMap<O, BTreeMap<L, Mode>> {
        self.table.owners()
    }

    /// All waiting requests.
    pub fn pending(&self) -> impl Iterator<Item = (O, Pending<L>)> {
        self.requests.iter().map(|(owner, waiter)| {
            let targets = waiter.targets.0.iter().map(|(lock, target)| (lock.clone(), *target)).collect();
            let Waiter { priority, arrived, overtaken, .. } = *waiter;
            (owner.clone(), Pending { priority, targets, arrived, overtaken })
        })
    }

    /// Whether the owner has a waiting request.
    pub fn is_waiting(&self, owner: &O) -> bool {
        self.requests.get(owner).is_some()
    }

    /// The owners for which the waiting request of an owner waits.
    pub fn blockers(&self, owner: &O) -> Option<Blockers<O>> {
        let waiter = self.requests.get(owner)?;
        Some(self.requests.blockers(&self.table, owner, &waiter.targets, waiter.arrived))
    }

    /// Takes and releases locks at once: all of the list, or nothing.
    ///
    /// # Errors
    ///
    /// A refusal; nothing has changed.
    pub fn update(&mut self, owner: &O, list: &[(L, Target)]) -> Result<BTreeSet<O>, Refused<L, O>> {
        if self.is_waiting(owner) {
            return Err(Refused::Pending);
        }
        self.set(owner, &Targets::new(list)?)
    }

    /// Grants the targets of an owner that does not wait.
    fn set(&mut self, owner: &O, targets: &Targets<L>) -> Result<BTreeSet<O>, Refused<L, O>> {
        if self.table.fulfils(owner, targets) {
            return Ok(BTreeSet::new());
        }
        self.grant(owner, targets, self.requests.now())?;
        Ok(self.wake(owner))
    }

    /// As [`update`](Self::update), but a blocked request waits. A repetition of the waiting request has no effect.
    ///
    /// # Errors
    ///
    /// A refusal, never [`Refused::Blocked`]; nothing has changed.
    pub fn request(
        &mut self,
        owner: &O,
        priority: Priority,
        list: &[(L, Target)],
    ) -> Result<Outcome<O>, Refused<L, O>> {
        if let Some(waiter) = self.requests.get(owner) {
            let same = Targets::new::<O>(list).is_ok_and(|targets| targets == waiter.targets);
            let blockers = self.blockers(owner).filter(|_| same).ok_or(Refused::Pending)?;
            return Ok(Outcome { blockers, notify: BTreeSet::new() });
        }
        let targets = Targets::new(list)?;
        match self.set(owner, &targets) {
            Ok(notify) => Ok(Outcome { blockers: Blockers::default(), notify }),
            Err(Refused::Blocked(blockers)) => {
                if let Some(circle) = self.requests.circle(&self.table, owner, &targets) {
                    return Err(Refused::Deadlock(circle));
                }
                let filed = blockers.holders.first().cloned();
                let arrived = self.requests.now();
                self.requests.insert(owner.clone(), Waiter { priority, targets, arrived, overtaken: 0, filed });
                // A reservation does not hold back an owner for which it now waits itself.
                let notify = self.wake_rounds(BTreeSet::new());
                let blockers = self.blockers(owner).unwrap_or_default();
                Ok(Outcome { blockers, notify: without(notify, owner) })
            }
            Err(refused) => Err(refused),
        }
    }

    /// Ends the waiting request of an owner; the owner keeps its locks.
    pub fn cancel(&mut self, owner: &O) -> BTreeSet<O> {
        if self.requests.remove(owner).is_none() {
            return BTreeSet::new();
        }
        self.wake(owner)
    }

    /// Takes each lock of the list that nobody blocks, in the order of locks. Never waits.
    ///
    /// Returns the locks that the owner has obtained or upgraded by it: none if the owner has a waiting request.
    pub fn take_free(&mut self, owner: &O, list: &[(L, Mode)]) -> BTreeSet<L> {
        self.take_at_least(owner, 0, list)
    }

    /// As [`take_free`](Self::take_free), but with fewer than `least` new locks nothing changes, and the result is
    /// empty. Locks that the owner has already do not count.
    pub fn take_at_least(&mut self, owner: &O, least: usize, list: &[(L, Mode)]) -> BTreeSet<L> {
        if self.is_waiting(owner) {
            return BTreeSet::new();
        }
        let lacks = |(lock, mode): &&(L, Mode)| self.table.mode(owner, lock).is_none_or(|held| held < *mode);
        let wanted: BTreeSet<(L, Mode)> = list.iter().filter(lacks).cloned().collect();
        let before = (least > 0).then(|| self.clone());
        let mut obtained = BTreeSet::new();
        for (lock, mode) in wanted {
            let targets = Targets(BTreeMap::from([(lock.clone(), mode.into())]));
            if self.grant(owner, &targets, self.requests.now()).is_ok() {
                obtained.insert(lock);
            }
        }
        if let Some(before) = before.filter(|_| obtained.len() < least) {
            *self = before;
            obtained.clear();
        }
        obtained
    }

    /// Releases all locks but these and ends the waiting request.
    pub fn keep_only(&mut self, owner: &O, keep: &BTreeSet<L>) -> BTreeSet<O> {
        self.change(owner, |lock, mode| Some(mode).filter(|_| keep.contains(lock)))
    }

    /// Releases all locks that the condition selects (a level, for example) and ends the waiting request.
    pub fn release_if(&mut self, owner: &O, selected: impl Fn(&L) -> bool) -> BTreeSet<O> {
        self.change(owner, |lock, mode| Some(mode).filter(|_| !selected(lock)))
    }

    /// Makes all locks shared that the condition selects and ends the waiting request.
    pub fn downgrade_if(&mut self, owner: &O, selected: impl Fn(&L) -> bool) -> BTreeSet<O> {
        self.change(owner, |lock, mode| Some(if selected(lock) { Mode::Shared } else { mode }))
    }

    /// Releases all locks and ends the waiting request: the owner has ended, or is dead.
    pub fn release_all(&mut self, owner: &O) -> BTreeSet<O> {
        self.change(owner, |_, _| None)
    }

    /// Gives each lock of an owner another mode, never a stronger one, or none.
    fn change(&mut self, owner: &O, mode_of: impl Fn(&L, Mode) -> Option<Mode>) -> BTreeSet<O> {
        let cancelled = self.requests.remove(owner).is_some();
        let held = self.held(owner).into_iter();
        let changes: Vec<_> = held
            .map(|(lock, mode)| (mode_of(&lock, mode), lock, mode))
            .filter(|(after, _, before)| *after != Some(*before))
            .collect();
        if changes.is_empty() && !cancelled {
            return BTreeSet::new();
        }
        for (mode, lock, _) in changes {
            self.table.set(owner, &lock, mode);
        }
        self.wake(owner)
    }

    /// Grants the targets unless a rule or somebody stands against it.
    fn grant(&mut self, owner: &O, targets: &Targets<L>, arrived: u64) -> Result<(), Refused<L, O>> {
        self.table.check_order(owner, targets)?;
        let blockers = self.requests.blockers(&self.table, owner, targets, arrived);
        if !blockers.is_empty() {
            return Err(Refused::Blocked(blockers));
        }
        let stronger = |(lock, mode): &(&L, Mode)| self.table.mode(owner, lock).is_none_or(|held| held < *mode);
        let obtained: Vec<(L, Mode)> =
            targets.wanted().filter(stronger).map(|(lock, mode)| (lock.clone(), mode)).collect();
        self.table.apply(owner, targets);
        self.requests.note_obtained(owner, arrived, &obtained);
        Ok(())
    }

    /// Grants waiting requests after an owner has acted.
    fn wake(&mut self, owner: &O) -> BTreeSet<O> {
        let notify = self.wake_rounds(BTreeSet::from([owner.clone()]));
        without(notify, owner)
    }

    /// Tries the requests that wait for these owners, then those that wait for the owners of granted requests, and so
    /// on.
    fn wake_rounds(&mut self, mut acted: BTreeSet<O>) -> BTreeSet<O> {
        let mut notify = BTreeSet::new();
        loop {
            let mut granted = BTreeSet::new();
            for owner in self.requests.round(&acted) {
                let Some(waiter) = self.requests.get(&owner).cloned() else { continue };
                match self.grant(&owner, &waiter.targets, waiter.arrived) {
                    Ok(()) => {
                        self.requests.remove(&owner);
                        granted.insert(owner);
                    }
                    Err(Refused::Blocked(blockers)) => self.requests.file(&owner, blockers.holders.into_iter().next()),
                    // The locks of a waiting owner do not change, so its order was right and stays right.
                    Err(_) => {}
                }
            }
            if granted.is_empty() {
                return notify;
            }
            notify.extend(granted.iter().cloned());
            acted = granted;
        }
    }
}

fn without<O: Ord>(mut owners: BTreeSet<O>, owner: &O) -> BTreeSet<O> {
    owners.remove(owner);
    owners
}
