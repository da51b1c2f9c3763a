//! Tokens of the API.

use cob_permissions::{Scope, UserId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The request for a token.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The user; by default the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// A name for people.
    #[serde(default)]
    pub label: String,
    /// Narrows the rights of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// How long the token is valid, in seconds from now; absent: until its user is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lives_s: Option<u64>,
}

/// A new token. The hub keeps only its hash, so the token is shown once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// The token.
    pub token: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenInfo {
    /// The beginning of its hash, in hexadecimal.
    pub id: String,
    /// The user.
    pub user: UserId,
    /// Its purpose, for people.
    pub label: String,
    /// When it was made, in milliseconds since 1970-01-01 UTC.
    pub made_ms: u64,
    /// When it ends; absent: when its user is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_ms: Option<u64>,
}
