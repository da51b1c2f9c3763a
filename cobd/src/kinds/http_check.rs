//! The kind back end `http-check`: on while a page gives the expected answer.
//!
//! `content: {url: "http://HOST[:PORT]/PATH", status: 200, contains: TEXT}`. `status` and `contains` are optional, as
//! are `timeout` (2s) and `interval` (500ms), as in `tcp-check`. Otherwise it works like `tcp-check`.

use std::time::Duration;

use bytes::Bytes;
use cob_kinds::{Content as _, HttpAddress, HttpCheck};
use cob_types::{CobId, Kind};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work};
use super::gate::{self, Remembered};

/// The longest page in which a text is searched.
const MAX_BODY: usize = 1 << 20;

/// The back end `http-check`.
#[derive(Debug, Default)]
pub(super) struct HttpCheckKind {
    remembered: Remembered,
}

/// A valid content with the parts of its URL.
#[derive(Debug, Clone)]
struct Page {
    content: HttpCheck,
    address: HttpAddress,
}

fn read(text: &str) -> Result<Page, String> {
    let content: HttpCheck = cob_kinds::read(text)?;
    Ok(Page { address: content.page()?, content })
}

async fn look(page: &Page) -> Result<(), String> {
    match tokio::time::timeout(page.content.timeout.0, ask(page)).await {
        Ok(result) => result.map_err(|what| format!("{}: {what}", page.content.url)),
        Err(_) => Err(format!("{}: no answer within {:?}", page.content.url, page.content.timeout.0)),
    }
}

async fn ask(page: &Page) -> Result<(), String> {
    let stream =
        TcpStream::connect((page.address.host.as_str(), page.address.port)).await.map_err(|e| e.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let request = Request::get(&page.address.path)
        .header(header::HOST, &page.address.authority)
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

impl Backend for HttpCheckKind {
    fn name(&self) -> &'static str {
        HttpCheck::KIND.name
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

    fn transition(&self, _tools: &Tools, context: &Context, hop: &TransitionAttempt) -> Work<Outcome> {
        let page = read(&context.cob.content);
        let interval = page.as_ref().map_or(Duration::ZERO, |p| p.content.interval.0);
        gate::transition(&self.remembered, context, hop, interval, move || {
            let page = page.clone();
            async move { look(&page?).await }
        })
    }

    fn only_waits(&self, kind: &Kind, hop: &TransitionAttempt) -> bool {
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
