//! Hostile requests: an answer or a clear refusal, within the budget.

use cob_solver::{
    Budget, ExistingNode, Nodes, Outcome, Quantities, Ratio, Request, RequestError, ServiceRule, TypeOption, solve,
};

use crate::build::{Rules, names, request, service, types};

fn many(count: usize) -> Vec<ServiceRule> {
    (0..count).map(|i| service(&format!("s{i:05}"))).collect()
}

#[test]
fn ten_thousand_services_without_rules() {
    let request = request(many(10_000), 100);
    let Ok(Outcome::Layout(layout)) = solve(&request, Budget::default()) else { panic!("all on every node") };
    assert_eq!((layout.counts.len(), layout.counts[0].layout.services.len()), (1, 10_000));
}

#[test]
fn ten_thousand_services_under_one_rule_are_solved() {
    let mut rules = Rules::default();
    let mut request = request(many(10_000), 100);
    let all: Vec<_> = request.services.iter().map(|s| s.name.clone()).collect();
    request.must_coexist.push(rules.rule(all.clone()));
    assert!(matches!(solve(&request, Budget::default()), Ok(Outcome::Layout(_))));
    // All services always together and never together.
    request.cant_coexist.push(rules.rule(all));
    let Ok(Outcome::None(explanation)) = solve(&request, Budget::default()) else { panic!("it can't be") };
    assert_eq!((explanation.core.len(), explanation.minimal), (2, true));
}

#[test]
fn ten_thousand_services_with_rules_of_all_sorts_end() {
    let mut rules = Rules::default();
    let mut request = request(many(10_000), 1_000);
    request.hardware = (0..100).map(|i| TypeOption { name: format!("h{i}"), cost: i }).collect();
    let all: Vec<_> = request.services.iter().map(|s| s.name.clone()).collect();
    for (at, service) in request.services.iter_mut().enumerate() {
        let n = at as u64;
        service.hardware = Some(rules.rule(vec![format!("h{}", n % 100), format!("h{}", n * 7 % 100)]));
        service.quantities = Quantities {
            min: Some(rules.rule(n % 7)),
            max: Some(rules.rule(7 + n % 1_000)),
            odd: n.is_multiple_of(3).then(|| rules.id()),
            ratio_max: Ratio::new(n % 10 + 1, 10).map(|r| rules.rule(r)),
            requires: vec![rules.rule((all[at * 31 % 10_000].clone(), n % 5))],
            ..Quantities::default()
        };
    }
    for pair in all.windows(2) {
        request.cant_coexist.push(rules.rule(pair.to_vec()));
    }
    // Any outcome but a layout is fine, within the budget.
    let outcome = solve(&request, Budget { steps: 50_000_000 }).expect("a sound request");
    assert!(!matches!(outcome, Outcome::Layout(_)), "ten thousand services on pairs of hardware do not fit");
}

#[test]
fn contradictory_sizes_are_told_at_once() {
    let mut rules = Rules::default();
    let mut request = request(many(1_000), 10);
    request.size.min = Some(rules.rule(u64::MAX));
    request.size.max = Some(rules.rule(0));
    for service in &mut request.services {
        service.quantities.min = Some(rules.rule(u64::MAX));
        service.quantities.max = Some(rules.rule(0));
    }
    let Ok(Outcome::None(explanation)) = solve(&request, Budget::default()) else { panic!("it can't be") };
    assert_eq!((explanation.core.len(), explanation.minimal), (1, true));
}

#[test]
fn circles_of_conflicts_are_decided_at_any_size() {
    // Five services, each of which excludes its neighbours, need two and a half times the nodes of a single service.
    for (each, nodes, fits) in
        [(1, 2, false), (1, 3, true), (1_000, 2_499, false), (1_000, 2_500, true), (1_001, 2_502, false)]
    {
        let mut rules = Rules::default();
        let mut request = request(many(5), nodes);
        for at in 0..5 {
            request.services[at].quantities.min = Some(rules.rule(each));
            let pair = vec![request.services[at].name.clone(), request.services[(at + 1) % 5].name.clone()];
            request.cant_coexist.push(rules.rule(pair));
        }
        let outcome = solve(&request, Budget { steps: 3_000_000 }).expect("a sound request");
        assert_eq!(matches!(outcome, Outcome::Layout(_)), fits, "{each} of each on {nodes}: {outcome:?}");
        assert_ne!(outcome, Outcome::Undecided, "{each} of each on {nodes}");
    }
}

