//! Requests of other hosts, with and without a dependency that justifies them.

use cob_types::Bundle;

use super::*;
use crate::event::Event;
use crate::justification::{INFORMED, LOOK_AGAIN, MISSING, OTHERS, WAITING, WAITING_BYTES};
use crate::record::Body;
use crate::testing::{Bench, bundle, bundle_among, free, read, switch};
use crate::time::Span;

const B: &str = "h/b: 0 1 2, prefers 0";
const C: &str = "h/c: 0 1, prefers 0";
/// Needs h/b in its transition and for its lock, and no other change object here.
const ASKER: &str = "a/a: 0 1, prefers 1, transition 0 1 <- h/b@1|2, lock 1 <- h/b@2";
const OTHER: &str = "a/o: 0 1, prefers 1, transition 0 1 <- h/b@0";

fn among(others: &[&str]) -> Bench {
    let mut bench = Bench::of(bundle_among(&[B, C], others), &[B, C]);
    bench.meet("d");
    bench
}

fn go(generation: u64, bundle: Bundle) -> Event {
    switch(bundle, free(generation), false)
}

fn askers(generation: u64, of: Option<&Bundle>) -> Event {
    let askers = match of.map(|bundle| bundle.askers.clone()) {
        Some(Some(askers)) => KnownAskers::Named(askers),
        Some(None) => KnownAskers::Unsaid,
        None => KnownAskers::Unavailable,
    };
    Event::Askers { generation: GenerationNumber(generation), askers }
}

/// The answer to a request: it starts an action or is granted; it is refused; or there is none.
fn answer(told: &[String]) -> &'static str {
    let has = |part: &str| told.iter().any(|line| line.contains(part));
    match (has("act ") || has(": grant "), has("refused ")) {
        // It may also be the release of an older request.
        (_, true) => "refused",
        (true, false) => "counts",
        (false, false) => "nothing",
    }
}

fn refused(bench: &Bench) -> Vec<(String, u64, String)> {
    let all = bench.engine.unjustified();
    all.map(|(host, r)| (host.to_string(), r.count, format!("{} {} {:?}", r.asker, r.asked, r.states))).collect()
}

#[test]
fn an_unjustified_request_is_refused_counted_and_reported() {
    let request = "request d/thing of h/c@1 #1.7 by 1";
    let mut b = among(&[ASKER, OTHER]);
    let names = b.engine.names.weight();
    let told = b.hears(request);
    let reason = "no dependency of generation 1, as this host has it, lets d/thing ask h/c for 1";
    assert_eq!(told, [format!("d: refused d/thing of h/c #1.7: {reason}")]);
    assert_eq!(refused(&b), [("d".to_owned(), 1, "d/thing h/c [1]".to_owned())]);
    assert_eq!(b.engine.names.weight(), names, "it is not even remembered");
    assert!(b.engine.is_converged() && b.engine.wanted_askers().is_none());
    // Without the rule any change object may ask any other.
    let mut b = Bench::new(&[B, C]);
    b.meet("d");
    assert_eq!(answer(&b.hears(request)), "counts");
}

#[test]
fn a_request_must_match_asker_asked_and_states_of_a_dependency() {
    for (request, expected) in [
        ("request a/a of h/b@1|2 #1.7 by 1", "counts"),
        ("request a/a of h/b@2 #1.7 by 1", "counts"),
        ("request a/o of h/b@0 #1.7 by 1", "counts"),
        ("request a/a of h/b@1 #1.7 by 1", "refused"),
        ("request a/a of h/b@2|1 #1.7 by 1", "refused"),
        ("request a/a of h/b@0 #1.7 by 1", "refused"),
        ("request a/o of h/b@1|2 #1.7 by 1", "refused"),
        ("request a/a of h/c@1 #1.7 by 1", "refused"),
        ("request a/new of h/b@2 #1.7 by 1", "refused"),
        ("request a/a of h/nothing@1 #1.7 by 1", "refused"),
        // The change object is another host's: there is no answer.
        ("request d/d of a/a@1 #1.7 by 1", "nothing"),
        // The sender's version does not name the generation of a request.
        ("request a/a of h/b@2 #1.7", "counts"),
        ("request a/a of h/b@0 #1.7", "refused"),
        // No host is in that generation.
        ("request a/a of h/b@2 #1.7 by 0", "refused"),
    ] {
        let mut b = among(&[ASKER, OTHER]);
        assert_eq!(answer(&b.hears(request)), expected, "{request}");
    }
}

