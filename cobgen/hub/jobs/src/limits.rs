//! How many jobs run at a time.

use std::collections::BTreeMap;

use cob_job_locks::{Lock, Patience};
use serde::{Deserialize, Serialize};

use crate::job::Job;
use crate::rules::{Rule, applying};

/// The settings of a queue. They may change at any time; running jobs go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most jobs with a process.
    pub running: usize,
    /// The same for each tenant without an own entry.
    pub per_tenant: usize,
    /// The same for single tenants.
    pub tenants: BTreeMap<String, usize>,
    /// The milliseconds of waiting after which a job is one step more important; 0: never.
    pub aging: u64,
    /// How many later jobs may overtake a job that waits for locks.
    pub patience: Patience,
    /// The milliseconds from a request to end to the kill.
    pub grace: u64,
    /// The milliseconds that a final job stays in the table.
    pub keep: u64,
    /// The most final jobs of a tenant in the table; the oldest leave it early.
    pub keep_most: usize,
    /// How many processes of a job may die before they begin to work.
    pub false_starts: u32,
}

impl Limits {
    /// The most running jobs of a tenant.
    pub fn of_tenant(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).copied().unwrap_or(self.per_tenant)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            running: 20,
            per_tenant: 20,
            tenants: BTreeMap::new(),
            aging: 600_000,
            patience: Patience(8),
            grace: 30_000,
            keep: 7 * 24 * 3_600_000,
            keep_most: 1000,
            false_starts: 3,
        }
    }
}

/// A bucket of jobs, at most `limit` of which run at a time. Buckets with different limits are different, even if their
/// names are the same (as Ganeti).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// The most running jobs.
    pub limit: usize,
    /// Any text.
    pub name: String,
}

impl Bucket {
    /// The bucket that a reason names: `rate-limit:n:name`, with a positive number.
    pub fn parse(reason: &str) -> Option<Self> {
        let (limit, name) = reason.strip_prefix("rate-limit:")?.split_once(':')?;
        let limit = Some(limit).filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()?;
        (limit > 0).then(|| Self { limit, name: name.to_owned() })
    }

    /// The buckets of a job, each once.
    pub(crate) fn of<P, L>(job: &Job<P, L>) -> Vec<Self> {
        let mut buckets: Vec<_> = job.spec.reason.iter().filter_map(|reason| Self::parse(reason)).collect();
        buckets.sort();
        buckets.dedup();
        buckets
    }
}

/// The taken places.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) running: usize,
    pub(crate) tenants: BTreeMap<String, usize>,
    pub(crate) buckets: BTreeMap<Bucket, usize>,
    pub(crate) rules: BTreeMap<String, usize>,
}

impl Usage {
    pub(crate) fn add<P, L: Lock>(&mut self, job: &Job<P, L>, rules: &[Rule]) {
        self.running += 1;
        *self.tenants.entry(job.spec.tenant.clone()).or_default() += 1;
        for bucket in Bucket::of(job) {
            *self.buckets.entry(bucket).or_default() += 1;
        }
        for rule in applying(rules, job.id, &job.spec) {
            *self.rules.entry(rule.id.clone()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_parsed_as_by_ganeti() {
        let bucket = |limit, name: &str| Some(Bucket { limit, name: name.to_owned() });
        assert_eq!(Bucket::parse("rate-limit:20:my label"), bucket(20, "my label"));
        assert_eq!(Bucket::parse("rate-limit:7:a:b"), bucket(7, "a:b"));
        for text in [" rate-limit:20:x", "rate-limit:0:x", "rate-limit:-1:x", "rate-limit:+1:x", "rate-limit:1", "x"] {
            assert_eq!(Bucket::parse(text), None, "{text}");
        }
        assert_eq!(Bucket::parse("rate-limit:99999999999999999999999:x"), None);
        assert_eq!(Bucket::parse("rate-limit::x"), None);
    }
}
