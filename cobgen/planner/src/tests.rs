//! Loom's worked example, each operation, and properties of every plan.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::{Action, Cluster, Durations, Job, Node, Operation, Origin, Plan, PlanError, Service, plan};

const ALL: [Action; 6] =
    [Action::Install, Action::Configure, Action::Initialize, Action::Start, Action::Stop, Action::Remove];

fn names(list: &str) -> BTreeSet<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

fn service(runtime: &str) -> Service {
    Service { actions: ALL.into(), runtime: names(runtime), ..Service::default() }
}

fn node(name: &str, services: &str) -> Node {
    Node { name: name.to_owned(), services: names(services), origin: Origin::Provider }
}

/// Loom's example: a node with s1 and s3, four with s2; s3 requires both others.
fn loom() -> Cluster {
    let after = vec![node("n1", "s1 s3"), node("n2", "s2"), node("n3", "s2"), node("n4", "s2"), node("n5", "s2")];
    let services = [("s1", ""), ("s2", ""), ("s3", "s1 s2")];
    let services = services.map(|(name, needs)| (name.to_owned(), service(needs))).into();
    Cluster { before: Vec::new(), after, services }
}

fn text(job: &Job) -> String {
    match &job.service {
        Some(service) => format!("{} {service} {}", job.action, job.node),
        None => format!("{} {}", job.action, job.node),
    }
}

fn texts(plan: &Plan, steps: &[usize]) -> Vec<String> {
    steps.iter().filter_map(|at| plan.steps[*at].job.as_ref()).map(text).collect()
}

fn groups(plan: &Plan, groups: &[Vec<usize>]) -> Vec<String> {
    groups.iter().map(|group| texts(plan, group).join(", ")).collect()
}

/// The steps that a job waits for.
fn after(plan: &Plan, job: &str) -> Vec<String> {
    let step = plan.steps.iter().find(|s| s.job.as_ref().is_some_and(|j| text(j) == job));
    texts(plan, &step.unwrap_or_else(|| panic!("no {job}")).after)
}

fn jobs(plan: &Plan) -> Vec<String> {
    texts(plan, &(0..plan.steps.len()).collect::<Vec<_>>())
}

#[test]
fn looms_example_has_looms_order() {
    let plan = plan(&loom(), Operation::Create, None).expect("a plan");
    assert_eq!(jobs(&plan).len(), 5 * 3 + 6 * 4);
    for node in ["n1", "n2"] {
        assert_eq!(after(&plan, &format!("create {node}")), [""; 0]);
        assert_eq!(after(&plan, &format!("confirm {node}")), [format!("create {node}")]);
        assert_eq!(after(&plan, &format!("bootstrap {node}")), [format!("confirm {node}")]);
    }
    // All jobs but the initialization of s3 wait only for their own node's chain.
    assert_eq!(after(&plan, "install s1 n1"), ["bootstrap n1"]);
    assert_eq!(after(&plan, "install s3 n1"), ["bootstrap n1"]);
    assert_eq!(after(&plan, "configure s3 n1"), ["install s3 n1"]);
    assert_eq!(after(&plan, "start s2 n4"), ["initialize s2 n4"]);
    assert_eq!(
        after(&plan, "initialize s3 n1"),
        ["start s1 n1", "configure s3 n1", "start s2 n2", "start s2 n3", "start s2 n4", "start s2 n5"]
    );
    assert_eq!(after(&plan, "start s3 n1"), ["initialize s3 n1"]);
}

#[test]
fn looms_example_has_looms_stages() {
    let plan = plan(&loom(), Operation::Create, None).expect("a plan");
    let others = |what: &str| (2..=5).map(|n| format!("{what} n{n}")).collect::<Vec<_>>().join(", ");
    let whole = |action: &str| format!("{action} n1, {}", others(action));
    let of = |action: &str| format!("{action} s1 n1, {action} s3 n1, {}", others(&format!("{action} s2")));
    let without_s3 = |action: &str| format!("{action} s1 n1, {}", others(&format!("{action} s2")));
    let before = [
        whole("create"),
        whole("confirm"),
        whole("bootstrap"),
        of("install"),
        of("configure"),
        without_s3("initialize"),
        without_s3("start"),
        "initialize s3 n1".to_owned(),
        "start s3 n1".to_owned(),
    ];
    assert_eq!(groups(&plan, &plan.levels), before);
    let split = [
        whole("create"),
        whole("confirm"),
        whole("bootstrap"),
        without_s3("install"),
        "install s3 n1".to_owned(),
        without_s3("configure"),
        "configure s3 n1".to_owned(),
        without_s3("initialize"),
        without_s3("start"),
        "initialize s3 n1".to_owned(),
        "start s3 n1".to_owned(),
    ];
    assert_eq!(groups(&plan, &plan.stages), split);
}

