//! Hosts that get another address while their daemons run: a single host, two that swap addresses, and all.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use cob_tests::cluster::Cluster;

use crate::words::run;
use crate::{PATIENCE, VERSIONED, cluster};

const HOSTS: [&str; 3] = ["n1", "n2", "n3"];

/// A change object per host, each of which requires the change object of the previous host: a switch needs all links.
fn model(version: &str, addresses: &[SocketAddr]) -> String {
    let mut text = "security: loopback-only\nhosts:\n".to_owned();
    for (host, address) in HOSTS.iter().zip(addresses) {
        let _ = writeln!(text, "  {host}: {{address: \"tcp://{address}\"}}");
    }
    text.push_str("cobs:\n");
    for (host, before) in HOSTS.iter().zip([None, Some("n1"), Some("n2")]) {
        let requires = before.map_or(String::new(), |before| format!(", requires: [{before}/a]"));
        let _ = writeln!(text, "  {host}/a: {{kind: versioned, content: {{v: {version}}}{requires}}}");
    }
    text
}

fn program(cluster: &Cluster, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
    command.args(args).current_dir(cluster.dir.path()).env_remove("COB_DEPOT").env("COB_CONFIG", "/dev/null");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run(command)
}

/// All hosts at the cluster's own addresses, which are returned.
fn brought_up(cluster: &mut Cluster) -> Vec<SocketAddr> {
    let places = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let first = cluster.write_model("first", &[("model.yaml", &model("one", &places)), VERSIONED]);
    let one = cluster.generate(&first);
    cluster.bring_up(one, PATIENCE);
    HOSTS.iter().map(|host| cluster.address(host)).collect()
}

/// Publishes with these addresses and switches, by the depot's addresses alone; then each host has its new address.
fn moves_to(cluster: &Cluster, version: &str, addresses: &[SocketAddr]) {
    cluster.write_model("model", &[("model.yaml", &model(version, addresses)), VERSIONED]);
    let (code, said) = program(cluster, &["cobgen", "generate", "model", "--depot", "depot"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = program(cluster, &["cobctl", "switch", "latest", "--depot", "depot", "--wait", "60s"]);
    assert_eq!(code, 0, "{version}: {said}");
    for host in HOSTS {
        let up = fs::read_to_string(cluster.path(&format!("{host}/cobs/{host}+a/up"))).unwrap_or_default();
        assert!(up.contains(version), "{host} has {up:?}");
    }
    let listens = || {
        HOSTS.iter().zip(addresses).all(|(host, address)| {
            let status = cluster.status(host);
            status.is_some_and(|s| {
                s.listen.as_deref() == Some(&format!("tcp://{address}")) && s.peers.iter().all(|p| p.up)
            })
        })
    };
    cluster.until(PATIENCE, listens, "every host listens at its new address, and all links are up");
    let (code, said) = program(cluster, &["cobctl", "status", "--depot", "depot"]);
    assert_eq!(code, 0, "{version}: {said}");
}

#[test]
fn hosts_get_other_addresses_without_a_restart() {
    let mut cluster = cluster(&HOSTS);
    let old = brought_up(&mut cluster);
    // The same number of addresses beside these.
    let beside = |at: &SocketAddr| SocketAddr::new(at.ip(), at.port() + 20);
    moves_to(&cluster, "another", &[old[0], beside(&old[1]), old[2]]);
    moves_to(&cluster, "swapped", &[beside(&old[1]), old[0], old[2]]);
    let all: Vec<SocketAddr> = old.iter().map(|at| SocketAddr::new(at.ip(), at.port() + 40)).collect();
    moves_to(&cluster, "everywhere", &all);
    // Across a restart, and again.
    for host in HOSTS {
        cluster.stop(host);
        cluster.start(host);
    }
    HOSTS.iter().for_each(|host| cluster.wait_answers(host));
    moves_to(&cluster, "back", &old);
}

/// Its state on disk names the address that another host has by now.
#[test]
fn a_host_finds_its_changed_address_in_the_depot() {
    let mut cluster = cluster(&HOSTS);
    let old = brought_up(&mut cluster);
    let swapped = [old[0], old[2], old[1]];
    cluster.stop("n2");
    cluster.write_model("model", &[("model.yaml", &model("swapped", &swapped)), VERSIONED]);
    let (code, said) = program(&cluster, &["cobgen", "generate", "model", "--depot", "depot"]);
    assert_eq!(code, 0, "{said}");
    let (_, said) = program(&cluster, &["cobctl", "switch", "latest", "--depot", "depot"]);
    let taken = || {
        let listen = cluster.status("n3").and_then(|s| s.listen);
        listen.as_deref() == Some(&format!("tcp://{}", swapped[2]))
    };
    cluster.until(PATIENCE, taken, &format!("n3 has the place of n2: {said}"));
    cluster.start("n2");
    cluster.wait_answers("n2");
    moves_to(&cluster, "swapped", &swapped);
}
