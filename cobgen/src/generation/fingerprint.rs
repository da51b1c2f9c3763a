//! Fingerprints: the identity of a change object's definition, in sixteen bytes, and of the objects that it relies on.
//!
//! A fingerprint covers the kind, the content, the files, and the fingerprints of the change objects in `restarts_on`,
//! so a change at the far end of a chain affects all that rely on it. Dependencies are not included: a change object
//! takes over changed dependencies in its present state.

use std::collections::{BTreeMap, HashMap};

use cob_types::canonical;
use cob_types::cob::Fingerprint;
use cob_types::codec;
use cob_types::{CobId, KindName};
use rayon::prelude::*;

use super::fault::{Fault, RestartStep};
use crate::draft::{At, Draft, DraftCob, Place};

/// Distinguishes the hashes of this version from later versions.
const FORM: &[u8] = b"cob 1";

/// A change object's own fingerprint, and the fingerprint of the change objects that it relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prints {
    pub(super) own: Fingerprint,
    pub(super) rests_on: Option<Fingerprint>,
}

/// The fingerprints of all change objects of a draft.
pub(super) fn fingerprints(draft: &Draft, faults: &mut Vec<Fault>) -> HashMap<CobId, Prints> {
    let mut kinds: BTreeMap<&KindName, Vec<u8>> = BTreeMap::new();
    for (name, kind) in &draft.kinds {
        match codec::encode(&kind.value) {
            Ok(bytes) => {
                kinds.insert(name, canonical::blob_hash(&bytes).0.to_vec());
            }
            Err(error) => {
                faults.push(Fault::Encoding { what: format!("the kind {name}"), reason: error.to_string() });
            }
        }
    }
    // The caller reports an unknown kind; the fingerprint of its change objects is never used.
    let kind_of = |cob: &DraftCob| kinds.get(&cob.kind).map_or(&[][..], Vec::as_slice);
    let resting_on_nothing: Vec<(&CobId, Result<Fingerprint, codec::CodecError>)> = draft
        .cobs
        .par_iter()
        .filter(|(_, cob)| cob.value.restarts_on.is_empty())
        .map(|(id, cob)| (id, own(kind_of(&cob.value), &cob.value, None)))
        .collect();
    let mut prints: HashMap<CobId, Prints> = HashMap::with_capacity(draft.cobs.len());
    let mut add = |prints: &mut HashMap<CobId, Prints>, id: &CobId, own, rests_on| match own {
        Ok(own) => {
            prints.insert(id.clone(), Prints { own, rests_on });
        }
        Err(error) => {
            let error: codec::CodecError = error;
            faults.push(Fault::Encoding { what: format!("the files of {id}"), reason: error.to_string() });
        }
    };
    for (id, own) in resting_on_nothing {
        add(&mut prints, id, own, None);
    }
    let (order, wrong) = restart_order(draft);
    for id in order {
        let cob = &draft.cobs[id].value;
        let rests_on = rests_on(cob, &prints);
        add(&mut prints, id, own(kind_of(cob), cob, rests_on), rests_on);
    }
    faults.extend(wrong);
    prints
}

fn own(kind: &[u8], cob: &DraftCob, rests_on: Option<Fingerprint>) -> Result<Fingerprint, codec::CodecError> {
    let content = canonical::json(&cob.content);
    let files = codec::encode(&cob.files)?;
    let rests_on = rests_on.as_ref().map_or(&[][..], |print| &print.0[..]);
    Ok(canonical::fingerprint(&[FORM, kind, content.as_bytes(), &files, rests_on]))
}

/// The hash over the change objects in `restarts_on`, independent of their order.
fn rests_on(cob: &DraftCob, prints: &HashMap<CobId, Prints>) -> Option<Fingerprint> {
    let mut named: Vec<&CobId> = cob.restarts_on.iter().collect();
    named.sort_unstable();
    named.dedup();
    if named.is_empty() {
        return None;
    }
    let parts: Vec<&[u8]> = named.iter().filter_map(|id| prints.get(*id)).map(|print| &print.own.0[..]).collect();
    Some(canonical::fingerprint(&parts))
}

