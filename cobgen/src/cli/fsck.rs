//! `cobgen fsck`: checks all of a depot.

use std::path::{Path, PathBuf};

use cob_depot::Depot;
use cob_depot::fsck::{Fault, Report};
use cob_trust::SecretKey;
use cob_trust::key::KeyFileError;
use cob_types::words::count;
use serde_json::json;

use super::sign::good;
use super::{Answer, CommandResult, Terminal};
use crate::serve::{TRUST, read_trust};
use cob_trust::key::SERVER_KEY;

/// The options of `cobgen fsck`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen fsck --depot depot
  cobgen fsck --depot depot --json | jq -r '.faults[] | .at + \": \" + .what'

Checks the hashes and form of every generation's manifest, bundles, model and provenance; signatures, pins, \
rollback targets, enrolled hosts and tokens; every object that any ref leads to; and generations that the history \
or \
outcomes of switches name and that are lost. Leftover files of killed programs are counted, and are no damage. \
The depot is not changed.

Exit status: 0 the depot is intact; 1 damage, losses or gaps were found; 2 there is no depot; 3 it could not be \
read (an error of the system, or no permission).")]
pub struct FsckArgs {
    /// Where generations are kept
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    /// Print {"generations": [N], "bundles", "signatures", "pins": [N], "objects", "leftovers",
    /// "faults": [{"at", "what"}]}
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &FsckArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let is_good = |manifest: &[u8], signed: &_| !good(manifest, std::slice::from_ref(signed)).is_empty();
    let report = match Depot::open(&args.depot).and_then(|depot| depot.fsck(is_good)) {
        Ok(report) => with_keys(report, &args.depot),
        // A depot that is too damaged to open is a finding, too.
        Err(error) if error.is_damage() => {
            let fault = Fault { at: args.depot.display().to_string(), what: error.to_string() };
            with_keys(Report { faults: vec![fault], ..Report::default() }, &args.depot)
        }
        Err(error) => return Err(error.into()),
    };
    let answer = if report.faults.is_empty() { Answer::Done } else { Answer::No };
    if args.json {
        writeln!(terminal.out, "{:#}", json!(report))?;
        return Ok(answer);
    }
    let Report { generations, bundles, signatures, pins, objects, leftovers, faults } = &report;
    for Fault { at, what } in faults {
        writeln!(terminal.out, "{}: {}", at.replace(char::is_control, " "), what.replace(char::is_control, " "))?;
    }
    if *leftovers > 0 {
        let files = count(*leftovers, "file");
        writeln!(terminal.out, "{files} left behind by killed programs: `cobgen prune` removes the leftovers")?;
    }
    let (generations, bundles) = (count(generations.len() as u64, "generation"), count(*bundles, "bundle"));
    let (signatures, pins) = (count(*signatures, "signature"), count(pins.len() as u64, "pin"));
    let found = if faults.is_empty() { "no damage".to_owned() } else { count(faults.len() as u64, "fault") };
    let objects = count(*objects, "object");
    writeln!(terminal.out, "{generations}, {bundles}, {signatures}, {pins}, {objects}: {found}")?;
    Ok(answer)
}

/// Adds faults of the files that only the depot's server reads; the depot itself does not know these files.
fn with_keys(mut report: Report, depot: &Path) -> Report {
    let mut fault = |at: &str, what: String| report.faults.push(Fault { at: at.to_owned(), what });
    if let Err(error) = read_trust(depot) {
        fault(TRUST, error.to_string());
    }
    match SecretKey::load(&depot.join(SERVER_KEY)) {
        // A user without read permission cannot judge the key.
        Ok(_) | Err(KeyFileError::Io { .. } | KeyFileError::Owner { .. }) => {}
        Err(error @ (KeyFileError::NoKey { .. } | KeyFileError::Open { .. })) => fault(SERVER_KEY, error.to_string()),
    }
    report.faults.sort();
    report
}
