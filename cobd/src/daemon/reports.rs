//! The reports of the daemon about itself: to the API, to watchers, and to the service manager.

use cob_engine::Time;
use tokio::sync::watch;

use super::service_manager::ServiceManager;
use crate::web::{Api, Front, WatchedStatus};

/// The receivers of reports.
pub(super) struct Reports {
    front: Front,
    /// Counts the ticks with a change.
    changes: watch::Sender<u64>,
    manager: ServiceManager,
    /// The last change that was reported to the service manager.
    told_changes: u64,
}

impl Reports {
    pub(super) fn new(front: Front) -> Self {
        Self { front, changes: watch::Sender::new(0), manager: ServiceManager::of_environment(), told_changes: 0 }
    }

    pub(super) fn api(&self) -> &Api {
        &self.front.api
    }

    /// The API for a connection of a link.
    pub(super) fn front(&self) -> Front {
        self.front.clone()
    }

    pub(super) fn manager(&self) -> &ServiceManager {
        &self.manager
    }

    /// A receiver that learns of every change.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Reports a change to watchers.
    pub(super) fn changed(&self, status: WatchedStatus) {
        self.changes.send_modify(|n| *n += 1);
        self.front.api.pace.stands(status);
    }

    /// Reports to the service manager that the loop runs, and the status.
    pub(super) fn alive(&mut self, now: Time, status: impl FnOnce() -> String) {
        let changes = *self.changes.borrow();
        let changed = std::mem::replace(&mut self.told_changes, changes) != changes;
        self.manager.alive(now, changed, status);
    }
}
