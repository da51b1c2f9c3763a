//! The rate limit for messages of other hosts that cause records: a burst for each host, and then a message a second.
//!
//! A correct host stays far below it: the messages are later attempts of switches and epochs of departures, which
//! people cause. A dropped message counts as lost.

use std::collections::BTreeMap;

use cob_engine::Time;
use cob_engine::time::Span;
use cob_types::{Batch, HostName, Item};

const AT_ONCE: u64 = 32;
const EVERY: Span = Span::secs(1);

/// The time until which each host has used its rate.
#[derive(Debug, Default)]
pub(super) struct RateLimits(BTreeMap<HostName, Time>);

impl RateLimits {
    /// Whether another message of a host may cause a record.
    pub(super) fn allows(&mut self, host: &HostName, now: Time) -> bool {
        // When all messages of the host would have been sent at one a second.
        let until = self.0.entry(host.clone()).or_default();
        let next = (*until).max(now) + EVERY;
        let free = next <= now + Span(EVERY.0 * AT_ONCE);
        if free {
            *until = next;
        }
        free
    }

    /// Removes items with new epochs from a batch if its host exceeds the rate. Returns the number of removed items.
    pub(super) fn hold_turns(&mut self, batch: &mut Batch, mut known: u64, now: Time) -> usize {
        let all = batch.items.len();
        let from = &batch.from;
        batch.items.retain(|item| {
            let (Item::AskDepartures(of) | Item::Departures(of)) = item else { return true };
            let allowed = of.epoch <= known || self.allows(from, now);
            if allowed {
                known = known.max(of.epoch);
            }
            allowed
        });
        all - batch.items.len()
    }
}

#[cfg(test)]
mod tests {
    use cob_types::GenerationNumber;
    use cob_types::message::{DepartureReport, Incarnation};

    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a name")
    }

    #[test]
    fn a_host_gets_a_burst_and_then_one_message_a_second() {
        let mut limits = RateLimits::default();
        let mut allowed = |name: &str, second: u64| {
            let now = Time(0) + Span::secs(1_000_000 + second);
            (0..1000).filter(|_| limits.allows(&host(name), now)).count() as u64
        };
        assert_eq!((allowed("a0", 0), allowed("n1", 0)), (AT_ONCE, AT_ONCE));
        assert_eq!([allowed("a0", 1), allowed("a0", 1), allowed("a0", 4)], [1, 0, 3]);
        assert_eq!(allowed("a0", 1000), AT_ONCE);
    }

    #[test]
    fn only_newer_turns_count_against_the_rate_limit() {
        let mut limits = RateLimits::default();
        let (from, to) = (GenerationNumber(1), GenerationNumber(2));
        let item = |turn| Item::AskDepartures(DepartureReport { from, to, epoch: turn, cobs: Vec::new() });
        let mut batch = |turns: &mut dyn Iterator<Item = u64>| {
            let incarnation = Incarnation { id: 1, start: 1 };
            let items = turns.map(item).collect();
            let mut batch = Batch { from: host("a0"), incarnation, lamport: 0, items, under_way: None };
            (limits.hold_turns(&mut batch, 7, Time(1)), batch.items.len())
        };
        assert_eq!(batch(&mut (0..10_000).map(|n| n % 8)), (0, 10_000));
        assert_eq!(batch(&mut (0..10_000).map(|_| 8)), (0, 10_000));
        assert_eq!(batch(&mut (0..10_000).map(|n| n + 9)), (10_000 - 31, 31));
    }
}
