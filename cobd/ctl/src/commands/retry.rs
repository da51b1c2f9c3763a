//! `cobctl retry`: lets failed change objects try again, and shows the result.
//!
//! Each change object is a separate order to its host, in command-line order; hosts get their orders concurrently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::api::{Done, StatusOf, order};
use cob_types::status::{ClusterStatus, CobStatus, HostStatus};
use cob_types::{CobId, GenerationNumber, HostName};
use serde::Serialize;
use serde_with::skip_serializing_none;
use tokio::time::Instant;

use super::explain::first_causes;
use super::orders::say_waits;
use super::{Context, outcomes};
use crate::args::RetryArgs;
use crate::client::AskError;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::identity::Contents;
use crate::live::Live;
use crate::screen::{Paint, Screen};
use crate::targets::Target;
use crate::verdict::{Verdict, is_converged, judge_named, stranded};
use crate::words::{clean, count, list};

/// How often the deadline is checked while no status arrives.
const TICK: Duration = Duration::from_millis(500);
/// How long no progress ends the wait: a status may have been taken just before a transition starts.
const STRANDED_FOR: Duration = Duration::from_secs(1);
/// The time limit of a host's last answer after the deadline.
const LAST: Duration = Duration::from_secs(1);

/// The JSON of `cobctl retry`. New versions only add fields.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
struct Report {
    /// Whether any of the change objects had failed.
    changed: bool,
    /// The effect, in words.
    detail: String,
    cobs: Vec<RetryResult>,
    /// The hosts that could not be asked for failed change objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreached: Vec<HostName>,
    /// The result, if the command waited for it.
    ended: Option<Ended>,
    /// Why the change objects are not settled, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why: Vec<String>,
}

/// The result of the order for a change object.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
struct RetryResult {
    cob: CobId,
    #[serde(flatten)]
    done: Option<Done>,
    error: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
    #[serde(skip)]
    exit: Exit,
    /// Its host has no such change object.
    #[serde(skip)]
    missing: bool,
}

/// The result of all new attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    /// Each change object is in its preferred state.
    Settled,
    /// No change object progresses any more, and some are not in their preferred states.
    Failed,
    /// Out of time.
    Late,
    /// Out of time, and a host of these change objects did not answer.
    Unreached,
}

impl RetryResult {
    fn new(cob: CobId, answer: Result<Done, AskError>) -> Self {
        let exit = Exit::of(&answer);
        let missing = answer.as_ref().is_err_and(AskError::is_not_found);
        let (done, error, hint) = match answer {
            Ok(done) => (Some(done), None, String::new()),
            Err(error) => (None, Some(error.in_a_line()), error.hint()),
        };
        Self { cob, done, error, hint, exit, missing }
    }

    fn is_changed(&self) -> bool {
        self.done.as_ref().is_some_and(|done| done.changed)
    }

    fn say(&self, screen: &mut Screen) -> std::io::Result<()> {
        if let Some(done) = &self.done {
            return screen.line(&clean(&done.detail));
        }
        screen.error(&format!("{}: {}", self.cob, self.error.as_deref().unwrap_or_default()), &self.hint);
        Ok(())
    }
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &RetryArgs) -> CommandResult {
    let deadline = Instant::now() + args.wait.unwrap_or_default();
    let (cobs, unreached) = if args.all { given_up(context).await } else { (named(&args.cobs), Vec::new()) };
    let targets = hosts_of(context, &cobs).await?;
    let mut told = order(context, screen, &targets, &cobs).await;
    for one in told.iter_mut().filter(|one| one.missing) {
        if let Some(unknown) = context.unknown(&one.cob).await {
            one.error = Some(unknown.in_a_line());
            one.hint = unknown.hints().join("; ");
        }
    }
    let changed = told.iter().filter(|one| one.is_changed()).count();
    let detail = match told.as_slice() {
        [] => "no change object has failed".to_owned(),
        [RetryResult { done: Some(done), .. }] => done.detail.clone(),
        _ => format!("{} retried", count(changed, "change object")),
    };
    let mut report = Report { changed: changed > 0, detail, cobs: told, unreached, ended: None, why: Vec::new() };
    if !context.json {
        for one in &report.cobs {
            one.say(screen)?;
        }
        if report.cobs.is_empty() && report.unreached.is_empty() {
            screen.line(&report.detail)?;
        }
    }
    if !report.unreached.is_empty() {
        let silent = list(&report.unreached, 6);
        screen.problem("error", &format!("failed change objects are unknown on {silent}: no answer"));
    }
    let taken: Vec<CobId> = report.cobs.iter().filter(|one| one.done.is_some()).map(|one| one.cob.clone()).collect();
    let mut left = taken.clone();
    if args.wait.is_some() && !taken.is_empty() {
        let (ended, cluster) = until_ended(context, &taken, deadline).await;
        report.ended = Some(ended);
        if ended == Ended::Settled {
            note(context, screen, &cluster, &taken).await;
        } else {
            left.retain(|cob| verdict(&cluster, std::slice::from_ref(cob)) != Verdict::Converged(None));
            report.why = why(&cluster, &taken);
        }
    }
    if context.json {
        screen.json(&report)?;
    } else {
        report.say_end(screen, &left)?;
    }
    Ok(report.exit())
}

