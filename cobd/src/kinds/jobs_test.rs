//! Jobs of the kind `command`: their input, the reading of their ends, and their takeover by a new daemon.

use std::fs;

use cob_types::message::Values;

use super::*;
use crate::kinds::Import;
use crate::kinds::testing::{Bench, cob_id, kind, plain_kind, reason, state};
use crate::run::testing::{number_in, until, wait_for};

const STATES: [&str; 3] = ["outdated", "down", "up"];

#[tokio::test]
async fn a_command_receives_its_change_object_and_returns_its_values() {
    let mut bench = Bench::new();
    let kind = kind("command", &STATES, |_, _| {
        Some(
            r#"echo "$COB_ID $COB_HOST $COB_FROM $COB_TO $COB_ATTEMPT $COB_GENERATION" > "$COB_STATE_DIR/told"
               cat "$COB_CONTENT" >> "$COB_STATE_DIR/told"; echo "$COB_IMPORTS" >> "$COB_STATE_DIR/told"
               echo '{"port": 80}' > "$COB_EXPORT_OUT"; printf saved > "$COB_RESULT_OUT"; echo done"#,
        )
    });
    bench.kinds.accept(&kind).expect("fine");
    let mut context = bench.context(&kind, r#"{"x":1}"#);
    let values = Values::from([("ip".to_owned(), "\"::1\"".to_owned())]);
    context.imports.insert(cob_id("n2/db"), Import { state: state("up"), values });
    let (outcome, lines) = bench.transition_with_lines(&context, "down", "up").await;
    let exports = Values::from([("port".to_owned(), "80".to_owned())]);
    assert_eq!(outcome, Outcome::Done { exports, saved: Some("saved".to_owned()) });
    assert_eq!(lines, "done");
    let told = fs::read_to_string(bench.path("cobs/n1+a+b/told")).expect("a folder of its own");
    let expected = "n1/a/b n1 down up 1 4\n{\"x\":1}{\"n2/db\":{\"state\":\"up\",\"values\":{\"ip\":\"::1\"}}}\n";
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_check_prints_the_state_last() {
    let mut bench = Bench::new();
    for (script, found, difference) in [
        ("echo up", "up", ""),
        ("echo 'version 3, not 4'; echo; echo '  outdated  '; echo", "outdated", "version 3, not 4"),
        ("echo up; echo 'config is odd' >&2", "up", "config is odd"),
        ("true", "unknown: check: it printed no state", ""),
        (
            "echo broken",
            "unknown: check: it printed \"broken\", which is no state of its kind (outdated, down, up)",
            "",
        ),
        ("echo up; echo 'no disk' >&2; exit 3", "unknown: check: exit status 3: no disk", "no disk"),
        ("no-such-program", "unknown: check: exit status 127", "not found"),
        ("echo up; echo [] > $COB_EXPORT_OUT", "unknown: check: exported values are no JSON object", ""),
        ("[ -z \"$COB_FROM$COB_TO\" ] && echo down", "down", ""),
    ] {
        let context = bench.context(&kind("command", &STATES, move |_, _| Some(script)), "");
        let outcome = bench.check(&context).await;
        let text = outcome.state.map_or_else(|reason| format!("unknown: {reason}"), |s| s.to_string());
        assert!(text.starts_with(found), "{script}: {text}");
        assert!(outcome.difference.contains(difference), "{script}: {:?}", outcome.difference);
        assert_eq!(outcome.difference.is_empty(), difference.is_empty(), "{script}: {:?}", outcome.difference);
    }
    wait_for("jobs of checks are deleted", || fs::read_dir(bench.path("jobs")).expect("listed").count() == 0);
}

#[tokio::test]
async fn failures_say_why() {
    let mut bench = Bench::new();
    for (script, word) in [
        ("echo first; echo 'no space' >&2; exit 2", "exit status 2: no space"),
        ("kill -KILL $$", "signal 9"),
        ("echo x > $COB_EXPORT_OUT", "no JSON object"),
        ("head -c 70000 /dev/zero > $COB_RESULT_OUT", "saved result: more than 65536 bytes"),
        ("touch x; chmod -x x; ./x", "126"),
    ] {
        let context = bench.context(&kind("command", &STATES, move |_, _| Some(script)), "");
        let why = reason(bench.transition(&context, "down", "up").await);
        assert!(why.contains(word), "{script}: {why}");
    }
    let context = bench.context(&kind("command", &STATES, |_, to| (to == "down").then_some("true")), "");
    assert!(reason(bench.transition(&context, "down", "up").await).contains("no command for down -> up"));
    let mut slow = kind("command", &STATES, |_, _| Some("exec sleep 600"));
    slow.transitions.iter_mut().for_each(|t| t.timeout_ms = 100);
    slow.check.timeout_ms = 100;
    let context = bench.context(&slow, "");
    assert!(reason(bench.transition(&context, "down", "up").await).contains("not done after 100ms"));
    assert!(bench.state(&context).await.contains("not done after 100ms"));
}

#[tokio::test]
async fn a_secret_that_a_command_writes_into_its_job_is_not_shown() {
    let mut bench = Bench::new();
    let key = cob_trust::SecretKey::from_seed(&[7; 32]);
    bench.with_key(&key);
    let id = cob_types::secret::SecretId([3; 16]);
    let sealed = cob_trust::seal::seal_for_bundle(&[9; 32], &[key.public()], id, b"correct horse").expect("sealed");
    let kind = kind("command", &STATES, |_, _| {
        Some(
            r#"echo "it is $(cat "$COB_CONTENT")"; for name in output stdout; do cp "$COB_CONTENT" "$COB_JOB/$name"; done
               touch begun; while [ ! -e go ]; do sleep 0.02; done; exit 3"#,
        )
    });
    let mut context = bench.context(&kind, &format!(r#"{{"password":"{}"}}"#, id.mark()));
    context.folder = bench.folder.path().to_owned();
    context.secrets.insert(id, sealed);
    let (job, _) = bench.begin(&context, "down", "up");
    until("it has begun", || bench.path("begun").exists()).await;
    let told = r#"it is {"password":"[secret]"}"#;
    assert_eq!(bench.kinds.last_lines(job), told, "while it runs");
    fs::write(bench.path("go"), "").expect("written");
    let JobEnded { last_lines, .. } = bench.ended().await;
    assert_eq!(last_lines, told, "when it has ended");
    // The daemon deletes the job's folder after the end is in the journal.
    let left = fs::read_to_string(bench.path("jobs").join(format!("{:016x}", job.0)).join("output")).expect("read");
    assert_eq!(left.trim_end(), told);
    bench.kinds.remove(job);
}

#[tokio::test]
async fn a_command_can_be_cancelled_before_and_while_it_runs() {
    let mut bench = Bench::new();
    let context = bench.context(&kind("command", &STATES, |_, _| Some("echo $$ > $COB_STATE_DIR/pid; sleep 600")), "");
    let (_, handle) = bench.begin(&context, "down", "up");
    handle.cancel();
    assert_eq!(bench.ended().await.end, JobEnd::Moved(Outcome::Cancelled));
    assert!(!bench.path("cobs/n1+a+b/pid").exists());
    let (_, handle) = bench.begin(&context, "down", "up");
    let file = bench.path("cobs/n1+a+b/pid");
    tokio::task::spawn_blocking(move || number_in(&file)).await.expect("written");
    handle.cancel();
    assert_eq!(bench.ended().await.end, JobEnd::Moved(Outcome::Cancelled));
}

#[tokio::test]
async fn a_restarted_daemon_takes_over_the_running_jobs() {
    let mut bench = Bench::new();
    let script = "touch $COB_STATE_DIR/begun; while [ ! -e $COB_STATE_DIR/go ]; do sleep 0.02; done; \
                  echo '{\"a\":1}' > $COB_EXPORT_OUT";
    let context = bench
        .context(&kind("command", &STATES, move |_, to| Some(if to == "check" { "sleep 600" } else { script })), "");
    let (job, _handle) = bench.begin(&context, "down", "up");
    let check = bench.job();
    let _check = bench.kinds.check(check, context.clone()).expect("begun");
    let folder = bench.path("cobs/n1+a+b");
    while !folder.join("begun").exists() || fs::read_dir(bench.path("jobs")).expect("listed").count() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bench.return_of_the_daemon();
    let found = loop {
        let found = bench.kinds.scan().expect("listed");
        if found.iter().all(|f| f.label.is_some()) {
            break found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let attempt = TransitionAttempt { from: state("down"), to: state("up"), attempt: 1 };
    let label = |attempt| Some(Label { cob: context.cob.id.clone(), attempt });
    assert_eq!(found[0], FoundAction { job, label: label(Some(attempt.clone())), running: true });
    assert_eq!(found[1], FoundAction { job: check, label: label(None), running: true });
    bench.kinds.discard(check);
    let _handle = bench.kinds.adopt(job, context.clone(), attempt.clone()).expect("adopted");
    fs::write(folder.join("go"), "").expect("written");
    let ended = bench.ended().await;
    let exports = Values::from([("a".to_owned(), "1".to_owned())]);
    assert_eq!((ended.job, ended.end), (job, JobEnd::Moved(Outcome::Done { exports, saved: None })));
    bench.kinds.remove(job);
    while fs::read_dir(bench.path("jobs")).expect("listed").count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A job that is gone, or that ran inside the earlier daemon, is lost.
    for context in [context, bench.context(&plain_kind("noop"), "")] {
        let _handle = bench.kinds.adopt(job, context, attempt.clone()).expect("adopted");
        assert_eq!(bench.ended().await.end, JobEnd::Moved(Outcome::Lost));
    }
}

#[tokio::test]
async fn a_noop_is_in_the_state_of_its_last_transition() {
    let mut bench = Bench::new();
    let context = bench.context(&plain_kind("noop"), r#"{"exports":{"n":{"b":1,"a":2}}}"#);
    assert_eq!(bench.state(&context).await, "down");
    let exports = Values::from([("n".to_owned(), r#"{"a":2,"b":1}"#.to_owned())]);
    for _ in 0..2 {
        let outcome = bench.transition(&context, "down", "up").await;
        assert_eq!(outcome, Outcome::Done { exports: exports.clone(), saved: None });
        assert_eq!(
            bench.check(&context).await,
            CheckOutcome { exports: exports.clone(), ..CheckOutcome::found(state("up")) }
        );
    }
    assert_eq!(bench.transition(&context, "up", "down").await, Outcome::done());
    assert_eq!(bench.state(&context).await, "down");
    bench.transition(&context, "down", "up").await;
    assert!(bench.kinds.forget(&context.cob.id).is_empty(), "nothing is put back");
    assert_eq!(bench.state(&context).await, "down");
    assert!(!bench.kinds.durable(&context.kind).expect("known"));
}

#[tokio::test]
async fn wait_takes_its_time_and_can_be_cancelled() {
    let mut bench = Bench::new();
    let mut kind = plain_kind("wait");
    // A content with a longer time than the timeout gets its time.
    kind.transitions.iter_mut().for_each(|t| t.timeout_ms = 1);
    let context = bench.context(&kind, r#"{"ms":60}"#);
    let begun = std::time::Instant::now();
    assert_eq!(bench.transition(&context, "down", "up").await, Outcome::done());
    assert!(begun.elapsed() >= Duration::from_millis(60));
    assert_eq!(bench.state(&context).await, "up");
    let context = bench.context(&kind, r#"{"seconds":600}"#);
    assert_eq!(bench.transition(&context, "up", "down").await, Outcome::done());
    let (_, handle) = bench.begin(&context, "down", "up");
    handle.cancel();
    assert_eq!(bench.ended().await.end, JobEnd::Moved(Outcome::Cancelled));
    assert_eq!(bench.state(&context).await, "down");
}

#[test]
fn kinds_and_contents_are_checked_before_use() {
    let bench = Bench::new();
    let error = bench.kinds.accept(&plain_kind("magic")).expect_err("unknown").to_string();
    assert!(
        error.contains("magic")
            && ["command, config-keys", "service, swap-file", "wait"].iter().all(|names| error.contains(*names)),
        "{error}"
    );
    let no_move = kind("command", &STATES, |_, to| (to != "up").then_some("true"));
    for (kind, word) in [
        (plain_kind("command"), "no check command"),
        (no_move, "outdated -> up has no command"),
        (kind("service", &["down", "up", "odd"], |_, _| None), "no state odd"),
        (kind("service", &["up"], |_, _| None), "needs the state down"),
    ] {
        let error = bench.kinds.accept(&kind).expect_err(word).to_string();
        assert!(error.contains(word), "{error}");
    }
    for (backend, content, word) in [
        ("wait", "{}", "seconds"),
        ("wait", r#"{"ms":1,"seconds":1}"#, "either"),
        ("wait", r#"{"ms":-1}"#, "-1"),
        ("noop", r#"{"export":{}}"#, "export"),
        ("tcp-check", r#"{"address":"nowhere"}"#, "HOST:PORT"),
        ("tcp-check", r#"{"address":"x:99999"}"#, "HOST:PORT"),
        ("tcp-check", "{}", "address"),
        ("http-check", r#"{"url":"https://x/"}"#, "http://"),
        ("http-check", r#"{"url":"x"}"#, "http://"),
        ("http-check", r#"{"url":"http://u:p@x/"}"#, "password"),
        ("service", "{}", "start"),
        ("service", r#"{"start":""}"#, "empty"),
        ("service", r#"{"start":[]}"#, "empty"),
        ("service", r#"{"start":"x","status":"y"}"#, "stop"),
        ("service", r#"{"start":"x","env":{"COB_ID":"y"}}"#, "COB_ID"),
        ("service", r#"{"start":"x","dir":"y"}"#, "absolute"),
    ] {
        let kind = plain_kind(backend);
        let context = bench.context(&kind, content);
        let error = bench.kinds.accept_cob(&kind, &context.cob).expect_err(content).to_string();
        assert!(error.contains(word) && error.contains("n1/a/b"), "{content}: {error}");
    }
    for (backend, content) in [
        ("wait", r#"{"seconds":"2s"}"#),
        ("noop", ""),
        ("tcp-check", r#"{"address":"[::1]:80","timeout":1,"interval":"10ms"}"#),
        ("http-check", r#"{"url":"http://[::1]:8080/x?y=1","status":204,"contains":"z"}"#),
        ("service", r#"{"start":["/bin/x","--y"],"stop":"z","ready":"a","settle":"1s"}"#),
    ] {
        let kind = plain_kind(backend);
        bench.kinds.accept(&kind).expect(backend);
        bench.kinds.accept_cob(&kind, &bench.context(&kind, content).cob).expect(content);
    }
}
