//! `cobctl pause`, `resume`, `fence`, `mark-departed`: an order to a single daemon, or to all.
//!
//! A daemon answers once the order is durable. A repeated order is harmless.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;

use cob_types::HostName;
use cob_types::api::{Done, Order, StatusOf, order};
use cob_types::status::{ClusterStatus, HostStatus, SwitchWait};
use serde::Serialize;
use serde_with::skip_serializing_none;
use tokio::sync::mpsc;

use super::{Context, leaving, power};
use crate::args::{FenceArgs, MarkDepartedArgs, Which};
use crate::client::{AskError, Client};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather::{self, is_refusal};
use crate::screen::{Paint, Screen};
use crate::targets::Target;
use crate::words::{clean, count, list, span};

/// The most grant holders that are named before a fence.
const SHOWN: usize = 12;

/// The results of an order by host: the JSON of these commands.
#[derive(Debug, Serialize)]
pub(super) struct Answers<T> {
    pub(super) hosts: Vec<Answer<T>>,
}

/// The answer of a host, or the error.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
pub(super) struct Answer<T> {
    pub(super) name: HostName,
    pub(super) reachable: bool,
    #[serde(flatten)]
    pub(super) done: Option<T>,
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) hint: String,
}

impl<T> Answer<T> {
    /// The answer of a host that could not be asked, or whose answer does not count.
    pub(super) fn unreached(name: HostName, error: String, hint: String) -> Self {
        Self { name, reachable: false, done: None, error: Some(error), hint }
    }

    /// Prints the error and its hint.
    pub(super) fn say_error(&self, screen: &mut Screen) {
        let error = self.error.as_deref().unwrap_or_default();
        screen.error(&format!("{}: {}", self.name, clean(error)), &self.hint);
    }

    pub(super) fn new(target: &Target, answer: Result<T, AskError>) -> Self {
        let name = target.stand_in();
        match answer {
            Ok(done) => Self { name, reachable: true, done: Some(done), error: None, hint: String::new() },
            Err(error) => Self {
                name,
                reachable: is_refusal(&error),
                done: None,
                error: Some(error.in_a_line()),
                hint: error.hint(),
            },
        }
    }
}

pub(super) async fn pause(context: &Context, screen: &mut Screen) -> CommandResult {
    let words = ("paused: running transitions finish, no new transitions start", "was paused already");
    to_everybody(context, screen, &order::Pause { who: None }, words, None).await
}

pub(super) async fn resume(context: &Context, screen: &mut Screen) -> CommandResult {
    let words = ("resumed", "was not paused");
    to_everybody(context, screen, &order::Resume { who: None }, words, None).await
}

pub(super) async fn fence(context: &Context, screen: &mut Screen, args: &FenceArgs) -> CommandResult {
    let host = &args.fenced;
    let cluster = gather::cluster(&context.client, &context.targets.all).await;
    if !args.power_off && cluster.hosts.iter().any(|h| h.reachable && h.name == *host) {
        return Err(Failure::refused(format!("{host} answers: a running host cannot be fenced")).hint(format!(
            "it releases its locks by itself; see `cobctl status {host}`; --power-off has its cluster switch it off"
        )));
    }
    warn(screen, host, &cluster);
    if !args.yes {
        let question = match args.power_off {
            true => format!("The power of {host} will be cut. Type its name to fence it:"),
            false => format!("Is {host} certainly off? Type its name to fence it:"),
        };
        confirm(screen, host.as_str(), &question, "fenced")?;
    }
    if args.power_off {
        power::switch_off(context, screen, host, &cluster).await?;
    }
    let others: Vec<Target> = context.targets.all.iter().filter(|t| t.name.as_ref() != Some(host)).cloned().collect();
    let order = order::Fence { host: host.clone(), who: None };
    let words = ("its locks are released", "it had no locks, or was fenced already");
    to_all(context, screen, &others, &order, words).await
}