#[test]
fn the_token_of_a_budget_is_a_dependency_too() {
    let budget = "h/b: open, is open, prefers open, at most 1";
    let mut b = Bench::of(bundle_among(&[budget], &["a/a: 0 1, prefers 1, budget h/b"]), &[budget]);
    assert_eq!(answer(&b.hears("request a/a of h/b@open #1.7 by 1")), "counts");
    assert_eq!(answer(&b.hears("request a/x of h/b@open #1.8 by 1")), "refused");
}

#[test]
fn each_request_is_judged_by_the_generation_that_it_names() {
    let second = bundle_among(&[B, C], &[OTHER, "d/d: 0 1, prefers 1, transition 0 1 <- h/c@1"]);
    let mut b = among(&[ASKER]);
    // Dependencies of the pending generation count as soon as this host starts its switch.
    assert_eq!(answer(&b.hears("request d/d of h/c@1 #1.1 by 2")), "nothing", "it is not known yet");
    assert_eq!(b.engine.wanted_askers(), Some(GenerationNumber(2)));
    let told = b.event(go(2, second));
    assert_eq!((b.engine.generation(), b.engine.wanted_askers()), (GenerationNumber(2), None));
    assert_eq!(answer(&told), "counts", "what was kept is judged: {told:?}");
    // Hosts that are behind still ask by the first generation, and are judged by it.
    assert_eq!(answer(&b.hears("request a/a of h/b@2 #1.7 by 1")), "counts");
    b.ended("h/b", true);
    assert_eq!(answer(&b.hears("request a/a of h/b@2 #1.8 by 2")), "refused");
    b.ended("h/b", true);
    assert_eq!(answer(&b.hears("request d/d of h/c@1 #1.9 by 1")), "refused");
    assert_eq!(answer(&b.hears("request a/o of h/b@0 #1.9 by 1")), "refused");
    assert_eq!(answer(&b.hears("request a/o of h/b@0 #1.10 by 2")), "counts");
}

#[test]
fn a_request_of_the_pending_generation_is_kept_for_it() {
    let leaving = "h/l: 0 1, is 1, prefers 1";
    let first = bundle_among(&[leaving], &[]);
    let second = bundle_among(&[C], &["d/d: 0 1, prefers 1, transition 0 1 <- h/c@1"]);
    let mut b = Bench::of(first, &[leaving]);
    b.meet("d");
    b.event(go(2, second));
    assert_eq!(b.engine.generation(), GenerationNumber(1), "something leaves first");
    assert_eq!(b.hears("request d/d of h/c@1 #1.7 by 2"), [""; 0]);
    assert_eq!(answer(&b.hears("request d/x of h/c@1 #1.7 by 2")), "refused");
    assert_eq!(answer(&b.hears("request d/y of h/c@1 #1.8 by 1")), "refused");
    b.ended("h/l", true);
    assert_eq!(answer(&b.found("h/c", "0")), "counts");
}

#[test]
fn an_unknown_generation_is_looked_up_and_refused_if_missing() {
    let third = bundle_among(&[B, C], &["d/d: 0 1, prefers 1, transition 0 1 <- h/c@1"]);
    let ask = |number: u64| format!("request d/d of h/c@1 #1.{number} by 3");
    let mut b = among(&[]);
    assert_eq!(b.hears(&ask(1)), [""; 0]);
    assert_eq!(b.engine.wanted_askers(), Some(GenerationNumber(3)));
    assert_eq!(answer(&b.event(askers(3, None))), "refused");
    assert_eq!(b.engine.wanted_askers(), None);
    assert_eq!(answer(&b.hears(&ask(2))), "refused", "it is not looked for at once again");
    b.after(LOOK_AGAIN);
    assert_eq!((answer(&b.hears(&ask(3))), b.engine.wanted_askers()), ("nothing", Some(GenerationNumber(3))));
    assert_eq!(answer(&b.event(askers(3, Some(&third)))), "counts");
    assert_eq!(answer(&b.hears("request d/d of h/b@1 #1.9 by 3")), "refused", "by what it says");
}

