//! `cobctl explain`: explains why a change object is in its state.
//!
//! It asks only the hosts that the walk reaches, until the walk reaches no further host.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use cob_types::api::StatusOf;
use cob_types::status::{ClusterStatus, CobStatus, HostStatus, InvalidGrant, Phase, WindowWait};
use cob_types::{CobId, GenerationNumber, HostName};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::near::near;
use super::{Context, leaving};
use crate::args::{ExplainArgs, Which};
use crate::explain::{CauseKind, Explained, Explanation, Seen, explain, explain_in, explain_leaving, still_there};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::screen::{Paint, Screen};
use crate::targets::Target;
use crate::verdict::why_not;
use crate::words::{clean, count, invalid_grant, list, window_wait};

/// How many change objects of a host are explained if more wait.
const SHOWN: usize = 3;
/// How many first causes of unfinished change objects are shown.
const CAUSES: usize = 5;

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &ExplainArgs) -> CommandResult {
    match &args.what {
        Which::Cob(cob) => of_cob(context, screen, cob).await,
        Which::Host(host) => of_host(context, screen, host).await,
    }
}

async fn of_cob(context: &Context, screen: &mut Screen, cob: &CobId) -> CommandResult {
    if context.targets.depot.is_some() && !context.targets.narrowed {
        // A host that is missing in the depot is a typing error.
        context.targets.only(&[cob.host()])?;
    }
    let hosts = fetch(context, cob, BTreeMap::new(), explain).await;
    let explanation = over(&hosts, cob, explain, &mut |_| {});
    let unknown = explanation.first.kind == CauseKind::Absent && explanation.culprit() == cob;
    if context.json {
        screen.json(&explanation.told())?;
    } else {
        print(screen, &explanation)?;
        if unknown {
            let near = near(hosts.values().flat_map(|h| &h.cobs), cob);
            if !near.is_empty() {
                screen.problem("hint", &format!("did you mean {}?", list(near, 3)));
            }
        }
    }
    Ok(if unknown {
        Exit::No
    } else if explanation.is_incomplete() {
        Exit::Unreached
    } else {
        Exit::Yes
    })
}

/// The waits of a host: the JSON of `cobctl explain HOST`. New versions only add fields.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
struct ExplainedHost {
    host: HostName,
    answer: String,
    #[serialize_always]
    generation: Option<GenerationNumber>,
    #[serialize_always]
    switching_to: Option<GenerationNumber>,
    /// Each awaited change object.
    waits: Vec<Explained>,
    /// Invalidated grants that it gave or held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "lapses")]
    invalid_grants: Vec<InvalidGrant>,
    /// The order of a switch that waits for maintenance windows.
    window_wait: Option<WindowWait>,
}

async fn of_host(context: &Context, screen: &mut Screen, name: &HostName) -> CommandResult {
    let target = context.locate(name).await?;
    let mut hosts: BTreeMap<HostName, HostStatus> = BTreeMap::new();
    for host in gather::cluster(&context.client, &[target]).await.hosts {
        hosts.insert(name.clone(), host);
    }
    let Some(host) = hosts.get(name).filter(|h| h.reachable).cloned() else {
        let error = hosts.get(name).and_then(|h| h.error.clone()).unwrap_or_default();
        return Err(Failure::environment(format!("{name} can't be reached: {}", clean(&error))));
    };
    let mut leaving: Vec<CobId> = still_there(&host).map(|wait| wait.cob.clone()).collect();
    // Change objects that need an operator come first.
    leaving.sort_by_key(|id| !host.cobs.iter().any(|cob| cob.id == *id && cob.failed));
    let others = host.switch_waits.len() - leaving.len();
    let (ask, cobs): (Ask, Vec<CobId>) = match leaving.is_empty() {
        true => (explain, host.cobs.iter().filter(|c| is_away(c)).map(|c| c.id.clone()).collect()),
        false => (explain_leaving, leaving.clone()),
    };
    let shown = if context.json { &cobs[..] } else { &cobs[..cobs.len().min(SHOWN)] };
    for cob in shown {
        hosts = fetch(context, cob, hosts, ask).await;
    }
    let explanations: Vec<_> = shown.iter().map(|cob| over(&hosts, cob, ask, &mut |_| {})).collect();
    let answer = answer(&host, &cobs, (!leaving.is_empty()).then_some(others));
    if context.json {
        screen.json(&ExplainedHost {
            host: name.clone(),
            answer,
            generation: host.generation,
            switching_to: host.switching_to,
            waits: explanations.iter().map(Explanation::told).collect(),
            invalid_grants: host.invalid_grants.clone(),
            window_wait: host.window_wait.clone(),
        })?;
    } else {
        let answer = screen.paint(Paint::Strong, &answer);
        screen.line(&answer)?;
        if let Some(wait) = &host.window_wait {
            screen.line(&window_wait(wait))?;
            let to = wait.to;
            let hint =
                format!("`cobctl switch {to} --now` starts the switch at once; `cobctl cancel {to}` drops the order");
            screen.problem("hint", &hint);
        }
        for broken in &host.invalid_grants {
            screen.line(&invalid_grant(&host, broken))?;
        }
        for explanation in &explanations {
            screen.line("")?;
            print(screen, explanation)?;
        }
    }
    let incomplete = explanations.iter().any(Explanation::is_incomplete);
    Ok(if incomplete { Exit::Unreached } else { Exit::Yes })
}

