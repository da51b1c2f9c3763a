//! Pairs of generations over hosts, switched forth and perhaps back, under all possible events.
//!
//! The rules are stated here a second time, by the simulated world alone: by the systems' own dependencies and the real
//! states, never by the switch order or an engine's view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_engine::sim::{Config, Initial, Outcome, Random, Scene, World};
use cob_engine::time::Span;
use cob_explorer::{Explored, Judge, SwitchPair, explore_switch};
use cob_forecast::{NoOrder, Side, switch_order};
use cob_types::generation::{ManifestHost, Security};
use cob_types::status::CobStatus;
use cob_types::{Bundle, CobId, Generation, GenerationNumber, HostName, Manifest, Packed, StateName, SwitchOrder};

use crate::conditions::Conditions;
use crate::draw;
use crate::shrink::without_thing;
use crate::system::{IN_PROCESS, N, System, Thing, first_transition};

/// Long enough for several repetitions of anything that repeats.
const PATIENCE: Span = Span::secs(1800);
const EVENTS: u64 = 1_000_000;

/// The generation that all hosts have, and the generation that they switch to.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The first generation.
    pub before: System,
    /// The second.
    pub after: System,
}

/// The events besides the switch.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Hosts that are down from before the switch until this time.
    pub away: Vec<(HostName, Span)>,
    /// A rollback is ordered: when all have converged, or at this time after the switch.
    pub back: Option<Option<Span>>,
}

/// The end of a run.
#[derive(Debug, Clone)]
pub enum End {
    /// There is no order in which all change objects can depart: reported before the switch starts.
    Refused(Vec<CobId>),
    /// All change objects have converged.
    Rests(Box<Outcome>),
    /// Some change objects do not converge, and the waits are reported.
    Reported(String),
}

/// Draws a pair of systems within the conditions of progress. `detaching`: transitions out of the preferred state may
/// need other change objects to be up.
///
/// # Panics
/// If no pair is found.
#[must_use]
pub fn draw(sizes: (u64, u64), hosts: (u64, u64), detaching: bool, random: &mut Random) -> Pair {
    let hold = |pair: &Pair| Conditions::of(&pair.before).hold() && Conditions::of(&pair.after).hold();
    let found = (0..1000).map(|_| any(sizes, hosts, detaching, random)).find(hold);
    found.expect("such pairs are not that rare")
}

fn any(sizes: (u64, u64), hosts: (u64, u64), detaching: bool, random: &mut Random) -> Pair {
    let mut before = draw::with_words(sizes, hosts, random);
    let n = before.things.len();
    before.names = (0..n).map(|t| format!("c{t}")).collect();
    for t in 1..n {
        let on = random.below(t as u64) as usize;
        if detaching && before.things[on].outdated.is_none() && random.permille(600) {
            for transition in before.things[t].transitions.iter_mut().filter(|h| (h.0, h.1) == (1, 0)) {
                transition.2.push((on, vec![1]));
            }
        }
    }
    for thing in &mut before.things {
        thing.initial = thing.preferred;
        thing.keep = random.permille(60);
    }
    let hosts = before.things.iter().map(|t| t.host).max().unwrap_or(0) as u64 + 2;
    let mut after = before.clone();
    for t in (0..n).rev() {
        match random.below(1000) {
            0..250 if after.things.len() > 1 => after = without_thing(&after, t),
            250..400 => "other".clone_into(&mut after.things[t].content),
            400..500 => after.things[t].host = random.below(hosts) as usize,
            500..560 => after.things[t].transitions[0].2.clear(),
            _ => {}
        }
    }
    for added in 0..random.below(3) {
        let (t, m) = (after.things.len(), random.below(hosts) as usize);
        let transitions = vec![(0, 1, Vec::new()), (1, 0, Vec::new())];
        after.things.push(Thing {
            host: m,
            states: 2,
            priority: vec![0, 1],
            preferred: 1,
            transitions,
            retries: 1_000_000,
            ..Thing::default()
        });
        after.names.push(format!("n{added}"));
        draw::requires(&mut after.things, t, random.below(t as u64) as usize);
    }
    Pair { before, after }
}

