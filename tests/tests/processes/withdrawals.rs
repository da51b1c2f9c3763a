//! Successive switches that fail with the policy to roll back, while daemons are killed all the time: every host ends
//! in its previous state, and the next switch that can succeed does.
//!
//! `COB_SWITCHES` is the number of switches (3 by default, of which the third succeeds), `COB_SEED` the seed,
//! `COB_STORM` the longest time of the kills in a switch, in seconds (20 by default).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cob_engine::sim::Random;
use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;
use cob_types::status::{HostStatus, SwitchStage};

use crate::kills::{from_environment, pause};
use crate::{PATIENCE, cluster};

const HOSTS: [&str; 4] = ["h1", "h2", "h3", "h4"];
/// Servers per host; and as many helpers in total.
const EACH: usize = 3;
/// The pause between two kills.
const PAUSE_MS: u64 = 300;

const KINDS: &str = r#"
  server:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    retries: 0
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: up, failure: down, run: ./up.sh}
      - {from: up, to: down, run: ./down.sh}
      - {from: outdated, to: down, run: ./down.sh}
  helper:
    states: [down, up, outdated]
    preferred: down
    pre_remove: down
    retries: 0
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: up, failure: down, run: ./up.sh}
      - {from: up, to: down, run: ./down.sh}
      - {from: outdated, to: down, run: ./down.sh}
"#;

const CHECK: &str = r#"#!/bin/sh
if [ ! -e "$COB_STATE_DIR/up" ]; then echo down
elif cmp -s "$COB_STATE_DIR/up" "$COB_CONTENT"; then echo up
else echo outdated; fi
"#;

const UP: &str = r#"#!/bin/sh
sleep 0.05
if [ "$COB_ID $(cat "$COB_CONTENT")" = "$(cat FOLDER/broken)" ]; then echo broken; exit 1; fi
cp "$COB_CONTENT" "$COB_STATE_DIR/new" && mv "$COB_STATE_DIR/new" "$COB_STATE_DIR/up"
cp "$COB_CONTENT" "FOLDER/$(echo "$COB_ID" | tr / -)"
"#;

const DOWN: &str = "#!/bin/sh\nsleep 0.02\nrm -f \"$COB_STATE_DIR/up\"\n";

/// Servers that require others before them, across all hosts, each with a helper that is up only while its server is
/// started: a helper is requested late, from a host that may have converged long before.
struct Field {
    cluster: Cluster,
    /// Their names, in an order in which each requires only earlier servers.
    servers: Vec<String>,
    requires: Vec<BTreeSet<usize>>,
    /// The version of each server, and of each helper. A server that shall fail is marked by its version and not by the
    /// generation: a host that has not switched yet correctly starts an unchanged helper under the older generation.
    versions: Vec<u64>,
    helpers: Vec<u64>,
    folder: PathBuf,
    kills: u64,
}

