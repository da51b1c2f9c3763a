//! The requests of clusters. Impossible requests are rejected with the reason before any search.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::HostName;

use super::templates::{Defaults, Template, lay_config};
use super::types::Types;
use super::{Catalog, services::Services};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity, quoted};
use crate::expand::Report;
use crate::expand::hosts::Hosts;
use crate::model::{ClusterEntry, HostPick, Map, Mark, Marked, Maybe, Named, NodeSet, Nodes};

/// A cluster that is made of a template.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) cluster: Marked<String>,
    pub(crate) template: &'a Template,
    pub(crate) nodes: Wanted,
    /// Sorted by name, without duplicates.
    pub(crate) services: Vec<Marked<String>>,
    pub(crate) provider: Option<Marked<String>>,
    /// The allowed types of the cluster's nodes, by name, with the place of the restriction in the model.
    pub(crate) hardwaretypes: Marked<Vec<String>>,
    pub(crate) imagetypes: Marked<Vec<String>>,
    pub(crate) config: Map,
}

/// The nodes that a cluster wants: a number or named hosts.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// A number of nodes.
    Count(Marked<u32>),
    /// These hosts, in the order written.
    Hosts(Marked<Vec<HostName>>),
}

impl Wanted {
    pub(crate) fn mark(&self) -> Mark {
        match self {
            Self::Count(count) => count.mark,
            Self::Hosts(hosts) => hosts.mark,
        }
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Count(count) => usize::try_from(count.value).unwrap_or(usize::MAX),
            Self::Hosts(hosts) => hosts.value.len(),
        }
    }
}

/// The reason why a cluster is impossible, found without a search.
#[derive(Debug)]
pub(crate) struct Rejected(pub(crate) Vec<Diagnostic>);

/// The requests of clusters with a template, by cluster name, or why a cluster is impossible; reports other faults.
pub(super) fn read<'a>(
    entries: &Named<ClusterEntry>,
    catalog: &'a Catalog,
    hosts: &Hosts,
    report: &mut Report<'_>,
) -> BTreeMap<String, Result<Request<'a>, Rejected>> {
    let mut requests = BTreeMap::new();
    for (name, entry) in entries.iter() {
        let Some(template) = &entry.template else {
            by_hand(name, entry, catalog, report);
            continue;
        };
        let mut own = Diagnostics::default();
        let request = request(name, entry, template, catalog, hosts, &mut report.beside(&mut own));
        let faults = own.into_sorted();
        let answer = match request.filter(|_| faults.iter().all(|f| f.severity != Severity::Error)) {
            Some(request) => Ok(request),
            None => Err(Rejected(faults)),
        };
        requests.insert(name.value.clone(), answer);
    }
    requests
}

/// A cluster whose services are placed by hand.
fn by_hand(name: &Marked<String>, entry: &ClusterEntry, catalog: &Catalog, report: &mut Report<'_>) {
    let only = [("provider", &entry.provider), ("hardwaretype", &entry.hardwaretype), ("imagetype", &entry.imagetype)];
    for (key, value) in only {
        if let Some(value) = value {
            let fault = Diagnostic::error("no-template", format!("`{key}` has no meaning without a template"));
            report.push(value.mark, fault.help("name a `template`, or leave it out"));
        }
    }
    if let Maybe::There(Marked { mark, value: NodeSet::Count(_) }) = &entry.nodes {
        let fault = Diagnostic::error("no-template", "without a template the hosts are not defined");
        report.push(*mark, fault.help("name a `template`, or the hosts: `nodes: [n1, n2]`"));
    }
    let services: Vec<Marked<String>> = match &entry.services {
        Some(Nodes::Everywhere(list)) => list.clone(),
        Some(Nodes::ByHand(map)) => map.iter().map(|(service, _)| service.clone()).collect(),
        None => return,
    };
    check_needs(&name.value, &services, &catalog.services, report);
}

