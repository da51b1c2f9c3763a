//! The author of each order: in the journal before the answer, and in the history of every later incarnation.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use cob_tests::cluster::Cluster;

use crate::{PATIENCE, cluster};

const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
cobs:
  n1/a: {kind: noop}
"#;

/// Pauses over the daemon's port, as any user of this machine may do without keys.
fn pause_over_tcp(cluster: &Cluster) -> String {
    let address = cluster.address("n1");
    let mut stream = TcpStream::connect(address).expect("connected");
    let body = "{\"who\":\"ann\"}";
    let head = format!("POST /v1/pause HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n");
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("said");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

fn told(cluster: &Cluster) -> Vec<(String, String)> {
    let orders = ["prepare", "go", "pause", "resume", "retry"];
    let all = cluster.history("n1").into_iter().filter(|e| orders.contains(&e.event.as_str()));
    all.map(|e| (e.event, e.detail)).collect()
}

#[test]
fn the_history_keeps_each_order_with_its_operator_after_a_kill() {
    let mut cluster = cluster(&["n1"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL)]);
    let generation = cluster.generate(&model);
    cluster.start_all();
    let order = |path: &str, body: &str| cluster.http("n1", "POST", path, body).expect("taken");
    order("/v1/prepare", "{\"generation\":1}");
    cluster.switch_all(generation);
    cluster.wait_converged(generation, PATIENCE);
    let answer = pause_over_tcp(&cluster);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    order("/v1/resume", "{\"who\":\"bob\"}");
    order("/v1/retry", "{\"cob\":\"n1/a\"}");
    let before = told(&cluster);

    let me = rustix::process::geteuid().as_raw();
    let me = if me == 0 { "root (unix socket)".to_owned() } else { format!("uid {me} (unix socket)") };
    let words: Vec<_> = before.iter().map(|(event, detail)| format!("{event}: {detail}")).collect();
    assert_eq!(words.len(), 5, "{words:?}");
    assert_eq!(words[0], format!("prepare: generation 1, by {me}"));
    assert!(words[1].starts_with(&format!("go: to generation 1, by {me}")), "{words:?}");
    assert!(words[2].starts_with("pause: by 127.") && words[2].ends_with(" (no key), for \"ann\""), "{words:?}");
    assert_eq!(words[3], format!("resume: by {me}, for \"bob\""));
    assert_eq!(words[4], format!("retry: by {me}"));

    // A missing index is rebuilt from the journal: its content after that was durable.
    cluster.kill("n1");
    std::fs::remove_dir_all(cluster.path("n1/index")).expect("removed");
    cluster.start("n1");
    cluster.wait_answers("n1");
    cluster.until(PATIENCE, || told(&cluster).len() >= before.len(), "the history is there again");
    assert_eq!(told(&cluster), before);
}
