//! Requests to the members of etcd: HTTP/1.1 with JSON, over connections that are used again.
//!
//! A request goes to the member that answered last; if that member can't be reached, to the next. [`Failed`] tells
//! whether etcd may have received a request, which decides whether it may be sent again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Deserializer};
use tokio::net::TcpStream;

/// The longest answer.
const MAX_ANSWER: usize = 32 << 20;
/// The most idle connections to a member.
const MAX_IDLE: usize = 16;
/// How often each member is asked before a request fails.
const ROUNDS: usize = 2;
/// The pause before the members are asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Statuses of gRPC.
pub(super) const NOT_FOUND: u32 = 5;
pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
pub(super) const OUT_OF_RANGE: u32 = 11;
/// Statuses after which nothing was done: also an invalid argument, missing rights, a wrong state, a missing login.
const NOTHING_DONE: [u32; 7] = [3, NOT_FOUND, 7, RESOURCE_EXHAUSTED, 9, OUT_OF_RANGE, 16];

/// Why a request has no answer, or a bad answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// No member has received it.
    NotSent(String),
    /// A member may have received it.
    Lost(String),
    /// A member has refused it, and has done nothing.
    Refused(Refused),
    /// The answer is longer than [`MAX_ANSWER`].
    TooLong,
}

/// The refusal of a member.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// A status of gRPC.
    pub(super) code: u32,
    pub(super) message: String,
}

/// A refusal in JSON: the text has one of two names, and both in some versions.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RefusedReply {
    #[serde(alias = "grpc_code")]
    code: u32,
    message: String,
    error: String,
}

impl<'de> Deserialize<'de> for Refused {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let RefusedReply { code, message, error } = RefusedReply::deserialize(from)?;
        Ok(Self { code, message: if message.is_empty() { error } else { message } })
    }
}

/// The members.
#[derive(Debug)]
pub(super) struct Members {
    all: Vec<Member>,
    /// The member that is asked first.
    first: AtomicUsize,
    timeout: Duration,
}

#[derive(Debug)]
struct Member {
    /// Host and port.
    authority: String,
    idle: Mutex<Vec<Sender>>,
}

type Sender = SendRequest<Full<Bytes>>;

/// An answer.
enum Answer {
    Whole(Bytes),
    Endless(Stream),
}

/// An answer that goes on until it is dropped.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) body: Incoming,
    /// The number of the member.
    pub(super) member: usize,
    /// The connection ends with it.
    _sender: Sender,
}

impl Members {
    pub(super) fn new(authorities: Vec<String>, timeout: Duration) -> Self {
        let member = |authority| Member { authority, idle: Mutex::default() };
        Self { all: authorities.into_iter().map(member).collect(), first: AtomicUsize::new(0), timeout }
    }

    /// Posts a request. `repeatable`: it does no harm if etcd does it twice.
    pub(super) async fn post(&self, path: &str, body: Bytes, repeatable: bool) -> Result<Bytes, Failed> {
        match self.in_turn(path, body, repeatable, false).await? {
            Answer::Whole(body) => Ok(body),
            Answer::Endless(_) => unreachable!("it was not asked for"),
        }
    }

    /// Posts a request whose answer is a stream.
    pub(super) async fn stream(&self, path: &str, body: Bytes) -> Result<Stream, Failed> {
        match self.in_turn(path, body, true, true).await? {
            Answer::Endless(stream) => Ok(stream),
            Answer::Whole(_) => unreachable!("it was not asked for"),
        }
    }

    /// Asks a single member, and no other.
    pub(super) async fn ask(&self, member: usize, path: &str, body: Bytes) -> Result<(), Failed> {
        let sent = AtomicBool::new(false);
        let answer = tokio::time::timeout(self.timeout, self.attempt(member, path, body, false, &sent)).await;
        answer.unwrap_or_else(|_| Err(self.late(&sent))).map(drop)
    }

    /// The next request goes to another member first.
    pub(super) fn avoid(&self, member: usize) {
        let _ = self.first.compare_exchange(member, (member + 1) % self.all.len(), Relaxed, Relaxed);
    }

