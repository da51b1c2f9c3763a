//! Gates: n + m dependencies between two large services instead of n × m.
//!
//! If each of n change objects names each of m others by the same word, and that makes more than [`MAX_DIRECT`]
//! dependencies, a change object without an action is put between: it requires the m, and the n name it instead. That
//! is sound: it is on only while all m are, no change object of the m leaves its on state before the gate is off, and
//! with `requires` the gate is off only after the n are.
//!
//! If n + m is more than a change object may serve, each host has its own gate between its change objects and the gate
//! of all: `requires` of `requires` is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_types::{CobId, HostName};
use rayon::prelude::*;

use super::asks::Word;
use super::builtin;
use super::files::Payload;
use super::kinds::Known;
use super::objects::{Object, ObjectOrigin, Objects};
use super::targets::{Link, Many};
use crate::model::Mark;

/// The most dependencies between two services without a gate.
pub(super) const MAX_DIRECT: usize = 1000;
/// The most change objects that name a gate, or that a gate names: together with the needs in the other direction, half
/// of the limit for a change object (docs/decisions/0018).
const MAX_AT_ONE: usize = cob_types::askers::MAX_OF_ONE / 2;

/// The links, with gates where there were too many; the gates are added to the objects. Groups that are known to be too
/// large come as `many`: their links would fill the memory.
pub(super) fn thin_out(links: Vec<Link>, many: Vec<Many>, objects: &mut Objects) -> Vec<Link> {
    let mut groups: BTreeMap<(Word, Mark, usize), Vec<&Link>> = BTreeMap::new();
    let seen = &*objects;
    let between: Vec<_> = links.par_iter().filter_map(|link| Some((link, between_services(link, seen)?))).collect();
    for (link, cluster) in between {
        groups.entry((link.word, link.mark, cluster)).or_default().push(link);
    }
    let mut gated: BTreeSet<(Word, Mark, CobId)> = BTreeSet::new();
    let mut gates = Gates::default();
    for Many { word, from, to, words, mark } in &many {
        let (from, to): (BTreeSet<&CobId>, BTreeSet<&CobId>) = (from.iter().collect(), to.iter().collect());
        gates.put(objects, *word, *mark, words, &from, &to);
    }
    for ((word, mark, _), group) in groups.into_iter().filter(|(_, g)| g.len() > MAX_DIRECT) {
        let from: BTreeSet<&CobId> = group.iter().map(|l| &l.from).collect();
        let to: BTreeSet<&CobId> = group.iter().map(|l| &l.to).collect();
        let pairs: BTreeSet<(&CobId, &CobId)> = group.iter().map(|l| (&l.from, &l.to)).collect();
        if from.len() < 2 || to.len() < 2 || pairs.len() != from.len() * to.len() {
            continue;
        }
        let Some(link) = group.first() else { continue };
        if gates.put(objects, word, mark, &link.words, &from, &to) {
            gated.extend(from.into_iter().map(|from| (word, mark, from.clone())));
        }
    }
    let mut kept: Vec<Link> =
        links.into_iter().filter(|l| !gated.contains(&(l.word, l.mark, l.from.clone()))).collect();
    kept.extend(gates.added);
    kept
}

/// The new gates, with the links to and from these gates.
#[derive(Default)]
struct Gates {
    made: BTreeMap<(Vec<CobId>, String, Word), CobId>,
    /// The gates of a host that represent another gate there.
    of_host: BTreeMap<(CobId, HostName), CobId>,
    added: Vec<Link>,
}

/// The services on both sides of a gate, with the words that made it.
struct Between<'a> {
    asked: String,
    asking: String,
    /// The word of the gate itself: dependents of installations must wait only for the installations.
    inner: Word,
    words: &'a str,
    mark: Mark,
}

impl Gates {
    /// Puts a gate between; returns whether there is a gate now.
    fn put(
        &mut self,
        objects: &mut Objects,
        word: Word,
        mark: Mark,
        words: &str,
        from: &BTreeSet<&CobId>,
        to: &BTreeSet<&CobId>,
    ) -> bool {
        let (Some(asker), Some(first)) = (from.first().copied(), to.first().copied()) else { return false };
        let (Some(asking), Some(asked)) = (service(objects, asker), service(objects, first)) else { return false };
        let inner = if word == Word::Install { Word::Install } else { Word::Requires };
        let between = Between { asked, asking, inner, words, mark };
        // Beyond this number each host gets its own gate: no change object may have that many dependents.
        let by_host = from.len() + to.len() > MAX_AT_ONE;
        let to = match by_host {
            true => self.gathered(objects, to, &between),
            false => to.iter().map(|id| (*id).clone()).collect(),
        };
        let gate = self.gate_of(objects, to, &between);
        for askers in hosts_of(from).into_values() {
            let gate = match askers.as_slice() {
                [_, _, ..] if by_host => self.gate_on(objects, &gate, &askers[0].host(), &between),
                _ => gate.clone(),
            };
            let words: Arc<str> = format!("{words} (through the gate {gate})").into();
            let link = |from: &CobId| Link { word, from: from.clone(), to: gate.clone(), words: words.clone(), mark };
            self.added.extend(askers.into_iter().map(link));
        }
        true
    }

