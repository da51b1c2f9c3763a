//! The hosts that announcements of a switch reach: canaries together with the others, and hosts that have activated
//! already, restart, or are removed.

use std::fs;
use std::path::PathBuf;

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;
use cob_types::outcome::Ended;
use cob_types::status::{Phase, SwitchStage};
use cob_types::switch::OnFailure;
use cobgen::depot::Depot;

use crate::{PATIENCE, cluster, words};

const ONE: GenerationNumber = GenerationNumber(1);
const TWO: GenerationNumber = GenerationNumber(2);

/// A flag is up with its content, which can't be `bad`. While the file `wait-HOST` exists, no flag of the host moves,
/// and while `stays-HOST` exists, none goes down.
fn model(folder: &str, policy: &str, flags: &[(&str, &str)]) -> String {
    let hosts: std::collections::BTreeSet<_> = flags.iter().filter_map(|(id, _)| id.split('/').next()).collect();
    let hosts = hosts.into_iter().zip(1..).map(|(h, n)| format!("  {h}: {{address: \"tcp://127.0.0.1:{n}\"}}\n"));
    let cobs = flags.iter().map(|(id, v)| format!("  {id}: {{kind: flag, content: {{v: {v}}}}}\n"));
    format!(
        r#"
security: loopback-only
switch: {{on_failure: {policy}}}
kinds:
  flag:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    retries: 0
    check: {{run: "if [ ! -e $COB_STATE_DIR/up ]; then echo down; elif cmp -s $COB_STATE_DIR/up $COB_CONTENT; then echo up; else echo outdated; fi"}}
    transitions:
      - {{from: down, to: up, failure: down, run: "while [ -e {folder}/wait-$COB_HOST ]; do sleep 0.05; done; if grep -q bad $COB_CONTENT; then echo broken; exit 1; fi; cp $COB_CONTENT $COB_STATE_DIR/up"}}
      - {{from: up, to: down, failure: up, run: "while [ -e {folder}/wait-$COB_HOST ]; do sleep 0.05; done; if [ -e {folder}/stays-$COB_HOST ]; then echo stays; exit 1; fi; rm $COB_STATE_DIR/up"}}
      - {{from: outdated, to: down, run: "rm $COB_STATE_DIR/up"}}
hosts:
{}cobs:
{}"#,
        hosts.collect::<String>(),
        cobs.collect::<String>()
    )
}

struct Flags {
    cluster: Cluster,
    folder: PathBuf,
    policy: &'static str,
}

impl Flags {
    fn new(hosts: &[&str], policy: &'static str) -> Self {
        let cluster = cluster(hosts);
        let folder = cluster.path("flags");
        fs::create_dir(&folder).expect("a folder");
        Self { cluster, folder, policy }
    }

    fn publish(&mut self, flags: &[(&str, &str)]) -> GenerationNumber {
        let text = model(&self.folder.display().to_string(), self.policy, flags);
        let model = self.cluster.write_model("model", &[("model.yaml", &text)]);
        self.cluster.generate(&model)
    }

    /// Both hosts have the first generation; the second does not come up on `n2`.
    fn of_which_one_fails(policy: &'static str) -> Self {
        let mut flags = Self::new(&["n1", "n2"], policy);
        flags.publish(&[("n1/a", "one"), ("n2/b", "one")]);
        flags.cluster.bring_up(ONE, PATIENCE);
        flags.publish(&[("n1/a", "two"), ("n2/b", "bad")]);
        flags
    }

    fn keep(&self, name: &str) {
        fs::write(self.folder.join(name), "").expect("written");
    }

    fn let_go(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).expect("removed");
    }

    /// Runs `cobctl` with the hosts of the depot; returns the exit status and the output.
    fn ctl(&self, said: &[&str]) -> (i32, String) {
        words::run(words::cobctl(&self.cluster, &[], said))
    }

    fn wait_returned(&self, hosts: &[&str]) {
        let returned = |host: &&str| {
            let switch = self.cluster.status(host).and_then(|s| s.switch);
            switch.is_some_and(|s| s.left == Some(TWO) && s.to == ONE && s.stage == SwitchStage::Settled)
        };
        self.cluster.until(PATIENCE, || hosts.iter().all(returned), "all have returned");
        self.cluster.wait_converged(ONE, PATIENCE);
    }
}

#[test]
fn canaries_and_waves_go_back_with_the_others_where_the_policy_says_so() {
    // It has converged long before the others switch.
    let gated = ["--canary", "n1", "--gate", "4s", "--on-failure", "rollback"];
    for (policy, staged) in [("hold", &gated[..]), ("rollback", &["--limit-hosts", "1"])] {
        let flags = Flags::of_which_one_fails(policy);
        let (code, said) = flags.ctl(&[&["switch", "2", "--wait", "60s"], staged].concat());
        assert!(code == 1 && said.contains("was rolled back"), "{policy}: {code} {said}");
        flags.wait_returned(&["n1", "n2"]);
    }
}

