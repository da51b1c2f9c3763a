//! Orders about a switch, to real daemons: cancel, discard, limit, canary, and two switches at once.

use std::process::{Command, Output, Stdio};

use cob_tests::cluster::Cluster;
use cob_tests::processes;
use cob_types::GenerationNumber;
use cob_types::status::Phase;

use crate::{CHECK, PATIENCE, QUICK, VERSIONED, cluster};

const BEFORE: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
cobs:
  n1/a: {kind: quick}
  n2/b: {kind: quick}
"#;

/// `n1/slow` is new, and its start waits for a file `go`.
const SLOW: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
kinds:
  slow:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: up, run: ./start.sh, grace: 1s}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
cobs:
  n1/a: {kind: quick}
  n1/slow: {kind: slow}
  n2/b: {kind: quick, requires: [n1/slow]}
"#;

const START: &str = r#"#!/bin/sh
cd "$COB_STATE_DIR"
echo "start $COB_ATTEMPT" >> log
until [ -e go ]; do sleep 0.02; done
echo up > state
"#;

fn slow_file(cluster: &Cluster, name: &str) -> std::path::PathBuf {
    cluster.path("n1/cobs/n1+slow").join(name)
}

/// Both hosts have the first generation, and the second is published.
fn with_slow(mut cluster: Cluster) -> (Cluster, GenerationNumber, GenerationNumber) {
    let before = cluster.write_model("before", &[("model.yaml", BEFORE), QUICK, CHECK]);
    let before = cluster.generate(&before);
    let after = cluster.write_model("after", &[("model.yaml", SLOW), QUICK, CHECK, ("start.sh", START)]);
    cluster.bring_up(before, PATIENCE);
    let after = cluster.generate(&after);
    (cluster, before, after)
}

fn begun(cluster: &Cluster, after: GenerationNumber) {
    cluster.switch_all(after);
    cluster.until(PATIENCE, || slow_file(cluster, "log").exists(), "the slow one has begun");
}

pub(crate) fn order(cluster: &Cluster, host: &str, word: &str, body: &str) -> serde_json::Value {
    let answer = cluster.http(host, "POST", &format!("/v1/{word}"), body).unwrap_or_else(|e| panic!("{word}: {e}"));
    serde_json::from_str(&answer).expect("an answer")
}

pub(crate) fn told(cluster: &Cluster, host: &str, event: &str) -> Vec<String> {
    cluster.history(host).into_iter().filter(|e| e.event == event).map(|e| e.detail).collect()
}

pub(crate) fn cobctl(cluster: &Cluster, hosts: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
    command.arg("cobctl").args(words).arg("--depot").arg(cluster.path("depot"));
    for host in hosts {
        let socket = cluster.path(&format!("{host}.sock"));
        command.arg("--host").arg(format!("{host}=unix:{}", socket.display()));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn run(mut command: Command) -> (i32, String) {
    let Output { status, stdout, stderr } = command.output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().expect("ends by itself"), text(stdout) + &text(stderr))
}

/// The switches in the depot's log.
pub(crate) fn logged(cluster: &Cluster) -> String {
    let mut log = Command::new(env!("CARGO_BIN_EXE_cob"));
    log.args(["cobgen", "log", "--depot"]).arg(cluster.path("depot"));
    let (code, said) = run(log);
    assert_eq!(code, 0, "{said}");
    said
}

#[test]
fn an_interrupted_wait_reports_that_the_switch_continues() {
    let (cluster, _, after) = with_slow(cluster(&["n1", "n2"]));
    let waits =
        cobctl(&cluster, &["n1", "n2"], &["switch", &after.to_string(), "--wait", "60s"]).spawn().expect("runs");
    cluster.until(PATIENCE, || slow_file(&cluster, "log").exists(), "the slow one has begun");
    processes::signal(waits.id(), processes::Signal::INT);
    let ended = waits.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("interrupted: the switch to generation {after} continues")), "{said}");
    std::fs::write(slow_file(&cluster, "go"), "").expect("written");
    cluster.wait_converged(after, PATIENCE);
}

