//! The jobs of an operation: the actions for each node and service.
//!
//! Each node has a chain of its own actions before its services' (create, confirm, bootstrap) and after them (delete),
//! and in between a chain for each of its services. [`order`](crate::order) adds the dependencies between services.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::{Action, Operation};
use crate::cluster::{Cluster, Node, Origin};
use crate::order::{self, Rank};
use crate::stages;

/// An action on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    /// The node.
    pub node: String,
    /// The action.
    pub action: Action,
    /// The service; `None`: the action concerns the node itself.
    pub service: Option<String>,
}

/// A job with its dependencies, or a gate. If many jobs wait for many others, they wait for a gate, which waits for the
/// others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The job; `None`: a gate without an action.
    pub job: Option<Job>,
    /// The steps that it waits for: indexes into [`Plan::steps`], without redundant dependencies.
    pub after: Vec<usize>,
}

/// The plan of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The operation.
    pub operation: Operation,
    /// All jobs, by node, and then gates.
    pub steps: Vec<Step>,
    /// The jobs grouped by level: each job as early as possible.
    pub levels: Vec<Vec<usize>>,
    /// Loom's stages: the levels divided, so that no stage has two jobs of the same node.
    pub stages: Vec<Vec<usize>>,
}

/// The reason why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Services wait for each other.
    #[error("services wait for each other: {}", .0.join(" -> "))]
    Circle(Vec<String>),
    /// A chosen service is on no node.
    #[error("the service {0} is on no node of the cluster")]
    Nowhere(String),
    /// A service to be added or removed does not differ between the layouts.
    #[error(
        "the service {service} is not {} by the model{}",
        if *.operation == Operation::AddServices { "added" } else { "removed" },
        if .others.is_empty() {
            "; neither is another service".to_owned()
        } else {
            format!(": it is {}", .others.join(", "))
        }
    )]
    NotConcerned {
        /// The operation.
        operation: Operation,
        /// The service.
        service: String,
        /// The services that do differ.
        others: Vec<String>,
    },
    /// The layouts differ in a way that the operation does not handle.
    #[error("{operation} does not cover this difference between the layouts: {what}")]
    OtherChange {
        /// The operation.
        operation: Operation,
        /// The difference.
        what: String,
    },
}

/// The actions on a node.
#[derive(Debug, Default)]
pub(crate) struct Chains<'a> {
    /// Actions of the node before all actions of its services.
    pub(crate) first: Vec<Action>,
    pub(crate) services: BTreeMap<&'a str, Vec<Action>>,
    /// Actions of the node after all actions of its services.
    pub(crate) last: Vec<Action>,
    /// Pairs of a removed and a new service: the new service waits for the removal.
    pub(crate) replaced: Vec<(&'a str, &'a str)>,
}

const MAKE: [Action; 3] = [Action::Create, Action::Confirm, Action::Bootstrap];
const BRING_UP: [Action; 4] = [Action::Install, Action::Configure, Action::Initialize, Action::Start];
const TAKE_DOWN: [Action; 2] = [Action::Stop, Action::Remove];
const RENEW: [Action; 4] = [Action::Stop, Action::Install, Action::Configure, Action::Start];

/// Plans an operation for the given services; `None`: for all services that it concerns.
///
/// # Errors
/// [`PlanError`].
pub fn plan(cluster: &Cluster, operation: Operation, services: Option<&BTreeSet<String>>) -> Result<Plan, PlanError> {
    let on = |service: &str| cluster.before.iter().chain(&cluster.after).any(|n| n.services.contains(service));
    if let Some(missing) = services.into_iter().flatten().find(|service| !on(service)) {
        return Err(PlanError::Nowhere(missing.clone()));
    }
    if let Some(circle) = order::circle(&cluster.services) {
        return Err(PlanError::Circle(circle));
    }
    let planner = Planner { cluster, operation, chosen: services };
    let nodes = planner.chains()?;
    let mut steps = Vec::new();
    let mut ranks = order::Groups::default();
    for (name, chains) in &nodes {
        lay_out(name, chains, cluster, &mut steps, &mut ranks);
    }
    order::between_services(cluster, &ranks, &mut steps);
    let levels = stages::levels(&steps);
    let stages = stages::divided(&levels, &steps);
    Ok(Plan { operation, steps, levels, stages })
}

struct Planner<'a> {
    cluster: &'a Cluster,
    operation: Operation,
    chosen: Option<&'a BTreeSet<String>>,
}

type Nodes<'a> = Vec<(&'a str, Chains<'a>)>;

