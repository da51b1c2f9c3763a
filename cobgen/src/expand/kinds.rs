//! Kinds: the user's and the built-in kinds, with all defaults filled in.
//!
//! Defaults: the priority is the pre-remove state, then the preferred state, then the others in the order of `states`;
//! the limit of a transition is 5 minutes, of a check 30 seconds; after SIGTERM an action has 10 seconds before
//! SIGKILL; a failed transition is repeated twice, after 1 and 2 seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_kinds::{CHECK_TIMEOUT_MS, Entry, GRACE_MS, RETRIES, RETRY_DELAY_MS, TIMEOUT_MS, plain_check};
use cob_types::kind::{KindCheck, MAX_STATES};
use cob_types::words::parse_duration;
use cob_types::{Kind, KindName, StateName, Transition};

use super::Report;
use super::files::{Files, Payload};
use crate::diagnostic::Diagnostic;
use crate::model::{BackendEntry, Duration, KindEntry, Mark, Marked, Maybe, Named, TransitionEntry};

/// The longest time that a model may name; a longer time is probably a mistake.
const MAX_MS: u64 = 30 * 24 * 3600 * 1000;
/// The longest time in a content for daemons.
const MAX_CONTENT_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// A kind for change objects.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// The kind for bundles.
    pub(super) kind: Arc<Kind>,
    /// Its place in the model; `None` for a built-in kind.
    pub(super) mark: Option<Mark>,
    /// Its entry in the table of built-in kinds.
    pub(super) builtin: Option<&'static Entry>,
    /// Whether it was made from a service's actions.
    pub(super) of_actions: bool,
}

/// The result of a look-up by name.
pub(super) enum Found<'a> {
    /// A kind.
    Good(&'a Known),
    /// A kind whose faults were reported.
    Broken,
    /// No kind; the unknown name is already reported.
    Unknown,
}

/// All kinds by name.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<String, Option<Known>>);

impl Kinds {
    /// The built-in kinds, and the user's kinds after a check.
    pub(super) fn read(entries: &Named<KindEntry>, files: &mut Files, report: &mut Report<'_>) -> Self {
        let mut kinds = BTreeMap::new();
        for entry in cob_kinds::ALL {
            kinds.insert(entry.kind.name.to_owned(), Some(Known::of(entry)));
        }
        for (name, entry) in entries.iter() {
            if cob_kinds::find(&name.value).is_some() {
                let fault = Diagnostic::error("built-in", format!("the kind `{}` is built in", name.value));
                report.push(name.mark, fault.help("give yours another name"));
                continue;
            }
            if let Some(maker) = maker(&name.value) {
                let what = format!("the name `{}` is reserved for kinds of {maker}", name.value);
                report.push(name.mark, Diagnostic::error("built-in", what).help("give yours another name"));
                kinds.insert(name.value.clone(), None);
                continue;
            }
            let kind = report.name(name, KindName::new).and_then(|n| build(n, name.mark, entry, files, report));
            let known = kind.map(|kind| Known {
                kind: Arc::new(kind),
                mark: Some(name.mark),
                builtin: None,
                of_actions: false,
            });
            kinds.insert(name.value.clone(), known);
        }
        Self(kinds)
    }

    /// The kind with a name.
    pub(super) fn find(&self, name: &Marked<String>, report: &mut Report<'_>) -> Found<'_> {
        match self.0.get(&name.value) {
            Some(Some(known)) => Found::Good(known),
            Some(None) => Found::Broken,
            None => {
                report.unknown("kind", name, self.0.keys().map(String::as_str));
                Found::Unknown
            }
        }
    }
}

impl Known {
    /// A built-in kind.
    pub(super) fn of(entry: &'static Entry) -> Self {
        Self { kind: Arc::new(entry.kind.kind()), mark: None, builtin: Some(entry), of_actions: false }
    }

    /// The on state of the short words.
    pub(super) fn on(&self) -> &StateName {
        &self.kind.preferred
    }

    /// The off state of the short words.
    pub(super) fn off(&self) -> &StateName {
        &self.kind.pre_remove
    }

    /// A state of this kind; an unknown name is an error with a suggestion.
    pub(super) fn state(&self, name: &Marked<String>, report: &mut Report<'_>) -> Option<StateName> {
        let found = self.kind.states.iter().find(|s| s.as_str() == name.value);
        if found.is_none() {
            let what = format!("the kind `{}` has no state `{}`", self.kind.name, name.value);
            report.missing("unknown-state", what, name, self.kind.states.iter().map(StateName::as_str));
        }
        found.cloned()
    }
}

/// The generator of kinds whose names start like this.
fn maker(name: &str) -> Option<&'static str> {
    match name.split_once('.')?.0 {
        "actions" => Some("a service with `actions`"),
        "container" => Some("`container`"),
        "plugin" => Some("`plugin`"),
        "script" => Some("`script`"),
        "service" => Some("`service`"),
        _ => None,
    }
}

