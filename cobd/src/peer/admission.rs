//! Handles an incoming connection from its first byte to its supervisor: identifies the other side, or refuses it.

use std::net::SocketAddr;
use std::time::Duration;

use cob_trust::tls::{self, TlsError};
use cob_types::link::LinkHello;
use cob_types::{HostName, PublicKey};
use tokio::net::TcpStream;
use tokio::task::JoinError;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::config::{LinkError, only_loopback};
use super::event::{HttpStream, LinkEvent};
use super::gate::{Gate, TurnedAway};
use super::link_supervisor::{Accepted, Shared};
use super::listener::Directory;
use super::quiet::Topic;
use super::refusals::{self, Reason};
use super::relay::RelayEnd;
use super::session::{Fault, check_hello, read_hello};
use super::wire::{Wire, WireEnd};

/// The first byte of TLS (RFC 8446, section 5.1).
pub(super) const TLS: u8 = 0x16;
/// The first byte of ZMTP.
const ZMTP: u8 = 0xFF;

/// The reason why a connection was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unwelcome {
    #[error(transparent)]
    NotLoopback(#[from] LinkError),
    #[error("its first byte is {0:#04x}: neither a link nor HTTP")]
    FirstByte(u8),
    #[error("its first byte is {0:#04x}, which is not TLS: a model with identities allows only TLS")]
    Clear(u8),
    #[error("no data within {} s", .0.as_secs_f32())]
    Slow(Duration),
    #[error("it had not proved its identity, and other connections were waiting")]
    Crowded,
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    #[error("the TLS handshake failed: {0}")]
    Handshake(std::io::Error),
    #[error(
        "its key {0} is in no known generation; if a host has this key, make a generation with the key and switch to it"
    )]
    UnknownKey(PublicKey),
    #[error("it is host {0}, which is not in the generation that is active here")]
    Former(HostName),
    #[error("this host has no generation yet, and knows no hosts")]
    Young,
    #[error("its key {0} was revoked")]
    RevokedKey(PublicKey),
    #[error("it wants to be a link and shows no key of a host")]
    NoHostKey,
    #[error(
        "this host does not have the key that its generation names, so it can't prove its identity: see `cobd init`"
    )]
    NoIdentity,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Wire(#[from] WireEnd),
    #[error("it broke the rules of the link: {0}")]
    Fault(#[from] Fault),
    #[error("it says that it is host {0}, which is not in the roster")]
    Stranger(HostName),
    #[error("the peer claims to be host {said}, but it shows the key of host {of}")]
    ForeignName { said: HostName, of: String },
    #[error("it says that it is host {0}, which has the higher name and must wait to be dialled")]
    WrongWay(HostName),
    #[error("host {0} makes more connections than can be answered")]
    TooMany(HostName),
    #[error("a defect of the program: {0}")]
    Panic(#[from] JoinError),
}

/// The result of a pending connection.
pub(super) enum Admitted {
    /// A host that requests a link.
    Host(Box<Proved>),
    /// Finished; with the known key that the other side has proved, if any.
    Settled(Option<PublicKey>),
}

/// A connection whose other side holds the key of a host.
pub(super) struct Proved {
    pub(super) host: HostName,
    pub(super) remote: SocketAddr,
    pub(super) key: PublicKey,
    stream: TlsStream<TcpStream>,
}

impl Unwelcome {
    /// The counter for this reason; `None`: no side is at fault.
    fn reason(&self) -> Option<Reason> {
        Some(match self {
            Unwelcome::NotLoopback(_) | Unwelcome::UnknownKey(_) | Unwelcome::NoHostKey | Unwelcome::Stranger(_) => {
                Reason::Stranger
            }
            Unwelcome::RevokedKey(_) => Reason::Revoked,
            Unwelcome::FirstByte(_) | Unwelcome::Clear(_) => Reason::NotTls,
            Unwelcome::Slow(_) | Unwelcome::Crowded => Reason::Slow,
            Unwelcome::ForeignName { .. } | Unwelcome::Fault(Fault::AnotherHost(_)) => Reason::ForeignName,
            Unwelcome::Fault(Fault::EarlierLife { .. }) => Reason::Replayed,
            Unwelcome::Fault(_) | Unwelcome::WrongWay(_) | Unwelcome::TooMany(_) => Reason::Broken,
            Unwelcome::Handshake(error) => return refusals::of_handshake(error),
            Unwelcome::Wire(WireEnd::Relay(RelayEnd::Refused(_))) => Reason::Broken,
            Unwelcome::Wire(WireEnd::Relay(RelayEnd::Failed(error))) => return refusals::of_handshake(error),
            Unwelcome::Former(_)
            | Unwelcome::Young
            | Unwelcome::Wire(_)
            | Unwelcome::Io(_)
            | Unwelcome::NoIdentity
            | Unwelcome::Tls(_)
            | Unwelcome::Panic(_) => {
                return None;
            }
        })
    }
}

/// Counts and logs the reason why a connection was closed.
pub(super) fn log(shared: &Shared, remote: Option<SocketAddr>, host: Option<&HostName>, why: &Unwelcome) {
    if let Unwelcome::Former(_) | Unwelcome::Young = why {
        // No fault: one of the two hosts has a newer generation than the other.
        tracing::debug!(?remote, "connection cut: {why}");
        return;
    }
    let reason = why.reason();
    if let Some(reason) = reason {
        shared.refusals.add(reason);
    }
    shared.quiet.say(reason.map_or(Topic::Setup, Topic::Refused), host, |more| match remote {
        Some(remote) => {
            tracing::warn!(%remote, host = host.map(HostName::as_str), "connection cut: {why}{more}");
        }
        None => tracing::warn!(host = host.map(HostName::as_str), "connection cut: {why}{more}"),
    });
}

/// Without identities, connections may come from this machine alone.
pub(super) fn may_come_from(remote: SocketAddr, shared: &Shared) -> Result<(), Unwelcome> {
    if !shared.gate().has_identities() {
        only_loopback("a connection from", remote)?;
    }
    Ok(())
}

/// Handles a stranger until it is identified. `host` is set as soon as the caller is known.
pub(super) async fn admit(
    stream: TcpStream,
    remote: SocketAddr,
    first: u8,
    shared: &Shared,
    directory: &Directory,
    host: &mut Option<HostName>,
) -> Result<Admitted, Unwelcome> {
    stream.set_nodelay(true)?;
    let gate = shared.gate();
    match first {
        TLS if gate.has_identities() => shake_hands(stream, remote, &gate, shared).await,
        other if gate.has_identities() => Err(Unwelcome::Clear(other)),
        ZMTP => {
            let limits = &shared.limits;
            let mut wire = Wire::open(stream, &shared.sockets, limits.max_frame, limits.setup_time).await?;
            let hello = read_hello(&wire.next().await?)?;
            host.replace(hello.from.clone());
            hand_over(wire, hello, None, shared, directory)?;
            Ok(Admitted::Settled(None))
        }
        b'A'..=b'Z' => {
            // If the daemon is gone, the request needs no answer.
            let _ = shared.events.send(LinkEvent::Http(HttpStream::Plain(stream))).await;
            Ok(Admitted::Settled(None))
        }
        other => Err(Unwelcome::FirstByte(other)),
    }
}

/// The TLS handshake. It proves the key of the other side, and selects the protocol.
async fn shake_hands(
    stream: TcpStream,
    remote: SocketAddr,
    gate: &Gate,
    shared: &Shared,
) -> Result<Admitted, Unwelcome> {
    let turned_away = TurnedAway::default();
    let config = gate.server(&turned_away).ok_or(Unwelcome::NoIdentity)??;
    let stream = match TlsAcceptor::from(config).accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            return Err(match turned_away.get() {
                Some(key) if gate.is_revoked(&key) => Unwelcome::RevokedKey(key),
                Some(key) => unknown(gate, key),
                None => Unwelcome::Handshake(error),
            });
        }
    };
    let session = stream.get_ref().1;
    let key = tls::peer_key(session.peer_certificates());
    let is_link = session.alpn_protocol() == Some(tls::LINK);
    // The roster may have changed during the handshake.
    let gate = shared.gate();
    let speaker = match key {
        Some(key) => Some(gate.speaker(&key).ok_or(Unwelcome::RevokedKey(key))?),
        None => None,
    };
    if !is_link {
        let http = HttpStream::Tls { stream: Box::new(stream), peer: remote, key };
        // As above, an error only means that the daemon is gone.
        let _ = shared.events.send(LinkEvent::Http(http)).await;
        return Ok(Admitted::Settled(key));
    }
    match (key, speaker.and_then(|s| s.hosts.first())) {
        (Some(key), Some(host)) => Ok(Admitted::Host(Box::new(Proved { host: host.clone(), remote, stream, key }))),
        _ => Err(Unwelcome::NoHostKey),
    }
}

