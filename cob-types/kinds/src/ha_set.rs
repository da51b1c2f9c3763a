//! The kind `ha-set`: resources of a Pacemaker cluster with all that belongs to them.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::CobId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::footprint::Subject;
use super::{Builtin, Content, Faults, Footprint, Place, Scalar};

/// The longest id.
const MAX_ID: usize = 128;
/// The attributes with which operators decide about a resource.
const OF_OPERATORS: [&str; 3] = ["target-role", "is-managed", "maintenance"];
/// The words for truth values in the cluster.
const TRUTH: [&str; 2] = ["false", "true"];
/// The attributes of a constraint, with the constraints that have them.
const ATTRIBUTES: [(&str, &[&str]); 10] = [
    ("node", &["location"]),
    ("with", &["colocation"]),
    ("then", &["order"]),
    ("score", &["location", "colocation"]),
    ("role", &["location", "colocation"]),
    ("with_role", &["colocation"]),
    ("kind", &["order"]),
    ("first_action", &["order"]),
    ("then_action", &["order"]),
    ("symmetrical", &["order"]),
];

/// The content of `ha-set`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaSet {
    /// The resources, each with its agent.
    #[serde(default)]
    pub primitives: BTreeMap<String, HaPrimitive>,
    /// Groups: the members start one after the other on the same node.
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<String>>,
    /// Clones: a primitive or group on several nodes.
    #[serde(default)]
    pub clones: BTreeMap<String, HaClone>,
    /// Constraints: where resources run, and in which order.
    #[serde(default)]
    pub constraints: BTreeMap<String, HaConstraint>,
    /// Properties of the whole cluster, such as `stonith-enabled`.
    #[serde(default)]
    pub properties: BTreeMap<String, Scalar>,
    /// Fence devices, each with its agent, such as `fence_ipmilan`.
    #[serde(default)]
    pub fence: BTreeMap<String, HaPrimitive>,
    /// Resources of others that `constraints` and `allow` name.
    #[serde(default)]
    pub others: BTreeSet<String>,
    /// What a transition may do to a resource besides its purpose: `{web: [restart, move]}`. The word for a group or
    /// clone holds for its members.
    #[serde(default)]
    pub allow: BTreeMap<String, BTreeSet<Interruption>>,
}

/// A resource with its agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaPrimitive {
    /// The agent: `ocf:heartbeat:Filesystem`, `systemd:nginx`; of a fence device `fence_ipmilan`.
    #[serde(rename = "type")]
    pub agent: String,
    /// The parameters of the agent.
    #[serde(default)]
    pub params: BTreeMap<String, Scalar>,
    /// The operations: `{monitor: {interval: 10s}}`. A second operation of the same name gets a key of its own and
    /// the key `name`.
    #[serde(default)]
    pub ops: BTreeMap<String, BTreeMap<String, Scalar>>,
    /// Attributes for the cluster, such as `migration-threshold`.
    #[serde(default)]
    pub meta: BTreeMap<String, Scalar>,
}

/// A resource on several nodes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaClone {
    /// The primitive or group.
    pub of: String,
    /// Attributes for the cluster, such as `clone-max` and `promotable`.
    #[serde(default)]
    pub meta: BTreeMap<String, Scalar>,
}

/// A constraint: a location, a colocation or an order.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HaConstraint {
    /// The resource that prefers or avoids a `node`.
    pub location: Option<String>,
    /// The resource that runs on the node of another, `with`.
    pub colocation: Option<String>,
    /// The resource that acts first, before `then`.
    pub order: Option<String>,
    /// The node of a location.
    pub node: Option<String>,
    /// The other resource of a colocation.
    pub with: Option<String>,
    /// The second resource of an order.
    pub then: Option<String>,
    /// The weight of a location or colocation: a number, `INFINITY` or `-INFINITY`; default: `INFINITY`.
    pub score: Option<Scalar>,
    /// The role of the resource: `Started`, `Promoted` or `Unpromoted`.
    pub role: Option<String>,
    /// The role of the other resource.
    pub with_role: Option<String>,
    /// The strength of an order: `Mandatory` (default), `Optional` or `Serialize`.
    pub kind: Option<String>,
    /// The first action of an order: `start` (default), `promote`, `demote` or `stop`.
    pub first_action: Option<String>,
    /// The second action of an order.
    pub then_action: Option<String>,
    /// Whether the reverse order holds for the stop; default: true.
    pub symmetrical: Option<bool>,
}

