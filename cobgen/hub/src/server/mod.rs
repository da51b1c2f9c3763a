//! The HTTP API of the hub: JSON over HTTP/1.1, on a Unix socket and on a loopback address.
//!
//! Whoever may open the socket owns the hub, and is the super administrator `root`. Every other caller sends a token.
//!
//! ```text
//! mod (listeners) ── serve (connections) ── access (who asks) ── routes (what) ── answer (refusals)
//! ```

mod access;
mod answer;
mod routes;
mod serve;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tracing::info;

use crate::hub::Hub;
use access::{Door, admit};

/// The largest body of a request, in bytes.
const LARGEST: usize = 4 << 20;

/// Serves the API until the hub can't go on, or until `stop`.
///
/// # Errors
///
/// A listener can't be opened.
pub async fn serve(
    hub: Arc<Hub>,
    socket: &Path,
    listen: Option<SocketAddr>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let unix = bind(socket).await?;
    let router = |door: Door| {
        let hub = hub.clone();
        let routes = routes::routes().layer(from_fn_with_state((hub.clone(), door), admit));
        Router::new().merge(routes).layer(DefaultBodyLimit::max(LARGEST)).with_state(hub)
    };
    let mut serving = tokio::task::JoinSet::new();
    let local = router(Door::Socket);
    serving.spawn(serve::serve(unix, local));
    if let Some(address) = listen {
        if !address.ip().is_loopback() {
            bail!(
                "{address} is no loopback address: the API has no TLS of its own; put a proxy with TLS in front of it"
            );
        }
        let listener = TcpListener::bind(address).await.with_context(|| format!("can't listen on {address}"))?;
        info!(address = %listener.local_addr()?, "the API listens");
        let remote = router(Door::Address);
        serving.spawn(serve::serve(listener, remote));
    }
    info!(socket = %socket.display(), "the API listens");
    let broken = tokio::select! {
        () = stop => false,
        () = hub.broken() => true,
    };
    serving.shutdown().await;
    // Another hub may have replaced the socket only if this one was not there any more.
    let _ = std::fs::remove_file(socket);
    if broken {
        bail!("the hub stops: see its log");
    }
    Ok(())
}

/// Binds the Unix socket, with access for its owner only.
async fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    if path.exists() {
        if UnixStream::connect(path).await.is_ok() {
            bail!("another hub answers at {}", path.display());
        }
        std::fs::remove_file(path).with_context(|| format!("can't remove the old socket {}", path.display()))?;
    }
    // Bound in a private folder and renamed: at no moment can other users connect.
    let folder = path.parent().unwrap_or(Path::new("."));
    let private = tempfile::Builder::new().prefix(".s").tempdir_in(folder)?;
    let inner = private.path().join("s");
    let listener = UnixListener::bind(&inner).with_context(|| format!("can't make the socket {}", path.display()))?;
    std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&inner, path)?;
    Ok(listener)
}
