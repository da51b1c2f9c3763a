//! `cobctl drain`: nothing runs on a host until its next boot. Several hosts are drained one after the other, or in waves.
//!
//! The order names only the objects of the drained host. Objects of other hosts that need them stop before them by the
//! locks, and wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cob_types::api::{Done, StatusOf, order};
use cob_types::status::{ClusterStatus, CobStatus, HostStatus};
use cob_types::{CobId, HostName};
use serde::Serialize;
use serde_with::skip_serializing_none;
use tokio::time::Instant;

use super::objects::{Objects, cobs_of};
use super::retry::{Ended, until_ended, why};
use super::stop::{Operation, tell};
use super::{Context, plan};
use crate::args::{DrainArgs, Selection};
use crate::client::AskError;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather::{self, is_refusal};
use crate::screen::{Paint, Screen};
use crate::targets::Target;
use crate::verdict::is_converged;
use crate::waves::{self, Limit};
use crate::words::{clean, count, list};

/// How often hosts that reboot are asked whether they are back.
const ASK: Duration = Duration::from_millis(500);

/// The JSON of `cobctl drain` for several hosts. For one host it is the [`Drained`] of this host. Fields are only added.
#[derive(Debug, Serialize)]
struct Report {
    /// The hosts of each wave, in the order of the waves.
    waves: Vec<Vec<HostName>>,
    /// No division into fewer waves keeps all limits.
    fewest: bool,
    /// The limits that the waves keep.
    limits: Vec<String>,
    /// Limits that the drain of one host exceeds.
    exceeded: Vec<String>,
    /// What was done, host by host. Hosts of waves that did not start are missing.
    hosts: Vec<Drained>,
}

/// The result of one host. Fields are only added.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
struct Drained {
    host: HostName,
    /// The objects that the order stops.
    cobs: Vec<CobId>,
    drained: Ended,
    /// With `--reboot`: whether all objects have returned.
    returned: Option<Ended>,
    /// Why not, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why: Vec<String>,
}

/// The hosts and their running objects.
struct Course<'g> {
    hosts: Vec<HostName>,
    cobs: BTreeMap<HostName, Vec<CobId>>,
    /// The objects that have to return after the reboot: those of the host, and running dependents on other hosts.
    returning: BTreeMap<HostName, Vec<CobId>>,
    all: Objects<'g>,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &DrainArgs) -> CommandResult {
    if args.waves && !args.reboot && !args.plan {
        let what = "--waves needs --reboot: without a reboot no host returns before the next wave";
        return Err(Failure::usage(what).hint("add --reboot, or --plan to see the waves"));
    }
    let now = gather::cluster_of(&context.client, &context.targets.all, StatusOf::All).await;
    let generation = plan::generation_of_hosts(context, &now)?;
    let all = Objects::of(&generation);
    let selection = Selection { hosts: args.hosts.clone(), labels: args.labels.clone() };
    let hosts: Vec<HostName> = all.selected(&selection)?.into_iter().flatten().collect();
    let cobs: BTreeMap<HostName, Vec<CobId>> = hosts.iter().map(|host| (host.clone(), all.running_on(host))).collect();
    let running = all.running(&now);
    let return_with = |(host, cobs): (&HostName, &Vec<CobId>)| {
        let dependents = all.with_dependents(cobs.iter().cloned().collect());
        (host.clone(), dependents.into_keys().filter(|cob| running.contains(cob) || cobs.contains(cob)).collect())
    };
    let returning = cobs.iter().map(return_with).collect();
    let course = Course { hosts, cobs, returning, all };
    let report = course.divide(&now, args);
    if !context.json {
        report.say(screen)?;
    }
    if args.plan {
        if let [host] = course.hosts.as_slice() {
            let way = course.all.way_down(&course.cobs[host].iter().cloned().collect(), false);
            return plan::of_order(context, screen, &now, &generation, &way).await;
        }
        if context.json {
            screen.json(&report)?;
        }
        return Ok(Exit::Yes);
    }
    course.carry_out(context, screen, args, report).await
}

