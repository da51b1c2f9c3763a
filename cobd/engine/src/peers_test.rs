//! Hellos: which numbers of other incarnations count, and the messages of a restarted daemon.

use cob_types::HostName;
use cob_types::status::Unheard;

use crate::event::{Event, Order};
use crate::testing::Bench;
use crate::time::Span;

#[test]
fn the_first_words_to_a_host_begin_with_a_hello() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    // z's incarnation is unknown: its messages do not count, and it gets a hello.
    assert_eq!(b.hears("request z/z of h/b@1 #1.7"), ["z: hello"]);
    assert_eq!(b.meet("z"), ["z: hello-ack 1"]);
    assert_eq!(
        b.hears("request z/z of h/b@1 #1.7"),
        ["write: h/b@1 granted to z/z #1.7", "z: grant h/b@1 to z/z #1.7 rev 0"]
    );
}

#[test]
fn a_hello_is_repeated_until_it_is_acknowledged() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request z/z of h/b@1 #1.7");
    assert_eq!(b.after(Span::millis(999)), [""; 0]);
    assert_eq!(b.after(Span::millis(1)), ["z: hello"]);
    b.meet("z");
    assert_eq!(b.after(Span::secs(60)), [""; 0]);
}

#[test]
fn numbers_that_a_hello_does_not_name_are_forgotten() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 0"]);
    // It prefers 0, and was on its way there: it goes, and comes back for a.
    b.ended("h/b", true);
    b.hears("request a/a of h/b@1 #1.7");
    b.ended("h/b", true);
    b.restarted("a");
    assert_eq!(
        b.hears_together("a", &["hello"]),
        [
            "write: h/b back from a/a #1.7",
            "write: h/b begins 1 -> 0",
            "a: hello",
            "a: hello-ack 2",
            "act h/b 1 -> 0, attempt 1"
        ]
    );
}

#[test]
fn numbers_that_a_hello_names_stand() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 0"]);
    b.ended("h/b", true);
    b.hears("request a/a of h/b@1 #1.7");
    b.ended("h/b", true);
    b.restarted("a");
    assert_eq!(b.hears("hello a/a of h/b #1.7"), ["a: hello", "a: hello-ack 2 grant h/b@1 to a/a #1.7 rev 0"]);
}

#[test]
fn messages_of_an_older_incarnation_are_ignored() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.7");
    b.restarted("a");
    b.hears("hello a/a of h/b #1.7");
    assert_eq!(b.hears_late("release a/a of h/b #1.7"), [""; 0]);
    assert_eq!(b.hears("release a/a of h/b #1.7"), ["write: h/b back from a/a #1.7", "a: released a/a of h/b #1.7"]);
}

#[test]
fn a_replaced_state_folder_counts_again_after_its_next_restart() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    let host = HostName::new("a").expect("a host");
    assert_eq!(b.engine.unheard(&host), None);
    b.replaced("a", 7);
    b.hears_together("a", &["hello"]);
    b.replaced("a", 99);
    assert_eq!(b.hears("request a/a of h/b@1 #1.7"), [""; 0], "late words of the folder before");
    assert_eq!(b.engine.unheard(&host), Some(Unheard::Replaced));
    b.restarted("a");
    b.hears_together("a", &["hello"]);
    assert_eq!(b.engine.unheard(&host), None);
    assert!(b.hears("request a/a of h/b@1 #2.7").contains(&"write: h/b@1 granted to a/a #2.7".to_owned()));
}

#[test]
fn that_a_fenced_life_speaks_is_known() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    let host = HostName::new("a").expect("a host");
    b.event(Event::Order(Order::Fence(host.clone())));
    assert_eq!(b.hears("request a/a of h/b@1 #1.7"), [""; 0]);
    assert_eq!(b.engine.unheard(&host), Some(Unheard::Fenced));
    b.restarted("a");
    b.hears_together("a", &["hello"]);
    assert_eq!(b.engine.unheard(&host), None);
}

#[test]
fn a_restart_names_the_locks_under_actions_and_grants() {
    let mut b = Bench::new(&[
        "h/b: 0 1, is 1, prefers 1, lock 1 <- d/d@1",
        "h/c: 0 1, prefers 1, transition 0 1 <- e/e@1",
        "h/w: 0 1, prefers 1, transition 0 1 <- f/f@1",
    ]);
    b.hears("request a/a of h/b@1 #1.9");
    let asked: Vec<String> = b.after(Span::secs(1));
    let number = |of: &str| {
        let line = asked.iter().find(|l| l.contains(&format!("of {of}@"))).expect("it is asked for");
        line.split('#').nth(1).and_then(|l| l.split(' ').next()).expect("a number").to_owned()
    };
    let (d, e) = (number("d/d"), number("e/e"));
    b.hears(&format!("grant d/d@1 to h/b #{d}"));
    b.hears(&format!("grant e/e@1 to h/c #{e}"));
    // c acts under e's grant, b's grant to a relies on d's; w only asks f, which needs no entry in the hello.
    let said = b.returns();
    assert_eq!(
        said,
        [
            "write: life 2".to_owned(),
            format!("d: hello h/b of d/d #{d}"),
            format!("e: hello h/c of e/e #{e}"),
            "f: hello".to_owned(),
            "a: hello".to_owned(),
            "note: h/w asks f/f@1".to_owned(),
            "f: request h/w of f/f@1 #2.3 rev 0 rank 11 from h/w".to_owned(),
        ]
    );
}

