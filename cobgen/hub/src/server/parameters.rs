//! The parameters of paths and queries.

use cob_hub_api::{EntityKind, ExchangeForm, Name};
use schemars::JsonSchema;
use serde::Deserialize;

/// A section of the catalogue.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OfSection {
    /// The section of the catalogue.
    pub(super) section: EntityKind,
}

/// An entity of the catalogue.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OfEntity {
    /// The section of the catalogue.
    pub(super) section: EntityKind,
    /// The name of the entity.
    #[schemars(with = "cob_permissions::Name")]
    pub(super) name: String,
}

/// A file of the catalogue.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OfFile {
    /// The path of the file in the catalogue, with its `/`.
    pub(super) path: String,
}

/// A cluster.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OfCluster {
    /// The name of the cluster.
    pub(super) name: Name,
}

/// How an operation is ordered.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OrderOf {
    /// `base` of the plan: the order is refused if the cluster has changed since.
    pub(super) base: Option<String>,
    /// The priority of the job: -20 (the most important) to 19.
    #[serde(default)]
    #[schemars(range(min = -20, max = 19))]
    pub(super) priority: i8,
}

/// How a creation is ordered.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Rank {
    /// The priority of the job: -20 (the most important) to 19.
    #[serde(default)]
    #[schemars(range(min = -20, max = 19))]
    pub(super) priority: i8,
}

/// A log-in at a provider of identities.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OfLogIn {
    /// The name of the log-in.
    pub(super) log_in: Name,
}

/// A rule.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OfRule {
    /// The name of the rule.
    pub(super) name: Name,
}

/// A job.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OfJob {
    /// The number of the job.
    #[schemars(range(max = u64::MAX))]
    pub(super) id: u64,
}

/// A token.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OfToken {
    /// The id of the token: the beginning of its hash.
    pub(super) id: String,
}

/// A version of an entity.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Version {
    /// The commit of the version; by default the newest.
    pub(super) version: Option<String>,
}

/// The part of the catalogue.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Where {
    /// Whether the part that all tenants share is meant, and not the tenant's part.
    #[serde(default)]
    pub(super) shared: bool,
}

/// The part of the catalogue, and the form of a document.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Exchange {
    /// Whether the part that all tenants share is meant, and not the tenant's part.
    #[serde(default)]
    pub(super) shared: bool,
    /// The form of the document.
    #[serde(default)]
    pub(super) form: ExchangeForm,
}

/// A part of a log.
#[derive(Deserialize, JsonSchema)]
pub(super) struct From {
    /// The place of the part in the log, in bytes: `next` of the part before.
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub(super) from: u64,
}

/// How to cancel.
#[derive(Deserialize, JsonSchema)]
pub(super) struct How {
    /// Whether the job's programs are killed at once.
    #[serde(default)]
    pub(super) kill: bool,
}
