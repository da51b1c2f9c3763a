//! Connections: their sources, their number and their duration.
//!
//! This module owns the Unix socket; TCP connections are accepted elsewhere (peers and the API share one port of the
//! daemon) and handed over. A connection carries a single request: so the number of connections and their duration
//! bound the resources of a client.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tower::ServiceExt;

use super::api::{Api, Caller};
use super::slots::Place;
use super::standing::Standing;
use super::table::router;
use crate::peer::HttpStream;

/// The longest time until the head of a request has arrived.
const HEAD: Duration = Duration::from_secs(10);
/// The longest duration of a connection that does not watch: longer than an order takes.
const CONNECTION: Duration = Duration::from_secs(120);
/// The longest accepted head of a request.
const MAX_HEAD: usize = 16 << 10;
/// The pause after a connection could not be accepted (mostly: no file descriptor is left).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Why the Unix socket can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another daemon answers at the socket.
    #[error("another daemon answers at {}: stop it first, or give this daemon its own socket", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path is not a socket.
    #[error("{} is no socket: it is left alone; move it away or name another socket", path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// The system call failed.
    #[error("the socket {} can't be made: {source}{}", path.display(), socket_remedy(source, path))]
    Io {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The remedy if the socket can't be made.
fn socket_remedy(error: &io::Error, path: &Path) -> String {
    let folder = path.parent().unwrap_or(path).display();
    let kind = error.kind();
    if kind == io::ErrorKind::NotFound {
        format!(
            "; there is no folder {folder}: make it (with systemd: `RuntimeDirectory=`), or set `http` in cobd.toml"
        )
    } else if kind == io::ErrorKind::PermissionDenied {
        format!("; this user may not write in {folder}: run cobd as root, or set `http` in cobd.toml")
    } else if kind == io::ErrorKind::InvalidInput {
        "; the path of a socket has at most 107 bytes: set `http` in cobd.toml to a shorter path".to_owned()
    } else {
        String::new()
    }
}

/// The API with its routes: built once for many connections, because that takes as long as an answer.
#[derive(Debug, Clone)]
pub struct Front {
    pub(crate) api: Api,
    routes: Router,
}

impl From<Api> for Front {
    fn from(api: Api) -> Self {
        Self { routes: router(api.clone()), api }
    }
}

/// The bound Unix socket of the API: only its owner may connect.
#[derive(Debug)]
pub struct UnixServer {
    listener: UnixListener,
    /// Drops after the listener: the name is removed last.
    name: SocketName,
}

/// Binds the Unix socket and serves it until the returned future is dropped.
///
/// # Errors
/// [`ServeError`] if the socket can't be bound.
pub async fn serve_unix(path: &Path, api: Api) -> Result<(), ServeError> {
    UnixServer::bind(path).await?.run(api).await;
    Ok(())
}

impl UnixServer {
    /// Binds the socket with mode 0600. Replaces the socket file of a dead daemon, but not a socket at which a daemon
    /// answers.
    ///
    /// # Errors
    /// [`ServeError`] names the obstacle.
    pub async fn bind(path: &Path) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Io { path: path.to_owned(), source };
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(ServeError::NoSocket { path: path.to_owned() }),
            Ok(_) => match UnixStream::connect(path).await {
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {}
                Ok(_) => return Err(ServeError::InUse { path: path.to_owned() }),
                Err(e) => return Err(failed(e)),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(e)),
        }
        // Bound inside a private folder and renamed: at no moment can other users connect, and the old name is replaced
        // in one step.
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let private = tempfile::Builder::new().prefix(".s").rand_bytes(4).tempdir_in(folder).map_err(failed)?;
        let inner = private.path().join("s");
        let listener = UnixListener::bind(&inner).map_err(failed)?;
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let inode = std::fs::symlink_metadata(&inner).map_err(failed)?.ino();
        std::fs::rename(&inner, path).map_err(failed)?;
        Ok(Self { listener, name: SocketName { path: path.to_owned(), inode } })
    }

    /// Serves until the returned future is dropped, which removes the socket's name.
    pub async fn run(self, front: impl Into<Front>) {
        let front = front.into();
        loop {
            let Some(place) = front.api.places.local().await else { return };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(socket = %self.name.path.display(), %error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                    continue;
                }
            };
            let Ok(peer) = stream.peer_cred() else { continue };
            let front = front.clone();
            tokio::spawn(async move {
                connection(stream, front, Caller::Unix { uid: peer.uid() }, place).await;
            });
        }
    }
}

/// Removes the socket's name, if it still belongs to this socket.
#[derive(Debug)]
struct SocketName {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketName {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // The next daemon detects and replaces a stale name.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Serves one request on a TCP connection that was accepted elsewhere and not yet read.
pub async fn serve_connection(stream: HttpStream, front: impl Into<Front>) {
    let front = front.into();
    let api = &front.api;
    let place = match &stream {
        HttpStream::Plain(stream) => match stream.peer_addr() {
            Ok(peer) => api.places.unknown(peer.ip()),
            Err(_) => return,
        },
        HttpStream::Tls { key: Some(key), .. } if api.access().is_operator(key) => api.places.known(),
        HttpStream::Tls { peer, .. } => api.places.unknown(peer.ip()),
    };
    let Some(place) = place else {
        tracing::debug!("too many connections to the API: a connection is closed unanswered");
        return;
    };
    match stream {
        HttpStream::Plain(stream) => {
            let Ok(peer) = stream.peer_addr() else { return };
            connection(stream, front, Caller::Tcp { peer }, place).await;
        }
        HttpStream::Tls { stream, peer, key } => {
            connection(*stream, front, Caller::Tls { peer, key }, place).await;
        }
    }
}

/// Set by a request with an endless answer.
#[derive(Debug, Clone, Default)]
pub(super) struct LongLived(Arc<AtomicBool>);

impl LongLived {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

async fn connection<S>(stream: S, Front { api, routes }: Front, caller: Caller, place: Place)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (long_lived, standing) = (LongLived::default(), Standing::new(caller.clone()));
    let (flag, let_in, noted) = (long_lived.clone(), place.let_in(), standing.clone());
    let changes = api.access_changes();
    let from = format!("{caller}");
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(flag.clone());
        request.extensions_mut().insert(let_in.clone());
        request.extensions_mut().insert(noted.clone());
        routes.clone().oneshot(request)
    });
    let serving = http1::Builder::new()
        .keep_alive(false)
        .half_close(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let deadline = async {
        tokio::time::sleep(CONNECTION).await;
        if long_lived.is_set() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        served = serving => if let Err(error) = served {
            tracing::debug!(%error, "a connection to the API broke off");
        },
        () = deadline => tracing::debug!("a connection to the API took too long"),
        () = place.needed() => tracing::debug!("an idle connection to the API made room for another"),
        why = standing.lost(changes) => tracing::info!(from, "a connection to the API is cut: {}", why.error),
    }
}