impl<'a> Planner<'a> {
    fn chains(&self) -> Result<Nodes<'a>, PlanError> {
        let after = &self.cluster.after;
        match self.operation {
            Operation::Create => Ok(after.iter().map(|node| (node.name.as_str(), made(node))).collect()),
            Operation::Delete => Ok(after.iter().map(|node| (node.name.as_str(), gone(node))).collect()),
            Operation::Configure => Ok(self.everywhere(&[Action::Configure], &self.wanted(), true)),
            Operation::Start => Ok(self.everywhere(&[Action::Start], &self.with_required(), false)),
            Operation::Stop => Ok(self.everywhere(&[Action::Stop], &self.with_dependents(self.wanted()), false)),
            Operation::Restart => {
                let services = self.with_dependents(self.wanted());
                Ok(self.everywhere(&[Action::Stop, Action::Start], &services, false))
            }
            Operation::AddServices | Operation::RemoveServices | Operation::Expand | Operation::Shrink => {
                self.difference()
            }
            Operation::Upgrade => Ok(self.upgrade()),
        }
    }

    /// The chosen services, or all services.
    fn wanted(&self) -> BTreeSet<&'a str> {
        let all = || self.cluster.after.iter().flat_map(|n| &n.services).map(String::as_str).collect();
        self.chosen.map_or_else(all, |chosen| chosen.iter().map(String::as_str).collect())
    }

    /// The wanted services and all services that they require to run.
    fn with_required(&self) -> BTreeSet<&'a str> {
        let mut found = self.wanted();
        let mut next: Vec<&str> = found.iter().copied().collect();
        while let Some(service) = next.pop() {
            let required = self.cluster.services.get(service).into_iter().flat_map(|s| &s.runtime);
            next.extend(required.map(String::as_str).filter(|other| found.insert(other)));
        }
        found
    }

    /// These services and all services that require them to run.
    fn with_dependents(&self, mut found: BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let mut dependents: BTreeMap<&str, Vec<&'a str>> = BTreeMap::new();
        for (name, service) in &self.cluster.services {
            for required in &service.runtime {
                dependents.entry(required).or_default().push(name);
            }
        }
        let mut next: Vec<&str> = found.iter().copied().collect();
        while let Some(service) = next.pop() {
            next.extend(dependents.get(service).into_iter().flatten().filter(|other| found.insert(other)));
        }
        found
    }

    /// The same actions for some services on all their nodes.
    fn everywhere(&self, actions: &[Action], services: &BTreeSet<&str>, bootstrap: bool) -> Nodes<'a> {
        let mut nodes = Vec::new();
        for node in &self.cluster.after {
            let concerned = node.services.iter().map(String::as_str).filter(|s| services.contains(s));
            let mut chains =
                Chains { services: concerned.map(|s| (s, actions.to_vec())).collect(), ..Chains::default() };
            if chains.services.is_empty() {
                continue;
            }
            if bootstrap {
                chains.first.push(Action::Bootstrap);
            }
            nodes.push((node.name.as_str(), chains));
        }
        nodes
    }

    /// The differences between the layouts, as far as the operation covers these.
    fn difference(&self) -> Result<Nodes<'a>, PlanError> {
        let Cluster { before, after, .. } = self.cluster;
        let old: BTreeMap<&str, &Node> = before.iter().map(|n| (n.name.as_str(), n)).collect();
        let new: BTreeSet<&str> = after.iter().map(|n| n.name.as_str()).collect();
        let mut nodes = Vec::new();
        let only = |operation: Operation, what: String| match self.operation == operation {
            true => Ok(()),
            false => Err(PlanError::OtherChange { operation: self.operation, what }),
        };
        for node in before.iter().filter(|n| !new.contains(n.name.as_str())) {
            only(Operation::Shrink, format!("the node {} leaves", node.name))?;
            nodes.push((node.name.as_str(), left(node)));
        }
        for node in after {
            let Some(was) = old.get(node.name.as_str()) else {
                only(Operation::Expand, format!("the node {} is new", node.name))?;
                nodes.push((node.name.as_str(), made(node)));
                continue;
            };
            let mut chains = Chains::default();
            for service in node.services.difference(&was.services) {
                only(Operation::AddServices, format!("{service} comes to {}", node.name))?;
                chains.services.insert(service, BRING_UP.to_vec());
                chains.first = vec![Action::Bootstrap];
            }
            for service in was.services.difference(&node.services) {
                only(Operation::RemoveServices, format!("{service} leaves {}", node.name))?;
                chains.services.insert(service, TAKE_DOWN.to_vec());
            }
            if !chains.services.is_empty() {
                nodes.push((node.name.as_str(), chains));
            }
        }
        if matches!(self.operation, Operation::AddServices | Operation::RemoveServices) {
            self.are_concerned(&nodes)?;
        }
        Ok(nodes)
    }

    /// Whether the chosen services are among the added or removed services.
    fn are_concerned(&self, nodes: &Nodes<'_>) -> Result<(), PlanError> {
        let concerned: BTreeSet<&str> = nodes.iter().flat_map(|(_, chains)| chains.services.keys().copied()).collect();
        match self.chosen.into_iter().flatten().find(|service| !concerned.contains(service.as_str())) {
            None => Ok(()),
            Some(service) => Err(PlanError::NotConcerned {
                operation: self.operation,
                service: service.clone(),
                others: concerned.into_iter().map(str::to_owned).collect(),
            }),
        }
    }

    /// Replaces services if another service that provides the same name was there, and reinstalls the others; services
    /// that require them are stopped and started.
    fn upgrade(&self) -> Nodes<'a> {
        let Cluster { before, after, services } = self.cluster;
        let old: BTreeMap<&str, &Node> = before.iter().map(|n| (n.name.as_str(), n)).collect();
        let mut touched: BTreeSet<&str> = BTreeSet::new();
        let mut nodes: Nodes<'a> = Vec::new();
        for node in after {
            let mut chains = Chains::default();
            if let Some(was) = old.get(node.name.as_str()) {
                let going: Vec<&str> = was.services.difference(&node.services).map(String::as_str).collect();
                for service in going.iter().copied() {
                    chains.services.insert(service, TAKE_DOWN.to_vec());
                    touched.insert(service);
                }
                for service in node.services.difference(&was.services).map(String::as_str) {
                    let replaces = |other: &str| match (services.get(service), services.get(other)) {
                        (Some(new), Some(old)) => new.replaces(old),
                        _ => false,
                    };
                    let replaced: Vec<(&str, &str)> =
                        going.iter().copied().filter(|other| replaces(other)).map(|other| (other, service)).collect();
                    // The new service continues with the data that the old service has initialized.
                    let anew = BRING_UP.into_iter().filter(|a| replaced.is_empty() || *a != Action::Initialize);
                    chains.services.insert(service, anew.collect());
                    chains.replaced.extend(replaced);
                    touched.insert(service);
                }
            }
            nodes.push((node.name.as_str(), chains));
        }
        if touched.is_empty() {
            touched = self.wanted();
            for (node, (_, chains)) in after.iter().zip(&mut nodes) {
                let concerned = node.services.iter().map(String::as_str).filter(|s| touched.contains(s));
                chains.services.extend(concerned.map(|s| (s, RENEW.to_vec())));
            }
        }
        let restarted = self.with_dependents(touched);
        for (node, (_, chains)) in after.iter().zip(&mut nodes) {
            if !chains.services.is_empty() {
                chains.first.push(Action::Bootstrap);
            }
            for service in node.services.iter().map(String::as_str).filter(|s| restarted.contains(s)) {
                chains.services.entry(service).or_insert_with(|| vec![Action::Stop, Action::Start]);
            }
        }
        nodes.retain(|(_, chains)| !chains.services.is_empty());
        nodes
    }
}

