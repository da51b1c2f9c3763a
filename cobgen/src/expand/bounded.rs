//! Bounds for templates that the engine's instruction count does not cover: the nesting depth (the engine parses and
//! compiles by recursion), and filters whose output is larger than their input.
//!
//! Growth through operators, for example a text that doubles itself, is bounded by [`guard`](crate::guard).

use std::fmt::{self, Write};
use std::sync::Arc;

use minijinja::value::{ArgType, Kwargs, Rest, StringInput, Value, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use super::as_text;

/// The longest text that a template or a filter may produce, in bytes.
pub(super) const MAX_RENDERED: usize = 16 << 20;
/// The longest list that a template or a filter may produce, including nested lists.
pub(super) const MAX_ITEMS: usize = 1_000_000;
/// The widest indentation of JSON output.
const MAX_INDENT: usize = 16;
/// The most words and signs that may be nested in an expression, and the most `elif` in an `if`.
const MAX_NESTED: usize = 500;

/// Replaces the engine's filters with filters that enforce the bounds.
pub(super) fn bound(environment: &mut Environment<'static>) {
    environment.add_filter("join", join);
    environment.add_filter("replace", replace);
    environment.add_filter("indent", indent);
    environment.add_filter("format", format);
    environment.add_filter("batch", batch);
    environment.add_filter("slice", slice);
    environment.add_filter("list", list);
    environment.add_filter("split", split);
    environment.add_filter("lines", lines);
    environment.add_filter("tojson", tojson);
}

fn fits(filter: &str, bytes: usize) -> Result<(), Error> {
    if bytes <= MAX_RENDERED {
        return Ok(());
    }
    let what = format!("`{filter}` would give a text of more than {} MiB", MAX_RENDERED >> 20);
    Err(Error::new(ErrorKind::InvalidOperation, what))
}

fn counts(filter: &str, items: usize) -> Result<(), Error> {
    if items <= MAX_ITEMS {
        return Ok(());
    }
    let what = format!("`{filter}` would give a list of more than {MAX_ITEMS} items");
    Err(Error::new(ErrorKind::InvalidOperation, what))
}

/// Counts the bytes of a text without storing it, and stops beyond the bound.
struct Length(usize);

impl Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.saturating_add(text.len());
        if self.0 > MAX_RENDERED { Err(fmt::Error) } else { Ok(()) }
    }
}

/// The length of a value as text, in bytes; beyond the bound only a number above it.
fn length(value: &Value) -> usize {
    let mut length = Length(0);
    match value.as_str() {
        Some(text) => length.0 = text.len(),
        // Beyond the bound the exact end does not matter.
        None => drop(write!(length, "{value}")),
    }
    length.0
}

fn join(
    state: &mut State<'_, '_>,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let between = match &joiner {
        Some(joiner) => joiner.as_str().len(),
        None => kwargs.peek::<Option<&str>>("d").ok().flatten().map_or(0, str::len),
    };
    let named = kwargs.peek::<Option<&str>>("attribute").ok().flatten();
    if let Some(text) = value.as_str() {
        fits("join", text.len().saturating_add(text.chars().count().saturating_mul(between)))?;
    } else if let Ok(items) = value.try_iter() {
        let mut whole = 0_usize;
        for item in items {
            let part = match attribute.or(named) {
                Some(way) => part_of(item, way).map_or(0, |part| length(&part)),
                None => length(&item),
            };
            whole = whole.saturating_add(between).saturating_add(part);
            fits("join", whole.saturating_sub(between))?;
        }
    }
    let items = value.try_iter().ok().filter(|_| value.as_str().is_none() && attribute.or(named).is_none());
    match items {
        Some(items) => {
            let items = items.map(|item| as_text::word(&item).map_or(item, Value::from));
            filters::join(state, &items.collect::<Vec<_>>().into(), joiner, attribute, kwargs)
        }
        None => filters::join(state, value, joiner, attribute, kwargs),
    }
}

