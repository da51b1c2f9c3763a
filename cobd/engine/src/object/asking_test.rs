//! The dependent side: recalls, late grants, a single message as release and new request, and the requests that are
//! kept though they are not needed now.

use crate::testing::Bench;
use crate::time::Span;

const ONE: &str = "h/c: 0 1, prefers 1, transition 0 1 <- d/d@1";
/// Two locks, so that a single grant does not start the action.
const TWO: &str = "h/c: 0 1, prefers 1, transition 0 1 <- d/d@1 e/e@1";

#[test]
fn a_transition_starts_with_its_last_lock_and_gives_back_after_it() {
    let mut b = Bench::new(&[ONE]);
    assert_eq!(
        b.hears("grant d/d@1 to h/c #1.2"),
        ["note: h/c holds d/d@1", "write: h/c begins 0 -> 1, on d/d@1 #1.2", "act h/c 0 -> 1, attempt 1"]
    );
    assert_eq!(
        b.ended("h/c", true),
        ["write: h/c ended well, is 1", "note: h/c gives d/d back", "d: release h/c of d/d #1.2"]
    );
}

#[test]
fn a_recall_before_its_grant_is_obeyed_at_once() {
    let mut b = Bench::new(&[TWO]);
    // Counterexample 14: the higher number is the release; no other is sent.
    assert_eq!(
        b.hears("recall h/c of d/d #1.2"),
        ["note: h/c asks d/d@1", "d: request h/c of d/d@1 #1.4 rev 0 rank 11 from h/c"]
    );
    // The grant that the recall had overtaken is released, and has no effect.
    assert_eq!(b.hears("grant d/d@1 to h/c #1.2"), ["d: release h/c of d/d #1.2"]);
}

#[test]
fn a_recall_of_a_held_lock_is_obeyed_by_a_new_request() {
    let mut b = Bench::new(&[TWO]);
    assert_eq!(b.hears("grant d/d@1 to h/c #1.2"), ["note: h/c holds d/d@1"]);
    assert_eq!(
        b.hears("recall h/c of d/d #1.2"),
        ["note: h/c asks d/d@1", "d: request h/c of d/d@1 #1.4 rev 0 rank 11 from h/c"]
    );
}

#[test]
fn a_recall_during_the_action_waits_for_its_end() {
    let mut b = Bench::new(&[ONE]);
    b.hears("grant d/d@1 to h/c #1.2");
    assert_eq!(b.hears("recall h/c of d/d #1.2"), [""; 0]);
    assert_eq!(
        b.ended("h/c", true),
        ["write: h/c ended well, is 1", "note: h/c gives d/d back", "d: release h/c of d/d #1.2"]
    );
}

#[test]
fn a_recall_is_passed_on_to_grants_that_rely_on_the_lock() {
    let mut b = Bench::new(&["h/c: 0 1, is 1, prefers 1, lock 1 <- d/d@1"]);
    b.hears("request a/a of h/c@1 #1.7 rank 5");
    b.hears("grant d/d@1 to h/c #1.2");
    assert_eq!(b.hears("recall h/c of d/d #1.2"), ["note: h/c wants it back from a/a", "a: recall a/a of h/c #1.7"]);
    // A recalled lock cannot support a new grant.
    assert_eq!(b.hears("request a/x of h/c@1 #1.8 rank 6"), [""; 0]);
    // The dependent grant is released: now it releases its own lock, and asks for it again.
    assert_eq!(
        b.hears("request a/a of h/c@1 #1.9 rank 5"),
        ["write: h/c back from a/a #1.7", "note: h/c asks d/d@1", "d: request h/c of d/d@1 #1.3 rev 0 rank 5 from a/a"]
    );
}

#[test]
fn a_grant_or_recall_of_another_number_is_given_back() {
    let mut b = Bench::new(&[ONE]);
    assert_eq!(b.hears("grant d/d@1 to h/c #1.1"), ["d: release h/c of d/d #1.1"]);
    assert_eq!(b.hears("recall h/c of d/d #1.1"), ["d: release h/c of d/d #1.1"]);
}

#[test]
fn a_query_is_answered_with_the_request_or_with_a_release() {
    let mut b = Bench::new(&[ONE]);
    assert_eq!(b.hears("query h/c of d/d #1.2"), ["d: request h/c of d/d@1 #1.2 rev 0 rank 11 from h/c"]);
    // The newer request is under way and is the answer.
    assert_eq!(b.hears("query h/c of d/d #1.1"), [""; 0]);
    assert_eq!(b.hears("query h/c of d/other #1.1"), ["d: release h/c of d/other #1.1"]);
}

#[test]
fn a_wider_set_is_told_and_told_again_until_it_is_known() {
    // Counterexample 8: the lock of the transition is kept for the state after it.
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@0, lock 1 <- d/d@0|2"]);
    b.hears("request a/a of h/c@1 #1.7 rank 5");
    b.hears("grant d/d@0 to h/c #1.2");
    assert_eq!(
        b.ended("h/c", true),
        [
            "write: h/c ended well, is 1",
            "write: h/c@1 granted to a/a #1.7, on d/d@0 #1.2",
            "d: request h/c of d/d@0|2 #1.2 rev 1 rank 5 from a/a",
            "a: grant h/c@1 to a/a #1.7 rev 0"
        ]
    );
    assert_eq!(b.after(Span::secs(2)), ["d: request h/c of d/d@0|2 #1.2 rev 1 rank 5 from a/a"]);
    // A grant that answers the previous revision does not count.
    assert_eq!(b.hears("grant d/d@0 to h/c #1.2 rev 0"), [""; 0]);
    assert_eq!(b.after(Span::secs(3)), ["d: request h/c of d/d@0|2 #1.2 rev 1 rank 5 from a/a"]);
    assert_eq!(b.hears("grant d/d@0 to h/c #1.2 rev 1"), [""; 0]);
    assert_eq!(b.after(Span::secs(60)), [""; 0]);
}

