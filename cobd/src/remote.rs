//! The client of `cobgen serve`: a single request for each connection, with this host's key, to a server with a known
//! key.
//!
//! It blocks the caller's thread, as reading a folder does. Every length and wait has a bound; the caller must verify
//! the received bytes.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use cob_trust::tls::{HTTP, Identity, OtherKey, TlsError, client, name};
use cob_trust::{KeyFileError, SecretKey};
use cob_types::GenerationNumber;
use cob_types::generation::MAX_BUNDLE;
use cob_types::remote::{BUNDLE, GENERATIONS, Generations, MANIFEST, MAX_JSON, RemoteRefusal, SIGNATURES, path_of};
use cob_types::trust::{PublicKey, Signed};
use cob_types::words;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use hyper::header::HOST;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::AlertDescription;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

/// The time limit for a connection and its handshake.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest pause within an answer.
const SILENCE: Duration = Duration::from_secs(30);
/// The slowest accepted answer: a server that sends single bytes does not block this host for ever.
const PACE: Pace = Pace { answer: Duration::from_secs(60), least_rate: 64 << 10 };
/// The longest text of a server that is shown.
const MAX_WORDS: usize = 2048;

/// The slowest accepted answer.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// The time limit of a short answer.
    answer: Duration,
    /// The bytes that must arrive in each further second.
    least_rate: usize,
}

/// A server of generations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its address.
    pub address: SocketAddr,
    /// Its key; several keys while it gets a new key.
    pub keys: Vec<PublicKey>,
}

/// Why a server gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// No server answers.
    #[error("can't reach `cobgen serve` at tcp://{address}: {source}")]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Another server answers.
    #[error(
        "the process at tcp://{address} does not hold the key {}: it is not the server that `depot_key` (or the \
         token) names",
        list(expected)
    )]
    OtherKey {
        /// The address.
        address: SocketAddr,
        /// The expected keys.
        expected: Vec<PublicKey>,
    },
    /// The server does not know this host's key.
    #[error(
        "the server at tcp://{address} does not know this host's key {key}: it was not enrolled there (`cobgen enroll`, \
         `cobd join`), or it was revoked"
    )]
    NotKnown {
        /// The address.
        address: SocketAddr,
        /// This host's key.
        key: PublicKey,
    },
    /// The server refuses the request.
    #[error("the server at tcp://{address} refuses the request ({status}): {error}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// The HTTP status.
        status: u16,
        /// The server's text.
        error: String,
    },
    /// The answer is not from a server of this version.
    #[error("the answer of the server at tcp://{address} is not understood: {what}")]
    Strange {
        /// The address.
        address: SocketAddr,
        /// The error in the answer.
        what: String,
    },
    /// This host's own key is unusable.
    #[error("this host's key: {0} (`cobd join` and `cobd init` make a key)")]
    Key(#[from] KeyFileError),
    /// TLS can't be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A request.
#[derive(Debug)]
pub(crate) struct Question {
    /// GET or POST.
    pub(crate) method: Method,
    /// The path, with its query.
    pub(crate) path: String,
    /// The body.
    pub(crate) body: Vec<u8>,
    /// The longest accepted answer, in bytes.
    pub(crate) max: usize,
    /// The time limit until the answer begins.
    pub(crate) patience: Duration,
}

/// A server with this host's key file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The server.
    pub server: Server,
    /// The file of this host's key; the key that will replace it may be beside it.
    pub identity: PathBuf,
}

