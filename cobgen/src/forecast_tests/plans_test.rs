//! Plans of small systems, compared with manual calculations, and of random systems, compared with the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_engine::sim::{Config, Initial, World};
use cob_types::history::{Facts, HistoryEntry};
use cob_types::{Bundle, CobId, Generation, GenerationNumber, HostName};
use serde_json::json;

use crate::generation::assemble;
use crate::testing::{Sketch, id, random};
use cob_forecast::legs::joined;
use cob_forecast::plan::{SwitchPlan, Why};
use cob_forecast::progress::{Made, Progress};
use cob_forecast::{Asked, Durations, Forecasted, Sides, Source, forecast, show};
use cob_forecast::{Side, switch_order};

#[path = "../../../cob-types/tests/support/facts.rs"]
mod facts;
use facts::with_facts;

fn generation(sketch: &Sketch, number: u64) -> Generation {
    let (number, parent) = (GenerationNumber(number), GenerationNumber(number - 1));
    assemble(sketch.draft.clone(), number, parent).expect("a draft without faults").generation
}

fn planned(from: &Generation, to: &Generation, durations: &str) -> Forecasted {
    let durations = Durations::of_text(durations).expect("durations");
    let sides = Sides::open(Source::Made(from), Source::Made(to)).expect("in memory");
    forecast(sides, Asked { durations, runs: 20, seed: 7, ..Asked::default() }).expect("an order")
}

/// The shop: a load balancer requires an application, which requires a server, which requires a configuration.
fn shop() -> Sketch {
    let mut sketch = Sketch::new();
    for cob in ["n1/config", "n1/db", "n2/app", "n3/lb", "n3/logs"] {
        sketch.cob(cob, "up");
    }
    sketch.requires("n1/db", "n1/config").requires("n2/app", "n1/db").requires("n3/lb", "n2/app");
    sketch
}

const SHOP: &str = "\
\"*\": 1s\ncheck: 0s\nmessage: 0s\n\"*/lb up>down\": 100ms\n\"*/lb down>up\": 300ms\nn2/app down>up: 2s\n\
n1/config outdated>up: 50ms\nn1/config outdated>down: 50ms\nn1/db down>up: {min: 500ms, median: 700ms, p90: 900ms}";

fn changed() -> (Generation, Generation) {
    let before = shop();
    let mut after = shop();
    after.content("n1/config", json!({"price": 11}));
    (generation(&before, 1), generation(&after, 2))
}

fn transitions(plan: &SwitchPlan) -> Vec<String> {
    let tell = |at: usize| {
        let step = &plan.transitions[at];
        format!("{} {}>{} {}..{}", step.cob, step.from, step.to, step.begin_us / 1000, step.end_us / 1000)
    };
    (0..plan.transitions.len()).map(tell).collect()
}

#[test]
fn the_forecast_end_equals_the_manual_calculation() {
    let (before, after) = changed();
    let Forecasted { plan, simulated, .. } = planned(&before, &after, SHOP);
    // lb down 0.1, app down 1, db down 1, config 0.05, db up 0.7, app up 2, lb up 0.3.
    let expected = [
        "n3/lb up>down 0..100",
        "n2/app up>down 100..1100",
        "n1/db up>down 1100..2100",
        "n1/config outdated>up 2100..2150",
        "n1/db down>up 2150..2850",
        "n2/app down>up 2850..4850",
        "n3/lb down>up 4850..5150",
    ];
    assert_eq!(transitions(&plan), expected);
    assert_eq!(plan.forecast.end_us, 5_150_000);
    assert_eq!(plan.critical_path, [0, 1, 2, 3, 4, 5, 6]);
    assert!(plan.transitions.iter().all(|step| step.slack_us == 0 && step.known), "a chain has none to spare");
    assert_eq!(simulated, 4, "the logs have nothing to do with it");
    assert_eq!(plan.forecast.runs, 20);
    assert!(plan.forecast.p50_us <= plan.forecast.p90_us && plan.forecast.p90_us <= 5_450_000, "{:?}", plan.forecast);
    assert!(plan.forecast.p50_us >= 4_950_000, "{:?}", plan.forecast);
}

