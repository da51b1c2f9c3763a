//! Waits for the end of a switch: converged, failed, replaced by another, or out of time.
//!
//! The watched status only decides when to check. The result is based on fresh answers of all hosts.

use std::time::Duration;

use cob_types::api::StatusOf;
use cob_types::status::{ClusterStatus, HostStatus, SwitchStage};
use cob_types::switch::OnFailure;
use cob_types::{CobId, GenerationNumber, HostName};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Plan;
use super::prepare::{self, Activation};
use super::report::{Ended, Progress, Report};
use crate::commands::{Context, outcomes};
use crate::failure::CommandResult;
use crate::gather;
use crate::live::Live;
use crate::screen::Screen;
use crate::signals::Interrupts;
use crate::targets::Target;
use crate::verdict::{Verdict, needing_operator};

/// How often the progress line is updated while no status arrives.
const TICK: Duration = Duration::from_millis(500);
/// How long only failed change objects must remain before the wait ends: the status of a host may have been taken just
/// before a transition starts.
const HOPELESS_FOR: Duration = Duration::from_secs(1);
/// The same if the policy rolls the switch back, which a host does after a failure has lasted for three seconds.
const GOES_BACK_IN: Duration = Duration::from_secs(6);
/// The time limit of a host's last answer after the deadline.
const LAST: Duration = Duration::from_secs(1);

pub(super) async fn until_ended(
    context: &Context,
    screen: &mut Screen,
    plan: &Plan,
    absent: Vec<Target>,
    mut report: Report,
    (began, deadline): (Instant, Instant),
    interrupts: &Interrupts,
) -> CommandResult {
    let targets: Vec<Target> = plan.hosts.iter().chain(&plan.leaving).cloned().collect();
    let mut live = Live::start(&context.client, &targets, StatusOf::Active);
    Report::waits(screen, &absent, deadline.saturating_duration_since(Instant::now()));
    let mut progress = Progress::default();
    progress.absent(absent.iter(), began);
    let mut late: JoinSet<(Target, Activation)> = JoinSet::new();
    for target in absent {
        late.spawn(prepare::catch_up(context.client.clone(), target, plan.order()));
    }
    let mut needing_operator_since: Option<(Vec<CobId>, Instant)> = None;
    let (ended, cluster) = loop {
        tokio::select! {
            () = live.changed() => {}
            Some(arrived) = late.join_next() => arrive(screen, &mut report, arrived),
            () = interrupts.pressed() => break (Ended::Interrupted, live.cluster()),
            () = tokio::time::sleep(TICK.min(deadline.saturating_duration_since(Instant::now()))) => {}
        }
        if !report.refusals.is_empty() {
            break (Ended::Refused, live.cluster());
        }
        let watched = live.cluster();
        if live.is_complete() {
            progress.show(screen, plan, &watched, deadline);
        }
        // A later order of an operator is certain, even if some hosts do not answer.
        if let Some(newer) = replaced(&watched, plan) {
            break (Ended::Replaced(newer), watched);
        }
        let is_cancelled = |h: &&HostStatus| h.held == Some(plan.generation) && !report.held_before.contains(&h.name);
        if let Some(held) = watched.hosts.iter().find(is_cancelled) {
            let fresh = gather::cluster(&context.client, &targets).await;
            break (Ended::Cancelled(held.name.clone()), fresh);
        }
        if let Some(lines) = ordered_back(&watched, plan, &report) {
            break (Ended::Withdrawn(lines), watched);
        }
        if Instant::now() >= deadline {
            // A responsive host answers at once, and the time is over.
            let fresh = gather::cluster(&context.client.once_more(LAST), &targets).await;
            break (last_look(plan, &report, &fresh), fresh);
        }
        if !live.is_complete() {
            continue;
        }
        if withdrawn(&watched, plan.generation).is_some() {
            let fresh = gather::cluster_of(&context.client, &targets, StatusOf::Active).await;
            if let Some(lines) = withdrawn(&fresh, plan.generation) {
                break (Ended::Withdrawn(lines), fresh);
            }
        }
        needing_operator_since = match (needing_operator(&watched), needing_operator_since) {
            (Some(now), Some((before, since))) if now == before => Some((now, since)),
            (Some(now), _) => Some((now, Instant::now())),
            (None, _) => None,
        };
        let patience = if goes_back(&watched) { GOES_BACK_IN } else { HOPELESS_FOR };
        let given_up = needing_operator_since.as_ref().is_some_and(|(_, since)| since.elapsed() >= patience);
        if given_up || plan.is_converged(&watched) || plan.only_fenced_are_left(&watched).is_some() {
            // A failure is explained from all change objects; convergence is confirmed by the active ones.
            let of = if given_up { StatusOf::All } else { StatusOf::Active };
            let fresh = gather::cluster_of(&context.client, &targets, of).await;
            if plan.is_converged(&fresh) {
                break (Ended::Converged, fresh);
            }
            if given_up && let Some(causes) = needing_operator(&fresh) {
                break (Ended::Failed(causes), fresh);
            }
            if let Some(hosts) = plan.only_fenced_are_left(&fresh) {
                break (Ended::Fenced(hosts), fresh);
            }
        }
    };
    progress.clear(screen);
    let has_ended = !matches!(ended, Ended::Interrupted);
    if has_ended && (!plan.had_ended || outcomes::is_to_be_noted(context, plan.generation)) {
        let within = Context { client: context.client.once_more(LAST), ..context.clone() };
        let context = if Instant::now() >= deadline { &within } else { context };
        // Hosts that do not answer have no outcome, and would cost the timeout again.
        let is_silent = |t: &Target| cluster.hosts.iter().any(|h| !h.reachable && t.name.as_ref() == Some(&h.name));
        let (silent, heard): (Vec<Target>, Vec<Target>) = targets.iter().cloned().partition(is_silent);
        for generation in plan.left.into_iter().chain([plan.generation]) {
            outcomes::record(context, screen, &heard, silent.iter().map(Target::stand_in), generation).await;
        }
    }
    report.ended(context, screen, plan, &cluster, &ended)
}

