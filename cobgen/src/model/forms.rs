//! Values with several forms in a model: commands, durations, host sets, targets.
//!
//! Each has its own schema. No two forms of a value have the same JSON type, so the structural check knows the intended
//! form.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error as _};

use super::entities::{ActionEntry, WeightsEntry};
use super::node::{Map, Node, Value};
use super::read::{Marked, Named};

/// A command to execute.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its place in the model.
    pub at: Marked<()>,
    /// The text for the shell, or the words.
    pub what: RunForm,
}

/// The two forms of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum RunForm {
    /// For `/bin/sh -c`.
    Shell(String),
    /// Executed without a shell.
    Argv(Vec<Marked<String>>),
}

/// A duration as written: `30s`.
#[derive(Debug, Clone, PartialEq)]
pub struct Duration(pub Marked<String>);

/// A label's value as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Label(pub String);

/// A label of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLabel {
    /// Its value as text.
    pub text: String,
    /// Whether the value was written as a number, so that other spellings may mean the same label.
    pub is_number: bool,
}

/// Hosts, each by name or by label.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostSet(pub Vec<Marked<HostPick>>);

/// Public keys: a single key or a list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeySet(pub Vec<Marked<String>>);

/// Maintenance windows as written: a text or a list of texts.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowSet(pub Vec<Marked<String>>);

/// A selection of hosts.
#[derive(Debug, Clone, PartialEq)]
pub enum HostPick {
    /// The host with this name.
    Host(String),
    /// The hosts with this label: `role=app`, or `role` with any value.
    Label(String),
}

/// The placement of a cluster's services.
#[derive(Debug, Clone, PartialEq)]
pub enum Nodes {
    /// These services on all of the cluster's nodes.
    Everywhere(Vec<Marked<String>>),
    /// Each service on its own hosts.
    ByHand(Named<HostSet>),
}

/// The nodes of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeSet {
    /// The number of nodes of a template.
    Count(Marked<u32>),
    /// These hosts.
    Hosts(HostSet),
}

/// An action: a command, or a mapping with more options.
#[derive(Debug, Clone, PartialEq)]
pub struct Action(pub Marked<ActionEntry>);

/// A cost as written: a number, or a text with a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost(pub Marked<String>);

/// A share as written: `0.25`, `1/4` or `25%`.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio(pub Marked<String>);

/// The preference between several layouts.
#[derive(Debug, Clone, PartialEq)]
pub enum PreferenceForm {
    /// More services on a node first, then hardware, image and service names in order.
    Default,
    /// Hardware that costs less first.
    CheapestHardware,
    /// As few different images as possible.
    FewestImages,
    /// Fewer services on a node first.
    Spread,
    /// More services on a node first, on hardware that costs less.
    Pack,
    /// A greater sum first.
    Weighted(WeightsEntry),
}

/// The nodes of its service that have the change object.
#[derive(Debug, Clone, PartialEq)]
pub enum Placed {
    /// Each node.
    Each,
    /// The first node; it stays there.
    First,
    /// The host with this name, or the hosts with this label.
    On(HostPick),
}

/// The target of a dependency: a change object, several, or a service.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// `COB`, `SERVICE/COB`, `SERVICE` or `HOST/NAME`.
    pub cob: Marked<String>,
    /// The nodes; `None`: the same node inside a service, all nodes of another service.
    pub on: Option<Marked<On>>,
}

/// The nodes on which a dependency looks for its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    /// The same node.
    SameNode,
    /// All nodes.
    All,
    /// Any single node.
    Any,
    /// The first node.
    First,
    /// All nodes except this.
    Peers,
    /// The host with this name.
    Host(String),
    /// The hosts with this label.
    Label(String),
}

impl Target {
    /// The target in the user's notation.
    #[must_use]
    pub fn words(&self) -> String {
        let on = match self.on.as_ref().map(|on| &on.value) {
            None => return self.cob.value.clone(),
            Some(On::SameNode) => "same-node".to_owned(),
            Some(On::All) => "all".to_owned(),
            Some(On::Any) => "any".to_owned(),
            Some(On::First) => "first".to_owned(),
            Some(On::Peers) => "peers".to_owned(),
            Some(On::Host(host)) => format!("host {host}"),
            Some(On::Label(label)) => format!("label {label}"),
        };
        format!("{{cob: {}, on: {on}}}", self.cob.value)
    }
}

/// Reads a form that serde's derived code can't distinguish while it keeps positions.
macro_rules! read_from_node {
    ($name:ty, $read:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let node = Node::deserialize(deserializer)?;
                let read: fn(&Node) -> Option<Self> = $read;
                read(&node).ok_or_else(|| D::Error::custom(concat!(stringify!($name), " in no known form")))
            }
        }
    };
}

