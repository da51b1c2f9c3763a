//! Budgets: which members take a token and when, how many there are, and the case that no holder can come back.

use cob_types::status::Wait;
use cob_types::{CobId, GenerationNumber};

use crate::event::{Event, Order};
use crate::testing::{Bench, bundle, free, switch};
use crate::time::Span;

#[test]
fn an_object_holds_a_token_until_it_is_in_its_preferred_state() {
    let mut b = Bench::new(&["h/m: 0 1, is 1, prefers 1, transition 1 0 <- e/e@1, budget d/b"]);
    // It asks nothing of e, and recalls no grant, before it has the token.
    assert_eq!(
        b.hears("request a/a of h/m@0 #1.7"),
        ["note: h/m asks d/b@open", "d: request h/m of d/b@open #1.2 rev 0 rank 10 from a/a"]
    );
    assert_eq!(
        b.hears("request a/x of h/m@1 #1.9"),
        ["write: h/m@1 granted to a/x #1.9", "a: grant h/m@1 to a/x #1.9 rev 0"]
    );
    assert_eq!(
        b.hears("grant d/b@open to h/m #1.2"),
        [
            "note: h/m holds d/b@open",
            "note: h/m asks e/e@1",
            "note: h/m wants it back from a/x",
            "e: request h/m of e/e@1 #1.3 rev 0 rank 10 from a/a",
            "a: recall a/x of h/m #1.9"
        ]
    );
    b.hears("release a/x of h/m #1.9");
    assert_eq!(
        b.hears("grant e/e@1 to h/m #1.3"),
        [
            "note: h/m holds e/e@1",
            "write: h/m begins 1 -> 0, on e/e@1 #1.3, with a token of d/b #1.2",
            "act h/m 1 -> 0, attempt 1"
        ]
    );
    assert_eq!(
        b.ended("h/m", true),
        [
            "write: h/m ended well, is 0, with a token of d/b #1.2",
            "note: h/m gives e/e back",
            "write: h/m@0 granted to a/a #1.7",
            "e: release h/m of e/e #1.3",
            "a: grant h/m@0 to a/a #1.7 rev 0"
        ]
    );
    assert_eq!(
        b.hears("release a/a of h/m #1.7"),
        [
            "write: h/m back from a/a #1.7",
            "write: h/m begins 0 -> 1, with a token of d/b #1.2",
            "a: released a/a of h/m #1.7",
            "act h/m 0 -> 1, attempt 1"
        ]
    );
    assert_eq!(
        b.ended("h/m", true),
        ["write: h/m ended well, is 1", "note: h/m gives d/b back", "d: release h/m of d/b #1.2"]
    );
}

#[test]
fn an_outdated_object_takes_a_token() {
    let mut b = Bench::new(&["h/m: 0 1 outdated, is outdated, prefers 1, budget d/b"]);
    assert_eq!(
        b.hears("grant d/b@open to h/m #1.2"),
        [
            "note: h/m holds d/b@open",
            "write: h/m begins outdated -> 1, with a token of d/b #1.2",
            "act h/m outdated -> 1, attempt 1"
        ]
    );
}

#[test]
fn a_first_start_takes_no_token() {
    let mut b = Bench::new(&["h/m: 0 1, is 0, prefers 1, budget d/b"]);
    assert_eq!(b.ended("h/m", true), ["write: h/m ended well, is 1"]);
}

#[test]
fn a_failed_object_keeps_its_token() {
    let mut b = Bench::new(&["h/m: 0 1, is 1, prefers 1, budget d/b, fails in 0"]);
    b.hears("request a/a of h/m@0 #1.7");
    b.hears("grant d/b@open to h/m #1.2");
    b.ended("h/m", true);
    b.hears("release a/a of h/m #1.7");
    assert_eq!(
        b.ended("h/m", false),
        [
            "write: h/m ended badly, is 0, gave up, with a token of d/b #1.2",
            "d: request h/m of d/b@open #1.2 rev 1 rank 11 from h/m failed"
        ]
    );
}

