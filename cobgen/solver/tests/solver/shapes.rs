//! Regular shapes of rules with an obvious layout: solved within a fraction of the steps.

use cob_solver::{Budget, Outcome, Quantities, Request, solve};

use crate::build::{Rules, request, service};

/// Less than half of the usual budget.
const STEPS: Budget = Budget { steps: 80_000_000 };

/// Services on this many nodes; `say` adds the quantities of each.
fn services(count: usize, nodes: u64, rules: &mut Rules, say: impl Fn(&mut Quantities, &mut Rules)) -> Request {
    let mut request = request((0..count).map(|i| service(&format!("s{i:03}"))).collect(), nodes);
    for service in &mut request.services {
        say(&mut service.quantities, rules);
    }
    request
}

/// Each service excludes the next, and the last excludes the first.
fn ring(count: usize, nodes: u64, say: impl Fn(&mut Quantities, &mut Rules)) -> Request {
    let mut rules = Rules::default();
    let mut request = services(count, nodes, &mut rules, say);
    for at in 0..count {
        let pair = vec![request.services[at].name.clone(), request.services[(at + 1) % count].name.clone()];
        request.cant_coexist.push(rules.rule(pair));
    }
    request
}

/// Never all services on the same node.
fn not_all(count: usize, nodes: u64, say: impl Fn(&mut Quantities, &mut Rules)) -> Request {
    let mut rules = Rules::default();
    let mut request = services(count, nodes, &mut rules, say);
    let all = request.services.iter().map(|s| s.name.clone()).collect();
    request.cant_coexist.push(rules.rule(all));
    request
}

/// Never two of the services on the same node.
fn none_together(count: usize, nodes: u64) -> Request {
    let mut rules = Rules::default();
    let mut request = services(count, nodes, &mut rules, |_, _| ());
    for a in 0..count {
        for b in 0..a {
            let pair = vec![request.services[a].name.clone(), request.services[b].name.clone()];
            request.cant_coexist.push(rules.rule(pair));
        }
    }
    request
}

/// Pairs of a number of services and the number of nodes with it, the most preferred first.
fn shape(request: &Request) -> Vec<(usize, u64)> {
    match solve(request, STEPS).expect("a sound request") {
        Outcome::Layout(layout) => layout.counts.iter().map(|c| (c.layout.services.len(), c.count)).collect(),
        other @ (Outcome::None(_) | Outcome::Undecided) => panic!("{other:?}"),
    }
}

fn free(_: &mut Quantities, _: &mut Rules) {}

fn odd(quantities: &mut Quantities, rules: &mut Rules) {
    quantities.odd = Some(rules.id());
}

fn once(quantities: &mut Quantities, rules: &mut Rules) {
    quantities.max = Some(rules.rule(1));
}

fn thrice(quantities: &mut Quantities, rules: &mut Rules) {
    quantities.min = Some(rules.rule(3));
}

#[test]
fn rings_whose_neighbours_exclude_each_other() {
    // In an odd ring, an additional node has the remaining service.
    assert_eq!(shape(&ring(40, 7, free)), [(20, 6), (20, 1)]);
    assert_eq!(shape(&ring(41, 7, free)), [(20, 5), (20, 1), (20, 1)]);
    // Every second service on five nodes leaves two nodes for the others, and no node may be empty.
    assert_eq!(shape(&ring(40, 7, odd)), [(20, 5), (19, 1), (1, 1)]);
    assert_eq!(shape(&ring(41, 7, odd)), [(20, 5), (20, 1), (1, 1)]);
    assert_eq!(shape(&ring(40, 7, once)), [(20, 1), (15, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1)]);
    // Seven nodes, each service on three: every node has as many services as fit, and no two nodes are equal.
    assert_eq!(shape(&ring(41, 7, thrice)), [(20, 1); 7]);
}

#[test]
fn fifty_that_may_not_all_be_together() {
    assert_eq!(shape(&not_all(50, 5, free)), [(49, 4), (49, 1)]);
    // Four nodes with a single service each, and the other services together.
    assert_eq!(shape(&not_all(50, 5, once)), [(46, 1), (1, 1), (1, 1), (1, 1), (1, 1)]);
    assert_eq!(shape(&not_all(50, 5, odd)), [(49, 3), (49, 1), (48, 1)]);
}

#[test]
fn one_node_too_few_is_explained_by_all_pairs() {
    for (count, minimal) in [(30, true), (300, false)] {
        let request = none_together(count, count as u64 - 1);
        let Outcome::None(explanation) = solve(&request, STEPS).expect("a sound request") else { panic!("{count}") };
        // All pairs are needed; testing each of thousands takes more steps than allowed, so minimality is not claimed.
        assert_eq!((explanation.core.len(), explanation.minimal), (count * (count - 1) / 2, minimal));
        assert_eq!(shape(&none_together(count, count as u64)), vec![(1, 1); count]);
    }
}
