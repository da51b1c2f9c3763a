//! Dials a peer: connects, verifies identities, shakes hands and exchanges hellos.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cob_trust::tls::{self, TlsError};
use cob_types::PublicKey;
use cob_types::link::{Frame, LinkHello};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::config::{LinkError, only_loopback};
use super::link::LinkEnd;
use super::link_supervisor::Shared;
use super::peer_state::Peer;
use super::refusals::{self, Reason};
use super::relay::RelayEnd;
use super::session::{Fault, check_hello, read_hello};
use super::wire::{Wire, WireEnd};

/// The reason why there is no link.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    #[error(transparent)]
    NotLoopback(#[from] LinkError),
    #[error("can't reach it at {address}: {source}")]
    Dial { address: SocketAddr, source: std::io::Error },
    #[error("no daemon listens at {0}, the address of this host")]
    Nobody(SocketAddr),
    #[error("no handshake within {} s", .0.as_secs_f32())]
    Slow(Duration),
    #[error(transparent)]
    Wire(#[from] WireEnd),
    #[error("the other side broke the rules of the link: {0}")]
    Fault(#[from] Fault),
    #[error(
        "the process at {address} does not hold the key of this host: does the model name the key that its daemon \
         has (`cobctl trust doctor`)?"
    )]
    WrongKey { address: SocketAddr },
    #[error(
        "the peer does not accept the key {ours} of this host: does the peer have the generation that names this key?"
    )]
    Refused { ours: PublicKey },
    #[error("the TLS handshake failed: {0}")]
    Handshake(std::io::Error),
    #[error("no generation at hand has a key for it")]
    NoPins,
    #[error(
        "this host does not have the key that its generation names, so it can't prove its identity: see `cobd init`"
    )]
    NoIdentity,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("a connection came too late: {0}")]
    Outdated(LinkEnd),
    #[error("a hello could not be made: {0}")]
    Encode(#[from] cob_types::codec::CodecError),
    #[error("a defect of the program: {0}")]
    Panic(#[from] tokio::task::JoinError),
}

/// A connection that a peer has answered.
pub(super) struct Dialled {
    pub(super) wire: Wire,
    pub(super) hello: LinkHello,
    /// The key that the peer has proved; `None`: in clear.
    pub(super) key: Option<PublicKey>,
}

impl SetupError {
    /// The counter for this error, if the other side is at fault.
    pub(super) fn reason(&self) -> Option<Reason> {
        match self {
            SetupError::WrongKey { .. } => Some(Reason::WrongKey),
            SetupError::Handshake(error) => refusals::of_handshake(error),
            SetupError::Outdated(_) => Some(Reason::Revoked),
            SetupError::Fault(Fault::AnotherHost(_)) => Some(Reason::ForeignName),
            SetupError::Fault(Fault::EarlierLife { .. }) => Some(Reason::Replayed),
            SetupError::Fault(_) | SetupError::Wire(WireEnd::Relay(RelayEnd::Refused(_))) => Some(Reason::Broken),
            SetupError::Wire(_)
            | SetupError::NotLoopback(_)
            | SetupError::Dial { .. }
            | SetupError::Nobody(_)
            | SetupError::Slow(_)
            | SetupError::Refused { .. }
            | SetupError::NoPins
            | SetupError::NoIdentity
            | SetupError::Tls(_)
            | SetupError::Encode(_)
            | SetupError::Panic(_) => None,
        }
    }
}

/// Connects to a peer, which must hold one of these keys, and reads its hello.
pub(super) async fn dial(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    address: SocketAddr,
    keys: Option<Arc<BTreeSet<PublicKey>>>,
) -> Result<Dialled, SetupError> {
    if keys.is_none() {
        only_loopback(&format!("host {} at", peer.host), address)?;
    }
    let limit = shared.limits.setup_time;
    let setup = async {
        let stream = TcpStream::connect(address).await.map_err(|source| SetupError::Dial { address, source })?;
        if has_met_itself(&stream) {
            return Err(SetupError::Nobody(address));
        }
        stream.set_nodelay(true).map_err(|source| SetupError::Dial { address, source })?;
        let (wire, key) = match keys {
            None => (Wire::open(stream, &shared.sockets, shared.limits.max_frame, limit).await?, None),
            Some(keys) => secure(stream, address, &keys, &shared).await?,
        };
        say_hello(wire, key, &shared, &peer).await
    };
    let dialled = timeout(limit, setup).await.unwrap_or(Err(SetupError::Slow(limit)));
    dialled.map_err(|error| plainer(error, &shared))
}

async fn say_hello(
    mut wire: Wire,
    key: Option<PublicKey>,
    shared: &Shared,
    peer: &Peer,
) -> Result<Dialled, SetupError> {
    let hello = peer.lock().session.hello(&shared.me, &peer.host);
    wire.send(Frame::Hello(hello).encode()?).await?;
    let hello = read_hello(&wire.next().await?)?;
    check_hello(&hello, &shared.me, &peer.host)?;
    Ok(Dialled { wire, hello, key })
}

/// The TLS handshake with the holder of one of these keys.
async fn secure(
    stream: TcpStream,
    address: SocketAddr,
    keys: &BTreeSet<PublicKey>,
    shared: &Shared,
) -> Result<(Wire, Option<PublicKey>), SetupError> {
    if keys.is_empty() {
        return Err(SetupError::NoPins);
    }
    let config = shared.gate().client(keys).ok_or(SetupError::NoIdentity)??;
    let stream = match TlsConnector::from(config).connect(tls::name(), stream).await {
        Ok(stream) => stream,
        Err(error) if is_wrong_key(&error) => return Err(SetupError::WrongKey { address }),
        Err(error) => return Err(SetupError::Handshake(error)),
    };
    let key = tls::peer_key(stream.get_ref().1.peer_certificates());
    let limits = &shared.limits;
    Ok((Wire::open(stream, &shared.sockets, limits.max_frame, limits.setup_time).await?, key))
}

fn is_wrong_key(error: &io::Error) -> bool {
    matches!(refusals::tls_error(error), Some(rustls::Error::InvalidCertificate(_)))
}

/// In TLS 1.3 a dialler learns only after its handshake that the other side rejects its key.
fn plainer(error: SetupError, shared: &Shared) -> SetupError {
    let (SetupError::Handshake(io) | SetupError::Wire(WireEnd::Relay(RelayEnd::Failed(io)))) = &error else {
        return error;
    };
    match (refusals::tls_error(io), shared.gate().own_key()) {
        (Some(rustls::Error::AlertReceived(alert)), Some(ours)) if refuses_a_key(*alert) => {
            SetupError::Refused { ours }
        }
        _ => error,
    }
}

fn refuses_a_key(alert: rustls::AlertDescription) -> bool {
    use rustls::AlertDescription as Alert;
    [Alert::AccessDenied, Alert::BadCertificate, Alert::CertificateUnknown, Alert::CertificateRevoked].contains(&alert)
}

/// A connection to a local port without a listener may get that same port as its source, and so connect to itself.
fn has_met_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(remote)) if local == remote)
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn a_connection_to_itself_is_detected() {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("address")).expect("binds");
        let own = socket.local_addr().expect("bound");
        assert!(has_met_itself(&socket.connect(own).await.expect("meets itself")));

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let other = listener.local_addr().expect("bound");
        assert!(!has_met_itself(&TcpStream::connect(other).await.expect("connects")));
    }
}
