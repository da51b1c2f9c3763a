//! `cobctl outcomes`: the results of switches, from the histories of all hosts.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cob_types::api::StatusOf;
use cob_types::history::{HistoryEntry, HistoryEvent};
use cob_types::outcome::{Ended, HostOutcome, OutcomeOf, SwitchOutcome, of_host, together};
use cob_types::status::{ClusterStatus, HostStatus};
use cob_types::{GenerationNumber, HostName};
use serde::Serialize;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::{Context, leaving};
use crate::args::OutcomesArgs;
use crate::client::{AskError, Client};
use crate::clocks;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::screen::Screen;
use crate::targets::Target;
use crate::words::{clean, count, list, span, utc};

/// How many entries are requested at once.
const PAGE: usize = 10_000;
/// How many of the newest entries are first searched for the start of a switch, and the growth of later searches.
const NEWEST: (usize, usize) = (64, 8);
/// How many of the last recorded outcomes are checked.
const NOTED: usize = 32;
/// The time limit to read the histories after a switch.
const RECORD: Duration = Duration::from_secs(10);

/// The JSON. New versions only add fields.
#[derive(Serialize)]
struct OutcomesJson {
    outcomes: Vec<SwitchOutcome>,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &OutcomesArgs) -> CommandResult {
    let generation = args.generation.map(|named| context.generation(named)).transpose()?;
    let Known { outcomes, silent, heard } = known_to_hosts(context, screen, generation).await?;
    if args.record && !outcomes.is_empty() {
        let depot = context.targets.need_depot("--record needs a depot")?;
        let mut new = 0;
        for outcome in to_be_noted(&outcomes, &depot.newest_outcomes(NOTED), &heard) {
            new += usize::from(depot.add_outcome(&outcome)?);
        }
        screen.say(&match new {
            0 => "the depot already has this outcome".to_owned(),
            1 => "recorded in the depot".to_owned(),
            _ => format!("recorded in the depot: {}", count(new, "switch")),
        });
    }
    let exit = match outcomes.last() {
        _ if !silent.is_empty() => Exit::Unreached,
        Some(newest) if !newest.silent.is_empty() => Exit::Unreached,
        Some(newest) if newest.is_converged() => Exit::Yes,
        Some(_) | None => Exit::No,
    };
    if context.json {
        screen.json(&OutcomesJson { outcomes })?;
        return Ok(exit);
    }
    if outcomes.is_empty() {
        screen.say(&match generation {
            Some(generation) => format!("no switch to generation {generation} is known"),
            None => "no switch is known".to_owned(),
        });
    }
    for outcome in &outcomes {
        for line in lines(outcome) {
            screen.line(&line)?;
        }
    }
    Ok(exit)
}

/// The switches that the hosts know.
pub(super) struct Known {
    /// The outcomes, the oldest first.
    pub(super) outcomes: Vec<SwitchOutcome>,
    /// The hosts of the newest generation without an answer.
    pub(super) silent: BTreeSet<HostName>,
    heard: BTreeSet<HostName>,
}

/// Asks all hosts for their switches, or for the switches to a generation.
pub(super) async fn known_to_hosts(
    context: &Context,
    screen: &mut Screen,
    generation: Option<GenerationNumber>,
) -> Result<Known, Failure> {
    let (mut hosts, silent) = parts(context, screen, &context.targets.all, None).await;
    let left = add_left(context, screen, generation, &mut hosts).await?;
    let heard = hosts.keys().cloned().collect();
    let mut outcomes = together(hosts);
    outcomes.retain(|o| generation.is_none_or(|g| g == o.to));
    for outcome in &mut outcomes {
        outcome.silent.clone_from(&silent);
        let of = generations(outcome.hosts.values(), None);
        outcome.silent.extend(left.iter().filter(|(_, named)| !named.is_disjoint(&of)).map(|(host, _)| host.clone()));
    }
    Ok(Known { outcomes, silent, heard })
}

/// The outcomes from these hosts, and the hosts that have answered: of all switches, or of the last switch to a
/// generation.
async fn gathered(
    context: &Context,
    screen: &mut Screen,
    targets: &[Target],
    only: Option<GenerationNumber>,
) -> (Vec<SwitchOutcome>, BTreeSet<HostName>) {
    let (hosts, silent) = parts(context, screen, targets, only).await;
    let heard = hosts.keys().cloned().collect();
    let mut outcomes = together(hosts);
    outcomes.iter_mut().for_each(|outcome| outcome.silent.clone_from(&silent));
    (outcomes, heard)
}

type Parts = BTreeMap<HostName, Vec<HostOutcome>>;

