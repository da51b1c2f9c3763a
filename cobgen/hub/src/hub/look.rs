//! Looks at the hub: jobs, the catalogue, the directory and the audit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use cob_hub_api::{
    AuditLine, AuditQuery, Entity, EntityKind, EntityWritten, Job, JobQuery, JobState, LogPart, Name, UsageOf, Usages,
    Whoami,
};
use cob_jobs::{JobId, Limit, Obstacle, Status, because};
use cob_permissions::{self as rights, Action, Directory, Entity as Thing, Kind, Quota, Standing, may};
use serde_json::Value;

use super::book::{Changes, State};
use super::effects::tenant_of_job;
use super::error::HubError;
use super::orders::usages;
use super::queue::known_operations;
use super::records::{HubLock, Payload};
use super::seat::CATALOGUE;
use super::{Caller, Hub, entity_of, rights_name, tenant_of};
use crate::catalogue::{Catalogue, CatalogueError, Listed, Part};
use crate::job::{self, Progress};

/// The most bytes of a log in an answer.
const LOG: u64 = 256 << 10;
/// No file is longer.
const FARTHEST: u64 = i64::MAX as u64;
/// The most lines of the audit in an answer.
const LINES: usize = 1000;

impl Hub {
    /// The identity of the caller.
    pub async fn whoami(&self, caller: &Caller) -> Whoami {
        let standing = self.directory(|directory| standing(directory, caller)).await;
        let standing = match standing {
            Some(Standing::SuperAdministrator) => "super-administrator",
            Some(Standing::Administrator) => "administrator",
            Some(Standing::User) | None => "user",
        };
        Whoami {
            user: caller.subject.user.name.to_string(),
            tenant: caller.subject.user.tenant.as_ref().and_then(|tenant| Name::new(tenant.as_str()).ok()),
            standing: standing.to_owned(),
        }
    }

    /// The names of the entities of a kind that the caller may see.
    ///
    /// # Errors
    ///
    /// The catalogue can't be read.
    pub async fn entities(&self, caller: &Caller, kind: EntityKind) -> Result<Vec<String>, HubError> {
        let found = self.listed(part(caller), kind).await?;
        let state = self.state.lock().await;
        let names = self.visible(&state.directory, caller, kind, &found);
        Ok(names.map(|(name, _)| name.clone()).collect())
    }

