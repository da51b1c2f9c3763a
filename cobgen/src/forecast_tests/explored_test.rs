//! Explores small pairs of generations with every order of transitions, departure facts and activations: from each
//! reachable state the end must be reachable. The model follows decision 0008, and shares no code
//! with the computation of orders.

use std::collections::{BTreeMap, BTreeSet};

use cob_engine::sim::Random;
use cob_forecast::{NoOrder, Side, switch_order};
use cob_types::{CobId, Generation, HostName};

use crate::testing::Sketch;

const STATES: [&str; 3] = ["s0", "s1", "s2"];
/// The pre-remove state.
const OFF: u8 = 0;

fn below(draws: &mut Random, n: usize) -> usize {
    usize::try_from(draws.below(n as u64)).expect("small")
}

type Need = (usize, Vec<u8>);

/// A change object in a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thing {
    content: u8,
    preferred: u8,
    transitions: BTreeMap<(u8, u8), Vec<Need>>,
    grants: BTreeMap<u8, Vec<Need>>,
}

#[derive(Debug, Clone)]
struct Pair {
    hosts: Vec<usize>,
    before: Vec<Option<Thing>>,
    after: Vec<Option<Thing>>,
}

fn draw_thing(me: usize, of: usize, draws: &mut Random) -> Thing {
    let need = |draws: &mut Random| {
        let on = (me + 1 + below(draws, of - 1)) % of;
        let first = u8::try_from(draws.below(3)).expect("small");
        let mut states = vec![first];
        if draws.permille(200) {
            states.push((first + 1) % 3);
        }
        (on, states)
    };
    let mut transitions = BTreeMap::new();
    for transition in [(0, 1), (1, 2), (2, 1), (1, 0)] {
        let needs = if draws.permille(350) { vec![need(draws)] } else { Vec::new() };
        transitions.insert(transition, needs);
    }
    let mut grants = BTreeMap::new();
    if draws.permille(200) {
        grants.insert(u8::try_from(1 + draws.below(2)).expect("small"), vec![need(draws)]);
    }
    Thing { content: 0, preferred: u8::try_from(1 + draws.below(2)).expect("small"), transitions, grants }
}

fn draw(seed: u64) -> Pair {
    let draws = &mut Random::new(seed);
    let (things, hosts) = (3 + below(draws, 3), 2 + below(draws, 2));
    let hosts = (0..things).map(|_| below(draws, hosts)).collect();
    let before: Vec<Option<Thing>> =
        (0..things).map(|t| (!draws.permille(100)).then(|| draw_thing(t, things, draws))).collect();
    let mut after: Vec<Option<Thing>> = before
        .iter()
        .enumerate()
        .map(|(t, thing)| match thing {
            None => Some(draw_thing(t, things, draws)),
            Some(_) if draws.permille(450) => None,
            Some(thing) if draws.permille(350) => Some(Thing { content: 1, ..thing.clone() }),
            Some(_) if draws.permille(200) => Some(draw_thing(t, things, draws)),
            Some(thing) => Some(thing.clone()),
        })
        .collect();
    let mut before = before;
    for side in [&mut before, &mut after] {
        let there: Vec<bool> = side.iter().map(Option::is_some).collect();
        for thing in side.iter_mut().flatten() {
            thing
                .transitions
                .values_mut()
                .chain(thing.grants.values_mut())
                .for_each(|needs| needs.retain(|(on, _)| there[*on]));
        }
    }
    Pair { hosts, before, after }
}

impl Pair {
    fn id(&self, thing: usize) -> String {
        format!("h{}/c{thing}", self.hosts[thing])
    }

    fn generation(&self, side: &[Option<Thing>]) -> Generation {
        let mut sketch = Sketch::new();
        sketch.kind("line", &STATES, &["s0>s1", "s1>s2", "s2>s1", "s1>s0"]);
        for host in &self.hosts {
            sketch.host(&format!("h{host}"));
        }
        for (thing, all) in side.iter().enumerate().filter_map(|(t, thing)| Some((t, thing.as_ref()?))) {
            sketch.cob_of("line", &self.id(thing), STATES[usize::from(all.preferred)]);
            sketch.content(&self.id(thing), serde_json::json!({"content": all.content}));
        }
        let told = |(on, states): &Need| {
            let states: Vec<&str> = states.iter().map(|s| STATES[usize::from(*s)]).collect();
            format!("{}@{}", self.id(*on), states.join("|"))
        };
        let state = |s: u8| STATES[usize::from(s)];
        for (thing, all) in side.iter().enumerate().filter_map(|(t, thing)| Some((t, thing.as_ref()?))) {
            let me = self.id(thing);
            for ((from, to), needs) in &all.transitions {
                for need in needs {
                    sketch.transition(&me, state(*from), state(*to), &told(need));
                }
            }
            for (promised, needs) in &all.grants {
                for need in needs {
                    sketch.lock(&me, state(*promised), &told(need));
                }
            }
        }
        sketch.assembled().generation
    }

