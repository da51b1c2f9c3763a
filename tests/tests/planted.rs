//! Planted faults: each is noticed, and the same seeds pass without it. A simulator that finds no faults proves nothing
//! unless it can be seen to find planted faults.

use cob_engine::Faults;
use cob_engine::sim::{Config, Outcome, Random};
use cob_engine::time::Span;
use cob_tests::family::{BUDGETS, Family, WITHIN, Weather};
use cob_tests::liar;
use cob_tests::runs;
use cob_tests::switching::{self, End};
use cob_tests::system::{System, Thing};
use cob_tests::transcript::notation;

/// The symptom of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// A safety rule is violated.
    Violation,
    /// A change object never converges.
    Standstill,
}

fn shows(outcome: &Outcome) -> Option<Shows> {
    if !outcome.violations.is_empty() {
        Some(Shows::Violation)
    } else if !outcome.converged {
        Some(Shows::Standstill)
    } else {
        None
    }
}

/// Runs systems with and without a fault until it shows as expected; without it no run may fail.
fn is_noticed(
    expected: Shows,
    within: u64,
    make: impl Fn(u64) -> System,
    weather: impl Fn(u64) -> Config,
    plant: impl Fn(&mut Config),
) {
    for seed in 1..=within {
        let system = make(seed);
        let honest = Config { limit: Span::secs(300), max_events: 100_000, ..weather(seed) };
        let mut faulty = honest.clone();
        plant(&mut faulty);
        let outcome = runs::run(&system, honest);
        assert_eq!(shows(&outcome), None, "seed {seed} without the fault: {:?}\n{system}", outcome.violations);
        let outcome = runs::run(&system, faulty);
        if shows(&outcome) == Some(expected) {
            return;
        }
    }
    panic!("the fault does not show as a {expected:?} in {within} runs");
}

fn of(family: Family) -> impl Fn(u64) -> System {
    move |seed| (family.draw)(&mut Random::new(seed))
}

fn deadly(seed: u64) -> Config {
    Weather::Deadly.config(seed)
}

#[test]
fn a_grant_that_is_not_durable() {
    let plant = |c: &mut Config| c.faults = Faults { grants_not_durable: true, ..Faults::default() };
    is_noticed(Shows::Violation, 100, of(WITHIN[0]), deadly, plant);
}

#[test]
fn a_grant_accepted_with_any_number() {
    let plant = |c: &mut Config| c.faults = Faults { takes_any_grant: true, ..Faults::default() };
    is_noticed(Shows::Violation, 20_000, of(WITHIN[0]), deadly, plant);
}

#[test]
fn a_hello_that_names_no_locks() {
    let plant = |c: &mut Config| c.faults = Faults { hello_names_nothing: true, ..Faults::default() };
    is_noticed(Shows::Violation, 1000, of(WITHIN[0]), deadly, plant);
}

#[test]
fn an_incarnation_that_is_not_raised() {
    is_noticed(
        Shows::Standstill,
        100,
        of(WITHIN[0]),
        |seed| Weather::Hostile.config(seed),
        |c| c.same_incarnation = true,
    );
}

#[test]
fn a_running_action_that_is_forgotten() {
    let plant = |c: &mut Config| c.faults = Faults { forgets_actions: true, ..Faults::default() };
    is_noticed(Shows::Violation, 100, of(WITHIN[0]), deadly, plant);
}

/// Counterexample 9: a acts under b's grant, which relies on d's grant; b's daemon restarts and must name d. b's
/// actions run inside its daemon, so that it sends its hello before it has determined its needs again.
fn promise_on_a_promise(_: u64) -> System {
    let two = |host, initial, preferred| Thing {
        host,
        states: 2,
        priority: vec![0, 1],
        initial,
        preferred,
        transitions: vec![(0, 1, vec![]), (1, 0, vec![])],
        retries: 1_000_000,
        ..Thing::default()
    };
    let (mut a, mut b, d) = (two(0, 0, 1), two(1, 1, 1), two(2, 1, 0));
    a.transitions[0].2.push((1, vec![1]));
    b.in_process = true;
    b.locks.push((1, vec![(2, vec![1])]));
    let names = ["a", "b", "d"].map(str::to_owned).to_vec();
    System { things: vec![a, b, d], names, ..System::default() }
}

#[test]
fn locks_under_a_grant_that_are_forgotten() {
    let plant = |c: &mut Config| c.faults = Faults { forgets_locks_under_grants: true, ..Faults::default() };
    is_noticed(Shows::Violation, 100, promise_on_a_promise, deadly, plant);
}

#[test]
fn no_probes() {
    let plant = |c: &mut Config| c.faults = Faults { no_probes: true, ..Faults::default() };
    is_noticed(Shows::Standstill, 100, of(WITHIN[0]), |seed| Weather::Plain.config(seed), plant);
}

