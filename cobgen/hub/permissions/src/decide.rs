//! The decision: whether a subject may do an action on an entity, and why.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chain;
use crate::directory::{Directory, GrantId, Names, Policy, Tenant};
use crate::entity::{Action, Actions, Entity, Family, Kind, Name, UserId};

/// The user in whose name a request comes. The directory alone says which rank and groups the user has, so a session
/// cannot keep rights that the user has lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The user.
    pub user: UserId,
    /// The scope of the API token that the request came with. A session of a user has no scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// The scope of an API token. A scope adds no right: the user of the token needs each right, too.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Scope(pub Vec<ScopeRule>);

/// A line of a scope: actions on entities of a kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeRule {
    /// The actions.
    pub actions: Actions,
    /// The kind. A cluster stands for its machines and jobs, too.
    pub kind: Kind,
    /// The names, in the tenant of the user and in the shared catalogue.
    pub names: Names,
}

impl Scope {
    /// The actions on an entity that the scope lets through.
    pub fn actions(&self, entity: &Entity) -> Actions {
        let covers = |rule: &ScopeRule| entity.titles().any(|(kind, name)| rule.kind == kind && rule.names.has(name));
        self.0.iter().filter(|rule| covers(rule)).fold(Actions::NONE, |all, rule| all | rule.actions)
    }
}

/// The rank of a user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// A super administrator, which belongs to the hub.
    SuperAdministrator,
    /// An administrator of a tenant.
    Administrator,
    /// Any other user of a tenant.
    User,
}

/// The answer to a request, with its reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// The subject may do the action.
    Allowed(Rule),
    /// The subject may not.
    Refused {
        /// The reason, for the audit. The subject may see the reason only if the entity is not hidden.
        why: Why,
        /// Whether the subject must not learn that the entity exists: it has no right at all on the entity.
        hidden: bool,
    },
}

/// The rule by which a subject may do an action.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The subject is a super administrator.
    SuperAdministrator,
    /// The subject is an administrator of the entity's tenant.
    Administrator,
    /// The subject owns the entity.
    Owner,
    /// The entity is the subject's own account.
    OwnAccount,
    /// Each user of the tenant has this right.
    Member,
    /// The subject, or a group of the subject, has a grant.
    Granted(GrantId),
    /// An outside policy has allowed the action.
    Outside,
}

/// The reason of a refusal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The directory does not have the user.
    UnknownUser,
    /// The entity belongs to another tenant or to the hub.
    Foreign,
    /// The action has no meaning for the kind.
    NoSuchAction,
    /// The user has the right, but the scope of the token lacks it.
    OutOfScope,
    /// The default policy gives the right; the policy of this hub takes it away.
    Policy,
    /// No rule and no grant gives the right.
    NoRight,
    /// An outside policy has refused, with this reason.
    Outside(String),
    /// An outside policy gave no valid answer, with this fault.
    OutsideFailed(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownUser => f.write_str("the user does not exist"),
            Self::Foreign => f.write_str("the entity belongs to another tenant"),
            Self::NoSuchAction => f.write_str("the kind of the entity has no such action"),
            Self::OutOfScope => f.write_str("the scope of the API token does not include this right"),
            Self::Policy => f.write_str("the policy of this hub takes this right away"),
            Self::NoRight => f.write_str("no rule and no grant gives this right"),
            Self::Outside(reason) => write!(f, "the outside policy refused: {reason}"),
            Self::OutsideFailed(fault) => write!(f, "the outside policy gave no valid answer: {fault}"),
        }
    }
}

/// The answer of an API to a request for an entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Do the action.
    Proceed,
    /// There is no entity of this name (404). The same for an unknown and for a hidden entity.
    NotFound,
    /// The subject may not do this (403), for this reason.
    Forbidden(Why),
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed(_) => f.write_str("allowed"),
            Self::Refused { why, .. } => write!(f, "refused: {why}"),
        }
    }
}

impl Decision {
    /// Whether the subject may do the action.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Whether the subject must not learn that the entity exists.
    pub fn is_hidden(&self) -> bool {
        matches!(self, Self::Refused { hidden: true, .. })
    }

