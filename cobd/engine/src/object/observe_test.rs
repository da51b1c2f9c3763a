//! Observed change objects: they grant their present state, and COB never moves them.

use cob_types::status::{CobStatus, Phase, Wait};
use cob_types::{CobId, GenerationNumber};

use crate::event::Event;
use crate::testing::{Bench, bundle, free, switch};
use crate::time::Span;

const OBSERVED: &str = "h/x: 0 1, is 0, prefers 1, observed";

fn status(b: &Bench, cob: &str) -> CobStatus {
    b.engine.status_of(&CobId::new(cob).expect("a name"), b.now).expect("it is there")
}

fn go(generation: u64, cobs: &[&str]) -> Event {
    switch(bundle(cobs), free(generation), false)
}

fn acts(told: &[String]) -> usize {
    told.iter().filter(|t| t.starts_with("act ")).count()
}

#[test]
fn an_observed_object_grants_its_state_and_reports_its_target() {
    let mut b = Bench::new(&[OBSERVED]);
    let told = status(&b, "h/x");
    assert!(told.observed && told.phase == Phase::Waiting, "{told:?}");
    assert!(matches!(&told.waits_for[..], [Wait::Observed { to }] if to.as_str() == "1"), "{told:?}");
    assert!(b.engine.is_converged(), "nothing is left to do");
    assert_eq!(
        b.hears("request a/a of h/x@0 #1.7"),
        ["write: h/x@0 granted to a/a #1.7", "a: grant h/x@0 to a/a #1.7 rev 0"]
    );
    assert_eq!(b.hears("request a/b of h/x@1 #1.8"), [""; 0], "who needs another state waits for people");
    // The other request comes first in the order of its states, so its target would be its present state.
    let told = status(&b, "h/x");
    assert!(matches!(&told.waits_for[..], [Wait::Observed { to }] if to.as_str() == "1"), "{told:?}");
    assert_eq!(acts(&b.after(Span::secs(5))), 0);
}

#[test]
fn an_observed_object_is_checked_without_a_check_interval() {
    let mut b = Bench::new(&[OBSERVED, "h/y: 0 1, is 1, prefers 1"]);
    b.hears("request a/b of h/x@1 #1.8");
    let told = b.after(Span::secs(60));
    assert_eq!(told.iter().filter(|t| t.starts_with("check ")).collect::<Vec<_>>(), ["check h/x"]);
    let told = b.found("h/x", "1");
    assert!(told.contains(&"a: grant h/x@1 to a/b #1.8 rev 0".to_owned()), "{told:?}");
    assert!(status(&b, "h/x").waits_for.is_empty());
}

#[test]
fn an_observed_object_requests_the_locks_of_its_grants() {
    let mut b = Bench::new(&["h/x: 0 1, is 1, prefers 1, observed, lock 1 <- e/e@1"]);
    let told = b.hears("request a/a of h/x@1 #1.7");
    assert!(told.iter().any(|t| t.starts_with("e: request h/x of e/e@1")), "{told:?}");
    let told = b.hears("grant e/e@1 to h/x #1.2 rev 0");
    assert!(told.contains(&"a: grant h/x@1 to a/a #1.7 rev 0".to_owned()), "{told:?}");
}

/// Seed 28682: the holder of its grant was part of a cycle through a lock under that grant, and no probe found it.
#[test]
fn an_observed_object_with_a_recalled_lock_passes_probes_to_holders() {
    let mut b = Bench::new(&["h/x: 0 1, is 1, prefers 1, observed, lock 1 <- e/e@1"]);
    b.hears("request a/a of h/x@1 #1.7");
    b.hears("grant e/e@1 to h/x #1.2 rev 0");
    b.hears("request a/b of h/x@1 #1.8 expects another");
    assert_eq!(b.hears("probe of e/e to h/x #1.9 via e/e"), ["a: probe of e/e to a/a #1.9 via e/e h/x wide"]);
    assert_eq!(b.hears("probe of a/b to h/x #1.9 via a/b"), [""; 0], "it never goes where another wants it");
    let told = b.hears("recall h/x of e/e #1.2");
    assert_eq!(told, ["note: h/x wants it back from a/a", "a: recall a/a of h/x #1.7"]);
    assert_eq!(
        b.hears("probe of a/b to h/x #1.10 via a/b"),
        ["e: probe of a/b to e/e #1.10 via a/b h/x wide", "a: probe of a/b to a/a #1.10 via a/b h/x wide"]
    );
}

#[test]
fn the_next_generation_takes_it_over_from_where_it_is() {
    let mut b = Bench::new(&[OBSERVED, "h/y: 0 1, is 1, prefers 1, observed"]);
    let told = b.event(go(2, &["h/x: 0 1, is 0, prefers 1", "h/y: 0 1, is 1, prefers 1"]));
    assert_eq!(acts(&told), 1, "{told:?}");
    assert!(told.contains(&"act h/x 0 -> 1, attempt 1".to_owned()), "{told:?}");
    assert!(told.contains(&"check h/y".to_owned()), "what looks right may not be ours yet: {told:?}");
    assert!(!status(&b, "h/y").observed);
}

#[test]
fn an_observed_object_is_not_changed_also_when_it_departs() {
    let mut b = Bench::new(&["h/x: 0 1, is 1, prefers 1", "h/y: 0 1, is 1, prefers 1"]);
    b.event(go(2, &[OBSERVED, "h/y: 0 1, is 1, prefers 1"]));
    b.event(Event::CheckWanted(CobId::new("h/x").expect("a name")));
    assert_eq!(acts(&b.found("h/x", "0")), 0);
    let told = b.event(go(3, &["h/y: 0 1, is 1, prefers 1"]));
    assert_eq!(acts(&told), 0, "{told:?}");
    assert!(b.engine.pending_generation().is_none() && b.engine.generation() == GenerationNumber(3));
}