impl Course<'_> {
    fn divide(&self, now: &ClusterStatus, args: &DrainArgs) -> Report {
        let limits = self.all.limits(&self.hosts, now);
        let name = |at: &usize| self.hosts[*at].clone();
        let divided = waves::divide(self.hosts.len(), &limits);
        let binds = |limit: &&Limit| {
            let members: BTreeSet<usize> = limit.members.values().flatten().copied().collect();
            members.len() > limit.most
        };
        let over = |(host, limit): &(usize, usize)| {
            let (host, limit) = (&self.hosts[*host], &limits[*limit]);
            let members = limit.members.values().flatten().collect::<BTreeSet<_>>().len();
            format!("{host} alone interrupts more of {} than allowed ({} of {members} may be)", limit.name, limit.most)
        };
        let all_at_once = || vec![(0..self.hosts.len()).collect()];
        let waves = match (args.waves, args.reboot) {
            (true, _) => divided.waves,
            (false, true) => (0..self.hosts.len()).map(|host| vec![host]).collect(),
            (false, false) => all_at_once(),
        };
        Report {
            waves: waves.iter().map(|wave| wave.iter().map(name).collect()).collect(),
            fewest: args.waves && divided.fewest,
            limits: limits
                .iter()
                .filter(binds)
                .map(|limit| format!("{}: {} at a time", limit.name, limit.most))
                .collect(),
            exceeded: divided.exceeded.iter().map(over).collect(),
            hosts: Vec::new(),
        }
    }

    async fn carry_out(
        &self,
        context: &Context,
        screen: &mut Screen,
        args: &DrainArgs,
        mut report: Report,
    ) -> CommandResult {
        let mut exit = Exit::Yes;
        for (at, wave) in report.waves.iter().enumerate() {
            let done = self.wave(context, screen, wave, args).await?;
            exit = Exit::of_all(done.iter().map(Drained::exit));
            report.hosts.extend(done);
            let left: Vec<&HostName> = report.waves[at + 1..].iter().flatten().collect();
            if exit != Exit::Yes && !left.is_empty() && !context.json {
                screen.problem("error", &format!("not drained, because of this wave: {}", list(&left, 12)));
            }
            if exit != Exit::Yes {
                break;
            }
        }
        if context.json {
            match report.hosts.as_slice() {
                [one] if self.hosts.len() == 1 => screen.json(one)?,
                _ => screen.json(&report)?,
            }
        }
        Ok(exit)
    }

    /// Drains hosts at the same time, reboots them, and waits until all services have returned.
    async fn wave(
        &self,
        context: &Context,
        screen: &mut Screen,
        wave: &[HostName],
        args: &DrainArgs,
    ) -> Result<Vec<Drained>, Failure> {
        let (mut targets, mut done) = (Vec::new(), Vec::new());
        let now = gather::cluster_of(&context.client, &context.targets.all, StatusOf::Active).await;
        let boots = boots(&now);
        for host in wave {
            targets.push(context.locate(host).await?);
        }
        let silent = |host: &HostName| now.hosts.iter().find(|h| h.name == *host && !h.reachable);
        if wave.iter().any(|host| silent(host).is_some()) {
            done = wave.iter().map(|host| Drained::not_begun(&self.cobs[host], host, silent(host))).collect();
            done.iter().try_for_each(|host| host.say(context, screen, args.reboot))?;
            return Ok(done);
        }
        let told = self.order(context, &targets).await;
        let refused = told.iter().any(|(_, answer)| answer.is_err());
        for ((target, answer), host) in told.into_iter().zip(wave) {
            match answer {
                Ok(answer) => {
                    if !context.json {
                        screen.line(&format!("{host}: {}", clean(&answer.detail)))?;
                    }
                    if refused {
                        done.push(Drained::left(&self.cobs[host], host));
                    }
                }
                Err(error) => done.push(Drained::refused(&self.cobs[host], &target, host, &error)),
            }
        }
        if refused {
            done.iter().try_for_each(|host| host.say(context, screen, args.reboot))?;
            return Ok(done);
        }
        let cobs: Vec<CobId> = wave.iter().flat_map(|host| &self.cobs[host]).cloned().collect();
        let (ended, cluster) = until_ended(context, &cobs, Instant::now() + args.wait).await;
        done = wave.iter().map(|host| self.drained(host, ended, &cluster)).collect();
        let all_drained = done.iter().all(|host| host.drained == Ended::Settled);
        for host in done.iter().filter(|host| host.drained == Ended::Settled && !context.json) {
            screen.line(&format!("{} is drained: {} stopped", host.host, count(host.cobs.len(), "change object")))?;
        }
        if args.reboot && all_drained {
            self.reboot(context, screen, &targets, &mut done).await?;
            if done.iter().all(|host| host.why.is_empty()) {
                self.returned(context, &mut done, &boots, Instant::now() + args.wait).await;
            }
        }
        done.iter().try_for_each(|host| host.say(context, screen, args.reboot))?;
        Ok(done)
    }

    async fn order(&self, context: &Context, targets: &[Target]) -> Vec<(Target, Result<Done, AskError>)> {
        let told = gather::each(&context.client, targets, |client, target| {
            let cobs = self.cobs.get(&target.stand_in()).into_iter().flatten();
            let ones: Vec<order::StopOne> = cobs.map(|cob| order::StopOne { cob: cob.clone(), with: None }).collect();
            async move {
                if ones.is_empty() {
                    return Ok(Done::new(false, "no service runs there".to_owned()));
                }
                let order = order::Stop { cobs: ones, restart: false, until_boot: true, who: None };
                tell(&client, &target, Operation::Stop, order).await
            }
        });
        told.await
    }

    fn drained(&self, host: &HostName, ended: Ended, cluster: &ClusterStatus) -> Drained {
        let cobs = self.cobs[host].clone();
        let undone = Operation::Stop.undone(cluster, &cobs);
        let is_off = |cob: &CobStatus| cob.stopped.is_some() && is_converged(cob);
        let off = cobs_of(cluster).filter(|cob| cobs.contains(&cob.id) && is_off(cob)).count();
        let (drained, why) = match ended {
            _ if off == cobs.len() => (Ended::Settled, Vec::new()),
            _ if !undone.is_empty() => (Ended::Failed, undone),
            Ended::Settled => (Ended::Failed, why(cluster, &cobs)),
            Ended::Failed | Ended::Late | Ended::Unreached => (ended, why(cluster, &cobs)),
        };
        Drained { host: host.clone(), cobs, drained, returned: None, why }
    }

    async fn reboot(
        &self,
        context: &Context,
        screen: &mut Screen,
        targets: &[Target],
        done: &mut [Drained],
    ) -> std::io::Result<()> {
        let told = gather::each(&context.client, targets, |client, target| async move {
            client.order(&target.endpoint, &order::Reboot { who: None }).await
        });
        for ((_, answer), host) in told.await.into_iter().zip(done) {
            match answer {
                Ok(_) if context.json => {}
                Ok(_) => screen.line(&format!("{} was told to reboot", host.host))?,
                // The host may have gone down before its answer. Another boot shows whether it was told.
                Err(error) if !is_refusal(&error) => {}
                Err(error) => {
                    host.returned = Some(Ended::Failed);
                    host.why = vec![format!("the host was not rebooted: {}", error.in_a_line())];
                }
            }
        }
        Ok(())
    }
}

