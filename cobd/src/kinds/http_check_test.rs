//! `http-check` against pages with right, wrong, slow and endless answers.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::kinds::Outcome;
use crate::kinds::testing::{Bench, plain_kind, reason};

/// Answers each request with the text for its path. Without a text it never answers.
async fn serve(listener: TcpListener, pages: &'static [(&'static str, Option<String>)]) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        tokio::spawn(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut buffer = [0; 512];
                let n = stream.read(&mut buffer).await.expect("read");
                request.extend(&buffer[..n]);
            }
            let text = String::from_utf8(request).expect("text");
            assert!(text.to_ascii_lowercase().contains("host: 127.0.0.1:"), "{text}");
            let page = pages.iter().find(|(path, _)| text.starts_with(&format!("GET {path} HTTP/1.1\r\n")));
            match page {
                Some((_, Some(answer))) => {
                    // The reader may stop before the end.
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
                Some((_, None)) => std::future::pending().await,
                None => {
                    stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await.expect("written")
                }
            }
        });
    }
}

fn answer(body: &str) -> Option<String> {
    Some(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

#[tokio::test]
async fn an_http_check_is_up_when_the_page_answers_as_expected() {
    let mut bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("address");
    let pages: Vec<(&str, Option<String>)> = vec![
        ("/ok?x=1", answer("all is well")),
        ("/", answer("root")),
        ("/huge", answer(&"x".repeat(3 << 20))),
        ("/silent", None),
        ("/noise", Some("no http at all\r\n\r\n".to_owned())),
        ("/chunks", Some("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwell\r\n0\r\n\r\n".to_owned())),
        ("/close", Some("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwell".to_owned())),
    ];
    let server = tokio::spawn(serve(listener, Box::leak(pages.into_boxed_slice())));
    for (path, rest, state, difference) in [
        ("/ok?x=1", r#","contains":"is well""#, "up", ""),
        ("/ok?x=1", r#","contains":"is bad""#, "down", "does not contain"),
        ("", "", "up", ""),
        ("/missing", "", "down", "status 404, not 200"),
        ("/missing", r#","status":404"#, "up", ""),
        ("/huge", "", "up", ""),
        ("/huge", r#","contains":"y""#, "down", "limit"),
        ("/silent", r#","timeout":"50ms""#, "down", "no answer within 50ms"),
        ("/noise", "", "down", "invalid HTTP"),
        ("/chunks", r#","contains":"well""#, "up", ""),
        ("/close", r#","contains":"well""#, "up", ""),
    ] {
        let content = format!(r#"{{"url":"http://{address}{path}"{rest}}}"#);
        let context = bench.context(&plain_kind("http-check"), &content);
        let outcome = bench.check(&context).await;
        assert_eq!(outcome.state.expect("known"), *state, "{content}: {}", outcome.difference);
        assert!(outcome.difference.contains(difference), "{content}: {}", outcome.difference);
    }
    let context = bench.context(&plain_kind("http-check"), &format!(r#"{{"url":"http://{address}/"}}"#));
    assert_eq!(bench.transition(&context, "down", "up").await, Outcome::done());
    server.abort();
    assert!(server.await.expect_err("aborted").is_cancelled());
    assert_eq!(bench.state(&context).await, "down");
    let mut kind = plain_kind("http-check");
    kind.transitions.iter_mut().for_each(|t| t.timeout_ms = 30);
    let context = bench.context(&kind, &format!(r#"{{"url":"http://{address}/"}}"#));
    assert!(reason(bench.transition(&context, "down", "up").await).contains("refused"));
}
