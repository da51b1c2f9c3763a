//! `cobgen verify` on models that converge and on a model that can't.

use std::path::Path;

use cobgen::make::{After, make};
use cobgen::verify::verify;

fn generation(model: &Path) -> cob_types::Generation {
    make(model, &After::default()).assembled.expect("it can be assembled").generation
}

#[test]
fn the_examples_come_to_rest() {
    for name in ["fig1", "simple", "webshop"] {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
        let verified = verify(&generation(&model), 20, 1, |_| {});
        assert!(verified.is_well(), "{name}: {verified:?}");
    }
}

#[test]
fn contradictory_goals_are_named_with_a_seed() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.yaml");
    let text = r#"
security: loopback-only
hosts: {h: {address: "tcp://127.0.0.1:7001"}}
cobs:
  h/db: {kind: noop, preferred: down}
  h/app: {kind: noop, requires: [h/db]}
"#;
    std::fs::write(&model, text).expect("written");
    let verified = verify(&generation(&model), 5, 1, |_| {});
    assert_eq!((verified.runs, verified.converged), (5, 0), "{verified:?}");
    assert!(verified.violations.is_empty(), "{verified:?}");
    assert_eq!(verified.deadlocks.iter().map(|d| d.seed).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(verified.deadlocks.iter().all(|d| !d.troubles.is_empty()), "{verified:?}");
}

/// More injected failures than the retries of a change object allow: this is no deadlock.
#[test]
fn injected_failures_beyond_the_attempts_are_no_deadlock() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.yaml");
    let text = r#"
security: loopback-only
hosts: {h: {address: "tcp://127.0.0.1:7001"}}
kinds:
  once:
    states: [down, up]
    preferred: up
    pre_remove: down
    retries: 0
    check: {run: "true"}
    transitions: [{from: down, to: up, run: "true"}, {from: up, to: down, run: "true"}]
cobs:
  h/a: {kind: once}
  h/b: {kind: once, requires: [h/a]}
"#;
    std::fs::write(&model, text).expect("written");
    let verified = verify(&generation(&model), 200, 1, |_| {});
    assert!(verified.is_well() && verified.deadlocks.is_empty(), "{verified:?}");
    assert!(verified.gave_up > 0 && verified.converged + verified.gave_up == 200, "{verified:?}");
    assert!(verified.failed.iter().flat_map(|run| &run.cobs).all(|cob| cob.attempts == 1), "{verified:?}");
}