#[test]
fn a_cancel_ends_running_actions_and_survives_a_kill() {
    let (mut cluster, _, after) = with_slow(cluster(&["n1", "n2"]));
    begun(&cluster, after);
    let wrong = cluster.http("n1", "POST", "/v1/cancel", "{\"generation\":9}").expect_err("another generation");
    assert!(wrong.contains("409") && wrong.contains("to generation 2, not to 9"), "{wrong}");
    let refused = cluster.http("n1", "POST", "/v1/call-off", "{\"generation\":2}").expect_err("go was said");
    assert!(refused.contains("409") && refused.contains("cobctl cancel"), "{refused}");
    let done = order(&cluster, "n1", "cancel", "{\"generation\":2,\"who\":\"ann\"}");
    assert_eq!(done["changed"], true, "{done}");
    assert!(done["detail"].as_str().is_some_and(|d| d.contains("1 transition asked to end; held")), "{done}");

    let still = |c: &Cluster| {
        let n1 = c.status("n1");
        n1.is_some_and(|s| s.held == Some(after) && s.paused && s.cobs.iter().all(|c| c.phase != Phase::Moving))
    };
    cluster.until(PATIENCE, || still(&cluster), "it stands still");
    cluster.kill("n1");
    cluster.start("n1");
    cluster.wait_answers("n1");
    cluster.until(PATIENCE, || still(&cluster), "it stands still in its next life too");
    assert_eq!(order(&cluster, "n1", "cancel", "{}")["changed"], false, "once more changes nothing");
    assert_eq!(told(&cluster, "n1", "cancel").len(), 1);
    assert!(told(&cluster, "n1", "cancel")[0].contains("\"ann\""));

    std::fs::write(slow_file(&cluster, "go"), "").expect("written");
    assert_eq!(order(&cluster, "n1", "resume", "{}")["changed"], true);
    cluster.wait_converged(after, PATIENCE);
    // Ended on purpose, it has not used up its only attempt.
    assert_eq!(std::fs::read_to_string(slow_file(&cluster, "log")).expect("read"), "start 1\nstart 1\n");
    cluster.until(
        PATIENCE,
        || told(&cluster, "n1", "settled").last().is_some_and(|d| d == "generation 2"),
        "on record",
    );
    assert_eq!(order(&cluster, "n1", "cancel", "{}")["changed"], false, "nothing is under way any more");
}

#[test]
fn a_cancelled_switch_goes_back_where_the_policy_says_so() {
    let (cluster, before, after) = with_slow(Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &["n1", "n2"]));
    begun(&cluster, after);
    let (code, said) = run(cobctl(&cluster, &["n1", "n2"], &["cancel", "--on-failure", "rollback"]));
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("n1: cancelled (generation 2: 1 transition asked to end; rolling back to generation 1)"),
        "{said}"
    );
    cluster.wait_converged(before, PATIENCE);
    assert!(cluster.status("n1").is_some_and(|s| s.held.is_none() && !s.paused && s.cobs.len() == 1));
    assert!(!slow_file(&cluster, "state").exists());
}

#[test]
fn a_discarded_generation_leaves_no_trace_and_a_limit_is_kept() {
    let (mut cluster, before, after) = with_slow(cluster(&["n1", "n2"]));
    order(&cluster, "n1", "prepare", "{\"generation\":2}");
    assert_eq!(cluster.status("n1").expect("answers").prepared, [after]);
    let folder = cluster.path("n1/generations/2");
    assert!(folder.exists());
    assert_eq!(order(&cluster, "n1", "call-off", "{\"generation\":2}")["changed"], true);
    assert!(!folder.exists() && cluster.status("n1").expect("answers").prepared.is_empty());
    assert_eq!(order(&cluster, "n1", "call-off", "{\"generation\":2}")["changed"], false);
    assert_eq!(told(&cluster, "n1", "call-off").len(), 1);
    let active = cluster.http("n1", "POST", "/v1/call-off", "{\"generation\":1}").expect_err("active");
    assert!(active.contains("409") && cluster.is_converged(before), "{active}");

    assert_eq!(order(&cluster, "n1", "limit", "{\"at_most\":1}")["changed"], true);
    assert_eq!(order(&cluster, "n1", "limit", "{\"at_most\":1}")["changed"], false);
    let none = cluster.http("n1", "POST", "/v1/limit", "{\"at_most\":0}").expect_err("refused");
    assert!(none.contains("400"), "{none}");
    cluster.kill("n1");
    cluster.start("n1");
    cluster.wait_answers("n1");
    assert_eq!(cluster.status("n1").expect("answers").limit, Some(1));
    std::fs::create_dir_all(slow_file(&cluster, "")).expect("made");
    std::fs::write(slow_file(&cluster, "go"), "").expect("written");
    cluster.switch_all(after);
    cluster.wait_converged(after, PATIENCE);
    let (code, said) = run(cobctl(&cluster, &["n1", "n2"], &["limit", "none"]));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("n1: not limited any more") && said.contains("n2: was not limited"), "{said}");
}

