//! The place of this hub in a circle: it leads, or follows the store until it can lead.
//!
//! A following hub has all files and all state, and answers questions. It writes nothing: the book has no fence then.
//! Between the two roles, the state is read from the store again, because what a failed write has changed in memory does
//! not count.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cob_hub_store::{Compare, Etcd, Prefix, Revision, Store as _, StoreError, Watch as _};
use cob_jobs::{JobId, Run};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::book::{State, locked};
use super::error::HubError;
use super::{Hub, limits};
use crate::circle::claim::{Claim, Keeper};
use crate::circle::copies::{Copies, CopyError};
use crate::circle::{Circle, Reign};

/// The pause between two looks whether a hub leads.
const LOOK: Duration = Duration::from_millis(300);
/// How long a hub that stops waits until it has given the lead up.
const LEAVE: Duration = Duration::from_secs(3);
/// The pause between two copies of files that change without a request: enrolled keys, pushes to the catalogue.
const PERIOD: Duration = Duration::from_secs(1);
/// The area of the catalogue.
pub(super) const CATALOGUE: &str = "catalogue.git/";

/// What a hub does in its circle.
#[derive(Debug, Clone)]
pub enum Role {
    /// It leads.
    Leads,
    /// It follows.
    Follows {
        /// The hub that leads, as far as is known.
        leader: Option<String>,
        /// When the store said so.
        since: Instant,
    },
}

/// The seat of this hub.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) circle: Circle,
    pub(super) store: Etcd,
    pub(super) copies: tokio::sync::Mutex<Copies>,
    role: Mutex<Role>,
    /// The fence and the epoch of the present reign.
    reign: Mutex<Option<(Compare, Revision)>>,
    resign: Notify,
    /// Whether this hub holds the lead.
    holds: watch::Sender<bool>,
    /// This hub stops.
    leaves: AtomicBool,
}

