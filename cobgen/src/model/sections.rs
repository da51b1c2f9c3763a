//! The sections of a model: the single source of truth for its structure.
//!
//! The JSON Schema is made from these types (editors show their comments), the structural check uses that schema, and
//! the values are read into these types. Every field may be absent here, even if the schema requires it: its absence is
//! already reported, and the rest of the model is still read for further faults. Values with several forms are in
//! [`forms`](super::forms).

use schemars::JsonSchema;
use serde::Deserialize;

use super::entities::{
    ActionsEntry, DependenciesEntry, HardwaretypeEntry, ImagetypeEntry, ProviderEntry, TemplateEntry,
};
use super::forms::{Duration, HostLabel, KeySet, NodeSet, Nodes, Placed, Run, Target, WindowSet};
use super::node::Node;
use super::read::{Marked, Maybe, Named};

/// Marks a designed feature that is not built yet; the text gives a plan or an alternative.
const LATER: &str = "x-not-supported-yet";

/// A data model: hosts, what kinds of things there are, and what is to be on which host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("patternProperties" = {"^x-": {}}))]
pub struct Sections {
    /// Protection of links. `identities` (default): keys and signed generations. `loopback-only`: neither; every
    /// address must be a loopback address.
    pub security: Option<Marked<Security>>,
    /// The hosts that exist.
    pub hosts: Named<HostEntry>,
    /// Facts of hosts by name, as `cobctl facts` prints them; in templates `facts` and `host.facts`.
    pub facts: Named<Node>,
    /// Invalid keys of hosts, operators or publishers, `ed25519:…`; their connections are closed.
    pub revoked: Vec<Marked<String>>,
    /// Persons with the right to give orders over the network.
    pub operators: Named<OperatorEntry>,
    /// User-defined kinds.
    pub kinds: Named<KindEntry>,
    /// Change objects written by hand, by their id `HOST/NAME`.
    pub cobs: Named<CobEntry>,
    /// Services: the change objects of each node that has the service.
    pub services: Named<ServiceEntry>,
    /// Groups of hosts with their services.
    pub clusters: Named<ClusterEntry>,
    /// Disruption budgets: limits on how many members of a group are disturbed at a time.
    pub budgets: Named<BudgetEntry>,
    /// Failure policy and guard of a switch to a generation of this model; an order can override both.
    pub switch: Option<SwitchEntry>,
    /// Maintenance windows of all hosts: switches start only within windows. The nearest wins: all < cluster < host.
    pub maintenance: Option<MaintenanceEntry>,
    /// Times at which hosts check, or switch, by themselves. The nearest wins: all < cluster < host.
    pub schedule: Option<ScheduleEntry>,
    /// Variables for templates; the nearest wins: all < label < service < cluster < host.
    pub variables: VariablesEntry,
    /// Sources of machines.
    pub providers: Named<ProviderEntry>,
    /// Types of hardware.
    pub hardwaretypes: Named<HardwaretypeEntry>,
    /// Types of images.
    pub imagetypes: Named<ImagetypeEntry>,
    /// Templates of clusters.
    pub templates: Named<TemplateEntry>,
    /// Secrets by name, with the sources of their values; in templates `secret('NAME')`.
    pub secrets: Named<SecretEntry>,
}

/// How links between hosts are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Security {
    /// Every host has a key, every link proves it, every generation is signed.
    Identities,
    /// No keys, no signatures; every address is a loopback address.
    LoopbackOnly,
}

/// How hosts behave in a switch.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchEntry {
    /// When it fails: `hold` (default): it stops where it is and tells who waits for what. `rollback`: all hosts
    /// return to the generation before.
    pub on_failure: Option<OnFailureEntry>,
    /// A host that does not reach the hosts that it has links with, so long after it has activated the generation,
    /// goes back by itself: `60s`. Default: no guard.
    pub guard: Option<Duration>,
}

/// When hosts may be switched.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceEntry {
    /// A window or a list of windows: `Sat 02:00-04:00`, `Mon-Fri 22:00-02:00`, `Sat,Sun 00:00-24:00`, `daily 01:00-03:00 +02:00`. An
    /// empty list: any time.
    #[schemars(required)]
    pub window: Option<WindowSet>,
    /// The default offset from UTC: `UTC` (default) or `+02:00`. COB knows no daylight saving time.
    pub zone: Option<Marked<String>>,
}

/// Times at which hosts act by themselves, in the form of cron, in UTC.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleEntry {
    /// Check all change objects: `0 3 * * *`. Each host adds a constant delay of up to five minutes.
    pub check: Option<Marked<String>>,
    /// Switch to the newest published generation: `0 2 * * 6`, within the maintenance windows.
    pub switch: Option<Marked<String>>,
}