impl Field {
    fn new(random: &mut Random) -> Self {
        let cluster = cluster(&HOSTS);
        let folder = cluster.path("field");
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("broken"), "nothing").expect("written");
        let named = |host: &&str| (0..EACH).map(|n| format!("{host}/s{n}")).collect::<Vec<_>>();
        let mut servers: Vec<_> = HOSTS.iter().flat_map(named).collect();
        random.shuffle(&mut servers);
        let some = |n: usize, random: &mut Random| (0..n.min(2)).map(|_| random.below(n as u64) as usize).collect();
        let requires = (0..servers.len()).map(|n| some(n, random)).collect();
        let versions = vec![1; servers.len()];
        let helpers = versions.clone();
        Self { cluster, servers, requires, versions, helpers, folder, kills: 0 }
    }

    /// The helper of a server, on the next host.
    fn helper(&self, server: usize) -> String {
        let (host, name) = self.servers[server].split_once('/').expect("a name");
        let at = HOSTS.iter().position(|h| *h == host).expect("a host");
        format!("{}/of-{host}-{name}", HOSTS[(at + 1) % HOSTS.len()])
    }

    fn publish(&mut self) -> GenerationNumber {
        let mut text = String::from("security: loopback-only\nhosts:\n");
        for (host, port) in HOSTS.iter().zip(1..) {
            let _ = writeln!(text, "  {host}: {{address: \"tcp://127.0.0.1:{port}\"}}");
        }
        let _ = write!(text, "budgets: {{one: {{at_most: 1, host: h1}}}}\nkinds:{KINDS}cobs:\n");
        for (n, server) in self.servers.iter().enumerate() {
            let required: Vec<_> = self.requires[n].iter().map(|r| self.servers[*r].as_str()).collect();
            let (helper, required) = (self.helper(n), required.join(", "));
            let (version, its) = (self.versions[n], self.helpers[n]);
            let _ = writeln!(text, "  {helper}: {{kind: helper, content: {{v: {its}}}}}");
            let _ = writeln!(text, "  {server}:\n    kind: server\n    content: {{v: {version}}}");
            let _ = writeln!(
                text,
                "    requires: [{required}]\n    transitions: [{{from: down, to: up, needs: [{helper}@up]}}]"
            );
            // A member of the budget must not need another member.
            if !self.requires.iter().any(|all| all.contains(&n)) {
                let _ = writeln!(text, "    budget: one");
            }
        }
        let up = UP.replace("FOLDER", &self.folder.display().to_string());
        let files = [("model.yaml", text.as_str()), ("check.sh", CHECK), ("up.sh", &up), ("down.sh", DOWN)];
        let model = self.cluster.write_model("model", &files);
        self.cluster.generate(&model)
    }

    fn go(&self, generation: GenerationNumber) {
        let body = format!("{{\"generation\": {generation}, \"on_failure\": \"rollback\"}}");
        let told = || HOSTS.iter().any(|h| self.cluster.http(h, "POST", "/v1/switch", &body).is_ok());
        self.cluster.until(PATIENCE, told, "some host is told");
    }

    /// All hosts have this generation and have converged, without failures; after a rollback, at least one host has
    /// abandoned the other generation.
    fn stands(&self, generation: GenerationNumber, left: Option<GenerationNumber>) -> Result<(), String> {
        let statuses: BTreeMap<&str, Option<HostStatus>> = HOSTS.iter().map(|h| (*h, self.cluster.status(h))).collect();
        let mut has_left = left.is_none();
        for (host, status) in &statuses {
            let Some(status) = status else { return Err(format!("{host} does not answer")) };
            let failed: Vec<_> = status.cobs.iter().filter(|c| c.failed).map(|c| c.id.as_str()).collect();
            let stage = status.switch.as_ref().map(|s| (s.stage, s.why.clone()));
            let stopped = stage.as_ref().is_some_and(|(stage, _)| *stage == SwitchStage::Stopped);
            if status.generation != Some(generation) || !status.converged || !failed.is_empty() || stopped {
                let (at, converged) = (status.generation, status.converged);
                return Err(format!("{host} in {at:?}, converged: {converged}, failed: {failed:?}, {stage:?}"));
            }
            has_left |= left.is_some_and(|left| status.withdrawn.contains(&left));
        }
        if has_left { Ok(()) } else { Err(format!("nobody has left {left:?}")) }
    }

    /// Kills and restarts one daemon after the other until this state is reached, or the storm ends.
    fn kill_until(&mut self, generation: GenerationNumber, left: Option<GenerationNumber>, random: &mut Random) {
        let (began, storm) = (Instant::now(), Duration::from_secs(from_environment("COB_STORM", 20)));
        loop {
            let host = HOSTS[random.below(HOSTS.len() as u64) as usize];
            self.cluster.kill(host);
            self.cluster.start(host);
            self.cluster.wait_answers(host);
            self.kills += 1;
            let Err(why) = self.stands(generation, left) else { break };
            if began.elapsed() > storm {
                // The result without further kills.
                let ends = || self.stands(generation, left).is_ok();
                self.cluster.until(PATIENCE, ends, &format!("{generation} stands, left {left:?}; at last: {why}"));
                break;
            }
            pause(random.below(PAUSE_MS));
        }
        // The state is stable.
        std::thread::sleep(Duration::from_millis(500));
        let ends = || self.stands(generation, left).is_ok();
        self.cluster.until(PATIENCE, ends, "all stands so without kills");
    }

    /// Each server was last started in the given version.
    fn serves(&self, versions: &[u64]) {
        for (server, version) in self.servers.iter().zip(versions) {
            let file = self.folder.join(server.replace('/', "-"));
            let content = fs::read_to_string(&file).expect("it was started once");
            assert_eq!(content, format!("{{\"v\":{version}}}"), "{server}");
        }
    }
}

#[test]
fn a_failed_switch_is_rolled_back_on_all_hosts_despite_kills() {
    let (switches, seed) = (from_environment("COB_SWITCHES", 3), from_environment("COB_SEED", 1));
    let (mut random, mut kills) = (Random::new(seed ^ 0x60), Random::new(seed ^ 0x61));
    let mut field = Field::new(&mut random);
    let mut good = field.publish();
    field.cluster.bring_up(good, PATIENCE);
    for switch in 1..=switches {
        let before = (field.versions.clone(), field.helpers.clone());
        for version in &mut field.versions {
            *version += u64::from(random.permille(250));
        }
        let at = random.below(field.versions.len() as u64) as usize;
        field.versions[at] = before.0[at] + 1;
        let (broken, version) = if random.permille(500) {
            field.helpers[at] += 1;
            (field.helper(at), field.helpers[at])
        } else {
            (field.servers[at].clone(), field.versions[at])
        };
        let next = field.publish();
        let succeeds = switch % 3 == 0;
        let told = if succeeds { "nothing".to_owned() } else { format!("{broken} {{\"v\":{version}}}") };
        fs::write(field.folder.join("broken"), told).expect("written");
        field.go(next);
        if succeeds {
            good = next;
            field.kill_until(good, None, &mut kills);
        } else {
            field.kill_until(good, Some(next), &mut kills);
            (field.versions, field.helpers) = before;
        }
        field.serves(&field.versions);
        let end = if succeeds { "there".to_owned() } else { format!("taken back, as {broken} failed") };
        println!("switch {switch} of {switches}: {end}; {} kills", field.kills);
    }
}
