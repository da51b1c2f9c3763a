//! The state of a unit, from systemd and files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cob_kinds::Service;

use super::before::{Before, Started};
use super::bus::{Bus, UnitState};
use super::content::{UnitService as _, identity};
use super::files::{configuration, differences};
use super::journal::last_words as last_words_of;
use super::own::{is_own, refusal};
use crate::blocking::beside;
use crate::kinds::service::commands::last_words;
use crate::kinds::service::folder::ServiceFolder;
use crate::kinds::service::former::{Form, left};
use crate::kinds::systemd::Systemd;

/// The inputs of a check.
#[derive(Debug, Clone)]
pub(in crate::kinds::service) struct Question {
    pub(in crate::kinds::service) content: Service,
    pub(in crate::kinds::service) systemd: Systemd,
    /// The service's folder.
    pub(in crate::kinds::service) folder: PathBuf,
    /// The files of the bundle.
    pub(in crate::kinds::service) payload: PathBuf,
    /// The fingerprint of its dependencies.
    pub(in crate::kinds::service) rests_on: Option<String>,
    /// Its preferred state is down.
    pub(in crate::kinds::service) rests_down: bool,
    /// It departs, so the original state is restored.
    pub(in crate::kinds::service) leaving: bool,
    /// The timers, sockets and paths that change objects of this host manage.
    pub(in crate::kinds::service) triggers: Arc<BTreeSet<String>>,
    /// How long all its dependencies have been unchanged. `None`: not known.
    pub(in crate::kinds::service) rested_for: Option<Duration>,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kinds::service) struct Judgement {
    pub(in crate::kinds::service) state: &'static str,
    /// The difference from the desired unit.
    pub(in crate::kinds::service) difference: String,
    /// Its run began after the last change of its dependencies, no matter which program started it.
    pub(in crate::kinds::service) fresh: bool,
}

/// The inputs of a judgement.
#[derive(Debug, Clone, Default)]
struct Look {
    state: UnitState,
    /// The differences in the given files; empty without a difference.
    files: String,
    started: Option<Started>,
    /// The fingerprint of all files that make the unit.
    configuration: String,
    /// The time of the latest change of these files.
    newest_us: u64,
    /// See [`identity`].
    identity: String,
    /// A note of the original state exists.
    changed: bool,
    /// Its section `[Install]` has changed since it was enabled from here.
    otherwise: bool,
    /// For a service: its end, the number of automatic restarts, and its last output.
    result: String,
    /// See [`Judgement::fresh`].
    fresh: bool,
    /// The triggered units whose files have changed since systemd read them.
    unread: Vec<String>,
}

