//! The gate of a canary: the hosts must stay healthy for a time, and the operator's own check must succeed.

use std::collections::BTreeSet;

use cob_types::HostName;
use cob_types::api::StatusOf;
use cob_types::history::{HistoryEntry, HistoryEvent};
use cob_types::status::ClusterStatus;
use tokio::time::Instant;

use super::report::Progress;
use super::settle::{Part, Settled, unsettled};
use super::staged::{PATIENCE, Run, TICK, TOLD, told};
use crate::gather;
use crate::live::Live;
use crate::screen::Screen;
use crate::targets::Target;
use crate::verdict::{Expected, Verdict, judge};
use crate::words::{clean, list};

impl Run<'_> {
    /// Watches until the gate's time is over: all hosts must stay converged, without manual changes.
    pub(super) async fn stay_healthy(&self, screen: &mut Screen, set: &BTreeSet<HostName>, until: Instant) -> Settled {
        let part = Part::of(self.plan, set);
        let begins = match self.ends_of_histories(&part.plan.hosts).await {
            Ok(ends) => ends,
            Err(why) => return Settled::No(why),
        };
        let mut live = Live::start(&self.context.client, &part.plan.hosts, StatusOf::All);
        let mut progress = Progress::default();
        let settled = loop {
            let now = Instant::now();
            if now >= until {
                let fresh = gather::cluster(&self.context.client, &part.plan.hosts).await;
                if let Some(why) = unhealthy(&fresh, &part.plan.expected) {
                    break Settled::No(why);
                }
                let happened = self.happened_since(&begins).await;
                break if happened.is_empty() { Settled::Yes(BTreeSet::new()) } else { Settled::No(happened) };
            }
            tokio::select! {
                () = live.changed() => {}
                () = tokio::time::sleep(TICK.min(until - now)) => {}
                () = self.interrupts.pressed() => break Settled::Interrupted,
            }
            if !live.is_complete() {
                continue;
            }
            if let Some(why) = unhealthy(&live.cluster(), &part.plan.expected) {
                break Settled::No(why);
            }
            let left = until.saturating_duration_since(Instant::now());
            progress.line(screen, format!("gate: {} healthy, {} left", list(set, 6), told(left)));
        };
        progress.clear(screen);
        settled
    }

    /// The last positions in the histories of these hosts.
    async fn ends_of_histories(&self, hosts: &[Target]) -> Result<Vec<(Target, u64)>, Vec<String>> {
        let newest = |_: &Target| "/v1/history?newest=true&limit=1".to_owned();
        let (mut ends, mut wrong) = (Vec::new(), Vec::new());
        for (target, entries) in self.histories(hosts, newest).await {
            match entries {
                Ok(entries) => ends.push((target, entries.last().map_or(0, |e| e.seq))),
                Err(why) => wrong.push(why),
            }
        }
        if wrong.is_empty() { Ok(ends) } else { Err(wrong) }
    }

    /// Faults since then, including faults that were corrected before a status showed them.
    async fn happened_since(&self, ends: &[(Target, u64)]) -> Vec<String> {
        let hosts: Vec<Target> = ends.iter().map(|(target, _)| target.clone()).collect();
        let after = |target: &Target| {
            let end = ends.iter().find(|(of, _)| of == target).map_or(0, |(_, end)| *end);
            format!("/v1/history?since={}&limit=10000", end + 1)
        };
        let mut happened = Vec::new();
        for (_, entries) in self.histories(&hosts, after).await {
            match entries {
                Ok(entries) => happened.extend(entries.iter().filter_map(no_good)),
                Err(why) => happened.push(why),
            }
        }
        if happened.len() > TOLD {
            let more = happened.len() - TOLD;
            happened.truncate(TOLD);
            happened.push(format!("{more} more"));
        }
        happened
    }

    async fn histories(
        &self,
        hosts: &[Target],
        path: impl Fn(&Target) -> String,
    ) -> Vec<(Target, Result<Vec<HistoryEntry>, String>)> {
        gather::each(&self.context.client, hosts, |client, target| {
            let path = path(&target);
            async move {
                let told = client.lines(&target.endpoint, &path).await;
                told.map_err(|e| format!("the history of {} can't be read: {}", target.stand_in(), e.in_a_line()))
            }
        })
        .await
    }

    /// Runs the operator's own check.
    pub(super) async fn check(&self, screen: &mut Screen, set: &BTreeSet<HostName>) -> Settled {
        let Some(command) = &self.args.check else { return Settled::Yes(BTreeSet::new()) };
        screen.say(&format!("gate: running {command:?}"));
        let hosts: Vec<&str> = set.iter().map(HostName::as_str).collect();
        let mut shell = tokio::process::Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(std::process::Stdio::null()).kill_on_drop(true);
        shell.env("COB_GENERATION", self.plan.generation.to_string()).env("COB_CANARY", hosts.join(" "));
        // Its output is for people; the standard output is reserved for the answer of cobctl.
        shell.stdout(std::io::stderr());
        let limit = self.args.wait.unwrap_or(PATIENCE);
        tokio::select! {
            status = tokio::time::timeout(limit, shell.status()) => match status {
                Ok(Ok(status)) if status.success() => Settled::Yes(BTreeSet::new()),
                Ok(Ok(status)) => Settled::No(vec![format!("the check {command:?} failed ({status})")]),
                Ok(Err(error)) => Settled::No(vec![format!("the check {command:?} can't be run: {error}")]),
                Err(_) => Settled::No(vec![format!("the check {command:?} did not end within {}", told(limit))]),
            },
            () = self.interrupts.pressed() => Settled::Interrupted,
        }
    }
}

/// The fault in an entry of a history; `None` for an entry of a healthy host.
#[expect(clippy::wildcard_enum_match_arm, reason = "other events do not matter here")]
fn no_good(entry: &HistoryEntry) -> Option<String> {
    let detail = clean(&entry.detail);
    match entry.happened() {
        HistoryEvent::Drift(cob) => Some(format!("a user has changed {cob} during the gate")),
        HistoryEvent::Failed(cob) => Some(format!("{cob} has failed during the gate: {detail}")),
        HistoryEvent::End(cob) if entry.ok == Some(false) => {
            Some(format!("an action of {cob} has failed during the gate: {detail}"))
        }
        _ => None,
    }
}

/// The faults of hosts that had converged.
fn unhealthy(cluster: &ClusterStatus, expected: &Expected) -> Option<Vec<String>> {
    let drift = |c: &&cob_types::status::CobStatus| !c.drift.is_empty();
    let drifted: Vec<_> = cluster.hosts.iter().flat_map(|h| &h.cobs).filter(drift).map(|c| &c.id).collect();
    if !drifted.is_empty() {
        return Some(vec![format!("a user has changed {}", list(drifted, 6))]);
    }
    // A single failed check does not set `failed`, which needs three; here it counts, before the rest starts.
    let unclear = |c: &&cob_types::status::CobStatus| c.action.as_ref().is_some_and(|a| a.to.is_none());
    let unclear: Vec<_> = cluster.hosts.iter().flat_map(|h| &h.cobs).filter(unclear).map(|c| &c.id).collect();
    if !unclear.is_empty() {
        return Some(vec![format!("the state of {} is unknown: the last check has failed", list(unclear, 6))]);
    }
    match judge(cluster, expected) {
        Verdict::Converged(_) => None,
        verdict @ (Verdict::Not(_) | Verdict::Unreached(..)) => Some(unsettled(&verdict)),
    }
}
