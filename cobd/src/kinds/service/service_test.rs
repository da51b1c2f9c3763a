//! Services from start to end, with and without a supervisor, over restarts of the daemon.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cob_types::message::Values;
use cob_types::{Bundle, HostName, Kind, Packed};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::kinds::testing::{Bench, kind, reason};
use crate::kinds::{Context, JobEnd, Outcome};
use crate::run::testing::{number_in, wait_for};

pub(super) fn service() -> Kind {
    kind("service", &["down", "up", "outdated", "failed"], |_, _| None)
}

/// A context with the given keys in its content; `{}` in the keys stands for the bench's folder.
pub(super) fn context(bench: &Bench, keys: &str) -> Context {
    let folder = bench.folder.path().to_str().expect("text");
    bench.context(&service(), &format!("{{{}}}", keys.replace("{}", folder)))
}

pub(super) fn folder(bench: &Bench) -> std::path::PathBuf {
    bench.path("services/n1+a+b")
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a process id"), Signal::KILL).expect("killed");
}

pub(super) fn lives(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).expect("a process id")).is_ok()
        && !fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default().contains(") Z")
}

/// A simple service: it writes its process id and runs.
pub(super) const RUN: &str = r#""start":"echo $$ > {}/pid; exec sleep 600","settle":"20ms""#;

