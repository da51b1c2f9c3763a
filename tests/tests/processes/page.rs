//! The server of `cobctl page`, with real daemons over TLS, asked as a browser asks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use cob_tests::cluster::Cluster;
use cob_tests::processes::{self, Signal};
use cob_trust::SecretKey;
use cob_types::trust::{Operator, Role};
use serde_json::{Value, json};

use crate::{CHECK, PATIENCE, QUICK};

const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
cobs:
  n1/a: {kind: quick}
  n2/b: {kind: quick, requires: [n1/a]}
"#;

/// A page with its cluster.
struct Page {
    cluster: Cluster,
    program: Child,
    /// `127.0.0.1:PORT`.
    at: String,
    key: String,
}

/// An answer: its status, its headers, its body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}{}", self.head, self.body))
    }
}

impl Page {
    /// Two hosts with keys and a page of the operator `olga`.
    fn open() -> Self {
        let mut cluster = Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &["n1", "n2"]);
        let folder = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
        let mut draft = cluster.load(&folder);
        let key = SecretKey::from_seed(&[2; 32]);
        key.store(&cluster.path("olga.key")).expect("a key");
        let olga = Operator { role: Role::Operate, keys: vec![key.public()], token: None };
        draft.operators.insert("olga".to_owned(), olga);
        let first = cluster.publish_draft(&draft);
        cluster.bring_up(first, PATIENCE);
        let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
        command.arg("cobctl").arg("--depot").arg(cluster.path("depot"));
        command.args(["--trust", &cluster.publisher().public().to_string()]);
        command.arg("--key").arg(cluster.path("olga.key")).arg("page");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = command.spawn().expect("runs");
        let mut address = String::new();
        BufReader::new(program.stdout.as_mut().expect("piped")).read_line(&mut address).expect("read");
        let (at, key) = address.trim().split_once("/#key=").expect("an address with a key");
        let at = at.strip_prefix("http://").expect("http").to_owned();
        Self { cluster, program, key: key.to_owned(), at }
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.at).expect("the page listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let host = if headers.iter().any(|(name, _)| *name == "host") {
            String::new()
        } else {
            format!("host: {}\r\n", self.at)
        };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut text = String::new();
        self.send(method, path, headers, body).read_to_string(&mut text).expect("read");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.key)
    }

    fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[("authorization", &self.bearer())], "")
    }

    fn order(&self, order: &Value) -> Answer {
        let headers = [("authorization", self.bearer()), ("content-type", "application/json".to_owned())];
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.request("POST", "/api/orders", &headers, &order.to_string())
    }

    /// The messages of a stream.
    fn follow(&self) -> impl Iterator<Item = Value> + use<> {
        let stream = self.send("GET", "/api/stream", &[("authorization", &self.bearer())], "");
        let lines = BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(&line).expect("a message"))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// The first message with this property.
