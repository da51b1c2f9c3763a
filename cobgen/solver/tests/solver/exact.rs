//! The solver against brute force on random small requests: same verdict, same layout, true explanations.
//!
//! `COB_SOLVER_CASES` sets the number of cases (1,500 by default), `COB_SEED` the first seed.

use crate::brute::{Active, best, effort};
use crate::random::{Random, request, shuffled};
use cob_solver::{Budget, Change, Counted, Explanation, Layout, Nodes, Outcome, Request, Rule, RuleKind, solve};

/// The largest effort for brute force.
const EFFORT: u64 = 6_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().expect("a number"))
}

/// The n-th random request that is small enough for brute force.
fn instance(seed: u64) -> (Random, Request) {
    let mut random = Random::new(seed);
    loop {
        let (services, nodes) = match random.below(4) {
            0 => (1 + random.below(3), 6 + random.below(12)),
            _ => (1 + random.below(5), 1 + random.below(6)),
        };
        let request = request(&mut random, services, nodes);
        if effort(&request) < EFFORT {
            return (random, request);
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    solvable: u64,
    unsolvable: u64,
    existing: u64,
    inventories: u64,
    excluded: u64,
    core_rules: u64,
    relaxations: u64,
}

#[test]
fn answers_equal_those_of_brute_force() {
    let first = setting("COB_SEED", 1);
    let mut tally = Tally::default();
    for seed in first..first + setting("COB_SOLVER_CASES", 1_500) {
        let (mut random, request) = instance(seed);
        let case = Case { seed };
        tally.existing += u64::from(!request.existing.is_empty());
        tally.inventories += u64::from(matches!(request.nodes, Nodes::Inventory(_)));
        case.check(&request, &mut random, 3, &mut tally);
    }
    println!("{tally:?}");
    let enough = [tally.solvable, tally.unsolvable, tally.existing, tally.inventories, tally.excluded];
    assert!(enough.iter().all(|n| *n > 0) || setting("COB_SOLVER_CASES", 1_500) < 100, "{tally:?}");
}

struct Case {
    seed: u64,
}

impl Case {
    fn check(&self, request: &Request, random: &mut Random, exclusions: u64, tally: &mut Tally) {
        let seed = self.seed;
        let active = Active::all(request);
        let expected = best(request, &active);
        let outcome = solve(request, Budget::default()).expect("a sound request");
        let other = solve(&shuffled(random, request), Budget::default()).expect("a sound request");
        assert_eq!(format!("{outcome:?}"), format!("{other:?}"), "seed {seed}: the order matters: {request:#?}");
        match (&outcome, expected) {
            (Outcome::Layout(layout), Some(expected)) => {
                tally.solvable += 1;
                let counts: Vec<_> = layout.counts.iter().map(|c| (c.layout.clone(), c.count)).collect();
                assert_eq!(counts, expected, "seed {seed}: {request:#?}");
                self.names_are_right(request, layout);
                if exclusions > 0 && random.chance(30) {
                    tally.excluded += 1;
                    let mut next = request.clone();
                    next.excluded.push(layout.counts.clone());
                    self.check(&next, random, exclusions - 1, tally);
                }
            }
            (Outcome::None(explanation), None) => {
                tally.unsolvable += 1;
                self.explains(request, explanation, tally);
            }
            (outcome, expected) => panic!("seed {seed}: {outcome:#?} instead of {expected:#?} for {request:#?}"),
        }
    }

    /// Every node occurs once, and existing nodes have a permitted layout.
    fn names_are_right(&self, request: &Request, layout: &Layout) {
        let seed = self.seed;
        let mut counted: Vec<Counted> = layout.counts.clone();
        for (_, own) in layout.nodes() {
            let count = counted.iter_mut().find(|c| c.layout == *own).expect("counted");
            count.count -= 1;
        }
        assert!(counted.iter().all(|c| c.count == 0), "seed {seed}: {layout:?}");
        for node in &request.existing {
            let Some((_, at)) = layout.named.iter().find(|(name, _)| *name == node.name) else {
                assert!(layout.leaving.contains(&node.name), "seed {seed}: {} is lost", node.name);
                continue;
            };
            let own = &layout.counts[*at].layout;
            assert_eq!((&own.hardware, &own.image), (&node.hardware, &node.image), "seed {seed}: {}", node.name);
            for service in request.services.iter().map(|s| &s.name).filter(|s| !request.changed.contains(s)) {
                assert_eq!(own.services.contains(service), node.services.contains(service), "seed {seed}: {service}");
            }
        }
    }

    fn explains(&self, request: &Request, explanation: &Explanation, tally: &mut Tally) {
        let seed = self.seed;
        let Explanation { core, minimal, relaxations } = explanation;
        assert!(minimal, "seed {seed}");
        assert!(
            best(request, &Active::only(core)).is_none(),
            "seed {seed}: no contradiction: {core:?} of {request:#?}"
        );
        tally.core_rules += core.len() as u64;
        for rule in core {
            let without = Active::only(core).without(rule);
            assert!(best(request, &without).is_some(), "seed {seed}: {rule:?} is not needed in {core:?}: {request:#?}");
        }
        for relaxation in relaxations {
            let mut relaxed = request.clone();
            let mut active = Active::all(request);
            for change in &relaxation.changes {
                apply(&mut relaxed, &mut active, change);
            }
            if effort(&relaxed) > EFFORT {
                continue;
            }
            tally.relaxations += 1;
            assert!(best(&relaxed, &active).is_some(), "seed {seed}: {relaxation:?} does not help: {request:#?}");
            if let ([change], []) = (relaxation.changes.as_slice(), request.excluded.as_slice()) {
                self.is_nearest(request, change);
            }
        }
        let cores_can_go = core.iter().any(|rule| best(request, &Active::all(request).without(rule)).is_some());
        assert!(!cores_can_go || !relaxations.is_empty(), "seed {seed}: there is a way out");
    }

    /// A smaller change of the same number does not help.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these numbers are looked for")]
    fn is_nearest(&self, request: &Request, change: &Change) {
        let nearer = match change {
            Change::Number { rule, to } => {
                let lower = |n: u64| (to + 1 < n).then(|| to + 1);
                let to = match &rule.kind {
                    RuleKind::Min(_, n) | RuleKind::Requires(_, _, n) => lower(*n),
                    RuleKind::Max(_, n) => (n + 1 < *to).then(|| to - 1),
                    // The size of a cluster is fixed.
                    _ => None,
                };
                to.map(|to| Change::Number { rule: rule.clone(), to })
            }
            Change::Nodes { from, to } if from.abs_diff(*to) > 1 => {
                Some(Change::Nodes { from: *from, to: if to > from { to - 1 } else { to + 1 } })
            }
            Change::Nodes { .. } | Change::Share { .. } | Change::Drop { .. } => None,
        };
        let Some(nearer) = nearer else { return };
        let mut relaxed = request.clone();
        let mut active = Active::all(request);
        apply(&mut relaxed, &mut active, &nearer);
        let helps = effort(&relaxed) <= EFFORT && best(&relaxed, &active).is_some();
        assert!(!helps, "seed {}: {nearer:?} is enough, not {change:?}", self.seed);
    }
}

/// Applies a relaxation to a request.
fn apply(request: &mut Request, active: &mut Active, change: &Change) {
    match change {
        Change::Nodes { to, .. } => request.nodes = Nodes::Count(*to),
        Change::Drop { rule } => *active = active.clone().without(rule),
        Change::Number { rule, to } => set_number(request, rule, *to),
        Change::Share { rule, to } => {
            for service in &mut request.services {
                let shares = [&mut service.quantities.ratio_min, &mut service.quantities.ratio_max];
                for share in shares.into_iter().flatten().filter(|r| Some(r.rule) == rule.id) {
                    share.value = *to;
                }
            }
        }
    }
}

fn set_number(request: &mut Request, rule: &Rule, to: u64) {
    let size = [&mut request.size.min, &mut request.size.max];
    for number in size.into_iter().flatten().filter(|r| Some(r.rule) == rule.id) {
        number.value = to;
    }
    for service in &mut request.services {
        let numbers = [&mut service.quantities.min, &mut service.quantities.max];
        for number in numbers.into_iter().flatten().filter(|r| Some(r.rule) == rule.id) {
            number.value = to;
        }
        for requires in service.quantities.requires.iter_mut().filter(|r| Some(r.rule) == rule.id) {
            requires.value.1 = to;
        }
    }
}
