//! Secret keys and their files.
//!
//! A key file is PKCS#8 in PEM (RFC 8410), readable by its owner alone. `openssl genpkey -algorithm ed25519` writes
//! this format.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cob_types::trust::{PublicKey, Signature};
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _};
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

/// The name of the server's key file in the depot's folder.
pub const SERVER_KEY: &str = "server.key";
/// The longest key file that is read, in bytes.
const MAX_FILE: u64 = 16 << 10;

/// An ed25519 secret key. Erased from memory on drop, never shown.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

/// The purpose of a signature. A signature for a purpose is not valid for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A generation's manifest, and with it all data whose hash it contains.
    Generation,
    /// The request of a new host with its key.
    Enrolment,
}

/// The error for a key file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// A system call failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users may read or change it.
    #[error("other users may read or change {} (mode {mode:03o}): run `chmod 600` on it, and make a new key if \
        others could read it", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to another user.
    #[error("{} belongs to user {owner}, not to the user that runs this program", .path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// The user's number.
        owner: u32,
    },
    /// It does not contain an ed25519 key.
    #[error("{} holds no ed25519 key in PEM (PKCS#8); `openssl genpkey -algorithm ed25519` makes a key", .path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
}

impl SecretKey {
    /// Generates a new key.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn generate() -> io::Result<Self> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(seed.as_mut()).map_err(io::Error::other)?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// The key of a seed: for tests and derived keys.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs bytes for a purpose.
    #[must_use]
    pub fn sign(&self, purpose: Purpose, bytes: &[u8]) -> Signature {
        Signature(self.0.sign(&in_context(purpose, bytes)).to_bytes())
    }

    /// Reads a key file, if only its owner can.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn load(path: &Path) -> Result<Self, KeyFileError> {
        let io = |source| KeyFileError::Io { path: path.to_owned(), source };
        let file = fs::File::open(path).map_err(io)?;
        let found = file.metadata().map_err(io)?;
        let mode = found.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Open { path: path.to_owned(), mode });
        }
        let me = rustix::process::geteuid().as_raw();
        if found.uid() != me && found.uid() != 0 {
            return Err(KeyFileError::Owner { path: path.to_owned(), owner: found.uid() });
        }
        let no_key = || KeyFileError::NoKey { path: path.to_owned() };
        if !found.is_file() || found.len() > MAX_FILE {
            return Err(no_key());
        }
        let mut text = Zeroizing::new(String::new());
        io::Read::read_to_string(&mut io::Read::take(file, MAX_FILE), &mut text).map_err(|_| no_key())?;
        SigningKey::from_pkcs8_pem(&text).map(Self).map_err(|_| no_key())
    }

    /// Writes a new key file with mode 0600. An existing file is never overwritten.
    ///
    /// # Errors
    /// [`KeyFileError::Io`]; `AlreadyExists` when the file exists.
    pub fn store(&self, path: &Path) -> Result<(), KeyFileError> {
        let io = |source| KeyFileError::Io { path: path.to_owned(), source };
        let text = self.0.to_pkcs8_pem(LineEnding::LF).map_err(|e| io(io::Error::other(e.to_string())))?;
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        if let Err(source) = written {
            // A partial key file would be worse than a missing file.
            let _ = fs::remove_file(path);
            return Err(io(source));
        }
        let folder = path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
        fs::File::open(folder).and_then(|f| f.sync_all()).map_err(io)
    }

    /// The key of a depot's server: read, or made at the first call.
    ///
    /// # Errors
    /// When an existing file can't be used, or the file can't be made.
    pub fn of_server(depot: &Path, file: Option<&Path>) -> Result<Self, KeyFileError> {
        Self::load_or_create(&file.map_or_else(|| depot.join(SERVER_KEY), Path::to_owned))
    }

    /// Reads a key file, or creates it with a new key.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFileError> {
        match Self::load(path) {
            Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        let key = Self::generate().map_err(|source| KeyFileError::Io { path: path.to_owned(), source })?;
        match key.store(path) {
            // Another process has created it meanwhile.
            Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            stored => stored.map(|()| key),
        }
    }

    pub(crate) fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    pub(crate) fn scalar(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_scalar_bytes())
    }
}

/// Verifies a signature of this key over these bytes.
#[must_use]
pub fn verify(key: &PublicKey, purpose: Purpose, bytes: &[u8], signature: &Signature) -> bool {
    let Ok(key) = VerifyingKey::from_bytes(&key.0) else { return false };
    key.verify_strict(&in_context(purpose, bytes), &ed25519_dalek::Signature::from_bytes(&signature.0)).is_ok()
}

/// The signed bytes: the purpose, a zero byte, the data.
fn in_context(purpose: Purpose, bytes: &[u8]) -> Vec<u8> {
    let context: &[u8] = match purpose {
        Purpose::Generation => b"COB generation 1\0",
        Purpose::Enrolment => b"COB enrolment 1\0",
    };
    [context, bytes].concat()
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKey").field(&self.public()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_file_must_be_private_to_its_owner() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("key");
        let key = SecretKey::load_or_create(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        assert_eq!(SecretKey::load_or_create(&path).expect("read").public(), key.public());
        let error = key.store(&path).expect_err("never overwritten").to_string();
        assert!(error.contains("exists"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
        assert!(SecretKey::load(&path).expect_err("open to others").to_string().contains("mode 640"));
    }

    #[test]
    fn a_key_file_of_openssl_is_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("key");
        // RFC 8410, section 10.3.
        let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut f| f.write_all(pem.as_bytes()))
            .expect("written");
        let key = SecretKey::load(&path).expect("read");
        assert_eq!(key.public().to_string(), "ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE");
        fs::write(&path, "no key").expect("written");
        assert!(SecretKey::load(&path).expect_err("no key").to_string().contains("holds no ed25519 key"));
    }

    #[test]
    fn a_signature_is_valid_for_one_purpose_and_text() {
        let key = SecretKey::from_seed(&[7; 32]);
        let signature = key.sign(Purpose::Generation, b"text");
        assert!(verify(&key.public(), Purpose::Generation, b"text", &signature));
        assert!(!verify(&key.public(), Purpose::Enrolment, b"text", &signature));
        assert!(!verify(&key.public(), Purpose::Generation, b"texT", &signature));
        assert!(!verify(&PublicKey([0xFF; 32]), Purpose::Generation, b"text", &signature));
        assert_eq!(format!("{key:?}"), format!("SecretKey({})", key.public()));
    }
}
