//! Admission of requests: the caller has the necessary role, and the request does not come from a foreign page.
//!
//! Any page can make a browser send requests here, also under a name that the page's owner points to this host. So over
//! TCP the `Host` must be a loopback address (or `localhost`) or, under TLS, an address of this host; an `Origin` must
//! be ours; and an order must declare that it is JSON: for a page of another origin, the browser must ask for
//! permission first, and the daemon never grants it. No page needs the Unix socket, but `ssh -L` can make a port of the
//! socket: it serves no browser.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cob_types::HostName;
use cob_types::api::{MEANT_FOR, RefusalCode};
use cob_types::status::KnownGenerations;
use cob_types::trust::Role;

use super::access::{Access, Proof, Token, Who};
use super::api::{Api, Caller};
use super::refusal::{Refusal, RefusalKind};
use super::slots::Admission;
use super::standing::Standing;
use super::table::Roles;

/// Passes an admitted request on, or answers it.
pub(super) async fn guard(State((api, roles)): State<(Api, Arc<Roles>)>, mut request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let route = roles.of_route(request.method(), path.map(MatchedPath::as_str));
    let mut response = match admit(&api, &request, route) {
        Ok(who) => {
            if let Some(place) = request.extensions().get::<Admission>() {
                place.now();
            }
            request.extensions_mut().insert(who);
            next.run(request).await
        }
        Err(refusal) => {
            note(&api, &request, &refusal);
            refusal.into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

/// `route`: the role of the route, if there is one.
fn admit(api: &Api, request: &Request, route: Option<Role>) -> Result<Who, Refusal> {
    let Some(caller) = request.extensions().get::<Caller>() else {
        return Err(Refusal::new(RefusalKind::Forbidden, "the origin of this request is not known", ""));
    };
    let token = match caller {
        Caller::Tls { .. } => bearer(request.headers())?.map(Token::new),
        Caller::Unix { .. } | Caller::Tcp { .. } => None,
    };
    let needed = route.unwrap_or_else(|| Roles::without_route(request.method()));
    let for_publishers = needed == Role::Look && request.uri().path() == KnownGenerations::PATH;
    if for_publishers && api.is_publisher(caller) {
        meant_for(&api.host, request.headers())?;
        return Ok(Who { name: "a publisher".to_owned(), role: Role::Look, proof: Proof::Key });
    }
    if let Some(standing) = request.extensions().get::<Standing>() {
        standing.asks(token.clone(), needed);
    }
    let access = api.access();
    let who = identify(api, &access, caller, token.as_ref())?;
    who.may(needed)?;
    match caller {
        Caller::Unix { .. } => no_browser(request.headers())?,
        Caller::Tcp { peer } => from_here(*peer, request)?,
        Caller::Tls { .. } => page("https", request, |ip| ip.is_loopback() || access.is_here(ip))?,
    }
    // Without a route nothing is read: the answer is 404 or 405.
    if route.is_some() {
        content_type(request.method(), request.headers())?;
    }
    meant_for(&api.host, request.headers())?;
    Ok(who)
}

/// Identifies the caller.
fn identify(api: &Api, access: &Access, caller: &Caller, token: Option<&Token>) -> Result<Who, Refusal> {
    let source = match caller {
        Caller::Unix { .. } => None,
        Caller::Tcp { peer } | Caller::Tls { peer, .. } => Some(peer.ip()),
    };
    let now = Instant::now();
    let known = access.identify(caller, None);
    let who = match (known, token, source) {
        (Err(_), Some(token), Some(source)) => {
            if !api.tries.lets_try(source, now) {
                return Err(Refusal::new(
                    RefusalKind::TooMany,
                    format!("too many wrong tokens from {source}"),
                    "wait a minute; a key is not held up",
                ));
            }
            access.identify(caller, Some(token)).inspect_err(|denied| {
                if denied.guess {
                    api.tries.wrong(source, now);
                }
            })
        }
        (known, _, _) => known,
    };
    who.map_err(|denied| denied.refusal)
}

/// Counts a refusal for a missing right, and logs it now and then. The log line contains no header.
fn note(api: &Api, request: &Request, why: &Refusal) {
    if !matches!(why.kind, RefusalKind::Unauthorized | RefusalKind::Forbidden | RefusalKind::TooMany) {
        return;
    }
    let Some(more) = api.tries.refused(Instant::now()) else { return };
    let more = if more == 0 { String::new() } else { format!(" (and {more} more since the last line)") };
    let from = request.extensions().get::<Caller>().map_or("nowhere".to_owned(), ToString::to_string);
    tracing::warn!(from, path = request.uri().path(), "a request to the API is refused: {}{more}", why.error);
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Result<Option<&[u8]>, Refusal> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(first) = given.next() else { return Ok(None) };
    let token = first.as_bytes().split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    match (token, given.next()) {
        (Some((_, token)), None) => Ok(Some(token.trim_ascii())),
        _ => Err(Refusal::new(
            RefusalKind::Unauthorized,
            "only a single `Authorization: Bearer TOKEN` is understood",
            "",
        )),
    }
}

/// Checks a plain HTTP request: only this machine may send it.
fn from_here(peer: SocketAddr, request: &Request) -> Result<(), Refusal> {
    let ip = peer.ip().to_canonical();
    if !ip.is_loopback() {
        return Err(forbidden(format!("{ip} is another machine: without keys the API is for this machine")));
    }
    page("http", request, |ip| ip.is_loopback())
}

fn forbidden(error: String) -> Refusal {
    Refusal::new(RefusalKind::Forbidden, error, "use the daemon's unix socket on the host itself")
}

/// Refuses a browser at the Unix socket. A browser names the page in `Origin` or, to a safe address, in `Sec-Fetch-Site`.
/// It sends neither with a question of a page whose own name was pointed to this machine: that name is in `Host`.
fn no_browser(headers: &HeaderMap) -> Result<(), Refusal> {
    let of_page = |name: &&header::HeaderName| **name == header::ORIGIN || name.as_str().starts_with("sec-fetch-");
    if let Some(name) = headers.keys().find(of_page) {
        return Err(not_for_browsers(format!("a request with the header {:?} comes from a browser", name.as_str())));
    }
    for host in headers.get_all(header::HOST) {
        if host.to_str().map_or(true, is_foreign_name) {
            return Err(not_for_browsers(format!("the Host {host:?} is not localhost")));
        }
    }
    Ok(())
}

fn not_for_browsers(error: String) -> Refusal {
    let hint = "the unix socket is for programs: use `cobctl`, or `curl --unix-socket` with http://localhost/";
    Refusal::new(RefusalKind::Forbidden, error, hint)
}

/// Whether a `Host` is a domain name that its owner may point to this machine. Programs name the socket as they like, and
/// `localhost` with its subdomains always is this machine (RFC 6761).
fn is_foreign_name(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let has_name =
        name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')) && name.contains('.');
    let is_local = name.ends_with(".localhost");
    has_name && !is_local && name.parse::<IpAddr>().is_err()
}

/// Checks the headers in which a browser names the page and the host.
fn page(scheme: &str, request: &Request, ours: impl Fn(IpAddr) -> bool) -> Result<(), Refusal> {
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Refusal::new(RefusalKind::Invalid, "exactly a single Host header is needed", ""));
    };
    let host = host.to_str().unwrap_or_default();
    if !is_ours(host, ours) {
        return Err(forbidden(format!("the Host {host:?} is no address of this host")));
    }
    if let Some(target) = request.uri().authority()
        && target.as_str() != host
    {
        return Err(forbidden(format!("the request is for {:?}, its Host is {host:?}", target.as_str())));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let rest = origin.to_str().ok().and_then(|o| o.strip_prefix(scheme)).and_then(|o| o.strip_prefix("://"));
        if rest != Some(host) {
            return Err(forbidden(format!("a page of the origin {origin:?} may not use the API")));
        }
    }
    Ok(())
}

/// `HOST` or `HOST:PORT`, where HOST is `localhost` or a literal address that is ours.
fn is_ours(host: &str, ours: impl Fn(IpAddr) -> bool) -> bool {
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
    literal.parse::<IpAddr>().is_ok_and(ours)
}

/// Refuses a request that names another host: where hosts prove no key, an address alone does not identify the daemon
/// that listens there.
fn meant_for(host: &HostName, headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get(MEANT_FOR) {
        Some(meant) if meant.as_bytes() != host.as_str().as_bytes() => {
            let meant = String::from_utf8_lossy(meant.as_bytes());
            let refusal = Refusal::new(
                RefusalKind::Conflict,
                format!("this host is {host}, not {meant:?}: it did not carry out the order"),
                "another host's daemon has that address: which daemons run there, and is `address` right in the model?",
            );
            Err(refusal.with(RefusalCode::OtherHost))
        }
        Some(_) | None => Ok(()),
    }
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

    fn is_loopback(host: &str) -> bool {
        is_ours(host, |ip| ip.is_loopback())
    }

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
        assert!(is_ours("10.0.0.1:7077", |ip| ip == IpAddr::from([10, 0, 0, 1])));
        assert!(!is_ours("10.0.0.2", |ip| ip == IpAddr::from([10, 0, 0, 1])));
    }

    #[test]
    fn only_a_single_bearer_token_is_accepted() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().expect("a value"));
            }
            bearer(&headers).map(|t| t.map(<[u8]>::to_vec)).map_err(|r| r.kind)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["Bearer sesame"]), Ok(Some(b"sesame".to_vec())));
        assert_eq!(read(&["bearer  sesame "]), Ok(Some(b"sesame".to_vec())));
        for bad in [&["Basic c2VzYW1l"][..], &["sesame"], &["Bearer"], &["Bearer a", "Bearer b"]] {
            assert_eq!(read(bad), Err(RefusalKind::Unauthorized), "{bad:?}");
        }
    }
}
