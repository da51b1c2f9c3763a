//! `cobctl stop`, `start` and `restart`: services as operators name them, and the change objects that are meant.
//!
//! The depot has the generation of the hosts, and with it the objects that need a stopped object: they stop and start along
//! with it. The locks of each transition give the order.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::api::{Done, StatusOf, order};
use cob_types::status::{ClusterStatus, HostStatus, Stopped};
use cob_types::{CobId, HostName};
use serde::Serialize;
use serde_with::skip_serializing_none;
use tokio::time::Instant;

use super::objects::{Meant, Objects, cobs_of};
use super::orders::{Answer, Answers};
use super::retry::{Ended, until_ended, why};
use super::{Context, plan};
use crate::args::StopArgs;
use crate::client::{AskError, Client};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::screen::Screen;
use crate::targets::Target;
use crate::words::{clean, count, list};

/// So many change objects are named in one order: a body has 64 KiB at most.
const PART: usize = 100;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Stop,
    Start,
    Restart,
}

impl Operation {
    /// What is the case when it has been done.
    fn done(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Start => "started",
            Self::Restart => "restarted",
        }
    }

    /// What somebody else, or a new generation, has made of the order meanwhile.
    pub(super) fn undone(self, cluster: &ClusterStatus, cobs: &[CobId]) -> Vec<String> {
        let order = |id: &CobId| cobs_of(cluster).find(|cob| cob.id == *id).and_then(|cob| cob.stopped.as_ref());
        let told = |id: &CobId| match (self, order(id)) {
            (Self::Stop, None) => {
                Some(format!("{id} is not stopped any more: an operator has started it, or a new generation is active"))
            }
            (Self::Start | Self::Restart, Some(stopped)) => Some(format!("{id} is {}", clean(&stopped.in_words()))),
            (Self::Stop, Some(_)) | (Self::Start | Self::Restart, None) => None,
        };
        cobs.iter().filter_map(told).collect()
    }
}

/// The JSON of these commands. Fields are only added.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
struct Report {
    /// What is to be done with them.
    operation: &'static str,
    cobs: Vec<order::StopOne>,
    #[serde(flatten)]
    answers: Answers<Done>,
    /// What came of it, if that was waited for.
    ended: Option<Ended>,
    /// Why it has not come about, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why: Vec<String>,
}

pub(super) async fn stop(context: &Context, screen: &mut Screen, args: &StopArgs) -> CommandResult {
    run(context, screen, args, Operation::Stop).await
}

pub(super) async fn restart(context: &Context, screen: &mut Screen, args: &StopArgs) -> CommandResult {
    run(context, screen, args, Operation::Restart).await
}

pub(super) async fn start(context: &Context, screen: &mut Screen, args: &StopArgs) -> CommandResult {
    run(context, screen, args, Operation::Start).await
}

async fn run(context: &Context, screen: &mut Screen, args: &StopArgs, op: Operation) -> CommandResult {
    let deadline = Instant::now() + args.wait.unwrap_or_default();
    let now = gather::cluster_of(&context.client, &context.targets.all, StatusOf::All).await;
    let generation = plan::generation_of_hosts(context, &now)?;
    let all = Objects::of(&generation);
    let only = all.selected(&args.only)?;
    let stopped: BTreeSet<CobId> =
        cobs_of(&now).filter(|cob| cob.stopped.is_some()).map(|cob| cob.id.clone()).collect();
    let besides = if op == Operation::Start { &stopped } else { &BTreeSet::new() };
    let named = all.named(&args.names, only.as_ref(), besides)?;
    let mut unanswered = Vec::new();
    let meant = match op {
        Operation::Stop => all.with_dependents(named),
        Operation::Restart => to_restart(&now, &all, named)?,
        Operation::Start => {
            unanswered = silent(&all, &now, &named);
            to_start(&now, &all, named)?
        }
    };
    if args.plan {
        return plan::of_order(context, screen, &now, &generation, &way(&all, &meant, op)).await;
    }
    if meant.is_empty() && unanswered.is_empty() && !context.json {
        screen.line(&format!("no change object to be {}: no order has stopped these change objects", op.done()))?;
        return Ok(Exit::Yes);
    }
    say_along(context, screen, &meant, op)?;
    let mut answers = give(context, &meant, op).await;
    answers.hosts.extend(unanswered);
    let mut report = Report { operation: op.done(), cobs: ones(&meant), answers, ended: None, why: Vec::new() };
    if !context.json {
        report.answers.hosts.iter().try_for_each(|answer| say(screen, answer))?;
    }
    let refused = |cob: &CobId| report.answers.hosts.iter().any(|a| a.name == cob.host() && a.done.is_none());
    let mut taken: Vec<CobId> = meant.keys().filter(|cob| !refused(cob)).cloned().collect();
    if op == Operation::Restart {
        // Objects that need a restarted one stop with it, and have to be back as well.
        taken =
            all.with_dependents(taken.into_iter().collect()).into_keys().filter(|cob| !stopped.contains(cob)).collect();
    }
    if args.wait.is_some() && !taken.is_empty() {
        let (ended, cluster) = until_ended(context, &taken, deadline).await;
        report.why = op.undone(&cluster, &taken);
        report.ended = Some(if ended == Ended::Settled && !report.why.is_empty() { Ended::Failed } else { ended });
        if ended != Ended::Settled {
            report.why = why(&cluster, &taken);
        }
    }
    if context.json {
        screen.json(&report)?;
    } else {
        report.say_end(screen, op, taken.len())?;
    }
    Ok(report.exit())
}

