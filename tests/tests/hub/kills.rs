//! Hubs, jobs and calls of providers killed with SIGKILL at random moments: nothing is created twice, no machine is
//! unlisted, no job is a ghost, no answered request is lost.
//!
//! `COB_HUB_KILLS` is the number of kills (20 by default), `COB_SEED` the seed of operations and victims.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use cob_engine::sim::Random;
use cob_tests::processes::{self, Signal};
use cob_tests::wait::comes_true;
use serde_json::{Value, json};

use crate::yard::{PATIENCE, Yard, from_environment, list, text};

const TENANTS: [&str; 3] = ["red", "green", "blue"];
const CLUSTERS: [&str; 3] = ["a", "b", "c"];

/// What the hub has answered: jobs with their tenants.
#[derive(Default)]
struct Campaign {
    answered: BTreeMap<u64, &'static str>,
    kills: BTreeMap<&'static str, u64>,
    outcomes: BTreeMap<String, u64>,
    orphans: usize,
}

impl Campaign {
    /// Orders a random operation. The hub may be dead: then there is no answer.
    fn order(&mut self, yard: &Yard, random: &mut Random) {
        let tenant = TENANTS[random.below(3) as usize];
        let cluster = CLUSTERS[random.below(3) as usize];
        let nodes = random.between(1, 3);
        let operation = match random.below(12) {
            0..3 => {
                let template = if random.permille(700) { "odd" } else { "shop" };
                let body = json!({ "name": cluster, "wanted": { "template": template, "nodes": nodes } });
                return self.send(yard, tenant, "/v1/clusters", &body);
            }
            3..6 => json!({ "operation": "resize", "nodes": nodes }),
            6 => json!({ "operation": "configure", "config": { "colour": random.below(5) } }),
            7 => json!({ "operation": "rollback" }),
            8 => json!({ "operation": "replace", "node": format!("{cluster}-1") }),
            9 => json!({ "operation": "restart" }),
            _ => json!({ "operation": "delete" }),
        };
        self.send(yard, tenant, &format!("/v1/clusters/{cluster}/operations"), &operation);
        if random.permille(100)
            && let Some((id, tenant)) = self.answered.last_key_value()
        {
            let kill = random.permille(500);
            let path = format!("/v1/jobs/{id}/cancel?kill={kill}");
            let _ = yard.try_with(yard.token(&format!("{tenant}/ann")), "POST", &path, None);
        }
    }

    fn send(&mut self, yard: &Yard, tenant: &'static str, path: &str, body: &Value) {
        let answer = yard.try_with(yard.token(&format!("{tenant}/ann")), "POST", path, Some(body));
        if let Ok((status, answer)) = answer {
            assert!(matches!(status, 202 | 404 | 409), "{status} {answer}");
            if status == 202 {
                let id = answer["job"].as_u64().expect("a job");
                assert_eq!(self.answered.insert(id, tenant), None, "job {id} was answered twice");
            }
        }
    }

