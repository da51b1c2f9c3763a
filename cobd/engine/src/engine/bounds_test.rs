//! Implausible counters of other hosts.

use cob_types::message::{DepartureReport, Going};
use cob_types::switch::SwitchPolicy;
use cob_types::{Batch, GenerationNumber, HostName, Incarnation, Item};

use super::*;
use crate::event::{Event, Order};
use crate::switch::{SwitchRecord, Terms, Withdrawal};
use crate::testing::{Bench, read};

/// November 2026.
const NOW: Time = Time(1_795_000_000_000_000_000);

fn batch(lamport: u64, items: Vec<Item>) -> Batch {
    let incarnation = Incarnation { id: 99, start: 1 };
    Batch { from: HostName::new("d").expect("a name"), incarnation, lamport, items, under_way: None }
}

fn finals(epoch: u64) -> DepartureReport {
    DepartureReport { from: GenerationNumber(1), to: GenerationNumber(2), epoch, cobs: Vec::new() }
}

#[test]
fn a_lamport_number_of_the_end_of_all_numbers_is_not_taken_over() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    b.now = NOW;
    let before = b.engine.lamport();
    for lie in [u64::MAX, u64::MAX - 40, NOW.0, lamport(NOW) + 1] {
        b.event(Event::Received(batch(lie, Vec::new())));
        b.event(Event::Order(Order::Pause));
    }
    assert!(b.engine.lamport() < before + 10, "each order is a record, and there is little to say");
    // A cluster that has run since 1970 without a pause, with a thousand records a second.
    let honest = NOW.0 / 1_000_000;
    b.event(Event::Received(batch(honest, Vec::new())));
    assert_eq!(b.engine.lamport(), honest);
    // A host whose clock stands at its beginning follows a cluster with a right clock.
    b = Bench::new(&["h/c: 0 1, prefers 1, transition 0 1 <- d/d@1"]);
    b.event(Event::Received(batch(1 << 40, Vec::new())));
    assert_eq!(b.engine.lamport(), 1 << 40);
}

#[test]
fn a_request_with_an_impossible_lamport_number_counts() {
    let mut b = Bench::new(&["h/c: 0 1, prefers 0, lock 1 <- d/d@1"]);
    b.now = NOW;
    let request = read("request d/x of h/c@0 #1.7 rank 3", b.engine.incarnation());
    let said = b.event(Event::Received(batch(u64::MAX, vec![request])));
    assert!(said.iter().any(|line| line.contains("granted to d/x")), "{said:?}");
}

#[test]
fn impossible_numbers_of_a_batch_are_removed_and_counted() {
    let mut engine = Bench::new(&["h/c: 0 1"]).engine;
    let going = |round| {
        let generation = GenerationNumber(2);
        Item::Going(Going { generation, policy: SwitchPolicy::default(), round, manifest: None })
    };
    let all = |epoch, round| vec![Item::AskDepartures(finals(epoch)), Item::Departures(finals(epoch)), going(round)];
    let mut possible = batch(1_000_000, all(1_000_000, 1000));
    assert_eq!(engine.keep_possible(&mut possible, NOW), 0);
    assert_eq!(possible, batch(1_000_000, all(1_000_000, 1000)));
    let mut lies = batch(u64::MAX, all(u64::MAX, u32::MAX));
    assert_eq!(engine.keep_possible(&mut lies, NOW), 4);
    assert_eq!(lies, batch(0, vec![going(1_795_000_000)]));
    // The engine does not rely on the daemon for it.
    engine.handle(Event::Received(batch(0, all(u64::MAX, 0))), NOW);
    assert_eq!(engine.epoch(), 0);
}

#[test]
fn a_journal_with_numbers_that_can_not_be_is_taken_up_with_others() {
    let mut durable = Durable { lamport: u64::MAX - 1, epoch: u64::MAX, ..Durable::default() };
    let terms = Terms { round: u32::MAX, ..Terms::default() };
    let (from, to) = (GenerationNumber(1), GenerationNumber(2));
    let withdrawal =
        Withdrawal { to: from, round: u32::MAX, ordered: true, why: String::new(), cancelled: false, heard: false };
    durable.switching.apply(&SwitchRecord::Withdrawn(to, withdrawal), Time(1));
    let begun = SwitchRecord::Begun { from: to, to: from, left: Some(to), terms, peers: Default::default() };
    durable.switching.apply(&begun, Time(1));
    assert_eq!(durable.switching.round_of_order(to), u32::MAX, "no order would be of a later round");
    assert!(durable.keep_possible(NOW));
    assert_eq!((durable.lamport, durable.epoch), (lamport(NOW), epoch(NOW)));
    assert_eq!(durable.switching.round_of_order(to), round(NOW) + 1);
    assert!(!durable.keep_possible(NOW));
    let mut honest = Durable { lamport: 1 << 39, epoch: 12, ..Durable::default() };
    assert!(!honest.keep_possible(Time(0)));
}

/// The results of a message that the daemon handles itself, like a rollback, follow it in the history of all hosts.
#[test]
fn records_made_after_a_word_that_is_not_for_the_engine_have_higher_numbers() {
    let mut b = Bench::new(&["h/x: 0 1, is 1, prefers 1"]);
    let before = b.engine.lamport();
    b.engine.note_lamport(before + 500);
    assert_eq!(b.engine.lamport(), before + 501);
    // A lower number has no effect on the clock.
    b.engine.note_lamport(3);
    assert_eq!(b.engine.lamport(), before + 502);
}
