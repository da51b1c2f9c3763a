//! Jobs: their starts, their ends, and the leases of clusters.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cob_hub_api::{ClusterState, Name, Operation};
use cob_jobs::{Effect, JobId, Millis, Outcome, Report, Run};
use cob_permissions::{Subject, UserId};
use tokio::sync::mpsc::Receiver;
use tracing::{info, warn};

use super::book::{Changes, State};
use super::depots;
use super::error::HubError;
use super::records::{ClusterKey, ClusterRecord};
use super::runner::News;
use super::{Caller, Hub, now_ms, rights_name};
use crate::catalogue::Part;
use crate::durable;
use crate::job::{self, Keys, Order, Progress, Shape};

/// The longest time between two looks at leases.
const LOOK: Duration = Duration::from_secs(30);

impl Hub {
    /// Takes up the jobs of an earlier hub, and begins to handle news of processes.
    pub(super) async fn begin(self: Arc<Self>, news: Receiver<News>) -> Result<(), HubError> {
        let mut state = self.state.lock().await;
        for record in state.clusters.values().filter(|record| record.state != ClusterState::Terminated) {
            self.serve_depot(record);
        }
        let effects = state.queue.resume(Millis(now_ms()));
        let mut changes = Changes::default();
        changes.queue(&mut state.queue)?;
        self.settle(&mut state, changes, effects).await?;
        drop(state);
        tokio::spawn(async move { self.handle(news).await });
        Ok(())
    }

    async fn handle(&self, mut news: Receiver<News>) {
        loop {
            let next = self.next_look().await;
            let handled = tokio::select! {
                Some(news) = news.recv() => self.hear(news).await,
                () = tokio::time::sleep(next) => self.look().await,
                () = self.changed.notified() => Ok(()),
            };
            if let Err(error) = handled {
                warn!(%error, "the hub stops");
                self.broken.notify_one();
                return;
            }
        }
    }

    /// The time until something is due by itself.
    async fn next_look(&self) -> Duration {
        let state = self.state.lock().await;
        let leases = state.clusters.values().filter_map(|cluster| cluster.lease_ends_ms);
        let due = leases.chain(state.queue.next_tick().map(|at| at.0)).min();
        let wait = due.map_or(LOOK, |due| Duration::from_millis(due.saturating_sub(now_ms())));
        // A clock that jumps, or a lease whose deletion failed, must not make the hub busy.
        wait.clamp(Duration::from_millis(100), LOOK)
    }

