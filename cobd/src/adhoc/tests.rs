//! Commands with real processes, and a loop that takes every note.

use std::path::PathBuf;

use cob_types::Command;

use super::*;
use crate::run::testing::{program, until};
use cob_types::command_run::RunEvent;

/// A host that runs commands, and the records for its history.
struct Host {
    folder: tempfile::TempDir,
    adhoc: Adhoc,
    told: Arc<Mutex<Vec<RunRecord>>>,
}

impl Host {
    fn new(allowed: bool) -> Self {
        Self::within(tempfile::tempdir().expect("a folder"), allowed)
    }

    fn within(folder: tempfile::TempDir, allowed: bool) -> Self {
        let path = folder.path();
        let config = Config { run: allowed, ..Config::new(HostName::new("n1").expect("a name"), path, path) };
        let opener = Opener::new(&config.identity, path, Some(&path.join("memory")));
        let (notes, mut asked) = mpsc::channel::<Note>(8);
        let told: Arc<Mutex<Vec<RunRecord>>> = Arc::default();
        let its = Arc::clone(&told);
        tokio::spawn(async move {
            while let Some(note) = asked.recv().await {
                its.lock().expect("unharmed").push(note.record);
                let _ = note.durable.send(());
            }
        });
        let adhoc = Adhoc::new(&config, path, program(), opener, notes).expect("made");
        Self { folder, adhoc, told }
    }

    async fn begin(&self, order: RunOrder) -> Result<Running, Refusal> {
        let (reply, begun) = oneshot::channel();
        self.adhoc.begin(order, "ann".to_owned(), Sealed::new(), reply);
        begun.await.expect("an answer")
    }

