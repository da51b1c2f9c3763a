//! The contract test itself: the built-in kinds pass it, and a kind that breaks a rule does not.
//!
//! For a new kind: create a [`Case`], add its folders with [`Case::watching`] and, if it can be outdated, another
//! content with [`Case::other`]. Then call [`holds`].
//!
//! `COB_CONTRACT_KILLS=50 COB_SEED=7 cargo test -p cobd --lib contract` kills each transition more often.

use std::net::TcpListener;
use std::path::Path;

use super::*;
use crate::kinds::testing::{kind, plain_kind};
use crate::run::testing::program;

/// Asserts that all rules hold and exactly the named trials were left out.
pub(in crate::kinds) async fn holds(case: &Case, untried: &[&str]) {
    let scratch = tempfile::tempdir().expect("folder");
    holds_in(case, untried, scratch.path()).await;
}

pub(in crate::kinds) async fn holds_in(case: &Case, untried: &[&str], scratch: &Path) {
    let report = run(&campaign(case), &program(), scratch).await.expect("tried");
    let broken: Vec<_> = report.broken().collect();
    assert!(report.holds && broken.is_empty(), "seed {}: {broken:#?}", report.seed);
    let left_out = report.trials.iter().filter(|t| matches!(t.verdict, Verdict::Untried { .. }));
    let left_out: Vec<_> = left_out.map(|t| t.about.as_str()).collect();
    assert_eq!(left_out, untried, "{:#?}", report.trials);
}

/// The case with at least `COB_CONTRACT_KILLS` kills of each transition, at the moments of `COB_SEED`. A case without
/// kills stays without.
fn campaign(case: &Case) -> Case {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let kills = number("COB_CONTRACT_KILLS").and_then(|kills: u64| u32::try_from(kills).ok()).unwrap_or_default();
    let kills = if case.kills > 0 { case.kills.max(kills) } else { 0 };
    case.clone().kills(kills).seed(number("COB_SEED").unwrap_or(case.seed))
}

/// Whether a contract that takes minutes is left out: without `COB_CONTRACT_KILLS`. Other tests have its transitions.
pub(in crate::kinds) fn takes_minutes(test: &str) -> bool {
    let skipped = std::env::var_os("COB_CONTRACT_KILLS").is_none();
    if skipped {
        eprintln!("skipped: {test} takes minutes; COB_CONTRACT_KILLS=1 plays it");
    }
    skipped
}

/// The broken rule and the observation.
async fn broken(case: &Case) -> (Rule, String) {
    let scratch = tempfile::tempdir().expect("folder");
    let report = run(case, &program(), scratch.path()).await.expect("tried");
    assert!(!report.holds, "{:#?}", report.trials);
    let first = report.broken().next().expect("something is broken").clone();
    let Verdict::Broken { what, help } = first.verdict else { panic!("it is broken") };
    assert!(!help.is_empty());
    (first.rule, what)
}

const STATES: [&str; 3] = ["down", "up", "outdated"];

/// A correct kind with one of its commands replaced.
fn flag(replaced: &'static str, by: &'static str) -> Kind {
    kind("command", &STATES, move |from, to| {
        let key = if from.is_empty() { "check" } else { to };
        if key == replaced || format!("{from}-{to}") == replaced {
            return Some(by);
        }
        Some(match key {
            "check" => {
                r#"f="$COB_STATE_DIR/flag"
                   if [ ! -e "$f" ]; then echo down; elif cmp -s "$f" "$COB_CONTENT"; then echo up; else echo outdated; fi"#
            }
            "up" => r#"f="$COB_STATE_DIR/flag"; cp "$COB_CONTENT" "$f.new"; sleep 0.05; mv "$f.new" "$f""#,
            _ => r#"rm -f "$COB_STATE_DIR/flag" "$COB_STATE_DIR/pid" "$COB_STATE_DIR/flag.new""#,
        })
    })
}

