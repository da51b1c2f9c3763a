//! The facts that a host reports about itself. The report may contain arbitrary text: unknown lines are ignored.

use std::net::SocketAddr;
use std::path::Path;

use cob_types::{HostName, PublicKey, manager_status};
use serde::Deserialize;

use super::artefact::{Manager, Processor};
use crate::words::clean;

/// The daemon's state folder, unless its configuration names another.
const STATE_DIR: &str = "/var/lib/cob";

/// The facts that decide about the next step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The processor, as the host names it.
    pub arch: String,
    /// Whether the script ran as root.
    pub is_root: bool,
    /// Whether systemd runs the host.
    pub systemd: bool,
    /// The package manager of the host.
    pub manager: Option<Manager>,
    /// The version of the installed package; `false`: the package is not installed completely.
    pub package: Option<(String, bool)>,
    /// The SHA-256 of a program that was installed without a package.
    pub alone: Option<String>,
    /// The SHA-256 of its unit.
    pub unit: Option<String>,
    /// The output of `cobd --version`.
    pub version: Option<String>,
    /// The key of the host.
    pub key: Option<PublicKey>,
    /// Whether the key file exists.
    pub has_key_file: bool,
    /// The configuration.
    pub config: Option<Configured>,
    /// The unit's state: `active`, `failed`, …
    pub active: String,
    /// Whether the unit starts at each boot.
    pub enabled: bool,
    /// The status text of the daemon.
    pub status: String,
    /// Whether the running program is the installed program.
    pub current: bool,
}

/// The part of `cobd.toml` that concerns enrolment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configured {
    /// The host that it names.
    pub host: Option<HostName>,
    /// The server of its depot.
    pub server: Option<SocketAddr>,
    /// The text of `depot`, for messages.
    pub depot: String,
    /// The keys that the server may have.
    pub depot_keys: Vec<PublicKey>,
    /// Whether state and key are where `cobd join` puts them.
    pub usual: bool,
    /// Whether the file can't be parsed.
    pub broken: bool,
}

/// The fields of `cobd.toml` that are read.
#[derive(Debug, Deserialize)]
struct Toml {
    host: Option<String>,
    depot: Option<String>,
    depot_key: Option<toml::Value>,
    state_dir: Option<String>,
    identity: Option<String>,
}

impl Facts {
    /// Parses the lines of an answer.
    #[must_use]
    pub fn read(lines: &[String]) -> Self {
        let mut facts = Self::default();
        let (mut config, mut configured) = (String::new(), false);
        for (key, value) in lines.iter().filter_map(|line| line.split_once('=')) {
            match key {
                "arch" => facts.arch = clean(value),
                "uid" => facts.is_root = value == "0",
                "systemd" => facts.systemd = true,
                "manager" if value == "deb" => facts.manager = Some(Manager::Deb),
                "manager" if value == "rpm" => facts.manager = Some(Manager::Rpm),
                "package" => facts.package = package(value),
                "alone" => facts.alone = Some(value.to_owned()),
                "unit" => facts.unit = Some(value.to_owned()),
                "version" => facts.version = Some(clean(value)).filter(|v| !v.is_empty()),
                "key" => facts.key = value.parse().ok(),
                "key_file" => facts.has_key_file = true,
                "configured" => configured = true,
                "config" => {
                    config.push_str(value);
                    config.push('\n');
                }
                "ActiveState" => facts.active = clean(value),
                "UnitFileState" => facts.enabled = value == "enabled",
                "StatusText" => facts.status = clean(value),
                "current" => facts.current = true,
                // From another version of the scripts.
                _ => {}
            }
        }
        facts.config = configured.then(|| Configured::read(&config));
        facts
    }

    /// The processor, if COB supports it.
    #[must_use]
    pub fn processor(&self) -> Option<Processor> {
        Processor::of(&self.arch)
    }

    /// Whether the daemon runs.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.active == "active"
    }

    /// Whether the daemon reports that its host has converged, or that it has no generation yet.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_active() && manager_status::is_settled(&self.status)
    }

    /// The number in `cobd 0.1.0`.
    #[must_use]
    pub fn number(&self) -> Option<&str> {
        self.version.as_deref()?.split_whitespace().nth(1)
    }
}

