//! The kind back end `tcp-check`: on while a port accepts connections.
//!
//! `content: {address: "HOST:PORT"}`, with the optional `timeout` of one attempt (2s) and `interval` between two
//! attempts (500ms). The transition to the preferred state tries to connect until it succeeds, within its timeout. The
//! transition off only closes the gate: the listening process continues, and the check reports off until the next
//! transition on.

use std::time::Duration;

use cob_kinds::{Content, TcpCheck, read};
use tokio::net::TcpStream;

use super::gate::{Condition, ConditionGate};

/// The back end `tcp-check`.
pub(super) type TcpCheckKind = ConditionGate<TcpCheck>;

impl Condition for TcpCheck {
    const KIND: &'static str = <Self as Content>::KIND.name;

    fn read(content: &str) -> Result<Self, String> {
        read(content)
    }

    fn interval(&self) -> Duration {
        self.interval.0
    }

    async fn look(&self) -> Result<(), String> {
        match tokio::time::timeout(self.timeout.0, TcpStream::connect(&self.address)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("{}: {error}", self.address)),
            Err(_) => Err(format!("{}: no answer within {:?}", self.address, self.timeout.0)),
        }
    }
}

#[cfg(test)]
#[path = "tcp_check_test.rs"]
mod tests;
