//! The client of the daemons' API: one connection per request, with limits on size and time.
//!
//! A daemon may be slow, stopped, another program or hostile: each case gives an [`AskError`], in time and within
//! [`MAX_ANSWER`].

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cob_trust::tls::{self, Identity, OtherKey};
use cob_types::api::{Done, EPOCH, MEANT_FOR, Order, RefusalBody, RefusalCode, StatusOf};
use cob_types::command_run::RunOrder;
use cob_types::words::form;
use cob_types::{HostName, PublicKey};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::AlertDescription;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::settings::Credentials;
use crate::targets::{Endpoint, PreviousAddresses, Target};
use crate::words::{clean, span};

mod events;

use events::Events;
pub use events::{Changes, RunEvents};

/// The longest answer that the client reads: about 50,000 change objects.
pub const MAX_ANSWER: usize = 32 << 20;
/// The most change objects in a status that only wait for others, for commands that name three of these.
pub(crate) const MOST_WAITING: usize = 100;
/// How long a host has to accept a connection before the client tries its previous addresses.
const CONNECT: Duration = Duration::from_secs(2);
/// The time limit of an order: the daemon may fetch a bundle, or wait for its disk.
const ORDER: Duration = Duration::from_secs(60);

/// The hint for a host with another key.
const OTHER_KEY: &str = "this may be an attack, so no data was sent. If the host was reinstalled, compare this key with the output \
    of `cobd init` on the host itself, and enrol it again (`cobgen enroll`). The address may also be wrong: see \
    `cobctl trust doctor` with this host and a second host";
/// The hint for a key that a host does not know.
const KEY_REFUSED: &str = "`cobctl trust key` shows your key; an administrator adds it to `operators` in the model. \
    Is it the right one (--key)?";
/// The hint for a broken connection without TLS.
const IN_CLEAR: &str = "is it the address of a cobd of this version? If its hosts have keys, name the depot (--depot) or \
    its key (--host-key)";

/// Asks daemons.
#[derive(Debug, Clone)]
pub struct Client {
    timeout: Duration,
    /// The timeout before [`Client::at_most`] limited it.
    patience: Duration,
    who: String,
    credentials: Credentials,
    /// The host that is expected at an address.
    names: Arc<BTreeMap<Endpoint, HostName>>,
    /// The previous addresses of hosts.
    formers: PreviousAddresses,
    /// The epoch of the hub that gives the orders: a host that knows a greater epoch refuses these.
    pub(crate) epoch: Option<u64>,
}

/// Why there is no answer, or a bad answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No daemon listens there.
    #[error("no connection to {endpoint}")]
    Connect {
        /// The address.
        endpoint: Endpoint,
        /// The cause.
        source: io::Error,
    },
    /// The peer does not hold the key that the host must have.
    #[error("{endpoint} DOES NOT HOLD ITS HOST'S KEY: it shows {shown}, and must have {}", keys(endpoint))]
    OtherKey {
        /// The address.
        endpoint: Endpoint,
        /// The key that the peer shows.
        shown: PublicKey,
    },
    /// The daemon is the right daemon, and rejects our key.
    #[error("{endpoint} does not accept {}", mine.map_or("connections without a key".to_owned(), |key| format!("the key {key}")))]
    KeyRefused {
        /// The address.
        endpoint: Endpoint,
        /// Our key, if we have a key.
        mine: Option<PublicKey>,
    },
    /// The answer takes too long.
    #[error("no answer from {endpoint} within {after}")]
    Late {
        /// The address.
        endpoint: Endpoint,
        /// The timeout.
        after: String,
    },
    /// The connection broke off, or the peer does not speak HTTP.
    #[error("{endpoint} closed the connection or is not a daemon: {what}")]
    Broken {
        /// The address.
        endpoint: Endpoint,
        /// The observed fault.
        what: String,
    },
    /// The answer is too long.
    #[error("the answer from {endpoint} is longer than {MAX_ANSWER} bytes")]
    TooLong {
        /// The address.
        endpoint: Endpoint,
    },
    /// An answer that does not have the expected shape.
    #[error("the answer from {endpoint} is not valid: {what}")]
    NotUnderstood {
        /// The address.
        endpoint: Endpoint,
        /// The fault in the answer.
        what: String,
    },
    /// The daemon refused.
    #[error("{error}")]
    Refused {
        /// The HTTP status of the answer.
        status: u16,
        /// The refused request and the reason.
        error: String,
        /// A hint for the operator.
        hint: String,
        /// The reason, for programs; absent from daemons of earlier versions.
        code: Option<RefusalCode>,
    },
}

