//! The roster: all hosts, their addresses, and their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use cob_trust::tls::Identity;
use cob_types::{HostName, PublicKey};

/// The complete view that the links get with each change.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    /// Every host; may include this host.
    pub hosts: BTreeMap<HostName, RosterHost>,
    /// Keys that may connect and belong to no host: keys of remote operators and of publishers.
    pub operators: BTreeSet<PublicKey>,
    /// Keys that are not trusted any more. No other field contains them.
    pub revoked: BTreeSet<PublicKey>,
    /// Hosts of other known generations with their keys: removed hosts whose daemons still run, or hosts with a newer
    /// generation. There are no links to these hosts, but they are not strangers.
    pub former: BTreeMap<HostName, BTreeSet<PublicKey>>,
    /// This host has no generation yet: hosts with a newer generation may call, and this host does not know them.
    pub young: bool,
    /// The protection of connections.
    pub protection: Protection,
}

/// A host of the roster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RosterHost {
    /// The listening address; `None`: there is no link to it.
    pub address: Option<SocketAddr>,
    /// The keys that prove the host's identity.
    pub keys: BTreeSet<PublicKey>,
}

/// The protection of connections.
#[derive(Debug, Clone, Default)]
pub enum Protection {
    /// No protection; so only loopback addresses are used.
    #[default]
    LoopbackOnly,
    /// TLS 1.3; each side proves its key. Without its own identity the host has no links.
    Identities(Option<Identity>),
}

impl Protection {
    /// Whether both sides must prove an identity.
    #[must_use]
    pub fn has_identities(&self) -> bool {
        matches!(self, Protection::Identities(_))
    }
}

impl Roster {
    /// Hosts without keys, each with its address.
    #[must_use]
    pub fn loopback_only(hosts: impl IntoIterator<Item = (HostName, SocketAddr)>) -> Self {
        let entry = |address| RosterHost { address: Some(address), keys: BTreeSet::new() };
        Self { hosts: hosts.into_iter().map(|(host, address)| (host, entry(address))).collect(), ..Self::default() }
    }

    /// The addresses of all hosts that can have a link.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&HostName, SocketAddr, &RosterHost)> {
        self.hosts.iter().filter_map(|(host, entry)| Some((host, entry.address?, entry)))
    }
}
