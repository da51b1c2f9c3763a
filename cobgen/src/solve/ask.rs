//! Translates the request of a cluster into a question for the solver, with the place of every rule.

use std::collections::{BTreeMap, BTreeSet};

use cob_solver::{
    Counted, ExistingNode, InventoryHost, NodeLayout, Nodes, Quantities, Ratio, RuleId, Ruled, ServiceRule, Size,
    TypeOption,
};

use super::barred::BarredTypes;
use super::layout::LayoutNode;
use super::{Barred, free_names};
use crate::catalog::{Catalog, Request, Rule, Share, Types, Wanted};
use crate::diagnostic::{Diagnostic, quoted};
use crate::expand::Report;
use crate::expand::hosts::Hosts;
use crate::model::{Mark, Marked};

/// The question for the solver, and the places of its rules.
pub(super) struct Question {
    pub(super) request: cob_solver::Request,
    /// The nodes on which services have failed.
    pub(super) barred: BarredTypes,
    places: Vec<Mark>,
}

/// Knowledge from outside the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside<'a> {
    /// The present nodes of the cluster; empty: it is new.
    pub(super) existing: &'a [LayoutNode],
    /// Unwanted layouts.
    pub(super) excluded: &'a [&'a [LayoutNode]],
    /// Unwanted services on named nodes.
    pub(super) barred: &'a Barred,
    /// The layouts in which these services failed: unwanted if nodes have no known names.
    pub(super) failed: &'a [&'a [LayoutNode]],
}

impl Question {
    /// Makes the question; an error is a host that matches a numbered node and does not suit the cluster.
    pub(super) fn of(
        asked: &Request<'_>,
        catalog: &Catalog,
        hosts: &Hosts,
        beside: Beside<'_>,
        report: &Report<'_>,
    ) -> Result<Self, Box<Diagnostic>> {
        let mut places = Places(Vec::new());
        let template = asked.template;
        let unruled = Rule::default();
        let service = |name: &String, places: &mut Places| {
            let rule = template.rules.get(name).unwrap_or(&unruled);
            ServiceRule {
                name: name.clone(),
                hardware: types(&rule.hardwaretypes, places),
                images: types(&rule.imagetypes, places),
                quantities: quantities(rule, places),
            }
        };
        let services = asked.services.iter().map(|s| service(&s.value, &mut places)).collect();
        let together = |rules: &[Marked<Vec<Marked<String>>>], places: &mut Places| {
            rules.iter().map(|r| places.rule(r.mark, r.value.iter().map(|s| s.value.clone()).collect())).collect()
        };
        let limit = |limit: &Option<Marked<u32>>, places: &mut Places| {
            limit.as_ref().map(|l| places.rule(l.mark, u64::from(l.value)))
        };
        let types = OwnTypes { hosts, catalog };
        let mut existing: Vec<ExistingNode> = beside.existing.iter().map(existing).collect();
        let displaced = displaced(asked, &mut existing, types);
        let there: BTreeSet<&String> = beside.existing.iter().flat_map(|n| &n.services).collect();
        let changes = |name: &String| !there.contains(name) || displaced.contains(name);
        let changed = asked.services.iter().map(|s| &s.value).filter(|s| changes(s)).cloned().collect();
        let named = |name: &String| beside.barred.contains_key(name);
        let nodes = nodes(asked, &mut existing, types, &named, report)?;
        let provider = asked.provider.as_ref().map(|p| p.value.as_str());
        let mut request = cob_solver::Request {
            services,
            must_coexist: together(&template.mustcoexist, &mut places),
            cant_coexist: together(&template.cantcoexist, &mut places),
            hardware: options(&asked.hardwaretypes.value, &catalog.hardwaretypes, provider),
            images: options(&asked.imagetypes.value, &catalog.imagetypes, provider),
            size: Size { min: limit(&template.min, &mut places), max: limit(&template.max, &mut places) },
            nodes,
            existing,
            changed,
            excluded: beside.excluded.iter().map(|nodes| counted(nodes)).collect(),
            preference: template.preference.as_ref().map(|p| p.value.clone()).unwrap_or_default(),
        };
        let barred = BarredTypes::put(&mut request, beside.barred, || places.id(asked.nodes.mark()));
        if !barred.are_some() {
            request.excluded.extend(beside.failed.iter().map(|nodes| counted(nodes)));
        }
        Ok(Self { request, barred, places: places.0 })
    }

    /// Whether the list lacks some type of hardware of the model.
    pub(super) fn leaves_out(&self, types: &[String]) -> bool {
        let all: Vec<String> = self.request.hardware.iter().map(|option| option.name.clone()).collect();
        self.barred.of_rule(&all).0.iter().any(|name| !types.contains(name))
    }

    /// The place of a rule.
    pub(super) fn place(&self, rule: RuleId) -> Option<Mark> {
        self.places.get(rule.0 as usize).copied()
    }
}

/// The places of rules by their numbers.
struct Places(Vec<Mark>);