fn arrive(screen: &mut Screen, report: &mut Report, arrived: Result<(Target, Activation), tokio::task::JoinError>) {
    match arrived {
        Ok((target, Activation::Yes)) => report.came(screen, &target),
        Ok((target, Activation::Refused(error))) => report.refused(screen, &target, false, &error),
        // Catching up does not end with an absence, and is never cancelled before the wait is over.
        Ok((_, Activation::Absent(_) | Activation::Waits(_))) | Err(_) => {}
    }
}

/// The result at the deadline. A host that has accepted an order and is silent now was reached: it counts as late.
fn last_look(plan: &Plan, report: &Report, fresh: &ClusterStatus) -> Ended {
    match plan.verdict(fresh) {
        Verdict::Converged(_) => Ended::Converged,
        Verdict::Not(_) => match needing_operator(fresh) {
            Some(causes) => Ended::Failed(causes),
            None => Ended::Late,
        },
        Verdict::Unreached(hosts, _) => {
            let never: Vec<HostName> = hosts.into_iter().filter(|host| !report.has_reached(host)).collect();
            if never.is_empty() { Ended::Late } else { Ended::Unreached(never) }
        }
    }
}

/// Whether a host would roll back by itself after a failure of the pending switch.
fn goes_back(cluster: &ClusterStatus) -> bool {
    let switches = cluster.hosts.iter().filter_map(|host| host.switch.as_ref());
    let mut on_its_way = switches.filter(|switch| switch.stage == SwitchStage::Going && switch.left.is_none());
    on_its_way.any(|switch| switch.on_failure == OnFailure::Rollback)
}

/// How hosts rolled a generation back, once no host is still rolling back; `None`: no rollback, or it has not ended.
fn withdrawn(cluster: &ClusterStatus, generation: GenerationNumber) -> Option<Vec<String>> {
    let of = |host: &HostStatus| host.switch.clone().filter(|s| s.left == Some(generation));
    let done = |host: &HostStatus| match of(host) {
        Some(switch) => switch.stage != SwitchStage::Going,
        // If the policy is to pause on a failure, the other hosts continue.
        None => host.converged && host.goal().is_none(),
    };
    let some = cluster.hosts.iter().any(|host| of(host).is_some());
    let over = cluster.hosts.iter().filter(|host| host.reachable).all(done);
    (some && over).then(|| cluster.hosts.iter().flat_map(crate::words::switch).collect())
}

/// The rollback that an operator has ordered on hosts of this switch; `None`: no order. Only hosts that have accepted
/// the `go` count: another host may still show its earlier rollback.
fn ordered_back(cluster: &ClusterStatus, plan: &Plan, report: &Report) -> Option<Vec<String>> {
    let left = |host: &&HostStatus| {
        let switch = host.switch.as_ref().filter(|s| s.left == Some(plan.generation) && s.ordered);
        // If no `go` was due, all hosts had the generation when the wait started.
        switch.is_some() && (report.gone.is_empty() || report.gone.contains(&host.name))
    };
    let lines: Vec<String> = cluster.hosts.iter().filter(left).flat_map(crate::words::switch).collect();
    (!lines.is_empty()).then_some(lines)
}

/// A newer generation to which another operator has switched a host.
///
/// In a rollback, hosts start with newer generations than its target.
fn replaced(cluster: &ClusterStatus, plan: &Plan) -> Option<(HostName, GenerationNumber)> {
    let known = plan.generation.max(plan.newest);
    cluster.hosts.iter().find_map(|h| {
        let newest = h.newest()?;
        (newest > known).then(|| (h.name.clone(), newest))
    })
}