impl Pair {
    /// The order of the switch forth, or back.
    ///
    /// # Errors
    /// The cycle that prevents an order.
    pub fn order(&self, back: bool) -> Result<SwitchOrder, Vec<CobId>> {
        let (first, second) = ((&self.before, 1), (&self.after, 2));
        if back { order(second, first) } else { order(first, second) }
    }
}

/// The order of the switch from a numbered generation to another.
///
/// # Errors
/// The cycle that prevents an order.
pub fn order(from: (&System, u64), to: (&System, u64)) -> Result<SwitchOrder, Vec<CobId>> {
    let (is_back, from, to) = (from.1 > to.1, generation(from.0, from.1), generation(to.0, to.1));
    switch_order(&Side::of(&from), &Side::of(&to), is_back).map_err(|no| match no {
        NoOrder::Circle(circle) => circle,
        NoOrder::Depot(error) => panic!("without a depot: {error}"),
    })
}

fn generation(system: &System, number: u64) -> Generation {
    let number = GenerationNumber(number);
    let mut manifest = Manifest::empty(number, GenerationNumber(number.0 - 1), Security::LoopbackOnly);
    let mut bundles = BTreeMap::new();
    for (host, bundle) in system.bundles() {
        let bytes = cob_types::codec::encode_packed(&*bundle).expect("encodes");
        let (bundle_hash, cobs) = (cob_types::canonical::blob_hash(&bytes), bundle.cobs.len() as u64);
        let entry = ManifestHost { address: None, keys: Vec::new(), bundle: bundle_hash, cobs };
        manifest.hosts.insert(host.clone(), entry);
        bundles.insert(host, (*bundle).clone());
    }
    Generation { manifest, bundles }
}

/// The bundles of a system, and empty bundles for hosts that only the other system has.
pub(crate) fn all_bundles(system: &System, other: &System) -> BTreeMap<HostName, Arc<Bundle>> {
    let mut bundles = system.bundles();
    for host in other.bundles().into_keys() {
        bundles.entry(host.clone()).or_insert_with(|| Arc::new(Packed::empty(host).whole()));
    }
    bundles
}

/// Plays a pair with the order from the generator.
///
/// # Errors
/// The violated rule, or the lack of convergence without a report.
pub fn play(pair: &Pair, plan: &Plan, config: Config) -> Result<End, String> {
    let order = match pair.order(false) {
        Ok(order) => order,
        Err(circle) => return Ok(End::Refused(circle)),
    };
    let (first, second) = (all_bundles(&pair.before, &pair.after), all_bundles(&pair.after, &pair.before));
    let calm = pair.before.bundles();
    let mut world = World::new(&first, &Initial::Given(pair.before.initial()), &[IN_PROCESS], config);
    world.go(GenerationNumber(1), &calm);
    let generations = first.keys().map(|h| (h.clone(), GenerationNumber(0))).collect();
    let mut story = Story { rules: Rules::of(pair), world, generations };
    story.until(|w| calm.keys().all(|h| w.engine(h).is_some_and(cob_engine::Engine::is_converged)));
    let (at_first, began) = (story.states(&pair.before), story.world.outcome().actions.len());
    let started = story.world.now();
    for (host, _) in &plan.away {
        story.world.kill(host);
    }
    story.world.plan_crashes();
    story.world.switch(&order, &second, false);
    let mut returns = plan.away.clone();
    let midway = plan.back.flatten().map(|span| started + span);
    let mut back = plan.back.is_some().then(|| pair.order(true)).and_then(Result::ok);
    let mut went_back = false;
    loop {
        let due = |span: &Span| started + *span;
        returns.retain(|(host, span)| {
            let now = story.world.now() >= due(span) || story.world.next_at().is_none();
            if now {
                story.world.revive(host);
            }
            !now
        });
        let rests = returns.is_empty() && story.world.has_come_to_rest();
        if let Some(order) = back.take_if(|_| midway.map_or(rests, |at| story.world.now() >= at || rests)) {
            story.unneeded_restarts(began, rests)?;
            story.world.switch(&order, &first, true);
            went_back = true;
            continue;
        }
        let over = story.world.now() > started + PATIENCE || story.world.outcome().events > EVENTS;
        if rests || over || !story.step()? {
            break;
        }
    }
    if !story.world.has_come_to_rest() {
        return story.report();
    }
    if went_back {
        let now = story.states(&pair.before);
        if now != at_first {
            return Err(format!("after the way back it is not as it was: {now:?}, not {at_first:?}"));
        }
    } else {
        story.unneeded_restarts(began, true)?;
        story.rules.rests(false, &story.world)?;
    }
    Ok(End::Rests(Box::new(story.world.outcome().clone())))
}

