//! Checks that cannot determine the state, and failed attempts that have reached their target all the same.

use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::status::{ActionStatus, CobStatus, Phase, Trouble, Wait};
use cob_types::{CobId, GenerationNumber, Packed, StateName};

use crate::event::{ActionOutcome, Event, Order};
use crate::testing::{Bench, bundle, free};
use crate::time::Span;

const X: &str = "h/x: 0 1, is 1, prefers 1";

fn id(text: &str) -> CobId {
    CobId::new(text).expect("a name")
}

fn status(b: &Bench) -> CobStatus {
    b.engine.status_of(&id("h/x"), b.now).expect("it is there")
}

/// A check of an idle change object cannot determine the state, and is repeated.
fn cant_tell(b: &mut Bench, times: usize) {
    b.event(Event::CheckWanted(id("h/x")));
    for _ in 0..times {
        assert_eq!(b.not_told("h/x")[0], "write: h/x can't be told");
        b.after(Span::secs(60));
    }
}

#[test]
fn an_object_fails_after_repeated_failed_checks_until_a_good_one() {
    let mut b = Bench::new(&[X]);
    cant_tell(&mut b, 2);
    assert!(b.engine.is_converged() && !status(&b).failed, "one that could not tell says little");
    b.not_told("h/x");
    assert!(!b.engine.is_converged() && status(&b).failed);
    assert_eq!(status(&b).state.expect("known").as_str(), "1", "what was known is known still");
    // A restart checks at once, and does not clear the failure before.
    assert_eq!(b.comes_back().iter().filter(|t| *t == "check h/x").count(), 1);
    assert!(!b.engine.is_converged() && status(&b).failed);
    assert_eq!(b.found("h/x", "1"), ["write: h/x found 1"]);
    assert!(b.engine.is_converged() && !status(&b).failed);
    b.returns();
    assert!(b.engine.is_converged() && !status(&b).failed, "that it was told is known, too");
}

/// A process may have died while the daemon was away: its state counts only after a check.
#[test]
fn a_recorded_state_does_not_count_before_the_first_check() {
    let mut b = Bench::new(&[X]);
    b.hears("request a/a of h/x@1 #1.7");
    assert_eq!(b.comes_back(), ["write: life 2", "a: hello", "check h/x"]);
    assert!(status(&b).state.is_none() && !b.engine.is_converged());
    b.meet("a");
    assert_eq!(b.hears("request a/b of h/x@1 #1.8"), [""; 0], "nothing is promised");
    assert_eq!(b.hears("request a/a of h/x@1 #1.7"), ["a: grant h/x@1 to a/a #1.7 rev 0"], "what was promised stands");
    // A further restart in between loses no data.
    b.comes_back();
    b.meet("a");
    assert_eq!(b.not_told("h/x"), ["write: h/x can't be told"]);
    b.after(Span::secs(1));
    let found = b.found("h/x", "0");
    assert!(found.contains(&"write: h/x found 0, drifted".to_owned()), "{found:?}");
    assert!(found.contains(&"a: lapsed a/a of h/x #1.7".to_owned()), "{found:?}");
}

/// An action with the old content does not count for the new content; a waiting action is ended by the daemon.
#[test]
fn an_action_whose_content_changes_is_named_and_made_again_when_it_has_ended() {
    let x = "h/x: 0 1, is 0, prefers 1";
    let mut b = Bench::new(&[x]);
    let mut other = bundle(&[x]);
    Arc::make_mut(other.cobs.get_mut(&id("h/x")).expect("it is there")).fingerprint = Fingerprint([8; 16]);
    let (bundle, in_process) = (Arc::new(Packed::decoded(&other)), Vec::new());
    b.event(Event::Switch { rollback: false, generation: GenerationNumber(2), bundle, in_process, order: free(2) });
    let name = |text| StateName::new(text).expect("a name");
    assert_eq!(b.engine.actions_with_earlier_content(), [(id("h/x"), name("0"), name("1"))]);
    assert!(status(&b).action.expect("it acts").earlier_content);
    let (cob, job) = b.engine.running_actions().remove(0);
    let told = b.event(Event::ActionEnded { cob, job, outcome: ActionOutcome::Cancelled, span: (0, 0) });
    assert!(told.contains(&"check h/x".to_owned()), "{told:?}");
    assert!(b.found("h/x", "0").contains(&"act h/x 0 -> 1, attempt 1".to_owned()));
    assert!(b.engine.actions_with_earlier_content().is_empty());
}

#[test]
fn a_state_on_record_that_the_first_check_finds_counts_as_before() {
    let mut b = Bench::new(&[X]);
    let since = status(&b).since_ns;
    b.after(Span::secs(5));
    b.comes_back();
    assert_eq!(b.found("h/x", "1"), [""; 0], "there is nothing to be written");
    assert!(b.engine.is_converged());
    assert_eq!(status(&b).since_ns, since);
}

/// A check finds it in its preferred state, and the next, after this span, in another.
fn converged_for(b: &mut Bench, span: Span) -> Vec<String> {
    b.found("h/x", "1");
    assert!(b.engine.is_converged());
    b.after(span);
    b.event(Event::CheckWanted(id("h/x")));
    b.found("h/x", "0")
}

