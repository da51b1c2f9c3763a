//! What an operation would do, before it is ordered.

use std::collections::BTreeSet;

use cob_hub_api::{ClusterRequest, Name, Operation, Preview, PreviewNode};
use cob_permissions::Action;

use super::book::State;
use super::error::HubError;
use super::orders::check_size;
use super::{Caller, ClusterRecord, Hub, tenant_of};
use crate::catalogue::Part;
use crate::job::machines::Table;
use crate::job::{Failure, Place, Shape, look_ahead, present_services};

impl Hub {
    /// What a creation would do. Everybody of the tenant may ask: the answer shows nothing but the catalogue.
    ///
    /// # Errors
    ///
    /// There is no layout, or the model is refused.
    pub async fn preview_creation(&self, caller: &Caller, request: &ClusterRequest) -> Result<Preview, HubError> {
        let tenant = tenant_of(caller)?;
        check_size(&request.wanted)?;
        self.may_use(caller, &tenant, &request.wanted.template).await?;
        let shape = Shape { wanted: request.wanted.clone(), catalogue: self.catalogue.head()? };
        self.preview(&tenant, &request.name, &shape, &Table::new(), "create", true).await
    }

    /// What an operation on a cluster would do.
    ///
    /// # Errors
    ///
    /// The cluster does not exist for the caller, or the operation is not possible.
    pub async fn preview_operation(
        &self,
        caller: &Caller,
        name: &Name,
        operation: &Operation,
    ) -> Result<Preview, HubError> {
        let record = self.record(caller, name, Action::Read).await?;
        let machines = self.machines(&record)?;
        let (shape, word) = self.aim(&record, operation)?;
        check_size(&shape.wanted)?;
        // Before the plan is made: a change meanwhile makes the plan invalid, too.
        let base = Some(base_of(&*self.state.lock().await, &record, &shape));
        let Operation::Replace { node } = operation else {
            let preview = self.preview(&record.tenant, name, &shape, &machines, word, false).await?;
            return Ok(Preview { base, ..preview });
        };
        if !machines.contains_key(node) {
            return Err(HubError::Missing { what: "node", name: node.clone() });
        }
        // The tasks of the node in a creation of the whole cluster.
        let mut preview = self.preview(&record.tenant, name, &shape, &machines, word, false).await?;
        preview.tasks.retain(|task| task.node == *node);
        let kept: BTreeSet<u32> = preview.tasks.iter().map(|task| task.id).collect();
        preview.stages.iter_mut().for_each(|stage| stage.retain(|id| kept.contains(id)));
        preview.stages.retain(|stage| !stage.is_empty());
        preview.tasks.iter_mut().for_each(|task| task.after.retain(|id| kept.contains(id)));
        preview.create = vec![node.clone()];
        preview.delete = vec![node.clone()];
        Ok(Preview { base, ..preview })
    }

    /// Checks that a plan is for the present state of the cluster.
    pub(super) fn check_base(
        &self,
        state: &State,
        record: &ClusterRecord,
        operation: &Operation,
        base: &str,
    ) -> Result<(), HubError> {
        let (shape, _) = self.aim(record, operation)?;
        if base == base_of(state, record, &shape) {
            return Ok(());
        }
        Err(HubError::Conflict(format!("the cluster {} has changed since the plan; make the plan again", record.name)))
    }

    /// The shape that an operation leads to, and the word of `cobgen plan` for it.
    fn aim(&self, record: &ClusterRecord, operation: &Operation) -> Result<(Shape, &'static str), HubError> {
        let folder = self.cluster_folder(&record.tenant, &record.name);
        let present = present_services(&folder).map_err(|e| HubError::Internal(e.to_string()))?;
        let newest = self.catalogue.head()?;
        let after = record.shape.after(operation, record.former.as_ref(), &newest, || present).map_err(refused)?;
        let word = match operation {
            Operation::Resize { nodes } if *nodes < record.shape.wanted.nodes => "shrink",
            Operation::Resize { .. } => "expand",
            Operation::Services { add, .. } if add.is_empty() => "remove-services",
            Operation::Services { remove, .. } if remove.is_empty() => "add-services",
            Operation::Services { .. } | Operation::Configure { .. } | Operation::Sync {} | Operation::Rollback {} => {
                "configure"
            }
            Operation::Replace { .. } => "create",
            Operation::Create {}
            | Operation::Start { .. }
            | Operation::Stop { .. }
            | Operation::Restart { .. }
            | Operation::Delete {} => operation.name(),
        };
        Ok((after.unwrap_or_else(|| record.shape.clone()), word))
    }

    async fn preview(
        &self,
        tenant: &Name,
        name: &Name,
        shape: &Shape,
        machines: &Table,
        word: &str,
        is_new: bool,
    ) -> Result<Preview, HubError> {
        let failed = |error: std::io::Error| HubError::Internal(format!("can't make a temporary folder: {error}"));
        let copy = tempfile::tempdir().map_err(failed)?;
        let part = Part::Tenant(tenant.clone());
        self.catalogue.export(&part, &shape.catalogue, copy.path())?;
        let depot = self.cluster_folder(tenant, name).join("depot");
        let place = Place {
            programs: self.config.programs.clone(),
            catalogue: copy.path(),
            cluster: name,
            depot: Some(depot.as_path()).filter(|depot| !is_new && depot.is_dir()),
            machines,
        };
        let (layout, plan) = look_ahead(&place, &shape.wanted, word).await.map_err(refused)?;
        let is_deletion = word == "delete";
        let nodes: BTreeSet<&str> = layout.nodes.iter().map(|node| node.name.as_str()).collect();
        let stays = |host: &str| !is_deletion && nodes.contains(host);
        let create = nodes.iter().filter(|node| !is_deletion && !machines.contains_key(**node));
        let preview = Preview {
            create: create.map(|node| (*node).to_owned()).collect(),
            delete: machines.keys().filter(|host| !stays(host)).cloned().collect(),
            nodes: layout.nodes.iter().filter(|_| !is_deletion).map(node).collect(),
            tasks: plan.tasks,
            stages: plan.stages,
            base: None,
        };
        Ok(preview)
    }
}

/// The name of a state of a cluster, for an operation with this aim.
fn base_of(state: &State, record: &ClusterRecord, aim: &Shape) -> String {
    let name = record.queue_name();
    let jobs = state.queue.jobs().filter(|job| job.spec.cluster.as_deref() == Some(name.as_str()));
    let latest = jobs.map(|job| job.id.0).max().unwrap_or_default();
    format!("{}.{latest}.{}", record.generation.unwrap_or_default(), aim.catalogue)
}

fn node(node: &crate::layout::Node) -> PreviewNode {
    let crate::layout::Node { name, services, hardwaretype, imagetype } = node.clone();
    PreviewNode { name, services, hardwaretype, imagetype }
}

fn refused(failure: Failure) -> HubError {
    HubError::Conflict(failure.what)
}
