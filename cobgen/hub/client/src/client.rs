//! HTTP/1.1 with JSON: one connection for each request.

use std::time::Duration;

use bytes::Bytes;
use cob_hub_api::{Name, Refusal, VERSION};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::address::HubAddress;
use crate::error::CallError;

/// The longest answer, in bytes.
const LONGEST: usize = 64 << 20;
/// The longest text of an answer in a message, in characters.
const SHOWN: usize = 200;

/// The user of a client.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The token; absent for the owner of the hub at its socket.
    pub token: Option<String>,
    /// The tenant that a super administrator asks about.
    pub tenant: Option<Name>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// A client of a hub.
#[derive(Debug, Clone)]
pub struct Client {
    at: HubAddress,
    token: Option<HeaderValue>,
    tenant: Option<Name>,
    limit: Duration,
}

/// A path with its query.
pub(crate) struct Target {
    path: String,
    query: Vec<(&'static str, String)>,
}

impl Target {
    /// The path of these segments; each is escaped.
    pub(crate) fn of(segments: &[&str]) -> Self {
        let segments = segments.iter().map(|segment| escape(segment));
        Self { path: segments.fold(format!("/{VERSION}"), |path, segment| path + "/" + &segment), query: Vec::new() }
    }

    /// The same with a value in the query.
    pub(crate) fn with(mut self, key: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (key, value.to_string())));
        self
    }

    fn uri(&self, tenant: Option<&Name>) -> String {
        let tenant = tenant.map(|tenant| ("tenant", tenant.to_string()));
        let mut uri = self.path.clone();
        for (at, (key, value)) in self.query.iter().cloned().chain(tenant).enumerate() {
            uri.push(if at == 0 { '?' } else { '&' });
            uri.push_str(key);
            uri.push('=');
            uri.push_str(&escape(&value));
        }
        uri
    }
}

