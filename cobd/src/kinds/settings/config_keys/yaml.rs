//! The format YAML: keys of block mappings. A parser tells the places of keys and values; an edit changes whole entries.
//!
//! After each edit the text is read again. An edit that would change another key, for example by an alias, is refused. So
//! is a key inside of a mapping on a single line, of a list, or of a mapping that merges another one (`<<`).

use std::collections::BTreeMap;
use std::ops::Range;

use cob_kinds::key_in_dots;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle, options};

use super::sheet::is_same;
use super::yaml_words::{key_notation, notation, resolved};

/// The deepest nesting.
const MAX_DEPTH: usize = 64;
/// The most values of a file, also by aliases.
const MAX_NODES: usize = 200_000;

/// A key as it was before the first edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    /// Its lines. `None`: it did not exist.
    lines: Option<String>,
    /// The number of mappings above the key that existed.
    depth: usize,
    /// The key above it in its mapping, and the number of lines between both.
    below: Option<String>,
    gap: usize,
    /// The number of its line.
    at: usize,
    /// The last line of the file had no end.
    is_open: bool,
}

/// A value and its place.
#[derive(Debug, Clone)]
struct Node {
    value: Value,
    range: Range<usize>,
    /// The entries of a mapping in block form.
    entries: Option<Vec<Entry>>,
}

/// A key and its value.
#[derive(Debug, Clone)]
struct Entry {
    key: String,
    /// Where the key begins.
    start: usize,
    /// The end of the colon behind the key.
    colon: usize,
    /// Nothing else is in front of the key on its line.
    is_plain: bool,
    node: Node,
}

/// A collection that is not complete.
struct Open {
    is_map: bool,
    is_block: bool,
    anchor: usize,
    start: usize,
    items: Vec<Node>,
    entries: Vec<Entry>,
    /// A key that waits for its value: the text, and its place.
    key: Option<(String, Range<usize>)>,
}

struct Reader<'a> {
    text: &'a str,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Value>,
    root: Option<Node>,
    nodes: usize,
    documents: usize,
}

fn document(text: &str) -> Result<Node, String> {
    let limits = options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut reader = Reader { text, open: Vec::new(), anchors: BTreeMap::new(), root: None, nodes: 0, documents: 0 };
    for event in Parser::new_from_str_with_options(text, limits) {
        let (event, span) = event.map_err(|error| error.to_string().replace('\n', ", "))?;
        let line = span.start.line();
        reader.event(event, &span).map_err(|why| format!("line {line}: {why}"))?;
    }
    let end = text.len();
    Ok(reader.root.unwrap_or(Node { value: Value::Null, range: end..end, entries: None }))
}

