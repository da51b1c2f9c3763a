//! The output of a switch: progress, and the result.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cob_types::api::Done;
use cob_types::status::{ClusterStatus, HostStatus, Phase};
use cob_types::{CobId, GenerationNumber, HostName};
use serde::Serialize;
use tokio::time::Instant;

use super::Plan;
use super::windows::Waits;
use crate::client::AskError;
use crate::commands::Context;
use crate::commands::explain::first_causes;
use crate::failure::{CommandResult, Exit, Failure};
use crate::screen::{Paint, Screen};
use crate::targets::Target;
use crate::verdict::{Expected, Verdict, is_converged, judge, unreached};
use crate::words::{clean, count, list, list_and, span};

/// The least time between two lines of progress on a pipe.
const SPARSE: Duration = Duration::from_secs(2);
/// The same if only the time has changed.
const STILL: Duration = Duration::from_secs(30);
/// The most unfinished hosts named at the end.
const UNFINISHED: usize = 5;

/// The most conflicts that are listed.
const CONFLICTS: usize = 8;

/// How a switch ended.
#[derive(Debug)]
pub(super) enum Ended {
    Converged,
    /// These change objects have failed or are deadlocked, and no other work is left.
    Failed(Vec<CobId>),
    /// A host has refused it.
    Refused,
    /// Another generation replaces it.
    Replaced((HostName, GenerationNumber)),
    /// An operator has cancelled it on this host.
    Cancelled(HostName),
    /// A host has rolled it back, and its followers too: with a description.
    Withdrawn(Vec<String>),
    /// The user has interrupted the wait. The switch continues.
    Interrupted,
    /// Out of time.
    Late,
    /// All hosts have converged except these, which are fenced.
    Fenced(Vec<HostName>),
    /// Out of time, and these could not be reached.
    Unreached(Vec<HostName>),
}

/// The consequence of a host's absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It is removed when it receives the generation.
    Leaves,
    /// The others continue, and it follows.
    Follows,
    /// The prepared generation is discarded.
    CalledOff,
}

/// The JSON of `cobctl switch`. New versions only add fields.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    generation: GenerationNumber,
    /// Whether every host of the generation answered that it is active and converged.
    converged: bool,
    /// The hosts that have prepared.
    prepared: Vec<HostName>,
    /// Pairs of reachable hosts without a link so far, by name.
    unlinked: Vec<Unlinked>,
    /// File trees in which the generation conflicts with users' edits, and the files.
    conflicts: BTreeMap<CobId, String>,
    /// Hosts that may have further conflicts, and why.
    unseen: BTreeMap<HostName, String>,
    /// The hosts that accepted the `go`.
    pub(super) gone: Vec<HostName>,
    /// The hosts that took it and wait for maintenance windows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) window_waits: Waits,
    /// The hosts that could not be reached.
    absent: Vec<HostName>,
    /// The hosts that refused, and why.
    pub(super) refusals: Vec<RefusedBy>,
    /// The removed hosts that refused the generation: their services continue.
    left_behind: Vec<RefusedBy>,
    hosts: Vec<HostLine>,
    /// Why it has not converged, in words.
    why: Vec<String>,
    /// Hosts that an earlier order had left paused, and whose failure this order tolerates.
    #[serde(skip)]
    pub(super) held_before: BTreeSet<HostName>,
}

#[derive(Debug, Serialize)]
pub(super) struct RefusedBy {
    host: HostName,
    error: String,
}

/// A missing link between two hosts, as reported by the first.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Unlinked {
    host: HostName,
    peer: HostName,
    why: String,
}

#[derive(Debug, Serialize)]
struct HostLine {
    name: HostName,
    reachable: bool,
    generation: Option<GenerationNumber>,
    converged: bool,
}

impl Report {
    pub(super) fn new(generation: GenerationNumber) -> Self {
        Self { generation, ..Self::default() }
    }

    /// Records the answer of a host that is ready.
    pub(super) fn prepared(&mut self, host: &HostName, done: Done) {
        let with = |(peer, why)| Unlinked { host: host.clone(), peer, why };
        self.unlinked.extend(done.unlinked.into_iter().map(with));
        self.conflicts.extend(done.conflicts);
        self.unseen.extend((!done.unseen.is_empty()).then(|| (host.clone(), done.unseen)));
        self.prepared.push(host.clone());
    }