impl AskError {
    /// A hint for the operator; may be empty.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            AskError::Connect { endpoint: Endpoint::Unix(path), source } => connect_hint(path, source.kind()),
            AskError::Connect { .. } => "does cobd run there?".to_owned(),
            AskError::OtherKey { .. } => OTHER_KEY.to_owned(),
            AskError::KeyRefused { .. } => KEY_REFUSED.to_owned(),
            AskError::Late { .. } => "give it more time with --timeout, or look at the daemon's log".to_owned(),
            AskError::Refused { hint, .. } => hint.clone(),
            AskError::Broken { endpoint: Endpoint::Tcp(_), .. } => IN_CLEAR.to_owned(),
            AskError::Broken { .. } | AskError::NotUnderstood { .. } => {
                "is it the address of a cobd of this version?".to_owned()
            }
            AskError::TooLong { .. } => String::new(),
        }
    }

    /// The error and its causes in one line.
    #[must_use]
    pub fn in_a_line(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        clean(&text)
    }

    /// Whether the daemon has answered, even with a refusal: it had proved its identity before it rejected our key.
    #[must_use]
    pub fn is_from_daemon(&self) -> bool {
        matches!(self, AskError::Refused { .. } | AskError::KeyRefused { .. })
    }

    /// Whether a daemon says that the order is for another host.
    fn is_of_another_host(&self) -> bool {
        matches!(self, AskError::Refused { code: Some(RefusalCode::OtherHost), .. })
    }

    /// Whether a daemon may have refused a field that its version does not know.
    pub(crate) fn is_misfit(&self) -> bool {
        matches!(self, AskError::Refused { code: Some(RefusalCode::Misfit), .. })
    }

    /// Whether a daemon says that the named object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, AskError::Refused { status: 404, .. })
    }

    /// Whether another attempt may help: the refusal is not final.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            AskError::Refused { status, .. } => *status == StatusCode::SERVICE_UNAVAILABLE.as_u16(),
            AskError::KeyRefused { .. } => false,
            AskError::Connect { .. }
            | AskError::OtherKey { .. }
            | AskError::Late { .. }
            | AskError::Broken { .. }
            | AskError::TooLong { .. }
            | AskError::NotUnderstood { .. } => true,
        }
    }
}

fn connect_hint(path: &Path, kind: io::ErrorKind) -> String {
    if kind == io::ErrorKind::PermissionDenied {
        return "only the daemon's user may use the socket: become this user".to_owned();
    }
    let path = path.display();
    format!("does cobd run on this host, with its socket at {path}? Name other daemons with --depot or --host")
}

impl Client {
    /// A client that waits this long for each answer, and proves the operator's identity with these credentials.
    #[must_use]
    pub fn new(timeout: Duration, credentials: Credentials) -> Self {
        let named = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        let who = named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
        Self {
            timeout,
            patience: timeout,
            who,
            credentials,
            names: Arc::default(),
            formers: PreviousAddresses::default(),
            epoch: None,
        }
    }

    /// The same client, which names the intended host in each order: the daemon of another host refuses the order.
    #[must_use]
    pub fn meaning(self, targets: &[Target]) -> Self {
        let named = |target: &Target| Some((target.endpoint.clone(), target.name.clone()?));
        Self { names: Arc::new(targets.iter().filter_map(named).collect()), ..self }
    }

    /// The same client, which also tries a host's previous addresses if the host does not answer at its address in the
    /// newest generation.
    #[must_use]
    pub fn knowing(self, formers: PreviousAddresses) -> Self {
        Self { formers, ..self }
    }

    /// The other addresses at which the host of an address may be.
    #[must_use]
    pub fn formers(&self, at: &Endpoint) -> Vec<Endpoint> {
        self.formers.of(at)
    }

    /// The same client, with at most this timeout.
    #[must_use]
    pub fn at_most(&self, limit: Duration) -> Self {
        Self { timeout: self.timeout.min(limit), ..self.clone() }
    }

    /// For a last check after the time has run out: a client with the original timeout, at most `limit`, however little
    /// of the [limit](Self::at_most) is left.
    #[must_use]
    pub fn once_more(&self, limit: Duration) -> Self {
        Self { timeout: self.patience.min(limit), ..self.clone() }
    }

    /// How long the client waits for the answer of a daemon.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long the client waits for the answer to an order: the daemon may have to fetch a bundle first.
    #[must_use]
    pub fn order_timeout(&self) -> Duration {
        self.timeout.max(ORDER)
    }

