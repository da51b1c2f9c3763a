//! `cobctl watch`: the state of the cluster, live.
//!
//! On a terminal a view that is redrawn in place; on a pipe a line for each change.

use std::collections::BTreeMap;
use std::time::Duration;

use cob_types::CobId;
use cob_types::api::StatusOf;
use cob_types::status::{ClusterStatus, CobStatus, HostStatus};
use serde_json::json;

use super::Context;
use super::forecast::Beside;
use super::history::Following;
use super::view::{self, Shown};
use crate::args::{WatchArgs, Which};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather::{self, refusal};
use crate::live::Live;
use crate::screen::{Paint, Screen};
use crate::signals::Ends;
use crate::verdict::{Expected, Verdict};
use crate::words::{clean, count, heading, limits, phase, reasons, utc};

/// The longest time between redraws: the shown durations grow.
const REDRAW: Duration = Duration::from_millis(500);

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &WatchArgs) -> CommandResult {
    let hosts: Vec<_> = args.only.iter().map(Which::host).collect();
    let targets = context.only(&hosts).await?;
    for which in &args.only {
        if let Which::Cob(cob) = which
            && let Some(unknown) = context.unknown(cob).await
        {
            return Err(unknown);
        }
    }
    let mut live = Live::start(&context.client, &targets, StatusOf::All);
    let drawn = screen.is_live() && !context.json;
    let mut seen = ClusterStatus::default();
    let mut forecast = match &args.plan {
        Some(plan) => {
            let (beside, mut history) = (Beside::read(plan)?, Following::new(context));
            history.add_hosts_of(context, screen, beside.generations()).await?;
            Some(Forecast { beside, history, told: None })
        }
        None => None,
    };
    let mut ends = if drawn { Some(Ends::open()?) } else { None };
    if drawn {
        screen.raw(ENTER)?;
    }
    let mut abandoned = std::pin::pin!(screen.abandoned());
    let ended: Result<Verdict, Failure> = loop {
        let stopped = tokio::select! {
            () = live.changed() => false,
            () = tokio::time::sleep(REDRAW), if drawn || forecast.is_some() => false,
            pressed = tokio::signal::ctrl_c() => pressed.is_ok(),
            failure = ended_from_outside(&mut ends) => break Err(failure),
            error = &mut abandoned => break Err(error.into()),
        };
        if !drawn && !stopped && !live.is_complete() {
            continue;
        }
        let mut cluster = if drawn { live.aged() } else { live.cluster() };
        view::narrow(&mut cluster, &args.only);
        let verdict = view::answer(&cluster, &args.only, &Expected::default());
        let mut more = Vec::new();
        if let Some(forecast) = &mut forecast {
            match forecast.go_on(context, screen, &live.aged()).await {
                Ok(line) => more.extend(line.filter(|line| drawn || line.is_new).map(|line| line.text)),
                Err(error) => break Err(error),
            }
        }
        let shown = if context.json {
            let told = if changes(&seen, &cluster).is_empty() { Ok(()) } else { screen.line(&compact(&cluster)?) };
            told.and_then(|()| more.iter().try_for_each(|line| screen.line(line)))
        } else if drawn {
            draw(screen, &cluster, args, &verdict, &more)
        } else {
            changes(&seen, &cluster).iter().chain(&more).try_for_each(|line| screen.line(line))
        };
        seen = cluster;
        if let Err(error) = shown {
            break Err(error.into());
        }
        if stopped {
            break Ok(verdict);
        }
        let converged = matches!(verdict, Verdict::Converged(_));
        if args.until_converged && converged && live.is_complete() {
            // A yes needs fresh answers to this query.
            let mut fresh = gather::cluster(&context.client, &targets).await;
            view::narrow(&mut fresh, &args.only);
            let verdict = view::answer(&fresh, &args.only, &Expected::default());
            if matches!(verdict, Verdict::Converged(_)) {
                break Ok(verdict);
            }
        }
    };
    let left = if drawn { screen.raw(LEAVE) } else { Ok(()) };
    let verdict = ended?;
    left?;
    if !context.json {
        for line in view::conclusion(screen, &seen, &verdict) {
            screen.line(&line)?;
        }
    }
    Ok(if args.until_converged { verdict.exit() } else { Exit::Yes })
}

/// Waits for a signal that ends the program, if the terminal must be restored.
async fn ended_from_outside(ends: &mut Option<Ends>) -> Failure {
    match ends {
        Some(ends) => ends.next().await,
        None => std::future::pending().await,
    }
}

/// Switches to the terminal's alternate screen and hides the cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
/// Switches back.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

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

fn draw(
    screen: &mut Screen,
    cluster: &ClusterStatus,
    args: &WatchArgs,
    verdict: &Verdict,
    more: &[String],
) -> std::io::Result<()> {
    screen.measure();
    let height = screen.height().saturating_sub(1).max(4);
    let mut page = String::from("\u{1b}[H");
    for line in fitting(screen, cluster, &args.only, verdict, more, height) {
        page.push_str(&line);
        page.push_str("\u{1b}[K\r\n");
    }
    page.push_str("\u{1b}[J");
    screen.raw(&page)
}

/// The view in this many lines. Lines that do not fit are cut at the end; in that case the answer and the hosts with
/// problems come first.
fn fitting(
    screen: &Screen,
    cluster: &ClusterStatus,
    only: &[Which],
    verdict: &Verdict,
    more: &[String],
    height: usize,
) -> Vec<String> {
    let mut first = more.to_vec();
    first.extend(more.first().map(|_| String::new()));
    let all = view::lines(screen, cluster, only, Shown::Fitting, verdict);
    if first.len() + all.len() <= height {
        return [first, all].concat();
    }
    let mut cluster = cluster.clone();
    cluster.hosts.sort_by_key(view::is_well);
    first.extend(view::conclusion(screen, &cluster, verdict));
    first.push(String::new());
    first.extend(view::body(screen, &cluster, only, Shown::Fitting));
    let cut = first.len().saturating_sub(height - 1);
    first.truncate(height - 1);
    first.push(screen.paint(Paint::Dim, &format!("{}; name hosts to see less", count(cut, "more line"))));
    first
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
    use crate::testing::{cluster, failed, host, lock, moving, settled, waiting};

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

    #[test]
    fn a_small_terminal_shows_the_verdict_and_the_failing_hosts() {
        let mut hosts: Vec<_> = (10..40).map(|n| host(&format!("n{n}"), 7, Vec::new())).collect();
        hosts[20].cobs = vec![failed("n30/db", "down", "up")];
        let cluster = cluster(hosts);
        let verdict = view::answer(&cluster, &[], &Expected::default());
        let (screen, _) = Screen::memory();
        let shown = |height| fitting(&screen, &cluster, &[], &verdict, &["the forecast".to_owned()], height);
        let lines = shown(10);
        assert_eq!((lines.len(), lines[0].as_str()), (10, "the forecast"));
        assert!(lines[2].starts_with("not converged: n30: 1 change object"), "{lines:?}");
        assert!(lines[5].starts_with("✗ n30") && lines[6].starts_with("✓ n10"), "{lines:?}");
        assert!(lines[9].ends_with("more lines; name hosts to see less"), "{lines:?}");
        let whole = shown(100);
        assert!(whole.len() > 30 && whole[2] == lines[2], "{whole:?}");
    }
}
