//! What a request must be before it is looked at: from this machine, and from no foreign page.
//!
//! A browser on this machine can be made to send requests here by any page that it shows, also under
//! a name that the page's owner lets point to 127.0.0.1. So over TCP the `Host` must be a loopback
//! address (or `localhost`), an `Origin` must be ours, and an order must say that it is JSON, which a
//! page of another origin can't without being asked first (and nothing here answers that question).

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::api::Caller;
use super::wire::{Refusal, RefusalKind};

/// Lets a request through, or answers it.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    let checked = match request.extensions().get::<Caller>() {
        Some(Caller::Unix { .. }) => content_type(request.method(), request.headers()),
        Some(Caller::Tcp { peer }) => tcp(peer.ip(), &request),
        None => Err(Refusal::new(RefusalKind::Forbidden, "it is not known where this request comes from", "")),
    };
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

fn tcp(peer: IpAddr, request: &Request) -> Result<(), Refusal> {
    let forbidden = |error: String| {
        Err(Refusal::new(RefusalKind::Forbidden, error, "use the daemon's unix socket on the host itself"))
    };
    if !peer.to_canonical().is_loopback() {
        return forbidden(format!("{peer} is another machine: the API is for this one"));
    }
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Refusal::new(RefusalKind::Invalid, "one Host header is needed", ""));
    };
    let host = host.to_str().unwrap_or_default();
    if !is_loopback(host) {
        return forbidden(format!("the Host {host:?} is no loopback address"));
    }
    if let Some(target) = request.uri().authority()
        && target.as_str() != host
    {
        return forbidden(format!("the request is for {:?}, its Host is {host:?}", target.as_str()));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let ours = origin.to_str().ok().and_then(|o| o.strip_prefix("http://")).is_some_and(|o| o == host);
        if !ours {
            return forbidden(format!("a page of the origin {origin:?} may not use the API"));
        }
    }
    content_type(request.method(), headers)
}

/// `HOST` or `HOST:PORT`, where HOST is a literal loopback address or `localhost`.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    if authority.as_str().contains('@') {
        return false;
    }
    let name = authority.host();
    if name == "localhost" {
        return true;
    }
    let literal = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    literal.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn content_type(method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    if method != Method::POST {
        return Ok(());
    }
    let given = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalKind::NotJson,
        format!("an order must have the content type application/json, not {given:?}"),
        "with curl: --json '{}'",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_literal_loopback_addresses_and_localhost_are_taken() {
        for host in ["127.0.0.1", "127.0.0.1:7077", "127.8.9.1:1", "localhost", "localhost:80", "[::1]:7077", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[2001:db8::1]:80",
            "a@127.0.0.1",
            "0.0.0.0",
            "127.1/x",
            "::1",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
