//! The command line of `cobgen`, as a library: `cobctl` offers the same commands.
//!
//! Data goes to the output, all other text to the error output. A command returns an [`Answer`], which is its exit
//! status; errors are printed in full before.

mod check;
mod diff;
mod enroll;
mod fsck;
mod generate;
mod import;
mod init;
mod key;
mod log;
mod pin;
mod plan;
mod prune;
mod schema;
mod secrets;
mod serve;
mod show;
mod sign;
mod solve;
mod variables;
mod verify;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use cob_depot::{Depot, DepotError, PublishError};
use cob_types::GenerationNumber;
use serde_json::json;
pub use variables::without_empty_variables;

use crate::diagnostic::{Diagnostic, render, summary, to_json};
use crate::model::Sources;

/// From a data model to generations of change objects.
#[derive(Debug, Parser)]
#[command(
    name = "cobgen",
    version,
    max_term_width = 100,
    after_help = "\
Exit status: 0 done; 1 the answer is no; 2 bad input or usage; 3 could not be reached."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What `cobgen` does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a small model to start from, that works
    Init(init::InitArgs),
    /// Print the JSON Schema of models, for editors
    Schema(schema::SchemaArgs),
    /// Check a model and print all its errors
    Check(check::CheckArgs),
    /// Show change objects with the dependencies that they end up with
    Show(show::ShowArgs),
    /// Make a model of the entities of another system
    Import(import::ImportArgs),
    /// Compute which node of a cluster gets which services
    Solve(solve::SolveArgs),
    /// Show the steps of an operation on a cluster, node by node
    Plan(plan::PlanArgs),
    /// Make the next generation in a depot
    Generate(generate::GenerateArgs),
    /// Make a key for a publisher or an operator
    Key(key::KeyArgs),
    /// Sign a generation of a depot
    Sign(sign::SignArgs),
    /// List the generations of a depot
    Log(log::LogArgs),
    /// Protect a generation from `prune`, or list the protected generations
    Pin(pin::PinArgs),
    /// Remove the protection from `prune`
    Unpin(pin::UnpinArgs),
    /// Remove old generations from a depot
    Prune(prune::PruneArgs),
    /// Check all of a depot and print all damage
    Fsck(fsck::FsckArgs),
    /// Show the differences between two generations, or the changes that a model makes
    Diff(diff::DiffArgs),
    /// Give generations out to hosts that share no folder with the depot
    Serve(serve::ServeArgs),
    /// Enrol new hosts, with tokens that are valid once
    Enroll(enroll::EnrollArgs),
    /// Simulate a model or generation, with all kinds of failures
    Verify(verify::VerifyArgs),
}

/// The result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Done, or the answer is yes.
    Done,
    /// The answer is no.
    No,
    /// Bad input or usage.
    Bad,
    /// A depot, host or file could not be reached.
    NotReached,
}

impl Answer {
    /// The exit status.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Bad => 2,
            Self::NotReached => 3,
        }
    }
}

/// The outputs of a command.
pub struct Terminal<'a> {
    /// Data.
    pub out: &'a mut dyn Write,
    /// All other text.
    pub err: &'a mut dyn Write,
    /// Whether the error output takes colours.
    pub colour: bool,
    /// Whether the data output takes colours.
    pub out_colour: bool,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn run(&self, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
        match self {
            Self::Init(args) => init::run(args, terminal),
            Self::Schema(args) => schema::run(args, terminal),
            Self::Check(args) => check::run(args, terminal),
            Self::Show(args) => show::run(args, terminal),
            Self::Import(args) => import::run(args, terminal),
            Self::Solve(args) => solve::run(args, terminal),
            Self::Plan(args) => plan::run(args, terminal),
            Self::Generate(args) => generate::run(args, terminal),
            Self::Key(args) => key::run(args, terminal),
            Self::Sign(args) => sign::run(args, terminal),
            Self::Log(args) => log::run(args, terminal),
            Self::Pin(args) => pin::run(args, terminal),
            Self::Unpin(args) => pin::unpin(args, terminal),
            Self::Prune(args) => prune::run(args, terminal),
            Self::Fsck(args) => fsck::run(args, terminal),
            Self::Diff(args) => diff::run(args, terminal),
            Self::Serve(args) => serve::run(args, terminal),
            Self::Enroll(args) => enroll::run(args, terminal),
            Self::Verify(args) => verify::run(args, terminal),
        }
    }
}

