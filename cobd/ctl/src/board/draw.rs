//! A frame of the board.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::cluster::verdict;
use super::keys::HELP;
use super::state::{Board, CURSOR, FRAME, Place};
use super::switch::clock;
use super::text::{cut, style, width};
use crate::screen::Paint;
use crate::words::count;

/// Draws the board; without colours it leaves bold, dim and reversed text.
pub(crate) fn draw(board: &Board, frame: &mut Frame<'_>, has_colour: bool) {
    let area = frame.area();
    let wide = usize::from(area.width);
    put(frame, 0, 0, &views(board, wide));
    put(frame, 0, 1, &above(board, wide));
    let mut row = 2;
    if board.has_help {
        for (keys, text) in HELP.iter().take(usize::from(area.height.saturating_sub(FRAME))) {
            put(
                frame,
                1,
                row,
                &Line::from(vec![Span::styled(format!("{keys:<14}"), style(Paint::Strong)), Span::raw(*text)]),
            );
            row += 1;
        }
    } else {
        body(board, frame, row);
    }
    if let Some(last) = area.height.checked_sub(1).filter(|last| *last > 1) {
        put(frame, 0, last, &footer(board, wide));
    }
    if !has_colour {
        for cell in &mut frame.buffer_mut().content {
            cell.fg = ratatui::style::Color::Reset;
        }
    }
}

fn body(board: &Board, frame: &mut Frame<'_>, mut row: u16) {
    let content = board.content();
    if let Some(heading) = &content.heading {
        put(frame, CURSOR, row, heading);
        row += 1;
    }
    let cursor = board.cursor();
    for at in (cursor.first..content.len).take(board.room()) {
        let item = content.item(at);
        let is_selected = at == cursor.at;
        if is_selected {
            put(frame, 0, row, &Line::raw(if item.opens.is_some() { "▸" } else { "·" }));
        }
        put(frame, CURSOR, row, &item.line);
        let area = Rect::new(CURSOR, row, frame.area().width.saturating_sub(CURSOR), 1).intersection(frame.area());
        if is_selected && item.opens.is_some() {
            frame.buffer_mut().set_style(area, Style::new().add_modifier(Modifier::REVERSED));
        }
        row += 1;
    }
    if content.len == 0 {
        let text =
            if board.filter.is_empty() { "There are no change objects." } else { "No change object has these words." };
        put(frame, CURSOR, row, &Line::styled(text, style(Paint::Dim)));
    }
}

/// The views, the generation and the time.
fn views(board: &Board, wide: usize) -> Line<'static> {
    let mut spans = vec![Span::styled(if wide >= 60 { "cobctl watch  " } else { "" }, style(Paint::Strong))];
    for (at, place) in Place::ALL.iter().enumerate() {
        let name = match place {
            Place::Cluster => "1 Cluster",
            Place::Objects => "2 Objects",
            Place::Switch => "3 Switch",
        };
        spans.push(if at == board.at {
            Span::styled(format!("[{name}]"), Style::new().add_modifier(Modifier::REVERSED))
        } else {
            Span::raw(format!(" {name} "))
        });
    }
    let generation = board.picture.cluster().generation.map(|n| format!("generation {n}  ")).unwrap_or_default();
    let right = format!("{generation}{}", clock(board.now_ms));
    let taken: usize = spans.iter().map(|span| width(&span.content)).sum();
    if let Some(room) = wide.checked_sub(taken + width(&right) + 1) {
        spans.push(Span::raw(" ".repeat(room + 1)));
        spans.push(Span::styled(right, style(Paint::Dim)));
    }
    Line::from(spans)
}

/// The line under the views: the opened change object, or the verdict.
fn above(board: &Board, wide: usize) -> Line<'static> {
    if board.has_help {
        return Line::styled(" Keys and marks", style(Paint::Strong));
    }
    if let Some((id, _)) = board.opened.last() {
        let way: Vec<String> = board.opened.iter().rev().skip(1).map(|(id, _)| id.to_string()).collect();
        let from = if way.is_empty() { String::new() } else { format!("  ← {}", way.join(" ← ")) };
        let id = id.to_string();
        let room = wide.saturating_sub(1 + width(&id));
        return Line::from(vec![
            Span::styled(format!(" {id}"), style(Paint::Strong)),
            Span::styled(cut(&from, room), style(Paint::Dim)),
        ]);
    }
    if board.at == 0 {
        return Line::default();
    }
    let (mark, paint, sentence) = verdict(board);
    let next = board.picture.cluster().next.as_ref().map(|next| format!(" Next: {next}")).unwrap_or_default();
    let text = cut(&format!("{sentence}{next}"), wide.saturating_sub(3));
    Line::from(vec![Span::styled(format!(" {mark} "), style(paint)), Span::raw(text)])
}

/// The keys of the view, or the filter.
fn footer(board: &Board, wide: usize) -> Line<'static> {
    if board.is_typing {
        let text = format!(" /{}▏ {}; Enter keeps, Esc clears", board.filter, found(board));
        return Line::styled(cut(&text, wide), style(Paint::Strong));
    }
    if board.has_help {
        return Line::styled(cut(" any key: back  q quit", wide), style(Paint::Dim));
    }
    let mut keys: Vec<String> = Vec::new();
    if board.opened.is_empty() {
        if board.at == Place::Objects as usize && !board.filter.is_empty() {
            keys.push(format!("/{} ({}), Esc clears", board.filter, found(board)));
        }
        keys.extend(["q quit", "? keys", "Enter open", "/ filter", "↑↓ select", "Tab view"].map(str::to_owned));
        if board.at == Place::Objects as usize {
            keys.push("c cause".to_owned());
        }
    } else {
        keys.extend(["q quit", "? keys", "Esc back", "c cause", "↑↓ scroll", "Enter open"].map(str::to_owned));
    }
    let content = board.content();
    let place =
        if content.len > board.room() { format!("{}/{}", board.cursor().at + 1, content.len) } else { String::new() };
    let mut text = String::new();
    for key in keys {
        if width(&text) + width(&key) + width(&place) + 4 > wide {
            break;
        }
        text.push_str("  ");
        text.push_str(&key);
    }
    let text = text.strip_prefix(' ').unwrap_or(&text).to_owned();
    let room = wide.saturating_sub(width(&text) + 1);
    Line::styled(format!("{text}{place:>room$}"), style(Paint::Dim))
}

fn found(board: &Board) -> String {
    count(board.list.len(), "object")
}

/// Puts a line at a place; the part outside of the frame is left out.
fn put(frame: &mut Frame<'_>, column: u16, row: u16, line: &Line<'_>) {
    let area = frame.area();
    if column < area.width && row < area.height {
        frame.buffer_mut().set_line(column, row, line, area.width - column);
    }
}
