//! All programs of COB in a single file, for tests with real processes: `cob cobd …`, `cob cobgen …`, `cob cobctl …`. A
//! copy with the name of a program is this program alone.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = cobd::run::main_if_runner() {
        return code;
    }
    let name = std::env::args_os().next().map(std::path::PathBuf::from).unwrap_or_default();
    let name = name.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    match name {
        "cobhub" => return cobhub::cli::run(std::env::args_os()),
        "cob-provider-odd" => return ExitCode::from(cob_tests::odd_provider::run()),
        _ => {}
    }
    let own =
        if name.starts_with("cobd") { Some("cobd") } else { ["cobgen", "cobctl"].into_iter().find(|n| *n == name) };
    let args: Vec<_> = own.map(Into::into).into_iter().chain(std::env::args_os().skip(1)).collect();
    let word = args.first().and_then(|a| a.to_str()).unwrap_or_default().to_owned();
    match (word.as_str(), cobd::run::Program::this()) {
        ("cobd", Ok(program)) => cobd::cli::run(args, program),
        ("cobgen", _) => {
            let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
            let mut terminal = cobgen::cli::Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false };
            ExitCode::from(cobgen::cli::run(args, &mut terminal))
        }
        ("cobctl", _) => {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    eprintln!("cob: {error}");
                    return ExitCode::FAILURE;
                }
            };
            ExitCode::from(runtime.block_on(cobctl::run(args, &mut cobctl::screen::Screen::standard())))
        }
        (other, _) => {
            eprintln!("cob: no program {other:?}");
            ExitCode::from(2)
        }
    }
}
