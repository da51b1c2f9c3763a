//! Properties of all decisions and changes, on random directories.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

use crate::roles_test::name;
use crate::*;

const USERS: [&str; 4] = ["u0", "u1", "u2", "u3"];
const GROUPS: [&str; 2] = ["g0", "g1"];
const THINGS: [&str; 2] = ["x", "y"];

fn names(of: &'static [&'static str]) -> impl Strategy<Value = Name> {
    select(of).prop_map(name)
}

fn actions() -> impl Strategy<Value = Actions> {
    // Rights to grant are frequent, so that there are chains.
    let some = vec(select(&Action::ALL[..]), 0..4).prop_map(|list| list.into_iter().collect::<Actions>());
    (some, any::<bool>()).prop_map(|(actions, grant)| actions | if grant { Actions::GRANT } else { Actions::NONE })
}

fn some_names() -> impl Strategy<Value = Names> {
    prop_oneof![Just(Names::All), btree_set(names(&THINGS), 1..3).prop_map(Names::Listed)]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![5 => Just(Kind::Cluster), 2 => Just(Kind::Template), 2 => select(&Kind::ALL[..])]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    (kind(), some_names(), prop::bool::weighted(0.2)).prop_map(|(kind, names, shared)| Pattern { kind, names, shared })
}

fn grant() -> impl Strategy<Value = Grant> {
    let giver = prop_oneof![
        1 => Just(Giver::SuperAdministrator(name("root"))),
        1 => Just(Giver::SuperAdministrator(name("gone"))),
        8 => names(&USERS).prop_map(Giver::Member),
    ];
    (actions(), pattern(), giver).prop_map(|(actions, on, given_by)| Grant { actions, on, given_by })
}

fn grantee() -> impl Strategy<Value = Grantee> {
    prop_oneof![names(&USERS).prop_map(Grantee::User), names(&GROUPS).prop_map(Grantee::Group)]
}

fn insert(tenant: &mut Tenant, to: &Grantee, grant: Grant) {
    tenant.last_grant += 1;
    let id = GrantId(tenant.last_grant);
    if let Some(grants) = tenant.grants_of_mut(to) {
        grants.insert(id, grant);
    }
}

