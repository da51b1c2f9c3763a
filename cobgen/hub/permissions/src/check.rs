//! The check of a change of the directory against the rights of its subject.

use crate::change::{Change, Fault, giver};
use crate::decide::{Answer, Person, Subject, Why, grantable, may, may_give};
use crate::directory::{Directory, Grant, GrantId, Grantee, Names, Pattern, Tenant, User};
use crate::entity::{Action, Actions, Entity, Kind, Name};

/// The most grants of a user or group, so that a giver cannot make the decisions of its grantee slow.
const MOST_GRANTS: usize = 1000;
/// The most names of a grant.
const MOST_NAMES: usize = 1000;

/// The check of a change: collects all faults.
pub(crate) struct Check<'a> {
    directory: &'a Directory,
    subject: &'a Subject,
    faults: Vec<Fault>,
}

impl<'a> Check<'a> {
    pub(crate) fn new(directory: &'a Directory, subject: &'a Subject) -> Self {
        Self { directory, subject, faults: Vec::new() }
    }

    /// All faults of the change; without a fault, the subject may make the change.
    pub(crate) fn faults(mut self, change: &Change, entities: &[Entity]) -> Vec<Fault> {
        match change {
            Change::AddSuperAdministrator { name } => {
                let taken = self.directory.super_administrators.contains(name);
                self.may_create(Entity::of_hub(Kind::User, name), taken);
            }
            Change::RemoveSuperAdministrator { name } => {
                let all = &self.directory.super_administrators;
                let exists = all.contains(name);
                self.may(Action::Write, Entity::of_hub(Kind::User, name), exists);
                if self.faults.is_empty() && all.len() == 1 {
                    self.faults.push(Fault::LastSuperAdministrator);
                }
            }
            Change::AddTenant { tenant, .. } => {
                self.may_create(Entity::tenant(tenant), self.directory.tenants.contains_key(tenant));
            }
            Change::RemoveTenant { tenant } | Change::SetQuota { tenant, .. } => {
                self.may(Action::Write, Entity::tenant(tenant), self.directory.tenants.contains_key(tenant));
            }
            Change::AddUser { tenant, user, administrator } => {
                let Some(known) = self.tenant(tenant) else { return self.faults };
                self.may_create(Entity::of_tenant(tenant, Kind::User, user), known.users.contains_key(user));
                if *administrator {
                    self.may_appoint();
                }
            }
            Change::RemoveUser { tenant, user } | Change::SetUserQuota { tenant, user, .. } => {
                self.may_write_user(tenant, user);
            }
            Change::SetAdministrator { tenant, user, .. } => {
                if self.may_write_user(tenant, user).is_some() {
                    self.may_appoint();
                }
            }
            Change::SetGroups { tenant, user, groups } => {
                let Some((known, before)) = self.may_write_user(tenant, user) else { return self.faults };
                for group in before.groups.symmetric_difference(groups) {
                    let exists = known.groups.contains_key(group);
                    self.may(Action::Write, Entity::of_tenant(tenant, Kind::Group, group), exists);
                }
            }
            Change::AddGroup { tenant, group } => {
                let Some(known) = self.tenant(tenant) else { return self.faults };
                self.may_create(Entity::of_tenant(tenant, Kind::Group, group), known.groups.contains_key(group));
            }
            Change::RemoveGroup { tenant, group } => {
                let Some(known) = self.tenant(tenant) else { return self.faults };
                let exists = known.groups.contains_key(group);
                self.may(Action::Write, Entity::of_tenant(tenant, Kind::Group, group), exists);
            }
            Change::Give { tenant, to, actions, on } => self.give(tenant, to, *actions, on, entities),
            Change::Revoke { tenant, grant } => self.revoke(tenant, *grant),
        }
        self.faults
    }

