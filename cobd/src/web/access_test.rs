//! Every path of the API, requested by every kind of caller over real TLS and real sockets.

use std::sync::Arc;
use std::time::Duration;

use cob_trust::tls::{self, Identity};
use cob_trust::{SecretKey, tls::HTTP};
use cob_types::canonical::blob_hash;
use cob_types::generation::{ManifestHost, Security};
use cob_types::trust::{Operator, PublicKey, Role};
use cob_types::{BlobHash, GenerationNumber, HostName, Manifest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tower::ServiceExt as _;

use super::tests::{Fake, exchange, fake, posted};
use super::{Access, Api, Caller, UnixServer, router, serve_connection};
use crate::peer::HttpStream;

const TOKEN: &str = "open-sesame";

/// Every path with its method and body, and the role that it needs.
const ROUTES: [(&str, &str, Role); 20] = [
    ("GET /v1/version", "", Role::Look),
    ("GET /v1/whoami", "", Role::Look),
    ("GET /v1/status", "", Role::Look),
    ("GET /v1/cobs/n1/a", "", Role::Look),
    ("GET /v1/history", "", Role::Look),
    ("GET /v1/output/n1/a/b", "", Role::Look),
    ("GET /v1/logs/n1/a/b", "", Role::Look),
    ("GET /v1/events", "", Role::Look),
    ("GET /v1/check?round=7", "", Role::Look),
    ("POST /v1/check", "{}", Role::Operate),
    ("POST /v1/prepare", "{\"generation\":9}", Role::Operate),
    ("POST /v1/switch", "{\"generation\":8}", Role::Operate),
    ("POST /v1/retry", "{\"cob\":\"n1/a\"}", Role::Operate),
    ("POST /v1/stop", "{\"cobs\":[{\"cob\":\"n1/a\"}]}", Role::Operate),
    ("POST /v1/reboot", "{}", Role::Administer),
    ("POST /v1/start", "{\"cobs\":[\"n1/a\"]}", Role::Operate),
    ("POST /v1/pause", "{}", Role::Operate),
    ("POST /v1/resume", "{}", Role::Operate),
    ("POST /v1/fence", "{\"host\":\"n2\"}", Role::Administer),
    ("POST /v1/declare-final", "{\"cob\":\"n1/a\"}", Role::Administer),
];

/// A caller: a name, a key, further headers, the highest role that is admitted, and the refusal.
type Asker<'a> = (&'a str, Option<SecretKey>, &'a str, Option<Role>, u16);

fn key(n: u8) -> SecretKey {
    SecretKey::from_seed(&[n; 32])
}

fn manifest() -> Manifest {
    let mut manifest = Manifest::empty(GenerationNumber(7), GenerationNumber(6), Security::Identities);
    let host = |n: u8| ManifestHost {
        address: Some(format!("tcp://127.0.0.{n}:7077")),
        keys: vec![key(n).public()],
        bundle: BlobHash([0; 32]),
        cobs: 0,
    };
    manifest.hosts.insert(HostName::new("n1").expect("a name"), host(1));
    manifest.hosts.insert(HostName::new("n2").expect("a name"), host(2));
    for (name, n, role) in [("lou", 3, Role::Look), ("olga", 4, Role::Operate), ("ada", 5, Role::Administer)] {
        let operator = Operator { role, keys: vec![key(n).public()], token: None };
        manifest.operators.insert(name.to_owned(), operator);
    }
    let bot = Operator { role: Role::Operate, keys: Vec::new(), token: Some(blob_hash(TOKEN.as_bytes())) };
    manifest.operators.insert("bot".to_owned(), bot);
    let gone = Operator { role: Role::Administer, keys: vec![key(7).public()], token: None };
    manifest.operators.insert("gone".to_owned(), gone);
    manifest.revoked.insert(key(7).public());
    manifest
}

fn secured() -> Fake {
    let fake = fake();
    let me = HostName::new("n1").expect("a name");
    fake.api.set_access(Access::of(&me, true, Some(&manifest()), None));
    fake
}

type Client = tokio_rustls::client::TlsStream<TcpStream>;

/// A connection over TLS to a server that hands its connections over, as the daemon's port does.
async fn connected(api: &Api, mine: Option<&SecretKey>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let host = Identity::new(&key(1)).expect("made");
    let settings = tls::server(&host, Arc::new(|_: &PublicKey| true), true, &[HTTP]).expect("settings");
    let api = api.clone();
    tokio::spawn(async move {
        let (stream, peer) = listener.accept().await.expect("a connection");
        let stream = TlsAcceptor::from(settings).accept(stream).await.expect("a handshake");
        let key = tls::peer_key(stream.get_ref().1.peer_certificates());
        serve_connection(HttpStream::Tls { stream: Box::new(stream), peer, key }, api).await;
    });
    let mine = mine.map(|key| Identity::new(key).expect("made"));
    let settings = tls::client(mine.as_ref(), &[key(1).public()], HTTP).expect("settings");
    let stream = TcpStream::connect(address).await.expect("connects");
    TlsConnector::from(settings).connect(tls::name(), stream).await.expect("a handshake")
}

/// Sends a request over a connection of its own.
async fn over_tls(api: &Api, mine: Option<&SecretKey>, request: &str) -> (u16, String) {
    exchange(connected(api, mine).await, request).await
}

/// Sends a request through the Unix socket as the user with this number.
async fn as_user(api: &Api, uid: u32, request: &str) -> u16 {
    let (method_path, body) = request.split_once("\r\n").expect("a head");
    let mut words = method_path.split(' ');
    let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
    let body = body.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let request = axum::http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .extension(Caller::Unix { uid })
        .extension(super::serve::LongLived::default())
        .body(axum::body::Body::from(body.to_owned()))
        .expect("a request");
    router(api.clone()).oneshot(request).await.expect("an answer").status().as_u16()
}

fn request(route: &str, body: &str, host: &str, more: &str) -> String {
    match route.split_once(' ').expect("a method and a path") {
        ("POST", path) => posted(path, host, "application/json", body).replacen("\r\n", &format!("\r\n{more}"), 1),
        (method, path) => format!("{method} {path} HTTP/1.1\r\n{more}host: {host}\r\n\r\n"),
    }
}

/// Whether a route gives the loop an order that is recorded in the history: a check round is not recorded.
fn is_order(route: &str) -> bool {
    route.starts_with("POST") && !route.ends_with("/v1/check")
}

/// Whether a status shows that the caller was admitted; the rest of the answer is the loop's.
fn let_in(code: u16) -> bool {
    !matches!(code, 401 | 403 | 429)
}

/// Returns the status alone: the answer to `/v1/events` does not end.
async fn code_over_tls(api: &Api, mine: Option<&SecretKey>, route: &str, body: &str, more: &str) -> u16 {
    // No slot for watchers is left: an admitted caller gets an immediate answer.
    let _places = api.watchers.clone().acquire_many_owned(64).await.expect("all places");
    over_tls(api, mine, &request(route, body, "127.0.0.1", more)).await.0
}

#[tokio::test]
async fn a_caller_gets_exactly_the_paths_that_its_role_allows() {
    let mut fake = secured();
    let good = format!("authorization: Bearer {TOKEN}\r\n");
    let bad = "authorization: Bearer open-sesami\r\n";
    let stranger = key(9);
    let callers: [Asker<'_>; 10] = [
        ("no key", None, "", None, 401),
        ("this host's key", Some(key(1)), "", None, 403),
        ("another host's key", Some(key(2)), "", None, 403),
        ("a stranger's key", Some(stranger), "", None, 403),
        ("a revoked key", Some(key(7)), "", None, 403),
        ("look", Some(key(3)), "", Some(Role::Look), 403),
        ("operate", Some(key(4)), "", Some(Role::Operate), 403),
        ("administer", Some(key(5)), "", Some(Role::Administer), 403),
        ("the right token", None, &good, Some(Role::Operate), 403),
        ("a host's key and a wrong token", Some(key(2)), bad, None, 401),
    ];
    for (name, mine, more, role, refused) in &callers {
        for (route, body, needed) in ROUTES {
            let api = &fake.api;
            api.tries.wrong_is_forgotten();
            let code = code_over_tls(api, mine.as_ref(), route, body, more).await;
            let expected = role.is_some_and(|role| role >= needed);
            assert_eq!(let_in(code), expected, "{name}: {route}: {code}");
            assert!(expected || code == *refused, "{name}: {route}: {code}, not {refused}");
            let ordered = fake.orders.try_recv().is_ok();
            assert_eq!(ordered, expected && is_order(route), "{name}: {route}: ordered {ordered}");
        }
    }
}

/// A path that only looks like an order's needs the highest role, and a path that looks like a question's does nothing.
#[tokio::test]
async fn a_path_without_a_route_needs_the_highest_role() {
    let mut fake = secured();
    for (route, operator, administrator) in [
        ("POST /v1/%70ause", 403, 404),
        ("POST /v1/pause/", 403, 404),
        ("POST /v1//pause", 403, 404),
        ("POST /v1/pause/now", 403, 404),
        ("POST /v1/status", 403, 405),
        ("POST /v2/pause", 403, 404),
        ("PUT /v1/pause", 403, 405),
        ("DELETE /v1/status", 403, 405),
        ("OPTIONS /v1/status", 403, 405),
        ("GET /v1/pause", 405, 405),
        ("GET /v1/run", 405, 405),
        ("GET /v1/run/00000000012f", 403, 404),
        ("HEAD /v1/run/00000000012f", 403, 404),
        ("GET /v1/run/00000000012f/x", 404, 404),
        ("GET /v1/%72un/00000000012f", 404, 404),
    ] {
        for (mine, expected) in [(key(4), operator), (key(5), administrator)] {
            assert_eq!(code_over_tls(&fake.api, Some(&mine), route, "{}", "").await, expected, "{route}");
        }
    }
    assert!(fake.orders.try_recv().is_err(), "nothing was ordered");
}

#[tokio::test]
async fn the_unix_socket_is_for_root_and_the_daemons_user() {
    let mut fake = secured();
    let me = rustix::process::geteuid().as_raw();
    for access in [Access::default(), Access::LoopbackOnly, (*fake.api.access()).clone()] {
        fake.api.set_access(access.clone());
        for (route, body, _) in ROUTES {
            let request = request(route, body, "localhost", "");
            for uid in [0, me] {
                let code = as_user(&fake.api, uid, &request).await;
                assert!(let_in(code), "{uid}: {route}: {code} under {access:?}");
                assert_eq!(fake.orders.try_recv().is_ok(), is_order(route), "{uid}: {route}");
            }
            assert_eq!(as_user(&fake.api, me + 4711, &request).await, 403, "{route} under {access:?}");
            assert!(fake.orders.try_recv().is_err(), "nothing is ordered");
        }
    }
}

#[tokio::test]
async fn a_connection_without_tls_is_refused_when_identities_are_required() {
    let mut fake = secured();
    for access in [(*fake.api.access()).clone(), Access::Nobody] {
        fake.api.set_access(access);
        for (route, body, _) in ROUTES {
            for more in ["", &format!("authorization: Bearer {TOKEN}\r\n")] {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
                let address = listener.local_addr().expect("an address");
                let api = fake.api.clone();
                tokio::spawn(async move {
                    let (stream, _) = listener.accept().await.expect("a connection");
                    serve_connection(HttpStream::Plain(stream), api).await;
                });
                let stream = TcpStream::connect(address).await.expect("connects");
                let (code, answer) = exchange(stream, &request(route, body, "127.0.0.1", more)).await;
                assert_eq!(code, 403, "{route}: {answer}");
            }
        }
    }
    for mine in [None, Some(key(5))] {
        let code = code_over_tls(&fake.api, mine.as_ref(), "GET /v1/status", "", "").await;
        assert_eq!(code, 403, "no generation names operators");
    }
    assert!(fake.orders.try_recv().is_err(), "nothing was ordered");
}

#[tokio::test]
async fn silent_connections_do_not_block_others() {
    let mut fake = secured();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let api = fake.api.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_connection(HttpStream::Plain(stream), api.clone()));
        }
    });
    let mut crowd = Vec::new();
    for _ in 0..300 {
        crowd.push(TcpStream::connect(address).await.expect("connects"));
    }
    // The last connection is served: it takes the slot of a silent connection.
    let last = crowd.pop().expect("300");
    assert_eq!(exchange(last, &request("GET /v1/status", "", "127.0.0.1", "")).await.0, 403);
    let order = |more: &str| request("POST /v1/pause", "{}", "127.0.0.1", more);
    for (mine, more) in [(Some(key(4)), String::new()), (None, format!("authorization: Bearer {TOKEN}\r\n"))] {
        let (code, answer) = over_tls(&fake.api, mine.as_ref(), &order(&more)).await;
        assert_eq!(code, 200, "{answer}");
        fake.orders.try_recv().expect("ordered");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let server = UnixServer::bind(&socket).await.expect("bound");
    tokio::spawn(server.run(fake.api.clone()));
    let stream = UnixStream::connect(&socket).await.expect("connects");
    assert_ne!(exchange(stream, &request("GET /v1/version", "", "localhost", "")).await.0, 503);
}

