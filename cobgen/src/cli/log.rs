//! `cobgen log`: a depot's history.

use std::path::PathBuf;

use cob_depot::{Depot, DepotError, LogEntry, Outcomes};
use cob_types::PublicKey;
use cob_types::outcome::{Ended, SwitchOutcome};
use cob_types::words::{count, span};
use serde_json::{Value, json};

use super::sign::{names, signers};
use super::{Answer, CommandResult, Terminal};
use crate::calendar::{signed, utc};

/// Nanoseconds in a second.
const NS: u64 = 1_000_000_000;

/// The options of `cobgen log`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen log --depot depot
  cobgen log --depot depot --json | jq '.generations[0].generation'

`cobctl switch --wait`, `cobctl rollback --wait` and `cobctl outcomes --record` write the outcomes of switches \
into this depot; `cobctl outcomes` collects all outcomes from the hosts.")]
pub struct LogArgs {
    /// Where generations are kept
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    /// Print {"generations": [{"generation", "time", "author", "message", "hosts", "cobs",
    /// "signed_by", "switches"}], "problems": [TEXT]}, the newest first; the time is in seconds since 1970-01-01 UTC. A
    /// switch is as `cobctl outcomes --json` has it; problems are outcomes of switches that can't be read
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &LogArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let depot = Depot::open(&args.depot)?;
    let (entries, outcomes) = (entries(&depot)?, outcomes(&depot));
    if args.json {
        let generations: Vec<Value> =
            entries.iter().map(|(entry, signers)| as_json(entry, signers, &switches(&outcomes, entry))).collect();
        writeln!(terminal.out, "{:#}", json!({"generations": generations, "problems": outcomes.problems}))?;
        return Ok(Answer::Done);
    }
    for problem in &outcomes.problems {
        writeln!(terminal.err, "warning: {}", problem.replace(char::is_control, " "))?;
    }
    if entries.is_empty() {
        writeln!(terminal.err, "{} has no generation yet.", args.depot.display())?;
    }
    for (entry, signers) in &entries {
        let LogEntry { generation, message, time, author, counts } = entry;
        let (hosts, cobs) = (count(counts.hosts, "host"), count(counts.cobs, "change object"));
        writeln!(terminal.out, "generation {generation}   {}   {hosts}, {cobs}   {author}", utc(*time))?;
        for line in message.lines() {
            writeln!(terminal.out, "    {}", line.replace(char::is_control, " "))?;
        }
        if !signers.is_empty() {
            writeln!(terminal.out, "    signed by {}", names(signers))?;
        }
        for switch in switches(&outcomes, entry) {
            writeln!(terminal.out, "    {}", told(switch))?;
        }
    }
    Ok(Answer::Done)
}

/// Every generation, with the publishers that have signed it.
fn entries(depot: &Depot) -> Result<Vec<(LogEntry, Vec<PublicKey>)>, DepotError> {
    let signed = |entry: LogEntry| signers(depot, entry.generation).map(|signers| (entry, signers));
    depot.list()?.into_iter().map(signed).collect()
}

/// The outcomes of switches. A depot that cannot read its outcomes is logged all the same.
fn outcomes(depot: &Depot) -> Outcomes {
    let broken = |error: DepotError| Outcomes { all: Vec::new(), problems: vec![error.to_string()] };
    depot.outcomes().unwrap_or_else(broken)
}

/// The switches to a generation, oldest first. Of several records of a switch the last counts.
fn switches<'a>(outcomes: &'a Outcomes, entry: &LogEntry) -> Vec<&'a SwitchOutcome> {
    let mut newest: Vec<&SwitchOutcome> = Vec::new();
    for outcome in outcomes.all.iter().filter(|o| o.to == entry.generation) {
        if !newest.iter().any(|later| later.is_same_as(outcome)) {
            newest.push(outcome);
        }
    }
    newest.sort_by_key(|outcome| outcome.began_ns);
    newest
}

/// `switched 2026-11-21 20:15:03 by ann (operate): converged after 3.1 s on 3 hosts`; `switched back from 8 2026-...`
fn told(switch: &SwitchOutcome) -> String {
    let began = utc(signed(switch.began_ns / NS));
    let by = if switch.by.is_empty() { String::new() } else { format!(" by {}", switch.by) };
    let took = switch.ended_ns.map(|end| format!(" after {}", span(end.saturating_sub(switch.began_ns))));
    // A switch under way is recorded when the command stops waiting for it.
    let noted = if switch.ended == Ended::UnderWay { " when this was recorded" } else { "" };
    let (ended, took) = (switch.in_words() + noted, took.unwrap_or_default());
    let hosts = match switch.hosts.values().filter(|part| part.ended == Ended::Failed).count() {
        0 => count(switch.hosts.len() as u64, "host"),
        failed => format!("{failed} of {}", count(switch.hosts.len() as u64, "host")),
    };
    let gave_up: Vec<&str> = switch
        .hosts
        .values()
        .flat_map(|h| h.cobs.iter())
        .filter(|(_, c)| c.failed)
        .map(|(cob, _)| cob.as_str())
        .collect();
    let why = if gave_up.is_empty() { String::new() } else { format!("; failed: {}", gave_up.join(", ")) };
    let back = switch.back_from().map_or(String::new(), |from| format!(" back from {from}"));
    format!("switched{back} {began}{by}: {ended}{took} on {hosts}{why}").replace(char::is_control, " ")
}

fn as_json(entry: &LogEntry, signers: &[PublicKey], switches: &[&SwitchOutcome]) -> Value {
    let LogEntry { generation, message, time, author, counts } = entry;
    json!({
        "generation": generation,
        "time": time,
        "author": author,
        "message": message,
        "hosts": counts.hosts,
        "cobs": counts.cobs,
        "signed_by": signers,
        "switches": switches,
    })
}