/// Whether a change object is away from its preferred state, active or failed.
fn is_away(cob: &CobStatus) -> bool {
    cob.phase != Phase::Settled || cob.failed || cob.state.as_ref() != Some(&cob.preferred)
}

/// `leaving`: the explained change objects depart with the switch, and this many more are in their exit states already.
fn answer(host: &HostStatus, cobs: &[CobId], leaving: Option<usize>) -> String {
    let name = &host.name;
    let active = host.generation.map_or_else(|| "no generation".to_owned(), |g| format!("generation {g}"));
    let have = if cobs.len() == 1 { "has" } else { "have" };
    match (host.switching_to, leaving) {
        (Some(next), Some(others)) => {
            let more = if others == 1 { "is in its exit state" } else { "are in their exit states" };
            let more = if others == 0 { String::new() } else { format!("; {} {more}", count(others, "other")) };
            format!("{name} switches to generation {next} as soon as {} {have} departed{more}", list(cobs, 8))
        }
        _ if cobs.is_empty() => {
            why_not(host, host.generation, None).unwrap_or_else(|| format!("{name} is OK: converged at {active}"))
        }
        _ => format!(
            "{name}, in {active}: {} not in its desired state: {}",
            count(cobs.len(), "change object"),
            list(cobs, 8)
        ),
    }
}

/// The explanations of change objects, one for each first cause.
pub(super) fn first_causes<'a>(cluster: &ClusterStatus, cobs: impl Iterator<Item = &'a CobId>) -> Vec<String> {
    let mut culprits = Vec::new();
    let mut lines = Vec::new();
    // Of thousands of waiters for the same change object, the first few are enough.
    for cob in cobs.take(CAUSES * 20) {
        let explanation = explain_in(cluster, cob);
        if lines.len() == CAUSES {
            break;
        }
        if !culprits.contains(explanation.culprit()) {
            culprits.push(explanation.culprit().clone());
            lines.push(explanation.sentence());
        }
    }
    lines
}

/// A question about a change object.
type Ask = for<'a> fn(&CobId, &dyn Fn(&CobId) -> Seen<'a>) -> Explanation<'a>;

fn over<'a>(
    hosts: &'a BTreeMap<HostName, HostStatus>,
    cob: &CobId,
    ask: Ask,
    missing: &mut dyn FnMut(HostName),
) -> Explanation<'a> {
    let missing = RefCell::new(missing);
    ask(cob, &|id: &CobId| {
        let host = hosts.get(id.host_str());
        if host.is_none() {
            missing.borrow_mut()(id.host());
        }
        Seen::of(host, id)
    })
}

