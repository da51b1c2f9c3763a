//! `cobgen solve`: which node of a cluster gets what.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;

use serde::Serialize;
use serde_json::json;

use super::{Answer, Terminal, tell};
use crate::diagnostic::{render, to_json};
use crate::solve::{self, ClusterView, Given, LayoutNode, Layouts, View};

/// The options of `cobgen solve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen solve models/
  cobgen solve models/ --cluster shop --json > layout.json
  cobgen solve models/ --existing layout.json        # after the model has changed: who is there stays
  cobgen solve models/ --exclude layout.json         # the next best

Exit status: 0 every cluster has a layout; 1 one has none, can't be asked for, or is undecided within the
budget of steps; 2 the model is wrong.")]
pub struct Args {
    /// A model file, or a folder whose *.yaml, *.yml and *.json files make the model
    model: PathBuf,
    /// Of this cluster alone
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// The clusters as they are: their nodes keep hardware and image, and services that are not concerned
    /// don't move. It is what this command prints with --json
    #[arg(long, value_name = "LAYOUT")]
    existing: Option<PathBuf>,
    /// A layout that is not wanted, in the same form; can be given several times
    #[arg(long, value_name = "LAYOUT")]
    exclude: Vec<PathBuf>,
    /// Print {"clusters": [{"name", "solvable", "nodes": [{"name", "services", "hardwaretype", "imagetype"}],
    /// "reason"?, "explanation"?: {"rules": [{"rule", "place"}], "minimal", "relaxations"}, "leaving"?}]};
    /// "solvable" is null where it is undecided. Refused: {"diagnostics"} as in `check`
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let given = match given(args.existing.as_ref(), &args.exclude) {
        Ok(given) => given,
        Err(error) => {
            writeln!(terminal.err, "error: {error}")?;
            return Ok(Answer::Bad);
        }
    };
    let view = View::of(&args.model, &given, args.cluster.as_deref());
    if view.is_refused() {
        return refused(&args.model, &view, args.json, terminal);
    }
    if let Some(answer) = unknown(args.cluster.as_deref(), &view, terminal)? {
        return Ok(answer);
    }
    let clusters = &view.clusters;
    if args.json {
        let clusters = clusters.iter().map(ClusterJson::of).collect();
        let mut out = io::BufWriter::with_capacity(64 << 10, &mut terminal.out);
        serde_json::to_writer(&mut out, &AllJson { clusters })?;
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

/// What was read beside the model.
pub(super) fn given(existing: Option<&PathBuf>, excluded: &[PathBuf]) -> Result<Given, solve::LayoutError> {
    let existing = existing.map_or_else(|| Ok(Layouts::new()), |path| solve::read(path))?;
    let excluded = excluded.iter().map(|path| solve::read(path)).collect::<Result<_, _>>()?;
    Ok(Given { existing, excluded })
}

/// Tells what is wrong with a model.
pub(super) fn refused(
    model: &std::path::Path,
    view: &View,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> io::Result<Answer> {
    let mut all = view.diagnostics.clone();
    all.extend(view.clusters.iter().flat_map(|c| c.faults.iter().cloned()));
    if as_json {
        writeln!(terminal.out, "{:#}", json!({"diagnostics": to_json(&all)}))?;
    } else {
        tell(model, &all, &view.sources, terminal)?;
    }
    Ok(Answer::Bad)
}

/// A cluster that was asked for and isn't there.
pub(super) fn unknown(cluster: Option<&str>, view: &View, terminal: &mut Terminal<'_>) -> io::Result<Option<Answer>> {
    let Some(name) = cluster.filter(|name| !view.clusters.iter().any(|c| c.name == *name)) else { return Ok(None) };
    writeln!(terminal.err, "error: the model has no cluster `{name}`")?;
    Ok(Some(Answer::Bad))
}

/// What is printed for machines; written as it goes, because nodes may be many.
#[derive(Serialize)]
struct AllJson<'a> {
    clusters: Vec<ClusterJson<'a>>,
}

#[derive(Serialize)]
struct ClusterJson<'a> {
    name: &'a str,
    solvable: Option<bool>,
    nodes: &'a [LayoutNode],
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: &'a Option<serde_json::Value>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    leaving: &'a [String],
}

impl<'a> ClusterJson<'a> {
    fn of(cluster: &'a ClusterView) -> Self {
        let ClusterView { name, solvable, nodes, reason, explanation, leaving, .. } = cluster;
        Self { name, solvable: *solvable, nodes, reason, explanation, leaving }
    }
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

/// The first few, and how many there are.
fn names(nodes: &[&LayoutNode]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<&str> = nodes.iter().take(SHOWN).map(|n| n.name.as_str()).collect();
    match (nodes.len(), nodes.last()) {
        (count, Some(last)) if count > SHOWN + 1 => format!("{}, … {} ({count} nodes)", shown.join(", "), last.name),
        _ => nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", "),
    }
}
