//! Compares random decisions of cob-permissions with the decisions of Cedar on the same policy.
//!
//! `default.cedar` has the rules. Cedar has no policy that depends on another decision, so the chains of grants are
//! followed here: a grant is added to the entity as soon as Cedar lets its giver grant and do the given action, until no
//! grant is added. `COB_CEDAR_DECISIONS` is the number of decisions (100,000), `COB_CEDAR_SEED` the seed.

mod world;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::error::Error;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityUid, PolicySet, Request, RestrictedExpression as Value,
};
use cob_permissions::{Action, Decision as Verdict, Kind, Rule, may};

use crate::world::{GROUPS, Gift, Line, ROOT, Random, TENANTS, Thing, USERS, World, scope, subject};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Grants that count: numbers and actions.
type Counted = BTreeSet<(usize, Action)>;

/// Cedar with a world and an entity.
struct Oracle<'a> {
    policies: &'a PolicySet,
    authorizer: Authorizer,
    world: &'a World,
    principals: Vec<Entity>,
    thing: &'a Thing,
    entities: Entities,
    /// The longest chain of grants that count.
    longest: usize,
}

fn uid(kind: &str, tenant: &str, name: &str) -> Result<EntityUid> {
    Ok(format!("{kind}::\"{tenant}/{name}\"").parse()?)
}

fn text(text: &str) -> Value {
    Value::new_string(text.to_owned())
}

fn family(kind: Kind) -> &'static str {
    match kind {
        Kind::Provider | Kind::HardwareType | Kind::ImageType | Kind::Service | Kind::Template => "catalogue",
        Kind::Cluster | Kind::Machine | Kind::Job => "running",
        Kind::User => "user",
        Kind::Group => "group",
        Kind::Tenant => "tenant",
        Kind::Audit => "audit",
    }
}

fn principal(tenant: &str, name: &str, standing: &str, groups: &[&str]) -> Result<Entity> {
    let attributes = [("tenant", tenant), ("name", name), ("standing", standing)];
    let attributes: HashMap<_, _> = attributes.map(|(key, value)| (key.to_owned(), text(value))).into();
    let parents = groups.iter().map(|group| uid("Group", tenant, group)).collect::<Result<HashSet<_>>>()?;
    Ok(Entity::new(uid("User", tenant, name)?, attributes, parents)?)
}

impl<'a> Oracle<'a> {
    fn new(policies: &'a PolicySet, world: &'a World, thing: &'a Thing) -> Result<Self> {
        let mut principals = vec![principal("", ROOT, "super administrator", &[])?];
        for account in &world.accounts {
            let standing = if account.administrator { "administrator" } else { "user" };
            principals.push(principal(account.tenant, account.name, standing, &account.groups)?);
        }
        let (authorizer, entities) = (Authorizer::new(), Entities::empty());
        let mut oracle = Self { policies, authorizer, world, principals, thing, entities, longest: 0 };
        oracle.follow_chains()?;
        Ok(oracle)
    }

    fn follow_chains(&mut self) -> Result<()> {
        let mut counted = Counted::new();
        self.set_entities(&counted)?;
        loop {
            let before = counted.len();
            // All of these steps see the entities of the step before.
            for (at, gift) in self.world.gifts.iter().enumerate().filter(|(_, gift)| gift.is_about(self.thing)) {
                let home = if USERS.contains(&gift.giver) { gift.tenant } else { "" };
                if !self.allows(home, gift.giver, Action::Grant, None)? {
                    continue;
                }
                for action in &gift.actions {
                    if self.allows(home, gift.giver, *action, None)? {
                        counted.insert((at, *action));
                    }
                }
            }
            if counted.len() == before {
                return Ok(());
            }
            self.set_entities(&counted)?;
            self.longest += 1;
        }
    }

    fn set_entities(&mut self, counted: &Counted) -> Result<()> {
        let thing = self.thing;
        let receivers = |wanted: Action| -> Result<Value> {
            let gifts = counted.iter().filter(|(_, action)| *action == wanted).map(|(at, _)| &self.world.gifts[*at]);
            let receiver = |gift: &Gift| {
                let kind = if GROUPS.contains(&gift.to) { "Group" } else { "User" };
                uid(kind, gift.tenant, gift.to).map(Value::new_entity_uid)
            };
            Ok(Value::new_set(gifts.map(receiver).collect::<Result<Vec<_>>>()?))
        };
        let administrator =
            self.world.accounts.iter().any(|a| a.administrator && (a.tenant, a.name) == (thing.tenant, thing.name));
        let attributes = [
            ("family", text(family(thing.kind))),
            ("tenant", text(thing.tenant)),
            ("name", text(thing.name)),
            ("owner", text(thing.owner.unwrap_or_default())),
            ("administrator", Value::new_bool(administrator)),
            ("readers", receivers(Action::Read)?),
            ("writers", receivers(Action::Write)?),
            ("executors", receivers(Action::Execute)?),
            ("granters", receivers(Action::Grant)?),
        ];
        let attributes = attributes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let resource = Entity::new(uid("Thing", "", "it")?, attributes, HashSet::new())?;
        self.entities = Entities::from_entities(self.principals.iter().cloned().chain([resource]), None)?;
        Ok(())
    }

