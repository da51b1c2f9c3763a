//! The judgement of a run: whether it converged, rolled back, needs a person, or broke a rule.

use std::collections::BTreeMap;

use cob_engine::sim::{Crowded, RunEnd, Scene as _, World};
use cob_engine::switch::Stage;
use cob_types::status::{CobStatus, Phase, Trouble, Wait};
use cob_types::words::{count, list};
use cob_types::{CobId, GenerationNumber, HostName, StateName};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Prepared;

/// The most change objects that a finding lists.
const LISTED: usize = 10;

/// The end of a case, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseEnd {
    /// All hosts converge in the second generation.
    Converges,
    /// All hosts converge in the rollback target.
    RollsBack,
    /// A switch stops, and the status names the reason.
    NeedsPerson,
    /// The switch takes more members of a budget out of service than the budget permits, together with members whose
    /// host has lost power.
    Crowds,
    /// The switch stops or runs without end, and no status names a reason.
    Stuck,
    /// A dependency or a budget was violated.
    BreaksRule,
}

/// A change object that did not end in the desired state.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftObject {
    /// Its id.
    pub cob: CobId,
    /// Its state; absent: unknown.
    pub state: Option<StateName>,
    /// The desired state; absent: unknown.
    pub wanted: Option<StateName>,
    /// The reason, in words; empty: it waits for others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) end: CaseEnd,
    pub(super) reasons: Vec<String>,
    /// Equal for all cases of a finding: the reasons, or only the budgets if these are crowded.
    pub(super) common: Vec<String>,
    pub(super) hosts: BTreeMap<HostName, GenerationNumber>,
    /// The first of all that did not end as desired.
    pub(super) objects: Vec<LeftObject>,
    /// The number of all these.
    pub(super) left: usize,
}

pub(super) fn judge(world: &World, end: RunEnd, switch: &Prepared) -> Judged {
    let hosts: BTreeMap<HostName, GenerationNumber> =
        world.host_names().filter_map(|host| Some((host.clone(), world.generation_of(host)?))).collect();
    let mut judged = Judged {
        end: CaseEnd::Converges,
        reasons: Vec::new(),
        common: Vec::new(),
        hosts,
        objects: Vec::new(),
        left: 0,
    };
    match end {
        RunEnd::Violated => {
            judged.end = CaseEnd::BreaksRule;
            judged.reasons.extend(world.outcome().violations.iter().cloned());
        }
        RunEnd::Converged => converged(world, switch, &mut judged),
        RunEnd::Stands | RunEnd::Endless => stopped(world, end, &mut judged),
    }
    if !world.crowded().is_empty() {
        if matches!(judged.end, CaseEnd::Converges | CaseEnd::RollsBack | CaseEnd::NeedsPerson) {
            judged.end = CaseEnd::Crowds;
        }
        judged.reasons.extend(world.crowded().iter().take(1).map(crowded));
    }
    judged.common = match judged.end {
        CaseEnd::Crowds => world.crowded().iter().take(1).map(|crowded| crowded.budget.to_string()).collect(),
        CaseEnd::Converges | CaseEnd::RollsBack | CaseEnd::NeedsPerson | CaseEnd::Stuck | CaseEnd::BreaksRule => {
            judged.reasons.clone()
        }
    };
    judged
}

fn crowded(Crowded { budget, at_most, cob, away }: &Crowded) -> String {
    let others = list(away.iter().filter(|other| *other != cob), 3);
    format!("{cob} goes out of service beside {others}, and {budget} permits {at_most} at a time")
}

/// Judges hosts that have converged: a single generation is active, and all change objects are in its states.
fn converged(world: &World, switch: &Prepared, judged: &mut Judged) {
    let first = judged.hosts.values().next().copied();
    let back = switch.back.as_ref().map(|(order, _)| order.to);
    stopped_switches(world, judged);
    if judged.hosts.values().any(|generation| Some(*generation) != first) {
        judged.end = if judged.reasons.is_empty() { CaseEnd::Stuck } else { CaseEnd::NeedsPerson };
        judged.reasons.push("hosts stay in different generations".to_owned());
        return;
    }
    let bundles = match first {
        Some(generation) if generation == switch.order.to => &switch.second,
        Some(generation) if Some(generation) == back => {
            judged.end = CaseEnd::RollsBack;
            switch.back.as_ref().map_or(&switch.first, |(_, bundles)| bundles)
        }
        Some(generation) => {
            judged.end = CaseEnd::Stuck;
            judged.reasons.push(format!("all hosts stay in generation {generation}"));
            return;
        }
        None => return,
    };
    if !judged.reasons.is_empty() {
        judged.end = CaseEnd::NeedsPerson;
    }
    for cob in bundles.values().flat_map(|bundle| bundle.cobs.values()).filter(|cob| !cob.observe) {
        let state = world.state_of(&cob.id);
        if state != Some(&cob.preferred) {
            judged.left += 1;
            let (state, wanted) = (state.cloned(), Some(cob.preferred.clone()));
            judged.objects.push(LeftObject { cob: cob.id.clone(), state, wanted, why: String::new() });
        }
    }
    judged.objects.truncate(LISTED);
    if judged.left > 0 {
        judged.end = CaseEnd::Stuck;
        judged.reasons.push(format!("{} converged in another state", count(judged.left, "object")));
    }
}

