//! Sequences of calls and their answers.

use std::collections::{BTreeMap, BTreeSet};

use crate::brute::Name;
use crate::{Blockers, Corrupt, Locks, Mode, Patience, Priority, Refused, State, Target};
use Mode::{Exclusive, Shared};
use Target::Release;

type Owner = &'static str;
const NORMAL: Priority = Priority(0);

fn locks(patience: Patience) -> Locks<Name, Owner> {
    Locks::new(patience)
}

fn wants(list: &[(u8, Mode)]) -> Vec<(Name, Target)> {
    list.iter().map(|(name, mode)| (Name(*name), (*mode).into())).collect()
}

fn release(names: &[u8]) -> Vec<(Name, Target)> {
    names.iter().map(|name| (Name(*name), Release)).collect()
}

fn owners(names: &[Owner]) -> BTreeSet<Owner> {
    names.iter().copied().collect()
}

fn holders(names: &[Owner]) -> Blockers<Owner> {
    Blockers { holders: owners(names), ..Blockers::default() }
}

#[test]
fn an_update_is_granted_whole_or_refused_with_exact_blockers() {
    let mut locks = locks(Patience::ENDLESS);
    assert_eq!(locks.update(&"a", &wants(&[(2, Shared), (6, Exclusive)])), Ok(owners(&[])));
    assert_eq!(locks.update(&"b", &wants(&[(2, Shared)])), Ok(owners(&[])));
    let refused = locks.update(&"c", &wants(&[(2, Exclusive), (6, Shared), (8, Shared)]));
    assert_eq!(refused, Err(Refused::Blocked(holders(&["a", "b"]))));
    assert_eq!(locks.held(&"c"), BTreeMap::new());
    assert_eq!(
        refused.unwrap_err().to_string(),
        "conflicting locks are held by \"a\", \"b\"",
        "the reason names the owners"
    );
}

#[test]
fn groups_imply_their_members() {
    let mut locks = locks(Patience::ENDLESS);
    locks.update(&"a", &wants(&[(2, Exclusive)])).expect("free");
    // The member blocks its group, and the group around that, in both modes; not its neighbour.
    assert_eq!(locks.update(&"b", &wants(&[(1, Shared)])), Err(Refused::Blocked(holders(&["a"]))));
    assert_eq!(locks.update(&"b", &wants(&[(0, Shared)])), Err(Refused::Blocked(holders(&["a"]))));
    assert_eq!(locks.update(&"b", &wants(&[(3, Exclusive)])), Ok(owners(&[])));
    locks.release_all(&"a");
    locks.release_all(&"b");
    // A shared group permits shared members, and no exclusive one, to others and to its owner.
    locks.update(&"a", &wants(&[(0, Shared)])).expect("free");
    locks.update(&"b", &wants(&[(3, Shared)])).expect("both are shared");
    assert_eq!(locks.update(&"c", &wants(&[(4, Exclusive)])), Err(Refused::Blocked(holders(&["a"]))));
    let refused = locks.update(&"a", &wants(&[(4, Exclusive)]));
    assert_eq!(refused, Err(Refused::GroupOrder { lock: Name(4), group: Name(0) }));
    // From nothing, both at once are granted.
    assert_eq!(locks.update(&"d", &wants(&[(5, Shared), (6, Exclusive)])), Ok(owners(&[])));
}

#[test]
fn locks_are_taken_upwards() {
    let mut locks = locks(Patience::ENDLESS);
    locks.update(&"a", &wants(&[(4, Shared)])).expect("free");
    let refused = |lock| Err(Refused::Order { lock: Name(lock), held: Name(4) });
    assert_eq!(locks.update(&"a", &wants(&[(2, Shared)])), refused(2));
    // Also if the lock is taken, and if the same call releases the greater lock.
    locks.update(&"b", &wants(&[(2, Exclusive)])).expect("free");
    assert_eq!(locks.update(&"a", &[wants(&[(2, Shared)]), release(&[4])].concat()), refused(2));
    // Below an exclusive group, members come in any order; the greatest lock can be upgraded.
    locks.release_all(&"b");
    locks.release_all(&"a");
    locks.update(&"a", &wants(&[(0, Exclusive), (4, Shared)])).expect("free");
    assert_eq!(locks.update(&"a", &wants(&[(2, Exclusive)])), Ok(owners(&[])));
    assert_eq!(locks.update(&"a", &wants(&[(4, Exclusive)])), Ok(owners(&[])));
    // What an owner has already needs no order.
    assert_eq!(locks.update(&"a", &wants(&[(2, Exclusive)])), Ok(owners(&[])));
}

