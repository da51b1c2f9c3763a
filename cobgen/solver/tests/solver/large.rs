//! Requests too large for brute force: the answers keep all rules, within few steps.

use cob_solver::{
    Budget, ExistingNode, InventoryHost, Nodes, Outcome, Quantities, Ratio, Request, ServiceRule, TypeOption, solve,
};

use crate::brute::keeps_all_rules;
use crate::build::Rules;
use crate::random::Random;

/// The parameters of a random large request.
struct Shape {
    services: u64,
    hardware: u64,
    images: u64,
    nodes: u64,
    /// Average number of pairs that can't be together, for each service, in tenths.
    apart: u64,
    /// The probability that a service has a rule of each type, in percent.
    dense: u64,
}

fn large(random: &mut Random, shape: &Shape) -> Request {
    let mut rules = Rules::default();
    let name = |i: u64| format!("s{i:02}");
    let options = |word: &str, count| (0..count).map(|i| TypeOption { name: format!("{word}{i}"), cost: i }).collect();
    let mut request = Request {
        hardware: options("hw", shape.hardware),
        images: options("img", shape.images),
        nodes: Nodes::Count(shape.nodes),
        ..Request::default()
    };
    for i in 0..shape.services {
        let mut some = |random: &mut Random, word: &str, count: u64| {
            let first = random.below(count);
            let names = (0..count).filter(|at| *at == first || random.chance(60)).map(|at| format!("{word}{at}"));
            let names = names.collect();
            random.chance(shape.dense).then(|| rules.rule(names))
        };
        let hardware = some(random, "hw", shape.hardware);
        let images = some(random, "img", shape.images);
        let mut quantities = Quantities::default();
        match random.below(5) {
            0 => quantities.max = Some(rules.rule(1 + random.below(5))),
            1 => quantities.min = Some(rules.rule(1 + random.below(shape.nodes / 4 + 1))),
            2 => quantities.ratio_max = Ratio::new(1 + random.below(3), 4).map(|r| rules.rule(r)),
            3 => quantities.ratio_min = Ratio::new(1 + random.below(2), 5).map(|r| rules.rule(r)),
            _ => quantities.max = Some(rules.rule(1 + shape.nodes / 2 + random.below(shape.nodes / 2 + 1))),
        }
        quantities.odd = random.chance(shape.dense / 2).then(|| rules.id());
        if random.chance(shape.dense / 3) {
            let other = (name(random.below(shape.services)), 1 + random.below(3));
            quantities.requires.push(rules.rule(other));
        }
        request.services.push(ServiceRule { name: name(i), hardware, images, quantities });
    }
    for _ in 0..shape.services * shape.apart / 10 {
        let mut all = vec![name(random.below(shape.services)), name(random.below(shape.services))];
        if random.chance(20) {
            all.push(name(random.below(shape.services)));
        }
        all.sort();
        all.dedup();
        if all.len() > 1 {
            request.cant_coexist.push(rules.rule(all));
        }
    }
    for _ in 0..random.below(shape.services / 6 + 1) {
        request
            .must_coexist
            .push(rules.rule(vec![name(random.below(shape.services)), name(random.below(shape.services))]));
    }
    request
}

#[test]
fn large_requests_are_answered() {
    let cases = std::env::var("COB_SOLVER_LARGE").map_or(100, |n| n.parse().expect("a number"));
    let (mut layouts, mut none, mut undecided) = (0, 0, 0);
    for seed in 1..=cases {
        let mut random = Random::new(seed);
        let most = if random.chance(50) { 30 } else { 1_000 };
        let shape = Shape {
            services: 12 + random.below(19),
            hardware: 1 + random.below(5),
            images: 1 + random.below(4),
            nodes: 5 + random.below(most),
            apart: random.below(16),
            dense: random.below(60),
        };
        let request = large(&mut random, &shape);
        match solve(&request, Budget::default()).expect("a sound request") {
            Outcome::Layout(layout) => {
                layouts += 1;
                let counts: Vec<_> = layout.counts.into_iter().map(|c| (c.layout, c.count)).collect();
                assert!(keeps_all_rules(&request, &counts), "seed {seed}");
            }
            Outcome::None(explanation) => {
                none += 1;
                assert!(explanation.minimal && !explanation.core.is_empty(), "seed {seed}");
            }
            Outcome::Undecided => {
                println!("seed {seed} takes too many steps");
                undecided += 1;
            }
        }
    }
    println!("{layouts} layouts, {none} without, {undecided} undecided");
    assert!(undecided * 1_000 <= cases, "{undecided} of {cases} are undecided");
    assert!(cases < 20 || layouts.min(none) > 0);
}

