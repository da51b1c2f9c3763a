//! Access control: the roster in the form that connections need to check identities.
//!
//! A gate is made anew with each roster and never changed. A connection uses the gate under which it began. Before it
//! becomes a link, it is checked again with the current gate.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use cob_trust::tls::{self, Identity, TlsError};
use cob_types::{HostName, PublicKey};
use rustls::{ClientConfig, ServerConfig};

use super::roster::{Protection, Roster};

/// The owner of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Speaker {
    /// The hosts that it proves: two while a host takes over another's key, empty for an operator's key.
    pub(super) hosts: BTreeSet<HostName>,
}

/// The access rules for connections.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// `None`: connections in clear, from this machine only.
    identities: Option<Option<Identity>>,
    speakers: Arc<BTreeMap<PublicKey, Speaker>>,
    revoked: BTreeSet<PublicKey>,
    /// The addresses of the hosts.
    addresses: BTreeSet<IpAddr>,
    former: BTreeMap<PublicKey, HostName>,
    /// Names of the former hosts, for models without keys.
    former_names: BTreeSet<HostName>,
    young: bool,
}

/// The key that was refused in a handshake, if any.
#[derive(Debug, Clone, Default)]
pub(super) struct TurnedAway(Arc<Mutex<Option<PublicKey>>>);

impl Gate {
    pub(super) fn new(roster: &Roster) -> Self {
        let mut speakers: BTreeMap<PublicKey, Speaker> = BTreeMap::new();
        for key in &roster.operators {
            speakers.entry(*key).or_default();
        }
        for (host, entry) in &roster.hosts {
            for key in &entry.keys {
                speakers.entry(*key).or_default().hosts.insert(host.clone());
            }
        }
        speakers.retain(|key, _| !roster.revoked.contains(key));
        let identities = match &roster.protection {
            Protection::LoopbackOnly => None,
            Protection::Identities(own) => Some(own.clone()),
        };
        let addresses = roster.addresses().map(|(_, address, _)| address.ip()).collect();
        let former = roster.former.iter().flat_map(|(host, keys)| keys.iter().map(|key| (*key, host.clone())));
        Self {
            identities,
            speakers: Arc::new(speakers),
            revoked: roster.revoked.clone(),
            addresses,
            former: former.collect(),
            former_names: roster.former.keys().cloned().collect(),
            young: roster.young,
        }
    }

    /// Whether both sides must prove an identity.
    pub(super) fn has_identities(&self) -> bool {
        self.identities.is_some()
    }

    /// The key of this host.
    pub(super) fn own_key(&self) -> Option<PublicKey> {
        Some(self.identities.as_ref()?.as_ref()?.public())
    }

    /// The addresses of all hosts.
    pub(super) fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    /// The owner of this key; `None`: no known owner.
    pub(super) fn speaker(&self, key: &PublicKey) -> Option<&Speaker> {
        self.speakers.get(key)
    }

    pub(super) fn is_revoked(&self, key: &PublicKey) -> bool {
        self.revoked.contains(key)
    }

    /// The host of another generation that has this key.
    pub(super) fn former(&self, key: &PublicKey) -> Option<&HostName> {
        self.former.get(key)
    }

    /// Whether a known generation has a host of this name to which there is no link.
    pub(super) fn is_former(&self, host: &HostName) -> bool {
        self.former_names.contains(host)
    }

    /// This host has no generation yet.
    pub(super) fn is_young(&self) -> bool {
        self.young
    }

    /// TLS settings for an incoming connection; `None`: this host has no identity.
    pub(super) fn server(&self, turned_away: &TurnedAway) -> Option<Result<Arc<ServerConfig>, TlsError>> {
        let identity = self.identities.as_ref()?.as_ref()?;
        let (speakers, turned_away) = (self.speakers.clone(), turned_away.clone());
        let admits: tls::Admits = Arc::new(move |key| {
            let known = speakers.contains_key(key);
            if !known {
                turned_away.set(*key);
            }
            known
        });
        Some(tls::server(identity, admits, true, &[tls::LINK, tls::HTTP]))
    }

    /// TLS settings for dialling a holder of one of these keys; `None`: this host has no identity.
    pub(super) fn client(&self, pins: &BTreeSet<PublicKey>) -> Option<Result<Arc<ClientConfig>, TlsError>> {
        let identity = self.identities.as_ref()?.as_ref()?;
        let pins: Vec<PublicKey> = pins.iter().copied().collect();
        Some(tls::client(Some(identity), &pins, tls::LINK))
    }
}

impl TurnedAway {
    fn set(&self, key: PublicKey) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }

    pub(super) fn get(&self) -> Option<PublicKey> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
