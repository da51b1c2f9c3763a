//! Switches as scenarios: the records, and their consequences.

use cob_types::BlobHash;
use cob_types::generation::{ManifestHost, Security};

use super::*;

const NOW: Time = Time(100);

fn number(n: u64) -> GenerationNumber {
    GenerationNumber(n)
}

fn terms(on_failure: OnFailure, round: u32) -> Terms {
    Terms { policy: SwitchPolicy { on_failure, guard_ms: None }, round, alone: false }
}

fn begun(from: u64, to: u64, left: Option<u64>, terms: Terms) -> SwitchRecord {
    SwitchRecord::Begun { from: number(from), to: number(to), left: left.map(number), terms, peers: BTreeSet::new() }
}

fn withdrawn(round: u32, ordered: bool) -> SwitchRecord {
    let withdrawal =
        Withdrawal { to: number(7), round, ordered, why: "n1/x gave up".to_owned(), cancelled: false, heard: false };
    SwitchRecord::Withdrawn(number(8), withdrawal)
}

fn after(records: &[SwitchRecord]) -> Switching {
    let mut switching = Switching::default();
    records.iter().for_each(|record| switching.apply(record, NOW));
    switching
}

fn seen(active: u64, going: Option<u64>, converged: bool) -> Seen {
    Seen { active: number(active), going: going.map(number), converged }
}

const ROLLBACK: OnFailure = OnFailure::Rollback;
const HOLD: OnFailure = OnFailure::Hold;
const BACK: Act = Act::GoBack { left: GenerationNumber(8), to: GenerationNumber(7) };

#[test]
fn a_switch_settles_at_convergence_and_ignores_later_failures() {
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 0))]);
    assert_eq!(switch.next(seen(7, Some(8), false)), None);
    assert_eq!(switch.next(seen(8, None, false)), None);
    assert_eq!(switch.on_failure(NOW), Failing::Withdraw);
    assert_eq!(switch.on_failure(Time(99)), Failing::Hold, "it had failed before");
    assert_eq!(switch.next(seen(8, None, true)), Some(Act::Settle));
    switch.apply(&SwitchRecord::Settled, NOW);
    assert_eq!(switch.on_failure(NOW), Failing::Hold);
    assert_eq!(switch.next(seen(8, None, true)), None);
    assert!(switch.follows(number(8), 0, false), "others may still fail");
}

#[test]
fn a_request_of_a_switching_host_reopens_a_settled_switch() {
    let under_way = |to, left: Option<u64>, round| UnderWay { to: number(to), left: left.map(number), round };
    let this = under_way(8, None, 0);
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 0))]);
    assert_eq!((switch.under_way(), switch.has_settled_in(this)), (Some(this), false));
    switch.apply(&SwitchRecord::Settled, NOW);
    assert_eq!((switch.under_way(), switch.has_settled_in(this)), (None, true));
    for other in [under_way(9, None, 0), under_way(8, None, 1), under_way(8, Some(9), 0)] {
        assert!(!switch.has_settled_in(other), "{other:?}");
    }
    switch.apply(&SwitchRecord::Reopened { by: HostName::new("n2").expect("a name") }, NOW);
    assert_eq!((switch.under_way(), switch.on_failure(NOW)), (Some(this), Failing::Withdraw));
    assert_eq!(switch.next(seen(8, None, true)), Some(Act::Settle), "once more");
    // After its rollback the host sends no requests in the switch, and requests in it do not reopen it.
    switch.apply(&withdrawn(0, false), NOW);
    assert_eq!(switch.under_way(), None);
    switch.apply(&SwitchRecord::Settled, NOW);
    assert!(!switch.has_settled_in(this));
    // A late failure in a rollback stops it, like an early failure.
    switch.apply(&begun(8, 7, Some(8), terms(ROLLBACK, 0)), NOW);
    switch.apply(&SwitchRecord::Settled, NOW);
    assert!(switch.has_settled_in(under_way(7, Some(8), 0)));
    switch.apply(&SwitchRecord::Reopened { by: HostName::new("n2").expect("a name") }, NOW);
    assert_eq!(switch.on_failure(NOW), Failing::Stop);
    // It stays stopped until an operator acts.
    switch.apply(&SwitchRecord::Stopped { why: "w".to_owned() }, NOW);
    assert!(!switch.has_settled_in(under_way(7, Some(8), 0)));
}

