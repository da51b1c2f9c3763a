//! The client of the daemons' API: one request, one connection, everything bounded.
//!
//! A daemon may be slow, gone, another program or hostile: each shows as an [`AskError`], in time and
//! within [`MAX_ANSWER`].

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cob_trust::tls::{self, Identity, OtherKey};
use cob_types::status::HostStatus;
use cob_types::words::form;
use cob_types::{HostName, PublicKey};
use cobd::web::{Change, Done, MEANT_FOR, RefusalBody, StatusOf};
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
use crate::targets::{Endpoint, Formers, Target};
use crate::words::{clean, span};

/// The longest answer that is read: some 50,000 change objects.
pub const MAX_ANSWER: usize = 32 << 20;
/// Of change objects that only wait for others so many are listed for those who wait for a host to come to rest: they name
/// three of them.
pub(crate) const MOST_WAITING: usize = 100;
/// How long a host has to take a connection before it is looked for where it was before.
const CONNECT: Duration = Duration::from_secs(2);
/// What an order may take beyond a question: the daemon fetches a bundle, or waits for its disk.
const ORDER: Duration = Duration::from_secs(60);

/// What to do about a host with another key.
const OTHER_KEY: &str = "somebody may be attacking you there, and nothing was sent. If the host was installed anew, compare \
    that key with the one that `cobd init` prints on the host itself, and enrol it again (`cobgen enroll`); it may also be the \
    wrong address. `cobctl trust doctor` with this host and another one says more";
/// What to do about a key that a host does not know.
const KEY_REFUSED: &str = "`cobctl trust key` shows your key; an administrator names it under `operators` in the model. \
    Is it the right one (--key)?";
/// What to do about a broken connection without TLS.
const IN_CLEAR: &str = "is it the address of a cobd of this version? If its hosts have keys, name the depot (--depot) or \
    its key (--host-key)";

/// Asks daemons.
#[derive(Debug, Clone)]
pub struct Client {
    timeout: Duration,
    /// As it was before a limit was set to it.
    patience: Duration,
    who: String,
    credentials: Credentials,
    /// Who is meant by an address.
    names: Arc<BTreeMap<Endpoint, HostName>>,
    /// Where hosts were before.
    formers: Formers,
}

/// Why there is no answer, or not the one hoped for.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody is there.
    #[error("no connection to {endpoint}")]
    Connect {
        /// Where.
        endpoint: Endpoint,
        /// Why.
        source: io::Error,
    },
    /// Somebody is there who does not hold the key that the host must have.
    #[error("{endpoint} DOES NOT HOLD ITS HOST'S KEY: it shows {shown}, and must have {}", keys(endpoint))]
    OtherKey {
        /// Where.
        endpoint: Endpoint,
        /// The key that it shows.
        shown: PublicKey,
    },
    /// The daemon is the right one, and sends us away for our key.
    #[error("{endpoint} does not let {} in", mine.map_or("anybody without a key".to_owned(), |key| format!("the key {key}")))]
    KeyRefused {
        /// Where.
        endpoint: Endpoint,
        /// Our key, if we have one.
        mine: Option<PublicKey>,
    },
    /// It takes too long.
    #[error("no answer from {endpoint} within {after}")]
    Late {
        /// Where.
        endpoint: Endpoint,
        /// How long it was given.
        after: String,
    },
    /// The connection broke off, or it is not HTTP that is spoken.
    #[error("{endpoint} broke off or is no daemon: {what}")]
    Broken {
        /// Where.
        endpoint: Endpoint,
        /// What was seen.
        what: String,
    },
    /// The answer does not end.
    #[error("the answer from {endpoint} is longer than {MAX_ANSWER} bytes")]
    TooLong {
        /// Where.
        endpoint: Endpoint,
    },
    /// An answer, but not of the expected shape.
    #[error("the answer from {endpoint} is not understood: {what}")]
    NotUnderstood {
        /// Where.
        endpoint: Endpoint,
        /// What is wrong with it.
        what: String,
    },
    /// The daemon said no.
    #[error("{error}")]
    Refused {
        /// The status of the answer.
        status: u16,
        /// What was refused and why.
        error: String,
        /// What to do.
        hint: String,
    },
}

