//! Configuration of the links, and reasons why they can't start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cob_trust::pending::PendingLimits;
use cob_types::link::MAX_FRAME;
use cob_types::{HostName, Incarnation};

use super::roster::Protection;

/// The configuration of a daemon's links.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// This host.
    pub me: HostName,
    /// The listening address; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Listen also at an address that this machine does not have yet.
    pub awaits_address: bool,
    /// The daemon's own folder for Unix sockets, inside its state folder. It is created if necessary and closed to
    /// other users; old sockets in it are removed.
    pub socket_dir: PathBuf,
    /// The protection of connections until the first roster sets it.
    pub protection: Protection,
    /// The daemon's incarnation.
    pub session: Incarnation,
    /// Sizes and times.
    pub limits: Limits,
}

/// Sizes and times. The defaults suit daemons; tests shorten the times.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The most messages that a peer may leave unacknowledged.
    pub window_messages: usize,
    /// The most bytes of unacknowledged messages.
    pub window_bytes: usize,
    /// The most messages that wait for space in the window.
    pub outbox_messages: usize,
    /// The most bytes of waiting messages.
    pub outbox_bytes: usize,
    /// The longest frame accepted from the network. `zeromq` reserves a frame's whole announced length, so each host
    /// can make this daemon reserve this many bytes.
    pub max_frame: usize,
    /// The time limit for a connection until both sides have sent their hello.
    pub setup_time: Duration,
    /// How long a new connection may stay silent.
    pub first_word: Duration,
    /// Limits on the number and rate of connections that have not proved an identity yet.
    pub pending: PendingLimits,
    /// Time between two heartbeats while grants or requests connect the two hosts.
    pub heartbeat_busy: Duration,
    /// Time between two heartbeats otherwise.
    pub heartbeat_idle: Duration,
    /// The shortest pause before a host is dialled again.
    pub redial_min: Duration,
    /// The longest pause.
    pub redial_max: Duration,
    /// The pause after a connection could not be accepted (usually for lack of file descriptors).
    pub accept_pause: Duration,
    /// The time limit for the goodbye of a link that ends on purpose.
    pub bye_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window_messages: 256,
            window_bytes: 4 << 20,
            outbox_messages: 1024,
            outbox_bytes: 8 << 20,
            max_frame: MAX_FRAME,
            setup_time: Duration::from_secs(3),
            first_word: Duration::from_secs(1),
            pending: PendingLimits::default(),
            heartbeat_busy: Duration::from_secs(2),
            heartbeat_idle: Duration::from_secs(15),
            redial_min: Duration::from_millis(10),
            redial_max: Duration::from_secs(1),
            accept_pause: Duration::from_millis(100),
            bye_time: Duration::from_millis(500),
        }
    }
}

/// The reason why links can't start.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// An address outside this machine.
    #[error(
        "{what} {address} is not a loopback address: without identities (keys) every process that reaches the port \
         could speak for any host; use an address in 127.0.0.0/8 or [::1], or a model with `security: identities`"
    )]
    NotLoopback {
        /// The owner of the address.
        what: String,
        /// The address.
        address: SocketAddr,
    },
    /// Listening on the port failed.
    #[error("can't listen on {address}: {source}{}", listen_remedy(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The folder for sockets can't be used.
    #[error("can't use {} for sockets: {source}; it must be a folder that this user owns", .path.display())]
    SocketDir {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl LinkError {
    /// Whether this machine does not have the address.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrNotAvailable)
    }
}

/// The remedy if a port can't be opened.
fn listen_remedy(error: &io::Error) -> &'static str {
    let kind = error.kind();
    if kind == io::ErrorKind::AddrNotAvailable {
        "; this machine does not have the address: the address has changed, or the disk was copied. Correct \
             `address` of the host in the model, generate and switch, or set `listen` in cobd.toml to an address of this \
             machine"
    } else if kind == io::ErrorKind::AddrInUse {
        "; another program listens there, perhaps another cobd: `ss -ltnp` names it. Stop it, or set `listen` in cobd.toml"
    } else if kind == io::ErrorKind::PermissionDenied {
        "; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE: use a higher port"
    } else {
        "; set `listen` in cobd.toml to an address of this machine"
    }
}

/// Refuses an address outside this machine.
pub(super) fn only_loopback(what: &str, address: SocketAddr) -> Result<(), LinkError> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(LinkError::NotLoopback { what: what.to_owned(), address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_allowed() {
        for address in ["127.0.0.1:1", "127.9.8.7:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(only_loopback("host n2 at", address.parse().expect(address)).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1", "[fe80::1]:1"] {
            let error = only_loopback("host n2 at", address.parse().expect(address)).expect_err(address).to_string();
            assert!(error.starts_with("host n2 at ") && error.contains("without identities"), "{error}");
        }
    }
}
