//! What the parts of a daemon share about one peer.
//!
//! The daemon's loop puts batches in and reads the status; the link that is up takes them out. Nobody
//! holds the lock across a wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use cob_types::HostName;
use cob_types::status::PeerStatus;
use tokio::sync::Notify;

use super::session::Session;

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) host: HostName,
    state: Mutex<PeerState>,
    /// Wakes the link: there is something to send, or another wish.
    pub(super) wake: Notify,
    /// Wakes a shutdown: everything sent was acknowledged.
    pub(super) settled: Notify,
}

/// What is known of it.
#[derive(Debug)]
pub(super) struct PeerState {
    pub(super) session: Session,
    /// The link that the daemon was told of.
    pub(super) up: Option<u64>,
    /// Something is held or asked there.
    pub(super) busy: bool,
    /// The daemon stops: what arrives is not handed on any more.
    pub(super) stopping: bool,
    /// The link is to say goodbye.
    pub(super) leaving: bool,
    /// When something was last heard over the link that is up.
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
            since_ns: now_ns(),
            error: None,
        };
        Self { host, state: Mutex::new(state), wake: Notify::new(), settled: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PeerState> {
        // A panic elsewhere leaves numbers that may be wrong by one message; the link finds out by
        // itself and is cut, so there is no reason to stop here.
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
    /// Something was heard.
    pub(super) fn hears(&mut self) {
        if self.up.is_some() {
            self.heard = Some(Instant::now());
        }
    }

    /// When something was last heard; none: there is no link.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// The daemon is told that this link is up.
    pub(super) fn set_up(&mut self, link: u64) {
        self.up = Some(link);
        self.heard = Some(Instant::now());
        self.since_ns = now_ns();
        self.error = None;
    }

    /// There is no link, for this reason. Returns the link that the daemon has to be told is gone.
    pub(super) fn set_down(&mut self, why: &str) -> Option<u64> {
        let was_up = self.up.take();
        self.heard = None;
        if was_up.is_some() {
            self.since_ns = now_ns();
        }
        self.error = Some(why.to_owned());
        was_up
    }
}

fn now_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}
