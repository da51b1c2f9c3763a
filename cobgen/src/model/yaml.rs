//! YAML text to positioned values, within limits.
//!
//! Processes the parser's events with an explicit stack, so depth costs no call stack, and a hostile file is refused
//! early: nesting beyond [`MAX_DEPTH`], more values than [`MAX_NODES`], or more values made by aliases than
//! [`MAX_ALIASED`]. Scalars follow the core schema of YAML 1.2 (`yes`, `no`, `on`, `off` are texts). A duplicate key, a
//! key that is no text, and an unknown tag are errors; the merge key `<<` is supported.

use std::collections::{BTreeMap, HashMap};

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag, options};

use super::Sources;
use super::node::{Key, Map, Mark, Node, Value, Written};
use crate::diagnostic::{Diagnostic, Diagnostics};
use cob_types::suggest::code_point;

/// The deepest nesting; a real model has about ten levels.
const MAX_DEPTH: usize = 64;
/// The most values of a whole model.
const MAX_NODES: usize = 4_000_000;
/// The most values of a whole model that come from aliases.
const MAX_ALIASED: usize = 500_000;

/// The remaining limits for the files that are not read yet.
#[derive(Debug)]
pub(super) struct Budget {
    nodes: usize,
    aliased: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { nodes: MAX_NODES, aliased: MAX_ALIASED }
    }
}

/// The documents of a text; `None` after a fault that leaves the structure unclear.
pub(super) fn parse(
    file: u32,
    sources: &Sources,
    text: &str,
    budget: &mut Budget,
    out: &mut Diagnostics,
) -> Option<Vec<Node>> {
    build(file, sources, text, budget, out, &mut |_| {})
}

/// As [`parse`], with the trace of the text up to its end or its first fault.
pub(super) fn parse_traced(
    file: u32,
    sources: &Sources,
    text: &str,
    budget: &mut Budget,
    out: &mut Diagnostics,
) -> (Option<Vec<Node>>, Trace) {
    let mut trace = Trace::default();
    let found = build(file, sources, text, budget, out, &mut |event| trace.take(event));
    (found, trace)
}

fn build(
    file: u32,
    sources: &Sources,
    text: &str,
    budget: &mut Budget,
    out: &mut Diagnostics,
    read: &mut dyn FnMut(&Event<'_>),
) -> Option<Vec<Node>> {
    let mut builder =
        Builder { file, sources, budget, out, stack: Vec::new(), anchors: BTreeMap::new(), roots: Vec::new() };
    let text = without_mark(text);
    for event in events(text) {
        let step = match event {
            Ok((event, span)) => {
                read(&event);
                builder.event(event, &span)
            }
            Err(error) => Err(Box::new(builder.syntax(text, &error))),
        };
        if let Err(fault) = step {
            builder.out.push(*fault);
            return None;
        }
    }
    Some(builder.roots)
}

fn events(text: &str) -> impl Iterator<Item = Result<(Event<'_>, Span), ScanError>> {
    let limits = options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    Parser::new_from_str_with_options(text, limits)
}

/// A text without the mark of its byte order.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// What a reader of a text gets: its events without places, comments, line breaks and the kinds of quotes and brackets.
/// Texts with equal traces have equal values.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace(Vec<u8>);

impl Trace {
    /// The trace of a text; `None` if the text is no YAML.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let mut trace = Self::default();
        for event in events(without_mark(text)) {
            trace.take(&event.ok()?.0);
        }
        Some(trace)
    }

    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Scalar(text, ScalarStyle::Plain, anchor, tag) => self.node(b'p', *anchor, tag.as_deref(), text),
            Event::Scalar(text, _, anchor, tag) => self.node(b'q', *anchor, tag.as_deref(), text),
            Event::SequenceStart(_, anchor, tag) => self.node(b'[', *anchor, tag.as_deref(), ""),
            Event::MappingStart(_, anchor, tag) => self.node(b'{', *anchor, tag.as_deref(), ""),
            Event::SequenceEnd => self.0.push(b']'),
            Event::MappingEnd => self.0.push(b'}'),
            Event::DocumentEnd => self.0.push(b'.'),
            Event::Alias(id) => self.node(b'*', *id, None, ""),
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::Anchor(..)
            | Event::UnresolvedAlias(_)
            | Event::Comment(..) => {}
            // A newer parser may have further events, but these are no values.
            _ => {}
        }
    }

    fn node(&mut self, sign: u8, anchor: usize, tag: Option<&Tag>, text: &str) {
        self.0.push(sign);
        self.0.extend(anchor.to_le_bytes());
        self.text(&tag.map(|tag| format!("{tag:?}")).unwrap_or_default());
        self.text(text);
    }

    fn text(&mut self, text: &str) {
        self.0.extend(text.len().to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }
}

