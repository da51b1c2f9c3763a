//! The requests of the API.

use bytes::Bytes;
use cob_hub_api::{
    AuditLine, AuditQuery, Cluster, ClusterQuery, ClusterRequest, DrainRequest, Entity, EntityKind, EntityWritten,
    ExchangeForm, ExportedEntities, ImportedEntities, Job, JobId, JobQuery, Lease, LogPart, Machine, MachineQuery,
    Name, Operation, PasswordRequest, Preview, Priority, Queue, RuleContent, Started, Token, TokenInfo, TokenRequest,
    Usages, Whoami,
};
use cob_permissions::{Change, Directory};
use hyper::Method;
use serde_json::Value;

use crate::client::{Client, Target};
use crate::error::CallError;

type Answer<T> = Result<T, CallError>;

/// The part of the catalogue that a change is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The part of the tenant.
    Tenant,
    /// The part that all tenants share.
    Shared,
}

impl Place {
    fn is_shared(self) -> Option<bool> {
        (self == Self::Shared).then_some(true)
    }
}

fn exchange_target(verb: &str, form: ExchangeForm, place: Place) -> Target {
    let form = match form {
        ExchangeForm::Model => None,
        ExchangeForm::Coopr => Some("coopr"),
    };
    Target::of(&[verb]).with("form", form).with("shared", place.is_shared())
}

fn entity_target(kind: EntityKind, name: &str) -> Target {
    Target::of(&["catalogue", kind.section(), name])
}

/// Each request fails with a [`CallError`], also when the hub refuses it.
#[expect(clippy::missing_errors_doc, reason = "the same errors for all requests: see the comment of the block")]
impl Client {
    /// The identity of the caller.
    pub async fn whoami(&self) -> Answer<Whoami> {
        self.get(&Target::of(&["whoami"])).await
    }

    /// The names of the entities of a kind.
    pub async fn entities(&self, kind: EntityKind) -> Answer<Vec<String>> {
        self.get(&Target::of(&["catalogue", kind.section()])).await
    }

    /// An entity, in its newest version or in another.
    pub async fn entity(&self, kind: EntityKind, name: &str, version: Option<&str>) -> Answer<Entity> {
        self.get(&entity_target(kind, name).with("version", version)).await
    }

    /// The versions of an entity, the newest first.
    pub async fn versions(&self, kind: EntityKind, name: &str) -> Answer<Vec<Entity>> {
        self.get(&Target::of(&["catalogue", kind.section(), name, "versions"])).await
    }

    /// Makes or replaces an entity.
    pub async fn set_entity(
        &self,
        kind: EntityKind,
        name: &str,
        definition: &Value,
        place: Place,
    ) -> Answer<EntityWritten> {
        let target = entity_target(kind, name).with("shared", place.is_shared());
        self.send_json(Method::PUT, &target, definition).await
    }

    /// Deletes an entity.
    pub async fn delete_entity(&self, kind: EntityKind, name: &str, place: Place) -> Answer<EntityWritten> {
        let target = entity_target(kind, name).with("shared", place.is_shared());
        self.send_bytes(Method::DELETE, &target, None).await
    }

    /// The entities of a part of the catalogue, as a document.
    pub async fn export(&self, form: ExchangeForm, place: Place) -> Answer<ExportedEntities> {
        self.get(&exchange_target("export", form, place)).await
    }

    /// Writes all entities of a document.
    pub async fn import(&self, document: &Value, form: ExchangeForm, place: Place) -> Answer<ImportedEntities> {
        self.send_json(Method::POST, &exchange_target("import", form, place), document).await
    }

    /// Writes a file of the catalogue.
    pub async fn set_file(&self, path: &str, content: Vec<u8>, place: Place) -> Answer<EntityWritten> {
        self.send_bytes(Method::PUT, &file_target(path, place), Some(Bytes::from(content))).await
    }

    /// Deletes a file of the catalogue.
    pub async fn delete_file(&self, path: &str, place: Place) -> Answer<EntityWritten> {
        self.send_bytes(Method::DELETE, &file_target(path, place), None).await
    }

    /// All clusters that the caller may see, without their machines.
    pub async fn clusters(&self) -> Answer<Vec<Cluster>> {
        let target =
            |last: Option<&Cluster>| Target::of(&["clusters"]).with("after", last.map(|cluster| cluster.name.clone()));
        self.all_pages(ClusterQuery::MOST, target).await
    }

    /// A cluster with its machines.
    pub async fn cluster(&self, name: &Name) -> Answer<Cluster> {
        self.get(&Target::of(&["clusters", name.as_str()])).await
    }

    /// Orders a new cluster; the job has this priority.
    pub async fn create(&self, request: &ClusterRequest, priority: Option<i8>) -> Answer<Started> {
        self.send_json(Method::POST, &Target::of(&["clusters"]).with("priority", priority), request).await
    }

    /// What a creation would do.
    pub async fn preview_creation(&self, request: &ClusterRequest) -> Answer<Preview> {
        self.send_json(Method::POST, &Target::of(&["preview"]), request).await
    }

    /// Orders an operation on a cluster; the job has this priority.
    pub async fn operate(
        &self,
        name: &Name,
        operation: &Operation,
        base: Option<&str>,
        priority: Option<i8>,
    ) -> Answer<Started> {
        let target = Target::of(&["clusters", name.as_str(), "operations"]);
        self.send_json(Method::POST, &target.with("base", base).with("priority", priority), operation).await
    }

    /// What an operation would do.
    pub async fn preview(&self, name: &Name, operation: &Operation) -> Answer<Preview> {
        self.send_json(Method::POST, &Target::of(&["clusters", name.as_str(), "preview"]), operation).await
    }