#[test]
fn waiting_for_many_objects_lasts_as_long_as_the_slowest() {
    let mut sketch = Sketch::new();
    sketch.cob("gate/gate", "up");
    for n in 1..=9 {
        let worker = format!("n{n}/worker");
        sketch.cob(&worker, "up").requires("gate/gate", &worker);
    }
    let times = "check: 0s\nmessage: 0s\ngate/gate down>up: 1s\n\"*/worker down>up\": {min: 1s, median: 2s, p90: 3s}";
    let plan = planned(&Generation::nothing(), &generation(&sketch, 1), times).plan;
    let f = &plan.forecast;
    assert_eq!((f.end_us, f.runs), (3_000_000, 20), "with every duration at its median");
    // The slowest of nine is beyond the 0.926-quantile (2 to the -1/9) in half of all cases.
    assert!((3_900_000..=4_150_000).contains(&f.p50_us), "{f:?}");
    let mut progress = Progress::new(&plan);
    assert_eq!(progress.stands(&plan, 0).end_us, f.p50_us);
    for n in 0..9 {
        let go = told(&plan, n, "go", 0, None);
        let detail = "to generation 1, by ann".to_owned();
        progress.take(&plan, &with_facts(HistoryEntry { cob: None, detail, ..go }));
    }
    for (at, (ms, event)) in (0..=9).flat_map(|at| [(at, (0, "start")), (at, (2500, "end"))]) {
        let ms = if at == 9 { ms + 2500 } else { ms };
        progress.take(&plan, &told(&plan, at, event, ms, (event == "end").then_some(true)));
    }
    assert_eq!(progress.stands(&plan, 0).end_us, 5_000_000, "what was is not expected");
}

#[test]
fn an_object_that_is_down_is_not_started_with_its_old_content() {
    let (before, after) = changed();
    let durations = Durations::of_text(SHOP).expect("durations");
    let down = ["n1/config", "n1/db", "n2/app", "n3/lb"].map(|cob| (id(cob), "down".parse().expect("a state")));
    let sides = Sides::open(Source::Made(&before), Source::Made(&after)).expect("in memory");
    let asked = Asked { durations, states: down.into(), runs: 1, seed: 7, ..Asked::default() };
    let plan = forecast(sides, asked).expect("an order").plan;
    let expected = [
        "n1/config down>up 0..2000",
        "n1/db down>up 2000..2700",
        "n2/app down>up 2700..4700",
        "n3/lb down>up 4700..5000",
    ];
    assert_eq!(transitions(&plan), expected, "the one that has given up is not tried with its old content");
    assert!(plan.interrupted.is_empty(), "{:?}", plan.interrupted);
}

#[test]
fn each_interruption_has_its_time_and_its_reason() {
    let (before, after) = changed();
    let plan = planned(&before, &after, SHOP).plan;
    let told: Vec<String> = plan
        .interrupted
        .iter()
        .map(|gap| {
            let moves = if let Why::NeededBy { moves } = &gap.why { moves.clone() } else { Vec::new() };
            let by: Vec<&str> = moves.iter().map(|by| by.cob.as_str()).collect();
            let why = if gap.why == Why::Content { "content".to_owned() } else { by.join(" ") };
            format!("{} {}..{} {why}", gap.cob, gap.begin_us / 1000, gap.end_us.unwrap_or(0) / 1000)
        })
        .collect();
    let expected = [
        "n3/lb 0..5150 n2/app",
        "n2/app 100..4850 n1/db",
        "n1/db 1100..2850 n1/config",
        "n1/config 2100..2150 content",
    ];
    assert_eq!(told, expected);
    assert!(plan.interrupted[3].in_place && !plan.interrupted[0].in_place);
}

#[test]
fn a_changed_preferred_state_is_a_permanent_interruption() {
    let before = shop();
    let mut after = shop();
    after.cob("n3/lb", "down").content("n3/logs", json!({"level": 3}));
    let Forecasted { plan, difference, .. } = planned(&generation(&before, 1), &generation(&after, 2), SHOP);
    let told: Vec<_> = plan.interrupted.iter().map(|gap| (gap.cob.as_str(), gap.in_place, gap.end_us)).collect();
    assert_eq!(told, [("n3/lb", false, None), ("n3/logs", true, Some(1_000_000))]);
    let words = show::in_words(&plan, &difference);
    assert!(words.contains("  n3/lb from 0 ms on, and stays down: its preferred state changed\n"), "{words}");
}