fn first(messages: &mut impl Iterator<Item = Value>, what: &str, is: impl FnMut(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    messages.take_while(|_| Instant::now() < until).find(is).unwrap_or_else(|| panic!("no message: {what}"))
}

#[test]
fn a_tab_sees_the_cluster_its_changes_and_the_end_of_an_order() {
    let mut page = Page::open();
    let mut messages = page.follow();
    let whole = first(&mut messages, "the snapshot", |m| m["kind"] == "snapshot");
    assert_eq!(whole["cluster"]["verdict"], "converged", "{whole}");
    assert_eq!(whole["cobs"]["id"], json!(["n1/a", "n2/b"]));
    assert_eq!(whole["cobs"]["class"], json!([0, 0]));
    let drawn = |m: &Value| m["graph"]["needs"] == json!([1, 0]);
    assert!(drawn(&whole) || drawn(&first(&mut messages, "the graph", drawn)));

    let stop = page.order(&json!({"order": "stop", "what": "n2/b"}));
    assert_eq!((stop.status, stop.json()), (200, json!({"id": 1})), "{}", stop.body);
    let is_row = |row: &Value| row[0] == 1 && row[3] == 4;
    let stopped = |m: &Value| m["cobs"].as_array().is_some_and(|rows| rows.iter().any(is_row));
    let ended = |m: &Value| m["orders"].as_array().is_some_and(|orders| orders.iter().any(|o| o["exit"] == 0));
    // Both may be in the same message.
    let (mut is_stopped, mut order) = (false, None);
    first(&mut messages, "n2/b is stopped and the order has ended", |m| {
        is_stopped |= stopped(m);
        order = order.take().or_else(|| ended(m).then(|| m["orders"][0].clone()));
        is_stopped && order.is_some()
    });
    assert_eq!(order.expect("an order")["words"], "cobctl stop n2/b --wait");

    let explained = page.get("/api/ask/explain?what=n2/b").json();
    assert!(
        explained["answer"]["answer"].as_str().is_some_and(|text| text.contains("stopped by order of olga")),
        "{explained}"
    );
    let plan = page.get("/api/ask/start-plan?what=n2/b").json();
    assert_eq!(plan["exit"], 0, "{plan}");
    let cob = page.get("/api/cob?id=n2/b").json();
    assert!(cob["cob"]["stopped"]["who"].as_str().is_some_and(|who| who.starts_with("olga (operate)")), "{cob}");

    page.cluster.crash("n1");
    let lost = |m: &Value| {
        m["hosts"].as_array().is_some_and(|hosts| hosts.iter().any(|h| h["name"] == "n1" && h["reachable"] == false))
    };
    let lost = first(&mut messages, "n1 is lost", lost);
    assert_eq!(lost["cobs"][0][3], 5, "its change objects are unknown: {lost}");
    let other_tab = first(&mut page.follow(), "a snapshot for another tab", |m| m["kind"] == "snapshot");
    assert_eq!(
        (&other_tab["cluster"]["verdict"], &other_tab["cobs"]["id"]),
        (&json!("unreached"), &json!(["n1/a", "n2/b"]))
    );

    processes::signal(page.program.id(), Signal::INT);
    assert_eq!(page.program.wait().expect("ends").code(), Some(0));
    assert!(messages.all(|m| m["kind"] != "snapshot"), "the stream ends with the page");
}

#[test]
fn requests_of_other_pages_and_users_are_refused() {
    let page = Page::open();
    let key = page.bearer();
    let front = page.request("GET", "/", &[], "");
    assert_eq!(front.status, 200);
    for header in
        ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff", "cache-control: no-store"]
    {
        assert!(front.head.contains(header), "{header}: {}", front.head);
    }
    assert!(!front.body.contains(&page.key) && !front.body.contains("n1"), "the page itself has no secrets");
    let port = page.at.rsplit(':').next().expect("a port");
    let local = format!("localhost:{port}");
    for path in ["/api/stream", "/api/cob?id=n1/a", "/api/ask/whoami", "/api/ask/generations", "/api/nothing"] {
        assert_eq!(page.request("GET", path, &[], "").status, if path == "/api/nothing" { 404 } else { 401 }, "{path}");
        let rebound = [("host", "evil.example"), ("authorization", key.as_str())];
        assert_eq!(page.request("GET", path, &rebound, "").status, 403, "{path}");
    }
    let json = ("content-type", "application/json");
    let pause = r#"{"order":"pause"}"#;
    for (headers, status) in [
        (vec![("authorization", key.as_str()), json, ("origin", "http://evil.example")], 403),
        (vec![("authorization", key.as_str()), json, ("sec-fetch-site", "cross-site")], 403),
        (vec![("authorization", "Bearer 0000"), json], 401),
        (vec![json], 401),
        (vec![("authorization", key.as_str()), ("content-type", "text/plain")], 415),
        (vec![("authorization", key.as_str())], 415),
    ] {
        let answer = page.request("POST", "/api/orders", &headers, pause);
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.body);
        assert!(!answer.head.contains("access-control"), "{}", answer.head);
    }
    assert_eq!(page.request("OPTIONS", "/api/orders", &[("origin", "http://evil.example")], "").status, 403);
    assert!(page.cluster.status("n1").is_some_and(|host| !host.paused), "no order has arrived");
    let own = [("host", local.as_str()), ("authorization", key.as_str()), ("sec-fetch-site", "same-origin")];
    assert_eq!(page.request("GET", "/api/ask/whoami", &own, "").status, 200);
}

