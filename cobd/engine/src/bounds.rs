//! How far the numbers that hosts take over from each other can have come.
//!
//! Lamport numbers, turns and rounds only grow, and everybody takes over a higher one of whoever says it. One host that
//! lies could so drive them to their end on all hosts, and on record: there a Lamport number orders nothing any more, and a turn
//! or a round that can't grow voids nothing. No honest number has grown faster since 1970 than it is counted up here, and
//! no daemon comes near that; from there on a lie leaves more room than there are years to fill it. A clock that stands at
//! its beginning hides no honest number: each has a size up to which it is always taken.
//!
//! What is said beside such a number counts as ever: whoever says it may have it of the one who lied.

use cob_types::{Batch, Item};

use crate::engine::Engine;
use crate::record::Durable;
use crate::time::Time;

/// One a microsecond. Numbers that JSON carries exactly, for longer than anybody lives.
fn lamport(now: Time) -> u64 {
    (now.0 / 1000).max(1 << 40)
}

/// One a millisecond.
fn turn(now: Time) -> u64 {
    (now.0 / 1_000_000).max(1 << 32)
}

/// One a second.
fn round(now: Time) -> u32 {
    u32::try_from(now.0 / 1_000_000_000).unwrap_or(u32::MAX).clamp(1 << 16, u32::MAX - (1 << 16))
}

impl Engine {
    /// Takes out of a batch what no honest host can have come to; how much that was. A Lamport number is not taken over, a
    /// round is cut down to the highest that can be, and facts of a turn are as if they had got lost.
    pub fn keep_possible(&self, batch: &mut Batch, now: Time) -> usize {
        let mut impossible = 0;
        if batch.lamport > lamport(now).max(self.lamport()) {
            batch.lamport = 0;
            impossible += 1;
        }
        let all = batch.items.len();
        let most = turn(now).max(self.turn);
        batch.items.retain(|item| !matches!(item, Item::AskFinal(of) | Item::Final(of) if of.turn > most));
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
    /// Cuts numbers down that can't be, as an earlier version took over and wrote down whatever it was told. Whether
    /// there were any.
    pub fn keep_possible(&mut self, now: Time) -> bool {
        let mut cut = cut(&mut self.lamport, lamport(now)) | cut(&mut self.turn, turn(now));
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