#[test]
fn progress_does_not_wait_for_transitions_that_a_host_skipped() {
    let priced = |number: u64| {
        let mut sketch = shop();
        sketch.content("n1/config", json!({"price": number}));
        generation(&sketch, number)
    };
    let [one, five, seven] = [1, 5, 7].map(priced);
    let legs = [(&one, &five), (&five, &seven)].map(|(from, to)| planned(from, to, SHOP).plan);
    let plan = joined(legs.into(), vec![GenerationNumber(5)]);
    let plan = SwitchPlan::of_json(&serde_json::to_string(&plan).expect("JSON")).expect("in order");
    assert_eq!((plan.transitions.len(), plan.transitions[7].after.as_slice()), (14, &[6][..]));
    assert_eq!(plan.transitions[7].begin_us, plan.forecast.end_us / 2);
    let mut progress = Progress::new(&plan);
    for (host, at) in [("n1", 3), ("n2", 1), ("n3", 0)] {
        for (generation, to) in [(1, 5), (5, 7)] {
            let (generation, detail) = (GenerationNumber(generation), format!("to generation {to}, by ann"));
            let go = told(&plan, at, "go", 0, None);
            assert_eq!(go.host.as_str(), host);
            progress.take(&plan, &with_facts(HistoryEntry { cob: None, generation, detail, ..go }));
        }
    }
    // The first change object acts before its host continues, all others after all hosts continued.
    for at in 0..7 {
        let generation = GenerationNumber(if at == 0 { 5 } else { 7 });
        for (event, ms) in [("start", 0), ("end", 100)] {
            let entry = told(&plan, at, event, at as u64 * 100 + ms, (event == "end").then_some(true));
            progress.take(&plan, &HistoryEntry { generation, ..entry });
        }
    }
    let made = |progress: &Progress| {
        let stands = progress.stands(&plan, 9_000_000_000);
        (stands.ended, stands.stuck, stands.unplanned, stands.elsewhere.len())
    };
    // The first transition of the second leg may still come.
    assert_eq!(made(&progress), (7, 6, 0, 0));
    let settled = told(&plan, 0, "settled", 800, None);
    let settled = HistoryEntry { cob: None, generation: GenerationNumber(7), ..settled };
    progress.take(&plan, &settled);
    assert_eq!(made(&progress), (7, 7, 0, 0));
    assert_eq!(progress.stands(&plan, 0).end_us, 700_000);
}

#[test]
fn an_interruption_names_the_changed_dependency() {
    let mut before = Sketch::new();
    before.cob("n1/config", "up").cob("n2/db", "up").restarts_on("n2/db", "n1/config");
    let mut after = before.clone();
    after.content("n1/config", json!({"price": 11}));
    let plan = planned(&generation(&before, 1), &generation(&after, 2), "\"*\": 1s").plan;
    let why: BTreeMap<&str, &Why> = plan.interrupted.iter().map(|gap| (gap.cob.as_str(), &gap.why)).collect();
    assert_eq!(why["n1/config"], &Why::Content);
    assert_eq!(why["n2/db"], &Why::RestsOn { on: vec![id("n1/config")] });
}

#[test]
fn only_restarts_on_dependencies_are_reasons_of_a_restart() {
    let mut before = Sketch::new();
    before.cob("n1/config", "up").cob("n1/files", "up").cob("n1/zone", "up").cob("n2/db", "up");
    before.restarts_on("n2/db", "n1/config").restarts_on("n2/db", "n1/zone").requires("n2/db", "n1/files");
    let mut after = before.clone();
    after.content("n1/config", json!({"price": 11})).content("n1/files", json!({"price": 11}));
    let plan = planned(&generation(&before, 1), &generation(&after, 2), "\"*\": 1s").plan;
    let why: BTreeMap<&str, &Why> = plan.interrupted.iter().map(|gap| (gap.cob.as_str(), &gap.why)).collect();
    assert_eq!(why["n2/db"], &Why::RestsOn { on: vec![id("n1/config")] });
}

#[test]
fn a_new_preferred_state_is_reached_despite_a_changed_dependency() {
    let mut before = Sketch::new();
    before.cob("n1/config", "up").cob("n2/db", "up").restarts_on("n2/db", "n1/config");
    let mut after = before.clone();
    after.content("n1/config", json!({"price": 11}));
    after.draft.cobs.get_mut(&id("n2/db")).expect("there").value.preferred = "down".parse().expect("a state");
    let plan = planned(&generation(&before, 1), &generation(&after, 2), "\"*\": 1s").plan;
    let moves: Vec<String> =
        transitions(&plan).iter().filter_map(|transition| Some(transition.rsplit_once(' ')?.0.to_owned())).collect();
    assert!(moves.contains(&"n2/db up>down".to_owned()), "{moves:?}");
}

