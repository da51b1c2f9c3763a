//! The examples do on real daemons what their texts say.

use std::fs;

use crate::{PATIENCE, cluster};

#[test]
fn figure_1_restarts_in_order_across_hosts() {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.copy_example("fig1");
    let first = cluster.generate(&model);
    cluster.start_all();
    cluster.switch_all(first);
    cluster.wait_converged(first, PATIENCE);
    assert_eq!(cluster.ended_actions(), ["n1/cfg-a down -> up", "n1/svc-a down -> up", "n2/svc-b down -> up"]);

    let file = model.join("model.yaml");
    let text = fs::read_to_string(&file).expect("text").replace("port: 80", "port: 81");
    fs::write(&file, text).expect("written");
    let second = cluster.generate(&model);
    cluster.switch_all(second);
    cluster.wait_converged(second, PATIENCE);
    assert_eq!(
        cluster.ended_actions()[3..],
        [
            "n2/svc-b up -> down",
            "n1/svc-a up -> down",
            "n1/cfg-a outdated -> up",
            "n1/svc-a down -> up",
            "n2/svc-b down -> up"
        ]
    );
}
