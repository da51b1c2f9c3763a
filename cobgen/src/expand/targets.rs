//! Resolves the names in dependency words: from `db/server` to its change objects.
//!
//! A name without `/` is a change object of the same service, else a service; for a change object listed by hand, a
//! change object of the same host, else a service. `A/B` is the change object B of service A, or an id `HOST/NAME`. A
//! service stands for its `ready` change objects. The service of the own cluster counts, else of the only cluster that
//! has it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use cob_types::{CobId, HostName};
use rayon::prelude::*;

use super::asks::{Asks, Word};
use super::bearers::Bearers;
use super::gates::MAX_DIRECT;
use super::objects::{Instance, Object, ObjectOrigin, Objects};
use super::scope::World;
use super::spread::Spread;
use super::{Report, in_parts};
use crate::catalog::Stage;
use crate::diagnostic::{Diagnostic, Severity};
use crate::model::{Mark, Marked, On, ServiceEntry, Target, did_you_mean, did_you_mean_or_list};

/// The most dependencies of a model: five for each of the most change objects.
const MAX_LINKS: usize = 5_000_000;

/// A dependency of a word between two change objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) word: Word,
    /// The dependent.
    pub(super) from: CobId,
    /// The change object that it depends on.
    pub(super) to: CobId,
    /// In the user's words.
    pub(super) words: Arc<str>,
    pub(super) mark: Mark,
}

/// The same dependency between each of `from` and each of `to`, where single links would be too many.
#[derive(Debug)]
pub(super) struct Many {
    pub(super) word: Word,
    pub(super) from: Vec<CobId>,
    pub(super) to: Vec<CobId>,
    pub(super) words: Arc<str>,
    pub(super) mark: Mark,
}

/// All dependencies of the short words.
pub(super) fn links(world: &World<'_>, objects: &Objects, report: &mut Report<'_>) -> (Vec<Link>, Vec<Many>) {
    let mut finder = Finder { world, objects, links: Vec::new(), many: Vec::new(), ready: BTreeMap::new() };
    let asking: Vec<(&CobId, &Object)> = objects.all.iter().map(|(id, object)| (id, &**object)).collect();
    let direct = in_parts(&asking, report, |(id, object), direct: &mut Direct<'_>, report| {
        for asks in &*object.asks {
            match finder.lookup(&Asker::of(id, object, asks), report) {
                Lookup::Cobs(found) => link(&mut direct.links, id, asks, found, report),
                Lookup::Group(group) => direct.groups.push((id, object, asks, group)),
                Lookup::Nothing => {}
            }
        }
    });
    let mut groups = Vec::new();
    for part in direct {
        finder.links.extend(part.links);
        groups.extend(part.groups);
    }
    // The ready change objects of a service follow from the links inside it.
    finder.find_ready(report);
    let single = finder.all_to_all(groups, report);
    let of_groups = in_parts(&single, report, |(id, object, asks, group), links: &mut Vec<Link>, report| {
        if let Some(found) = finder.chosen_of(&Asker::of(id, object, asks), group, report) {
            link(links, id, asks, found, report);
        }
    });
    finder.links.extend(of_groups.into_iter().flatten());
    for (name, entry) in world.sections.services.iter() {
        if finder.links.len() > MAX_LINKS {
            report.push(name.mark, too_many());
            return (Vec::new(), Vec::new());
        }
        finder.of_service(&name.value, entry, report);
        finder.unmade(&name.value, entry, report);
    }
    (finder.links, finder.many)
}

fn too_many() -> Diagnostic {
    let what = format!("the model has more than {MAX_LINKS} dependencies between change objects");
    let help = "let each service name only its direct dependencies: indirect dependencies follow";
    Diagnostic::error("too-large", what).help(help)
}

/// The dependencies of change objects' own words.
#[derive(Default)]
struct Direct<'a> {
    links: Vec<Link>,
    groups: Vec<AsksGroup<'a>>,
}

/// A change object, its dependency, and the group that the dependency names.
type AsksGroup<'a> = (&'a CobId, &'a Object, &'a Asks, Group);

