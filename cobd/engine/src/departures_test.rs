//! Departures, their announcement, and the activation of a host: a single engine; the test plays the other hosts.

use std::sync::Arc;

use cob_types::{CobId, GenerationNumber, HostName, SwitchOrder};

use crate::event::{Event, Order};
use crate::testing::{Bench, bundle, free, switch};
use crate::time::Span;

const X: &str = "h/x: 0 1, is 1, prefers 1";
const Y: &str = "h/y: 0 1, is 1, prefers 1";
const Z: &str = "h/z: 0 1, is 1, prefers 1";

fn id(text: &str) -> CobId {
    CobId::new(text).expect("a name")
}

/// `y after a/a`, `h waits a/a`: an order from generation 1 to 2.
fn order(words: &[&str]) -> Arc<SwitchOrder> {
    let mut order = SwitchOrder::free(GenerationNumber(1), GenerationNumber(2));
    for word in words {
        match word.split(' ').collect::<Vec<_>>().as_slice() {
            [later, "after", before] => _ = order.after.entry(id(later)).or_default().insert(id(before)),
            [host, "waits", cob] => {
                let host = HostName::new(host).expect("a host");
                order.waits.entry(host).or_default().insert(id(cob));
            }
            ["again", cob] => _ = order.taken_back.insert(id(cob)),
            _ => panic!("{word}"),
        }
    }
    Arc::new(order)
}

fn go(cobs: &[&str], order: Arc<SwitchOrder>) -> Event {
    switch(bundle(cobs), order, false)
}

fn back(cobs: &[&str]) -> Event {
    switch(bundle(cobs), free(1), true)
}

fn stands(bench: &Bench) -> (u64, Option<u64>) {
    (bench.engine.generation().0, bench.engine.pending_generation().map(|g| g.0))
}

/// The departures that the host waits for, and how often it has asked.
fn waits(bench: &Bench) -> Vec<String> {
    bench.engine.switch_waits().iter().map(|w| format!("{} {}", w.cob, w.asked)).collect()
}

#[test]
fn a_host_activates_when_all_awaited_departures_are_reported() {
    let mut b = Bench::new(&[X]);
    let told = b.event(go(&[X], order(&["h waits a/a", "h waits a/b"])));
    assert_eq!(told, ["write: SwitchStarted(GenerationNumber(2))", "a: ask-final 1 -> 2 turn 0: a/a a/b"]);
    assert_eq!((stands(&b), waits(&b)), ((1, Some(2)), vec!["a/a 1".to_owned(), "a/b 1".to_owned()]));
    let told = b.hears("final 1 -> 2 turn 0: a/a");
    assert_eq!(told, ["write: told that a/a is final"]);
    assert_eq!(b.hears("final 1 -> 2 turn 0: a/a"), [""; 0], "it is doubled");
    let told = b.hears("final 1 -> 2 turn 0: a/b");
    assert_eq!(told, ["write: told that a/b is final", "write: Activated(GenerationNumber(2))"]);
    assert_eq!((stands(&b), waits(&b)), ((2, None), Vec::new()));
}

#[test]
fn a_question_is_repeated_at_growing_intervals_and_when_the_link_is_new() {
    let mut b = Bench::new(&[X]);
    b.event(go(&[X], order(&["h waits a/a"])));
    let ask = "a: ask-final 1 -> 2 turn 0: a/a";
    let asked = |told: Vec<String>| told.iter().filter(|t| *t == ask).count();
    let mut times = Vec::new();
    for second in 1..=200 {
        if asked(b.after(Span::secs(1))) > 0 {
            times.push(second);
        }
    }
    assert_eq!(times, [1, 3, 7, 15, 31, 63, 123, 183]);
    assert_eq!(asked(b.event(Event::LinkUp(HostName::new("a").expect("a host")))), 1);
    assert_eq!(asked(b.after(Span::secs(1))), 1);
}

#[test]
fn departures_of_another_switch_or_foreign_objects_are_ignored() {
    let mut b = Bench::new(&[X]);
    b.event(go(&[X], order(&["h waits a/a"])));
    b.meet("c");
    for words in ["final 1 -> 3 turn 0: a/a", "final 0 -> 2 turn 0: a/a", "final 1 -> 2 turn 0: a/c"] {
        assert_eq!(b.hears(words), [""; 0], "{words}");
    }
    assert_eq!(b.hears_together("c", &["final 1 -> 2 turn 0: a/a"]), [""; 0]);
    assert_eq!(stands(&b), (1, Some(2)));
}

