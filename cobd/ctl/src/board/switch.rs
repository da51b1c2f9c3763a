//! The view of a switch: when it ends, which services it interrupts, which transitions it has made and has still to make.

use std::collections::BTreeMap;

use cob_forecast::SwitchPlan;
use cob_forecast::plan::Planned;
use cob_types::history::{HistoryEntry, HistoryEvent};
use cob_types::status::{HostStatus, Phase, SwitchStage};
use cob_types::{CobId, GenerationNumber};
use ratatui::text::{Line, Span};

use super::question::{Asked, Question, Told};
use super::state::Board;
use super::text::{Item, MARK, Opens, cut, marked, wrapped};
use crate::page::message::Class;
use crate::screen::Paint;
use crate::words::{ago, count, heading, span, utc};

/// The present or last switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Goal {
    /// Its generation.
    pub to: GenerationNumber,
    /// It has not ended.
    pub runs: bool,
}

/// The present or last switch. Absent: no host has a generation.
pub(crate) fn goal(board: &Board) -> Option<Goal> {
    let reached = || board.status.hosts.iter().filter(|host| host.reachable);
    if let Some(to) = reached().filter_map(HostStatus::goal).max() {
        return Some(Goal { to, runs: true });
    }
    // The host that is there already may not have converged.
    let going = |host: &HostStatus| host.switch.as_ref().filter(|it| it.stage == SwitchStage::Going).map(|it| it.to);
    if let Some(to) = reached().filter_map(going).max() {
        return Some(Goal { to, runs: true });
    }
    reached().filter_map(|host| host.generation).max().map(|to| Goal { to, runs: false })
}

/// A transition of the switch.
#[derive(Debug)]
struct Step {
    cob: CobId,
    text: String,
    class: Class,
}

/// The forecast of the rest of the switch, and the moment to which it refers, in milliseconds since 1970.
fn forecast(board: &Board, to: GenerationNumber) -> Option<(u64, &SwitchPlan)> {
    match board.asked.get(&Question::Plan(to))?.answer.as_ref()? {
        (at_ms, Told::Plan(plan)) => Some((*at_ms, plan)),
        (_, Told::Failed(_) | Told::Output(_) | Told::Entries(_)) => None,
    }
}

/// A line about a running switch.
pub(crate) fn summary(board: &Board) -> Option<String> {
    let goal = goal(board).filter(|goal| goal.runs)?;
    let there = board.status.hosts.iter().filter(|host| host.generation == Some(goal.to)).count();
    let mut text = format!(
        "The switch to generation {} is under way: active on {there} of {}",
        goal.to,
        count(board.status.hosts.len(), "host")
    );
    if let Some((at_ms, plan)) = forecast(board, goal.to) {
        text.push_str(&format!("; {}", end(plan, at_ms, board.now_ms)));
    }
    Some(text)
}

/// When a forecast ends, from now.
fn end(plan: &SwitchPlan, at_ms: u64, now_ms: u64) -> String {
    if !plan.forecast.converges {
        let stuck = plan.forecast.stuck.keys().next().map(|cob| format!(": {cob} can't arrive")).unwrap_or_default();
        return format!("by the forecast it does not converge{stuck}");
    }
    let end_ms = at_ms.saturating_add(plan.forecast.p50_us / 1000);
    let guessed = if plan.forecast.known < plan.transitions.len() as u64 { ", some durations are assumed" } else { "" };
    match end_ms.saturating_sub(now_ms) {
        0 => format!("forecast: was due at {}{guessed}", clock(end_ms)),
        left => {
            let left = span(left.saturating_mul(1_000_000));
            format!("forecast: ends at {}, in {left}{guessed}", clock(end_ms))
        }
    }
}

/// A time of day: `14:03:20Z`.
pub(crate) fn clock(ms: u64) -> String {
    let text = utc(ms.saturating_mul(1_000_000));
    format!("{}Z", text.get(11..19).unwrap_or_default())
}

