//! What stood in files with secrets, sealed for this host alone.
//!
//! It has to be opened when the file leaves, which may be years and several keys of the host later. So the
//! store has a key of its own beside it, which stays when the host's is replaced: a copy of the first one that
//! the host had. It protects what it opens as well as another would, because whoever reads the one file of the
//! state folder reads the other, and it opens what was sealed before there was such a file.

use std::io;
use std::path::{Path, PathBuf};

use cob_files::Vault;
use cob_trust::{KeyFileError, SecretKey, seal};

use crate::identity::Keys;

/// The name of the key in the state folder.
const KEPT: &str = "files.key";

/// Seals for the store's key and for those that the host has; each of them opens. They are read when they are needed.
pub(super) struct OwnKey {
    identity: PathBuf,
    kept: PathBuf,
}

impl OwnKey {
    /// Keeps the key that the host has, if it has one and none is kept.
    pub(super) fn new(identity: &Path, state_dir: &Path) -> Self {
        let own = Self { identity: identity.to_owned(), kept: state_dir.join(KEPT) };
        // Whoever needs it is told what is wrong with it.
        let _ = own.keep();
        own
    }

    /// The key that is kept; none, when the host has no key.
    fn keep(&self) -> Result<Option<SecretKey>, KeyFileError> {
        if let Some(key) = there(SecretKey::load(&self.kept))? {
            return Ok(Some(key));
        }
        let Some(key) = there(SecretKey::load(&self.identity))? else { return Ok(None) };
        key.store(&self.kept)?;
        Ok(Some(key))
    }

    /// All keys that open.
    fn keys(&self) -> Result<Vec<SecretKey>, KeyFileError> {
        let mut keys: Vec<SecretKey> = self.keep()?.into_iter().collect();
        for key in Keys::load(&self.identity)?.all() {
            if !keys.iter().any(|k| k.public() == key.public()) {
                keys.push(key.clone());
            }
        }
        Ok(keys)
    }
}

impl Vault for OwnKey {
    fn seal(&self, content: &[u8]) -> Result<Vec<u8>, String> {
        let keys = self.keys().map_err(|e| format!("can't be kept: {e}"))?;
        if keys.is_empty() {
            return Err(format!("can't be kept: this host has no key ({})", self.identity.display()));
        }
        let keys: Vec<_> = keys.iter().map(SecretKey::public).collect();
        seal::seal(&keys, content).map_err(|e| format!("can't be kept: {e}"))
    }

    fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, String> {
        let keys = self.keys().map_err(|e| format!("can't be opened: {e}"))?;
        seal::open(&keys, sealed).map(|bytes| bytes.to_vec()).map_err(|e| format!("can't be opened: {e}"))
    }
}

/// A key that is not there is none.
fn there(loaded: Result<SecretKey, KeyFileError>) -> Result<Option<SecretKey>, KeyFileError> {
    match loaded {
        Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        loaded => loaded.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_sealed_is_opened_after_any_number_of_keys() {
        let folder = tempfile::tempdir().expect("a folder");
        let (identity, next) = (folder.path().join("identity.key"), folder.path().join("identity.next.key"));
        assert!(OwnKey::new(&identity, folder.path()).seal(b"x").expect_err("no key").contains("has no key"));
        let first = SecretKey::load_or_create(&identity).expect("made");
        // As it was sealed before there was a key of the store.
        let mut sealed = vec![seal::seal(&[first.public()], b"content").expect("sealed")];
        for _ in 0..3 {
            let own = OwnKey::new(&identity, folder.path());
            sealed.push(own.seal(b"content").expect("sealed"));
            SecretKey::load_or_create(&next).expect("made");
            sealed.push(own.seal(b"content").expect("sealed"));
            fs::rename(&next, &identity).expect("moved");
        }
        let own = OwnKey::new(&identity, folder.path());
        for sealed in &sealed {
            assert_eq!(own.open(sealed).expect("opened"), b"content");
        }
        // The store's key is lost; what was sealed for the keys that the host still has is not.
        fs::remove_file(folder.path().join(KEPT)).expect("removed");
        assert_eq!(own.open(sealed.last().expect("sealed")).expect("opened"), b"content");
        assert!(own.open(&sealed[0]).expect_err("for another").contains("for another key"));
    }
}
