//! The format JSON, also with comments and trailing commas. `jsonc-parser` tells the places of keys and values; edits
//! are made in the text.
//!
//! A piece is a key with its value, the comments above it and on its line, and the comma behind it.

use std::ops::Range;

use jsonc_parser::ast::{Object, Value as Ast};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pieces::{Earlier, Entry, Piece, Tag, earlier, end_of, places, put_back};

/// A key as it was before the first edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    entries: Vec<Earlier>,
    /// The number of mappings above the key that existed.
    depth: usize,
    /// The text between the braces of the last of them, if it was empty.
    inner: Option<String>,
    /// Its last key had a comma.
    trailing: bool,
}

/// The text of a mapping in pieces.
struct Pieces {
    /// The place of the mapping, with its braces.
    range: Range<usize>,
    pieces: Vec<Piece>,
    /// The text before the closing brace.
    tail: String,
    /// The last key has a comma.
    trailing: bool,
}

fn root(text: &str) -> Result<Object<'_>, String> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|error| error.to_string())?;
    match parsed.value {
        Some(Ast::Object(object)) => Ok(object),
        _ => Err("it has no mapping `{…}` at its top".to_owned()),
    }
}

/// The mapping at a path. `None`: a part of the path is missing, or no mapping.
fn mapping<'a, 'b>(root: &'b Object<'a>, path: &[String]) -> Result<Option<&'b Object<'a>>, String> {
    let mut object = root;
    for name in path {
        let mut same = object.properties.iter().filter(|property| property.name.as_str() == name);
        match (same.next().map(|property| &property.value), same.next()) {
            (_, Some(_)) => return Err(format!("the key {name:?} is there twice")),
            (Some(Ast::Object(inner)), None) => object = inner,
            (None | Some(_), None) => return Ok(None),
        }
    }
    Ok(Some(object))
}

/// The deepest existing mapping above a key, and its depth.
fn deepest<'a, 'b>(root: &'b Object<'a>, path: &[String]) -> Result<(usize, &'b Object<'a>), String> {
    for depth in (1..path.len()).rev() {
        if let Some(object) = mapping(root, &path[..depth])? {
            return Ok((depth, object));
        }
    }
    Ok((0, root))
}

/// The text with a mapping at its top.
pub(super) fn with_mapping(text: &str) -> &str {
    if text.trim().is_empty() { "{}\n" } else { text }
}

/// The value of a key.
pub(super) fn value(text: &str, path: &[String]) -> Result<Option<Value>, String> {
    let root = root(with_mapping(text))?;
    let Some((name, above)) = path.split_last() else { return Ok(None) };
    let Some(object) = mapping(&root, above)? else { return Ok(None) };
    let mut same = object.properties.iter().filter(|property| property.name.as_str() == name);
    match (same.next(), same.next()) {
        (_, Some(_)) => Err(format!("the key {name:?} is there twice")),
        (found, None) => Ok(found.map(|property| Value::from(property.value.clone()))),
    }
}

/// The end of blanks and comments from `at`, at most to the end of the line.
fn rest_of_line(text: &str, at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        let rest = &text[at..];
        match rest.chars().next() {
            None | Some('\n') => return Some(at),
            Some('\r') if rest.starts_with("\r\n") => return Some(at),
            Some(char) if char.is_whitespace() => at += char.len_utf8(),
            Some('/') if rest.starts_with("//") => {
                let line = rest.find('\n').map_or(rest, |end| &rest[..end]);
                return Some(at + line.trim_end_matches('\r').len());
            }
            Some('/') if rest.starts_with("/*") => {
                let comment = &rest[..rest.find("*/")? + 2];
                if comment.contains('\n') {
                    return None;
                }
                at += comment.len();
            }
            Some(_) => return None,
        }
    }
}

/// The place of a comma behind a value, after blanks and comments.
fn comma(text: &str, at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        let rest = &text[at..];
        match rest.chars().next()? {
            ',' => return Some(at),
            char if char.is_whitespace() => at += char.len_utf8(),
            '/' if rest.starts_with("//") => at += rest.find('\n')?,
            '/' if rest.starts_with("/*") => at += rest.find("*/")? + 2,
            _ => return None,
        }
    }
}

impl Pieces {
    fn of(text: &str, object: &Object<'_>) -> Self {
        let range = object.range.start..object.range.end;
        let close = range.end - 1;
        let (mut pieces, mut start, mut trailing) = (Vec::new(), range.start + 1, false);
        for property in &object.properties {
            let (name, value) = (property.name.range(), property.value.range());
            let comma = comma(text, value.end).filter(|comma| *comma < close);
            trailing = comma.is_some();
            let behind = comma.map_or(value.end, |comma| comma + 1);
            let end = rest_of_line(text, behind).filter(|end| *end <= close).unwrap_or(behind);
            // Comments above the key are no part of it.
            let above = &text[start..name.start];
            if let Some((comments, _)) = above.rsplit_once('\n') {
                start += push_comments(&mut pieces, comments);
            }
            let entry = Entry {
                path: vec![property.name.as_str().to_owned()],
                value: name.end - start..value.end - start,
                comma: comma.map(|comma| comma - start),
            };
            pieces.push(Piece { text: text[start..end].to_owned(), tag: Tag::Entry(entry) });
            start = end;
        }
        start += push_comments(&mut pieces, &text[start..close]);
        Self { range, pieces, tail: text[start..close].to_owned(), trailing }
    }