impl Reader<'_> {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), String> {
        let range = self.range(span);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 { Err("the file has several documents".to_owned()) } else { Ok(()) }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_bare = style == ScalarStyle::Plain && tag.is_none();
                let value = if is_bare { resolved(&text) } else { Value::from(text.as_ref()) };
                if self.awaits_key() {
                    let key = text.into_owned();
                    return self.key(key, range);
                }
                let tag = tag.map(|tag| tag.to_string());
                self.node(Node { value: tagged(value, tag), range, entries: None }, anchor)
            }
            Event::Alias(anchor) => {
                if self.awaits_key() {
                    return Err("a key is an alias".to_owned());
                }
                let value = self.anchors.get(&anchor).cloned().ok_or("an alias is inside of its own value")?;
                self.nodes += count(&value);
                self.node(Node { value, range, entries: None }, 0)
            }
            Event::SequenceStart(style, anchor, tag) => self.begin(false, style, anchor, tag.is_some(), range.start),
            Event::MappingStart(style, anchor, tag) => self.begin(true, style, anchor, tag.is_some(), range.start),
            Event::SequenceEnd | Event::MappingEnd => self.end(range.end),
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentEnd
            | Event::Anchor(..)
            | Event::UnresolvedAlias(_)
            | Event::Comment(..) => Ok(()),
            // A newer parser may have further events, but these are no values.
            _ => Ok(()),
        }
    }

    /// The place of a value, without blanks at its end.
    fn range(&self, span: &Span) -> Range<usize> {
        let place = |offset: Option<usize>| offset.unwrap_or_default().min(self.text.len());
        let (start, end) = (place(span.start.byte_offset()), place(span.end.byte_offset()));
        let inside = self.text.get(start..end).unwrap_or_default();
        start..start + inside.trim_end().len()
    }

    fn awaits_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.is_map && open.key.is_none())
    }

    fn key(&mut self, key: String, range: Range<usize>) -> Result<(), String> {
        let open = self.open.last_mut().ok_or("a key is outside of a mapping")?;
        if open.entries.iter().any(|entry| entry.key == key) {
            return Err(format!("the key {key:?} is there twice"));
        }
        open.key = Some((key, range));
        Ok(())
    }

    fn begin(
        &mut self,
        is_map: bool,
        style: StructureStyle,
        anchor: usize,
        is_tagged: bool,
        start: usize,
    ) -> Result<(), String> {
        if self.awaits_key() {
            return Err("a key is a list or a mapping".to_owned());
        }
        let is_block = style == StructureStyle::Block && !is_tagged;
        self.open.push(Open { is_map, is_block, anchor, start, items: Vec::new(), entries: Vec::new(), key: None });
        Ok(())
    }

    fn end(&mut self, end: usize) -> Result<(), String> {
        let Some(Open { is_map, is_block, anchor, start, items, entries, .. }) = self.open.pop() else { return Ok(()) };
        let last = if is_map { entries.last().map(Entry::end) } else { items.last().map(|item| item.range.end) };
        // A block ends with its last value, and not at the next key.
        let end = if is_block { last.unwrap_or(start) } else { end };
        let value = match is_map {
            true => Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.node.value.clone())).collect()),
            false => Value::Array(items.into_iter().map(|item| item.value).collect()),
        };
        let entries = (is_map && is_block).then_some(entries);
        self.node(Node { value, range: start..end, entries }, anchor)
    }

    fn node(&mut self, node: Node, anchor: usize) -> Result<(), String> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(format!("the file has more than {MAX_NODES} values"));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.value.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match open.key.take() {
            None => open.items.push(node),
            Some((key, range)) => {
                let behind = &self.text[range.end..];
                let blanks = behind.len() - behind.trim_start_matches(' ').len();
                let has_colon = behind[blanks..].starts_with(':');
                let before = &self.text[line_start(self.text, range.start)..range.start];
                let is_plain = has_colon && before.chars().all(|char| char == ' ' || char == super::sheet::MARK);
                let colon = range.end + if has_colon { blanks + 1 } else { 0 };
                let mut node = node;
                // The place of a missing value is unclear.
                if node.range.is_empty() {
                    node.range = colon..colon;
                }
                open.entries.push(Entry { key, start: range.start, colon, is_plain, node });
            }
        }
        Ok(())
    }
}

impl Entry {
    fn end(&self) -> usize {
        self.colon.max(self.node.range.end)
    }

    /// Its whole lines.
    fn lines(&self, text: &str) -> Range<usize> {
        line_start(text, self.start)..line_end(text, self.end())
    }
}

fn tagged(value: Value, tag: Option<String>) -> Value {
    match tag {
        None => value,
        // Not equal to any value of the model.
        Some(tag) => Value::Object(Map::from_iter([(format!("tag {tag}"), value)])),
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(entries) => entries.values().map(count).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

/// The entries on the way to a key, as far as they exist.
fn way<'n>(root: &'n Node, path: &[String]) -> Result<Vec<&'n Entry>, String> {
    let (mut node, mut way) = (root, Vec::<&Entry>::new());
    for (depth, name) in path.iter().enumerate() {
        let above = || if depth == 0 { "the file".to_owned() } else { key_in_dots(&path[..depth]) };
        let Some(entries) = &node.entries else {
            if node.value.is_null() && node.range.is_empty() {
                break;
            }
            return Err(format!("{} is not a mapping in block form: set it as a whole", above()));
        };
        if entries.iter().any(|entry| entry.key == "<<") {
            return Err(format!("{} merges another mapping (`<<`): set it as a whole", above()));
        }
        let Some(entry) = entries.iter().find(|entry| entry.key == *name) else { break };
        if !entry.is_plain {
            return Err(format!("{} does not begin its line", key_in_dots(&path[..=depth])));
        }
        way.push(entry);
        node = &entry.node;
    }
    Ok(way)
}

/// The value of a key. `None`: the key does not exist.
pub(super) fn value(text: &str, path: &[String]) -> Result<Option<Value>, String> {
    let root = document(text)?;
    Ok(path.iter().try_fold(&root.value, |value, name| value.as_object()?.get(name)).cloned())
}

