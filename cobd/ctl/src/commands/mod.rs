//! The commands: each queries daemons or sends orders, and writes its answer to the screen.
//!
//! Each file contains a command or a family of commands, with a `run` that takes the [`Context`] and its own arguments.
//! [`run`] is the entry point for the program and for tests.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::pin::Pin;

use clap::ArgMatches;
use cob_depot::GenerationName;
use cob_types::api::StatusOf;
use cob_types::status::HostStatus;
use cob_types::{GenerationNumber, HostName};

use crate::args::{Args, Command, DevelopCommand, Global, Group, Line, TrustArgs, TrustCommand};
use crate::client::{AskError, Client};
use crate::failure::{CommandResult, Exit, Failure};
use crate::screen::Screen;
use crate::settings::{Credentials, Settings};
use crate::targets::{PreviousAddresses, Target, Targets};
use crate::words::list;

mod adhoc;
pub(crate) mod at;
mod bootstrap;
mod cancel;
mod check;
mod diff;
mod doctor;
mod drain;
mod durations;
mod explain;
mod facts;
mod files;
mod followed;
mod forecast;
mod graph;
mod history;
mod leaving;
mod logs;
mod machines;
mod near;
mod notify;
mod objects;
mod orders;
mod outcomes;
mod output;
mod page;
mod plan;
mod power;
mod recorded;
pub(crate) mod replay;
mod report;
mod retry;
mod saved;
mod status;
mod stop;
mod switch;
mod transitions;
mod upgrade;
mod view;
mod watch;
mod who;

pub(crate) use history::line as history_line;
pub(crate) use view::{host_state as host_in_words, needs_a_hand as needs_a_person};

/// The common inputs of the commands.
#[derive(Clone)]
struct Context {
    client: Client,
    targets: Targets,
    json: bool,
}

/// Carries out a command for developers; the second argument is whether the answer is JSON.
pub type Develop =
    for<'a> fn(DevelopCommand, bool, &'a mut Screen) -> Pin<Box<dyn Future<Output = CommandResult> + 'a>>;

/// Carries out an added command: its matches in the whole command line, and the options of every command.
pub type RunAdded = for<'a> fn(ArgMatches, Global, &'a mut Screen) -> Pin<Box<dyn Future<Output = CommandResult> + 'a>>;

/// The commands that a program carries out itself.
#[derive(Debug, Clone, Copy)]
pub struct Extension {
    /// The commands for developers.
    pub develop: Develop,
    /// Further commands.
    pub added: Option<(Group, RunAdded)>,
}

/// Runs the program with this command line, which starts with the program's name; returns the exit status. Commands for
/// developers are refused.
pub async fn run(line: Vec<OsString>, screen: &mut Screen) -> u8 {
    run_with(line, screen, Extension { develop: no_developer, added: None }).await
}

/// Refuses the commands for developers.
fn no_developer(_: DevelopCommand, _: bool, _: &mut Screen) -> Pin<Box<dyn Future<Output = CommandResult> + 'static>> {
    let refused = Failure::usage("this program contains no daemon and no generator").hint("use the program `cobctl`");
    Box::pin(async { Err(refused) })
}

/// Carries out a command line, without the program's name, with these options of every command.
pub(crate) async fn carry_out(words: &[String], global: &Global, screen: &mut Screen) -> CommandResult {
    let line = std::iter::once("cobctl").chain(words.iter().map(String::as_str));
    let args = Args::read(line).map_err(|error| Failure::usage(error.to_string()))?;
    dispatch(Args { global: global.clone(), ..args }, screen, no_developer).await
}

/// Like [`run`], with the commands of a program.
///
/// It is not generic: all commands would be compiled again for each caller.
pub async fn run_with(line: Vec<OsString>, screen: &mut Screen, program: Extension) -> u8 {
    let read = match Line::read(line.iter().cloned(), program.added.as_ref().map(|(group, _)| group)) {
        Ok(args) => args,
        Err(error) => {
            let text = error.render().to_string();
            if error.use_stderr() {
                if line.iter().any(|word| word == "--json") {
                    let text = text.trim_end();
                    let text = text.strip_prefix("error: ").unwrap_or(text).to_owned();
                    return told_in_json(screen, &Failure::usage(text));
                }
                screen.say(text.trim_end());
                return 2;
            }
            return match screen.raw(&text) {
                Ok(()) => 0,
                Err(error) => Failure::from(error).code(),
            };
        }
    };
    let (global, is_near, done) = match read {
        Line::Own(args) => {
            screen.set_colour(args.global.color);
            let is_near = !matches!(args.command, Command::Bootstrap(_) | Command::Upgrade(_));
            (args.global.clone(), is_near, dispatch(args, screen, program.develop).await)
        }
        Line::Added(matches, global) => {
            screen.set_colour(global.color);
            let done = match program.added {
                Some((_, run)) => run(matches, global.clone(), screen).await,
                None => Err(Failure::usage("the command is unknown")),
            };
            (global, false, done)
        }
    };
    match done {
        Ok(exit) => {
            if exit == Exit::Unreached && is_near && names_nobody(&global) {
                let hint = "the daemon of this host was asked; --depot DIR (or COB_DEPOT) names all hosts of a depot";
                screen.problem("hint", hint);
            }
            exit.code()
        }
        Err(failure) if global.json => told_in_json(screen, &failure),
        Err(failure) => {
            failure.print(screen);
            failure.code()
        }
    }
}