/// The part of a value at a path of names and numbers, `a.b.0`.
fn part_of(value: Value, way: &str) -> Option<Value> {
    way.split('.').try_fold(value, |value, name| match name.parse::<usize>() {
        Ok(number) => value.get_item_by_index(number).ok(),
        Err(_) => value.get_attr(name).ok(),
    })
}

fn replace(
    state: &mut State<'_, '_>,
    value: StringInput<'_>,
    from: StringInput<'_>,
    to: StringInput<'_>,
) -> Result<Value, Error> {
    let times = value.as_str().matches(from.as_str()).count();
    fits("replace", value.as_str().len().saturating_add(times.saturating_mul(to.as_str().len())))?;
    filters::replace(state, value, from, to)
}

fn indent(
    value: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let wide = width.or_else(|| kwargs.peek::<Option<usize>>("width").ok().flatten()).unwrap_or(4);
    let lines = value.as_str().matches('\n').count() + 1;
    fits("indent", value.as_str().len().saturating_add(lines.saturating_mul(wide)))?;
    filters::indent(value, width, first, blank, kwargs)
}

fn format(state: &mut State<'_, '_>, text: &Value, values: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let form = text.as_str().unwrap_or_default();
    let widths = form.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widths = widths.map(|digits| digits.parse::<usize>().unwrap_or(usize::MAX));
    let width = widths.fold(0, usize::saturating_add);
    let mut longest = 0;
    for value in values.iter() {
        // Named values come as a single mapping. A number may be a width if the form has `*`.
        let wide = if form.contains('*') { usize::try_from((**value).clone()).unwrap_or(0) } else { 0 };
        longest = longest.max(length(value)).max(wide);
    }
    let times = form.matches('%').count();
    fits("format", form.len().saturating_add(width).saturating_add(times.saturating_mul(longest)))?;
    filters::format(state, text, with_words(form, values))
}

/// The values with booleans as `true` and `false`, if every conversion of the form takes text.
fn with_words(form: &str, values: Rest<ValueOrKwargs>) -> Rest<ValueOrKwargs> {
    let conversions = form.replace("%%", "");
    let is_text = |rest: &str| rest.trim_start_matches(|c: char| !c.is_alphabetic()).starts_with(['s', 'r']);
    if !conversions.split('%').skip(1).all(is_text) {
        return values;
    }
    let text = |value: ValueOrKwargs| {
        let word = as_text::word(&value).map(Value::from);
        word.and_then(|word| ValueOrKwargs::from_value(Some(&word)).ok()).unwrap_or(value)
    };
    Rest(values.0.into_iter().map(text).collect())
}

fn batch(state: &State<'_, '_>, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    counts("batch", count)?;
    filters::batch(state, value, count, fill)
}

fn slice(state: &State<'_, '_>, value: Value, count: usize, fill: Option<Value>) -> Result<Value, Error> {
    counts("slice", count)?;
    filters::slice(state, value, count, fill)
}

fn list(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    counts("list", value.as_str().map(str::len).or_else(|| value.len()).unwrap_or(0))?;
    filters::list(state, value)
}

fn split(value: &Value, by: Option<Arc<str>>, most: Option<i64>) -> Result<Value, Error> {
    let text = value.as_str().unwrap_or_default();
    let parts = match &by {
        Some(by) => text.matches(by.as_ref()).count() + 1,
        None => text.split_whitespace().count(),
    };
    let most_parts = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    counts("split", parts.min(most_parts))?;
    filters::split(value, by, most)
}

fn lines(value: &Value) -> Result<Value, Error> {
    counts("lines", value.as_str().map_or(0, |text| text.matches('\n').count()))?;
    filters::lines(value)
}

