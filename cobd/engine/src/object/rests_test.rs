//! A change object becomes outdated when its dependencies differ from the dependencies at its start.

use std::sync::Arc;

use cob_types::canonical;
use cob_types::cob::Fingerprint;

use crate::event::Event;
use crate::testing::{Bench, bundle, free, switch};

const X: &str = "h/x: 0 1 outdated, is 1, prefers 1";

/// A generation in which `h/x` has these dependencies, if any. The dependencies are part of its content.
fn go(generation: u64, cob: &str, rests_on: Option<u8>) -> Event {
    let mut bundle = bundle(&[cob]);
    for cob in bundle.cobs.values_mut().map(Arc::make_mut) {
        cob.rests_on = rests_on.map(|n| Fingerprint([n; 16]));
        cob.fingerprint = canonical::fingerprint(&[&[rests_on.unwrap_or_default()]]);
    }
    switch(bundle, free(generation), false)
}

/// The actions that begin when the check in a next generation finds it on.
fn begun(b: &mut Bench, go: Event) -> Vec<String> {
    b.event(go);
    let told = b.found("h/x", "1");
    told.into_iter().filter(|t| t.starts_with("act ")).collect()
}

#[test]
fn a_first_dependency_makes_an_object_outdated() {
    let mut b = Bench::new(&[X]);
    assert_eq!(begun(&mut b, go(2, X, Some(1))), ["act h/x outdated -> 1, attempt 1"]);
    b.ended("h/x", true);
    assert_eq!(begun(&mut b, go(3, X, Some(1))), [""; 0], "nothing is new");
    assert_eq!(begun(&mut b, go(4, X, Some(2))), ["act h/x outdated -> 1, attempt 1"]);
}

#[test]
fn a_first_dependency_is_detected_after_a_restart() {
    let mut b = Bench::new(&[X]);
    b.event(go(2, X, Some(1)));
    b.returns();
    let told = b.found("h/x", "1");
    assert!(told.contains(&"act h/x outdated -> 1, attempt 1".to_owned()), "{told:?}");
}

#[test]
fn a_first_dependency_does_not_outdate_a_formerly_observed_object() {
    let observed = format!("{X}, observed");
    let mut b = Bench::new(&[&observed]);
    assert_eq!(begun(&mut b, go(2, X, Some(1))), [""; 0]);
    assert_eq!(begun(&mut b, go(3, X, Some(2))), ["act h/x outdated -> 1, attempt 1"]);
}

#[test]
fn a_removed_first_dependency_starts_no_transition() {
    let mut b = Bench::new(&[X]);
    b.event(go(2, X, Some(1)));
    assert_eq!(begun(&mut b, go(3, X, None)), [""; 0]);
}

#[test]
fn a_dependency_does_not_outdate_an_object_that_is_off() {
    let off = "h/x: 0 1 outdated, is 0, prefers 0";
    let mut b = Bench::new(&[off]);
    b.event(go(2, off, Some(1)));
    assert_eq!(b.found("h/x", "0").iter().filter(|t| t.starts_with("act ")).count(), 0);
    assert!(b.engine.is_converged());
}
