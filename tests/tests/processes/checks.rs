//! Checks on order: the findings of `cobctl check` on hosts whose kinds have no periodic checks.

use std::fs;
use std::path::PathBuf;

use cob_tests::cluster::Cluster;
use cob_types::CobId;
use cob_types::check_round::CheckRound;

use crate::words::{cobctl, run, told};
use crate::{CHECK, PATIENCE, QUICK, cluster};

/// The check of `db` is slow: its result is the state half a second before its end.
const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
kinds:
  looked:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: up, run: "sleep 1; echo up > $COB_STATE_DIR/state"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
cobs:
  n1/db: {kind: looked, content: {pause: 0.5}}
  n1/app: {kind: looked}
  n2/app: {kind: looked}
"#;

const SLOW_CHECK: (&str, &str) = (
    "check.sh",
    "#!/bin/sh\n[ ! -e \"$COB_STATE_DIR/broken\" ] || { echo no idea; exit 7; }\n\
     found=$(cat \"$COB_STATE_DIR/state\" 2>/dev/null || echo down)\n\
     case $(cat \"$COB_CONTENT\") in *pause*) : > \"$COB_STATE_DIR/looked\"; sleep 0.5 ;; esac\necho \"$found\"\n",
);

fn started() -> Cluster {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), SLOW_CHECK]);
    let generation = cluster.generate(&model);
    cluster.start_all();
    cluster.switch_all(generation);
    cluster.wait_converged(generation, PATIENCE);
    cluster
}

fn file(cluster: &Cluster, cob: &str, name: &str) -> PathBuf {
    cluster.path(&format!("n1/cobs/n1+{cob}/{name}"))
}

fn begin(cluster: &Cluster, body: &str) -> CheckRound {
    serde_json::from_str(&cluster.http("n1", "POST", "/v1/check", body).expect("begun")).expect("a round")
}

fn ended(cluster: &Cluster, mut round: CheckRound) -> CheckRound {
    while !round.ended {
        let path = format!("/v1/check?round={}", round.round);
        round = serde_json::from_str(&cluster.http("n1", "GET", &path, "").expect("told")).expect("a round");
    }
    round
}

#[test]
fn cobctl_check_finds_reports_and_repairs_unnoticed_drift() {
    let cluster = started();
    let check = |words: &[&str]| run(cobctl(&cluster, &["n1", "n2"], &[&["check"], words].concat()));
    let well = check(&[]);
    assert_eq!(
        well,
        (0, "n1: 2 change objects checked, all in their desired states\nn2: 1 change object checked, in its desired state\n".to_owned())
    );
    fs::remove_file(file(&cluster, "app", "state")).expect("removed");
    fs::write(file(&cluster, "db", "broken"), "").expect("written");
    assert!(cluster.status("n1").is_some_and(|status| status.converged), "nobody has looked");
    let (code, told) = check(&["n1"]);
    assert_eq!(
        (code, told.lines().take(2).collect::<Vec<_>>()),
        (
            1,
            vec!["n1: 2 change objects checked, 1 not in the desired state, 1 unknown", "  n1/app: down, should be up"]
        )
    );
    assert!(told.contains("\n  n1/db: unknown: ") && told.contains("no idea"), "{told}");
    // A change object in transition is not checked, and not reported to be in its desired state.
    let (code, told) = check(&["n1/app"]);
    assert_eq!((code, told.as_str()), (1, "n1: 0 change objects checked, 1 in a transition\n"));
    fs::remove_file(file(&cluster, "db", "broken")).expect("removed");
    cluster.until(PATIENCE, || check(&[]).0 == 0, "it is put right");
    let (code, told) = check(&["n1/nobody", "n1/none"]);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("has no n1/nobody, n1/none"), "{told}");
}

#[test]
fn a_check_that_began_before_the_question_does_not_answer_it() {
    let cluster = started();
    let first = {
        let cluster = &cluster;
        std::thread::scope(|scope| {
            let looked = file(cluster, "db", "looked");
            fs::remove_file(&looked).expect("it was looked at before");
            let first = scope.spawn(move || ended(cluster, begin(cluster, "{\"cobs\":[\"n1/db\"]}")));
            cluster.until(PATIENCE, || looked.exists(), "the first one has looked and goes on");
            fs::remove_file(file(cluster, "db", "state")).expect("removed");
            let second = ended(cluster, begin(cluster, "{\"cobs\":[\"n1/db\"]}"));
            assert_eq!((second.looked, second.differ), (1, 1), "{second:?}");
            first.join().expect("told")
        })
    };
    // The check read the state before the file was removed.
    assert_eq!((first.looked, first.as_wanted), (1, 1), "{first:?}");
}

#[test]
fn a_host_without_a_generation_or_a_daemon_is_not_well() {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), SLOW_CHECK]);
    cluster.generate(&model);
    cluster.start("n1");
    cluster.wait_answers("n1");
    let (code, told) = run(cobctl(&cluster, &["n1"], &["check"]));
    assert_eq!((code, told.as_str()), (1, "n1: no generation yet, so no desired states\n"));
    assert_eq!(run(cobctl(&cluster, &["n1", "n2"], &["check"])).0, 3);
    let gone = cluster.http("n1", "GET", "/v1/check?round=7", "").expect_err("there was none");
    assert!(gone.contains("404") && gone.contains("check again"), "{gone}");
}

/// `n1/db` comes up, and after that its checks can't tell the state; `n1/slow` keeps the switch open.
const UNCLEAR: &str = r#"
security: loopback-only
switch: {on_failure: rollback}
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
kinds:
  unclear:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "[ ! -e $COB_STATE_DIR/state ] || { echo no idea; exit 7; }; echo down", interval: 1s}
    transitions:
      - {from: down, to: up, run: "echo up > $COB_STATE_DIR/state"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
  slow:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: up, run: "sleep 600"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
cobs:
  n1/app: {kind: quick}
  n1/db: {kind: unclear}
  n1/slow: {kind: slow}
"#;

#[test]
fn a_switch_of_which_the_checks_can_not_tell_has_failed() {
    const BEFORE: &str =
        "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:1\"}}\ncobs: {n1/app: {kind: quick}}\n";
    let mut cluster = cluster(&["n1"]);
    let before = cluster.write_model("before", &[("model.yaml", BEFORE), QUICK, CHECK]);
    let before = cluster.generate(&before);
    cluster.bring_up(before, PATIENCE);
    let after = cluster.write_model("after", &[("model.yaml", UNCLEAR), QUICK, CHECK]);
    let after = cluster.generate(&after);
    cluster.switch_all(after);
    cluster.until(PATIENCE, || told(&cluster, "n1", "withdraw").len() == 1, "it is withdrawn");
    let why = told(&cluster, "n1", "withdraw").remove(0);
    assert!(why.contains("n1/db can't be checked") && why.contains("no idea"), "{why}");
    let checks = cluster
        .history("n1")
        .into_iter()
        .filter(|e| e.event == "check" && e.cob == Some(CobId::new("n1/db").expect("a name")));
    let unclear: Vec<_> = checks.filter(|e| e.ok == Some(false)).collect();
    assert!(
        unclear.len() >= 3 && unclear.iter().all(|e| e.to.as_ref().is_some_and(|s| s.as_str() == "up")),
        "{unclear:?}"
    );
}
