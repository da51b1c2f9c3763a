//! Who may come in, and how a host proves that it is meant: the roster as connections need it.
//!
//! Made anew with each roster and never changed: a connection goes by the one that it was begun under,
//! and is looked at once more, by the one that holds then, before it becomes a link.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use cob_trust::tls::{self, Identity, TlsError};
use cob_types::{HostName, PublicKey};
use rustls::{ClientConfig, ServerConfig};

use super::roster::{Protection, Roster};

/// Whose a key is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Speaker {
    /// The host that it proves: two while a host takes on another's key, none for an operator's.
    pub(super) hosts: BTreeSet<HostName>,
}

/// What holds for connections.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// None: in clear, and from this machine only.
    identities: Option<Option<Identity>>,
    speakers: Arc<BTreeMap<PublicKey, Speaker>>,
    revoked: BTreeSet<PublicKey>,
    /// Where hosts are.
    addresses: BTreeSet<IpAddr>,
    former: BTreeMap<PublicKey, HostName>,
    /// Names of those, for where there are no keys.
    former_names: BTreeSet<HostName>,
    young: bool,
}

/// The key that was turned away in a handshake, if one was.
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

    /// Whether everybody must prove who they are.
    pub(super) fn has_identities(&self) -> bool {
        self.identities.is_some()
    }

    /// The key that this host shows.
    pub(super) fn own_key(&self) -> Option<PublicKey> {
        Some(self.identities.as_ref()?.as_ref()?.public())
    }

    /// The addresses of all hosts.
    pub(super) fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    /// Whose this key is; none: nobody's.
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

    /// Whether a generation that is here has a host of this name, to which there is no link.
    pub(super) fn is_former(&self, host: &HostName) -> bool {
        self.former_names.contains(host)
    }

    /// This host has no generation yet.
    pub(super) fn is_young(&self) -> bool {
        self.young
    }

    /// Settings for one connection that comes in; none: this host has nothing to prove itself with.
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

    /// Settings for dialling whoever holds one of these keys; none: as above.
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
