//! The kind back end `http-check`: on while a page gives the expected answer.
//!
//! `content: {url: "http://HOST[:PORT]/PATH", status: 200, contains: TEXT}`. `status` and `contains` are optional, as
//! are `timeout` (2s) and `interval` (500ms), as in `tcp-check`. Otherwise it works like `tcp-check`.

use std::time::Duration;

use bytes::Bytes;
use cob_kinds::{Content as _, HttpAddress, HttpCheck, read};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::gate::{Condition, ConditionGate};

/// The longest page in which a text is searched.
const MAX_BODY: usize = 1 << 20;

/// The back end `http-check`.
pub(super) type HttpCheckKind = ConditionGate<Page>;

/// A valid content with the parts of its URL.
#[derive(Debug)]
pub(super) struct Page {
    content: HttpCheck,
    address: HttpAddress,
}

impl Condition for Page {
    const KIND: &'static str = HttpCheck::KIND.name;

    fn read(content: &str) -> Result<Self, String> {
        let content: HttpCheck = read(content)?;
        Ok(Self { address: content.page()?, content })
    }

    fn interval(&self) -> Duration {
        self.content.interval.0
    }

    async fn look(&self) -> Result<(), String> {
        match tokio::time::timeout(self.content.timeout.0, ask(self)).await {
            Ok(result) => result.map_err(|what| format!("{}: {what}", self.content.url)),
            Err(_) => Err(format!("{}: no answer within {:?}", self.content.url, self.content.timeout.0)),
        }
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

#[cfg(test)]
#[path = "http_check_test.rs"]
mod tests;