fn tojson(value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let named = kwargs.peek::<Option<usize>>("indent").ok().flatten();
    let wide = indent.as_ref().and_then(|indent| usize::try_from(indent.clone()).ok()).or(named);
    if wide.is_some_and(|wide| wide > MAX_INDENT) {
        let what = format!("`tojson` indents by at most {MAX_INDENT} spaces");
        return Err(Error::new(ErrorKind::InvalidOperation, what));
    }
    let json = filters::tojson(value, indent, kwargs)?;
    fits("tojson", json.as_str().map_or(0, str::len))?;
    Ok(json)
}

/// The byte offset at which a template nests too deep for the engine's recursion, if any.
pub(super) fn too_deep(template: &str) -> Option<usize> {
    let (mut at, mut branches) = (0, vec![0_usize]);
    while let Some(begin) = template[at..].find('{').map(|found| at + found) {
        let rest = &template[begin..];
        let end = match rest.as_bytes().get(1) {
            Some(b'#') => Ok(rest.find("#}").unwrap_or(rest.len())),
            Some(b'{') => Expression::read(&rest[2..], "}}").map(|end| end + 2),
            Some(b'%') => {
                let inner = rest[2..].trim_start_matches(['-', '+']).trim_start();
                match &inner[..inner.find(|c: char| !c.is_alphanumeric()).unwrap_or(inner.len())] {
                    "if" => branches.push(0),
                    "elif" => *branches.last_mut()? += 1,
                    "endif" if branches.len() > 1 => drop(branches.pop()),
                    _ => {}
                }
                if branches.last().is_some_and(|count| *count > MAX_NESTED) {
                    return Some(begin);
                }
                match inner.starts_with("raw") {
                    true => Ok(rest.find("endraw").unwrap_or(rest.len())),
                    false => Expression::read(&rest[2..], "%}").map(|end| end + 2),
                }
            }
            Some(_) | None => Ok(1),
        };
        match end {
            Ok(end) => at = begin + end.max(1),
            Err(deep) => return Some(begin + deep),
        }
    }
    None
}

/// The same for an expression by itself.
pub(super) fn too_deep_by_itself(expression: &str) -> Option<usize> {
    Expression::read(expression, "").err()
}

/// The length of an expression in a text, including the end mark. An expression that is too deep ends there.
pub(super) fn expression_end(text: &str, mark: &str) -> usize {
    Expression::read(text, mark).unwrap_or_else(|deep| deep)
}

/// The nesting at the current position of an expression: for each open bracket, the words and signs since its start or
/// the last comma. Every level of the engine's recursion takes at least one word or sign.
struct Expression {
    levels: Vec<usize>,
    above: usize,
}

impl Expression {
    /// The end of the expression; an error is the position at which it is too deep.
    fn read(text: &str, end: &str) -> Result<usize, usize> {
        let mut read = Self { levels: vec![0], above: 0 };
        let (mut quote, mut escaped, mut in_word) = (None, false, false);
        for (at, c) in text.char_indices() {
            if let Some(sign) = quote {
                if !escaped && c == sign {
                    quote = None;
                }
                escaped = !escaped && c == '\\';
                continue;
            }
            if !end.is_empty() && read.levels.len() == 1 && text[at..].starts_with(end) {
                return Ok(at + end.len());
            }
            let word = c.is_alphanumeric() || c == '_';
            match c {
                _ if word && in_word => {}
                '"' | '\'' => quote = Some(c),
                ',' => read.next(),
                '(' | '[' | '{' => read.open(),
                ')' | ']' | '}' => read.close(),
                c if c.is_whitespace() => {}
                _ => read.add(),
            }
            in_word = word;
            if read.above > MAX_NESTED {
                return Err(at);
            }
        }
        Ok(text.len())
    }

    fn add(&mut self) {
        self.above += 1;
        if let Some(level) = self.levels.last_mut() {
            *level += 1;
        }
    }

    fn next(&mut self) {
        self.above -= self.levels.last_mut().map_or(0, std::mem::take);
    }

    fn open(&mut self) {
        self.add();
        self.levels.push(0);
    }

    fn close(&mut self) {
        if self.levels.len() > 1 {
            self.above -= self.levels.pop().unwrap_or(0);
        }
    }
}
