//! A fence: the locks of the lost host are released, and no departure waits for it.

use std::sync::Arc;

use cob_types::{CobId, GenerationNumber, HostName, SwitchOrder};

use crate::event::{Event, Order};
use crate::testing::{Bench, bundle, switch};

/// Departs only while d/d is up.
const M: &str = "h/m: 0 1, is 1, prefers 1, transition 1 0 <- d/d@1";
const STAYS: &str = "h/s: 0 1, is 0, prefers 1, transition 0 1 <- d/d@1";

fn d() -> HostName {
    HostName::new("d").expect("a name")
}

fn fence() -> Event {
    Event::Order(Order::Fence(d()))
}

fn go(cobs: &[&str], waits: &[&str]) -> Event {
    let mut order = SwitchOrder::free(GenerationNumber(1), GenerationNumber(2));
    let waits: Vec<CobId> = waits.iter().map(|id| CobId::new(id).expect("an id")).collect();
    if !waits.is_empty() {
        order.waits.insert(HostName::new("h").expect("a name"), waits.into_iter().collect());
    }
    switch(bundle(cobs), Arc::new(order), false)
}

fn acts(told: &[String], cob: &str) -> bool {
    told.iter().any(|line| line.starts_with(&format!("act {cob}")))
}

#[test]
fn a_departing_object_does_not_wait_for_a_fenced_host() {
    let mut b = Bench::new(&[M]);
    let told = b.event(go(&[], &[]));
    assert!(!acts(&told, "h/m"), "{told:?}");
    assert!(acts(&b.event(fence()), "h/m"));
    b.ended("h/m", true);
    assert_eq!(b.engine.generation(), GenerationNumber(2));
    assert!(!b.engine.is_open_with(&d()), "nothing is repeated to it");
    // The other way round: fenced first.
    let mut b = Bench::new(&[M]);
    b.event(fence());
    assert!(acts(&b.event(go(&[], &[])), "h/m"));
}

/// Its grants relied on locks of others, which release them as well.
#[test]
fn grants_of_a_fenced_host_do_not_count() {
    let mut b = Bench::new(&["h/s: 0 1, is 0, prefers 1, transition 0 1 <- d/d@1 e/e@1"]);
    assert_eq!(b.hears("grant d/d@1 to h/s #1.2"), ["note: h/s holds d/d@1"]);
    b.event(fence());
    assert!(!acts(&b.hears("grant e/e@1 to h/s #1.3"), "h/s"), "nobody keeps d/d in 1");
    // A departing change object does without.
    let mut b = Bench::new(&["h/m: 0 1, is 1, prefers 1, transition 1 0 <- d/d@1 e/e@1"]);
    b.event(go(&[], &[]));
    b.hears("grant d/d@1 to h/m #1.2");
    b.event(fence());
    assert!(acts(&b.hears("grant e/e@1 to h/m #1.3"), "h/m"));
}

#[test]
fn no_switch_waits_for_departures_of_the_lost_host() {
    let mut b = Bench::new(&[STAYS]);
    b.event(go(&["h/s: 0 1, is 0, prefers 0"], &["d/x", "d/y", "e/z"]));
    assert_eq!(b.engine.switch_waits().len(), 3);
    assert!(!b.engine.is_fenced(&d()), "there is something that a fence changes");
    b.event(fence());
    let waits: Vec<String> = b.engine.switch_waits().iter().map(|wait| wait.cob.to_string()).collect();
    assert_eq!(waits, ["e/z"]);
    b.event(Event::Order(Order::Fence(HostName::new("e").expect("a name"))));
    assert_eq!(b.engine.generation(), GenerationNumber(2));
    // It holds over a restart, and for the next switch too.
    let mut b = Bench::new(&[STAYS]);
    b.event(go(&["h/s: 0 1, is 0, prefers 0"], &["d/x", "e/z"]));
    b.event(fence());
    b.returns();
    assert_eq!(b.engine.switch_waits().len(), 1);
    let mut b = Bench::new(&[STAYS]);
    b.event(fence());
    b.event(go(&["h/s: 0 1, is 0, prefers 0"], &["d/x"]));
    assert_eq!(b.engine.generation(), GenerationNumber(2));
}

#[test]
fn an_object_that_stays_waits_for_the_fenced_host() {
    let mut b = Bench::new(&[STAYS]);
    let told = b.event(fence());
    assert!(!acts(&told, "h/s") && !b.engine.is_converged(), "{told:?}");
}

#[test]
fn a_later_life_of_the_lost_host_is_asked_again() {
    let other = "h/n: 0 1, is 1, prefers 1, transition 1 0 <- h/m@0";
    let mut b = Bench::new(&[M, other]);
    b.event(fence());
    b.event(go(&[], &[]));
    b.restarted("d");
    b.meet("d");
    // The result of a running action is checked.
    let told = b.ended("h/m", true);
    assert!(told.contains(&"check h/m".to_owned()), "{told:?}");
    let mut b = Bench::new(&[M]);
    b.event(fence());
    b.restarted("d");
    b.meet("d");
    assert!(!acts(&b.event(go(&[], &[])), "h/m"), "it lives again");
}
