//! `cobgen lsp`: findings, completion and explanations for editors.

use std::path::PathBuf;

use lsp_server::Connection;

use super::{Answer, CommandResult, Stop, Terminal};
use crate::lsp;

/// The options of `cobgen lsp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An editor starts it and speaks the Language Server Protocol over its standard input and output. See \
docs/how-to/edit-models.md for VS Code, Neovim and Helix.

Without MODEL, the model of an opened file is its folder, if all YAML files there are parts of a model; otherwise the \
file alone.

Exit status: 0 the editor ended it; 1 the connection broke.")]
pub struct LspArgs {
    /// The file or folder of the model
    model: Option<PathBuf>,
    /// Where generations are kept, for plans of unsaved texts
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    depot: Option<PathBuf>,
    /// Standard input and output, which is the only way: some editors name it
    #[arg(long, hide = true)]
    stdio: bool,
}

pub(super) fn run(args: &LspArgs, _: &mut Terminal<'_>) -> CommandResult {
    let model = args.model.as_deref().map(std::path::absolute).transpose().map_err(Stop::plain)?;
    let depot = args.depot.as_deref().map(std::path::absolute).transpose().map_err(Stop::plain)?;
    let (connection, threads) = Connection::stdio();
    let ended = lsp::serve(&connection, model, depot);
    // The threads end when nobody sends any more.
    drop(connection);
    ended.map_err(|error| Stop::Plain(format!("the connection to the editor broke: {error}"), Answer::No))?;
    threads.join().map_err(Stop::Output)?;
    Ok(Answer::Done)
}
