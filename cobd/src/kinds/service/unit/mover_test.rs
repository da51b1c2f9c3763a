//! Transitions of units, with a simulated systemd.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_kinds::Service;

use super::before::Before;
use super::bus::Bus;
use super::links::{AllLinks, all_links};
use super::look::{Judgement, Question, check};
use super::mover::{make_move, restore};
use super::testing::{CRASHES, FakeSystemd};
use crate::kinds::service::folder::ServiceFolder;
use crate::kinds::service::leaving::Going;
use crate::kinds::service::mover::{Goal, Task};
use crate::kinds::systemd::Systemd;

struct Bench {
    systemd: FakeSystemd,
    services: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Option<Self> {
        let systemd = FakeSystemd::begin().await?;
        fs::create_dir(systemd.units()).expect("made");
        let folder = tempfile::tempdir().expect("folder");
        let services = folder.path().join("services");
        fs::create_dir(&services).expect("made");
        Some(Self { systemd, services, _folder: folder })
    }

    /// Separate from the folders of other tests, which would look like services of the same host.
    fn folder(&self) -> &Path {
        &self.services
    }

    fn place(&self) -> Systemd {
        Systemd { address: Some(self.systemd.address()), units: self.systemd.units(), runtime: self.systemd.runtime() }
    }

    async fn move_it(&self, goal: Goal, leaving: bool, content: &str) {
        self.try_to_move(goal, leaving, content).await.expect("moved");
    }

    async fn try_to_move(&self, goal: Goal, leaving: bool, content: &str) -> Result<(), String> {
        self.move_in(self.folder(), goal, leaving, content).await
    }

    async fn move_in(&self, folder: &Path, goal: Goal, leaving: bool, content: &str) -> Result<(), String> {
        self.move_as(content, Task { leaving, ..self.task(folder, goal) }).await
    }

    fn task(&self, folder: &Path, goal: Goal) -> Task {
        Task {
            goal,
            folder: folder.to_owned(),
            identity: String::new(),
            working_folder: self.folder().to_owned(),
            private: None,
            timeout_ms: 60_000,
            grace_ms: 1_000,
            systemd: self.place(),
            rests_on: None,
            rests_down: false,
            leaving: false,
            triggers: BTreeSet::new(),
            wanted: BTreeSet::new(),
        }
    }

    async fn move_as(&self, content: &str, task: Task) -> Result<(), String> {
        let content = cob_kinds::read::<Service>(content).expect("a content");
        let moved = tokio::task::spawn_blocking(move || make_move(&task, content));
        moved.await.expect("not broken")
    }

    fn links(&self) -> AllLinks {
        all_links(&self.place())
    }

    async fn look(&self, content: &str) -> (&'static str, String) {
        self.look_at(content, false).await
    }

    async fn look_at(&self, content: &str, leaving: bool) -> (&'static str, String) {
        self.look_as(Question { leaving, ..self.question(content) }).await
    }

    fn question(&self, content: &str) -> Question {
        Question {
            content: cob_kinds::read::<Service>(content).expect("a content"),
            systemd: self.place(),
            folder: self.folder().to_owned(),
            payload: self.folder().to_owned(),
            rests_on: None,
            rests_down: false,
            leaving: false,
            triggers: Arc::default(),
            rested_for: None,
        }
    }

    async fn look_as(&self, question: Question) -> (&'static str, String) {
        let bus = Bus::connect(&question.systemd).await.expect("a bus");
        let Judgement { state, difference, .. } = check(&bus, question).await.expect("known");
        (state, difference)
    }

    async fn restore(&self) {
        self.restore_in(self.folder()).await;
    }

    async fn restore_in(&self, folder: &Path) {
        let folder = ServiceFolder::new(folder.to_owned());
        folder.note_departure("this").expect("noted");
        let restored = tokio::task::spawn_blocking(move || restore(folder.path(), &Going::of(&folder, Some("this"))));
        restored.await.expect("not broken").expect("restored");
    }
}

