//! The generations that this host accepts: signed by trusted publishers, and never older, except a rollback target that
//! was signed together with the newer generation.
//!
//! Pure: `generations` fetches the bytes, and `daemon/orders` asks before each use. A generation passes [`verify`]
//! whenever its bytes come from a disk or the network, also from this host's own disk.

use cob_trust::Publishers;
use cob_types::canonical::blob_hash;
use cob_types::generation::{FORMAT, MAX_MANIFEST, RollbackTarget, Security};
use cob_types::trust::{PublicKey, Signed};
use cob_types::{BlobHash, GenerationNumber, Manifest, codec};

use crate::generations::FetchError;
use cob_types::link::parse_address;

/// The longest manifest without valid signatures that is decoded, only to choose the error: decoding takes twenty times
/// the memory of the bytes.
pub const MAX_UNPROVED: usize = 64 << 10;

/// A manifest that this host accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The decoded manifest.
    pub manifest: Manifest,
    /// Hash of its bytes.
    pub hash: BlobHash,
    /// The trusted publishers that have signed it; empty under `security: loopback-only`.
    pub signers: Vec<PublicKey>,
}

/// Verifies a manifest's bytes.
///
/// # Errors
/// [`FetchError`] with the reason of the refusal.
pub fn verify(
    trust: Option<&Publishers>,
    generation: GenerationNumber,
    bytes: &[u8],
    signatures: &[Signed],
) -> Result<Verified, FetchError> {
    let bad = |what: String| FetchError::Bad { generation, what };
    // The signatures come first: unsigned bytes are not examined any further. Only the error distinguishes a manifest
    // that needs no signatures.
    let signers = match trust.map(|trust| trust.judge(bytes, signatures)).transpose() {
        Ok(signers) => signers.unwrap_or_default(),
        Err(why) => {
            return match codec::decode::<Manifest>(bytes, MAX_UNPROVED) {
                Ok(Manifest { security: Security::LoopbackOnly, .. }) => Err(FetchError::Unprotected { generation }),
                Ok(_) | Err(_) => Err(FetchError::Untrusted { generation, why }),
            };
        }
    };
    let manifest: Manifest = codec::decode(bytes, MAX_MANIFEST).map_err(|e| bad(format!("its manifest: {e}")))?;
    if manifest.format != FORMAT {
        return Err(bad(format!("its format {} is newer than this daemon", manifest.format)));
    }
    if manifest.generation != generation {
        return Err(bad(format!("its manifest belongs to generation {}", manifest.generation)));
    }
    match (manifest.security, trust) {
        (Security::LoopbackOnly, Some(_)) => return Err(FetchError::Unprotected { generation }),
        (Security::Identities, None) => return Err(FetchError::NobodyTrusted { generation }),
        (Security::LoopbackOnly, None) | (Security::Identities, Some(_)) => {}
    }
    check_hosts(&manifest).map_err(bad)?;
    Ok(Verified { manifest, hash: blob_hash(bytes), signers })
}

/// Checks that all addresses are usable, and under `loopback-only` addresses of this machine.
fn check_hosts(manifest: &Manifest) -> Result<(), String> {
    for (host, entry) in &manifest.hosts {
        let Some(address) = &entry.address else { continue };
        let address = parse_address(address).map_err(|e| format!("host {host}: {e}"))?;
        match manifest.security {
            Security::LoopbackOnly if !address.ip().to_canonical().is_loopback() => {
                return Err(format!(
                    "host {host} is at {address}, which is not a loopback address, but the generation says `security: \
                     loopback-only`; hosts on a network need keys"
                ));
            }
            Security::Identities if entry.keys.is_empty() => {
                return Err(format!("host {host} has an address and no key, so it can't prove its identity as {host}"));
            }
            Security::LoopbackOnly | Security::Identities => {}
        }
    }
    Ok(())
}

/// The direction of an allowed switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedDirection {
    /// To a newer generation.
    Forward,
    /// To an older generation, which must have the manifest that the newest generation's publishers have signed.
    Back(RollbackTarget),
}

/// The newest generation to which this host was switched, and its rollback targets.
///
/// After a rollback, the abandoned generation is still the newest: the rollback targets of the now active generation
/// were signed for hosts that came from older generations, and would lead down step by step.
#[derive(Debug, Clone, Copy)]
pub struct Newest<'a> {
    /// Its number.
    pub generation: GenerationNumber,
    /// Its manifest; absent: there is no generation yet, or its manifest can't be read any more.
    pub manifest: Option<&'a Manifest>,
}

impl Newest<'_> {
    /// Whether this host may switch from generation `here` to `to`.
    ///
    /// # Errors
    /// [`FetchError::Older`].
    pub fn way(&self, here: GenerationNumber, to: GenerationNumber) -> Result<AllowedDirection, FetchError> {
        if to > here {
            return Ok(AllowedDirection::Forward);
        }
        let named = self.manifest.and_then(|m| m.back.iter().find(|way| way.generation == to));
        match named {
            Some(way) => Ok(AllowedDirection::Back(*way)),
            None => Err(FetchError::Older { generation: to, here, newest: self.generation }),
        }
    }
}

#[cfg(test)]
mod tests {
    use cob_trust::{SecretKey, publishers};
    use cob_types::HostName;
    use cob_types::generation::ManifestHost;

    use super::*;

    const THREE: GenerationNumber = GenerationNumber(3);