    /// Tries one member after the other, each within the timeout.
    async fn in_turn(&self, path: &str, body: Bytes, repeatable: bool, endless: bool) -> Result<Answer, Failed> {
        let first = self.first.load(Relaxed);
        let mut last = Failed::NotSent("no member of etcd is configured".to_owned());
        for turn in 0..ROUNDS * self.all.len() {
            if turn > 0 && turn % self.all.len() == 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let member = (first + turn) % self.all.len();
            let sent = AtomicBool::new(false);
            let attempt = self.attempt(member, path, body.clone(), endless, &sent);
            let answer = tokio::time::timeout(self.timeout, attempt).await;
            let failed = match answer.unwrap_or_else(|_| Err(self.late(&sent))) {
                Err(failed @ (Failed::NotSent(_) | Failed::Lost(_))) => failed,
                answer => {
                    self.first.store(member, Relaxed);
                    return answer;
                }
            };
            self.avoid(member);
            let lost = matches!(failed, Failed::Lost(_));
            last = failed.at(&self.all[member].authority);
            if lost && !repeatable {
                break;
            }
        }
        Err(last)
    }

    async fn attempt(
        &self,
        member: usize,
        path: &str,
        body: Bytes,
        endless: bool,
        sent: &AtomicBool,
    ) -> Result<Answer, Failed> {
        let (response, sender) = self.all[member].send(path, body, sent).await?;
        let success = response.status().is_success();
        if success && endless {
            return Ok(Answer::Endless(Stream { body: response.into_body(), member, _sender: sender }));
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() { Failed::TooLong } else { Failed::Lost(error.to_string()) }
        })?;
        let body = body.to_bytes();
        self.all[member].keep(sender);
        if success { Ok(Answer::Whole(body)) } else { Err(refused(&body)) }
    }

    fn late(&self, sent: &AtomicBool) -> Failed {
        let what = format!("no answer within {:?}", self.timeout);
        if sent.load(Relaxed) { Failed::Lost(what) } else { Failed::NotSent(what) }
    }
}

impl Failed {
    fn at(self, authority: &str) -> Self {
        match self {
            Failed::NotSent(what) => Failed::NotSent(format!("etcd at {authority}: {what}")),
            Failed::Lost(what) => Failed::Lost(format!("etcd at {authority}: {what}")),
            other @ (Failed::Refused(_) | Failed::TooLong) => other,
        }
    }
}

/// A refusal, unless the member does not know itself whether the request will be done.
fn refused(body: &[u8]) -> Failed {
    match serde_json::from_slice::<Refused>(body) {
        Ok(refused) if NOTHING_DONE.contains(&refused.code) => Failed::Refused(refused),
        Ok(refused) => Failed::Lost(refused.message),
        Err(_) => Failed::Lost("the answer is not that of etcd".to_owned()),
    }
}

impl Member {
    /// Sends a request over an idle or a new connection. Sets `sent` as soon as the member may have received it.
    async fn send(&self, path: &str, body: Bytes, sent: &AtomicBool) -> Result<(Response<Incoming>, Sender), Failed> {
        loop {
            let idle = self.idle().pop();
            let is_new = idle.is_none();
            let mut sender = match idle {
                Some(sender) => sender,
                None => self.connect().await.map_err(|error| Failed::NotSent(error.to_string()))?,
            };
            if sender.ready().await.is_err() {
                continue;
            }
            let request = Request::post(path)
                .header(HOST, &self.authority)
                .header(CONTENT_TYPE, "application/json")
                // A watch ends if the member has lost the others.
                .header("Grpc-Metadata-hasleader", "true")
                .body(Full::new(body.clone()))
                .map_err(|error| Failed::NotSent(error.to_string()))?;
            sent.store(true, Relaxed);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => {
                    if error.take_message().is_none() {
                        return Err(Failed::Lost(error.into_error().to_string()));
                    }
                    // The idle connection was closed: the request has not left.
                    sent.store(false, Relaxed);
                    if is_new {
                        return Err(Failed::NotSent("the connection was closed".to_owned()));
                    }
                }
            }
        }
    }

    async fn connect(&self) -> Result<Sender, Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with the sender, and with the body of the last answer.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(sender);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Sender>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_whether_anything_was_done() {
        let both = br#"{"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5}"#;
        let old = br#"{"error":"etcdserver: requested lease not found","code":5}"#;
        for body in [&both[..], old] {
            let Failed::Refused(refused) = refused(body) else { panic!("{body:?}") };
            assert_eq!((refused.code, refused.message.as_str()), (5, "etcdserver: requested lease not found"));
        }
        for body in [&br#"{"message":"etcdserver: request timed out","code":14}"#[..], b"<html>", b"{}", b""] {
            assert!(matches!(refused(body), Failed::Lost(_)), "{body:?}");
        }
    }
}