    /// The text with this mapping.
    fn put(mut self, text: &str) -> String {
        let last = self.pieces.iter().rposition(|piece| piece.entry().is_some());
        for (at, piece) in self.pieces.iter_mut().enumerate() {
            let is_wanted = Some(at) != last || self.trailing;
            let Tag::Entry(entry) = &mut piece.tag else { continue };
            match entry.comma {
                None if is_wanted => piece.text.insert(entry.value.end, ','),
                Some(comma) if !is_wanted => drop(piece.text.remove(comma)),
                None | Some(_) => {}
            }
        }
        let inner: String = self.pieces.iter().map(|piece| piece.text.as_str()).collect();
        format!("{}{{{inner}{}}}{}", &text[..self.range.start], self.tail, &text[self.range.end..])
    }

    fn has_keys(&self) -> bool {
        self.pieces.iter().any(|piece| piece.entry().is_some())
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.trim().is_empty()
    }

    /// Without keys it is as it was before.
    fn close(&mut self, saved: &Saved) {
        if let Some(inner) = saved.inner.as_ref().filter(|_| !self.has_keys()) {
            self.tail.clone_from(inner);
        }
    }
}

/// Adds lines with comments. Returns their length.
fn push_comments(pieces: &mut Vec<Piece>, text: &str) -> usize {
    let comments = text.trim_end();
    // A piece begins with the line end before it.
    let mut start = 0;
    for end in comments.match_indices('\n').map(|(end, _)| end).chain([comments.len()]) {
        if start < end {
            pieces.push(Piece::other(&comments[start..end]));
        }
        start = end;
    }
    comments.len()
}

