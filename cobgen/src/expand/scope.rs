//! The values of names in a change object's templates.
//!
//! `host` {name, ip, labels, vars, facts}, `cluster` {name, config}, `node` {name, index, services}, `facts` (the known
//! facts of each host, by name), `peers` (the other hosts with the service), `on('app')` (the hosts with a service),
//! `secret('pw')` (the mark of a secret), and variables, where the nearest wins: all < label < service < cluster < host
//! < the host's own `vars` < the variables of a loop. A value is computed only when a template asks for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_types::{CobId, HostName};
use minijinja::value::Value as Jinja;
use minijinja::{Error, ErrorKind};

use super::Report;
use super::clusters::{Cluster, Clusters};
use super::hosts::{Host, Hosts, variables};
use super::secrets::Secrets;
use super::template::{Names, Templates};
use crate::catalog::Services;
use crate::diagnostic::Diagnostic;
use crate::model::{Marked, Named, Node, Sections, did_you_mean_or_list};

/// Names that variables can't have.
const RESERVED: [&str; 7] = ["host", "cluster", "node", "peers", "on", "secret", "facts"];

/// The data that is known before the first change object is made.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) sections: &'a Sections,
    pub(super) templates: Templates,
    pub(super) hosts: Hosts,
    pub(super) clusters: Clusters,
    pub(super) secrets: Secrets,
    /// The dependencies between services.
    pub(super) needs: Services,
    variables: Variables,
    /// The known facts of hosts, by host name.
    facts: Jinja,
    directory: Arc<Directory>,
}

/// Variables by scope.
#[derive(Debug, Default)]
struct Variables {
    all: BTreeMap<String, Jinja>,
    label: BTreeMap<String, BTreeMap<String, Jinja>>,
    service: BTreeMap<String, BTreeMap<String, Jinja>>,
    cluster: BTreeMap<String, BTreeMap<String, Jinja>>,
    host: BTreeMap<String, BTreeMap<String, Jinja>>,
}

/// The data for `on('app')`; shared with the functions of templates.
#[derive(Debug, Default)]
struct Directory {
    hosts: BTreeMap<HostName, Jinja>,
    clusters: Vec<(String, BTreeMap<String, Vec<HostName>>)>,
}

/// The place of a change object in the model, which decides what its texts may refer to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) world: &'a World<'a>,
    pub(super) host: Option<&'a Host>,
    /// Its cluster and service, if it belongs to a service.
    pub(super) service: Option<(usize, &'a str)>,
    pub(super) loops: &'a [(String, Jinja)],
    /// Its name in messages.
    pub(super) of: &'a str,
    /// The value of `cluster`, if it differs between nodes.
    pub(super) cluster_value: Option<&'a Jinja>,
}

impl<'a> World<'a> {
    pub(super) fn new(
        sections: &'a Sections,
        templates: Templates,
        hosts: Hosts,
        clusters: Clusters,
        secrets: Secrets,
        needs: Services,
        report: &mut Report<'_>,
    ) -> Self {
        let variables = Variables::read(sections, &templates, &hosts, report);
        let facts = Jinja::from(self::variables(&sections.facts));
        let directory = Directory {
            hosts: hosts.0.values().map(|h| (h.name.clone(), h.value.clone())).collect(),
            clusters: clusters
                .0
                .iter()
                .map(|c| (c.name.clone(), c.services.iter().map(|(s, p)| (s.clone(), p.nodes.clone())).collect()))
                .collect(),
        };
        Self { sections, templates, hosts, clusters, secrets, needs, variables, facts, directory: Arc::new(directory) }
    }
}