    /// Kills something.
    fn kill(&mut self, yard: &mut Yard, random: &mut Random) {
        let jobs = yard.folder().join("jobs").display().to_string();
        let victim = random.below(3);
        if victim == 0 {
            yard.kill();
            *self.kills.entry("hub").or_default() += 1;
            // Jobs go on without a hub for a moment.
            std::thread::sleep(Duration::from_millis(random.below(300)));
            yard.start();
            return;
        }
        let is_call = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("cob-provider-odd")
        };
        let all = processes::mentioning(&jobs);
        let chosen: Vec<u32> = if victim == 1 {
            let leaders = fs::read_dir(yard.folder().join("jobs")).into_iter().flatten().flatten();
            let leaders = leaders.filter_map(|entry| fs::read_to_string(entry.path().join("alive")).ok());
            let leaders: BTreeSet<u32> = leaders.filter_map(|text| text.trim().parse().ok()).collect();
            all.into_iter().filter(|pid| leaders.contains(pid)).collect()
        } else {
            all.into_iter().filter(|pid| is_call(*pid)).collect()
        };
        if !chosen.is_empty() {
            let pid = chosen[random.below(chosen.len() as u64) as usize];
            processes::signal(pid, Signal::KILL);
            *self.kills.entry(if victim == 1 { "job" } else { "call" }).or_default() += 1;
        }
    }

    fn killed(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Waits until all jobs are final, and compares the hub with the world.
    fn judge(&mut self, yard: &mut Yard) {
        yard.faults(json!({}));
        yard.restart();
        // Calls that hang end by a kill: nothing else ends them in time.
        let hanging = yard.folder().join("jobs").display().to_string();
        let mut open = Vec::new();
        let calm = comes_true(4 * PATIENCE, || {
            for pid in processes::mentioning(&hanging) {
                let name = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                if name.contains("nanosleep") && String::from_utf8_lossy(&line).contains("cob-provider-odd") {
                    processes::signal(pid, Signal::KILL);
                }
            }
            let (_, jobs) = yard.root("GET", "/v1/jobs?open=true", None);
            open = list(jobs);
            open.is_empty()
        });
        assert!(calm, "these jobs never end: {open:?}\n{}", yard.log());
        for (id, tenant) in std::mem::take(&mut self.answered) {
            let (status, job) = yard.user(&format!("{tenant}/ann"), "GET", &format!("/v1/jobs/{id}"), None);
            assert_eq!(status, 200, "the answered job {id} is lost: {job}");
            *self.outcomes.entry(text(&job["state"])).or_default() += 1;
        }
        let mut known: BTreeMap<&str, BTreeSet<String>> =
            BTreeMap::from([("odd", BTreeSet::new()), ("process", BTreeSet::new())]);
        let orphans = yard.orphans();
        for machine in yard.machines().iter().chain(&orphans) {
            let provider = if machine["provider"] == "odd" { "odd" } else { "process" };
            let id =
                machine["id"].as_str().map_or_else(|| self.of_label(yard, &machine["token"]), |id| vec![id.to_owned()]);
            for id in id {
                assert!(known.get_mut(provider).expect("a provider").insert(id), "{machine} is listed twice");
            }
        }
        for (provider, known) in known {
            let existing = yard.existing(provider);
            let unlisted: Vec<_> = existing.difference(&known).collect();
            assert!(unlisted.is_empty(), "{provider}: {unlisted:?} are listed nowhere");
        }
        self.orphans += orphans.len();
        // Each daemon belongs to a machine that exists.
        let folder = yard.folder().join("providers");
        for pid in processes::mentioning(&folder.display().to_string()) {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let homes = ["odd", "process"].map(|provider| (provider, folder.join(provider).display().to_string()));
            let Some((provider, home)) = homes.iter().find(|(_, home)| line.contains(home.as_str())) else { continue };
            let token = line.split(home.as_str()).nth(1).and_then(|rest| rest.split('/').nth(1)).unwrap_or_default();
            let lives = yard.existing(provider).contains(token) || !processes::lives(pid);
            assert!(lives, "the daemon {pid} has no machine: {line}");
        }
        let left = processes::mentioning(&hanging);
        assert_eq!(left, Vec::<u32>::new(), "programs of jobs outlive their jobs");
        yard.audit_is_whole();
    }

    /// The machines of a label at the odd provider.
    fn of_label(&self, yard: &Yard, label: &Value) -> Vec<String> {
        let folder = yard.folder().join("providers/odd/odd");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mine = entries.filter(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| *label == *text));
        mine.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

#[test]
fn nothing_is_lost_or_created_twice_by_kills() {
    let (kills, seed) = (from_environment("COB_HUB_KILLS", 20), from_environment("COB_SEED", 1));
    eprintln!("COB_SEED={seed}");
    let mut random = Random::new(seed);
    let mut yard = Yard::new(&[]);
    yard.catalogue();
    for tenant in TENANTS {
        yard.tenant(tenant, &["ann"]);
    }
    let mut campaign = Campaign::default();
    let mut rounds = 0;
    while campaign.killed() < kills {
        let before = campaign.killed();
        let ignores_tokens = random.permille(500);
        yard.faults(
            json!({ "slow": 500, "lose": 60, "fail": 60, "garbage": 30, "hang": 20, "ignores_tokens": ignores_tokens }),
        );
        for _ in 0..400 {
            if campaign.killed() >= before + 15 || campaign.killed() >= kills {
                break;
            }
            for _ in 0..random.between(1, 3) {
                campaign.order(&yard, &mut random);
            }
            std::thread::sleep(Duration::from_millis(random.below(400)));
            campaign.kill(&mut yard, &mut random);
        }
        campaign.judge(&mut yard);
        rounds += 1;
    }
    eprintln!(
        "{rounds} rounds, kills {:?}, jobs {:?}, {} listed orphans",
        campaign.kills, campaign.outcomes, campaign.orphans
    );
}
