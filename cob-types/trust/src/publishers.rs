//! The publishers whose signatures a host requires of a generation.

use std::collections::BTreeSet;

use cob_types::trust::{PublicKey, Signed};
use cob_types::words::count;

use crate::key::{Purpose, SecretKey, verify};

/// The most signatures that are verified.
const MAX_SIGNATURES: usize = 64;

/// The publishers that a host trusts, and how many of their signatures it requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publishers {
    keys: BTreeSet<PublicKey>,
    threshold: usize,
}

/// The reason why a generation is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It has no signatures.
    #[error("it has no signature; a publisher signs it with `cobgen sign`")]
    Unsigned,
    /// No signature is by a trusted publisher.
    #[error("it is signed by {}, but this host does not trust that key (`trust` in cobd.toml)", names(.0))]
    Strangers(Vec<PublicKey>),
    /// A signature of a trusted publisher does not match these bytes.
    #[error("the signature of {0} does not match this generation: the signature or the generation was altered")]
    Altered(PublicKey),
    /// It has too few signatures.
    #[error(
        "it has {}, but {wanted} are required; another publisher signs with `cobgen sign`",
        count(.signed.to_owned(), "trusted signature")
    )]
    TooFew {
        /// The number of trusted publishers that have signed.
        signed: usize,
        /// The required number.
        wanted: usize,
    },
}

/// The error for a threshold that is larger than the number of publishers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} publishers must sign, but only {known} are trusted: no generation could ever be accepted")]
pub struct NeverEnough {
    wanted: usize,
    known: usize,
}

impl Publishers {
    /// Trusts these publishers and requires `threshold` signatures, at least one.
    ///
    /// # Errors
    /// [`NeverEnough`] when there are fewer publishers than the threshold.
    pub fn new(keys: impl IntoIterator<Item = PublicKey>, threshold: usize) -> Result<Self, NeverEnough> {
        let keys: BTreeSet<PublicKey> = keys.into_iter().collect();
        let threshold = threshold.max(1);
        if keys.len() < threshold {
            return Err(NeverEnough { wanted: threshold, known: keys.len() });
        }
        Ok(Self { keys, threshold })
    }

    /// The trusted publishers.
    #[must_use]
    pub fn keys(&self) -> &BTreeSet<PublicKey> {
        &self.keys
    }

    /// How many must sign.
    #[must_use]
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// Whether these signatures could suffice, judging by their keys: a cheap check before a manifest is fetched.
    ///
    /// # Errors
    /// [`Untrusted`], as [`Self::judge`] would return it for any manifest with these signatures.
    pub fn could_be_enough(&self, signatures: &[Signed]) -> Result<(), Untrusted> {
        let trusted: BTreeSet<PublicKey> =
            signatures.iter().map(|s| s.key).filter(|key| self.keys.contains(key)).collect();
        if trusted.len() >= self.threshold { Ok(()) } else { Err(self.not_enough(trusted.len(), signatures)) }
    }

    fn not_enough(&self, signed: usize, signatures: &[Signed]) -> Untrusted {
        if signatures.is_empty() {
            return Untrusted::Unsigned;
        }
        if signed == 0 {
            let strangers: BTreeSet<PublicKey> = signatures.iter().map(|s| s.key).collect();
            return Untrusted::Strangers(strangers.into_iter().collect());
        }
        Untrusted::TooFew { signed, wanted: self.threshold }
    }

    /// Checks a manifest's signatures; returns the trusted publishers that have signed it.
    ///
    /// # Errors
    /// [`Untrusted`].
    pub fn judge(&self, manifest: &[u8], signatures: &[Signed]) -> Result<Vec<PublicKey>, Untrusted> {
        let mut good = BTreeSet::new();
        let mut altered = None;
        for Signed { key, signature } in signatures.iter().filter(|s| self.keys.contains(&s.key)).take(MAX_SIGNATURES) {
            if verify(key, Purpose::Generation, manifest, signature) {
                good.insert(*key);
            } else {
                altered = Some(*key);
            }
        }
        if good.len() >= self.threshold {
            return Ok(good.into_iter().collect());
        }
        if let Some(key) = altered {
            return Err(Untrusted::Altered(key));
        }
        Err(self.not_enough(good.len(), signatures))
    }
}

/// Signs a manifest's bytes as a publisher.
#[must_use]
pub fn sign(key: &SecretKey, manifest: &[u8]) -> Signed {
    Signed { key: key.public(), signature: key.sign(Purpose::Generation, manifest) }
}

fn names(keys: &[PublicKey]) -> String {
    let shown: Vec<String> = keys.iter().take(3).map(ToString::to_string).collect();
    let more = keys.len().saturating_sub(shown.len());
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_of_n_trusted_publishers_must_sign_these_very_bytes() {
        let keys: Vec<SecretKey> = (1..=4).map(|n| SecretKey::from_seed(&[n; 32])).collect();
        let trusted = Publishers::new(keys[..3].iter().map(SecretKey::public), 2).expect("enough");
        let signed = |n: usize| sign(&keys[n], b"manifest");
        assert_eq!(trusted.judge(b"manifest", &[]), Err(Untrusted::Unsigned));
        assert_eq!(trusted.judge(b"manifest", &[signed(3)]), Err(Untrusted::Strangers(vec![keys[3].public()])));
        assert_eq!(trusted.could_be_enough(&[signed(0), signed(3)]), Err(Untrusted::TooFew { signed: 1, wanted: 2 }));
        assert_eq!(trusted.could_be_enough(&[signed(0), signed(1)]), Ok(()));
        assert_eq!(trusted.could_be_enough(&[]), Err(Untrusted::Unsigned));
        let too_few = Err(Untrusted::TooFew { signed: 1, wanted: 2 });
        assert_eq!(trusted.judge(b"manifest", &[signed(0), signed(3)]), too_few);
        // Two signatures of a publisher count as one.
        assert_eq!(trusted.judge(b"manifest", &[signed(0), signed(0)]), too_few);
        assert_eq!(trusted.judge(b"manifest", &[signed(0), signed(2)]).map(|s| s.len()), Ok(2));
        assert_eq!(trusted.judge(b"manifesT", &[signed(0), signed(2)]), Err(Untrusted::Altered(keys[2].public())));
        assert_eq!(Publishers::new([keys[0].public()], 2), Err(NeverEnough { wanted: 2, known: 1 }));
    }
}
