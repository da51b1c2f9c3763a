//! Limits log lines about strangers. The first line of each sort comes at once. Then a line comes each minute, with the
//! number of omitted lines.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(60);
/// Beyond this number, all further sorts share an interval: their names may come from strangers.
const MOST: usize = 256;

/// The time and the number of omitted lines of each sort.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<BTreeMap<String, Said>>);

#[derive(Debug)]
struct Said {
    at: Instant,
    left_out: u64,
}

impl Notes {
    /// Warns, unless the same sort was logged within the last minute.
    pub(super) fn warn(&self, about: &str, what: &dyn fmt::Display) {
        if let Some(left_out) = self.due(about, Instant::now()) {
            let more = if left_out > 0 { format!(" (and {left_out} similar lines)") } else { String::new() };
            tracing::warn!("{what}{more}");
        }
    }

    /// The number of omitted lines since the last line; `None`: it is too early for another line.
    fn due(&self, about: &str, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MOST && !said.contains_key(about) {
            said.retain(|_, s| now.saturating_duration_since(s.at) < EVERY);
        }
        let about = if said.len() >= MOST && !said.contains_key(about) { "" } else { about };
        let Some(last) = said.get_mut(about) else {
            said.insert(about.to_owned(), Said { at: now, left_out: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(last.at) < EVERY {
            last.left_out += 1;
            return None;
        }
        last.at = now;
        Some(std::mem::take(&mut last.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute_and_the_table_has_a_bound() {
        let notes = Notes::default();
        let begin = Instant::now();
        assert_eq!(notes.due("a", begin), Some(0));
        assert_eq!(notes.due("a", begin), None);
        assert_eq!(notes.due("b", begin), Some(0));
        assert_eq!(notes.due("a", begin + EVERY), Some(1));
        let said = (0..10_000).filter(|n| notes.due(&n.to_string(), begin).is_some()).count();
        assert!(said <= MOST, "{said}");
        assert!(notes.0.lock().expect("whole").len() <= MOST + 1);
    }
}
