//! The commands for clusters of a hub: `cluster`, `jobs`, `job`, `catalogue` and `hub`.
//!
//! ```text
//! args, help, pairs ── mod (the hub, the token) ── clusters ── follow (a job to its end)
//!                                               ├─ jobs
//!                                               ├─ catalogue      show (tables and words)
//!                                               └─ people ── queue
//! ```
//!
//! The library `cobctl` does not know the hub: it takes these commands as a group of further commands.

mod args;
mod catalogue;
mod clusters;
mod follow;
mod help;
mod jobs;
mod pairs;
mod people;
mod queue;
mod show;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use clap::{ArgMatches, FromArgMatches as _, Subcommand as _};
use cob_hub_api::Fault;
use cob_hub_client::{CallError, Client, Credentials};
use cobctl::args::{Global, Group};
use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::Screen;
use cobctl::settings::read_token;
use cobctl::words::clean;

use args::{At, Command, Line};

/// The shortest limit of a request: a plan of a large cluster takes some time.
const LIMIT: Duration = Duration::from_mins(2);
/// The variable with the token.
const TOKEN: &str = "COB_HUB_TOKEN";

/// The commands as a group.
pub(crate) const GROUP: Group = Group {
    heading: "Clusters of a hub",
    add: Command::augment_subcommands,
    options: &["json", "token_file", "timeout"],
};

/// The inputs of the commands.
#[derive(Debug)]
struct Context {
    client: Client,
    json: bool,
}

/// Carries out a command of the group.
pub(crate) async fn run(matches: ArgMatches, global: Global, screen: &mut Screen) -> CommandResult {
    let line = Line::from_arg_matches(&matches).map_err(|e| Failure::usage(e.to_string()))?;
    let context = |at: &At| context(at, &global);
    match line.command {
        Command::Cluster(args) => clusters::run(&context(&args.at)?, screen, args.command).await,
        Command::Jobs(args) => jobs::list(&context(&args.at)?, screen, &args).await,
        Command::Job(args) => jobs::run(&context(&args.at)?, screen, args.command).await,
        Command::Catalogue(args) => catalogue::run(&context(&args.at)?, screen, args.command).await,
        Command::Hub(args) => people::run(&context(&args.at)?, screen, args.command).await,
    }
}

fn context(at: &At, global: &Global) -> Result<Context, Failure> {
    let token = match &global.token_file {
        Some(path) => Some(read_token(path)?),
        None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
    };
    let credentials = Credentials { token, tenant: at.tenant.clone() };
    let client = Client::new(at.hub.clone(), credentials, global.timeout.max(LIMIT)).map_err(failure)?;
    Ok(Context { client, json: global.json })
}

impl Context {
    /// Prints an answer: as JSON, or as this text.
    fn answer<T: serde::Serialize>(&self, screen: &mut Screen, answer: &T, text: &str) -> CommandResult {
        if self.json {
            screen.json(answer)?
        } else {
            screen.line(text)?
        }
        Ok(Exit::Yes)
    }
}

/// The failure of a command whose request failed.
fn failure(error: CallError) -> Failure {
    let hint = error.hint().unwrap_or_default();
    let failure = match error {
        CallError::Refused { status, refusal } => {
            let refused = Refused { text: clean(&refusal.error), cause: causes(refusal.faults) };
            // A wrong request is the fault of its command line.
            if status == 400 { Failure::usage(refused) } else { Failure::refused(refused) }
        }
        CallError::BadToken => Failure::usage(error),
        CallError::Connect { .. }
        | CallError::Late { .. }
        | CallError::Broken { .. }
        | CallError::TooLong { .. }
        | CallError::NotUnderstood { .. } => Failure::environment(error),
    };
    failure.hint(hint)
}

/// A refusal, with the faults of a refused model as causes.
#[derive(Debug)]
struct Refused {
    text: String,
    cause: Option<Box<Refused>>,
}

fn causes(faults: Vec<Fault>) -> Option<Box<Refused>> {
    faults.into_iter().rev().fold(None, |cause, fault| Some(Box::new(Refused { text: in_words(&fault), cause })))
}

/// A fault of a model with its place and the advice.
fn in_words(fault: &Fault) -> String {
    let place = fault.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
    let help = if fault.help.is_empty() { String::new() } else { format!(" ({})", fault.help.join("; ")) };
    clean(&format!("{place}{}{help}", fault.message))
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
