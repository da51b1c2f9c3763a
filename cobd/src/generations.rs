//! Generations on this host's own disk: fetched from the depot once, verified, kept.
//!
//! After `prepare` the depot is not needed any more to switch to a generation, nor to return to it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_depot::Depot;
use cob_types::generation::{MAX_BUNDLE, MAX_MANIFEST};
use cob_types::{Bundle, CobId, GenerationNumber, HostName, Kind, Manifest, canonical, codec};

use crate::config::parse_address;
use crate::durable;
use crate::kinds::Kinds;

/// The part of a generation that concerns this host, verified.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What all hosts share.
    pub manifest: Arc<Manifest>,
    /// This host's bundle.
    pub bundle: Arc<Bundle>,
}

/// Why a generation can't be had.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The depot can't be read, or does not have it.
    #[error("the depot {}: {source}", .depot.display())]
    Depot {
        /// The depot's folder.
        depot: PathBuf,
        /// What it said.
        source: cob_depot::DepotError,
    },
    /// The host is not in the manifest.
    #[error("generation {generation} has no host {host}; it has {known}")]
    NotIn {
        /// Which.
        generation: GenerationNumber,
        /// This host.
        host: HostName,
        /// Those in it.
        known: String,
    },
    /// It is not as it should be.
    #[error("generation {generation}: {what}")]
    Bad {
        /// Which.
        generation: GenerationNumber,
        /// What is wrong.
        what: String,
    },
    /// This host's disk.
    #[error("{}: {source}", .path.display())]
    Disk {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// The generations that are kept here.
#[derive(Debug, Clone)]
pub struct Generations {
    folder: PathBuf,
    depot: PathBuf,
    host: HostName,
}

impl Generations {
    /// Keeps them below the state folder.
    #[must_use]
    pub fn new(state_dir: &Path, depot: &Path, host: &HostName) -> Self {
        Self { folder: state_dir.join("generations"), depot: depot.to_owned(), host: host.clone() }
    }

    /// The newest generation of the depot; none: it has none yet.
    ///
    /// # Errors
    /// [`FetchError::Depot`].
    pub fn newest(&self) -> Result<Option<GenerationNumber>, FetchError> {
        self.open_depot()?.latest().map_err(|e| self.depot_error(e))
    }

    /// Gets a generation from the depot, verifies it and keeps it; one that is kept already is only
    /// read. With `leaving` a generation that lacks this host is one with nothing on it: a host that
    /// takes part already is being taken out; one that never did has the wrong name.
    ///
    /// # Errors
    /// [`FetchError`]; nothing is kept of one that is not in order.
    pub fn fetch(&self, generation: GenerationNumber, leaving: bool) -> Result<Prepared, FetchError> {
        if let Ok(prepared) = self.load(generation) {
            return Ok(prepared);
        }
        let depot = self.open_depot()?;
        let manifest_bytes = depot.read_manifest_bytes(generation).map_err(|e| self.depot_error(e))?;
        let manifest = self.parse_manifest(generation, &manifest_bytes)?;
        if !manifest.hosts.contains_key(&self.host) {
            if !leaving {
                return Err(self.not_in(&manifest));
            }
            self.keep(generation, &manifest_bytes, None)?;
            return Ok(self.nothing_of(manifest));
        }
        let bundle_bytes = depot.read_bundle_bytes(generation, &self.host).map_err(|e| self.depot_error(e))?;
        let bundle = self.parse_bundle(&manifest, &bundle_bytes)?;
        self.keep(generation, &manifest_bytes, Some(&bundle_bytes))?;
        Ok(Prepared { manifest: Arc::new(manifest), bundle: Arc::new(bundle) })
    }

    /// Reads a generation that is kept here.
    ///
    /// # Errors
    /// [`FetchError`] when it is not, or is damaged.
    pub fn load(&self, generation: GenerationNumber) -> Result<Prepared, FetchError> {
        let folder = self.folder_of(generation);
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|source| FetchError::Disk { path, source })
        };
        let manifest = self.parse_manifest(generation, &read("manifest.cbor")?)?;
        if !manifest.hosts.contains_key(&self.host) {
            return Ok(self.nothing_of(manifest));
        }
        let bundle = self.parse_bundle(&manifest, &read("bundle.cbor")?)?;
        Ok(Prepared { manifest: Arc::new(manifest), bundle: Arc::new(bundle) })
    }

    /// Deletes the kept generations that are older than the newest `keep` and not among `needed`.
    pub fn prune(&self, keep: usize, needed: &[GenerationNumber]) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        let mut kept: Vec<u64> = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u64>().ok()).collect();
        kept.sort_unstable();
        let old = kept.len().saturating_sub(keep);
        for number in kept.into_iter().take(old).filter(|n| !needed.contains(&GenerationNumber(*n))) {
            // What can't be deleted now is tried again after the next activation.
            let _ = std::fs::remove_dir_all(self.folder_of(GenerationNumber(number)));
        }
    }

    fn folder_of(&self, generation: GenerationNumber) -> PathBuf {
        self.folder.join(generation.to_string())
    }

    fn open_depot(&self) -> Result<Depot, FetchError> {
        Depot::open(&self.depot).map_err(|e| self.depot_error(e))
    }

    fn depot_error(&self, source: cob_depot::DepotError) -> FetchError {
        FetchError::Depot { depot: self.depot.clone(), source }
    }

    fn parse_manifest(&self, generation: GenerationNumber, bytes: &[u8]) -> Result<Manifest, FetchError> {
        let bad = |what: String| FetchError::Bad { generation, what };
        let manifest: Manifest = codec::decode(bytes, MAX_MANIFEST).map_err(|e| bad(format!("its manifest: {e}")))?;
        if manifest.format != cob_types::generation::FORMAT {
            return Err(bad(format!("its format {} is newer than this daemon", manifest.format)));
        }
        if manifest.generation != generation {
            return Err(bad(format!("its manifest is that of generation {}", manifest.generation)));
        }
        for (host, entry) in &manifest.hosts {
            if let Some(address) = &entry.address {
                let address = parse_address(address).map_err(|e| bad(format!("host {host}: {e}")))?;
                if !address.ip().to_canonical().is_loopback() {
                    return Err(bad(format!(
                        "host {host} is at {address}, which is not a loopback address; this version has no identities, \
                         so it talks to nobody outside this machine"
                    )));
                }
            }
        }
        Ok(manifest)
    }

    fn nothing_of(&self, manifest: Manifest) -> Prepared {
        Prepared { manifest: Arc::new(manifest), bundle: Arc::new(Bundle::empty(self.host.clone())) }
    }

    fn not_in(&self, manifest: &Manifest) -> FetchError {
        let known: Vec<_> = manifest.hosts.keys().map(HostName::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        FetchError::NotIn { generation: manifest.generation, host: self.host.clone(), known }
    }

    fn parse_bundle(&self, manifest: &Manifest, bytes: &[u8]) -> Result<Bundle, FetchError> {
        let bad = |what: String| FetchError::Bad { generation: manifest.generation, what };
        let expected = manifest.hosts.get(&self.host).map(|h| h.bundle);
        if expected != Some(canonical::blob_hash(bytes)) {
            return Err(bad("its bundle is not the one that its manifest names (other hash)".to_owned()));
        }
        let bundle: Bundle = codec::decode(bytes, MAX_BUNDLE).map_err(|e| bad(format!("its bundle: {e}")))?;
        if bundle.host != self.host {
            return Err(bad(format!("its bundle is for host {}", bundle.host)));
        }
        bundle.validate().map_err(|e| bad(e.to_string()))?;
        Ok(bundle)
    }

    fn keep(&self, generation: GenerationNumber, manifest: &[u8], bundle: Option<&[u8]>) -> Result<(), FetchError> {
        let temp = self.folder.join(format!("{generation}.tmp"));
        let disk = |path: &Path| {
            let path = path.to_owned();
            move |source| FetchError::Disk { path, source }
        };
        let _ = std::fs::remove_dir_all(&temp);
        std::fs::create_dir_all(&temp).map_err(disk(&temp))?;
        durable::write_file(&temp, "manifest.cbor", 0o600, manifest, durable::Sync::Now).map_err(disk(&temp))?;
        if let Some(bundle) = bundle {
            durable::write_file(&temp, "bundle.cbor", 0o600, bundle, durable::Sync::Now).map_err(disk(&temp))?;
        }
        let folder = self.folder_of(generation);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::rename(&temp, &folder).map_err(disk(&folder))?;
        durable::sync_folder(&self.folder).map_err(disk(&self.folder))
    }
}

