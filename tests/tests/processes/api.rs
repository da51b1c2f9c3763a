//! The API of a real daemon: the example of a client in Python, and the tool that tries what the description permits.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cob_tests::cluster::Cluster;

use crate::{PATIENCE, cluster};

const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
cobs:
  n1/a: {kind: noop}
  n1/b/c: {kind: noop}
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

fn converged() -> Cluster {
    let mut cluster = cluster(&["n1"]);
    // No order of a test may reboot this machine.
    cluster.configure("n1", "reboot = \"false\"");
    let model = cluster.write_model("model", &[("model.yaml", MODEL)]);
    let generation = cluster.generate(&model);
    cluster.bring_up(generation, PATIENCE);
    cluster
}

/// Runs the client; `None`: there is no Python 3.9 or newer on this machine.
fn client(at: &str, args: &[&str]) -> Option<Output> {
    let program = root().join("examples").join("api").join("client.py");
    Some(python()?.arg(program).args(["--at", at]).args(args).env("USER", "ann").output().expect("python3 runs"))
}

fn python() -> Option<Command> {
    let python = || Command::new("python3");
    let is_there = python().args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]).status();
    if !is_there.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no python3");
        return None;
    }
    let mut python = python();
    python.arg("-B");
    Some(python)
}

/// The number of entries that the client finds in pages of two.
fn in_small_pages(at: &str) -> Option<usize> {
    let count = "import client, sys; print(sum(1 for _ in client.Api(sys.argv[1]).history(page=2)))";
    let client = python()?.args(["-c", count, at]).env("PYTHONPATH", root().join("examples/api")).output();
    let said = String::from_utf8_lossy(&client.expect("python3 runs").stdout).into_owned();
    Some(said.trim().parse().expect("a number"))
}

#[test]
fn the_client_in_python_asks_and_orders_over_both_ways() {
    let cluster = converged();
    let socket = format!("unix:{}", cluster.path("n1.sock").display());
    for at in [socket, format!("tcp://{}", cluster.address("n1"))] {
        let says = |args: &[&str]| -> Option<String> {
            let Output { status, stdout, stderr } = client(&at, args)?;
            let said = String::from_utf8_lossy(&stdout).into_owned();
            assert!(status.success(), "{args:?}: {said}{}", String::from_utf8_lossy(&stderr));
            Some(said)
        };
        let Some(status) = says(&["status"]) else { return };
        assert!(status.starts_with("n1: generation 1, converged\n  n1/a: "), "{status}");
        assert_eq!(says(&["check"]).as_deref(), Some("2 of 2 as wanted, 0 differ, 0 unknown\n"));
        assert_eq!(says(&["check", "n1/b/c"]).as_deref(), Some("1 of 1 as wanted, 0 differ, 0 unknown\n"));
        says(&["pause"]).expect("paused");
        assert!(cluster.status("n1").expect("a status").paused);
        says(&["resume"]).expect("resumed");
        let history = says(&["history"]).expect("a history");
        assert!(history.contains(" pause ") && history.contains("for \"ann\""), "{history}");
        assert_eq!(history.lines().count(), cluster.history("n1").len(), "each entry once");
        assert_eq!(in_small_pages(&at), Some(cluster.history("n1").len()), "each entry once");
        assert!(says(&["watch", "1"]).expect("an event").starts_with("n1: generation 1"));
        let refused = client(&at, &["check", "n1"]).expect("it ran");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.starts_with("refused (400): "), "{said}");
    }
}

#[test]
fn the_alerts_use_metrics_that_a_daemon_has() {
    let cluster = converged();
    let metrics = cluster.http("n1", "GET", "/metrics", "").expect("metrics");
    for line in ["cob_host_converged 1", "cob_generation 1", "cob_objects{phase=\"settled\"} 2", "cob_switch_running 0"]
    {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing in\n{metrics}");
    }
    let journal = metrics.lines().find_map(|line| line.strip_prefix("cob_journal_size_bytes "));
    assert!(journal.is_some_and(|bytes| bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0)), "{metrics}");
    let alerts = root().join("examples").join("monitoring").join("alerts.yml");
    let text = std::fs::read_to_string(&alerts).expect("the alerts");
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
    for expression in text.lines().filter_map(|line| line.trim().strip_prefix("expr: ")) {
        let names = expression.split(|c| !is_of_name(c)).filter(|word| word.starts_with("cob_"));
        for name in names {
            assert!(metrics.contains(&format!("\n{name}")), "{name} is no metric: {expression}");
        }
    }
    let Ok(checked) = Command::new("promtool").args(["check", "rules"]).arg(&alerts).output() else {
        return eprintln!("skipped: no promtool");
    };
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Requests that the description permits get answers that the description has.
#[test]
fn schemathesis_finds_no_answer_without_a_description() {
    let cluster = converged();
    let tool = Command::new(root().join("tests/api/schemathesis.sh"))
        .args([format!("http://{}", cluster.address("n1")), "20".to_owned()])
        .output()
        .expect("the script runs");
    let said = String::from_utf8_lossy(&tool.stdout).into_owned();
    assert!(tool.status.success(), "{said}{}", String::from_utf8_lossy(&tool.stderr));
    eprintln!("{}", said.lines().last().unwrap_or_default());
    assert!(cluster.status("n1").is_some(), "the daemon goes on");
}
