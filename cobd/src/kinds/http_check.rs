//! The kind back end `http-check`: on while a page gives the expected answer.
//!
//! `content: {url: "http://HOST[:PORT]/PATH", status: 200, contains: TEXT}`. `status` and `contains` are optional, as
//! are `timeout` (2s) and `interval` (500ms), as in `tcp-check`. Otherwise it works like `tcp-check`.

use std::time::Duration;

use bytes::Bytes;
use cob_types::{CobId, Kind};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;

use super::backend::{Backend, CheckOutcome, Context, Hop, Outcome, Tools, Work};
use super::gate::{self, Remembered};
use super::{content, tcp_check};

/// The longest page in which a text is searched.
const MAX_BODY: usize = 1 << 20;

/// The back end `http-check`.
#[derive(Debug, Default)]
pub(super) struct HttpCheck {
    remembered: Remembered,
}

/// The content of an `http-check`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    url: String,
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    contains: Option<String>,
    #[serde(default = "tcp_check::attempt", deserialize_with = "content::duration")]
    timeout: Duration,
    #[serde(default = "tcp_check::interval", deserialize_with = "content::duration")]
    interval: Duration,
}

fn ok() -> u16 {
    200
}

/// A valid content with the parts of its URL.
#[derive(Debug, Clone)]
struct Page {
    content: Content,
    /// The host to connect to, without brackets.
    host: String,
    port: u16,
    /// The value of the `Host` header.
    authority: String,
    path: String,
}

fn read(text: &str) -> Result<Page, String> {
    let content: Content = content::read(text)?;
    let fault = |what: &str| Err(format!("content: url {:?}: {what}", content.url));
    let Ok(uri) = content.url.parse::<Uri>() else { return fault("not a URL") };
    if uri.scheme_str() != Some("http") {
        return fault("only http:// can be asked for");
    }
    let Some(authority) = uri.authority().filter(|a| !a.host().is_empty()) else { return fault("it names no host") };
    if authority.as_str().contains('@') {
        return fault("user and password are not sent");
    }
    let rest = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    if !rest.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
        return fault("its port is no number from 1 to 65535");
    }
    if !(100..=599).contains(&content.status) {
        return Err(format!("content: status {} is not between 100 and 599", content.status));
    }
    Ok(Page {
        host: authority.host().trim_matches(['[', ']']).to_owned(),
        port: authority.port_u16().unwrap_or(80),
        authority: authority.as_str().to_owned(),
        path: uri.path_and_query().map_or("/", |p| p.as_str()).to_owned(),
        content,
    })
}

async fn look(page: &Page) -> Result<(), String> {
    match tokio::time::timeout(page.content.timeout, ask(page)).await {
        Ok(result) => result.map_err(|what| format!("{}: {what}", page.content.url)),
        Err(_) => Err(format!("{}: no answer within {:?}", page.content.url, page.content.timeout)),
    }
}

async fn ask(page: &Page) -> Result<(), String> {
    let stream = TcpStream::connect((page.host.as_str(), page.port)).await.map_err(|e| e.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let request = Request::get(&page.path)
        .header(header::HOST, &page.authority)
        .header(header::USER_AGENT, "cobd")
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = response.status().as_u16();
        if status != page.content.status {
            return Err(format!("status {status}, not {}", page.content.status));
        }
        let Some(text) = &page.content.contains else { return Ok(()) };
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await.map_err(|e| e.to_string())?.to_bytes();
        let found = text.is_empty() || body.windows(text.len()).any(|w| w == text.as_bytes());
        if found { Ok(()) } else { Err(format!("status {status}, but the page does not contain {text:?}")) }
    };
    // The connection makes progress only while it is polled; it is dropped with the answer.
    let answer = std::pin::pin!(answer);
    match futures_util::future::select(answer, std::pin::pin!(connection)).await {
        futures_util::future::Either::Left((answer, _)) => answer,
        // The connection may end after it has delivered the answer.
        futures_util::future::Either::Right((_, answer)) => answer.await,
    }
}

impl Backend for HttpCheck {
    fn name(&self) -> &'static str {
        "http-check"
    }

    fn durable(&self) -> bool {
        false
    }

    fn accept(&self, _kind: &Kind) -> Result<(), String> {
        Ok(())
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        read(content).map(|_| ())
    }

    fn check(&self, _tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let page = read(&context.cob.content);
        gate::check(&self.remembered, context, async move { look(&page?).await })
    }

    fn transition(&self, _tools: &Tools, context: &Context, hop: &Hop) -> Work<Outcome> {
        let page = read(&context.cob.content);
        let interval = page.as_ref().map_or(Duration::ZERO, |p| p.content.interval);
        gate::transition(&self.remembered, context, hop, interval, move || {
            let page = page.clone();
            async move { look(&page?).await }
        })
    }

    fn only_waits(&self, kind: &Kind, hop: &Hop) -> bool {
        gate::opens(kind, hop)
    }

    fn said(&self, cob: &CobId) -> Option<String> {
        self.remembered.complaint(cob)
    }

    fn forget(&self, cob: &CobId) {
        self.remembered.forget(cob);
    }
}

#[cfg(test)]
#[path = "http_check_test.rs"]
mod tests;