impl Places {
    fn id(&mut self, mark: Mark) -> RuleId {
        self.0.push(mark);
        RuleId(u32::try_from(self.0.len() - 1).expect("a model is smaller than 64 MiB"))
    }

    fn rule<T>(&mut self, mark: Mark, value: T) -> Ruled<T> {
        Ruled::new(value, self.id(mark))
    }
}

fn types(list: &Marked<Vec<Marked<String>>>, places: &mut Places) -> Option<Ruled<Vec<String>>> {
    let names: Vec<String> = list.value.iter().map(|t| t.value.clone()).collect();
    (!names.is_empty()).then(|| places.rule(list.mark, names))
}

fn quantities(rule: &Rule, places: &mut Places) -> Quantities {
    let number =
        |n: &Option<Marked<u32>>, places: &mut Places| n.as_ref().map(|n| places.rule(n.mark, u64::from(n.value)));
    let share = |s: &Option<Marked<Share>>, places: &mut Places| {
        let Marked { mark, value } = s.as_ref()?;
        Some(places.rule(*mark, Ratio::new(value.numerator, value.denominator)?))
    };
    Quantities {
        min: number(&rule.min, places),
        max: number(&rule.max, places),
        ratio_min: share(&rule.least, places),
        ratio_max: share(&rule.most, places),
        odd: rule.odd.as_ref().filter(|odd| odd.value).map(|odd| places.id(odd.mark)),
        requires: rule
            .requires
            .iter()
            .map(|(name, count)| places.rule(count.mark, (name.clone(), u64::from(count.value))))
            .collect(),
    }
}

/// The types that new nodes may have. A model without types has a single option without a name.
fn options(names: &[String], types: &Types, provider: Option<&str>) -> Vec<TypeOption> {
    if types.is_empty() {
        return vec![TypeOption::default()];
    }
    let cost = |name: &str| types.get(name).and_then(|t| t.cost(provider)).map_or(0, |cost| cost.0);
    names.iter().map(|name| TypeOption { name: name.clone(), cost: cost(name) }).collect()
}

/// The types of the model's hosts. In a model without types they have no meaning.
#[derive(Clone, Copy)]
struct OwnTypes<'a> {
    hosts: &'a Hosts,
    catalog: &'a Catalog,
}

impl<'a> OwnTypes<'a> {
    /// Hardware and image of a host.
    fn of(self, name: &str) -> [Option<&'a String>; 2] {
        let host = self.hosts.0.get(name);
        let own = |own: Option<&'a String>, types: &Types| own.filter(|_| !types.is_empty());
        [
            own(host.and_then(|h| h.hardwaretype.as_ref()), &self.catalog.hardwaretypes),
            own(host.and_then(|h| h.imagetype.as_ref()), &self.catalog.imagetypes),
        ]
    }
}

/// Gives existing nodes the types of their hosts in the model, and finds the services that can't stay on nodes whose
/// type changed, with the services that move together with these.
fn displaced(asked: &Request<'_>, existing: &mut [ExistingNode], types: OwnTypes<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for node in existing {
        let [hardware, image] = types.of(&node.name);
        let (hardware, image) = (hardware.unwrap_or(&node.hardware).clone(), image.unwrap_or(&node.image).clone());
        if (&hardware, &image) == (&node.hardware, &node.image) {
            continue;
        }
        (node.hardware, node.image) = (hardware, image);
        for service in &node.services {
            let Some(rule) = asked.template.rules.get(service) else { continue };
            let suits = |own: &String, list: &[Marked<String>]| list.is_empty() || list.iter().any(|t| t.value == *own);
            if !suits(&node.hardware, &rule.hardwaretypes.value) || !suits(&node.image, &rule.imagetypes.value) {
                found.insert(service.clone());
            }
        }
    }
    let mut before = 0;
    while before < found.len() {
        before = found.len();
        for rule in &asked.template.mustcoexist {
            if rule.value.iter().any(|service| found.contains(&service.value)) {
                found.extend(rule.value.iter().map(|service| service.value.clone()));
            }
        }
    }
    found
}