impl Variables {
    fn read(sections: &Sections, templates: &Templates, hosts: &Hosts, report: &mut Report<'_>) -> Self {
        let written = &sections.variables;
        let mut all_groups: Vec<&Named<Node>> = vec![&written.all];
        for group in [&written.label, &written.service, &written.cluster, &written.host] {
            all_groups.extend(group.iter().map(|(_, v)| v));
        }
        // A host's own variables can also be read as `host.vars["any name"]`.
        for (name, _) in all_groups.iter().flat_map(|g| g.iter()) {
            if templates.names_used(&name.value) != [name.value.as_str()] {
                let what = format!("a template can't read a variable with the name {:?}", name.value);
                let good: String =
                    name.value.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
                let help = match templates.names_used(&good) == [good.as_str()] {
                    true => format!("use ASCII letters, digits and `_`, and no digit at the beginning: `{good}`"),
                    false => "use ASCII letters, digits and `_`, no digit at the beginning, and no word of templates"
                        .to_owned(),
                };
                report.push(name.mark, Diagnostic::error("variable-name", what).help(help));
            }
        }
        all_groups.extend(sections.hosts.iter().map(|(_, h)| &h.vars));
        for name in all_groups.iter().flat_map(|g| g.iter()).map(|(n, _)| n) {
            if RESERVED.contains(&name.value.as_str()) {
                let fault = Diagnostic::error("reserved-name", format!("a variable can't be called `{}`", name.value));
                report.push(name.mark, fault.help("the name is reserved in templates; choose another name"));
            }
        }
        let labels = hosts.labels();
        for (label, _) in written.label.iter() {
            if hosts.labelled(&label.value).next().is_none() {
                let what = format!("no host has the label `{}`", label.value);
                report.missing("unknown-label", what, label, labels.iter().map(String::as_str));
            } else {
                hosts.warn_of_spelling(&label.value, label.mark, report);
            }
        }
        known("service", &written.service, &sections.services.names().collect::<Vec<_>>(), report);
        known("cluster", &written.cluster, &sections.clusters.names().collect::<Vec<_>>(), report);
        known("host", &written.host, &hosts.0.keys().map(HostName::as_str).collect::<Vec<_>>(), report);
        let by_name = |group: &Named<Named<Node>>| group.iter().map(|(n, v)| (n.value.clone(), variables(v))).collect();
        Self {
            all: variables(&written.all),
            label: by_name(&written.label),
            service: by_name(&written.service),
            cluster: by_name(&written.cluster),
            host: by_name(&written.host),
        }
    }
}

fn known(what: &str, group: &Named<Named<Node>>, names: &[&str], report: &mut Report<'_>) {
    let set: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    for (name, _) in group.iter().filter(|(n, _)| !set.contains(n.value.as_str())) {
        report.unknown(what, name, names.iter().copied());
    }
}

impl<'a> Scope<'a> {
    fn cluster(&self) -> Option<&'a Cluster> {
        self.service.and_then(|(cluster, _)| self.world.clusters.0.get(cluster))
    }

    /// The groups of variables in scope, nearest first.
    fn groups(&self) -> impl Iterator<Item = &'a BTreeMap<String, Jinja>> {
        let Variables { all, label, service, cluster, host } = &self.world.variables;
        let own = self.host.map(|h| &h.vars);
        let host = self.host.and_then(|h| host.get(h.name.as_str()));
        let cluster = self.cluster().and_then(|c| cluster.get(&c.name));
        let service = self.service.and_then(|(_, s)| service.get(s));
        let me = self.host;
        let labels = label.iter().rev().filter(move |(l, _)| me.is_some_and(|h| h.has_label(l))).map(|(_, v)| v);
        own.into_iter().chain(host).chain(cluster).chain(service).chain(labels).chain([all])
    }

    fn node(&self) -> Option<Jinja> {
        let (cluster, (_, service)) = (self.cluster()?, self.service?);
        let host = &self.host?.name;
        let index = match service {
            // A configuration belongs to the cluster, not to a service.
            "" => cluster.position(host),
            service => cluster.services.get(service)?.position(host),
        };
        let services =
            cluster.services.iter().filter(|(_, p)| p.position(host).is_some()).map(|(s, _)| Jinja::from(s.as_str()));
        let text = |name: &Option<String>| name.as_ref().map_or_else(|| Jinja::from(()), |n| Jinja::from(n.as_str()));
        let types = cluster.nodes.get(host).map_or_else(Default::default, |(h, i)| (text(h), text(i)));
        Some(Jinja::from_pairs([
            ("name", Jinja::from(host.as_str())),
            ("index", Jinja::from(index?)),
            ("hardwaretype", types.0),
            ("imagetype", types.1),
            ("services", services.collect::<Vec<_>>().into()),
        ]))
    }

    fn peers(&self) -> Option<Jinja> {
        let (cluster, (_, service)) = (self.cluster()?, self.service?);
        let me = &self.host?.name;
        let others = cluster.services.get(service)?.nodes.iter().filter(|h| *h != me);
        Some(others.filter_map(|h| self.world.hosts.0.get(h)).map(|h| h.value.clone()).collect::<Vec<_>>().into())
    }

    /// The hosts with a service: of the own cluster, else of the only cluster that has it.
    ///
    /// # Errors
    /// Why there are none, with the names that exist.
    pub(super) fn hosts_of(&self, service: &str) -> Result<&'a [HostName], String> {
        self.world.directory.nodes(service, self.service.map(|(cluster, _)| cluster))
    }

    /// The function `on`.
    fn on(&self) -> Jinja {
        let directory = Arc::clone(&self.world.directory);
        let own = self.service.map(|(cluster, _)| cluster);
        Jinja::from_function(move |service: String| directory.on(&service, own))
    }
}

