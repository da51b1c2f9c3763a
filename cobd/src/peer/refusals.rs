//! Counts of what was sent away, by reason.

use std::io;
use std::sync::{Mutex, PoisonError};

use cob_types::status::Refused;

/// Why something was refused: the fields of [`Refused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Nobody that a generation knows.
    Stranger,
    /// A key that was revoked.
    Revoked,
    /// Another key than that of the host that was dialled.
    WrongKey,
    /// No TLS 1.3.
    NotTls,
    /// In the name of another host.
    ForeignName,
    /// Said before, or changed on its way.
    Replayed,
    /// Silent, or in the way of others.
    Slow,
    /// Against the rules.
    Broken,
}

/// The counts of one life.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Refused>);

impl Refusals {
    pub(crate) fn add(&self, reason: Reason) {
        add(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), reason);
    }

    pub(crate) fn get(&self) -> Refused {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one more.
fn add(refused: &mut Refused, reason: Reason) {
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

/// What TLS found wrong, if it was TLS that failed.
pub(super) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// What a failed handshake comes to; none: the connection just ended.
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls adds errors; each is a broken rule")]
pub(super) fn of_handshake(error: &io::Error) -> Option<Reason> {
    Some(match tls_error(error)? {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => Reason::Stranger,
        rustls::Error::DecryptError => Reason::Replayed,
        rustls::Error::InvalidMessage(_) | rustls::Error::PeerIncompatible(_) => Reason::NotTls,
        _ => Reason::Broken,
    })
}
