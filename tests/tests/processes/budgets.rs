//! Budgets with real daemons: rollouts disturb one change object at a time, even across kills, and stop at failures.

use std::fs;

use cob_tests::cluster::Cluster;
use cob_types::history::HistoryEntry;
use cob_types::status::Wait;

use crate::kills::pause;
use crate::words::{cobctl, run};
use crate::{PATIENCE, cluster};

const HOSTS: [&str; 3] = ["n1", "n2", "n3"];

/// Three servers whose configuration has this version; while the file `broken` exists, no server starts.
fn model(version: &str, folder: &str, at_most: u32) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
  n3: {{address: "tcp://127.0.0.1:3"}}
budgets: {{app: {{at_most: {at_most}, host: n3}}}}
kinds:
  server:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    retries: 0
    retry_delay: 10ms
    check: {{run: "cat {folder}/$COB_HOST 2>/dev/null || echo down"}}
    transitions:
      - {{from: down, to: up, failure: down, run: "sleep 0.1; test ! -e {folder}/broken && echo up > {folder}/$COB_HOST"}}
      - {{from: up, to: down, run: "sleep 0.1; echo down > {folder}/$COB_HOST"}}
      - {{from: outdated, to: down, run: "sleep 0.1; echo down > {folder}/$COB_HOST"}}
services:
  app:
    cobs:
      config: {{kind: noop, content: {{exports: {{version: "{version}"}}}}}}
      server: {{kind: server, restarts_on: [config], budget: app}}
clusters: {{c: {{services: {{app: [n1, n2, n3]}}}}}}
"#
    )
}

struct Rolling {
    cluster: Cluster,
    folder: String,
    at_most: u32,
}

impl Rolling {
    /// With a budget of this many tokens.
    fn new(at_most: u32) -> Self {
        let cluster = cluster(&HOSTS);
        let folder = cluster.path("states");
        std::fs::create_dir(&folder).expect("a folder");
        let folder = folder.display().to_string();
        Self { cluster, folder, at_most }
    }

    fn switch(&mut self, version: &str) -> cob_types::GenerationNumber {
        let text = model(version, &self.folder, self.at_most);
        let model = self.cluster.write_model("model", &[("model.yaml", &text)]);
        let generation = self.cluster.generate(&model);
        if version == "1" {
            self.cluster.start_all();
        }
        self.cluster.switch_all(generation);
        generation
    }

    /// The history of a generation, in lines, to find the cause of a failure.
    fn story(&self, generation: cob_types::GenerationNumber) -> String {
        let all = self.cluster.merged_history().into_iter().filter(|entry| entry.generation == generation);
        all.map(|entry| format!("{entry:?}\n")).collect()
    }

    fn one_at_a_time(&self, absences: &[(u64, u64, String)], generation: cob_types::GenerationNumber) {
        for pair in absences.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "two were away at once: {pair:?}\n{}", self.story(generation));
        }
    }

    /// From the start of the transition out of `up` to the end of the transition back, from the history.
    fn absences(&self, generation: cob_types::GenerationNumber) -> Vec<(u64, u64, String)> {
        let mut left = std::collections::BTreeMap::new();
        let mut absences = Vec::new();
        let mut moves: Vec<HistoryEntry> = self.cluster.merged_history();
        moves.retain(|e| e.generation == generation && ["start", "end", "check"].contains(&e.event.as_str()));
        moves.sort_by_key(|e| e.ts_ns);
        for entry in moves {
            let Some(cob) = entry.cob.filter(|cob| cob.name() == "app/server") else { continue };
            let to = entry.to.map(|s| s.to_string()).unwrap_or_default();
            match (entry.event.as_str(), to.as_str()) {
                ("start", "down") => _ = left.entry(cob).or_insert(entry.ts_ns),
                // A kill came between the record of the start and the action: the server has never left.
                ("check", "outdated") => _ = left.remove(&cob),
                ("end", "up") if entry.ok == Some(true) => {
                    absences.extend(left.remove(&cob).map(|from| (from, entry.ts_ns, cob.to_string())));
                }
                _ => {}
            }
        }
        absences.sort();
        absences
    }
}

