//! Ganeti's rules once more, by brute force: lists of triples, no index, groups as tables. Random sequences have to give
//! the same answers, notifications and states.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde::{Deserialize, Serialize};

use crate::{Lock, Locks, Mode, Patience, Priority, Refused, Target};

/// Nine locks: 0 is a group of 1 to 4, 1 a group of 2 and 3 in it, 5 a group of 6 and 7; 8 is in no group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Name(pub(crate) u8);

impl Lock for Name {
    fn groups(&self) -> Vec<Self> {
        match self.0 {
            1 | 4 => vec![Self(0)],
            2 | 3 => vec![Self(0), Self(1)],
            6 | 7 => vec![Self(5)],
            _ => Vec::new(),
        }
    }
}

const MEMBERS: [&[u8]; 9] = [&[1, 2, 3, 4], &[2, 3], &[], &[], &[], &[6, 7], &[], &[], &[]];

fn is_group_of(group: Name, lock: Name) -> bool {
    MEMBERS[group.0 as usize].contains(&lock.0)
}

type Owner = u8;
type List = Vec<(Name, Target)>;

#[derive(Clone, Debug)]
enum Call {
    Update(Owner, List),
    Request(Owner, i8, List),
    Cancel(Owner),
    TakeAtLeast(Owner, usize, Vec<(Name, Mode)>),
    KeepOnly(Owner, BTreeSet<Name>),
    ReleaseGroup(Owner, Name),
    DowngradeGroup(Owner, Name),
    Death(Owner),
}

/// What a call has said: the same for both.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    Granted(BTreeSet<Owner>),
    Waits(BTreeSet<Owner>),
    Blocked(BTreeSet<Owner>),
    Obtained(BTreeSet<Name>),
    Rejected(&'static str),
    Deadlock,
}

#[derive(Clone, Debug, Default)]
struct Brute {
    held: Vec<(Owner, Name, Mode)>,
    waiting: Vec<(i8, Owner, List, Owner)>,
}

impl Brute {
    fn mode(&self, owner: Owner, lock: Name) -> Option<Mode> {
        self.held.iter().find(|(o, l, _)| *o == owner && *l == lock).map(|(.., mode)| *mode)
    }

    fn blockers(&self, owner: Owner, list: &[(Name, Target)]) -> BTreeSet<Owner> {
        let mut found = BTreeSet::new();
        for (lock, target) in list {
            for (other, held, mode) in &self.held {
                let near = lock == held || is_group_of(*lock, *held) || is_group_of(*held, *lock);
                let clash = *mode == Mode::Exclusive || *target == Target::Exclusive;
                if *other != owner && near && clash && *target != Target::Release {
                    found.insert(*other);
                }
            }
        }
        found
    }