impl From<CopyError> for HubError {
    fn from(error: CopyError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<StoreError> for HubError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<cob_hub_store::Refusal> for HubError {
    fn from(error: cob_hub_store::Refusal) -> Self {
        Self::Internal(error.to_string())
    }
}

impl Seat {
    /// Takes a seat. Returns the claim, if this hub begins as the leader. The files are those of the circle then.
    pub(super) async fn take(circle: &Circle, root: &std::path::Path) -> Result<(Self, Option<Claim>), HubError> {
        let seat = Self {
            circle: circle.clone(),
            store: circle.store()?,
            copies: tokio::sync::Mutex::new(Copies::new(circle, root)?),
            role: Mutex::new(Role::Follows { leader: None, since: Instant::now() }),
            reign: Mutex::new(None),
            resign: Notify::new(),
            holds: watch::Sender::new(false),
            leaves: AtomicBool::new(false),
        };
        loop {
            let claim = seat.claim().await?;
            let mut copies = seat.copies.lock().await;
            copies.pull("").await?;
            if claim.is_some() || copies.is_filled() {
                drop(copies);
                return Ok((seat, claim));
            }
            drop(copies);
            // The first hub of the circle is about to make the catalogue.
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Claims the lead, if nobody has it.
    async fn claim(&self) -> Result<Option<Claim>, StoreError> {
        let key = self.circle.leader()?;
        let present = self.store.get(&key).await?;
        let leader = present.map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
        let is_led = leader.is_some();
        if !self.leads() {
            *locked(&self.role) = Role::Follows { leader, since: Instant::now() };
        }
        if is_led { Ok(None) } else { Claim::take(&self.store, &key, self.circle.hub.clone(), None).await }
    }

    pub(super) fn role(&self) -> Role {
        locked(&self.role).clone()
    }

    pub(super) fn leads(&self) -> bool {
        matches!(*locked(&self.role), Role::Leads)
    }

    /// The condition of each write, and the epoch of this reign.
    pub(super) fn reign(&self) -> Result<(Compare, Revision), HubError> {
        let reign = locked(&self.reign).clone();
        reign.ok_or_else(|| HubError::Store("this hub no longer leads".to_owned()))
    }

    /// Gives the lead up: the memory of this hub may differ from the store.
    pub(super) fn resign(&self) {
        self.resign.notify_one();
    }

    fn all(&self) -> Result<Prefix, HubError> {
        Ok(self.circle.under("")?)
    }
}

impl Hub {
    /// Whether this hub may change anything.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.seat.as_ref().is_none_or(Seat::leads)
    }

    /// The name of this hub and its role; absent: it is alone.
    #[must_use]
    pub fn role(&self) -> Option<(&str, Role)> {
        self.seat.as_ref().map(|seat| (seat.circle.hub.as_str(), seat.role()))
    }

    /// The reign under which jobs begin.
    pub(super) fn reign(&self) -> Result<Option<Reign>, HubError> {
        let Some(seat) = &self.seat else { return Ok(None) };
        let (_, epoch) = seat.reign()?;
        Ok(Some(Reign { circle: seat.circle.clone(), epoch: epoch.0, root: self.config.folder.clone() }))
    }

    /// The circle, with its store.
    pub(crate) fn circle(&self) -> Option<(&Circle, &Etcd)> {
        self.seat.as_ref().map(|seat| (&seat.circle, &seat.store))
    }

    /// The condition of each write of this reign.
    pub(crate) fn fence(&self) -> Result<Compare, HubError> {
        let seat = self.seat.as_ref().ok_or_else(|| HubError::Internal("this hub is alone".to_owned()))?;
        Ok(seat.reign()?.0)
    }

    /// Leads and follows for ever.
    pub(super) async fn sit(self: Arc<Self>, mut claim: Option<Claim>) {
        let Some(seat) = &self.seat else { return };
        loop {
            let held = match claim.take() {
                Some(held) => held,
                None => self.follow(seat).await,
            };
            match Keeper::begin(&seat.circle, held.clone(), None) {
                Ok(keeper) => {
                    seat.holds.send_replace(true);
                    self.lead(seat, &held, keeper).await;
                    seat.holds.send_replace(false);
                }
                Err(why) => {
                    warn!(why, "this hub can't hold the lead");
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    /// Gives the lead to another hub, before this hub stops.
    pub async fn leave(&self) {
        let Some(seat) = &self.seat else { return };
        seat.leaves.store(true, Ordering::Relaxed);
        seat.resign();
        let mut holds = seat.holds.subscribe();
        // If etcd does not answer, the lease lapses.
        let _ = tokio::time::timeout(LEAVE, holds.wait_for(|holds| !holds)).await;
    }

    /// Follows the store until this hub has the lead.
    async fn follow(self: &Arc<Self>, seat: &Seat) -> Claim {
        loop {
            match self.follow_once(seat).await {
                Ok(claim) => return claim,
                Err(error) => {
                    warn!(%error, "this hub follows a store that does not answer");
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    async fn follow_once(self: &Arc<Self>, seat: &Seat) -> Result<Claim, HubError> {
        // The watch begins before the files are read: a change may be seen twice, and none is missed.
        let revision = self.book.refresh().await?;
        self.take_last().await?;
        let mut watch = seat.store.watch(&seat.all()?, revision.next()).await?;
        seat.copies.lock().await.pull("").await?;
        let mut look = tokio::time::interval(LOOK);
        let mut is_new = false;
        loop {
            tokio::select! {
                change = watch.next() => {
                    let change = change?;
                    is_new |= self.book.follow(&change);
                    seat.copies.lock().await.follow(&change).await?;
                }
                _ = look.tick() => {
                    if std::mem::take(&mut is_new) {
                        self.take_last().await?;
                    }
                    if !seat.leaves.load(Ordering::Relaxed) && let Some(claim) = seat.claim().await? {
                        return Ok(claim);
                    }
                }
            }
        }
    }

    /// The state becomes what the store had last.
    async fn take_last(&self) -> Result<(), HubError> {
        let last = self.book.last(|directory| limits(&self.config, directory))?;
        *self.state.lock().await = last;
        Ok(())
    }

    /// Leads until the claim is lost, or the memory may be wrong.
    async fn lead(self: &Arc<Self>, seat: &Seat, claim: &Claim, keeper: Keeper) {
        // An order to resign of a former reign.
        let _ = tokio::time::timeout(Duration::ZERO, seat.resign.notified()).await;
        let begun = tokio::select! {
            begun = self.begin_reign(seat, claim) => begun,
            () = keeper.lost() => Err(HubError::Store("the lead is lost again".to_owned())),
        };
        match begun {
            Ok(()) => {
                info!(hub = seat.circle.hub, epoch = claim.revision.0, "this hub leads");
                tokio::select! {
                    () = keeper.lost() => {}
                    () = seat.resign.notified() => {}
                    error = self.copy_for_ever(seat) => warn!(%error, "the files of the hub are not copied"),
                }
                warn!(hub = seat.circle.hub, epoch = claim.revision.0, "this hub no longer leads");
            }
            Err(error) => warn!(%error, "this hub can't begin to lead"),
        }
        self.book.set_fence(None);
        *locked(&seat.reign) = None;
        *locked(&seat.role) = Role::Follows { leader: None, since: Instant::now() };
        self.runner.forget();
        self.depots.release_all();
        keeper.end().await;
        if let Err(error) = self.take_last().await {
            warn!(%error, "the state of the store is not understood");
        }
    }

    async fn begin_reign(self: &Arc<Self>, seat: &Seat, claim: &Claim) -> Result<(), HubError> {
        seat.copies.lock().await.pull("").await?;
        self.book.refresh().await?;
        let last = self.book.last(|directory| limits(&self.config, directory))?;
        self.book.set_fence(Some(claim.fence()));
        *locked(&seat.reign) = Some((claim.fence(), claim.revision));
        let mut state = self.state.lock().await;
        *state = last;
        // The first files of a circle.
        seat.copies.lock().await.push(&["operator.key".to_owned(), CATALOGUE.to_owned()], &claim.fence()).await?;
        self.resume(&mut state).await?;
        *locked(&seat.role) = Role::Leads;
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Copies the files that change without a request. Returns why it can't go on.
    async fn copy_for_ever(&self, seat: &Seat) -> HubError {
        let mut took = Duration::ZERO;
        loop {
            // A look at many clusters takes at most a tenth of the time.
            tokio::time::sleep(PERIOD.max(took * 10)).await;
            let begun = Instant::now();
            let areas = self.idle_areas(&*self.state.lock().await);
            if let Err(error) = self.copy(&areas).await {
                return error;
            }
            took = begun.elapsed();
            if !seat.leads() {
                return HubError::Store("this hub no longer leads".to_owned());
            }
        }
    }

    /// The areas in which no job writes: that of a job belongs to its process.
    fn idle_areas(&self, state: &State) -> Vec<String> {
        let mut areas = vec![CATALOGUE.to_owned()];
        let active: Vec<_> = state.queue.open_jobs().filter(|job| job.status.is_active()).collect();
        let busy: BTreeSet<&str> = active.iter().filter_map(|job| job.spec.cluster.as_deref()).collect();
        let idle =
            state.clusters.values().map(|record| record.queue_name()).filter(|name| !busy.contains(name.as_str()));
        areas.extend(idle.map(|name| format!("clusters/{name}/")));
        areas
    }

    /// Copies areas to the store, if this hub is in a circle.
    pub(super) async fn copy(&self, areas: &[String]) -> Result<(), HubError> {
        let Some(seat) = &self.seat else { return Ok(()) };
        let (fence, _) = seat.reign()?;
        Ok(seat.copies.lock().await.push(areas, &fence).await?)
    }

    /// Forgets the copies of a folder that is gone.
    pub(super) async fn forget_copies(&self, area: String) {
        let Some(seat) = &self.seat else { return };
        let Ok((fence, _)) = seat.reign() else { return };
        let mut copies = seat.copies.lock().await;
        let mut forgotten = copies.list(&area).await.map(drop);
        if forgotten.is_ok() {
            forgotten = copies.push(&[area], &fence).await;
        }
        if let Err(error) = forgotten {
            warn!(%error, "the copies of a folder that is gone stay");
        }
    }

    /// Waits until nobody performs a job that a former leader has started, then takes its files.
    pub(super) fn await_owner(&self, run: Run, cluster: String) {
        let Some(hub) = self.me.upgrade() else { return };
        tokio::spawn(async move {
            let Some(seat) = &hub.seat else { return };
            let Ok((_, epoch)) = seat.reign() else { return };
            loop {
                match hub.is_free(seat, run.job, &cluster).await {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => warn!(job = run.job.0, %error, "a job can't be taken over yet"),
                }
                tokio::time::sleep(LOOK).await;
                // Another reign has its own tasks.
                if seat.reign().map(|(_, now)| now).ok() != Some(epoch) {
                    return;
                }
            }
            info!(job = run.job.0, "a job is taken over");
            hub.runner.lost(run);
        });
    }

    /// Whether nobody performs a job. Then its files are those of the store. `cluster` is its key in the queue.
    async fn is_free(&self, seat: &Seat, job: JobId, cluster: &str) -> Result<bool, HubError> {
        if seat.store.get(&seat.circle.owner(job.0)?).await?.is_some() {
            return Ok(false);
        }
        let mut copies = seat.copies.lock().await;
        copies.pull(&format!("clusters/{cluster}/")).await?;
        copies.pull(&format!("jobs/{job}/")).await?;
        Ok(true)
    }
}