/// What is needed to put a key back.
pub(super) fn saved(text: &str, path: &[String]) -> Result<Saved, String> {
    let (text, is_open) = closed(text);
    let root = document(&text)?;
    let nothing = Saved { lines: None, depth: path.len(), below: None, gap: 0, at: 0, is_open };
    // No edit is possible there.
    let Ok(way) = way(&root, path) else { return Ok(nothing) };
    let Some(entry) = way.get(path.len() - 1) else {
        return Ok(Saved { depth: way.len(), ..nothing });
    };
    let above = way.len().checked_sub(2).map(|at| way[at]);
    let siblings = above.map_or(&root, |above| &above.node).entries.as_deref().unwrap_or_default();
    let sibling = siblings.iter().take_while(|other| other.key != entry.key).last();
    let lines = entry.lines(&text);
    let from = sibling.or(above).map_or(0, |other| behind(&text, other, sibling.is_some()));
    let gap = text[from.min(lines.start)..lines.start].matches('\n').count();
    let at = text[..lines.start].matches('\n').count();
    Ok(Saved {
        lines: Some(text[lines].to_owned()),
        depth: way.len() - 1,
        below: sibling.map(|sibling| sibling.key.clone()),
        gap,
        at,
        is_open,
    })
}

/// Where the entry below a sibling, or the first entry of a mapping, may begin.
fn behind(text: &str, entry: &Entry, is_sibling: bool) -> usize {
    line_end(text, if is_sibling { entry.end() } else { entry.colon })
}

/// The text with a value for a key.
pub(super) fn set(text: &str, path: &[String], value: &Value) -> Result<String, String> {
    let (text, is_open) = closed(text);
    let root = document(&text)?;
    let way = way(&root, path)?;
    let edited = match way.get(path.len() - 1) {
        Some(entry) => {
            let (old, end) = (&text[entry.node.range.clone()], entry.end());
            let blanks = &text[entry.colon..entry.node.range.start.max(entry.colon)];
            let is_beside = !blanks.is_empty() && blanks.chars().all(|char| char == ' ');
            let blanks = if is_beside && !old.is_empty() { blanks } else { " " };
            let rest = &text[end..];
            format!("{}{blanks}{}{rest}", &text[..entry.colon], notation(value, old))
        }
        None => {
            let above = way.last().map_or(&root, |above| &above.node);
            let indent = |entry: &Entry| entry.start - line_start(&text, entry.start);
            let step = step(&root, &text);
            let (at, first) = match (above.entries.as_deref().and_then(<[Entry]>::last), way.last()) {
                (Some(last), _) => (behind(&text, last, true), indent(last)),
                (None, Some(above)) => (line_end(&text, above.colon), indent(above) + step),
                (None, None) => (text.len(), 0),
            };
            let missing = &path[way.len()..];
            let mut lines = String::new();
            for (depth, name) in missing.iter().enumerate() {
                let is_last = depth + 1 == missing.len();
                let of_value = if is_last { format!(" {}", notation(value, "")) } else { String::new() };
                let indent = " ".repeat(first + depth * step);
                lines += &format!("{indent}{}:{of_value}{}", key_notation(name), line_end_of(&text));
            }
            format!("{}{lines}{}", &text[..at], &text[at..])
        }
    };
    verified(&root.value, edited, path, Some(value)).map(|edited| reopened(edited, is_open))
}

/// The text without a key.
pub(super) fn remove(text: &str, path: &[String]) -> Result<String, String> {
    let (text, is_open) = closed(text);
    let root = document(&text)?;
    let way = way(&root, path)?;
    let Some(entry) = way.get(path.len() - 1) else { return Ok(reopened(text, is_open)) };
    let lines = entry.lines(&text);
    let edited = format!("{}{}", &text[..lines.start], &text[lines.end..]);
    verified(&root.value, edited, path, None).map(|edited| reopened(edited, is_open))
}

