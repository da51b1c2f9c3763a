//! The JSON of orders and their answers, used by the daemon to read and by its clients to write.
//!
//! What is shown of hosts and change objects stands in `cob_types::status`, the history in
//! `cob_types::history`. Fields are only added.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cob_types::status::HostStatus;
use cob_types::switch::OnFailure;
use cob_types::trust::Role;
use cob_types::{BlobHash, CobId, GenerationNumber, HostName};
use serde::{Deserialize, Serialize};

/// The version of the API that is spoken here: the first part of every path.
pub const API_VERSION: u32 = 1;

/// The header with the name of the host that a request is meant for; another one refuses it.
pub const MEANT_FOR: &str = "cob-host";

/// Who answers, at `/v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The program, `cobd`.
    pub program: String,
    /// Its version.
    pub version: String,
    /// The version of the API.
    pub api: u32,
}

/// Who the caller is for this host, at `/v1/whoami`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whoami {
    /// An operator's name, `root`, `uid 1000`, or an address.
    pub name: String,
    /// What the caller may do.
    pub role: Role,
    /// What proves it: `unix socket`, `key`, `token` or `no key`.
    pub proof: String,
}

/// Body of `call-off`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationOrder {
    /// The generation meant.
    pub generation: GenerationNumber,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `prepare`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareOrder {
    /// The generation meant.
    pub generation: GenerationNumber,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Hash of the generation's manifest, in hexadecimal: a host that knows another generation under the number refuses.
    /// Without it the generation of the host's own depot is meant.
    #[serde(default, with = "cob_types::id::hex_if_any", skip_serializing_if = "Option::is_none")]
    pub manifest: Option<BlobHash>,
}

/// Body of `switch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoOrder {
    /// The generation meant.
    pub generation: GenerationNumber,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// What a failure leads to, if not what the generation says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// The guard in milliseconds, if not the generation's; zero: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_ms: Option<u64>,
    /// For this host alone: others are not told to go too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub alone: bool,
    /// The hosts that it is for: these carry it to nobody else. Empty: everybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<HostName>,
    /// The newest generation that whoever orders has seen on any host. A host that goes to a newer one since refuses
    /// the order; without it, an older generation is gone back to where the way is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<GenerationNumber>,
    /// Hash of the generation's manifest, in hexadecimal: a host that knows another generation under the number refuses.
    /// Without it the generation of the host's own depot is meant.
    #[serde(default, with = "cob_types::id::hex_if_any", skip_serializing_if = "Option::is_none")]
    pub manifest: Option<BlobHash>,
}

/// Body of `cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelOrder {
    /// The generation whose switch is meant; none: whichever is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationNumber>,
    /// What happens then; none: what the generation says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `budget`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetOrder {
    /// Which.
    pub budget: CobId,
    /// It has so many tokens until the next generation; null: as many as the model gives it.
    pub at_most: Option<u32>,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `limit`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitOrder {
    /// At most so many transitions at a time; null: as many as can go.
    pub at_most: Option<u32>,
    /// This budget has so many tokens and no more, instead; null: as many as the model gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<CobId>,
    /// Who orders, for the history.
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
    /// The generation to return to; none: the newest to which a way back is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationNumber>,
    /// Nothing is left yet: where that leads is prepared, as for a switch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prepare: bool,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `retry`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CobOrder {
    /// The change object meant; for `retry` one of this host.
    pub cob: CobId,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `check`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckOrder {
    /// The change objects of this host that are meant; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cobs: Vec<CobId>,
    /// Who orders, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `stop`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopOrder {
    /// The change objects of this host that are stopped. All of them are, or none.
    pub cobs: Vec<StopOne>,
    /// Each of them starts again by itself as soon as it has been stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restart: bool,
    /// Each of them starts again by itself when this host has been rebooted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub until_boot: bool,
    /// Who orders, for the history and for everybody who asks why they are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// A change object that is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopOne {
    /// Which.
    pub cob: CobId,
    /// It is stopped because it needs this one, which is stopped, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<CobId>,
}

/// Body of `start`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartOrder {
    /// The change objects of this host that are stopped no more. All of them are meant, or none.
    pub cobs: Vec<CobId>,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `declare-final`: a change object or a host, and not both.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinalOrder {
    /// The change object that counts as left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cob: Option<CobId>,
    /// The host all of whose change objects that are waited for count as left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `fence`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostOrder {
    /// The host that will not come back as it was.
    pub host: HostName,
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Body of `pause` and `resume`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainOrder {
    /// Who orders, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// What an event tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// How often the status has changed.
    #[serde(default)]
    pub change: u64,
    /// The status, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<HostStatus>,
}

/// An order was taken, and is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Whether it changed anything: the same order a second time does not.
    pub changed: bool,
    /// What it did, in words.
    #[serde(default)]
    pub detail: String,
    /// To `prepare`, `rollback`: the generation that is prepared, or where the way back leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationNumber>,
    /// To `prepare`: hosts of the generation that there is no link to, and why as far as that is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unlinked: BTreeMap<HostName, String>,
    /// To `prepare`: file trees in which the generation excludes what users have changed (some, where they are many), and in
    /// which files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conflicts: BTreeMap<CobId, String>,
    /// To `prepare`: why conflicts that there may be are not among these; empty: all that may have any were looked at.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unseen: String,
}

impl Done {
    /// Of an order that concerns no link.
    #[must_use]
    pub fn new(changed: bool, detail: String) -> Self {
        let (unlinked, conflicts) = (BTreeMap::new(), BTreeMap::new());
        Self { changed, detail, generation: None, unlinked, conflicts, unseen: String::new() }
    }
}

/// An order or a question was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// Who has to act.
    pub kind: RefusalKind,
    /// What was refused and why.
    pub error: String,
    /// What to do.
    pub hint: String,
}

/// Why something was refused, as a caller tells it apart: by the status of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// 400: the request makes no sense.
    Invalid,
    /// 401: nobody knows who asks.
    Unauthorized,
    /// 403: not from there, or not for this caller.
    Forbidden,
    /// 404: there is no such thing here.
    NotFound,
    /// 405: the path knows another method.
    Method,
    /// 409: not in the state that the host is in.
    Conflict,
    /// 413: the body is too long.
    TooLong,
    /// 415: not JSON.
    NotJson,
    /// 429: too many wrong tokens.
    TooMany,
    /// 503: not now; the same may be asked again.
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
    /// What was refused and why.
    pub error: String,
    /// What to do; empty: nothing is known to help.
    #[serde(default)]
    pub hint: String,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(kind: RefusalKind, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, error: error.into(), hint: hint.into() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response =
            (self.kind.status(), Json(RefusalBody { error: self.error, hint: self.hint })).into_response();
        if self.kind == RefusalKind::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
