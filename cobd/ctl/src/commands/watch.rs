//! `cobctl watch`: the state of the cluster, live.
//!
//! On a terminal the [board](crate::board) on a full screen; on a pipe a line for each change.

mod full;

use std::collections::BTreeMap;
use std::time::Duration;

use cob_types::CobId;
use cob_types::api::StatusOf;
use cob_types::status::{ClusterStatus, CobStatus, HostStatus};
use serde_json::json;

use super::forecast::Beside;
use super::history::Following;
use super::view;
use super::{Context, context};
use crate::args::{Global, WatchArgs, Which};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather::{self, refusal};
use crate::live::Live;
use crate::screen::Screen;
use crate::signals::Interrupts;
use crate::targets::Target;
use crate::verdict::{Expected, Verdict};
use crate::words::{clean, heading, limits, phase, reasons, utc};

/// The longest time between two pictures: the shown durations grow.
const REDRAW: Duration = Duration::from_millis(500);

pub(super) async fn run(global: &Global, screen: &mut Screen, args: &WatchArgs) -> CommandResult {
    let context = &context(global, screen)?;
    let hosts: Vec<_> = args.only.iter().map(Which::host).collect();
    let targets = context.only(&hosts).await?;
    for which in &args.only {
        if let Which::Cob(cob) = which
            && let Some(unknown) = context.unknown(cob).await
        {
            return Err(unknown);
        }
    }
    let mut forecast = match &args.plan {
        Some(plan) => {
            let (beside, mut history) = (Beside::read(plan)?, Following::new(context));
            history.add_hosts_of(context, screen, beside.generations()).await?;
            Some(Forecast { beside, history, told: None })
        }
        None => None,
    };
    let is_full = screen.is_live() && !screen.is_dumb() && !args.plain && !context.json;
    let (seen, verdict) = if is_full {
        full::follow(context, global, screen, args, &targets, forecast.as_mut()).await?
    } else {
        in_lines(context, screen, args, &targets, forecast.as_mut()).await?
    };
    if !context.json {
        for line in view::conclusion(screen, &seen, &verdict) {
            screen.line(&line)?;
        }
    }
    Ok(if args.until_converged { verdict.exit() } else { Exit::Yes })
}

/// Prints the changes as lines, until an interrupt or the convergence; returns the last picture with its verdict.
async fn in_lines(
    context: &Context,
    screen: &mut Screen,
    args: &WatchArgs,
    targets: &[Target],
    mut forecast: Option<&mut Forecast>,
) -> Result<(ClusterStatus, Verdict), Failure> {
    let mut live = Live::start(&context.client, targets, StatusOf::All);
    let mut seen = ClusterStatus::default();
    let mut abandoned = std::pin::pin!(screen.abandoned());
    let interrupts = Interrupts::open()?;
    loop {
        let stopped = tokio::select! {
            () = live.changed() => false,
            () = tokio::time::sleep(REDRAW), if forecast.is_some() => false,
            () = interrupts.pressed() => true,
            error = &mut abandoned => return Err(error.into()),
        };
        if !stopped && !live.is_complete() {
            continue;
        }
        let mut cluster = live.cluster();
        view::narrow(&mut cluster, &args.only);
        let verdict = view::answer(&cluster, &args.only, &Expected::default());
        let mut more = Vec::new();
        if let Some(forecast) = &mut forecast {
            let line = forecast.go_on(context, screen, &live.aged()).await?;
            more.extend(line.filter(|line| line.is_new).map(|line| line.text));
        }
        if !context.json {
            changes(&seen, &cluster).iter().chain(&more).try_for_each(|line| screen.line(line))?;
        } else {
            if !changes(&seen, &cluster).is_empty() {
                screen.line(&compact(&cluster)?)?;
            }
            more.iter().try_for_each(|line| screen.line(line))?;
        }
        seen = cluster;
        if stopped {
            return Ok((seen, verdict));
        }
        if args.until_converged
            && matches!(verdict, Verdict::Converged(_))
            && live.is_complete()
            && let Some(verdict) = confirmed(context, targets, &args.only).await
        {
            return Ok((seen, verdict));
        }
    }
}

/// The convergence, confirmed by fresh answers to a query.
async fn confirmed(context: &Context, targets: &[Target], only: &[Which]) -> Option<Verdict> {
    let mut fresh = gather::cluster(&context.client, targets).await;
    view::narrow(&mut fresh, only);
    let verdict = view::answer(&fresh, only, &Expected::default());
    matches!(verdict, Verdict::Converged(_)).then_some(verdict)
}

/// A plan that is compared with the real progress.
struct Forecast {
    beside: Beside,
    history: Following,
    /// The last reported state.
    told: Option<(usize, usize, u64)>,
}

/// The present forecast.
struct Line {
    text: String,
    /// Whether more transitions have ended, or the end has moved.
    is_new: bool,
}

