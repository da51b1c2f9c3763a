//! `cobgen verify --switch`, by its command line.

use std::ffi::OsString;
use std::path::Path;

use cobgen::cli::{Terminal, run};
use serde_json::Value;

/// Runs `cobgen`: the exit status, and both outputs.
fn cobgen(args: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut terminal = Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false };
    let line = ["cobgen"].iter().chain(args).map(OsString::from);
    let status = run(line.collect(), &mut terminal);
    (status, String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned())
}

/// Two generations in a depot: a server that requires a database, whose content changes.
fn depot(folder: &Path, on_failure: &str) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    for ms in [1, 2] {
        let text = format!(
            "security: loopback-only\nswitch: {{on_failure: {on_failure}}}\nhosts:\n  \
             n1: {{address: \"tcp://127.0.0.1:7301\"}}\n  n2: {{address: \"tcp://127.0.0.1:7302\"}}\ncobs:\n  \
             n1/db: {{kind: service, content: {{start: \"exec sleep {ms}\"}}}}\n  n2/app: {{kind: noop, requires: [n1/db]}}\n"
        );
        std::fs::write(path("model.yaml"), text).expect("written");
        assert_eq!(cobgen(&["generate", &path("model.yaml"), "--depot", &path("depot")]).0, 0);
    }
    path("depot")
}

#[test]
fn every_fault_of_a_switch_is_tried_and_each_case_is_replayed_by_its_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = depot(folder.path(), "hold");
    let verify = ["verify", "--depot", &depot, "--switch", "-1..latest"];
    let (status, out, err) = cobgen(&[&verify[..], &["--every-fault"]].concat());
    assert_eq!(status, 1, "under `hold` an action that always fails needs a person: {out}{err}");
    let first = out.lines().next().expect("a line");
    assert!(first.contains(" cases: ") && first.contains(" converge, ") && first.ends_with(" need a person"), "{out}");
    assert!(out.contains("\nneeds a person: fail n1/db at step "), "{out}");
    let again = out.lines().find_map(|line| line.trim().strip_prefix("again: cobgen ")).expect("a command");
    let (command, fault) = again.split_once(" --fault ").expect("with its fault");
    let fault = fault.trim_matches('\'');
    let args: Vec<&str> = command.split(' ').chain(["--fault", fault, "--trace"]).collect();
    let (status, replayed, err) = cobgen(&args);
    assert_eq!(status, 1, "{replayed}{err}");
    assert!(replayed.starts_with("1 case: 1 needs a person\n"), "{replayed}");
    assert!(replayed.contains(&format!("needs a person: {fault} (")) && replayed.contains(" failed\n"), "{replayed}");
    let (status, out, _) = cobgen(&[&verify[..], &["--every-fault", "--json"]].concat());
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((status, &report["format"], &report["from"], &report["to"]), (1, &1.into(), &1.into(), &2.into()));
    let finding = &report["findings"][0];
    assert_eq!((&finding["end"], &finding["fault"]), (&"needs-person".into(), &fault.into()), "{finding:#}");
    let ends: u64 = report["ends"].as_object().expect("ends").values().filter_map(Value::as_u64).sum();
    assert_eq!(Some(ends), report["cases"].as_u64());
}

#[test]
fn a_switch_that_rolls_back_is_accepted_and_wrong_requests_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = depot(folder.path(), "rollback");
    let verify = |more: &[&str]| cobgen(&[&["verify", "--depot", &depot][..], more].concat());
    let (status, out, err) = verify(&["--switch", "1..2", "--every-fault"]);
    assert!(status == 0 && out.contains(" converge, ") && out.contains(" roll back\n"), "{out}{err}");
    let (status, out, err) = verify(&["--switch", "0..1", "--every-fault", "--limit", "1"]);
    assert!(status == 0 && out.contains("symmetric cases ran once"), "the first generation: {out}{err}");
    for (args, why) in [
        (&["--switch", "1..2"][..], "--every-fault"),
        (&["--switch", "1"], "write two generations"),
        (&["--switch", "2..1", "--every-fault"], "is not after generation 2"),
        (&["--switch", "1..7", "--every-fault"], "generation 7"),
        (&["--switch", "1..2", "--fault", "kill n1"], "is no fault: write"),
        (&["--switch", "1..2", "--fault", "kill n9 at step 3"], "no host n9 takes part"),
        (&["--switch", "1..2", "--fault", "kill n1 at step 999999"], "take the fault from the output"),
        (&["--every-fault"], "--switch"),
        (&["--switch", "1..2", "--every-fault", "--limit", "soon"], "write a number of runs, or a time"),
        (&["--switch", "1..2", "--every-fault", "--runs", "3"], "cannot be used with"),
    ] {
        let (status, out, err) = verify(args);
        assert!(status == 2 && err.contains(why), "{args:?}: {status} {out}{err}");
    }
}
