//! `go` in stages: first to a canary set and, after a gate, to the rest; or to a limited number of hosts at a time.
//!
//! ```text
//! prepared everywhere --> go: the canary set --> converged, healthy for the gate's time, check says yes --> go: the rest
//!                                   |                       |
//!                                Ctrl-C: no change          no: paused, or rolled back; the rest discards it
//! ```
//!
//! A `go` lists the hosts that it is for, and these announce it to no other host. So if this program ends early, the
//! hosts that received a `go` have the generation, and the other hosts have it prepared. The same order continues from
//! there.
//!
//! A host on which the switch fails stops the stages. A repeated order first judges the hosts that already have the
//! generation, so it stops there, too. `--max-failures` is the number of failed hosts that do not stop the stages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cob_types::api::{Order, StatusOf, order};
use cob_types::status::{ClusterStatus, CobStatus, HostStatus, Phase};
use cob_types::switch::OnFailure;
use cob_types::{BlobHash, CobId, GenerationNumber, HostName};
use tokio::time::Instant;

use super::prepare::{self, Activation};
use super::report::{Report, Then};
use super::settle::{Settled, unsettled};
use super::windows::{self, Waits};
use super::{LOOK_AGAIN, Plan};
use crate::args::{OnFailureArg, SwitchArgs};
use crate::commands::Context;
use crate::coupling::{Added, Coupling};
use crate::failure::Failure;
use crate::gather;
use crate::screen::Screen;
use crate::signals::Interrupts;
use crate::targets::Target;
use crate::verdict::{Expected, Verdict, judge, needing_operator};
use crate::words::{count, list, span};

/// How long a stage may take to converge if no wait is given.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// As in a wait: how long only failed change objects must remain.
pub(super) const HOPELESS_FOR: Duration = Duration::from_secs(1);
/// The most reasons shown why hosts switch together.
const SHOWN: usize = 3;
pub(super) const TICK: Duration = Duration::from_millis(500);
/// The most events of a gate that are shown.
pub(super) const TOLD: usize = 6;

/// The stages of `go`.
pub(super) enum Stages {
    /// To these hosts first.
    Canary(BTreeSet<HostName>),
    /// To this many hosts at a time: groups that switch together, each after the groups that it needs.
    Waves(usize, Vec<BTreeSet<HostName>>),
}

/// The result of the stages.
pub(super) enum Staged {
    /// These hosts remain, and start without a further wait. If a host has failed and is tolerated, the policy of the
    /// generation must not roll the others back because of it.
    Rest { hosts: Vec<Target>, tolerates: bool },
    /// The stages ended before all hosts had started: the reason in words, and hints to continue.
    Ended(String, Vec<String>),
    /// All reachable hosts are done; these did not answer when their stage came.
    Away(Vec<HostName>),
}

