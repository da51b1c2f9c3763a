//! The program `cobgen`: everything is in [`cobgen::cli`].

use std::io::Write as _;
use std::process::ExitCode;

use cobgen::cli::{self, Terminal};

/// Half of what a large generation costs is millions of small allocations on all processors.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Standard error is not locked: a thread that panics says so there.
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr());
    let colour = cli::takes_colour(&err);
    cobgen::guard::start(std::env::args_os().any(|word| word == "--json"));
    let status = {
        // Large outputs are written in large pieces.
        let mut out = std::io::BufWriter::new(&mut out);
        let status = cli::run(std::env::args_os(), &mut Terminal { out: &mut out, err: &mut err, colour });
        match out.flush() {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                cli::Answer::NotReached.status().max(status)
            }
            Ok(()) | Err(_) => status,
        }
    };
    ExitCode::from(status)
}