/// The refusal of a key that belongs to no linked host.
fn unknown(gate: &Gate, key: PublicKey) -> Unwelcome {
    match gate.former(&key) {
        Some(host) => Unwelcome::Former(host.clone()),
        None if gate.is_young() => Unwelcome::Young,
        None => Unwelcome::UnknownKey(key),
    }
}

/// Reads the hello of a host that has proved its key, and hands the connection to its supervisor.
pub(super) async fn meet(proved: Proved, shared: &Shared, directory: &Directory) -> Result<(), Unwelcome> {
    let Proved { stream, key, .. } = proved;
    let limits = &shared.limits;
    let mut wire = Wire::open(stream, &shared.sockets, limits.max_frame, limits.setup_time).await?;
    let hello = read_hello(&wire.next().await?)?;
    let gate = shared.gate();
    let speaker = gate.speaker(&key).ok_or(Unwelcome::RevokedKey(key))?;
    if !speaker.hosts.contains(&hello.from) {
        let of: Vec<_> = speaker.hosts.iter().map(HostName::as_str).collect();
        return Err(Unwelcome::ForeignName { said: hello.from, of: of.join(", ") });
    }
    hand_over(wire, hello, Some(key), shared, directory)
}

fn hand_over(
    wire: Wire,
    hello: LinkHello,
    key: Option<PublicKey>,
    shared: &Shared,
    directory: &Directory,
) -> Result<(), Unwelcome> {
    let from = hello.from.clone();
    check_hello(&hello, &shared.me, &from)?;
    let Some(keeper) = directory.find(&from) else {
        let gate = shared.gate();
        return Err(match (gate.is_former(&from), gate.is_young()) {
            (true, _) => Unwelcome::Former(from),
            (false, true) => Unwelcome::Young,
            (false, false) => Unwelcome::Stranger(from),
        });
    };
    if from >= shared.me {
        return Err(Unwelcome::WrongWay(from));
    }
    keeper.try_send(Accepted { wire, hello, key }).map_err(|_| Unwelcome::TooMany(from))
}
