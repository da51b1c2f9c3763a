//! Services that are described by actions (`actions`) instead of change objects (`cobs`).
//!
//! Each node gets a change object of a kind that is made from the actions. Its states are the results of the actions:
//! absent -install-> installed -configure-> configured -initialize-> initialized -start-> started, started -stop->
//! stopped -start-> started, and -remove-> absent from each state in which it does not run. A missing action has no
//! state, but a service that needs others only from its initialization on is installed before that, even without an
//! install action. The last state before the start also leads to stopped without an action: so a service that must
//! exist but not run never has to start. If the configuration differs from the configuration at the last `configure`,
//! the service is outdated: it is stopped, configured again, and then started.
//!
//! The state is in `COB_STATE_DIR/state`, written after a successful action. Beside it is a digest of the configuration
//! that the service was configured with, not the configuration itself, which may hold secrets.

use cob_types::kind::KindCheck;
use cob_types::words::shell_word;
use cob_types::{Command, Kind, KindName, StateName, Transition};

use super::Report;
use super::files::{Files, Payload};
use super::kinds::{self, Known};
use crate::model::{Action, ActionEntry, ActionsEntry, Marked};

pub(super) const ABSENT: &str = "absent";
pub(super) const STARTED: &str = "started";
pub(super) const STOPPED: &str = "stopped";
pub(super) const INSTALLED: &str = "installed";
pub(super) const INITIALIZED: &str = "initialized";

/// The name of the change object on each node.
pub(super) const COB: &str = "instance";

/// The file with the digest of the configuration.
const DIGEST: &str = "\"$COB_STATE_DIR/content.sha256\"";
/// The file in which earlier generations kept the configuration itself; if it exists, it is newer than any digest.
const COPY: &str = "\"$COB_STATE_DIR/content\"";

/// The states on the way up, in order, with the actions that lead there.
type Way<'a> = Vec<(&'static str, &'static str, Option<&'a Marked<ActionEntry>>)>;

/// The kind of a service's change objects; `None` if its actions have faults, which are already reported.
pub(super) fn kind(
    service: &Marked<String>,
    actions: &Marked<ActionsEntry>,
    files: &mut Files,
    report: &mut Report<'_>,
) -> Option<Known> {
    let before = report.errors();
    let name =
        report.name(&Marked { mark: service.mark, value: format!("actions.{}", service.value) }, KindName::new)?;
    let mut maker = Maker { files, report, payload: Payload::new() };
    let written = &actions.value;
    let entry = |action: &'_ Option<Action>| action.as_ref().map(|Action(entry)| entry.clone());
    let (stop, remove, start) = (entry(&written.stop), entry(&written.remove), entry(&written.start));
    let of = |action: &'static str, state: &'static str, entry: &'_ Option<Action>| {
        entry.as_ref().map(|Action(entry)| (action, state, entry.clone()))
    };
    let all = [
        of("install", INSTALLED, &written.install),
        of("configure", "configured", &written.configure),
        of("initialize", INITIALIZED, &written.initialize),
        of("start", STARTED, &written.start),
    ];
    let all: Vec<_> = all.into_iter().flatten().collect();
    let mut way: Way<'_> = all.iter().map(|(action, state, entry)| (*action, *state, Some(entry))).collect();
    if way.first().is_some_and(|(_, state, _)| *state == INITIALIZED) {
        way.insert(0, ("install", INSTALLED, None));
    }
    let recorded = recorded(&way);
    let mut transitions = Vec::new();
    let mut from = ABSENT;
    for (action, state, entry) in &way {
        transitions.push(maker.transition(from, state, &[(action, *entry)], Some(*state) == recorded));
        from = state;
    }
    if let Some(start) = &start {
        let begun = way.iter().rev().nth(1).map_or(ABSENT, |(_, state, _)| *state);
        transitions.push(maker.transition(begun, STOPPED, &[], false));
        transitions.push(maker.transition(STARTED, STOPPED, &[("stop", stop.as_ref())], false));
        let records = recorded == Some(STARTED);
        transitions.push(maker.transition(STOPPED, STARTED, &[("start", Some(start))], records));
    }
    let configure = entry(&written.configure);
    if start.is_some() {
        let anew = [("stop", stop.as_ref()), ("configure", configure.as_ref())];
        transitions.push(maker.transition("outdated", STOPPED, &anew, configure.is_some()));
    } else if let Some((action, last, entry)) = way.last() {
        let again = configure.as_ref().map_or((*action, *entry), |configure| ("configure", Some(configure)));
        transitions.push(maker.transition("outdated", last, &[again], true));
    }
    let resting = way.iter().map(|(_, state, _)| *state).filter(|s| *s != STARTED);
    let resting: Vec<&str> = start.iter().map(|_| STOPPED).chain(resting.rev_order()).collect();
    // A service that does not run is removed as it is: configuring it may need departing change objects.
    let outdated = (start.is_none() && !way.is_empty()).then_some("outdated");
    for state in resting.iter().copied().chain(outdated) {
        transitions.push(maker.transition(state, ABSENT, &[("remove", remove.as_ref())], false));
    }
    let mut states = vec![cob_kinds::state(ABSENT)];
    states.extend(way.iter().map(|(_, state, _)| cob_kinds::state(state)));
    if start.is_some() {
        states.push(cob_kinds::state(STOPPED));
    }
    if !way.is_empty() {
        states.push(cob_kinds::state("outdated"));
    }
    let preferred = cob_kinds::state(way.last().map_or(ABSENT, |(_, state, _)| *state));
    let kind = Kind {
        name,
        backend: "command".to_owned(),
        preferred: preferred.clone(),
        pre_remove: cob_kinds::state(ABSENT),
        priority: priority(&states, &preferred),
        check: KindCheck { run: Some(Command::Shell(check(&way, recorded))), ..cob_kinds::plain_check(None) },
        states,
        transitions,
        files: maker.payload,
    };
    let known = Known { kind: std::sync::Arc::new(kind), mark: Some(actions.mark), builtin: None, of_actions: true };
    (report.errors() == before).then_some(known)
}