/// An action of the cluster on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Interruption {
    /// It starts.
    Start,
    /// It stops.
    Stop,
    /// It stops and starts on the same node.
    Restart,
    /// It stops on a node and starts on another, or migrates.
    Move,
    /// It becomes promoted.
    Promote,
    /// It loses the promotion.
    Demote,
}

impl Content for HaSet {
    const KIND: Builtin = Builtin {
        states: &["absent", "stopped", "up", "outdated", "degraded"],
        preferred: "up",
        transitions: &[
            ("absent", "stopped"),
            ("stopped", "up"),
            ("outdated", "up"),
            ("degraded", "up"),
            ("up", "stopped"),
            ("outdated", "stopped"),
            ("degraded", "stopped"),
            ("stopped", "absent"),
            ("outdated", "absent"),
        ],
        interval_ms: Some(15_000),
        timeout_ms: 300_000,
        ..Builtin::setting("ha-set")
    };

    fn check(&self, faults: &mut Faults) {
        self.check_ids(faults);
        for (key, all) in [("primitives", &self.primitives), ("fence", &self.fence)] {
            for (id, primitive) in all {
                primitive.check(key, id, faults);
            }
        }
        self.check_groups(faults);
        for (id, constraint) in &self.constraints {
            constraint.check(id, &self.known(), faults);
        }
        check_texts(&["properties"], &self.properties, faults);
        for id in self.allow.keys().filter(|id| !self.known().contains(id.as_str())) {
            let help = "name a resource of this set, or list a resource of others in `others`";
            faults.add(("allow", id), format!("no resource {id} is in the set"), help);
        }
        if self.primitives.is_empty() && self.fence.is_empty() {
            faults.add(Place::Content, "the set has no resource", "add a resource to `primitives` or `fence`");
        }
        if self.is_fencing() && self.fence.is_empty() {
            let what = "`stonith-enabled` without a fence device: no resource of the cluster would start";
            let help = "add a device to `fence`, or leave the property to the set that has the devices";
            faults.add(Place::Value("properties", "stonith-enabled".to_owned()), what, help);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let parts = self.ids().map(|(_, id)| Subject { sort: "cluster element", name: id.to_owned() });
        let of_property = |name: &String| Subject { sort: "cluster property", name: name.clone() };
        let parts = parts.chain(self.properties.keys().map(of_property)).collect();
        Footprint { parts, ..Footprint::default() }
    }
}

impl HaSet {
    /// All ids that the set fixes, each with the key under which it is.
    pub fn ids(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let primitives = self.primitives.keys().map(|id| ("primitives", id.as_str()));
        let groups = self.groups.keys().map(|id| ("groups", id.as_str()));
        let clones = self.clones.keys().map(|id| ("clones", id.as_str()));
        let fence = self.fence.keys().map(|id| ("fence", id.as_str()));
        let constraints = self.constraints.keys().map(|id| ("constraints", id.as_str()));
        primitives.chain(groups).chain(clones).chain(fence).chain(constraints)
    }

    /// The group or clone that contains a resource of the set.
    #[must_use]
    pub fn container_of(&self, id: &str) -> Option<&str> {
        let group = self.groups.iter().find(|(_, members)| members.iter().any(|member| member == id));
        let clone = || self.clones.iter().find(|(_, clone)| clone.of == id).map(|(id, _)| id);
        group.map(|(id, _)| id).or_else(clone).map(String::as_str)
    }

    /// Whether the model allows an action on a resource, by the resource itself or by a group or clone around it.
    #[must_use]
    pub fn allows(&self, id: &str, action: Interruption) -> bool {
        let own = self.allow.get(id).is_some_and(|allowed| allowed.contains(&action));
        own || self.container_of(id).is_some_and(|container| self.allows(container, action))
    }

    /// The resources that constraints may name.
    fn known(&self) -> BTreeSet<&str> {
        let own = self.ids().filter(|(key, _)| *key != "constraints").map(|(_, id)| id);
        own.chain(self.others.iter().map(String::as_str)).collect()
    }

    fn is_fencing(&self) -> bool {
        let value = self.properties.get("stonith-enabled").map(|value| value.text("stonith-enabled", Some(TRUTH)));
        value.is_some_and(|value| value.is_ok_and(|value| is_true(&value)))
    }

