//! Actions that continue without their daemon, fail, are killed, and pass values on.

use std::fs;
use std::path::PathBuf;

use cob_tests::cluster::Cluster;
use cob_tests::processes::{self, Signal};
use cob_types::status::{Phase, Wait};
use cob_types::{GenerationNumber, history::HistoryEntry};

use crate::{CHECK, PATIENCE, QUICK, cluster};

/// n1/first runs until the file `go` exists; n2/second is started after it.
const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
kinds:
  slow:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: up, run: ./start.sh, retries: 2, retry_delay: 200ms, grace: 1s}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
cobs:
  n1/first: {kind: slow}
  n2/second: {kind: quick, requires: [n1/first]}
"#;

/// With a file `early` its effect is visible long before its end.
const START: &str = r#"#!/bin/sh
cd "$COB_STATE_DIR"
echo "start $COB_ATTEMPT" >> log
[ ! -e early ] || echo up > state
until [ -e go ]; do sleep 0.02; done
echo up > state
echo "end $COB_ATTEMPT" >> log
"#;

/// The folder of a change object, as its scripts know it.
fn own_folder(cluster: &Cluster, cob: &str) -> PathBuf {
    let (host, _) = cob.split_once('/').expect("HOST/NAME");
    cluster.path(host).join("cobs").join(cob.replace('/', "+"))
}

fn read(cluster: &Cluster, cob: &str, file: &str) -> String {
    fs::read_to_string(own_folder(cluster, cob).join(file)).unwrap_or_default()
}

fn touch(cluster: &Cluster, cob: &str, file: &str) {
    let folder = own_folder(cluster, cob);
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join(file), "").expect("written");
}

/// Both daemons run, and the action of n1/first is under way.
fn begun(start: &str, files: &[&str]) -> (Cluster, GenerationNumber) {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK, ("start.sh", start)]);
    let generation = cluster.generate(&model);
    cluster.start_all();
    files.iter().for_each(|file| touch(&cluster, "n1/first", file));
    cluster.switch_all(generation);
    cluster.until(PATIENCE, || !read(&cluster, "n1/first", "log").is_empty(), "the action has begun");
    (cluster, generation)
}

/// The runner process of the only action on a host.
fn runner(cluster: &Cluster, host: &str) -> u32 {
    let jobs = fs::read_dir(cluster.path(host).join("jobs")).expect("jobs");
    let locks: Vec<_> = jobs.map(|job| job.expect("a job").path().join("lock")).collect();
    let [lock] = locks.as_slice() else { panic!("one job is expected: {locks:?}") };
    let text = fs::read_to_string(lock).expect("a lock");
    // The process group that it has started follows.
    text.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a process id")
}

/// The actions of a change object in the history: event, attempt, ok.
fn told(cluster: &Cluster, cob: &str) -> Vec<(String, Option<u32>, Option<bool>)> {
    let host = cob.split_once('/').expect("HOST/NAME").0;
    let of = cluster.history(host).into_iter().filter(|e| e.cob.as_ref().is_some_and(|c| c.as_str() == cob));
    of.filter(|e| ["start", "end"].contains(&e.event.as_str())).map(|e| (e.event, e.attempt, e.ok)).collect()
}

fn entry(event: &str, attempt: u32, ok: Option<bool>) -> (String, Option<u32>, Option<bool>) {
    (event.to_owned(), Some(attempt), ok)
}

fn is_running(cluster: &Cluster, cob: &str) -> bool {
    let Some(status) = cluster.cob(cob) else { return false };
    status.phase == Phase::Moving && status.action.is_some_and(|a| a.running)
}