/// Explores every run of the switch of a pair, and of its rollback if the plan has it; `None`: there is no order in
/// which all change objects can depart.
#[must_use]
pub fn explore(pair: &Pair, plan: &cob_explorer::Plan) -> Option<Explored> {
    let order = pair.order(false).ok()?;
    let way_back = plan.back.then(|| pair.order(true)).transpose().ok()?;
    let (first, second) = (all_bundles(&pair.before, &pair.after), all_bundles(&pair.after, &pair.before));
    let rules = Rules::of(pair);
    let switch = SwitchPair { second: &second, order: &order, way_back: way_back.as_ref(), judge: &rules };
    Some(explore_switch(&first, &pair.before.initial(), switch, plan))
}

/// A run, and the world's judgement of it.
struct Story<'a> {
    rules: Rules<'a>,
    world: World,
    /// The generation of each host at the last check.
    generations: BTreeMap<HostName, GenerationNumber>,
}

impl Story<'_> {
    fn until(&mut self, done: impl Fn(&World) -> bool) {
        while !done(&self.world) && self.world.step() {}
        self.note_generations();
    }

    /// Also for a host that dies in the same step in which it activates: other hosts may have rolled back later.
    fn note_generations(&mut self) -> Vec<(HostName, GenerationNumber, GenerationNumber)> {
        let mut changed = Vec::new();
        for (host, known) in &mut self.generations {
            let Some(now) = self.world.generation_of(host) else { continue };
            let was = std::mem::replace(known, now);
            if was != now {
                changed.push((host.clone(), was, now));
            }
        }
        changed
    }

    /// Runs the next event, and checks the rules.
    fn step(&mut self) -> Result<bool, String> {
        let stepped = self.world.step();
        for (host, was, now) in self.note_generations() {
            if (was, now) == (GenerationNumber(1), GenerationNumber(2)) {
                self.rules.goes_on(&host, &self.world).map_err(|wrong| format!("{wrong}\n{}", self.world.trace()))?;
            }
        }
        let violations = &self.world.outcome().violations;
        if violations.is_empty() {
            Ok(stepped)
        } else {
            Err(format!("violation: {}\n{}", violations.join("; "), self.world.trace()))
        }
    }

    fn states(&self, system: &System) -> BTreeMap<CobId, Option<StateName>> {
        (0..system.things.len()).map(|t| (system.id(t), self.world.state_of(&system.id(t)).cloned())).collect()
    }

    /// No change object moves unless it changes, or a changed one needs it in another state: see [`Rules::disturbed`].
    fn unneeded_restarts(&self, began: usize, rests: bool) -> Result<(), String> {
        if !rests {
            return Ok(());
        }
        let moved: BTreeSet<&CobId> = self.world.outcome().actions[began..].iter().map(|a| &a.1).collect();
        let wrong = moved.into_iter().find_map(|id| self.rules.moves(id).err());
        wrong.map_or(Ok(()), |wrong| Err(format!("{wrong}: {:?}", &self.world.outcome().actions[began..])))
    }

    /// Not idle: a change object must report that it waits.
    fn report(&self) -> Result<End, String> {
        let mut text = self.world.trace().to_owned();
        for (host, generation) in &self.generations {
            let Some(engine) = self.world.engine(host) else { continue };
            let waits = |s: &CobStatus| !s.waits_for.is_empty() || !s.trouble.is_empty();
            let all: Vec<_> = engine.status(self.world.now()).into_iter().filter(waits).collect();
            let all: Vec<_> = all.iter().map(|s| format!("{} {:?} {:?}", s.id, s.waits_for, s.trouble)).collect();
            text += &format!(
                "{host} in {generation}, to {:?}: {all:?} {:?}\n",
                engine.pending_generation(),
                engine.switch_waits()
            );
        }
        if text.contains("Lock") || text.contains("SwitchWait") { Ok(End::Reported(text)) } else { Err(text) }
    }
}

