//! Rollouts with real daemons stop at the first failure: waves, canaries, budgets, and repeated orders.

use std::fs;

use cob_tests::cluster::Cluster;
use cob_types::status::Wait;
use cob_types::{CobId, GenerationNumber};

use crate::words::{cobctl, run};
use crate::{PATIENCE, VERSIONED, cluster};

const HOSTS: [&str; 3] = ["n1", "n2", "n3"];

/// A content on each of three hosts. With a file `broken-HOST` the new content fails there, and the old stays.
fn model(version: u32, folder: &str, tokens: Option<u32>) -> String {
    let budgets = tokens.map(|tokens| format!("budgets: {{web: {{at_most: {tokens}}}}}\n")).unwrap_or_default();
    let of = if tokens.is_some() { ", budget: web" } else { "" };
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
  n3: {{address: "tcp://127.0.0.1:3"}}
{budgets}kinds:
  conf:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    retries: 0
    check: {{run: 'if [ ! -e {folder}/$COB_HOST ]; then echo down; elif cmp -s {folder}/$COB_HOST "$COB_CONTENT"; then echo up; else echo outdated; fi'}}
    transitions:
      - {{from: down, to: up, run: &write 'test ! -e {folder}/broken-$COB_HOST && cp "$COB_CONTENT" {folder}/$COB_HOST'}}
      - {{from: outdated, to: up, run: *write}}
      - {{from: up, to: down, run: &remove 'test ! -e {folder}/stuck-$COB_HOST && rm -f {folder}/$COB_HOST'}}
      - {{from: outdated, to: down, run: *remove}}
services:
  web: {{cobs: {{c: {{kind: conf{of}, content: {{v: {version}}}}}}}}}
clusters: {{c: {{services: {{web: [n1, n2, n3]}}}}}}
"#
    )
}

struct Rollout {
    cluster: Cluster,
    folder: String,
    /// The tokens of the budget; `None`: there is no budget.
    tokens: Option<u32>,
}

impl Rollout {
    /// A cluster that has converged in generation 1.
    fn new(tokens: Option<u32>) -> Self {
        let cluster = cluster(&HOSTS);
        let folder = cluster.path("contents");
        fs::create_dir(&folder).expect("a folder");
        let mut rollout = Self { cluster, folder: folder.display().to_string(), tokens };
        let first = rollout.generate(1);
        rollout.cluster.bring_up(first, PATIENCE);
        rollout
    }

    fn generate(&mut self, version: u32) -> GenerationNumber {
        let text = model(version, &self.folder, self.tokens);
        let model = self.cluster.write_model("model", &[("model.yaml", &text)]);
        self.cluster.generate(&model)
    }

    fn breaks(&self, host: &str) {
        fs::write(format!("{}/broken-{host}", self.folder), "").expect("written");
    }

    fn mends(&self, host: &str) {
        fs::remove_file(format!("{}/broken-{host}", self.folder)).expect("removed");
    }

    fn ctl(&self, words: &[&str]) -> (i32, String) {
        run(cobctl(&self.cluster, &HOSTS, words))
    }

    fn generations(&self) -> [u64; 3] {
        HOSTS.map(|host| self.cluster.status(host).and_then(|s| s.generation).map_or(0, |g| g.0))
    }
}

