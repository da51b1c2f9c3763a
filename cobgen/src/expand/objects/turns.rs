//! The nodes and the number of a service's change objects: places, conditions and loops.

use std::collections::BTreeSet;
use std::ops::Bound;

use cob_types::{CobId, HostName};
use minijinja::value::Value as Jinja;

use super::{MAX_COBS, Maker};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::expand::Report;
use crate::expand::clusters::Placement;
use crate::expand::hosts::Host;
use crate::expand::scope::Scope;
use crate::expand::template::is_template;
use crate::model::{CobEntry, HostPick, Marked, Named, Node, Placed};

/// A turn of an entry's loops.
pub(super) struct Turn {
    /// The name of its change object.
    pub(super) name: String,
    pub(super) id: CobId,
    /// The loops' variables.
    pub(super) loops: Vec<(String, Jinja)>,
}

impl Maker<'_> {
    /// The nodes of its service that have a change object; `beside` are all entries of the service.
    pub(super) fn nodes<'p>(
        &self,
        (cluster, service): (usize, &str),
        cob: &Marked<String>,
        entry: &CobEntry,
        placement: &'p Placement,
        beside: &Named<CobEntry>,
        report: &mut Report<'_>,
    ) -> Vec<&'p HostName> {
        let all = &placement.nodes;
        match entry.place.as_ref().map(|p| (&p.value, p.mark)) {
            None | Some((Placed::Each, _)) => all.iter().collect(),
            Some((Placed::First, _)) => {
                let was_there = |host: &HostName| match is_template(&cob.value) {
                    false => self.previous.contains(&*format!("{host}/{service}/{}", cob.value)),
                    true => self.would_be(cluster, service, cob, entry, host, report),
                };
                let there = all.iter().find(|h| was_there(h)).or_else(|| {
                    // The expressions in the name may have other values now.
                    let names = beside.iter().map(|(other, _)| other.value.as_str());
                    let before = is_template(&cob.value).then(|| Before::of(&cob.value, names)).flatten()?;
                    all.iter().find(|host| self.names_before(host, service).any(|name| before.made(name)))
                });
                there.or_else(|| all.first()).into_iter().collect()
            }
            Some((Placed::On(pick), mark)) => {
                if let HostPick::Host(name) = pick
                    && !self.world.hosts.0.contains_key(name.as_str())
                {
                    let known = self.world.hosts.0.keys().map(HostName::as_str).chain(["each", "first"]);
                    report.unknown("host", &Marked { mark, value: name.clone() }, known);
                    return all.iter().collect();
                }
                let picked: BTreeSet<&HostName> = self.world.hosts.of_pick(pick, mark, report).into_iter().collect();
                if picked.is_empty() {
                    return all.iter().collect();
                }
                all.iter().filter(|h| picked.contains(h)).collect()
            }
        }
    }

    /// The names that a service's change objects on a host had before.
    fn names_before(&self, host: &HostName, service: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{host}/{service}/");
        let from = self.previous.range::<str, _>((Bound::Included(&*prefix), Bound::Unbounded));
        from.map_while(move |id| id.as_str().strip_prefix(&*prefix))
    }

    /// Whether a change object that an entry makes on a host existed before. Reports no faults: they are reported when
    /// the change object is made.
    fn would_be(
        &self,
        cluster: usize,
        service: &str,
        cob: &Marked<String>,
        entry: &CobEntry,
        host: &HostName,
        report: &Report<'_>,
    ) -> bool {
        let (Some(found), true) = (self.world.hosts.0.get(host), self.names_before(host, service).next().is_some())
        else {
            return false;
        };
        let mut untold = Diagnostics::default();
        let report = &mut report.beside(&mut untold);
        let config = self.config_of(cluster, host, report);
        let (_, turns) = self.turns_on((cluster, service), cob, entry, found, config.as_ref(), report);
        turns.iter().any(|turn| self.previous.contains(&turn.id))
    }

    /// The turns of an entry's loops that make a change object on a node, and whether the list is complete: the names
    /// of a faulty turn, which is reported, and of the turns after it are unknown.
    pub(super) fn turns_on(
        &self,
        (cluster, service): (usize, &str),
        cob: &Marked<String>,
        entry: &CobEntry,
        host: &Host,
        config: Option<&Node>,
        report: &mut Report<'_>,
    ) -> (bool, Vec<Turn>) {
        let of = format!("{}/{service}/{}", host.name, cob.value);
        let value = self.value_with(cluster, config);
        let scope = Scope {
            world: self.world,
            host: Some(host),
            service: Some((cluster, service)),
            loops: &[],
            of: &of,
            cluster_value: value.as_ref(),
        };
        let mut made = Vec::new();
        let condition = entry.when.as_ref();
        let in_loop = condition.is_some_and(|w| {
            let used = self.world.templates.names_used(&w.value);
            entry.each.names().any(|n| used.iter().any(|u| u == n))
        });
        let holds = |scope: &Scope<'_>, report: &mut Report<'_>| match condition {
            None => Some(true),
            Some(when) => scope.world.templates.condition(&when.value, when.mark, scope, report),
        };
        if !in_loop {
            match holds(&scope, report) {
                Some(true) => {}
                holds => return (holds.is_some(), made),
            }
        }
        let Some(turns) = turns(entry, &scope, report) else { return (false, made) };
        for loops in turns {
            let scope = Scope { loops: &loops, ..scope };
            if in_loop {
                match holds(&scope, report) {
                    Some(true) => {}
                    Some(false) => continue,
                    None => return (false, made),
                }
            }
            let name = self.world.templates.text(&cob.value, cob.mark, &scope, report);
            let name =
                name.map(|value| Marked { mark: cob.mark, value }).filter(|n| report.segment("change object", n));
            let Some(name) = name else { return (false, made) };
            let id = report.name(&name, |n| CobId::on(&host.name, &format!("{service}/{n}")));
            let Some(id) = id else { return (false, made) };
            made.push(Turn { name: name.value, id, loops });
        }
        (true, made)
    }
}

