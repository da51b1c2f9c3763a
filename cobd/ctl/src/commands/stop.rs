//! `cobctl stop`, `start` and `restart`: services as operators name them, and the change objects that are meant.
//!
//! Who needs what is stopped is found in the generation that the hosts have, in the depot: it is stopped along, and started
//! along. The daemons see to the order, by the locks that every transition takes.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::status::{ClusterStatus, CobStatus, HostStatus, Stopped};
use cob_types::{Cob, CobId, Generation, HostName, Kind, StateName};
use cobd::web::{Done, StartOrder, StatusOf, StopOne, StopOrder};
use cobgen::model::did_you_mean_or_list;
use serde::Serialize;
use tokio::time::Instant;

use super::orders::{Answer, Answers};
use super::retry::{Ended, until_ended, why};
use super::{Context, plan};
use crate::args::StopArgs;
use crate::client::{AskError, Client};
use crate::failure::{Exit, Failure};
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
    fn path(self) -> &'static str {
        if self == Self::Start { "/v1/start" } else { "/v1/stop" }
    }

    /// What is the case when it has been done.
    fn done(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Start => "started",
            Self::Restart => "restarted",
        }
    }
}

impl Operation {
    /// What somebody else, or a new generation, has made of the order meanwhile.
    pub(super) fn undone(self, cluster: &ClusterStatus, cobs: &[CobId]) -> Vec<String> {
        let order = |id: &CobId| cobs_of(cluster).find(|cob| cob.id == *id).and_then(|cob| cob.stopped.as_ref());
        let told = |id: &CobId| match (self, order(id)) {
            (Self::Stop, None) => {
                Some(format!("{id} is not stopped any more: somebody has started it, or a new generation came"))
            }
            (Self::Start | Self::Restart, Some(stopped)) => Some(format!("{id} is {}", clean(&stopped.in_words()))),
            (Self::Stop, Some(_)) | (Self::Start | Self::Restart, None) => None,
        };
        cobs.iter().filter_map(told).collect()
    }
}

/// A change object that is meant, and the one on account of which it is, if it was not named.
type Meant = BTreeMap<CobId, Option<CobId>>;

/// The JSON of these commands. Fields are only added.
#[derive(Debug, Serialize)]
struct Report {
    /// What is to be done with them.
    operation: &'static str,
    cobs: Vec<StopOne>,
    #[serde(flatten)]
    answers: Answers<Done>,
    /// What came of it, if that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
    /// Why it has not come about, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why: Vec<String>,
}

pub(super) async fn stop(context: &Context, screen: &mut Screen, args: &StopArgs) -> Result<Exit, Failure> {
    run(context, screen, args, Operation::Stop).await
}

pub(super) async fn restart(context: &Context, screen: &mut Screen, args: &StopArgs) -> Result<Exit, Failure> {
    run(context, screen, args, Operation::Restart).await
}

pub(super) async fn start(context: &Context, screen: &mut Screen, args: &StopArgs) -> Result<Exit, Failure> {
    run(context, screen, args, Operation::Start).await
}

