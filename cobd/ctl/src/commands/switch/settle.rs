//! Decides when a stage is over: all its hosts have converged, or no remaining work can achieve that.

use std::collections::BTreeSet;
use std::time::Duration;

use cob_types::status::{ClusterStatus, HostStatus, Phase};
use cob_types::{CobId, HostName};
use tokio::time::Instant;

use super::Plan;
use super::report::Progress;
use super::staged::{HOPELESS_FOR, PATIENCE, Run, TICK};
use crate::commands::explain::first_causes;
use crate::gather;
use crate::live::Live;
use crate::screen::Screen;
use crate::targets::Target;
use crate::verdict::{Expected, Verdict, ended, judge, stranded, why_not};
use crate::words::list;
use cob_types::api::StatusOf;

/// How often hosts outside the stages are queried while the hosts of a stage are blocked.
const LOOK_AROUND: Duration = Duration::from_secs(2);

/// How a stage ended.
pub(super) enum Settled {
    /// All have converged except these failed hosts, which are tolerated.
    Yes(BTreeSet<HostName>),
    No(Vec<String>),
    /// They wait for locks of these other hosts, where a change object had failed before: the switch itself may repair
    /// that. With the reasons in words.
    Behind(BTreeSet<HostName>, Vec<String>),
    Interrupted,
}

/// Hosts of a stage that have not converged.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failing {
    /// The hosts on which the switch has failed: a change object has failed, or the host was paused before this order.
    hosts: BTreeSet<HostName>,
    /// The failed change objects.
    cobs: Vec<CobId>,
}

impl Run<'_> {
    /// Waits until these hosts have converged.
    pub(super) async fn settle(&self, screen: &mut Screen, set: &BTreeSet<HostName>) -> Settled {
        let deadline = Instant::now() + self.args.wait.unwrap_or(PATIENCE);
        let part = Part::of(self.plan, set);
        let mut live = Live::start(&self.context.client, &self.targets(set), StatusOf::All);
        let mut progress = Progress::default();
        let mut failing_since: Option<(Failing, Instant)> = None;
        let (mut others, mut looked) = (self.before.clone(), Instant::now());
        let settled = loop {
            tokio::select! {
                () = live.changed() => {}
                () = tokio::time::sleep(TICK) => {}
                () = self.interrupts.pressed() => break Settled::Interrupted,
            }
            let seen = live.cluster();
            if !live.is_complete() && Instant::now() < deadline {
                continue;
            }
            progress.show(screen, &part.plan, &seen, deadline);
            if matches!(judge(&seen, &part.plan.expected), Verdict::Converged(_)) {
                let fresh = gather::cluster(&self.context.client, &part.plan.hosts).await;
                if matches!(judge(&fresh, &part.plan.expected), Verdict::Converged(_)) {
                    break Settled::Yes(BTreeSet::new());
                }
            }
            // The awaited change objects may have failed since, on a host outside the stages.
            if looked.elapsed() >= LOOK_AROUND && seen.hosts.iter().all(stands_still) {
                let rest: Vec<Target> = self.all().filter(|t| !set.contains(&t.stand_in())).cloned().collect();
                others = gather::cluster(&self.context.client, &rest).await;
                looked = Instant::now();
            }
            let all = with_others(&seen, &others);
            failing_since = match (self.failing(&seen, &all, &part.plan), failing_since) {
                (Some(now), Some((before, since))) if now == before => Some((now, since)),
                (Some(now), _) => Some((now, Instant::now())),
                (None, _) => None,
            };
            if let Some((failing, since)) = &failing_since
                && since.elapsed() >= HOPELESS_FOR
            {
                let is_outside = failing.hosts.is_disjoint(set);
                if failing.hosts.len() <= self.args.max_failures && !is_outside {
                    let (hosts, most) = (list(&failing.hosts, 6), self.args.max_failures);
                    screen.say(&format!("failed on {hosts}: tolerated (--max-failures {most})"));
                    break Settled::Yes(failing.hosts.clone());
                }
                let why = self.why(&all, failing);
                let is_next = is_outside && failing.hosts.iter().all(|host| self.is_ready(host));
                break if is_next { Settled::Behind(failing.hosts.clone(), why) } else { Settled::No(why) };
            }
            if let Some(other) = self.elsewhere(&seen) {
                break Settled::No(vec![other]);
            }
            if Instant::now() >= deadline {
                break Settled::No(unsettled(&judge(&seen, &part.plan.expected)));
            }
        };
        progress.clear(screen);
        settled
    }

    /// The hosts that have not converged, if no remaining work can change that; `None`: some work may.
    fn failing(&self, seen: &ClusterStatus, all: &ClusterStatus, plan: &Plan) -> Option<Failing> {
        let generation = plan.generation;
        let cobs = |host: &HostStatus| plan.expected.cobs.get(&host.name).copied();
        let away = |h: &&HostStatus| !h.reachable || why_not(h, Some(generation), cobs(h)).is_some();
        let away: Vec<&HostStatus> = seen.hosts.iter().filter(away).collect();
        let leaves = |host: &HostStatus| self.plan.leaving.iter().any(|t| t.name.as_ref() == Some(&host.name));
        let is_over = |host: &&HostStatus| {
            let ids: Vec<CobId> = host.cobs.iter().map(|cob| cob.id.clone()).collect();
            // A removed host activates the generation only after all its change objects have departed.
            let is_there = host.goal().is_none() || leaves(host);
            host.reachable && (self.was_held(host) || is_there && stranded(all, &ids))
        };
        if away.is_empty() || !away.iter().all(is_over) {
            return None;
        }
        let of = |hosts: &[&HostStatus]| {
            let cobs = hosts.iter().flat_map(|h| &h.cobs).filter(|c| ended(c)).map(|c| c.id.clone()).collect();
            let has_failed = |host: &&&HostStatus| self.was_held(host) || host.cobs.iter().any(ended);
            let hosts: BTreeSet<HostName> = hosts.iter().filter(has_failed).map(|h| h.name.clone()).collect();
            (!hosts.is_empty()).then_some(Failing { hosts, cobs })
        };
        // A failed change object on a host of a later stage may hold the awaited locks.
        of(&away).or_else(|| of(&all.hosts.iter().collect::<Vec<_>>()))
    }

    /// Whether an earlier order has failed on this host, which has been paused since.
    fn was_held(&self, host: &HostStatus) -> bool {
        let before = self.before.hosts.iter().find(|h| h.name == host.name);
        host.held == Some(self.plan.generation) && before.is_some_and(|h| h.held == host.held)
    }

    /// Why the stages stop: the first causes, and the paused hosts.
    fn why(&self, seen: &ClusterStatus, failing: &Failing) -> Vec<String> {
        let mut why = first_causes(seen, failing.cobs.iter());
        let of = |host: &HostName| failing.cobs.iter().any(|cob| cob.host_str() == host.as_str());
        let held: Vec<&HostName> = failing.hosts.iter().filter(|host| !of(host)).collect();
        if !held.is_empty() {
            let is = if held.len() == 1 { "is" } else { "are" };
            let generation = self.plan.generation;
            why.push(format!("{} {is} held: the switch to generation {generation} was cancelled", list(&held, 6)));
        }
        why
    }

    /// Whether another operator has sent a host to a newer generation, or has cancelled the switch.
    fn elsewhere(&self, cluster: &ClusterStatus) -> Option<String> {
        cluster.hosts.iter().find_map(|h| {
            let newest = h.goal().or(h.generation)?;
            if newest > self.plan.generation {
                return Some(format!("{} was switched to generation {newest} meanwhile", h.name));
            }
            let held = h.held.filter(|_| !self.was_held(h))?;
            Some(format!("the switch to generation {held} was cancelled on {}", h.name))
        })
    }
}

