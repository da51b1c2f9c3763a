//! Decides whether the cluster is converged: only this module may say so.
//!
//! A yes is never false. Every host that counts must have answered this question, under its own name, with the same
//! active generation and no switch under way; it must report itself as converged, and every change object that it lists
//! must confirm that; if the manifest is available, their number must match too.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::status::{ClusterStatus, CobStatus, Holder, HostStatus, Phase, SwitchStage, Trouble, Wait};
use cob_types::{CobId, GenerationNumber, HostName, Manifest};

use crate::failure::Exit;
use crate::gather::refusal;
use crate::identity::{Contents, others};
use crate::words::{clean, count, heading, list_and, phase, trouble};

/// The conditions for a yes besides the hosts' own reports.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The required generation, with no change object stopped by an operator; `None`: any generation that all hosts
    /// share.
    pub generation: Option<GenerationNumber>,
    /// The hosts that must be present, and the number of change objects of each.
    pub cobs: BTreeMap<HostName, u64>,
    /// The contents that the generation numbers must stand for: the depot's contents.
    pub contents: Contents,
}

impl Expected {
    /// The conditions from a manifest.
    #[must_use]
    pub fn of(manifest: &Manifest) -> Self {
        Self {
            generation: Some(manifest.generation),
            cobs: manifest.hosts.iter().map(|(name, host)| (name.clone(), host.cobs)).collect(),
            contents: Contents::new(),
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All change objects are in their preferred states in this generation; `None`: single change objects were judged.
    Converged(Option<GenerationNumber>),
    /// Not converged, and why: a reason per line.
    Not(Vec<String>),
    /// Some hosts did not answer; and the other faults.
    Unreached(Vec<HostName>, Vec<String>),
}

impl Verdict {
    /// The result of a command with this answer.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Verdict::Converged(_) => Exit::Yes,
            Verdict::Not(_) => Exit::No,
            Verdict::Unreached(..) => Exit::Unreached,
        }
    }
}

/// Judges the answers of the hosts.
#[must_use]
pub fn judge(status: &ClusterStatus, expected: &Expected) -> Verdict {
    let mut unreached = unreached(status);
    let there: BTreeSet<&HostName> = status.hosts.iter().map(|h| &h.name).collect();
    unreached.extend(expected.cobs.keys().filter(|h| !there.contains(h)).cloned());
    let mut wrong = refusing(status);
    let wanted = expected.generation.or_else(|| highest(status.hosts.iter()));
    wrong.extend(not_converged(status.hosts.iter(), wanted, &expected.cobs));
    wrong.extend(others(status.hosts.iter(), &expected.contents));
    if expected.generation.is_some() {
        wrong.extend(stopped(status));
    }
    if status.hosts.is_empty() {
        wrong.push("there is no host to ask".to_owned());
    }
    match wanted {
        _ if !unreached.is_empty() => Verdict::Unreached(unreached, wrong),
        Some(_) if wrong.is_empty() => Verdict::Converged(wanted),
        Some(_) | None => Verdict::Not(wrong),
    }
}

/// Judges the named hosts as a whole, and the named change objects of any host.
#[must_use]
pub fn judge_named(
    status: &ClusterStatus,
    whole: &BTreeSet<HostName>,
    cobs: &[&CobId],
    contents: &Contents,
) -> Verdict {
    let unreached = unreached(status);
    let mut wrong = refusing(status);
    let hosts = || status.hosts.iter().filter(|h| whole.contains(&h.name));
    wrong.extend(not_converged(hosts(), highest(hosts()), &BTreeMap::new()));
    wrong.extend(others(status.hosts.iter(), contents));
    for id in cobs {
        match status.hosts.iter().flat_map(|h| &h.cobs).find(|c| c.id == **id) {
            Some(cob) if is_converged(cob) && does_not_stay(cob).is_none() || is_left_there(cob) => {}
            Some(cob) if is_converged(cob) => {
                wrong.extend(does_not_stay(cob).map(|why| format!("{id} is not stable: {why}")))
            }
            Some(cob) => wrong.push(format!("{id} is {}, {}", heading(cob), phase(cob))),
            None => wrong.push(format!("{id} was not found")),
        }
    }
    match (unreached.is_empty(), wrong.is_empty()) {
        (false, _) => Verdict::Unreached(unreached, wrong),
        (true, true) => Verdict::Converged(None),
        (true, false) => Verdict::Not(wrong),
    }
}

