//! The JSON Schema of a model, made from its types.

use std::sync::LazyLock;

use serde_json::Value;

use super::sections::Sections;

/// The schema, for editors (`cobgen schema`) and for the structural check.
#[must_use]
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| cob_kinds::schema_of::<Sections>("COB data model"));
    &SCHEMA
}
