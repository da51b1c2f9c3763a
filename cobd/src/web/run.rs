//! Commands of an operator: the order, its answer as a stream of events, and the kept output.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Extension, Path, Request, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{get, post};
use axum::{Json, Router};
use cob_types::command_run::{RunId, RunOrder, StoredRun};
use futures_util::stream;

use super::access::{Proof, Who};
use super::api::{Api, Ask};
use super::refusal::{Refusal, RefusalKind};
use super::routes::body;
use super::serve::LongLived;
use super::standing::Standing;

/// The interval of comments during a silent command: both ends notice a dead link.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/v1/run", post(run)).route("/v1/run/{run}", get(kept))
}

/// Runs a command for as long as its operator stays connected.
async fn run(
    State(api): State<Api>,
    Extension(author): Extension<Who>,
    Extension(long_lived): Extension<LongLived>,
    request: Request,
) -> Result<impl IntoResponse, Refusal> {
    proved(&author)?;
    let standing = request.extensions().get::<Standing>().cloned();
    let order: RunOrder = body(&api, request).await?;
    let Ok(place) = api.watchers.clone().try_acquire_owned() else {
        let hint = "try again when another operator has gone";
        return Err(Refusal::new(RefusalKind::Unavailable, "too many operators watch this host", hint));
    };
    let who = author.author(order.who.as_deref());
    let running = api.run(order, who).await?;
    long_lived.set();
    if let Some(standing) = standing {
        standing.answers_for_long(&api.access())?;
    }
    let events = stream::unfold((running, place), |(mut running, place)| async move {
        let event = running.next().await?;
        let event = Event::default().event("run").json_data(event).ok()?;
        Some((Ok::<_, Infallible>(event), (running, place)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

async fn kept(
    State(api): State<Api>,
    Extension(author): Extension<Who>,
    Path(run): Path<String>,
) -> Result<Json<StoredRun>, Refusal> {
    proved(&author)?;
    let run: RunId = run.parse().map_err(|why| Refusal::new(RefusalKind::Invalid, why, ""))?;
    let found = api.ask(|reply| Ask::StoredRun { run, reply }).await?;
    found.map(Json).ok_or_else(|| {
        let hint = "a host keeps the output of its last 100 commands; `cobctl history` lists the runs";
        Refusal::new(RefusalKind::NotFound, format!("no output of the run {run} is kept on {}", api.host), hint)
    })
}

/// Under `security: loopback-only` each user of the machine may give orders. These lead to the model's states only; a
/// command has all rights of the daemon.
fn proved(who: &Who) -> Result<(), Refusal> {
    if who.proof != Proof::Nothing {
        return Ok(());
    }
    let what = "a command needs a proof of identity, and TCP with `security: loopback-only` has no proof";
    let hint = "use the daemon's Unix socket as root (`--host unix:PATH`), or give hosts and operators keys (docs/security.md)";
    Err(Refusal::new(RefusalKind::Forbidden, what, hint))
}
