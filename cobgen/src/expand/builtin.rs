//! The contents of built-in kinds: checks each by the definition in `cob_kinds`, and reports faults with their places.
//!
//! A built-in kind has no commands of its own; the daemon's back end of the same name makes its transitions from the
//! content. The exception is `script`, whose content *is* a kind: states, check and transitions as in `kinds`. It
//! becomes a kind of its own, named by the hash of its definition, so that equal scripts share a kind.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cob_kinds::{Entry, Fault, Place, TIMES, schema_of};
use cob_types::{Kind, KindName};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::file_tree::{self, FileTreeContent};
use super::files::{Files, Payload};
use super::kinds::{Timing, build, check_duration};
use super::{Report, plugin, service};
use crate::diagnostic::Diagnostic;
use crate::model::{
    CheckEntry, Duration, KindEntry, Map, Mark, Marked, Maybe, Node, Run, TransitionEntry, Value, check_structure,
};

/// The result of checking a change object's content.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Its own kind, if the content defines a kind.
    pub(super) kind: Option<Kind>,
    /// Files that its commands name.
    pub(super) files: Payload,
    /// Its `env` with all values as text, as daemons require.
    pub(super) env: Option<BTreeMap<String, String>>,
    /// The whole content for daemons, if it differs from the content in the model.
    pub(super) content: Option<Json>,
    /// Keys of the content that only the generator uses.
    pub(super) without: &'static [&'static str],
}

/// A built-in kind for change objects that the expansion itself adds.
pub(super) fn named(name: &str) -> &'static Entry {
    cob_kinds::find(name).expect("it is in the table")
}

/// Checks a change object's content; returns `None` if it has faults, which are already reported.
pub(super) fn settle(entry: &Entry, content: &Node, files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    match entry.kind.name {
        "budget" => {
            let fault = Diagnostic::error("bad-content", "a budget can't be written as a change object");
            let help = "write `budgets: {NAME: {at_most: 1}}`, and `budget: NAME` on its members";
            report.push(content.mark, fault.help(help));
            None
        }
        "file-tree" => {
            let tree: FileTreeContent = read(content, &FILE_TREE, "file-tree", report)?;
            let (content, files) = file_tree::settle(tree, content, files, report)?;
            Some(Settled { files, content: Some(content), ..Settled::default() })
        }
        "script" => script(content, files, report),
        "plugin" => plugin::settle(content, files, report),
        "service" => service::settle(entry, content, files, report),
        "apt-source" => with_texts(entry, content, &["key"], files, report),
        _ => settle_plain(entry, content, files, report),
    }
}

/// The schemas of contents, by kind.
static SCHEMAS: LazyLock<BTreeMap<&'static str, Json>> =
    LazyLock::new(|| cob_kinds::ALL.iter().filter_map(|entry| Some((entry.kind.name, entry.schema()?))).collect());

/// Checks a content that daemons read as it is written.
fn settle_plain(entry: &Entry, content: &Node, files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let before = report.errors();
    let Checked { node, mut settled, .. } = check(entry, content, report)?;
    add_commands(entry, &node, None, &mut settled, files, report);
    (report.errors() == before).then_some(settled)
}

/// Adds the files of the commands in a content, and the kind with the times in it. `made`: the kind of this sort of
/// content, if it is not the kind of the table.
pub(super) fn add_commands(
    entry: &Entry,
    content: &Node,
    made: Option<Kind>,
    settled: &mut Settled,
    files: &mut Files,
    report: &mut Report<'_>,
) {
    let properties = SCHEMAS.get(entry.kind.name).and_then(|schema| schema["properties"].as_object());
    let at = |key: &str| content.map().and_then(|map| map.get(key));
    let of_commands = properties.into_iter().flatten().filter(|(_, schema)| is_command(schema));
    for run in of_commands.filter_map(|(key, _)| at(key)?.read::<Run>().ok()) {
        files.command(&run, &mut settled.files, report);
    }
    let has_times = properties.is_some_and(|keys| TIMES.iter().all(|key| keys.contains_key(*key)));
    if !has_times {
        settled.kind = made;
        return;
    }
    let time = |key: &str| at(key).and_then(|node| node.read::<Duration>().ok());
    let (timeout, grace, retry_delay) = (time("timeout"), time("grace"), time("retry_delay"));
    let timing = Timing {
        timeout: timeout.as_ref(),
        grace: grace.as_ref(),
        retries: at("retries").and_then(|node| node.read().ok()),
        retry_delay: retry_delay.as_ref(),
    };
    let mut timed = made.clone().unwrap_or_else(|| entry.kind.kind());
    settled.kind = if timing.apply(&mut timed, report) { Some(named_by_hash(timed)) } else { made };
    settled.without = TIMES;
}

