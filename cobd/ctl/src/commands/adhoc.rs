//! `cobctl run`: a command on many hosts at once, with its output and its end on each; and the output that hosts have kept
//! of earlier commands.

use std::collections::BTreeSet;
use std::sync::Arc;

use cob_types::command_run::{RunEnd, RunEvent, RunExit, RunId, RunOrder, StoredRun, shown};
use cob_types::{Command, HostName};
use serde::Serialize;
use serde_with::skip_serializing_none;
use tokio::signal::unix::SignalKind;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::{Context, objects};
use crate::args::{RunArgs, Selection};
use crate::client::{AskError, Client};
use crate::failure::{CommandResult, Exit, Failure};
use crate::gather;
use crate::screen::{Mark, Paint, Screen};
use crate::signals::Ends;
use crate::targets::Target;
use crate::words::{clean_lines, count, list, span};

/// News that wait to be shown: hosts that print faster wait.
const NEWS: usize = 64;
/// A line without an end is shown in pieces of so many bytes.
const LONGEST_LINE: usize = 16 << 10;
/// The most bytes of an output stream that are accepted from a host.
const MOST_OF_HOST: usize = 4 << 20;

/// News of a host.
enum News {
    /// The name by which it answers.
    Host(HostName),
    /// A part of its standard output (true) or its standard error.
    Text(bool, String),
    /// The last of it.
    Over(Outcome),
}

/// The outcome of the command on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Ended(RunEnd),
    /// The daemon said no.
    Refused(String, String),
    /// It did not answer.
    Unreachable(String, String),
    /// The connection broke before the end was told.
    Disconnected(String),
    /// The operator has ended it.
    Interrupted,
}

impl Outcome {
    fn of(error: &AskError) -> Self {
        if error.is_from_daemon() {
            Self::Refused(error.in_a_line(), error.hint())
        } else {
            Self::Unreachable(error.in_a_line(), error.hint())
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Ended(end) if end.is_success() => Exit::Yes,
            Self::Ended(_) | Self::Refused(..) => Exit::No,
            Self::Unreachable(..) | Self::Disconnected(_) | Self::Interrupted => Exit::Unreached,
        }
    }

    /// The word for the JSON.
    fn word(&self) -> &'static str {
        match self {
            Self::Ended(_) => "ended",
            Self::Refused(..) => "refused",
            Self::Unreachable(..) => "unreachable",
            Self::Disconnected(_) => "disconnected",
            Self::Interrupted => "interrupted",
        }
    }

    fn told(&self) -> String {
        match self {
            Self::Ended(end) => end.to_string(),
            Self::Refused(why, _) => format!("refused: {why}"),
            Self::Unreachable(why, _) => format!("not reached: {why}"),
            Self::Disconnected(why) => {
                format!("result not known: {why}; the host ends the command, `cobctl history` tells how it ended")
            }
            Self::Interrupted => "interrupted: the host ends the command".to_owned(),
        }
    }
}

/// Splits an output stream into lines.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn take(&mut self, text: &str) -> Vec<String> {
        self.0.push_str(text);
        let mut lines = Vec::new();
        while let Some(end) = self.0.find('\n') {
            let rest = self.0.split_off(end + 1);
            let line = std::mem::replace(&mut self.0, rest);
            lines.push(line.trim_end_matches(['\n', '\r']).to_owned());
        }
        if self.0.len() > LONGEST_LINE {
            lines.push(std::mem::take(&mut self.0));
        }
        lines
    }

    fn rest(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.0)).filter(|rest| !rest.is_empty())
    }
}

/// A host and its news so far.
struct Heard {
    name: HostName,
    lines: [Lines; 2],
    /// All text, for JSON.
    text: [String; 2],
    outcome: Option<Outcome>,
}

