//! A cluster over time: five nodes, fifty, seven, another service, a removed service; unconcerned nodes stay unchanged.

use std::collections::BTreeMap;

use cob_types::outcome::{CobOutcome, Ended, HostOutcome, SwitchOutcome};
use cobgen::cli::{self, Terminal};
use serde_json::Value;

/// Services with hardware and image, by node.
type Nodes = BTreeMap<String, Value>;

/// `db` once, `app` wherever possible, `cache` on its own node.
fn model(nodes: u32, services: &str) -> String {
    format!(
        r#"
security: loopback-only
providers: {{p: {{}}}}
hardwaretypes: {{large: {{providers: {{p: {{}}}}}}, small: {{providers: {{p: {{}}}}}}}}
imagetypes: {{img: {{providers: {{p: {{}}}}}}}}
services:
  app: &service {{actions: {{start: "true", stop: "true"}}}}
  db: *service
  cache: *service
templates:
  shop:
    defaults: {{services: [{services}]}}
    constraints:
      layout: {{cantcoexist: [[app, cache]]}}
      services: {{db: {{hardwaretypes: [large], quantities: {{max: 1}}}}, app: {{quantities: {{min: 1}}}}, cache: {{quantities: {{min: 1}}}}}}
clusters:
  shop: {{template: shop, nodes: {nodes}}}
"#
    )
}

/// Solves the layout of a model, given the previous layout.
fn solve(folder: &std::path::Path, model: &str, before: &Value) -> (u8, Value) {
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("written");
        folder.join(name).to_str().expect("UTF-8").to_owned()
    };
    let (model, before) = (write("model.yaml", model), write("before.json", &before.to_string()));
    let args = ["cobgen", "solve", &model, "--json", "--existing", &before].map(Into::into);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status =
        cli::run(args.to_vec(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
    (status, serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&err))))
}

fn nodes(layout: &Value) -> Nodes {
    let all = layout["clusters"][0]["nodes"].as_array().expect("nodes").iter();
    all.map(|n| (n["name"].as_str().expect("a name").to_owned(), n.clone())).collect()
}

/// Whether all nodes of a layout are unchanged in another.
fn stay(few: &Nodes, many: &Nodes) -> bool {
    few.iter().all(|(name, node)| many.get(name) == Some(node))
}

#[test]
fn growing_and_shrinking_leaves_unaffected_nodes_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let next = |nodes: u32, services: &str, before: &Value| solve(folder.path(), &model(nodes, services), before);
    let nothing = serde_json::json!({"clusters": []});
    let (_, five) = next(5, "app, db", &nothing);
    let (_, fifty) = next(50, "app, db", &five);
    let (_, seven) = next(7, "app, db", &fifty);
    assert_eq!([&five, &fifty, &seven].map(|l| nodes(l).len()), [5, 50, 7]);
    assert!(stay(&nodes(&five), &nodes(&fifty)) && stay(&nodes(&seven), &nodes(&fifty)), "{seven}");
    assert_eq!(seven["clusters"][0]["leaving"].as_array().map(Vec::len), Some(43));

    // Each of the seven nodes has `app`, which is not concerned and excludes `cache`: the answer says so.
    let (status, none) = next(7, "app, cache, db", &seven);
    let cluster = &none["clusters"][0];
    assert_eq!((status, &cluster["solvable"]), (1, &Value::Bool(false)), "{none}");
    let reason = cluster["reason"].as_str().expect("a reason");
    assert!(reason.contains("are there already, and keep hardware, image and services"), "{reason}");
    assert!(
        reason.contains("`shop-2`") && reason.contains("`app`, `cache` are never all on the same node"),
        "{reason}"
    );
    assert!(cluster["explanation"]["minimal"] == true && reason.contains("1 more node"), "{reason}");

    // The proposed change works: the new node has `cache`, and after its removal the seven nodes are as before.
    let (_, eight) = next(8, "app, cache, db", &seven);
    assert!(stay(&nodes(&seven), &nodes(&eight)), "{eight}");
    assert_eq!(nodes(&eight)["shop-8"]["services"], serde_json::json!(["cache"]));
    let (status, less) = next(7, "app, db", &eight);
    assert_eq!(status, 0, "{less}");
    assert_eq!(nodes(&less), nodes(&seven));
}

/// The layout of a generation, as stored in the depot.
fn remembered(depot: &std::path::Path, generation: u64) -> Nodes {
    let depot = cobgen::depot::Depot::open(depot).expect("a depot");
    let model = depot.read_model(cob_types::GenerationNumber(generation)).expect("a generation");
    nodes(&serde_json::from_slice(&model[".cobgen-layouts.json"]).expect("JSON"))
}

