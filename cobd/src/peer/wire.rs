//! A wire: whole frames to and from another host, over a pair of `zeromq` sockets.
//!
//! Each end has a DEALER, and a relay between the DEALER and the connection. Wires share no state, so a host can't
//! affect the wire of another. This is the only module that knows `zeromq`.
//!
//! Limits of `zeromq` =0.7.0: it queues 100,000 messages before it slows down a sender, so [`Wire::backlog`] tells how
//! many bytes still wait; and it waits forever on a connection that ended cleanly, so the relay's end is decisive.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite};
use zeromq::{DealerRecvHalf, DealerSendHalf, DealerSocket, Socket, SocketOptions, SocketRecv, SocketSend, ZmqError};

use super::guard::Guard;
use super::relay::{Outflow, RelayEnd, relay};
use super::socket_dir::SocketDir;
use super::task::Owned;

/// The bytes that a DEALER sends before its first message: the greeting, and a READY with its socket type.
const HANDSHAKE_BYTES: u64 = 64 + 30;
/// How long to wait for the relay's own reason if `zeromq` fails first.
const REASON_TIME: Duration = Duration::from_millis(20);
/// How often the runtime may check for new input before a wire counts as read to its end.
const LAST_LOOKS: usize = 3;

/// A connection on which both DEALERs have shaken hands. Dropping it closes it; it can't be used after its end.
pub(super) struct Wire {
    send: DealerSendHalf,
    recv: DealerRecvHalf,
    relay: Owned<RelayEnd>,
    outflow: Arc<Outflow>,
    handed_over: u64,
    end: Option<WireEnd>,
}

/// The reason why a wire ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireEnd {
    #[error(transparent)]
    Relay(#[from] RelayEnd),
    #[error("zeromq failed: {0}")]
    Zmq(#[from] ZmqError),
    #[error("no socket to be had for it: {0}")]
    Socket(#[from] std::io::Error),
    #[error("it came to a defect of the program: {0}")]
    Panic(#[from] tokio::task::JoinError),
}

impl Wire {
    /// Shakes hands over a stream. Returns when the other side's handshake is complete. The caller limits the time;
    /// `time` only keeps `zeromq` from further attempts after that.
    pub(super) async fn open<S>(
        stream: S,
        sockets: &SocketDir,
        max_frame: usize,
        time: Duration,
    ) -> Result<Self, WireEnd>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (listener, name) = sockets.bind()?;
        let outflow = Arc::new(Outflow::default());
        let mut relay = Owned::spawn(relay(listener, stream, Guard::new(max_frame), outflow.clone()));
        let mut options = SocketOptions::default();
        options.connect_timeout(time);
        let mut socket = DealerSocket::with_options(options);
        tokio::select! {
            biased;
            end = &mut relay => return Err(end?.into()),
            connected = socket.connect(name.endpoint()) => if let Err(error) = connected {
                return Err(reason(&mut relay, error).await);
            },
        }
        let (send, recv) = socket.split();
        Ok(Self { send, recv, relay, outflow, handed_over: HANDSHAKE_BYTES, end: None })
    }

    /// Queues a frame to be sent. Never waits long: see [`Wire::backlog`].
    pub(super) async fn send(&mut self, frame: Vec<u8>) -> Result<(), WireEnd> {
        let header = if frame.len() > 255 { 9 } else { 2 };
        self.handed_over += header + frame.len() as u64;
        match self.send.send(frame.into()).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.reason(error).await),
        }
    }

    /// The next frame; safe to cancel. Frames that arrived before the end are returned first.
    pub(super) async fn next(&mut self) -> Result<Bytes, WireEnd> {
        if self.end.is_none() {
            tokio::select! {
                biased;
                message = self.recv.recv() => return match message {
                    Ok(message) => Ok(only_frame(message)),
                    Err(error) => Err(self.reason(error).await),
                },
                end = &mut self.relay => self.end = Some(end.map_or_else(WireEnd::from, WireEnd::from)),
            }
        }
        for _ in 0..LAST_LOOKS {
            tokio::task::yield_now().await;
            if let Some(frame) = self.ready() {
                return Ok(frame);
            }
        }
        // Taken only here, so that a cancelled call leaves it for the next.
        Err(self.end.take().unwrap_or(WireEnd::Relay(RelayEnd::Closed)))
    }

    /// The next frame if it has already arrived.
    pub(super) fn ready(&mut self) -> Option<Bytes> {
        match self.recv.recv().now_or_never() {
            Some(Ok(message)) => Some(only_frame(message)),
            // `next` reports the failure again, with its reason.
            Some(Err(_)) | None => None,
        }
    }

    /// The next frame if `reads`, else only the end; safe to cancel.
    pub(super) async fn next_if(&mut self, reads: bool) -> Result<Bytes, WireEnd> {
        if reads {
            return self.next().await;
        }
        Err(match self.end.take() {
            Some(end) => end,
            None => (&mut self.relay).await.map_or_else(WireEnd::from, WireEnd::from),
        })
    }

    /// Bytes that were queued but have not left for the other host.
    pub(super) fn backlog(&self) -> u64 {
        self.handed_over.saturating_sub(self.outflow.bytes())
    }

    /// Notifies when a part of the backlog has left.
    pub(super) fn outflow(&self) -> Arc<Outflow> {
        self.outflow.clone()
    }

    /// Waits until the whole backlog has left, or the wire has ended.
    pub(super) async fn flush(&mut self) {
        while self.end.is_none() && self.backlog() > 0 {
            tokio::select! {
                () = self.outflow.moved.notified() => {}
                end = &mut self.relay => self.end = Some(end.map_or_else(WireEnd::from, WireEnd::from)),
            }
        }
    }

    async fn reason(&mut self, error: ZmqError) -> WireEnd {
        match self.end.take() {
            Some(end) => end,
            None => reason(&mut self.relay, error).await,
        }
    }
}

