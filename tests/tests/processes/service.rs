//! Services: processes that outlive their daemon, are found again, and are restarted after they have died.

use std::fs;
use std::path::Path;

use cob_tests::cluster::Cluster;
use cob_tests::processes::{self, Signal};
use cob_types::GenerationNumber;

use crate::{PATIENCE, cluster};

const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
cobs:
  n1/server:
    kind: service
    content:
      start: [/bin/sh, -c, "echo $$ > $COB_STATE_DIR/pid; while :; do sleep 60 & wait $!; done"]
      ready: [test, -s, "PIDFILE"]
"#;

/// The model with its place filled in.
fn model(cluster: &Cluster) -> std::path::PathBuf {
    let pid_file = cluster.path("n1/cobs/n1+server/pid").display().to_string();
    cluster.write_model("model", &[("model.yaml", &MODEL.replace("PIDFILE", &pid_file))])
}

fn service(cluster: &Cluster) -> Option<u32> {
    let pid = fs::read_to_string(cluster.path("n1/cobs/n1+server/pid")).ok()?.trim().parse().ok()?;
    Some(pid).filter(|pid| processes::lives(*pid))
}

fn starts(cluster: &Cluster) -> usize {
    cluster.history("n1").iter().filter(|e| e.event == "start").count()
}

#[test]
fn a_service_outlives_its_daemon_and_is_stopped_by_the_next() {
    let mut cluster = cluster(&["n1"]);
    let model = model(&cluster);
    let first = cluster.generate(&model);
    cluster.bring_up(first, PATIENCE);
    let pid = service(&cluster).expect("it runs");
    cluster.kill("n1");
    assert!(processes::lives(pid));
    cluster.start("n1");
    cluster.wait_converged(first, PATIENCE);
    assert_eq!((service(&cluster), starts(&cluster)), (Some(pid), 1), "found, not started again");

    // It departs with the next generation.
    let mut draft = cluster.load(&model);
    draft.cobs.clear();
    let second = cluster.publish_draft(&draft);
    cluster.switch_all(second);
    cluster.wait_converged(second, PATIENCE);
    assert!(!processes::lives(pid));
    let folder = cluster.path("n1/services").display().to_string();
    cluster.until(PATIENCE, || processes::mentioning(&folder).is_empty(), "its keeper is gone, too");
}

#[test]
fn a_service_that_died_is_found_and_started_again() {
    let mut cluster = cluster(&["n1"]);
    let model = model(&cluster);
    let mut draft = cluster.load(&model);
    draft.kinds.get_mut("service").expect("built in").value.check.interval_ms = Some(100);
    let generation = cluster.publish_draft(&draft);
    cluster.bring_up(generation, PATIENCE);
    for round in 2..4 {
        let pid = service(&cluster).expect("it runs");
        processes::signal(pid, Signal::KILL);
        let again = || starts_up(&cluster) == round && cluster.is_converged(generation);
        cluster.until(PATIENCE, again, "it has been started again");
        // `ready` is satisfied by the data of the earlier process: the new process id may come a moment later.
        cluster.until(PATIENCE, || service(&cluster).is_some_and(|now| now != pid), "it is another process");
    }
    let drifts = cluster.history("n1").into_iter().filter(|e| e.event == "drift");
    let told: Vec<_> = drifts.map(|e| (e.to.expect("a state").to_string(), e.detail)).collect();
    let expected = ("failed".to_owned(), "it has ended by itself: signal 9 (SIGKILL)".to_owned());
    assert_eq!(told, [expected.clone(), expected]);
}

fn starts_up(cluster: &Cluster) -> usize {
    let up = |e: &cob_types::history::HistoryEntry| e.event == "start" && e.to.as_ref().is_some_and(|t| *t == *"up");
    cluster.history("n1").iter().filter(|e| up(e)).count()
}

#[test]
fn a_service_whose_keeper_died_too_is_not_left_running_twice() {
    let mut cluster = cluster(&["n1"]);
    let model = model(&cluster);
    let mut draft: cobgen::draft::Draft = cluster.load(&model);
    draft.kinds.get_mut("service").expect("built in").value.check.interval_ms = Some(100);
    let generation: GenerationNumber = cluster.publish_draft(&draft);
    cluster.bring_up(generation, PATIENCE);
    let pid = service(&cluster).expect("it runs");
    let keeper = keeper(&cluster.path("n1/services/n1+server"));
    cluster.kill("n1");
    processes::signal(keeper, Signal::KILL);
    cluster.start("n1");
    let again = || service(&cluster).is_some_and(|now| now != pid) && cluster.is_converged(generation);
    cluster.until(PATIENCE, again, "it has been started again");
    assert!(!processes::lives(pid), "the one without a keeper was ended first");
}

fn keeper(folder: &Path) -> u32 {
    fs::read_to_string(folder.join("lock")).expect("a lock").trim().parse().expect("a process id")
}