#[test]
fn an_action_that_runs_on_without_its_daemon_is_waited_for() {
    let (mut cluster, generation) = begun(START, &[]);
    for _ in 0..2 {
        cluster.kill("n1");
        cluster.start("n1");
        cluster.until(PATIENCE, || is_running(&cluster, "n1/first"), "the action is known again");
    }
    let is_down = || cluster.cob("n2/second").and_then(|cob| cob.state).is_some_and(|state| state == "down");
    cluster.until(PATIENCE, is_down, "the other host has looked");
    touch(&cluster, "n1/first", "go");
    cluster.wait_converged(generation, PATIENCE);
    assert_eq!(read(&cluster, "n1/first", "log"), "start 1\nend 1\n");
    assert_eq!(told(&cluster, "n1/first"), [entry("start", 1, None), entry("end", 1, Some(true))]);
}

#[test]
fn an_action_that_ended_without_its_daemon_is_not_repeated() {
    let (mut cluster, generation) = begun(START, &[]);
    let runner = runner(&cluster, "n1");
    cluster.kill("n1");
    touch(&cluster, "n1/first", "go");
    cluster.until(PATIENCE, || !processes::lives(runner), "the runner has ended");
    cluster.start("n1");
    cluster.wait_converged(generation, PATIENCE);
    assert_eq!(read(&cluster, "n1/first", "log"), "start 1\nend 1\n");
    assert_eq!(told(&cluster, "n1/first"), [entry("start", 1, None), entry("end", 1, Some(true))]);
}

#[test]
fn after_a_killed_runner_the_state_is_checked_and_not_assumed() {
    // The effect was there: no action is needed again.
    let (cluster, generation) = begun(START, &["early"]);
    cluster.until(PATIENCE, || !read(&cluster, "n1/first", "state").is_empty(), "the effect is there");
    processes::signal(runner(&cluster, "n1"), Signal::KILL);
    cluster.wait_converged(generation, PATIENCE);
    assert_eq!(read(&cluster, "n1/first", "log"), "start 1\n");
    assert_eq!(told(&cluster, "n1/first"), [entry("start", 1, None), entry("end", 1, None)]);
    let folder = own_folder(&cluster, "n1/first").display().to_string();
    assert_eq!(processes::mentioning(&folder), [0; 0], "what was left of the action has ended");
}

#[test]
fn an_action_whose_runner_was_killed_begins_again() {
    // With a running daemon, and without.
    let (mut cluster, generation) = begun(START, &[]);
    processes::signal(runner(&cluster, "n1"), Signal::KILL);
    let starts = |n: usize| move |cluster: &Cluster| read(cluster, "n1/first", "log").matches("start").count() == n;
    cluster.until(PATIENCE, || starts(2)(&cluster), "it has begun again");
    let second = runner(&cluster, "n1");
    cluster.kill("n1");
    processes::signal(second, Signal::KILL);
    cluster.start("n1");
    cluster.until(PATIENCE, || starts(3)(&cluster), "it has begun a third time");
    touch(&cluster, "n1/first", "go");
    cluster.wait_converged(generation, PATIENCE);
    // The results of the first two are unknown: they do not count as failed attempts.
    assert_eq!(read(&cluster, "n1/first", "log"), "start 1\nstart 1\nstart 1\nend 1\n");
}