#[test]
fn without_barriers_a_slow_node_keeps_only_its_own_waiting() {
    let plan = plan(&loom(), Operation::Create, None).expect("a plan");
    let mut durations = Durations::all(1000);
    assert_eq!((plan.times(&durations).staged, plan.times(&durations).ordered), (11_000, 9000));
    // n5 is created slowly; meanwhile the other nodes install.
    durations.set(Action::Create, None, Some("n5"), 60_000);
    durations.set(Action::Install, Some("s1"), None, 50_000);
    let times = plan.times(&durations);
    assert_eq!((times.staged, times.ordered), (119_000, 68_000));
    let longest = texts(&plan, &times.longest);
    assert_eq!((longest[0].as_str(), longest.last().map(String::as_str)), ("create n5", Some("start s3 n1")));
    durations.set(Action::Install, Some("s2"), Some("n5"), 7000);
    assert_eq!(plan.times(&durations).ordered, 74_000);
}

/// A database, an application that requires it, and a watcher that is installed after both.
fn shop() -> Cluster {
    let after = vec![node("n1", "db watch"), node("n2", "app watch")];
    let mut services: BTreeMap<String, Service> =
        [("db", ""), ("app", "db"), ("watch", "")].map(|(name, needs)| (name.to_owned(), service(needs))).into();
    services.get_mut("watch").expect("there").install = names("app db");
    Cluster { before: after.clone(), after, services }
}

#[test]
fn stopping_goes_the_other_way_round() {
    let stop = plan(&shop(), Operation::Stop, None).expect("a plan");
    assert_eq!(after(&stop, "stop db n1"), ["stop app n2"]);
    assert_eq!(after(&stop, "stop app n2"), [""; 0]);
    // A stop includes the services that require it; a start includes the services that it requires.
    let only = |operation, service: &str| jobs(&plan(&shop(), operation, Some(&names(service))).expect("a plan"));
    assert_eq!(only(Operation::Stop, "db"), ["stop db n1", "stop app n2"]);
    assert_eq!(only(Operation::Stop, "app"), ["stop app n2"]);
    assert_eq!(only(Operation::Start, "app"), ["start db n1", "start app n2"]);
    assert_eq!(only(Operation::Start, "db"), ["start db n1"]);
    let restart = plan(&shop(), Operation::Restart, Some(&names("db"))).expect("a plan");
    assert_eq!(groups(&restart, &restart.stages), ["stop app n2", "stop db n1", "start db n1", "start app n2"]);
}

#[test]
fn a_service_without_the_action_passes_its_dependencies_on() {
    let mut shop = shop();
    shop.services.insert("front".to_owned(), service("app"));
    shop.after[1].services.insert("front".to_owned());
    shop.services.get_mut("app").expect("there").actions = [Action::Install, Action::Configure].into();
    let made = plan(&shop, Operation::Create, None).expect("a plan");
    assert_eq!(after(&made, "initialize front n2"), ["start db n1", "configure front n2"]);
    // It is never stopped itself, so it is touched only after the services that require it have stopped.
    shop.before = shop.after.clone();
    let renewed = plan(&shop, Operation::Upgrade, Some(&names("app"))).expect("a plan");
    assert_eq!(after(&renewed, "install app n2"), ["bootstrap n2", "stop front n2"]);
}

#[test]
fn installation_has_an_order_of_its_own() {
    let made = plan(&shop(), Operation::Create, None).expect("a plan");
    assert_eq!(after(&made, "install watch n1"), ["bootstrap n1", "install db n1", "install app n2"]);
    assert_eq!(after(&made, "initialize watch n1"), ["configure watch n1"]);
}

#[test]
fn growing_and_shrinking_concern_the_nodes_that_come_and_go() {
    let mut grown = shop();
    grown.after.push(node("n3", "app"));
    let expand = plan(&grown, Operation::Expand, None).expect("a plan");
    assert!(jobs(&expand).iter().all(|job| job.ends_with(" n3")), "{:?}", jobs(&expand));
    // The database runs already: it has no jobs, and no job waits for it.
    assert_eq!(after(&expand, "initialize app n3"), ["configure app n3"]);
    std::mem::swap(&mut grown.before, &mut grown.after);
    let shrink = plan(&grown, Operation::Shrink, None).expect("a plan");
    assert_eq!(jobs(&shrink), ["stop app n3", "remove app n3", "delete n3"]);
    assert_eq!(after(&shrink, "delete n3"), ["remove app n3"]);
    let error = plan(&grown, Operation::Expand, None).expect_err("it shrinks");
    assert_eq!(error.to_string(), "expand does not cover this difference between the layouts: the node n3 leaves");
}