    /// The entities of a kind that the caller may see.
    pub(super) fn visible<'a>(
        &self,
        directory: &Directory,
        caller: &Caller,
        kind: EntityKind,
        all: &'a BTreeMap<String, Listed>,
    ) -> impl Iterator<Item = (&'a String, &'a Listed)> {
        all.iter().filter(move |(name, entity)| {
            let thing = self.thing(caller, kind, name, entity.is_shared);
            thing.is_ok_and(|thing| may(directory, &caller.subject, Action::Read, &thing).is_allowed())
        })
    }

    /// An entity.
    ///
    /// # Errors
    ///
    /// The entity does not exist for the caller.
    pub async fn entity(
        &self,
        caller: &Caller,
        kind: EntityKind,
        name: &str,
        version: Option<&str>,
    ) -> Result<Entity, HubError> {
        self.check_entity(caller, Action::Read, kind, name, None).await?;
        let (part, name, version) = (part(caller), name.to_owned(), version.map(str::to_owned));
        self.in_catalogue(move |catalogue| catalogue.entity(&part, kind, &name, version.as_deref())).await
    }

    /// The versions of an entity.
    ///
    /// # Errors
    ///
    /// The entity does not exist for the caller.
    pub async fn versions(&self, caller: &Caller, kind: EntityKind, name: &str) -> Result<Vec<Entity>, HubError> {
        self.check_entity(caller, Action::Read, kind, name, None).await?;
        let (part, name) = (part(caller), name.to_owned());
        self.in_catalogue(move |catalogue| catalogue.versions(&part, kind, &name)).await
    }

    /// Makes, replaces or deletes an entity.
    ///
    /// # Errors
    ///
    /// The caller may not do this, or the model would be wrong.
    pub async fn set_entity(
        &self,
        caller: &Caller,
        kind: EntityKind,
        name: &str,
        definition: Option<Value>,
        shared: bool,
    ) -> Result<EntityWritten, HubError> {
        let part = self.part_to_write(caller, shared)?;
        self.check_entity(caller, Action::Write, kind, name, Some(part == Part::Shared)).await?;
        self.note(caller, None, None, "allowed")?;
        let (is_shared, is_deletion) = (part == Part::Shared, definition.is_none());
        let (author, text) = (caller.subject.user.name.to_string(), name.to_owned());
        let set = move |catalogue: &Catalogue| catalogue.set(&part, kind, &text, definition.as_ref(), &author);
        let written = self.in_catalogue(set).await?;
        self.copy(&[CATALOGUE.to_owned()]).await?;
        if is_deletion {
            // A later entity of the same name begins without the grants of this entity.
            let mut state = self.state.lock().await;
            state.directory.forget(&self.thing(caller, kind, name, is_shared)?);
            let mut changes = Changes::default();
            changes.directory(&state.directory)?;
            self.write(changes).await?;
        }
        Ok(written)
    }

    /// Writes or deletes a file of the catalogue: a right on all services is needed, because any service may use it.
    ///
    /// # Errors
    ///
    /// The caller may not do this, or the model would be wrong.
    pub async fn set_file(
        &self,
        caller: &Caller,
        path: String,
        content: Option<Vec<u8>>,
        shared: bool,
    ) -> Result<EntityWritten, HubError> {
        let part = self.part_to_write(caller, shared)?;
        let state = self.state.lock().await;
        let is_shared = part == Part::Shared;
        let thing = self.thing(caller, EntityKind::Services, "any.file", is_shared)?;
        let is_administrator =
            matches!(standing(&state.directory, caller), Some(Standing::SuperAdministrator | Standing::Administrator));
        self.decide(&state.directory, caller, Action::Write, &thing, true)?;
        if !is_administrator {
            return Err(HubError::Forbidden("only administrators write files".to_owned()));
        }
        drop(state);
        self.note(caller, None, None, "allowed")?;
        let author = caller.subject.user.name.to_string();
        let set = move |catalogue: &Catalogue| catalogue.set_file(&part, &path, content.as_deref(), &author);
        let written = self.in_catalogue(set).await?;
        self.copy(&[CATALOGUE.to_owned()]).await?;
        Ok(written)
    }

    /// Works with the catalogue in a thread of its own: a large catalogue must not hold up the other requests.
    pub(super) async fn in_catalogue<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Catalogue) -> Result<T, CatalogueError> + Send + 'static,
    ) -> Result<T, HubError> {
        let catalogue = self.catalogue.clone();
        let done = tokio::task::spawn_blocking(move || work(&catalogue)).await;
        Ok(done.map_err(|e| HubError::Internal(e.to_string()))??)
    }

    /// The entities of a part of the catalogue.
    pub(super) async fn listed(&self, part: Part, kind: EntityKind) -> Result<Arc<BTreeMap<String, Listed>>, HubError> {
        self.in_catalogue(move |catalogue| catalogue.entities(&part, kind)).await
    }

    pub(super) fn part_to_write(&self, caller: &Caller, shared: bool) -> Result<Part, HubError> {
        if shared { Ok(Part::Shared) } else { Ok(Part::Tenant(tenant_of(caller)?)) }
    }

    async fn check_entity(
        &self,
        caller: &Caller,
        action: Action,
        kind: EntityKind,
        name: &str,
        shared: Option<bool>,
    ) -> Result<(), HubError> {
        let found = self.listed(part(caller), kind).await?;
        let exists = shared.is_some() || found.contains_key(name);
        let is_shared = shared.unwrap_or_else(|| found.get(name).is_some_and(|entity| entity.is_shared));
        let thing = self.thing(caller, kind, name, is_shared)?;
        let state = self.state.lock().await;
        self.decide(&state.directory, caller, action, &thing, exists)
    }

    /// Decides whether the caller may make clusters of a template. Returns all templates of the tenant.
    pub(super) async fn may_use(
        &self,
        caller: &Caller,
        tenant: &Name,
        template: &str,
    ) -> Result<Arc<BTreeMap<String, Listed>>, HubError> {
        let found = self.listed(Part::Tenant(tenant.clone()), EntityKind::Templates).await?;
        let is_shared = found.get(template).is_some_and(|entity| entity.is_shared);
        let thing = self.thing(caller, EntityKind::Templates, template, is_shared)?;
        let state = self.state.lock().await;
        self.decide(&state.directory, caller, Action::Execute, &thing, found.contains_key(template))?;
        Ok(found)
    }

    pub(super) fn thing(
        &self,
        caller: &Caller,
        kind: EntityKind,
        name: &str,
        is_shared: bool,
    ) -> Result<Thing, HubError> {
        let kind = match kind {
            EntityKind::Providers => Kind::Provider,
            EntityKind::HardwareTypes => Kind::HardwareType,
            EntityKind::ImageTypes => Kind::ImageType,
            EntityKind::Services => Kind::Service,
            EntityKind::Templates => Kind::Template,
        };
        let name = rights_name(name)?;
        match &caller.tenant {
            Some(tenant) if !is_shared => Ok(Thing::of_tenant(&rights_name(tenant.as_str())?, kind, &name)),
            Some(_) | None => Ok(Thing::of_hub(kind, &name)),
        }
    }

    /// A page of the jobs that the caller may see, the newest first.
    ///
    /// # Errors
    ///
    /// A record is damaged.
    pub async fn jobs(&self, caller: &Caller, query: &JobQuery) -> Result<Vec<Job>, HubError> {
        known_operations("operation", &query.operation)?;
        let state = self.state.lock().await;
        let wanted = |job: &&cob_jobs::Job<Payload, HubLock>| {
            let here = caller.tenant.as_ref().is_none_or(|tenant| job.spec.tenant == tenant.as_str());
            here && is_asked_for(job, query)
        };
        let mut obstacles = state.queue.obstacles();
        let mut jobs = Vec::new();
        for job in state.queue.jobs().rev().filter(wanted) {
            if jobs.len() == query.limit() {
                break;
            }
            if may(&state.directory, &caller.subject, Action::Read, &job_entity(&state, job)?).is_allowed() {
                jobs.push(self.view(job, obstacles.remove(&job.id).unwrap_or_default())?);
            }
        }
        Ok(jobs)
    }

    /// A job.
    ///
    /// # Errors
    ///
    /// The job does not exist for the caller.
    pub async fn job(&self, caller: &Caller, id: JobId) -> Result<Job, HubError> {
        let state = self.state.lock().await;
        self.decide_job(&state, caller, Action::Read, id)?;
        let job = state.queue.job(id).ok_or_else(|| HubError::Missing { what: "job", name: id.to_string() })?;
        self.view(job, state.queue.obstacles_of(id))
    }

    pub(super) fn decide_job(&self, state: &State, caller: &Caller, action: Action, id: JobId) -> Result<(), HubError> {
        let missing = || HubError::Missing { what: "job", name: id.to_string() };
        let job = state.queue.job(id).ok_or_else(missing)?;
        if may(&state.directory, &caller.subject, Action::Read, &job_entity(state, job)?).is_hidden() {
            return Err(missing());
        }
        self.decide(&state.directory, caller, action, &job_entity(state, job)?, true)
    }

    fn view(&self, job: &cob_jobs::Job<Payload, HubLock>, obstacles: Vec<Obstacle<HubLock>>) -> Result<Job, HubError> {
        let (progress, damage) = match Progress::read(&self.job_folder(job.id).join(job::RECORD)) {
            Ok(progress) => (progress, None),
            // The job has not started yet, or is gone.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (Progress::default(), None),
            Err(error) => (Progress::default(), Some(super::effects::damaged(&error))),
        };
        // A later job of a new cluster depends on the creation, its former job: one reason is enough.
        let is_said = |other: &Obstacle<HubLock>| matches!(other, Obstacle::Dependency(job) if obstacles.contains(&Obstacle::SameCluster(*job)));
        let waits = obstacles.iter().filter(|obstacle| !is_said(obstacle)).map(obstacle_text);
        let reason = match &job.cause {
            Some(cause) => Some(cause.to_string()),
            None if damage.is_some() => damage,
            None if progress.unsigned.is_some() => progress
                .unsigned
                .map(|generation| format!("generation {generation} waits for signatures: see the log of the job")),
            None if job.status.is_pending() => waits.reduce(|all, next| format!("{all}; {next}")),
            None => None,
        };
        let steps = job::steps_of(&job.spec.payload.operation);
        let current = progress.begun.last().filter(|step| !progress.done.contains(step));
        Ok(Job {
            id: job.id.0,
            tenant: tenant_of_job(&job.spec.tenant)?,
            cluster: job.spec.payload.cluster.clone(),
            operation: job.spec.payload.operation.clone(),
            user: job.spec.user.clone(),
            priority: job.spec.priority.0,
            state: job_state(job.status),
            reason,
            hint: progress.failure.as_ref().and_then(|failure| failure.hint.clone()),
            step: current.map(|step| step.describe().to_owned()),
            steps_done: progress.done.len(),
            steps: steps.max(progress.begun.len()),
            submitted_ms: job.submitted.0,
            started_ms: job.started.map(|at| at.0),
            ended_ms: job.ended.map(|at| at.0),
        })
    }

    /// A part of a job's log.
    ///
    /// # Errors
    ///
    /// The job does not exist for the caller, or its log can't be read.
    pub async fn log(&self, caller: &Caller, id: JobId, from: u64) -> Result<LogPart, HubError> {
        let job = self.job(caller, id).await?;
        let path = self.job_folder(id).join(job::LOG);
        let failed = |error: std::io::Error| HubError::Internal(format!("{}: {error}", path.display()));
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(mut file) => {
                file.seek(SeekFrom::Start(from.min(FARTHEST))).map_err(failed)?;
                file.take(LOG).read_to_end(&mut text).map_err(failed)?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        // A character that is cut comes whole with the next part.
        let whole = match std::str::from_utf8(&text) {
            Err(error) if error.error_len().is_none() && text.len() as u64 == LOG => error.valid_up_to(),
            Ok(_) | Err(_) => text.len(),
        };
        text.truncate(whole);
        let next = from.saturating_add(text.len() as u64);
        let complete = job.state.is_final() && (text.len() as u64) < LOG;
        Ok(LogPart { text: String::from_utf8_lossy(&text).into_owned(), next, complete })
    }

    /// The part of the directory that the caller may see: a super administrator all, others their own tenant.
    pub async fn visible_directory(&self, caller: &Caller) -> Directory {
        let state = self.state.lock().await;
        match &caller.subject.user.tenant {
            None => state.directory.clone(),
            Some(own) => {
                let tenant = state.directory.tenants.get(own).cloned();
                let mut tenant = tenant.unwrap_or_default();
                let seen: BTreeSet<_> =
                    state.directory.visible_grants(&caller.subject, own).map(|(id, _, _)| id).collect();
                for user in tenant.users.values_mut() {
                    user.grants.retain(|id, _| seen.contains(id));
                }
                for group in tenant.groups.values_mut() {
                    group.grants.retain(|id, _| seen.contains(id));
                }
                // The count of all grants tells how many there are.
                tenant.last_grant = 0;
                Directory { tenants: [(own.clone(), tenant)].into(), ..Directory::default() }
            }
        }
    }

    /// The use of the quotas of the tenant, and of the caller's own.
    ///
    /// # Errors
    ///
    /// The request names no tenant.
    pub async fn usage(&self, caller: &Caller) -> Result<Usages, HubError> {
        let tenant = tenant_of(caller)?;
        let state = self.state.lock().await;
        let user = &caller.subject.user;
        let [of_tenant, of_owner] = usages(&state, &tenant, &user.name);
        let directory = state.directory.tenants.get(&rights_name(tenant.as_str())?);
        let quota = directory.map_or(Quota::CLOSED, |tenant| tenant.quota);
        let own = directory.filter(|_| user.tenant.is_some()).map(|tenant| UsageOf {
            used: of_owner,
            quota: tenant.users.get(&user.name).and_then(|user| user.quota).unwrap_or(tenant.per_user),
        });
        Ok(Usages { tenant: UsageOf { used: of_tenant, quota }, own })
    }

    /// Lines of the audit: a super administrator sees all, an administrator those of the tenant.
    ///
    /// # Errors
    ///
    /// The caller may not read the audit.
    pub async fn audit_lines(&self, caller: &Caller, query: &AuditQuery) -> Result<Vec<AuditLine>, HubError> {
        let name = rights_name("audit")?;
        let thing = match &caller.tenant {
            Some(tenant) => Thing::of_tenant(&rights_name(tenant.as_str())?, Kind::Audit, &name),
            None => Thing::of_hub(Kind::Audit, &name),
        };
        let state = self.state.lock().await;
        self.decide(&state.directory, caller, Action::Read, &thing, true)?;
        let tenant = caller.tenant.as_ref().map(Name::as_str);
        let visible = |line: &AuditLine| {
            let Some(name) = &line.note.cluster else { return true };
            let tenant = line.note.tenant.as_deref().and_then(|tenant| Name::new(tenant).ok());
            let (Some(tenant), Ok(name)) = (tenant, Name::new(name)) else { return true };
            let record = state.clusters.get(&(tenant.clone(), name.clone()));
            entity_of(&tenant, &name, record)
                .is_ok_and(|entity| may(&state.directory, &caller.subject, Action::Read, &entity).is_allowed())
        };
        let wanted = |line: &AuditLine| {
            (tenant.is_none() || line.note.tenant.as_deref() == tenant) && query.means(line) && visible(line)
        };
        Ok(self.audit.lines(query.newest, LINES, wanted)?)
    }
}

