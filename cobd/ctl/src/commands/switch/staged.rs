//! `go` in stages: first to a canary set and, after a gate, to the rest; or to so many hosts at a time.
//!
//! ```text
//! prepared everywhere --> go: the canary set --> converged, healthy for the gate's time, check says yes --> go: the rest
//!                                   |                       |
//!                                Ctrl-C: stays as it is     no: held, or taken back; the rest forgets it
//! ```
//!
//! Nothing of this is known to the hosts but whom a `go` is for: when this program ends half-way, those that have
//! heard it have the generation, the others have it prepared, and the same order once more goes on from there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cob_types::history::HistoryEntry;
use cob_types::status::{ClusterStatus, CobStatus, HostStatus, Phase};
use cob_types::switch::OnFailure;
use cob_types::{BlobHash, CobId, GenerationNumber, HostName};
use cobd::web::{CancelOrder, GenerationOrder, StatusOf, SwitchHow};
use tokio::time::Instant;

use super::prepare::{self, Go, Gone};
use super::report::{Progress, Report};
use super::{LOOK_AGAIN, Plan};
use crate::args::{OnFailureArg, SwitchArgs};
use crate::commands::Context;
use crate::commands::explain::first_causes;
use crate::coupling::Coupling;
use crate::failure::Failure;
use crate::gather;
use crate::live::Live;
use crate::screen::Screen;
use crate::targets::Target;
use crate::verdict::{Expected, Verdict, hopeless, judge};
use crate::words::{clean, count, list, span};

/// How long a stage may take to converge when no wait is given.
const PATIENCE: Duration = Duration::from_secs(600);
/// As in a wait: how long nothing but what has given up must be left.
const HOPELESS_FOR: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(500);
/// So much of what happened during a gate is told.
const TOLD: usize = 6;

/// In which stages `go` is said.
pub(super) enum Stages {
    /// To these first.
    Canary(BTreeSet<HostName>),
    /// To so many hosts at a time: groups of those that go together.
    Waves(usize, Vec<BTreeSet<HostName>>),
}

/// What came of the stages.
pub(super) enum Staged {
    /// These are left, and are told with nobody left to wait for.
    Rest(Vec<Target>),
    /// It has ended before all were told, and why: in words.
    Ended(String),
}

/// How a stage ended.
enum Settled {
    Yes,
    No(Vec<String>),
    Interrupted,
}

/// Finds the stages, if any were asked for; refuses what would be none.
pub(super) fn find(
    context: &Context,
    screen: &mut Screen,
    args: &SwitchArgs,
    plan: &Plan,
    first: &ClusterStatus,
) -> Result<Option<Stages>, Failure> {
    if args.canary.is_empty() && args.limit_hosts.is_none() {
        return Ok(None);
    }
    if let (Some(gate), Some(wait)) = (args.gate, args.wait)
        && gate >= wait
    {
        return Err(Failure::usage(anyhow::anyhow!("--gate {} would outlast --wait {}", told(gate), told(wait)))
            .hint("--wait is the longest that anything may take: give it more than the gate's time"));
    }
    let all: BTreeSet<HostName> = plan.hosts.iter().map(Target::stand_in).collect();
    let coupling = coupling(context, plan, first)?;
    if let Some(limit) = args.limit_hosts {
        let groups = coupling.groups(&all);
        for group in groups.iter().filter(|g| g.len() > limit.get()) {
            screen.say(&format!(
                "{} go together though they are more than {limit}: they need each other",
                list(group, 8)
            ));
        }
        return Ok(Some(Stages::Waves(limit.get(), groups)));
    }
    let mut set: BTreeSet<HostName> = args.canary.iter().cloned().collect();
    if let Some(unknown) = set.iter().find(|h| !all.contains(*h)) {
        return Err(Failure::usage(anyhow::anyhow!(
            "the canary {unknown} is no host of generation {}",
            plan.generation
        ))
        .hint(format!("its hosts are {}", list(&all, 8))));
    }
    let mut reasons = Vec::new();
    for added in coupling.closure(&set).into_iter().filter(|a| all.contains(&a.host)) {
        reasons.push(added.sentence());
        set.insert(added.host);
    }
    if set == all {
        let why = if reasons.is_empty() { "all were named".to_owned() } else { reasons.join("; ") };
        return Err(Failure::refused(anyhow::anyhow!(
            "the canary set is every host, so nothing would come after it: {why}"
        ))
        .hint("name other hosts, or switch without --canary"));
    }
    reasons.iter().for_each(|reason| screen.say(reason));
    Ok(Some(Stages::Canary(set)))
}