#[test]
fn a_rollout_with_kills_disturbs_one_object_at_a_time() {
    let mut rolling = Rolling::new(1);
    let first = rolling.switch("1");
    rolling.cluster.wait_converged(first, PATIENCE);
    assert_eq!(rolling.absences(first), [], "a first start disturbs nobody");

    let second = rolling.switch("2");
    for host in HOSTS.iter().cycle().take(6) {
        pause(70);
        rolling.cluster.kill(host);
        rolling.cluster.start(host);
    }
    rolling.cluster.wait_converged(second, PATIENCE);
    let absences = rolling.absences(second);
    assert_eq!(absences.len(), 3, "{absences:?}");
    rolling.one_at_a_time(&absences, second);
}

#[test]
fn the_plan_of_a_stop_keeps_the_budget() {
    let mut rolling = Rolling::new(1);
    let first = rolling.switch("1");
    rolling.cluster.wait_converged(first, PATIENCE);
    let (code, said) = run(cobctl(&rolling.cluster, &[], &["stop", "app", "--plan"]));
    assert_eq!(code, 0, "{said}");
    let servers: Vec<&str> = said.lines().filter(|line| line.contains("/app/server up → down")).collect();
    let starts: std::collections::BTreeSet<&str> = servers.iter().filter_map(|line| line.split(':').next()).collect();
    assert!(servers.len() == 3 && starts.len() == 3, "one after the other: {said}");
}

#[test]
fn an_operator_lets_fewer_be_disturbed_at_a_time_than_the_model() {
    let mut rolling = Rolling::new(2);
    let first = rolling.switch("1");
    rolling.cluster.wait_converged(first, PATIENCE);
    let limit = |cluster: &Cluster, words: &[&str]| run(cobctl(cluster, &HOSTS, &[&["limit"], words].concat()));
    let (code, said) = limit(&rolling.cluster, &["1", "--budget", "ap"]);
    assert!(code != 0 && said.contains("no host has a budget `ap`") && said.contains("n3/budget/app"), "{said}");
    let (code, said) = limit(&rolling.cluster, &["1", "--budget", "app"]);
    assert_eq!((code, said.trim()), (0, "n3/budget/app: 1 token instead of 2"));
    rolling.cluster.kill("n3");
    rolling.cluster.start("n3");
    rolling.cluster.wait_answers("n3");
    let (code, said) = limit(&rolling.cluster, &["1", "--budget", "n3/budget/app"]);
    assert_eq!((code, said.trim()), (0, "n3/budget/app: 1 token instead of 2 (unchanged)"));

    let second = rolling.switch("2");
    rolling.cluster.wait_converged(second, PATIENCE);
    let absences = rolling.absences(second);
    assert_eq!(absences.len(), 3, "{absences:?}");
    rolling.one_at_a_time(&absences, second);
    let (code, said) = limit(&rolling.cluster, &["none", "--budget", "app"]);
    assert_eq!((code, said.trim()), (0, "n3/budget/app: 2 tokens, as the model says"));
    let told = rolling.cluster.merged_history();
    let told: Vec<&str> = told.iter().filter(|e| e.event == "limit").map(|e| e.detail.as_str()).collect();
    assert!(matches!(told[..], [one, none] if one.starts_with("1 token") && none.starts_with("none")), "{told:?}");
}

