//! `cobgen generate`: makes the depot's next generation from a model.

use std::io;
use std::path::{Path, PathBuf};

use cob_depot::{Depot, GenerationName};
use cob_trust::SecretKey;
use cob_types::generation::Security;
use cob_types::words::{count, list};
use cob_types::{CobId, GenerationNumber, PublicKey};
use serde_json::json;

use super::secrets::Keys;
use super::sign::names;
use super::{Answer, CommandResult, Stop, Terminal, refused, tell};
use crate::known::{Asking, PATIENCE};
use crate::publish::{PublishOptions, Published, Refused, publish_with};
use crate::serve::{TRUST, read_trust};

/// The default path of the publisher's key, relative to the model's folder.
const PUBLISHER_KEY: &str = "keys/publisher.key";
/// The most hosts that a line names.
const NAMED: usize = 6;
/// The most change objects that are listed.
const MAX_LISTED: usize = 20;

/// The options of `cobgen generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen generate model.yaml --depot depot
  cobgen generate models/ --depot depot --message 'more memory for the database'
  cobgen generate models/ --depot depot --sign-with publisher.key
  cobgen generate models/ --depot depot --json | jq .generation
  cobgen generate models/ --depot depot --instead-of 8    the next best layout, after 8 was rolled back

No host changes until `cobctl switch N` activates the generation.

Exit status: 0 the depot's latest generation corresponds to the model (an unchanged model makes no new \
generation); 2 the model is refused; 3 the depot could not be written.")]
pub struct GenerateArgs {
    /// A model file, or a folder whose *.yaml, *.yml and *.json files make the model
    model: PathBuf,
    /// Where generations are kept; created if it does not exist
    #[arg(long, value_name = "DIR", env = "COB_DEPOT")]
    pub(super) depot: PathBuf,
    /// The description for the log
    #[arg(long, short, default_value = "", hide_default_value = true)]
    message: String,
    /// Sign it as a publisher, with the secret key of this file [default: keys/publisher.key beside the
    /// model, if it is there]
    #[arg(long, value_name = "FILE", env = "COB_PUBLISHER_KEY")]
    sign_with: Option<PathBuf>,
    /// It fixes a security hole: no rollback from it, or from a later generation, to an earlier generation. By default
    /// rollback to the four generations before is signed together with the new generation
    #[arg(long)]
    no_way_back: bool,
    /// Lay the model's clusters out differently from this generation, which has failed and was rolled back: the next
    /// best layout, compared with the generation before it. May be given several times
    #[arg(long, value_name = "GENERATION", allow_negative_numbers = true)]
    instead_of: Vec<GenerationName>,
    /// Give the new generation a number above N, even if the model is unchanged: a depot that was restored from
    /// an older copy does not know which numbers were given out since
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    above: u64,
    /// Ask no host which generations it knows. By default all reachable hosts are asked, for 2 s at most, so that no
    /// number is given out twice; hosts with keys answer a trusted publisher (--sign-with)
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    keys: Keys,
    /// Print {"generation", "hosts", "cobs", "added", "changed", "removed"}, all numbers: of the
    /// generation, of its hosts and change objects, and of the change objects that differ from the
    /// generation before (all 0 if no new generation was made); "signed_by", a list of keys;
    /// "new_keys", a list of {"host", "key"} that the generation before did not have; "revoked_keys", the same for keys that
    /// it did not revoke; and "ahead", {HOST: number} of hosts that knew a newer generation than the depot had.
    /// Refused: {"diagnostics"} as in `check`
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &GenerateArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    let key = args.sign_with.clone().or_else(|| key_beside(&args.model));
    let signer = key.as_deref().map(SecretKey::load).transpose()?;
    let vault = args.keys.vault(&args.model, key.as_deref());
    let numbers = |depot: Depot| args.instead_of.iter().map(|named| named.find(&depot)).collect();
    let instead_of: Vec<GenerationNumber> = match args.instead_of.is_empty() {
        true => Vec::new(),
        false => Depot::open(&args.depot).and_then(numbers)?,
    };
    let options = PublishOptions {
        message: &args.message,
        signer: signer.as_ref(),
        way_back: !args.no_way_back,
        vault: &vault,
        instead_of: &instead_of,
        above: GenerationNumber(args.above),
        asking: (!args.offline).then_some(Asking { key: signer.as_ref(), patience: PATIENCE }),
    };
    let published = match publish_with(&args.model, &args.depot, &options) {
        Ok(published) => published,
        Err(Refused::Model { diagnostics, sources }) => {
            refused(&args.model, &diagnostics, &sources, args.json, terminal)?;
            if !args.json {
                writeln!(terminal.err, "No generation was made.")?;
            }
            return Err(Stop::Told(Answer::Bad));
        }
        Err(Refused::Depot(error)) => return Err(error.into()),
    };
    tell(&args.model, &published.diagnostics, &published.sources, terminal)?;
    let signer = signer.map(|key| key.public());
    if args.json {
        let Published { generation, hosts, cobs, difference, signers, new_keys, revoked_keys, .. } = &published;
        let answer = json!({
            "generation": generation,
            "hosts": hosts,
            "cobs": cobs,
            "added": difference.added.len(),
            "changed": difference.changed.len(),
            "removed": difference.removed.len(),
            "signed_by": signers,
            "ahead": published.ahead,
            "new_keys": new_keys.iter().map(|(host, key)| json!({"host": host, "key": key})).collect::<Vec<_>>(),
            "revoked_keys":
                revoked_keys.iter().map(|(key, host)| json!({"host": host, "key": key})).collect::<Vec<_>>(),
        });
        writeln!(terminal.out, "{answer:#}")?;
        warn_of_hosts(args, &published, terminal)?;
        warn_of_own(args, &published, signer.as_ref(), terminal)?;
        warn_of_publishers(args, &published, terminal)?;
        return Ok(Answer::Done);
    }
    in_words(args, &published, signer.as_ref(), terminal)?;
    Ok(Answer::Done)
}

