//! `cobgen pin`, `cobgen unpin`: protect generations from `cobgen prune`.

use std::path::PathBuf;

use cob_depot::pins::Pin;
use cob_depot::{Depot, GenerationName};
use cob_types::GenerationNumber;
use serde_json::{Value, json};

use super::{Answer, CommandResult, Terminal};
use crate::calendar::{now, signed, utc};

/// The options of `cobgen pin`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen pin 7 --reason 'as audited in March' --depot depot
  cobgen pin --depot depot                       list them

Exit status: 0 done; 2 there is no such generation; 3 the depot could not be read or written.")]
pub struct PinArgs {
    /// The generation: its number, `latest`, or `-1` for the generation before the latest; without it, list the pins
    #[arg(value_name = "N", allow_negative_numbers = true)]
    generation: Option<GenerationName>,
    /// The reason, shown by `prune`
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, requires = "generation")]
    reason: String,
    /// Where generations are kept
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    /// Print {"pins": [{"generation", "reason", "by", "at"}]}; the time is in seconds since 1970-01-01 UTC
    #[arg(long)]
    pub(super) json: bool,
}

/// The options of `cobgen unpin`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  cobgen unpin 7 --depot depot

Exit status: 0 it is not pinned (any more); 3 the depot could not be read or written.")]
pub struct UnpinArgs {
    /// The generation: its number, `latest`, or `-1` for the generation before the latest
    #[arg(value_name = "N", allow_negative_numbers = true)]
    generation: GenerationName,
    /// Where generations are kept
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    /// Print {"generation", "changed"}
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &PinArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let depot = Depot::open(&args.depot)?;
    if let Some(generation) = args.generation {
        let author = depot.default_author();
        let by = format!("{} <{}>", author.name, author.email);
        let pin = Pin { reason: args.reason.clone(), by, at: signed(now()) };
        depot.pin(generation.find(&depot)?, &pin)?;
    }
    let pins = depot.pins()?;
    if args.json {
        let one = |(number, pin): (&GenerationNumber, &Pin)| {
            let Pin { reason, by, at } = pin;
            json!({"generation": number, "reason": reason, "by": by, "at": at})
        };
        let all: Vec<Value> = pins.iter().map(one).collect();
        writeln!(terminal.out, "{:#}", json!({"pins": all}))?;
        return Ok(Answer::Done);
    }
    for (number, Pin { reason, by, at }) in &pins {
        let reason = reason.replace(char::is_control, " ");
        let by = by.replace(char::is_control, " ");
        writeln!(terminal.out, "generation {number} is pinned   {}   {by}   {reason}", utc(*at))?;
    }
    if pins.is_empty() {
        writeln!(terminal.err, "{} has no pinned generation.", args.depot.display())?;
    }
    Ok(Answer::Done)
}

pub(super) fn unpin(args: &UnpinArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let depot = Depot::open(&args.depot)?;
    let number = args.generation.find(&depot)?;
    let changed = depot.unpin(number)?;
    if args.json {
        writeln!(terminal.out, "{:#}", json!({"generation": number, "changed": changed}))?;
    } else if changed {
        writeln!(terminal.out, "generation {number} is no longer pinned")?;
    } else {
        writeln!(terminal.out, "generation {number} was not pinned")?;
    }
    Ok(Answer::Done)
}
