//! `cobctl test-kind`: on kinds of a model, on built-in kinds, and on broken kinds.

use std::fs;
use std::process::{Command, Output, Stdio};

fn test_kind(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_cobctl"))
        .arg("test-kind")
        .args(args)
        .env("COB_CONFIG", "/dev/null")
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

/// A model with a kind whose transition to `up` is given.
fn model(up: &str) -> String {
    format!(
        "security: loopback-only
hosts: {{n1: {{address: \"tcp://127.0.0.1:7077\"}}}}
kinds:
  flag:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    check: {{run: ./check.sh}}
    transitions:
      - {{from: down, to: up, run: '{up}'}}
      - {{from: up, to: down, run: 'rm -f \"$COB_STATE_DIR/f\"'}}
      - {{from: outdated, to: down, run: 'rm -f \"$COB_STATE_DIR/f\"'}}
cobs:
  n1/flag: {{kind: flag, content: {{colour: green}}}}
"
    )
}

const CHECK: &str = "#!/bin/sh
if [ ! -e \"$COB_STATE_DIR/f\" ]; then echo down
elif cmp -s \"$COB_STATE_DIR/f\" \"$COB_CONTENT\"; then echo up
else echo outdated
fi
";

fn folder(up: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("model.yaml"), model(up)).expect("written");
    fs::write(folder.path().join("check.sh"), CHECK).expect("written");
    fs::set_permissions(folder.path().join("check.sh"), fs::Permissions::from_mode(0o755)).expect("set");
    folder
}

const GOOD: &str = r#"cp "$COB_CONTENT" "$COB_STATE_DIR/f.new" && mv "$COB_STATE_DIR/f.new" "$COB_STATE_DIR/f""#;

#[test]
fn a_kind_of_a_model_is_tried_with_its_files() {
    let folder = folder(GOOD);
    let model = folder.path().join("model.yaml").display().to_string();
    let (code, out, err) = test_kind(&["--model", &model, "flag", "--other", r#"{"colour":"red"}"#, "--kills", "2"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.ends_with("flag (command) keeps the contract\n") && !out.contains("not tried"), "{out}");
    let (code, out, _) = test_kind(&["--model", &model, "flag", "--cob", "n1/flag", "--kills", "1"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("not tried: outdated could not be had: no other content is given"), "{out}");
}

#[test]
fn a_broken_kind_exits_with_1_and_gives_an_instruction() {
    let folder = folder(r#"date +%N >> "$COB_STATE_DIR/log"; cp "$COB_CONTENT" "$COB_STATE_DIR/f""#);
    let model = folder.path().join("model.yaml").display().to_string();
    let (code, out, _) = test_kind(&["--model", &model, "flag", "--kills", "0"]);
    assert_eq!(code, Some(1), "{out}");
    for part in [
        "✗ a repeated transition has the same result: down -> up",
        "log has another content",
        "help: let the transition look first",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (code, out, _) = test_kind(&["--model", &model, "flag", "--kills", "0", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &report["holds"], &report["kind"]), (Some(1), &false.into(), &"flag".into()), "{out}");
    let trials = report["trials"].as_array().expect("a list");
    let broken = trials.iter().find(|t| t["verdict"] == "broken").expect("one is broken");
    assert!(broken["rule"] == "twice" && broken["help"].as_str().is_some_and(|h| !h.is_empty()), "{broken}");
}

#[test]
fn built_in_kinds_need_no_model() {
    let (code, out, err) = test_kind(&["wait", "--content", r#"{"ms": 5}"#, "--kills", "2"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let script = r#"{"check": {"run": "test -e $COB_STATE_DIR/x && echo up || echo down"}, "transitions": [
        {"from": "down", "to": "up", "run": "touch $COB_STATE_DIR/x"}, {"from": "up", "to": "down", "run": "rm -f $COB_STATE_DIR/x"},
        {"from": "outdated", "to": "down", "run": "rm -f $COB_STATE_DIR/x"}]}"#;
    let (code, out, err) = test_kind(&["script", "--content", script, "--kills", "1"]);
    // Run twice, `touch` writes again, which is invisible in the file's content.
    assert_eq!(code, Some(0), "{out}{err}");
}

#[test]
fn the_plug_ins_of_the_example_keep_the_contract() {
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples").join("plugin");
    let (folder, place) = (tempfile::tempdir().expect("folder"), tempfile::tempdir().expect("folder"));
    for entry in fs::read_dir(example).expect("listed").flatten() {
        fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("copied");
    }
    let file = folder.path().join("model.yaml");
    let text = fs::read_to_string(&file).expect("read");
    let place = place.path().canonicalize().expect("there").display().to_string();
    fs::write(&file, text.replace("/tmp/cob-example", &place)).expect("written");
    let (motd, notes) = (format!("{place}/motd"), format!("{place}/notes.json"));
    fs::write(&motd, "welcome\n").expect("written");
    fs::write(&notes, "{\"owner\": \"nobody\", \"size\": 3}\n").expect("written");
    let model = file.display().to_string();
    let from_outdated = r#"{"from": "outdated", "to": "up"}, {"from": "outdated", "to": "down"}"#;
    let note = format!(
        r#"{{"run": "./note.py", "states": ["down", "up", "outdated"], "transitions": [{{"from": "down", "to": "up", "revert": true}}, {from_outdated}], "config": {{"file": "PLACE/notes.json", "key": "owner", "value": "others"}}}}"#
    );
    for (cob, more) in [
        ("n1/motd", &["--other", r#"{"run": "./motd.sh", "config": {"file": "PLACE/motd", "line": "another"}}"#][..]),
        ("n1/note", &["--other", &note][..]),
    ] {
        let more: Vec<String> = more.iter().map(|word| word.replace("PLACE", &place)).collect();
        let mut args = vec!["--model", &model, "plugin", "--cob", cob, "--watch", &place, "--kills", "3"];
        args.extend(more.iter().map(String::as_str));
        let (code, out, err) = test_kind(&args);
        assert_eq!(code, Some(0), "{cob}: {out}{err}");
        assert!(!out.contains("not tried"), "{cob}: {out}");
    }
    // Both have restored the original content.
    assert_eq!(fs::read_to_string(motd).expect("read"), "welcome\n");
    assert_eq!(fs::read_to_string(notes).expect("read"), "{\"owner\": \"nobody\", \"size\": 3}\n");
}

#[test]
fn a_kind_that_cannot_be_tried_exits_with_2() {
    let folder = folder(GOOD);
    let model = folder.path().join("model.yaml").display().to_string();
    let full = folder.path().display().to_string();
    for (args, word) in [
        (&["flag"][..], "unknown kind `flag`"),
        (&["wait"], "needs either"),
        (&["wait", "--content", "ms: 5"], "is not JSON"),
        (&["--model", &model, "flog"], "no change object is of the kind flog"),
        (&["--model", &model, "flag", "--cob", "n1/flog"], "n1/flog is not a change object"),
        (&["--model", &model, "flag", "--scratch", &full], "is not empty"),
        (&["--model", &model, "flag", "--watch", "/nonexistent/x"], "/nonexistent/x"),
    ] {
        let (code, out, err) = test_kind(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(word), "{args:?}: {err}");
    }
}

#[test]
fn a_state_that_no_transition_leads_to_is_arranged_by_a_command() {
    let folder = folder(GOOD);
    let text = model(GOOD).replace("states: [down, up, outdated]", "states: [down, up, outdated, empty]").replace(
        "      - {from: up, to: down",
        "      - {from: empty, to: down, run: 'rm -f \"$COB_STATE_DIR/f\"'}\n      - {from: up, to: down",
    );
    fs::write(folder.path().join("model.yaml"), text).expect("written");
    let check = CHECK.replace("elif cmp", "elif [ ! -s \"$COB_STATE_DIR/f\" ]; then echo empty\nelif cmp");
    fs::write(folder.path().join("check.sh"), check).expect("written");
    let model = folder.path().join("model.yaml").display().to_string();
    let scratch = folder.path().join("scratch").display().to_string();
    let with = |arranged: &str| {
        let _ = fs::remove_dir_all(&scratch);
        test_kind(&["--model", &model, "flag", "--kills", "1", "--scratch", &scratch, "--arrange", arranged])
    };
    let (code, out, err) = with(&format!("empty=: > {scratch}/run/state/cobs/n1+flag/f"));
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("✓ a transition ends in its state: empty -> down"), "{out}");
    let (code, _, err) = with("nowhere=true");
    assert!(code == Some(2) && err.contains("flag has no state nowhere; it has down, up"), "{err}");
    let (code, _, err) = with("empty");
    assert!(code == Some(2) && err.contains("write STATE=COMMAND"), "{err}");
}