fn three(content: &str) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
  n3: {{address: "tcp://127.0.0.1:3"}}
cobs:
  n1/a: {{kind: quick}}
  n2/b: {{kind: quick}}
  n2/of-{content}: {{kind: quick, requires: [n2/b]}}
  n3/c: {{kind: quick, requires: [n2/b]}}
"#
    )
}

const HOSTS: [&str; 3] = ["n1", "n2", "n3"];

/// Three hosts in a first generation; each further generation signs the previous generation as rollback target.
fn cluster_of_three(further: &[&str]) -> Cluster {
    let mut cluster = Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &HOSTS);
    let generate = |cluster: &mut Cluster, content: &str| {
        let model = cluster.write_model(content, &[("model.yaml", &three(content)), QUICK, CHECK]);
        cluster.generate(&model)
    };
    let first = generate(&mut cluster, "first");
    cluster.bring_up(first, PATIENCE);
    for content in further {
        generate(&mut cluster, content);
    }
    cluster
}

/// An order to switch forward never leads back from a newer generation that was faster.
#[test]
fn the_newer_of_two_switch_orders_wins_on_every_host() {
    let cluster = cluster_of_three(&["second", "third"]);
    order(&cluster, "n1", "switch", "{\"generation\":2,\"seen\":1}");
    order(&cluster, "n1", "switch", "{\"generation\":3,\"seen\":1}");
    for host in ["n2", "n3"] {
        order(&cluster, host, "switch", "{\"generation\":3,\"seen\":1}");
        let late = cluster.http(host, "POST", "/v1/switch", "{\"generation\":2,\"seen\":1}").expect_err("overtaken");
        assert!(late.contains("409") && late.contains("was replaced") && late.contains("to switch to 3"), "{late}");
    }
    cluster.wait_converged(GenerationNumber(3), PATIENCE);
    // An operator who has seen the newer generation may go back.
    HOSTS.iter().for_each(|host| drop(order(&cluster, host, "switch", "{\"generation\":2,\"seen\":3}")));
    cluster.wait_converged(GenerationNumber(2), PATIENCE);
}

#[test]
fn two_programs_that_switch_at_the_same_moment_leave_all_hosts_in_the_newer_generation() {
    let cluster = cluster_of_three(&["second", "third"]);
    let older = cobctl(&cluster, &HOSTS, &["switch", "2", "--wait", "60s"]).spawn().expect("runs");
    let newer = cobctl(&cluster, &HOSTS, &["switch", "3", "--wait", "60s"]).spawn().expect("runs");
    let ended = |child: std::process::Child| child.wait_with_output().expect("ends");
    let (older, newer) = (ended(older), ended(newer));
    assert_eq!(newer.status.code(), Some(0), "{newer:?}");
    cluster.wait_converged(GenerationNumber(3), PATIENCE);
    // It may have ended before the newer switch began; else it reports that it was replaced.
    let said = String::from_utf8_lossy(&older.stdout).into_owned() + &String::from_utf8_lossy(&older.stderr);
    let told = ["converged", "superseded", "replaced"].iter().any(|word| said.contains(word));
    assert!(told && matches!(older.status.code(), Some(0 | 1)), "{older:?}");
}