/// Existing nodes of many types, most of which are removed.
#[test]
fn large_clusters_shrink_and_change() {
    let mut random = Random::new(7);
    let mut rules = Rules::default();
    let names: Vec<String> = (0..8).map(|i| format!("s{i}")).collect();
    let mut request = Request {
        services: names.iter().map(|n| ServiceRule { name: n.clone(), ..ServiceRule::default() }).collect(),
        hardware: vec![TypeOption { name: "hw".to_owned(), cost: 1 }],
        images: vec![TypeOption { name: "img".to_owned(), cost: 1 }],
        ..Request::default()
    };
    for service in &mut request.services {
        service.quantities.min = Some(rules.rule(3));
        service.quantities.max = Some(rules.rule(4_000));
        service.quantities.odd = random.chance(50).then(|| rules.id());
    }
    let sorts: Vec<_> = (0..12).map(|_| [random.some(&names, 50), vec![random.pick(&names)]].concat()).collect();
    request.existing = (0..5_000)
        .map(|i| ExistingNode {
            name: format!("n{i}"),
            services: random.pick(&sorts),
            hardware: random.pick(&["hw", "older"]).to_owned(),
            image: "img".to_owned(),
        })
        .collect();
    for nodes in [4_990, 100, 9, 5] {
        request.nodes = Nodes::Count(nodes);
        let Ok(Outcome::Layout(layout)) = solve(&request, Budget::default()) else {
            panic!("{nodes} nodes can stay: {:?}", solve(&request, Budget::default()))
        };
        assert_eq!((layout.named.len() as u64, layout.leaving.len() as u64), (nodes, 5_000 - nodes));
    }
    // Another service, on at most a third of the nodes, and never beside s0.
    request.nodes = Nodes::Count(5_010);
    let mut added = ServiceRule { name: "t".to_owned(), ..ServiceRule::default() };
    added.quantities.ratio_max = Ratio::new(1, 3).map(|r| rules.rule(r));
    request.services.push(added);
    request.changed = vec!["t".to_owned()];
    request.cant_coexist.push(rules.rule(vec!["s0".to_owned(), "t".to_owned()]));
    let Ok(Outcome::Layout(layout)) = solve(&request, Budget::default()) else { panic!("there is room") };
    let with: u64 = layout.counts.iter().filter(|c| c.layout.services.contains(&"t".to_owned())).map(|c| c.count).sum();
    assert_eq!((with, layout.leaving.len()), (1_670, 0));
}

/// Machines of many types, each suited to only some services.
#[test]
fn large_inventories_are_laid_out() {
    let mut random = Random::new(11);
    let mut rules = Rules::default();
    let host = |at: u64| InventoryHost {
        name: format!("h{at}"),
        hardware: format!("hw{}", at % 17),
        image: format!("img{}", at % 3),
    };
    let mut request = Request { nodes: Nodes::Inventory((0..2_000).map(host).collect()), ..Request::default() };
    for at in 0..12 {
        let types = (0..17).map(|h| format!("hw{h}")).collect::<Vec<_>>();
        let mut own = ServiceRule { name: format!("s{at}"), ..ServiceRule::default() };
        own.hardware = (at % 2 == 0).then(|| rules.rule(random.some(&types, 60)));
        own.quantities.max = (at % 3 == 0).then(|| rules.rule(100 + at));
        own.quantities.min = Some(rules.rule(at));
        request.services.push(own);
    }
    request.cant_coexist.push(rules.rule(vec!["s0".to_owned(), "s1".to_owned()]));
    request.cant_coexist.push(rules.rule(vec!["s2".to_owned(), "s3".to_owned(), "s4".to_owned()]));
    let Ok(Outcome::Layout(layout)) = solve(&request, Budget::default()) else { panic!("there is room") };
    assert_eq!(layout.nodes().count(), 2_000);
}