/// The publisher's key that `cobgen init --secure` wrote beside a model.
pub(super) fn key_beside(model: &Path) -> Option<PathBuf> {
    let folder = if model.is_dir() { model } else { model.parent()? };
    Some(folder.join(PUBLISHER_KEY)).filter(|key| key.exists())
}

/// Prints whether hosts will accept the generation, and if not, the next step.
fn signatures_in_words(
    args: &GenerateArgs,
    published: &Published,
    signer: Option<&PublicKey>,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let Published { generation, security, signers, .. } = published;
    if !signers.is_empty() {
        writeln!(terminal.out, "  signed by {}", names(signers))?;
        warn_of_own(args, published, signer, terminal)?;
        return warn_of_publishers(args, published, terminal);
    }
    match security {
        Security::LoopbackOnly => Ok(()),
        Security::Identities => {
            writeln!(terminal.err, "warning: generation {generation} is not signed, so no host will accept it")?;
            let depot = args.depot.display();
            writeln!(
                terminal.err,
                "  help: `cobgen sign {generation} --key FILE --depot {depot}`; next time generate with `--sign-with FILE`"
            )
        }
    }
}

/// Warns if the generation existed already and lacks the requested signature: only `sign` adds a signature.
fn warn_of_own(
    args: &GenerateArgs,
    published: &Published,
    signer: Option<&PublicKey>,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let Published { generation, signers, .. } = published;
    let Some(key) = signer.filter(|key| !signers.contains(key)) else { return Ok(()) };
    writeln!(terminal.err, "warning: generation {generation} already existed, and {key} has not signed it")?;
    let file = args.sign_with.as_ref().map_or_else(|| PUBLISHER_KEY.to_owned(), |file| file.display().to_string());
    let depot = args.depot.display();
    writeln!(terminal.err, "  help: review it, then `cobgen sign {generation} --key {file} --depot {depot}`")
}

