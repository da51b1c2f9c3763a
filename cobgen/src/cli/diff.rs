//! `cobgen diff`: compares two generations, or a generation with a model.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use cob_depot::{Depot, DepotError, GenerationName};
use cob_types::secret::SecretId;
use cob_types::{Generation, GenerationNumber};

use super::secrets::Keys;
use super::{Answer, CommandResult, Terminal, valid};
use crate::diagnostic::Diagnostic;
use crate::make::{After, make_with};
use crate::publish::latest;
use cob_forecast::show::painted;
use cob_forecast::{Difference, diff};

/// The options of `cobgen diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen diff --depot depot              the latest generation and the generation before it
  cobgen diff --depot depot 3            generation 3 and the latest
  cobgen diff --depot depot 3 5          generations 3 and 5; 0 is the empty generation before the first
  cobgen diff --depot depot -2 -1        the two generations before the latest
  cobgen diff model.yaml --depot depot   what `cobgen generate` would change

+ added, - removed, ~ changed. \"Adopted in place\": the change object itself stays as it is, only \
its dependencies or its preferred state change.

Exit status: 0 no differences; 1 differences; 2 bad input; 3 the depot could not be read.")]
pub struct DiffArgs {
    /// An older generation (its number, `latest`, or `-1` for the generation before the latest), or a model file or
    /// folder
    #[arg(value_name = "N|MODEL", allow_negative_numbers = true)]
    from: Option<PathBuf>,
    /// A newer generation, named in the same way [default: the latest]
    #[arg(value_name = "M", allow_negative_numbers = true)]
    to: Option<GenerationName>,
    /// Where generations are kept
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    #[command(flatten)]
    keys: Keys,
    /// Print {"from", "to", "hosts_added", "hosts_removed", "hosts_moved", "trust"?, "kinds_changed",
    /// "added": {ID: KIND}, "removed": {ID: KIND}, "changed": {ID: {"outdated", "kind"?, "kind_changed", "content"?,
    /// "files"?, "rests_on_changed", "preferred"?, "dependencies_added"?, "dependencies_removed"?}}}
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &DiffArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let named =
        |path: &Path| path.to_str().and_then(|text| text.parse::<GenerationName>().ok()).filter(|_| !path.exists());
    let difference = match (&args.from, args.to) {
        (None, _) => two(&args.depot, None, None)?,
        (Some(from), to) => match (named(from), to) {
            (Some(from), to) => two(&args.depot, Some(from), to)?,
            (None, None) => return of_model(args, from, terminal),
            (None, Some(_)) => {
                let fault = Diagnostic::error("usage", "a model is compared with the latest generation only");
                let help = format!("`cobgen diff {} --depot {}`", from.display(), args.depot.display());
                return Err(fault.help(help).into());
            }
        },
    };
    print(args, &difference, terminal)
}

/// Compares two generations of a depot.
fn two(path: &Path, from: Option<GenerationName>, to: Option<GenerationName>) -> Result<Difference, DepotError> {
    let depot = Depot::open(path)?;
    let read = |number| if number == GenerationNumber(0) { Ok(Generation::nothing()) } else { depot.read(number) };
    let new: Generation = match to {
        Some(to) => read(to.find(&depot)?)?,
        None => latest(&depot)?,
    };
    let old = read(from.map_or(Ok(new.manifest.parent), |from| from.find(&depot))?)?;
    let mut difference = diff(&old, &new);
    difference.name_secrets(&names(&depot, &old)?, &names(&depot, &new)?);
    Ok(difference)
}

/// The known names of a generation's secrets.
fn names(depot: &Depot, generation: &Generation) -> Result<BTreeMap<SecretId, String>, DepotError> {
    depot.secret_names(generation.manifest.generation)
}

/// Compares the latest generation with a model.
fn of_model(args: &DiffArgs, model: &Path, terminal: &mut Terminal<'_>) -> CommandResult {
    let depot = Depot::open(&args.depot)?;
    let old = latest(&depot)?;
    let made = make_with(model, &After::latest(&depot, &old)?, Some(&args.keys.reading(model)));
    let assembled = valid(model, made, args.json, terminal)?;
    let mut difference = diff(&old, &assembled.generation);
    difference.name_secrets(&names(&depot, &old)?, &assembled.provenance.secrets);
    print(args, &difference, terminal)
}

fn print(args: &DiffArgs, difference: &Difference, terminal: &mut Terminal<'_>) -> CommandResult {
    if args.json {
        let answer = serde_json::to_value(difference).map_err(io::Error::other)?;
        writeln!(terminal.out, "{answer:#}")?;
    } else if difference.is_empty() {
        writeln!(terminal.out, "generation {} -> {}: no differences", difference.from, difference.to)?;
    } else {
        write!(terminal.out, "{}", painted(&difference.to_string(), terminal.out_colour))?;
    }
    Ok(if difference.is_empty() { Answer::Done } else { Answer::No })
}