/// Prints a failure as JSON.
fn told_in_json(screen: &mut Screen, failure: &Failure) -> u8 {
    if !failure.is_silent()
        && let Err(error) = screen.json(&failure.to_json())
    {
        return Failure::from(error).code();
    }
    failure.code()
}

/// Whether neither a host nor a depot was named.
fn names_nobody(global: &Global) -> bool {
    let depot = || Settings::find(global).is_ok_and(|settings| settings.depot.is_some());
    global.hosts.is_empty() && !global.explicit.socket && !depot()
}

async fn dispatch(args: Args, screen: &mut Screen, develop: Develop) -> CommandResult {
    let global = &args.global;
    match args.command {
        Command::Status(args) => status::run(&context(global, screen)?, screen, &args).await,
        Command::Check(args) => check::run(&context(global, screen)?, screen, &args).await,
        Command::Page(args) => page::run(global, screen, &args).await,
        Command::Notify(args) => notify::run(global, screen, &args).await,
        Command::Watch(args) => watch::run(global, screen, &args).await,
        Command::Explain(args) => explain::run(&context(global, screen)?, screen, &args).await,
        Command::History(args) => history::run(&context(global, screen)?, screen, &args).await,
        Command::At(args) => at::run(&context(global, screen)?, screen, &args).await,
        Command::Replay(args) => replay::run(&context(global, screen)?, screen, &args).await,
        Command::Report(args) => report::run(&context(global, screen)?, screen, &args).await,
        Command::Durations(args) => durations::run(&context(global, screen)?, screen, &args).await,
        Command::Graph(args) => graph::run(&context(global, screen)?, screen, &args).await,
        Command::Facts(args) => facts::run(&context(global, screen)?, screen, &args).await,
        Command::Plan(args) => plan::run(&context(global, screen)?, screen, &args).await,
        Command::Switch(args) => switch::run(&context(global, screen)?, screen, &args).await,
        Command::Rollback(args) => switch::rollback(&context(global, screen)?, screen, &args).await,
        Command::Retry(args) => retry::run(&context(global, screen)?, screen, &args).await,
        Command::Stop(args) => stop::stop(&context(global, screen)?, screen, &args).await,
        Command::Start(args) => stop::start(&context(global, screen)?, screen, &args).await,
        Command::Restart(args) => stop::restart(&context(global, screen)?, screen, &args).await,
        Command::Drain(args) => drain::run(&context(global, screen)?, screen, &args).await,
        Command::Run(args) => adhoc::run(&context(global, screen)?, screen, &args).await,
        Command::Pause => orders::pause(&context(global, screen)?, screen).await,
        Command::Resume => orders::resume(&context(global, screen)?, screen).await,
        Command::Cancel(args) => cancel::cancel(&context(global, screen)?, screen, &args).await,
        Command::Discard(args) => cancel::discard(&context(global, screen)?, screen, &args).await,
        Command::Limit(args) => cancel::limit(&context(global, screen)?, screen, &args).await,
        Command::Budget(args) => cancel::budget(&context(global, screen)?, screen, &args).await,
        Command::Fence(args) => orders::fence(&context(global, screen)?, screen, &args).await,
        Command::MarkDeparted(args) => orders::mark_departed(&context(global, screen)?, screen, &args).await,
        Command::Outcomes(args) => outcomes::run(&context(global, screen)?, screen, &args).await,
        Command::Output(args) => output::run(&context(global, screen)?, screen, &args).await,
        Command::Logs(args) => logs::run(&context(global, screen)?, screen, &args).await,
        Command::Diff(args) => diff::run(&context(global, screen)?, screen, &args).await,
        Command::Resolve(args) => files::resolve(&context(global, screen)?, screen, &args).await,
        Command::Files(args) => files::walk(&context(global, screen)?, screen, &args).await,
        Command::Trust(TrustArgs { command: TrustCommand::Whoami }) => {
            who::whoami(&context(global, screen)?, screen).await
        }
        Command::Trust(TrustArgs { command: TrustCommand::Key(args) }) => who::key(global, screen, &args),
        Command::Trust(TrustArgs { command: TrustCommand::Doctor(args) }) => {
            doctor::run(&context(global, screen)?, screen, &args).await
        }
        Command::Bootstrap(args) => bootstrap::run(global, screen, &args).await,
        Command::Upgrade(args) => upgrade::run(global, screen, &args).await,
        Command::Develop(command) => develop(command, global.json, screen).await,
    }
}