/// The outcomes on each of these hosts, and the hosts without an answer.
async fn parts(
    context: &Context,
    screen: &mut Screen,
    targets: &[Target],
    only: Option<GenerationNumber>,
) -> (Parts, BTreeSet<HostName>) {
    let answers = gather::each(&context.client, targets, |client, target| async move {
        // A host that does not report its time counts as having the common time.
        let offset = gather::ask(&client, &target, StatusOf::Active).await.ok().and_then(|h| h.clock_offset_ms);
        let history = match only {
            Some(generation) => match told(&client, &target, generation).await?.filter(is_whole) {
                Some(OutcomeOf { host, outcome }) => {
                    return Ok((whose(&target, [&host].into_iter())?, vec![outcome], offset));
                }
                None => since_go(&client, &target, generation).await?,
            },
            None => history(&client, &target).await?,
        };
        let host = whose(&target, history.iter().map(|entry| &entry.host))?;
        Ok::<_, AskError>((host, of_host(&history), offset))
    })
    .await;
    let (mut hosts, mut silent, mut offsets) = (Parts::new(), BTreeSet::new(), BTreeMap::new());
    for (target, answer) in answers {
        let kept =
            answer.map_err(|error| error.in_a_line()).and_then(|(host, outcomes, offset)| match hosts.entry(host) {
                Entry::Vacant(place) => {
                    offsets.extend(offset.map(|offset| (place.key().clone(), offset)));
                    place.insert(outcomes);
                    Ok(())
                }
                Entry::Occupied(other) => Err(format!("two daemons answer as {}", other.key())),
            });
        if let Err(why) = kept {
            silent.insert(target.stand_in());
            screen.problem("warning", &format!("{}: {why}", target.stand_in()));
        }
    }
    for (host, ahead_ns) in clocks::corrections(&offsets) {
        if let Some(parts) = hosts.get_mut(&host) {
            *parts = std::mem::take(parts).into_iter().map(|part| part.by_another_clock(ahead_ns)).collect();
        }
    }
    (hosts, silent)
}

/// The host of these entries: the asked host or, for a bare address, the host that the entries name.
fn whose<'e>(target: &Target, mut hosts: impl Iterator<Item = &'e HostName>) -> Result<HostName, AskError> {
    let Some(host) = target.name.clone().or_else(|| hosts.next().cloned()) else { return Ok(target.stand_in()) };
    match hosts.find(|other| **other != host) {
        None => Ok(host),
        Some(other) => {
            let what = format!("it is the history of {other}, not of {host}");
            Err(AskError::NotUnderstood { endpoint: target.endpoint.clone(), what })
        }
    }
}

/// Adds hosts that the newest generation does not contain any more, and that took part in these switches. Returns the
/// hosts without an answer, each with the generations that name it.
async fn add_left(
    context: &Context,
    screen: &mut Screen,
    to: Option<GenerationNumber>,
    hosts: &mut Parts,
) -> Result<BTreeMap<HostName, BTreeSet<GenerationNumber>>, Failure> {
    let mut known = context.targets.all.clone();
    let mut left = BTreeMap::new();
    loop {
        let of = generations(hosts.values().flatten(), to);
        let named = leaving::named_in(&context.targets, of.iter().copied(), &known)?;
        if named.is_empty() {
            return Ok(left);
        }
        known.extend(named.iter().cloned());
        let (answer, silent): (Vec<_>, Vec<_>) =
            leaving::ask(context, &named, StatusOf::Active).await.into_iter().partition(|(_, h)| h.reachable);
        let silent =
            without_drained(silent, &gather::cluster_of(&context.client, &context.targets.all, StatusOf::Active).await);
        let answer: Vec<Target> = answer.into_iter().map(|(target, _)| target).collect();
        let (more, lost) = parts(context, screen, &answer, None).await;
        hosts.extend(more);
        for (_, host) in &silent {
            let why = host.error.as_deref().unwrap_or_default();
            screen.problem("warning", &format!("{} (departed or departing): {why}", host.name));
        }
        for host in silent.into_iter().map(|(_, host)| host.name).chain(lost) {
            let names = |g: &GenerationNumber| leaving::names(&context.targets, *g, &host);
            left.insert(host.clone(), of.iter().copied().filter(names).collect());
        }
    }
}

/// Without the unreachable hosts that an answering host knows as drained: these may be switched off.
fn without_drained(silent: Vec<(Target, HostStatus)>, cluster: &ClusterStatus) -> Vec<(Target, HostStatus)> {
    let is_drained = |host: &HostName| cluster.hosts.iter().any(|other| other.drained.contains_key(host));
    silent.into_iter().filter(|(_, host)| !is_drained(&host.name)).collect()
}

