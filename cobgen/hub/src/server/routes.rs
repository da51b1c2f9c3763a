//! The routes.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use cob_hub_api::{
    AuditLine, Cluster, ClusterQuery, ClusterRequest, Entity, EntityKind, EntityWritten, Job, Lease, LogPart, Machine,
    Name, Operation, Preview, Started, Token, TokenInfo, TokenRequest, Whoami,
};
use cob_jobs::JobId;
use cob_permissions::{Change, Directory};
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Answer, Refused};
use crate::hub::{Caller, Credential, Hub, HubError};

type Shared = State<Arc<Hub>>;
type Who = Extension<Caller>;

pub(super) fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/whoami", get(whoami))
        .route("/v1/catalogue/{kind}", get(entities))
        .route("/v1/catalogue/{kind}/{name}", get(entity).put(set_entity).delete(delete_entity))
        .route("/v1/catalogue/{kind}/{name}/versions", get(versions))
        .route("/v1/files/{*path}", put(set_file).delete(delete_file))
        .route("/v1/clusters", get(clusters).post(create))
        .route("/v1/clusters/{name}", get(cluster))
        .route("/v1/clusters/{name}/operations", post(operate))
        .route("/v1/clusters/{name}/preview", post(preview))
        .route("/v1/clusters/{name}/lease", put(extend))
        .route("/v1/preview", post(preview_creation))
        .route("/v1/jobs", get(jobs))
        .route("/v1/jobs/{id}", get(job))
        .route("/v1/jobs/{id}/log", get(log))
        .route("/v1/jobs/{id}/cancel", post(cancel))
        .route("/v1/machines", get(machines))
        .route("/v1/directory", get(directory).post(change_directory))
        .route("/v1/tokens", get(tokens).post(token))
        .route("/v1/tokens/{id}", delete(revoke_token))
        .route("/v1/audit", get(audit))
        .fallback(unknown)
}

async fn unknown() -> Refused {
    HubError::Missing { what: "route", name: "of the API".to_owned() }.into()
}

async fn whoami(State(hub): Shared, Extension(caller): Who) -> Json<Whoami> {
    Json(hub.whoami(&caller).await)
}

/// Which version, and whether the shared part is meant.
#[derive(Deserialize)]
struct Where {
    version: Option<String>,
    #[serde(default)]
    shared: bool,
}

fn kind(text: &str) -> Result<EntityKind, HubError> {
    EntityKind::of_section(text).ok_or_else(|| HubError::Missing { what: "section", name: text.to_owned() })
}

async fn entities(State(hub): Shared, Extension(caller): Who, Path(section): Path<String>) -> Answer<Vec<String>> {
    Ok(Json(hub.entities(&caller, kind(&section)?).await?))
}

async fn entity(
    State(hub): Shared,
    Extension(caller): Who,
    Path((section, name)): Path<(String, String)>,
    Query(place): Query<Where>,
) -> Answer<Entity> {
    Ok(Json(hub.entity(&caller, kind(&section)?, &name, place.version.as_deref()).await?))
}

async fn versions(
    State(hub): Shared,
    Extension(caller): Who,
    Path((section, name)): Path<(String, String)>,
) -> Answer<Vec<Entity>> {
    Ok(Json(hub.versions(&caller, kind(&section)?, &name).await?))
}

async fn set_entity(
    State(hub): Shared,
    Extension(caller): Who,
    Path((section, name)): Path<(String, String)>,
    Query(place): Query<Where>,
    Json(definition): Json<Value>,
) -> Answer<EntityWritten> {
    Ok(Json(hub.set_entity(&caller, kind(&section)?, &name, Some(definition), place.shared).await?))
}

async fn delete_entity(
    State(hub): Shared,
    Extension(caller): Who,
    Path((section, name)): Path<(String, String)>,
    Query(place): Query<Where>,
) -> Answer<EntityWritten> {
    Ok(Json(hub.set_entity(&caller, kind(&section)?, &name, None, place.shared).await?))
}

async fn set_file(
    State(hub): Shared,
    Extension(caller): Who,
    Path(path): Path<String>,
    Query(place): Query<Where>,
    content: Bytes,
) -> Answer<EntityWritten> {
    Ok(Json(hub.set_file(&caller, path, Some(content.to_vec()), place.shared).await?))
}

async fn delete_file(
    State(hub): Shared,
    Extension(caller): Who,
    Path(path): Path<String>,
    Query(place): Query<Where>,
) -> Answer<EntityWritten> {
    Ok(Json(hub.set_file(&caller, path, None, place.shared).await?))
}

async fn clusters(
    State(hub): Shared,
    Extension(caller): Who,
    Query(query): Query<ClusterQuery>,
) -> Answer<Vec<Cluster>> {
    Ok(Json(hub.clusters(&caller, &query).await?))
}

async fn create(
    State(hub): Shared,
    Extension(caller): Who,
    Json(request): Json<ClusterRequest>,
) -> Result<(StatusCode, Json<Started>), Refused> {
    let JobId(job) = hub.create_cluster(&caller, request).await?;
    Ok((StatusCode::ACCEPTED, Json(Started { job })))
}

