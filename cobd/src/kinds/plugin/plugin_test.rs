//! Plug-ins that follow the protocol, and plug-ins that violate it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use cob_types::{Command, Kind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, kind, reason};
use crate::kinds::{Context, Outcome};

/// A kind whose executable is a shell script; `$call` and `$message` contain the request.
fn plugin(bench: &Bench, script: &str) -> Kind {
    let path = bench.path("plugin.sh");
    let cut = r#"message=$(cat); call=$(printf '%s' "$message" | sed -n 's/.*"call":"\([a-z]*\)".*/\1/p')"#;
    fs::write(&path, format!("#!/bin/sh\n{cut}\n{script}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    let run = Some(Command::Argv(vec![path.display().to_string()]));
    let mut kind = kind("plugin", &["down", "up"], |_, _| None);
    kind.check.run.clone_from(&run);
    kind.transitions.iter_mut().for_each(|t| t.run.clone_from(&run));
    kind
}

const DESCRIBED: &str =
    r#"if [ $call = describe ]; then echo '{"cob_plugin":1,"states":["down","up","more"]}'; exit; fi"#;

fn context(bench: &Bench, script: &str) -> Context {
    bench.context(&plugin(bench, script), r#"{"config":{"x":[1,"two"]},"run":["x"]}"#)
}

#[tokio::test]
async fn a_plug_in_receives_its_change_object_and_its_replies_count() {
    let mut bench = Bench::new();
    let told = bench.path("told");
    let script = format!(
        r#"printf '%s\n' "$message" >> {}; {DESCRIBED}
           case $call in check) echo '{{"cob_plugin":1,"state":"up","difference":"a\u001bb","exports":{{"port":80}}}}';;
           *) echo to people >&2; echo '{{"cob_plugin":1,"done":true,"saved":"before","exports":{{"port":81}}}}';; esac"#,
        told.display()
    );
    let context = context(&bench, &script);
    bench.kinds.accept(&context.kind).expect("fine");
    let (outcome, lines) = bench.transition_with_lines(&context, "down", "up").await;
    let exports = cob_types::message::Values::from([("port".to_owned(), "81".to_owned())]);
    assert_eq!(outcome, Outcome::Done { exports, saved: Some("before".to_owned()) });
    assert!(lines.contains("to people"), "{lines}");
    // The direct reverse transition gets the saved data.
    assert!(matches!(bench.transition(&context, "up", "down").await, Outcome::Done { .. }));
    let said: Vec<serde_json::Value> =
        fs::read_to_string(&told).expect("told").lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let dir = bench.path("cobs/n1+a+b").display().to_string();
    let mut expected = json!({
        "cob_plugin": 1, "call": "transition", "cob": "n1/a/b", "host": "n1", "generation": 4, "state_dir": dir,
        "config": {"x": [1, "two"]}, "imports": {}, "from": "down", "to": "up", "attempt": 1, "saved": null,
    });
    assert_eq!(said[0], expected);
    (expected["from"], expected["to"], expected["saved"]) = (json!("up"), json!("down"), json!("before"));
    assert_eq!(said[1], expected);
    fs::remove_file(&told).expect("removed");
    fs::write(&told, "").expect("written");
    let found = bench.check(&context).await;
    assert_eq!((found.state.expect("known").as_str(), found.exports["port"].as_str()), ("up", "80"));
    assert_eq!(found.difference, "a\\u{1b}b");
}

#[tokio::test]
async fn a_secret_reaches_only_the_plug_in_and_is_never_shown() {
    let mut bench = Bench::new();
    let key = cob_trust::SecretKey::from_seed(&[7; 32]);
    bench.with_key(&key);
    let id = cob_types::secret::SecretId([3; 16]);
    let sealed = cob_trust::seal::seal_for_bundle(&[9; 32], &[key.public()], id, b"correct horse").expect("sealed");
    let told = bench.path("told");
    let script = format!(
        r#"printf '%s\n' "$message" >> {}; {DESCRIBED}
           case $call in check) echo '{{"cob_plugin":1,"state":"up","difference":"is correct horse"}}';;
           *) echo 'uses correct horse' >&2; echo '{{"cob_plugin":1,"done":true,"saved":"was correct horse"}}';; esac"#,
        told.display()
    );
    let kind = plugin(&bench, &script);
    let content = format!(r#"{{"config":{{"password":"{}"}},"run":["x"]}}"#, id.mark());
    bench.kinds.accept(&kind).expect("fine");
    let mut context = bench.context(&kind, &content);
    context.secrets.insert(id, sealed);
    let (outcome, lines) = bench.transition_with_lines(&context, "down", "up").await;
    let Outcome::Done { saved: Some(saved), .. } = outcome else { panic!("{outcome:?}") };
    let message: serde_json::Value =
        serde_json::from_str(fs::read_to_string(&told).expect("told").lines().next().expect("a call")).expect("JSON");
    assert_eq!(message["config"]["password"], "correct horse");
    let found = bench.check(&context).await;
    for text in [&lines, &saved, &found.difference] {
        assert!(text.contains("[secret]") && !text.contains("horse"), "{text}");
    }
}

