//! The steps of operations.
//!
//! Each step may be repeated: a job that continues after a crash begins again with the step that was under way.

use cob_hub_api::Operation;
use serde::{Deserialize, Serialize};

use super::order::Order;

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Asks the callback whether the operation may be done.
    Ask,
    /// Computes which nodes the cluster gets.
    Layout,
    /// Deletes the machine of the node that is replaced, and declares its host dead.
    Remove,
    /// Creates the machines of nodes that have none.
    Machines,
    /// Makes the generation of the shape after the operation.
    Publish,
    /// Makes a generation without services.
    Clear,
    /// Switches the hosts to the generation.
    Switch,
    /// Starts, stops or restarts services.
    Services,
    /// Deletes the machines that the cluster no longer needs.
    Retire,
    /// Makes the generation of the shape before the operation again.
    Restore,
    /// Switches the hosts to that generation.
    SwitchBack,
    /// Deletes the machines that the shape before the operation does not have.
    RetireNew,
}

impl Step {
    /// What the step does, for people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Ask => "ask the callback",
            Self::Layout => "compute the layout",
            Self::Remove => "delete the replaced machine",
            Self::Machines => "create machines",
            Self::Publish => "make the generation",
            Self::Clear => "make a generation without services",
            Self::Switch => "switch the hosts",
            Self::Services => "change the services",
            Self::Retire => "delete machines",
            Self::Restore => "make the former generation again",
            Self::SwitchBack => "switch the hosts back",
            Self::RetireNew => "delete new machines",
        }
    }
}

/// The steps of an operation.
pub(super) fn forward(operation: &Operation, has_generation: bool) -> Vec<Step> {
    use Step::{Clear, Layout, Machines, Publish, Remove, Retire, Services, Switch};
    match operation {
        Operation::Create {}
        | Operation::Resize { .. }
        | Operation::Services { .. }
        | Operation::Configure { .. }
        | Operation::Sync {}
        | Operation::Rollback {} => vec![Layout, Machines, Publish, Switch, Retire],
        Operation::Replace { .. } => vec![Layout, Remove, Machines, Publish, Switch],
        Operation::Start { .. } | Operation::Stop { .. } | Operation::Restart { .. } => vec![Services],
        Operation::Delete {} if has_generation => vec![Clear, Switch, Retire],
        Operation::Delete {} => vec![Retire],
    }
}

/// The steps that undo an operation after a failure or cancellation, given the steps that were begun.
pub(super) fn undo(order: &Order, begun: &[Step]) -> Vec<Step> {
    use Step::{Machines, Publish, Restore, RetireNew, SwitchBack};
    match &order.operation {
        Operation::Create {} if order.keep_failed => Vec::new(),
        Operation::Create {} => vec![RetireNew],
        Operation::Resize { .. }
        | Operation::Services { .. }
        | Operation::Configure { .. }
        | Operation::Sync {}
        | Operation::Rollback {}
            if begun.contains(&Publish) =>
        {
            vec![Restore, SwitchBack, RetireNew]
        }
        Operation::Resize { .. }
        | Operation::Services { .. }
        | Operation::Configure { .. }
        | Operation::Sync {}
        | Operation::Rollback {}
            if begun.contains(&Machines) =>
        {
            vec![RetireNew]
        }
        Operation::Resize { .. }
        | Operation::Services { .. }
        | Operation::Configure { .. }
        | Operation::Sync {}
        | Operation::Rollback {}
        | Operation::Replace { .. }
        | Operation::Start { .. }
        | Operation::Stop { .. }
        | Operation::Restart { .. }
        | Operation::Delete {} => Vec::new(),
    }
}

/// Whether an operation has left nothing half done if it stopped within these steps. Services that run or not are no
/// part of what a cluster shall be.
pub(super) fn is_harmless(begun: &[Step]) -> bool {
    begun.iter().all(|step| matches!(step, Step::Ask | Step::Layout | Step::Services))
}
