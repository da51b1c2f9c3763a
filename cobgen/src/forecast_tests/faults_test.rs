//! Faults of switches between small sketches: planted errors are found, and a sound switch has none.

use std::collections::BTreeSet;

use cob_forecast::faults::{CaseEnd, FaultReport, NoTrial, Prepared};
use cob_types::generation::RollbackTarget;
use cob_types::switch::OnFailure;
use cob_types::{BlobHash, Generation, GenerationNumber};
use serde_json::json;

use crate::generation::assemble;
use crate::switches::give_orders;
use crate::testing::Sketch;

/// The switch between two sketches, with its order, and a rollback target if that is wanted.
fn prepared(before: &Sketch, after: &Sketch, on_failure: OnFailure, has_target: bool) -> Prepared {
    let of = |sketch: &Sketch, number: u64| {
        let number = GenerationNumber(number);
        assemble(sketch.draft.clone(), number, GenerationNumber(number.0 - 1)).expect("a draft").generation
    };
    let (before, mut after) = (of(before, 1), of(after, 2));
    after.manifest.policy.on_failure = on_failure;
    if has_target {
        after.manifest.back = vec![RollbackTarget { generation: GenerationNumber(1), manifest: BlobHash([0; 32]) }];
    }
    give_orders(&mut after, &before, None).expect("no depot is read");
    let target: Option<&Generation> = has_target.then_some(&before);
    Prepared::new(&before, &after, target).expect("an order")
}

fn tried(switch: &Prepared) -> FaultReport {
    switch.try_every(|_| true).expect("it is simulated")
}

/// The cases with an end.
fn cases(report: &FaultReport, end: CaseEnd) -> u64 {
    report.ends.get(&end).copied().unwrap_or_default()
}

/// Three replicas under a budget, each beside its configuration. Services: they die with their hosts.
fn replicas(guarded: bool) -> Sketch {
    let mut sketch = Sketch::new();
    sketch.kind("service", &["down", "outdated", "up"], &["outdated>down", "down>up", "up>down"]);
    let hosts = ["h1", "h2", "h3"];
    for host in hosts {
        sketch.cob(&format!("{host}/config"), "up");
        sketch.cob_of("service", &format!("{host}/db"), "up");
        sketch.restarts_on(&format!("{host}/db"), &format!("{host}/config"));
    }
    sketch.budget("h1/budget", 1, &["h1/db", "h2/db", "h3/db"]);
    for (host, other) in hosts.iter().flat_map(|host| hosts.map(|other| (*host, other))) {
        if guarded && host != other {
            for state in ["up", "outdated"] {
                sketch.transition(&format!("{host}/db"), state, "down", &format!("{other}/db@up|outdated"));
            }
        }
    }
    sketch
}

fn with_other_config(sketch: &Sketch) -> Sketch {
    let mut after = sketch.clone();
    for host in ["h1", "h2", "h3"] {
        after.content(&format!("{host}/config"), json!({"size": 2}));
    }
    after
}

#[test]
fn a_sound_switch_converges_or_rolls_back_under_every_fault() {
    let before = replicas(true);
    let report = tried(&prepared(&before, &with_other_config(&before), OnFailure::Rollback, true));
    assert!(report.is_well(), "{}", report.in_words("again"));
    let tried = cases(&report, CaseEnd::Converges) + cases(&report, CaseEnd::RollsBack);
    assert_eq!((tried, report.not_tried), (report.cases, 0));
    assert!(cases(&report, CaseEnd::RollsBack) > 0, "actions that always fail roll the switch back: {report:?}");
    assert!(report.runs < report.cases, "two of the hosts have the same role: {report:?}");
    let verbs: BTreeSet<_> = report.findings.iter().filter_map(|f| f.fault.split(' ').next()).collect();
    assert_eq!(verbs, BTreeSet::from(["fail"]), "kills and losses do no harm");
}

#[test]
fn a_missing_dependency_between_replicas_is_found() {
    let before = replicas(false);
    let report = tried(&prepared(&before, &with_other_config(&before), OnFailure::Rollback, true));
    let finding =
        report.findings.iter().find(|f| f.end == CaseEnd::Crowds).expect("a replica stops beside a dead replica");
    assert!(finding.fault.starts_with("kill h"), "{finding:?}");
    assert!(finding.reasons.iter().any(|why| why.contains("h1/budget permits 1")), "{finding:?}");
    assert!(!report.is_well());
    assert_eq!(cases(&report, CaseEnd::BreaksRule) + cases(&report, CaseEnd::Stuck), 0, "{}", report.in_words(""));
}

#[test]
fn a_policy_that_leaves_the_cluster_mixed_is_found() {
    let mut before = Sketch::new();
    before.cob("h1/a", "up").cob("h2/old", "up").cob("h3/c", "up");
    let mut after = Sketch::new();
    after
        .cob("h1/a", "up")
        .content("h1/a", json!({"v": 2}))
        .host("h2")
        .cob("h3/c", "up")
        .content("h3/c", json!({"v": 2}));
    let report = tried(&prepared(&before, &after, OnFailure::Hold, true));
    let stays = |finding: &&cob_forecast::faults::Finding| finding.fault.starts_with("fail h2/old");
    let finding = report.findings.iter().find(stays).expect("the departure that fails");
    assert_eq!(finding.end, CaseEnd::NeedsPerson, "{finding:?}");
    let generations: BTreeSet<_> = finding.hosts.values().copied().collect();
    assert_eq!(generations.len(), 2, "h2 stays behind: {finding:?}");
    assert!(report.in_words("again").contains("mixed: h2 in generation 1; h1 and h3 in generation 2"), "{report:?}");
    // The same switch with the other policy goes back as a whole.
    let report = tried(&prepared(&before, &after, OnFailure::Rollback, true));
    assert!(report.is_well(), "{}", report.in_words("again"));
}

