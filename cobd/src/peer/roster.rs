//! Who exists, where, and how hosts prove who they are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use cob_trust::tls::Identity;
use cob_types::{HostName, PublicKey};

/// What the links are told of the world: all of it, each time.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    /// Every host; this one may be among them.
    pub hosts: BTreeMap<HostName, RosterHost>,
    /// Keys that may come in and are no host's: of those who may order from afar, and of publishers.
    pub operators: BTreeSet<PublicKey>,
    /// Keys that are not believed any more. They are in none of the other fields.
    pub revoked: BTreeSet<PublicKey>,
    /// Hosts of other generations that are here, with their keys: removed hosts whose daemons still run, or hosts that are
    /// ahead. There are no links to them, and they are no strangers.
    pub former: BTreeMap<HostName, BTreeSet<PublicKey>>,
    /// This host has no generation yet: hosts that are further may call, and nothing is known of them.
    pub young: bool,
    /// How connections are protected.
    pub protection: Protection,
}

/// One host of the roster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RosterHost {
    /// Where it listens; none: there is no link to it.
    pub address: Option<SocketAddr>,
    /// The keys that prove that it is this host.
    pub keys: BTreeSet<PublicKey>,
}

/// How connections are protected.
#[derive(Debug, Clone, Default)]
pub enum Protection {
    /// Not at all; so nothing but loopback addresses is spoken to.
    #[default]
    LoopbackOnly,
    /// TLS 1.3, each side proving its key. Without an identity of its own the host has no links.
    Identities(Option<Identity>),
}

impl Protection {
    /// Whether everybody has to prove who they are.
    #[must_use]
    pub fn has_identities(&self) -> bool {
        matches!(self, Protection::Identities(_))
    }
}

impl Roster {
    /// Hosts without keys, each at its address.
    #[must_use]
    pub fn loopback_only(hosts: impl IntoIterator<Item = (HostName, SocketAddr)>) -> Self {
        let entry = |address| RosterHost { address: Some(address), keys: BTreeSet::new() };
        Self { hosts: hosts.into_iter().map(|(host, address)| (host, entry(address))).collect(), ..Self::default() }
    }

    /// Where every host is that there can be a link to.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&HostName, SocketAddr, &RosterHost)> {
        self.hosts.iter().filter_map(|(host, entry)| Some((host, entry.address?, entry)))
    }
}
