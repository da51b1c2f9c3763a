//! Orders: requests that become jobs.
//!
//! An order is checked and decided under the lock under which it is submitted, so nothing changes in between. The audit
//! comes first: if it can't be written, nothing has happened.

use std::collections::{BTreeMap, BTreeSet};

use cob_hub_api::{ClusterRequest, ClusterState, MOST_NODES, Name, Operation, Wanted};
use cob_jobs::{Job, JobId, Millis, Mode, NotDone, Outcome, Priority, Request, Spec};
use cob_permissions::{self as rights, Action, Usage};
use serde::Serialize;

use super::book::{Changes, State, queue_name};
use super::error::HubError;
use super::records::{ClusterRecord, HubLock, Payload};
use super::{Caller, Hub, now_ms, queue, rights_name, tenant_of, user_text};
use crate::catalogue::Listed;
use crate::job::Shape;
use crate::provider::process;

/// How often a job is started again after its process has died.
const ATTEMPTS: u32 = 5;
/// The longest request, in bytes: the store keeps it in the cluster and in its jobs.
const LONGEST: usize = 32 << 10;
/// The most jobs of a cluster that have not ended.
const MOST_OPEN: usize = 50;

/// An order.
struct Order<'a> {
    caller: &'a Caller,
    tenant: &'a Name,
    cluster: &'a Name,
    operation: Operation,
    /// The cluster with this order's change.
    record: Option<ClusterRecord>,
    /// The provider of the machines of a new cluster.
    provider: Option<String>,
    priority: i8,
}

impl Hub {
    /// Makes a cluster and the job that creates it.
    ///
    /// # Errors
    ///
    /// The user may not use the template or the priority, the name is taken, or a quota is exceeded.
    pub async fn create_cluster(
        &self,
        caller: &Caller,
        request: ClusterRequest,
        priority: i8,
    ) -> Result<JobId, HubError> {
        let tenant = tenant_of(caller)?;
        check_size(&request.wanted)?;
        let templates = self.may_use(caller, &tenant, &request.wanted.template).await?;
        let provider =
            request.wanted.provider.clone().or_else(|| default_provider(&templates, &request.wanted.template));
        let catalogue = self.catalogue.head()?;
        let mut state = self.state.lock().await;
        let id = (tenant.clone(), request.name.clone());
        let former = state.clusters.get(&id).cloned();
        if former.as_ref().is_some_and(|cluster| cluster.state != ClusterState::Terminated) {
            return Err(HubError::Conflict(format!("there is a cluster {} already", request.name)));
        }
        // A job of the former cluster would work on the new cluster.
        if let Some(job) = jobs_of(&state, &queue_name(&tenant, &request.name)).next() {
            let what = format!("job {} of a former cluster {} has not ended", job.id, request.name);
            return Err(HubError::Conflict(format!("{what}; wait for its end, or cancel it")));
        }
        let owner = caller.subject.user.name.clone();
        let wanted = Usage { machines: request.wanted.nodes, clusters: 1, parallel_jobs: 1 };
        check_quota(&state, &tenant, &owner, &wanted)?;
        let now = now_ms();
        let record = ClusterRecord {
            tenant: tenant.clone(),
            name: request.name.clone(),
            owner,
            shape: Shape { wanted: request.wanted, catalogue },
            former: None,
            state: ClusterState::Pending,
            generation: None,
            created_ms: now,
            lease_ends_ms: self.lease(now, request.lease_s)?,
            keep_failed: request.keep_failed,
            depot_port: self.free_port(&state)?,
            lapse: None,
            warned_ms: None,
        };
        let operation = Operation::Create {};
        let order = Order {
            caller,
            tenant: &tenant,
            cluster: &request.name,
            operation,
            record: Some(record),
            provider,
            priority,
        };
        self.submit(&mut state, order).await
    }

