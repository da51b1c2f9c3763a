//! The list of change objects: problems first, filtered by the words that the operator types.

use cob_types::CobId;
use ratatui::text::{Line, Span};

use super::text::{Item, MARK, Opens, column, marked, paint, style, width};
use crate::page::message::{Class, DEPARTS, DRIFT, OBSERVED, TROUBLE};
use crate::page::picture::{Object, Picture};
use crate::screen::Paint;
use crate::words::ago;

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its id.
    pub id: CobId,
    /// Its activity.
    pub class: Class,
    /// `up`, `down → up`.
    pub heading: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    flags: u8,
    kind: String,
}

impl Listed {
    fn of(object: &Object<'_>) -> Self {
        let state = object.state.unwrap_or("unknown");
        let heading = match object.target {
            Some(target) if object.state != Some(target) => format!("{state} → {target}"),
            Some(_) | None => state.to_owned(),
        };
        Self {
            id: object.id.clone(),
            class: object.class,
            heading,
            since_ms: object.since_ms,
            flags: object.flags,
            kind: object.kind.to_owned(),
        }
    }

    /// The activity in a word, with unusual properties.
    pub(crate) fn activity(&self) -> String {
        let mut text = self.class.word().to_owned();
        for (flag, more) in [(DRIFT, "drift"), (TROUBLE, "trouble"), (OBSERVED, "observed"), (DEPARTS, "departs")] {
            if self.flags & flag != 0 {
                text.push_str(", ");
                text.push_str(more);
            }
        }
        text
    }

    /// The place in the list: change objects that need an operator come first.
    fn urgency(&self) -> u8 {
        match self.class {
            Class::Failed => 0,
            Class::Unknown => 1,
            Class::Waiting => 2,
            Class::Moving => 3,
            Class::Stopped => 4,
            Class::Settled if self.flags & (DRIFT | TROUBLE) != 0 => 5,
            Class::Settled => 6,
        }
    }

    fn has(&self, part: &str) -> bool {
        let is_in = |text: &str| text.to_lowercase().contains(part);
        self.id.to_string().to_lowercase().contains(part)
            || is_in(&self.kind)
            || is_in(&self.heading)
            || is_in(&self.activity())
    }
}

/// The change objects with all words of the filter in their id, kind, state or activity.
pub(crate) fn list(picture: &Picture, filter: &str) -> Vec<Listed> {
    let parts: Vec<String> = filter.split_whitespace().map(str::to_lowercase).collect();
    let all = picture.objects().map(|object| Listed::of(&object));
    let mut list: Vec<Listed> = all.filter(|object| parts.iter().all(|part| object.has(part))).collect();
    list.sort_by_key(Listed::urgency);
    list
}

/// The widths of the columns: the id, the state, the activity, the time; 0: there is no room for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns {
    id: usize,
    state: usize,
    activity: usize,
    since: usize,
    rest: usize,
}

impl Columns {
    /// The widths in this many columns.
    pub(crate) fn of(list: &[Listed], wide: usize) -> Self {
        let room = wide.saturating_sub(MARK);
        let longest = |of: &dyn Fn(&Listed) -> usize| list.iter().map(of).max().unwrap_or(0);
        let id = (longest(&|one| width(one.id.as_ref())) + 1).clamp(8, (wide * 35 / 100).max(17));
        let state = (longest(&|one| width(&one.heading)) + 1).clamp(7, (wide * 22 / 100).max(12));
        let activity = if wide >= 60 { 10 } else { 0 };
        let since = if wide >= 70 { 12 } else { 0 };
        let rest = room.saturating_sub(id + state + activity + since);
        Self { id, state, activity, since, rest: if rest >= 12 { rest } else { 0 } }
    }

    fn line(self, mark: Span<'static>, [id, state, activity, since, rest]: [&str; 5]) -> Line<'static> {
        let columns = [(id, self.id), (state, self.state), (activity, self.activity), (since, self.since)];
        let text: String =
            columns.map(|(text, wide)| if wide > 0 { column(text, wide - 1) + " " } else { String::new() }).concat();
        Line::from(vec![mark, Span::raw(text + &super::text::cut(rest, self.rest))])
    }

    /// The line with the names of the columns.
    pub(crate) fn heading(self) -> Line<'static> {
        let names = ["COB", "STATE", "ACTIVITY", "FOR", "WAITS FOR"];
        self.line(Span::raw(" ".repeat(MARK)), names).style(style(Paint::Strong))
    }

    /// The line of a change object.
    pub(crate) fn item(self, one: &Listed, why: &str, now_ms: u64) -> Item {
        let since = ago(now_ms.saturating_mul(1_000_000), one.since_ms.saturating_mul(1_000_000));
        let id = one.id.to_string();
        let line = self.line(marked(one.class), [&id, &one.heading, &one.activity(), &since, why]);
        let line = if one.class == Class::Failed { line.style(style(paint(one.class))) } else { line };
        Item::of(line).opening(Opens::Cob(one.id.clone()))
    }
}
