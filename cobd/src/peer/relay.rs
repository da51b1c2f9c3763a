//! The relay: moves bytes between a connection to another host and the `zeromq` socket of its link.
//!
//! `zeromq` accepts no external stream, so each link's DEALER connects to a Unix socket whose other end is here. Bytes
//! from the other host pass the validator before they are written. When either side ends, both end, and the relay's end
//! is the only reliable sign that a link is gone.
//!
//! ```text
//! other host <--- TCP ---> relay + guard <--- Unix socket ---> DEALER <---> link
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

use super::guard::{Guard, Refusal};

/// The size of a piece, in bytes.
const PIECE: usize = 16 << 10;

/// How many bytes have left for the other host: so the link knows how many still wait inside `zeromq`.
#[derive(Debug, Default)]
pub(super) struct Outflow {
    bytes: AtomicU64,
    pub(super) moved: Notify,
}

/// The reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayEnd {
    #[error("the other side closed the connection")]
    Closed,
    #[error("the connection failed: {0}")]
    Failed(io::Error),
    #[error("refused before it reached us: {0}")]
    Refused(#[from] Refusal),
    #[error("the local end failed: {0}")]
    Local(io::Error),
}

impl Outflow {
    /// Bytes that have left, including the handshake.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.moved.notify_one();
    }
}

/// Accepts one connection from this process and relays until either side ends.
pub(super) async fn relay<S>(local: UnixListener, remote: S, mut guard: Guard, outflow: Arc<Outflow>) -> RelayEnd
where
    S: AsyncRead + AsyncWrite + Send,
{
    let mut local = match accept_own(local).await {
        Ok(local) => local,
        Err(error) => return RelayEnd::Local(error),
    };
    let (mut local_read, mut local_write) = local.split();
    let (mut remote_read, mut remote_write) = tokio::io::split(remote);
    let inward = async {
        let mut piece = vec![0; PIECE];
        loop {
            let read = match remote_read.read(&mut piece).await {
                Ok(read) => read,
                // Over TLS: closed without a TLS goodbye. A link has its own goodbye.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                Err(error) => return Err(RelayEnd::Failed(error)),
            };
            if read == 0 {
                return Err::<(), _>(RelayEnd::Closed);
            }
            guard.check(&piece[..read])?;
            local_write.write_all(&piece[..read]).await.map_err(RelayEnd::Local)?;
        }
    };
    let outward = async {
        let mut piece = vec![0; PIECE];
        loop {
            let read = local_read.read(&mut piece).await.map_err(RelayEnd::Local)?;
            if read == 0 {
                return Err::<(), _>(RelayEnd::Local(io::ErrorKind::UnexpectedEof.into()));
            }
            remote_write.write_all(&piece[..read]).await.map_err(RelayEnd::Failed)?;
            remote_write.flush().await.map_err(RelayEnd::Failed)?;
            outflow.add(read);
        }
    };
    let end = tokio::select! {
        end = inward => end,
        end = outward => end,
    };
    match end {
        Ok(()) => RelayEnd::Closed,
        Err(end) => end,
    }
}

/// Accepts the first connection from this same process: with any mode of the folder, no other process can replace our
/// `zeromq`.
async fn accept_own(listener: UnixListener) -> io::Result<UnixStream> {
    let own = i32::try_from(std::process::id()).ok();
    loop {
        let (stream, _) = listener.accept().await?;
        let pid = stream.peer_cred()?.pid();
        if pid.is_some() && pid == own {
            return Ok(stream);
        }
        tracing::warn!("a foreign process (pid {pid:?}) reached for the socket of a link and was sent away");
    }
}
