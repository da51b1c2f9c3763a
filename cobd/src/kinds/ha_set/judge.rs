//! The state of a set, from the configuration, the monitor and the cluster's own plans.

use std::collections::{BTreeMap, BTreeSet};

use cob_kinds::HaSet;

use super::cib::{Cib, decided, is_marked};
use super::elements::{Place, Section, primitives, wanted};
use super::monitor::Monitor;
use super::note::Note;
use super::simulation::{Action, listed};
use super::xml::Xml;

/// The begin of the ids with which `crm_resource` bans and moves resources.
const BY_OPERATORS: &str = "cli-";

/// A content with its elements.
#[derive(Debug, Clone)]
pub(super) struct Set {
    pub(super) content: HaSet,
    pub(super) wanted: BTreeMap<Place, Xml>,
}

/// A state with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) state: &'static str,
    /// Why it is not up.
    pub(super) why: Vec<String>,
    /// What operators have decided, and past failures.
    pub(super) drift: Vec<String>,
    /// Whether the cluster is at work on the set.
    pub(super) is_busy: bool,
}

impl Verdict {
    /// Its reasons and drifts as text.
    pub(super) fn text(&self) -> String {
        self.why.iter().chain(&self.drift).cloned().collect::<Vec<_>>().join("; ")
    }
}

impl Set {
    /// The set of a content.
    ///
    /// # Errors
    /// The fault of a value, as text.
    pub(super) fn of(content: HaSet) -> Result<Self, String> {
        Ok(Self { wanted: wanted(&content)?, content })
    }

    /// The places of the outermost resources.
    pub(super) fn resources(&self) -> impl Iterator<Item = &Place> {
        self.wanted.keys().filter(|place| place.0 == Section::Resources)
    }

    /// The ids of all resources, groups and clones.
    pub(super) fn resource_ids(&self) -> BTreeSet<String> {
        self.content.ids().filter(|(key, _)| *key != "constraints").map(|(_, id)| id.to_owned()).collect()
    }

    /// The ids of its primitives, with whether instances have to be promoted.
    fn primitives(&self) -> Vec<(String, bool)> {
        let all = self.wanted.iter().filter(|(place, _)| place.0 == Section::Resources);
        let each = all.flat_map(|(_, element)| {
            let is_promotable = element.tag == "clone"
                && element.children.iter().filter(|set| set.tag == "meta_attributes").any(|set| {
                    set.children.iter().any(|pair| pair.is("name", "promotable") && pair.is("value", "true"))
                });
            primitives(element).into_iter().map(move |one| (one.id().to_owned(), is_promotable))
        });
        each.collect()
    }

    /// The state. `planned` are the actions that the cluster is about to take.
    pub(super) fn judge(
        &self,
        note: Option<&Note>,
        cib: &Cib,
        monitor: &Monitor,
        planned: &BTreeSet<Action>,
    ) -> Verdict {
        let ids: BTreeSet<String> = self.primitives().into_iter().map(|(id, _)| id).collect();
        let busy: Vec<&Action> = planned.iter().filter(|action| ids.contains(&action.resource)).collect();
        let mut drift = self.decisions(cib);
        drift.extend(self.primitives().iter().filter_map(|(id, _)| monitor.past_failures(id)));
        let verdict = |state, why| Verdict { state, why, drift: drift.clone(), is_busy: !busy.is_empty() };
        let is_there = |place: &&Place| place.0 != Section::Properties && cib.find(place).is_some();
        let found: Vec<&str> = self.wanted.keys().filter(is_there).map(|(_, id)| id.as_str()).collect();
        if note.is_none() && found.is_empty() {
            return Verdict { drift: Vec::new(), ..verdict("absent", Vec::new()) };
        }
        let mut wrong: Vec<String> = cib.differences(&self.wanted).into_values().collect();
        match note {
            None => wrong.push(format!("the cluster has already, made by others: {}", found.join(", "))),
            Some(note) => {
                let former = note.places().filter(|place| !self.wanted.contains_key(*place));
                wrong.extend(former.map(|(_, id)| format!("{id} is not in the model any more")));
            }
        }
        let marked = self.resources().filter(|place| cib.find(place).is_some_and(is_marked)).count();
        let all = self.resources().count();
        if wrong.is_empty() && marked > 0 && marked < all {
            let stopped = self.resources().filter(|place| cib.find(place).is_some_and(is_marked));
            wrong.extend(stopped.map(|(_, id)| format!("{id} is kept stopped")));
        }
        if !wrong.is_empty() {
            return verdict("outdated", wrong);
        }
        if marked == all {
            let active = ids.iter().filter(|id| !monitor.nodes(id).is_empty());
            let active: Vec<String> = active.map(|id| format!("{id} is still running")).collect();
            return verdict(if active.is_empty() { "stopped" } else { "degraded" }, active);
        }
        let each = self.primitives();
        let mut why: Vec<String> =
            each.iter().filter_map(|(id, is_promotable)| monitor.why_not_up(id, *is_promotable)).collect();
        if !busy.is_empty() {
            why.push(format!("the cluster is about to {}", listed(busy.iter().copied())));
        }
        verdict(if why.is_empty() { "up" } else { "degraded" }, why)
    }

    /// The decisions of operators about resources of the set.
    fn decisions(&self, cib: &Cib) -> Vec<String> {
        let found = self.resources().filter_map(|place| cib.find(place));
        let pairs = found.flat_map(decided).filter(|(_, name, value)| !is_default(name, value));
        let mut all: Vec<String> =
            pairs.map(|(id, name, value)| format!("an operator has set {name}={value} for {id}")).collect();
        let ids = self.resource_ids();
        let by_operator = cib.constraints().filter(|one| one.id().starts_with(BY_OPERATORS));
        let own = by_operator.filter(|one| one.attribute("rsc").is_some_and(|rsc| ids.contains(rsc)));
        all.extend(own.map(|one| format!("an operator has placed {}", one.id())));
        all
    }
}

/// Whether a decision is what holds without it.
fn is_default(name: &str, value: &str) -> bool {
    match name {
        "target-role" => ["Started", "Promoted", "Master"].contains(&value),
        "is-managed" => value == "true",
        _ => value == "false",
    }
}
