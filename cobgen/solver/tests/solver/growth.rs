//! Existing clusters: they grow, shrink, gain and lose services, and all other services stay in place.

use std::collections::{BTreeMap, BTreeSet};

use cob_solver::{
    Budget, ExistingNode, Explanation, InventoryHost, Layout, NodeLayout, NodeRef, Nodes, Outcome, Request, RuleKind,
    solve,
};

use crate::build::{Rules, names, request, service, types};
use crate::loom::{hadoop, laid_out};

/// The nodes of a layout as the next request's existing cluster; the caller names new nodes.
fn settle(layout: &Layout, taken: &[ExistingNode]) -> Vec<ExistingNode> {
    let used: BTreeSet<&str> = taken.iter().map(|n| n.name.as_str()).collect();
    let mut free = (0..).map(|i| format!("n{i}")).filter(|name| !used.contains(name.as_str()));
    let node = |(node, layout): (NodeRef<'_>, &NodeLayout)| ExistingNode {
        name: match node {
            NodeRef::Named(name) => name.to_owned(),
            NodeRef::New(_) => free.next().expect("numbers do not end"),
        },
        services: layout.services.clone(),
        hardware: layout.hardware.clone(),
        image: layout.image.clone(),
    };
    layout.nodes().map(node).collect()
}

/// Existing nodes keep their types, and every service outside `concerned` stays in place.
fn assert_nothing_moved(before: &[ExistingNode], after: &[ExistingNode], concerned: &[&str]) {
    let after: BTreeMap<&str, &ExistingNode> = after.iter().map(|n| (n.name.as_str(), n)).collect();
    for node in before {
        let Some(now) = after.get(node.name.as_str()) else { continue };
        assert_eq!((&now.hardware, &now.image), (&node.hardware, &node.image), "{}", node.name);
        let unconcerned = |n: &ExistingNode| {
            n.services.iter().filter(|s| !concerned.contains(&s.as_str())).cloned().collect::<BTreeSet<_>>()
        };
        assert_eq!(unconcerned(now), unconcerned(node), "{}", node.name);
    }
}

fn explanation(request: &Request) -> Explanation {
    match solve(request, Budget::default()).expect("a sound request") {
        Outcome::None(explanation) => explanation,
        other @ (Outcome::Layout(_) | Outcome::Undecided) => panic!("{other:#?}"),
    }
}

#[test]
fn a_cluster_grows_shrinks_and_changes_its_services() {
    let mut request = hadoop(5);
    // Services that change later are absent at first.
    let coming = request.services.iter().position(|s| s.name == "hbase-master").expect("there");
    let coming = request.services.remove(coming);
    let five = settle(&laid_out(&request), &[]);
    assert_eq!(five.len(), 5);

    request.existing.clone_from(&five);
    request.nodes = Nodes::Count(50);
    // Other hardware is better now; the old nodes keep theirs.
    request.hardware = types(&["enormous", "large"]);
    let layout = laid_out(&request);
    assert!(layout.leaving.is_empty());
    let fifty = settle(&layout, &five);
    assert_nothing_moved(&five, &fifty, &[]);
    let (old, new): (Vec<_>, Vec<_>) = fifty.iter().partition(|n| five.iter().any(|o| o.name == n.name));
    assert!(old.iter().all(|n| n.hardware == "large") && new.iter().all(|n| n.hardware == "enormous"));
    assert_eq!((old.len(), new.len()), (5, 45));

    request.existing.clone_from(&fifty);
    request.nodes = Nodes::Count(7);
    let layout = laid_out(&request);
    assert_eq!(layout.leaving.len(), 43);
    let seven = settle(&layout, &fifty);
    assert_nothing_moved(&fifty, &seven, &[]);
    let one = |service: &str| seven.iter().filter(|n| n.services.iter().any(|s| s == service)).count();
    assert_eq!((one("namenode"), one("resourcemanager"), one("zookeeper") % 2), (1, 1, 1));

    request.existing.clone_from(&seven);
    request.services.push(coming);
    request.changed = names(&["hbase-master"]);
    let added = settle(&laid_out(&request), &seven);
    assert_nothing_moved(&seven, &added, &["hbase-master"]);
    let host = added.iter().find(|n| n.services.contains(&"hbase-master".to_owned())).expect("it is on a node");
    assert!(host.services.contains(&"namenode".to_owned()), "the only node where it can be");

    request.existing.clone_from(&added);
    request.services.retain(|s| s.name != "zookeeper");
    request.changed = names(&["zookeeper"]);
    let removed = settle(&laid_out(&request), &added);
    assert_nothing_moved(&added, &removed, &["zookeeper"]);
    assert!(removed.iter().all(|n| !n.services.contains(&"zookeeper".to_owned())));
}