async fn cluster(State(hub): Shared, Extension(caller): Who, Path(name): Path<Name>) -> Answer<Cluster> {
    Ok(Json(hub.cluster(&caller, &name).await?))
}

async fn operate(
    State(hub): Shared,
    Extension(caller): Who,
    Path(name): Path<Name>,
    Json(operation): Json<Operation>,
) -> Result<(StatusCode, Json<Started>), Refused> {
    let JobId(job) = hub.operate(&caller, &name, operation).await?;
    Ok((StatusCode::ACCEPTED, Json(Started { job })))
}

async fn preview(
    State(hub): Shared,
    Extension(caller): Who,
    Path(name): Path<Name>,
    Json(operation): Json<Operation>,
) -> Answer<Preview> {
    Ok(Json(hub.preview_operation(&caller, &name, &operation).await?))
}

async fn preview_creation(
    State(hub): Shared,
    Extension(caller): Who,
    Json(request): Json<ClusterRequest>,
) -> Answer<Preview> {
    Ok(Json(hub.preview_creation(&caller, &request).await?))
}

async fn extend(
    State(hub): Shared,
    Extension(caller): Who,
    Path(name): Path<Name>,
    Json(lease): Json<Lease>,
) -> Answer<Cluster> {
    Ok(Json(hub.extend_lease(&caller, &name, lease.lease_s).await?))
}

/// Which jobs.
#[derive(Deserialize)]
struct Which {
    cluster: Option<Name>,
    #[serde(default)]
    open: bool,
}

async fn jobs(State(hub): Shared, Extension(caller): Who, Query(which): Query<Which>) -> Answer<Vec<Job>> {
    Ok(Json(hub.jobs(&caller, which.cluster.as_ref(), which.open).await?))
}

async fn job(State(hub): Shared, Extension(caller): Who, Path(id): Path<u64>) -> Answer<Job> {
    Ok(Json(hub.job(&caller, JobId(id)).await?))
}

/// A part of a log.
#[derive(Deserialize)]
struct From {
    #[serde(default)]
    from: u64,
}

async fn log(
    State(hub): Shared,
    Extension(caller): Who,
    Path(id): Path<u64>,
    Query(part): Query<From>,
) -> Answer<LogPart> {
    Ok(Json(hub.log(&caller, JobId(id), part.from).await?))
}

/// How to cancel.
#[derive(Deserialize)]
struct How {
    #[serde(default)]
    kill: bool,
}

async fn cancel(
    State(hub): Shared,
    Extension(caller): Who,
    Path(id): Path<u64>,
    Query(how): Query<How>,
) -> Result<StatusCode, Refused> {
    hub.cancel(&caller, JobId(id), how.kill).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Which machines.
#[derive(Deserialize)]
struct WhichMachines {
    #[serde(default)]
    orphans: bool,
}

async fn machines(
    State(hub): Shared,
    Extension(caller): Who,
    Query(which): Query<WhichMachines>,
) -> Answer<Vec<Machine>> {
    Ok(Json(if which.orphans { hub.orphans(&caller).await? } else { hub.all_machines(&caller).await? }))
}

async fn directory(State(hub): Shared, Extension(caller): Who) -> Answer<Directory> {
    Ok(Json(hub.visible_directory(&caller).await))
}

async fn change_directory(
    State(hub): Shared,
    Extension(caller): Who,
    Json(change): Json<Change>,
) -> Result<StatusCode, Refused> {
    hub.change_directory(&caller, &change).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn token(State(hub): Shared, Extension(caller): Who, Json(request): Json<TokenRequest>) -> Answer<Token> {
    let now = crate::hub::now_ms();
    let credential = Credential {
        user: request.user.unwrap_or_else(|| caller.subject.user.clone()),
        label: request.label.chars().take(100).collect(),
        scope: request.scope,
        made_ms: now,
        ends_ms: request.lives_s.map(|lives| now.saturating_add(lives.saturating_mul(1000))),
    };
    Ok(Json(Token { token: hub.make_token(&caller, credential).await? }))
}

async fn tokens(State(hub): Shared, Extension(caller): Who) -> Json<Vec<TokenInfo>> {
    Json(hub.tokens(&caller).await)
}

async fn revoke_token(
    State(hub): Shared,
    Extension(caller): Who,
    Path(id): Path<String>,
) -> Result<StatusCode, Refused> {
    hub.revoke_token(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which lines of the audit.
#[derive(Deserialize)]
struct WhichLines {
    #[serde(default)]
    after: u64,
    user: Option<String>,
    cluster: Option<String>,
}

async fn audit(State(hub): Shared, Extension(caller): Who, Query(which): Query<WhichLines>) -> Answer<Vec<AuditLine>> {
    let lines = hub.audit_lines(&caller, which.after, which.user.as_deref(), which.cluster.as_deref()).await?;
    Ok(Json(lines))
}
