//! `cobgen solve`: prints the layouts of clusters.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cob_depot::{Depot, DepotError};

use super::{Answer, CommandResult, Stop, Terminal};
use crate::diagnostic::{Diagnostic, Diagnostics, render};
use crate::make::layouts_of;
use crate::model::did_you_mean_or_list;
use crate::solve::{self, ClusterView, Given, LayoutNode, Layouts, View};

/// The options of `cobgen solve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen solve models/
  cobgen solve models/ --cluster shop --json > layout.json
  cobgen solve models/ --existing layout.json        # after a change of the model: existing nodes stay
  cobgen solve models/ --depot depot                 # as the next `cobgen generate` will lay it out
  cobgen solve models/ --exclude layout.json         # the next best

Exit status: 0 every cluster has a layout; 1 a cluster has no layout, an invalid request, or no decision within \
the step limit; 2 the model is wrong.")]
pub struct SolveArgs {
    /// A model file, or a folder whose *.yaml, *.yml and *.json files make the model
    model: PathBuf,
    /// Of this cluster alone
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// The clusters as they are: their nodes keep hardware and image, and services that are not concerned
    /// don't move. The output of this command with --json
    #[arg(long, value_name = "LAYOUT")]
    existing: Option<PathBuf>,
    /// The clusters as the latest generation of this depot has them, in place of --existing
    #[arg(long, value_name = "DIR", conflicts_with = "existing")]
    pub(super) depot: Option<PathBuf>,
    /// A layout that is not wanted, in the same form; can be given several times
    #[arg(long, value_name = "LAYOUT")]
    exclude: Vec<PathBuf>,
    /// Print {"clusters": [{"name", "solvable", "nodes": [{"name", "services", "hardwaretype", "imagetype"}],
    /// "reason"?, "explanation"?: {"rules": [{"rule", "place"}], "minimal", "relaxations"}, "leaving"?, "provider"?:
    /// {"name", "type"?, "settings", "hardwaretypes": {NAME: VALUES}, "imagetypes": {NAME: VALUES}}}]};
    /// "solvable" is null where it is undecided. Refused: {"diagnostics"} as in `check`
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &SolveArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let beside = Beside { existing: args.existing.as_deref(), depot: args.depot.as_deref(), exclude: &args.exclude };
    let given = beside.given()?;
    let view = View::of(&args.model, &given, args.cluster.as_deref());
    if view.is_refused() {
        refused(&args.model, &view, args.json, terminal)?;
        return Err(Stop::Told(Answer::Bad));
    }
    is_known(args.cluster.as_deref(), &view)?;
    write!(terminal.err, "{}", render(&beside.unused(&given, &view), &view.sources, terminal.colour))?;
    let clusters = &view.clusters;
    if args.json {
        let mut out = io::BufWriter::with_capacity(64 << 10, &mut terminal.out);
        serde_json::to_writer(&mut out, &view.to_json()).map_err(io::Error::from)?;
        writeln!(out)?;
        out.flush()?;
    } else {
        let faults: Vec<_> = clusters.iter().flat_map(|c| c.faults.iter().cloned()).chain(view.diagnostics).collect();
        if !faults.is_empty() {
            write!(terminal.err, "{}", render(&faults, &view.sources, terminal.colour))?;
        }
        for cluster in clusters.iter().filter(|c| c.solvable == Some(true)) {
            in_words(cluster, terminal)?;
        }
    }
    let all = clusters.iter().all(|c| c.solvable == Some(true));
    Ok(if all { Answer::Done } else { Answer::No })
}

/// The files to read beside the model.
pub(super) struct Beside<'a> {
    pub(super) existing: Option<&'a Path>,
    pub(super) depot: Option<&'a Path>,
    pub(super) exclude: &'a [PathBuf],
}

