//! Switches of a single engine.

use cob_types::{Bundle, CobId, GenerationNumber, Packed, StateName};

use crate::event::Event;
use crate::testing::{Bench, bundle, free, switch};

use super::*;

const X: &str = "h/x: 0 1, is 1, prefers 1";
const Y: &str = "h/y: 0 1, is 1, prefers 1";

fn go(generation: u64, cobs: &[&str]) -> Event {
    switch(bundle(cobs), free(generation), false)
}

fn back(generation: u64, cobs: &[&str]) -> Event {
    switch(bundle(cobs), free(generation), true)
}

fn stands(bench: &Bench) -> (u64, Option<u64>) {
    (bench.engine.generation().0, bench.engine.pending_generation().map(|g| g.0))
}

#[test]
fn an_older_generation_is_gone_to_by_the_way_back_alone() {
    let mut b = Bench::new(&[X, Y]);
    b.event(go(2, &[X]));
    b.ended("h/y", true);
    assert_eq!(stands(&b), (2, None));
    assert_eq!(b.event(go(1, &[X, Y])), [""; 0]);
    assert_eq!(stands(&b), (2, None));
    let told = b.event(back(1, &[X, Y]));
    assert!(told.contains(&"check h/y".to_owned()), "{told:?}");
    assert_eq!(stands(&b), (1, None));
    b.event(go(3, &[X]));
    assert_eq!(stands(&b), (1, Some(3)));
}

#[test]
fn a_rollback_in_the_middle_of_a_switch_keeps_departing_objects() {
    let mut b = Bench::new(&[X, Y]);
    let told = b.event(go(2, &[X]));
    assert!(told.contains(&"act h/y 1 -> 0, attempt 1".to_owned()), "{told:?}");
    assert_eq!(stands(&b), (1, Some(2)));
    b.event(back(1, &[X, Y]));
    assert_eq!(stands(&b), (1, None));
    let told = b.ended("h/y", true);
    assert!(told.contains(&"act h/y 0 -> 1, attempt 1".to_owned()), "{told:?}");
    b.ended("h/y", true);
    assert!(b.engine.is_converged());
}

#[test]
fn a_rollback_does_not_retry_requests_of_the_left_generation() {
    const B: &str = "h/b: 0 1";
    let given_up_in_two = |request: &str| {
        let mut b = Bench::new(&[B]);
        b.meet("a");
        b.event(go(2, &[B]));
        b.hears(request);
        b.ended("h/b", false);
        b.found("h/b", "0");
        assert!(!b.engine.is_converged(), "its last attempt has failed");
        b
    };
    let acts = "act h/b 0 -> 1, attempt 1";
    let asks = "request a/a of h/b@1 #1.7 in 2";
    let mut b = given_up_in_two(asks);
    let told = b.event(back(1, &[B]));
    assert!(b.engine.is_converged() && !told.contains(&acts.to_owned()), "{told:?}");
    // An asker that is still there asks again.
    assert_eq!(b.hears(asks), ["write: h/b begins 0 -> 1", acts]);
    // A request of an older generation is tried again.
    let told = given_up_in_two("request a/a of h/b@1 #1.7").event(back(1, &[B]));
    assert!(told.contains(&acts.to_owned()), "{told:?}");
}

#[test]
fn records_before_an_activation_have_the_old_generation() {
    let mut b = Bench::new(&[X]);
    let effects = b.engine.handle(go(2, &[X, Y]), b.now);
    let told: Vec<_> = effects.persist.iter().map(|r| (r.generation.0, format!("{:?}", r.body))).collect();
    let at = |what: &str| told.iter().find(|(_, body)| body.starts_with(what)).map(|(generation, _)| *generation);
    assert_eq!((at("SwitchStarted("), at("Activated(")), (Some(1), Some(2)), "{told:?}");
}

#[test]
fn slots_of_departed_objects_are_reused() {
    let mut b = Bench::new(&[X, Y]);
    for generation in (2..8).step_by(2) {
        b.event(go(generation, &[X]));
        b.ended("h/y", true);
        b.event(go(generation + 1, &[X, Y]));
        b.found("h/y", "0");
        b.ended("h/y", true);
        assert!(b.engine.is_converged());
    }
    assert_eq!((stands(&b), b.engine.objects.layout().0.count()), ((7, None), 2));
}

fn active(bench: &Bench) -> (Vec<String>, usize) {
    let told = bench.engine.status_of_active(bench.now, usize::MAX);
    (told.cobs.into_iter().map(|c| c.id.to_string()).collect(), told.idle)
}