#[test]
fn a_second_switch_order_extends_a_canary_switch_to_all_hosts() {
    let flags = Flags::of_which_one_fails("rollback");
    // The state that an interrupted `cobctl` leaves.
    let alone = "{\"generation\": 2, \"on_failure\": \"hold\", \"alone\": true, \"only\": [\"n1\"]}";
    flags.cluster.http("n1", "POST", "/v1/switch", alone).expect("taken");
    let there = || flags.cluster.status("n1").is_some_and(|s| s.generation == Some(TWO) && s.converged && s.alone);
    flags.cluster.until(PATIENCE, there, "n1 is there");
    let (code, said) = flags.ctl(&["switch", "2", "--wait", "60s"]);
    assert!(code == 1 && said.contains("was rolled back"), "{code} {said}");
    flags.wait_returned(&["n1", "n2"]);
}

#[test]
fn hosts_that_are_there_already_hear_of_another_policy() {
    let flags = Flags::of_which_one_fails("hold");
    flags.keep("wait-n2");
    flags.cluster.switch_all(TWO);
    let on_failure = |host: &str| flags.cluster.status(host).and_then(|s| s.switch).map(|s| s.on_failure);
    let active = |host: &&str| flags.cluster.status(host).is_some_and(|s| s.generation == Some(TWO));
    flags.cluster.until(PATIENCE, || ["n1", "n2"].iter().all(active), "active");
    assert_eq!(on_failure("n2"), Some(OnFailure::Hold));
    let (code, said) = flags.ctl(&["switch", "2", "--on-failure", "rollback", "--wait", "1s"]);
    assert!(code == 1 && said.contains("not converged in time"), "{code} {said}");
    assert_eq!(on_failure("n2"), Some(OnFailure::Rollback), "{said}");
    flags.let_go("wait-n2");
    flags.wait_returned(&["n1", "n2"]);
}