/// What happens when a switch fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailureEntry {
    /// It stops where it is.
    Hold,
    /// All hosts return to the generation before.
    Rollback,
}

/// How many of a group may be disturbed at a time.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetEntry {
    /// How many members COB may move away from their preferred state at a time.
    #[schemars(required, range(min = 1))]
    pub at_most: Option<u32>,
    /// The host that keeps its tokens; default: the host of the first member by id. While it is away, no further member
    /// is disturbed.
    pub host: Option<Marked<String>>,
}

/// A person with the right to give orders over the network.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorEntry {
    /// The operator's role; each role includes the earlier roles.
    #[schemars(required)]
    pub role: Option<RoleEntry>,
    /// The public key that identifies the operator; two during a replacement.
    pub key: Option<KeySet>,
    /// SHA-256 of the token that identifies the operator, in hexadecimal digits.
    pub token_sha256: Option<Marked<String>>,
}

/// What an operator may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoleEntry {
    /// See status, history, output and explanations.
    Look,
    /// Pause, resume, retry, prepare, and switch to signed generations.
    Operate,
    /// Fence hosts and do whatever else there is.
    Administer,
}

/// A host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostEntry {
    /// The daemon's address, `tcp://IP:PORT`; without it the host has no links.
    pub address: Option<Marked<String>>,
    /// Labels to choose hosts by: `role: app` is chosen as `{label: role=app}`.
    pub labels: Named<HostLabel>,
    /// Variables of this host, in templates `host.vars.NAME` and `NAME`.
    pub vars: Named<Node>,
    /// Its hardware type.
    pub hardwaretype: Option<Marked<String>>,
    /// Its image type.
    pub imagetype: Option<Marked<String>>,
    /// Mode of change objects without their own: `manage` (default) or `observe`.
    pub mode: Option<Marked<Mode>>,
    /// Its public key, `ed25519:…`; two during a replacement. Default: the enrolled key.
    pub key: Option<KeySet>,
    /// The maintenance windows of the host, instead of the windows of its clusters and of all hosts.
    pub maintenance: Option<MaintenanceEntry>,
    /// Times at which the host checks, or switches, by itself.
    pub schedule: Option<ScheduleEntry>,
}

/// A kind: what a change object is, its states and the moves between them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KindEntry {
    /// All states, without `unknown`, which every change object has.
    #[schemars(required)]
    pub states: Option<Vec<Marked<String>>>,
    /// The preferred state, the goal without requests; the on state of the short words.
    #[schemars(required)]
    pub preferred: Option<Marked<String>>,
    /// The pre-remove state, required before removal; the off state of the short words.
    #[schemars(required)]
    pub pre_remove: Option<Marked<String>>,
    /// Order of states if two are requested: the first wins. Holds every state once. Default: pre-remove state,
    /// preferred state, then as in `states`.
    pub priority: Option<Marked<Vec<Marked<String>>>>,
    /// Finds the present state.
    #[serde(default)]
    pub check: Maybe<Marked<CheckEntry>>,
    /// The transitions, in the order that breaks ties between equally short routes.
    #[schemars(required)]
    pub transitions: Option<Vec<Marked<TransitionEntry>>>,
    /// What runs the transitions. `command` (default): the commands of the kind. `noop`: no action, every transition
    /// succeeds at once.
    pub backend: Option<BackendEntry>,
    /// Time limit of a transition without its own; default `5m`.
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL; default `10s`.
    pub grace: Option<Duration>,
    /// Repetitions of a failed transition; default 2.
    pub retries: Option<u32>,
    /// Delay before the first retry, doubled for each further retry; default `1s`.
    pub retry_delay: Option<Duration>,
    /// The state after a failed transition; default: `unknown`, then a check.
    pub failure: Option<Marked<String>>,
    /// Further files beside the model that travel with the kind: `./lib.sh`.
    #[serde(default)]
    pub files: Vec<Marked<String>>,
}

/// What carries out the moves of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BackendEntry {
    /// The commands of `check` and `transitions`.
    Command,
    /// Nothing is done, and every move succeeds at once: for gates and measurements.
    Noop,
}

/// How a state is found out.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckEntry {
    /// Prints the state's name and never changes the host. After a failure or without a known name the state is
    /// `unknown`.
    #[schemars(required)]
    pub run: Option<Run>,
    /// Time limit; default `30s`.
    pub timeout: Option<Duration>,
    /// Interval of checks for drift while idle; default: no periodic check.
    pub interval: Option<Duration>,
}

