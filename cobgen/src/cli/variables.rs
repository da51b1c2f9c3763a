//! Environment variables that stand for options.

use std::env;

/// The command line without variables whose value is empty: `COB_KEY=` in front of a command is how a shell user
/// cancels an exported variable.
#[must_use]
pub fn without_empty_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let empty = arg.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
        if empty { arg.env(None) } else { arg }
    });
    command.mut_subcommands(without_empty_variables)
}