#[test]
fn a_host_knows_the_generation_it_rolls_back_from() {
    let leaves = |switch: &Switching, round| switch.is_rolling_back_from(number(8), round);
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 1))]);
    assert!(!leaves(&switch, 1));
    // From the rollback decision on, also before the rollback starts.
    switch.apply(&withdrawn(1, false), NOW);
    assert!(leaves(&switch, 0) && leaves(&switch, 1) && !leaves(&switch, 2));
    switch.apply(&begun(8, 7, Some(8), terms(ROLLBACK, 1)), NOW);
    assert!(leaves(&switch, 1) && !leaves(&switch, 2));
    switch.apply(&SwitchRecord::Settled, NOW);
    assert!(!leaves(&switch, 1), "it is there");
    switch.apply(&begun(7, 8, None, terms(ROLLBACK, 2)), NOW);
    assert!(!leaves(&switch, 2), "it goes there again");
}

#[test]
fn a_withdrawal_rolls_back_once_and_a_failed_rollback_stops() {
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 0)), withdrawn(0, false)]);
    // Also after a crash between the two.
    assert_eq!(switch.next(seen(8, None, false)), Some(BACK));
    assert_eq!(switch.next(seen(7, Some(8), false)), Some(BACK));
    assert_eq!(switch.on_failure(NOW), Failing::Hold, "it goes back already");
    assert!(!switch.follows(number(8), 0, false), "once");
    switch.apply(&begun(8, 7, Some(8), terms(ROLLBACK, 0)), NOW);
    assert_eq!(switch.next(seen(8, Some(7), false)), None);
    assert_eq!(switch.on_failure(NOW), Failing::Stop);
    switch.apply(&SwitchRecord::Stopped { why: "n1/y gave up".to_owned() }, NOW);
    assert_eq!(switch.next(seen(7, None, false)), None);
    assert_eq!((switch.on_failure(NOW), switch.follows(number(8), 0, true)), (Failing::Hold, false));
    // An operator has repaired it.
    assert_eq!(switch.next(seen(7, None, true)), Some(Act::Settle));
    assert_eq!(switch.returned().map(|(left, w)| (left, w.why.as_str())), Some((number(8), "n1/x gave up")));
}

#[test]
fn a_return_that_can_not_be_begun_is_marked_until_it_is_ordered_again() {
    let mut switch = after(&[begun(7, 8, None, terms(HOLD, 0)), SwitchRecord::Settled, withdrawn(0, true)]);
    assert_eq!(switch.next(seen(8, None, true)), Some(BACK));
    switch.apply(&SwitchRecord::Stopped { why: "7 is not at hand".to_owned() }, NOW);
    assert_eq!(switch.next(seen(8, None, true)), None, "it serves, and is to be left");
    assert!(!switch.follows(number(8), 0, true), "others say it again and again");
    assert_eq!(switch.current.as_ref().map(|c| (c.stage, c.why.as_str())), Some((Stage::Stopped, "7 is not at hand")));
    switch.apply(&withdrawn(0, true), NOW);
    assert_eq!(switch.next(seen(8, None, true)), Some(BACK));
    // After a mere failure without a rollback target, another host's rollback leads back.
    let stopped = SwitchRecord::Stopped { why: "n1/x gave up; no way back".to_owned() };
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 0)), stopped]);
    assert!(switch.follows(number(8), 0, false));
    switch.apply(&withdrawn(0, false), NOW);
    assert_eq!(switch.next(seen(8, None, false)), Some(BACK));
}

#[test]
fn with_hold_only_an_operators_word_leads_back() {
    let mut switch = after(&[begun(7, 8, None, terms(HOLD, 0))]);
    assert_eq!(switch.on_failure(NOW), Failing::Hold);
    assert!(!switch.follows(number(8), 0, false) && switch.follows(number(8), 0, true));
    assert!(!switch.follows(number(9), 0, true), "it is not on its way there");
    switch.apply(&withdrawn(0, true), NOW);
    assert_eq!(switch.next(seen(8, None, true)), Some(BACK));
}