/// A move from one state to another.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransitionEntry {
    /// The state before.
    #[schemars(required)]
    pub from: Option<Marked<String>>,
    /// The state after.
    #[schemars(required)]
    pub to: Option<Marked<String>>,
    /// The command: a text goes to `/bin/sh -c`, a list is executed directly. `./x` beside the model travels with the
    /// kind.
    #[serde(default)]
    pub run: Maybe<Run>,
    /// Time limit.
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Option<Duration>,
    /// Repetitions after a failure.
    pub retries: Option<u32>,
    /// Delay before the first retry, doubled for each further retry.
    pub retry_delay: Option<Duration>,
    /// The state after a failure; default: `unknown`, then a check.
    pub failure: Option<Marked<String>>,
    /// Undoes the transition, given its saved result.
    pub revert: Option<Run>,
    /// The transition cannot be undone.
    pub irreversible: Option<bool>,
}

/// A change object, written by hand or as part of a service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CobEntry {
    /// A built-in kind or an entry of `kinds`.
    #[schemars(required)]
    pub kind: Option<Marked<String>>,
    /// The preferred state; default: the kind's.
    pub preferred: Option<Marked<String>>,
    /// Input of the kind. Texts may be templates.
    pub content: Option<Node>,
    /// Further files beside the model that travel with it: `./app.conf`.
    #[serde(default)]
    pub files: Vec<Marked<String>>,
    /// Transition dependencies: `(A, from, to) <- needs`.
    #[serde(default)]
    pub transitions: Vec<Marked<TransitionNeedsEntry>>,
    /// Lock dependencies: `(A, state) <- needs`.
    #[serde(default)]
    pub locks: Vec<Marked<LockNeedsEntry>>,
    /// Starts and restarts only with these on; these stop and restart only with this off; a grant of on needs grants of
    /// these.
    #[serde(default)]
    pub requires: Vec<Target>,
    /// Starts only while these are on.
    #[serde(default)]
    pub after: Vec<Target>,
    /// `after`, if these exist.
    #[serde(default)]
    pub wants: Vec<Target>,
    /// `after`; outdated when these change.
    #[serde(default)]
    pub restarts_on: Vec<Target>,
    /// Like `restarts_on`; the kind reloads if its content permits.
    #[serde(default)]
    pub reloads_on: Vec<Target>,
    /// Is on only while these are off.
    #[serde(default)]
    pub excludes: Vec<Target>,
    /// Takes a token of this budget before it leaves its preferred state (or `outdated`), and keeps it until it is
    /// back.
    pub budget: Option<Marked<String>>,
    /// In a service: on `each` node (default), the `first`, a host by name, or hosts with `{label: ...}`.
    pub place: Option<Marked<Placed>>,
    /// Reaction to removal. `undo` (default): go to the pre-remove state first. `keep`: stay as it is, with its
    /// results.
    pub on_remove: Option<Marked<OnRemove>>,
    /// `manage`: COB brings it to its preferred state. `observe`: COB checks and shows it, and runs no transition.
    /// Default: the host's.
    pub mode: Option<Marked<Mode>>,
    /// In a service: a change object for each item, `{d: host.vars.disks}`. The value is a list or an expression; each
    /// name must differ: `"disk-{{ d }}"`.
    #[serde(rename = "for", default)]
    pub each: Named<Node>,
    /// In a service: an expression; the change object exists only where it is true.
    pub when: Option<Marked<String>>,
}

/// Whether change objects are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// They are brought to their preferred states and kept there.
    Manage,
    /// They are checked and shown, and no transition ever runs.
    Observe,
}

/// Whether a service or a cluster runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceState {
    /// It runs.
    Running,
    /// It is stopped.
    Stopped,
}

/// What is done with a change object that leaves the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnRemove {
    /// It goes to its pre-remove state.
    Undo,
    /// It stays as it is.
    Keep,
}

/// `(A, from, to) <- needs`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransitionNeedsEntry {
    /// The state before.
    #[schemars(required)]
    pub from: Option<Marked<String>>,
    /// The state after.
    #[schemars(required)]
    pub to: Option<Marked<String>>,
    /// The locks during the transition: `HOST/NAME@state`, several states as `@up|degraded`.
    #[schemars(required)]
    pub needs: Option<Marked<Vec<Marked<String>>>>,
}

/// `(A, state) <- needs`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LockNeedsEntry {
    /// The granted state.
    #[schemars(required)]
    pub state: Option<Marked<String>>,
    /// The locks for the grant: `HOST/NAME@state`, several states as `@up|degraded`.
    #[schemars(required)]
    pub needs: Option<Marked<Vec<Marked<String>>>>,
}