impl Client {
    /// A client of the hub at an address. Each request has this limit.
    ///
    /// # Errors
    ///
    /// The token has characters that no token has.
    pub fn new(at: HubAddress, credentials: Credentials, limit: Duration) -> Result<Self, CallError> {
        let token = credentials.token.map(|token| {
            let visible = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
            let value = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| visible);
            let mut value = value.ok_or(CallError::BadToken)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self { at, token: token.transpose()?, tenant: credentials.tenant, limit })
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> &HubAddress {
        &self.at
    }

    /// The tenant that the requests name.
    #[must_use]
    pub fn tenant(&self) -> Option<&Name> {
        self.tenant.as_ref()
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, target: &Target) -> Result<T, CallError> {
        self.read(&self.send(Method::GET, target, None).await?)
    }

    /// All pages of a list. A page begins after the last entry of the page before; the last page has fewer than `most`
    /// entries.
    pub(crate) async fn all_pages<T: DeserializeOwned>(
        &self,
        most: usize,
        target: impl Fn(Option<&T>) -> Target,
    ) -> Result<Vec<T>, CallError> {
        let mut all: Vec<T> = Vec::new();
        loop {
            let page: Vec<T> = self.get(&target(all.last())).await?;
            let is_last = page.len() < most;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    pub(crate) async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &Target,
        body: &impl Serialize,
    ) -> Result<T, CallError> {
        self.read(&self.send(method, target, Some(self.body(body)?)).await?)
    }

    /// Sends a request whose answer has no body.
    pub(crate) async fn order(
        &self,
        method: Method,
        target: &Target,
        body: Option<&impl Serialize>,
    ) -> Result<(), CallError> {
        let body = body.map(|body| self.body(body)).transpose()?;
        self.send(method, target, body).await.map(drop)
    }

    pub(crate) async fn send_bytes<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &Target,
        body: Option<Bytes>,
    ) -> Result<T, CallError> {
        self.read(&self.send(method, target, body).await?)
    }

    fn body(&self, body: &impl Serialize) -> Result<Bytes, CallError> {
        serde_json::to_vec(body).map(Bytes::from).map_err(|e| self.not_understood(&e.to_string()))
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, CallError> {
        serde_json::from_slice(body).map_err(|e| self.not_understood(&e.to_string()))
    }

    fn not_understood(&self, what: &str) -> CallError {
        CallError::NotUnderstood { at: self.at.clone(), what: what.chars().take(SHOWN).collect() }
    }

    async fn send(&self, method: Method, target: &Target, body: Option<Bytes>) -> Result<Bytes, CallError> {
        let late = CallError::Late { at: self.at.clone(), limit: self.limit };
        tokio::time::timeout(self.limit, self.exchange(method, target, body)).await.unwrap_or(Err(late))
    }

    async fn exchange(&self, method: Method, target: &Target, body: Option<Bytes>) -> Result<Bytes, CallError> {
        let mut request =
            Request::builder().method(method).uri(target.uri(self.tenant.as_ref())).header(HOST, self.at.authority());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body.unwrap_or_default()));
        let request = request.map_err(|e| self.not_understood(&e.to_string()))?;
        let (mut sender, connection) =
            handshake(TokioIo::new(self.connect().await?)).await.map_err(|e| self.broken(&e))?;
        // The request that waits for the answer gets the error of the connection.
        let line = tokio::spawn(connection);
        let answered = async {
            let response = sender.send_request(request).await.map_err(|e| self.broken(&e))?;
            self.whole(response).await
        };
        let answer = answered.await;
        line.abort();
        answer
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, CallError> {
        let stream: std::io::Result<Box<dyn Stream>> = match &self.at {
            HubAddress::Socket(path) => UnixStream::connect(path).await.map(|stream| Box::new(stream) as _),
            HubAddress::Http(address) => TcpStream::connect(address).await.map(|stream| Box::new(stream) as _),
        };
        stream.map_err(|source| CallError::Connect { at: self.at.clone(), source })
    }

    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, CallError> {
        let status = response.status();
        let body = match Limited::new(response.into_body(), LONGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Err(CallError::TooLong { at: self.at.clone() }),
            Err(error) => return Err(CallError::Broken { at: self.at.clone(), what: error.to_string() }),
        };
        if status.is_success() {
            return Ok(body);
        }
        // A router also refuses on its own, in plain text: a wrong type of a value, a body that is too long.
        let refusal = serde_json::from_slice::<Refusal>(&body);
        let refusal = match refusal {
            Ok(refusal) => refusal,
            Err(_) if status.is_client_error() => {
                let text: String = String::from_utf8_lossy(&body).trim().chars().take(SHOWN).collect();
                let error = if text.is_empty() { status.to_string() } else { text };
                Refusal { error, hint: None, faults: Vec::new() }
            }
            Err(_) => return Err(self.not_understood(&format!("the answer {status}"))),
        };
        Err(CallError::Refused { status: status.as_u16(), refusal })
    }

    fn broken(&self, error: &hyper::Error) -> CallError {
        CallError::Broken { at: self.at.clone(), what: error.to_string() }
    }
}

/// A connection's bytes. As a type of its own, it lets the HTTP client be compiled once.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A text as a segment of a path, or as a value of a query (RFC 3986, section 2.1).
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    /// The answer of a client whose hub answers with these bytes, and the request.
    async fn asked(answer: &'static [u8], limit: Duration) -> (Result<Vec<String>, CallError>, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hub.sock");
        let listener = UnixListener::bind(&path).expect("bound");
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.expect("a request");
            stream.write_all(answer).await.expect("written");
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let credentials = Credentials { token: Some("cob_1".to_owned()), tenant: Name::new("web").ok() };
        let client = Client::new(HubAddress::Socket(path), credentials, limit).expect("a client");
        let target = Target::of(&["catalogue", "a b/c"]).with("version", Some("x&y"));
        let answer = client.get(&target).await;
        let request = if matches!(answer, Err(CallError::Late { .. })) {
            server.abort();
            String::new()
        } else {
            server.await.expect("it ends")
        };
        (answer, request)
    }

    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_request_has_the_token_the_tenant_and_escaped_names() {
        let (answer, request) = asked(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n[\"a\"]", LONG).await;
        assert_eq!(answer.expect("an answer"), ["a"]);
        assert!(request.starts_with("GET /v1/catalogue/a%20b%2Fc?version=x%26y&tenant=web HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("authorization: Bearer cob_1\r\n"), "{request}");
    }

    #[tokio::test]
    async fn each_failure_says_what_happened_and_what_to_do() {
        let told = |error: &CallError| format!("{error}: {}", error.hint().unwrap_or_default());
        let (late, _) = asked(b"", Duration::from_millis(50)).await;
        assert!(told(&late.expect_err("late")).contains("did not answer within 0 s: `cobctl jobs`"));
        let (garbage, _) = asked(b"SSH-2.0-OpenSSH\r\n\r\n", LONG).await;
        assert!(matches!(garbage, Err(CallError::Broken { .. })), "{garbage:?}");
        let (html, _) = asked(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\n<p>", LONG).await;
        assert!(told(&html.expect_err("no hub")).contains("not one of a hub: the answer 502"));
        let (other, _) = asked(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", LONG).await;
        assert!(matches!(other, Err(CallError::NotUnderstood { .. })), "{other:?}");
        let refusal =
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 35\r\n\r\n{\"error\":\"no cluster\",\"hint\":\"look\"}";
        let (refused, _) = asked(&refusal[..], LONG).await;
        let refused = refused.expect_err("refused");
        assert!(!refused.is_passing());
        let nobody = HubAddress::Socket("/nonexistent/hub.sock".into());
        let client = Client::new(nobody, Credentials::default(), LONG).expect("a client");
        let error = client.get::<Vec<String>>(&Target::of(&["jobs"])).await.expect_err("nobody");
        assert_eq!(
            told(&error),
            "no hub answers at /nonexistent/hub.sock: start the hub with `cobhub serve --folder FOLDER`, or name the \
             right one with --hub"
        );
        assert!(error.is_passing());
    }

    #[test]
    fn a_token_with_blanks_is_refused() {
        let at = HubAddress::Socket("/x".into());
        for token in ["", "a b", "a\n", "ä"] {
            let credentials = Credentials { token: Some(token.to_owned()), tenant: None };
            assert!(matches!(Client::new(at.clone(), credentials, LONG), Err(CallError::BadToken)), "{token:?}");
        }
    }
}
