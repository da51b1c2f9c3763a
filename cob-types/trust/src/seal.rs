//! Values that one host alone can read, and ids that tell nobody anything.
//!
//! A value is encrypted with age (<https://age-encryption.org/v1>) to the X25519 form of the host's
//! ed25519 key (RFC 7748, section 4.1): a host needs no second key.

use std::str::FromStr as _;

use cob_types::secret::SecretId;
use cob_types::trust::PublicKey;
use ed25519_dalek::VerifyingKey;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::key::SecretKey;

/// The longest value that is sealed, in bytes.
pub const MAX_SECRET: usize = 1 << 20;

/// Why a value can't be sealed or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Nobody can have this key.
    #[error("{0} is not the key of anybody")]
    Key(PublicKey),
    /// Longer than [`MAX_SECRET`].
    #[error("it is {0} bytes long; secrets have at most {MAX_SECRET}")]
    TooLong(usize),
    /// The encryption failed.
    #[error("it can't be encrypted: {0}")]
    Seal(String),
    /// Sealed for others, or altered.
    #[error("it can't be decrypted: it is for another key, or was altered")]
    Open,
}

/// Encrypts for the holders of these keys; each of them can open it.
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

/// Opens what was sealed for this key.
///
/// # Errors
/// [`SealError::Open`].
pub fn open(key: &SecretKey, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let identity = identity(key).ok_or(SealError::Open)?;
    let decryptor = age::Decryptor::new(sealed).map_err(|_| SealError::Open)?;
    let reader = decryptor.decrypt(std::iter::once(&identity as &dyn age::Identity)).map_err(|_| SealError::Open)?;
    // Room at once: a vector that grows leaves copies behind.
    let mut value = Zeroizing::new(Vec::with_capacity(sealed.len().min(MAX_SECRET + 1)));
    let limit = u64::try_from(MAX_SECRET + 1).unwrap_or(u64::MAX);
    std::io::Read::read_to_end(&mut std::io::Read::take(reader, limit), &mut value).map_err(|_| SealError::Open)?;
    if value.len() > MAX_SECRET { Err(SealError::Open) } else { Ok(value) }
}

/// The id of a value under a site's key: the same value has the same id, and only who holds the key can
/// tell whether a guess is right (HMAC-SHA-256, RFC 2104, cut to 128 bits).
#[must_use]
pub fn id(site_key: &[u8; 32], value: &[u8]) -> SecretId {
    let mut mac = match Hmac::<Sha256>::new_from_slice(site_key) {
        Ok(mac) => mac,
        Err(error) => unreachable!("HMAC takes keys of every length: {error}"),
    };
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
        assert_eq!(open(&keys[0], &sealed).expect("opened").as_slice(), b"secret");
        assert_eq!(open(&keys[1], &sealed).expect("opened").as_slice(), b"secret");
        assert_eq!(open(&keys[2], &sealed), Err(SealError::Open));
        assert_eq!(seal(&[keys[0].public()], &vec![0; MAX_SECRET + 1]), Err(SealError::TooLong(MAX_SECRET + 1)));
        // The neutral element: its secret is everybody's.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(matches!(seal(&[PublicKey(neutral)], b"x"), Err(SealError::Key(_))));
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
            prop_assert_eq!(open(&key, &sealed), Err(SealError::Open));
        }
    }
}
