//! `cobctl at`: the state of the cluster at a moment, or the changes between two moments.

use std::collections::BTreeSet;

use cob_types::api::StatusOf;
use serde_json::json;

use super::Context;
use super::history::Following;
use crate::args::Which;
use crate::clocks::now_ns;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::past::moment::Moment;
use crate::past::picture::{Change, Folding, PastHost, Picture, changes};
use crate::screen::Screen;
use crate::words::{ago, clean, utc};

/// How far a moment may be ahead of the known clocks, which differ a little.
const AHEAD_NS: u64 = 60 * 1_000_000_000;

/// Arguments of `at`.
#[derive(Debug, clap::Args)]
pub struct AtArgs {
    /// The moment: 2026-11-21T14:03:00Z, 14:03 (the last time that clocks showed it, UTC), 5m (ago), now
    #[arg(value_name = "TIME", allow_hyphen_values = true)]
    pub time: Moment,
    /// Only these hosts or change objects
    #[arg(value_name = "HOST|COB")]
    pub only: Vec<Which>,
    /// Show the changes from TIME to this moment; exit 1 if there are any
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub diff: Option<Moment>,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &AtArgs) -> CommandResult {
    let hosts: Vec<_> = args.only.iter().map(Which::host).collect();
    let mut context = context.clone();
    context.targets.all = context.only(&hosts).await?;
    let now = now_ns();
    for moment in [Some(args.time), args.diff].into_iter().flatten() {
        refuse_future(&context, moment.ns(now), now).await?;
    }
    let names: Vec<_> = context.targets.all.iter().filter_map(|target| target.name.clone()).collect();
    let mut folding = Folding::new(args.time.ns(now), &names);
    let mut second = args.diff.map(|moment| Folding::new(moment.ns(now), &names));
    let mut histories = Following::new(&context);
    loop {
        let take = |entry| {
            folding.take(&entry);
            if let Some(second) = &mut second {
                second.take(&entry);
            }
        };
        histories.go_on(&context, screen, take).await?;
        if !args.only.is_empty() {
            break;
        }
        // Hosts that the newest generation does not contain any more may have existed then.
        let generations: BTreeSet<_> = second.iter().chain([&folding]).flat_map(Folding::generations).collect();
        let more = histories.add_hosts_of(&context, screen, generations.into_iter()).await?;
        if more.is_empty() {
            break;
        }
        for folding in second.iter_mut().chain([&mut folding]) {
            more.iter().for_each(|host| folding.expect(host));
        }
    }
    let lost = histories.lost();
    let mut first = folding.picture(&lost);
    narrow(&mut first, &args.only);
    let mut pictures = vec![first];
    let mut exit = match second.map(|second| second.picture(&lost)) {
        None => tell(&context, screen, &pictures[0])?,
        Some(mut second) => {
            narrow(&mut second, &args.only);
            pictures.push(second);
            compare(&context, screen, &pictures[0], &pictures[1])?
        }
    };
    let there = pictures.iter().flat_map(|picture| &picture.hosts).flat_map(|host| &host.cobs);
    let there: BTreeSet<_> = there.map(|cob| &cob.id).collect();
    for which in &args.only {
        if let Which::Cob(cob) = which
            && !there.contains(cob)
        {
            screen.say(&format!("the histories do not contain {cob} at that time"));
            exit = Exit::No;
        }
    }
    Ok(if lost.is_empty() { exit } else { Exit::Unreached })
}

/// Refuses a moment that no clock has shown yet: neither this machine's clock nor a host's clock, which may be ahead.
async fn refuse_future(context: &Context, asked: u64, now: u64) -> Result<(), Failure> {
    if asked <= now.saturating_add(AHEAD_NS) {
        return Ok(());
    }
    let hosts = gather::cluster_of(&context.client, &context.targets.all, StatusOf::Active).await.hosts;
    let latest = hosts.iter().filter(|host| host.reachable).map(|host| host.now_ns).max().unwrap_or_default();
    if asked <= latest.saturating_add(AHEAD_NS) {
        return Ok(());
    }
    let (asked, now) = (utc(asked), utc(now.max(latest)));
    let what = format!("{asked} is in the future: it is {now}");
    Err(Failure::usage(what).hint("`cobgen plan --from N --to M` forecasts a switch"))
}

/// Keeps only these hosts and change objects.
fn narrow(picture: &mut Picture, only: &[Which]) {
    if only.is_empty() {
        return;
    }
    let hosts: BTreeSet<_> = only.iter().map(Which::host).collect();
    picture.hosts.retain(|host| hosts.contains(&host.name));
    for host in &mut picture.hosts {
        host.cobs.retain(|cob| only.iter().any(|which| which.covers(&cob.id)));
    }
}

fn tell(context: &Context, screen: &mut Screen, picture: &Picture) -> CommandResult {
    let known = picture.hosts.iter().all(PastHost::is_known);
    if context.json {
        screen.json(picture)?;
    } else {
        screen.line(&format!("{}, by each host's clock", utc(picture.at_ns)))?;
        for host in &picture.hosts {
            for line in lines(host, picture.at_ns) {
                screen.line(&line)?;
            }
        }
    }
    Ok(if known { Exit::Yes } else { Exit::No })
}

fn lines(host: &PastHost, at: u64) -> Vec<String> {
    let mut all = vec![format!("{}: {}", host.name, host.words())];
    if let Some(missing) = &host.missing {
        all.push(format!("  incomplete: {}", clean(missing)));
    }
    let width = host.cobs.iter().map(|cob| cob.id.as_str().len()).max().unwrap_or_default();
    for cob in &host.cobs {
        let mut line = format!("  {:<width$}  {}", cob.id.as_str(), cob.words());
        if let Some(since) = cob.since_ns {
            line.push_str(&format!("  for {}", ago(at, since)));
        }
        if !cob.waits_for.is_empty() && cob.moving_to.is_none() {
            line.push_str(&format!("  waits for {}", clean(&cob.waits_for.join(", "))));
        }
        all.push(line);
    }
    all
}

fn compare(context: &Context, screen: &mut Screen, first: &Picture, second: &Picture) -> CommandResult {
    let changes = changes(first, second);
    if context.json {
        screen.json(&json!({"from_ns": first.at_ns, "to_ns": second.at_ns, "changes": changes}))?;
    } else {
        let (from, to) = (utc(first.at_ns), utc(second.at_ns));
        screen.line(&format!("from {from} to {to}, by each host's clock"))?;
        for Change { host, cob, before, after } in &changes {
            let subject = cob.as_ref().map_or_else(|| host.to_string(), ToString::to_string);
            screen.line(&format!("{subject}: {before}, then {after}"))?;
        }
        if changes.is_empty() {
            screen.line("no changes")?;
        }
        let hosts = first.hosts.iter().chain(&second.hosts);
        let missing = hosts.filter_map(|host| Some((&host.name, host.missing.as_ref()?)));
        for (host, missing) in missing.collect::<BTreeSet<_>>() {
            screen.say(&format!("{host}: incomplete: {}", clean(missing)));
        }
    }
    let known = first.hosts.iter().chain(&second.hosts).all(PastHost::is_known);
    Ok(if changes.is_empty() && known { Exit::Yes } else { Exit::No })
}