#[test]
fn an_order_waits_until_a_switch_that_leads_as_far_a_rollback_or_a_cancel() {
    let waiting = |generation| {
        let (generation, by) = (number(generation), Some("alice".to_owned()));
        let waiting = Waiting {
            generation,
            manifest: None,
            cause: Cause::Ordered,
            on_failure: None,
            guard_ms: None,
            alone: false,
            only: Vec::new(),
            seen: None,
            by,
            since: NOW,
        };
        SwitchRecord::Waiting(Some(Box::new(waiting)))
    };
    let waits_for = |switch: &Switching| switch.waiting.as_ref().map(|waiting| waiting.generation.0);
    let mut switch = after(&[begun(5, 6, None, terms(HOLD, 0)), waiting(8)]);
    assert_eq!(waits_for(&switch), Some(8));
    switch.apply(&begun(6, 7, None, terms(HOLD, 0)), NOW);
    assert_eq!(waits_for(&switch), Some(8), "a step that other hosts take leads less far");
    switch.apply(&waiting(9), NOW);
    assert_eq!((waits_for(&switch), switch.dropped), (Some(9), None), "a later order replaces it");
    switch.apply(&begun(7, 9, None, terms(HOLD, 0)), NOW);
    assert_eq!(waits_for(&switch), None);
    switch.apply(&waiting(10), NOW);
    switch.apply(&begun(9, 7, Some(9), terms(HOLD, 0)), NOW);
    assert_eq!(waits_for(&switch), None, "a rollback");
    switch.apply(&waiting(10), NOW);
    switch.apply(&SwitchRecord::Waiting(None), NOW);
    assert_eq!((waits_for(&switch), switch.dropped), (None, Some(number(10))));
}

#[test]
fn a_cancelled_switch_is_not_announced_until_its_resume() {
    let mut switch = after(&[begun(5, 8, None, terms(ROLLBACK, 0))]);
    assert!(switch.is_told() && switch.leads_over(number(8)) && switch.leads_over(number(6)));
    assert!(!switch.leads_over(number(9)) && !switch.leads_over(number(4)));
    switch.apply(&SwitchRecord::Quiet(true), NOW);
    switch.apply(&SwitchRecord::Settled, NOW);
    assert!(!switch.is_told() && switch.leads_over(number(8)) && !switch.leads_over(number(6)));
    assert!(switch.follows(number(8), 0, false), "others may still fail");
    // A later attempt announced by another host does not change this.
    switch.apply(&SwitchRecord::Reterm(terms(ROLLBACK, 1)), NOW);
    assert!(!switch.is_told());
    switch.apply(&SwitchRecord::Quiet(false), NOW);
    assert!(switch.is_told());
    switch.apply(&SwitchRecord::Reterm(Terms { alone: true, ..terms(ROLLBACK, 1) }), NOW);
    assert!(!switch.is_told(), "a canary");
    // The next switch starts anew.
    switch.apply(&SwitchRecord::Quiet(true), NOW);
    switch.apply(&begun(8, 9, None, terms(HOLD, 0)), NOW);
    assert!(switch.is_told());
    switch.apply(
        &SwitchRecord::Withdrawn(
            number(9),
            Withdrawal { to: number(8), round: 0, ordered: true, why: String::new(), cancelled: false, heard: false },
        ),
        NOW,
    );
    assert!(!switch.is_told());
    switch.apply(&begun(9, 8, Some(9), terms(HOLD, 0)), NOW);
    assert!(!switch.is_told() && !switch.leads_over(number(8)), "a return is told by the withdrawal");
}

