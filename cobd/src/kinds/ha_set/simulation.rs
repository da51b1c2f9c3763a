//! The judgement of simulated actions: each action has to be the purpose of a transition, or allowed.

use std::collections::BTreeSet;
use std::fmt;

use cob_kinds::{HaSet, Interruption};

use super::xml::Xml;

/// An action that the cluster would take, as `crm_simulate` reports it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Action {
    /// The resource without the number of its instance. A node, if it is fenced.
    pub(super) resource: String,
    /// Its word.
    word: String,
    /// The nodes, and the reason.
    about: String,
}

/// The purpose of a change allows actions on own resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Own resources change, but do not start or stop.
    Define,
    /// Own resources stop.
    Stop,
    /// Own resources start.
    Start,
    /// The earlier elements return, and their resources start.
    Return,
}

impl Action {
    /// The actions in the output of `crm_simulate --run --output-as=xml`.
    ///
    /// # Errors
    /// The fault of the text.
    pub(super) fn read(text: &str) -> Result<BTreeSet<Self>, String> {
        let root = Xml::read(text)?;
        let actions = root.child("actions").ok_or("the answer of crm_simulate has no actions")?;
        let mut all = BTreeSet::new();
        for action in &actions.children {
            let get = |name: &str| action.attribute(name);
            let resource = get("resource").or_else(|| get("node")).unwrap_or_default();
            let word = get("action").or_else(|| get("task")).unwrap_or(&action.tag).to_owned();
            let from = get("source").map(|node| format!(" from {node}"));
            let to = get("dest").map(|node| format!(" to {node}"));
            let on = get("node").filter(|_| get("resource").is_some()).map(|node| format!(" on {node}"));
            let why = get("reason").map(|why| format!(" ({why})"));
            let about = [from, to, on, why].into_iter().flatten().collect();
            all.insert(Self { resource: bare(resource).to_owned(), word, about });
        }
        Ok(all)
    }

    /// Its sort. `None`: it is of another sort, such as the fencing of a node.
    fn interruption(&self) -> Option<Interruption> {
        match self.word.as_str() {
            "start" => Some(Interruption::Start),
            "stop" => Some(Interruption::Stop),
            "restart" | "recover" => Some(Interruption::Restart),
            "move" | "migrate" => Some(Interruption::Move),
            "promote" | "re-promote" => Some(Interruption::Promote),
            "demote" => Some(Interruption::Demote),
            _ => None,
        }
    }

    /// Whether it interrupts no service.
    fn is_harmless(&self) -> bool {
        ["reload", "reload-agent", "monitor", "leave", "noop"].contains(&self.word.as_str())
    }

    fn is_allowed(&self, content: &HaSet, own: &BTreeSet<String>, purpose: Purpose) -> bool {
        let Some(interruption) = self.interruption() else { return self.is_harmless() };
        let is_purpose = match purpose {
            Purpose::Define => false,
            Purpose::Stop => matches!(interruption, Interruption::Stop | Interruption::Demote),
            Purpose::Start | Purpose::Return => matches!(interruption, Interruption::Start | Interruption::Promote),
        };
        (is_purpose && own.contains(&self.resource)) || content.allows(&self.resource, interruption)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.word, self.resource, self.about)
    }
}

/// The actions that a change would cause and the model does not allow.
pub(super) fn refused<'a>(
    actions: impl IntoIterator<Item = &'a Action>,
    content: &HaSet,
    own: &BTreeSet<String>,
    purpose: Purpose,
) -> Vec<&'a Action> {
    actions.into_iter().filter(|action| !action.is_allowed(content, own, purpose)).collect()
}

/// The actions as text.
pub(super) fn listed<'a>(actions: impl IntoIterator<Item = &'a Action>) -> String {
    actions.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The id of a resource without the number of its instance: `web:0` is an instance of `web`.
pub(super) fn bare(resource: &str) -> &str {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    resource.rsplit_once(':').filter(|(_, end)| number(end)).map_or(resource, |(id, _)| id)
}