#[skip_serializing_none]
#[derive(Serialize)]
struct HostInJson<'a> {
    host: &'a HostName,
    outcome: &'static str,
    succeeded: bool,
    exit: Option<&'a RunExit>,
    took_ms: Option<u64>,
    cut: Option<u64>,
    stdout: &'a str,
    stderr: &'a str,
    error: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: &'a str,
}

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &RunArgs) -> CommandResult {
    let targets = targets(context, args).await?;
    let order = order(context, args)?;
    if args.plan {
        return plan(context, screen, args, &targets, &order);
    }
    let mut hosts: Vec<Heard> = targets.iter().map(Heard::of).collect();
    let told = follow(context, screen, args, targets, &order, &mut hosts).await;
    let interrupted = told?;
    for host in &mut hosts {
        host.outcome.get_or_insert(Outcome::Interrupted);
    }
    if context.json {
        let told: Vec<HostInJson<'_>> = hosts.iter().map(Heard::in_json).collect();
        screen.json(&serde_json::json!({"run": order.run, "command": order.command, "hosts": told}))?;
    } else {
        summary(screen, &hosts, order.run);
    }
    match interrupted {
        Some(failure) => Err(failure),
        None => Ok(Exit::of_all(hosts.iter().filter_map(|host| host.outcome.as_ref()).map(Outcome::exit))),
    }
}

/// Shows the news of the hosts until the command has ended on all of them; gives the interruption, if there was any.
async fn follow(
    context: &Context,
    screen: &mut Screen,
    args: &RunArgs,
    targets: Vec<Target>,
    order: &RunOrder,
    hosts: &mut [Heard],
) -> Result<Option<Failure>, Failure> {
    let mut ends = Ends::open()?;
    let mut interrupt = tokio::signal::unix::signal(SignalKind::interrupt())?;
    let mut abandoned = std::pin::pin!(screen.abandoned());
    let (tell, mut news) = mpsc::channel(NEWS);
    // Dropped, they close their connections.
    let _asked = ask_all(&context.client, targets, order, usize::from(args.parallel), tell);
    let mut width = width_of(hosts);
    loop {
        let told = tokio::select! {
            biased;
            failure = ends.next() => return Ok(Some(failure)),
            _ = interrupt.recv() => return Ok(Some(Failure::ended_by(SignalKind::interrupt()))),
            error = &mut abandoned => return Err(error.into()),
            told = news.recv() => told,
        };
        let Some((at, told)) = told else { return Ok(None) };
        let Some(host) = hosts.get_mut(at) else { continue };
        match told {
            News::Host(name) => {
                host.name = name;
                width = width_of(hosts);
            }
            News::Text(out, text) if context.json => host.text[usize::from(!out)].push_str(&text),
            News::Text(out, text) => {
                for line in host.lines[usize::from(!out)].take(&text) {
                    show(screen, &host.name, width, out, &line)?;
                }
            }
            News::Over(outcome) => {
                for out in [true, false] {
                    if let Some(rest) = host.lines[usize::from(!out)].rest() {
                        show(screen, &host.name, width, out, &rest)?;
                    }
                }
                host.outcome = Some(outcome);
            }
        }
    }
}

/// The width of the longest name.
fn width_of(hosts: &[Heard]) -> usize {
    hosts.iter().map(|host| host.name.as_str().len()).max().unwrap_or(0)
}

fn show(screen: &mut Screen, host: &HostName, width: usize, out: bool, line: &str) -> Result<(), Failure> {
    let before = screen.paint(Paint::Dim, &format!("{:width$} |", host.as_str()));
    let is_live = if out { screen.is_live() } else { screen.is_err_live() };
    let line = if is_live { clean_lines(line) } else { line.to_owned() };
    if out {
        screen.raw(&format!("{before} {line}\n"))?;
    } else {
        screen.say(&format!("{before} {line}"));
    }
    Ok(())
}

