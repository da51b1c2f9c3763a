//! Probes: which change objects send and forward them, and the effect of a return; rate limits for repeated requests.

use crate::testing::{Bench, bundle, free, switch};
use crate::time::Span;

#[test]
fn a_waiting_object_sends_probes_at_growing_intervals() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    assert_eq!(b.after(Span::millis(199)), [""; 0]);
    assert_eq!(b.after(Span::millis(1)), ["d: probe of h/c to d/d #1.3 via h/c"]);
    assert_eq!(b.after(Span::millis(399)), [""; 0]);
    assert_eq!(b.after(Span::millis(1)), ["d: probe of h/c to d/d #1.4 via h/c"]);
}

#[test]
fn an_object_in_conflict_probes_along_all_its_waits() {
    let mut b = Bench::new(&["h/c: 1 0, prefers 0, transition 0 1 <- d/d@1 e/e@1"]);
    // Asked for 0 and granted; then asked for 1, which has priority: a wide probe, along the locks that it lacks and
    // the grant that it recalls.
    b.hears("request a/a of h/c@0 #1.7 rank 3");
    b.hears("request a/x of h/c@1 #1.8 rank 5");
    assert_eq!(
        b.after(Span::millis(200)),
        [
            "d: probe of h/c to d/d #1.4 via h/c wide",
            "e: probe of h/c to e/e #1.4 via h/c wide",
            "a: probe of h/c to a/a #1.4 via h/c wide"
        ]
    );
}

#[test]
fn a_waiting_object_passes_a_probe_on_once() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    b.hears("request a/a of h/c@1 #1.7 rank 9");
    assert_eq!(b.hears("probe of a/a to h/c #1.9 via a/a"), ["d: probe of a/a to d/d #1.9 via a/a h/c wide"]);
    assert_eq!(b.hears("probe of a/a to h/c #1.9 via a/a"), [""; 0]);
    assert_eq!(b.hears("probe of a/a to h/c #1.8 via a/a"), [""; 0]);
    b.hears("grant d/d@1 to h/c #1.2");
    // During an action: a wait for it is no deadlock.
    assert_eq!(b.hears("probe of a/a to h/c #1.10 via a/a"), [""; 0]);
}

#[test]
fn a_probe_of_an_unrelated_host_hides_no_other_probe() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    b.hears("request a/a of h/c@1 #1.7 rank 9");
    b.meet("e");
    assert_eq!(b.hears("probe of a/a to h/c #4294967295.18446744073709551615 via e/x"), [""; 0]);
    assert_eq!(b.hears("probe of a/a to h/c #1.9 via a/a"), ["d: probe of a/a to d/d #1.9 via a/a h/c wide"]);
    // The change objects that it waits for are related as well.
    assert_eq!(b.hears("probe of a/b to h/c #1.9 via a/b d/d"), ["d: probe of a/b to d/d #1.9 via a/b d/d h/c wide"]);
}

#[test]
fn a_probe_that_comes_home_to_a_conflict_sets_rank_order() {
    let mut b = Bench::new(&["h/c: 1 0, prefers 0, transition 0 1 <- d/d@1"]);
    b.hears("request a/x of h/c@1 #1.8 rank 5");
    b.hears("request a/a of h/c@0 #1.7 rank 3");
    b.after(Span::millis(200));
    // By rank a comes before x: 0 is the target, needs no lock, and is granted.
    assert_eq!(
        b.hears("probe of h/c to h/c #1.3 via h/c d/d"),
        [
            "note: h/c goes by rank",
            "write: h/c@0 granted to a/a #1.7",
            "d: release h/c of d/d #1.2",
            "a: grant h/c@0 to a/a #1.7 rev 0"
        ]
    );
}

#[test]
fn a_late_probe_is_ignored() {
    let mut b = Bench::new(&["h/c: 1 0, prefers 0, transition 0 1 <- d/d@1"]);
    b.hears("request a/x of h/c@1 #1.8 rank 5");
    b.hears("request a/a of h/c@0 #1.7 rank 3");
    b.after(Span::millis(200));
    assert_eq!(b.hears("probe of h/c to h/c #1.1 via h/c d/d"), [""; 0]);
}

#[test]
fn three_returns_in_a_row_name_the_circle() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    let mut said = Vec::new();
    for number in 3..6 {
        // Repeated requests are sent besides.
        let probes = b.after(Span::millis(200 << (number - 3)));
        let probe = format!("d: probe of h/c to d/d #1.{number} via h/c");
        assert!(probes.contains(&probe), "{probes:?}");
        said = b.hears(&format!("probe of h/c to h/c #1.{number} via h/c d/d"));
    }
    assert_eq!(said, ["note: h/c is stuck: h/c d/d"]);
}

#[test]
fn the_livelock_guard_delays_the_ninth_request() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    let mut said = Vec::new();
    // The first request was there from the beginning.
    for number in 1..=8 {
        // Asked for its present state: its own desire to leave ends; then it is back.
        b.hears(&format!("request a/a of h/c@0 #1.{number}"));
        said = b.hears(&format!("release a/a of h/c #1.{number}"));
    }
    let [returned, note, released] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(
        [returned, note, released],
        ["write: h/c back from a/a #1.8", "note: h/c has asked d/d 8 times", "a: released a/a of h/c #1.8"]
    );
    let rested = b.after(Span::millis(100));
    assert_eq!(rested.first().map(String::as_str), Some("note: h/c asks d/d@1"));
}

