//! An operator's limit and a cancelled switch, on a single engine.

use std::sync::Arc;

use cob_types::status::Wait;
use cob_types::{CobId, GenerationNumber, SwitchOrder};

use crate::event::{ActionOutcome, Event, Order};
use crate::testing::{Bench, bundle, switch};

fn acts(told: &[String]) -> Vec<String> {
    told.iter().filter_map(|t| Some(t.strip_prefix("act ")?.split(',').next()?.to_owned())).collect()
}

fn order(b: &mut Bench, order: Order) -> Vec<String> {
    b.event(Event::Order(order))
}

const THREE: [&str; 3] = ["h/a: 0 1, is 1, prefers 1", "h/b: 0 1, is 1, prefers 1", "h/c: 0 1, is 1, prefers 1"];

/// Asks each of [`THREE`] down, the last first and with the best rank.
fn ask_all(b: &mut Bench) -> Vec<String> {
    let mut told = Vec::new();
    for (n, cob) in ["c", "b", "a"].into_iter().enumerate() {
        let heard = b.hears(&format!("request a/x{n} of h/{cob}@0 #1.{} rank {}", 7 + n, n + 1));
        told.extend(acts(&heard));
    }
    told
}

#[test]
fn a_limit_starts_the_first_by_rank_and_the_others_report_it() {
    let mut b = Bench::new(&THREE);
    assert_eq!(order(&mut b, Order::Limit(Some(1))), ["write: Ordered(Limit(Some(1)))"]);
    assert_eq!(ask_all(&mut b), ["h/c 1 -> 0"]);
    let waits = b.engine.status(b.now).into_iter().map(|c| c.waits_for).collect::<Vec<_>>();
    let limited = vec![Wait::Limit { at_most: 1 }];
    assert_eq!(waits, [limited.clone(), limited, vec![]]);
    // Both waiting change objects have the rank of their goals; for equal ranks the lower `CobRef` decides.
    assert_eq!(acts(&b.ended("h/c", true)), ["h/a 1 -> 0"]);
    // It holds over a restart, and running actions count.
    let told = b.returns();
    assert_eq!((acts(&told), b.engine.limit()), (vec![], Some(1)));
}

#[test]
fn without_a_limit_all_that_waited_go() {
    let mut b = Bench::new(&THREE);
    order(&mut b, Order::Limit(Some(1)));
    ask_all(&mut b);
    assert_eq!(acts(&order(&mut b, Order::Limit(None))).len(), 2);
}

#[test]
fn a_limit_is_at_least_one() {
    let mut b = Bench::new(&THREE);
    order(&mut b, Order::Limit(Some(0)));
    assert_eq!(ask_all(&mut b), ["h/c 1 -> 0"]);
}

const X: &str = "h/x: 0 1, is 1, prefers 1";
const Y: &str = "h/y: 0 1, is 1, prefers 1";

fn go(generation: u64, cobs: &[&str]) -> Event {
    let to = GenerationNumber(generation);
    let order = Arc::new(SwitchOrder::free(GenerationNumber(1), to));
    switch(bundle(cobs), order, false)
}

fn cancelled(b: &mut Bench, cob: &str) -> Vec<String> {
    let cob = CobId::new(cob).expect("a name");
    let job = b.engine.running_actions().into_iter().find(|(c, _)| *c == cob).expect("it runs").1;
    b.event(Event::ActionEnded { cob, job, outcome: ActionOutcome::Cancelled, span: (0, 0) })
}

#[test]
fn a_cancelled_switch_stands_where_it_is_until_it_resumes() {
    let mut b = Bench::new(&[X, Y]);
    assert_eq!(acts(&b.event(go(2, &[X]))), ["h/y 1 -> 0"]);
    order(&mut b, Order::Cancel(GenerationNumber(2)));
    assert!(b.engine.is_paused() && !b.engine.is_paused_by_order());
    let told = cancelled(&mut b, "h/y");
    // An action that was ended on purpose is no failed attempt, but its result must be checked.
    assert!(told.contains(&"write: h/y ended badly, is unknown".to_owned()), "{told:?}");
    assert_eq!(acts(&b.found("h/y", "1")), [""; 0]);
    let told = order(&mut b, Order::Resume);
    assert!(told.contains(&"act h/y 1 -> 0, attempt 1".to_owned()), "{told:?}");
    b.ended("h/y", true);
    assert_eq!((b.engine.generation(), b.engine.cancelled()), (GenerationNumber(2), None));
}

#[test]
fn a_cancelled_switch_is_not_activated_before_its_resume() {
    let mut b = Bench::new(&[X, Y]);
    b.event(go(2, &[X]));
    order(&mut b, Order::Cancel(GenerationNumber(2)));
    b.ended("h/y", true);
    assert_eq!(b.engine.generation(), GenerationNumber(1));
    let told = order(&mut b, Order::Resume);
    assert!(told.contains(&"write: Activated(GenerationNumber(2))".to_owned()), "{told:?}");
}

#[test]
fn an_ended_cancel_continues_the_switch_and_keeps_a_pause() {
    let mut b = Bench::new(&[X, Y]);
    b.event(go(2, &[X]));
    assert_eq!(order(&mut b, Order::EndCancel), [""; 0], "nothing is held");
    order(&mut b, Order::Cancel(GenerationNumber(2)));
    b.ended("h/y", true);
    order(&mut b, Order::Pause);
    assert!(order(&mut b, Order::EndCancel).contains(&"write: Ordered(EndCancel)".to_owned()));
    assert!(b.engine.cancelled().is_none() && b.engine.is_paused_by_order());
    assert_eq!(b.engine.generation(), GenerationNumber(2), "a pause keeps nothing from being activated");
}

/// The order that replaces a cancelled switch, forward or back, must not start its actions again.
#[test]
fn a_cancelled_transition_does_not_start_in_another_generation() {
    const WAS: &str = "h/x: 0 1 2, is 1, prefers 1";
    const BAD: &str = "h/x: 0 1 2, is 1, prefers 2";
    let mut b = Bench::new(&[WAS, Y]);
    assert_eq!(acts(&b.event(go(2, &[BAD, Y]))), ["h/x 1 -> 2"]);
    order(&mut b, Order::Cancel(GenerationNumber(2)));
    cancelled(&mut b, "h/x");
    assert_eq!(acts(&b.found("h/x", "1")), [""; 0]);
    assert_eq!(acts(&b.event(go(3, &[WAS, Y]))), [""; 0]);
    assert_eq!((b.engine.generation(), b.engine.cancelled()), (GenerationNumber(3), None));
}

#[test]
fn another_generation_ends_the_hold_and_not_the_pause() {
    let mut b = Bench::new(&[X, Y]);
    b.event(go(2, &[X]));
    order(&mut b, Order::Pause);
    order(&mut b, Order::Cancel(GenerationNumber(2)));
    b.event(go(3, &[X, Y]));
    assert!(b.engine.cancelled().is_none() && b.engine.is_paused());
}
