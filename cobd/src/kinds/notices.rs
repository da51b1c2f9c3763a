//! What kinds notice by themselves: that a change object may not be as it was recorded.
//!
//! A notice causes a check, and says nothing about what that will find. It may be lost when there are more
//! than anybody could look at: the check at intervals finds what it would have told.

use std::sync::{Arc, Mutex, PoisonError};

use cob_types::CobId;
use tokio::sync::mpsc;

/// Notices that nobody has looked at yet.
const QUEUE: usize = 1024;

/// Takes notices, from any thread.
#[derive(Debug, Clone)]
pub struct Notices {
    sender: mpsc::Sender<CobId>,
    receiver: Arc<Mutex<Option<mpsc::Receiver<CobId>>>>,
}

impl Default for Notices {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        Self { sender, receiver: Arc::new(Mutex::new(Some(receiver))) }
    }
}

impl Notices {
    /// This change object should be looked at.
    pub fn tell(&self, cob: &CobId) {
        // Where the queue is full, the check at intervals comes to it.
        let _ = self.sender.try_send(cob.clone());
    }

    /// The other end, for the one who looks; none: somebody has it already.
    #[must_use]
    pub fn take(&self) -> Option<mpsc::Receiver<CobId>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
