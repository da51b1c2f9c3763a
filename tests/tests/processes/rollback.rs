//! Failed switches: held or rolled back, by policy, by an operator's order and by the connectivity guard; switch and
//! rollback reach hosts that no operator has told.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;
use cob_types::status::{InvalidGrantCause, SwitchStage, SwitchStatus};

use crate::{CHECK, PATIENCE, QUICK, cluster, words};

const HOSTS: [&str; 3] = ["n1", "n2", "n3"];

/// A shop of this version over three hosts, with a file tree that users edit. A server does not start in the version
/// that the file `broken-HOST` names.
fn model(version: u32, folder: &str) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
  n3: {{address: "tcp://127.0.0.1:3"}}
kinds:
  server:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    retries: 0
    check: {{run: "s=$(cat $COB_STATE_DIR/state 2>/dev/null || echo down); if [ $s = up ] && [ $(cat {folder}/serves-$COB_HOST) != {version} ]; then s=outdated; fi; echo $s"}}
    transitions:
      - {{from: down, to: up, failure: down, run: "while [ -e {folder}/wait-$COB_HOST ]; do sleep 0.05; done; if [ \"$(cat {folder}/broken-$COB_HOST 2>/dev/null)\" = {version} ]; then echo 'port 80 is taken'; exit 1; fi; echo {version} > {folder}/serves-$COB_HOST; echo up > $COB_STATE_DIR/state"}}
      - {{from: up, to: down, run: "echo none > {folder}/serves-$COB_HOST; echo down > $COB_STATE_DIR/state"}}
      - {{from: outdated, to: down, run: "echo none > {folder}/serves-$COB_HOST; echo down > $COB_STATE_DIR/state"}}
cobs:
  n1/files:
    kind: file-tree
    content: {{root: {folder}/etc, files: {{app.conf: {{manage: merge, content: "a\nb\nversion {version}\nc\nd\n"}}}}}}
  n1/db: {{kind: server, content: {{version: {version}}}, requires: [n1/files]}}
  n2/app: {{kind: server, content: {{version: {version}}}, requires: [n1/db]}}
  n3/lb: {{kind: server, content: {{version: {version}}}, requires: [n2/app]}}
"#
    )
}

struct Shop {
    cluster: Cluster,
    folder: PathBuf,
}

impl Shop {
    /// The shop in its first version, with a user's line in its file.
    fn new() -> Self {
        let cluster = cluster(&HOSTS);
        let folder = cluster.path("shop");
        fs::create_dir(&folder).expect("a folder");
        let mut shop = Self { cluster, folder };
        let one = shop.publish(1);
        shop.cluster.bring_up(one, PATIENCE);
        let conf = shop.folder.join("etc/app.conf");
        fs::write(&conf, format!("{}mine\n", fs::read_to_string(&conf).expect("read"))).expect("edited");
        shop
    }

    fn publish(&mut self, version: u32) -> GenerationNumber {
        let text = model(version, &self.folder.display().to_string());
        let model = self.cluster.write_model("model", &[("model.yaml", &text)]);
        self.cluster.generate(&model)
    }

    /// Keeps the server of a host from starting in this version.
    fn break_it(&self, host: &str, version: u32) {
        fs::write(self.folder.join(format!("broken-{host}")), version.to_string()).expect("written");
    }

    fn mend(&self, host: &str) {
        fs::remove_file(self.folder.join(format!("broken-{host}"))).expect("removed");
    }

    fn order(&self, host: &str, path: &str, body: &str) {
        self.cluster.http(host, "POST", path, body).unwrap_or_else(|e| panic!("{host}: {e}"));
    }

    /// All hosts serve this version, and the user's line still exists.
    fn serves(&self, version: u32) {
        let read = |name: String| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        for host in HOSTS {
            assert_eq!(read(format!("serves-{host}")), format!("{version}\n"), "{host}");
        }
        assert_eq!(read("etc/app.conf".to_owned()), format!("a\nb\nversion {version}\nc\nd\nmine\n"));
    }

    fn switch_of(&self, host: &str) -> Option<SwitchStatus> {
        self.cluster.status(host)?.switch
    }

