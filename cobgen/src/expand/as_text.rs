//! The text form of values in templates.
//!
//! Booleans are `true` and `false`, a missing value is `null`, as in the rest of a model, in JSON and in YAML. The
//! engine itself writes Python's words `True` and `None`; for its operator `~` see [`concat`](super::concat).

use std::fmt::Write as _;
use std::sync::Arc;

use minijinja::value::{Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, Output, State, escape_formatter, filters};

/// The deepest list or mapping that this module writes. The engine writes deeper values.
const MAX_DEPTH: usize = 64;

/// Filters that accept any value as text.
const OF_TEXTS: [&str; 7] = ["e", "escape", "indent", "replace", "safe", "trim", "urlencode"];

/// Installs the text form in an environment. Its other filters must be set before.
pub(super) fn set(environment: &mut Environment<'static>) {
    environment.set_formatter(format);
    environment.add_filter("string", string);
    let before = Arc::new(environment.clone());
    for name in OF_TEXTS {
        let before = Arc::clone(&before);
        environment.add_filter(name, move |values: Rest<ValueOrKwargs>| {
            let mut values: Vec<Value> = values.0.into_iter().map(ValueOrKwargs::into_value).collect();
            if let Some(first) = values.first_mut()
                && let Some(word) = word(first)
            {
                *first = Value::from(word);
            }
            before.empty_state().apply_filter(name, &values)
        });
    }
}

/// The text of a boolean or of no value; `None` for other values, which the engine writes correctly.
pub(super) fn word(value: &Value) -> Option<&'static str> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the list is the template engine's and grows")]
    match value.kind() {
        ValueKind::Bool if value.is_true() => Some("true"),
        ValueKind::Bool => Some("false"),
        ValueKind::None => Some("null"),
        _ => None,
    }
}

fn format(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match text(value) {
        Some(text) => Ok(out.write_str(&text)?),
        None => escape_formatter(out, state, value),
    }
}

fn string(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    text(value).map_or_else(|| filters::string(state, value), |text| Ok(Value::from(text)))
}

/// The text of a value that contains a boolean or no value; `None` for all other values.
fn text(value: &Value) -> Option<String> {
    if let Some(word) = word(value) {
        return Some(word.to_owned());
    }
    holds_words(value, MAX_DEPTH).then(|| {
        let mut text = String::new();
        write(&mut text, value, MAX_DEPTH);
        text
    })
}

fn is_collection(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map)
}

fn holds_words(value: &Value, depth: usize) -> bool {
    if depth == 0 || !is_collection(value) {
        return word(value).is_some();
    }
    let Ok(mut items) = value.try_iter() else { return false };
    match value.kind() == ValueKind::Map {
        true => items.any(|key| value.get_item(&key).is_ok_and(|item| holds_words(&item, depth - 1))),
        false => items.any(|item| holds_words(&item, depth - 1)),
    }
}

/// Writes lists and mappings as the engine does: `['a', true]`, `{'a': null}`.
fn write(text: &mut String, value: &Value, depth: usize) {
    if let Some(word) = word(value) {
        text.push_str(word);
        return;
    }
    let items = value.try_iter().ok().filter(|_| depth > 0 && is_collection(value));
    let Some(items) = items else {
        // A write to a `String` can't fail.
        let _ = write!(text, "{value:?}");
        return;
    };
    let map = value.kind() == ValueKind::Map;
    text.push(if map { '{' } else { '[' });
    for (index, item) in items.enumerate() {
        text.push_str(if index > 0 { ", " } else { "" });
        match map {
            true => {
                write(text, &item, 0);
                text.push_str(": ");
                write(text, &value.get_item(&item).unwrap_or_default(), depth - 1);
            }
            false => write(text, &item, depth - 1),
        }
    }
    text.push(if map { '}' } else { ']' });
}
