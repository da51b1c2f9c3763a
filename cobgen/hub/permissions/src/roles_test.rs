//! Cases of the three roles of Coopr and of the documents that describe the permissions of Loom. The name of each test is
//! the rule.

use std::collections::BTreeSet;

use crate::*;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn member(tenant: &str, user: &str) -> Subject {
    Subject { user: UserId { tenant: Some(name(tenant)), name: name(user) }, scope: None }
}

fn root() -> Subject {
    Subject { user: UserId { tenant: None, name: name("root") }, scope: None }
}

fn entity(tenant: &str, kind: Kind, of: &str) -> Entity {
    Entity::of_tenant(&name(tenant), kind, &name(of))
}

/// The cluster `shop` of bob, tenant a.
fn shop() -> Entity {
    entity("a", Kind::Cluster, "shop").owned_by(&name("bob"))
}

fn on(kind: Kind, names: &[&str]) -> Pattern {
    let names = names.iter().map(|text| name(text)).collect();
    Pattern { kind, names: Names::Listed(names), shared: false }
}

fn give(tenant: &str, to: Grantee, actions: Actions, on: Pattern) -> Change {
    Change::Give { tenant: name(tenant), to, actions, on }
}

fn to_user(user: &str) -> Grantee {
    Grantee::User(name(user))
}

/// Tenants a and b, each with the administrator ada and the users bob, carl and dora; dora is in the group `dev`.
fn directory() -> Directory {
    let mut directory = Directory { super_administrators: [name("root")].into(), ..Directory::default() };
    let quota = Quota::default();
    for tenant in ["a", "b"].map(name) {
        let user = |user, administrator| Change::AddUser { tenant: tenant.clone(), user: name(user), administrator };
        let changes = [
            Change::AddTenant { tenant: tenant.clone(), quota, per_user: quota },
            user("ada", true),
            user("bob", false),
            user("carl", false),
            user("dora", false),
            Change::AddGroup { tenant: tenant.clone(), group: name("dev") },
            Change::SetGroups { tenant: tenant.clone(), user: name("dora"), groups: [name("dev")].into() },
        ];
        for change in changes {
            assert_eq!(directory.change(&root(), &change, &[]), Ok(None));
        }
    }
    directory
}

fn rights(directory: &Directory, subject: &Subject, entity: &Entity) -> Actions {
    Action::ALL.into_iter().filter(|action| may(directory, subject, *action, entity).is_allowed()).collect()
}

const READ: Actions = Actions::READ;

fn read_execute() -> Actions {
    READ | Actions::EXECUTE
}

#[test]
fn each_rank_has_its_rights_on_each_kind() {
    let directory = directory();
    let subjects = [root(), member("a", "ada"), member("a", "bob"), member("a", "carl"), member("b", "ada")];
    let (all, none) = (Actions::ALL, Actions::NONE);
    let no_grant = all - Actions::GRANT;
    let no_write = all - Actions::WRITE;
    let read_write = READ | Actions::WRITE;
    let machine = entity("a", Kind::Machine, "web1").owned_by(&name("bob")).in_cluster(&name("shop"));
    let hub_audit = Entity::of_hub(Kind::Audit, &name("log"));
    let template = Entity::of_hub(Kind::Template, &name("web"));
    let table = [
        // Entity; super administrator, administrator, owner, user, administrator of another tenant.
        (entity("a", Kind::Provider, "aws"), [all, all, read_execute(), read_execute(), none]),
        (entity("a", Kind::HardwareType, "big"), [all, all, read_execute(), read_execute(), none]),
        (entity("a", Kind::ImageType, "debian"), [all, all, read_execute(), read_execute(), none]),
        (entity("a", Kind::Service, "nginx"), [all, all, read_execute(), read_execute(), none]),
        (entity("a", Kind::Template, "web"), [all, all, read_execute(), read_execute(), none]),
        (template, [all, no_write, read_execute(), read_execute(), no_write]),
        (shop(), [all, all, all, none, none]),
        (machine, [all, all, all, none, none]),
        (entity("a", Kind::Job, "17").owned_by(&name("bob")), [all, all, all, none, none]),
        (entity("a", Kind::User, "bob"), [no_grant, no_grant, read_execute(), READ, none]),
        (entity("a", Kind::User, "ada"), [no_grant, read_execute(), READ, READ, none]),
        (entity("a", Kind::Group, "dev"), [read_write, read_write, READ, READ, none]),
        (Entity::tenant(&name("a")), [read_write, READ, READ, READ, none]),
        (entity("a", Kind::Audit, "log"), [READ | Actions::GRANT, READ | Actions::GRANT, none, none, none]),
        (hub_audit, [READ | Actions::GRANT, none, none, none, none]),
        (Entity::user(&root().user), [no_grant, none, none, none, none]),
    ];
    for (entity, expected) in table {
        let found = [0, 1, 2, 3, 4].map(|at| rights(&directory, &subjects[at], &entity));
        assert_eq!(found, expected, "{entity}");
    }
}