#[test]
fn a_kept_request_is_forgotten_after_its_release_or_a_restart() {
    let mut b = among(&[]);
    b.hears("request d/d of h/c@1 #1.1 by 3");
    assert_eq!(b.hears("release d/d of h/c #1.1"), ["d: released d/d of h/c #1.1"]);
    assert_eq!(b.engine.wanted_askers(), None);
    b.hears("request d/d of h/c@1 #1.2 by 3");
    assert_eq!(b.hears("release d/d of h/c #1.1"), ["d: released d/d of h/c #1.1"], "a late one");
    assert!(b.engine.wanted_askers().is_some());
    b.restarted("d");
    b.meet("d");
    assert_eq!(b.engine.wanted_askers(), None);
}

#[test]
fn a_repeated_request_with_a_grant_needs_no_dependency() {
    let mut b = among(&[ASKER]);
    b.hears("request a/a of h/b@1|2 #1.7 by 1");
    b.ended("h/b", true);
    b.event(go(2, bundle_among(&[B, C], &[])));
    b.event(go(3, bundle_among(&[B, C], &[])));
    b.engine.justification.forget_others();
    for same in ["request a/a of h/b@1|2 #1.7 rev 3 by 3", "request a/a of h/b@1 #1.7 by 3"] {
        assert_eq!(answer(&b.hears(same)), "counts", "{same}");
    }
    // Another state under the same number, or the same state under another number.
    assert_eq!(answer(&b.hears("request a/a of h/b@2 #1.7 rev 9 by 3")), "refused");
    let told = b.hears("request a/a of h/b@1|2 #1.8 by 3");
    assert!(
        told.contains(&"a: released a/a of h/b #1.7".to_owned()),
        "the new number gives the old one back: {told:?}"
    );
    assert!(told.contains(&"write: h/b back from a/a #1.7".to_owned()), "{told:?}");
}

#[test]
fn a_current_generation_without_askers_permits_every_request() {
    let mut b = Bench::new(&[B, C]);
    b.meet("d");
    assert!(!b.engine.judges_requests());
    let with_askers = |others: &[&str]| bundle_among(&[B, C], others);
    b.event(go(2, with_askers(&[ASKER])));
    assert!(b.engine.judges_requests());
    // Hosts may still be in it, and its askers are unknown.
    assert_eq!(answer(&b.hears("request d/x of h/c@1 #1.1 by 1")), "counts");
    assert_eq!(answer(&b.hears("request d/x of h/b@1 #1.2 by 2")), "refused");
    // From the next generation on it does not count: only the askers of this host's own generations are known.
    b.event(go(3, with_askers(&[ASKER])));
    b.hears("request d/x of h/c@0 #1.5 by 1");
    assert_eq!(b.engine.wanted_askers(), Some(GenerationNumber(1)));
    assert_eq!(answer(&b.event(askers(1, Some(&bundle(&[B, C]))))), "refused");
    assert_eq!(answer(&b.hears("request a/a of h/b@2 #1.6 by 1")), "counts");
}

#[test]
fn on_a_rollback_the_generation_that_is_left_still_counts() {
    let leaving = "h/l: 0 1, is 1, prefers 1";
    let mut b = Bench::of(bundle_among(&[B, C, leaving], &[]), &[B, C, leaving]);
    b.meet("d");
    b.event(go(2, bundle_among(&[B, C], &["d/d: 0 1, prefers 1, transition 0 1 <- h/c@1"])));
    let first = bundle_among(&[B, C, leaving], &[]);
    b.event(switch(first, free(1), true));
    assert_eq!(b.engine.generation(), GenerationNumber(1));
    assert_eq!(answer(&b.hears("request d/d of h/c@1 #1.7 by 2")), "counts");
}