    /// The targets, with a gate for several targets on the same host.
    fn gathered(&mut self, objects: &mut Objects, to: &BTreeSet<&CobId>, between: &Between<'_>) -> Vec<CobId> {
        let gathered = hosts_of(to).into_values().map(|of_host| match of_host.as_slice() {
            [one] => (*one).clone(),
            several => self.gate_of(objects, several.iter().map(|id| (*id).clone()).collect(), between),
        });
        gathered.collect()
    }

    /// The gate that requires all of these targets.
    fn gate_of(&mut self, objects: &mut Objects, to: Vec<CobId>, between: &Between<'_>) -> CobId {
        let key = (to, between.asking.clone(), between.inner);
        if let Some(gate) = self.made.get(&key) {
            return gate.clone();
        }
        let gate = gate(objects, &key.0[0].host(), between);
        self.link(&gate, &key.0, between);
        self.made.insert(key, gate.clone());
        gate
    }

    /// The gate of a host that represents another gate there.
    fn gate_on(&mut self, objects: &mut Objects, of: &CobId, host: &HostName, between: &Between<'_>) -> CobId {
        let key = (of.clone(), host.clone());
        if let Some(gate) = self.of_host.get(&key) {
            return gate.clone();
        }
        let gate = gate(objects, host, between);
        self.link(&gate, std::slice::from_ref(of), between);
        self.of_host.insert(key, gate.clone());
        gate
    }

    fn link(&mut self, gate: &CobId, to: &[CobId], between: &Between<'_>) {
        let Between { asking, inner, words, mark, .. } = between;
        let words: Arc<str> = format!("{words} (a gate for {asking})").into();
        let link =
            |to: &CobId| Link { word: *inner, from: gate.clone(), to: to.clone(), words: words.clone(), mark: *mark };
        self.added.extend(to.iter().map(link));
    }
}

/// Groups change objects by host, in the order of ids.
fn hosts_of<'c>(cobs: &BTreeSet<&'c CobId>) -> BTreeMap<&'c str, Vec<&'c CobId>> {
    let mut hosts: BTreeMap<&str, Vec<&CobId>> = BTreeMap::new();
    for cob in cobs {
        hosts.entry(cob.host_str()).or_default().push(cob);
    }
    hosts
}

/// The requesting cluster, if a link leads from a service to another by a word that works through a gate.
fn between_services(link: &Link, objects: &Objects) -> Option<usize> {
    match link.word {
        Word::Requires | Word::After | Word::Wants | Word::Install => {}
        // These words depend on the content of each target; a gate has no content.
        Word::RestartsOn | Word::ReloadsOn | Word::Excludes => return None,
    }
    let home = |id| objects.get(id).map(|o| &o.home);
    match (home(&link.from), home(&link.to)) {
        (
            Some(ObjectOrigin::Service { cluster, service, .. }),
            Some(ObjectOrigin::Service { cluster: other_cluster, service: other, .. }),
        ) if (cluster, service) != (other_cluster, other) => Some(*cluster),
        _ => None,
    }
}

fn service(objects: &Objects, id: &CobId) -> Option<String> {
    match &objects.get(id)?.home {
        ObjectOrigin::Service { service, .. } => Some(service.to_string()),
        ObjectOrigin::ByHand => None,
    }
}

/// Adds a gate on a host.
fn gate(objects: &mut Objects, host: &HostName, between: &Between<'_>) -> CobId {
    let Between { asked, asking, mark, .. } = between;
    let name = |n: usize| match n {
        0 => format!("{asked}/gate.{asking}"),
        n => format!("{asked}/gate.{asking}.{n}"),
    };
    let id = (0..)
        .filter_map(|n| CobId::on(host, &name(n)).ok())
        .find(|id| objects.get(id).is_none())
        .expect("there are more numbers than change objects");
    let kind = Known::of(builtin::named("noop"));
    let object = Object {
        mark: *mark,
        home: ObjectOrigin::ByHand,
        preferred: Some(kind.on().clone()),
        kind: Some(kind),
        content: serde_json::json!({}),
        files: Payload::new(),
        explicit: Vec::new(),
        asks: Arc::default(),
        budget: None,
        at_most: None,
        keep: false,
        observe: false,
    };
    objects.all.insert(id.clone(), Box::new(object));
    id
}
