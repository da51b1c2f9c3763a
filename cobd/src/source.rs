//! The source of generations: the folder of a depot, or `cobgen serve`.
//!
//! It returns bytes only; `generations` verifies them, in the same way for both.

use std::path::{Path, PathBuf};

use cob_depot::{Depot, DepotError};
use cob_types::trust::Signed;
use cob_types::{GenerationNumber, HostName};

use crate::generations::FetchError;
use crate::remote::Remote;

/// A depot as `cobd.toml` names it: a folder, or a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The folder of a depot.
    Folder(PathBuf),
    /// `cobgen serve` on another machine.
    Server(Remote),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Server(remote) => write!(f, "tcp://{}", remote.server.address),
        }
    }
}

impl Source {
    /// The newest generation; absent: the depot is empty.
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn newest(&self) -> Result<Option<GenerationNumber>, FetchError> {
        match self {
            Self::Folder(folder) => in_folder(folder, Depot::latest),
            Self::Server(remote) => Ok(remote.newest()?),
        }
    }

    /// The bytes of a generation's manifest; a server may send at most `max`.
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn manifest(&self, generation: GenerationNumber, max: usize) -> Result<Vec<u8>, FetchError> {
        match self {
            Self::Folder(folder) => in_folder(folder, |depot| depot.read_manifest_bytes(generation)),
            Self::Server(remote) => Ok(remote.manifest(generation, max)?),
        }
    }

    /// The signatures over a generation's manifest.
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn signatures(&self, generation: GenerationNumber) -> Result<Vec<Signed>, FetchError> {
        match self {
            Self::Folder(folder) => in_folder(folder, |depot| depot.signatures(generation)),
            Self::Server(remote) => Ok(remote.signatures(generation)?),
        }
    }

    /// The bytes of this host's bundle.
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn bundle(&self, generation: GenerationNumber, host: &HostName) -> Result<Vec<u8>, FetchError> {
        match self {
            Self::Folder(folder) => in_folder(folder, |depot| depot.read_bundle_bytes(generation, host)),
            Self::Server(remote) => Ok(remote.bundle(generation)?),
        }
    }
}

fn in_folder<T>(folder: &Path, read: impl FnOnce(&Depot) -> Result<T, DepotError>) -> Result<T, FetchError> {
    let failed = |source| FetchError::Depot { depot: folder.to_owned(), source };
    Depot::open(folder).and_then(|depot| read(&depot)).map_err(failed)
}