#[test]
fn a_withdrawn_generation_is_gone_to_again_in_a_later_round_alone() {
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 0)), withdrawn(0, false)]);
    switch.apply(&begun(8, 7, Some(8), terms(ROLLBACK, 0)), NOW);
    switch.apply(&SwitchRecord::Settled, NOW);
    assert!(switch.is_withdrawn(number(8), 0) && !switch.is_withdrawn(number(8), 1));
    assert_eq!((switch.round_of_order(number(8)), switch.round_of_order(number(9))), (1, 0));
    switch.apply(&begun(7, 8, None, terms(ROLLBACK, 1)), NOW);
    assert_eq!(switch.next(seen(7, Some(8), false)), None);
    assert!(!switch.follows(number(8), 0, true), "a word of the round before");
    assert!(switch.follows(number(8), 1, false));
    assert_eq!(switch.round_of_order(number(8)), 1, "the same order again");
}

#[test]
fn where_an_order_has_led_back_to_is_a_place_to_go_back_to() {
    let of = |left: u64, to: u64| {
        let withdrawal =
            Withdrawal { to: number(to), round: 0, ordered: true, why: String::new(), cancelled: false, heard: false };
        SwitchRecord::Withdrawn(number(left), withdrawal)
    };
    let go = |from, to| begun(from, to, None, terms(HOLD, 0));
    let back = |from, to| begun(from, to, Some(from), terms(HOLD, 0));
    let mut switch = after(&[go(7, 8), of(8, 7), back(8, 7), go(7, 9)]);
    assert_eq!([7, 8, 9].map(|g| switch.is_left(number(g))), [false, true, false]);
    [of(9, 8), back(9, 8), SwitchRecord::Settled, go(8, 9)].iter().for_each(|record| switch.apply(record, NOW));
    assert_eq!([7, 8, 9].map(|g| switch.is_left(number(g))), [false; 3]);
    assert_eq!(switch.round_of_order(number(8)), 1, "other hosts remember that it was withdrawn");
    [of(9, 8), back(9, 8), of(8, 7), back(8, 7)].iter().for_each(|record| switch.apply(record, NOW));
    assert_eq!([7, 8, 9].map(|g| switch.is_left(number(g))), [false, true, true]);
}

#[test]
fn a_withdrawal_of_an_older_order_is_recognized() {
    let again = after(&[begun(7, 8, None, terms(HOLD, 1))]);
    assert!(again.was_ordered_since(number(8), 0), "the host that says it was away when it was ordered again");
    assert!(!again.was_ordered_since(number(8), 1) && !again.was_ordered_since(number(7), 0));
    let left = after(&[begun(7, 8, None, terms(HOLD, 1)), withdrawn(1, true)]);
    assert!(!left.was_ordered_since(number(8), 0), "it is not wanted here either");
    let back = after(&[begun(8, 7, Some(8), terms(HOLD, 1))]);
    assert!(!back.was_ordered_since(number(7), 0));
}

#[test]
fn a_host_that_was_away_goes_on_until_it_is_there() {
    let switch = after(&[begun(5, 8, None, terms(ROLLBACK, 0))]);
    assert_eq!(switch.next(seen(5, Some(6), false)), None);
    assert_eq!(switch.next(seen(6, None, true)), Some(Act::GoOn(number(8))));
    assert_eq!(switch.next(seen(5, None, true)), Some(Act::GoOn(number(8))));
    assert_eq!(switch.next(seen(4, None, true)), None, "it is elsewhere");
    assert_eq!(switch.next(seen(8, None, true)), Some(Act::Settle));
    assert_eq!([4, 5, 6, 8].map(|step| switch.beyond(number(step)).map(|g| g.0)), [None, Some(8), Some(8), None]);
}

#[test]
fn under_a_guard_it_settles_when_that_is_satisfied() {
    let policy = SwitchPolicy { on_failure: HOLD, guard_ms: Some(5000) };
    let mut switch = after(&[begun(7, 8, None, Terms { policy, round: 0, alone: false })]);
    let guard = Guard::new(5000);
    assert_eq!(switch.next(seen(8, None, true)), Some(Act::Guard(guard)));
    switch.apply(&SwitchRecord::Guarded(guard), NOW);
    assert_eq!(switch.next(seen(8, None, true)), None);
    switch.apply(&SwitchRecord::Confirmed, NOW);
    assert_eq!(switch.next(seen(8, None, true)), Some(Act::Settle));
    // A rollback has no guard.
    switch.apply(&withdrawn(0, false), NOW);
    switch.apply(&begun(8, 7, Some(8), Terms { policy, round: 0, alone: false }), NOW);
    assert_eq!(switch.next(seen(7, None, true)), Some(Act::Settle));
}