impl Forecast {
    async fn go_on(
        &mut self,
        context: &Context,
        screen: &mut Screen,
        cluster: &ClusterStatus,
    ) -> Result<Option<Line>, Failure> {
        let beside = &mut self.beside;
        self.history.go_on(context, screen, |entry| beside.take(&entry)).await?;
        if self.told.is_none() {
            // Events from before the start of the watch.
            beside.wait_for_the_next();
        }
        let Some(now) = cluster.hosts.iter().map(|host| host.now_ns).max().filter(|now| *now > 0) else {
            return Ok(None);
        };
        let (ended, held, end_us) = self.beside.stands(now);
        // If the end moves only because time passes, a line per second is enough.
        let told = (ended, held, end_us / 1_000_000);
        let is_new = self.told != Some(told);
        self.told = Some(told);
        let text =
            if context.json { json!({"forecast": self.beside.json(now)}).to_string() } else { self.beside.line(now) };
        Ok(Some(Line { text, is_new }))
    }
}

fn compact(cluster: &ClusterStatus) -> Result<String, Failure> {
    serde_json::to_string(cluster).map_err(Failure::environment)
}

/// The differences between two pictures, in lines.
fn changes(before: &ClusterStatus, after: &ClusterStatus) -> Vec<String> {
    let old: BTreeMap<_, _> = before.hosts.iter().map(|h| (&h.name, h)).collect();
    let mut lines = Vec::new();
    for host in &after.hosts {
        let was = old.get(&host.name).copied();
        let told = host_words(host);
        if was.map(host_words).as_ref() != Some(&told) {
            lines.push(format!("{}{}: {told}", stamp(host), host.name));
        }
        if !host.reachable {
            continue;
        }
        let cobs: BTreeMap<&CobId, &CobStatus> =
            was.filter(|w| w.reachable).map(|w| w.cobs.iter().map(|c| (&c.id, c)).collect()).unwrap_or_default();
        for cob in &host.cobs {
            if cobs.get(&cob.id).is_none_or(|was| differs(was, cob)) {
                let why = reasons(cob, host.now_ns);
                let why = if why.is_empty() { why } else { format!(": {why}") };
                lines.push(format!("{}{} {}, {}{why}", stamp(host), cob.id, heading(cob), phase(cob)));
            }
        }
        let gone = cobs.keys().filter(|id| !host.cobs.iter().any(|c| c.id == ***id));
        lines.extend(gone.map(|id| format!("{}{id} is gone", stamp(host))));
    }
    lines
}

fn stamp(host: &HostStatus) -> String {
    if host.now_ns == 0 { String::new() } else { format!("{}  ", utc(host.now_ns)) }
}

fn host_words(host: &HostStatus) -> String {
    if let Some(why) = refusal(host) {
        return format!("refuses: {}", clean(why));
    }
    if !host.reachable {
        return format!("unreachable: {}", clean(host.error.as_deref().unwrap_or_default()));
    }
    let mut text = match host.generation {
        Some(generation) => format!("generation {generation}"),
        None => "no generation".to_owned(),
    };
    if let Some(next) = host.switching_to {
        text.push_str(&format!(", switches to {next}"));
    }
    text.push_str(if host.converged { ", converged" } else { ", not converged" });
    if let Some(generation) = host.held {
        text.push_str(&format!(", held: switch to {generation} cancelled"));
    } else if host.paused {
        text.push_str(", paused");
    }
    for limit in limits(host) {
        text.push_str(&format!(", {limit}"));
    }
    text
}

/// Elapsed times and printed lines do not count as changes.
fn differs(a: &CobStatus, b: &CobStatus) -> bool {
    let waits = |c: &CobStatus| c.waits_for.iter().map(|w| crate::words::wait(w, u64::MAX)).collect::<Vec<_>>();
    (&a.state, &a.target, a.phase, a.failed, a.retiring) != (&b.state, &b.target, b.phase, b.failed, b.retiring)
        || waits(a) != waits(b)
        || a.trouble.len() != b.trouble.len()
        || a.action.as_ref().map(|x| x.attempt) != b.action.as_ref().map(|x| x.attempt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, host, lock, moving, settled, waiting};

    #[test]
    fn each_change_is_a_line() {
        let first = cluster(vec![host("n1", 7, vec![waiting("n1/db", "down", "up", vec![lock("n2/ip", "up")])])]);
        let mut busy = first.clone();
        busy.hosts[0].cobs[0] = moving("n1/db", "down", "up");
        let mut done = busy.clone();
        done.hosts[0].cobs[0] = settled("n1/db", "up");
        done.hosts[0].cobs[0].since_ns += 1;
        let mut gone = done.clone();
        gone.hosts[0] = crate::gather::unreachable(gone.hosts[0].name.clone(), "off".to_owned());
        let lines: Vec<String> = [(&ClusterStatus::default(), &first), (&first, &busy), (&busy, &done), (&done, &gone)]
            .into_iter()
            .flat_map(|(a, b)| changes(a, b))
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
        assert!(changes(&done, &done).is_empty());
        let mut later = busy.clone();
        later.hosts[0].now_ns += 5_000_000_000;
        assert!(changes(&busy, &later).is_empty(), "time alone is no change");
        let mut limited = busy.clone();
        limited.hosts[0].limit = Some(2);
        assert!(changes(&busy, &limited).concat().ends_with("n1: generation 7, converged, 2 at a time"));
    }
}
