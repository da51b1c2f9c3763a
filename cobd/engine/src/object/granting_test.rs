//! The grantor's side: grants, recalls, answers to repeats and to late messages.

use crate::testing::Bench;
use crate::time::Span;

#[test]
fn a_grant_is_written_before_it_is_said() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    assert_eq!(
        b.hears("request a/a of h/b@1 #1.7"),
        ["write: h/b@1 granted to a/a #1.7", "a: grant h/b@1 to a/a #1.7 rev 0"]
    );
}

#[test]
fn a_state_that_it_is_not_in_is_gone_to_first() {
    let mut b = Bench::new(&["h/b: 0 1"]);
    assert_eq!(b.hears("request a/a of h/b@1 #1.7"), ["write: h/b begins 0 -> 1", "act h/b 0 -> 1, attempt 1"]);
    assert_eq!(
        b.ended("h/b", true),
        ["write: h/b ended well, is 1", "write: h/b@1 granted to a/a #1.7", "a: grant h/b@1 to a/a #1.7 rev 0"]
    );
}

#[test]
fn a_grant_waits_for_the_lock_that_it_relies_on() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1, lock 1 <- d/d@1"]);
    // The lock is asked for with the rank and the origin of the request that it serves.
    assert_eq!(
        b.hears("request a/a of h/b@1 #1.7 rank 5 from c/c"),
        ["note: h/b asks d/d@1", "d: request h/b of d/d@1 #1.2 rev 0 rank 5 from c/c"]
    );
    assert_eq!(
        b.hears("grant d/d@1 to h/b #1.2"),
        [
            "note: h/b holds d/d@1",
            "write: h/b@1 granted to a/a #1.7, on d/d@1 #1.2",
            "a: grant h/b@1 to a/a #1.7 rev 0"
        ]
    );
}

#[test]
fn other_content_than_expected_is_not_promised() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    assert_eq!(b.hears("request a/a of h/b@1 #1.7 expects other"), [""; 0]);
}

#[test]
fn a_repeat_is_answered_with_the_revision_that_is_known() {
    let mut b = Bench::new(&["h/b: 0 1 2, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.7");
    assert_eq!(b.hears("request a/a of h/b@1 #1.7"), ["a: grant h/b@1 to a/a #1.7 rev 0"]);
    assert_eq!(b.hears("request a/a of h/b@1|2 #1.7 rev 1"), ["a: grant h/b@1 to a/a #1.7 rev 1"]);
    // An older revision that was overtaken has no effect.
    assert_eq!(b.hears("request a/a of h/b@1 #1.7"), ["a: grant h/b@1 to a/a #1.7 rev 1"]);
}

#[test]
fn a_grant_is_recalled_when_another_state_is_requested() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.7");
    assert_eq!(b.hears("request a/x of h/b@0 #1.8"), ["note: h/b wants it back from a/a", "a: recall a/a of h/b #1.7"]);
    // The same request under a new number is also the release.
    assert_eq!(
        b.hears("request a/a of h/b@1 #1.9"),
        ["write: h/b back from a/a #1.7", "write: h/b begins 1 -> 0", "act h/b 1 -> 0, attempt 1"]
    );
    assert_eq!(
        b.ended("h/b", true),
        ["write: h/b ended well, is 0", "write: h/b@0 granted to a/x #1.8", "a: grant h/b@0 to a/x #1.8 rev 0"]
    );
}

#[test]
fn a_request_with_an_older_number_is_ignored() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.9");
    assert_eq!(b.hears("request a/a of h/b@0 #1.8"), ["a: released a/a of h/b #1.8"]);
    assert_eq!(b.hears("release a/a of h/b #1.8"), ["a: released a/a of h/b #1.8"]);
    assert_eq!(b.hears("release a/a of h/b #1.9"), ["write: h/b back from a/a #1.9", "a: released a/a of h/b #1.9"]);
    // A late repeat does not renew a released request.
    assert_eq!(b.hears("request a/a of h/b@1 #1.9"), ["a: released a/a of h/b #1.9"]);
}

#[test]
fn a_request_for_an_unreachable_state_is_refused_each_time() {
    let mut b = Bench::new(&["h/b: 0 1"]);
    let refused = ["a: refused a/a of h/b #1.7: no route leads from 0 to 5"];
    assert_eq!(b.hears("request a/a of h/b@5 #1.7"), refused);
    assert_eq!(b.hears("request a/a of h/b@5 #1.7"), refused);
}

#[test]
fn a_lock_under_a_grant_keeps_its_held_state() {
    // Counterexample 4: b@0 relies on d, held in 1; b's way to 1 needs d@0.
    let mut b = Bench::new(&["h/b: 1 0, prefers 0, transition 0 1 <- d/d@0, lock 0 <- d/d@0|1"]);
    b.hears("request a/a of h/b@0 #1.7");
    b.hears("grant d/d@1 to h/b #1.2");
    // The grant is recalled; the lock stays as it is.
    assert_eq!(b.hears("request a/x of h/b@1 #1.8"), ["note: h/b wants it back from a/a", "a: recall a/a of h/b #1.7"]);
    // Only after the release does b ask d for 0, under a new number.
    assert_eq!(
        b.hears("release a/a of h/b #1.7"),
        [
            "write: h/b back from a/a #1.7",
            "note: h/b asks d/d@0",
            "a: released a/a of h/b #1.7",
            "d: request h/b of d/d@0 #1.3 rev 0 rank 10 from a/x"
        ]
    );
}

#[test]
fn unserved_for_long_is_asked_about() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1, lock 1 <- d/d@1"]);
    b.hears("request a/a of h/b@1 #1.7");
    b.after(Span::secs(1));
    let said = b.after(Span::secs(11));
    assert!(said.contains(&"a: query a/a of h/b #1.7".to_owned()), "{said:?}");
}

#[test]
fn a_grant_outside_the_preferred_state_is_queried() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@0 #1.7");
    assert_eq!(
        b.ended("h/b", true),
        ["write: h/b ended well, is 0", "write: h/b@0 granted to a/a #1.7", "a: grant h/b@0 to a/a #1.7 rev 0"]
    );
    b.after(Span::secs(5));
    // The release may be lost, with an asker that has left its model since.
    assert_eq!(b.after(Span::secs(10)), ["a: query a/a of h/b #1.7"]);
    let told = b.hears("release a/a of h/b #1.7");
    assert!(told.contains(&"act h/b 0 -> 1, attempt 1".to_owned()), "{told:?}");
    b.ended("h/b", true);
    b.hears("request a/a of h/b@1 #1.8");
    b.after(Span::secs(5));
    assert_eq!(b.after(Span::secs(60)), [""; 0], "at home nobody is asked");
}