#[test]
fn irreversible_transitions_are_known_after_the_rollback() {
    let name = |text: &str| StateName::new(text).expect("a state");
    let cob = CobId::new("n1/db").expect("an id");
    let made = SwitchRecord::Made { cob, from: name("outdated"), to: name("up") };
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 0)), made.clone(), made, withdrawn(0, false)]);
    switch.apply(&begun(8, 7, Some(8), terms(ROLLBACK, 0)), NOW);
    assert_eq!(switch.current.as_ref().map(|c| c.made.len()), Some(1));
    switch.apply(&begun(7, 9, None, terms(ROLLBACK, 0)), NOW);
    assert_eq!(switch.current.map(|c| c.made.len()), Some(0));
}

/// This rollback may do more for it than any other rollback.
#[test]
fn that_a_guard_has_fired_is_known_on_the_return_and_over_restarts() {
    let fired = Guard::new(8000).fired();
    assert!(fired.has_fired() && !Guard::new(8000).has_fired());
    assert!(fired.restarted().restarted().has_fired(), "a restart gives it no more time");
    let policy = SwitchPolicy { on_failure: HOLD, guard_ms: Some(8000) };
    let guarded = Terms { policy, ..terms(HOLD, 0) };
    let mut switch = after(&[begun(7, 8, None, guarded), SwitchRecord::Guarded(fired), withdrawn(0, false)]);
    assert!(switch.current.as_ref().is_some_and(|c| !c.confirmed && c.guard.is_some_and(Guard::has_fired)));
    let peers: BTreeSet<HostName> = [HostName::new("n2").expect("a host")].into();
    let (from, to, left) = (number(8), number(7), Some(number(8)));
    switch.apply(&SwitchRecord::Begun { from, to, left, terms: guarded, peers: peers.clone() }, NOW);
    assert_eq!(switch.current.map(|c| (c.peers, c.guard)), Some((peers, None)));
}

fn host(name: &str) -> HostName {
    HostName::new(name).expect("a host")
}

fn manifest(generation: u64, hosts: &[&str]) -> Manifest {
    let mut manifest = Manifest::empty(number(generation), number(generation - 1), Security::LoopbackOnly);
    let entry = || ManifestHost { address: None, keys: Vec::new(), bundle: BlobHash([0; 32]), cobs: 0 };
    manifest.hosts = hosts.iter().map(|name| (host(name), entry())).collect();
    manifest
}

/// The hosts that `me` removes at the start of a switch, with their generations.
fn parts(switch: &mut Switching, me: &str, from: &[&Manifest], to: &Manifest) -> Vec<(String, u64, bool)> {
    if let Some(record) = switch.parts_with(&host(me), from, to, |_, of| !of.through) {
        switch.apply(&record, NOW);
    }
    switch.parted.iter().map(|(host, of)| (host.to_string(), of.generation.0, of.through)).collect()
}

