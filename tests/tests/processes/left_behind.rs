//! Hosts that a generation removes from the model, on real daemons: their change objects depart with the states that
//! they need on other hosts, even if a host was away; and a host that will not come back blocks no other host.

use std::fs;

use cob_tests::cluster::{Cluster, host};
use cob_types::GenerationNumber;

use crate::words::{self, cobctl, run, told};
use crate::{CHECK, PATIENCE, QUICK, VERSIONED, cluster};

/// A kind whose start waits for a file `go`.
const SLOW: (&str, &str) = (
    "slow.yaml",
    r#"
kinds:
  slow:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: up, run: "touch $COB_STATE_DIR/begun; until [ -e $COB_STATE_DIR/go ]; do sleep 0.02; done; echo up > $COB_STATE_DIR/state"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
"#,
);

fn generate(cluster: &mut Cluster, name: &str, hosts: &[&str], cobs: &str) -> GenerationNumber {
    let hosts: String =
        hosts.iter().map(|h| format!("  {h}: {{address: \"tcp://127.0.0.1:{}\"}}\n", &h[1..])).collect();
    let text = format!("security: loopback-only\nhosts:\n{hosts}cobs:\n{cobs}");
    let model = cluster.write_model(name, &[("model.yaml", &text), QUICK, SLOW, VERSIONED, CHECK]);
    cluster.generate(&model)
}

/// Whether the host is in the generation, without change objects.
fn has_left(cluster: &Cluster, name: &str, generation: GenerationNumber) -> bool {
    cluster.status(name).is_some_and(|s| s.generation == Some(generation) && s.converged && s.cobs.is_empty())
}

#[test]
fn hosts_that_leave_together_leave_after_each_other_and_come_up_without_a_place_in_the_model() {
    let mut cluster = Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &["n1", "n3", "n4"]);
    let before = "  n1/a: {kind: quick}\n  n3/db: {kind: quick}\n  n4/app: {kind: quick, requires: [n3/db]}\n";
    let one = generate(&mut cluster, "one", &["n1", "n3", "n4"], before);
    cluster.bring_up(one, PATIENCE);
    let two = generate(&mut cluster, "two", &["n1"], "  n1/a: {kind: quick}\n");
    cluster.switch_all(two);
    cluster.until(PATIENCE, || has_left(&cluster, "n4", two), "the dependent leaves");
    cluster.until(PATIENCE, || has_left(&cluster, "n3", two), "what it required leaves after it");
    // A removed host that has drained is no peer any more, even if it is off.
    let peers =
        |cluster: &Cluster| cluster.status("n1").map(|s| s.peers.into_iter().map(|p| p.host).collect::<Vec<_>>());
    cluster.until(PATIENCE, || peers(&cluster).is_some_and(|p| p.is_empty()), "both have said that they are through");
    for name in ["n1", "n3"] {
        cluster.kill(name);
        cluster.start(name);
        cluster.wait_answers(name);
    }
    assert!(has_left(&cluster, "n3", two));
    assert_eq!(peers(&cluster), Some(Vec::new()), "it is remembered who is through");
    // The removal can be rolled back: the removed hosts receive the rollback over their links.
    cluster.http("n1", "POST", "/v1/rollback", "{}").expect("back");
    cluster.wait_converged(one, PATIENCE);
    assert_eq!(told(&cluster, "n4", "withdraw").len(), 1);
}

#[test]
fn a_host_departs_after_the_host_it_needs_has_switched() {
    let mut cluster = cluster(&["n1", "n3"]);
    let needs = "    transitions: [{from: up, to: down, needs: [n1/registry@up]}]\n";
    let before = format!("  n1/registry: {{kind: quick}}\n  n3/x:\n    kind: quick\n{needs}");
    let one = generate(&mut cluster, "one", &["n1", "n3"], &before);
    cluster.bring_up(one, PATIENCE);
    let two = generate(&mut cluster, "two", &["n1"], "  n1/registry: {kind: quick}\n");
    // The host that stays has activated long before.
    cluster.http("n3", "POST", "/v1/pause", "").expect("paused");
    cluster.switch("n1", two);
    cluster.until(PATIENCE, || cluster.status("n3").is_some_and(|s| s.switching_to == Some(two)), "n3 is told");
    cluster.until(PATIENCE, || cluster.status("n1").is_some_and(|s| s.generation == Some(two)), "n1 goes on");
    cluster.http("n3", "POST", "/v1/resume", "").expect("resumed");
    cluster.until(PATIENCE, || has_left(&cluster, "n3", two), "it leaves");
}

