//! The daemon's configuration file, `cobd.toml`.
//!
//! All keys except `host` and `depot` have defaults. The error for an unknown key suggests the nearest known key; all
//! errors are reported at once.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use cob_trust::Publishers;
use cob_types::link::parse_address;
use cob_types::suggest::did_you_mean;
use cob_types::{HostName, PublicKey};

use crate::remote::{Remote, Server};
use crate::source::Source;

/// The command that reboots a host with systemd.
const REBOOT: &str = "systemctl reboot";

/// The keys that there are.
const KEYS: [&str; 14] = [
    "reboot",
    "run",
    "host",
    "listen",
    "state_dir",
    "secrets_dir",
    "depot",
    "depot_key",
    "identity",
    "trust",
    "threshold",
    "http",
    "log",
    "follow",
];
const STATE_DIR: &str = "/var/lib/cob";
/// The name of the key file in the state folder.
pub(crate) const IDENTITY: &str = "identity.key";
const SOCKET: &str = "/run/cob/cobd.sock";

/// The configuration of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name of this host in the model.
    pub host: HostName,
    /// The address where the daemon listens for peers; absent: the address in the manifest.
    pub listen: Option<SocketAddr>,
    /// The state folder: all data of the daemon.
    pub state_dir: PathBuf,
    /// The folder in memory with secret values for jobs; absent: a folder below `/dev/shm`.
    pub secrets_dir: Option<PathBuf>,
    /// The source of generations.
    pub depot: Source,
    /// The file with the key of this host, its identity.
    pub identity: PathBuf,
    /// The publishers whose generations are accepted; absent: only generations with `security: loopback-only`.
    pub trust: Option<Publishers>,
    /// The Unix socket of the HTTP API.
    pub http: PathBuf,
    /// The log filter in the syntax of `tracing`.
    pub log: String,
    /// Whether the daemon switches by itself to the newest generation of the depot.
    pub follow: bool,
    /// The command that reboots this host, for `/bin/sh -c`.
    pub reboot: String,
    /// Operators may run commands on this host (`cobctl run`).
    pub run: bool,
}

/// The errors of a configuration, a line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub Vec<String>);

impl Config {
    /// A configuration with defaults for all optional keys.
    #[must_use]
    pub fn new(host: HostName, depot: &Path, state_dir: &Path) -> Self {
        Self {
            host,
            listen: None,
            state_dir: state_dir.to_owned(),
            secrets_dir: None,
            depot: Source::Folder(depot.to_owned()),
            identity: state_dir.join(IDENTITY),
            trust: None,
            http: state_dir.join("cobd.sock"),
            log: "info".to_owned(),
            follow: false,
            reboot: REBOOT.to_owned(),
            run: true,
        }
    }

