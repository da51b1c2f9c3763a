//! `cobgen plan`: the steps of an operation on a cluster, by node, or the effects of a switch between generations.

mod durations;
mod show;
mod switch;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use cob_depot::GenerationName;
use cob_planner::{Cluster, Node, Operation, Origin, plan};
use serde_json::json;

use super::solve::{Beside, is_known, refused};
use super::{Answer, CommandResult, Stop, Terminal};
use crate::diagnostic::{Diagnostic, render};
use crate::solve::{ClusterView, Given, LayoutNode, View};

/// The options of `cobgen plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen plan models/ --operation create
  cobgen plan models/ --operation restart --cluster shop --services db
  cobgen plan models/ --operation expand --existing before.json --json
  cobgen plan models/ --operation shrink --depot depot
  cobgen plan models/ --operation create --durations times.yaml
  cobgen plan models/ --operation create --dot | dot -Tsvg > plan.svg
  cobgen plan --from 3 --depot depot --durations moves.json
  cobgen plan models/ --from latest --depot depot --gantt plan.svg
  cobgen plan --from 3 --to 4 --depot depot --json > plan.json; cobctl watch --plan plan.json

The plan is not executed. With --operation: the steps of an operation on a cluster. Change objects find their \
order by themselves, without stages; in the stages of Loom's planner, each stage begins when the previous stage \
has ended. With --from: the effects of a switch between two generations that starts with all change objects in \
their preferred states, simulated with the engine of the daemons.

A file of durations lists how long actions take; the more exact line wins:
  \"*\": 10s
  create: 2m
  install namenode: 90s
  install namenode shop-1: 3m
  create shop-3: 5m
`cobctl durations` prints such a file from the hosts' histories. With --from:
  \"*\": 1s
  service down>up: 4s
  \"*/db/server down>up\": {min: 8s, median: 9s, p90: 15s}
  n1/db/server down>up: 12s
  check: 20ms
  message: 1ms
`cobctl durations --transitions` prints such a file.

Exit status: 0 there is a plan; 1 a cluster has no layout, or the switch does not converge; 2 the model, the \
operation or the generations are wrong; 3 the depot could not be read.")]
#[command(group = clap::ArgGroup::new("what").args(["operation", "from"]).required(true))]
pub struct PlanArgs {
    /// A model file, or a folder whose *.yaml, *.yml and *.json files make the model; with --from, its next generation
    #[arg(required_unless_present = "from", conflicts_with = "to")]
    model: Option<PathBuf>,
    /// The operation: create, delete, configure, start, stop, restart, add-services, remove-services, expand,
    /// shrink, upgrade
    #[arg(long, value_name = "OPERATION", value_parser = PossibleValuesParser::new(Operation::ALL.map(Operation::as_str)), hide_possible_values = true)]
    operation: Option<String>,
    /// The generation that is active: its number, `latest`, `-1` for the generation before the latest, or 0 for none
    #[arg(long, value_name = "N", conflicts_with_all = ["cluster", "services", "existing"], allow_negative_numbers = true)]
    from: Option<GenerationName>,
    /// The generation to switch to, named in the same way; default: the next generation of MODEL, else the latest
    #[arg(long, value_name = "M", requires = "from", allow_negative_numbers = true)]
    to: Option<GenerationName>,
    #[command(flatten)]
    switch: switch::Options,
    /// Of this cluster alone
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// These services, and their dependencies; default: all that the operation concerns
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    services: Vec<String>,
    /// The clusters as they are, as `cobgen solve --json` printed them; needed where the layout changes
    #[arg(long, value_name = "LAYOUT")]
    existing: Option<PathBuf>,
    /// The clusters as the latest generation of this depot has them, in place of --existing; with --from, where the
    /// generations are [there also: env COB_DEPOT]
    #[arg(long, value_name = "DIR", conflicts_with = "existing")]
    pub(super) depot: Option<PathBuf>,
    /// How long actions take, to compute the time of the plan with and without stages; `-` is the standard input
    #[arg(long, value_name = "FILE")]
    durations: Option<PathBuf>,
    /// With --from print {"format", "from", "to", "changes", "moved", "groups", "untouched_hosts", "transitions",
    /// "stages", "interrupted", "irreversible", "point_of_no_return"?, "critical_path", "forecast"}, as docs/plan.md has
    /// it; else {"plans": [{"cluster", "operation", "tasks": [{"id", "node", "action", "service"?, "after": [ids]}],
    /// "gates": [{"id", "after"}], "levels": [[ids]], "stages": [[ids]], "times"?: {"staged_ms", "ordered_ms",
    /// "longest": [ids]}}]}; a task comes after tasks and gates. Refused: {"diagnostics"} as in `check`
    #[arg(long, conflicts_with = "dot")]
    pub(super) json: bool,
    /// Print the order as a graph for Graphviz
    #[arg(long)]
    dot: bool,
}

