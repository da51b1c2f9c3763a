//! The API over real sockets, with a loop that answers from a table.

use std::path::PathBuf;
use std::time::Duration;

use cob_types::api::{Done, LogsAnswer, MEANT_FOR, StatusOf, SwitchHow, order};
use cob_types::check_round::CheckRound;
use cob_types::history::HistoryEntry;
use cob_types::status::{HostStatus, PeerStatus};
use cob_types::{CobId, GenerationNumber, HostName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};

use super::{Access, Api, Ask, Command, Refusal, RefusalKind, UnixServer, serve_connection};

/// The time limit for immediate answers.
const SOON: Duration = Duration::from_secs(120);

fn host_status() -> HostStatus {
    HostStatus {
        reachable: true,
        generation: Some(GenerationNumber(7)),
        converged: true,
        boots: 0,
        now_ns: 5,
        peers: [("n2", true), ("n3", false)].map(|(name, up)| peer(name, up)).to_vec(),
        ..HostStatus::unknown(HostName::new("n1").expect("a name"))
    }
}

fn peer(name: &str, up: bool) -> PeerStatus {
    PeerStatus {
        host: HostName::new(name).expect("a name"),
        up,
        since_ns: 3,
        error: None,
        unheard: None,
        fenced: false,
    }
}

fn entry(seq: u64) -> HistoryEntry {
    HistoryEntry {
        ts_ns: seq,
        host: HostName::new("n1").expect("a name"),
        seq,
        lamport: seq,
        generation: GenerationNumber(7),
        cob: None,
        event: "activate".to_owned(),
        from: None,
        to: None,
        attempt: None,
        ok: None,
        detail: String::new(),
        heard_ns: None,
        facts: None,
    }
}

/// A loop that accepts every order once and knows 20 entries of history.
pub(super) struct Fake {
    pub(super) api: Api,
    pub(super) changes: watch::Sender<u64>,
    pub(super) orders: mpsc::Receiver<(Command, String)>,
}

pub(super) fn fake() -> Fake {
    let (tx, mut asked) = mpsc::channel(4);
    let (changes, seen) = watch::channel(1);
    let (told, orders) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut paused = false;
        while let Some(ask) = asked.recv().await {
            match ask {
                Ask::Status { of, reply, .. } => {
                    let idle = if of == StatusOf::Active { 3 } else { 0 };
                    drop(reply.send(HostStatus { idle, ..host_status() }));
                }
                Ask::Known { reply } => drop(reply.send(host_status().newest_known.into_iter().collect())),
                Ask::Cob { reply, .. } => drop(reply.send(None)),
                Ask::History { since, limit, reply, .. } => {
                    drop(reply.send(Ok((since..20).take(limit).map(entry).collect())));
                }
                Ask::Outcome { reply, .. } => drop(reply.send(None)),
                Ask::Output { cob, reply } => drop(reply.send((cob.name() == "a/b").then(|| "hello\n".to_owned()))),
                Ask::Logs { cob, query, reply } => {
                    let text = format!("{cob} {query:?}\n");
                    drop(reply.send(Ok(LogsAnswer { text, ..LogsAnswer::default() })));
                }
                Ask::Run { reply, .. } => {
                    drop(reply.send(Err(Refusal::new(RefusalKind::Forbidden, "n1 runs no commands", ""))));
                }
                Ask::StoredRun { reply, .. } => drop(reply.send(None)),
                Ask::Watch { reply } => drop(reply.send(seen.clone())),
                Ask::Check { reply, .. } => drop(reply.send(Ok(7))),
                Ask::CheckRound { round, reply } => {
                    let told = CheckRound::new(host_status().name, round, GenerationNumber(1));
                    drop(reply.send((round == 7).then(|| (told, watch::channel(false).1))));
                }
                Ask::Files { cob, query, who, reply, .. } => {
                    let answer = cob_types::api::FilesAnswer {
                        text: format!("{cob} {query:?}{}", who.map(|who| format!(" by {who}")).unwrap_or_default()),
                        ..Default::default()
                    };
                    drop(reply.send(Ok(answer)));
                }
                Ask::Order { order, who, reply } => {
                    let answer = match &order {
                        Command::Pause(_) => Ok(Done::new(!std::mem::replace(&mut paused, true), "paused".to_owned())),
                        Command::Prepare(_) => Err(Refusal::new(RefusalKind::NotFound, "no generation 9", "wait")),
                        Command::Switch(_)
                        | Command::Rollback(_)
                        | Command::Retry(_)
                        | Command::Stop(_)
                        | Command::Start(_)
                        | Command::Reboot(_)
                        | Command::Resume(_)
                        | Command::Cancel(_)
                        | Command::Discard(_)
                        | Command::Limit(_)
                        | Command::Budget(_)
                        | Command::MarkDeparted(_)
                        | Command::Fence(_) => Ok(Done::new(true, String::new())),
                    };
                    told.send((order, who)).await.expect("the test listens");
                    drop(reply.send(answer));
                }
            }
        }
    });
    let api = Api::new(tx, host_status().name);
    api.set_access(Access::LoopbackOnly);
    Fake { api, changes, orders }
}

