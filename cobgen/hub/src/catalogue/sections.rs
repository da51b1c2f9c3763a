//! The entities in the files of a catalogue.

use std::collections::BTreeMap;

use cob_hub_api::EntityKind;
use serde_json::Value;

use super::files::{Files, is_model};

/// An entity in a file.
pub(super) struct Found {
    pub(super) definition: Value,
    /// The path of the file in the repository.
    pub(super) file: String,
}

/// All entities. Files that are no YAML, and sections that are no mappings, have none: `cobgen` reports these.
pub(super) fn of(files: &Files) -> BTreeMap<EntityKind, BTreeMap<String, Found>> {
    let mut all: BTreeMap<EntityKind, BTreeMap<String, Found>> = BTreeMap::new();
    for (path, file) in files.iter().filter(|(path, _)| is_model(path)) {
        let Ok(text) = std::str::from_utf8(&file.content) else { continue };
        let value: Option<Value> = match path.ends_with(".json") {
            true => serde_json::from_str(text).ok(),
            false => serde_saphyr::from_str(text).ok(),
        };
        let Some(Value::Object(sections)) = value else { continue };
        for (section, entities) in sections {
            let (Some(kind), Value::Object(entities)) = (EntityKind::of_section(&section), entities) else { continue };
            for (name, definition) in entities {
                all.entry(kind).or_default().insert(name, Found { definition, file: file.place.clone() });
            }
        }
    }
    all
}