impl Remote {
    /// The newest generation.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn newest(&self) -> Result<Option<GenerationNumber>, RemoteError> {
        Ok(self.json::<Generations>(GENERATIONS.to_owned(), SILENCE)?.newest)
    }

    /// Waits for a generation newer than `after`, or until the time limit; returns the newest.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn wait(&self, after: GenerationNumber, wait: Duration) -> Result<Option<GenerationNumber>, RemoteError> {
        let path = format!("{GENERATIONS}?after={after}&wait={}", wait.as_secs());
        Ok(self.json::<Generations>(path, wait + SILENCE)?.newest)
    }

    /// The bytes of a manifest, at most `max`.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn manifest(&self, generation: GenerationNumber, max: usize) -> Result<Vec<u8>, RemoteError> {
        self.get(path_of(generation, MANIFEST), max, SILENCE)
    }

    /// The signatures over a manifest.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn signatures(&self, generation: GenerationNumber) -> Result<Vec<Signed>, RemoteError> {
        self.json(path_of(generation, SIGNATURES), SILENCE)
    }

    /// The bytes of this host's bundle.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn bundle(&self, generation: GenerationNumber) -> Result<Vec<u8>, RemoteError> {
        self.get(path_of(generation, BUNDLE), MAX_BUNDLE, SILENCE)
    }

    fn json<T: DeserializeOwned>(&self, path: String, patience: Duration) -> Result<T, RemoteError> {
        let bytes = self.get(path, MAX_JSON, patience)?;
        self.server.parse(&bytes)
    }

    /// Uses the next key, if there is one, as soon as the server knows it.
    fn get(&self, path: String, max: usize, patience: Duration) -> Result<Vec<u8>, RemoteError> {
        let question = Question { method: Method::GET, path, body: Vec::new(), max, patience };
        let ask = |file: &Path| {
            let identity = Identity::new(&SecretKey::load(file)?)?;
            self.server.ask(&identity, HTTP, &question)
        };
        let next = self.identity.with_extension("next.key");
        if next.exists() {
            match ask(&next) {
                Err(RemoteError::NotKnown { .. }) => {}
                answer => return answer,
            }
        }
        ask(&self.identity)
    }
}

impl Server {
    /// Parses a JSON answer.
    ///
    /// # Errors
    /// [`RemoteError::Strange`].
    pub(crate) fn parse<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, RemoteError> {
        let what = |e: serde_json::Error| words::foreign(&words::form(e), MAX_WORDS);
        let strange = |e| RemoteError::Strange { address: self.address, what: what(e) };
        serde_json::from_slice(bytes).map_err(strange)
    }

    /// Sends a request. It blocks, so it must not be called in tasks of a runtime.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) fn ask(&self, identity: &Identity, alpn: &[u8], question: &Question) -> Result<Vec<u8>, RemoteError> {
        let unreachable = |source| RemoteError::Unreachable { address: self.address, source };
        // A runtime of its own, in a thread of its own: the caller may have another runtime.
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unreachable)?;
                runtime.block_on(self.exchange(identity, alpn, question))
            });
            asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    async fn exchange(&self, identity: &Identity, alpn: &[u8], question: &Question) -> Result<Vec<u8>, RemoteError> {
        let address = self.address;
        let failed = |source| self.failure(identity, source);
        let slow = || failed(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        let config = client(Some(identity), &self.keys, alpn)?;
        let connect = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            TlsConnector::from(config).connect(name(), stream).await
        };
        let stream = timeout(CONNECT, connect).await.map_err(|_| slow())?.map_err(failed)?;
        let broke = |error: hyper::Error| failed(io_error(error));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
        let request = Request::builder()
            .method(question.method.clone())
            .uri(question.path.as_str())
            .header(HOST, address.to_string())
            .body(Full::new(Bytes::from(question.body.clone())))
            .map_err(|e| RemoteError::Strange { address, what: e.to_string() })?;
        let answering = async {
            let answer = timeout(question.patience, sender.send_request(request)).await.map_err(|_| slow())?;
            let answer = answer.map_err(broke)?;
            let status = answer.status();
            let room = answer.body().size_hint().exact().unwrap_or(0);
            let bytes = self.read(answer.into_body(), (question.max, room), PACE, &failed, &broke).await?;
            if status.is_success() {
                return Ok(bytes);
            }
            let refused = serde_json::from_slice::<RemoteRefusal>(&bytes);
            let error = refused.map_or_else(|_| "without a word".to_owned(), |r| words::foreign(&r.error, MAX_WORDS));
            Err(RemoteError::Refused { address, status: status.as_u16(), error })
        };
        // The connection carries the answer, and may end with it or, if it was cut, before it.
        tokio::pin!(answering);
        tokio::select! {
            biased;
            answer = &mut answering => answer,
            ended = connection => match (ended, answering.await) {
                (Err(error), Err(RemoteError::Unreachable { .. })) => Err(broke(error)),
                (_, answer) => answer,
            },
        }
    }

    /// Reads an answer of at most `max` bytes; `room`: its declared length.
    async fn read<B: Body<Data = Bytes> + Unpin>(
        &self,
        mut answer: B,
        (max, room): (usize, u64),
        pace: Pace,
        failed: &impl Fn(io::Error) -> RemoteError,
        broke: &impl Fn(B::Error) -> RemoteError,
    ) -> Result<Vec<u8>, RemoteError> {
        // A single allocation: repeated doubling would hold the answer twice.
        let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or(usize::MAX).min(max));
        let begin = Instant::now();
        loop {
            let left = pace.time_of(bytes.len()).saturating_sub(begin.elapsed());
            let late = |what| failed(io::Error::new(io::ErrorKind::TimedOut, what));
            if left.is_zero() {
                return Err(late("the answer came too slowly"));
            }
            let frame = timeout(left.min(SILENCE), answer.frame()).await;
            let frame = match frame {
                Ok(frame) => frame,
                // The next iteration reports the timeout.
                Err(_) if left < SILENCE => continue,
                Err(_) => return Err(late("the answer stopped half-way")),
            };
            let Some(frame) = frame else { return Ok(bytes) };
            let frame = frame.map_err(broke)?;
            let Some(data) = frame.data_ref() else { continue };
            if bytes.len() + data.len() > max {
                let what = format!("it is longer than {max} bytes");
                return Err(RemoteError::Strange { address: self.address, what });
            }
            bytes.extend_from_slice(data);
        }
    }

    /// Converts an error of a connection: a TLS error tells which side refused the other's key.
    fn failure(&self, identity: &Identity, source: io::Error) -> RemoteError {
        let address = self.address;
        match source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) if OtherKey::of(error).is_some() => {
                RemoteError::OtherKey { address, expected: self.keys.clone() }
            }
            Some(rustls::Error::AlertReceived(
                AlertDescription::AccessDenied
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown,
            )) => RemoteError::NotKnown { address, key: identity.public() },
            _ => RemoteError::Unreachable { address, source },
        }
    }
}