    /// Reports missing links between reachable hosts before the switch starts.
    pub(super) fn links(&mut self, screen: &mut Screen) {
        self.unlinked = pairs(std::mem::take(&mut self.unlinked), &self.absent);
        if self.unlinked.is_empty() {
            return;
        }
        let of = |u: &Unlinked| {
            let why = if u.why.is_empty() { String::new() } else { format!(" ({}: {})", u.host, clean(&u.why)) };
            format!("{} and {}{why}", u.host, u.peer)
        };
        let between = list(self.unlinked.iter().map(of), 3);
        screen.problem("warning", &format!("no link yet between {between}"));
        screen.problem("hint", "requests between these hosts wait for the link; see `cobctl trust doctor`");
    }

    /// Reports conflicts with users' edits before the switch starts. Returns whether these end the switch.
    pub(super) fn excludes(&self, screen: &mut Screen, despite_conflicts: bool, only_prepare: bool) -> bool {
        let (first, generation) = (self.conflicts.keys().next(), self.generation);
        let ends = !despite_conflicts && (first.is_some() || !self.unseen.is_empty());
        let label = if ends && !only_prepare { "error" } else { "warning" };
        for (cob, what) in self.conflicts.iter().take(CONFLICTS) {
            screen.problem(label, &format!("{cob} would be in conflict: {}", clean(what)));
        }
        if self.conflicts.len() > CONFLICTS {
            screen.say(&format!("and {} more", count(self.conflicts.len() - CONFLICTS, "file tree")));
        }
        for (host, why) in &self.unseen {
            screen.problem(label, &format!("{host}: there may be conflicts: {}", clean(why)));
        }
        match first {
            Some(first) if ends => screen.problem(
                "hint",
                &format!(
                    "`cobctl diff {first} --generation {generation}` shows both; decide with `cobctl resolve {first} --generation \
                     {generation}` (--theirs, --ours, --edit), then repeat the command; or use --despite-conflicts"
                ),
            ),
            None if ends => screen.problem("hint", "repeat the command; or use --despite-conflicts"),
            Some(_) | None => {}
        }
        ends
    }

    /// Reports that the generation is only prepared: as ordered, or because of conflicts.
    pub(super) fn prepared_only(&self, screen: &mut Screen) -> Exit {
        let hosts = count(self.prepared.len(), "host");
        screen.say(&format!("generation {} is prepared on {hosts}, no host has changed", self.generation));
        match (self.conflicts.is_empty() && self.unseen.is_empty(), self.absent.is_empty()) {
            (false, _) => Exit::No,
            (true, false) => Exit::Unreached,
            (true, true) => Exit::Yes,
        }
    }

    /// Records a host that could not be reached.
    pub(super) fn absent(&mut self, screen: &mut Screen, target: &Target, then: Then, error: &AskError) {
        let name = target.stand_in();
        let then = match then {
            Then::Leaves => "; the host departs with this generation, and its services run until it receives the order",
            Then::Follows => "; the other hosts continue; it will follow when its daemon is back",
            Then::CalledOff => "",
        };
        let label = screen.paint(Paint::Bad, "not reachable:");
        screen.say(&format!("{label} {name}: {}{then}", error.in_a_line()));
        self.absent.push(name);
    }

    /// Records a host that has refused.
    pub(super) fn refused(&mut self, screen: &mut Screen, target: &Target, leaves: bool, error: &AskError) {
        let name = target.stand_in();
        if leaves {
            screen.problem("warning", &format!("{name}, which departs, refuses: {}", error.in_a_line()));
            self.left_behind.push(RefusedBy { host: name, error: error.in_a_line() });
            return;
        }
        screen.error(&format!("{name} refuses: {}", error.in_a_line()), &error.hint());
        self.refusals.push(RefusedBy { host: name, error: error.in_a_line() });
    }

    /// Whether a host has accepted an order of this switch.
    pub(super) fn has_reached(&self, host: &HostName) -> bool {
        self.prepared.contains(host) || self.has_taken(host)
    }

