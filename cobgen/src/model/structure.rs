//! The structural check: reports every value whose form differs from the schema.
//!
//! Walks the positioned values along the JSON Schema made from [`sections`](super::sections), so editors and `cobgen`
//! accept the same. It supports the keywords that this schema uses: `$ref`, `type`, `properties`,
//! `additionalProperties`, `required`, `dependentRequired`, `items`, `anyOf`/`oneOf`, `enum`/`const`, bounds; and six
//! keywords of its own: `x-not-supported-yet` (known, but refused with this advice), `x-what` (the name of the expected
//! value), `x-either` (any of these keys is needed), `x-words` (the words, or their beginnings, that a text may be),
//! `x-mode` (a number here was meant as a file mode) and `x-whole` (without a required key the mapping is useless).
//! Wrong values are marked [`Value::Invalid`].

use serde_json::Value as Json;

use super::Sources;
use super::file_mode;
use super::node::{Key, Map, Mark, Node, Value};
use super::sections::not_supported_yet;
use crate::diagnostic::{Diagnostic, Diagnostics};
use cob_types::suggest::{did_you_mean, did_you_mean_or_list, nearest};

/// Checks a value against a schema. `what` names the value in messages.
pub(crate) fn check(node: &mut Node, schema: &Json, what: &str, sources: &Sources, out: &mut Diagnostics) {
    Walk { root: schema, sources, out }.value(node, schema, what);
}

struct Walk<'a> {
    root: &'a Json,
    sources: &'a Sources,
    out: &'a mut Diagnostics,
}

impl<'a> Walk<'a> {
    fn report(&mut self, mark: Mark, fault: Diagnostic) {
        self.out.push(fault.at(self.sources.place(mark)));
    }