#[test]
fn a_member_that_fails_where_it_still_serves_keeps_its_token() {
    let mut b = Bench::new(&["h/m: 0 1 outdated, is outdated, prefers 1, budget d/b, fails in outdated"]);
    b.hears("grant d/b@open to h/m #1.2");
    assert_eq!(
        b.ended("h/m", false),
        [
            "write: h/m ended badly, is outdated, gave up, with a token of d/b #1.2",
            "d: request h/m of d/b@open #1.2 rev 1 rank 11 from h/m failed"
        ]
    );
    // A check that finds its present state releases nothing; nor does a restart of the daemon.
    assert_eq!(b.found("h/m", "outdated"), [""; 0]);
    assert_eq!(
        b.returns(),
        ["write: life 2", "d: hello h/m of d/b #1.2", "d: request h/m of d/b@open #1.2 rev 1 rank 11 from h/m failed"]
    );
}

#[test]
fn a_member_that_fails_to_leave_its_preferred_state_keeps_its_token_until_a_retry() {
    let mut b = Bench::new(&["h/m: 0 1, is 1, prefers 1, budget d/b, fails in 1"]);
    b.hears("request a/a of h/m@0 #1.7");
    b.hears("grant d/b@open to h/m #1.2");
    assert_eq!(
        b.ended("h/m", false),
        [
            "write: h/m ended badly, is 1, gave up, with a token of d/b #1.2",
            "d: request h/m of d/b@open #1.2 rev 1 rank 10 from a/a failed"
        ]
    );
    assert_eq!(b.hears("release a/a of h/m #1.7"), ["a: released a/a of h/m #1.7"]);
    assert_eq!(
        b.event(Event::Order(Order::Retry(CobId::new("h/m").expect("an id")))),
        ["write: Ordered(Retry(h/m))", "note: h/m gives d/b back", "d: release h/m of d/b #1.2"]
    );
}

#[test]
fn a_released_request_ends_its_request_for_a_token() {
    let mut b = Bench::new(&["h/m: 0 1, is 1, prefers 1, budget d/b"]);
    b.hears("request a/a of h/m@0 #1.7");
    assert_eq!(b.hears("release a/a of h/m #1.7"), ["a: released a/a of h/m #1.7", "d: release h/m of d/b #1.2"]);
}

#[test]
fn a_restarted_daemon_still_has_its_token() {
    let mut b = Bench::new(&["h/m: 0 1, is 1, prefers 1, budget d/b"]);
    b.hears("request a/a of h/m@0 #1.7");
    b.hears("grant d/b@open to h/m #1.2");
    b.ended("h/m", true);
    assert_eq!(b.returns(), ["write: life 2", "d: hello h/m of d/b #1.2", "a: hello"]);
}

#[test]
fn a_budget_gives_so_many_by_rank_and_name() {
    let mut b = Bench::new(&["h/b: open, is open, prefers open, at most 1"]);
    let asked = ["y@open #1.7 rank 5", "x@open #1.8 rank 5", "z@open #1.9 rank 3"];
    let asked = asked.map(|a| a.replacen('@', " of h/b@", 1)).map(|a| format!("request a/{a}"));
    assert_eq!(
        b.hears_together("a", &asked.each_ref().map(String::as_str)),
        ["write: h/b@open granted to a/z #1.9", "a: grant h/b@open to a/z #1.9 rev 0"]
    );
    let mut next = |back: &str| b.hears(back).pop().expect("the next one's grant");
    assert_eq!(next("release a/z of h/b #1.9"), "a: grant h/b@open to a/x #1.8 rev 0");
    assert_eq!(next("release a/x of h/b #1.8"), "a: grant h/b@open to a/y #1.7 rev 0");
}