#[test]
fn the_last_of_equal_nodes_go() {
    let mut rules = Rules::default();
    let mut request = request(vec![service("app")], 2);
    request.services[0].quantities.min = Some(rules.rule(1));
    let node = |name: &str| ExistingNode {
        name: name.to_owned(),
        services: names(&["app"]),
        hardware: "old".to_owned(),
        image: "img".to_owned(),
    };
    request.existing = ["n10", "n9", "n1"].map(node).into();
    assert_eq!(laid_out(&request).leaving, ["n10"]);
}

#[test]
fn an_explanation_names_the_placement_in_the_way() {
    let mut rules = Rules::default();
    let mut request = request(vec![service("db"), service("app")], 2);
    request.services[0].quantities.max = Some(rules.rule(1));
    request.services[1].quantities.min = Some(rules.rule(2));
    request.cant_coexist = vec![rules.rule(names(&["db", "app"]))];
    let node = |name: &str, services: &[&str]| ExistingNode {
        name: name.to_owned(),
        services: names(services),
        hardware: "hw".to_owned(),
        image: "img".to_owned(),
    };
    request.existing = vec![node("a", &["db"]), node("b", &["app"])];
    request.nodes = Nodes::Count(3);
    assert_eq!(laid_out(&request).counts.len(), 2);
    // A node with only the db can't take the app, and no other node may take it.
    request.nodes = Nodes::Count(2);
    request.changed = names(&["app"]);
    let explanation = explanation(&request);
    let kinds: Vec<_> = explanation.core.iter().map(|r| r.kind.clone()).collect();
    let min = RuleKind::Min("app".to_owned(), 2);
    let apart = RuleKind::CantCoexist(names(&["app", "db"]));
    assert_eq!(kinds, [min.clone(), apart.clone()], "the existing nodes are not to blame");
    // If both have room in principle, the existing nodes are the reason.
    request.services[1].quantities.min = None;
    request.services.push(service("cache"));
    request.services[2].hardware = Some(rules.rule(names(&["big"])));
    request.hardware = types(&["big", "hw"]);
    request.changed = names(&["cache"]);
    let explanation = self::explanation(&request);
    let kinds: Vec<_> = explanation.core.iter().map(|r| r.kind.to_string()).collect();
    let keeps = |node| format!("{node} keeps its hardware, image and services");
    assert_eq!(kinds, ["cache on hardware big".to_owned(), keeps("a"), keeps("b")]);
    let helps: Vec<_> = explanation.relaxations.iter().map(|r| r.changes[0].to_string()).collect();
    assert_eq!(helps[0], "1 more node", "{helps:?}");
}

#[test]
fn hosts_of_an_inventory_keep_their_hardware() {
    let mut rules = Rules::default();
    let mut request = request(vec![service("db"), service("app")], 0);
    request.services[0].hardware = Some(rules.rule(names(&["ssd"])));
    request.services[0].quantities.max = Some(rules.rule(2));
    request.services[1].quantities.min = Some(rules.rule(1));
    let host = |name: &str, hardware: &str| InventoryHost {
        name: name.to_owned(),
        hardware: hardware.to_owned(),
        image: "debian".to_owned(),
    };
    request.nodes = Nodes::Inventory(vec![host("c", "ssd"), host("a", "disk"), host("b", "ssd"), host("d", "ssd")]);
    let layout = laid_out(&request);
    let nodes: Vec<_> =
        layout.named.iter().map(|(name, at)| (name.as_str(), layout.counts[*at].layout.services.join(" "))).collect();
    let expected = [("a", "app"), ("b", "app db"), ("c", "app db"), ("d", "app")];
    assert_eq!(nodes, expected.map(|(name, services)| (name, services.to_owned())));
    // The same hosts and another host, and a rule that needs two.
    request.services[0].quantities.min = Some(rules.rule(2));
    request.nodes = Nodes::Inventory(vec![host("a", "disk"), host("b", "ssd")]);
    let kinds: Vec<_> = explanation(&request).core.into_iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [RuleKind::Min("db".to_owned(), 2), RuleKind::Hardware("db".to_owned(), names(&["ssd"]))]);
}

#[test]
fn thousands_of_existing_nodes_are_explained_as_one_rule() {
    let mut rules = Rules::default();
    let mut request = hadoop(3_000);
    request.existing = settle(&laid_out(&request), &[]);
    request.services.push(service("cache"));
    request.services.last_mut().expect("it is there").hardware = Some(rules.rule(names(&["medium"])));
    request.changed = names(&["cache"]);
    let explanation = explanation(&request);
    let core: Vec<_> = explanation.core.iter().map(|r| r.kind.to_string()).collect();
    // The workers with and without the quorum, the master, and the needs of the new service.
    assert_eq!(core.len(), 4, "{core:?}");
    assert_eq!(core[0], "cache on hardware medium");
    assert!(core[3].ends_with("2991 similar nodes keep their hardware, image and services"), "{core:?}");
    assert_eq!(explanation.relaxations[0].changes[0].to_string(), "1 more node");
}
