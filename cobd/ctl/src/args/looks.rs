//! Arguments of the commands that only look.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use cob_depot::GenerationName;
use cob_types::{CobId, HostName};

use super::{Which, generation};
use crate::past::moment::Moment;

/// Arguments of `status`.
#[derive(Debug, ClapArgs)]
pub struct StatusArgs {
    /// Only these hosts or change objects
    #[arg(value_name = "HOST|COB")]
    pub only: Vec<Which>,
    /// Show every change object; else those that are settled are counted where there are many
    #[arg(long)]
    pub all: bool,
}

/// Arguments of `check`.
#[derive(Debug, ClapArgs)]
pub struct CheckArgs {
    /// Only these hosts or change objects
    #[arg(value_name = "HOST|COB")]
    pub only: Vec<Which>,
    /// How long to wait for checks to end
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = crate::words::parse_span)]
    pub wait: Duration,
}

/// Arguments of `diff`.
#[derive(Debug, ClapArgs)]
pub struct DiffArgs {
    /// Only these hosts or change objects
    #[arg(value_name = "HOST|COB")]
    pub only: Vec<Which>,
    /// From what this generation wants, which is prepared and not active yet; of one change object
    #[arg(long, value_name = "N", value_parser = generation, requires = "only", allow_negative_numbers = true)]
    pub generation: Option<GenerationName>,
}

/// Arguments of `watch`.
#[derive(Debug, ClapArgs)]
pub struct WatchArgs {
    /// Only these hosts or change objects
    #[arg(value_name = "HOST|COB")]
    pub only: Vec<Which>,
    /// End when all is converged
    #[arg(long)]
    pub until_converged: bool,
    /// A plan that `cobgen plan --from N --to M --json` printed: tells when the switch ends, as it goes
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
}

/// Arguments of `explain`.
#[derive(Debug, ClapArgs)]
pub struct ExplainArgs {
    /// The change object, or the host
    #[arg(value_name = "HOST|COB")]
    pub what: Which,
}

/// Arguments of `history`.
#[derive(Debug, ClapArgs)]
pub struct HistoryArgs {
    /// Only what concerns this change object, or what is on record on this host
    #[arg(value_name = "COB|HOST", conflicts_with = "cob")]
    pub what: Option<Which>,
    /// The same as COB
    #[arg(long)]
    pub cob: Option<CobId>,
    /// Show also the words by which change objects agree on locks; of a budget they are shown anyway
    #[arg(long)]
    pub locks: bool,
    /// Only moves, checks and orders: with --json too, which else prints everything
    #[arg(long, conflicts_with = "locks")]
    pub moves: bool,
    /// Only what happened at this time or later: 2026-11-21T14:03:00Z, 14:03 (the last time that clocks showed it, UTC), 5m (ago)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<Moment>,
    /// Only what happened up to this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "follow")]
    pub until: Option<Moment>,
    /// Only the last so many entries, of those that are shown
    #[arg(long, short = 'n', value_name = "N")]
    pub last: Option<usize>,
    /// Only what happened under this generation and later ones
    #[arg(long, value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub since_generation: Option<GenerationName>,
    /// Go on with what happens from now on
    #[arg(long, short)]
    pub follow: bool,
    /// Show what a plan of `cobgen plan --from N --to M --json` said beside what was, for each transition and in all
    #[arg(long, value_name = "FILE", conflicts_with_all = ["what", "cob", "moves", "locks", "since", "until", "last", "since_generation", "follow"])]
    pub compare_plan: Option<PathBuf>,
}

/// Arguments of `plan`.
#[derive(Debug, ClapArgs)]
pub struct PlanArgs {
    /// The generation: its number, `latest`, the newest in the depot, or `-1` for the one before that
    #[arg(value_name = "N|latest", value_parser = generation, allow_negative_numbers = true)]
    pub generation: GenerationName,
    /// Draw the transitions over time into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub gantt: Option<PathBuf>,
    /// Print the order as a graph for Graphviz
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,
    /// How long transitions take, as `cobctl durations --transitions` prints it, in place of what the histories say now;
    /// `-` is the standard input
    #[arg(long, value_name = "FILE")]
    pub durations: Option<PathBuf>,
    /// Run the switch so often with durations by chance, where they have a spread; fewer times where it is large
    #[arg(long, value_name = "K", default_value_t = 20, hide_default_value = true)]
    pub runs: u64,
}

/// Arguments of `durations`.
#[derive(Debug, ClapArgs)]
pub struct DurationsArgs {
    /// Only what happened under this generation and later ones
    #[arg(long, value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub since_generation: Option<GenerationName>,
    /// All transitions of all change objects, each with its spread: for `cobgen plan --from`
    #[arg(long)]
    pub transitions: bool,
    /// Saved histories (`cobctl history --json > FILE`), in place of those of the hosts; - reads the standard input
    #[arg(value_name = "FILE")]
    pub histories: Vec<PathBuf>,
}

/// Arguments of `facts`.
#[derive(Debug, ClapArgs)]
pub struct FactsArgs {
    /// Only these hosts
    #[arg(value_name = "HOST")]
    pub only: Vec<HostName>,
}

/// Arguments of `output`.
#[derive(Debug, ClapArgs)]
pub struct OutputArgs {
    /// The change object
    #[arg(value_name = "COB")]
    pub cob: CobId,
}

/// Arguments of `logs`.
#[derive(Debug, ClapArgs)]
pub struct LogsArgs {
    /// The service
    #[arg(value_name = "COB")]
    pub cob: CobId,
    /// So many lines at most, the last ones; 0 with -f: what comes from now on
    #[arg(long, short = 'n', value_name = "N", default_value = "100", value_parser = lines)]
    pub lines: usize,
    /// Of its life before this one
    #[arg(long, conflicts_with = "follow")]
    pub previous: bool,
    /// Go on with what comes
    #[arg(long, short)]
    pub follow: bool,
}

fn lines(text: &str) -> Result<usize, String> {
    let most = cobd::web::LogsQuery::MAX_LINES;
    let lines = text.parse().ok().filter(|n| *n <= most);
    lines.ok_or_else(|| format!("{text:?} is no number of lines up to {most}"))
}
