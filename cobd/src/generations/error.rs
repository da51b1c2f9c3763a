//! Errors of fetching a generation.

use std::io;
use std::path::PathBuf;

use cob_trust::Untrusted;
use cob_types::{BlobHash, GenerationNumber, HostName};

use crate::blocking::Lost;
use crate::remote::RemoteError;

/// Why a generation can't be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The depot can't be read, or lacks the generation.
    #[error("the depot {}: {source}", .depot.display())]
    Depot {
        /// The depot's folder.
        depot: PathBuf,
        /// The error of the depot.
        source: cob_depot::DepotError,
    },
    /// The server of the depot gave no answer, or refused.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The host is not in the manifest.
    #[error("generation {generation} has no host {host}; it has {known}")]
    NotIn {
        /// The generation.
        generation: GenerationNumber,
        /// This host.
        host: HostName,
        /// The hosts in it.
        known: String,
    },
    /// The trusted publishers have not signed the generation, or have signed different content.
    #[error("generation {generation} is refused: {why}")]
    Untrusted {
        /// The generation.
        generation: GenerationNumber,
        /// The error of its signatures.
        why: Untrusted,
    },
    /// A generation without identities, for a host with trusted publishers.
    #[error(
        "generation {generation} is refused: its model says `security: loopback-only`, and this host takes only signed \
         generations of hosts with identities (`trust` in cobd.toml)"
    )]
    Unprotected {
        /// The generation.
        generation: GenerationNumber,
    },
    /// A generation with identities, for a host without trusted publishers.
    #[error(
        "generation {generation} is refused: its hosts have identities, but this host does not know whose signatures \
         count; set `trust` in cobd.toml to the publishers' keys"
    )]
    NobodyTrusted {
        /// The generation.
        generation: GenerationNumber,
    },
    /// An older generation that is no signed rollback target.
    #[error(
        "generation {generation} is older than {here}, and generation {newest} does not name it as a rollback target"
    )]
    Older {
        /// The generation.
        generation: GenerationNumber,
        /// The active or pending generation.
        here: GenerationNumber,
        /// The newest generation to which this host was switched.
        newest: GenerationNumber,
    },
    /// This host knows different content under the number.
    #[error(
        "generation {generation} is refused: this host knows another generation {generation} (manifest {}) than {} \
         (manifest {})",
        .here.short(),
        if *.of_depot { "the depot" } else { "the requested generation" },
        .other.short()
    )]
    Another {
        /// The number.
        generation: GenerationNumber,
        /// The known manifest.
        here: BlobHash,
        /// The requested or offered manifest.
        other: BlobHash,
        /// Whether the depot offers it; otherwise it was requested.
        of_depot: bool,
    },
    /// The depot's content under the number is not the requested content.
    #[error(
        "generation {generation} of this host's depot {depot} (manifest {}) is not the requested generation \
         (manifest {})",
        .has.short(),
        .wanted.short()
    )]
    AnotherInDepot {
        /// The number.
        generation: GenerationNumber,
        /// The depot.
        depot: String,
        /// The depot's manifest under the number.
        has: BlobHash,
        /// The requested manifest.
        wanted: BlobHash,
    },
    /// The generation is invalid.
    #[error("generation {generation}: {what}")]
    Bad {
        /// The generation.
        generation: GenerationNumber,
        /// The error.
        what: String,
    },
    /// The empty generation before the first is requested, and no generation of this host leads to it.
    #[error("there is no generation 0: no generation of this host leads back to it")]
    NoneBefore,
    /// No thread is available to read a generation.
    #[error("no generation can be read now: the system makes no more threads")]
    NoThread,
    /// An error of this host's disk.
    #[error("{}: {source}", .path.display())]
    Disk {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl FetchError {
    /// Whether a file of this host is missing.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Disk { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// The error of a read that gave no result.
    pub(crate) fn lost(generation: GenerationNumber, lost: Lost) -> Self {
        match lost {
            Lost::NoThread => Self::NoThread,
            Lost::Panicked => Self::Bad { generation, what: "reading it failed in an unexpected way".to_owned() },
        }
    }
}
