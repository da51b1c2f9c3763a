//! `cobgen check`: is a model right?

use std::io;
use std::path::PathBuf;

use serde_json::json;

use super::{Answer, Terminal, load};
use crate::diagnostic::to_json;
use crate::draft::Draft;
use crate::expand::{self, Expansion};

/// The options of `cobgen check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen check model.yaml
  cobgen check models/ --json | jq -r '.diagnostics[].message'

Exit status: 0 the model is right; 2 it has errors, all of which were printed.")]
pub struct Args {
    /// A model file, or a folder whose *.yaml, *.yml and *.json files make the model
    model: PathBuf,
    /// Print {"ok", "hosts", "cobs", "dependencies", "diagnostics": [{"severity", "code", "message",
    /// "place"?: {"file", "line", "column"}, "notes", "help"?}]}
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let draft = if args.json {
        let Expansion { draft, diagnostics, .. } = expand::load(&args.model, &Default::default());
        let Counts { hosts, cobs, dependencies } = draft.as_ref().map(counts).unwrap_or_default();
        let answer = json!({
            "ok": draft.is_some(),
            "hosts": hosts,
            "cobs": cobs,
            "dependencies": dependencies,
            "diagnostics": to_json(&diagnostics),
        });
        writeln!(terminal.out, "{answer:#}")?;
        draft
    } else {
        let draft = load(&args.model, terminal)?;
        if let Some(draft) = &draft {
            let Counts { hosts, cobs, dependencies } = counts(draft);
            let model = args.model.display();
            writeln!(terminal.out, "{model}: ok: {hosts} hosts, {cobs} change objects, {dependencies} dependencies")?;
        }
        draft
    };
    Ok(if draft.is_some() { Answer::Done } else { Answer::Bad })
}

/// How much there is of everything.
#[derive(Default)]
struct Counts {
    hosts: usize,
    cobs: usize,
    dependencies: usize,
}

fn counts(draft: &Draft) -> Counts {
    let dependencies = draft.cobs.values().map(|c| c.value.arrows.len()).sum();
    Counts { hosts: draft.hosts.len(), cobs: draft.cobs.len(), dependencies }
}