type Step = Result<(), Box<Diagnostic>>;

struct Builder<'a> {
    file: u32,
    sources: &'a Sources,
    budget: &'a mut Budget,
    out: &'a mut Diagnostics,
    /// The open collections.
    stack: Vec<Open>,
    /// Anchored values with the number of values in them.
    anchors: BTreeMap<usize, (Node, Size)>,
    roots: Vec<Node>,
}

/// The size of a value.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    depth: usize,
}

enum Open {
    List { mark: Mark, anchor: usize, items: Vec<Node> },
    Map(OpenMap),
}

struct OpenMap {
    mark: Mark,
    anchor: usize,
    map: Map,
    /// The place of each key.
    seen: HashMap<String, Mark>,
    /// A key that waits for its value.
    key: Option<(Key, Role)>,
    /// Mappings named under `<<`, whose entries come after the mapping's own entries.
    merged: Vec<Map>,
}

/// The role of a key's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// An entry.
    Own,
    /// The merge key `<<`.
    Merge,
    /// A duplicate key, already reported: the first value stays.
    Twice,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Step {
        let mark = self.mark(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                if self.key_awaited() {
                    self.key(Key { mark, text: text.into_owned() }, style)?;
                    return Ok(());
                }
                let value = self.scalar(&text, style, tag.as_deref(), mark).unwrap_or_else(|fault| {
                    self.out.push(*fault);
                    Value::Invalid
                });
                self.value(Node { mark, value }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.open(mark, tag.as_deref(), "seq")?;
                self.stack.push(Open::List { mark, anchor, items: Vec::new() });
                Ok(())
            }
            Event::MappingStart(_, anchor, tag) => {
                self.open(mark, tag.as_deref(), "map")?;
                let map = Map::default();
                self.stack.push(Open::Map(OpenMap {
                    mark,
                    anchor,
                    map,
                    seen: HashMap::new(),
                    key: None,
                    merged: Vec::new(),
                }));
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(Open::List { mark, anchor, items }) => {
                    self.value(Node { mark, value: Value::List(items) }, anchor)
                }
                Some(Open::Map(open)) => {
                    let anchor = open.anchor;
                    self.value(open.close(), anchor)
                }
                None => Ok(()),
            },
            Event::Alias(id) => self.alias(id, mark),
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::Anchor(..)
            | Event::UnresolvedAlias(_)
            | Event::Comment(..) => Ok(()),
            // A newer parser may have further events, but these are no values.
            _ => Ok(()),
        }
    }

    fn mark(&self, span: &Span) -> Mark {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Mark { file: self.file, line: number(span.start.line()), column: number(span.start.col() + 1) }
    }

    fn fault(&self, code: &'static str, mark: Mark, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, message).at(self.sources.place(mark))
    }

    /// Whether the next value is a key.
    fn key_awaited(&self) -> bool {
        matches!(self.stack.last(), Some(Open::Map(open)) if open.key.is_none())
    }

    fn open(&mut self, mark: Mark, tag: Option<&Tag>, core: &str) -> Step {
        if self.key_awaited() {
            return Err(Box::new(
                self.fault("bad-key", mark, "a key must be a text, not a list or a mapping")
                    .help("a text that begins with `{` or `[`, for example a template, needs quotes: \"{{ x }}\""),
            ));
        }
        if let Some(tag) = tag.filter(|t| t.core_suffix() != Some(core)) {
            return Err(Box::new(self.unknown_tag(mark, tag)));
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err(Box::new(self.too_deep(mark)));
        }
        Ok(())
    }

    fn too_deep(&self, mark: Mark) -> Diagnostic {
        self.fault("too-deep", mark, format!("more than {MAX_DEPTH} levels of nesting"))
            .help("a model is a few levels deep; is this file a model at all?")
    }

    fn unknown_tag(&self, mark: Mark, tag: &Tag) -> Diagnostic {
        self.fault("unknown-tag", mark, format!("the tag `{}` is unknown", tag.original()))
            .help("remove it; a text that begins with `!` needs quotes")
    }

    fn key(&mut self, key: Key, style: ScalarStyle) -> Step {
        let plain = style == ScalarStyle::Plain;
        if key.text.is_empty() && plain {
            return Err(Box::new(self.fault("bad-key", key.mark, "a key is missing before the `:`")));
        }
        if let Some(odd) = key.text.chars().next().filter(|c| is_blank_that_is_none(*c)) {
            let what = format!("the key {:?} begins with {}, which YAML treats as a letter", key.text, code_point(odd));
            let help = "indent with ordinary spaces; text from web pages often contains special spaces";
            return Err(Box::new(self.fault("odd-blank", key.mark, what).help(help)));
        }
        let Some(Open::Map(open)) = self.stack.last_mut() else { return Ok(()) };
        let first = open.seen.get(&key.text).copied();
        let role = match first {
            Some(_) => Role::Twice,
            None if plain && key.text == "<<" => Role::Merge,
            None => Role::Own,
        };
        if role != Role::Twice {
            open.seen.insert(key.text.clone(), key.mark);
        }
        let (mark, text) = (key.mark, key.text.clone());
        open.key = Some((key, role));
        if let (Role::Twice, Some(first)) = (role, first) {
            let fault = self
                .fault("duplicate-key", mark, format!("the key `{text}` stands here twice"))
                .note(Some(self.sources.place(first)), "first here")
                .help(match plain && text == "<<" {
                    true => "a single `<<` can merge several mappings: `<<: [*first, *second]`",
                    false => "remove either copy",
                });
            self.out.push(fault);
        }
        Ok(())
    }

    /// Puts a finished value into its collection.
    fn value(&mut self, node: Node, anchor: usize) -> Step {
        if self.budget.nodes == 0 {
            return Err(Box::new(self.fault(
                "too-large",
                node.mark,
                format!("the model holds more than {MAX_NODES} values"),
            )));
        }
        self.budget.nodes -= 1;
        if anchor != 0 {
            let size = size(&node);
            self.spend(size.nodes, node.mark)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        match self.stack.last_mut() {
            None => self.roots.push(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map(open)) => match open.key.take() {
                Some((key, Role::Own)) => open.map.entries.push((key, node)),
                Some((key, Role::Merge)) => return self.merge(key.mark, node),
                Some((_, Role::Twice)) => {}
                None => {}
            },
        }
        Ok(())
    }

    fn merge(&mut self, mark: Mark, node: Node) -> Step {
        let fault = self.fault("bad-merge", mark, "`<<` takes a mapping or a list of mappings");
        let nodes = if let Value::List(nodes) = node.value { nodes } else { vec![node] };
        let Some(Open::Map(open)) = self.stack.last_mut() else { return Ok(()) };
        for node in nodes {
            let Value::Map(map) = node.value else { return Err(Box::new(fault)) };
            open.merged.push(map);
        }
        Ok(())
    }

    fn alias(&mut self, id: usize, mark: Mark) -> Step {
        if self.key_awaited() {
            return Err(Box::new(self.fault("bad-key", mark, "a key can't be an alias; write it out")));
        }
        let Some((node, size)) = self.anchors.get(&id) else {
            return Err(Box::new(self.fault("alias-circle", mark, "this alias is inside the value that it names")));
        };
        let (node, size) = (node.clone(), *size);
        if self.stack.len() + size.depth > MAX_DEPTH {
            return Err(Box::new(self.too_deep(mark)));
        }
        self.spend(size.nodes, mark)?;
        self.value(node, 0)
    }

    fn spend(&mut self, nodes: usize, mark: Mark) -> Step {
        match self.budget.aliased.checked_sub(nodes) {
            Some(left) => self.budget.aliased = left,
            None => {
                let what = format!("anchors and aliases make more than {MAX_ALIASED} values of this model");
                let help = "write less with aliases, or use `for` and templates";
                return Err(Box::new(self.fault("alias-bomb", mark, what).help(help)));
            }
        }
        Ok(())
    }

    fn scalar(&self, text: &str, style: ScalarStyle, tag: Option<&Tag>, mark: Mark) -> Result<Value, Box<Diagnostic>> {
        match tag.map(|t| (t, t.core_suffix())) {
            Some((_, Some("str"))) => return Ok(Value::Text(text.to_owned())),
            Some((_, Some("int" | "float" | "bool" | "null"))) => return self.plain(text, mark),
            // `!` alone marks a text.
            Some((tag, _)) if tag.original() == "!" => return Ok(Value::Text(text.to_owned())),
            Some((tag, _)) => return Err(Box::new(self.unknown_tag(mark, tag))),
            None => {}
        }
        if style == ScalarStyle::Plain { self.plain(text, mark) } else { Ok(Value::Text(text.to_owned())) }
    }

    /// Applies the core schema of YAML 1.2.
    fn plain(&self, text: &str, mark: Mark) -> Result<Value, Box<Diagnostic>> {
        let quoted = |what: &str| {
            Box::new(
                self.fault("bad-number", mark, format!("{what}: {text}"))
                    .help(format!("for a text write quotes: \"{text}\"")),
            )
        };
        Ok(match text {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "-.inf" | ".nan" | ".NaN" | ".NAN" => {
                return Err(quoted("infinity and not-a-number are not allowed"));
            }
            _ if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) => {
                Value::Text(text.to_owned())
            }
            _ => match number(text) {
                None => Value::Text(text.to_owned()),
                Some(None) => return Err(quoted("this number is too large")),
                Some(Some(number)) => number,
            },
        })
    }

    /// The parser's own faults, with advice for frequent faults.
    fn syntax(&self, text: &str, error: &ScanError) -> Diagnostic {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let at = error.marker();
        let mark = Mark { file: self.file, line: number(at.line().max(1)), column: number(at.col() + 1) };
        let info = error.info();
        if info.contains("nesting limit") || info.contains("recursion limit") {
            return self.too_deep(mark);
        }
        if info.contains("unknown anchor") {
            return self
                .fault("unknown-anchor", mark, "this alias names no anchor")
                .help("define it before it is used: `&name value`");
        }
        let near = |line: &str| line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
        let tab = text.lines().skip(at.line().saturating_sub(2)).take(2).any(near);
        self.fault("yaml", mark, format!("this is not valid YAML: {info}")).maybe_help(if tab {
            Some("indent with blanks; YAML allows no tabs there".to_owned())
        } else {
            Some("check the indentation, the quotes and the `:` in this line and the previous line".to_owned())
        })
    }
}

