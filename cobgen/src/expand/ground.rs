//! The base of the expansion: hosts, the catalog, and clusters with their services placed, by hand or by layouts.

use std::collections::BTreeMap;

use cob_types::HostName;
use cob_types::generation::Security;

use super::Report;
use super::clusters::{Clusters, LaidOut};
use super::hosts::Hosts;
use super::template::Templates;
use crate::catalog::{Catalog, Rejected, Request, Services, Wanted};
use crate::model::{ClusterEntry, HostEntry, HostLabel, Mark, Marked, Named, Node, Sections, Value, Written};
use crate::solve::{self, Given, Layouts, Verdict};

/// The base before placement.
pub(crate) struct Ground {
    security: Option<Security>,
    templates: Templates,
    pub(crate) hosts: Hosts,
    pub(crate) catalog: Catalog,
}

/// The base after placement.
pub(super) struct Placed {
    pub(super) security: Option<Security>,
    pub(super) templates: Templates,
    pub(super) hosts: Hosts,
    pub(super) clusters: Clusters,
    pub(super) needs: Services,
}

impl Ground {
    pub(crate) fn read(sections: &Sections, report: &mut Report<'_>) -> Self {
        let security = super::security(sections, report);
        let templates = Templates::default();
        let mut hosts = Hosts::read(&sections.hosts, security, &templates, report);
        hosts.learn(&sections.facts);
        let catalog = Catalog::read(sections, report);
        Self { security, templates, hosts, catalog }
    }

    /// Finds the layouts and places all services; reports clusters without a layout.
    pub(super) fn place(
        self,
        sections: &Sections,
        given: &Given,
        layouts: &mut Layouts,
        report: &mut Report<'_>,
    ) -> Placed {
        let Self { security, templates, mut hosts, catalog } = self;
        let requests = catalog.requests(sections, &hosts, report);
        let answers = solve::all(&requests, &catalog, &hosts, given, report);
        let mut laid_out = BTreeMap::new();
        let mut more: Named<HostEntry> = Named::default();
        for (name, answer) in &answers {
            report.out.extend(answer.faults.iter().cloned());
            let (Verdict::Layout(nodes), Some(Ok(request))) = (&answer.verdict, requests.get(name)) else { continue };
            if let Wanted::Count(_) = request.nodes {
                let entry = sections.clusters.iter().find(|(n, _)| n.value == *name).map(|(_, entry)| entry);
                let new = nodes.iter().filter(|n| HostName::new(&n.name).is_ok_and(|h| !hosts.0.contains_key(&h)));
                more.0.extend(new.map(|node| host(node.name.clone(), request, entry)));
            }
            layouts.insert(name.clone(), nodes.clone());
            let cluster =
                LaidOut { services: request.services.clone(), nodes: nodes.clone(), config: request.config.clone() };
            laid_out.insert(name.clone(), cluster);
        }
        hosts.add(&more, security, &templates, report);
        hosts.learn(&sections.facts);
        let clusters = Clusters::read(&sections.clusters, &sections.services, &hosts, &laid_out, report);
        drop(requests);
        Placed { security, templates, hosts, clusters, needs: catalog.services }
    }

    /// The requests of clusters with templates.
    pub(crate) fn requests(
        &self,
        sections: &Sections,
        report: &mut Report<'_>,
    ) -> BTreeMap<String, Result<Request<'_>, Rejected>> {
        self.catalog.requests(sections, &self.hosts, report)
    }

    /// The clusters whose services are placed by hand, in the form of layouts.
    pub(crate) fn by_hand(&self, sections: &Sections, report: &mut Report<'_>) -> Layouts {
        let none = BTreeMap::new();
        let clusters = Clusters::read(&sections.clusters, &sections.services, &self.hosts, &none, report);
        clusters.0.into_iter().map(|cluster| (cluster.name.clone(), cluster.layout())).collect()
    }
}

/// A host for a node that a cluster requests by number; the model has no entry for it.
fn host(name: String, request: &Request<'_>, entry: Option<&ClusterEntry>) -> (Marked<String>, HostEntry) {
    let mark: Mark = request.cluster.mark;
    let index = name.rsplit('-').next().and_then(|n| n.parse::<i128>().ok()).unwrap_or_default();
    let text = |value: &str| Marked { mark, value: value.to_owned() };
    let entry = HostEntry {
        address: entry.and_then(|e| e.address.clone()),
        labels: Named(vec![(text("cluster"), HostLabel { text: request.cluster.value.clone(), is_number: false })]),
        vars: Named(vec![(text("index"), Node { mark, value: Value::Int(index, Written::default()) })]),
        ..HostEntry::default()
    };
    (Marked { mark, value: name }, entry)
}
