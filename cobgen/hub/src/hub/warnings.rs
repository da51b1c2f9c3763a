//! Warnings before leases end: a line of the audit, and a call of the callback as `PROGRAM lease FILE`.
//!
//! A warning counts when the callback has ended with the status 0. Before, the hub tries again, also after a crash: so the
//! program hears of each lease at least once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_hub_api::{AuditNote, ClusterState, Name};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::book::{Changes, State};
use super::error::HubError;
use super::records::{ClusterKey, ClusterRecord};
use super::{Hub, now_ms};

/// How long the callback may run.
const LIMIT: Duration = Duration::from_mins(1);
/// The callbacks at a time.
const AT_A_TIME: usize = 4;
/// The pause after a failed call.
const PAUSE_MS: u64 = 60_000;

/// Warnings under way, and when a failed one begins again.
#[derive(Debug)]
pub(super) struct Warnings {
    attempts: Mutex<BTreeMap<Lease, Attempt>>,
    places: Semaphore,
}

/// A lease: its cluster and its end.
type Lease = (ClusterKey, u64);

impl Default for Warnings {
    fn default() -> Self {
        Self { attempts: Mutex::default(), places: Semaphore::new(AT_A_TIME) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Runs,
    Failed { next_ms: u64 },
}

/// The content of the file.
#[derive(Serialize)]
struct Content<'a> {
    event: &'static str,
    tenant: &'a Name,
    cluster: &'a Name,
    owner: &'a str,
    lease_ends_ms: u64,
}

impl Warnings {
    /// When the warning of a cluster begins; none while it runs.
    fn due(&self, cluster: &ClusterRecord, before_ms: u64) -> Option<u64> {
        let due = cluster.warning_due_ms(before_ms)?;
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        match attempts.get(&lease_of(cluster)?) {
            Some(Attempt::Runs) => None,
            Some(Attempt::Failed { next_ms }) => Some(due.max(*next_ms)),
            None => Some(due),
        }
    }

    fn set(&self, lease: Lease, attempt: Option<Attempt>) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        match attempt {
            Some(attempt) => _ = attempts.insert(lease, attempt),
            None => _ = attempts.remove(&lease),
        }
    }

    /// Forgets leases that are no more.
    fn keep(&self, state: &State) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.retain(|(id, ends), _| state.clusters.get(id).is_some_and(|of| of.lease_ends_ms == Some(*ends)));
    }
}

fn lease_of(cluster: &ClusterRecord) -> Option<Lease> {
    Some(((cluster.tenant.clone(), cluster.name.clone()), cluster.lease_ends_ms?))
}

impl Hub {
    /// When the next warning begins.
    pub(super) fn next_warning(&self, state: &State) -> Option<u64> {
        let before = self.config.lease_warning_s.saturating_mul(1000);
        state.clusters.values().filter_map(|cluster| self.warnings.due(cluster, before)).min()
    }

    /// Begins the warnings that are due.
    pub(super) fn begin_warnings(self: &Arc<Self>, state: &State) {
        let (now, before) = (now_ms(), self.config.lease_warning_s.saturating_mul(1000));
        self.warnings.keep(state);
        for cluster in state.clusters.values() {
            let Some(lease) = lease_of(cluster) else { continue };
            if self.warnings.due(cluster, before).is_none_or(|due| due > now) {
                continue;
            }
            self.warnings.set(lease.clone(), Some(Attempt::Runs));
            let (hub, cluster) = (self.clone(), cluster.clone());
            tokio::spawn(async move {
                let attempt = match hub.warn(&cluster).await {
                    Ok(()) => None,
                    Err(error) => {
                        warn!(cluster = %cluster.name, %error, "nobody was warned that the lease ends soon");
                        let _ = hub.note_warning(&cluster, format!("failed: {error}"));
                        Some(Attempt::Failed { next_ms: now_ms().saturating_add(PAUSE_MS) })
                    }
                };
                hub.warnings.set(lease, attempt);
                hub.changed.notify_one();
            });
        }
    }