fn request<'a>(
    name: &Marked<String>,
    entry: &ClusterEntry,
    template: &Marked<String>,
    catalog: &'a Catalog,
    hosts: &Hosts,
    report: &mut Report<'_>,
) -> Option<Request<'a>> {
    if !report.segment("cluster", name) {
        return None;
    }
    let found = catalog.templates.find(template, report)?;
    if found.partial {
        let fault = Diagnostic::error("partial-template", format!("`{}` is a partial template", template.value));
        report.push(template.mark, fault.help("clusters can't use it directly; use a template that includes it"));
        return None;
    }
    let mut defaults = found.defaults.clone();
    let own = |own: &Option<Marked<String>>, default: &mut Option<Marked<String>>| {
        if own.is_some() {
            default.clone_from(own);
        }
    };
    own(&entry.provider, &mut defaults.provider);
    own(&entry.hardwaretype, &mut defaults.hardwaretype);
    own(&entry.imagetype, &mut defaults.imagetype);
    if let Some(config) = &entry.config {
        match config.map() {
            Some(map) => lay_config(&mut defaults.config, map),
            None => {
                let fault = Diagnostic::error("wrong-type", "with a template, `config` must be a mapping");
                report.push(config.mark, fault.help("its keys are merged with the `config` of the template"));
            }
        }
    }
    let services = services(name, entry, template, found, &mut defaults, report);
    for (partial, fixed) in &found.fixed {
        fixed.hold(partial, &defaults, None, report);
    }
    check_services(name, &services, template, found, catalog, report);
    let provider = defaults.provider.clone().filter(|p| entry.provider.is_none() || catalog.providers.check(p, report));
    let nodes = nodes(entry, hosts, report);
    if let Some(nodes) = &nodes {
        check_size(nodes, template, found, report);
        check_hosts(nodes, template, found, hosts, report);
    }
    let wanted = defaults.hardwaretype.as_ref();
    let own = entry.hardwaretype.is_some();
    let of = Allowed {
        name,
        template,
        provider: provider.as_ref(),
        types: &catalog.hardwaretypes,
        may: &found.hardwaretypes,
    };
    let hardwaretypes = of.find(wanted, own, nodes.as_ref(), report);
    let own = entry.imagetype.is_some();
    let of = Allowed { types: &catalog.imagetypes, may: &found.imagetypes, ..of };
    let imagetypes = of.find(defaults.imagetype.as_ref(), own, nodes.as_ref(), report);
    let config = defaults.config;
    Some(Request {
        cluster: name.clone(),
        template: found,
        nodes: nodes?,
        services,
        provider,
        hardwaretypes: hardwaretypes?,
        imagetypes: imagetypes?,
        config,
    })
}

/// The services that a cluster asks for, sorted by name, without duplicates.
fn services(
    name: &Marked<String>,
    entry: &ClusterEntry,
    template: &Marked<String>,
    found: &Template,
    defaults: &mut Defaults,
    report: &mut Report<'_>,
) -> Vec<Marked<String>> {
    match &entry.services {
        Some(Nodes::Everywhere(list)) => {
            for (partial, fixed) in &found.fixed {
                for service in fixed.defaults.services.iter().filter(|s| !list.iter().any(|l| l.value == s.value)) {
                    let what = format!(
                        "the service `{}` can't be left out: the partial template `{partial}` is immutable",
                        service.value
                    );
                    let fault = Diagnostic::error("immutable", what)
                        .note(Some(report.place(service.mark)), "the template sets it here")
                        .help(format!("add `{}` to `services`", service.value));
                    report.push(name.mark, fault);
                }
            }
            defaults.services.clone_from(list);
        }
        Some(Nodes::ByHand(map)) => {
            let mark = map.iter().next().map_or(name.mark, |(service, _)| service.mark);
            let fault = Diagnostic::error("placed-by-hand", "with a template, its rules place the services");
            let names: Vec<&str> = map.names().collect();
            let help = format!("write a list, `services: [{}]`; or leave `template` out", names.join(", "));
            report.push(mark, fault.help(help));
        }
        None if defaults.services.is_empty() => {
            let what = format!("the cluster `{}` has no services", name.value);
            let fault = Diagnostic::error("missing-key", what);
            let help =
                format!("the template `{}` has no default services; name some: `services: [db]`", template.value);
            report.push(name.mark, fault.help(help));
        }
        None => {}
    }
    let mut by_name: BTreeMap<&str, &Marked<String>> = BTreeMap::new();
    for service in &defaults.services {
        if let Some(first) = by_name.insert(&service.value, service) {
            let fault =
                Diagnostic::error("duplicate-name", format!("the service `{}` stands here twice", service.value));
            report.push(service.mark, fault.note(Some(report.place(first.mark)), "first here"));
        }
    }
    by_name.into_values().cloned().collect()
}

