//! Jobs: their starts, their ends, and the leases of clusters.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cob_hub_api::{ClusterState, Name, Operation};
use cob_jobs::process::{self, Life};
use cob_jobs::{Effect, JobId, Millis, Outcome, Report, Run};
use tokio::sync::mpsc::Receiver;
use tracing::{info, warn};

use super::book::{Changes, State};
use super::depots;
use super::error::HubError;
use super::orders::not_created;
use super::records::{ClusterKey, ClusterRecord};
use super::runner::News;
use super::{Hub, now_ms};
use crate::catalogue::Part;
use crate::circle::Reign;
use crate::durable;
use crate::job::{self, Keys, Order, Progress, Shape};

/// The longest time between two looks at leases.
const LOOK: Duration = Duration::from_secs(30);

/// The prefix of folders that are being deleted.
const GONE: &str = ".gone-";

impl Hub {
    /// Takes up the jobs of an earlier hub.
    pub(super) async fn resume(self: &Arc<Self>, state: &mut State) -> Result<(), HubError> {
        self.ensure_owner(state).await?;
        self.sweep(state);
        for record in state.clusters.values().filter(|record| record.state != ClusterState::Terminated) {
            self.serve_depot(record);
        }
        let effects = state.queue.resume(Millis(now_ms()));
        let mut changes = Changes::default();
        changes.queue(&mut state.queue)?;
        self.settle(state, changes, effects).await
    }

    /// Handles news of processes, and what is due.
    pub(super) async fn handle(self: Arc<Self>, mut news: Receiver<News>) {
        loop {
            let next = self.next_look().await;
            let handled = tokio::select! {
                Some(news) = news.recv() => self.hear(news).await,
                () = tokio::time::sleep(next) => self.look().await,
                () = self.changed.notified() => Ok(()),
            };
            if let Err(error) = handled {
                warn!(%error, "the hub can't go on");
                self.fail();
                if self.seat.is_none() {
                    return;
                }
            }
        }
    }

    /// The time until something is due by itself.
    async fn next_look(&self) -> Duration {
        let state = self.state.lock().await;
        // The end of a job is a reason to look again.
        let busy = super::open_jobs(&state);
        let idle = state.clusters.values().filter(|cluster| !busy.contains_key(&cluster.queue_name()));
        let leases = idle.filter_map(ClusterRecord::deletion_due_ms);
        let ticks = state.queue.next_tick().map(|at| at.0);
        let due = leases.chain(ticks).chain(self.next_warning(&state)).min();
        let wait = due.map_or(LOOK, |due| Duration::from_millis(due.saturating_sub(now_ms())));
        // A clock that jumps, or a lease whose deletion failed, must not make the hub busy.
        wait.clamp(Duration::from_millis(100), LOOK)
    }

    /// News of a job's process.
    async fn hear(&self, news: News) -> Result<(), HubError> {
        let mut state = self.state.lock().await;
        if !self.leads() {
            // The hub that leads takes the job over.
            return Ok(());
        }
        let now = Millis(now_ms());
        let effects = match news {
            News::Announced(run) => state.queue.started(run, now),
            News::Dead(run) => match self.report(run.job) {
                Some(report) => state.queue.ended(run, report, now).or_else(|_| state.queue.died(run, now)),
                None => state.queue.died(run, now),
            },
        };
        let Ok(effects) = effects else { return Ok(()) };
        let mut changes = Changes::default();
        changes.queue(&mut state.queue)?;
        self.settle(&mut state, changes, effects).await
    }

    /// What the process of a job has reported before its end. A damaged record is not repaired by a repetition.
    fn report(&self, id: JobId) -> Option<Report> {
        let progress = match Progress::read(&self.job_folder(id).join(job::RECORD)) {
            Ok(progress) => progress,
            Err(error) => return Some(Report::Failed(damaged(&error))),
        };
        progress.ended?;
        Some(match progress.failure {
            Some(failure) => Report::Failed(failure.what),
            None if progress.canceled => Report::Canceled,
            None => Report::Succeeded,
        })
    }

