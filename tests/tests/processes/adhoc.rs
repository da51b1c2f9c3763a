//! Commands that operators run on hosts (`cobctl run`), with real daemons: over TLS with keys and over Unix sockets, up to
//! their end.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use cob_tests::cluster::Cluster;
use cob_tests::processes::{self, Signal};
use cob_trust::SecretKey;
use cob_types::trust::{Operator, Role};

use crate::words::run;
use crate::{CHECK, PATIENCE, QUICK};

const HOSTS: [&str; 2] = ["n1", "n2"];

const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1", labels: {rack: 1}}
  n2: {address: "tcp://127.0.0.1:2"}
cobs:
  n1/a: {kind: quick}
  n2/b: {kind: quick, requires: [n1/a]}
"#;

/// Two hosts with keys, an administrator `ann` and an operator `olga`.
struct Site(Cluster);

impl Site {
    fn new(configure: impl FnOnce(&Cluster)) -> Self {
        let mut cluster = Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &HOSTS);
        configure(&cluster);
        let folder = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
        let mut draft = cluster.load(&folder);
        for (seed, name, role) in [(1, "ann", Role::Administer), (2, "olga", Role::Operate)] {
            let key = SecretKey::from_seed(&[seed; 32]);
            key.store(&cluster.path(&format!("{name}.key"))).expect("a key");
            draft.operators.insert(name.to_owned(), Operator { role, keys: vec![key.public()], token: None });
        }
        let first = cluster.publish_draft(&draft);
        cluster.bring_up(first, PATIENCE);
        Self(cluster)
    }

    /// `cobctl` over TLS, with this operator's key.
    fn cobctl(&self, who: &str, words: &[&str]) -> Command {
        let cluster = &self.0;
        let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
        command.arg("cobctl").arg("--depot").arg(cluster.path("depot"));
        command.args(["--trust", &cluster.publisher().public().to_string()]);
        command.arg("--key").arg(cluster.path(&format!("{who}.key"))).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str]) -> (i32, String) {
        run(self.cobctl("ann", words))
    }

    /// The answer of `cobctl run --json`: its exit status, and the hosts by their names.
    fn run_json(&self, words: &[&str]) -> (i32, Vec<serde_json::Value>) {
        let output = self.cobctl("ann", &[&["run", "--json"], words].concat()).output().expect("runs");
        let told: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code().expect("ends by itself"), told["hosts"].as_array().expect("hosts").clone())
    }

    /// A command that runs on these hosts without an end, and the files with the numbers of its processes.
    fn lasting(&self, hosts: &str) -> (Child, Vec<PathBuf>) {
        let folder = self.0.path("pids");
        fs::create_dir_all(&folder).expect("made");
        let line = format!(
            "cd {}; sleep 600 & echo $! > $$.one; setsid sleep 600 & echo $! > $$.two; echo $$ > $$.three; mv $$.three $$.all; wait",
            folder.display()
        );
        let child = self.cobctl("ann", &["run", "--hosts", hosts, "--shell", &line]).spawn().expect("runs");
        let files = |end: &str| -> Vec<PathBuf> {
            let all = fs::read_dir(&folder).expect("listed").map(|entry| entry.expect("an entry").path());
            all.filter(|path| path.extension().is_some_and(|found| end.is_empty() || found == end)).collect()
        };
        let count = hosts.split(',').count();
        self.0.until(PATIENCE, || files("all").len() == count, "the command runs on all hosts");
        (child, files(""))
    }

    fn details(&self, host: &str, event: &str) -> Vec<String> {
        self.0.history(host).into_iter().filter(|e| e.event == event).map(|e| e.detail).collect()
    }
}

fn lives(file: &PathBuf) -> bool {
    let pid = fs::read_to_string(file).expect("written").trim().parse().expect("a number");
    processes::lives(pid)
}