#[test]
fn a_user_sees_only_its_own_clusters_and_the_administrator_all_of_the_tenant() {
    let directory = directory();
    let other = entity("a", Kind::Cluster, "blog").owned_by(&name("carl"));
    let foreign = entity("b", Kind::Cluster, "shop").owned_by(&name("bob"));
    let clusters = [shop(), other, foreign];
    let names = |subject: Subject| visible(&directory, &subject, &clusters).cloned().collect::<Vec<_>>();
    assert_eq!(names(member("a", "bob")), clusters[..1]);
    assert_eq!(names(member("a", "ada")), clusters[..2]);
    assert_eq!(names(root()), clusters);
}

#[test]
fn an_administrator_writes_only_entities_of_its_own_tenant() {
    let decision = may(&directory(), &member("a", "ada"), Action::Write, &entity("b", Kind::Template, "web"));
    assert_eq!(decision, Decision::Refused { why: Why::Foreign, hidden: true });
}

#[test]
fn only_a_super_administrator_creates_administrators() {
    let mut directory = directory();
    let change = Change::AddUser { tenant: name("a"), user: name("eve"), administrator: true };
    let refused = directory.change(&member("a", "ada"), &change, &[]);
    assert_eq!(refused, Err(Refused(vec![Fault::Appointment])));
    assert_eq!(directory.change(&root(), &change, &[]), Ok(None));
    let dismiss = Change::SetAdministrator { tenant: name("a"), user: name("eve"), administrator: false };
    assert!(directory.change(&member("a", "ada"), &dismiss, &[]).is_err());
}

#[test]
fn an_administrator_grants_permission_to_users_of_its_tenant() {
    let mut directory = directory();
    let web = entity("a", Kind::Template, "web");
    let change = give("a", to_user("bob"), Actions::WRITE, on(Kind::Template, &["web"]));
    let id = directory.change(&member("a", "ada"), &change, std::slice::from_ref(&web)).unwrap().unwrap();
    let decision = may(&directory, &member("a", "bob"), Action::Write, &web);
    assert_eq!(decision, Decision::Allowed(Rule::Granted(id)));
    assert_eq!(rights(&directory, &member("b", "bob"), &web), Actions::NONE);
    let change = give("b", to_user("bob"), Actions::WRITE, on(Kind::Template, &["web"]));
    let refused = directory.change(&member("a", "ada"), &change, &[]);
    assert_eq!(refused, Err(Refused(vec![Fault::NotFound(Kind::Tenant, name("b"))])));
}

#[test]
fn an_owner_shares_a_cluster_with_its_machines_and_jobs() {
    let mut directory = directory();
    let change = give("a", Grantee::Group(name("dev")), read_execute(), on(Kind::Cluster, &["shop"]));
    directory.change(&member("a", "bob"), &change, &[shop()]).unwrap();
    let machine = entity("a", Kind::Machine, "web1").owned_by(&name("bob")).in_cluster(&name("shop"));
    for entity in [shop(), machine] {
        assert_eq!(rights(&directory, &member("a", "dora"), &entity), read_execute());
        assert_eq!(rights(&directory, &member("a", "carl"), &entity), Actions::NONE);
    }
    let write = may(&directory, &member("a", "dora"), Action::Write, &shop());
    assert_eq!(write.answer(true), Answer::Forbidden(Why::NoRight));
}