#[test]
fn an_object_of_another_kind_departs_and_starts_again() {
    let mut before = Sketch::new();
    before.kind("disk", &["off", "on"], &["off>on", "on>off"]).cob_of("disk", "n1/x", "on");
    before.cob("n2/y", "up").requires("n2/y", "n1/x");
    let mut after = Sketch::new();
    after.cob("n1/x", "up").cob("n2/y", "up").requires("n2/y", "n1/x");
    let plan = planned(&generation(&before, 1), &generation(&after, 2), "check: 0s\nmessage: 0s\n\"*\": 1s").plan;
    let expected =
        ["n2/y up>down 0..1000", "n1/x on>off 1000..2000", "n1/x down>up 2000..3000", "n2/y down>up 3000..4000"];
    assert_eq!(transitions(&plan), expected);
    assert!(plan.transitions[1..3].iter().all(|step| step.why == Why::Kind), "{:?}", plan.transitions);
}

#[test]
fn a_transition_outside_the_critical_path_shows_its_slack() {
    let mut before = Sketch::new();
    before.cob("n1/a", "up").cob("n1/b", "up").cob("n2/c", "up");
    before.requires("n2/c", "n1/a").requires("n2/c", "n1/b");
    let from = Generation::nothing();
    let plan =
        planned(&from, &generation(&before, 1), "check: 0s\nmessage: 0s\nsimple down>up: 5s\nn1/b down>up: 2s").plan;
    assert_eq!(transitions(&plan), ["n1/a down>up 0..5000", "n1/b down>up 0..2000", "n2/c down>up 5000..10000"]);
    let slack: Vec<u64> = plan.transitions.iter().map(|step| step.slack_us / 1000).collect();
    assert_eq!(slack, [0, 3000, 0]);
    assert_eq!(plan.critical_path, [0, 2]);
    assert_eq!(plan.stages, [vec![0, 1], vec![2]]);
    assert_eq!(plan.transitions[2].after, [0, 1]);
}

#[test]
fn the_point_of_no_return_is_as_late_as_the_order_lets_it_be() {
    let mut before = Sketch::new();
    before.kind("store", &["outdated", "old", "new"], &["outdated>old", "old>new"]);
    before.cob("n1/a", "up");
    let mut after = before.clone();
    after.cob_of("store", "n1/data", "new").cob("n2/b", "up").requires("n2/b", "n1/a");
    after.draft.kinds.get_mut("store").expect("made above").value.pre_remove = crate::testing::state("old");
    before.draft.kinds.get_mut("store").expect("made above").value.pre_remove = crate::testing::state("old");
    let plan = planned(
        &generation(&before, 1),
        &generation(&after, 2),
        "check: 0s\nmessage: 0s\n\"*\": 5s\nn1/data old>new: 1s",
    )
    .plan;
    assert_eq!(transitions(&plan), ["n1/data old>new 0..1000", "n2/b down>up 0..5000"]);
    let point = plan.point_of_no_return.expect("nothing leads back to old");
    assert_eq!((point.at_us, point.latest_us, point.before, point.behind), (0, 4_000_000, 1, 1));
    assert!(!plan.irreversible[0].marked);
}

#[test]
fn hosts_that_wait_for_each_other_go_together() {
    // Each departs only while the neighbour of the other is up: both hosts wait for both.
    let mut before = Sketch::new();
    for cob in ["n1/m", "n2/m", "n1/k", "n2/k", "n3/z"] {
        before.cob(cob, "up");
    }
    before.transition("n1/m", "up", "down", "n2/k@up").transition("n2/m", "up", "down", "n1/k@up");
    let mut after = before.clone();
    after.draft.cobs.retain(|cob, _| cob.name() != "m");
    after.content("n1/k", json!({"v": 2})).content("n2/k", json!({"v": 2})).content("n3/z", json!({"v": 2}));
    let plan = planned(&generation(&before, 1), &generation(&after, 2), "\"*\": 1s").plan;
    let groups: Vec<(Vec<&str>, usize)> =
        plan.groups.iter().map(|g| (g.hosts.iter().map(|h| h.as_str()).collect(), g.waits_for.len())).collect();
    assert_eq!(groups, [(vec!["n1", "n2"], 2), (vec!["n3"], 0)]);
    assert!(plan.forecast.converges);
}