/// Has all hosts run it, so many at the same time.
fn ask_all(
    client: &Client,
    targets: Vec<Target>,
    order: &RunOrder,
    at_once: usize,
    tell: mpsc::Sender<(usize, News)>,
) -> JoinSet<()> {
    let places = Arc::new(Semaphore::new(at_once));
    let mut asked = JoinSet::new();
    for (at, target) in targets.into_iter().enumerate() {
        let (client, order, places, tell) = (client.clone(), order.clone(), Arc::clone(&places), tell.clone());
        asked.spawn(async move {
            let _place = places.acquire().await;
            let outcome = on_host(&client, &target, &order, at, &tell).await;
            // Without a listener cobctl ends.
            let _ = tell.send((at, News::Over(outcome))).await;
        });
    }
    asked
}

/// Runs the command on a host, and passes the host's news on.
async fn on_host(
    client: &Client,
    target: &Target,
    order: &RunOrder,
    at: usize,
    tell: &mpsc::Sender<(usize, News)>,
) -> Outcome {
    let mut events = match client.run(&target.endpoint, order).await {
        Ok(events) => events,
        Err(error) => return Outcome::of(&error),
    };
    let mut printed = [0; 2];
    loop {
        let (out, text) = match events.next().await {
            Ok(Some(RunEvent::Begun { host, .. })) => {
                if target.name.as_ref().is_some_and(|name| *name != host) {
                    return Outcome::Unreachable(format!("{} answers as {host}", target.endpoint), String::new());
                }
                if tell.send((at, News::Host(host))).await.is_err() {
                    return Outcome::Interrupted;
                }
                continue;
            }
            Ok(Some(RunEvent::Out(text))) => (true, text),
            Ok(Some(RunEvent::Err(text))) => (false, text),
            Ok(Some(RunEvent::Ended(end))) => return Outcome::Ended(end),
            Ok(None) => return Outcome::Disconnected("the connection broke".to_owned()),
            Err(error) => return Outcome::Disconnected(error.in_a_line()),
        };
        let printed = &mut printed[usize::from(!out)];
        *printed += text.len();
        if *printed > MOST_OF_HOST {
            return Outcome::Disconnected("the host sends more than commands may print".to_owned());
        }
        if tell.send((at, News::Text(out, text))).await.is_err() {
            return Outcome::Interrupted;
        }
    }
}

/// The selected hosts; all hosts only with --all.
async fn targets(context: &Context, args: &RunArgs) -> Result<Vec<Target>, Failure> {
    let all = &context.targets.all;
    if let Some(hosts) = named(context, &args.on)? {
        // An empty list would select all hosts.
        if hosts.is_empty() {
            return Err(Failure::usage("the selection has no host"));
        }
        return context.only(&hosts.into_iter().collect::<Vec<_>>()).await;
    }
    // A host that was named otherwise, or the daemon of this machine.
    let is_one = context.targets.narrowed || context.targets.depot.is_none() && all.len() == 1;
    if args.all || is_one {
        return Ok(all.clone());
    }
    let what = format!("on which hosts? There are {}", list(all.iter().map(Target::stand_in), 4));
    Err(Failure::usage(what).hint("name the hosts with --hosts web1,web2, or say --all"))
}

/// The hosts of the selection. Names need no depot; labels are in its newest manifest.
fn named(context: &Context, on: &Selection) -> Result<Option<BTreeSet<HostName>>, Failure> {
    if on.labels.is_empty() {
        return Ok(Some(on.hosts.iter().cloned().collect()).filter(|hosts: &BTreeSet<HostName>| !hosts.is_empty()));
    }
    let depot = context.targets.need_depot("the depot has the labels of hosts")?;
    objects::selected(&depot.newest()?.manifest, on)
}

/// A number for a new run.
pub(super) fn new_run() -> Result<RunId, String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| format!("no random number: {error}"))?;
    Ok(RunId::of(u64::from_ne_bytes(random)))
}

