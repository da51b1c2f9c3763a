//! An operator's stop, start and restart of change objects.

use cob_types::CobId;
use cob_types::status::{Stopped, Wait};

use crate::event::{Event, Order};
use crate::testing::Bench;

const WEB: &str = "h/web: 0 1, is 1, prefers 1";

fn cob(id: &str) -> CobId {
    CobId::new(id).expect("an id")
}

fn stop(b: &mut Bench, id: &str, restart: bool) -> Vec<String> {
    let stopped = Stopped { who: "alice".to_owned(), restart, with: None, until_boot: false };
    b.event(Event::Order(Order::Stop(cob(id), stopped)))
}

fn start(b: &mut Bench, id: &str) -> Vec<String> {
    b.event(Event::Order(Order::Start(cob(id))))
}

fn written(id: &str, restart: bool) -> String {
    let stopped = Stopped { who: "alice".to_owned(), restart, with: None, until_boot: false };
    format!("write: Ordered(Stop({id}, {stopped:?}))")
}

#[test]
fn a_stopped_object_stays_stopped_over_a_restart_of_the_daemon() {
    let mut b = Bench::new(&[WEB]);
    let begins =
        |from, to| [format!("write: h/web begins {from} -> {to}"), format!("act h/web {from} -> {to}, attempt 1")];
    assert_eq!(stop(&mut b, "h/web", false), [&[written("h/web", false)][..], &begins(1, 0)].concat());
    assert_eq!(b.ended("h/web", true), ["write: h/web ended well, is 0"]);
    assert!(b.engine.is_converged(), "it is where it should be");
    b.returns();
    assert_eq!(b.found("h/web", "0"), [""; 0]);
    let status = b.engine.status_of(&cob("h/web"), b.now).expect("it is here");
    assert_eq!((status.preferred.as_str(), status.stopped.map(|s| s.who).as_deref()), ("0", Some("alice")));
    assert_eq!(start(&mut b, "h/web"), [&["write: Ordered(Start(h/web))".to_owned()][..], &begins(0, 1)].concat());
    assert_eq!(b.ended("h/web", true), ["write: h/web ended well, is 1"]);
}

#[test]
fn a_restart_stops_it_once() {
    let mut b = Bench::new(&[WEB]);
    stop(&mut b, "h/web", true);
    assert_eq!(
        b.ended("h/web", true),
        [
            "write: h/web ended well, is 0",
            "write: Ordered(Start(h/web))",
            "write: h/web begins 0 -> 1",
            "act h/web 0 -> 1, attempt 1"
        ]
    );
    assert_eq!(b.ended("h/web", true), ["write: h/web ended well, is 1"]);
    assert!(b.engine.stopped().is_empty());
}

#[test]
fn a_restart_whose_stop_outlives_the_daemon_goes_on() {
    let mut b = Bench::new(&[WEB]);
    stop(&mut b, "h/web", true);
    b.returns();
    b.ended("h/web", true);
    let said = b.found("h/web", "0");
    assert!(said.contains(&"write: Ordered(Start(h/web))".to_owned()), "{said:?}");
    assert!(said.contains(&"act h/web 0 -> 1, attempt 1".to_owned()), "{said:?}");
}

#[test]
fn a_stopped_object_refuses_requests_for_its_running_state() {
    let mut b = Bench::new(&[WEB]);
    b.hears("request a/a of h/web@1 #1.7");
    assert_eq!(
        stop(&mut b, "h/web", false),
        [
            written("h/web", false),
            "note: h/web wants it back from a/a".to_owned(),
            "a: refused a/a of h/web #1.7: stopped by order of alice".to_owned(),
            "a: recall a/a of h/web #1.7".to_owned(),
        ]
    );
    b.hears("release a/a of h/web #1.7");
    b.ended("h/web", true);
    assert_eq!(b.hears("request a/a of h/web@1 #1.8"), ["a: refused a/a of h/web #1.8: stopped by order of alice"]);
    // Requests for the stopped state are served, and so are departures.
    assert_eq!(
        b.hears("request a/x of h/web@0 #1.9").last().map(String::as_str),
        Some("a: grant h/web@0 to a/x #1.9 rev 0")
    );
    b.hears("release a/x of h/web #1.9");
    start(&mut b, "h/web");
    assert_eq!(b.ended("h/web", true).last().map(String::as_str), Some("a: grant h/web@1 to a/a #1.8 rev 0"));
}

#[test]
fn a_dependent_stops_first_and_starts_last() {
    let app = "h/app: 0 1, is 1, prefers 1, transition 0 1 <- h/web@1, lock 1 <- h/web@1";
    let web = "h/web: 0 1, is 1, prefers 1, transition 1 0 <- h/app@0";
    let mut b = Bench::new(&[app, web]);
    assert!(stop(&mut b, "h/web", false).contains(&"act h/app 1 -> 0, attempt 1".to_owned()));
    assert!(b.ended("h/app", true).contains(&"act h/web 1 -> 0, attempt 1".to_owned()));
    b.ended("h/web", true);
    let status = b.engine.status_of(&cob("h/app"), b.now).expect("it is here");
    let refused =
        |wait: &Wait| matches!(wait, Wait::Lock { refused: Some(why), .. } if why == "stopped by order of alice");
    assert!(status.waits_for.iter().any(refused), "{status:?}");
    assert!(start(&mut b, "h/web").contains(&"act h/web 0 -> 1, attempt 1".to_owned()));
    assert!(b.ended("h/web", true).contains(&"act h/app 0 -> 1, attempt 1".to_owned()));
}

#[test]
fn members_of_a_budget_restart_in_turn() {
    let member = |name: &str| format!("h/{name}: 0 1, is 1, prefers 1, budget h/b");
    let mut b = Bench::new(&["h/b: open, is open, prefers open, at most 1", &member("m"), &member("n")]);
    assert!(stop(&mut b, "h/m", true).contains(&"act h/m 1 -> 0, attempt 1".to_owned()));
    assert_eq!(stop(&mut b, "h/n", true).iter().filter(|line| line.starts_with("act")).count(), 0);
    assert_eq!(b.ended("h/m", true).iter().filter(|line| line.starts_with("act h/n")).count(), 0);
    assert!(b.ended("h/m", true).contains(&"act h/n 1 -> 0, attempt 1".to_owned()));
    b.ended("h/n", true);
    b.ended("h/n", true);
    assert!(b.engine.is_converged() && b.engine.stopped().is_empty());
}

#[test]
fn a_failed_object_can_be_stopped() {
    let mut b = Bench::new(&["h/web: 0 1, is 0, prefers 1, fails in 1"]);
    b.ended("h/web", false);
    assert!(stop(&mut b, "h/web", false).contains(&"act h/web 1 -> 0, attempt 1".to_owned()));
}