/// The lines of the view.
pub(crate) fn items(board: &Board, wide: usize) -> Vec<Item> {
    let Some(goal) = goal(board) else {
        return vec![Item::painted(Paint::Dim, "No host has a generation, and no switch runs.")];
    };
    let mut items = Vec::new();
    let replay = Question::Replay(goal.to);
    let asked = board.asked.get(&replay);
    let made: &[HistoryEntry] = match asked.and_then(|asked| asked.answer.as_ref()) {
        Some((_, Told::Entries(entries))) => entries,
        Some((_, Told::Failed(_) | Told::Output(_) | Told::Plan(_))) | None => &[],
    };
    if let Some(line) = summary(board) {
        wrapped(&mut items, Some(Paint::Strong), &line, wide, 2);
    } else {
        wrapped(&mut items, Some(Paint::Strong), &ended(goal.to, made), wide, 2);
    }
    items.extend(board.forecast.iter().flat_map(|line| super::text::wrap(line, wide, 2)).map(Item::of));
    if goal.runs
        && let Some(failure) = board.asked.get(&Question::Plan(goal.to)).and_then(Asked::failure)
    {
        wrapped(&mut items, Some(Paint::Dim), &format!("no forecast: {failure}"), wide, 2);
    }
    let plan = forecast(board, goal.to).filter(|_| goal.runs);
    interrupted(board, made, wide, &mut items);
    let (running, to_come, past) = steps(board, plan, made);
    let sections = [("Running", running), ("To come", to_come), ("Made, the newest first", past)];
    for (title, steps) in sections {
        if steps.is_empty() {
            continue;
        }
        Item::section(&mut items, format!("{title} ({})", steps.len()));
        items.extend(steps.into_iter().map(|step| {
            let text = cut(&format!("{}  {}", step.cob, step.text), wide.saturating_sub(MARK));
            Item::of(Line::from(vec![marked(step.class), Span::raw(text)])).opening(Opens::Cob(step.cob))
        }));
    }
    if let Some(failure) = asked.and_then(Asked::failure) {
        wrapped(&mut items, Some(Paint::Bad), failure, wide, 2);
    } else if asked.is_none_or(|asked| asked.answer.is_none()) {
        items.push(Item::painted(Paint::Dim, "asking for the transitions …"));
    }
    items
}

/// A sentence about the last switch.
fn ended(to: GenerationNumber, made: &[HistoryEntry]) -> String {
    let times = || made.iter().map(|entry| entry.ts_ns);
    match (times().min(), times().max()) {
        (Some(first), Some(last)) => {
            let began = clock(first / 1_000_000);
            format!("No switch runs. The last one led to generation {to}: began at {began}, took {}.", ago(last, first))
        }
        _ => format!("No switch runs. Generation {to} is active."),
    }
}

/// The services that were or are away from their preferred states, and those that the forecast interrupts.
fn interrupted(board: &Board, made: &[HistoryEntry], wide: usize, items: &mut Vec<Item>) {
    let mut all: BTreeMap<CobId, String> = BTreeMap::new();
    for (cob, lasts_us) in &board.interrupted {
        let lasts = lasts_us.map_or_else(|| "without an end".to_owned(), |us| format!("for about {}", span(us * 1000)));
        all.insert(cob.clone(), format!("{lasts}, by the forecast"));
    }
    for (cob, (since_ns, until_ns)) in absences(board, made) {
        let now_ns = board.find(&cob).map_or(since_ns, |(host, _)| host.now_ns);
        let text = match until_ns {
            Some(until_ns) => format!("was away for {}", ago(until_ns, since_ns)),
            None => format!("away for {} so far", ago(now_ns, since_ns)),
        };
        all.insert(cob, text);
    }
    if all.is_empty() {
        return;
    }
    Item::section(items, format!("Interrupted ({})", all.len()));
    for (cob, text) in all {
        let text = cut(&format!("{cob}  {text}"), wide.saturating_sub(MARK));
        let line = Line::from(vec![marked(board.class(&cob)), Span::raw(text)]);
        items.push(Item::of(line).opening(Opens::Cob(cob)));
    }
}

/// When change objects have left their preferred states, and when they were back.
fn absences(board: &Board, made: &[HistoryEntry]) -> BTreeMap<CobId, (u64, Option<u64>)> {
    let mut all: BTreeMap<CobId, (u64, Option<u64>)> = BTreeMap::new();
    for entry in made {
        let Some((_, status)) = entry.cob.as_ref().and_then(|cob| board.find(cob)) else { continue };
        let preferred = Some(&status.preferred);
        let leaves = entry.from.as_ref() == preferred && entry.to.as_ref() != preferred;
        #[expect(clippy::wildcard_enum_match_arm, reason = "other events are no transitions")]
        match entry.happened() {
            HistoryEvent::Start(cob) if leaves => {
                all.entry(cob.clone()).and_modify(|(_, until)| *until = None).or_insert((entry.ts_ns, None));
            }
            HistoryEvent::End(cob) if entry.to.as_ref() == preferred && entry.ok == Some(true) => {
                if let Some((_, until)) = all.get_mut(cob) {
                    *until = Some(entry.ts_ns);
                }
            }
            _ => {}
        }
    }
    all
}