/// The text with the earlier key.
pub(super) fn restore(text: &str, path: &[String], saved: &Saved) -> Result<String, String> {
    let (mut text, is_open) = closed(text);
    let is_open = is_open || text.is_empty() && saved.is_open;
    let root = document(&text)?;
    let way = way(&root, path)?;
    match (way.get(path.len() - 1), &saved.lines) {
        (Some(entry), earlier) => {
            text.replace_range(entry.lines(&text), earlier.as_deref().unwrap_or_default());
            // Mappings that were made for the key go if they are empty.
            for length in (saved.depth + 1..path.len()).rev().filter(|_| earlier.is_none()) {
                let root = document(&text)?;
                let way = self::way(&root, &path[..length])?;
                let Some(above) = way.get(length - 1).filter(|above| above.node.value.is_null()) else { break };
                let lines = above.lines(&text);
                text.replace_range(lines, "");
            }
        }
        (None, Some(earlier)) if way.len() + 1 == path.len() => {
            let above = way.last().map_or(&root, |above| &above.node);
            let siblings = above.entries.as_deref().unwrap_or_default();
            let sibling = siblings.iter().find(|other| saved.below.as_ref() == Some(&other.key));
            let mut at = match (sibling, way.last()) {
                (Some(sibling), _) => behind(&text, sibling, true),
                (None, _) if saved.below.is_some() && !siblings.is_empty() => {
                    siblings.last().map_or(text.len(), |last| behind(&text, last, true))
                }
                (None, Some(above)) => behind(&text, above, false),
                (None, None) => 0,
            };
            for _ in 0..saved.gap {
                let line = &text[at..line_end(&text, at)];
                let is_between =
                    line.trim().is_empty() || line.trim_start().starts_with(['#', '%']) || line.trim() == "---";
                at += if is_between { line.len() } else { 0 };
            }
            text.insert_str(at, earlier);
        }
        (None, Some(_) | None) => {}
    }
    document(&text)?;
    Ok(reopened(text, is_open))
}

/// Whether a text has no key and no comment.
pub(super) fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim() == "---")
}

/// The edited text, if the edit has changed nothing else.
fn verified(before: &Value, edited: String, path: &[String], wanted: Option<&Value>) -> Result<String, String> {
    let mut expected = before.clone();
    expect(&mut expected, path, wanted);
    let is_right = document(&edited).is_ok_and(|root| is_same(&root.value, &expected));
    let key = key_in_dots(path);
    if is_right {
        Ok(edited)
    } else {
        Err(format!("an edit of {key} would also change other keys, or not be readable"))
    }
}

/// Changes a value as the edit of a key does.
fn expect(value: &mut Value, path: &[String], wanted: Option<&Value>) {
    let Some((name, rest)) = path.split_first() else { return };
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(entries) = value else { return };
    match (rest.is_empty(), wanted) {
        (true, Some(wanted)) => drop(entries.insert(name.clone(), wanted.clone())),
        (true, None) => drop(entries.remove(name)),
        (false, _) => expect(entries.entry(name).or_insert(Value::Null), rest, wanted),
    }
    // A mapping in block form without entries is null.
    if entries.is_empty() {
        *value = Value::Null;
    }
}

/// The blanks that a deeper level of the file has.
fn step(root: &Node, text: &str) -> usize {
    let indent = |entry: &Entry| entry.start - line_start(text, entry.start);
    let entries = root.entries.as_deref().unwrap_or_default();
    let first = entries.iter().find_map(|entry| Some(indent(entry.node.entries.as_ref()?.first()?) - indent(entry)));
    first.filter(|step| *step > 0).unwrap_or(2)
}

fn line_end_of(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The text with an end of its last line. True: it had none.
fn closed(text: &str) -> (String, bool) {
    let is_open = !text.is_empty() && !text.ends_with('\n');
    (if is_open { format!("{text}{}", line_end_of(text)) } else { text.to_owned() }, is_open)
}

fn reopened(mut text: String, is_open: bool) -> String {
    if is_open {
        let end = text.strip_suffix('\n').map_or(text.len(), |bare| bare.trim_end_matches('\r').len());
        text.truncate(end);
    }
    text
}

impl Saved {
    /// The same, if another change object made mappings that both keys have in common. `common`: how many they have.
    pub(super) fn made_with(self, other: &Self, common: usize) -> Self {
        let is_made = self.lines.is_none() && other.lines.is_none() && common > other.depth;
        Self { depth: if is_made { self.depth.min(other.depth) } else { self.depth }, ..self }
    }

    /// The place of the key among others.
    pub(super) fn at(&self) -> usize {
        self.at
    }
}

#[cfg(test)]
#[path = "yaml_test.rs"]
mod tests;
