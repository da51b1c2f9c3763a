//! Changes that a following hub passes on to the hub that leads, through their store.
//!
//! The following hub finds the caller and leaves the request under a key of its own. The leading hub takes the key away
//! before it begins, so that no request is done twice, and puts the answer. Nobody else could read what a client may send
//! as a secret, but etcd keeps former values for a while: so passwords and new tokens are not passed on.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cob_hub_api::Name;
use cob_hub_store::{Compare, Etcd, Event, Key, LeaseId, Op, Query, Store as _, StoreError, Txn, Watch as _};
use cob_permissions::Subject;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tower::ServiceExt as _;
use tracing::warn;

use super::answer::Refused;
use super::{LARGEST, table};
use crate::circle::Circle;
use crate::hub::{Caller, Hub, HubError, Role};
use crate::random;

/// The longest body that is passed on, in bytes.
const LONGEST: usize = 700 << 10;
/// How long a request waits for a hub that leads.
const TAKEN: Duration = Duration::from_secs(15);
/// How long the leading hub has for an answer.
const ANSWERED: Duration = Duration::from_secs(120);
/// The lease of a request and its answer.
const LEASE: Duration = Duration::from_secs(180);
/// The pause between two looks for the answer.
const LOOK: Duration = Duration::from_millis(50);
/// The pause of a hub that does not lead.
const REST: Duration = Duration::from_millis(200);

/// A request.
#[derive(Serialize, Deserialize)]
struct Passed {
    method: String,
    uri: String,
    content_type: Option<String>,
    body: String,
    subject: Subject,
    tenant: Option<Name>,
    token_ends_ms: Option<u64>,
    session: Option<String>,
    request: String,
    lease: u64,
}

/// An answer.
#[derive(Serialize, Deserialize)]
struct Answer {
    status: u16,
    content_type: Option<String>,
    body: String,
}

/// Whether a request changes nothing: each hub answers it.
pub(super) fn is_question(request: &Request) -> bool {
    let (method, path) = (request.method(), request.uri().path());
    let is_preview = path == "/v1/preview" || path.starts_with("/v1/clusters/") && path.ends_with("/preview");
    method == Method::GET || method == Method::HEAD || method == Method::POST && is_preview
}

/// Whether a request or its answer has a secret.
fn is_secret(method: &Method, path: &str) -> bool {
    path == "/v1/password" || path == "/v1/tokens" && method == Method::POST
}

/// The refusal of a request that only the leading hub takes.
pub(super) fn elsewhere(hub: &Hub, why: &str) -> HubError {
    let leader = match hub.role() {
        Some((_, Role::Follows { leader: Some(leader), .. })) => format!("ask the hub {leader}"),
        _ => "no hub leads at present: try again".to_owned(),
    };
    HubError::Elsewhere(format!("this hub does not lead, and {why}: {leader}"))
}

/// Passes a change on to the hub that leads.
pub(super) async fn pass(hub: &Hub, caller: &Caller, request: Request) -> Response {
    match try_pass(hub, caller, request).await {
        Ok(response) => response,
        Err(error) => Refused(error).into_response(),
    }
}

async fn try_pass(hub: &Hub, caller: &Caller, request: Request) -> Result<Response, HubError> {
    let (circle, store) = hub.circle().ok_or_else(|| HubError::Internal("this hub is alone".to_owned()))?;
    let (parts, body) = request.into_parts();
    if is_secret(&parts.method, parts.uri.path()) {
        return Err(elsewhere(hub, "passes no secrets on"));
    }
    let body = to_bytes(body, LARGEST).await.map_err(|_| HubError::TooLong)?;
    if body.len() > LONGEST {
        return Err(elsewhere(hub, &format!("passes on at most {LONGEST} bytes")));
    }
    let unreachable = |error: StoreError| HubError::Elsewhere(format!("no hub leads that this hub can reach: {error}"));
    let lease = store.lease(LEASE).await.map_err(unreachable)?;
    let passed = Passed {
        method: parts.method.to_string(),
        uri: parts.uri.to_string(),
        content_type: parts.headers.get(header::CONTENT_TYPE).and_then(|of| of.to_str().ok()).map(str::to_owned),
        body: STANDARD.encode(&body),
        subject: caller.subject.clone(),
        tenant: caller.tenant.clone(),
        token_ends_ms: caller.token_ends_ms,
        session: caller.session.clone(),
        request: caller.request.clone(),
        lease: lease.id.0,
    };
    let id = random::id().map_err(HubError::Internal)?;
    let (request, answer) = (circle.key(&format!("requests/{id}"))?, circle.key(&format!("answers/{id}"))?);
    let text = serde_json::to_vec(&passed).map_err(|e| HubError::Internal(e.to_string()))?;
    let response = match store.txn(Txn::new().then(Op::put_leased(request.clone(), text, lease.id))).await {
        Ok(_) => wait(store, &request, &answer).await,
        // A request that may be there must not be done later.
        Err(error) => withdraw(store, &request).await.and(Err(unreachable(error))),
    };
    let _ = store.revoke(lease.id).await;
    response
}