#[test]
fn waves_stop_at_a_failed_host_also_when_the_order_is_given_again() {
    let mut rollout = Rollout::new(None);
    rollout.generate(2);
    rollout.breaks("n1");
    let waves = ["switch", "2", "--limit-hosts", "1", "--wait", "60s"];
    for order in ["the first", "the same again"] {
        let (code, said) = rollout.ctl(&waves);
        assert_eq!((code, rollout.generations()), (1, [2, 1, 1]), "{order}: {said}");
        assert!(said.contains("n1/web/c"), "{order}: {said}");
        assert!(said.contains("`cobctl resume --host n1` and `cobctl retry n1/web/c`"), "{order}: {said}");
        assert!(said.contains("--max-failures 1"), "{order}: {said}");
    }
    let (_, said) = rollout.ctl(&["explain", "n1/web/c"]);
    assert!(said.contains("then `cobctl resume --host n1` and `cobctl retry n1/web/c`"), "{said}");

    // Follow the hint of the message.
    rollout.mends("n1");
    let (code, said) = run(cobctl(&rollout.cluster, &["n1"], &["resume"]));
    assert_eq!(code, 0, "{said}");
    let (code, said) = rollout.ctl(&["retry", "n1/web/c", "--wait", "60s"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = rollout.ctl(&waves);
    assert_eq!((code, rollout.generations()), (0, [2, 2, 2]), "{said}");
}

/// A token of the old budget counts for the new budget, too.
#[test]
fn a_budget_that_changes_ties_no_hosts_together() {
    let mut rollout = Rollout::new(Some(1));
    rollout.tokens = Some(2);
    rollout.generate(2);
    rollout.breaks("n2");
    let waves = ["switch", "2", "--limit-hosts", "1", "--wait", "60s"];
    let (code, said) = rollout.ctl(&waves);
    assert_eq!((code, rollout.generations()), (1, [2, 2, 1]), "{said}");
    assert!(said.contains("switching: n1; 2 hosts to follow"), "{said}");
    rollout.mends("n2");
    assert_eq!(run(cobctl(&rollout.cluster, &["n2"], &["resume"])).0, 0);
    let (code, said) = rollout.ctl(&["retry", "n2/web/c", "--wait", "60s"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = rollout.ctl(&waves);
    assert_eq!((code, rollout.generations()), (0, [2, 2, 2]), "{said}");
}

/// The generation that repairs a failed host goes there first, because the others wait for its token.
#[test]
fn a_failed_host_that_holds_a_token_is_mended_first() {
    let mut rollout = Rollout::new(Some(1));
    rollout.generate(2);
    rollout.breaks("n2");
    let (code, said) = rollout.ctl(&["switch", "2", "--limit-hosts", "1", "--wait", "60s"]);
    assert_eq!((code, rollout.generations()), (1, [2, 2, 1]), "{said}");
    // Another canary can't get the token, and reports its holder.
    rollout.generate(3);
    let (code, said) = rollout.ctl(&["switch", "3", "--canary", "n3", "--wait", "60s"]);
    assert!(code == 1 && said.contains("n2/web/c") && said.contains("failed after"), "{said}");
    assert!(said.contains("`cobctl resume --host n3`, then `cobctl switch 3 --canary n2,n3`"), "{said}");
    assert_eq!(run(cobctl(&rollout.cluster, &["n3"], &["resume"])).0, 0);
    rollout.mends("n2");
    let (code, said) = rollout.ctl(&["switch", "3", "--limit-hosts", "1", "--wait", "60s"]);
    assert_eq!((code, rollout.generations()), (0, [3, 3, 3]), "{said}");
}

/// A removed host belongs to a wave like any other: hosts that wait for its departures come after it.
#[test]
fn hosts_that_leave_go_in_waves_too() {
    let mut cluster = cluster(&["n1", "n2", "n3"]);
    let head = |hosts: &[&str]| {
        let hosts: String =
            hosts.iter().map(|n| format!("  {n}: {{address: \"tcp://127.0.0.1:{}\"}}\n", &n[1..])).collect();
        format!("security: loopback-only\nhosts:\n{hosts}cobs:\n")
    };
    let one = "  n1/a: {kind: versioned, content: {v: 1}, requires: [n2/a]}\n  n2/a: {kind: versioned, content: {v: 1}}\n  \
               n3/a: {kind: versioned, content: {v: 1}}\n";
    let two = "  n1/a: {kind: versioned, content: {v: 1}}\n  n3/a: {kind: versioned, content: {v: 2}}\n";
    let model = cluster.write_model("one", &[("model.yaml", &(head(&["n1", "n2", "n3"]) + one)), VERSIONED]);
    let first = cluster.generate(&model);
    cluster.bring_up(first, PATIENCE);
    let model = cluster.write_model("two", &[("model.yaml", &(head(&["n1", "n3"]) + two)), VERSIONED]);
    cluster.generate(&model);
    let (code, said) = run(cobctl(&cluster, &[], &["switch", "2", "--limit-hosts", "1", "--wait", "60s"]));
    if code == 1 {
        // The hosts may depend on each other in both directions: then the limit is refused, and a larger limit works.
        assert!(said.contains("--limit-hosts 2"), "{said}");
        let (code, said) = run(cobctl(&cluster, &[], &["switch", "2", "--limit-hosts", "2", "--wait", "60s"]));
        assert_eq!(code, 0, "{said}");
    } else {
        assert_eq!(code, 0, "{said}");
    }
    assert!(cluster.status("n2").is_some_and(|s| s.generation == Some(GenerationNumber(2)) && s.cobs.is_empty()));
}

/// A host that can't depart counts as failed, even if the order is repeated.
#[test]
fn a_host_that_can_not_leave_stops_waves() {
    let mut rollout = Rollout::new(None);
    fs::write(format!("{}/stuck-n1", rollout.folder), "").expect("written");
    let text = model(2, &rollout.folder, None).replace("[n1, n2, n3]", "[n2, n3]");
    let text = text.replace("  n1: {address: \"tcp://127.0.0.1:1\"}\n", "");
    let model = rollout.cluster.write_model("model", &[("model.yaml", &text)]);
    rollout.cluster.generate(&model);
    let waves = ["switch", "2", "--limit-hosts", "1", "--wait", "60s"];
    for order in ["the first", "the same again"] {
        let (code, said) = run(cobctl(&rollout.cluster, &[], &waves));
        assert!(code == 1 && said.contains("n1/web/c"), "{order}: {said}");
        assert_eq!(rollout.generations()[1..], [1, 1], "{order}: {said}");
    }
    fs::remove_file(format!("{}/stuck-n1", rollout.folder)).expect("removed");
    let (code, said) = run(cobctl(&rollout.cluster, &["n1"], &["resume"]));
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(cobctl(&rollout.cluster, &["n1"], &["retry", "n1/web/c"]));
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(cobctl(&rollout.cluster, &[], &waves));
    assert_eq!((code, rollout.generations()), (0, [2, 2, 2]), "{said}");
    // A host that has not departed is no success of a repeated order.
    fs::write(format!("{}/stuck-n2", rollout.folder), "").expect("written");
    let text = text.replace("[n2, n3]", "[n3]").replace("  n2: {address: \"tcp://127.0.0.1:2\"}\n", "");
    let model = rollout.cluster.write_model("model", &[("model.yaml", &text)]);
    rollout.cluster.generate(&model);
    for order in ["the first", "the same again"] {
        let (code, said) = run(cobctl(&rollout.cluster, &[], &["switch", "3", "--wait", "60s"]));
        assert!(code == 1 && said.contains("n2/web/c"), "{order}: {said}");
    }
}

/// Away hosts get no order: otherwise the others would announce the switch to all of them at once when they come back.
#[test]
fn hosts_that_are_away_are_left_out_of_waves() {
    let mut rollout = Rollout::new(None);
    rollout.generate(2);
    for host in ["n2", "n3"] {
        rollout.breaks(host);
        rollout.cluster.kill(host);
    }
    let waves = ["switch", "2", "--limit-hosts", "1", "--wait", "60s", "--timeout", "1s"];
    let (code, said) = rollout.ctl(&waves);
    assert_eq!((code, rollout.generations()), (3, [2, 0, 0]), "{said}");
    assert!(said.contains("n2 and n3 did not answer and keep their generations"), "{said}");
    for host in ["n2", "n3"] {
        rollout.cluster.start(host);
        rollout.cluster.wait_answers(host);
    }
    let linked = |cluster: &Cluster, host: &str| cluster.status(host).is_some_and(|s| s.peers.iter().all(|p| p.up));
    rollout.cluster.until(PATIENCE, || HOSTS.iter().all(|host| linked(&rollout.cluster, host)), "they are linked");
    assert_eq!(rollout.generations(), [2, 1, 1]);
    let (code, said) = rollout.ctl(&waves);
    assert_eq!((code, rollout.generations()), (1, [2, 2, 1]), "{said}");
}

/// The target of a new dependency goes first; each wave has one host.
#[test]
fn waves_follow_a_new_dependency_from_host_to_host() {
    let mut cluster = cluster(&["n1", "n2"]);
    for version in 1..=2 {
        let queue = if version == 2 { "n2/queue: {kind: versioned, content: {v: 1}}" } else { "" };
        let needs = if version == 2 { ", after: [n2/queue]" } else { "" };
        let text = format!(
            "security: loopback-only\nhosts:\n  n1: {{address: \"tcp://127.0.0.1:1\"}}\n  n2: {{address: \"tcp://127.0.0.1:2\"}}\ncobs:\n  \
             n1/app: {{kind: versioned, content: {{v: {version}}}{needs}}}\n  n2/db: {{kind: versioned, content: {{v: 1}}}}\n  {queue}\n"
        );
        let model = cluster.write_model(&format!("v{version}"), &[("model.yaml", &text), VERSIONED]);
        let generation = cluster.generate(&model);
        if version == 1 {
            cluster.bring_up(generation, PATIENCE);
        }
    }
    let (code, said) = run(cobctl(&cluster, &[], &["switch", "2", "--limit-hosts", "1", "--wait", "60s"]));
    assert!(code == 0 && said.contains("switching: n2; 1 host to follow"), "{said}");
}

#[test]
fn so_many_failed_hosts_as_are_tolerated_do_not_stop_waves() {
    let mut rollout = Rollout::new(None);
    rollout.generate(2);
    rollout.breaks("n1");
    let (code, said) = rollout.ctl(&["switch", "2", "--limit-hosts", "1", "--max-failures", "1", "--wait", "60s"]);
    assert_eq!((code, rollout.generations()), (1, [2, 2, 2]), "{said}");
    assert!(said.contains("failed on n1: tolerated"), "{said}");
    assert!(said.contains("no transition can start"), "{said}");
    // A second failure is too many.
    rollout.generate(3);
    rollout.breaks("n2");
    let (code, said) = rollout.ctl(&["switch", "3", "--limit-hosts", "1", "--max-failures", "1", "--wait", "60s"]);
    assert_eq!((code, rollout.generations()), (1, [3, 3, 2]), "{said}");
    let (code, said) = rollout.ctl(&["switch", "3", "--max-failures", "1"]);
    assert!(code == 2 && said.contains("--limit-hosts or --canary"), "{said}");
}

#[test]
fn a_canary_stops_for_a_host_that_has_failed_before() {
    let mut rollout = Rollout::new(None);
    rollout.generate(2);
    rollout.breaks("n1");
    let canary = |rollout: &Rollout, host: &str| rollout.ctl(&["switch", "2", "--canary", host, "--wait", "60s"]);
    let (code, said) = canary(&rollout, "n1");
    assert_eq!((code, rollout.generations()), (1, [2, 1, 1]), "{said}");
    // Another canary does not bypass the failed host.
    let (code, said) = canary(&rollout, "n2");
    assert_eq!((code, rollout.generations()), (1, [2, 1, 1]), "{said}");
}

#[test]
fn a_failed_object_stops_a_rollout_until_the_budget_is_raised() {
    let mut rollout = Rollout::new(Some(1));
    HOSTS.iter().for_each(|host| rollout.breaks(host));
    let second = rollout.generate(2);
    let (code, said) = rollout.ctl(&["switch", "2", "--wait", "60s"]);
    // A failed change object has all tokens: there is nothing to wait for.
    assert!(code == 1 && said.contains("no transition can start"), "{said}");
    let states = |rollout: &Rollout| {
        let all = HOSTS.map(|host| rollout.cluster.cob(&format!("{host}/web/c")).expect("it is there"));
        let failed = all.iter().filter(|c| c.failed).count();
        let waits = |w: &Wait| matches!(w, Wait::Token { .. });
        (failed, all.iter().filter(|c| c.waits_for.iter().any(waits)).count())
    };
    assert_eq!(states(&rollout), (1, 2), "{said}");
    let failed = HOSTS.map(|host| rollout.cluster.cob(&format!("{host}/web/c")).expect("it is there"));
    let failed: CobId = failed.into_iter().find(|c| c.failed).expect("one").id;
    let waiting = HOSTS.iter().find(|host| **host != failed.host_str()).expect("two");
    let (_, said) = rollout.ctl(&["explain", &format!("{waiting}/web/c")]);
    assert!(said.contains("`cobctl budget n1/budget/web --at-most 2`"), "{said}");

    let (code, said) = rollout.ctl(&["budget", "web", "--at-most", "2"]);
    assert_eq!((code, said.trim()), (0, "n1/budget/web: 2 tokens instead of 1, until the next generation"));
    rollout.cluster.until(PATIENCE, || states(&rollout) == (2, 1), "one more has gone, and failed");
    // It is recorded with its author, and survives a restart of the daemon.
    let raised = |rollout: &Rollout| rollout.cluster.status("n1").map(|s| s.raised.into_values().collect::<Vec<_>>());
    rollout.cluster.kill("n1");
    rollout.cluster.start("n1");
    rollout.cluster.wait_answers("n1");
    assert_eq!(raised(&rollout), Some(vec![2]));
    let (_, said) = rollout.ctl(&["history", "n1/budget/web"]);
    assert!(said.contains("raise") && said.contains("2 tokens until the next generation"), "{said}");
    let entries = rollout.cluster.history("n1");
    let entry = entries.iter().find(|e| e.event == "raise").expect("on record");
    assert!(entry.detail.contains("by "), "{entry:?}");
    let (code, said) = rollout.ctl(&["budget", "web", "--at-most", "model"]);
    assert_eq!((code, said.trim()), (0, "n1/budget/web: 1 token, as the model says"));
    let (code, said) = rollout.ctl(&["budget", "web", "--at-most", "3"]);
    assert_eq!(code, 0, "{said}");

    // The next generation has the number of its model.
    HOSTS.iter().for_each(|host| rollout.mends(host));
    let third = rollout.generate(3);
    assert!(third > second);
    let (code, said) = rollout.ctl(&["switch", "3", "--wait", "60s"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(raised(&rollout), Some(Vec::new()));
}

#[test]
fn a_first_generation_that_fails_hints_at_no_rollback() {
    let mut cluster = cluster(&["n1"]);
    let text = "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:1\"}}\nkinds:\n  bad:\n    \
                states: [down, up]\n    preferred: up\n    pre_remove: down\n    retries: 0\n    check: {run: echo down}\n    transitions:\n      \
                - {from: down, to: up, failure: down, run: exit 3}\n      - {from: up, to: down, run: 'true'}\n\
                cobs: {n1/a: {kind: bad}}\n";
    let model = cluster.write_model("model", &[("model.yaml", text)]);
    cluster.generate(&model);
    cluster.start_all();
    let (code, said) = run(cobctl(&cluster, &["n1"], &["switch", "1", "--wait", "60s"]));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("`cobctl explain n1/a`") && !said.contains("rollback"), "{said}");
}

/// The limit is an operator's: if it can't be kept, the command stops with an error.
#[test]
fn a_host_limit_is_refused_if_all_hosts_must_switch_together() {
    let mut cluster = cluster(&["n1", "n2"]);
    for version in 1..=2 {
        let text = format!(
            "security: loopback-only\nhosts:\n  n1: {{address: \"tcp://127.0.0.1:1\"}}\n  n2: {{address: \"tcp://127.0.0.1:2\"}}\ncobs:\n  \
             n1/db: {{kind: versioned, content: {{v: {version}}}}}\n  n2/app: {{kind: versioned, content: {{v: {version}}}, requires: [n1/db]}}\n"
        );
        let model = cluster.write_model(&format!("v{version}"), &[("model.yaml", &text), VERSIONED]);
        let generation = cluster.generate(&model);
        if version == 1 {
            cluster.bring_up(generation, PATIENCE);
        }
    }
    let (code, said) = run(cobctl(&cluster, &[], &["switch", "2", "--limit-hosts", "1", "--wait", "60s"]));
    assert!(code == 1 && said.contains("all 2 hosts of the generation must switch together"), "{said}");
    assert!(said.contains("n2 switches too: n1/db needs n2/app"), "{said}");
    assert!(cluster.is_converged(GenerationNumber(1)), "nothing was ordered");
    let (code, said) = run(cobctl(&cluster, &[], &["switch", "2", "--limit-hosts", "2", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
}