/// The boots of each host, where they are known.
fn boots(now: &ClusterStatus) -> BTreeMap<HostName, u64> {
    now.hosts.iter().filter(|host| host.boots > 0).map(|host| (host.name.clone(), host.boots)).collect()
}

impl Course<'_> {
    /// Waits until each host has another boot, and each of its objects and of their dependents is started and in its
    /// preferred state.
    async fn returned(
        &self,
        context: &Context,
        done: &mut [Drained],
        before: &BTreeMap<HostName, u64>,
        deadline: Instant,
    ) {
        loop {
            let now = gather::cluster_of(&context.client, &context.targets.all, StatusOf::All).await;
            let boots = boots(&now);
            for host in done.iter_mut() {
                host.why.clear();
                let is_back = |cob: &&CobStatus| cob.stopped.is_none() && is_converged(cob);
                let cobs = &self.returning[&host.host];
                let theirs: Vec<&CobStatus> = cobs_of(&now).filter(|cob| cobs.contains(&cob.id)).collect();
                let rebooted =
                    before.get(&host.host).is_none_or(|old| boots.get(&host.host).is_some_and(|new| new != old));
                let answers = now.hosts.iter().any(|h| h.reachable && h.name == host.host);
                let all_back = theirs.len() == cobs.len() && theirs.iter().all(is_back);
                host.returned = Some(match () {
                    () if answers && rebooted && all_back => Ended::Settled,
                    () if answers => Ended::Late,
                    () => Ended::Unreached,
                });
                if !rebooted && answers {
                    host.why
                        .push("the host has not rebooted yet: its daemon runs in the same boot as before".to_owned());
                } else if answers && !all_back {
                    host.why = why(&now, cobs);
                }
            }
            if done.iter().all(|host| host.returned == Some(Ended::Settled)) || Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep(ASK).await;
        }
    }
}

