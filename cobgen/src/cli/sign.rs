//! `cobgen sign`: adds a publisher's signature to a generation in the depot.

use std::fmt::Write as _;
use std::path::PathBuf;

use cob_depot::{Depot, DepotError, GenerationName, PublishError};
use cob_trust::{SecretKey, publishers};
use cob_types::canonical::blob_hash;
use cob_types::generation::Security;
use cob_types::trust::{PublicKey, Signed};
use cob_types::{Generation, GenerationNumber};
use serde_json::json;

use super::{Answer, CommandResult, Terminal};
use cob_forecast::diff;

/// The options of `cobgen sign`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen diff --depot depot 6 7                     review before you sign
  cobgen sign 7 --key publisher.key --depot depot

For the four-eyes principle: `threshold = 2` in the hosts' cobd.toml, a publisher generates with --sign-with, and \
another publisher reviews the difference and signs. `trust` in cobd.toml lists the publishers of a host.

Exit status: 0 it is signed; 2 bad input; 3 the depot could not be read or written.")]
pub struct SignArgs {
    /// The generation: its number, `latest`, or `-1` for the generation before the latest
    #[arg(value_name = "N", allow_negative_numbers = true)]
    generation: GenerationName,
    /// The publisher's secret key, as `cobgen key` makes it
    #[arg(long, value_name = "FILE", env = "COB_PUBLISHER_KEY")]
    key: PathBuf,
    /// Where generations are kept
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    /// Print {"generation", "manifest", "signed_by", "back"}: the hash of the signed manifest, the keys of all
    /// its signers, and the numbers of its rollback targets
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &SignArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let signed = sign(args, &SecretKey::load(&args.key)?)?;
    tell(args, &signed, terminal)
}

/// The signed generation.
struct SignedNow {
    generation: Generation,
    before: Option<Generation>,
    manifest: String,
    by: Vec<PublicKey>,
}

fn sign(args: &SignArgs, key: &SecretKey) -> Result<SignedNow, PublishError> {
    let depot = Depot::open(&args.depot)?;
    let number = args.generation.find(&depot)?;
    // The whole generation is read and checked against the manifest's hashes: a publisher must not sign half of it.
    let generation = depot.read(number)?;
    let before = match generation.manifest.parent {
        GenerationNumber(0) => Some(Generation::nothing()),
        parent => depot.read(parent).ok(),
    };
    let bytes = depot.read_manifest_bytes(number)?;
    depot.add_signature(number, &publishers::sign(key, &bytes))?;
    let by = good(&bytes, &depot.signatures(number)?);
    Ok(SignedNow { generation, before, manifest: blob_hash(&bytes).to_string(), by })
}

fn tell(args: &SignArgs, signed: &SignedNow, terminal: &mut Terminal<'_>) -> CommandResult {
    let manifest = &signed.generation.manifest;
    let back: Vec<GenerationNumber> = manifest.back.iter().map(|way| way.generation).collect();
    if args.json {
        let answer = json!({
            "generation": manifest.generation, "manifest": signed.manifest, "signed_by": signed.by, "back": back,
        });
        writeln!(terminal.out, "{answer:#}")?;
        return Ok(Answer::Done);
    }
    let mut text = format!("generation {} is signed by {}", manifest.generation, names(&signed.by));
    if let Some(before) = &signed.before {
        let difference = diff(before, &signed.generation);
        let (added, changed, removed) = (difference.added.len(), difference.changed.len(), difference.removed.len());
        let _ = write!(text, "\n  {added} added, {changed} changed, {removed} removed since {}", manifest.parent);
    }
    for number in &back {
        let _ = write!(text, "\n  rollback from it is allowed to {number}");
    }
    writeln!(terminal.out, "{text}")?;
    if manifest.security == Security::LoopbackOnly {
        writeln!(terminal.err, "Its model says `security: loopback-only`: no host asks for signatures.")?;
    }
    Ok(Answer::Done)
}

/// The keys with valid signatures over these bytes, in the order of the keys.
pub(super) fn good(manifest: &[u8], signatures: &[Signed]) -> Vec<PublicKey> {
    let purpose = cob_trust::key::Purpose::Generation;
    let is_good = |signed: &&Signed| cob_trust::key::verify(&signed.key, purpose, manifest, &signed.signature);
    signatures.iter().filter(is_good).map(|signed| signed.key).collect()
}

/// The publishers that have signed a generation of a depot.
pub(super) fn signers(depot: &Depot, number: GenerationNumber) -> Result<Vec<PublicKey>, DepotError> {
    let signatures = depot.signatures(number)?;
    if signatures.is_empty() {
        return Ok(Vec::new());
    }
    Ok(good(&depot.read_manifest_bytes(number)?, &signatures))
}

/// Keys as a list for a sentence.
pub(super) fn names(keys: &[PublicKey]) -> String {
    let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
    names.join(", ")
}
