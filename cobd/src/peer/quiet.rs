//! Rate limit for log lines about the same problem: the first line comes at once, later lines at intervals with the
//! number of suppressed lines.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cob_types::HostName;
use tokio::time::Instant;

use super::refusals::Reason;

/// If more problems than this exist at a time, the others share an interval: names may come from strangers.
const MAX_KEYS: usize = 256;

/// The subject of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// A link came up.
    Up,
    /// A link went down.
    Down,
    /// A host can't be dialled.
    Dial,
    /// The setup of a connection failed.
    Setup,
    /// A connection was refused, for this reason.
    Refused(Reason),
    /// No connection can be accepted.
    Accept,
    /// A batch could not be sent.
    Send,
    /// A received batch can't be decoded.
    Batch,
    /// A received batch names another host than the host of its link.
    Name,
    /// Items of a newer protocol were skipped.
    Items,
    /// Received items speak for change objects of other hosts.
    ForeignItems,
    /// Received numbers are implausible.
    Numbers,
    /// A host sends too much.
    TooMuch,
    /// This host can't switch to an announced generation.
    Told,
    /// This host does not follow an announced rollback.
    Withdrawal,
    /// A generation gives this host another listening address.
    Moved,
    /// This host can't prove its identity.
    Identity,
}

impl Topic {
    fn interval(self) -> Duration {
        match self {
            Topic::Up | Topic::Down => Duration::from_secs(1),
            Topic::Dial
            | Topic::Setup
            | Topic::Refused(_)
            | Topic::Accept
            | Topic::Send
            | Topic::Batch
            | Topic::Name
            | Topic::Items
            | Topic::ForeignItems
            | Topic::Numbers
            | Topic::TooMuch
            | Topic::Told
            | Topic::Withdrawal
            | Topic::Identity
            | Topic::Moved => Duration::from_secs(60),
        }
    }
}

/// Remembers the logged lines and their times.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    said: Mutex<BTreeMap<(Topic, Option<HostName>), Said>>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    left_out: u64,
}

impl Quiet {
    /// Logs a line with `log`, unless a line on the same topic was logged a short while ago. The argument is the text
    /// to append: the number of suppressed lines, or an empty text.
    pub(crate) fn say(&self, topic: Topic, host: Option<&HostName>, log: impl FnOnce(String)) {
        match self.due(topic, host, Instant::now()) {
            Some(0) => log(String::new()),
            Some(left_out) => log(format!(" (and {left_out} more like it since the last line)")),
            None => {}
        }
    }

    /// Returns the number of suppressed lines if a line is due.
    fn due(&self, topic: Topic, host: Option<&HostName>, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (topic, host.cloned());
        if said.len() >= MAX_KEYS && !said.contains_key(&key) {
            key.1 = None;
        }
        match said.get_mut(&key) {
            Some(last) if now.duration_since(last.at) < topic.interval() => {
                last.left_out += 1;
                None
            }
            Some(last) => {
                last.at = now;
                Some(std::mem::take(&mut last.left_out))
            }
            None => {
                said.insert(key, Said { at: now, left_out: 0 });
                Some(0)
            }
        }
    }

    /// The problem is over: the next line about it comes at once.
    pub(super) fn over(&self, topic: Topic, host: &HostName) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(&(topic, Some(host.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_comes_at_once_and_the_next_after_the_interval() {
        let quiet = Quiet::default();
        let host = HostName::new("n1").expect("host");
        let start = Instant::now();
        let lines: Vec<_> = (0..120)
            .filter_map(|second| {
                let left_out = quiet.due(Topic::Dial, Some(&host), start + Duration::from_secs(second))?;
                Some((second, left_out))
            })
            .collect();
        assert_eq!(lines, [(0, 0), (60, 59)]);
        quiet.over(Topic::Dial, &host);
        assert_eq!(quiet.due(Topic::Dial, Some(&host), start + Duration::from_secs(120)), Some(0));
    }

    #[test]
    fn names_made_up_by_strangers_do_not_fill_the_memory() {
        let quiet = Quiet::default();
        let now = Instant::now();
        let lines = (0..10_000).filter(|number| {
            let host = HostName::new(&format!("n{number}")).expect("host");
            quiet.due(Topic::Setup, Some(&host), now).is_some()
        });
        assert_eq!(lines.count(), MAX_KEYS + 1);
        assert_eq!(quiet.said.lock().expect("lock").len(), MAX_KEYS + 1);
    }
}