/// All change objects with a `restarts_on`, each after the change objects that it names. Unknown names and circles are
/// faults; an arrow that closes a circle is left out, so that the order is complete.
fn restart_order(draft: &Draft) -> (Vec<&CobId>, Vec<Fault>) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        Begun,
        Done,
    }
    let mut marks: HashMap<&CobId, Mark> = HashMap::new();
    let mut order = Vec::new();
    let mut faults = Vec::new();
    let names_others = |cob: &At<DraftCob>| !cob.value.restarts_on.is_empty();
    for (root, _) in draft.cobs.iter().filter(|(_, cob)| names_others(cob)) {
        // The chain from `root` to the current change object, each with the index of its next name. An explicit stack,
        // because a chain may be as long as the model.
        let mut chain: Vec<(&CobId, usize)> = Vec::new();
        if !marks.contains_key(root) {
            marks.insert(root, Mark::Begun);
            chain.push((root, 0));
        }
        while let Some((id, next)) = chain.last_mut() {
            let id = *id;
            let Some(on) = draft.cobs[id].value.restarts_on.get(*next) else {
                marks.insert(id, Mark::Done);
                order.push(id);
                chain.pop();
                continue;
            };
            *next += 1;
            match marks.get(on) {
                Some(Mark::Done) => {}
                Some(Mark::Begun) => {
                    let begin = chain.iter().position(|(member, _)| *member == on).unwrap_or(0);
                    faults.push(circle(draft, &chain[begin..]));
                }
                None => match draft.cobs.get(on) {
                    None => faults.push(Fault::UnknownRestart {
                        cob: id.clone(),
                        on: on.clone(),
                        place: place_of(draft, id, on),
                    }),
                    Some(cob) if names_others(cob) => {
                        marks.insert(on, Mark::Begun);
                        chain.push((on, 0));
                    }
                    Some(_) => {}
                },
            }
        }
    }
    (order, faults)
}

fn circle(draft: &Draft, chain: &[(&CobId, usize)]) -> Fault {
    let steps = chain
        .iter()
        .enumerate()
        .map(|(i, (cob, _))| {
            let on = chain[(i + 1) % chain.len()].0;
            RestartStep { cob: (*cob).clone(), on: on.clone(), place: place_of(draft, cob, on) }
        })
        .collect();
    Fault::RestartCircle { steps }
}

/// The place where `cob` names `on` in `restarts_on`: the word also makes an arrow, which has a place.
fn place_of(draft: &Draft, cob: &CobId, on: &CobId) -> Place {
    let cob = &draft.cobs[cob];
    let to_it = || cob.value.arrows.iter().filter(|arrow| arrow.on == *on);
    to_it()
        .find(|arrow| arrow.said.words.contains("restarts_on") || arrow.said.words.contains("reloads_on"))
        .or_else(|| to_it().next())
        .map_or_else(|| cob.place.clone(), |arrow| arrow.said.place.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sketch;

    fn prints(sketch: &Sketch) -> BTreeMap<CobId, Prints> {
        let mut faults = Vec::new();
        let prints = fingerprints(&sketch.draft, &mut faults);
        assert_eq!(faults, []);
        prints.into_iter().collect()
    }

    fn chain() -> Sketch {
        let mut sketch = Sketch::new();
        sketch.cob("n/a", "up").cob("n/b", "up").cob("n/c", "up").cob("n/d", "up");
        sketch.restarts_on("n/a", "n/b").restarts_on("n/b", "n/c");
        sketch
    }

    #[test]
    fn a_change_alters_the_fingerprints_of_its_dependents_only() {
        let before = prints(&chain());
        let mut sketch = chain();
        sketch.content("n/c", serde_json::json!({"version": 8}));
        let after = prints(&sketch);
        let changed: Vec<&str> = before.iter().filter(|(id, p)| after[*id] != **p).map(|(id, _)| id.as_str()).collect();
        assert_eq!(changed, ["n/a", "n/b", "n/c"]);
        assert_eq!(before["n/c"].rests_on, None);
    }

    #[test]
    fn dependencies_and_the_order_of_names_are_no_part_of_it() {
        let mut sketch = chain();
        sketch.restarts_on("n/d", "n/a").restarts_on("n/d", "n/c");
        let mut other = chain();
        other.restarts_on("n/d", "n/c").restarts_on("n/d", "n/a").requires("n/a", "n/d");
        assert_eq!(prints(&sketch), prints(&other));
    }

    #[test]
    fn kind_files_and_content_are_part_of_it() {
        let base = prints(&chain())["n/d"];
        let mut content = chain();
        content.content("n/d", serde_json::json!([1]));
        let mut file = chain();
        file.file("n/d", "x.conf", b"one");
        let mut kind = chain();
        kind.draft.kinds.values_mut().for_each(|kind| kind.value.check.timeout_ms += 1);
        for changed in [content, file, kind] {
            assert_ne!(prints(&changed)["n/d"], base);
        }
    }

    #[test]
    fn circles_end_with_all_their_places() {
        let mut sketch = chain();
        sketch.restarts_on("n/c", "n/a").restarts_on("n/d", "n/gone");
        let refusal = sketch.assemble().expect_err("circle");
        insta::assert_snapshot!(refusal, @r#"
        model.yaml:7:5: circular dependency of restarts: n/a restarts on n/b (model.yaml:7:5), n/b restarts on n/c (model.yaml:8:5), n/c restarts on n/a (model.yaml:9:5)
        model.yaml:6:5: n/d restarts on n/gone, which does not exist
        "#);
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let mut sketch = Sketch::new();
        for i in 0..20_000 {
            sketch.cob(&format!("n/{i:05}"), "up");
        }
        for i in 0..19_999 {
            sketch.restarts_on(&format!("n/{i:05}"), &format!("n/{:05}", i + 1));
        }
        assert_eq!(prints(&sketch).len(), 20_000);
    }
}