/// Finds the stages, if any were ordered; refuses invalid stages.
pub(super) fn find(
    context: &Context,
    screen: &mut Screen,
    args: &SwitchArgs,
    plan: &Plan,
    first: &ClusterStatus,
) -> Result<Option<Stages>, Failure> {
    if args.canary.is_empty() && args.limit_hosts.is_none() {
        if args.max_failures > 0 {
            return Err(Failure::usage("--max-failures counts failed hosts of stages, and the switch has no stages")
                .hint("define stages with --limit-hosts or --canary; for more tokens of a budget: `cobctl budget`"));
        }
        return Ok(None);
    }
    if let (Some(gate), Some(wait)) = (args.gate, args.wait)
        && gate >= wait
    {
        return Err(Failure::usage(format!("--gate {} would outlast --wait {}", told(gate), told(wait)))
            .hint("--wait limits each stage: give it more time than the gate"));
    }
    // Removed hosts have a stage too: others may wait for their departures.
    let all: BTreeSet<HostName> = plan.hosts.iter().chain(&plan.leaving).map(Target::stand_in).collect();
    let coupling = coupling(context, plan, first)?;
    if let Some(limit) = args.limit_hosts {
        let groups = coupling.groups_from(&all, &failed_on(first));
        if let Some(group) = groups.iter().filter(|g| g.len() > limit.get()).max_by_key(|g| g.len()) {
            let why: Vec<String> = coupling.inside(group).iter().take(SHOWN).map(Added::sentence).collect();
            let these = if group.len() == all.len() {
                format!("all {} of the generation", count(all.len(), "host"))
            } else {
                format!("{} ({})", count(group.len(), "host"), list(group, 8))
            };
            return Err(Failure::refused(format!("{these} must switch together, so waves of {limit} are impossible: {}",
                why.join("; ")))
            .hint(format!(
                "publish the changes that couple them in a separate generation first; or use --limit-hosts {}, the smallest \
                 limit for these hosts",
                group.len()
            )));
        }
        return Ok(Some(Stages::Waves(limit.get(), groups)));
    }
    let mut set: BTreeSet<HostName> = args.canary.iter().cloned().collect();
    if let Some(unknown) = set.iter().find(|h| !all.contains(*h)) {
        return Err(Failure::usage(format!("the canary {unknown} is not a host of generation {}", plan.generation))
            .hint(format!("its hosts are {}", list(&all, 8))));
    }
    let mut reasons = Vec::new();
    for added in coupling.closure(&set).into_iter().filter(|a| all.contains(&a.host)) {
        reasons.push(added.sentence());
        set.insert(added.host);
    }
    if set == all {
        let why = if reasons.is_empty() { "all hosts were named".to_owned() } else { reasons.join("; ") };
        return Err(Failure::refused(format!("the canary contains all hosts, so no host would come after it: {why}"))
            .hint("name other hosts, or switch without --canary"));
    }
    reasons.iter().for_each(|reason| screen.say(reason));
    Ok(Some(Stages::Canary(set)))
}

/// The next hosts are those with earlier failures; this switch itself has not failed.
fn behind(screen: &mut Screen, hosts: &BTreeSet<HostName>) -> BTreeSet<HostName> {
    let hosts = list(hosts, 6);
    screen.say(&format!("the hosts so far wait for {hosts}, where a change object had failed before; next: {hosts}"));
    BTreeSet::new()
}

/// The hosts with failed change objects: others may wait for their locks, so these hosts are repaired first.
fn failed_on(first: &ClusterStatus) -> BTreeSet<HostName> {
    first.hosts.iter().filter(|host| host.cobs.iter().any(|cob| cob.failed)).map(|host| host.name.clone()).collect()
}

/// The coupling of hosts between the active generations and the new one.
fn coupling(context: &Context, plan: &Plan, first: &ClusterStatus) -> Result<Coupling, Failure> {
    let depot = context.targets.need_depot("the depot is needed: it says which hosts need each other")?;
    let new = depot.whole(plan.generation)?;
    let active: BTreeSet<Option<GenerationNumber>> =
        first.hosts.iter().filter(|h| h.reachable).map(|h| h.generation).collect();
    let mut coupling = Coupling::default();
    for generation in active.into_iter().filter(|g| *g != Some(plan.generation)) {
        let old = generation.map(|g| depot.whole(g)).transpose()?;
        coupling.extend(Coupling::between(old.as_ref(), &new, &is_idle(first)));
    }
    Ok(coupling)
}

/// Whether a change object is idle in its preferred state; not so on a host with unlisted objects or a pending switch.
fn is_idle(first: &ClusterStatus) -> impl Fn(&CobId) -> bool {
    let is_known = |h: &&HostStatus| h.reachable && h.goal().is_none() && h.waiting == 0;
    let hosts: BTreeSet<HostName> = first.hosts.iter().filter(is_known).map(|h| h.name.clone()).collect();
    let rests = |c: &&CobStatus| c.phase == Phase::Settled && !c.failed && c.state.as_ref() == Some(&c.preferred);
    let cobs = first.hosts.iter().flat_map(|h| &h.cobs).filter(|c| !rests(c));
    let astray: BTreeSet<CobId> = cobs.map(|c| c.id.clone()).collect();
    move |id| hosts.contains(id.host_str()) && !astray.contains(id)
}

