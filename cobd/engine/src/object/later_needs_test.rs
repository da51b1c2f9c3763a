//! The locks that an outdated change object has to hold before it stops.

use crate::testing::Bench;

/// It restarts by way of 0, and `m/m` must be done before it comes up.
const OUTDATED: &str = "h/a: 0 1 outdated, is outdated, prefers 1, no way outdated 1, transition 0 1 <- m/m@1";

const BEGINS: [&str; 3] =
    ["note: h/a holds m/m@1", "write: h/a begins outdated -> 0", "act h/a outdated -> 0, attempt 1"];

#[test]
fn an_outdated_object_stays_up_until_its_start_has_its_grants() {
    let mut b = Bench::new(&[OUTDATED]);
    assert_eq!(b.hears("grant m/m@1 to h/a #1.2"), BEGINS);
    // The same lock serves its way up.
    assert_eq!(
        b.ended("h/a", true),
        ["write: h/a ended well, is 0", "write: h/a begins 0 -> 1, on m/m@1 #1.2", "act h/a 0 -> 1, attempt 1"]
    );
    assert_eq!(
        b.ended("h/a", true),
        ["write: h/a ended well, is 1", "note: h/a gives m/m back", "m: release h/a of m/m #1.2"]
    );
}

#[test]
fn an_outdated_object_takes_its_token_after_the_grants_for_its_start() {
    let mut b = Bench::new(&[&format!("{OUTDATED}, transition outdated 0 <- c/c@0, budget d/b")]);
    assert_eq!(
        b.hears("grant m/m@1 to h/a #1.2"),
        ["note: h/a holds m/m@1", "note: h/a asks d/b@open", "d: request h/a of d/b@open #1.3 rev 0 rank 11 from h/a"]
    );
    assert_eq!(
        b.hears("grant d/b@open to h/a #1.3"),
        ["note: h/a holds d/b@open", "note: h/a asks c/c@0", "c: request h/a of c/c@0 #1.4 rev 0 rank 11 from h/a"]
    );
    // A lock held ahead may be recalled: no change object waits for the outdated one in a cycle.
    assert_eq!(
        b.hears("recall h/a of m/m #1.2"),
        ["note: h/a asks m/m@1", "m: request h/a of m/m@1 #1.5 rev 0 rank 11 from h/a"]
    );
    assert_eq!(
        b.hears("grant c/c@0 to h/a #1.4"),
        [
            "note: h/a holds c/c@0",
            "write: h/a begins outdated -> 0, on c/c@0 #1.4, with a token of d/b #1.3",
            "act h/a outdated -> 0, attempt 1"
        ]
    );
}

#[test]
fn a_request_to_stop_an_outdated_object_is_served_at_once() {
    let mut b = Bench::new(&[OUTDATED]);
    assert_eq!(
        b.hears("request m/m of h/a@0 #1.7"),
        ["write: h/a begins outdated -> 0", "act h/a outdated -> 0, attempt 1"]
    );
}

#[test]
fn a_request_for_the_preferred_state_does_not_start_a_transition() {
    let mut b = Bench::new(&[OUTDATED]);
    assert_eq!(b.hears("request m/c of h/a@1 #1.7"), [""; 0]);
    assert_eq!(b.hears("grant m/m@1 to h/a #1.2"), BEGINS);
}

#[test]
fn a_stop_does_not_wait_for_a_contrary_need_of_the_start() {
    let mut b = Bench::new(&[&format!("{OUTDATED}, transition outdated 0 <- m/m@0")]);
    assert_eq!(
        b.hears("grant m/m@0 to h/a #1.2"),
        ["note: h/a holds m/m@0", "write: h/a begins outdated -> 0, on m/m@0 #1.2", "act h/a outdated -> 0, attempt 1"]
    );
}
