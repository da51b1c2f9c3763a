//! Time: a clock that jumps to each [`crate::Engine::next_wakeup`] causes the same effects as a clock that ticks every
//! millisecond and wakes every change object. A deadline that is handled but never scheduled would show here, and so
//! would a decision with a repeated effect.

use proptest::prelude::*;

use crate::event::Event;
use crate::testing::Bench;
use crate::time::{Span, Time};

const COBS: [&str; 3] = [
    "h/b: 0 1, is 1, prefers 1, lock 1 <- d/d@1",
    "h/c: 0 1, prefers 1, transition 0 1 <- d/d@1 e/e@0|1, retries 3, fails in 0",
    "h/w: 1 0, is 1, prefers 0, transition 1 0 <- h/b@1 f/f@1",
];

/// Not a message: the running action of h/c, if any, fails.
const FAILS: &str = "h/c fails";

/// The possible messages; the numbers are the first numbers of these change objects.
const HEARD: [&str; 13] = [
    FAILS,
    "request a/a of h/b@1 #1.7 rank 3",
    "request a/a of h/b@1 #1.9 rank 3",
    "request a/x of h/b@0 #1.8 rank 5",
    "request a/y of h/w@1 #1.8 rank 5",
    "release a/x of h/b #1.8",
    "release a/a of h/b #1.9",
    "grant d/d@1 to h/c #1.4",
    "grant e/e@1 to h/c #1.5",
    "recall h/c of d/d #1.4",
    "probe of a/a to h/b #1.9 via a/a",
    "released h/c of d/d #1.4",
    "lapsed h/c of e/e #1.5",
];

/// The first full millisecond at or after the time: retries are jittered.
fn to_the_tick(at: Time) -> Time {
    Time(at.0.div_ceil(1_000_000) * 1_000_000)
}

fn happens(bench: &mut Bench, what: &str) -> Vec<String> {
    if what != FAILS {
        bench.hears(what)
    } else if bench.engine.running_actions().is_empty() {
        Vec::new()
    } else {
        bench.ended("h/c", false)
    }
}

/// All further effects, with their times.
fn told(bench: &mut Bench, until: Time, ticking: bool) -> Vec<(Time, Vec<String>)> {
    let mut all = Vec::new();
    loop {
        let tick = bench.now + Span::millis(1);
        let next = if ticking { Some(tick) } else { bench.engine.next_wakeup().map(to_the_tick) };
        let Some(next) = next.filter(|n| *n <= until) else { break };
        bench.now = bench.now.max(next);
        let effects =
            if ticking { bench.engine.look_at_all(bench.now) } else { bench.engine.handle(Event::Tick, bench.now) };
        if !effects.is_empty() {
            all.push((bench.now, bench.told(effects)));
        }
    }
    bench.now = until;
    all
}

/// The past: empty, an action of h/c that fails, or a chase after its locks.
fn before(which: u8) -> Vec<String> {
    match which {
        0 => Vec::new(),
        1 => ["grant d/d@1 to h/c #1.4", "grant e/e@1 to h/c #1.5", FAILS].map(str::to_owned).to_vec(),
        _ => (1..=9)
            .flat_map(|n| [format!("request a/z of h/c@0 #1.{n}"), format!("release a/z of h/c #1.{n}")])
            .collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn jumping_tells_the_same_as_ticking(
        begin in 0u8..3,
        heard in prop::collection::vec((0usize..HEARD.len(), 0u64..3000), 0..10),
    ) {
        let [mut jumps, mut ticks] = [Bench::new(&COBS), Bench::new(&COBS)];
        for what in before(begin) {
            prop_assert_eq!(happens(&mut jumps, &what), happens(&mut ticks, &what));
        }
        for (which, after) in heard {
            prop_assert_eq!(happens(&mut jumps, HEARD[which]), happens(&mut ticks, HEARD[which]));
            let until = jumps.now + Span::millis(after);
            prop_assert_eq!(told(&mut jumps, until, false), told(&mut ticks, until, true));
        }
        let until = jumps.now + Span::secs(12);
        prop_assert_eq!(told(&mut jumps, until, false), told(&mut ticks, until, true));
    }
}
