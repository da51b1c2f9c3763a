//! `cobctl drain`: nothing runs on a host until its next boot.
//!
//! Only what runs there is stopped by order. What needs it stops before it by the locks, and waits.

use std::time::Duration;

use cob_types::status::CobStatus;
use cob_types::{CobId, HostName};
use cobd::web::{Done, PlainOrder, StatusOf, StopOne, StopOrder};
use serde::Serialize;
use tokio::time::Instant;

use super::retry::{Ended, until_ended, why};
use super::stop::{Objects, Operation, tell};
use super::{Context, plan};
use crate::args::DrainArgs;
use crate::failure::{Exit, Failure};
use crate::gather;
use crate::screen::{Paint, Screen};
use crate::verdict::is_home;
use crate::words::{clean, count};

/// How often a host that is rebooted is asked whether it is back.
const ASK: Duration = Duration::from_millis(500);

/// The JSON of `cobctl drain`. Fields are only added.
#[derive(Debug, Serialize)]
struct Report {
    host: HostName,
    /// What is stopped there.
    cobs: Vec<CobId>,
    drained: Ended,
    /// With `--reboot`: whether everything has returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    returned: Option<Ended>,
    /// Why not, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why: Vec<String>,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &DrainArgs) -> Result<Exit, Failure> {
    let host = &args.host;
    let now = gather::cluster_of(&context.client, &context.targets.all, StatusOf::All).await;
    let generation = plan::generation_of_hosts(context, &now)?;
    let all = Objects::of(&generation);
    let cobs = all.running_on(host)?;
    if args.plan {
        return plan::of_order(context, screen, &now, &generation, &[all.with_dependents_off(&cobs)]).await;
    }
    let target = context.locate(host).await?;
    let ones = cobs.iter().map(|cob| StopOne { cob: cob.clone(), with: None }).collect();
    let order = StopOrder { cobs: ones, restart: false, until_boot: true, who: context.client.who() };
    let told: Done = tell(&context.client, &target, Operation::Stop, order).await?;
    say(context, screen, &format!("{host}: {}", clean(&told.detail)))?;
    let (drained, cluster) = until_ended(context, &cobs, Instant::now() + args.wait).await;
    let undone = Operation::Stop.undone(&cluster, &cobs);
    let drained = if drained == Ended::Settled && !undone.is_empty() { Ended::Failed } else { drained };
    let mut report = Report { host: host.clone(), cobs, drained, returned: None, why: undone };
    if drained != Ended::Settled {
        report.why.extend(why(&cluster, &report.cobs));
        return report.end(context, screen);
    }
    say(context, screen, &format!("{host} is drained: {} stopped", count(report.cobs.len(), "change object")))?;
    if args.reboot {
        let order = PlainOrder { who: context.client.who() };
        let _: Done = context.client.order(&target.endpoint, "/v1/reboot", &order).await?;
        say(context, screen, &format!("{host} is rebooted"))?;
        report.returned = Some(returned(context, &report.cobs, host, Instant::now() + args.wait).await);
    }
    report.end(context, screen)
}

/// Waits until none of them is stopped any more and each is where it should be.
async fn returned(context: &Context, cobs: &[CobId], host: &HostName, deadline: Instant) -> Ended {
    loop {
        let now = gather::cluster_of(&context.client, &context.targets.all, StatusOf::All).await;
        let theirs: Vec<&CobStatus> = now.hosts.iter().flat_map(|h| &h.cobs).filter(|c| cobs.contains(&c.id)).collect();
        let is_back = |cob: &&CobStatus| cob.stopped.is_none() && is_home(cob);
        if theirs.len() == cobs.len() && theirs.iter().all(is_back) {
            return Ended::Settled;
        }
        if Instant::now() >= deadline {
            let answers = now.hosts.iter().any(|h| h.reachable && h.name == *host);
            return if answers { Ended::Late } else { Ended::Unreached };
        }
        tokio::time::sleep(ASK).await;
    }
}

fn say(context: &Context, screen: &mut Screen, line: &str) -> std::io::Result<()> {
    if context.json { Ok(()) } else { screen.line(line) }
}

impl Report {
    fn end(&self, context: &Context, screen: &mut Screen) -> Result<Exit, Failure> {
        let ended = self.returned.unwrap_or(self.drained);
        if context.json {
            screen.json(self)?;
        } else if ended != Ended::Settled {
            let what = if self.returned.is_some() { "not all has returned" } else { "is not drained" };
            screen.line(&screen.paint(Paint::Bad, &format!("{}: {what}", self.host)))?;
            self.why.iter().try_for_each(|line| screen.line(&format!("  {line}")))?;
        } else if self.returned.is_some() {
            screen.line(&screen.paint(Paint::Good, &format!("{}: everything has returned", self.host)))?;
        } else {
            screen.line(&format!("after a reboot, or with `cobctl start {}`, everything returns", self.host))?;
        }
        Ok(ended.exit())
    }
}
