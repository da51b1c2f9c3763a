//! The partial order as a graph for Graphviz.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::words::time;
use crate::plan::{Planned, SwitchPlan};

/// A box per transition, a frame per host; the critical path is drawn thick.
#[must_use]
pub fn to_dot(plan: &SwitchPlan) -> String {
    let mut out =
        String::from("digraph plan {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n");
    let mut hosts: BTreeMap<&str, Vec<&Planned>> = BTreeMap::new();
    for step in &plan.transitions {
        hosts.entry(step.cob.host_str()).or_default().push(step);
    }
    let critical = |at: usize| plan.critical_path.binary_search(&at).is_ok();
    for (number, (host, steps)) in hosts.iter().enumerate() {
        let _ = writeln!(out, "  subgraph cluster_{number} {{\n    label={};", quoted(host));
        for step in steps {
            let times = format!("{} to {}", time(step.begin_us), time(step.end_us));
            let label = quoted(&format!("{}\n{} -> {}\n{times}", step.cob.name(), step.from, step.to));
            let look = if critical(step.id) { ", penwidth=2, color=\"#b3261e\"" } else { "" };
            let mark = if step.irreversible { ", style=filled, fillcolor=\"#f9dedc\"" } else { "" };
            let _ = writeln!(out, "    t{} [label={label}{look}{mark}];", step.id);
        }
        out.push_str("  }\n");
    }
    for step in &plan.transitions {
        for before in &step.after {
            let on_path = critical(step.id) && critical(*before) && step.cause == Some(*before);
            let look = if on_path { " [penwidth=2, color=\"#b3261e\"]" } else { "" };
            let _ = writeln!(out, "  t{before} -> t{}{look};", step.id);
        }
    }
    out.push_str("}\n");
    out
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