/// Whether the schema of a key is that of a command, also of an optional one.
fn is_command(schema: &Json) -> bool {
    let is_it = |schema: &Json| schema["x-command"] == true;
    is_it(schema) || schema["anyOf"].as_array().is_some_and(|forms| forms.iter().any(is_it))
}

/// Checks a content in which the values of these keys may be files beside the model. Daemons get their texts.
fn with_texts(entry: &Entry, content: &Node, keys: &[&str], files: &Files, report: &mut Report<'_>) -> Option<Settled> {
    let before = report.errors();
    let mut content = content.clone();
    if let Value::Map(map) = &mut content.value {
        for (_, node) in map.entries.iter_mut().filter(|(key, _)| keys.contains(&key.text.as_str())) {
            let file = node.map().filter(|map| map.entries.len() == 1).and_then(|map| map.get("file"));
            let Some((name, mark)) = file.and_then(|file| Some((file.text()?.to_owned(), file.mark))) else { continue };
            node.value = Value::Text(files.text(&name, mark, report)?);
        }
    }
    let Checked { json, settled, .. } = check(entry, &content, report)?;
    (report.errors() == before).then_some(Settled { content: Some(json), ..settled })
}

/// A content of the right form.
pub(super) struct Checked {
    /// The content in the model.
    pub(super) node: Node,
    /// The content as daemons read it, without wrong durations.
    pub(super) json: Json,
    pub(super) settled: Settled,
}

/// Reports all faults of a content; returns `None` if its form is wrong.
pub(super) fn check(entry: &Entry, content: &Node, report: &mut Report<'_>) -> Option<Checked> {
    let kind = entry.kind.name;
    let schema = SCHEMAS.get(kind)?;
    let content = of_right_form(content, schema, kind, report)?;
    let mut json = content.to_json();
    let mut env = None;
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let Some(node) = content.map().and_then(|map| map.get(key)) else { continue };
        if schema["x-time"] == true {
            let errors = report.errors();
            check_duration(node.read().ok().as_ref(), report);
            // A wrong duration is absent for the other checks.
            if report.errors() > errors {
                json.as_object_mut().and_then(|content| content.remove(key));
            }
        }
        if schema["x-texts"] == true {
            let texts = node.map().into_iter().flat_map(|map| &map.entries);
            let texts = texts.map(|(key, value)| (key.text.clone(), value.scalar().unwrap_or_default()));
            let texts: BTreeMap<String, String> = texts.collect();
            json[key] = serde_json::json!(texts);
            env = Some(texts);
        }
    }
    // A wrong value is reported already, and would count as missing or null.
    if !has_wrong_value(&content) {
        match entry.check(&json) {
            Ok(faults) => faults.iter().for_each(|fault| push(fault, &content, report)),
            Err(what) => report.push(content.mark, Diagnostic::error("bad-content", what)),
        }
    }
    Some(Checked { node: content, json, settled: Settled { env, ..Settled::default() } })
}

fn has_wrong_value(node: &Node) -> bool {
    match &node.value {
        Value::Invalid => true,
        Value::List(items) => items.iter().any(has_wrong_value),
        Value::Map(map) => map.entries.iter().any(|(_, value)| has_wrong_value(value)),
        Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Text(_) => false,
    }
}

/// Reports a fault at its place in the model.
fn push(fault: &Fault, content: &Node, report: &mut Report<'_>) {
    let make = if fault.warning { Diagnostic::warning } else { Diagnostic::error };
    let help = Some(fault.help.clone()).filter(|help| !help.is_empty());
    report.push(mark_of(&fault.place, content), make(fault.code, fault.what.clone()).maybe_help(help));
}

/// The position of a place in a content; of a missing place, the position of what is around it.
fn mark_of(place: &Place, content: &Node) -> Mark {
    let at = |key: &str| content.map().and_then(|map| map.get(key));
    let whole = |key: &str| at(key).map_or(content.mark, |node| node.mark);
    match place {
        Place::Content => content.mark,
        Place::Key(key) => whole(key),
        Place::Part(key, part) => {
            let entries = at(key).and_then(Node::map).into_iter().flat_map(|map| &map.entries);
            let items = at(key).and_then(Node::list).into_iter().flatten();
            let keys = entries.filter(|(key, _)| key.text == *part).map(|(key, _)| key.mark);
            keys.chain(items.filter(|item| item.text() == Some(part)).map(|item| item.mark))
                .next()
                .unwrap_or(whole(key))
        }
        Place::Path(steps) => {
            let mut at = content;
            for step in steps {
                let item = || at.list()?.get(step.parse::<usize>().ok()?);
                let Some(inner) = at.map().and_then(|map| map.get(step)).or_else(item) else { break };
                at = inner;
            }
            at.mark
        }
        Place::Value(key, part) => {
            at(key).and_then(Node::map).and_then(|map| map.get(part)).map_or(whole(key), |node| node.mark)
        }
    }
}