#[test]
fn attempts_count_no_more_once_it_has_been_home_for_long() {
    let mut b = Bench::new(&["h/x: 0 1, is 0, prefers 1, retries 2"]);
    b.ended("h/x", false);
    assert!(converged_for(&mut b, Span::secs(70)).contains(&"act h/x 0 -> 1, attempt 1".to_owned()));
    b.ended("h/x", false);
    let told = converged_for(&mut b, Span::secs(1));
    assert_eq!(
        told,
        ["write: h/x found 0, drifted"],
        "what comes up and does not stay has failed: the next one is the second"
    );
    assert!(b.after(Span::secs(60)).contains(&"act h/x 0 -> 1, attempt 2".to_owned()));
    b.ended("h/x", false);
    converged_for(&mut b, Span::secs(1));
    assert!(b.after(Span::secs(60)).contains(&"act h/x 0 -> 1, attempt 3".to_owned()));
    b.ended("h/x", false);
    assert!(status(&b).failed, "and so it gives up");
}

#[test]
fn a_failed_object_found_in_its_target_is_not_failed() {
    let mut b = Bench::new(&["h/x: 0 1, is 0, prefers 1, retries 0"]);
    b.ended("h/x", false);
    assert!(status(&b).failed);
    b.found("h/x", "1");
    assert!(!status(&b).failed && b.engine.is_converged());
    b.returns();
    assert!(!status(&b).failed && b.engine.is_converged());
    let gives_up_and_returns = |b: &mut Bench, forgets: bool| {
        b.event(Event::CheckWanted(id("h/x")));
        b.found("h/x", "0");
        b.ended("h/x", false);
        b.found("h/x", "0");
        assert!(status(b).failed);
        if forgets {
            b.durable.cobs.get_mut(&id("h/x")).expect("it is on record").missed = None;
        }
        b.returns();
        b.event(Event::CheckWanted(id("h/x")));
        b.found("h/x", "1");
    };
    gives_up_and_returns(&mut b, false);
    assert!(!status(&b).failed && b.engine.is_converged(), "where its attempts led is known after a return, too");
    // The previous version did not write it: a failure remains until a new order.
    let mut b = Bench::new(&["h/x: 0 1, is 1, prefers 1, retries 0"]);
    gives_up_and_returns(&mut b, true);
    assert!(status(&b).failed);
}

#[test]
fn why_it_has_given_up_is_known_after_a_return() {
    let mut b = Bench::new(&["h/x: 0 1, is 0, prefers 1, retries 1"]);
    b.ended("h/x", false);
    b.found("h/x", "0");
    let told = status(&b).action.expect("one attempt has failed");
    assert_eq!((told.attempt, told.of, told.error.as_str()), (1, 2, "no"), "a check takes nothing of it back");
    b.after(Span::secs(60));
    b.ended("h/x", false);
    b.found("h/x", "0");
    let before = status(&b);
    assert!(before.failed);
    b.returns();
    let after = status(&b);
    assert_eq!((after.failed, after.waits_for), (true, before.waits_for));
    let why = |of: Option<ActionStatus>| of.map(|a| (a.from, a.to, a.attempt, a.of, a.running, a.error));
    let step = (
        Some(StateName::new("0").expect("a name")),
        Some(StateName::new("1").expect("a name")),
        2,
        2,
        false,
        "no".to_owned(),
    );
    assert_eq!((why(before.action), why(after.action)), (Some(step.clone()), Some(step)));
    // After a retry it is reported until the next end, and then no more.
    b.event(Event::Order(Order::Retry(id("h/x"))));
    b.returns();
    b.ended("h/x", true);
    assert_eq!(status(&b).action, None);
}

#[test]
fn the_next_generation_resets_the_count_of_failed_checks() {
    let mut b = Bench::new(&[X]);
    cant_tell(&mut b, 3);
    assert!(status(&b).failed);
    let bundle = std::sync::Arc::new(Packed::decoded(&bundle(&[X, "h/y: 0 1, is 1, prefers 1"])));
    let (generation, in_process) = (GenerationNumber(2), Vec::new());
    b.event(Event::Switch { rollback: false, generation, bundle, in_process, order: free(2) });
    assert!(!status(&b).failed, "nothing of it counts in this one");
    b.found("h/y", "1");
    b.not_told("h/x");
    assert!(!status(&b).failed);
    b.returns();
    assert!(!status(&b).failed, "nor after a return");
}

#[test]
fn an_object_that_waits_for_its_own_check_reports_it() {
    let mut b = Bench::new(&[X]);
    b.event(Event::CheckWanted(id("h/x")));
    let bundle = std::sync::Arc::new(Packed::decoded(&bundle(&["h/x: 0 1, is 1, prefers 0"])));
    let (generation, in_process) = (GenerationNumber(2), Vec::new());
    b.event(Event::Switch { rollback: false, generation, bundle, in_process, order: free(2) });
    let told = status(&b);
    assert_eq!((told.phase, told.waits_for), (Phase::Waiting, vec![Wait::Check]));
    assert!(b.found("h/x", "1").contains(&"act h/x 1 -> 0, attempt 1".to_owned()));
}

#[test]
fn a_report_of_repeated_drift_ends_after_a_quiet_time() {
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
