//! All clusters of a model with their layouts, for the commands that show these: no change objects are made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_planner::{Action, Origin, Service};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::offer::Offer;
use super::{Given, LayoutNode, Verdict};
use crate::catalog::{Stage, Wanted};
use crate::diagnostic::{Diagnostic, Severity};
use crate::expand::{Ground, Report};
use crate::model::{Action as Written, Model, Sections, ServiceEntry, Sources};

/// The clusters of a model, for display.
pub(crate) struct View {
    pub(crate) sources: Sources,
    /// The faults of the model, without the faults of the clusters below.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Sorted by name.
    pub(crate) clusters: Vec<ClusterView>,
    /// The names of all clusters, including clusters that were not requested.
    pub(crate) cluster_names: BTreeSet<String>,
    /// The names of all services.
    pub(crate) service_names: BTreeSet<String>,
}

/// A cluster.
pub(crate) struct ClusterView {
    pub(crate) name: String,
    /// `None`: undecided.
    pub(crate) solvable: Option<bool>,
    /// Its request is wrong by itself.
    pub(crate) wrong: bool,
    pub(crate) nodes: Vec<LayoutNode>,
    /// Earlier nodes that it has no longer.
    pub(crate) leaving: Vec<String>,
    /// The provider of its machines, if the model names one.
    pub(crate) provider: Option<Offer>,
    pub(crate) faults: Vec<Diagnostic>,
    pub(crate) reason: Option<String>,
    pub(crate) explanation: Option<serde_json::Value>,
    pub(crate) origin: Origin,
    /// Its services for the planner.
    pub(crate) services: BTreeMap<String, Service>,
}

impl View {
    /// Loads a model and lays out its clusters, or only the cluster `only`.
    pub(crate) fn of(model: &Path, given: &Given, only: Option<&str>) -> Self {
        Self::of_model(Model::load(model), given, only)
    }

    /// The same for a loaded model.
    pub(crate) fn of_model(model: Model, given: &Given, only: Option<&str>) -> Self {
        let Model { sources, sections, mut diagnostics } = model;
        let clusters = match &sections {
            Some(sections) => {
                let mut report = Report::new(&sources, &mut diagnostics);
                clusters(sections, given, only, &mut report)
            }
            None => Vec::new(),
        };
        let (mut cluster_names, mut service_names) = (BTreeSet::new(), BTreeSet::new());
        if let Some(sections) = &sections {
            cluster_names.extend(sections.clusters.iter().map(|(name, _)| name.value.clone()));
            service_names.extend(sections.services.iter().map(|(name, _)| name.value.clone()));
        }
        Self { sources, diagnostics: diagnostics.into_sorted(), clusters, cluster_names, service_names }
    }

    /// The layouts for machines, as `cobgen solve --json` prints them.
    pub(crate) fn to_json(&self) -> impl Serialize {
        AllJson { clusters: self.clusters.iter().map(ClusterJson::of).collect() }
    }

    /// Whether the model itself is wrong.
    pub(crate) fn is_refused(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error) || self.clusters.iter().any(|c| c.wrong)
    }
}

/// The output for machines, serialized while it is written, because nodes may be many.
#[derive(Serialize)]
struct AllJson<'a> {
    clusters: Vec<ClusterJson<'a>>,
}

#[skip_serializing_none]
#[derive(Serialize)]
struct ClusterJson<'a> {
    name: &'a str,
    #[serialize_always]
    solvable: Option<bool>,
    nodes: &'a [LayoutNode],
    reason: Option<&'a String>,
    explanation: Option<&'a serde_json::Value>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    leaving: &'a [String],
    provider: Option<&'a Offer>,
}

impl<'a> ClusterJson<'a> {
    fn of(cluster: &'a ClusterView) -> Self {
        let ClusterView { name, solvable, nodes, reason, explanation, leaving, provider, .. } = cluster;
        let (reason, explanation) = (reason.as_ref(), explanation.as_ref());
        Self { name, solvable: *solvable, nodes, reason, explanation, leaving, provider: provider.as_ref() }
    }
}