pub(super) async fn mark_departed(context: &Context, screen: &mut Screen, args: &MarkDepartedArgs) -> CommandResult {
    let (what, named) = (&args.what, args.what.to_string());
    let cluster = gather::cluster(&context.client, &context.targets.all).await;
    let is_meant = |wait: &&SwitchWait| what.covers(&wait.cob);
    if let Which::Host(host) = what
        && cluster.hosts.iter().any(|h| h.reachable && h.name == *host)
    {
        return Err(Failure::refused(format!("{host} answers: name its change objects instead")).hint(format!(
            "`cobctl explain {host}` shows the departing change objects; then `cobctl mark-departed HOST/COB`"
        )));
    }
    let waits = |name: &HostName| {
        let host = cluster.hosts.iter().find(|h| h.name == *name);
        host.is_some_and(|h| h.switch_waits.iter().any(|wait| is_meant(&wait)))
    };
    let waiting: Vec<Target> =
        context.targets.all.iter().filter(|t| t.name.as_ref().is_some_and(waits)).cloned().collect();
    if waiting.is_empty() {
        if let Which::Cob(cob) = what
            && let Some(unknown) = context.unknown(cob).await
        {
            return Err(unknown);
        }
        let silent: Vec<_> = cluster.hosts.iter().filter(|h| !h.reachable).map(|h| &h.name).collect();
        let error = format!("no reachable host waits for {named} to depart");
        return Err(if silent.is_empty() {
            Failure::refused(error).hint("`cobctl explain HOST` shows the waits of a host")
        } else {
            Failure::environment(error).hint(format!("not reachable: {}", list(silent, 6)))
        });
    }
    let names: Vec<_> = waiting.iter().filter_map(|t| t.name.as_ref()).collect();
    let meant: BTreeSet<_> =
        cluster.hosts.iter().flat_map(|h| &h.switch_waits).filter(is_meant).map(|w| &w.cob).collect();
    let label = screen.paint(Paint::Bad, "warning:");
    let without = list(meant, SHOWN);
    screen.say(&format!(
        "{label} {} will continue as if {without} had departed, regardless of the real state",
        list(names, 6)
    ));
    if !args.yes {
        confirm(screen, &named, &format!("Type {named} to mark it as removed:"), "marked as removed")?;
    }
    let (cob, host) = match what.clone() {
        Which::Cob(cob) => (Some(cob), None),
        Which::Host(host) => (None, Some(host)),
    };
    let order = order::MarkDeparted { cob, host, who: None };
    let words = ("counts as departed", "did not wait for it");
    to_all(context, screen, &waiting, &order, words).await
}

/// Lists the grants that a fence releases, as far as the reachable hosts know.
fn warn(screen: &mut Screen, host: &HostName, cluster: &ClusterStatus) {
    let held: Vec<String> = cluster
        .hosts
        .iter()
        .flat_map(|h| &h.cobs)
        .flat_map(|c| c.held_by.iter().map(move |h| (c, h)))
        .filter(|(_, holder)| holder.cob.host_str() == host.as_str())
        .map(|(cob, holder)| format!("{} {}, held by {}", cob.id, holder.state, holder.cob))
        .collect();
    let label = screen.paint(Paint::Bad, "warning:");
    let waits = |h: &&HostStatus| h.switch_waits.iter().any(|wait| wait.cob.host_str() == host.as_str());
    let waiting: Vec<&HostName> = cluster.hosts.iter().filter(waits).map(|h| &h.name).collect();
    if !waiting.is_empty() {
        let wait = if waiting.len() == 1 { "waits" } else { "wait" };
        screen.say(&format!(
            "{label} {} {wait} for departing change objects on {host}, and will stop waiting",
            list(&waiting, 6)
        ));
    }
    if held.is_empty() && waiting.is_empty() {
        screen.say(&format!("{label} no reachable host knows of locks of {host}"));
    } else if !held.is_empty() {
        let promises = count(held.len(), "grant");
        screen.say(&format!("{label} this releases {promises}; {host} may still rely on these unless it is off:"));
        for line in held.iter().take(SHOWN) {
            screen.say(&format!("  {line}"));
        }
        if held.len() > SHOWN {
            screen.say(&format!("  {} more", held.len() - SHOWN));
        }
    }
    let silent: Vec<_> = cluster.hosts.iter().filter(|h| !h.reachable && h.name != *host).map(|h| &h.name).collect();
    if !silent.is_empty() {
        screen.say(&format!(
            "{label} {} could not be asked, and will release no locks until the order is repeated",
            list(silent, 6)
        ));
    }
}