    fn order(&self) -> Result<Order, NoOrder> {
        let (before, after) = (self.generation(&self.before), self.generation(&self.after));
        let order = switch_order(&Side::of(&before), &Side::of(&after), false)?;
        let thing = |cob: &CobId| (0..self.hosts.len()).find(|t| *cob == *self.id(*t).as_str()).expect("one of them");
        let waits = |host: usize| {
            let host = HostName::new(format!("h{host}").as_str()).expect("a name");
            order.waits_of(&host).map(thing).collect()
        };
        let before = |t: usize| order.before(&CobId::new(self.id(t).as_str()).expect("an id")).map(thing).collect();
        Ok(Order { waits: (0..3).map(waits).collect(), before: (0..self.hosts.len()).map(before).collect() })
    }

    fn leaves(&self, thing: usize) -> bool {
        self.before[thing].is_some() && self.after[thing].is_none()
    }

    fn same_content(&self, thing: usize) -> bool {
        match (&self.before[thing], &self.after[thing]) {
            (Some(old), Some(new)) => old.content == new.content,
            _ => false,
        }
    }
}

struct Order {
    waits: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
}

/// The global state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct At {
    states: Vec<u8>,
    active: Vec<bool>,
    is_final: Vec<bool>,
}

struct Explored<'p> {
    pair: &'p Pair,
    /// `None`: all hosts activate together, after all departures.
    order: Option<&'p Order>,
    /// The requests that each departure may cause, and the requests of the second generation.
    closures: Vec<BTreeSet<Need>>,
    wished: BTreeSet<Need>,
    /// All sets that each is asked for, in either generation.
    asked: Vec<BTreeSet<Vec<u8>>>,
}

/// The possible rests of a request narrowed by others, in the order of the request that comes first (rule 1).
fn left_over(wish: &[u8], others: &BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
    let mut left = BTreeSet::from([wish.to_vec()]);
    for other in others {
        for narrowed in left.clone() {
            let common = |a: &[u8], b: &[u8]| a.iter().copied().filter(|s| b.contains(s)).collect::<Vec<u8>>();
            left.extend([common(&narrowed, other), common(other, &narrowed)].into_iter().filter(|all| !all.is_empty()));
        }
    }
    left
}

/// The requests that a goal may cause, over all transitions from any state and all grants.
fn closure(side: &[Option<Thing>], goal: (usize, u8), asked: &[BTreeSet<Vec<u8>>]) -> BTreeSet<Need> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![goal]);
    let mut wishes: BTreeSet<Need> = BTreeSet::new();
    while let Some(goal) = open.pop() {
        let Some(thing) = &side[goal.0] else { continue };
        if !seen.insert(goal) {
            continue;
        }
        // On a line the way to a state consists of the transitions towards it.
        let towards = |from: u8, to: u8| from.abs_diff(goal.1) > to.abs_diff(goal.1);
        // A change object does not start from a state that all requests for the goal accept.
        let all_wishes: Vec<&Vec<u8>> = asked[goal.0].iter().filter(|set| set.contains(&goal.1)).collect();
        let by_itself = goal.1 == OFF || all_wishes.is_empty() || goal.1 == thing.preferred;
        let is_content = |from: u8| !by_itself && all_wishes.iter().all(|set| set.contains(&from));
        let transitions = thing.transitions.iter().filter(|((from, to), _)| towards(*from, *to) && !is_content(*from));
        let grants = thing.grants.get(&goal.1).into_iter().flatten();
        for (on, states) in transitions.flat_map(|(_, needs)| needs).chain(grants) {
            wishes.insert((*on, states.clone()));
            // A present state counts with its grants; a target state also with its transitions.
            open.extend(left_over(states, &asked[*on]).iter().map(|left| (*on, left[0])));
            let found = side[*on].iter().flat_map(|thing| states.iter().filter_map(|s| thing.grants.get(s)));
            for (on, states) in found.flatten() {
                wishes.insert((*on, states.clone()));
                open.extend(left_over(states, &asked[*on]).iter().map(|left| (*on, left[0])));
            }
        }
    }
    wishes
}

