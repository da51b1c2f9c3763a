//! The open business of departed change objects, and the needs of departures in a rollback: a single engine; the test
//! plays the other hosts.

use cob_types::{GenerationNumber, HostName};

use crate::event::{Event, Order};
use crate::testing::{Bench, bundle, free, switch};
use crate::time::Span;

const X: &str = "h/x: 0 1, is 1, prefers 1";
/// It departs only while another change object is up.
const Y: &str = "h/y: 0 1, is 1, prefers 1, transition 1 0 <- a/a@1";

fn go(generation: u64, cobs: &[&str]) -> Event {
    switch(bundle(cobs), free(generation), false)
}

fn back(cobs: &[&str]) -> Event {
    switch(bundle(cobs), free(1), true)
}

/// The number of the first request.
fn number(told: &[String]) -> String {
    let request = told.iter().find(|t| t.contains(": request ")).unwrap_or_else(|| panic!("{told:?}"));
    request.split(' ').find(|w| w.starts_with('#')).expect("a number").to_owned()
}

/// Y has departed with generation 2, and has released its lock with this number.
fn left() -> (Bench, String) {
    let mut b = Bench::new(&[X, Y]);
    let n = number(&b.event(go(2, &[X])));
    let told = b.hears(&format!("grant a/a@1 to h/y {n}"));
    assert_eq!(told.last().map(String::as_str), Some("act h/y 1 -> 0, attempt 1"), "{told:?}");
    let told = b.ended("h/y", true);
    assert!(told.contains(&format!("a: release h/y of a/a {n}")), "{told:?}");
    assert_eq!((b.engine.generation().0, b.engine.pending_generation()), (2, None));
    (b, n)
}

#[test]
fn a_release_of_a_departed_object_is_repeated_until_acknowledged() {
    let (mut b, n) = left();
    let release = format!("a: release h/y of a/a {n}");
    let mut times = Vec::new();
    for second in 1..=20 {
        if b.after(Span::secs(1)).contains(&release) {
            times.push(second);
        }
    }
    assert_eq!(times, [1, 3, 7, 15]);
    assert!(b.event(Event::LinkUp(HostName::new("a").expect("a host"))).contains(&release));
    assert_eq!(b.hears(&format!("released h/y of a/a {n}")), [""; 0]);
    assert!(!(0..100).any(|_| b.after(Span::secs(1)).contains(&release)));
}

#[test]
fn an_object_that_comes_back_repeats_its_earlier_release() {
    let (mut b, n) = left();
    b.event(back(&[X, Y]));
    b.found("h/y", "1");
    let release = format!("a: release h/y of a/a {n}");
    assert!((0..5).any(|_| b.after(Span::secs(1)).contains(&release)));
    b.hears(&format!("released h/y of a/a {n}"));
    assert!(!(0..100).any(|_| b.after(Span::secs(1)).contains(&release)));
}

/// Its holder may be gone, and then only this query ends the grant.
#[test]
fn a_kept_object_queries_its_grant_before_it_departs() {
    let mut b = Bench::new(&[X, "h/y: 0 1, is 1, prefers 1, kept"]);
    b.hears("request a/a of h/y@1 #1.7 phase 0");
    b.event(go(2, &[X]));
    assert_eq!(b.engine.pending_generation(), Some(GenerationNumber(2)));
    let query = "a: query a/a of h/y #1.7".to_owned();
    assert!((0..20).any(|_| b.after(Span::secs(1)).contains(&query)));
    b.hears("release a/a of h/y #1.7");
    assert_eq!((b.engine.generation().0, b.engine.pending_generation()), (2, None));
}

/// The other host may never have reached the abandoned generation.
#[test]
fn an_object_that_departs_in_a_rollback_requests_any_content() {
    let mut b = Bench::new(&[X]);
    let told = b.event(go(2, &[X, Y]));
    assert!(told.contains(&"check h/y".to_owned()), "{told:?}");
    b.found("h/y", "1");
    let told = b.event(back(&[X]));
    let asks = told.iter().find(|t| t.contains(": request h/y of a/a@1 ")).unwrap_or_else(|| panic!("{told:?}"));
    assert!(asks.ends_with(" of any content"), "{asks}");
    let told = b.hears(&format!("grant a/a@1 to h/y {}", number(&told)));
    assert_eq!(told.last().map(String::as_str), Some("act h/y 1 -> 0, attempt 1"), "{told:?}");
}

#[test]
fn an_object_that_departs_in_a_switch_requests_its_own_content() {
    let mut b = Bench::new(&[X, Y]);
    let told = b.event(go(2, &[X]));
    assert!(number(&told).starts_with('#') && !told.iter().any(|t| t.ends_with("of any content")), "{told:?}");
}

#[test]
fn a_request_of_any_content_is_passed_on_and_granted() {
    let mut b = Bench::new(&["h/b: 0 1, is 0, prefers 0, transition 0 1 <- d/d@1"]);
    let told = b.hears("request a/a of h/b@1 #1.7 phase 0 expects another");
    assert!(told.iter().all(|t| !t.ends_with("of any content")), "{told:?}");
    let n = number(&told);
    let told = b.hears("request a/a of h/b@1 #1.8 phase 0 expects anything");
    let asks = told.iter().find(|t| t.contains(": request h/b of d/d@1 ")).unwrap_or_else(|| panic!("{told:?}"));
    assert!(asks.ends_with(" of any content") && number(&told) != n, "{told:?}");
    b.hears(&format!("grant d/d@1 to h/b {}", number(&told)));
    let told = b.ended("h/b", true);
    assert!(told.contains(&"write: h/b@1 granted to a/a #1.8".to_owned()), "{told:?}");
}

#[test]
fn open_messages_with_a_host_end_by_acknowledgement_or_fence() {
    let a = HostName::new("a").expect("a host");
    let mut b = Bench::new(&[X, Y]);
    assert!(!b.engine.is_open_with(&a));
    b.event(go(2, &[X]));
    assert!(b.engine.is_open_with(&a), "it asks");
    let (mut b, n) = left();
    assert!(b.engine.is_open_with(&a), "what was given back is not acknowledged");
    b.hears(&format!("released h/y of a/a {n}"));
    assert!(!b.engine.is_open_with(&a));
    let (mut b, n) = left();
    b.event(Event::Order(Order::Fence(a.clone())));
    let release = format!("a: release h/y of a/a {n}");
    assert!(!(0..100).any(|_| b.after(Span::secs(1)).contains(&release)), "nobody will hear it");
    assert!(!b.engine.is_open_with(&a));
}

#[test]
fn a_host_that_holds_a_grant_of_a_departed_object_can_be_fenced() {
    let a = HostName::new("a").expect("a host");
    let mut b = Bench::new(&[X, "h/y: 0 1, is 1, prefers 1"]);
    b.event(go(2, &[X]));
    b.ended("h/y", true);
    let told = b.hears("request a/a of h/y@0 #1.7 phase 0");
    assert!(told.contains(&"a: grant h/y@0 to a/a #1.7 rev 0".to_owned()), "{told:?}");
    b.returns();
    assert!(!b.engine.is_fenced(&a) && b.engine.is_open_with(&a));
    b.event(Event::Order(Order::Fence(a.clone())));
    assert!(b.engine.is_fenced(&a) && !b.engine.is_open_with(&a));
}
