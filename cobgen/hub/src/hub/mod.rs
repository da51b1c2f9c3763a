//! The hub itself: what it knows, and what it does with requests and with the ends of jobs.
//!
//! All state is in memory under one lock. A request changes the memory, then the store, then it has effects: a process is
//! started, an answer leaves. If the store fails, the hub stops, because its memory is ahead of its disk; the next start
//! reads the disk. A hub of a circle does not stop then: it no longer leads, and reads the store again.
//!
//! ```text
//! mod (requests) ── orders (of jobs) ── effects (jobs) ── book (store) ── records
//!        └ preview                 └ queue (rules, drain)
//! seat (leads or follows in a circle of hubs)
//! ```

mod book;
mod depots;
mod effects;
mod error;
mod exchange;
mod inventory;
mod look;
mod orders;
mod passwords;
mod preview;
mod queue;
mod records;
mod runner;
mod seat;
mod sessions;
mod tokens;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use cob_hub_api::{AuditNote, Cluster, ClusterQuery, Name};
use cob_jobs::{JobId, Limits, Millis};
use cob_permissions::{self as rights, Action, Answer, Directory, Entity, Kind, Subject, UserId, may};
use tokio::sync::{Mutex, Notify};

pub use error::HubError;
pub use passwords::Claim;
pub use records::{ClusterRecord, Credential};
pub use seat::Role;

use crate::audit::Audit;
use crate::catalogue::Catalogue;
use crate::circle::Circle;
use crate::durable;
use crate::identity::Identities;
use crate::job::machines;
use book::{Book, Changes, State};
use depots::Depots;
use runner::Runner;
use seat::Seat;

/// The super administrator to whom the socket of the hub belongs.
const OWNER: &str = "root";
/// How long a canceled job may undo its work, besides a switch.
const UNDOING_MS: u64 = 600_000;

/// The settings of a hub.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder of the hub.
    pub folder: PathBuf,
    /// The folder with the programs `cobd`, `cobgen` and `cobctl`.
    pub programs: PathBuf,
    /// The folder with the programs of providers.
    pub providers: PathBuf,
    /// The folder in which providers keep their state.
    pub provider_state: PathBuf,
    /// The circle of hubs; absent: this hub is alone.
    pub circle: Option<Circle>,
    /// The lease of a cluster that asks for none, in seconds; none: clusters live until they are deleted.
    pub default_lease_s: Option<u64>,
    /// The longest lease, in seconds.
    pub longest_lease_s: Option<u64>,
    /// How long before the end of a lease its owner is warned, in seconds.
    pub lease_warning_s: u64,
    /// The longest duration of a switch, in seconds.
    pub switch_limit_s: u64,
    /// The most jobs that run at a time.
    pub parallel_jobs: usize,
    /// The program that hears of jobs, and can forbid them: `PROGRAM EVENT FILE`.
    pub callback: Option<PathBuf>,
    /// How hosts and hub prove their identities; absent: all machines are on this machine, and prove nothing.
    pub keys: Option<KeySettings>,
    /// The file with log-ins that other systems check; absent: only passwords in the hub.
    pub log_ins: Option<PathBuf>,
}

/// Keys of all clusters of a hub.
#[derive(Debug, Clone)]
pub struct KeySettings {
    /// The public keys of the publishers that hosts trust.
    pub publishers: Vec<String>,
    /// How many publishers must sign a generation.
    pub threshold: usize,
    /// A program that is asked for signatures: `PROGRAM DEPOT GENERATION`.
    pub signer: Option<PathBuf>,
    /// The address at which hosts reach the servers of depots.
    pub address: IpAddr,
    /// The first port of these servers: one for each cluster.
    pub first_port: u16,
}

/// A hub.
#[derive(Debug)]
pub struct Hub {
    config: Config,
    catalogue: Catalogue,
    audit: Audit,
    book: Book,
    state: Mutex<State>,
    runner: Runner,
    depots: Depots,
    gate: passwords::Gate,
    identities: Identities,
    warnings: warnings::Warnings,
    /// The public half of the hub's own key as an operator; absent without keys.
    operator: Option<String>,
    /// The place in a circle; absent: this hub is alone.
    seat: Option<Seat>,
    me: Weak<Hub>,
    /// A timer or limit has changed.
    changed: Notify,
    /// The store has failed: the hub stops.
    broken: Notify,
}

/// The caller of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The person, for decisions.
    pub subject: Subject,
    /// The tenant that the request is about.
    pub tenant: Option<Name>,
    /// When the token of the request ends.
    pub token_ends_ms: Option<u64>,
    /// The hash of the token of a session, if the request came with one.
    pub session: Option<String>,
    /// The method and path.
    pub request: String,
}