/// What ties hosts together between what is active and the generation that they go to.
fn coupling(context: &Context, plan: &Plan, first: &ClusterStatus) -> Result<Coupling, Failure> {
    let Some(depot) = context.targets.open_depot()? else {
        return Err(Failure::usage(anyhow::anyhow!("which hosts need each other stands in the depot alone"))
            .hint("name it with --depot or COB_DEPOT"));
    };
    let new = depot.whole(plan.generation)?;
    let active: BTreeSet<Option<GenerationNumber>> =
        first.hosts.iter().filter(|h| h.reachable).map(|h| h.generation).collect();
    let mut coupling = Coupling::default();
    for generation in active.into_iter().filter(|g| *g != Some(plan.generation)) {
        let old = generation.map(|g| depot.whole(g)).transpose()?;
        coupling.extend(Coupling::between(old.as_ref(), &new, &at_rest(first)));
    }
    Ok(coupling)
}

/// Who is where it should be. Of a host of which not all is known, or that is on its way somewhere, nobody is taken to be.
fn at_rest(first: &ClusterStatus) -> impl Fn(&CobId) -> bool {
    let is_known = |h: &&HostStatus| h.reachable && h.goal().is_none() && h.waiting == 0;
    let hosts: BTreeSet<HostName> = first.hosts.iter().filter(is_known).map(|h| h.name.clone()).collect();
    let rests = |c: &&CobStatus| c.phase == Phase::Settled && !c.failed && c.state.as_ref() == Some(&c.preferred);
    let cobs = first.hosts.iter().flat_map(|h| &h.cobs).filter(|c| !rests(c));
    let astray: BTreeSet<CobId> = cobs.map(|c| c.id.clone()).collect();
    move |id| hosts.contains(id.host_str()) && !astray.contains(id)
}

/// A switch whose stages are gone through.
pub(super) struct Run<'a> {
    pub(super) context: &'a Context,
    pub(super) args: &'a SwitchArgs,
    pub(super) plan: &'a Plan,
    pub(super) first: &'a ClusterStatus,
    /// Who is prepared.
    pub(super) ready: &'a [Target],
}

