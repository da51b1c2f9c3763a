//! A configuration file in pieces: an edit changes a piece, and all others stay byte for byte.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A part of a file: a line, or an entry with all its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) tag: Tag,
}

/// The meaning of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tag {
    /// The beginning of a section.
    Header(Vec<String>),
    Entry(Entry),
    /// A comment, a blank line, or another line.
    Other,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: Vec<String>,
    /// In the text: separator and value, from the end of the key.
    pub(super) value: Range<usize>,
    /// In the text: a comma behind the value.
    pub(super) comma: Option<usize>,
}

/// An entry as it was before the first edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Earlier {
    text: String,
    value: Range<usize>,
    comma: Option<usize>,
    section: Vec<String>,
    /// The name of the piece before the entry. `None`: the entry was first.
    below: Option<String>,
    /// The number of pieces before the entry.
    pub(super) at: usize,
}

impl Piece {
    pub(super) fn other(text: impl Into<String>) -> Self {
        Self { text: text.into(), tag: Tag::Other }
    }

    pub(super) fn entry(&self) -> Option<&Entry> {
        match &self.tag {
            Tag::Entry(entry) => Some(entry),
            Tag::Header(_) | Tag::Other => None,
        }
    }

    /// Separator and value of an entry.
    pub(super) fn raw(&self) -> &str {
        self.entry().map_or("", |entry| &self.text[entry.value.clone()])
    }

    /// Replaces separator and value.
    pub(super) fn replace(&mut self, raw: &str) {
        let Tag::Entry(entry) = &mut self.tag else { return };
        let Range { start, end } = entry.value;
        self.text.replace_range(start..end, raw);
        entry.value.end = start + raw.len();
        entry.comma = entry.comma.map(|comma| comma - end + entry.value.end);
    }

    /// A name that stays if the value changes.
    fn name(&self) -> String {
        match &self.tag {
            Tag::Header(path) => format!("[{}]", path.join(".")),
            Tag::Entry(entry) => format!("={}", entry.path.join(".")),
            Tag::Other => self.text.clone(),
        }
    }
}

/// The places of the entries with a key.
pub(super) fn places(pieces: &[Piece], path: &[String]) -> Vec<usize> {
    let is_it = |piece: &Piece| piece.entry().is_some_and(|entry| entry.path == path);
    (0..pieces.len()).filter(|at| is_it(&pieces[*at])).collect()
}

/// The section of a piece: the header above it, or its own.
pub(super) fn section(pieces: &[Piece], at: usize) -> &[String] {
    let header = |piece: &'_ Piece| matches!(piece.tag, Tag::Header(_));
    match pieces[..=at].iter().rfind(|piece| header(piece)).map(|piece| &piece.tag) {
        Some(Tag::Header(path)) => path,
        Some(Tag::Entry(_) | Tag::Other) | None => &[],
    }
}

/// The entries with a key.
pub(super) fn earlier(pieces: &[Piece], path: &[String]) -> Vec<Earlier> {
    let of = |at: usize| {
        let entry = pieces[at].entry()?;
        let below = at.checked_sub(1).map(|above| pieces[above].name());
        let (text, section) = (pieces[at].text.clone(), section(pieces, at).to_vec());
        Some(Earlier { text, section, value: entry.value.clone(), comma: entry.comma, below, at })
    };
    places(pieces, path).into_iter().filter_map(of).collect()
}

/// The place behind the last entry of a section. `None`: the section has no header.
pub(super) fn end_of(pieces: &[Piece], of_section: &[String]) -> Option<usize> {
    let is_header = |piece: &Piece| matches!(piece.tag, Tag::Header(_));
    let start = match of_section {
        [] => 0,
        name => 1 + pieces.iter().rposition(|piece| matches!(&piece.tag, Tag::Header(header) if header == name))?,
    };
    let end = pieces[start..].iter().position(is_header).map_or(pieces.len(), |length| start + length);
    let last = pieces[start..end].iter().rposition(|piece| piece.entry().is_some());
    Some(match last {
        Some(last) => start + last + 1,
        None if start > 0 => start,
        // Comments directly above the first header belong to it.
        None if end < pieces.len() => {
            let is_comment = |piece: &&Piece| !piece.text.trim().is_empty();
            end - pieces[..end].iter().rev().take_while(is_comment).count()
        }
        None => end,
    })
}

/// Puts earlier entries back in place of the present entries. An entry whose section is gone stays away.
pub(super) fn put_back(pieces: &mut Vec<Piece>, path: &[String], earlier: &[Earlier]) {
    let there = places(pieces, path);
    for (at, one) in there.iter().zip(earlier) {
        pieces[*at].replace(&one.text[one.value.clone()]);
    }
    for at in there.iter().skip(earlier.len()).rev() {
        pieces.remove(*at);
    }
    for one in earlier.iter().skip(there.len()) {
        let Some(end) = end_of(pieces, &one.section) else { continue };
        let is_neighbour =
            |at: &usize| one.below.as_ref() == Some(&pieces[*at].name()) && section(pieces, *at) == one.section;
        let nearest = (0..pieces.len()).filter(is_neighbour).min_by_key(|at| (at + 1).abs_diff(one.at));
        let at = match (&one.below, nearest) {
            (None, _) => 0,
            (Some(_), Some(at)) => at + 1,
            (Some(_), None) => end,
        };
        let entry = Entry { path: path.to_vec(), value: one.value.clone(), comma: one.comma };
        pieces.insert(at, Piece { text: one.text.clone(), tag: Tag::Entry(entry) });
    }
}

/// The raw text of a new value behind the separator of an old one.
pub(super) fn renewed(raw: &str, separators: &[char], default: &str, value: &str) -> String {
    let blanks = |text: &str| text.len() - text.trim_start_matches([' ', '\t']).len();
    let before = blanks(raw);
    let rest = &raw[before..];
    let end = match rest.chars().next() {
        Some(first) if separators.contains(&first) => {
            let end = before + first.len_utf8();
            // An empty value has no blank behind its separator.
            if rest.len() == first.len_utf8() && before > 0 {
                return format!("{raw} {value}");
            }
            end + blanks(&raw[end..])
        }
        // A blank is a separator in properties.
        Some(_) if before > 0 && separators.contains(&' ') => before,
        Some(_) | None => return format!("{default}{value}"),
    };
    format!("{}{value}", &raw[..end])
}
