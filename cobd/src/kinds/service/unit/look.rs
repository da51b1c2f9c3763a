//! The state of a unit, by a look at systemd and at the files.

use std::path::{Path, PathBuf};

use cob_types::words::count;

use super::before::{Before, Started};
use super::bus::{Bus, Systemd, UnitState};
use super::content::{UnitContent, identity};
use super::files::{configuration, differences};
use super::own::{is_own, refusal};
use crate::blocking::beside;
use crate::kinds::service::folder::ServiceFolder;
use crate::kinds::service::former::{Form, left};

/// What a check goes by.
#[derive(Debug, Clone)]
pub(in crate::kinds::service) struct Question {
    pub(in crate::kinds::service) content: UnitContent,
    pub(in crate::kinds::service) systemd: Systemd,
    /// Where the service is looked after.
    pub(in crate::kinds::service) folder: PathBuf,
    /// The files that travel.
    pub(in crate::kinds::service) payload: PathBuf,
    /// A fingerprint of the other change objects that it rests on.
    pub(in crate::kinds::service) rests_on: Option<String>,
    /// It is to be down.
    pub(in crate::kinds::service) rests_down: bool,
    /// It is about to leave: what was there before comes back.
    pub(in crate::kinds::service) leaving: bool,
}

/// All that a judgement is made of.
#[derive(Debug, Clone, Default)]
struct Look {
    state: UnitState,
    /// What differs in the files that are given; empty: nothing.
    files: String,
    started: Option<Started>,
    /// Of all files that make the unit.
    configuration: String,
    /// When the last of them changed.
    newest_us: u64,
    /// See [`identity`].
    identity: String,
    /// What was there before is noted, and not put back.
    changed: bool,
    /// Its files say otherwise how it is enabled than when it was enabled from here.
    otherwise: bool,
    /// How it ended, and how often systemd has started it again, where it is a service.
    result: String,
}

/// A state and in what it differs from the wanted one; or why nobody knows.
pub(in crate::kinds::service) type Judged = Result<(&'static str, String), String>;

/// Has a content name its unit as systemd does, where it has an alias: that leads nowhere as soon as it is disabled.
pub(super) async fn name_as_systemd_does(bus: &Bus, folder: &Path, content: &mut UnitContent) -> Result<(), String> {
    if content.gives_unit() {
        return Ok(());
    }
    let (name, place) = (content.name(), folder.to_owned());
    let noted = beside(move || Before::main_name(&place, &name)).await;
    content.unit = match noted.map_err(|lost| lost.to_string())?? {
        Some(unit) => unit,
        None => bus.look(&content.name()).await?.id,
    };
    Ok(())
}

/// Looks at a unit, and changes nothing.
pub(in crate::kinds::service) async fn check(bus: &Bus, mut question: Question) -> Judged {
    name_as_systemd_does(bus, &question.folder, &mut question.content).await?;
    let name = question.content.name();
    let state = bus.look(&name).await?;
    if is_own(&state.id) {
        // One that leaves has nothing to wait for: what an earlier daemon has found is put back beside it, as it runs.
        return if question.leaving { Ok(("down", String::new())) } else { Err(refusal(&state.id)) };
    }
    let mut result = String::new();
    if state.active == "failed" || state.restarts() {
        result = bus.of_service(&name, "Result").await.unwrap_or_default();
        let restarts: u32 = bus.of_service(&name, "NRestarts").await.unwrap_or(0);
        if restarts > 0 {
            result += &format!(", with {} by systemd", count(restarts, "restart"));
        }
    }
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
        let look = Look { state, files, started, configuration, newest_us, identity, changed, otherwise, result };
        judge(&question, &look)
    });
    looked.await.map_err(|lost| lost.to_string())?
}

fn judge(question: &Question, look: &Look) -> Judged {
    let state = &look.state;
    let content = &question.content;
    if state.restarts() {
        return Ok(("failed", format!("it has ended by itself ({}), and systemd starts it again", look.result)));
    }
    if state.active == "failed" {
        return Ok(("failed", format!("it has failed: {}", look.result)));
    }
    if state.moves() {
        // The end of that comes as a change of the unit, and is looked at again.
        return Err(format!("the unit is {} ({})", state.active, state.sub));
    }
    if !state.runs() {
        if question.leaving && look.changed {
            return Ok(("outdated", "what was there before is not put back yet".to_owned()));
        }
        return Ok(if question.rests_down { at_rest(content, look) } else { ("down", String::new()) });
    }
    if let Some(why) = older_than_wanted(question, look) {
        return Ok(("outdated", why));
    }
    if let Some(why) = enablement_differs(content, look) {
        return Ok(("stale", why));
    }
    Ok(("up", String::new()))
}

/// One that is to be down is so in all that is said about it.
fn at_rest(content: &UnitContent, look: &Look) -> (&'static str, String) {
    let state = &look.state;
    let mut differs = look.files.clone();
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

fn enablement_differs(content: &UnitContent, look: &Look) -> Option<String> {
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

/// Why what runs is not what is wanted.
fn older_than_wanted(question: &Question, look: &Look) -> Option<String> {
    let state = &look.state;
    if !look.files.is_empty() {
        return Some(look.files.clone());
    }
    if state.needs_reload {
        return Some("its files have changed since systemd has read them".to_owned());
    }
    let older_files = || {
        let older = look.newest_us > state.active_since_us;
        older.then(|| "its files have changed since it was started".to_owned())
    };
    match &look.started {
        Some(started) if started.identity != look.identity => Some("it runs with another content".to_owned()),
        Some(started) if started.invocation == state.invocation => {
            let other = started.configuration != look.configuration;
            other.then(|| "its files have changed since it was started".to_owned())
        }
        // Somebody else has started it since; with the files as they are.
        Some(_) => older_files(),
        None if question.rests_on.is_some() => Some(
            "it was not started from here, so nobody knows whether it was before or after what it rests on".to_owned(),
        ),
        None => older_files(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(keys: &str) -> Question {
        Question {
            content: UnitContent::read(&format!("{{\"unit\":\"x\"{keys}}}")).expect("read"),
            systemd: Systemd { address: None, units: "/nowhere".into(), runtime: "/nowhere".into() },
            folder: "/nowhere".into(),
            payload: "/nowhere".into(),
            rests_on: None,
            rests_down: false,
            leaving: false,
        }
    }

    /// It runs since the second 10, started from here as it is wanted.
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
    fn the_state_is_the_units_own() {
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
    fn what_runs_with_something_older_is_outdated() {
        let q = question("");
        let outdated: [(Change, &str); 5] = [
            (|l| l.files = "a.conf differs".into(), "a.conf"),
            (|l| l.state.needs_reload = true, "systemd has read"),
            (|l| l.configuration = "others".into(), "changed since it was started"),
            (|l| l.started = Some(Started::new("old", "files".into(), "1".into())), "another content"),
            // Started by somebody else, before the files have changed.
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
        // Started by somebody else, with the files as they are now.
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
    fn one_that_leaves_is_down_when_what_was_before_is_back() {
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
    fn what_is_to_be_down_is_masked_and_disabled_too() {
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