#[test]
fn a_switch_affects_only_changed_and_active_objects() {
    let asking = "h/z: 0 1, is 0, prefers 1, transition 0 1 <- d/d@1";
    let mut b = Bench::new(&[X, Y, asking]);
    assert_eq!(active(&b), (vec!["h/z".to_owned()], 2));
    let other = "h/y: 0 1, is 1, prefers 0";
    let told = b.event(go(2, &[X, other, asking]));
    let ends = [
        "write: SwitchStarted(GenerationNumber(2))",
        "write: Activated(GenerationNumber(2))",
        "write: h/y begins 1 -> 0",
    ];
    assert_eq!(told[..3], ends, "{told:?}");
    assert_eq!(active(&b), (vec!["h/y".to_owned(), "h/z".to_owned()], 1));
    b.ended("h/y", true);
    assert_eq!(active(&b), (vec!["h/z".to_owned()], 2));
    // The same again: its request is of a new generation, and no other change object sends a message.
    let told = b.event(go(3, &[X, other, asking]));
    assert!(told[2..].iter().all(|line| line.contains("h/z")), "{told:?}");
}

#[test]
fn an_object_with_a_grant_of_its_preferred_state_counts_as_idle() {
    let mut b = Bench::new(&[X, Y]);
    b.hears("request a/a of h/x@1 #1.7");
    assert!(b.engine.objects.active().any(|o| !o.requests().is_empty()));
    assert_eq!(active(&b), (vec![], 2));
    // The request leads it away from its preferred state.
    b.hears("request a/b of h/y@0 #1.8");
    assert_eq!(active(&b), (vec!["h/y".to_owned()], 1));
}

#[test]
fn the_status_lists_at_most_the_asked_number_of_waiting_objects() {
    let asking = |name: &str| format!("h/{name}: 0 1, is 0, prefers 1, transition 0 1 <- d/d@1");
    let (a, c, d) = (asking("a"), asking("c"), asking("d"));
    let moving = "h/b: 0 1, is 0, prefers 1";
    let b = Bench::new(&[&a, moving, &c, &d, X]);
    let told = |most| {
        let told = b.engine.status_of_active(b.now, most);
        let cobs: Vec<_> = told.cobs.iter().map(|c| c.id.name().to_owned()).collect();
        (cobs.join(" "), told.waiting, told.idle)
    };
    assert_eq!(told(usize::MAX), ("a b c d".to_owned(), 0, 1));
    assert_eq!(told(2), ("a b c".to_owned(), 1, 1));
    assert_eq!(told(0), ("b".to_owned(), 3, 1));
}

#[test]
fn the_status_lists_at_most_the_asked_number_of_unchecked_objects() {
    let [w, x, y, z] = ["w", "x", "y", "z"].map(|name| format!("h/{name}: 0 1, is 1, prefers 1"));
    let mut b = Bench::new(&[&w]);
    b.event(go(2, &[&w, &x, &y, &z]));
    let told = |b: &Bench, most| {
        let told = b.engine.status_of_active(b.now, most);
        let cobs: Vec<_> = told.cobs.iter().map(|c| c.id.name().to_owned()).collect();
        (cobs.join(" "), told.waiting, told.idle)
    };
    assert_eq!(told(&b, usize::MAX), ("x y z".to_owned(), 0, 1));
    assert_eq!(told(&b, 1), ("x".to_owned(), 2, 1));
    b.found("h/y", "1");
    assert_eq!(told(&b, 1), ("x".to_owned(), 1, 2));
    // A change object with more to report is always listed.
    for _ in 0..3 {
        b.event(Event::CheckWanted(cob("h/z")));
        b.not_told("h/z");
    }
    assert_eq!(told(&b, 0), ("z".to_owned(), 1, 2));
}

/// Change objects that an activation skips have started anew all the same.
#[test]
fn an_activation_resets_the_count_of_drifts() {
    let mut b = Bench::new(&[X, Y]);
    for generation in 2..6 {
        for _ in 0..7 {
            b.event(Event::CheckWanted(cob("h/y")));
            let told = b.found("h/y", "0");
            assert!(told.contains(&"act h/y 0 -> 1, attempt 1".to_owned()), "it does not rest: {told:?}");
            b.ended("h/y", true);
        }
        assert_eq!(active(&b), (vec![], 2));
        b.event(go(generation, &[X, Y]));
    }
    // Without an activation in between it would.
    let rests = |b: &mut Bench| {
        b.event(Event::CheckWanted(cob("h/y")));
        let told = b.found("h/y", "0");
        b.ended("h/y", true);
        !told.contains(&"act h/y 0 -> 1, attempt 1".to_owned())
    };
    assert!((0..9).any(|_| rests(&mut b)));
    assert_eq!(active(&b), (vec!["h/y".to_owned()], 1), "its status has changed");
}