#[tokio::test]
async fn an_order_bears_the_proved_name_of_its_operator() {
    let mut fake = secured();
    let order = |more: &str| request("POST /v1/pause", "{\"who\":\"root\"}", "127.0.0.1", more);
    let mut by = async |mine: Option<SecretKey>, more: &str| {
        let (code, answer) = over_tls(&fake.api, mine.as_ref(), &order(more)).await;
        assert_eq!(code, 200, "{answer}");
        fake.orders.try_recv().expect("ordered").1
    };
    assert_eq!(by(Some(key(4)), "").await, "olga (operate), for \"root\"");
    assert_eq!(by(None, &format!("authorization: Bearer {TOKEN}\r\n")).await, "bot (operate), for \"root\"");
    let (_, answer) = over_tls(&fake.api, Some(&key(3)), &request("GET /v1/whoami", "", "localhost", "")).await;
    assert_eq!(answer, "{\"name\":\"lou\",\"role\":\"look\",\"proof\":\"key\"}");
    let (_, answer) = over_tls(&fake.api, Some(&key(3)), &order("")).await;
    assert!(answer.contains("lou may look; this needs the role operate"), "{answer}");
    let (_, answer) = over_tls(&fake.api, Some(&key(2)), &order("")).await;
    assert!(answer.contains("host n2: hosts neither ask nor order"), "{answer}");
}