#[test]
fn a_failing_action_is_tried_again_and_given_up() {
    const FAILING: &str = r#"#!/bin/sh
cd "$COB_STATE_DIR"
echo "$COB_ATTEMPT $(date +%s%N)" >> log
[ -e fixed ] || { echo "no luck today" >&2; exit 3; }
echo up > state
"#;
    let (mut cluster, generation) = begun(FAILING, &[]);
    let failed = |cluster: &Cluster| cluster.cob("n1/first").is_some_and(|c| c.failed && c.phase == Phase::Waiting);
    let attempts = |cluster: &Cluster| -> Vec<(u32, u64)> {
        let log = read(cluster, "n1/first", "log");
        let pairs = log.lines().map(|l| l.split_once(' ').expect("two words"));
        pairs.map(|(n, at)| (n.parse().expect("a number"), at.parse().expect("a time"))).collect()
    };
    cluster.until(PATIENCE, || failed(&cluster), "it has given up");

    let made = attempts(&cluster);
    assert_eq!(made.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 3]);
    // The delay has random jitter of a fifth.
    let pauses: Vec<_> = made.windows(2).map(|w| (w[1].1 - w[0].1) / 1_000_000).collect();
    assert!(pauses[0] >= 160 && pauses[1] >= 320, "{pauses:?} ms after delays of 200 and 400");
    let first = cluster.cob("n1/first").expect("there");
    assert_eq!(first.waits_for, [Wait::Failed]);
    assert_eq!(first.state.expect("checked").as_str(), "down");
    let action = first.action.expect("the one that failed");
    assert_eq!((action.attempt, action.of, action.running), (3, 3, false));
    assert!(action.error.contains("exit status 3"), "{action:?}");
    assert_eq!(action.last_line, "no luck today");
    let second = cluster.cob("n2/second").expect("there");
    assert_eq!((second.phase, second.failed), (Phase::Waiting, false));
    let waits = |wait: &Wait| matches!(wait, Wait::Lock { cob, .. } if cob.as_str() == "n1/first");
    assert!(second.waits_for.iter().any(waits), "{second:?}");
    assert!(!cluster.is_converged(generation));

    // The failure and its reason survive the daemon, whether it is killed or stopped.
    for kill in [true, false] {
        if kill {
            cluster.kill("n1")
        } else {
            cluster.stop("n1")
        }
        cluster.start("n1");
        cluster.wait_answers("n1");
        cluster.until(PATIENCE, || failed(&cluster), "it is known to have given up");
        assert_eq!(attempts(&cluster).len(), 3);
        let told = cluster.cob("n1/first").and_then(|cob| cob.action).expect("the one that failed");
        assert_eq!((told.from, told.to), (action.from.clone(), action.to.clone()));
        assert_eq!((told.attempt, told.of, &told.error, &told.last_line), (3, 3, &action.error, &action.last_line));
        let printed = cluster.http("n1", "GET", "/v1/output/n1/first", "").expect("what it printed");
        assert_eq!(printed, "no luck today");
    }

    let retry =
        |cluster: &Cluster, cob: &str| cluster.http("n1", "POST", "/v1/retry", &format!("{{\"cob\":\"{cob}\"}}"));
    assert!(retry(&cluster, "n1/first").expect("taken").contains("\"changed\":true"));
    cluster.until(PATIENCE, || failed(&cluster) && attempts(&cluster).len() == 6, "it has given up again");
    touch(&cluster, "n1/first", "fixed");
    retry(&cluster, "n1/first").expect("taken");
    cluster.wait_converged(generation, PATIENCE);
    assert!(retry(&cluster, "n1/first").expect("taken").contains("\"changed\":false"));
    let unknown = retry(&cluster, "n1/none").expect_err("no such change object");
    assert!(unknown.starts_with("HTTP/1.1 404") && unknown.contains("n1/none"), "{unknown}");
    assert_eq!(attempts(&cluster).len(), 7);
}

