//! A change object that has another kind in the next generation.

use std::fs;

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;

use crate::{CHECK, PATIENCE, QUICK, cluster};

/// `n1/x` is the given change object, if any; `n2/y` requires it if it exists.
fn publish(cluster: &mut Cluster, x: &str) -> GenerationNumber {
    let requires = if x.is_empty() { "" } else { ", requires: [n1/x]" };
    let x = if x.is_empty() { String::new() } else { format!("  n1/x: {x}\n") };
    let text = format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
cobs:
  n2/y: {{kind: quick{requires}}}
{x}"#
    );
    let folder = cluster.write_model("model", &[("model.yaml", &text), QUICK, CHECK]);
    cluster.generate(&folder)
}

/// Whether a process with this name exists.
fn runs(name: &str) -> bool {
    let command = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    let all = fs::read_dir("/proc").expect("read").filter_map(Result::ok);
    all.map(command).any(|line| line.starts_with(name.as_bytes()) && line.get(name.len()) == Some(&0))
}

#[test]
fn an_object_of_another_kind_departs_as_the_old_and_starts_as_the_new() {
    let mut cluster = cluster(&["n1", "n2"]);
    let root = cluster.path("root");
    fs::create_dir(&root).expect("made");
    let file = root.join("x.conf");
    fs::write(&file, "before\n").expect("written");
    let name = format!("cob-x-{}", std::process::id());

    let start = format!("exec bash -c \"exec -a {name} sleep 600\"");
    let service = format!("{{kind: service, content: {{start: '{start}'}}}}");
    let tree = format!(
        "{{kind: file-tree, content: {{root: {}, files: {{x.conf: {{content: \"managed\\n\"}}}}}}}}",
        root.display()
    );
    let one = publish(&mut cluster, &service);
    cluster.bring_up(one, PATIENCE);
    assert!(runs(&name));

    let two = publish(&mut cluster, &tree);
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
    assert!(!runs(&name), "the service was stopped");
    assert_eq!(fs::read_to_string(&file).expect("read"), "managed\n");
    // Its dependent was down in the meantime.
    let ended = cluster.ended_actions();
    let at = |what: &str| ended.iter().rposition(|a| a == what).unwrap_or_else(|| panic!("no {what} in {ended:?}"));
    assert!(at("n2/y up -> down") < at("n1/x up -> down"), "{ended:?}");
    assert!(at("n1/x up -> down") < at("n1/x absent -> present"), "{ended:?}");
    assert!(at("n1/x absent -> present") < at("n2/y down -> up"), "{ended:?}");

    let three = publish(&mut cluster, "{kind: quick}");
    cluster.switch_all(three);
    cluster.wait_converged(three, PATIENCE);
    assert_eq!(fs::read_to_string(&file).expect("read"), "before\n", "as it was found");

    // Back, by the order that was signed together with the order forth.
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
    assert_eq!(fs::read_to_string(&file).expect("read"), "managed\n");
    let state = cluster.path("n1/cobs/n1+x/state");
    assert!(!state.exists(), "what it was in between has left");

    let four = publish(&mut cluster, "");
    cluster.switch_all(four);
    cluster.wait_converged(four, PATIENCE);
    assert_eq!(fs::read_to_string(&file).expect("read"), "before\n");
}