/// The permitted events in the switch of a pair, by the systems' own dependencies alone.
struct Rules<'a> {
    pair: &'a Pair,
    may_move: BTreeSet<CobId>,
}

impl<'a> Rules<'a> {
    fn of(pair: &'a Pair) -> Self {
        let mut rules = Self { pair, may_move: BTreeSet::new() };
        rules.may_move = rules.disturbed();
        rules
    }

    fn real(&self, t: usize, scene: &dyn Scene) -> usize {
        let (system, id) = (&self.pair.before, self.pair.before.id(t));
        let state = scene.state_of(&id);
        (0..system.things[t].states).find(|s| Some(&system.state(t, *s)) == state).unwrap_or(0)
    }

    fn leaves(&self, t: usize) -> bool {
        !ids(&self.pair.after).contains_key(&self.pair.before.id(t))
    }

    /// Whether it is the same in both generations, according to the systems.
    fn is_same(&self, t: usize) -> bool {
        let Pair { before, after } = self.pair;
        let names = |system: &System, needs: &[N]| -> BTreeSet<(CobId, Vec<usize>)> {
            needs.iter().map(|(on, states)| (system.id(*on), states.clone())).collect()
        };
        let all = |system: &System, t: usize| {
            let thing = &system.things[t];
            let transitions: Vec<_> = thing.transitions.iter().map(|h| (h.0, h.1, names(system, &h.2))).collect();
            let locks: Vec<_> = thing.locks.iter().map(|l| (l.0, names(system, &l.1))).collect();
            (thing.content.clone(), transitions, locks)
        };
        ids(after).get(&before.id(t)).is_some_and(|other| all(before, t) == all(after, *other))
    }

    /// The needs of a change object on its route from its real state, and transitively their needs.
    fn still_needs(&self, t: usize, target: usize, scene: &dyn Scene, needed: &mut BTreeSet<(usize, Vec<usize>)>) {
        let thing = &self.pair.before.things[t];
        let mut all: Vec<N> = Vec::new();
        let mut at = self.real(t, scene);
        while let Some(transition) = first_transition(thing, at, target) {
            all.extend(thing.transitions[transition].2.iter().cloned());
            at = thing.transitions[transition].1;
        }
        all.extend(thing.locks.iter().filter(|l| l.0 == target).flat_map(|l| l.1.iter().cloned()));
        for (on, states) in all {
            if needed.insert((on, states.clone())) {
                let real = self.real(on, scene);
                let wanted = if states.contains(&real) { real } else { states[0] };
                self.still_needs(on, wanted, scene, needed);
            }
        }
    }

