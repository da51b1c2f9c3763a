//! A hostile depot server: it holds the key that `depot_key` names, but no publisher's key.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use cob_tests::cluster::Cluster;
use cob_tests::processes;
use cob_trust::tls::{self, HTTP, Identity};
use cob_trust::{SecretKey, publishers};
use cob_types::PublicKey;
use cob_types::trust::Signed;

use crate::setup::MODEL;
use crate::{CHECK, PATIENCE, QUICK};

/// The length of nearly the longest manifest that a host accepts, in bytes.
const LONG: usize = 60 << 20;
/// The most memory of a daemon at any time, in KiB: itself, and the bytes of this manifest. Decoded it takes 1 GiB.
const MOST: u64 = 300 << 10;
/// A line that a hostile server would like to insert into the log.
const FORGED: &str = "2026-01-01T00:00:00.000000Z  INFO cobd: converged";

/// Bytes that start like a manifest of generation 99, with an endless switch order.
fn long_manifest() -> Vec<u8> {
    let head = |major: u8, n: u64| [&[major << 5 | 27][..], &n.to_be_bytes()].concat();
    let text = |t: &str| [head(3, t.len() as u64), t.as_bytes().to_vec()].concat();
    let number = |key: &str, n: u64| [text(key), head(0, n)].concat();
    let entry = |n: u64| [text(&format!("a/{n:x}")), head(4, 1), text(&format!("b/{n:x}"))].concat();
    let count = (LONG / entry(1 << 20).len()) as u64;
    let mut bytes = [
        head(5, 7),
        number("format", 1),
        number("generation", 99),
        number("parent", 98),
        [text("security"), text("identities")].concat(),
        number("cobs", 0),
        [text("hosts"), head(5, 0)].concat(),
        [text("switches"), head(4, 1), head(5, 3), number("from", 1), number("to", 2), text("after")].concat(),
        head(5, count),
    ]
    .concat();
    (0..count).for_each(|n| bytes.extend(entry(n | 1 << 20)));
    bytes
}

/// Serves until the test ends; signatures over generation 99: `signed`.
fn serve(key: &SecretKey, signed: &[Signed]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let config =
        tls::server(&Identity::new(key).expect("a certificate"), Arc::new(|_: &PublicKey| true), false, &[HTTP]);
    let (config, manifest) = (config.expect("settings"), Arc::new(long_manifest()));
    let signed = serde_json::to_vec(signed).expect("JSON");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, manifest, signed) = (config.clone(), manifest.clone(), signed.clone());
            std::thread::spawn(move || {
                let tls = rustls::ServerConnection::new(config).expect("a server");
                let mut stream = rustls::StreamOwned::new(tls, stream);
                let mut asked = Vec::new();
                let mut piece = [0; 4096];
                while !asked.windows(4).any(|w| w == b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(read) if read > 0 => asked.extend(&piece[..read]),
                        Ok(_) | Err(_) => return,
                    }
                }
                let asked = String::from_utf8_lossy(&asked).into_owned();
                let path = asked.split(' ').nth(1).unwrap_or_default().to_owned();
                let refusal = serde_json::json!({ "error": format!("no\n{FORGED}\u{1b}[2J") }).to_string().into_bytes();
                let (status, body) = match path.as_str() {
                    "/v1/generations/99/manifest" => ("200 OK", manifest.as_slice()),
                    "/v1/generations/99/signatures" => ("200 OK", signed.as_slice()),
                    _ => ("403 Forbidden", refusal.as_slice()),
                };
                // The host may close the connection.
                let _ =
                    write!(stream, "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(body).and_then(|()| stream.flush());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            });
        }
    });
    address
}

#[test]
fn a_false_server_takes_little_memory_and_forges_no_line_of_the_log() {
    let mut cluster = Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &["n1", "n2"]);
    let folder = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
    drop(cluster.load(&folder));
    let key = SecretKey::from_seed(&[0x5E; 32]);
    // A signature over other bytes, which any reader of another generation has.
    let stolen = publishers::sign(&cluster.publisher(), b"another manifest");
    for (host, signed, words) in [("n1", vec![], "it has no signature"), ("n2", vec![stolen], "was altered")] {
        let server = serve(&key, &signed);
        cluster.configure(host, &format!("listen = \"tcp://{}\"\nfollow = true", cluster.address(host)));
        let file = cluster.path(&format!("{host}.toml"));
        let config = std::fs::read_to_string(&file).expect("a configuration");
        let depot = format!("depot = \"tcp://{server}\"\ndepot_key = \"{}\"", key.public());
        std::fs::write(&file, config.replace("depot = \"depot\"", &depot)).expect("written");
        cluster.start(host);
        cluster.wait_answers(host);
        let answer = cluster.http(host, "POST", "/v1/prepare", "{\"generation\": 99}").expect_err("refused");
        assert!(answer.contains(words), "{answer}");
        let peak = processes::peak_kib(cluster.pid(host).expect("runs"));
        println!("{host}: {peak} KiB at most");
        assert!(peak < MOST, "{host} has taken {peak} KiB");
        cluster.until(PATIENCE, || cluster.log(host).contains(FORGED), "what the server says is in the log");
        let log = cluster.log(host);
        assert!(log.lines().all(|line| !line.starts_with(FORGED)) && !log.contains('\u{1b}'), "{log}");
    }
}