read_from_node!(Run, |node| {
    let what = match node.list() {
        Some(items) => RunForm::Argv(items.iter().filter_map(word).collect()),
        None => RunForm::Shell(node.scalar()?),
    };
    Some(Self { at: Marked { mark: node.mark, value: () }, what })
});
read_from_node!(Duration, |node| Some(Self(word(node)?)));
// A label may have an empty value.
read_from_node!(Label, |node| Some(Self(node.scalar().unwrap_or_default())));
read_from_node!(HostLabel, |node| Some(Self {
    text: node.scalar().unwrap_or_default(),
    is_number: matches!(node.value, Value::Int(..) | Value::Float(..)),
}));
read_from_node!(HostSet, |node| match node.list() {
    Some(items) => Some(Self(items.iter().filter_map(marked_pick).collect())),
    None => Some(Self(marked_pick(node).into_iter().collect())),
});
read_from_node!(KeySet, |node| match node.list() {
    Some(items) => Some(Self(items.iter().filter_map(word).collect())),
    None => Some(Self(word(node).into_iter().collect())),
});
read_from_node!(WindowSet, |node| match node.list() {
    Some(items) => Some(Self(items.iter().filter_map(word).collect())),
    None => Some(Self(word(node).into_iter().collect())),
});
read_from_node!(Nodes, |node| match node.list() {
    Some(items) => Some(Self::Everywhere(items.iter().filter_map(word).collect())),
    None => node.read().ok().map(Self::ByHand),
});
read_from_node!(NodeSet, |node| match node.value {
    Value::Int(count, _) => {
        Some(Self::Count(Marked { mark: node.mark, value: u32::try_from(count).unwrap_or(u32::MAX) }))
    }
    Value::Null
    | Value::Bool(_)
    | Value::Float(..)
    | Value::Text(_)
    | Value::List(_)
    | Value::Map(_)
    | Value::Invalid => node.read().ok().map(Self::Hosts),
});
read_from_node!(Action, |node| match node.map() {
    Some(_) => Some(Self(Marked { mark: node.mark, value: node.read().ok()? })),
    None => {
        let value = ActionEntry { run: Some(node.read().ok()?), ..ActionEntry::default() };
        Some(Self(Marked { mark: node.mark, value }))
    }
});
read_from_node!(PreferenceForm, |node| match node.text() {
    Some("default") => Some(Self::Default),
    Some("cheapest-hardware") => Some(Self::CheapestHardware),
    Some("fewest-images") => Some(Self::FewestImages),
    Some("spread") => Some(Self::Spread),
    Some("pack") => Some(Self::Pack),
    Some(_) => None,
    None => node.read().ok().map(Self::Weighted),
});
read_from_node!(Cost, |node| Some(Self(number(node)?)));
read_from_node!(Ratio, |node| Some(Self(number(node)?)));
read_from_node!(Placed, |node| match node.text() {
    Some("each") => Some(Self::Each),
    Some("first") => Some(Self::First),
    _ => pick(node).map(Self::On),
});
read_from_node!(Target, |node| match node.map() {
    Some(map) => Some(Self { cob: word(map.get("cob")?)?, on: map.get("on").and_then(on) }),
    None => Some(Self { cob: word(node)?, on: None }),
});

fn word(node: &Node) -> Option<Marked<String>> {
    Some(Marked { mark: node.mark, value: node.scalar()? })
}

/// A number by its value, independent of its spelling.
fn number(node: &Node) -> Option<Marked<String>> {
    Some(Marked { mark: node.mark, value: node.plain()? })
}

fn marked_pick(node: &Node) -> Option<Marked<HostPick>> {
    Some(Marked { mark: node.mark, value: pick(node)? })
}

fn pick(node: &Node) -> Option<HostPick> {
    match node.map() {
        Some(map) => one(map, "label").map(HostPick::Label).or_else(|| one(map, "host").map(HostPick::Host)),
        None => node.scalar().map(HostPick::Host),
    }
}

fn one(map: &Map, key: &str) -> Option<String> {
    map.get(key)?.scalar()
}

fn on(node: &Node) -> Option<Marked<On>> {
    let value = if let Some(map) = node.map() {
        one(map, "label").map(On::Label).or_else(|| one(map, "host").map(On::Host))?
    } else {
        match node.text()? {
            "same-node" => On::SameNode,
            "all" => On::All,
            "any" => On::Any,
            "first" => On::First,
            "peers" => On::Peers,
            text => match text.split_once(' ') {
                Some(("host", name)) => On::Host(name.trim().to_owned()),
                Some(("label", label)) => On::Label(label.trim().to_owned()),
                Some(_) | None => return None,
            },
        }
    };
    Some(Marked { mark: node.mark, value })
}

