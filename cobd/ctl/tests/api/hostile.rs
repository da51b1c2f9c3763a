//! Servers that are no daemons: garbage, silence, endless answers or lies cost only an error line.

use crate::fake::{Daemon, cobctl, cobctl_while, entry, settled, until};
use cobctl::screen::Written;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A server that does this with each connection; returns its address.
async fn server<F, Fut>(deed: F) -> (String, JoinSet<()>)
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = format!("tcp://{}", listener.local_addr().expect("an address"));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(deed(stream));
        }
    });
    (address, tasks)
}

/// Reads the head of a request, so that the answer does not come before the query.
async fn heard(mut stream: TcpStream) -> TcpStream {
    let mut part = [0; 4096];
    let _ = stream.read(&mut part).await;
    stream
}

/// A server that sends these bytes as its answer.
async fn saying(answer: &'static [u8]) -> (String, JoinSet<()>) {
    server(move |stream| async move {
        let mut stream = heard(stream).await;
        let _ = stream.write_all(answer).await;
    })
    .await
}

/// The status of a good daemon and of this server: the good answer counts, the other is reported as an error.
async fn beside_a_good_one(address: &str, error: &str) {
    let good = Daemon::tcp("n1", 7, vec![settled("n1/db")]).await;
    let ran = cobctl(&["--timeout", "2s", "--host", &good.address, "--host", address, "status"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("1 of 1") && ran.out.contains(error), "{error}: {ran:?}");
}

#[tokio::test]
async fn garbage_is_not_accepted_as_an_answer() {
    let (address, _tasks) = saying(b"\xff\x00\x01garbage\r\n\r\n").await;
    beside_a_good_one(&address, "closed the connection or is not a daemon").await;
    let (address, _tasks) = saying(b"").await;
    beside_a_good_one(&address, "closed the connection or is not a daemon").await;
    let (address, _tasks) = saying(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"name\"").await;
    beside_a_good_one(&address, "closed the connection or is not a daemon").await;
}

#[tokio::test]
async fn an_answer_of_another_program_is_invalid() {
    let (address, _tasks) = saying(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>").await;
    beside_a_good_one(&address, "is not valid").await;
    let (address, _tasks) = saying(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\noops").await;
    beside_a_good_one(&address, "is not valid: the answer 502").await;
    let (address, _tasks) =
        saying(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n").await;
    beside_a_good_one(&address, "is not valid: the answer 302").await;
}

#[tokio::test]
async fn a_silent_daemon_is_abandoned_after_the_timeout() {
    let (address, _tasks) = server(|stream| async move {
        let _stream = heard(stream).await;
        std::future::pending().await
    })
    .await;
    let ran = cobctl(&["--timeout", "100ms", "--host", &address, "status"]).await;
    assert!(ran.code == 3 && ran.out.contains("within 100 ms"), "{ran:?}");
}

#[tokio::test]
async fn an_answer_without_end_is_cut() {
    let (address, _tasks) = server(|stream| async move {
        let mut stream = heard(stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        let part = vec![b' '; 1 << 20];
        while stream.write_all(&part).await.is_ok() {}
    })
    .await;
    let ran = cobctl(&["--timeout", "20s", "--host", &address, "status"]).await;
    assert!(ran.code == 3 && ran.out.contains("is longer than 33554432 bytes"), "{ran:?}");
}

#[tokio::test]
async fn a_long_valid_answer_is_read() {
    let cobs = (0..20_000).map(|n| settled(&format!("n1/service{n}/server"))).collect();
    let good = Daemon::tcp("n1", 7, cobs).await;
    let ran = cobctl(&["--timeout", "20s", "--host", &good.address, "status"]).await;
    assert!(ran.code == 0 && ran.out.contains("20000 settled change objects not shown"), "{}", ran.code);
}

#[tokio::test]
async fn deep_and_wide_json_is_refused() {
    let (address, _tasks) = server(|stream| async move {
        let mut stream = heard(stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        let _ = stream.write_all(&vec![b'['; 200_000]).await;
    })
    .await;
    let ran = cobctl(&["--host", &address, "status"]).await;
    assert!(ran.code == 3 && ran.out.contains("is not valid"), "{ran:?}");
}

#[tokio::test]
async fn text_of_a_host_is_escaped_for_the_terminal() {
    let (address, _tasks) =
        saying(b"HTTP/1.1 409 Conflict\r\n\r\n{\"error\":\"\\u001b[2Jno\",\"hint\":\"\\u001b]0;x\\u0007\"}").await;
    let ran = cobctl(&["--host", &format!("n1={address}"), "retry", "n1/db"]).await;
    assert!(ran.code == 1 && !ran.err.contains('\u{1b}') && ran.err.contains("\\u{1b}[2Jno"), "{ran:?}");
}

#[tokio::test]
async fn a_history_that_never_ends_is_abandoned() {
    // The same page again and again, for every query.
    let page: String = (1..=1000).map(|n| serde_json::to_string(&entry("n1", n, n)).expect("json") + "\n").collect();
    let (address, _tasks) = server(move |stream| {
        let page = page.clone();
        async move {
            let mut stream = heard(stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            let _ = stream.write_all(page.as_bytes()).await;
        }
    })
    .await;
    let ran = cobctl(&["--host", &address, "history"]).await;
    assert!(ran.code == 3 && ran.err.contains("entry 1 was sent, but 1000 or later was requested"), "{ran:?}");
}

/// A server that answers event queries with these bytes and `and_on`, and other queries like a good daemon.
async fn telling(events: &'static [u8], and_on: &'static [u8]) -> (String, JoinSet<()>) {
    let mut status = String::new();
    let good = Daemon::tcp("n1", 7, vec![settled("n1/db")]).await;
    good.change(|of| status = serde_json::to_string(of).expect("JSON"));
    server(move |mut stream| {
        let status = status.clone();
        async move {
            let mut part = [0; 4096];
            let n = stream.read(&mut part).await.unwrap_or(0);
            if !part[..n].starts_with(b"GET /v1/events") {
                let length = status.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{status}");
                let _ = stream.write_all(answer.as_bytes()).await;
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
            let _ = stream.write_all(events).await;
            let more = and_on.repeat(1 << 16);
            while !more.is_empty() && stream.write_all(&more).await.is_ok() {}
            std::future::pending().await
        }
    })
    .await
}

#[tokio::test]
async fn a_daemon_whose_events_lack_the_status_is_asked_for_it() {
    // As daemons of the previous version report: in pieces, with comments between.
    let (address, _tasks) = telling(b": here\n\nevent: change\ndata: {\"change\":1}\n\n", b"").await;
    let ran = cobctl(&["--host", &address, "watch", "--until-converged"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[tokio::test]
async fn invalid_or_endless_events_are_reported_in_a_line() {
    for (events, and_on, why) in [
        (&b"data: {\"status\":{\"name\":7}}\n\n"[..], &b""[..], "is not valid"),
        (b"data: \xff\n\n", b"", "is not valid"),
        (b"data: {\"status\":{\"name\":\"", b"xxxxxxxxxxxxxxxx", "is longer than 33554432 bytes"),
    ] {
        let (address, _tasks) = telling(events, and_on).await;
        let seen = async |written: Written| until(|| written.out().contains(why)).await;
        cobctl_while(&["--timeout", "20s", "--host", &address, "watch"], seen).await;
    }
}