    fn check_ids(&self, faults: &mut Faults) {
        let mut seen = BTreeSet::new();
        for (key, id) in self.ids() {
            if !is_id(id) {
                let help = "letters, digits, `_`, `-` and `.`, with a letter or `_` at the beginning";
                faults.add((key, &id.to_owned()), format!("{id:?} is not an id of the cluster"), help);
            } else if !seen.insert(id) {
                let help = "all elements of the cluster have different ids: rename one of them";
                faults.add((key, &id.to_owned()), format!("the id {id} is there twice"), help);
            }
        }
        for id in self.others.iter().filter(|id| seen.contains(id.as_str())) {
            let help = "remove it from `others`";
            faults.add(("others", id), format!("{id} is a resource of this set"), help);
        }
    }

    fn check_groups(&self, faults: &mut Faults) {
        let mut contained = BTreeSet::new();
        for (group, members) in &self.groups {
            if members.is_empty() {
                faults.add(("groups", group), format!("the group {group} has no member"), "name its members");
            }
            for member in members {
                let at = Place::Path(vec!["groups".to_owned(), group.clone()]);
                if !self.primitives.contains_key(member) {
                    let help = "a member is a key of `primitives`";
                    faults.add(at, format!("{group} has the unknown member {member}"), help);
                } else if !contained.insert(member.as_str()) {
                    faults.add(at, format!("{member} is a member twice"), "a resource is in a single group");
                }
            }
        }
        for (id, clone) in &self.clones {
            let at = |key: &str| Place::Path(["clones", id, key].map(str::to_owned).to_vec());
            let is_known = self.primitives.contains_key(&clone.of) || self.groups.contains_key(&clone.of);
            if !is_known {
                let help = "`of` is a key of `primitives` or `groups`";
                faults.add(at("of"), format!("{id} is a clone of the unknown resource {}", clone.of), help);
            } else if !contained.insert(clone.of.as_str()) {
                let help = "a resource is in a single group or clone";
                faults.add(at("of"), format!("{} is in another group or clone, too", clone.of), help);
            }
            check_meta(&["clones", id, "meta"], &clone.meta, faults);
        }
    }
}

impl HaPrimitive {
    /// The class, the provider and the type of the agent.
    #[must_use]
    pub fn parts(&self) -> Option<(&str, Option<&str>, &str)> {
        let is_plain = |part: &&str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-.@\\".contains(c);
            !part.is_empty() && part.chars().all(plain)
        };
        let parts: Vec<&str> = self.agent.split(':').collect();
        parts.iter().all(is_plain).then_some(())?;
        match parts.as_slice() {
            ["ocf", provider, name] => Some(("ocf", Some(provider), name)),
            [class @ ("systemd" | "service" | "lsb"), name] => Some((class, None, name)),
            _ => None,
        }
    }

    fn check(&self, key: &'static str, id: &str, faults: &mut Faults) {
        let at = |part: &str| Place::Path([key, id, part].map(str::to_owned).to_vec());
        if key == "fence" {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
            if self.agent.is_empty() || !self.agent.chars().all(is_plain) {
                let what = format!("{:?} is not a fence agent", self.agent);
                faults.add(
                    at("type"),
                    what,
                    "for example `fence_ipmilan`; `stonith_admin --list-installed` lists them",
                );
            }
        } else if self.parts().is_none() {
            let what = format!("{:?} is not an agent", self.agent);
            faults.add(at("type"), what, "for example `ocf:heartbeat:Filesystem` or `systemd:nginx`");
        }
        check_texts(&[key, id, "params"], &self.params, faults);
        check_meta(&[key, id, "meta"], &self.meta, faults);
        for (op, attributes) in &self.ops {
            check_texts(&[key, id, "ops", op], attributes, faults);
            if !is_id(op) {
                faults.add(at("ops"), format!("{op:?} is not an operation"), "for example `monitor`, `start`, `stop`");
            }
        }
    }
}