#[test]
fn an_object_departs_after_the_objects_before_it_in_the_order() {
    let mut b = Bench::new(&[X, Y, Z]);
    let told = b.event(go(&[X], order(&["h/y after h/z", "h/z after a/a"])));
    assert!(told.contains(&"a: ask-final 1 -> 2 turn 0: a/a".to_owned()), "{told:?}");
    assert!(!told.iter().any(|t| t.starts_with("act")), "they stay until others have left: {told:?}");
    let status = b.engine.status_of(&id("h/y"), b.now).expect("it is there");
    assert_eq!(format!("{:?}", status.waits_for).matches("After").count(), 1, "{status:?}");
    assert_eq!(stands(&b), (1, Some(2)));
    let told = b.hears("final 1 -> 2 turn 0: a/a");
    assert_eq!(told.last().map(String::as_str), Some("act h/z 1 -> 0, attempt 1"), "{told:?}");
    let told = b.ended("h/z", true);
    assert_eq!(told.last().map(String::as_str), Some("act h/y 1 -> 0, attempt 1"), "{told:?}");
    let told = b.ended("h/y", true);
    let gone: Vec<_> = told.iter().filter(|t| t.contains("Removed")).collect();
    assert_eq!((gone.len(), stands(&b)), (2, (2, None)), "{told:?}");
}

#[test]
fn a_departed_object_is_reported_and_grants_only_its_exit_state() {
    let mut b = Bench::new(&[X, Y, Z]);
    b.event(go(&[X], order(&["h/z after a/a"])));
    assert_eq!(b.hears_together("a", &["ask-final 1 -> 2 turn 0: h/y h/nobody"]), ["a: final 1 -> 2 turn 0: h/nobody"]);
    let told = b.ended("h/y", true);
    assert_eq!(told.last().map(String::as_str), Some("a: final 1 -> 2 turn 0: h/y"), "{told:?}");
    assert!(told.contains(&"write: h/y is final".to_owned()), "{told:?}");
    // A change object that departs elsewhere gets only this state from it.
    let told = b.hears("request a/c of h/y@1 #1.7 rank 0 phase 0");
    assert!(!told.iter().any(|t| t.starts_with("act")), "{told:?}");
    let told = b.hears("request a/d of h/y@0 #1.8 rank 0 phase 0");
    assert!(told.contains(&"a: grant h/y@0 to a/d #1.8 rev 0".to_owned()), "{told:?}");
}

#[test]
fn departures_survive_a_restart_of_the_daemon() {
    let mut b = Bench::new(&[X, Y, Z]);
    b.event(go(&[X], order(&["h/z after a/a", "h waits a/b"])));
    b.ended("h/y", true);
    b.hears("final 1 -> 2 turn 0: a/b");
    let told = b.returns();
    assert!(told.contains(&"a: ask-final 1 -> 2 turn 0: a/a".to_owned()), "{told:?}");
    b.meet("a");
    let told = b.hears("request a/c of h/y@1 #1.7 rank 0 phase 0");
    assert!(!told.iter().any(|t| t.starts_with("act")), "{told:?}");
    assert_eq!(b.hears_together("a", &["ask-final 1 -> 2 turn 0: h/y"]), ["a: final 1 -> 2 turn 0: h/y"]);
    b.hears("final 1 -> 2 turn 0: a/a");
    b.ended("h/z", true);
    assert_eq!(stands(&b), (2, None));
}

#[test]
fn a_question_that_comes_before_go_is_answered_afterwards() {
    let mut b = Bench::new(&[X, Y]);
    assert_eq!(b.hears_together("a", &["ask-final 1 -> 2 turn 0: h/y"]), [""; 0]);
    let told = b.event(go(&[X], order(&["h waits a/a"])));
    assert!(!told.iter().any(|t| t.contains("a: final")), "{told:?}");
    let told = b.ended("h/y", true);
    assert!(told.contains(&"a: final 1 -> 2 turn 0: h/y".to_owned()), "{told:?}");
}

#[test]
fn a_host_in_the_next_generation_reports_all_as_departed() {
    let mut b = Bench::new(&[X, Y]);
    b.event(go(&[X], free(2)));
    b.ended("h/y", true);
    assert_eq!(stands(&b), (2, None));
    assert_eq!(b.hears_together("a", &["ask-final 1 -> 2 turn 0: h/y"]), ["a: final 1 -> 2 turn 0: h/y"]);
    // In the other direction it has not started: it has the newer generation's change object.
    assert_eq!(b.hears_together("a", &["ask-final 2 -> 1 turn 0: h/x"]), [""; 0]);
}

#[test]
fn departures_of_an_abandoned_switch_do_not_count_in_the_next() {
    let mut b = Bench::new(&[X]);
    let again = || go(&[X], order(&["h waits a/a", "h waits a/b"]));
    b.event(again());
    b.hears("final 1 -> 2 turn 0: a/a");
    let told = b.event(back(&[X]));
    assert_eq!(
        told,
        ["write: SwitchStarted(GenerationNumber(1))", "write: turn 1", "write: Activated(GenerationNumber(1))"]
    );
    let told = b.event(again());
    assert_eq!(
        told,
        ["write: SwitchStarted(GenerationNumber(2))", "write: turn 2", "a: ask-final 1 -> 2 turn 2: a/a a/b"]
    );
    assert_eq!(b.hears("final 1 -> 2 turn 0: a/a a/b"), [""; 0], "said in the first try");
    assert_eq!(stands(&b), (1, Some(2)));
    // A host that knows of more abandoned switches: earlier facts are invalid.
    b.hears("final 1 -> 2 turn 2: a/a");
    assert_eq!(waits(&b), ["a/b 1"]);
    let told = b.hears_together("a", &["final 1 -> 2 turn 5:"]);
    assert_eq!(told, ["write: turn 5", "a: ask-final 1 -> 2 turn 5: a/a a/b"]);
    b.hears("final 1 -> 2 turn 5: a/a a/b");
    assert_eq!(stands(&b), (2, None));
}

