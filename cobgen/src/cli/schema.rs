//! `cobgen schema`: the JSON Schema of models.

use super::{Answer, CommandResult, Terminal};
use crate::model;

/// The options of `cobgen schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen schema > cob.schema.json
  # then, as the first line of a model, for editors with a YAML language server:
  # yaml-language-server: $schema=cob.schema.json")]
pub struct SchemaArgs {}

pub(super) fn run(_: &SchemaArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    writeln!(terminal.out, "{:#}", model::schema())?;
    Ok(Answer::Done)
}