    /// Waits until all hosts have rolled back from this generation to that.
    fn wait_returned(&self, from: GenerationNumber, to: GenerationNumber) {
        let returned = |host: &&str| {
            let switch = self.switch_of(host).filter(|s| s.left == Some(from) && s.to == to);
            switch.is_some_and(|s| s.stage == SwitchStage::Settled)
        };
        self.cluster.until(PATIENCE, || HOSTS.iter().all(&returned), "all have returned");
        self.cluster.wait_converged(to, PATIENCE);
    }

    fn told(&self, host: &str, event: &str) -> Vec<String> {
        words::told(&self.cluster, host, event)
    }

    /// Runs `cobctl` with all hosts; returns the exit status and the output.
    fn ctl(&self, words: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
        command.arg("cobctl").args(words).env_remove("COB_DEPOT");
        for host in HOSTS {
            command.arg("--host").arg(format!("unix:{}", self.cluster.path(&format!("{host}.sock")).display()));
        }
        let output = command.output().expect("run");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }
}

#[test]
fn after_two_failed_attempts_hosts_are_where_they_were_before_the_first() {
    let mut shop = Shop::new();
    let (one, two) = (GenerationNumber(1), shop.publish(2));
    shop.break_it("n3", 2);
    shop.order("n1", "/v1/switch", "{\"generation\": 2, \"on_failure\": \"rollback\"}");
    shop.wait_returned(two, one);
    // This generation was made after the rolled back generation, and fails, too.
    let three = shop.publish(3);
    shop.break_it("n3", 3);
    shop.order("n2", "/v1/switch", "{\"generation\": 3, \"on_failure\": \"rollback\"}");
    shop.wait_returned(three, one);
    shop.serves(1);
    // An operator's rollback leads to the same generation, and never to a rolled back generation.
    shop.mend("n3");
    let four = shop.publish(4);
    shop.order("n1", "/v1/switch", "{\"generation\": 4}");
    shop.cluster.wait_converged(four, PATIENCE);
    let (code, told) = shop.ctl(&["rollback", "--wait"]);
    assert_eq!(code, 0, "{told}");
    shop.cluster.wait_converged(one, PATIENCE);
    shop.serves(1);
}

#[test]
fn a_failed_switch_is_taken_back_everywhere_and_gone_to_again_by_an_order_alone() {
    let mut shop = Shop::new();
    let (one, two) = (GenerationNumber(1), shop.publish(2));
    shop.break_it("n3", 2);
    // Only one host gets the order to switch.
    shop.order("n1", "/v1/switch", "{\"generation\": 2, \"on_failure\": \"rollback\"}");
    shop.wait_returned(two, one);
    shop.serves(1);
    let why = shop.switch_of("n1").expect("a switch").why;
    assert!(why.contains("n3/lb failed to go from down to up") && why.contains("told by"), "{why}");
    let all: Vec<_> = HOSTS.iter().flat_map(|host| shop.told(host, "withdraw")).collect();
    assert_eq!(all.len(), 3, "each once: {all:?}");
    // The failed host has the first entry in the merged history: the others received its announcement.
    let withdrawn = |host: &str| {
        let all = shop.cluster.history(host);
        all.into_iter().find(|entry| entry.event == "withdraw").expect("withdrawn").lamport
    };
    assert!(["n1", "n2"].iter().all(|host| withdrawn(host) > withdrawn("n3")), "{:?}", HOSTS.map(withdrawn));
    let (code, status) = shop.ctl(&["status"]);
    assert!(code == 0 && status.contains("n3 has rolled back from generation 2 to 1: n3/lb failed"), "{code} {status}");

    // A restarted host receives no other announcement, and neither do the others.
    shop.cluster.kill("n2");
    shop.cluster.start("n2");
    shop.cluster.wait_answers("n2");
    shop.wait_returned(two, one);
    shop.mend("n3");
    // The generation is not chosen as the latest any more, only by its number.
    let depot = shop.cluster.path("depot").display().to_string();
    let (code, text) = shop.ctl(&["--depot", &depot, "switch", "latest", "--wait"]);
    let why = "generation 2, the latest, was rolled back on n1, n2 and n3: n3/lb failed";
    assert!(code == 1 && text.contains(why) && text.contains("`cobctl switch 2`"), "{code} {text}");
    shop.order("n2", "/v1/switch", "{\"generation\": 2, \"on_failure\": \"rollback\"}");
    shop.cluster.wait_converged(two, PATIENCE);
    shop.serves(2);
}

