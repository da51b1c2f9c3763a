//! Lines of the audit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is to be noted in the audit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AuditNote {
    /// The tenant that the request is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The person.
    pub user: String,
    /// The request: method and path, or what the hub did by itself.
    pub request: String,
    /// The cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The job that executes the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// The decision with its reason, or the result.
    pub decision: String,
}

/// A line of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditLine {
    /// Its number, from 1.
    pub number: u64,
    /// The time, in milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// The content.
    #[serde(flatten)]
    pub note: AuditNote,
    /// The hash of the line before, in hexadecimal; of the first line: empty.
    pub before: String,
}

/// Which lines of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditQuery {
    /// Only lines after this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u64::MAX))]
    pub after: Option<u64>,
    /// Only lines before this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u64::MAX))]
    pub before: Option<u64>,
    /// Only lines of this time or later, in milliseconds since 1970-01-01 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u64::MAX))]
    pub since_ms: Option<u64>,
    /// Only lines before this time, in milliseconds since 1970-01-01 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u64::MAX))]
    pub until_ms: Option<u64>,
    /// Only lines of this user: `TENANT/USER`, or `USER` for a super administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Only lines about this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Whether the newest lines come first; by default the oldest.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub newest: bool,
}

impl AuditQuery {
    /// Whether the query means this line.
    #[must_use]
    pub fn means(&self, line: &AuditLine) -> bool {
        let note = &line.note;
        self.after.is_none_or(|after| line.number > after)
            && self.before.is_none_or(|before| line.number < before)
            && self.since_ms.is_none_or(|since| line.time_ms >= since)
            && self.until_ms.is_none_or(|until| line.time_ms < until)
            && self.user.as_ref().is_none_or(|user| note.user == *user)
            && (self.cluster.is_none() || note.cluster == self.cluster)
    }
}
