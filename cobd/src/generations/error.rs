//! Why a generation can't be had.

use std::io;
use std::path::PathBuf;

use cob_trust::Untrusted;
use cob_types::{BlobHash, GenerationNumber, HostName};

use crate::blocking::Lost;
use crate::remote::RemoteError;

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
    /// The server of the depot gave no answer, or said no.
    #[error(transparent)]
    Remote(#[from] RemoteError),
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
    /// The publishers that are trusted here have not signed it, or not this.
    #[error("generation {generation} is refused: {why}")]
    Untrusted {
        /// Which.
        generation: GenerationNumber,
        /// What is wrong with its signatures.
        why: Untrusted,
    },
    /// A generation without identities, for a host that has publishers to trust.
    #[error(
        "generation {generation} is refused: its model says `security: loopback-only`, and this host takes only signed \
         generations of hosts with identities (`trust` in cobd.toml)"
    )]
    Unprotected {
        /// Which.
        generation: GenerationNumber,
    },
    /// A generation with identities, for a host that trusts nobody.
    #[error(
        "generation {generation} is refused: its hosts have identities, but this host does not know whose signatures \
         count; set `trust` in cobd.toml to the publishers' keys"
    )]
    NobodyTrusted {
        /// Which.
        generation: GenerationNumber,
    },
    /// An older one, to which no way back was signed.
    #[error(
        "generation {generation} is older than {here}, and history only grows: generation {newest} names no way back \
         to it"
    )]
    Older {
        /// Which.
        generation: GenerationNumber,
        /// The one that is active, or being switched to.
        here: GenerationNumber,
        /// The newest one that this host has been told to go to.
        newest: GenerationNumber,
    },
    /// This host knows another content under the number.
    #[error(
        "generation {generation} is refused: this host knows another generation {generation} (manifest {}) than the one {} \
         (manifest {})",
        .here.short(),
        if *.of_depot { "in the depot" } else { "that is wanted" },
        .other.short()
    )]
    Another {
        /// The number.
        generation: GenerationNumber,
        /// The manifest that this host knows under it.
        here: BlobHash,
        /// The manifest that was wanted, or offered.
        other: BlobHash,
        /// The depot offers it; else it is wanted.
        of_depot: bool,
    },
    /// The depot has another content under the number than the one that is wanted.
    #[error(
        "generation {generation} of this host's depot {depot} is another one (manifest {}) than the one that is wanted \
         (manifest {})",
        .has.short(),
        .wanted.short()
    )]
    AnotherInDepot {
        /// The number.
        generation: GenerationNumber,
        /// The depot.
        depot: String,
        /// The manifest that it has under the number.
        has: BlobHash,
        /// The manifest that is wanted.
        wanted: BlobHash,
    },
    /// It is not as it should be.
    #[error("generation {generation}: {what}")]
    Bad {
        /// Which.
        generation: GenerationNumber,
        /// What is wrong.
        what: String,
    },
    /// Nothing can be read now.
    #[error("no generation can be read now: the system makes no more threads")]
    NoThread,
    /// This host's disk.
    #[error("{}: {source}", .path.display())]
    Disk {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl FetchError {
    /// Whether a file of this host is not there.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Disk { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Why reading one has come to nothing.
    pub(crate) fn lost(generation: GenerationNumber, lost: Lost) -> Self {
        match lost {
            Lost::NoThread => Self::NoThread,
            Lost::Panicked => Self::Bad { generation, what: "reading it failed in an unexpected way".to_owned() },
        }
    }
}