    /// Time has passed.
    async fn look(self: &Arc<Self>) -> Result<(), HubError> {
        let mut state = self.state.lock().await;
        if !self.leads() {
            return Ok(());
        }
        let now = now_ms();
        let effects = state.queue.tick(Millis(now));
        let mut changes = Changes::default();
        changes.queue(&mut state.queue)?;
        self.settle(&mut state, changes, effects).await?;
        self.begin_warnings(&state);
        let busy = super::open_jobs(&state);
        let lapsed: Vec<ClusterRecord> = state
            .clusters
            .values()
            .filter(|cluster| cluster.deletion_due_ms().is_some_and(|due| due <= now))
            // A lease that ends during a job is looked at again after the job.
            .filter(|cluster| !busy.contains_key(&cluster.queue_name()))
            .cloned()
            .collect();
        for cluster in lapsed {
            info!(tenant = %cluster.tenant, cluster = %cluster.name, "the lease has ended: the cluster is deleted");
            match self.delete_lapsed(&mut state, &cluster).await {
                Err(error @ HubError::Store(_)) => return Err(error),
                Err(error) => {
                    // Nothing has changed; the next look is after the pause of another attempt.
                    warn!(cluster = %cluster.name, %error, "the deletion can't be submitted");
                    state.clusters.insert((cluster.tenant.clone(), cluster.name.clone()), cluster.lapsed(now));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Removes the folders of clusters and jobs that are no more: an earlier hub was killed before it could do this.
    fn sweep(&self, state: &State) {
        let folders = |path: &Path| -> Vec<(String, PathBuf)> {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path()))).collect()
        };
        for (tenant, path) in folders(&self.config.folder.join("clusters")) {
            if tenant.starts_with(GONE) {
                remove(&path);
            }
            for (cluster, path) in folders(&path) {
                let (Ok(tenant), Ok(cluster)) = (Name::new(&tenant), Name::new(&cluster)) else { continue };
                let record = state.clusters.get(&(tenant, cluster));
                if record.is_some_and(|record| record.state != ClusterState::Terminated) {
                    continue;
                }
                // Machines are never forgotten: a folder with machines belongs to a cluster that the store has lost.
                if job::machines::read(&path).is_ok_and(|machines| machines.is_empty()) {
                    remove(&path);
                } else {
                    warn!(folder = %path.display(), "the folder has machines, but there is no such cluster");
                }
            }
        }
        for (job, path) in folders(&self.config.folder.join("jobs")) {
            let known = job.parse().is_ok_and(|id| state.queue.job(JobId(id)).is_some());
            if !known && process::probe(&path).is_ok_and(|life| life == Life::Dead) {
                remove(&path);
            }
        }
    }

    /// Makes changes durable, then performs effects.
    pub(super) async fn settle(
        &self,
        state: &mut State,
        mut changes: Changes,
        effects: Vec<Effect>,
    ) -> Result<(), HubError> {
        let mut gone = Vec::new();
        for effect in &effects {
            if let Effect::Finished(id, outcome) = effect {
                self.finish(state, &mut changes, *id, *outcome, &mut gone)?;
            }
        }
        if !changes.is_empty() {
            self.write(changes).await?;
        }
        for folder in gone {
            self.clear_away(folder.clone());
            if let Ok(name) = folder.strip_prefix(&self.config.folder) {
                self.forget_copies(format!("{}/", name.display())).await;
            }
        }
        for effect in effects {
            match effect {
                Effect::Start(run) => self.start(state, run),
                Effect::Confirm(run) => self.runner.confirm(run, &self.job_folder(run.job)),
                Effect::Terminate(run) => self.runner.terminate(run, &self.job_folder(run.job)),
                Effect::Kill(run) => self.runner.kill(run, &self.job_folder(run.job)),
                Effect::Watch(run) if self.seat.is_some() => {
                    let cluster = state.queue.job(run.job).and_then(|job| job.spec.cluster.clone());
                    self.await_owner(run, cluster.unwrap_or_default());
                }
                Effect::Watch(run) => self.runner.watch(run, &self.job_folder(run.job)),
                Effect::Finished(id, outcome) => info!(job = id.0, %outcome, "a job has ended"),
                Effect::Archive(id) => {
                    info!(job = id.0, "a job has left the table");
                    remove(&self.job_folder(id));
                    self.forget_copies(format!("jobs/{id}/")).await;
                }
            }
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Deletes the folder of a cluster that is gone. Its name is free at once, for a new cluster.
    fn clear_away(&self, folder: PathBuf) {
        let aside = tempfile::Builder::new().prefix(GONE).tempdir_in(self.config.folder.join("clusters"));
        let moved = aside.and_then(|aside| {
            let moved = std::fs::rename(&folder, aside.path().join("cluster"));
            moved.map(|()| aside)
        });
        self.depots.release(&folder);
        let clear = move || {
            // The folder of a creation that was canceled in the queue was never made.
            if let Ok(Err(error)) = moved.map(tempfile::TempDir::close) {
                warn!(folder = %folder.display(), %error, "the folder of a deleted cluster stays");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("clear away".to_owned()).spawn(clear) {
            warn!(%error, "no thread to delete the folder of a cluster");
        }
    }

    /// The effect of an ended job on its cluster.
    fn finish(
        &self,
        state: &mut State,
        changes: &mut Changes,
        id: JobId,
        outcome: Outcome,
        gone: &mut Vec<PathBuf>,
    ) -> Result<(), HubError> {
        let Some(job) = state.queue.job(id) else { return Ok(()) };
        let payload = job.spec.payload.clone();
        let tenant = tenant_of_job(&job.spec.tenant)?;
        let key: ClusterKey = (tenant, payload.cluster);
        let Some(record) = state.clusters.get(&key) else { return Ok(()) };
        // A job that never started has no record.
        let progress = match job.started {
            Some(_) => Progress::read(&self.job_folder(id).join(job::RECORD)),
            None => Ok(Progress::default()),
        };
        let is_clean = progress.as_ref().is_ok_and(Progress::is_clean);
        let progress = progress.unwrap_or_else(|error| {
            warn!(job = id.0, %error, "the record of a job is damaged");
            Progress::default()
        });
        let after = record.after(&payload.operation, outcome, &progress, is_clean);
        let is_terminated = after.as_ref().is_some_and(|after| after.state == ClusterState::Terminated);
        if after.is_none() || is_terminated {
            // A later cluster of the same name begins without the files and the grants of this cluster.
            gone.push(self.cluster_folder(&key.0, &key.1));
            if let Some(entity) = super::cluster_entity(record) {
                state.directory.forget(&entity);
                changes.directory(&state.directory)?;
            }
        }
        changes.cluster(&key, after.as_ref())?;
        match after {
            Some(after) => state.clusters.insert(key, after),
            None => state.clusters.remove(&key),
        };
        Ok(())
    }

    /// Prepares the folder of a job and starts its process.
    fn start(&self, state: &State, run: Run) {
        let folder = self.job_folder(run.job);
        match self.prepare(state, run, &folder) {
            Ok(()) => self.runner.start(run, &folder),
            Err(error) => {
                warn!(job = run.job.0, %error, "a job can't be started");
                self.runner.lost(run);
            }
        }
    }

    fn prepare(&self, state: &State, run: Run, folder: &Path) -> Result<(), HubError> {
        let failed = |error: std::io::Error| HubError::Internal(format!("{}: {error}", folder.display()));
        if folder.join(job::ORDER).is_file() {
            // A repetition continues with the same order.
            return match self.reign()? {
                None => Ok(()),
                Some(reign) => self.take_over(state, run, folder, reign),
            };
        }
        durable::make_folder(folder).map_err(failed)?;
        // From here on, a missing record is a damage.
        File::options().create(true).append(true).open(folder.join(job::RECORD)).map_err(failed)?;
        let missing = || HubError::Internal(format!("job {} or its cluster is gone", run.job));
        let job = state.queue.job(run.job).ok_or_else(missing)?;
        let tenant = tenant_of_job(&job.spec.tenant)?;
        let name = job.spec.payload.cluster.clone();
        let record = state.clusters.get(&(tenant.clone(), name.clone())).ok_or_else(missing)?;
        if !record.is_created() && !matches!(job.spec.payload.operation, Operation::Create {} | Operation::Delete {}) {
            return Err(not_created(&name));
        }
        let home = self.cluster_folder(&tenant, &name);
        let newest = self.catalogue.head()?;
        let operation = job.spec.payload.operation.clone();
        let shape = match operation {
            Operation::Create {} => Shape { catalogue: newest.clone(), ..record.shape.clone() },
            Operation::Resize { .. }
            | Operation::Services { .. }
            | Operation::Configure { .. }
            | Operation::Start { .. }
            | Operation::Stop { .. }
            | Operation::Restart { .. }
            | Operation::Sync {}
            | Operation::Rollback {}
            | Operation::Replace { .. }
            | Operation::Delete {} => record.shape.clone(),
        };
        durable::make_folder(&home.join("catalogues")).map_err(failed)?;
        // Another hub of the circle may have had the former state.
        let former = record.former.as_ref().filter(|_| self.seat.is_some()).map(|shape| &shape.catalogue);
        for version in [&shape.catalogue, &newest].into_iter().chain(former) {
            self.copy_catalogue(&tenant, version, &home.join("catalogues").join(version))?;
        }
        // Hosts that answer stop their services before their deletion. If that failed, the next deletion does not wait for
        // hosts that are gone; neither does it wait if the generations are gone.
        let has_generation =
            record.generation.is_some() && record.state != ClusterState::Incomplete && home.join("depot").is_dir();
        let order = Order {
            job: run.job.0,
            tenant,
            cluster: name,
            owner: Some(record.owner.to_string()),
            operation,
            folder: home,
            shape,
            former: record.former.clone(),
            newest,
            has_generation,
            keep_failed: record.keep_failed,
            programs: self.config.programs.clone(),
            providers: self.config.providers.clone(),
            provider_state: self.config.provider_state.clone(),
            switch_limit_s: self.config.switch_limit_s,
            callback: self.config.callback.clone(),
            keys: self.keys_of(record),
            reign: self.reign()?,
        };
        self.serve_depot(record);
        durable::replace_json(&folder.join(job::ORDER), &order).map_err(failed)
    }

    /// Makes the order of another hub of the circle an order for this machine.
    fn take_over(&self, state: &State, run: Run, folder: &Path, reign: Reign) -> Result<(), HubError> {
        let path = folder.join(job::ORDER);
        let failed = |error: std::io::Error| HubError::Internal(format!("{}: {error}", path.display()));
        let order: Order = serde_json::from_slice(&std::fs::read(&path).map_err(failed)?)
            .map_err(|error| HubError::Internal(format!("{}: {error}", path.display())))?;
        let missing = || HubError::Internal(format!("the cluster of job {} is gone", run.job));
        let record = state.clusters.get(&(order.tenant.clone(), order.cluster.clone())).ok_or_else(missing)?;
        let home = self.cluster_folder(&order.tenant, &order.cluster);
        durable::make_folder(&home.join("catalogues")).map_err(failed)?;
        let former = order.former.as_ref().map(|shape| &shape.catalogue);
        for version in [&order.shape.catalogue, &order.newest].into_iter().chain(former) {
            self.copy_catalogue(&order.tenant, version, &home.join("catalogues").join(version))?;
        }
        let order = Order {
            folder: home,
            programs: self.config.programs.clone(),
            providers: self.config.providers.clone(),
            provider_state: self.config.provider_state.clone(),
            callback: self.config.callback.clone(),
            keys: self.keys_of(record),
            reign: Some(reign),
            ..order
        };
        self.serve_depot(record);
        durable::replace_json(&path, &order).map_err(failed)
    }

    fn keys_of(&self, record: &ClusterRecord) -> Option<Keys> {
        let (keys, port, operator) = (self.config.keys.as_ref()?, record.depot_port?, self.operator.clone()?);
        Some(Keys {
            server: format!("tcp://{}", SocketAddr::new(keys.address, port)),
            operator_key: depots::operator_file(&self.config),
            operator,
            publishers: keys.publishers.clone(),
            threshold: keys.threshold,
            signer: keys.signer.clone(),
        })
    }

    /// Gives out the generations of a cluster to its hosts.
    pub(super) fn serve_depot(&self, record: &ClusterRecord) {
        if let Some(port) = record.depot_port {
            self.depots.serve(&self.cluster_folder(&record.tenant, &record.name), port);
        }
    }

    /// Copies a version of the catalogue into the folder of a cluster, whole or not at all.
    fn copy_catalogue(&self, tenant: &Name, version: &str, to: &Path) -> Result<(), HubError> {
        if to.is_dir() {
            return Ok(());
        }
        let failed = |error: std::io::Error| HubError::Internal(format!("{}: {error}", to.display()));
        let parent = to.parent().unwrap_or(to);
        let copy = tempfile::Builder::new().prefix(".new-").tempdir_in(parent).map_err(failed)?;
        self.catalogue.export(&Part::Tenant(tenant.clone()), version, copy.path())?;
        std::fs::rename(copy.path(), to).map_err(failed)?;
        durable::sync(parent).map_err(failed)
    }
}

/// Removes a folder that nobody needs.
fn remove(folder: &Path) {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            warn!(folder = %folder.display(), %error, "a folder that nobody needs stays");
        }
        Ok(()) | Err(_) => {}
    }
}

/// The reason of a job whose record is damaged.
pub(super) fn damaged(error: &std::io::Error) -> String {
    format!("the record of the job is damaged: {error}")
}

pub(super) fn tenant_of_job(tenant: &str) -> Result<Name, HubError> {
    Name::new(tenant).map_err(|e| HubError::Internal(e.to_string()))
}
