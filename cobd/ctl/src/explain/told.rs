//! The explanation for people and programs: a sentence, a tree, JSON.

use std::collections::BTreeSet;

use cob_types::status::{CobStatus, HostStatus, InvalidGrant};
use cob_types::{CobId, GenerationNumber, StateName};
use serde::Serialize;

use super::cause::{Cause, CauseKind};
use super::walk::{Edge, Explanation, Place, Seen, Then, Why};
use crate::words::{ago, heading, invalid_grant, phase, span, state};

/// The most steps of a chain in the sentence; a longer chain is cut in the middle.
const TOLD: usize = 8;
/// The most lines of the tree.
const LINES: usize = 200;
/// The greatest depth of the tree.
const DEPTH: usize = 24;

/// The JSON of `cobctl explain`. New versions only add fields.
#[derive(Debug, Clone, Serialize)]
pub struct Explained {
    /// The change object of the question.
    pub cob: CobId,
    /// The answer in a sentence.
    pub answer: String,
    /// The first cause.
    pub first_cause: ExplainedCause,
    /// The change objects from the question to the first cause.
    pub chain: Vec<CobId>,
    /// All visited change objects, first the object of the question.
    pub cobs: Vec<ExplainedCob>,
    /// Whether the walk stopped at its limit.
    pub cut: bool,
    /// Invalidated grants that it gave or held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "lapses")]
    pub invalid_grants: Vec<InvalidGrant>,
}

/// A first cause.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedCause {
    /// Its change object.
    pub cob: CobId,
    /// Its type.
    pub cause: CauseKind,
    /// In words.
    pub text: String,
    /// A hint; empty: wait.
    pub hint: String,
}

/// A change object in the walk.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedCob {
    /// Its id.
    pub id: CobId,
    /// Its state; null: unknown, or its host was not reached.
    pub state: Option<StateName>,
    /// Its desired state.
    pub target: Option<StateName>,
    /// The generation that is active on its host.
    pub generation: Option<GenerationNumber>,
    /// Its waits for other change objects.
    pub waits: Vec<ExplainedWait>,
    /// Its waits that lead to no other change object.
    pub causes: Vec<ExplainedCause>,
}

/// A wait.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedWait {
    /// The change object that it waits for.
    pub cob: CobId,
    /// In words.
    pub text: String,
    /// The duration, in nanoseconds by the clock of the waiter's host.
    pub for_ns: u64,
}

impl Explanation<'_> {
    /// The answer in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut parts: Vec<String> = self.chain.iter().map(|e| e.words.clone()).collect();
        if parts.len() > TOLD {
            let left_out = parts.len() - (TOLD - 1);
            parts.splice(2..2 + left_out, [format!("waits for a chain of {left_out} more")]);
        }
        parts.push(self.first.words.clone());
        format!("{} {}", self.subject(), parts.join(", which "))
    }

    /// The change object and its desired state: `n3/lb up`.
    fn subject(&self) -> String {
        match (self.seen.get(&self.cob), self.first.kind) {
            (Some(Seen::Found(_, cob)), kind) if kind != CauseKind::Settled => match &cob.target {
                Some(target) => format!("{} {target}", self.cob),
                None => self.cob.to_string(),
            },
            (Some(_) | None, _) => self.cob.to_string(),
        }
    }

    /// The change object with the first cause.
    #[must_use]
    pub fn culprit(&self) -> &CobId {
        self.chain.last().map_or(&self.cob, |edge| &edge.to)
    }

    /// All branches, indented, in lines.
    #[must_use]
    pub fn tree(&self) -> Vec<String> {
        let mut tree = Tree { of: self, lines: Vec::new(), shown: BTreeSet::new() };
        tree.lines.push(format!("{}: {}", self.cob, self.place_words(&self.cob)));
        tree.lines.extend(self.invalid_grants().map(|(host, l)| invalid_grant(host, l)));
        if let Some(Seen::Found(host, cob)) = self.seen.get(&self.cob) {
            for holder in &cob.held_by {
                let back = if holder.recalled { ", recalled" } else { "" };
                tree.lines.push(format!("held in {} by {}{back}", holder.state, holder.cob));
            }
            if host.paused {
                let why =
                    host.held.map(|g| format!(": the switch to generation {g} was cancelled")).unwrap_or_default();
                tree.lines.push(format!("{} is paused{why}", host.name));
            }
        }
        tree.below(&(self.cob.clone(), self.why), &mut String::new(), 0);
        if tree.lines.len() >= LINES || self.cut {
            tree.lines.truncate(LINES);
            tree.lines.push("… (more: --json)".to_owned());
        }
        tree.lines
    }

    /// Invalidated grants that the object of the question gave or held.
    fn invalid_grants(&self) -> impl Iterator<Item = (&HostStatus, &InvalidGrant)> {
        let host = match self.seen.get(&self.cob) {
            Some(Seen::Found(host, _) | Seen::Absent(host)) => Some(*host),
            Some(Seen::Unreachable(_) | Seen::NotAsked) | None => None,
        };
        let of_host = host.into_iter().flat_map(|host| host.invalid_grants.iter().map(move |l| (host, l)));
        of_host.filter(|(_, l)| l.of == self.cob || l.held_by == self.cob)
    }

    /// The explanation as JSON.
    #[must_use]
    pub fn told(&self) -> Explained {
        let mut chain = vec![self.cob.clone()];
        chain.extend(self.chain.iter().map(|e| e.to.clone()));
        let mut ids: Vec<&CobId> = self.seen.keys().filter(|id| **id != self.cob).collect();
        ids.insert(0, &self.cob);
        Explained {
            cob: self.cob.clone(),
            answer: self.sentence(),
            first_cause: told_cause(self.culprit(), &self.first),
            chain,
            cobs: ids.into_iter().map(|id| self.told_cob(id)).collect(),
            cut: self.cut,
            invalid_grants: self.invalid_grants().map(|(_, l)| l.clone()).collect(),
        }
    }

    fn told_cob(&self, id: &CobId) -> ExplainedCob {
        let (host, cob) = match self.seen.get(id) {
            Some(Seen::Found(host, cob)) => (Some(*host), Some(*cob)),
            Some(Seen::Absent(host)) => (Some(*host), None),
            Some(Seen::Unreachable(_) | Seen::NotAsked) | None => (None, None),
        };
        let places =
            [Why::Away, Why::Holding, Why::Drained, Why::Leaving].map(|why| self.places.get(&(id.clone(), why)));
        let found = || places.iter().flatten();
        let waits = found().flat_map(|f| &f.edges).map(|e| ExplainedWait {
            cob: e.to.clone(),
            text: e.words.clone(),
            for_ns: e.for_ns,
        });
        let own = found().flat_map(|f| &f.causes).map(|c| told_cause(id, c));
        let between = found().flat_map(|f| &f.edges).filter_map(|e| match &e.then {
            Then::Stop(cause) => Some(told_cause(&e.to, cause)),
            Then::Ask(_) => None,
        });
        ExplainedCob {
            id: id.clone(),
            state: cob.and_then(|c| c.state.clone()),
            target: cob.and_then(|c| c.target.clone()),
            generation: host.and_then(|h| h.generation),
            waits: waits.collect(),
            causes: own.chain(between).collect(),
        }
    }

    fn place_words(&self, id: &CobId) -> String {
        match self.seen.get(id) {
            Some(Seen::Found(host, cob)) => summary(cob, host.now_ns),
            Some(Seen::Absent(_)) => "not there".to_owned(),
            Some(Seen::Unreachable(_)) => "its host can't be reached".to_owned(),
            Some(Seen::NotAsked) | None => "its host was not asked".to_owned(),
        }
    }

    fn is_first(&self, id: &CobId, cause: &Cause) -> bool {
        id == self.culprit() && *cause == self.first
    }
}

