//! Unwanted services on named nodes, because they have failed there.
//!
//! To the solver, nodes of the same types are alike. So each of these nodes gets its own type of hardware at the same
//! cost, which is allowed for every service except the services that failed on the node.

use std::collections::{BTreeMap, BTreeSet};

use cob_solver::{Nodes, Request, RuleId, Ruled, TypeOption};

use super::Barred;
use super::layout::LayoutNode;

/// The types of hardware that represent single nodes, with the real types of these nodes.
#[derive(Debug, Default)]
pub(super) struct BarredTypes(BTreeMap<String, String>);

impl BarredTypes {
    /// Adds the types to the request. To the solver all nodes without a name are alike, so they get no own type. `rule`
    /// makes the number of a rule that is not in the model.
    pub(super) fn put(request: &mut Request, barred: &Barred, mut rule: impl FnMut() -> RuleId) -> Self {
        let Nodes::Inventory(hosts) = &mut request.nodes else { return Self::default() };
        let mut found = Self::default();
        let mut failed: BTreeMap<String, &BTreeSet<String>> = BTreeMap::new();
        for host in hosts {
            let Some(services) = barred.get(&host.name) else { continue };
            let own = format!("{} of {}", host.hardware, host.name);
            let real = std::mem::replace(&mut host.hardware, own.clone());
            for node in request.existing.iter_mut().filter(|node| node.name == host.name) {
                node.hardware.clone_from(&own);
            }
            let cost = request.hardware.iter().find(|option| option.name == real).map_or(0, |option| option.cost);
            request.hardware.push(TypeOption { name: own.clone(), cost });
            failed.insert(own.clone(), services);
            found.0.insert(own, real);
        }
        if found.0.is_empty() {
            return found;
        }
        let all: Vec<String> = request.hardware.iter().map(|option| option.name.clone()).collect();
        for service in &mut request.services {
            let may = |real: &String, rule: &Option<Ruled<Vec<String>>>| {
                rule.as_ref().is_none_or(|rule| rule.value.contains(real))
            };
            let suits = |name: &&String| match found.0.get(*name) {
                Some(real) => may(real, &service.hardware) && !failed[*name].contains(&service.name),
                None => may(name, &service.hardware),
            };
            let types: Vec<String> = all.iter().filter(suits).cloned().collect();
            match &mut service.hardware {
                Some(rule) => rule.value = types,
                None if types.len() < all.len() => service.hardware = Some(Ruled::new(types, rule())),
                None => {}
            }
        }
        found
    }

    /// A node with its real hardware.
    pub(super) fn as_it_is(&self, mut node: LayoutNode) -> LayoutNode {
        if let Some(real) = node.hardwaretype.as_ref().and_then(|own| self.0.get(own)) {
            node.hardwaretype = (!real.is_empty()).then(|| real.clone());
        }
        node
    }

    /// Whether any node has its own type.
    pub(super) fn are_some(&self) -> bool {
        !self.0.is_empty()
    }

    /// Splits the types of a rule: the types of the model, and the nodes that the rule excludes.
    pub(super) fn of_rule(&self, types: &[String]) -> (Vec<String>, Vec<&str>) {
        let real = types.iter().filter(|name| !self.0.contains_key(*name) && !name.is_empty()).cloned().collect();
        let left_out = self.0.keys().filter(|own| !types.contains(own));
        (real, left_out.filter_map(|own| own.rsplit_once(" of ").map(|(_, node)| node)).collect())
    }
}