#[tokio::test]
async fn a_service_starts_and_stops_and_outlives_the_daemon() {
    let mut bench = Bench::new();
    let context = context(&bench, &format!(r#"{RUN},"exports":{{"port":80}}"#));
    assert_eq!(bench.state(&context).await, "down");
    let exports = Values::from([("port".to_owned(), "80".to_owned())]);
    let done = Outcome::Done { exports: exports.clone(), saved: None };
    assert_eq!(bench.transition(&context, "down", "up").await, done);
    let pid = number_in(&bench.path("pid"));
    assert_eq!(bench.check(&context).await.exports, exports);
    // After a second transition it is the same process.
    assert_eq!(bench.transition(&context, "down", "up").await, done);
    assert_eq!(number_in(&bench.path("pid")), pid);
    let environment = fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("COB_ID=n1/a/b") && !environment.contains("COB_JOB="), "{environment}");
    bench.return_of_the_daemon();
    assert_eq!(bench.state(&context).await, "up");
    for _ in 0..2 {
        assert_eq!(bench.transition(&context, "up", "down").await, Outcome::done());
        assert_eq!(bench.state(&context).await, "down");
        assert!(!lives(pid));
    }
}

#[tokio::test]
async fn other_content_is_outdated_and_replaced() {
    let mut bench = Bench::new();
    let old = context(
        &bench,
        r#""start":"echo $$ > {}/pid; exec sleep 600","settle":0,"stop":"echo old > {}/stopped; kill $(cat {}/pid)""#,
    );
    bench.transition(&old, "down", "up").await;
    let pid = number_in(&bench.path("pid"));
    let new = context(&bench, r#""start":"echo $$ > {}/pid; exec sleep 600","settle":0,"env":{"V":"2"}"#);
    let outcome = bench.check(&new).await;
    assert_eq!(outcome.state.expect("known"), *"outdated");
    assert!(outcome.difference.contains("another content"), "{}", outcome.difference);
    let mut rests = new.clone();
    assert_eq!(bench.transition(&new, "outdated", "up").await, Outcome::done());
    assert_eq!(fs::read_to_string(bench.path("stopped")).expect("stopped by its own command"), "old\n");
    assert!(!lives(pid));
    // It was up as soon as it ran, but has not written its process id yet.
    wait_for("the new one", || number_in(&bench.path("pid")) != pid);
    assert_eq!(bench.state(&new).await, "up");
    // Its dependencies have changed.
    let mut cob = (*rests.cob).clone();
    cob.rests_on = Some(cob_types::cob::Fingerprint([9; 16]));
    rests.cob = std::sync::Arc::new(cob);
    assert_eq!(bench.state(&rests).await, "outdated");
    assert_eq!(bench.transition(&rests, "outdated", "down").await, Outcome::done());
    assert_eq!(bench.state(&rests).await, "down");
}

#[tokio::test]
async fn a_service_that_ends_at_its_start_fails_with_its_last_output() {
    let mut bench = Bench::new();
    let context_ = context(&bench, r#""start":"echo port 80 is taken >&2; exit 4""#);
    let (outcome, lines) = bench.transition_with_lines(&context_, "down", "up").await;
    let why = reason(outcome);
    assert!(why.contains("exit status 4") && why.contains("port 80 is taken"), "{why}");
    assert!(lines.contains("port 80 is taken"), "{lines}");
    assert_eq!(bench.state(&context_).await, "failed");
    assert_eq!(bench.transition(&context_, "failed", "down").await, Outcome::done());
    assert_eq!(bench.state(&context_).await, "down");
    let missing = context(&bench, r#""start":["/no/such/server"]"#);
    let why = reason(bench.transition(&missing, "down", "up").await);
    assert!(why.contains("/no/such/server: not found"), "{why}");
}

#[tokio::test]
async fn readiness_is_waited_for() {
    let mut bench = Bench::new();
    let keys = r#""start":"(sleep 0.1; touch {}/is-ready) & exec sleep 600","ready":"test -e {}/is-ready || { echo not yet; exit 1; }""#;
    let context_ = context(&bench, keys);
    assert_eq!(bench.transition(&context_, "down", "up").await, Outcome::done());
    assert!(bench.path("is-ready").exists());
    assert_eq!(bench.transition(&context_, "up", "down").await, Outcome::done());

    let mut never = service();
    never.transitions.iter_mut().for_each(|t| t.timeout_ms = 2_000);
    let context_ =
        bench.context(&never, r#"{"start":"echo warming up; exec sleep 600","ready":"echo not yet; exit 1"}"#);
    let (outcome, lines) = bench.transition_with_lines(&context_, "down", "up").await;
    let why = reason(outcome);
    assert!(why.contains("not ready") && why.contains("not yet"), "{why}");
    assert!(lines.contains("warming up"), "{lines}");
    // It was stopped again: a service that is not ready must not look as if it were up.
    assert_eq!(bench.state(&context_).await, "down");
}

#[tokio::test]
async fn a_service_that_ends_is_not_up_although_ready_succeeds() {
    let mut bench = Bench::new();
    let kept = context(&bench, r#""start":"sleep 0.2; echo port 80 is taken; exit 3","ready":"true","settle":"20s""#);
    let why = reason(bench.transition(&kept, "down", "up").await);
    assert!(why.contains("it ended before it was ready: exit status 3: port 80 is taken"), "{why}");
    assert_eq!(bench.state(&kept).await, "failed");
    // It ends while `ready` runs.
    let slow = context(&bench, r#""start":"exec sleep 0.2","ready":"sleep 1","settle":0"#);
    let why = reason(bench.transition(&slow, "failed", "up").await);
    assert!(why.contains("it ended before it was ready"), "{why}");
    bench.transition(&slow, "failed", "down").await;
    let driven = r#""start":"touch {}/runs; (sleep 0.2; rm {}/runs) >/dev/null 2>&1 &","stop":"rm -f {}/runs","status":"test -e {}/runs""#;
    let mut short = service();
    short.transitions.iter_mut().for_each(|t| t.timeout_ms = 8_000);
    for ready in [r#","ready":"true","settle":"1s""#, r#","settle":"1s""#] {
        let content = format!("{{{driven}{ready}}}").replace("{}", bench.folder.path().to_str().expect("text"));
        let why = reason(bench.transition(&bench.context(&short, &content), "down", "up").await);
        assert!(why.contains("`status` says that it does not run"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_of_ready_is_shown_during_the_wait() {
    let mut bench = Bench::new();
    let context_ = context(
        &bench,
        r#""start":"echo warming up; exec sleep 600","ready":"test -e {}/is-ready || { echo not yet; exit 7; }","settle":0"#,
    );
    let (job, _handle) = bench.begin(&context_, "down", "up");
    let said = "`ready`, attempt 1: exit status 7: not yet";
    wait_for("the first attempt is told", || bench.kinds.last_lines(job).contains(said));
    fs::write(bench.path("is-ready"), "").expect("written");
    assert_eq!(bench.ended().await.end, JobEnd::Moved(Outcome::done()));
    bench.kinds.remove(job);
    bench.transition(&context_, "up", "down").await;
}

#[tokio::test]
async fn a_service_runs_as_its_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes root");
        return;
    }
    let mut bench = Bench::new();
    let keys = r#""user":"nobody","start":"id -un; pwd; echo $USER; exec sleep 600","settle":"100ms","reload":"id -un","on_change":"reload""#;
    let own = context(&bench, keys);
    assert_eq!(bench.transition(&own, "down", "up").await, Outcome::done());
    wait_for("it has said who it is", || {
        fs::read_to_string(folder(&bench).join("output")).is_ok_and(|said| said.ends_with("nobody\n/\nnobody\n"))
    });
    assert_eq!(bench.transition(&own, "outdated", "up").await, Outcome::done());
    assert_eq!(fs::read_to_string(folder(&bench).join("commands")).expect("said"), "nobody\n");
    assert_eq!(bench.transition(&own, "up", "down").await, Outcome::done());
    let unknown = context(&bench, r#""user":"nobody-knows","start":"exec sleep 600""#);
    let why = reason(bench.transition(&unknown, "down", "up").await);
    assert!(why.contains("there is no user nobody-knows") && why.contains("kind `user`"), "{why}");
}

#[tokio::test]
async fn a_service_that_ends_by_itself_is_failed_and_can_start_again() {
    let mut bench = Bench::new();
    let context = context(&bench, RUN);
    bench.transition(&context, "down", "up").await;
    kill(number_in(&bench.path("pid")));
    wait_for("the keeper has noticed", || folder(&bench).join("ended").exists());
    let outcome = bench.check(&context).await;
    assert_eq!(outcome.state.expect("known"), *"failed");
    assert!(outcome.difference.contains("signal 9"), "{}", outcome.difference);
    assert_eq!(bench.transition(&context, "failed", "up").await, Outcome::done());
    assert_eq!(bench.state(&context).await, "up");
    assert_eq!(bench.transition(&context, "up", "down").await, Outcome::done());
}

#[tokio::test]
async fn a_killed_keeper_is_noticed_and_its_service_never_runs_twice() {
    let mut bench = Bench::new();
    let context = context(&bench, RUN);
    bench.transition(&context, "down", "up").await;
    let pid = number_in(&bench.path("pid"));
    kill(number_in(&folder(&bench).join("lock")));
    wait_for("the lock is free", || !super::folder::ServiceFolder::new(folder(&bench)).is_running());
    let outcome = bench.check(&context).await;
    assert_eq!(outcome.state.expect("known"), *"failed");
    assert!(outcome.difference.contains("supervisor was killed") && lives(pid), "{}", outcome.difference);
    assert_eq!(bench.transition(&context, "failed", "up").await, Outcome::done());
    assert!(!lives(pid), "the one without a keeper was ended first");
    // Kills the supervisor and the service.
    kill(number_in(&folder(&bench).join("lock")));
    kill(number_in(&bench.path("pid")));
    wait_for("both are gone", || {
        let lock_is_free = !super::folder::ServiceFolder::new(folder(&bench)).is_running();
        lock_is_free && !lives(number_in(&bench.path("pid")))
    });
    assert_eq!(bench.state(&context).await, "failed");
    assert_eq!(bench.transition(&context, "failed", "down").await, Outcome::done());
    assert_eq!(bench.state(&context).await, "down");
}

#[tokio::test]
async fn a_stop_reaches_all_processes_and_kills_those_that_ignore_it() {
    let mut bench = Bench::new();
    let mut deaf = service();
    deaf.transitions.iter_mut().for_each(|t| t.grace_ms = 150);
    let folder = bench.folder.path().to_str().expect("text");
    let script = format!(
        "trap '' TERM; sh -c 'trap \\\"\\\" TERM; echo $$ > {folder}/worker; while :; do sleep 0.05; done' & \
         echo $$ > {folder}/pid; while :; do sleep 0.05; done"
    );
    let context = bench.context(&deaf, &format!(r#"{{"start":"{script}","settle":0,"stop":"true"}}"#));
    bench.transition(&context, "down", "up").await;
    let pids = [number_in(&bench.path("pid")), number_in(&bench.path("worker"))];
    assert_eq!(bench.transition(&context, "up", "down").await, Outcome::done());
    assert!(pids.iter().all(|pid| !lives(*pid)));
}

#[tokio::test]
async fn worker_processes_end_with_their_main_process() {
    let mut bench = Bench::new();
    let keys = r#""start":"sleep 600 & echo $! > {}/worker; echo $$ > {}/pid; wait","settle":"20ms""#;
    let context = context(&bench, keys);
    bench.transition(&context, "down", "up").await;
    let worker = number_in(&bench.path("worker"));
    kill(number_in(&bench.path("pid")));
    wait_for("the worker is gone", || !lives(worker));
    wait_for("the end is written", || folder(&bench).join("ended").exists());
    assert_eq!(bench.state(&context).await, "failed");
}

#[tokio::test]
async fn the_stored_output_of_a_service_is_bounded() {
    let mut bench = Bench::new();
    let keys = r#""start":"yes | head -c 5000000; touch {}/flooded; echo the end; exec sleep 600","ready":"test -e {}/flooded""#;
    let context = context(&bench, keys);
    bench.transition(&context, "down", "up").await;
    let output = folder(&bench).join("output");
    let room = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&output).expect("there")) * 512;
    wait_for("the keeper has cut it", || room() < 2 << 20);
    bench.transition(&context, "up", "down").await;
    let text = fs::read_to_string(&output).expect("text");
    assert!(text.len() < 1 << 20 && text.contains("left out") && text.ends_with("the end\n"), "{}", text.len());
}

#[tokio::test]
async fn a_service_with_its_own_commands_is_controlled_by_them() {
    let mut bench = Bench::new();
    let ctl = bench.path("ctl");
    let script = r#"#!/bin/sh
cd "$(dirname "$0")"
case $1 in
start) [ -e refuse ] && { echo refused; exit 3; }
       setsid sleep 600 >/dev/null 2>&1 & echo $! > pid;;
stop) kill "$(cat pid)"; rm pid;;
status) [ -e pid ];;
esac
"#;
    fs::write(&ctl, script).expect("written");
    fs::set_permissions(&ctl, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    let keys = r#""start":"{}/ctl start","stop":"{}/ctl stop","status":"{}/ctl status""#;
    let own = context(&bench, keys);
    assert_eq!(bench.state(&own).await, "down");
    fs::write(bench.path("refuse"), "").expect("written");
    let why = reason(bench.transition(&own, "down", "up").await);
    assert!(why.contains("start: exit status 3: refused"), "{why}");
    fs::remove_file(bench.path("refuse")).expect("removed");
    assert_eq!(bench.transition(&own, "down", "up").await, Outcome::done());
    let pid = number_in(&bench.path("pid"));
    assert_eq!(bench.transition(&own, "down", "up").await, Outcome::done());
    assert_eq!((bench.state(&own).await.as_str(), number_in(&bench.path("pid"))), ("up", pid));
    let other = context(&bench, &format!(r#"{keys},"env":{{"V":"2"}}"#));
    assert_eq!(bench.state(&other).await, "outdated");
    assert_eq!(bench.transition(&other, "outdated", "up").await, Outcome::done());
    assert!(!lives(pid));
    assert_eq!(bench.state(&other).await, "up");
    for _ in 0..2 {
        assert_eq!(bench.transition(&other, "up", "down").await, Outcome::done());
        assert_eq!(bench.state(&other).await, "down");
    }
    // Started by a user: its content is unknown.
    std::process::Command::new(&ctl).arg("start").status().expect("executed");
    fs::remove_dir_all(folder(&bench)).expect("removed");
    assert_eq!(bench.state(&other).await, "outdated");
    assert_eq!(bench.transition(&other, "outdated", "down").await, Outcome::done());
}

/// An external service: a file says whether it runs, and a file `dumb` contains other commands for `status`.
pub(super) const BY_FILE: &str = r#""start":"echo x >> {}/starts; touch {}/runs","stop":"rm {}/runs",
    "status":"test -e {}/dumb && . {}/dumb; test -e {}/runs""#;

#[tokio::test]
async fn a_failing_status_command_does_not_count_as_a_stopped_service() {
    let mut bench = Bench::new();
    let mut hasty = service();
    hasty.transitions.iter_mut().for_each(|t| t.timeout_ms = 6_000);
    let root = bench.folder.path().to_str().expect("text").to_owned();
    let own = bench.context(&hasty, &format!("{{{}}}", BY_FILE.replace("{}", &root).replace('\n', "")));
    assert_eq!(bench.transition(&own, "down", "up").await, Outcome::done());
    let dumb = bench.path("dumb");
    for (from, to, does, word) in [
        ("up", "down", "sleep 600", "status: took too long"),
        ("outdated", "up", "kill -9 $$", "status: ended by signal 9"),
        ("up", "down", "exec /no/such/program", "status: exit status 127"),
    ] {
        fs::write(&dumb, does).expect("written");
        let why = reason(bench.transition(&own, from, to).await);
        assert!(why.contains(word), "{does}, {from} to {to}: {why}");
        assert!(bench.path("runs").exists(), "{does}: it was stopped, or said to be down");
    }
    // A second attempt of `status` that succeeds is an answer.
    fs::write(&dumb, format!("rm {root}/dumb; kill -9 $$")).expect("written");
    assert_eq!(bench.transition(&own, "outdated", "up").await, Outcome::done());
    assert_eq!(fs::read_to_string(bench.path("starts")).expect("read"), "x\n", "started once");
    fs::write(&dumb, format!("rm {root}/dumb; kill -9 $$")).expect("written");
    assert_eq!(bench.transition(&own, "up", "down").await, Outcome::done());
    assert!(!bench.path("runs").exists());
}

#[tokio::test]
async fn the_output_of_a_background_process_of_a_start_is_bounded() {
    let mut bench = Bench::new();
    let keys = r#""start":"touch {}/runs; (while test -e {}/runs; do
        if test -e {}/go; then yes | head -c 5000000; cat {}/go; mv {}/go {}/gone; fi; sleep 0.02; done) &",
        "stop":"rm {}/runs","status":"test -e {}/runs""#;
    let own = context(&bench, &keys.replace('\n', " "));
    let commands = folder(&bench).join("commands");
    for words in ["once\n", "twice\n"] {
        assert_eq!(bench.transition(&own, "down", "up").await, Outcome::done());
        fs::write(bench.path("new"), words).expect("written");
        fs::rename(bench.path("new"), bench.path("go")).expect("moved");
        wait_for("it has printed", || bench.path("gone").exists());
        fs::remove_file(bench.path("gone")).expect("removed");
        assert_eq!(bench.state(&own).await, "up");
        let room = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&commands).expect("there")) * 512;
        assert!(room < 2 << 20, "{room} bytes after {words}");
        // The background process continues to write into this file.
        assert!(fs::read_to_string(&commands).expect("text").ends_with(words));
    }
    assert_eq!(bench.transition(&own, "up", "down").await, Outcome::done());
}

#[tokio::test]
async fn a_cancelled_start_does_not_look_like_up() {
    let mut bench = Bench::new();
    let keys = r#""start":"echo $$ > {}/pid; exec sleep 600","ready":"test -s {}/pid && touch {}/asked; false""#;
    let context = context(&bench, keys);
    let (_, handle) = bench.begin(&context, "down", "up");
    let asked = bench.path("asked");
    while !Path::new(&asked).exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    handle.cancel();
    assert_eq!(bench.ended().await.end, JobEnd::Moved(Outcome::Cancelled));
    let outcome = bench.check(&context).await;
    assert_eq!(outcome.state.expect("known"), *"failed");
    assert!(outcome.difference.contains("not become ready"), "{}", outcome.difference);
    assert_eq!(bench.transition(&context, "failed", "down").await, Outcome::done());
    assert!(!lives(number_in(&bench.path("pid"))));
}

fn reloading() -> Kind {
    let mut kind = service();
    let up = kind.transitions.iter().find(|t| t.from == *"outdated" && t.to == *"up").expect("there").clone();
    kind.transitions.insert(0, up);
    kind
}

#[tokio::test]
async fn a_reload_keeps_the_process_and_takes_over_the_content() {
    let mut bench = Bench::new();
    let folder = bench.folder.path().to_str().expect("text").to_owned();
    let keys = r#""start":"trap 'echo >> {}/hups' USR1; echo $$ > {}/pid; while :; do sleep 0.05; done",
        "settle":"20ms","on_change":"reload","reload":"kill -USR1 $COB_MAIN_PID","stop":"kill -KILL $COB_MAIN_PID""#;
    let content =
        |value: u8| format!("{{{},\"exports\":{{\"v\":{value}}}}}", keys.replace("{}", &folder).replace('\n', ""));
    let old = bench.context(&reloading(), &content(1));
    bench.transition(&old, "down", "up").await;
    wait_for("it says its number", || bench.path("pid").exists());
    let pid = number_in(&bench.path("pid"));
    let new = bench.context(&reloading(), &content(2));
    assert_eq!(bench.state(&new).await, "outdated");
    let values = Values::from([("v".to_owned(), "2".to_owned())]);
    for _ in 0..2 {
        let done = Outcome::Done { exports: values.clone(), saved: None };
        assert_eq!(bench.transition(&new, "outdated", "up").await, done);
        assert_eq!(bench.state(&new).await, "up");
    }
    wait_for("it was told", || bench.path("hups").exists());
    assert!(lives(pid));
    // A stopped service can't be reloaded; it is started.
    assert_eq!(bench.transition(&new, "up", "down").await, Outcome::done());
    assert!(!lives(pid));
    let done = Outcome::Done { exports: values, saved: None };
    assert_eq!(bench.transition(&new, "outdated", "up").await, done);
    assert_eq!(bench.transition(&new, "up", "down").await, Outcome::done());
    let broken = bench.context(&reloading(), &content(3).replace("kill -USR1 $COB_MAIN_PID", "echo no; exit 3"));
    bench.transition(&old, "down", "up").await;
    let why = reason(bench.transition(&broken, "outdated", "up").await);
    assert!(why.contains("reload: exit status 3: no"), "{why}");
    assert_eq!(bench.state(&broken).await, "outdated");
    assert_eq!(bench.transition(&old, "up", "down").await, Outcome::done());
}

/// The next change object that a hint names.
async fn noticed(receiver: &mut tokio::sync::mpsc::Receiver<cob_types::CobId>) -> String {
    let limit = std::time::Duration::from_secs(120);
    tokio::time::timeout(limit, receiver.recv()).await.expect("noticed in time").expect("a notice").to_string()
}

#[tokio::test]
async fn the_end_of_a_service_and_of_its_keeper_is_noticed_at_once() {
    let mut bench = Bench::new();
    let context = context(&bench, RUN);
    let mut notices = bench.kinds.take_drifts().expect("nobody has it");
    // Watched before its folder exists.
    let concerned = BTreeSet::from([context.kind.backend.clone()]);
    let mut bundle = Bundle::empty(HostName::new(context.cob.id.host_str()).expect("a name"));
    bundle.kinds.insert(context.kind.name.clone(), (*context.kind).clone());
    let nothing = Packed::of(&bundle).expect("CBOR");
    bundle.cobs.insert(context.cob.id.clone(), context.cob.clone());
    bench.kinds.watch(&Packed::of(&bundle).expect("CBOR"), &concerned);
    bench.transition(&context, "down", "up").await;
    while notices.try_recv().is_ok() {}
    kill(number_in(&bench.path("pid")));
    assert_eq!(noticed(&mut notices).await, "n1/a/b");
    wait_for("the end is written", || folder(&bench).join("ended").exists());
    assert_eq!(bench.state(&context).await, "failed");
    bench.transition(&context, "failed", "up").await;
    while notices.try_recv().is_ok() {}
    // A killed supervisor can't write its files.
    kill(number_in(&folder(&bench).join("lock")));
    assert_eq!(noticed(&mut notices).await, "n1/a/b");
    assert_eq!(bench.transition(&context, "failed", "down").await, Outcome::done());
    // A check causes no further hint.
    while notices.try_recv().is_ok() {}
    assert_eq!(bench.state(&context).await, "down");
    bench.kinds.watch(&nothing, &concerned);
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(notices.try_recv().is_err());
}

#[tokio::test]
async fn a_service_that_ran_before_is_restarted_after_the_departure() {
    let mut bench = Bench::new();
    let keys = r#""start":"sleep 600 >/dev/null 2>&1 & echo $! > {}/pid","stop":"kill $(cat {}/pid); rm {}/pid",
        "status":"test -e {}/pid""#
        .replace('\n', "");
    let own = context(&bench, &keys);
    let mut found = std::process::Command::new("sleep").arg("600").spawn().expect("begun");
    fs::write(bench.path("pid"), found.id().to_string()).expect("written");
    assert_eq!(bench.state(&own).await, "outdated");
    for _ in 0..2 {
        assert_eq!(bench.transition(&own, "outdated", "down").await, Outcome::done());
        assert_eq!(bench.state(&own).await, "down");
    }
    found.wait().expect("it was stopped");
    let departed = folder(&bench).join("departed");
    // It comes back before the departure has done any work.
    let departures = bench.kinds.forget(&own.cob.id);
    assert!(departures.len() == 1 && departed.exists());
    drop(departures);
    bench.kinds.is_here(&own.cob.id, &own.kind);
    assert!(!departed.exists());
    for mut departure in bench.kinds.forget(&own.cob.id) {
        assert!(departure.settled().await.done);
    }
    let again = number_in(&bench.path("pid"));
    assert!(lives(again));
    // The restart happens once: a restarted daemon has no work.
    assert!(!folder(&bench).join("ran").exists() && !departed.exists());
    assert!(bench.kinds.return_to(&BTreeSet::new()).is_empty());
    kill(again);
}

#[tokio::test]
async fn a_service_that_ran_before_stays_down_when_the_change_is_kept() {
    let mut bench = Bench::new();
    let keys = r#""start":"touch {}/runs","stop":"rm {}/runs","status":"test -e {}/runs""#;
    let own = context(&bench, keys);
    fs::write(bench.path("runs"), "").expect("written");
    assert_eq!(bench.transition(&own, "outdated", "down").await, Outcome::done());
    assert!(folder(&bench).join("ran").exists());
    bench.kinds.forget_kept(&own.cob.id);
    assert!(!folder(&bench).join("ran").exists());
    // No restart happens, neither now nor after a restart of the daemon.
    assert!(bench.kinds.forget(&own.cob.id).is_empty());
    assert!(bench.kinds.return_to(&BTreeSet::new()).is_empty());
    assert!(!bench.path("runs").exists());
}

#[tokio::test]
async fn a_unit_without_systemd_gives_an_instruction() {
    let mut bench = Bench::new();
    bench.kinds.use_systemd_at("unix:path=/nowhere/bus");
    let context = bench.context(&service(), r#"{"unit":"etcd"}"#);
    let outcome = bench.check(&context).await;
    let why = outcome.state.expect_err("nobody knows");
    assert!(why.contains("systemd can't be spoken to") && why.contains("`start`, `stop`"), "{why}");
    let why = reason(bench.transition(&context, "down", "up").await);
    assert!(why.contains("systemd can't be spoken to"), "{why}");
}
