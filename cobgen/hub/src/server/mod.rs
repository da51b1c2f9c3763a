//! The HTTP API of the hub: JSON over HTTP/1.1, on a Unix socket and on a loopback address.
//!
//! Whoever may open the socket owns the hub, and is the super administrator `root`. Every other caller sends a token.
//!
//! ```text
//! mod (listeners) ── serve (connections) ── access (who asks) ── table (what) ── routes (how) ── answer (refusals)
//!                                                                  └── openapi (the description)
//! ```

mod access;
mod answer;
mod arguments;
mod openapi;
mod parameters;
mod routes;
mod serve;
mod table;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use cob_api_server::OwnerSocket;
use tokio::net::TcpListener;
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
    let unix = OwnerSocket::bind(socket).await?;
    let router = |door: Door| {
        let hub = hub.clone();
        let routes = table::router().layer(from_fn_with_state((hub.clone(), door), admit));
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
    if broken {
        bail!("the hub stops: see its log");
    }
    Ok(())
}