impl Report {
    /// Prints the result of the wait, for the settled change objects or for the others.
    fn say_end(&self, screen: &mut Screen, cobs: &[CobId]) -> std::io::Result<()> {
        let Some(ended) = self.ended else { return Ok(()) };
        let cobs = match cobs {
            [cob] => cob.to_string(),
            _ => count(cobs.len(), "change object"),
        };
        ended.say(screen, &cobs, "settled", &self.why)
    }

    fn exit(&self) -> Exit {
        let of_end = self.ended.map_or(Exit::Yes, Ended::exit);
        let silent = if self.unreached.is_empty() { Exit::Yes } else { Exit::Unreached };
        Exit::of_all(self.cobs.iter().map(|one| one.exit).chain([of_end, silent]))
    }
}

impl Ended {
    /// The exit status of a command that has waited for this result.
    pub(super) fn exit(self) -> Exit {
        match self {
            Ended::Settled => Exit::Yes,
            Ended::Failed | Ended::Late => Exit::No,
            Ended::Unreached => Exit::Unreached,
        }
    }

    /// Prints whether the change objects are `done` (`settled`, `stopped`), and the reasons if not.
    pub(super) fn say(self, screen: &mut Screen, cobs: &str, done: &str, why: &[String]) -> std::io::Result<()> {
        let (paint, head) = match self {
            Ended::Settled => (Paint::Good, format!("{cobs} {done}")),
            Ended::Failed => (Paint::Bad, format!("{cobs} not {done}, and no transition can start:")),
            Ended::Late => (Paint::Bad, format!("{cobs} not {done} in time; the order continues:")),
            Ended::Unreached => (Paint::Bad, format!("{cobs} not known to be {done}:")),
        };
        screen.line(&screen.paint(paint, &head))?;
        why.iter().try_for_each(|line| screen.line(&format!("  {line}")))
    }
}

/// Records in the depot the outcome of the repaired switch, unless it was recorded as converged.
async fn note(context: &Context, screen: &mut Screen, cluster: &ClusterStatus, cobs: &[CobId]) {
    let generations: BTreeSet<GenerationNumber> = of_theirs(cluster, cobs).filter_map(|host| host.generation).collect();
    let is_silent = |t: &Target| cluster.hosts.iter().any(|h| !h.reachable && h.name == t.stand_in());
    let (silent, heard): (Vec<Target>, Vec<Target>) = context.targets.all.iter().cloned().partition(is_silent);
    for generation in generations {
        if outcomes::is_to_be_noted(context, generation) {
            outcomes::record(context, screen, &heard, silent.iter().map(Target::stand_in), generation).await;
        }
    }
}

/// Each change object once, in the order of the command line.
fn named(cobs: &[CobId]) -> Vec<CobId> {
    let mut seen = BTreeSet::new();
    cobs.iter().filter(|cob| seen.insert(*cob)).cloned().collect()
}

/// All failed change objects, and the hosts that have not answered.
async fn given_up(context: &Context) -> (Vec<CobId>, Vec<HostName>) {
    let cluster = gather::cluster_of(&context.client, &context.targets.all, StatusOf::Active).await;
    let failed = cluster.hosts.iter().flat_map(|host| &host.cobs).filter(|cob| cob.failed);
    let silent = cluster.hosts.iter().filter(|host| !host.reachable).map(|host| host.name.clone());
    (failed.map(|cob| cob.id.clone()).collect(), silent.collect())
}

/// The daemons of these change objects.
async fn hosts_of(context: &Context, cobs: &[CobId]) -> Result<BTreeMap<HostName, Target>, Failure> {
    let mut targets = BTreeMap::new();
    for host in cobs.iter().map(CobId::host) {
        if !targets.contains_key(&host) {
            targets.insert(host.clone(), context.locate(&host).await?);
        }
    }
    Ok(targets)
}

