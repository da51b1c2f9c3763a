//! The entities in the files of a catalogue.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_hub_api::EntityKind;
use serde_json::Value;

use super::Listed;
use super::files::{Files, SHARED, is_model};

/// Entities, by kind and name.
pub(super) type Entities = BTreeMap<EntityKind, Arc<BTreeMap<String, Listed>>>;

/// All entities. Files that are no YAML, and sections that are no mappings, have none: `cobgen` reports these.
pub(super) fn of(files: &Files) -> Entities {
    let mut all: BTreeMap<EntityKind, BTreeMap<String, Listed>> = BTreeMap::new();
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
                let (file, is_shared) = (file.place.clone(), file.place.starts_with(SHARED));
                all.entry(kind).or_default().insert(name, Listed { definition, file, is_shared });
            }
        }
    }
    all.into_iter().map(|(kind, entities)| (kind, Arc::new(entities))).collect()
}
