//! `cobgen log`: a depot's history.

use std::io;
use std::path::PathBuf;

use cob_depot::{Depot, LogEntry};
use serde_json::{Value, json};

use super::{Answer, Terminal, tell_depot};

/// The options of `cobgen log`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen log --depot depot
  cobgen log --depot depot --json | jq '.generations[0].generation'")]
pub struct Args {
    /// Where generations are kept
    #[arg(long, value_name = "DIR")]
    depot: PathBuf,
    /// Print {"generations": [{"generation", "time", "author", "message", "hosts", "cobs"}]}, the
    /// newest first; the time is in seconds since 1970-01-01 UTC
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let entries = match Depot::open(&args.depot).and_then(|depot| depot.list()) {
        Ok(entries) => entries,
        Err(error) => return tell_depot(&error, &args.depot, terminal),
    };
    if args.json {
        let generations: Vec<Value> = entries.iter().map(as_json).collect();
        writeln!(terminal.out, "{:#}", json!({"generations": generations}))?;
        return Ok(Answer::Done);
    }
    if entries.is_empty() {
        writeln!(terminal.err, "{} has no generation yet.", args.depot.display())?;
    }
    for LogEntry { generation, message, time, author, counts } in &entries {
        let (hosts, cobs) = (counts.hosts, counts.cobs);
        writeln!(
            terminal.out,
            "generation {generation}   {}   {hosts} hosts, {cobs} change objects   {author}",
            utc(*time)
        )?;
        for line in message.lines() {
            writeln!(terminal.out, "    {}", line.replace(char::is_control, " "))?;
        }
    }
    Ok(Answer::Done)
}

fn as_json(entry: &LogEntry) -> Value {
    let LogEntry { generation, message, time, author, counts } = entry;
    json!({
        "generation": generation,
        "time": time,
        "author": author,
        "message": message,
        "hosts": counts.hosts,
        "cobs": counts.cobs,
    })
}

/// `2026-11-21 03:24:07 UTC`.
fn utc(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01 of the Gregorian calendar, which repeats every 400 years; years begin in
    // March, so that the leap day is their last.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + later;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), shown);
        }
    }
}
