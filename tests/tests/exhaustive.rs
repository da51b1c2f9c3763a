//! Explores every run of small systems: [`cob_explorer`].
//!
//! By default a sample that takes a few seconds; `COB_EXPLORE=full` explores all systems, and `COB_EXPLORE=7` every
//! seventh.

use std::time::Instant;

use cob_engine::Faults;
use cob_engine::sim::Random;
use cob_explorer::{Explored, Plan, explore};
use cob_tests::conditions::Conditions;
use cob_tests::draw::Draw;
use cob_tests::family;
use cob_tests::small::Small;
use cob_tests::switching::{self, Pair};
use cob_tests::system::System;

/// How many systems are drawn for the full run.
const DRAWN: u64 = 10_000;

/// The step between explored systems; 1 in the full run.
fn stride(usual: usize) -> usize {
    match std::env::var("COB_EXPLORE").as_deref() {
        Ok("full") => 1,
        Ok(every) => every.parse().unwrap_or(usual),
        Err(_) => usual,
    }
}

/// Every n-th of the systems of these sizes.
fn small(states: &[usize], usual: usize) -> impl Iterator<Item = (u64, System)> {
    let small = Small::of(states);
    (0..small.len()).step_by(stride(usual)).filter_map(move |n| Some((n as u64, small.get(n)?)))
}

/// Ten thousand random systems, or every n-th of these.
fn drawn(draw: &Draw, usual: usize) -> impl Iterator<Item = (u64, System)> {
    (1..=DRAWN).step_by(stride(usual)).map(|seed| (seed, family::within(draw, &mut Random::new(seed))))
}

/// Totals over all explored systems.
struct Total {
    began: Instant,
    count: usize,
    /// How many systems were explored only in part.
    cut: usize,
    largest: usize,
    all: Explored,
}

impl Total {
    fn new() -> Self {
        Self { began: Instant::now(), count: 0, cut: 0, largest: 0, all: Explored::default() }
    }

    fn add(&mut self, found: &Explored, cut: bool) {
        self.count += 1;
        self.cut += usize::from(cut);
        self.largest = self.largest.max(found.states);
        self.all.states += found.states;
        self.all.steps += found.steps;
        self.all.longest = self.all.longest.max(found.longest);
    }

    #[expect(clippy::print_stdout, reason = "shown by cargo test -- --nocapture")]
    fn print(&self, name: &str, what: &str) {
        let Explored { states, steps, longest, .. } = self.all;
        let rate = states as f64 / self.began.elapsed().as_secs_f64();
        println!(
            "{name:<28} {} {what}, {} of them only in part; {states} states, {steps} steps; the largest {} states, the longest run {longest} \
             steps; {rate:.0} states/s",
            self.count, self.cut, self.largest
        );
    }
}

fn all(name: &str, systems: impl Iterator<Item = (u64, System)>, plan: &Plan) {
    let (mut total, mut within) = (Total::new(), 0);
    for (number, system) in systems {
        let must_converge = Conditions::of(&system).hold();
        let found = explore(&system.bundles(), &system.initial(), &Plan { must_converge, ..plan.clone() });
        if let Some(wrong) = &found.wrong {
            panic!("{name}: system {number}: {}\n{system}\n{}", wrong.what, wrong.run.join("\n"));
        }
        // A listed system is explored completely; a random system may be too large for that.
        let listed = !name.starts_with("drawn") && !name.starts_with("in doubt");
        let whole = !found.cut || !must_converge;
        assert!(whole || !listed, "{name}: system {number} has more states than are explored\n{system}");
        within += usize::from(must_converge);
        total.add(&found, !whole);
    }
    total.print(name, &format!("systems, {within} within P1-P4"));
}

#[test]
fn two_of_two_states() {
    let fifo = Plan::default();
    all("2x2, fifo", small(&[2, 2], 7), &fifo);
    all("2x2, any order, loss", small(&[2, 2], 31), &Plan { any_order: true, losses: 1, ..fifo.clone() });
    all("2x2, loss, restart", small(&[2, 2], 61), &Plan { losses: 1, restarts: 1, ..fifo });
}

#[test]
fn three_of_two_states() {
    let fifo = Plan::default();
    all("3x2, fifo", small(&[2, 2, 2], 211), &fifo);
    all("3x2, any order, loss", small(&[2, 2, 2], 1009), &Plan { any_order: true, losses: 1, ..fifo.clone() });
    all("3x2, loss, restart", small(&[2, 2, 2], 5003), &Plan { losses: 1, restarts: 1, ..fifo });
}

#[test]
fn two_objects_of_two_and_three_states() {
    let fifo = Plan::default();
    all("2 and 3 states, fifo", small(&[2, 3], 307), &fifo);
    all("2 and 3 states, any order", small(&[2, 3], 607), &Plan { any_order: true, ..fifo.clone() });
    all("2 and 3 states, restart", small(&[2, 3], 4001), &Plan { restarts: 1, ..fifo });
}

/// Systems with too many change objects and dependencies to list all: random, within P1-P4. These systems need probes.
#[test]
fn drawn_systems() {
    let fifo = Plan::default();
    let draw = Draw { things: (2, 4), hosts: (2, 3), states: (2, 3), locks: 200, sets: 200, ..Draw::default() };
    let circular = Draw { things: (2, 3), circular: 500, ..draw.clone() };
    all("drawn, fifo", drawn(&draw, 100), &fifo);
    all("drawn, any order", drawn(&draw, 300), &Plan { any_order: true, ..fifo.clone() });
    all("drawn, loss", drawn(&draw, 300), &Plan { losses: 1, ..fifo.clone() });
    all("drawn, restart", drawn(&draw, 1000), &Plan { restarts: 1, ..fifo.clone() });
    all("drawn circular, fifo", drawn(&circular, 100), &fifo);
    all("drawn circular, failure", drawn(&circular, 300), &Plan { failures: 1, ..fifo });
}