#[test]
fn a_change_object_of_another_host_under_the_same_name_has_moved() {
    let mut before = Sketch::new();
    before.cob("n1/app", "up").cob("n1/x", "up").host("n2");
    let mut after = Sketch::new();
    after.host("n1").cob("n2/app", "up").cob("n1/y", "up");
    let plan = planned(&generation(&before, 1), &generation(&after, 2), "\"*\": 1s").plan;
    assert_eq!(plan.moved.iter().map(|m| format!("{} {}", m.from, m.to)).collect::<Vec<_>>(), ["n1/app n2/app"]);
}

#[test]
fn the_work_of_a_forecast_grows_with_the_changes() {
    let of = |hosts: usize, changed: usize| {
        let mut sketch = Sketch::new();
        for host in 0..hosts {
            for cob in 0..10 {
                sketch.cob(&format!("h{host}/c{cob}"), "up");
                if cob > 0 {
                    sketch.requires(&format!("h{host}/c{cob}"), &format!("h{host}/c{}", cob - 1));
                }
            }
        }
        let mut other = sketch.clone();
        for host in 0..changed {
            other.content(&format!("h{host}/c5"), json!({"v": 2}));
        }
        let planned = planned(&generation(&sketch, 1), &generation(&other, 2), "\"*\": 1s");
        (planned.simulated, planned.events, planned.plan.untouched_hosts, planned.plan.transitions.len())
    };
    let (small, large, more) = (of(20, 2), of(200, 2), of(200, 20));
    assert_eq!((small.0, small.1, small.3), (large.0, large.1, large.3), "ten times the hosts, the same work");
    assert_eq!((small.2, large.2), (18, 198));
    assert_eq!((more.0, more.3), (10 * small.0, 10 * small.3));
    assert!(more.1 <= 11 * small.1, "{} events, and {} for a tenth", more.1, small.1);
}

#[test]
fn unaffected_hosts_are_not_simulated() {
    let mut sketch = Sketch::new();
    sketch.cob("n1/a", "up").cob("n2/a", "up").cob("n3/a", "up").requires("n2/a", "n1/a");
    let mut other = sketch.clone();
    other.content("n1/a", json!({"v": 2}));
    let planned = planned(&generation(&sketch, 1), &generation(&other, 2), "\"*\": 1s");
    assert_eq!((planned.simulated, planned.plan.untouched_hosts), (2, 1), "n3 has no part in it");
    assert!(planned.plan.forecast.converges);
}

fn bundles(generation: &Generation) -> BTreeMap<HostName, Arc<Bundle>> {
    generation.bundles.iter().map(|(host, bundle)| (host.clone(), Arc::new(bundle.clone()))).collect()
}

/// Runs the whole cluster in the simulator: returns the change objects that act, with their counts, and the end.
fn really(from: &Generation, to: &Generation) -> (BTreeMap<CobId, usize>, u64) {
    let states = from.bundles.values().flat_map(|b| b.cobs.values()).map(|c| (c.id.clone(), c.preferred.clone()));
    let mut all = bundles(from);
    for host in to.bundles.keys() {
        all.entry(host.clone()).or_insert_with(|| Arc::new(Bundle::empty(host.clone())));
    }
    let config = Config { delay_us: (1, 1), action_us: (50_000, 50_000), check_us: (1, 1), ..Config::default() };
    let mut world = World::new(&all, &Initial::Given(states.collect()), &[], config);
    world.go(from.manifest.generation, &all);
    let settled = world.run();
    assert!(settled.converged && settled.actions.is_empty(), "{:?}", settled.waits);
    let begun = world.now();
    let mut next = bundles(to);
    for host in from.bundles.keys() {
        next.entry(host.clone()).or_insert_with(|| Arc::new(Bundle::empty(host.clone())));
    }
    let order = switch_order(&Side::of(from), &Side::of(to), false).expect("an order");
    world.switch(&order, &next, false);
    let outcome = world.run();
    assert!(outcome.converged, "{:?}", outcome.waits);
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    let mut times: BTreeMap<CobId, usize> = BTreeMap::new();
    for (_, cob, ..) in outcome.actions {
        *times.entry(cob).or_default() += 1;
    }
    (times, (outcome.end.0 - begun.0) / 1000)
}