fn tenant() -> impl Strategy<Value = Tenant> {
    let user = (prop::bool::weighted(0.2), btree_set(names(&GROUPS), 0..2));
    let users = vec(prop::option::weighted(0.9, user), USERS.len());
    (users, vec((grantee(), grant()), 0..20)).prop_map(|(users, grants)| {
        let groups = GROUPS.iter().map(|group| (name(group), Group::default())).collect();
        let mut tenant = Tenant { groups, ..Tenant::default() };
        for (user, data) in USERS.iter().zip(users) {
            let Some((administrator, groups)) = data else { continue };
            tenant.users.insert(name(user), User { administrator, groups, ..User::default() });
        }
        for (to, grant) in grants {
            insert(&mut tenant, &to, grant);
        }
        tenant
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    any::<[bool; 3]>().prop_map(|[delegating, private_clusters, catalogue_by_grant]| Policy {
        delegating,
        private_clusters,
        catalogue_by_grant,
    })
}

fn directory() -> impl Strategy<Value = Directory> {
    (policy(), tenant(), tenant()).prop_map(|(policy, a, b)| Directory {
        policy,
        super_administrators: [name("root")].into(),
        tenants: [(name("a"), a), (name("b"), b)].into(),
    })
}

fn member(tenant: &str, user: &Name) -> Subject {
    Subject { user: UserId { tenant: Some(name(tenant)), name: user.clone() }, scope: None }
}

/// Each user of both tenants, a super administrator and an unknown user.
fn subjects() -> Vec<Subject> {
    let mut all: Vec<_> = ["a", "b"].iter().flat_map(|t| USERS.map(|user| member(t, &name(user)))).collect();
    all.extend(["root", "zoe"].map(|user| Subject { user: UserId { tenant: None, name: name(user) }, scope: None }));
    all
}

/// Entities of each kind, in tenant a, tenant b and the hub, with different owners and clusters.
fn entities() -> Vec<Entity> {
    let mut all = Vec::new();
    for kind in Kind::ALL {
        for thing in THINGS.map(name) {
            all.push(Entity::of_hub(kind, &thing));
            let own = Entity::of_tenant(&name("a"), kind, &thing);
            all.push(own.clone().owned_by(&name("u1")).in_cluster(&name("y")));
            all.push(own.owned_by(&name("u0")));
            all.push(Entity::of_tenant(&name("b"), kind, &thing).owned_by(&name("u0")));
        }
    }
    all.push(Entity::tenant(&name("a")));
    all.extend(USERS.map(|user| Entity::of_tenant(&name("a"), Kind::User, &name(user))));
    all
}

fn scope() -> impl Strategy<Value = Scope> {
    let rule = (actions(), kind(), some_names()).prop_map(|(actions, kind, names)| ScopeRule { actions, kind, names });
    vec(rule, 0..5).prop_map(Scope)
}

fn rights(directory: &Directory, subject: &Subject, entity: &Entity) -> Actions {
    Action::ALL.into_iter().filter(|action| may(directory, subject, *action, entity).is_allowed()).collect()
}

fn without_grants(directory: &Directory) -> Directory {
    let mut bare = directory.clone();
    bare.tenants.values_mut().for_each(|tenant| tenant.retain_grants(|_, _| false));
    bare
}

/// The rights of all users of tenant a, by repeated passes over all grants.
fn rights_by_passes(directory: &Directory, entity: &Entity) -> BTreeMap<Name, Actions> {
    let (bare, tenant) = (without_grants(directory), &directory.tenants[&name("a")]);
    let own = |user: &Name| (user.clone(), rights(&bare, &member("a", user), entity));
    let mut held: BTreeMap<Name, Actions> = tenant.users.keys().map(own).collect();
    let root = Subject { user: UserId { tenant: None, name: name("root") }, scope: None };
    let reached = entity.tenant == Some(name("a")) || entity.is_shared();
    let possible = if entity.is_shared() { Actions::ALL - Actions::WRITE } else { Actions::ALL };
    let possible = possible & entity.kind.actions();
    loop {
        let before = held.clone();
        for (_, to, grant) in tenant.grants().filter(|(.., grant)| reached && grant.on.covers(entity)) {
            let giver = match &grant.given_by {
                Giver::SuperAdministrator(giver) if *giver == name("root") => {
                    // A delegating super administrator gives rights that it lacks.
                    if rights(&bare, &root, entity).has(Action::Grant) { possible } else { Actions::NONE }
                }
                Giver::SuperAdministrator(_) => Actions::NONE,
                Giver::Member(giver) => held.get(giver).copied().unwrap_or_default(),
            };
            let added = if giver.has(Action::Grant) { giver & grant.actions & possible } else { Actions::NONE };
            for (user, data) in &tenant.users {
                let receives = match &to {
                    Grantee::User(name) => name == user,
                    Grantee::Group(name) => data.groups.contains(name),
                };
                if receives && let Some(actions) = held.get_mut(user) {
                    *actions = *actions | added;
                }
            }
        }
        if held == before {
            return held;
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let tenant = || names(&["a", "b", "c"]);
    let user = || names(&["u0", "u1", "u2", "new"]);
    let quota = Quota { machines: Some(3), ..Quota::default() };
    prop_oneof![
        tenant().prop_map(move |tenant| Change::AddTenant { tenant, quota, per_user: quota }),
        tenant().prop_map(move |tenant| Change::SetQuota { tenant, quota, per_user: quota }),
        tenant().prop_map(|tenant| Change::RemoveTenant { tenant }),
        user().prop_map(|name| Change::AddSuperAdministrator { name }),
        (tenant(), user(), any::<bool>()).prop_map(|(tenant, user, administrator)| Change::AddUser {
            tenant,
            user,
            administrator
        }),
        (tenant(), user()).prop_map(|(tenant, user)| Change::RemoveUser { tenant, user }),
        (tenant(), user(), any::<bool>()).prop_map(|(tenant, user, administrator)| Change::SetAdministrator {
            tenant,
            user,
            administrator
        }),
        (tenant(), user(), btree_set(names(&["g0", "g1", "g2"]), 0..3))
            .prop_map(|(tenant, user, groups)| Change::SetGroups { tenant, user, groups }),
        (tenant(), names(&["g0", "g2"])).prop_map(|(tenant, group)| Change::AddGroup { tenant, group }),
        (tenant(), names(&["g0", "g2"])).prop_map(|(tenant, group)| Change::RemoveGroup { tenant, group }),
        (tenant(), grantee(), actions(), pattern()).prop_map(|(tenant, to, actions, on)| Change::Give {
            tenant,
            to,
            actions,
            on
        }),
        (tenant(), 0..12_u64).prop_map(|(tenant, id)| Change::Revoke { tenant, grant: GrantId(id) }),
    ]
}

proptest! {
    #[test]
    fn rights_by_grants_are_those_of_repeated_passes(directory in directory()) {
        for entity in entities() {
            for (user, expected) in rights_by_passes(&directory, &entity) {
                prop_assert_eq!(rights(&directory, &member("a", &user), &entity), expected, "{} on {:?}", user, entity);
            }
        }
    }

    #[test]
    fn a_giver_gains_no_right_and_gives_only_its_own(before in directory(), to in grantee(), grant in grant()) {
        let Giver::Member(giver) = grant.given_by.clone() else { return Ok(()) };
        let mut after = before.clone();
        insert(after.tenants.get_mut(&name("a")).unwrap(), &to, grant);
        for entity in entities() {
            let own = rights(&before, &member("a", &giver), &entity);
            for subject in subjects() {
                let gained = rights(&after, &subject, &entity) - rights(&before, &subject, &entity);
                prop_assert!(own.has_all(gained), "{:?} gains {:?} on {:?}", subject, gained, entity);
            }
            prop_assert_eq!(rights(&after, &member("a", &giver), &entity), own);
        }
    }

    #[test]
    fn no_decision_or_change_of_a_tenant_depends_on_another(
        first in directory(), other in tenant(), exists in any::<bool>(), changes in vec(change(), 1..5),
    ) {
        let mut second = first.clone();
        second.tenants.remove(&name("b"));
        if exists {
            second.tenants.insert(name("b"), other);
        }
        let subjects = subjects().into_iter().filter(|subject| subject.user.tenant == Some(name("a")));
        for subject in subjects {
            for (entity, action) in entities().iter().flat_map(|e| Action::ALL.map(|action| (e, action))) {
                prop_assert_eq!(may(&first, &subject, action, entity), may(&second, &subject, action, entity));
            }
            for change in &changes {
                let results = [&first, &second].map(|d| d.clone().change(&subject, change, &entities()));
                prop_assert_eq!(&results[0], &results[1], "{:?}", change);
            }
        }
    }

    #[test]
    fn a_token_allows_no_more_than_its_user(directory in directory(), scope in scope()) {
        for subject in subjects() {
            let token = Subject { scope: Some(scope.clone()), ..subject.clone() };
            for (entity, action) in entities().iter().flat_map(|e| Action::ALL.map(|action| (e, action))) {
                let (own, narrowed) = (may(&directory, &subject, action, entity), may(&directory, &token, action, entity));
                prop_assert!(own.is_allowed() || !narrowed.is_allowed());
                prop_assert!(!own.is_hidden() || narrowed.is_hidden());
                prop_assert_eq!(narrowed.is_allowed(), own.is_allowed() && scope.actions(entity).has(action));
            }
        }
    }

    #[test]
    fn a_hidden_entity_is_answered_like_an_unknown_name(directory in directory(), scope in prop::option::of(scope())) {
        for subject in subjects().into_iter().map(|s| Subject { scope: scope.clone(), ..s }) {
            for entity in entities() {
                let unknown = Entity { owner: None, cluster: None, tenant: subject.user.tenant.clone(), ..entity.clone() };
                let foreign = subject.user.tenant.is_some() && entity.tenant.as_ref().is_some_and(|t| subject.user.tenant.as_ref() != Some(t));
                let seen = Action::ALL.iter().any(|action| may(&directory, &subject, *action, &entity).is_allowed());
                for action in Action::ALL {
                    let decision = may(&directory, &subject, action, &entity);
                    prop_assert_eq!(decision.is_hidden(), !seen);
                    prop_assert!(!foreign || decision.is_hidden());
                    if decision.is_hidden() {
                        let answer = may(&directory, &subject, action, &unknown).answer(false);
                        prop_assert_eq!(decision.answer(true), answer);
                    }
                }
            }
        }
    }

    #[test]
    fn a_restriction_adds_no_right(directory in directory()) {
        let usual = Directory { policy: Policy::DEFAULT, ..directory.clone() };
        for (subject, entity) in subjects().iter().flat_map(|s| entities().into_iter().map(move |e| (s, e))) {
            prop_assert!(rights(&usual, subject, &entity).has_all(rights(&directory, subject, &entity)));
        }
    }

    #[test]
    fn a_refused_change_changes_nothing_and_a_change_stays_in_its_tenant(
        directory in directory(), changes in vec(change(), 1..20),
    ) {
        let mut directory = directory;
        for (at, change) in changes.iter().enumerate() {
            let subject = &subjects()[at % subjects().len()];
            let before = directory.clone();
            let result = directory.change(subject, change, &entities());
            prop_assert!(result.is_ok() || directory == before);
            prop_assert!(!result.is_err_and(|refused| refused.0.is_empty()));
            let home = subject.user.tenant.clone();
            if let Some(home) = home {
                prop_assert_eq!(&before.super_administrators, &directory.super_administrators);
                let others = |d: &Directory| d.tenants.clone().into_iter().filter(|(t, _)| *t != home).collect::<Vec<_>>();
                prop_assert_eq!(others(&before), others(&directory));
            }
            // No name of a user or group is left over.
            for tenant in directory.tenants.values() {
                for (_, _, grant) in tenant.grants() {
                    prop_assert!(!matches!(&grant.given_by, Giver::Member(n) if *n == name("new") && !tenant.users.contains_key(n)));
                }
                let groups: BTreeSet<_> = tenant.users.values().flat_map(|user| &user.groups).collect();
                prop_assert!(groups.iter().all(|group| tenant.groups.contains_key(*group)));
            }
        }
    }

    #[test]
    fn an_accepted_grant_gives_its_rights(
        directory in directory(), user in names(&USERS), to in names(&USERS), actions in actions(), on in pattern(),
    ) {
        let subject = member("a", &user);
        let to = Grantee::User(to);
        let change = Change::Give { tenant: name("a"), to: to.clone(), actions, on: on.clone() };
        let mut after = directory.clone();
        let result = after.change(&subject, &change, &entities());
        let Grantee::User(receiver) = &to else { return Ok(()) };
        if !directory.tenants[&name("a")].users.contains_key(receiver) {
            prop_assert!(result.is_err());
            return Ok(());
        }
        let covered: Vec<_> = entities().into_iter().filter(|entity| on.covers(entity)).collect();
        let in_tenant = |e: &&Entity| e.tenant.as_ref().is_none_or(|t| *t == name("a"));
        let received =
            covered.iter().filter(in_tenant).all(|e| rights(&after, &member("a", receiver), e).has_all(actions));
        if result.is_ok() {
            prop_assert!(received);
        }
    }

    #[test]
    fn data_is_the_same_after_json(directory in directory(), change in change(), scope in scope()) {
        let text = serde_json::to_string(&directory).unwrap();
        prop_assert_eq!(serde_json::from_str::<Directory>(&text).unwrap(), directory.clone());
        let text = serde_json::to_string(&change).unwrap();
        prop_assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), change);
        for subject in subjects().into_iter().map(|s| Subject { scope: Some(scope.clone()), ..s }) {
            let text = serde_json::to_string(&subject).unwrap();
            prop_assert_eq!(serde_json::from_str::<Subject>(&text).unwrap(), subject.clone());
            let decision = may(&directory, &subject, Action::Read, &entities()[0]);
            let text = serde_json::to_string(&decision).unwrap();
            prop_assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision);
        }
    }
}
