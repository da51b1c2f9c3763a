//! Random tenants, users, grants, entities and tokens, as plain data for both sides of the comparison.

use std::collections::BTreeSet;

use cob_permissions::{
    Action, Actions, Directory, Entity, Giver, Grant, GrantId, Group, Kind, Name, Names, Pattern, Scope, ScopeRule,
    Subject, Tenant, User, UserId,
};

/// Random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    /// A number below the limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    /// Whether a choice with these odds in a hundred is made.
    pub fn percent(&mut self, odds: usize) -> bool {
        self.below(100) < odds
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn some<T: Copy>(&mut self, from: &[T], odds: usize) -> Vec<T> {
        from.iter().copied().filter(|_| self.percent(odds)).collect()
    }
}

/// The tenants.
pub const TENANTS: [&str; 2] = ["a", "b"];
/// The names of users; not each tenant has each user.
pub const USERS: [&str; 4] = ["u0", "u1", "u2", "u3"];
/// The groups of each tenant.
pub const GROUPS: [&str; 2] = ["g0", "g1"];
const THINGS: [&str; 2] = ["x", "y"];
/// The super administrator.
pub const ROOT: &str = "root";

/// A user of a tenant.
pub struct Account {
    pub tenant: &'static str,
    pub name: &'static str,
    pub administrator: bool,
    pub groups: Vec<&'static str>,
}

/// A grant. A giver without a name in [`USERS`] is a super administrator.
pub struct Gift {
    pub tenant: &'static str,
    pub to: &'static str,
    pub giver: &'static str,
    pub actions: Vec<Action>,
    pub kind: Kind,
    pub names: Option<Vec<&'static str>>,
    pub shared: bool,
}

/// An entity; the tenant of the hub is "".
pub struct Thing {
    pub kind: Kind,
    pub tenant: &'static str,
    pub name: &'static str,
    pub owner: Option<&'static str>,
    pub cluster: Option<&'static str>,
}