/// A switch in stages.
pub(super) struct Run<'a> {
    pub(super) context: &'a Context,
    pub(super) args: &'a SwitchArgs,
    pub(super) plan: &'a Plan,
    pub(super) first: &'a ClusterStatus,
    /// The status of all hosts before the first stage.
    pub(super) before: &'a ClusterStatus,
    /// The hosts that have prepared.
    pub(super) ready: &'a [Target],
    /// Ctrl-C since the first order.
    pub(super) interrupts: &'a Interrupts,
}

impl Run<'_> {
    /// Sends `go` stage by stage, except for the last stage.
    pub(super) async fn go(&self, screen: &mut Screen, report: &mut Report, stages: &Stages) -> Staged {
        match stages {
            Stages::Canary(set) => self.canary(screen, report, set).await,
            Stages::Waves(limit, groups) => self.waves(screen, report, *limit, groups).await,
        }
    }

    async fn canary(&self, screen: &mut Screen, report: &mut Report, set: &BTreeSet<HostName>) -> Staged {
        let missing: Vec<_> = set.iter().filter(|h| !self.is_told(h) && !self.is_ready(h)).collect();
        if !missing.is_empty() {
            self.forget(screen, &BTreeSet::new()).await;
            let why = format!("not started, no host has changed: {} cannot receive the order", list(missing, 6));
            return Staged::Ended(why, Vec::new());
        }
        // Hosts that an earlier order has told belong to the canary: a failure there must not reach others.
        let before = self.told_before();
        if let Err(ended) = self.settle_before(screen, &before, set).await {
            return ended;
        }
        let set = &set.union(&before).cloned().collect::<BTreeSet<_>>();
        let only = set.iter().cloned().collect();
        if let Err(why) = self.tell(screen, report, set, only).await {
            return self.give_up(screen, set, vec![why]).await;
        }
        let gate = self.args.gate.unwrap_or_default();
        let gate_words = if gate.is_zero() { String::new() } else { format!(", then healthy for {}", told(gate)) };
        let go = if set.len() == 1 { "switches" } else { "switch" };
        screen.say(&format!("canary: {} {go} first, until converged{gate_words}", list(set, 8)));
        let (since, failed) = match self.settle(screen, set).await {
            Settled::Yes(failed) => (Instant::now(), failed),
            Settled::No(why) => return self.give_up(screen, set, why).await,
            Settled::Behind(hosts, why) => return self.blocked(screen, set, &hosts, why).await,
            Settled::Interrupted => return self.interrupted(set),
        };
        let well: BTreeSet<HostName> = set.difference(&failed).cloned().collect();
        match self.stay_healthy(screen, &well, since + gate).await {
            Settled::Yes(_) => {}
            Settled::No(why) | Settled::Behind(_, why) => return self.give_up(screen, set, why).await,
            Settled::Interrupted => return self.interrupted(set),
        }
        match self.check(screen, set).await {
            Settled::Yes(_) => {}
            Settled::No(why) | Settled::Behind(_, why) => return self.give_up(screen, set, why).await,
            Settled::Interrupted => return self.interrupted(set),
        }
        screen.say("canary: converged and healthy; the other hosts switch");
        self.widen(screen, &well, !failed.is_empty()).await;
        let hosts = self.ready.iter().filter(|t| !set.contains(&t.stand_in())).cloned().collect();
        Staged::Rest { hosts, tolerates: !failed.is_empty() }
    }

    /// Waits until the hosts that an earlier order has told have converged, before any other host is told. Returns the
    /// hosts that failed and are tolerated.
    async fn settle_before(
        &self,
        screen: &mut Screen,
        told: &BTreeSet<HostName>,
        next: &BTreeSet<HostName>,
    ) -> Result<BTreeSet<HostName>, Staged> {
        if told.is_empty() {
            return Ok(BTreeSet::new());
        }
        let (these, have) = (list(told, 8), if told.len() == 1 { "has" } else { "have" });
        let generation = self.plan.generation;
        screen.say(&format!(
            "{these} {have} generation {generation} already: the next hosts switch when it has converged"
        ));
        match self.settle(screen, told).await {
            Settled::Yes(tolerated) => Ok(tolerated),
            Settled::Behind(hosts, _) if hosts.is_subset(next) => Ok(behind(screen, &hosts)),
            Settled::No(why) | Settled::Behind(_, why) => Err(self.give_up(screen, told, why).await),
            Settled::Interrupted => Err(self.interrupted(told)),
        }
    }

    async fn waves(
        &self,
        screen: &mut Screen,
        report: &mut Report,
        limit: usize,
        groups: &[BTreeSet<HostName>],
    ) -> Staged {
        let ready = |g: &BTreeSet<HostName>| g.iter().filter(|h| self.is_ready(h)).cloned().collect::<BTreeSet<_>>();
        let mut left: Vec<BTreeSet<HostName>> = groups.iter().map(ready).filter(|g| !g.is_empty()).collect();
        left.reverse();
        let mut told: BTreeSet<HostName> = self.told_before();
        let next = left.iter().flatten().cloned().collect();
        let mut failed = match self.settle_before(screen, &told, &next).await {
            Ok(tolerated) => tolerated,
            Err(ended) => return ended,
        };
        // When these hosts come back, other hosts would tell all of them at once.
        let hosts = self.plan.hosts.iter().map(Target::stand_in);
        let away: Vec<HostName> = hosts.filter(|host| !self.is_ready(host) && !told.contains(host)).collect();
        while let Some(group) = left.pop() {
            let mut wave = group;
            while left.last().is_some_and(|next| wave.len() + next.len() <= limit) {
                wave.extend(left.pop().unwrap_or_default());
            }
            if left.is_empty() && away.is_empty() {
                let well = told.difference(&failed).cloned().collect();
                self.widen(screen, &well, !failed.is_empty()).await;
                return Staged::Rest { hosts: self.targets(&wave), tolerates: !failed.is_empty() };
            }
            told.extend(wave.iter().cloned());
            let only = told.iter().cloned().collect();
            screen.say(&format!(
                "switching: {}; {} to follow",
                list(&wave, 8),
                count(left.iter().map(BTreeSet::len).sum::<usize>(), "host")
            ));
            if let Err(why) = self.tell(screen, report, &wave, only).await {
                return self.give_up(screen, &told, vec![why]).await;
            }
            match self.settle(screen, &told).await {
                Settled::Yes(tolerated) => failed = tolerated,
                Settled::Behind(hosts, _) if !left.is_empty() => failed = behind(screen, &hosts),
                Settled::No(why) | Settled::Behind(_, why) => return self.give_up(screen, &told, why).await,
                Settled::Interrupted => return self.interrupted(&told),
            }
        }
        if !away.is_empty() {
            return Staged::Away(away);
        }
        Staged::Rest { hosts: Vec::new(), tolerates: !failed.is_empty() }
    }

    /// Sends the `go` as ordered, without a set: from here on the hosts that have received it tell others too, with the
    /// common options, and follow them.
    ///
    /// With tolerated failed hosts the policy must not roll the others back.
    async fn widen(&self, screen: &mut Screen, told: &BTreeSet<HostName>, tolerates: bool) {
        let seen = Some(self.plan.generation.max(self.plan.newest));
        let mut open = order::Switch { seen, ..self.plan.order_in_full() };
        if tolerates {
            open.on_failure = Some(OnFailure::Hold);
        }
        for (target, answer) in prepare::switch(&self.context.client, &self.targets(told), &open, None).await {
            if let Activation::Absent(error) | Activation::Refused(error) = answer {
                let (host, why) = (target.stand_in(), error.in_a_line());
                screen.problem("warning", &format!("{host} holds on its own until it receives the new order: {why}"));
                let generation = self.plan.generation;
                screen.problem("hint", &format!("repeat `cobctl switch {generation}` with the same options"));
            }
        }
    }

    pub(super) fn is_ready(&self, host: &HostName) -> bool {
        self.ready.iter().any(|t| t.stand_in() == *host)
    }

    /// Whether the host already has the generation.
    fn is_told(&self, host: &HostName) -> bool {
        let has = |h: &HostStatus| h.reachable && h.newest() == Some(self.plan.generation);
        self.before.hosts.iter().any(|h| h.name == *host && has(h))
    }

    /// The hosts that an earlier order has sent to this generation.
    fn told_before(&self) -> BTreeSet<HostName> {
        self.all().map(Target::stand_in).filter(|host| self.is_told(host)).collect()
    }

    /// The hosts of the generation, and the removed hosts.
    pub(super) fn all(&self) -> impl Iterator<Item = &Target> {
        self.plan.hosts.iter().chain(&self.plan.leaving)
    }

    pub(super) fn targets(&self, set: &BTreeSet<HostName>) -> Vec<Target> {
        self.all().filter(|t| set.contains(&t.stand_in())).cloned().collect()
    }

    /// Sends `go` to these hosts, for the hosts in `only`.
    async fn tell(
        &self,
        screen: &mut Screen,
        report: &mut Report,
        set: &BTreeSet<HostName>,
        only: Vec<HostName>,
    ) -> Result<(), String> {
        let targets: Vec<Target> = self.targets(set).into_iter().filter(|t| self.is_ready(&t.stand_in())).collect();
        // This program decides about a stage that fails.
        let on_failure = Some(OnFailure::Hold);
        let order = order::Switch { on_failure, alone: true, only, ..self.plan.order() };
        let mut wrong = Vec::new();
        let mut waits = Waits::new();
        for (target, answer) in prepare::switch(&self.context.client, &targets, &order, None).await {
            match answer {
                Activation::Yes => report.gone.push(target.stand_in()),
                Activation::Waits(wait) => _ = waits.insert(target.stand_in(), wait),
                // Most removed hosts are gone.
                Activation::Absent(error) if self.plan.leaving.contains(&target) => {
                    report.absent(screen, &target, Then::Leaves, &error);
                }
                Activation::Absent(error) => {
                    report.absent(screen, &target, Then::Follows, &error);
                    wrong.push(target.stand_in());
                }
                Activation::Refused(error) => {
                    report.refused(screen, &target, self.plan.leaving.contains(&target), &error);
                    wrong.push(target.stand_in());
                }
            }
        }
        if let Some(why) = windows::no_stage(&waits) {
            let waiting: Vec<Target> = targets.into_iter().filter(|t| waits.contains_key(&t.stand_in())).collect();
            forget(self.context, screen, self.plan.generation, &waiting).await;
            return Err(why);
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("{} did not start the switch", list(&wrong, 6))) }
    }

    /// A canary waits for locks of other hosts, where a change object had failed before.
    async fn blocked(
        &self,
        screen: &mut Screen,
        set: &BTreeSet<HostName>,
        by: &BTreeSet<HostName>,
        why: Vec<String>,
    ) -> Staged {
        match self.give_up(screen, set, why).await {
            Staged::Ended(why, mut hints) => {
                hints.pop();
                let both: Vec<&HostName> = set.union(by).collect();
                let names = both.iter().map(|host| host.as_str()).collect::<Vec<_>>().join(",");
                let resume = set.iter().map(|host| format!(" --host {host}")).collect::<String>();
                hints.push(format!(
                    "this generation may repair {0}: `cobctl resume{resume}`, then `cobctl switch {1} --canary {names}`, or with \
                     --limit-hosts, which starts with {0}",
                    list(by, 6),
                    self.plan.generation
                ));
                Staged::Ended(why, hints)
            }
            other @ (Staged::Rest { .. } | Staged::Away(_)) => other,
        }
    }

    /// The stage has failed: its hosts pause, or roll back; the others discard the prepared generation.
    async fn give_up(&self, screen: &mut Screen, set: &BTreeSet<HostName>, mut why: Vec<String>) -> Staged {
        self.forget(screen, set).await;
        let policy = self.args.on_failure.unwrap_or(OnFailureArg::Hold);
        let cancel = order::Cancel {
            generation: Some(self.plan.generation),
            on_failure: Some(OnFailureArg::Hold.into()),
            who: None,
        };
        let client = &self.context.client;
        for (target, answer) in order_each(client, &self.targets(set), &cancel).await {
            if let Err(error) = answer {
                why.push(format!("{} did not receive the cancellation: {}", target.stand_in(), error.in_a_line()));
            }
        }
        let then = match policy {
            OnFailureArg::Hold => {
                let hold = if set.len() == 1 { "holds" } else { "hold" };
                format!("{} {hold}, the other hosts keep their generations", list(set, 8))
            }
            OnFailureArg::Rollback => self.take_back(screen, set, &mut why).await,
        };
        let hints = if policy == OnFailureArg::Hold { self.how_to_go_on(set).await } else { Vec::new() };
        Staged::Ended(format!("{}; {then}", why.join("; ")), hints)
    }

    /// Hints for an operator about paused hosts, and about a rollout that has stopped there.
    async fn how_to_go_on(&self, set: &BTreeSet<HostName>) -> Vec<String> {
        let now = gather::cluster(&self.context.client, &self.targets(set)).await;
        let held: Vec<&HostName> = now.hosts.iter().filter(|h| h.held.is_some()).map(|h| &h.name).collect();
        let failed: Vec<&CobId> = now.hosts.iter().flat_map(|h| &h.cobs).filter(|c| c.failed).map(|c| &c.id).collect();
        if held.is_empty() && failed.is_empty() {
            return Vec::new();
        }
        let resume = held.iter().map(|host| format!(" --host {host}")).collect::<String>();
        let retry = failed.iter().take(TOLD).map(|cob| format!(" {cob}")).collect::<String>();
        let mut orders = Vec::new();
        if !held.is_empty() {
            orders.push(format!("`cobctl resume{resume}`"));
        }
        if !failed.is_empty() {
            orders.push(format!("`cobctl retry{retry}`"));
        }
        vec![
            format!("after the cause is fixed: {}; then the same command continues from there", orders.join(" and ")),
            format!("--max-failures {} continues despite these failed hosts", held.len().max(1)),
        ]
    }

    /// Switches hosts back to their previous generations; with --wait, until they have converged.
    async fn take_back(&self, screen: &mut Screen, set: &BTreeSet<HostName>, why: &mut Vec<String>) -> String {
        let mut by_generation: BTreeMap<(GenerationNumber, Option<BlobHash>), Vec<Target>> = BTreeMap::new();
        for target in self.targets(set) {
            let before = self.first.hosts.iter().find(|h| h.name == target.stand_in());
            let before = before.and_then(|h| Some((h.generation?, h.manifest)));
            match before.filter(|(g, _)| *g != self.plan.generation) {
                Some(generation) => by_generation.entry(generation).or_default().push(target),
                None => why.push(format!("{} had no other generation before", target.stand_in())),
            }
        }
        let (mut back, mut on_their_way) = (Vec::new(), Vec::new());
        for ((generation, manifest), targets) in by_generation {
            let only = set.iter().cloned().collect();
            let seen = Some(self.plan.generation.max(self.plan.newest));
            let order = order::Switch { generation, manifest, alone: true, only, seen, ..order::Switch::default() };
            for (target, answer) in prepare::switch(&self.context.client, &targets, &order, None).await {
                match answer {
                    Activation::Yes | Activation::Waits(_) => {
                        back.push(format!("{} to {generation}", target.stand_in()));
                        on_their_way.push((target, generation));
                    }
                    Activation::Absent(error) | Activation::Refused(error) => {
                        why.push(format!("{} does not roll back and holds: {}", target.stand_in(), error.in_a_line()));
                    }
                }
            }
        }
        if back.is_empty() {
            return "no host rolls back".to_owned();
        }
        let back = back.join(", ");
        let Some(limit) = self.args.wait else { return format!("rolling back: {back}") };
        screen.say(&format!("canary: rolling back: {back}"));
        match self.until_back(&on_their_way, Instant::now() + limit).await {
            Ok(()) => format!("rolled back: {back}"),
            Err(not) => format!("rolling back: {back}, and not done yet: {}", not.join("; ")),
        }
    }

    /// Waits until each of these hosts has converged in its generation.
    ///
    /// # Errors
    /// The reasons for each host, if no host progresses any more, or the time is over.
    async fn until_back(&self, hosts: &[(Target, GenerationNumber)], deadline: Instant) -> Result<(), Vec<String>> {
        let targets: Vec<Target> = hosts.iter().map(|(target, _)| target.clone()).collect();
        let mut stuck_since: Option<Instant> = None;
        loop {
            let now = gather::cluster_of(&self.context.client, &targets, StatusOf::Active).await;
            let mut not = Vec::new();
            for (target, generation) in hosts {
                let its = now.hosts.iter().filter(|host| host.name == target.stand_in()).cloned().collect();
                let expected = Expected { generation: Some(*generation), ..Expected::default() };
                match judge(&ClusterStatus { hosts: its, ..ClusterStatus::default() }, &expected) {
                    Verdict::Converged(_) => {}
                    verdict @ (Verdict::Not(_) | Verdict::Unreached(..)) => not.extend(unsettled(&verdict)),
                }
            }
            if not.is_empty() {
                return Ok(());
            }
            // A status may have been taken just before a transition starts.
            stuck_since = needing_operator(&now).map(|_| stuck_since.unwrap_or_else(Instant::now));
            let is_stuck = stuck_since.is_some_and(|since| since.elapsed() >= HOPELESS_FOR);
            // Only the complete status contains the final causes of waits.
            if Instant::now() >= deadline
                || is_stuck && needing_operator(&gather::cluster(&self.context.client, &targets).await).is_some()
            {
                return Err(not);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = self.interrupts.pressed() => return Err(vec!["interrupted; the rollback continues".to_owned()]),
            }
        }
    }

    /// Makes the hosts that have prepared but not started discard the generation.
    async fn forget(&self, screen: &mut Screen, told_to_go: &BTreeSet<HostName>) {
        let others: Vec<Target> = self.ready.iter().filter(|t| !told_to_go.contains(&t.stand_in())).cloned().collect();
        forget(self.context, screen, self.plan.generation, &others).await;
    }

    fn interrupted(&self, set: &BTreeSet<HostName>) -> Staged {
        let generation = self.plan.generation;
        let why = format!(
            "interrupted: {} continue to generation {generation}, the other hosts have prepared it and keep their generations; \
             `cobctl switch {generation}` continues with them, `cobctl discard {generation}` discards the preparation",
            list(set, 8)
        );
        Staged::Ended(why, Vec::new())
    }
}

/// Makes these hosts discard a prepared generation.
pub(super) async fn forget(context: &Context, screen: &mut Screen, generation: GenerationNumber, targets: &[Target]) {
    let order = order::Discard { generation, who: None };
    for (target, answer) in order_each(&context.client, targets, &order).await {
        // An older daemon does not know this order; its prepared generation is harmless.
        if let Err(error) = answer.map_err(|e| e.in_a_line()) {
            screen.problem("warning", &format!("{} keeps the prepared generation: {error}", target.stand_in()));
        }
    }
}

/// Sends an order to each host.
async fn order_each<O: Order>(
    client: &crate::client::Client,
    targets: &[Target],
    order: &O,
) -> Vec<(Target, Result<cob_types::api::Done, crate::client::AskError>)> {
    gather::each(client, targets, |client, target| {
        let order = order.clone();
        async move { client.order(&target.endpoint, &order).await }
    })
    .await
}

pub(super) fn told(time: Duration) -> String {
    span(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