/// The later of two states wins in reverse order: removal first, then stopping, then the preferred state.
fn priority(states: &[StateName], preferred: &StateName) -> Vec<StateName> {
    let mut order: Vec<StateName> = Vec::new();
    let first = [cob_kinds::state(ABSENT), cob_kinds::state(STOPPED), preferred.clone()];
    for state in first.iter().chain(states) {
        if states.contains(state) && !order.contains(state) {
            order.push(state.clone());
        }
    }
    order
}

/// The state whose entry stores the digest of the configuration.
fn recorded(way: &Way<'_>) -> Option<&'static str> {
    let has = |state: &str| way.iter().any(|(_, s, _)| *s == state);
    ["configured", STARTED].into_iter().find(|s| has(s)).or_else(|| way.last().map(|(_, state, _)| *state))
}

/// Prints the state, or outdated if the configuration differs and the state is at or after `recorded`.
fn check(way: &Way<'_>, recorded: Option<&'static str>) -> String {
    let mut text = String::from("state=$(cat \"$COB_STATE_DIR/state\" 2>/dev/null) || state=absent\n");
    let Some(recorded) = recorded else { return text + "echo \"$state\"\n" };
    text += &format!(
        "if [ -e {COPY} ]; then cmp -s {COPY} \"$COB_CONTENT\"; else\n\
         digest=$(sha256sum < \"$COB_CONTENT\") || exit\n[ \"$(cat {DIGEST} 2>/dev/null)\" = \"$digest\" ]\nfi \
         && {{ echo \"$state\"; exit; }}\ncase \"$state\" in\n"
    );
    let at = way.iter().position(|(_, state, _)| *state == recorded).unwrap_or(0);
    let last = at + 1 == way.len();
    if recorded == "configured" && !last {
        // No later state relies on it yet: it is configured again.
        let before = at.checked_sub(1).map_or(ABSENT, |b| way[b].1);
        text += &format!("configured) echo {before} ;;\n");
    } else {
        text += &format!("{recorded}) echo outdated ;;\n");
    }
    let mut later: Vec<&str> = way[at + 1..].iter().map(|(_, state, _)| *state).collect();
    if recorded == "configured" && way.iter().any(|(_, state, _)| *state == STARTED) {
        later.push(STOPPED);
    }
    if !later.is_empty() {
        text += &format!("{}) echo outdated ;;\n", later.join("|"));
    }
    text + "*) echo \"$state\" ;;\nesac\n"
}

/// The states of a way in reverse order.
trait Backwards<'a>: Iterator<Item = &'a str> {
    fn rev_order(self) -> std::iter::Rev<std::vec::IntoIter<&'a str>>;
}

impl<'a, I: Iterator<Item = &'a str>> Backwards<'a> for I {
    fn rev_order(self) -> std::iter::Rev<std::vec::IntoIter<&'a str>> {
        self.collect::<Vec<_>>().into_iter().rev()
    }
}

