//! The examples do on real daemons what their texts say.

use std::fs;

use crate::{PATIENCE, cluster};

#[test]
fn hadoop_comes_up_on_three_hosts_in_the_order_of_its_services() {
    let mut cluster = cluster(&["hadoop-1", "hadoop-2", "hadoop-3"]);
    let model = cluster.copy_example("hadoop");
    let file = model.join("model.yaml");
    let text = fs::read_to_string(&file).expect("text").replace("nodes: 5\n", "nodes: 3\n");
    fs::write(&file, &text).expect("written");
    let first = cluster.generate(&model);
    cluster.bring_up(first, PATIENCE);
    let done = cluster.ended_actions();
    let so_far = done.len();
    let of = |done: &[String], service: &str, to: &str| -> Vec<usize> {
        let (name, end) = (format!("/{service}/instance "), format!(" -> {to}"));
        (0..done.len()).filter(|at| done[*at].contains(&name) && done[*at].ends_with(&end)).collect()
    };
    let before = |a: (&str, &str), b: (&str, &str)| {
        let (a, b) = (of(&done, a.0, a.1), of(&done, b.0, b.1));
        assert!(!a.is_empty() && !b.is_empty() && a.iter().max() < b.iter().min(), "{done:#?}");
    };
    // Everything is installed after what every node has, and started after what it requires, on all nodes.
    for service in ["namenode", "datanode", "zookeeper", "hbase-master"] {
        before(("base", "installed"), (service, "installed"));
    }
    before(("namenode", "started"), ("datanode", "started"));
    before(("resourcemanager", "started"), ("nodemanager", "started"));
    before(("datanode", "started"), ("hbase-master", "initialized"));
    before(("zookeeper", "started"), ("hbase-master", "initialized"));
    before(("hbase-master", "started"), ("hbase-regionserver", "started"));

    // Another configuration of HDFS restarts those that use it, and those that require them; ZooKeeper goes on.
    fs::write(&file, text.replace("dfs.replication: 2", "dfs.replication: 3")).expect("written");
    let second = cluster.generate(&model);
    cluster.switch_all(second);
    cluster.wait_converged(second, PATIENCE);
    let done = cluster.ended_actions().split_off(so_far);
    assert!(!done.iter().any(|line| line.contains("/zookeeper/") || line.contains("/base/")), "{done:#?}");
    let last_stop = |service: &str| of(&done, service, "stopped").into_iter().max();
    let first_start = |service: &str| of(&done, service, "started").into_iter().min();
    assert!(last_stop("hbase-regionserver") < last_stop("hbase-master"), "{done:#?}");
    assert!(last_stop("datanode") < last_stop("namenode") && last_stop("namenode").is_some(), "{done:#?}");
    assert!(first_start("namenode") < first_start("datanode"), "{done:#?}");
}

#[test]
fn figure_1_restarts_in_order_across_hosts() {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.copy_example("fig1");
    let first = cluster.generate(&model);
    cluster.bring_up(first, PATIENCE);
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
