//! What a tenant and a user have, and may have.

use cob_permissions::{Quota, Usage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The use of the quotas of a tenant, and of the caller's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usages {
    /// All clusters of the tenant.
    pub tenant: UsageOf,
    /// The caller's own clusters; absent for a super administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<UsageOf>,
}

/// The use of a quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageOf {
    /// What is in use; what pending jobs will take counts.
    pub used: Usage,
    /// The most; a value that is absent has no limit.
    pub quota: Quota,
}
