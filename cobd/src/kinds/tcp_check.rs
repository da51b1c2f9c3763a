//! The kind back end `tcp-check`: on while a port accepts connections.
//!
//! `content: {address: "HOST:PORT"}`, with the optional `timeout` of one attempt (2s) and `interval` between two
//! attempts (500ms). The transition to the preferred state tries to connect until it succeeds, within its timeout. The
//! transition off only closes the gate: the listening process continues, and the check reports off until the next
//! transition on.

use std::time::Duration;

use cob_types::{CobId, Kind};
use serde::Deserialize;
use tokio::net::TcpStream;

use super::backend::{Backend, CheckOutcome, Context, Hop, Outcome, Tools, Work};
use super::content;
use super::gate::{self, Remembered};

/// The back end `tcp-check`.
#[derive(Debug, Default)]
pub(super) struct TcpCheck {
    remembered: Remembered,
}

/// The content of a `tcp-check`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    address: String,
    #[serde(default = "attempt", deserialize_with = "content::duration")]
    timeout: Duration,
    #[serde(default = "interval", deserialize_with = "content::duration")]
    interval: Duration,
}

pub(super) fn attempt() -> Duration {
    Duration::from_secs(2)
}

pub(super) fn interval() -> Duration {
    Duration::from_millis(500)
}

fn read(text: &str) -> Result<Content, String> {
    let content: Content = content::read(text)?;
    let port = content.address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    match port {
        Some((host, port)) if !host.is_empty() && !host.contains('/') && port != 0 => Ok(content),
        Some(_) | None => Err(format!("content: address {:?} is not HOST:PORT", content.address)),
    }
}

async fn connect(content: &Content) -> Result<(), String> {
    match tokio::time::timeout(content.timeout, TcpStream::connect(&content.address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{}: {error}", content.address)),
        Err(_) => Err(format!("{}: no answer within {:?}", content.address, content.timeout)),
    }
}

impl Backend for TcpCheck {
    fn name(&self) -> &'static str {
        "tcp-check"
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
        let content = read(&context.cob.content);
        gate::check(&self.remembered, context, async move { connect(&content?).await })
    }

    fn transition(&self, _tools: &Tools, context: &Context, hop: &Hop) -> Work<Outcome> {
        let content = read(&context.cob.content);
        let interval = content.as_ref().map_or(Duration::ZERO, |c| c.interval);
        gate::transition(&self.remembered, context, hop, interval, move || {
            let content = content.clone();
            async move { connect(&content?).await }
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
#[path = "tcp_check_test.rs"]
mod tests;