fn order(context: &Context, args: &RunArgs) -> Result<RunOrder, Failure> {
    let command = match &args.shell {
        Some(line) => Command::Shell(line.clone()),
        None => Command::Argv(args.command.clone()),
    };
    Ok(RunOrder {
        command,
        run: Some(new_run().map_err(Failure::environment)?),
        user: args.user.clone(),
        cwd: args.cwd.clone(),
        env: args.variables.iter().cloned().collect(),
        timeout_ms: u64::try_from(args.time_limit.as_millis()).ok(),
        who: context.client.who(),
    })
}

fn plan(context: &Context, screen: &mut Screen, args: &RunArgs, targets: &[Target], order: &RunOrder) -> CommandResult {
    let names: Vec<HostName> = targets.iter().map(Target::stand_in).collect();
    if context.json {
        screen.json(
            &serde_json::json!({"plan": true, "order": RunOrder { run: None, ..order.clone() }, "hosts": names}),
        )?;
        return Ok(Exit::Yes);
    }
    screen.line(&format!("would run: {}", shown(&order.command)))?;
    let user = order.user.as_ref().map(|user| format!("as {user}, ")).unwrap_or_default();
    let limit = span(u64::try_from(args.time_limit.as_nanos()).unwrap_or(u64::MAX));
    let cwd = order.cwd.as_deref().unwrap_or("/");
    screen.line(&format!("{user}in {cwd}, for at most {limit}, on {}:", count(names.len(), "host")))?;
    for name in &names {
        screen.line(&format!("  {name}"))?;
    }
    screen.say("no command was run (--plan)");
    Ok(Exit::Yes)
}

/// A line for each host, and how many succeeded.
fn summary(screen: &mut Screen, hosts: &[Heard], run: Option<RunId>) {
    let width = width_of(hosts);
    let mut hints = BTreeSet::new();
    for host in hosts {
        let Some(outcome) = &host.outcome else { continue };
        let (mark, paint) = match outcome.exit() {
            Exit::Yes => (Mark::Good, Paint::Good),
            Exit::No => (Mark::Bad, Paint::Bad),
            Exit::Unreached => (Mark::Unknown, Paint::Bad),
        };
        let sign = screen.paint(paint, &mark.sign().to_string());
        screen.say(&format!("{sign} {:width$}  {}", host.name.as_str(), clean_lines(&outcome.told())));
        if let Outcome::Refused(_, hint) | Outcome::Unreachable(_, hint) = outcome {
            hints.extend((!hint.is_empty()).then_some(hint));
        }
    }
    let named = |exit: Exit| {
        let of = hosts.iter().filter(move |host| host.outcome.as_ref().is_some_and(|o| o.exit() == exit));
        of.map(|host| host.name.clone()).collect::<Vec<_>>()
    };
    let (failed, unknown) = (named(Exit::No), named(Exit::Unreached));
    let mut text = format!("succeeded on {} of {}", named(Exit::Yes).len(), count(hosts.len(), "host"));
    for (word, names) in [("failed on", failed), ("not known of", unknown)] {
        if !names.is_empty() {
            text.push_str(&format!("; {word} {}", list(names, 8)));
        }
    }
    let any = hosts.iter().any(|host| !matches!(host.outcome, Some(Outcome::Refused(..) | Outcome::Unreachable(..))));
    if let Some(run) = run.filter(|_| any) {
        text.push_str(&format!(" (kept: cobctl output --run {run})"));
    }
    screen.say(&text);
    for hint in hints {
        screen.problem("hint", hint);
    }
}

impl Heard {
    fn of(target: &Target) -> Self {
        Self { name: target.stand_in(), lines: Default::default(), text: Default::default(), outcome: None }
    }