    /// The author of the orders, as the history will show it.
    #[must_use]
    pub fn who(&self) -> Option<String> {
        Some(self.who.clone()).filter(|who| !who.is_empty())
    }

    /// The key that the client shows, if it has a key.
    #[must_use]
    pub fn key(&self) -> Option<PublicKey> {
        self.credentials.identity.as_ref().map(Identity::public)
    }

    /// Fetches a value.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn get<T: DeserializeOwned>(&self, at: &Endpoint, path: &str) -> Result<T, AskError> {
        parse(at, &self.bytes(at, path).await?)
    }

    /// Fetches text.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn text(&self, at: &Endpoint, path: &str) -> Result<String, AskError> {
        Ok(String::from_utf8_lossy(&self.bytes(at, path).await?).into_owned())
    }

    /// Fetches values, each on its own line.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn lines<T: DeserializeOwned>(&self, at: &Endpoint, path: &str) -> Result<Vec<T>, AskError> {
        let bytes = self.bytes(at, path).await?;
        bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(|line| parse(at, line)).collect()
    }

    /// Sends an order.
    ///
    /// # Errors
    /// [`AskError`]; after a late answer the daemon may still have accepted the order.
    pub async fn order<O: Order>(&self, at: &Endpoint, order: &O) -> Result<Done, AskError> {
        self.order_within(at, order, self.order_timeout()).await
    }

    /// Sends an order over an open connection. If that has broken, or `open` is `None`, over a new connection: only for
    /// orders that are safe to repeat.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn order_over<O: Order>(
        &self,
        open: Option<Open>,
        at: &Endpoint,
        order: &O,
        limit: Option<Duration>,
    ) -> Result<Done, AskError> {
        let limit = limit.unwrap_or(self.order_timeout());
        let (began, body) = (Instant::now(), json(at, &self.signed(order))?);
        if let Some(open) = open {
            let request = self.order_for(self.names.get(at), at, O::PATH, body.clone())?;
            let answer = timely(at, limit, async {
                let (response, _line) = self.send_over(at, open, request).await?;
                whole(at, response).await
            });
            match answer.await {
                Err(AskError::Broken { .. }) => {}
                // The intended host is elsewhere.
                Err(error) if error.is_of_another_host() => {}
                answer => return parse(at, &answer?),
            }
        }
        parse(at, &self.answer_within(at, O::PATH, body, limit.saturating_sub(began.elapsed())).await?)
    }

    /// Sends an order and returns the value of the answer, within a time limit.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn order_within<O: Order, T: DeserializeOwned>(
        &self,
        at: &Endpoint,
        order: &O,
        limit: Duration,
    ) -> Result<T, AskError> {
        let body = json(at, &self.signed(order))?;
        parse(at, &self.answer_within(at, O::PATH, body, limit).await?)
    }

    /// A request with a body, for the intended host, with the epoch of a hub.
    fn order_for(
        &self,
        name: Option<&HostName>,
        at: &Endpoint,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, AskError> {
        let mut request = request(at, Method::POST, path, body)?;
        // Host names contain only letters, digits and a few signs.
        if let Some(name) = name.and_then(|name| header::HeaderValue::from_str(name.as_str()).ok()) {
            request.headers_mut().insert(MEANT_FOR, name);
        }
        if let Some(epoch) = self.epoch {
            request.headers_mut().insert(EPOCH, epoch.into());
        }
        Ok(request)
    }

    /// The answer to an order; if another host has the address now, from the former addresses of the intended host.
    async fn answer_within(&self, at: &Endpoint, path: &str, body: Bytes, limit: Duration) -> Result<Bytes, AskError> {
        let name = self.names.get(at);
        let ordered = async |at: &Endpoint| {
            let request = self.order_for(name, at, path, body.clone())?;
            timely(at, limit, async {
                let (response, _line) = self.send(at, request).await?;
                whole(at, response).await
            })
            .await
        };
        let mut answer = ordered(at).await;
        if answer.as_ref().is_err_and(AskError::is_of_another_host) {
            // Another host has that address now, and the intended host has not moved there yet.
            let formers = self.formers(at);
            for former in &formers {
                match ordered(former).await {
                    Err(error) if error.is_passing() || error.is_of_another_host() => {}
                    other => {
                        answer = other;
                        break;
                    }
                }
            }
            if !formers.is_empty() && answer.as_ref().is_err_and(AskError::is_of_another_host) {
                // Two hosts are swapping their addresses: the state is temporary.
                let source = io::Error::other("another host answers there, and no host at its former address");
                answer = Err(AskError::Connect { endpoint: at.clone(), source });
            }
        }
        answer
    }

    /// The order with its author.
    fn signed<O: Order>(&self, order: &O) -> O {
        let mut order = order.clone();
        *order.who() = self.who();
        order
    }

    /// Starts to watch a daemon, which sends its status with each change (the previous version does not).
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn watch(&self, at: &Endpoint, of: StatusOf) -> Result<Changes, AskError> {
        let path = match of {
            StatusOf::All => "/v1/events?status=all".to_owned(),
            StatusOf::Active => format!("/v1/events?status=restless&waiting={MOST_WAITING}"),
        };
        self.events(at, request(at, Method::GET, &path, Bytes::new())?, self.timeout).await.map(Changes)
    }

    /// Runs a command. The host ends it when the returned stream is dropped.
    ///
    /// # Errors
    /// [`AskError`]: the command does not run, or not for long.
    pub async fn run(&self, at: &Endpoint, order: &RunOrder) -> Result<RunEvents, AskError> {
        let request = self.order_for(self.names.get(at), at, "/v1/run", json(at, order)?)?;
        self.events(at, request, self.order_timeout()).await.map(RunEvents)
    }

    async fn events(&self, at: &Endpoint, request: Request<Full<Bytes>>, limit: Duration) -> Result<Events, AskError> {
        timely(at, limit, async {
            let (response, line) = self.send(at, request).await?;
            if response.status() != StatusCode::OK {
                whole(at, response).await?;
                return Err(not_understood(at, "a success without events"));
            }
            Ok(Events::of(at, response, line))
        })
        .await
    }

    /// Opens a connection for a single request.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn open(&self, at: &Endpoint) -> Result<Open, AskError> {
        timely(at, self.timeout, self.connect(at)).await
    }

    async fn send(&self, at: &Endpoint, request: Request<Full<Bytes>>) -> Result<(Response<Incoming>, Line), AskError> {
        self.send_over(at, self.connect(at).await?, request).await
    }

    async fn send_over(
        &self,
        at: &Endpoint,
        open: Open,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Line), AskError> {
        let Open { mut sender, line, at: reached } = open;
        if reached != *at
            && let Ok(host) = header::HeaderValue::from_str(&host_header(&reached))
        {
            request.headers_mut().insert(header::HOST, host);
        }
        // The client sends its token only over TLS, and so only to a peer that holds the host's key.
        if let (Endpoint::Tls(..), Some(token)) = (at, &self.credentials.token) {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        Ok((sender.send_request(request).await.map_err(|e| self.fault(at, &e))?, line))
    }

    /// Connects to a host at its address or, if it does not answer there, at its previous addresses.
    async fn connect(&self, at: &Endpoint) -> Result<Open, AskError> {
        let first = match tokio::time::timeout(self.timeout.min(CONNECT), self.connect_to(at)).await {
            Ok(Ok(open)) => return Ok(open),
            Ok(Err(error @ (AskError::Connect { .. } | AskError::OtherKey { .. }))) => Some(error),
            Ok(Err(error)) => return Err(error),
            Err(_) => None,
        };
        for former in self.formers(at) {
            if let Ok(Ok(open)) = tokio::time::timeout(self.timeout.min(CONNECT), self.connect_to(&former)).await {
                return Ok(open);
            }
        }
        match first {
            Some(error) => Err(error),
            // The host is slow, and at no other address.
            None => self.connect_to(at).await,
        }
    }

    async fn connect_to(&self, at: &Endpoint) -> Result<Open, AskError> {
        let refused = |source| AskError::Connect { endpoint: at.clone(), source };
        match at {
            Endpoint::Unix(path) => self.over(at, Box::new(UnixStream::connect(path).await.map_err(refused)?)).await,
            Endpoint::Tcp(address) => {
                self.over(at, Box::new(TcpStream::connect(address).await.map_err(refused)?)).await
            }
            Endpoint::Tls(address, keys) => {
                let identity = self.credentials.identity.as_ref();
                let settings = tls::client(identity, keys, tls::HTTP).map_err(|e| refused(io::Error::other(e)))?;
                let stream = TcpStream::connect(address).await.map_err(refused)?;
                let stream = TlsConnector::from(settings).connect(tls::name(), stream).await;
                self.over(at, Box::new(stream.map_err(|e| self.fault(at, &e))?)).await
            }
        }
    }

    async fn over(&self, at: &Endpoint, stream: Box<dyn Stream>) -> Result<Open, AskError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.fault(at, &e))?;
        let line = Line(tokio::spawn(async move {
            // The request that waits for the answer gets the error.
            let _ = connection.await;
        }));
        Ok(Open { sender, line, at: at.clone() })
    }

    /// The error of a broken connection: a rejected key, or another fault.
    fn fault(&self, at: &Endpoint, error: &(dyn Error + 'static)) -> AskError {
        let tls = tls_error(error);
        if let Some(OtherKey { shown }) = tls.and_then(OtherKey::of) {
            return AskError::OtherKey { endpoint: at.clone(), shown };
        }
        match tls {
            Some(rustls::Error::AlertReceived(alert)) if is_about_our_key(*alert) => {
                AskError::KeyRefused { endpoint: at.clone(), mine: self.key() }
            }
            _ => broken(at, error),
        }
    }

    async fn bytes(&self, at: &Endpoint, path: &str) -> Result<Bytes, AskError> {
        timely(at, self.timeout, async {
            let (response, _line) = self.send(at, request(at, Method::GET, path, Bytes::new())?).await?;
            whole(at, response).await
        })
        .await
    }
}

