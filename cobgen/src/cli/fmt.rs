//! `cobgen fmt`: the form of model files.

use std::fs;
use std::path::{Path, PathBuf};

use cob_depot::{input, model_files};

use super::{Answer, CommandResult, Stop, Terminal};
use crate::format::{Unformatted, format};
use crate::model;

/// The options of `cobgen fmt`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen fmt models/
  cobgen fmt --check models/          # for tests: names the files that would change
  cobgen fmt - < model.yaml           # from the standard input to the standard output, for editors

Two spaces for a level, lines of 100 characters for lists and mappings in brackets; comments, anchors, block texts and \
the order of keys stay. A file whose meaning would change is left alone.

Exit status: 0 all files have the form; 1 with --check, a file would change; 2 a file is no valid YAML; 3 a file could \
not be read or written.")]
pub struct FmtArgs {
    /// Model files, or folders with model files; `-` is the standard input
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    /// Only name the files that would change
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &FmtArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    if args.models == [Path::new("-")] {
        return from_input(args, terminal);
    }
    let mut answer = Answer::Done;
    for path in files(&args.models)? {
        let text = input::read_text(&path, model::MAX_FILE).map_err(|e| lost("read", &path, &e))?;
        match format(&path, &text) {
            Ok(formatted) if formatted == text => {}
            Ok(_) if args.check => {
                writeln!(terminal.out, "{}", path.display())?;
                if answer == Answer::Done {
                    answer = Answer::No;
                }
            }
            Ok(formatted) => {
                model_files::replace(&path, &formatted).map_err(|e| lost("write", &path, &e))?;
                writeln!(terminal.err, "formatted {}", path.display())?;
            }
            Err(Unformatted { diagnostics, sources }) => {
                super::refused(&path, &diagnostics, &sources, false, terminal)?;
                answer = Answer::Bad;
            }
        }
    }
    Ok(answer)
}

fn from_input(args: &FmtArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let given = input::read_given(Path::new("-"), model::MAX_FILE);
    let text = given.map_err(|e| lost("read", Path::new("the standard input"), &e))?;
    let path = Path::new("standard input");
    match format(path, &text) {
        Ok(formatted) if args.check => Ok(if formatted == text { Answer::Done } else { Answer::No }),
        Ok(formatted) => {
            terminal.out.write_all(formatted.as_bytes())?;
            Ok(Answer::Done)
        }
        Err(Unformatted { diagnostics, sources }) => {
            super::refused(path, &diagnostics, &sources, false, terminal)?;
            Ok(Answer::Bad)
        }
    }
}

/// The YAML files among the names. JSON has a form of its own.
fn files(models: &[PathBuf]) -> Result<Vec<PathBuf>, Stop> {
    let mut all = Vec::new();
    for path in models {
        let unreadable = |e| lost("read", path, &e);
        if fs::metadata(path).map_err(unreadable)?.is_dir() {
            let found = model_files::list(path).map_err(unreadable)?;
            all.extend(found.into_iter().filter(|file| file.extension().is_some_and(|end| end != "json")));
        } else {
            all.push(path.clone());
        }
    }
    Ok(all)
}

fn lost(what: &str, path: &Path, error: &std::io::Error) -> Stop {
    Stop::Plain(format!("can't {what} {}: {error}", path.display()), Answer::NotReached)
}
