//! The listening port: who may come in, and how many at a time.
//!
//! Whoever has not yet proved a key that is known is a stranger. So are those who are being enrolled. There
//! is room for a fixed number of strangers; where another one comes the oldest is sent away, so that
//! those who hold connections and say nothing keep nobody out: an honest handshake takes milliseconds.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cob_trust::tls::{Admits, HTTP, Identity, TlsError, peer_key, server};
use cob_types::PublicKey;
use cob_types::remote::{ENROL, ENROL_PATH, MAX_JSON};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use super::ServeError;
use super::answer::{Answer, Answers, refuse};
use super::enrol::Desk;
use super::notes::Notes;
use super::shelf::Shelf;

/// Strangers at a time.
const STRANGERS: usize = 128;
/// Connections of known hosts at a time, if there are open files enough.
const HOSTS: usize = 4096;
/// Connections of one key at a time.
const OF_ONE: usize = 4;
/// Open files that are kept for other things than connections of hosts.
const OTHER_FILES: u64 = 256;
/// How long a handshake may take, and how long an enrolment.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of a request may take to arrive.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection of a known host may last: the longest wait, and then a large bundle.
const CONNECTION: Duration = Duration::from_secs(900);
/// The most of a request's head that is kept.
const MAX_HEAD: usize = 16 << 10;
/// How long to rest when a connection can't be accepted (mostly: no file descriptor is left).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The port, bound.
pub(super) struct Door {
    listener: TcpListener,
    address: SocketAddr,
    inside: Arc<Inside>,
}

/// What all connections share.
struct Inside {
    identity: Identity,
    enrol_tls: Arc<ServerConfig>,
    shelf: Arc<Shelf>,
    answers: Answers,
    desk: Desk,
    notes: Notes,
    strangers: Mutex<VecDeque<(u64, AbortHandle)>>,
    places: Arc<Semaphore>,
    of_one: Mutex<BTreeMap<PublicKey, usize>>,
}

/// Why a connection was ended.
#[derive(Debug, thiserror::Error)]
enum Unwelcome {
    #[error("the TLS handshake failed: {0}")]
    Handshake(std::io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("it took longer than {} s", HANDSHAKE.as_secs())]
    Slow,
    #[error("it showed no key")]
    NoKey,
    #[error("its key {0} is that of no host known here; a new host shows a token first: `cobgen enroll`")]
    Unknown(PublicKey),
    #[error("its key {0} was revoked")]
    Revoked(PublicKey),
    #[error("the host with the key {0} has more connections than one needs")]
    TooMany(PublicKey),
}

impl Unwelcome {
    /// What shares a line in the log: nothing that a stranger can make up as he likes.
    fn about(&self) -> String {
        match self {
            Self::Handshake(_) | Self::Tls(_) => "handshake".to_owned(),
            Self::Slow => "slow".to_owned(),
            Self::NoKey | Self::Unknown(_) => "unknown".to_owned(),
            Self::Revoked(key) => format!("revoked {key}"),
            Self::TooMany(_) => "too many".to_owned(),
        }
    }
}

impl Door {
    pub(super) async fn bind(
        address: SocketAddr,
        identity: Identity,
        shelf: Arc<Shelf>,
        desk: Desk,
    ) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let inside = Inside {
            enrol_tls: server(&identity, Arc::new(|_| true), false, &[ENROL])?,
            identity,
            answers: Answers::new(shelf.clone()),
            shelf,
            desk,
            notes: Notes::default(),
            strangers: Mutex::default(),
            places: Arc::new(Semaphore::new(room())),
            of_one: Mutex::default(),
        };
        Ok(Self { listener, address, inside: Arc::new(inside) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the returned future is dropped.
    pub(super) async fn run(&self) {
        let mut number = 0;
        loop {
            match self.listener.accept().await {
                Ok((stream, remote)) => {
                    number += 1;
                    let inside = self.inside.clone();
                    let task = tokio::spawn(async move { inside.meet(stream, remote, number).await });
                    self.inside.let_wait(number, task.abort_handle());
                }
                Err(error) => {
                    self.inside.notes.warn("accept", &format_args!("a connection can't be accepted: {error}"));
                    sleep(ACCEPT_REST).await;
                }
            }
        }
    }
}

/// The connections of hosts that the limit of open files allows; it is raised as far as it may be.
fn room() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if let Some(most) = limit.maximum {
        let wanted = most.min(HOSTS as u64 + OTHER_FILES + STRANGERS as u64);
        if limit.current.is_some_and(|current| current < wanted) {
            limit.current = Some(wanted);
            // Without it there is less room, which is counted below.
            let _ = setrlimit(Resource::Nofile, limit);
        }
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let left = files.saturating_sub(OTHER_FILES + STRANGERS as u64);
    usize::try_from(left).unwrap_or(HOSTS).clamp(16, HOSTS)
}

impl Inside {
    /// A stranger more; the oldest goes when there are too many.
    fn let_wait(&self, number: u64, task: AbortHandle) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.push_back((number, task));
        if strangers.len() > STRANGERS
            && let Some((_, oldest)) = strangers.pop_front()
        {
            oldest.abort();
        }
    }

    /// One who is no stranger any more, or has gone.
    fn no_stranger(&self, number: u64) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = strangers.iter().position(|(n, _)| *n == number) {
            strangers.remove(at);
        }
    }