#[test]
fn the_shared_catalogue_is_written_by_the_super_administrator_alone() {
    let mut directory = directory();
    let change = give("a", to_user("bob"), Actions::WRITE, Pattern { shared: true, ..on(Kind::Template, &["web"]) });
    let web = Entity::of_hub(Kind::Template, &name("web"));
    for subject in [root(), member("a", "ada")] {
        let refused = directory.change(&subject, &change, std::slice::from_ref(&web));
        assert_eq!(refused, Err(Refused(vec![Fault::NotGrantable(Action::Write, Kind::Template)])));
    }
}

#[test]
fn a_delegating_super_administrator_grants_rights_that_it_lacks() {
    let mut directory = directory();
    directory.policy.delegating = true;
    let web = entity("a", Kind::Template, "web");
    assert_eq!(rights(&directory, &root(), &web), READ | Actions::GRANT);
    assert_eq!(rights(&directory, &root(), &shop()), Actions::GRANT);
    let why = may(&directory, &root(), Action::Write, &web);
    assert_eq!(why, Decision::Refused { why: Why::Policy, hidden: false });
    let change = give("a", to_user("bob"), Actions::WRITE, on(Kind::Template, &["web"]));
    directory.change(&root(), &change, std::slice::from_ref(&web)).unwrap();
    assert!(may(&directory, &member("a", "bob"), Action::Write, &web).is_allowed());
    let change = Change::AddUser { tenant: name("a"), user: name("eve"), administrator: true };
    assert_eq!(directory.change(&root(), &change, &[]), Ok(None));
}

#[test]
fn private_clusters_are_hidden_from_administrators() {
    let mut directory = directory();
    directory.policy.private_clusters = true;
    for subject in [root(), member("a", "ada")] {
        let decision = may(&directory, &subject, Action::Read, &shop());
        assert_eq!(decision, Decision::Refused { why: Why::Policy, hidden: true });
        assert!(may(&directory, &subject, Action::Write, &entity("a", Kind::Template, "web")).is_allowed());
        let all = Pattern { kind: Kind::Cluster, names: Names::All, shared: false };
        let refused = directory.change(&subject, &give("a", to_user("carl"), READ, all.clone()), &[]);
        assert_eq!(refused, Err(Refused(vec![Fault::CannotGive(Action::Read, Kind::Cluster, Names::All)])));
    }
    assert_eq!(rights(&directory, &member("a", "bob"), &shop()), Actions::ALL);
}

#[test]
fn the_catalogue_can_be_left_to_grants() {
    let mut directory = directory();
    directory.policy.catalogue_by_grant = true;
    let web = Entity::of_hub(Kind::Template, &name("web"));
    assert!(may(&directory, &member("a", "bob"), Action::Read, &web).is_hidden());
    let shared = Pattern { kind: Kind::Template, names: Names::All, shared: true };
    directory.change(&member("a", "ada"), &give("a", to_user("bob"), read_execute(), shared), &[]).unwrap();
    assert_eq!(rights(&directory, &member("a", "bob"), &web), read_execute());
    assert_eq!(rights(&directory, &member("a", "bob"), &entity("a", Kind::Template, "web")), Actions::NONE);
    assert_eq!(rights(&directory, &member("b", "bob"), &web), Actions::NONE);
}

#[test]
fn a_grant_ends_with_the_rights_of_its_giver() {
    let mut directory = directory();
    let first = give("a", to_user("carl"), READ | Actions::GRANT, on(Kind::Cluster, &["shop"]));
    let first = directory.change(&member("a", "bob"), &first, &[shop()]).unwrap().unwrap();
    let second = give("a", to_user("dora"), READ, on(Kind::Cluster, &["shop"]));
    directory.change(&member("a", "carl"), &second, &[shop()]).unwrap();
    assert!(may(&directory, &member("a", "dora"), Action::Read, &shop()).is_allowed());
    let third = give("a", to_user("dora"), Actions::WRITE, on(Kind::Cluster, &["shop"]));
    let lacks = Fault::CannotGive(Action::Write, Kind::Cluster, Names::Listed([name("shop")].into()));
    assert_eq!(directory.change(&member("a", "carl"), &third, &[shop()]), Err(Refused(vec![lacks])));
    directory.change(&member("a", "bob"), &Change::Revoke { tenant: name("a"), grant: first }, &[]).unwrap();
    assert!(may(&directory, &member("a", "dora"), Action::Read, &shop()).is_hidden());
}