impl Report {
    fn say(&self, screen: &mut Screen) -> std::io::Result<()> {
        let hosts: usize = self.waves.iter().map(Vec::len).sum();
        if hosts == 1 {
            return Ok(());
        }
        let many = self.waves.len();
        for (at, wave) in self.waves.iter().enumerate() {
            screen.line(&format!("wave {} of {many}: {}", at + 1, list(wave, 24)))?;
        }
        let fewest = if self.fewest { ", the fewest possible" } else { "" };
        screen.line(&format!("{} in {}{fewest}", count(hosts, "host"), count(many, "wave")))?;
        if self.fewest {
            self.limits.iter().try_for_each(|limit| screen.line(&format!("  {limit}")))?;
        }
        self.exceeded.iter().for_each(|over| screen.problem("warning", over));
        Ok(())
    }
}

impl Drained {
    /// A host that is not drained.
    fn not(cobs: &[CobId], host: &HostName, drained: Ended, why: String) -> Self {
        Self { host: host.clone(), cobs: cobs.to_vec(), drained, returned: None, why: vec![why] }
    }

    fn refused(cobs: &[CobId], target: &Target, host: &HostName, error: &AskError) -> Self {
        let drained = if is_refusal(error) { Ended::Failed } else { Ended::Unreached };
        Self::not(cobs, host, drained, format!("{}: {}", target.endpoint, error.in_a_line()))
    }

    /// A host of a wave that did not begin, because a host of the wave does not answer.
    fn not_begun(cobs: &[CobId], host: &HostName, silent: Option<&HostStatus>) -> Self {
        let (drained, why) = match silent {
            Some(status) => (Ended::Unreached, status.error.as_deref().unwrap_or("no answer")),
            None => (Ended::Failed, "another host of the wave does not answer: no service was stopped"),
        };
        Self::not(cobs, host, drained, why.to_owned())
    }

    /// A host that has taken the order, of a wave in which another host has not.
    fn left(cobs: &[CobId], host: &HostName) -> Self {
        let why = "another host of the wave refused; its own services stop until its next boot";
        Self::not(cobs, host, Ended::Failed, why.to_owned())
    }

    fn ended(&self) -> Ended {
        self.returned.unwrap_or(self.drained)
    }

    fn exit(&self) -> Exit {
        self.ended().exit()
    }

    fn say(&self, context: &Context, screen: &mut Screen, reboot: bool) -> std::io::Result<()> {
        if context.json {
            return Ok(());
        }
        if self.ended() != Ended::Settled {
            let what = if self.returned.is_some() { "not all services have returned" } else { "is not drained" };
            screen.line(&screen.paint(Paint::Bad, &format!("{}: {what}", self.host)))?;
            self.why.iter().try_for_each(|line| screen.line(&format!("  {line}")))?;
            return screen.line(&format!("  `cobctl start {}` starts its services again", self.host));
        }
        if self.returned.is_some() {
            return screen.line(&screen.paint(Paint::Good, &format!("{}: all services have returned", self.host)));
        }
        if reboot {
            return Ok(());
        }
        screen.line(&format!("after a reboot, or with `cobctl start {}`, all services return", self.host))
    }
}