impl<'p> Explored<'p> {
    fn new(pair: &'p Pair, order: Option<&'p Order>) -> Self {
        let mut asked = vec![BTreeSet::new(); pair.hosts.len()];
        for thing in pair.before.iter().chain(&pair.after).flatten() {
            for (on, states) in thing.transitions.values().chain(thing.grants.values()).flatten() {
                asked[*on].insert(states.clone());
            }
        }
        let leaving = |t: usize| if pair.leaves(t) { closure(&pair.before, (t, OFF), &asked) } else { BTreeSet::new() };
        let closures = (0..pair.hosts.len()).map(leaving).collect();
        let goals = pair.after.iter().enumerate().filter_map(|(t, thing)| Some((t, thing.as_ref()?.preferred)));
        let wished = goals.flat_map(|goal| closure(&pair.after, goal, &asked)).collect();
        Self { pair, order, closures, wished, asked }
    }

    fn begin(&self) -> At {
        let state = |thing: &Option<Thing>| thing.as_ref().map_or(OFF, |thing| thing.preferred);
        let things = self.pair.hosts.len();
        At {
            states: self.pair.before.iter().map(state).collect(),
            active: vec![false; 3],
            is_final: vec![false; things],
        }
    }

    fn is_active(&self, at: &At, thing: usize) -> bool {
        at.active[self.pair.hosts[thing]]
    }

    fn is_end(&self, at: &At) -> bool {
        let there =
            |(t, thing): (usize, &Option<Thing>)| thing.as_ref().is_none_or(|thing| at.states[t] == thing.preferred);
        self.pair.hosts.iter().all(|host| at.active[*host]) && self.pair.after.iter().enumerate().all(there)
    }

    /// Whether a need of a generation is satisfied.
    fn holds(&self, at: &At, (on, states): &Need, is_new: bool, depth: usize) -> bool {
        let side = if self.is_active(at, *on) { &self.pair.after } else { &self.pair.before };
        let Some(thing) = &side[*on] else {
            // Removed: counts as locked in its pre-remove state. Not created yet: must be waited for.
            return self.is_active(at, *on) && states.contains(&OFF);
        };
        // A request means the version of the requester's generation.
        let is_meant = self.is_active(at, *on) == is_new || self.pair.same_content(*on);
        if !is_meant {
            return false;
        }
        let state = at.states[*on];
        let grants = thing.grants.get(&state).into_iter().flatten();
        states.contains(&state)
            && depth > 0
            && grants.into_iter().all(|need| self.holds(at, need, self.is_active(at, *on), depth - 1))
    }

    /// The possible targets from its present state: its own target, and the requests, each narrowed by others.
    fn targets(&self, at: &At, thing: usize) -> BTreeSet<u8> {
        let led = |wishes: &BTreeSet<Need>, targets: &mut BTreeSet<u8>| {
            for (_, states) in wishes.iter().filter(|wish| wish.0 == thing) {
                let left = left_over(states, &self.asked[thing]);
                targets.extend(left.iter().filter(|left| !left.contains(&at.states[thing])).map(|left| left[0]));
            }
        };
        let new = self.is_active(at, thing);
        let side = if new { &self.pair.after } else { &self.pair.before };
        let Some(own) = &side[thing] else { return BTreeSet::new() };
        let mut targets = BTreeSet::from([if !new && self.pair.leaves(thing) { OFF } else { own.preferred }]);
        if new {
            led(&self.wished, &mut targets);
        }
        if !new || self.pair.same_content(thing) {
            for leaver in (0..at.states.len()).filter(|t| self.pair.leaves(*t) && !at.is_final[*t]) {
                led(&self.closures[leaver], &mut targets);
            }
        }
        targets
    }

    fn next(&self, at: &At) -> Vec<At> {
        let mut all = Vec::new();
        for thing in 0..at.states.len() {
            let new = self.is_active(at, thing);
            let side = if new { &self.pair.after } else { &self.pair.before };
            let Some(own) = &side[thing] else { continue };
            if at.is_final[thing] && !new {
                continue;
            }
            let state = at.states[thing];
            for target in self.targets(at, thing) {
                let to = match target.cmp(&state) {
                    std::cmp::Ordering::Less => state - 1,
                    std::cmp::Ordering::Equal => continue,
                    std::cmp::Ordering::Greater => state + 1,
                };
                if own.transitions[&(state, to)].iter().all(|need| self.holds(at, need, new, 8)) {
                    let mut next = at.clone();
                    next.states[thing] = to;
                    all.push(next);
                }
            }
            let first = |order: &Order| order.before[thing].iter().all(|t| at.is_final[*t]);
            if self.pair.leaves(thing) && !new && state == OFF && self.order.is_none_or(first) {
                let mut next = at.clone();
                next.is_final[thing] = true;
                all.push(next);
            }
        }
        let leavers = || (0..at.states.len()).filter(|t| self.pair.leaves(*t));
        let hosts: BTreeSet<usize> = self.pair.hosts.iter().copied().collect();
        match self.order {
            // Together, and no departure counts before all are complete.
            None if !at.active.contains(&true) && leavers().all(|t| at.states[t] == OFF) => {
                let mut next = at.clone();
                hosts.iter().for_each(|host| self.activate(&mut next, *host));
                all.push(next);
            }
            None => {}
            Some(order) => {
                for host in hosts.iter().copied().filter(|host| !at.active[*host]) {
                    let own = leavers().filter(|t| self.pair.hosts[*t] == host);
                    if own.chain(order.waits[host].iter().copied()).all(|t| at.is_final[t]) {
                        let mut next = at.clone();
                        self.activate(&mut next, host);
                        all.push(next);
                    }
                }
            }
        }
        if self.order.is_none() {
            all.retain(|next| !next.is_final.contains(&true));
        }
        all
    }

