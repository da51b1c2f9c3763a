//! Gates: between two large services n + m dependencies instead of n x m.
//!
//! When every one of n change objects names every one of m others by the same word, and that makes
//! more than [`MAX_DIRECT`] dependencies, a change object that does nothing is put between: it requires
//! the m, and the n name it instead. That is sound: it is on only while all m are, none of the m leaves
//! its on state before the gate is off, and with `requires` the gate is off only after the n are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_types::CobId;

use super::builtin;
use super::files::Payload;
use super::kinds::Known;
use super::objects::{Home, Object, Objects, Word};
use super::targets::Link;
use crate::model::Mark;

/// The most dependencies between two services without a gate.
const MAX_DIRECT: usize = 1000;

/// The links, with gates where there were too many; the gates are added to the objects.
pub(super) fn thin_out(links: Vec<Link>, objects: &mut Objects) -> Vec<Link> {
    let mut groups: BTreeMap<(Word, Mark, usize), Vec<&Link>> = BTreeMap::new();
    for link in &links {
        if let Some(cluster) = between_services(link, objects) {
            groups.entry((link.word, link.mark, cluster)).or_default().push(link);
        }
    }
    let mut gated: BTreeMap<(Word, Mark, CobId), CobId> = BTreeMap::new();
    let mut added = Vec::new();
    let mut gates: BTreeMap<(Vec<CobId>, String, Word), CobId> = BTreeMap::new();
    for ((word, mark, _), group) in groups.into_iter().filter(|(_, g)| g.len() > MAX_DIRECT) {
        let from: BTreeSet<&CobId> = group.iter().map(|l| &l.from).collect();
        let to: BTreeSet<&CobId> = group.iter().map(|l| &l.to).collect();
        let pairs: BTreeSet<(&CobId, &CobId)> = group.iter().map(|l| (&l.from, &l.to)).collect();
        if from.len() < 2 || to.len() < 2 || pairs.len() != from.len() * to.len() {
            continue;
        }
        let (Some(link), Some(first)) = (group.first(), to.first().copied()) else { continue };
        let (Some(asking), Some(asked)) = (service(objects, &link.from), service(objects, first)) else { continue };
        let to: Vec<CobId> = to.into_iter().cloned().collect();
        // What waits for installations must not wait for more than these.
        let inner = if word == Word::Install { Word::Install } else { Word::Requires };
        let gate = gates.entry((to.clone(), asking.clone(), inner)).or_insert_with(|| {
            let gate = gate(objects, first, &asked, &asking, mark);
            let words = format!("{} (a gate for {asking})", link.words);
            added.extend(to.into_iter().map(|to| Link {
                word: inner,
                from: gate.clone(),
                to,
                words: words.clone(),
                mark,
            }));
            gate
        });
        let words = format!("{} (through the gate {gate})", link.words);
        for from in from {
            added.push(Link { word, from: from.clone(), to: gate.clone(), words: words.clone(), mark });
            gated.insert((word, mark, from.clone()), gate.clone());
        }
    }
    let mut kept: Vec<Link> =
        links.into_iter().filter(|l| !gated.contains_key(&(l.word, l.mark, l.from.clone()))).collect();
    kept.extend(added);
    kept
}

/// The asking cluster, where a link goes from one service to another by a word that a gate can bear.
fn between_services(link: &Link, objects: &Objects) -> Option<usize> {
    match link.word {
        Word::Requires | Word::After | Word::Wants | Word::Install => {}
        // The content of each counts here; a gate has none.
        Word::RestartsOn | Word::ReloadsOn | Word::Excludes => return None,
    }
    let home = |id| objects.get(id).map(|o| &o.home);
    match (home(&link.from), home(&link.to)) {
        (
            Some(Home::Service { cluster, service, .. }),
            Some(Home::Service { cluster: other_cluster, service: other, .. }),
        ) if (cluster, service) != (other_cluster, other) => Some(*cluster),
        _ => None,
    }
}

fn service(objects: &Objects, id: &CobId) -> Option<String> {
    match &objects.get(id)?.home {
        Home::Service { service, .. } => Some(service.to_string()),
        Home::ByHand => None,
    }
}

/// Adds a gate on the host of the first that it stands for.
fn gate(objects: &mut Objects, first: &CobId, asked: &str, asking: &str, mark: Mark) -> CobId {
    let name = |n: usize| match n {
        0 => format!("{asked}/gate.{asking}"),
        n => format!("{asked}/gate.{asking}.{n}"),
    };
    let id = (0..)
        .filter_map(|n| CobId::on(&first.host(), &name(n)).ok())
        .find(|id| objects.get(id).is_none())
        .expect("there are more numbers than change objects");
    let builtin = builtin::named("noop");
    let kind = Known { kind: Arc::new(builtin.kind()), mark: None, builtin: Some(builtin), of_actions: false };
    let object = Object {
        mark,
        home: Home::ByHand,
        preferred: Some(kind.on().clone()),
        kind: Some(kind),
        content: serde_json::json!({}),
        files: Payload::new(),
        explicit: Vec::new(),
        words: Vec::new(),
        budget: None,
        at_most: None,
    };
    objects.all.insert(id.clone(), object);
    id
}
