//! What may stand at a place, from the JSON Schema of models and of the contents of built-in kinds.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value as Json;

use crate::model;

/// A part of a schema, with the schema that its references lead into.
type Part = (&'static Json, &'static Json);

/// The schemas of contents, by kind.
static CONTENTS: LazyLock<BTreeMap<&str, Json>> =
    LazyLock::new(|| cob_kinds::ALL.iter().filter_map(|entry| Some((entry.kind.name, entry.schema()?))).collect());

/// The keys that the mapping at this place may have, with their explanations.
pub(super) fn keys(keys: &[String], kind: &Option<String>) -> Vec<(String, Option<String>)> {
    let mut found = BTreeMap::new();
    for (_, part) in reach(keys, kind) {
        for (key, of) in part["properties"].as_object().into_iter().flatten() {
            found.insert(key.clone(), of["description"].as_str().map(str::to_owned));
        }
    }
    found.into_iter().collect()
}

/// The words that the value at this place may be.
pub(super) fn values(keys: &[String], kind: &Option<String>) -> Vec<String> {
    if is_kind(keys) {
        return cob_kinds::ALL.iter().map(|entry| entry.kind.name.to_owned()).collect();
    }
    let mut found = Vec::new();
    for (_, part) in reach(keys, kind) {
        let lists = [&part["enum"], &part["x-words"]].into_iter().filter_map(Json::as_array).flatten();
        found.extend(lists.chain([&part["const"]]).filter_map(Json::as_str).map(str::to_owned));
        if part["type"] == "boolean" || part["type"].as_array().is_some_and(|types| types.contains(&"boolean".into())) {
            found.extend(["true".to_owned(), "false".to_owned()]);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The explanation of the key or value at this place.
pub(super) fn about(keys: &[String], kind: &Option<String>, value_of: Option<&str>, word: &str) -> Option<String> {
    if value_of.is_some() {
        let entry = cob_kinds::find(word).filter(|_| is_kind(keys))?;
        let states = entry.kind.states.join(", ");
        let about = CONTENTS.get(word).and_then(|schema| schema["description"].as_str()).unwrap_or_default();
        return Some(format!("{about}\n\nStates: {states}; preferred: {}.", entry.kind.preferred));
    }
    let described = |(_, part): Part| part["properties"][word]["description"].as_str();
    reach(keys, kind).into_iter().find_map(described).map(str::to_owned)
}

/// Whether the value here names a kind.
fn is_kind(keys: &[String]) -> bool {
    keys.last().is_some_and(|key| key == "kind")
}

/// The parts of the schema that describe the value below these keys.
fn reach(keys: &[String], kind: &Option<String>) -> Vec<Part> {
    let whole = model::schema();
    let mut parts = plain((whole, whole));
    for key in keys {
        let content = kind.as_ref().filter(|_| key == "content").and_then(|kind| CONTENTS.get(kind.as_str()));
        parts = match content {
            Some(content) => plain((content, content)),
            None => parts.into_iter().flat_map(|part| below(part, key)).collect(),
        };
    }
    parts
}

/// The parts for the value of a key, or of an item.
fn below((root, part): Part, key: &str) -> Vec<Part> {
    if key == "[]" {
        return part.get("items").map(|items| plain((root, items))).unwrap_or_default();
    }
    let named = part["properties"].get(key);
    let others = part.get("additionalProperties").filter(|of| of.is_object() && named.is_none());
    named.into_iter().chain(others).flat_map(|of| plain((root, of))).collect()
}

/// A part without references and alternatives.
fn plain(part: Part) -> Vec<Part> {
    let (mut open, mut found) = (vec![part], Vec::new());
    // Schemas refer to themselves; each part counts once.
    let mut seen: Vec<*const Json> = Vec::new();
    while let Some((root, part)) = open.pop() {
        if seen.contains(&std::ptr::from_ref(part)) {
            continue;
        }
        seen.push(part);
        if let Some(name) = part["$ref"].as_str().and_then(|to| to.strip_prefix("#/$defs/")) {
            open.push((root, &root["$defs"][name]));
        }
        for several in ["anyOf", "oneOf", "allOf"] {
            open.extend(part[several].as_array().into_iter().flatten().rev().map(|of| (root, of)));
        }
        found.push((root, part));
    }
    found
}
