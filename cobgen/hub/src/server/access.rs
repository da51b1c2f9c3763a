//! Who asks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cob_api_server::page::{Origins, protect};
use cob_hub_api::Name;
use cob_permissions::Subject;
use serde::Deserialize;

use super::answer::Refused;
use super::serve::Admission;
use super::{forward, page};
use crate::hub::{Caller, Hub, HubError, Role};

/// How long a request of a caller without a token may take.
const STRANGER: Duration = Duration::from_secs(20);

/// Where a request came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Door {
    /// The Unix socket of the hub's owner.
    Socket,
    /// A network address.
    Address {
        /// The addresses of the hub's own page.
        own: Arc<Origins>,
        /// Whether a proxy stands before the address.
        behind_proxy: bool,
    },
}

/// The address of a caller, as a proxy tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forwarded(pub(super) IpAddr);

/// The address of the hub's own page that a request comes from, with a slash at its end.
#[derive(Debug, Clone)]
pub(super) struct OwnPage(pub(super) String);

/// The last address of `X-Forwarded-For`: the address that the proxy itself has seen.
fn forwarded(headers: &HeaderMap) -> Option<Forwarded> {
    let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?.rsplit(',').next()?;
    last.trim().parse().ok().map(Forwarded)
}

/// The tenant that a super administrator asks about.
#[derive(Deserialize)]
struct Tenant {
    tenant: Option<Name>,
}

/// Refuses requests of web pages, except the own page; sets the headers of every answer.
pub(super) async fn visit(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    // A page of a browser sends one of these.
    let is_page = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    let is_file = page::has(request.uri().path());
    let is_foreign = match &door {
        Door::Socket => is_page,
        // The files of the page have no secrets, and a page elsewhere may have a link to them.
        Door::Address { own, .. } if is_file => !own.is_host(headers),
        Door::Address { own, .. } => is_page && !own.is_own(headers),
    };
    if matches!(door, Door::Address { behind_proxy: true, .. })
        && let Some(address) = forwarded(headers)
    {
        request.extensions_mut().insert(address);
    }
    if let (false, Some(origin)) = (is_foreign, request.headers().get(header::ORIGIN).and_then(|of| of.to_str().ok())) {
        let page = OwnPage(format!("{origin}/"));
        request.extensions_mut().insert(page);
    }
    let mut response =
        if is_foreign { Refused(HubError::ForeignPage).into_response() } else { next.run(request).await };
    protect(response.headers_mut());
    response
}

/// Ends a request of a stranger that takes too long.
pub(super) async fn hurry(request: Request, next: Next) -> Response {
    let answered = tokio::time::timeout(STRANGER, next.run(request)).await;
    answered.unwrap_or_else(|_| Refused(HubError::Busy).into_response())
}

/// Says in a circle of hubs which hub answers, and how old its answer may be.
pub(super) async fn sign(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Some((name, role)) = hub.role() {
        let text = match role {
            Role::Leads => format!("{name}; leads"),
            Role::Follows { since, .. } => format!("{name}; follows; age={}", since.elapsed().as_secs()),
        };
        if let Ok(value) = text.parse() {
            response.headers_mut().insert("cob-hub", value);
        }
    }
    response
}

/// Refuses the secrets of strangers at a hub that does not lead.
pub(super) async fn only_leader(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    if hub.leads() || forward::is_question(&request) {
        return next.run(request).await;
    }
    Refused(forward::elsewhere(&hub, "begins no sessions")).into_response()
}

/// Finds the caller, or refuses.
pub(super) async fn admit(State((hub, door)): State<(Arc<Hub>, Door)>, mut request: Request, next: Next) -> Response {
    let asked = match asked(&request) {
        Ok(asked) => asked,
        Err(error) => return Refused(error).into_response(),
    };
    let admission = request.extensions().get::<Admission>().cloned();
    match caller(&hub, &door, asked).await {
        Ok(caller) => {
            let tenant = caller.subject.user.tenant.as_ref().map(cob_permissions::Name::as_str);
            if admission.is_some_and(|admission| !admission.admit(tenant)) {
                return Refused(HubError::Busy).into_response();
            }
            if !hub.leads() && !forward::is_question(&request) {
                return forward::pass(&hub, &caller, request).await;
            }
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => Refused(error).into_response(),
    }
}

/// What a request says of its caller.
struct Asked {
    token: Option<String>,
    tenant: Option<Name>,
    request: String,
}

fn asked(request: &Request) -> Result<Asked, HubError> {
    let headers = request.headers();
    let tenant = axum::extract::Query::<Tenant>::try_from_uri(request.uri())
        .map_err(|e| HubError::Bad(format!("the query is not valid: {e}")))?;
    Ok(Asked {
        token: token(headers).map(str::to_owned),
        tenant: tenant.0.tenant,
        request: format!("{} {}", request.method(), request.uri().path()),
    })
}

async fn caller(hub: &Hub, door: &Door, asked: Asked) -> Result<Caller, HubError> {
    let (subject, token_ends_ms, session) = match asked.token {
        Some(token) => {
            let (hash, credential) = hub.credential(&token).await?;
            let session = credential.session.then_some(hash);
            // A person may make a token that outlives the session.
            let ends_ms = credential.ends_ms.filter(|_| session.is_none());
            (Subject { user: credential.user, scope: credential.scope }, ends_ms, session)
        }
        None if *door == Door::Socket => (hub.owner().ok_or(HubError::Stranger)?, None, None),
        None => return Err(HubError::Stranger),
    };
    let tenant = tenant(&subject, asked.tenant)?;
    Ok(Caller { subject, tenant, token_ends_ms, session, request: asked.request })
}

/// The tenant of a request: a user's own, or the one that a super administrator names.
fn tenant(subject: &Subject, asked: Option<Name>) -> Result<Option<Name>, HubError> {
    let Some(own) = &subject.user.tenant else { return Ok(asked) };
    let own = Name::new(own.as_str()).map_err(|e| HubError::Internal(e.to_string()))?;
    match asked {
        // Another tenant is refused in the same way, whether it exists or not.
        Some(asked) if asked != own => Err(HubError::Missing { what: "tenant", name: asked.to_string() }),
        Some(_) | None => Ok(Some(own)),
    }
}

fn token(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}