/// A connection's bytes. As a type of its own, it lets the HTTP client be compiled once.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open connection without a request.
#[derive(Debug)]
pub struct Open {
    sender: http1::SendRequest<Full<Bytes>>,
    line: Line,
    /// The address of the peer.
    at: Endpoint,
}

/// The task that transfers a connection's bytes; it is aborted when its user drops it.
#[derive(Debug)]
struct Line(JoinHandle<()>);

impl Drop for Line {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn json(at: &Endpoint, order: &impl Serialize) -> Result<Bytes, AskError> {
    serde_json::to_vec(order).map(Bytes::from).map_err(|e| not_understood(at, &e.to_string()))
}

/// The `Host` header for an address.
fn host_header(at: &Endpoint) -> String {
    match at {
        Endpoint::Unix(_) => "localhost".to_owned(),
        Endpoint::Tcp(address) | Endpoint::Tls(address, _) => address.to_string(),
    }
}

fn request(at: &Endpoint, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, AskError> {
    let mut request = Request::builder().method(&method).uri(path).header(header::HOST, host_header(at));
    if method == Method::POST {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    request.body(Full::new(body)).map_err(|e| not_understood(at, &e.to_string()))
}

/// The TLS error in a chain of errors.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = error.downcast_ref().or_else(|| inner?.downcast_ref());
        if found.is_some() {
            return found;
        }
        next = error.source();
    }
    None
}

fn is_about_our_key(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
    )
}

