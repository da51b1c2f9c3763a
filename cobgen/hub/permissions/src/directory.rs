//! The directory: tenants, users, groups, grants and the policy. Plain data; [`change`](crate::Change) changes it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entity::{Actions, Entity, Kind, Name};
use crate::quota::{Exceeded, Level, Quota, Usage, fits};

/// Tenants, users, groups and grants of a hub. A grant is a part of a tenant and of its grantee, so no grant can cross
/// tenants, and a decision reads only the grants of the users that it is about.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// The policy. The configuration of the hub sets it; no [`Change`](crate::Change) does, so that a super
    /// administrator without rights cannot give these rights to itself.
    #[serde(default)]
    pub policy: Policy,
    /// The super administrators.
    #[serde(default)]
    pub super_administrators: BTreeSet<Name>,
    /// The tenants.
    #[serde(default)]
    pub tenants: BTreeMap<Name, Tenant>,
}

/// Restrictions of the default policy. Each takes rights away and adds none; they can be combined.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Super administrators manage tenants, users, groups and grants. They write no entity of the catalogue and see no
    /// cluster.
    pub delegating: bool,
    /// Administrators of both ranks have no right on the clusters, machines and jobs of other users, and do not manage
    /// the credentials of other users.
    pub private_clusters: bool,
    /// Users see and use entities of the catalogue only by a grant.
    pub catalogue_by_grant: bool,
}

impl Policy {
    /// The default policy without restrictions.
    pub const DEFAULT: Self = Self { delegating: false, private_clusters: false, catalogue_by_grant: false };
}

/// A tenant: a set of users that share entities, and of which other tenants know nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tenant {
    /// The quota of the whole tenant.
    pub quota: Quota,
    /// The quota of each user that has no own quota.
    pub per_user: Quota,
    /// The users.
    pub users: BTreeMap<Name, User>,
    /// The groups.
    pub groups: BTreeMap<Name, Group>,
    /// The number of the latest grant. Each tenant counts alone, so that a number tells nothing about other tenants.
    pub last_grant: u64,
}

/// A user of a tenant.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct User {
    /// Whether the user is an administrator of the tenant.
    pub administrator: bool,
    /// The groups of the user.
    pub groups: BTreeSet<Name>,
    /// The quota of the user in place of [`Tenant::per_user`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// The grants to this user.
    pub grants: BTreeMap<GrantId, Grant>,
}

/// A group of users of a tenant.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// The grants to the members of this group.
    pub grants: BTreeMap<GrantId, Grant>,
}

/// The number of a grant in its tenant. No number is used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct GrantId(pub u64);

/// Rights that a user gave to another user or a group. A grant counts only as long as its giver has the right to grant
/// and the given right. (The grants of state locks between change objects are unrelated.)
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The given actions.
    pub actions: Actions,
    /// The entities.
    pub on: Pattern,
    /// The giver.
    pub given_by: Giver,
}

/// The giver of a grant: a user of the same tenant or a super administrator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Giver {
    /// A super administrator.
    SuperAdministrator(Name),
    /// A user of the tenant.
    Member(Name),
}

/// The receiver of a grant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Grantee {
    /// A user of the tenant.
    User(Name),
    /// All members of a group of the tenant.
    Group(Name),
}

/// A set of entities of a tenant, or of the shared catalogue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// The kind. A cluster stands for its machines and jobs, too.
    pub kind: Kind,
    /// The names.
    pub names: Names,
    /// Whether the entities are those of the shared catalogue and not those of the tenant.
    #[serde(default)]
    pub shared: bool,
}

/// Names of entities.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Names {
    /// Each name, also of entities that do not exist yet.
    All,
    /// These names.
    Listed(BTreeSet<Name>),
}

impl Names {
    /// Whether the name is among the names.
    pub fn has(&self, name: &Name) -> bool {
        match self {
            Self::All => true,
            Self::Listed(names) => names.contains(name),
        }
    }
}

impl Pattern {
    /// Whether the entity, or the cluster of the entity, is in the set.
    pub fn covers(&self, entity: &Entity) -> bool {
        let named = |(kind, name)| self.kind == kind && self.names.has(name);
        self.shared == entity.tenant.is_none() && entity.titles().any(named)
    }
}

impl Directory {
    /// Checks a request against the quotas of a tenant and of the owner of the cluster. An unknown tenant has no quota
    /// left.
    pub fn fits(
        &self,
        tenant: &Name,
        owner: &Name,
        of_tenant: &Usage,
        of_owner: &Usage,
        wanted: &Usage,
    ) -> Result<(), Exceeded> {
        let quotas = self.tenants.get(tenant).map(|tenant| {
            let own = tenant.users.get(owner).and_then(|user| user.quota);
            (tenant.quota, own.unwrap_or(tenant.per_user))
        });
        let (all, own) = quotas.unwrap_or((Quota::CLOSED, Quota::CLOSED));
        let results = [fits(Level::Tenant, &all, of_tenant, wanted), fits(Level::User, &own, of_owner, wanted)];
        let excess: Vec<_> = results.into_iter().filter_map(Result::err).flat_map(|exceeded| exceeded.0).collect();
        if excess.is_empty() { Ok(()) } else { Err(Exceeded(excess)) }
    }

    /// Removes a deleted entity from all grants, so that a later entity with the same name starts without grants. The
    /// caller decides about the deletion itself.
    pub fn forget(&mut self, entity: &Entity) {
        let shared = entity.tenant.is_none();
        for (name, tenant) in &mut self.tenants {
            if !shared && entity.tenant.as_ref() != Some(name) {
                continue;
            }
            tenant.retain_grants(|_, grant| match &mut grant.on.names {
                Names::Listed(names) if grant.on.shared == shared && grant.on.kind == entity.kind => {
                    names.remove(&entity.name);
                    !names.is_empty()
                }
                Names::Listed(_) | Names::All => true,
            });
        }
    }
}

impl Tenant {
    /// The grants to a user, directly and by its groups.
    pub(crate) fn grants_to(&self, user: &Name) -> impl Iterator<Item = (GrantId, &Grant)> {
        let user = self.users.get(user);
        let groups = user.into_iter().flat_map(|user| &user.groups).filter_map(|group| self.groups.get(group));
        let all = user.into_iter().map(|user| &user.grants).chain(groups.map(|group| &group.grants));
        all.flatten().map(|(id, grant)| (*id, grant))
    }

    /// All grants, with their grantees.
    pub fn grants(&self) -> impl Iterator<Item = (GrantId, Grantee, &Grant)> {
        let to_users = self
            .users
            .iter()
            .flat_map(|(name, user)| user.grants.iter().map(|(id, grant)| (*id, Grantee::User(name.clone()), grant)));
        let to_groups = self.groups.iter().flat_map(|(name, group)| {
            group.grants.iter().map(|(id, grant)| (*id, Grantee::Group(name.clone()), grant))
        });
        to_users.chain(to_groups)
    }

    pub(crate) fn retain_grants(&mut self, mut keep: impl FnMut(GrantId, &mut Grant) -> bool) {
        let of_users = self.users.values_mut().map(|user| &mut user.grants);
        for grants in of_users.chain(self.groups.values_mut().map(|group| &mut group.grants)) {
            grants.retain(|id, grant| keep(*id, grant));
        }
    }

    pub(crate) fn grants_of_mut(&mut self, grantee: &Grantee) -> Option<&mut BTreeMap<GrantId, Grant>> {
        match grantee {
            Grantee::User(name) => self.users.get_mut(name).map(|user| &mut user.grants),
            Grantee::Group(name) => self.groups.get_mut(name).map(|group| &mut group.grants),
        }
    }
}
