//! The events that the links report to the daemon.

use std::net::SocketAddr;

use bytes::Bytes;
use cob_types::{HostName, Incarnation, PublicKey};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// An event on the links.
#[derive(Debug)]
pub enum LinkEvent {
    /// A link is up. If the host has another incarnation than before, all earlier messages to it are void, and the
    /// daemon must send its state again.
    Up {
        /// The host at the other end.
        host: HostName,
        /// The link's number: unique in this incarnation, growing.
        link: u64,
        /// The host's incarnation.
        incarnation: Incarnation,
    },
    /// A link is down. Sent batches are kept, and the next link continues.
    Down {
        /// The host at the other end.
        host: HostName,
        /// The link's number.
        link: u64,
        /// The reason, for people.
        why: String,
    },
    /// A batch arrived: each batch arrives once, and in the order in which it was sent.
    Received {
        /// The sender.
        host: HostName,
        /// The batch, not yet decoded.
        bytes: Bytes,
    },
    /// A batch for this host had to be dropped: send all open requests, grants and announcements again.
    Resync {
        /// The host.
        host: HostName,
    },
    /// A connection that speaks HTTP; no byte of it has been read.
    Http(HttpStream),
}

/// A connection to the API over TCP.
#[derive(Debug)]
pub enum HttpStream {
    /// In clear: from this machine, in a model without identities.
    Plain(TcpStream),
    /// Over TLS.
    Tls {
        /// The connection after its handshake.
        stream: Box<TlsStream<TcpStream>>,
        /// The address of the other side.
        peer: SocketAddr,
        /// The key that the other side has proved, if it showed a key.
        key: Option<PublicKey>,
    },
}

/// Counters of the links in this incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Batches sent, repetitions included.
    pub sent: u64,
    /// Bytes of the sent batches.
    pub sent_bytes: u64,
    /// Batches received, without duplicates.
    pub received: u64,
    /// Bytes of the received batches.
    pub received_bytes: u64,
    /// Batches sent again after a link was cut.
    pub resent: u64,
    /// Duplicate batches that were dropped.
    pub doubles: u64,
    /// Batches dropped because the queue was full, or because the host started a new incarnation.
    pub dropped: u64,
}

impl Counters {
    /// Adds the counters of another link.
    pub(super) fn add(&mut self, other: Counters) {
        let Counters { sent, sent_bytes, received, received_bytes, resent, doubles, dropped } = other;
        self.sent += sent;
        self.sent_bytes += sent_bytes;
        self.received += received;
        self.received_bytes += received_bytes;
        self.resent += resent;
        self.doubles += doubles;
        self.dropped += dropped;
    }
}
