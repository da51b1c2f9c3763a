//! The kind back end `tcp-check`: on while a port accepts connections.
//!
//! `content: {address: "HOST:PORT"}`, with the optional `timeout` of one attempt (2s) and `interval` between two
//! attempts (500ms). The transition to the preferred state tries to connect until it succeeds, within its timeout. The
//! transition off only closes the gate: the listening process continues, and the check reports off until the next
//! transition on.

use std::time::Duration;

use cob_kinds::{Content as _, TcpCheck, read};
use cob_types::{CobId, Kind};
use tokio::net::TcpStream;

use super::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work};
use super::gate::{self, Remembered};

/// The back end `tcp-check`.
#[derive(Debug, Default)]
pub(super) struct TcpCheckKind {
    remembered: Remembered,
}

async fn connect(content: &TcpCheck) -> Result<(), String> {
    match tokio::time::timeout(content.timeout.0, TcpStream::connect(&content.address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{}: {error}", content.address)),
        Err(_) => Err(format!("{}: no answer within {:?}", content.address, content.timeout.0)),
    }
}

impl Backend for TcpCheckKind {
    fn name(&self) -> &'static str {
        TcpCheck::KIND.name
    }

    fn durable(&self) -> bool {
        false
    }

    fn accept(&self, _kind: &Kind) -> Result<(), String> {
        Ok(())
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        read::<TcpCheck>(content).map(|_| ())
    }

    fn check(&self, _tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let content = read::<TcpCheck>(&context.cob.content);
        gate::check(&self.remembered, context, async move { connect(&content?).await })
    }

    fn transition(&self, _tools: &Tools, context: &Context, hop: &TransitionAttempt) -> Work<Outcome> {
        let content = read::<TcpCheck>(&context.cob.content);
        let interval = content.as_ref().map_or(Duration::ZERO, |c| c.interval.0);
        gate::transition(&self.remembered, context, hop, interval, move || {
            let content = content.clone();
            async move { connect(&content?).await }
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
#[path = "tcp_check_test.rs"]
mod tests;
