//! Lines of the board: marks, columns, wrapped text.

use cob_types::CobId;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::page::message::Class;
use crate::screen::Paint;

/// The width of a mark with the blank behind it.
pub(crate) const MARK: usize = 3;

/// A line of a view, and the view that Enter opens there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// The line.
    pub line: Line<'static>,
    /// The change object, the host, or the view.
    pub opens: Option<Opens>,
}

/// The view behind a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opens {
    /// A change object.
    Cob(CobId),
    /// The change objects of a host.
    Host(String),
}

impl Item {
    /// A line without a view behind it.
    pub(crate) fn of(line: impl Into<Line<'static>>) -> Self {
        Self { line: line.into(), opens: None }
    }

    /// A line in a colour.
    pub(crate) fn painted(paint: Paint, text: impl Into<String>) -> Self {
        Self::of(Line::styled(text.into(), style(paint)))
    }

    /// The title of a section, behind an empty line.
    pub(crate) fn section(items: &mut Vec<Item>, title: impl Into<String>) {
        if !items.is_empty() {
            items.push(Self::default());
        }
        items.push(Self::painted(Paint::Strong, title));
    }

    /// The same line, with the view behind it.
    pub(crate) fn opening(self, opens: Opens) -> Self {
        Self { opens: Some(opens), ..self }
    }
}

/// The style of a colour. The drawing removes the colours where they are not wanted.
pub(crate) fn style(paint: Paint) -> Style {
    match paint {
        Paint::Good => Style::new().fg(Color::Green),
        Paint::Busy => Style::new().fg(Color::Yellow),
        Paint::Bad => Style::new().fg(Color::Red),
        Paint::Dim => Style::new().add_modifier(Modifier::DIM),
        Paint::Strong => Style::new().add_modifier(Modifier::BOLD),
    }
}

/// The mark of a class: a shape and a letter.
pub(crate) fn mark(class: Class) -> &'static str {
    match class {
        Class::Settled => "✓S",
        Class::Moving => "▶M",
        Class::Waiting => "◦W",
        Class::Failed => "✗F",
        Class::Stopped => "■P",
        Class::Unknown => "?U",
    }
}

/// The colour of a class.
pub(crate) fn paint(class: Class) -> Paint {
    match class {
        Class::Settled => Paint::Good,
        Class::Moving | Class::Waiting => Paint::Busy,
        Class::Failed | Class::Unknown => Paint::Bad,
        Class::Stopped => Paint::Dim,
    }
}

/// A mark with the blank behind it.
pub(crate) fn marked(class: Class) -> Span<'static> {
    Span::styled(format!("{} ", mark(class)), style(paint(class)))
}

/// The columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { Span::raw(text).width() }
}

/// A text cut to this width; the end of a longer text is `…`.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut taken = 1;
    for c in text.chars() {
        taken += width(c.encode_utf8(&mut [0; 4]));
        if taken > most {
            break;
        }
        shown.push(c);
    }
    if most > 0 {
        shown.push('…');
    }
    shown
}

/// A text in a column of this width.
pub(crate) fn column(text: &str, wide: usize) -> String {
    let mut text = cut(text, wide);
    let blanks = wide.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', blanks));
    text
}

/// A text in lines of this width, broken at blanks; all lines but the first are indented. A longer word is broken.
pub(crate) fn wrap(text: &str, most: usize, indent: usize) -> Vec<String> {
    let most = most.max(1);
    let indent = if indent + 8 > most { 0 } else { indent };
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut taken = 0;
    for (at, word) in text.split(' ').enumerate() {
        let is_first = at == 0 || taken == indent && !lines.is_empty();
        if !is_first && taken + 1 + width(word) > most {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            taken = indent;
        } else if !is_first {
            line.push(' ');
            taken += 1;
        }
        for c in word.chars() {
            let wide = width(c.encode_utf8(&mut [0; 4]));
            if taken + wide > most && taken > 0 {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
                taken = indent;
            }
            line.push(c);
            taken += wide;
        }
    }
    lines.push(line);
    lines
}

/// A text in lines of this width, as items of this style.
pub(crate) fn wrapped(items: &mut Vec<Item>, paint: Option<Paint>, text: &str, most: usize, indent: usize) {
    let style = paint.map(style).unwrap_or_default();
    items.extend(wrap(text, most, indent).into_iter().map(|line| Item::of(Line::styled(line, style))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_at_blanks_and_long_words_are_broken_too() {
        assert_eq!(wrap("red green blue", 9, 0), ["red green", "blue"]);
        assert_eq!(wrap("red green blue black", 9, 0), ["red green", "blue", "black"]);
        assert_eq!(wrap("abcdefghij", 4, 0), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4, 0), [""]);
        assert_eq!(wrap("日本語", 4, 0), ["日本", "語"], "wide characters take two columns");
        for most in 0..6 {
            assert!(wrap("a 日本 word", most, 3).iter().all(|line| width(line) <= most.max(2)));
        }
    }

    #[test]
    fn columns_are_as_wide_as_asked() {
        for text in ["", "abc", "abcdefgh", "日本語"] {
            for wide in 0..9 {
                assert_eq!(width(&column(text, wide)), wide, "{text:?}");
            }
        }
    }
}