/// The number of nodes, or the named nodes. A host of the model that matches a new numbered node has fixed types: if
/// all new nodes have a matching host, the question names these hosts; if only some have, these hosts count as empty
/// nodes.
fn nodes(
    asked: &Request<'_>,
    existing: &mut Vec<ExistingNode>,
    types: OwnTypes<'_>,
    is_named: &dyn Fn(&String) -> bool,
    report: &Report<'_>,
) -> Result<Nodes, Box<Diagnostic>> {
    // A host without stated types gets the types that the cluster asks for.
    let may = [&asked.hardwaretypes.value, &asked.imagetypes.value];
    let only = |types: &[String]| if let [one] = types { one.clone() } else { String::new() };
    let host = |name: &str| {
        let [hardware, image] = types.of(name);
        let (hardware, image) = (hardware.cloned(), image.cloned());
        InventoryHost {
            name: name.to_owned(),
            hardware: hardware.unwrap_or_else(|| only(may[0])),
            image: image.unwrap_or_else(|| only(may[1])),
        }
    };
    let count = match &asked.nodes {
        Wanted::Count(count) => count,
        Wanted::Hosts(wanted) => {
            return Ok(Nodes::Inventory(wanted.value.iter().map(|name| host(name.as_str())).collect()));
        }
    };
    let cluster = &asked.cluster.value;
    let so_many = Nodes::Count(u64::from(count.value));
    let numbered = |name: &str| name.strip_prefix(cluster.as_str()).is_some_and(|rest| rest.starts_with('-'));
    let is_typed = |name: &str| types.of(name).iter().any(Option::is_some);
    let taken: BTreeSet<String> = existing.iter().map(|node| node.name.clone()).collect();
    let missing = asked.nodes.count().saturating_sub(taken.len());
    let new: Vec<String> = free_names(cluster, &taken).take(missing).collect();
    let there = |existing: &[ExistingNode]| {
        let there = existing.iter().map(|node| InventoryHost {
            name: node.name.clone(),
            hardware: node.hardware.clone(),
            image: node.image.clone(),
        });
        Nodes::Inventory(there.chain(new.iter().map(|name| host(name))).collect())
    };
    // Nodes with known properties are distinguished if their types are fixed.
    let is_known = taken.iter().chain(&new).any(is_named) && may.iter().all(|types| types.len() < 2);
    if !types.hosts.0.keys().any(|name| numbered(name.as_str()) && is_typed(name.as_str())) {
        return Ok(if is_known { there(existing) } else { so_many });
    }
    let (typed, open): (Vec<&String>, Vec<&String>) = new.iter().partition(|name| is_typed(name));
    for name in &typed {
        suits(asked, name, types, report)?;
    }
    if typed.is_empty() {
        return Ok(if is_known { there(existing) } else { so_many });
    }
    if open.is_empty() || may.iter().all(|types| types.len() < 2) {
        return Ok(there(existing));
    }
    if existing.is_empty() {
        existing.extend(typed.iter().map(|name| {
            let InventoryHost { name, hardware, image } = host(name);
            ExistingNode { name, services: Vec::new(), hardware, image }
        }));
        return Ok(so_many);
    }
    let what = format!(
        "the cluster `{cluster}` grows by {}, with known types, and by {}, with unknown types",
        quoted(&typed),
        quoted(&open)
    );
    let help = "give the latter types in the section `hosts`, or add the former first";
    Err(Box::new(Diagnostic::error("open-types", what).at(report.place(count.mark)).help(help)))
}

/// Checks that a host that matches a new node can be a node: it states all its types, and they are allowed.
fn suits(asked: &Request<'_>, name: &str, types: OwnTypes<'_>, report: &Report<'_>) -> Result<(), Box<Diagnostic>> {
    let template = asked.template;
    let [hardware, image] = types.of(name);
    for (word, own, may, allowed) in [
        ("hardware type", hardware, &asked.hardwaretypes.value, &template.hardwaretypes),
        ("image type", image, &asked.imagetypes.value, &template.imagetypes),
    ] {
        let (what, help) = match own {
            Some(own) if !allowed.is_empty() && !allowed.iter().any(|t| t.value == *own) => {
                let allowed: Vec<&String> = allowed.iter().map(|t| &t.value).collect();
                let what = format!("the host {name} has the {word} `{own}`, which its template is not compatible with");
                (what, format!("nodes of it may be {}", quoted(&allowed)))
            }
            None if may.len() > 1 => {
                let what = format!("the host {name} does not say its {word}, and is a node by its number");
                (
                    what,
                    format!("write it in the section `hosts`; it may be {}", quoted(&may.iter().collect::<Vec<_>>())),
                )
            }
            Some(_) | None => continue,
        };
        let mut fault = Diagnostic::error("incompatible", what).at(report.place(asked.nodes.mark()));
        if let Some(host) = types.hosts.0.get(name) {
            fault = fault.note(Some(report.place(host.mark)), "the host is here");
        }
        return Err(Box::new(fault.help(help)));
    }
    Ok(())
}

fn existing(node: &LayoutNode) -> ExistingNode {
    let text = |name: &Option<String>| name.clone().unwrap_or_default();
    ExistingNode {
        name: node.name.clone(),
        services: node.services.clone(),
        hardware: text(&node.hardwaretype),
        image: text(&node.imagetype),
    }
}

fn counted(nodes: &[LayoutNode]) -> Vec<Counted> {
    let mut counts: BTreeMap<NodeLayout, u64> = BTreeMap::new();
    for node in nodes {
        let ExistingNode { services, hardware, image, .. } = existing(node);
        *counts.entry(NodeLayout { services, hardware, image }).or_default() += 1;
    }
    counts.into_iter().map(|(layout, count)| Counted { layout, count }).collect()
}
