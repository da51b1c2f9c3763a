//! The depot: where generations are kept, a bare git repository.
//!
//! `cobgen` publishes into it, daemons and `cobctl` read from it; any git client can mirror, log and
//! diff it. One commit a generation on `main`, and a ref `refs/generations/N` on each:
//!
//! ```text
//! manifest.cbor         what all hosts share
//! bundles/HOST.cbor     one host's part
//! model/…               the data model as given
//! provenance.json       where everything comes from
//! ```
//!
//! `refs/signatures/N/KEY` are the publishers' signatures over manifests, and `enrolled.json` beside git's
//! own files has the keys of hosts that have enrolled. `refs/outcomes` is what came of switches, one commit each.
//!
//! Rules: objects first, durably; then `refs/generations/N`, which is never moved and makes the
//! generation exist, for everybody at once; then `main`, which only follows and is set right when it
//! does not. Of two publishers one is first, the other is told so. Reading writes nothing, checks
//! every length before it reads and every bundle against the hash in the manifest.

mod depot;
pub mod enrolled;
mod error;
pub mod fsck;
mod integrity;
mod leftovers;
mod lock;
mod lost;
mod named;
mod objects;
mod outcomes;
mod pack;
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