#[test]
fn a_user_without_the_right_to_grant_passes_nothing_on() {
    let mut directory = directory();
    let tenant = directory.tenants.get_mut(&name("a")).unwrap();
    for (id, to, from) in [(1, "carl", "bob"), (2, "dora", "carl")] {
        let given_by = Giver::Member(name(from));
        let grant = Grant { actions: read_execute(), on: on(Kind::Cluster, &["shop"]), given_by };
        tenant.users.get_mut(&name(to)).unwrap().grants.insert(GrantId(id), grant);
    }
    assert_eq!(rights(&directory, &member("a", "carl"), &shop()), read_execute());
    assert_eq!(rights(&directory, &member("a", "dora"), &shop()), Actions::NONE);
}

#[test]
fn a_circle_of_grants_gives_nothing() {
    let mut directory = directory();
    let tenant = directory.tenants.get_mut(&name("a")).unwrap();
    for (id, to, from) in [(1, "carl", "dora"), (2, "dora", "carl"), (3, "carl", "carl")] {
        let given_by = Giver::Member(name(from));
        let grant = Grant { actions: Actions::ALL, on: on(Kind::Cluster, &["shop"]), given_by };
        tenant.users.get_mut(&name(to)).unwrap().grants.insert(GrantId(id), grant);
    }
    for user in ["carl", "dora"] {
        assert_eq!(rights(&directory, &member("a", user), &shop()), Actions::NONE);
    }
}

#[test]
fn the_removal_of_a_user_or_group_removes_its_grants() {
    let mut directory = directory();
    let to_group = give("a", Grantee::Group(name("dev")), READ, on(Kind::Cluster, &["shop"]));
    let to_carl = give("a", to_user("carl"), READ, on(Kind::Cluster, &["shop"]));
    for change in [&to_group, &to_carl] {
        directory.change(&member("a", "bob"), change, &[shop()]).unwrap();
    }
    let group = Change::RemoveGroup { tenant: name("a"), group: name("dev") };
    directory.change(&member("a", "ada"), &group, &[]).unwrap();
    assert_eq!(directory.tenants[&name("a")].grants().count(), 1);
    assert_eq!(directory.tenants[&name("a")].users[&name("dora")].groups, BTreeSet::new());
    let giver = Change::RemoveUser { tenant: name("a"), user: name("bob") };
    directory.change(&member("a", "ada"), &giver, &[]).unwrap();
    assert_eq!(directory.tenants[&name("a")].grants().count(), 0);
    assert_eq!(rights(&directory, &member("a", "bob"), &shop()), Actions::NONE);
}

#[test]
fn a_new_entity_does_not_inherit_the_grants_of_its_name() {
    let mut directory = directory();
    let change = give("a", to_user("carl"), READ, on(Kind::Cluster, &["blog", "shop"]));
    let blog = entity("a", Kind::Cluster, "blog").owned_by(&name("bob"));
    directory.change(&member("a", "bob"), &change, &[shop(), blog.clone()]).unwrap();
    directory.forget(&shop());
    assert_eq!(rights(&directory, &member("a", "carl"), &shop()), Actions::NONE);
    assert_eq!(rights(&directory, &member("a", "carl"), &blog), READ);
    directory.forget(&blog);
    assert_eq!(directory.tenants[&name("a")].grants().count(), 0);
}

#[test]
fn a_token_narrows_the_rights_of_its_user() {
    let directory = directory();
    let rule = ScopeRule { actions: read_execute(), kind: Kind::Cluster, names: Names::Listed([name("shop")].into()) };
    let token = Subject { scope: Some(Scope(vec![rule])), ..member("a", "bob") };
    assert_eq!(rights(&directory, &token, &shop()), read_execute());
    let decision = may(&directory, &token, Action::Write, &shop());
    assert_eq!(decision, Decision::Refused { why: Why::OutOfScope, hidden: false });
    let blog = entity("a", Kind::Cluster, "blog").owned_by(&name("bob"));
    assert!(may(&directory, &token, Action::Read, &blog).is_hidden());
    let other = Subject { user: member("a", "carl").user, ..token };
    assert_eq!(rights(&directory, &other, &shop()), Actions::NONE);
}