    fn rejection(&self, owner: Owner, list: &[(Name, Target)]) -> Option<&'static str> {
        if list.iter().any(|(lock, target)| list.iter().any(|(l, t)| l == lock && t != target)) {
            return Some("contradictory");
        }
        let top = self.held.iter().filter(|(o, ..)| *o == owner).map(|(_, lock, _)| *lock).max();
        for (lock, target) in list {
            let enough = self.held.iter().any(|(o, held, mode)| {
                let covers = held == lock || is_group_of(*held, *lock);
                *o == owner && covers && (*target == Target::Shared || *mode == Mode::Exclusive)
            });
            if *target != Target::Release && top.is_some_and(|top| *lock < top) && !enough {
                return Some("order");
            }
        }
        for (lock, target) in list {
            let below = self
                .held
                .iter()
                .any(|(o, held, mode)| *o == owner && is_group_of(*held, *lock) && *mode == Mode::Shared);
            if *target == Target::Exclusive && below {
                return Some("group-order");
            }
        }
        None
    }

    fn set(&mut self, owner: Owner, lock: Name, mode: Option<Mode>) {
        self.held.retain(|(o, l, _)| *o != owner || *l != lock);
        self.held.extend(mode.map(|mode| (owner, lock, mode)));
    }

    fn update(&mut self, owner: Owner, list: &[(Name, Target)]) -> Result<(), Said> {
        if let Some(why) = self.rejection(owner, list) {
            return Err(Said::Rejected(why));
        }
        let blockers = self.blockers(owner, list);
        if !blockers.is_empty() {
            return Err(Said::Blocked(blockers));
        }
        for (lock, target) in list {
            self.set(owner, *lock, target.mode());
        }
        Ok(())
    }

    fn wake(&mut self, first: Owner) -> BTreeSet<Owner> {
        let (mut acted, mut told) = (BTreeSet::from([first]), BTreeSet::new());
        while !acted.is_empty() {
            let mut due: Vec<_> = self.waiting.iter().filter(|w| acted.contains(&w.3)).cloned().collect();
            due.sort();
            acted.clear();
            for (priority, owner, list, _) in due {
                self.waiting.retain(|w| w.1 != owner);
                match self.update(owner, &list) {
                    Ok(()) => {
                        acted.insert(owner);
                        told.insert(owner);
                    }
                    Err(Said::Blocked(by)) => {
                        self.waiting.push((priority, owner, list, *by.first().expect("a blocker")));
                    }
                    Err(said) => panic!("a waiting request became invalid: {said:?}"),
                }
            }
        }
        told.remove(&first);
        told
    }

    /// Whether the owner waits for itself, with its request among the waiting ones.
    fn circle(&self, owner: Owner) -> bool {
        let mut reached = BTreeSet::new();
        let mut open = vec![owner];
        while let Some(at) = open.pop() {
            for (_, waiter, list, _) in &self.waiting {
                if *waiter == at {
                    for by in self.blockers(at, list) {
                        if reached.insert(by) {
                            open.push(by);
                        }
                    }
                }
            }
        }
        reached.contains(&owner)
    }

    fn change(&mut self, owner: Owner, mode_of: impl Fn(Name, Mode) -> Option<Mode>) -> Said {
        self.waiting.retain(|w| w.1 != owner);
        for (_, lock, mode) in self.held.clone().into_iter().filter(|(o, ..)| *o == owner) {
            self.set(owner, lock, mode_of(lock, mode));
        }
        Said::Granted(self.wake(owner))
    }

    fn call(&mut self, call: &Call) -> Said {
        match call {
            Call::Update(owner, list) | Call::Request(owner, _, list) => {
                let own = self.waiting.iter().find(|w| w.1 == *owner).cloned();
                let sorted = sorted(list);
                if let (Some((_, _, wanted, _)), Call::Request(..)) = (&own, call)
                    && self.rejection(*owner, list) != Some("contradictory")
                    && *wanted == sorted
                {
                    return Said::Waits(self.blockers(*owner, wanted));
                }
                if own.is_some() {
                    return Said::Rejected("pending");
                }
                if list.iter().all(|(lock, target)| self.mode(*owner, *lock) == target.mode()) {
                    return Said::Granted(BTreeSet::new());
                }
                match (self.update(*owner, &sorted), call) {
                    (Ok(()), _) => Said::Granted(self.wake(*owner)),
                    (Err(Said::Blocked(by)), Call::Request(_, priority, _)) => {
                        self.waiting.push((*priority, *owner, sorted, *by.first().expect("a blocker")));
                        if self.circle(*owner) {
                            self.waiting.pop();
                            return Said::Deadlock;
                        }
                        Said::Waits(by)
                    }
                    (Err(said), _) => said,
                }
            }
            Call::Cancel(owner) => {
                self.waiting.retain(|w| w.1 != *owner);
                Said::Granted(self.wake(*owner))
            }
            Call::TakeAtLeast(owner, least, list) => {
                if self.waiting.iter().any(|w| w.1 == *owner) {
                    return Said::Obtained(BTreeSet::new());
                }
                let before = self.clone();
                let mut list: Vec<_> =
                    list.iter().filter(|(l, mode)| self.mode(*owner, *l).is_none_or(|h| h < *mode)).collect();
                list.sort();
                let mut obtained = BTreeSet::new();
                for (lock, mode) in list {
                    if self.update(*owner, &[(*lock, (*mode).into())]).is_ok() {
                        obtained.insert(*lock);
                    }
                }
                if obtained.len() < *least {
                    *self = before;
                    obtained.clear();
                }
                Said::Obtained(obtained)
            }
            Call::KeepOnly(owner, keep) => {
                self.change(*owner, |lock, mode| Some(mode).filter(|_| keep.contains(&lock)))
            }
            Call::ReleaseGroup(owner, group) => {
                self.change(*owner, |lock, mode| Some(mode).filter(|_| lock != *group && !is_group_of(*group, lock)))
            }
            Call::DowngradeGroup(owner, group) => self.change(*owner, |lock, mode| {
                Some(if lock == *group || is_group_of(*group, lock) { Mode::Shared } else { mode })
            }),
            Call::Death(owner) => self.change(*owner, |_, _| None),
        }
    }
}

