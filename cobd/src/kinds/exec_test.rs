//! Commands that are run if their work is not done yet.

use std::fs;
use std::path::Path;

use cob_types::Kind;
use serde_json::{Value, json};

use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};
use crate::kinds::{Context, Outcome};

fn kind() -> Kind {
    let mut kind = Exec::KIND.kind();
    kind.check.timeout_ms = 10_000;
    kind.transitions.iter_mut().for_each(|transition| transition.timeout_ms = 20_000);
    kind
}

fn context(bench: &mut Bench, content: &Value) -> Context {
    bench.context(&kind(), &canonical::json(content))
}

async fn goes(bench: &mut Bench, context: &Context, from: &str, to: &str) {
    assert_eq!(bench.transition(context, from, to).await, Outcome::done(), "{from} -> {to}");
}

/// Appends a letter to a file of the folder: the file shows how often it ran.
fn append(folder: &Path, letter: &str) -> String {
    format!("printf {letter} >> {}/log", folder.display())
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

#[tokio::test]
async fn the_exec_kind_keeps_the_contract() {
    let host = tempfile::tempdir().expect("a folder");
    let file = host.path().join("made");
    let content = |text: &str| {
        let (command, undo) = (format!("echo {text} > {}", file.display()), format!("rm -f {}", file.display()));
        canonical::json(&json!({"command": command, "undo": undo}))
    };
    let case = Case::new(kind(), &content("one")).other(&content("two")).watching(host.path()).kills(4);
    holds(&case, &[]).await;
    let with = json!({
        "command": ["touch", file], "creates": file, "undo": ["rm", "-f", file],
    });
    let case = Case::new(kind(), &canonical::json(&with)).watching(host.path()).kills(4);
    // Without another content it is never outdated.
    let outdated = ["outdated -> present", "outdated -> absent"];
    holds(&case, &[outdated, outdated].concat()).await;
}

#[tokio::test]
async fn a_command_without_conditions_runs_once_and_after_each_change() {
    let host = tempfile::tempdir().expect("a folder");
    let mut bench = Bench::new();
    let one = context(&mut bench, &json!({"command": append(host.path(), "a")}));
    let found = bench.check(&one).await;
    assert_eq!(found.state.expect("known").as_str(), "absent");
    assert_eq!(found.difference, "the command would run: it has not run yet");
    for _ in 0..2 {
        goes(&mut bench, &one, "absent", "present").await;
        assert_eq!((bench.state(&one).await.as_str(), log(host.path()).as_str()), ("present", "a"));
    }
    // A dependency that it `restarts_on` has changed.
    goes(&mut bench, &one, "outdated", "present").await;
    assert_eq!(log(host.path()), "aa");
    let two = context(&mut bench, &json!({"command": append(host.path(), "b")}));
    let found = bench.check(&two).await;
    assert_eq!(found.state.expect("known").as_str(), "outdated");
    assert_eq!(found.difference, "the command would run: it was changed");
    goes(&mut bench, &two, "outdated", "present").await;
    assert_eq!((bench.state(&two).await.as_str(), log(host.path()).as_str()), ("present", "aab"));
    goes(&mut bench, &two, "present", "absent").await;
    assert_eq!((bench.state(&two).await.as_str(), log(host.path()).as_str()), ("absent", "aab"));
}

#[tokio::test]
async fn conditions_decide_whether_the_command_runs() {
    let host = tempfile::tempdir().expect("a folder");
    let mark = host.path().join("mark");
    let test = format!("test -e {}", mark.display());
    // The key, its value, and whether the mark means that the work is done.
    let rows = [
        ("creates", json!(mark), true),
        ("removes", json!(mark), false),
        ("unless", json!(test), true),
        ("only_if", json!(test), false),
    ];
    for (key, value, done_with_mark) in rows {
        let mut bench = Bench::new();
        let run = if done_with_mark { "touch" } else { "rm" };
        let work = format!("{}; {run} {}", append(host.path(), "x"), mark.display());
        let undo = append(host.path(), "u");
        let exec = context(&mut bench, &json!({"command": work, key: value, "undo": undo}));
        let arrange = |is_done: bool| {
            let _ = fs::remove_file(host.path().join("log"));
            if is_done == done_with_mark { fs::write(&mark, "") } else { fs::remove_file(&mark).or(Ok(())) }
        };
        // The work is done already: the command does not run, and nothing is taken back.
        arrange(true).expect("arranged");
        assert!(bench.check(&exec).await.difference.starts_with("the command would not run: "), "{key}");
        goes(&mut bench, &exec, "absent", "present").await;
        assert_eq!(bench.state(&exec).await, "present", "{key}");
        goes(&mut bench, &exec, "present", "absent").await;
        assert_eq!(log(host.path()), "", "{key}");
        // There is work.
        arrange(false).expect("arranged");
        assert!(bench.check(&exec).await.difference.starts_with("the command would run: "), "{key}");
        goes(&mut bench, &exec, "absent", "present").await;
        assert_eq!((bench.state(&exec).await.as_str(), log(host.path()).as_str()), ("present", "x"), "{key}");
        // The work is undone by others: that is drift.
        arrange(false).expect("arranged");
        assert_eq!(bench.state(&exec).await, "outdated", "{key}");
        goes(&mut bench, &exec, "outdated", "present").await;
        goes(&mut bench, &exec, "present", "absent").await;
        assert_eq!(log(host.path()), "xu", "{key}");
    }
}

#[tokio::test]
async fn failures_are_named() {
    let host = tempfile::tempdir().expect("a folder");
    let missing = host.path().join("missing");
    let mut bench = Bench::new();
    let rows = [
        (json!({"command": "exit 3"}), "the command has failed: exit status 3"),
        (json!({"command": "kill -9 $$"}), "the command has failed: ended by signal 9 (SIGKILL)"),
        (json!({"command": ["/no/such/program"]}), "/no/such/program: No such file or directory"),
        (json!({"command": "true", "dir": missing}), "the working folder"),
        (json!({"command": "true", "user": "nobody-here"}), "there is no user nobody-here on this host"),
        (json!({"command": "true", "creates": missing}), "the command has succeeded, but its work is not done"),
        (json!({"command": "true", "unless": "no-such-program"}), "`unless` can't be run: exit status 127"),
    ];
    for (content, why) in rows {
        let exec = context(&mut bench, &content);
        let failed = reason(bench.transition(&exec, "absent", "present").await);
        assert!(failed.contains(why), "{content}: {failed}");
    }
    // A failed command is tried again, also after a restart of the daemon.
    let mut bench = Bench::new();
    let gate = host.path().join("gate");
    let exec = context(&mut bench, &json!({"command": format!("test -e {}", gate.display())}));
    assert!(!reason(bench.transition(&exec, "absent", "present").await).is_empty());
    let found = bench.check(&exec).await;
    assert_eq!(found.difference, "the command would run: its last run has failed or was interrupted");
    fs::write(&gate, "").expect("written");
    goes(&mut bench, &exec, "outdated", "present").await;
    assert_eq!(bench.state(&exec).await, "present");
    // A run that ended after its work is noted as such, and not repeated.
    let (mut bench, mark) = (Bench::new(), host.path().join("mark"));
    let command = format!("{}; touch {}; exit 3", append(host.path(), "x"), mark.display());
    let exec = context(&mut bench, &json!({"command": command, "creates": mark}));
    assert!(!reason(bench.transition(&exec, "absent", "present").await).is_empty());
    let found = bench.check(&exec).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    assert_eq!(found.difference, "the last run of the command has failed or was interrupted");
    goes(&mut bench, &exec, "outdated", "present").await;
    assert_eq!((bench.state(&exec).await.as_str(), log(host.path()).as_str()), ("present", "x"));
    // A condition that can't be evaluated makes the state unknown, and before the first run the difference says so.
    let exec = context(&mut bench, &json!({"command": "true", "only_if": ["/no/such/program"]}));
    assert!(bench.check(&exec).await.state.is_err());
    let mut bench = Bench::new();
    let exec = context(&mut bench, &json!({"command": "true", "only_if": ["/no/such/program"]}));
    let found = bench.check(&exec).await;
    assert!(found.difference.starts_with("it can't be told whether the command would run: "), "{}", found.difference);
}

#[tokio::test]
async fn commands_have_their_user_folder_and_variables() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes root to run commands as another user");
        return;
    }
    let host = tempfile::tempdir().expect("a folder");
    let out = host.path().join("out");
    fs::write(&out, "").expect("written");
    let open = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    };
    open(host.path(), 0o755);
    open(&out, 0o666);
    let mut bench = Bench::new();
    let command = format!("echo \"$(id -un):$PWD:$WORD:$HOME\" > {}", out.display());
    let content = json!({"command": command, "user": "nobody", "dir": "/usr", "env": {"WORD": "a b"}});
    let exec = context(&mut bench, &content);
    goes(&mut bench, &exec, "absent", "present").await;
    let said = fs::read_to_string(&out).expect("read");
    assert!(said.starts_with("nobody:/usr:a b:/"), "{said}");
}