/// Sends the order to each; returns the answers in the same order.
async fn order(
    context: &Context,
    screen: &mut Screen,
    targets: &BTreeMap<HostName, Target>,
    cobs: &[CobId],
) -> Vec<RetryResult> {
    let client = &context.client;
    let of_host = |host: &HostName| cobs.iter().filter(|cob| cob.host_str() == host.as_str()).cloned().collect();
    let hosts: Vec<(Target, Vec<CobId>)> = targets.iter().map(|(host, t)| (t.clone(), of_host(host))).collect();
    let silent: Arc<Mutex<BTreeSet<HostName>>> = Arc::new(Mutex::new(targets.keys().cloned().collect()));
    let asked = gather::each(client, &hosts, |client, (target, cobs)| {
        let silent = Arc::clone(&silent);
        async move {
            let mut told = Vec::new();
            for cob in cobs {
                let order = order::Retry { cob: cob.clone(), who: None };
                told.push(RetryResult::new(cob, client.order(&target.endpoint, &order).await));
            }
            silent.lock().unwrap_or_else(PoisonError::into_inner).remove(&target.stand_in());
            told
        }
    });
    let mut asked = std::pin::pin!(asked);
    let told = match tokio::time::timeout(client.timeout(), &mut asked).await {
        Ok(told) => told,
        Err(_) => {
            let silent = silent.lock().unwrap_or_else(PoisonError::into_inner).clone();
            say_waits(screen, client, &silent.iter().collect::<Vec<_>>());
            asked.await
        }
    };
    let mut by_cob: BTreeMap<CobId, RetryResult> =
        told.into_iter().flat_map(|(_, told)| told).map(|one| (one.cob.clone(), one)).collect();
    cobs.iter().filter_map(|cob| by_cob.remove(cob)).collect()
}

/// Waits until all are in their preferred states, or no progress is possible. The result is based on fresh answers of
/// all hosts, because a wait may lead to any host.
pub(super) async fn until_ended(context: &Context, cobs: &[CobId], deadline: Instant) -> (Ended, ClusterStatus) {
    let targets = &context.targets.all;
    let mut live = Live::start(&context.client, targets, StatusOf::Active);
    let mut stranded_since: Option<Instant> = None;
    loop {
        tokio::select! {
            () = live.changed() => {}
            () = tokio::time::sleep(TICK.min(deadline.saturating_duration_since(Instant::now()))) => {}
        }
        if Instant::now() >= deadline {
            let fresh = gather::cluster(&context.client.once_more(LAST), targets).await;
            return (at_the_end(&fresh, cobs), fresh);
        }
        if !live.is_complete() {
            continue;
        }
        let watched = live.cluster();
        let theirs: Vec<&HostStatus> = of_theirs(&watched, cobs).collect();
        let is_away = |cob: &CobStatus| cobs.contains(&cob.id) && !is_converged(cob);
        let may_be_converged = theirs.iter().all(|host| host.reachable && !host.cobs.iter().any(is_away));
        stranded_since = stranded(&watched, cobs).then(|| stranded_since.unwrap_or_else(Instant::now));
        if may_be_converged || stranded_since.is_some_and(|since| since.elapsed() >= STRANDED_FOR) {
            let fresh = gather::cluster(&context.client, targets).await;
            match at_the_end(&fresh, cobs) {
                ended @ (Ended::Settled | Ended::Failed) => return (ended, fresh),
                Ended::Late | Ended::Unreached => {}
            }
        }
    }
}

/// The result from these answers, if the wait ends now.
fn at_the_end(fresh: &ClusterStatus, cobs: &[CobId]) -> Ended {
    match verdict(fresh, cobs) {
        Verdict::Converged(_) => Ended::Settled,
        Verdict::Unreached(..) => Ended::Unreached,
        Verdict::Not(_) if stranded(fresh, cobs) => Ended::Failed,
        Verdict::Not(_) => Ended::Late,
    }
}

/// Why they are not settled: errors of their hosts, and the first causes of their waits.
pub(super) fn why(fresh: &ClusterStatus, cobs: &[CobId]) -> Vec<String> {
    let of_hosts = match verdict(fresh, cobs) {
        Verdict::Unreached(hosts, _) => vec![format!("{} could not be reached", list(hosts, 6))],
        Verdict::Not(_) | Verdict::Converged(_) => Vec::new(),
    };
    let away =
        |cob: &&CobId| of_theirs(fresh, cobs).flat_map(|host| &host.cobs).any(|c| c.id == **cob && !is_converged(c));
    of_hosts.into_iter().chain(first_causes(fresh, cobs.iter().filter(away))).collect()
}

/// The verdict on these change objects alone: other hosts may be unreachable.
fn verdict(cluster: &ClusterStatus, cobs: &[CobId]) -> Verdict {
    let hosts = of_theirs(cluster, cobs).cloned().collect();
    judge_named(
        &ClusterStatus { hosts, ..ClusterStatus::default() },
        &BTreeSet::new(),
        &cobs.iter().collect::<Vec<_>>(),
        &Contents::new(),
    )
}

/// The hosts of these change objects.
fn of_theirs<'a>(cluster: &'a ClusterStatus, cobs: &[CobId]) -> impl Iterator<Item = &'a HostStatus> {
    cluster.hosts.iter().filter(|host| cobs.iter().any(|cob| cob.host_str() == host.name.as_str()))
}
