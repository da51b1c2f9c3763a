//! The program `cobctl`. It contains the daemon and the servers of an example, so that the demo needs no other program.

use std::ffi::OsString;
use std::process::ExitCode;

use cobctl::args::DevelopCommand;
use cobctl::failure::CommandResult;
use cobctl::screen::Screen;

mod demo;
mod shell;
mod test_kind;
mod webshop;

fn main() -> ExitCode {
    if let Some(code) = cobd::run::main_if_runner() {
        return code;
    }
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let rest: Vec<OsString> = words.collect();
    let mut screen = Screen::standard();
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
    ExitCode::from(
        runtime
            .block_on(cobctl::run_with(line, screen, |command, json, screen| Box::pin(develop(command, json, screen)))),
    )
}

/// Carries out a command that needs the daemon or the generator.
async fn develop(command: DevelopCommand, json: bool, screen: &mut Screen) -> CommandResult {
    match command {
        DevelopCommand::TestKind(args) => test_kind::run(screen, &args, json).await,
        DevelopCommand::Completions(args) => shell::completions(screen, &args),
        DevelopCommand::Man(args) => shell::man(&args),
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