#[test]
fn an_operator_lets_a_budget_give_fewer_and_tokens_that_are_out_stay_out() {
    let limit = |at_most| Event::Order(Order::LimitBudget(CobId::new("h/b").expect("an id"), at_most));
    let mut b = Bench::new(&["h/b: open, is open, prefers open, at most 2"]);
    b.hears("request a/x of h/b@open #1.7 rank 5");
    b.hears("request a/y of h/b@open #1.8 rank 6");
    b.hears("request a/z of h/b@open #1.9 rank 7");
    assert_eq!(b.event(limit(Some(1))), ["write: Ordered(LimitBudget(h/b, Some(1)))"]);
    // The first released token exceeds the limit; the second goes to the waiting member.
    let given = |told: Vec<String>| told.into_iter().filter(|t| t.contains(": grant")).collect::<Vec<_>>();
    assert_eq!(given(b.hears("release a/x of h/b #1.7")), [""; 0]);
    assert_eq!(given(b.hears("release a/y of h/b #1.8")), ["a: grant h/b@open to a/z #1.9 rev 0"]);
    b.hears("request a/x of h/b@open #1.10 rank 5");
    // Without the limit, and with a limit beyond the model's number, the model's number counts.
    assert_eq!(given(b.event(limit(Some(7)))), ["a: grant h/b@open to a/x #1.10 rev 0"]);
    assert_eq!(given(b.hears("request a/y of h/b@open #1.11 rank 6")), [""; 0]);
    // It holds over a restart.
    b.returns();
    assert_eq!(b.engine.limited_budgets().into_values().collect::<Vec<_>>(), [7]);
    b.event(limit(None));
    assert!(b.engine.limited_budgets().is_empty());
}

#[test]
fn a_budget_with_a_failed_holder_gives_no_more_tokens() {
    let given = |told: Vec<String>| told.into_iter().filter(|t| t.contains(": grant")).collect::<Vec<_>>();
    let mut b = Bench::new(&["h/b: open, is open, prefers open, at most 3"]);
    b.hears("request a/x of h/b@open #1.7 rank 5");
    b.hears("request a/x of h/b@open #1.7 rev 1 rank 5 failed");
    assert_eq!(given(b.hears("request a/y of h/b@open #1.8 rank 6")), [""; 0]);
    let status = |b: &Bench| b.engine.status_of(&CobId::new("h/b").expect("an id"), b.now).expect("there");
    assert!(status(&b).held_by[0].stops);
    // It is on record: a restarted daemon grants no more either.
    b.returns();
    b.meet("a");
    assert_eq!(given(b.hears("request a/z of h/b@open #1.9 rank 7")), [""; 0]);
    // An operator sets how many are granted all the same.
    let raise = |at_most| Event::Order(Order::RaiseBudget(CobId::new("h/b").expect("an id"), at_most));
    assert_eq!(given(b.event(raise(Some(2)))), ["a: grant h/b@open to a/z #1.9 rev 0"]);
    b.event(raise(None));
    // Or the holder is tried again.
    assert_eq!(given(b.hears("request a/y of h/b@open #1.8 rank 6")), [""; 0]);
    let told = b.hears("request a/x of h/b@open #1.7 rev 2 rank 5");
    assert!(given(told).contains(&"a: grant h/b@open to a/y #1.8 rev 0".to_owned()));
    assert!(!status(&b).held_by[0].stops);
}

#[test]
fn an_operator_raises_a_budget_until_the_next_generation() {
    let raise = |at_most| Event::Order(Order::RaiseBudget(CobId::new("h/b").expect("an id"), at_most));
    let given = |told: Vec<String>| told.into_iter().filter(|t| t.contains(": grant")).collect::<Vec<_>>();
    let mut b = Bench::new(&["h/b: open, is open, prefers open, at most 1"]);
    b.hears("request a/x of h/b@open #1.7 rank 5");
    b.hears("request a/y of h/b@open #1.8 rank 6");
    b.hears("request a/z of h/b@open #1.9 rank 7");
    assert_eq!(given(b.event(raise(Some(2)))), ["a: grant h/b@open to a/y #1.8 rev 0"]);
    // It holds over a restart of the daemon, and a limit has precedence.
    b.returns();
    assert_eq!(b.engine.raised_budgets().into_values().collect::<Vec<_>>(), [2]);
    b.event(Event::Order(Order::LimitBudget(CobId::new("h/b").expect("an id"), Some(1))));
    assert_eq!(given(b.hears("release a/x of h/b #1.7")), [""; 0]);
    b.event(Event::Order(Order::LimitBudget(CobId::new("h/b").expect("an id"), None)));
    assert_eq!(b.engine.status_of(&CobId::new("h/b").expect("an id"), b.now).expect("there").held_by.len(), 2);
    // The next generation uses the number of its model.
    let bundle = bundle(&["h/b: open, is open, prefers open, at most 1"]);
    b.event(switch(bundle, free(2), false));
    assert_eq!(b.engine.generation(), GenerationNumber(2));
    assert!(b.engine.raised_budgets().is_empty());
}

