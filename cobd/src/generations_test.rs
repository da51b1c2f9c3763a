//! Kept generations: what is refused, what is noticed, and that nothing changes meanwhile.

use std::fs;

use cob_depot::{Author, Depot, Publication};
use cob_trust::{SecretKey, publishers};
use cob_types::generation::{ManifestHost, Security};
use cob_types::{Generation, StateName};

use super::*;

const ONE: GenerationNumber = GenerationNumber(1);

/// A depot with one generation, and the state folder of its host n1.
struct Fixture {
    dir: tempfile::TempDir,
    key: SecretKey,
    generation: Generation,
}

impl Fixture {
    fn new(security: Security, sign: bool) -> Self {
        let host = HostName::new("n1").expect("name");
        let mut bundle = Bundle::empty(host.clone());
        let on = StateName::new("on").expect("name");
        let kind = Kind {
            name: cob_types::KindName::new("gate").expect("name"),
            backend: "noop".to_owned(),
            states: vec![on.clone()],
            preferred: on.clone(),
            pre_remove: on.clone(),
            priority: vec![on],
            check: cob_types::kind::Check { run: None, timeout_ms: 1000, interval_ms: None },
            transitions: Vec::new(),
            files: BTreeMap::new(),
        };
        bundle.kinds.insert(kind.name.clone(), kind);
        let hash = canonical::blob_hash(&codec::encode(&bundle).expect("CBOR"));
        let mut manifest = Manifest::empty(ONE, GenerationNumber(0), security);
        let keys = if security == Security::Identities { vec![PublicKey([1; 32])] } else { Vec::new() };
        let entry = ManifestHost { address: Some("tcp://127.0.0.1:7077".to_owned()), keys, bundle: hash, cobs: 0 };
        manifest.hosts.insert(host.clone(), entry);
        let generation = Generation { manifest, bundles: [(host, bundle)].into() };
        let key = SecretKey::from_seed(&[7; 32]);
        let dir = tempfile::tempdir().expect("folder");
        let depot = Depot::create_or_open(&dir.path().join("depot")).expect("made");
        let signed = publishers::sign(&key, &codec::encode(&generation.manifest).expect("CBOR"));
        let publication = Publication {
            generation: &generation,
            model: &BTreeMap::new(),
            provenance: b"",
            message: "",
            author: &Author { name: "Ann".to_owned(), email: "ann@example.org".to_owned() },
            time: 0,
            signatures: if sign { std::slice::from_ref(&signed) } else { &[] },
        };
        depot.publish(&publication).expect("published");
        Self { dir, key, generation }
    }

    fn generations(&self, host: &str, trusting: &[&SecretKey]) -> Generations {
        let trust = Publishers::new(trusting.iter().map(|key| key.public()), 1).ok();
        let host = HostName::new(host).expect("name");
        let depot = crate::source::Source::Folder(self.dir.path().join("depot"));
        Generations::new(&self.dir.path().join("state"), &depot, &host, trust)
    }

    fn kept(&self) -> PathBuf {
        self.dir.path().join("state/generations/1")
    }
}

#[test]
fn a_signed_generation_is_kept_with_its_signatures_and_judged_at_each_load() {
    let fixture = Fixture::new(Security::Identities, true);
    let generations = fixture.generations("n1", &[&fixture.key]);
    let prepared = generations.fetch(ONE, false).expect("accepted");
    assert_eq!(
        (&*prepared.manifest, &prepared.signers[..]),
        (&fixture.generation.manifest, &[fixture.key.public()][..])
    );
    fs::remove_dir_all(fixture.dir.path().join("depot")).expect("gone");
    assert_eq!(generations.load(ONE).expect("needs no depot").bundle, prepared.bundle);
    // A host that trusts somebody else by now does not believe its own disk.
    let other = fixture.generations("n1", &[&SecretKey::from_seed(&[8; 32])]);
    assert!(matches!(other.load(ONE), Err(FetchError::Untrusted { .. })));
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let unsigned = Fixture::new(Security::Identities, false);
    let open = Fixture::new(Security::LoopbackOnly, true);
    let signed = Fixture::new(Security::Identities, true);
    let key = &unsigned.key;
    let cases = [
        (&unsigned, "n1", vec![key], "nobody has signed it"),
        (&signed, "n1", vec![], "set `trust` in cobd.toml"),
        (&open, "n1", vec![key], "`security: loopback-only`"),
        (&signed, "n9", vec![key], "has no host n9; it has n1"),
    ];
    for (fixture, host, trusting, word) in cases {
        let error = fixture.generations(host, &trusting).fetch(ONE, false).expect_err(word).to_string();
        assert!(error.contains(word), "{error}");
        assert!(!fixture.dir.path().join("state").exists(), "{word}");
    }
    // Later somebody signs, and nothing else needs to be done.
    let depot = Depot::open(&unsigned.dir.path().join("depot")).expect("opened");
    let bytes = depot.read_manifest_bytes(ONE).expect("read");
    depot.add_signature(ONE, &publishers::sign(key, &bytes)).expect("added");
    unsigned.generations("n1", &[key]).fetch(ONE, false).expect("accepted");
}

#[test]
fn every_altered_byte_of_a_kept_generation_is_named() {
    for security in [Security::Identities, Security::LoopbackOnly] {
        let fixture = Fixture::new(security, true);
        let trusting = if security == Security::Identities { vec![&fixture.key] } else { Vec::new() };
        let generations = fixture.generations("n1", &trusting);
        generations.fetch(ONE, false).expect("accepted");
        for name in [MANIFEST, SIGNATURES, BUNDLE] {
            let path = fixture.kept().join(name);
            let bytes = fs::read(&path).expect("read");
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut altered = bytes.clone();
                    altered[at] ^= 1 << bit;
                    fs::write(&path, &altered).expect("written");
                    let Err(error) = generations.load(ONE) else {
                        panic!("{security:?}: {name}: bit {bit} of byte {at} makes no difference");
                    };
                    assert!(error.to_string().contains("generation 1"), "{name}: byte {at}: {error}");
                }
            }
            // The depot has an unharmed copy.
            generations.fetch(ONE, false).expect("fetched again");
            assert_eq!(fs::read(&path).expect("read"), bytes, "{name} is whole again");
        }
    }
}

#[test]
fn the_note_of_a_return_is_whole_or_named() {
    let fixture = Fixture::new(Security::Identities, true);
    let generations = fixture.generations("n1", &[&fixture.key]);
    assert_eq!(generations.returned_from().expect("read"), None);
    generations.fetch(ONE, false).expect("accepted");
    generations.note_return(GenerationNumber(12)).expect("noted");
    assert_eq!(generations.returned_from().expect("read"), Some(GenerationNumber(12)));
    let path = fixture.dir.path().join("state/generations/returned");
    let bytes = fs::read(&path).expect("read");
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1;
        fs::write(&path, &altered).expect("written");
        let error = generations.returned_from().expect_err("altered").to_string();
        assert!(error.contains("returned"), "byte {at}: {error}");
    }
}

#[test]
fn two_may_fetch_the_same_generation_at_the_same_time() {
    let fixture = Fixture::new(Security::Identities, true);
    let generations = fixture.generations("n1", &[&fixture.key]);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| generations.fetch(ONE, false).map(|p| p.hash))).collect();
        let hashes: Vec<_> = all.into_iter().map(|t| t.join().expect("no panic").expect("fetched")).collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]));
    });
    generations.load(ONE).expect("it is whole");
}