    /// The answer to the subject. For an unknown name the caller decides about an entity without owner, in the tenant
    /// of the subject, and passes `false`: so the work, too, is the same for an unknown and for a hidden entity.
    pub fn answer(self, exists: bool) -> Answer {
        match self {
            Self::Refused { hidden: true, .. } => Answer::NotFound,
            Self::Allowed(_) | Self::Refused { .. } if !exists => Answer::NotFound,
            Self::Allowed(_) => Answer::Proceed,
            Self::Refused { why, .. } => Answer::Forbidden(why),
        }
    }
}

/// Whether the subject may do the action on the entity. The same arguments give the same decision; the work grows with
/// the number of grants of the subject and of the users that gave these grants.
pub fn may(directory: &Directory, subject: &Subject, action: Action, entity: &Entity) -> Decision {
    let refused = |why, hidden| Decision::Refused { why, hidden };
    let Some(person) = Person::find(directory, &subject.user) else { return refused(Why::UnknownUser, true) };
    if !person.reaches(entity) {
        return refused(Why::Foreign, true);
    }
    let scope = subject.scope.as_ref().map_or(Actions::ALL, |scope| scope.actions(entity));
    let rules = person.rules(directory.policy, entity);
    let rule = rules.iter().find(|(_, actions)| actions.has(action));
    if let Some((rule, _)) = rule.filter(|_| scope.has(action)) {
        return Decision::Allowed(rule.clone());
    }
    let granted = person.granted(directory, entity);
    if let Some(grant) = granted.first(action).filter(|_| scope.has(action)) {
        return Decision::Allowed(Rule::Granted(grant));
    }
    let rights = all(&rules) | granted.actions();
    let why = if !entity.kind.actions().has(action) {
        Why::NoSuchAction
    } else if rights.has(action) {
        Why::OutOfScope
    } else if all(&person.rules(Policy::DEFAULT, entity)).has(action) {
        Why::Policy
    } else {
        Why::NoRight
    };
    refused(why, (rights & scope).is_empty())
}

/// The entities that the subject may read, in the same order: the answer to a list request.
pub fn visible<'a>(
    directory: &'a Directory,
    subject: &'a Subject,
    entities: impl IntoIterator<Item = &'a Entity> + 'a,
) -> impl Iterator<Item = &'a Entity> + 'a {
    entities.into_iter().filter(|entity| may(directory, subject, Action::Read, entity).is_allowed())
}

/// The actions on the entity that the subject may give to others by a grant.
pub(crate) fn may_give(directory: &Directory, subject: &Subject, entity: &Entity) -> Actions {
    let Some(person) = Person::find(directory, &subject.user).filter(|person| person.reaches(entity)) else {
        return Actions::NONE;
    };
    let scope = subject.scope.as_ref().map_or(Actions::ALL, |scope| scope.actions(entity));
    let rights = match person.tenant {
        None => super_administrator_gives(directory.policy, entity),
        Some(_) => all(&person.rules(directory.policy, entity)) | person.granted(directory, entity).actions(),
    };
    let gives = rights & scope;
    (gives & grantable(entity)).when(gives.has(Action::Grant))
}

/// The actions that grants can give on the entity.
pub(crate) fn grantable(entity: &Entity) -> Actions {
    let actions = entity.kind.actions();
    let actions = if entity.is_shared() { actions - Actions::WRITE } else { actions };
    actions.when(actions.has(Action::Grant))
}

/// The actions that a super administrator can give: under the delegating policy also actions that it may not do.
pub(crate) fn super_administrator_gives(policy: Policy, entity: &Entity) -> Actions {
    grantable(entity).when(super_administrator(policy, entity).has(Action::Grant))
}

/// A user as the directory knows it.
#[derive(Clone, Copy)]
pub(crate) struct Person<'a> {
    pub(crate) name: &'a Name,
    pub(crate) standing: Standing,
    /// The tenant. Super administrators have no tenant.
    pub(crate) tenant: Option<(&'a Name, &'a Tenant)>,
}

impl<'a> Person<'a> {
    pub(crate) fn find(directory: &'a Directory, id: &UserId) -> Option<Self> {
        let Some(tenant) = &id.tenant else {
            let name = directory.super_administrators.get(&id.name)?;
            return Some(Self { name, standing: Standing::SuperAdministrator, tenant: None });
        };
        let (name, tenant) = directory.tenants.get_key_value(tenant)?;
        Self::member(name, tenant, &id.name)
    }

