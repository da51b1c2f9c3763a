//! Actions as real processes: files, values, signals, timeouts, and killed runners.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Instant;

use cob_types::Command;
use rustix::process::{Pid, Signal, kill_process};

use super::super::program::RUN_ACTIONS;
use super::super::testing::{anybody_with, number_in, program, until, wait_for};
use super::super::{Exit, Sealed, base_environment};
use super::*;

/// A folder of jobs that must not leave processes behind.
struct Bench {
    folder: tempfile::TempDir,
    runner: Runner,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let runner = Runner::new(program(), &folder.path().join("jobs")).expect("made");
        Self { folder, runner }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spec(&self, command: Command) -> Spec {
        Spec {
            id: JobId(7),
            label: "what it is".to_owned(),
            command,
            environment: base_environment(),
            folder: self.folder.path().to_owned(),
            timeout: Duration::from_secs(200),
            grace: Duration::from_secs(100),
            content: r#"{"a":1}"#.to_owned(),
            imports: "{}".to_owned(),
            stdout_apart: false,
            durable: false,
            secrets: Sealed::new(),
            attached: false,
        }
    }

    fn shell(&self, text: &str) -> Spec {
        self.spec(Command::Shell(text.to_owned()))
    }

    async fn run(&self, spec: Spec) -> JobResult {
        let result = self.runner.start(&spec).expect("started").ended().await;
        self.runner.remove(spec.id).expect("removed");
        result
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let root = self.folder.path().to_str().expect("text").to_owned();
            wait_for("no process of the test is left", || !anybody_with(&root));
        }
    }
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a process id"), Signal::KILL).expect("killed");
}