/// `n3/x` comes up under a grant of `n1/db`, which has another content afterwards.
fn with_a_promise(cluster: &mut Cluster) -> (GenerationNumber, GenerationNumber) {
    let text =
        |version: u8| format!("  n1/db: {{kind: versioned, content: {{v: {version}}}}}\n  n2/b: {{kind: quick}}\n");
    let before = format!("{}  n3/x: {{kind: slow, requires: [n1/db]}}\n", text(1));
    let one = generate(cluster, "one", &["n1", "n2", "n3"], &before);
    cluster.start_all();
    cluster.switch_all(one);
    let begun = cluster.path("n3/cobs/n3+x/begun");
    cluster.until(PATIENCE, || begun.exists(), "its start has begun");
    let two = generate(cluster, "two", &["n1", "n2"], &text(2));
    (one, two)
}

fn outdated(cluster: &Cluster) -> bool {
    cluster.status("n1").is_some_and(|s| s.generation == Some(GenerationNumber(2)) && !s.converged)
}

#[test]
fn a_departing_host_releases_its_grants() {
    let mut cluster = cluster(&["n1", "n2", "n3"]);
    let (_, two) = with_a_promise(&mut cluster);
    cluster.switch_all(two);
    cluster.until(PATIENCE, || outdated(&cluster), "n1 has gone on, and waits for the action on n3");
    fs::write(cluster.path("n3/cobs/n3+x/go"), "").expect("written");
    cluster.wait_converged(two, PATIENCE);
    assert!(has_left(&cluster, "n3", two));
}

#[test]
fn a_host_that_was_away_leaves_when_it_is_back_however_many_switches_later() {
    let mut cluster = cluster(&["n1", "n2", "n3"]);
    let (_, two) = with_a_promise(&mut cluster);
    cluster.kill("n3");
    fs::write(cluster.path("n3/cobs/n3+x/go"), "").expect("written");
    for name in ["n1", "n2"] {
        cluster.switch(name, two);
    }
    cluster.until(PATIENCE, || outdated(&cluster), "n1 has gone on, and waits for n3");
    let text = "  n1/db: {kind: versioned, content: {v: 2}}\n  n2/b: {kind: quick}\n  n2/c: {kind: quick}\n";
    let three = generate(&mut cluster, "three", &["n1", "n2"], text);
    for name in ["n1", "n2"] {
        cluster.switch(name, three);
        cluster.until(PATIENCE, || cluster.status(name).is_some_and(|s| s.generation == Some(three)), "gone on");
        cluster.kill(name);
        cluster.start(name);
        cluster.wait_answers(name);
    }
    let names = |s: cob_types::status::HostStatus| s.peers.into_iter().map(|p| p.host).collect::<Vec<_>>();
    assert!(cluster.status("n1").map(names).is_some_and(|p| p.contains(&host("n3"))), "it is awaited");
    cluster.start("n3");
    cluster.wait_converged(three, PATIENCE);
    assert!(has_left(&cluster, "n3", three));
}

