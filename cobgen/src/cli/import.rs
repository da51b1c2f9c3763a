//! `cobgen import`: makes models from the entities of other systems.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Answer, CommandResult, Stop, Terminal};
use crate::diagnostic::{Severity, render, summary, to_json};
use crate::import::coopr::{self, Imported};
use crate::import::to_yaml;

/// The options of `cobgen import`.
#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    #[command(subcommand)]
    from: From,
}

/// Where the entities come from.
#[derive(Debug, clap::Subcommand)]
enum From {
    /// Make a model of Coopr's JSON entities
    Coopr(CooprArgs),
}

/// The options of `cobgen import coopr`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen import coopr coopr-server/config/defaults > model.yaml
  cobgen import coopr defaults/ --out models/

The folder holds `providers`, `hardwaretypes`, `imagetypes`, `services`, `clustertemplates` and \
`partialtemplates`, \
each with a JSON file for every entity. Scripts that shell actions name are looked for beside the model; actions \
of \
chef-solo need chef-solo, and jq where they have attributes, on the hosts.

Exit status: 0 the import succeeded, perhaps with warnings; 2 a file could not be read.")]
struct CooprArgs {
    /// The folder of the entities
    folder: PathBuf,
    /// Write a file for every section here, instead of a single model to the output; existing files are not
    /// overwritten
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print {"model": {...}, "files", "diagnostics": [...]} as in `check`
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &ImportArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let From::Coopr(args) = &args.from;
    let imported = coopr::read(&args.folder);
    let Imported { sections, diagnostics, sources, files } = &imported;
    let wrong = diagnostics.iter().any(|d| d.severity == Severity::Error);
    if args.json {
        let answer = json!({"model": sections, "files": files, "diagnostics": to_json(diagnostics)});
        writeln!(terminal.out, "{answer:#}")?;
    } else if !diagnostics.is_empty() {
        write!(terminal.err, "{}", render(diagnostics, sources, terminal.colour))?;
        writeln!(terminal.err, "\n{}: {}", args.folder.display(), summary(diagnostics))?;
    }
    if wrong {
        return Ok(Answer::Bad);
    }
    if let Some(folder) = &args.out {
        write_all(folder, &imported).map_err(Stop::plain)?;
        writeln!(terminal.err, "{files} entities written to {}", folder.display())?;
    } else if !args.json {
        write!(terminal.out, "{}", to_yaml(&serde_json::Value::Object(sections.clone())))?;
    }
    Ok(Answer::Done)
}

/// Writes a file for every section; writes no file if a file of that name exists already.
fn write_all(folder: &Path, imported: &Imported) -> Result<(), String> {
    let path = |section: &str| folder.join(format!("{section}.yaml"));
    if let Some(there) = imported.sections.keys().map(|s| path(s)).find(|p| p.exists()) {
        return Err(format!("{} already exists\n  help: name another folder, or move it away", there.display()));
    }
    std::fs::create_dir_all(folder).map_err(|e| format!("can't make {}: {e}", folder.display()))?;
    for (section, value) in &imported.sections {
        let path = path(section);
        let text = to_yaml(&json!({ section: value }));
        std::fs::write(&path, text).map_err(|e| format!("can't write {}: {e}", path.display()))?;
    }
    Ok(())
}
