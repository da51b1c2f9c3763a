//! The first view: whether all is well, the next command, the hosts.

use ratatui::text::{Line, Span};

use super::state::Board;
use super::text::{Item, Opens, column, cut, style, width, wrap, wrapped};
use crate::page::message::{Class, Host, Judged};
use crate::screen::{Mark, Paint};
use crate::words::count;

/// The most reasons that are shown.
const REASONS: usize = 6;

/// The verdict as a mark and a sentence.
pub(crate) fn verdict(board: &Board) -> (&'static str, Paint, String) {
    let cluster = board.picture.cluster();
    let (mark, paint) = match cluster.verdict {
        Judged::Converged => ("✓", Paint::Good),
        Judged::Not => ("✗", Paint::Bad),
        Judged::Unreached => ("?", Paint::Bad),
        Judged::Open => return ("…", Paint::Dim, "No host has answered yet.".to_owned()),
    };
    (mark, paint, cluster.sentence.clone())
}

/// The lines of the view.
pub(crate) fn items(board: &Board, wide: usize) -> Vec<Item> {
    let cluster = board.picture.cluster();
    let (mark, paint, sentence) = verdict(board);
    let mut items = Vec::new();
    for (at, line) in wrap(&sentence, wide.saturating_sub(2), 0).into_iter().enumerate() {
        let mark = if at == 0 { mark } else { " " };
        let strong = style(Paint::Strong);
        items.push(Item::of(Line::from(vec![
            Span::styled(format!("{mark} "), style(paint)),
            Span::styled(line, strong),
        ])));
    }
    for reason in cluster.reasons.iter().take(REASONS) {
        wrapped(&mut items, None, &format!("  {reason}"), wide, 4);
    }
    if let Some(more) = cluster.reasons.len().checked_sub(REASONS).filter(|more| *more > 0) {
        items.push(Item::painted(Paint::Dim, format!("  {}", count(more, "more reason"))));
    }
    if let Some(next) = &cluster.next {
        wrapped(&mut items, Some(Paint::Strong), &format!("Next: {next}"), wide, 6);
    }
    items.extend(board.forecast.iter().flat_map(|line| wrap(line, wide, 2)).map(Item::of));
    if let Some(line) = super::switch::summary(board) {
        wrapped(&mut items, None, &line, wide, 2);
    }
    items.push(Item::default());
    items.extend(hosts(board, wide));
    let notes = board.notes.iter().skip_while(|line| line.is_empty());
    for (at, note) in notes.enumerate() {
        if at == 0 {
            items.push(Item::default());
        }
        wrapped(&mut items, None, note, wide, 2);
    }
    items
}

fn hosts(board: &Board, wide: usize) -> Vec<Item> {
    let mut all: Vec<&Host> = board.picture.hosts().collect();
    // Hosts with problems come first.
    all.sort_by_key(|host| {
        [Mark::Bad, Mark::Unknown, Mark::Busy, Mark::Good].iter().position(|mark| *mark == host.mark)
    });
    let name = all.iter().map(|host| width(&host.name)).max().unwrap_or(0).clamp(4, (wide / 3).max(8)) + 1;
    let generation = all.iter().map(|host| width(&generations(host))).max().unwrap_or(0).clamp(3, 12) + 1;
    let settled = if wide >= 50 { 14 } else { 0 };
    let heading = format!("  {}{}{}STATE", column("HOST", name), column("GEN", generation), column("SETTLED", settled));
    let mut items = vec![Item::painted(Paint::Strong, cut(&heading, wide))];
    for host in all {
        let sign = Span::styled(format!("{} ", host.mark.sign()), style(host.mark.paint()));
        let total: u64 = host.counts.iter().sum();
        let share = format!("{} of {total}", host.counts[Class::Settled as usize]);
        let first = format!(
            "{}{}{}",
            column(&host.name, name),
            column(&generations(host), generation),
            column(&share, settled)
        );
        let room = wide.saturating_sub(2 + width(&first));
        let line = Line::from(vec![sign, Span::raw(first + &cut(&host.words, room))]);
        items.push(Item::of(line).opening(Opens::Host(host.name.clone())));
    }
    items
}

/// The active generation, and the generation of the switch under way.
fn generations(host: &Host) -> String {
    let active = host.generation.map_or_else(|| "–".to_owned(), |n| n.to_string());
    match host.switching_to {
        Some(next) => format!("{active} → {next}"),
        None => active,
    }
}
