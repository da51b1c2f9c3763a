//! `cobctl completions` and `cobctl man`: what packages install.

use anyhow::Context as _;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

pub(super) fn completions(screen: &mut Screen, args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::described(), "cobctl", &mut text);
    screen.raw(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Yes)
}

pub(super) fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let made = std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(Args::described(), &args.folder))
        .with_context(|| format!("the manual pages can't be written to {}", args.folder.display()));
    made.map_err(Failure::usage)?;
    Ok(Exit::Yes)
}
