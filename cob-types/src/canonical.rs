//! Canonical JSON and its hashes.
//!
//! Same content, same bytes, same hash: keys sorted, no spaces, numbers as `serde_json` prints them.

use sha2::{Digest, Sha256};

use crate::cob::Fingerprint;
use crate::id::BlobHash;

/// The canonical text of a JSON value.
#[must_use]
pub fn json(value: &serde_json::Value) -> String {
    // `serde_json::Map` is a BTreeMap unless a crate enables `preserve_order`; the test below would fail.
    value.to_string()
}

/// SHA-256 of some bytes.
#[must_use]
pub fn blob_hash(bytes: &[u8]) -> BlobHash {
    BlobHash(Sha256::digest(bytes).into())
}

/// A fingerprint over parts. Each part's length is hashed too, so that parts can't run together.
#[must_use]
pub fn fingerprint(parts: &[&[u8]]) -> Fingerprint {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let full: [u8; 32] = hash.finalize().into();
    let mut short = [0; 16];
    short.copy_from_slice(&full[..16]);
    Fingerprint(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_sorts_its_keys() {
        let value = serde_json::from_str(r#"{"b": [1, 2.50], "a": {"z": null, "y": "ü\n"}}"#).expect("JSON");
        assert_eq!(json(&value), r#"{"a":{"y":"ü\n","z":null},"b":[1,2.5]}"#);
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"a", b"bc"]));
    }
}
