//! Clusters that shrink, lose services and are removed: each step has a generation, and a rollback.

use std::path::Path;

use cobgen::cli::{self, Terminal};
use serde_json::Value;

/// Generates a model into the depot beside it and returns the answer, which must come without a warning.
fn generate(folder: &Path, model: &str) -> Value {
    let (path, depot) = (folder.join("model.yaml"), folder.join("depot"));
    std::fs::write(&path, model).expect("written");
    let words = ["cobgen".into(), "generate".into(), path.into_os_string(), "--depot".into(), depot.into_os_string()];
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let terminal = &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false };
    let status = cli::run(words.into_iter().chain(["--json".into()]).collect(), terminal);
    let err = String::from_utf8_lossy(&err);
    assert!(status == 0 && !err.contains("warning"), "{err}{}", String::from_utf8_lossy(&out));
    serde_json::from_slice(&out).expect("JSON")
}

/// Both services have only the states started and stopped; the cluster has `b` on these nodes.
fn two_services(b: &str) -> String {
    let host = |n: u32| format!("  n{n}: {{address: \"tcp://127.0.0.1:717{n}\"}}\n");
    let hosts: String = (1..=3).map(host).collect();
    format!(
        r#"security: loopback-only
hosts:
{hosts}services:
  a: {{dependencies: {{runtime: {{requires: [b]}}}}, actions: {{start: "true", stop: "true"}}}}
  b: {{actions: {{start: "true", stop: "true"}}}}
clusters: {{c: {{services: {{a: [n1], b: [{b}]}}}}}}
"#
    )
}

#[test]
fn a_service_leaves_several_nodes_in_one_generation() {
    let folder = tempfile::tempdir().expect("a folder");
    generate(folder.path(), &two_services("n1, n2, n3"));
    assert_eq!(generate(folder.path(), &two_services("n1"))["removed"], 2);
}

#[test]
fn install_and_runtime_dependencies_on_a_service_coexist() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = two_services("n1, n2, n3");
    let mixed = model.replace("a: [n1]", "a: [n1], c: [n2]").replace(
        "clusters:",
        "  c: {dependencies: {install: {requires: [a]}}, \
         actions: {install: \"true\", start: \"true\", stop: \"true\", remove: \"true\"}}\nclusters:",
    );
    assert_eq!(generate(folder.path(), &mixed)["cobs"], 5);
}

/// The example with this many nodes.
fn hadoop(nodes: u32) -> String {
    let example = include_str!("../../examples/hadoop/model.yaml");
    assert!(example.contains("nodes: 5\n"));
    example.replace("nodes: 5\n", &format!("nodes: {nodes}\n"))
}

#[test]
fn the_example_grows_shrinks_and_goes_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/hadoop/service.sh");
    std::fs::copy(example, folder.path().join("service.sh")).expect("copied");
    let hosts = [3, 8, 5, 8, 6, 5, 3].map(|nodes| generate(folder.path(), &hadoop(nodes))["hosts"].clone());
    assert_eq!(hosts, [3, 8, 5, 8, 6, 5, 3]);
    let model = hadoop(3);
    let (begin, end) = (model.find("clusters:\n").expect("there"), model.find("templates:\n").expect("there"));
    let without = [&model[..begin], &model[end..]].concat();
    assert_eq!(generate(folder.path(), &without)["cobs"], 0);
}