#[tokio::test]
async fn a_transition_with_a_revert_is_reverted_by_the_plug_in() {
    let mut bench = Bench::new();
    let script =
        format!(r#"{DESCRIBED}; echo "{{\"cob_plugin\":1,\"done\":true,\"exports\":{{\"call\":\"$call\"}}}}""#);
    let mut kind = plugin(&bench, &script);
    kind.transitions[0].revert.clone_from(&kind.check.run);
    assert!(kind.transitions[0].from == *"down");
    let context = bench.context(&kind, "{}");
    for (from, to, call) in [("down", "up", "\"transition\""), ("up", "down", "\"revert\"")] {
        let Outcome::Done { exports, .. } = bench.transition(&context, from, to).await else { panic!("not done") };
        assert_eq!(exports["call"], call);
    }
}

#[tokio::test]
async fn a_background_process_of_a_plug_in_is_not_waited_for() {
    let mut bench = Bench::new();
    let left = bench.path("left");
    let script = format!(
        r#"sleep 60 & echo $! >> {}; {DESCRIBED}
           case $call in check) echo '{{"cob_plugin":1,"state":"up"}}';; *) echo '{{"cob_plugin":1,"done":true}}';; esac"#,
        left.display()
    );
    let context = context(&bench, &script);
    fs::write(&left, "").expect("written");
    let begun = Instant::now();
    assert_eq!(bench.transition(&context, "down", "up").await, Outcome::done());
    assert_eq!(bench.state(&context).await, "up");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let numbers = fs::read_to_string(&left).expect("read");
    let numbers: Vec<Pid> = numbers.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect();
    assert_eq!(numbers.len(), 3, "a move, and a check with its description");
    numbers.iter().for_each(|pid| _ = kill_process(*pid, Signal::KILL));
}

#[tokio::test]
async fn hostile_replies_are_failures_with_a_reason() {
    let mut bench = Bench::new();
    for (script, word) in [
        ("true", "it sent no reply"),
        ("echo hello", "not a single JSON object"),
        ("echo '[1]'", "no JSON object"),
        (r#"echo '{"cob_plugin":1,"done":true}{"cob_plugin":1}'"#, "not a single JSON object"),
        (r#"echo '{"cob_plugin":2,"done":true}'"#, "speaks version 2 of the protocol; this daemon speaks 1"),
        (r#"echo '{"cob_plugin":"1","done":true}'"#, "speaks version \"1\""),
        (r#"echo '{"done":true}'"#, "lacks \"cob_plugin\": 1"),
        (r#"echo '{"cob_plugin":1,"done":false}'"#, "it is not done, without a reason"),
        (r#"echo '{"cob_plugin":1,"state":"up"}'"#, "lacks \"done\""),
        (r#"echo '{"cob_plugin":1,"done":true,"error":"no disk"}'"#, "no disk"),
        (r#"echo '{"cob_plugin":1,"done":true,"colour":"red"}'"#, "unknown field `colour`"),
        (r#"echo '{"cob_plugin":1,"done":true}'; exit 3"#, "exit status 3; its reply does not count"),
        (r#"echo '{"cob_plugin":1,"done":true}'; kill -KILL $$"#, "ended by a signal; its reply does not count"),
        (r#"printf '\377\376'"#, "not UTF-8"),
        ("yes", "longer than 49152 bytes"),
        ("head -c 50000 /dev/zero; sleep 600", "longer than 49152 bytes"),
        (
            r#"printf '{"cob_plugin":1,"done":true,"saved":"'; head -c 45000 /dev/zero | tr '\0' '"' | sed 's/"/\\"/g'; echo '"}'"#,
            "longer than",
        ),
        ("exec /nonexistent/x", "it sent no reply (exit status 127)"),
    ] {
        let context = context(&bench, script);
        let why = reason(bench.transition(&context, "down", "up").await);
        assert!(why.contains(word), "{script}: {why}");
    }
    for (script, word) in [
        ("echo '{\"cob_plugin\":1,\"state\":\"up\"}'".to_owned(), "its reply to describe lacks \"states\""),
        ("echo '{\"cob_plugin\":1,\"states\":[\"up\"]}'".to_owned(), "does not know the state down; it has up"),
        (
            format!("{DESCRIBED}; echo '{{\"cob_plugin\":1,\"state\":\"more\"}}'"),
            "which its kind does not have (down, up)",
        ),
        (format!("{DESCRIBED}; echo '{{\"cob_plugin\":1,\"error\":\"no config\"}}'"), "no config"),
    ] {
        let context = context(&bench, &script);
        let why = bench.check(&context).await.state.expect_err(&script);
        assert!(why.contains(word), "{script}: {why}");
    }
    let mut kind = plugin(&bench, "true");
    kind.check.run = Some(Command::Argv(vec!["/nonexistent/plugin".to_owned()]));
    let context = bench.context(&kind, "{}");
    let why = bench.check(&context).await.state.expect_err("not there");
    assert!(why.contains("/nonexistent/plugin: not found"), "{why}");
}

#[tokio::test]
async fn a_correct_plug_in_keeps_the_contract() {
    let bench = Bench::new();
    let script = r#"dir=$(printf '%s' "$message" | sed -n 's/.*"state_dir":"\([^"]*\)".*/\1/p')
        to=$(printf '%s' "$message" | sed -n 's/.*"to":"\([a-z]*\)".*/\1/p')
        case $call in
        describe) echo '{"cob_plugin":1,"states":["down","up"]}';;
        check) s=down; [ ! -e "$dir/on" ] || s=up; echo "{\"cob_plugin\":1,\"state\":\"$s\"}";;
        *) if [ $to = up ]; then sleep 0.05; touch "$dir/on"; else rm -f "$dir/on"; fi; echo '{"cob_plugin":1,"done":true}';;
        esac"#;
    holds(&Case::new(plugin(&bench, script), "{\"run\":\"x\"}").kills(4), &[]).await;
}
