//! Kept generations: refusal, detection of changes, and reuse.

use std::fs;

use cob_depot::{Author, Depot, Publication};
use cob_trust::{SecretKey, publishers};
use cob_types::generation::{ManifestHost, Security};
use cob_types::{Bundle, Cob, Generation, StateName};

use super::*;

const ONE: GenerationNumber = GenerationNumber(1);

/// A depot with a single generation, and the state folder of its host n1.
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
            check: cob_types::kind::KindCheck { run: None, timeout_ms: 1000, interval_ms: None },
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
        let dir = tempfile::tempdir().expect("folder");
        let fixture = Self { dir, key: SecretKey::from_seed(&[7; 32]), generation };
        fixture.publish_as_it_is(sign);
        fixture
    }

    fn publish_as_it_is(&self, sign: bool) {
        let depot = Depot::create_or_open(&self.dir.path().join("depot")).expect("made");
        let signed = publishers::sign(&self.key, &codec::encode(&self.generation.manifest).expect("CBOR"));
        let publication = Publication {
            generation: &self.generation,
            model: &BTreeMap::new(),
            provenance: b"",
            message: "",
            author: &Author { name: "Ann".to_owned(), email: "ann@example.org".to_owned() },
            time: 0,
            signatures: if sign { std::slice::from_ref(&signed) } else { &[] },
        };
        depot.publish(&publication).expect("published");
    }

    /// Publishes the next generation: the present generation with a change.
    fn publish(&mut self, number: u64, change: impl FnOnce(&mut Bundle)) {
        let Generation { manifest, bundles } = &mut self.generation;
        let mut of_host = bundles.first_entry().expect("one host");
        change(of_host.get_mut());
        let entry = manifest.hosts.get_mut(of_host.key()).expect("of the same host");
        entry.bundle = canonical::blob_hash(&codec::encode(of_host.get()).expect("CBOR"));
        entry.cobs = of_host.get().cobs.len() as u64;
        manifest.cobs = entry.cobs;
        // Each generation differs in this value, even if this host's bundle is the same.
        manifest.policy.guard_ms = Some(number);
        (manifest.generation, manifest.parent) = (GenerationNumber(number), GenerationNumber(number - 1));
        self.publish_as_it_is(false);
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

fn gate(id: &CobId) -> Cob {
    let on = StateName::new("on").expect("name");
    Cob {
        id: id.clone(),
        kind: cob_types::KindName::new("gate").expect("name"),
        preferred: on.clone(),
        content: String::new(),
        fingerprint: canonical::fingerprint(&[id.as_str().as_bytes()]),
        rests_on: None,
        transitions: Default::default(),
        locks: Default::default(),
        ranks: [(on, 1)].into(),
        expects: [].into(),
        files: BTreeMap::new(),
        budget: None,
        at_most: None,
        keep: false,
        observe: false,
    }
}

#[test]
fn a_signed_generation_is_kept_with_its_signatures_and_judged_at_each_load() {
    let fixture = Fixture::new(Security::Identities, true);
    let generations = fixture.generations("n1", &[&fixture.key]);
    let prepared = generations.fetch(ONE, false, None).expect("accepted");
    assert_eq!(
        (&*prepared.manifest, &prepared.signers[..]),
        (&fixture.generation.manifest, &[fixture.key.public()][..])
    );
    fs::remove_dir_all(fixture.dir.path().join("depot")).expect("gone");
    assert_eq!(generations.load(ONE, None).expect("needs no depot").bundle.whole(), prepared.bundle.whole());
    // A host with a different trusted publisher does not accept its own kept generations.
    let other = fixture.generations("n1", &[&SecretKey::from_seed(&[8; 32])]);
    assert!(matches!(other.load(ONE, None), Err(FetchError::Untrusted { .. })));
}

/// Only the differing parts of the next generation's bundle are read; an equal bundle is not read at all.
#[test]
fn unchanged_parts_of_a_bundle_are_taken_over() {
    let mut fixture = Fixture::new(Security::LoopbackOnly, false);
    let generations = fixture.generations("n1", &[]);
    let one = generations.fetch(ONE, false, None).expect("accepted");
    fixture.publish(2, |_| {});
    let two = generations.fetch(GenerationNumber(2), false, Some(&one)).expect("accepted");
    assert!(Arc::ptr_eq(&one.bundle, &two.bundle));
    let [a, b] = ["n1/a", "n1/b"].map(|id| CobId::new(id).expect("an id"));
    fixture.publish(3, |bundle| {
        for id in [&a, &b] {
            bundle.cobs.insert(id.clone(), Arc::new(gate(id)));
        }
    });
    let three = generations.fetch(GenerationNumber(3), false, Some(&two)).expect("accepted");
    fixture.publish(4, |bundle| Arc::make_mut(bundle.cobs.get_mut(&a).expect("there")).content = "{}".to_owned());
    let four = generations.fetch(GenerationNumber(4), false, Some(&three)).expect("accepted");
    assert_eq!(four.bundle.whole(), fixture.generation.bundles[four.bundle.host()]);
    let differing = |x: &Prepared, y: &Prepared| x.bundle.differences(&y.bundle).map(|d| d.id).collect::<Vec<_>>();
    assert_eq!((differing(&three, &two), differing(&four, &three)), (vec![a.clone(), b], vec![a]));
    // The same on a rollback, from kept generations alone.
    fs::remove_dir_all(fixture.dir.path().join("depot")).expect("gone");
    let back = generations.fetch(GenerationNumber(3), false, Some(&four)).expect("it is kept");
    assert_eq!(back.bundle.whole(), three.bundle.whole());
    // Every kept generation is complete, regardless of the bundle from which parts were taken over.
    for number in 1..=4 {
        generations.load(GenerationNumber(number), None).expect("it is whole");
    }
}

#[test]
fn a_refused_generation_leaves_no_files_behind() {
    let unsigned = Fixture::new(Security::Identities, false);
    let open = Fixture::new(Security::LoopbackOnly, true);
    let signed = Fixture::new(Security::Identities, true);
    let key = &unsigned.key;
    let cases = [
        (&unsigned, "n1", vec![key], "it has no signature"),
        (&signed, "n1", vec![], "set `trust` in cobd.toml"),
        (&open, "n1", vec![key], "`security: loopback-only`"),
        (&signed, "n9", vec![key], "has no host n9; it has n1"),
    ];
    for (fixture, host, trusting, word) in cases {
        let error = fixture.generations(host, &trusting).fetch(ONE, false, None).expect_err(word).to_string();
        assert!(error.contains(word), "{error}");
        assert!(!fixture.dir.path().join("state").exists(), "{word}");
    }
    // Later a publisher signs, and no other step is necessary.
    let depot = Depot::open(&unsigned.dir.path().join("depot")).expect("opened");
    let bytes = depot.read_manifest_bytes(ONE).expect("read");
    depot.add_signature(ONE, &publishers::sign(key, &bytes)).expect("added");
    unsigned.generations("n1", &[key]).fetch(ONE, false, None).expect("accepted");
}

#[test]
fn every_altered_byte_of_a_kept_generation_is_named() {
    for security in [Security::Identities, Security::LoopbackOnly] {
        let fixture = Fixture::new(security, true);
        let trusting = if security == Security::Identities { vec![&fixture.key] } else { Vec::new() };
        let generations = fixture.generations("n1", &trusting);
        generations.fetch(ONE, false, None).expect("accepted");
        for name in [MANIFEST, SIGNATURES, BUNDLE] {
            let path = fixture.kept().join(name);
            let bytes = fs::read(&path).expect("read");
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut altered = bytes.clone();
                    altered[at] ^= 1 << bit;
                    fs::write(&path, &altered).expect("written");
                    let Err(error) = generations.load(ONE, None) else {
                        panic!("{security:?}: {name}: bit {bit} of byte {at} makes no difference");
                    };
                    assert!(error.to_string().contains("generation 1"), "{name}: byte {at}: {error}");
                }
            }
            // The depot has an undamaged copy.
            generations.fetch(ONE, false, None).expect("fetched again");
            assert_eq!(fs::read(&path).expect("read"), bytes, "{name} is whole again");
        }
    }
}