    pub(crate) fn member(tenant_name: &'a Name, tenant: &'a Tenant, name: &Name) -> Option<Self> {
        let (name, user) = tenant.users.get_key_value(name)?;
        let standing = if user.administrator { Standing::Administrator } else { Standing::User };
        Some(Self { name, standing, tenant: Some((tenant_name, tenant)) })
    }

    /// Whether the entity is on this side of the wall between tenants. No rule and no grant leads through the wall.
    pub(crate) fn reaches(&self, entity: &Entity) -> bool {
        match self.tenant {
            None => true,
            Some((tenant, _)) => entity.tenant.as_ref().map_or(entity.kind.is_catalogue(), |home| home == tenant),
        }
    }

    fn granted(&self, directory: &Directory, entity: &Entity) -> chain::Granted {
        self.tenant.map(|tenant| chain::granted(directory, tenant, self.name, entity)).unwrap_or_default()
    }

    /// The rules of the policy, with the actions that each gives on an entity that the person reaches.
    pub(crate) fn rules(&self, policy: Policy, entity: &Entity) -> [(Rule, Actions); 5] {
        let known = entity.kind.actions();
        let member = self.tenant.is_some();
        let owner = member && entity.kind.is_running() && entity.owner.as_ref() == Some(self.name);
        let account = member && entity.kind == Kind::User && entity.name == *self.name;
        let of_super = super_administrator(policy, entity).when(self.standing == Standing::SuperAdministrator);
        let of_administrator = self.administrator(policy, entity).when(self.standing == Standing::Administrator);
        [
            (Rule::SuperAdministrator, known & of_super),
            (Rule::Administrator, known & of_administrator),
            (Rule::Owner, known.when(owner)),
            (Rule::OwnAccount, (Actions::READ | Actions::EXECUTE).when(account)),
            (Rule::Member, known & of_each_member(policy, entity.kind).when(member)),
        ]
    }

    fn administrator(&self, policy: Policy, entity: &Entity) -> Actions {
        let named = self.tenant.and_then(|(_, tenant)| tenant.users.get(&entity.name));
        match entity.kind.family() {
            Family::Catalogue => Actions::ALL - Actions::WRITE.when(entity.is_shared()),
            Family::User if named.is_some_and(|user| user.administrator) => Actions::READ,
            Family::Tenant => Actions::READ,
            Family::Running | Family::User | Family::Group | Family::Audit => Actions::ALL - private(policy, entity),
        }
    }
}

fn super_administrator(policy: Policy, entity: &Entity) -> Actions {
    let delegated = match entity.kind.family() {
        Family::User | Family::Group | Family::Tenant => Actions::ALL,
        Family::Audit if entity.tenant.is_none() => Actions::ALL,
        Family::Catalogue => Actions::READ | Actions::GRANT,
        Family::Running | Family::Audit => Actions::GRANT,
    };
    let most = if policy.delegating { delegated } else { Actions::ALL };
    most - private(policy, entity)
}

/// The rights on an entity of a user that the policy takes away from administrators.
fn private(policy: Policy, entity: &Entity) -> Actions {
    match entity.kind.family() {
        Family::Running => Actions::ALL.when(policy.private_clusters && entity.owner.is_some()),
        Family::User => Actions::EXECUTE.when(policy.private_clusters && entity.tenant.is_some()),
        Family::Catalogue | Family::Group | Family::Tenant | Family::Audit => Actions::NONE,
    }
}

fn of_each_member(policy: Policy, kind: Kind) -> Actions {
    match kind.family() {
        Family::User | Family::Group | Family::Tenant => Actions::READ,
        Family::Catalogue => (Actions::READ | Actions::EXECUTE).when(!policy.catalogue_by_grant),
        Family::Running | Family::Audit => Actions::NONE,
    }
}

pub(crate) fn all(rules: &[(Rule, Actions)]) -> Actions {
    rules.iter().fold(Actions::NONE, |all, (_, actions)| all | *actions)
}