    /// Reads a configuration file. Relative paths start at the folder of the file.
    ///
    /// # Errors
    /// [`ConfigError`] with all errors, each with the name of the file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| ConfigError(vec![format!("{}: can't be read: {e}", path.display())]))?;
        // Runners work in folders of their own: no path may depend on the daemon's working directory.
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let base = whole.parent().unwrap_or(Path::new("/"));
        Self::parse(&text, base)
            .map_err(|e| ConfigError(e.0.into_iter().map(|line| format!("{}: {line}", path.display())).collect()))
    }

    /// Parses the text of a configuration.
    ///
    /// # Errors
    /// [`ConfigError`] with all errors.
    pub fn parse(text: &str, base: &Path) -> Result<Self, ConfigError> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| ConfigError(vec![e.to_string()]))?;
        let mut faults = Vec::new();
        for key in table.keys().filter(|k| !KEYS.contains(&k.as_str())) {
            faults.push(format!("unknown key `{key}`{}", suggestion(key)));
        }
        let trust = trust(&table, &mut faults);
        let text = |key: &str, faults: &mut Vec<String>| match table.get(key) {
            None => None,
            Some(toml::Value::String(s)) => Some(s.clone()),
            Some(other) => {
                faults.push(format!("`{key}` must be a text, not {}", other.type_str()));
                None
            }
        };
        let host = match text("host", &mut faults) {
            Some(name) => match HostName::new(&name) {
                Ok(host) => Some(host),
                Err(e) => {
                    faults.push(format!("`host`: {e}"));
                    None
                }
            },
            None => {
                faults.push("`host` is missing: the name of this host in the model".to_owned());
                None
            }
        };
        let depot = text("depot", &mut faults);
        if depot.is_none() {
            let what = "the folder that `cobgen generate --depot` writes, or tcp://IP:PORT of `cobgen serve`";
            faults.push(format!("`depot` is missing: {what}"));
        }
        let listen = text("listen", &mut faults).and_then(|l| match parse_address(&l) {
            Ok(address) => Some(address),
            Err(e) => {
                faults.push(format!("`listen`: {e}"));
                None
            }
        });
        let path = |p: String| base.join(p);
        let state_dir = path(text("state_dir", &mut faults).unwrap_or_else(|| STATE_DIR.to_owned()));
        let secrets_dir = text("secrets_dir", &mut faults).map(path);
        let identity = text("identity", &mut faults).map_or_else(|| state_dir.join(IDENTITY), path);
        let depot = depot.and_then(|depot| source(&table, &depot, base, &identity, &mut faults));
        let http = text("http", &mut faults);
        let http = http.map(|h| h.strip_prefix("unix:").map(str::to_owned).unwrap_or(h));
        let log = text("log", &mut faults).unwrap_or_else(|| "info".to_owned());
        faults.extend(crate::cli::log_filter(&log).err());
        let reboot = text("reboot", &mut faults).unwrap_or_else(|| REBOOT.to_owned());
        let mut switch = |key: &str, default: bool| match table.get(key) {
            None => default,
            Some(toml::Value::Boolean(b)) => *b,
            Some(other) => {
                faults.push(format!("`{key}` must be true or false, not {}", other.type_str()));
                default
            }
        };
        let (follow, run) = (switch("follow", false), switch("run", true));
        match (host, depot) {
            (Some(host), Some(depot)) if faults.is_empty() => Ok(Self {
                host,
                listen,
                state_dir,
                secrets_dir,
                depot,
                identity,
                trust,
                http: path(http.unwrap_or_else(|| SOCKET.to_owned())),
                log,
                follow,
                reboot,
                run,
            }),
            _ => Err(ConfigError(faults)),
        }
    }
}

/// Parses the depot: a folder, or a server with its key.
fn source(table: &toml::Table, depot: &str, base: &Path, identity: &Path, faults: &mut Vec<String>) -> Option<Source> {
    let keys = match table.get("depot_key") {
        None => &[],
        Some(toml::Value::Array(keys)) => keys.as_slice(),
        Some(key) => std::slice::from_ref(key),
    };
    let keys = public_keys("depot_key", keys, faults);
    if !depot.starts_with("tcp://") {
        if table.contains_key("depot_key") {
            faults.push("`depot_key` is for a depot at tcp://IP:PORT; this depot is a folder".to_owned());
        }
        return Some(Source::Folder(base.join(depot)));
    }
    if !table.contains_key("depot_key") {
        faults.push(
            "`depot_key` is missing: the key that `cobgen serve` shows when it starts (`cobd join` writes it here)"
                .to_owned(),
        );
    }
    match parse_address(depot) {
        Ok(address) => Some(Source::Server(Remote { server: Server { address, keys }, identity: identity.to_owned() })),
        Err(e) => {
            faults.push(format!("`depot`: {e}"));
            None
        }
    }
}

fn public_keys(name: &str, keys: &[toml::Value], faults: &mut Vec<String>) -> Vec<PublicKey> {
    let mut read = Vec::new();
    for key in keys {
        match key.as_str().map(str::parse::<PublicKey>) {
            Some(Ok(key)) => read.push(key),
            Some(Err(error)) => faults.push(format!("`{name}`: {error}")),
            None => faults.push(format!("`{name}`: a key is a text, not {}", key.type_str())),
        }
    }
    read
}

/// Parses the trusted publishers and the number of required signatures.
fn trust(table: &toml::Table, faults: &mut Vec<String>) -> Option<Publishers> {
    let threshold = match table.get("threshold") {
        None => 1,
        Some(toml::Value::Integer(n)) if *n >= 1 => usize::try_from(*n).unwrap_or(usize::MAX),
        Some(other) => {
            let given = other.as_integer().map_or_else(|| other.type_str().to_owned(), |n| n.to_string());
            faults.push(format!("`threshold` must be a number from 1 on, not {given}"));
            1
        }
    };
    let keys = match table.get("trust") {
        Some(toml::Value::Array(keys)) if !keys.is_empty() => keys,
        Some(_) => {
            faults.push("`trust` must be a list of publishers' keys: [\"ed25519:…\"]".to_owned());
            return None;
        }
        None if table.contains_key("threshold") => {
            faults.push("`threshold` without `trust`: no publisher could sign".to_owned());
            return None;
        }
        None => return None,
    };
    let trusted = public_keys("trust", keys, faults);
    match Publishers::new(trusted, threshold) {
        Ok(publishers) => Some(publishers),
        Err(error) => {
            faults.push(format!("`threshold`: {error}"));
            None
        }
    }
}

