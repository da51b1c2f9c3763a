//! The paths about files: differences, history, and decisions about conflicts.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use cob_files::Choice;
use cob_types::GenerationNumber;
use cob_types::api::order::{ChoiceWord, Resolve, Restore};
use cob_types::api::{Done, FilesAnswer, Order};
use serde::Deserialize;

use super::access::Who;
use super::api::Api;
use super::refusal::{Refusal, RefusalKind};
use super::routes::{body, body_of, cob_id};
use crate::kinds::FilesQuery;

/// The longest body of `files/resolve`: it may contain a whole file.
const MAX_EDITED: usize = 1 << 20;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/v1/files/diff/{*id}", get(diff))
        .route("/v1/files/log/{*id}", get(log))
        .route("/v1/files/show/{*id}", get(show))
        .route("/v1/files/hunks/{*id}", get(hunks))
        .route("/v1/files/patch/{*id}", get(patch))
        .route(Resolve::PATH, post(resolve))
        .route(Restore::PATH, post(restore))
}

type Answer = Result<Json<FilesAnswer>, Refusal>;

// The loop knows whether a change object is about to depart, and sets `retire`.

async fn diff(State(api): State<Api>, Path(id): Path<String>, query: Result<Query<Which>, QueryRejection>) -> Answer {
    let Which { generation, .. } = which(query)?;
    Ok(Json(
        api.files(cob_id(&id)?, generation, FilesQuery::Diff { retire: false, written: generation.is_some() }).await?,
    ))
}

async fn log(State(api): State<Api>, Path(id): Path<String>) -> Answer {
    Ok(Json(api.files(cob_id(&id)?, None, FilesQuery::Log).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    version: Option<String>,
    path: Option<String>,
    generation: Option<GenerationNumber>,
}

fn which(query: Result<Query<Which>, QueryRejection>) -> Result<Which, Refusal> {
    let known = |e: QueryRejection| {
        Refusal::new(RefusalKind::Invalid, e.body_text(), "known are `version`, `path` and `generation`")
    };
    query.map(|Query(which)| which).map_err(known)
}

async fn show(State(api): State<Api>, Path(id): Path<String>, query: Result<Query<Which>, QueryRejection>) -> Answer {
    let Which { version, path, .. } = which(query)?;
    let missing = || Refusal::new(RefusalKind::Invalid, "`version` is needed", "/v1/files/log/ID lists the versions");
    let query = FilesQuery::Show { version: version.ok_or_else(missing)?, path };
    Ok(Json(api.files(cob_id(&id)?, None, query).await?))
}

async fn hunks(State(api): State<Api>, Path(id): Path<String>, query: Result<Query<Which>, QueryRejection>) -> Answer {
    let Which { path, generation, .. } = which(query)?;
    Ok(Json(api.files(cob_id(&id)?, generation, FilesQuery::Hunks { path, retire: false }).await?))
}

async fn patch(State(api): State<Api>, Path(id): Path<String>) -> Answer {
    Ok(Json(api.files(cob_id(&id)?, None, FilesQuery::Patch).await?))
}

type Ordered = Result<Json<Done>, Refusal>;

async fn resolve(State(api): State<Api>, Extension(author): Extension<Who>, request: Request) -> Ordered {
    let Resolve { cob, path, conflict, generation, choice, who } = body_of(&api, request, MAX_EDITED).await?;
    let choice = match choice {
        ChoiceWord::Ours => Choice::Ours,
        ChoiceWord::Theirs => Choice::Theirs,
        ChoiceWord::Edited(text) => Choice::Edited(text.into_bytes()),
    };
    let query = FilesQuery::Resolve { path, conflict, choice, retire: false };
    let answer = api.order_files(cob, generation, query, author.author(who.as_deref())).await?;
    Ok(Json(Done::new(true, answer.text)))
}

async fn restore(State(api): State<Api>, Extension(author): Extension<Who>, request: Request) -> Ordered {
    let Restore { cob, version, path, who } = body(&api, request).await?;
    let query = FilesQuery::Restore { version, path };
    let answer = api.order_files(cob, None, query, author.author(who.as_deref())).await?;
    Ok(Json(Done::new(true, answer.text)))
}