    fn activate(&self, at: &mut At, host: usize) {
        at.active[host] = true;
        for thing in (0..at.states.len()).filter(|t| self.pair.hosts[*t] == host && !self.pair.same_content(*t)) {
            // Changed, new or removed.
            at.states[thing] = OFF;
        }
    }

    /// Whether the second generation alone also cannot end from here. The check refuses that generation after any
    /// predecessor.
    fn is_its_own_fault(&self, at: &At) -> bool {
        let mut alone = at.clone();
        alone.is_final.fill(true);
        for host in self.pair.hosts.iter().filter(|host| !at.active[**host]) {
            self.activate(&mut alone, *host);
        }
        !self.stuck_from(alone).0.is_empty()
    }

    /// A reachable state from which the end can't be reached, although the second generation alone could end; `None` if
    /// there is no such state. The second value is the number of states.
    fn stuck(&self) -> (Option<At>, usize) {
        let (stuck, states) = self.stuck_from(self.begin());
        (stuck.into_iter().find(|at| !self.is_its_own_fault(at)), states)
    }

    fn stuck_from(&self, begin: At) -> (Vec<At>, usize) {
        let mut numbers: BTreeMap<At, usize> = BTreeMap::from([(begin.clone(), 0)]);
        let (mut open, mut users) = (vec![begin], vec![Vec::new()]);
        let mut ends = Vec::new();
        while let Some(at) = open.pop() {
            let me = numbers[&at];
            if self.is_end(&at) {
                ends.push(me);
            }
            for next in self.next(&at) {
                let number = *numbers.entry(next.clone()).or_insert_with(|| {
                    users.push(Vec::new());
                    open.push(next);
                    users.len() - 1
                });
                users[number].push(me);
            }
        }
        let mut leads = vec![false; users.len()];
        while let Some(end) = ends.pop() {
            if !std::mem::replace(&mut leads[end], true) {
                ends.extend(&users[end]);
            }
        }
        let states = numbers.len();
        (numbers.into_iter().filter(|(_, number)| !leads[*number]).map(|(at, _)| at).collect(), states)
    }
}

/// The results for a number of pairs.
#[derive(Debug, Default)]
struct Tally {
    /// A common barrier works.
    possible: usize,
    refused: usize,
    /// Some host waits.
    ordered: usize,
    stuck: Vec<u64>,
    states: usize,
}

fn explore(seeds: std::ops::Range<u64>, change: impl Fn(&mut Order)) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let pair = draw(seed);
        let barrier = Explored::new(&pair, None);
        if !barrier.stuck_from(barrier.begin()).0.is_empty() {
            continue;
        }
        tally.possible += 1;
        let Ok(mut order) = pair.order() else {
            tally.refused += 1;
            continue;
        };
        tally.ordered += usize::from(order.waits.iter().chain(&order.before).any(|all| !all.is_empty()));
        change(&mut order);
        let (stuck, states) = Explored::new(&pair, Some(&order)).stuck();
        tally.states += states;
        if stuck.is_some() {
            tally.stuck.push(seed);
        }
    }
    tally
}

#[test]
fn no_pair_that_a_barrier_leads_through_gets_stuck() {
    let tally = explore(0..pairs(), |_| {});
    println!("{tally:?}");
    assert!(tally.stuck.is_empty(), "pairs that can get stuck, by their seeds: {tally:?}");
    assert!(tally.ordered * 50 > tally.possible, "hardly anybody waits: {tally:?}");
}

#[test]
fn without_the_waits_or_without_the_order_some_pairs_get_stuck() {
    let some_stuck = |change: fn(&mut Order)| (0..2000).any(|seed| !explore(seed..seed + 1, change).stuck.is_empty());
    assert!(some_stuck(|order| order.waits.iter_mut().for_each(Vec::clear)));
    assert!(some_stuck(|order| order.before.iter_mut().for_each(Vec::clear)));
}

/// The number of random pairs; can be raised by the variable.
fn pairs() -> u64 {
    std::env::var("COB_SWITCH_PAIRS").ok().and_then(|text| text.parse().ok()).unwrap_or(600)
}
