//! Requests that brute force can't look through: the answers keep all rules, within few steps.

use cob_solver::{Budget, Nodes, Outcome, Quantities, Ratio, Request, ServiceRule, TypeOption, solve};

use crate::brute::keeps_all_rules;
use crate::build::Rules;
use crate::random::Random;

/// How a random large request is made.
struct Shape {
    services: u64,
    hardware: u64,
    images: u64,
    nodes: u64,
    /// Pairs that can't be together, for each service on average, in tenths.
    apart: u64,
    /// How often a service has a rule of each sort, in percent.
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
    let cases = std::env::var("COB_SOLVER_LARGE").map_or(60, |n| n.parse().expect("a number"));
    let verbose = std::env::var("COB_SOLVER_LARGE").is_ok();
    let (mut layouts, mut none) = (0, 0);
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
        let t = std::time::Instant::now();
        let o = solve(&request, Budget::default()).expect("a sound request");
        if verbose && t.elapsed().as_millis() > 20 {
            println!(
                "seed {seed} services {} nodes {} hw {} img {} apart {} dense {}: {:?} {}",
                shape.services,
                shape.nodes,
                shape.hardware,
                shape.images,
                shape.apart,
                shape.dense,
                t.elapsed(),
                match &o {
                    Outcome::Layout(l) => format!("layout {}", l.counts.len()),
                    Outcome::None(e) => format!("none {} {} {}", e.core.len(), e.relaxations.len(), e.minimal),
                    Outcome::Undecided => "undecided".to_owned(),
                }
            );
        }
        match o {
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
                if !verbose {
                    panic!("seed {seed} takes too many steps")
                }
            }
        }
    }
    println!("{layouts} layouts, {none} without");
    assert!(cases < 20 || layouts.min(none) > 0);
}