#[test]
fn thirty_services_that_exclude_each_other_need_thirty_nodes() {
    let mut rules = Rules::default();
    let mut request = request(many(30), 29);
    for a in 0..30 {
        for b in 0..a {
            let pair = vec![request.services[a].name.clone(), request.services[b].name.clone()];
            request.cant_coexist.push(rules.rule(pair));
        }
    }
    let Ok(Outcome::None(explanation)) = solve(&request, Budget::default()) else { panic!("a node each") };
    assert!(explanation.minimal && explanation.core.len() == 30 * 29 / 2, "{}", explanation.core.len());
    assert_eq!(explanation.relaxations[0].changes[0].to_string(), "1 more node");
    request.nodes = Nodes::Count(30);
    let Ok(Outcome::Layout(layout)) = solve(&request, Budget::default()) else { panic!("a node each") };
    assert_eq!(layout.counts.len(), 30);
}

#[test]
fn small_budgets_end_undecided() {
    let mut rules = Rules::default();
    let mut request = request(many(20), 20);
    for service in &mut request.services {
        service.quantities.max = Some(rules.rule(3));
    }
    for steps in [0, 1, 100, 1_000] {
        assert_eq!(solve(&request, Budget { steps }), Ok(Outcome::Undecided), "{steps}");
    }
}

#[test]
fn ambiguous_or_huge_requests_are_refused() {
    let same = || vec![service("a"), service("a")];
    assert_eq!(solve(&request(same(), 1), Budget::default()), Err(RequestError::ServiceTwice("a".to_owned())));
    let mut twice = request(vec![service("a")], 1);
    twice.hardware = types(&["h", "h"]);
    assert_eq!(solve(&twice, Budget::default()), Err(RequestError::TypeTwice("h".to_owned())));
    let huge = request(vec![service("a")], u64::MAX);
    let Err(error) = solve(&huge, Budget::default()) else { panic!("too many") };
    assert!(error.to_string().starts_with("nodes: 18446744073709551615, but the solver takes at most"), "{error}");
    let node =
        ExistingNode { name: "n".to_owned(), services: names(&["a"]), hardware: "h".to_owned(), image: "i".to_owned() };
    let mut twice = request(vec![service("a")], 2);
    twice.existing = vec![node.clone(), node];
    assert_eq!(solve(&twice, Budget::default()), Err(RequestError::NodeTwice("n".to_owned())));
}

#[test]
fn an_empty_request_needs_no_nodes() {
    let Ok(Outcome::Layout(layout)) = solve(&Request::default(), Budget::default()) else { panic!("no nodes") };
    assert!(layout.counts.is_empty() && layout.leaving.is_empty());
    // No services, or no nodes; and below, no image types.
    for request in [request(Vec::new(), 2), request(vec![service("a")], 0)] {
        let Ok(Outcome::None(explanation)) = solve(&request, Budget::default()) else { panic!("{request:?}") };
        assert!(explanation.core.is_empty() && explanation.minimal);
    }
    let mut none = request(vec![service("a")], 1);
    none.images.clear();
    assert!(matches!(solve(&none, Budget::default()), Ok(Outcome::None(_))));
}

#[test]
fn thousands_of_constrained_services_are_no_danger_to_the_stack() {
    for (count, apart) in [(3_900, false), (3_900, true), (5_000, false)] {
        let mut rules = Rules::default();
        let mut request = request(many(count), 40);
        for (at, service) in request.services.iter_mut().enumerate() {
            service.quantities.max = Some(rules.rule(1 + at as u64 % 3));
        }
        let pairs: Vec<_> =
            request.services.chunks(2).map(|pair| pair.iter().map(|s| s.name.clone()).collect()).collect();
        request.cant_coexist.extend(pairs.into_iter().filter(|_| apart).map(|pair| rules.rule(pair)));
        // The verdict does not matter, only that the search ends within the steps.
        let outcome = solve(&request, Budget { steps: 30_000_000 }).expect("a sound request");
        assert!(!matches!(outcome, Outcome::None(_)), "there is a layout");
    }
}