#[test]
fn jobs_that_can_not_even_begin_fail_a_switch_as_others_do() {
    let mut shop = Shop::new();
    let one = GenerationNumber(1);
    // A file in place of the folder for files of kinds: no files can be laid out.
    let files = shop.cluster.path("n3").join("payload");
    if files.exists() {
        fs::remove_dir_all(&files).expect("removed");
    }
    fs::write(&files, "").expect("written");
    let text = model(2, &shop.folder.display().to_string());
    let text = text.replace("  server:\n", "  server:\n    files: [./port]\n");
    let model = shop.cluster.write_model("model", &[("model.yaml", &text), ("port", "80\n")]);
    let two = shop.cluster.generate(&model);
    shop.order("n1", "/v1/switch", "{\"generation\": 2, \"on_failure\": \"rollback\"}");
    let returns = |host: &&str| shop.switch_of(host).is_some_and(|switch| switch.left == Some(two) && switch.to == one);
    shop.cluster.until(PATIENCE, || HOSTS.iter().all(returns), "all return");
    let why = shop.switch_of("n3").expect("a switch").why;
    assert!(why.contains("n3/lb can't be checked") && why.contains("payload"), "{why}");
}

#[test]
fn hosts_that_were_away_follow_on_and_back() {
    let mut shop = Shop::new();
    let (one, two) = (GenerationNumber(1), shop.publish(2));
    shop.cluster.kill("n3");
    shop.order("n1", "/v1/switch", "{\"generation\": 2}");
    let active = |shop: &Shop, host: &str| shop.cluster.status(host).and_then(|s| s.generation);
    shop.cluster.until(PATIENCE, || active(&shop, "n2") == Some(two), "n2 was told by n1");
    shop.cluster.start("n3");
    shop.cluster.wait_converged(two, PATIENCE);
    shop.serves(2);
    // The same for a rollback, by an operator's order to one of the hosts, under the policy to hold.
    shop.cluster.kill("n3");
    let (code, text) = shop.ctl(&["rollback", "--timeout", "10s"]);
    assert!(code == 3 && text.matches("rolls back (rollback from generation 2 to 1)").count() == 2, "{code} {text}");
    shop.cluster.start("n3");
    shop.wait_returned(two, one);
    shop.serves(1);
}

/// A user has to decide between two changes: with `hold` the switch waits, and with `rollback`, which must work
/// unattended, it is a failure.
#[test]
fn a_conflict_is_taken_back_under_the_policy_and_else_waited_for() {
    let mut shop = Shop::new();
    let (one, two) = (GenerationNumber(1), shop.publish(2));
    let conf = shop.folder.join("etc/app.conf");
    let mine = fs::read_to_string(&conf).expect("read").replace("version 1", "version one");
    fs::write(&conf, &mine).expect("edited");
    shop.order("n2", "/v1/switch", "{\"generation\": 2, \"on_failure\": \"rollback\"}");
    shop.wait_returned(two, one);
    assert_eq!(fs::read_to_string(&conf).expect("read"), mine, "what a user has made of it is as it was");
    let why = shop.told("n1", "withdraw").join("\n");
    assert!(why.contains("n1/files is in conflict: a user on the host"), "{why}");
    // Without that policy it waits, even over a restart, and a decision completes it.
    shop.order("n2", "/v1/switch", "{\"generation\": 2, \"on_failure\": \"hold\"}");
    let in_conflict = |shop: &Shop| {
        shop.cluster.cob("n1/files").is_some_and(|cob| cob.state.is_some_and(|state| state == "conflict"))
    };
    shop.cluster.until(PATIENCE, || in_conflict(&shop), "it is in conflict");
    shop.cluster.kill("n1");
    shop.cluster.start("n1");
    shop.cluster.wait_answers("n1");
    shop.cluster.until(PATIENCE, || in_conflict(&shop), "it is in conflict still");
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(shop.switch_of("n1").map(|switch| (switch.to, switch.left)), Some((two, None)), "no host rolls back");
    // A later policy also applies to an earlier failure.
    let (code, told) = shop.ctl(&["switch", "2", "--on-failure", "rollback", "--wait", "30s"]);
    assert!(code == 1 && told.contains("n1/files is in conflict") && told.contains("rolled back"), "{code} {told}");
    shop.wait_returned(two, one);
    shop.order("n2", "/v1/switch", "{\"generation\": 2, \"on_failure\": \"hold\"}");
    shop.cluster.until(PATIENCE, || in_conflict(&shop), "it is in conflict");
    let (code, told) = shop.ctl(&["resolve", "n1/files", "--theirs"]);
    assert_eq!(code, 0, "{told}");
    shop.cluster.wait_converged(two, PATIENCE);
    shop.serves(2);
}

