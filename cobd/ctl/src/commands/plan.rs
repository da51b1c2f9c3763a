//! `cobctl plan`: previews a switch from the present state of the hosts, before it changes a host.
//!
//! It works like `cobgen plan --from N --to M`, with data from the hosts: their generations, the states of their change
//! objects, and the durations of earlier transitions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cob_forecast::NoOrder;
use cob_forecast::show::painted;
use cob_forecast::{Asked, Durations, Forecasted, Sides, Source, durations, forecast, show};
use cob_types::api::StatusOf;
use cob_types::maintenance::SharedWindows;
use cob_types::status::{ClusterStatus, HostStatus, Stopped, WindowWait};
use cob_types::{CobId, Generation, GenerationNumber, HostName, StateName};

use super::recorded::Record as _;
use super::transitions::Transitions;
use super::{Context, history};
use crate::args::PlanArgs;
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::identity::{OfDepot, others};
use crate::screen::Screen;
use crate::targets::{Target, endpoints};
use crate::trusted::TrustedDepot;
use crate::words::{list, seconds, span, window_wait};

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &PlanArgs) -> CommandResult {
    let depot = context.targets.need_depot("a plan needs the depot")?;
    let to = depot.find(args.generation)?;
    let (now, from) = look(context, &depot, to).await?;
    is_of_depot(context, screen, &now)?;
    if context.targets.narrowed {
        let asked: Vec<_> = now.hosts.iter().map(|h| &h.name).collect();
        screen.problem(
            "note",
            &format!(
                "asked only {}; the plan assumes that the other hosts are at generation {from}, in their desired states",
                list(&asked, 6)
            ),
        );
    }
    let away = tell_where(screen, &now, from);
    tell_what_stands(screen, &now, to);
    let durations = match &args.durations {
        Some(file) => durations::read(file).map_err(Failure::usage)?,
        None => recorded(context, screen, &now).await?,
    };
    let withdrawn = now.hosts.iter().flat_map(|host| host.withdrawn.iter().copied()).collect();
    let asked = Asked { durations, states: states(&now), withdrawn, runs: args.runs, seed: 1, ..Asked::default() };
    let nothing = Generation::nothing();
    let side = |number: GenerationNumber| match number {
        GenerationNumber(0) => Ok(Source::Made(&nothing)),
        number => depot.source(number),
    };
    let sides = Sides::open(side(from)?, side(to)?).map_err(Failure::from)?;
    match forecast(sides, asked) {
        Ok(planned) => {
            if args.durations.is_some() && !planned.unused.durations.is_empty() {
                let lines = list(&planned.unused.durations, 3);
                screen.problem("warning", &format!("--durations has lines for unknown change objects: {lines}"));
            }
            tell_windows(screen, &depot, from, to, planned.plan.forecast.end_us);
            print(context, screen, args, &planned, away)
        }
        Err(NoOrder::Depot(error)) => Err(error.into()),
        Err(NoOrder::Circle(circle)) => {
            let what = format!("circular order of departures: {}", list(&circle, 10));
            Err(Failure::refused(what)
                .hint("remove these change objects from the model separately, each in its own generation"))
        }
    }
}

/// The status of the hosts, with the new hosts and the removed hosts of the switch, and the generation that most hosts
/// have.
async fn look(
    context: &Context,
    depot: &TrustedDepot,
    to: GenerationNumber,
) -> Result<(ClusterStatus, GenerationNumber), Failure> {
    let mut targets = context.targets.all.clone();
    if !context.targets.narrowed {
        add(context, depot, to, &mut targets)?;
    }
    let ask = |targets: Vec<Target>| async move { gather::cluster_of(&context.client, &targets, StatusOf::All).await };
    let mut now = ask(targets.clone()).await;
    let from = most_common(&now);
    if !context.targets.narrowed && from != GenerationNumber(0) && depot.content(from).is_some() {
        let known = targets.len();
        add(context, depot, from, &mut targets)?;
        now.hosts.extend(ask(targets.split_off(known)).await.hosts);
    }
    Ok((now, from))
}