/// Parses and runs the command line; returns the exit status.
pub fn run(args: Vec<OsString>, terminal: &mut Terminal<'_>) -> u8 {
    let as_json = args.iter().any(|word| word == "--json");
    let parsed = without_empty_variables(Cli::command()).try_get_matches_from(args);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // Requested help is data.
            if !error.use_stderr() {
                let written = write!(terminal.out, "{}", error.render());
                return ended(written.map(|()| Answer::Done), terminal);
            }
            if as_json {
                let text = error.render().to_string();
                let text = text.trim_end().strip_prefix("error: ").unwrap_or(text.trim_end()).to_owned();
                let refused = refuse(Diagnostic::error("usage", text), Answer::Bad, true, terminal);
                return ended(refused, terminal);
            }
            // An unreadable error output does not change the status.
            let _ = write!(terminal.err, "{}", error.render());
            return Answer::Bad.status();
        }
    };
    ended(cli.command.run(terminal), terminal)
}

/// Flushes the output and reports an error if it is lost, even in part; returns the exit status.
fn ended(answer: io::Result<Answer>, terminal: &mut Terminal<'_>) -> u8 {
    match answer.and_then(|answer| terminal.out.flush().map(|()| answer)) {
        Ok(answer) => answer.status(),
        Err(error) => {
            let _ = writeln!(terminal.err, "error: can't write the output: {error}");
            Answer::NotReached.status()
        }
    }
}

/// Whether text for this output may have colours: only a terminal that supports colours, unless `NO_COLOR` is set.
#[must_use]
pub fn takes_colour(output: &impl IsTerminal) -> bool {
    let variable = |name: &str| std::env::var_os(name);
    output.is_terminal() && wants_colour(variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
}

fn wants_colour(no_colour: Option<&OsStr>, terminal: Option<&OsStr>) -> bool {
    no_colour.is_none() && terminal.is_none_or(|terminal| terminal != "dumb")
}

/// Prints the findings about a model, for people.
fn tell(model: &Path, diagnostics: &[Diagnostic], sources: &Sources, terminal: &mut Terminal<'_>) -> io::Result<()> {
    if !diagnostics.is_empty() {
        write!(terminal.err, "{}", render(diagnostics, sources, terminal.colour))?;
        writeln!(terminal.err, "\n{}: {}", model.display(), summary(diagnostics))?;
    }
    Ok(())
}

/// Refuses a request, with output for people or, as `check` does, for machines.
fn refuse(fault: Diagnostic, answer: Answer, as_json: bool, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    if as_json {
        writeln!(terminal.out, "{:#}", json!({"diagnostics": to_json(&[fault])}))?;
    } else {
        write!(terminal.err, "{}", render(&[fault], &Sources::default(), terminal.colour))?;
    }
    Ok(answer)
}

/// Prints why a depot could not be read.
fn tell_depot(error: &DepotError, path: &Path, as_json: bool, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let mut fault = Diagnostic::error("depot", error.to_string());
    if let DepotError::NoGeneration { .. } = error {
        let known = Depot::open(path).and_then(|depot| depot.list()).unwrap_or_default();
        let numbers: Vec<GenerationNumber> = known.iter().rev().map(|entry| entry.generation).collect();
        if !numbers.is_empty() {
            fault = fault.help(format!("it has {}; see `cobgen log`", ranges(&numbers)));
        }
    }
    let answer = if error.is_mistake() { Answer::Bad } else { Answer::NotReached };
    refuse(fault, answer, as_json, terminal)
}

/// Prints why a depot could not be written.
fn tell_publish(error: &PublishError, path: &Path, as_json: bool, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let answer = match error {
        PublishError::Depot(error) => return tell_depot(error, path, as_json, terminal),
        PublishError::Overtaken { .. } | PublishError::Busy { .. } => Answer::NotReached,
        PublishError::Unfit { .. } | PublishError::ModelPath { .. } | PublishError::Upkeep { .. } => Answer::Bad,
    };
    refuse(Diagnostic::error("depot", error.to_string()), answer, as_json, terminal)
}

/// Sorted numbers as ranges: `1-4, 6`.
fn ranges(numbers: &[GenerationNumber]) -> String {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for GenerationNumber(number) in numbers {
        match found.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            Some(_) | None => found.push((*number, *number)),
        }
    }
    let shown = |(from, to): &(u64, u64)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    found.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_gets_no_colours() {
        let wants = |no_colour: Option<&str>, terminal: Option<&str>| {
            wants_colour(no_colour.map(OsStr::new), terminal.map(OsStr::new))
        };
        assert!(wants(None, None) && wants(None, Some("xterm")));
        assert!(!wants(None, Some("dumb")) && !wants(Some("1"), Some("xterm")) && !wants(Some(""), None));
    }
}