#[test]
fn a_request_that_led_to_an_action_is_not_counted() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    for number in 1..=8 {
        b.hears(&format!("request a/a of h/c@0 #1.{number}"));
        b.hears(&format!("release a/a of h/c #1.{number}"));
    }
    assert_eq!(b.engine.status(b.now)[0].trouble.len(), 1);
    let asked = b.after(Span::secs(1));
    let request = asked.iter().find(|l| l.starts_with("d: request")).expect("it asks again");
    let number = request.split('#').nth(1).and_then(|l| l.split(' ').next()).expect("a number");
    b.hears(&format!("grant d/d@1 to h/c #{number}"));
    b.ended("h/c", true);
    assert_eq!(b.engine.status(b.now)[0].trouble, []);
}

#[test]
fn the_last_of_a_path_is_its_sender_however_long_it_is() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    let path = |n: usize| (0..n).map(|i| format!("a/p{i}")).collect::<Vec<_>>().join(" ");
    b.hears("request a/p31 of h/c@1 #1.7 rank 9");
    let full = format!("probe of a/a to h/c #1.9 via {}", path(32));
    assert_eq!(b.hears(&full), [format!("d: probe of a/a to d/d #1.9 via {} h/c wide", path(31))]);
}

#[test]
fn waiting_objects_probe_in_turn_and_objects_in_a_circle_at_once() {
    let specs: Vec<String> = (0..200).map(|i| format!("h/c{i:03}: 0 1, prefers 1, transition 0 1 <- d/d@1")).collect();
    let mut b = Bench::new(&specs.iter().map(String::as_str).collect::<Vec<_>>());
    for i in 0..200 {
        b.hears(&format!("request a/a of h/c{i:03}@1 #1.7 rank 9"));
    }
    let initiator = |line: &String| line.strip_prefix("d: probe of ").map(|l| l[..6].to_owned());
    let first: Vec<String> = b.after(Span::millis(200)).iter().filter_map(initiator).collect();
    assert_eq!(first.len(), 4096 / 200, "they would take 200 steps each");
    let late = (0..200).map(|i| format!("h/c{i:03}")).find(|id| !first.contains(id)).expect("not all had a turn");
    // Another probe passes twice: it leads in a cycle through this change object.
    b.hears(&format!("probe of a/a to {late} #1.9 via a/a"));
    let own = b.hears(&format!("probe of a/a to {late} #1.9 via a/a"));
    let own = [own, b.after(Span::millis(0))].concat();
    assert_eq!(own.iter().filter_map(initiator).collect::<Vec<_>>(), std::slice::from_ref(&late));
    // The remaining change objects get a turn, though the others try again.
    let mut seen: std::collections::BTreeSet<String> = first.into_iter().chain([late]).collect();
    let mut rounds = 0;
    while seen.len() < 200 {
        rounds += 1;
        assert!(rounds < 100, "only {} had a turn", seen.len());
        seen.extend(b.after(Span::millis(200)).iter().filter_map(initiator));
    }
}

#[test]
fn objects_in_conflict_probe_in_turn_beside_waiting_objects() {
    let waits = (0..100).map(|i| format!("h/c{i:03}: 0 1, prefers 1, transition 0 1 <- d/d@1"));
    let conflict = (0..100).map(|i| format!("h/x{i:03}: 1 0, prefers 0, transition 0 1 <- d/d@1"));
    let specs: Vec<String> = waits.chain(conflict).collect();
    let mut b = Bench::new(&specs.iter().map(String::as_str).collect::<Vec<_>>());
    for i in 0..100 {
        b.hears(&format!("request a/a{i:03} of h/x{i:03}@0 #1.7 rank 3"));
        b.hears(&format!("request a/x{i:03} of h/x{i:03}@1 #1.8 rank 5"));
    }
    let probes = b.after(Span::millis(200));
    // A wide probe takes two steps from its initiator: to the lock that it lacks, and to the holder of a recalled
    // grant.
    let wide = probes.iter().filter(|l| l.starts_with("d: probe of h/x") && l.ends_with(" wide")).count();
    let narrow = probes.iter().filter(|l| l.starts_with("d: probe of h/c")).count();
    assert_eq!((narrow, wide), (4096 / 200, 4096 / 200));
}

/// A wait for a change object of the next generation is a wait for the departures before that generation.
#[test]
fn a_probe_follows_the_departures_that_the_host_waits_for() {
    const X: &str = "h/x: 0 1, is 1, prefers 1";
    const Y: &str = "h/y: 0 1, is 1, prefers 1, transition 1 0 <- d/d@1";
    let mut b = Bench::new(&[X, Y]);
    b.hears("request a/a of h/x@1 #1.7 expects other");
    let probe = |asked: &str, number: u64| format!("probe of a/a to h/{asked} #1.{number} via a/a");
    assert_eq!(b.hears(&probe("x", 9)), [""; 0], "it goes nowhere");
    b.event(switch(bundle(&[X]), free(2), false));
    assert_eq!(b.hears(&probe("x", 10)), ["d: probe of a/a to d/d #1.10 via a/a h/x h/y wide"]);
    assert_eq!(b.hears(&probe("x", 10)), [""; 0], "once");
    // A request for its present content does not wait for the next generation.
    b.hears("request a/b of h/x@0 #1.7");
    let of_another = "probe of a/b to h/x #1.9 via a/b";
    assert_eq!(b.hears(of_another), [""; 0]);
    // A new change object of the next generation.
    assert_eq!(b.hears(&probe("new", 11)), [""; 0], "it has not asked");
    b.hears("request a/a of h/new@1 #1.12 in 2");
    assert_eq!(b.hears(&probe("new", 13)), ["d: probe of a/a to d/d #1.13 via a/a h/new h/y wide"]);
}
