//! A lying member: its possible effects on change objects of other hosts.
//!
//! A converged, idle system; then the daemon of a host is replaced by a program that sends arbitrary messages in the
//! host's name. This module derives the change objects that may be affected from the dependencies of the system alone.

use std::collections::{BTreeMap, BTreeSet};

use cob_engine::event::Order;
use cob_engine::sim::{Config, Initial, Random, Scene as _, World};
use cob_engine::time::Span;
use cob_types::message::{About, DepartureReport, Hello, Probe, RankPhase, Refused, Request};
use cob_types::{CobId, GenerationNumber, HostName, Item, Number, Rank, StateName};

use crate::system::{IN_PROCESS, N, System, Thing};

/// The number of lying messages.
const WORDS: u64 = 150;

/// The effects of the lies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    /// Change objects that no dependency connects with the liar, but that moved or are not idle.
    pub beyond: BTreeSet<CobId>,
    /// Change objects that a dependency connects with the liar, and that moved.
    pub within: BTreeSet<CobId>,
    /// The number of change objects without connection to the liar.
    pub unconcerned: usize,
    /// Violated safety rules.
    pub violations: Vec<String>,
    /// After a fence, change objects that need none of the liar's but do not converge.
    pub stuck: BTreeSet<CobId>,
}

/// Lets the first host of a system lie, and observes the effects.
///
/// # Panics
/// If the system does not converge before.
#[must_use]
pub fn play(system: &System, config: Config) -> Damage {
    let mut random = Random::new(config.seed);
    let bundles = system.bundles();
    let liar = system.host(system.things[0].host);
    let mut world = World::new(&bundles, &Initial::Given(system.initial()), &[IN_PROCESS], config);
    world.go(GenerationNumber(1), &bundles);
    let before = world.run();
    assert!(before.converged, "{:?}", before.violations);
    let began = before.actions.len();
    world.kill(&liar);
    let others: Vec<&HostName> = bundles.keys().filter(|host| **host != liar).collect();
    let mut said = Said { system, liar: &liar, counter: 1 << 40, life: 1 };
    for host in &others {
        world.lie(&liar, host, vec![Item::Hello(Hello { kept: Vec::new() })]);
    }
    for _ in 0..WORDS {
        let Some(to) = (!others.is_empty()).then(|| *random.pick(&others)) else { break };
        let items = (0..random.between(1, 4)).map(|_| said.item(to, &mut random)).collect();
        world.lie(&liar, to, items);
        world.run_for(Span::millis(random.between(1, 20)));
    }
    // It falls silent, and keeps all grants that it holds.
    world.run_for(Span::secs(300));
    let concerned = concerned(system);
    let moved: BTreeSet<CobId> = world.outcome().actions[began..].iter().map(|action| action.1.clone()).collect();
    let rests = |world: &World, t: usize| {
        let at_preferred = world.state_of(&system.id(t)) == Some(&system.state(t, system.things[t].preferred));
        let engine = world.engine(&system.host(system.things[t].host));
        let status = engine.and_then(|engine| engine.status_of(&system.id(t), world.now()));
        at_preferred && status.is_some_and(|status| status.action.is_none() && !status.failed)
    };
    let of_others = || (0..system.things.len()).filter(|t| system.host(system.things[*t].host) != liar);
    let free: Vec<usize> = of_others().filter(|t| !concerned.contains(t)).collect();
    let mut damage = Damage { unconcerned: free.len(), ..Damage::default() };
    damage.beyond.extend(free.iter().filter(|t| !rests(&world, **t)).map(|t| system.id(*t)));
    damage.beyond.extend(free.iter().map(|t| system.id(*t)).filter(|id| moved.contains(id)));
    damage.within.extend(of_others().map(|t| system.id(t)).filter(|id| moved.contains(id)));
    damage.within.retain(|id| !damage.beyond.contains(id));
    for host in &others {
        world.order(host, Order::Fence(liar.clone()));
    }
    world.run_for(Span::secs(600));
    let needing = needing(system);
    damage.stuck.extend(of_others().filter(|t| !needing.contains(t) && !rests(&world, *t)).map(|t| system.id(t)));
    damage.violations.clone_from(&world.outcome().violations);
    damage
}

fn needs_of(thing: &Thing) -> BTreeSet<usize> {
    let transitions = thing.transitions.iter().flat_map(|transition| &transition.2);
    let needs = transitions.chain(thing.locks.iter().flat_map(|lock| &lock.1));
    needs.map(|need: &N| need.0).chain(thing.budget).collect()
}

/// The change objects connected with the liar by dependencies in either direction, directly or transitively.
fn concerned(system: &System) -> BTreeSet<usize> {
    let liar = system.things[0].host;
    let mut reached: BTreeSet<usize> = (0..system.things.len()).filter(|t| system.things[*t].host == liar).collect();
    loop {
        let more: BTreeSet<usize> = (0..system.things.len())
            .flat_map(|t| needs_of(&system.things[t]).into_iter().map(move |on| (t, on)))
            .flat_map(|(t, on)| [(t, on), (on, t)])
            .filter(|(from, to)| reached.contains(from) && !reached.contains(to))
            .map(|(_, to)| to)
            .collect();
        if more.is_empty() {
            return reached;
        }
        reached.extend(more);
    }
}

