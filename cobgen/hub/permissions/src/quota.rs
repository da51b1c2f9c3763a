//! Quotas: how many machines, clusters and parallel jobs a tenant or user may have.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits; a missing limit means that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// The most machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<u32>,
    /// The most clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<u32>,
    /// The most jobs that run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_jobs: Option<u32>,
}

impl Quota {
    /// The quota that permits no machine, cluster or job.
    pub const CLOSED: Self = Self { machines: Some(0), clusters: Some(0), parallel_jobs: Some(0) };
}

/// Numbers of things in use, or wanted in addition.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Machines.
    pub machines: u32,
    /// Clusters.
    pub clusters: u32,
    /// Jobs that run at the same time.
    pub parallel_jobs: u32,
}

/// A thing that a quota limits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Machines.
    Machines,
    /// Clusters.
    Clusters,
    /// Jobs that run at the same time.
    ParallelJobs,
}

/// Whose quota it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The quota of the whole tenant.
    Tenant,
    /// The quota of a user.
    User,
}

/// A limit that a request exceeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Excess {
    /// Whose quota it is.
    pub level: Level,
    /// The limited thing.
    pub resource: Resource,
    /// The limit.
    pub limit: u32,
    /// How many are in use.
    pub used: u32,
    /// How many the request wants in addition.
    pub wanted: u32,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, used, wanted, .. } = self;
        let level = match self.level {
            Level::Tenant => "tenant",
            Level::User => "user",
        };
        let (singular, plural) = match self.resource {
            Resource::Machines => ("machine", "machines"),
            Resource::Clusters => ("cluster", "clusters"),
            Resource::ParallelJobs => ("parallel job", "parallel jobs"),
        };
        let noun = if *limit == 1 { singular } else { plural };
        let free = limit.saturating_sub(*used);
        write!(f, "the quota of the {level} is {limit} {noun}: {used} in use, {wanted} more wanted, {free} free")
    }
}

/// All limits that a request exceeds; at least a single limit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Exceeded(pub Vec<Excess>);

/// Whether a request fits into a quota. A request that wants no more of a thing fits, even if more than the limit is in
/// use: a tenant with a reduced quota can still shrink and delete.
pub fn fits(level: Level, quota: &Quota, usage: &Usage, wanted: &Usage) -> Result<(), Exceeded> {
    let lines = [
        (Resource::Machines, quota.machines, usage.machines, wanted.machines),
        (Resource::Clusters, quota.clusters, usage.clusters, wanted.clusters),
        (Resource::ParallelJobs, quota.parallel_jobs, usage.parallel_jobs, wanted.parallel_jobs),
    ];
    let excess = lines.into_iter().filter_map(|(resource, limit, used, wanted)| {
        let limit = limit?;
        let exceeds = wanted > 0 && wanted > limit.saturating_sub(used);
        exceeds.then_some(Excess { level, resource, limit, used, wanted })
    });
    let excess: Vec<_> = excess.collect();
    if excess.is_empty() { Ok(()) } else { Err(Exceeded(excess)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota { machines: Some(10), clusters: Some(1), parallel_jobs: None };

    fn usage(machines: u32, clusters: u32, parallel_jobs: u32) -> Usage {
        Usage { machines, clusters, parallel_jobs }
    }

    #[test]
    fn a_request_up_to_the_limit_fits() {
        assert_eq!(fits(Level::Tenant, &QUOTA, &usage(7, 0, 9), &usage(3, 1, u32::MAX)), Ok(()));
    }

    #[test]
    fn a_refusal_names_each_exceeded_limit() {
        let refused = fits(Level::Tenant, &QUOTA, &usage(7, 1, 0), &usage(4, 1, 0)).unwrap_err();
        let text = "the quota of the tenant is 10 machines: 7 in use, 4 more wanted, 3 free; \
                    the quota of the tenant is 1 cluster: 1 in use, 1 more wanted, 0 free";
        assert_eq!(refused.to_string(), text);
    }

    #[test]
    fn great_numbers_do_not_overflow() {
        let refused = fits(Level::User, &QUOTA, &usage(u32::MAX, 0, 0), &usage(u32::MAX, 0, 0));
        assert_eq!(refused.unwrap_err().0.len(), 1);
    }

    #[test]
    fn a_tenant_above_a_reduced_quota_may_start_jobs_and_shrink() {
        assert_eq!(fits(Level::Tenant, &QUOTA, &usage(20, 3, 0), &usage(0, 0, 1)), Ok(()));
    }
}