/// Refuses hosts whose generation has another content in the depot, or is missing there: a plan from the depot would be
/// wrong for them.
fn is_of_depot(context: &Context, screen: &mut Screen, now: &ClusterStatus) -> Result<(), Failure> {
    let Some(depot) = OfDepot::of(&context.targets, now)? else { return Ok(()) };
    depot.tell_ahead(now, screen);
    let contents = depot.contents();
    let other = others(now.hosts.iter(), &contents).into_iter().next();
    let unknown = |h: &&HostStatus| h.reachable && h.generation.is_some_and(|g| !contents.contains_key(&g));
    let lacking = |h: &HostStatus| {
        let generation = h.generation.map(|g| g.to_string()).unwrap_or_default();
        format!("the depot does not have generation {generation}, which {} has", h.name)
    };
    match other.or_else(|| now.hosts.iter().find(unknown).map(lacking)) {
        Some(why) => Err(Failure::refused(format!("no plan is possible from the present state of the hosts: {why}"))
            .hint("was the depot restored from an older copy? see docs/how-to/restore-a-depot.md")),
        None => Ok(()),
    }
}

/// Adds the hosts of a generation that are not among the targets yet.
fn add(
    context: &Context,
    depot: &TrustedDepot,
    generation: GenerationNumber,
    targets: &mut Vec<Target>,
) -> Result<(), Failure> {
    for (name, endpoint) in endpoints(&depot.manifest(generation)?, &context.targets.socket)? {
        if !targets.iter().any(|t| t.name.as_ref() == Some(&name)) {
            targets.push(Target { name: Some(name), endpoint });
        }
    }
    Ok(())
}

/// The generation that most hosts have, the newest among equals; 0 if no host has a generation. New hosts have no
/// generation.
pub(super) fn most_common(now: &ClusterStatus) -> GenerationNumber {
    let mut counts: BTreeMap<GenerationNumber, usize> = BTreeMap::new();
    for generation in now.hosts.iter().filter(|h| h.reachable).filter_map(|h| h.generation) {
        *counts.entry(generation).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(generation, hosts)| (*hosts, *generation)).map(|(most, _)| most).unwrap_or_default()
}

/// Reports the hosts with incomplete data. Returns whether a host could not be reached.
fn tell_where(screen: &mut Screen, now: &ClusterStatus, from: GenerationNumber) -> bool {
    let names = |which: &dyn Fn(&&HostStatus) -> bool| -> Vec<HostName> {
        now.hosts.iter().filter(which).map(|h| h.name.clone()).collect()
    };
    let away = names(&|h| !h.reachable);
    if !away.is_empty() {
        let as_if = match from {
            GenerationNumber(0) => "new hosts".to_owned(),
            from => format!("at generation {from}"),
        };
        screen.problem("warning", &format!("{} could not be reached: assumed to be {as_if}", list(&away, 6)));
    }
    let others = names(&|h| h.reachable && h.generation.is_some_and(|g| g != from));
    if !others.is_empty() {
        let what = format!(
            "not at generation {from}: {}; the plan assumes that all hosts are at this generation",
            list(&others, 6)
        );
        screen.problem("warning", &what);
    }
    let moving = names(&|h| h.reachable && (h.goal().is_some() || !h.converged) && h.generation.is_some());
    if !moving.is_empty() {
        screen.problem("note", &format!("not converged, planned from the present state: {}", list(&moving, 6)));
    }
    !away.is_empty()
}

/// Warns about obstacles that a plan ignores.
fn tell_what_stands(screen: &mut Screen, now: &ClusterStatus, to: GenerationNumber) {
    let left = now.hosts.iter().filter(|h| h.withdrawn.contains(&to)).map(|h| &h.name);
    let left: Vec<_> = left.collect();
    if !left.is_empty() {
        screen.problem("warning", &format!("generation {to} was rolled back on {}", list(&left, 6)));
    }
    let failed = now.hosts.iter().flat_map(|h| &h.cobs).filter(|cob| cob.failed).map(|cob| &cob.id);
    let failed: Vec<_> = failed.collect();
    if !failed.is_empty() {
        let what = format!("failed so far: {}; see `cobctl explain`", list(&failed, 6));
        screen.problem("warning", &what);
    }
    let cut = |h: &HostStatus| {
        let down = h.peers.iter().filter(|p| !p.up && now.hosts.iter().any(|o| o.reachable && o.name == p.host));
        down.map(|p| format!("{} and {}", h.name, p.host)).collect::<Vec<_>>()
    };
    let cut: Vec<String> = now.hosts.iter().filter(|h| h.reachable).flat_map(cut).collect();
    if !cut.is_empty() {
        screen.problem("warning", &format!("no link between {}: requests between these hosts wait", list(&cut, 3)));
    }
}