/// The actions of a new node.
fn made(node: &Node) -> Chains<'_> {
    let first = match node.origin {
        Origin::Provider => MAKE.to_vec(),
        Origin::Inventory => vec![Action::Bootstrap],
    };
    let services = node.services.iter().map(|s| (s.as_str(), BRING_UP.to_vec())).collect();
    Chains { first, services, ..Chains::default() }
}

/// The actions of a node whose whole cluster is removed.
fn gone(node: &Node) -> Chains<'_> {
    match node.origin {
        Origin::Provider => Chains { last: vec![Action::Delete], ..Chains::default() },
        Origin::Inventory => left(node),
    }
}

/// The actions of a node that is removed from a cluster: other nodes may still use its services.
fn left(node: &Node) -> Chains<'_> {
    let services = node.services.iter().map(|s| (s.as_str(), TAKE_DOWN.to_vec())).collect();
    let last = match node.origin {
        Origin::Provider => vec![Action::Delete],
        Origin::Inventory => Vec::new(),
    };
    Chains { services, last, ..Chains::default() }
}

/// Adds the jobs of a node, each after the previous job of its chain.
fn lay_out<'a>(
    node: &str,
    chains: &Chains<'a>,
    cluster: &Cluster,
    steps: &mut Vec<Step>,
    groups: &mut order::Groups<'a>,
) {
    let mut add = |action: Action, service: Option<&str>, after: Vec<usize>| {
        let job = Job { node: node.to_owned(), action, service: service.map(str::to_owned) };
        steps.push(Step { job: Some(job), after });
        steps.len() - 1
    };
    let mut before: Option<usize> = None;
    for action in &chains.first {
        before = Some(add(*action, None, before.into_iter().collect()));
    }
    let mut ends: Vec<usize> = Vec::new();
    let mut bounds: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (service, actions) in &chains.services {
        let has = |action: &Action| cluster.services.get(*service).is_some_and(|s| s.actions.contains(action));
        let mut last = before;
        for (rank, action) in actions.iter().copied().filter(has).enumerate() {
            let at = add(action, Some(service), last.into_iter().collect());
            let begins = if rank == 0 { Rank::First } else { Rank::Later };
            groups.add(service, action, begins, at);
            bounds.entry(service).or_insert((at, at)).1 = at;
            last = Some(at);
        }
        ends.extend(last);
    }
    ends.sort_unstable();
    ends.dedup();
    for action in &chains.last {
        let after = if ends.is_empty() { before.into_iter().collect() } else { std::mem::take(&mut ends) };
        ends = vec![add(*action, None, after)];
    }
    for (old, new) in &chains.replaced {
        if let (Some((_, last)), Some((first, _))) = (bounds.get(old), bounds.get(new)) {
            steps[*first].after.push(*last);
        }
    }
}
