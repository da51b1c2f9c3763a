//! Signatures of publishers: a ref per signature, beside the generation that it signs.
//!
//! `refs/signatures/N/KEY` (KEY: the public key in hexadecimal digits) names a blob: JSON of the key, the signature,
//! and the hash of the signed manifest. A publisher may sign a generation when it is published or at any later time;
//! the generation itself never changes. This module does not verify signatures and does not know trusted keys: the user
//! of a generation does.

use cob_types::canonical::blob_hash;
use cob_types::trust::{PublicKey, Signed};
use cob_types::{BlobHash, GenerationNumber};
use serde::{Deserialize, Serialize};

use crate::depot::{Depot, names_below};
use crate::error::{DepotError, PublishError};
use crate::lock::{ObjectsLock, PublisherLock};
use crate::publish::PATIENCE;
use crate::read::named_blob;

pub(crate) const SIGNATURES: &str = "refs/signatures/";
/// The longest signature that is read, in bytes.
const MAX_SIGNATURE: usize = 1 << 10;
/// The most signatures that are read per generation.
const MAX_SIGNATURES: usize = 256;

/// The content of the blob.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Hash of the signed manifest, in hexadecimal digits. A signature left behind by an overtaken publisher does not
    /// count for the generation that was published instead.
    manifest: String,
    #[serde(flatten)]
    signed: Signed,
}

impl Depot {
    /// The signatures over a generation's manifest, ordered by key.
    ///
    /// # Errors
    /// If the depot does not have the generation, or a signature can't be read.
    pub fn signatures(&self, number: GenerationNumber) -> Result<Vec<Signed>, DepotError> {
        let folder = format!("{SIGNATURES}{number}/");
        let names = names_below(self, &folder)?;
        if names.is_empty() {
            return self.commit(number).map(|_| Vec::new());
        }
        let manifest = hex(blob_hash(&self.read_manifest_bytes(number)?));
        let mut found = Vec::new();
        for name in names.into_iter().take(MAX_SIGNATURES) {
            let written = self.read_signature(number, &format!("{folder}{name}"), &name)?;
            if written.manifest == manifest {
                found.push(written.signed);
            }
        }
        Ok(found)
    }

    /// Adds a signature to an existing generation, or replaces the signature of the same key.
    ///
    /// # Errors
    /// If the depot does not have the generation, or can't be written.
    pub fn add_signature(&self, number: GenerationNumber, signed: &Signed) -> Result<(), PublishError> {
        let _objects = ObjectsLock::shared(&self.path, PATIENCE)?;
        let manifest = blob_hash(&self.read_manifest_bytes(number)?);
        let _lock = PublisherLock::take(&self.path, PATIENCE)?;
        self.write_signatures(number, manifest, &[*signed])
    }

    /// Writes signatures, durably. The caller holds the publisher's lock.
    pub(crate) fn write_signatures(
        &self,
        number: GenerationNumber,
        manifest: BlobHash,
        signatures: &[Signed],
    ) -> Result<(), PublishError> {
        if signatures.is_empty() {
            return Ok(());
        }
        for signed in signatures {
            let written = Written { manifest: hex(manifest), signed: *signed };
            let bytes = serde_json::to_vec(&written).expect("keys and signatures are texts");
            self.set_blob(&ref_of(number, &signed.key), &bytes, "a signature")?;
        }
        self.sync_folders(&["objects", "refs", "refs/signatures", &format!("refs/signatures/{number}")])
    }

    fn read_signature(&self, number: GenerationNumber, name: &str, key: &str) -> Result<Written, DepotError> {
        let what = format!("the signature {name}");
        let damaged = |why: &str| DepotError::damaged(number, &what, why);
        let bytes = named_blob(self, number, name, &what, MAX_SIGNATURE)?;
        let written: Written = serde_json::from_slice(&bytes).map_err(|e| damaged(&cob_types::words::form(e)))?;
        if digits(&written.signed.key.0) != key {
            return Err(damaged("it is filed under another key than its own"));
        }
        Ok(written)
    }
}

fn ref_of(number: GenerationNumber, key: &PublicKey) -> String {
    format!("{SIGNATURES}{number}/{}", digits(&key.0))
}

fn hex(hash: BlobHash) -> String {
    hash.to_string()
}

/// Lower-case digits only: ref names are file names, and some file systems ignore case.
fn digits(bytes: &[u8; 32]) -> String {
    BlobHash(*bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{publication, sketch_of};
    use crate::{Publication, Published};
    use cob_types::trust::Signature;

    fn signed(n: u8) -> Signed {
        Signed { key: PublicKey([n; 32]), signature: Signature([n; 64]) }
    }

    #[test]
    fn signatures_come_with_a_generation_and_after_it() {
        let folder = tempfile::tempdir().expect("folder");
        let depot = Depot::create_or_open(&folder.path().join("depot")).expect("made");
        let generation = sketch_of(1, &[("n1", 1)]);
        let with = Publication { signatures: &[signed(2)], ..publication(&generation, "first") };
        assert_eq!(depot.publish(&with).expect("published"), Published::New(GenerationNumber(1)));
        let one = GenerationNumber(1);
        assert_eq!(depot.signatures(one).expect("read"), [signed(2)]);
        depot.add_signature(one, &signed(1)).expect("added");
        depot.add_signature(one, &signed(1)).expect("once more is the same");
        assert_eq!(depot.signatures(one).expect("read"), [signed(1), signed(2)]);
        // Signatures do not count as generations, and a missing generation has no signatures.
        assert_eq!(depot.latest().expect("read"), Some(one));
        depot.add_signature(GenerationNumber(2), &signed(1)).expect_err("there is no such generation");
    }

    #[test]
    fn a_signature_over_another_manifest_does_not_count() {
        let folder = tempfile::tempdir().expect("folder");
        let depot = Depot::create_or_open(&folder.path().join("depot")).expect("made");
        // The state after a publisher was killed before it set the generation's ref.
        depot.write_signatures(GenerationNumber(1), BlobHash([7; 32]), &[signed(3)]).expect("written");
        let generation = sketch_of(1, &[("n1", 1)]);
        depot.publish(&publication(&generation, "first")).expect("published");
        assert_eq!(depot.signatures(GenerationNumber(1)).expect("read"), []);
    }

    #[test]
    fn a_mirror_has_the_signatures() {
        let folder = tempfile::tempdir().expect("folder");
        let depot = Depot::create_or_open(&folder.path().join("depot")).expect("made");
        let generation = sketch_of(1, &[("n1", 1)]);
        depot.publish(&Publication { signatures: &[signed(2)], ..publication(&generation, "") }).expect("published");
        let mirror = git2::Repository::init_bare(folder.path().join("mirror")).expect("made");
        let url = folder.path().join("depot").display().to_string();
        mirror.remote_anonymous(&url).expect("remote").fetch(&["+refs/*:refs/*"], None, None).expect("fetched");
        let mirror = Depot::open(&folder.path().join("mirror")).expect("a depot");
        assert_eq!(mirror.signatures(GenerationNumber(1)).expect("read"), [signed(2)]);
    }
}
