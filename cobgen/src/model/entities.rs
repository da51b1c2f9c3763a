//! The sections that templates consist of: providers, types of hardware and images, dependencies and actions of
//! services, templates. Their structure is Coopr's.
//!
//! As in [`sections`](super::sections) every field may be absent, and these types also define the schema. Their meaning
//! is in [`catalog`](crate::catalog).

use schemars::JsonSchema;
use serde::Deserialize;

use super::forms::{Action, Cost, Duration, PreferenceForm, Ratio, Run};
use super::node::Node;
use super::read::{Marked, Named};

/// Sources of machines.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderEntry {
    /// The sort of provider: `aws`, `openstack`, `metal`.
    #[serde(rename = "type")]
    pub sort: Option<Marked<String>>,
    /// For people.
    pub description: Option<Marked<String>>,
    /// Settings for making machines: a region, a zone.
    pub settings: Named<Node>,
}

/// A type of hardware.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HardwaretypeEntry {
    /// For people.
    pub description: Option<Marked<String>>,
    /// The cost of a node, in any unit; a provider's mapping may override it.
    pub cost: Option<Cost>,
    /// Its name at each provider: `{aws: {flavor: m1.small}}`. Nodes of a provider have types that it maps.
    pub providers: Named<Node>,
}

/// A type of image.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImagetypeEntry {
    /// For people.
    pub description: Option<Marked<String>>,
    /// Its name at each provider: `{aws: {image: ami-4287562a}}`. Nodes of a provider have types that it maps.
    pub providers: Named<Node>,
}

/// The needs of a service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DependenciesEntry {
    /// Further names for dependencies: `postgresql-17` provides `postgresql`.
    pub provides: Vec<Marked<String>>,
    /// Services that are never in a cluster with this service, by name or provided name.
    pub conflicts: Vec<Marked<String>>,
    /// Services to install before this service.
    pub install: Option<StageDependenciesEntry>,
    /// Services that start on all nodes before this service is initialized and started, and stop after it.
    pub runtime: Option<StageDependenciesEntry>,
}

/// Dependencies at installation or at run time.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StageDependenciesEntry {
    /// Services that this service needs in its cluster, by name or provided name.
    pub requires: Vec<Marked<String>>,
    /// Services that come first if the cluster has them.
    pub uses: Vec<Marked<String>>,
}

/// What is done with a service on each of its nodes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActionsEntry {
    /// Installs it on the node.
    pub install: Option<Action>,
    /// Writes its configuration; repeated when that changes.
    pub configure: Option<Action>,
    /// Runs once, before the first start.
    pub initialize: Option<Action>,
    /// Starts it.
    pub start: Option<Action>,
    /// Stops it.
    pub stop: Option<Action>,
    /// Removes it from the node.
    pub remove: Option<Action>,
}

/// One action.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionEntry {
    /// The command: a text goes to `/bin/sh -c`, a list is executed directly. `./x` beside the model travels.
    #[schemars(required)]
    pub run: Option<Run>,
    /// Time limit; default `5m`.
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL; default `10s`.
    pub grace: Option<Duration>,
    /// Repetitions after a failure; default 2.
    pub retries: Option<u32>,
    /// Delay before the first retry, doubled for each further retry; default `1s`.
    pub retry_delay: Option<Duration>,
}

/// What clusters can be made of, and how their services are laid out.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TemplateEntry {
    /// For people.
    pub description: Option<Marked<String>>,
    /// The template to inherit from; this template overrides it.
    pub parent: Option<Marked<String>>,
    /// Partial templates that are part of this template; the later wins.
    pub includes: Vec<Marked<String>>,
    /// For inclusion only; no cluster uses it directly.
    pub partial: Option<Marked<bool>>,
    /// Of a partial: including templates and clusters cannot override it.
    pub immutable: Option<Marked<bool>>,
    /// Permitted parts of its clusters.
    pub compatibility: Option<CompatibilityEntry>,
    /// Defaults of its clusters.
    pub defaults: Option<DefaultsEntry>,
    /// The rules of its layouts.
    pub constraints: Option<ConstraintsEntry>,
    /// Choice among layouts: `default` (as many nodes as possible with many services), `cheapest-hardware`,
    /// `fewest-images`, `spread`, `pack`, or weights: `{services: 2, hardware_cost: -1}`.
    pub preference: Option<Marked<PreferenceForm>>,
}

/// What counts how much.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightsEntry {
    /// Weight of each service on a node; default 0.
    pub services: Option<i64>,
    /// Weight of the hardware's cost; below 0 prefers cheap hardware. Default 0.
    pub hardware_cost: Option<i64>,
}

/// What clusters may have; an empty list, or none, means anything.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompatibilityEntry {
    /// Permitted services.
    pub services: Vec<Marked<String>>,
    /// Permitted hardware types.
    pub hardwaretypes: Vec<Marked<String>>,
    /// Permitted image types.
    pub imagetypes: Vec<Marked<String>>,
}

/// What clusters have that say nothing else.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DefaultsEntry {
    /// Their services.
    pub services: Vec<Marked<String>>,
    /// The source of the machines.
    pub provider: Option<Marked<String>>,
    /// The hardware type of all nodes.
    pub hardwaretype: Option<Marked<String>>,
    /// The image type of all nodes.
    pub imagetype: Option<Marked<String>>,
    /// Values for templates: `cluster.config`. Texts may be templates with Coopr's macros.
    pub config: Named<Node>,
}

/// The rules of layouts.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConstraintsEntry {
    /// Rules for services on the same node.
    pub layout: Option<LayoutEntry>,
    /// Rules for single services.
    pub services: Named<ServiceConstraintEntry>,
    /// The number of nodes of a cluster.
    pub size: Option<Marked<SizeEntry>>,
}

/// Rules for services on the same node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LayoutEntry {
    /// Lists of services: a node with any of them has all that the cluster has.
    pub mustcoexist: Vec<Marked<Vec<Marked<String>>>>,
    /// Lists of services that are never all on the same node.
    pub cantcoexist: Vec<Marked<Vec<Marked<String>>>>,
}

/// Where, and how often, a service is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceConstraintEntry {
    /// Permitted hardware types; default: any.
    pub hardwaretypes: Marked<Vec<Marked<String>>>,
    /// Permitted image types; default: any.
    pub imagetypes: Marked<Vec<Marked<String>>>,
    /// The number of nodes with the service.
    pub quantities: Option<QuantitiesEntry>,
}

/// On how many nodes a service is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuantitiesEntry {
    /// The minimum.
    pub min: Option<Marked<u32>>,
    /// The maximum.
    pub max: Option<Marked<u32>>,
    /// An odd number.
    pub odd: Option<Marked<bool>>,
    /// Share of the cluster's nodes: `{min: 0.1, max: 1/3}`.
    pub ratio: Option<RatioEntry>,
    /// Minimum number of nodes of other services: `{zookeeper: 3}`.
    pub requires: Named<Marked<u32>>,
}

/// A share of the cluster's nodes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RatioEntry {
    /// The minimum.
    pub min: Option<Ratio>,
    /// The maximum.
    pub max: Option<Ratio>,
}

/// The number of nodes of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SizeEntry {
    /// The minimum; default 1.
    pub min: Option<Marked<u32>>,
    /// The maximum.
    pub max: Option<Marked<u32>>,
}
