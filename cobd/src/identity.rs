//! This host's own keys: where they are kept, and which key is shown.
//!
//! A host has a single key, or two while a new key replaces the old: `identity.key` and beside it `identity.next.key`.
//! It shows the newest key that the present generations name for it.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use cob_trust::tls::{Identity, TlsError};
use cob_trust::{KeyFileError, SecretKey};
use cob_types::generation::Security;
use cob_types::{HostName, Manifest, PublicKey};

/// The keys of this host, the newest first.
#[derive(Debug, Clone, Default)]
pub struct Keys(Vec<SecretKey>);

/// Why a host can't take part in a model with identities.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A key file is unusable.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// There is no key file.
    #[error(
        "it has identities, and this host has no key: make a key with `cobd init` (its place is {}), put the public key \
         that it prints into the model as the key of host {host}, and make the generation again", .path.display()
    )]
    None {
        /// The path where the key belongs.
        path: PathBuf,
        /// This host.
        host: HostName,
    },
    /// The generation does not name the key.
    #[error(
        "it names {named} as the key of host {host}; this host has {own}: put that into the model, or the right key file into place"
    )]
    NotNamed {
        /// This host.
        host: HostName,
        /// The keys of the host in the manifest.
        named: String,
        /// The keys of the host.
        own: String,
    },
    /// All keys of the host are revoked.
    #[error("it revokes the key {own} of host {host}: make another with `cobd init --next` and put it into the model")]
    Revoked {
        /// This host.
        host: HostName,
        /// The revoked key.
        own: String,
    },
    /// The certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The path of the key that will replace the key in this file.
#[must_use]
pub fn next_file(identity: &Path) -> PathBuf {
    identity.with_extension("next.key")
}

/// The result of [`init`].
#[derive(Debug)]
pub struct Made {
    /// The key file.
    pub path: PathBuf,
    /// Its public half.
    pub public: PublicKey,
    /// Whether the key is new.
    pub new: bool,
}