/// The daemons to ask, and the credentials.
fn context(global: &Global, screen: &mut Screen) -> Result<Context, Failure> {
    let settings = Settings::find(global)?;
    let targets = Targets::find(global, &settings)?;
    for warning in &targets.warnings {
        screen.problem("warning", warning);
    }
    let credentials = if targets.need_credentials() { settings.credentials()? } else { Credentials::default() };
    let mut client =
        Client::new(global.timeout, credentials).meaning(&targets.all).knowing(PreviousAddresses::of_depot(&targets));
    client.epoch = global.epoch;
    Ok(Context { client, targets, json: global.json })
}

impl Context {
    /// The number of a generation; a number relative to the latest needs the depot.
    fn generation(&self, named: GenerationName) -> Result<GenerationNumber, Failure> {
        if let GenerationName::Number(number) = named {
            return Ok(number);
        }
        self.targets.need_depot(&format!("the depot is needed to find the generation `{named}`"))?.find(named)
    }

    /// Prints the answer to an order: as JSON, or as this text.
    fn answer<T: serde::Serialize>(&self, screen: &mut Screen, answer: &T, text: &str) -> io::Result<()> {
        if self.json { screen.json(answer) } else { screen.line(text) }
    }

    /// The daemons of these hosts; all if `hosts` is empty. A named host is the daemon that answers to that name.
    async fn only(&self, hosts: &[HostName]) -> Result<Vec<Target>, Failure> {
        let all = self.targets.only(hosts)?;
        if hosts.is_empty() || all.iter().all(|t| t.name.is_some()) {
            return Ok(all);
        }
        let mut met = self.meet(all, hosts).await;
        let missing: BTreeSet<&HostName> = hosts.iter().filter(|host| !met.has(host)).collect();
        match (missing.first(), met.silent.as_slice()) {
            (None, _) => Ok(met.named),
            // The only silent daemon counts as the only missing host.
            (Some(host), [(target, _)]) if missing.len() == 1 => {
                met.named.push(Target { name: Some((*host).clone()), ..target.clone() });
                Ok(met.named)
            }
            (Some(host), _) => Err(met.lacks(host)),
        }
    }

    /// The daemon of a host. Daemons without a known name are asked for their names.
    async fn locate(&self, host: &HostName) -> Result<Target, Failure> {
        let all = self.targets.only(std::slice::from_ref(host))?;
        if let Some(target) = all.iter().find(|t| t.name.as_ref() == Some(host)) {
            return Ok(target.clone());
        }
        let mut met = self.meet(all, std::slice::from_ref(host)).await;
        met.named.pop().ok_or_else(|| met.lacks(host))
    }

    /// Finds the daemons of these hosts; daemons without a known name are asked for their names.
    async fn meet(&self, all: Vec<Target>, hosts: &[HostName]) -> Met {
        let (mut named, unnamed): (Vec<_>, Vec<_>) = all.into_iter().partition(|t| t.name.is_some());
        named.retain(|t| t.name.as_ref().is_some_and(|name| hosts.contains(name)));
        let mut met = Met { named, others: Vec::new(), silent: Vec::new() };
        let answers = crate::gather::each(&self.client, &unnamed, |client, target| async move {
            crate::gather::ask(&client, &target, StatusOf::Active).await
        });
        for (target, answer) in answers.await {
            match answer {
                Ok(HostStatus { name, .. }) if hosts.contains(&name) => {
                    met.named.push(Target { name: Some(name), ..target });
                }
                Ok(HostStatus { name, .. }) => met.others.push(name),
                Err(error) => met.silent.push((target, error)),
            }
        }
        met
    }
}

/// The answers of daemons to a query for named hosts.
struct Met {
    /// The daemons of these hosts, by name.
    named: Vec<Target>,
    /// Other hosts that were asked.
    others: Vec<HostName>,
    /// The daemons that have not answered, and why.
    silent: Vec<(Target, AskError)>,
}

impl Met {
    fn has(&self, host: &HostName) -> bool {
        self.named.iter().any(|t| t.name.as_ref() == Some(host))
    }

    /// The failure for a named host that is not among the daemons.
    fn lacks(self, host: &HostName) -> Failure {
        if let Some((_, error)) = self.silent.into_iter().next() {
            return error.into();
        }
        let asked: Vec<HostName> = self.named.into_iter().filter_map(|t| t.name).chain(self.others).collect();
        Failure::usage(format!("{host} was not asked, only {}", list(&asked, 4)))
            .hint("name the host's address with --host, or its depot with --depot")
    }
}
