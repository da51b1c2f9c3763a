//! What the links tell the daemon.

use std::net::SocketAddr;

use bytes::Bytes;
use cob_types::{HostName, Incarnation, PublicKey};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Something happened on the links.
#[derive(Debug)]
pub enum LinkEvent {
    /// A link is up. When the incarnation is another than the last one seen of this host, nothing that
    /// was said before counts, and all has to be said again.
    Up {
        /// The host at its other end.
        host: HostName,
        /// The link's number: unique in this life, growing.
        link: u64,
        /// The life that the host is in.
        incarnation: Incarnation,
    },
    /// A link that was up is gone. What was sent is kept, and goes on with the next link.
    Down {
        /// The host at its other end.
        host: HostName,
        /// The link's number.
        link: u64,
        /// Why, for people.
        why: String,
    },
    /// A batch arrived: once, and in the order in which it was sent.
    Received {
        /// From whom.
        host: HostName,
        /// The batch, not yet decoded.
        bytes: Bytes,
    },
    /// Something for this host had to be dropped: say again all that is unsettled there.
    Resync {
        /// The host.
        host: HostName,
    },
    /// A connection that speaks HTTP; nothing of it has been read.
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
        /// From where.
        peer: SocketAddr,
        /// The key that the other side has proved to hold, if it showed one.
        key: Option<PublicKey>,
    },
}

/// What has gone over the links in this life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Batches sent, repetitions included.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Batches received, doubles left out.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Batches sent again after a link was cut.
    pub resent: u64,
    /// Batches that came twice and were dropped.
    pub doubles: u64,
    /// Batches given up: the queue was full, or the host began another life.
    pub dropped: u64,
}

impl Counters {
    /// Adds those of another link.
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