/// The names that an entry can have made before: names that fit the literal parts of its name, and fit no other entry's
/// literal parts as well.
struct Before<'a> {
    own: Vec<&'a str>,
    others: Vec<Vec<&'a str>>,
}

impl<'a> Before<'a> {
    /// `None`: the name has no literal part, so every name would fit.
    fn of(own: &'a str, all: impl Iterator<Item = &'a str>) -> Option<Self> {
        let length = |parts: &[&str]| parts.iter().map(|p| p.len()).sum::<usize>();
        let others = all.filter(|name| *name != own).map(literal_parts);
        let own = literal_parts(own);
        let least = length(&own);
        (least > 0).then(|| Self { others: others.filter(|parts| length(parts) >= least).collect(), own })
    }

    fn made(&self, name: &str) -> bool {
        fits(&self.own, name) && !self.others.iter().any(|other| fits(other, name))
    }
}

/// The texts before, between and after the expressions of a template.
fn literal_parts(template: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        let end = match rest.as_bytes()[at + 1] {
            b'{' => "}}",
            b'%' => "%}",
            _ => "#}",
        };
        parts.push(&rest[..at]);
        rest = rest[at..].find(end).map_or("", |length| &rest[at + length + end.len()..]);
    }
    parts.push(rest);
    parts
}

/// Whether a name has these parts in this order, the first at its start and the last at its end.
fn fits(parts: &[&str], name: &str) -> bool {
    let [first, between @ .., last] = parts else { return parts.first().is_some_and(|only| *only == name) };
    let Some(inner) = name.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
    between.iter().try_fold(inner, |rest, part| rest.find(part).map(|at| &rest[at + part.len()..])).is_some()
}

/// The values of the loop variables for each turn; without loops a single turn without variables.
fn turns(entry: &CobEntry, scope: &Scope<'_>, report: &mut Report<'_>) -> Option<Vec<Vec<(String, Jinja)>>> {
    let mut turns: Vec<Vec<(String, Jinja)>> = vec![Vec::new()];
    for (name, items) in entry.each.iter() {
        let mut longer = Vec::new();
        for turn in turns {
            // An inner loop sees the variables of the outer loops.
            for item in scope.world.templates.items(items, &Scope { loops: &turn, ..*scope }, report)? {
                let mut next = turn.clone();
                next.push((name.value.clone(), item));
                longer.push(next);
                if longer.len() > MAX_COBS {
                    let fault =
                        Diagnostic::error("too-large", format!("this loop makes more than {MAX_COBS} change objects"));
                    report.push(name.mark, fault);
                    return None;
                }
            }
        }
        turns = longer;
    }
    Some(turns)
}
