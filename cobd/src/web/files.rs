//! The handlers about files: differences, history, and decisions about conflicts.

use axum::extract::State;
use axum::{Extension, Json};
use cob_files::Choice;
use cob_types::GenerationNumber;
use cob_types::api::order::{ChoiceWord, Resolve, Restore};
use cob_types::api::{Done, FilesAnswer};
use schemars::JsonSchema;
use serde::Deserialize;

use super::access::Who;
use super::api::Api;
use super::described::{CobPath, Ordered, QueryWords, Words};
use super::refusal::{Refusal, RefusalKind};
use crate::kinds::FilesQuery;

type Answer = Result<Json<FilesAnswer>, Refusal>;

// The loop knows whether a change object is about to depart, and sets `retire`.

pub(super) async fn diff(
    State(api): State<Api>,
    CobPath(id): CobPath,
    Words(Which { generation, .. }): Words<Which>,
) -> Answer {
    let query = FilesQuery::Diff { retire: false, written: generation.is_some() };
    Ok(Json(api.files(id, generation, query).await?))
}

pub(super) async fn log(State(api): State<Api>, CobPath(id): CobPath) -> Answer {
    Ok(Json(api.files(id, None, FilesQuery::Log).await?))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// For `show`, which needs it: the id of a version.
    version: Option<String>,
    /// For `show` and `hunks`: only this file.
    path: Option<String>,
    /// For `diff` and `hunks`: compare with this prepared generation.
    generation: Option<GenerationNumber>,
}

impl QueryWords for Which {
    const KNOWN: &'static str = "known are `version`, `path` and `generation`";
}

pub(super) async fn show(
    State(api): State<Api>,
    CobPath(id): CobPath,
    Words(Which { version, path, .. }): Words<Which>,
) -> Answer {
    let missing = || Refusal::new(RefusalKind::Invalid, "`version` is needed", "/v1/files/log/ID lists the versions");
    let query = FilesQuery::Show { version: version.ok_or_else(missing)?, path };
    Ok(Json(api.files(id, None, query).await?))
}

pub(super) async fn hunks(
    State(api): State<Api>,
    CobPath(id): CobPath,
    Words(Which { path, generation, .. }): Words<Which>,
) -> Answer {
    Ok(Json(api.files(id, generation, FilesQuery::Hunks { path, retire: false }).await?))
}

pub(super) async fn patch(State(api): State<Api>, CobPath(id): CobPath) -> Answer {
    Ok(Json(api.files(id, None, FilesQuery::Patch).await?))
}

pub(super) async fn resolve(
    State(api): State<Api>,
    Extension(author): Extension<Who>,
    Ordered(Resolve { cob, path, conflict, generation, choice, who }): Ordered<Resolve>,
) -> Result<Json<Done>, Refusal> {
    let choice = match choice {
        ChoiceWord::Ours => Choice::Ours,
        ChoiceWord::Theirs => Choice::Theirs,
        ChoiceWord::Edited(text) => Choice::Edited(text.into_bytes()),
    };
    let query = FilesQuery::Resolve { path, conflict, choice, retire: false };
    let answer = api.order_files(cob, generation, query, author.author(who.as_deref())).await?;
    Ok(Json(Done::new(true, answer.text)))
}

pub(super) async fn restore(
    State(api): State<Api>,
    Extension(author): Extension<Who>,
    Ordered(Restore { cob, version, path, who }): Ordered<Restore>,
) -> Result<Json<Done>, Refusal> {
    let query = FilesQuery::Restore { version, path };
    let answer = api.order_files(cob, None, query, author.author(who.as_deref())).await?;
    Ok(Json(Done::new(true, answer.text)))
}
