//! The facts of a host: properties that models can use, once they have been collected.
//!
//! Only properties that do not change by themselves: a generation is made from them, and free memory or load do not
//! belong into it. Fields are only added.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::HostName;

/// The facts of a host, as its daemon reports them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactsOf {
    /// The host.
    pub host: HostName,
    /// The facts.
    pub facts: HostFacts,
}

/// The properties of a host. Unknown properties are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostFacts {
    /// Its own hostname.
    pub hostname: String,
    /// The processors that are online.
    pub cpus: u32,
    /// Their architecture: `x86_64`, `aarch64`.
    pub architecture: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// Its swap space.
    pub swap_bytes: u64,
    /// Its disks, by name (`sda`).
    pub disks: BTreeMap<String, Disk>,
    /// The installed distribution.
    pub distribution: Distribution,
    /// The release of its kernel.
    pub kernel: String,
    /// Its addresses, IPv4 first; without loopback and link-local addresses.
    pub addresses: Vec<String>,
    /// Its network interfaces, by name, without the loopback.
    pub interfaces: BTreeMap<String, Interface>,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Disk {
    /// Its size.
    pub bytes: u64,
    /// Whether it is a spinning disk.
    pub rotational: bool,
    /// The maker's model name; empty if unknown.
    pub model: String,
}

/// A distribution, from `/etc/os-release`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Distribution {
    /// `debian`, `rocky`.
    pub id: String,
    /// `13`, `9.4`.
    pub version: String,
    /// `trixie`.
    pub codename: String,
    /// For people: `Debian GNU/Linux 13 (trixie)`.
    pub name: String,
    /// The distributions on which it is based: `[rhel, fedora]`.
    pub like: Vec<String>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Interface {
    /// Its hardware address.
    pub mac: String,
    /// The longest packet.
    pub mtu: u32,
}