#[test]
fn a_command_runs_on_all_hosts_and_is_in_the_history() {
    let site = Site::new(|_| {});
    let (code, said) = site.run(&["run", "--hosts", "n1,n2", "--", "echo", "a  b"]);
    assert_eq!(code, 0, "{said}");
    for line in ["n1 | a  b", "n2 | a  b", "n1  exit status 0", "n2  exit status 0", "succeeded on 2 of 2 hosts"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let run = said.split("cobctl output --run ").nth(1).and_then(|rest| rest.split(')').next()).expect("its number");
    for host in HOSTS {
        let begun = site.details(host, "run");
        assert_eq!(begun.len(), 1, "{begun:?}");
        assert!(begun[0].starts_with(&format!("{run}: echo 'a  b', by ann (administer)")), "{begun:?}");
        let ended = site.details(host, "run-ended");
        assert!(ended.len() == 1 && ended[0].starts_with(&format!("{run}: exit status 0 after ")), "{ended:?}");
    }
    let (code, said) = site.run(&["history"]);
    assert!(code == 0 && said.contains("echo 'a  b'") && said.contains("run-ended"), "{said}");
    let (code, said) = site.run(&["output", "--run", run]);
    assert!(code == 0 && said.contains("n1 | a  b") && said.contains("n2 | a  b"), "{said}");
    let (code, said) = run_as(&site, "olga", &["output", "--run", run]);
    assert!(code == 1 && said.contains("needs the role administer"), "{said}");

    let (code, said) = run_as(&site, "olga", &["run", "--all", "--", "touch", "/no/where"]);
    assert!(code == 1 && said.contains("n1  refused: olga may operate; this needs the role administer"), "{said}");
    assert_eq!(site.details("n1", "run").len(), 1, "no command was run");

    let (code, said) = site.run(&["run", "--all", "--plan", "--", "rm", "x"]);
    assert!(code == 0 && said.contains("would run: rm x") && said.contains("on 2 hosts"), "{said}");
    let (code, said) = site.run(&["run", "--label", "rack=1", "--plan", "--", "rm", "x"]);
    assert!(code == 0 && said.contains("on 1 host:") && said.contains("  n1") && !said.contains("n2"), "{said}");
    let (code, said) = site.run(&["run", "--label", "rack=2", "--plan", "--", "rm", "x"]);
    assert!(code == 2 && said.contains("no host has the label rack=2"), "{said}");
    let (code, said) = site.run(&["run", "--", "true"]);
    assert!(code == 2 && said.contains("--all"), "{said}");
    assert_eq!(site.details("n1", "run").len(), 1, "no command was run");
}

fn run_as(site: &Site, who: &str, words: &[&str]) -> (i32, String) {
    run(site.cobctl(who, words))
}

#[test]
fn each_way_in_which_a_command_fails_is_told_apart() {
    let site = Site::new(|cluster| cluster.configure("n2", "run = false"));
    let (code, hosts) = site.run_json(&["--all", "--", "sh", "-c", "echo said; echo complained >&2; exit 3"]);
    assert_eq!(code, 1);
    assert_eq!((&hosts[0]["exit"]["exited"], &hosts[0]["succeeded"]), (&3.into(), &false.into()), "{hosts:?}");
    assert_eq!((&hosts[0]["stdout"], &hosts[0]["stderr"]), (&"said\n".into(), &"complained\n".into()));
    assert_eq!((&hosts[1]["host"], &hosts[1]["outcome"]), (&"n2".into(), &"refused".into()));
    assert!(hosts[1]["error"].as_str().is_some_and(|why| why.contains("`run = false`")), "{hosts:?}");
    assert!(site.details("n2", "run").is_empty());

    let (code, hosts) = site.run_json(&["--hosts", "n1", "--", "no-such-program"]);
    assert_eq!(code, 1);
    let why = hosts[0]["exit"]["not-started"].as_str().expect("it was not started");
    assert!(why.contains("no-such-program: not found"), "{why}");

    let (code, hosts) = site.run_json(&["--hosts", "n1", "--time-limit", "200ms", "--", "sleep", "600"]);
    assert_eq!((code, &hosts[0]["exit"]), (1, &"timed-out".into()));

    let (code, hosts) = site.run_json(&["--hosts", "n1", "--shell", "yes | head -c 3000000; kill -9 $$"]);
    assert_eq!((code, &hosts[0]["exit"]["signal"], &hosts[0]["cut"]), (1, &9.into(), &3_000_000.into()));
    assert!(hosts[0]["stdout"].as_str().is_some_and(|text| text.len() <= 1 << 20), "it is cut off");

    let (code, hosts) = site.run_json(&["--hosts", "n1", "--env", "A=1", "--cwd", "/usr", "--shell", "echo $A $PWD"]);
    assert_eq!((code, &hosts[0]["stdout"]), (0, &"1 /usr\n".into()));
}

#[test]
fn an_interrupted_cobctl_ends_the_command_on_all_hosts() {
    let site = Site::new(|_| {});
    let (child, files) = site.lasting("n1,n2");
    assert!(files.len() == 6 && files.iter().all(lives), "{files:?}");
    processes::signal(child.id(), Signal::INT);
    let output = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("n1  interrupted") && said.contains("not known of n1 and n2"), "{said}");
    site.0.until(PATIENCE, || !files.iter().any(lives), "all that it has started has ended");
    for host in HOSTS {
        let ended = || site.details(host, "run-ended");
        site.0.until(PATIENCE, || ended().len() == 1, "its end is in the history");
        assert!(ended()[0].contains("ended: the operator's connection was closed"), "{:?}", ended());
    }
}

