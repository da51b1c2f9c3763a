//! The handlers of the routes.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use cob_hub_api::{
    AuditLine, AuditQuery, Cluster, ClusterQuery, ClusterRequest, DrainRequest, Entity, EntityWritten,
    ExportedEntities, ImportedEntities, Job, JobQuery, Lease, LogIn, LogInEnd, LogInStart, LogInStarted, LogPart,
    Machine, MachineQuery, Operation, PasswordRequest, Preview, Priority, Queue, RuleContent, Session, SessionRequest,
    Started, Token, TokenInfo, TokenRequest, Usages, Whoami,
};
use cob_jobs::JobId;
use cob_permissions::{Change, Directory};
use serde_json::Value;

use super::access::{Forwarded, OwnPage};
use super::answer::{Accepted, Answered, NoContent, Refused, Taken};
use super::arguments::{Body, Content, InPath, Words};
use super::parameters::{
    Exchange, From, How, OfCluster, OfEntity, OfFile, OfJob, OfLogIn, OfRule, OfSection, OfToken, OrderOf, Rank,
    Version, Where,
};
use crate::hub::{Caller, Claim, Credential, Hub, HubError};

type Shared = State<Arc<Hub>>;
type Who = Extension<Caller>;

pub(super) async fn unknown() -> Refused {
    HubError::Missing { what: "route", name: "of the API".to_owned() }.into()
}

pub(super) async fn wrong_method() -> Refused {
    HubError::Method.into()
}

pub(super) async fn whoami(State(hub): Shared, Extension(caller): Who) -> Answered<Whoami> {
    Ok(Json(hub.whoami(&caller).await))
}

pub(super) async fn entities(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfSection>,
) -> Answered<Vec<String>> {
    Ok(Json(hub.entities(&caller, of.section).await?))
}

pub(super) async fn entity(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfEntity>,
    Words(of_version): Words<Version>,
) -> Answered<Entity> {
    Ok(Json(hub.entity(&caller, of.section, &of.name, of_version.version.as_deref()).await?))
}

pub(super) async fn versions(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfEntity>,
) -> Answered<Vec<Entity>> {
    Ok(Json(hub.versions(&caller, of.section, &of.name).await?))
}

pub(super) async fn set_entity(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfEntity>,
    Words(place): Words<Where>,
    Body(definition): Body<Value>,
) -> Answered<EntityWritten> {
    Ok(Json(hub.set_entity(&caller, of.section, &of.name, Some(definition), place.shared).await?))
}

pub(super) async fn delete_entity(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfEntity>,
    Words(place): Words<Where>,
) -> Answered<EntityWritten> {
    Ok(Json(hub.set_entity(&caller, of.section, &of.name, None, place.shared).await?))
}

pub(super) async fn export(
    State(hub): Shared,
    Extension(caller): Who,
    Words(exchange): Words<Exchange>,
) -> Answered<ExportedEntities> {
    Ok(Json(hub.export(&caller, exchange.form, exchange.shared).await?))
}

pub(super) async fn import(
    State(hub): Shared,
    Extension(caller): Who,
    Words(exchange): Words<Exchange>,
    Body(document): Body<Value>,
) -> Answered<ImportedEntities> {
    Ok(Json(hub.import(&caller, document, exchange.form, exchange.shared).await?))
}

pub(super) async fn set_file(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(file): InPath<OfFile>,
    Words(place): Words<Where>,
    Content(content): Content,
) -> Answered<EntityWritten> {
    Ok(Json(hub.set_file(&caller, file.path, Some(content.to_vec()), place.shared).await?))
}

pub(super) async fn delete_file(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(file): InPath<OfFile>,
    Words(place): Words<Where>,
) -> Answered<EntityWritten> {
    Ok(Json(hub.set_file(&caller, file.path, None, place.shared).await?))
}

pub(super) async fn clusters(
    State(hub): Shared,
    Extension(caller): Who,
    Words(query): Words<ClusterQuery>,
) -> Answered<Vec<Cluster>> {
    Ok(Json(hub.clusters(&caller, &query).await?))
}