#[tokio::test]
async fn an_action_gets_its_files_and_gives_its_values() {
    let bench = Bench::new();
    let mut spec = bench.shell(
        r#"[ "$(cat "$COB_CONTENT")" = '{"a":1}' ] && [ "$COB_IMPORTS" = '{"n1/b":{}}' ] || exit 9
           [ "$(cat "$COB_IMPORTS_FILE")" = "$COB_IMPORTS" ] || exit 8
           [ -z "$CARGO$CARGO_PKG_NAME" ] && [ "$LANG" = C.UTF-8 ] && [ "$MINE" = yes ] || exit 7
           read -r line && exit 6
           [ "$(umask)" = 0022 ] && ! ls -l /proc/self/fd | grep -E '/lock$|anon_inode' || exit 5
           echo '{"ip": "::1", "n": {"b": 1, "a": [2]}}' > "$COB_EXPORT_OUT"
           printf 'undo me' > "$COB_RESULT_OUT"
           echo out; echo err >&2; pwd; exit 3"#,
    );
    spec.imports = r#"{"n1/b":{}}"#.to_owned();
    spec.environment.insert("MINE".to_owned(), "yes".to_owned());
    spec.durable = true;
    let result = bench.run(spec).await;
    assert_eq!(result.exit, Exit::Exited(3), "{result:?}");
    let values = BTreeMap::from([("ip".into(), "\"::1\"".into()), ("n".into(), r#"{"a":[2],"b":1}"#.into())]);
    assert_eq!(result.exports, Ok(values));
    assert_eq!(result.saved, Ok(Some("undo me".to_owned())));
    let folder = bench.folder.path().canonicalize().expect("there");
    assert_eq!(result.last_lines, format!("out\nerr\n{}", folder.display()));
    assert!(result.began_ns > 0 && result.ended_ns >= result.began_ns);
}

#[tokio::test]
async fn standard_output_can_be_kept_apart() {
    let bench = Bench::new();
    let mut spec = bench.spec(Command::Argv(["/bin/sh", "-c", "echo up; echo noise >&2"].map(Into::into).to_vec()));
    spec.stdout_apart = true;
    let result = bench.run(spec).await;
    assert_eq!((result.exit, result.stdout.as_str()), (Exit::Exited(0), "up\n"));
    assert_eq!(result.last_lines, "noise");
}

#[tokio::test]
async fn an_action_that_cannot_start_gives_its_reason() {
    let bench = Bench::new();
    fs::write(bench.path("plain"), "no program").expect("written");
    fs::write(bench.path("lost.sh"), "#!/no/such/interpreter\n").expect("written");
    fs::write(bench.path("noise"), [0u8, 1, 2]).expect("written");
    for name in ["lost.sh", "noise"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(bench.path(name), mode).expect("set");
    }
    for (program, word) in [
        ("no-such-program", "not found"),
        ("./missing.sh", "not found"),
        ("./plain", "not executable"),
        ("./lost.sh", "interpreter"),
        ("./noise", "neither a program"),
    ] {
        let result = bench.run(bench.spec(Command::Argv(vec![program.to_owned()]))).await;
        let Exit::SpawnFailed(why) = &result.exit else { panic!("{program}: {result:?}") };
        assert!(why.contains(word) && why.contains(program), "{why}");
    }
    let mut spec = bench.spec(Command::Argv(vec!["/bin/true".to_owned()]));
    spec.folder = bench.path("nowhere");
    let result = bench.run(spec).await;
    assert!(matches!(&result.exit, Exit::SpawnFailed(why) if why.contains("working folder")), "{result:?}");
    let result = bench.run(bench.spec(Command::Argv(vec![]))).await;
    assert!(matches!(&result.exit, Exit::SpawnFailed(why) if why.contains("empty")), "{result:?}");
    let result = bench.run(bench.shell("no-such-program")).await;
    assert_eq!(result.exit, Exit::Exited(127));
    assert!(result.last_lines.contains("not found"), "{result:?}");
}

#[tokio::test]
async fn a_signal_is_reported() {
    let bench = Bench::new();
    let result = bench.run(bench.shell("echo before; kill -SEGV $$")).await;
    assert_eq!((result.exit, result.last_lines.as_str()), (Exit::Signal(11), "before"));
}

#[tokio::test]
async fn a_timeout_ends_the_whole_group_politely() {
    let bench = Bench::new();
    let mut spec = bench.shell(
        "(trap 'echo worker cleans up; exit 0' TERM; while :; do sleep 0.02; done) & \
         trap '' TERM; echo begun; wait; wait; echo leader ends; exit 5",
    );
    spec.timeout = Duration::from_millis(300);
    let begun = Instant::now();
    let result = bench.run(spec).await;
    assert_eq!(result.exit, Exit::TimedOut);
    for word in ["begun", "worker cleans up", "leader ends"] {
        assert!(result.last_lines.contains(word), "{word}: {result:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(80), "nobody waited for the grace to pass");
}

#[tokio::test]
async fn an_action_that_ignores_signals_is_killed_after_the_grace_time() {
    let bench = Bench::new();
    let mut spec =
        bench.shell("trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & while :; do sleep 0.05; done");
    spec.timeout = Duration::from_millis(150);
    spec.grace = Duration::from_millis(150);
    assert_eq!(bench.run(spec).await.exit, Exit::TimedOut);
}

#[tokio::test]
async fn a_job_can_be_cancelled() {
    let bench = Bench::new();
    let spec = bench.shell("echo $$ > pid; exec sleep 600");
    let started = bench.runner.start(&spec).expect("started");
    number_in(&bench.path("pid"));
    let canceller = started.canceller();
    canceller.cancel().expect("asked");
    assert_eq!(started.ended().await.exit, Exit::Cancelled);
    bench.runner.remove(spec.id).expect("removed");
    canceller.cancel().expect("nothing to do");
}

#[tokio::test]
async fn a_background_child_holds_back_neither_lock_nor_result() {
    let bench = Bench::new();
    let begun = Instant::now();
    let result = bench.run(bench.shell("sleep 600 & echo $! > pid; exit 0")).await;
    assert_eq!(result.exit, Exit::Exited(0));
    assert!(begun.elapsed() < Duration::from_secs(100));
    let pid = number_in(&bench.path("pid"));
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "a service may be left in the background");
    kill(pid);
}

#[tokio::test]
async fn a_flood_is_bounded_and_its_end_is_kept() {
    let bench = Bench::new();
    let spec = bench.shell("yes 0123456789012345678901234567890123456789 | head -c 10000000; echo; echo the end");
    let result = bench.runner.start(&spec).expect("started").ended().await;
    assert_eq!(result.exit, Exit::Exited(0));
    assert!(result.last_lines.len() <= 2048 && result.last_lines.ends_with("the end"), "{}", result.last_lines);
    let room = fs::metadata(spec.id.folder(&bench.runner.root).join(job::OUTPUT)).expect("there").len();
    assert!(room < 1 << 20, "{room}");
}

#[tokio::test]
async fn closed_output_and_bad_exports_do_no_harm() {
    let bench = Bench::new();
    let result = bench.run(bench.shell("exec >&- 2>&-; exit 4")).await;
    assert_eq!((result.exit, result.last_lines.as_str()), (Exit::Exited(4), ""));
    for (script, word) in [
        ("echo '{\"a\": ' > $COB_EXPORT_OUT", "no JSON object"),
        ("echo '[1]' > $COB_EXPORT_OUT", "no JSON object"),
        ("printf '\\377' > $COB_EXPORT_OUT", "UTF-8"),
        ("head -c 70000 /dev/zero > $COB_EXPORT_OUT", "more than 65536"),
        ("mkfifo $COB_EXPORT_OUT", "regular file"),
        ("ln -s /etc/passwd $COB_EXPORT_OUT", "symbolic"),
    ] {
        let result = bench.run(bench.shell(script)).await;
        let error = result.exports.expect_err(script);
        assert!(error.contains(word), "{script}: {error}");
    }
    let result = bench.run(bench.shell(": > $COB_EXPORT_OUT")).await;
    assert_eq!(result.exports, Ok(BTreeMap::new()));
}

#[tokio::test]
async fn large_imports_are_only_in_the_file() {
    let bench = Bench::new();
    let mut spec = bench.shell("[ -z \"$COB_IMPORTS\" ] && wc -c < $COB_IMPORTS_FILE");
    spec.imports = format!("\"{}\"", "x".repeat(300_000));
    let result = bench.run(spec).await;
    assert_eq!((result.exit, result.last_lines.as_str()), (Exit::Exited(0), "300002"));
}

#[tokio::test]
async fn a_killed_runner_ends_its_action_and_no_other_process() {
    let bench = Bench::new();
    // A process in its own session, like a service, does not belong to the action any more.
    let spec = bench.shell(
        "setsid sh -c 'echo $$ > service; exec sleep 600' & \
         sh -c 'trap \"\" TERM; echo $$ > deaf; while :; do sleep 0.05; done' & echo $$ > pid; wait",
    );
    let spec = Spec { grace: Duration::from_millis(200), ..spec };
    let started = bench.runner.start(&spec).expect("started");
    let (pid, deaf, service) =
        (number_in(&bench.path("pid")), number_in(&bench.path("deaf")), number_in(&bench.path("service")));
    kill(number_in(&spec.id.folder(&bench.runner.root).join(job::LOCK)));
    let result = started.ended().await;
    assert_eq!(result.exit, Exit::Lost);
    for gone in [pid, deaf] {
        wait_for("the action is gone", || is_gone(gone.cast_unsigned()));
    }
    assert!(Path::new(&format!("/proc/{service}")).exists());
    kill(service);
}

/// As with `sudo` and `su -`.
#[tokio::test]
async fn an_action_without_its_environment_ends_with_its_killed_runner() {
    let bench = Bench::new();
    let pid = bench.path("pid");
    let spec = bench.shell(&format!("exec env -i /bin/sh -c 'echo $$ > {}; exec sleep 600'", pid.display()));
    let spec = Spec { grace: Duration::from_millis(200), ..spec };
    let lock = spec.id.folder(&bench.runner.root).join(job::LOCK);
    for known in ["its group", "its output"] {
        let started = bench.runner.start(&spec).expect("started");
        let action = number_in(&pid);
        wait_for("the runner knows its group", || {
            fs::read_to_string(&lock).is_ok_and(|signed| signed.ends_with(&format!(" {action}")))
        });
        let runner = number_in(&lock);
        if known == "its output" {
            // The state if the runner is killed before it has recorded the group that it has started.
            fs::write(&lock, runner.to_string()).expect("written");
        }
        kill(runner);
        assert_eq!(started.ended().await.exit, Exit::Lost, "{known}");
        wait_for("the action is gone", || is_gone(action.cast_unsigned()));
        bench.runner.remove(spec.id).expect("removed");
        fs::remove_file(&pid).expect("removed");
    }
}

#[tokio::test]
async fn a_job_outlives_its_daemon_and_is_found() {
    let bench = Bench::new();
    let long =
        Spec { id: JobId(1), ..bench.shell("echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; cat $COB_CONTENT") };
    let short = Spec { id: JobId(2), ..bench.shell("exit 4") };
    let lost = Spec { id: JobId(3), ..bench.shell("echo $$ > lost; exec sleep 600") };
    // Dropping all handles has the same effect as the end of the daemon.
    drop(bench.runner.start(&long).expect("started"));
    let folder = short.id.folder(&bench.runner.root);
    drop(bench.runner.start(&short).expect("started"));
    wait_for("the short one has ended", || folder.join(job::RESULT).exists() && !is_locked(&folder));
    // By another process, which is killed.
    let other = Runner::new(program(), &bench.runner.root).expect("there");
    drop(other.start(&lost).expect("started"));
    let left = number_in(&bench.path("lost"));
    kill(number_in(&lost.id.folder(&bench.runner.root).join(job::LOCK)));
    let folder = lost.id.folder(&bench.runner.root);
    wait_for("the killed runner is gone", || !is_locked(&folder));
    // A daemon killed right after it had created the folder.
    fs::create_dir(JobId(4).folder(&bench.runner.root)).expect("made");
    // And a daemon killed while it deleted an ended job.
    let going = bench.runner.root.join(format!("{:016x}.tmp", 5));
    fs::create_dir_all(going.join("half")).expect("made");
    number_in(&bench.path("pid"));

    let returned = Runner::new(program(), &bench.runner.root).expect("there");
    returned.clear_leftovers();
    assert!(!going.exists());
    let found = returned.scan().expect("listed");
    assert_eq!(found.iter().map(|j| j.id.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(found[0].state, FoundState::Running);
    assert_eq!(found[0].label.as_deref(), Some("what it is"));
    assert!(matches!(&found[1].state, FoundState::Finished(r) if r.exit == Exit::Exited(4)), "{:?}", found[1]);
    assert_eq!((&found[2].state, &found[3].state), (&FoundState::Lost, &FoundState::Lost));
    assert_eq!(found[3].label, None);
    for id in [3, 4] {
        assert_eq!(returned.adopt(JobId(id)).ended().await.exit, Exit::Lost);
    }
    assert!(!Path::new(&format!("/proc/{left}/exe")).exists(), "ended before anybody checks anything");
    let adopted = returned.adopt(JobId(1));
    fs::write(bench.path("go"), "").expect("written");
    let result = adopted.ended().await;
    assert_eq!((result.exit, result.last_lines.as_str()), (Exit::Exited(0), r#"{"a":1}"#));
}

/// Executed as a separate process by the test below: a daemon that starts a job.
#[test]
fn as_daemon() {
    let Ok(root) = std::env::var("COB_TEST_DAEMON") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let _inside = runtime.enter();
    let runner = Runner::new(program(), &Path::new(&root).join("jobs")).expect("made");
    let command = Command::Shell("echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done".to_owned());
    let spec = Spec {
        id: JobId(1),
        label: String::new(),
        command,
        environment: base_environment(),
        folder: root.into(),
        timeout: Duration::from_secs(20),
        grace: Duration::from_secs(1),
        content: String::new(),
        imports: String::new(),
        stdout_apart: false,
        durable: true,
        secrets: Sealed::new(),
        attached: std::env::var_os("COB_TEST_ATTACHED").is_some(),
    };
    let _started = runner.start(&spec).expect("started");
    std::thread::sleep(Duration::from_secs(20));
}

#[tokio::test]
async fn an_attached_job_ends_with_its_daemon() {
    let bench = Bench::new();
    let mut daemon = std::process::Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "run::start::tests::as_daemon", "--nocapture"])
        .env("COB_TEST_DAEMON", bench.folder.path())
        .env("COB_TEST_ATTACHED", "1")
        .stdout(Stdio::null())
        .spawn()
        .expect("spawned");
    let pid = || fs::read_to_string(bench.path("pid")).ok().filter(|text| text.ends_with('\n'));
    wait_for("the action runs", || pid().is_some());
    let action = format!("/proc/{}/exe", pid().expect("there").trim());
    assert!(Path::new(&action).exists());
    daemon.kill().expect("killed");
    daemon.wait().expect("reaped");
    wait_for("the action has ended", || !Path::new(&action).exists());
    let result = bench.runner.adopt(JobId(1)).ended().await;
    assert_eq!(result.exit, Exit::Cancelled);
}

#[tokio::test]
async fn a_daemon_killed_at_any_moment_finds_its_started_jobs() {
    // From before the runner exists until its action runs: some 3 ms here.
    for delay in [0, 100, 200, 400, 800, 1600, 3200, 20_000] {
        let bench = Bench::new();
        let mut daemon = std::process::Command::new(std::env::current_exe().expect("known"))
            .args(["--exact", "run::start::tests::as_daemon", "--nocapture"])
            .env("COB_TEST_DAEMON", bench.folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("spawned");
        let folder = JobId(1).folder(&bench.runner.root);
        wait_for("the daemon begins its job", || folder.exists());
        std::thread::sleep(Duration::from_micros(delay));
        daemon.kill().expect("killed");
        daemon.wait().expect("reaped");

        let found = bench.runner.scan().expect("listed");
        let state = found[0].state.clone();
        let adopted = bench.runner.adopt(JobId(1));
        if state == FoundState::Running {
            fs::write(bench.path("go"), "").expect("written");
            let exit = adopted.ended().await.exit;
            // A runner that is just being executed holds all open files of the daemon for a moment.
            let nothing_begun = exit == Exit::Lost && !bench.path("pid").exists();
            assert!(exit == Exit::Exited(0) || nothing_begun, "after {delay} us: {exit:?}");
        } else {
            assert_eq!(state, FoundState::Lost, "after {delay} us");
            assert_eq!(adopted.ended().await.exit, Exit::Lost);
            assert!(!bench.path("pid").exists(), "the lock was free, so nothing had begun");
        }
    }
}

#[tokio::test]
async fn an_adopted_job_can_be_cancelled() {
    let bench = Bench::new();
    let spec = bench.shell("echo $$ > pid; exec sleep 600");
    drop(bench.runner.start(&spec).expect("started"));
    number_in(&bench.path("pid"));
    let adopted = bench.runner.adopt(spec.id);
    adopted.canceller().cancel().expect("asked");
    assert_eq!(adopted.ended().await.exit, Exit::Cancelled);
}

#[tokio::test]
async fn a_job_starts_only_once() {
    let bench = Bench::new();
    let spec = bench.shell("echo x >> ran");
    let started = bench.runner.start(&spec).expect("started");
    let error = bench.runner.start(&spec).expect_err("refused");
    assert_eq!(error.source.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(started.ended().await.exit, Exit::Exited(0));
    // By hand, or without the daemon's lock: refused.
    let folder = spec.id.folder(&bench.runner.root);
    fs::remove_file(folder.join(job::RESULT)).expect("removed");
    program().command(RUN_ACTIONS, &bench.runner.root).status().expect("executed");
    let of = bench.runner.processes.clone();
    let (pipe, from) = of.run(&folder, &File::open("/dev/null").expect("there")).expect("given");
    drop(bench.runner.started(folder.clone(), None, Some(Heard { pipe, from, of })).ended().await);
    assert!(!folder.join(job::RESULT).exists());
    assert_eq!(fs::read_to_string(bench.path("ran")).expect("read"), "x\n");
}

fn is_gone(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z"))
}

#[tokio::test]
async fn many_jobs_share_a_runner_that_ends_after_them() {
    let bench = Bench::new();
    let daemon = Runner::new(program(), &bench.runner.root).expect("there");
    let wait = bench.shell("echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exit 4");
    let long = daemon.start(&wait).expect("started");
    number_in(&bench.path("pid"));
    for number in 10..30 {
        let spec = Spec { id: JobId(number), ..bench.shell("exit 3") };
        assert_eq!(daemon.start(&spec).expect("started").ended().await.exit, Exit::Exited(3));
    }
    let pid = daemon.processes.pid().expect("lives");
    assert_eq!(number_in(&wait.id.folder(&daemon.root).join(job::LOCK)).cast_unsigned(), pid);
    // Ended jobs leave no child, no thread, no open file.
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).expect("lives").count();
    let children = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("lives").flatten();
        let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
        tasks.map(of).collect::<String>().split_whitespace().count()
    };
    // In the test program the runner's own thread is not the first; another listens for alarms.
    wait_for("one child and its thread are left", || children() == 1 && count("task") <= 4);
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).expect("lives").flatten();
    let open = fds.filter_map(|fd| fs::read_link(fd.path()).ok()?.into_os_string().into_string().ok());
    let of_jobs = open.filter(|path| path.contains("/jobs/") || path.contains("[pidfd]")).count();
    assert_eq!(of_jobs, 3, "lock, output, and the child's handle");
    // The daemon ends.
    drop((long, daemon));
    fs::write(bench.path("go"), "").expect("written");
    assert_eq!(bench.runner.adopt(wait.id).ended().await.exit, Exit::Exited(4));
    wait_for("it ends with its last job", || is_gone(pid));
}

#[tokio::test]
async fn a_killed_runner_is_replaced() {
    let bench = Bench::new();
    let long = bench.runner.start(&bench.shell("echo $$ > pid; exec sleep 600")).expect("started");
    let action = number_in(&bench.path("pid"));
    let killed = bench.runner.processes.pid().expect("lives");
    kill(killed.cast_signed());
    // A job given to it before it is gone would be lost, too.
    until("it is gone", || !Path::new(&format!("/proc/{killed}")).exists()).await;
    let spec = Spec { id: JobId(8), ..bench.shell("exit 3") };
    assert_eq!(bench.run(spec).await.exit, Exit::Exited(3));
    assert_ne!(bench.runner.processes.pid().expect("lives"), killed);
    assert_eq!(long.ended().await.exit, Exit::Lost);
    assert!(is_gone(action.cast_unsigned()));
}

#[tokio::test]
async fn a_stopped_runner_is_replaced() {
    let bench = Bench::new();
    assert_eq!(bench.run(bench.shell("exit 0")).await.exit, Exit::Exited(0));
    let stopped = bench.runner.processes.pid().expect("lives");
    let number = Pid::from_raw(stopped.cast_signed()).expect("a process id");
    kill_process(number, Signal::STOP).expect("stopped");
    // A killed process drops its waiting jobs, which had not started.
    let started = bench.runner.start(&bench.shell("echo $$ > pid")).expect("given");
    bench.runner.processes.replace(&started.heard.as_ref().expect("ours").from);
    assert_eq!(started.ended().await.exit, Exit::Lost);
    assert!(!bench.path("pid").exists());
    bench.runner.remove(JobId(7)).expect("removed");
    assert_eq!(bench.run(bench.shell("exit 3")).await.exit, Exit::Exited(3));
    until("it is reaped", || !Path::new(&format!("/proc/{stopped}")).exists()).await;
}

#[tokio::test]
async fn a_stopped_runner_is_continued() {
    let bench = Bench::new();
    let started = bench.runner.start(&bench.shell("while [ ! -e go ]; do sleep 0.02; done; exit 4")).expect("started");
    let pid = bench.runner.processes.pid().expect("lives");
    let from = started.heard.as_ref().expect("ours").from.clone();
    from.let_go_on();
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a process id"), Signal::STOP).expect("stopped");
    wait_for("it is stopped", || cob_processes::is_stopped(pid.cast_signed()));
    from.let_go_on();
    fs::write(bench.path("go"), "").expect("written");
    assert_eq!(started.ended().await.exit, Exit::Exited(4));
}

#[tokio::test]
async fn an_action_that_kills_the_shared_runner_gets_its_own_runner() {
    let bench = Bench::new();
    let job = |id: u64, text: &str| Spec { id: JobId(id), label: format!("job {}", id % 2), ..bench.shell(text) };
    let innocent = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exit 4";
    let (first, guilty) = (job(1, innocent), job(2, "kill -9 $PPID; sleep 600"));
    let first = bench.runner.start(&first).expect("started");
    number_in(&bench.path("pid"));
    assert_eq!(bench.runner.start(&guilty).expect("started").ended().await.exit, Exit::Lost);
    assert_eq!(first.ended().await.exit, Exit::Lost);
    let again = bench.runner.start(&job(3, innocent)).expect("started");
    assert_eq!(bench.runner.start(&Spec { id: JobId(4), ..guilty }).expect("started").ended().await.exit, Exit::Lost);
    fs::write(bench.path("go"), "").expect("written");
    assert_eq!(again.ended().await.exit, Exit::Exited(4));
    assert_eq!(*locked(&bench.runner.suspects), BTreeSet::from(["job 0".to_owned()]));
}

#[tokio::test]
async fn a_pipe_or_link_in_place_of_a_job_file_is_not_read() {
    let bench = Bench::new();
    for script in ["rm $COB_JOB/output; mkfifo $COB_JOB/output; exit 3", "ln -sf /etc/passwd $COB_JOB/output; exit 3"] {
        let result = bench.run(bench.shell(script)).await;
        assert_eq!((result.exit, result.last_lines.as_str()), (Exit::Exited(3), ""), "{script}");
    }
    // Without its lock, a lost job's leftovers are identified by their environment alone.
    let started = bench.runner.start(&bench.shell("rm $COB_JOB/lock; echo $$ > pid; exec sleep 600")).expect("started");
    let pid = number_in(&bench.path("pid"));
    kill(bench.runner.processes.pid().expect("lives").cast_signed());
    assert_eq!(started.ended().await.exit, Exit::Lost);
    assert!(is_gone(pid.cast_unsigned()));
}

#[tokio::test]
async fn the_number_of_jobs_of_a_runner_is_limited() {
    let bench = Bench::new();
    let mut given = Vec::new();
    let mut pids = std::collections::BTreeSet::new();
    for number in 0..250 {
        let spec = Spec { id: JobId(number), ..bench.shell("while [ ! -e go ]; do sleep 0.5; done; exit 4") };
        given.push(bench.runner.start(&spec).expect("started"));
        pids.insert(bench.runner.processes.pid().expect("lives"));
    }
    assert_eq!(pids.len(), 3);
    fs::write(bench.path("go"), "").expect("written");
    for job in given {
        assert_eq!(job.ended().await.exit, Exit::Exited(4));
    }
    let last = bench.runner.processes.pid().expect("lives");
    wait_for("those that were full have ended", || pids.iter().all(|pid| *pid == last || is_gone(*pid)));
}