/// Budgets must be kept: at most as many members are away as there are tokens.
#[test]
fn a_budget_that_gives_any_number() {
    let plant = |c: &mut Config| c.faults = Faults { gives_any_number: true, ..Faults::default() };
    is_noticed(Shows::Violation, 100, of(BUDGETS[0]), |seed| Weather::Plain.config(seed), plant);
}

/// Three outdated members, each with a single attempt, and a budget of one token.
fn three_that_try_once() -> System {
    let member = |host: u32| {
        let cob = format!("cob h{host}/a: down up outdated");
        [
            cob.as_str(),
            "is outdated",
            "prefers up",
            "transition outdated up",
            "transition down up",
            "retries 0",
            "budget h1/b",
        ]
        .map(str::to_owned)
    };
    let budget = ["cob h1/b: open", "at most 1"].map(str::to_owned);
    let lines: Vec<String> = [1, 2, 3].into_iter().flat_map(member).chain(budget).collect();
    notation::parse(&lines).expect("a system")
}

/// A rollout stops at the first failure: a failed member keeps its token, even if it still serves.
#[test]
fn a_token_that_the_failed_give_back() {
    let faults = Faults { failed_give_tokens_back: true, ..Faults::default() };
    let mut found = 0;
    for seed in 1..=20 {
        let honest = Config { fail: 1000, failures: 3, limit: Span::secs(60), ..Weather::Plain.config(seed) };
        let outcome = runs::run(&three_that_try_once(), honest.clone());
        assert_eq!(outcome.violations, [""; 0], "seed {seed} without the fault");
        let faulty = Config { faults: faults.clone(), ..honest };
        found += usize::from(!runs::run(&three_that_try_once(), faulty).violations.is_empty());
    }
    assert!(found > 0, "the fault does not show in 20 runs");
}

#[test]
fn a_token_that_is_forgotten() {
    let plant = |c: &mut Config| c.faults = Faults { forgets_tokens: true, ..Faults::default() };
    is_noticed(Shows::Violation, 2000, of(BUDGETS[0]), deadly, plant);
}

/// All apps require the database, and their budget has a single token.
fn all_on_one(_: u64) -> System {
    let lines = [
        "cob h0/db: down up",
        "is up",
        "prefers down",
        "transition up down <- h1/app@down h2/app@down",
        "cob h1/app: down up",
        "is up",
        "budget h0/b",
        "cob h2/app: down up",
        "is up",
        "budget h0/b",
        "cob h0/b: open",
        "at most 1",
    ];
    notation::parse(&lines.map(str::to_owned)).expect("a system")
}

/// Token holders wait for a member without a token: without probes the budget never learns of it.
#[test]
fn no_probes_of_a_budget() {
    let plant = |c: &mut Config| c.faults = Faults { no_probes: true, ..Faults::default() };
    is_noticed(Shows::Standstill, 1, all_on_one, |seed| Weather::Plain.config(seed), plant);
}

/// The fault: a host obeys any requester, with or without a dependency. The simulated liar then reaches unconnected
/// change objects.
#[test]
fn a_request_that_no_dependency_justifies() {
    let faults = Faults { believes_any_asker: true, ..Faults::default() };
    for seed in 1..=50 {
        let system = liar::draw(&mut Random::new(seed));
        let honest = Weather::Plain.config(seed);
        assert_eq!(liar::play(&system, honest.clone()).beyond.len(), 0, "seed {seed} without the fault");
        if !liar::play(&system, Config { faults: faults.clone(), ..honest }).beyond.is_empty() {
            return;
        }
    }
    panic!("the fault does not show");
}

/// A fault of a switch is noticed if the order of departures, or a wait for another host, is ignored.
fn switch_is_noticed(within: u64, plant: impl Fn(&mut Faults)) {
    let play = |seed: u64, faults: &Faults| {
        let mut random = Random::new(seed);
        let pair = switching::draw((2, 12), (2, 8), true, &mut random);
        let config = Config { faults: faults.clone(), ..Weather::Plain.config(seed) };
        switching::play(&pair, &switching::Plan::default(), config)
    };
    let mut faults = Faults::default();
    plant(&mut faults);
    for seed in 1..=within {
        match (play(seed, &Faults::default()), play(seed, &faults)) {
            (Ok(End::Rests(_)), Ok(End::Reported(_)) | Err(_)) => return,
            (Ok(_), _) => {}
            (Err(wrong), _) => panic!("seed {seed} without the fault: {wrong}"),
        }
    }
    panic!("the fault does not show in {within} runs");
}

#[test]
fn a_departure_that_ignores_the_switch_order() {
    switch_is_noticed(1000, |f| f.ignores_after = true);
}

#[test]
fn a_host_that_does_not_wait_for_others() {
    switch_is_noticed(1000, |f| f.ignores_waits = true);
}
