//! Transitions that reverts undo when a change object departs, with the data that they saved.

use std::fs;

use cob_tests::cluster::Cluster;

use crate::{PATIENCE, cluster};

/// Two transitions forth, each with a revert, and none back. The first revert fails at its first attempt.
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
fn a_departing_object_is_reverted_in_reverse_with_saved_data() {
    let (mut cluster, place) = begun();
    let read = |name: &str| fs::read_to_string(place.join(name)).expect("read");
    let text = MODEL.replace("PLACE", &place.display().to_string());
    let model = cluster.write_model("model", &[("model.yaml", &text)]);
    let first = cluster.generate(&model);
    cluster.bring_up(first, PATIENCE);
    assert_eq!((read("a").as_str(), read("b").as_str()), ("one\n", "two\n"));

    // The saved data survives the daemon.
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

#[test]
fn two_rollbacks_run_the_reverts_each_time() {
    let (mut cluster, place) = begun();
    let text = MODEL.replace("PLACE", &place.display().to_string());
    let mut generations = Vec::new();
    for version in 1..=3 {
        let text = text.replace("echo two > b", &format!("echo two {version} > b"));
        let model = cluster.write_model(&format!("model{version}"), &[("model.yaml", &text)]);
        generations.push(cluster.generate(&model));
    }
    cluster.bring_up(generations[0], PATIENCE);
    for (at, log) in [(1, ""), (2, ""), (1, "back-2\nback-2\nback-1\n"), (0, "back-2\nback-2\nback-1\n")] {
        fs::write(place.join("log"), "").expect("written");
        cluster.switch_all(generations[at]);
        cluster.wait_converged(generations[at], PATIENCE);
        let read = |name: &str| fs::read_to_string(place.join(name)).expect("read");
        assert_eq!(read("log"), log, "to {}", generations[at]);
        if !log.is_empty() {
            assert_eq!(read("b"), format!("two {}\n", at + 1));
        }
    }
}

/// The change object has a different kind in each generation: a file tree, or a file that a script makes.
fn something_else(place: &std::path::Path, tree: bool) -> String {
    let place = place.display();
    let what = if tree {
        format!("kind: file-tree, content: {{root: {place}, files: {{tree: {{content: text}}}}}}")
    } else {
        format!(
            r#"kind: script, content: {{states: [down, up], preferred: up, pre_remove: down, check: {{run: "[ -e {place}/made ] && echo up || echo down"}}, transitions: [{{from: down, to: up, run: "touch {place}/made"}}, {{from: up, to: down, run: "rm {place}/made"}}]}}"#
        )
    };
    format!("security: loopback-only\nhosts: {{n1: {{address: \"tcp://127.0.0.1:1\"}}}}\ncobs: {{n1/x: {{{what}}}}}\n")
}

#[test]
fn two_rollbacks_remove_the_kind_in_between() {
    let mut cluster = cluster(&["n1"]);
    let place = cluster.path("place");
    fs::create_dir_all(&place).expect("made");
    let generations: Vec<_> = [false, true, false]
        .into_iter()
        .enumerate()
        .map(|(at, tree)| {
            let text = something_else(&place, tree);
            let model = cluster.write_model(&format!("model{at}"), &[("model.yaml", &text)]);
            cluster.generate(&model)
        })
        .collect();
    let is_there = || ["made", "tree"].map(|name| place.join(name).exists());
    cluster.bring_up(generations[0], PATIENCE);
    let steps = [(1, [false, true]), (2, [true, false]), (1, [false, true]), (0, [true, false])];
    // In the last step the daemon is killed as soon as the switch starts.
    for (killed, (at, there)) in [false, false, false, true].into_iter().zip(steps) {
        cluster.switch_all(generations[at]);
        if killed {
            cluster.kill("n1");
            cluster.start("n1");
        }
        cluster.wait_converged(generations[at], PATIENCE);
        assert_eq!(is_there(), there, "in generation {}", generations[at]);
    }
}
