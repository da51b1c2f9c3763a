//! Drift under a grant (`invalidated`), failed actions, and waits for a check.

use cob_types::CobId;

use crate::event::{Event, Order};
use crate::testing::Bench;
use crate::time::Span;

fn id(text: &str) -> CobId {
    CobId::new(text).expect("a name")
}

#[test]
fn a_drift_from_a_granted_state_waits_for_the_release() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.7");
    assert_eq!(b.event(Event::CheckWanted(id("h/b"))), ["check h/b"]);
    assert_eq!(
        b.found("h/b", "0"),
        ["write: h/b found 0, drifted", "note: h/b breaks its grant to a/a", "a: lapsed a/a of h/b #1.7"]
    );
    // Repeated until it is answered; it prefers 1, but does not go there before.
    assert_eq!(b.after(Span::secs(2)), ["a: lapsed a/a of h/b #1.7", "a: probe of h/b to a/a #1.3 via h/b"]);
    assert_eq!(
        b.hears("release a/a of h/b #1.7"),
        [
            "write: h/b back from a/a #1.7",
            "write: h/b begins 0 -> 1",
            "a: released a/a of h/b #1.7",
            "act h/b 0 -> 1, attempt 1"
        ]
    );
}

#[test]
fn the_promised_state_found_again_is_no_drift() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.7");
    b.event(Event::CheckWanted(id("h/b")));
    assert_eq!(b.found("h/b", "1"), [""; 0]);
}

#[test]
fn an_invalidated_lock_is_released() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1 e/e@1"]);
    b.hears("grant d/d@1 to h/c #1.2");
    assert_eq!(
        b.hears("lapsed h/c of d/d #1.2"),
        [
            "note: h/c hears that the promise of d/d is broken",
            "note: h/c asks d/d@1",
            "d: request h/c of d/d@1 #1.4 rev 0 rank 11 from h/c"
        ]
    );
}

#[test]
fn an_action_under_an_invalidated_lock_is_checked() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    b.hears("grant d/d@1 to h/c #1.2");
    assert_eq!(b.hears("lapsed h/c of d/d #1.2"), ["note: h/c hears that the promise of d/d is broken"]);
    assert_eq!(
        b.ended("h/c", true),
        ["write: h/c ended well, is unknown", "note: h/c gives d/d back", "d: release h/c of d/d #1.2", "check h/c"]
    );
    assert_eq!(b.found("h/c", "1"), ["write: h/c found 1"]);
}

#[test]
fn a_failed_action_is_tried_again_with_its_locks_and_then_given_up() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1, retries 1, fails in 0"]);
    b.hears("grant d/d@1 to h/c #1.2");
    assert_eq!(b.ended("h/c", false), ["write: h/c ended badly, is 0"]);
    assert_eq!(b.after(Span::secs(2)), ["write: h/c begins 0 -> 1, on d/d@1 #1.2", "act h/c 0 -> 1, attempt 2"]);
    // Failed: it needs no locks any more, but grants its present state.
    assert_eq!(
        b.ended("h/c", false),
        ["write: h/c ended badly, is 0, gave up", "note: h/c gives d/d back", "d: release h/c of d/d #1.2"]
    );
    assert_eq!(
        b.hears("request a/a of h/c@0 #1.9"),
        ["write: h/c@0 granted to a/a #1.9", "a: grant h/c@0 to a/a #1.9 rev 0"]
    );
    // An operator's retry makes it leave its state again; first the grant must be released.
    b.hears("release a/a of h/c #1.9");
    assert_eq!(
        b.event(Event::Order(Order::Retry(id("h/c")))),
        ["write: Ordered(Retry(h/c))", "note: h/c asks d/d@1", "d: request h/c of d/d@1 #1.5 rev 0 rank 11 from h/c"]
    );
}

#[test]
fn between_two_attempts_a_recall_is_obeyed() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1, retries 1, fails in 0"]);
    b.hears("grant d/d@1 to h/c #1.2");
    b.ended("h/c", false);
    assert_eq!(
        b.hears("recall h/c of d/d #1.2"),
        ["note: h/c asks d/d@1", "d: request h/c of d/d@1 #1.4 rev 0 rank 11 from h/c"]
    );
    assert_eq!(b.after(Span::millis(1)), [""; 0]);
}

#[test]
fn a_paused_host_starts_no_transition_and_keeps_its_locks() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    assert_eq!(b.event(Event::Order(Order::Pause)), ["write: Ordered(Pause)"]);
    assert_eq!(b.hears("grant d/d@1 to h/c #1.2"), ["note: h/c holds d/d@1"]);
    assert_eq!(
        b.event(Event::Order(Order::Resume)),
        ["write: Ordered(Resume)", "write: h/c begins 0 -> 1, on d/d@1 #1.2", "act h/c 0 -> 1, attempt 1"]
    );
}
