//! The present rights of the caller of an open connection. When a generation takes them away, the connection is cut: a
//! client that was admitted once must not watch for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cob_types::trust::Role;
use tokio::sync::watch;

use super::access::{Access, Token};
use super::api::Caller;
use super::refusal::Refusal;

/// The caller of a connection and its request; clones share the state.
#[derive(Debug, Clone)]
pub(super) struct Standing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    caller: Caller,
    asked: OnceLock<Asked>,
    /// The loop has the order: the connection stays open until the answer is sent.
    ordered: AtomicBool,
}

#[derive(Debug)]
struct Asked {
    token: Option<Token>,
    needed: Role,
}

impl Standing {
    pub(super) fn new(caller: Caller) -> Self {
        Self(Arc::new(Inner { caller, asked: OnceLock::new(), ordered: AtomicBool::new(false) }))
    }

    /// Notes the needed role and the token. Must come before the access check that admits the request: a change of the
    /// access between the two would be missed.
    pub(super) fn asks(&self, token: Option<Token>, needed: Role) {
        // A connection carries one request only, so the cell is empty.
        let _ = self.0.asked.set(Asked { token, needed });
    }

    /// Passes a complete request to the loop, if its caller still has the right. From then on the connection stays open
    /// until the answer: an order that takes away its author's own right is answered, too.
    pub(super) fn orders(&self, access: &Access) -> Result<(), Refusal> {
        self.judge(access)?;
        self.0.ordered.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The order is carried out, and the answer goes on for long: from here on the connection is cut when its caller loses
    /// the right to it.
    pub(super) fn answers_for_long(&self, access: &Access) -> Result<(), Refusal> {
        self.0.ordered.store(false, Ordering::Relaxed);
        // Afterwards: an earlier loss of the right is seen here, and a later loss by `lost`.
        self.judge(access)
    }

    /// Waits until the caller loses the right to its request; returns the reason.
    pub(super) async fn lost(&self, mut changes: watch::Receiver<Arc<Access>>) -> Refusal {
        while changes.changed().await.is_ok() {
            let access = changes.borrow_and_update().clone();
            if let Err(why) = self.judge(&access)
                && !self.0.ordered.load(Ordering::Relaxed)
            {
                return why;
            }
        }
        // The API is gone; its connections end with the daemon.
        std::future::pending().await
    }

    fn judge(&self, access: &Access) -> Result<(), Refusal> {
        let Some(Asked { token, needed }) = self.0.asked.get() else { return Ok(()) };
        let caller = &self.0.caller;
        let who = access.identify(caller, None).or_else(|without| match token {
            Some(token) => access.identify(caller, Some(token)),
            None => Err(without),
        });
        who.map_err(|denied| denied.refusal)?.may(*needed)
    }
}