/// Whether a character looks like a blank, or is invisible, but is text for YAML: the no-break space, typographic
/// spaces, zero-width marks.
pub(crate) fn is_blank_that_is_none(c: char) -> bool {
    let invisible = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}' | '\u{feff}' | '\u{ad}');
    invisible || (c.is_whitespace() && !c.is_ascii())
}

impl OpenMap {
    fn close(mut self) -> Node {
        for map in self.merged {
            for (key, node) in map.entries {
                if !self.seen.contains_key(&key.text) {
                    self.seen.insert(key.text.clone(), key.mark);
                    self.map.entries.push((key, node));
                }
            }
        }
        Node { mark: self.mark, value: Value::Map(self.map) }
    }
}

/// A number in its spelling; `None`: no number; `Some(None)`: a number outside all bounds.
pub(super) fn number(text: &str) -> Option<Option<Value>> {
    match whole_number(text) {
        Some(whole) => {
            let whole = whole.filter(|i| *i >= i128::from(i64::MIN) && *i <= i128::from(u64::MAX));
            Some(whole.map(|i| Value::Int(i, Written::of(&i.to_string(), text))))
        }
        None if looks_like_float(text) => {
            let float = text.parse::<f64>().ok().filter(|f| f.is_finite());
            Some(float.map(|f| Value::Float(f, Written::of(&f.to_string(), text))))
        }
        None => None,
    }
}

