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