#[test]
fn an_object_of_another_kind_departs_first_without_a_switch_order() {
    let of_another_kind = || {
        let mut other = bundle(&[X, Y]);
        let mut kind = other.kinds.remove("h.y").expect("its kind");
        (kind.name, kind.backend) = ("other".parse().expect("a name"), "elsewhere".to_owned());
        let y = Arc::make_mut(other.cobs.get_mut("h/y").expect("there"));
        (y.kind, y.fingerprint) = (kind.name.clone(), cob_types::cob::Fingerprint([8; 16]));
        other.kinds.insert(kind.name.clone(), kind);
        Arc::new(other)
    };
    for in_process in [vec![], vec!["elsewhere".to_owned()]] {
        let mut b = Bench::new(&[X, Y]);
        let go = |bundle: Arc<Bundle>| {
            let (generation, bundle, in_process) =
                (GenerationNumber(2), Arc::new(Packed::decoded(&bundle)), in_process.clone());
            Event::Switch { rollback: false, generation, bundle, in_process, order: free(2) }
        };
        let told = b.event(go(of_another_kind()));
        assert!(told.contains(&"act h/y 1 -> 0, attempt 1".to_owned()), "{told:?}");
        assert_eq!(stands(&b), (1, Some(2)));
        let told = b.ended("h/y", true);
        assert!(told.contains(&"check h/y".to_owned()), "{told:?}");
        assert_eq!(stands(&b), (2, None));
        // A kept change object stays.
        let mut b = Bench::new(&[X, KEPT]);
        b.event(go(of_another_kind()));
        assert_eq!(stands(&b), (2, None));
    }
}

#[test]
fn a_switch_works_when_a_backend_becomes_in_process() {
    let mut b = Bench::new(&[X, Y]);
    let bundle = Arc::new(bundle(&[X]));
    let go = Event::Switch {
        rollback: false,
        generation: GenerationNumber(2),
        bundle: Arc::new(Packed::decoded(&bundle)),
        in_process: vec!["command".to_owned()],
        order: free(2),
    };
    b.event(go);
    let told = b.ended("h/y", true);
    assert_eq!(stands(&b), (2, None), "{told:?}");
    b.event(Event::CheckWanted(cob("h/x")));
    let told = b.found("h/x", "0");
    assert!(told.contains(&"act h/x 0 -> 1, attempt 1".to_owned()), "{told:?}");
}

const KEPT: &str = "h/y: 0 1, is 1, prefers 1, kept";

#[test]
fn a_kept_object_departs_in_its_state_and_grants_only_that() {
    let mut b = Bench::new(&[X, KEPT]);
    let told = b.event(go(2, &[X]));
    let ends = [
        "write: SwitchStarted(GenerationNumber(2))".to_owned(),
        format!("write: {:?}", Body::Removed { cob: cob("h/y"), state: state("1"), kept_from: Some(state("0")) }),
        "write: Activated(GenerationNumber(2))".to_owned(),
    ];
    assert_eq!(told, ends);
    let granted = ["write: h/y@1 granted to a/a #1.7", "a: grant h/y@1 to a/a #1.7 rev 0"];
    assert_eq!(b.hears("request a/a of h/y@1 #1.7"), granted);
    assert_eq!(b.hears("request a/a of h/y@1 #1.7"), granted[1..], "it stands");
    assert_eq!(b.hears("request a/c of h/y@0 #1.8"), [""; 0], "no request moves it any more");
}

#[test]
fn a_kept_object_recalls_its_grants_before_it_departs() {
    let mut b = Bench::new(&[X, KEPT]);
    b.hears("request a/a of h/y@1 #1.7");
    let told = b.event(go(2, &[X]));
    assert_eq!(
        told,
        ["write: SwitchStarted(GenerationNumber(2))", "note: h/y wants it back from a/a", "a: recall a/a of h/y #1.7"]
    );
    assert_eq!(stands(&b), (1, Some(2)));
    // The request under a new number is the release too: it waits for the next generation.
    assert_eq!(
        b.hears("request a/a of h/y@1 #1.9"),
        [
            "write: h/y back from a/a #1.7".to_owned(),
            format!("write: {:?}", Body::Removed { cob: cob("h/y"), state: state("1"), kept_from: Some(state("0")) }),
            "write: Activated(GenerationNumber(2))".to_owned(),
        ]
    );
    let granted = ["write: h/y@1 granted to a/a #1.9", "a: grant h/y@1 to a/a #1.9 rev 0"];
    assert_eq!(b.hears("request a/a of h/y@1 #1.9"), granted);
}

