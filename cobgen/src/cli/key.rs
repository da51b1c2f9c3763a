//! `cobgen key`: a key for a publisher or an operator.

use std::io;
use std::path::{Path, PathBuf};

use cob_trust::{KeyFileError, SecretKey};
use serde_json::json;

use super::{Answer, CommandResult, Stop, Terminal};
use crate::diagnostic::Diagnostic;

/// The options of `cobgen key`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cobgen key ~/.config/cob/publisher.key
  cobgen key alice.key --json | jq -r .key

A publisher's public key goes into `trust` in the hosts' cobd.toml, an operator's into `operators` of the \
model. The file proves your identity: keep it secret. It is PKCS#8 in PEM, as \
`openssl genpkey -algorithm ed25519` writes it.

Exit status: 0 the key is there; 2 the file can't be used; 3 it could not be written.")]
pub struct KeyArgs {
    /// The file for the secret key; an existing file is kept, and its public key is printed
    file: PathBuf,
    /// Print {"key", "new"}
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &KeyArgs, terminal: &mut Terminal<'_>) -> CommandResult {
    if args.file == Path::new("-") {
        let fault =
            Diagnostic::error("key", "a secret key is not written to standard output, nor read from standard input");
        return Err(fault.help("name a file; for a file with that name write ./-").into());
    }
    let (key, new) = load_or_make(args).map_err(|error| match &error {
        KeyFileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => unmade(args, source).into(),
        KeyFileError::Io { .. }
        | KeyFileError::Open { .. }
        | KeyFileError::Owner { .. }
        | KeyFileError::NoKey { .. } => Stop::from(error),
    })?;
    if args.json {
        writeln!(terminal.out, "{:#}", json!({"key": key.public(), "new": new}))?;
    } else {
        let what = if new { "A new key is in" } else { "The key already existed, in" };
        writeln!(terminal.err, "{what} {}. Its public key:", args.file.display())?;
        writeln!(terminal.out, "{}", key.public())?;
    }
    Ok(Answer::Done)
}

fn load_or_make(args: &KeyArgs) -> Result<(SecretKey, bool), KeyFileError> {
    match SecretKey::load(&args.file) {
        Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            SecretKey::load_or_create(&args.file).map(|key| (key, true))
        }
        loaded => loaded.map(|key| (key, false)),
    }
}

/// Why a key can't be created at its path.
fn unmade(args: &KeyArgs, error: &io::Error) -> Diagnostic {
    let mut fault = Diagnostic::error("key", format!("the key can't be made: {}: {error}", args.file.display()));
    let folder = args.file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        fault = fault.help(format!("there is no folder {}: make it first", folder.display()));
    }
    fault
}

impl From<KeyFileError> for Stop {
    fn from(error: KeyFileError) -> Self {
        let fault = Diagnostic::error("key", format!("the key can't be used: {error}"));
        match error {
            KeyFileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                fault.help("`cobgen key FILE` makes a key").into()
            }
            KeyFileError::Io { .. } => Self::Fault(Box::new(fault), Answer::NotReached),
            KeyFileError::Open { .. } | KeyFileError::Owner { .. } | KeyFileError::NoKey { .. } => fault.into(),
        }
    }
}