/// Asks the hosts on the path that have not answered yet.
async fn fetch(
    context: &Context,
    cob: &CobId,
    mut hosts: BTreeMap<HostName, HostStatus>,
    ask: Ask,
) -> BTreeMap<HostName, HostStatus> {
    let (named, unnamed): (Vec<_>, Vec<_>) = context.targets.all.iter().cloned().partition(|t| t.name.is_some());
    let take = |hosts: &mut BTreeMap<HostName, HostStatus>, cluster: ClusterStatus| {
        for host in cluster.hosts {
            hosts.entry(host.name.clone()).or_insert(host);
        }
    };
    take(&mut hosts, gather::cluster(&context.client, &unnamed).await);
    if let [silent] = hosts.values().collect::<Vec<_>>().as_slice()
        && !silent.reachable
        && named.is_empty()
    {
        // The only asked daemon stands for the host of the change object.
        let silent = HostStatus { name: cob.host(), ..(*silent).clone() };
        hosts.insert(cob.host(), silent);
    }
    loop {
        let mut missing = BTreeSet::new();
        over(&hosts, cob, ask, &mut |host| {
            missing.insert(host);
        });
        let is_missing = |t: &&Target| t.name.as_ref().is_some_and(|n| missing.contains(n));
        let wanted: Vec<_> = named.iter().filter(is_missing).cloned().collect();
        let before = hosts.len();
        if wanted.is_empty() {
            // Hosts that the latest generation no longer contains: other hosts report the generations that did.
            if hosts.is_empty() {
                take(&mut hosts, gather::cluster(&context.client, &named).await);
            }
            let told = hosts.values().flat_map(leaving::generations);
            let gone = leaving::named_in(&context.targets, told, &context.targets.all).unwrap_or_default();
            let gone: Vec<_> = gone.iter().filter(is_missing).cloned().collect();
            hosts.extend(
                leaving::ask(context, &gone, StatusOf::All).await.into_iter().map(|(_, h)| (h.name.clone(), h)),
            );
        } else {
            take(&mut hosts, gather::cluster(&context.client, &wanted).await);
        }
        if hosts.len() == before {
            return hosts;
        }
    }
}

/// Writes the sentence, the tree and the hint.
fn print(screen: &mut Screen, explanation: &Explanation<'_>) -> Result<(), Failure> {
    let sentence = screen.paint(Paint::Strong, &explanation.sentence());
    screen.line(&sentence)?;
    let tree = explanation.tree();
    if explanation.first.kind != CauseKind::Absent || tree.len() > 2 {
        screen.line("")?;
        for line in tree {
            screen.line(&line)?;
        }
    }
    if !explanation.first.hint.is_empty() {
        screen.line("")?;
        let hint = screen.paint(Paint::Good, "hint:");
        screen.line(&format!("{hint} {}", clean(&explanation.first.hint)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cob_types::status::{SwitchStage, SwitchStatus, SwitchWait};
    use cob_types::switch::OnFailure;

    use super::*;
    use crate::testing::{failed, host, id, settled};

    #[test]
    fn change_objects_already_in_their_exit_states_are_only_counted() {
        let gone = |cob: &str| CobStatus { retiring: true, ..settled(cob, "down") };
        let mut n1 = host("n1", 7, vec![gone("n1/a"), gone("n1/b"), failed("n1/w", "up", "down")]);
        n1.cobs[2].retiring = true;
        n1.switching_to = Some(GenerationNumber(8));
        let wait = |cob: &str| SwitchWait { cob: id(cob), since_ns: 0, asked: 0 };
        n1.switch_waits = vec![wait("n1/a"), wait("n1/b"), wait("n1/w")];
        let there = |host: &HostStatus| still_there(host).map(|wait| wait.cob.clone()).collect::<Vec<_>>();
        assert_eq!(there(&n1), [id("n1/w")]);
        let told = answer(&n1, &there(&n1), Some(2));
        assert_eq!(told, "n1 switches to generation 8 as soon as n1/w has departed; 2 others are in their exit states");
        n1.cobs[2] = gone("n1/w");
        assert_eq!(there(&n1).len(), 3, "all, if no others remain");
    }

    #[test]
    fn a_host_without_waiting_change_objects_need_not_have_converged() {
        let told = |change: fn(&mut HostStatus)| {
            let mut n1 = host("n1", 7, vec![settled("n1/db", "up")]);
            change(&mut n1);
            answer(&n1, &[], None)
        };
        assert_eq!(told(|_| ()), "n1 is OK: converged at generation 7");
        assert_eq!(told(|n1| n1.generation = None), "n1 has no active generation");
        assert_eq!(told(|n1| n1.converged = false), "n1 has not finished");
        let stopped = |n1: &mut HostStatus| {
            n1.switch = Some(SwitchStatus {
                to: GenerationNumber(6),
                stage: SwitchStage::Stopped,
                left: Some(GenerationNumber(7)),
                why: "n1/db failed".to_owned(),
                on_failure: OnFailure::Rollback,
                guard_left_ms: None,
                unreached: Vec::new(),
                remains: Vec::new(),
                ordered: false,
                manifest: None,
            });
        };
        assert_eq!(told(stopped), "n1: the rollback has stopped: n1/db failed");
    }
}