#[tokio::test]
async fn a_foreign_web_page_is_refused_even_with_a_key_of_an_operator() {
    let fake = secured();
    let get = |headers: &str| format!("GET /v1/status HTTP/1.1\r\n{headers}\r\n\r\n");
    for (headers, code) in [
        ("host: 127.0.0.1:7077", 200),
        ("host: 127.0.0.1\r\norigin: https://127.0.0.1", 200),
        ("host: localhost", 200),
        ("host: evil.example", 403),
        ("host: 10.0.0.1", 403),
        ("host: 127.0.0.1\r\norigin: http://127.0.0.1", 403),
        ("host: 127.0.0.1\r\norigin: https://evil.example", 403),
        ("x: y", 400),
    ] {
        assert_eq!(over_tls(&fake.api, Some(&key(5)), &get(headers)).await.0, code, "{headers}");
    }
    let order = posted("/v1/pause", "127.0.0.1", "text/plain", "{}");
    assert_eq!(over_tls(&fake.api, Some(&key(5)), &order).await.0, 415);
}

#[tokio::test]
async fn token_guesses_are_limited_and_counted_and_keys_are_not() {
    let fake = secured();
    let ask = |token: &str| request("GET /v1/version", "", "127.0.0.1", &format!("authorization: Bearer {token}\r\n"));
    for n in 0..10 {
        assert_eq!(over_tls(&fake.api, None, &ask(&format!("guess{n}"))).await.0, 401);
    }
    assert_eq!(over_tls(&fake.api, None, &ask(TOKEN)).await.0, 429);
    assert_eq!(over_tls(&fake.api, Some(&key(3)), &ask("guess")).await.0, 200, "the key is enough");
    assert_eq!(fake.api.denied(), 11);
}

