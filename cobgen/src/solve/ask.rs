//! From what a cluster asks for to what the solver is asked, with the place of every rule.

use std::collections::{BTreeMap, BTreeSet};

use cob_solver::{
    Counted, ExistingNode, InventoryHost, NodeLayout, Nodes, Quantities, Ratio, RuleId, Ruled, ServiceRule, Size,
    TypeOption,
};

use super::layout::LayoutNode;
use crate::catalog::{Catalog, Request, Rule, Share, Types, Wanted};
use crate::expand::hosts::Hosts;
use crate::model::{Mark, Marked};

/// What the solver is asked, and where its rules stand.
pub(super) struct Question {
    pub(super) request: cob_solver::Request,
    places: Vec<Mark>,
}

/// What is known beside the model.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside<'a> {
    /// The cluster as it is; empty: it is new.
    pub(super) existing: &'a [LayoutNode],
    /// Layouts that are not wanted.
    pub(super) excluded: &'a [&'a [LayoutNode]],
}

impl Question {
    pub(super) fn of(asked: &Request<'_>, catalog: &Catalog, hosts: &Hosts, beside: Beside<'_>) -> Self {
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
        let existing: Vec<ExistingNode> = beside.existing.iter().map(existing).collect();
        let there: BTreeSet<&String> = beside.existing.iter().flat_map(|n| &n.services).collect();
        let changed = asked.services.iter().map(|s| &s.value).filter(|s| !there.contains(s)).cloned().collect();
        let provider = asked.provider.as_ref().map(|p| p.value.as_str());
        let request = cob_solver::Request {
            services,
            must_coexist: together(&template.mustcoexist, &mut places),
            cant_coexist: together(&template.cantcoexist, &mut places),
            hardware: options(&asked.hardwaretypes.value, &catalog.hardwaretypes, provider),
            images: options(&asked.imagetypes.value, &catalog.imagetypes, provider),
            size: Size { min: limit(&template.min, &mut places), max: limit(&template.max, &mut places) },
            nodes: nodes(asked, hosts),
            existing,
            changed,
            excluded: beside.excluded.iter().map(|nodes| counted(nodes)).collect(),
            preference: template.preference.as_ref().map(|p| p.value.clone()).unwrap_or_default(),
        };
        Self { request, places: places.0 }
    }

    /// Where a rule stands.
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

/// The types that new nodes may have. A model without any has one, without a name.
fn options(names: &[String], types: &Types, provider: Option<&str>) -> Vec<TypeOption> {
    if types.is_empty() {
        return vec![TypeOption::default()];
    }
    let cost = |name: &str| types.get(name).and_then(|t| t.cost(provider)).map_or(0, |cost| cost.0);
    names.iter().map(|name| TypeOption { name: name.clone(), cost: cost(name) }).collect()
}

fn nodes(asked: &Request<'_>, hosts: &Hosts) -> Nodes {
    match &asked.nodes {
        Wanted::Count(count) => Nodes::Count(u64::from(count.value)),
        Wanted::Hosts(wanted) => {
            // A host that does not say what it is, is what the cluster asks for.
            let only = |types: &[String]| if let [one] = types { one.clone() } else { String::new() };
            let host = |name: &cob_types::HostName| {
                let host = hosts.0.get(name);
                InventoryHost {
                    name: name.as_str().to_owned(),
                    hardware: host
                        .and_then(|h| h.hardwaretype.clone())
                        .unwrap_or_else(|| only(&asked.hardwaretypes.value)),
                    image: host.and_then(|h| h.imagetype.clone()).unwrap_or_else(|| only(&asked.imagetypes.value)),
                }
            };
            Nodes::Inventory(wanted.value.iter().map(host).collect())
        }
    }
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
