//! Kinds as data: states, the sparse transition matrix, priority, and the actions of transitions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::id::{BlobHash, KindName, StateName};

/// The most states that a kind may have.
pub const MAX_STATES: usize = 256;

/// A kind in a bundle. All fields are explicit: defaults have been filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// Its name in the model.
    pub name: KindName,
    /// The executor of check and transitions: `command` (the commands below) or the name of a built-in back end
    /// (`wait`, `tcp-check`, `http-check`, `service`, `noop`).
    pub backend: String,
    /// All states, without `unknown`.
    pub states: Vec<StateName>,
    /// The state without a request; the on state of the short words.
    pub preferred: StateName,
    /// The state before the removal; the off state of the short words.
    pub pre_remove: StateName,
    /// The priority of the states when several are requested: the first wins. Has every state once.
    pub priority: Vec<StateName>,
    /// The check of the state.
    pub check: KindCheck,
    /// The transitions, in the order that breaks ties between equally short paths.
    pub transitions: Vec<Transition>,
    /// Files beside the model that travel with the kind: `./check.sh` and the like.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, PayloadFile>,
}

/// A file that travels in the bundle. Its name is relative (`check.sh`, `lib/x.sh`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadFile {
    /// Permission bits.
    pub mode: u32,
    /// Its content, stored once in a bundle.
    pub blob: BlobHash,
}

/// The longest name of a travelling file, and the longest part of a name.
const MAX_NAME: usize = 1024;
const MAX_PART: usize = 255;

/// Checks the name of a travelling file: it must lead below its folder, and no file may be where another file needs a
/// folder.
///
/// # Errors
/// The first fault, in words.
pub fn check_payload_name<'a>(name: &str, all: impl Fn(&str) -> bool + 'a) -> Result<(), &'static str> {
    if name.len() > MAX_NAME || name.split('/').any(|part| part.len() > MAX_PART) {
        return Err("too long");
    }
    if name.contains('\0') {
        return Err("a name holds no NUL");
    }
    if name.starts_with('/') {
        return Err("must be relative to the model");
    }
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("must be plain names with single slashes between, without `.` and `..`");
    }
    let mut part = name;
    while let Some((above, _)) = part.rsplit_once('/') {
        if all(above) {
            return Err("a part of it is a file itself");
        }
        part = above;
    }
    Ok(())
}

/// The check of a change object's state; it never changes the host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindCheck {
    /// The command that prints the state's name. Absent for built-in back ends.
    pub run: Option<Command>,
    /// The timeout.
    pub timeout_ms: u64,
    /// The interval of periodic checks for drift; absent: no periodic checks.
    pub interval_ms: Option<u64>,
}

/// A transition of the matrix.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// The state before.
    pub from: StateName,
    /// The state after success.
    pub to: StateName,
    /// The command. Absent for built-in back ends.
    pub run: Option<Command>,
    /// The timeout.
    pub timeout_ms: u64,
    /// The time between the request to end and the kill of its process group.
    pub grace_ms: u64,
    /// The number of retries after a failure.
    pub retries: u32,
    /// The delay before the first retry; doubles with each retry, up to a minute.
    pub retry_delay_ms: u64,
    /// The state after a failure; absent: `unknown`, and a check follows.
    pub failure: Option<StateName>,
    /// The command that reverts the transition, given its saved result.
    pub revert: Option<Command>,
    /// Marked by the author: it can't be reverted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub irreversible: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Command {
    /// Run with `/bin/sh -c`.
    Shell(String),
    /// Run directly; the first word is the program.
    Argv(Vec<String>),
}

impl Kind {
    /// Whether the kind has this state.
    #[must_use]
    pub fn has_state(&self, state: &StateName) -> bool {
        self.states.contains(state)
    }

    /// Whether a change object of the kind `before` may continue as a change object of this kind under the same id,
    /// because check and actions of both handle the same thing. Otherwise it has to depart as the old kind, and start
    /// anew.
    ///
    /// This holds for kinds with the same name, which may have changed; for the forms of a service, script or plug-in;
    /// and for kinds that differ only in their names.
    #[must_use]
    pub fn continues(&self, before: &Self) -> bool {
        self.family() == before.family() || Self { name: before.name.clone(), ..self.clone() } == *before
    }

