//! Orders: requests that become jobs.
//!
//! An order is checked and decided under the lock under which it is submitted, so nothing changes in between. The audit
//! comes first: if it can't be written, nothing has happened.

use cob_hub_api::{ClusterRequest, ClusterState, MOST_NODES, Name, Operation, Wanted};
use cob_jobs::{JobId, Millis, Mode, NotDone, Priority, Request, Spec};
use cob_permissions::{self as rights, Action, Usage};
use serde::Serialize;

use super::book::{Changes, State, queue_name};
use super::error::HubError;
use super::records::{ClusterRecord, HubLock, Payload};
use super::{Caller, Hub, now_ms, rights_name, tenant_of, user_text};
use crate::job::Shape;

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
}

impl Hub {
    /// Makes a cluster and the job that creates it.
    ///
    /// # Errors
    ///
    /// The user may not use the template, the name is taken, or a quota is exceeded.
    pub async fn create_cluster(&self, caller: &Caller, request: ClusterRequest) -> Result<JobId, HubError> {
        let tenant = tenant_of(caller)?;
        check_size(&request.wanted)?;
        self.may_use(caller, &tenant, &request.wanted.template).await?;
        let catalogue = self.catalogue.head()?;
        let mut state = self.state.lock().await;
        let id = (tenant.clone(), request.name.clone());
        let former = state.clusters.get(&id).cloned();
        if former.as_ref().is_some_and(|cluster| cluster.state != ClusterState::Terminated) {
            return Err(HubError::Conflict(format!("there is a cluster {} already", request.name)));
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
        let order = Order { caller, tenant: &tenant, cluster: &request.name, operation, record: Some(record) };
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
        let is_dead = matches!(record.state, ClusterState::Terminated | ClusterState::Incomplete);
        let is_deletion = operation == (Operation::Delete {});
        if is_dead && !is_deletion {
            let what = format!("the cluster {name} was not created; only `delete` is possible");
            return Err(HubError::Conflict(what));
        }
        if !is_deletion {
            let most = |more: Option<&Operation>| record.most_nodes(pending(&state, &record).chain(more));
            let machines = most(Some(&operation)) - most(None);
            let wanted = Usage { machines, clusters: 0, parallel_jobs: 1 };
            check_quota(&state, &tenant, &record.owner, &wanted)?;
            if pending(&state, &record).count() >= MOST_OPEN {
                return Err(HubError::Conflict(format!("{MOST_OPEN} jobs of the cluster {name} wait or run already")));
            }
        }
        let order = Order { caller, tenant: &tenant, cluster: name, operation, record: None };
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
        };
        self.submit(state, order).await
    }

    async fn submit(&self, state: &mut State, order: Order<'_>) -> Result<JobId, HubError> {
        let Order { caller, tenant, cluster, operation, record } = order;
        let queue_name = queue_name(tenant, cluster);
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
                priority: Priority(0),
                max_attempts: ATTEMPTS,
            },
            dependencies: Vec::new(),
        };
        let id = (tenant.clone(), cluster.clone());
        let mut changes = Changes::default();
        if let Some(record) = &record {
            changes.cluster(&id, Some(record))?;
        }
        self.note(caller, Some(cluster), Some(state.queue.next_id()), "allowed")?;
        let submitted = state.queue.submit(vec![request], Millis(now_ms()));
        let (ids, effects) = match submitted {
            Ok(submitted) => submitted,
            Err(refused) => {
                self.note(caller, Some(cluster), None, format!("refused: {refused}"))?;
                return Err(HubError::Conflict(refused.to_string()));
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
    let name = queue_name(&record.tenant, &record.name);
    let open = state.queue.jobs().filter(|job| job.status.outcome().is_none());
    open.filter(move |job| job.spec.cluster.as_deref() == Some(name.as_str())).map(|job| &job.spec.payload.operation)
}

/// What a tenant and an owner have. What pending jobs will take counts.
pub(super) fn usages(state: &State, tenant: &Name, owner: &rights::Name) -> [Usage; 2] {
    let [mut of_tenant, mut of_owner] = [Usage::default(); 2];
    for record in state.clusters.values().filter(|record| record.tenant == *tenant) {
        if record.state == ClusterState::Terminated {
            continue;
        }
        let nodes = record.most_nodes(pending(state, record));
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

fn not_done(error: NotDone) -> HubError {
    match error {
        NotDone::Unknown(id) => HubError::Missing { what: "job", name: id.to_string() },
        NotDone::Status { .. } | NotDone::Priority(_) | NotDone::SameRule(_) | NotDone::UnknownRule(_) => {
            HubError::Conflict(error.to_string())
        }
    }
}