/// Asks the user to type a name before an irreversible order.
fn confirm(screen: &mut Screen, name: &str, question: &str, done: &str) -> Result<(), Failure> {
    let not_confirmed = |why: &str| Err(Failure::usage(format!("{name} is not {done}: {why}")));
    if !io::stdin().is_terminal() {
        return not_confirmed("no terminal to confirm it").map_err(|f| f.hint("--yes skips the question"));
    }
    screen.say(question);
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    if line.trim() == name { Ok(()) } else { not_confirmed("its name was not typed") }
}

/// Sends an order to all hosts and to removed hosts, and prints the answers. If the removed hosts are not known, it
/// searches them without delaying the order.
pub(super) async fn to_everybody<O: Order>(
    context: &Context,
    screen: &mut Screen,
    order: &O,
    words: (&str, &str),
    leave: Option<Vec<Target>>,
) -> CommandResult {
    let found = async {
        if let Some(leave) = leave {
            return Ok(leave);
        }
        let others = gather::cluster_of(&context.client, &context.targets.all, StatusOf::Active).await;
        let found = leaving::find(context, &others, StatusOf::Active).await?;
        Ok::<_, Failure>(found.into_iter().map(|(target, _)| target).collect())
    };
    let (answers, leave) =
        tokio::join!(give(context, screen, &context.client, &context.targets.all, order, words), found);
    let (mut answers, leave): (Vec<_>, Vec<Target>) = (answers?, leave?);
    // A later generation may have given the address of a removed host to another host.
    let client = context.client.clone().meaning(&leave);
    answers.extend(give(context, screen, &client, &leave, order, words).await?);
    finish(context, screen, answers)
}

/// Sends an order to each target, and prints the answers.
pub(super) async fn to_all<O: Order>(
    context: &Context,
    screen: &mut Screen,
    targets: &[Target],
    order: &O,
    words: (&str, &str),
) -> CommandResult {
    let answers = give(context, screen, &context.client, targets, order, words).await?;
    finish(context, screen, answers)
}

/// As [`to_all`], for a command that prints its own answer afterwards: with `--json` it prints the hosts' answers only
/// if no host has accepted the order, or a host refuses. Returns the exit status, and whether a host has accepted it.
pub(super) async fn to_all_first<O: Order>(
    context: &Context,
    screen: &mut Screen,
    order: &O,
    words: (&str, &str),
) -> Result<(Exit, bool), Failure> {
    let answers = give(context, screen, &context.client, &context.targets.all, order, words).await?;
    let is_taken = answers.iter().any(|(_, answer)| answer.is_ok());
    let ended = Exit::of_all(answers.iter().map(|(_, answer)| Exit::of(answer)));
    if ended == Exit::No || !is_taken {
        return Ok((finish(context, screen, answers)?, is_taken));
    }
    Ok((ended, true))
}

/// The recipient of an order, and its answer.
type Answered = (Target, Result<Done, AskError>);

/// Sends an order to each target, and prints the answers as they arrive. An order may take longer than a query: after
/// the timeout of a query, the awaited hosts are reported.
async fn give<O: Order>(
    context: &Context,
    screen: &mut Screen,
    client: &Client,
    targets: &[Target],
    order: &O,
    words: (&str, &str),
) -> Result<Vec<Answered>, Failure> {
    let (tell, mut heard) = mpsc::channel(targets.len().max(1));
    let places: Vec<(usize, Target)> = targets.iter().cloned().enumerate().collect();
    let asked = gather::each(client, &places, |client, (at, target)| {
        let (order, tell) = (order.clone(), tell.clone());
        async move {
            let answer = client.order(&target.endpoint, &order).await;
            // Without a receiver the answer is no longer needed.
            let _ = tell.send((at, (target, answer))).await;
        }
    });
    let mut coming = Coming { json: context.json, words, answers: targets.iter().map(|_| None).collect(), late: false };
    let (mut asked, mut patience) = (std::pin::pin!(asked), std::pin::pin!(tokio::time::sleep(client.timeout())));
    let mut all_asked = false;
    while coming.answers.iter().any(Option::is_none) {
        tokio::select! {
            Some((at, answered)) = heard.recv() => coming.take(screen, at, answered)?,
            _ = &mut asked, if !all_asked => all_asked = true,
            () = &mut patience, if !coming.late => coming.is_late(screen, client, targets)?,
        }
    }
    Ok(coming.answers.into_iter().flatten().map(|one| one.answered).collect())
}