#[test]
fn services_are_added_to_and_removed_from_nodes() {
    let mut cluster = shop();
    cluster.services.insert("cache".to_owned(), service("db"));
    cluster.after[1].services.insert("cache".to_owned());
    let add = plan(&cluster, Operation::AddServices, None).expect("a plan");
    assert_eq!(
        jobs(&add),
        ["bootstrap n2", "install cache n2", "configure cache n2", "initialize cache n2", "start cache n2"]
    );
    std::mem::swap(&mut cluster.before, &mut cluster.after);
    let remove = plan(&cluster, Operation::RemoveServices, None).expect("a plan");
    assert_eq!(jobs(&remove), ["stop cache n2", "remove cache n2"]);
}

#[test]
fn an_upgrade_replaces_a_service_by_another_provider() {
    let mut cluster = shop();
    cluster.after[0].services = names("db2 watch");
    for name in ["db", "db2"] {
        let service = Service { provides: names("database"), ..service("") };
        cluster.services.insert(name.to_owned(), service);
    }
    cluster.services.get_mut("app").expect("there").runtime = names("db db2");
    let upgrade = plan(&cluster, Operation::Upgrade, None).expect("a plan");
    assert_eq!(
        groups(&upgrade, &upgrade.stages),
        [
            "bootstrap n1, stop app n2",
            "stop db n1",
            "remove db n1",
            "install db2 n1",
            "configure db2 n1",
            "start db2 n1",
            "start app n2"
        ]
    );
}

#[test]
fn hosts_of_an_inventory_are_neither_made_nor_given_back() {
    let mut cluster = shop();
    for node in cluster.before.iter_mut().chain(&mut cluster.after) {
        node.origin = Origin::Inventory;
    }
    let made = plan(&cluster, Operation::Create, None).expect("a plan");
    assert!(jobs(&made).iter().all(|job| !job.starts_with("create") && !job.starts_with("confirm")));
    let gone = plan(&cluster, Operation::Delete, None).expect("a plan");
    assert_eq!(jobs(&gone).len(), 2 * 4);
    assert_eq!(after(&gone, "stop db n1"), ["stop app n2"]);
    assert_eq!(jobs(&plan(&shop(), Operation::Delete, None).expect("a plan")), ["delete n1", "delete n2"]);
}

#[test]
fn redundant_dependencies_of_jobs_are_omitted() {
    let name = |number: usize| format!("s{number:03}");
    let needs_all_before = |number: usize| service(&(0..number).map(name).collect::<Vec<_>>().join(" "));
    let services: BTreeMap<String, Service> = (0..300).map(|number| (name(number), needs_all_before(number))).collect();
    let all = services.keys().cloned().collect::<Vec<_>>().join(" ");
    let cluster = Cluster { before: Vec::new(), after: vec![node("n1", &all)], services };
    let plan = plan(&cluster, Operation::Create, None).expect("a plan");
    assert_eq!(after(&plan, "start s299 n1"), ["initialize s299 n1"]);
    assert_eq!(after(&plan, "initialize s299 n1"), ["start s298 n1", "configure s299 n1"]);
    assert_eq!(after(&plan, "initialize s000 n1"), ["configure s000 n1"]);
}

#[test]
fn circles_and_services_that_are_nowhere_are_refused() {
    let mut cluster = shop();
    cluster.services.get_mut("db").expect("there").runtime = names("watch");
    cluster.services.get_mut("watch").expect("there").runtime = names("app");
    let error = plan(&cluster, Operation::Stop, None).expect_err("a circle");
    assert_eq!(error, PlanError::Circle(["app", "db", "watch", "app"].map(str::to_owned).to_vec()));
    let error = plan(&shop(), Operation::Stop, Some(&names("dbb"))).expect_err("nowhere");
    assert_eq!(error.to_string(), "the service dbb is on no node of the cluster");
}

#[test]
fn many_wait_for_many_through_a_gate() {
    let after = (0..200).map(|n| node(&format!("n{n}"), if n < 100 { "db" } else { "app" })).collect();
    let cluster = Cluster { before: Vec::new(), after, services: shop().services };
    let made = plan(&cluster, Operation::Create, None).expect("a plan");
    let gates = made.steps.iter().filter(|s| s.job.is_none()).count();
    let order: usize = made.steps.iter().map(|s| s.after.len()).sum();
    assert!(gates == 1 && order < 200 * 8, "{gates} gates, {order} dependencies");
    assert_eq!(made.levels.len(), 9);
}

#[derive(Debug, Clone)]
struct Drawn {
    cluster: Cluster,
    operation: Operation,
}