fn check_services(
    name: &Marked<String>,
    services: &[Marked<String>],
    template: &Marked<String>,
    found: &Template,
    catalog: &Catalog,
    report: &mut Report<'_>,
) {
    for service in services {
        if !catalog.services.contains(&service.value) {
            report.unknown("service", service, catalog.services.names());
        } else if !found.services.is_empty() && !found.services.iter().any(|s| s.value == service.value) {
            let what =
                format!("the template `{}` is not compatible with the service `{}`", template.value, service.value);
            let fault = Diagnostic::error("incompatible", what);
            let may: Vec<String> = found.services.iter().map(|s| format!("`{}`", s.value)).collect();
            report.push(service.mark, fault.help(format!("clusters of it may have {}", may.join(", "))));
        }
    }
    check_needs(&name.value, services, &catalog.services, report);
}

/// Reports hard dependencies that a cluster lacks, and conflicts between its services.
fn check_needs(cluster: &str, asked: &[Marked<String>], services: &Services, report: &mut Report<'_>) {
    let marks: BTreeMap<&str, Mark> = asked.iter().map(|s| (s.value.as_str(), s.mark)).collect();
    for service in asked {
        let mut missing: BTreeSet<&str> = BTreeSet::new();
        for (_, need) in services.hard(&service.value) {
            let candidates: Vec<&str> = services.meant(&need.value).collect();
            // A name without a provider is already reported at its own place.
            if candidates.is_empty() || candidates.iter().any(|c| marks.contains_key(c)) || !missing.insert(&need.value)
            {
                continue;
            }
            let what = format!("`{}` needs `{}`, which the cluster `{cluster}` lacks", service.value, need.value);
            let help = match candidates.as_slice() {
                [only] => format!("add `{only}` to the cluster, or leave `{}` out", service.value),
                all => format!("add a service of {} to the cluster, or leave `{}` out", quoted(all), service.value),
            };
            let fault = Diagnostic::error("missing-service", what).note(Some(report.place(need.mark)), "defined here");
            report.push(service.mark, fault.help(help));
        }
        for conflict in services.get(&service.value).into_iter().flat_map(|s| &s.conflicts) {
            for other in services.meant(&conflict.value).filter(|other| *other != service.value) {
                let Some(there) = marks.get(other) else { continue };
                let what =
                    format!("`{}` conflicts with `{other}`, but the cluster `{cluster}` has both", service.value);
                let fault = Diagnostic::error("conflict", what)
                    .note(Some(report.place(conflict.mark)), "defined here")
                    .note(Some(report.place(*there)), format!("`{other}` is requested here"));
                report.push(service.mark, fault.help("put the services into two clusters, or remove either service"));
            }
        }
    }
}

fn nodes(entry: &ClusterEntry, hosts: &Hosts, report: &mut Report<'_>) -> Option<Wanted> {
    // The missing key is already reported.
    let Marked { mark, value } = entry.nodes.as_ref()?;
    match value {
        NodeSet::Count(count) => Some(Wanted::Count(count.clone())),
        NodeSet::Hosts(set) => {
            let quoted = set.0.iter().find_map(|pick| match &pick.value {
                HostPick::Host(name) => name.parse::<u32>().ok().filter(|_| !hosts.0.contains_key(name.as_str())),
                HostPick::Label(_) => None,
            });
            if let (Some(count), [_]) = (quoted, set.0.as_slice()) {
                let fault =
                    Diagnostic::error("wrong-type", format!("`nodes` is the text \"{count}\", which is not a host"));
                report.push(*mark, fault.help(format!("write {count} without quotes for a number of nodes")));
                return None;
            }
            let value = hosts.of_set(set, report);
            Some(Wanted::Hosts(Marked { mark: *mark, value })).filter(|_| hosts.has_all_of(set))
        }
    }
}

fn check_size(nodes: &Wanted, template: &Marked<String>, found: &Template, report: &mut Report<'_>) {
    let count = nodes.count();
    let told = |bound: &Marked<u32>, word: &str, report: &mut Report<'_>| {
        let nodes_word = if count == 1 { "node" } else { "nodes" };
        let what = format!("{count} {nodes_word}; a cluster of `{}` has at {word} {}", template.value, bound.value);
        let fault = Diagnostic::error("size", what).note(Some(report.place(bound.mark)), "defined here");
        report.push(nodes.mark(), fault.help(format!("request {}", bound.value)));
    };
    let outside = |bound: &Marked<u32>| usize::try_from(bound.value).unwrap_or(usize::MAX);
    if let Some(min) = found.min.as_ref().filter(|min| count < outside(min)) {
        told(min, "least", report);
    }
    if let Some(max) = found.max.as_ref().filter(|max| count > outside(max)) {
        told(max, "most", report);
    }
}