/// Merged states behave alike: their normal form omits no relevant part.
#[test]
fn merged_states_continue_alike() {
    let doubt = Plan { doubt: true, ..Plan::default() };
    let draw = Draw { things: (2, 4), hosts: (2, 3), states: (2, 3), locks: 200, sets: 200, ..Draw::default() };
    all("in doubt, fifo", drawn(&draw, 300), &doubt);
    let hard = Plan { losses: 1, restarts: 1, failures: 1, ..doubt.clone() };
    all("in doubt, all faults", small(&[2, 2], 151), &hard);
    all("in doubt, any order", drawn(&draw, 600), &Plan { any_order: true, losses: 1, ..doubt });
}

/// The explorer finds the same faults as the simulator.
#[test]
fn planted_faults_are_found() {
    let faults: [(&str, Faults); 4] = [
        ("grants_not_durable", Faults { grants_not_durable: true, ..Faults::default() }),
        ("hello_names_nothing", Faults { hello_names_nothing: true, ..Faults::default() }),
        ("forgets_actions", Faults { forgets_actions: true, ..Faults::default() }),
        ("takes_any_grant", Faults { takes_any_grant: true, ..Faults::default() }),
    ];
    let small = Small::of(&[2, 2]);
    for (name, faults) in faults {
        let plan = Plan { losses: 1, restarts: 1, must_converge: false, faults, ..Plan::default() };
        let wrong = |s: System| explore(&s.bundles(), &s.initial(), &plan).wrong.is_some();
        let found = (0..small.len()).filter_map(|n| small.get(n)).any(wrong);
        assert!(found, "{name} is not found");
    }
}

/// Ten thousand random pairs of generations, or every n-th of these.
fn pairs(sizes: (u64, u64), hosts: (u64, u64), usual: usize) -> impl Iterator<Item = (u64, Pair)> {
    let draw = move |seed| {
        let mut random = Random::new(seed);
        let detaching = random.permille(500);
        (seed, switching::draw(sizes, hosts, detaching, &mut random))
    };
    (1..=DRAWN).step_by(stride(usual)).map(draw)
}

fn all_switches(name: &str, pairs: impl Iterator<Item = (u64, Pair)>, plan: &Plan) {
    let (mut total, mut refused) = (Total::new(), 0);
    for (seed, pair) in pairs {
        let Some(found) = switching::explore(&pair, plan) else {
            refused += 1;
            continue;
        };
        if let Some(wrong) = &found.wrong {
            let Pair { before, after } = &pair;
            panic!("{name}: pair {seed}: {}\n{before}\nthen\n{after}\n{}", wrong.what, wrong.run.join("\n"));
        }
        total.add(&found, found.cut);
    }
    total.print(name, &format!("pairs ({refused} more without an order)"));
}

/// Every n-th pair without faults, and every n-th pair with each type of fault.
fn with_each_fault(name: &str, back: bool, usual: (usize, usize)) {
    let max_states = if stride(2) == 1 { 100_000 } else { 5_000 };
    let calm = Plan { back, max_states, ..Plan::default() };
    all_switches(name, pairs((2, 4), (1, 3), usual.0), &calm);
    let faults = [
        ("any order", Plan { any_order: true, ..calm.clone() }),
        ("loss", Plan { losses: 1, ..calm.clone() }),
        ("restart", Plan { restarts: 1, ..calm.clone() }),
        ("failure", Plan { failures: 1, ..calm }),
    ];
    for (fault, plan) in faults {
        all_switches(&format!("{name}, {fault}"), pairs((2, 3), (2, 3), usual.1), &plan);
    }
}

/// Every run of a switch between two small generations.
#[test]
fn switches() {
    with_each_fault("switch", false, (253, 501));
}

/// Every run of a switch with a rollback ordered at any moment.
#[test]
fn switches_and_back() {
    with_each_fault("and back", true, (253, 1001));
}

/// Merged states of a switch behave alike.
#[test]
fn merged_states_of_a_switch_continue_alike() {
    let doubt = Plan { doubt: true, max_states: 2_000, ..Plan::default() };
    all_switches("in doubt: switch", pairs((2, 4), (1, 3), 501), &doubt);
    let hard = Plan { losses: 1, restarts: 1, failures: 1, back: true, ..doubt.clone() };
    all_switches("in doubt: all faults", pairs((1, 2), (1, 3), 1001), &hard);
    let any = Plan { any_order: true, back: true, ..doubt };
    all_switches("in doubt: any order, back", pairs((2, 3), (2, 3), 1001), &any);
}

/// The explorer finds the faults that the switch order prevents.
#[test]
fn planted_faults_of_switches_are_found() {
    let faults: [(&str, Faults); 2] = [
        ("ignores_after", Faults { ignores_after: true, ..Faults::default() }),
        ("ignores_waits", Faults { ignores_waits: true, ..Faults::default() }),
    ];
    for (name, faults) in faults {
        let plan = Plan { max_states: 2_000, must_converge: false, faults, ..Plan::default() };
        let draw = |seed| switching::draw((2, 4), (2, 3), true, &mut Random::new(seed));
        let wrong = |pair: Pair| switching::explore(&pair, &plan).is_some_and(|found| found.wrong.is_some());
        assert!((1..500).map(draw).any(wrong), "{name} is not found");
    }
}
