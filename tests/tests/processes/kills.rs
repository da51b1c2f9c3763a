//! Daemons killed with SIGKILL at random moments: all change objects converge, and every action that ran was permitted.
//!
//! The events are read from the log of the scripts alone and judged by [`cob_tests::script_log`]. `COB_KILLS` is the
//! number of kills (12 by default), `COB_SEED` the seed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_engine::sim::Random;
use cob_tests::cluster::Cluster;
use cob_tests::script_log;
use cob_types::GenerationNumber;
use cobgen::draft::Draft;

use crate::{PATIENCE, cluster};

const HOSTS: [&str; 3] = ["mds1", "oss1", "oss2"];

pub(crate) fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text:?}")))
}

/// The example `simple` with its own log and with actions slow enough to be hit by a kill. Its log contains the
/// generation, too.
fn slow_example(cluster: &Cluster) -> (PathBuf, PathBuf) {
    let model = cluster.copy_example("simple");
    let log = cluster.path("actions.log");
    change(&model.join("model.yaml"), "/tmp/cob-simple.log", &log.display().to_string());
    change(&model.join("lib.sh"), "$(date +%s%N)\"", "$(date +%s%N) $COB_GENERATION\"");
    change(&model.join("lib.sh"), "switch_on() {\n", "switch_on() {\n    sleep 0.05\n");
    change(&model.join("lib.sh"), "switch_off() {\n", "switch_off() {\n    sleep 0.03\n");
    (model, log)
}

fn change(file: &Path, old: &str, new: &str) {
    let text = fs::read_to_string(file).expect("a text");
    assert!(text.contains(old), "{} does not contain {old:?}", file.display());
    fs::write(file, text.replace(old, new)).expect("written");
}

/// Kills a daemon at a random moment, or several at once, this many times, and restarts them.
fn kill_some(cluster: &mut Cluster, random: &mut Random, times: u64) {
    for _ in 0..times {
        pause(random.below(150));
        let mut hosts = HOSTS;
        random.shuffle(&mut hosts);
        let together = if random.permille(300) { random.between(2, 3) } else { 1 };
        for host in hosts.iter().take(together as usize) {
            cluster.kill(host);
            pause(random.below(40));
        }
        for host in hosts.iter().take(together as usize).rev() {
            cluster.start(host);
            pause(random.below(40));
        }
    }
}

/// The test needs a random moment, so it does not wait for a condition.
pub(crate) fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

fn assert_allowed(cluster: &Cluster, log: &Path, seed: u64) {
    let text = fs::read_to_string(log).expect("the scripts' log");
    let lines = script_log::read(&text, GenerationNumber(1)).expect("whole lines");
    let faults = script_log::judge(&lines, cluster.generations());
    assert!(faults.is_empty(), "COB_SEED={seed}:\n{}\n\n{text}", faults.join("\n"));
}

#[test]
fn daemons_killed_on_the_way_up_converge_in_order() {
    let (kills, seed) = (from_environment("COB_KILLS", 12), from_environment("COB_SEED", 1));
    let mut random = Random::new(seed);
    for round in 0..kills.div_ceil(4) {
        let mut cluster = cluster(&HOSTS);
        let (model, log) = slow_example(&cluster);
        let generation = cluster.generate(&model);
        cluster.start_all();
        cluster.switch_all(generation);
        kill_some(&mut cluster, &mut random, 4.min(kills - 4 * round));
        cluster.wait_converged(generation, PATIENCE);
        assert_allowed(&cluster, &log, seed);
    }
}

/// Another model of the same hosts: two contents changed, one change object removed, another added in its place.
fn other(draft: &Draft) -> Draft {
    let mut other = draft.clone();
    for changed in ["oss1/net", "mds1/mdt"] {
        let cob = other.cobs.get_mut(changed).expect("in the example");
        cob.value.content["changed"] = true.into();
    }
    let mut moved = other.cobs.remove("oss2/ost0").expect("in the example");
    moved.value.content["new"] = true.into();
    other.cobs.insert("oss2/ost1".parse().expect("an id"), moved);
    for cob in other.cobs.values_mut() {
        for arrow in cob.value.arrows.iter_mut().filter(|a| a.on.as_str() == "oss2/ost0") {
            arrow.on = "oss2/ost1".parse().expect("an id");
        }
    }
    other
}

#[test]
fn daemons_killed_during_a_switch_converge_in_order() {
    let (kills, seed) = (from_environment("COB_KILLS", 12), from_environment("COB_SEED", 1));
    let mut random = Random::new(seed ^ 0x5117);
    let mut cluster = cluster(&HOSTS);
    let (model, log) = slow_example(&cluster);
    let one = cluster.load(&model);
    let drafts = [other(&one), one.clone()];
    let first = cluster.publish_draft(&one);
    cluster.bring_up(first, PATIENCE);
    for round in 0..kills.div_ceil(4) {
        let next = cluster.publish_draft(&drafts[round as usize % 2]);
        cluster.switch_all(next);
        kill_some(&mut cluster, &mut random, 4.min(kills - 4 * round));
        cluster.wait_converged(next, PATIENCE);
        assert_allowed(&cluster, &log, seed);
    }
}
