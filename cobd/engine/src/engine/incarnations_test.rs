//! Numbers of hosts that were restarted, reinstalled or fenced: the data under them, and when it is forgotten.

use cob_types::HostName;

use crate::event::{Event, Order};
use crate::testing::{Bench, bundle, free, switch};
use crate::time::Span;

const B: &str = "h/b: 0 1, is 1, prefers 1";
const TWO: &str = "h/c: 0 1, prefers 1, transition 0 1 <- d/d@1 e/e@1";

/// The effects of a request of a/a for h/b@1, if it is granted.
fn granted(number: &str) -> [String; 2] {
    [format!("write: h/b@1 granted to a/a {number}"), format!("a: grant h/b@1 to a/a {number} rev 0")]
}

fn fence(b: &mut Bench, host: &str) {
    b.event(Event::Order(Order::Fence(HostName::new(host).expect("a host"))));
}

#[test]
fn an_earlier_release_does_not_block_a_reinstalled_host() {
    let mut b = Bench::new(&[B]);
    b.restarted("a");
    b.hears_together("a", &["hello"]);
    b.hears("request a/a of h/b@1 #2.7");
    b.hears("release a/a of h/b #2.7");
    b.reinstalled("a", 7);
    b.hears_together("a", &["hello"]);
    assert_eq!(b.hears("request a/a of h/b@1 #1.3"), granted("#1.3"));
}

#[test]
fn a_release_without_a_request_is_forgotten_as_well() {
    let mut b = Bench::new(&[B]);
    b.restarted("a");
    assert_eq!(b.hears_together("a", &["hello", "release a/a of h/b #1.7"]).len(), 3);
    b.reinstalled("a", 7);
    b.hears_together("a", &["hello"]);
    assert_eq!(b.hears("request a/a of h/b@1 #1.3"), granted("#1.3"));
}

#[test]
fn a_fenced_host_that_comes_back_reinstalled_begins_anew() {
    let mut b = Bench::new(&[B, TWO]);
    b.hears("request a/a of h/b@1 #1.7");
    b.hears("release a/a of h/b #1.7");
    assert_eq!(b.hears("grant d/d@1 to h/c #1.3"), ["note: h/c holds d/d@1"]);
    fence(&mut b, "a");
    fence(&mut b, "d");
    for host in ["a", "d"] {
        b.reinstalled(host, 7);
    }
    b.hears_together("a", &["hello"]);
    assert_eq!(b.hears("request a/a of h/b@1 #1.3"), granted("#1.3"));
    // Its daemon does not know the grants of its predecessor.
    let said = b.hears_together("d", &["hello"]);
    assert!(said.iter().any(|line| line.starts_with("d: request h/c of d/d@1")), "{said:?}");
}

#[test]
fn a_host_that_was_reinstalled_while_this_daemon_was_down_begins_anew() {
    let mut b = Bench::new(&[B]);
    b.restarted("a");
    b.hears_together("a", &["hello"]);
    b.hears("request a/a of h/b@1 #2.7");
    b.returns();
    b.found("h/b", "1");
    b.reinstalled("a", 7);
    let said = b.hears_together("a", &["hello", "hello-ack 2"]);
    assert!(said.contains(&"write: h/b back from a/a #2.7".to_owned()), "{said:?}");
    assert_eq!(b.hears("request a/a of h/b@1 #1.3"), granted("#1.3"));
}

/// The grant is on record with the state folder of the asking host.
#[test]
fn a_grant_ends_when_its_holder_host_is_reinstalled() {
    let mut b = Bench::new(&[B]);
    b.hears("request a/a of h/b@1 #1.27");
    b.returns();
    b.found("h/b", "1");
    b.reinstalled("a", 7);
    let said = b.hears_together("a", &["hello", "hello-ack 2"]);
    assert!(said.contains(&"write: h/b back from a/a #1.27".to_owned()), "{said:?}");
    assert_eq!(b.hears("request a/a of h/b@1 #1.19"), granted("#1.19"));
}

#[test]
fn a_grant_of_a_departed_object_ends_when_its_holder_is_reinstalled() {
    let mut b = Bench::new(&[B, "h/k: 0 1, is 1, prefers 1"]);
    let go = |generation: u64, cobs: &[&str]| switch(bundle(cobs), free(generation), false);
    b.event(go(2, &["h/k: 0 1, is 1, prefers 1"]));
    b.ended("h/b", true);
    b.hears("request a/a of h/b@0 #1.7");
    b.returns();
    b.reinstalled("a", 7);
    b.hears_together("a", &["hello", "hello-ack 2"]);
    let said = b.hears("request a/a of h/b@0 #1.3");
    assert!(said.contains(&"a: grant h/b@0 to a/a #1.3 rev 0".to_owned()), "{said:?}");
}