/// A random cluster, and a second version with changed, new and removed parts.
fn pair(seed: u64) -> (Generation, Generation) {
    let mut random = cob_engine::sim::Random::new(seed);
    let (hosts, cobs) = (random.between(2, 4), random.between(3, 14));
    let names: Vec<String> = (0..cobs).map(|n| format!("h{}/c{n}", random.below(hosts))).collect();
    let mut needs: Vec<(usize, usize)> = Vec::new();
    for at in 1..names.len() {
        for _ in 0..random.below(3) {
            needs.push((at, random.below(at as u64) as usize));
        }
    }
    let gone: BTreeSet<usize> = (0..names.len()).filter(|_| random.permille(200)).collect();
    let sketch = |left_out: &BTreeSet<usize>| {
        let mut sketch = Sketch::new();
        for host in 0..hosts {
            sketch.host(&format!("h{host}"));
        }
        for (at, name) in names.iter().enumerate().filter(|(at, _)| !left_out.contains(at)) {
            sketch.cob(name, "up");
            for (_, on) in needs.iter().filter(|(asks, on)| *asks == at && !left_out.contains(on)) {
                sketch.requires(name, &names[*on]);
            }
        }
        sketch
    };
    let (before, mut after) = (sketch(&BTreeSet::new()), sketch(&gone));
    let left: Vec<&String> =
        names.iter().enumerate().filter(|(at, _)| !gone.contains(at)).map(|(_, name)| name).collect();
    for name in &left {
        if random.permille(300) {
            after.content(name, json!({"v": 2}));
        }
    }
    for n in 0..random.below(3) {
        let name = format!("h{}/new{n}", random.below(hosts));
        after.cob(&name, "up");
        if !left.is_empty() {
            let on = random.pick(&left);
            after.requires(&name, on);
        }
    }
    (generation(&before, 1), generation(&after, 2))
}

#[test]
fn the_forecast_equals_a_simulation_of_the_whole_cluster() {
    for seed in 1..=60 {
        let (before, after) = pair(seed);
        let plan = planned(&before, &after, "\"*\": 50ms\ncheck: 1us\nmessage: 1us").plan;
        assert!(plan.forecast.converges, "seed {seed}");
        let (really, end) = really(&before, &after);
        let mut forecast: BTreeMap<CobId, usize> = BTreeMap::new();
        for step in &plan.transitions {
            *forecast.entry(step.cob.clone()).or_default() += 1;
        }
        assert_eq!(forecast, really, "seed {seed}: who acts, and how often");
        // Messages take a microsecond each on either side, and their random order differs.
        let apart = plan.forecast.end_us.abs_diff(end);
        assert!(apart < 2000, "seed {seed}: {} us forecast, {end} us in simulation", plan.forecast.end_us);
        let interrupted: BTreeSet<&CobId> = plan.interrupted.iter().map(|gap| &gap.cob).collect();
        let has = |generation: &Generation, id: &CobId| generation.bundles[id.host_str()].cobs.contains_key(id);
        let acted = really.keys().filter(|id| has(&before, id) && has(&after, id));
        assert_eq!(interrupted, acted.collect(), "seed {seed}");
        critical_path_is_whole(&plan, seed);
    }
}

/// The path covers the time from `go` to the end without unexplained gaps, and its steps have no slack.
fn critical_path_is_whole(plan: &SwitchPlan, seed: u64) {
    let mut at = 0;
    for step in plan.critical_path.iter().map(|at| &plan.transitions[*at]) {
        assert_eq!(step.begin_us, at + step.lag_us, "seed {seed}: {} {}", step.cob, step.to);
        assert_eq!(step.slack_us, 0, "seed {seed}: {} {}", step.cob, step.to);
        at = step.end_us;
    }
    for step in &plan.transitions {
        for before in step.after.iter().map(|at| &plan.transitions[*at]) {
            assert!(before.end_us <= step.begin_us, "seed {seed}: {} before {}", before.cob, step.cob);
            assert!(before.stage < step.stage, "seed {seed}");
        }
    }
}

#[test]
fn random_drafts_are_planned_too() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..12 {
        let Ok(tree) = random::shuffled_pair().new_tree(&mut runner) else { continue };
        let (sketch, _) = tree.current();
        let Ok(assembled) = sketch.assemble() else { continue };
        let plan = planned(&Generation::nothing(), &assembled.generation, "\"*\": 50ms").plan;
        let text = serde_json::to_string(&plan).expect("JSON");
        assert_eq!(SwitchPlan::of_json(&text).expect("as printed"), plan);
    }
}