/// An operator's open connection over which `asked` was sent and `comes` was received.
async fn opened(api: &Api, mine: Option<&SecretKey>, asked: &str, comes: &str) -> Client {
    let mut stream = connected(api, mine).await;
    stream.write_all(asked.as_bytes()).await.expect("written");
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(comes) {
        assert!(stream.read_buf(&mut read).await.expect("read") > 0, "{}", String::from_utf8_lossy(&read));
    }
    stream
}

/// Watches, and has received the first event.
async fn watching(api: &Api, mine: Option<&SecretKey>, more: &str) -> Client {
    opened(api, mine, &request("GET /v1/events", "", "127.0.0.1", more), "\"change\"").await
}

/// Whether a connection ends within a time in which no other cause would end it.
async fn is_cut(stream: &mut Client, within: Duration) -> bool {
    let mut rest = Vec::new();
    let ended = async {
        // An end without a TLS close message counts, too.
        while matches!(stream.read_buf(&mut rest).await, Ok(n) if n > 0) {}
    };
    tokio::time::timeout(within, ended).await.is_ok()
}

#[tokio::test]
async fn an_open_connection_is_cut_when_its_caller_loses_access() {
    let fake = secured();
    let me = HostName::new("n1").expect("a name");
    let (soon, late) = (Duration::from_secs(60), Duration::from_millis(300));
    let good = format!("authorization: Bearer {TOKEN}\r\n");
    let mut lou = watching(&fake.api, Some(&key(3)), "").await;
    let mut olga = watching(&fake.api, Some(&key(4)), "").await;
    let mut ada = watching(&fake.api, Some(&key(5)), "").await;
    let mut bot = watching(&fake.api, None, &good).await;
    // The coming generation revokes olga's key; without a lost role, no other connection is cut.
    let mut coming = manifest();
    coming.revoked.insert(key(4).public());
    fake.api.set_access(Access::of(&me, true, Some(&manifest()), Some(&coming)));
    assert!(is_cut(&mut olga, soon).await, "the key is revoked");
    assert!(!is_cut(&mut lou, late).await && !is_cut(&mut ada, late).await && !is_cut(&mut bot, late).await);
    // The next generation lacks lou, has another token for the bot, and lets ada only look: enough for watching.
    let mut next = coming.clone();
    next.operators.remove("lou");
    next.operators.get_mut("bot").expect("there").token = Some(blob_hash(b"another"));
    next.operators.get_mut("ada").expect("there").role = Role::Look;
    fake.api.set_access(Access::of(&me, true, Some(&next), None));
    assert!(is_cut(&mut lou, soon).await && is_cut(&mut bot, soon).await);
    assert!(!is_cut(&mut ada, late).await, "she may still look");
    fake.changes.send_modify(|n| *n += 1);
    let mut event = Vec::new();
    assert!(ada.read_buf(&mut event).await.expect("read") > 0, "and hears of what happens");
    fake.api.set_access(Access::Nobody);
    assert!(is_cut(&mut ada, soon).await);
}

