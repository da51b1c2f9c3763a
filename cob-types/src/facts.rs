//! What a host is: facts that models can use, once somebody has collected them.
//!
//! Only what stays the same from one look to the next: a generation is made of them, and nothing that wanders
//! (free memory, load) belongs into one. Fields are only added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::HostName;

/// The facts of one host, as its daemon tells them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactsOf {
    /// Whose.
    pub host: HostName,
    /// Which.
    pub facts: HostFacts,
}

/// What a host is. What can't be found out is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// Its own name for itself.
    pub hostname: String,
    /// The processors that are online.
    pub cpus: u32,
    /// What they are: `x86_64`, `aarch64`.
    pub architecture: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// Its swap space.
    pub swap_bytes: u64,
    /// Its disks, by name (`sda`).
    pub disks: BTreeMap<String, Disk>,
    /// What is installed on it.
    pub distribution: Distribution,
    /// The release of its kernel.
    pub kernel: String,
    /// Its addresses, those of IPv4 first; none that only means itself or one link.
    pub addresses: Vec<String>,
    /// Its network interfaces, by name, without the loopback.
    pub interfaces: BTreeMap<String, Interface>,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// Its size.
    pub bytes: u64,
    /// It turns.
    pub rotational: bool,
    /// Its maker's name for it; empty where it says none.
    pub model: String,
}

/// A distribution, as `/etc/os-release` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// What it is made after: `[rhel, fedora]`.
    pub like: Vec<String>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its hardware address.
    pub mac: String,
    /// The longest packet that it takes.
    pub mtu: u32,
}
