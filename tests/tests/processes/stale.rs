//! Outdated knowledge: a recorded state that a user has changed while the daemon was away, and a wait for an object of
//! an earlier generation.

use std::fs;
use std::net::TcpListener;

use cob_types::status::Phase;

use crate::{CHECK, PATIENCE, QUICK, cluster};

#[test]
fn drift_during_the_absence_of_the_daemon_is_repaired() {
    let mut cluster = cluster(&["n1"]);
    let text = "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:1\"}}\ncobs: {n1/a: {kind: quick}}\n";
    let folder = cluster.write_model("model", &[("model.yaml", text), QUICK, CHECK]);
    let one = cluster.generate(&folder);
    cluster.bring_up(one, PATIENCE);
    let state = cluster.path("n1/cobs/n1+a/state");
    assert_eq!(fs::read_to_string(&state).expect("it is up"), "up\n");

    cluster.kill("n1");
    fs::remove_file(&state).expect("it dies");
    cluster.start("n1");
    cluster.wait_answers("n1");
    // Its kind has no periodic checks: only the first check of this incarnation can find it.
    cluster.until(PATIENCE, || fs::read_to_string(&state).is_ok_and(|text| text == "up\n"), "it is up again");
    cluster.wait_converged(one, PATIENCE);
    let events: Vec<String> = cluster.history("n1").into_iter().map(|entry| entry.event).collect();
    let at = |event: &str| events.iter().rposition(|e| e == event).unwrap_or_else(|| panic!("no {event}: {events:?}"));
    assert!(at("daemon") < at("drift") && at("drift") < at("end"), "{events:?}");
}

/// An address of this machine without a listener.
fn dead() -> String {
    let [port] = cob_processes::free_ports().expect("free");
    format!("127.0.0.1:{port}")
}

#[test]
fn a_gate_waits_for_the_address_of_the_newest_generation() {
    let mut cluster = cluster(&["n1"]);
    let publish = |cluster: &mut cob_tests::cluster::Cluster, address: &str| {
        let text = format!(
            "security: loopback-only\nhosts: {{n1: {{address: \"tcp://127.0.0.1:1\"}}}}\n\
             cobs: {{n1/gate: {{kind: tcp-check, content: {{address: \"{address}\"}}}}}}\n"
        );
        let folder = cluster.write_model("model", &[("model.yaml", &text)]);
        cluster.generate(&folder)
    };
    let one = publish(&mut cluster, &dead());
    cluster.start_all();
    cluster.switch_all(one);
    let moves = || cluster.cob("n1/gate").is_some_and(|cob| cob.phase == Phase::Moving);
    cluster.until(PATIENCE, moves, "it waits for the dead address");

    // If it were not ended, it would wait for five minutes.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let two = publish(&mut cluster, &listener.local_addr().expect("an address").to_string());
    cluster.switch_all(two);
    cluster.wait_converged(two, PATIENCE);
}
