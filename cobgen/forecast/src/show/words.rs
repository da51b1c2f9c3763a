//! A plan in words, in lines of at most a hundred characters where names allow it.

use std::fmt::Write as _;

use cob_types::words::count;
use cob_types::{CobId, GenerationNumber, HostName};

use crate::diff::Difference;
use crate::plan::{Group, Planned, SwitchPlan, Why};

/// The most entries of a list; the others are counted.
const SHOWN: usize = 60;
/// The most names in a line.
const NAMES: usize = 6;
const WIDTH: usize = 100;

/// The whole plan in words.
#[must_use]
pub fn in_words(plan: &SwitchPlan, difference: &Difference) -> String {
    let mut out = String::new();
    let changes = difference.to_string();
    let mut changes = changes.lines();
    let _ = writeln!(out, "{}", changes.next().unwrap_or_default());
    if !plan.steps.is_empty() {
        let by = plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", then ");
        wrapped(
            &mut out,
            &format!(
                "in steps through {by}: there is no direct switch order from {} to {}. The plan assumes that each \
                 step converges; hosts continue as soon as a step is active",
                plan.from, plan.to
            ),
        );
    }
    forecast(plan, &mut out);
    section(&mut out, "Differences", changes.map(|line| format!("  {line}")).chain(moved(plan)));
    section(&mut out, "Hosts", hosts(plan).into_iter());
    section(&mut out, "Interrupted", interrupted(plan).into_iter());
    section(&mut out, "Irreversible", irreversible(plan).into_iter());
    let mut stages = Vec::new();
    for (number, stage) in plan.stages.iter().enumerate() {
        stages.push(format!("  stage {}", number + 1));
        stages.extend(stage.iter().map(|at| detailed_transition(&plan.transitions[*at])));
    }
    section(&mut out, "Order of transitions (a later stage may start early)", stages.into_iter());
    section(&mut out, "Critical path", critical(plan).into_iter());
    section(&mut out, "Does not converge", stuck(plan).into_iter());
    out
}

fn section(out: &mut String, heading: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{heading}");
    for line in lines.iter().take(SHOWN) {
        wrapped(out, line);
    }
    if lines.len() > SHOWN {
        let _ = writeln!(out, "  … {}; --json has all", count((lines.len() - SHOWN) as u64, "more line"));
    }
}

/// Wraps a long line with further indentation.
fn wrapped(out: &mut String, line: &str) {
    let indent = line.len() - line.trim_start().len();
    let mut width = 0;
    for (at, word) in line.trim_start().split(' ').enumerate() {
        let long = word.chars().count();
        if at == 0 {
            let _ = write!(out, "{:indent$}{word}", "");
            width = indent + long;
        } else if width + 1 + long > WIDTH && !word.is_empty() {
            let _ = write!(out, "\n{:1$}{word}", "", indent + 4);
            width = indent + 4 + long;
        } else {
            let _ = write!(out, " {word}");
            width += 1 + long;
        }
    }
    out.push('\n');
}

fn forecast(plan: &SwitchPlan, out: &mut String) {
    let f = &plan.forecast;
    let all = plan.transitions.len() as u64;
    if !f.converges {
        let _ = writeln!(out, "the switch does not converge: see below");
        return;
    }
    if all == 0 {
        let _ = writeln!(out, "no transitions");
        return;
    }
    let mut text = format!("{}, about {}", count(all, "transition"), time(f.p50_us));
    if f.runs > 0 {
        let (runs, most, median) = (count(f.runs, "run"), time(f.p90_us), time(f.end_us));
        let _ = write!(text, " (median of {runs}, seed {}; 90 % need at most {most})", f.seed);
        let _ = write!(text, "; {median} if every duration is at its median");
    }
    wrapped(out, &text);
    if f.known < all {
        let unknown = all - f.known;
        let what = format!(
            "no durations recorded for {}: each counts as 1 s (*); see --durations",
            count(unknown, "transition")
        );
        wrapped(out, &what);
    }
}

fn moved(plan: &SwitchPlan) -> impl Iterator<Item = String> {
    plan.moved.iter().map(|moved| format!("  {} moves to {}", moved.from, moved.to))
}

fn hosts(plan: &SwitchPlan) -> Vec<String> {
    let mut lines = Vec::new();
    if plan.steps.is_empty() {
        activations(plan, None, &mut lines);
    }
    for step in plan.steps.iter().chain(Some(&plan.to).filter(|_| !plan.steps.is_empty())) {
        lines.push(format!("  generation {step}"));
        activations(plan, Some(*step), &mut lines);
    }
    if plan.untouched_hosts > 0 {
        lines.push(format!("  unchanged: {}", count(plan.untouched_hosts, "host")));
    }
    lines
}

/// The order of activations: of the whole plan, or of a step.
fn activations(plan: &SwitchPlan, step: Option<GenerationNumber>, lines: &mut Vec<String>) {
    let indent = if step.is_some() { "    " } else { "  " };
    let of_step = || plan.groups.iter().filter(|group| group.to == step);
    let free = |group: &&Group| group.waits_for.is_empty();
    let at_once: Vec<&HostName> = of_step().filter(free).flat_map(|group| &group.hosts).collect();
    if !at_once.is_empty() {
        lines.push(format!("{indent}at once: {}", names(at_once.iter().map(|host| host.as_str()))));
    }
    for group in of_step().filter(|group| !free(group)) {
        let together = if group.hosts.len() > 1 { " together" } else { "" };
        let own = names(group.hosts.iter().map(HostName::as_str));
        let before = group.after.iter().flat_map(|at| &plan.groups[*at].hosts).map(HostName::as_str);
        let after = if group.after.is_empty() { String::new() } else { format!(" after {}", names(before)) };
        let waits = names(group.waits_for.iter().map(CobId::as_str));
        let at = time(group.activated_us);
        lines.push(format!("{indent}{own}{together}{after}, at {at}, after the departure of {waits}"));
    }
}

