//! The server's view of the depot: the numbers of the generations, and the keys that may read.
//!
//! A key stands for the host in the newest manifest that mentions the key, or for the host that enrolled with it; a
//! revoked key stands for no host. Manifests are immutable, so each is read once. The depot is checked once a second,
//! and after each enrolment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use cob_depot::enrolled::{self, Enrolments};
use cob_depot::{Depot, DepotError};
use cob_types::{GenerationNumber, HostName, Manifest, PublicKey};
use tokio::sync::watch;

/// The number of recent generations whose keys are known, so that hosts that are behind can catch up.
const RECENT: usize = 16;

/// The shortest interval between two checks of the depot for callers.
const MOMENT: Duration = Duration::from_millis(50);

/// The depot at the last check.
pub(super) struct Shelf {
    path: PathBuf,
    known: RwLock<Arc<Known>>,
    said: Mutex<BTreeMap<GenerationNumber, Arc<Said>>>,
    newest: watch::Sender<Option<GenerationNumber>>,
    /// The time of the last check for a caller.
    looked: tokio::sync::Mutex<Instant>,
}

/// Access rights.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    hosts: BTreeMap<PublicKey, HostName>,
    revoked: BTreeSet<PublicKey>,
    /// The addresses of the hosts in these generations.
    addresses: BTreeSet<IpAddr>,
    /// All generations, newest first.
    pub(super) numbers: Vec<GenerationNumber>,
}

/// The keys in a manifest.
#[derive(Debug)]
struct Said {
    hosts: Vec<(PublicKey, HostName)>,
    revoked: BTreeSet<PublicKey>,
    addresses: BTreeSet<IpAddr>,
}

impl Known {
    /// The host that a key stands for.
    pub(super) fn host_of(&self, key: &PublicKey) -> Option<&HostName> {
        self.hosts.get(key)
    }

    /// The addresses from which hosts are expected.
    pub(super) fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    /// Whether a key was revoked.
    pub(super) fn is_revoked(&self, key: &PublicKey) -> bool {
        self.revoked.contains(key)
    }

    /// `said`: oldest first.
    fn of(numbers: Vec<GenerationNumber>, said: &[Arc<Said>], enrolled: Enrolments) -> Self {
        let mut known = Self { numbers, ..Self::default() };
        for said in said {
            known.addresses.extend(&said.addresses);
            for (key, host) in &said.hosts {
                known.revoked.remove(key);
                known.hosts.insert(*key, host.clone());
            }
            for key in &said.revoked {
                known.hosts.remove(key);
                known.revoked.insert(*key);
            }
        }
        // Enrolments are newer than all manifests that do not mention the key.
        for key in enrolled.revoked {
            known.hosts.remove(&key);
            known.revoked.insert(key);
        }
        for (host, keys) in enrolled.keys {
            for key in keys {
                if !known.revoked.contains(&key) {
                    known.hosts.entry(key).or_insert_with(|| host.clone());
                }
            }
        }
        known
    }
}

impl Said {
    fn of(manifest: &Manifest) -> Self {
        let keys = |(host, entry): (&HostName, &cob_types::generation::ManifestHost)| {
            entry.keys.iter().map(|key| (*key, host.clone())).collect::<Vec<_>>()
        };
        let hosts = manifest.hosts.values().filter_map(|entry| entry.address.as_deref()?.strip_prefix("tcp://"));
        let addresses = hosts.filter_map(|address| Some(address.parse::<SocketAddr>().ok()?.ip())).collect();
        Self { hosts: manifest.hosts.iter().flat_map(keys).collect(), revoked: manifest.revoked.clone(), addresses }
    }
}