struct Served {
    folder: tempfile::TempDir,
    fake: Fake,
}

impl Served {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let fake = fake();
        let server = UnixServer::bind(&folder.path().join("s")).await.expect("bound");
        tokio::spawn(server.run(fake.api.clone()));
        Self { folder, fake }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Sends a request; returns status and body of the answer.
    async fn ask(&self, request: &str) -> (u16, String) {
        let stream = UnixStream::connect(self.socket()).await.expect("connects");
        exchange(stream, request).await
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await
    }

    async fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.ask(&posted(path, "x", "application/json", body)).await
    }
}

pub(super) fn posted(path: &str, host: &str, content_type: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(super) async fn exchange(stream: impl AsyncReadExt + AsyncWriteExt + Unpin, request: &str) -> (u16, String) {
    let answer = whole(stream, request).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer with a head");
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// Sends a request; returns the answer with its head.
async fn whole(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, request: &str) -> String {
    let talk = async {
        // The answer may arrive, and the connection end, before all is written.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).expect("text")
    };
    tokio::time::timeout(SOON, talk).await.expect("an answer in time")
}

/// Sends a request over TCP to a server that hands its connections over.
async fn over_tcp(api: &Api, request: impl FnOnce(u16) -> String) -> (u16, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let api = api.clone();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        serve_connection(crate::peer::HttpStream::Plain(stream), api).await;
    });
    exchange(TcpStream::connect(address).await.expect("connects"), &request(address.port())).await
}

#[tokio::test]
async fn questions_are_answered_as_json() {
    let served = Served::new().await;
    let (code, body) = served.get("/v1/status").await;
    assert_eq!((code, serde_json::from_str::<HostStatus>(&body).expect("a status")), (200, host_status()));
    assert_eq!(served.get("/v1/status?cobs=all").await.1, body);
    let (_, body) = served.get("/v1/status?cobs=restless").await;
    assert_eq!(serde_json::from_str::<HostStatus>(&body).expect("a status").idle, 3);
    let (code, body) = served.get("/v1/version").await;
    assert!(code == 200 && body.contains("\"api\":1"), "{body}");
    assert_eq!(served.get("/v1/output/n1/a/b").await, (200, "hello\n".to_owned()));
    let (code, body) = served.get("/v1/logs/n1/a/b?after=s=1;i=2").await;
    let asked = r#"LogsQuery { lines: 100, after: Some("s=1;i=2"), previous: false }"#;
    assert_eq!(
        (code, serde_json::from_str::<LogsAnswer>(&body).expect("an answer").text),
        (200, format!("n1/a/b {asked}\n"))
    );
}

