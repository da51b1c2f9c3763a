//! The server of an HTTP API, for the daemon and for the hub: the Unix socket of an owner, connections with limits, and
//! the description of the routes.
//!
//! A connection carries a single request: so the number of connections and their duration bound the resources of a
//! client.

pub mod described;
pub mod page;
mod socket;

pub use socket::{OwnerSocket, SocketError};

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::{Service, ServiceExt as _};

/// The pause after a connection could not be accepted (mostly: no file descriptor is left).
pub const ACCEPT_REST: Duration = Duration::from_millis(100);
/// The longest time until the head of a request has arrived.
const HEAD: Duration = Duration::from_secs(10);
/// The longest accepted head of a request.
const MAX_HEAD: usize = 16 << 10;

/// Serves the only request of a connection. `prepare` may add extensions to the request.
///
/// # Errors
/// The connection broke off, or its bytes are not HTTP.
pub async fn serve_request<S, R>(stream: S, routes: R, prepare: impl Fn(&mut Request)) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    R: Service<Request, Response = Response, Error = Infallible> + Clone,
{
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        prepare(&mut request);
        routes.clone().oneshot(request)
    });
    http1::Builder::new()
        .keep_alive(false)
        .half_close(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await
}
