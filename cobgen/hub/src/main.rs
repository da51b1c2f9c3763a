//! The program `cobhub`: all code is in [`cobhub::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    cobhub::cli::run(std::env::args_os())
}
