//! Random small requests, from a seed.

use cob_solver::{
    ExistingNode, InventoryHost, Nodes, Preference, Quantities, Ratio, Request, Ruled, ServiceRule, Size, TypeOption,
    Weights,
};

use crate::build::Rules;

/// SplitMix64: maps every number to a pseudo-random number.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn some<T: Clone>(&mut self, of: &[T], percent: u64) -> Vec<T> {
        of.iter().filter(|_| self.chance(percent)).cloned().collect()
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64);
        of[usize::try_from(at).expect("small")].clone()
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, usize::try_from(self.below(at as u64 + 1)).expect("small"));
        }
    }
}

const SERVICES: [&str; 6] = ["a", "b", "c", "d", "e", "gone"];

/// A request of up to `services` services and `nodes` nodes.
pub(crate) fn request(random: &mut Random, services: u64, nodes: u64) -> Request {
    let mut rules = Rules::default();
    let count = usize::try_from(1 + random.below(services)).expect("small");
    let names: Vec<String> = SERVICES[..count].iter().map(|s| (*s).to_owned()).collect();
    let hardware = options(random, "hw");
    let images = options(random, "img");
    let dense = random.below(4) * 14 + 6;
    let mut request = Request {
        services: names.iter().map(|n| service(random, &mut rules, n, &hardware, &images, nodes, dense)).collect(),
        preference: preference(random),
        ..Request::default()
    };
    // Rules may name a service that the cluster lacks.
    let mut known = names;
    known.push("gone".to_owned());
    for _ in 0..random.below(3) {
        let all = random.some(&known, 40);
        let rule = rules.rule(all);
        request.must_coexist.extend(random.chance(60).then_some(rule));
    }
    for _ in 0..random.below(4) {
        let all = random.some(&known, 45);
        let rule = rules.rule(all);
        request.cant_coexist.extend(random.chance(80).then_some(rule));
    }
    if random.chance(10) {
        let (min, max) = (random.below(3), 2 + random.below(nodes + 1));
        request.size = Size { min: Some(rules.rule(min)), max: Some(rules.rule(max)) };
    }
    request.nodes = Nodes::Count(1 + random.below(nodes));
    cluster(random, &mut request, &known, &hardware, &images, nodes);
    request.hardware = hardware;
    request.images = images;
    request
}

fn options(random: &mut Random, word: &str) -> Vec<TypeOption> {
    let count = 1 + random.below(3);
    (0..count).map(|i| TypeOption { name: format!("{word}{i}"), cost: random.below(3) }).collect()
}

fn preference(random: &mut Random) -> Preference {
    let mut weight = || i64::try_from(random.below(7)).expect("small") - 3;
    let weights = Weights { services: weight(), hardware_cost: weight(), image_cost: weight() };
    match random.below(8) {
        0 => Preference::CheapestHardware,
        1 => Preference::FewestImages,
        2 => Preference::Spread,
        3 => Preference::Pack,
        4 => Preference::Weighted(weights),
        _ => Preference::Default,
    }
}

fn service(
    random: &mut Random,
    rules: &mut Rules,
    name: &str,
    hardware: &[TypeOption],
    images: &[TypeOption],
    nodes: u64,
    dense: u64,
) -> ServiceRule {
    let mut list = |random: &mut Random, types: &[TypeOption]| {
        let names: Vec<String> = random.some(types, 75).into_iter().map(|t| t.name).collect();
        random.chance(dense).then(|| rules.rule(names))
    };
    let hardware = list(random, hardware);
    let images = list(random, images);
    let mut quantities = Quantities::default();
    if random.chance(dense) {
        quantities.min = Some(rules.rule(random.below(nodes)));
    }
    if random.chance(dense) {
        let max = if random.chance(90) { 1 + random.below(nodes) } else { 0 };
        quantities.max = Some(rules.rule(max));
    }
    if random.chance(dense / 3) {
        quantities.ratio_min = Some(rules.rule(share(random)));
    }
    if random.chance(dense / 3) {
        quantities.ratio_max = Some(rules.rule(share(random)));
    }
    if random.chance(dense / 2) {
        quantities.odd = Some(rules.id());
    }
    if random.chance(dense / 3) {
        let other = random.pick(&SERVICES[..4]).to_owned();
        quantities.requires.push(rules.rule((other, random.below(3))));
    }
    ServiceRule { name: name.to_owned(), hardware, images, quantities }
}

fn share(random: &mut Random) -> Ratio {
    let of = 1 + random.below(5);
    Ratio::new(random.below(of + 1), of).expect("not of nothing")
}

/// Adds an existing cluster in some cases, an inventory in others, or both.
fn cluster(
    random: &mut Random,
    request: &mut Request,
    known: &[String],
    hardware: &[TypeOption],
    images: &[TypeOption],
    nodes: u64,
) {
    let any = |random: &mut Random, types: &[TypeOption], other: &str| {
        if random.chance(8) { other.to_owned() } else { random.pick(types).name }
    };
    if random.chance(35) {
        for at in 0..random.below(nodes + 1) {
            let services = random.some(known, 55);
            let (hardware, image) = (any(random, hardware, "hw-old"), any(random, images, "img-old"));
            request.existing.push(ExistingNode { name: format!("n{at}"), services, hardware, image });
        }
        request.changed = random.some(known, 35);
    }
    if random.chance(25) {
        let first = random.below(3);
        let hosts = (first..first + 1 + random.below(nodes)).map(|at| InventoryHost {
            name: format!("n{at}"),
            hardware: any(random, hardware, "hw-own"),
            image: any(random, images, "img-own"),
        });
        request.nodes = Nodes::Inventory(hosts.collect());
    }
}

/// The same request with all lists in another order.
pub(crate) fn shuffled(random: &mut Random, request: &Request) -> Request {
    let mut other = request.clone();
    let lists = |random: &mut Random, rules: &mut Vec<Ruled<Vec<String>>>| {
        random.shuffle(rules);
        for rule in rules {
            random.shuffle(&mut rule.value);
        }
    };
    lists(random, &mut other.must_coexist);
    lists(random, &mut other.cant_coexist);
    random.shuffle(&mut other.services);
    for service in &mut other.services {
        for types in [&mut service.hardware, &mut service.images].into_iter().flatten() {
            random.shuffle(&mut types.value);
        }
        random.shuffle(&mut service.quantities.requires);
    }
    random.shuffle(&mut other.hardware);
    random.shuffle(&mut other.images);
    random.shuffle(&mut other.existing);
    for node in &mut other.existing {
        random.shuffle(&mut node.services);
    }
    random.shuffle(&mut other.changed);
    if let Nodes::Inventory(hosts) = &mut other.nodes {
        random.shuffle(hosts);
    }
    other
}