/// The run has come to a stand, or has no end.
fn stopped(world: &World, end: RunEnd, judged: &mut Judged) {
    stopped_switches(world, judged);
    let mut objects = Vec::new();
    for host in judged.hosts.keys() {
        let Some(engine) = world.engine(host) else { continue };
        for cob in engine.status(world.now()) {
            let why = reason(&cob);
            if why.is_some() || cob.phase != Phase::Settled {
                let CobStatus { id, state, target, .. } = cob;
                objects
                    .push((why.is_none(), LeftObject { cob: id, state, wanted: target, why: why.unwrap_or_default() }));
            }
        }
    }
    let with_reasons = objects.iter().filter(|(waits, _)| !waits);
    judged.reasons.extend(with_reasons.map(|(_, object)| format!("{} {}", object.cob, object.why)));
    judged.end = if judged.reasons.is_empty() { CaseEnd::Stuck } else { CaseEnd::NeedsPerson };
    if end == RunEnd::Endless {
        judged.reasons.push("the run has no end".to_owned());
    } else if judged.end == CaseEnd::Stuck {
        judged.reasons.push(format!("{} wait, and no status names a reason", count(objects.len(), "object")));
    }
    objects.sort_by_key(|(waits, _)| *waits);
    judged.left = objects.len();
    judged.objects = objects.into_iter().map(|(_, object)| object).take(LISTED).collect();
}

fn stopped_switches(world: &World, judged: &mut Judged) {
    for host in judged.hosts.keys() {
        let current = world.switching_of(host).and_then(|switching| switching.current.as_ref());
        if let Some(current) = current.filter(|current| current.stage == Stage::Stopped) {
            judged.reasons.push(format!("{host} stops: {}", current.why));
        }
    }
}

/// The reason that a status gives for a person, if any.
fn reason(cob: &CobStatus) -> Option<String> {
    if cob.failed {
        return Some(match &cob.action {
            Some(action) => match (&action.from, &action.to) {
                (Some(from), Some(to)) => {
                    format!("failed after {} to go from {from} to {to}", count(action.attempt, "attempt"))
                }
                (Some(_) | None, _) => "can't be checked".to_owned(),
            },
            None => "failed".to_owned(),
        });
    }
    if let Some(trouble) = cob.trouble.first() {
        return Some(trouble_in_words(trouble));
    }
    cob.waits_for.iter().find_map(|wait| match wait {
        Wait::NoRoute { to } => {
            let state = cob.state.as_ref().map_or("an unknown state", StateName::as_str);
            Some(format!("is in {state}, and no transition leads to {to} from there"))
        }
        Wait::Observed { to } => Some(format!("is observed, and {to} is wanted")),
        Wait::Lock { cob, refused: Some(why), .. } => Some(format!("waits for {cob}, which refuses: {why}")),
        Wait::Lock { refused: None, .. }
        | Wait::Token { .. }
        | Wait::Grant { .. }
        | Wait::Retry { .. }
        | Wait::Failed
        | Wait::Paused
        | Wait::Rest { .. }
        | Wait::Leaving
        | Wait::After { .. }
        | Wait::Limit { .. }
        | Wait::Check
        | Wait::Other => None,
    })
}

/// A problem, in words.
#[must_use]
pub fn trouble_in_words(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Stuck { circle, more } => {
            let names: Vec<_> = circle.iter().map(|c| c.as_str()).collect();
            format!("deadlock: {}{}", names.join(" -> "), if *more { " -> …" } else { "" })
        }
        Trouble::Chase { cob, times } => {
            format!("livelock: requested {cob} {} and withdrew the request", count(*times, "time"))
        }
        Trouble::Flap { state, times, because_of } => {
            let why = because_of.as_ref().map_or("its own preferred state".to_owned(), ToString::to_string);
            format!("flapping: left {state} {}, the last time because of {why}", count(*times, "time"))
        }
        Trouble::Other => "unknown problem".to_owned(),
    }
}
