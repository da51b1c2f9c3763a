//! Makes change objects: each that is listed by hand, and for each service its change objects on each of its nodes.
//!
//! Conditions and loops are evaluated and templates rendered here, so that afterwards every object is complete by
//! itself. An object with faults keeps its name: objects that depend on it are not at fault.

mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_kinds::is_unmanaged;
use cob_types::{CobId, HostName, Kind, KindName, Need, StateName};
use minijinja::value::Value as Jinja;

use self::turns::Turn;
use super::actions;
use super::asks::{Asks, Plain};
use super::builtin::{self, Made, Settled};
use super::clusters::Placement;
use super::file_tree;
use super::files::{Files, Payload};
use super::firewall;
use super::hosts::Host;
use super::kinds::{Found, Kinds, Known};
use super::macros::{self, Member};
use super::owners;
use super::scope::{Scope, World, host_of};
use super::spread::Spread;
use super::{ByCob, Report};
use crate::diagnostic::Diagnostic;
use crate::draft::{Arrow, At, DraftCob};
use crate::model::{ActionsEntry, CobEntry, Mark, Marked, Mode, Node, OnRemove, ServiceEntry, Value};

/// The most change objects of a model.
const MAX_COBS: usize = 1_000_000;

/// A change object before its dependencies are known.
#[derive(Debug)]
pub(super) struct Object {
    /// Its place in the model.
    pub(super) mark: Mark,
    pub(super) home: ObjectOrigin,
    /// `None`: it has faults, which are already reported.
    pub(super) kind: Option<Known>,
    pub(super) preferred: Option<StateName>,
    pub(super) content: serde_json::Value,
    pub(super) files: Payload,
    /// Explicit dependencies: transition or state, and the needs.
    pub(super) explicit: Vec<Explicit>,
    /// Its short dependency words; without templates shared by all nodes.
    pub(super) asks: Arc<[Asks]>,
    /// The name of the budget that it takes tokens from.
    pub(super) budget: Option<Marked<String>>,
    /// It is a budget with this number of tokens.
    pub(super) at_most: Option<u32>,
    /// It departs without a change.
    pub(super) keep: bool,
    /// It is checked and never changed.
    pub(super) observe: bool,
}

/// The origin of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectOrigin {
    ByHand,
    Service { cluster: usize, service: Arc<str> },
}

/// An explicit dependency.
#[derive(Debug)]
pub(super) struct Explicit {
    pub(super) mark: Mark,
    /// `from` and `to`, or the granted state alone.
    pub(super) from: Option<Marked<String>>,
    pub(super) to: Marked<String>,
    pub(super) needs: Marked<Vec<Marked<String>>>,
}

/// A service's change objects in one cluster.
#[derive(Debug, Default)]
pub(super) struct Instance {
    pub(super) nodes: Vec<HostName>,
    /// By name, in the order of the nodes.
    pub(super) cobs: BTreeMap<String, Spread>,
    /// By node.
    pub(super) on_node: BTreeMap<HostName, Vec<CobId>>,
    /// Templates failed to render some names, so a missing name may be among these.
    pub(super) incomplete: bool,
    /// Some of its hosts do not exist, so it may have no change objects.
    pub(super) unplaced: bool,
}

/// All change objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) all: ByCob<Box<Object>>,
    pub(super) instances: BTreeMap<(usize, String), Instance>,
    made: Made,
}

impl Objects {
    pub(super) fn make(
        world: &World<'_>,
        kinds: &Kinds,
        previous: &BTreeSet<CobId>,
        files: &mut Files,
        report: &mut Report<'_>,
    ) -> Self {
        let mut maker = Maker {
            world,
            kinds,
            previous,
            files,
            objects: Self::default(),
            configs: BTreeMap::new(),
            plain: Plain::default(),
            made: Vec::new(),
            too_many: false,
        };
        for (name, entry) in world.sections.cobs.iter() {
            maker.by_hand(name, entry, report);
        }
        for (name, entry) in world.sections.services.iter() {
            maker.service(name, entry, report);
        }
        let Maker { mut objects, made, .. } = maker;
        objects.all = unique(made, report);
        file_tree::report_overlaps(&objects.all, report);
        owners::report_two(&objects.all, report);
        objects
    }

