//! `cobgen prune`: removes old generations from a depot.

use std::path::PathBuf;
use std::time::Duration;

use cob_depot::Depot;
use cob_depot::prune::{Pruned, Reason, Rule};
use cob_types::GenerationNumber;
use cob_types::words::count;
use serde_json::{Value, json};

use super::{Answer, CommandResult, Terminal, ranges, seconds};
use crate::calendar::{now, signed};

/// The options of `cobgen prune`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("rule").required(true).multiple(true),
    after_help = "\
Examples:
  cobgen prune --keep 20 --dry-run --depot depot     only list
  cobgen prune --older-than 90d --depot depot
  cobgen prune --keep 20 --older-than 90d --depot depot    what both options allow

The newest generation always stays, and so do pinned generations (`cobgen pin`) and the rollback targets of the \
two newest. Numbers are never used again. Files that killed programs left \
behind more than an hour ago are removed, too. Publishers and `cobgen serve` may run meanwhile. Hosts keep their \
generations.

Exit status: 0 done; 3 the depot could not be read or written: no generation that shall stay is lost, and another \
run completes the work."
)]
pub struct PruneArgs {
    /// The newest K generations stay
    #[arg(long, value_name = "K", group = "rule")]
    keep: Option<usize>,
    /// Generations that were published within this time stay: 90d, 12h
    #[arg(long, value_name = "AGE", group = "rule", value_parser = age)]
    older_than: Option<u64>,
    /// Only list what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Files of objects that were changed within this time are freed by the next run only: a program that knows
    /// no locks of the depot (git) may be writing these files
    #[arg(long, value_name = "AGE", default_value = "15m", value_parser = age)]
    grace: u64,
    /// Where generations are kept
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    /// Print {"pruned": [N], "stays": [{"generation", "pinned" or "way_back_of"}], "freed_bytes", "leftovers"}; freed_bytes is null with
    /// --dry-run
    #[arg(long)]
    pub(super) json: bool,
}

/// Parses `90d` to seconds.
fn age(text: &str) -> Result<u64, String> {
    seconds(text).ok_or_else(|| "a number and s, m, h, d or w: 90d, 12h".to_owned())
}

pub(super) fn run(args: &PruneArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let since = args.older_than.map(|age| signed(now()).saturating_sub(signed(age)));
    let rule = Rule { keep: args.keep, since, grace: Duration::from_secs(args.grace) };
    let depot = Depot::open(&args.depot)?;
    let pruned = if args.dry_run { depot.would_prune(&rule)? } else { depot.prune(&rule)? };
    tell(args, &pruned, terminal)
}

fn tell(args: &PruneArgs, pruned: &Pruned, terminal: &mut Terminal<'_>) -> CommandResult {
    let Pruned { gone, stays, freed, leftovers } = pruned;
    if args.json {
        let one = |(number, reason): (&GenerationNumber, &Reason)| match reason {
            Reason::Pinned(why) => json!({"generation": number, "pinned": why}),
            Reason::WayBack(of) => json!({"generation": number, "way_back_of": of}),
        };
        let stays: Vec<Value> = stays.iter().map(one).collect();
        writeln!(
            terminal.out,
            "{:#}",
            json!({"pruned": gone, "stays": stays, "freed_bytes": freed, "leftovers": leftovers})
        )?;
        return Ok(Answer::Done);
    }
    let what = if gone.is_empty() { "none".to_owned() } else { ranges(gone) };
    let left = match leftovers {
        0 => String::new(),
        some => format!(", and {} left behind by killed programs", count(*some, "file")),
    };
    match freed {
        None => writeln!(terminal.out, "would be pruned: {what}{left}")?,
        Some(freed) => writeln!(terminal.out, "pruned: {what}{left}; {} KiB of files freed", freed.div_ceil(1024))?,
    }
    for (number, reason) in stays {
        match reason {
            Reason::Pinned(why) if why.is_empty() => writeln!(terminal.out, "stays: {number}, pinned")?,
            Reason::Pinned(why) => {
                writeln!(terminal.out, "stays: {number}, pinned: {}", why.replace(char::is_control, " "))?;
            }
            Reason::WayBack(of) => writeln!(terminal.out, "stays: {number}, a rollback target of {of}")?,
        }
    }
    Ok(Answer::Done)
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_have_a_unit() {
        assert_eq!((age("90d"), age("0s"), age("2w")), (Ok(7_776_000), Ok(0), Ok(1_209_600)));
        for wrong in ["", "90", "d", "-1d", "1y", "99999999999999999999d", "9999999999999999999w"] {
            age(wrong).expect_err(wrong);
        }
    }
}
