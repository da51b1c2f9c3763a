//! The file of `cobctl notify`: receivers, and the notices of each.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cob_depot::input;
use serde::{Deserialize, Deserializer};

use super::observe::NoticeKind;
use crate::words::parse_span;

/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The shortest secret, in bytes.
const SHORTEST_SECRET: usize = 16;

/// The settings of `cobctl notify`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyConfig {
    /// The file with open conditions and unsent messages.
    pub state: PathBuf,
    /// How long a change object is on its way before this counts as a condition.
    pub stuck_after: Duration,
    /// How long a host gives no answer before this counts as a condition.
    pub away_after: Duration,
    /// The receivers.
    pub receivers: Vec<Receiver>,
}

/// A receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    /// Its name, unique.
    pub name: String,
    /// How it receives messages.
    pub way: Way,
    /// The kinds of its notices.
    pub on: BTreeSet<NoticeKind>,
    /// The shortest time between two messages.
    pub every: Duration,
}

/// How a receiver receives messages.
#[derive(Clone, PartialEq, Eq)]
pub enum Way {
    /// A shell command, with the message as JSON on its standard input.
    Command(String),
    /// A POST request with the message as JSON, signed with a secret.
    Webhook {
        /// The address.
        url: String,
        /// The key of the signature.
        secret: Option<Vec<u8>>,
    },
    /// A mail through `sendmail`.
    Mail {
        /// The address of the receiver.
        to: String,
    },
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An address may contain a token.
        f.write_str(match self {
            Self::Command(_) => "Command",
            Self::Webhook { .. } => "Webhook",
            Self::Mail { .. } => "Mail",
        })
    }
}

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", path.display(), faults.join("\n"))]
pub struct ConfigError {
    path: PathBuf,
    faults: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    state: Option<PathBuf>,
    #[serde(default = "ten_minutes", deserialize_with = "span")]
    stuck_after: Duration,
    #[serde(default = "a_minute", deserialize_with = "span")]
    away_after: Duration,
    #[serde(default)]
    receiver: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    command: Option<String>,
    webhook: Option<String>,
    secret_file: Option<PathBuf>,
    mail: Option<String>,
    on: Option<BTreeSet<NoticeKind>>,
    #[serde(default = "half_a_minute", deserialize_with = "span")]
    every: Duration,
}

fn ten_minutes() -> Duration {
    Duration::from_secs(600)
}

fn a_minute() -> Duration {
    Duration::from_secs(60)
}

fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_span(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

impl NotifyConfig {
    /// Reads a file. Relative paths start at its folder.
    ///
    /// # Errors
    /// [`ConfigError`] with all faults; of several faults of the notation the first, with its line.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let wrong = |faults: Vec<String>| ConfigError { path: path.to_owned(), faults };
        let text = input::read_text(path, MAX_FILE).map_err(|e| wrong(vec![format!("it can't be read: {e}")]))?;
        let file: File = toml::from_str(&text).map_err(|e| wrong(vec![fault(&text, &e)]))?;
        let base = path.parent().unwrap_or(Path::new("."));
        let mut faults = Vec::new();
        if file.receiver.is_empty() {
            faults.push(
                "it has no receiver: write `[[receiver]]` with `name` and `command`, `webhook` or `mail`".to_owned(),
            );
        }
        let mut names = BTreeSet::new();
        let mut receivers = Vec::new();
        for entry in file.receiver {
            if !names.insert(entry.name.clone()) {
                faults.push(format!("two receivers have the name {:?}", entry.name));
            }
            match entry.way(base) {
                Ok(way) => receivers.push(Receiver {
                    name: entry.name,
                    way,
                    on: entry.on.unwrap_or_else(|| NoticeKind::ALL.into()),
                    every: entry.every,
                }),
                Err(what) => faults.push(format!("the receiver {:?}: {what}", entry.name)),
            }
        }
        if !faults.is_empty() {
            return Err(wrong(faults));
        }
        Ok(Self {
            state: base.join(file.state.unwrap_or_else(|| path.with_extension("state.json"))),
            stuck_after: file.stuck_after,
            away_after: file.away_after,
            receivers,
        })
    }
}

/// A fault of the notation, with its line and column.
fn fault(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {}", error.message())
}

