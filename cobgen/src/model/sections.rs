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
use super::forms::{Duration, HostLabel, KeySet, NodeSet, Nodes, Placed, Run, Target};
use super::node::Node;
use super::read::{Marked, Maybe, Named};

/// Marks a designed feature that is not built yet; the text gives a plan or an alternative.
const LATER: &str = "x-not-supported-yet";

/// A data model: hosts, what kinds of things there are, and what is to be on which host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("patternProperties" = {"^x-": {}}))]
pub struct Sections {
    /// How links between hosts are protected. `identities` (default): every host has a key and every
    /// generation is signed. `loopback-only`: no keys and no signatures, accepted only when every
    /// address is a loopback address.
    pub security: Option<Marked<Security>>,
    /// The hosts that exist.
    #[serde(default)]
    pub hosts: Named<HostEntry>,
    /// What hosts are, by their names, as `cobctl facts` prints it; templates know it as `facts` and `host.facts`.
    #[serde(default)]
    pub facts: Named<Node>,
    /// Keys that are no longer to be believed, of whomever: `ed25519:…`. Hosts with them are cut.
    #[serde(default)]
    pub revoked: Vec<Marked<String>>,
    /// Who may give orders from afar.
    #[serde(default)]
    pub operators: Named<OperatorEntry>,
    /// Kinds that the user defines.
    #[serde(default)]
    pub kinds: Named<KindEntry>,
    /// Change objects written by hand, by their id `HOST/NAME`.
    #[serde(default)]
    pub cobs: Named<CobEntry>,
    /// What each node with a service gets.
    #[serde(default)]
    pub services: Named<ServiceEntry>,
    /// Which hosts work together, and with which services.
    #[serde(default)]
    pub clusters: Named<ClusterEntry>,
    /// Disruption budgets: how many of a group may be disturbed at a time.
    #[serde(default)]
    pub budgets: Named<BudgetEntry>,
    /// How hosts behave in a switch to a generation of this model, unless whoever orders it says otherwise.
    pub switch: Option<SwitchEntry>,
    /// Variables for templates; the nearest wins: all < label < service < cluster < host.
    #[serde(default)]
    pub variables: VariablesEntry,
    /// Where machines come from.
    #[serde(default)]
    pub providers: Named<ProviderEntry>,
    /// Types of hardware.
    #[serde(default)]
    pub hardwaretypes: Named<HardwaretypeEntry>,
    /// Types of images.
    #[serde(default)]
    pub imagetypes: Named<ImagetypeEntry>,
    /// Templates of clusters.
    #[serde(default)]
    pub templates: Named<TemplateEntry>,
    /// Secrets by name, each only where its value is to be found; templates use them as `secret('NAME')`.
    #[serde(default)]
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
#[serde(deny_unknown_fields)]
pub struct SwitchEntry {
    /// When it fails: `hold` (default): it stops where it is and tells who waits for what. `rollback`: all hosts
    /// return to the generation before.
    pub on_failure: Option<OnFailureEntry>,
    /// A host that does not reach the hosts that it has links with, so long after it has activated the generation,
    /// goes back by itself: `60s`. Default: no guard.
    pub guard: Option<Duration>,
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
    /// So many of those that name it in `budget` are away from their preferred state by our doing at a time.
    #[schemars(required, range(min = 1))]
    pub at_most: Option<u32>,
    /// The host that keeps its tokens; default: the host of its first member, by id. While that host is
    /// away nobody new is disturbed.
    pub host: Option<Marked<String>>,
}

/// Somebody who may give orders from afar.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorEntry {
    /// What the operator may do; each role includes those before it.
    #[schemars(required)]
    pub role: Option<RoleEntry>,
    /// The public key that proves who it is; two while the old one is replaced.
    pub key: Option<KeySet>,
    /// SHA-256 of the token that proves who it is, in hexadecimal digits.
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
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    /// Where its daemon listens: `tcp://IP:PORT`. Without one it has no link to others.
    pub address: Option<Marked<String>>,
    /// Labels to choose hosts by: `role: app` is chosen as `{label: role=app}`.
    #[serde(default)]
    pub labels: Named<HostLabel>,
    /// Variables of this host alone, in templates `host.vars.NAME` and `NAME`.
    #[serde(default)]
    pub vars: Named<Node>,
    /// Its hardware type.
    pub hardwaretype: Option<Marked<String>>,
    /// Its image type.
    pub imagetype: Option<Marked<String>>,
    /// Whether its change objects are moved, where they say nothing themselves: `manage` (default) or `observe`.
    pub mode: Option<Marked<Mode>>,
    /// Its public key, `ed25519:…`; two while the old one is replaced. Default: what it has enrolled with.
    pub key: Option<KeySet>,
}