#[test]
fn a_removed_host_takes_part_until_it_is_through() {
    let (seven, eight) = (manifest(7, &["n1", "n2", "n3"]), manifest(8, &["n1", "n4"]));
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 0))]);
    let of = |name: &str, generation| (name.to_owned(), generation, false);
    assert_eq!(parts(&mut switch, "n1", &[&seven], &eight), [of("n2", 7), of("n3", 7)]);
    assert_eq!(switch.parts_with(&host("n1"), &[&seven], &eight, |_, _| true), None, "known already");
    assert!(switch.takes_part(&host("n2")) && !switch.takes_part(&host("n4")));
    switch.apply(&SwitchRecord::Through([host("n2"), host("n4")].into()), NOW);
    assert!(!switch.takes_part(&host("n2")) && switch.takes_part(&host("n3")));
    assert_eq!(switch.parted.get(&host("n2")), Some(&RemovedHost { generation: number(7), through: true }));
    assert_eq!(switch.parted.get(&host("n4")), None);
    // The next switch does not involve the earlier removed hosts; the host that was away is still awaited.
    let nine = manifest(9, &["n1"]);
    switch.apply(&begun(8, 9, None, terms(ROLLBACK, 0)), NOW);
    assert_eq!(parts(&mut switch, "n1", &[&eight], &nine), [of("n3", 7), of("n4", 8)]);
    assert!(!switch.takes_part(&host("n3")) && switch.takes_part(&host("n4")));
    // A host that is back in the model is not removed any more.
    assert_eq!(parts(&mut switch, "n1", &[&nine], &manifest(10, &["n1", "n3"])), [of("n4", 8)]);
}

#[test]
fn a_rollback_parts_with_hosts_that_the_switch_added() {
    let (seven, eight) = (manifest(7, &["n1", "n3"]), manifest(8, &["n1", "n4"]));
    let of = |name: &str, generation| (name.to_owned(), generation, false);
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 0))]);
    assert_eq!(parts(&mut switch, "n1", &[&seven], &eight), [of("n3", 7)]);
    switch.apply(&begun(7, 7, Some(8), terms(ROLLBACK, 0)), NOW);
    assert_eq!(parts(&mut switch, "n1", &[&seven, &eight], &seven), [of("n4", 8)]);
    assert!(switch.takes_part(&host("n4")));
}

#[test]
fn a_host_removed_from_the_model_parts_with_all_hosts() {
    let (seven, eight, nine) = (manifest(7, &["n1", "n3"]), manifest(8, &["n1", "n4"]), manifest(9, &["n1", "n3"]));
    let of = |name: &str, generation| (name.to_owned(), generation, false);
    let mut switch = after(&[begun(7, 8, None, terms(ROLLBACK, 0))]);
    assert_eq!(parts(&mut switch, "n3", &[&seven], &eight), [of("n1", 7), of("n3", 7)]);
    // A generation without this host does not name its peers.
    assert_eq!(parts(&mut switch, "n3", &[&eight], &manifest(9, &["n1", "n5"])), [of("n1", 7), of("n3", 7)]);
    assert_eq!(parts(&mut switch, "n3", &[&eight], &nine), []);
}

#[test]
fn a_rollback_prefers_the_origin_and_avoids_withdrawn_generations() {
    let number = GenerationNumber;
    let mut manifest = Manifest::empty(number(8), number(7), Security::LoopbackOnly);
    let way = |generation| RollbackTarget { generation: number(generation), manifest: BlobHash([0; 32]) };
    manifest.back = vec![way(7), way(6), way(5), way(9)];
    let back = |from: Option<u64>, withdrawn: &[u64]| {
        rollback_target(&manifest, from.map(number), |way| withdrawn.contains(&way.generation.0)).map(|g| g.0)
    };
    assert_eq!(back(Some(7), &[]), Some(7));
    assert_eq!(back(Some(6), &[]), Some(6));
    assert_eq!(back(Some(6), &[7]), Some(6));
    // Without a rollback target to the origin, or with an unknown origin: the newest target.
    assert_eq!(back(Some(4), &[7]), Some(6));
    assert_eq!(back(None, &[]), Some(7));
    assert_eq!(back(Some(6), &[6, 7]), Some(5));
    assert_eq!(back(Some(6), &[5, 6, 7]), None);
    // The empty generation is a target only for a host that started there, if no other target is left.
    manifest.back.push(way(0));
    let back = |from: Option<u64>, withdrawn: &[u64]| {
        rollback_target(&manifest, from.map(number), |way| withdrawn.contains(&way.generation.0)).map(|g| g.0)
    };
    assert_eq!(back(Some(0), &[]), Some(7));
    assert_eq!(back(Some(0), &[5, 6, 7]), Some(0));
    assert_eq!(back(Some(4), &[5, 6, 7]), None);
    assert_eq!(back(None, &[5, 6, 7]), None);
}
