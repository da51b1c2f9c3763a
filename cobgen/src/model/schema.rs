//! The JSON Schema of a model, made from its types.

use std::sync::LazyLock;

use serde_json::Value;

use super::sections::Sections;

/// The schema, for editors (`cobgen schema`) and for the structural check.
#[must_use]
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| of::<Sections>("COB data model"));
    &SCHEMA
}

/// The schema of any type in a model.
pub(crate) fn of<T: schemars::JsonSchema>(title: &str) -> Value {
    let mut schema = schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.to_value()
}