/// Warns if the signatures are not the signatures that hosts are told to require, as far as the depot knows.
fn warn_of_publishers(args: &GenerateArgs, published: &Published, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Published { generation, signers, security, .. } = published;
    if *security == Security::LoopbackOnly || signers.is_empty() {
        return Ok(());
    }
    let (depot, file) = (args.depot.display(), args.depot.join(TRUST).display().to_string());
    let trust = match read_trust(&args.depot) {
        Ok(Some(trust)) => trust,
        Ok(None) => return Ok(()),
        Err(error) => return writeln!(terminal.err, "warning: {error}: new hosts can't learn the trusted publishers"),
    };
    let known = signers.iter().filter(|key| trust.keys().contains(key)).count();
    if known >= trust.threshold() {
        return Ok(());
    }
    let believed: Vec<PublicKey> = trust.keys().iter().copied().collect();
    let ask = format!(
        "hosts that enrol in this depot require signatures from {} of these publishers: {} ({file})",
        trust.threshold(),
        names(&believed)
    );
    if known > 0 {
        writeln!(
            terminal.err,
            "warning: generation {generation} lacks signatures, so no host will accept it yet: {ask}"
        )?;
        return writeln!(
            terminal.err,
            "  help: `cobgen sign {generation} --key FILE --depot {depot}` with another of these keys"
        );
    }
    writeln!(terminal.err, "warning: no host will accept the signature of generation {generation}: {ask}")?;
    writeln!(
        terminal.err,
        "  help: `cobgen sign {generation} --key FILE --depot {depot}` with one of these keys; to make hosts trust \
         {}, add it to {TRUST}, and to `trust` in cobd.toml of every host",
        names(signers)
    )
}

/// Warns of hosts that know newer generations than the depot did, or another generation under the same number.
fn warn_of_hosts(args: &GenerateArgs, published: &Published, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Published { generation, before, ahead, with_another, .. } = published;
    if let Some(known) = ahead.values().max() {
        let (hosts, knows) = (list(ahead.keys(), NAMED), if ahead.len() == 1 { "knows" } else { "know" });
        let had = match before.0 {
            0 => "it had no generation".to_owned(),
            before => format!("its newest generation was {before}"),
        };
        writeln!(
            terminal.err,
            "warning: the depot was behind its hosts: {had}, and {hosts} {knows} generation {known}; the new \
             generation has the number {generation}"
        )?;
    }
    if !with_another.is_empty() {
        let hosts = list(with_another, NAMED);
        let knows = if with_another.len() == 1 { "knows" } else { "know" };
        writeln!(terminal.err, "warning: {hosts} {knows} another generation {before} than the depot")?;
    }
    if ahead.is_empty() && with_another.is_empty() {
        return Ok(());
    }
    let depot = args.depot.display();
    writeln!(terminal.err, "  help: was {depot} restored from an older copy? see docs/how-to/restore-a-depot.md")
}

fn in_words(
    args: &GenerateArgs,
    published: &Published,
    signer: Option<&PublicKey>,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let Published { generation, new, hosts, cobs, difference, .. } = published;
    let depot = args.depot.display();
    if !new {
        writeln!(terminal.out, "generation {generation} already corresponds to the model; no new generation was made")?;
        warn_of_hosts(args, published, terminal)?;
        return signatures_in_words(args, published, signer, terminal);
    }
    let (added, changed, removed) = (difference.added.len(), difference.changed.len(), difference.removed.len());
    writeln!(
        terminal.out,
        "generation {generation}: {}, {}; {added} added, {changed} changed, {removed} removed",
        count(*hosts, "host"),
        count(*cobs, "change object")
    )?;
    let added = difference.added.keys().map(|id| ('+', id));
    let changed = difference.changed.keys().map(|id| ('~', id));
    let removed = difference.removed.keys().map(|id| ('-', id));
    let all: Vec<(char, &CobId)> = added.chain(changed).chain(removed).collect();
    for (sign, id) in all.iter().take(MAX_LISTED) {
        writeln!(terminal.out, "  {sign} {id}")?;
    }
    if let Some(more) = all.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        writeln!(terminal.out, "  and {more} more: `cobgen diff --depot {depot}`")?;
    }
    for (host, key) in published.new_keys.iter().take(MAX_LISTED) {
        writeln!(terminal.out, "  {host} has the new key {key}")?;
    }
    if let Some(more) = published.new_keys.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        writeln!(terminal.out, "  and {} of hosts", count(more, "more new key"))?;
    }
    warn_of_hosts(args, published, terminal)?;
    for (key, host) in published.revoked_keys.iter().take(MAX_LISTED) {
        let of = host.as_ref().map_or_else(String::new, |host| format!(" of {host}"));
        writeln!(terminal.out, "  the key {key}{of} is revoked")?;
    }
    if let Some(more) = published.revoked_keys.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        writeln!(terminal.out, "  and {}", count(more, "more revoked key"))?;
    }
    signatures_in_words(args, published, signer, terminal)?;
    writeln!(terminal.err, "Next: `cobctl switch {generation} --depot {depot}`.")
}