/// Reports listed hosts whose types the template does not allow.
fn check_hosts(nodes: &Wanted, template: &Marked<String>, found: &Template, hosts: &Hosts, report: &mut Report<'_>) {
    let Wanted::Hosts(wanted) = nodes else { return };
    for host in wanted.value.iter().filter_map(|name| hosts.0.get(name)) {
        for (word, own, may) in [
            ("hardware type", &host.hardwaretype, &found.hardwaretypes),
            ("image type", &host.imagetype, &found.imagetypes),
        ] {
            let Some(own) = own.as_ref().filter(|own| !may.is_empty() && !may.iter().any(|m| m.value == **own)) else {
                continue;
            };
            let what = format!(
                "the host {} has the {word} `{own}`, which the template `{}` is not compatible with",
                host.name, template.value
            );
            let names: Vec<&str> = may.iter().map(|m| m.value.as_str()).collect();
            let fault = Diagnostic::error("incompatible", what).note(Some(report.place(host.mark)), "the host is here");
            report.push(wanted.mark, fault.help(format!("nodes of it may be {}", quoted(&names))));
        }
    }
}

/// The types of hardware or image that the nodes of a cluster may have.
#[derive(Clone, Copy)]
struct Allowed<'a> {
    name: &'a Marked<String>,
    template: &'a Marked<String>,
    provider: Option<&'a Marked<String>>,
    types: &'a Types,
    /// The types that the template allows; empty: any type.
    may: &'a [Marked<String>],
}

impl Allowed<'_> {
    /// `own`: the cluster itself names this type.
    fn find(
        &self,
        wanted: Option<&Marked<String>>,
        own: bool,
        nodes: Option<&Wanted>,
        report: &mut Report<'_>,
    ) -> Option<Marked<Vec<String>>> {
        let Self { name, template, provider, types, may } = self;
        let word = types.word;
        let compatible = |name: &str| may.is_empty() || may.iter().any(|m| m.value == name);
        // The type of a listed host is fixed; the types that a provider maps do not matter.
        let provider = provider.filter(|_| !matches!(nodes, Some(Wanted::Hosts(_))));
        let mapped = |name: &str| types.is_mapped(name, provider.map(|p| p.value.as_str()));
        let Some(wanted) = wanted else {
            let found: Vec<String> = types.names().filter(|n| compatible(n) && mapped(n)).map(str::to_owned).collect();
            if found.is_empty() && !types.is_empty() {
                let mark = provider.map_or(name.mark, |p| p.mark);
                let what = match provider {
                    Some(p) => format!(
                        "the provider `{}` maps no {word} that `{}` is compatible with",
                        p.value, template.value
                    ),
                    None => format!("there is no {word} that `{}` is compatible with", template.value),
                };
                let help = match may.len() {
                    0 => format!("add a mapping for it to a type of {}", quoted(&types.names().collect::<Vec<_>>())),
                    _ => {
                        format!("compatible are {}", quoted(&may.iter().map(|m| m.value.as_str()).collect::<Vec<_>>()))
                    }
                };
                report.push(mark, Diagnostic::error("not-mapped", what).help(help));
                return None;
            }
            return Some(Marked { mark: name.mark, value: found });
        };
        let known = if own { types.check(wanted, report) } else { types.get(&wanted.value).is_some() };
        if !known {
            return None;
        }
        if own && !compatible(&wanted.value) {
            let what =
                format!("the template `{}` is not compatible with the {word} `{}`", template.value, wanted.value);
            let fault = Diagnostic::error("incompatible", what);
            let names: Vec<&str> = may.iter().map(|m| m.value.as_str()).collect();
            report.push(wanted.mark, fault.help(format!("nodes of it may be {}", quoted(&names))));
            return None;
        }
        if let Some(provider) = provider.filter(|_| !mapped(&wanted.value)) {
            let what = format!("the provider `{}` does not map the {word} `{}`", provider.value, wanted.value);
            let fault = Diagnostic::error("not-mapped", what)
                .note(Some(report.place(provider.mark)), "the provider is named here");
            let could: Vec<&str> = types.names().filter(|n| compatible(n) && mapped(n)).collect();
            let help = if could.is_empty() {
                "add a mapping to the type".to_owned()
            } else {
                format!("it maps {}", quoted(&could))
            };
            report.push(wanted.mark, fault.help(help));
            return None;
        }
        Some(Marked { mark: wanted.mark, value: vec![wanted.value.clone()] })
    }
}