/// The change objects that need a change object of the liar, directly or not.
fn needing(system: &System) -> BTreeSet<usize> {
    let liar = system.things[0].host;
    let mut reached: BTreeSet<usize> = (0..system.things.len()).filter(|t| system.things[*t].host == liar).collect();
    loop {
        let needs = |t: &usize| needs_of(&system.things[*t]).iter().any(|on| reached.contains(on));
        let more: BTreeSet<usize> = (0..system.things.len()).filter(|t| !reached.contains(t) && needs(t)).collect();
        if more.is_empty() {
            return reached;
        }
        reached.extend(more);
    }
}

/// The generator of a liar's messages.
struct Said<'a> {
    system: &'a System,
    liar: &'a HostName,
    counter: u64,
    life: u32,
}

impl Said<'_> {
    fn item(&mut self, to: &HostName, random: &mut Random) -> Item {
        self.counter += random.between(1, 3);
        let number = match random.below(8) {
            0 => Number { start: self.life, counter: random.below(1000) },
            _ => Number { start: self.life, counter: self.counter },
        };
        let (own, theirs) = (self.one_of(self.liar, random), self.one_of(to, random));
        let asks = About { asker: own.clone(), asked: theirs.clone(), number };
        let granted = About { asker: theirs.clone(), asked: own.clone(), number };
        match random.below(16) {
            0..9 => Item::Request(self.request(own, theirs, number, random)),
            9 => Item::Release(asks),
            10 => Item::Query(granted),
            11 => Item::Recall(granted),
            12 => Item::Refused(Refused { about: granted, reason: "no".to_owned(), from: None }),
            13 => Item::Hello(Hello { kept: vec![asks] }),
            14 => {
                let (from, to) = (GenerationNumber(random.below(3)), GenerationNumber(random.below(3)));
                Item::AskDepartures(DepartureReport { from, to, epoch: random.below(3), cobs: vec![theirs] })
            }
            _ => {
                let initiator = self.any(random);
                let (generation, path) = (GenerationNumber(1), vec![self.any(random), own]);
                Item::Probe(Probe { to: theirs, initiator, number, generation, path, more: false, wide: true })
            }
        }
    }

    fn request(&self, asker: CobId, asked: CobId, number: Number, random: &mut Random) -> Request {
        let at = (0..self.system.things.len()).find(|t| self.system.id(*t) == asked);
        let states = at.map_or(1, |t| self.system.things[t].states as u64);
        let state = |random: &mut Random| {
            let state = random.below(states) as usize;
            at.map_or_else(|| StateName::new("up").expect("a state"), |t| self.system.state(t, state))
        };
        let set = (0..random.between(1, 2)).map(|_| state(random)).collect();
        Request {
            asker,
            asked,
            number,
            rev: random.below(3),
            set,
            rank: Rank {
                phase: *random.pick(&[RankPhase::DEPARTURE, RankPhase::STAY]),
                generation: GenerationNumber(random.below(2)),
                rank: 0,
            },
            origin: self.any(random),
            fingerprint: None,
            generation: Some(GenerationNumber(random.below(4))).filter(|_| !random.permille(200)),
            failed: false,
        }
    }

    /// A change object of a host, or a name that the host does not have.
    fn one_of(&self, host: &HostName, random: &mut Random) -> CobId {
        let all = 0..self.system.things.len();
        let here: Vec<CobId> = all.map(|t| self.system.id(t)).filter(|id| id.host_str() == host.as_str()).collect();
        if here.is_empty() || random.permille(100) {
            return CobId::on(host, "invented").expect("an id");
        }
        random.pick(&here).clone()
    }

    fn any(&self, random: &mut Random) -> CobId {
        self.system.id(random.below(self.system.things.len() as u64) as usize)
    }
}

/// A system in which some change objects have no connection to the first host.
#[must_use]
pub fn draw(random: &mut Random) -> System {
    let mut system = crate::draw::with_words((3, 8), (2, 3), random);
    // A second part beside it, on the same hosts and an additional host.
    let part = crate::draw::with_words((2, 6), (2, 4), random);
    let first = system.things.len();
    for mut thing in part.things {
        let shift = |needs: &mut Vec<N>| needs.iter_mut().for_each(|need| need.0 += first);
        thing.transitions.iter_mut().for_each(|transition| shift(&mut transition.2));
        thing.locks.iter_mut().for_each(|lock| shift(&mut lock.1));
        thing.host += 1;
        system.things.push(thing);
    }
    for thing in &mut system.things {
        thing.initial = thing.preferred;
    }
    system
}

/// Sums over many runs.
#[must_use]
pub fn count(all: &[Damage]) -> BTreeMap<&'static str, usize> {
    let sum = |of: fn(&Damage) -> usize| all.iter().map(of).sum();
    BTreeMap::from([
        ("unconcerned", sum(|d| d.unconcerned)),
        ("beyond", sum(|d| d.beyond.len())),
        ("within", sum(|d| d.within.len())),
        ("stuck", sum(|d| d.stuck.len())),
        ("violations", sum(|d| d.violations.len())),
    ])
}