/// The services that a forecast interrupts, and for how long.
pub(crate) fn interruptions(board: &Board, to: GenerationNumber) -> BTreeMap<CobId, Option<u64>> {
    let Some((_, plan)) = forecast(board, to) else { return BTreeMap::new() };
    let away = plan.interrupted.iter().filter(|one| !one.in_place);
    away.map(|one| (one.cob.clone(), one.end_us.map(|end| end.saturating_sub(one.begin_us)))).collect()
}

/// The transitions that run, that are to come, and that have ended.
fn steps(board: &Board, plan: Option<(u64, &SwitchPlan)>, made: &[HistoryEntry]) -> (Vec<Step>, Vec<Step>, Vec<Step>) {
    let hosts = board.status.hosts.iter();
    let moving =
        hosts.flat_map(|host| host.cobs.iter().filter(|cob| cob.phase == Phase::Moving).map(move |cob| (host, cob)));
    let running: Vec<Step> = moving
        .map(|(host, cob)| {
            let action = cob.action.as_ref().filter(|action| action.of > 1 && action.attempt > 1);
            let attempt =
                action.map(|action| format!(", attempt {} of {}", action.attempt, action.of)).unwrap_or_default();
            let text = format!("{}  for {}{attempt}", heading(cob), ago(host.now_ns, cob.since_ns));
            Step { cob: cob.id.clone(), text, class: Class::Moving }
        })
        .collect();
    let mut begun: BTreeMap<&CobId, &HistoryEntry> = BTreeMap::new();
    let mut past = Vec::new();
    for entry in made {
        #[expect(clippy::wildcard_enum_match_arm, reason = "other events are no transitions")]
        match entry.happened() {
            HistoryEvent::Start(cob) => _ = begun.insert(cob, entry),
            HistoryEvent::End(cob) => {
                let took = begun.remove(cob).map(|start| format!("  took {}", ago(entry.ts_ns, start.ts_ns)));
                let failed = entry.ok == Some(false);
                let word = if failed { "  FAILED" } else { "" };
                let text = format!("{}{word}{}", transition(entry), took.unwrap_or_default());
                let class = if failed { Class::Failed } else { Class::Settled };
                past.push(Step { cob: cob.clone(), text, class });
            }
            _ => {}
        }
    }
    past.reverse();
    let to_come = plan.map(|(at_ms, plan)| planned(board, at_ms, plan, &running, made)).unwrap_or_default();
    (running, to_come, past)
}

/// The planned transitions that have not begun since the plan.
fn planned(board: &Board, at_ms: u64, plan: &SwitchPlan, running: &[Step], made: &[HistoryEntry]) -> Vec<Step> {
    let begun = |step: &Planned| {
        let is_step =
            |entry: &HistoryEntry| entry.cob.as_ref() == Some(&step.cob) && entry.to.as_ref() == Some(&step.to);
        made.iter().any(|entry| entry.ts_ns / 1_000_000 > at_ms && is_step(entry))
            || running.iter().any(|one| one.cob == step.cob)
    };
    let line = |step: &Planned| {
        let begins_ms = at_ms.saturating_add(step.begin_us / 1000).saturating_sub(board.now_ms);
        let when = if begins_ms == 0 { "next".to_owned() } else { format!("in {}", span(begins_ms * 1_000_000)) };
        let class = Class::Waiting;
        Step { cob: step.cob.clone(), text: format!("{} → {}  {when}", step.from, step.to), class }
    };
    plan.transitions.iter().filter(|step| !begun(step)).map(line).collect()
}

fn transition(entry: &HistoryEntry) -> String {
    match (&entry.from, &entry.to) {
        (Some(from), Some(to)) => format!("{from} → {to}"),
        (Some(one), None) | (None, Some(one)) => one.to_string(),
        (None, None) => String::new(),
    }
}