fn keys(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tls(_, keys) if !keys.is_empty() => {
            keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
        }
        Endpoint::Tls(..) | Endpoint::Tcp(_) | Endpoint::Unix(_) => "a key that the model does not name".to_owned(),
    }
}

async fn whole(at: &Endpoint, response: Response<Incoming>) -> Result<Bytes, AskError> {
    let status = response.status();
    let bytes = match Limited::new(response.into_body(), MAX_ANSWER).collect().await {
        Ok(body) => body.to_bytes(),
        Err(e) if e.is::<http_body_util::LengthLimitError>() => {
            return Err(AskError::TooLong { endpoint: at.clone() });
        }
        Err(e) => return Err(AskError::Broken { endpoint: at.clone(), what: clean(&e.to_string()) }),
    };
    if status == StatusCode::OK {
        return Ok(bytes);
    }
    match serde_json::from_slice::<RefusalBody>(&bytes) {
        Ok(RefusalBody { error, hint, code }) => {
            Err(AskError::Refused { status: status.as_u16(), error: clean(&error), hint: clean(&hint), code })
        }
        Err(_) => Err(not_understood(at, &format!("the answer {status}"))),
    }
}

async fn timely<T>(
    at: &Endpoint,
    limit: Duration,
    asked: impl Future<Output = Result<T, AskError>>,
) -> Result<T, AskError> {
    let after = || span(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    match tokio::time::timeout(limit, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(AskError::Late { endpoint: at.clone(), after: after() }),
    }
}

fn parse<T: DeserializeOwned>(at: &Endpoint, bytes: &[u8]) -> Result<T, AskError> {
    serde_json::from_slice(bytes).map_err(|e| not_understood(at, &form(e)))
}

fn not_understood(at: &Endpoint, what: &str) -> AskError {
    AskError::NotUnderstood { endpoint: at.clone(), what: clean(what) }
}

fn broken(at: &Endpoint, error: &(dyn Error + 'static)) -> AskError {
    let mut what = error.to_string();
    if let Some(cause) = error.source() {
        what = format!("{what}: {cause}");
    }
    AskError::Broken { endpoint: at.clone(), what: clean(&what) }
}