#[test]
fn a_rollback_has_not_ended_well_while_a_host_that_leaves_with_it_has_failed() {
    let mut flags = Flags::new(&["n1", "n2"], "hold");
    for (host, all) in [("n1", &[("n1/a", "one")][..]), ("n2", &[("n1/a", "one"), ("n2/b", "one")])] {
        let generation = flags.publish(all).to_string();
        flags.cluster.start(host);
        flags.cluster.wait_answers(host);
        let (code, said) = flags.ctl(&["switch", &generation, "--wait", "60s"]);
        assert_eq!(code, 0, "{said}");
    }
    flags.keep("stays-n2");
    let (code, said) = flags.ctl(&["rollback", "--wait", "60s"]);
    assert!(code == 1 && said.contains("n2/b") && said.contains("failed after"), "{code} {said}");
    let outcome = || {
        let (_, said) = flags.ctl(&["outcomes", "1", "--json"]);
        let told: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let all = told["outcomes"].as_array().cloned().expect("a list");
        all.iter().map(|one| one["ended"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(outcome(), [Some("converged".to_owned()), Some("failed".to_owned())]);
    flags.let_go("stays-n2");
    let (code, said) = flags.ctl(&["retry", "n2/b"]);
    assert_eq!(code, 0, "{said}");
    let left = || flags.cluster.status("n2").is_some_and(|s| s.generation == Some(ONE) && s.cobs.is_empty());
    flags.cluster.until(PATIENCE, left, "n2 has left");
}

#[test]
fn a_rolled_back_switch_is_recorded_as_rolled_back() {
    let mut flags = Flags::new(&["n1", "n2"], "hold");
    flags.publish(&[("n1/a", "one"), ("n2/b", "one")]);
    flags.cluster.bring_up(ONE, PATIENCE);
    flags.publish(&[("n1/a", "two"), ("n2/b", "one")]);
    for words in [&["switch", "2", "--wait", "60s"][..], &["rollback", "--wait", "60s"]] {
        let (code, said) = flags.ctl(words);
        assert_eq!(code, 0, "{said}");
    }
    let noted = Depot::open(&flags.cluster.path("depot")).and_then(|depot| depot.outcomes()).expect("read").all;
    let noted: Vec<_> = noted.iter().map(|outcome| (outcome.to, outcome.ended)).collect();
    assert_eq!(noted, [(ONE, Ended::Converged), (TWO, Ended::RolledBack), (TWO, Ended::Converged)]);
}

#[test]
fn a_host_that_comes_back_does_not_start_a_cancelled_switch() {
    const ALL: [&str; 3] = ["n1", "n2", "n3"];
    let mut flags = Flags::new(&ALL, "hold");
    flags.publish(&[("n1/a", "one"), ("n2/b", "one"), ("n3/c", "one")]);
    flags.cluster.bring_up(ONE, PATIENCE);
    flags.publish(&[("n1/a", "two"), ("n2/b", "one"), ("n3/c", "two")]);
    flags.cluster.kill("n3");
    flags.keep("wait-n1");
    let (code, said) = flags.ctl(&["switch", "2", "--timeout", "1s"]);
    assert_eq!(code, 3, "{said}");
    let active = |host: &&str| flags.cluster.status(host).is_some_and(|s| s.generation == Some(TWO));
    flags.cluster.until(PATIENCE, || ["n1", "n2"].iter().all(active), "active");
    let converged = || flags.cluster.status("n2").is_some_and(|s| s.converged);
    flags.cluster.until(PATIENCE, converged, "nothing of n2 differs");
    let (code, said) = flags.ctl(&["cancel", "--timeout", "1s"]);
    assert_eq!(code, 3, "{said}");
    assert!(
        said.contains("n1: cancelled") && said.contains("n2: cancelled (generation 2 has converged here"),
        "{said}"
    );
    let (_, said) = flags.ctl(&["cancel", "2", "--timeout", "1s"]);
    assert!(said.contains("n2: no switch to cancel"), "once: {said}");

    // A restart of the hosts that have it does not change that either.
    flags.cluster.kill("n2");
    flags.cluster.start("n2");
    flags.cluster.start("n3");
    flags.cluster.wait_answers("n3");
    let linked = || flags.cluster.status("n3").is_some_and(|s| s.peers.len() == 2 && s.peers.iter().all(|p| p.up));
    flags.cluster.until(PATIENCE, linked, "n3 is back");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let n3 = flags.cluster.status("n3").expect("it answers");
    assert_eq!((n3.generation, n3.switching_to), (Some(ONE), None));

    flags.let_go("wait-n1");
    let (code, said) = flags.ctl(&["resume"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("n2: resumed (the cancelled switch is announced"), "{said}");
    flags.cluster.wait_converged(TWO, PATIENCE);
    assert!(ALL.iter().all(|host| flags.cluster.status(host).is_some_and(|s| !s.alone)));
}

#[test]
fn words_reach_hosts_that_leave_while_they_do() {
    let mut flags = Flags::new(&["n1", "n2"], "hold");
    flags.publish(&[("n1/a", "one"), ("n2/b", "one")]);
    flags.cluster.bring_up(ONE, PATIENCE);
    flags.publish(&[("n1/a", "one")]);
    flags.keep("wait-n2");
    let (code, said) = flags.ctl(&["switch", "2"]);
    assert_eq!(code, 0, "{said}");
    let moves = || flags.cluster.cob("n2/b").is_some_and(|c| c.phase == Phase::Moving);
    flags.cluster.until(PATIENCE, moves, "n2 stops what it has");
    let settled = || flags.cluster.status("n1").is_some_and(|s| s.generation == Some(TWO) && s.settled);
    flags.cluster.until(PATIENCE, settled, "n1 has nothing to do");
    let (code, said) = flags.ctl(&["status"]);
    assert!(code == 1 && said.contains("n2 has generation 1 active and switches to 2"), "{code} {said}");
    let (code, said) = flags.ctl(&["pause"]);
    assert!(code == 0 && said.contains("n2: paused"), "{code} {said}");
    let (code, said) = flags.ctl(&["resume"]);
    assert!(code == 0 && said.contains("n2: resumed"), "{code} {said}");
    let (code, said) = flags.ctl(&["cancel"]);
    assert!(
        code == 0 && said.contains("n2: cancelled (generation 2: 1 transition asked to end; held"),
        "{code} {said}"
    );
    let held = || flags.cluster.status("n2").is_some_and(|s| s.held == Some(TWO));
    flags.cluster.until(PATIENCE, held, "n2 stands still");
    // Also by its name.
    let (code, said) = flags.ctl(&["status", "n2"]);
    assert!(code == 1 && said.contains("n2/b"), "{code} {said}");
    flags.let_go("wait-n2");
    let (code, said) = flags.ctl(&["--host", "n2", "resume"]);
    assert!(code == 0 && said.contains("n2: resumed"), "{code} {said}");
    let left = || flags.cluster.status("n2").is_some_and(|s| s.generation == Some(TWO) && s.cobs.is_empty());
    flags.cluster.until(PATIENCE, left, "n2 has left");
    let (code, said) = flags.ctl(&["status"]);
    assert!(code == 0 && !said.contains("n2"), "who is through is no host of the cluster: {code} {said}");
    flags.cluster.kill("n2");
    assert_eq!(flags.ctl(&["status"]).0, 0, "nor is one that is gone");
}