/// A line of a token: actions, kind, names.
pub type Line = (Vec<Action>, Kind, Option<Vec<&'static str>>);

/// Accounts and grants.
pub struct World {
    pub accounts: Vec<Account>,
    pub gifts: Vec<Gift>,
}

fn kind(random: &mut Random) -> Kind {
    let all = Kind::ALL;
    if random.percent(60) { random.pick(&[Kind::Cluster, Kind::Template, Kind::Machine]) } else { random.pick(&all) }
}

fn names(random: &mut Random) -> Option<Vec<&'static str>> {
    if random.percent(30) { None } else { Some(random.some(&THINGS, 70)) }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn to_names(names: Option<&Vec<&str>>) -> Names {
    names.map_or(Names::All, |names| Names::Listed(names.iter().map(|text| name(text)).collect()))
}

impl World {
    /// A random world, with many grants on this entity.
    pub fn new(random: &mut Random, thing: &Thing) -> Self {
        let mut accounts = Vec::new();
        for (tenant, user) in TENANTS.iter().flat_map(|tenant| USERS.map(|user| (*tenant, user))) {
            if random.percent(85) {
                let (administrator, groups) = (random.percent(10), random.some(&GROUPS, 40));
                accounts.push(Account { tenant, name: user, administrator, groups });
            }
        }
        let mut gifts = Vec::new();
        for _ in 0..random.below(16) {
            let giver = if random.percent(12) { random.pick(&[ROOT, "gone"]) } else { random.pick(&USERS) };
            let to = if random.percent(30) { random.pick(&GROUPS) } else { random.pick(&USERS) };
            let mut actions = random.some(&[Action::Read, Action::Write, Action::Execute], 60);
            actions.extend(random.percent(70).then_some(Action::Grant));
            let near = random.percent(75);
            let tenant = if near && !thing.tenant.is_empty() { thing.tenant } else { random.pick(&TENANTS) };
            let kind = match near {
                true if thing.cluster.is_some() && random.percent(50) => Kind::Cluster,
                true => thing.kind,
                false => kind(random),
            };
            let shared = if near { thing.tenant.is_empty() } else { random.percent(30) };
            gifts.push(Gift { tenant, to, giver, actions, kind, names: names(random), shared });
        }
        // Grants to users that do not exist have no place in the directory.
        let exists = |gift: &Gift| {
            GROUPS.contains(&gift.to) || accounts.iter().any(|a| (a.tenant, a.name) == (gift.tenant, gift.to))
        };
        gifts.retain(exists);
        Self { accounts, gifts }
    }

    /// The world as the directory of cob-permissions.
    pub fn directory(&self) -> Directory {
        let mut directory = Directory { super_administrators: [name(ROOT)].into(), ..Directory::default() };
        for tenant in TENANTS {
            let groups = GROUPS.map(|group| (name(group), Group::default())).into();
            directory.tenants.insert(name(tenant), Tenant { groups, ..Tenant::default() });
        }
        for account in &self.accounts {
            let groups: BTreeSet<Name> = account.groups.iter().map(|group| name(group)).collect();
            let user = User { administrator: account.administrator, groups, ..User::default() };
            let tenant = directory.tenants.get_mut(&name(account.tenant)).expect("a tenant");
            tenant.users.insert(name(account.name), user);
        }
        for (id, gift) in (1..).zip(&self.gifts) {
            let known = USERS.contains(&gift.giver);
            let giver = name(gift.giver);
            let given_by = if known { Giver::Member(giver) } else { Giver::SuperAdministrator(giver) };
            let on = Pattern { kind: gift.kind, names: to_names(gift.names.as_ref()), shared: gift.shared };
            let grant = Grant { actions: gift.actions.iter().copied().collect(), on, given_by };
            let tenant = directory.tenants.get_mut(&name(gift.tenant)).expect("a tenant");
            let grants = match tenant.groups.get_mut(&name(gift.to)) {
                Some(group) => &mut group.grants,
                None => &mut tenant.users.get_mut(&name(gift.to)).expect("a user").grants,
            };
            grants.insert(GrantId(id), grant);
        }
        directory
    }
}

impl Gift {
    /// Whether the grant is about this entity or about its cluster.
    pub fn is_about(&self, thing: &Thing) -> bool {
        let place = if self.shared { thing.tenant.is_empty() } else { thing.tenant == self.tenant };
        let named = |name| self.names.as_ref().is_none_or(|names| names.contains(&name));
        let part = self.kind == Kind::Cluster && matches!(thing.kind, Kind::Machine | Kind::Job);
        place && ((self.kind == thing.kind && named(thing.name)) || (part && thing.cluster.is_some_and(named)))
    }
}

impl Thing {
    /// A random entity.
    pub fn new(random: &mut Random) -> Self {
        let kind = kind(random);
        let tenant = if random.percent(20) { "" } else { TENANTS[usize::from(random.percent(20))] };
        let of_user = kind == Kind::User && random.percent(80);
        let name = if of_user { random.pick(&USERS) } else { random.pick(&THINGS) };
        let owner = random.percent(80).then(|| random.pick(&USERS));
        let cluster = random.percent(60).then(|| random.pick(&THINGS));
        let name = if kind == Kind::Tenant { if tenant.is_empty() { "c" } else { tenant } } else { name };
        Self { kind, tenant, name, owner, cluster }
    }

    /// The entity of cob-permissions.
    pub fn entity(&self) -> Entity {
        Entity {
            kind: self.kind,
            tenant: (!self.tenant.is_empty()).then(|| name(self.tenant)),
            name: name(self.name),
            owner: self.owner.map(name),
            cluster: self.cluster.map(name),
        }
    }
}

/// A random scope of a token.
pub fn scope(random: &mut Random) -> Vec<Line> {
    (0..random.below(5)).map(|_| (random.some(&Action::ALL, 60), kind(random), names(random))).collect()
}

/// The subject of cob-permissions.
pub fn subject(tenant: &str, user: &str, scope: Option<&Vec<Line>>) -> Subject {
    let rule = |(actions, kind, names): &Line| {
        let actions: Actions = actions.iter().copied().collect();
        ScopeRule { actions, kind: *kind, names: to_names(names.as_ref()) }
    };
    let scope = scope.map(|lines| Scope(lines.iter().map(rule).collect()));
    Subject { user: UserId { tenant: (!tenant.is_empty()).then(|| name(tenant)), name: name(user) }, scope }
}
