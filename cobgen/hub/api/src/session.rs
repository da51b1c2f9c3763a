//! Log-in: with a password, or at a provider of identities (OpenID Connect).

use cob_permissions::{Name, UserId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A log-in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// The user.
    pub user: UserId,
    /// The password.
    pub password: String,
}

/// A new session. Its token is a token of the API that ends with the session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// The token, shown once.
    pub token: String,
    /// When the session ends, in milliseconds since 1970-01-01 UTC.
    pub ends_ms: u64,
}

/// A log-in at a provider of identities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogIn {
    /// The name.
    pub name: String,
}

/// The begin of a log-in at a provider of identities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogInStart {
    /// The tenant of the user; absent: a super administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Name>,
}

/// A log-in that the person goes on with at the provider.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogInStarted {
    /// The address that the person opens.
    pub url: String,
    /// The name of this log-in. The provider leads back to the page with this `state` and a `code`; the page refuses
    /// another state.
    pub state: String,
}

/// The end of a log-in at a provider of identities.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogInEnd {
    /// The name of the log-in, from its begin.
    pub state: String,
    /// The provider's word.
    pub code: String,
}

/// A new password of a user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordRequest {
    /// The user; by default the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// The password; absent: the user can't log in with a password any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The present password: a session needs it to change the password of its own user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<String>,
}

impl std::fmt::Debug for SessionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionRequest").field("user", &self.user).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("ends_ms", &self.ends_ms).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PasswordRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordRequest").field("user", &self.user).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LogInStarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogInStarted").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LogInEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogInEnd").finish_non_exhaustive()
    }
}