pub(super) async fn create(
    State(hub): Shared,
    Extension(caller): Who,
    Words(rank): Words<Rank>,
    Body(request): Body<ClusterRequest>,
) -> Result<Accepted<Started>, Refused> {
    let JobId(job) = hub.create_cluster(&caller, request, rank.priority).await?;
    Ok(Accepted(Started { job }))
}

pub(super) async fn cluster(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfCluster>,
) -> Answered<Cluster> {
    Ok(Json(hub.cluster(&caller, &of.name).await?))
}

pub(super) async fn operate(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfCluster>,
    Words(order): Words<OrderOf>,
    Body(operation): Body<Operation>,
) -> Result<Accepted<Started>, Refused> {
    let JobId(job) = hub.operate(&caller, &of.name, operation, order.base.as_deref(), order.priority).await?;
    Ok(Accepted(Started { job }))
}

pub(super) async fn preview(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfCluster>,
    Body(operation): Body<Operation>,
) -> Answered<Preview> {
    Ok(Json(hub.preview_operation(&caller, &of.name, &operation).await?))
}

pub(super) async fn preview_creation(
    State(hub): Shared,
    Extension(caller): Who,
    Body(request): Body<ClusterRequest>,
) -> Answered<Preview> {
    Ok(Json(hub.preview_creation(&caller, &request).await?))
}

pub(super) async fn extend(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfCluster>,
    Body(lease): Body<Lease>,
) -> Answered<Cluster> {
    Ok(Json(hub.extend_lease(&caller, &of.name, lease.lease_s).await?))
}

pub(super) async fn jobs(
    State(hub): Shared,
    Extension(caller): Who,
    Words(query): Words<JobQuery>,
) -> Answered<Vec<Job>> {
    Ok(Json(hub.jobs(&caller, &query).await?))
}

pub(super) async fn job(State(hub): Shared, Extension(caller): Who, InPath(of): InPath<OfJob>) -> Answered<Job> {
    Ok(Json(hub.job(&caller, JobId(of.id)).await?))
}

pub(super) async fn log(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfJob>,
    Words(part): Words<From>,
) -> Answered<LogPart> {
    Ok(Json(hub.log(&caller, JobId(of.id), part.from).await?))
}

pub(super) async fn cancel(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfJob>,
    Words(how): Words<How>,
) -> Result<Taken, Refused> {
    hub.cancel(&caller, JobId(of.id), how.kill).await?;
    Ok(Taken)
}

pub(super) async fn set_priority(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfJob>,
    Body(wanted): Body<Priority>,
) -> Answered<Job> {
    Ok(Json(hub.set_priority(&caller, JobId(of.id), wanted.priority).await?))
}

pub(super) async fn queue(State(hub): Shared, Extension(caller): Who) -> Answered<Queue> {
    Ok(Json(hub.queue(&caller).await?))
}

pub(super) async fn drain(
    State(hub): Shared,
    Extension(caller): Who,
    Body(request): Body<DrainRequest>,
) -> Result<NoContent, Refused> {
    hub.drain(&caller, request).await?;
    Ok(NoContent)
}

pub(super) async fn undrain(State(hub): Shared, Extension(caller): Who) -> Result<NoContent, Refused> {
    hub.undrain(&caller).await?;
    Ok(NoContent)
}

pub(super) async fn set_rule(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfRule>,
    Body(rule): Body<RuleContent>,
) -> Result<NoContent, Refused> {
    hub.set_rule(&caller, &of.name, rule).await?;
    Ok(NoContent)
}

pub(super) async fn remove_rule(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfRule>,
) -> Result<NoContent, Refused> {
    hub.remove_rule(&caller, &of.name).await?;
    Ok(NoContent)
}