#[test]
fn an_unknown_duration_is_marked() {
    let (before, after) = changed();
    let Forecasted { plan, difference, .. } = planned(&before, &after, "check: 0s\nn2/app down>up: 2s");
    let words = show::in_words(&plan, &difference);
    let assumed =
        |transition: &str| words.lines().filter(|line| line.contains(transition)).all(|line| line.contains(" s*"));
    assert!(words.contains("no durations recorded for 4 transitions: each counts as 1 s (*)"), "{words}");
    assert!(assumed("n1/db up -> down ") && !assumed("n2/app down -> up "), "{words}");
    let path = words.split("Critical path\n").nth(1).expect("one");
    assert_eq!(path.lines().filter(|line| line.contains(" s*: ")).count(), 4, "{path}");
}

#[test]
fn a_wait_object_takes_its_own_time_without_a_record() {
    let mut before = Sketch::new();
    before.kind("pause", &["down", "up"], &["down>up", "up>down"]);
    let pause = &mut before.draft.kinds.get_mut("pause").expect("made above").value;
    pause.backend = "wait".to_owned();
    pause.check.run = None;
    pause.transitions.iter_mut().for_each(|transition| transition.run = None);
    before.cob_of("pause", "n1/old", "up").content("n1/old", json!({"seconds": 10}));
    let mut after = before.clone();
    after.cob_of("pause", "n1/long", "up").content("n1/long", json!({"seconds": 20}));
    after.cob_of("pause", "n1/short", "up").content("n1/short", json!({"ms": 1000}));
    let (before, after) = (generation(&before, 1), generation(&after, 2));
    let took = |durations: &str| {
        let plan = planned(&before, &after, durations).plan;
        let of = |cob: &str| plan.transitions.iter().find(|step| step.cob == id(cob)).expect("planned").duration.median;
        [of("n1/long") / 1000, of("n1/short") / 1000]
    };
    assert_eq!(took("n1/old down>up: 10s"), [20_000, 1000]);
    assert_eq!(took("n1/old down>up: 10s\npause down>up: 3s\nn1/short down>up: 2s"), [3000, 2000], "as was said");
}

#[test]
fn the_plan_of_the_shop_in_all_forms() {
    let (before, after) = changed();
    let Forecasted { plan, difference, .. } = planned(&before, &after, SHOP);
    let words = show::in_words(&plan, &difference);
    assert!(words.lines().all(|line| line.chars().count() <= 100), "{words}");
    insta::assert_snapshot!("words", words);
    insta::assert_snapshot!("dot", show::to_dot(&plan));
    insta::assert_snapshot!("svg", show::to_svg(&plan));
    insta::assert_snapshot!("json", serde_json::to_string_pretty(&plan).expect("JSON"));
}

fn told(plan: &SwitchPlan, at: usize, event: &str, ms: u64, ok: Option<bool>) -> HistoryEntry {
    let step = &plan.transitions[at];
    HistoryEntry {
        ts_ns: (10_000 + ms) * 1_000_000,
        host: step.cob.host(),
        seq: 0,
        lamport: 0,
        generation: plan.to,
        cob: Some(step.cob.clone()),
        event: event.to_owned(),
        from: Some(step.from.clone()),
        to: Some(step.to.clone()),
        attempt: None,
        ok,
        detail: String::new(),
        heard_ns: None,
        facts: None,
    }
}

fn goes(plan: &SwitchPlan, progress: &mut Progress, hosts: &[&str]) {
    for host in hosts {
        let go = told(plan, 0, "go", 0, None);
        let (host, detail) = (HostName::new(host).expect("a name"), format!("to generation {}, by ann", plan.to));
        progress.take(plan, &with_facts(HistoryEntry { cob: None, host, detail, generation: plan.from, ..go }));
    }
}