/// No host of the new generation knows the previous generation: the depot does.
#[test]
fn all_hosts_are_replaced_by_others() {
    let mut cluster = cluster(&["n1", "n2"]);
    let one = generate(&mut cluster, "one", &["n1"], "  n1/a: {kind: quick}\n");
    cluster.start("n1");
    cluster.wait_answers("n1");
    cluster.switch("n1", one);
    let settled = |cluster: &Cluster, name: &str, generation: GenerationNumber| {
        cluster.status(name).is_some_and(|s| s.generation == Some(generation) && s.converged)
    };
    cluster.until(PATIENCE, || settled(&cluster, "n1", one), "n1 runs");
    let two = generate(&mut cluster, "two", &["n2"], "  n2/a: {kind: quick}\n");
    cluster.start("n2");
    cluster.wait_answers("n2");
    let (code, said) = run(cobctl(&cluster, &[], &["switch", "2", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    assert!(settled(&cluster, "n2", two) && has_left(&cluster, "n1", two), "{said}");
}

#[test]
fn a_dead_host_outside_the_generation_can_be_fenced() {
    let mut cluster = cluster(&["n1", "n2", "n3"]);
    let (_, two) = with_a_promise(&mut cluster);
    cluster.kill("n3");
    for name in ["n1", "n2"] {
        cluster.switch(name, two);
    }
    cluster.until(PATIENCE, || outdated(&cluster), "n1 has gone on, and waits for n3");
    // The depot's latest generation does not have n3.
    let (_, said) = run(cobctl(&cluster, &[], &["explain", "n1/db"]));
    assert!(said.contains("n3, which can't be reached") && said.contains("`cobctl fence n3`"), "{said}");
    let fenced = cluster.http("n1", "POST", "/v1/fence", "{\"host\": \"n3\"}").expect("n3 is known");
    assert!(fenced.contains("is fenced"), "{fenced}");
    let there = |name: &str| cluster.status(name).is_some_and(|s| s.generation == Some(two) && s.converged);
    cluster.until(PATIENCE, || there("n1") && there("n2"), "what it held is free");
    let again = cluster.http("n1", "POST", "/v1/fence", "{\"host\": \"n3\"}").expect_err("it is known no longer");
    assert!(again.contains("404"), "{again}");
    assert!(cluster.status("n1").is_some_and(|s| s.peers.iter().all(|p| p.host != host("n3"))));
}

/// As soon as the other hosts have converged, the result is certain: no time is spent on a host that was declared dead.
#[test]
fn a_wait_ends_when_all_have_converged_but_a_fenced_host() {
    let mut cluster = cluster(&["n1", "n3"]);
    // Neither has a connection to the other: a fence is recorded all the same.
    let before = "  n1/a: {kind: quick}\n  n3/b: {kind: quick}\n";
    let one = generate(&mut cluster, "one", &["n1", "n3"], before);
    cluster.bring_up(one, PATIENCE);
    let two = generate(&mut cluster, "two", &["n1", "n3"], &format!("{before}  n1/c: {{kind: quick}}\n"));
    cluster.kill("n3");
    let is_fenced = |cluster: &Cluster| {
        cluster.status("n1").is_some_and(|s| s.peers.iter().any(|p| p.host == host("n3") && p.fenced))
    };
    assert!(!is_fenced(&cluster));
    let ctl = |said: &[&str]| words::run(words::cobctl(&cluster, &[], said));
    assert_eq!(ctl(&["fence", "n3", "--yes"]).0, 0);
    assert!(is_fenced(&cluster));
    let said = ctl(&["switch", &two.to_string(), "--wait", "10m"]);
    assert_eq!(said.0, 3, "{}", said.1);
    assert!(said.1.contains("n3 is fenced and did not answer; all other hosts have converged"), "{}", said.1);
    cluster.kill("n1");
    cluster.start("n1");
    cluster.wait_answers("n1");
    assert!(is_fenced(&cluster), "the order is on record");
    cluster.start("n3");
    cluster.wait_converged(two, PATIENCE);
    assert!(!is_fenced(&cluster), "a later life has spoken");
}

/// The daemon of a removed host still runs and calls the others: it is no stranger, and its departure is known.
#[test]
fn a_host_that_was_removed_is_no_stranger_and_its_part_of_the_switch_is_known() {
    let mut cluster = Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &["n1", "n3"]);
    let one = generate(&mut cluster, "one", &["n1", "n3"], "  n1/a: {kind: quick}\n  n3/b: {kind: quick}\n");
    cluster.bring_up(one, PATIENCE);
    assert!(cluster.status("n3").expect("answers").refused.is_nothing(), "a young cluster knows no strangers");
    let two = generate(&mut cluster, "two", &["n3"], "  n3/b: {kind: quick}\n");
    cluster.switch_all(two);
    let is_drained = || cluster.status("n3").is_some_and(|s| s.drained.get("n1") == Some(&one) && s.peers.is_empty());
    cluster.until(PATIENCE, is_drained, "n1 has left");
    let three = generate(&mut cluster, "three", &["n3"], "  n3/b: {kind: quick}\n  n3/c: {kind: quick}\n");
    cluster.switch("n3", three);
    let is_in_three = || cluster.status("n3").is_some_and(|s| s.generation == Some(three) && s.converged);
    cluster.until(PATIENCE, is_in_three, "n3 goes on, and forgets n1");
    for name in ["n1", "n3"] {
        cluster.kill(name);
        cluster.start(name);
        cluster.wait_answers(name);
    }
    let calls = || cluster.status("n1").is_some_and(|s| s.peers.iter().any(|peer| !peer.up && peer.error.is_some()));
    cluster.until(PATIENCE, calls, "n1 calls n3 in vain");
    let status = cluster.status("n3").expect("answers");
    assert!(status.refused.is_nothing() && status.drained.contains_key("n1"), "{status:?}");
    cluster.kill("n1");
    let (_, said) = words::run(words::cobctl(&cluster, &["n3"], &["outcomes"]));
    assert!(said.contains("converged") && !said.contains("not known"), "{said}");
}

/// The other hosts were not told to switch there: they look up what the generation of the canary lets it ask for.
#[test]
fn a_canary_may_request_what_its_generation_justifies() {
    let mut cluster = cluster(&["n1", "n2"]);
    let one = generate(&mut cluster, "one", &["n1", "n2"], "  n1/db: {kind: quick}\n  n2/a: {kind: quick}\n");
    cluster.bring_up(one, PATIENCE);
    let cobs = "  n1/db: {kind: quick}\n  n2/a: {kind: quick}\n  n2/app: {kind: quick, requires: [n1/db]}\n";
    let two = generate(&mut cluster, "two", &["n1", "n2"], cobs);
    let alone = format!("{{\"generation\": {two}, \"alone\": true, \"only\": [\"n2\"]}}");
    cluster.http("n2", "POST", "/v1/switch", &alone).expect("ordered");
    let there = || cluster.status("n2").is_some_and(|s| s.generation == Some(two) && s.converged);
    cluster.until(PATIENCE, there, "the canary has what it requires");
    let status = cluster.status("n1").expect("answers");
    assert_eq!((status.generation, status.unjustified), (Some(one), Vec::new()));
}