/// Each lock once, in order.
fn sorted(list: &[(Name, Target)]) -> List {
    list.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
}

fn said(refused: Refused<Name, Owner>) -> Said {
    match refused {
        Refused::Blocked(blockers) => {
            assert!(blockers.reservations.is_empty());
            Said::Blocked(blockers.holders)
        }
        Refused::Pending => Said::Rejected("pending"),
        Refused::Contradictory(_) => Said::Rejected("contradictory"),
        Refused::Order { .. } => Said::Rejected("order"),
        Refused::GroupOrder { .. } => Said::Rejected("group-order"),
        Refused::Deadlock(_) => Said::Deadlock,
    }
}

fn call(locks: &mut Locks<Name, Owner>, call: &Call) -> Said {
    let member = |group: Name| move |lock: &Name| *lock == group || lock.groups().contains(&group);
    match call {
        Call::Update(owner, list) => locks.update(owner, list).map_or_else(said, Said::Granted),
        Call::Request(owner, priority, list) => match locks.request(owner, Priority(*priority), list) {
            Ok(outcome) if outcome.is_granted() => Said::Granted(outcome.notify),
            Ok(outcome) => {
                assert!(outcome.notify.is_empty() && outcome.blockers.reservations.is_empty());
                Said::Waits(outcome.blockers.holders)
            }
            Err(refused) => said(refused),
        },
        Call::Cancel(owner) => Said::Granted(locks.cancel(owner)),
        Call::TakeAtLeast(owner, least, list) => Said::Obtained(locks.take_at_least(owner, *least, list)),
        Call::KeepOnly(owner, keep) => Said::Granted(locks.keep_only(owner, keep)),
        Call::ReleaseGroup(owner, group) => Said::Granted(locks.release_if(owner, member(*group))),
        Call::DowngradeGroup(owner, group) => Said::Granted(locks.downgrade_if(owner, member(*group))),
        Call::Death(owner) => Said::Granted(locks.release_all(owner)),
    }
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let owner = || 0..4u8;
    let name = || (0..9u8).prop_map(Name);
    let mode = || prop_oneof![Just(Mode::Shared), Just(Mode::Exclusive)];
    let target = || prop_oneof![1 => Just(Target::Release), 2 => Just(Target::Shared), 2 => Just(Target::Exclusive)];
    let list = move || prop::collection::vec((name(), target()), 0..4);
    let one = prop_oneof![
        4 => (owner(), list()).prop_map(|(o, l)| Call::Update(o, l)),
        8 => (owner(), -2..3i8, list()).prop_map(|(o, p, l)| Call::Request(o, p, l)),
        1 => owner().prop_map(Call::Cancel),
        1 => (owner(), 0..3usize, prop::collection::vec((name(), mode()), 0..5))
            .prop_map(|(o, n, l)| Call::TakeAtLeast(o, n, l)),
        1 => (owner(), prop::collection::btree_set(name(), 0..5)).prop_map(|(o, k)| Call::KeepOnly(o, k)),
        1 => (owner(), name()).prop_map(|(o, g)| Call::ReleaseGroup(o, g)),
        1 => (owner(), name()).prop_map(|(o, g)| Call::DowngradeGroup(o, g)),
        1 => owner().prop_map(Call::Death),
    ];
    prop::collection::vec(one, 1..40)
}