fn case(kind: Kind) -> Case {
    Case::new(kind, r#"{"colour":"green"}"#).other(r#"{"colour":"red"}"#)
}

/// Each transition up writes a new process id.
const UP_AS_IT_IS: &str = r#"f="$COB_STATE_DIR/flag"; cmp -s "$f" "$COB_CONTENT" && exit 0
    cp "$COB_CONTENT" "$f.new"; sleep 0.05; echo $$ > "$COB_STATE_DIR/pid"; mv "$f.new" "$f""#;

#[tokio::test]
async fn a_correct_kind_of_commands_passes() {
    holds(
        &case(flag("up", r#"f="$COB_STATE_DIR/flag"; cp "$COB_CONTENT" "$f.new"; sleep 0.05; mv "$f.new" "$f""#)),
        &[],
    )
    .await;
}

#[tokio::test]
async fn a_value_that_differs_with_each_run_is_allowed() {
    let kind = flag("up", UP_AS_IT_IS);
    holds(&case(kind).kills(3), &[]).await;
}

#[tokio::test]
async fn the_built_in_kinds_pass() {
    let noop = kind("noop", &STATES, |_, _| None);
    holds(
        &Case::new(noop, r#"{"exports":{"port":80}}"#),
        &["outdated -> down", "outdated -> up", "outdated -> down", "outdated -> up"],
    )
    .await;
    holds(&Case::new(plain_kind("wait"), r#"{"ms":20}"#), &[]).await;
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("known");
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    holds(&Case::new(plain_kind("tcp-check"), &format!(r#"{{"address":"{address}"}}"#)), &[]).await;
    holds(&Case::new(plain_kind("http-check"), &format!(r#"{{"url":"http://{address}/"}}"#)), &[]).await;
}

#[tokio::test]
async fn services_with_commands_pass() {
    let folder = tempfile::tempdir().expect("folder");
    let service = || kind("service", &["down", "up", "outdated"], |_, _| None);
    let kept = |extra: &str| format!(r#"{{"settle":"20ms","start":"exec sleep 600"{extra}}}"#);
    let case = Case::new(service(), &kept("")).other(&kept(r#","env":{"V":"2"}"#)).kills(4);
    holds(&case, &[]).await;
    let flag = folder.path().join("runs");
    let shown = flag.display();
    let driven = |extra: &str| {
        format!(
            r#"{{"settle":"20ms","start":"touch {shown}","stop":"rm -f {shown}","status":"test -e {shown}"{extra}}}"#
        )
    };
    let case = Case::new(service(), &driven("")).other(&driven(r#","env":{"V":"2"}"#)).watching(folder.path()).kills(4);
    holds(&case, &[]).await;
}

#[tokio::test]
async fn the_contract_waits_for_the_restart_of_a_process_after_a_departure() {
    // A process that ran before is stopped, and starts again after the departure.
    let folder = tempfile::tempdir().expect("folder");
    let flag = folder.path().join("runs");
    std::fs::write(&flag, "").expect("written");
    let shown = flag.display();
    let content = |value: u8| {
        format!(
            r#"{{"start":"sleep 0.3; touch {shown}","stop":"rm -f {shown}","status":"test -e {shown}","env":{{"V":"{value}"}}}}"#
        )
    };
    let service = kind("service", &STATES, |_, _| None);
    let case = Case::new(service, &content(1)).other(&content(2)).watching(folder.path()).kills(0);
    holds(&case, &[]).await;
    assert!(flag.exists(), "it runs at the end as it did at first");
}

#[tokio::test]
async fn a_state_that_no_transition_leads_to_is_arranged() {
    let folder = tempfile::tempdir().expect("folder");
    let place = folder.path().display().to_string();
    let commands = |from_broken: &str| {
        let mut kind = kind("command", &["down", "up", "broken"], |_, _| None);
        let shell = |text: String| Some(cob_types::Command::Shell(text));
        let look = "if [ ! -e {} ]; then echo down; elif [ -s {} ]; then echo broken; else echo up; fi";
        kind.check.run = shell(look.replace("{}", &format!("{place}/f")));
        for transition in &mut kind.transitions {
            let run = if transition.to == *"down" {
                format!("rm -f {place}/f")
            } else if transition.from == *"broken" {
                from_broken.replace("{}", &format!("{place}/f"))
            } else {
                format!("touch {place}/f")
            };
            transition.run = shell(run);
        }
        Case::new(kind, "{}").watching(folder.path()).kills(2)
    };
    let broken_state = || crate::kinds::testing::state("broken");
    let by_hand = format!("echo x > {place}/f");
    // Without the command these transitions are left out.
    let left_out = ["broken -> down", "broken -> up", "broken -> down", "broken -> up"];
    holds(&commands(": > {}"), &left_out).await;
    holds(&commands(": > {}").arranging(broken_state(), by_hand.as_str()), &[]).await;
    let (rule, what) = broken(&commands("true").arranging(broken_state(), by_hand)).await;
    assert!(rule == Rule::Move && what.contains("broken instead of up"), "{rule:?}: {what}");
    // A command that fails.
    let scratch = tempfile::tempdir().expect("folder");
    let case = commands(": > {}").arranging(broken_state(), "echo no >&2; exit 3");
    let report = run(&case, &program(), scratch.path()).await.expect("tried");
    let why = report.trials.iter().find_map(|t| match &t.verdict {
        Verdict::Untried { why } => Some(why.clone()),
        Verdict::Held | Verdict::Broken { .. } => None,
    });
    assert!(why.as_ref().is_some_and(|why| why.contains("exit status: 3: no")), "{why:?}");
}

#[tokio::test]
async fn the_contract_waits_for_work_that_continues_after_a_kill() {
    // The work continues without the transition, as with systemd. A kill before its start prevents the work.
    let up = r#"cd "$COB_STATE_DIR"; setsid sh -c 'touch busy; sleep 0.2; cp "$COB_CONTENT" flag.new; mv flag.new flag; rm -f busy' &
        wait"#;
    let check = r#"cd "$COB_STATE_DIR" 2>/dev/null; if [ -e busy ]; then echo starting >&2; exit 3; elif [ ! -e flag ]; then echo down
        elif cmp -s flag "$COB_CONTENT"; then echo up; else echo outdated; fi"#;
    let mut kind = flag("up", up);
    kind.check.run = Some(cob_types::Command::Shell(check.to_owned()));
    holds(&case(kind), &[]).await;
}

#[tokio::test]
async fn a_check_that_changes_a_file_is_found() {
    for (by, word) in [
        (r#"date +%N >> "$COB_STATE_DIR/log"; test -e "$COB_STATE_DIR/flag" && echo up || echo down"#, "has appeared"),
        (r#"touch "$COB_STATE_DIR/flag"; echo up"#, "has appeared"),
        (r#"touch ./here; test -e "$COB_STATE_DIR/flag" && echo up || echo down"#, "has appeared"),
    ] {
        let (rule, what) = broken(&case(flag("check", by))).await;
        assert!(rule == Rule::Check && what.contains(word), "{by}: {rule:?}: {what}");
    }
    // Writes the same content again.
    let by =
        r#"f="$COB_STATE_DIR/flag"; if [ -e "$f" ]; then cp "$f" "$f.x"; mv "$f.x" "$f"; echo up; else echo down; fi"#;
    let (rule, what) = broken(&case(flag("check", by))).await;
    assert!(rule == Rule::Check && what.contains("same content"), "{rule:?}: {what}");
}

#[tokio::test]
async fn a_check_with_changing_answers_is_found() {
    let (rule, what) = broken(&case(flag("check", "date +%N; echo down"))).await;
    assert!(rule == Rule::Check && what.contains("two checks"), "{rule:?}: {what}");
    let (rule, what) = broken(&case(flag("check", "exit 3"))).await;
    assert!(rule == Rule::Check && what.contains("not known"), "{rule:?}: {what}");
}

#[tokio::test]
async fn a_probe_sees_changes_outside_the_files_of_the_kind() {
    let folder = tempfile::tempdir().expect("folder");
    let seen = folder.path().join("value");
    let path = seen.clone();
    let check = format!(
        "{}; f=\"$COB_STATE_DIR/flag\"; test -e $f && echo up || echo down",
        format_args!("echo x >> {}", seen.display())
    );
    let mut lying = flag("", "");
    lying.check.run = Some(cob_types::Command::Shell(check));
    let probing = case(lying).probing(move || std::fs::read_to_string(&path).unwrap_or_default());
    let (rule, what) = broken(&probing).await;
    assert!(rule == Rule::Check && what.contains("the probe"), "{rule:?}: {what}");
}

#[tokio::test]
async fn a_transition_that_lies_about_its_state_is_found() {
    let (rule, what) = broken(&case(flag("up", "true"))).await;
    assert!(rule == Rule::Move && what.contains("down instead of up"), "{rule:?}: {what}");
    let (rule, what) = broken(&case(flag("up", "echo no disk; exit 1"))).await;
    assert!(rule == Rule::Move && what.contains("no disk"), "{rule:?}: {what}");
}

#[tokio::test]
async fn a_transition_that_is_not_idempotent_is_found() {
    let adds = r#"cp "$COB_CONTENT" "$COB_STATE_DIR/flag"; echo x >> "$COB_STATE_DIR/log""#;
    let (rule, what) = broken(&case(flag("up", adds))).await;
    assert!(rule == Rule::Twice && what.contains("log has another content"), "{rule:?}: {what}");
    let once = r#"mkdir "$COB_STATE_DIR/made" && cp "$COB_CONTENT" "$COB_STATE_DIR/flag""#;
    let (rule, what) = broken(&case(flag("up", once))).await;
    assert!(rule == Rule::Twice && what.contains("has failed"), "{rule:?}: {what}");
}

#[tokio::test]
async fn a_revert_that_leaves_a_file_or_is_missing_is_found() {
    let leaves = r#"cp "$COB_CONTENT" "$COB_STATE_DIR/flag"; touch "$COB_STATE_DIR/left""#;
    let (rule, what) = broken(&case(flag("up", leaves))).await;
    assert!(rule == Rule::Undo && what.contains("left has appeared"), "{rule:?}: {what}");
    let mut one_way = flag("", "");
    one_way.transitions.retain(|t| t.to == *"up");
    one_way.transitions.iter_mut().for_each(|t| t.run = Some(cob_types::Command::Shell(UP_AS_IT_IS.to_owned())));
    let (rule, what) = broken(&case(one_way)).await;
    assert!(rule == Rule::Undo && what.contains("no transitions lead"), "{rule:?}: {what}");
}

#[tokio::test]
async fn a_transition_that_is_not_safe_against_kills_is_found() {
    // A lock left by a killed attempt, a half-written file taken for a whole file, and a forgotten part.
    for by in [
        r#"mkdir "$COB_STATE_DIR/lock" || exit 1; sleep 0.2; cp "$COB_CONTENT" "$COB_STATE_DIR/flag"; rmdir "$COB_STATE_DIR/lock""#,
        r#"f="$COB_STATE_DIR/flag"; cmp -s $f "$COB_CONTENT" || { cp "$COB_CONTENT" "$f"; sleep 0.2; touch "$COB_STATE_DIR/rest"; }"#,
        r#"f="$COB_STATE_DIR/flag"; cp "$COB_CONTENT" "$f.$$"; sleep 0.2; mv "$f.$$" "$f""#,
    ] {
        let mut kind = flag("up", by);
        for transition in kind.transitions.iter_mut().filter(|t| t.to == *"down") {
            transition.run =
                Some(cob_types::Command::Shell(r#"rm -f "$COB_STATE_DIR/flag" "$COB_STATE_DIR/rest""#.to_owned()));
        }
        let (rule, what) = broken(&case(kind)).await;
        assert!(rule == Rule::Killed, "{by}: {rule:?}: {what}");
    }
}

#[tokio::test]
async fn a_content_that_a_daemon_would_refuse_is_not_tried() {
    let (rule, what) = broken(&Case::new(plain_kind("wait"), "{}")).await;
    assert!(rule == Rule::Accepted && what.contains("needs either `seconds` or `ms`"), "{rule:?}: {what}");
    let (rule, what) = broken(&Case::new(plain_kind("no-such"), "{}")).await;
    assert!(rule == Rule::Accepted && what.contains("no-such"), "{rule:?}: {what}");
}