    /// Whether a host has taken the `go`.
    pub(super) fn has_taken(&self, host: &HostName) -> bool {
        self.gone.contains(host) || self.window_waits.contains_key(host)
    }

    /// Whether a host of the generation has refused.
    pub(super) fn is_refused(&self) -> bool {
        !self.refusals.is_empty()
    }

    /// Reports the hosts that the command now waits for, and the limit.
    pub(super) fn waits(screen: &mut Screen, absent: &[Target], limit: Duration) {
        if !absent.is_empty() {
            let away = list(absent.iter().map(Target::stand_in), 6);
            let limit = span(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
            screen.say(&format!("waiting for {away}, at most {limit} (--wait), with retries at growing intervals"));
        }
    }

    /// An absent host has accepted the `go`.
    pub(super) fn came(&mut self, screen: &mut Screen, target: &Target) {
        let name = target.stand_in();
        screen.say(&format!("{name} is back and follows the switch"));
        self.absent.retain(|h| *h != name);
        self.gone.push(name);
    }

    /// The result of a switch that succeeded on the hosts of the generation.
    pub(super) fn exit(&self) -> Exit {
        if self.left_behind.is_empty() { Exit::Yes } else { Exit::No }
    }

    /// The result after `go`, without a wait for the end.
    pub(super) fn ordered(&self, context: &Context, screen: &mut Screen, absent: &[Target]) -> CommandResult {
        let exit = if absent.is_empty() { self.exit() } else { Exit::Unreached };
        if context.json {
            screen.json(self)?;
            return Ok(exit);
        }
        let generation = self.generation;
        let away = list(absent.iter().map(Target::stand_in), 6);
        let line = match (self.gone.len(), absent.is_empty()) {
            (0, false) => format!(
                "generation {generation}: not started, because {away} could not be reached; repeat the command later, or \
                 with --wait"
            ),
            (0, true) => format!("generation {generation}: no further host has to switch"),
            (n, true) => {
                format!(
                    "generation {generation}: switch started on {}; follow it with `cobctl watch`",
                    count(n, "host")
                )
            }
            (n, false) => format!(
                "generation {generation}: switch started on {}, not on {away}; follow it with `cobctl watch`",
                count(n, "host")
            ),
        };
        screen.line(&line)?;
        Ok(exit)
    }

    /// Reports a switch that was discarded, or was refused on the way.
    pub(super) fn finish(
        &mut self,
        context: &Context,
        screen: &mut Screen,
        cluster: &ClusterStatus,
        expected: &Expected,
    ) -> Result<(), Failure> {
        self.take(cluster);
        self.why.extend(self.refusals.iter().map(|r| format!("{} refuses: {}", r.host, r.error)));
        self.converged = matches!(judge(cluster, expected), Verdict::Converged(_));
        if context.json {
            screen.json(self)?;
        }
        Ok(())
    }

    /// Reports why a stage has ended the switch before all hosts had started.
    pub(super) fn stopped(
        &mut self,
        context: &Context,
        screen: &mut Screen,
        cluster: &ClusterStatus,
        (why, hints): (String, Vec<String>),
    ) -> CommandResult {
        self.take(cluster);
        self.why.push(why);
        if context.json {
            screen.json(self)?;
        } else {
            let head = format!("generation {} was not switched to on all hosts:", self.generation);
            let head = screen.paint(Paint::Bad, &head);
            screen.line(&head)?;
            for line in &self.why {
                screen.line(&format!("  {line}"))?;
            }
        }
        hints.iter().for_each(|hint| screen.problem("hint", hint));
        Ok(Exit::No)
    }

    /// Reports how the switch has ended, and why.
    pub(super) fn ended(
        &mut self,
        context: &Context,
        screen: &mut Screen,
        plan: &Plan,
        cluster: &ClusterStatus,
        ended: &Ended,
    ) -> CommandResult {
        self.take(cluster);
        let generation = plan.generation;
        let (head, exit) = match ended {
            Ended::Converged => {
                self.converged = true;
                let cobs = sum(cluster.hosts.iter().map(HostStatus::cob_count));
                let (hosts, cobs) = (count(plan.hosts.len(), "host"), count(cobs, "change object"));
                let goes_on = |r: &RefusedBy| {
                    format!("{}, which departs, has refused the switch: its services continue to run", r.host)
                };
                self.why.extend(self.left_behind.iter().map(goes_on));
                let exit = self.exit();
                (format!("generation {generation} is active and converged: {hosts}, {cobs}"), exit)
            }
            Ended::Failed(causes) if goes_back(cluster, generation) => {
                self.why.extend(cluster.hosts.iter().flat_map(crate::words::switch));
                self.why.extend(first_causes(cluster, causes.iter()));
                (format!("generation {generation} was rolled back, and the rollback has failed:"), Exit::No)
            }
            Ended::Failed(causes) => {
                self.why.extend(first_causes(cluster, causes.iter()));
                (format!("generation {generation} has not converged, and no transition can start:"), Exit::No)
            }
            Ended::Refused => {
                self.why.extend(self.refusals.iter().map(|r| format!("{} refuses: {}", r.host, r.error)));
                (format!("generation {generation} was refused:"), Exit::No)
            }
            Ended::Replaced((host, newer)) => {
                self.why.push(format!("{host} switches to generation {newer}"));
                (format!("generation {generation} was replaced before it converged:"), Exit::No)
            }
            Ended::Cancelled(host) => {
                self.why.push(format!(
                    "it was cancelled on {host}: `cobctl resume` continues it, `cobctl history` names the operator"
                ));
                self.why.extend(unfinished(plan, cluster));
                (format!("generation {generation} was cancelled before it converged:"), Exit::No)
            }
            Ended::Withdrawn(lines) => {
                self.why.extend(lines.iter().cloned());
                self.why.extend(do_not_answer(cluster));
                (format!("generation {generation} was rolled back:"), Exit::No)
            }
            Ended::Interrupted => {
                self.why.push(format!("`cobctl switch {generation} --wait` waits again, `cobctl cancel` cancels it"));
                (format!("interrupted: the switch to generation {generation} continues"), Exit::No)
            }
            Ended::Late => {
                self.why.extend(do_not_answer(cluster));
                self.why.extend(unfinished(plan, cluster));
                (format!("generation {generation} has not converged in time; the switch continues:"), Exit::No)
            }
            Ended::Fenced(hosts) => {
                let (hosts, are) = (list(hosts, 6), if hosts.len() == 1 { "is" } else { "are" });
                self.why.push(format!("{hosts} {are} fenced and did not answer; all other hosts have converged"));
                (format!("generation {generation} has not converged on all hosts:"), Exit::Unreached)
            }
            Ended::Unreached(hosts) => {
                self.why.push(format!("{} could not be reached", list(hosts, 6)));
                self.why.extend(unfinished(plan, cluster));
                (format!("unknown whether generation {generation} has converged:"), Exit::Unreached)
            }
        };
        if context.json {
            screen.json(self)?;
            return Ok(exit);
        }
        let paint = if self.converged { Paint::Good } else { Paint::Bad };
        let head = screen.paint(paint, &head);
        screen.line(&head)?;
        for line in &self.why {
            screen.line(&format!("  {line}"))?;
        }
        if let Ended::Failed(causes) = ended
            && let Some(first) = causes.first()
        {
            let leads_back = !goes_back(cluster, generation) && cluster.hosts.iter().any(|h| h.came_from.is_some());
            let or = if leads_back { "; `cobctl rollback` rolls back" } else { "" };
            let mut all = cluster.hosts.iter().flat_map(|host| &host.cobs);
            let prints = all.any(|cob| cob.id == *first && cob.is_service());
            let logs = if prints { format!("; `cobctl logs {first}` shows its output") } else { String::new() };
            screen.problem("hint", &format!("`cobctl explain {first}` shows the next step{logs}{or}"));
        }
        Ok(exit)
    }

    fn take(&mut self, cluster: &ClusterStatus) {
        self.hosts = cluster
            .hosts
            .iter()
            .map(|h| HostLine {
                name: h.name.clone(),
                reachable: h.reachable,
                generation: h.generation,
                converged: h.converged,
            })
            .collect();
    }
}

/// Whether a host has rolled back this generation.
fn goes_back(cluster: &ClusterStatus, generation: GenerationNumber) -> bool {
    cluster.hosts.iter().any(|host| host.switch.as_ref().is_some_and(|switch| switch.left == Some(generation)))
}

/// The hosts that do not answer, if any.
fn do_not_answer(cluster: &ClusterStatus) -> Option<String> {
    let silent = unreached(cluster);
    let do_not = if silent.len() == 1 { "does not" } else { "do not" };
    (!silent.is_empty()).then(|| format!("{} {do_not} answer now", list(silent, 6)))
}

/// The unmet conditions, and the first causes for some change objects.
fn unfinished(plan: &Plan, cluster: &ClusterStatus) -> Vec<String> {
    let mut lines = match plan.verdict(cluster) {
        Verdict::Converged(_) => Vec::new(),
        Verdict::Not(reasons) | Verdict::Unreached(_, reasons) => reasons,
    };
    let more = lines.len().saturating_sub(UNFINISHED);
    lines.truncate(UNFINISHED);
    if more > 0 {
        lines.push(count(more, "more host"));
    }
    let away = cluster.hosts.iter().flat_map(|h| &h.cobs).filter(|c| !is_converged(c)).map(|c| &c.id);
    lines.extend(first_causes(cluster, away));
    lines
}

/// The times since which hosts have not answered.
#[derive(Debug, Default)]
pub(super) struct Silent(BTreeMap<HostName, Instant>);

impl Silent {
    /// Adds hosts that have not answered since `began`.
    fn since(&mut self, hosts: impl Iterator<Item = HostName>, began: Instant) {
        self.0.extend(hosts.map(|host| (host, began)));
    }

