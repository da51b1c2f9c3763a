//! Real daemons, real ZeroMQ between them, real actions.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cob_tests::cluster::{Cluster, free_ports};
use cob_types::GenerationNumber;

const PROGRAM: &str = env!("CARGO_BIN_EXE_cob");
const PATIENCE: Duration = Duration::from_secs(60);

/// A copy of an example with ports that are free.
fn example(cluster: &Cluster, name: &str, ports: &[(u16, u16)]) -> std::path::PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
    let to = cluster.path(name);
    fs::create_dir_all(&to).expect("a folder");
    for entry in fs::read_dir(from).expect("the example") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        fs::copy(entry.path(), &target).expect("copied");
        if entry.path().extension().is_some_and(|e| e == "yaml") {
            let mut text = fs::read_to_string(&target).expect("text");
            for (old, new) in ports {
                text = text.replace(&format!("127.0.0.1:{old}"), &format!("127.0.0.1:{new}"));
            }
            fs::write(&target, text).expect("written");
        }
    }
    to
}

#[test]
fn figure_1_restarts_in_order_across_hosts() {
    let mut cluster = Cluster::new(PROGRAM, &["n1", "n2"]);
    let ports = free_ports(2);
    let model = example(&cluster, "fig1", &[(7181, ports[0]), (7182, ports[1])]);
    let first = cluster.generate(&model);
    assert_eq!(first, GenerationNumber(1));
    cluster.start_all();
    cluster.switch_all(first);
    cluster.wait_converged(first, PATIENCE);
    assert_eq!(cluster.ended_actions(first), ["n1/cfg-a down -> up", "n1/svc-a down -> up", "n2/svc-b down -> up"]);

    let file = model.join("model.yaml");
    let text = fs::read_to_string(&file).expect("text").replace("port: 80", "port: 81");
    fs::write(&file, text).expect("written");
    let second = cluster.generate(&model);
    cluster.switch_all(second);
    cluster.wait_converged(second, PATIENCE);
    assert_eq!(
        cluster.ended_actions(second),
        [
            "n2/svc-b up -> down",
            "n1/svc-a up -> down",
            "n1/cfg-a outdated -> up",
            "n1/svc-a down -> up",
            "n2/svc-b down -> up"
        ]
    );
}
