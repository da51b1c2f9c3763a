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

/// Where machines come from.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderEntry {
    /// What sort of provider it is: `aws`, `openstack`, `metal`.
    #[serde(rename = "type")]
    pub sort: Option<Marked<String>>,
    /// For people.
    pub description: Option<Marked<String>>,
    /// What whoever makes its machines needs to know: a region, a zone.
    #[serde(default)]
    pub settings: Named<Node>,
}

/// A type of hardware.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HardwaretypeEntry {
    /// For people.
    pub description: Option<Marked<String>>,
    /// What a node of it costs, in whatever unit; a provider's mapping may have a `cost` of its own.
    pub cost: Option<Cost>,
    /// What each provider calls it: `{aws: {flavor: m1.small}}`. Nodes of a provider have types that it maps.
    #[serde(default)]
    pub providers: Named<Node>,
}

/// A type of image.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImagetypeEntry {
    /// For people.
    pub description: Option<Marked<String>>,
    /// What each provider calls it: `{aws: {image: ami-4287562a}}`. Nodes of a provider have types that it maps.
    #[serde(default)]
    pub providers: Named<Node>,
}

/// What a service needs of others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DependenciesEntry {
    /// Names that others may depend on instead of its own: `postgresql-17` provides `postgresql`.
    #[serde(default)]
    pub provides: Vec<Marked<String>>,
    /// Services that are never in one cluster with this one, by name or by what they provide.
    #[serde(default)]
    pub conflicts: Vec<Marked<String>>,
    /// What is installed before this one is.
    pub install: Option<StageDependenciesEntry>,
    /// What is started, on all nodes, before this one is initialized and started, and stopped after it.
    pub runtime: Option<StageDependenciesEntry>,
}

/// Dependencies at installation or at run time.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageDependenciesEntry {
    /// Services without which this one can't be in a cluster, by name or by what they provide.
    #[serde(default)]
    pub requires: Vec<Marked<String>>,
    /// Services that come first where the cluster has them.
    #[serde(default)]
    pub uses: Vec<Marked<String>>,
}

/// What is done with a service on each of its nodes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionsEntry {
    /// Puts it onto the node.
    pub install: Option<Action>,
    /// Writes its configuration; made again when that changes.
    pub configure: Option<Action>,
    /// Done once, before the first start.
    pub initialize: Option<Action>,
    /// Starts it.
    pub start: Option<Action>,
    /// Stops it.
    pub stop: Option<Action>,
    /// Takes it off the node.
    pub remove: Option<Action>,
}

/// One action.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionEntry {
    /// What is executed: a text goes to `/bin/sh -c`, a list is executed as it stands. `./x` beside the model travels.
    #[schemars(required)]
    pub run: Option<Run>,
    /// The time that it may take; default `5m`.
    pub timeout: Option<Duration>,
    /// Between asking it to end and killing it; default `10s`.
    pub grace: Option<Duration>,
    /// How often it is tried again after a failure; default 2.
    pub retries: Option<u32>,
    /// Before the first retry; doubles with each further one; default `1s`.
    pub retry_delay: Option<Duration>,
}

/// What clusters can be made of, and how their services are laid out.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateEntry {
    /// For people.
    pub description: Option<Marked<String>>,
    /// The template that this one continues: what it says holds where this one says nothing else.
    pub parent: Option<Marked<String>>,
    /// Partial templates that are part of this one; a later one wins over an earlier one.
    #[serde(default)]
    pub includes: Vec<Marked<String>>,
    /// It is for inclusion alone, no cluster is made of it.
    pub partial: Option<Marked<bool>>,
    /// Of a partial: what it says can't be changed by whoever includes it, nor by clusters.
    pub immutable: Option<Marked<bool>>,
    /// What clusters of it may have.
    pub compatibility: Option<CompatibilityEntry>,
    /// What clusters of it have that say nothing else.
    pub defaults: Option<DefaultsEntry>,
    /// The rules of its layouts.
    pub constraints: Option<ConstraintsEntry>,
    /// Which of several layouts is taken: `default` (as many nodes as possible with many services), `cheapest-hardware`,
    /// `fewest-images`, `spread`, `pack`, or a mix with weights: `{services: 2, hardware_cost: -1}`.
    pub preference: Option<Marked<PreferenceForm>>,
}

/// What counts how much.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightsEntry {
    /// For each service on a node; default 0.
    pub services: Option<i64>,
    /// For what its hardware costs; less than 0 makes cheap hardware better. Default 0.
    pub hardware_cost: Option<i64>,
}

/// What clusters may have; an empty list, or none, means anything.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompatibilityEntry {
    /// The services that they may have.
    #[serde(default)]
    pub services: Vec<Marked<String>>,
    /// The types of hardware that their nodes may have.
    #[serde(default)]
    pub hardwaretypes: Vec<Marked<String>>,
    /// The types of images that their nodes may have.
    #[serde(default)]
    pub imagetypes: Vec<Marked<String>>,
}

/// What clusters have that say nothing else.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DefaultsEntry {
    /// Their services.
    #[serde(default)]
    pub services: Vec<Marked<String>>,
    /// Where their machines come from.
    pub provider: Option<Marked<String>>,
    /// The type of hardware of all their nodes.
    pub hardwaretype: Option<Marked<String>>,
    /// The type of image of all their nodes.
    pub imagetype: Option<Marked<String>>,
    /// Values for templates: `cluster.config`. Texts in it may be templates and hold Coopr's macros.
    #[serde(default)]
    pub config: Named<Node>,
}

/// The rules of layouts.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstraintsEntry {
    /// Which services share nodes.
    pub layout: Option<LayoutEntry>,
    /// Where, and how often, single services are.
    #[serde(default)]
    pub services: Named<ServiceConstraintEntry>,
    /// How many nodes a cluster has.
    pub size: Option<Marked<SizeEntry>>,
}

/// Which services share nodes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayoutEntry {
    /// Each item is a list of services: where one of them is on a node, all of them are that the cluster has.
    #[serde(default)]
    pub mustcoexist: Vec<Marked<Vec<Marked<String>>>>,
    /// Each item is a list of services that are never all together on one node.
    #[serde(default)]
    pub cantcoexist: Vec<Marked<Vec<Marked<String>>>>,
}

/// Where, and how often, a service is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceConstraintEntry {
    /// The types of hardware that it may be on; none: any.
    #[serde(default)]
    pub hardwaretypes: Marked<Vec<Marked<String>>>,
    /// The types of images that it may be on; none: any.
    #[serde(default)]
    pub imagetypes: Marked<Vec<Marked<String>>>,
    /// On how many nodes it is.
    pub quantities: Option<QuantitiesEntry>,
}

/// On how many nodes a service is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuantitiesEntry {
    /// On so many at least.
    pub min: Option<Marked<u32>>,
    /// On so many at most.
    pub max: Option<Marked<u32>>,
    /// On an odd number of nodes.
    pub odd: Option<Marked<bool>>,
    /// On which share of the cluster's nodes: `{min: 0.1, max: 1/3}`.
    pub ratio: Option<RatioEntry>,
    /// On how many nodes others must be for it: `{zookeeper: 3}`.
    #[serde(default)]
    pub requires: Named<Marked<u32>>,
}

/// A share of the cluster's nodes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RatioEntry {
    /// So large at least.
    pub min: Option<Ratio>,
    /// So large at most.
    pub max: Option<Ratio>,
}

/// How many nodes a cluster has.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeEntry {
    /// So many at least; default 1.
    pub min: Option<Marked<u32>>,
    /// So many at most.
    pub max: Option<Marked<u32>>,
}