    /// Updates the hosts from a new status.
    fn note(&mut self, cluster: &ClusterStatus, now: Instant) {
        let silent = unreached(cluster);
        self.0.retain(|host, _| silent.contains(host));
        for host in silent {
            self.0.entry(host).or_insert(now);
        }
    }

    /// `; waiting for n2 (no answer for 12 s) and n3 (no answer for 3.2 s); the wait ends in 9 min 48 s`
    fn in_words(&self, now: Instant, deadline: Instant) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let span = |d: Duration| span(d.as_secs() * 1_000_000_000);
        let one = |(host, since): (&HostName, &Instant)| format!("{host} (no answer for {})", span(now - *since));
        let hosts = list(self.0.iter().map(one), 3);
        format!("; waiting for {hosts}; the wait ends in {}", span(deadline.saturating_duration_since(now)))
    }
}

/// The line that shows the progress.
#[derive(Debug, Default)]
pub(super) struct Progress {
    said: String,
    at: Option<Instant>,
    over: bool,
    silent: Silent,
}

impl Progress {
    /// Adds hosts that have not answered since `began`.
    pub(super) fn absent<'a>(&mut self, targets: impl Iterator<Item = &'a Target>, began: Instant) {
        self.silent.since(targets.map(Target::stand_in), began);
    }

    pub(super) fn show(&mut self, screen: &mut Screen, plan: &Plan, cluster: &ClusterStatus, deadline: Instant) {
        let now = Instant::now();
        self.silent.note(cluster, now);
        let line = progress(plan, cluster);
        let told = format!("{line}{}", self.silent.in_words(now, deadline));
        // A changed duration is no news, but on a pipe a periodic sign of life is due.
        let news = format!("{line}; {}", list(self.silent.0.keys(), usize::MAX));
        if screen.is_err_live()
            || self.at.is_none_or(|at| at.elapsed() >= if news == self.said { STILL } else { SPARSE })
        {
            self.put(screen, &told, news);
        }
    }

    /// Shows a line in place of the last line; on a pipe, at limited frequency.
    pub(super) fn line(&mut self, screen: &mut Screen, line: String) {
        if screen.is_err_live() || line != self.said && self.at.is_none_or(|at| at.elapsed() >= SPARSE) {
            self.put(screen, &line.clone(), line);
        }
    }

    fn put(&mut self, screen: &mut Screen, told: &str, said: String) {
        if screen.is_err_live() {
            screen.say_over(told);
            self.over = true;
        } else {
            screen.say(told);
            self.at = Some(Instant::now());
            self.said = said;
        }
    }

    pub(super) fn clear(&self, screen: &mut Screen) {
        if self.over {
            screen.say_over("");
        }
    }
}