#[tokio::test]
async fn an_order_is_refused_when_its_author_loses_the_role_meanwhile() {
    let mut fake = secured();
    let me = HostName::new("n1").expect("a name");
    let head = "POST /v1/pause HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
                content-length: 2\r\nexpect: 100-continue\r\n\r\n";
    // The server asks for the body after it has admitted the head (RFC 9110, 10.1.1).
    let mut stream = opened(&fake.api, Some(&key(4)), head, "100 Continue").await;
    let mut next = manifest();
    next.operators.get_mut("olga").expect("there").role = Role::Look;
    fake.api.set_access(Access::of(&me, true, Some(&next), None));
    let _ = stream.write_all(b"{}").await;
    assert!(is_cut(&mut stream, Duration::from_secs(60)).await);
    assert!(fake.orders.try_recv().is_err(), "nothing was ordered");
}

#[tokio::test]
async fn a_generation_that_removes_a_role_removes_it_at_once() {
    let fake = secured();
    let ask = request("GET /v1/version", "", "127.0.0.1", "");
    assert_eq!(over_tls(&fake.api, Some(&key(3)), &ask).await.0, 200);
    let mut next = manifest();
    next.operators.remove("lou");
    let me = HostName::new("n1").expect("a name");
    fake.api.set_access(Access::of(&me, true, Some(&next), None));
    assert_eq!(over_tls(&fake.api, Some(&key(3)), &ask).await.0, 403);
}
