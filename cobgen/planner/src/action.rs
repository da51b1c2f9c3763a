//! Actions on nodes, and operations, which consist of actions in an order.

use std::fmt;

/// An action on a node or on a service of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Order the machine from the provider.
    Create,
    /// Wait for the machine.
    Confirm,
    /// Prepare the machine for services.
    Bootstrap,
    /// Install the service on the node.
    Install,
    /// Write the service's configuration.
    Configure,
    /// Initialize the service once, before its first start.
    Initialize,
    /// Start the service.
    Start,
    /// Stop the service.
    Stop,
    /// Remove the service from the node.
    Remove,
    /// Give the machine back to the provider.
    Delete,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 10] = [
        Self::Create,
        Self::Confirm,
        Self::Bootstrap,
        Self::Install,
        Self::Configure,
        Self::Initialize,
        Self::Start,
        Self::Stop,
        Self::Remove,
        Self::Delete,
    ];

    /// Its name: `install`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Confirm => "confirm",
            Self::Bootstrap => "bootstrap",
            Self::Install => "install",
            Self::Configure => "configure",
            Self::Initialize => "initialize",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Remove => "remove",
            Self::Delete => "delete",
        }
    }

    /// The action with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }

    /// Whether the action concerns the node, not a service.
    #[must_use]
    pub fn is_of_node(self) -> bool {
        match self {
            Self::Create | Self::Confirm | Self::Bootstrap | Self::Delete => true,
            Self::Install | Self::Configure | Self::Initialize | Self::Start | Self::Stop | Self::Remove => false,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An operation on a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Create nodes with all their services.
    Create,
    /// Remove all nodes. Machines of a provider are given back as they are; on hosts of an inventory the services are
    /// stopped and removed.
    Delete,
    /// Configure running services anew.
    Configure,
    /// Start services, after the services that they require.
    Start,
    /// Stop services, after the services that require them.
    Stop,
    /// Restart services and their dependents.
    Restart,
    /// Add services to existing nodes.
    AddServices,
    /// Remove services from nodes that stay.
    RemoveServices,
    /// Add nodes.
    Expand,
    /// Remove nodes.
    Shrink,
    /// Replace services by others that provide the same name, or reinstall them.
    Upgrade,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 11] = [
        Self::Create,
        Self::Delete,
        Self::Configure,
        Self::Start,
        Self::Stop,
        Self::Restart,
        Self::AddServices,
        Self::RemoveServices,
        Self::Expand,
        Self::Shrink,
        Self::Upgrade,
    ];

    /// Its name: `add-services`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Configure => "configure",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::AddServices => "add-services",
            Self::RemoveServices => "remove-services",
            Self::Expand => "expand",
            Self::Shrink => "shrink",
            Self::Upgrade => "upgrade",
        }
    }

    /// The operation with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == name)
    }

    /// Whether the operation needs the previous layout of the cluster.
    #[must_use]
    pub fn changes_layout(self) -> bool {
        match self {
            Self::AddServices | Self::RemoveServices | Self::Expand | Self::Shrink => true,
            Self::Create
            | Self::Delete
            | Self::Configure
            | Self::Start
            | Self::Stop
            | Self::Restart
            | Self::Upgrade => false,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
