//! The depot: a bare git repository that stores generations.
//!
//! `cobgen` publishes into it, daemons and `cobctl` read from it; any git client can mirror, log and diff it. Each
//! generation is a commit on `main`, with its own ref `refs/generations/N`:
//!
//! ```text
//! manifest.cbor         what all hosts share
//! bundles/HOST.cbor     one host's part
//! model/…               the data model as given
//! provenance.json       where everything comes from
//! ```
//!
//! `refs/signatures/N/KEY` are the publishers' signatures over manifests, and `enrolled.json` beside git's own files
//! has the keys of enrolled hosts. `refs/outcomes` records the outcomes of switches, a commit each.
//!
//! Order of publishing: first the objects, durably; then `refs/generations/N`, which never moves and makes the
//! generation visible to all readers at once; then `main`, which only follows and is repaired if it lags. If two
//! publishers race, the first wins and the other gets an error. Reading writes nothing, and checks every length before
//! it reads and every bundle against the hash in the manifest.

mod depot;
pub mod enrolled;
mod error;
pub mod fsck;
pub mod input;
mod integrity;
mod leftovers;
mod lock;
mod lost;
pub mod model_files;
mod named;
mod objects;
mod outcomes;
pub mod pack;
pub mod pins;
pub mod prune;
mod publish;
mod reach;
mod read;
mod signatures;
pub mod tokens;

#[cfg(test)]
mod damage_test;
#[cfg(test)]
mod testing;

pub use depot::{Counts, Depot, LogEntry};
pub use error::{DepotError, PublishError};
pub use named::GenerationName;
pub use outcomes::Outcomes;
pub use publish::{Author, Publication, Published, stands_for};
pub use read::PROVENANCE_FORMAT;