#[tokio::test]
async fn the_command_and_its_undo_receive_the_earlier_value() {
    let host = tempfile::tempdir().expect("a folder");
    let file = host.path().join("value");
    let (file_text, log) = (file.display(), append(host.path(), "s"));
    let content = |value: &str| {
        json!({
            "save": format!("{log}; cat {file_text}"),
            "command": format!("echo \"{value} after $COB_SAVED\" > {file_text}"),
            "undo": format!(
                "if [ $COB_SAVED_STATUS = 0 ]; then echo \"$COB_SAVED\" > {file_text}; else rm -f {file_text}; fi"
            ),
        })
    };
    let mut bench = Bench::new();
    let (one, two) = (context(&mut bench, &content("one")), context(&mut bench, &content("two")));
    for earlier in [Some("first line\n\nlast"), None] {
        match earlier {
            Some(text) => fs::write(&file, format!("{text}\n")).expect("written"),
            None => fs::remove_file(&file).expect("removed"),
        }
        let _ = fs::remove_file(host.path().join("log"));
        goes(&mut bench, &one, "absent", "present").await;
        goes(&mut bench, &two, "outdated", "present").await;
        let expected = format!("two after {}\n", earlier.unwrap_or_default());
        assert_eq!(fs::read_to_string(&file).expect("read"), expected);
        goes(&mut bench, &two, "present", "absent").await;
        assert_eq!(fs::read_to_string(&file).ok(), earlier.map(|text| format!("{text}\n")));
        assert_eq!(self::log(host.path()), "s", "`save` runs once");
    }
    // A value that can't be kept is refused before any change.
    for (save, why) in
        [("printf '\\377'", "no text"), ("no-such-program", "can't be run"), ("yes | head -c 70000", "longer")]
    {
        let mut bench = Bench::new();
        let exec = context(&mut bench, &json!({"command": append(host.path(), "x"), "save": save}));
        let failed = reason(bench.transition(&exec, "absent", "present").await);
        assert!(failed.contains(why), "{failed}");
        assert_eq!((log_of(host.path(), 'x'), bench.state(&exec).await.as_str()), (0, "absent"));
    }
}