pub(super) fn standing(directory: &Directory, caller: &Caller) -> Option<Standing> {
    let user = &caller.subject.user;
    match &user.tenant {
        None => directory.super_administrators.contains(&user.name).then_some(Standing::SuperAdministrator),
        Some(tenant) => {
            let user = directory.tenants.get(tenant)?.users.get(&user.name)?;
            Some(if user.administrator { Standing::Administrator } else { Standing::User })
        }
    }
}

fn part(caller: &Caller) -> Part {
    caller.tenant.clone().map_or(Part::Shared, Part::Tenant)
}

pub(super) fn job_entity(state: &State, job: &cob_jobs::Job<Payload, HubLock>) -> Result<Thing, HubError> {
    let tenant = tenant_of_job(&job.spec.tenant)?;
    let cluster = &job.spec.payload.cluster;
    let name = rights_name(&job.id.to_string())?;
    let thing = Thing::of_tenant(&rights_name(tenant.as_str())?, Kind::Job, &name);
    let thing = thing.in_cluster(&rights_name(cluster.as_str())?);
    let owner = state.clusters.get(&(tenant, cluster.clone())).map(|record| record.owner.clone());
    let submitter = || job.spec.user.rsplit('/').next().and_then(|name| rights::Name::new(name).ok());
    Ok(match owner.or_else(submitter) {
        Some(owner) => thing.owned_by(&owner),
        None => thing,
    })
}