#[test]
fn a_roll_out_stops_at_the_first_failure_and_says_why() {
    let mut rolling = Rolling::new(1);
    let first = rolling.switch("1");
    rolling.cluster.wait_converged(first, PATIENCE);
    let broken = format!("{}/broken", rolling.folder);
    std::fs::write(&broken, "").expect("written");
    let second = rolling.switch("2");

    let servers = HOSTS.map(|host| format!("{host}/app/server"));
    let states = || servers.each_ref().map(|id| rolling.cluster.cob(id));
    let settled = || {
        let all = states();
        let waits = |w: &Wait| matches!(w, Wait::Token { cob, .. } if cob.as_str() == "n3/budget/app");
        let failed = all.iter().flatten().filter(|c| c.failed).count();
        let waiting = all.iter().flatten().filter(|c| c.waits_for.iter().any(waits)).count();
        (failed, waiting) == (1, 2)
    };
    rolling.cluster.until(PATIENCE, settled, "one has failed, two wait for a token");
    let still_up: Vec<_> = states().into_iter().flatten().filter(|c| !c.failed).collect();
    assert!(still_up.iter().all(|c| c.state.as_ref().is_some_and(|s| *s == "outdated")), "{still_up:?}");
    let failed = states().into_iter().flatten().find(|c| c.failed).expect("one");
    let budget = rolling.cluster.cob("n3/budget/app").expect("the budget");
    assert_eq!(budget.held_by.iter().map(|h| &h.cob).collect::<Vec<_>>(), [&failed.id]);

    std::fs::remove_file(&broken).expect("mended");
    let host = failed.id.host();
    let order = format!("{{\"cob\":\"{}\"}}", failed.id);
    rolling.cluster.http(host.as_str(), "POST", "/v1/retry", &order).expect("taken");
    rolling.cluster.wait_converged(second, PATIENCE);
}

/// `w` waits for the new `p`, which comes after the departure of `l`. `v` departs before `l`, and needs the only token
/// of the budget that it shares with `w`. The version is in each content.
fn circle_through_hosts(version: u32, folder: &std::path::Path) -> String {
    let folder = folder.display();
    let gone = if version == 1 {
        "  n2/l: {kind: server, content: {of: l}}\n  n3/v: {kind: server, content: {of: v}, requires: [n2/l], budget: one}\n"
    } else {
        ""
    };
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
  n3: {{address: "tcp://127.0.0.1:3"}}
budgets: {{one: {{at_most: 1}}}}
kinds:
  server:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    check: {{run: "f={folder}/$(echo $COB_ID | tr / _); if [ ! -e $f ]; then echo down; elif cmp -s $f \"$COB_CONTENT\"; then echo up; else echo outdated; fi"}}
    transitions:
      - {{from: down, to: up, run: "cp \"$COB_CONTENT\" {folder}/$(echo $COB_ID | tr / _)"}}
      - {{from: up, to: down, run: "rm {folder}/$(echo $COB_ID | tr / _)"}}
      - {{from: outdated, to: down, run: "rm {folder}/$(echo $COB_ID | tr / _)"}}
cobs:
  n1/w: {{kind: server, content: {{version: {version}}}, requires: [n2/p], budget: one}}
  n2/p: {{kind: server, content: {{version: {version}}}}}
{gone}"#
    )
}

#[test]
fn an_object_that_waits_for_a_lock_takes_no_token() {
    let mut cluster = cluster(&["n1", "n2", "n3"]);
    let folder = cluster.path("up");
    fs::create_dir(&folder).expect("a folder");
    let publish = |cluster: &mut Cluster, version| {
        let model = cluster.write_model("model", &[("model.yaml", &circle_through_hosts(version, &folder))]);
        cluster.generate(&model)
    };
    let one = publish(&mut cluster, 1);
    cluster.bring_up(one, PATIENCE);
    let two = publish(&mut cluster, 2);
    let alone = format!("{{\"generation\": {two}, \"alone\": true}}");
    cluster.http("n1", "POST", "/v1/switch", &alone).expect("ordered");
    // It serves on: its needs for coming up again are not fulfilled yet.
    let waits = || {
        let w = cluster.cob("n1/w");
        w.is_some_and(|w| w.state.is_some_and(|s| s == "outdated") && matches!(w.waits_for[..], [Wait::Lock { .. }]))
    };
    cluster.until(PATIENCE, waits, "it waits, without a token");
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
}