const A: &str = r#"{"unit":"a.service","settle":0,"drop_ins":{"10.conf":"[Service]\n"}}"#;
const B: &str = r#"{"unit":"b.service","settle":0}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_is_restored_before_the_next_unit_starts() {
    let Some(bench) = Bench::new().await else { return };
    let drop_ins = bench.systemd.units().join("a.service.d");
    bench.systemd.start("a.service");
    bench.move_it(Goal::Start, false, A).await;
    assert_eq!(bench.look(A).await.0, "up");
    assert!(drop_ins.join("10.conf").exists());
    let (state, why) = bench.look(B).await;
    assert!(state == "outdated" && why.contains("a.service"), "{state}: {why}");
    for _ in 0..2 {
        bench.move_it(Goal::Start, false, B).await;
        assert_eq!(bench.systemd.running(), ["b.service"]);
        assert!(!drop_ins.exists());
        assert_eq!(bench.look(B).await, ("up", String::new()));
    }
    // After the departure only the units run that ran before.
    bench.move_it(Goal::Stop, true, B).await;
    assert!(bench.systemd.running().is_empty());
    bench.restore().await;
    assert_eq!(bench.systemd.running(), ["a.service"]);
    assert_eq!(Before::read(bench.folder()), Ok(None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_of_the_original_survives_a_change_there_and_back() {
    let Some(bench) = Bench::new().await else { return };
    bench.systemd.start("a.service");
    for content in [A, B, A] {
        bench.move_it(Goal::Start, false, content).await;
    }
    assert_eq!(bench.systemd.running(), ["a.service"]);
    let before = Before::read(bench.folder()).expect("read").expect("there");
    assert!(before.ran && before.others_ran.is_empty(), "{before:?}");
    bench.move_it(Goal::Stop, true, A).await;
    bench.restore().await;
    assert_eq!(bench.systemd.running(), ["a.service"]);
}

const ENABLED: &str = r#"{"unit":"a.service","settle":0,"enabled":true}"#;
const DISABLED: &str = r#"{"unit":"a.service","settle":0,"enabled":false}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_are_restored_as_they_were_found() {
    let Some(bench) = Bench::new().await else { return };
    let (units, runtime) = (bench.systemd.units(), bench.systemd.runtime());
    let file = bench.folder().join("a.service");
    fs::write(&file, "").expect("written");
    let wants = |folder: &Path| folder.join("multi-user.target.wants/a.service");
    let link = |place: &Path, target: &Path| {
        fs::create_dir_all(place.parent().expect("a folder")).expect("made");
        symlink(target, place).expect("linked");
    };
    let found: [(&str, &dyn Fn()); 4] = [
        ("nothing", &|| ()),
        ("linked", &|| link(&units.join("a.service"), &file)),
        ("linked and enabled", &|| link(&wants(&units), &file)),
        ("for this run of the machine as well", &|| link(&wants(&runtime), &file)),
    ];
    for (what, prepare) in found {
        prepare();
        let before = bench.links();
        for contents in [[ENABLED, DISABLED], [DISABLED, ENABLED]] {
            for content in contents {
                bench.move_it(Goal::Start, false, content).await;
                assert_eq!(bench.look(content).await, ("up", String::new()), "{what}");
                assert_eq!(units.join("a.service").exists(), what != "nothing", "its file stays where it is linked");
            }
            bench.move_it(Goal::Stop, true, contents[1]).await;
            assert_eq!(bench.links(), before, "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_a_user_enables_meanwhile_stays_enabled() {
    let Some(bench) = Bench::new().await else { return };
    bench.move_it(Goal::Start, false, A).await;
    let bus = Bus::connect(&bench.place()).await.expect("a bus");
    bus.enable("a.service", false).await.expect("enabled");
    let enabled = bench.links();
    bench.move_it(Goal::Stop, true, A).await;
    assert_eq!(bench.links(), enabled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_of_an_earlier_daemon_version_is_restored() {
    let Some(bench) = Bench::new().await else { return };
    for (word, enabled) in [("enabled", true), ("disabled", false)] {
        bench.move_it(Goal::Start, false, if enabled { DISABLED } else { ENABLED }).await;
        let mut before = Before::read(bench.folder()).expect("read").expect("there");
        (before.file_state, before.links) = (word.to_owned(), None);
        before.write(bench.folder()).expect("written");
        bench.move_it(Goal::Stop, true, ENABLED).await;
        assert_eq!(!bench.links().is_empty(), enabled, "{word}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_departing_unit_is_not_down_before_it_is_restored() {
    let Some(bench) = Bench::new().await else { return };
    bench.systemd.start("a.service");
    bench.move_it(Goal::Start, false, A).await;
    let drop_in = bench.systemd.units().join("a.service.d/10.conf");
    fs::remove_file(&drop_in).expect("removed");
    fs::create_dir_all(drop_in.join("in the way")).expect("made");
    let why = bench.try_to_move(Goal::Stop, true, A).await.expect_err("it can't be put back");
    assert!(why.starts_with("restoring the original state: a.service.d/10.conf"), "{why}");
    assert!(bench.systemd.running().is_empty());
    assert_eq!(bench.look_at(A, true).await.0, "outdated");
    assert_eq!(bench.look(A).await.0, "down");
    fs::remove_dir_all(&drop_in).expect("removed");
    bench.move_it(Goal::Stop, true, A).await;
    assert_eq!(bench.look_at(A, true).await, ("down", String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_file_removed_from_the_content_is_deleted() {
    let Some(bench) = Bench::new().await else { return };
    let place = bench.systemd.units().join("a.service");
    fs::write(&place, "theirs").expect("written");
    bench.move_it(Goal::Start, false, r#"{"unit":"a.service","settle":0,"unit_file":"[Service]\n"}"#).await;
    let without = r#"{"unit":"a.service","settle":0}"#;
    let (state, why) = bench.look(without).await;
    assert!(state == "outdated" && why.contains("a.service is no longer wanted"), "{state}: {why}");
    bench.move_it(Goal::Start, false, without).await;
    assert_eq!(fs::read_to_string(&place).expect("there"), "theirs");
    assert_eq!(bench.look(without).await.0, "up");
}

#[test]
fn a_mask_is_removed_only_when_it_is_no_longer_wanted() {
    let folder = tempfile::tempdir().expect("folder");
    let units = folder.path().join("units");
    fs::create_dir(&units).expect("made");
    let systemd = Systemd { address: None, units: units.clone(), runtime: units.clone() };
    let unwanted = |was: Option<&str>, is: Option<&str>, mask: &str| {
        let put = |target: Option<&str>| {
            let _ = fs::remove_file(units.join("a.service"));
            target.into_iter().for_each(|target| symlink(target, units.join("a.service")).expect("linked"));
        };
        put(was);
        let mut before = Before::new("a.service", &systemd, "disabled", false);
        before.note(folder.path(), ["a.service"].into_iter()).expect("noted");
        put(is);
        let content = cob_kinds::read::<Service>(&format!(r#"{{"unit":"a"{mask}}}"#)).expect("a content");
        before.once_ours(&content).count() == 1
    };
    let null = Some("/dev/null");
    assert!(!unwanted(None, null, r#","mask":true"#));
    assert!(unwanted(None, null, ""), "it was taken out of the content");
    assert!(unwanted(None, null, r#","mask":false"#));
    assert!(!unwanted(null, None, r#","mask":false"#), "it was to be taken away");
    assert!(!unwanted(null, None, ""), "nobody has put it back");
    assert!(unwanted(null, Some("/opt/a.service"), ""), "a unit file that was given");
    assert!(unwanted(Some("/opt/a.service"), None, r#","mask":true"#), "the file comes back from below the mask");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alias_stands_for_the_unit_that_it_leads_to() {
    let Some(bench) = Bench::new().await else { return };
    let units = bench.systemd.units();
    symlink("/lib/a.service", units.join("alias.service")).expect("linked");
    let bus = Bus::connect(&bench.place()).await.expect("a bus");
    bus.enable("a.service", false).await.expect("enabled");
    bench.systemd.start("a.service");
    let before = bench.links();
    let alias = r#"{"unit":"alias","settle":0,"enabled":false,"drop_ins":{"10.conf":"[Service]\n"}}"#;
    for _ in 0..2 {
        bench.move_it(Goal::Start, false, alias).await;
        assert_eq!(bench.look(alias).await, ("up", String::new()));
        assert_eq!(bench.systemd.running(), ["a.service"]);
        assert_eq!(bench.links().len(), 0, "the alias is gone with the rest");
        assert!(units.join("a.service.d/10.conf").exists());
    }
    bench.move_it(Goal::Stop, true, alias).await;
    bench.restore().await;
    assert_eq!(bench.links(), before);
    assert_eq!(bench.systemd.running(), ["a.service"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_ran_is_remembered_under_another_name() {
    let Some(bench) = Bench::new().await else { return };
    let [old, new] = ["old", "new"].map(|name| bench.folder().join(name));
    for folder in [&old, &new] {
        fs::create_dir(folder).expect("made");
    }
    bench.systemd.start("a.service");
    bench.move_in(&old, Goal::Start, false, A).await.expect("moved");
    bench.move_in(&old, Goal::Stop, true, A).await.expect("moved");
    // The daemon starts the departure of the old change object too late.
    bench.move_in(&new, Goal::Start, false, A).await.expect("moved");
    assert_eq!(Before::read(&old), Ok(None));
    bench.move_in(&new, Goal::Stop, true, A).await.expect("moved");
    assert!(bench.systemd.running().is_empty());
    bench.restore_in(&new).await;
    assert_eq!(bench.systemd.running(), ["a.service"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_section_enables_anew() {
    let Some(bench) = Bench::new().await else { return };
    let content = |target: &str| {
        format!(r#"{{"unit":"a.service","settle":0,"enabled":true,"unit_file":"[Install]\nWantedBy={target}\n"}}"#)
    };
    let links = |bench: &Bench| {
        let names = bench.links().into_keys().map(|place| place.rsplit('/').nth(1).expect("a folder").to_owned());
        names.collect::<Vec<_>>()
    };
    bench.move_it(Goal::Start, false, &content("a.target")).await;
    assert_eq!(links(&bench), ["a.target.wants"]);
    bench.move_it(Goal::Start, false, &content("b.target")).await;
    assert_eq!(links(&bench), ["b.target.wants"]);
    // For example by a package.
    let plain = r#"{"unit":"a.service","settle":0,"enabled":true}"#;
    fs::write(bench.systemd.units().join("a.service"), "[Install]\nWantedBy=c.target\n").expect("written");
    bench.move_it(Goal::Adjust, false, plain).await;
    assert_eq!(links(&bench), ["c.target.wants"]);
    bench.move_it(Goal::Stop, true, plain).await;
    assert_eq!(bench.links().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_systemd_restarts_repeatedly_is_not_up() {
    let Some(bench) = Bench::new().await else { return };
    bench.systemd.tell("a.service", CRASHES, true);
    for keys in [r#""settle":"1s","ready":"true""#, r#""settle":"1s""#] {
        let content = format!(r#"{{"unit":"a.service",{keys}}}"#);
        let why = bench.try_to_move(Goal::Start, false, &content).await.expect_err("its own process does not live");
        assert!(why.contains("systemd started it again"), "{why}");
        assert!(bench.systemd.running().is_empty(), "it is stopped again");
    }
    bench.systemd.tell("b.service", "NRestarts", 0_u32);
    bench.move_it(Goal::Start, false, r#"{"unit":"b.service","settle":"20ms","ready":"true"}"#).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_oneshot_that_ends_is_refused_before_its_start() {
    let Some(bench) = Bench::new().await else { return };
    bench.systemd.tell("b.service", "Type", "oneshot");
    bench.systemd.tell("b.service", "TriggeredBy", vec!["b.timer"]);
    let why = bench.try_to_move(Goal::Start, false, B).await.expect_err("it can't be up");
    assert!(why.contains("is not started") && why.contains("RemainAfterExit=yes") && why.contains("b.timer"), "{why}");
    assert_eq!(bench.systemd.jobs(), 0, "it was never begun");
    bench.systemd.tell("b.service", "RemainAfterExit", true);
    bench.move_it(Goal::Start, false, B).await;
    assert_eq!(bench.systemd.jobs(), 1);
}

/// It would be started again after each elapse, and its job would run as often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_disappears_when_it_elapses_is_refused() {
    let Some(bench) = Bench::new().await else { return };
    let spans = |base: &str| zbus::Variant::from(vec![(base.to_owned(), 1_000_000_u64, 0_u64)]);
    bench.systemd.tell("b.timer", "RemainAfterElapse", false);
    bench.systemd.tell("b.timer", "TimersMonotonic", spans("OnActiveUSec"));
    let why = bench.try_to_move(Goal::Start, false, TIMER).await.expect_err("it can't be up");
    assert!(why.contains("is not started") && why.contains("take RemainAfterElapse=no out"), "{why}");
    assert_eq!(bench.systemd.jobs(), 0, "it was never begun");
    // It counts from each run of its job, so it never ends.
    bench.systemd.tell("b.timer", "TimersMonotonic", spans("OnUnitActiveUSec"));
    bench.move_it(Goal::Start, false, TIMER).await;
}

const TIMER: &str = r#"{"unit":"b.timer","settle":0}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn systemd_reads_the_files_of_the_service_that_a_timer_starts() {
    let Some(bench) = Bench::new().await else { return };
    bench.systemd.tell("b.timer", "Triggers", vec!["b.service"]);
    let changed = || bench.systemd.tell("b.service", "NeedDaemonReload", true);
    changed();
    bench.move_it(Goal::Start, false, TIMER).await;
    assert_eq!(bench.look(TIMER).await, ("up", String::new()), "read with the start");
    changed();
    let (state, why) = bench.look(TIMER).await;
    assert!(state == "stale" && why.contains("it triggers b.service"), "{state}: {why}");
    bench.move_it(Goal::Adjust, false, TIMER).await;
    assert_eq!(bench.look(TIMER).await, ("up", String::new()));
    // A unit whose preferred state is down.
    changed();
    let job = || Question { rests_down: true, ..bench.question(B) };
    assert_eq!(bench.look_as(job()).await.0, "outdated");
    bench.move_as(B, Task { rests_down: true, ..bench.task(bench.folder(), Goal::Stop) }).await.expect("moved");
    assert_eq!(bench.look_as(job()).await, ("down", String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_started_by_its_timer_is_in_its_desired_state() {
    let Some(bench) = Bench::new().await else { return };
    let triggers = BTreeSet::from(["b.timer".to_owned()]);
    let question = |triggers: &BTreeSet<String>| Question {
        rests_down: true,
        triggers: Arc::new(triggers.clone()),
        ..bench.question(B)
    };
    let stop = |triggers: &BTreeSet<String>| Task {
        rests_down: true,
        triggers: triggers.clone(),
        ..bench.task(bench.folder(), Goal::Stop)
    };
    bench.systemd.tell("b.service", "TriggeredBy", vec!["b.timer"]);
    // A run started from here, when the preferred state was up, is stopped.
    bench.move_it(Goal::Start, false, B).await;
    assert_eq!(bench.look_as(question(&triggers)).await.0, "up");
    bench.move_as(B, stop(&triggers)).await.expect("moved");
    assert!(bench.systemd.running().is_empty());
    // From now on the timer starts it.
    bench.systemd.start("b.service");
    assert_eq!(bench.look_as(question(&triggers)).await, ("down", String::new()));
    bench.systemd.tell("b.service", "ActiveState", "activating");
    assert_eq!(bench.look_as(question(&triggers)).await, ("down", String::new()));
    bench.move_as(B, stop(&triggers)).await.expect("moved");
    assert_eq!(bench.systemd.running(), ["b.service"], "what runs is let run to its end");
    // An unmanaged timer does not count, and a departing unit is stopped.
    bench.systemd.tell("b.service", "ActiveState", "active");
    assert_eq!(bench.look_as(question(&BTreeSet::new())).await.0, "up");
    bench.systemd.forget("b.service", "ActiveState");
    bench.move_as(B, Task { leaving: true, ..stop(&triggers) }).await.expect("moved");
    assert!(bench.systemd.running().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_restore_leaves_a_returned_change_object_alone() {
    let Some(bench) = Bench::new().await else { return };
    bench.systemd.start("a.service");
    bench.move_it(Goal::Start, false, A).await;
    bench.move_it(Goal::Stop, true, A).await;
    let folder = ServiceFolder::new(bench.folder().to_owned());
    folder.note_departure("first").expect("noted");
    let late = |word: &'static str| {
        let folder = folder.clone();
        tokio::task::spawn_blocking(move || restore(folder.path(), &Going::of(&folder, Some(word))))
    };
    // It comes back before the attempt starts: its files and its run stay.
    folder.forget_departure().expect("forgotten");
    bench.move_it(Goal::Start, false, A).await;
    let jobs = bench.systemd.jobs();
    late("first").await.expect("not broken").expect("nothing to do");
    assert_eq!(bench.look(A).await, ("up", String::new()));
    assert_eq!(bench.systemd.jobs(), jobs);
    // It has departed again since: that is another departure.
    bench.move_it(Goal::Stop, true, A).await;
    folder.note_departure("second").expect("noted");
    late("first").await.expect("not broken").expect("nothing to do");
    assert!(bench.systemd.running().is_empty());
    late("second").await.expect("not broken").expect("put back");
    assert_eq!(bench.systemd.running(), ["a.service"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_restore_passes_to_the_next_change_object_of_the_unit() {
    let Some(bench) = Bench::new().await else { return };
    let [old, new] = ["old", "new"].map(|name| bench.folder().join(name));
    for folder in [&old, &new] {
        fs::create_dir(folder).expect("made");
    }
    let drop_in = bench.systemd.units().join("a.service.d/10.conf");
    fs::create_dir(drop_in.parent().expect("a folder")).expect("made");
    fs::write(&drop_in, "theirs").expect("written");
    bench.systemd.start("a.service");
    // Its preferred state is down, so it departs without a transition.
    bench.move_in(&old, Goal::Start, false, A).await.expect("moved");
    ServiceFolder::new(old.clone()).note_departure("this").expect("noted");
    bench.move_in(&new, Goal::Start, false, A).await.expect("moved");
    assert_eq!(Before::read(&old), Ok(None));
    bench.restore_in(&old).await;
    assert_eq!(fs::read_to_string(&drop_in).expect("there"), "[Service]\n", "it is the other one's now");
    bench.move_in(&new, Goal::Stop, true, A).await.expect("moved");
    bench.restore_in(&new).await;
    assert_eq!(fs::read_to_string(&drop_in).expect("there"), "theirs");
    assert_eq!(bench.systemd.running(), ["a.service"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mask_is_set_before_the_unit_exists_and_after_a_failed_start() {
    let Some(bench) = Bench::new().await else { return };
    let content = r#"{"unit":"a.service","settle":"1s","mask":true}"#;
    let place = bench.systemd.units().join("a.service");
    let is_masked = || fs::read_link(&place).is_ok_and(|target| target == Path::new("/dev/null"));
    assert_eq!(bench.look(content).await.0, "failed");
    bench.move_it(Goal::Stop, false, content).await;
    assert!(is_masked());
    assert_eq!(bench.look(content).await, ("down", String::new()));
    bench.systemd.tell("a.service", CRASHES, true);
    bench.try_to_move(Goal::Start, false, content).await.expect_err("it does not live");
    assert!(is_masked());
    bench.systemd.forget("a.service", CRASHES);
    bench.move_it(Goal::Start, false, content).await;
    assert!(!is_masked());
    bench.move_it(Goal::Stop, true, content).await;
    assert!(!place.exists() && !place.is_symlink());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_a_socket_outside_of_the_model_starts_again_departs() {
    let Some(bench) = Bench::new().await else { return };
    let content = r#"{"unit":"b"}"#;
    bench.systemd.tell("b.service", "TriggeredBy", vec!["b.socket"]);
    bench.systemd.tell("b.socket", "Triggers", vec!["b.service"]);
    bench.systemd.start("b.socket");
    bench.systemd.start("b.service");
    // A restart: the service is down in between, and the socket is back with it.
    bench.move_it(Goal::Start, false, content).await;
    bench.move_it(Goal::Stop, false, content).await;
    assert!(bench.systemd.running().is_empty(), "{:?}", bench.systemd.running());
    assert_eq!(bench.look(content).await.0, "down");
    bench.move_it(Goal::Start, false, content).await;
    assert_eq!(bench.systemd.running(), ["b.service", "b.socket"]);
    // The departure.
    bench.move_it(Goal::Stop, true, content).await;
    assert!(bench.systemd.running().is_empty(), "{:?}", bench.systemd.running());
    bench.restore().await;
    assert_eq!(bench.systemd.running(), ["b.service", "b.socket"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_of_the_model_is_left_alone() {
    let Some(bench) = Bench::new().await else { return };
    bench.systemd.tell("b.service", "TriggeredBy", vec!["b.socket"]);
    bench.systemd.start("b.socket");
    bench.systemd.start("b.service");
    let task = Task { leaving: true, ..bench.task(bench.folder(), Goal::Stop) };
    let task = Task { triggers: BTreeSet::from(["b.socket".to_owned()]), ..task };
    let why = bench.move_as(r#"{"unit":"b"}"#, task).await.expect_err("the socket starts it again");
    assert!(why.contains("b.socket may have started it again"), "{why}");
    assert_eq!(bench.systemd.running(), ["b.service", "b.socket"]);
}
