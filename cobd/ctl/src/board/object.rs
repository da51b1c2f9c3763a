//! The view of a change object: its state, the chain of its waits to the first cause, its last output, its history.

use cob_types::CobId;
use ratatui::text::{Line, Span};

use super::question::{Question, Told};
use super::state::Board;
use super::text::{Item, Opens, cut, mark, marked, paint, style, wrap, wrapped};
use crate::commands::history_line;
use crate::explain::{Explained, explain_in};
use crate::page::message::Class;
use crate::screen::Paint;
use crate::words::{ago, clean, heading, phase, reasons, span};

/// The most lines of an output; the first ones are left out.
const OUTPUT: usize = 200;

/// The lines of the view.
pub(crate) fn items(board: &Board, id: &CobId, wide: usize) -> Vec<Item> {
    let mut items = Vec::new();
    state(board, id, wide, &mut items);
    why(board, id, wide, &mut items);
    output(board, id, wide, &mut items);
    history(board, id, wide, &mut items);
    items
}

/// The change object with the first cause.
pub(crate) fn culprit(board: &Board, id: &CobId) -> CobId {
    explain_in(&board.status, id).culprit().clone()
}

fn state(board: &Board, id: &CobId, wide: usize, items: &mut Vec<Item>) {
    let class = board.class(id);
    let Some((host, cob)) = board.find(id) else {
        let host = board.status.hosts.iter().find(|host| host.name.as_str() == id.host_str());
        let why = match host {
            Some(host) if !host.reachable => {
                format!("its host does not answer: {}", clean(host.error.as_deref().unwrap_or("no reason is known")))
            }
            Some(_) => "its host does not have it".to_owned(),
            None => "its host is not watched".to_owned(),
        };
        return wrapped(items, Some(Paint::Bad), &format!("{} {why}", mark(class)), wide, 3);
    };
    let text = format!("{}, {} for {}", heading(cob), phase(cob), ago(host.now_ns, cob.since_ns));
    wrapped(items, Some(paint(class)), &format!("{} {text}", mark(class)), wide, 3);
    let departs = if cob.retiring { "; it departs" } else { "" };
    let generation = host.generation.map_or_else(|| "no generation".to_owned(), |n| format!("generation {n}"));
    let text =
        format!("kind {}, preferred state {}, {generation} of {}{departs}", clean(&cob.kind), cob.preferred, host.name);
    wrapped(items, Some(Paint::Dim), &text, wide, 2);
    let reasons = reasons(cob, host.now_ns);
    if !reasons.is_empty() {
        wrapped(items, None, &reasons, wide, 2);
    }
}

/// The chain of waits, each step with its change object, and all branches if there are more.
fn why(board: &Board, id: &CobId, wide: usize, items: &mut Vec<Item>) {
    let explanation = explain_in(&board.status, id);
    let told = explanation.told();
    Item::section(items, "Why");
    wrapped(items, None, &told.answer, wide, 2);
    for (at, cob) in told.chain.iter().enumerate() {
        step(board, &told, at, cob, wide, items);
    }
    if !told.first_cause.hint.is_empty() {
        wrapped(items, Some(Paint::Good), &format!("hint: {}", clean(&told.first_cause.hint)), wide, 6);
    }
    if told.cobs.len() > told.chain.len() || told.cobs.iter().any(|cob| cob.causes.len() > 1) {
        Item::section(items, "All waits");
        items.extend(explanation.tree().iter().map(|line| Item::of(cut(line, wide))));
    }
}

fn step(board: &Board, told: &Explained, at: usize, cob: &CobId, wide: usize, items: &mut Vec<Item>) {
    let next = told.chain.get(at + 1);
    let waits = told.cobs.iter().find(|one| one.id == *cob).map_or(&[][..], |one| &one.waits);
    let wait = waits.iter().find(|wait| Some(&wait.cob) == next);
    let text = match (next, wait) {
        (None, _) => format!("{}  ← first cause", told.first_cause.text),
        (Some(_), Some(wait)) => format!("{} (for {})", wait.text, span(wait.for_ns)),
        (Some(next), None) => format!("waits for {next}"),
    };
    let class = board.class(cob);
    let strong = if next.is_none() { style(paint(class)) } else { ratatui::style::Style::new() };
    for (line, text) in wrap(&format!("{cob}: {text}"), wide.saturating_sub(7), 2).into_iter().enumerate() {
        let number = if line == 0 { format!("{:>2}. ", at + 1) } else { " ".repeat(4) };
        let mark = if line == 0 { marked(class) } else { Span::raw("   ") };
        let line = Line::from(vec![Span::raw(number), mark, Span::styled(text, strong)]);
        items.push(Item::of(line).opening(Opens::Cob(cob.clone())));
    }
}

fn output(board: &Board, id: &CobId, wide: usize, items: &mut Vec<Item>) {
    Item::section(items, "Last output");
    let Some(Told::Output(lines)) = answered(board, &Question::Output(id.clone()), wide, items) else { return };
    if lines.is_empty() {
        return items.push(Item::painted(Paint::Dim, "The last action or check printed no output."));
    }
    lines[lines.len().saturating_sub(OUTPUT)..].iter().for_each(|line| wrapped(items, None, line, wide, 0));
}

fn history(board: &Board, id: &CobId, wide: usize, items: &mut Vec<Item>) {
    Item::section(items, "History, the newest first");
    let Some(Told::Entries(entries)) = answered(board, &Question::History(id.clone()), wide, items) else { return };
    if entries.is_empty() {
        items.push(Item::painted(Paint::Dim, "There are no entries."));
    }
    entries.iter().rev().for_each(|entry| wrapped(items, None, &history_line(entry), wide, 4));
}

/// The answer to a question; without an answer, a line tells why.
fn answered<'b>(board: &'b Board, question: &Question, wide: usize, items: &mut Vec<Item>) -> Option<&'b Told> {
    match board.asked.get(question).and_then(|asked| asked.answer.as_ref()) {
        None => items.push(Item::painted(Paint::Dim, "asking …")),
        Some((_, Told::Failed(why))) => wrapped(items, Some(Paint::Bad), why, wide, 2),
        Some((_, told)) => return Some(told),
    }
    None
}

/// The number that changes when the answers about a change object may change.
pub(crate) fn signature(board: &Board, id: &CobId) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    if let Some((_, cob)) = board.find(id) {
        (cob.since_ns, &cob.state, &cob.target, phase(cob)).hash(&mut hasher);
        if let Some(action) = &cob.action {
            (action.attempt, action.running, &action.last_line, &action.error).hash(&mut hasher);
        }
    }
    (board.class(id) == Class::Unknown).hash(&mut hasher);
    hasher.finish()
}