/// Makes a kind from its entry; `None` if it has faults, which are already reported.
pub(super) fn build(
    name: KindName,
    mark: Mark,
    entry: &KindEntry,
    files: &mut Files,
    report: &mut Report<'_>,
) -> Option<Kind> {
    let before = report.errors();
    let states = states(&name, mark, entry.states.as_deref()?, report);
    if states.is_empty() {
        return None;
    }
    let states = Names { kind: &name, states };
    let preferred = states.optional(entry.preferred.as_ref(), report);
    let pre_remove = states.optional(entry.pre_remove.as_ref(), report);
    let failure = states.optional(entry.failure.as_ref(), report);
    let priority = match &entry.priority {
        Some(written) => states.priority(written, report),
        None => {
            let mut order: Vec<StateName> = Vec::new();
            for state in pre_remove.iter().chain(&preferred).chain(&states.states) {
                if !order.contains(state) {
                    order.push(state.clone());
                }
            }
            order
        }
    };
    let mut payload = Payload::new();
    files.named(&entry.files, &mut payload, report);
    let does_nothing = entry.backend == Some(BackendEntry::Noop);
    let check = check(&name, mark, entry, does_nothing, files, &mut payload, report);
    let defaults = Defaults {
        timeout: milliseconds(entry.timeout.as_ref(), TIMEOUT_MS, report),
        grace: milliseconds(entry.grace.as_ref(), GRACE_MS, report),
        retries: entry.retries.unwrap_or(RETRIES),
        retry_delay: milliseconds(entry.retry_delay.as_ref(), RETRY_DELAY_MS, report),
        failure,
        does_nothing,
    };
    let mut transitions = Vec::new();
    let mut seen = BTreeMap::new();
    for written in entry.transitions.as_deref()? {
        let made = transition(written, &states, &defaults, files, &mut payload, report);
        let Some(made) = made else { continue };
        if let Some(first) = seen.insert((made.from.clone(), made.to.clone()), written.mark) {
            let what = format!("the transition {} -> {} of `{name}` stands here twice", made.from, made.to);
            let fault = Diagnostic::error("duplicate-transition", what).note(Some(report.place(first)), "first here");
            report.push(written.mark, fault.help("remove either copy"));
        }
        transitions.push(made);
    }
    transitions.extend(ways_back(&transitions));
    let (preferred, pre_remove) = (preferred?, pre_remove?);
    let backend = if does_nothing { "noop" } else { "command" }.to_owned();
    let states = states.states;
    let kind = Kind { name, backend, states, preferred, pre_remove, priority, check, transitions, files: payload };
    (report.errors() == before).then_some(kind)
}

/// The time limits and attempts that a content sets for the transitions of its kind.
pub(super) struct Timing<'a> {
    pub(super) timeout: Option<&'a Duration>,
    pub(super) grace: Option<&'a Duration>,
    pub(super) retries: Option<u32>,
    pub(super) retry_delay: Option<&'a Duration>,
}

impl Timing<'_> {
    /// Changes the transitions of a kind; returns false if the content sets no limits.
    pub(super) fn apply(&self, kind: &mut Kind, report: &mut Report<'_>) -> bool {
        let Self { timeout, grace, retries, retry_delay } = *self;
        if timeout.is_none() && grace.is_none() && retries.is_none() && retry_delay.is_none() {
            return false;
        }
        let timeout = milliseconds(timeout, TIMEOUT_MS, report);
        let grace = milliseconds(grace, GRACE_MS, report);
        let delay = milliseconds(retry_delay, RETRY_DELAY_MS, report);
        for transition in &mut kind.transitions {
            (transition.timeout_ms, transition.grace_ms) = (timeout, grace);
            (transition.retries, transition.retry_delay_ms) = (retries.unwrap_or(RETRIES), delay);
        }
        true
    }
}

/// The values that a transition inherits from its kind.
struct Defaults {
    timeout: u64,
    grace: u64,
    retries: u32,
    retry_delay: u64,
    failure: Option<StateName>,
    does_nothing: bool,
}

/// The states of an unfinished kind.
struct Names<'a> {
    kind: &'a KindName,
    states: Vec<StateName>,
}