/// What each node with this service gets.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceEntry {
    /// For people.
    pub description: Option<Marked<String>>,
    /// Its change objects by name: `server` of service `db` on host n1 is `n1/db/server`.
    pub cobs: Named<CobEntry>,
    /// The change objects that other services mean by its name; default: without a dependent in the service.
    pub ready: Option<Vec<Marked<String>>>,
    /// Services that must be on for this service. Applies to the change objects in `ready` and those that gates among
    /// them require.
    pub requires: Vec<Target>,
    /// Services that are on before this service starts.
    pub after: Vec<Target>,
    /// `after`, if they exist.
    pub wants: Vec<Target>,
    /// Services that are never in a cluster with this service.
    pub conflicts: Vec<Marked<String>>,
    /// Names that it provides; needs at installation and at run time.
    pub dependencies: Option<DependenciesEntry>,
    /// The actions on each of its nodes; instead of `cobs`.
    pub actions: Option<Marked<ActionsEntry>>,
    /// With `actions`: the keys of the cluster's `config` that it uses; a change configures it again. Default: all.
    pub config: Option<Vec<Marked<String>>>,
    /// With `actions`: takes a token of this budget on each node, like a change object.
    pub budget: Option<Marked<String>>,
    /// `running` (default), or `stopped`, together with its dependents, until the model changes.
    pub desired: Option<Marked<ServiceState>>,
}

/// Hosts that work together.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("x-either" = ["services", "template"], "dependentRequired" = {"template": ["nodes"]}))]
pub struct ClusterEntry {
    /// Services placed by hand, `{db: [n1], app: {label: role=app}}`, or a list: on all `nodes`, or by the rules of the
    /// template (default: its services).
    pub services: Option<Nodes>,
    /// Its hosts, by name or label; or, with a template, the number of nodes.
    pub nodes: Maybe<Marked<NodeSet>>,
    /// Values for templates: `cluster.config`; they override the template's values. Texts may be templates with Coopr's
    /// macros.
    pub config: Option<Node>,
    /// The person or group that it belongs to: `cluster.owner` in templates, and `%cluster.owner%` of Coopr's macros.
    pub owner: Option<Marked<String>>,
    /// The daemons' address, for a number of nodes without hosts in the model: a template with `index`,
    /// `"tcp://10.0.0.{{ index }}:7077"`.
    pub address: Option<Marked<String>>,
    /// The template that places its services.
    pub template: Option<Marked<String>>,
    /// The source of its machines; default: the template's.
    pub provider: Option<Marked<String>>,
    /// The hardware type of all its nodes; default: the template's, else by the rules.
    pub hardwaretype: Option<Marked<String>>,
    /// The image type of all its nodes; default: the template's, else by the rules.
    pub imagetype: Option<Marked<String>>,
    /// `running` (default), or `stopped`: its services, together with their dependents, until the model changes.
    pub desired: Option<Marked<ServiceState>>,
    /// Maintenance windows of its hosts, instead of the windows of all hosts.
    pub maintenance: Option<MaintenanceEntry>,
    /// Times at which its hosts check, or switch, by themselves.
    pub schedule: Option<ScheduleEntry>,
}

/// Where a secret's value is to be found: exactly one of these. It is looked for when a generation is
/// made in which the secret is used.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SecretEntry {
    /// A file, relative to this file.
    pub file: Option<Marked<String>>,
    /// A variable of cobgen's environment.
    pub env: Option<Marked<String>>,
    /// The value, encrypted for the publisher: the text of an armoured age file.
    pub age: Option<Marked<String>>,
    /// Output of this command: a program and its arguments, without a shell.
    #[schemars(length(min = 1))]
    pub command: Option<Marked<Vec<Marked<String>>>>,
}

/// Variables; the nearest wins: all < label < service < cluster < host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VariablesEntry {
    /// For all change objects.
    pub all: Named<Node>,
    /// For hosts with a label: `{role=app: {port: 80}}`; the alphabetically later label wins.
    pub label: Named<Named<Node>>,
    /// For the change objects of a service.
    pub service: Named<Named<Node>>,
    /// For the change objects of a cluster.
    pub cluster: Named<Named<Node>>,
    /// For a host; its own `vars` win over these.
    pub host: Named<Named<Node>>,
}

/// The text for an unsupported feature in a schema.
#[must_use]
pub(super) fn not_supported_yet(schema: &serde_json::Value) -> Option<&str> {
    schema.get(LATER)?.as_str()
}
