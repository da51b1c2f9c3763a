//! The change objects of a generation as operators name them: by service, cluster, host, label or id.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::status::{ClusterStatus, CobStatus, HostStatus, Stopped};
use cob_types::suggest::did_you_mean_or_list;
use cob_types::words::join;
use cob_types::{Cob, CobId, Generation, HostName, Kind, Manifest, StateName};

use super::plan::Way;
use crate::args::Selection;
use crate::failure::Failure;
use crate::verdict::is_converged;
use crate::waves::Limit;
use crate::words::list;

/// The change objects that an order concerns; for an object that was not named, the named object that it depends on.
pub(super) type Meant = BTreeMap<CobId, Option<CobId>>;

/// The change objects of all hosts.
pub(super) fn cobs_of(now: &ClusterStatus) -> impl Iterator<Item = &CobStatus> {
    now.hosts.iter().flat_map(|host: &HostStatus| &host.cobs)
}

/// The service of a change object: the first part of its name.
fn service(id: &CobId) -> &str {
    id.name().split('/').next().unwrap_or_default()
}

/// Whether a name means a change object.
type IsOf<'a> = dyn Fn(&CobId) -> bool + 'a;

/// Objects of which at most so many may be interrupted at a time.
struct Group<'g> {
    name: String,
    most: usize,
    /// The objects, each with the member that it belongs to: itself, or its host.
    members: BTreeMap<&'g CobId, usize>,
}

impl Group<'_> {
    /// `interrupted`: the objects that stop when each host is drained.
    fn limit(&self, interrupted: &[BTreeSet<CobId>], is_off: impl Fn(&CobId) -> bool) -> Limit {
        let off: BTreeSet<usize> =
            self.members.iter().filter(|(id, _)| is_off(id)).map(|(_, member)| *member).collect();
        let of_host = |cobs: &BTreeSet<CobId>| {
            let members = self.members.iter().filter(|(id, member)| cobs.contains(**id) && !off.contains(member));
            members.map(|(_, member)| *member).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        let members = interrupted.iter().map(of_host).enumerate().filter(|(_, members)| !members.is_empty()).collect();
        Limit { name: self.name.clone(), most: self.most.saturating_sub(off.len()), members }
    }
}

/// The hosts of a selection; absent: it restricts nothing.
pub(super) fn selected(
    manifest: &Manifest,
    Selection { hosts, labels }: &Selection,
) -> Result<Option<BTreeSet<HostName>>, Failure> {
    if hosts.is_empty() && labels.is_empty() {
        return Ok(None);
    }
    let (mut found, mut faults): (BTreeSet<HostName>, _) = (manifest.hosts.keys().cloned().collect(), Vec::new());
    if !hosts.is_empty() {
        found.retain(|host| hosts.contains(host));
    }
    for host in hosts {
        if !manifest.hosts.contains_key(host) {
            let help = did_you_mean_or_list(host.as_str(), manifest.hosts.keys().map(HostName::as_str));
            faults.push(format!("there is no host {host}; {}", help.unwrap_or_default()));
        }
    }
    for label in labels {
        match manifest.hosts_with(label) {
            Some(hosts) => found.retain(|host| hosts.contains(host)),
            None if manifest.groups.is_empty() => faults.push(format!(
                "generation {} names no labels and no clusters: a cobgen that did not write these made it, or the model \
                 has none",
                manifest.generation
            )),
            None => {
                let help = did_you_mean_or_list(label, manifest.groups.labels().collect::<Vec<_>>());
                let help = help.unwrap_or_else(|| "the model has no labels".to_owned());
                faults.push(format!("no host has the label {label}; {help}"));
            }
        }
    }
    if faults.is_empty() && found.is_empty() {
        faults.push("no host is in all of the named hosts and labels".to_owned());
    }
    if faults.is_empty() { Ok(Some(found)) } else { Err(Failure::usage(faults.join("; "))) }
}

