//! The program `cobctl`. It contains the daemon, the generator, the hub and the servers of an example, so that the demo
//! needs no other program. A link with the name of another program acts as that program.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use cob_types::pipe::WhileRead;
use cobctl::Extension;
use cobctl::args::DevelopCommand;
use cobctl::failure::CommandResult;
use cobctl::screen::Screen;
use cobgen::cli::Terminal;

mod demo;
mod hub;
mod shell;
mod test_kind;
mod webshop;

/// The commands of this program beside those of the library.
pub(crate) const EXTENSION: Extension = Extension {
    develop: |command, json, screen| Box::pin(develop(command, json, screen)),
    added: Some((hub::GROUP, |matches, global, screen| Box::pin(hub::run(matches, global, screen)))),
};

fn main() -> ExitCode {
    if let Some(code) = cobd::run::main_if_runner() {
        return code;
    }
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let rest: Vec<OsString> = words.collect();
    let mut screen = Screen::standard();
    match Path::new(&program).file_name().and_then(OsStr::to_str) {
        Some("cobd") => return daemon(&mut screen, &rest),
        Some("cobgen") => return generator(program, rest),
        Some(cobhub::cli::NAME) => return cobhub::cli::run(std::iter::once(program).chain(rest)),
        Some(_) | None => {}
    }
    match rest.first().and_then(|w| w.to_str()) {
        Some(demo::stage::DAEMON) => daemon(&mut screen, &rest[1..]),
        Some(webshop::SUBCOMMAND) => shop(&mut screen, &rest[1..]),
        Some(_) | None => operator(&mut screen, program, rest),
    }
}

fn operator(screen: &mut Screen, program: OsString, rest: Vec<OsString>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            screen.problem("error", &format!("the program can't start: {error}"));
            return ExitCode::from(3);
        }
    };
    let line = std::iter::once(program).chain(rest).collect();
    ExitCode::from(runtime.block_on(cobctl::run_with(line, screen, EXTENSION)))
}

/// Carries out a command that needs the daemon or the generator.
async fn develop(command: DevelopCommand, json: bool, screen: &mut Screen) -> CommandResult {
    match command {
        DevelopCommand::TestKind(args) => test_kind::run(screen, &args, json).await,
        DevelopCommand::Completions(args) => shell::completions(screen, &args),
        DevelopCommand::Man(args) => shell::man(&args),
        DevelopCommand::Demo(args) if args.hub => demo::hub::run(screen).await,
        DevelopCommand::Demo(args) => match &args.end {
            Some(folder) => demo::end(screen, folder),
            None => demo::run(screen, &args).await,
        },
    }
}

/// Runs the daemon, for the demo.
fn daemon(screen: &mut Screen, rest: &[OsString]) -> ExitCode {
    match cobd::run::Program::this() {
        Ok(program) => cobd::cli::run(std::iter::once("cobd".into()).chain(rest.iter().cloned()).collect(), program),
        Err(error) => {
            screen.problem("error", &format!("this program can't be found: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the generator, for the hub of the demo.
fn generator(program: OsString, rest: Vec<OsString>) -> ExitCode {
    let (mut out, mut err) = (WhileRead::new(std::io::stdout()), WhileRead::new(std::io::stderr()));
    let mut terminal = Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false };
    ExitCode::from(cobgen::cli::run(std::iter::once(program).chain(rest).collect(), &mut terminal))
}

/// Runs a server of the example `webshop`.
fn shop(screen: &mut Screen, rest: &[OsString]) -> ExitCode {
    let words = rest.iter().map(|w| w.to_string_lossy().into_owned());
    let played = webshop::Role::parse(words).and_then(|role| webshop::play(&role, &mut std::io::stdout()));
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            screen.problem("error", &error.to_string());
            ExitCode::FAILURE
        }
    }
}
