//! The listening port: admission of connections and their limits.
//!
//! A connection is pending until it has proved a known key, or shown that it wants to enrol. `cob_trust::pending`
//! decides which pending connections start their handshake and which are evicted, so that no number of source addresses
//! keeps an enrolled host out. Enrolling hosts have their own connections: an enrolment takes longer.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cob_trust::front::{Caller, Front};
use cob_trust::pending::{Pending, PendingLimits};
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
use super::shelf::{Known, Shelf};

/// The most enrolments at a time; a newcomer replaces the oldest.
const ENROLMENTS: usize = 64;
/// The time limit for the first byte of a connection.
const FIRST_BYTE: Duration = Duration::from_secs(3);
/// The most connections of known hosts at a time, if the limit of open files allows it.
const HOSTS: usize = 4096;
/// The most connections of a key at a time.
const OF_ONE: usize = 4;
/// Open files reserved for other purposes than connections of hosts: pending connections, enrolments, the depot.
const OTHER_FILES: u64 = 800;
/// The time limit of a handshake, and of an enrolment.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// The time limit of a known host's connection: the longest wait, and then a large bundle.
const CONNECTION: Duration = Duration::from_secs(900);
/// The largest head of a request.
const MAX_HEAD: usize = 16 << 10;
/// The pause after a failed accept (mostly: no file descriptor is left).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// The bound port.
pub(super) struct Door {
    listener: TcpListener,
    address: SocketAddr,
    inside: Arc<Inside>,
}

/// The state shared by all connections.
struct Inside {
    identity: Identity,
    enrol_tls: Arc<ServerConfig>,
    shelf: Arc<Shelf>,
    answers: Answers,
    desk: Desk,
    notes: Notes,
    enrolments: Mutex<VecDeque<AbortHandle>>,
    places: Arc<Semaphore>,
    of_one: Mutex<BTreeMap<PublicKey, usize>>,
}

/// The reason for closing a connection.
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
    #[error("its key {0} does not belong to a known host; a new host shows a token first: `cobgen enroll`")]
    Unknown(PublicKey),
    #[error("its key {0} was revoked")]
    Revoked(PublicKey),
    #[error("the host with the key {0} has too many connections")]
    TooMany(PublicKey),
}

impl Unwelcome {
    /// The key for grouping log lines: no text that a stranger can choose freely.
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
            enrolments: Mutex::default(),
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
        // A seed that strangers cannot know.
        let seed = RandomState::new().hash_one(self.address);
        let pending = Pending::new(PendingLimits::default(), Instant::now(), seed);
        let mut front = Front::new(pending, |_| true);
        let mut known: Arc<Known> = Arc::default();
        let inside = &self.inside;
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, remote)) => {
                        inside.expect(&mut front, &mut known);
                        front.arrive(stream, remote, FIRST_BYTE, || {});
                    }
                    Err(error) => {
                        inside.notes.warn("accept", &format_args!("a connection can't be accepted: {error}"));
                        front.make_room();
                        sleep(ACCEPT_REST).await;
                    }
                },
                greeted = front.step() => match greeted {
                    Ok(Some((remote, Greeted::Host(stream, key)))) => {
                        front.expected().proved(key, remote.ip());
                        let inside = inside.clone();
                        tokio::spawn(async move { inside.serve(*stream, key, remote).await });
                    }
                    Ok(Some((_, Greeted::Enrols(stream, key)))) => inside.clone().let_enrol(*stream, key),
                    Ok(None) => {}
                    Err(panic) => inside.notes.warn(
                        "defect",
                        &format_args!("a connection was closed because of a defect of the program: {panic}"),
                    ),
                },
            }
            front.give_slots(|Caller { stream, remote, .. }| {
                let inside = inside.clone();
                async move {
                    let greeted = timeout(HANDSHAKE, inside.greet(stream)).await.unwrap_or(Err(Unwelcome::Slow));
                    greeted.map(|greeted| (remote, greeted)).map_err(|why| inside.note(remote, &why)).ok()
                }
            });
        }
    }
}

/// A connection after a successful handshake.
enum Greeted {
    /// It has proved the key of a known host.
    Host(Box<TlsStream<TcpStream>>, PublicKey),
    /// It holds this key and wants to show a token.
    Enrols(Box<TlsStream<TcpStream>>, PublicKey),
}