/// Saturates, because hosts may report absurd numbers.
fn sum(numbers: impl Iterator<Item = u64>) -> usize {
    usize::try_from(numbers.fold(0, u64::saturating_add)).unwrap_or(usize::MAX)
}

fn progress(plan: &Plan, cluster: &ClusterStatus) -> String {
    let there = |h: &&HostStatus| h.reachable && h.generation == Some(plan.generation) && h.goal().is_none();
    let known = sum(cluster.hosts.iter().filter(there).map(HostStatus::cob_count));
    let total = sum(plan.expected.cobs.values().copied()).max(known);
    let idle = sum(cluster.hosts.iter().filter(there).map(|h| h.idle));
    let listed = cluster.hosts.iter().filter(there).flat_map(|h| &h.cobs).filter(|c| is_converged(c)).count();
    let settled = idle.saturating_add(listed);
    let stays = |h: &&HostStatus| plan.hosts.iter().any(|t| t.name.as_ref() == Some(&h.name));
    let active = cluster.hosts.iter().filter(there).filter(stays).count();
    let mut line = format!(
        "generation {}: active on {active} of {}, {settled} of {} settled",
        plan.generation,
        count(plan.hosts.len(), "host"),
        count(total, "change object"),
    );
    let cobs = || cluster.hosts.iter().flat_map(|h| &h.cobs);
    let mut part = |word: &str, ids: Vec<&CobId>, unnamed: usize| {
        if !ids.is_empty() || unnamed > 0 {
            line.push_str(&format!("; {word} {}", list_and(ids, 3, unnamed)));
        }
    };
    let waiting = sum(cluster.hosts.iter().map(|h| h.waiting));
    part("moving", cobs().filter(|c| c.phase == Phase::Moving).map(|c| &c.id).collect(), 0);
    part("failed", cobs().filter(|c| c.failed).map(|c| &c.id).collect(), 0);
    let in_phase = |phase| cobs().filter(|c| c.phase == phase && !c.failed).map(|c| &c.id).collect::<Vec<_>>();
    let (checking, waits) = (in_phase(Phase::Checking), in_phase(Phase::Waiting));
    // The unlisted change objects count like the listed.
    let unlisted = if waits.is_empty() && !checking.is_empty() { (waiting, 0) } else { (0, waiting) };
    part("checking", checking, unlisted.0);
    part("waiting", waits, unlisted.1);
    line
}

