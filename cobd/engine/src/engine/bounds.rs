//! Upper bounds for the counters that hosts adopt from each other.
//!
//! Lamport numbers, epochs  and switch attempts (`round`) only grow, and a host adopts a higher number from any
//! peer. So one lying host could drive them to their maximum on all hosts, and on record: there a Lamport number no
//! longer orders messages, and epochs and attempts could not grow. The bounds below grow with the time since 1970,
//! faster than any honest number; a lie below a bound leaves room for more years than matter. A clock near 1970 must
//! not reject honest numbers: each counter has a minimum bound.
//!
//! The rest of a message with such a number counts as usual: its sender may have adopted the number from the liar.

use cob_types::{Batch, Item};

use crate::engine::Engine;
use crate::record::Durable;
use crate::time::Time;

/// At a rate of 1 MHz: numbers that JSON represents exactly for centuries.
fn lamport(now: Time) -> u64 {
    (now.0 / 1000).max(1 << 40)
}

/// Counts to this bound at a rate of 1 kHz.
fn epoch(now: Time) -> u64 {
    (now.0 / 1_000_000).max(1 << 32)
}

/// Counts to this bound at a rate of 1 Hz.
fn round(now: Time) -> u32 {
    u32::try_from(now.0 / 1_000_000_000).unwrap_or(u32::MAX).clamp(1 << 16, u32::MAX - (1 << 16))
}

impl Engine {
    /// Removes implausible counters from a batch and returns how many there were. An implausible Lamport number is
    /// ignored, a `round` is cut to its bound, and the facts of an implausible epoch are dropped as if lost.
    pub fn keep_possible(&self, batch: &mut Batch, now: Time) -> usize {
        let mut impossible = 0;
        if batch.lamport > lamport(now).max(self.lamport()) {
            batch.lamport = 0;
            impossible += 1;
        }
        let all = batch.items.len();
        let most = epoch(now).max(self.departures.epoch);
        batch.items.retain(|item| !matches!(item, Item::AskDepartures(of) | Item::Departures(of) if of.epoch > most));
        impossible += all - batch.items.len();
        for item in &mut batch.items {
            if let Item::Going(going) = item
                && going.round > round(now)
            {
                going.round = round(now);
                impossible += 1;
            }
        }
        impossible
    }
}

impl Durable {
    /// Cuts implausible counters down, because an earlier version adopted and recorded every number. Returns whether
    /// there were any.
    pub fn keep_possible(&mut self, now: Time) -> bool {
        let mut cut = cut(&mut self.lamport, lamport(now)) | cut(&mut self.epoch, epoch(now));
        if let Some(current) = &mut self.switching.current {
            cut |= self::cut(&mut current.terms.round, round(now));
        }
        for withdrawal in self.switching.withdrawn.values_mut() {
            cut |= self::cut(&mut withdrawal.round, round(now));
        }
        cut
    }
}

fn cut<T: Ord>(number: &mut T, most: T) -> bool {
    let above = *number > most;
    if above {
        *number = most;
    }
    above
}

#[cfg(test)]
#[path = "bounds_test.rs"]
mod tests;