/// Two change objects that a check may find `odd`, a state without exit; the second changes in each version.
fn odd(version: u32) -> String {
    format!(
        r#"
security: loopback-only
hosts: {{n1: {{address: "tcp://127.0.0.1:1"}}}}
kinds:
  k:
    states: [down, up, odd]
    preferred: up
    pre_remove: down
    check: {{run: "cd $COB_STATE_DIR; if [ -e odd-until ] && [ $(date +%s) -ge $(cat odd-until) ]; then rm odd-until; echo up > state; fi; cat state 2>/dev/null || echo down"}}
    transitions:
      - {{from: down, to: up, run: "echo up > $COB_STATE_DIR/state"}}
      - {{from: up, to: down, run: "rm $COB_STATE_DIR/state"}}
cobs:
  n1/stays: {{kind: k}}
  n1/changes: {{kind: k, content: {{version: {version}}}}}
"#
    )
}

#[test]
fn a_dead_end_is_of_the_switch_in_which_it_was_come_to() {
    let mut cluster = cluster(&["n1"]);
    for version in 1..=4 {
        let model = cluster.write_model("model", &[("model.yaml", &odd(version))]);
        cluster.generate(&model);
    }
    cluster.bring_up(GenerationNumber(1), PATIENCE);
    let becomes_odd = |cluster: &Cluster, cob: &str| {
        fs::write(cluster.path("n1/cobs").join(cob.replace('/', "+")).join("state"), "odd\n").expect("written");
    };
    let is_odd = |cluster: &Cluster, cob: &str| {
        let _ = cluster.http("n1", "POST", "/v1/check", &format!("{{\"cobs\": [\"{cob}\"]}}"));
        cluster.cob(cob).is_some_and(|cob| cob.state.is_some_and(|state| state == "odd"))
    };
    let order = |cluster: &Cluster, generation: u32| {
        let body = format!("{{\"generation\": {generation}, \"on_failure\": \"rollback\"}}");
        cluster.http("n1", "POST", "/v1/switch", &body).expect("taken");
    };
    // It had no exit state before the switch, so it is no failure of the switch, even over a restart.
    becomes_odd(&cluster, "n1/stays");
    cluster.until(PATIENCE, || is_odd(&cluster, "n1/stays"), "it is odd");
    order(&cluster, 2);
    let active = |cluster: &Cluster| cluster.status("n1").and_then(|status| status.generation);
    cluster.until(PATIENCE, || active(&cluster) == Some(GenerationNumber(2)), "it is active");
    cluster.kill("n1");
    cluster.start("n1");
    cluster.wait_answers("n1");
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(active(&cluster), Some(GenerationNumber(2)));
    assert_eq!(words::told(&cluster, "n1", "withdraw"), [""; 0]);
    // A state that ends by itself is no failure, even without a check in between.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later").as_secs();
    let own = cluster.path("n1/cobs/n1+changes");
    fs::write(own.join("state"), "odd\n").expect("written");
    fs::write(own.join("odd-until"), (now + 3).to_string()).expect("written");
    order(&cluster, 3);
    cluster.until(PATIENCE, || active(&cluster) == Some(GenerationNumber(3)), "it is active");
    let is_up =
        |cluster: &Cluster| cluster.cob("n1/changes").is_some_and(|cob| cob.state.is_some_and(|state| state == "up"));
    cluster.until(PATIENCE, || is_up(&cluster), "it is up by itself");
    assert_eq!(words::told(&cluster, "n1", "withdraw"), [""; 0]);
    // A state found during the switch is a failure, and the host rolls back.
    becomes_odd(&cluster, "n1/changes");
    order(&cluster, 4);
    cluster.until(PATIENCE, || active(&cluster) == Some(GenerationNumber(4)), "it is active");
    cluster.until(PATIENCE, || !words::told(&cluster, "n1", "withdraw").is_empty(), "it is withdrawn");
    let why = words::told(&cluster, "n1", "withdraw").join("\n");
    assert!(why.contains("n1/changes is odd, and no transition leads to up from there"), "{why}");
}

