//! Explains why there is no layout: by a minimal set of rules that contradict each other.
//!
//! Rules are removed, first many at once, then fewer, as long as there is still no layout. Fewer rules never make a
//! request harder. So a rule whose removal led to a layout at any time stays in the set.

use crate::compile::{Selection, compile};
use crate::feasible::{self, Verdict};
use crate::outcome::Explanation;
use crate::relaxation::Certificate;
use crate::request::Preference;
use crate::solve::subsets_by_size;
use crate::spec::{Kind, Spec};
use crate::steps::{OutOfSteps, Steps};
use crate::{outside, relax};

/// Explains a request that has no layout.
pub(crate) fn explain(spec: &Spec, steps: &mut Steps) -> Explanation {
    let mut active = vec![true; spec.rules.len()];
    let mut prover = Prover::default();
    let minimized = minimize(spec, &mut active, &mut prover, steps);
    let minimal = minimized.and_then(|()| settle(spec, &mut active, &mut prover, steps)).is_ok();
    let core: Vec<_> = (0..spec.rules.len()).filter(|at| active[*at]).collect();
    let relaxations = if minimal { relax::relaxations(spec, &core, &mut prover, steps) } else { Vec::new() };
    let mut core: Vec<_> = core.into_iter().map(|at| spec.describe(&spec.rules[at])).collect();
    core.sort();
    Explanation { core, minimal, relaxations }
}

/// Decides whether there is a layout under some of the rules, and learns from each negative answer.
#[derive(Debug, Default)]
pub(crate) struct Prover {
    known: Vec<Known>,
}

/// The reason why there was no layout, and the active rules about single nodes at that time.
#[derive(Debug)]
struct Known {
    certificate: Certificate,
    structure: Vec<bool>,
}

/// The most reasons that are stored.
const MOST_KNOWN: usize = 24;

impl Prover {
    /// Whether there is a layout under these rules. Between calls, numbers in rules may change, and the number of nodes
    /// if there are no existing nodes.
    ///
    /// # Errors
    /// If the steps run out.
    pub(crate) fn solvable(&mut self, spec: &Spec, active: &[bool], steps: &mut Steps) -> Result<bool, OutOfSteps> {
        let excludes = spec.rules.iter().zip(active).any(|(rule, on)| *on && matches!(rule.kind, Kind::Excluded(_)));
        if excludes {
            return solvable_outside(spec, active, steps);
        }
        let Some(mut compiled) = compile(spec, Selection { active, images: None }, steps)? else { return Ok(false) };
        if !compiled.problem.tighten() {
            return Ok(false);
        }
        let size = (compiled.problem.groups.len() + compiled.problem.slots.len() + active.len()) as u64;
        steps.spend(size * (1 + self.known.len() as u64))?;
        let refutes = |k: &Known| k.holds_under(spec, active) && k.certificate.refutes(&compiled.problem);
        if self.known.iter().any(refutes) {
            return Ok(false);
        }
        match feasible::decide(compiled.problem, steps)? {
            Verdict::Solvable(_) => Ok(true),
            Verdict::Refuted(reason) => {
                if self.known.len() == MOST_KNOWN {
                    self.known.remove(0);
                }
                self.known.extend(reason.map(|certificate| Known { certificate, structure: active.to_vec() }));
                Ok(false)
            }
        }
    }
}

impl Known {
    /// Whether the reason covers all columns under these rules.
    fn holds_under(&self, spec: &Spec, active: &[bool]) -> bool {
        let rules = spec.rules.iter().zip(&self.structure).zip(active);
        let mut rules = rules.map(|((rule, before), now)| (&rule.kind, *before, *now));
        rules.all(|(kind, before, now)| match kind {
            Kind::MustCoexist(_) | Kind::Everywhere(_) | Kind::Existing(_) => before == now,
            Kind::CantCoexist(_) | Kind::Hardware(..) | Kind::Image(..) => now || !before,
            Kind::SizeMin(_)
            | Kind::SizeMax(_)
            | Kind::Min(..)
            | Kind::Max(..)
            | Kind::RatioMin(..)
            | Kind::RatioMax(..)
            | Kind::Odd(_)
            | Kind::Requires(..)
            | Kind::Excluded(_) => true,
        })
    }
}

/// Whether there is a layout outside the unwanted layouts.
fn solvable_outside(spec: &Spec, active: &[bool], steps: &mut Steps) -> Result<bool, OutOfSteps> {
    if spec.preference != Preference::FewestImages {
        return solvable_with(spec, Selection { active, images: None }, steps);
    }
    // The image of a service set depends on the usable images, and so does the set of unwanted layouts.
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

/// Switches off rules until every active rule is needed for the contradiction.
///
/// # Errors
/// If the steps run out: the active rules still contradict each other, but may be more than necessary.
pub(crate) fn minimize(
    spec: &Spec,
    active: &mut [bool],
    prover: &mut Prover,
    steps: &mut Steps,
) -> Result<(), OutOfSteps> {
    // Rules about existing nodes and unwanted layouts go first: a contradiction in the template alone is the better
    // explanation.
    let on: Vec<_> = (0..active.len()).rev().filter(|at| active[*at]).collect();
    let mut blocks = vec![on];
    while let Some(block) = blocks.pop() {
        for at in &block {
            active[*at] = false;
        }
        // If a test is cut short, the active rules must still be a set that was shown to contradict itself.
        let test = if block.is_empty() { Ok(false) } else { prover.solvable(spec, active, steps) };
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

/// With unwanted layouts among the rules, fewer rules may be harder: without its own rule a service set may get the
/// very types on which it is unwanted. So every remaining rule is tested again until no rule can be removed.
fn settle(spec: &Spec, active: &mut [bool], prover: &mut Prover, steps: &mut Steps) -> Result<(), OutOfSteps> {
    let unwanted = |at: &usize| matches!(spec.rules[*at].kind, Kind::Excluded(_));
    while (0..active.len()).any(|at| active[at] && unwanted(&at)) {
        let mut gone = false;
        for at in (0..active.len()).rev() {
            if active[at] {
                active[at] = false;
                let test = prover.solvable(spec, active, steps);
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
