//! State of a peer, shared by the parts of a daemon.
//!
//! The daemon's loop adds batches and reads the status; the link that is up takes the batches. The lock is never held
//! across a wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cob_types::HostName;
use cob_types::status::PeerStatus;
use tokio::sync::Notify;

use super::session::Session;
use crate::clock::wall_ns;

/// A peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) host: HostName,
    state: Mutex<PeerState>,
    /// Wakes the link: there is a batch to send, or another desired state.
    pub(super) wake: Notify,
    /// Wakes a shutdown: all sent batches are acknowledged.
    pub(super) settled: Notify,
}

/// The state of the peer's link.
#[derive(Debug)]
pub(super) struct PeerState {
    pub(super) session: Session,
    /// The link that the daemon has been told of.
    pub(super) up: Option<u64>,
    /// Grants or requests connect this host with the peer.
    pub(super) busy: bool,
    /// The daemon stops: arriving batches are not passed on any more.
    pub(super) stopping: bool,
    /// The link shall send a goodbye.
    pub(super) leaving: bool,
    /// The time of the last frame over the link that is up.
    heard: Option<Instant>,
    since_ns: u64,
    error: Option<String>,
}

impl Peer {
    pub(super) fn new(host: HostName, session: Session) -> Self {
        let state = PeerState {
            session,
            up: None,
            busy: false,
            stopping: false,
            leaving: false,
            heard: None,
            since_ns: wall_ns(),
            error: None,
        };
        Self { host, state: Mutex::new(state), wake: Notify::new(), settled: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PeerState> {
        // After a panic in another task the numbers may be wrong by a message; the link detects that itself and is
        // closed, so there is no reason to stop here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> PeerStatus {
        let state = self.lock();
        PeerStatus {
            host: self.host.clone(),
            up: state.up.is_some(),
            since_ns: state.since_ns,
            error: state.error.clone(),
            unheard: None,
            fenced: false,
        }
    }
}

impl PeerState {
    /// A frame has arrived.
    pub(super) fn hears(&mut self) {
        if self.up.is_some() {
            self.heard = Some(Instant::now());
        }
    }

    /// The time of the last frame; `None`: there is no link.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// The daemon is told that this link is up.
    pub(super) fn set_up(&mut self, link: u64) {
        self.up = Some(link);
        self.heard = Some(Instant::now());
        self.since_ns = wall_ns();
        self.error = None;
    }

    /// There is no link, for this reason. Returns the link whose end must be reported to the daemon.
    pub(super) fn set_down(&mut self, why: &str) -> Option<u64> {
        let was_up = self.up.take();
        self.heard = None;
        if was_up.is_some() {
            self.since_ns = wall_ns();
        }
        self.error = Some(why.to_owned());
        was_up
    }
}