    /// A whole connection. May be ended from outside at any place where it waits, until it is known
    /// whose it is.
    async fn meet(self: Arc<Self>, stream: TcpStream, remote: SocketAddr, number: u64) {
        let greeted = timeout(HANDSHAKE, self.greet(stream)).await.unwrap_or(Err(Unwelcome::Slow));
        let came = match greeted {
            Ok(Some((stream, key))) => {
                self.no_stranger(number);
                self.serve(stream, key).await
            }
            Ok(None) => Ok(()),
            Err(why) => Err(why),
        };
        self.no_stranger(number);
        if let Err(why) = came {
            self.notes.warn(&why.about(), &format_args!("a connection from {remote} was cut: {why}"));
        }
    }

    /// The handshake; none: it was an enrolment, and is done.
    async fn greet(&self, stream: TcpStream) -> Result<Option<(TlsStream<TcpStream>, PublicKey)>, Unwelcome> {
        // Small answers go at once; without it they only go later.
        let _ = stream.set_nodelay(true);
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await;
        let hello = hello.map_err(Unwelcome::Handshake)?;
        let enrols = hello.client_hello().alpn().is_some_and(|mut names| names.any(|name| name == ENROL));
        if !enrols {
            return self.shake_hands(hello).await.map(Some);
        }
        let stream = hello.into_stream(self.enrol_tls.clone()).await.map_err(Unwelcome::Handshake)?;
        let key = peer_key(stream.get_ref().1.peer_certificates()).ok_or(Unwelcome::NoKey)?;
        let service = service_fn(|request: Request<Incoming>| async move {
            Ok::<_, std::convert::Infallible>(self.enrol(key, request).await)
        });
        // Who breaks off hears no answer.
        let _ = http().serve_connection(TokioIo::new(stream), service).await;
        Ok(None)
    }

    /// The handshake of one who says that it is a known host.
    async fn shake_hands(
        &self,
        hello: StartHandshake<TcpStream>,
    ) -> Result<(TlsStream<TcpStream>, PublicKey), Unwelcome> {
        self.shelf.look_again().await;
        let shown = Arc::new(OnceLock::new());
        let admits: Admits = {
            let (shelf, shown) = (self.shelf.clone(), shown.clone());
            Arc::new(move |key| shelf.known().host_of(shown.get_or_init(|| *key)).is_some())
        };
        let config = server(&self.identity, admits, false, &[HTTP])?;
        let stream = match hello.into_stream(config).await {
            Ok(stream) => stream,
            Err(error) => return Err(self.turned_away(shown.get()).unwrap_or(Unwelcome::Handshake(error))),
        };
        let key = peer_key(stream.get_ref().1.peer_certificates()).ok_or(Unwelcome::NoKey)?;
        Ok((stream, key))
    }

    /// Why this key is not let in; none: it is not for the key.
    fn turned_away(&self, key: Option<&PublicKey>) -> Option<Unwelcome> {
        let (known, key) = (self.shelf.known(), *key?);
        if known.host_of(&key).is_some() {
            return None;
        }
        Some(if known.is_revoked(&key) { Unwelcome::Revoked(key) } else { Unwelcome::Unknown(key) })
    }

    async fn enrol(&self, key: PublicKey, request: Request<Incoming>) -> Answer {
        if request.method() != Method::POST || request.uri().path() != ENROL_PATH {
            return refuse(StatusCode::NOT_FOUND, "one who is being enrolled can only show a token");
        }
        match Limited::new(request.into_body(), MAX_JSON).collect().await {
            Ok(body) => self.desk.enrol(key, &body.to_bytes()).await,
            Err(error) => refuse(StatusCode::BAD_REQUEST, &format!("the request could not be read: {error}")),
        }
    }

    async fn serve(&self, stream: TlsStream<TcpStream>, key: PublicKey) -> Result<(), Unwelcome> {
        let _one = OfOne::enter(&self.of_one, key).ok_or(Unwelcome::TooMany(key))?;
        let Ok(_place) = self.places.clone().try_acquire_owned() else { return Err(Unwelcome::TooMany(key)) };
        // A key may be revoked between the handshake and the request.
        let known = self.shelf.known().host_of(&key).cloned();
        let host = known.ok_or_else(|| self.turned_away(Some(&key)).unwrap_or(Unwelcome::Unknown(key)))?;
        let (host, part) = (&host, &Mutex::new(None));
        let service = service_fn(move |request: Request<Incoming>| async move {
            let uri = request.uri();
            let mut answer = self.answers.to(host, request.method(), uri.path(), uri.query()).await;
            let place = answer.extensions_mut().remove::<Arc<OwnedSemaphorePermit>>();
            *part.lock().unwrap_or_else(PoisonError::into_inner) = place;
            Ok::<_, std::convert::Infallible>(answer)
        });
        // Who breaks off, or takes too long, asks again.
        let _ = timeout(CONNECTION, http().serve_connection(TokioIo::new(stream), service)).await;
        Ok(())
    }
}

/// One request a connection, with limits.
fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.keep_alive(false).half_close(false).timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_HEAD);
    http
}

/// A place among the connections of one key.
struct OfOne<'a> {
    all: &'a Mutex<BTreeMap<PublicKey, usize>>,
    key: PublicKey,
}

impl<'a> OfOne<'a> {
    fn enter(all: &'a Mutex<BTreeMap<PublicKey, usize>>, key: PublicKey) -> Option<Self> {
        let mut counts = all.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key).or_insert(0);
        if *count >= OF_ONE {
            return None;
        }
        *count += 1;
        Some(Self { all, key })
    }
}

impl Drop for OfOne<'_> {
    fn drop(&mut self) {
        let mut counts = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}
