//! The built-in kind `plugin`: an executable that speaks the plug-in protocol, as a kind of its own.
//!
//! The states of a plug-in must be known when a generation is made, and running a foreign program for that would make
//! the generation depend on the machine. So the model lists the states, with a default, and the daemon compares them at
//! each check with the states that the plug-in reports.

use std::sync::LazyLock;

use cob_kinds::schema_of;
use cob_types::{KindName, StateName, Transition};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::Report;
use super::builtin::{Settled, named_by_hash, read, word};
use super::files::Files;
use super::kinds::build;
use crate::diagnostic::Diagnostic;
use crate::model::{CheckEntry, Duration, KindEntry, Mark, Marked, Maybe, Node, Run, TransitionEntry};

/// The transitions of a plug-in without listed states.
const MOVES: [(&str, &str); 4] = [("down", "up"), ("outdated", "up"), ("up", "down"), ("outdated", "down")];

/// The content of `plugin`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PluginContent {
    /// The executable: a file beside the model, `./x`, or a program of the host. A text goes to `/bin/sh -c`.
    #[schemars(required)]
    run: Option<Run>,
    /// The configuration that the plug-in requires; each message contains it.
    #[serde(rename = "config")]
    _config: Option<Node>,
    /// All states; default: down, up, outdated.
    states: Option<Vec<Marked<String>>>,
    /// The on state; default: up.
    preferred: Option<Marked<String>>,
    /// The off state; default: down.
    pre_remove: Option<Marked<String>>,
    /// Which state wins when two are asked for.
    priority: Option<Marked<Vec<Marked<String>>>>,
    /// The moves, needed with `states`: `[{from: down, to: up}]`.
    transitions: Option<Vec<Marked<PluginTransition>>>,
    /// The time that a check may take.
    check_timeout: Option<Duration>,
    /// How often it is checked for drift; default: never by itself.
    interval: Option<Duration>,
    /// The time that a transition may take.
    timeout: Option<Duration>,
    /// Between asking an action to end and killing it.
    grace: Option<Duration>,
    /// How often a failed transition is tried again.
    retries: Option<u32>,
    /// Before the first retry.
    retry_delay: Option<Duration>,
    /// The state after a failed transition.
    failure: Option<Marked<String>>,
}

/// A move that a plug-in makes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PluginTransition {
    /// The state that is left.
    #[schemars(required)]
    from: Option<Marked<String>>,
    /// The state that is entered.
    #[schemars(required)]
    to: Option<Marked<String>>,
    /// The time that it may take.
    timeout: Option<Duration>,
    /// It is taken back by the call `revert`, given what it has saved.
    revert: Option<Marked<bool>>,
}

static PLUGIN: LazyLock<Json> = LazyLock::new(|| schema_of::<PluginContent>("content of plugin"));

/// Checks the content of `plugin` and makes its kind.
pub(super) fn settle(content: &Node, files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let plugin: PluginContent = read(content, &PLUGIN, "plugin", report)?;
    let run = plugin.run.clone()?;
    let by_default = !content.has("states");
    let missing = |key: &str| {
        Diagnostic::error("missing-key", format!("the content of `plugin` names its states, but lacks `{key}`"))
    };
    if !by_default && !content.has("transitions") {
        let help = "write its transitions: `transitions: [{from: down, to: up}]`";
        report.push(content.mark, missing("transitions").help(help));
        return None;
    }
    let plain = |(from, to): &(&str, &str)| {
        let [from, to] = [from, to].map(|name| Some(word(content.mark, name)));
        Marked { mark: content.mark, value: PluginTransition { from, to, ..PluginTransition::default() } }
    };
    let moves = match plugin.transitions {
        None if content.has("transitions") => return None,
        None => MOVES.iter().map(plain).collect(),
        Some(written) => written,
    };
    let words = |names: &[&str]| names.iter().map(|n| word(content.mark, n)).collect::<Vec<_>>();
    let or = |key: &str, written: Option<Marked<String>>, name: &str| {
        written.or_else(|| (!content.has(key)).then(|| word(content.mark, name)))
    };
    let entry = KindEntry {
        states: plugin.states.or_else(|| by_default.then(|| words(&["down", "up", "outdated"]))),
        preferred: or("preferred", plugin.preferred, "up"),
        pre_remove: or("pre_remove", plugin.pre_remove, "down"),
        priority: plugin.priority,
        check: Maybe::There(Marked {
            mark: run.at.mark,
            value: CheckEntry { run: Some(run.clone()), timeout: plugin.check_timeout, interval: plugin.interval },
        }),
        transitions: Some(moves.iter().map(|entry| with_command(entry, &run)).collect()),
        timeout: plugin.timeout,
        grace: plugin.grace,
        retries: plugin.retries,
        retry_delay: plugin.retry_delay,
        failure: plugin.failure,
        ..KindEntry::default()
    };
    let mut kind = build(KindName::new("plugin").expect("well formed"), content.mark, &entry, files, report)?;
    kind.backend = "plugin".to_owned();
    let asked = moves.iter().filter_map(|entry| revert_mark(entry).map(|mark| (mark, &entry.value)));
    for (mark, entry) in asked {
        if !is_taken_back(&kind.transitions[moves.len()..], entry) {
            let fault = Diagnostic::error(
                "needless-command",
                "other transitions lead back from here, so `revert` is never used",
            );
            report.push(mark, fault.help("remove `revert`, or the transitions that lead back"));
            return None;
        }
    }
    Some(Settled { kind: Some(named_by_hash(kind)), ..Settled::default() })
}

fn with_command(entry: &Marked<PluginTransition>, run: &Run) -> Marked<TransitionEntry> {
    let Marked { mark, value } = entry;
    let revert = revert_mark(entry).map(|_| run.clone());
    let (from, to, timeout) = (value.from.clone(), value.to.clone(), value.timeout.clone());
    let value =
        TransitionEntry { from, to, timeout, run: Maybe::There(run.clone()), revert, ..TransitionEntry::default() };
    Marked { mark: *mark, value }
}

/// The place that asks for a revert.
fn revert_mark(entry: &Marked<PluginTransition>) -> Option<Mark> {
    entry.value.revert.as_ref().filter(|revert| revert.value).map(|revert| revert.mark)
}

/// Whether a transition reverts this entry: the transitions of reverts follow the listed transitions.
fn is_taken_back(made: &[Transition], entry: &PluginTransition) -> bool {
    let is =
        |name: &Option<Marked<String>>, state: &StateName| name.as_ref().is_some_and(|n| *state == *n.value.as_str());
    made.iter().any(|t| is(&entry.to, &t.from) && is(&entry.from, &t.to))
}