    /// The tenant, if it exists and the subject may know this.
    fn tenant(&mut self, tenant: &Name) -> Option<&'a Tenant> {
        let known = self.directory.tenants.get(tenant);
        self.may(Action::Read, Entity::tenant(tenant), known.is_some());
        known.filter(|_| self.faults.is_empty())
    }

    fn may(&mut self, action: Action, entity: Entity, exists: bool) {
        match may(self.directory, self.subject, action, &entity).answer(exists) {
            Answer::Proceed => {}
            Answer::NotFound => self.faults.push(Fault::NotFound(entity.kind, entity.name)),
            Answer::Forbidden(why) => self.faults.push(Fault::Forbidden(action, entity.kind, entity.name, why)),
        }
    }

    /// Only a subject that may create the entity learns that the name is taken.
    fn may_create(&mut self, entity: Entity, taken: bool) {
        if !may(self.directory, self.subject, Action::Write, &entity).is_allowed() {
            self.faults.push(Fault::Forbidden(Action::Write, entity.kind, entity.name, Why::NoRight));
        } else if taken {
            self.faults.push(Fault::Exists(entity.kind, entity.name));
        }
    }

    fn may_write_user(&mut self, tenant: &Name, user: &Name) -> Option<(&'a Tenant, &'a User)> {
        let known = self.tenant(tenant)?;
        self.may(Action::Write, Entity::of_tenant(tenant, Kind::User, user), known.users.contains_key(user));
        Some((known, known.users.get(user)?))
    }

    fn may_appoint(&mut self) {
        if self.subject.user.tenant.is_some() {
            self.faults.push(Fault::Appointment);
        }
    }

    fn give(&mut self, tenant: &Name, to: &Grantee, actions: Actions, on: &Pattern, entities: &[Entity]) {
        let Some(known) = self.tenant(tenant) else { return };
        let (receiver, grants) = match to {
            Grantee::User(name) => {
                let user = known.users.get(name).map(|user| &user.grants);
                (Entity::of_tenant(tenant, Kind::User, name), user)
            }
            Grantee::Group(name) => {
                let group = known.groups.get(name).map(|group| &group.grants);
                (Entity::of_tenant(tenant, Kind::Group, name), group)
            }
        };
        self.may(Action::Read, receiver, grants.is_some());
        if grants.is_some_and(|grants| grants.len() >= MOST_GRANTS) {
            self.faults.push(Fault::TooMany(format!("the grantee has {MOST_GRANTS} grants already")));
        }
        if known.last_grant == u64::MAX {
            self.faults.push(Fault::TooMany("no number for a grant is left".to_owned()));
        }
        if actions.is_empty() {
            self.faults.push(Fault::NoActions);
        }
        if on.shared && !on.kind.is_catalogue() {
            self.faults.push(Fault::NotShared(on.kind));
            return;
        }
        match &on.names {
            Names::Listed(names) if names.is_empty() => self.faults.push(Fault::NoNames),
            Names::Listed(names) if names.len() > MOST_NAMES => {
                self.faults.push(Fault::TooMany(format!("the grant names more than {MOST_NAMES} entities")));
            }
            Names::Listed(_) | Names::All => self.may_give(tenant, actions, on, entities),
        }
    }

    fn may_give(&mut self, tenant: &Name, actions: Actions, on: &Pattern, entities: &[Entity]) {
        let possible = stand_ins(tenant, on).first().map(grantable).unwrap_or_default();
        let never = actions - possible;
        self.faults.extend(never.iter().map(|action| Fault::NotGrantable(action, on.kind)));
        let wanted = actions & possible;
        for stand_in in stand_ins(tenant, on) {
            if on.names == Names::All {
                let missing = wanted - may_give(self.directory, self.subject, &stand_in);
                self.faults.extend(missing.iter().map(|action| Fault::CannotGive(action, on.kind, Names::All)));
                continue;
            }
            let same = |entity: &&Entity| {
                (entity.kind, &entity.tenant, &entity.name) == (stand_in.kind, &stand_in.tenant, &stand_in.name)
            };
            // Several machines of a tenant can have the same name, in different clusters.
            let mut found: Vec<_> = entities.iter().filter(same).collect();
            let exists = !found.is_empty();
            if !exists {
                found.push(&stand_in);
            }
            for entity in found {
                let decision = may(self.directory, self.subject, Action::Grant, entity);
                let missing = wanted - may_give(self.directory, self.subject, entity);
                if decision.answer(exists) == Answer::NotFound {
                    self.faults.push(Fault::NotFound(entity.kind, entity.name.clone()));
                    continue;
                }
                let names = || Names::Listed([entity.name.clone()].into());
                self.faults.extend(missing.iter().map(|action| Fault::CannotGive(action, on.kind, names())));
            }
        }
    }

    fn revoke(&mut self, tenant: &Name, id: GrantId) {
        let Some(known) = self.tenant(tenant) else { return };
        match known.grants().find(|(other, ..)| *other == id) {
            Some((_, to, grant)) if self.revokes(tenant, &to, grant) => {}
            Some((_, to, grant)) if self.sees(tenant, &to, grant) => self.faults.push(Fault::CannotRevoke(id)),
            Some(_) | None => self.faults.push(Fault::UnknownGrant(id)),
        }
    }

    /// Whether the subject may take the grant back.
    fn revokes(&self, tenant: &Name, to: &Grantee, grant: &Grant) -> bool {
        let scope = |entity| self.subject.scope.as_ref().is_none_or(|scope| scope.actions(entity).has(Action::Grant));
        let given = self.is_giver(tenant, grant) && stand_ins(tenant, &grant.on).iter().all(scope);
        let receiver = match to {
            Grantee::User(name) => Entity::of_tenant(tenant, Kind::User, name),
            Grantee::Group(name) => Entity::of_tenant(tenant, Kind::Group, name),
        };
        given || may(self.directory, self.subject, Action::Write, &receiver).is_allowed()
    }

    /// Whether the subject may see the grant.
    pub(crate) fn sees(&self, tenant: &Name, to: &Grantee, grant: &Grant) -> bool {
        let Some(person) = Person::find(self.directory, &self.subject.user) else { return false };
        let receives = |(home, data): (&Name, &Tenant)| {
            let groups = data.users.get(person.name).map(|user| &user.groups);
            home == tenant
                && match to {
                    Grantee::User(name) => name == person.name,
                    Grantee::Group(name) => groups.is_some_and(|groups| groups.contains(name)),
                }
        };
        let own = self.is_giver(tenant, grant) || person.tenant.is_some_and(receives);
        (own && self.subject.scope.is_none()) || self.revokes(tenant, to, grant)
    }

    fn is_giver(&self, tenant: &Name, grant: &Grant) -> bool {
        let user = &self.subject.user;
        let here = user.tenant.as_ref().is_none_or(|home| home == tenant);
        here && grant.given_by == giver(user) && Person::find(self.directory, user).is_some()
    }
}

/// Entities with the names of the pattern and without further facts. For all names, an entity that nobody owns and that
/// only rights on all names cover.
fn stand_ins(tenant: &Name, on: &Pattern) -> Vec<Entity> {
    let place = |name: &Name| match on.shared {
        true => Entity::of_hub(on.kind, name),
        false => Entity::of_tenant(tenant, on.kind, name),
    };
    match &on.names {
        // The owner is no user: a right on all clusters is a right on the clusters of other users, too.
        Names::All if on.kind.is_running() => vec![place(&Name::any()).owned_by(&Name::any())],
        Names::All => vec![place(&Name::any())],
        Names::Listed(names) => names.iter().map(place).collect(),
    }
}