    /// Changes the end of a lease.
    pub async fn extend_lease(&self, name: &Name, lease: Lease) -> Answer<Cluster> {
        self.send_json(Method::PUT, &Target::of(&["clusters", name.as_str(), "lease"]), &lease).await
    }

    /// A page of the jobs that the caller may see, the newest first.
    pub async fn jobs(&self, query: &JobQuery) -> Answer<Vec<Job>> {
        let state = query.state.map(serde_json::to_value).and_then(Result::ok);
        let target = Target::of(&["jobs"])
            .with("open", query.open.then_some(true))
            .with("state", state.as_ref().and_then(Value::as_str))
            .with("cluster", query.cluster.as_ref())
            .with("user", query.user.as_ref())
            .with("operation", query.operation.as_ref())
            .with("since_ms", query.since_ms)
            .with("before", query.before)
            .with("limit", query.limit);
        self.get(&target).await
    }

    /// A job.
    pub async fn job(&self, id: JobId) -> Answer<Job> {
        self.get(&Target::of(&["jobs", &id.to_string()])).await
    }

    /// The log of a job from a position.
    pub async fn log(&self, id: JobId, from: u64) -> Answer<LogPart> {
        self.get(&Target::of(&["jobs", &id.to_string(), "log"]).with("from", Some(from))).await
    }

    /// Cancels a job; `kill` does not wait for its process.
    pub async fn cancel(&self, id: JobId, kill: bool) -> Answer<()> {
        let target = Target::of(&["jobs", &id.to_string(), "cancel"]).with("kill", kill.then_some(true));
        self.order(Method::POST, &target, None::<&()>).await
    }

    /// Changes the priority of a job that has not started.
    pub async fn set_priority(&self, id: JobId, priority: i8) -> Answer<Job> {
        let target = Target::of(&["jobs", &id.to_string(), "priority"]);
        self.send_json(Method::PUT, &target, &Priority { priority }).await
    }

    /// The drain and the rules of the queue.
    pub async fn queue(&self) -> Answer<Queue> {
        self.get(&Target::of(&["queue"])).await
    }

    /// Refuses new orders; jobs in the queue go on.
    pub async fn drain(&self, request: &DrainRequest) -> Answer<()> {
        self.order(Method::PUT, &Target::of(&["queue", "drain"]), Some(request)).await
    }

    /// Accepts orders again.
    pub async fn undrain(&self) -> Answer<()> {
        self.order(Method::DELETE, &Target::of(&["queue", "drain"]), None::<&()>).await
    }

    /// Writes a rule of the hub, or of the tenant that the requests name.
    pub async fn set_rule(&self, name: &Name, rule: &RuleContent) -> Answer<()> {
        self.order(Method::PUT, &Target::of(&["queue", "rules", name.as_str()]), Some(rule)).await
    }

    /// Removes a rule of the hub, or of the tenant that the requests name.
    pub async fn remove_rule(&self, name: &Name) -> Answer<()> {
        self.order(Method::DELETE, &Target::of(&["queue", "rules", name.as_str()]), None::<&()>).await
    }

    /// The machines of all clusters.
    pub async fn machines(&self) -> Answer<Vec<Machine>> {
        let target = |last: Option<&Machine>| {
            Target::of(&["machines"])
                .with("after", last.and_then(|machine| machine.cluster.clone()))
                .with("after_tenant", last.and_then(|machine| machine.tenant.clone()))
        };
        self.all_pages(MachineQuery::MOST, target).await
    }

    /// The machines of providers that no cluster knows.
    pub async fn orphans(&self) -> Answer<Vec<Machine>> {
        self.get(&Target::of(&["machines"]).with("orphans", Some(true))).await
    }

    /// Tenants, users, groups and grants, as far as the caller may see them.
    pub async fn directory(&self) -> Answer<Directory> {
        self.get(&Target::of(&["directory"])).await
    }

    /// Changes the directory.
    pub async fn change_directory(&self, change: &Change) -> Answer<()> {
        self.order(Method::POST, &Target::of(&["directory"]), Some(change)).await
    }

    /// Sets or removes a password.
    pub async fn set_password(&self, request: &PasswordRequest) -> Answer<()> {
        self.order(Method::PUT, &Target::of(&["password"]), Some(request)).await
    }

    /// The use of quotas.
    pub async fn usage(&self) -> Answer<Usages> {
        self.get(&Target::of(&["usage"])).await
    }

    /// Makes a token.
    pub async fn make_token(&self, request: &TokenRequest) -> Answer<Token> {
        self.send_json(Method::POST, &Target::of(&["tokens"]), request).await
    }

    /// The tokens of users whose credentials the caller may manage.
    pub async fn tokens(&self) -> Answer<Vec<TokenInfo>> {
        self.get(&Target::of(&["tokens"])).await
    }

    /// Takes a token back.
    pub async fn revoke_token(&self, id: &str) -> Answer<()> {
        self.order(Method::DELETE, &Target::of(&["tokens", id]), None::<&()>).await
    }

    /// Lines of the audit, in the order of the query; a single answer has a limited number of lines.
    pub async fn audit(&self, query: &AuditQuery) -> Answer<Vec<AuditLine>> {
        let target = Target::of(&["audit"])
            .with("after", query.after)
            .with("before", query.before)
            .with("since_ms", query.since_ms)
            .with("until_ms", query.until_ms)
            .with("user", query.user.as_ref())
            .with("cluster", query.cluster.as_ref())
            .with("newest", query.newest.then_some(true));
        self.get(&target).await
    }
}

fn file_target(path: &str, place: Place) -> Target {
    let segments: Vec<&str> = ["files"].into_iter().chain(path.split('/')).collect();
    Target::of(&segments).with("shared", place.is_shared())
}