#[test]
fn an_asker_with_an_old_turn_is_told_the_new_turn() {
    let mut b = Bench::new(&[X, Y]);
    b.event(go(&[X], order(&["h waits a/a"])));
    b.event(back(&[X, Y]));
    b.event(go(&[X], order(&["h waits a/a"])));
    b.ended("h/y", true);
    b.found("h/y", "0");
    assert_eq!(b.hears_together("a", &["ask-final 1 -> 2 turn 0: h/y"]), ["a: final 1 -> 2 turn 2:"]);
    let told = b.hears_together("a", &["ask-final 1 -> 2 turn 2: h/y"]);
    assert_eq!(told, ["a: final 1 -> 2 turn 2: h/y"]);
}

#[test]
fn an_operator_can_mark_a_stuck_object_as_departed() {
    let stubborn = "h/y: 0 1, is 1, prefers 1, transition 1 0 <- a/a@1";
    let mut b = Bench::new(&[X, stubborn]);
    b.event(go(&[X], order(&["h waits a/b"])));
    let declare = |cob: &str| Event::Order(Order::MarkDeparted(id(cob)));
    assert_eq!(b.event(declare("h/x")), [""; 0], "it does not leave");
    assert_eq!(b.event(declare("a/c")), [""; 0], "nobody waits for it");
    let told = b.event(declare("a/b"));
    assert_eq!(told, [format!("write: {:?}", crate::record::Body::Ordered(declared("a/b")))]);
    b.returns();
    assert_eq!(waits(&b), ["h/y 0"]);
    let told = b.event(declare("h/y"));
    assert!(told.iter().any(|t| t.contains("Removed")) && stands(&b) == (2, None), "{told:?}");
}

fn declared(cob: &str) -> crate::record::OrderRecord {
    crate::record::OrderRecord::MarkDeparted(id(cob))
}

#[test]
fn an_object_taken_back_departs_and_starts_again_with_its_grants() {
    let mut b = Bench::new(&[X, Y]);
    let told = b.event(go(&[X, Y], order(&["again h/y"])));
    assert!(told.contains(&"act h/y 1 -> 0, attempt 1".to_owned()), "{told:?}");
    // A change object that departs beside it relies on its pre-remove state.
    b.hears("request a/a of h/y@0 #1.7 rank 0 phase 0");
    let told = b.ended("h/y", true);
    assert!(told.contains(&"write: h/y@0 granted to a/a #1.7".to_owned()), "{told:?}");
    assert!(told.contains(&"check h/y".to_owned()) && stands(&b) == (2, None), "{told:?}");
    let told = b.found("h/y", "0");
    assert_eq!(told, ["write: h/y found 0"], "it serves who counts on it");
    b.returns();
    let told = b.meet("a");
    assert!(!told.iter().any(|t| t.starts_with("act")), "{told:?}");
    let told = b.hears("release a/a of h/y #1.7");
    assert!(told.contains(&"act h/y 0 -> 1, attempt 1".to_owned()), "{told:?}");
}

#[test]
fn the_holder_of_a_grant_is_queried_when_the_object_comes_back() {
    let mut b = Bench::new(&[X, Y]);
    b.event(go(&[X], free(2)));
    b.ended("h/y", true);
    b.hears("request a/a of h/y@0 #1.7");
    b.event(back(&[X, Y]));
    assert_eq!(b.found("h/y", "0"), ["write: h/y found 0"]);
    let told = b.after(Span::secs(1));
    assert!(told.contains(&"a: query a/a of h/y #1.7".to_owned()), "{told:?}");
    let told = b.hears("release a/a of h/y #1.7");
    assert!(told.contains(&"act h/y 0 -> 1, attempt 1".to_owned()), "{told:?}");
}

#[test]
fn an_object_that_serves_a_request_passes_its_rank_on() {
    let through = "h/y: 0 1, is 0, prefers 0, transition 0 1 <- a/b@1";
    let mut b = Bench::new(&[X, through]);
    b.event(go(&[X, through], free(2)));
    assert_eq!(stands(&b), (2, None));
    let told = b.hears("request a/a of h/y@1 #1.7 rank 40");
    assert!(told.iter().any(|t| t.contains("of a/b@1") && t.contains("rank 40")), "{told:?}");
}