    pub(super) fn get(&self, id: &CobId) -> Option<&Object> {
        self.all.get(id).map(|object| &**object)
    }

    /// Converts the objects into the kinds and change objects of a draft.
    pub(super) fn into_draft(
        self,
        arrows: &mut ByCob<Vec<Arrow>>,
        mut restarts_on: ByCob<Vec<CobId>>,
        mut tokens: ByCob<At<Need>>,
        report: &Report<'_>,
    ) -> (BTreeMap<KindName, At<Kind>>, BTreeMap<CobId, At<DraftCob>>) {
        let mut kinds = BTreeMap::new();
        let mut cobs = Vec::with_capacity(self.all.len());
        for (id, object) in self.all {
            let (Some(known), Some(preferred)) = (object.kind, object.preferred) else { continue };
            let place = report.place(object.mark);
            let name = known.kind.name.clone();
            let kind = kinds.entry(name.clone()).or_insert_with(|| At {
                value: (*known.kind).clone(),
                place: known.mark.map_or_else(|| place.clone(), |mark| report.place(mark)),
            });
            debug_assert_eq!(kind.value, *known.kind, "a name has a single kind");
            let value = DraftCob {
                kind: name,
                preferred,
                content: object.content,
                files: object.files,
                restarts_on: restarts_on.remove(&id).unwrap_or_default(),
                budget: tokens.remove(&id),
                at_most: object.at_most,
                keep: object.keep,
                observe: object.observe,
                arrows: arrows.remove(&id).unwrap_or_default(),
            };
            cobs.push((id, At { value, place }));
        }
        (kinds, cobs.into_iter().collect())
    }
}

/// Warns if `preferred: absent` seems to ask for the removal of an object that existed before and will stay.
fn warn_of_unmanaged(known: &Known, state: Option<&StateName>, mark: Mark, report: &mut Report<'_>) {
    let kind = known.kind.name.as_str();
    if known.builtin.is_some() && state.is_some_and(|state| is_unmanaged(kind, state.as_str())) {
        let what = format!(
            "`preferred: absent` of the kind `{kind}` has no effect: COB does not remove objects that it did not \
             create"
        );
        let help = "remove the object with a `script`, or by hand";
        report.push(mark, Diagnostic::warning("not-managed", what).help(help));
    }
}

/// Whether a change object is only observed: by its own mode, or by its host's if it is an object of the host. Gates
/// that exist only for COB are never observed, or no change object behind a gate would ever start.
fn is_observed(entry: &CobEntry, host: Option<&Host>, known: &Known) -> bool {
    let of_the_host = || !["noop", "wait"].contains(&known.kind.backend.as_str());
    match &entry.mode {
        Some(mode) => mode.value == Mode::Observe,
        None => host.is_some_and(|host| host.observe) && of_the_host(),
    }
}

/// A cluster's nodes for macros.
struct MembersOf<'a> {
    world: &'a World<'a>,
    cluster: usize,
    me: &'a HostName,
}

impl MembersOf<'_> {
    fn member(&self, name: &HostName) -> Member {
        let ip = self.world.hosts.0.get(name).and_then(Host::ip);
        Member { name: name.as_str().to_owned(), ip }
    }
}

impl macros::Around for MembersOf<'_> {
    fn with(&self, service: &str) -> Option<Vec<Member>> {
        let placement = self.world.clusters.0.get(self.cluster)?.services.get(service)?;
        Some(placement.nodes.iter().map(|node| self.member(node)).collect())
    }

    fn me(&self) -> Member {
        self.member(self.me)
    }

    fn owner(&self) -> Option<String> {
        self.world.clusters.0.get(self.cluster)?.owner.clone()
    }
}

