//! Arguments of the commands that only look.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use cob_depot::GenerationName;
use cob_types::command_run::RunId;
use cob_types::{CobId, HostName};

use super::{Which, generation};
use crate::past::moment::Moment;

/// Arguments of `status`.
#[derive(Debug, ClapArgs)]
pub struct StatusArgs {
    /// Only these hosts or change objects
    #[arg(value_name = "HOST|COB")]
    pub only: Vec<Which>,
    /// Show all change objects; without it, a long list leaves out settled change objects
    #[arg(long)]
    pub all: bool,
}

/// Arguments of `check`.
#[derive(Debug, ClapArgs)]
pub struct CheckArgs {
    /// Only these hosts or change objects
    #[arg(value_name = "HOST|COB")]
    pub only: Vec<Which>,
    /// Time limit for the checks
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = crate::words::parse_span)]
    pub wait: Duration,
}

/// Arguments of `diff`.
#[derive(Debug, ClapArgs)]
pub struct DiffArgs {
    /// Only these hosts or change objects
    #[arg(value_name = "HOST|COB")]
    pub only: Vec<Which>,
    /// Compare with this generation, which is prepared and not yet active; for one change object
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
    /// Print a line for each change, as into a pipe, instead of the full-screen view
    #[arg(long)]
    pub plain: bool,
    /// A plan of `cobgen plan --from N --to M --json`: show the progress and the expected end
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
}

/// Arguments of `notify`.
#[derive(Debug, ClapArgs)]
pub struct NotifyArgs {
    /// The receivers, and what each hears of
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Send a test message to all receivers, and end
    #[arg(long)]
    pub test: bool,
}

/// Arguments of `graph`.
#[derive(Debug, ClapArgs)]
pub struct GraphArgs {
    /// Only these hosts or change objects, with their needs and dependents
    #[arg(value_name = "HOST|COB")]
    pub only: Vec<Which>,
    /// The format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = GraphFormat::Svg)]
    pub format: GraphFormat,
    /// The generation [default: the one that most hosts have]
    #[arg(long, value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub generation: Option<GenerationName>,
}

/// Arguments of `report`.
#[derive(Debug, ClapArgs)]
pub struct ReportArgs {
    /// The generation that was switched to; of several switches to it, the last one
    #[arg(value_name = "GENERATION", value_parser = generation, allow_negative_numbers = true)]
    pub generation: GenerationName,
    /// Write the report, with a picture, as a single HTML file
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub html: Option<PathBuf>,
}

/// The format of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GraphFormat {
    /// A picture.
    Svg,
    /// For Graphviz.
    Dot,
    /// For Mermaid, in Markdown.
    Mermaid,
}

/// Arguments of `page`.
#[derive(Debug, ClapArgs)]
pub struct PageArgs {
    /// Open the page in the browser
    #[arg(long)]
    pub open: bool,
    /// Port of 127.0.0.1; 0: a free port
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
    /// File or folder of the model that the page edits and publishes
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
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
    /// Only entries about this change object, or of this host
    #[arg(value_name = "COB|HOST", conflicts_with = "cob")]
    pub what: Option<Which>,
    /// The same as COB
    #[arg(long)]
    pub cob: Option<CobId>,
    /// Show lock messages, too (always shown for a budget)
    #[arg(long)]
    pub locks: bool,
    /// Only transitions, checks and orders; with --json, too, which otherwise prints all entries
    #[arg(long, conflicts_with = "locks")]
    pub moves: bool,
    /// Only entries from this time on: 2026-11-21T14:03:00Z, 14:03 (the last time that clocks showed it, UTC), 5m (ago)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<Moment>,
    /// Only entries up to this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "follow")]
    pub until: Option<Moment>,
    /// Only the last N of the shown entries
    #[arg(long, short = 'n', value_name = "N")]
    pub last: Option<usize>,
    /// Only entries of this generation and later generations
    #[arg(long, value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub since_generation: Option<GenerationName>,
    /// Continue with new entries
    #[arg(long, short)]
    pub follow: bool,
    /// Compare a plan of `cobgen plan --from N --to M --json` with the real switch, for each transition and in total
    #[arg(long, value_name = "FILE", conflicts_with_all = ["what", "cob", "moves", "locks", "since", "until", "last", "since_generation", "follow"])]
    pub compare_plan: Option<PathBuf>,
}

/// Arguments of `plan`.
#[derive(Debug, ClapArgs)]
pub struct PlanArgs {
    /// The generation: a number, `latest` (the newest in the depot) or `-1` (the generation before the latest)
    #[arg(value_name = "N|latest", value_parser = generation, allow_negative_numbers = true)]
    pub generation: GenerationName,
    /// Draw the transitions over time into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub gantt: Option<PathBuf>,
    /// Print the order as a graph for Graphviz
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,
    /// Durations from `cobctl durations --transitions`, instead of the present histories; `-` reads the standard input
    #[arg(long, value_name = "FILE")]
    pub durations: Option<PathBuf>,
    /// Simulate K runs with random durations, if their spread is known; fewer runs for a large switch
    #[arg(long, value_name = "K", default_value_t = 20, hide_default_value = true)]
    pub runs: u64,
}

/// Arguments of `durations`.
#[derive(Debug, ClapArgs)]
pub struct DurationsArgs {
    /// Only entries of this generation and later generations
    #[arg(long, value_name = "N", value_parser = generation, allow_negative_numbers = true)]
    pub since_generation: Option<GenerationName>,
    /// All transitions of all change objects, with the spread of each: for `cobgen plan --from`
    #[arg(long)]
    pub transitions: bool,
    /// Saved histories (`cobctl history --json > FILE`), instead of the hosts' histories; - reads the standard input
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
    #[arg(value_name = "COB", required_unless_present = "run")]
    pub cob: Option<CobId>,
    /// Instead of a change object: the number of a run, as `cobctl run` and `cobctl history` show it
    #[arg(long, value_name = "NUMBER", value_parser = super::run::run_id, conflicts_with = "cob")]
    pub run: Option<RunId>,
}

/// Arguments of `logs`.
#[derive(Debug, ClapArgs)]
pub struct LogsArgs {
    /// The service
    #[arg(value_name = "COB")]
    pub cob: CobId,
    /// The last N lines; 0 with -f: only new lines
    #[arg(long, short = 'n', value_name = "N", default_value = "100", value_parser = lines)]
    pub lines: usize,
    /// Show the run before the last start
    #[arg(long, conflicts_with = "follow")]
    pub previous: bool,
    /// Continue with new lines
    #[arg(long, short)]
    pub follow: bool,
}

fn lines(text: &str) -> Result<usize, String> {
    let most = cob_types::api::LogsQuery::MAX_LINES;
    let lines = text.parse().ok().filter(|n| *n <= most);
    lines.ok_or_else(|| format!("{text:?} is not a number of lines up to {most}"))
}