impl Report {
    fn say_end(&self, screen: &mut Screen, op: Operation, cobs: usize) -> std::io::Result<()> {
        let Some(ended) = self.ended else { return Ok(()) };
        ended.say(screen, &count(cobs, "change object"), op.done(), &self.why)
    }

    fn exit(&self) -> Exit {
        let of_host = |answer: &Answer<Done>| match (&answer.done, answer.reachable) {
            (Some(_), _) => Exit::Yes,
            (None, true) => Exit::No,
            (None, false) => Exit::Unreached,
        };
        let of_end = self.ended.map_or(Exit::Yes, Ended::exit);
        Exit::of_all(self.answers.hosts.iter().map(of_host).chain([of_end]))
    }
}

fn ones(meant: &Meant) -> Vec<order::StopOne> {
    meant.iter().map(|(cob, with)| order::StopOne { cob: cob.clone(), with: with.clone() }).collect()
}

/// Says what is stopped or started besides what was named.
fn say_along(context: &Context, screen: &mut Screen, meant: &Meant, op: Operation) -> std::io::Result<()> {
    let along: Vec<&CobId> = meant.iter().filter(|(_, with)| with.is_some()).map(|(cob, _)| cob).collect();
    if along.is_empty() || context.json {
        return Ok(());
    }
    let why = if op == Operation::Stop { "they need the stopped objects" } else { "they stopped together" };
    screen.line(&format!("{} along, because {why}: {}", op.done(), list(along, 12)))
}

/// Gives each host its part of the order.
async fn give(context: &Context, meant: &Meant, op: Operation) -> Answers<Done> {
    let mut by_host: BTreeMap<HostName, Vec<order::StopOne>> = BTreeMap::new();
    for one in ones(meant) {
        by_host.entry(one.cob.host()).or_default().push(one);
    }
    let mut hosts = Vec::new();
    let mut parts: Vec<(Target, Vec<order::StopOne>)> = Vec::new();
    for (host, cobs) in by_host {
        match context.locate(&host).await {
            Ok(target) => parts.push((target, cobs)),
            Err(error) => hosts.push(Answer::unreached(host, error.in_a_line(), error.hints().join("; "))),
        }
    }
    let asked = gather::each(&context.client, &parts, |client, (target, cobs)| async move {
        let order = order::Stop { cobs, restart: op == Operation::Restart, until_boot: false, who: None };
        let answer = tell(&client, &target, op, order).await;
        Answer::new(&target, answer)
    });
    hosts.extend(asked.await.into_iter().map(|(_, answer)| answer));
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    Answers { hosts }
}

/// Tells a host, in as many parts as the length of a body asks for. The first that is refused is the last.
pub(super) async fn tell(
    client: &Client,
    target: &Target,
    op: Operation,
    whole: order::Stop,
) -> Result<Done, AskError> {
    let (mut answers, all) = (Vec::new(), whole.cobs.len());
    for part in whole.cobs.chunks(PART) {
        let answer: Done = if op == Operation::Start {
            let cobs = part.iter().map(|one| one.cob.clone()).collect();
            client.order(&target.endpoint, &order::Start { cobs, who: None }).await?
        } else {
            let (cobs, restart, until_boot) = (part.to_vec(), whole.restart, whole.until_boot);
            client.order(&target.endpoint, &order::Stop { cobs, restart, until_boot, who: None }).await?
        };
        answers.push(answer);
    }
    let changed = answers.iter().any(|answer| answer.changed);
    Ok(match answers.pop() {
        Some(only) if answers.is_empty() => only,
        Some(_) | None => Done::new(changed, format!("{} told", count(all, "change object"))),
    })
}

fn say(screen: &mut Screen, answer: &Answer<Done>) -> std::io::Result<()> {
    if let Some(done) = &answer.done {
        return screen.line(&format!("{}: {}", answer.name, clean(&done.detail)));
    }
    answer.say_error(screen);
    Ok(())
}