impl Names<'_> {
    fn find(&self, name: &Marked<String>, report: &mut Report<'_>) -> Option<StateName> {
        let found = self.states.iter().find(|s| s.as_str() == name.value);
        if found.is_none() {
            let what = format!("`{}` is not among the states of the kind `{}`", name.value, self.kind);
            report.missing("unknown-state", what, name, self.states.iter().map(StateName::as_str));
        }
        found.cloned()
    }

    fn optional(&self, name: Option<&Marked<String>>, report: &mut Report<'_>) -> Option<StateName> {
        self.find(name?, report)
    }

    fn priority(&self, written: &Marked<Vec<Marked<String>>>, report: &mut Report<'_>) -> Vec<StateName> {
        let mut order: Vec<StateName> = Vec::new();
        for name in &written.value {
            match self.find(name, report) {
                Some(state) if order.contains(&state) => {
                    report.push(
                        name.mark,
                        Diagnostic::error("duplicate-state", format!("`{state}` stands twice in the priority")),
                    );
                }
                Some(state) => order.push(state),
                None => {}
            }
        }
        let missing: Vec<String> =
            self.states.iter().filter(|s| !order.contains(s)).map(|s| format!("`{s}`")).collect();
        if !missing.is_empty() {
            let what = format!("the priority of the kind `{}` lacks {}", self.kind, missing.join(", "));
            let help = "list every state once, the state that wins first; or remove the priority for the default";
            report.push(written.mark, Diagnostic::error("incomplete-priority", what).help(help));
        }
        order
    }
}

fn states(kind: &KindName, mark: Mark, written: &[Marked<String>], report: &mut Report<'_>) -> Vec<StateName> {
    let mut states = Vec::new();
    let mut seen = BTreeSet::new();
    if written.is_empty() {
        let fault = Diagnostic::error("no-states", format!("the kind `{kind}` has no states"));
        report.push(mark, fault.help("name its states: `states: [down, up]`"));
    }
    if written.len() > MAX_STATES {
        let what = format!("the kind `{kind}` has {} states; at most {MAX_STATES} are allowed", written.len());
        report.push(mark, Diagnostic::error("too-many-states", what));
    }
    for name in written {
        let Some(state) = report.name(name, StateName::new) else { continue };
        if state == "unknown" {
            let fault = Diagnostic::error("reserved-state", "`unknown` is a state of every kind already");
            report.push(
                name.mark,
                fault.help("remove it from the states: every kind has it, and only a check leads out of it"),
            );
        } else if !seen.insert(state.clone()) {
            report.push(
                name.mark,
                Diagnostic::error("duplicate-state", format!("the state `{state}` stands here twice")),
            );
        } else {
            states.push(state);
        }
    }
    states
}

fn check(
    name: &KindName,
    mark: Mark,
    entry: &KindEntry,
    does_nothing: bool,
    files: &mut Files,
    payload: &mut Payload,
    report: &mut Report<'_>,
) -> KindCheck {
    let mut check = plain_check(None);
    match &entry.check {
        Maybe::There(written) if does_nothing => {
            let fault = Diagnostic::error(
                "needless-command",
                format!("the kind `{name}` has no actions, so its `check` is never run"),
            );
            report.push(written.mark, fault.help("remove either `check` or `backend: noop`"));
        }
        Maybe::There(written) => {
            check.timeout_ms = milliseconds(written.value.timeout.as_ref(), CHECK_TIMEOUT_MS, report);
            check.interval_ms = written.value.interval.as_ref().map(|d| milliseconds(Some(d), 0, report));
            check.run = written.value.run.as_ref().and_then(|run| files.command(run, payload, report));
        }
        Maybe::Wrong => {}
        Maybe::Absent if does_nothing => {}
        Maybe::Absent => {
            let fault = Diagnostic::error("missing-key", format!("the kind `{name}` lacks `check`"));
            report.push(
                mark,
                fault.help(
                    "without it every state stays `unknown`: `check: {run: ./check.sh}`, which prints the state's name",
                ),
            );
        }
    }
    check
}

