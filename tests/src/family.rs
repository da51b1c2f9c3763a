//! Families of random systems, and the conditions of messages and hosts in which they run.
//!
//! The rows of the table in the lock protocol's notes: each family draws until a system has the family's property,
//! which for most families means the conditions of progress.

use cob_engine::sim::{Config, Random};
use cob_engine::time::Span;

use crate::conditions::{Conditions, can_be_numbered};
use crate::draw::{self, Draw};
use crate::system::System;

/// A family.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name in messages and on the command line.
    pub name: &'static str,
    /// Draws a system of the family.
    pub draw: fn(&mut Random) -> System,
}

/// The families within P1-P4 whose dependencies are drawn at random.
pub const WITHIN: [Family; 7] = [
    Family { name: "acyclic", draw: acyclic },
    Family { name: "locks", draw: locks },
    Family { name: "sets", draw: sets },
    Family { name: "locks-and-sets", draw: locks_and_sets },
    Family { name: "large", draw: large },
    Family { name: "circular", draw: circular },
    Family { name: "circular-locks-and-sets", draw: circular_locks_and_sets },
];

/// Graphs made with the short words.
pub const WORDS: Family = Family { name: "words", draw: |r| draw::with_words((2, 12), (1, 4), r) };

/// Families that only have to be safe and to report a named problem.
pub const OUTSIDE: [Family; 3] = [
    Family { name: "contradictory", draw: contradictory },
    Family { name: "traps", draw: traps },
    Family { name: "circular-outside", draw: circular_outside },
];

/// The same with budgets: over any change objects, even change objects that need one another.
pub const BUDGETS: [Family; 3] = [
    Family { name: "words-with-budgets", draw: |r| budgeted(WORDS, r) },
    Family { name: "locks-and-sets-with-budgets", draw: |r| budgeted(WITHIN[3], r) },
    Family { name: "circular-with-budgets", draw: |r| budgeted(WITHIN[6], r) },
];

fn budgeted(family: Family, random: &mut Random) -> System {
    let mut system = (family.draw)(random);
    draw::lay_budgets(&mut system, random);
    system
}

fn acyclic(random: &mut Random) -> System {
    within(&Draw::default(), random)
}

fn locks(random: &mut Random) -> System {
    within(&Draw { locks: 300, ..Draw::default() }, random)
}

fn sets(random: &mut Random) -> System {
    within(&Draw { sets: 500, ..Draw::default() }, random)
}

fn locks_and_sets(random: &mut Random) -> System {
    within(&Draw { locks: 300, sets: 500, ..Draw::default() }, random)
}

/// The density is random, too: most dense draws of this size contradict themselves.
fn large(random: &mut Random) -> System {
    let size = Draw { things: (10, 40), hosts: (1, 6), states: (2, 6), ..Draw::default() };
    until(random, |random| {
        let needs = random.between(50, 400) as u32;
        let locks = random.between(0, 200) as u32;
        let sets = random.between(0, 600) as u32;
        let system = draw::any(&Draw { needs, locks, sets, ..size.clone() }, random);
        Conditions::of(&system).hold().then_some(system)
    })
}

const SMALL: Draw =
    Draw { things: (2, 6), hosts: (1, 4), states: (2, 4), needs: 400, locks: 0, sets: 0, circular: 500, traps: false };

fn circular(random: &mut Random) -> System {
    truly_circular(&SMALL, random)
}

fn circular_locks_and_sets(random: &mut Random) -> System {
    truly_circular(&Draw { locks: 150, sets: 300, ..SMALL }, random)
}

fn truly_circular(draw: &Draw, random: &mut Random) -> System {
    until(random, |random| {
        let system = draw::any(draw, random);
        (!can_be_numbered(&system) && Conditions::of(&system).hold()).then_some(system)
    })
}

/// Acyclic change objects with lock dependencies, and a transition that contradicts itself (P3).
fn contradictory(random: &mut Random) -> System {
    outside(&Draw { locks: 300, sets: 300, ..Draw::default() }, random)
}

/// Kinds with states without transitions out of them (P1).
fn traps(random: &mut Random) -> System {
    outside(&Draw { traps: true, states: (2, 4), ..Draw::default() }, random)
}

/// Any system with cycles outside the conditions.
fn circular_outside(random: &mut Random) -> System {
    outside(&Draw { locks: 200, sets: 300, ..SMALL }, random)
}

/// A system within P1-P4.
pub fn within(draw: &Draw, random: &mut Random) -> System {
    until(random, |random| {
        let system = draw::any(draw, random);
        Conditions::of(&system).hold().then_some(system)
    })
}

fn outside(draw: &Draw, random: &mut Random) -> System {
    until(random, |random| {
        let system = draw::any(draw, random);
        (!Conditions::of(&system).hold()).then_some(system)
    })
}

fn until(random: &mut Random, one: impl Fn(&mut Random) -> Option<System>) -> System {
    (0..1_000_000).find_map(|_| one(random)).expect("a family's systems are not that rare")
}

/// The behaviour of messages and hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Messages between two hosts arrive in order; no faults occur.
    Plain,
    /// Messages overtake each other; no other faults occur.
    AnyOrder,
    /// Loss, duplicates, reordering, killed daemons, failed actions.
    Hostile,
    /// Slow actions, with daemons killed or power lost in the middle; half of the time the network is bad as well.
    Deadly,
}

impl Weather {
    /// All kinds of weather.
    pub const ALL: [Weather; 4] = [Weather::Plain, Weather::AnyOrder, Weather::Hostile, Weather::Deadly];

    /// A configuration for a run in this weather.
    #[must_use]
    pub fn config(self, seed: u64) -> Config {
        let plain = Config { seed, ..Config::default() };
        match self {
            Weather::Plain => plain,
            Weather::AnyOrder => Config { fifo: false, delay_us: (10, 5000), ..plain },
            Weather::Hostile => {
                let (crashes, trouble_us) = *Random::new(!seed).pick(&[(4, 500_000), (4, 50_000), (15, 200_000)]);
                Config {
                    loss: 150,
                    double: 100,
                    delay_us: (10, 20_000),
                    fifo: false,
                    fail: 100,
                    failures: 5,
                    crashes,
                    trouble_us,
                    ..plain
                }
            }
            Weather::Deadly => {
                let slow =
                    Config { crashes: 15, power: 200, trouble_us: 3_000_000, action_us: (50_000, 500_000), ..plain };
                if Random::new(!seed).permille(500) {
                    Config { loss: 100, double: 200, delay_us: (10, 100_000), fifo: false, ..slow }
                } else {
                    slow
                }
            }
        }
    }

    /// A configuration for a run without expected convergence: it is bounded.
    #[must_use]
    pub fn bounded(self, seed: u64) -> Config {
        Config { limit: Span::secs(20 * 60), max_events: 200_000, ..self.config(seed) }
    }
}
