//! Names, entities of a hub, and the actions on entities.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A name of a tenant, user, group or other entity: 1 to 128 ASCII letters, digits and `.`, `_`, `-`, `@`, `+`, `:`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a text is no name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no name: a name has 1 to 128 ASCII letters, digits or . _ - @ + :")]
pub struct BadName(String);

impl Name {
    const LONGEST: usize = 128;

    /// The name with this text.
    pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        let good = |c: char| c.is_ascii_alphanumeric() || "._-@+:".contains(c);
        if (1..=Self::LONGEST).contains(&text.len()) && text.chars().all(good) {
            return Ok(Self(text));
        }
        Err(BadName(text.chars().take(Self::LONGEST).collect()))
    }

    /// Stands for each name of a kind. No name from outside is equal to it.
    pub(crate) fn any() -> Self {
        Self("*".to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        Self::new(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "EntityName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[A-Za-z0-9._@+:-]{1,128}$" })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kinds of entities. The table of the [crate](crate) says what each action means for each kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A source of machines.
    Provider,
    /// A size of machines.
    HardwareType,
    /// An image of machines.
    ImageType,
    /// A service that clusters run.
    Service,
    /// A template of clusters.
    Template,
    /// A cluster.
    Cluster,
    /// A machine, of a cluster or in stock.
    Machine,
    /// A job.
    Job,
    /// An account.
    User,
    /// A group of users of a tenant.
    Group,
    /// A tenant.
    Tenant,
    /// The record of all decisions and steps, of a tenant or of the hub.
    Audit,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Provider,
        Self::HardwareType,
        Self::ImageType,
        Self::Service,
        Self::Template,
        Self::Cluster,
        Self::Machine,
        Self::Job,
        Self::User,
        Self::Group,
        Self::Tenant,
        Self::Audit,
    ];

    /// The actions that have a meaning for this kind. No subject may do any other.
    pub fn actions(self) -> Actions {
        match self.family() {
            Family::Catalogue | Family::Running => Actions::ALL,
            Family::User => Actions::READ | Actions::WRITE | Actions::EXECUTE,
            Family::Group | Family::Tenant => Actions::READ | Actions::WRITE,
            Family::Audit => Actions::READ | Actions::GRANT,
        }
    }

    /// Whether administrators define entities of this kind for clusters. Only these can be shared by all tenants.
    pub fn is_catalogue(self) -> bool {
        self.family() == Family::Catalogue
    }

    /// Whether entities of this kind are clusters or belong to clusters, and have an owner.
    pub fn is_running(self) -> bool {
        self.family() == Family::Running
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Self::Provider | Self::HardwareType | Self::ImageType | Self::Service | Self::Template => Family::Catalogue,
            Self::Cluster | Self::Machine | Self::Job => Family::Running,
            Self::User => Family::User,
            Self::Group => Family::Group,
            Self::Tenant => Family::Tenant,
            Self::Audit => Family::Audit,
        }
    }
}

/// The kinds, as far as rules distinguish kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    Catalogue,
    Running,
    User,
    Group,
    Tenant,
    Audit,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Provider => "provider",
            Self::HardwareType => "hardware type",
            Self::ImageType => "image type",
            Self::Service => "service",
            Self::Template => "template",
            Self::Cluster => "cluster",
            Self::Machine => "machine",
            Self::Job => "job",
            Self::User => "user",
            Self::Group => "group",
            Self::Tenant => "tenant",
            Self::Audit => "audit",
        })
    }
}

/// An entity, with the facts that decisions need. The caller takes the facts from its store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entity {
    /// The kind.
    pub kind: Kind,
    /// The tenant to which the entity belongs. Without a tenant, an entity of the catalogue is shared by all tenants,
    /// and any other entity belongs to the hub itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Name>,
    /// The name.
    pub name: Name,
    /// The owner of a cluster, machine or job: a user of the same tenant. Other kinds have no owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Name>,
    /// The cluster of a machine or job. A right on the cluster is a right on its machines and jobs, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Name>,
}