fn transition(
    written: &Marked<TransitionEntry>,
    states: &Names<'_>,
    defaults: &Defaults,
    files: &mut Files,
    payload: &mut Payload,
    report: &mut Report<'_>,
) -> Option<Transition> {
    let Marked { mark, value: entry } = written;
    let from = states.optional(entry.from.as_ref(), report);
    let to = states.optional(entry.to.as_ref(), report);
    let failure = states.optional(entry.failure.as_ref(), report);
    let run = entry.run.as_ref().and_then(|run| files.command(run, payload, report));
    let revert = entry.revert.as_ref().and_then(|run| files.command(run, payload, report));
    let timeout_ms = milliseconds(entry.timeout.as_ref(), defaults.timeout, report);
    let grace_ms = milliseconds(entry.grace.as_ref(), defaults.grace, report);
    let retry_delay_ms = milliseconds(entry.retry_delay.as_ref(), defaults.retry_delay, report);
    let (from, to) = (from?, to?);
    if from == to {
        let fault = Diagnostic::error("transition-to-itself", format!("this transition leads from {from} to itself"));
        report.push(*mark, fault);
    }
    match (&entry.run, defaults.does_nothing) {
        (Maybe::Absent, false) => {
            let fault = Diagnostic::error("missing-key", format!("the transition {from} -> {to} lacks `run`"));
            report.push(*mark, fault.help("write the command: `run: ./start.sh`; without an action, `run: \"true\"`"));
        }
        (Maybe::There(run), true) => {
            let fault = Diagnostic::error(
                "needless-command",
                format!("the kind `{}` has no actions, so this is never run", states.kind),
            );
            report.push(run.at.mark, fault.help("remove either `run` or `backend: noop`"));
        }
        (Maybe::Absent, true) | (Maybe::There(_), false) | (Maybe::Wrong, _) => {}
    }
    if let Some(revert) = &entry.revert {
        let fault = if entry.irreversible == Some(true) {
            let what = format!("the transition {from} -> {to} has a `revert`, but is marked as `irreversible`");
            Some(Diagnostic::error("contradiction", what).help("remove either `revert` or `irreversible`"))
        } else if defaults.does_nothing {
            let what = format!("the kind `{}` has no actions, so `revert` is never run", states.kind);
            Some(Diagnostic::error("needless-command", what).help("remove either `revert` or `backend: noop`"))
        } else {
            None
        };
        if let Some(fault) = fault {
            report.push(revert.at.mark, fault);
        }
    }
    Some(Transition {
        from,
        to,
        run,
        timeout_ms,
        grace_ms,
        retries: entry.retries.unwrap_or(defaults.retries),
        retry_delay_ms,
        failure: failure.or_else(|| defaults.failure.clone()),
        revert,
        irreversible: entry.irreversible.unwrap_or(false),
    })
}

/// The transitions made from reverts: for each revert whose way back no declared transitions provide. They are ordinary
/// transitions; the daemon passes the data that the forward transition recorded.
fn ways_back(declared: &[Transition]) -> Vec<Transition> {
    let stands_in = |t: &&Transition| t.revert.is_some() && !leads(declared, &t.to, &t.from);
    let way_back = |t: &Transition| Transition {
        from: t.to.clone(),
        to: t.from.clone(),
        run: t.revert.clone(),
        // After a partial revert the state is unknown: a check must find it.
        failure: None,
        revert: None,
        ..t.clone()
    };
    declared.iter().filter(stands_in).map(way_back).collect()
}

/// Whether transitions lead from a state to another.
fn leads(transitions: &[Transition], from: &StateName, to: &StateName) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        open.extend(transitions.iter().filter(|t| t.from == *at && seen.insert(&t.to)).map(|t| &t.to));
    }
    seen.contains(to)
}

/// A duration in milliseconds, or the default.
pub(super) fn milliseconds(written: Option<&Duration>, default: u64, report: &mut Report<'_>) -> u64 {
    let Some(Duration(Marked { mark, value })) = written else { return default };
    let fault = match parse_duration(value) {
        Some(0) => Diagnostic::error("bad-duration", "the duration must not be zero"),
        Some(ms) if ms <= MAX_MS => return ms,
        Some(_) => Diagnostic::error("bad-duration", format!("{value:?} is longer than 30 days")),
        None => Diagnostic::error("bad-duration", format!("{value:?} is not a duration"))
            .help("write a whole number with its unit: 500ms, 30s, 2m, 1h"),
    };
    report.push(*mark, fault);
    default
}

/// Checks a time in the content of a built-in kind; the daemon's back end reads it again.
pub(super) fn check_duration(written: Option<&Duration>, report: &mut Report<'_>) {
    let Some(Duration(Marked { mark, value })) = written else { return };
    match parse_duration(value) {
        Some(0) => {}
        Some(ms) if ms > MAX_CONTENT_MS => {
            report.push(*mark, Diagnostic::error("bad-duration", format!("{value:?} is longer than 7 days")));
        }
        Some(_) | None => {
            milliseconds(written, 0, report);
        }
    }
}