/// A state and the difference from the desired unit; or the reason why the state is unknown.
pub(in crate::kinds::service) type Judged = Result<(&'static str, String), String>;

/// Replaces an alias in the content by the unit's main name: the alias may disappear when the unit is disabled.
pub(super) async fn name_as_systemd_does(bus: &Bus, folder: &Path, content: &mut Service) -> Result<(), String> {
    if content.unit_file.is_some() {
        return Ok(());
    }
    let (name, place) = (content.name(), folder.to_owned());
    let noted = beside(move || Before::main_name(&place, &name)).await;
    content.unit = Some(match noted.map_err(|lost| lost.to_string())?? {
        Some(unit) => unit,
        None => bus.look(&content.name()).await?.id,
    });
    Ok(())
}

/// Checks a unit without changes.
pub(in crate::kinds::service) async fn check(bus: &Bus, mut question: Question) -> Result<Judgement, String> {
    name_as_systemd_does(bus, &question.folder, &mut question.content).await?;
    let name = question.content.name();
    let state = bus.look(&name).await?;
    if is_own(&state.id) {
        // A departure has no work here: state that an earlier daemon noted is restored while the unit runs.
        let down = Judgement { state: "down", difference: String::new(), fresh: false };
        return if question.leaving { Ok(down) } else { Err(refusal(&state.id)) };
    }
    let fresh = is_fresh(&question, &state, up_for());
    let result = if state.active == "failed" || state.restarts() {
        let last = last_words(&last_words_of(&name, &state.invocation, None).await);
        bus.service(&name).await.how() + &last
    } else {
        String::new()
    };
    let unread = unread_of(bus, &state).await;
    let looked = beside(move || {
        if let Some(left) = left(&ServiceFolder::new(question.folder.clone()), Form::Unit(&name))? {
            return Ok(("outdated", left));
        }
        let wanted = question.content.files(&question.payload)?;
        let before = Before::read(&question.folder)?.filter(|b| !b.restored);
        let ours = before.iter().flat_map(|before| before.once_ours(&question.content));
        let files = differences(&question.systemd.units, &wanted, ours);
        let (configuration, newest_us) = configuration(&state);
        let started = Started::read(&question.folder);
        let identity = identity(&question.content, &wanted, question.rests_on.as_deref());
        let changed = before.is_some();
        let otherwise = before.is_some_and(|before| before.is_enabled_otherwise(&state));
        let look = Look {
            state,
            files,
            started,
            configuration,
            newest_us,
            identity,
            changed,
            otherwise,
            result,
            fresh,
            unread,
        };
        judge(&question, &look)
    });
    let (state, difference) = looked.await.map_err(|lost| lost.to_string())??;
    Ok(Judgement { state, difference, fresh: fresh && state == "up" })
}

/// The time since the boot.
fn up_for() -> Duration {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_whitespace().next().and_then(|seconds| seconds.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

/// Whether its run began after the last change of its dependencies.
fn is_fresh(question: &Question, state: &UnitState, up_for: Duration) -> bool {
    /// The kernel gives the uptime in hundredths of a second.
    const GRAIN: Duration = Duration::from_millis(20);
    let began = Duration::from_micros(state.began_us);
    let runs_for = up_for.checked_sub(began).filter(|_| state.began_us > 0 && state.runs());
    runs_for.zip(question.rested_for).is_some_and(|(runs, rested)| runs + GRAIN < rested)
}

/// The units that a timer, socket or path starts, and whose files systemd has to read again.
pub(super) async fn unread_of(bus: &Bus, state: &UnitState) -> Vec<String> {
    let mut unread = Vec::new();
    for unit in &state.triggers {
        // The start of a unit that can't be read reports the error.
        if bus.look(unit).await.is_ok_and(|state| state.needs_reload) {
            unread.push(unit.clone());
        }
    }
    unread
}

/// Whether a timer, socket or path of the model runs this unit, whose own preferred state is down. Then it may run. A
/// run that was started from here, when the preferred state was up, is stopped nevertheless.
pub(super) fn is_run_by_a_trigger(
    state: &UnitState,
    content: &Service,
    triggers: &BTreeSet<String>,
    started: Option<&Started>,
) -> bool {
    (state.runs() || state.moves())
        && content.mask != Some(true)
        && state.triggered_by.iter().any(|unit| triggers.contains(unit))
        && started.is_none_or(|started| started.invocation != state.invocation)
}

/// Whether a socket starts it again when it is needed. Unlike with a timer, a stop loses no work.
pub(super) fn serves_a_socket(state: &UnitState) -> bool {
    state.active == "active" && state.triggered_by.iter().any(|unit| unit.ends_with(".socket"))
}

fn judge(question: &Question, look: &Look) -> Judged {
    let state = &look.state;
    let content = &question.content;
    let by_itself = question.rests_down && !question.leaving;
    if by_itself && is_run_by_a_trigger(state, content, &question.triggers, look.started.as_ref()) {
        return Ok(match older_than_wanted(question, look).filter(|_| serves_a_socket(state)) {
            Some(why) => ("outdated", why),
            None => inactive(content, look),
        });
    }
    if state.restarts() {
        return Ok(("failed", format!("it has ended by itself ({}), and systemd starts it again", look.result)));
    }
    if state.active == "failed" {
        return Ok(("failed", format!("it has failed: {}", look.result)));
    }
    if state.moves() {
        // The end of the change causes a signal and another check.
        return Err(format!("the unit is {} ({})", state.active, state.sub));
    }
    if !state.runs() {
        let is_to_be_masked = content.mask == Some(true) && !question.leaving;
        if is_to_be_masked && !question.rests_down && !state.is_masked() {
            // Not `outdated`: leaving this state must not need a token of a budget.
            return Ok((
                "failed",
                "the unit is not masked while it is down, so other programs may start it".to_owned(),
            ));
        }
        if question.leaving && look.changed {
            return Ok(("outdated", "the original state is not restored yet".to_owned()));
        }
        return Ok(if question.rests_down { inactive(content, look) } else { ("down", String::new()) });
    }
    if let Some(why) = older_than_wanted(question, look) {
        return Ok(("outdated", why));
    }
    if let Some(why) = enablement_differs(content, look).or_else(|| unread_in_words(look)) {
        return Ok(("stale", why));
    }
    Ok(("up", String::new()))
}

/// The state of a stopped unit: down if all parts are as desired.
fn inactive(content: &Service, look: &Look) -> (&'static str, String) {
    let state = &look.state;
    let mut differs = look.files.clone();
    if state.needs_reload {
        differs += "its files have changed since systemd last read these files\n";
    }
    differs.extend(unread_in_words(look).map(|words| words + "\n"));
    match content.mask {
        Some(true) if !state.is_masked() => differs += "it is not masked\n",
        Some(false) if state.is_masked() => differs += "it is masked\n",
        Some(_) | None => {}
    }
    if !state.is_masked() && state.is_there() {
        differs.extend(enablement_differs(content, look));
    }
    if differs.is_empty() { ("down", differs) } else { ("outdated", differs) }
}

fn unread_in_words(look: &Look) -> Option<String> {
    let units = look.unread.join(", ");
    (!units.is_empty())
        .then(|| format!("it triggers {units}, whose files have changed since systemd last read these files"))
}

fn enablement_differs(content: &Service, look: &Look) -> Option<String> {
    let state = &look.state;
    let enabled = state.file_state.starts_with("enabled");
    match content.enabled {
        Some(true)
            if ["disabled", "linked", "linked-runtime", "enabled-runtime"].contains(&state.file_state.as_str()) =>
        {
            Some("it is not enabled".to_owned())
        }
        Some(true) if enabled && look.otherwise => {
            Some("its section [Install] has changed since it was enabled".to_owned())
        }
        Some(false) if enabled => Some("it is enabled".to_owned()),
        Some(_) | None => None,
    }
}

/// Why the running unit is not as desired.
fn older_than_wanted(question: &Question, look: &Look) -> Option<String> {
    let state = &look.state;
    if !look.files.is_empty() {
        return Some(look.files.clone());
    }
    if state.needs_reload {
        return Some("its files have changed since systemd last read these files".to_owned());
    }
    let older_files = || {
        let older = look.newest_us > state.active_since_us;
        older.then(|| "its files have changed since it was started".to_owned())
    };
    let other_content = || Some("it runs with another content".to_owned());
    match &look.started {
        Some(started) if started.identity != look.identity && started.invocation == state.invocation => other_content(),
        // Started by systemd or a user since, with these files; only times show whether its dependencies have changed
        // since.
        Some(started) if started.identity != look.identity && question.rests_on.is_some() && !look.fresh => {
            other_content()
        }
        Some(started) if started.invocation == state.invocation => {
            let other = started.configuration != look.configuration;
            other.then(|| "its files have changed since it was started".to_owned())
        }
        // Started by others since, with the present files.
        Some(_) => older_files(),
        None if question.rests_on.is_some() && !look.fresh => {
            Some("cobd has not started it, and its dependencies may have changed since its start".to_owned())
        }
        None => older_files(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(keys: &str) -> Question {
        Question {
            content: cob_kinds::read::<Service>(&format!("{{\"unit\":\"x\"{keys}}}")).expect("read"),
            systemd: Systemd { address: None, units: "/nowhere".into(), runtime: "/nowhere".into() },
            folder: "/nowhere".into(),
            payload: "/nowhere".into(),
            rests_on: None,
            rests_down: false,
            leaving: false,
            triggers: Arc::default(),
            rested_for: None,
        }
    }

    /// Runs since second 10, started from here with the desired content.
    fn running() -> Look {
        let state = UnitState {
            load: "loaded".into(),
            active: "active".into(),
            sub: "running".into(),
            file_state: "disabled".into(),
            invocation: "1".into(),
            active_since_us: 10_000_000,
            ..UnitState::default()
        };
        Look {
            state,
            started: Some(Started::new("wanted", "files".into(), "1".into())),
            configuration: "files".into(),
            newest_us: 5_000_000,
            identity: "wanted".into(),
            ..Look::default()
        }
    }

    type Change = fn(&mut Look);

    fn judged(question: &Question, change: impl FnOnce(&mut Look)) -> (String, String) {
        let mut look = running();
        change(&mut look);
        judge(question, &look).map_or_else(|why| ("unknown".to_owned(), why), |(state, why)| (state.to_owned(), why))
    }

    #[test]
    fn a_unit_started_by_a_socket_counts_as_down_until_its_content_changes() {
        let of = |ending: &str| {
            let unit = format!("x.{ending}");
            let q = Question { rests_down: true, triggers: Arc::new([unit.clone()].into()), ..question("") };
            (q, unit)
        };
        for (ending, older) in [("socket", "outdated"), ("timer", "down")] {
            let (q, unit) = of(ending);
            let by_it = |newest_us| {
                let unit = unit.clone();
                move |l: &mut Look| {
                    l.state.triggered_by = vec![unit];
                    (l.started, l.newest_us) = (None, newest_us);
                }
            };
            assert_eq!(judged(&q, by_it(5_000_000)).0, "down", "{ending}");
            assert_eq!(judged(&q, by_it(11_000_000)).0, older, "{ending}");
        }
    }

    #[test]
    fn the_state_follows_the_state_of_the_unit() {
        let q = question("");
        assert_eq!(judged(&q, |_| {}).0, "up");
        assert_eq!(judged(&q, |l| l.state.active = "reloading".into()).0, "up");
        assert_eq!(judged(&q, |l| l.state.active = "inactive".into()).0, "down");
        let (state, why) = judged(&q, |l| {
            l.state.active = "failed".into();
            l.result = "exit-code".into();
        });
        assert_eq!((state.as_str(), why.as_str()), ("failed", "it has failed: exit-code"));
        let (state, why) = judged(&q, |l| {
            l.state.active = "activating".into();
            l.state.sub = "auto-restart".into();
        });
        assert_eq!(state, "failed", "{why}");
        let (state, why) = judged(&q, |l| {
            l.state.active = "activating".into();
            l.state.sub = "start".into();
        });
        assert!(state == "unknown" && why.contains("activating"), "{why}");
    }

    #[test]
    fn a_unit_that_runs_with_older_content_is_outdated() {
        let q = question("");
        let outdated: [(Change, &str); 6] = [
            (|l| l.files = "a.conf differs".into(), "a.conf"),
            (|l| l.state.needs_reload = true, "systemd last read"),
            (|l| l.configuration = "others".into(), "changed since it was started"),
            (|l| l.started = Some(Started::new("old", "files".into(), "1".into())), "another content"),
            // An earlier content, and files that have changed since.
            (
                |l| {
                    l.started = Some(Started::new("old", "files".into(), "1".into()));
                    l.state.invocation = "2".into();
                    l.newest_us = 11_000_000;
                },
                "changed since it was started",
            ),
            // Started by a user, before the files changed.
            (
                |l| {
                    l.state.invocation = "2".into();
                    l.newest_us = 11_000_000;
                },
                "changed since it was started",
            ),
        ];
        for (change, words) in outdated {
            let (state, why) = judged(&q, change);
            assert!(state == "outdated" && why.contains(words), "{state}: {why}");
        }
        // Started by a user, with the present files.
        let fresh = |l: &mut Look| {
            l.state.invocation = "2".into();
            l.configuration = "others".into();
        };
        assert_eq!(judged(&q, fresh).0, "up");
        assert_eq!(judged(&q, |l| l.started = None).0, "up", "taken over as it runs");
        let rests = Question { rests_on: Some("x".into()), ..question("") };
        assert_eq!(judged(&rests, |l| l.started = None).0, "outdated");
    }

    #[test]
    fn a_unit_that_others_started_with_the_new_content_is_up() {
        // By systemd after a power failure, or by an administrator: another run than the run from here.
        let by_others = |look: &mut Look| {
            look.started = Some(Started::new("old", "others".into(), "1".into()));
            look.state.invocation = "2".into();
        };
        assert_eq!(judged(&question(""), by_others).0, "up", "its files are older than its run");
        let rests = Question { rests_on: Some("x".into()), ..question("") };
        assert_eq!(judged(&rests, by_others).0, "outdated", "its dependencies may have changed since");
        for started in [None, Some(Started::new("old", "others".into(), "1".into()))] {
            let fresh = |look: &mut Look| {
                by_others(look);
                (look.started, look.fresh) = (started, true);
            };
            assert_eq!(judged(&rests, fresh).0, "up");
        }
        // Its run began 40 s ago.
        let state = UnitState { active: "active".into(), began_us: 60_000_000, ..UnitState::default() };
        let fresh = |rested: Option<u64>, state: &UnitState| {
            let question = Question { rested_for: rested.map(Duration::from_secs), ..question("") };
            is_fresh(&question, state, Duration::from_secs(100))
        };
        assert!(fresh(Some(41), &state) && fresh(Some(u64::MAX / 2), &state));
        assert!(!fresh(Some(40), &state) && !fresh(Some(1), &state) && !fresh(None, &state));
        assert!(!fresh(Some(1000), &UnitState { began_us: 0, ..state.clone() }), "it is not known since when");
        assert!(!fresh(Some(1000), &UnitState { active: "activating".into(), ..state }));
    }

    #[test]
    fn a_unit_with_a_wanted_mask_is_down_when_it_is_masked() {
        let down = |file_state: &str, leaving: bool| {
            let q = Question { leaving, ..question(",\"mask\":true") };
            judged(&q, |l| {
                l.state.active = "inactive".into();
                l.state.file_state = file_state.to_owned();
            })
            .0
        };
        assert_eq!(down("disabled", false), "failed");
        // Its package is not installed yet.
        assert_eq!(down("", false), "failed");
        assert_eq!(down("masked", false), "down");
        assert_eq!(down("disabled", true), "down");
    }

    #[test]
    fn enablement_is_put_right_while_it_runs() {
        assert_eq!(judged(&question(",\"enabled\":true"), |_| {}).0, "stale");
        assert_eq!(judged(&question(",\"enabled\":false"), |_| {}).0, "up");
        assert_eq!(
            judged(&question(",\"enabled\":false"), |l| l.state.file_state = "enabled-runtime".into()).0,
            "stale"
        );
        assert_eq!(judged(&question(",\"enabled\":true"), |l| l.state.file_state = "static".into()).0, "up");
        assert_eq!(judged(&question(",\"enabled\":true"), |l| l.state.file_state = "enabled".into()).0, "up");
        let otherwise = |l: &mut Look| {
            l.state.file_state = "enabled".into();
            l.otherwise = true;
        };
        assert_eq!(judged(&question(",\"enabled\":true"), otherwise).0, "stale");
        assert_eq!(judged(&question(""), otherwise).0, "up");
        for linked in ["linked", "linked-runtime", "enabled-runtime"] {
            assert_eq!(judged(&question(",\"enabled\":true"), |l| l.state.file_state = linked.into()).0, "stale");
        }
    }

    #[test]
    fn a_departing_unit_is_down_only_when_its_original_files_are_back() {
        let down = |leaving: bool, changed: bool| {
            let q = Question { leaving, ..question("") };
            judged(&q, |l| {
                l.state.active = "inactive".into();
                l.changed = changed;
            })
            .0
        };
        assert_eq!(down(true, true), "outdated");
        assert_eq!(down(true, false), "down");
        assert_eq!(down(false, true), "down");
    }

    #[test]
    fn a_unit_is_down_only_when_it_is_masked_and_disabled_as_wanted() {
        let down = |keys: &str, file_state: &str| {
            let q = Question { rests_down: true, ..question(keys) };
            judged(&q, |l| {
                l.state.active = "inactive".into();
                l.state.file_state = file_state.to_owned();
            })
            .0
        };
        assert_eq!(down(",\"mask\":true", "disabled"), "outdated");
        assert_eq!(down(",\"mask\":true", "masked"), "down");
        assert_eq!(down(",\"mask\":false", "masked"), "outdated");
        assert_eq!(down(",\"enabled\":false", "enabled"), "outdated");
        assert_eq!(down("", "enabled"), "down");
    }
}