fn is_asked_for(job: &cob_jobs::Job<Payload, HubLock>, query: &JobQuery) -> bool {
    (!query.open || job.status.outcome().is_none())
        && query.state.is_none_or(|state| job_state(job.status) == state)
        && query.cluster.as_ref().is_none_or(|cluster| job.spec.payload.cluster == *cluster)
        && query.user.as_ref().is_none_or(|user| job.spec.user == *user)
        && query.operation.as_ref().is_none_or(|name| job.spec.payload.operation.name() == name)
        && query.since_ms.is_none_or(|since| job.submitted.0 >= since)
        && query.before.is_none_or(|before| job.id.0 < before)
}

fn job_state(status: Status) -> JobState {
    match status {
        Status::Queued => JobState::Queued,
        Status::Waiting => JobState::Waiting,
        Status::Starting => JobState::Starting,
        Status::Running => JobState::Running,
        Status::Canceling => JobState::Canceling,
        Status::Succeeded => JobState::Succeeded,
        Status::Failed => JobState::Failed,
        Status::Canceled => JobState::Canceled,
    }
}

fn obstacle_text(obstacle: &Obstacle<HubLock>) -> String {
    match obstacle {
        Obstacle::Dependency(job) => format!("it waits for job {job}, on which it depends"),
        Obstacle::SameCluster(job) => format!("it waits for job {job} of the same cluster"),
        Obstacle::Paused { rule, reason } => format!("the rule {rule} pauses it{}", because(reason)),
        Obstacle::Limit(Limit::Running(most)) => format!("{most} jobs run, the most of this hub"),
        Obstacle::Limit(Limit::Tenant(most)) => format!("{most} jobs of the tenant run, its most"),
        Obstacle::Limit(Limit::Bucket(bucket)) => {
            format!("{} jobs of the limit {:?} run, its most", bucket.limit, bucket.name)
        }
        Obstacle::Limit(Limit::Rule { rule, limit, reason }) => {
            format!("{limit} jobs of the rule {rule} run, its most{}", because(reason))
        }
        Obstacle::Lock { lock, holders, reservations, .. } => {
            let jobs: Vec<String> = holders.iter().chain(reservations).map(ToString::to_string).collect();
            let what = match lock {
                HubLock::Clusters => "all clusters".to_owned(),
                HubLock::Cluster(name) => format!("the cluster {name}"),
            };
            format!("it waits for {what}, which job {} uses", jobs.join(", "))
        }
    }
}