impl PlanArgs {
    /// The depot, which a plan of a switch also takes from the environment.
    pub(super) fn depot(&self) -> Option<PathBuf> {
        let of_environment = || std::env::var_os("COB_DEPOT").filter(|path| !path.is_empty()).map(PathBuf::from);
        self.depot.clone().or_else(|| of_environment().filter(|_| self.from.is_some()))
    }
}

pub(super) fn run(args: &PlanArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    if let Some(from) = args.from {
        return switch::run(args, from, terminal);
    }
    let (Some(name), Some(model)) = (&args.operation, &args.model) else {
        let fault = Diagnostic::error("usage", "--operation needs a model: name a model file or folder");
        return Err(fault.into());
    };
    let operation = Operation::of_name(name).expect("the command line accepts only these names");
    let beside = Beside { existing: args.existing.as_deref(), depot: args.depot.as_deref(), exclude: &[] };
    let given = beside.given()?;
    let durations = args.durations.as_deref().map(durations::read).transpose();
    let durations = durations.map_err(|error| Diagnostic::error("durations", error))?;
    if operation.changes_layout() && args.existing.is_none() && args.depot.is_none() {
        let what = format!(
            "`{operation}` changes a layout, so the present layout must be known: name it with \
            --existing or --depot"
        );
        let help = "a depot keeps layouts; `cobgen solve --json` on the previous model prints its layout";
        return Err(Diagnostic::error("no-layout", what).help(help).into());
    }
    let view = View::of(model, &given, args.cluster.as_deref());
    if view.is_refused() {
        refused(model, &view, args.json, terminal)?;
        return Err(Stop::Told(Answer::Bad));
    }
    is_known(args.cluster.as_deref(), &view)?;
    if view.clusters.iter().any(|c| c.solvable != Some(true)) {
        refused(model, &view, args.json, terminal)?;
        return Ok(Answer::No);
    }
    let mut warnings = beside.unused(&given, &view);
    if let (Some(file), Some(durations)) = (&args.durations, &durations) {
        warnings.extend(durations.unused(file, &view, &given, args.cluster.is_none()));
    }
    write!(terminal.err, "{}", render(&warnings, &view.sources, terminal.colour))?;
    let durations = durations.map(|read| read.durations);
    let services: BTreeSet<String> = args.services.iter().cloned().collect();
    let services = (!services.is_empty()).then_some(&services);
    let mut plans = Vec::new();
    for view in &view.clusters {
        let plan = plan(&cluster(view, &given), operation, services)
            .map_err(|error| Diagnostic::error("plan", format!("cluster `{}`: {error}", view.name)))?;
        plans.push((view.name.as_str(), plan));
    }
    if args.json {
        let plans: Vec<serde_json::Value> =
            plans.iter().map(|(name, plan)| show::to_json(name, plan, durations.as_ref())).collect();
        writeln!(terminal.out, "{}", json!({"plans": plans}))?;
    } else if args.dot {
        write!(terminal.out, "{}", show::to_dot(&plans))?;
    } else {
        for (name, plan) in &plans {
            write!(terminal.out, "{}", show::in_words(name, plan, durations.as_ref()))?;
        }
    }
    Ok(Answer::Done)
}

/// A cluster for the planner.
fn cluster(view: &ClusterView, given: &Given) -> Cluster {
    let node = |node: &LayoutNode, origin: Origin| Node {
        name: node.name.clone(),
        services: node.services.iter().cloned().collect(),
        origin,
    };
    let before = given.existing.get(&view.name).into_iter().flatten();
    Cluster {
        before: before.map(|n| node(n, view.origin)).collect(),
        after: view.nodes.iter().map(|n| node(n, view.origin)).collect(),
        services: view.services.clone(),
    }
}