    /// The departing, new or changed change objects, and those that these need outside their preferred states.
    fn disturbed(&self) -> BTreeSet<CobId> {
        let Pair { before, after } = self.pair;
        let known = ids(before);
        let gone_or_changed = (0..before.things.len()).filter(|t| !self.is_same(*t)).map(|t| before.id(t));
        let new = (0..after.things.len()).map(|t| after.id(t)).filter(|id| !known.contains_key(id));
        let mut all: BTreeSet<CobId> = gone_or_changed.chain(new).collect();
        loop {
            let more: Vec<CobId> = [before, after].into_iter().flat_map(|s| elsewhere(s, &all)).collect();
            let count = all.len();
            all.extend(more);
            if all.len() == count {
                return all;
            }
        }
    }
}

impl Judge for Rules<'_> {
    /// Checks a host that has activated the second generation: all its removed change objects have departed, and the
    /// change objects that others still need in order to depart, from their real states, are unchanged.
    fn goes_on(&self, host: &HostName, scene: &dyn Scene) -> Result<(), String> {
        let before = &self.pair.before;
        for m in (0..before.things.len()).filter(|m| self.leaves(*m)) {
            let (thing, real) = (&before.things[m], self.real(m, scene));
            if thing.keep || real == thing.pre_remove {
                continue;
            }
            let of = before.host(thing.host);
            if of == *host {
                return Err(format!("{host} has gone on, and {} has not left", before.id(m)));
            }
            // A host that follows a rollback has no departures; its earlier messages may still be under way.
            if scene.generation_of(&of) != Some(GenerationNumber(1)) || scene.has_turned(&of) {
                continue;
            }
            let mut needed = BTreeSet::new();
            self.still_needs(m, thing.pre_remove, scene, &mut needed);
            for (b, states) in needed {
                let off = before.things[b].pre_remove;
                let stays = self.is_same(b) || self.leaves(b) && (states.contains(&off) || before.things[b].keep);
                if before.host(before.things[b].host) == *host && !stays {
                    return Err(format!(
                        "{host} has gone on too early: {} needs {} to leave",
                        before.id(m),
                        before.id(b)
                    ));
                }
            }
        }
        Ok(())
    }

    /// No change object moves unless it changes, or a changed one needs it in another state: see [`Rules::disturbed`].
    fn moves(&self, cob: &CobId) -> Result<(), String> {
        if self.may_move.contains(cob) { Ok(()) } else { Err(format!("{cob} is moved for nothing")) }
    }

    fn rests(&self, back: bool, scene: &dyn Scene) -> Result<(), String> {
        let system = if back { &self.pair.before } else { &self.pair.after };
        for t in 0..system.things.len() {
            let (real, preferred) = (scene.state_of(&system.id(t)), system.state(t, system.things[t].preferred));
            if real != Some(&preferred) {
                return Err(format!("{} rests in {real:?}, not in {preferred}", system.id(t)));
            }
        }
        Ok(())
    }
}

fn ids(system: &System) -> BTreeMap<CobId, usize> {
    (0..system.things.len()).map(|t| (system.id(t), t)).collect()
}

/// The change objects that these need in a state other than the preferred one.
fn elsewhere(system: &System, these: &BTreeSet<CobId>) -> Vec<CobId> {
    let mut found = Vec::new();
    for t in (0..system.things.len()).filter(|t| these.contains(&system.id(*t))) {
        let thing = &system.things[t];
        let needs = thing.transitions.iter().flat_map(|h| &h.2).chain(thing.locks.iter().flat_map(|l| &l.1));
        found.extend(needs.filter(|n| !n.1.contains(&system.things[n.0].preferred)).map(|n| system.id(n.0)));
    }
    found
}

/// Random events besides the switch.
#[must_use]
pub fn draw_plan(pair: &Pair, random: &mut Random) -> Plan {
    let hosts: Vec<HostName> = all_bundles(&pair.before, &pair.after).into_keys().collect();
    let mut away = Vec::new();
    for host in hosts {
        if random.permille(120) {
            away.push((host, Span::millis(random.between(1, 3000))));
        }
    }
    let back = match random.below(4) {
        0 => Some(None),
        1 => Some(Some(Span::millis(random.below(400)))),
        _ => None,
    };
    Plan { away, back }
}
