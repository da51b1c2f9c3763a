//! Services whose description changes to another form.

use std::fs;

use super::service_test::{BY_FILE, RUN, context, folder, lives, service};
use super::unit::testing::FakeSystemd;
use crate::kinds::Outcome;
use crate::kinds::testing::{Bench, reason};
use crate::run::testing::{number_in, wait_for};

#[tokio::test]
async fn another_form_of_service_stops_the_process_of_the_earlier_form() {
    let mut bench = Bench::new();
    let kept = context(&bench, RUN);
    let driven = context(&bench, &BY_FILE.replace('\n', ""));
    let runs = bench.path("runs");
    bench.transition(&kept, "down", "up").await;
    let begun = number_in(&bench.path("pid"));
    for goal in ["up", "down"] {
        let pid = number_in(&bench.path("pid"));
        let outcome = bench.check(&driven).await;
        assert_eq!(outcome.state.expect("known"), *"outdated");
        assert!(outcome.difference.contains("earlier content"), "{}", outcome.difference);
        assert_eq!(bench.transition(&driven, "outdated", goal).await, Outcome::done());
        assert!(!lives(pid), "the one with a keeper was ended");
        assert_eq!((bench.state(&driven).await.as_str(), runs.exists()), (goal, goal == "up"));
        if goal == "down" {
            break;
        }
        assert_eq!(bench.state(&kept).await, "outdated");
        assert_eq!(bench.transition(&kept, "outdated", "up").await, Outcome::done());
        assert!(!runs.exists(), "it was stopped by its own command");
        assert_eq!(bench.state(&kept).await, "up");
        wait_for("the next one says its number", || number_in(&bench.path("pid")) != begun);
    }
    // The service did not run before, so the departure restarts no service.
    assert!(!folder(&bench).join("ran").exists());
    bench.transition(&driven, "down", "up").await;
    assert_eq!(bench.transition(&kept, "outdated", "down").await, Outcome::done());
    assert_eq!((bench.state(&kept).await.as_str(), runs.exists()), ("down", false));
    assert_eq!(bench.state(&driven).await, "down");
}

#[tokio::test]
async fn a_service_that_cannot_be_stopped_is_not_replaced_by_another_form() {
    let mut bench = Bench::new();
    let driven = context(&bench, &BY_FILE.replace('\n', "").replace("rm {}/runs", "echo busy; false"));
    let kept = context(&bench, RUN);
    bench.transition(&driven, "down", "up").await;
    for goal in ["up", "down"] {
        let why = reason(bench.transition(&kept, "outdated", goal).await);
        assert!(why.contains("earlier content") && why.contains("stop: exit status 1: busy"), "{why}");
        assert_eq!(bench.state(&kept).await, "outdated");
    }
    assert!(!bench.path("pid").exists());
}

#[tokio::test]
async fn a_service_does_not_start_before_an_earlier_unit_is_restored() {
    let mut bench = Bench::new();
    let kept = context(&bench, RUN);
    fs::create_dir_all(folder(&bench)).expect("made");
    let before = r#"{"format":1,"unit":"old.service","systemd":{"address":"unix:path=/nowhere/bus","units":"/nowhere"},
        "file_state":"enabled","ran":true,"files":{},"had_folder":true,"restored":false}"#;
    fs::write(folder(&bench).join("before"), before).expect("written");
    let outcome = bench.check(&kept).await;
    assert_eq!(outcome.state.expect("known"), *"outdated");
    assert!(outcome.difference.contains("old.service"), "{}", outcome.difference);
    let why = reason(bench.transition(&kept, "outdated", "up").await);
    assert!(why.contains("old.service") && why.contains("systemd can't be spoken to"), "{why}");
    assert!(!bench.path("pid").exists());
    // The question whether it ran matters only after the departure.
    fs::write(folder(&bench).join("before"), before.replace("restored\":false", "restored\":true")).expect("written");
    assert_eq!(bench.state(&kept).await, "down");
    assert_eq!(bench.transition(&kept, "down", "up").await, Outcome::done());
    assert_eq!(bench.transition(&kept, "up", "down").await, Outcome::done());
    assert!(folder(&bench).join("before").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_replaces_a_service_with_a_keeper_and_the_reverse() {
    let Some(systemd) = FakeSystemd::begin().await else { return };
    let mut bench = Bench::new();
    bench.kinds.use_systemd_at(&systemd.address());
    let kept = context(&bench, RUN);
    let unit = bench.context(&service(), r#"{"unit":"cob-test-of-another-form","settle":0}"#);
    bench.transition(&kept, "down", "up").await;
    let pid = number_in(&bench.path("pid"));
    assert_eq!(bench.state(&unit).await, "outdated");
    assert_eq!(bench.transition(&unit, "outdated", "up").await, Outcome::done());
    assert!(!lives(pid));
    assert_eq!(systemd.running(), ["cob-test-of-another-form.service"]);
    assert_eq!(bench.state(&unit).await, "up");
    let driven = context(&bench, &BY_FILE.replace('\n', ""));
    assert_eq!(bench.state(&driven).await, "outdated");
    assert_eq!(bench.transition(&driven, "outdated", "up").await, Outcome::done());
    assert!(systemd.running().is_empty() && !folder(&bench).join("before").exists());
    assert_eq!(bench.state(&unit).await, "outdated");
    assert_eq!(bench.transition(&unit, "outdated", "down").await, Outcome::done());
    assert_eq!((bench.state(&unit).await.as_str(), bench.path("runs").exists()), ("down", false));
}
