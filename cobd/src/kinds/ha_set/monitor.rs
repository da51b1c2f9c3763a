//! The state of resources, as `crm_mon` reports it.

use std::collections::BTreeSet;

use super::simulation::bare;
use super::xml::Xml;

/// The roles of a resource that runs.
const RUNNING: [&str; 5] = ["Started", "Promoted", "Unpromoted", "Master", "Slave"];

/// The state of the cluster.
#[derive(Debug, Clone)]
pub(super) struct Monitor {
    root: Xml,
}

impl Monitor {
    /// Reads the output of `crm_mon --output-as=xml`.
    ///
    /// # Errors
    /// The state is unknown: no quorum, no controller, or no readable answer.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let root = Xml::read(text)?;
        let dc = root.child("summary").and_then(|summary| summary.child("current_dc"));
        let Some(dc) = dc.filter(|dc| dc.is("present", "true")) else {
            return Err("the cluster has no controller (DC) yet: see `crm_mon -1`".to_owned());
        };
        if !dc.is("with_quorum", "true") {
            return Err("the cluster has no quorum: see `corosync-quorumtool`".to_owned());
        }
        Ok(Self { root })
    }

    /// The instances of a primitive.
    fn instances<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Xml> {
        let resources = self.root.child("resources").into_iter().flat_map(Xml::all);
        resources.filter(move |one| one.tag == "resource" && bare(one.id()) == id)
    }

    /// Why a primitive is not as wanted. `None`: it runs.
    pub(super) fn why_not_up(&self, id: &str, is_promotable: bool) -> Option<String> {
        let active: Vec<&Xml> = self.instances(id).filter(|one| one.is("active", "true")).collect();
        let is_running = |one: &&Xml| {
            one.attribute("role").is_some_and(|role| RUNNING.contains(&role)) && one.attribute("pending").is_none()
        };
        let role = |one: &Xml| one.attribute("role").unwrap_or_default().to_lowercase();
        for (word, name) in [("failed", "failed"), ("blocked", "blocked"), ("orphaned", "orphaned")] {
            if self.instances(id).any(|one| one.is(word, "true")) {
                return Some(format!("{id} is {name}{}", self.failures(id)));
            }
        }
        let Some(first) = active.first() else {
            return Some(format!("{id} is not running{}", self.failures(id)));
        };
        if !active.iter().any(is_running) {
            return Some(format!("{id} is {}", role(first)));
        }
        let is_promoted = |one: &&Xml| one.is("role", "Promoted") || one.is("role", "Master");
        (is_promotable && !active.iter().any(is_promoted)).then(|| format!("no instance of {id} is promoted"))
    }

    /// The nodes on which a primitive is active.
    pub(super) fn nodes(&self, id: &str) -> Vec<String> {
        let active = self.instances(id).filter(|one| one.is("active", "true"));
        active.flat_map(|one| &one.children).filter_map(|node| node.attribute("name").map(str::to_owned)).collect()
    }

    /// The last failures of a primitive, as the end of a sentence.
    fn failures(&self, id: &str) -> String {
        let all = self.root.child("failures").into_iter().flat_map(|all| &all.children);
        let own = all.filter(|failure| {
            // `web_start_0`, `web:1_monitor_10000`
            let key = failure.attribute("op_key").unwrap_or_default();
            key.rsplitn(3, '_').last().is_some_and(|resource| bare(resource) == id)
        });
        let told = own.map(|failure| {
            let get = |name: &str| failure.attribute(name).unwrap_or_default();
            let why = Some(get("exitreason")).filter(|why| !why.is_empty()).unwrap_or_else(|| get("exitstatus"));
            format!("{} on {}: {why}", get("op_key"), get("node"))
        });
        let mut all: BTreeSet<String> = told.collect();
        if all.is_empty() {
            all = self.failed_operations(id);
        }
        if all.is_empty() {
            return String::new();
        }
        let all: Vec<String> = all.into_iter().collect();
        format!("; {}; after a repair: `crm_resource --cleanup --resource {id}`", all.join("; "))
    }

    /// The failed operations in the history of the nodes: the cluster does not count a failed probe as a failure.
    fn failed_operations(&self, id: &str) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for node in self.root.child("node_history").into_iter().flat_map(|history| &history.children) {
            for resource in node.children.iter().filter(|resource| bare(resource.id()) == id) {
                let failed = resource.children.iter().filter(|op| op.attribute("rc").is_some_and(is_failure));
                all.extend(failed.map(|op| {
                    let get = |name: &str| op.attribute(name).unwrap_or_default();
                    format!("{} on {}: {}", get("task"), node.attribute("name").unwrap_or_default(), get("rc_text"))
                }));
            }
        }
        all
    }

    /// The failures of a primitive that runs nevertheless.
    pub(super) fn past_failures(&self, id: &str) -> Option<String> {
        let failures = self.failures(id);
        (!failures.is_empty()).then(|| format!("{id} has failed{failures}"))
    }

    /// Whether the whole cluster is in maintenance.
    pub(super) fn is_in_maintenance(&self) -> bool {
        let summary = self.root.child("summary").and_then(|summary| summary.child("cluster_options"));
        summary.is_some_and(|options| options.is("maintenance-mode", "true"))
    }
}

/// Whether an exit status of an agent is a failure: 0, 7 and 8 say that the resource runs, is stopped, or is promoted.
fn is_failure(code: &str) -> bool {
    code.parse::<u8>().is_ok_and(|code| (1..=9).contains(&code) && ![7, 8].contains(&code))
}
