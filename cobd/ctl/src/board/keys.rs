//! The keys of the board, and how the footer and the help name them.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The meaning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Move the cursor by this many lines.
    By(isize),
    /// Move the cursor by this many halves of the screen.
    HalfPages(isize),
    /// Move the cursor to the first line.
    First,
    /// Move the cursor to the last line.
    Last,
    /// Open the object or host of the line.
    Open,
    /// Back to the view before.
    Back,
    /// Show this view.
    View(usize),
    /// Show the next view, or the previous view.
    Turn(isize),
    /// Type a filter.
    Filter,
    /// Open the change object with the first cause.
    Cause,
    /// Show or hide the keys.
    Help,
    /// Draw the whole screen again.
    Redraw,
    /// Stop the program until the shell continues it.
    Suspend,
    /// End.
    Quit,
}

/// The action of a key outside the filter.
pub(crate) fn action(key: &KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if let (true, KeyCode::Char(c)) = (key.modifiers.contains(KeyModifiers::CONTROL), key.code) {
        return Some(match c {
            'c' => Action::Quit,
            'z' => Action::Suspend,
            'l' => Action::Redraw,
            'd' => Action::HalfPages(1),
            'u' => Action::HalfPages(-1),
            'f' => Action::HalfPages(2),
            'b' => Action::HalfPages(-2),
            'n' => Action::By(1),
            'p' => Action::By(-1),
            _ => return None,
        });
    }
    #[expect(clippy::wildcard_enum_match_arm, reason = "other keys have no meaning")]
    Some(match key.code {
        KeyCode::Down | KeyCode::Char('j') => Action::By(1),
        KeyCode::Up | KeyCode::Char('k') => Action::By(-1),
        KeyCode::PageDown | KeyCode::Char(' ') => Action::HalfPages(2),
        KeyCode::PageUp => Action::HalfPages(-2),
        KeyCode::Home | KeyCode::Char('g') => Action::First,
        KeyCode::End | KeyCode::Char('G') => Action::Last,
        KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => Action::Open,
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => Action::Back,
        KeyCode::Char('1') => Action::View(0),
        KeyCode::Char('2') => Action::View(1),
        KeyCode::Char('3') => Action::View(2),
        KeyCode::Tab => Action::Turn(1),
        KeyCode::BackTab => Action::Turn(-1),
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('c') => Action::Cause,
        KeyCode::Char('?') | KeyCode::F(1) => Action::Help,
        KeyCode::Char('q') => Action::Quit,
        _ => return None,
    })
}

/// The keys and marks, for the help.
pub(crate) const HELP: [(&str, &str); 17] = [
    ("↑ ↓  k j", "the line before, the next line"),
    ("PgUp PgDn", "a screen up or down; Ctrl-U Ctrl-D half a screen"),
    ("Home End  g G", "the first line, the last line"),
    ("Enter → l", "open the object, or the objects of the host"),
    ("Esc ← h", "back"),
    ("1 2 3  Tab", "cluster, objects, switch"),
    ("/", "filter the objects: words in id, kind, state, activity"),
    ("c", "the object with the first cause"),
    ("Ctrl-L", "draw the screen again"),
    ("Ctrl-Z", "stop the program; `fg` continues it"),
    ("q  Ctrl-C", "end"),
    ("✗F", "failed: an operator has to act"),
    ("?U", "unknown: its host does not answer"),
    ("◦W", "waiting for others"),
    ("▶M", "moving: a transition or a check runs"),
    ("■P", "stopped by an operator"),
    ("✓S", "settled in its preferred state"),
];