#[test]
fn a_daemon_that_is_killed_or_stopped_takes_the_command_along_and_it_is_no_success() {
    let mut site = Site::new(|_| {});
    for kill in [true, false] {
        let _ = fs::remove_dir_all(site.0.path("pids"));
        let before = site.details("n1", "run-ended").len();
        let (child, files) = site.lasting("n1");
        if kill {
            site.0.kill("n1");
        } else {
            site.0.stop("n1");
        }
        let output = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("n1  result not known") && said.contains("succeeded on 0 of 1 host;"), "{said}");
        site.0.until(PATIENCE, || !files.iter().any(lives), "all that it has started has ended");
        site.0.start("n1");
        site.0.wait_answers("n1");
        let ended = || site.details("n1", "run-ended");
        site.0.until(PATIENCE, || ended().len() == before + 1, "its end is in the history");
        assert!(ended()[before].contains("ended: the daemon had stopped"), "{:?}", ended());
    }
    let (code, said) = site.run(&["run", "--all", "--", "true"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_host_that_is_away_is_told_and_the_others_run_it() {
    let mut site = Site::new(|_| {});
    site.0.kill("n2");
    let (code, said) = site.run(&["run", "--all", "--", "echo", "here"]);
    assert!(code == 3 && said.contains("n1 | here") && said.contains("n2  not reached"), "{said}");
}

#[test]
fn without_keys_a_command_needs_the_unix_socket() {
    let mut cluster = crate::cluster(&HOSTS);
    let folder = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
    let first = cluster.generate(&folder);
    cluster.bring_up(first, PATIENCE);
    let (code, said) = run(crate::words::cobctl(&cluster, &[], &["run", "--all", "--shell", "true"]));
    assert!(code == 1 && said.contains("a command needs a proof of identity"), "{said}");
    let (code, said) = run(crate::words::cobctl(&cluster, &["n1", "n2"], &["run", "--shell", "echo here"]));
    assert!(code == 0 && said.contains("n1 | here") && said.contains("n2 | here"), "{said}");
    let socket = cluster.path("n1.sock").display().to_string();
    let mut local = Command::new(env!("CARGO_BIN_EXE_cob"));
    local.args(["cobctl", "--socket", &socket, "run", "--", "echo", "here"]);
    let (code, said) = run(local);
    assert!(code == 0 && said.contains("n1 | here"), "{said}");
}
