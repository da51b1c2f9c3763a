//! Values that a single host can read, and ids that reveal no value.
//!
//! A value is encrypted with age (<https://age-encryption.org/v1>) to the X25519 form of the host's ed25519 key (RFC
//! 7748, section 4.1): a host needs no second key.
//!
//! In a bundle a tag precedes the age file. Anyone with a host's public key can encrypt for it, so a publisher must not
//! trust age files in a depot: only the right tag, which needs the site's key, proves that the publisher itself sealed
//! the value.

use std::path::Path;
use std::str::FromStr as _;

use cob_types::secret::SecretId;
use cob_types::trust::PublicKey;
use ed25519_dalek::VerifyingKey;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::key::{KeyFileError, SecretKey};

/// The longest value that is sealed, in bytes.
pub const MAX_SECRET: usize = 1 << 20;
/// The length of a tag, in bytes.
const TAG: usize = 32;

/// The reason why a value can't be sealed or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key is not valid for encryption.
    #[error("{0} is not a usable public key")]
    Key(PublicKey),
    /// Longer than [`MAX_SECRET`].
    #[error("it is {0} bytes long; secrets have at most {MAX_SECRET}")]
    TooLong(usize),
    /// The encryption failed.
    #[error("it can't be encrypted: {0}")]
    Seal(String),
    /// Sealed for another key, or altered.
    #[error("it can't be decrypted: it is encrypted for another key, or was altered")]
    Open,
}

/// The reason why a value can't be opened with a key file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The key file.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The value.
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// Encrypts for the holders of these keys; each holder can open it.
///
/// # Errors
/// [`SealError`].
pub fn seal(keys: &[PublicKey], value: &[u8]) -> Result<Vec<u8>, SealError> {
    if value.len() > MAX_SECRET {
        return Err(SealError::TooLong(value.len()));
    }
    let recipients = keys.iter().map(recipient).collect::<Result<Vec<_>, _>>()?;
    let failed = |e: &dyn std::fmt::Display| SealError::Seal(e.to_string());
    let all = recipients.iter().map(|r| r as &dyn age::Recipient);
    let encryptor = age::Encryptor::with_recipients(all).map_err(|e| failed(&e))?;
    let mut sealed = Vec::new();
    let mut writer = encryptor.wrap_output(&mut sealed).map_err(|e| failed(&e))?;
    std::io::Write::write_all(&mut writer, value).map_err(|e| failed(&e))?;
    writer.finish().map_err(|e| failed(&e))?;
    Ok(sealed)
}

/// Opens a value that was sealed for any of these keys.
///
/// # Errors
/// [`SealError::Open`].
pub fn open(keys: &[SecretKey], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let identities = keys.iter().map(identity).collect::<Option<Vec<_>>>().ok_or(SealError::Open)?;
    let identities: Vec<&dyn age::Identity> = identities.iter().map(|i| i as &dyn age::Identity).collect();
    decrypt(age::Decryptor::new(sealed), &identities, sealed.len())
}

/// Opens an age file, armoured or plain, with a key file: an ed25519 key of COB, or the output of `age-keygen`.
///
/// # Errors
/// When the key file can't be used, or the value is for another key.
pub fn open_with_file(key: &Path, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let no_key = match SecretKey::load(key) {
        Ok(key) => return Ok(unarmoured(&[&identity(&key).ok_or(SealError::Open)?], sealed)?),
        Err(error @ KeyFileError::NoKey { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    // Its owner and mode were checked above.
    let identities = age::IdentityFile::from_file(key.display().to_string()).and_then(|file| {
        file.into_identities().map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string()))
    });
    let Ok(identities) = identities else { return Err(no_key.into()) };
    let identities: Vec<&dyn age::Identity> = identities.iter().map(|i| &**i as &dyn age::Identity).collect();
    Ok(unarmoured(&identities, sealed)?)
}

fn unarmoured(identities: &[&dyn age::Identity], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
    decrypt(age::Decryptor::new_buffered(age::armor::ArmoredReader::new(sealed)), identities, sealed.len())
}

fn decrypt<R: std::io::Read>(
    decryptor: Result<age::Decryptor<R>, age::DecryptError>,
    identities: &[&dyn age::Identity],
    length: usize,
) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let reader = decryptor.and_then(|d| d.decrypt(identities.iter().copied())).map_err(|_| SealError::Open)?;
    // Allocate at once: a vector that grows leaves copies in memory.
    let mut value = Zeroizing::new(Vec::with_capacity(length.min(MAX_SECRET + 1)));
    let limit = u64::try_from(MAX_SECRET + 1).unwrap_or(u64::MAX);
    std::io::Read::read_to_end(&mut std::io::Read::take(reader, limit), &mut value).map_err(|_| SealError::Open)?;
    if value.len() > MAX_SECRET { Err(SealError::Open) } else { Ok(value) }
}