impl Shelf {
    pub(super) fn open(path: &Path) -> Result<Self, DepotError> {
        let shelf = Self {
            path: path.to_owned(),
            known: RwLock::default(),
            said: Mutex::default(),
            newest: watch::Sender::new(None),
            looked: tokio::sync::Mutex::new(Instant::now()),
        };
        shelf.look_now()?;
        Ok(shelf)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Announces new generations.
    pub(super) fn newest(&self) -> watch::Receiver<Option<GenerationNumber>> {
        self.newest.subscribe()
    }

    /// Checks the depot. If it can't be read, the state stays as it was.
    pub(super) async fn look(self: &Arc<Self>) {
        let shelf = self.clone();
        match tokio::task::spawn_blocking(move || shelf.look_now()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!("{error}"),
            Err(error) => tracing::error!("the depot could not be read: {error}"),
        }
    }

    /// Checks the depot unless that was done a moment ago, so that a key is judged by all earlier publications. Of
    /// simultaneous callers only the first checks, and the others wait for its result.
    pub(super) async fn look_again(self: &Arc<Self>) {
        let mut looked = self.looked.lock().await;
        if looked.elapsed() >= MOMENT {
            *looked = Instant::now();
            self.look().await;
        }
    }

    fn look_now(&self) -> Result<(), DepotError> {
        let depot = Depot::open(&self.path)?;
        let numbers = depot.newest_first()?;
        let recent: Vec<GenerationNumber> = numbers.iter().take(RECENT).rev().copied().collect();
        let said = {
            let mut cache = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            cache.retain(|number, _| recent.contains(number));
            for number in &recent {
                if !cache.contains_key(number) {
                    match depot.read_manifest(*number) {
                        Ok(manifest) => drop(cache.insert(*number, Arc::new(Said::of(&manifest)))),
                        // A damaged generation does not lock out the hosts of the others.
                        Err(error) => tracing::error!("{error}"),
                    }
                }
            }
            cache.values().cloned().collect::<Vec<_>>()
        };
        let newest = numbers.first().copied();
        let known = Known::of(numbers, &said, enrolled::read_all(&self.path)?);
        if known != *self.known() {
            *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        }
        self.newest.send_if_modified(|n| std::mem::replace(n, newest) != newest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a name")
    }

    fn said(hosts: &[(&str, u8)], revoked: &[u8]) -> Arc<Said> {
        Arc::new(Said {
            hosts: hosts.iter().map(|(name, key)| (PublicKey([*key; 32]), host(name))).collect(),
            revoked: revoked.iter().map(|key| PublicKey([*key; 32])).collect(),
            addresses: BTreeSet::new(),
        })
    }

    #[test]
    fn the_newest_manifest_that_mentions_a_key_decides() {
        let enrolled: BTreeMap<_, _> =
            [(host("h4"), vec![PublicKey([4; 32])]), (host("h2"), vec![PublicKey([2; 32])])].into();
        let revoked = [PublicKey([7; 32])].into();
        let enrolled = Enrolments { keys: enrolled, revoked };
        let of = |said: &[Arc<Said>]| Known::of(Vec::new(), said, enrolled.clone());
        let name = |known: &Known, key: u8| known.host_of(&PublicKey([key; 32])).map(|h| h.as_str().to_owned());
        let known = of(&[said(&[("h1", 1), ("h2", 2)], &[]), said(&[("h1", 9)], &[2])]);
        assert_eq!(name(&known, 1).as_deref(), Some("h1"), "a key that rolls over");
        assert_eq!(name(&known, 9).as_deref(), Some("h1"));
        assert_eq!(name(&known, 2), None, "revoked, although it has enrolled");
        assert!(known.is_revoked(&PublicKey([2; 32])));
        assert_eq!(name(&known, 4).as_deref(), Some("h4"), "enrolled, in no manifest yet");
        let known = of(&[said(&[("h1", 7)], &[])]);
        assert_eq!(name(&known, 7), None, "the host has enrolled with another key since");
        assert!(known.is_revoked(&PublicKey([7; 32])));
        let known = of(&[said(&[("h1", 1)], &[2]), said(&[("h2", 2)], &[])]);
        assert_eq!(name(&known, 2).as_deref(), Some("h2"), "named again");
    }
}