    fn allows(&self, tenant: &str, user: &str, action: Action, scope: Option<&Vec<Line>>) -> Result<bool> {
        let line = |action: Action, kind: Kind, name: &str| text(&format!("{action} {kind} {name}"));
        let mut lines = Vec::new();
        for (actions, kind, names) in scope.into_iter().flatten() {
            let names = names.clone().unwrap_or_else(|| vec!["*"]);
            lines.extend(names.iter().flat_map(|name| actions.iter().map(|action| line(*action, *kind, name))));
        }
        let mut asked = vec![line(action, self.thing.kind, self.thing.name), line(action, self.thing.kind, "*")];
        if let (Some(cluster), Kind::Machine | Kind::Job) = (self.thing.cluster, self.thing.kind) {
            asked.extend([line(action, Kind::Cluster, cluster), line(action, Kind::Cluster, "*")]);
        }
        let context = [
            ("scoped", Value::new_bool(scope.is_some())),
            ("scope", Value::new_set(lines)),
            ("asked", Value::new_set(asked)),
        ];
        let context = Context::from_pairs(context.map(|(key, value)| (key.to_owned(), value)))?;
        let principal = uid("User", tenant, user)?;
        let known = self.entities.get(&principal).is_some();
        let action = format!("Action::\"{action}\"").parse()?;
        let request = Request::new(principal, action, uid("Thing", "", "it")?, context, None)?;
        let response = self.authorizer.is_authorized(&request, self.policies, &self.entities);
        // The attributes of an unknown user are missing; any other error is a fault of the comparison.
        if let Some(error) = response.diagnostics().errors().next().filter(|_| known) {
            return Err(error.to_string().into());
        }
        Ok(response.decision() == Decision::Allow)
    }
}

fn number(variable: &str, otherwise: u64) -> Result<u64> {
    Ok(std::env::var(variable).ok().map(|text| text.parse()).transpose()?.unwrap_or(otherwise))
}

fn main() -> Result<()> {
    let wanted = number("COB_CEDAR_DECISIONS", 100_000)?;
    let seed = number("COB_CEDAR_SEED", 1)?;
    let policies: PolicySet = include_str!("default.cedar").parse()?;
    let mut random = Random(seed);
    let (mut decisions, mut allowed, mut by_grant, mut hidden, mut chains) = (0, 0, 0, 0, 0);
    while decisions < wanted {
        let thing = Thing::new(&mut random);
        let world = World::new(&mut random, &thing);
        let directory = world.directory();
        let oracle = Oracle::new(&policies, &world, &thing)?;
        chains += u64::from(oracle.longest > 1);
        let entity = thing.entity();
        let members = TENANTS.iter().flat_map(|tenant| USERS.map(|user| (*tenant, user)));
        for (tenant, user) in members.chain([("", ROOT), ("", "gone")]) {
            let scope = random.percent(25).then(|| scope(&mut random));
            let subject = subject(tenant, user, scope.as_ref());
            let expected = Action::ALL.map(|action| oracle.allows(tenant, user, action, scope.as_ref()));
            let expected = expected.into_iter().collect::<Result<Vec<_>>>()?;
            for (action, expected_allowed) in Action::ALL.into_iter().zip(&expected) {
                let decision = may(&directory, &subject, action, &entity);
                let expected_hidden = !expected.contains(&true);
                if (decision.is_allowed(), decision.is_hidden()) != (*expected_allowed, expected_hidden) {
                    eprintln!("{directory:#?}\n{subject:?}\n{action} {entity:?}");
                    let text = format!(
                        "seed {seed}: {decision:?}; Cedar: allowed {expected_allowed}, hidden {expected_hidden}"
                    );
                    return Err(text.into());
                }
                decisions += 1;
                allowed += u64::from(decision.is_allowed());
                hidden += u64::from(decision.is_hidden());
                by_grant += u64::from(matches!(decision, Verdict::Allowed(Rule::Granted(_))));
            }
        }
    }
    println!(
        "seed {seed}: {decisions} decisions are equal: {allowed} allow, {by_grant} of them by a grant; {hidden} hide"
    );
    println!("{chains} entities had chains of two or more grants");
    Ok(())
}
