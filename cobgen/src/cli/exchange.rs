//! `cobgen import` and `cobgen export`: models from the entities of other systems, and they from models.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Answer, CommandResult, Stop, Terminal};
use crate::diagnostic::{Diagnostic, Severity, render, summary, to_json};
use crate::exchange::coopr::{self, Exported, Imported};
use crate::exchange::to_yaml;
use crate::model::Sources;

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
  cobgen import coopr export.json > model.yaml

A folder holds `providers`, `hardwaretypes`, `imagetypes`, `services`, `clustertemplates` and \
`partialtemplates`, each with a JSON file for every entity. A file holds lists of entities with these names, as Coopr \
exports them. Scripts that shell actions name are looked for beside the model; actions of chef-solo need chef-solo, \
and jq where they have attributes, on the hosts.

Exit status: 0 the import succeeded, perhaps with warnings; 2 a file could not be read.")]
struct CooprArgs {
    /// The folder of the entities, or the file with all of them
    path: PathBuf,
    /// Write a file for every section here, instead of a single model to the output; existing files are not
    /// overwritten
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print {"model": {...}, "files", "diagnostics": [...]} as in `check`
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn import(args: &ImportArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let From::Coopr(args) = &args.from;
    let imported = coopr::read(&args.path);
    let Imported { sections, diagnostics, sources, entities } = &imported;
    let answer = args.json.then(|| json!({"model": sections, "entities": entities}));
    if tell(answer, &args.path, diagnostics, sources, terminal)? {
        return Ok(Answer::Bad);
    }
    if let Some(folder) = &args.out {
        write_all(folder, &imported).map_err(Stop::plain)?;
        writeln!(terminal.err, "{entities} entities written to {}", folder.display())?;
    } else if !args.json {
        write!(terminal.out, "{}", to_yaml(&serde_json::Value::Object(sections.clone())))?;
    }
    Ok(Answer::Done)
}

/// The options of `cobgen export`.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    #[command(subcommand)]
    to: To,
}

/// The form of the entities.
#[derive(Debug, clap::Subcommand)]
enum To {
    /// Write the services, templates, providers and types of a model as Coopr's JSON
    Coopr(ToCooprArgs),
}

/// The options of `cobgen export coopr`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen export coopr model.yaml > export.json

The output is a single document with the lists `providers`, `hardwaretypes`, `imagetypes`, `services`, \
`clustertemplates` and `partialtemplates`. Each part of the model without a counterpart in Coopr is reported, with its \
place.

Exit status: 0 the export succeeded, perhaps with warnings; 2 the model could not be read.")]
struct ToCooprArgs {
    /// The model, a file or folder
    model: PathBuf,
    /// Print {"document": {...}, "entities", "diagnostics": [...]} as in `check`
    #[arg(long)]
    json: bool,
}

pub(super) fn export(args: &ExportArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let To::Coopr(args) = &args.to;
    let Exported { document, diagnostics, sources, entities } = coopr::write(&args.model);
    let answer = args.json.then(|| json!({"document": document, "entities": entities}));
    if tell(answer, &args.model, &diagnostics, &sources, terminal)? {
        return Ok(Answer::Bad);
    }
    if !args.json {
        writeln!(terminal.out, "{:#}", serde_json::Value::Object(document))?;
    }
    Ok(Answer::Done)
}

/// Prints the findings about a file or folder, in the answer if there is one. Returns whether there are errors.
fn tell(
    answer: Option<serde_json::Value>,
    path: &Path,
    diagnostics: &[Diagnostic],
    sources: &Sources,
    terminal: &mut Terminal<'_>,
) -> std::io::Result<bool> {
    if let Some(mut answer) = answer {
        answer["diagnostics"] = to_json(diagnostics);
        writeln!(terminal.out, "{answer:#}")?;
    } else if !diagnostics.is_empty() {
        write!(terminal.err, "{}", render(diagnostics, sources, terminal.colour))?;
        writeln!(terminal.err, "\n{}: {}", path.display(), summary(diagnostics))?;
    }
    Ok(diagnostics.iter().any(|d| d.severity == Severity::Error))
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