/// The time, in milliseconds since 1970-01-01 UTC.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Hub {
    /// Opens the hub in a folder. A new hub has the super administrator `root`.
    ///
    /// # Errors
    ///
    /// A part of the folder can't be read, or another hub uses it.
    pub async fn open(config: Config) -> Result<Arc<Self>, HubError> {
        let failed = |what: &str, error: std::io::Error| {
            HubError::Internal(format!("{}: {error}", config.folder.join(what).display()))
        };
        for folder in ["clusters", "jobs"] {
            durable::make_folder(&config.folder.join(folder)).map_err(|e| failed(folder, e))?;
        }
        durable::make_folder(&config.provider_state).map_err(|e| failed("providers", e))?;
        let identities = match &config.log_ins {
            Some(file) => Identities::read(file).map_err(|error| HubError::Internal(error.to_string()))?,
            None => Identities::none(),
        };
        // The store first: only one hub at a time can open it, and repairs the other files.
        let (book, seat, claim) = match &config.circle {
            None => (Book::open(&config.folder.join("store"))?, None, None),
            Some(circle) => {
                check_alone(&config.folder)?;
                Depots::end_all_leftovers(&config.folder.join("clusters"));
                let (seat, claim) = Seat::take(circle, &config.folder).await?;
                (Book::shared(circle)?, Some(seat), claim)
            }
        };
        let catalogue = Catalogue::open(&config.folder.join("catalogue.git"), &config.programs)?;
        let audit = Audit::open(&config.folder.join("audit"))?;
        let state = book.load(|directory| limits(&config, directory)).await?;
        let operator = match &config.keys {
            Some(_) => Some(depots::operator_key(&config)?),
            None => None,
        };
        let depots = Depots::new(&config);
        let program =
            std::env::current_exe().map_err(|e| HubError::Internal(format!("can't find this program: {e}")))?;
        let (runner, events) = Runner::new(&program);
        let hub = Arc::new_cyclic(|me| Self {
            config,
            catalogue,
            audit,
            book,
            state: Mutex::new(state),
            runner,
            depots,
            gate: passwords::Gate::default(),
            identities,
            warnings: warnings::Warnings::default(),
            operator,
            seat,
            me: me.clone(),
            changed: Notify::new(),
            broken: Notify::new(),
        });
        match &hub.seat {
            None => hub.resume(&mut *hub.state.lock().await).await?,
            Some(_) => _ = tokio::spawn(hub.clone().sit(claim)),
        }
        tokio::spawn(hub.clone().handle(events));
        Ok(hub)
    }

    /// A new hub has the super administrator `root`.
    async fn ensure_owner(&self, state: &mut State) -> Result<(), HubError> {
        if !state.directory.super_administrators.is_empty() {
            return Ok(());
        }
        let root = rights::Name::new(OWNER).map_err(|e| HubError::Internal(e.to_string()))?;
        state.directory.super_administrators.insert(root);
        let mut changes = Changes::default();
        changes.directory(&state.directory)?;
        self.book.write(changes).await
    }

    /// Waits until the hub can't go on.
    pub async fn broken(&self) {
        self.broken.notified().await;
    }

    /// The credential of a token, with the hash of the token.
    ///
    /// # Errors
    ///
    /// The token is not valid.
    pub async fn credential(&self, token: &str) -> Result<(String, Credential), HubError> {
        let state = self.state.lock().await;
        let (hash, credential) = state.credentials.get_key_value(&tokens::hash(token)).ok_or(HubError::Stranger)?;
        if credential.has_ended(now_ms()) {
            return Err(HubError::Stranger);
        }
        Ok((hash.clone(), credential.clone()))
    }

    /// The owner of the hub's process: a super administrator.
    #[must_use]
    pub fn owner(&self) -> Option<Subject> {
        Some(Subject { user: UserId { tenant: None, name: rights::Name::new(OWNER).ok()? }, scope: None })
    }

    /// A look at the directory.
    pub async fn directory<T>(&self, look: impl FnOnce(&Directory) -> T) -> T {
        look(&self.state.lock().await.directory)
    }

    /// The catalogue.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The audit.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Notes a request in the audit.
    pub(crate) fn note(
        &self,
        caller: &Caller,
        cluster: Option<&Name>,
        job: Option<JobId>,
        decision: impl Into<String>,
    ) -> Result<(), HubError> {
        self.append(AuditNote {
            tenant: caller.tenant.as_ref().map(ToString::to_string),
            user: user_text(&caller.subject.user),
            request: caller.request.clone(),
            cluster: cluster.map(ToString::to_string),
            job: job.map(|job| job.0),
            decision: decision.into(),
        })
    }

    fn append(&self, note: AuditNote) -> Result<(), HubError> {
        Ok(self.audit.append(now_ms(), note).map(drop)?)
    }

    /// Decides, and notes a refusal.
    pub(crate) fn decide(
        &self,
        directory: &Directory,
        caller: &Caller,
        action: Action,
        entity: &Entity,
        exists: bool,
    ) -> Result<(), HubError> {
        let decision = may(directory, &caller.subject, action, entity);
        let said = decision.to_string();
        match decision.answer(exists) {
            Answer::Proceed => Ok(()),
            Answer::NotFound => {
                self.note(caller, None, None, format!("not found; {said}"))?;
                Err(HubError::Missing { what: word(entity.kind), name: entity.name.to_string() })
            }
            Answer::Forbidden(why) => {
                self.note(caller, None, None, said)?;
                Err(HubError::Forbidden(format!(
                    "{action} {} {} is not allowed: {why}",
                    word(entity.kind),
                    entity.name
                )))
            }
        }
    }

    /// Changes the directory.
    ///
    /// # Errors
    ///
    /// The caller may not make this change.
    pub async fn change_directory(&self, caller: &Caller, change: &rights::Change) -> Result<(), HubError> {
        let mut state = self.state.lock().await;
        let entities: Vec<Entity> = state.clusters.values().filter_map(cluster_entity).collect();
        let mut directory = state.directory.clone();
        if let Err(refused) = directory.change(&caller.subject, change, &entities) {
            self.note(caller, None, None, format!("refused: {refused}"))?;
            return Err(HubError::Forbidden(refused.to_string()));
        }
        if let Some(what) = prevents(&state, change) {
            self.note(caller, None, None, format!("refused: {what}"))?;
            return Err(HubError::Conflict(what));
        }
        let mut changes = Changes::default();
        changes.directory(&directory)?;
        self.note(caller, None, None, "allowed")?;
        // Tokens and passwords of users that no longer exist end with the users.
        let gone: Vec<String> = state
            .credentials
            .iter()
            .filter(|(_, credential)| !is_known(&directory, &credential.user))
            .map(|(hash, _)| hash.clone())
            .collect();
        for hash in gone {
            changes.credential(&hash, None)?;
            state.credentials.remove(&hash);
        }
        let gone = state.passwords.values().filter(|password| !is_known(&directory, &password.user));
        let gone: Vec<UserId> = gone.map(|password| password.user.clone()).collect();
        for user in gone {
            changes.password(&user, None)?;
            state.passwords.remove(&user_text(&user));
        }
        state.directory = directory;
        let limits = limits(&self.config, &state.directory);
        let mut effects = state.queue.set_limits(limits, Millis(now_ms()));
        if let rights::Change::RemoveTenant { tenant } = change {
            // A later tenant of the same name begins without the rules of this tenant.
            let (rules, more) = state.queue.remove_rules_of(tenant.as_str(), Millis(now_ms()));
            rules.iter().try_for_each(|rule| changes.rule(rule, None))?;
            effects.extend(more);
        }
        changes.queue(&mut state.queue)?;
        self.settle(&mut state, changes, effects).await
    }

    /// Changes the end of a lease: so many seconds from now.
    ///
    /// # Errors
    ///
    /// The user may not do this, or the lease is too long.
    pub async fn extend_lease(&self, caller: &Caller, name: &Name, lease_s: u64) -> Result<Cluster, HubError> {
        let mut state = self.state.lock().await;
        let mut record = self.record_in(&state, caller, name, Action::Write)?;
        let id = (record.tenant.clone(), name.clone());
        record.lease_ends_ms = self.lease(now_ms(), Some(lease_s))?;
        record.lapse = None;
        record.warned_ms = None;
        self.note(caller, Some(name), None, "allowed")?;
        let mut changes = Changes::default();
        changes.cluster(&id, Some(&record))?;
        state.clusters.insert(id, record.clone());
        self.write(changes).await?;
        self.changed.notify_one();
        Ok(record.view(open_job(&state, &record), self.machines(&record)?))
    }

    /// A page of the clusters that the caller may see, in the order of their names.
    ///
    /// # Errors
    ///
    /// The request names no tenant.
    pub async fn clusters(&self, caller: &Caller, query: &ClusterQuery) -> Result<Vec<Cluster>, HubError> {
        let tenant = tenant_of(caller)?;
        let state = self.state.lock().await;
        let mine = state.clusters.values().filter(|record| record.tenant == tenant && record.is_asked_for(query));
        let visible = mine.filter(|record| may_see(&state, caller, record));
        let jobs = open_jobs(&state);
        let job = |record: &ClusterRecord| jobs.get(&record.queue_name()).copied();
        Ok(visible.take(query.limit()).map(|record| record.view(job(record), Default::default())).collect())
    }

    /// A cluster with its machines.
    ///
    /// # Errors
    ///
    /// The cluster does not exist for the caller.
    pub async fn cluster(&self, caller: &Caller, name: &Name) -> Result<Cluster, HubError> {
        let record = self.record(caller, name, Action::Read).await?;
        let state = self.state.lock().await;
        Ok(record.view(open_job(&state, &record), self.machines(&record)?))
    }

    /// The record of a cluster, if the caller may do the action.
    pub(crate) async fn record(&self, caller: &Caller, name: &Name, action: Action) -> Result<ClusterRecord, HubError> {
        let state = self.state.lock().await;
        self.record_in(&state, caller, name, action)
    }

    fn record_in(
        &self,
        state: &State,
        caller: &Caller,
        name: &Name,
        action: Action,
    ) -> Result<ClusterRecord, HubError> {
        let tenant = tenant_of(caller)?;
        let record = state.clusters.get(&(tenant.clone(), name.clone())).cloned();
        let entity = entity_of(&tenant, name, record.as_ref())?;
        self.decide(&state.directory, caller, action, &entity, record.is_some())?;
        record.ok_or_else(|| HubError::no_cluster(name))
    }

    fn machines(&self, record: &ClusterRecord) -> Result<machines::Table, HubError> {
        machines_in(&self.cluster_folder(&record.tenant, &record.name), &record.name)
    }

    pub(crate) fn cluster_folder(&self, tenant: &Name, name: &Name) -> PathBuf {
        self.config.folder.join("clusters").join(tenant.as_str()).join(name.as_str())
    }

    pub(crate) fn job_folder(&self, id: JobId) -> PathBuf {
        self.config.folder.join("jobs").join(id.to_string())
    }

    fn lease(&self, now: u64, lease_s: Option<u64>) -> Result<Option<u64>, HubError> {
        let lease = lease_s.or(self.config.default_lease_s);
        if let (Some(longest), Some(lease)) = (self.config.longest_lease_s, lease)
            && lease > longest
        {
            return Err(HubError::Bad(format!(
                "the lease of {lease} s is longer than {longest} s, the longest of this hub"
            )));
        }
        let lease = lease.or(self.config.longest_lease_s);
        Ok(lease.map(|lease| now.saturating_add(lease.saturating_mul(1000))))
    }

    /// The first port that no cluster has.
    fn free_port(&self, state: &State) -> Result<Option<u16>, HubError> {
        let Some(keys) = &self.config.keys else { return Ok(None) };
        let taken: BTreeSet<u16> = state.clusters.values().filter_map(|record| record.depot_port).collect();
        let free = (keys.first_port..=u16::MAX).find(|port| !taken.contains(port));
        free.map(Some).ok_or_else(|| HubError::Conflict("no port is free for the cluster's depot".to_owned()))
    }

    /// Makes changes durable. The hub stops if that fails.
    async fn write(&self, changes: Changes) -> Result<(), HubError> {
        let written = self.book.write(changes).await;
        if written.is_err() {
            self.fail();
        }
        written
    }

    /// The memory may be ahead of the store.
    fn fail(&self) {
        match &self.seat {
            Some(seat) => seat.resign(),
            None => self.broken.notify_one(),
        }
    }
}