/// Change objects of a service that a dependency names together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    cluster: usize,
    service: String,
    /// The name of a change object on each node; `None`: the ready change objects.
    cob: Option<String>,
}

fn link(links: &mut Vec<Link>, from: &CobId, asks: &Asks, found: Vec<CobId>, report: &mut Report<'_>) {
    let Asks { word, target, words } = asks;
    for to in found {
        if to == *from {
            let fault = Diagnostic::error("self-dependency", "a change object can't depend on itself");
            let help = "to mean the same on the other nodes of its service write `{cob: NAME, on: peers}`";
            report.push(target.cob.mark, fault.note(None, format!("here {from} does")).help(help));
            continue;
        }
        links.push(Link { word: *word, from: from.clone(), to, words: Arc::clone(words), mark: target.cob.mark });
    }
}

/// The dependent change object, its place, and the dependency.
struct Asker<'a> {
    id: &'a CobId,
    host: &'a str,
    /// Cluster and service.
    home: Option<(usize, &'a str)>,
    target: &'a Target,
    /// A missing target is no error.
    is_wish: bool,
}

impl<'a> Asker<'a> {
    fn of(id: &'a CobId, object: &'a Object, asks: &'a Asks) -> Self {
        let home = match &object.home {
            ObjectOrigin::ByHand => None,
            ObjectOrigin::Service { cluster, service, .. } => Some((*cluster, &**service)),
        };
        Self { id, host: id.host_str(), home, target: &asks.target, is_wish: asks.word == Word::Wants }
    }
}

enum Lookup {
    Cobs(Vec<CobId>),
    /// Some or all members of a group.
    Group(Group),
    /// The name is already reported, or is a `wants` of a missing object.
    Nothing,
}

struct Finder<'a> {
    world: &'a World<'a>,
    objects: &'a Objects,
    links: Vec<Link>,
    many: Vec<Many>,
    /// The ready change objects of each service, in the order of its nodes.
    ready: BTreeMap<(usize, String), Spread>,
}