impl Directory {
    fn on(&self, service: &str, own: Option<usize>) -> Result<Jinja, Error> {
        let nodes = self.nodes(service, own).map_err(|text| Error::new(ErrorKind::InvalidOperation, text))?;
        Ok(nodes.iter().filter_map(|h| self.hosts.get(h)).cloned().collect::<Vec<_>>().into())
    }

    fn nodes(&self, service: &str, own: Option<usize>) -> Result<&[HostName], String> {
        let mine = own.and_then(|c| self.clusters.get(c)?.1.get(service));
        let mut others = self.clusters.iter().filter_map(|(_, services)| services.get(service));
        match (mine, others.next(), others.next()) {
            (Some(nodes), _, _) | (None, Some(nodes), None) => Ok(nodes),
            (None, Some(_), Some(_)) => {
                Err(format!("several clusters have the service `{service}`, but not this cluster"))
            }
            (None, None, _) => {
                let all: Vec<&str> = self.clusters.iter().flat_map(|(_, s)| s.keys().map(String::as_str)).collect();
                let help = did_you_mean_or_list(service, all.iter().copied()).unwrap_or_default();
                Err(format!("no cluster has the service `{service}`; {help}"))
            }
        }
    }
}

impl Names for Scope<'_> {
    fn get(&self, name: &str) -> Option<Jinja> {
        if let Some((_, value)) = self.loops.iter().rev().find(|(n, _)| n == name) {
            return Some(value.clone());
        }
        match name {
            "host" => self.host.map(|h| h.value.clone()),
            "cluster" => self.cluster_value.cloned().or_else(|| self.cluster().map(|c| c.value.clone())),
            "node" => self.node(),
            "peers" => self.peers(),
            "on" => Some(self.on()),
            "facts" => Some(self.world.facts.clone()),
            "secret" => Some(self.world.secrets.function()),
            _ => self.groups().find_map(|group| group.get(name).cloned()),
        }
    }

    fn known(&self) -> Vec<String> {
        let mut names: Vec<String> = self.groups().flat_map(|g| g.keys().cloned()).collect();
        names.extend(self.loops.iter().map(|(n, _)| n.clone()));
        names.extend(["facts", "host", "on", "secret"].map(str::to_owned));
        if self.service.is_some() {
            names.extend(["cluster", "node", "peers"].map(str::to_owned));
        }
        names
    }

    fn of(&self) -> String {
        self.of.to_owned()
    }

    fn secrets(&self) -> Option<&Secrets> {
        Some(&self.world.secrets)
    }
}

/// The host in an id.
pub(super) fn host_of<'a>(
    world: &'a World<'_>,
    id: &CobId,
    name: &Marked<String>,
    report: &mut Report<'_>,
) -> Option<&'a Host> {
    world.hosts.named(id.host_str(), name.mark, report)
}
