//! Explains why a cluster has no layout, with the words and places of the model.

use cob_solver::{Change, Explanation, RuleKind};
use serde_json::json;

use super::ask::Question;
use crate::catalog::Request;
use crate::diagnostic::{Diagnostic, shown};
use crate::expand::Report;

/// The contradictory rules, as an error.
pub(super) fn contradiction(
    asked: &Request<'_>,
    question: &Question,
    explanation: &Explanation,
    report: &Report<'_>,
) -> Diagnostic {
    let count = asked.nodes.count();
    let nodes = if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") };
    let what = format!("the cluster `{}` has no layout with {nodes}", asked.cluster.value);
    let why = match (explanation.core.len(), explanation.minimal) {
        (0, _) => ": no set of services fits on the nodes",
        (1, _) => ": a rule can't be fulfilled",
        (_, true) => ": these rules contradict each other",
        (_, false) => ": some of these rules contradict each other",
    };
    let mut fault = Diagnostic::error("unsolvable", format!("{what}{why}"));
    for rule in &explanation.core {
        let place = rule.id.and_then(|id| question.place(id)).map(|mark| report.place(mark));
        fault = fault.note(place, words(&rule.kind, question));
    }
    fault.at(report.place(asked.nodes.mark())).maybe_help(helps(question, explanation))
}

/// Changes that would make it solvable.
fn helps(question: &Question, explanation: &Explanation) -> Option<String> {
    let all = relaxations(question, explanation);
    match all.as_slice() {
        [] => None,
        [one] => Some(format!("this change would help: {one}")),
        many => Some(format!("any of these changes would help: {}", many.join("; "))),
    }
}

fn relaxations(question: &Question, explanation: &Explanation) -> Vec<String> {
    let one = |changes: &[Change]| changes.iter().map(|c| change(c, question)).collect::<Vec<_>>().join(" and ");
    explanation.relaxations.iter().map(|relaxation| one(&relaxation.changes)).collect()
}

/// The explanation for machines.
pub(super) fn to_json(question: &Question, explanation: &Explanation, report: &Report<'_>) -> serde_json::Value {
    let rules: Vec<serde_json::Value> = explanation
        .core
        .iter()
        .map(|rule| {
            let place = rule.id.and_then(|id| question.place(id)).map(|mark| report.place(mark));
            let place =
                place.map(|p| json!({"file": p.file.display().to_string(), "line": p.line, "column": p.column}));
            json!({"rule": words(&rule.kind, question), "place": place})
        })
        .collect();
    json!({"rules": rules, "minimal": explanation.minimal, "relaxations": relaxations(question, explanation)})
}

/// An error as a single text.
pub(super) fn in_one_text(fault: &Diagnostic) -> String {
    let mut text = fault.message.clone();
    for (place, note) in &fault.notes {
        text += &match place {
            Some(place) => format!("; {note} ({})", shown(place)),
            None => format!("; {note}"),
        };
    }
    match &fault.help {
        Some(help) => format!("{text}. {help}"),
        None => text,
    }
}

/// The most node names in the text of a rule about similar nodes.
const MOST_NODES: usize = 4;

fn words(kind: &RuleKind, question: &Question) -> String {
    let all = |names: &[String]| names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    match kind {
        RuleKind::SizeMin(n) => format!("the cluster has at least {n} nodes"),
        RuleKind::SizeMax(n) => format!("the cluster has at most {n} nodes"),
        RuleKind::Min(service, n) => format!("`{service}` is on at least {n} {}", nodes(*n)),
        RuleKind::Max(service, n) => format!("`{service}` is on at most {n} {}", nodes(*n)),
        RuleKind::RatioMin(service, share) => format!("`{service}` is on at least {share} of the nodes"),
        RuleKind::RatioMax(service, share) => format!("`{service}` is on at most {share} of the nodes"),
        RuleKind::Odd(service) => format!("`{service}` is on an odd number of nodes"),
        RuleKind::Requires(service, other, n) => format!("`{service}` needs `{other}` on at least {n} {}", nodes(*n)),
        RuleKind::Hardware(service, types) => {
            let (real, failed) = question.barred.of_rule(types);
            let failed = failed.iter().map(|node| format!("`{node}`")).collect::<Vec<_>>().join(", ");
            match (question.leaves_out(&real), failed.as_str()) {
                (_, "") => format!("`{service}` is on hardware {}", all(types)),
                (true, failed) => {
                    format!("`{service}` is on hardware {}, and not on {failed}, where it has failed", all(&real))
                }
                (false, failed) => format!("`{service}` is not on {failed}, where it has failed"),
            }
        }
        RuleKind::Image(service, types) => format!("`{service}` is on image {}", all(types)),
        RuleKind::MustCoexist(services) => format!("{} are on the same nodes", all(services)),
        RuleKind::CantCoexist(services) => format!("{} are never all on the same node", all(services)),
        RuleKind::Everywhere(service) => format!("`{service}`, which no rule names, is on every node"),
        RuleKind::Existing(names) => match names.as_slice() {
            [node] => format!("the node `{node}` is there already, and keeps its hardware, image and services"),
            alike => {
                let (shown, more) = (&alike[..alike.len().min(MOST_NODES)], alike.len().saturating_sub(MOST_NODES));
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("the nodes {}{more} are there already, and keep hardware, image and services", all(shown))
            }
        },
        RuleKind::Excluded(_) => "a layout is excluded".to_owned(),
    }
}

fn change(change: &Change, question: &Question) -> String {
    match change {
        Change::Nodes { from, to } if to > from => format!("{} more {}", to - from, nodes(to - from)),
        Change::Nodes { from, to } => format!("{} fewer {}", from - to, nodes(from - to)),
        // In the words of the model's keys: `max of namenode 1 -> 2`.
        Change::Number { rule, to } => format!("{} -> {to}", rule.kind),
        Change::Share { rule, to } => format!("{} -> {to}", rule.kind),
        Change::Drop { rule } => format!("without the rule that {}", words(&rule.kind, question)),
    }
}

fn nodes(count: u64) -> &'static str {
    if count == 1 { "node" } else { "nodes" }
}