/// A hub that was alone has its state in its own store, which a circle does not know.
fn check_alone(folder: &Path) -> Result<(), HubError> {
    let store = folder.join("store");
    match store.exists() {
        true => Err(HubError::Internal(format!(
            "{} is the store of a hub that was alone; a hub of a circle begins with a new folder",
            store.display()
        ))),
        false => Ok(()),
    }
}

/// The limits of jobs: the hub's, and the quotas of tenants.
fn limits(config: &Config, directory: &Directory) -> Limits {
    let most = |quota: u32| usize::try_from(quota).unwrap_or(usize::MAX);
    let of = |tenant: &rights::Tenant| tenant.quota.parallel_jobs.map(most);
    let tenants = directory.tenants.iter().filter_map(|(name, tenant)| Some((name.to_string(), of(tenant)?)));
    Limits {
        running: config.parallel_jobs,
        per_tenant: config.parallel_jobs,
        tenants: tenants.collect(),
        // A canceled job may switch hosts back and delete machines.
        grace: config.switch_limit_s.saturating_mul(1000).saturating_add(UNDOING_MS),
        ..Limits::default()
    }
}

/// Why the clusters do not permit a change of the directory: a later tenant or user of the same name would have them.
fn prevents(state: &State, change: &rights::Change) -> Option<String> {
    if let rights::Change::RemoveTenant { tenant } = change {
        let has_clusters = state.clusters.keys().any(|(owner, _)| owner.as_str() == tenant.as_str());
        return has_clusters.then(|| format!("the tenant {tenant} has clusters; delete these first"));
    }
    if let rights::Change::RemoveSuperAdministrator { name } = change
        && name.as_str() == OWNER
    {
        // Without it, the owner of the socket could do nothing any more.
        return Some(format!("{name} is the owner of the hub's socket, and stays"));
    }
    let rights::Change::RemoveUser { tenant, user } = change else { return None };
    let owned = state.clusters.values().filter(|c| c.tenant.as_str() == tenant.as_str() && c.owner == *user);
    let names: Vec<&str> = owned.map(|cluster| cluster.name.as_str()).take(10).collect();
    (!names.is_empty()).then(|| format!("{user} owns clusters; delete these first: {}", names.join(", ")))
}

