//! The program `cobgen`: everything is in [`cobgen::cli`].

use std::process::ExitCode;

use cob_types::pipe::WhileRead;
use cobgen::cli::{self, Terminal};

/// Half of what a large generation costs is millions of small allocations on all processors.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The stack of the program. Values in templates may nest as deep as their instructions allow, and are printed by
/// recursion: the guard of templates ends that, as its memory grows, long before there is no more stack. What is not
/// used of it takes no memory.
const STACK: usize = 1 << 30;

fn main() -> ExitCode {
    // Whoever has a status first: the program, or the guard of templates, for which the program does not come back.
    let (tell, told) = std::sync::mpsc::channel();
    cobgen::guard::start(std::env::args_os().any(|word| word == "--json"), tell.clone());
    let run = move || {
        // What has panicked has said so, and ends as a program does.
        let status = std::panic::catch_unwind(program).unwrap_or(101);
        // Nobody listens any more when the guard was first.
        let _ = tell.send(status);
    };
    match std::thread::Builder::new().name("main".to_owned()).stack_size(STACK).spawn(run) {
        Ok(_) => ExitCode::from(told.recv().unwrap_or(101)),
        // A machine that gives no such room.
        Err(_) => ExitCode::from(program()),
    }
}

fn program() -> u8 {
    // Standard error is not locked: a thread that panics says so there.
    let (out, err) = (std::io::stdout().lock(), std::io::stderr());
    let (colour, out_colour) = (cli::takes_colour(&err), cli::takes_colour(&out));
    // Large outputs are written in large pieces. Whoever has seen enough of them changes nothing about the answer.
    let (mut out, mut err) = (std::io::BufWriter::new(WhileRead::new(out)), WhileRead::new(err));
    cli::run(std::env::args_os(), &mut Terminal { out: &mut out, err: &mut err, colour, out_colour })
}