/// Makes this host's key, or the key that will replace it. An existing file is left as it is.
///
/// # Errors
/// [`IdentityError`] if the key can't be made, or an existing key is unusable.
pub fn init(identity: &Path, next: bool) -> Result<Made, IdentityError> {
    if next {
        // Without a first key there is no key to replace.
        SecretKey::load(identity)?;
    }
    let path = if next { next_file(identity) } else { identity.to_owned() };
    let new = !path.exists();
    if let Some(folder) = path.parent().filter(|f| *f != Path::new("") && !f.exists()) {
        let io = |source| KeyFileError::Io { path: folder.to_owned(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
    }
    let public = SecretKey::load_or_create(&path)?.public();
    Ok(Made { path, public, new })
}

impl Keys {
    /// Reads the existing key files.
    ///
    /// # Errors
    /// [`KeyFileError`] for an unusable file.
    pub fn load(identity: &Path) -> Result<Self, KeyFileError> {
        let mut keys = Vec::new();
        for path in [next_file(identity), identity.to_owned()] {
            match SecretKey::load(&path) {
                Ok(key) => keys.push(key),
                Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(keys))
    }

    /// All keys, the newest first.
    #[must_use]
    pub fn all(&self) -> &[SecretKey] {
        &self.0
    }

    /// The public keys, for people.
    #[must_use]
    pub fn named(&self) -> String {
        list(self.0.iter().map(SecretKey::public))
    }

    /// The key to show under these manifests: the newest that all manifests name for this host, else the newest that
    /// any manifest names. Revoked keys are never shown.
    #[must_use]
    pub fn to_show<'a>(&'a self, host: &HostName, manifests: &[&Manifest]) -> Option<&'a SecretKey> {
        let with_identities = || manifests.iter().filter(|m| m.security == Security::Identities);
        let named = |key: &PublicKey, m: &Manifest| m.hosts.get(host).is_some_and(|h| h.keys.contains(key));
        let usable = || self.0.iter().filter(|k| !manifests.iter().any(|m| m.revoked.contains(&k.public())));
        let by_all = |k: &&SecretKey| {
            let public = k.public();
            with_identities().next().is_some() && with_identities().all(|m| named(&public, m))
        };
        usable().find(by_all).or_else(|| usable().find(|k| with_identities().any(|m| named(&k.public(), m))))
    }
}

/// Checks whether this host's key lets it take part in a generation.
///
/// # Errors
/// [`IdentityError`] in words for people.
pub fn check(manifest: &Manifest, host: &HostName, identity: &Path) -> Result<(), IdentityError> {
    let Some(entry) = manifest.hosts.get(host).filter(|_| manifest.security == Security::Identities) else {
        return Ok(());
    };
    let keys = Keys::load(identity)?;
    if let Some(key) = keys.to_show(host, &[manifest]) {
        // The host can only take part if the certificate can be made.
        Identity::new(key)?;
        return Ok(());
    }
    let host = host.clone();
    let own = keys.named();
    Err(if keys.all().is_empty() {
        IdentityError::None { path: identity.to_owned(), host }
    } else if keys.all().iter().any(|k| manifest.revoked.contains(&k.public())) {
        IdentityError::Revoked { host, own }
    } else {
        let named = if entry.keys.is_empty() { "no key".to_owned() } else { list(entry.keys.iter().copied()) };
        IdentityError::NotNamed { host, named, own }
    })
}

fn list(keys: impl Iterator<Item = PublicKey>) -> String {
    let keys: BTreeSet<String> = keys.map(|k| k.to_string()).collect();
    keys.into_iter().collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use cob_types::generation::ManifestHost;
    use cob_types::{BlobHash, GenerationNumber};

    use super::*;

    fn manifest(keys: &[&SecretKey], revoked: &[&SecretKey]) -> Manifest {
        let mut manifest = Manifest::empty(GenerationNumber(7), GenerationNumber(6), Security::Identities);
        let keys = keys.iter().map(|k| k.public()).collect();
        let entry = ManifestHost { address: None, keys, bundle: BlobHash([0; 32]), cobs: 0 };
        manifest.hosts.insert(me(), entry);
        manifest.revoked = revoked.iter().map(|k| k.public()).collect();
        manifest
    }

    fn me() -> HostName {
        HostName::new("n1").expect("a name")
    }

    #[test]
    fn a_new_key_is_used_when_all_known_generations_name_it() {
        let (old, new) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let keys = Keys(vec![new.clone(), old.clone()]);
        let (before, both, after) = (manifest(&[&old], &[]), manifest(&[&old, &new], &[]), manifest(&[&new], &[&old]));
        let shown = |manifests: &[&Manifest]| keys.to_show(&me(), manifests).map(SecretKey::public);
        assert_eq!(shown(&[&before]), Some(old.public()));
        assert_eq!(shown(&[&before, &both]), Some(old.public()));
        assert_eq!(shown(&[&both]), Some(new.public()));
        assert_eq!(shown(&[&both, &after]), Some(new.public()));
        assert_eq!(shown(&[&before, &after]), Some(new.public()), "the old key is revoked");
        assert_eq!(shown(&[&manifest(&[], &[])]), None);
        assert_eq!(shown(&[]), None);
    }

    #[test]
    fn a_key_is_made_once_and_then_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state/identity.key");
        assert!(init(&path, true).expect_err("no first").to_string().contains("identity.key"));
        let made = init(&path, false).expect("made");
        let again = init(&path, false).expect("found");
        assert_eq!((made.new, again.new, made.public), (true, false, again.public));
        let next = init(&path, true).expect("made");
        assert!(next.new && next.public != made.public);
        let keys = Keys::load(&path).expect("loads");
        assert_eq!(keys.all().iter().map(SecretKey::public).collect::<Vec<_>>(), [next.public, made.public]);
    }

    #[test]
    fn a_host_without_a_valid_key_gets_an_instruction() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("identity.key");
        let other = SecretKey::from_seed(&[9; 32]);
        let told = |manifest: &Manifest| check(manifest, &me(), &path).expect_err("refused").to_string();
        assert!(told(&manifest(&[&other], &[])).contains("make a key with `cobd init`"));
        let own = SecretKey::load_or_create(&path).expect("made");
        assert!(told(&manifest(&[&other], &[])).contains(&format!("this host has {}", own.public())));
        assert!(told(&manifest(&[], &[])).contains("it names no key"));
        assert!(told(&manifest(&[&own], &[&own])).contains("revokes the key"));
        check(&manifest(&[&own, &other], &[]), &me(), &path).expect("in order");
        let next = SecretKey::generate().expect("made");
        next.store(&next_file(&path)).expect("stored");
        check(&manifest(&[&next], &[&own]), &me(), &path).expect("in order");
        assert_eq!(next_file(&path), folder.path().join("identity.next.key"));
    }
}
