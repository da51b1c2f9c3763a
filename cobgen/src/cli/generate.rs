//! `cobgen generate`: a model becomes the depot's next generation.

use std::io;
use std::path::PathBuf;

use cob_types::CobId;
use serde_json::json;

use super::{Answer, Terminal, tell, tell_publish};
use crate::diagnostic::to_json;
use crate::publish::{Published, Refused, publish};

/// The most change objects that are listed.
const MAX_LISTED: usize = 20;

/// The options of `cobgen generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen generate model.yaml --depot depot
  cobgen generate models/ --depot depot --message 'more memory for the database'
  cobgen generate models/ --depot depot --json | jq .generation

Nothing happens on any host until the generation is switched to: `cobctl switch N`.

Exit status: 0 the depot's latest generation asks for what the model asks for (a model that asks for
the same as before makes no new one); 2 the model is refused; 3 the depot could not be written.")]
pub struct Args {
    /// A model file, or a folder whose *.yaml, *.yml and *.json files make the model
    model: PathBuf,
    /// Where generations are kept; made if there is nothing
    #[arg(long, value_name = "DIR")]
    depot: PathBuf,
    /// What to say of it in the log
    #[arg(long, short, default_value = "", hide_default_value = true)]
    message: String,
    /// Print {"generation", "hosts", "cobs", "added", "changed", "removed"}, all numbers: of the
    /// generation, of its hosts and change objects, and of the change objects that differ from the
    /// generation before (all 0 where no new one was made). Refused: {"diagnostics"} as in `check`
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal<'_>) -> io::Result<Answer> {
    let published = match publish(&args.model, &args.depot, &args.message) {
        Ok(published) => published,
        Err(Refused::Model { diagnostics, .. }) if args.json => {
            writeln!(terminal.out, "{:#}", json!({"diagnostics": to_json(&diagnostics)}))?;
            return Ok(Answer::Bad);
        }
        Err(Refused::Model { diagnostics, sources }) => {
            tell(&args.model, &diagnostics, &sources, terminal)?;
            writeln!(terminal.err, "No generation was made.")?;
            return Ok(Answer::Bad);
        }
        Err(Refused::Depot(error)) => return tell_publish(&error, &args.depot, terminal),
    };
    tell(&args.model, &published.diagnostics, &published.sources, terminal)?;
    if args.json {
        let Published { generation, hosts, cobs, difference, .. } = &published;
        let answer = json!({
            "generation": generation,
            "hosts": hosts,
            "cobs": cobs,
            "added": difference.added.len(),
            "changed": difference.changed.len(),
            "removed": difference.removed.len(),
        });
        writeln!(terminal.out, "{answer:#}")?;
        return Ok(Answer::Done);
    }
    in_words(args, &published, terminal)?;
    Ok(Answer::Done)
}

fn in_words(args: &Args, published: &Published, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Published { generation, new, hosts, cobs, difference, .. } = published;
    let depot = args.depot.display();
    if !new {
        writeln!(terminal.out, "generation {generation} asks for the same already; no new one was made")?;
        return Ok(());
    }
    let (added, changed, removed) = (difference.added.len(), difference.changed.len(), difference.removed.len());
    writeln!(
        terminal.out,
        "generation {generation}: {hosts} hosts, {cobs} change objects; {added} added, {changed} changed, {removed} removed"
    )?;
    let added = difference.added.keys().map(|id| ('+', id));
    let changed = difference.changed.keys().map(|id| ('~', id));
    let removed = difference.removed.keys().map(|id| ('-', id));
    let all: Vec<(char, &CobId)> = added.chain(changed).chain(removed).collect();
    for (sign, id) in all.iter().take(MAX_LISTED) {
        writeln!(terminal.out, "  {sign} {id}")?;
    }
    if let Some(more) = all.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        writeln!(terminal.out, "  and {more} more: `cobgen diff --depot {depot}`")?;
    }
    writeln!(terminal.err, "Next: `cobctl switch {generation} --depot {depot}`.")
}