#[test]
fn a_budget_in_deadlock_gives_an_extra_token() {
    let mut b = Bench::new(&["h/b: open, is open, prefers open, at most 2"]);
    for (cob, number) in [("x", 7), ("y", 8), ("z", 9)] {
        b.hears(&format!("request a/{cob} of h/b@open #1.{number} rank 5"));
    }
    // It probes each holder in turn, the next as soon as the previous is known to wait for z.
    assert_eq!(b.after(Span::millis(200)), ["a: probe of h/b to a/y #1.2 via h/b wide"]);
    assert_eq!(b.hears("probe of h/b to h/b #1.2 via h/b a/y a/z"), [""; 0]);
    assert_eq!(b.after(Span::millis(0)), ["a: probe of h/b to a/x #1.3 via h/b wide"]);
    assert_eq!(
        b.hears("probe of h/b to h/b #1.3 via h/b a/x a/z"),
        ["note: h/b is overdrawn by a/z", "write: h/b@open granted to a/z #1.9", "a: grant h/b@open to a/z #1.9 rev 0"]
    );
}

#[test]
fn a_holder_that_comes_back_leaves_the_number_as_it_is() {
    let mut b = Bench::new(&["h/b: open, is open, prefers open, at most 2"]);
    for (cob, number) in [("x", 7), ("y", 8), ("z", 9), ("w", 10)] {
        b.hears(&format!("request a/{cob} of h/b@open #1.{number} rank 5"));
    }
    b.after(Span::millis(200));
    b.hears("probe of h/b to h/b #1.2 via h/b a/y a/z");
    // The result for y belongs to an earlier time.
    b.hears("release a/x of h/b #1.7");
    assert_eq!(b.hears("probe of h/b to h/b #1.2 via h/b a/y a/z"), [""; 0]);
    assert_eq!(b.after(Span::millis(200)), ["a: probe of h/b to a/w #1.4 via h/b wide"]);
}

#[test]
fn a_wait_for_a_token_differs_from_a_wait_for_a_lock() {
    let mut b = Bench::new(&["h/m: 0 1, is 1, prefers 1, lock 1 <- e/e@1, budget d/b"]);
    b.hears("request a/x of h/m@1 #1.9");
    b.hears("request a/a of h/m@0 #1.7");
    let status = b.engine.status_of(&CobId::new("h/m").expect("a name"), b.now).expect("it is there");
    let of = |wait: &Wait| match wait {
        Wait::Token { cob, .. } => Some(("token", cob.to_string())),
        Wait::Lock { cob, .. } => Some(("lock", cob.to_string())),
        Wait::Grant { .. }
        | Wait::Retry { .. }
        | Wait::Failed
        | Wait::Paused
        | Wait::Rest { .. }
        | Wait::NoRoute { .. }
        | Wait::Leaving
        | Wait::After { .. }
        | Wait::Observed { .. }
        | Wait::Limit { .. }
        | Wait::Check
        | Wait::Other => None,
    };
    let mut told: Vec<_> = status.waits_for.iter().map(of).collect();
    told.sort();
    assert_eq!(told, [Some(("lock", "e/e".to_owned())), Some(("token", "d/b".to_owned()))]);
}