/// The tenant of a request.
pub(crate) fn tenant_of(caller: &Caller) -> Result<Name, HubError> {
    caller.tenant.clone().ok_or_else(|| HubError::Bad("name a tenant: add `?tenant=NAME`".to_owned()))
}

pub(crate) fn rights_name(text: &str) -> Result<rights::Name, HubError> {
    rights::Name::new(text).map_err(|e| HubError::Bad(e.to_string()))
}

/// A cluster for a decision. A cluster that does not exist has no owner.
fn entity_of(tenant: &Name, name: &Name, record: Option<&ClusterRecord>) -> Result<Entity, HubError> {
    let entity = Entity::of_tenant(&rights_name(tenant.as_str())?, Kind::Cluster, &rights_name(name.as_str())?);
    Ok(match record {
        Some(record) => entity.owned_by(&record.owner),
        None => entity,
    })
}

pub(crate) fn cluster_entity(record: &ClusterRecord) -> Option<Entity> {
    entity_of(&record.tenant, &record.name, Some(record)).ok()
}

fn is_known(directory: &Directory, user: &UserId) -> bool {
    match &user.tenant {
        None => directory.super_administrators.contains(&user.name),
        Some(tenant) => directory.tenants.get(tenant).is_some_and(|tenant| tenant.users.contains_key(&user.name)),
    }
}