/// The indentation of the line at a place.
fn indent(text: &str, at: usize) -> &str {
    let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The indentation of a level. `None`: the file is a single line.
fn unit(text: &str, root: &Object<'_>) -> Option<String> {
    let Some(first) = root.properties.first() else { return Some("  ".to_owned()) };
    let name = first.name.range().start;
    let inner = indent(text, name);
    let outer = indent(text, root.range.start);
    let is_own_line = text[..name].trim_end_matches([' ', '\t']).ends_with('\n');
    is_own_line.then(|| inner.strip_prefix(outer).filter(|unit| !unit.is_empty()).unwrap_or("  ").to_owned())
}

/// A value in the notation of JSON. `level`: the indentation of its line, and of a level.
fn notation(value: &Value, level: Option<(&str, &str)>) -> String {
    let (items, braces): (Vec<(String, &Value)>, _) = match value {
        Value::Array(items) => (items.iter().map(|item| (String::new(), item)).collect(), ["[", "]"]),
        Value::Object(map) => {
            (map.iter().map(|(name, value)| (format!("{}: ", Value::from(name.as_str())), value)).collect(), ["{", "}"])
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return value.to_string(),
    };
    let [open, close] = braces;
    if items.is_empty() {
        return format!("{open}{close}");
    }
    let Some((outer, unit)) = level else {
        let items: Vec<_> = items.iter().map(|(name, value)| format!("{name}{}", notation(value, None))).collect();
        return format!("{open}{}{close}", items.join(", "));
    };
    let inner = format!("{outer}{unit}");
    let item = |(name, value): &(String, &Value)| format!("{inner}{name}{}", notation(value, Some((&inner, unit))));
    format!("{open}\n{}\n{outer}{close}", items.iter().map(item).collect::<Vec<_>>().join(",\n"))
}

/// With the line ends of the file.
fn with_ends(text: String, file: &str) -> String {
    if file.contains("\r\n") { text.replace('\n', "\r\n") } else { text }
}

/// The text with a value.
pub(super) fn set(text: &str, path: &[String], value: &Value) -> Result<String, String> {
    let text = with_mapping(text);
    let root = root(text)?;
    let (depth, object) = deepest(&root, path)?;
    let value = path[depth + 1..].iter().rfold(value.clone(), |value, name| serde_json::json!({ name: value }));
    let name = &path[depth..=depth];
    let unit = unit(text, &root);
    let mut pieces = Pieces::of(text, object);
    if let Some(at) = places(&pieces.pieces, name).first() {
        if depth + 1 < path.len() {
            return Err(format!("{} is no mapping", cob_kinds::key_in_dots(&path[..=depth])));
        }
        let same = object.properties.iter().find(|property| property.name.as_str() == name[0]);
        let start = same.map_or(object.range.start, |property| property.name.range().start);
        let piece = &mut pieces.pieces[*at];
        let level = unit.as_deref().map(|unit| (indent(text, start), unit));
        let raw = piece.raw();
        let blank = raw.len() - raw[raw.find(':').map_or(0, |colon| colon + 1)..].trim_start().len();
        let raw = format!("{}{}", &raw[..blank], with_ends(notation(&value, level), text));
        piece.replace(&raw);
        return Ok(pieces.put(text));
    }
    let new = entry(text, object, &mut pieces, &name[0], &value, unit.as_deref());
    let at = end_of(&pieces.pieces, &[]).unwrap_or(pieces.pieces.len());
    pieces.pieces.insert(at, new);
    Ok(pieces.put(text))
}

/// A new piece at the end of a mapping, in the style of the file.
fn entry(text: &str, object: &Object<'_>, pieces: &mut Pieces, name: &str, value: &Value, unit: Option<&str>) -> Piece {
    let outer = indent(text, object.range.start);
    let (lead, level) = match (object.properties.last(), unit) {
        (Some(last), _) => {
            let start = last.name.range().start;
            let before = &text[..start];
            let line = before.trim_end_matches([' ', '\t']);
            match line.strip_suffix('\n') {
                Some(_) => {
                    let inner = &before[line.len()..];
                    (with_ends(format!("\n{inner}"), text), unit.map(|unit| (inner.to_owned(), unit)))
                }
                None => (" ".to_owned(), None),
            }
        }
        (None, Some(unit)) => {
            let inner = format!("{outer}{unit}");
            if !pieces.tail.contains('\n') {
                pieces.tail = with_ends(format!("\n{outer}"), text);
            }
            (with_ends(format!("\n{inner}"), text), Some((inner, unit)))
        }
        (None, None) => (String::new(), None),
    };
    let key = Value::from(name).to_string();
    let level = level.as_ref().map(|(inner, unit)| (inner.as_str(), *unit));
    let raw = format!(": {}", with_ends(notation(value, level), text));
    let start = lead.len() + key.len();
    let entry = Entry { path: vec![name.to_owned()], value: start..start + raw.len(), comma: None };
    Piece { text: format!("{lead}{key}{raw}"), tag: Tag::Entry(entry) }
}

/// The text without a key.
pub(super) fn remove(text: &str, path: &[String]) -> Result<String, String> {
    let Some((name, above)) = path.split_last() else { return Ok(text.to_owned()) };
    let root = root(text)?;
    let Some(object) = mapping(&root, above)? else { return Ok(text.to_owned()) };
    let mut pieces = Pieces::of(text, object);
    for at in places(&pieces.pieces, std::slice::from_ref(name)).into_iter().rev() {
        pieces.pieces.remove(at);
    }
    Ok(pieces.put(text))
}

/// What is needed to put a key back.
pub(super) fn saved(text: &str, path: &[String]) -> Result<Saved, String> {
    let text = with_mapping(text);
    let root = root(text)?;
    let (depth, object) = deepest(&root, path)?;
    let pieces = Pieces::of(text, object);
    let inner = (!pieces.has_keys()).then(|| pieces.tail.clone());
    let entries = if depth + 1 == path.len() { earlier(&pieces.pieces, &path[depth..]) } else { Vec::new() };
    Ok(Saved { entries, depth, inner, trailing: pieces.trailing })
}

/// The text with the earlier key, or without the key and the mappings that were made for it.
pub(super) fn restore(text: &str, path: &[String], saved: &Saved) -> Result<String, String> {
    let Some((name, above)) = path.split_last() else { return Ok(text.to_owned()) };
    let name = std::slice::from_ref(name);
    let mut text = text.to_owned();
    {
        let root = root(&text)?;
        // Who removed the whole mapping wants no key in it.
        let Some(object) = mapping(&root, above)? else { return Ok(text) };
        let mut pieces = Pieces::of(&text, object);
        pieces.trailing |= saved.trailing && !pieces.has_keys();
        put_back(&mut pieces.pieces, name, &saved.entries);
        if saved.depth == above.len() {
            pieces.close(saved);
        }
        text = pieces.put(&text);
    }
    for depth in (saved.depth..above.len()).rev() {
        let root = root(&text)?;
        let Some(object) = mapping(&root, &above[..=depth])? else { return Ok(text) };
        if !Pieces::of(&text, object).is_empty() {
            return Ok(text);
        }
        let Some(outer) = mapping(&root, &above[..depth])? else { return Ok(text) };
        let mut pieces = Pieces::of(&text, outer);
        for at in places(&pieces.pieces, &above[depth..=depth]).into_iter().rev() {
            pieces.pieces.remove(at);
        }
        if saved.depth == depth {
            pieces.close(saved);
        }
        text = pieces.put(&text);
    }
    Ok(text)
}

impl Saved {
    /// The same, if another change object made mappings that both keys have in common. `common`: how many they have.
    pub(super) fn made_with(self, other: &Self, common: usize) -> Self {
        let is_new = self.entries.is_empty() && other.entries.is_empty();
        if is_new && common > other.depth && self.depth > other.depth { other.clone() } else { self }
    }

    /// The place of the key in its mapping.
    pub(super) fn at(&self) -> usize {
        self.entries.first().map_or(0, |entry| entry.at)
    }
}

/// Whether no key is left.
pub(super) fn is_empty(text: &str) -> bool {
    text.trim().is_empty() || root(text).is_ok_and(|root| Pieces::of(text, &root).is_empty())
}
