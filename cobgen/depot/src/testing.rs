//! Small generations for tests; a version number per host makes them differ.

use std::collections::BTreeMap;

use cob_types::canonical::blob_hash;
use cob_types::generation::{ManifestHost, Security};
use cob_types::kind::KindCheck;
use cob_types::{Bundle, Generation, GenerationNumber, HostName, Kind, KindName, Manifest, StateName, codec};

use crate::publish::{Author, Publication};

/// Generation `number` with its predecessor as parent; each host has one kind with the given version.
pub(crate) fn sketch_of(number: u64, hosts: &[(&str, u64)]) -> Generation {
    let parent = GenerationNumber(number - 1);
    let mut manifest = Manifest::empty(GenerationNumber(number), parent, Security::LoopbackOnly);
    let mut bundles = BTreeMap::new();
    for (host, version) in hosts {
        let host = HostName::new(host).expect("name");
        let mut bundle = Bundle::empty(host.clone());
        let kind = kind(*version);
        bundle.kinds.insert(kind.name.clone(), kind);
        let hash = blob_hash(&codec::encode(&bundle).expect("CBOR"));
        manifest.hosts.insert(host.clone(), ManifestHost { address: None, keys: Vec::new(), bundle: hash, cobs: 0 });
        bundles.insert(host, bundle);
    }
    Generation { manifest, bundles }
}

fn kind(version: u64) -> Kind {
    let on = StateName::new("on").expect("name");
    Kind {
        name: KindName::new("gate").expect("name"),
        backend: "noop".to_owned(),
        states: vec![on.clone()],
        preferred: on.clone(),
        pre_remove: on.clone(),
        priority: vec![on],
        check: KindCheck { run: None, timeout_ms: version, interval_ms: None },
        transitions: Vec::new(),
        files: BTreeMap::new(),
    }
}

pub(crate) fn publication<'a>(generation: &'a Generation, message: &'a str) -> Publication<'a> {
    static NO_MODEL: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    static ANN: std::sync::LazyLock<Author> =
        std::sync::LazyLock::new(|| Author { name: "Ann".to_owned(), email: "ann@example.org".to_owned() });
    Publication {
        generation,
        model: &NO_MODEL,
        provenance: b"",
        message,
        author: &ANN,
        time: 1_700_000_000,
        signatures: &[],
    }
}
