//! Solves a request.

use std::collections::BTreeMap;

use crate::compile::{Compiled, Selection, Source, compile};
use crate::explain::{Prover, explain};
use crate::outcome::{Budget, Layout, Outcome};
use crate::problem::{Column, Solution};
use crate::request::{Counted, NodeLayout, Preference, Request};
use crate::spec::{Spec, SpecNodes};
use crate::steps::{OutOfSteps, Steps};
use crate::tier::TierOrder;
use crate::{RequestError, outside};

/// Solves a request: returns the most preferred layout, or why no layout exists, or that the budget did not suffice.
///
/// The answer follows from the request and the budget alone, not from the order of any list.
///
/// # Errors
/// If the request is malformed: it has the same name twice, or a number beyond the limits.
pub fn solve(request: &Request, budget: Budget) -> Result<Outcome, RequestError> {
    let spec = Spec::new(request)?;
    let mut steps = Steps::new(budget.steps);
    Ok(match search(&spec, &mut steps) {
        Ok(Some(layout)) => Outcome::Layout(layout),
        Ok(None) => Outcome::None(explain(&spec, &mut steps)),
        Err(OutOfSteps) => Outcome::Undecided,
    })
}

fn search(spec: &Spec, steps: &mut Steps) -> Result<Option<Layout>, OutOfSteps> {
    let active = vec![true; spec.rules.len()];
    let all = Selection { active: &active, images: None };
    if spec.preference != Preference::FewestImages {
        return best_of(spec, all, steps);
    }
    if !Prover::default().solvable(spec, &active, steps)? {
        return Ok(None);
    }
    for images in subsets_by_size(spec.images.len()) {
        steps.spend(spec.images.len() as u64 + 1)?;
        let some = Selection { images: Some(&images), ..all };
        if let Some(layout) = best_of(spec, some, steps)? {
            return Ok(Some(layout));
        }
    }
    Ok(None)
}

/// The most preferred layout under some of the rules.
fn best_of(spec: &Spec, selection: Selection<'_>, steps: &mut Steps) -> Result<Option<Layout>, OutOfSteps> {
    let Some(compiled) = compile(spec, selection, steps)? else { return Ok(None) };
    let order = TierOrder::new(spec, &compiled.types);
    let best = outside::best(spec, &compiled, &order, selection.active, steps)?;
    best.map(|solution| layout(spec, &compiled, &solution, steps)).transpose()
}

/// All sets of numbers below `count`: smaller ones first, then in order of their members.
pub(crate) fn subsets_by_size(count: usize) -> impl Iterator<Item = Vec<bool>> {
    (1..=count).flat_map(move |size| {
        let mut next: Option<Vec<usize>> = Some((0..size).collect());
        std::iter::from_fn(move || {
            let chosen = next.take()?;
            let mut flags = vec![false; count];
            for at in &chosen {
                flags[*at] = true;
            }
            // Advance the last index that can advance; the later indexes follow directly after it.
            if let Some(moves) = (0..size).rev().find(|at| chosen[*at] < count - size + *at) {
                let mut after = chosen;
                after[moves] += 1;
                for at in moves + 1..size {
                    after[at] = after[at - 1] + 1;
                }
                next = Some(after);
            }
            Some(flags)
        })
    })
}

/// The node layout of a column, with names.
pub(crate) fn node_layout(spec: &Spec, compiled: &Compiled, column: &Column) -> NodeLayout {
    let mut services: Vec<_> = column.set.iter().flat_map(|g| compiled.members[g].iter().copied()).collect();
    services.sort_unstable();
    let mode = compiled.problem.slots[column.slot].mode_of(&column.set).expect("a column's set is allowed");
    let (hardware, image) = compiled.types[mode.rank];
    NodeLayout {
        services: services.into_iter().map(|s| spec.services[s].clone()).collect(),
        hardware: spec.hardware[hardware].name.clone(),
        image: spec.images[image].name.clone(),
    }
}

/// Assigns the columns to named nodes: the first nodes in order get the most preferred column.
fn layout(spec: &Spec, compiled: &Compiled, solution: &Solution, steps: &mut Steps) -> Result<Layout, OutOfSteps> {
    steps.spend(spec.existing.len() as u64 + solution.len() as u64 * 8)?;
    let mut counts: Vec<Counted> = Vec::new();
    let mut places: BTreeMap<NodeLayout, usize> = BTreeMap::new();
    let (mut named, mut new) = (Vec::new(), Vec::new());
    let mut used = vec![0usize; compiled.sources.len()];
    for (column, count) in solution {
        let layout = node_layout(spec, compiled, column);
        let at = *places.entry(layout).or_insert_with_key(|layout| {
            counts.push(Counted { layout: layout.clone(), count: 0 });
            counts.len() - 1
        });
        counts[at].count += count;
        let whose = used[column.slot]..;
        let many = usize::try_from(*count).unwrap_or(usize::MAX);
        match &compiled.sources[column.slot] {
            Source::Existing(nodes) | Source::Released(nodes) => {
                named.extend(nodes[whose].iter().take(many).map(|n| (existing(spec, *n), at)))
            }
            Source::Hosts(hosts) => named.extend(hosts[whose].iter().take(many).map(|h| (host(spec, *h), at))),
            Source::New => new.push((at, *count)),
        }
        used[column.slot] = used[column.slot].saturating_add(many);
    }
    named.sort_by(|a, b| crate::spec::natural(a.0, b.0));
    let staying: std::collections::BTreeSet<&str> = named.iter().map(|(name, _)| *name).collect();
    let leaving = spec.existing.iter().map(|e| &e.host.name).filter(|name| !staying.contains(name.as_str()));
    let leaving = leaving.cloned().collect();
    let named = named.into_iter().map(|(name, at)| (name.to_owned(), at)).collect();
    Ok(Layout { counts, named, new, leaving })
}

fn existing(spec: &Spec, at: usize) -> &str {
    &spec.existing[at].host.name
}

fn host(spec: &Spec, at: usize) -> &str {
    match &spec.nodes {
        SpecNodes::Hosts(hosts) => &hosts[at].name,
        SpecNodes::Count(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sets_come_first() {
        let all: Vec<_> = subsets_by_size(3).collect();
        let (yes, no) = (true, false);
        assert_eq!(all.len(), 7);
        assert_eq!(all[..4], [vec![yes, no, no], vec![no, yes, no], vec![no, no, yes], vec![yes, yes, no]]);
        assert_eq!(subsets_by_size(0).count(), 0);
    }
}