    /// Submits an operation on a cluster.
    ///
    /// # Errors
    ///
    /// The user may not do this, the operation makes no sense, or the cluster has changed since the plan with the name
    /// `base`.
    pub async fn operate(
        &self,
        caller: &Caller,
        name: &Name,
        operation: Operation,
        base: Option<&str>,
        priority: i8,
    ) -> Result<JobId, HubError> {
        let tenant = tenant_of(caller)?;
        if operation == (Operation::Sync {}) {
            let record = self.record(caller, name, action_of(&operation)).await?;
            self.may_use(caller, &tenant, &record.shape.wanted.template).await?;
        }
        let mut state = self.state.lock().await;
        let record = self.record_in(&state, caller, name, action_of(&operation))?;
        check_length(&operation)?;
        if let Some(base) = base {
            self.check_base(&state, &record, &operation, base)?;
        }
        match &operation {
            Operation::Create {} => return Err(HubError::Bad("a cluster is created by its request".to_owned())),
            Operation::Resize { nodes } => check_nodes(*nodes)?,
            Operation::Services { .. }
            | Operation::Configure { .. }
            | Operation::Start { .. }
            | Operation::Stop { .. }
            | Operation::Restart { .. }
            | Operation::Sync {}
            | Operation::Rollback {}
            | Operation::Replace { .. }
            | Operation::Delete {} => {}
        }
        let is_deletion = operation == (Operation::Delete {});
        if !record.is_created() && !is_deletion {
            return Err(not_created(name));
        }
        // A first deletion is always possible, and further deletions count.
        let is_first_deletion = is_deletion && !pending(&state, &record).any(|other| *other == operation);
        if !is_first_deletion && pending(&state, &record).count() >= MOST_OPEN {
            return Err(HubError::Conflict(format!("{MOST_OPEN} jobs of the cluster {name} wait or run already")));
        }
        if !is_deletion {
            let most = |more: Option<&Operation>| record.most_nodes(pending(&state, &record).chain(more));
            let machines = most(Some(&operation)) - most(None);
            let wanted = Usage { machines, clusters: 0, parallel_jobs: 1 };
            check_quota(&state, &tenant, &record.owner, &wanted)?;
        }
        let order = Order { caller, tenant: &tenant, cluster: name, operation, record: None, provider: None, priority };
        self.submit(&mut state, order).await
    }

    /// Submits the deletion of a cluster whose lease has ended.
    pub(super) async fn delete_lapsed(&self, state: &mut State, cluster: &ClusterRecord) -> Result<JobId, HubError> {
        let user = rights::UserId { tenant: None, name: rights_name("root")? };
        let caller = Caller {
            subject: rights::Subject { user, scope: None },
            tenant: Some(cluster.tenant.clone()),
            token_ends_ms: None,
            session: None,
            request: "the lease has ended".to_owned(),
        };
        let order = Order {
            caller: &caller,
            tenant: &cluster.tenant,
            cluster: &cluster.name,
            operation: Operation::Delete {},
            record: Some(cluster.lapsed(now_ms())),
            provider: None,
            priority: 0,
        };
        self.submit(state, order).await
    }

    async fn submit(&self, state: &mut State, order: Order<'_>) -> Result<JobId, HubError> {
        let Order { caller, tenant, cluster, operation, record, provider, priority } = order;
        self.check_priority(&state.directory, caller, priority)?;
        let id = (tenant.clone(), cluster.clone());
        let provider = provider.or_else(|| {
            let record = record.as_ref().or_else(|| state.clusters.get(&id))?;
            self.provider_of(state, record)
        });
        let queue_name = queue_name(tenant, cluster);
        // If the creation is canceled or fails, only a deletion makes sense.
        let creation = jobs_of(state, &queue_name).find(|job| job.spec.payload.operation == Operation::Create {});
        let creation = creation.filter(|_| operation != Operation::Delete {}).map(|job| job.id);
        let needs = |JobId(id)| Some((i64::try_from(id).ok()?, BTreeSet::from([Outcome::Succeeded])));
        let dependencies = creation.and_then(needs).into_iter().collect();
        let user = user_text(&caller.subject.user);
        let request = Request {
            spec: Spec {
                kind: operation.name().to_owned(),
                payload: Payload { cluster: cluster.clone(), operation },
                locks: vec![(HubLock::Cluster(queue_name.clone()), Mode::Exclusive)],
                cluster: Some(queue_name),
                reason: user_limit(state, caller).map(|most| format!("rate-limit:{most}:{user}")).into_iter().collect(),
                user,
                tenant: tenant.to_string(),
                provider,
                priority: Priority(priority),
                max_attempts: ATTEMPTS,
            },
            dependencies,
        };
        let mut changes = Changes::default();
        if let Some(record) = &record {
            changes.cluster(&id, Some(record))?;
        }
        self.note(caller, Some(cluster), Some(state.queue.next_id()), "allowed")?;
        let submitted = state.queue.submit(vec![request], Millis(now_ms()));
        let (ids, effects) = match submitted {
            Ok(submitted) => submitted,
            Err(refused) => {
                let why = queue::refusal(&refused);
                self.note(caller, Some(cluster), None, format!("refused: {why}"))?;
                return Err(HubError::Conflict(why));
            }
        };
        let job = ids.first().copied().ok_or_else(|| HubError::Internal("no job was made".to_owned()))?;
        if let Some(record) = record {
            state.clusters.insert(id, record);
        }
        changes.queue(&mut state.queue)?;
        self.settle(state, changes, effects).await?;
        Ok(job)
    }

