//! Hosts that are restarted, reinstalled and replaced at random moments, in random systems: the system stays safe and
//! converges, and no two daemons exchange messages without effect at a high rate. For the number of runs and replays
//! see [`cob_tests::runs`].

use cob_engine::Faults;
use cob_engine::sim::{Config, Random};
use cob_engine::time::Span;
use cob_tests::churn;
use cob_tests::family::{WITHIN, WORDS, Weather};
use cob_tests::runs::Seeds;
use cob_tests::system::System;

fn drawn(seed: u64) -> (System, Config) {
    let weather = [Weather::Plain, Weather::AnyOrder, Weather::Hostile][(seed % 3) as usize];
    let family = match seed % 4 {
        0 => &WITHIN[0],
        1 => &WITHIN[3],
        2 => &WITHIN[6],
        _ => &WORDS,
    };
    let config = Config { crashes: 0, limit: Span::secs(7200), max_events: u64::MAX, ..weather.config(seed) };
    ((family.draw)(&mut Random::new(seed)), config)
}

#[test]
fn hosts_that_are_restarted_set_up_anew_and_replaced_come_to_rest() {
    for seed in Seeds::share(1, 10) {
        let (system, config) = drawn(seed);
        if let Err(wrong) = churn::run(&system, config) {
            panic!("seed {seed}: {wrong}\n{system}");
        }
    }
}

/// Asserts that a fault shows with some seed, in an error that contains this text.
fn shows(text: &str, faults: &Faults) {
    // Without loss of messages, because a loss would interrupt an endless exchange.
    let seeds = (3..=900).step_by(3);
    for seed in seeds.clone() {
        let (system, config) = drawn(seed);
        match churn::run(&system, Config { faults: faults.clone(), ..config }) {
            Err(wrong) if wrong.contains(text) => return,
            Ok(_) | Err(_) => {}
        }
    }
    panic!("the fault does not show as {text:?} in the seeds {seeds:?}");
}

/// The fault: the releases of a reinstalled host's change objects are remembered under its old numbers. That memory
/// answers each of its new requests, which are repeated at once.
#[test]
fn numbers_of_a_reinstalled_host_that_are_kept_are_noticed() {
    shows("does not converge", &Faults { keeps_numbers: true, ..Faults::default() });
}

#[test]
fn a_lock_that_is_asked_for_again_without_end_is_noticed() {
    shows("no progress", &Faults { keeps_numbers: true, asks_without_end: true, ..Faults::default() });
}