fn clusters(sections: &Sections, given: &Given, only: Option<&str>, report: &mut Report<'_>) -> Vec<ClusterView> {
    let ground = Ground::read(sections, report);
    let mut requests = ground.requests(sections, report);
    requests.retain(|name, _| only.is_none_or(|only| only == name));
    let answers = super::all(&requests, &ground.catalog, &ground.hosts, given, report);
    let entries: BTreeMap<&str, &ServiceEntry> = sections.services.iter().map(|(n, s)| (n.value.as_str(), s)).collect();
    let planned = |nodes: &[LayoutNode], before: &[LayoutNode]| {
        let unlike =
            nodes.chunk_by(|a, b| a.services == b.services).chain(before.chunk_by(|a, b| a.services == b.services));
        let names: BTreeSet<&str> = unlike.flat_map(|alike| &alike[0].services).map(String::as_str).collect();
        let service = |name: &str| {
            let entry = entries.get(name).copied();
            let before = |stage| ground.catalog.services.before(name, stage, |s| names.contains(s));
            let mut runtime: BTreeSet<String> = before(Stage::Runtime).into_keys().collect();
            runtime.extend(
                entry.into_iter().flat_map(words).filter(|s| *s != name && names.contains(s)).map(str::to_owned),
            );
            let install = before(Stage::Install).into_keys().collect();
            let provides = entry.and_then(|e| e.dependencies.as_ref()).into_iter().flat_map(|d| &d.provides);
            let provides = provides.map(|p| p.value.clone()).collect();
            Service { actions: entry.map(actions).unwrap_or_default(), provides, install, runtime }
        };
        names.iter().map(|name| ((*name).to_owned(), service(name))).collect()
    };
    let mut views = Vec::new();
    for (name, answer) in answers {
        let before = given.existing.get(&name).map_or(&[][..], Vec::as_slice);
        let reason = answer.reason();
        let wrong = matches!(answer.verdict, Verdict::Wrong);
        let (solvable, nodes) = match answer.verdict {
            Verdict::Layout(nodes) => (Some(true), nodes),
            Verdict::None | Verdict::Rejected | Verdict::Wrong => (Some(false), Vec::new()),
            Verdict::Undecided => (None, Vec::new()),
        };
        let mut leaving = Vec::new();
        if solvable == Some(true) && !before.is_empty() {
            let there: BTreeSet<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
            leaving.extend(before.iter().map(|n| &n.name).filter(|name| !there.contains(name.as_str())).cloned());
        }
        let request = requests.get(&name).and_then(|request| request.as_ref().ok());
        let counted = request.is_some_and(|request| matches!(request.nodes, Wanted::Count(_)));
        let provider = request.and_then(|request| Offer::of(request, &nodes, sections));
        let origin = if counted { Origin::Provider } else { Origin::Inventory };
        let services = planned(&nodes, before);
        let (faults, explanation) = (answer.faults, answer.explanation);
        views.push(ClusterView {
            name,
            solvable,
            wrong,
            nodes,
            leaving,
            provider,
            faults,
            reason,
            explanation,
            origin,
            services,
        });
    }
    let by_hand = match only.is_some_and(|only| requests.contains_key(only)) {
        true => BTreeMap::new(),
        false => ground.by_hand(sections, report),
    };
    for (name, nodes) in by_hand.into_iter().filter(|(name, _)| only.is_none_or(|only| only == name)) {
        let services = planned(&nodes, given.existing.get(&name).map_or(&[][..], Vec::as_slice));
        views.push(ClusterView {
            name,
            solvable: Some(true),
            wrong: false,
            nodes,
            leaving: Vec::new(),
            provider: None,
            faults: Vec::new(),
            reason: None,
            explanation: None,
            origin: Origin::Inventory,
            services,
        });
    }
    views.sort_by(|a, b| a.name.cmp(&b.name));
    views
}

/// The services that the service names in its own short words.
fn words(entry: &ServiceEntry) -> impl Iterator<Item = &str> {
    let all = entry.requires.iter().chain(&entry.after).chain(&entry.wants);
    all.map(|target| target.cob.value.split('/').next().unwrap_or_default())
}

/// The actions of a service. A service made of change objects only starts and stops.
fn actions(entry: &ServiceEntry) -> BTreeSet<Action> {
    let Some(written) = &entry.actions else { return [Action::Start, Action::Stop].into() };
    let written = &written.value;
    let all: [(Action, &Option<Written>); 6] = [
        (Action::Install, &written.install),
        (Action::Configure, &written.configure),
        (Action::Initialize, &written.initialize),
        (Action::Start, &written.start),
        (Action::Stop, &written.stop),
        (Action::Remove, &written.remove),
    ];
    all.into_iter().filter(|(_, entry)| entry.is_some()).map(|(action, _)| action).collect()
}