/// The named stopped objects, and the objects that stopped along with them. An object that needs a stopped object stays
/// stopped, if it was not named; the start of a named object is refused then.
fn to_start(now: &ClusterStatus, all: &Objects<'_>, named: BTreeSet<CobId>) -> Result<Meant, Failure> {
    let stopped: BTreeMap<&CobId, &Stopped> =
        cobs_of(now).filter_map(|cob| Some((&cob.id, cob.stopped.as_ref()?))).collect();
    let concerned = all.with_dependents(named.clone());
    let mut meant: Meant = BTreeMap::new();
    for (cob, stop) in &stopped {
        // The object that it stopped with may have started before, when another needed object was still stopped.
        let follows =
            |with: &&CobId| named.contains(*with) || (!stopped.contains_key(*with) && concerned.contains_key(*cob));
        if named.contains(*cob) {
            meant.insert((*cob).clone(), None);
        } else if let Some(with) = stop.with.as_ref().filter(follows) {
            meant.insert((*cob).clone(), Some(with.clone()));
        }
    }
    loop {
        let stays = |on: &CobId| stopped.contains_key(on) && !meant.contains_key(on);
        let waits = |cob: &CobId| all.needs(cob).any(stays);
        let waiting: Vec<CobId> =
            meant.iter().filter(|(cob, with)| with.is_some() && waits(cob)).map(|(cob, _)| cob.clone()).collect();
        if waiting.is_empty() {
            break;
        }
        waiting.iter().for_each(|cob| drop(meant.remove(cob)));
    }
    let mut missing: BTreeSet<&CobId> = BTreeSet::new();
    let mut open: Vec<&CobId> = meant.keys().collect();
    while let Some(cob) = open.pop() {
        let stays = |on: &&CobId| stopped.contains_key(*on) && !meant.contains_key(*on);
        open.extend(all.needs(cob).filter(stays).filter(|on| missing.insert(on)));
    }
    if let Some(first) = missing.first() {
        let by = stopped.get(*first).map(|stop| stop.in_words()).unwrap_or_default();
        let named = missing.iter().map(|cob| cob.as_str()).collect::<Vec<_>>().join(" ");
        let needs = list(&missing, 6);
        return Err(Failure::refused(format!("start refused: the named objects need {needs}, and {first} is {by}"))
            .hint(format!("start these, too: `cobctl start {named} …`")));
    }
    Ok(meant)
}

/// What is restarted: nothing that an order has stopped, and nothing that needs what is stopped.
fn to_restart(now: &ClusterStatus, all: &Objects<'_>, named: BTreeSet<CobId>) -> Result<Meant, Failure> {
    let stopped: BTreeMap<&CobId, &Stopped> =
        cobs_of(now).filter_map(|cob| Some((&cob.id, cob.stopped.as_ref()?))).collect();
    let needed = named.iter().flat_map(|cob| all.needs(cob)).chain(&named);
    let in_the_way: BTreeSet<&CobId> = needed.filter(|cob| stopped.get(cob).is_some_and(|s| !s.restart)).collect();
    if let Some(first) = in_the_way.first() {
        let by = stopped.get(*first).map(|stop| stop.in_words()).unwrap_or_default();
        return Err(Failure::refused(format!("restart refused: {} {by}", list(&in_the_way, 6)))
            .hint("`cobctl start` starts stopped change objects; restart only running change objects"));
    }
    Ok(named.into_iter().map(|cob| (cob, None)).collect())
}

/// Hosts that did not answer and on which a named object, or an object that needs it, may be stopped.
fn silent(all: &Objects<'_>, now: &ClusterStatus, named: &BTreeSet<CobId>) -> Vec<Answer<Done>> {
    let concerned: BTreeSet<HostName> = all.with_dependents(named.clone()).keys().map(CobId::host).collect();
    let silent = now.hosts.iter().filter(|host| !host.reachable && concerned.contains(&host.name));
    let told = |host: &HostStatus| {
        let error = host.error.clone().unwrap_or_else(|| "no answer".to_owned());
        let hint = "stopped services of this host stay stopped: repeat the order when the host is back";
        Answer::unreached(host.name.clone(), error, hint.to_owned())
    };
    silent.map(told).collect()
}

/// The order for its plan.
fn way(all: &Objects<'_>, meant: &Meant, op: Operation) -> plan::Way {
    let cobs: BTreeSet<CobId> = meant.keys().cloned().collect();
    match op {
        Operation::Stop => all.way_down(&cobs, false),
        Operation::Restart => all.way_down(&cobs, true),
        Operation::Start => {
            let up = cobs.iter().filter_map(|id| Some((id.clone(), all.preferred(id)?.clone())));
            plan::Way { to: up.collect(), stops: BTreeMap::new() }
        }
    }
}
