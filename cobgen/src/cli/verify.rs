//! `cobgen verify`: checks by simulation whether a generation converges, with all kinds of failures on the way, or
//! every fault of a switch.

mod faults;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use cob_depot::{Depot, DepotError, GenerationName};
use cob_forecast::faults::trouble_in_words;
use cob_types::Generation;
use cob_types::words::count;

use super::{Answer, CommandResult, Stop, Terminal, refused, tell};
use crate::diagnostic::Diagnostic;
use crate::make::{After, make};
use crate::verify::{FailedObject, Verified, verify};

/// The options of `cobgen verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen verify model.yaml
  cobgen verify model.yaml --runs 1000 --seed 7
  cobgen verify --depot /srv/cob/depot
  cobgen verify --depot /srv/cob/depot --switch -1..latest --every-fault
  cobgen verify --depot /srv/cob/depot --switch 1..2 --fault 'kill n2 at step 41' --trace

Each run begins in random states and has lost, doubled and late messages, killed daemons and failing actions. A \
model that `check` refuses can be verified, too, to see its behaviour. With --switch, the faults of a switch are \
tried one by one instead; symmetric cases run once.

Exit status: 0 every run converged, with --switch or rolled back; 1 some runs did not; 2 bad input; 3 the depot could not be read.")]
pub struct VerifyArgs {
    /// A model file or folder
    #[arg(required_unless_present = "depot", conflicts_with = "depot")]
    model: Option<PathBuf>,
    /// A depot: its newest generation, or the generation that --generation names
    #[arg(long, value_name = "DIR")]
    pub(super) depot: Option<PathBuf>,
    /// The generation of the depot: its number, `latest`, or `-1` for the generation before the latest
    #[arg(long, value_name = "N", requires = "depot", conflicts_with = "model", allow_negative_numbers = true)]
    generation: Option<GenerationName>,
    /// How many runs
    #[arg(long, value_name = "K", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// The seed of the first run; each further run has the next seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Print {"runs", "converged", "gave_up", "failed": [{"seed", "cobs": [{"cob", "attempts"}]}], "deadlocks": [{"seed", "troubles": […]}], "violations": […]}; of a model that is refused, {"diagnostics"}; with --switch, the report in docs/how-to/try-faults-before-a-switch.md
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    faults: faults::FaultArgs,
}

pub(super) fn run(args: &VerifyArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    if let (Some(switch), Some(depot)) = (args.faults.switch, &args.depot) {
        return faults::run(&args.faults, switch, depot, args.json, terminal);
    }
    let generation = match (&args.model, &args.depot) {
        (Some(model), _) => {
            let made = make(model, &After::default());
            let Some(assembled) = made.assembled else {
                refused(model, &made.diagnostics, &made.sources, args.json, terminal)?;
                return Err(Stop::Told(Answer::Bad));
            };
            tell(model, &made.diagnostics, &made.sources, terminal)?;
            assembled.generation
        }
        (None, Some(depot)) => from_depot(depot, args.generation)?
            .ok_or_else(|| Diagnostic::error("depot", format!("{} has no generation yet", depot.display())))?,
        (None, None) => return Ok(Answer::Bad),
    };
    let live = io::stderr().is_terminal() && !args.json;
    let verified = verify(&generation, args.runs, args.seed, |made| {
        if live && made.is_multiple_of(10) {
            // A lost progress line is no reason to fail.
            let _ = write!(terminal.err, "\r{made} of {}", count(args.runs, "run"));
        }
    });
    if live {
        write!(terminal.err, "\r\x1b[K")?;
    }
    if args.json {
        writeln!(terminal.out, "{}", serde_json::to_string_pretty(&verified).map_err(io::Error::from)?)?;
    } else {
        print(&verified, args, terminal)?;
    }
    Ok(if verified.is_well() { Answer::Done } else { Answer::No })
}

/// A generation of a depot, by default its newest; `None`: the depot has no generation yet.
fn from_depot(path: &Path, named: Option<GenerationName>) -> Result<Option<Generation>, DepotError> {
    let depot = Depot::open(path)?;
    let number = match named {
        Some(named) => Some(named.find(&depot)?),
        None => depot.latest()?,
    };
    number.map(|number| depot.read(number)).transpose()
}

fn print(verified: &Verified, args: &VerifyArgs, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Verified { runs, converged, gave_up, failed, deadlocks, violations } = verified;
    writeln!(
        terminal.out,
        "{converged} of {} converged; {}{}",
        count(*runs, "run"),
        if *gave_up > 0 { format!("{gave_up} ended with injected failures; ") } else { String::new() },
        count(violations.len(), "violation")
    )?;
    for run in failed {
        writeln!(terminal.out, "  seed {}:", run.seed)?;
        for FailedObject { cob, attempts } in &run.cobs {
            writeln!(terminal.out, "    {cob}: failed after {} (injected)", count(*attempts, "attempt"))?;
        }
    }
    for deadlock in deadlocks {
        writeln!(terminal.out, "  seed {}: does not converge", deadlock.seed)?;
        for named in &deadlock.troubles {
            writeln!(terminal.out, "    {}: {}", named.cob, trouble_in_words(&named.trouble))?;
        }
    }
    for violation in violations {
        writeln!(terminal.out, "  violation (a defect of COB): {violation}")?;
    }
    if !deadlocks.is_empty() {
        let what = args.model.as_ref().or(args.depot.as_ref()).map(|p| p.display().to_string()).unwrap_or_default();
        let flag = if args.model.is_some() { "" } else { "--depot " };
        writeln!(terminal.err, "Again: `cobgen verify {flag}{what} --runs 1 --seed {}`.", deadlocks[0].seed)?;
    }
    Ok(())
}