    fn told(&self) -> Vec<RunRecord> {
        self.told.lock().expect("unharmed").clone()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn shell(line: &str) -> RunOrder {
    let command = Command::Shell(line.to_owned());
    RunOrder { command, run: None, user: None, cwd: None, env: [].into(), timeout_ms: None, who: None }
}

/// All that a command prints on its two streams, and its end.
async fn heard(mut running: Running) -> (String, String, RunEnd) {
    let (mut out, mut err) = (String::new(), String::new());
    loop {
        match running.next().await.expect("it goes on to its end") {
            RunEvent::Begun { .. } => {}
            RunEvent::Out(text) => out.push_str(&text),
            RunEvent::Err(text) => err.push_str(&text),
            RunEvent::Ended(end) => {
                assert_eq!(running.next().await, None, "the end is the last event");
                return (out, err, end);
            }
        }
    }
}

#[tokio::test]
async fn the_output_and_end_of_a_command_are_reported_recorded_and_kept() {
    let host = Host::new(true);
    let order = RunOrder {
        env: [("WHAT".to_owned(), "it".to_owned())].into(),
        ..shell("echo $WHAT; pwd; echo no >&2; exit 3")
    };
    let order = RunOrder { run: Some(RunId::of(7)), cwd: Some("/usr".to_owned()), ..order };
    let (out, err, end) = heard(host.begin(order.clone()).await.expect("begun")).await;
    assert_eq!((out.as_str(), err.as_str(), &end.exit), ("it\n/usr\n", "no\n", &RunExit::Exited(3)));
    assert_eq!(end.cut, None);
    let run = RunId::of(7);
    let line = "echo $WHAT; pwd; echo no >&2; exit 3".to_owned();
    let begun = RunRecord::Begun { run, line: line.clone(), user: None };
    assert_eq!(host.told(), [begun, RunRecord::Ended { run, end: end.clone() }]);
    let kept = host.adhoc.0.kept.read(run).expect("kept");
    assert_eq!((kept.stdout.as_str(), kept.stderr.as_str(), kept.line, kept.end), ("it\n/usr\n", "no\n", line, end));
    until("the job is deleted", || !host.adhoc.0.runner.folder(job_of(run)).exists()).await;
    let again = host.begin(order).await.expect_err("the same number");
    assert_eq!(again.kind, RefusalKind::Conflict);
}

#[tokio::test]
async fn a_command_that_cannot_start_or_exceeds_a_limit_reports_it() {
    let host = Host::new(true);
    let missing = RunOrder { command: Command::Argv(vec!["no-such-program".to_owned()]), ..shell("x") };
    let (_, _, end) = heard(host.begin(missing).await.expect("begun")).await;
    assert!(matches!(&end.exit, RunExit::NotStarted(why) if why.contains("no-such-program: not found")), "{end}");
    let long = RunOrder { timeout_ms: Some(100), ..shell("echo begun; exec sleep 600") };
    let (out, _, end) = heard(host.begin(long).await.expect("begun")).await;
    assert_eq!((out.as_str(), end.exit), ("begun\n", RunExit::TimedOut));
    let loud = shell("yes 0123456789 | head -c 3000000; echo last >&2");
    let (out, err, end) = heard(host.begin(loud).await.expect("begun")).await;
    assert!(out.len() as u64 <= cob_types::command_run::MOST_OUTPUT && out.len() >= 64 << 10, "{}", out.len());
    assert!(!out.contains('\0'), "no hole is shown");
    assert_eq!((err.as_str(), end.exit, end.cut), ("last\n", RunExit::Exited(0), Some(3_000_005)));
}

#[tokio::test]
async fn a_command_and_its_processes_end_when_the_operator_disconnects() {
    let host = Host::new(true);
    let (pids, done) = (host.path("pids"), host.path("done"));
    let line = format!(
        "echo $$ > {0}; sleep 600 & echo $! >> {0}; setsid sleep 600 & echo $! >> {0}; : > {1}; wait",
        pids.display(),
        done.display()
    );
    let running = host.begin(shell(&line)).await.expect("begun");
    until("it has started all", || done.exists()).await;
    let pids = std::fs::read_to_string(&pids).expect("written");
    let lives = || pids.lines().filter(|pid| PathBuf::from(format!("/proc/{pid}/exe")).exists()).count();
    assert_eq!(pids.lines().count(), 3);
    drop(running);
    until("it is on record that it was ended", || host.told().len() == 2).await;
    assert_eq!(lives(), 0);
    let told = host.told();
    assert!(matches!(&told[1], RunRecord::Ended { end, .. } if end.exit == RunExit::Cancelled), "{told:?}");
}

#[tokio::test]
async fn a_host_that_forbids_commands_or_is_busy_refuses_them() {
    let host = Host::new(false);
    let refused = host.begin(shell("true")).await.expect_err("forbidden");
    assert_eq!(refused.kind, RefusalKind::Forbidden);
    assert!(refused.error.contains("n1") && refused.error.contains("run = false"), "{}", refused.error);
    assert!(host.told().is_empty());

    let host = Host::new(true);
    let mut all = Vec::new();
    for _ in 0..AT_ONCE {
        all.push(host.begin(shell("exec sleep 600")).await.expect("begun"));
    }
    let refused = host.begin(shell("true")).await.expect_err("busy");
    assert_eq!(
        (refused.kind, refused.error.contains("8 running commands")),
        (RefusalKind::Unavailable, true),
        "{refused:?}"
    );
    all.pop();
    let mut room = false;
    for _ in 0..1000 {
        room = host.begin(shell("true")).await.is_ok();
        if room {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(room, "after the end of a command the next may run");
}

#[tokio::test]
async fn a_restarted_daemon_ends_and_records_the_commands_left_running() {
    let host = Host::new(true);
    // It runs, and no task waits for its end.
    let checked = Checked::of(shell("echo begun; exec sleep 600")).expect("in order");
    let label = Label { line: "sleep".to_owned(), who: "ann".to_owned() };
    let spec = spec(RunId::of(9), checked, Sealed::new(), &label);
    let _started = host.adhoc.0.runner.start_attached(&spec).expect("started");
    let folder = host.adhoc.0.runner.folder(job_of(RunId::of(9)));
    until("it has begun", || std::fs::read_to_string(folder.join("stdout")).is_ok_and(|said| said == "begun\n")).await;
    // The next life of a killed daemon has the same state folder.
    let copy = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(host.path("runs"), copy.path().join("runs")).expect("linked");
    let next = Host::within(copy, true);
    next.adhoc.returned();
    until("its end is on record", || !next.told().is_empty()).await;
    let told = next.told();
    let is_ended = |r: &RunRecord| matches!(r, RunRecord::Ended { end, .. } if end.exit == RunExit::DaemonEnded);
    assert!(told.len() == 1 && is_ended(&told[0]), "{told:?}");
    assert_eq!(next.adhoc.0.kept.read(RunId::of(9)).expect("kept").stdout, "begun\n");
}