const PRINTING: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
cobs:
  n1/server:
    kind: service
    content:
      start: [/bin/sh, -c, "echo $$ > $COB_STATE_DIR/pid; echo begun; echo complaint >&2; while :; do sleep 60 & wait $!; done"]
  n1/flag: {kind: quick}
"#;

#[test]
fn cobctl_logs_shows_and_follows_a_service_over_restarts() {
    use std::io::{BufRead as _, BufReader};

    let mut cluster = cluster(&["n1"]);
    let model = cluster.write_model("model", &[("model.yaml", PRINTING), crate::QUICK, crate::CHECK]);
    let mut draft = cluster.load(&model);
    draft.kinds.get_mut("service").expect("built in").value.check.interval_ms = Some(100);
    let generation = cluster.publish_draft(&draft);
    cluster.bring_up(generation, PATIENCE);
    let logs =
        |words: &[&str]| crate::words::run(crate::words::cobctl(&cluster, &["n1"], &[&["logs"], words].concat()));
    assert_eq!(logs(&["n1/server"]), (0, "begun\ncomplaint\n".to_owned()));
    assert_eq!(logs(&["n1/server", "-n", "1"]), (0, "complaint\n".to_owned()));
    assert_eq!(logs(&["n1/server", "-n", "0"]), (0, String::new()));
    let (exit, said) = logs(&["n1/server", "--json"]);
    let told = r#"{"cob":"n1/server","source":"output","text":"begun\ncomplaint\n","ended":false}"#;
    assert_eq!((exit, said.trim_end()), (0, told));
    for (words, told) in [
        (&["n1/server", "--previous"][..], "no output of an earlier run is kept"),
        (&["n1/flag"], "n1/flag is of the kind quick, which is no service: `cobctl history n1/flag`"),
        (&["n1/other"], "n1 has no change object n1/other"),
    ] {
        let (exit, said) = logs(words);
        assert!(exit == 1 && said.contains(told), "{words:?}: {exit} {said}");
    }

    let mut following = crate::words::cobctl(&cluster, &["n1"], &["logs", "n1/server", "-f"]).spawn().expect("begins");
    let mut lines = BufReader::new(following.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    assert_eq!(lines.by_ref().take(2).collect::<Vec<_>>(), ["begun", "complaint"]);
    processes::signal(service(&cluster).expect("it runs"), Signal::KILL);
    assert_eq!(lines.by_ref().take(2).collect::<Vec<_>>(), ["begun", "complaint"], "of its next life");
    following.kill().expect("killed");
    following.wait().expect("ends");
    assert_eq!(logs(&["n1/server", "--previous"]), (0, "begun\ncomplaint\n".to_owned()));
}

const DRIVEN: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
cobs:
  n1/other: {kind: noop}
  n1/server:
    kind: service
    content:
      start: "test ! -e FOLDER/broken || { echo the disk is full; exit 3; }; touch FOLDER/runs"
      stop: "rm FOLDER/runs"
      status: "test -e FOLDER/runs"
"#;

#[test]
fn a_switch_ends_with_the_last_that_is_put_back_and_fails_with_it() {
    let mut cluster = cluster(&["n1"]);
    let folder = cluster.path("server");
    fs::create_dir(&folder).expect("made");
    let model = DRIVEN.replace("FOLDER", &folder.display().to_string());
    let model = cluster.write_model("model", &[("model.yaml", &model)]);
    // It ran before it was managed.
    fs::write(folder.join("runs"), "").expect("written");
    let first = cluster.generate(&model);
    cluster.bring_up(first, PATIENCE);
    fs::write(folder.join("broken"), "").expect("written");
    let mut draft = cluster.load(&model);
    draft.cobs.retain(|id, _| id.as_str() == "n1/other");
    let second = cluster.publish_draft(&draft);
    cluster.switch_all(second);
    let has_failed = |cluster: &Cluster| {
        let status = cluster.cob("n1/server").filter(|status| status.failed && status.retiring);
        status.and_then(|status| status.action).is_some_and(|action| action.error.contains("the disk is full"))
    };
    cluster.until(PATIENCE, || has_failed(&cluster), "what ran before can't be started again");
    assert!(!cluster.is_converged(second) && !cluster.status("n1").is_some_and(|host| host.settled));
    // The next daemon continues.
    cluster.kill("n1");
    cluster.start("n1");
    cluster.until(PATIENCE, || has_failed(&cluster), "it is tried on after a restart");
    assert!(!cluster.is_converged(second));
    fs::remove_file(folder.join("broken")).expect("removed");
    cluster.http("n1", "POST", "/v1/retry", "{\"cob\":\"n1/server\"}").expect("an answer");
    cluster.wait_converged(second, PATIENCE);
    assert!(folder.join("runs").exists() && cluster.cob("n1/server").is_none());
}
