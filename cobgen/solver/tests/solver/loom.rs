//! The worked examples of Loom's documentation, and its classic template.

use cob_solver::{
    Budget, Counted, Layout, NodeLayout, NodeRef, Nodes, Outcome, Quantities, Request, ServiceRule, solve,
};

use crate::build::{Rules, layout, names, request, service, types};

pub(crate) fn laid_out(request: &Request) -> Layout {
    match solve(request, Budget::default()).expect("a sound request") {
        Outcome::Layout(layout) => layout,
        other @ (Outcome::None(_) | Outcome::Undecided) => panic!("{other:#?}"),
    }
}

fn counts(request: &Request) -> Vec<(NodeLayout, u64)> {
    laid_out(request).counts.into_iter().map(|c| (c.layout, c.count)).collect()
}

/// s1 can't be with s2, and must be with s3.
fn three_services(rules: &mut Rules) -> Request {
    let mut request = request(vec![service("s1"), service("s2"), service("s3")], 5);
    request.cant_coexist = vec![rules.rule(names(&["s1", "s2"]))];
    request.must_coexist = vec![rules.rule(names(&["s1", "s3"]))];
    request
}

#[test]
fn three_services_have_two_service_sets() {
    let mut request = three_services(&mut Rules::default());
    // Whatever layouts are excluded, no other service set appears.
    let mut seen = std::collections::BTreeSet::new();
    loop {
        match solve(&request, Budget::default()).expect("a sound request") {
            Outcome::Layout(layout) => {
                seen.extend(layout.counts.iter().map(|c| c.layout.services.join(" ")));
                request.excluded.push(layout.counts);
            }
            Outcome::None(explanation) => {
                assert!(explanation.minimal);
                break;
            }
            Outcome::Undecided => panic!("five nodes are not many"),
        }
    }
    // One to four nodes with s1 and s3, the others with s2.
    assert_eq!(request.excluded.len(), 4);
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["s1 s3", "s2"]);
}

#[test]
fn each_service_set_gets_one_pair_of_types() {
    let mut rules = Rules::default();
    let mut request = three_services(&mut rules);
    request.hardware = types(&["hw2", "hw1"]);
    request.images = types(&["img1", "img2"]);
    request.services[0].hardware = Some(rules.rule(names(&["hw1"])));
    request.services[1].images = Some(rules.rule(names(&["img1"])));
    let expected = vec![(layout(&["s1", "s3"], "hw1", "img1"), 4), (layout(&["s2"], "hw1", "img1"), 1)];
    assert_eq!(counts(&request), expected);
}

#[test]
fn a_maximum_and_a_minimum_decide_the_split_of_five_nodes() {
    let mut rules = Rules::default();
    let mut request = three_services(&mut rules);
    request.services[0].quantities.max = Some(rules.rule(1));
    request.services[1].quantities.min = Some(rules.rule(1));
    let expected = vec![(layout(&["s1", "s3"], "hw", "img"), 1), (layout(&["s2"], "hw", "img"), 4)];
    assert_eq!(counts(&request), expected);
    let layout = laid_out(&request);
    let nodes: Vec<_> = layout.nodes().map(|(node, layout)| (node, layout.services.len())).collect();
    assert_eq!(nodes.first(), Some(&(NodeRef::New(0), 2)));
    assert_eq!((nodes.len(), nodes[4]), (5, (NodeRef::New(4), 1)));
    // The rules allow no other counts.
    request.excluded.push(layout.counts);
    assert!(matches!(solve(&request, Budget::default()), Ok(Outcome::None(_))));
}

/// The classic template: each master once, all workers together, and apart from the masters.
pub(crate) fn hadoop(nodes: u64) -> Request {
    let mut rules = Rules::default();
    let mut one = |name: &str| ServiceRule {
        quantities: Quantities { min: Some(rules.rule(1)), max: Some(rules.rule(1)), ..Quantities::default() },
        ..service(name)
    };
    let mut services: Vec<_> = ["namenode", "resourcemanager", "hbase-master"].map(&mut one).into();
    services.extend(["datanode", "nodemanager", "regionserver", "base"].map(service));
    let mut zookeeper = service("zookeeper");
    zookeeper.quantities = Quantities {
        min: Some(rules.rule(1)),
        max: Some(rules.rule(5)),
        odd: Some(rules.id()),
        ..Quantities::default()
    };
    services.push(zookeeper);
    let mut request = request(services, nodes);
    request.must_coexist = vec![rules.rule(names(&["datanode", "nodemanager", "regionserver"]))];
    request.cant_coexist = vec![
        rules.rule(names(&["datanode", "namenode"])),
        rules.rule(names(&["datanode", "resourcemanager"])),
        rules.rule(names(&["datanode", "hbase-master"])),
    ];
    request.hardware = types(&["small", "medium", "large"]);
    request.images = types(&["centos6", "ubuntu12"]);
    request.nodes = Nodes::Count(nodes);
    request
}

#[test]
fn the_classic_template_at_every_size() {
    for nodes in [2, 3, 5, 50, 500, 10_000] {
        let all = counts(&hadoop(nodes));
        let master = ["base", "hbase-master", "namenode", "resourcemanager"];
        let worker = ["base", "datanode", "nodemanager", "regionserver"];
        let with = |services: &[&'static str]| [services, &["zookeeper"]].concat();
        let on = |services: &[&str], count: u64| (layout(services, "large", "centos6"), count);
        let expected = match nodes {
            // Two nodes can't both have it: the number would be even.
            2 => vec![on(&with(&worker), 1), on(&master, 1)],
            3 | 5 => vec![on(&with(&worker), nodes - 1), on(&with(&master), 1)],
            _ => vec![on(&with(&worker), 5), on(&worker, nodes - 6), on(&master, 1)],
        };
        assert_eq!(all, expected, "{nodes} nodes");
    }
}

#[test]
fn a_service_that_no_rule_names_is_everywhere() {
    let mut rules = Rules::default();
    let mut request = request(vec![service("base"), service("x")], 3);
    request.services[1].quantities.max = Some(rules.rule(2));
    let expected = vec![(layout(&["base", "x"], "hw", "img"), 2), (layout(&["base"], "hw", "img"), 1)];
    assert_eq!(counts(&request), expected);
}

#[test]
fn a_hundred_thousand_nodes_are_written_out() {
    let layout = laid_out(&hadoop(100_000));
    assert_eq!(layout.nodes().count(), 100_000);
    assert_eq!(layout.counts.iter().map(|Counted { count, .. }| count).sum::<u64>(), 100_000);
}