impl Beside<'_> {
    pub(super) fn given(&self) -> Result<Given, Stop> {
        let existing = match (self.existing, self.depot) {
            (Some(path), _) => solve::read(path)?,
            (None, Some(path)) => recorded(path)?,
            (None, None) => Layouts::new(),
        };
        let excluded = self.exclude.iter().map(|path| solve::read(path)).collect::<Result<_, _>>()?;
        Ok(Given { existing, excluded, ..Given::default() })
    }

    /// Warns of clusters that the files have and the model lacks.
    pub(super) fn unused(&self, given: &Given, view: &View) -> Vec<Diagnostic> {
        let existing = given.existing.keys().filter(|_| self.existing.is_some()).map(|name| (self.existing, name));
        let pairs = self.exclude.iter().zip(&given.excluded);
        let excluded = pairs.flat_map(|(path, layouts)| layouts.keys().map(move |name| (Some(path.as_path()), name)));
        let unknown = existing.chain(excluded).filter(|(_, name)| !view.cluster_names.contains(*name));
        let warning = |(path, name): (Option<&Path>, &String)| {
            let file = path.unwrap_or(Path::new("")).display();
            let what = format!("{file} has a layout of the cluster `{name}`, which the model does not have");
            Diagnostic::warning("unknown-cluster", what)
                .maybe_help(did_you_mean_or_list(name, view.cluster_names.iter().map(String::as_str)))
        };
        unknown.map(warning).collect()
    }
}

impl From<solve::LayoutError> for Stop {
    fn from(error: solve::LayoutError) -> Self {
        let mut fault = Diagnostic::error("layout", error.to_string());
        if !matches!(error, solve::LayoutError::Unreadable { .. }) {
            fault = fault.help("it must be the output of `cobgen solve --json`");
        }
        fault.into()
    }
}

/// The layouts of a depot's latest generation.
fn recorded(path: &Path) -> Result<Layouts, DepotError> {
    let depot = Depot::open(path)?;
    layouts_of(&depot, depot.latest()?.unwrap_or_default())
}

/// Reports the faults of a model.
pub(super) fn refused(model: &Path, view: &View, as_json: bool, terminal: &mut Terminal<'_>) -> io::Result<()> {
    // A fault of a template is also a fault of each of its clusters.
    let mut all = Diagnostics::default();
    all.extend(view.diagnostics.iter().chain(view.clusters.iter().flat_map(|c| &c.faults)).cloned());
    let all: Vec<Diagnostic> = all.iter().cloned().collect();
    super::refused(model, &all, &view.sources, as_json, terminal)
}

/// Refuses a requested cluster that does not exist.
pub(super) fn is_known(cluster: Option<&str>, view: &View) -> Result<(), Diagnostic> {
    let Some(name) = cluster.filter(|name| !view.clusters.iter().any(|c| c.name == *name)) else { return Ok(()) };
    Err(Diagnostic::error("unknown-cluster", format!("the model has no cluster `{name}`"))
        .maybe_help(did_you_mean_or_list(name, view.cluster_names.iter().map(String::as_str))))
}

/// Services, hardware and image.
type Like<'a> = (&'a [String], &'a Option<String>, &'a Option<String>);

fn in_words(cluster: &ClusterView, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let count = cluster.nodes.len();
    writeln!(terminal.out, "{}: {count} {}", cluster.name, if count == 1 { "node" } else { "nodes" })?;
    let mut alike: BTreeMap<Like<'_>, Vec<&LayoutNode>> = BTreeMap::new();
    for node in &cluster.nodes {
        alike.entry((&node.services, &node.hardwaretype, &node.imagetype)).or_default().push(node);
    }
    let mut groups: Vec<_> = alike.into_iter().collect();
    groups.sort_by_cached_key(|(_, nodes)| nodes.first().map(|n| solve::natural(&n.name)));
    for ((services, hardware, image), nodes) in groups {
        let types: Vec<&str> = [hardware, image].into_iter().flatten().map(String::as_str).collect();
        let types = if types.is_empty() { String::new() } else { format!(" ({})", types.join(", ")) };
        let services = if services.is_empty() { "nothing".to_owned() } else { services.join(", ") };
        writeln!(terminal.out, "  {}{types}: {services}", names(&nodes))?;
    }
    if !cluster.leaving.is_empty() {
        writeln!(terminal.out, "  leaving: {}", cluster.leaving.join(", "))?;
    }
    Ok(())
}

/// The first few names, and the number of nodes.
fn names(nodes: &[&LayoutNode]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<&str> = nodes.iter().take(SHOWN).map(|n| n.name.as_str()).collect();
    match (nodes.len(), nodes.last()) {
        (count, Some(last)) if count > SHOWN + 1 => format!("{}, … {} ({count} nodes)", shown.join(", "), last.name),
        _ => nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", "),
    }
}
