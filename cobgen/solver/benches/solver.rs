//! Benchmarks of the solver: the figures of docs/solver.md.
//!
//! `cargo bench -p cob-solver`

use cob_solver::{
    Budget, ExistingNode, NodeRef, Nodes, Outcome, Quantities, Ratio, Request, RuleId, Ruled, ServiceRule, TypeOption,
    solve,
};
use divan::Bencher;

fn main() {
    divan::main();
}

/// Gives every rule its own number.
#[derive(Default)]
struct Rules(u32);

impl Rules {
    fn id(&mut self) -> RuleId {
        self.0 += 1;
        RuleId(self.0)
    }

    fn rule<T>(&mut self, value: T) -> Ruled<T> {
        Ruled::new(value, self.id())
    }
}

fn types(word: &str, count: u64) -> Vec<TypeOption> {
    (0..count).map(|i| TypeOption { name: format!("{word}{i}"), cost: i }).collect()
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|s| (*s).to_owned()).collect()
}

fn layout(request: &Request) -> u64 {
    match solve(request, Budget::default()).expect("a sound request") {
        Outcome::Layout(layout) => layout.counts.len() as u64,
        other @ (Outcome::None(_) | Outcome::Undecided) => panic!("{other:?}"),
    }
}

/// The classic template: each master once, all workers together, and apart from the masters.
fn hadoop(nodes: u64) -> Request {
    let mut rules = Rules::default();
    let mut service = |name: &str, min: Option<u64>, max: Option<u64>| ServiceRule {
        name: name.to_owned(),
        quantities: Quantities {
            min: min.map(|n| rules.rule(n)),
            max: max.map(|n| rules.rule(n)),
            ..Quantities::default()
        },
        ..ServiceRule::default()
    };
    let mut services: Vec<_> =
        ["namenode", "resourcemanager", "hbase-master"].map(|name| service(name, Some(1), Some(1))).into();
    services.extend(["datanode", "nodemanager", "regionserver", "base"].map(|name| service(name, None, None)));
    let mut zookeeper = service("zookeeper", Some(1), Some(5));
    zookeeper.quantities.odd = Some(rules.id());
    services.push(zookeeper);
    Request {
        services,
        must_coexist: vec![rules.rule(names(&["datanode", "nodemanager", "regionserver"]))],
        cant_coexist: ["namenode", "resourcemanager", "hbase-master"]
            .map(|master| rules.rule(names(&["datanode", master])))
            .into(),
        hardware: types("hw", 3),
        images: types("img", 2),
        nodes: Nodes::Count(nodes),
        ..Request::default()
    }
}

/// Every service has its own rules: quantities, types, and conflicts with some other services.
fn constrained(seed: u64, services: u64, hardware: u64, images: u64, nodes: u64) -> Request {
    let mut rules = Rules::default();
    let mut seed = seed.wrapping_mul(1_000_003) ^ services;
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let name = |i: u64| format!("s{i:02}");
    let mut request = Request {
        hardware: types("hw", hardware),
        images: types("img", images),
        nodes: Nodes::Count(nodes),
        ..Request::default()
    };
    for i in 0..services {
        let mut own = ServiceRule { name: name(i), ..ServiceRule::default() };
        let first = below(hardware);
        let some = (0..hardware).filter(|h| *h == first || below(3) > 0).map(|h| format!("hw{h}")).collect();
        own.hardware = (below(2) == 0).then(|| rules.rule(some));
        let first = below(images);
        let some = (0..images).filter(|h| *h == first || below(3) > 0).map(|h| format!("img{h}")).collect();
        own.images = (below(3) == 0).then(|| rules.rule(some));
        let quantities = &mut own.quantities;
        match below(4) {
            0 => quantities.max = Some(rules.rule(1 + below(5))),
            1 => quantities.min = Some(rules.rule(1 + below(nodes / 4))),
            2 => quantities.ratio_max = Some(rules.rule(Ratio::new(1 + below(3), 4).expect("quarters"))),
            _ => quantities.max = Some(rules.rule(nodes / 2 + below(nodes / 2))),
        }
        quantities.odd = (below(6) == 0).then(|| rules.id());
        request.services.push(own);
    }
    for _ in 0..services {
        let (a, b) = (below(services), below(services));
        if a != b {
            request.cant_coexist.push(rules.rule(vec![name(a), name(b)]));
        }
    }
    for _ in 0..services / 8 {
        let (a, b) = (below(services), below(services));
        request.must_coexist.push(rules.rule(vec![name(a), name(b)]));
    }
    request
}