/// Random clusters; services require only earlier services.
fn drawn() -> impl Strategy<Value = Drawn> {
    let service = (proptest::collection::btree_set(0..6_usize, 0..6), any::<u8>(), any::<u8>());
    let services = proptest::collection::vec(service, 1..6);
    let nodes = proptest::collection::vec(any::<u8>(), 1..5);
    let operation = proptest::sample::select(vec![
        Operation::Create,
        Operation::Delete,
        Operation::Configure,
        Operation::Start,
        Operation::Stop,
        Operation::Restart,
        Operation::Upgrade,
    ]);
    (services, nodes, operation, any::<bool>()).prop_map(|(services, nodes, operation, inventory)| {
        let name = |i: usize| format!("s{i}");
        let earlier = |i: usize, bits: u8| (0..i).filter(|j| bits >> j & 1 == 1).map(name).collect();
        let made = services.iter().enumerate().map(|(i, (actions, install, runtime))| {
            let actions = actions.iter().map(|a| ALL[*a]).collect();
            let (install, runtime) = (earlier(i, *install), earlier(i, *runtime));
            (name(i), Service { actions, provides: BTreeSet::new(), install, runtime })
        });
        let origin = if inventory { Origin::Inventory } else { Origin::Provider };
        let after: Vec<Node> = nodes
            .iter()
            .enumerate()
            .map(|(i, bits)| Node { name: format!("n{i}"), services: earlier(services.len(), *bits), origin })
            .collect();
        Drawn { cluster: Cluster { before: after.clone(), after, services: made.collect() }, operation }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_keeps_its_grants(Drawn { cluster, operation } in drawn()) {
        let plan = plan(&cluster, operation, None).expect("nothing requires a later one");
        // Every job is in a single stage, no stage has two jobs of a node, and dependencies are in earlier stages.
        let mut stage_of = BTreeMap::new();
        for (number, stage) in plan.stages.iter().enumerate() {
            let mut nodes = BTreeSet::new();
            for at in stage {
                let job = plan.steps[*at].job.as_ref().expect("gates are in no stage");
                prop_assert!(nodes.insert(&job.node));
                prop_assert_eq!(stage_of.insert(*at, number), None);
            }
        }
        prop_assert_eq!(stage_of.len(), plan.steps.iter().filter(|s| s.job.is_some()).count());
        // The transitive closure of the order.
        let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); plan.steps.len()];
        for at in crate::stages::in_order(&plan.steps) {
            for direct in plan.steps[at].after.clone() {
                let further = before[direct].clone();
                before[at].extend(further.into_iter().chain([direct]));
            }
        }
        for (at, earlier) in before.iter().enumerate() {
            for b in earlier {
                if let (Some(early), Some(late)) = (stage_of.get(b), stage_of.get(&at)) {
                    prop_assert!(early < late);
                }
            }
        }
        // No service starts before the services that it requires, directly or not, nor stops after them.
        let requires = |a: &str, b: &str| {
            let mut next = vec![a];
            let mut seen = BTreeSet::new();
            while let Some(name) = next.pop() {
                for other in &cluster.services[name].runtime {
                    if other == b {
                        return true;
                    }
                    if seen.insert(other) {
                        next.push(other);
                    }
                }
            }
            false
        };
        for (at, a) in plan.steps.iter().enumerate() {
            for (to, b) in plan.steps.iter().enumerate() {
                let (Some(a), Some(b)) = (&a.job, &b.job) else { continue };
                let (Some(s), Some(t)) = (&a.service, &b.service) else { continue };
                if s == t || !requires(s, t) {
                    continue;
                }
                match (a.action, b.action) {
                    (Action::Start | Action::Initialize, Action::Start) => prop_assert!(before[at].contains(&to), "{} {}", text(a), text(b)),
                    (Action::Stop, Action::Stop) => prop_assert!(before[to].contains(&at), "{} {}", text(a), text(b)),
                    _ => {}
                }
            }
        }
        // The order without barriers is never slower.
        let times = plan.times(&Durations::all(7));
        prop_assert!(times.ordered <= times.staged);
    }
}

#[test]
fn services_that_the_layouts_do_not_differ_in_are_not_added_or_removed() {
    let before = vec![node("n1", "db mon"), node("n2", "db")];
    let after = vec![node("n1", "db"), node("n2", "db")];
    let services: BTreeMap<String, Service> = ["db", "mon"].map(|name| (name.to_owned(), service(""))).into();
    let removed = Cluster { before: before.clone(), after: after.clone(), services: services.clone() };
    let added = Cluster { before: after, after: before, services };
    for (cluster, operation, word) in
        [(&removed, Operation::RemoveServices, "removed"), (&added, Operation::AddServices, "added")]
    {
        plan(cluster, operation, Some(&names("mon"))).expect("that is what differs");
        let error = plan(cluster, operation, Some(&names("db mon"))).expect_err("db stays").to_string();
        assert_eq!(error, format!("the service db is not {word} by the model: it is mon"));
    }
    let same = Cluster { after: removed.before.clone(), ..removed };
    let error = plan(&same, Operation::RemoveServices, Some(&names("db"))).expect_err("nothing differs").to_string();
    assert_eq!(error, "the service db is not removed by the model; neither is another service");
}
