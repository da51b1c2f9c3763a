//! Tests of switch orders between small sketches.

use cob_forecast::{NoOrder, Side, switch_order};

use crate::testing::{Sketch, id};

/// The order from a sketch to another, with a line for each wait and each order of departures.
fn told(before: &Sketch, after: &Sketch) -> Vec<String> {
    try_told(before, after, false).expect("an order")
}

fn try_told(before: &Sketch, after: &Sketch, is_back: bool) -> Result<Vec<String>, NoOrder> {
    let (before, after) = (before.assembled().generation, after.assembled().generation);
    let order = switch_order(&Side::of(&before), &Side::of(&after), is_back)?;
    let waits = order.waits.iter().flat_map(|(host, all)| all.iter().map(move |cob| format!("{host} waits for {cob}")));
    let after = order.after.iter().flat_map(|(cob, all)| all.iter().map(move |b| format!("{cob} leaves after {b}")));
    let back = order.taken_back.iter().map(|cob| format!("{cob} is taken back"));
    Ok(waits.chain(after).chain(back).collect())
}

fn without(sketch: &Sketch, cobs: &[&str]) -> Sketch {
    let mut rest = sketch.clone();
    rest.draft.cobs.retain(|cob, _| !cobs.contains(&cob.as_str()));
    for cob in rest.draft.cobs.values_mut() {
        cob.value.arrows.retain(|arrow| !cobs.contains(&arrow.on.as_str()));
    }
    rest
}

fn changed(sketch: &mut Sketch, cob: &str) {
    sketch.content(cob, serde_json::json!({"changed": true}));
}

#[test]
fn a_switch_without_needs_of_departing_objects_has_no_waits() {
    let mut n = Sketch::new();
    n.cob("h1/a", "up").cob("h2/b", "up").requires("h1/a", "h2/b");
    let mut next = n.clone();
    changed(&mut next, "h2/b");
    assert_eq!(told(&n, &next), [""; 0]);
    // The user departs: it needs no other change object to stop.
    assert_eq!(told(&n, &without(&n, &["h1/a"])), [""; 0]);
}

#[test]
fn a_changed_object_waits_for_departing_objects_that_need_it() {
    let mut n = Sketch::new();
    // h1/m is removed from the load balancer, which must run for that.
    n.cob("h1/m", "up").cob("h2/lb", "up").cob("h3/x", "up").transition("h1/m", "up", "down", "h2/lb@up");
    let mut next = without(&n, &["h1/m"]);
    assert_eq!(told(&n, &next), [""; 0], "the same load balancer keeps faith");
    changed(&mut next, "h2/lb");
    changed(&mut next, "h3/x");
    assert_eq!(told(&n, &next), ["h2 waits for h1/m"]);
}

#[test]
fn an_unchanged_object_with_a_changed_requirement_waits_too() {
    let mut n = Sketch::new();
    n.cob("h1/m", "up").cob("h2/b", "up").cob("h3/c", "up");
    n.transition("h1/m", "up", "down", "h2/b@up").requires("h2/b", "h3/c");
    let mut next = without(&n, &["h1/m"]);
    changed(&mut next, "h3/c");
    assert_eq!(told(&n, &next), ["h2 waits for h1/m", "h3 waits for h1/m"]);
}

#[test]
fn an_object_that_a_departing_object_needs_departs_later() {
    let mut n = Sketch::new();
    n.cob("h0/m0", "up").cob("h1/m2", "up").transition("h1/m2", "up", "down", "h0/m0@up");
    let gone = without(&n, &["h0/m0", "h1/m2"]);
    assert_eq!(told(&n, &gone), ["h0 waits for h1/m2", "h0/m0 leaves after h1/m2"]);
}

/// G1 of the notes.
#[test]
fn a_chain_of_three_that_leave_is_an_order() {
    let mut n = Sketch::new();
    n.cob("h1/m0", "up").cob("h2/m1", "up").cob("h2/m2", "up");
    n.transition("h1/m0", "up", "down", "h2/m1@up").transition("h2/m2", "up", "down", "h1/m0@up");
    let gone = without(&n, &["h1/m0", "h2/m1", "h2/m2"]);
    assert_eq!(
        told(&n, &gone),
        ["h1 waits for h2/m2", "h2 waits for h1/m0", "h1/m0 leaves after h2/m2", "h2/m1 leaves after h1/m0"]
    );
}

#[test]
fn redundant_waits_of_the_switch_order_are_omitted() {
    let mut n = Sketch::new();
    n.cob("h1/m1", "up").cob("h2/m2", "up").cob("h3/c", "up");
    n.transition("h1/m1", "up", "down", "h2/m2@up")
        .transition("h1/m1", "up", "down", "h3/c@up")
        .transition("h2/m2", "up", "down", "h3/c@up");
    let mut next = without(&n, &["h1/m1", "h2/m2"]);
    changed(&mut next, "h3/c");
    // h2/m2 departs only after h1/m1.
    assert_eq!(told(&n, &next), ["h2 waits for h1/m1", "h3 waits for h2/m2", "h2/m2 leaves after h1/m1"]);
}

