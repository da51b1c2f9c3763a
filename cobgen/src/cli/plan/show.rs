//! A plan in words, as JSON, and as a graph.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cob_planner::{Action, Durations, Job, Plan, Step};
use serde_json::json;

/// Actions with their services.
type What<'a> = (Action, Option<&'a str>);

pub(super) fn to_json(cluster: &str, plan: &Plan, durations: Option<&Durations>) -> serde_json::Value {
    let (mut tasks, mut gates) = (Vec::new(), Vec::new());
    for (id, Step { job, after }) in plan.steps.iter().enumerate() {
        match job {
            Some(Job { node, action, service: Some(service) }) => tasks
                .push(json!({"id": id, "node": node, "action": action.as_str(), "service": service, "after": after})),
            Some(Job { node, action, service: None }) => {
                tasks.push(json!({"id": id, "node": node, "action": action.as_str(), "after": after}));
            }
            None => gates.push(json!({"id": id, "after": after})),
        }
    }
    let mut value = json!({
        "cluster": cluster,
        "operation": plan.operation.as_str(),
        "tasks": tasks,
        "gates": gates,
        "levels": plan.levels,
        "stages": plan.stages,
    });
    if let Some(durations) = durations {
        let times = plan.times(durations);
        value["times"] = json!({"staged_ms": times.staged, "ordered_ms": times.ordered, "longest": times.longest});
    }
    value
}

pub(super) fn to_dot(plans: &[(&str, Plan)]) -> String {
    let mut out = String::from("digraph plan {\n  rankdir=LR;\n  node [shape=box];\n");
    for (number, (cluster, plan)) in plans.iter().enumerate() {
        let _ = writeln!(out, "  subgraph cluster_{number} {{\n    label=\"{cluster}: {}\";", plan.operation);
        for (id, step) in plan.steps.iter().enumerate() {
            let _ = match &step.job {
                Some(job) => writeln!(out, "    p{number}t{id} [label=\"{}\\n{}\"];", words(&what(job)), job.node),
                None => writeln!(out, "    p{number}t{id} [shape=point];"),
            };
        }
        for (id, step) in plan.steps.iter().enumerate() {
            for before in &step.after {
                let _ = writeln!(out, "    p{number}t{before} -> p{number}t{id};");
            }
        }
        out.push_str("  }\n");
    }
    out + "}\n"
}

pub(super) fn in_words(cluster: &str, plan: &Plan, durations: Option<&Durations>) -> String {
    let mut out = String::new();
    let count = plan.steps.iter().filter(|s| s.job.is_some()).count();
    let stages = plan.stages.len();
    let _ = writeln!(out, "{cluster}: {}: {count} tasks in {stages} stages", plan.operation);
    for (number, stage) in plan.stages.iter().enumerate() {
        let _ = writeln!(out, "  stage {}", number + 1);
        let mut alike: BTreeMap<What<'_>, Vec<&str>> = BTreeMap::new();
        for job in stage.iter().filter_map(|at| plan.steps[*at].job.as_ref()) {
            alike.entry(what(job)).or_default().push(&job.node);
        }
        for (what, nodes) in alike {
            let _ = writeln!(out, "    {}: {}", words(&what), names(&nodes));
        }
    }
    order(plan, &mut out);
    if let Some(durations) = durations {
        let times = plan.times(durations);
        let _ = writeln!(out, "  time");
        let _ = writeln!(out, "    in stages: {}", time(times.staged));
        let saved = match (times.staged - times.ordered).saturating_mul(100).checked_div(times.staged) {
            Some(percent) if percent > 0 => format!(", {percent} % sooner"),
            Some(_) | None => String::new(),
        };
        let _ = writeln!(out, "    each as early as possible: {}{saved}", time(times.ordered));
        let way = times.longest.iter().filter_map(|at| plan.steps[*at].job.as_ref());
        let way: Vec<String> = way.map(|job| format!("{} {}", words(&what(job)), job.node)).collect();
        let _ = writeln!(out, "    critical path: {}", way.join(", "));
    }
    out
}

/// The order between services, once for all nodes.
fn order(plan: &Plan, out: &mut String) {
    let mut waits: BTreeMap<What<'_>, BTreeSet<What<'_>>> = BTreeMap::new();
    // Many steps wait for a gate, which waits for many steps.
    let mut gates: BTreeMap<usize, BTreeSet<What<'_>>> = BTreeMap::new();
    for (at, step) in plan.steps.iter().enumerate().filter(|(_, step)| step.job.is_none()) {
        gates.insert(at, step.after.iter().filter_map(|at| plan.steps[*at].job.as_ref()).map(what).collect());
    }
    for step in &plan.steps {
        let Some(job) = &step.job else { continue };
        let of_step = |at: &usize| plan.steps[*at].job.as_ref().map(what);
        let of_gate = |at: &usize| gates.get(at).into_iter().flatten().copied();
        let before = step.after.iter().flat_map(|at| of_step(at).into_iter().chain(of_gate(at)));
        let (service, of_node) = (job.service.as_deref(), job.action.is_of_node());
        let others: BTreeSet<What<'_>> =
            before.filter(|(action, other)| *other != service && !action.is_of_node() && !of_node).collect();
        if !others.is_empty() {
            waits.entry(what(job)).or_default().extend(others);
        }
    }
    if !waits.is_empty() {
        let _ = writeln!(out, "  order between services");
    }
    for (job, before) in waits {
        let before: Vec<String> = before.iter().map(words).collect();
        let _ = writeln!(out, "    {} after {}", words(&job), before.join(", "));
    }
}

fn what(job: &Job) -> What<'_> {
    (job.action, job.service.as_deref())
}

fn words((action, service): &What<'_>) -> String {
    service.map_or_else(|| action.to_string(), |service| format!("{action} {service}"))
}

fn names(nodes: &[&str]) -> String {
    const SHOWN: usize = 4;
    match nodes.last() {
        Some(last) if nodes.len() > SHOWN + 1 => {
            format!("{}, … {last} ({} nodes)", nodes[..SHOWN].join(", "), nodes.len())
        }
        _ => nodes.join(", "),
    }
}

fn time(ms: u64) -> String {
    match (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000) {
        (0, 0, seconds, 0) => format!("{seconds} s"),
        (0, 0, 0, ms) => format!("{ms} ms"),
        (0, 0, seconds, ms) => format!("{seconds}.{ms:03} s"),
        (0, minutes, seconds, _) => format!("{minutes} min {seconds} s"),
        (hours, minutes, seconds, _) => format!("{hours} h {minutes} min {seconds} s"),
    }
}