    /// The provider of a cluster's machines, for rules: that of its first machine, or the one that its creation takes.
    fn provider_of(&self, state: &State, record: &ClusterRecord) -> Option<String> {
        // If the list is damaged, the job says so.
        let machines = self.machines(record).unwrap_or_default();
        let of_machine = machines.into_values().next().map(|machine| machine.provider.to_string());
        let name = record.queue_name();
        let of_job = || jobs_of(state, &name).find_map(|job| job.spec.provider.clone());
        of_machine.or_else(|| record.shape.wanted.provider.clone()).or_else(of_job)
    }

    /// Cancels a job.
    ///
    /// # Errors
    ///
    /// The user may not do this, or the job has ended.
    pub async fn cancel(&self, caller: &Caller, id: JobId, kill: bool) -> Result<(), HubError> {
        let mut state = self.state.lock().await;
        self.decide_job(&state, caller, Action::Execute, id)?;
        self.note(caller, None, Some(id), "allowed")?;
        let now = Millis(now_ms());
        let effects = if kill { state.queue.kill(id, now) } else { state.queue.cancel(id, now) };
        let effects = effects.map_err(not_done)?;
        let mut changes = Changes::default();
        changes.queue(&mut state.queue)?;
        self.settle(&mut state, changes, effects).await
    }
}

/// The operations of a cluster's jobs that have not ended.
pub(super) fn pending<'a>(state: &'a State, record: &ClusterRecord) -> impl Iterator<Item = &'a Operation> {
    jobs_of(state, &record.queue_name()).map(|job| &job.spec.payload.operation)
}

/// The jobs of a cluster that have not ended, by the cluster's key in the queue.
fn jobs_of<'a>(state: &'a State, cluster: &str) -> impl Iterator<Item = &'a Job<Payload, HubLock>> + use<'a> {
    let cluster = cluster.to_owned();
    state.queue.open_jobs().filter(move |job| job.spec.cluster.as_ref() == Some(&cluster))
}

/// The refusal of an operation on a cluster without a successful creation.
pub(super) fn not_created(cluster: &Name) -> HubError {
    HubError::Conflict(format!("the cluster {cluster} was not created; only `delete` is possible"))
}

/// What a tenant and an owner have. What pending jobs will take counts.
pub(super) fn usages(state: &State, tenant: &Name, owner: &rights::Name) -> [Usage; 2] {
    let [mut of_tenant, mut of_owner] = [Usage::default(); 2];
    let mut pending: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for job in state.queue.open_jobs() {
        if let Some(cluster) = &job.spec.cluster {
            pending.entry(cluster).or_default().push(&job.spec.payload.operation);
        }
    }
    for record in state.clusters.values().filter(|record| record.tenant == *tenant) {
        if record.state == ClusterState::Terminated {
            continue;
        }
        let operations = pending.get(record.queue_name().as_str()).into_iter().flatten().copied();
        let nodes = record.most_nodes(operations);
        let mut usages = vec![&mut of_tenant];
        if record.owner == *owner {
            usages.push(&mut of_owner);
        }
        for usage in usages {
            usage.machines = usage.machines.saturating_add(nodes);
            usage.clusters += 1;
        }
    }
    [of_tenant, of_owner]
}

/// Checks the quotas of the tenant and of the owner.
fn check_quota(state: &State, tenant: &Name, owner: &rights::Name, wanted: &Usage) -> Result<(), HubError> {
    let [of_tenant, of_owner] = usages(state, tenant, owner);
    let name = rights_name(tenant.as_str())?;
    state.directory.fits(&name, owner, &of_tenant, &of_owner, wanted).map_err(|e| HubError::Quota(e.to_string()))
}