fn log_of(folder: &Path, letter: char) -> usize {
    log(folder).matches(letter).count()
}

#[tokio::test]
async fn a_command_runs_after_the_departure() {
    let host = tempfile::tempdir().expect("a folder");
    let gate = host.path().join("gate");
    let after = format!(
        "echo \"$COB_ID:$COB_SAVED:$PWD\" >> {0}/after; test -e {1} || {{ echo no gate; exit 3; }}",
        host.path().display(),
        gate.display()
    );
    let content = json!({"command": append(host.path(), "c"), "undo": append(host.path(), "u"), "save": "echo old",
        "after_departure": after});
    let mut bench = Bench::new();
    let mut exec = context(&mut bench, &content);
    // Without a departure, it does not run.
    goes(&mut bench, &exec, "absent", "present").await;
    goes(&mut bench, &exec, "present", "absent").await;
    assert!(bench.kinds.forget(&exec.cob.id).is_empty());
    goes(&mut bench, &exec, "absent", "present").await;
    exec.leaving = true;
    for _ in 0..2 {
        goes(&mut bench, &exec, "present", "absent").await;
    }
    assert_eq!(log(host.path()), "cucu");
    let said = || fs::read_to_string(host.path().join("after")).unwrap_or_default();
    assert_eq!(said(), "");
    // A new daemon finds the work. It fails, is repeated, and succeeds.
    bench.return_of_the_daemon();
    let mut departures = bench.kinds.return_to(&std::collections::BTreeSet::from([exec.cob.id.clone()]));
    assert!(departures.is_empty(), "it is in the model");
    departures = bench.kinds.return_to(&std::collections::BTreeSet::new());
    assert_eq!(departures.len(), 1);
    crate::run::testing::until("a failure", || departures[0].progress().failures > 0).await;
    let failed = departures[0].progress();
    assert_eq!(failed.error, "`after_departure` has failed: exit status 3: no gate");
    fs::write(&gate, "").expect("written");
    departures[0].retry();
    assert!(departures[0].settled().await.done);
    assert!(said().lines().all(|line| line == "n1/a/b:old:/") && said().lines().count() >= 2, "{}", said());
    assert!(bench.kinds.forget(&exec.cob.id).is_empty(), "it runs once");
    // The change object comes back before it runs.
    exec.leaving = false;
    goes(&mut bench, &exec, "absent", "present").await;
    exec.leaving = true;
    goes(&mut bench, &exec, "present", "absent").await;
    bench.kinds.is_here(&exec.cob.id, &exec.kind);
    assert!(bench.kinds.forget(&exec.cob.id).is_empty());
}