    /// Warns of the end of a lease.
    async fn warn(&self, cluster: &ClusterRecord) -> Result<(), HubError> {
        let Some(lease_ends_ms) = cluster.lease_ends_ms else { return Ok(()) };
        if let Some(program) = &self.config.callback {
            let _place = self.warnings.places.acquire().await;
            self.tell_of_lease(program, cluster, lease_ends_ms).await?;
        }
        let mut state = self.state.lock().await;
        let id = (cluster.tenant.clone(), cluster.name.clone());
        // A lease that was extended meanwhile gets a warning of its own.
        let Some(present) = state.clusters.get(&id).filter(|now| now.lease_ends_ms == Some(lease_ends_ms)) else {
            return Ok(());
        };
        let record = ClusterRecord { warned_ms: Some(now_ms()), ..present.clone() };
        self.note_warning(cluster, format!("a warning for {}/{}", cluster.tenant, cluster.owner))?;
        info!(tenant = %cluster.tenant, cluster = %cluster.name, "the lease ends soon");
        let mut changes = Changes::default();
        changes.cluster(&id, Some(&record))?;
        state.clusters.insert(id, record);
        self.write(changes).await
    }

    fn note_warning(&self, cluster: &ClusterRecord, decision: String) -> Result<(), HubError> {
        self.append(AuditNote {
            tenant: Some(cluster.tenant.to_string()),
            user: super::OWNER.to_owned(),
            request: "the lease ends soon".to_owned(),
            cluster: Some(cluster.name.to_string()),
            job: None,
            decision,
        })
    }

    async fn tell_of_lease(&self, program: &Path, cluster: &ClusterRecord, ends_ms: u64) -> Result<(), HubError> {
        let failed =
            |what: &dyn std::fmt::Display| HubError::Internal(format!("the callback {}: {what}", program.display()));
        let owner = cluster.owner.as_str();
        let (tenant, name) = (&cluster.tenant, &cluster.name);
        let content = Content { event: "lease", tenant, cluster: name, owner, lease_ends_ms: ends_ms };
        let mut file = tempfile::Builder::new()
            .prefix("lease-")
            .suffix(".json")
            .tempfile_in(&self.config.folder)
            .map_err(|e| failed(&e))?;
        serde_json::to_writer(&mut file, &content).map_err(|e| failed(&e))?;
        let mut child = Command::new(program)
            .arg("lease")
            .arg(file.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| failed(&e))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let Ok(status) = tokio::time::timeout(LIMIT, child.wait()).await else {
            // Its children, too: otherwise each attempt could leave some.
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            return Err(failed(&format!("no end after {} s", LIMIT.as_secs())));
        };
        let status = status.map_err(|e| failed(&e))?;
        if status.success() { Ok(()) } else { Err(failed(&status)) }
    }
}

impl ClusterRecord {
    /// When its owner is warned: so long before the end of the lease, or after three quarters of a short lease.
    fn warning_due_ms(&self, before_ms: u64) -> Option<u64> {
        if self.warned_ms.is_some() || self.lapse.is_some() || self.state == ClusterState::Terminated {
            return None;
        }
        let ends = self.lease_ends_ms?;
        let quarter = ends.saturating_sub(self.created_ms) / 4;
        Some(ends.saturating_sub(before_ms.min(quarter)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::tests::record;
    use super::*;

    #[test]
    fn the_owner_of_a_short_lease_is_warned_after_three_quarters() {
        let mut cluster = record("shop", ClusterState::Active);
        assert_eq!(cluster.warning_due_ms(1000), None, "without a lease");
        (cluster.created_ms, cluster.lease_ends_ms) = (10_000, Some(50_000));
        assert_eq!(cluster.warning_due_ms(1000), Some(49_000));
        assert_eq!(cluster.warning_due_ms(86_400_000), Some(40_000));
        cluster.warned_ms = Some(1);
        assert_eq!(cluster.warning_due_ms(1000), None);
    }

    #[test]
    fn a_warning_runs_once_at_a_time_and_again_after_a_failure() {
        let (warnings, mut cluster) = (Warnings::default(), record("shop", ClusterState::Active));
        (cluster.created_ms, cluster.lease_ends_ms) = (0, Some(40_000));
        let id = || lease_of(&cluster).expect("a lease");
        assert_eq!(warnings.due(&cluster, 5000), Some(35_000));
        warnings.set(id(), Some(Attempt::Runs));
        assert_eq!(warnings.due(&cluster, 5000), None);
        warnings.set(id(), Some(Attempt::Failed { next_ms: 36_000 }));
        assert_eq!(warnings.due(&cluster, 5000), Some(36_000));
        // A new lease has a warning of its own.
        let extended = ClusterRecord { lease_ends_ms: Some(80_000), ..cluster.clone() };
        assert_eq!(warnings.due(&extended, 5000), Some(75_000));
        warnings.set(id(), None);
        assert_eq!(warnings.due(&cluster, 5000), Some(35_000));
    }
}