/// It may require a server that departs beside it: it does not delay that departure, and is not undone for it.
#[test]
fn a_kept_object_counts_as_off_for_departing_objects() {
    let server = "h/y: 0 1, is 1, prefers 1, transition 1 0 <- h/z@0";
    let mut b = Bench::new(&[X, server, "h/z: 0 1, is 1, prefers 1, kept"]);
    let told = b.event(go(2, &[X]));
    let act = |told: &[String]| told.iter().filter(|t| t.starts_with("act ")).cloned().collect::<Vec<_>>();
    assert_eq!(act(&told), ["act h/y 1 -> 0, attempt 1"], "{told:?}");
    // The grant stays valid as long as the other change object acts, also over a restart.
    assert_eq!(stands(&b), (1, Some(2)));
    let told = b.ended("h/y", true);
    let gone = Body::Removed { cob: cob("h/z"), state: state("1"), kept_from: Some(state("0")) };
    assert!(told.contains(&format!("write: {gone:?}")), "{told:?}");
    assert_eq!((act(&told).len(), stands(&b)), (0, (2, None)));
}

#[test]
fn a_failed_object_is_tried_again_in_the_next_generation() {
    const B: &str = "h/b: 0 1";
    let failed = |b: &Bench| b.engine.status_of(&cob("h/b"), b.now).expect("it is there").failed;
    let acts = |told: &[String]| told.iter().any(|t| t.starts_with("act h/b 0 -> 1"));
    let mut b = Bench::new(&[B]);
    b.meet("a");
    b.hears("request a/a of h/b@1 #1.7");
    b.ended("h/b", false);
    b.found("h/b", "0");
    assert!(failed(&b));
    assert!(acts(&b.event(go(2, &[B]))), "tried once more");
    b.returns();
    assert!(!failed(&b));
    // The same for an action that ends after the next activation.
    b.event(go(3, &[B]));
    assert_eq!(stands(&b), (3, None));
    b.ended("h/b", false);
    assert!(!failed(&b), "that was of the generation before");
    b.found("h/b", "0");
    b.returns();
    assert!(!failed(&b));
}

#[test]
fn a_failed_departure_is_tried_again_in_the_next_generation() {
    let mut b = Bench::new(&[X, Y]);
    let acts = |told: &[String]| told.iter().any(|t| t.starts_with("act h/y 1 -> 0"));
    assert!(acts(&b.event(go(2, &[X]))));
    b.ended("h/y", false);
    b.found("h/y", "1");
    assert!(b.engine.status_of(&cob("h/y"), b.now).expect("it is there").failed);
    assert!(acts(&b.event(go(3, &[X]))), "it has not left yet");
    b.ended("h/y", true);
    assert_eq!(stands(&b), (3, None));
}

/// Seed 21239 of the systems with partial departures: an action went on under a grant of h/z while h/y went down.
#[test]
fn a_kept_object_holds_its_locks_until_its_grants_are_released() {
    let server = "h/y: 0 1, is 1, prefers 1, transition 1 0 <- h/z@0";
    let mut b = Bench::new(&[X, server, "h/z: 0 1, is 1, prefers 1, kept, lock 1 <- h/y@1"]);
    b.hears("request a/a of h/z@1 #1.7");
    let act = |told: &[String]| told.iter().any(|t| t.starts_with("act "));
    let told = b.event(go(2, &[X]));
    assert!(told.contains(&"a: recall a/a of h/z #1.7".to_owned()) && !act(&told), "{told:?}");
    assert!(act(&b.hears("release a/a of h/z #1.7")));
}

#[test]
fn a_kept_object_makes_a_transition_that_a_departure_needs() {
    let mount = "h/y: 0 1, is 1, prefers 1, transition 1 0 <- h/z@2";
    let mut b = Bench::new(&[X, mount, "h/z: 0 1 2, is 1, prefers 1, kept"]);
    let told = b.event(go(2, &[X]));
    assert!(told.contains(&"act h/z 1 -> 2, attempt 1".to_owned()), "{told:?}");
    let told = b.ended("h/z", true);
    assert!(told.contains(&"act h/y 1 -> 0, attempt 1".to_owned()), "{told:?}");
    let told = b.ended("h/y", true);
    let gone = Body::Removed { cob: cob("h/z"), state: state("2"), kept_from: Some(state("0")) };
    assert!(told.contains(&format!("write: {gone:?}")), "it stays where it helped: {told:?}");
    assert_eq!(stands(&b), (2, None));
}

#[test]
fn a_kept_object_departs_only_when_its_state_is_known() {
    let mut b = Bench::new(&[X, KEPT]);
    b.event(Event::CheckWanted(cob("h/y")));
    b.event(go(2, &[X]));
    assert_eq!(stands(&b), (1, Some(2)));
    let told = b.found("h/y", "0");
    let gone = format!("write: {:?}", Body::Removed { cob: cob("h/y"), state: state("0"), kept_from: None });
    assert!(told.contains(&gone), "{told:?}");
    assert_eq!(stands(&b), (2, None));
}

fn cob(text: &str) -> CobId {
    CobId::new(text).expect("a name")
}

fn state(text: &str) -> StateName {
    StateName::new(text).expect("a state")
}