    /// Checks a value; a value that is wrong as a whole becomes invalid.
    fn value(&mut self, node: &mut Node, schema: &'a Json, what: &str) {
        let schema = self.resolve(schema);
        if node.value == Value::Invalid || schema.as_bool() == Some(true) {
            return;
        }
        let branches = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Json::as_array);
        match branches {
            Some(branches) => self.branches(node, schema, branches, what),
            None => self.plain(node, schema, what),
        }
    }

    /// Follows references.
    fn resolve(&self, mut schema: &'a Json) -> &'a Json {
        while let Some(name) = schema.get("$ref").and_then(Json::as_str).and_then(|r| r.strip_prefix("#/$defs/")) {
            match self.root.get("$defs").and_then(|defs| defs.get(name)) {
                Some(next) => schema = next,
                None => break,
            }
        }
        schema
    }

    /// Continues with the branch for this type of value.
    fn branches(&mut self, node: &mut Node, schema: &'a Json, branches: &'a [Json], what: &str) {
        let words = self.words(branches);
        if !words.is_empty() {
            return self.word(node, &words, what);
        }
        match branches.iter().map(|b| self.resolve(b)).find(|b| self.accepts(b, &node.value)) {
            Some(branch) => self.value(node, branch, what),
            None => self.wrong_type(node, schema, what),
        }
    }

    fn plain(&mut self, node: &mut Node, schema: &'a Json, what: &str) {
        if let Some(advice) = not_supported_yet(schema) {
            self.later(node.mark, what, advice);
            node.value = Value::Invalid;
            return;
        }
        let words = self.words(std::slice::from_ref(schema));
        if !words.is_empty() {
            return self.word(node, &words, what);
        }
        if !self.accepts(schema, &node.value) {
            return self.wrong_type(node, schema, what);
        }
        match &mut node.value {
            Value::Map(_) => self.map(node, schema, what),
            Value::List(items) => {
                let least = schema.get("minItems").and_then(Json::as_u64).unwrap_or(0);
                if (items.len() as u64) < least {
                    let fault = Diagnostic::error("empty-list", format!("{what} is an empty list"))
                        .help("name an entry, or remove the key");
                    self.report(node.mark, fault);
                    node.value = Value::Invalid;
                } else if let Some(schema) = schema.get("items") {
                    let what = format!("an item of {what}");
                    items.iter_mut().for_each(|item| self.value(item, schema, &what));
                }
            }
            Value::Int(i, _) => {
                let i = *i;
                self.bounds(node, i, schema, what);
            }
            Value::Text(text) => {
                let words: Vec<&str> = schema
                    .get("x-words")
                    .and_then(Json::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(Json::as_str)
                    .collect();
                let fits =
                    |w: &&str| if w.ends_with(' ') { text.starts_with(w) && text.len() > w.len() } else { text == w };
                if !words.is_empty() && !words.iter().any(fits) {
                    let listed: Vec<String> = words
                        .iter()
                        .map(|w| if w.ends_with(' ') { format!("`{w}NAME`") } else { format!("`{w}`") })
                        .collect();
                    let fault = Diagnostic::error("unknown-word", format!("{what} can't be {text:?}")).help(
                        did_you_mean(text, words.iter().copied())
                            .unwrap_or_else(|| format!("allowed are {}", listed.join(", "))),
                    );
                    self.report(node.mark, fault);
                    node.value = Value::Invalid;
                }
            }
            Value::Null | Value::Bool(_) | Value::Float(..) | Value::Invalid => {}
        }
    }

    fn map(&mut self, node: &mut Node, schema: &'a Json, what: &str) {
        let Value::Map(map) = &mut node.value else { return };
        let properties = schema.get("properties").and_then(Json::as_object);
        let others = schema.get("additionalProperties");
        let mut misspelt = Vec::new();
        for (key, value) in &mut map.entries {
            let shown = format!("`{}`", key.text);
            if let Some(schema) = properties.and_then(|p| p.get(&key.text)) {
                match not_supported_yet(schema) {
                    Some(advice) => {
                        self.later(key.mark, &shown, advice);
                        value.value = Value::Invalid;
                    }
                    None => self.value(value, schema, &shown),
                }
            } else if others.and_then(Json::as_bool) == Some(false) {
                let known = properties.into_iter().flatten().map(|(name, _)| name.as_str());
                let instead = schema.get("x-instead").and_then(|all| all.get(&key.text)).and_then(Json::as_str);
                misspelt.push(self.unknown_key(key, what, known.collect(), instead));
                value.value = Value::Invalid;
            } else if let Some(schema) = others {
                self.value(value, schema, &shown);
            }
        }
        let known = |key: &Key| properties.is_some_and(|p| p.contains_key(&key.text));
        if others.and_then(Json::as_bool) == Some(false) {
            map.entries.retain(|(key, _)| known(key));
        }
        let count = map.entries.len() as u64;
        let bound = |key| schema.get(key).and_then(Json::as_u64);
        let outside = misspelt.is_empty()
            && (bound("minProperties").is_some_and(|n| count < n) || bound("maxProperties").is_some_and(|n| count > n));
        let missing = missing(schema, map);
        let broken =
            outside || (count == 0 && !misspelt.is_empty()) || (!missing.is_empty() && schema.get("x-whole").is_some());
        // A misspelt key is not reported as missing.
        for name in missing.into_iter().filter(|n| !misspelt.iter().flatten().any(|m| m == n)) {
            let fault = Diagnostic::error("missing-key", format!("{what} lacks `{name}`")).maybe_help(
                properties
                    .and_then(|p| p.get(name))
                    .and_then(|s| self.description(s))
                    .map(|d| format!("`{name}`: {d}")),
            );
            self.report(node.mark, fault);
        }
        if outside {
            let names: Vec<String> = properties.into_iter().flatten().map(|(n, _)| format!("`{n}`")).collect();
            let fault = Diagnostic::error("one-key", format!("{what} needs a single key of {}", names.join(", ")));
            self.report(node.mark, fault);
        }
        if broken {
            node.value = Value::Invalid;
        }
    }

    /// Reports an unknown key; returns the key that was probably meant. `instead`: the advice for a key of other tools.
    fn unknown_key(&mut self, key: &Key, what: &str, known: Vec<&str>, instead: Option<&str>) -> Option<String> {
        let meant = nearest(&key.text, known.iter().copied()).map(str::to_owned);
        let place = if what == "the model" { String::new() } else { format!(" in {what}") };
        let fault = Diagnostic::error("unknown-key", format!("unknown key `{}`{place}", key.text))
            .maybe_help(instead.map(str::to_owned).or_else(|| did_you_mean_or_list(&key.text, known)));
        self.report(key.mark, fault);
        meant.filter(|_| instead.is_none())
    }

    fn later(&mut self, mark: Mark, what: &str, advice: &str) {
        let fault = Diagnostic::error("not-supported-yet", format!("{what} is not supported yet")).help(advice);
        self.report(mark, fault);
    }

    /// The words of an enumeration; empty if it is no enumeration.
    fn words(&self, branches: &'a [Json]) -> Vec<&'a str> {
        let mut words = Vec::new();
        for branch in branches.iter().map(|b| self.resolve(b)) {
            match (branch.get("const"), branch.get("enum"), branch.get("oneOf")) {
                (Some(word), _, _) => words.extend(word.as_str()),
                (None, Some(list), _) => words.extend(list.as_array().into_iter().flatten().filter_map(Json::as_str)),
                (None, None, Some(Json::Array(inner))) => words.extend(self.words(inner)),
                (None, None, _) if branch.get("type").and_then(Json::as_str) == Some("null") => {}
                (None, None, _) => return Vec::new(),
            }
        }
        words
    }

    fn word(&mut self, node: &mut Node, words: &[&str], what: &str) {
        if node.text().is_some_and(|t| words.contains(&t)) || node.value == Value::Null {
            return;
        }
        let listed = || format!("write {}", words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" or "));
        let help = node.text().and_then(|t| did_you_mean(t, words.iter().copied())).unwrap_or_else(listed);
        let fault = Diagnostic::error("unknown-word", format!("{what} can't be {}", node.value.describe())).help(help);
        self.report(node.mark, fault);
        node.value = Value::Invalid;
    }

    fn bounds(&mut self, node: &mut Node, i: i128, schema: &Json, what: &str) {
        let bound = |key| schema.get(key).and_then(Json::as_i64).map(i128::from);
        let widest = match schema.get("format").and_then(Json::as_str) {
            Some("uint32") => Some(i128::from(u32::MAX)),
            Some("uint16") => Some(i128::from(u16::MAX)),
            Some("uint64") => Some(i128::from(u64::MAX)),
            Some(_) | None => None,
        };
        let (least, most) = (bound("minimum"), bound("maximum").or(widest));
        let fault = match (least, most) {
            (Some(least), _) if i < least => format!("{what} is {i}; at least {least} is needed"),
            (_, Some(most)) if i > most => format!("{what} is {i}; at most {most} is allowed"),
            _ => return,
        };
        self.report(node.mark, Diagnostic::error("out-of-range", fault));
        node.value = Value::Invalid;
    }

    fn wrong_type(&mut self, node: &mut Node, schema: &'a Json, what: &str) {
        let expected = self.expected(schema);
        let help = match &node.value {
            Value::Null => Some("write a value after the `:`, or remove the key".to_owned()),
            Value::Int(number, written) if self.resolve(schema).get("x-mode").is_some() => {
                Some(file_mode::help_for(*number, written.text()))
            }
            Value::Bool(_) | Value::Int(..) | Value::Float(..)
                if self.takes(schema, "string") && schema.get("x-what").is_none() =>
            {
                node.scalar().map(|text| format!("for a text write quotes: \"{text}\""))
            }
            Value::Text(text) if self.takes(schema, "array") && text.len() <= 60 => {
                Some(format!("write a list: [{text}]"))
            }
            Value::Bool(_)
            | Value::Int(..)
            | Value::Float(..)
            | Value::Text(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Invalid => self.keys(schema).or_else(|| self.example(schema)),
        };
        let fault =
            Diagnostic::error("wrong-type", format!("{what} must be {expected}, but it is {}", node.value.describe()));
        self.report(node.mark, fault.maybe_help(help));
        node.value = Value::Invalid;
    }

    /// An example of a list or mapping whose keys are not fixed.
    fn example(&self, schema: &'a Json) -> Option<String> {
        let items = |s: &'a Json| self.resolve(s).get("items").is_some_and(|items| self.takes(items, "string"));
        let form = match (self.takes(schema, "array"), self.takes(schema, "object")) {
            (true, _) if items(schema) => "a list of names: [a, b], or [] for an empty list",
            (true, _) => "a list: [a, b], or [] for an empty list",
            (false, true) => "a mapping: {name: value}, or {} for an empty mapping",
            (false, false) => return None,
        };
        let about = self.description(schema).map(|d| format!(" ({d})")).unwrap_or_default();
        Some(format!("write {form}{about}"))
    }

    /// The keys of the expected mapping.
    fn keys(&self, schema: &'a Json) -> Option<String> {
        let schema = self.resolve(schema);
        if let Some(branches) = schema.get("anyOf").and_then(Json::as_array) {
            return branches.iter().find_map(|b| self.keys(b));
        }
        let keys: Vec<String> = schema.get("properties")?.as_object()?.keys().map(|k| format!("`{k}`")).collect();
        Some(format!("allowed keys are {}", keys.join(", ")))
    }

    /// Whether a value of this type can be valid.
    fn accepts(&self, schema: &'a Json, value: &Value) -> bool {
        match value {
            Value::Null => self.takes(schema, "null"),
            Value::Bool(_) => self.takes(schema, "boolean"),
            Value::Int(..) => self.takes(schema, "integer") || self.takes(schema, "number"),
            Value::Float(..) => self.takes(schema, "number"),
            Value::Text(_) => self.takes(schema, "string"),
            Value::List(_) => self.takes(schema, "array"),
            Value::Map(_) => self.takes(schema, "object"),
            Value::Invalid => true,
        }
    }

    fn takes(&self, schema: &'a Json, name: &str) -> bool {
        let schema = self.resolve(schema);
        if let Some(branches) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Json::as_array) {
            return branches.iter().any(|b| self.takes(b, name));
        }
        match schema.get("type") {
            Some(Json::String(t)) => t == name,
            Some(Json::Array(types)) => types.iter().any(|t| t.as_str() == Some(name)),
            Some(_) => false,
            None => schema.get("const").or_else(|| schema.get("enum")).is_none() || name == "string",
        }
    }

    /// The form that a schema requires, in words.
    fn expected(&self, schema: &'a Json) -> String {
        if let Some(what) = self.find_what(schema) {
            return what.to_owned();
        }
        let names = [
            ("string", "a text"),
            ("array", "a list"),
            ("object", "a mapping"),
            ("integer", "a whole number"),
            ("number", "a number"),
            ("boolean", "`true` or `false`"),
        ];
        let taken: Vec<&str> = names.iter().filter(|(t, _)| self.takes(schema, t)).map(|(_, words)| *words).collect();
        match taken.split_last() {
            None => "empty".to_owned(),
            Some((last, [])) => (*last).to_owned(),
            Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        }
    }

    fn find_what(&self, schema: &'a Json) -> Option<&'a str> {
        let schema = self.resolve(schema);
        let own = schema.get("x-what").and_then(Json::as_str);
        own.or_else(|| schema.get("anyOf")?.as_array()?.iter().find_map(|b| self.find_what(b)))
    }

    /// The first sentence of a schema's description.
    fn description(&self, schema: &'a Json) -> Option<String> {
        let text = schema.get("description").or_else(|| self.resolve(schema).get("description"))?.as_str()?;
        let text = text.replace('\n', " ");
        Some(text.split(". ").next()?.trim_end_matches('.').to_owned())
    }
}

/// The mandatory keys that a mapping lacks.
fn missing<'a>(schema: &'a Json, map: &Map) -> Vec<&'a str> {
    let keys = |list: Option<&'a Json>| list.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    // A key without a value counts as missing.
    let lacks = |name: &&str| map.get(name).is_none_or(|node| node.value == Value::Null);
    let mut missing: Vec<&str> = keys(schema.get("required")).filter(lacks).collect();
    if keys(schema.get("x-either")).all(|name| lacks(&name)) {
        missing.extend(keys(schema.get("x-either")).take(1));
    }
    for (present, needed) in schema.get("dependentRequired").and_then(Json::as_object).into_iter().flatten() {
        if !lacks(&present.as_str()) {
            missing.extend(keys(Some(needed)).filter(lacks));
        }
    }
    missing
}