fn suggestion(key: &str) -> String {
    match did_you_mean(key, KEYS) {
        Some(help) => format!("; {help}"),
        None => format!("; known are {}", KEYS.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_except_host_and_depot_has_a_default() {
        let config = Config::parse("host = \"n1\"\ndepot = \"depot.git\"", Path::new("/etc/cob")).expect("valid");
        assert_eq!(config.depot, Source::Folder(PathBuf::from("/etc/cob/depot.git")));
        assert_eq!(config.state_dir, Path::new(STATE_DIR));
        assert_eq!((config.listen, config.follow, config.run), (None, false, true));
        let forbids = Config::parse("host = \"n1\"\ndepot = \"d\"\nrun = false", Path::new("/")).expect("valid");
        assert!(!forbids.run);
    }

    #[test]
    fn a_depot_is_a_folder_or_a_server_with_a_key() {
        let key = PublicKey([3; 32]);
        let of = |more: &str| Config::parse(&format!("host = \"n1\"\n{more}"), Path::new("/etc/cob"));
        let served = of(&format!("depot = \"tcp://10.0.0.1:7070\"\ndepot_key = \"{key}\"")).expect("valid");
        let address = "10.0.0.1:7070".parse().expect("an address");
        let identity = PathBuf::from("/var/lib/cob/identity.key");
        let expected = Remote { server: Server { address, keys: vec![key] }, identity };
        assert_eq!(served.depot, Source::Server(expected));
        for (more, words) in [
            ("depot = \"tcp://10.0.0.1:7070\"".to_owned(), "`depot_key` is missing"),
            ("depot = \"tcp://10.0.0.1:7070\"\ndepot_key = \"x\"".to_owned(), "`depot_key`: \"x\" is no public key"),
            (format!("depot = \"tcp://host:7070\"\ndepot_key = \"{key}\""), "names are not looked up"),
            (format!("depot = \"folder\"\ndepot_key = \"{key}\""), "this depot is a folder"),
        ] {
            let error = of(&more).expect_err("a fault").to_string();
            assert!(error.contains(words), "{words} in {error}");
        }
    }

    #[test]
    fn publishers_are_trusted_by_their_keys() {
        let key = PublicKey([3; 32]);
        let text = format!("host = \"n1\"\ndepot = \"d\"\ntrust = [\"{key}\"]\n");
        let config = Config::parse(&text, Path::new("/etc/cob")).expect("valid");
        assert_eq!(config.trust.map(|t| t.threshold()), Some(1));
        let error = Config::parse(&format!("{text}threshold = 2"), Path::new("/")).expect_err("too many").to_string();
        assert!(error.contains("2 publishers must sign, but only 1 are trusted"), "{error}");
    }

    #[test]
    fn the_log_setting_is_a_filter() {
        let of = |log: &str| Config::parse(&format!("host = \"n1\"\ndepot = \"d\"\nlog = {log:?}"), Path::new("/"));
        assert_eq!(of("warn,cobd::peer=debug").expect("a filter").log, "warn,cobd::peer=debug");
        let error = of("nonsense=loudly").expect_err("none").to_string();
        assert!(error.contains("`log`: \"nonsense=loudly\" is no filter"), "{error}");
    }

    #[test]
    fn all_faults_are_reported_at_once_with_suggestions() {
        let text = "hots = \"n1\"\nlisten = \"127.0.0.1:1\"\nfollow = 3\nrun = \"no\"\ntrust = []\n";
        let error = Config::parse(text, Path::new(".")).expect_err("faults").to_string();
        for part in [
            "unknown key `hots`; did you mean `host`?",
            "`host` is missing",
            "`depot` is missing",
            "`listen`: \"127.0.0.1:1\" is not of the form tcp://IP:PORT",
            "`follow` must be true or false, not integer",
            "`run` must be true or false, not string",
            "`trust` must be a list of publishers' keys",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }
}