/// Each pair once, with its known reason, without unreachable hosts.
fn pairs(mut said: Vec<Unlinked>, absent: &[HostName]) -> Vec<Unlinked> {
    said.retain(|u| !absent.contains(&u.peer));
    // The host with the lower name connects, and so knows why this fails.
    let key = |u: &Unlinked| (u.host.clone().min(u.peer.clone()), u.host.clone().max(u.peer.clone()), u.host > u.peer);
    said.sort_by_key(key);
    said.dedup_by(|next, kept| (&next.host, &next.peer) == (&kept.peer, &kept.host));
    said
}

#[cfg(test)]
mod tests {
    use cob_types::api::SwitchHow;

    use super::*;
    use crate::testing::{cluster, failed, host, lock, moving, settled, waiting};

    #[test]
    fn a_pair_without_a_link_is_reported_once_with_the_known_reason() {
        let name = |text: &str| HostName::new(text).expect("a name");
        let without =
            |host: &str, peer: &str, why: &str| Unlinked { host: name(host), peer: name(peer), why: why.to_owned() };
        let said = vec![
            without("n3", "n1", "it has not called yet"),
            without("n2", "n9", "connection refused"),
            without("n1", "n3", "connection refused"),
            without("n3", "n2", ""),
        ];
        let left = vec![without("n1", "n3", "connection refused"), without("n3", "n2", "")];
        assert_eq!(pairs(said, &[name("n9")]), left);
    }

