//! The JSON of orders and answers, which the daemon reads and its clients write.
//!
//! `cob_types::status` defines the status of hosts and change objects, `cob_types::history` the history. New versions
//! only add fields.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cob_types::status::{HostStatus, WindowWait};
use cob_types::switch::OnFailure;
use cob_types::trust::Role;
use cob_types::{BlobHash, CobId, GenerationNumber, HostName};
use serde::{Deserialize, Serialize};

/// The version of the API: the first part of each path.
pub const API_VERSION: u32 = 1;

/// The header with the name of the host that a request is for; another host refuses the request.
pub const MEANT_FOR: &str = "cob-host";

/// The identity of the server, at `/v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The name of the program, `cobd`.
    pub program: String,
    /// The version of the program.
    pub version: String,
    /// The version of the API.
    pub api: u32,
}

/// The identity of the caller, at `/v1/whoami`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whoami {
    /// An operator's name, `root`, `uid 1000`, or an address.
    pub name: String,
    /// The role of the caller.
    pub role: Role,
    /// The proof of identity: `unix socket`, `key`, `token` or `no key`.
    pub proof: String,
}

/// Body of `call-off`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationOrder {
    /// The generation.
    pub generation: GenerationNumber,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `prepare`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareOrder {
    /// The generation.
    pub generation: GenerationNumber,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Hash of the generation's manifest, in hexadecimal: a host that knows another generation under the number
    /// refuses. Without the hash, the order means the generation of the host's own depot.
    #[serde(default, with = "cob_types::id::hex_if_any", skip_serializing_if = "Option::is_none")]
    pub manifest: Option<BlobHash>,
}

/// Body of `switch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoOrder {
    /// The generation.
    pub generation: GenerationNumber,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The failure policy in place of the generation's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// The time of the guard in milliseconds in place of the generation's; zero: no guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_ms: Option<u64>,
    /// The switch is for this host alone: it is not announced to others.
    #[serde(default, skip_serializing_if = "is_false")]
    pub alone: bool,
    /// The hosts that switch; they announce the switch to no other hosts. Empty: all hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<HostName>,
    /// The newest generation that the author has seen on any host. A host that has switched to a newer generation since
    /// refuses the order; without `seen`, the host rolls back to the older generation if that is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<GenerationNumber>,
    /// Hash of the generation's manifest, in hexadecimal: a host that knows another generation under the number
    /// refuses. Without the hash, the order means the generation of the host's own depot.
    #[serde(default, with = "cob_types::id::hex_if_any", skip_serializing_if = "Option::is_none")]
    pub manifest: Option<BlobHash>,
    /// It starts at once, also outside the maintenance windows of the hosts that it changes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub now: bool,
}