#[test]
fn a_restored_lock_supports_no_new_grant_before_its_confirmation() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1, lock 1 <- d/d@1"]);
    b.hears("request a/a of h/b@1 #1.7");
    b.hears("grant d/d@1 to h/b #1.2");
    b.returns();
    b.meet("a");
    assert_eq!(b.hears("request a/x of h/b@1 #1.8"), [""; 0]);
    assert_eq!(
        b.hears_together("d", &["hello", "hello-ack 2 d/d@1 to h/b #1.2"]),
        ["write: h/b@1 granted to a/x #1.8, on d/d@1 #1.2", "d: hello-ack 1", "a: grant h/b@1 to a/x #1.8 rev 0"]
    );
}

#[test]
fn a_restored_lock_that_its_granter_does_not_know_is_lost() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1, lock 1 <- d/d@1"]);
    b.hears("request a/a of h/b@1 #1.7");
    b.hears("grant d/d@1 to h/b #1.2");
    b.returns();
    b.meet("a");
    let said = b.hears_together("d", &["hello", "hello-ack 2"]);
    assert_eq!(said, ["note: h/b wants it back from a/a", "d: hello-ack 1", "a: recall a/a of h/b #1.7"]);
}

#[test]
fn a_grant_from_before_a_restart_is_queried() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.7");
    assert_eq!(b.returns(), ["write: life 2", "a: hello"]);
    assert_eq!(b.meet("a"), ["a: hello-ack 1", "a: query a/a of h/b #1.7"]);
    assert_eq!(b.hears("request a/a of h/b@1 #1.7"), ["a: grant h/b@1 to a/a #1.7 rev 0"]);
}

#[test]
fn an_action_that_runs_at_a_return_is_waited_for() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    b.hears("grant d/d@1 to h/c #1.2");
    assert_eq!(b.returns(), ["write: life 2", "d: hello h/c of d/d #1.2"]);
    let confirmed = b.hears_together("d", &["hello", "hello-ack 2 d/d@1 to h/c #1.2"]);
    assert_eq!(confirmed, ["d: hello-ack 1"]);
    assert_eq!(b.ended("h/c", true), ["write: h/c ended well, is unknown", "check h/c"]);
    assert_eq!(b.found("h/c", "1"), ["write: h/c found 1", "note: h/c gives d/d back", "d: release h/c of d/d #1.2"]);
}

#[test]
fn an_action_whose_lock_its_granter_does_not_know_is_checked_when_it_has_ended() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    b.hears("grant d/d@1 to h/c #1.2");
    b.returns();
    b.hears_together("d", &["hello", "hello-ack 2"]);
    assert_eq!(
        b.ended("h/c", true),
        ["write: h/c ended well, is unknown", "note: h/c gives d/d back", "d: release h/c of d/d #1.2", "check h/c"]
    );
}

#[test]
fn a_restarted_peer_is_told_of_locks_from_before_this_incarnation() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1, lock 1 <- d/d@1"]);
    b.hears("request a/a of h/b@1 #1.7");
    b.hears("grant d/d@1 to h/b #1.2");
    b.returns();
    b.hears_together("d", &["hello", "hello-ack 2 d/d@1 to h/b #1.2"]);
    // d's daemon restarts in its turn: it would forget the numbers that our hello does not name.
    b.restarted("d");
    assert_eq!(b.hears_together("d", &["hello"])[0], "d: hello h/b of d/d #1.2");
}

#[test]
fn a_second_fence_has_no_effect() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    let a = HostName::new("a").expect("a name");
    b.hears("request a/a of h/b@1 #1.7");
    assert!(!b.engine.is_fenced(&a));
    b.event(Event::Order(Order::Fence(a.clone())));
    assert!(b.engine.is_fenced(&a));
    for _ in 0..2 {
        assert_eq!(b.hears("request a/a of h/b@1 #1.8"), [""; 0], "words of the fenced life");
        assert_eq!(b.hears_together("a", &["hello"]), [""; 0]);
        assert!(b.engine.is_fenced(&a));
        // A repeated fence changes nothing.
        b.event(Event::Order(Order::Fence(a.clone())));
    }
    b.returns();
    assert_eq!(b.hears_together("a", &["hello"]), [""; 0], "nor after a return");
    assert!(
        b.engine.counts_as_off(&a)
            && b.engine.is_unknown(&a)
            && b.engine.is_unknown(&HostName::new("unknown").expect("a name"))
    );
    b.restarted("a");
    b.hears_together("a", &["hello"]);
    assert!(!b.engine.is_fenced(&a), "its next life is not");
}

#[test]
fn a_host_with_a_grant_from_before_a_restart_can_be_fenced() {
    let mut b = Bench::new(&["h/b: 0 1, is 1, prefers 1"]);
    b.hears("request a/a of h/b@1 #1.7");
    b.returns();
    let a = HostName::new("a").expect("a name");
    assert!(!b.engine.is_fenced(&a));
    b.event(Event::Order(Order::Fence(a.clone())));
    assert!(b.engine.is_fenced(&a));
}
