//! The command line of `cobgen`, as a library: `cobctl` offers the same commands.
//!
//! Data goes to the output, all other text to the error output. A command returns an [`Answer`], which is its exit
//! status; errors are printed in full before.

mod check;
mod diff;
mod enroll;
mod exchange;
mod fmt;
mod fsck;
mod generate;
mod init;
mod key;
mod log;
mod lsp;
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
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use cob_depot::{Depot, DepotError, PublishError};
use cob_types::GenerationNumber;
use serde_json::json;
pub use variables::without_empty_variables;

use crate::diagnostic::{Diagnostic, render, summary, to_json};
use crate::generation::Assembled;
use crate::make::Made;
use crate::model::Sources;

/// From a data model to generations of change objects.
#[derive(Debug, Parser)]
#[command(
    name = "cobgen",
    version,
    max_term_width = 100,
    after_help = "Exit status: 0 done; 1 the answer is no; 2 bad input or usage; 3 could not be reached."
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
    /// Format the files of a model
    Fmt(fmt::FmtArgs),
    /// Serve an editor: errors while you type, completion, explanations
    Lsp(lsp::LspArgs),
    /// Show change objects with the dependencies that they end up with
    Show(show::ShowArgs),
    /// Make a model of the entities of another system
    Import(exchange::ImportArgs),
    /// Write the entities of a model for another system
    Export(exchange::ExportArgs),
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
        let (ended, as_json, depot) = match self {
            Self::Init(args) => (init::run(args, terminal), false, None),
            Self::Schema(args) => (schema::run(args, terminal), false, None),
            Self::Fmt(args) => (fmt::run(args, terminal), false, None),
            Self::Lsp(args) => (lsp::run(args, terminal), false, None),
            Self::Check(args) => (check::run(args, terminal), args.json, args.depot.clone()),
            Self::Show(args) => (show::run(args, terminal), args.json, args.depot.clone()),
            Self::Import(args) => (exchange::import(args, terminal), false, None),
            Self::Export(args) => (exchange::export(args, terminal), false, None),
            Self::Solve(args) => (solve::run(args, terminal), args.json, args.depot.clone()),
            Self::Plan(args) => (plan::run(args, terminal), args.json, args.depot()),
            Self::Generate(args) => (generate::run(args, terminal), args.json, Some(args.depot.clone())),
            Self::Key(args) => (key::run(args, terminal), args.json, None),
            Self::Sign(args) => (sign::run(args, terminal), args.json, Some(args.depot.clone())),
            Self::Log(args) => (log::run(args, terminal), args.json, Some(args.depot.clone())),
            Self::Pin(args) => (pin::run(args, terminal), args.json, Some(args.depot.clone())),
            Self::Unpin(args) => (pin::unpin(args, terminal), args.json, Some(args.depot.clone())),
            Self::Prune(args) => (prune::run(args, terminal), args.json, Some(args.depot.clone())),
            Self::Fsck(args) => (fsck::run(args, terminal), args.json, Some(args.depot.clone())),
            Self::Diff(args) => (diff::run(args, terminal), args.json, Some(args.depot.clone())),
            Self::Serve(args) => (serve::run(args, terminal), false, None),
            Self::Enroll(args) => (enroll::run(args, terminal), args.json, Some(args.depot.clone())),
            Self::Verify(args) => (verify::run(args, terminal), args.json, args.depot.clone()),
        };
        ended.or_else(|stop| stop.tell(as_json, depot.as_deref(), terminal))
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

/// The answer of a command, or why it has none.
type CommandResult = Result<Answer, Stop>;

/// Why a command has no answer.
#[derive(Debug)]
enum Stop {
    /// This fault, which is printed with the exit status.
    Fault(Box<Diagnostic>, Answer),
    /// The same, printed for people even with `--json`.
    Plain(String, Answer),
    /// A depot could not be read.
    Depot(DepotError),
    /// The faults are printed already.
    Told(Answer),
    /// The output can't be written.
    Output(io::Error),
}

impl Stop {
    /// Bad input, with an error for people.
    fn plain(error: impl Display) -> Self {
        Self::Plain(error.to_string(), Answer::Bad)
    }

    /// Prints the reason.
    fn tell(self, as_json: bool, depot: Option<&Path>, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
        match self {
            Self::Fault(fault, answer) => refuse(*fault, answer, as_json, terminal),
            Self::Plain(error, answer) => writeln!(terminal.err, "error: {error}").map(|()| answer),
            Self::Depot(error) => {
                let mut fault = Diagnostic::error("depot", error.to_string());
                if let (DepotError::NoGeneration { .. }, Some(path)) = (&error, depot) {
                    let known = Depot::open(path).and_then(|depot| depot.list()).unwrap_or_default();
                    let numbers: Vec<GenerationNumber> = known.iter().rev().map(|entry| entry.generation).collect();
                    if !numbers.is_empty() {
                        fault = fault.help(format!("it has {}; see `cobgen log`", ranges(&numbers)));
                    }
                }
                let answer = if error.is_mistake() { Answer::Bad } else { Answer::NotReached };
                refuse(fault, answer, as_json, terminal)
            }
            Self::Told(answer) => Ok(answer),
            Self::Output(error) => Err(error),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Diagnostic> for Stop {
    fn from(fault: Diagnostic) -> Self {
        Self::Fault(Box::new(fault), Answer::Bad)
    }
}

impl From<DepotError> for Stop {
    fn from(error: DepotError) -> Self {
        Self::Depot(error)
    }
}

impl From<PublishError> for Stop {
    fn from(error: PublishError) -> Self {
        let answer = match error {
            PublishError::Depot(error) => return Self::Depot(error),
            PublishError::Overtaken { .. } | PublishError::Busy { .. } => Answer::NotReached,
            PublishError::Unfit { .. } | PublishError::ModelPath { .. } | PublishError::Upkeep { .. } => Answer::Bad,
        };
        Self::Fault(Box::new(Diagnostic::error("depot", error.to_string())), answer)
    }
}

/// Prints the findings about a refused model.
fn refused(
    model: &Path,
    diagnostics: &[Diagnostic],
    sources: &Sources,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    if as_json {
        return writeln!(terminal.out, "{:#}", json!({"diagnostics": to_json(diagnostics)}));
    }
    tell(model, diagnostics, sources, terminal)
}

/// The generation of a model, with its findings printed; a model with errors is refused.
fn valid(model: &Path, made: Made, as_json: bool, terminal: &mut Terminal<'_>) -> Result<Assembled, Stop> {
    let Some(assembled) = (if made.is_refused() { None } else { made.assembled }) else {
        refused(model, &made.diagnostics, &made.sources, as_json, terminal)?;
        return Err(Stop::Told(Answer::Bad));
    };
    tell(model, &made.diagnostics, &made.sources, terminal)?;
    Ok(assembled)
}

/// Parses `90s`, `30m`, `12h`, `2d` or `3w` to seconds.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        "w" => 7 * 24 * 3600,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
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
