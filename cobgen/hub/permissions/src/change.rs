//! Changes of the directory. [`check`](crate::check) compares each change with the rights of its subject first.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::decide::{Subject, Why};
use crate::directory::{Directory, Giver, Grant, GrantId, Grantee, Group, Names, Pattern, Tenant, User};
use crate::entity::{Action, Actions, Entity, Kind, Name, UserId};
use crate::quota::Quota;

/// A change of the directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// Adds a super administrator.
    AddSuperAdministrator {
        /// The new super administrator.
        name: Name,
    },
    /// Removes a super administrator, and the grants that it gave. The last super administrator stays.
    RemoveSuperAdministrator {
        /// The super administrator.
        name: Name,
    },
    /// Adds a tenant without users.
    AddTenant {
        /// The new tenant.
        tenant: Name,
        /// The quota of the tenant.
        #[serde(default)]
        quota: Quota,
        /// The quota of each user.
        #[serde(default)]
        per_user: Quota,
    },
    /// Removes a tenant with its users, groups and grants. The caller deletes its clusters first.
    RemoveTenant {
        /// The tenant.
        tenant: Name,
    },
    /// Sets the quotas of a tenant.
    SetQuota {
        /// The tenant.
        tenant: Name,
        /// The quota of the tenant.
        quota: Quota,
        /// The quota of each user.
        per_user: Quota,
    },
    /// Adds a user without groups and grants.
    AddUser {
        /// The tenant.
        tenant: Name,
        /// The new user.
        user: Name,
        /// Whether the user is an administrator of the tenant. Only a super administrator appoints administrators.
        #[serde(default)]
        administrator: bool,
    },
    /// Removes a user, the grants to the user and the grants by the user. The caller gives the user's clusters to
    /// another owner first: a later user of the same name would own these clusters.
    RemoveUser {
        /// The tenant.
        tenant: Name,
        /// The user.
        user: Name,
    },
    /// Appoints or dismisses an administrator. Only a super administrator does this.
    SetAdministrator {
        /// The tenant.
        tenant: Name,
        /// The user.
        user: Name,
        /// Whether the user is an administrator afterwards.
        administrator: bool,
    },
    /// Sets the quota of a user.
    SetUserQuota {
        /// The tenant.
        tenant: Name,
        /// The user.
        user: Name,
        /// The quota; without a quota, the tenant's quota for each user applies.
        quota: Option<Quota>,
    },
    /// Sets all groups of a user.
    SetGroups {
        /// The tenant.
        tenant: Name,
        /// The user.
        user: Name,
        /// The groups.
        groups: BTreeSet<Name>,
    },
    /// Adds a group without members.
    AddGroup {
        /// The tenant.
        tenant: Name,
        /// The new group.
        group: Name,
    },
    /// Removes a group and the grants to the group.
    RemoveGroup {
        /// The tenant.
        tenant: Name,
        /// The group.
        group: Name,
    },
    /// Gives rights to a user or group. The subject needs the right to grant and each given right.
    Give {
        /// The tenant.
        tenant: Name,
        /// The receiver.
        to: Grantee,
        /// The given actions.
        actions: Actions,
        /// The entities.
        on: Pattern,
    },
    /// Takes a grant back. The giver may do this, and each subject that may write the grantee.
    Revoke {
        /// The tenant.
        tenant: Name,
        /// The grant.
        grant: GrantId,
    },
}

/// A fault of a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// There is no entity of this name, or it is hidden from the subject.
    NotFound(Kind, Name),
    /// The subject may not do this action.
    Forbidden(Action, Kind, Name, Why),
    /// The name is taken.
    Exists(Kind, Name),
    /// Only a super administrator appoints and dismisses administrators.
    Appointment,
    /// The last super administrator stays.
    LastSuperAdministrator,
    /// The grant has no action.
    NoActions,
    /// The grant has no name.
    NoNames,
    /// Grants cannot give this action on entities of this kind.
    NotGrantable(Action, Kind),
    /// Only entities of the catalogue are shared.
    NotShared(Kind),
    /// The subject cannot give this action, because it lacks the action or the right to grant.
    CannotGive(Action, Kind, Names),
    /// There is no grant of this number, or it is hidden from the subject.
    UnknownGrant(GrantId),
    /// The grant is neither the subject's own nor given to a user or group that the subject may write.
    CannotRevoke(GrantId),
    /// The limit of grants of a user or group, of names of a grant, or of numbers is reached.
    TooMany(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(kind, name) => write!(f, "there is no {kind} {name}"),
            Self::Forbidden(action, kind, name, why) => write!(f, "{action} {kind} {name} is not allowed: {why}"),
            Self::Exists(kind, name) => write!(f, "the {kind} {name} exists already"),
            Self::Appointment => f.write_str("only a super administrator appoints and dismisses administrators"),
            Self::LastSuperAdministrator => f.write_str("the last super administrator cannot be removed"),
            Self::NoActions => f.write_str("the grant names no action"),
            Self::NoNames => f.write_str("the grant names no entity"),
            Self::NotGrantable(action, kind) => write!(f, "a grant cannot give {action} on this kind: {kind}"),
            Self::NotShared(kind) => write!(f, "entities of this kind are never shared: {kind}"),
            Self::CannotGive(action, kind, names) => {
                let names = match names {
                    Names::All => "each name".to_owned(),
                    Names::Listed(names) => names.iter().map(Name::as_str).collect::<Vec<_>>().join(", "),
                };
                write!(f, "giving {action} on {kind} {names} needs this right and the right to grant")
            }
            Self::UnknownGrant(grant) => write!(f, "there is no grant {}", grant.0),
            Self::CannotRevoke(grant) => write!(f, "only its giver or an administrator takes grant {} back", grant.0),
            Self::TooMany(limit) => f.write_str(limit),
        }
    }
}

