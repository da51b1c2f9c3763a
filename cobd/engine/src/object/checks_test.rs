//! What checks say of what was known: that it can't be told, or that failed attempts have led where they were to.

use cob_types::status::{CobStatus, Phase, Trouble, Wait};
use cob_types::{CobId, GenerationNumber};

use crate::event::{Event, Order};
use crate::testing::{Bench, bundle, free};
use crate::time::Span;

const X: &str = "h/x: 0 1, is 1, prefers 1";

fn id(text: &str) -> CobId {
    CobId::new(text).expect("a name")
}

fn status(b: &Bench) -> CobStatus {
    b.engine.status_of(&id("h/x"), b.now).expect("it is there")
}

/// A check of one that is at rest can't tell, and is repeated.
fn cant_tell(b: &mut Bench, times: usize) {
    b.event(Event::CheckWanted(id("h/x")));
    for _ in 0..times {
        assert_eq!(b.not_told("h/x")[0], "write: h/x can't be told");
        b.after(Span::secs(60));
    }
}

#[test]
fn what_can_not_be_told_again_and_again_is_not_well_until_it_is_told() {
    let mut b = Bench::new(&[X]);
    cant_tell(&mut b, 2);
    assert!(b.engine.is_converged() && !status(&b).failed, "one that could not tell says little");
    b.not_told("h/x");
    assert!(!b.engine.is_converged() && status(&b).failed);
    assert_eq!(status(&b).state.expect("known").as_str(), "1", "what was known is known still");
    // A return looks at once, and takes nothing for well before.
    assert_eq!(b.returns().iter().filter(|t| *t == "check h/x").count(), 1);
    assert!(!b.engine.is_converged() && status(&b).failed);
    assert_eq!(b.found("h/x", "1"), ["write: h/x found 1"]);
    assert!(b.engine.is_converged() && !status(&b).failed);
    b.returns();
    assert!(b.engine.is_converged() && !status(&b).failed, "that it was told is known, too");
}

#[test]
fn attempts_that_have_led_where_they_were_to_count_no_more() {
    let mut b = Bench::new(&["h/x: 0 1, is 0, prefers 1, retries 1"]);
    for attempt in ["first", "second", "third"] {
        b.ended("h/x", false);
        let told = b.found("h/x", "1");
        assert!(told[0].ends_with(", as its attempts were to bring about"), "{attempt}: {told:?}");
        assert!(b.engine.is_converged() && status(&b).action.is_none(), "{attempt}");
        b.event(Event::CheckWanted(id("h/x")));
        let told = b.found("h/x", "0");
        assert!(told.contains(&"act h/x 0 -> 1, attempt 1".to_owned()), "{attempt}: {told:?}");
    }
    // It has given up, and is there all the same.
    b.ended("h/x", false);
    b.found("h/x", "0");
    b.after(Span::secs(60));
    b.ended("h/x", false);
    assert!(status(&b).failed);
    b.found("h/x", "1");
    assert!(!status(&b).failed && b.engine.is_converged());
    b.returns();
    assert!(!status(&b).failed && b.engine.is_converged());
}

#[test]
fn who_can_go_and_waits_for_its_own_check_says_so() {
    let mut b = Bench::new(&[X]);
    b.event(Event::CheckWanted(id("h/x")));
    let bundle = std::sync::Arc::new(bundle(&["h/x: 0 1, is 1, prefers 0"]));
    let (generation, in_process) = (GenerationNumber(2), Vec::new());
    b.event(Event::Go { generation, bundle: bundle.into(), in_process, order: free(2) });
    let told = status(&b);
    assert_eq!((told.phase, told.waits_for), (Phase::Waiting, vec![Wait::Check]));
    assert!(b.found("h/x", "1").contains(&"act h/x 1 -> 0, attempt 1".to_owned()));
}

#[test]
fn what_has_been_quiet_for_long_is_no_trouble_any_more() {
    let mut b = Bench::new(&[X]);
    for _ in 0..10 {
        b.event(Event::CheckWanted(id("h/x")));
        b.found("h/x", "0");
        b.after(Span::secs(5));
        b.ended("h/x", true);
    }
    assert!(matches!(&status(&b).trouble[..], [Trouble::Flap { .. }]), "{:?}", status(&b).trouble);
    assert!(b.engine.next_wakeup().is_some_and(|at| at <= b.now + Span::secs(601)), "it looks after that by itself");
    b.after(Span::secs(599));
    assert_eq!(status(&b).trouble.len(), 1);
    b.after(Span::secs(7));
    assert_eq!(status(&b).trouble, []);
    b.event(Event::Order(Order::Pause));
    assert!(b.engine.is_converged());
}