/// [`seal`] for a bundle, with a tag by which the holder of the site's key recognises it.
///
/// # Errors
/// [`SealError`].
pub fn seal_for_bundle(
    site_key: &[u8; 32],
    keys: &[PublicKey],
    id: SecretId,
    value: &[u8],
) -> Result<Vec<u8>, SealError> {
    let sealed = seal(keys, value)?;
    let mut whole = tag(site_key, keys, id, &sealed).to_vec();
    whole.extend(sealed);
    Ok(whole)
}

/// Whether this was sealed under this site's key, for these hosts' keys, as the secret with this id.
#[must_use]
pub fn is_ours(site_key: &[u8; 32], keys: &[PublicKey], id: SecretId, sealed: &[u8]) -> bool {
    // The tag only decides whether work is done again, so its comparison need not be constant-time.
    sealed.split_at_checked(TAG).is_some_and(|(found, rest)| *found == tag(site_key, keys, id, rest))
}

/// Opens the output of [`seal_for_bundle`].
///
/// # Errors
/// [`SealError::Open`].
pub fn open_from_bundle(keys: &[SecretKey], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
    open(keys, sealed.get(TAG..).ok_or(SealError::Open)?)
}

fn tag(site_key: &[u8; 32], keys: &[PublicKey], id: SecretId, sealed: &[u8]) -> [u8; TAG] {
    let mut mac = mac(site_key);
    mac.update(b"COB sealed 1\0");
    mac.update(&(keys.len() as u64).to_be_bytes());
    keys.iter().for_each(|key| mac.update(&key.0));
    mac.update(&id.0);
    mac.update(sealed);
    mac.finalize().into_bytes().into()
}

fn mac(site_key: &[u8; 32]) -> Hmac<Sha256> {
    match Hmac::<Sha256>::new_from_slice(site_key) {
        Ok(mac) => mac,
        Err(error) => unreachable!("HMAC takes keys of every length: {error}"),
    }
}

/// The id of a value under a site's key: the same value has the same id, and only the holder of the key can check a
/// guess (HMAC-SHA-256, RFC 2104, cut to 128 bits).
#[must_use]
pub fn id(site_key: &[u8; 32], value: &[u8]) -> SecretId {
    let mut mac = mac(site_key);
    mac.update(b"COB secret 1\0");
    mac.update(value);
    let full: [u8; 32] = mac.finalize().into_bytes().into();
    SecretId(std::array::from_fn(|n| full[n]))
}

fn recipient(key: &PublicKey) -> Result<age::x25519::Recipient, SealError> {
    let no_key = || SealError::Key(*key);
    let point = VerifyingKey::from_bytes(&key.0).map_err(|_| no_key())?;
    if point.is_weak() {
        return Err(no_key());
    }
    let hrp = bech32::Hrp::parse("age").map_err(|_| no_key())?;
    let text = bech32::encode::<bech32::Bech32>(hrp, point.to_montgomery().as_bytes()).map_err(|_| no_key())?;
    age::x25519::Recipient::from_str(&text).map_err(|_| no_key())
}

