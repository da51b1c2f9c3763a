//! Prints the bill of materials of this workspace: `cargo metadata … | sbom Cargo.lock`.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    let printed = made().and_then(|text| writeln!(std::io::stdout(), "{text}").map_err(|e| e.to_string()));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn made() -> Result<String, String> {
    let path = std::env::args_os().nth(1).ok_or("the lock file is to be named: sbom Cargo.lock")?;
    let lock = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut metadata = String::new();
    std::io::stdin().read_to_string(&mut metadata).map_err(|e| format!("standard input: {e}"))?;
    let metadata = serde_json::from_str(&metadata).map_err(|e| format!("what cargo metadata says: {e}"))?;
    let bill = cob_tests::sbom::cyclonedx(&metadata, &lock)?;
    serde_json::to_string_pretty(&bill).map_err(|e| e.to_string())
}
