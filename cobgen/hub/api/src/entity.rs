//! The catalogue: providers, types of hardware and images, services and templates.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The kinds of entities in the catalogue. Each is a section of the model with the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntityKind {
    /// A source of machines.
    Providers,
    /// Sizes of machines, with their names at each provider.
    HardwareTypes,
    /// Images of machines, with their names at each provider.
    ImageTypes,
    /// Software of nodes.
    Services,
    /// Clusters to be: services, rules and defaults.
    Templates,
}

impl EntityKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Providers, Self::HardwareTypes, Self::ImageTypes, Self::Services, Self::Templates];

    /// The section of the model.
    #[must_use]
    pub fn section(self) -> &'static str {
        match self {
            Self::Providers => "providers",
            Self::HardwareTypes => "hardwaretypes",
            Self::ImageTypes => "imagetypes",
            Self::Services => "services",
            Self::Templates => "templates",
        }
    }

    /// The kind of a section.
    #[must_use]
    pub fn of_section(section: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.section() == section)
    }
}

/// An entity of the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entity {
    /// Its kind.
    pub kind: EntityKind,
    /// Its name.
    pub name: String,
    /// The commit that holds this version.
    pub version: String,
    /// The author of this version.
    pub author: String,
    /// When this version was written, in milliseconds since 1970-01-01 UTC.
    pub written_ms: u64,
    /// The definition, as in a model.
    pub definition: Value,
}

/// The answer to a change of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EntityWritten {
    /// The commit with the change; the former commit if nothing differs.
    pub version: String,
    /// Whether something differs.
    pub changed: bool,
}

/// The form of a document with entities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExchangeForm {
    /// Sections of a model: `{"services": {"web": {…}}}`.
    #[default]
    Model,
    /// Coopr's export: `{"services": [{"name": "web", …}]}`.
    Coopr,
}

/// Sections of a model: definitions by kind and name.
pub type Definitions = BTreeMap<EntityKind, BTreeMap<String, Value>>;

/// The entities of a part of the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExportedEntities {
    /// The entities, in the form of the request.
    pub document: Value,
    /// What the form can't express, with its place in the sections of the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Fault>,
}

/// The answer to an import.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImportedEntities {
    /// The commit with all entities; the former commit if nothing differs.
    pub version: String,
    /// Whether something differs.
    pub changed: bool,
    /// The number of entities in the document.
    pub entities: usize,
    /// What a model can't express, with its place in the document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Fault>,
}

/// A fault of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// The file, line and column, if the fault has a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The fault.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub help: Vec<String>,
}