    /// News of a job's process.
    async fn hear(&self, news: News) -> Result<(), HubError> {
        let mut state = self.state.lock().await;
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

    /// What the process of a job has reported before its end.
    fn report(&self, id: JobId) -> Option<Report> {
        let progress = Progress::read(&self.job_folder(id).join(job::RECORD)).ok()?;
        progress.ended?;
        Some(match progress.failure {
            Some(failure) => Report::Failed(failure.what),
            None if progress.canceled => Report::Canceled,
            None => Report::Succeeded,
        })
    }

    /// Time has passed.
    async fn look(&self) -> Result<(), HubError> {
        let mut state = self.state.lock().await;
        let now = now_ms();
        let effects = state.queue.tick(Millis(now));
        let mut changes = Changes::default();
        changes.queue(&mut state.queue)?;
        self.settle(&mut state, changes, effects).await?;
        let lapsed: Vec<ClusterRecord> = state
            .clusters
            .values()
            .filter(|cluster| cluster.lease_ends_ms.is_some_and(|ends| ends <= now))
            // A lease that ends during a job is looked at again after the job.
            .filter(|cluster| cluster.state != ClusterState::Terminated && super::open_job(&state, cluster).is_none())
            .cloned()
            .collect();
        for mut cluster in lapsed {
            let caller = Caller {
                subject: Subject { user: UserId { tenant: None, name: rights_name("root")? }, scope: None },
                tenant: Some(cluster.tenant.clone()),
                request: "the lease has ended".to_owned(),
            };
            info!(tenant = %cluster.tenant, cluster = %cluster.name, "the lease has ended: the cluster is deleted");
            let (tenant, name) = (cluster.tenant.clone(), cluster.name.clone());
            // If the deletion fails, it is tried again after an hour.
            cluster.lease_ends_ms = Some(now.saturating_add(3_600_000));
            let mut changes = Changes::default();
            changes.cluster(&(tenant.clone(), name.clone()), Some(&cluster))?;
            state.clusters.insert((tenant.clone(), name.clone()), cluster);
            self.submit(&mut state, changes, &caller, &tenant, &name, Operation::Delete {}).await?;
        }
        Ok(())
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
        self.write(changes).await?;
        for folder in gone {
            self.clear_away(folder);
        }
        for effect in effects {
            match effect {
                Effect::Start(run) => self.start(state, run),
                Effect::Confirm(run) => self.runner.confirm(run),
                Effect::Terminate(run) => self.runner.terminate(run, &self.job_folder(run.job)),
                Effect::Kill(run) => self.runner.kill(run, &self.job_folder(run.job)),
                Effect::Watch(run) => self.runner.watch(run, &self.job_folder(run.job)),
                Effect::Finished(id, outcome) => info!(job = id.0, %outcome, "a job has ended"),
                Effect::Archive(id) => info!(job = id.0, "a job has left the table"),
            }
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Deletes the folder of a cluster that is gone. Its name is free at once, for a new cluster.
    fn clear_away(&self, folder: PathBuf) {
        let aside = tempfile::Builder::new().prefix(".gone-").tempdir_in(self.config.folder.join("clusters"));
        let moved = aside.and_then(|aside| {
            let moved = std::fs::rename(&folder, aside.path().join("cluster"));
            moved.map(|()| aside)
        });
        let depots = self.depots.clone();
        let clear = move || {
            depots.end(&folder);
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
        let progress = Progress::read(&self.job_folder(id).join(job::RECORD)).unwrap_or_default();
        let after = record.after(&payload.operation, outcome, &progress);
        changes.cluster(&key, after.as_ref())?;
        match after {
            Some(after) => {
                state.clusters.insert(key, after);
            }
            None => {
                state.clusters.remove(&key);
                gone.push(self.cluster_folder(&key.0, &key.1));
            }
        }
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
            return Ok(());
        }
        let missing = || HubError::Internal(format!("job {} or its cluster is gone", run.job));
        let job = state.queue.job(run.job).ok_or_else(missing)?;
        let tenant = tenant_of_job(&job.spec.tenant)?;
        let name = job.spec.payload.cluster.clone();
        let record = state.clusters.get(&(tenant.clone(), name.clone())).ok_or_else(missing)?;
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
        durable::make_folder(folder).map_err(failed)?;
        durable::make_folder(&home.join("catalogues")).map_err(failed)?;
        for version in [&shape.catalogue, &newest] {
            self.copy_catalogue(&tenant, version, &home.join("catalogues").join(version))?;
        }
        let order = Order {
            job: run.job.0,
            tenant,
            cluster: name,
            operation,
            folder: home,
            shape,
            former: record.former.clone(),
            newest,
            has_generation: record.generation.is_some(),
            keep_failed: record.keep_failed,
            programs: self.config.programs.clone(),
            providers: self.config.providers.clone(),
            provider_state: self.config.folder.join("providers"),
            switch_limit_s: self.config.switch_limit_s,
            callback: self.config.callback.clone(),
            keys: self.keys_of(record),
        };
        self.serve_depot(record);
        durable::replace_json(&folder.join(job::ORDER), &order).map_err(failed)
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

pub(super) fn tenant_of_job(tenant: &str) -> Result<Name, HubError> {
    Name::new(tenant).map_err(|e| HubError::Internal(e.to_string()))
}
