//! Layouts of clusters: the solver answers the valid requests of the catalog, and its nodes get names.
//!
//! Nodes of a cluster that requests a number are called `CLUSTER-1`, `CLUSTER-2` and so on; existing nodes keep their
//! names, and new nodes get the lowest free numbers. A cluster with named hosts uses these hosts as nodes.

mod ask;
mod barred;
mod explain;
mod layout;
mod offer;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use cob_solver::{Budget, NodeLayout, NodeRef, Outcome};

use self::ask::{Beside, Question};
use crate::catalog::{Catalog, Rejected, Request};
use crate::diagnostic::{Diagnostic, Severity};
use crate::expand::Report;
use crate::expand::hosts::Hosts;

pub(crate) use layout::natural;
pub use layout::{LayoutError, LayoutNode, Layouts, of_bytes, read, to_bytes};
pub(crate) use view::{ClusterView, View};

/// The file name under which the depot keeps the layouts of a generation's clusters, among the model files.
pub const REMEMBERED: &str = ".cobgen-layouts.json";

/// The codes of faults in a valid request that its template cannot satisfy.
const CANT_BE: [&str; 6] = ["incompatible", "missing-service", "conflict", "size", "not-mapped", "immutable"];

/// Knowledge from outside the model, by cluster name.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The present clusters: their nodes keep their hardware and image, and unaffected services don't move.
    pub existing: Layouts,
    /// Unwanted layouts.
    pub excluded: Vec<Layouts>,
    /// Unwanted services on named nodes, because they have failed there.
    pub barred: BTreeMap<String, Barred>,
    /// The layouts in which these services failed. Unwanted if no node has a known name.
    pub failed: Vec<Layouts>,
}

/// For each node the unwanted services.
pub type Barred = BTreeMap<String, BTreeSet<String>>;

/// The answer for a cluster.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) verdict: Verdict,
    /// The full reason if it has no layout.
    pub(crate) faults: Vec<Diagnostic>,
    /// The contradiction, for machines.
    pub(crate) explanation: Option<serde_json::Value>,
}

/// Whether a cluster has a layout.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The layout.
    Layout(Vec<LayoutNode>),
    /// There is certainly no layout.
    None,
    /// The request was rejected without the solver, because its parts exclude each other.
    Rejected,
    /// The request is wrong: it has unknown names or a wrong form.
    Wrong,
    /// The step limit was reached.
    Undecided,
}

impl Answered {
    /// The reason as a single text, if it has no layout.
    pub(crate) fn reason(&self) -> Option<String> {
        let all: Vec<String> = self.faults.iter().map(explain::in_one_text).collect();
        (!all.is_empty()).then(|| all.join("\n"))
    }
}

/// Answers every request; reports no faults yet.
pub(crate) fn all<'a>(
    requests: &BTreeMap<String, Result<Request<'_>, Rejected>>,
    catalog: &Catalog,
    hosts: &Hosts,
    given: &'a Given,
    report: &Report<'_>,
) -> BTreeMap<String, Answered> {
    let none = Barred::new();
    let one = |name: &String, request: &Result<Request<'_>, Rejected>| match request {
        Ok(request) => {
            let existing = given.existing.get(name).map_or(&[][..], Vec::as_slice);
            let of_cluster = |all: &'a [Layouts]| -> Vec<&'a [LayoutNode]> {
                all.iter().filter_map(|layouts| layouts.get(name)).map(Vec::as_slice).collect()
            };
            let (excluded, failed) = (&of_cluster(&given.excluded), &of_cluster(&given.failed));
            let barred = given.barred.get(name).unwrap_or(&none);
            answer(request, catalog, hosts, Beside { existing, excluded, barred, failed }, report)
        }
        Err(Rejected(faults)) => {
            let wrong = faults.iter().any(|f| f.severity == Severity::Error && !CANT_BE.contains(&f.code));
            let verdict = if wrong { Verdict::Wrong } else { Verdict::Rejected };
            Answered { verdict, faults: faults.clone(), explanation: None }
        }
    };
    requests.iter().map(|(name, request)| (name.clone(), one(name, request))).collect()
}

fn answer(asked: &Request<'_>, catalog: &Catalog, hosts: &Hosts, beside: Beside<'_>, report: &Report<'_>) -> Answered {
    let question = match Question::of(asked, catalog, hosts, beside, report) {
        Ok(question) => question,
        Err(fault) => return Answered { verdict: Verdict::Rejected, faults: vec![*fault], explanation: None },
    };
    let place = || report.place(asked.cluster.mark);
    match cob_solver::solve(&question.request, Budget::default()) {
        Ok(Outcome::Layout(layout)) => {
            let nodes = named(&asked.cluster.value, layout.nodes());
            let verdict = Verdict::Layout(nodes.into_iter().map(|node| question.barred.as_it_is(node)).collect());
            Answered { verdict, faults: Vec::new(), explanation: None }
        }
        Ok(Outcome::None(explanation)) => Answered {
            verdict: Verdict::None,
            faults: vec![explain::contradiction(asked, &question, &explanation, report)],
            explanation: Some(explain::to_json(&question, &explanation, report)),
        },
        Ok(Outcome::Undecided) => {
            let what = format!("no decision whether the cluster `{}` has a layout", asked.cluster.value);
            let fault = Diagnostic::error("undecided", what).at(place());
            let help = "the search reached its step limit; fewer services or rules in a template make it shorter";
            Answered { verdict: Verdict::Undecided, faults: vec![fault.help(help)], explanation: None }
        }
        Err(error) => {
            let what = format!("the cluster `{}` can't be laid out: {error}", asked.cluster.value);
            let fault = Diagnostic::error("unsolvable", what).at(place());
            Answered { verdict: Verdict::Rejected, faults: vec![fault], explanation: None }
        }
    }
}

/// Nodes with their names, in natural order.
fn named<'a>(cluster: &str, nodes: impl Iterator<Item = (NodeRef<'a>, &'a NodeLayout)>) -> Vec<LayoutNode> {
    let (mut found, mut new) = (Vec::new(), Vec::new());
    for (node, layout) in nodes {
        match node {
            NodeRef::Named(name) => found.push(node_of(name.to_owned(), layout)),
            NodeRef::New(_) => new.push(layout),
        }
    }
    let all_new = found.is_empty();
    let taken: BTreeSet<String> = found.iter().map(|n| n.name.clone()).collect();
    let named: Vec<LayoutNode> =
        free_names(cluster, &taken).zip(new).map(|(name, layout)| node_of(name, layout)).collect();
    found.extend(named);
    if !all_new {
        found.sort_by_cached_key(|node| natural(&node.name));
    }
    found
}

/// The names for new nodes of a cluster, in this order.
fn free_names(cluster: &str, taken: &BTreeSet<String>) -> impl Iterator<Item = String> {
    (1_u64..).map(move |n| format!("{cluster}-{n}")).filter(|name| !taken.contains(name))
}

fn node_of(name: String, layout: &NodeLayout) -> LayoutNode {
    let some = |name: &String| (!name.is_empty()).then(|| name.clone());
    let (hardwaretype, imagetype) = (some(&layout.hardware), some(&layout.image));
    LayoutNode { name, services: layout.services.clone(), hardwaretype, imagetype }
}