impl HaConstraint {
    fn check(&self, id: &str, known: &BTreeSet<&str>, faults: &mut Faults) {
        let at = |key: &str| Place::Path(["constraints", id, key].map(str::to_owned).to_vec());
        let sorts = [("location", &self.location), ("colocation", &self.colocation), ("order", &self.order)];
        let given: Vec<&str> = sorts.iter().filter(|(_, resource)| resource.is_some()).map(|(key, _)| *key).collect();
        let [sort] = given.as_slice() else {
            let help = "for example `{location: web, node: n1, score: 100}`";
            let what = format!("the constraint {id} is not a single location, colocation or order");
            faults.add(("constraints", &id.to_owned()), what, help);
            return;
        };
        for (key, resource) in sorts.iter().chain(&[("with", &self.with), ("then", &self.then)]) {
            if let Some(resource) = resource.as_ref().filter(|resource| !known.contains(resource.as_str())) {
                let help = "name a resource of this set, or list a resource of others in `others`";
                faults.add(at(key), format!("{id} names the unknown resource {resource}"), help);
            }
        }
        let has = |key: &str| match key {
            "node" => self.node.is_some(),
            "with" => self.with.is_some(),
            "then" => self.then.is_some(),
            "score" => self.score.is_some(),
            "role" => self.role.is_some(),
            "with_role" => self.with_role.is_some(),
            "kind" => self.kind.is_some(),
            "first_action" => self.first_action.is_some(),
            "then_action" => self.then_action.is_some(),
            "symmetrical" => self.symmetrical.is_some(),
            _ => unreachable!("all keys of ATTRIBUTES are there"),
        };
        for (key, of) in ATTRIBUTES {
            if has(key) && !of.contains(sort) {
                faults.add(
                    at(key),
                    format!("the {sort} {id} has `{key}`"),
                    format!("`{key}` is for {}", of.join(", ")),
                );
            }
        }
        let needed = match *sort {
            "location" => "node",
            "colocation" => "with",
            _ => "then",
        };
        if !has(needed) {
            let what = format!("the {sort} {id} has no `{needed}`");
            faults.add(("constraints", &id.to_owned()), what, format!("add `{needed}`"));
        }
        let words = [
            ("role", &self.role, &["Started", "Promoted", "Unpromoted"][..]),
            ("with_role", &self.with_role, &["Started", "Promoted", "Unpromoted"]),
            ("kind", &self.kind, &["Mandatory", "Optional", "Serialize"]),
            ("first_action", &self.first_action, &["start", "promote", "demote", "stop"]),
            ("then_action", &self.then_action, &["start", "promote", "demote", "stop"]),
        ];
        for (key, word, all) in words {
            if let Some(word) = word.as_ref().filter(|word| !all.contains(&word.as_str())) {
                faults.add(at(key), format!("{word:?} is not a `{key}`"), format!("write {}", all.join(", ")));
            }
        }
        if self.score.is_some() && self.score_text().is_none() {
            faults.add(at("score"), "it is not a score", "write a whole number, `INFINITY` or `-INFINITY`");
        }
    }

    /// The score as the cluster writes it. `None`: it is not a score.
    #[must_use]
    pub fn score_text(&self) -> Option<String> {
        let Some(score) = &self.score else { return Some("INFINITY".to_owned()) };
        let text = score.text("score", None).ok()?;
        let is_score = text.parse::<i32>().is_ok() || ["INFINITY", "+INFINITY", "-INFINITY"].contains(&text.as_str());
        is_score.then_some(text)
    }
}

impl Interruption {
    /// Its word in contents and messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Move => "move",
            Self::Promote => "promote",
            Self::Demote => "demote",
        }
    }
}

/// The text of a value in the cluster.
///
/// # Errors
/// The fault and its remedy.
pub fn cluster_text(key: &str, value: &Scalar) -> Result<String, (String, String)> {
    let text = value.text(key, Some(TRUTH))?;
    if text.chars().any(|c| c.is_control() && !"\n\t".contains(c)) {
        return Err((format!("`{key}` has control characters"), "remove them".to_owned()));
    }
    Ok(text)
}

fn check_texts(at: &[&str], all: &BTreeMap<String, Scalar>, faults: &mut Faults) {
    for (name, value) in all {
        let place = || Place::Path(at.iter().copied().chain([name.as_str()]).map(str::to_owned).collect());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.#".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            faults.add(place(), format!("{name:?} is not a name"), "letters, digits, `_`, `-`, `.` and `#`");
        } else if let Err((what, help)) = cluster_text(name, value) {
            faults.add(place(), what, help);
        }
    }
}

fn check_meta(at: &[&str], all: &BTreeMap<String, Scalar>, faults: &mut Faults) {
    check_texts(at, all, faults);
    for name in all.keys().filter(|name| OF_OPERATORS.contains(&name.as_str())) {
        let place = Place::Path(at.iter().copied().chain([name.as_str()]).map(str::to_owned).collect());
        let help = "remove it: `preferred: stopped` keeps the set stopped, and an operator's decision stays";
        faults.add(place, format!("`{name}` is a decision of operators"), help);
    }
}

fn is_true(text: &str) -> bool {
    ["true", "on", "yes", "y", "1"].contains(&text.to_ascii_lowercase().as_str())
}

fn is_id(id: &str) -> bool {
    let begins = id.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && id.len() <= MAX_ID && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// Whether operators decide with this attribute of a resource.
#[must_use]
pub fn is_of_operators(name: &str) -> bool {
    OF_OPERATORS.contains(&name)
}