/// The reason why a connection failed: if the relay ended it, the relay's reason is more precise than the error of
/// `zeromq`.
async fn reason(relay: &mut Owned<RelayEnd>, error: ZmqError) -> WireEnd {
    match tokio::time::timeout(REASON_TIME, relay).await {
        Ok(Ok(RelayEnd::Local(_))) | Err(_) => error.into(),
        Ok(Ok(end)) => end.into(),
        Ok(Err(panic)) => panic.into(),
    }
}

/// The frame validator lets only messages of one frame through.
fn only_frame(message: zeromq::ZmqMessage) -> Bytes {
    message.into_vecdeque().pop_front().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::super::testing::{dealer_handshake, within};
    use super::*;

    async fn open(max_frame: usize) -> (Wire, DuplexStream, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("folder");
        let sockets = SocketDir::open(folder.path()).expect("opens");
        let (near, mut far) = duplex(1000);
        far.write_all(&dealer_handshake()).await.expect("writes");
        let wire = within("the handshake", Wire::open(near, &sockets, max_frame, Duration::from_secs(5))).await;
        (wire.expect("opens"), far, folder)
    }

    #[tokio::test]
    async fn the_backlog_counts_the_unsent_bytes() {
        let (mut wire, mut far, _folder) = open(1000).await;
        for len in [0, 1, 255, 256, 100_000] {
            wire.send(vec![7; len]).await.expect("queued");
        }
        let frames = 2 + 3 + 257 + 265 + 100_009;
        assert!(wire.backlog() >= frames, "{}: nobody reads", wire.backlog());
        let mut bytes = vec![0; (HANDSHAKE_BYTES + frames) as usize];
        let (read, ()) = tokio::join!(far.read_exact(&mut bytes), within("the flush", wire.flush()));
        read.expect("reads");
        assert_eq!(wire.backlog(), 0);
        assert_eq!(bytes[..HANDSHAKE_BYTES as usize], dealer_handshake(), "the first message of zeromq");
    }

    #[tokio::test]
    async fn frames_received_before_the_end_are_read_before_it() {
        let (mut wire, mut far, _folder) = open(1000).await;
        far.write_all(b"\x00\x01a\x00\x01b").await.expect("writes");
        drop(far);
        assert_eq!(within("a frame", wire.next()).await.expect("a"), "a");
        assert_eq!(within("a frame", wire.next()).await.expect("b"), "b");
        let end = within("the end", wire.next()).await.expect_err("the end");
        assert_eq!(end.to_string(), "the other side closed the connection");
    }

    #[tokio::test]
    async fn a_refusal_gives_its_reason() {
        let (mut wire, mut far, _folder) = open(1000).await;
        far.write_all(b"\x02\0\0\0\0\0\0\x03\xe9").await.expect("writes");
        let end = within("the end", wire.next_if(false)).await.expect_err("the end");
        assert_eq!(end.to_string(), "refused before it reached us: a frame of 1001 bytes; at most 1000 are allowed");
    }

    #[tokio::test]
    async fn a_broken_handshake_ends_the_opening_at_once() {
        let folder = tempfile::tempdir().expect("folder");
        let sockets = SocketDir::open(folder.path()).expect("opens");
        let (near, mut far) = duplex(1000);
        far.write_all(&dealer_handshake()[..70]).await.expect("writes");
        drop(far);
        let opened = within("the end", Wire::open(near, &sockets, 1000, Duration::from_secs(60))).await;
        assert!(matches!(opened.err(), Some(WireEnd::Relay(_))), "either direction may notice first");
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
    }
}