#[test]
fn objects_that_must_depart_before_each_other_are_a_circle() {
    let mut n = Sketch::new();
    n.cob("h1/a", "up").cob("h2/b", "up").cob("h2/c", "up");
    n.transition("h1/a", "up", "down", "h2/b@up")
        .transition("h2/b", "up", "down", "h1/a@up")
        .transition("h2/c", "up", "down", "h1/a@up");
    let gone = without(&n, &["h1/a", "h2/b", "h2/c"]);
    match try_told(&n, &gone, false) {
        Err(NoOrder::Circle(circle)) => assert_eq!(circle, [id("h2/b"), id("h1/a")]),
        other => panic!("{other:?}"),
    }
    // The change objects of a single side can depart; that changes the dependencies of the other side.
    assert_eq!(told(&n, &without(&n, &["h2/b", "h2/c"])), ["h1 waits for h2/b", "h1 waits for h2/c"]);
}

/// On its way to its pre-remove state it may come to a state in which it has to wait for the requester (found by
/// exploration: c1 is asked for its last or first state, and leaves the middle only by its own request).
#[test]
fn an_object_departs_later_if_a_request_may_lead_it_elsewhere() {
    let mut n = Sketch::new();
    n.cob("h1/m", "up").cob("h2/k", "up").transition("h1/m", "up", "down", "h2/k@up|down");
    assert_eq!(told(&n, &without(&n, &["h1/m", "h2/k"])), ["h2 waits for h1/m", "h2/k leaves after h1/m"]);
    // No request leads it to `outdated`.
    let mut n = Sketch::new();
    n.cob("h1/m", "up").cob("h2/k", "up").transition("h1/m", "up", "down", "h2/k@outdated|down");
    assert_eq!(told(&n, &without(&n, &["h1/m", "h2/k"])), [""; 0]);
}

#[test]
fn a_removed_host_waits_for_departing_objects_that_need_it() {
    let mut n = Sketch::new();
    n.cob("h1/m", "up").cob("h2/b", "up").transition("h1/m", "up", "down", "h2/b@up");
    let mut next = without(&n, &["h1/m", "h2/b"]);
    next.draft.hosts.retain(|host, _| host.as_str() == "h1");
    assert_eq!(told(&n, &next), ["h2 waits for h1/m", "h2/b leaves after h1/m"]);
}

#[test]
fn on_the_way_back_moves_with_reverts_are_taken_back() {
    let mut old = Sketch::new();
    old.kind("script", &["down", "up"], &["down>up", "up>down"]).cob_of("script", "h1/a", "up").cob("h2/b", "up");
    let revert = cob_types::Command::Shell("take it back".to_owned());
    let kind = &mut old.draft.kinds.get_mut("script").expect("there").value;
    kind.transitions[0].revert = Some(revert.clone());
    kind.transitions[1].run = Some(revert);
    let mut new = old.clone();
    changed(&mut new, "h1/a");
    changed(&mut new, "h2/b");
    assert_eq!(try_told(&new, &old, true).expect("an order"), ["h1/a is taken back"]);
    assert_eq!(try_told(&old, &new, false).expect("an order"), [""; 0]);
}

#[test]
fn an_object_of_another_kind_is_taken_back_as_the_old_kind() {
    let mut old = Sketch::new();
    old.kind("disk", &["down", "up"], &["down>up", "up>down"]).kind(
        "script.1",
        &["down", "up"],
        &["down>up", "up>down"],
    );
    old.cob_of("disk", "h1/a", "up").cob_of("script.1", "h1/s", "up").cob("h2/b", "up").requires("h2/b", "h1/a");
    let mut new = old.clone();
    new.draft.cobs.remove(&id("h1/a"));
    new.draft.cobs.remove(&id("h1/s"));
    new.kind("tape", &["down", "up"], &["up>down", "down>up"]).kind(
        "script.2",
        &["down", "up"],
        &["up>down", "down>up"],
    );
    new.cob_of("tape", "h1/a", "up").cob_of("script.2", "h1/s", "up");
    assert_eq!(told(&old, &new), ["h1/a is taken back"], "another script is one still");
    assert_eq!(try_told(&new, &old, true).expect("an order"), ["h1/a is taken back"]);
    // Another kind name alone makes no difference.
    let mut same = old.clone();
    same.draft.cobs.remove(&id("h1/a"));
    same.kind("store", &["down", "up"], &["down>up", "up>down"]).cob_of("store", "h1/a", "up");
    assert_eq!(told(&old, &same), [""; 0]);
    // A change object that departs without a change is not undone.
    old.draft.cobs.get_mut(&id("h1/a")).expect("there").value.keep = true;
    assert_eq!(told(&old, &new), [""; 0]);
}
