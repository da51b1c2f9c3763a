//! `cobctl completions` and `cobctl man`: files for packages, for all three programs.

use anyhow::Context as _;
use clap::CommandFactory as _;

use cobctl::args::{Args, CompletionsArgs, ManArgs, Program};
use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::Screen;

fn described(program: Program) -> clap::Command {
    match program {
        Program::Cobctl => Args::described(Some(&crate::hub::GROUP)),
        Program::Cobgen => cobgen::cli::Cli::command(),
        Program::Cobd => cobd::cli::Cli::command(),
    }
}

pub(crate) fn completions(screen: &mut Screen, args: &CompletionsArgs) -> CommandResult {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut described(args.program), args.program.name(), &mut text);
    screen.raw(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Yes)
}

pub(crate) fn man(args: &ManArgs) -> CommandResult {
    let made = std::fs::create_dir_all(&args.folder)
        .and_then(|()| {
            Program::ALL.into_iter().try_for_each(|of| clap_mangen::generate_to(described(of), &args.folder))
        })
        .with_context(|| format!("the manual pages can't be written to {}", args.folder.display()));
    made.map_err(Failure::usage)?;
    Ok(Exit::Yes)
}