/// A kind: what a change object is, its states and the moves between them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KindEntry {
    /// All states, without `unknown`, which every change object has.
    #[schemars(required)]
    pub states: Option<Vec<Marked<String>>>,
    /// Where it goes when nobody asks for anything else; the on state of the short words.
    #[schemars(required)]
    pub preferred: Option<Marked<String>>,
    /// Where it must be to leave the model; the off state of the short words.
    #[schemars(required)]
    pub pre_remove: Option<Marked<String>>,
    /// Which state wins when two are asked for: first wins. Holds every state once. Default: the
    /// pre-remove state, the preferred state, then the others in the order of `states`.
    pub priority: Option<Marked<Vec<Marked<String>>>>,
    /// How the state is found out.
    #[serde(default)]
    pub check: Maybe<Marked<CheckEntry>>,
    /// The moves that exist, in the order that breaks ties between equally short routes.
    #[schemars(required)]
    pub transitions: Option<Vec<Marked<TransitionEntry>>>,
    /// What carries out the moves. `command` (default): the commands given here. `noop`: nothing is
    /// done, every move succeeds at once.
    pub backend: Option<BackendEntry>,
    /// The time that a transition may take, where it says nothing itself; default `5m`.
    pub timeout: Option<Duration>,
    /// Between asking an action to end and killing it; default `10s`.
    pub grace: Option<Duration>,
    /// How often a failed transition is tried again; default 2.
    pub retries: Option<u32>,
    /// Before the first retry; doubles with each further one; default `1s`.
    pub retry_delay: Option<Duration>,
    /// The state after a failed transition; without one it is `unknown` and is checked.
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
    /// Prints the state's name and changes nothing, ever. When it fails or prints no state's name,
    /// the state is `unknown`.
    #[schemars(required)]
    pub run: Option<Run>,
    /// The time that it may take; default `30s`.
    pub timeout: Option<Duration>,
    /// How often a settled change object is checked for drift; without one, never by itself.
    pub interval: Option<Duration>,
}

/// A move from one state to another.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransitionEntry {
    /// The state that is left.
    #[schemars(required)]
    pub from: Option<Marked<String>>,
    /// The state that is entered.
    #[schemars(required)]
    pub to: Option<Marked<String>>,
    /// What makes the move: a text goes to `/bin/sh -c`, a list is executed as it stands. `./x`
    /// beside the model travels with the kind.
    #[serde(default)]
    pub run: Maybe<Run>,
    /// The time that it may take.
    pub timeout: Option<Duration>,
    /// Between asking it to end and killing it.
    pub grace: Option<Duration>,
    /// How often it is tried again after a failure.
    pub retries: Option<u32>,
    /// Before the first retry; doubles with each further one.
    pub retry_delay: Option<Duration>,
    /// The state after a failure; without one it is `unknown` and is checked.
    pub failure: Option<Marked<String>>,
    /// What takes the move back, given its saved result.
    pub revert: Option<Run>,
    /// This move can't be taken back.
    pub irreversible: Option<bool>,
}

/// A change object, written by hand or as part of a service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CobEntry {
    /// What it is: a built-in kind or one of `kinds`.
    #[schemars(required)]
    pub kind: Option<Marked<String>>,
    /// Where it goes when nobody asks for anything else; default: the kind's.
    pub preferred: Option<Marked<String>>,
    /// What the kind asks for. Texts in it may be templates.
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
    /// Starts and restarts only with these on; they stop and restart only with this off; while
    /// promised to stay on, theirs are promised too.
    #[serde(default)]
    pub requires: Vec<Target>,
    /// Is switched on only while these are on.
    #[serde(default)]
    pub after: Vec<Target>,
    /// `after`, where these exist.
    #[serde(default)]
    pub wants: Vec<Target>,
    /// `after`, and their content is part of what this rests on: outdated when they change.
    #[serde(default)]
    pub restarts_on: Vec<Target>,
    /// As `restarts_on`; the kind reloads where its content allows it.
    #[serde(default)]
    pub reloads_on: Vec<Target>,
    /// On only while these are off.
    #[serde(default)]
    pub excludes: Vec<Target>,
    /// The budget of which it takes a token before it leaves its preferred state (or `outdated`), and keeps it
    /// until it is back: no more of the budget's members than it says are disturbed at a time.
    pub budget: Option<Marked<String>>,
    /// In a service: on `each` of its nodes (default), on the `first`, on a host by name, or on those
    /// with `{label: ...}`.
    pub place: Option<Marked<Placed>>,
    /// What is done when it leaves the model. `undo` (default): it goes to its pre-remove state first. `keep`:
    /// it stays as it is, and what it made stays.
    pub on_remove: Option<Marked<OnRemove>>,
    /// Whether it is moved. `manage`: it is brought to its preferred state and kept there. `observe`: it is checked
    /// and shown, and no transition ever runs. Default: the host's.
    pub mode: Option<Marked<Mode>>,
    /// In a service: one change object for each item, `{d: host.vars.disks}`. Each value is a list or
    /// an expression that gives one; the name must differ for each: `"disk-{{ d }}"`.
    #[serde(rename = "for", default)]
    pub each: Named<Node>,
    /// In a service: an expression; only where it is true there is this change object.
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
    /// The state that is left.
    #[schemars(required)]
    pub from: Option<Marked<String>>,
    /// The state that is entered.
    #[schemars(required)]
    pub to: Option<Marked<String>>,
    /// What must be locked meanwhile: `HOST/NAME@state`, several states as `@up|degraded`.
    #[schemars(required)]
    pub needs: Option<Marked<Vec<Marked<String>>>>,
}