#[test]
fn k1_an_object_keeps_its_request_to_its_own_asker() {
    // a asks for c@1, whose grant relies on d; d's own way needs c in another state, with a lower rank.
    let mut b = Bench::new(&["h/c: 2 1 0, is 1, prefers 1, lock 1 <- d/d@0|3"]);
    b.hears("request a/a of h/c@1 #1.7 rank 5");
    // c leaves 1 to serve d, and keeps its request to d: it sends no release.
    assert_eq!(
        b.hears("request d/d of h/c@2|0 #1.8 rank 3"),
        ["write: h/c begins 1 -> 2", "act h/c 1 -> 2, attempt 1"]
    );
    assert_eq!(
        b.ended("h/c", true),
        ["write: h/c ended well, is 2", "write: h/c@2 granted to d/d #1.8", "d: grant h/c@2 to d/d #1.8 rev 0"]
    );
}

#[test]
fn k2_a_lock_that_the_target_state_needs_is_kept() {
    // a asks for c@0, whose grant relies on d@1; d's way to 1 needs c@1 first.
    let mut b = Bench::new(&["h/c: 1 0, prefers 0, lock 0 <- d/d@1"]);
    b.hears("request a/a of h/c@0 #1.7 rank 5");
    b.hears("request d/d of h/c@1 #1.8 rank 3 from a/a");
    b.ended("h/c", true);
    // d has arrived in 1, needs c@1 no more and grants 1; c goes back to serve a.
    assert_eq!(
        b.hears_together("d", &["release d/d of h/c #1.8", "grant d/d@1 to h/c #1.2"]),
        [
            "write: h/c back from d/d #1.8",
            "note: h/c holds d/d@1",
            "write: h/c begins 1 -> 0",
            "d: released d/d of h/c #1.8",
            "act h/c 1 -> 0, attempt 1"
        ]
    );
    // It has kept its lock on d on the way.
    assert_eq!(
        b.ended("h/c", true),
        [
            "write: h/c ended well, is 0",
            "write: h/c@0 granted to a/a #1.7, on d/d@1 #1.2",
            "a: grant h/c@0 to a/a #1.7 rev 0"
        ]
    );
}

#[test]
fn an_object_keeps_its_own_request_while_it_serves_another() {
    // Counterexample 12: A needs B@1; B's way to 1 needs A@0.
    let mut b = Bench::new(&["h/A: 0 1, prefers 1, transition 0 1 <- d/B@1"]);
    assert_eq!(
        b.hears("request d/B of h/A@0 #1.8 rank 3 from h/A"),
        ["write: h/A@0 granted to d/B #1.8", "d: grant h/A@0 to d/B #1.8 rev 0"]
    );
    assert_eq!(b.hears("grant d/B@1 to h/A #1.2"), ["note: h/A holds d/B@1"]);
    assert_eq!(
        b.hears("release d/B of h/A #1.8"),
        [
            "write: h/A back from d/B #1.8",
            "write: h/A begins 0 -> 1, on d/B@1 #1.2",
            "d: released d/B of h/A #1.8",
            "act h/A 0 -> 1, attempt 1"
        ]
    );
}

const B: &str = "h/b: 0 1, is 1, prefers 1, lock 1 <- d/d@1";

/// It holds its lock for a request with the first rank, and then only for a second request; returns its messages then.
fn holds_for_others(first: &str, second: &str) -> (Bench, String, Vec<String>) {
    let mut b = Bench::new(&[B]);
    let told = b.hears(&format!("request a/a of h/b@1 #1.7 {first}"));
    let asks = told.iter().find(|t| t.starts_with("d: request h/b of d/d@1 ")).unwrap_or_else(|| panic!("{told:?}"));
    let number = asks.split(' ').find(|w| w.starts_with('#')).expect("a number").to_owned();
    b.hears(&format!("grant d/d@1 to h/b {number}"));
    b.hears(&format!("request a/c of h/b@1 #1.8 {second}"));
    let told = b.hears("release a/a of h/b #1.7");
    (b, number, told)
}

/// Otherwise a departing grantor would serve it forever.
#[test]
fn a_lock_that_serves_no_departure_any_more_is_reported_at_once() {
    let (_, n, told) = holds_for_others("phase 0", "rank 5");
    assert!(told.contains(&format!("d: request h/b of d/d@1 {n} rev 1 rank 5 from a/c")), "{told:?}");
}

#[test]
fn another_rank_of_a_held_lock_is_told_when_its_granter_asks() {
    let (mut b, n, told) = holds_for_others("rank 3", "rank 5");
    assert!(!told.iter().any(|t| t.starts_with("d: request")), "{told:?}");
    let told = b.hears(&format!("query h/b of d/d {n}"));
    assert_eq!(told, [format!("d: request h/b of d/d@1 {n} rev 1 rank 5 from a/c")]);
}