#[tokio::test]
async fn a_wrong_path_or_query_gets_an_error_with_a_hint() {
    let served = Served::new().await;
    for (path, code, word) in [
        ("/v1/cobs/n1/x/y", 404, "n1/x/y is no change object"),
        ("/v1/cobs/n1", 400, "names no host"),
        ("/v1/cobs/n1/%2e%2e/x", 400, "`..`"),
        ("/v1/output/n1/other", 404, "no output"),
        ("/v2/status", 404, "no path"),
        ("/v1/pause", 405, "method GET"),
        ("/v1/history?since=x", 400, "known are"),
        ("/v1/history?sinec=1", 400, "known are"),
        ("/v1/outcome?to=3", 404, "no switch to generation 3 has begun since"),
        ("/v1/outcome", 400, "a generation's number"),
        ("/v1/status?cobs=some", 400, "`restless`"),
        ("/v1/status?cobs=restless&waiting=some", 400, "`waiting`, a number"),
        ("/v1/logs/n1/a/b?lines=0", 400, "from 1 to 10000"),
        ("/v1/logs/n1/a/b?line=9", 400, "known are `lines`, `after` and `previous`"),
    ] {
        let (found, body) = served.get(path).await;
        assert!(found == code && body.contains(word) && body.contains("\"hint\":"), "{path}: {found} {body}");
    }
}

