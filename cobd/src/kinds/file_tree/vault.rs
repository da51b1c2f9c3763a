//! Seals the original content of files with secrets for this host alone.
//!
//! The content must be readable when the file is removed, perhaps years and several host keys later. Therefore the
//! store has its own key beside it: a copy of the host's first key, which stays when the host's key is replaced. The
//! copy is as safe as a separate key, because a reader of one file of the state folder can read the other. It also
//! opens content that was sealed before the copy existed.

use std::io;
use std::path::{Path, PathBuf};

use cob_files::Vault;
use cob_trust::{KeyFileError, SecretKey, seal};

use crate::identity::Keys;

/// The name of the store's key file in the state folder.
const KEPT: &str = "files.key";

/// Seals for the store's key and all present keys of the host; each of them opens. The keys are read on use.
pub(super) struct OwnKey {
    identity: PathBuf,
    kept: PathBuf,
}

impl OwnKey {
    /// Copies the host's key as the store's key, unless there is a copy or the host has no key.
    pub(super) fn new(identity: &Path, state_dir: &Path) -> Self {
        let own = Self { identity: identity.to_owned(), kept: state_dir.join(KEPT) };
        // The first use reports an error.
        let _ = own.keep();
        own
    }

    /// The store's key. `None`: the host has no key.
    fn keep(&self) -> Result<Option<SecretKey>, KeyFileError> {
        if let Some(key) = there(SecretKey::load(&self.kept))? {
            return Ok(Some(key));
        }
        let Some(key) = there(SecretKey::load(&self.identity))? else { return Ok(None) };
        key.store(&self.kept)?;
        Ok(Some(key))
    }

    /// All keys that can open sealed content.
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

/// Maps a missing key file to `None`.
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
    fn sealed_content_opens_after_any_number_of_key_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let (identity, next) = (folder.path().join("identity.key"), folder.path().join("identity.next.key"));
        assert!(OwnKey::new(&identity, folder.path()).seal(b"x").expect_err("no key").contains("has no key"));
        let first = SecretKey::load_or_create(&identity).expect("made");
        // Sealed before the store had a key.
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
        // Without the store's key, content that was sealed for the present host keys still opens.
        fs::remove_file(folder.path().join(KEPT)).expect("removed");
        assert_eq!(own.open(sealed.last().expect("sealed")).expect("opened"), b"content");
        assert!(own.open(&sealed[0]).expect_err("for another").contains("for another key"));
    }
}