struct Maker<'a> {
    world: &'a World<'a>,
    kinds: &'a Kinds,
    previous: &'a BTreeSet<CobId>,
    files: &'a mut Files,
    objects: Objects,
    /// Configurations of clusters that differ between nodes.
    configs: BTreeMap<(usize, HostName), Node>,
    plain: Plain,
    /// In the order of creation.
    made: Vec<(CobId, Box<Object>)>,
    /// The model has too many change objects.
    too_many: bool,
}

impl Maker<'_> {
    fn by_hand(&mut self, name: &Marked<String>, entry: &CobEntry, report: &mut Report<'_>) {
        for (key, mark) in [
            ("place", entry.place.as_ref().map(|p| p.mark)),
            ("when", entry.when.as_ref().map(|w| w.mark)),
            ("for", entry.each.iter().next().map(|(n, _)| n.mark)),
        ] {
            if let Some(mark) = mark {
                let what =
                    format!("`{key}` is for change objects of a service, but the id of this object names its host");
                let help = "remove the key, or make the object part of a service";
                report.push(mark, Diagnostic::error("service-only", what).help(help));
            }
        }
        let Some(id) = report.name(name, CobId::new) else { return };
        let host = host_of(self.world, &id, name, report);
        let scope = Scope { world: self.world, host, service: None, loops: &[], of: id.as_str(), cluster_value: None };
        let object = self.object(name.mark, ObjectOrigin::ByHand, entry, &scope, report);
        self.add(id, object, report);
    }

    fn service(&mut self, name: &Marked<String>, entry: &ServiceEntry, report: &mut Report<'_>) {
        // The first object above the limit is reported; no further object is made.
        if self.too_many || !report.segment("service", name) {
            return;
        }
        let shared: Arc<str> = Arc::from(name.value.as_str());
        for kind in entry.cobs.iter().filter_map(|(_, cob)| cob.kind.as_ref()) {
            // This also checks entries that no node uses.
            self.kinds.find(kind, report);
        }
        let world = self.world;
        let placements: Vec<(usize, &Placement)> =
            world.clusters.with(&name.value).map(|c| (c, &world.clusters.0[c].services[&name.value])).collect();
        for (cluster, placement) in &placements {
            let (nodes, unplaced) = (placement.nodes.clone(), placement.incomplete);
            let instance = Instance { nodes, unplaced, ..Instance::default() };
            self.objects.instances.insert((*cluster, name.value.clone()), instance);
        }
        if let Some(actions) = &entry.actions {
            self.with_actions(name, entry, actions, &placements, report);
        } else if let Some(budget) = &entry.budget {
            let what = format!("`{}` has no `actions`, so it can't take tokens itself", name.value);
            let help = format!("write `budget: {}` on the `cobs` that shall take tokens", budget.value);
            report.push(budget.mark, Diagnostic::error("budget-without-actions", what).help(help));
        }
        for (cob, cob_entry) in entry.cobs.iter() {
            let mut nowhere = true;
            for (cluster, placement) in &placements {
                for node in self.nodes((*cluster, &shared), cob, cob_entry, placement, &entry.cobs, report) {
                    nowhere = false;
                    self.on_node(*cluster, &shared, cob, cob_entry, node, report);
                }
            }
            if let (true, Some((_, placement))) = (nowhere, placements.iter().find(|(_, p)| !p.nodes.is_empty())) {
                let mark = cob_entry.place.as_ref().map_or(cob.mark, |p| p.mark);
                let fault = Diagnostic::error("nowhere", format!("`{}/{}` is on no node", name.value, cob.value));
                let nodes: Vec<&str> = placement.nodes.iter().map(HostName::as_str).collect();
                let help = format!("the service is on {}", nodes.join(", "));
                report.push(
                    mark,
                    fault.note(Some(report.place(placement.mark)), "its service is placed here").help(help),
                );
            }
        }
        // If templates exist, the service may be meant for future clusters.
        if placements.is_empty() && world.sections.templates.0.is_empty() {
            let fault = Diagnostic::warning("unplaced", format!("the service `{}` is in no cluster", name.value));
            let help = format!("place it: `clusters: {{c: {{services: {{{}: [n1]}}}}}}`", name.value);
            report.push(name.mark, fault.help(help));
        }
    }

    /// A service with actions: a change object per node.
    fn with_actions(
        &mut self,
        service: &Marked<String>,
        entry: &ServiceEntry,
        written: &Marked<ActionsEntry>,
        placements: &[(usize, &Placement)],
        report: &mut Report<'_>,
    ) {
        if let Some((cob, _)) = entry.cobs.iter().next() {
            let fault =
                Diagnostic::error("actions-and-cobs", format!("`{}` has both `actions` and `cobs`", service.value));
            let fault = fault.note(Some(report.place(cob.mark)), "its change objects begin here");
            return report.push(written.mark, fault.help("remove either key"));
        }
        let known = actions::kind(service, written, self.files, report);
        let shared: Arc<str> = Arc::from(service.value.as_str());
        for (cluster, placement) in placements {
            for node in &placement.nodes {
                let Some(host) = self.world.hosts.0.get(node) else { continue };
                let Ok(id) = CobId::on(node, &format!("{}/{}", service.value, actions::COB)) else { continue };
                let config = self.config(*cluster, node, report);
                let scope = Scope {
                    world: self.world,
                    host: Some(host),
                    service: Some((*cluster, &service.value)),
                    loops: &[],
                    of: id.as_str(),
                    cluster_value: None,
                };
                let content = self.configuration(&config, entry, &scope, report);
                if let Some(known) = &known {
                    self.world.secrets.check_places(&content, known, report);
                }
                let budget = entry.budget.as_ref().and_then(|name| {
                    let value = self.world.templates.text(&name.value, name.mark, &scope, report)?;
                    Some(Marked { mark: name.mark, value })
                });
                let home = ObjectOrigin::Service { cluster: *cluster, service: Arc::clone(&shared) };
                let object = Object {
                    mark: written.mark,
                    home,
                    preferred: known.as_ref().map(|k| k.on().clone()),
                    kind: known.clone(),
                    content: content.to_json(),
                    files: Payload::new(),
                    explicit: Vec::new(),
                    asks: Arc::default(),
                    budget,
                    at_most: None,
                    keep: false,
                    observe: host.observe,
                };
                if let Some(instance) = self.objects.instances.get_mut(&(*cluster, service.value.clone())) {
                    instance.cobs.entry(actions::COB.to_owned()).or_default().push(node.clone(), id.clone());
                    instance.on_node.entry(node.clone()).or_default().push(id.clone());
                }
                self.add(id, object, report);
            }
        }
    }

    /// The part of a cluster's configuration for a service.
    fn configuration(&self, config: &Node, entry: &ServiceEntry, scope: &Scope<'_>, report: &mut Report<'_>) -> Node {
        let Some(keys) = &entry.config else { return config.clone() };
        let Some(map) = config.map() else { return config.clone() };
        let mut part = crate::model::Map::default();
        for key in keys {
            match map.entries.iter().find(|(k, _)| k.text == key.value) {
                Some(found) => part.entries.push(found.clone()),
                None => {
                    let what = format!("the configuration of the cluster has no `{}`", key.value);
                    let warning = Diagnostic::warning("no-config", what).note(None, format!("for {}", scope.of));
                    report.push(key.mark, warning);
                }
            }
        }
        Node { mark: config.mark, value: Value::Map(part) }
    }

    /// A cluster's configuration for a single node.
    fn config(&mut self, cluster: usize, node: &HostName, report: &mut Report<'_>) -> Node {
        match self.config_of(cluster, node, report) {
            Some(made) => {
                self.configs.insert((cluster, node.clone()), made.clone());
                made
            }
            None => self.world.clusters.0.get(cluster).map(|c| c.config.clone()).unwrap_or_default(),
        }
    }

    /// The same with templates and macros replaced; `None` if it has no templates and macros.
    fn config_of(&self, cluster: usize, node: &HostName, report: &mut Report<'_>) -> Option<Node> {
        let found = self.world.clusters.0.get(cluster)?;
        let config = found.varying.as_ref()?;
        if let Some(made) = self.configs.get(&(cluster, node.clone())) {
            return Some(made.clone());
        }
        let around = MembersOf { world: self.world, cluster, me: node };
        let replaced = macros::in_node(config, &around, report);
        let of = format!("the configuration of `{}` on {node}", found.name);
        let host = self.world.hosts.0.get(node);
        let service = Some((cluster, ""));
        let scope = Scope { world: self.world, host, service, loops: &[], of: &of, cluster_value: None };
        Some(self.world.templates.node(&replaced, &scope, report))
    }

    /// Makes a service's change objects on a node: a change object for each turn of the loops, without loops at most
    /// one.
    fn on_node(
        &mut self,
        cluster: usize,
        service: &Arc<str>,
        cob: &Marked<String>,
        entry: &CobEntry,
        node: &HostName,
        report: &mut Report<'_>,
    ) {
        let Some(host) = self.world.hosts.0.get(node).filter(|_| !self.too_many) else { return };
        let varying = self.world.clusters.0.get(cluster).is_some_and(|c| c.varying.is_some());
        let config = varying.then(|| self.config(cluster, node, report));
        let (whole, turns) = self.turns_on((cluster, service), cob, entry, host, config.as_ref(), report);
        let value = self.value_with(cluster, config.as_ref());
        for Turn { name, id, loops } in turns {
            let home = ObjectOrigin::Service { cluster, service: Arc::clone(service) };
            let scope = Scope {
                world: self.world,
                host: Some(host),
                service: Some((cluster, service)),
                loops: &loops,
                of: id.as_str(),
                cluster_value: value.as_ref(),
            };
            let object = self.object(cob.mark, home, entry, &scope, report);
            if let Some(instance) = self.objects.instances.get_mut(&(cluster, service.to_string())) {
                instance.cobs.entry(name).or_default().push(node.clone(), id.clone());
                instance.on_node.entry(node.clone()).or_default().push(id.clone());
            }
            self.add(id, object, report);
        }
        if !whole {
            self.incomplete(cluster, service);
        }
    }

    /// `cluster` in templates, if its configuration differs between nodes.
    fn value_with(&self, cluster: usize, config: Option<&Node>) -> Option<Jinja> {
        Some(self.world.clusters.0.get(cluster)?.value_with(config?))
    }

    fn incomplete(&mut self, cluster: usize, service: &str) {
        if let Some(instance) = self.objects.instances.get_mut(&(cluster, service.to_owned())) {
            instance.incomplete = true;
        }
    }

    fn add(&mut self, id: CobId, object: Object, report: &mut Report<'_>) {
        if self.made.len() >= MAX_COBS {
            self.too_many = true;
            let fault = Diagnostic::error("too-large", format!("the model makes more than {MAX_COBS} change objects"));
            return report.push(object.mark, fault);
        }
        self.made.push((id, Box::new(object)));
    }

    fn object(
        &mut self,
        mark: Mark,
        home: ObjectOrigin,
        entry: &CobEntry,
        scope: &Scope<'_>,
        report: &mut Report<'_>,
    ) -> Object {
        let templates = &self.world.templates;
        let text = |written: &Marked<String>, report: &mut Report<'_>| {
            let value = templates.text(&written.value, written.mark, scope, report)?;
            Some(Marked { mark: written.mark, value })
        };
        let content = entry.content.as_ref().map(|content| templates.node(content, scope, report));
        let content = content.unwrap_or(Node { mark, value: Value::Map(crate::model::Map::default()) });
        let content = match &entry.kind {
            Some(kind) if kind.value == "file-tree" => {
                file_tree::render_templates(&content, self.files, templates, scope, report)
            }
            Some(kind) if kind.value == "firewall" => firewall::resolve(&content, scope, report),
            Some(_) | None => content,
        };
        let mut object = Object {
            mark,
            home,
            kind: None,
            preferred: None,
            content: content.to_json(),
            files: Payload::new(),
            explicit: Vec::new(),
            asks: self.plain.of(entry, scope, report),
            budget: entry.budget.as_ref().and_then(|name| text(name, report)),
            at_most: None,
            keep: entry.on_remove.as_ref().is_some_and(|on_remove| on_remove.value == OnRemove::Keep),
            observe: false,
        };
        self.files.named(&entry.files, &mut object.files, report);
        if let Some(known) = entry.kind.as_ref().and_then(|name| self.kind(name, &content, &mut object, report)) {
            object.preferred = match &entry.preferred {
                Some(written) => {
                    let state = text(written, report).and_then(|name| known.state(&name, report));
                    warn_of_unmanaged(&known, state.as_ref(), written.mark, report);
                    state
                }
                None => Some(known.on().clone()),
            };
            self.world.secrets.check_places(&content, &known, report);
            object.observe = is_observed(entry, scope.host, &known);
            object.kind = Some(known);
        }
        let list = |written: &Marked<Vec<Marked<String>>>, report: &mut Report<'_>| Marked {
            mark: written.mark,
            value: written.value.iter().filter_map(|n| text(n, report)).collect(),
        };
        for Marked { mark, value } in &entry.transitions {
            if let (Some(from), Some(to), Some(needs)) = (&value.from, &value.to, &value.needs) {
                let (from, to, needs) = (from.clone().into(), to.clone(), list(needs, report));
                object.explicit.push(Explicit { mark: *mark, from, to, needs });
            }
        }
        for Marked { mark, value } in &entry.locks {
            if let (Some(to), Some(needs)) = (&value.state, &value.needs) {
                object.explicit.push(Explicit { mark: *mark, from: None, to: to.clone(), needs: list(needs, report) });
            }
        }
        object
    }

    /// The kind, adjusted by the content and the object.
    fn kind(
        &mut self,
        name: &Marked<String>,
        content: &Node,
        object: &mut Object,
        report: &mut Report<'_>,
    ) -> Option<Known> {
        let known = match self.kinds.find(name, report) {
            Found::Good(known) => known.clone(),
            Found::Broken | Found::Unknown => return None,
        };
        let Some(builtin) = known.builtin else {
            if known.kind.backend == "noop" {
                builtin::settle(builtin::named("noop"), content, self.files, report)?;
            }
            return Some(known);
        };
        let Settled { kind, files, env, content, without } = builtin::settle(builtin, content, self.files, report)?;
        object.files.extend(files);
        if let Some(content) = content {
            object.content = content;
        }
        if let Some(env) = env {
            object.content["env"] = serde_json::json!(env);
        }
        for key in without {
            object.content.as_object_mut().and_then(|content| content.remove(*key));
        }
        Some(match kind {
            None => known,
            Some(kind) => {
                let kind = self.objects.made.entry(kind.name.clone()).or_insert_with(|| Arc::new(kind));
                Known { kind: Arc::clone(kind), ..known }
            }
        })
    }
}

/// Sorted by id, without duplicates. A single sort at the end is far faster than many sorted insertions.
fn unique(mut made: Vec<(CobId, Box<Object>)>, report: &mut Report<'_>) -> ByCob<Box<Object>> {
    made.sort_by(|(a, _), (b, _)| a.cmp(b));
    for same in made.chunk_by(|(a, _), (b, _)| a == b) {
        let Some(((id, first), others)) = same.split_first() else { continue };
        for (_, object) in others {
            let mut fault = Diagnostic::error("duplicate-name", format!("the change object {id} is made twice"))
                .note(Some(report.place(first.mark)), "first here");
            fault = fault.help(if first.mark == object.mark {
                "in a loop, or in two clusters, its name must differ in each copy: `\"disk-{{ d }}\"`"
            } else {
                "rename or remove either entry"
            });
            report.push(object.mark, fault);
        }
    }
    made.dedup_by(|(later, _), (earlier, _)| later == earlier);
    made.into_iter().collect()
}