/// Change objects that operators have stopped: they are where the operator wants them, not where the generation does.
fn stopped(status: &ClusterStatus) -> impl Iterator<Item = String> {
    let cobs = status.hosts.iter().filter(|h| h.reachable).flat_map(|h| &h.cobs);
    cobs.filter_map(|cob| Some(format!("{} is {}", cob.id, clean(&cob.stopped.as_ref()?.in_words()))))
}

/// The highest active generation of these hosts.
fn highest<'a>(hosts: impl Iterator<Item = &'a HostStatus>) -> Option<GenerationNumber> {
    hosts.filter(|h| h.reachable).filter_map(|h| h.generation).max()
}

/// Why these hosts are not converged, as far as they have answered.
fn not_converged<'a>(
    hosts: impl Iterator<Item = &'a HostStatus>,
    wanted: Option<GenerationNumber>,
    cobs: &BTreeMap<HostName, u64>,
) -> Vec<String> {
    hosts.filter(|h| h.reachable).filter_map(|h| why_not(h, wanted, cobs.get(&h.name).copied())).collect()
}

/// The hosts that did not answer, not even with a refusal.
#[must_use]
pub fn unreached(status: &ClusterStatus) -> Vec<HostName> {
    let silent = |h: &&HostStatus| !h.reachable && refusal(h).is_none();
    status.hosts.iter().filter(silent).map(|h| h.name.clone()).collect()
}

/// The hosts without an answer that an operator has fenced: a host reports the fence, and no host has a link to them.
#[must_use]
pub fn fenced(status: &ClusterStatus) -> BTreeSet<HostName> {
    let said = |host: &HostName| {
        let told = || status.hosts.iter().filter(|h| h.reachable).flat_map(|h| &h.peers).filter(|p| p.host == *host);
        told().any(|p| p.fenced) && !told().any(|p| p.up)
    };
    unreached(status).into_iter().filter(said).collect()
}

/// The hosts that refuse to answer, and why: a sentence for each.
#[must_use]
pub fn refusing(status: &ClusterStatus) -> Vec<String> {
    status.hosts.iter().filter_map(|h| Some(format!("{} refuses: {}", h.name, refusal(h)?))).collect()
}

/// Why a host is not converged in the wanted generation with this many change objects.
pub(crate) fn why_not(host: &HostStatus, wanted: Option<GenerationNumber>, cobs: Option<u64>) -> Option<String> {
    let name = &host.name;
    if let Some(switch) = host.switch.as_ref().filter(|switch| switch.stage == SwitchStage::Stopped) {
        return Some(format!("{name}: the rollback has stopped: {}", clean(&switch.why)));
    }
    match (host.generation, wanted) {
        (None, _) => return Some(format!("{name} has no active generation")),
        (Some(active), Some(wanted)) if active != wanted => {
            return Some(match host.switching_to {
                Some(next) => format!("{name} has generation {active} active and switches to {next}"),
                None => format!("{name} has generation {active} active, not {wanted}"),
            });
        }
        (Some(_), _) => {}
    }
    if let Some(next) = host.goal() {
        return Some(format!("{name} switches to generation {next}"));
    }
    let away: Vec<&CobId> = host.cobs.iter().filter(|c| !is_converged(c) && !is_left_there(c)).map(|c| &c.id).collect();
    let waiting = usize::try_from(host.waiting).unwrap_or(usize::MAX);
    if !away.is_empty() || waiting > 0 {
        let n = away.len().saturating_add(waiting);
        let should = if n == 1 { "its desired state" } else { "their desired states" };
        let n = count(n, "change object");
        return Some(format!("{name}: {n} not in {should}: {}", list_and(away, 3, waiting)));
    }
    let known = host.cob_count();
    if let Some(cobs) = cobs.filter(|c| *c != known) {
        let known = count(usize::try_from(known).unwrap_or(usize::MAX), "change object");
        return Some(format!("{name} reports {known}; its generation has {cobs}"));
    }
    let unstable = host.cobs.iter().find_map(|c| Some((c, does_not_stay(c)?)));
    if let Some((cob, why)) = unstable {
        return Some(format!("{name}: {} is {}, but not stable: {why}", cob.id, heading(cob)));
    }
    (!host.converged).then(|| format!("{name} has not finished"))
}

/// The crash loop of a service: how often it ended by itself after its start, if that is too often. Repeated edits by
/// users and transitions requested by others leave states other than `failed`.
fn does_not_stay(cob: &CobStatus) -> Option<String> {
    let is_crash = |t: &&Trouble| matches!(t, Trouble::Flap { state, because_of: None, .. } if *state == "failed");
    cob.trouble.iter().find(is_crash).map(trouble)
}