#[test]
fn a_layout_that_has_failed_is_not_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().join("depot");
    let publish = |model: &str, more: &[&str]| {
        let file = folder.path().join(model);
        let args = ["cobgen", "generate", file.to_str().expect("UTF-8"), "--depot", depot.to_str().expect("UTF-8")];
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = args.iter().chain(more).map(Into::into);
        let status =
            cli::run(args.collect(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
        (status, String::from_utf8_lossy(&[out, err].concat()).into_owned())
    };
    let generate = |nodes: u32, more: &[&str]| {
        let model = model(nodes, "app, cache, db").replace(
            &format!("nodes: {nodes}}}"),
            &format!("nodes: {nodes}, address: \"tcp://127.0.0.1:{{{{ 7000 + index }}}}\"}}"),
        );
        std::fs::write(folder.path().join("model.yaml"), model).expect("written");
        publish("model.yaml", more)
    };
    assert_eq!(generate(5, &[]).0, 0);
    assert_eq!(generate(6, &[]).0, 0);
    let (five, six) = (remembered(&depot, 1), remembered(&depot, 2));
    // The same model without options makes no generation.
    let (status, said) = generate(6, &[]);
    assert!(status == 0 && depot_has(&depot) == 2, "{said}");
    let (status, said) = generate(6, &["--instead-of", "2"]);
    assert_eq!((status, depot_has(&depot)), (0, 3), "{said}");
    let other = remembered(&depot, 3);
    assert!(stay(&five, &other) && other.len() == 6 && other != six, "{other:#?}");
    // There is no third layout, and the answer names the obstacle.
    let (status, said) = generate(6, &["--instead-of", "2", "--instead-of", "3"]);
    assert!(status == 2 && said.contains("a layout is excluded"), "{said}");
    // A missing generation can't have failed, nor can a generation without its own layout.
    let (status, said) = generate(6, &["--instead-of", "99"]);
    assert!(status == 2 && said.contains("99"), "{status} {said}");
    let plain = "security: loopback-only\nhosts: {a: {address: \"tcp://127.0.0.1:1\"}}\ncobs: {a/b: {kind: noop}}\n";
    std::fs::write(folder.path().join("plain.yaml"), plain).expect("written");
    let (status, said) = publish("plain.yaml", &[]);
    assert_eq!(status, 0, "{said}");
    let (status, said) = publish("plain.yaml", &["--instead-of", "4"]);
    assert!(status == 2 && said.contains("generation 4 has no layout of its own"), "{status} {said}");
}

fn depot_has(depot: &std::path::Path) -> u64 {
    cobgen::depot::Depot::open(depot).expect("a depot").latest().expect("readable").expect("one").0
}

/// Records that a change object failed in the switch to a generation.
fn gives_up(depot: &std::path::Path, to: u64, cob: &str) {
    let depot = cobgen::depot::Depot::open(depot).expect("a depot");
    let cob = cob_types::CobId::new(cob).expect("an id");
    let (to, ended) = (cob_types::GenerationNumber(to), Ended::Failed);
    let part = HostOutcome {
        from: None,
        to,
        by: String::new(),
        began_ns: 5,
        activated_ns: Some(6),
        ended_ns: Some(9),
        ended,
        alone: false,
        widened_ns: None,
        later: Vec::new(),
        cobs: std::sync::Arc::new([(cob.clone(), CobOutcome { failed: true, ..CobOutcome::default() })].into()),
    };
    let outcome = SwitchOutcome {
        format: cob_types::outcome::FORMAT,
        to,
        by: "ann (operate)".to_owned(),
        began_ns: 5,
        ended_ns: Some(9),
        ended,
        hosts: [(cob.host(), part)].into(),
        silent: Default::default(),
    };
    assert!(depot.add_outcome(&outcome, &depot.default_author(), 1_700_000_000).expect("written"));
}

/// The nodes are equal except that a service has failed on the first.
#[test]
fn a_service_that_failed_on_a_host_gets_another_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let depot = folder.path().join("depot");
    let file = folder.path().join("model.yaml");
    let model = r#"
security: loopback-only
providers: {p: {}}
imagetypes: {img: {providers: {p: {}}}}
HARDWARE
services: {a: &service {actions: {start: "true", stop: "true"}}, b: *service}
templates:
  t:
    defaults: {services: [a, b]}
    constraints: {layout: {cantcoexist: [[a, b]]}, services: {a: {quantities: {max: 1}}, b: {quantities: {max: 1}}}}
clusters: {k: {template: t, nodes: 2, address: "tcp://127.0.0.1:{{ 7000 + index }}"}}
"#;
    let generate = |hardware: &str, more: &[&str]| {
        std::fs::write(&file, model.replace("HARDWARE", hardware)).expect("written");
        let args = ["cobgen", "generate", file.to_str().expect("UTF-8"), "--depot", depot.to_str().expect("UTF-8")];
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = args.iter().chain(more).map(Into::into);
        let status =
            cli::run(args.collect(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
        (status, String::from_utf8_lossy(&[out, err].concat()).into_owned())
    };
    let has = |generation: u64| {
        let nodes = remembered(&depot, generation);
        ["k-1", "k-2"].map(|node| nodes[node]["services"][0].as_str().expect("one").to_owned())
    };
    for hardware in ["", "hardwaretypes: {small: {providers: {p: {}}}}"] {
        let _ = std::fs::remove_dir_all(&depot);
        let (status, said) = generate(hardware, &[]);
        assert_eq!((status, has(1)), (0, ["a", "b"].map(str::to_owned)), "{said}");
        gives_up(&depot, 1, "k-1/a/instance");
        let (status, said) = generate(hardware, &["--instead-of", "latest"]);
        assert_eq!((status, has(2)), (0, ["b", "a"].map(str::to_owned)), "{said}");
        assert_eq!(remembered(&depot, 2)["k-1"]["hardwaretype"], remembered(&depot, 1)["k-1"]["hardwaretype"]);
        // No service can be on the node any more.
        gives_up(&depot, 2, "k-1/b/instance");
        let (status, said) = generate(hardware, &["--instead-of", "1", "--instead-of", "2"]);
        assert!(status == 2 && said.contains("`b` is not on `k-1`, where it has failed"), "{said}");
    }
}
