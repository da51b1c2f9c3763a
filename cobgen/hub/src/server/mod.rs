//! The HTTP API of the hub: JSON over HTTP/1.1, on a Unix socket and on a loopback address.
//!
//! Whoever may open the socket owns the hub, and is the super administrator `root`. Every other caller sends a token.
//!
//! ```text
//! mod (listeners) ── serve (connections) ── access (who asks) ── table (what) ── routes (how) ── answer (refusals)
//!        └── page (files of the page)              └── forward (to the hub that leads)
//!                                                                  └── openapi (the description)
//! ```

mod access;
mod answer;
mod arguments;
mod forward;
mod openapi;
mod page;
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
use axum::middleware::{from_fn, from_fn_with_state};
use cob_api_server::OwnerSocket;
use cob_api_server::page::Origins;
use tokio::net::TcpListener;
use tracing::info;

use crate::hub::Hub;
use access::{Door, admit, hurry, only_leader, sign, visit};

/// The largest body of a request, in bytes.
const LARGEST: usize = 4 << 20;
/// The largest body of a caller without a token, in bytes.
const LARGEST_OF_STRANGERS: usize = 4 << 10;

/// Serves the API until the hub can't go on, or until `stop`.
///
/// # Errors
///
/// A listener can't be opened.
pub async fn serve(
    hub: Arc<Hub>,
    socket: &Path,
    listen: Option<SocketAddr>,
    page: Option<&str>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let unix = OwnerSocket::bind(socket).await?;
    let router = |door: Door| {
        let hub = hub.clone();
        let callers = table::refusing(table::router(table::of_callers()));
        let callers = callers.layer(from_fn_with_state((hub.clone(), door.clone()), admit));
        let strangers = table::router(table::of_strangers());
        // Anyone may send these.
        let strangers = strangers.layer(from_fn_with_state(hub.clone(), only_leader));
        let strangers = strangers.layer(DefaultBodyLimit::max(LARGEST_OF_STRANGERS)).layer(from_fn(hurry));
        let pages = if door == Door::Socket { Router::new() } else { page::router() };
        let callers = callers.layer(DefaultBodyLimit::max(LARGEST));
        let all = Router::new().merge(callers).merge(strangers).merge(pages);
        let all = all.layer(from_fn_with_state(door, visit));
        all.layer(from_fn_with_state(hub.clone(), sign)).with_state(hub)
    };
    let mut serving = tokio::task::JoinSet::new();
    if hub.role().is_some() {
        serving.spawn(forward::serve(hub.clone()));
    }
    let local = router(Door::Socket);
    serving.spawn(serve::serve(unix, local));
    if let Some(address) = listen {
        if !address.ip().is_loopback() {
            bail!(
                "{address} is no loopback address: the API has no TLS of its own; put a proxy with TLS in front of it"
            );
        }
        let listener = TcpListener::bind(address).await.with_context(|| format!("can't listen on {address}"))?;
        let address = listener.local_addr()?;
        let mut origins = Origins::loopback(address.port());
        if let Some(page) = page {
            origins.add(page)?;
        }
        info!(%address, "the API listens");
        let remote = router(Door::Address { own: Arc::new(origins), behind_proxy: page.is_some() });
        serving.spawn(serve::serve(listener, remote));
    }
    info!(socket = %socket.display(), "the API listens");
    let broken = tokio::select! {
        () = stop => false,
        () = hub.broken() => true,
    };
    serving.shutdown().await;
    hub.leave().await;
    if broken {
        bail!("the hub stops: see its log");
    }
    Ok(())
}
