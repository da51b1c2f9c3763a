//! Leased keys: whoever holds one may write, until the key is gone.
//!
//! The holder counts its time from before it has asked for it, etcd from later: so the holder gives up before another can
//! claim the key. A holder that was paused may be late; therefore each of its writes has the claim as a condition.

use std::time::Duration;

use cob_hub_store::{Compare, Etcd, Key, Lease, LeaseId, Op, Revision, Store as _, StoreError, Txn};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use super::Circle;

/// The time of a lease. etcd grants no shorter one than 2 s.
const TTL: Duration = Duration::from_secs(3);
/// How long before the end of its time a holder gives up.
const MARGIN: Duration = Duration::from_millis(300);
/// The pause between two renewals.
const PERIOD: Duration = Duration::from_millis(700);
/// The pause after a renewal without an answer.
const RETRY: Duration = Duration::from_millis(100);

/// A key that this process holds.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) key: Key,
    /// The revision at which it was put.
    pub(crate) revision: Revision,
    lease: LeaseId,
    ttl: Duration,
    /// When the holder gives up.
    until: Instant,
}

impl Claim {
    /// Puts the key if it is absent, and if the other conditions hold.
    pub(crate) async fn take(
        store: &Etcd,
        key: &Key,
        value: String,
        also: Option<Compare>,
    ) -> Result<Option<Self>, StoreError> {
        let begun = Instant::now();
        let Lease { id: lease, ttl } = store.lease(TTL).await?;
        let mut txn = Txn::new().when(Compare::absent(key.clone()));
        if let Some(also) = also {
            txn = txn.when(also);
        }
        let put = store.txn(txn.then(Op::put_leased(key.clone(), value, lease))).await;
        let revision = match put {
            Ok(answer) if answer.succeeded => answer.revision,
            Ok(_) => {
                revoke(store, lease).await;
                return Ok(None);
            }
            Err(error) => match store.get(key).await {
                // The answer was lost, not the request.
                Ok(Some(entry)) if entry.lease == Some(lease) => entry.create_revision,
                Ok(_) | Err(_) => {
                    revoke(store, lease).await;
                    return Err(error);
                }
            },
        };
        Ok(Some(Self { key: key.clone(), revision, lease, ttl, until: begun + ttl.saturating_sub(MARGIN) }))
    }

    /// The condition of each write.
    pub(crate) fn fence(&self) -> Compare {
        Compare::created(self.key.clone(), self.revision)
    }

    /// Renews the lease, within the time that is left.
    async fn renew(&mut self, store: &Etcd) -> Result<(), StoreError> {
        let begun = Instant::now();
        match tokio::time::timeout_at(self.until, store.keep_alive(self.lease)).await {
            Ok(renewed) => renewed.map(|_| self.until = begun + self.ttl.saturating_sub(MARGIN)),
            Err(_) => Err(StoreError::NoLease(self.lease)),
        }
    }
}

/// Ends a lease that nobody needs. If that fails, it lapses.
async fn revoke(store: &Etcd, lease: LeaseId) {
    let _ = store.revoke(lease).await;
}

/// Holds a claim, in a thread of its own: work of the process must not delay a renewal.
#[derive(Debug)]
pub(crate) struct Keeper {
    lost: watch::Receiver<bool>,
    end: watch::Sender<bool>,
}

impl Keeper {
    /// Holds a claim, as long as another key was put at this revision.
    pub(crate) fn begin(circle: &Circle, claim: Claim, beside: Option<(Key, Revision)>) -> Result<Self, String> {
        let (teller, lost) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let store = circle.store().map_err(|e| e.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let hold = move || {
            runtime.block_on(hold(&store, claim, beside, ended));
            // The receiver may be gone.
            let _ = teller.send(true);
        };
        std::thread::Builder::new().name("lease".to_owned()).spawn(hold).map_err(|e| e.to_string())?;
        Ok(Self { lost, end })
    }

    /// Waits until the claim is no longer held.
    pub(crate) async fn lost(&self) {
        let mut lost = self.lost.clone();
        // The thread has ended otherwise: nobody holds the claim.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    /// Whether the claim is no longer held.
    pub(crate) fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Gives the key up, and waits until it is gone, or lapses.
    pub(crate) async fn end(self) {
        let _ = self.end.send(true);
        self.lost().await;
    }
}

/// Renews a claim until it ends, or is to end.
async fn hold(store: &Etcd, mut claim: Claim, beside: Option<(Key, Revision)>, mut ended: watch::Receiver<bool>) {
    let mut pause = PERIOD;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause.min(claim.until.saturating_duration_since(Instant::now()))) => {}
            // The holder has gone, or gives the claim up.
            _ = ended.wait_for(|ended| *ended) => break,
        }
        pause = match claim.renew(store).await {
            Ok(()) => PERIOD,
            Err(error) if matches!(error, StoreError::NoLease(_)) || Instant::now() >= claim.until => {
                warn!(key = %claim.key, %error, "a leased key is lost");
                return;
            }
            Err(_) => RETRY,
        };
        if let Some((key, revision)) = &beside {
            match tokio::time::timeout_at(claim.until, store.get(key)).await {
                Ok(Ok(Some(entry))) if entry.create_revision == *revision => {}
                Ok(Ok(_)) => {
                    warn!(key = %claim.key, "the hub no longer leads");
                    break;
                }
                // The next renewal decides.
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
    let _ = tokio::time::timeout_at(claim.until, store.revoke(claim.lease)).await;
}
