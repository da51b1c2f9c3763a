//! The protection of a daemon from other users and from its actions, and its messages to the service manager.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use cob_tests::cluster::Cluster;
use cob_tests::processes::{self, Signal};
use cob_types::GenerationNumber;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::{CHECK, PATIENCE, cluster};

/// A change object whose actions record their environment; with and without a shell.
const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
kinds:
  told:
    states: [down, half, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: half, run: [./words.sh, "$HOME", "; echo half > state", "*"]}
      - {from: half, to: up, run: ./look.sh}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
cobs:
  n1/a: {kind: told}
"#;
const WORDS: &str =
    "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$COB_STATE_DIR/words\"\necho half > \"$COB_STATE_DIR/state\"\n";
const LOOK: &str = r#"#!/bin/sh
cd "$COB_STATE_DIR"
tr '\0' '\n' < /proc/$$/environ > environment
ls -l /proc/$$/fd > descriptors
grep SigIgn /proc/$$/status > ignored
umask > mask
ulimit -S -c > core
echo up > state
"#;

/// How often the test's service manager expects a watchdog message.
const WATCHDOG: Duration = Duration::from_millis(300);

fn published() -> (Cluster, GenerationNumber) {
    let mut cluster = cluster(&["n1"]);
    let files = [("model.yaml", MODEL), CHECK, ("words.sh", WORDS), ("look.sh", LOOK)];
    let model = cluster.write_model("model", &files);
    let generation = cluster.generate(&model);
    (cluster, generation)
}

fn written(cluster: &Cluster, file: &str) -> String {
    fs::read_to_string(cluster.path("n1/cobs/n1+a").join(file)).expect("the action has written it")
}

#[test]
fn actions_inherit_no_secrets_and_no_open_files() {
    let (mut cluster, generation) = published();
    // A file left open by the program that starts the daemon.
    let secret = cluster.path("left-open");
    let left = File::create(&secret).expect("made");
    fcntl_setfd(&left, FdFlags::empty()).expect("inherited");
    cluster.start_as("n1", |command| {
        command.env("PLANTED_TOKEN", "planted").env("LC_ALL", "de_DE.UTF-8").env("LD_PLANTED", "planted");
        command.env("NOTIFY_SOCKET", "@nobody-listens").env("TZ", "UTC");
    });
    drop(left);
    cluster.wait_answers("n1");
    cluster.switch_all(generation);
    cluster.wait_converged(generation, PATIENCE);

    assert_eq!(written(&cluster, "words"), "$HOME\n; echo half > state\n*\n", "no shell where none was asked for");
    let environment = written(&cluster, "environment");
    let names: Vec<_> = environment.lines().filter_map(|l| Some(l.split_once('=')?.0)).collect();
    let known = |n: &str| ["PATH", "HOME", "LANG", "USER", "LOGNAME", "TZ", "TMPDIR", "PWD"].contains(&n);
    let strange: Vec<_> = names.iter().filter(|n| !known(n) && !n.starts_with("COB_")).collect();
    assert!(strange.is_empty() && names.contains(&"TZ") && names.contains(&"COB_ID"), "{strange:?} in {names:?}");
    assert!(environment.contains("LANG=C.UTF-8") && !environment.contains("planted"), "{environment}");
    let descriptors = written(&cluster, "descriptors");
    let strange =
        |l: &&str| !["/dev/null", "/output", "/stdout", "/look.sh", "/descriptors"].iter().any(|e| l.ends_with(e));
    let strange: Vec<_> = descriptors.lines().filter(|l| l.contains(" -> ")).filter(strange).collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert_eq!((written(&cluster, "mask").trim(), written(&cluster, "core").trim()), ("0022", "0"));
}

#[test]
fn actions_ignore_no_signal_that_the_daemon_was_started_with() {
    let (mut cluster, generation) = published();
    cluster.start_as("n1", |command| {
        // As with `nohup` and a script's `&`.
        let mut deaf = Command::new("/bin/sh");
        deaf.args(["-c", "trap '' HUP QUIT USR1; exec \"$0\" \"$@\""]).arg(command.get_program());
        deaf.args(command.get_args()).current_dir(command.get_current_dir().expect("set"));
        deaf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        *command = deaf;
    });
    cluster.wait_answers("n1");
    let pid = cluster.pid("n1").expect("runs");
    cluster.switch_all(generation);
    cluster.wait_converged(generation, PATIENCE);
    let ignored = written(&cluster, "ignored");
    let mask = ignored.trim().strip_prefix("SigIgn:\t").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    // glibc's posix_spawn leaves two of its own signals ignored, beyond these 31.
    assert_eq!(mask.map(|mask| mask & 0x7fff_ffff), Some(0), "{ignored}");
    // The daemon itself still ignores the signals.
    processes::signal(pid, Signal::HUP);
    processes::signal(pid, Signal::USR1);
    cluster.wait_answers("n1");
    assert!(processes::lives(pid));
}