/// `(A, state) <- needs`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LockNeedsEntry {
    /// The state that is promised.
    #[schemars(required)]
    pub state: Option<Marked<String>>,
    /// What must be locked for it: `HOST/NAME@state`, several states as `@up|degraded`.
    #[schemars(required)]
    pub needs: Option<Marked<Vec<Marked<String>>>>,
}

/// What each node with this service gets.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceEntry {
    /// For people.
    pub description: Option<Marked<String>>,
    /// Its change objects by name; on host n1 the one named `server` of service `db` is `n1/db/server`.
    #[serde(default)]
    pub cobs: Named<CobEntry>,
    /// Which of its change objects others mean when they name the service; default: those on which
    /// none of its others depends.
    pub ready: Option<Vec<Marked<String>>>,
    /// Services without which this one is not on. Holds for the change objects in `ready`, and for
    /// those that gates among them require.
    #[serde(default)]
    pub requires: Vec<Target>,
    /// Services that are on before this one is switched on.
    #[serde(default)]
    pub after: Vec<Target>,
    /// `after`, where they exist.
    #[serde(default)]
    pub wants: Vec<Target>,
    /// Services that are never in one cluster with this one.
    #[serde(default)]
    pub conflicts: Vec<Marked<String>>,
    /// What it provides, and needs of others at installation and at run time.
    pub dependencies: Option<DependenciesEntry>,
    /// What is done with it on each of its nodes; instead of `cobs`.
    pub actions: Option<Marked<ActionsEntry>>,
    /// With `actions`: the keys of the cluster's `config` that it is configured with, and configured anew when they
    /// change; default: all.
    pub config: Option<Vec<Marked<String>>>,
    /// With `actions`: the budget of which it takes a token on each of its nodes, as a change object does.
    pub budget: Option<Marked<String>>,
    /// `stopped`: what runs of it is stopped, and with it what requires it, until the model says otherwise. `running`
    /// (default).
    pub desired: Option<Marked<ServiceState>>,
}

/// Hosts that work together.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-either" = ["services", "template"], "dependentRequired" = {"template": ["nodes"]}))]
pub struct ClusterEntry {
    /// Services placed by hand, `{db: [n1], app: {label: role=app}}`, or a list of services: on all
    /// `nodes`, or with a template where its rules put them (default there: those of the template).
    pub services: Option<Nodes>,
    /// Its hosts, by name or label; or, with a template, how many nodes it has.
    #[serde(default)]
    pub nodes: Maybe<Marked<NodeSet>>,
    /// Values for templates: `cluster.config`. With a template they win over its own. Texts in it may be templates
    /// and hold Coopr's macros.
    pub config: Option<Node>,
    /// Where the daemons of its nodes listen, when it has a number of nodes and the model has no hosts of their names: a
    /// template that knows `index`, `"tcp://10.0.0.{{ index }}:7077"`.
    pub address: Option<Marked<String>>,
    /// The template that says where its services go.
    pub template: Option<Marked<String>>,
    /// Where its machines come from; default: the template's.
    pub provider: Option<Marked<String>>,
    /// The type of hardware of all its nodes; default: the template's, else what the rules allow.
    pub hardwaretype: Option<Marked<String>>,
    /// The type of image of all its nodes; default: the template's, else what the rules allow.
    pub imagetype: Option<Marked<String>>,
    /// `stopped`: what runs of its services is stopped, and with it what requires it, until the model says otherwise. `running`
    /// (default).
    pub desired: Option<Marked<ServiceState>>,
}

/// Where a secret's value is to be found: exactly one of these. It is looked for when a generation is
/// made in which the secret is used.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretEntry {
    /// In a file, relative to the one in which this stands.
    pub file: Option<Marked<String>>,
    /// In a variable of cobgen's environment.
    pub env: Option<Marked<String>>,
    /// Here, encrypted with age for the publisher: the text of an armoured age file.
    pub age: Option<Marked<String>>,
    /// In what this command prints: a program and its arguments, executed without a shell.
    #[schemars(length(min = 1))]
    pub command: Option<Marked<Vec<Marked<String>>>>,
}

/// Variables; the nearest wins: all < label < service < cluster < host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VariablesEntry {
    /// For everything.
    #[serde(default)]
    pub all: Named<Node>,
    /// For hosts with a label: `{role=app: {port: 80}}`. Of two labels the one later in the alphabet wins.
    #[serde(default)]
    pub label: Named<Named<Node>>,
    /// For the change objects of a service.
    #[serde(default)]
    pub service: Named<Named<Node>>,
    /// For the change objects of a cluster.
    #[serde(default)]
    pub cluster: Named<Named<Node>>,
    /// For a host; its own `vars` win over these.
    #[serde(default)]
    pub host: Named<Named<Node>>,
}

/// The text for an unsupported feature in a schema.
#[must_use]
pub(super) fn not_supported_yet(schema: &serde_json::Value) -> Option<&str> {
    schema.get(LATER)?.as_str()
}