#[test]
fn an_early_request_is_forgotten_when_its_host_is_reinstalled() {
    let mut b = Bench::new(&[B]);
    b.restarted("a");
    b.hears_together("a", &["hello"]);
    b.hears("request a/a of h/new@1 #2.9");
    b.reinstalled("a", 7);
    b.hears_together("a", &["hello"]);
    let new = "h/new: 0 1, is 1, prefers 1";
    b.event(switch(bundle(&[B, new]), free(2), false));
    b.found("h/new", "1");
    let said = b.hears("request a/a of h/new@1 #1.3");
    assert!(said.contains(&"a: grant h/new@1 to a/a #1.3 rev 0".to_owned()), "{said:?}");
}

/// Both incarnations of this host ask under the number 1.3, and the grantor does not know the second yet.
#[test]
fn a_grant_for_the_state_folder_before_does_not_count() {
    let mut b = Bench::new(&[B, TWO]);
    assert_eq!(b.hears("grant d/d@1 to h/c #1.3 for 7"), [""; 0]);
    assert_eq!(b.hears("grant d/d@1 to h/c #1.3 for 1"), ["note: h/c holds d/d@1"]);
}

#[test]
fn a_grant_names_the_state_folder_of_the_host_that_asked() {
    let mut b = Bench::new(&[B]);
    assert_eq!(b.grants_folders("request a/a of h/b@1 #1.3"), [Some(99)]);
    b.reinstalled("a", 7);
    b.hears_together("a", &["hello"]);
    assert_eq!(b.grants_folders("request a/a of h/b@1 #1.3"), [Some(7)]);
}

#[test]
fn the_newest_early_request_of_an_asker_is_kept() {
    let mut b = Bench::new(&[B]);
    for text in ["request a/a of h/new@1 #1.9", "request a/a of h/new@1 #1.8", "release a/a of h/new #1.8"] {
        b.hears(text);
    }
    let kept: Vec<_> = b.engine.absent.all_early().filter_map(|mail| mail.number()).map(|n| n.counter).collect();
    assert_eq!(kept, [9]);
}

#[test]
fn a_number_above_the_incarnation_of_its_host_is_left_out() {
    let mut b = Bench::new(&[B]);
    assert_eq!(b.hears("request a/a of h/b@1 #2.1"), [""; 0]);
    assert_eq!(b.engine.left_out(), 1);
    assert_eq!(b.hears("request a/a of h/b@1 #1.1"), granted("#1.1"));
}

#[test]
fn probes_of_a_reinstalled_host_are_passed_on_from_its_first_number() {
    let mut b = Bench::new(&[TWO]);
    b.restarted("a");
    b.hears_together("a", &["hello"]);
    b.hears("request a/a of h/c@1 #2.7");
    assert_eq!(b.hears("probe of a/a to h/c #2.9 via a/a").len(), 2);
    b.reinstalled("a", 7);
    b.hears_together("a", &["hello"]);
    b.hears("request a/a of h/c@1 #1.2");
    assert_eq!(b.hears("probe of a/a to h/c #1.3 via a/a").len(), 2, "to d and to e");
}

/// A grantor that answers each request by its release causes no storm, for any reason.
#[test]
fn a_lock_that_is_lost_again_and_again_is_asked_for_less_and_less() {
    let mut b = Bench::new(&[TWO]);
    let mut number = "#1.2".to_owned();
    let mut asked = 0;
    for _ in 0..10_000 {
        let mut said = b.hears(&format!("released h/c of d/d {number}"));
        said.extend(b.after(Span::millis(1)));
        if let Some(request) = said.iter().rev().find(|line| line.starts_with("d: request h/c of d/d@1")) {
            number = request.split_whitespace().nth(5).expect("a number").to_owned();
            asked += 1;
        }
    }
    assert!((64..90).contains(&asked), "{asked} times in 10 s");
    let status = b.engine.status(b.now);
    assert!(status.iter().any(|cob| !cob.trouble.is_empty()), "it is named: {status:?}");
    b.after(Span::secs(60));
    assert!(!b.after(Span::secs(60)).is_empty(), "it goes on");
}
