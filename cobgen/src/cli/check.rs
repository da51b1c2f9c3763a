//! `cobgen check`: checks a model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_depot::{Depot, DepotError};
use cob_types::words::count;
use cob_types::{Cob, Generation};
use serde_json::json;

use super::{Answer, CommandResult, Terminal, tell};
use crate::diagnostic::to_json;
use crate::make::{After, make};
use crate::publish::latest;

/// The options of `cobgen check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen check model.yaml
  cobgen check models/ --json | jq -r '.diagnostics[].message'
  cobgen check model.yaml --depot depot    as `cobgen generate` would, with the keys that hosts have enrolled

Exit status: 0 the model is valid (warnings are possible); 2 it has errors, and all were printed, or the depot \
does not exist; 3 the depot could not be read.")]
pub struct CheckArgs {
    /// A model file, or a folder whose *.yaml, *.yml and *.json files make the model
    model: PathBuf,
    /// Check it as the next generation of this depot, with the keys of enrolled hosts and the latest generation
    #[arg(long, value_name = "DIR")]
    pub(super) depot: Option<PathBuf>,
    /// Print {"ok", "hosts", "cobs", "dependencies", "diagnostics": [{"severity", "code", "message",
    /// "place"?: {"file", "line", "column"}, "notes": [{"message", "place"?}], "help"?}]}
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &CheckArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let after = args.depot.as_deref().map(after).transpose()?.unwrap_or_default();
    let made = make(&args.model, &after);
    let ok = !made.is_refused();
    let Counts { hosts, cobs, dependencies } =
        made.assembled.filter(|_| ok).map(|a| counts(&a.generation)).unwrap_or_default();
    if args.json {
        let answer = json!({
            "ok": ok,
            "hosts": hosts,
            "cobs": cobs,
            "dependencies": dependencies,
            "diagnostics": to_json(&made.diagnostics),
        });
        writeln!(terminal.out, "{answer:#}")?;
    } else {
        tell(&args.model, &made.diagnostics, &made.sources, terminal)?;
        if ok {
            let model = args.model.display();
            let all =
                [count(hosts, "host"), count(cobs, "change object"), count(dependencies, "dependency")].join(", ");
            writeln!(terminal.out, "{model}: ok: {all}")?;
        }
    }
    Ok(if ok { Answer::Done } else { Answer::Bad })
}

/// The state of a depot's latest generation that the next generation starts from.
fn after(depot: &Path) -> Result<After, DepotError> {
    let depot = Depot::open(depot)?;
    After::latest(&depot, &latest(&depot)?)
}

/// The number of hosts, change objects and dependencies.
#[derive(Default)]
struct Counts {
    hosts: usize,
    cobs: usize,
    dependencies: usize,
}

fn counts(generation: &Generation) -> Counts {
    let cobs = || generation.bundles.values().flat_map(|bundle| bundle.cobs.values());
    let needs = |cob: &Arc<Cob>| {
        cob.transitions.iter().map(|t| t.needs.len()).sum::<usize>()
            + cob.locks.iter().map(|l| l.needs.len()).sum::<usize>()
    };
    Counts { hosts: generation.bundles.len(), cobs: cobs().count(), dependencies: cobs().map(needs).sum() }
}