fn interrupted(plan: &SwitchPlan) -> Vec<String> {
    let line = |gap: &crate::plan::Interrupted| {
        let length = match (&gap.to, gap.end_us) {
            (Some(to), _) => format!("from {} on, and stays {to}", time(gap.begin_us)),
            (None, None) => "does not come back".to_owned(),
            (None, Some(end)) => {
                let length = time(end.saturating_sub(gap.begin_us));
                format!("for {length}, from {} to {}", time(gap.begin_us), time(end))
            }
        };
        let place = if gap.in_place { ", in place" } else { "" };
        format!("  {} {length}{place}: {}", gap.cob, why(plan, &gap.why))
    };
    plan.interrupted.iter().map(line).collect()
}

fn irreversible(plan: &SwitchPlan) -> Vec<String> {
    let mut lines = Vec::new();
    for step in &plan.irreversible {
        let t = &plan.transitions[step.transition];
        let reason = if step.marked { "marked by its author" } else { "no transition of its kind leads back" };
        lines.push(format!("  {} at {}: {reason}", transition(t), time(t.begin_us)));
    }
    if let Some(point) = &plan.point_of_no_return {
        let t = &plan.transitions[point.transition];
        let mut text = format!("  point of no return: {}, with {}", time(point.at_us), transition(t));
        if point.latest_us > point.at_us {
            let _ = write!(text, "; it may start as late as {} without delaying the switch", time(point.latest_us));
        }
        let _ = write!(text, "; {} can run before it", count(point.before as u64, "transition"));
        lines.push(text);
    }
    lines
}

fn detailed_transition(step: &Planned) -> String {
    let slack = match step.slack_us {
        0 => ", delays the whole switch".to_owned(),
        slack => format!(", may start up to {} later", time(slack)),
    };
    let after: Vec<String> = step.after.iter().take(NAMES).map(usize::to_string).collect();
    let more = if step.after.len() > NAMES { ", …" } else { "" };
    let after = if after.is_empty() { String::new() } else { format!(", after {}{more}", after.join(", ")) };
    let mark = if step.irreversible { ", irreversible" } else { "" };
    let assumed = assumed(step);
    let (begin, length) = (time(step.begin_us), time(step.end_us.saturating_sub(step.begin_us)));
    format!("    {}: {} at {begin} for {length}{assumed}{slack}{after}{mark}", step.id, transition(step))
}

fn critical(plan: &SwitchPlan) -> Vec<String> {
    let line = |at: &usize| {
        let step = &plan.transitions[*at];
        let lag = if step.lag_us == 0 { String::new() } else { format!(", {} later", time(step.lag_us)) };
        format!("  {} to {}{}: {}{lag}", time(step.begin_us), time(step.end_us), assumed(step), transition(step))
    };
    plan.critical_path.iter().map(line).collect()
}

fn stuck(plan: &SwitchPlan) -> Vec<String> {
    plan.forecast.stuck.iter().map(|(id, waits)| format!("  {id}: {}", waits.join("; "))).collect()
}

/// The mark of an unknown duration.
fn assumed(step: &Planned) -> &'static str {
    if step.known { "" } else { "*" }
}

fn transition(step: &Planned) -> String {
    format!("{} {} -> {}", step.cob, step.from, step.to)
}

/// A reason in words.
fn why(plan: &SwitchPlan, why: &Why) -> String {
    match why {
        Why::New => "it is new".to_owned(),
        Why::Leaves => "it leaves".to_owned(),
        Why::Content => "its configuration changed".to_owned(),
        Why::Kind => "its kind changed: the old object departs, and a new object starts".to_owned(),
        Why::RestsOn { on } => format!("changed: {}", names(on.iter().map(CobId::as_str))),
        Why::Preferred => "its preferred state changed".to_owned(),
        Why::Astray => "it is not in its desired state".to_owned(),
        Why::NeededBy { moves } => {
            let by = moves.iter().map(|by| {
                let states: Vec<&str> = by.states.iter().map(|state| state.as_str()).collect();
                let t = &plan.transitions[by.transition];
                format!("{} needs it {} for {} -> {}", by.cob, states.join(" or "), t.from, t.to)
            });
            by.collect::<Vec<_>>().join("; ")
        }
    }
}

fn names<'n>(all: impl Iterator<Item = &'n str>) -> String {
    let all: Vec<&str> = all.collect();
    if all.len() <= NAMES {
        return all.join(", ");
    }
    format!("{} and {} more", all[..NAMES].join(", "), all.len() - NAMES)
}

/// Microseconds in a readable form.
#[must_use]
pub fn time(us: u64) -> String {
    let ms = us / 1000;
    match (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000) {
        (0, 0, 0, 0) if us > 0 => format!("{us} us"),
        (0, 0, 0, ms) => format!("{ms} ms"),
        (0, 0, seconds, ms) => format!("{seconds}.{ms:03} s"),
        (0, minutes, seconds, _) => format!("{minutes} min {seconds} s"),
        (hours, minutes, seconds, _) => format!("{hours} h {minutes} min {seconds} s"),
    }
}