impl Entry {
    fn way(&self, base: &Path) -> Result<Way, String> {
        if self.secret_file.is_some() && self.webhook.is_none() {
            return Err("`secret_file` is for a `webhook`".to_owned());
        }
        match (&self.command, &self.webhook, &self.mail) {
            (Some(command), None, None) => Ok(Way::Command(command.clone())),
            (None, Some(url), None) => {
                check_url(url)?;
                let secret = self.secret_file.as_ref().map(|file| secret(&base.join(file))).transpose()?;
                Ok(Way::Webhook { url: url.clone(), secret })
            }
            (None, None, Some(to)) if to.chars().any(|c| c.is_control() || c.is_whitespace()) || !to.contains('@') => {
                Err(format!("{to:?} is no address of mail"))
            }
            (None, None, Some(to)) => Ok(Way::Mail { to: to.clone() }),
            _ => Err("it needs exactly one of `command`, `webhook` and `mail`".to_owned()),
        }
    }
}

/// A message may name hosts, users and faults, so it leaves this machine only encrypted.
fn check_url(url: &str) -> Result<(), String> {
    let parsed: hyper::Uri = url.parse().map_err(|e| format!("{url:?} is no address: {e}"))?;
    let is_local = matches!(parsed.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match parsed.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if is_local => Ok(()),
        Some("http") => Err(format!("{url} is not encrypted: write `https://`; `http://` is only for this machine")),
        Some(_) | None => Err(format!("{url:?} begins with neither `https://` nor `http://`")),
    }
}

fn secret(path: &Path) -> Result<Vec<u8>, String> {
    use std::os::unix::fs::MetadataExt as _;
    let failed = |error: std::io::Error| format!("{} can't be read: {error}", path.display());
    if fs::metadata(path).map_err(failed)?.mode() & 0o077 != 0 {
        return Err(format!("others may read {}: run `chmod 600 {0}`", path.display()));
    }
    let secret = input::read(path, MAX_FILE).map_err(failed)?.trim_ascii().to_owned();
    if secret.len() < SHORTEST_SECRET {
        return Err(format!("the secret in {} has fewer than {SHORTEST_SECRET} bytes", path.display()));
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<NotifyConfig, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify.toml");
        fs::write(&path, text).expect("written");
        let remove = format!("{}/", folder.path().display());
        NotifyConfig::read(&path).map_err(|e| e.to_string().replace(&remove, ""))
    }

    #[test]
    fn a_file_has_defaults() {
        let config = read("[[receiver]]\nname = \"ops\"\ncommand = \"cat\"\n").expect("good");
        assert!(config.state.ends_with("notify.state.json"));
        assert_eq!((config.stuck_after.as_secs(), config.away_after.as_secs()), (600, 60));
        assert_eq!(config.receivers[0].on.len(), NoticeKind::ALL.len());
        let config =
            read("stuck_after = \"2m\"\n[[receiver]]\nname = \"a\"\nmail = \"ops@example.org\"\non = [\"failed\"]\n");
        let config = config.expect("good");
        assert_eq!(config.stuck_after.as_secs(), 120);
        assert_eq!(config.receivers[0].on, [NoticeKind::Failed].into());
    }

    #[test]
    fn each_fault_has_a_remedy() {
        let faults = read(
            "[[receiver]]\nname = \"a\"\n\
             [[receiver]]\nname = \"a\"\nwebhook = \"http://example.org/x\"\n\
             [[receiver]]\nname = \"b\"\nmail = \"ops@example.org\\nBcc: x\"\n\
             [[receiver]]\nname = \"c\"\nwebhook = \"ftp://example.org\"\n\
             [[receiver]]\nname = \"d\"\ncommand = \"cat\"\nsecret_file = \"x\"\n",
        );
        insta::assert_snapshot!(faults.expect_err("faults"));
        let unknown = read("[[receiver]]\nname = \"a\"\ncommand = \"cat\"\non = [\"fail\"]\n").expect_err("a fault");
        assert!(unknown.contains("line 4") && unknown.contains("unknown variant `fail`"), "{unknown}");
        assert!(read("").expect_err("a fault").contains("it has no receiver"));
    }
}