    fn plan() -> Plan {
        let hosts: Vec<HostName> = ["n1", "n2"].iter().map(|n| HostName::new(n).expect("a name")).collect();
        let target = |name: &HostName| Target {
            name: Some(name.clone()),
            endpoint: "tcp://127.0.0.1:1".parse().expect("an address"),
        };
        Plan {
            generation: GenerationNumber(7),
            hosts: hosts.iter().map(target).collect(),
            leaving: Vec::new(),
            how: SwitchHow::default(),
            policy: None,
            expected: Expected {
                generation: Some(GenerationNumber(7)),
                cobs: hosts.into_iter().map(|h| (h, 2)).collect(),
                ..Expected::default()
            },
            newest: GenerationNumber(6),
            had_ended: false,
            left: None,
            manifest: None,
        }
    }

    #[test]
    fn the_progress_shows_active_and_waiting_change_objects() {
        let n1 = host("n1", 7, vec![settled("n1/ip", "up"), moving("n1/db", "down", "up")]);
        let n2 = host("n2", 7, vec![waiting("n2/app", "down", "up", vec![lock("n1/db", "up")])]);
        let gone = crate::gather::unreachable(HostName::new("n3").expect("a name"), "off".to_owned());
        let (cluster, now) = (cluster(vec![n1, n2, gone]), Instant::now());
        let mut silent = Silent::default();
        silent.note(&cluster, now);
        insta::assert_snapshot!(progress(&plan(), &cluster) + &silent.in_words(now, now + Duration::from_secs(600)));
    }

    #[test]
    fn the_progress_names_silent_hosts_and_the_remaining_time() {
        let gone = |name: &str| crate::gather::unreachable(HostName::new(name).expect("a name"), "off".to_owned());
        let began = Instant::now();
        let after = |s: u64| began + Duration::from_secs(s);
        let mut silent = Silent::default();
        silent.note(&cluster(vec![gone("n2"), gone("n3"), host("n1", 7, vec![])]), began);
        silent.note(&cluster(vec![gone("n2"), host("n3", 7, vec![])]), after(9));
        silent.note(&cluster(vec![gone("n2"), gone("n3")]), after(10));
        assert_eq!(
            silent.in_words(after(72), after(600)),
            "; waiting for n2 (no answer for 72 s) and n3 (no answer for 62 s); the wait ends in 8 min 48 s"
        );
        silent.note(&cluster(vec![host("n2", 7, vec![]), host("n3", 7, vec![])]), after(73));
        assert_eq!(silent.in_words(after(73), after(600)), "");
    }

    #[test]
    fn waiting_change_objects_without_a_listing_are_counted() {
        let cobs = vec![moving("n1/ip", "down", "up"), waiting("n1/db", "down", "up", vec![lock("n1/ip", "up")])];
        let line = progress(&plan(), &cluster(vec![HostStatus { waiting: 1, idle: 2, ..host("n1", 7, cobs) }]));
        assert!(line.ends_with("2 of 5 change objects settled; moving n1/ip; waiting n1/db and 1 more"), "{line}");
        // Directly after a start no change object waits yet.
        let looked_at = cob_types::status::CobStatus { phase: Phase::Checking, state: None, ..settled("n1/db", "up") };
        let host = HostStatus { waiting: 3, idle: 1, ..host("n1", 7, vec![looked_at]) };
        let line = progress(&plan(), &cluster(vec![host]));
        assert!(line.ends_with("1 of 5 change objects settled; checking n1/db and 3 more"), "{line}");
    }

    #[test]
    fn a_common_cause_of_many_waits_is_reported_once() {
        let mut cobs = vec![failed("n1/db", "down", "up")];
        cobs.extend((0..50).map(|n| waiting(&format!("n1/a{n}"), "down", "up", vec![lock("n1/db", "up")])));
        let cluster = cluster(vec![host("n1", 7, cobs)]);
        let away: Vec<CobId> = cluster.hosts[0].cobs.iter().map(|c| c.id.clone()).collect();
        assert_eq!(
            first_causes(&cluster, away.iter()),
            ["n1/db up failed after 3 attempts to move from down to up (exit status 1; last line: port 5432 is taken)"]
        );
    }
}