async fn run(context: &Context, screen: &mut Screen, args: &StopArgs, op: Operation) -> Result<Exit, Failure> {
    let deadline = Instant::now() + args.wait.unwrap_or_default();
    let now = gather::cluster_of(&context.client, &context.targets.all, StatusOf::All).await;
    let generation = plan::generation_of_hosts(context, &now)?;
    let all = Objects::of(&generation);
    let named = all.named(&args.names, &args.hosts)?;
    let mut silent = Vec::new();
    let meant = match op {
        Operation::Stop => all.with_dependents(named),
        Operation::Restart => to_restart(&now, &all, named)?,
        Operation::Start => {
            silent = all.silent(&now, &named);
            to_start(&now, &all, named)?
        }
    };
    if args.plan {
        return plan::of_order(context, screen, &now, &generation, &all.ways(&meant, op)).await;
    }
    if meant.is_empty() && silent.is_empty() && !context.json {
        screen.line(&format!("nothing to be {}: none of them was stopped by an order", op.done()))?;
        return Ok(Exit::Yes);
    }
    say_along(context, screen, &meant, op)?;
    let mut answers = give(context, &meant, op).await;
    answers.hosts.extend(silent);
    let mut report = Report { operation: op.done(), cobs: ones(&meant), answers, ended: None, why: Vec::new() };
    if !context.json {
        report.answers.hosts.iter().try_for_each(|answer| say(screen, answer))?;
    }
    let refused = |cob: &CobId| report.answers.hosts.iter().any(|a| a.name == cob.host() && a.done.is_none());
    let taken: Vec<CobId> = meant.keys().filter(|cob| !refused(cob)).cloned().collect();
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

fn ones(meant: &Meant) -> Vec<StopOne> {
    meant.iter().map(|(cob, with)| StopOne { cob: cob.clone(), with: with.clone() }).collect()
}

/// Says what is stopped or started besides what was named.
fn say_along(context: &Context, screen: &mut Screen, meant: &Meant, op: Operation) -> std::io::Result<()> {
    let along: Vec<&CobId> = meant.iter().filter(|(_, with)| with.is_some()).map(|(cob, _)| cob).collect();
    if along.is_empty() || context.json {
        return Ok(());
    }
    let why = if op == Operation::Stop { "they need what is stopped" } else { "they were stopped with it" };
    screen.line(&format!("{} along, because {why}: {}", op.done(), list(along, 12)))
}

/// Gives each host its part of the order.
async fn give(context: &Context, meant: &Meant, op: Operation) -> Answers<Done> {
    let mut by_host: BTreeMap<HostName, Vec<StopOne>> = BTreeMap::new();
    for one in ones(meant) {
        by_host.entry(one.cob.host()).or_default().push(one);
    }
    let mut hosts = Vec::new();
    let mut parts: Vec<(Target, Vec<StopOne>)> = Vec::new();
    for (host, cobs) in by_host {
        match context.locate(&host).await {
            Ok(target) => parts.push((target, cobs)),
            Err(error) => hosts.push(Answer {
                name: host,
                reachable: false,
                done: None,
                error: Some(error.in_a_line()),
                hint: error.hints().join("; "),
            }),
        }
    }
    let (client, who) = (context.client.clone(), context.client.who());
    let asked = gather::each(&parts, |(target, cobs)| {
        let (client, who) = (client.clone(), who.clone());
        async move {
            let order = StopOrder { cobs, restart: op == Operation::Restart, until_boot: false, who };
            let answer = tell(&client, &target, op, order).await;
            Answer::new(&target, answer)
        }
    });
    hosts.extend(asked.await.into_iter().map(|(_, answer)| answer));
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    Answers { hosts }
}

/// Tells a host, in as many parts as the length of a body asks for. The first that is refused is the last.
pub(super) async fn tell(client: &Client, target: &Target, op: Operation, whole: StopOrder) -> Result<Done, AskError> {
    let StopOrder { cobs, restart, until_boot, who } = whole;
    let (mut answers, all) = (Vec::new(), cobs.len());
    for part in cobs.chunks(PART) {
        let answer: Done = if op == Operation::Start {
            let order = StartOrder { cobs: part.iter().map(|one| one.cob.clone()).collect(), who: who.clone() };
            client.order(&target.endpoint, op.path(), &order).await?
        } else {
            let order = StopOrder { cobs: part.to_vec(), restart, until_boot, who: who.clone() };
            client.order(&target.endpoint, op.path(), &order).await?
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
    screen.problem("error", &format!("{}: {}", answer.name, answer.error.as_deref().unwrap_or_default()));
    if !answer.hint.is_empty() {
        screen.problem("hint", &answer.hint);
    }
    Ok(())
}

/// What was stopped of these, and of what was stopped along with them. Something that needs another stopped one is not
/// started for nothing.
fn to_start(now: &ClusterStatus, all: &Objects<'_>, named: BTreeSet<CobId>) -> Result<Meant, Failure> {
    let stopped: BTreeMap<&CobId, &Stopped> =
        cobs_of(now).filter_map(|cob| Some((&cob.id, cob.stopped.as_ref()?))).collect();
    let mut meant: Meant = BTreeMap::new();
    for (cob, stop) in &stopped {
        let with = stop.with.as_ref().filter(|with| named.contains(*with));
        if named.contains(*cob) {
            meant.insert((*cob).clone(), None);
        } else if let Some(with) = with {
            meant.insert((*cob).clone(), Some(with.clone()));
        }
    }
    let stays = |on: &CobId| stopped.contains_key(on) && !meant.contains_key(on);
    let waits: BTreeSet<&CobId> = meant.keys().flat_map(|cob| all.needs(cob)).filter(|on| stays(on)).collect();
    if let Some(first) = waits.first() {
        let by = stopped.get(*first).map(|stop| stop.in_words()).unwrap_or_default();
        let services: BTreeSet<&str> = waits.iter().map(|cob| cob.as_str()).collect();
        let named = services.into_iter().collect::<Vec<_>>().join(" ");
        return Err(Failure::refused(anyhow::anyhow!(
            "what is to be started needs {}, which is {by}",
            list(&waits, 6)
        ))
        .hint(format!("start these as well: `cobctl start {named} …`")));
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
        return Err(Failure::refused(anyhow::anyhow!("nothing is restarted: {} {by}", list(&in_the_way, 6)))
            .hint("`cobctl start` starts what is stopped; name others to restart them"));
    }
    Ok(named.into_iter().map(|cob| (cob, None)).collect())
}

fn cobs_of(now: &ClusterStatus) -> impl Iterator<Item = &CobStatus> {
    now.hosts.iter().flat_map(|host: &HostStatus| &host.cobs)
}

/// The change objects of a generation, with their kinds.
pub(super) struct Objects<'g> {
    generation: &'g Generation,
    all: BTreeMap<&'g CobId, (&'g Cob, &'g Kind)>,
}

impl<'g> Objects<'g> {
    pub(super) fn of(generation: &'g Generation) -> Self {
        let of_bundle = |bundle: &'g cob_types::Bundle| {
            bundle.cobs.iter().filter_map(|(id, cob)| Some((id, (&**cob, bundle.kinds.get(&cob.kind)?))))
        };
        Self { generation, all: generation.bundles.values().flat_map(of_bundle).collect() }
    }

    /// Those that the words name: a service on all its hosts, all that runs on a host, a service of a host, or one.
    fn named(&self, words: &[String], hosts: &[HostName]) -> Result<BTreeSet<CobId>, Failure> {
        let (mut found, mut faults) = (BTreeSet::new(), Vec::new());
        for word in words {
            let is_one = |id: &CobId| id.as_str() == word;
            let is_of = |id: &CobId| {
                let service = id.name().split('/').next().unwrap_or_default();
                service == word || id.host_str() == word || format!("{}/{service}", id.host_str()) == *word
            };
            let meant: Vec<&CobId> = self.all.keys().copied().filter(|id| is_one(id) || is_of(id)).collect();
            let runs = |id: &&CobId| self.all[*id].1.runs() && !self.all[*id].0.observe;
            let stops = |id: &CobId| self.all[id].1.stopped().is_some();
            match meant.as_slice() {
                [] => faults.push(self.unknown(word)),
                [one] if is_one(one) && stops(one) => drop(found.insert((*one).clone())),
                [one] if is_one(one) => faults.push(format!("{word} has nothing that could be stopped")),
                several if !several.iter().any(runs) => faults.push(format!("nothing runs of {word}")),
                several => found.extend(several.iter().copied().filter(runs).cloned()),
            }
        }
        for host in hosts.iter().filter(|host| !self.generation.bundles.contains_key(*host)) {
            faults.push(format!("there is no host {host}"));
        }
        if !hosts.is_empty() {
            found.retain(|cob| hosts.contains(&cob.host()));
            if found.is_empty() && faults.is_empty() {
                faults.push(format!("nothing runs of {} on {}", words.join(", "), list(hosts, 6)));
            }
        }
        if faults.is_empty() {
            return Ok(found);
        }
        Err(Failure::usage(anyhow::anyhow!(faults.join("; ")))
            .hint("a SERVICE, a HOST, HOST/SERVICE or a change object"))
    }

    /// All that runs on a host.
    pub(super) fn running_on(&self, host: &HostName) -> Result<Vec<CobId>, Failure> {
        Ok(self.named(&[host.to_string()], std::slice::from_ref(host))?.into_iter().collect())
    }

    /// Where these and all that need them are led when these are stopped.
    pub(super) fn with_dependents_off(&self, cobs: &[CobId]) -> Vec<(CobId, StateName)> {
        self.off(&self.with_dependents(cobs.iter().cloned().collect()))
    }

    fn off(&self, meant: &Meant) -> Vec<(CobId, StateName)> {
        meant.keys().filter_map(|id| Some((id.clone(), self.stopped(id)?.clone()))).collect()
    }

    /// Hosts that have not answered, and on which something of these, or of what needs them, may be stopped.
    fn silent(&self, now: &ClusterStatus, named: &BTreeSet<CobId>) -> Vec<Answer<Done>> {
        let concerned: BTreeSet<HostName> = self.with_dependents(named.clone()).keys().map(CobId::host).collect();
        let silent = now.hosts.iter().filter(|host| !host.reachable && concerned.contains(&host.name));
        let told = |host: &HostStatus| Answer {
            name: host.name.clone(),
            reachable: false,
            done: None,
            error: Some(host.error.clone().unwrap_or_else(|| "no answer".to_owned())),
            hint: "what is stopped there stays so: give the same order again when it is back".to_owned(),
        };
        silent.map(told).collect()
    }

    fn unknown(&self, word: &str) -> String {
        let runs = self.all.iter().filter(|(_, (_, kind))| kind.runs());
        let service = |id: &CobId| id.name().split('/').next().unwrap_or_default().to_owned();
        let known: BTreeSet<String> = runs.flat_map(|(id, _)| [service(id), id.host_str().to_owned()]).collect();
        let help = did_you_mean_or_list(word, known.iter().map(String::as_str)).unwrap_or_default();
        format!("there is no service and no host {word}; {help}")
    }

    /// Where it is when it is stopped.
    fn stopped(&self, id: &CobId) -> Option<&'g StateName> {
        let (cob, kind) = self.all.get(id)?;
        kind.stopped().filter(|state| **state != cob.preferred)
    }

    /// Those that it needs on, so long as it is where it should be.
    fn needs(&self, id: &CobId) -> impl Iterator<Item = &'g CobId> + use<'g> {
        let cob = self.all.get(id).map(|(cob, _)| *cob);
        let locks = cob.into_iter().flat_map(|cob| cob.locks.iter().filter(|lock| lock.state == cob.preferred));
        locks.flat_map(|lock| &lock.needs).map(|need| &need.cob)
    }

    /// These, and all that are where they should be only while one of these is.
    fn with_dependents(&self, named: BTreeSet<CobId>) -> Meant {
        let mut dependents: BTreeMap<&CobId, Vec<&CobId>> = BTreeMap::new();
        for (id, (cob, _)) in &self.all {
            for lock in cob.locks.iter().filter(|lock| lock.state == cob.preferred) {
                let ends = |on: &CobId, states: &[StateName]| self.stopped(on).is_some_and(|s| !states.contains(s));
                for need in lock.needs.iter().filter(|need| ends(&need.cob, &need.states)) {
                    dependents.entry(&need.cob).or_default().push(id);
                }
            }
        }
        let mut meant: Meant = named.iter().map(|cob| (cob.clone(), None)).collect();
        let mut open: Vec<(CobId, CobId)> = named.into_iter().map(|cob| (cob.clone(), cob)).collect();
        while let Some((at, root)) = open.pop() {
            for id in dependents.get(&at).into_iter().flatten() {
                if self.stopped(id).is_some() && !meant.contains_key(*id) {
                    meant.insert((*id).clone(), Some(root.clone()));
                    open.push(((*id).clone(), root.clone()));
                }
            }
        }
        meant
    }

    /// Where they are led, one list after the other: what a plan of the order is made of.
    fn ways(&self, meant: &Meant, op: Operation) -> Vec<Vec<(CobId, StateName)>> {
        let up = || meant.keys().filter_map(|id| Some((id.clone(), self.all.get(id)?.0.preferred.clone()))).collect();
        match op {
            Operation::Stop => vec![self.off(meant)],
            Operation::Start => vec![up()],
            Operation::Restart => {
                let along = self.with_dependents(meant.keys().cloned().collect());
                let up = along.keys().filter_map(|id| Some((id.clone(), self.all.get(id)?.0.preferred.clone())));
                vec![self.off(&along), up.collect()]
            }
        }
    }
}