#[test]
fn a_refused_change_names_all_faults() {
    let mut directory = directory();
    let before = directory.clone();
    let nothing = give("a", to_user("zoe"), Actions::NONE, on(Kind::Cluster, &[]));
    let refused = directory.change(&member("a", "bob"), &nothing, &[]).unwrap_err();
    let text = "there is no user zoe; the grant names no action; the grant names no entity";
    assert_eq!(refused.to_string(), text);
    let groups = ["x", "y"].map(name).into();
    let unknown = Change::SetGroups { tenant: name("a"), user: name("bob"), groups };
    let refused = directory.change(&member("a", "ada"), &unknown, &[]).unwrap_err();
    assert_eq!(refused.to_string(), "there is no group x; there is no group y");
    let last = Change::RemoveSuperAdministrator { name: name("root") };
    assert_eq!(directory.change(&root(), &last, &[]), Err(Refused(vec![Fault::LastSuperAdministrator])));
    assert_eq!(directory, before);
}

#[test]
fn a_grant_is_taken_back_by_its_giver_or_an_administrator() {
    let mut directory = directory();
    let change = give("a", to_user("carl"), READ, on(Kind::Cluster, &["shop"]));
    let id = directory.change(&member("a", "bob"), &change, &[shop()]).unwrap().unwrap();
    let revoke = Change::Revoke { tenant: name("a"), grant: id };
    let refused =
        |subject, fault| assert_eq!(directory.clone().change(&subject, &revoke, &[]), Err(Refused(vec![fault])));
    refused(member("a", "carl"), Fault::CannotRevoke(id));
    refused(member("a", "dora"), Fault::UnknownGrant(id));
    refused(member("b", "ada"), Fault::NotFound(Kind::Tenant, name("a")));
    for subject in [member("a", "bob"), member("a", "ada"), root()] {
        assert_eq!(directory.clone().change(&subject, &revoke, &[]), Ok(None));
    }
}

#[test]
fn a_quota_counts_for_the_tenant_and_for_each_user() {
    let mut directory = directory();
    let tenant = name("a");
    let limit = |machines| Quota { machines: Some(machines), ..Quota::default() };
    let changes = [
        Change::SetQuota { tenant: tenant.clone(), quota: limit(10), per_user: limit(2) },
        Change::SetUserQuota { tenant: tenant.clone(), user: name("bob"), quota: Some(limit(5)) },
    ];
    for change in &changes {
        directory.change(&root(), change, &[]).unwrap();
    }
    assert!(directory.change(&member("a", "ada"), &changes[0], &[]).is_err());
    let machines = |machines| Usage { machines, ..Usage::default() };
    let fits = |user, wanted| directory.fits(&tenant, &name(user), &machines(7), &machines(0), &machines(wanted));
    assert_eq!(fits("bob", 3), Ok(()));
    assert_eq!(fits("carl", 2), Ok(()));
    assert_eq!(fits("carl", 3).unwrap_err().0.len(), 1);
    assert_eq!(fits("bob", 6).unwrap_err().0.len(), 2);
    let unknown = directory.fits(&name("x"), &name("bob"), &machines(0), &machines(0), &machines(1));
    assert!(unknown.is_err());
}

/// `cargo test --release -p cob-permissions -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn the_time_of_a_list_request() {
    let mut directory = directory();
    let cluster = |at: usize| entity("a", Kind::Cluster, &format!("c{at}")).owned_by(&name("bob"));
    let clusters: Vec<_> = (0..10_000).map(cluster).collect();
    for grants in [0, 10, 1000] {
        for at in directory.tenants[&name("a")].users[&name("carl")].grants.len()..grants {
            let change = give("a", to_user("carl"), READ, on(Kind::Cluster, &[&format!("c{at}")]));
            directory.change(&member("a", "bob"), &change, &clusters[at..=at]).unwrap();
        }
        for user in ["ada", "bob", "carl"] {
            let start = std::time::Instant::now();
            let seen = visible(&directory, &member("a", user), &clusters).count();
            println!("{user}: {seen} of 10,000 clusters with {grants} grants: {:?}", start.elapsed());
        }
    }
}