#[test]
fn the_daemon_is_closed_to_others() {
    let (mut cluster, generation) = published();
    // Started with an open mask, on a folder that other users may read.
    let folder = cluster.path("n1");
    fs::create_dir(&folder).expect("made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("set");
    cluster.start("n1");
    cluster.wait_answers("n1");
    cluster.switch_all(generation);
    cluster.wait_converged(generation, PATIENCE);
    let pid = cluster.pid("n1").expect("runs");
    let proc = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a process");
    assert!(proc("status").lines().any(|l| l == "Umask:\t0077"), "{}", proc("status"));
    let core = proc("limits").lines().find(|l| l.starts_with("Max core file size")).map(str::to_owned);
    assert_eq!(core.as_deref().and_then(|l| l.split_whitespace().nth(4)), Some("0"), "{core:?}");
    let mode = |path: &std::path::Path| fs::symlink_metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&cluster.path("n1.sock"))), (0o700, 0o600));
    let mut looked = 0;
    for entry in fs::read_dir(&folder).expect("a folder").flatten() {
        assert_eq!(mode(&entry.path()) & 0o077, 0, "{}", entry.path().display());
        looked += 1;
    }
    assert!(looked >= 5, "{looked} entries");
    // The kernel gives the files of a process that can't be dumped to root.
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{pid}/environ")).expect("there"));
    assert_eq!(owner, 0, "its memory can be read by others of its user");
}

#[test]
fn a_configuration_or_depot_that_others_may_write_is_refused() {
    let (mut cluster, generation) = published();
    let config = cluster.path("n1.toml");
    let set = |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    set(&config, 0o666);
    let (status, said) = cluster.start_in_vain("n1");
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("n1.toml: other users may write it") && said.contains("chmod go-w"), "{said}");
    set(&config, 0o644);
    // A daemon that follows accepts every new generation; without trusted publishers, writers of the depot control it.
    cluster.configure("n1", "follow = true");
    let depot = cluster.path("depot");
    set(&depot, 0o777);
    let (status, said) = cluster.start_in_vain("n1");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("`follow` without `trust`") && said.contains("other users may write it"), "{said}");
    // An order names a generation that an operator has reviewed.
    cluster.configure("n1", "");
    cluster.start("n1");
    cluster.wait_answers("n1");
    cluster.switch_all(generation);
    cluster.wait_converged(generation, PATIENCE);
    cluster.stop("n1");
    set(&depot, 0o755);
    cluster.configure("n1", "follow = true");
    cluster.start("n1");
    cluster.wait_answers("n1");
}

#[test]
fn the_service_manager_hears_that_the_daemon_lives() {
    let (mut cluster, generation) = published();
    let path = cluster.path("notify");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    let hear = || {
        let mut bytes = [0; 4096];
        let length = manager.recv(&mut bytes).expect("it says something in time");
        String::from_utf8(bytes[..length].to_vec()).expect("text")
    };
    let until = |wanted: &str| {
        let mut heard = Vec::new();
        while !heard.last().is_some_and(|last: &String| last.contains(wanted)) {
            heard.push(hear());
        }
        heard
    };
    cluster.start_as("n1", |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    });
    assert_eq!(hear(), "READY=1\n", "nothing is said before");
    assert!(hear().contains("STATUS=no generation yet, 0 of 0 peers linked\n"));
    cluster.wait_answers("n1");
    cluster.switch_all(generation);
    until("STATUS=generation 1, converged");
    assert!((0..5).all(|_| hear().contains("WATCHDOG=1")), "an idle daemon gives signs of life");

    // A hanging loop sends no watchdog message, even if other threads live.
    let pid = cluster.pid("n1").expect("runs");
    processes::signal(pid, Signal::STOP);
    cluster.until(PATIENCE, || stopped(pid), "it hangs");
    manager.set_nonblocking(true).expect("set");
    while manager.recv(&mut [0; 4096]).is_ok() {}
    manager.set_nonblocking(false).expect("set");
    // Longer than the service manager would wait for a message.
    manager.set_read_timeout(Some(WATCHDOG + WATCHDOG / 3)).expect("set");
    assert!(manager.recv(&mut [0; 4096]).is_err(), "a sign of life of a daemon that hangs");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    processes::signal(pid, Signal::CONT);
    until("WATCHDOG=1");
    cluster.stop("n1");
    until("STOPPING=1");
}

fn stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}