/// The present status of a stage, with the last known status of other hosts.
fn with_others(seen: &ClusterStatus, others: &ClusterStatus) -> ClusterStatus {
    let is_seen = |host: &&HostStatus| seen.hosts.iter().any(|other| other.name == host.name);
    let others = others.hosts.iter().filter(|host| !is_seen(host)).cloned();
    ClusterStatus { hosts: seen.hosts.iter().cloned().chain(others).collect(), ..ClusterStatus::default() }
}

/// Whether a host is inactive: its change objects are settled or wait for others.
fn stands_still(host: &HostStatus) -> bool {
    host.reachable && host.cobs.iter().all(|cob| matches!(cob.phase, Phase::Settled | Phase::Waiting))
}

/// The part of the plan that concerns some of the hosts.
pub(super) struct Part {
    pub(super) plan: Plan,
}

impl Part {
    pub(super) fn of(plan: &Plan, set: &BTreeSet<HostName>) -> Self {
        let hosts = plan.hosts.iter().chain(&plan.leaving).filter(|t| set.contains(&t.stand_in())).cloned().collect();
        let mut expected = Expected { generation: Some(plan.generation), ..plan.expected.clone() };
        expected.cobs.retain(|host, _| set.contains(host));
        Self { plan: Plan { hosts, leaving: Vec::new(), expected, had_ended: false, left: None, ..*plan } }
    }
}

pub(super) fn unsettled(verdict: &Verdict) -> Vec<String> {
    match verdict {
        Verdict::Converged(_) => Vec::new(),
        Verdict::Not(why) => why.clone(),
        Verdict::Unreached(hosts, why) => {
            let mut all = vec![format!("{} could not be reached", list(hosts, 6))];
            all.extend(why.iter().cloned());
            all
        }
    }
}
