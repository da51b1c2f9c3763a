//! Strangers and broken hosts at the TCP port of a running daemon: each is refused with a single log line, and other
//! hosts are not affected.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use cob_tests::cluster::{Cluster, host};
use cob_tests::processes;
use cob_tests::stranger::{handshake, header, message};
use cob_types::link::{Frame, LinkHello};
use cob_types::message::{Incarnation, PROTOCOL};
use cob_types::{Batch, GenerationNumber};

use crate::{CHECK, PATIENCE, QUICK, cluster};

/// a0 and z9 are in the model and have no daemons: a stranger can claim their names.
const MODEL: &str = r#"
security: loopback-only
hosts:
  a0: {address: "tcp://127.0.0.1:1"}
  n1: {address: "tcp://127.0.0.1:2"}
  n2: {address: "tcp://127.0.0.1:3"}
  z9: {address: "tcp://127.0.0.1:4"}
cobs:
  n1/a: {kind: quick}
  n2/b: {kind: quick, requires: [n1/a]}
"#;

fn converged() -> (Cluster, GenerationNumber) {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
    let generation = cluster.generate(&model);
    cluster.bring_up(generation, PATIENCE);
    (cluster, generation)
}

fn hello(from: &str, newest: u16, oldest: u16) -> Frame<'static> {
    let session = Incarnation { id: 0xBAD, start: 1 };
    Frame::Hello(LinkHello { newest, oldest, from: host(from), to: host("n2"), session, stream: 7, received: None })
}

/// Sends bytes to a port.
fn say(to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    // The daemon may close before all bytes are sent.
    let _ = stream.write_all(bytes);
    stream
}

/// Reads until the other side closes; returns the received bytes.
fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

