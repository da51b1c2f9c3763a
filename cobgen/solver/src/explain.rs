//! Why there is no layout: a minimal set of rules that contradict each other.
//!
//! Rules are taken away, first many at once, then fewer, as long as there is still no layout. Fewer rules
//! never make a request harder, so a rule without which there was a layout at any time of this stays needed.

use crate::compile::{Selection, compile};
use crate::outcome::Explanation;
use crate::request::Preference;
use crate::solve::subsets_by_size;
use crate::spec::{Kind, Spec};
use crate::steps::{OutOfSteps, Steps};
use crate::{outside, relax};

/// Explains a request that has no layout.
pub(crate) fn explain(spec: &Spec, steps: &mut Steps) -> Explanation {
    let mut active = vec![true; spec.rules.len()];
    let minimal = minimize(spec, &mut active, steps).and_then(|()| settle(spec, &mut active, steps)).is_ok();
    let core: Vec<_> = (0..spec.rules.len()).filter(|at| active[*at]).collect();
    let relaxations = if minimal { relax::relaxations(spec, &core, steps) } else { Vec::new() };
    let mut core: Vec<_> = core.into_iter().map(|at| spec.describe(&spec.rules[at])).collect();
    core.sort();
    Explanation { core, minimal, relaxations }
}

/// Whether there is a layout under these rules.
///
/// # Errors
/// When the steps run out.
pub(crate) fn solvable(spec: &Spec, active: &[bool], steps: &mut Steps) -> Result<bool, OutOfSteps> {
    let excludes = spec.rules.iter().zip(active).any(|(rule, on)| *on && matches!(rule.kind, Kind::Excluded(_)));
    if !(excludes && spec.preference == Preference::FewestImages) {
        return solvable_with(spec, Selection { active, images: None }, steps);
    }
    // Which image a service set gets depends on those that may be used, and what is unwanted on it.
    for images in subsets_by_size(spec.images.len()) {
        if solvable_with(spec, Selection { active, images: Some(&images) }, steps)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn solvable_with(spec: &Spec, selection: Selection<'_>, steps: &mut Steps) -> Result<bool, OutOfSteps> {
    match compile(spec, selection, steps)? {
        Some(compiled) => Ok(outside::exists(spec, &compiled, selection.active, steps)?.is_some()),
        None => Ok(false),
    }
}

/// Switches rules off until every one that is left is needed for the contradiction.
///
/// # Errors
/// When the steps run out: what is still on contradicts itself, but may be more than necessary.
pub(crate) fn minimize(spec: &Spec, active: &mut [bool], steps: &mut Steps) -> Result<(), OutOfSteps> {
    // What is about existing nodes and unwanted layouts goes first: a contradiction in the template alone
    // is the better explanation.
    let on: Vec<_> = (0..active.len()).rev().filter(|at| active[*at]).collect();
    let mut blocks = vec![on];
    while let Some(block) = blocks.pop() {
        for at in &block {
            active[*at] = false;
        }
        // A test that is cut short must not leave a set of rules that was never shown to contradict itself.
        let test = if block.is_empty() { Ok(false) } else { solvable(spec, active, steps) };
        if test == Ok(false) {
            continue;
        }
        for at in &block {
            active[*at] = true;
        }
        test?;
        if block.len() > 1 {
            let (first, second) = block.split_at(block.len() / 2);
            blocks.push(second.to_vec());
            blocks.push(first.to_vec());
        }
    }
    Ok(())
}

/// With unwanted layouts among the rules, fewer rules may be harder: without its own rule a service set may get
/// the very types on which it is unwanted. Then every rule that is left is looked at again until none can go.
fn settle(spec: &Spec, active: &mut [bool], steps: &mut Steps) -> Result<(), OutOfSteps> {
    let unwanted = |at: &usize| matches!(spec.rules[*at].kind, Kind::Excluded(_));
    while (0..active.len()).any(|at| active[at] && unwanted(&at)) {
        let mut gone = false;
        for at in (0..active.len()).rev() {
            if active[at] {
                active[at] = false;
                let test = solvable(spec, active, steps);
                active[at] = test != Ok(false);
                gone |= !active[at];
                test?;
            }
        }
        if !gone {
            break;
        }
    }
    Ok(())
}