#[test]
fn a_waiting_request_holds_nothing_and_is_granted_by_priority() {
    let mut locks = locks(Patience::ENDLESS);
    locks.update(&"a", &wants(&[(8, Exclusive)])).expect("free");
    let waits = |locks: &mut crate::Locks<Name, Owner>, owner, priority| {
        let outcome = locks.request(&owner, Priority(priority), &wants(&[(7, Exclusive), (8, Exclusive)]));
        assert_eq!(outcome.expect("it waits").blockers, holders(&["a"]));
    };
    waits(&mut locks, "b", 0);
    waits(&mut locks, "c", -10);
    // A repetition has no effect; another list is refused, and so is a release.
    waits(&mut locks, "b", -20);
    assert_eq!(locks.request(&"b", NORMAL, &wants(&[(7, Shared)])), Err(Refused::Pending));
    assert_eq!(locks.update(&"b", &release(&[1])), Err(Refused::Pending));
    assert_eq!(locks.update(&"d", &wants(&[(7, Exclusive)])), Ok(owners(&[])), "waiting blocks nobody");
    locks.release_all(&"d");
    assert_eq!(locks.release_all(&"a"), owners(&["c"]), "the more important request");
    assert_eq!(locks.release_all(&"c"), owners(&["b"]));
    assert_eq!(locks.release_all(&"b"), owners(&[]));
}

#[test]
fn a_granted_request_that_releases_wakes_further_ones() {
    let mut locks = locks(Patience::ENDLESS);
    locks.update(&"a", &wants(&[(8, Exclusive)])).expect("free");
    locks.update(&"b", &wants(&[(6, Exclusive)])).expect("free");
    let swap = [release(&[6]), wants(&[(8, Exclusive)])].concat();
    assert!(!locks.request(&"b", NORMAL, &swap).expect("it waits").is_granted());
    assert!(!locks.request(&"c", NORMAL, &wants(&[(6, Shared)])).expect("it waits").is_granted());
    assert_eq!(locks.update(&"a", &release(&[8])), Ok(owners(&["b", "c"])));
}

#[test]
fn a_request_is_tried_again_when_its_least_blocker_acts() {
    let mut locks = locks(Patience::ENDLESS);
    locks.update(&"x", &wants(&[(7, Exclusive), (8, Exclusive)])).expect("free");
    locks.update(&"b", &wants(&[(6, Exclusive)])).expect("free");
    let waits = |locks: &mut crate::Locks<Name, Owner>, owner, priority, list: &[_], by: &[Owner]| {
        let outcome = locks.request(&owner, Priority(priority), list).expect("it waits");
        assert_eq!(outcome.blockers, holders(by));
    };
    waits(&mut locks, "a", -10, &wants(&[(6, Exclusive)]), &["b"]);
    waits(&mut locks, "b", 0, &[release(&[6]), wants(&[(7, Exclusive)])].concat(), &["x"]);
    waits(&mut locks, "c", 10, &wants(&[(6, Exclusive), (8, Exclusive)]), &["b", "x"]);
    // `c` could have both locks as soon as `b` is granted; `a`, which waits for `b` as well, is more important.
    assert_eq!(locks.release_all(&"x"), owners(&["a", "b"]));
    assert_eq!(locks.blockers(&"c"), Some(holders(&["a"])));
}

#[test]
fn free_locks_are_taken_without_waiting() {
    let mut locks = locks(Patience::ENDLESS);
    locks.update(&"a", &wants(&[(3, Exclusive)])).expect("free");
    locks.update(&"b", &wants(&[(2, Shared)])).expect("free");
    let list = [(Name(4), Exclusive), (Name(3), Shared), (Name(2), Shared), (Name(6), Shared)];
    assert_eq!(locks.take_at_least(&"b", 3, &list), BTreeSet::new(), "one is taken, one is held already");
    assert_eq!(locks.held(&"b"), BTreeMap::from([(Name(2), Shared)]));
    assert_eq!(locks.take_free(&"b", &list), BTreeSet::from([Name(4), Name(6)]));
    assert_eq!(locks.keep_only(&"b", &BTreeSet::from([Name(6)])), owners(&[]));
    assert_eq!(locks.held(&"b"), BTreeMap::from([(Name(6), Shared)]));
}