struct Maker<'a, 'r> {
    files: &'a mut Files,
    report: &'a mut Report<'r>,
    payload: Payload,
}

impl Maker<'_, '_> {
    /// A transition with some actions; missing actions add no commands.
    fn transition(
        &mut self,
        from: &str,
        to: &str,
        actions: &[(&str, Option<&Marked<ActionEntry>>)],
        records: bool,
    ) -> Transition {
        let mut text = format!("if [ -e {COPY} ]; then\n{}rm -f {COPY} {COPY}.new || exit\nfi\n", keep_digest(COPY));
        let mut transition = cob_kinds::plain_transition(from, to);
        let usual = (transition.timeout_ms, transition.grace_ms, transition.retry_delay_ms);
        let mut times = Vec::new();
        for (name, entry) in actions {
            let Some(Marked { value: entry, .. }) = entry else { continue };
            let command = entry.run.as_ref().and_then(|run| self.files.command(run, &mut self.payload, self.report));
            if let Some(command) = command {
                text += &format!("env COB_ACTION={name} {} || exit\n", words(&command));
            }
            let mut ms = |written: &Option<_>, default| kinds::milliseconds(written.as_ref(), default, self.report);
            let timeout = ms(&entry.timeout, usual.0);
            times.push((timeout, ms(&entry.grace, usual.1), ms(&entry.retry_delay, usual.2)));
        }
        if !times.is_empty() {
            // The actions run in sequence in a single transition, which gets the time of all.
            transition.timeout_ms = times.iter().map(|t| t.0).sum();
            transition.grace_ms = times.iter().map(|t| t.1).max().unwrap_or(usual.1);
            transition.retry_delay_ms = times.iter().map(|t| t.2).max().unwrap_or(usual.2);
        }
        let retries = actions.iter().filter_map(|(_, entry)| entry.as_ref()?.value.retries).max();
        transition.retries = retries.unwrap_or(transition.retries);
        if records {
            text += &keep_digest("\"$COB_CONTENT\"");
        }
        text += &format!("echo {to} > \"$COB_STATE_DIR/state.new\" || exit\n");
        text += "mv \"$COB_STATE_DIR/state.new\" \"$COB_STATE_DIR/state\"\n";
        transition.run = Some(Command::Shell(text));
        transition
    }
}

/// Stores the digest of a file.
fn keep_digest(file: &str) -> String {
    let new = "\"$COB_STATE_DIR/content.sha256.new\"";
    format!("sha256sum < {file} > {new} || exit\nmv {new} {DIGEST} || exit\n")
}

/// A command as words for a shell of its own, so that `set -e` counts in it and unclosed syntax does not affect the
/// commands after it.
fn words(command: &Command) -> String {
    let shell = ["/bin/sh", "-c"].map(str::to_owned);
    let words = match command {
        Command::Shell(text) => shell.into_iter().chain([text.clone()]).collect(),
        Command::Argv(words) => words.clone(),
    };
    let quoted = words.iter().map(|word| shell_word(word));
    quoted.collect::<Vec<_>>().join(" ")
}

impl Known {
    /// Whether it has a running state, in which it needs others.
    pub(super) fn runs(&self) -> bool {
        !self.of_actions || self.on() == STARTED
    }

    /// The states in which it needs no others; the first is the requested state.
    pub(super) fn resting(&self) -> Vec<StateName> {
        if !self.of_actions {
            return vec![self.off().clone()];
        }
        let mut states: Vec<StateName> = self.kind.states.clone();
        states.retain(|state| state != STARTED && *state != StateName::OUTDATED);
        states.reverse();
        states
    }

    /// The states in which it is installed. Resting states come in the order in which they are requested: two requests
    /// for it never lead away from each other's states.
    pub(super) fn installed(&self) -> Vec<StateName> {
        if !self.of_actions {
            return vec![self.on().clone()];
        }
        let mut states = self.resting();
        states.extend(self.kind.states.iter().filter(|state| !states.contains(state)).cloned().collect::<Vec<_>>());
        states.retain(|state| state != self.off());
        states
    }
}
