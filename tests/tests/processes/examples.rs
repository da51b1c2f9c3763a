//! The examples work on real daemons as their texts say.

use std::fs;
use std::process::Command;

use cob_tests::cluster::Cluster;

use crate::words::{cobctl, run};
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
    // Every service is installed after the base service of the node, and started after its requirements on all nodes.
    for service in ["namenode", "datanode", "zookeeper", "hbase-master"] {
        before(("base", "installed"), (service, "installed"));
    }
    before(("namenode", "started"), ("datanode", "started"));
    before(("resourcemanager", "started"), ("nodemanager", "started"));
    before(("datanode", "started"), ("hbase-master", "initialized"));
    before(("zookeeper", "started"), ("hbase-master", "initialized"));
    before(("hbase-master", "started"), ("hbase-regionserver", "started"));

    // Another HDFS configuration restarts the services that use it and their dependents; ZooKeeper continues.
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

/// The number of hosts with change objects of Hadoop, according to the daemons.
fn populated(cluster: &Cluster, hosts: &[&str]) -> usize {
    let has = |host: &&&str| cluster.status(host).is_some_and(|status| !status.cobs.is_empty() && status.converged);
    hosts.iter().filter(has).count()
}

#[test]
fn hadoop_grows_shrinks_and_goes_away_and_each_step_can_be_rolled_back() {
    let names: Vec<String> = (1..=8).map(|n| format!("hadoop-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut cluster = cluster(&names);
    let model = cluster.copy_example("hadoop");
    let file = model.join("model.yaml");
    // Each run of the tests has its own loopback addresses.
    let net = std::process::id() % 200 + 20;
    let text = fs::read_to_string(&file).expect("text").replace("tcp://127.0.", &format!("tcp://127.{net}."));
    let (begin, end) = (text.find("clusters:\n").expect("there"), text.find("templates:\n").expect("there"));
    let generate = |cluster: &Cluster, text: &str| {
        fs::write(&file, text).expect("written");
        let mut cobgen = Command::new(env!("CARGO_BIN_EXE_cob"));
        cobgen.arg("cobgen").arg("generate").arg(&model).arg("--depot").arg(cluster.path("depot"));
        let (code, said) = run(cobgen);
        assert!(code == 0 && !said.contains("no rollback from"), "{said}");
    };
    let told = |cluster: &Cluster, words: &[&str]| {
        let (code, said) = run(cobctl(cluster, &[], words));
        assert_eq!(code, 0, "{words:?}: {said}");
    };
    generate(&cluster, &text.replace("nodes: 5\n", "nodes: 3\n"));
    for host in &names {
        cluster.start(host);
    }
    for host in &names[..3] {
        cluster.wait_answers(host);
    }
    told(&cluster, &["switch", "latest", "--wait", "120s"]);
    let mut before = 3;
    for (generation, nodes) in [("2", 8), ("3", 5), ("4", 3)] {
        generate(&cluster, &text.replace("nodes: 5\n", &format!("nodes: {nodes}\n")));
        for host in &names[..nodes] {
            cluster.wait_answers(host);
        }
        told(&cluster, &["switch", "latest", "--wait", "120s"]);
        cluster.until(PATIENCE, || populated(&cluster, &names) == nodes, "it is on so many hosts");
        told(&cluster, &["rollback", "--wait", "120s"]);
        cluster.until(PATIENCE, || populated(&cluster, &names) == before, "it is back on so many hosts");
        told(&cluster, &["switch", generation, "--wait", "120s"]);
        cluster.until(PATIENCE, || populated(&cluster, &names) == nodes, "it is on so many hosts again");
        before = nodes;
    }
    generate(&cluster, &[&text[..begin], &text[end..]].concat());
    told(&cluster, &["switch", "latest", "--wait", "120s"]);
    cluster.until(PATIENCE, || populated(&cluster, &names) == 0, "nothing is left");
    told(&cluster, &["rollback", "--wait", "120s"]);
    cluster.until(PATIENCE, || populated(&cluster, &names) == 3, "it is back on three hosts");
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