    fn in_json(&self) -> HostInJson<'_> {
        let outcome = self.outcome.as_ref().unwrap_or(&Outcome::Interrupted);
        let end = if let Outcome::Ended(end) = outcome { Some(end) } else { None };
        let (error, hint) = match outcome {
            Outcome::Ended(_) => (None, ""),
            Outcome::Refused(why, hint) | Outcome::Unreachable(why, hint) => (Some(why.clone()), hint.as_str()),
            Outcome::Disconnected(_) | Outcome::Interrupted => (Some(outcome.told()), ""),
        };
        HostInJson {
            host: &self.name,
            outcome: outcome.word(),
            succeeded: outcome.exit() == Exit::Yes,
            exit: end.map(|end| &end.exit),
            took_ms: end.and_then(|end| end.took_ms),
            cut: end.and_then(|end| end.cut),
            stdout: &self.text[0],
            stderr: &self.text[1],
            error,
            hint,
        }
    }
}

/// Shows the output of a command that hosts have kept.
pub(super) async fn kept(context: &Context, screen: &mut Screen, run: RunId) -> CommandResult {
    let answers = gather::each(&context.client, &context.targets.all, |client, target| async move {
        client.get::<StoredRun>(&target.endpoint, &format!("/v1/run/{run}")).await
    });
    let (mut kept, mut exits, mut refusal) = (Vec::new(), Vec::new(), None);
    for (target, answer) in answers.await {
        match answer {
            Ok(found) => kept.push(found),
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                exits.push(if error.is_from_daemon() { Exit::No } else { Exit::Unreached });
                screen.problem("error", &format!("{}: {}", target.stand_in(), error.in_a_line()));
                refusal.get_or_insert(error.hint());
            }
        }
    }
    if let Some(hint) = refusal.filter(|hint| !hint.is_empty()) {
        screen.problem("hint", &hint);
    }
    if kept.is_empty() && exits.is_empty() {
        let what = format!("no host that was asked has kept the output of the run {run}");
        return Err(Failure::refused(what)
            .hint("a host keeps the output of its last 100 commands; `cobctl history` lists the runs"));
    }
    if context.json {
        screen.json(&serde_json::json!({"run": run, "hosts": kept}))?;
        return Ok(Exit::of_all(exits));
    }
    let width = kept.iter().map(|kept| kept.host.as_str().len()).max().unwrap_or(0);
    for kept in &kept {
        screen.say(&clean_lines(&format!("{}: {}, by {}: {}", kept.host, kept.line, kept.who, kept.end)));
        for (out, text) in [(true, &kept.stdout), (false, &kept.stderr)] {
            for line in text.lines() {
                show(screen, &kept.host, width, out, line)?;
            }
        }
    }
    Ok(Exit::of_all(exits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_shown() {
        let mut lines = Lines::default();
        assert_eq!(lines.take("a"), Vec::<String>::new());
        assert_eq!(lines.take("b\r\nc\n\nd"), ["ab", "c", ""]);
        assert_eq!(lines.rest(), Some("d".to_owned()));
        assert_eq!(lines.rest(), None);
        assert_eq!(lines.take(&"x".repeat(LONGEST_LINE + 1)).len(), 1, "a line without an end is not kept");
    }

    #[test]
    fn only_a_reported_success_counts_as_a_success() {
        let end = |exit| Outcome::Ended(RunEnd { exit, took_ms: None, cut: None });
        let words = || (String::new(), String::new());
        let (refused, away) = (words(), words());
        for (outcome, exit) in [
            (end(RunExit::Exited(0)), Exit::Yes),
            (end(RunExit::Exited(3)), Exit::No),
            (end(RunExit::Signal(9)), Exit::No),
            (end(RunExit::TimedOut), Exit::No),
            (end(RunExit::DaemonEnded), Exit::No),
            (end(RunExit::Lost), Exit::No),
            (Outcome::Refused(refused.0, refused.1), Exit::No),
            (Outcome::Unreachable(away.0, away.1), Exit::Unreached),
            (Outcome::Disconnected(String::new()), Exit::Unreached),
            (Outcome::Interrupted, Exit::Unreached),
        ] {
            assert_eq!(outcome.exit(), exit, "{outcome:?}");
        }
    }
}