/// Text of the log line about the refusal, and the bytes that a stranger sends.
fn strangers() -> Vec<(&'static str, Vec<u8>)> {
    let with_handshake = |more: Vec<u8>| [handshake(), more].concat();
    vec![
        ("first byte is 0x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("first byte is 0x00", vec![0; 4096]),
        ("the greeting is not that of ZMTP 3", [&handshake()[..10], b"garbage, garbage, garbage"].concat()),
        ("a frame of 1073741824 bytes", with_handshake(header(1 << 30))),
        ("a frame of 70368744177664 bytes", with_handshake(header(1 << 46))),
        ("flags 0x01", with_handshake(vec![1, 1, 0])),
        ("a frame that is not understood", with_handshake([header(300), vec![0xEE; 300]].concat())),
        ("where a hello was due", with_handshake(message(&Frame::Ack { ack: 1 }))),
        ("speaks the protocol versions 2 to 3", with_handshake(message(&hello("a0", 3, 2)))),
        ("host m9, which is not in the roster", with_handshake(message(&hello("m9", PROTOCOL, PROTOCOL)))),
        ("must wait to be dialled", with_handshake(message(&hello("z9", PROTOCOL, PROTOCOL)))),
    ]
}

/// Warnings and errors after this position in the log, without lines about hosts without daemons, and about checks
/// interrupted by the end of the daemon.
fn warnings(cluster: &Cluster, host: &str, since: usize) -> Vec<String> {
    let log = cluster.log(host)[since..].to_owned();
    let lines = log.lines().filter(|l| [" WARN ", " ERROR "].iter().any(|w| l.contains(w)));
    lines
        .filter(|l| !l.contains("can't reach it") && !l.contains(" cobd::run::start: its runner"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_stranger_is_refused_with_one_line_of_log() {
    let (mut cluster, generation) = converged();
    let port = cluster.address("n2");
    for (words, bytes) in strangers() {
        // A new incarnation: repeated lines are suppressed for a minute.
        cluster.kill("n2");
        let since = cluster.log("n2").len();
        cluster.start("n2");
        cluster.wait_converged(generation, PATIENCE);
        until_closed(say(port, &bytes));
        cluster.until(PATIENCE, || !warnings(&cluster, "n2", since).is_empty(), words);
        let lines = warnings(&cluster, "n2", since);
        assert!(lines.len() == 1 && lines[0].contains(words), "{words:?}: {lines:#?}");
    }
}

#[test]
fn a_flood_of_strangers_costs_no_memory_and_no_links() {
    let (cluster, generation) = converged();
    let port = cluster.address("n2");
    let link = |cluster: &Cluster| {
        let peers = cluster.status("n2").expect("answers").peers;
        peers.into_iter().find(|p| p.host.as_str() == "n1").expect("a peer")
    };
    // Its memory is measured after the first few strangers have made it grow to its working size.
    let flood = |rounds: usize| {
        for _ in 0..rounds {
            let all: Vec<_> = strangers().iter().map(|(_, bytes)| say(port, bytes)).collect();
            all.into_iter().for_each(|stream| drop(until_closed(stream)));
        }
    };
    flood(5);
    let pid = cluster.pid("n2").expect("runs");
    let (before, since) = (processes::resident_kib(pid), cluster.log("n2").len());
    let (up, ends) = (link(&cluster), cluster.ended_actions());
    // Two strangers that never finish are refused by a timeout.
    let half = say(port, &handshake()[..32]);
    let silent = say(port, &handshake());
    flood(40);
    // Some disconnect at once, in the middle of their bytes.
    for (_, bytes) in strangers().iter().cycle().take(200) {
        let stream = say(port, bytes);
        let _ = stream.shutdown(Shutdown::Both);
    }
    until_closed(half);
    until_closed(silent);
    let grown = processes::resident_kib(pid).saturating_sub(before);
    assert!(grown < 8 << 10, "it has grown by {grown} KiB over {before}");
    let lines = warnings(&cluster, "n2", since);
    assert!(lines.len() <= 4, "{lines:#?}");
    assert!(cluster.is_converged(generation));
    assert_eq!((link(&cluster), cluster.ended_actions()), (up, ends));
}

#[test]
fn batches_of_a_newer_protocol_are_dropped_and_logged_once() {
    let (cluster, generation) = converged();
    let port = cluster.address("n2");
    let mut stream = say(port, &[handshake(), message(&hello("a0", PROTOCOL, PROTOCOL))].concat());
    let batch = Batch {
        from: host("a0"),
        incarnation: Incarnation { id: 0xBAD, start: 1 },
        lamport: 1,
        items: vec![],
        under_way: None,
    };
    let batch = batch.encode().expect("encodes");
    let newer = [&(PROTOCOL + 1).to_be_bytes(), &batch[2..]].concat();
    let foreign =
        Batch { from: host("n1"), ..Batch::decode(&batch).expect("decodes").batch }.encode().expect("encodes");
    let since = cluster.log("n2").len();
    for number in 1..=100 {
        let payload = if number % 2 == 0 { &newer } else { &foreign };
        stream.write_all(&message(&Frame::Data { number, ack: 0, payload })).expect("taken");
    }
    let told = |words: &str| warnings(&cluster, "n2", since).iter().filter(|l| l.contains(words)).count();
    cluster.until(PATIENCE, || told("protocol version 2 is not supported") > 0, "it is told");
    cluster.until(PATIENCE, || told("another host's name") > 0, "it is told");
    // The link itself works: the following frames are accepted.
    let status = cluster.status("n2").expect("answers");
    assert!(status.peers.iter().any(|p| p.host.as_str() == "a0" && p.up), "{:?}", status.peers);
    stream.write_all(&message(&Frame::Bye)).expect("taken");
    until_closed(stream);
    assert_eq!(
        (told("protocol version 2"), told("another host's name")),
        (1, 1),
        "{:#?}",
        warnings(&cluster, "n2", since)
    );
    assert!(cluster.is_converged(generation));
}

#[test]
fn requests_of_foreign_pages_are_refused() {
    let (cluster, generation) = converged();
    let port = cluster.address("n2");
    let ask = |head: &str| {
        let answer = until_closed(say(port, format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()));
        String::from_utf8(answer).expect("text")
    };
    let own = format!("Host: {port}");
    assert!(ask(&format!("GET /v1/status HTTP/1.1\r\n{own}")).starts_with("HTTP/1.1 200"));
    let json = "Content-Type: application/json\r\nContent-Length: 0";
    for head in [
        "GET /v1/status HTTP/1.1\r\nHost: evil.example".to_owned(),
        "GET /v1/status HTTP/1.1\r\nHost: evil.example:80\r\nOrigin: http://evil.example".to_owned(),
        format!("GET /v1/status HTTP/1.1\r\n{own}\r\nOrigin: http://evil.example"),
        format!("POST /v1/pause HTTP/1.1\r\n{own}\r\nOrigin: null\r\n{json}"),
        format!("GET http://evil.example/v1/status HTTP/1.1\r\n{own}"),
    ] {
        let answer = ask(&head);
        assert!(answer.starts_with("HTTP/1.1 403") && !answer.contains("quick"), "{head}\n{answer}");
    }
    let form = format!("POST /v1/pause HTTP/1.1\r\n{own}\r\nContent-Type: text/plain\r\nContent-Length: 2");
    let answer = until_closed(say(port, format!("{form}\r\n\r\n{{}}").as_bytes()));
    assert!(answer.starts_with(b"HTTP/1.1 415"), "{}", String::from_utf8_lossy(&answer));
    let long = format!("GET /v1/status HTTP/1.1\r\n{own}\r\nX: {}", "x".repeat(32 << 10));
    assert!(ask(&long).starts_with("HTTP/1.1 431"));
    assert!(!cluster.status("n2").expect("answers").paused);
    assert!(cluster.is_converged(generation));
}

#[test]
fn a_state_folder_of_another_host_is_refused() {
    let (mut cluster, generation) = converged();
    let (own, other) = (cluster.path("n1"), cluster.path("n2"));
    let set_aside = cluster.path("n1-state");
    cluster.kill("n1");
    cluster.kill("n2");
    std::fs::rename(&own, &set_aside).expect("renamed");
    std::fs::rename(&other, &own).expect("renamed");
    let (status, log) = cluster.start_in_vain("n1");
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("is the state folder of the host n2") && log.contains("`host = \"n1\"`"), "{log}");
    // It still belongs to n2, and n1 continues with its own folder.
    std::fs::rename(&own, &other).expect("renamed");
    std::fs::rename(&set_aside, &own).expect("renamed");
    cluster.start_all();
    cluster.wait_converged(generation, PATIENCE);
}