impl AskError {
    /// What to do about it; may be empty.
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

    /// The whole chain in one line.
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

    /// Whether the daemon has answered, if only with a refusal: it had proved who it is before it sent us away.
    #[must_use]
    pub fn is_from_daemon(&self) -> bool {
        matches!(self, AskError::Refused { .. } | AskError::KeyRefused { .. })
    }

    /// Whether a daemon says that another host is meant.
    fn is_of_another_host(&self) -> bool {
        matches!(self, AskError::Refused { status: 409, error, .. } if error.ends_with(": nothing was done"))
    }

    /// Whether a daemon says that it has no such thing.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, AskError::Refused { status: 404, .. })
    }

    /// Whether asking again may help: it is not the daemon's last word.
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
        return "the socket is for its daemon's user alone: become that user".to_owned();
    }
    let path = path.display();
    format!("does cobd run on this host, with its socket at {path}? Name other daemons with --depot or --host")
}

impl Client {
    /// A client that gives each daemon this long to answer, and proves with these who it is.
    #[must_use]
    pub fn new(timeout: Duration, credentials: Credentials) -> Self {
        let named = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        let who = named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
        Self { timeout, patience: timeout, who, credentials, names: Arc::default(), formers: Formers::default() }
    }

    /// The same, for these: an order that reaches the daemon of another host is refused by it.
    #[must_use]
    pub fn meaning(self, targets: &[Target]) -> Self {
        let named = |target: &Target| Some((target.endpoint.clone(), target.name.clone()?));
        Self { names: Arc::new(targets.iter().filter_map(named).collect()), ..self }
    }

    /// The same, looking for hosts that do not answer where the newest generation has them also where they were before.
    #[must_use]
    pub fn knowing(self, formers: Formers) -> Self {
        Self { formers, ..self }
    }

    /// Where else the host of an address may be.
    #[must_use]
    pub fn formers(&self, at: &Endpoint) -> Vec<Endpoint> {
        self.formers.of(at)
    }

    /// The same, with no more patience than this.
    #[must_use]
    pub fn at_most(&self, limit: Duration) -> Self {
        Self { timeout: self.timeout.min(limit), ..self.clone() }
    }

    /// For one more look when the time is over: with so much patience at most, however little of the [limit](Self::at_most)
    /// is left.
    #[must_use]
    pub fn once_more(&self, limit: Duration) -> Self {
        Self { timeout: self.patience.min(limit), ..self.clone() }
    }

    /// How long each daemon is given to answer.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long each is given to answer an order: the daemon may have to fetch a bundle first.
    #[must_use]
    pub fn order_timeout(&self) -> Duration {
        self.timeout.max(ORDER)
    }

    /// Who gives the orders, as it will stand in the history.
    #[must_use]
    pub fn who(&self) -> Option<String> {
        Some(self.who.clone()).filter(|who| !who.is_empty())
    }

    /// The key that it shows, if it has one.
    #[must_use]
    pub fn key(&self) -> Option<PublicKey> {
        self.credentials.identity.as_ref().map(Identity::public)
    }