    fn manifest(security: Security, address: &str) -> Manifest {
        let mut manifest = Manifest::empty(THREE, GenerationNumber(2), security);
        let keys = if security == Security::Identities { vec![PublicKey([1; 32])] } else { Vec::new() };
        let entry = ManifestHost { address: Some(address.to_owned()), keys, bundle: BlobHash([0; 32]), cobs: 0 };
        manifest.hosts.insert(HostName::new("n1").expect("name"), entry);
        manifest
    }

    fn refused(trust: Option<&Publishers>, manifest: &Manifest, by: &[&SecretKey]) -> String {
        let bytes = codec::encode(manifest).expect("CBOR");
        let signatures: Vec<Signed> = by.iter().map(|key| publishers::sign(key, &bytes)).collect();
        verify(trust, THREE, &bytes, &signatures).expect_err("refused").to_string()
    }

    #[test]
    fn a_manifest_signed_by_trusted_publishers_is_accepted() {
        let key = SecretKey::from_seed(&[7; 32]);
        let trust = Publishers::new([key.public()], 1).expect("enough");
        let bytes = codec::encode(&manifest(Security::Identities, "tcp://192.0.2.1:7077")).expect("CBOR");
        let verified = verify(Some(&trust), THREE, &bytes, &[publishers::sign(&key, &bytes)]).expect("accepted");
        assert_eq!((verified.hash, verified.signers), (blob_hash(&bytes), vec![key.public()]));
    }

    #[test]
    fn any_other_manifest_is_refused_with_a_reason() {
        let (key, stranger) = (SecretKey::from_seed(&[7; 32]), SecretKey::from_seed(&[8; 32]));
        let trust = Publishers::new([key.public()], 1).expect("enough");
        let signed = manifest(Security::Identities, "tcp://192.0.2.1:7077");
        assert!(refused(Some(&trust), &signed, &[]).contains("generation 3 is refused: it has no signature"));
        assert!(refused(Some(&trust), &signed, &[&stranger]).contains("but this host does not trust that key"));
        assert!(refused(None, &signed, &[&key]).contains("set `trust`"));
        let open = manifest(Security::LoopbackOnly, "tcp://127.0.0.1:7077");
        // Not "sign it": a signature would not help.
        assert!(refused(Some(&trust), &open, &[]).contains("`security: loopback-only`"));
        assert!(refused(Some(&trust), &open, &[&key]).contains("`security: loopback-only`"));
        let far = manifest(Security::LoopbackOnly, "tcp://192.0.2.1:7077");
        assert!(refused(None, &far, &[]).contains("not a loopback address"));
        let mut nameless = signed.clone();
        nameless.hosts.values_mut().for_each(|host| host.keys.clear());
        assert!(refused(Some(&trust), &nameless, &[&key]).contains("no key"));
        let other = Manifest { generation: GenerationNumber(4), ..signed };
        assert!(refused(Some(&trust), &other, &[&key]).contains("belongs to generation 4"));
    }

    #[test]
    fn a_long_manifest_is_not_decoded_before_its_signatures_are_good() {
        let key = SecretKey::from_seed(&[7; 32]);
        let trust = Publishers::new([key.public()], 1).expect("enough");
        let mut long = manifest(Security::LoopbackOnly, "tcp://127.0.0.1:7077");
        let way = RollbackTarget { generation: GenerationNumber(2), manifest: BlobHash([5; 32]) };
        long.back = vec![way; MAX_UNPROVED / 32];
        // After decoding, another error would come first.
        assert!(refused(Some(&trust), &long, &[]).contains("it has no signature"));
        assert!(refused(Some(&trust), &long, &[&SecretKey::from_seed(&[8; 32])]).contains("does not trust"));
        assert!(refused(Some(&trust), &long, &[&key]).contains("`security: loopback-only`"), "it is signed");
    }

    #[test]
    fn every_altered_byte_of_a_manifest_is_detected() {
        let key = SecretKey::from_seed(&[7; 32]);
        let trust = Publishers::new([key.public()], 1).expect("enough");
        let bytes = codec::encode(&manifest(Security::Identities, "tcp://192.0.2.1:7077")).expect("CBOR");
        let signatures = [publishers::sign(&key, &bytes)];
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut altered = bytes.clone();
                altered[at] ^= 1 << bit;
                let error = verify(Some(&trust), THREE, &altered, &signatures).expect_err("altered").to_string();
                assert!(error.contains("was altered") || error.contains("loopback-only"), "byte {at}: {error}");
            }
        }
    }

    #[test]
    fn older_generations_are_reached_only_by_signed_rollback_targets() {
        let way = RollbackTarget { generation: GenerationNumber(2), manifest: BlobHash([5; 32]) };
        let manifest = Manifest { back: vec![way], ..manifest(Security::Identities, "tcp://127.0.0.1:1") };
        let newest = Newest { generation: THREE, manifest: Some(&manifest) };
        let number = GenerationNumber;
        assert_eq!(newest.way(number(3), number(4)).expect("forward"), AllowedDirection::Forward);
        assert_eq!(newest.way(number(3), number(2)).expect("back"), AllowedDirection::Back(way));
        // After the rollback: forward again, but no further down, even if generation 2 names a target.
        assert_eq!(newest.way(number(2), number(3)).expect("forward"), AllowedDirection::Forward);
        let error = newest.way(number(2), number(1)).expect_err("not named").to_string();
        assert!(error.contains("generation 1 is older than 2") && error.contains("generation 3"), "{error}");
        let none = Newest { generation: number(3), manifest: None };
        none.way(number(3), number(2)).expect_err("no generation is known");
    }
}