pub(super) async fn machines(
    State(hub): Shared,
    Extension(caller): Who,
    Words(query): Words<MachineQuery>,
) -> Answered<Vec<Machine>> {
    Ok(Json(if query.orphans { hub.orphans(&caller).await? } else { hub.all_machines(&caller, &query).await? }))
}

pub(super) async fn directory(State(hub): Shared, Extension(caller): Who) -> Answered<Directory> {
    Ok(Json(hub.visible_directory(&caller).await))
}

pub(super) async fn change_directory(
    State(hub): Shared,
    Extension(caller): Who,
    Body(change): Body<Change>,
) -> Result<NoContent, Refused> {
    hub.change_directory(&caller, &change).await?;
    Ok(NoContent)
}

pub(super) async fn token(
    State(hub): Shared,
    Extension(caller): Who,
    Body(request): Body<TokenRequest>,
) -> Answered<Token> {
    let now = crate::hub::now_ms();
    let credential = Credential {
        user: request.user.unwrap_or_else(|| caller.subject.user.clone()),
        label: request.label.chars().take(100).collect(),
        scope: request.scope,
        made_ms: now,
        ends_ms: request.lives_s.map(|lives| now.saturating_add(lives.saturating_mul(1000))),
        session: false,
    };
    Ok(Json(Token { token: hub.make_token(&caller, credential).await? }))
}

pub(super) async fn log_in(
    State(hub): Shared,
    address: Option<Extension<Forwarded>>,
    Body(request): Body<SessionRequest>,
) -> Answered<Session> {
    let claim = Claim { user: request.user, address: address.map(|Extension(Forwarded(address))| address) };
    Ok(Json(hub.log_in(claim, request.password).await?))
}

pub(super) async fn log_ins(State(hub): Shared) -> Answered<Vec<LogIn>> {
    Ok(Json(hub.log_ins()))
}

pub(super) async fn begin_log_in(
    State(hub): Shared,
    InPath(of): InPath<OfLogIn>,
    page: Option<Extension<OwnPage>>,
    Body(start): Body<LogInStart>,
) -> Answered<LogInStarted> {
    // The provider leads a browser back to the page.
    let Some(Extension(OwnPage(page))) = page else {
        return Err(HubError::Bad("a log-in at a provider begins on the hub's page".to_owned()).into());
    };
    Ok(Json(hub.begin_log_in(of.log_in.as_str(), start, &page).await?))
}

pub(super) async fn finish_log_in(
    State(hub): Shared,
    InPath(of): InPath<OfLogIn>,
    Body(end): Body<LogInEnd>,
) -> Answered<Session> {
    Ok(Json(hub.finish_log_in(of.log_in.as_str(), end).await?))
}

pub(super) async fn log_out(State(hub): Shared, Extension(caller): Who) -> Result<NoContent, Refused> {
    hub.log_out(&caller).await?;
    Ok(NoContent)
}

pub(super) async fn set_password(
    State(hub): Shared,
    Extension(caller): Who,
    Body(request): Body<PasswordRequest>,
) -> Result<NoContent, Refused> {
    hub.set_password(&caller, request).await?;
    Ok(NoContent)
}

pub(super) async fn usage(State(hub): Shared, Extension(caller): Who) -> Answered<Usages> {
    Ok(Json(hub.usage(&caller).await?))
}

pub(super) async fn tokens(State(hub): Shared, Extension(caller): Who) -> Answered<Vec<TokenInfo>> {
    Ok(Json(hub.tokens(&caller).await))
}

pub(super) async fn revoke_token(
    State(hub): Shared,
    Extension(caller): Who,
    InPath(of): InPath<OfToken>,
) -> Result<NoContent, Refused> {
    hub.revoke_token(&caller, &of.id).await?;
    Ok(NoContent)
}

pub(super) async fn audit(
    State(hub): Shared,
    Extension(caller): Who,
    Words(query): Words<AuditQuery>,
) -> Answered<Vec<AuditLine>> {
    let lines = hub.audit_lines(&caller, &query).await?;
    Ok(Json(lines))
}
