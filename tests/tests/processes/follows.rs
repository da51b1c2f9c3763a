//! Daemons that follow a depot, together with hosts that receive announcements.

use std::fs;
use std::time::Duration;

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;

use crate::words::told;
use crate::{CHECK, PATIENCE, QUICK, VERSIONED, cluster};

/// Generation by generation: `n1/a` can't start in the seventh; `n2/x` is in the first alone, held by the file `hold`.
fn model(number: u64, folder: &str) -> String {
    let is = if number == 7 { "bad" } else { "good" };
    let x = if number == 1 { "  n2/x: {kind: held}\n" } else { "" };
    format!(
        r#"
security: loopback-only
switch: {{on_failure: rollback}}
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
kinds:
  held:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {{run: ./check.sh}}
    transitions:
      - {{from: down, to: up, run: "echo up > $COB_STATE_DIR/state"}}
      - {{from: up, to: down, run: "while [ -e {folder}/hold ]; do sleep 0.05; done; rm $COB_STATE_DIR/state"}}
cobs:
  n1/a: {{kind: versioned, content: {{v: {number}, is: {is}}}}}
  n2/b: {{kind: quick, content: {{v: {number}}}}}
{x}"#
    )
}

pub(crate) fn publish(cluster: &mut Cluster, number: u64) -> GenerationNumber {
    let text = model(number, &cluster.dir.path().display().to_string());
    let folder = cluster.write_model("model", &[("model.yaml", &text), QUICK, VERSIONED, CHECK]);
    cluster.generate(&folder)
}

#[test]
fn a_host_in_steps_does_not_follow_to_a_withdrawn_generation() {
    let mut cluster = cluster(&["n1", "n2"]);
    let one = publish(&mut cluster, 1);
    cluster.bring_up(one, PATIENCE);
    cluster.kill("n2");
    cluster.configure("n2", "follow = true");
    (2..=5).for_each(|number| _ = publish(&mut cluster, number));
    let six = publish(&mut cluster, 6);
    cluster.switch("n1", six);
    let is_in_six = |name: &str| cluster.status(name).is_some_and(|s| s.generation == Some(six) && s.converged);
    cluster.until(PATIENCE, || is_in_six("n1"), "n1 is there");
    // The other host has missed so many generations that it switches in steps, and it is held in the first.
    fs::write(cluster.path("hold"), "").expect("written");
    cluster.start("n2");
    cluster.until(PATIENCE, || cluster.status("n2").is_some_and(|s| s.switching_to.is_some()), "it sets out");
    let seven = publish(&mut cluster, 7);
    let withdrawn = |name: &str| cluster.status(name).is_some_and(|s| s.withdrawn.contains(&seven));
    cluster.until(PATIENCE, || withdrawn("n1") && withdrawn("n2"), "n1 is told of 7 by n2, and withdraws it");
    assert!(cluster.status("n2").is_some_and(|s| s.switching_to.is_some_and(|next| next < six)), "still held");
    // It reads the depot again, and then continues.
    for on_its_way in [true, false] {
        cluster.kill("n2");
        cluster.start("n2");
        cluster.wait_answers("n2");
        if on_its_way {
            std::thread::sleep(Duration::from_secs(2));
            fs::remove_file(cluster.path("hold")).expect("removed");
        }
        cluster.until(PATIENCE, || cluster.is_converged(six), "both are in the one before");
    }
    std::thread::sleep(Duration::from_secs(5));
    assert!(cluster.is_converged(six));
    assert_eq!(told(&cluster, "n1", "withdraw").len(), 1, "gone to once, and left once");
    assert_eq!(told(&cluster, "n2", "withdraw").len(), 1);
}
