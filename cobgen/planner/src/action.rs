//! What is done on a node, and which of it an operation does, in which order.

use std::fmt;

/// What is done on a node: with the node itself, or with one of its services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The provider is asked for the machine.
    Create,
    /// The machine is waited for.
    Confirm,
    /// The machine is made ready for services.
    Bootstrap,
    /// The service is put onto the node.
    Install,
    /// Its configuration is written.
    Configure,
    /// What is done once, before its first start.
    Initialize,
    /// It is started.
    Start,
    /// It is stopped.
    Stop,
    /// It is taken off the node.
    Remove,
    /// The machine is given back.
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

    /// The action of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }

    /// Whether it is done with the node, not with a service of it.
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
    /// Nodes come into being, with all their services.
    Create,
    /// All nodes go. Machines of a provider are given back as they are; from hosts of an inventory
    /// services are stopped and removed.
    Delete,
    /// Services are configured anew where they run.
    Configure,
    /// Services are started, and those that they require before them.
    Start,
    /// Services are stopped, and those that require them before them.
    Stop,
    /// Services are stopped and started, with those that require them.
    Restart,
    /// Services come onto nodes that there are.
    AddServices,
    /// Services leave nodes that stay.
    RemoveServices,
    /// Nodes are added.
    Expand,
    /// Nodes leave.
    Shrink,
    /// Services are replaced by others that provide the same, or installed anew in their places.
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

    /// The operation of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == name)
    }

    /// Whether it needs to know the cluster as it was.
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