/// Every refusal is JSON with `error` and `hint`; a refused method names the right one.
#[tokio::test]
async fn all_refusals_have_the_same_form() {
    let served = Served::new().await;
    let (get, post) = (|path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"), "application/json");
    let long = format!("{{\"who\":\"{}\"}}", "x".repeat(70_000));
    for (request, code, head) in [
        (get("/"), 404, ""),
        (get("/v1/nothing"), 404, ""),
        (get("/v1/cobs/"), 404, ""),
        (get("/v1/cobs/n1/%ff"), 400, ""),
        (get("/v1/cobs/n1%2Fx"), 404, ""),
        (get("/v1/run/%ff"), 400, ""),
        (get("/v1/run/12"), 400, ""),
        (get("/v1/status?waiting=%ff"), 400, ""),
        (get("/v1/history?limit=99999999999999999999"), 400, ""),
        (get("/v1/pause"), 405, "allow: POST"),
        ("DELETE /v1/status HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), 405, "allow: GET,HEAD"),
        ("POST /v1/status HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), 405, "allow: GET,HEAD"),
        ("POST /v1/nothing HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), 404, ""),
        (posted("/v1/check", "x", post, "{\"cobs\":1}"), 400, ""),
        (posted("/v1/pause", "x", post, "nonsense"), 400, ""),
        (posted("/v1/pause", "x", post, &long), 413, ""),
        (posted("/v1/pause", "x", "text/plain", "{}"), 415, ""),
        (posted("/v1/prepare", "x", post, "{\"generation\":9}"), 404, ""),
    ] {
        let stream = UnixStream::connect(served.socket()).await.expect("connects");
        let answer = whole(stream, &request).await;
        let (found, body) = answer.split_once("\r\n\r\n").expect("a head");
        let line: String = request.chars().take(60).collect();
        assert!(found.starts_with(&format!("HTTP/1.1 {code}")), "{line}: {found}");
        assert!(found.contains("content-type: application/json") && found.contains(head), "{line}: {found}");
        let told: cob_types::api::RefusalBody = serde_json::from_str(body).expect(&line);
        assert!(!told.error.is_empty(), "{line}: {body}");
    }
}

#[tokio::test]
async fn the_metrics_are_served() {
    let served = Served::new().await;
    let (code, body) = served.get("/metrics").await;
    assert!(code == 200 && body.contains("\ncob_objects{phase=\"settled\"} 3\n"), "{body}");
    assert!(!body.contains("cob_journal"), "the folder is not known: {body}");
    served.fake.api.set_journal(served.folder.path().to_owned());
    let (_, body) = served.get("/metrics").await;
    assert!(body.contains("\ncob_journal_size_bytes ") && body.ends_with("# EOF\n"), "{body}");
}

#[tokio::test]
async fn the_description_is_served() {
    let (code, body) = Served::new().await.get("/v1/openapi.json").await;
    assert_eq!((code, body.as_str()), (200, super::openapi()));
}

#[tokio::test]
async fn the_history_comes_in_pages_with_an_entry_on_each_line() {
    let served = Served::new().await;
    let (_, body) = served.get("/v1/history?since=3&limit=2").await;
    let seqs: Vec<u64> = body.lines().map(|l| serde_json::from_str::<HistoryEntry>(l).expect("an entry").seq).collect();
    assert_eq!(seqs, [3, 4]);
    let (_, body) = served.get("/v1/history").await;
    assert_eq!(body.lines().count(), 20);
    assert_eq!(served.get("/v1/history?since=20").await, (200, String::new()));
    assert_eq!(served.get("/v1/history?limit=0").await, (200, String::new()));
}

#[tokio::test]
async fn orders_reach_the_loop_with_their_author() {
    let mut served = Served::new().await;
    assert_eq!(served.post("/v1/pause", "{\"who\":\"ann\"}").await.1, "{\"changed\":true,\"detail\":\"paused\"}");
    assert_eq!(served.post("/v1/pause", "").await.1, "{\"changed\":false,\"detail\":\"paused\"}");
    assert_eq!(served.post("/v1/switch", "{\"generation\":8}").await.0, 200);
    assert_eq!(served.post("/v1/retry", "{\"cob\":\"n1/a/b\"}").await.0, 200);
    assert_eq!(served.post("/v1/fence", "{\"host\":\"n2\"}").await.0, 200);
    assert_eq!(served.post("/v1/declare-final", "{\"cob\":\"n2/old\"}").await.0, 200);
    assert_eq!(served.post("/v1/declare-final", "{\"host\":\"n2\"}").await.0, 200);
    assert_eq!(
        served.post("/v1/prepare", "{\"generation\":9}").await,
        (404, "{\"error\":\"no generation 9\",\"hint\":\"wait\"}".to_owned())
    );
    let uid = rustix::process::getuid().as_raw();
    let mut seen = Vec::new();
    while let Ok(order) = served.fake.orders.try_recv() {
        seen.push(order);
    }
    let me = if uid == 0 { "root (unix socket)".to_owned() } else { format!("uid {uid} (unix socket)") };
    assert_eq!(
        seen,
        [
            (Command::Pause(order::Pause { who: None }), format!("{me}, for \"ann\"")),
            (Command::Pause(order::Pause { who: None }), me.clone()),
            (Command::Switch(order::Switch::new(GenerationNumber(8), SwitchHow::default())), me.clone()),
            (Command::Retry(order::Retry { cob: CobId::new("n1/a/b").expect("an id"), who: None }), me.clone()),
            (Command::Fence(order::Fence { host: HostName::new("n2").expect("a name"), who: None }), me.clone()),
            (
                Command::MarkDeparted(order::MarkDeparted {
                    cob: CobId::new("n2/old").ok(),
                    ..order::MarkDeparted::default()
                }),
                me.clone()
            ),
            (
                Command::MarkDeparted(order::MarkDeparted {
                    host: HostName::new("n2").ok(),
                    ..order::MarkDeparted::default()
                }),
                me.clone()
            ),
            (Command::Prepare(order::Prepare { generation: GenerationNumber(9), who: None, manifest: None }), me),
        ]
    );
}

#[tokio::test]
async fn an_invalid_order_body_changes_no_state() {
    let mut served = Served::new().await;
    for (path, body, code) in [
        ("/v1/switch", "", 400),
        ("/v1/switch", "{\"generation\":-1}", 400),
        ("/v1/switch", "{\"generation\":1,\"force\":true}", 400),
        ("/v1/switch", "[[[[", 400),
        ("/v1/switch", "[]", 400),
        ("/v1/pause", "[]", 400),
        ("/v1/pause", "[null]", 400),
        ("/v1/limit", " [null, null]", 400),
        ("/v1/fence", "[\"n2\"]", 400),
        ("/v1/switch", "8", 400),
        ("/v1/retry", "{\"cob\":\"n1\"}", 400),
        ("/v1/fence", "{\"host\":\"a/b\"}", 400),
        ("/v1/declare-final", "{\"cob\":\"n1\"}", 400),
        ("/v1/declare-final", "{}", 400),
        ("/v1/declare-final", "{\"cob\":\"n1/a\",\"host\":\"n1\"}", 400),
    ] {
        let (found, answer) = served.post(path, body).await;
        assert!(found == code && answer.contains("\"error\":"), "{path} {body}: {found} {answer}");
        assert!(!answer.contains("struct") && !answer.contains("Order"), "names of our own: {answer}");
    }
    let long = format!("{{\"who\":\"{}\"}}", "x".repeat(70_000));
    assert_eq!(served.post("/v1/pause", &long).await.0, 413);
    assert_eq!(served.ask(&posted("/v1/pause", "x", "text/plain", "{}")).await.0, 415);
    assert!(served.fake.orders.try_recv().is_err(), "nothing was ordered");
}

#[tokio::test]
async fn a_web_page_can_neither_ask_nor_order() {
    let mut fake = fake();
    let get = |headers: &str| format!("GET /v1/status HTTP/1.1\r\n{headers}\r\n\r\n");
    let ok =
        over_tcp(&fake.api, |port| get(&format!("host: 127.0.0.1:{port}\r\norigin: http://127.0.0.1:{port}"))).await;
    assert_eq!(ok.0, 200, "{}", ok.1);
    assert_eq!(over_tcp(&fake.api, |_| get("host: localhost")).await.0, 200);
    for (headers, code) in [
        ("host: evil.example", 403),
        ("host: 127.0.0.1\r\norigin: http://evil.example", 403),
        ("host: 127.0.0.1\r\norigin: null", 403),
        ("host: 127.0.0.1\r\norigin: http://127.0.0.1\r\norigin: http://evil.example", 403),
        ("x: y", 400),
        ("host: 127.0.0.1\r\nhost: evil.example", 400),
    ] {
        assert_eq!(over_tcp(&fake.api, |_| get(headers)).await.0, code, "{headers}");
    }
    let absolute = "GET http://evil.example/v1/status HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    assert_eq!(over_tcp(&fake.api, |_| absolute.to_owned()).await.0, 403);
    for content_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let order = posted("/v1/pause", "127.0.0.1", content_type, "{}");
        assert_eq!(over_tcp(&fake.api, |_| order).await.0, 415);
    }
    assert!(fake.orders.try_recv().is_err(), "nothing was ordered");
    let order = posted("/v1/pause", "127.0.0.1", "application/json; charset=utf-8", "{}");
    assert_eq!(over_tcp(&fake.api, |_| order).await.0, 200);
}

/// `ssh -L 8080:/run/cob/cobd.sock` makes the socket a port that a browser reaches.
#[tokio::test]
async fn a_web_page_is_refused_through_a_forwarded_unix_socket() {
    let mut served = Served::new().await;
    for (headers, code) in [
        ("host: 127.0.0.1:8080\r\norigin: http://evil.example:8080", 403),
        ("host: 127.0.0.1:8080\r\norigin: http://127.0.0.1:8080", 403),
        ("host: localhost:8080\r\norigin: null", 403),
        ("host: localhost:8080\r\nsec-fetch-site: same-origin", 403),
        ("host: localhost:8080\r\nsec-fetch-site: none", 403),
        ("host: localhost:8080\r\nsec-fetch-mode: navigate", 403),
        // A name that its owner points to this machine: a browser sends neither header with such a question.
        ("host: evil.example:8080", 403),
        ("host: localhost.evil.example", 403),
        ("host: evil.example.", 403),
        ("host: x\r\nhost: evil.example", 403),
        ("host: x", 200),
        ("host: n1", 200),
        ("host: localhost:8080", 200),
        ("host: cobd.localhost", 200),
        ("host: %2Frun%2Fcob%2Fcobd.sock", 200),
        ("host: 127.0.0.1:8080", 200),
        ("host: [::1]:8080", 200),
    ] {
        let (found, body) = served.ask(&format!("GET /v1/status HTTP/1.1\r\n{headers}\r\n\r\n")).await;
        assert_eq!(found, code, "{headers}: {body}");
        let order = posted("/v1/resume", "x", "application/json", "{}").replacen("host: x", headers, 1);
        let (found, body) = served.ask(&order).await;
        assert_eq!(found, code, "{headers}: {body}");
        assert_eq!(served.fake.orders.try_recv().is_ok(), code == 200, "{headers}");
    }
}

#[tokio::test]
async fn garbage_and_endless_heads_end_the_connection_alone() {
    let served = Served::new().await;
    assert_eq!(served.ask("\0\u{1}\u{2}garbage\r\n\r\n").await.0, 400);
    let endless = format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    assert_eq!(served.ask(&endless).await.0, 431);
    assert_eq!(served.get("/v1/version").await.0, 200);
}

/// Reads a watcher's events until they contain this text.
async fn hear(stream: &mut UnixStream, what: &str) {
    let mut text = String::new();
    let heard = async {
        while !text.contains(what) {
            let mut part = [0; 1024];
            let n = stream.read(&mut part).await.expect("read");
            assert!(n > 0, "ended: {text}");
            text.push_str(std::str::from_utf8(&part[..n]).expect("text"));
        }
    };
    tokio::time::timeout(SOON, heard).await.unwrap_or_else(|_| panic!("not told in time: {what}"));
}

#[tokio::test]
async fn watchers_receive_the_status_at_once_and_at_each_change() {
    let served = Served::new().await;
    let mut stream = UnixStream::connect(served.socket()).await.expect("connects");
    stream.write_all(b"GET /v1/events?status=all HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    let status = serde_json::to_string(&host_status()).expect("JSON");
    hear(&mut stream, &format!("data: {{\"change\":1,\"status\":{status}}}")).await;
    served.fake.changes.send_replace(17);
    hear(&mut stream, &format!("data: {{\"change\":17,\"status\":{status}}}")).await;
    // A watcher of restless change objects receives links that are down, but not all links that are up.
    let mut stream = UnixStream::connect(served.socket()).await.expect("connects");
    stream.write_all(b"GET /v1/events?status=restless HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    let told = HostStatus { idle: 3, peers: vec![peer("n3", false)], ..host_status() };
    let status = serde_json::to_string(&told).expect("JSON");
    hear(&mut stream, &format!("data: {{\"change\":17,\"status\":{status}}}")).await;
    let (code, body) = served.get("/v1/events?status=some").await;
    assert!(code == 400 && body.contains("`all` or `restless`"), "{code} {body}");
}

#[tokio::test]
async fn watchers_leave_room_for_orders() {
    let served = Served::new().await;
    let places = served.fake.api.watchers.clone().acquire_many_owned(64).await.expect("all places");
    let (code, body) = served.get("/v1/events").await;
    assert!(code == 503 && body.contains("too many watchers"), "{code} {body}");
    assert_eq!(served.post("/v1/pause", "{}").await.0, 200);
    drop(places);
}

#[tokio::test]
async fn a_stopping_daemon_answers_that_it_is_stopping() {
    let served = Served::new().await;
    let (tx, rx) = mpsc::channel(1);
    drop(rx);
    let api = Api::new(tx, host_status().name);
    api.set_access(Access::LoopbackOnly);
    let (code, body) = over_tcp(&api, |_| "GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned()).await;
    assert!(code == 503 && body.contains("stopping"), "{code} {body}");
    assert_eq!(served.get("/v1/status").await.0, 200);
}

#[tokio::test]
async fn an_order_meant_for_another_host_is_refused() {
    let mut served = Served::new().await;
    let meant = |host: &str| {
        let plain = posted("/v1/pause", "localhost", "application/json", "{}");
        plain.replacen("\r\n", &format!("\r\n{MEANT_FOR}: {host}\r\n"), 1)
    };
    let (code, told) = served.ask(&meant("alpha")).await;
    assert!(code == 409 && told.contains("not \\\"alpha\\\": it did not carry out the order"), "{code} {told}");
    assert!(served.fake.orders.try_recv().is_err(), "nothing was ordered");
    assert_eq!(served.ask(&meant(host_status().name.as_str())).await.0, 200);
    assert!(served.fake.orders.try_recv().is_ok());
}

#[test]
fn the_log_shows_orders_in_the_words_of_the_command_line() {
    use cob_types::switch::OnFailure;

    let generation = GenerationNumber(7);
    let switch = |how, only| Command::Switch(order::Switch { only, ..order::Switch::new(generation, how) });
    let name = |text: &str| HostName::new(text).expect("a name");
    let how = |alone| SwitchHow { on_failure: Some(OnFailure::Rollback), guard_ms: Some(5000), alone, now: false };
    let web = || CobId::new("n1/budget/web").expect("id");
    let budget = Some(web());
    for (order, words) in [
        (switch(SwitchHow::default(), Vec::new()), "switch 7"),
        (
            switch(how(true), vec![name("n1"), name("n2")]),
            "switch 7, on failure rollback, guard 5000 ms, only n1, only n2",
        ),
        (switch(how(true), Vec::new()), "switch 7, on failure rollback, guard 5000 ms, not announced"),
        (
            Command::Cancel(order::Cancel { on_failure: Some(OnFailure::Hold), ..order::Cancel::default() }),
            "cancel, on failure hold",
        ),
        (Command::Rollback(order::Rollback { generation: Some(generation), prepare: false, who: None }), "rollback 7"),
        (Command::Rollback(order::Rollback { generation: None, prepare: true, who: None }), "rollback, prepare"),
        (Command::Limit(order::Limit { at_most: None, budget: None, who: None }), "limit none"),
        (Command::Limit(order::Limit { at_most: Some(2), budget, who: None }), "limit 2, budget n1/budget/web"),
        (
            Command::Budget(order::Budget { budget: web(), at_most: Some(3), who: None }),
            "budget n1/budget/web --at-most 3",
        ),
        (
            Command::Budget(order::Budget { budget: web(), at_most: None, who: None }),
            "budget n1/budget/web --at-most model",
        ),
    ] {
        assert_eq!(order.to_string(), words);
    }
}

/// An order is recorded before it starts, so an impossible order is refused by a question first.
#[tokio::test]
async fn an_impossible_order_about_files_is_refused() {
    use crate::kinds::FilesQuery;
    use cob_types::api::FilesAnswer;

    let (tx, mut asked) = mpsc::channel(1);
    let api = Api::new(tx, host_status().name);
    let restore = |path: &str| FilesQuery::Restore { version: "4f5a".to_owned(), path: path.to_owned() };
    let cob = || CobId::new("n1/a/b").expect("id");
    let (none, there) = (restore("/etc/none"), restore("/etc/there"));
    let refused = FilesQuery::Would(Box::new(none.clone()));
    tokio::spawn(async move {
        while let Some(Ask::Files { query, who, reply, .. }) = asked.recv().await {
            let answer = FilesAnswer { text: who.unwrap_or_default(), ..FilesAnswer::default() };
            let no = || Refusal::new(RefusalKind::Conflict, "it is not managed", "look");
            assert!(!answer.text.is_empty() || matches!(query, FilesQuery::Would(_)), "{query:?}");
            drop(reply.send(if query == refused { Err(no()) } else { Ok(answer) }));
        }
    });
    let error = api.order_files(cob(), None, none, "alice".to_owned()).await.expect_err("refused");
    assert!(error.error.contains("not managed"), "{error:?}");
    assert_eq!(api.order_files(cob(), None, there, "alice".to_owned()).await.expect("done").text, "alice");
}