impl Prepared {
    /// Looks at every kind and change object with the eyes of the back ends.
    ///
    /// # Errors
    /// Every fault found, in words.
    pub fn accept(&self, kinds: &Kinds) -> Result<(), FetchError> {
        let mut faults = Vec::new();
        for kind in self.bundle.kinds.values() {
            faults.extend(kinds.accept(kind).err().map(|e| e.to_string()));
        }
        for cob in self.bundle.cobs.values() {
            if let Some(kind) = self.bundle.kinds.get(&cob.kind) {
                faults.extend(kinds.accept_cob(kind, cob).err().map(|e| e.to_string()));
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(FetchError::Bad { generation: self.manifest.generation, what: faults.join("; ") })
    }

    /// The back ends whose work dies with the daemon.
    #[must_use]
    pub fn in_process(&self, kinds: &Kinds) -> Vec<String> {
        let inside = |k: &&Kind| !kinds.durable(k).unwrap_or(true);
        self.bundle.kinds.values().filter(inside).map(|k| k.backend.clone()).collect()
    }

    /// Where every host is.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<HostName, SocketAddr> {
        let with_address = |(host, entry): (&HostName, &cob_types::generation::ManifestHost)| {
            Some((host.clone(), parse_address(entry.address.as_ref()?).ok()?))
        };
        self.manifest.hosts.iter().filter_map(with_address).collect()
    }

    /// Whether a change object is in it.
    #[must_use]
    pub fn has(&self, cob: &CobId) -> bool {
        self.bundle.cobs.contains_key(cob)
    }
}