/// The content of `script`: a kind. Other keys are data for its commands.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct ScriptContent {
    /// All states; default: down, up, outdated.
    states: Option<Vec<Marked<String>>>,
    /// The on state; default: up.
    preferred: Option<Marked<String>>,
    /// The off state; default: down.
    pre_remove: Option<Marked<String>>,
    /// Which state wins when two are asked for.
    priority: Option<Marked<Vec<Marked<String>>>>,
    /// Prints the state's name: `check: {run: ./check.sh}`.
    #[schemars(required)]
    check: Option<Marked<CheckEntry>>,
    /// The moves: `[{from: down, to: up, run: ./start.sh}]`.
    #[schemars(required)]
    transitions: Option<Vec<Marked<TransitionEntry>>>,
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

static SCRIPT: LazyLock<Json> = LazyLock::new(|| schema_of::<ScriptContent>("content of script"));
static FILE_TREE: LazyLock<Json> = LazyLock::new(|| schema_of::<FileTreeContent>("content of file-tree"));

/// Reads content in its typed form; returns `None` if it has faults, which are already reported.
pub(super) fn read<T: for<'de> Deserialize<'de>>(
    content: &Node,
    schema: &Json,
    kind: &str,
    report: &mut Report<'_>,
) -> Option<T> {
    of_right_form(content, schema, kind, report)?.read().ok()
}

/// The content as a mapping; returns `None` if it differs from the schema, which is already reported.
fn of_right_form(content: &Node, schema: &Json, kind: &str, report: &mut Report<'_>) -> Option<Node> {
    let mut node = content.clone();
    if node.value == Value::Null {
        node.value = Value::Map(Map::default());
    }
    let before = report.errors();
    let (sources, out) = report.parts();
    check_structure(&mut node, schema, &format!("the content of `{kind}`"), sources, out);
    (report.errors() == before).then_some(node)
}

fn script(content: &Node, files: &mut Files, report: &mut Report<'_>) -> Option<Settled> {
    let script: ScriptContent = read(content, &SCRIPT, "script", report)?;
    let words = |names: &[&str]| names.iter().map(|n| word(content.mark, n)).collect::<Vec<_>>();
    let by_default = !content.has("states");
    let or =
        |written: Option<Marked<String>>, name: &str| written.or_else(|| by_default.then(|| word(content.mark, name)));
    let entry = KindEntry {
        states: script.states.or_else(|| by_default.then(|| words(&["down", "up", "outdated"]))),
        preferred: or(script.preferred, "up"),
        pre_remove: or(script.pre_remove, "down"),
        priority: script.priority,
        // The key is mandatory.
        check: script.check.map_or(Maybe::Wrong, Maybe::There),
        transitions: script.transitions,
        timeout: script.timeout,
        grace: script.grace,
        retries: script.retries,
        retry_delay: script.retry_delay,
        failure: script.failure,
        ..KindEntry::default()
    };
    for key in ["preferred", "pre_remove"] {
        if !by_default && !content.has(key) {
            let fault = Diagnostic::error(
                "missing-key",
                format!("the content of `script` names its states, but lacks `{key}`"),
            );
            report.push(content.mark, fault.help("`preferred` is the on state, `pre_remove` the off state"));
        }
    }
    let kind = build(KindName::new("script").expect("well formed"), content.mark, &entry, files, report)?;
    Some(Settled { kind: Some(named_by_hash(kind)), ..Settled::default() })
}

/// Names a kind from a content by its hash, so that equal contents share a kind.
pub(super) fn named_by_hash(mut kind: Kind) -> Kind {
    let said = serde_json::to_vec(&kind).expect("a kind is plain data");
    let hash = cob_types::canonical::fingerprint(&[&said]).to_string();
    kind.name = KindName::new(&format!("{}.{}", kind.name, &hash[..16])).expect("made of letters, digits and a dot");
    kind
}

pub(super) fn word(mark: Mark, text: &str) -> Marked<String> {
    Marked { mark, value: text.to_owned() }
}

/// Kinds from scripts, by name.
pub(super) type Made = BTreeMap<KindName, Arc<Kind>>;
