//! Counters of refused connections and messages, by reason.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cob_types::status::RefusalCounts;

/// The reason for a refusal: the fields of [`RefusalCounts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// No known generation has this caller.
    Stranger,
    /// The key was revoked.
    Revoked,
    /// Another key than the key of the dialled host.
    WrongKey,
    /// No TLS 1.3.
    NotTls,
    /// A message in the name of another host.
    ForeignName,
    /// Replayed, or altered on its way.
    Replayed,
    /// Silent, or removed to make room for others.
    Slow,
    /// A broken rule of the protocol.
    Broken,
}

/// Counts are shown for at least this long, and at most twice as long.
const SHOWN: Duration = Duration::from_secs(1800);

/// The counts of the last 30 to 60 minutes: old counts age out of the status.
#[derive(Debug)]
pub(crate) struct Refusals(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    /// The start of the present counts.
    since: Instant,
    now: RefusalCounts,
    before: RefusalCounts,
}

impl Counts {
    /// Drops old counts.
    fn age(&mut self, at: Instant) {
        let age = at.saturating_duration_since(self.since);
        if age >= SHOWN {
            let now = std::mem::take(&mut self.now);
            self.before = if age < 2 * SHOWN { now } else { RefusalCounts::default() };
            self.since = at;
        }
    }
}

impl Default for Refusals {
    fn default() -> Self {
        let (now, before) = (RefusalCounts::default(), RefusalCounts::default());
        Self(Mutex::new(Counts { since: Instant::now(), now, before }))
    }
}

impl Refusals {
    pub(crate) fn add(&self, reason: Reason) {
        self.add_at(reason, Instant::now());
    }

    fn add_at(&self, reason: Reason, at: Instant) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.age(at);
        add(&mut counts.now, reason);
    }

    pub(crate) fn get(&self) -> RefusalCounts {
        self.get_at(Instant::now())
    }

    fn get_at(&self, at: Instant) -> RefusalCounts {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.age(at);
        counts.now + counts.before
    }
}

/// Counts another refusal.
fn add(refused: &mut RefusalCounts, reason: Reason) {
    let count = match reason {
        Reason::Stranger => &mut refused.stranger,
        Reason::Revoked => &mut refused.revoked,
        Reason::WrongKey => &mut refused.wrong_key,
        Reason::NotTls => &mut refused.not_tls,
        Reason::ForeignName => &mut refused.foreign_name,
        Reason::Replayed => &mut refused.replayed,
        Reason::Slow => &mut refused.slow,
        Reason::Broken => &mut refused.broken,
    };
    *count = count.saturating_add(1);
}

/// The TLS error, if TLS failed.
pub(super) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The counter for a failed handshake; `None`: the connection just ended.
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls adds errors; each is a broken rule")]
pub(super) fn of_handshake(error: &io::Error) -> Option<Reason> {
    Some(match tls_error(error)? {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => Reason::Stranger,
        rustls::Error::DecryptError => Reason::Replayed,
        rustls::Error::InvalidMessage(_) | rustls::Error::PeerIncompatible(_) => Reason::NotTls,
        _ => Reason::Broken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_refusals_leave_the_status() {
        let refusals = Refusals::default();
        let begin = Instant::now();
        let strangers = |after: Duration| refusals.get_at(begin + after).stranger;
        let add = |after: Duration| refusals.add_at(Reason::Stranger, begin + after);
        add(Duration::ZERO);
        add(SHOWN / 2);
        assert_eq!(strangers(SHOWN / 2), 2);
        add(SHOWN + SHOWN / 4);
        assert_eq!(strangers(SHOWN + SHOWN / 2), 3, "for half an hour at least");
        assert_eq!(strangers(2 * SHOWN + SHOWN / 2), 1, "for an hour at most");
        assert_eq!(strangers(10 * SHOWN), 0);
        // A refusal after a long silence is counted alone.
        add(20 * SHOWN);
        assert_eq!(strangers(20 * SHOWN), 1);
    }
}
