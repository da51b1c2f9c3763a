//! What stood in files with secrets, sealed with this host's own key.

use std::path::PathBuf;

use cob_files::Vault;
use cob_trust::{SecretKey, seal};

/// Seals for the key in this file; it is read when it is needed.
pub(super) struct OwnKey(pub(super) PathBuf);

impl Vault for OwnKey {
    fn seal(&self, content: &[u8]) -> Result<Vec<u8>, String> {
        let key = SecretKey::load(&self.0).map_err(|e| format!("can't be kept: {e}"))?;
        seal::seal(&[key.public()], content).map_err(|e| format!("can't be kept: {e}"))
    }

    fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, String> {
        let key = SecretKey::load(&self.0).map_err(|e| format!("can't be opened: {e}"))?;
        seal::open(&key, sealed).map(|bytes| bytes.to_vec()).map_err(|e| format!("can't be opened: {e}"))
    }
}