/// `None`: no whole number; `Some(None)`: a whole number outside all bounds.
fn whole_number(text: &str) -> Option<Option<i128>> {
    let digits = |t: &str, radix: u32| !t.is_empty() && t.len() < 200 && t.chars().all(|c| c.is_digit(radix));
    if let Some(hex) = text.strip_prefix("0x") {
        return digits(hex, 16).then(|| i128::from_str_radix(hex, 16).ok());
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(octal, 8).then(|| i128::from_str_radix(octal, 8).ok());
    }
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits(bare, 10).then(|| text.parse().ok())
}

/// `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`
fn looks_like_float(text: &str) -> bool {
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = bare.split_once(['e', 'E']).map_or((bare, None), |(m, e)| (m, Some(e)));
    let digits = |t: &str| t.chars().all(|c| c.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_ok = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty()) && exponent_ok
}

/// The depth is bounded, so this may recurse.
fn size(node: &Node) -> Size {
    let sum = |sizes: &mut dyn Iterator<Item = Size>| {
        sizes.fold(Size { nodes: 1, depth: 1 }, |a, b| Size {
            nodes: a.nodes + b.nodes,
            depth: a.depth.max(b.depth + 1),
        })
    };
    match &node.value {
        Value::List(items) => sum(&mut items.iter().map(size)),
        Value::Map(map) => sum(&mut map.entries.iter().map(|(_, v)| size(v))),
        // A long text counts as many values, because it takes their memory.
        Value::Text(text) => Size { nodes: 1 + text.len() / 64, depth: 1 },
        Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Invalid => {
            Size { nodes: 1, depth: 1 }
        }
    }
}