#[test]
fn a_missing_rollback_target_is_found() {
    let before = replicas(true);
    let report = tried(&prepared(&before, &with_other_config(&before), OnFailure::Rollback, false));
    let finding = report.findings.iter().find(|f| f.end == CaseEnd::NeedsPerson).expect("a failure");
    assert!(finding.reasons.iter().any(|why| why.contains("names no usable rollback target")), "{finding:?}");
    assert_eq!(cases(&report, CaseEnd::RollsBack), 0);
}

/// The migration of `h1/data` has no way back.
#[test]
fn a_rollback_without_a_route_is_found() {
    let mut before = Sketch::new();
    before.kind("data", &["old", "new"], &["old>new"]);
    before.cob_of("data", "h1/data", "old").cob("h2/app", "up");
    let mut after = Sketch::new();
    after.kind("data", &["old", "new"], &["old>new"]);
    after.cob_of("data", "h1/data", "new").cob("h2/app", "up").content("h2/app", json!({"v": 2}));
    after.after("h2/app", "h1/data");
    let report = tried(&prepared(&before, &after, OnFailure::Rollback, true));
    let finding = report.findings.iter().find(|f| f.fault.starts_with("fail h2/app")).expect("the app fails");
    assert_eq!(finding.end, CaseEnd::NeedsPerson, "{finding:?}");
    assert!(finding.reasons.iter().any(|why| why.contains("no transition leads to old")), "{finding:?}");
}

#[test]
fn a_switch_that_does_not_converge_by_itself_is_the_only_finding() {
    let mut before = Sketch::new();
    before.cob("h1/db", "up").cob("h1/app", "up").requires("h1/app", "h1/db");
    let mut after = Sketch::new();
    after.cob("h1/db", "down").cob("h1/app", "up").requires("h1/app", "h1/db");
    let report = tried(&prepared(&before, &after, OnFailure::Hold, true));
    assert_eq!((report.cases, report.findings.len()), (0, 1), "{report:?}");
    assert!(!report.is_well() && report.in_words("again").contains("without any fault, the switch"), "{report:?}");
}

#[test]
fn equal_input_gives_equal_bytes_with_any_number_of_threads() {
    let before = replicas(false);
    let switch = prepared(&before, &with_other_config(&before), OnFailure::Rollback, true);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        serde_json::to_string(&pool.install(|| tried(&switch))).expect("JSON")
    };
    let once = with(1);
    assert_eq!(once, with(3));
    let read: FaultReport = serde_json::from_str(&once).expect("it is read as it is written");
    assert_eq!(read.format, 1);
}

#[test]
fn a_replayed_case_has_the_result_that_it_had_among_all() {
    let before = replicas(false);
    let switch = prepared(&before, &with_other_config(&before), OnFailure::Hold, true);
    let report = tried(&switch);
    assert!(report.findings.len() > 3, "{report:?}");
    for finding in &report.findings {
        let replay = switch.replay(&finding.fault.parse().expect("a fault")).expect("the same fault");
        let mut same = finding.clone();
        (same.cases, same.also) = (1, Vec::new());
        assert_eq!(replay.report.findings, [same]);
        assert!(replay.trace.starts_with(' ') && replay.trace.contains(&finding.fault), "{}", replay.trace);
        for also in &finding.also {
            let replay = switch.replay(&also.parse().expect("a fault")).expect("the same fault");
            assert_eq!(replay.report.findings[0].end, finding.end, "{also}");
        }
    }
    for (fault, why) in [
        ("fail h1/db at step 0 once", "starts no action of h1/db"),
        ("kill h9 at step 1", "no host h9"),
        ("kill h1 at step 999999", "no step 999999"),
        ("lose probe from h1 to h2 at step 0 once", "sends no probe"),
    ] {
        let refused = switch.replay(&fault.parse().expect("a fault")).expect_err(fault);
        assert!(matches!(&refused, NoTrial::NoOccasion(what) if what.contains(why)), "{fault}: {refused:?}");
    }
}

#[test]
fn a_limit_leaves_the_other_cases_untried_and_counts_these() {
    let before = replicas(true);
    let switch = prepared(&before, &with_other_config(&before), OnFailure::Rollback, true);
    let (all, part) = (tried(&switch), switch.try_every(|progress| progress.runs < 100).expect("simulated"));
    assert!(part.runs >= 100 && part.runs < all.runs && part.not_tried > 0, "{part:?}");
    assert_eq!(part.cases + part.not_tried, all.cases);
    assert!(part.in_words("").contains("not tried, beyond the limit: "), "{}", part.in_words(""));
}
