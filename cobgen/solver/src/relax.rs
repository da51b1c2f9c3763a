//! Suggests remedies: the smallest changes that make a request solvable. Each is tested.
//!
//! A change that helps alone must touch every contradiction, so rules outside a minimal set need no test. The more a
//! number is relaxed, the easier the request, so bisection finds the nearest number that works. Only if no single
//! change helps, several rules are dropped together.

use crate::explain::{Prover, minimize};
use crate::outcome::{Change, Relaxation};
use crate::ratio::Ratio;
use crate::spec::{Kind, Spec, SpecNodes, SpecRule};
use crate::steps::{OutOfSteps, Steps};

/// Up to this distance every number of nodes is tried, beyond it larger strides.
const NEAR: u64 = 48;
/// The cost of dropping a rule; changing a number costs as much as the difference.
const DROP: u64 = 1_000;

/// The most rules that are dropped together: more changes would make another cluster.
const MOST_TOGETHER: usize = 6;

/// Changes that make the request solvable, the cheapest first, as far as the steps go.
pub(crate) fn relaxations(spec: &Spec, core: &[usize], prover: &mut Prover, steps: &mut Steps) -> Vec<Relaxation> {
    let mut found: Vec<(u64, Change)> = Vec::new();
    // If the steps run out, the changes found so far remain: each of them was tested.
    let _cut_short = single_changes(spec, core, prover, &mut found, steps);
    found.sort();
    if found.is_empty() {
        return together(spec, core, prover, steps).unwrap_or_default();
    }
    found.into_iter().map(|(_, change)| Relaxation { changes: vec![change] }).collect()
}

fn single_changes(
    spec: &Spec,
    core: &[usize],
    prover: &mut Prover,
    found: &mut Vec<(u64, Change)>,
    steps: &mut Steps,
) -> Result<(), OutOfSteps> {
    let active = vec![true; spec.rules.len()];
    for at in core {
        found.extend(relax_rule(spec, *at, &active, prover, steps)?);
    }
    if let SpecNodes::Count(nodes) = spec.nodes {
        found.extend(other_size(spec, nodes, 1, steps)?);
        found.extend(other_size(spec, nodes, -1, steps)?);
    }
    Ok(())
}

/// The nearest number of nodes, above or below, that works.
fn other_size(spec: &Spec, nodes: u64, way: i64, steps: &mut Steps) -> Result<Option<(u64, Change)>, OutOfSteps> {
    let mut changed = spec.clone();
    let active = vec![true; spec.rules.len()];
    // With existing nodes, another number of nodes is another problem: the known reasons do not apply.
    let mut prover = Prover::default();
    let mut works = |by: u64, steps: &mut Steps| -> Result<Option<u64>, OutOfSteps> {
        let to = if way > 0 { nodes.checked_add(by) } else { nodes.checked_sub(by).filter(|to| *to > 0) };
        let Some(to) = to else { return Ok(None) };
        changed.nodes = SpecNodes::Count(to);
        if !spec.existing.is_empty() {
            prover = Prover::default();
        }
        Ok(prover.solvable(&changed, &active, steps)?.then_some(to))
    };
    let (mut bad, mut by) = (0, 1);
    let farthest = if way > 0 { nodes.saturating_mul(4).saturating_add(NEAR * 8) } else { nodes };
    while by <= farthest {
        if works(by, steps)?.is_some() {
            while by - bad > 1 {
                let middle = bad + (by - bad) / 2;
                match works(middle, steps)? {
                    Some(_) => by = middle,
                    None => bad = middle,
                }
            }
            let to = works(by, steps)?;
            return Ok(to.map(|to| (by, Change::Nodes { from: nodes, to })));
        }
        bad = by;
        by += if by < NEAR { 1 } else { by / 2 };
    }
    Ok(None)
}

/// The smallest change to a single rule that makes the request solvable.
fn relax_rule(
    spec: &Spec,
    at: usize,
    active: &[bool],
    prover: &mut Prover,
    steps: &mut Steps,
) -> Result<Option<(u64, Change)>, OutOfSteps> {
    let mut without = active.to_vec();
    without[at] = false;
    if !prover.solvable(spec, &without, steps)? {
        return Ok(None);
    }
    let rule = &spec.rules[at];
    let nodes = spec.nodes.count();
    let change = match &rule.kind {
        Kind::SizeMin(from) => number(spec, rule, *from, nodes),
        Kind::SizeMax(from) => number(spec, rule, *from, nodes),
        Kind::Min(s, from) => {
            let to = nearest(spec, at, (*from, 0), |n| Kind::Min(*s, n), active, prover, steps)?;
            number(spec, rule, *from, to)
        }
        Kind::Max(s, from) => {
            let to = nearest(spec, at, (*from, nodes), |n| Kind::Max(*s, n), active, prover, steps)?;
            number(spec, rule, *from, to)
        }
        Kind::Requires(s, other, from) => {
            let to = nearest(spec, at, (*from, 0), |n| Kind::Requires(*s, other.clone(), n), active, prover, steps)?;
            number(spec, rule, *from, to)
        }
        Kind::RatioMin(s, from) => {
            let share = |n| Kind::RatioMin(*s, of(n, nodes));
            let from = from.at_least(nodes);
            let to = nearest(spec, at, (from, 0), share, active, prover, steps)?;
            (from.abs_diff(to), Change::Share { rule: spec.describe(rule), to: of(to, nodes) })
        }
        Kind::RatioMax(s, from) => {
            let share = |n| Kind::RatioMax(*s, of(n, nodes));
            let from = from.at_most(nodes);
            let to = nearest(spec, at, (from, nodes), share, active, prover, steps)?;
            (from.abs_diff(to), Change::Share { rule: spec.describe(rule), to: of(to, nodes) })
        }
        Kind::Odd(_)
        | Kind::Hardware(..)
        | Kind::Image(..)
        | Kind::MustCoexist(_)
        | Kind::CantCoexist(_)
        | Kind::Everywhere(_)
        | Kind::Existing(_)
        | Kind::Excluded(_) => (DROP, Change::Drop { rule: spec.describe(rule) }),
    };
    Ok(Some(change))
}