#[test]
fn the_note_of_a_rollback_is_whole_or_its_damage_is_named() {
    let fixture = Fixture::new(Security::Identities, true);
    let generations = fixture.generations("n1", &[&fixture.key]);
    assert_eq!(generations.returned_from().expect("read"), None);
    generations.fetch(ONE, false, None).expect("accepted");
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
fn two_threads_may_fetch_the_same_generation_at_the_same_time() {
    let fixture = Fixture::new(Security::Identities, true);
    let generations = fixture.generations("n1", &[&fixture.key]);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| generations.fetch(ONE, false, None).map(|p| p.hash))).collect();
        let hashes: Vec<_> = all.into_iter().map(|t| t.join().expect("no panic").expect("fetched")).collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]));
    });
    generations.load(ONE, None).expect("it is whole");
}

#[test]
fn the_empty_generation_is_available_only_after_a_generation_keeps_it() {
    let fixture = Fixture::new(Security::LoopbackOnly, false);
    let generations = fixture.generations("n1", &[]);
    assert!(matches!(generations.fetch(NOTHING, false, None), Err(FetchError::NoneBefore)));
    generations.fetch(ONE, false, None).expect("it is in the depot");
    generations.keep_nothing(ONE).expect("kept");
    generations.fetch(NOTHING, false, None).expect("it is kept");
}
