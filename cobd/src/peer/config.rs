//! What the links are started with, and why they may not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cob_trust::pending::PendingLimits;
use cob_types::link::MAX_FRAME;
use cob_types::{HostName, Incarnation};

use super::roster::Protection;

/// What the links of one daemon are started with.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// This host.
    pub me: HostName,
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// A folder of the daemon's own for Unix sockets, inside its state folder. It is made if need be,
    /// closed to others, and sockets left in it are removed.
    pub socket_dir: PathBuf,
    /// How connections are protected until the first roster says so.
    pub protection: Protection,
    /// This life of the daemon.
    pub session: Incarnation,
    /// Sizes and times.
    pub limits: Limits,
}

/// Sizes and times. The defaults are right for daemons; tests shorten the times.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The most messages that a peer may leave unacknowledged.
    pub window_messages: usize,
    /// The most bytes of them.
    pub window_bytes: usize,
    /// The most messages that wait for room in the window.
    pub outbox_messages: usize,
    /// The most bytes of them.
    pub outbox_bytes: usize,
    /// The longest frame taken from the network. `zeromq` reserves a frame's whole announced length,
    /// so this many bytes are what each host can make us hold.
    pub max_frame: usize,
    /// How long a connection may take until both sides have said hello.
    pub setup_time: Duration,
    /// How long a connection may be silent after it was made.
    pub first_word: Duration,
    /// How many connections may be in setup before they have proved who they are, and how fast.
    pub pending: PendingLimits,
    /// Time between two signs of life while something is held or asked.
    pub heartbeat_busy: Duration,
    /// The same while nothing is.
    pub heartbeat_idle: Duration,
    /// The shortest pause before a host is dialled again.
    pub redial_min: Duration,
    /// The longest.
    pub redial_max: Duration,
    /// The pause after a connection could not be accepted (for want of file descriptors, as a rule).
    pub accept_pause: Duration,
    /// How long a link that ends on purpose may take to say so.
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

/// Why links can't be had.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// An address outside this machine.
    #[error(
        "{what} {address} is not a loopback address: without identities (keys) whoever reached the port could speak \
         for any host; use an address in 127.0.0.0/8 or [::1], or a model with `security: identities`"
    )]
    NotLoopback {
        /// Whose address.
        what: String,
        /// The address.
        address: SocketAddr,
    },
    /// The port can't be had.
    #[error("can't listen on {address}: {source}{}", listen_remedy(source))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The folder for sockets can't be used.
    #[error("can't use {} for sockets: {source}; it must be a folder that this user owns", .path.display())]
    SocketDir {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What to do where a port can't be had.
fn listen_remedy(error: &io::Error) -> &'static str {
    let kind = error.kind();
    if kind == io::ErrorKind::AddrNotAvailable {
        "; this machine has no such address: it was given another one, or it is a copy of another machine. Correct \
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
