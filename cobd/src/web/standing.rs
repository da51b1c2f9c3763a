//! What the caller of an open connection may still do. When a generation takes that away, the connection
//! is cut: who was let in once must not go on watching for ever.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cob_types::trust::Role;
use tokio::sync::watch;

use super::access::{Access, Token};
use super::api::Caller;
use super::wire::Refusal;

/// One connection's caller and what it asked for; clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Standing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    caller: Caller,
    asked: OnceLock<Asked>,
    /// Its order is with the loop: nothing but the answer to it goes out any more.
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

    /// Notes what is asked for, and with which token. Must come before the access is looked at that lets
    /// it in: a change between the two would be missed.
    pub(super) fn asks(&self, token: Option<Token>, needed: Role) {
        // One request a connection: there is no second one to note.
        let _ = self.0.asked.set(Asked { token, needed });
    }

    /// The request is whole and goes to the loop, if its caller still may. From then on the connection
    /// stays until the answer: an order that takes its own author's right away is answered, too.
    pub(super) fn orders(&self, access: &Access) -> Result<(), Refusal> {
        self.judge(access)?;
        self.0.ordered.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the caller may no longer have what it asked for; the reason.
    pub(super) async fn lost(&self, mut changes: watch::Receiver<Arc<Access>>) -> Refusal {
        while changes.changed().await.is_ok() {
            let access = changes.borrow_and_update().clone();
            if let Err(why) = self.judge(&access)
                && !self.0.ordered.load(Ordering::Relaxed)
            {
                return why;
            }
        }
        // The API is gone, and its connections end with the daemon.
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
