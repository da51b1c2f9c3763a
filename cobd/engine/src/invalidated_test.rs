//! Grants to hosts that are out of reach, when the connectivity guard rolls this host back.

use std::collections::BTreeSet;

use cob_types::{GenerationNumber, HostName};

use crate::event::{Event, Order};
use crate::testing::{self, Bench, bundle, free};
use crate::time::Span;

const X: &str = "h/x: 0 1, is 1, prefers 1";
const NET: &str = "h/net: 0 1, is 1, prefers 1";

fn switch(back: bool, cobs: &[&str]) -> Event {
    testing::switch(bundle(cobs), free(if back { 1 } else { 2 }), back)
}

fn invalidate_grants(hosts: &[&str]) -> Event {
    let hosts: BTreeSet<HostName> = hosts.iter().map(|h| HostName::new(h).expect("a host")).collect();
    Event::Order(Order::InvalidateGrants(hosts))
}

fn link_up(b: &mut Bench, host: &str) -> Vec<String> {
    b.event(Event::LinkUp(HostName::new(host).expect("a host")))
}

/// Generation 2 has added a change object with a grant to another host; this host rolls back.
fn during_rollback() -> Bench {
    let mut b = Bench::new(&[X]);
    b.event(switch(false, &[X, NET]));
    b.found("h/net", "1");
    let granted = b.hears("request a/a of h/net@1 #1.7");
    assert_eq!(granted, ["write: h/net@1 granted to a/a #1.7", "a: grant h/net@1 to a/a #1.7 rev 0"]);
    let told = b.event(switch(true, &[X]));
    assert!(told.contains(&"a: recall a/a of h/net #1.7".to_owned()), "{told:?}");
    assert!(!told.iter().any(|t| t.starts_with("act")), "its promise is out: {told:?}");
    b
}

const LAPSED: &str = "a: lapsed a/a of h/net #1.7";

#[test]
fn recalled_grants_of_unreachable_hosts_are_invalidated() {
    let mut b = during_rollback();
    let a = HostName::new("a").expect("a host");
    assert!(b.engine.recalls_from(&a));
    assert_eq!(
        b.event(invalidate_grants(&["a"])),
        ["write: h/net lets a/a #1.7 lapse", "write: h/net begins 1 -> 0", LAPSED, "act h/net 1 -> 0, attempt 1",]
    );
    assert!(!b.engine.recalls_from(&a));
    assert_eq!(b.event(invalidate_grants(&["a"])), [""; 0], "it is doubled");
    b.ended("h/net", true);
    assert_eq!((b.engine.generation().0, b.engine.pending_generation()), (1, None));
}

/// Also when the change object has departed, and after a restart.
#[test]
fn an_invalidated_grant_is_reported_until_its_release() {
    let mut b = during_rollback();
    b.event(invalidate_grants(&["a"]));
    b.ended("h/net", true);
    let said = |b: &mut Bench| (0..3).any(|_| b.after(Span::secs(1)).contains(&LAPSED.to_owned()));
    assert!(said(&mut b));
    b.returns();
    assert!(said(&mut b) && link_up(&mut b, "a").contains(&LAPSED.to_owned()));
    b.meet("a");
    assert_eq!(b.hears("request a/a of h/net@1 #1.7"), [LAPSED], "it is not promised again under this number");
    // A new number is the release: it waits for a change object that is not there.
    assert_eq!(b.hears("request a/a of h/net@1 #1.9"), ["write: h/net back from a/a #1.7"]);
    assert!(!(0..100).any(|_| b.after(Span::secs(1)).contains(&LAPSED.to_owned())));
}

#[test]
fn an_invalidated_grant_stays_invalidated_over_a_restart() {
    let mut b = during_rollback();
    b.event(invalidate_grants(&["a"]));
    b.returns();
    b.ended("h/net", true);
    let told = b.found("h/net", "0");
    assert!(told.contains(&"write: Activated(GenerationNumber(1))".to_owned()), "{told:?}");
    assert!(link_up(&mut b, "a").contains(&LAPSED.to_owned()));
}

#[test]
fn only_recalled_grants_of_unreachable_hosts_are_invalidated() {
    let mut b = during_rollback();
    b.meet("c");
    b.hears("request c/c of h/x@1 #1.8");
    assert_eq!(b.event(invalidate_grants(&["c", "d"])), [""; 0]);
    assert_eq!((b.engine.generation().0, b.engine.pending_generation()), (2, Some(GenerationNumber(1))));
    assert!(!b.after(Span::secs(2)).contains(&LAPSED.to_owned()));
}

#[test]
fn an_invalidated_grant_is_renewed_only_under_a_new_number() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.7");
    b.meet("c");
    let told = b.hears("request c/c of h/b@0 #1.8");
    assert!(told.contains(&"a: recall a/a of h/b #1.7".to_owned()), "{told:?}");
    let told = b.event(invalidate_grants(&["a"]));
    assert_eq!(told.last().map(String::as_str), Some("act h/b 1 -> 0, attempt 1"), "{told:?}");
    b.ended("h/b", true);
    b.hears("release c/c of h/b #1.8");
    let told = b.ended("h/b", true);
    assert!(!told.iter().any(|t| t.contains("granted to a/a")), "{told:?}");
    assert_eq!(b.hears("request a/a of h/b@1 #1.7"), ["a: lapsed a/a of h/b #1.7"]);
    assert_eq!(
        b.hears("request a/a of h/b@1 #1.9"),
        ["write: h/b back from a/a #1.7", "write: h/b@1 granted to a/a #1.9", "a: grant h/b@1 to a/a #1.9 rev 0",]
    );
}

/// The reported invalidated grants.
fn invalid_grants(b: &Bench) -> Vec<String> {
    b.engine.invalid_grants().iter().map(|l| format!("{} to {}: {:?}", l.of, l.held_by, l.cause)).collect()
}

#[test]
fn a_host_shows_an_invalidated_grant_until_its_release() {
    let mut b = during_rollback();
    assert_eq!(invalid_grants(&b), [""; 0]);
    b.event(invalidate_grants(&["a"]));
    let shown = ["h/net to a/a: Guard"];
    assert_eq!(invalid_grants(&b), shown);
    b.ended("h/net", true);
    assert_eq!(invalid_grants(&b), shown, "it has left");
    b.returns();
    assert_eq!(invalid_grants(&b), shown, "after a return");
    b.meet("a");
    b.hears("request a/a of h/net@1 #1.9");
    assert_eq!(invalid_grants(&b), [""; 0]);
}

#[test]
fn a_grant_invalidated_by_drift_is_shown_until_its_release() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.7");
    b.event(Event::CheckWanted(cob_types::CobId::new("h/b").expect("an id")));
    b.found("h/b", "0");
    assert_eq!(invalid_grants(&b), ["h/b to a/a: Drift"]);
    b.hears("release a/a of h/b #1.7");
    assert_eq!(invalid_grants(&b), [""; 0]);
}

#[test]
fn the_holder_shows_an_invalidated_grant_until_the_next_grant() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1 e/e@1"]);
    b.hears("grant d/d@1 to h/c #1.2");
    assert_eq!(invalid_grants(&b), [""; 0]);
    b.hears("lapsed h/c of d/d #1.2");
    assert_eq!(invalid_grants(&b), ["d/d to h/c: Told"]);
    b.hears("grant d/d@1 to h/c #1.4");
    assert_eq!(invalid_grants(&b), [""; 0]);
}