#[test]
fn exported_values_reach_the_actions_of_dependents() {
    const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
kinds:
  thing:
    states: [outdated, down, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh, interval: 50ms}
    transitions:
      - {from: down, to: up, run: ./start.sh}
      - {from: outdated, to: up, run: ./start.sh}
      - {from: outdated, to: down, run: ./stop.sh}
      - {from: up, to: down, run: ./stop.sh}
cobs:
  n1/db: {kind: thing, content: {}}
  n2/app: {kind: thing, content: {round: 1}, requires: [n1/db]}
"#;
    const START: &str = r#"#!/bin/sh
printf '%s' "$COB_IMPORTS" > "$COB_STATE_DIR/imports"
cp "$COB_CONTENT" "$COB_STATE_DIR/state"
echo '{"address": "10.0.0.7", "ports": [5432, 5433]}' > "$COB_EXPORT_OUT"
"#;
    const CHECK: &str = r#"#!/bin/sh
echo look >> "$COB_STATE_DIR/looks"
if [ ! -e "$COB_STATE_DIR/state" ]; then echo down
elif cmp -s "$COB_STATE_DIR/state" "$COB_CONTENT"; then echo up
else echo outdated; fi
"#;
    const STOP: &str = "#!/bin/sh\nrm \"$COB_STATE_DIR/state\"\n";
    const IMPORTS: &str = r#"{"n1/db":{"state":"up","values":{"address":"10.0.0.7","ports":[5432,5433]}}}"#;
    let mut cluster = cluster(&["n1", "n2"]);
    let scripts = [("check.sh", CHECK), ("start.sh", START), ("stop.sh", STOP)];
    let model = cluster.write_model("model", &[&[("model.yaml", MODEL)], &scripts[..]].concat());
    let first = cluster.generate(&model);
    cluster.bring_up(first, PATIENCE);
    assert_eq!(read(&cluster, "n1/db", "imports"), "{}");
    assert_eq!(read(&cluster, "n2/app", "imports"), IMPORTS);

    // The exported values survive checks that do not report them, and a new incarnation of the daemon.
    cluster.kill("n1");
    cluster.start("n1");
    let looks = |cluster: &Cluster| read(cluster, "n1/db", "looks").lines().count();
    let seen = looks(&cluster);
    cluster.until(PATIENCE, || looks(&cluster) > seen + 2, "it was checked again");
    cluster.write_model("model", &[("model.yaml", &MODEL.replace("round: 1", "round: 2"))]);
    let second = cluster.generate(&model);
    cluster.switch_all(second);
    cluster.wait_converged(second, PATIENCE);
    assert!(read(&cluster, "n2/app", "state").contains("2"));
    assert_eq!(read(&cluster, "n2/app", "imports"), IMPORTS);
}

const KEPT: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
clusters: {c: {services: {db: [n1, n2]}}}
services:
  db:
    cobs:
      server: {kind: quick}
      schema: {kind: quick, place: first, on_remove: keep, requires: [server]}
"#;

#[test]
fn a_kept_object_stays_up_after_it_departed() {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", KEPT), QUICK, CHECK]);
    let first = cluster.generate(&model);
    cluster.bring_up(first, PATIENCE);
    let made =
        |cluster: &Cluster, cob: &str| std::fs::read_to_string(cluster.path(&format!("n1/cobs/{cob}/state"))).ok();
    assert_eq!(made(&cluster, "n1+db+schema").as_deref(), Some("up\n"));

    // Both depart: the schema stays, the server is removed. (The server stops only with the schema down; for a server
    // that departs together with it, a kept schema is enough.)
    let mut draft = cluster.load(&model);
    draft.cobs.clear();
    let second = cluster.publish_draft(&draft);
    cluster.switch_all(second);
    cluster.wait_converged(second, PATIENCE);
    assert_eq!((made(&cluster, "n1+db+schema").as_deref(), made(&cluster, "n1+db+server")), (Some("up\n"), None));
    let moved = |e: &&HistoryEntry| e.cob.as_ref().is_some_and(|c| c.name() == "db/schema");
    let history = cluster.history("n1");
    let ends: Vec<_> = history.iter().filter(moved).filter(|e| e.event == "start" || e.event == "gone").collect();
    assert_eq!(ends.iter().map(|e| e.event.as_str()).collect::<Vec<_>>(), ["start", "gone"], "{ends:?}");

    // After the return it is found in the kept state, even by a daemon that was killed in between.
    cluster.kill("n1");
    cluster.start("n1");
    cluster.wait_answers("n1");
    let third = cluster.generate(&model);
    cluster.switch_all(third);
    cluster.wait_converged(third, PATIENCE);
    let starts = cluster.history("n1").into_iter().filter(|e| {
        e.event == "start" && e.generation == third && e.cob.as_ref().is_some_and(|c| c.name() == "db/schema")
    });
    assert_eq!(starts.count(), 0, "it is up already");
}