impl Pace {
    /// The time limit for an answer of which this number of bytes has arrived.
    fn time_of(self, received: usize) -> Duration {
        self.answer + Duration::from_secs((received / self.least_rate.max(1)) as u64)
    }
}

/// The error of the stream below HTTP, if there is one.
fn io_error(error: hyper::Error) -> io::Error {
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            if let Some(tls) = io.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
                return io::Error::new(io.kind(), tls.clone());
            }
            return io::Error::new(io.kind(), io.to_string());
        }
        source = inner.source();
    }
    io::Error::other(error.to_string())
}

fn list(keys: &[PublicKey]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// An answer that arrives byte by byte, without a pause and without an end.
    struct Drips;

    impl Body for Drips {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            cx.waker().wake_by_ref();
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b" ")))))
        }
    }

    fn server() -> Server {
        Server { address: "127.0.0.1:1".parse().expect("an address"), keys: Vec::new() }
    }

    async fn read(max: usize, pace: Pace) -> String {
        let server = server();
        let failed = |source| RemoteError::Unreachable { address: server.address, source };
        let broke = |never: Infallible| match never {};
        let read = server.read(Drips, (max, u64::MAX), pace, &failed, &broke).await;
        read.expect_err("it never ends").to_string()
    }

    #[tokio::test]
    async fn a_too_slow_or_too_long_answer_is_abandoned() {
        let at_once = Pace { answer: Duration::from_millis(50), least_rate: usize::MAX };
        assert!(read(64 << 20, at_once).await.contains("the answer came too slowly"));
        assert!(read(100, PACE).await.contains("longer than 100 bytes"));
        // The largest answer at the lowest rate, and a small answer.
        assert_eq!(PACE.time_of(256 << 20), Duration::from_secs(60 + 4096));
        assert_eq!(PACE.time_of(1), Duration::from_secs(60));
    }

    #[test]
    fn text_of_a_server_cannot_add_a_line_to_the_log() {
        let text = "{\"no\\n2026-01-01T00:00:00Z INFO forged\": 1}";
        let error = server().parse::<cob_types::remote::Generations>(text.as_bytes()).expect_err("strange").to_string();
        assert!(!error.contains('\n'), "{error}");
    }
}