impl Run<'_> {
    /// Says `go` stage by stage, but for the last one.
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
            return Staged::Ended(format!("called off, nothing has changed: {} can't be told to go", list(missing, 6)));
        }
        let only = set.iter().cloned().collect();
        if let Err(why) = self.tell(screen, report, set, only).await {
            return self.give_up(screen, set, vec![why]).await;
        }
        let gate = self.args.gate.unwrap_or_default();
        let gate_words = if gate.is_zero() { String::new() } else { format!(", then {} of good health", told(gate)) };
        let go = if set.len() == 1 { "goes" } else { "go" };
        screen.say(&format!("canary: {} {go} first; until all of it has converged{gate_words}", list(set, 8)));
        let since = match self.settle(screen, set).await {
            Settled::Yes => Instant::now(),
            Settled::No(why) => return self.give_up(screen, set, why).await,
            Settled::Interrupted => return self.interrupted(set),
        };
        match self.stay_healthy(screen, set, since + gate).await {
            Settled::Yes => {}
            Settled::No(why) => return self.give_up(screen, set, why).await,
            Settled::Interrupted => return self.interrupted(set),
        }
        match self.check(screen, set).await {
            Settled::Yes => {}
            Settled::No(why) => return self.give_up(screen, set, why).await,
            Settled::Interrupted => return self.interrupted(set),
        }
        screen.say("canary: converged and healthy; the others go");
        self.widen(screen, set).await;
        Staged::Rest(self.ready.iter().filter(|t| !set.contains(&t.stand_in())).cloned().collect())
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
        let mut told: BTreeSet<HostName> = BTreeSet::new();
        while let Some(group) = left.pop() {
            let mut wave = group;
            while left.last().is_some_and(|next| wave.len() + next.len() <= limit) {
                wave.extend(left.pop().unwrap_or_default());
            }
            if left.is_empty() {
                self.widen(screen, &told).await;
                return Staged::Rest(self.targets(&wave));
            }
            told.extend(wave.iter().cloned());
            let only = told.iter().cloned().collect();
            screen.say(&format!(
                "go: {}; {} to follow",
                list(&wave, 8),
                count(left.iter().map(BTreeSet::len).sum::<usize>(), "host")
            ));
            if let Err(why) = self.tell(screen, report, &wave, only).await {
                return self.give_up(screen, &told, vec![why]).await;
            }
            match self.settle(screen, &told).await {
                Settled::Yes => {}
                Settled::No(why) => return self.give_up(screen, &told, why).await,
                Settled::Interrupted => return self.interrupted(&told),
            }
        }
        Staged::Rest(Vec::new())
    }

    /// The word as it was ordered, without a set: from here on those who have heard it tell others too, on the terms of
    /// all, and follow them.
    async fn widen(&self, screen: &mut Screen, told: &BTreeSet<HostName>) {
        let open = Go { seen: self.plan.generation.max(self.plan.newest), ..self.plan.go_in_full() };
        for (target, answer) in prepare::go(&self.context.client, &self.targets(told), &open, None).await {
            if let Gone::Absent(error) | Gone::Refused(error) = answer {
                let (host, why) = (target.stand_in(), error.in_a_line());
                screen.problem("warning", &format!("{host} holds by itself whatever the others do, until told: {why}"));
                let generation = self.plan.generation;
                screen.problem(
                    "hint",
                    &format!("`cobctl switch {generation}` once more tells it, with the same options"),
                );
            }
        }
    }

    fn is_ready(&self, host: &HostName) -> bool {
        self.ready.iter().any(|t| t.stand_in() == *host)
    }

    /// It has the generation already.
    fn is_told(&self, host: &HostName) -> bool {
        let has = |h: &HostStatus| h.reachable && h.newest() == Some(self.plan.generation);
        self.first.hosts.iter().any(|h| h.name == *host && has(h))
    }

    fn targets(&self, set: &BTreeSet<HostName>) -> Vec<Target> {
        self.plan.hosts.iter().filter(|t| set.contains(&t.stand_in())).cloned().collect()
    }

    /// Says `go` to some hosts, for some alone.
    async fn tell(
        &self,
        screen: &mut Screen,
        report: &mut Report,
        set: &BTreeSet<HostName>,
        only: Vec<HostName>,
    ) -> Result<(), String> {
        let targets: Vec<Target> = self.targets(set).into_iter().filter(|t| self.is_ready(&t.stand_in())).collect();
        // What becomes of a stage that fails is decided here.
        let how = SwitchHow { on_failure: Some(OnFailure::Hold), alone: true, ..self.plan.how };
        let go = Go { how, only, ..Go::to_all(self.plan) };
        let mut wrong = Vec::new();
        for (target, answer) in prepare::go(&self.context.client, &targets, &go, None).await {
            match answer {
                Gone::Yes => report.gone.push(target.stand_in()),
                Gone::Absent(error) => {
                    report.absent(screen, &target, false, &error);
                    wrong.push(target.stand_in());
                }
                Gone::Refused(error) => {
                    report.refused(screen, &target, false, &error);
                    wrong.push(target.stand_in());
                }
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("{} did not take the go", list(&wrong, 6))) }
    }

    /// Waits until these have converged.
    async fn settle(&self, screen: &mut Screen, set: &BTreeSet<HostName>) -> Settled {
        let deadline = Instant::now() + self.args.wait.unwrap_or(PATIENCE);
        let part = Part::of(self.plan, set);
        let mut live = Live::start(&self.context.client, &self.targets(set), StatusOf::All);
        let mut progress = Progress::default();
        let mut hopeless_since: Option<(Vec<CobId>, Instant)> = None;
        let settled = loop {
            tokio::select! {
                () = live.changed() => {}
                () = tokio::time::sleep(TICK) => {}
                _ = tokio::signal::ctrl_c() => break Settled::Interrupted,
            }
            let seen = live.cluster();
            if !live.is_complete() && Instant::now() < deadline {
                continue;
            }
            progress.show(screen, &part.plan, &seen, deadline);
            if matches!(judge(&seen, &part.plan.expected), Verdict::Converged(_)) {
                let fresh = gather::cluster(&self.context.client, &part.plan.hosts).await;
                if matches!(judge(&fresh, &part.plan.expected), Verdict::Converged(_)) {
                    break Settled::Yes;
                }
            }
            hopeless_since = match (hopeless(&seen), hopeless_since) {
                (Some(now), Some((before, since))) if now == before => Some((now, since)),
                (Some(now), _) => Some((now, Instant::now())),
                (None, _) => None,
            };
            if let Some((causes, since)) = &hopeless_since
                && since.elapsed() >= HOPELESS_FOR
            {
                break Settled::No(first_causes(&seen, causes.iter()));
            }
            if let Some(other) = elsewhere(&seen, self.plan.generation) {
                break Settled::No(vec![other]);
            }
            if Instant::now() >= deadline {
                break Settled::No(unsettled(&judge(&seen, &part.plan.expected)));
            }
        };
        progress.clear(screen);
        settled
    }

    /// Watches until the gate's time is over: everybody stays converged, and nobody changes anything by hand.
    async fn stay_healthy(&self, screen: &mut Screen, set: &BTreeSet<HostName>, until: Instant) -> Settled {
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
                break if happened.is_empty() { Settled::Yes } else { Settled::No(happened) };
            }
            tokio::select! {
                () = live.changed() => {}
                () = tokio::time::sleep(TICK.min(until - now)) => {}
                _ = tokio::signal::ctrl_c() => break Settled::Interrupted,
            }
            if !live.is_complete() {
                continue;
            }
            if let Some(why) = unhealthy(&live.cluster(), &part.plan.expected) {
                break Settled::No(why);
            }
            let left = until.saturating_duration_since(Instant::now());
            progress.line(screen, format!("gate: {} healthy, {} to go", list(set, 6), told(left)));
        };
        progress.clear(screen);
        settled
    }

    /// Where the histories of these hosts end.
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

    /// What was no good since then, also what was put right again before anybody saw it.
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
        gather::each(hosts, |target| {
            let (client, path) = (self.context.client.clone(), path(&target));
            async move {
                let told = client.lines(&target.endpoint, &path).await;
                told.map_err(|e| format!("the history of {} can't be read: {}", target.stand_in(), e.in_a_line()))
            }
        })
        .await
    }

    /// Runs the operator's own check.
    async fn check(&self, screen: &mut Screen, set: &BTreeSet<HostName>) -> Settled {
        let Some(command) = &self.args.check else { return Settled::Yes };
        screen.say(&format!("gate: running {command:?}"));
        let hosts: Vec<&str> = set.iter().map(HostName::as_str).collect();
        let mut shell = tokio::process::Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(std::process::Stdio::null()).kill_on_drop(true);
        shell.env("COB_GENERATION", self.plan.generation.to_string()).env("COB_CANARY", hosts.join(" "));
        // What it prints is for people; the answer on standard output is this program's own.
        shell.stdout(std::io::stderr());
        let limit = self.args.wait.unwrap_or(PATIENCE);
        tokio::select! {
            status = tokio::time::timeout(limit, shell.status()) => match status {
                Ok(Ok(status)) if status.success() => Settled::Yes,
                Ok(Ok(status)) => Settled::No(vec![format!("the check {command:?} says no ({status})")]),
                Ok(Err(error)) => Settled::No(vec![format!("the check {command:?} can't be run: {error}")]),
                Err(_) => Settled::No(vec![format!("the check {command:?} was not done after {}", told(limit))]),
            },
            _ = tokio::signal::ctrl_c() => Settled::Interrupted,
        }
    }

    /// The stage has failed: what was told to go holds, or goes back; the others forget what they have prepared.
    async fn give_up(&self, screen: &mut Screen, set: &BTreeSet<HostName>, mut why: Vec<String>) -> Staged {
        self.forget(screen, set).await;
        let policy = self.args.on_failure.unwrap_or(OnFailureArg::Hold);
        let cancel = CancelOrder {
            generation: Some(self.plan.generation),
            on_failure: Some(OnFailureArg::Hold.into()),
            who: self.context.client.who(),
        };
        let client = &self.context.client;
        for (target, answer) in order_each(client, &self.targets(set), "/v1/cancel", cancel).await {
            if let Err(error) = answer {
                why.push(format!("{} could not be told to stop: {}", target.stand_in(), error.in_a_line()));
            }
        }
        let then = match policy {
            OnFailureArg::Hold => {
                let hold = if set.len() == 1 { "holds where it is" } else { "hold where they are" };
                format!("{} {hold}, the others stay as they were", list(set, 8))
            }
            OnFailureArg::Rollback => self.take_back(screen, set, &mut why).await,
        };
        Staged::Ended(format!("{}; {then}", why.join("; ")))
    }

    /// Sends hosts back to what each had before; with --wait, until they are there.
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
            let how = SwitchHow { alone: true, ..SwitchHow::default() };
            let seen = self.plan.generation.max(self.plan.newest);
            let go = Go { generation, manifest, how, only, seen };
            for (target, answer) in prepare::go(&self.context.client, &targets, &go, None).await {
                match answer {
                    Gone::Yes => {
                        back.push(format!("{} to {generation}", target.stand_in()));
                        on_their_way.push((target, generation));
                    }
                    Gone::Absent(error) | Gone::Refused(error) => {
                        why.push(format!("{} does not go back and holds: {}", target.stand_in(), error.in_a_line()));
                    }
                }
            }
        }
        if back.is_empty() {
            return "nobody goes back".to_owned();
        }
        let back = back.join(", ");
        let Some(limit) = self.args.wait else { return format!("going back: {back}") };
        screen.say(&format!("canary: going back: {back}"));
        match self.until_back(&on_their_way, Instant::now() + limit).await {
            Ok(()) => format!("back again: {back}"),
            Err(not) => format!("going back: {back}, and not there yet: {}", not.join("; ")),
        }
    }

    /// Waits until each of these has converged in its generation.
    ///
    /// # Errors
    /// Why not, host by host, when nothing gets on any more, or the time is over.
    async fn until_back(&self, hosts: &[(Target, GenerationNumber)], deadline: Instant) -> Result<(), Vec<String>> {
        let targets: Vec<Target> = hosts.iter().map(|(target, _)| target.clone()).collect();
        let mut stuck_since: Option<Instant> = None;
        loop {
            let now = gather::cluster_of(&self.context.client, &targets, StatusOf::Restless).await;
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
            // A look may have come a moment before something moves.
            stuck_since = hopeless(&now).map(|_| stuck_since.unwrap_or_else(Instant::now));
            let is_stuck = stuck_since.is_some_and(|since| since.elapsed() >= HOPELESS_FOR);
            // Whom others wait for in the end is told by all of them.
            if Instant::now() >= deadline
                || is_stuck && hopeless(&gather::cluster(&self.context.client, &targets).await).is_some()
            {
                return Err(not);
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                _ = tokio::signal::ctrl_c() => return Err(vec!["interrupted; it goes on by itself".to_owned()]),
            }
        }
    }

    /// Those that were prepared and not told to go forget it.
    async fn forget(&self, screen: &mut Screen, told_to_go: &BTreeSet<HostName>) {
        let others: Vec<Target> = self.ready.iter().filter(|t| !told_to_go.contains(&t.stand_in())).cloned().collect();
        forget(self.context, screen, self.plan.generation, &others).await;
    }

    fn interrupted(&self, set: &BTreeSet<HostName>) -> Staged {
        let generation = self.plan.generation;
        Staged::Ended(format!(
            "interrupted: {} go to generation {generation} by themselves, the others have it prepared and stay as they were; \
             `cobctl switch {generation}` goes on with them, `cobctl call-off {generation}` has them forget it",
            list(set, 8)
        ))
    }
}