/// The number of host connections that the limit of open files allows; raises the limit as far as possible.
fn room() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if let Some(most) = limit.maximum {
        let wanted = most.min(HOSTS as u64 + OTHER_FILES);
        if limit.current.is_some_and(|current| current < wanted) {
            limit.current = Some(wanted);
            // Without it fewer connections fit; the real limit is read below.
            let _ = setrlimit(Resource::Nofile, limit);
        }
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let left = files.saturating_sub(OTHER_FILES);
    usize::try_from(left).unwrap_or(HOSTS).clamp(16, HOSTS)
}

impl Inside {
    /// Reserves slots for the addresses of the known hosts.
    fn expect(&self, front: &mut Front<(SocketAddr, Greeted)>, expected: &mut Arc<Known>) {
        let known = self.shelf.known();
        if !Arc::ptr_eq(&known, expected) {
            front.expected().set(known.addresses().iter().copied(), |key| known.host_of(key).is_some());
            *expected = known;
        }
    }

    fn note(&self, remote: SocketAddr, why: &Unwelcome) {
        self.notes.warn(&why.about(), &format_args!("a connection from {remote} was closed: {why}"));
    }

    /// Does the handshake.
    async fn greet(&self, stream: TcpStream) -> Result<Greeted, Unwelcome> {
        // Sends small answers at once; a failure only causes delays.
        let _ = stream.set_nodelay(true);
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await;
        let hello = hello.map_err(Unwelcome::Handshake)?;
        let enrols = hello.client_hello().alpn().is_some_and(|mut names| names.any(|name| name == ENROL));
        if !enrols {
            return self.shake_hands(hello).await.map(|(stream, key)| Greeted::Host(Box::new(stream), key));
        }
        let stream = hello.into_stream(self.enrol_tls.clone()).await.map_err(Unwelcome::Handshake)?;
        let key = peer_key(stream.get_ref().1.peer_certificates()).ok_or(Unwelcome::NoKey)?;
        Ok(Greeted::Enrols(Box::new(stream), key))
    }

    /// Serves an enrolling host; beyond the limit the oldest enrolment is aborted.
    fn let_enrol(self: Arc<Self>, stream: TlsStream<TcpStream>, key: PublicKey) {
        let inside = self.clone();
        let task = tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| async {
                Ok::<_, std::convert::Infallible>(inside.enrol(key, request).await)
            });
            // A client that disconnects gets no answer.
            let _ = timeout(HANDSHAKE, http().serve_connection(TokioIo::new(stream), service)).await;
        });
        let mut enrolments = self.enrolments.lock().unwrap_or_else(PoisonError::into_inner);
        // Removes finished tasks.
        enrolments.retain(|task| !task.is_finished());
        enrolments.push_back(task.abort_handle());
        if enrolments.len() > ENROLMENTS
            && let Some(oldest) = enrolments.pop_front()
        {
            oldest.abort();
        }
    }

    /// The handshake of a client that claims to be a known host.
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

    /// The reason why this key is refused; `None`: the key is not the reason.
    fn turned_away(&self, key: Option<&PublicKey>) -> Option<Unwelcome> {
        let (known, key) = (self.shelf.known(), *key?);
        if known.host_of(&key).is_some() {
            return None;
        }
        Some(if known.is_revoked(&key) { Unwelcome::Revoked(key) } else { Unwelcome::Unknown(key) })
    }

    async fn enrol(&self, key: PublicKey, request: Request<Incoming>) -> Answer {
        if request.method() != Method::POST || request.uri().path() != ENROL_PATH {
            return refuse(StatusCode::NOT_FOUND, "a host without a known key can only show a token");
        }
        match Limited::new(request.into_body(), MAX_JSON).collect().await {
            Ok(body) => self.desk.enrol(key, &body.to_bytes()).await,
            Err(error) => refuse(StatusCode::BAD_REQUEST, &format!("the request could not be read: {error}")),
        }
    }

    async fn serve(&self, stream: TlsStream<TcpStream>, key: PublicKey, remote: SocketAddr) {
        if let Err(why) = self.try_serve(stream, key).await {
            self.note(remote, &why);
        }
    }

    async fn try_serve(&self, stream: TlsStream<TcpStream>, key: PublicKey) -> Result<(), Unwelcome> {
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
        // A client that disconnects or is too slow asks again.
        let _ = timeout(CONNECTION, http().serve_connection(TokioIo::new(stream), service)).await;
        Ok(())
    }
}

/// An HTTP server for a single request per connection, with limits.
fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.keep_alive(false).half_close(false).timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_HEAD);
    http
}

/// A slot among the connections of a key.
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
