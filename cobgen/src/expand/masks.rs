//! Masks units before their packages are installed. A unit with `mask: true` is masked while it is down: otherwise a
//! package whose scripts start its services could start a service too early or with a wrong configuration.
//!
//! So every package of the host that the service depends on, directly or indirectly, is installed only while the
//! service is down, and therefore masked. The start of the service removes the mask.

use std::collections::{BTreeSet, HashMap};

use cob_types::{CobId, StateName};

use super::Report;
use super::arrows::Arrows;
use super::asks::Word;
use super::kinds::Known;
use super::objects::{Object, Objects};
use super::targets::Link;
use crate::draft::{Said, When};

/// Adds these dependencies.
pub(super) fn before_packages(links: &[Link], objects: &Objects, arrows: &mut Arrows, report: &Report<'_>) {
    let masked: Vec<(&CobId, &Object)> =
        objects.all.iter().filter(|(_, object)| is_masked(object)).map(|(id, object)| (id, &**object)).collect();
    if masked.is_empty() {
        return;
    }
    let mut on: HashMap<&CobId, Vec<&CobId>> = HashMap::new();
    let needs = |link: &&Link| link.word != Word::Excludes && link.from.host_str() == link.to.host_str();
    for link in links.iter().filter(needs) {
        on.entry(&link.from).or_default().push(&link.to);
    }
    for (id, object) in masked {
        let Some(known) = &object.kind else { continue };
        let (mut seen, mut open) = (BTreeSet::from([id]), vec![id]);
        while let Some(at) = open.pop() {
            open.extend(on.get(at).into_iter().flatten().copied().filter(|next| seen.insert(next)));
        }
        let packages = seen.into_iter().filter_map(|package| Some((package, install(objects.get(package)?)?)));
        for (package, when) in packages {
            let said = Said {
                when,
                states: vec![known.off().clone()],
                words: "mask: true".into(),
                place: report.place(object.mark),
            };
            let said = arrows.say(said, object.mark);
            arrows.add(package, id, said);
        }
    }
}

fn is_masked(object: &Object) -> bool {
    let backend = object.kind.as_ref().map(|known| known.kind.backend.as_str());
    backend == Some("service")
        && !object.observe
        && object.content["mask"] == true
        && object.content["unit"].is_string()
}

/// The transition that installs a package; `None`: it is no package, or COB does not install it.
fn install(object: &Object) -> Option<When> {
    let installs =
        |known: &&Known| known.kind.backend == "package" && !object.observe && object.content["root"].is_null();
    let known = object.kind.as_ref().filter(installs)?;
    let (from, to): (StateName, StateName) = (known.off().clone(), known.on().clone());
    known.kind.transitions.iter().any(|t| t.from == from && t.to == to).then_some(When::Transition { from, to })
}
