//! The paths of the API: each turns a request into an [`Ask`] and its answer into JSON.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{Method, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use cob_types::api::order::Check;
use cob_types::api::{API_VERSION, Change, Done, LogsAnswer, LogsQuery, Order, RefusalCode, StatusOf, Version, Whoami};
use cob_types::check_round::CheckRound;
use cob_types::facts::FactsOf;
use cob_types::outcome::OutcomeOf;
use cob_types::status::{CobStatus, HostStatus, KnownGenerations};
use cob_types::words::form;
use cob_types::{CobId, GenerationNumber};
use futures_util::stream;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::access::Who;
use super::api::{Api, Ask, Command};
use super::files;
use super::guard::guard;
use super::refusal::{Refusal, RefusalKind};
use super::run;
use super::serve::LongLived;
use super::standing::Standing;
use crate::blocking::beside;

/// The longest accepted body.
const MAX_BODY: usize = 64 << 10;
/// The longest time until a body has arrived.
const BODY: Duration = Duration::from_secs(10);
/// The number of entries in an answer to `/v1/history`, unless the request has another limit.
const HISTORY: usize = 1000;
/// The highest limit of a request for the history.
const MAX_HISTORY: usize = 10_000;
/// How long an answer about a check round waits for the end of the round.
const ROUND: Duration = Duration::from_secs(1);
/// How often an idle watcher gets a comment, so that both ends detect a dead link.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The API as a service. Every request must carry a [`Caller`](super::Caller) as an extension. Each route that is added
/// here needs a role: see `guard::needed`.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/version", get(version))
        .route("/v1/whoami", get(whoami))
        .route("/v1/status", get(status))
        .route(KnownGenerations::PATH, get(generations))
        .route("/v1/cobs/{*id}", get(cob))
        .route("/v1/history", get(history))
        .route("/v1/outcome", get(outcome))
        .route("/v1/output/{*id}", get(output))
        .route("/v1/logs/{*id}", get(logs))
        .route("/v1/facts", get(facts))
        .route("/v1/events", get(events))
        .route("/v1/check", get(check_round).post(check))
        .merge(files::routes())
        .merge(run::routes())
        .merge(order(Command::Prepare))
        .merge(order(Command::Switch))
        .merge(order(Command::Rollback))
        .merge(order(Command::Retry))
        .merge(order(Command::Stop))
        .merge(order(Command::Start))
        .merge(order(Command::Reboot))
        .merge(order(Command::Pause))
        .merge(order(Command::Resume))
        .merge(order(Command::Fence))
        .merge(order(Command::MarkDeparted))
        .merge(order(Command::Cancel))
        .merge(order(Command::CallOff))
        .merge(order(Command::Limit))
        .merge(order(Command::Budget))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(api.clone(), guard))
        .with_state(api)
}

async fn version() -> Json<Version> {
    Json(Version { program: "cobd".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), api: API_VERSION })
}

async fn whoami(Extension(who): Extension<Who>) -> Json<Whoami> {
    Json(Whoami { name: who.name, role: who.role, proof: who.proof.word().to_owned() })
}

#[derive(Debug, Deserialize)]
struct StatusQuery {
    #[serde(default)]
    cobs: StatusOf,
    waiting: Option<usize>,
}