/// Two readers at a time, one after the other, without a gap.
fn readers_before_the_writer(patience: Patience, limit: usize) -> usize {
    let mut locks = locks(patience);
    locks.update(&"r0", &wants(&[(8, Shared)])).expect("free");
    assert!(!locks.request(&"writer", Priority(10), &wants(&[(8, Exclusive)])).expect("it waits").is_granted());
    let names = ["r0", "r1"];
    for at in 1..limit {
        let came = locks.request(&names[at % 2], Priority(-20), &wants(&[(8, Shared)])).expect("no refusal");
        let woken = locks.release_all(&names[(at + 1) % 2]);
        if woken.contains("writer") {
            assert!(!came.is_granted());
            assert_eq!(came.blockers.reservations, owners(&["writer"]));
            return at;
        }
    }
    limit
}

#[test]
fn readers_starve_a_writer_only_without_patience() {
    assert_eq!(readers_before_the_writer(Patience(3), 1000), 4);
    assert_eq!(readers_before_the_writer(Patience(0), 1000), 1);
    assert_eq!(readers_before_the_writer(Patience::ENDLESS, 1000), 1000);
}

#[test]
fn a_reservation_does_not_block_an_owner_for_which_it_waits() {
    let mut locks = locks(Patience(0));
    locks.update(&"a", &wants(&[(6, Shared)])).expect("free");
    // It waits for `a`, and nobody overtakes it.
    assert!(!locks.request(&"b", NORMAL, &wants(&[(6, Exclusive), (8, Exclusive)])).expect("it waits").is_granted());
    let refused = locks.update(&"c", &wants(&[(8, Shared)]));
    let reserved = Blockers { reservations: owners(&["b"]), ..Blockers::default() };
    assert_eq!(refused, Err(Refused::Blocked(reserved)));
    // The first owner gets what it needs to end; a reservation against it would stop both for ever.
    assert_eq!(locks.update(&"a", &wants(&[(8, Shared)])), Ok(owners(&[])));
    assert_eq!(locks.release_all(&"a"), owners(&["b"]));
}

#[test]
fn an_upgrade_deadlock_is_refused_with_its_circle() {
    let mut locks = locks(Patience::ENDLESS);
    for owner in ["a", "b", "c"] {
        locks.update(&owner, &wants(&[(8, Shared)])).expect("free");
    }
    assert!(!locks.request(&"a", NORMAL, &wants(&[(8, Exclusive)])).expect("it waits").is_granted());
    let before = locks.state();
    let refused = locks.request(&"b", NORMAL, &wants(&[(8, Exclusive)])).unwrap_err();
    assert_eq!(refused, Refused::Deadlock(vec!["b", "a"]));
    assert_eq!(refused.to_string(), "the request would wait for itself: \"b\" waits for \"a\" waits for \"b\"");
    assert_eq!(locks.state(), before);
    // It gives way, and the first one is served.
    locks.release_all(&"b");
    assert_eq!(locks.release_all(&"c"), owners(&["a"]));
}

#[test]
fn the_death_of_an_owner_frees_its_locks_and_its_request() {
    let mut locks = locks(Patience(0));
    locks.update(&"a", &wants(&[(6, Shared)])).expect("free");
    assert!(!locks.request(&"b", NORMAL, &wants(&[(6, Exclusive)])).expect("it waits").is_granted());
    let waits = locks.request(&"c", NORMAL, &wants(&[(6, Shared)])).expect("it waits for the reservation");
    assert_eq!(waits.blockers.reservations, owners(&["b"]));
    assert_eq!(locks.release_all(&"b"), owners(&["c"]), "the reservation ends with its owner");
    assert_eq!(locks.release_all(&"a"), owners(&[]));
    assert_eq!(locks.release_all(&"a"), owners(&[]), "a repetition has no effect");
}

#[test]
fn a_state_that_no_sequence_leads_to_is_refused() {
    let load = |held| {
        let state = State { held, pending: Vec::new() };
        crate::Locks::<Name, Owner>::load(state, Patience::ENDLESS).map(|_| ()).unwrap_err()
    };
    let shared = vec![(Name(1), Shared)];
    assert_eq!(load(vec![("a", shared.clone()), ("a", shared.clone())]), Corrupt::Twice("a"));
    let conflict = load(vec![("a", shared), ("b", vec![(Name(3), Exclusive)])]);
    assert_eq!(conflict, Corrupt::Conflict { first: "a", second: "b", lock: Name(3) });
}