/// The generations before and after these switches, or only of the switches to `to`.
fn generations<'o>(
    parts: impl Iterator<Item = &'o HostOutcome>,
    to: Option<GenerationNumber>,
) -> BTreeSet<GenerationNumber> {
    let asked = parts.filter(|part| to.is_none_or(|to| part.to == to));
    asked.flat_map(|part| [part.from, Some(part.to)]).flatten().collect()
}

async fn history(client: &Client, target: &Target) -> Result<Vec<HistoryEntry>, AskError> {
    let mut all: Vec<HistoryEntry> = Vec::new();
    loop {
        let since = all.last().map_or(0, |e| e.seq + 1);
        let path = format!("/v1/history?since={since}&limit={PAGE}");
        let page: Vec<HistoryEntry> = client.lines(&target.endpoint, &path).await?;
        // An answer without progress would be requested again and again.
        let ends = page.len() < PAGE || page.last().is_none_or(|e| e.seq < since);
        all.extend(page);
        if ends {
            return Ok(all);
        }
    }
}

/// The outcome that the daemon itself has counted in this incarnation: the history of a large switch is long.
async fn told(client: &Client, target: &Target, to: GenerationNumber) -> Result<Option<OutcomeOf>, AskError> {
    match client.get::<OutcomeOf>(&target.endpoint, &format!("/v1/outcome?to={to}")).await {
        Ok(told) => Ok(Some(told)),
        // The daemon was restarted since, or does not know the question.
        Err(AskError::Refused { status: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Older daemons do not distinguish a rollback that belongs to the switch; the history does.
fn is_whole(told: &OutcomeOf) -> bool {
    told.outcome.later.last().is_none_or(|later| later.ended != Ended::RolledBack)
}

/// A host's history since its last `go` to a generation; all of it without such an entry.
async fn since_go(client: &Client, target: &Target, to: GenerationNumber) -> Result<Vec<HistoryEntry>, AskError> {
    let mut limit = NEWEST.0;
    while limit < PAGE {
        let path = format!("/v1/history?newest=true&limit={limit}");
        let mut newest: Vec<HistoryEntry> = match client.lines(&target.endpoint, &path).await {
            Ok(newest) => newest,
            // A daemon that does not know `newest`.
            Err(AskError::Refused { status: 400, .. }) => break,
            Err(error) => return Err(error),
        };
        if newest.len() < limit {
            return Ok(newest);
        }
        if let Some(go) = newest.iter().rposition(|e| e.happened() == HistoryEvent::Go(Some(to))) {
            return Ok(newest.split_off(go));
        }
        limit *= NEWEST.1;
    }
    history(client, target).await
}

/// Whether the outcome of the last switch to this generation must be recorded although no work was left: it is missing,
/// or recorded as not converged.
pub(super) fn is_to_be_noted(context: &Context, generation: GenerationNumber) -> bool {
    let Ok(Some(depot)) = context.targets.open_depot() else { return false };
    let noted = depot.newest_outcomes(NOTED).into_iter().find(|noted| noted.to == generation);
    noted.is_none_or(|noted| !noted.is_converged())
}

/// Writes the outcome of an awaited switch into the depot, if it is writable. The outcomes of the hosts in `silent` are
/// not known. Earlier outcomes that were recorded as unfinished, or without hosts that answer now, may have changed
/// without a waiting command: these are updated too.
pub(super) async fn record(
    context: &Context,
    screen: &mut Screen,
    targets: &[Target],
    silent: impl Iterator<Item = HostName>,
    generation: GenerationNumber,
) {
    let Ok(Some(depot)) = context.targets.open_depot() else { return };
    let silent: BTreeSet<HostName> = silent.collect();
    let noted = depot.newest_outcomes(NOTED);
    let open = open(&noted, targets);
    let until = Instant::now() + RECORD;
    let mut gather = async |only| {
        let mut told = timeout_at(until, gathered(context, screen, targets, only)).await?;
        told.0.iter_mut().for_each(|outcome| outcome.silent.extend(silent.iter().cloned()));
        Ok::<_, Elapsed>(told)
    };
    let Ok((mut outcomes, heard)) = gather(Some(generation)).await else {
        screen.problem(
            "note",
            "the outcome is not stored, because the histories are long: use `cobctl outcomes --record`",
        );
        return;
    };
    outcomes.retain(|outcome| outcome.to == generation);
    let newest = outcomes.pop();
    // Only if there is time.
    let (all, all_heard) = if open.is_empty() { Default::default() } else { gather(None).await.unwrap_or_default() };
    let others = open.iter().filter_map(|noted| all.iter().find(|now| now.is_same_as(noted)).zip(Some(*noted)));
    let others = others.filter(|(now, _)| newest.as_ref().is_none_or(|newest| !newest.is_same_as(now)));
    let others: Vec<SwitchOutcome> = others.filter_map(|(now, noted)| known_since(now, noted, &all_heard)).collect();
    let newest = newest.and_then(|newest| known(&newest, &noted, &heard));
    for outcome in others.iter().chain(&newest) {
        if let Err(error) = depot.add_outcome(outcome) {
            let why = error.in_a_line();
            screen.problem(
                "note",
                &format!("the outcome is not stored in the depot, `cobctl outcomes` still shows it: {why}"),
            );
        }
    }
}

/// The last recorded outcomes, the oldest first, that were unfinished, or lack hosts that are among these targets.
fn open<'o>(noted: &'o [SwitchOutcome], targets: &[Target]) -> Vec<&'o SwitchOutcome> {
    // A switch that continued after its recording was recorded again.
    let is_last = |(at, one): &(usize, &SwitchOutcome)| !noted[..*at].iter().any(|later| later.is_same_as(one));
    let answers = |host: &HostName| targets.iter().any(|target| target.stand_in() == *host);
    let is_open = |noted: &&SwitchOutcome| {
        matches!(noted.ended, Ended::Failed | Ended::UnderWay) || noted.silent.iter().any(answers)
    };
    noted.iter().enumerate().filter(is_last).map(|(_, noted)| noted).filter(is_open).rev().collect()
}

/// The outcomes to record from all that hosts report: the newest, and updates of the last recorded outcomes.
fn to_be_noted(outcomes: &[SwitchOutcome], noted: &[SwitchOutcome], heard: &BTreeSet<HostName>) -> Vec<SwitchOutcome> {
    let Some((newest, older)) = outcomes.split_last() else { return Vec::new() };
    let before = |now: &SwitchOutcome| noted.iter().find(|noted| noted.is_same_as(now));
    let older = older.iter().filter_map(|now| known_since(now, before(now)?, heard));
    older.chain(known(newest, noted, heard)).collect()
}

/// The present outcome of a switch, completed by its recorded outcome; `None`: no more than the recorded outcome.
fn known(now: &SwitchOutcome, noted: &[SwitchOutcome], heard: &BTreeSet<HostName>) -> Option<SwitchOutcome> {
    let Some(before) = noted.iter().find(|noted| noted.is_same_as(now)) else { return Some(now.clone()) };
    let known = now.clone().with_noted(before, heard);
    // A history that is pruned at its start contains less.
    let is_told = |host: &HostName| known.hosts.contains_key(host) || known.silent.contains(host);
    (known != *before && before.hosts.keys().all(is_told)).then_some(known)
}

/// The same for a switch without a waiting command: its later end, or hosts that report now.
fn known_since(now: &SwitchOutcome, before: &SwitchOutcome, heard: &BTreeSet<HostName>) -> Option<SwitchOutcome> {
    let known = known(now, std::slice::from_ref(before), heard)?;
    let was_named = |host: &HostName| before.silent.contains(host) || before.hosts.contains_key(host);
    let is_new = known.ended != before.ended || known.silent != before.silent;
    (is_new && known.silent.iter().all(was_named)).then_some(known)
}

fn lines(outcome: &SwitchOutcome) -> Vec<String> {
    let by = if outcome.by.is_empty() { String::new() } else { format!(", by {}", clean(&outcome.by)) };
    let took = outcome.ended_ns.map(|end| format!(" after {}", span(end.saturating_sub(outcome.began_ns))));
    let took = took.unwrap_or_default();
    let began = utc(outcome.began_ns);
    let back = outcome.back_from().map_or(String::new(), |from| format!(" (back from {from})"));
    let mut lines = vec![format!("generation {}{back}: {}{took}; {began}{by}", outcome.to, outcome.in_words())];
    for (host, part) in &outcome.hosts {
        let back = if part.back_from().is_some() { "back " } else { "" };
        let from = part.from.map_or("no generation".to_owned(), |g| g.to_string());
        let moves: u32 = part.cobs.values().map(|c| c.moves).sum();
        let mut line =
            format!("  {host}: {back}from {from}, {}, {}", part.ended.word(), count(moves as usize, "transition"));
        let failed: Vec<_> = part.cobs.iter().filter(|(_, c)| c.failed).collect();
        if let Some((first, why)) = failed.first() {
            let names = list(failed.iter().map(|(cob, _)| *cob), 3);
            line.push_str(&format!("; failed: {names} ({first}: {})", clean(&why.error)));
        }
        lines.push(line);
    }
    lines
}
