//! The file with the log-ins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cob_hub_api::Name;
use cob_permissions as rights;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::ldap::Ldap;
use super::oidc::Oidc;

/// The largest file, in bytes.
const LARGEST: u64 = 1 << 20;
/// The permission of all users to read a file.
const ALL_READ: u32 = 0o004;
/// The most requests to a system at a time.
const AT_A_TIME: usize = 8;

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file can't be read.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The file is no map of log-ins.
    #[error("{}:{because}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line, column and reason.
        because: String,
    },
    /// Log-ins have faults.
    #[error("{}: {}", file.display(), faults.join("; "))]
    Faults {
        /// The file.
        file: PathBuf,
        /// All faults, each with the name of its log-in.
        faults: Vec<String>,
    },
}

/// A log-in.
#[derive(Debug)]
pub(super) struct Settings {
    tenants: BTreeSet<rights::Name>,
    administrators: bool,
    pub(super) way: Way,
    /// Places for requests to the other system: one that hangs delays no other log-in.
    pub(super) places: Semaphore,
}

/// Who checks a log-in.
#[derive(Debug, Clone)]
pub(super) enum Way {
    /// A directory.
    Ldap(Ldap),
    /// A provider of identities.
    Oidc(Oidc),
}

/// A log-in in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The tenants whose users it takes.
    #[serde(default)]
    tenants: BTreeSet<rights::Name>,
    /// Whether it takes super administrators.
    #[serde(default)]
    administrators: bool,
    #[serde(default)]
    ldap: Option<Ldap>,
    #[serde(default)]
    oidc: Option<Oidc>,
}

impl Settings {
    /// Whether the log-in takes users of a tenant.
    pub(super) fn takes(&self, tenant: Option<&rights::Name>) -> bool {
        tenant.map_or(self.administrators, |tenant| self.tenants.contains(tenant))
    }
}

impl Written {
    fn check(self) -> Result<Settings, String> {
        let Self { tenants, administrators, ldap, oidc } = self;
        if tenants.is_empty() && !administrators {
            return Err("nobody can use it: name `tenants`, or write `administrators: true`".to_owned());
        }
        let way = match (ldap, oidc) {
            (Some(ldap), None) => {
                ldap.check()?;
                Way::Ldap(ldap)
            }
            (None, Some(oidc)) => {
                oidc.check()?;
                Way::Oidc(oidc)
            }
            (None, None) | (Some(_), Some(_)) => return Err("write `ldap` or `oidc`".to_owned()),
        };
        Ok(Settings { tenants, administrators, way, places: Semaphore::new(AT_A_TIME) })
    }
}

/// Reads and checks a file.
pub(super) fn read(file: &Path) -> Result<BTreeMap<Name, Settings>, SettingsError> {
    let io = |error| SettingsError::Io { file: file.to_owned(), error };
    if fs::metadata(file).map_err(io)?.len() > LARGEST {
        return Err(SettingsError::Faults {
            file: file.to_owned(),
            faults: vec![format!("longer than {LARGEST} bytes")],
        });
    }
    let text = fs::read_to_string(file).map_err(io)?;
    let written: BTreeMap<Name, Written> = serde_saphyr::from_str(&text).map_err(|error| {
        let place = error.location().map(|at| format!("{}:{}: ", at.line(), at.column())).unwrap_or_default();
        SettingsError::Syntax { file: file.to_owned(), because: format!("{place}{}", error.without_snippet()) }
    })?;
    let (mut all, mut faults) = (BTreeMap::new(), Vec::new());
    for (name, written) in written {
        match written.check() {
            Ok(settings) => _ = all.insert(name, settings),
            Err(because) => faults.push(format!("{}: {because}", name.as_str())),
        }
    }
    if faults.is_empty() { Ok(all) } else { Err(SettingsError::Faults { file: file.to_owned(), faults }) }
}

/// The secret in a file, without the end of its line. It is read for each use: a new secret needs no restart.
pub(super) fn read_secret(file: &Path) -> Result<String, String> {
    let mode = fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.permissions().mode();
    if mode & ALL_READ != 0 {
        return Err(format!("all users of the machine can read {0}: `chmod o-r {0}`", file.display()));
    }
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// Whether an address, `HOST[:PORT]`, is on this machine.
pub(super) fn is_local(host: &str) -> bool {
    let name =
        host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |of| of.0);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
