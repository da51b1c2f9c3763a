//! `cobctl switch`: prepare on every host, send `go`, and with `--wait` stay until the end.
//!
//! ```text
//! [prepare]: every host has fetched and verified it   -- a host refuses --> discarded, no change
//!     |
//!     go: durable at each host that is ready; hosts pass it on to their peers
//!     |
//! [wait]: absent hosts are tried repeatedly; the end is converged, failed, or out of time
//! ```
//!
//! Hosts that the generation removes are asked too. An unreachable removed host does not prevent success: most removed
//! hosts are gone. A refusal of a removed host does: its services continue.

mod back;
mod gate;
mod prepare;
mod report;
mod settle;
mod staged;
mod wait;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cob_depot::GenerationName;
use cob_types::api::{Done, StatusOf, SwitchHow, order};
use cob_types::status::{ClusterStatus, HostStatus, SwitchStatus};
use cob_types::switch::OnFailure;
use cob_types::{BlobHash, GenerationNumber, HostName, Manifest};
use tokio::time::Instant;

use super::{Context, leaving, outcomes};
use crate::args::{RollbackArgs, SwitchArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::identity::{Contents, OfDepot};
use crate::screen::Screen;
use crate::signals::Interrupts;
use crate::targets::{Target, endpoints};
use crate::verdict::{Expected, Verdict, fenced, judge};
use crate::words::{clean, count, list};
use back::Consent;
use prepare::{Activation, Ready};
use report::{Report, Then};
use staged::Staged;

/// How long to wait for a switch to the active generation if no wait is given.
const DEFAULT_WAIT: Duration = Duration::from_secs(600);

/// The default time that an answering host has to prepare.
const PREPARE: Duration = Duration::from_secs(30);
/// The pause between two checks whether hosts have started the rollback.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The interval of the messages about awaited hosts.
const TICK: Duration = Duration::from_millis(500);

/// A switch as ordered: the generation, the hosts, and the conditions for success.
struct Plan {
    generation: GenerationNumber,
    /// The hosts that decide the result.
    hosts: Vec<Target>,
    /// Hosts that the generation removes.
    leaving: Vec<Target>,
    expected: Expected,
    how: SwitchHow,
    /// The effective failure policy if the order does not name one; `None`: the policy of the generation is not known.
    policy: Option<OnFailure>,
    /// The newest generation that a host has, or switches to, at the start of the switch.
    newest: GenerationNumber,
    /// Whether it had succeeded on every host before the order: then no outcome has to be recorded.
    had_ended: bool,
    /// The generation that a rollback has abandoned: its outcome is another now.
    left: Option<GenerationNumber>,
    /// The content that the depot has under the number; `None`: no depot is known.
    manifest: Option<BlobHash>,
}

impl Plan {
    /// The order to switch, for all hosts.
    fn order(&self) -> order::Switch {
        let (manifest, seen) = (self.manifest, Some(self.newest));
        order::Switch { manifest, seen, ..order::Switch::new(self.generation, self.how) }
    }

    /// The order for hosts that have received another order before: missing options come from the generation.
    fn order_in_full(&self) -> order::Switch {
        order::Switch { on_failure: self.how.on_failure.or(self.policy), ..self.order() }
    }

    /// The verdict on the hosts of the manifest, and on the removed hosts that can be reached.
    fn verdict(&self, cluster: &ClusterStatus) -> Verdict {
        let leaves = |name: &HostName| self.leaving.iter().any(|t| t.name.as_ref() == Some(name));
        let hosts = cluster.hosts.iter().filter(|h| h.reachable || !leaves(&h.name)).cloned().collect();
        judge(&ClusterStatus { hosts, ..ClusterStatus::default() }, &self.expected)
    }

    fn is_converged(&self, cluster: &ClusterStatus) -> bool {
        matches!(self.verdict(cluster), Verdict::Converged(_))
    }

    /// The fenced hosts of the generation, if all other hosts have converged.
    fn only_fenced_are_left(&self, cluster: &ClusterStatus) -> Option<Vec<HostName>> {
        let fenced = fenced(cluster);
        if fenced.is_empty() {
            return None;
        }
        let Verdict::Unreached(away, wrong) = self.verdict(cluster) else { return None };
        (wrong.is_empty() && away.iter().all(|host| fenced.contains(host))).then_some(away)
    }
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &SwitchArgs) -> CommandResult {
    // A user with a short wait also wants to wait no longer for a single answer.
    let within =
        Context { client: args.wait.map_or(context.client.clone(), |w| context.client.at_most(w)), ..context.clone() };
    run_within(&within, screen, args, Instant::now()).await
}

/// `cobctl rollback`: every host rolls back the generation that it was last told to activate.
pub(super) async fn rollback(context: &Context, screen: &mut Screen, args: &RollbackArgs) -> CommandResult {
    let began = Instant::now();
    let context = &with_those_who_left(context)?;
    let looked = look_back(context, screen, args).await?;
    if let Some(exit) = looked.exit {
        return Ok(exit);
    }
    let generation = args.generation.map(|named| context.generation(named)).transpose()?;
    let order = order::Rollback { generation, prepare: false, who: None };
    let words = match generation {
        Some(_) => ("rolls back", "is at this generation already, or on its way"),
        None => {
            ("rolls back", "has rolled back already, or is on its way; `cobctl rollback N` for an older generation")
        }
    };
    let Some(limit) = args.wait else {
        return super::orders::to_all(context, screen, &context.targets.all, &order, words).await;
    };
    let (told, is_taken) = super::orders::to_all_first(context, screen, &order, words).await?;
    if told == Exit::No || !is_taken {
        return Ok(told);
    }
    let Some((now, switch)) = return_begun(context, &looked.leads_to, began + limit).await else {
        return Err(Failure::refused(
            "the hosts have accepted the order, but no host has started its rollback in that time",
        )
        .hint("`cobctl status` shows their generations"));
    };
    let interrupts = Interrupts::open()?;
    let mut plan = plan_back(context, &switch)?;
    plan.newest = switch.left.unwrap_or(switch.to).max(plan.newest);
    plan.left = switch.left;
    use_rollback(screen, &mut plan, &switch);
    // Some hosts may be back already, so the abandoned generation is searched for removed hosts too.
    add_leaving(context, &mut plan, &now, switch.left)?;
    let mut report = Report::new(plan.generation);
    report.gone = now.hosts.iter().filter(|h| h.reachable).map(|h| h.name.clone()).collect();
    // Absent hosts follow when they are back: other hosts tell them.
    wait::until_ended(context, screen, &plan, Vec::new(), report, (began, began + limit), &interrupts).await
}

/// If the latest generation has no hosts, the rollback is for the hosts of its parent: no other host has switched.
fn with_those_who_left(context: &Context) -> Result<Context, Failure> {
    let mut context = context.clone();
    if context.targets.all.is_empty()
        && let Some(depot) = context.targets.open_depot()?
    {
        let parent = depot.manifest(depot.latest()?)?.parent;
        context.targets.all = leaving::named_in(&context.targets, std::iter::once(parent), &[])?;
        context.client = context.client.clone().meaning(&context.targets.all);
    }
    Ok(context)
}

/// Hosts roll back to the content that was signed as rollback target, even if the depot has another under the number.
fn use_rollback(screen: &mut Screen, plan: &mut Plan, switch: &SwitchStatus) {
    let (Some(own), Some(of_depot)) = (switch.manifest, plan.manifest) else { return };
    if own == of_depot {
        return;
    }
    let (to, own_short, depot) = (switch.to, own.short(), of_depot.short());
    screen.problem(
        "warning",
        &format!("the hosts roll back to their generation {to} (manifest {own_short}); the depot has another generation {to} (manifest {depot})"),
    );
    plan.manifest = Some(own);
    let contents = [(to, own)].into();
    plan.expected = Expected { generation: Some(to), contents, ..Expected::default() };
}

/// The hosts' reports about their rollback targets.
struct Looked {
    /// The result, if this ends the command.
    exit: Option<Exit>,
    /// The generations to which the hosts would roll back.
    leads_to: BTreeSet<GenerationNumber>,
}

/// Asks every host for its rollback target. A host without an answer does not stop the others.
async fn look_back(context: &Context, screen: &mut Screen, args: &RollbackArgs) -> Result<Looked, Failure> {
    let generation = args.generation.map(|named| context.generation(named)).transpose()?;
    let order = order::Rollback { generation, prepare: true, who: None };
    let within = args.wait.unwrap_or(PREPARE).min(PREPARE);
    let looks = gather::each(&context.client, &context.targets.all, |client, target| {
        let order = order.clone();
        async move {
            // A host that does not answer a status query gets less time than a host that searches its rollback target.
            gather::ask(&client, &target, StatusOf::Active).await?;
            client.order_within(&target.endpoint, &order, within).await
        }
    });
    let mut looks = std::pin::pin!(looks);
    let answers = match tokio::time::timeout(2 * context.client.timeout(), &mut looks).await {
        Ok(answers) => answers,
        Err(_) => {
            screen.say("waiting for hosts that look for conflicts");
            looks.await
        }
    };
    // A report for each rollback target.
    let mut reports: BTreeMap<GenerationNumber, Report> = BTreeMap::new();
    let mut hosts: BTreeMap<GenerationNumber, Vec<HostName>> = BTreeMap::new();
    let mut exits = Vec::new();
    for (target, answer) in answers {
        let name = target.stand_in();
        match answer {
            Ok(done @ Done { generation: Some(to), .. }) => {
                hosts.entry(to).or_default().push(name.clone());
                reports.entry(to).or_insert_with(|| Report::new(to)).prepared(&name, done);
            }
            // The order itself will report all other hosts.
            Ok(_) | Err(_) if !args.prepare => {}
            Ok(done) => screen.say(&format!("{name}: {}", clean(&done.detail))),
            Err(error) if context.json && gather::is_refusal(&error) => {
                return Err(Failure::refused(format!("{name}: {}", error.in_a_line())));
            }
            Err(error) => {
                screen.problem("error", &format!("{name}: {}", error.in_a_line()));
                exits.push(Exit::of::<Done>(&Err(error)));
            }
        }
    }
    if let Some(newest) = hosts.keys().next_back().filter(|_| hosts.len() > 1) {
        let each = hosts.iter().map(|(to, hosts)| format!("to {to} on {}", list(hosts, 6)));
        let each: Vec<String> = each.collect();
        return Err(Failure::refused(format!(
            "the hosts would roll back to different generations: {}; no order was given",
            list(&each, 6)
        ))
        .hint(format!("`cobctl rollback {newest}` rolls all hosts back to the same generation")));
    }
    for report in reports.values() {
        let ends = report.excludes(screen, args.despite_conflicts, args.prepare);
        if ends || args.prepare {
            if context.json {
                screen.json(report)?;
            }
            exits.push(report.prepared_only(screen));
        }
    }
    let worst = Exit::of_all(exits);
    let exit = (worst != Exit::Yes || args.prepare).then_some(worst);
    Ok(Looked { exit, leads_to: reports.into_keys().collect() })
}

/// Waits until a host has started its rollback: after it has accepted the order, it has to find the generation. A
/// rollback to a target that the hosts did not name is an earlier rollback.
async fn return_begun(
    context: &Context,
    leads_to: &BTreeSet<GenerationNumber>,
    deadline: Instant,
) -> Option<(ClusterStatus, SwitchStatus)> {
    let is_meant = |to: &GenerationNumber| leads_to.is_empty() || leads_to.contains(to);
    loop {
        let now = gather::cluster_of(&context.client, &context.targets.all, StatusOf::Active).await;
        let returns =
            |host: &HostStatus| host.switch.clone().filter(|switch| switch.left.is_some() && is_meant(&switch.to));
        if let Some(switch) = now.hosts.iter().find_map(returns) {
            return Some((now, switch));
        }
        if Instant::now() >= deadline {
            return None;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn run_within(context: &Context, screen: &mut Screen, args: &SwitchArgs, began: Instant) -> CommandResult {
    let mut plan = plan(context, args.generation)?;
    plan.how = how(args, context.targets.narrowed);
    let first = look(context, &mut plan).await;
    if args.generation == GenerationName::LATEST {
        withdrawn_everywhere(&plan, &first)?;
    }
    let known = first.hosts.iter().filter_map(|h| h.newest());
    plan.newest = known.max().unwrap_or_default();
    leads_back(context, screen, args, &plan, &first).await?;
    add_leaving(context, &mut plan, &first, None)?;
    // Also hosts that an earlier order still removes, and hosts of the parent generation, in case no host of the new
    // generation has been in it.
    let parent = context.targets.manifest(plan.generation)?.map(|manifest| manifest.parent);
    let told = first.hosts.iter().flat_map(leaving::generations).chain(parent);
    for (target, _) in leaving::find_in(context, told, StatusOf::Active).await? {
        if !plan.hosts.iter().chain(&plan.leaving).any(|known| known.name == target.name) {
            plan.leaving.push(target);
        }
    }
    // A later generation may have given the address of a removed host to another host.
    let called: Vec<Target> = plan.hosts.iter().chain(&plan.leaving).cloned().collect();
    let context = &Context { client: context.client.clone().meaning(&called), ..context.clone() };
    let stages = staged::find(context, screen, args, &plan, &first)?;
    plan.had_ended = plan.hosts.iter().all(|t| is_there(&first, t, &plan) && has_settled(&first, t));
    let mut report = Report::new(plan.generation);
    if args.max_failures > 0 {
        let held = first.hosts.iter().filter(|h| h.held == Some(plan.generation));
        report.held_before = held.map(|h| h.name.clone()).collect();
    }
    let due: Vec<Target> = plan.hosts.iter().filter(|t| !is_there(&first, t, &plan)).cloned().collect();
    let has_it: Vec<Target> = plan.hosts.iter().filter(|t| is_on_other_terms(&first, t, &plan)).cloned().collect();
    // No host of the generation could tell the removed hosts.
    let all_leave = plan.hosts.is_empty() && !plan.leaving.is_empty();
    if due.is_empty() && !all_leave && args.prepare {
        report.finish(context, screen, &first, &plan.expected)?;
        screen.say(&format!("generation {} is active or pending on all its hosts", plan.generation));
        return Ok(Exit::Yes);
    }
    if due.is_empty() && !all_leave {
        let deadline = began + args.wait.unwrap_or(DEFAULT_WAIT);
        let until = args.wait.map(|w| began + w);
        let interrupts = Interrupts::open()?;
        let order = (&plan.order_in_full(), until);
        let absent = give_order(context, screen, &plan, &has_it, order, &interrupts, &mut report).await?;
        return wait::until_ended(context, screen, &plan, absent, report, (began, deadline), &interrupts).await;
    }
    let answers = prepare_all(context, screen, args, &plan, &due, &first, began).await;
    let leaves = |target: &Target| plan.leaving.contains(target);
    let mut ready = Vec::new();
    let (mut absent, mut away) = (Vec::new(), Vec::new());
    let mut refused = false;
    for (target, answer) in answers {
        match answer {
            Ready::Yes(done) => {
                report.prepared(&target.stand_in(), done);
                ready.push(target);
            }
            Ready::Absent(error) => {
                if !leaves(&target) {
                    absent.push(target.clone());
                }
                away.push((target, error));
            }
            Ready::Refused(error) => {
                report.refused(screen, &target, leaves(&target), &error);
                refused |= all_leave || !leaves(&target);
            }
        }
    }
    let some_there = due.len() < plan.hosts.len();
    let lacks_one = args.require_all && !absent.is_empty();
    let some_ready = ready.iter().any(|target| all_leave || due.contains(target));
    let discarded = refused || lacks_one || !(some_there || some_ready);
    for (target, error) in &away {
        let then = match (discarded, leaves(target)) {
            (true, _) => Then::CalledOff,
            (false, true) => Then::Leaves,
            (false, false) => Then::Follows,
        };
        report.absent(screen, target, then, error);
    }
    if discarded {
        let had_it = |target: &Target| {
            let status = first.hosts.iter().find(|h| h.name == target.stand_in());
            status.is_some_and(|h| h.prepared.contains(&plan.generation))
        };
        let others: Vec<Target> = ready.into_iter().filter(|target| !had_it(target)).collect();
        staged::forget(context, screen, plan.generation, &others).await;
        let why = match (refused, lacks_one) {
            (true, _) => "a host refuses the generation",
            (false, true) => "not all hosts could be reached (--require-all)",
            (false, false) => "no host could be reached",
        };
        screen.problem("error", &format!("the switch has not started, no host has changed: {why}"));
        report.finish(context, screen, &first, &plan.expected)?;
        return Ok(if refused { Exit::No } else { Exit::Unreached });
    }
    report.links(screen);
    if report.excludes(screen, args.despite_conflicts, args.prepare) || args.prepare {
        report.finish(context, screen, &first, &plan.expected)?;
        return Ok(report.prepared_only(screen));
    }
    let mut began = began;
    let (mut last, mut tolerates) = (ready.clone(), false);
    // Every host gets the order, also after Ctrl-C.
    let interrupts = &Interrupts::open()?;
    if let Some(stages) = &stages {
        let before = &gather::cluster(&context.client, &called).await;
        let run = staged::Run { context, args, plan: &plan, first: &first, before, ready: &ready, interrupts };
        match run.go(screen, &mut report, stages).await {
            // Each stage has had its own time.
            Staged::Rest { hosts, tolerates: some } => (last, began, tolerates) = (hosts, Instant::now(), some),
            Staged::Away(hosts) => {
                let cluster = gather::cluster(&context.client, &plan.hosts).await;
                outcomes::record(context, screen, &plan.hosts, std::iter::empty(), plan.generation).await;
                let (did, stay) =
                    if hosts.len() == 1 { ("did", "keeps its generation") } else { ("did", "keep their generations") };
                let why = format!("{} {did} not answer and {stay}; the others have converged", list(&hosts, 8));
                let hint = "the same command continues with these hosts when they are back".to_owned();
                report.stopped(context, screen, &cluster, (why, vec![hint]))?;
                return Ok(Exit::Unreached);
            }
            Staged::Ended(why, hints) => {
                let cluster = gather::cluster(&context.client, &plan.hosts).await;
                outcomes::record(context, screen, &plan.hosts, std::iter::empty(), plan.generation).await;
                return report.stopped(context, screen, &cluster, (why, hints));
            }
        }
    }
    // A host that learns of the switch from another host adopts that host's options.
    let mut order = if has_it.is_empty() { plan.order() } else { plan.order_in_full() };
    if tolerates {
        order.on_failure = Some(OnFailure::Hold);
    }
    last.extend(has_it);
    let order = (&order, args.wait.map(|w| began + w));
    let told = give_order(context, screen, &plan, &last, order, interrupts, &mut report).await?;
    absent.extend(told);
    plan.leaving.retain(|t| report.has_taken(&t.stand_in()));
    if report.is_refused() {
        let cluster = gather::cluster(&context.client, &plan.hosts).await;
        report.finish(context, screen, &cluster, &plan.expected)?;
        return Ok(Exit::No);
    }
    if args.require_all && !report.window_waits.is_empty() {
        let why = windows::not_all(&report.window_waits);
        let waiting: Vec<Target> =
            plan.hosts.iter().filter(|t| report.window_waits.contains_key(&t.stand_in())).cloned().collect();
        staged::forget(context, screen, plan.generation, &waiting).await;
        let cluster = gather::cluster(&context.client, &plan.hosts).await;
        return report.stopped(context, screen, &cluster, (why, Vec::new()));
    }
    if let Some(exit) = windows::ended(context, screen, &report, args.wait.map(|wait| began + wait))? {
        return Ok(exit);
    }
    match args.wait {
        Some(limit) => {
            wait::until_ended(context, screen, &plan, absent, report, (began, began + limit), interrupts).await
        }
        None => report.ordered(context, screen, &absent),
    }
}

/// Orders these hosts to switch, until a time. Returns the hosts that shall follow when they are back.
async fn give_order(
    context: &Context,
    screen: &mut Screen,
    plan: &Plan,
    targets: &[Target],
    (order, until): (&order::Switch, Option<Instant>),
    interrupts: &Interrupts,
    report: &mut Report,
) -> Result<Vec<Target>, Failure> {
    let answers = tokio::select! {
        answers = prepare::switch(&context.client, targets, order, until) => answers,
        failure = interrupts.insisted() => {
            return Err(failure.hint("hosts that have the order go on, and tell the others; see `cobctl status`"));
        }
    };
    let mut absent = Vec::new();
    for (target, answer) in answers {
        let leaves = plan.leaving.contains(&target);
        match answer {
            Activation::Yes => report.gone.push(target.stand_in()),
            Activation::Waits(wait) => _ = report.window_waits.insert(target.stand_in(), wait),
            Activation::Absent(error) => {
                report.absent(screen, &target, if leaves { Then::Leaves } else { Then::Follows }, &error);
                if !leaves {
                    absent.push(target);
                }
            }
            Activation::Refused(error) => report.refused(screen, &target, leaves, &error),
        }
    }
    Ok(absent)
}

/// Refuses a switch to an older generation without consent. Warns if the depot lacks the newest generation that hosts
/// know: then its latest generation may be older.
async fn leads_back(
    context: &Context,
    screen: &mut Screen,
    args: &SwitchArgs,
    plan: &Plan,
    first: &ClusterStatus,
) -> Result<(), Failure> {
    let depot = OfDepot::of(&context.targets, first)?.filter(|_| args.generation == GenerationName::LATEST);
    if let Some(depot) = depot {
        depot.tell_ahead(first, screen);
    }
    let Some(words) = back::in_words(plan.generation, first) else { return Ok(()) };
    if args.prepare {
        screen.problem("note", &words);
        return Ok(());
    }
    let generation = plan.generation;
    let hint = match back::consent(screen, args.back, &words).await {
        Consent::Given => return Ok(()),
        Consent::Denied => format!("`cobctl switch {generation} --back` switches back without a question"),
        Consent::Missing => format!(
            "`cobctl switch {generation} --back` switches back; `cobctl rollback` switches each host to the generation before its \
             present one"
        ),
    };
    Err(Failure::refused(format!("{words}; no order was given")).hint(hint))
}

/// Refuses a newest generation that all its hosts have rolled back: to repeat it, the operator has to name it.
fn withdrawn_everywhere(plan: &Plan, first: &ClusterStatus) -> Result<(), Failure> {
    let goes = |host: &&HostStatus| host.newest() == Some(plan.generation);
    let left: Vec<&HostName> =
        first.hosts.iter().filter(|h| h.withdrawn.contains(&plan.generation)).map(|h| &h.name).collect();
    if left.is_empty() || first.hosts.iter().any(|host| goes(&host)) {
        return Ok(());
    }
    let why = first.hosts.iter().filter_map(|h| h.switch.as_ref()).find(|s| s.left == Some(plan.generation));
    let why = why.map(|switch| format!(": {}", clean(&switch.why))).unwrap_or_default();
    let (generation, hosts) = (plan.generation, list(&left, 6));
    Err(Failure::refused(format!("generation {generation}, the latest, was rolled back on {hosts}{why}"))
        .hint(format!("publish a fixed generation; or retry with the number: `cobctl switch {generation}`")))
}

/// The options of the order besides the generation. An order with named hosts is for these alone.
fn how(args: &SwitchArgs, narrowed: bool) -> SwitchHow {
    let guard_ms = args.guard.map(|guard| u64::try_from(guard.as_millis()).unwrap_or(u64::MAX));
    SwitchHow { on_failure: args.on_failure.map(Into::into), guard_ms, alone: narrowed, now: args.now }
}

/// Makes the hosts that lack the generation prepare it, removed hosts too; reports awaited hosts meanwhile.
async fn prepare_all(
    context: &Context,
    screen: &mut Screen,
    args: &SwitchArgs,
    plan: &Plan,
    due: &[Target],
    first: &ClusterStatus,
    began: Instant,
) -> Vec<(Target, Ready)> {
    let now = Instant::now();
    let asked: Vec<(Target, Instant)> = due
        .iter()
        .chain(&plan.leaving)
        .map(|target| {
            let answers = first.hosts.iter().any(|h| h.reachable && target.name.as_ref() == Some(&h.name));
            let limit = patience(args, context.client.timeout(), answers);
            (target.clone(), args.wait.map_or(now + limit, |wait| (now + limit).min(began + wait)))
        })
        .collect();
    screen.say(&format!("generation {}: preparing on {}", plan.generation, count(asked.len(), "host")));
    let pending = prepare::Pending::default();
    let mut progress = report::Progress::default();
    let mut preparing = std::pin::pin!(prepare::all(&context.client, &asked, plan, &pending));
    let answers = loop {
        tokio::select! {
            answers = &mut preparing => break answers,
            () = tokio::time::sleep(TICK) => {
                let line = format!("generation {}: preparing, waiting for {}", plan.generation, pending.in_words());
                progress.line(screen, line);
            }
        }
    };
    progress.clear(screen);
    answers
}

/// How long a host may take to prepare. A host that did not answer the first query gets less time than a host that may
/// be fetching, and leaves time for the others.
fn patience(args: &SwitchArgs, timeout: Duration, answers: bool) -> Duration {
    match (args.prepare_timeout, args.wait) {
        (Some(given), _) => given,
        (None, _) if answers => PREPARE,
        (None, Some(wait)) => timeout.min(wait / 2),
        (None, None) => timeout,
    }
}

/// The plan for a named generation and its hosts.
fn plan(context: &Context, wanted: GenerationName) -> Result<Plan, Failure> {
    let targets = &context.targets;
    let generation = context.generation(wanted)?;
    let (manifest, hash) = (targets.manifest(generation)?, targets.content(generation)?);
    plan_of(context, generation, manifest, hash)
}

/// The plan of a rollback, from its target generation; the empty generation is derived from the abandoned one.
fn plan_back(context: &Context, switch: &SwitchStatus) -> Result<Plan, Failure> {
    let nothing = GenerationNumber(0);
    let Some(left) = switch.left.filter(|_| switch.to == nothing) else {
        return plan(context, GenerationName::Number(switch.to));
    };
    let manifest = context.targets.manifest(left)?.map(|manifest| manifest.emptied());
    plan_of(context, nothing, manifest, None)
}

fn plan_of(
    context: &Context,
    generation: GenerationNumber,
    manifest: Option<Manifest>,
    manifest_hash: Option<BlobHash>,
) -> Result<Plan, Failure> {
    let targets = &context.targets;
    let contents: Contents = manifest_hash.map(|hash| (generation, hash)).into_iter().collect();
    let policy = manifest.as_ref().map(|manifest| manifest.policy.on_failure);
    let (hosts, expected) = match manifest {
        Some(manifest) if !targets.narrowed => {
            let expected = Expected { contents, ..Expected::of(&manifest) };
            (Target::all_of(endpoints(&manifest, &targets.socket)?), expected)
        }
        manifest => {
            // Only the named hosts; the manifest's expectations for them still hold.
            let of_manifest = manifest.as_ref().map(Expected::of).unwrap_or_default();
            let mut expected = Expected { generation: Some(generation), contents, ..of_manifest };
            expected.cobs.retain(|name, _| targets.all.iter().any(|t| t.name.as_ref() == Some(name)));
            (targets.all.clone(), expected)
        }
    };
    Ok(Plan {
        generation,
        hosts,
        leaving: Vec::new(),
        expected,
        how: SwitchHow::default(),
        policy,
        newest: generation,
        had_ended: false,
        left: None,
        manifest: manifest_hash,
    })
}

/// Finds the hosts of the active generations, and of the abandoned generation, that the new generation does not have.
fn add_leaving(
    context: &Context,
    plan: &mut Plan,
    now: &ClusterStatus,
    left: Option<GenerationNumber>,
) -> Result<(), Failure> {
    let active = now.hosts.iter().filter_map(|h| h.generation).chain(left);
    plan.leaving = leaving::named_in(&context.targets, active.filter(|g| *g != plan.generation), &plan.hosts)?;
    Ok(())
}

/// The first query to every host. A daemon that was named only by its address is known by its answered name from here
/// on.
async fn look(context: &Context, plan: &mut Plan) -> ClusterStatus {
    let answers = gather::each(&context.client, &plan.hosts, |client, target| async move {
        gather::status(&client, &target, StatusOf::Active).await
    })
    .await;
    for (target, (_, status)) in plan.hosts.iter_mut().zip(&answers) {
        if status.reachable {
            target.name = Some(status.name.clone());
        }
    }
    gather::picture(answers.into_iter().map(|(_, status)| status))
}

/// Whether a host has been converged since its generation was activated.
fn has_settled(cluster: &ClusterStatus, target: &Target) -> bool {
    cluster.hosts.iter().any(|h| h.settled && target.name.as_ref() == Some(&h.name))
}

/// Whether a host has the generation, and still needs a `go` with other options: its peers may need to know them.
fn is_on_other_terms(cluster: &ClusterStatus, target: &Target, plan: &Plan) -> bool {
    let alone = cluster.hosts.iter().any(|h| h.alone && target.name.as_ref() == Some(&h.name));
    let other = plan.how.on_failure.is_some() || alone && !plan.how.alone;
    other && is_there(cluster, target, plan)
}

/// Whether a host has the generation active, with no switch under way.
fn is_there(cluster: &ClusterStatus, target: &Target, plan: &Plan) -> bool {
    let host = cluster.hosts.iter().find(|h| target.name.as_ref() == Some(&h.name));
    // A daemon of the previous version does not report its content.
    let is_another = |h: &HostStatus| matches!((h.manifest, plan.manifest), (Some(has), Some(wanted)) if has != wanted);
    host.is_some_and(|h| h.reachable && h.generation == Some(plan.generation) && h.goal().is_none() && !is_another(h))
}
