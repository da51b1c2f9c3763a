//! The program `cobgen`: all code is in [`cobgen::cli`].

use std::process::ExitCode;

use cob_types::pipe::WhileRead;
use cobgen::cli::{self, Terminal};

/// Half of the time for a large generation goes to millions of small allocations on all processors.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The stack of the program. Values in templates may nest as deep as their instructions allow, and are printed by
/// recursion: the template guard ends that, because its memory grows, long before the stack is full. Unused stack takes
/// no memory.
const STACK: usize = 1 << 30;

fn main() -> ExitCode {
    // The first status counts: from the program, or from the template guard, after which the program does not return.
    let (tell, told) = std::sync::mpsc::channel();
    cobgen::guard::start(std::env::args_os().any(|word| word == "--json"), tell.clone());
    let run = move || {
        // A panic prints its own message; then the program ends with this status.
        let status = std::panic::catch_unwind(program).unwrap_or(101);
        // The receiver is gone if the guard was first.
        let _ = tell.send(status);
    };
    match std::thread::Builder::new().name("main".to_owned()).stack_size(STACK).spawn(run) {
        Ok(_) => ExitCode::from(told.recv().unwrap_or(101)),
        // The machine cannot provide a stack of this size.
        Err(_) => ExitCode::from(program()),
    }
}

fn program() -> u8 {
    // Neither is locked: a panicking thread prints to one, and the thread of `cobgen lsp` to the other.
    let (out, err) = (std::io::stdout(), std::io::stderr());
    let (colour, out_colour) = (cli::takes_colour(&err), cli::takes_colour(&out));
    // Large outputs are written in large pieces. A reader that stops reading does not change the answer.
    let (mut out, mut err) = (std::io::BufWriter::new(WhileRead::new(out)), WhileRead::new(err));
    cli::run(std::env::args_os().collect(), &mut Terminal { out: &mut out, err: &mut err, colour, out_colour })
}