/// Parses `0.1.0-1 installed`; a removed package has no version, or only its configuration files are left.
fn package(text: &str) -> Option<(String, bool)> {
    let (version, state) = text.split_once(' ')?;
    let gone = version.is_empty() || ["not-installed", "config-files"].contains(&state);
    (!gone).then(|| (clean(version), state == "installed"))
}

impl Configured {
    fn read(text: &str) -> Self {
        let Ok(toml) = toml::from_str::<Toml>(text) else {
            return Self { broken: true, ..Self::default() };
        };
        let depot = toml.depot.unwrap_or_default();
        let keys = match toml.depot_key {
            Some(toml::Value::String(key)) => vec![key],
            Some(toml::Value::Array(keys)) => keys.iter().filter_map(|k| k.as_str().map(str::to_owned)).collect(),
            Some(_) | None => Vec::new(),
        };
        let state = toml.state_dir.as_deref().unwrap_or(STATE_DIR);
        Self {
            host: toml.host.and_then(|name| HostName::new(&name).ok()),
            server: cob_types::link::parse_address(&depot).ok(),
            depot: clean(&depot),
            depot_keys: keys.iter().filter_map(|key| key.parse().ok()).collect(),
            usual: toml.identity.is_none() && Path::new(state).ends_with(STATE_DIR.trim_start_matches('/')),
            broken: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Facts {
        Facts::read(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_facts_of_a_host_are_read() {
        let key = PublicKey([3; 32]);
        let facts = read(&format!(
            "arch=x86_64\nuid=0\nsystemd=yes\nmanager=deb\npackage=0.1.0-1 installed\nversion=cobd 0.1.0\nkey={key}\n\
             key_file=yes\nconfigured=yes\nconfig=# Written by `cobd join`.\nconfig=host = \"web1\"\n\
             config=state_dir = \"/var/lib/cob\"\nconfig=depot = \"tcp://10.0.0.1:7070\"\nconfig=depot_key = \"{key}\"\n\
             ActiveState=active\nUnitFileState=enabled\nStatusText=generation 7, a=b\ncurrent=yes"
        ));
        assert_eq!((facts.processor(), facts.manager), (Some(Processor::X86), Some(Manager::Deb)));
        assert_eq!((facts.package.clone(), facts.number()), (Some(("0.1.0-1".to_owned(), true)), Some("0.1.0")));
        assert!(facts.is_root && facts.systemd && facts.is_active() && facts.enabled && facts.current);
        assert_eq!((facts.status.as_str(), facts.key), ("generation 7, a=b", Some(key)));
        let config = facts.config.expect("configured");
        assert_eq!(config.host, HostName::new("web1").ok());
        assert_eq!((config.server, config.depot_keys), ("10.0.0.1:7070".parse().ok(), vec![key]));
        assert!(config.usual && !config.broken);
    }

    #[test]
    fn a_running_daemon_reports_whether_it_has_settled() {
        let settled =
            |active: &str, status: &str| read(&format!("ActiveState={active}\nStatusText={status}")).is_settled();
        assert!(settled("active", "generation 7, converged, 2 of 2 peers linked"));
        assert!(settled("active", "waits for its first generation: the depot is empty"));
        assert!(!settled("active", "generation 7, converging, 2 of 2 peers linked"));
        assert!(!settled("active", "") && !settled("failed", "generation 7, converged, 2 of 2 peers linked"));
    }

    #[test]
    fn invalid_facts_are_left_out() {
        let facts = read(
            "arch=\u{1b}[2J\nuid=\nmanager=brew\npackage= not-installed\nkey=x\nversion=\nconfigured=yes\nconfig=host = [",
        );
        assert_eq!(facts.arch, "\\u{1b}[2J");
        assert_eq!((facts.manager, facts.package, facts.key, facts.version), (None, None, None, None));
        assert!(!facts.is_root && facts.config.expect("there").broken);
        assert_eq!(package("0.1.0-1 half-configured"), Some(("0.1.0-1".to_owned(), false)));
        assert_eq!(package("0.1.0-1 config-files"), None);
        let elsewhere = read("configured=yes\nconfig=host = \"a\"\nconfig=identity = \"/k\"").config.expect("there");
        assert!(!elsewhere.usual && elsewhere.server.is_none());
        assert!(read("configured=yes").config.is_some(), "an empty configuration is valid");
    }
}
