//! Arrows to dependencies: what a draft writes arrow by arrow becomes one entry a move or promise.
//!
//! One need for each depended-on change object: where several arrows name the same one, the states
//! that all of them accept stay, in the order of the first. Entries and needs are sorted, so the
//! order in which a model names them is no difference between two generations.

use std::collections::BTreeMap;

use cob_types::{CobId, LockNeeds, Need, StateName, TransitionNeeds};

use super::fault::Fault;
use crate::draft::{Arrow, DraftCob, When};
use crate::provenance::Source;

/// The dependencies of one change object, and the words behind each need.
pub(super) struct Merged {
    pub(super) transitions: Vec<TransitionNeeds>,
    pub(super) locks: Vec<LockNeeds>,
    pub(super) sources: BTreeMap<(When, CobId), Vec<Source>>,
}

/// Merges the arrows of `cob`; what contradicts itself goes to `faults` and stays out.
pub(super) fn merge(id: &CobId, cob: &DraftCob, faults: &mut Vec<Fault>) -> Merged {
    let mut sources: BTreeMap<(When, CobId), Vec<Source>> = BTreeMap::new();
    for Arrow { when, need, words, place } in &cob.arrows {
        let source = Source { words: words.clone(), place: place.clone(), states: need.states.clone() };
        let known = sources.entry((when.clone(), need.cob.clone())).or_default();
        // The same word may yield the same arrow twice (a list that names one thing twice).
        if !known.contains(&source) {
            known.push(source);
        }
    }
    let mut guarded: BTreeMap<When, Vec<Need>> = BTreeMap::new();
    for ((when, on), written) in &sources {
        match common(written) {
            Ok(states) => guarded.entry(when.clone()).or_default().push(Need { cob: on.clone(), states }),
            Err(two) => {
                let (cob, when, on) = (id.clone(), when.clone(), on.clone());
                faults.push(Fault::NoCommonState { cob, when, on, two });
            }
        }
    }
    let mut merged = Merged { transitions: Vec::new(), locks: Vec::new(), sources };
    for (when, needs) in guarded {
        match when {
            When::Transition { from, to } => merged.transitions.push(TransitionNeeds { from, to, needs }),
            When::Lock { state } => merged.locks.push(LockNeeds { state, needs }),
        }
    }
    merged
}

/// The states that all writings accept, in the order of the first; or two writings that leave none.
fn common(written: &[Source]) -> Result<Vec<StateName>, Box<[Source; 2]>> {
    let Some((first, rest)) = written.split_first() else { return Ok(Vec::new()) };
    let mut states: Vec<StateName> = Vec::new();
    for state in &first.states {
        if !states.contains(state) {
            states.push(state.clone());
        }
    }
    for source in rest {
        let kept: Vec<_> = states.iter().filter(|state| source.states.contains(state)).cloned().collect();
        if kept.is_empty() {
            let left = Source { words: first.words.clone(), place: first.place.clone(), states };
            return Err(Box::new([left, source.clone()]));
        }
        states = kept;
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sketch;

    fn needs_of(sketch: &Sketch, cob: &str) -> Vec<String> {
        let assembled = sketch.assembled();
        let cob = assembled.generation.bundles.values().find_map(|b| b.cobs.get(cob)).expect("there");
        let moves = cob.transitions.iter().map(|t| (format!("{} -> {}", t.from, t.to), &t.needs));
        let locks = cob.locks.iter().map(|l| (l.state.to_string(), &l.needs));
        moves
            .chain(locks)
            .map(|(what, needs)| {
                let needs: Vec<String> = needs.iter().map(Need::to_string).collect();
                format!("{what}: {}", needs.join(", "))
            })
            .collect()
    }

    #[test]
    fn one_need_a_pair_and_the_first_order_stays() {
        let mut sketch = Sketch::new();
        sketch.kind("wide", &["down", "up", "slow"], &["down>up", "up>down", "up>slow", "slow>up"]);
        sketch.cob_of("wide", "b/db", "up").cob("a/app", "up").cob("c/z", "up");
        sketch.hop("a/app", "down", "up", "c/z@up");
        sketch.hop("a/app", "down", "up", "b/db@slow|up|down");
        sketch.hop("a/app", "down", "up", "b/db@up|slow");
        sketch.lock("a/app", "up", "b/db@up");
        assert_eq!(needs_of(&sketch, "a/app"), ["down -> up: b/db@slow|up, c/z@up", "up: b/db@up"]);
    }

    #[test]
    fn words_that_exclude_each_other_are_refused_with_both_places() {
        let mut sketch = Sketch::new();
        sketch.cob("b/db", "up").cob("a/app", "up");
        sketch.hop("a/app", "down", "up", "b/db@up").hop("a/app", "down", "up", "b/db@down");
        let refusal = sketch.assemble().expect_err("contradiction");
        insta::assert_snapshot!(refusal, @"model.yaml:7:5: a/app to go down -> up needs b/db in a state that is both one of up (needs: [b/db@up], model.yaml:6:5) and one of down (needs: [b/db@down], model.yaml:7:5); no state is");
    }
}