/// These forget a generation that they have prepared.
pub(super) async fn forget(context: &Context, screen: &mut Screen, generation: GenerationNumber, targets: &[Target]) {
    let order = GenerationOrder { generation, who: context.client.who() };
    for (target, answer) in order_each(&context.client, targets, "/v1/call-off", order).await {
        // An older daemon does not know the word; what it has prepared does no harm.
        if let Err(error) = answer.map_err(|e| e.in_a_line()) {
            screen.problem("warning", &format!("{} keeps what it has prepared: {error}", target.stand_in()));
        }
    }
}

/// Gives an order to each.
async fn order_each<B: serde::Serialize + Clone + Send + Sync + 'static>(
    client: &crate::client::Client,
    targets: &[Target],
    path: &'static str,
    order: B,
) -> Vec<(Target, Result<cobd::web::Done, crate::client::AskError>)> {
    gather::each(targets, |target| {
        let (client, order) = (client.clone(), order.clone());
        async move { client.order(&target.endpoint, path, &order).await }
    })
    .await
}

/// The plan as far as it concerns a part of the hosts.
struct Part {
    plan: Plan,
}

impl Part {
    fn of(plan: &Plan, set: &BTreeSet<HostName>) -> Self {
        let hosts = plan.hosts.iter().filter(|t| set.contains(&t.stand_in())).cloned().collect();
        let mut expected = Expected { generation: Some(plan.generation), ..plan.expected.clone() };
        expected.cobs.retain(|host, _| set.contains(host));
        let plan = Plan {
            generation: plan.generation,
            hosts,
            leaving: Vec::new(),
            expected,
            how: plan.how,
            policy: plan.policy,
            newest: plan.newest,
            had_ended: false,
            left: None,
            manifest: plan.manifest,
        };
        Self { plan }
    }
}

