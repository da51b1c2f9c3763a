//! `cobgen serve`: generations for hosts that share no folder with the depot.
//!
//! ```text
//!   TCP --> [door] TLS 1.3 --+-- key of a known host ----> [answer] --> [shelf] --> depot (read only)
//!                            +-- `cob-enrol/1` in ALPN --> [enrol]  --> tokens.json, enrolled.json
//!                            +-- all others: refused in the handshake
//! ```
//!
//! A host gets the manifests, their signatures and its own bundles, and no data of others. The server is not trusted
//! about the content of a generation: hosts verify the publishers' signatures. It decides only which hosts may read,
//! and enrols hosts that show a token from a person.
//!
//! Rules: every connection, queue, length and wait has a bound; the server writes only `tokens.json`, `enrolled.json`
//! and its own key; actions of a stranger are logged at most once a minute.

mod answer;
mod door;
mod enrol;
mod notes;
mod shelf;
mod trust;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cob_depot::tokens::Policy;
use cob_depot::{Depot, DepotError};
use cob_trust::key::KeyFileError;
use cob_trust::tls::{Identity, TlsError};
use cob_trust::{Publishers, SecretKey};

pub use trust::{TRUST, TrustError, read as read_trust};

use shelf::Shelf;

/// The interval of checks for new generations in the depot.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The options of a server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The depot's folder; created if it does not exist.
    pub depot: PathBuf,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The file of its key; `None`: in the depot's folder.
    pub key: Option<PathBuf>,
    /// The publishers that new hosts shall trust, and how many must sign; `None`: `trust.toml` in the depot's folder,
    /// read at each enrolment.
    pub trust: Option<Publishers>,
    /// The policy for a host that shows a valid token.
    pub policy: Policy,
}

/// The reason why a server can't start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The depot.
    #[error(transparent)]
    Depot(#[from] DepotError),
    /// The server's key.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The file of publishers.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address.
    #[error("can't listen on {address}: {source}{}", listen_remedy(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Advice if the port can't be bound.
fn listen_remedy(error: &std::io::Error) -> &'static str {
    let kind = error.kind();
    if kind == std::io::ErrorKind::AddrNotAvailable {
        "; this machine does not have this address: name a local address with --listen"
    } else if kind == std::io::ErrorKind::AddrInUse {
        "; another program listens there: `ss -ltnp` shows it"
    } else if kind == std::io::ErrorKind::PermissionDenied {
        "; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE: use a higher port"
    } else {
        ""
    }
}

/// A listening server.
pub struct Server {
    door: door::Door,
    shelf: Arc<Shelf>,
    key: cob_types::PublicKey,
}

impl Server {
    /// Opens the depot and the port.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn bind(options: &ServeOptions) -> Result<Self, ServeError> {
        drop(Depot::create_or_open(&options.depot)?);
        let key = SecretKey::of_server(&options.depot, options.key.as_deref())?;
        if options.trust.is_none() && trust::read(&options.depot)?.is_none() {
            tracing::warn!(
                "no publisher is named (`--trust KEY`, or `{TRUST}` in the depot's folder): no host can be enrolled"
            );
        }
        let shelf = Arc::new(Shelf::open(&options.depot)?);
        let desk = enrol::Desk::new(shelf.clone(), key.public(), options.trust.clone(), options.policy);
        let identity = Identity::new(&key)?;
        let door = door::Door::bind(options.listen, identity, shelf.clone(), desk).await?;
        Ok(Self { door, shelf, key: key.public() })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// Its public key, which hosts have as `depot_key`.
    #[must_use]
    pub fn key(&self) -> cob_types::PublicKey {
        self.key
    }

    /// Serves until the returned future is dropped.
    pub async fn run(self) {
        let shelf = self.shelf.clone();
        let look = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                shelf.look().await;
            }
        };
        tokio::select! {
            () = self.door.run() => {}
            () = look => {}
        }
    }
}