impl Finder<'_> {
    fn lookup(&self, asker: &Asker<'_>, report: &mut Report<'_>) -> Lookup {
        let target = asker.target;
        let text = target.cob.value.as_str();
        match text.split_once('/') {
            None => {
                if let Some((cluster, service)) = asker.home
                    && let Some(instance) = self.objects.instances.get(&(cluster, service.to_owned()))
                {
                    if let Some(cobs) = instance.cobs.get(text) {
                        return self.pick(asker, instance, cobs, On::SameNode, report);
                    }
                    if self.is_own_cob(service, text) {
                        return self.not_here(asker, &format!("`{service}/{text}`"), report);
                    }
                }
                if asker.home.is_none()
                    && let Ok(id) = CobId::new(&format!("{}/{text}", asker.host))
                    && self.objects.get(&id).is_some()
                {
                    return self.exact(id, target, report);
                }
                if self.service_entry(text).is_some() {
                    return self.whole_service(asker, text, report);
                }
                self.unknown(asker, report)
            }
            Some((service, cob)) => {
                let id = CobId::new(text).ok().filter(|id| self.objects.get(id).is_some());
                let of_service = self
                    .service_entry(service)
                    .is_some_and(|_| self.is_own_cob(service, cob) || self.is_made(service, cob));
                match (id, of_service) {
                    (Some(id), true) => {
                        let what = format!(
                            "`{text}` is {id} on the host `{service}`, and the change object `{cob}` of the service `{service}`"
                        );
                        let fault = Diagnostic::error("ambiguous-name", what).help("rename the host or the service");
                        report.push(target.cob.mark, fault);
                        Lookup::Nothing
                    }
                    (Some(id), false) => self.exact(id, target, report),
                    (None, true) => self.service_cob(asker, service, cob, report),
                    (None, false) => self.unknown(asker, report),
                }
            }
        }
    }

    /// An id written in full.
    fn exact(&self, id: CobId, target: &Target, report: &mut Report<'_>) -> Lookup {
        if let Some(on) = &target.on {
            let fault = Diagnostic::error("needless-on", format!("{id} already names its host, so `on` has no effect"));
            report.push(on.mark, fault.help("remove `on`"));
        }
        Lookup::Cobs(vec![id])
    }

    fn whole_service(&self, asker: &Asker<'_>, service: &str, report: &mut Report<'_>) -> Lookup {
        if asker.home.is_some_and(|(_, own)| own == service) {
            let fault = Diagnostic::error("self-dependency", format!("`{service}` names its own service"));
            report.push(asker.target.cob.mark, fault.help("name a change object of the service: `requires: [server]`"));
            return Lookup::Nothing;
        }
        match self.cluster(asker, service, report) {
            Some(cluster) => Lookup::Group(Group { cluster, service: service.to_owned(), cob: None }),
            None => Lookup::Nothing,
        }
    }

    fn service_cob(&self, asker: &Asker<'_>, service: &str, cob: &str, report: &mut Report<'_>) -> Lookup {
        let Some(cluster) = self.cluster(asker, service, report) else { return Lookup::Nothing };
        let Some(instance) = self.objects.instances.get(&(cluster, service.to_owned())) else { return Lookup::Nothing };
        let own = asker.home == Some((cluster, service));
        match instance.cobs.get(cob) {
            Some(cobs) if own => self.pick(asker, instance, cobs, On::SameNode, report),
            Some(_) => Lookup::Group(Group { cluster, service: service.to_owned(), cob: Some(cob.to_owned()) }),
            None if instance.incomplete => Lookup::Nothing,
            None => self.not_here(asker, &format!("`{service}/{cob}`"), report),
        }
    }

    /// Reports a name that the service has, but on no node of this cluster.
    fn not_here(&self, asker: &Asker<'_>, what: &str, report: &mut Report<'_>) -> Lookup {
        if !asker.is_wish {
            let fault = Diagnostic::error("nowhere", format!("{what} is on no node, so no object can depend on it"));
            let help = "its `when`, `for` or `place` excludes all nodes; for a dependency only where it exists, write \
                        `wants`";
            report.push(asker.target.cob.mark, fault.help(help));
        }
        Lookup::Nothing
    }

    /// The cluster whose service is meant: the own cluster, else the only cluster that has the service.
    fn cluster(&self, asker: &Asker<'_>, service: &str, report: &mut Report<'_>) -> Option<usize> {
        let mark = asker.target.cob.mark;
        let with: Vec<usize> = self.world.clusters.with(service).collect();
        if let Some((own, _)) = asker.home
            && with.contains(&own)
        {
            return Some(own);
        }
        let names: Vec<String> = with.iter().map(|c| format!("`{}`", self.world.clusters.0[*c].name)).collect();
        match with.as_slice() {
            [only] => Some(*only),
            [] => {
                if !asker.is_wish {
                    let what = format!("the service `{service}` is in no cluster, so no object can depend on it");
                    let fault = Diagnostic::error("unplaced", what);
                    report.push(mark, fault.help("place it in a cluster, or write `wants`"));
                }
                None
            }
            _ => {
                let but = |(own, _): (usize, &str)| format!(", but not `{}`", self.world.clusters.0[own].name);
                let whose = asker.home.map_or_else(String::new, but);
                let what = format!("which `{service}` is meant? The clusters {} have it{whose}", names.join(", "));
                let fault = Diagnostic::error("ambiguous-name", what);
                report.push(mark, fault.help("name the change object in full: HOST/SERVICE/COB"));
                None
            }
        }
    }

    /// The candidates that `on` selects.
    fn pick(
        &self,
        asker: &Asker<'_>,
        instance: &Instance,
        candidates: &Spread,
        default: On,
        report: &mut Report<'_>,
    ) -> Lookup {
        let target = asker.target;
        let (on, mark) = target.on.as_ref().map_or((&default, target.cob.mark), |on| (&on.value, on.mark));
        if !self.exists(on, mark, report) {
            return Lookup::Nothing;
        }
        let me = asker.host;
        let chosen: Vec<&CobId> = match on {
            On::All => candidates.iter().map(|(_, id)| id).collect(),
            On::Any => candidates.on_chosen(me).collect(),
            On::SameNode => candidates.on(me).collect(),
            On::First => candidates.on_first().collect(),
            On::Peers => candidates.elsewhere(me).collect(),
            On::Host(name) => candidates.on(name).collect(),
            On::Label(label) => candidates.on_some(self.world.hosts.labelled(label)).collect(),
        };
        // On a single node there are no peers to wait for.
        if chosen.is_empty() && !instance.incomplete && !instance.unplaced && !asker.is_wish && *on != On::Peers {
            let where_ = match on {
                On::SameNode => format!("on {me}"),
                On::Host(name) => format!("on the host {name}"),
                On::Label(label) => format!("on a host with the label {label}"),
                On::All | On::Any | On::First | On::Peers => "anywhere".to_owned(),
            };
            let what = format!("`{}` is missing on a host that needs it", target.cob.value);
            let mut fault = Diagnostic::error("nowhere", what).note(None, format!("{} needs it {where_}", asker.id));
            if !candidates.is_empty() {
                let help = format!(
                    "it is on {}; write `{{cob: {}, on: all}}`, or `wants` for where it exists",
                    list(candidates),
                    target.cob.value
                );
                fault = fault.help(help);
            }
            report.push(mark, fault);
        }
        Lookup::Cobs(chosen.into_iter().cloned().collect())
    }

    /// Whether the host or label of an `on` exists at all.
    fn exists(&self, on: &On, mark: Mark, report: &mut Report<'_>) -> bool {
        match on {
            On::Host(name) => self.world.hosts.named(name, mark, report).is_some(),
            On::Label(label) => {
                let pick = crate::model::HostPick::Label(label.clone());
                !self.world.hosts.of_pick(&pick, mark, report).is_empty()
            }
            On::All | On::Any | On::SameNode | On::First | On::Peers => true,
        }
    }

    fn unknown(&self, asker: &Asker<'_>, report: &mut Report<'_>) -> Lookup {
        let name = &asker.target.cob;
        let own = asker.home.and_then(|(cluster, service)| self.objects.instances.get(&(cluster, service.to_owned())));
        if own.is_some_and(|i| i.incomplete) {
            return Lookup::Nothing;
        }
        let text = name.value.as_str();
        // The target of `wants` may be missing; only a likely typing mistake is reported.
        let severity = if asker.is_wish { Severity::Warning } else { Severity::Error };
        let known = match report.out.has_room(severity) {
            true => self.known_to(asker, own, text),
            // The search for the nearest of many names takes time; beyond the shown errors it is wasted.
            false => Vec::new(),
        };
        let names = known.iter().map(String::as_str);
        if asker.is_wish {
            if let Some(help) = did_you_mean(text, names) {
                let warning =
                    Diagnostic::warning("unknown-name", format!("`wants` names `{text}`, which does not exist"));
                report.push(name.mark, warning.help(help));
            }
        } else {
            let what = format!("unknown change object or service `{text}`");
            report
                .push(name.mark, Diagnostic::error("unknown-name", what).maybe_help(did_you_mean_or_list(text, names)));
        }
        Lookup::Nothing
    }

    /// The known names that an unknown name could mean.
    fn known_to(&self, asker: &Asker<'_>, own: Option<&Instance>, text: &str) -> Vec<String> {
        let mut known: Vec<String> = self.world.sections.services.names().map(str::to_owned).collect();
        known.extend(own.iter().flat_map(|i| i.cobs.keys().cloned()));
        match text.split_once('/') {
            Some((service, _)) if self.service_entry(service).is_some() => {
                known = self.cobs_of(service).into_iter().map(|cob| format!("{service}/{cob}")).collect();
            }
            Some(_) => {
                known.extend(self.objects.all.keys().map(|id| id.as_str().to_owned()));
                for service in self.world.sections.services.names() {
                    known.extend(self.cobs_of(service).into_iter().map(|cob| format!("{service}/{cob}")));
                }
            }
            None if asker.home.is_none() => {
                known.extend(
                    self.objects.all.keys().filter(|id| id.host_str() == asker.host).map(|id| id.name().to_owned()),
                );
            }
            None => {}
        }
        known.sort();
        known
    }

    fn service_entry(&self, name: &str) -> Option<&ServiceEntry> {
        self.world.sections.services.iter().find(|(n, _)| n.value == name).map(|(_, s)| s)
    }

    /// Whether the service has an entry of this name.
    fn is_own_cob(&self, service: &str, cob: &str) -> bool {
        self.service_entry(service).is_some_and(|s| s.cobs.names().any(|n| n == cob))
    }

    /// Whether templates made a change object of this name for the service.
    fn is_made(&self, service: &str, cob: &str) -> bool {
        let with = self.world.clusters.with(service);
        with.into_iter()
            .any(|c| self.objects.instances.get(&(c, service.to_owned())).is_some_and(|i| i.cobs.contains_key(cob)))
    }

    fn cobs_of(&self, service: &str) -> BTreeSet<String> {
        let mut names: BTreeSet<String> =
            self.service_entry(service).into_iter().flat_map(|s| s.cobs.names()).map(str::to_owned).collect();
        names.retain(|n| !super::template::is_template(n));
        for cluster in self.world.clusters.with(service) {
            names.extend(
                self.objects
                    .instances
                    .get(&(cluster, service.to_owned()))
                    .into_iter()
                    .flat_map(|i| i.cobs.keys().cloned()),
            );
        }
        names
    }

    /// Finds the ready change objects of each service: the listed names, else all without dependents in the service.
    fn find_ready(&mut self, report: &mut Report<'_>) {
        let home = |id: &CobId| self.objects.get(id).map(|o| &o.home);
        let within = |link: &&Link| match (home(&link.from), home(&link.to)) {
            (Some(from @ ObjectOrigin::Service { .. }), Some(to)) => from == to && link.word != Word::Excludes,
            _ => false,
        };
        // For look-ups only: the order is not used.
        let depended: HashSet<&CobId> = self.links.par_iter().filter(within).map(|link| &link.to).collect();
        let mut ready = BTreeMap::new();
        for ((cluster, service), instance) in &self.objects.instances {
            let named = self.service_entry(service).and_then(|s| s.ready.as_ref());
            let mut found = Spread::default();
            match named {
                Some(names) => {
                    for name in names {
                        match instance.cobs.get(&name.value) {
                            Some(cobs) => cobs.iter().for_each(|(node, id)| found.push(node.clone(), id.clone())),
                            None if instance.incomplete || self.is_own_cob(service, &name.value) => {}
                            None => {
                                let known = self.cobs_of(service);
                                let what = format!("the service `{service}` has no change object `{}`", name.value);
                                report.missing("unknown-name", what, name, known.iter().map(String::as_str));
                            }
                        }
                    }
                }
                None => {
                    let cobs = instance
                        .nodes
                        .iter()
                        .flat_map(|n| instance.on_node.get(n).into_iter().flatten().map(move |id| (n, id)));
                    for (node, id) in cobs.filter(|(_, id)| !depended.contains(id)) {
                        found.push(node.clone(), id.clone());
                    }
                }
            }
            ready.insert((*cluster, service.clone()), found);
        }
        self.ready = ready;
    }

    /// Stores dependencies of a whole service on a whole group as an entry if the pairs are many; returns the others.
    fn all_to_all<'a>(&mut self, groups: Vec<AsksGroup<'a>>, report: &mut Report<'_>) -> Vec<AsksGroup<'a>> {
        let mut by_words: BTreeMap<_, Vec<AsksGroup<'a>>> = BTreeMap::new();
        let mut rest = Vec::new();
        for one in groups {
            let (_, object, asks, group) = &one;
            match &object.home {
                ObjectOrigin::Service { cluster, service, .. } if is_to_all(asks) => {
                    let words = (asks.target.cob.mark, asks.word, *cluster, service.to_string(), group.clone());
                    by_words.entry(words).or_default().push(one);
                }
                ObjectOrigin::Service { .. } | ObjectOrigin::ByHand => rest.push(one),
            }
        }
        for (_, asking) in by_words {
            let Some((first, object, asks, group)) = asking.first() else { continue };
            let few = self.candidates(group).is_none_or(|(_, all)| !is_many(asking.len(), all.iter().count()));
            if few {
                rest.extend(asking);
                continue;
            }
            let to = self.chosen_of(&Asker::of(first, object, asks), group, report).unwrap_or_default();
            let from = asking.iter().map(|(id, ..)| (*id).clone()).collect();
            let (word, words, mark) = (asks.word, Arc::clone(&asks.words), asks.target.cob.mark);
            self.many.push(Many { word, from, to, words, mark });
        }
        rest
    }

    /// The change objects of a group, with the instance of their service.
    fn candidates(&self, group: &Group) -> Option<(&Instance, &Spread)> {
        let key = (group.cluster, group.service.clone());
        let instance = self.objects.instances.get(&key)?;
        let all = match &group.cob {
            Some(cob) => instance.cobs.get(cob)?,
            None => self.ready.get(&key)?,
        };
        Some((instance, all))
    }

    /// The change objects of a group that `on` selects.
    fn chosen_of(&self, asker: &Asker<'_>, group: &Group, report: &mut Report<'_>) -> Option<Vec<CobId>> {
        let (instance, all) = self.candidates(group)?;
        if all.is_empty() && !instance.incomplete && !instance.unplaced && !asker.is_wish && group.cob.is_none() {
            let service = &group.service;
            let fault = Diagnostic::error("never-ready", format!("the service `{service}` has no ready change object"));
            let help = "it has no change objects, or each has a dependent in the same service; name the ready \
                objects: `ready: [server]`";
            report.push(asker.target.cob.mark, fault.help(help));
            return None;
        }
        match self.pick(asker, instance, all, On::All, report) {
            Lookup::Cobs(found) => Some(found),
            Lookup::Group(_) | Lookup::Nothing => None,
        }
    }

    /// The words of a whole service: they apply to its ready change objects and to the change objects that its ready
    /// gates require.
    fn of_service(&mut self, name: &str, entry: &ServiceEntry, report: &mut Report<'_>) {
        let words = [(Word::Requires, &entry.requires), (Word::After, &entry.after), (Word::Wants, &entry.wants)];
        let words =
            words.into_iter().flat_map(|(word, targets)| targets.iter().map(move |t| Asks::new(word, t.clone())));
        let words: Vec<Asks> = words.collect();
        if words.is_empty() && entry.dependencies.is_none() {
            return;
        }
        for cluster in self.world.clusters.with(name).collect::<Vec<_>>() {
            let Some(ready) = self.ready.get(&(cluster, name.to_owned())) else { continue };
            let ready = ready.iter().map(|(_, id)| id.clone()).collect();
            let bearers = Bearers::of_service(self.objects, &self.links, (cluster, name), ready);
            self.dependencies(name, cluster, &bearers, report);
            let bearing = |id: &CobId| self.objects.all.get_key_value(id).map(|(id, object)| (id, &**object));
            let mut groups = Vec::new();
            for asks in &words {
                for (id, object) in bearers.of(asks.word).filter_map(bearing) {
                    match self.lookup(&Asker::of(id, object, asks), report) {
                        Lookup::Cobs(found) => link(&mut self.links, id, asks, found, report),
                        Lookup::Group(group) => groups.push((id, object, asks, group)),
                        Lookup::Nothing => {}
                    }
                }
            }
            for (id, object, asks, group) in self.all_to_all(groups, report) {
                let found = self.chosen_of(&Asker::of(id, object, asks), &group, report);
                link(&mut self.links, id, asks, found.unwrap_or_default(), report);
            }
        }
    }

    /// The dependencies of a service on other services of its cluster, on all nodes.
    fn dependencies(&mut self, name: &str, cluster: usize, bearers: &Bearers, report: &mut Report<'_>) {
        let Some((first, object)) = bearers.all.first().and_then(|id| Some((id, self.objects.get(id)?))) else {
            return;
        };
        let placed = &self.world.clusters.0[cluster].services;
        for (stage, word) in [(Stage::Install, Word::Install), (Stage::Runtime, Word::Requires)] {
            for (service, written) in self.world.needs.before(name, stage, |s| placed.contains_key(s)) {
                let target = Target { cob: Marked { mark: written.mark, value: service.clone() }, on: None };
                let asks = Asks::new(word, target);
                let group = Group { cluster, service: service.clone(), cob: None };
                let found = self.chosen_of(&Asker::of(first, object, &asks), &group, report).unwrap_or_default();
                let bearers: Vec<&CobId> = bearers.of(word).collect();
                if is_many(bearers.len(), found.len()) {
                    let (from, mark) = (bearers.into_iter().cloned().collect(), written.mark);
                    self.many.push(Many { word, from, to: found, words: asks.words, mark });
                } else {
                    bearers.iter().for_each(|id| link(&mut self.links, id, &asks, found.clone(), report));
                }
            }
        }
    }

    /// Checks the names in entries that no node uses, since they may be wrong too.
    fn unmade(&self, name: &str, entry: &ServiceEntry, report: &mut Report<'_>) {
        let mut targets: Vec<&Target> = Vec::new();
        for (cob, entry) in entry.cobs.iter().filter(|(cob, _)| !self.is_made(name, &cob.value)) {
            if !super::template::is_template(&cob.value) {
                let lists = [&entry.requires, &entry.after, &entry.restarts_on, &entry.reloads_on, &entry.excludes];
                targets.extend(lists.into_iter().flatten());
            }
        }
        let made = |c| self.objects.instances.get(&(c, name.to_owned())).is_some_and(|i| !i.cobs.is_empty());
        if !self.world.clusters.with(name).any(made) {
            targets.extend(entry.requires.iter().chain(&entry.after));
        }
        let has_templates = |service: &str| {
            self.service_entry(service).is_some_and(|s| s.cobs.names().any(super::template::is_template))
        };
        for target in targets.into_iter().filter(|t| !super::template::is_template(&t.cob.value)) {
            let text = target.cob.value.as_str();
            let good = match text.split_once('/') {
                None => self.is_own_cob(name, text) || self.service_entry(text).is_some() || has_templates(name),
                Some((service, cob)) => {
                    let id = CobId::new(text).is_ok_and(|id| self.objects.get(&id).is_some());
                    id || self.is_own_cob(service, cob) || self.is_made(service, cob) || has_templates(service)
                }
            };
            if !good {
                let mut known: BTreeSet<String> = self.world.sections.services.names().map(str::to_owned).collect();
                known.extend(self.cobs_of(name));
                if let Some((service, _)) = text.split_once('/') {
                    known.extend(self.cobs_of(service).into_iter().map(|cob| format!("{service}/{cob}")));
                }
                let what = format!("unknown change object or service `{text}`");
                report.missing("unknown-name", what, &target.cob, known.iter().map(String::as_str));
            }
        }
    }
}

/// Whether the word's target is the same for all change objects of a service, and the word works through a gate.
fn is_to_all(asks: &Asks) -> bool {
    let all = asks.target.on.as_ref().is_none_or(|on| on.value == On::All);
    all && matches!(asks.word, Word::Requires | Word::After | Word::Wants | Word::Install)
}

/// Whether the pairs are too many for single links.
fn is_many(from: usize, to: usize) -> bool {
    from > 1 && to > 1 && from.saturating_mul(to) > MAX_DIRECT
}

fn list(cobs: &Spread) -> String {
    const SHOWN: usize = 8;
    let names: Vec<&str> = cobs.nodes().take(SHOWN).map(HostName::as_str).collect();
    let hosts = cobs.nodes().count();
    let more = if hosts > SHOWN { format!(" and {} more", hosts - SHOWN) } else { String::new() };
    format!("{}{more}", names.join(", "))
}
