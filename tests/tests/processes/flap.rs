//! Contradicting goals, which the generator would refuse: the daemons slow them down and report them, and other change
//! objects are not affected.

use std::collections::BTreeMap;
use std::time::Duration;

use cob_types::status::{CobStatus, Trouble};

use crate::{CHECK, PATIENCE, QUICK, cluster};

/// Counterexample 11 (tests/transcripts): n1/a prefers up and requires n2/x, which prefers down.
const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
cobs:
  n1/a: {kind: quick, requires: [n2/x]}
  n2/x: {kind: quick, preferred: down}
  n2/bystander: {kind: quick}
"#;

/// How often a state may be left without a delay.
const FREE: usize = 8;

fn flap(status: &CobStatus) -> Option<(u32, Option<&str>)> {
    status.trouble.iter().find_map(|t| match t {
        Trouble::Flap { times, because_of, .. } => Some((*times, because_of.as_ref().map(|c| c.as_str()))),
        Trouble::Stuck { .. } | Trouble::Chase { .. } | Trouble::Other => None,
    })
}

#[test]
fn contradictory_goals_are_braked_and_named() {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
    let draft = cluster.load(&model);
    let generation = cluster.publish_unchecked(&draft);
    cluster.start_all();
    cluster.switch_all(generation);

    let times = |id: &str| cluster.cob(id).as_ref().and_then(flap).map_or(0, |(times, _)| times);
    cluster.until(PATIENCE, || times("n1/a").max(times("n2/x")) >= 11, "it is told how often they went to and fro");
    // Each is reported with the other as the cause, or with its own preference.
    for (id, other) in [("n1/a", "n2/x"), ("n2/x", "n1/a")] {
        let named = |status: CobStatus| match flap(&status) {
            Some((_, because_of)) => because_of.is_none_or(|b| b == other),
            None => false,
        };
        cluster.until(PATIENCE, || cluster.cob(id).is_some_and(named), "the flap is named");
    }
    assert!(!cluster.is_converged(generation));
    let bystander = cluster.cob("n2/bystander").expect("there");
    assert!(bystander.state.is_some_and(|s| s.as_str() == "up") && bystander.trouble.is_empty());

    // From the ninth time on there is a delay before a state is left, which doubles each time.
    let mut left: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for entry in cluster.merged_history().into_iter().filter(|e| e.event == "start") {
        let (cob, from) = (entry.cob.expect("a change object"), entry.from.expect("a state"));
        left.entry(format!("{cob}@{from}")).or_default().push(entry.ts_ns);
    }
    for (state, at) in &left {
        for n in FREE..at.len() {
            let rest = Duration::from_millis(100 << (n - FREE));
            let waited = Duration::from_nanos(at[n] - at[n - 1]);
            assert!(waited >= rest, "{state} was left the {}th time after {waited:?} where {rest:?} were due", n + 1);
        }
        assert!(at.len() <= FREE + 8, "{state} was left {} times", at.len());
    }

    // The next generation, without the contradiction, ends it at once.
    let agreed = cluster.write_model("model", &[("model.yaml", &MODEL.replace("preferred: down}", "preferred: up}"))]);
    let second = cluster.generate(&agreed);
    cluster.switch_all(second);
    cluster.wait_converged(second, PATIENCE);
}