/// The change objects of a generation, with their kinds.
pub(super) struct Objects<'g> {
    generation: &'g Generation,
    all: BTreeMap<&'g CobId, (&'g Cob, &'g Kind)>,
}

impl<'g> Objects<'g> {
    pub(super) fn of(generation: &'g Generation) -> Self {
        let of_bundle = |bundle: &'g cob_types::Bundle| {
            bundle.cobs.iter().filter_map(|(id, cob)| Some((id, (&**cob, bundle.kinds.get(&cob.kind)?))))
        };
        Self { generation, all: generation.bundles.values().flat_map(of_bundle).collect() }
    }

    /// The running objects that the words name: a service, a cluster, the services of a host, a service of a host, or one
    /// object. `besides`: objects that count as well, though they do not run.
    pub(super) fn named(
        &self,
        words: &[String],
        only: Option<&BTreeSet<HostName>>,
        besides: &BTreeSet<CobId>,
    ) -> Result<BTreeSet<CobId>, Failure> {
        let (mut found, mut faults) = (BTreeSet::new(), Vec::new());
        for word in words {
            match self.meaning(word, besides) {
                Ok(meant) => found.extend(meant),
                Err(fault) => faults.push(fault),
            }
        }
        if let Some(hosts) = only {
            found.retain(|cob| hosts.contains(&cob.host()));
            if found.is_empty() && faults.is_empty() {
                faults.push(format!("{} has no running object on {}", words.join(", "), list(hosts, 6)));
            }
        }
        if faults.is_empty() {
            return Ok(found);
        }
        Err(Failure::usage(faults.join("; "))
            .hint("name a SERVICE, a CLUSTER, a HOST, HOST/SERVICE or a change object"))
    }

    /// The running objects that one word names.
    fn meaning(&self, word: &str, besides: &BTreeSet<CobId>) -> Result<BTreeSet<CobId>, String> {
        let (sense, name) = match word.split_once(':') {
            Some((sense, name)) => (Some(sense), name),
            None => (None, word),
        };
        if let Some(id) = self.all.keys().find(|id| sense.is_none() && id.as_str() == name) {
            let (cob, kind) = &self.all[*id];
            return match kind.stopped() {
                _ if cob.observe => Err(format!("{word} is only observed (`mode: observe`)")),
                None => Err(format!("{word} has no state to stop in")),
                Some(_) if self.is_stopped_by_model(id) && !besides.contains(*id) => {
                    Err(format!("the model says `desired: stopped` for {word}"))
                }
                Some(_) => Ok([(*id).clone()].into()),
            };
        }
        let services = self.generation.manifest.services_of(name);
        let of_cluster = |id: &CobId| {
            services
                .as_ref()
                .and_then(|services| services.get(service(id)))
                .is_some_and(|on| on.contains(id.host_str()))
        };
        let of_host = |id: &CobId| id.host_str() == name || format!("{}/{}", id.host_str(), service(id)) == name;
        let senses: [(&str, &IsOf<'_>); 3] =
            [("service", &|id| service(id) == name), ("host", &of_host), ("cluster", &of_cluster)];
        let (mut named, mut by_model, mut meanings) = (false, false, Vec::<(&str, BTreeSet<CobId>)>::new());
        for (of, is_of) in senses.into_iter().filter(|(of, _)| sense.is_none_or(|sense| sense == *of)) {
            let of_name: Vec<&CobId> = self.all.keys().copied().filter(|id| is_of(id)).collect();
            let running: BTreeSet<CobId> =
                of_name.iter().copied().filter(|id| self.runs(id) || besides.contains(*id)).cloned().collect();
            named |= !of_name.is_empty();
            by_model |= of_name.iter().any(|id| self.is_stopped_by_model(id));
            if !running.is_empty() && !meanings.iter().any(|(_, other)| *other == running) {
                meanings.push((of, running));
            }
        }
        match meanings.as_slice() {
            [(_, meant)] => Ok(meant.clone()),
            [] if by_model => Err(format!("the model says `desired: stopped` for {word}")),
            [] if named => Err(format!("{word} has no running object")),
            [] => Err(self.unknown(name)),
            several => {
                let words: Vec<String> = several.iter().map(|(of, _)| format!("{of}:{name}")).collect();
                Err(format!("{word} has several meanings: write {}", join(&words, "or")))
            }
        }
    }

    fn runs(&self, id: &CobId) -> bool {
        self.all
            .get(id)
            .is_some_and(|(cob, kind)| kind.runs() && !cob.observe && kind.stopped() != Some(&cob.preferred))
    }

    /// The hosts of a selection; none: there is no restriction.
    pub(super) fn selected(&self, selection: &Selection) -> Result<Option<BTreeSet<HostName>>, Failure> {
        selected(&self.generation.manifest, selection)
    }

    /// The objects that were in their preferred states, and that no order has stopped.
    pub(super) fn running(&self, now: &ClusterStatus) -> BTreeSet<CobId> {
        let runs = |cob: &&CobStatus| cob.stopped.is_none() && is_converged(cob) && self.all.contains_key(&cob.id);
        cobs_of(now).filter(runs).map(|cob| cob.id.clone()).collect()
    }

    /// The running objects of a host.
    pub(super) fn running_on(&self, host: &HostName) -> Vec<CobId> {
        let of_host = self.all.keys().copied().filter(|id| id.host_str() == host.as_str());
        of_host.filter(|id| self.runs(id)).cloned().collect()
    }

    /// The limits on what may be interrupted at the same time when these hosts are drained: budgets, and the services of
    /// clusters, of which one host stays. Objects of other hosts that are not where they should be count already.
    pub(super) fn limits(&self, hosts: &[HostName], now: &ClusterStatus) -> Vec<Limit> {
        let running = self.running(now);
        let drained: BTreeSet<&str> = hosts.iter().map(HostName::as_str).collect();
        // An interrupted drain is continued: its stopped objects return with the next boot.
        let until_boot = |cob: &&CobStatus| cob.stopped.as_ref().is_some_and(|stopped| stopped.until_boot);
        let returns: BTreeSet<&CobId> = cobs_of(now).filter(until_boot).map(|cob| &cob.id).collect();
        let is_off = |id: &CobId| !(running.contains(id) || drained.contains(id.host_str()) && returns.contains(id));
        let mut budgets: BTreeMap<&CobId, BTreeSet<&CobId>> = BTreeMap::new();
        for (id, (cob, _)) in &self.all {
            if let Some(budget) = &cob.budget {
                budgets.entry(&budget.cob).or_default().insert(id);
            }
        }
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (budget, members) in budgets {
            let Some(most) = self.all.get(budget).and_then(|(cob, _)| cob.at_most) else { continue };
            let name = format!("budget {}", budget.name().rsplit('/').next().unwrap_or_default());
            let members = members.into_iter().zip(0..).collect();
            groups.push(Group { name, most: usize::try_from(most).unwrap_or(usize::MAX), members });
        }
        for cluster in self.generation.manifest.groups.clusters() {
            for (name, on) in self.generation.manifest.services_of(cluster).unwrap_or_default() {
                let place: BTreeMap<&str, usize> = on.iter().map(HostName::as_str).zip(0..).collect();
                let of_service = self.all.keys().copied().filter(|id| service(id) == name && self.runs(id));
                let members: BTreeMap<&CobId, usize> =
                    of_service.filter_map(|id| Some((id, *place.get(id.host_str())?))).collect();
                let instances = members.values().collect::<BTreeSet<_>>().len();
                if instances > 1 {
                    groups.push(Group { name: format!("service {name} of {cluster}"), most: instances - 1, members });
                }
            }
        }
        let interrupted: Vec<BTreeSet<CobId>> = hosts
            .iter()
            .map(|host| self.with_dependents(self.running_on(host).into_iter().collect()).into_keys().collect())
            .collect();
        groups
            .into_iter()
            .map(|group| group.limit(&interrupted, is_off))
            .filter(|limit| !limit.members.is_empty())
            .collect()
    }

    /// The order that stops these objects, for its plan. Objects that need them stop as well; with `restart` only the named
    /// objects get the order, and all start again.
    pub(super) fn way_down(&self, cobs: &BTreeSet<CobId>, restart: bool) -> Way {
        let meant = self.with_dependents(cobs.clone());
        let to = meant.keys().filter_map(|id| Some((id.clone(), self.stopped(id)?.clone())));
        let ordered = meant.iter().filter(|(id, _)| !restart || cobs.contains(*id));
        let stopped =
            |with: &Option<CobId>| Stopped { who: String::new(), restart, with: with.clone(), until_boot: false };
        Way { to: to.collect(), stops: ordered.map(|(id, with)| (id.clone(), stopped(with))).collect() }
    }

    fn unknown(&self, word: &str) -> String {
        let running = self.all.keys().copied().filter(|id| self.runs(id));
        let mut known: BTreeSet<&str> = running.flat_map(|id| [service(id), id.host_str()]).collect();
        known.extend(self.generation.manifest.groups.clusters());
        let help = did_you_mean_or_list(word, known.iter().copied()).unwrap_or_default();
        format!("there is no service, no cluster and no host {word}; {help}")
    }

    /// Whether the model says `desired: stopped` for it.
    fn is_stopped_by_model(&self, id: &CobId) -> bool {
        self.all.get(id).is_some_and(|(cob, kind)| kind.runs() && kind.stopped() == Some(&cob.preferred))
    }

    /// Its preferred state.
    pub(super) fn preferred(&self, id: &CobId) -> Option<&'g StateName> {
        self.all.get(id).map(|(cob, _)| &cob.preferred)
    }

    /// Where it is when it is stopped.
    fn stopped(&self, id: &CobId) -> Option<&'g StateName> {
        let (cob, kind) = self.all.get(id)?;
        kind.stopped().filter(|state| **state != cob.preferred)
    }

    /// The objects that it needs on to reach its preferred state and to stay there.
    pub(super) fn needs(&self, id: &CobId) -> impl Iterator<Item = &'g CobId> + use<'g> {
        let cob = self.all.get(id).map(|(cob, _)| *cob);
        let locks = cob.into_iter().flat_map(|cob| cob.locks.iter().filter(|lock| lock.state == cob.preferred));
        let starts = cob.into_iter().flat_map(|cob| cob.transitions.iter().filter(|start| start.to == cob.preferred));
        locks.flat_map(|lock| &lock.needs).chain(starts.flat_map(|start| &start.needs)).map(|need| &need.cob)
    }

    /// These, and all that are where they should be only while one of these is.
    pub(super) fn with_dependents(&self, named: BTreeSet<CobId>) -> Meant {
        let mut dependents: BTreeMap<&CobId, Vec<&CobId>> = BTreeMap::new();
        for (id, (cob, _)) in &self.all {
            for lock in cob.locks.iter().filter(|lock| lock.state == cob.preferred) {
                let ends = |on: &CobId, states: &[StateName]| self.stopped(on).is_some_and(|s| !states.contains(s));
                for need in lock.needs.iter().filter(|need| ends(&need.cob, &need.states)) {
                    dependents.entry(&need.cob).or_default().push(id);
                }
            }
        }
        let mut meant: Meant = named.iter().map(|cob| (cob.clone(), None)).collect();
        let mut open: Vec<(CobId, CobId)> = named.into_iter().map(|cob| (cob.clone(), cob)).collect();
        while let Some((at, root)) = open.pop() {
            for id in dependents.get(&at).into_iter().flatten() {
                if self.stopped(id).is_some() && !meant.contains_key(*id) {
                    meant.insert((*id).clone(), Some(root.clone()));
                    open.push(((*id).clone(), root.clone()));
                }
            }
        }
        meant
    }
}