    /// Asks for a value.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn get<T: DeserializeOwned>(&self, at: &Endpoint, path: &str) -> Result<T, AskError> {
        parse(at, &self.bytes(at, path).await?)
    }

    /// Asks for text.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn text(&self, at: &Endpoint, path: &str) -> Result<String, AskError> {
        Ok(String::from_utf8_lossy(&self.bytes(at, path).await?).into_owned())
    }

    /// Asks for values, one a line.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn lines<T: DeserializeOwned>(&self, at: &Endpoint, path: &str) -> Result<Vec<T>, AskError> {
        let bytes = self.bytes(at, path).await?;
        bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(|line| parse(at, line)).collect()
    }

    /// Gives an order.
    ///
    /// # Errors
    /// [`AskError`]; a late answer may mean that the order was taken.
    pub async fn order<B: Serialize>(&self, at: &Endpoint, path: &str, body: &B) -> Result<Done, AskError> {
        self.order_within(at, path, body, self.order_timeout()).await
    }

    /// Gives an order that may take this long.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn order_within<B: Serialize>(
        &self,
        at: &Endpoint,
        path: &str,
        body: &B,
        limit: Duration,
    ) -> Result<Done, AskError> {
        self.post(at, path, body, limit).await
    }

    /// The same over a connection that is open already. Where it has broken meanwhile, or there is none, over a new one:
    /// for orders that may be given twice.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn order_over<B: Serialize>(
        &self,
        open: Option<Open>,
        at: &Endpoint,
        path: &str,
        body: &B,
        limit: Option<Duration>,
    ) -> Result<Done, AskError> {
        let limit = limit.unwrap_or(self.order_timeout());
        let began = Instant::now();
        if let Some(open) = open {
            let request = self.order_to(at, path, body)?;
            let answer = timely(at, limit, async {
                let (response, _line) = self.send_over(at, open, request).await?;
                whole(at, response).await
            });
            match answer.await {
                Err(AskError::Broken { .. }) => {}
                // The host that is meant is elsewhere.
                Err(error) if error.is_of_another_host() => {}
                answer => return parse(at, &answer?),
            }
        }
        self.order_within(at, path, body, limit.saturating_sub(began.elapsed())).await
    }

    /// Sends a body and hears a value, which may take this long.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        at: &Endpoint,
        path: &str,
        body: &B,
        limit: Duration,
    ) -> Result<T, AskError> {
        let name = self.names.get(at);
        let ordered = async |at: &Endpoint| {
            let request = order_for(name, at, path, body)?;
            timely(at, limit, async {
                let (response, _line) = self.send(at, request).await?;
                whole(at, response).await
            })
            .await
        };
        let mut answer = ordered(at).await;
        if answer.as_ref().is_err_and(AskError::is_of_another_host) {
            // Another host has that address now, and the one that is meant has not moved there yet.
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
                // Two hosts that swap their addresses are there in a moment.
                let source = io::Error::other("another host answers there, and none at its address before");
                answer = Err(AskError::Connect { endpoint: at.clone(), source });
            }
        }
        parse(at, &answer?)
    }

    /// A request with a body, to the host that is meant.
    fn order_to<B: Serialize>(&self, at: &Endpoint, path: &str, body: &B) -> Result<Request<Full<Bytes>>, AskError> {
        order_for(self.names.get(at), at, path, body)
    }

    /// Begins to watch a daemon, which tells its status with each change. One of the version before does not.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn watch(&self, at: &Endpoint, of: StatusOf) -> Result<Changes, AskError> {
        let path = match of {
            StatusOf::All => "/v1/events?status=all".to_owned(),
            StatusOf::Restless => format!("/v1/events?status=restless&waiting={MOST_WAITING}"),
        };
        timely(at, self.timeout, async {
            let (response, line) = self.send(at, request(at, Method::GET, &path, Bytes::new())?).await?;
            if response.status() != StatusCode::OK {
                whole(at, response).await?;
                return Err(not_understood(at, "a success without events"));
            }
            Ok(Changes { at: at.clone(), body: response.into_body(), read: Vec::new(), searched: 0, _line: line })
        })
        .await
    }

    /// Opens a connection for one request.
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
        // Only over TLS is it told who we are, and only to one who holds the host's key.
        if let (Endpoint::Tls(..), Some(token)) = (at, &self.credentials.token) {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        Ok((sender.send_request(request).await.map_err(|e| self.fault(at, &e))?, line))
    }

    /// Connects to a host: where it is or, if it is not there, where it was before.
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
            // Slow, and nowhere else.
            None => self.connect_to(at).await,
        }
    }

    async fn connect_to(&self, at: &Endpoint) -> Result<Open, AskError> {
        let refused = |source| AskError::Connect { endpoint: at.clone(), source };
        match at {
            Endpoint::Unix(path) => self.over(at, UnixStream::connect(path).await.map_err(refused)?).await,
            Endpoint::Tcp(address) => self.over(at, TcpStream::connect(address).await.map_err(refused)?).await,
            Endpoint::Tls(address, keys) => {
                let identity = self.credentials.identity.as_ref();
                let settings = tls::client(identity, keys, tls::HTTP).map_err(|e| refused(io::Error::other(e)))?;
                let stream = TcpStream::connect(address).await.map_err(refused)?;
                let stream = TlsConnector::from(settings).connect(tls::name(), stream).await;
                self.over(at, stream.map_err(|e| self.fault(at, &e))?).await
            }
        }
    }

    async fn over<S>(&self, at: &Endpoint, stream: S) -> Result<Open, AskError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.fault(at, &e))?;
        let line = Line(tokio::spawn(async move {
            // Its error reaches the one who waits for the answer.
            let _ = connection.await;
        }));
        Ok(Open { sender, line, at: at.clone() })
    }

    /// Why a connection broke off: for want of a key, or otherwise.
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