#[test]
fn a_failure_leads_back_to_where_an_order_had_led_back_to() {
    let mut shop = Shop::new();
    let (two, three) = (shop.publish(2), shop.publish(3));
    for generation in ["2", "1", "3", "2"] {
        let (code, told) = shop.ctl(&["switch", generation, "--back", "--wait", "60s"]);
        assert_eq!(code, 0, "{told}");
    }
    shop.break_it("n3", 3);
    let (code, told) = shop.ctl(&["switch", "3", "--on-failure", "rollback", "--wait", "60s"]);
    assert!(code == 1 && told.contains("generation 3 was rolled back"), "{code} {told}");
    shop.wait_returned(three, two);
    shop.serves(2);
}

#[test]
fn a_failed_switch_is_held_explained_and_completed_by_a_retry() {
    let mut shop = Shop::new();
    let two = shop.publish(2);
    shop.break_it("n3", 2);
    let (code, text) = shop.ctl(&["switch", "2", "--wait", "60s"]);
    assert!(code == 1 && text.contains("has not converged, and no transition can start"), "{code} {text}");
    let (_, explained) = shop.ctl(&["explain", "n3/lb"]);
    assert!(explained.contains("to move from down to up") && explained.contains("port 80 is taken"), "{explained}");
    let (code, text) = shop.ctl(&["retry", "--all", "--wait"]);
    assert!(code == 1 && text.contains("n3/lb not settled, and no transition can start:"), "{code} {text}");
    assert!(text.contains("n3/lb is tried again") && text.contains("port 80 is taken"), "{text}");
    shop.mend("n3");
    let (code, text) = shop.ctl(&["retry", "n3/lb", "--wait", "60s"]);
    assert_eq!((code, text.as_str()), (0, "n3/lb is tried again\nn3/lb settled\n"));
    let (code, text) = shop.ctl(&["retry", "--all", "--wait"]);
    assert_eq!((code, text.as_str()), (0, "no change object has failed\n"));
    let (code, text) = shop.ctl(&["retry", "n1/db", "n3/none", "n3/lb", "--wait", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let of = |at: usize, field: &str| told["cobs"][at][field].as_str().unwrap_or_default().to_owned();
    assert_eq!((code, of(0, "detail").as_str()), (1, "n1/db had not failed"), "{text}");
    assert_eq!((of(1, "cob").as_str(), of(1, "error").as_str()), ("n3/none", "n3 has no change object n3/none"));
    assert_eq!((&told["changed"], &told["ended"]), (&false.into(), &"settled".into()), "the others are: {text}");
    shop.cluster.wait_converged(two, PATIENCE);
    shop.serves(2);
}

#[test]
fn a_failed_rollback_stops_and_is_shown_until_its_repair() {
    let mut shop = Shop::new();
    let (one, two) = (GenerationNumber(1), shop.publish(2));
    shop.break_it("n3", 2);
    // It does not come up in the old version either.
    shop.break_it("n2", 1);
    shop.order("n1", "/v1/switch", "{\"generation\": 2, \"on_failure\": \"rollback\"}");
    let stopped = |shop: &Shop| shop.switch_of("n2").is_some_and(|s| s.stage == SwitchStage::Stopped);
    shop.cluster.until(PATIENCE, || stopped(&shop), "n2 has stopped");
    let (code, status) = shop.ctl(&["status"]);
    assert!(code == 1 && status.contains("n2: the rollback has stopped: n2/app failed"), "{code} {status}");
    assert_eq!(shop.told("n2", "withdraw").len(), 1, "no withdrawal of the return");
    shop.cluster.kill("n2");
    shop.cluster.start("n2");
    shop.cluster.until(PATIENCE, || stopped(&shop), "n2 is still marked after a restart");
    shop.mend("n2");
    shop.order("n2", "/v1/retry", "{\"cob\": \"n2/app\"}");
    shop.wait_returned(two, one);
    shop.serves(1);
}

#[test]
fn a_return_that_can_not_be_begun_is_marked_and_tried_again_by_an_order_alone() {
    let mut shop = Shop::new();
    let (one, two) = (GenerationNumber(1), shop.publish(2));
    shop.cluster.switch_all(two);
    shop.cluster.wait_converged(two, PATIENCE);
    // The generation to roll back to is neither on the host nor available.
    let (depot, away) = (shop.cluster.path("depot"), shop.cluster.path("depot.away"));
    fs::rename(&depot, &away).expect("moved");
    fs::remove_dir_all(shop.cluster.path("n1/generations/1")).expect("removed");
    shop.order("n1", "/v1/rollback", "{}");
    let stopped = |shop: &Shop| shop.switch_of("n1").is_some_and(|s| s.stage == SwitchStage::Stopped);
    shop.cluster.until(PATIENCE, || stopped(&shop), "n1 has stopped");
    // All change objects are where generation 2 wants them, and have been for long.
    std::thread::sleep(Duration::from_secs(5));
    let (code, status) = shop.ctl(&["status"]);
    let marked = "n1: the rollback has stopped: the rollback to generation 1 has failed";
    assert!(code == 1 && status.contains(marked), "{code} {status}");
    assert_eq!(shop.told("n1", "stopped").len(), 1, "nothing is tried again");
    shop.cluster.kill("n1");
    shop.cluster.start("n1");
    shop.cluster.until(PATIENCE, || stopped(&shop), "n1 is still marked after a restart");
    fs::rename(&away, &depot).expect("moved");
    shop.order("n1", "/v1/rollback", "{}");
    shop.wait_returned(two, one);
    shop.serves(1);
}

#[test]
fn a_host_that_does_not_reach_the_others_goes_back_by_itself_also_over_a_restart() {
    let mut shop = Shop::new();
    let (one, two) = (GenerationNumber(1), shop.publish(2));
    fs::write(shop.folder.join("wait-n1"), "").expect("written");
    shop.cluster.until(PATIENCE, || shop.cluster.status("n1").is_some_and(|s| s.peers.iter().all(|p| p.up)), "links");
    shop.order("n1", "/v1/switch", "{\"generation\": 2, \"guard_ms\": 4000, \"alone\": true}");
    let guarded = || shop.switch_of("n1").is_some_and(|s| s.guard_left_ms.is_some());
    shop.cluster.until(PATIENCE, guarded, "the guard is on");
    shop.cluster.kill("n2");
    shop.cluster.kill("n3");
    shop.cluster.kill("n1");
    shop.cluster.start("n1");
    shop.cluster.wait_answers("n1");
    fs::remove_file(shop.folder.join("wait-n1")).expect("removed");
    let back = || shop.switch_of("n1").is_some_and(|s| s.left == Some(two) && s.to == one);
    shop.cluster.until(PATIENCE, back, "n1 goes back");
    let why = shop.switch_of("n1").expect("a switch").why;
    assert_eq!(why, "the guard: not reached of 2 hosts: n2, n3");
    // The others have the old generation, and n1 converges with them.
    shop.cluster.start("n2");
    shop.cluster.start("n3");
    shop.cluster.wait_converged(one, PATIENCE);
    shop.serves(1);
}

/// Two hosts. In the second generation n2/app acts under a grant of n1/net as long as a file exists, and n1/late keeps
/// n1 from converging as long as another file exists.
fn two_hosts(more: bool, folder: &str) -> String {
    let added = r#"
  n1/net: {kind: quick}
  n1/late: {kind: slow, content: {}}
  n2/app:
    kind: slow
    content: {}
    transitions:
      - {from: down, to: up, needs: [n1/net@up]}
"#;
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
kinds:
  slow:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {{run: ./check.sh}}
    transitions:
      - {{from: down, to: up, run: "echo acts > {folder}/acts-$COB_HOST; while [ -e {folder}/wait-$COB_HOST ]; do sleep 0.05; done; echo up > $COB_STATE_DIR/state"}}
      - {{from: up, to: down, run: "echo down > $COB_STATE_DIR/state"}}
cobs:
  n1/base: {{kind: quick}}
  n2/base: {{kind: quick}}
{}"#,
        if more { added } else { "" }
    )
}

/// The grant to the unreachable host is invalidated, and that host learns of it when it is back.
#[test]
fn the_connectivity_guard_invalidates_grants_of_unreachable_hosts() {
    let mut cluster = cluster(&["n1", "n2"]);
    let folder = cluster.path("two");
    fs::create_dir(&folder).expect("a folder");
    let publish = |cluster: &mut Cluster, more| {
        let text = two_hosts(more, &folder.display().to_string());
        let model = cluster.write_model("model", &[("model.yaml", &text), QUICK, CHECK]);
        cluster.generate(&model)
    };
    let one = publish(&mut cluster, false);
    cluster.bring_up(one, PATIENCE);
    publish(&mut cluster, true);
    let (acts, waits, late) = (folder.join("acts-n2"), folder.join("wait-n2"), folder.join("wait-n1"));
    fs::write(&waits, "").expect("written");
    fs::write(&late, "").expect("written");
    cluster.until(PATIENCE, || cluster.status("n1").is_some_and(|s| s.peers.iter().all(|p| p.up)), "links");
    let body = "{\"generation\": 2, \"guard_ms\": 3000, \"on_failure\": \"rollback\"}";
    cluster.http("n1", "POST", "/v1/switch", body).expect("ordered");
    cluster.until(PATIENCE, || acts.exists(), "n2/app acts under a promise of n1/net");
    cluster.kill("n2");
    fs::remove_file(&late).expect("removed");
    let back = || cluster.status("n1").is_some_and(|s| s.generation == Some(one) && s.converged);
    cluster.until(PATIENCE, back, "n1 is back, without n2");
    let invalidated = words::told(&cluster, "n1", "lapsed");
    assert!(invalidated.len() == 1 && invalidated[0].contains("the grant to n2/app"), "{invalidated:?}");
    let shown = cluster.status("n1").expect("it answers").invalid_grants;
    assert!(
        shown.len() == 1 && shown[0].held_by == *"n2/app" && shown[0].cause == InvalidGrantCause::Guard,
        "{shown:?}"
    );
    cluster.start("n2");
    fs::remove_file(&waits).expect("removed");
    cluster.wait_converged(one, PATIENCE);
    let given_back = || words::told(&cluster, "n1", "returned").iter().any(|d| d.contains("n2/app"));
    cluster.until(PATIENCE, given_back, "n2 has heard it");
    let over = || ["n1", "n2"].iter().all(|host| cluster.status(host).is_some_and(|s| s.invalid_grants.is_empty()));
    cluster.until(PATIENCE, over, "nothing is broken any more");
}

/// In its second generation n1/app requests n2/lib, which can't come up, when it is half way; a file delays that.
fn asks_late(version: u32, folder: &str) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
kinds:
  staged:
    states: [down, half, up]
    preferred: down
    pre_remove: down
    check: {{run: ./check.sh}}
    transitions:
      - {{from: down, to: half, run: "while [ -e {folder}/wait ]; do sleep 0.05; done; echo half > $COB_STATE_DIR/state"}}
      - {{from: half, to: up, run: "echo up > $COB_STATE_DIR/state"}}
      - {{from: up, to: down, run: "echo down > $COB_STATE_DIR/state"}}
      - {{from: half, to: down, run: "echo down > $COB_STATE_DIR/state"}}
  broken:
    states: [down, up]
    preferred: down
    pre_remove: down
    retries: 0
    check: {{run: ./check.sh}}
    transitions:
      - {{from: down, to: up, failure: down, run: "echo 'no license'; exit 1"}}
      - {{from: up, to: down, run: "echo down > $COB_STATE_DIR/state"}}
cobs:
  n1/app: {{kind: staged, preferred: {}, transitions: [{{from: half, to: up, needs: [n2/lib@up]}}]}}
  n2/lib: {{kind: broken}}
  n2/conf: {{kind: quick, content: {{version: {version}}}}}
"#,
        if version == 1 { "down" } else { "up" }
    )
}

