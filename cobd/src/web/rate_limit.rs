//! The rate limit against guessed tokens; counts refusals and keeps the log short.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cob_trust::pending::network;
use cob_types::log::LineLimit;

/// The most wrong tokens in a row from a source.
const TRIES: u32 = 10;
/// The time after which one wrong token is forgotten.
const FORGET: Duration = Duration::from_secs(6);
/// The most sources that are remembered.
const SOURCES: usize = 1024;
/// The shortest interval between two log lines about refusals.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Refused requests and wrong tokens.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    inside: Mutex<Inside>,
    lines: LineLimit<()>,
}

#[derive(Debug, Default)]
struct Inside {
    sources: BTreeMap<IpAddr, Tries>,
    refused: u64,
}

/// The wrong tokens of a source: `number` at time `at`, one fewer after each [`FORGET`].
#[derive(Debug, Clone, Copy)]
struct Tries {
    number: u32,
    at: Instant,
}

impl Tries {
    /// The count at this time.
    fn aged(self, now: Instant) -> Self {
        let steps = now.saturating_duration_since(self.at).as_millis() / FORGET.as_millis();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        match self.number.checked_sub(steps) {
            Some(number) if number > 0 => Self { number, at: self.at + FORGET * steps },
            Some(_) | None => Self { number: 0, at: now },
        }
    }
}

impl RateLimit {
    /// Whether tokens of this source are checked.
    pub(super) fn lets_try(&self, source: IpAddr, now: Instant) -> bool {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.sources.get(&network(source)).is_none_or(|tries| tries.aged(now).number < TRIES)
    }

    /// Counts a wrong token of this source.
    pub(super) fn wrong(&self, source: IpAddr, now: Instant) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = &mut inside.sources;
        let source = network(source);
        if sources.len() >= SOURCES && !sources.contains_key(&source) {
            sources.retain(|_, tries| tries.aged(now).number > 0);
            while sources.len() >= SOURCES {
                let Some(oldest) = sources.iter().min_by_key(|(_, t)| t.at).map(|(ip, _)| *ip) else { break };
                sources.remove(&oldest);
            }
        }
        let tries = sources.get(&source).map_or(Tries { number: 0, at: now }, |tries| tries.aged(now));
        sources.insert(source, Tries { number: (tries.number + 1).min(TRIES), ..tries });
    }

    /// Counts a refusal. If a log line is due: the number of refusals since the last line.
    pub(super) fn refused(&self, now: Instant) -> Option<u64> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).refused += 1;
        self.lines.due((), (), LINE_EVERY, now)
    }

    /// Forgets all wrong tokens.
    #[cfg(test)]
    pub(super) fn wrong_is_forgotten(&self) {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).sources.clear();
    }

    /// The number of refusals.
    pub(super) fn count(&self) -> u64 {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_source_that_guesses_is_slowed_down_and_others_are_not() {
        let (tries, start) = (RateLimit::default(), Instant::now());
        let (bad, good) = (ip("10.0.0.1"), ip("10.0.0.2"));
        for _ in 0..TRIES {
            assert!(tries.lets_try(bad, start));
            tries.wrong(bad, start);
        }
        assert!(!tries.lets_try(bad, start) && tries.lets_try(good, start));
        assert!(!tries.lets_try(bad, start + FORGET / 2));
        // One more attempt for each span, and no more.
        let later = start + FORGET;
        assert!(tries.lets_try(bad, later));
        tries.wrong(bad, later);
        assert!(!tries.lets_try(bad, later) && !tries.lets_try(bad, later + FORGET / 2));
        let day = start + Duration::from_secs(86_400);
        for _ in 0..TRIES {
            assert!(tries.lets_try(bad, day));
            tries.wrong(bad, day);
        }
        assert!(!tries.lets_try(bad, day));
    }

    #[test]
    fn a_network_counts_as_a_single_source_and_sources_are_bounded() {
        let (tries, now) = (RateLimit::default(), Instant::now());
        for n in 0..TRIES {
            tries.wrong(ip(&format!("2001:db8::{n}")), now);
        }
        assert!(!tries.lets_try(ip("2001:db8::ffff"), now) && tries.lets_try(ip("2001:db8:0:1::"), now));
        for n in 0..5000_u32 {
            tries.wrong(IpAddr::from(n.to_be_bytes()), now);
        }
        assert_eq!(tries.inside.lock().expect("lock").sources.len(), SOURCES);
    }

    #[test]
    fn refusals_are_counted_and_reported_at_intervals() {
        let (tries, start) = (RateLimit::default(), Instant::now());
        let told: Vec<_> = (0..25).filter_map(|s| tries.refused(start + Duration::from_secs(s))).collect();
        assert_eq!((told, tries.count()), (vec![0, 9, 9], 25));
    }
}
