//! Systems drawn at random.

use cob_engine::sim::Random;

use crate::system::{N, System, Thing};

/// The parameters of a random system.
#[derive(Debug, Clone)]
pub struct Draw {
    /// Number of change objects, from and to.
    pub things: (u64, u64),
    /// Number of hosts, from and to.
    pub hosts: (u64, u64),
    /// Number of states of each change object, from and to.
    pub states: (u64, u64),
    /// Transitions with needs, per thousand.
    pub needs: u32,
    /// States with lock dependencies, per thousand.
    pub locks: u32,
    /// Needs that name two states, per thousand.
    pub sets: u32,
    /// Needs that may point to any change object, not only to lower numbers, per thousand.
    pub circular: u32,
    /// Kinds may have traps: missing transitions are not added.
    pub traps: bool,
}

impl Default for Draw {
    fn default() -> Self {
        Self {
            things: (2, 12),
            hosts: (1, 4),
            states: (2, 4),
            needs: 500,
            locks: 0,
            sets: 0,
            circular: 0,
            traps: false,
        }
    }
}

/// A system with random dependencies.
pub fn any(draw: &Draw, random: &mut Random) -> System {
    let n = random.between(draw.things.0, draw.things.1) as usize;
    let hosts = random.between(draw.hosts.0, draw.hosts.1) as usize;
    let states: Vec<usize> = (0..n).map(|_| random.between(draw.states.0, draw.states.1) as usize).collect();
    let mut things = Vec::new();
    for t in 0..n {
        let m = states[t];
        let mut priority: Vec<usize> = (0..m).collect();
        random.shuffle(&mut priority);
        let mut thing = Thing {
            host: random.below(hosts as u64) as usize,
            states: m,
            priority,
            preferred: random.below(m as u64) as usize,
            pre_remove: random.below(m as u64) as usize,
            initial: random.below(m as u64) as usize,
            retries: 1_000_000,
            in_process: random.permille(200),
            ..Thing::default()
        };
        for (from, to) in matrix(m, draw.traps, random) {
            let with = random.permille(draw.needs);
            let needs = if with { some_needs(t, &states, draw, random) } else { Vec::new() };
            thing.transitions.push((from, to, needs));
        }
        for state in 0..m {
            if random.permille(draw.locks) {
                let needs = some_needs(t, &states, draw, random);
                if !needs.is_empty() {
                    thing.locks.push((state, needs));
                }
            }
        }
        things.push(thing);
    }
    System { things, ..System::default() }
}

/// A sparse matrix; without traps every state is reachable from every other.
fn matrix(m: usize, traps: bool, random: &mut Random) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> =
        (0..m).flat_map(|a| (0..m).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
    random.shuffle(&mut pairs);
    let keep = random.between(1, pairs.len() as u64) as usize;
    let mut transitions: Vec<_> = pairs[..keep].to_vec();
    if !traps {
        // A cycle through all states makes every state reachable.
        let mut order: Vec<usize> = (0..m).collect();
        random.shuffle(&mut order);
        for i in 0..m {
            let transition = (order[i], order[(i + 1) % m]);
            if !transitions.contains(&transition) {
                transitions.push(transition);
            }
        }
    }
    transitions
}

fn some_needs(t: usize, states: &[usize], draw: &Draw, random: &mut Random) -> Vec<N> {
    let mut needs: Vec<N> = Vec::new();
    for _ in 0..random.between(1, 3) {
        let below = if random.permille(draw.circular) { states.len() } else { t };
        if below == 0 {
            continue;
        }
        let other = random.below(below as u64) as usize;
        if other == t || needs.iter().any(|n| n.0 == other) {
            continue;
        }
        let m = states[other];
        let mut set = vec![random.below(m as u64) as usize];
        if random.permille(draw.sets) {
            let more = random.below(m as u64) as usize;
            if !set.contains(&more) {
                set.push(more);
            }
        }
        needs.push((other, set));
    }
    needs
}

/// Adds one or two budgets; most change objects are members of one.
pub fn lay_budgets(system: &mut System, random: &mut Random) {
    let things = system.things.len();
    for _ in 0..random.between(1, 2) {
        let (budget, host) = (system.things.len(), system.things[random.below(things as u64) as usize].host);
        for thing in &mut system.things[..things] {
            if thing.budget.is_none() && random.permille(600) {
                thing.budget = Some(budget);
            }
        }
        system.things.push(Thing {
            host,
            states: 1,
            priority: vec![0],
            retries: 1_000_000,
            in_process: random.permille(500),
            at_most: Some(random.between(1, 3) as u32),
            ..Thing::default()
        });
    }
}

/// A graph made with the short words alone (`requires`, `after`, `restarts_on` as `after`): kinds with down (0), up (1)
/// and perhaps outdated (2); every change object prefers up, and the arrows have no cycle.
pub fn with_words(things: (u64, u64), hosts: (u64, u64), random: &mut Random) -> System {
    let n = random.between(things.0, things.1) as usize;
    let hosts = random.between(hosts.0, hosts.1) as usize;
    let mut all: Vec<Thing> = Vec::new();
    for t in 0..n {
        let outdated = random.permille(600).then_some(2);
        let m = if outdated.is_some() { 3 } else { 2 };
        let mut transitions = vec![(0, 1, Vec::new()), (1, 0, Vec::new())];
        if outdated.is_some() {
            transitions.push((2, 0, Vec::new()));
            if random.permille(500) {
                transitions.push((2, 1, Vec::new()));
            }
        }
        let priority = if outdated.is_some() { vec![0, 1, 2] } else { vec![0, 1] };
        all.push(Thing {
            host: random.below(hosts as u64) as usize,
            states: m,
            priority,
            preferred: 1,
            pre_remove: 0,
            initial: random.below(m as u64) as usize,
            transitions,
            outdated,
            retries: 1_000_000,
            in_process: random.permille(200),
            ..Thing::default()
        });
        for _ in 0..random.below(4) {
            if t == 0 {
                break;
            }
            let on = random.below(t as u64) as usize;
            if random.permille(600) { requires(&mut all, t, on) } else { after(&mut all, t, on) }
        }
    }
    System { things: all, ..System::default() }
}

/// `after: [on]`: enters up only with the other up.
pub fn after(all: &mut [Thing], a: usize, on: usize) {
    for transition in &mut all[a].transitions {
        if transition.1 == 1 && !transition.2.iter().any(|n| n.0 == on) {
            transition.2.push((on, vec![1]));
        }
    }
}

/// `requires: [on]`: `after`, and in addition the other leaves up and restarts only with this change object down, and
/// the grant of up depends on the other's grant.
pub fn requires(all: &mut [Thing], a: usize, on: usize) {
    after(all, a, on);
    let outdated = all[on].outdated;
    for transition in &mut all[on].transitions {
        if (transition.0 == 1 || Some(transition.0) == outdated) && !transition.2.iter().any(|n| n.0 == a) {
            transition.2.push((a, vec![0]));
        }
    }
    match all[a].locks.iter_mut().find(|l| l.0 == 1) {
        Some(lock) if lock.1.iter().any(|n| n.0 == on) => {}
        Some(lock) => lock.1.push((on, vec![1])),
        None => all[a].locks.push((1, vec![(on, vec![1])])),
    }
}