fn open_job(state: &State, record: &ClusterRecord) -> Option<u64> {
    open_jobs(state).get(&record.queue_name()).copied()
}

/// The first open job of each cluster, by the cluster's key in the queue.
/// Whether the caller may see a cluster.
fn may_see(state: &State, caller: &Caller, record: &ClusterRecord) -> bool {
    let entity = cluster_entity(record);
    entity.is_some_and(|entity| may(&state.directory, &caller.subject, Action::Read, &entity).is_allowed())
}

/// The machines in the folder of a cluster.
fn machines_in(folder: &Path, cluster: &Name) -> Result<machines::Table, HubError> {
    machines::read(folder).map_err(|error| {
        let file = folder.join(machines::FILE);
        HubError::Internal(format!(
            "the list of machines of the cluster {cluster} can't be read: {}: {error}; restore this file from a copy",
            file.display()
        ))
    })
}

fn open_jobs(state: &State) -> BTreeMap<String, u64> {
    let mut first = BTreeMap::new();
    for job in state.queue.open_jobs() {
        if let Some(cluster) = &job.spec.cluster {
            first.entry(cluster.clone()).or_insert(job.id.0);
        }
    }
    first
}

/// A user in texts: `TENANT/USER`, or the name of a super administrator.
pub(crate) fn user_text(user: &UserId) -> String {
    match &user.tenant {
        Some(tenant) => format!("{tenant}/{}", user.name),
        None => user.name.to_string(),
    }
}

/// The word for a kind in messages.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Provider => "provider",
        Kind::HardwareType => "hardware type",
        Kind::ImageType => "image type",
        Kind::Service => "service",
        Kind::Template => "template",
        Kind::Cluster => "cluster",
        Kind::Machine => "machine",
        Kind::Job => "job",
        Kind::User => "user",
        Kind::Group => "group",
        Kind::Tenant => "tenant",
        Kind::Audit => "audit",
    }
}