#[test]
fn a_canary_goes_first_and_the_others_only_when_it_is_healthy() {
    let cluster = cluster_of_three(&["second"]);
    let generations = |c: &Cluster| HOSTS.map(|h| c.status(h).and_then(|s| s.generation).map_or(0, |g| g.0));
    let canary = ["switch", "2", "--canary", "n2", "--wait", "60s", "--gate", "300ms", "--check"];
    let with = |check: &str| {
        let words: Vec<&str> = canary.iter().copied().chain([check, "--on-failure", "rollback"]).collect();
        run(cobctl(&cluster, &HOSTS, &words))
    };
    // Only the canary has it when the check runs; the check fails, so the canary rolls back and the others discard it.
    let seen = cluster.path("seen");
    let look = format!("echo $COB_GENERATION $COB_CANARY > {}; exit 3", seen.display());
    let (code, said) = with(&look);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(" failed (") && said.contains("canary: rolling back: n2 to 1"), "{said}");
    assert!(said.contains("rolled back: n2 to 1"), "{said}");
    assert!(cluster.is_converged(GenerationNumber(1)), "with --wait it ends when they are back");
    assert_eq!(std::fs::read_to_string(&seen).expect("the check has run"), "2 n2\n");
    assert_eq!(generations(&cluster), [1, 1, 1]);
    assert!(HOSTS.iter().all(|h| cluster.status(h).is_some_and(|s| s.prepared.is_empty() && s.held.is_none())));
    assert_eq!(told(&cluster, "n2", "only").iter().filter(|d| d.starts_with("for n2 alone")).count(), 2);

    let (code, said) = with("true");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("canary: n2 switches first") && said.contains("converged and healthy"), "{said}");
    assert_eq!(generations(&cluster), [2, 2, 2]);
    assert!(told(&cluster, "n2", "only").last().is_some_and(|d| d.starts_with("for everybody")));

    // Both outcomes are permanently in the depot, and the hosts report the same.
    let said = logged(&cluster);
    assert!(said.contains(": rolled back (only on n2) after ") && !said.contains("on 1 host"), "{said}");
    assert!(said.contains(": converged after ") && said.contains("s on 3 hosts\n"), "{said}");
    let (code, said) = run(cobctl(&cluster, &HOSTS, &["outcomes", "2", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let ends: Vec<_> = told["outcomes"].as_array().expect("a list").iter().map(|o| o["ended"].as_str()).collect();
    assert_eq!((code, ends), (0, vec![Some("rolled-back"), Some("converged")]), "{said}");
    assert_eq!(told["outcomes"][1]["hosts"]["n2"]["from"], 1, "{said}");
}

/// The database stops only while the application servers are stopped, and the load balancer is started only after them:
/// neither moves when an application server changes.
#[test]
fn an_unaffected_host_does_not_switch_with_the_canary() {
    let shop = |app: u32| {
        let (hosts, _) = THREE.split_once("cobs:").expect("it has some");
        let apps = ["n2", "n3"]
            .map(|host| format!("  {host}/app: {{kind: versioned, content: {{v: {app}}}, requires: [n1/db]}}\n"));
        let lb = "  n3/lb: {kind: versioned, content: {v: 1}, after: [n2/app, n3/app]}\n";
        format!("{hosts}cobs:\n  n1/db: {{kind: versioned, content: {{v: 1}}}}\n{}{lb}", apps.concat())
    };
    let mut cluster = cluster(&HOSTS);
    for app in 1..=3 {
        let model = cluster.write_model(&format!("v{app}"), &[("model.yaml", &shop(app)), VERSIONED]);
        let generation = cluster.generate(&model);
        if app == 1 {
            cluster.bring_up(generation, PATIENCE);
        }
    }
    let (code, said) = run(cobctl(&cluster, &HOSTS, &["switch", "2", "--canary", "n2", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("canary: n2 switches first") && !said.contains("switches too"), "{said}");
    assert!(cluster.is_converged(GenerationNumber(2)));
    let (code, said) = run(cobctl(&cluster, &HOSTS, &["switch", "3", "--limit-hosts", "1", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("must switch together"), "{said}");
    assert!(cluster.is_converged(GenerationNumber(3)));
    let starts = |host: &str, name: &str| {
        let of = |e: &cob_types::history::HistoryEntry| e.cob.as_ref().is_some_and(|c| c.name() == name);
        cluster.history(host).iter().filter(|e| e.event == "start" && of(e)).count()
    };
    assert_eq!([starts("n1", "db"), starts("n3", "lb")], [1, 1], "once, in the beginning");
}

#[test]
fn waves_of_hosts_switch_one_after_the_other() {
    let cluster = cluster_of_three(&["second"]);
    let (code, said) = run(cobctl(&cluster, &HOSTS, &["switch", "2", "--limit-hosts", "1", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    assert!(cluster.is_converged(GenerationNumber(2)));
    let at = |host: &str, event: &str| {
        let all = cluster.history(host).into_iter();
        all.filter(|e| e.event == event).map(|e| e.ts_ns).next_back().expect("it happened")
    };
    for pair in HOSTS.windows(2) {
        assert!(at(pair[0], "activate") < at(pair[1], "go"), "{} before {}: {said}", pair[0], pair[1]);
    }
}

/// Its check records its generation, and finds `up` only if the change object came up in that generation.
fn noting(content: u32) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
kinds:
  noting:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {{run: ./noting.sh}}
    transitions:
      - {{from: down, to: up, run: "echo up $COB_GENERATION > $COB_STATE_DIR/state"}}
      - {{from: up, to: down, run: "rm $COB_STATE_DIR/state"}}
cobs:
  n1/same: {{kind: quick}}
  n1/noting: {{kind: noting, content: {{v: {content}}}}}
"#
    )
}

const NOTING: (&str, &str) = (
    "noting.sh",
    "#!/bin/sh\ncd \"$COB_STATE_DIR\"\necho $COB_GENERATION >> looks\ngrep -qx \"up $COB_GENERATION\" state && echo up || echo down\n",
);

#[test]
fn a_prepare_checks_new_and_changed_objects_once() {
    let mut cluster = cluster(&["n1"]);
    for n in 1..=2 {
        let model = cluster.write_model(&format!("v{n}"), &[("model.yaml", &noting(n)), QUICK, CHECK, NOTING]);
        let generation = cluster.generate(&model);
        if n == 1 {
            cluster.start_all();
        }
        let said = cluster.http("n1", "POST", "/v1/prepare", &format!("{{\"generation\": {n}}}")).expect("prepared");
        let news = if n == 1 { "2 new or changed change objects" } else { "1 new or changed change object" };
        assert!(said.contains(&format!("here and verified; {news} looked at")), "{said}");
        cluster.switch("n1", generation);
        cluster.wait_converged(generation, PATIENCE);
        let looks = std::fs::read_to_string(cluster.path("n1/cobs/n1+noting/looks")).expect("looked at");
        let looks: Vec<_> = looks.lines().filter(|line| *line == n.to_string()).collect();
        assert_eq!(looks.len(), 1, "before the activation, and not again");
        let history = cluster.history("n1");
        let found =
            history.iter().rfind(|e| e.event == "check" && e.cob.as_ref().is_some_and(|c| c.name() == "noting"));
        assert_eq!(found.map(|e| e.generation), Some(generation), "the look is the first check");
    }
}

/// On a route of several generations a host receives the switch from other hosts and from two operators at once: a
/// generation that is already fetched when the first step becomes active must not hold it there.
#[test]
fn concurrent_switch_orders_hold_no_host_in_an_intermediate_step() {
    const HOSTS: [&str; 3] = ["n1", "n2", "n3"];
    let mut cluster = cluster(&HOSTS);
    let publish = |cluster: &mut Cluster, n: u64| {
        let waits = HOSTS.map(|host| format!("  {host}/a: {{kind: wait, content: {{ms: {n}}}}}\n")).concat();
        let text = THREE.split_once("cobs:").map_or(String::new(), |(hosts, _)| format!("{hosts}cobs:\n{waits}"));
        let model = cluster.write_model(&format!("v{n}"), &[("model.yaml", &text)]);
        cluster.generate(&model)
    };
    let first = publish(&mut cluster, 1);
    cluster.bring_up(first, PATIENCE);
    for round in 1..=5 {
        let last = (1..=7).map(|step| publish(&mut cluster, round * 7 - 6 + step)).last().expect("published");
        let body = format!("{{\"generation\":{last}}}");
        std::thread::scope(|scope| {
            for host in ["n1", "n2", "n3", "n3"] {
                let (cluster, body) = (&cluster, &body);
                scope.spawn(move || cluster.http(host, "POST", "/v1/switch", body).expect("taken"));
            }
        });
        cluster.wait_converged(last, PATIENCE);
    }
}

const THREE: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
  n3: {address: "tcp://127.0.0.1:3"}
cobs:
  n1/a: {kind: quick}
  n2/b: {kind: quick, requires: [n1/a]}
  n3/c: {kind: quick}
"#;

/// Preparing opens links to new hosts, and reports missing links: here to `n3`, which does not listen at the address in
/// its generation.
#[test]
fn links_to_new_hosts_are_there_before_go_or_told() {
    let mut cluster = cluster(&["n1", "n2", "n3"]);
    let model = cluster.write_model("model", &[("model.yaml", THREE), QUICK, CHECK]);
    let generation = cluster.generate(&model);
    cluster.configure("n3", "listen = \"tcp://127.0.0.1:0\"");
    cluster.start_all();
    // If it is discarded while it waits for its links, it is no success.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cluster.http("n1", "POST", "/v1/prepare", "{\"generation\":1}"));
        let prepared = |c: &Cluster| c.status("n1").is_some_and(|s| s.prepared == [generation]);
        cluster.until(PATIENCE, || prepared(&cluster), "it is here");
        order(&cluster, "n1", "call-off", "{\"generation\":1}");
        let refused = waiting.join().expect("no panic").expect_err("called off");
        assert!(refused.contains("409") && refused.contains("generation 1 was called off"), "{refused}");
    });
    assert!(cluster.status("n1").is_some_and(|n1| n1.peers.is_empty()), "nobody is met any more");

    let unlinked = |host: &str| {
        let said = order(&cluster, host, "prepare", "{\"generation\":1}");
        let hosts = said.get("unlinked").and_then(|u| u.as_object()).cloned().unwrap_or_default();
        hosts.into_iter().map(|(peer, why)| (peer, why.as_str().unwrap_or_default().to_owned())).collect::<Vec<_>>()
    };
    let names = |said: &[(String, String)]| said.iter().map(|(peer, _)| peer.clone()).collect::<Vec<_>>();
    assert_eq!(names(&unlinked("n1")), ["n2", "n3"], "nobody else is prepared");
    assert!(names(&unlinked("n2")).contains(&"n3".to_owned()), "it can be reached by nobody");
    let met = |c: &Cluster| c.status("n1").is_some_and(|n1| n1.peers.iter().any(|p| p.host == "n2" && p.up));
    cluster.until(PATIENCE, || met(&cluster), "n1 and n2 have a link");
    assert_eq!(cluster.status("n1").and_then(|n1| n1.generation).unwrap_or_default(), GenerationNumber(0));

    let (exit, said) = run(cobctl(&cluster, &["n1", "n2", "n3"], &["switch", "1", "--wait", "60s"]));
    assert_eq!(exit, 0, "what needs no link goes on: {said}");
    assert!(said.contains("warning: no link yet between n1 and n3 (n1: "), "{said}");
    assert!(said.contains("n2 and n3") && said.contains("refused"), "{said}");
    assert_eq!(said.matches("n1 and n3").count() + said.matches("n3 and n1").count(), 1, "each pair once: {said}");
    cluster.wait_converged(generation, PATIENCE);

    assert_eq!(names(&unlinked("n1")), ["n3"], "told each time");
}

/// `n2/app` is the same in every version, and must stop when `n1/conf` changes. It does not come up while the file
/// `broken` exists.
fn shared(version: u32) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
kinds:
  conf:
    states: [absent, present, outdated]
    preferred: present
    pre_remove: absent
    check: {{run: "if [ ! -e $COB_STATE_DIR/is ]; then echo absent; elif cmp -s $COB_STATE_DIR/is $COB_CONTENT; then echo present; else echo outdated; fi"}}
    transitions:
      - {{from: absent, to: present, run: "cp $COB_CONTENT $COB_STATE_DIR/is"}}
      - {{from: outdated, to: present, run: "sleep 0.3; cp $COB_CONTENT $COB_STATE_DIR/is"}}
      - {{from: present, to: absent, run: "rm $COB_STATE_DIR/is"}}
      - {{from: outdated, to: absent, run: "rm $COB_STATE_DIR/is"}}
  app:
    states: [down, up]
    preferred: up
    pre_remove: down
    retries: 0
    check: {{run: "cat $COB_STATE_DIR/state 2>/dev/null || echo down"}}
    transitions:
      - {{from: down, to: up, failure: down, run: "sleep 0.2; [ ! -e broken ] && echo up > $COB_STATE_DIR/state"}}
      - {{from: up, to: down, run: "echo down > $COB_STATE_DIR/state"}}
cobs:
  n1/conf: {{kind: conf, content: {{version: {version}}}}}
  n2/app: {{kind: app, requires: [n1/conf]}}
"#
    )
}

#[test]
fn the_outcome_includes_restarts_of_a_host_after_it_converged() {
    let mut cluster = cluster(&["n1", "n2"]);
    for version in 1..=5 {
        let broken = cluster.path("broken").display().to_string();
        let text = shared(version).replace("-e broken", &format!("-e {broken}"));
        let model = cluster.write_model(&format!("model{version}"), &[("model.yaml", &text)]);
        cluster.generate(&model);
    }
    cluster.bring_up(GenerationNumber(1), PATIENCE);
    let hosts = ["n1", "n2"];
    let outcome = |cluster: &Cluster, generation: &str| {
        let (code, said) = run(cobctl(cluster, &hosts, &["outcomes", generation, "--json"]));
        let told: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let newest = told["outcomes"].as_array().and_then(|all| all.last()).cloned().expect("one");
        (code, newest)
    };
    // No change object of n2 differs, so n2 converges at its activation; then n2/app is restarted for n1.
    let (code, said) = run(cobctl(&cluster, &hosts, &["switch", "2", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    let (code, told) = outcome(&cluster, "2");
    assert_eq!((code, told["ended"].as_str()), (0, Some("converged")), "{told}");
    assert_eq!(told["hosts"]["n2"]["cobs"]["n2/app"]["moves"], 2, "{told}");
    let up = cluster.history("n2").into_iter().filter(|e| e.event == "end").map(|e| e.ts_ns).max();
    assert!(told["ended_ns"].as_u64() >= up, "{told}");

    std::fs::write(cluster.path("broken"), "").expect("written");
    let (code, said) = run(cobctl(&cluster, &hosts, &["switch", "3", "--wait", "60s"]));
    assert_eq!(code, 1, "{said}");
    let (code, told) = outcome(&cluster, "3");
    assert_eq!((code, told["ended"].as_str()), (1, Some("failed")), "{told}");
    assert_eq!(told["hosts"]["n2"]["cobs"]["n2/app"]["failed"], true, "{told}");
    assert!(logged(&cluster).contains(": failed"), "{}", logged(&cluster));

    // With the policy all hosts roll back, and neither host has converged in it.
    let (code, said) = run(cobctl(&cluster, &hosts, &["rollback", "2", "--wait", "60s"]));
    assert_eq!(code, 1, "n2/app does not come up under 2 either: {said}");
    std::fs::remove_file(cluster.path("broken")).expect("removed");
    let _ = run(cobctl(&cluster, &hosts, &["retry", "n2/app"]));
    cluster.wait_converged(GenerationNumber(2), PATIENCE);
    let (_, told) = outcome(&cluster, "3");
    let ends: Vec<_> = ["n1", "n2"].iter().map(|host| told["hosts"][host]["ended"].as_str()).collect();
    assert_eq!((told["ended"].as_str(), ends), (Some("rolled-back"), vec![Some("rolled-back"); 2]), "{told}");
    // A later repair is recorded by a command that waits for the generation, even if it has no work left.
    assert!(logged(&cluster).contains(": failed"), "{}", logged(&cluster));
    let (code, said) = run(cobctl(&cluster, &hosts, &["switch", "2", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    assert!(!logged(&cluster).contains(": failed"), "{}", logged(&cluster));
    // And by a command that waits for the next generation, if none has waited for that.
    std::fs::write(cluster.path("broken"), "").expect("written");
    assert_eq!(run(cobctl(&cluster, &hosts, &["switch", "4", "--wait", "60s"])).0, 1);
    assert!(logged(&cluster).contains(": failed on 1 of 2 hosts; failed: n2/app"), "{}", logged(&cluster));
    std::fs::remove_file(cluster.path("broken")).expect("removed");
    let _ = run(cobctl(&cluster, &hosts, &["retry", "n2/app"]));
    cluster.wait_converged(GenerationNumber(4), PATIENCE);
    let (code, said) = run(cobctl(&cluster, &hosts, &["switch", "5", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    assert!(!logged(&cluster).contains(": failed"), "{}", logged(&cluster));
}