/// Body of `cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelOrder {
    /// The generation of the switch; absent: the switch under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationNumber>,
    /// The failure policy that applies; absent: the generation's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `budget`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetOrder {
    /// The budget.
    pub budget: CobId,
    /// The number of tokens until the next generation; null: as many as in the model.
    pub at_most: Option<u32>,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `limit`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitOrder {
    /// The most concurrent transitions; null: no limit.
    pub at_most: Option<u32>,
    /// The budget whose tokens are limited instead; then null: as many tokens as in the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<CobId>,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Body of `rollback`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RollbackOrder {
    /// The rollback target; absent: the newest valid target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationNumber>,
    /// Only prepare the rollback target, as for a switch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prepare: bool,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `retry`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CobOrder {
    /// The change object; for `retry` a change object of this host.
    pub cob: CobId,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `check`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckOrder {
    /// The change objects of this host; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cobs: Vec<CobId>,
    /// The author of the order, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `stop`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopOrder {
    /// The change objects of this host that shall stop. The order stops all or is refused.
    pub cobs: Vec<StopOne>,
    /// Each change object starts again by itself as soon as it has stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restart: bool,
    /// Each change object starts again by itself after a reboot of this host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub until_boot: bool,
    /// The author of the order, for the history and for reports on stopped change objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// A change object that shall stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopOne {
    /// The change object.
    pub cob: CobId,
    /// The stopped change object that it needs, and because of which it stops too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<CobId>,
}

/// Body of `start`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartOrder {
    /// The stopped change objects of this host that shall start. The order starts all or is refused.
    pub cobs: Vec<CobId>,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `declare-final`: either a change object or a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DepartedOrder {
    /// The change object that is marked as departed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cob: Option<CobId>,
    /// The host whose awaited change objects are all marked as departed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `fence`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostOrder {
    /// The host that will not come back as it was.
    pub host: HostName,
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `pause` and `resume`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainOrder {
    /// The author of the order, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// The data of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The number of changes of the status.
    #[serde(default)]
    pub change: u64,
    /// The status, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<HostStatus>,
}

/// The answer to an accepted and durable order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Whether the order has changed anything: a repetition has not.
    pub changed: bool,
    /// The effect of the order, for people.
    #[serde(default)]
    pub detail: String,
    /// For `prepare` and `rollback`: the prepared generation or the rollback target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationNumber>,
    /// For `prepare`: hosts of the generation without a link, and the reason if it is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unlinked: BTreeMap<HostName, String>,
    /// For `prepare`: file trees in which the generation conflicts with changes of users, and the files. A long list is
    /// cut.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conflicts: BTreeMap<CobId, String>,
    /// For `prepare`: why possible conflicts are missing in the list; empty: all relevant change objects were checked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unseen: String,
    /// To `switch`: the maintenance windows that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_wait: Option<WindowWait>,
}

impl Done {
    /// The answer to an order without links and conflicts.
    #[must_use]
    pub fn new(changed: bool, detail: String) -> Self {
        let (unlinked, conflicts) = (BTreeMap::new(), BTreeMap::new());
        Self { changed, detail, generation: None, unlinked, conflicts, unseen: String::new(), window_wait: None }
    }
}

/// A refused order or question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// The category: it tells which party must act.
    pub kind: RefusalKind,
    /// The refused request and the reason.
    pub error: String,
    /// The remedy.
    pub hint: String,
    /// The reason, for programs, if a program acts on it.
    pub code: Option<RefusalCode>,
}

/// A reason of a refusal, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCode {
    /// The request names another host, which does not run here.
    OtherHost,
    /// The body does not fit the order: the daemon may have another version.
    Misfit,
    /// A reason of a newer version.
    #[serde(other)]
    Unknown,
}

/// The category of a refusal, which clients see as the status of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// 400: the request is malformed.
    Invalid,
    /// 401: the caller is not identified.
    Unauthorized,
    /// 403: not from this source, or not with this role.
    Forbidden,
    /// 404: no such object here.
    NotFound,
    /// 405: the path needs another method.
    Method,
    /// 409: not possible in the present state of the host.
    Conflict,
    /// 413: the body is too long.
    TooLong,
    /// 415: not JSON.
    NotJson,
    /// 429: too many wrong tokens.
    TooMany,
    /// 503: temporarily not possible; the client may repeat the request.
    Unavailable,
}

impl RefusalKind {
    fn status(self) -> StatusCode {
        match self {
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::Unauthorized => StatusCode::UNAUTHORIZED,
            RefusalKind::Forbidden => StatusCode::FORBIDDEN,
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Method => StatusCode::METHOD_NOT_ALLOWED,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            RefusalKind::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            RefusalKind::TooMany => StatusCode::TOO_MANY_REQUESTS,
            RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The JSON of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalBody {
    /// The refused request and the reason.
    pub error: String,
    /// The remedy; empty: no remedy is known.
    #[serde(default)]
    pub hint: String,
    /// The reason, for programs; absent from daemons of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<RefusalCode>,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(kind: RefusalKind, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, error: error.into(), hint: hint.into(), code: None }
    }

    /// Adds the reason for programs.
    pub(super) fn with(self, code: RefusalCode) -> Self {
        Self { code: Some(code), ..self }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = RefusalBody { error: self.error, hint: self.hint, code: self.code };
        let mut response = (self.kind.status(), Json(body)).into_response();
        if self.kind == RefusalKind::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