#[divan::bench(args = [5, 50, 500, 10_000, 100_000])]
fn hadoop_template(bencher: Bencher<'_, '_>, nodes: u64) {
    let request = hadoop(nodes);
    bencher.bench(|| layout(&request));
}

#[divan::bench]
fn hadoop_100_000_nodes_written_out(bencher: Bencher<'_, '_>) {
    let request = hadoop(100_000);
    bencher.bench(|| {
        let Ok(Outcome::Layout(layout)) = solve(&request, Budget::default()) else { panic!("there is a layout") };
        let mut text = String::new();
        for (node, own) in layout.nodes() {
            text.push_str(&format!("{node:?} {} {} {}\n", own.services.join(","), own.hardware, own.image));
        }
        text.len()
    });
}

/// Ten different requests per iteration, with and without a layout.
#[divan::bench]
fn ten_times_twelve_services_on_5_by_4_types(bencher: Bencher<'_, '_>) {
    let requests: Vec<_> = (0..10).map(|seed| constrained(seed, 12, 5, 4, 60)).collect();
    bencher.bench(|| requests.iter().map(|r| solve(r, Budget::default())).filter(Result::is_ok).count());
}

/// Ten different requests per iteration, all of which have a layout.
#[divan::bench(args = [16, 18, 20, 22, 30])]
fn ten_times_constrained_services(bencher: Bencher<'_, '_>, services: u64) {
    let requests = ten(services, |outcome| matches!(outcome, Outcome::Layout(_)));
    bencher.bench(|| requests.iter().map(layout).sum::<u64>());
}

/// Ten different requests per iteration, all without a layout.
#[divan::bench(args = [12, 16, 22, 30])]
fn ten_times_impossible_with_explanation(bencher: Bencher<'_, '_>, services: u64) {
    let requests = ten(services, |outcome| matches!(outcome, Outcome::None(_)));
    bencher.bench(|| requests.iter().map(core).sum::<usize>());
}

fn ten(services: u64, wanted: impl Fn(&Outcome) -> bool) -> Vec<Request> {
    let all = (0..).map(|seed| constrained(seed, services, 3, 2, 20 + seed % 5 * 40));
    all.filter(|r| wanted(&solve(r, Budget::default()).expect("a sound request"))).take(10).collect()
}

fn core(request: &Request) -> usize {
    match solve(request, Budget::default()).expect("a sound request") {
        Outcome::None(explanation) => explanation.core.len(),
        other @ (Outcome::Layout(_) | Outcome::Undecided) => panic!("{other:?}"),
    }
}

/// More masters than nodes that can be free of workers.
#[divan::bench(args = [5, 10_000])]
fn impossible_hadoop_with_explanation(bencher: Bencher<'_, '_>, nodes: u64) {
    let mut request = hadoop(nodes);
    for service in request.services.iter_mut().filter(|s| s.name == "datanode") {
        service.quantities.min = Some(Ruled::new(nodes, RuleId(1_000)));
    }
    bencher.bench(|| core(&request));
}

#[divan::bench(args = [1_000, 10_000])]
fn hadoop_grows_by_ten_nodes(bencher: Bencher<'_, '_>, nodes: u64) {
    let mut request = hadoop(nodes);
    let Ok(Outcome::Layout(layout)) = solve(&request, Budget::default()) else { panic!("there is a layout") };
    let name = |node| match node {
        NodeRef::New(at) => format!("n{at}"),
        NodeRef::Named(name) => name.to_owned(),
    };
    let existing = layout.nodes().map(|(node, layout)| ExistingNode {
        name: name(node),
        services: layout.services.clone(),
        hardware: layout.hardware.clone(),
        image: layout.image.clone(),
    });
    request.existing = existing.collect();
    request.nodes = Nodes::Count(nodes + 10);
    bencher.bench(|| self::layout(&request));
}