#[test]
fn kept_requests_and_refusals_are_bounded() {
    let mut b = among(&[]);
    for n in 0..WAITING as u64 + 100 {
        b.hears(&format!("request d/{n} of h/c@1 #1.{n} by 9"));
    }
    let waiting = |b: &Bench| b.engine.justification.sizes()[0];
    let bytes = |b: &Bench| b.engine.justification.sizes()[1];
    assert!(waiting(&b) <= WAITING && bytes(&b) <= WAITING_BYTES && b.engine.left_out() >= 100, "{}", waiting(&b));
    let long = "x".repeat(200);
    for n in 0..8000 {
        b.hears(&format!("request d/{n}{long} of h/c@{long} #2.{n} by 9"));
    }
    assert!(bytes(&b) <= WAITING_BYTES);
    let kept = waiting(&b);
    let told = b.event(askers(9, None));
    assert!(refused(&b)[0].1 >= kept as u64);
    assert_eq!(told.len(), INFORMED, "it hears why some of them were refused, not all");
    assert_eq!(waiting(&b), 0);
    // It may name many generations, but few are stored.
    for n in 10..40 {
        b.hears(&format!("request d/d of h/c@1 #3.{n} by {n}"));
        b.event(askers(n, Some(&bundle_among(&[B, C], &[]))));
        b.hears(&format!("request d/d of h/c@1 #3.{n} by 1{n}"));
        b.event(askers(100 + n, None));
    }
    let [.., others, missing] = b.engine.justification.sizes();
    assert!(others <= OTHERS && missing <= MISSING);
}

#[test]
fn a_release_without_a_request_is_answered_and_not_stored() {
    let mut b = among(&[ASKER]);
    let names = b.engine.names.weight();
    for n in 0..100 {
        assert_eq!(b.hears(&format!("release d/{n} of h/c #1.7")), [format!("d: released d/{n} of h/c #1.7")]);
    }
    assert_eq!(b.engine.names.weight(), names);
    // A release of a permitted asker is stored: its request may come late.
    b.hears("release a/a of h/b #1.7");
    assert_eq!(b.hears("request a/a of h/b@2 #1.7 by 1"), ["a: released a/a of h/b #1.7"]);
}

#[test]
fn an_object_drops_requests_that_its_new_generation_does_not_name() {
    // K1: it keeps its request to its own asker, as long as a dependency names that change object.
    let kept = "h/x: 0 1 2, is 0, prefers 2, transition 0 2 <- d/d@1, lock 0 <- d/e@1";
    let mut b = Bench::new(&[kept]);
    b.hears("request d/d of h/x@0 #1.7");
    assert!(b.engine.objects.iter().any(|o| !o.locks().is_empty()));
    let asked =
        |b: &Bench| b.engine.objects.iter().any(|o| o.locks().iter().any(|l| b.engine.names.cob_id(l.asked) == "d/d"));
    b.event(go(2, bundle(&["h/x: 0 1 2, is 0, prefers 0, lock 0 <- d/e@1"])));
    assert!(!asked(&b));
}

#[test]
fn the_generation_by_which_it_asks_travels_with_a_request() {
    let mut b = Bench::new(&["h/x: 0 1, is 0, prefers 1, transition 0 1 <- d/d@1"]);
    let asks = |effects: crate::Effects| {
        let mut all = effects.send.into_iter();
        all.find_map(|(_, item)| if let Item::Request(request) = item { Some(request.generation) } else { None })
    };
    b.now = b.now + Span::secs(5);
    let again = b.engine.handle(Event::Tick, b.now);
    assert_eq!(asks(again), Some(Some(GenerationNumber(1))));
    let other = bundle(&["h/x: 0 1, is 0, prefers 1, transition 0 1 <- d/e@1"]);
    let effects = b.engine.handle(go(2, other), b.now);
    assert!(effects.persist.iter().any(|record| matches!(record.body, Body::Activated(_))));
    assert_eq!(asks(effects), Some(Some(GenerationNumber(2))));
    let Item::Request(read) = read("request a/a of h/b@1 #1.7 by 5", b.engine.incarnation()) else {
        panic!("a request")
    };
    assert_eq!(read.generation, Some(GenerationNumber(5)));
}
