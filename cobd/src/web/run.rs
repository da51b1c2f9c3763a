//! Commands of an operator: the order, its answer as a stream of events, and the kept output.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, FromRequestParts, State};
use axum::http::request::Parts;
use cob_api_server::described::Argument;
use cob_types::command_run::{RunEvent, RunOrder, StoredRun};
use futures_util::stream;

use super::access::{Proof, Who};
use super::api::{Api, Ask};
use super::described::{Events, Ordered, RunPath};
use super::refusal::{Refusal, RefusalKind};
use super::serve::LongLived;
use super::standing::Standing;

/// The interval of comments during a silent command: both ends notice a dead link.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Runs a command for as long as its operator stays connected.
pub(super) async fn run(
    State(api): State<Api>,
    Proved(author): Proved,
    Extension(long_lived): Extension<LongLived>,
    standing: Option<Extension<Standing>>,
    Ordered(order): Ordered<RunOrder>,
) -> Result<Events<RunEvent>, Refusal> {
    let Ok(place) = api.watchers.clone().try_acquire_owned() else {
        let hint = "try again when another operator has gone";
        return Err(Refusal::new(RefusalKind::Unavailable, "too many operators watch this host", hint));
    };
    let who = author.author(order.who.as_deref());
    let running = api.run(order, who).await?;
    long_lived.set();
    if let Some(Extension(standing)) = standing {
        standing.answers_for_long(&api.access())?;
    }
    let events = stream::unfold((running, place), |(mut running, place)| async move {
        let event = running.next().await?;
        Some((event, (running, place)))
    });
    Ok(Events::of("run", events, KEEP_ALIVE))
}

pub(super) async fn kept(
    State(api): State<Api>,
    Proved(_): Proved,
    RunPath(run): RunPath,
) -> Result<Json<StoredRun>, Refusal> {
    let found = api.ask(|reply| Ask::StoredRun { run, reply }).await?;
    found.map(Json).ok_or_else(|| {
        let hint = "a host keeps the output of its last 100 commands; `cobctl history` lists the runs";
        Refusal::new(RefusalKind::NotFound, format!("no output of the run {run} is kept on {}", api.host), hint)
    })
}

/// A caller with a proof of identity.
///
/// Under `security: loopback-only` each user of the machine may give orders. These lead to the model's states only; a
/// command has all rights of the daemon.
#[derive(Debug)]
pub(super) struct Proved(Who);

impl FromRequestParts<Api> for Proved {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Refusal> {
        let who = parts.extensions.get::<Who>().filter(|who| who.proof != Proof::Nothing);
        who.cloned().map(Self).ok_or_else(unproved)
    }
}

impl Argument for Proved {}

fn unproved() -> Refusal {
    let what = "a command needs a proof of identity, and TCP with `security: loopback-only` has no proof";
    let hint = "use the daemon's Unix socket as root (`--host unix:PATH`), or give hosts and operators keys (docs/security.md)";
    Refusal::new(RefusalKind::Forbidden, what, hint)
}