fn identity(key: &SecretKey) -> Option<age::x25519::Identity> {
    let hrp = bech32::Hrp::parse("age-secret-key-").ok()?;
    let text = Zeroizing::new(bech32::encode_upper::<bech32::Bech32>(hrp, key.scalar().as_ref()).ok()?);
    age::x25519::Identity::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_holders_of_the_keys_read_it() {
        let keys: Vec<SecretKey> = (1..=3).map(|n| SecretKey::from_seed(&[n; 32])).collect();
        let sealed = seal(&[keys[0].public(), keys[1].public()], b"secret").expect("sealed");
        assert_eq!(open(&keys[..1], &sealed).expect("opened").as_slice(), b"secret");
        assert_eq!(open(&keys[1..2], &sealed).expect("opened").as_slice(), b"secret");
        assert_eq!(open(&keys[1..], &sealed).expect("by one of them").as_slice(), b"secret");
        assert_eq!(open(&keys[2..], &sealed), Err(SealError::Open));
        assert_eq!(open(&[], &sealed), Err(SealError::Open));
        assert_eq!(seal(&[keys[0].public()], &vec![0; MAX_SECRET + 1]), Err(SealError::TooLong(MAX_SECRET + 1)));
        // The neutral element: its shared secret is known to all.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(matches!(seal(&[PublicKey(neutral)], b"x"), Err(SealError::Key(_))));
    }

    #[test]
    fn a_bundle_s_value_is_known_again_by_its_publisher_alone() {
        let (key, other) = ([SecretKey::from_seed(&[1; 32])], SecretKey::from_seed(&[2; 32]));
        let (site, keys, id) = ([5; 32], [key[0].public()], SecretId([6; 16]));
        let sealed = seal_for_bundle(&site, &keys, id, b"secret").expect("sealed");
        assert_eq!(open_from_bundle(&key, &sealed).expect("opened").as_slice(), b"secret");
        assert!(is_ours(&site, &keys, id, &sealed));
        assert!(!is_ours(&[4; 32], &keys, id, &sealed));
        assert!(!is_ours(&site, &[other.public()], id, &sealed));
        assert!(!is_ours(&site, &keys, SecretId([7; 16]), &sealed));
        // An age file that an attacker has encrypted for this host.
        let planted = [&sealed[..TAG], &seal(&keys, b"planted").expect("sealed")].concat();
        assert!(!is_ours(&site, &keys, id, &planted) && !is_ours(&site, &keys, id, b"short"));
        assert_eq!(open_from_bundle(&key, b"short"), Err(SealError::Open));
    }

    #[test]
    fn a_key_file_opens_what_age_has_written() {
        let dir = tempfile::tempdir().expect("a folder");
        let written = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
            path
        };
        let own = age::x25519::Identity::generate();
        let armoured = age::encrypt_and_armor(&own.to_public(), b"value").expect("encrypted");
        let text = age::secrecy::ExposeSecret::expose_secret(&own.to_string()).to_owned();
        let path = written("age.key", &format!("# created by age-keygen\n{text}\n"));
        assert_eq!(open_with_file(&path, armoured.as_bytes()).expect("opened").as_slice(), b"value");
        let key = SecretKey::from_seed(&[3; 32]);
        let path = dir.path().join("key");
        key.store(&path).expect("stored");
        let sealed = seal(&[key.public()], b"value").expect("sealed");
        assert_eq!(open_with_file(&path, &sealed).expect("opened").as_slice(), b"value");
        let error = open_with_file(&path, armoured.as_bytes()).expect_err("for another key").to_string();
        assert!(error.contains("can't be decrypted"), "{error}");
        let error = open_with_file(&written("text", "no key"), &sealed).expect_err("no key").to_string();
        assert!(error.contains("holds no ed25519 key"), "{error}");
    }

    #[test]
    fn an_id_depends_on_value_and_key() {
        assert_eq!(id(&[1; 32], b"a"), id(&[1; 32], b"a"));
        assert_ne!(id(&[1; 32], b"a"), id(&[1; 32], b"b"));
        assert_ne!(id(&[1; 32], b"a"), id(&[2; 32], b"a"));
    }

    proptest! {
        #[test]
        fn altered_or_foreign_bytes_never_open(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let key = SecretKey::from_seed(&[9; 32]);
            let mut sealed = seal(&[key.public()], b"a secret").expect("sealed");
            let at = at.index(sealed.len());
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(open(&[key], &sealed), Err(SealError::Open));
        }
    }
}