/// How many jobs of the caller may run at a time, by the caller's own quota.
fn user_limit(state: &State, caller: &Caller) -> Option<u32> {
    let user = &caller.subject.user;
    let tenant = state.directory.tenants.get(user.tenant.as_ref()?)?;
    tenant.users.get(&user.name)?.quota.unwrap_or(tenant.per_user).parallel_jobs
}

pub(super) fn check_size(wanted: &Wanted) -> Result<(), HubError> {
    check_nodes(wanted.nodes)?;
    check_length(wanted)
}

fn check_nodes(nodes: u32) -> Result<(), HubError> {
    if (1..=MOST_NODES).contains(&nodes) {
        return Ok(());
    }
    Err(HubError::Bad(format!("a cluster has 1 to {MOST_NODES} nodes, not {nodes}")))
}

pub(super) fn check_length(request: &impl Serialize) -> Result<(), HubError> {
    let length = serde_json::to_vec(request).map_err(|e| HubError::Bad(e.to_string()))?.len();
    if length <= LONGEST {
        return Ok(());
    }
    Err(HubError::Bad(format!(
        "the request has {length} bytes; the hub keeps at most {LONGEST}: put large values into the template"
    )))
}

/// The default provider of a template: its own, that of its last include with a provider, or that of its parent.
fn default_provider(templates: &BTreeMap<String, Listed>, template: &str) -> Option<String> {
    if !templates.contains_key(template) {
        return None;
    }
    let mut names = vec![template];
    let mut seen = BTreeSet::new();
    while let Some(name) = names.pop() {
        // Two includes may share a parent. The catalogue refuses circles.
        let is_new = seen.insert(name);
        let Some(listed) = templates.get(name).filter(|_| is_new) else { continue };
        let definition = &listed.definition;
        if let Some(provider) = definition["defaults"]["provider"].as_str() {
            return Some(provider.to_owned());
        }
        names.extend(definition["parent"].as_str());
        names.extend(definition["includes"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str));
    }
    Some(process::SORT.to_owned())
}

/// The right that an operation needs on the cluster.
fn action_of(operation: &Operation) -> Action {
    match operation {
        Operation::Start { .. } | Operation::Stop { .. } | Operation::Restart { .. } => Action::Execute,
        Operation::Create {}
        | Operation::Resize { .. }
        | Operation::Services { .. }
        | Operation::Configure { .. }
        | Operation::Sync {}
        | Operation::Rollback {}
        | Operation::Replace { .. }
        | Operation::Delete {} => Action::Write,
    }
}

pub(super) fn not_done(error: NotDone) -> HubError {
    match error {
        NotDone::Unknown(id) => HubError::Missing { what: "job", name: id.to_string() },
        NotDone::UnknownRule(id) => HubError::Missing { what: "rule", name: id },
        NotDone::Status { .. } | NotDone::Priority(_) => HubError::Conflict(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_inherits_its_provider_as_in_the_model() {
        let templates = serde_json::json!({
            "base": {"defaults": {"provider": "metal"}},
            "cloudy": {"partial": true, "defaults": {"provider": "cloud"}},
            "plain": {"partial": true},
            "child": {"parent": "base"},
            "mixed": {"parent": "base", "includes": ["cloudy", "plain"]},
            "own": {"parent": "base", "includes": ["cloudy"], "defaults": {"provider": "own"}},
            "one": {"parent": "plain", "partial": true},
            "two": {"parent": "plain", "partial": true},
            "diamond": {"parent": "base", "includes": ["one", "two"]},
            "none": {},
            "circle": {"parent": "circle"},
        });
        let listed = |definition: &serde_json::Value| Listed {
            definition: definition.clone(),
            file: String::new(),
            is_shared: true,
        };
        let all = templates.as_object().expect("a map").iter();
        let templates = all.map(|(name, definition)| (name.clone(), listed(definition))).collect();
        let provider = |name: &str| default_provider(&templates, name);
        let found = ["base", "child", "mixed", "own", "diamond", "none", "circle"].map(provider);
        let expected = ["metal", "metal", "cloud", "own", "metal", "process", "process"];
        assert_eq!(found, expected.map(|name| Some(name.to_owned())));
        assert_eq!(provider("unknown"), None);
    }
}
