//! Moves that are taken back by their reverts when a change object leaves, with what they have saved.

use std::fs;

use cob_tests::cluster::Cluster;

use crate::{PATIENCE, cluster};

/// Two moves there, each with a revert, and none back. The first revert fails at its first attempt.
const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
cobs:
  n1/conf:
    kind: script
    content:
      states: [down, half, up]
      preferred: up
      pre_remove: down
      retries: 2
      retry_delay: 10ms
      check: {run: "cd PLACE; if grep -q two b; then echo up; elif grep -q one a; then echo half; else echo down; fi"}
      transitions:
        - {from: down, to: half, run: "cd PLACE; cat a > $COB_RESULT_OUT; echo one > a", revert: "cd PLACE; echo back-1 >> log; cat $COB_RESULT_FILE > a"}
        - {from: half, to: up, run: "cd PLACE; cat b > $COB_RESULT_OUT; echo two > b", revert: "cd PLACE; echo back-2 >> log; [ $COB_ATTEMPT = 2 ] || exit 1; echo $COB_RESULT > b"}
"#;

fn begun() -> (Cluster, std::path::PathBuf) {
    let cluster = cluster(&["n1"]);
    let place = cluster.path("place");
    fs::create_dir_all(&place).expect("made");
    for (name, text) in [("a", "user's a\nwith two lines\n"), ("b", "user's b\n"), ("log", "")] {
        fs::write(place.join(name), text).expect("written");
    }
    (cluster, place)
}

#[test]
fn who_leaves_is_taken_back_in_the_reverse_order_with_what_was_saved() {
    let (mut cluster, place) = begun();
    let read = |name: &str| fs::read_to_string(place.join(name)).expect("read");
    let text = MODEL.replace("PLACE", &place.display().to_string());
    let model = cluster.write_model("model", &[("model.yaml", &text)]);
    let first = cluster.generate(&model);
    cluster.bring_up(first, PATIENCE);
    assert_eq!((read("a").as_str(), read("b").as_str()), ("one\n", "two\n"));

    // What was saved outlives the daemon.
    cluster.kill("n1");
    cluster.start("n1");
    cluster.wait_converged(first, PATIENCE);
    let mut draft = cluster.load(&model);
    draft.cobs.clear();
    let second = cluster.publish_draft(&draft);
    cluster.switch_all(second);
    cluster.wait_converged(second, PATIENCE);
    assert_eq!((read("a").as_str(), read("b").as_str()), ("user's a\nwith two lines\n", "user's b\n"));
    assert_eq!(read("log"), "back-2\nback-2\nback-1\n");
    let kept = || fs::read_dir(cluster.path("n1/saved")).is_ok_and(|all| all.count() > 0);
    cluster.until(PATIENCE, || !kept(), "nothing is left of what was saved");
}