/// Whether a change object is idle in its preferred state; a departing change object, in its exit state.
#[must_use]
pub fn is_converged(cob: &CobStatus) -> bool {
    let expected = if cob.retiring { cob.target.as_ref() } else { Some(&cob.preferred) };
    cob.state.is_some() && cob.state.as_ref() == expected && !cob.failed && cob.phase == Phase::Settled
}

/// Whether an observed change object is known to be away from its preferred state: COB does not change that.
#[must_use]
pub fn is_left_there(cob: &CobStatus) -> bool {
    cob.observed && !cob.retiring && cob.state.is_some() && !is_converged(cob)
}

/// The change objects that prevent the present work from ending, if no active change object can end it: each change
/// object away from its preferred state has failed, is deadlocked, or waits for a failed or deadlocked one.
///
/// `None` while a change object may still progress by itself, or if no change object is in the way. A host that
/// switches waits only for departing change objects: others that had failed may progress with the next generation.
///
/// If a host does not list all change objects that only wait for others, these do not count: the final cause of their
/// wait is listed, unless it is a deadlock. A caller fetches the full list before it reports the result.
#[must_use]
pub fn needing_operator(status: &ClusterStatus) -> Option<Vec<CobId>> {
    let switching = |h: &HostStatus| h.goal().is_some();
    let away =
        |h: &'_ HostStatus, c: &CobStatus| !is_converged(c) && !is_left_there(c) && (c.retiring || !switching(h));
    let all_listed = status.hosts.iter().all(|h| h.waiting == 0);
    let counts = |h: &'_ HostStatus, c: &CobStatus| away(h, c) && (all_listed || !c.only_waits());
    let pending: Vec<&CobStatus> =
        status.hosts.iter().flat_map(|h| h.cobs.iter().filter(move |c| counts(h, c))).collect();
    // No host waits for a fenced host.
    let (lost, fenced) = (lost(status), fenced(status));
    let may_get_on = pending.is_empty()
        || status.hosts.iter().any(|h| !h.reachable && !fenced.contains(&h.name))
        || pending.iter().any(|c| c.phase == Phase::Moving || !lost.contains(&c.id))
        || status.hosts.iter().any(switching) && !pending.iter().any(|c| c.retiring);
    if may_get_on {
        return None;
    }
    Some(status.hosts.iter().flat_map(|h| &h.cobs).filter(|c| ended(c)).map(|c| c.id.clone()).collect())
}

/// Whether some of these change objects are away from their preferred states and cannot progress by themselves:
/// each has failed, is deadlocked, or waits for a failed or deadlocked one.
#[must_use]
pub fn stranded(status: &ClusterStatus, cobs: &[CobId]) -> bool {
    let lost = lost(status);
    let away = |c: &&CobStatus| cobs.contains(&c.id) && !is_converged(c) && !is_left_there(c);
    let mut away = status.hosts.iter().flat_map(|h| &h.cobs).filter(away).peekable();
    away.peek().is_some() && away.all(|c| c.phase != Phase::Moving && lost.contains(&c.id))
}

/// The change objects that do not progress by themselves, and all that wait for them. For its waiting members, a budget
/// is lost if every token holder is lost, or if a lost holder stops the budget: then no token becomes free.
fn lost(status: &ClusterStatus) -> BTreeSet<&CobId> {
    let all = || status.hosts.iter().flat_map(|h| &h.cobs);
    let mut waiters: BTreeMap<&CobId, Vec<&CobId>> = BTreeMap::new();
    let mut budgets: BTreeSet<&CobId> = BTreeSet::new();
    for cob in all() {
        for wait in &cob.waits_for {
            let Some(on) = wait.on() else { continue };
            waiters.entry(on).or_default().push(&cob.id);
            if matches!(wait, Wait::Token { .. }) {
                budgets.insert(on);
            }
        }
    }
    let mut holding: BTreeMap<&CobId, Vec<&CobStatus>> = BTreeMap::new();
    for budget in all().filter(|c| budgets.contains(&c.id)) {
        for holder in &budget.held_by {
            holding.entry(&holder.cob).or_default().push(budget);
        }
    }
    let mut lost: BTreeSet<&CobId> = all().filter(|c| ended(c)).map(|c| &c.id).collect();
    let mut next: Vec<&CobId> = lost.iter().copied().collect();
    while let Some(id) = next.pop() {
        let gives_none = |budget: &&&CobStatus| {
            let keeps = |holder: &Holder| lost.contains(&holder.cob);
            budget.held_by.iter().all(keeps) || budget.held_by.iter().any(|holder| holder.stops && keeps(holder))
        };
        let drained: Vec<&CobId> = holding.get(id).into_iter().flatten().filter(gives_none).map(|b| &b.id).collect();
        let waiting = waiters.get(id).into_iter().flatten().copied();
        for more in waiting.chain(drained).collect::<Vec<_>>() {
            if lost.insert(more) {
                next.push(more);
            }
        }
    }
    lost
}