/// `down → up, waiting for 12 s`.
fn summary(cob: &CobStatus, now_ns: u64) -> String {
    let preferred = if cob.target.is_some() && cob.target.as_ref() != Some(&cob.preferred) {
        format!(" (preferred: {})", cob.preferred)
    } else {
        String::new()
    };
    let leaving = if cob.retiring { ", departing" } else { "" };
    let heading = if cob.state.is_none() { state(None).to_owned() } else { heading(cob) };
    format!("{heading}{preferred}, {} for {}{leaving}", phase(cob), ago(now_ns, cob.since_ns))
}

fn told_cause(cob: &CobId, cause: &Cause) -> ExplainedCause {
    ExplainedCause { cob: cob.clone(), cause: cause.kind, text: cause.words.clone(), hint: cause.hint.clone() }
}

struct Tree<'e, 'a> {
    of: &'e Explanation<'a>,
    lines: Vec<String>,
    shown: BTreeSet<Place>,
}

impl Tree<'_, '_> {
    fn below(&mut self, place: &Place, indent: &mut String, depth: usize) {
        let Some(found) = self.of.places.get(place) else { return };
        if self.lines.len() >= LINES {
            return;
        }
        let last = found.causes.len() + found.edges.len();
        let mut at = 0;
        for cause in &found.causes {
            at += 1;
            self.cause(&place.0, cause, indent, at == last);
        }
        for edge in &found.edges {
            at += 1;
            self.edge(edge, indent, at == last, depth);
        }
    }

    fn cause(&mut self, id: &CobId, cause: &Cause, indent: &str, last: bool) {
        let first = if self.of.is_first(id, cause) { "  ← first cause" } else { "" };
        self.push(indent, last, &format!("{}{first}", cause.words));
    }

    fn edge(&mut self, edge: &Edge, indent: &mut String, last: bool, depth: usize) {
        let target = format!("{}: {}", edge.to, self.of.place_words(&edge.to));
        let line = format!("{} (for {}) · {target}", edge.words, span(edge.for_ns));
        let length = indent.len();
        match &edge.then {
            Then::Stop(cause) => {
                self.push(indent, last, &line);
                indent.push_str(if last { "   " } else { "│  " });
                self.cause(&edge.to, cause, indent, true);
            }
            Then::Ask(why) => {
                let place = (edge.to.clone(), *why);
                if !self.shown.insert(place.clone()) {
                    self.push(indent, last, &format!("{line} (see above)"));
                } else if depth == DEPTH {
                    self.push(indent, last, &format!("{line} …"));
                } else {
                    self.push(indent, last, &line);
                    indent.push_str(if last { "   " } else { "│  " });
                    self.below(&place, indent, depth + 1);
                }
            }
        }
        indent.truncate(length);
    }

    fn push(&mut self, indent: &str, last: bool, text: &str) {
        if self.lines.len() < LINES {
            self.lines.push(format!("{indent}{} {text}", if last { "└─" } else { "├─" }));
        }
    }
}
