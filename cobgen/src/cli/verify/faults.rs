//! `cobgen verify --switch`: tries the faults of a switch between two generations of a depot.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use cob_depot::{Depot, GenerationName};
use cob_engine::sim::SwitchFault;
use cob_forecast::faults::{FaultReport, NoTrial, Prepared, Replay, TrialProgress};
use cob_types::words::count;

use super::super::{Answer, CommandResult, Stop, Terminal, seconds};
use crate::diagnostic::Diagnostic;

/// How often the progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// Two generations: `1..2`, `-1..latest`.
#[derive(Debug, Clone, Copy)]
pub(super) struct SwitchName {
    from: GenerationName,
    to: GenerationName,
}

impl FromStr for SwitchName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once("..").ok_or("write two generations: `1..2`, or `-1..latest`")?;
        let name = |text: &str| text.parse::<GenerationName>().map_err(|error| error.to_string());
        Ok(Self { from: name(from)?, to: name(to)? })
    }
}

/// The limit of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrialLimit {
    /// So many runs.
    Runs(u64),
    /// For so long.
    For(Duration),
}

impl FromStr for TrialLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(runs) = text.parse() {
            return Ok(Self::Runs(runs));
        }
        let span = seconds(text).ok_or("write a number of runs, or a time: `500`, `30s`, `10m`")?;
        Ok(Self::For(Duration::from_secs(span)))
    }
}

/// The options of `--switch`.
#[derive(Debug, clap::Args)]
pub(super) struct FaultArgs {
    /// Simulate the switch between two generations of the depot, with --every-fault or a --fault: `1..2`, `-1..latest`
    #[arg(long, value_name = "N..M", requires = "depot", requires = "which", conflicts_with_all = ["model", "generation", "runs", "seed"], allow_hyphen_values = true)]
    pub(super) switch: Option<SwitchName>,
    /// Try every fault of the switch: each host and each daemon killed at each step, each action failing, each message
    /// lost
    #[arg(long, requires = "switch", group = "which")]
    every_fault: bool,
    /// Replay a single fault of the switch, as --every-fault prints it: `kill h2 at step 41`
    #[arg(long, value_name = "FAULT", requires = "switch", group = "which")]
    fault: Option<SwitchFault>,
    /// With --fault: print the course after the fault, a line for each event
    #[arg(long, requires = "fault")]
    trace: bool,
    /// With --every-fault: end after so many runs, or after this time (`500`, `30s`, `10m`), and count the remaining
    /// cases
    #[arg(long, value_name = "LIMIT", requires = "every_fault")]
    limit: Option<TrialLimit>,
}

/// Tries the faults.
pub(super) fn run(
    args: &FaultArgs,
    switch: SwitchName,
    depot: &Path,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> CommandResult {
    let prepared = prepare(switch, depot)?;
    let (report, trace) = match &args.fault {
        Some(fault) => {
            let Replay { report, trace } = prepared.replay(fault)?;
            (report, trace)
        }
        None => (every_fault(&prepared, args.limit, as_json, terminal)?, String::new()),
    };
    if as_json {
        writeln!(terminal.out, "{}", serde_json::to_string_pretty(&report).map_err(io::Error::from)?)?;
    } else {
        write!(terminal.out, "{}", report.in_words(&report.replay(depot)))?;
        if args.trace {
            write!(terminal.out, "\n{trace}")?;
        }
    }
    Ok(if report.is_well() { Answer::Done } else { Answer::No })
}

/// Reads the generations.
fn prepare(switch: SwitchName, path: &Path) -> Result<Prepared, Stop> {
    let depot = Depot::open(path)?;
    let (from, to) = (switch.from.find(&depot)?, switch.to.find(&depot)?);
    Prepared::read(from, to, |number| Ok(depot.read(number)?))
}

impl From<NoTrial> for Stop {
    fn from(error: NoTrial) -> Self {
        let at = match error {
            NoTrial::NoOrder { .. } | NoTrial::Restless(_) => "switch",
            NoTrial::NoOccasion(_) => "fault",
            NoTrial::NotAfter { .. } => "usage",
        };
        Diagnostic::error(at, error.to_string()).help(error.hint()).into()
    }
}

fn every_fault(
    prepared: &Prepared,
    limit: Option<TrialLimit>,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> Result<FaultReport, Stop> {
    let live = io::stderr().is_terminal() && !as_json;
    let began = Instant::now();
    let mut shown = began;
    let report = prepared.try_every(|TrialProgress { step: (step, steps), cases, runs }| {
        if live && shown.elapsed() >= SHOWN_EVERY {
            shown = Instant::now();
            let (cases, runs) = (count(cases, "case"), count(runs, "run"));
            // A lost progress line is no reason to fail.
            let _ = write!(terminal.err, "\r\x1b[Kstep {step} of {steps}: {cases} in {runs}");
            let _ = terminal.err.flush();
        }
        match limit {
            Some(TrialLimit::Runs(most)) => runs < most,
            Some(TrialLimit::For(most)) => began.elapsed() < most,
            None => true,
        }
    });
    if live {
        write!(terminal.err, "\r\x1b[K")?;
    }
    Ok(report?)
}
