//! The program `cobctl`.

use std::process::ExitCode;

use cobctl::screen::Screen;

fn main() -> ExitCode {
    let mut screen = Screen::standard();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            screen.problem("error", &format!("the program can't start: {error}"));
            return ExitCode::from(3);
        }
    };
    let code = runtime.block_on(cobctl::run(std::env::args_os(), &mut screen));
    ExitCode::from(code)
}