/// A connection that waits for its request.
#[derive(Debug)]
pub struct Open {
    sender: http1::SendRequest<Full<Bytes>>,
    line: Line,
    /// Where it leads.
    at: Endpoint,
}

/// The changes of one daemon, as it tells them.
#[derive(Debug)]
pub struct Changes {
    at: Endpoint,
    body: Incoming,
    /// Of an event that has not ended yet.
    read: Vec<u8>,
    /// So much of it has been searched for its end.
    searched: usize,
    _line: Line,
}

impl Changes {
    /// Waits for the next sign of life: a change, with the status where the daemon tells it, or a comment that there was
    /// none. None: the daemon has ended the connection.
    ///
    /// # Errors
    /// [`AskError`], when what it tells is not understood, or does not end.
    pub async fn next(&mut self) -> Result<Option<Option<HostStatus>>, AskError> {
        loop {
            let unsearched = self.read.get(self.searched..).unwrap_or_default();
            if let Some(end) = unsearched.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.read.drain(..self.searched + end + 2).collect();
                self.searched = 0;
                return self.told(&event).map(Some);
            }
            self.searched = self.read.len().saturating_sub(1);
            match self.body.frame().await {
                Some(Ok(frame)) => self.read.extend(frame.into_data().unwrap_or_default()),
                Some(Err(_)) | None => return Ok(None),
            }
            if self.read.len() > MAX_ANSWER {
                return Err(AskError::TooLong { endpoint: self.at.clone() });
            }
        }
    }

    /// An event of `text/event-stream` (HTML, 9.2.6) with all its data in one line, as daemons write it.
    fn told(&self, event: &[u8]) -> Result<Option<HostStatus>, AskError> {
        let data = event.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"data:"));
        Ok(data.map(|data| parse::<Change>(&self.at, data)).transpose()?.and_then(|change| change.status))
    }
}

/// The task that moves a connection's bytes: it ends with its user.
#[derive(Debug)]
struct Line(JoinHandle<()>);

impl Drop for Line {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A request with a body, to the host that is meant.
fn order_for<B: Serialize>(
    name: Option<&HostName>,
    at: &Endpoint,
    path: &str,
    body: &B,
) -> Result<Request<Full<Bytes>>, AskError> {
    let body = serde_json::to_vec(body).map_err(|e| not_understood(at, &e.to_string()))?;
    let mut request = request(at, Method::POST, path, Bytes::from(body))?;
    // Names are words of letters, digits and a few signs.
    if let Some(name) = name.and_then(|name| header::HeaderValue::from_str(name.as_str()).ok()) {
        request.headers_mut().insert(MEANT_FOR, name);
    }
    Ok(request)
}

/// How a host is called at an address.
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

/// What TLS says, somewhere in a chain of errors.
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
        Endpoint::Tls(..) | Endpoint::Tcp(_) | Endpoint::Unix(_) => "one that the model does not name".to_owned(),
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
        Ok(said) => {
            Err(AskError::Refused { status: status.as_u16(), error: clean(&said.error), hint: clean(&said.hint) })
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