/// n2 has been idle and converged for long when n1 requests a change object of it.
#[test]
fn a_late_request_that_fails_on_a_settled_host_is_rolled_back() {
    let mut cluster = cluster(&["n1", "n2"]);
    let folder = cluster.path("late");
    fs::create_dir(&folder).expect("a folder");
    let publish = |cluster: &mut Cluster, version| {
        let text = asks_late(version, &folder.display().to_string());
        let model = cluster.write_model("model", &[("model.yaml", &text), QUICK, CHECK]);
        cluster.generate(&model)
    };
    let one = publish(&mut cluster, 1);
    cluster.bring_up(one, PATIENCE);
    let two = publish(&mut cluster, 2);
    fs::write(folder.join("wait"), "").expect("written");
    cluster.http("n1", "POST", "/v1/switch", "{\"generation\": 2, \"on_failure\": \"rollback\"}").expect("ordered");
    let settled = || {
        let status = cluster.status("n2").expect("it answers");
        status.generation == Some(two) && status.switch.is_none() && status.converged
    };
    cluster.until(PATIENCE, settled, "n2 has settled");
    fs::remove_file(folder.join("wait")).expect("removed");
    let returned = |host: &str| {
        let switch = cluster.status(host).and_then(|s| s.switch);
        switch.is_some_and(|s| s.left == Some(two) && s.to == one && s.stage == SwitchStage::Settled)
    };
    cluster.until(PATIENCE, || returned("n1") && returned("n2"), "both have returned");
    let why = cluster.status("n1").and_then(|s| s.switch).expect("a switch").why;
    assert!(why.contains("n2/lib failed to go from down to up") && why.contains("told by n2"), "{why}");
    assert_eq!(words::told(&cluster, "n2", "reopened"), ["asked by n1 in the switch"]);
    assert_eq!(words::told(&cluster, "n1", "reopened").len(), 0);
    for host in ["n1", "n2"] {
        assert_eq!(words::told(&cluster, host, "withdraw").len(), 1, "{host} goes back once");
    }
    let (code, said) = words::run(words::cobctl(&cluster, &["n1", "n2"], &["outcomes", "2", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let newest = told["outcomes"].as_array().and_then(|all| all.last()).expect("one");
    assert_eq!((code, newest["ended"].as_str()), (1, Some("rolled-back")), "{newest}");
}

#[test]
fn a_guard_that_is_satisfied_lets_the_switch_settle() {
    let mut shop = Shop::new();
    let two = shop.publish(2);
    shop.cluster.until(PATIENCE, || shop.cluster.status("n1").is_some_and(|s| s.peers.iter().all(|p| p.up)), "links");
    shop.order("n1", "/v1/switch", "{\"generation\": 2, \"guard_ms\": 20000}");
    shop.cluster.wait_converged(two, PATIENCE);
    let settled = || HOSTS.iter().all(|host| shop.switch_of(host).is_none());
    shop.cluster.until(PATIENCE, settled, "all have settled");
    assert_eq!(shop.told("n1", "confirmed").len(), 1);
    shop.serves(2);
}