/// Waits for the answer.
async fn wait(store: &Etcd, request: &Key, answer: &Key) -> Result<Response, HubError> {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        // After a failure, the next look may succeed.
        if let Ok(Some(entry)) = store.get(answer).await {
            return response(&entry.value);
        }
        if begun.elapsed() > TAKEN && withdraw(store, request).await? {
            let what = format!("no hub has taken the request within {} s: it is withdrawn", TAKEN.as_secs());
            return Err(HubError::Elsewhere(what));
        }
        if begun.elapsed() > ANSWERED {
            return Err(lost());
        }
    }
}

/// Takes a request back. Returns whether nobody had taken it.
async fn withdraw(store: &Etcd, request: &Key) -> Result<bool, HubError> {
    let txn = Txn::new().when(Compare::present(request.clone())).then(Op::Delete(request.clone()));
    store.txn(txn).await.map(|answer| answer.succeeded).map_err(|_| lost())
}

fn lost() -> HubError {
    HubError::Elsewhere(
        "the hub that leads has not answered: look whether the request was done, before you repeat it".to_owned(),
    )
}

fn response(text: &[u8]) -> Result<Response, HubError> {
    let broken =
        |what: String| HubError::Internal(format!("the answer of the hub that leads is not understood: {what}"));
    let answer: Answer = serde_json::from_slice(text).map_err(|e| broken(e.to_string()))?;
    let body = STANDARD.decode(answer.body).map_err(|e| broken(e.to_string()))?;
    let mut response = Response::builder().status(answer.status);
    if let Some(kind) = answer.content_type {
        response = response.header(header::CONTENT_TYPE, kind);
    }
    response.body(Body::from(body)).map_err(|e| broken(e.to_string()))
}

/// Answers the requests of following hubs, whenever this hub leads.
pub(super) async fn serve(hub: Arc<Hub>) {
    let router = table::refusing(table::router(table::of_callers())).with_state(hub.clone());
    loop {
        if hub.leads()
            && let Err(error) = serve_reign(&hub, &router).await
        {
            warn!(%error, "requests of other hubs can't be read");
        }
        tokio::time::sleep(REST).await;
    }
}

async fn serve_reign(hub: &Arc<Hub>, router: &Router) -> Result<(), HubError> {
    let Some((circle, store)) = hub.circle() else { return Ok(()) };
    let prefix = circle.under("requests/")?;
    let present = store.range(&Query::all(prefix.clone())).await?;
    for entry in present.entries {
        begin(hub, circle, store, router, entry.key, entry.value);
    }
    let mut watch = store.watch(&prefix, present.revision.next()).await?;
    while hub.leads() {
        // A hub that no longer leads has to see it, too.
        let Ok(change) = tokio::time::timeout(REST, watch.next()).await else { continue };
        for event in change?.events {
            if let Event::Put(entry) = event {
                begin(hub, circle, store, router, entry.key, entry.value);
            }
        }
    }
    Ok(())
}

fn begin(hub: &Arc<Hub>, circle: &Circle, store: &Etcd, router: &Router, key: Key, value: Bytes) {
    let (hub, circle, store, router) = (hub.clone(), circle.clone(), store.clone(), router.clone());
    tokio::spawn(async move {
        if let Err(error) = answer(&hub, &circle, &store, router, key, &value).await {
            warn!(%error, "a request of another hub can't be answered");
        }
    });
}

async fn answer(
    hub: &Hub,
    circle: &Circle,
    store: &Etcd,
    router: Router,
    key: Key,
    value: &[u8],
) -> Result<(), HubError> {
    let fence = hub.fence()?;
    // From here on nobody else does it.
    let take = Txn::new().when(fence.clone()).when(Compare::present(key.clone())).then(Op::Delete(key.clone()));
    if !store.txn(take).await?.succeeded {
        return Ok(());
    }
    let id =
        circle.name_of(&key).and_then(|name| name.strip_prefix("requests/").map(str::to_owned)).unwrap_or_default();
    let passed: Passed = serde_json::from_slice(value).map_err(|e| HubError::Internal(e.to_string()))?;
    let lease = LeaseId(passed.lease);
    let answer = perform(router, passed).await?;
    let text = serde_json::to_vec(&answer).map_err(|e| HubError::Internal(e.to_string()))?;
    let put = Op::put_leased(circle.key(&format!("answers/{id}"))?, text, lease);
    match store.txn(Txn::new().then(put)).await {
        // Nobody waits any more.
        Ok(_) | Err(StoreError::NoLease(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn perform(router: Router, passed: Passed) -> Result<Answer, HubError> {
    let broken = HubError::Internal;
    let body = STANDARD.decode(passed.body).map_err(|e| broken(e.to_string()))?;
    let mut request = Request::builder().method(passed.method.as_str()).uri(passed.uri);
    if let Some(kind) = passed.content_type {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    let mut request = request.body(Body::from(body)).map_err(|e| broken(e.to_string()))?;
    request.extensions_mut().insert(Caller {
        subject: passed.subject,
        tenant: passed.tenant,
        token_ends_ms: passed.token_ends_ms,
        session: passed.session,
        request: passed.request,
    });
    let response = match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status();
    let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|of| of.to_str().ok()).map(str::to_owned);
    Ok(match to_bytes(response.into_body(), LONGEST).await {
        Ok(body) => Answer { status: status.as_u16(), content_type, body: STANDARD.encode(&body) },
        Err(_) => {
            Answer { status: StatusCode::INTERNAL_SERVER_ERROR.as_u16(), content_type: None, body: String::new() }
        }
    })
}