/// What an entry of a history tells that a healthy host does not have.
fn no_good(entry: &HistoryEntry) -> Option<String> {
    let cob = entry.cob.as_ref()?;
    let detail = clean(&entry.detail);
    match entry.event.as_str() {
        "drift" => Some(format!("others have changed {cob} during the gate")),
        "failed" => Some(format!("{cob} has given up during the gate: {detail}")),
        "end" if entry.ok == Some(false) => Some(format!("an action of {cob} has failed during the gate: {detail}")),
        _ => None,
    }
}

/// What is wrong with hosts that had converged.
fn unhealthy(cluster: &ClusterStatus, expected: &Expected) -> Option<Vec<String>> {
    let drift = |c: &&cob_types::status::CobStatus| !c.drift.is_empty();
    let drifted: Vec<_> = cluster.hosts.iter().flat_map(|h| &h.cobs).filter(drift).map(|c| &c.id).collect();
    if !drifted.is_empty() {
        return Some(vec![format!("others have changed {}", list(drifted, 6))]);
    }
    // One check that can't tell is none of the three that make it fail; the last one before the others go is.
    let unclear = |c: &&cob_types::status::CobStatus| c.action.as_ref().is_some_and(|a| a.to.is_none());
    let unclear: Vec<_> = cluster.hosts.iter().flat_map(|h| &h.cobs).filter(unclear).map(|c| &c.id).collect();
    if !unclear.is_empty() {
        return Some(vec![format!("the state of {} can't be told: the last check has failed", list(unclear, 6))]);
    }
    match judge(cluster, expected) {
        Verdict::Converged(_) => None,
        verdict @ (Verdict::Not(_) | Verdict::Unreached(..)) => Some(unsettled(&verdict)),
    }
}

fn unsettled(verdict: &Verdict) -> Vec<String> {
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

/// Somebody else has sent one of them to a newer generation, or has cancelled the switch.
fn elsewhere(cluster: &ClusterStatus, generation: GenerationNumber) -> Option<String> {
    cluster.hosts.iter().find_map(|h| {
        let newest = h.goal().or(h.generation)?;
        if newest > generation {
            return Some(format!("{} was sent to generation {newest} meanwhile", h.name));
        }
        h.held.map(|held| format!("the switch to generation {held} was cancelled on {}", h.name))
    })
}

fn told(time: Duration) -> String {
    span(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