fn number(spec: &Spec, rule: &SpecRule, from: u64, to: u64) -> (u64, Change) {
    (from.abs_diff(to), Change::Number { rule: spec.describe(rule), to })
}

fn of(count: u64, nodes: u64) -> Ratio {
    Ratio::new(count, nodes.max(1)).expect("the denominator is not zero")
}

/// The number nearest to `from`, towards `end`, with which the rule leaves a layout. At `end` the rule has no effect,
/// and without the rule there is a layout.
fn nearest(
    spec: &Spec,
    at: usize,
    (from, end): (u64, u64),
    kind: impl Fn(u64) -> Kind,
    active: &[bool],
    prover: &mut Prover,
    steps: &mut Steps,
) -> Result<u64, OutOfSteps> {
    let mut changed = spec.clone();
    // Any minimum above the number of nodes is as bad as the number of nodes plus one.
    let start = from.min(spec.nodes.count().saturating_add(1));
    let (mut bad, mut good) = (start, end);
    while bad.abs_diff(good) > 1 {
        let middle = bad.min(good) + bad.abs_diff(good) / 2;
        changed.rules[at].kind = kind(middle);
        if prover.solvable(&changed, active, steps)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(good)
}

/// Rules that leave a layout if they are dropped together; each of them is needed for that.
fn together(
    spec: &Spec,
    core: &[usize],
    prover: &mut Prover,
    steps: &mut Steps,
) -> Result<Vec<Relaxation>, OutOfSteps> {
    let mut given_up: Vec<usize> = Vec::new();
    let mut core = core.to_vec();
    loop {
        // There is no rule to drop: the request itself is at fault.
        let Some(next) = core.iter().copied().max_by_key(|at| (yields(&spec.rules[*at].kind), *at)) else {
            return Ok(Vec::new());
        };
        if given_up.len() == MOST_TOGETHER {
            return Ok(Vec::new());
        }
        given_up.push(next);
        let mut active = all_but(spec, &given_up);
        if prover.solvable(spec, &active, steps)? {
            break;
        }
        minimize(spec, &mut active, prover, steps)?;
        core = (0..active.len()).filter(|at| active[*at]).collect();
    }
    for at in given_up.clone() {
        let fewer: Vec<_> = given_up.iter().copied().filter(|other| *other != at).collect();
        if prover.solvable(spec, &all_but(spec, &fewer), steps)? {
            given_up = fewer;
        }
    }
    given_up.sort_unstable();
    // Each dropped rule is made as strict again as the others allow.
    let mut changed = spec.clone();
    let mut active = all_but(spec, &given_up);
    let mut changes = Vec::new();
    for at in &given_up {
        active[*at] = true;
        let Some((_, change)) = relax_rule(&changed, *at, &active, prover, steps)? else { return Ok(Vec::new()) };
        match relaxed_kind(&spec.rules[*at].kind, &change) {
            Some(kind) => changed.rules[*at].kind = kind,
            None => active[*at] = false,
        }
        changes.push(change);
    }
    Ok(vec![Relaxation { changes }])
}

/// The order in which rules are dropped: numbers before layouts, existing nodes last.
const fn yields(kind: &Kind) -> u8 {
    match kind {
        Kind::Min(..) | Kind::Max(..) | Kind::RatioMin(..) | Kind::RatioMax(..) | Kind::Requires(..) => 5,
        Kind::SizeMin(_) | Kind::SizeMax(_) => 4,
        Kind::Odd(_) | Kind::CantCoexist(_) | Kind::MustCoexist(_) | Kind::Everywhere(_) => 3,
        Kind::Hardware(..) | Kind::Image(..) => 2,
        Kind::Excluded(_) => 1,
        Kind::Existing(_) => 0,
    }
}

fn all_but(spec: &Spec, given_up: &[usize]) -> Vec<bool> {
    (0..spec.rules.len()).map(|at| !given_up.contains(&at)).collect()
}

/// The rule after a change; `None` if it is dropped.
fn relaxed_kind(kind: &Kind, change: &Change) -> Option<Kind> {
    let kind = match (kind, change) {
        (Kind::SizeMin(_), Change::Number { to, .. }) => Kind::SizeMin(*to),
        (Kind::SizeMax(_), Change::Number { to, .. }) => Kind::SizeMax(*to),
        (Kind::Min(s, _), Change::Number { to, .. }) => Kind::Min(*s, *to),
        (Kind::Max(s, _), Change::Number { to, .. }) => Kind::Max(*s, *to),
        (Kind::Requires(s, other, _), Change::Number { to, .. }) => Kind::Requires(*s, other.clone(), *to),
        (Kind::RatioMin(s, _), Change::Share { to, .. }) => Kind::RatioMin(*s, *to),
        (Kind::RatioMax(s, _), Change::Share { to, .. }) => Kind::RatioMax(*s, *to),
        (_, Change::Nodes { .. } | Change::Number { .. } | Change::Share { .. } | Change::Drop { .. }) => return None,
    };
    Some(kind)
}
