//! Connections: their sources, their number and their duration.
//!
//! TCP connections are accepted elsewhere (peers and the API share one port of the
//! daemon) and handed over. A connection carries a single request: so the number of connections and their duration
//! bound the resources of a client.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use cob_api_server::{ACCEPT_REST, OwnerSocket, SocketError, serve_request};
use tokio::io::{AsyncRead, AsyncWrite};

use super::api::{Api, Caller};
use super::slots::Place;
use super::standing::Standing;
use super::table::router;
use crate::peer::HttpStream;

/// The longest duration of a connection that does not watch: longer than an order takes.
const CONNECTION: Duration = Duration::from_secs(120);
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
pub struct UnixServer(OwnerSocket);

impl UnixServer {
    /// Binds the socket.
    ///
    /// # Errors
    /// [`SocketError`] names the obstacle.
    pub async fn bind(path: &Path) -> Result<Self, SocketError> {
        OwnerSocket::bind(path).await.map(Self)
    }

    /// Serves until the returned future is dropped, which removes the socket's name.
    pub async fn run(self, front: impl Into<Front>) {
        let front = front.into();
        loop {
            let Some(place) = front.api.places.local().await else { return };
            let stream = match self.0.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(socket = %self.0.path().display(), %error, "a connection could not be accepted");
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
    let serving = serve_request(stream, routes, move |request| {
        let extensions = request.extensions_mut();
        extensions.insert(caller.clone());
        extensions.insert(flag.clone());
        extensions.insert(let_in.clone());
        extensions.insert(noted.clone());
    });
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
