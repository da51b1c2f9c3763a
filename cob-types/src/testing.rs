//! Bundles for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use thin_vec::{ThinVec, thin_vec};

use crate::canonical::blob_hash;
use crate::cob::{Cob, Fingerprint, Need, TransitionNeeds};
use crate::generation::Bundle;
use crate::id::{CobId, HostName, KindName, StateName};
use crate::kind::{Kind, KindCheck, PayloadFile, Transition};

pub(crate) fn state(text: &str) -> StateName {
    StateName::new(text).expect("a state")
}

pub(crate) fn kind(name: &str) -> Kind {
    let transition = Transition {
        from: state("down"),
        to: state("up"),
        run: None,
        timeout_ms: 1000,
        grace_ms: 1000,
        retries: 0,
        retry_delay_ms: 0,
        failure: None,
        revert: None,
        irreversible: false,
    };
    Kind {
        name: KindName::new(name).expect("a name"),
        backend: "noop".to_owned(),
        states: vec![state("down"), state("up")],
        preferred: state("up"),
        pre_remove: state("down"),
        priority: vec![state("down"), state("up")],
        check: KindCheck { run: None, timeout_ms: 1000, interval_ms: None },
        transitions: vec![transition],
        files: BTreeMap::new(),
    }
}

pub(crate) fn id(n: u8) -> CobId {
    CobId::new(&format!("h/c{n}")).expect("an id")
}

pub(crate) fn cob(n: u8, version: u8) -> Cob {
    let needs = vec![Need { cob: id(n.wrapping_add(1)), states: vec![state("up")] }];
    Cob {
        id: id(n),
        kind: KindName::new("k").expect("a name"),
        preferred: state("up"),
        content: format!("{{\"text\":\"{}\"}}", "x".repeat(usize::from(version) * 9)),
        fingerprint: Fingerprint([version; 16]),
        rests_on: (version == 2).then_some(Fingerprint([n; 16])),
        transitions: if version == 1 {
            ThinVec::new()
        } else {
            thin_vec![TransitionNeeds { from: state("down"), to: state("up"), needs }]
        },
        locks: ThinVec::new(),
        ranks: [(state("down"), u64::from(n)), (state("up"), u64::MAX)].into(),
        expects: BTreeMap::new(),
        files: (version == 3)
            .then(|| ("own".to_owned(), PayloadFile { mode: 0o644, blob: blob_hash(&[n]) }))
            .into_iter()
            .collect(),
        budget: None,
        at_most: None,
        keep: version == 3,
        observe: false,
    }
}

pub(crate) fn bundle(cobs: &[(u8, u8)]) -> Bundle {
    let mut bundle = Bundle::empty(HostName::new("h").expect("a name"));
    bundle.kinds.insert(kind("k").name, kind("k"));
    let blobs = cobs.iter().filter(|(_, version)| *version == 3);
    bundle.blobs = blobs.map(|(n, _)| (blob_hash(&[*n]), serde_bytes::ByteBuf::from([*n]))).collect();
    bundle.cobs = cobs.iter().map(|(n, version)| (id(*n), Arc::new(cob(*n, *version)))).collect();
    bundle
}

/// All texts of bytes with one changed bit, and all beginnings.
pub(crate) fn altered(bytes: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    let changed = (0..bytes.len() * 8).map(|bit| {
        let mut altered = bytes.to_vec();
        altered[bit / 8] ^= 1 << (bit % 8);
        (format!("bit {} of byte {}", bit % 8, bit / 8), altered)
    });
    changed.chain((0..bytes.len()).map(|len| (format!("the first {len} bytes"), bytes[..len].to_vec())))
}