    /// The name without its form: contents select the form of a built-in kind.
    fn family(&self) -> &str {
        let name = self.name.as_str();
        let of =
            |family: &&str| name.strip_prefix(*family).is_some_and(|form| form.is_empty() || form.starts_with('.'));
        ["service", "container", "script", "plugin"].into_iter().find(of).unwrap_or(name)
    }

    /// The state `outdated`, if the kind has it.
    #[must_use]
    pub fn outdated(&self) -> Option<&StateName> {
        self.states.iter().find(|s| **s == StateName::OUTDATED)
    }
    /// The state of a change object that an operator has stopped: `stopped` for a service with actions, the off state
    /// for any other. `None`: there is no stopped state, as for a service whose actions only install.
    #[must_use]
    pub fn stopped(&self) -> Option<&StateName> {
        let off =
            if self.is_of_actions() { self.states.iter().find(|s| **s == *"stopped") } else { Some(&self.pre_remove) };
        off.filter(|state| **state != self.preferred)
    }

    /// Whether it is a service in any form, or a container, which is a unit of systemd as well.
    #[must_use]
    pub fn is_service(&self) -> bool {
        matches!(self.family(), "service" | "container")
    }

    /// Whether it has a running process that an operator means when stopping a service or a cluster. A static change
    /// object (a file, a package, a user) is stopped only together with a change object that it needs.
    #[must_use]
    pub fn runs(&self) -> bool {
        let commands = matches!(self.backend.as_str(), "command" | "noop") && self.family() != "script";
        (self.is_service() || commands) && self.stopped().is_some()
    }

    fn is_of_actions(&self) -> bool {
        self.name.as_str().starts_with("actions.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, backend: &str) -> Kind {
        let state = |name: &str| StateName::new(name).expect("a state");
        Kind {
            name: KindName::new(name).expect("a name"),
            backend: backend.to_owned(),
            states: vec![state("down"), state("up")],
            preferred: state("up"),
            pre_remove: state("down"),
            priority: vec![state("down"), state("up")],
            check: KindCheck { run: None, timeout_ms: 1, interval_ms: None },
            transitions: Vec::new(),
            files: BTreeMap::new(),
        }
    }

    #[test]
    fn the_stopped_state_of_a_kind_is_found_without_its_removal() {
        let state = |name: &str| StateName::new(name).expect("a state");
        let stopped = |kind: &Kind| kind.stopped().map(ToString::to_string);
        let web = kind("web", "command");
        assert_eq!((stopped(&web).as_deref(), web.runs()), (Some("down"), true));
        let script = kind("script.1", "command");
        assert_eq!((stopped(&script).as_deref(), script.runs()), (Some("down"), false));
        let installed = kind("actions.a", "command");
        assert_eq!((stopped(&installed), installed.runs()), (None, false));
        let states = vec![state("down"), state("stopped"), state("up")];
        let started = Kind { states, ..installed };
        assert_eq!((stopped(&started).as_deref(), started.runs()), (Some("stopped"), true));
        let budget = Kind { pre_remove: state("up"), ..kind("budget", "budget") };
        assert_eq!((stopped(&budget), budget.runs()), (None, false));
    }

    #[test]
    fn a_kind_continues_its_own_forms_and_equal_kinds() {
        let other = |kind: Kind| Kind { check: KindCheck { timeout_ms: 2, ..kind.check.clone() }, ..kind };
        let continues = |now: &Kind, before: &Kind| now.continues(before);
        assert!(continues(&other(kind("web", "command")), &kind("web", "command")), "it has changed");
        assert!(continues(&kind("web", "command"), &kind("server", "command")), "under another name");
        assert!(!continues(&other(kind("web", "command")), &kind("server", "command")));
        for (now, before) in [("service", "service.unit"), ("container.1", "container"), ("script.1", "script.2")] {
            assert!(continues(&other(kind(now, "a")), &kind(before, "b")), "{now} from {before}");
        }
        for (now, before) in [("file-tree", "service"), ("scripts", "script"), ("actions.a", "actions.b")] {
            assert!(!continues(&kind(now, "a"), &kind(before, "b")), "{now} from {before}");
        }
    }
}
