//! The handlers of the API: each turns a request into an [`Ask`] and its answer into JSON.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{Method, Uri};
use cob_types::api::order::Check;
use cob_types::api::{API_VERSION, Change, LogsAnswer, LogsQuery, Order, RefusalCode, StatusOf, Version, Whoami};
use cob_types::check_round::CheckRound;
use cob_types::facts::FactsOf;
use cob_types::history::HistoryEntry;
use cob_types::outcome::OutcomeOf;
use cob_types::status::{CobStatus, HostStatus, KnownGenerations};
use cob_types::words::form;
use cob_types::{CobId, GenerationNumber};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;

use super::access::Who;
use super::api::{Api, Ask};
use super::described::{CobPath, Events, Lines, Ordered, QueryWords, Text, Words};
use super::refusal::{Refusal, RefusalKind};
use super::serve::LongLived;
use super::standing::Standing;
use crate::blocking::beside;

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

pub(super) async fn version() -> Result<Json<Version>, Refusal> {
    Ok(Json(Version { program: "cobd".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), api: API_VERSION }))
}

pub(super) async fn whoami(Extension(who): Extension<Who>) -> Result<Json<Whoami>, Refusal> {
    Ok(Json(Whoami { name: who.name, role: who.role, proof: who.proof.word().to_owned() }))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StatusQuery {
    /// The listed change objects.
    #[serde(default)]
    cobs: StatusOf,
    /// The most listed change objects that only wait, if not all are listed.
    waiting: Option<usize>,
}

impl QueryWords for StatusQuery {
    const KNOWN: &'static str = "known are `cobs`, which is `all` or `restless`, and `waiting`, a number";
}

pub(super) async fn status(
    State(api): State<Api>,
    Words(StatusQuery { cobs: of, waiting }): Words<StatusQuery>,
) -> Result<Json<HostStatus>, Refusal> {
    let most_waiting = waiting.unwrap_or(usize::MAX);
    Ok(Json(api.ask(|reply| Ask::Status { of, most_waiting, reply }).await?))
}

/// For a publisher that needs a number which no host knows.
pub(super) async fn generations(State(api): State<Api>) -> Result<Json<KnownGenerations>, Refusal> {
    let known = api.ask(|reply| Ask::Known { reply }).await?;
    Ok(Json(KnownGenerations { host: api.host.clone(), known }))
}

/// Collects the facts anew for each request: requests are rare.
pub(super) async fn facts(State(api): State<Api>) -> Result<Json<FactsOf>, Refusal> {
    let host = api.ask(|reply| Ask::Status { of: StatusOf::Active, most_waiting: 0, reply }).await?.name;
    let facts = beside(|| crate::facts::collect(std::path::Path::new("/"))).await;
    let facts = facts.map_err(|e| Refusal::new(RefusalKind::Unavailable, format!("facts can't be read: {e}"), ""))?;
    Ok(Json(FactsOf { host, facts }))
}

pub(super) async fn cob(State(api): State<Api>, CobPath(id): CobPath) -> Result<Json<CobStatus>, Refusal> {
    let found = api.ask(|reply| Ask::Cob { id: id.clone(), reply }).await?;
    found.map(Json).ok_or_else(|| no_cob(&id))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// The first position: the last `seq` of the page before, whose known entries come again.
    #[serde(default)]
    since: u64,
    /// Only entries about this change object.
    #[schemars(with = "Option<CobId>")]
    cob: Option<String>,
    /// The most entries of the page, at most 10,000; 1,000 if absent. Fewer entries are the end.
    limit: Option<usize>,
    /// The newest entries, the oldest first.
    #[serde(default)]
    newest: bool,
}

impl QueryWords for HistoryQuery {
    const KNOWN: &'static str = "known are `since`, `cob`, `limit` and `newest`, each once";
}

pub(super) async fn history(
    State(api): State<Api>,
    Words(query): Words<HistoryQuery>,
) -> Result<Lines<HistoryEntry>, Refusal> {
    let limit = query.limit.unwrap_or(HISTORY).min(MAX_HISTORY);
    let cob = query.cob.as_deref().map(cob_id).transpose()?;
    let mut entries =
        api.ask(|reply| Ask::History { since: query.since, cob, limit, newest: query.newest, reply }).await??;
    entries.truncate(limit);
    Lines::of(&entries)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OutcomeQuery {
    /// The generation of the switch.
    to: u64,
}

impl QueryWords for OutcomeQuery {
    const KNOWN: &'static str = "known is `to`, a generation's number";
}

pub(super) async fn outcome(
    State(api): State<Api>,
    Words(OutcomeQuery { to }): Words<OutcomeQuery>,
) -> Result<Json<OutcomeOf>, Refusal> {
    let found = api.ask(|reply| Ask::Outcome { to: GenerationNumber(to), reply }).await?;
    found.map(Json).ok_or_else(|| {
        Refusal::new(
            RefusalKind::NotFound,
            format!("no switch to generation {to} has begun since the daemon was started"),
            "/v1/history has earlier switches",
        )
    })
}

pub(super) async fn output(State(api): State<Api>, CobPath(id): CobPath) -> Result<Text, Refusal> {
    let text = api.ask(|reply| Ask::Output { cob: id.clone(), reply }).await?.ok_or_else(|| {
        Refusal::new(
            RefusalKind::NotFound,
            format!("no output of {id} is kept"),
            "output is kept of the last action or check that ran as a process",
        )
    })?;
    Ok(Text(text))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LogsWords {
    /// The most lines, counted from the end.
    #[serde(default = "some_lines")]
    #[schemars(range(min = 1, max = 10_000))]
    lines: usize,
    /// Only output after this place: `next` of an earlier answer.
    after: Option<String>,
    /// The output of the previous run.
    #[serde(default)]
    previous: bool,
}

impl QueryWords for LogsWords {
    const KNOWN: &'static str = "known are `lines`, `after` and `previous`";
}

fn some_lines() -> usize {
    100
}

pub(super) async fn logs(
    State(api): State<Api>,
    CobPath(id): CobPath,
    Words(LogsWords { lines, after, previous }): Words<LogsWords>,
) -> Result<Json<LogsAnswer>, Refusal> {
    if !(1..=LogsQuery::MAX_LINES).contains(&lines) {
        let what = format!("`lines` is from 1 to {}", LogsQuery::MAX_LINES);
        return Err(Refusal::new(RefusalKind::Invalid, what, LogsWords::KNOWN));
    }
    Ok(Json(api.logs(id, LogsQuery { lines, after, previous }).await?))
}

pub(super) async fn check(
    State(api): State<Api>,
    Extension(author): Extension<Who>,
    Ordered(Check { cobs, who }): Ordered<Check>,
) -> Result<Json<CheckRound>, Refusal> {
    tracing::info!(who = author.author(who.as_deref()), cobs = cobs.len(), "a round of checks is asked for");
    let round = api.ask(|reply| Ask::Check { cobs, reply }).await??;
    standing_of_round(&api, round).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RoundQuery {
    /// The number of the round, as `POST /v1/check` answered; the last 8 rounds are known.
    round: u64,
}

impl QueryWords for RoundQuery {
    const KNOWN: &'static str = "known is `round`, a round's number";
}

pub(super) async fn check_round(
    State(api): State<Api>,
    Words(RoundQuery { round }): Words<RoundQuery>,
) -> Result<Json<CheckRound>, Refusal> {
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

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct EventsQuery {
    /// Each event has the status with these change objects.
    status: Option<StatusOf>,
    /// The most listed change objects that only wait, if not all are listed.
    waiting: Option<usize>,
}

impl QueryWords for EventsQuery {
    const KNOWN: &'static str = "known are `status`, which is `all` or `restless`, and `waiting`, a number";
}

/// Sends an event at once, and another after each change; changes close together share an event ([`super::pace`]). On
/// request, an event contains the status: a client that watches many hosts would otherwise ask each host after every
/// event, each time with a new connection.
pub(super) async fn events(
    State(api): State<Api>,
    Extension(long_lived): Extension<LongLived>,
    Words(EventsQuery { status: of, waiting }): Words<EventsQuery>,
) -> Result<Events<Change>, Refusal> {
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
                if of == StatusOf::Active {
                    // Peers that are up would be most of each event in a large cluster.
                    status.peers.retain(|peer| !peer.up || peer.unheard.is_some());
                }
                Some(status)
            }
            None => None,
        };
        Some((Change { change, status }, (changes, stands, api, place, false)))
    });
    Ok(Events::of("change", changes, KEEP_ALIVE))
}

pub(super) async fn unknown_path(uri: Uri) -> Refusal {
    Refusal::new(
        RefusalKind::NotFound,
        format!("there is no path {:?}", uri.path()),
        "paths begin with /v1/; docs/openapi.json lists the paths",
    )
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    Refusal::new(
        RefusalKind::Method,
        format!("{:?} does not know the method {method}", uri.path()),
        "questions use GET, orders use POST",
    )
}

/// Reads and parses a body within its limits. An empty body counts as `{}`.
///
/// A body may arrive slowly: when it is complete, the right of its author to give orders is checked again.
pub(super) async fn body<T: Order>(api: &Api, request: Request) -> Result<T, Refusal> {
    let (head, content) = request.into_parts();
    let bytes = tokio::time::timeout(BODY, collect(content, T::MOST_BYTES)).await.map_err(|_| {
        Refusal::new(RefusalKind::Invalid, format!("the body did not arrive within {} s", BODY.as_secs()), "")
    })??;
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    if let Some(standing) = head.extensions.get::<Standing>() {
        standing.orders(&api.access())?;
    }
    api.epochs.admit(&head.headers)?;
    let misfit = |what: &str| {
        let what = format!("the body does not fit this order: {what}");
        Refusal::new(RefusalKind::Invalid, what, "docs/openapi.json shows it").with(RefusalCode::Misfit)
    };
    // serde takes a list as the fields in their order, too.
    if text.trim_ascii_start().first() == Some(&b'[') {
        return Err(misfit("a list is no JSON object"));
    }
    serde_json::from_slice(text).map_err(|e| misfit(&form(e)))
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
