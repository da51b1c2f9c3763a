//! `cobgen log`: a depot's history.

use std::io;
use std::path::PathBuf;

use cob_depot::{Depot, DepotError, LogEntry};
use cob_types::PublicKey;
use cob_types::words::count;
use serde_json::{Value, json};

use super::sign::{names, signers};
use super::{Answer, Terminal, tell_depot};
use crate::calendar::utc;

/// The options of `cobgen log`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen log --depot depot
  cobgen log --depot depot --json | jq '.generations[0].generation'")]
pub struct Args {
    /// Where generations are kept
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    depot: PathBuf,
    /// Print {"generations": [{"generation", "time", "author", "message", "hosts", "cobs",
    /// "signed_by"}]}, the newest first; the time is in seconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let entries = match Depot::open(&args.depot).and_then(|depot| entries(&depot)) {
        Ok(entries) => entries,
        Err(error) => return tell_depot(&error, &args.depot, args.json, terminal),
    };
    if args.json {
        let generations: Vec<Value> = entries.iter().map(|(entry, signers)| as_json(entry, signers)).collect();
        writeln!(terminal.out, "{:#}", json!({"generations": generations}))?;
        return Ok(Answer::Done);
    }
    if entries.is_empty() {
        writeln!(terminal.err, "{} has no generation yet.", args.depot.display())?;
    }
    for (LogEntry { generation, message, time, author, counts }, signers) in &entries {
        let (hosts, cobs) = (count(counts.hosts, "host"), count(counts.cobs, "change object"));
        writeln!(terminal.out, "generation {generation}   {}   {hosts}, {cobs}   {author}", utc(*time))?;
        for line in message.lines() {
            writeln!(terminal.out, "    {}", line.replace(char::is_control, " "))?;
        }
        if !signers.is_empty() {
            writeln!(terminal.out, "    signed by {}", names(signers))?;
        }
    }
    Ok(Answer::Done)
}

/// Every generation, and who has signed it.
fn entries(depot: &Depot) -> Result<Vec<(LogEntry, Vec<PublicKey>)>, DepotError> {
    let signed = |entry: LogEntry| signers(depot, entry.generation).map(|signers| (entry, signers));
    depot.list()?.into_iter().map(signed).collect()
}

fn as_json(entry: &LogEntry, signers: &[PublicKey]) -> Value {
    let LogEntry { generation, message, time, author, counts } = entry;
    json!({
        "generation": generation,
        "time": time,
        "author": author,
        "message": message,
        "hosts": counts.hosts,
        "cobs": counts.cobs,
        "signed_by": signers,
    })
}
