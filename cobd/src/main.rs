//! The program `cobd`.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = cobd::run::main_if_runner() {
        return code;
    }
    match cobd::run::Program::this() {
        Ok(program) => cobd::cli::run(std::env::args_os().collect(), program),
        Err(_) => ExitCode::FAILURE,
    }
}
