//! Merges a draft's arrows into dependencies: an entry for each transition or grant.
//!
//! A change object has a single need for each target. The need of several arrows to the same target has the states that
//! all these arrows accept, in the order of the first arrow. Entries and needs are sorted, so their order in a model
//! makes no difference between generations.

use std::sync::Arc;

use cob_types::{CobId, LockNeeds, Need, StateName, TransitionNeeds};

use super::fault::Fault;
use crate::draft::{Arrow, Said, When};

/// The dependencies of a change object, and the arrows behind each need.
pub(super) struct Merged {
    pub(super) transitions: Vec<TransitionNeeds>,
    pub(super) locks: Vec<LockNeeds>,
    /// Sorted by guarded event and target.
    pub(super) arrows: Vec<Arrow>,
}

/// Merges the arrows of a change object; contradictions go to `faults` and are left out.
pub(super) fn merge(id: &CobId, mut arrows: Vec<Arrow>, faults: &mut Vec<Fault>) -> Merged {
    arrows.sort_by(|a, b| a.guards().cmp(&b.guards()));
    let mut merged = Merged { transitions: Vec::new(), locks: Vec::new(), arrows: Vec::with_capacity(arrows.len()) };
    for arrow in arrows {
        // A word may yield the same arrow twice (a list with a duplicate name).
        let same = |a: &&Arrow| a.guards() == arrow.guards();
        if !merged.arrows.iter().rev().take_while(same).any(|known| *known == arrow) {
            merged.arrows.push(arrow);
        }
    }
    for guarded in merged.arrows.chunk_by(|a, b| a.said.when == b.said.when) {
        let mut needs = Vec::with_capacity(guarded.len());
        for written in guarded.chunk_by(|a, b| a.on == b.on) {
            let (when, on) = written[0].guards();
            match common(written) {
                Ok(states) => needs.push(Need { cob: on.clone(), states }),
                Err(two) => {
                    faults.push(Fault::NoCommonState { cob: id.clone(), when: when.clone(), on: on.clone(), two });
                }
            }
        }
        match (&guarded[0].said.when, needs.is_empty()) {
            (_, true) => {}
            (When::Transition { from, to }, false) => {
                merged.transitions.push(TransitionNeeds { from: from.clone(), to: to.clone(), needs });
            }
            (When::Lock { state }, false) => merged.locks.push(LockNeeds { state: state.clone(), needs }),
        }
    }
    merged
}

/// The states that all statements accept, in the order of the first; or two statements without a common state.
fn common(written: &[Arrow]) -> Result<Vec<StateName>, Box<[Arrow; 2]>> {
    let Some((first, rest)) = written.split_first() else { return Ok(Vec::new()) };
    let mut states: Vec<StateName> = Vec::with_capacity(first.said.states.len());
    for state in &first.said.states {
        if !states.contains(state) {
            states.push(state.clone());
        }
    }
    for arrow in rest {
        let kept: Vec<_> = states.iter().filter(|state| arrow.said.states.contains(state)).cloned().collect();
        if kept.is_empty() {
            let left = Arrow { on: first.on.clone(), said: Arc::new(Said { states, ..(*first.said).clone() }) };
            return Err(Box::new([left, arrow.clone()]));
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
    fn needs_of_the_same_pair_are_merged_in_the_first_order() {
        let mut sketch = Sketch::new();
        sketch.kind("wide", &["down", "up", "slow"], &["down>up", "up>down", "up>slow", "slow>up"]);
        sketch.cob_of("wide", "b/db", "up").cob("a/app", "up").cob("c/z", "up");
        sketch.transition("a/app", "down", "up", "c/z@up");
        sketch.transition("a/app", "down", "up", "b/db@slow|up|down");
        sketch.transition("a/app", "down", "up", "b/db@up|slow");
        sketch.lock("a/app", "up", "b/db@up");
        assert_eq!(needs_of(&sketch, "a/app"), ["down -> up: b/db@slow|up, c/z@up", "up: b/db@up"]);
    }

    #[test]
    fn words_that_exclude_each_other_are_refused_with_both_places() {
        let mut sketch = Sketch::new();
        sketch.cob("b/db", "up").cob("a/app", "up");
        sketch.transition("a/app", "down", "up", "b/db@up").transition("a/app", "down", "up", "b/db@down");
        let refusal = sketch.assemble().expect_err("contradiction");
        insta::assert_snapshot!(refusal, @"model.yaml:7:5: a/app to go down -> up needs b/db both in up (needs: [b/db@up], model.yaml:6:5) and in down (needs: [b/db@down], model.yaml:7:5); no state satisfies both");
    }
}