async fn status(
    State(api): State<Api>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Json<HostStatus>, Refusal> {
    let Query(StatusQuery { cobs: of, waiting }) = query.map_err(|e| {
        let hint = "known are `cobs`, which is `all` or `restless`, and `waiting`, a number";
        Refusal::new(RefusalKind::Invalid, e.body_text(), hint)
    })?;
    let most_waiting = waiting.unwrap_or(usize::MAX);
    Ok(Json(api.ask(|reply| Ask::Status { of, most_waiting, reply }).await?))
}

/// For a publisher that needs a number which no host knows.
async fn generations(State(api): State<Api>) -> Result<Json<KnownGenerations>, Refusal> {
    let known = api.ask(|reply| Ask::Known { reply }).await?;
    Ok(Json(KnownGenerations { host: api.host.clone(), known }))
}

/// Collects the facts anew for each request: requests are rare.
async fn facts(State(api): State<Api>) -> Result<Json<FactsOf>, Refusal> {
    let host = api.ask(|reply| Ask::Status { of: StatusOf::Restless, most_waiting: 0, reply }).await?.name;
    let facts = beside(|| crate::facts::collect(std::path::Path::new("/"))).await;
    let facts = facts.map_err(|e| Refusal::new(RefusalKind::Unavailable, format!("facts can't be read: {e}"), ""))?;
    Ok(Json(FactsOf { host, facts }))
}

async fn cob(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<CobStatus>, Refusal> {
    let id = cob_id(&id)?;
    let found = api.ask(|reply| Ask::Cob { id: id.clone(), reply }).await?;
    found.map(Json).ok_or_else(|| no_cob(&id))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    #[serde(default)]
    since: u64,
    cob: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    newest: bool,
}

async fn history(
    State(api): State<Api>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|e| {
        Refusal::new(RefusalKind::Invalid, e.body_text(), "known are `since`, `cob`, `limit` and `newest`, each once")
    })?;
    let limit = query.limit.unwrap_or(HISTORY).min(MAX_HISTORY);
    let cob = query.cob.as_deref().map(cob_id).transpose()?;
    let mut entries =
        api.ask(|reply| Ask::History { since: query.since, cob, limit, newest: query.newest, reply }).await??;
    entries.truncate(limit);
    let mut lines = Vec::new();
    for entry in &entries {
        serde_json::to_writer(&mut lines, entry)
            .map_err(|e| Refusal::new(RefusalKind::Unavailable, format!("an entry can't be written: {e}"), ""))?;
        lines.push(b'\n');
    }
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutcomeQuery {
    to: u64,
}

async fn outcome(
    State(api): State<Api>,
    query: Result<Query<OutcomeQuery>, QueryRejection>,
) -> Result<Json<OutcomeOf>, Refusal> {
    let Query(OutcomeQuery { to }) =
        query.map_err(|e| Refusal::new(RefusalKind::Invalid, e.body_text(), "known is `to`, a generation's number"))?;
    let found = api.ask(|reply| Ask::Outcome { to: GenerationNumber(to), reply }).await?;
    found.map(Json).ok_or_else(|| {
        Refusal::new(
            RefusalKind::NotFound,
            format!("no switch to generation {to} has begun since the daemon was started"),
            "/v1/history has earlier switches",
        )
    })
}

async fn output(State(api): State<Api>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let id = cob_id(&id)?;
    let text = api.ask(|reply| Ask::Output { cob: id.clone(), reply }).await?.ok_or_else(|| {
        Refusal::new(
            RefusalKind::NotFound,
            format!("no output of {id} is kept"),
            "output is kept of the last action or check that ran as a process",
        )
    })?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogsWords {
    #[serde(default = "some_lines")]
    lines: usize,
    after: Option<String>,
    #[serde(default)]
    previous: bool,
}

fn some_lines() -> usize {
    100
}

async fn logs(
    State(api): State<Api>,
    Path(id): Path<String>,
    query: Result<Query<LogsWords>, QueryRejection>,
) -> Result<Json<LogsAnswer>, Refusal> {
    let wrong = |what: String| Refusal::new(RefusalKind::Invalid, what, "known are `lines`, `after` and `previous`");
    let Query(LogsWords { lines, after, previous }) = query.map_err(|e| wrong(e.body_text()))?;
    if !(1..=LogsQuery::MAX_LINES).contains(&lines) {
        return Err(wrong(format!("`lines` is from 1 to {}", LogsQuery::MAX_LINES)));
    }
    Ok(Json(api.logs(cob_id(&id)?, LogsQuery { lines, after, previous }).await?))
}

async fn check(
    State(api): State<Api>,
    Extension(author): Extension<Who>,
    request: Request,
) -> Result<Json<CheckRound>, Refusal> {
    let Check { cobs, who } = body(&api, request).await?;
    tracing::info!(who = author.author(who.as_deref()), cobs = cobs.len(), "a round of checks is asked for");
    let round = api.ask(|reply| Ask::Check { cobs, reply }).await??;
    standing_of_round(&api, round).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundQuery {
    round: u64,
}

async fn check_round(
    State(api): State<Api>,
    query: Result<Query<RoundQuery>, QueryRejection>,
) -> Result<Json<CheckRound>, Refusal> {
    let Query(RoundQuery { round }) =
        query.map_err(|e| Refusal::new(RefusalKind::Invalid, e.body_text(), "known is `round`, a round's number"))?;
    standing_of_round(&api, round).await
}

/// The result of a check round: when the round has ended, or after [`ROUND`].
async fn standing_of_round(api: &Api, round: u64) -> Result<Json<CheckRound>, Refusal> {
    let ask = || api.ask(|reply| Ask::CheckRound { round, reply });
    let gone = || {
        let what = format!("round {round} of checks is not known (any more)");
        Refusal::new(RefusalKind::NotFound, what, "the daemon was restarted, or made many since: check again")
    };
    let (mut told, mut end) = ask().await?.ok_or_else(gone)?;
    if !told.ended {
        // If the sender is gone, so is the round: the next `ask` finds that out.
        let _ = tokio::time::timeout(ROUND, end.wait_for(|ended| *ended)).await;
        told = ask().await?.ok_or_else(gone)?.0;
    }
    Ok(Json(told))
}

#[derive(Debug, Deserialize)]
struct EventsQuery {
    status: Option<StatusOf>,
    waiting: Option<usize>,
}

/// Sends an event at once, and another after each change; changes close together share an event ([`super::pace`]). On
/// request, an event contains the status: a client that watches many hosts would otherwise ask each host after every
/// event, each time with a new connection.
async fn events(
    State(api): State<Api>,
    Extension(long_lived): Extension<LongLived>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Refusal> {
    let Query(EventsQuery { status: of, waiting }) = query.map_err(|e| {
        let hint = "known are `status`, which is `all` or `restless`, and `waiting`, a number";
        Refusal::new(RefusalKind::Invalid, e.body_text(), hint)
    })?;
    let most_waiting = waiting.unwrap_or(usize::MAX);
    let Ok(place) = api.watchers.clone().try_acquire_owned() else {
        return Err(Refusal::new(
            RefusalKind::Unavailable,
            "too many watchers",
            "ask /v1/status at intervals, or end another watcher",
        ));
    };
    let mut changes = api.ask(|reply| Ask::Watch { reply }).await?;
    changes.mark_changed();
    long_lived.set();
    let stands = api.pace.watch();
    let begin = (changes, stands, api, place, true);
    let changes = stream::unfold(begin, move |(mut changes, mut stands, api, place, first)| async move {
        if !first {
            api.pace.wait(&mut stands).await;
        }
        changes.changed().await.ok()?;
        let change = *changes.borrow_and_update();
        let status = match of {
            Some(of) => {
                let mut status = api.ask(|reply| Ask::Status { of, most_waiting, reply }).await.ok()?;
                if of == StatusOf::Restless {
                    // Peers that are up would be most of each event in a large cluster.
                    status.peers.retain(|peer| !peer.up || peer.unheard.is_some());
                }
                Some(status)
            }
            None => None,
        };
        let event = Event::default().event("change").json_data(Change { change, status }).ok()?;
        Some((Ok::<_, Infallible>(event), (changes, stands, api, place, false)))
    });
    Ok(Sse::new(changes).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// The route of an order, which becomes this command of the loop.
fn order<T: Order>(command: fn(T) -> Command) -> Router<Api> {
    let answer = async move |State(api): State<Api>, Extension(author): Extension<Who>, request: Request| {
        let mut order: T = body(&api, request).await?;
        if let Some((what, hint)) = order.contradiction() {
            return Err(Refusal::new(RefusalKind::Invalid, what, hint));
        }
        let who = author.author(order.who().take().as_deref());
        Ok::<Json<Done>, Refusal>(Json(api.order(command(order), who).await?))
    };
    Router::new().route(T::PATH, post(answer))
}

async fn unknown_path(uri: Uri) -> Refusal {
    Refusal::new(
        RefusalKind::NotFound,
        format!("there is no path {:?}", uri.path()),
        "paths begin with /v1/; docs/api.md lists the paths",
    )
}

async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    Refusal::new(
        RefusalKind::Method,
        format!("{:?} does not know the method {method}", uri.path()),
        "questions use GET, orders use POST",
    )
}

/// Reads and parses a body within its limits. An empty body counts as `{}`.
///
/// A body may arrive slowly: when it is complete, the right of its author to give orders is checked again.
pub(super) async fn body<T: DeserializeOwned>(api: &Api, request: Request) -> Result<T, Refusal> {
    body_of(api, request, MAX_BODY).await
}

/// Like [`body`], with a given size limit in bytes.
pub(super) async fn body_of<T: DeserializeOwned>(api: &Api, request: Request, most: usize) -> Result<T, Refusal> {
    let standing = request.extensions().get::<Standing>().cloned();
    let bytes = tokio::time::timeout(BODY, collect(request.into_body(), most)).await.map_err(|_| {
        Refusal::new(RefusalKind::Invalid, format!("the body did not arrive within {} s", BODY.as_secs()), "")
    })??;
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    if let Some(standing) = standing {
        standing.orders(&api.access())?;
    }
    serde_json::from_slice(text).map_err(|e| {
        Refusal::new(
            RefusalKind::Invalid,
            format!("the body does not fit this order: {}", form(e)),
            "docs/api.md shows it",
        )
        .with(RefusalCode::Misfit)
    })
}

async fn collect(body: Body, most: usize) -> Result<bytes::Bytes, Refusal> {
    to_bytes(body, most).await.map_err(|e| {
        let too_long = std::error::Error::source(&e).is_some_and(|s| s.is::<http_body_util::LengthLimitError>());
        if too_long {
            Refusal::new(RefusalKind::TooLong, format!("the body is longer than {most} bytes"), "")
        } else {
            Refusal::new(RefusalKind::Invalid, format!("the body broke off: {e}"), "")
        }
    })
}

pub(super) fn cob_id(text: &str) -> Result<CobId, Refusal> {
    CobId::new(text).map_err(|e| Refusal::new(RefusalKind::Invalid, e.to_string(), "an id is HOST/NAME"))
}

fn no_cob(id: &CobId) -> Refusal {
    Refusal::new(
        RefusalKind::NotFound,
        format!("{id} is no change object of the active generation of this host"),
        "/v1/status lists the change objects",
    )
}
