//! Reads a file with the durations of actions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_planner::{Action, Durations};
use serde_json::Value;

use crate::diagnostic::Diagnostic;
use crate::model::{did_you_mean, did_you_mean_or_list};
use crate::solve::{Given, View};
use cob_depot::input;
use cob_types::words::parse_duration;

/// The largest file of durations, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// The most names in a warning.
const SHOWN: usize = 5;

/// Durations, with the names that they apply to.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) durations: Durations,
    /// The services and nodes that lines name, each with a line that names it.
    services: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
}

impl Read {
    /// Warns of names that do not exist: their durations have no effect. Warns of nodes only if `all` clusters are
    /// examined.
    pub(super) fn unused(&self, file: &Path, view: &View, given: &Given, all: bool) -> Vec<Diagnostic> {
        let now = view.clusters.iter().flat_map(|cluster| &cluster.nodes);
        let nodes: BTreeSet<&str> = now.chain(given.existing.values().flatten()).map(|n| n.name.as_str()).collect();
        let services: BTreeSet<&str> = view.service_names.iter().map(String::as_str).collect();
        let warn = |word: &str, names: &BTreeMap<String, String>, known: &BTreeSet<&str>| {
            let unknown: Vec<(&String, &String)> =
                names.iter().filter(|(name, _)| !known.contains(name.as_str())).collect();
            let (first, line) = unknown.first()?;
            let shown: Vec<String> = unknown.iter().take(SHOWN).map(|(name, _)| format!("`{name}`")).collect();
            let more = unknown.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let (file, words) = (file.display(), if unknown.len() == 1 { "has no" } else { "does not have the" });
            let word = if unknown.len() == 1 { word.to_owned() } else { format!("{word}s") };
            let what = format!("{file} has times without effect: the model {words} {word} {}{more}", shown.join(", "));
            let known = known.iter().copied();
            let warning =
                Diagnostic::warning("unknown-name", what).note(None, format!("for example the line `{line}`"));
            Some(warning.maybe_help(did_you_mean(first, known)))
        };
        let nodes = all.then(|| warn("node", &self.nodes, &nodes)).flatten();
        warn("service", &self.services, &services).into_iter().chain(nodes).collect()
    }
}

/// Reads a file of lines `ACTION [SERVICE [NODE]]: TIME`; an error names the fault.
pub(super) fn read(path: &Path) -> Result<Read, String> {
    let text = input::read_given(path, MAX_FILE).map_err(|e| format!("can't read {}: {e}", path.display()))?;
    of_text(&text).map_err(|what| format!("{}: {what}", path.display()))
}

fn of_text(text: &str) -> Result<Read, String> {
    let lines: BTreeMap<String, Value> = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let other = lines.get("*").map(|value| time("*", value)).transpose()?;
    let mut durations = Durations::all(other.unwrap_or(0));
    let (mut services, mut nodes) = (BTreeMap::new(), BTreeMap::new());
    for (key, value) in lines.iter().filter(|(key, _)| *key != "*") {
        let ms = time(key, value)?;
        let words: Vec<&str> = key.split_whitespace().collect();
        let name = words.first().copied().unwrap_or_default();
        let Some(action) = Action::of_name(name) else {
            let help = did_you_mean_or_list(name, Action::ALL.map(Action::as_str)).unwrap_or_default();
            return Err(format!("`{key}`: no action is called `{name}`; {help}"));
        };
        let given = |word: &str| (word != "*").then(|| word.to_owned());
        let (service, node) = match (action.is_of_node(), &words[1..]) {
            (_, []) => (None, None),
            (true, [node]) => (None, given(node)),
            (false, [service]) => (given(service), None),
            (false, [service, node]) => (given(service), given(node)),
            (true, _) => {
                return Err(format!("`{key}`: this is an action on a node, so write `{action}` or `{action} NODE`"));
            }
            (false, _) => {
                return Err(format!("`{key}`: write `{action}`, `{action} SERVICE` or `{action} SERVICE NODE`"));
            }
        };
        services.extend(service.clone().map(|name| (name, key.clone())));
        nodes.extend(node.clone().map(|name| (name, key.clone())));
        durations.set(action, service.as_deref(), node.as_deref(), ms);
    }
    Ok(Read { durations, services, nodes })
}

/// Parses `90s`, or a number of seconds.
fn time(key: &str, value: &Value) -> Result<u64, String> {
    let seconds = || value.as_u64()?.checked_mul(1000);
    value
        .as_str()
        .and_then(parse_duration)
        .or_else(seconds)
        .ok_or_else(|| format!("`{key}`: {value} is not a time; write a number with its unit: 500ms, 30s, 2m, 1h"))
}

#[cfg(test)]
mod tests {
    use cob_planner::Job;

    use super::*;

    #[test]
    fn the_more_exact_line_wins() {
        let text = "\"*\": 10s\ncreate: 2m\ncreate n3: 5m\ninstall db: 90\ninstall db n1: 3m\ninstall * n2: 1s\n";
        let durations = of_text(text).expect("right").durations;
        for (action, service, node, seconds) in [
            (Action::Create, None, "n1", 120),
            (Action::Create, None, "n3", 300),
            (Action::Install, Some("db"), "n1", 180),
            (Action::Install, Some("db"), "n2", 90),
            (Action::Install, Some("app"), "n2", 1),
            (Action::Install, Some("app"), "n1", 10),
            (Action::Start, Some("db"), "n1", 10),
        ] {
            let job = Job { node: node.to_owned(), action, service: service.map(str::to_owned) };
            assert_eq!(durations.of(&job), seconds * 1000, "{job:?}");
        }
    }

    #[test]
    fn recorded_durations_are_parsed() {
        let printed = "{\n  \"install\": \"300ms\",\n  \"install db\": \"200ms\",\n  \"install db n1\": \"61000ms\"\n}";
        let durations = of_text(printed).expect("as `cobctl durations` prints it").durations;
        let of = |service: &str, node: &str| {
            let (node, service) = (node.to_owned(), Some(service.to_owned()));
            durations.of(&Job { node, action: Action::Install, service })
        };
        assert_eq!((of("db", "n1"), of("db", "n2"), of("app", "n1")), (61_000, 200, 300));
    }

    #[test]
    fn wrong_lines_are_told() {
        for (text, wrong) in [
            ("instal: 1s", "no action is called `instal`; did you mean `install`?"),
            ("install: soon", "`install`: \"soon\" is not a time"),
            ("create db n1: 1s", "this is an action on a node"),
            ("start a b c: 1s", "write `start`, `start SERVICE`"),
            ("- 1", ""),
        ] {
            let told = of_text(text).expect_err(text);
            assert!(told.contains(wrong), "{text}: {told}");
        }
    }
}
