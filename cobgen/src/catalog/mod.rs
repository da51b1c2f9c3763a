//! The entities that clusters are made of: providers, types, services with their dependencies, templates; and the
//! requests of the clusters.
//!
//! Read from the sections of a model before the solver places a service. Every fault that needs no search is found
//! here: unknown names, circular dependencies of services, templates that contradict themselves, and impossible
//! [requests](requests). The solver has to answer the remaining requests.

mod number;
mod requests;
mod services;
mod templates;
mod types;

use std::collections::BTreeMap;

pub(crate) use number::Share;
pub(crate) use requests::{Rejected, Request, Wanted};
pub(crate) use services::{Services, Stage};
pub(crate) use templates::{Rule, Templates};
pub(crate) use types::{Providers, Types};

use crate::diagnostic::Diagnostic;
use crate::expand::Report;
use crate::expand::hosts::Hosts;
use crate::model::Sections;

/// All entities of a model.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) providers: Providers,
    pub(crate) hardwaretypes: Types,
    pub(crate) imagetypes: Types,
    pub(crate) services: Services,
    pub(crate) templates: Templates,
}

impl Catalog {
    /// Reads and checks all sections.
    pub(crate) fn read(sections: &Sections, report: &mut Report<'_>) -> Self {
        let providers = Providers::read(&sections.providers, report);
        let hardwaretypes = Types::hardware(&sections.hardwaretypes, &providers, report);
        let imagetypes = Types::images(&sections.imagetypes, &providers, report);
        let services = Services::read(&sections.services, report);
        let templates = Templates::read(&sections.templates, report);
        let catalog = Self { providers, hardwaretypes, imagetypes, services, templates };
        for (name, template) in catalog.templates.iter() {
            template.check(name, &catalog, report);
        }
        for (_, host) in sections.hosts.iter() {
            for (name, types) in [(&host.hardwaretype, &catalog.hardwaretypes), (&host.imagetype, &catalog.imagetypes)]
            {
                let Some(name) = name else { continue };
                if types.is_empty() {
                    let what = format!("the model has no {}s, so `{}` is unknown", types.word, name.value);
                    let help = "add it to the types of the model, or leave it out";
                    report.push(name.mark, Diagnostic::warning("unknown-name", what).help(help));
                } else {
                    types.check(name, report);
                }
            }
        }
        catalog
    }

    /// The requests of clusters that have a template, by cluster name, or the reason why a cluster is impossible.
    /// Faults of other clusters are reported.
    pub(crate) fn requests(
        &self,
        sections: &Sections,
        hosts: &Hosts,
        report: &mut Report<'_>,
    ) -> BTreeMap<String, Result<Request<'_>, Rejected>> {
        requests::read(&sections.clusters, self, hosts, report)
    }
}