/// Says which maintenance windows the switch waits for, and whether it may last longer than they are open.
fn tell_windows(
    screen: &mut Screen,
    depot: &TrustedDepot,
    from: GenerationNumber,
    to: GenerationNumber,
    lasts_us: u64,
) {
    let from = Some(from).filter(|from| *from != GenerationNumber(0)).and_then(|from| depot.manifest(from).ok());
    let Ok(to) = depot.manifest(to) else { return };
    let windows = SharedWindows::of_switch(from.as_ref(), &to, |_| true);
    let openings = windows.openings();
    if openings.is_always() {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (by, to) = (String::new(), to.generation);
    let wait = WindowWait { to, by, since_ns: 0, windows, opens_in_s: openings.opens_in(now) };
    match wait.opens_in_s {
        Some(0) => screen.problem("note", "the maintenance windows of all hosts that change are open"),
        Some(_) => screen.problem("note", &window_wait(&wait)),
        None => screen.problem("warning", &window_wait(&wait)),
    }
    let lasts_ns = lasts_us.saturating_mul(1000);
    if let Some(longest) = openings.longest().filter(|s| *s > 0 && s.saturating_mul(1_000_000_000) < lasts_ns) {
        let what = format!(
            "the switch takes about {}, and the windows are open together for {} at most: it runs on after they close",
            span(lasts_ns),
            seconds(longest)
        );
        screen.problem("warning", &what);
    }
}

fn states(now: &ClusterStatus) -> BTreeMap<CobId, StateName> {
    let cobs = now.hosts.iter().flat_map(|host| &host.cobs);
    cobs.filter_map(|cob| Some((cob.id.clone(), cob.state.clone()?))).collect()
}

/// The durations of transitions, from the histories of the hosts.
async fn recorded(context: &Context, screen: &mut Screen, now: &ClusterStatus) -> Result<Durations, Failure> {
    let mut recorded = Transitions::default();
    let mut context = context.clone();
    // The other hosts are already reported as missing.
    let answers = |t: &Target| now.hosts.iter().any(|h| h.reachable && t.name.as_ref().is_none_or(|n| *n == h.name));
    context.targets.all.retain(answers);
    history::each(&context, screen, None, |entry| recorded.take(entry)).await?;
    recorded.end();
    let text = serde_json::to_string(&recorded.lines()).map_err(Failure::environment)?;
    Durations::of_text(&text).map_err(Failure::environment)
}

/// The generation that the hosts have, from the depot.
pub(super) fn generation_of_hosts(context: &Context, now: &ClusterStatus) -> Result<Generation, Failure> {
    let depot = context.targets.need_depot("the depot is needed: it contains services and dependencies")?;
    match most_common(now) {
        GenerationNumber(0) if now.hosts.iter().any(|host| host.reachable) => {
            Err(Failure::refused("no reachable host has an active generation"))
        }
        GenerationNumber(0) => Err(Failure::environment("no host answered")),
        active => depot.whole(active),
    }
}

/// An order to stop, start or restart, for its plan.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// The states in which the concerned objects end, or which they pass.
    pub(super) to: Vec<(CobId, StateName)>,
    /// The objects that the order stops.
    pub(super) stops: BTreeMap<CobId, Stopped>,
}