#[test]
fn a_failed_transition_and_its_dependents_are_not_forecast() {
    let (before, after) = changed();
    let plan = planned(&before, &after, SHOP).plan;
    let mut progress = Progress::new(&plan);
    goes(&plan, &mut progress, &["n1", "n2", "n3"]);
    let mut take = |at, event, ms, ok| progress.take(&plan, &told(&plan, at, event, ms, ok));
    take(0, "start", 0, None);
    take(0, "end", 500, Some(true));
    take(1, "start", 500, None);
    take(1, "end", 900, Some(false));
    take(1, "failed", 900, None);
    for later in [11_000, 90_000] {
        let stands = progress.stands(&plan, later * 1_000_000);
        assert_eq!((stands.ended, stands.running, stands.stuck, stands.end_us), (1, 0, 6, 500_000));
        assert_eq!(stands.transitions[1].made, Made::Failed(10_500_000_000));
    }
    // The cause was fixed, and the transition is tried again.
    let mut retried = progress.clone();
    retried.take(&plan, &told(&plan, 1, "start", 60_000, None));
    let stands = retried.stands(&plan, 70_000 * 1_000_000);
    assert_eq!((stands.running, stands.stuck), (1, 0));
    // Or the host rolls back: its later events do not count, even for the failed transition.
    let back = told(&plan, 1, "return", 1000, None);
    progress.take(&plan, &HistoryEntry { cob: None, ..back });
    progress.take(&plan, &told(&plan, 1, "start", 1100, None));
    progress.take(&plan, &told(&plan, 1, "end", 1200, Some(false)));
    progress.take(&plan, &told(&plan, 1, "end", 1300, Some(true)));
    let stands = progress.stands(&plan, 20_000 * 1_000_000);
    assert_eq!((stands.transitions[1].made, stands.failed), (Made::Failed(10_500_000_000), 1));
    assert_eq!((stands.left, stands.stuck, progress.is_left()), (1, 6, false));
}

#[test]
fn hosts_that_came_from_elsewhere_are_named() {
    let (before, after) = changed();
    let plan = planned(&before, &after, SHOP).plan;
    let mut progress = Progress::new(&plan);
    goes(&plan, &mut progress, &["n1", "n2"]);
    assert!(progress.stands(&plan, 0).elsewhere.is_empty());
    let go = told(&plan, 0, "go", 0, None);
    let (host, detail) = (HostName::new("n3").expect("a name"), "to generation 2, by ann".to_owned());
    let generation = GenerationNumber(7);
    progress.take(&plan, &with_facts(HistoryEntry { cob: None, host, detail, generation, ..go }));
    assert_eq!(progress.stands(&plan, 0).elsewhere, [GenerationNumber(7)].into());
}

#[test]
fn the_rest_is_forecast_anew_as_it_goes() {
    let (before, after) = changed();
    let plan = planned(&before, &after, SHOP).plan;
    let mut progress = Progress::new(&plan);
    // The plan's surplus over all durations at their medians, and the remaining part of it.
    let beyond = plan.forecast.p50_us as i64 - 5_150_000;
    let expected = |medians: u64, left: i64| medians.saturating_add_signed(beyond * left / 5_150_000);
    assert!(beyond != 0);
    assert_eq!(progress.stands(&plan, 0).end_us, plan.forecast.p50_us, "nothing has happened: the plan");
    goes(&plan, &mut progress, &["n1", "n2", "n3"]);
    // The load balancer took 400 ms longer than planned and failed once; the application runs.
    progress.take(&plan, &told(&plan, 0, "start", 0, None));
    progress.take(&plan, &told(&plan, 0, "end", 200, Some(false)));
    progress.take(&plan, &told(&plan, 0, "start", 300, None));
    progress.take(&plan, &told(&plan, 0, "end", 500, Some(true)));
    progress.take(&plan, &told(&plan, 1, "start", 500, None));
    let stands = progress.stands(&plan, 11_000 * 1_000_000);
    assert_eq!((stands.ended, stands.running, stands.failed, stands.unplanned), (1, 1, 1, 0));
    assert_eq!(stands.end_us, expected(5_550_000, 4_550_000));
    assert_eq!(stands.transitions[0].made, Made::Ended(10_000_000_000, 10_500_000_000));
    // The application is overdue: all later transitions wait.
    let late = progress.stands(&plan, 13_000 * 1_000_000);
    assert_eq!(late.end_us, expected(7_050_000, 4_050_000));
    progress.take(&plan, &told(&plan, 3, "start", 3000, None));
    progress.take(&plan, &told(&plan, 3, "end", 3100, Some(true)));
    progress.take(&plan, &told(&plan, 3, "start", 3200, None));
    assert_eq!(progress.stands(&plan, 13_000 * 1_000_000).unplanned, 1);
    // A rollback makes transitions that are also in the plan.
    let back = told(&plan, 4, "return", 3300, None);
    progress.take(&plan, &HistoryEntry { cob: None, ..back });
    progress.take(&plan, &told(&plan, 4, "start", 3400, None));
    progress.take(&plan, &told(&plan, 4, "end", 3500, Some(true)));
    let stands = progress.stands(&plan, 14_000 * 1_000_000);
    assert_eq!((stands.transitions[4].made, stands.unplanned, stands.left), (Made::Not, 1, 1));
}
