//! Chains of grants: which of a user's grants count for an entity.
//!
//! A grant counts if its giver has the right to grant and the given right on the entity, by a rule of the policy or by
//! another grant that counts. The search goes from the user to the givers of its grants, and to the givers of their
//! grants; then rights flow back from the users that have rights by a rule. A circle of grants therefore gives nothing:
//! no right flows into the circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::decide::{Person, all, grantable, super_administrator_gives};
use crate::directory::{Directory, Giver, GrantId, Tenant};
use crate::entity::{Action, Actions, Entity, Name};

/// The rights of a user by grants.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Granted(BTreeMap<Action, GrantId>);

impl Granted {
    pub(crate) fn actions(&self) -> Actions {
        self.0.keys().copied().collect()
    }

    /// The grant that gives this right.
    pub(crate) fn first(&self, action: Action) -> Option<GrantId> {
        self.0.get(&action).copied()
    }
}

/// A giver of offers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source<'a> {
    SuperAdministrator(&'a Name),
    Member(&'a Name),
}

/// A matching grant: its number, its grantee, and the actions that it offers.
type Offer<'a> = (GrantId, &'a Name, Actions);

/// The rights of a user on an entity that only grants give.
pub(crate) fn granted<'a>(
    directory: &Directory,
    (tenant_name, tenant): (&'a Name, &'a Tenant),
    user: &'a Name,
    entity: &Entity,
) -> Granted {
    let most = grantable(entity);
    // The users that the grants lead to, with their rights; and the matching grants, by giver.
    let mut rights: BTreeMap<&Name, Actions> = BTreeMap::new();
    let mut offers: BTreeMap<Source<'a>, Vec<Offer<'a>>> = BTreeMap::new();
    let mut open = vec![user];
    while let Some(name) = open.pop() {
        // A user that is gone gives nothing.
        let person = Person::member(tenant_name, tenant, name).filter(|_| !rights.contains_key(name));
        let Some(person) = person else { continue };
        let by_rule = all(&person.rules(directory.policy, entity));
        rights.insert(name, by_rule);
        if by_rule.has_all(most) {
            continue;
        }
        for (id, grant) in tenant.grants_to(name).filter(|(_, grant)| grant.on.covers(entity)) {
            let source = match &grant.given_by {
                Giver::SuperAdministrator(giver) => Source::SuperAdministrator(giver),
                Giver::Member(giver) => {
                    open.push(giver);
                    Source::Member(giver)
                }
            };
            offers.entry(source).or_default().push((id, name, grant.actions & most));
        }
    }
    let mut found = Granted::default();
    let mut active: BTreeSet<Source<'a>> = offers.keys().copied().collect();
    while let Some(source) = active.pop_first() {
        let held = match source {
            Source::Member(giver) => rights.get(giver).copied().unwrap_or_default(),
            Source::SuperAdministrator(giver) => {
                super_administrator_gives(directory.policy, entity).when(directory.super_administrators.contains(giver))
            }
        };
        for (id, grantee, offered) in offers.get(&source).into_iter().flatten() {
            let Some(right) = rights.get_mut(grantee) else { continue };
            let added = (*offered & held).when(held.has(Action::Grant)) - *right;
            if added.is_empty() {
                continue;
            }
            *right = *right | added;
            active.insert(Source::Member(grantee));
            if *grantee == user {
                found.0.extend(added.iter().map(|action| (action, *id)));
            }
        }
    }
    found
}