/// All faults of a refused change; at least a single fault. A refused change changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Refused(pub Vec<Fault>);

impl Directory {
    /// Makes a change, if the subject may do so, and returns the number of a new grant. A change that gives rights on
    /// listed names needs the facts of these entities; the caller takes the facts from its store.
    pub fn change(
        &mut self,
        subject: &Subject,
        change: &Change,
        entities: &[Entity],
    ) -> Result<Option<GrantId>, Refused> {
        let faults = Check::new(self, subject).faults(change, entities);
        if !faults.is_empty() {
            return Err(Refused(faults));
        }
        Ok(self.apply(subject, change))
    }

    /// The grants of a tenant that the subject may see: given by or to the subject, or to a user or group that the
    /// subject may write.
    pub fn visible_grants<'a>(
        &'a self,
        subject: &'a Subject,
        tenant: &'a Name,
    ) -> impl Iterator<Item = (GrantId, Grantee, &'a Grant)> + 'a {
        let check = Check::new(self, subject);
        let grants = self.tenants.get(tenant).into_iter().flat_map(Tenant::grants);
        grants.filter(move |(_, to, grant)| check.sees(tenant, to, grant))
    }

    fn apply(&mut self, subject: &Subject, change: &Change) -> Option<GrantId> {
        match change {
            Change::AddSuperAdministrator { name } => {
                self.super_administrators.insert(name.clone());
            }
            Change::RemoveSuperAdministrator { name } => {
                self.super_administrators.remove(name);
                let giver = Giver::SuperAdministrator(name.clone());
                self.tenants.values_mut().for_each(|t| t.retain_grants(|_, grant| grant.given_by != giver));
            }
            Change::AddTenant { tenant, quota, per_user } => {
                let new = Tenant { quota: *quota, per_user: *per_user, ..Tenant::default() };
                self.tenants.insert(tenant.clone(), new);
            }
            Change::RemoveTenant { tenant } => {
                self.tenants.remove(tenant);
            }
            Change::SetQuota { tenant, .. }
            | Change::AddUser { tenant, .. }
            | Change::RemoveUser { tenant, .. }
            | Change::SetAdministrator { tenant, .. }
            | Change::SetUserQuota { tenant, .. }
            | Change::SetGroups { tenant, .. }
            | Change::AddGroup { tenant, .. }
            | Change::RemoveGroup { tenant, .. }
            | Change::Give { tenant, .. }
            | Change::Revoke { tenant, .. } => return self.tenants.get_mut(tenant)?.apply(subject, change),
        }
        None
    }
}

impl Tenant {
    fn apply(&mut self, subject: &Subject, change: &Change) -> Option<GrantId> {
        match change {
            Change::SetQuota { quota, per_user, .. } => (self.quota, self.per_user) = (*quota, *per_user),
            Change::AddUser { user, administrator, .. } => {
                self.users.insert(user.clone(), User { administrator: *administrator, ..User::default() });
            }
            Change::RemoveUser { user, .. } => {
                self.users.remove(user);
                let giver = Giver::Member(user.clone());
                self.retain_grants(|_, grant| grant.given_by != giver);
            }
            Change::SetAdministrator { user, administrator, .. } => {
                self.users.get_mut(user)?.administrator = *administrator;
            }
            Change::SetUserQuota { user, quota, .. } => self.users.get_mut(user)?.quota = *quota,
            Change::SetGroups { user, groups, .. } => self.users.get_mut(user)?.groups.clone_from(groups),
            Change::AddGroup { group, .. } => {
                self.groups.insert(group.clone(), Group::default());
            }
            Change::RemoveGroup { group, .. } => {
                self.groups.remove(group);
                self.users.values_mut().for_each(|user| {
                    user.groups.remove(group);
                });
            }
            Change::Give { to, actions, on, .. } => {
                let id = GrantId(self.last_grant.checked_add(1)?);
                let grant = Grant { actions: *actions, on: on.clone(), given_by: giver(&subject.user) };
                self.grants_of_mut(to)?.insert(id, grant);
                self.last_grant = id.0;
                return Some(id);
            }
            Change::Revoke { grant, .. } => self.retain_grants(|id, _| id != *grant),
            Change::AddSuperAdministrator { .. }
            | Change::RemoveSuperAdministrator { .. }
            | Change::AddTenant { .. }
            | Change::RemoveTenant { .. } => {}
        }
        None
    }
}

pub(crate) fn giver(user: &UserId) -> Giver {
    match user.tenant {
        None => Giver::SuperAdministrator(user.name.clone()),
        Some(_) => Giver::Member(user.name.clone()),
    }
}