/// The answers to an order, as they arrive.
struct Coming<'w> {
    json: bool,
    words: (&'w str, &'w str),
    /// In the order of the hosts.
    answers: Vec<Option<One>>,
    /// Whether the query timeout is over: then answers are printed without waiting for earlier hosts.
    late: bool,
}

struct One {
    answered: Answered,
    told: bool,
}

impl Coming<'_> {
    fn take(&mut self, screen: &mut Screen, at: usize, answered: Answered) -> Result<(), Failure> {
        self.answers[at] = Some(One { answered, told: false });
        self.tell(screen)
    }

    fn is_late(&mut self, screen: &mut Screen, client: &Client, targets: &[Target]) -> Result<(), Failure> {
        self.late = true;
        self.tell(screen)?;
        let silent = targets.iter().zip(&self.answers).filter(|(_, answer)| answer.is_none());
        let silent: Vec<_> = silent.map(|(target, _)| target.stand_in()).collect();
        say_waits(screen, client, &silent.iter().collect::<Vec<_>>());
        Ok(())
    }

    /// Prints new answers: in the order of the hosts, until a host is late.
    fn tell(&mut self, screen: &mut Screen) -> Result<(), Failure> {
        let (words, late) = (self.words, self.late);
        let there = self.answers.iter_mut().take_while(|answer| late || answer.is_some()).flatten();
        for one in there.filter(|one| !self.json && !one.told) {
            one.told = true;
            tell(screen, &one.answered, words)?;
        }
        Ok(())
    }
}

/// Reports the hosts that have not answered yet.
pub(super) fn say_waits(screen: &mut Screen, client: &Client, silent: &[&HostName]) {
    let after = |time: Duration| span(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let (now, most) = (client.timeout(), client.order_timeout());
    if most > now {
        screen.say(&format!(
            "no answer after {}: waiting for {}, for {} at most",
            after(now),
            list(silent, 6),
            after(most - now)
        ));
    }
}

/// Waits for the answer of a host; reports the wait after the timeout of a query.
pub(super) async fn patiently<T>(
    context: &Context,
    screen: &mut Screen,
    target: &Target,
    asked: impl Future<Output = Result<T, AskError>>,
) -> Result<T, AskError> {
    let mut asked = std::pin::pin!(asked);
    if let Ok(answer) = tokio::time::timeout(context.client.timeout(), &mut asked).await {
        return answer;
    }
    say_waits(screen, &context.client, &[&target.stand_in()]);
    asked.await
}

/// Ends with the results of an order.
fn finish(context: &Context, screen: &mut Screen, answers: Vec<Answered>) -> CommandResult {
    let exit = Exit::of_all(answers.iter().map(|(_, answer)| Exit::of(answer)));
    if context.json {
        screen.json(&Answers {
            hosts: answers.into_iter().map(|(target, answer)| Answer::new(&target, answer)).collect(),
        })?;
    }
    Ok(exit)
}

/// Prints the answer of a host.
fn tell(screen: &mut Screen, (target, answer): &Answered, (changed, unchanged): (&str, &str)) -> Result<(), Failure> {
    let name = target.shown();
    match answer {
        Ok(done) => screen.line(&format!("{name}: {}", told(done, changed, unchanged)))?,
        Err(error) => screen.error(&format!("{name}: {}", error.in_a_line()), &error.hint()),
    }
    Ok(())
}

fn told(done: &Done, changed: &str, unchanged: &str) -> String {
    let words = if done.changed { changed } else { unchanged };
    if done.detail.is_empty() { words.to_owned() } else { format!("{words} ({})", clean(&done.detail)) }
}