#[test]
fn wrong_questions_and_orders_are_refused_with_the_reason() {
    let page = Page::open();
    for (path, status, part) in [
        ("/api/ask/passwords", 404, "no question of this name"),
        ("/api/ask/plan", 400, "`generation` is missing"),
        ("/api/ask/explain?what=--help", 400, "not a host or a change object"),
        ("/api/cob?id=n1/none", 404, "no host"),
    ] {
        let answer = page.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.json()["error"].as_str().is_some_and(|error| error.contains(part)), "{path}: {}", answer.body);
    }
    for order in
        [json!({"order": "run", "what": "id"}), json!({"order": "stop", "what": "--all"}), json!({}), json!([])]
    {
        let answer = page.order(&order);
        assert_eq!(answer.status, 400, "{order}: {}", answer.body);
        assert!(answer.json()["error"].is_string(), "{}", answer.body);
    }
    let missing = page.get("/api/ask/explain?what=n9/a").json();
    assert_eq!((&missing["exit"], missing["failure"]["error"].is_string()), (&json!(2), true), "{missing}");
    let generations = page.get("/api/ask/generations").json();
    assert_eq!(generations["answer"][0]["generation"], 1, "{generations}");
}

#[test]
fn an_idle_page_does_not_disturb_and_a_left_tab_is_forgotten() {
    let page = Page::open();
    for _ in 0..100 {
        drop(page.follow());
    }
    // Each left tab's connection ends with the next message at the latest.
    let are_closed = || processes::descriptors(page.program.id()) <= 40;
    page.cluster.until(PATIENCE, are_closed, "the connections of the left tabs are closed");
}

#[test]
fn the_faults_of_a_switch_are_tried_as_by_the_command_line() {
    let mut page = Page::open();
    let lines = |answer: &Answer| -> Vec<Value> {
        let lines = answer.body.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).expect("a line")).collect()
    };
    let tried = page.get("/api/faults?from=0&to=1");
    assert_eq!(tried.status, 200, "{}", tried.body);
    let report = lines(&tried).pop().expect("a last line");
    assert_eq!(report["kind"], "report", "{report}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
    command.args(["cobgen", "verify", "--switch", "0..1", "--every-fault", "--depot"]).arg(page.cluster.path("depot"));
    let said = String::from_utf8(command.output().expect("runs").stdout).expect("text");
    assert_eq!(said.lines().next(), report["summary"].as_str(), "{said}");
    let groups = report["groups"].as_array().expect("groups");
    let findings: Vec<&Value> = groups.iter().flat_map(|group| group["findings"].as_array().expect("a list")).collect();
    assert!(!findings.is_empty(), "an action that always fails needs a person: {report}");
    for finding in findings {
        for part in [&finding["title"], &finding["again"], &finding["why"][0]] {
            assert!(said.contains(part.as_str().expect("text")), "{part} is not in {said}");
        }
    }

    // A chain of so many objects has more cases than the first batch of runs.
    let chain: String =
        ('b'..='p').zip('a'..).map(|(c, of)| format!("  n1/{c}: {{kind: quick, requires: [n1/{of}]}}\n")).collect();
    let folder = page.cluster.write_model("chain", &[("model.yaml", &format!("{MODEL}{chain}")), QUICK, CHECK]);
    let draft = page.cluster.load(&folder);
    let second = page.cluster.publish_draft(&draft);
    let short = lines(&page.get(&format!("/api/faults?from=1&to={second}&seconds=0"))).pop().expect("a last line");
    assert!(short["skipped"].as_str().is_some_and(|text| text.contains("not tried, beyond the limit")), "{short}");

    for (path, part) in [("from=1&to=1", "is not after generation 1"), ("from=1&to=9", "generation 9")] {
        let refused = lines(&page.get(&format!("/api/faults?{path}"))).pop().expect("a line");
        assert_eq!(refused["kind"], "refused", "{refused}");
        assert!(refused["error"].as_str().is_some_and(|error| error.contains(part)), "{refused}");
    }
    assert_eq!(page.get("/api/faults?from=x&to=1").status, 400);
    assert_eq!(page.request("GET", "/api/faults?from=0&to=1", &[], "").status, 401);

    // A browser that leaves gives the place back; other questions are answered meanwhile.
    drop(page.send("GET", "/api/faults?from=0&to=1", &[("authorization", &page.bearer())], ""));
    assert_eq!(page.get("/api/ask/generations").status, 200);
    let has_place = || page.get("/api/faults?from=0&to=1&seconds=0").status == 200;
    page.cluster.until(PATIENCE, has_place, "the left trial has ended");
}