/// Implements a form's schema, inlined so that messages name the value and not a type.
macro_rules! schema {
    ($name:ty, $text:literal, |$generator:ident| $schema:expr) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                $text.into()
            }
            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

schema!(Run, "Command", |_g| json_schema!({"anyOf": [
    {"type": "string", "description": "Executed by /bin/sh -c."},
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "Executed without a shell."},
]}));
schema!(Duration, "Duration", |_g| json_schema!({
    "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$", "x-what": "a duration with its unit, such as `30s`, `500ms`, `2m` or `1h`",
}));
schema!(Label, "Label", |_g| json_schema!({"type": ["string", "number", "boolean", "null"]}));
schema!(HostLabel, "Label", |g| Label::json_schema(g));
schema!(HostSet, "HostSet", |g| {
    let pick = g.subschema_for::<HostPick>();
    json_schema!({"anyOf": [
        {"type": "string", "description": "A host's name."},
        label_or_host(),
        {"type": "array", "items": pick, "minItems": 1},
        {"type": "integer", "x-not-supported-yet": "name the hosts: `nodes: [n1, n2]`"},
    ]})
});
schema!(KeySet, "Key", |_g| json_schema!({"anyOf": [
    {"type": "string", "description": "A public key, ed25519:…"},
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "The old key and the new key."},
]}));
schema!(WindowSet, "Window", |_g| json_schema!({"anyOf": [
    {"type": "string", "description": "A weekly window: Sat 02:00-04:00"},
    {"type": "array", "items": {"type": "string"}, "description": "Several; an empty list: any time."},
]}));
schema!(HostPick, "HostPick", |_g| json_schema!({"anyOf": [
    {"type": "string", "description": "A host's name."},
    label_or_host(),
]}));
schema!(Nodes, "Services", |g| {
    let set = g.subschema_for::<HostSet>();
    json_schema!({"anyOf": [
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "On all nodes of the cluster."},
        {"type": "object", "additionalProperties": set, "description": "Each on its own hosts."},
    ]})
});
schema!(NodeSet, "NodeSet", |g| {
    let pick = g.subschema_for::<HostPick>();
    json_schema!({"anyOf": [
        {"type": "integer", "minimum": 1, "maximum": 1_000_000, "description": "A number of nodes; for clusters of a template."},
        {"type": "string", "description": "A host's name."},
        label_or_host(),
        {"type": "array", "items": pick, "minItems": 1},
    ]})
});
schema!(Action, "Action", |g| {
    let entry = g.subschema_for::<ActionEntry>();
    json_schema!({"anyOf": [
        {"type": "string", "description": "Executed by /bin/sh -c."},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "Executed without a shell."},
        entry,
    ]})
});
schema!(PreferenceForm, "Preference", |g| {
    let weights = g.subschema_for::<WeightsEntry>();
    let words = ["default", "cheapest-hardware", "fewest-images", "spread", "pack"];
    json_schema!({"anyOf": [{"type": "string", "x-words": words}, weights]})
});
schema!(Cost, "Cost", |_g| json_schema!({"type": ["number", "string"], "x-what": "a cost, such as `3` or `0.044`"}));
schema!(
    Ratio,
    "Ratio",
    |_g| json_schema!({"type": ["number", "string"], "x-what": "a share, such as `0.25`, `1/4` or `25%`"})
);
schema!(Placed, "Place", |_g| json_schema!({"anyOf": [
    {"type": "string", "description": "each, first, or a host's name."},
    label_or_host(),
]}));
schema!(Target, "Target", |_g| json_schema!({"anyOf": [
    {"type": "string", "description": "COB of the same service and node, SERVICE/COB, SERVICE, or HOST/NAME."},
    {
        "type": "object",
        "properties": {
            "cob": {"type": "string", "description": "COB, SERVICE/COB, SERVICE, or HOST/NAME."},
            "on": {
                "description": "On which nodes: same-node, all, any, first, peers, host NAME, label NAME=VALUE.",
                "anyOf": [
                    {
                        "type": "string",
                        "pattern": "^(same-node|all|any|first|peers|host .+|label .+)$",
                        "x-words": ["same-node", "all", "any", "first", "peers", "host ", "label "],
                    },
                    label_or_host(),
                ],
            },
        },
        "required": ["cob"],
        "x-whole": true,
        "additionalProperties": false,
    },
]}));

fn label_or_host() -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "label": {"type": "string", "description": "Hosts with this label: role=app, or role with any value."},
            "host": {"type": "string", "description": "The host of this name."},
        },
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": false,
    })
}