/// `PROPTEST_CASES` asks for more sequences.
fn runner() -> TestRunner {
    let config = Config::default();
    TestRunner::new(Config { cases: config.cases.max(1000), failure_persistence: None, ..config })
}

fn waits_of(locks: &Locks<Name, Owner>) -> Vec<(Owner, i8, List)> {
    locks.pending().map(|(owner, pending)| (owner, pending.priority.0, pending.targets)).collect()
}

#[test]
fn random_sequences_give_the_answers_of_the_brute_force_model() {
    let property = |calls: Vec<Call>| {
        let (mut locks, mut brute) = (Locks::new(Patience::ENDLESS), Brute::default());
        for (at, one) in calls.iter().enumerate() {
            prop_assert_eq!(call(&mut locks, one), brute.call(one), "call {}: {:?}", at, one);
            let mut held = brute.held.clone();
            held.sort();
            let ours = locks.owners().iter().flat_map(|(o, locks)| locks.iter().map(|(l, m)| (*o, *l, *m)));
            prop_assert_eq!(ours.collect::<Vec<_>>(), held);
            let mut waits: Vec<_> = brute.waiting.iter().map(|(p, o, list, _)| (*o, *p, list.clone())).collect();
            waits.sort();
            prop_assert_eq!(waits_of(&locks), waits);
            // A restart changes nothing, and a stored state survives its text.
            let text = serde_json::to_string(&locks.state()).expect("JSON");
            let state = serde_json::from_str(&text).expect("a state");
            let again = Locks::load(state, Patience::ENDLESS).expect("a valid state");
            prop_assert_eq!(again.state(), locks.state());
        }
        Ok(())
    };
    runner().run(&calls(), property).unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
fn with_reservations_locks_stay_disjoint_and_all_waiting_owners_are_served() {
    let property = |(calls, patience): (Vec<Call>, u32)| {
        let mut locks = Locks::new(Patience(patience));
        for one in &calls {
            let before = locks.state();
            match one {
                Call::Update(owner, list) => {
                    if let Err(refused) = locks.update(owner, list) {
                        prop_assert_eq!(&locks.state(), &before);
                        if let Refused::Blocked(blockers) = refused {
                            prop_assert!(!blockers.is_empty() && !blockers.reservations.contains(owner));
                        }
                    }
                }
                Call::Request(owner, priority, list) => {
                    let _ = locks.request(owner, Priority(*priority), list);
                }
                Call::Cancel(_)
                | Call::TakeAtLeast(..)
                | Call::KeepOnly(..)
                | Call::ReleaseGroup(..)
                | Call::DowngradeGroup(..)
                | Call::Death(_) => drop(call(&mut locks, one)),
            }
            // Loading refuses conflicts between owners.
            let again = Locks::load(locks.state(), Patience(patience)).expect("a valid state");
            for (owner, _) in locks.pending() {
                let blockers = locks.blockers(&owner).expect("it waits");
                prop_assert!(!blockers.is_empty(), "{} waits for nobody", owner);
                prop_assert_eq!(again.blockers(&owner), Some(blockers));
            }
        }
        // Whoever does not wait ends. In the end nobody is left.
        for _ in 0..10 {
            let idle: Vec<Owner> = locks.owners().keys().copied().filter(|o| !locks.is_waiting(o)).collect();
            for owner in idle {
                locks.release_all(&owner);
            }
        }
        prop_assert_eq!(locks.pending().count(), 0);
        prop_assert!(locks.owners().is_empty());
        Ok(())
    };
    runner().run(&(calls(), 0..4u32), property).unwrap_or_else(|fault| panic!("{fault}"));
}
