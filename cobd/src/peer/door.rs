//! The listening port: links of other hosts and HTTP, told apart by their first byte.
//!
//! `0xFF` begins a ZMTP greeting and so a link: the handshake is made and the hello read here, then
//! the connection goes to the keeper of its host. An upper-case letter begins an HTTP request: the
//! connection is handed to the daemon with nothing read. Anything else is cut.
//!
//! A connection in setup is a stranger's: their number and their time are limited, and nothing that
//! one of them does is noticed by a link that is up.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::HostName;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use super::config::{LinkError, only_loopback};
use super::event::{HttpStream, LinkEvent};
use super::keeper::{Accepted, Shared};
use super::quiet::Topic;
use super::session::{Fault, check_hello, read_hello};
use super::wire::{Wire, WireEnd};

/// Where the keepers of the hosts in the roster take connections.
#[derive(Debug, Default)]
pub(super) struct Directory {
    keepers: Mutex<BTreeMap<HostName, mpsc::Sender<Accepted>>>,
}

impl Directory {
    /// Replaces the whole roster.
    pub(super) fn set(&self, keepers: BTreeMap<HostName, mpsc::Sender<Accepted>>) {
        *self.keepers.lock().unwrap_or_else(PoisonError::into_inner) = keepers;
    }

    fn find(&self, host: &HostName) -> Option<mpsc::Sender<Accepted>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }
}

/// Why a connection was sent away.
#[derive(Debug, thiserror::Error)]
enum Unwelcome {
    #[error(transparent)]
    NotLoopback(#[from] LinkError),
    #[error("its first byte is {0:#04x}: neither a link nor HTTP")]
    FirstByte(u8),
    #[error("not a word within {} s", .0.as_secs_f32())]
    Slow(Duration),
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Wire(#[from] WireEnd),
    #[error("it broke the rules of the link: {0}")]
    Fault(#[from] Fault),
    #[error("it says that it is host {0}, which is not in the roster")]
    Stranger(HostName),
    #[error("it says that it is host {0}, which has the higher name and must wait to be dialled")]
    WrongWay(HostName),
    #[error("host {0} makes more connections than can be answered")]
    TooMany(HostName),
    #[error("a defect of the program: {0}")]
    Panic(#[from] JoinError),
}

/// Accepts connections for as long as the daemon lives.
pub(super) async fn keep_open(listener: TcpListener, shared: Arc<Shared>, directory: Arc<Directory>) {
    let mut setups = JoinSet::new();
    let most = shared.limits.setups.max(1);
    loop {
        tokio::select! {
            accepted = listener.accept(), if setups.len() < most => match accepted {
                Ok((stream, remote)) => {
                    setups.spawn(admit(stream, remote, shared.clone(), directory.clone()));
                }
                Err(error) => {
                    shared.quiet.say(Topic::Accept, None, |more| {
                        tracing::error!("can't accept connections: {error}; if open files are short, raise their limit (ulimit -n){more}");
                    });
                    sleep(shared.limits.accept_pause).await;
                }
            },
            Some(done) = setups.join_next() => if let Err(panic) = done {
                log(&shared, None, None, &panic.into());
            },
        }
    }
}

/// Sees a connection through its setup, within the time for it.
async fn admit(stream: TcpStream, remote: SocketAddr, shared: Arc<Shared>, directory: Arc<Directory>) {
    let limit = shared.limits.setup_time;
    let mut host = None;
    let setup = timeout(limit, set_up(stream, remote, &shared, &directory, &mut host)).await;
    match setup.unwrap_or(Err(Unwelcome::Slow(limit))) {
        // Scanners and health checks connect and leave again without a word.
        Ok(()) => {}
        Err(why) => log(&shared, Some(remote), host.as_ref(), &why),
    }
}

fn log(shared: &Shared, remote: Option<SocketAddr>, host: Option<&HostName>, why: &Unwelcome) {
    shared.quiet.say(Topic::Setup, host, |more| {
        tracing::warn!(?remote, host = host.map(HostName::as_str), "connection cut: {why}{more}");
    });
}

/// `host` is set as soon as it is known who calls.
async fn set_up(
    stream: TcpStream,
    remote: SocketAddr,
    shared: &Shared,
    directory: &Directory,
    host: &mut Option<HostName>,
) -> Result<(), Unwelcome> {
    only_loopback("a connection from", remote)?;
    stream.set_nodelay(true)?;
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(());
    }
    match first[0] {
        0xFF => {}
        b'A'..=b'Z' => {
            // Without a daemon nobody is there to answer it.
            let _ = shared.events.send(LinkEvent::Http(HttpStream::Plain(stream))).await;
            return Ok(());
        }
        other => return Err(Unwelcome::FirstByte(other)),
    }
    let limits = &shared.limits;
    let mut wire = Wire::open(stream, &shared.sockets, limits.max_frame, limits.setup_time).await?;
    let hello = read_hello(&wire.next().await?)?;
    let from = host.insert(hello.from.clone()).clone();
    check_hello(&hello, &shared.me, &from)?;
    let Some(keeper) = directory.find(&from) else {
        return Err(Unwelcome::Stranger(from));
    };
    if from >= shared.me {
        return Err(Unwelcome::WrongWay(from));
    }
    keeper.try_send(Accepted { wire, hello }).map_err(|_| Unwelcome::TooMany(from))
}
