//! How to reach systemd.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How to reach systemd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::kinds) struct Systemd {
    /// The system bus. `None`: the default address.
    pub(in crate::kinds) address: Option<String>,
    /// The administrators' folder for unit files.
    pub(in crate::kinds) units: PathBuf,
    /// The folder for unit files until the next boot.
    #[serde(default = "runtime_units")]
    pub(in crate::kinds) runtime: PathBuf,
}

fn runtime_units() -> PathBuf {
    "/run/systemd/system".into()
}

impl Default for Systemd {
    fn default() -> Self {
        Self {
            address: std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok(),
            units: "/etc/systemd/system".into(),
            runtime: runtime_units(),
        }
    }
}