/// Whether a change object no longer progresses by itself.
#[must_use]
pub fn ended(cob: &CobStatus) -> bool {
    let stuck = cob.trouble.iter().any(|t| matches!(t, Trouble::Stuck { .. }));
    let no_route = cob.waits_for.iter().any(|w| matches!(w, Wait::NoRoute { .. } | Wait::Observed { .. }));
    !is_converged(cob) && cob.phase != Phase::Moving && (cob.failed || stuck || no_route)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, failed, host, id, lock, moving, settled, state, waiting};

    fn verdict(hosts: Vec<HostStatus>) -> Verdict {
        judge(&cluster(hosts), &Expected::default())
    }

    fn only_reason(hosts: Vec<HostStatus>) -> String {
        let Verdict::Not(reasons) = verdict(hosts) else { panic!("not a plain no") };
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        reasons[0].clone()
    }

    #[test]
    fn a_cluster_in_its_preferred_states_has_converged() {
        let hosts = vec![host("n1", 7, vec![settled("n1/db", "up")]), host("n2", 7, vec![])];
        assert_eq!(verdict(hosts), Verdict::Converged(Some(GenerationNumber(7))));
    }

    #[test]
    fn a_silent_host_never_counts_as_converged() {
        let gone = crate::gather::unreachable(HostName::new("n2").expect("a name"), "off".to_owned());
        let hosts = vec![host("n1", 7, vec![]), gone];
        assert_eq!(verdict(hosts), Verdict::Unreached(vec![HostName::new("n2").expect("a name")], vec![]));
        let expected = Expected {
            generation: None,
            cobs: [(HostName::new("n3").expect("a name"), 0)].into(),
            ..Expected::default()
        };
        let judged = judge(&cluster(vec![host("n1", 7, vec![])]), &expected);
        assert_eq!(judged.exit(), Exit::Unreached, "a host of the manifest that was not even asked");
        assert_eq!(verdict(vec![]).exit(), Exit::No);
    }

    #[test]
    fn a_refusing_host_is_not_converged_and_not_unreachable() {
        let refusing = crate::gather::unreachable(HostName::new("n2").expect("a name"), "refuses: not you".to_owned());
        assert_eq!(only_reason(vec![host("n1", 7, vec![]), refusing.clone()]), "n2 refuses: not you");
        let gone = crate::gather::unreachable(HostName::new("n3").expect("a name"), "off".to_owned());
        assert_eq!(verdict(vec![refusing, gone]).exit(), Exit::Unreached);
    }

    #[test]
    fn an_unstable_change_object_has_not_converged() {
        let mut crashing = settled("n1/app", "up");
        crashing.trouble.push(Trouble::Flap { state: state("failed"), times: 9, because_of: None });
        let words = "n1: n1/app is up, but not stable: failed 9 times";
        assert_eq!(only_reason(vec![host("n1", 7, vec![crashing.clone()])]), words);
        let named = |cob: CobStatus| {
            let cluster = cluster(vec![host("n1", 7, vec![cob])]);
            judge_named(&cluster, &BTreeSet::new(), &[&id("n1/app")], &Contents::default()).exit()
        };
        assert_eq!((named(crashing), named(settled("n1/app", "up"))), (Exit::No, Exit::Yes));
        let mut healed = settled("n1/app", "up");
        healed.trouble.push(Trouble::Flap { state: state("outdated"), times: 9, because_of: None });
        assert_eq!(named(healed), Exit::Yes);
    }

    #[test]
    fn the_claim_of_a_host_that_it_has_converged_is_not_enough() {
        assert_eq!(
            only_reason(vec![host("n1", 6, vec![]), host("n2", 7, vec![])]),
            "n1 has generation 6 active, not 7"
        );
        let away = host("n1", 7, vec![failed("n1/db", "down", "up"), settled("n1/ip", "up")]);
        assert_eq!(only_reason(vec![away]), "n1: 1 change object not in its desired state: n1/db");
        let mut switching = host("n1", 7, vec![]);
        switching.switching_to = Some(GenerationNumber(8));
        assert_eq!(only_reason(vec![switching]), "n1 switches to generation 8");
        let mut busy = host("n1", 7, vec![]);
        busy.converged = false;
        assert_eq!(only_reason(vec![busy]), "n1 has not finished");
        let mut fresh = host("n1", 7, vec![]);
        fresh.generation = None;
        assert_eq!(only_reason(vec![fresh]), "n1 has no active generation");
    }

    #[test]
    fn two_contents_of_a_generation_number_never_count_as_converged() {
        let with = |name, content| {
            let manifest = Some(cob_types::BlobHash([content; 32]));
            HostStatus { manifest, ..host(name, 7, vec![settled(&format!("{name}/db"), "up")]) }
        };
        assert_eq!(verdict(vec![with("n1", 1), with("n2", 1)]), Verdict::Converged(Some(GenerationNumber(7))));
        assert!(only_reason(vec![with("n1", 1), with("n2", 2)]).contains("generation 7 is not the same on all hosts"));
        let contents: Contents = [(GenerationNumber(7), cob_types::BlobHash([2; 32]))].into();
        let expected = Expected { contents: contents.clone(), ..Expected::default() };
        let both = cluster(vec![with("n1", 1), with("n2", 1)]);
        let Verdict::Not(reasons) = judge(&both, &expected) else { panic!("not a plain no") };
        assert!(reasons[0].contains("n1 and n2 have another generation 7"), "{reasons:?}");
        let Verdict::Not(reasons) = judge_named(&both, &BTreeSet::new(), &[&id("n1/db")], &contents) else {
            panic!("not a plain no")
        };
        assert!(reasons[0].contains("another generation 7"), "{reasons:?}");
    }

    #[test]
    fn the_number_of_change_objects_is_compared_with_the_manifest() {
        let expected = Expected {
            generation: Some(GenerationNumber(7)),
            cobs: [(HostName::new("n1").expect("a name"), 2)].into(),
            ..Expected::default()
        };
        let judged = judge(&cluster(vec![host("n1", 7, vec![settled("n1/db", "up")])]), &expected);
        assert_eq!(judged, Verdict::Not(vec!["n1 reports 1 change object; its generation has 2".to_owned()]));
    }

    #[test]
    fn a_wait_ends_when_only_failed_change_objects_are_waited_for() {
        let db = failed("n1/db", "down", "up");
        let app = waiting("n2/app", "down", "up", vec![lock("n1/db", "up")]);
        let lb = waiting("n3/lb", "down", "up", vec![lock("n2/app", "up")]);
        let other = moving("n3/other", "down", "up");
        let hosts = |more| vec![host("n1", 7, vec![db.clone()]), host("n2", 7, vec![app.clone()]), host("n3", 7, more)];
        assert_eq!(needing_operator(&cluster(hosts(vec![lb.clone()]))), Some(vec![id("n1/db")]));
        assert_eq!(needing_operator(&cluster(hosts(vec![lb, other]))), None, "another is still on its way");
        assert_eq!(needing_operator(&cluster(vec![host("n1", 7, vec![settled("n1/db", "up")])])), None);
    }

    #[test]
    fn a_wait_ends_when_all_holders_of_the_tokens_have_failed() {
        let token = || vec![Wait::Token { cob: id("n1/budget/b"), since_ns: 0 }];
        let holder =
            |cob: &str| Holder { cob: id(cob), state: state("open"), recalled: false, since_ns: None, stops: false };
        let held_by = |cobs: &[&str]| CobStatus {
            held_by: cobs.iter().map(|cob| holder(cob)).collect(),
            ..settled("n1/budget/b", "open")
        };
        let a = || failed("n1/a", "failed", "up");
        let z = || waiting("n1/z", "outdated", "up", token());
        let of = |cobs: Vec<CobStatus>| needing_operator(&cluster(vec![host("n1", 7, cobs)]));
        assert_eq!(of(vec![a(), z(), held_by(&["n1/a"])]), Some(vec![id("n1/a")]));
        let other = moving("n1/m", "outdated", "up");
        assert_eq!(of(vec![a(), z(), other, held_by(&["n1/a", "n1/m"])]), None, "another token comes back");
        let mut stopped = held_by(&["n1/a", "n1/m"]);
        stopped.held_by[0].stops = true;
        let other = settled("n1/m", "up");
        assert_eq!(of(vec![a(), z(), other, stopped]), Some(vec![id("n1/a")]), "regardless of the free tokens");
        assert_eq!(of(vec![a(), z()]), None, "an unlisted budget is unknown");
    }

    #[test]
    fn change_objects_are_stranded_when_no_named_one_can_progress() {
        let given_up = || failed("n1/db", "down", "up");
        let waits = || waiting("n2/app", "down", "up", vec![lock("n1/db", "up")]);
        let of = |cobs: Vec<CobStatus>, named: &[&str]| {
            let named: Vec<CobId> = named.iter().map(|name| id(name)).collect();
            stranded(&cluster(vec![host("n1", 7, cobs)]), &named)
        };
        assert!(of(vec![given_up(), waits(), moving("n3/x", "down", "up")], &["n1/db", "n2/app"]));
        assert!(of(vec![given_up(), settled("n3/x", "up")], &["n1/db", "n3/x"]), "n3/x has arrived");
        assert!(!of(vec![given_up(), moving("n3/x", "down", "up")], &["n1/db", "n3/x"]), "n3/x progresses");
        assert!(!of(vec![waits(), moving("n1/db", "down", "up")], &["n2/app"]), "n1/db progresses");
        assert!(!of(vec![given_up(), settled("n3/x", "up")], &["n3/x"]), "all have arrived");
    }

    #[test]
    fn unlisted_waiting_change_objects_count_as_not_converged() {
        let with = |cobs, waiting| HostStatus { waiting, ..host("n1", 7, cobs) };
        let app = || waiting("n1/app", "down", "up", vec![lock("n1/mid", "up")]);
        assert_eq!(
            only_reason(vec![with(vec![app()], 9)]),
            "n1: 10 change objects not in their desired states: n1/app and 9 more"
        );
        assert_eq!(only_reason(vec![with(vec![], 1)]), "n1: 1 change object not in its desired state: 1 more");
        // The unlisted change object may wait for the failed one; if it could progress, it would be listed.
        let db = || failed("n1/db", "down", "up");
        assert_eq!(needing_operator(&cluster(vec![with(vec![app(), db()], 1)])), Some(vec![id("n1/db")]));
        assert_eq!(needing_operator(&cluster(vec![with(vec![app(), db(), moving("n1/ip", "down", "up")], 1)])), None);
        assert_eq!(needing_operator(&cluster(vec![with(vec![app()], 1)])), None, "no object has failed");
    }

    #[test]
    fn an_observed_change_object_does_not_prevent_convergence() {
        let to = crate::testing::state("up");
        let astray =
            |id| CobStatus { observed: true, ..waiting(id, "down", "up", vec![Wait::Observed { to: to.clone() }]) };
        let hosts = vec![host("n1", 7, vec![astray("n1/db"), settled("n1/ip", "up")])];
        assert_eq!(verdict(hosts), Verdict::Converged(Some(GenerationNumber(7))));
        let app = waiting("n2/app", "down", "up", vec![lock("n1/db", "up")]);
        let hosts = vec![host("n1", 7, vec![astray("n1/db")]), host("n2", 7, vec![app])];
        assert_eq!(only_reason(hosts.clone()), "n2: 1 change object not in its desired state: n2/app");
        assert_eq!(needing_operator(&cluster(hosts)), Some(vec![id("n1/db")]), "a waiter needs an operator");
        let unknown = CobStatus { state: None, phase: Phase::Checking, ..astray("n1/db") };
        assert_eq!(verdict(vec![host("n1", 7, vec![unknown])]).exit(), Exit::No);
    }

    #[test]
    fn an_earlier_failure_does_not_end_the_wait_for_a_switch() {
        let mut switching = host("n1", 7, vec![failed("n1/db", "down", "up")]);
        switching.switching_to = Some(GenerationNumber(8));
        assert_eq!(needing_operator(&cluster(vec![switching.clone()])), None, "generation 8 may mend it");
        let mut leaving = failed("n1/old", "up", "down");
        leaving.retiring = true;
        switching.cobs.push(leaving);
        assert_eq!(needing_operator(&cluster(vec![switching.clone()])), Some(vec![id("n1/db"), id("n1/old")]));
        let gone = crate::gather::unreachable(HostName::new("n2").expect("a name"), "off".to_owned());
        assert_eq!(needing_operator(&cluster(vec![switching, gone])), None, "a host may come back");
    }
}