impl Entity {
    /// An entity of a tenant.
    pub fn of_tenant(tenant: &Name, kind: Kind, name: &Name) -> Self {
        Self { tenant: Some(tenant.clone()), ..Self::of_hub(kind, name) }
    }

    /// An entity of the shared catalogue or of the hub itself.
    pub fn of_hub(kind: Kind, name: &Name) -> Self {
        Self { kind, tenant: None, name: name.clone(), owner: None, cluster: None }
    }

    /// The tenant as an entity: it belongs to itself.
    pub fn tenant(name: &Name) -> Self {
        Self::of_tenant(name, Kind::Tenant, name)
    }

    /// The account of a user as an entity.
    pub fn user(id: &UserId) -> Self {
        Self { tenant: id.tenant.clone(), ..Self::of_hub(Kind::User, &id.name) }
    }

    /// The same entity with an owner.
    pub fn owned_by(self, owner: &Name) -> Self {
        Self { owner: Some(owner.clone()), ..self }
    }

    /// The same machine or job as a part of this cluster.
    pub fn in_cluster(self, cluster: &Name) -> Self {
        Self { cluster: Some(cluster.clone()), ..self }
    }

    /// Whether the entity is an entity of the catalogue that all tenants share.
    pub fn is_shared(&self) -> bool {
        self.tenant.is_none() && self.kind.is_catalogue()
    }

    /// The names under which a right can cover the entity: its own, and the name of its cluster.
    pub(crate) fn titles(&self) -> impl Iterator<Item = (Kind, &Name)> {
        let part = matches!(self.kind, Kind::Machine | Kind::Job);
        let cluster = self.cluster.as_ref().filter(|_| part).map(|name| (Kind::Cluster, name));
        [(self.kind, &self.name)].into_iter().chain(cluster)
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// The identity of a user. Two tenants can have users with the same name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserId {
    /// The tenant of the user. A super administrator belongs to the hub and has no tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Name>,
    /// The name.
    pub name: Name,
}

/// The actions. The table of the [crate](crate) says what each means for each kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// See the entity.
    Read,
    /// Create, change or remove the entity.
    Write,
    /// Use the entity, or operate it without a change of its definition.
    Execute,
    /// Give own rights on the entity to users and groups of the tenant.
    Grant,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Execute, Self::Grant];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
            Self::Grant => "grant",
        })
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(from = "BTreeSet<Action>", into = "BTreeSet<Action>")]
#[schemars(with = "BTreeSet<Action>")]
pub struct Actions(u8);

impl Actions {
    /// No action.
    pub const NONE: Self = Self(0);
    /// Only [`Action::Read`].
    pub const READ: Self = Self(1);
    /// Only [`Action::Write`].
    pub const WRITE: Self = Self(2);
    /// Only [`Action::Execute`].
    pub const EXECUTE: Self = Self(4);
    /// Only [`Action::Grant`].
    pub const GRANT: Self = Self(8);
    /// All actions.
    pub const ALL: Self = Self(15);

    /// Whether the set has this action.
    pub fn has(self, action: Action) -> bool {
        self.0 & action.bit() != 0
    }

    /// Whether the set has all these actions.
    pub fn has_all(self, actions: Self) -> bool {
        actions.0 & !self.0 == 0
    }

    /// Whether the set has no action.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The actions in their order.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::ALL.into_iter().filter(move |action| self.has(*action))
    }

    /// The set, if the condition is true, otherwise no action.
    pub(crate) fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}

impl From<Action> for Actions {
    fn from(action: Action) -> Self {
        Self(action.bit())
    }
}

impl FromIterator<Action> for Actions {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Self {
        actions.into_iter().fold(Self::NONE, |all, action| all | action.into())
    }
}

impl From<BTreeSet<Action>> for Actions {
    fn from(actions: BTreeSet<Action>) -> Self {
        actions.into_iter().collect()
    }
}

impl From<Actions> for BTreeSet<Action> {
    fn from(actions: Actions) -> Self {
        actions.iter().collect()
    }
}

impl BitOr for Actions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Actions {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Actions {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