/// Forecasts an order.
pub(super) async fn of_order(
    context: &Context,
    screen: &mut Screen,
    now: &ClusterStatus,
    active: &Generation,
    way: &Way,
) -> CommandResult {
    is_of_depot(context, screen, now)?;
    let number = active.manifest.generation;
    let away = tell_where(screen, now, number);
    let durations = recorded(context, screen, now).await?;
    let before = as_it_is(active, now);
    let mut after = before.clone();
    after.manifest.generation = GenerationNumber(before.manifest.generation.0 + 1);
    set_preferred(&mut after, &way.to);
    let asked = Asked { durations, states: states(now), stops: way.stops.clone(), seed: 1, ..Asked::default() };
    let sides = Sides::open(Source::Made(&before), Source::Made(&after)).map_err(Failure::from)?;
    let planned = forecast(sides, asked).map_err(|error| match error {
        NoOrder::Depot(error) => Failure::from(error),
        NoOrder::Circle(_) => Failure::refused("no order of transitions carries out this order"),
    })?;
    let mut exit = if away { Exit::Unreached } else { Exit::Yes };
    if !planned.plan.forecast.converges {
        exit = Exit::No;
    }
    if context.json {
        screen.json(&[planned.to_json().map_err(Failure::environment)?])?;
        return Ok(exit);
    }
    for step in &planned.plan.transitions {
        let known = if step.known { "" } else { "  (no recorded duration: 1 s assumed)" };
        let (at, lasts) = (show::time(step.begin_us), show::time(step.end_us - step.begin_us));
        screen.line(&format!("after {at}: {} {} → {}, {lasts}{known}", step.cob, step.from, step.to))?;
    }
    match (planned.plan.transitions.len(), exit) {
        (0, _) => screen.line("no transition would run")?,
        (_, Exit::No) => screen.line("the order would not end; `cobctl explain` will show the waiting objects")?,
        (transitions, _) => {
            let lasts = show::time(planned.plan.forecast.end_us);
            screen.line(&format!("{} in {lasts}", crate::words::count(transitions, "transition")))?;
        }
    }
    Ok(exit)
}

/// The generation with stopped change objects as preferred states.
fn as_it_is(active: &Generation, now: &ClusterStatus) -> Generation {
    let mut generation = active.clone();
    let cobs = now.hosts.iter().flat_map(|host| &host.cobs);
    let stopped: Vec<_> =
        cobs.filter(|cob| cob.stopped.is_some()).map(|cob| (cob.id.clone(), cob.preferred.clone())).collect();
    set_preferred(&mut generation, &stopped);
    generation
}

fn set_preferred(generation: &mut Generation, to: &[(CobId, StateName)]) {
    for (id, state) in to {
        let bundle = generation.bundles.get_mut(&id.host());
        if let Some(cob) = bundle.and_then(|bundle| bundle.cobs.get_mut(id)) {
            Arc::make_mut(cob).preferred = state.clone();
        }
        // Hosts are compared by the hashes of their bundles: this bundle was never published.
        if let Some(host) = generation.manifest.hosts.get_mut(&id.host()) {
            host.bundle.0[..8].copy_from_slice(&generation.manifest.generation.0.to_be_bytes());
            host.bundle.0[8..].fill(0);
        }
    }
}

fn print(context: &Context, screen: &mut Screen, args: &PlanArgs, planned: &Forecasted, away: bool) -> CommandResult {
    if context.json {
        screen.json(&planned.to_json().map_err(Failure::environment)?)?;
    } else if args.dot {
        screen.raw(&show::to_dot(&planned.plan))?;
    } else {
        screen.raw(&painted(&show::in_words(&planned.plan, &planned.difference), screen.is_coloured()))?;
    }
    if let Some(file) = &args.gantt {
        draw(file, planned)?;
    }
    Ok(match planned.plan.forecast.converges {
        false => Exit::No,
        true if away => Exit::Unreached,
        true => Exit::Yes,
    })
}

fn draw(file: &Path, planned: &Forecasted) -> Result<(), Failure> {
    let written = std::fs::write(file, show::to_svg(&planned.plan));
    written.map_err(|error| Failure::environment(format!("can't write {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, host};

    #[test]
    fn the_most_common_generation_counts_and_the_newer_of_equals() {
        let at = |name: &str, generation: u64| {
            let mut host = host(name, generation, Vec::new());
            host.generation = host.generation.filter(|_| generation > 0);
            host
        };
        let of = |hosts: Vec<HostStatus>| most_common(&cluster(hosts)).0;
        assert_eq!(of(vec![at("n1", 3), at("n2", 4), at("n3", 3)]), 3);
        assert_eq!(of(vec![at("n1", 4), at("n2", 3)]), 4);
        assert_eq!(of(vec![at("n1", 0), at("n2", 0), at("n3", 1)]), 1, "new hosts do not count");
        assert_eq!(of(vec![at("n1", 0), at("n2", 0)]), 0);
        let mut away = at("n1", 9);
        away.reachable = false;
        assert_eq!((of(vec![away, at("n2", 2)]), of(Vec::new())), (2, 0));
    }
}
