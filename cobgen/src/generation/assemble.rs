//! Assembles a generation from a draft: a bundle per host, and the manifest over the bundles.
//!
//! Every host of the model gets a bundle, even if it is empty. A bundle carries only the kinds and file contents that
//! its own change objects use. It contains no generation number, so the bundle of an unchanged host keeps its bytes and
//! its hash.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::generation::{MAX_BUNDLE, MAX_MANIFEST, ManifestHost};
use cob_types::groups::Groups;
use cob_types::kind::PayloadFile;
use cob_types::{Askers, Bundle, Cob, CobId, Generation, GenerationNumber, HostName, Kind, KindName, Manifest};
use cob_types::{canonical, codec};
use rayon::prelude::*;

use super::fault::{Fault, Refusal};
use super::fingerprint::{Prints, fingerprints};
use super::merge::merge;
use super::ranks::set_ranks;
use crate::draft::{At, Draft, DraftCob, Place};
use crate::provenance::{Origin, Provenance};

/// A generation with its provenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// The generation to publish.
    pub generation: Generation,
    /// Places and words, for messages and `cobgen show`.
    pub provenance: Provenance,
}

/// Makes a generation from a draft.
///
/// Dependencies on missing change objects are kept: the check reports these with places.
///
/// # Errors
/// [`Refusal`] with all faults that prevent a generation.
pub fn assemble(mut draft: Draft, number: GenerationNumber, parent: GenerationNumber) -> Result<Assembled, Refusal> {
    let mut faults = Vec::new();
    check_blobs(&draft, &mut faults);
    let prints = fingerprints(&draft, &mut faults);
    let mut provenance = Provenance {
        hosts: places(&draft.hosts),
        kinds: places(&draft.kinds),
        cobs: BTreeMap::new(),
        secrets: draft.secrets.iter().map(|(id, secret)| (*id, secret.value.name.clone())).collect(),
    };
    let by_host = by_host(std::mem::take(&mut draft.cobs));
    let made: Vec<MadeHost> = by_host.into_par_iter().map(|cobs| make_cobs(&draft, cobs, &prints)).collect();
    let mut cobs = Vec::with_capacity(made.len());
    let mut origins = Vec::with_capacity(made.len());
    for made in made {
        cobs.push(made.cobs);
        origins.push(made.origins);
        faults.extend(made.faults);
    }
    provenance.cobs = origins.into_iter().flatten().collect();
    if !faults.is_empty() {
        return Err(Refusal { faults });
    }
    let kinds: BTreeMap<&KindName, &Kind> = draft.kinds.iter().map(|(name, kind)| (name, &kind.value)).collect();
    set_ranks(&kinds, &mut cobs);
    let count = cobs.iter().map(Vec::len).sum::<usize>() as u64;
    let mut bundles = cut(&draft, cobs);
    Askers::fill(&mut bundles);
    let hosts = manifest_hosts(&draft, &bundles, &mut faults);
    let manifest = Manifest {
        groups: Groups::new(hosts.keys(), &draft.labels, &draft.clusters),
        hosts,
        cobs: count,
        revoked: draft.revoked.clone(),
        operators: draft.operators.clone(),
        policy: draft.policy,
        timetable: draft.timetable.clone(),
        ..Manifest::empty(number, parent, draft.security)
    };
    match codec::encode(&manifest) {
        Ok(bytes) if bytes.len() > MAX_MANIFEST => faults.push(Fault::ManifestTooLarge { len: bytes.len() }),
        Ok(_) => {}
        Err(error) => faults.push(Fault::Encoding { what: "the manifest".to_owned(), reason: error.to_string() }),
    }
    if !faults.is_empty() {
        return Err(Refusal { faults });
    }
    Ok(Assembled { generation: Generation { manifest, bundles }, provenance })
}

fn places<K: Clone + Ord, T>(named: &BTreeMap<K, At<T>>) -> BTreeMap<K, Place> {
    named.iter().map(|(name, at)| (name.clone(), at.place.clone())).collect()
}

fn check_blobs(draft: &Draft, faults: &mut Vec<Fault>) {
    for (hash, bytes) in &draft.blobs {
        if canonical::blob_hash(bytes) != *hash {
            faults.push(Fault::WrongBlob { blob: *hash });
        }
    }
    let mut look = |owner: String, files: &BTreeMap<String, PayloadFile>, place: &Place| {
        for (file, payload) in files.iter().filter(|(_, payload)| !draft.blobs.contains_key(&payload.blob)) {
            let (owner, file, place) = (owner.clone(), file.clone(), place.clone());
            faults.push(Fault::MissingBlob { owner, file, blob: payload.blob, place });
        }
    };
    for (name, kind) in &draft.kinds {
        look(format!("the kind {name}"), &kind.value.files, &kind.place);
    }
    for (id, cob) in &draft.cobs {
        look(id.to_string(), &cob.value.files, &cob.place);
    }
}

/// Groups change objects by host, like the bundles, in the order of ids.
fn by_host(cobs: BTreeMap<CobId, At<DraftCob>>) -> Vec<Vec<(CobId, At<DraftCob>)>> {
    let mut hosts: Vec<Vec<(CobId, At<DraftCob>)>> = Vec::new();
    for (id, cob) in cobs {
        match hosts.last_mut() {
            Some(host) if host[0].0.host_str() == id.host_str() => host.push((id, cob)),
            _ => hosts.push(vec![(id, cob)]),
        }
    }
    hosts
}

/// The results for a host's change objects.
#[derive(Default)]
struct MadeHost {
    /// Without ranks, and without faulty change objects.
    cobs: Vec<(CobId, Cob)>,
    origins: Vec<(CobId, Origin)>,
    faults: Vec<Fault>,
}

fn make_cobs(draft: &Draft, cobs: Vec<(CobId, At<DraftCob>)>, prints: &HashMap<CobId, Prints>) -> MadeHost {
    let mut made =
        MadeHost { cobs: Vec::with_capacity(cobs.len()), origins: Vec::with_capacity(cobs.len()), faults: Vec::new() };
    for (id, cob) in cobs {
        let (cob, origin) = make_cob(draft, &id, cob, prints, &mut made.faults);
        made.cobs.extend(cob.map(|cob| (id.clone(), cob)));
        made.origins.push((id, origin));
    }
    made
}

fn make_cob(
    draft: &Draft,
    id: &CobId,
    cob: At<DraftCob>,
    prints: &HashMap<CobId, Prints>,
    faults: &mut Vec<Fault>,
) -> (Option<Cob>, Origin) {
    let At { value, place } = cob;
    if !draft.hosts.contains_key(id.host_str()) {
        faults.push(Fault::UnknownHost { cob: id.clone(), host: id.host(), place: place.clone() });
    }
    if !draft.kinds.contains_key(&value.kind) {
        faults.push(Fault::UnknownKind { cob: id.clone(), kind: value.kind.clone(), place: place.clone() });
    }
    let merged = merge(id, value.arrows, faults);
    let origin = Origin { place, restarts_on: value.restarts_on, arrows: merged.arrows };
    let Some(print) = prints.get(id) else { return (None, origin) };
    let named = merged.transitions.iter().flat_map(|t| &t.needs).chain(merged.locks.iter().flat_map(|l| &l.needs));
    let expects: BTreeMap<CobId, Fingerprint> =
        named.filter_map(|need| prints.get(&need.cob).map(|print| (need.cob.clone(), print.own))).collect();
    let cob = Cob {
        id: id.clone(),
        kind: value.kind,
        preferred: value.preferred,
        content: canonical::json(&value.content),
        fingerprint: print.own,
        rests_on: print.rests_on,
        transitions: merged.transitions.into(),
        locks: merged.locks.into(),
        ranks: BTreeMap::new(),
        expects,
        budget: value.budget.map(|budget| Box::new(budget.value)),
        at_most: value.at_most,
        keep: value.keep,
        observe: value.observe,
        files: value.files,
    };
    (Some(cob), origin)
}

/// Makes a bundle per host, with its change objects and their kinds and contents.
fn cut(draft: &Draft, cobs: Vec<Vec<(CobId, Cob)>>) -> BTreeMap<HostName, Bundle> {
    let filled: Vec<Bundle> = cobs.into_par_iter().map(|cobs| bundle(draft, cobs)).collect();
    let mut bundles: BTreeMap<HostName, Bundle> =
        draft.hosts.keys().map(|host| (host.clone(), Bundle::empty(host.clone()))).collect();
    for bundle in filled {
        bundles.insert(bundle.host.clone(), bundle);
    }
    bundles
}

fn bundle(draft: &Draft, cobs: Vec<(CobId, Cob)>) -> Bundle {
    let mut bundle = Bundle::empty(cobs[0].0.host());
    for (_, cob) in &cobs {
        let kind = &draft.kinds[&cob.kind].value;
        for payload in kind.files.values().chain(cob.files.values()) {
            if let Some(bytes) = draft.blobs.get(&payload.blob) {
                bundle.blobs.entry(payload.blob).or_insert_with(|| bytes.clone().into());
            }
        }
        for secret in cob_types::secret::marks(&cob.content) {
            // Empty before the secrets' values are read: enough to show the generation, not for a host.
            let sealed = draft.sealed.get(&bundle.host).and_then(|sealed| sealed.get(&secret)).cloned();
            bundle.secrets.entry(secret).or_insert_with(|| sealed.unwrap_or_default().into());
        }
        bundle.kinds.entry(cob.kind.clone()).or_insert_with(|| kind.clone());
    }
    // Collect all at once: a map filled entry by entry in order is half empty.
    Bundle { cobs: cobs.into_iter().map(|(id, cob)| (id, Arc::new(cob))).collect(), ..bundle }
}

fn manifest_hosts(
    draft: &Draft,
    bundles: &BTreeMap<HostName, Bundle>,
    faults: &mut Vec<Fault>,
) -> BTreeMap<HostName, ManifestHost> {
    let measured: Vec<(&HostName, _, _)> = bundles
        .par_iter()
        .map_init(Vec::new, |buffer, (name, bundle)| {
            let encoded = codec::encode_into(bundle, buffer);
            (name, bundle.check_room(), encoded.map(|()| (buffer.len(), canonical::blob_hash(buffer))))
        })
        .collect();
    let mut hosts = BTreeMap::new();
    for (name, room, encoded) in measured {
        let At { value: host, place } = &draft.hosts[name];
        let (len, hash) = match encoded {
            Ok(encoded) => encoded,
            Err(error) => {
                let what = format!("the bundle of {name}");
                faults.push(Fault::Encoding { what, reason: error.to_string() });
                continue;
            }
        };
        if let Err(many) = room {
            faults.push(Fault::TooManyAskers { host: name.clone(), many, place: place.clone() });
        }
        if len > MAX_BUNDLE {
            faults.push(Fault::BundleTooLarge { host: name.clone(), len, place: place.clone() });
        }
        let entry = ManifestHost {
            address: host.address.clone(),
            keys: host.keys.clone(),
            bundle: hash,
            cobs: bundles[name].cobs.len() as u64,
        };
        hosts.insert(name.clone(), entry);
    }
    hosts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Sketch, random};

    fn bytes(assembled: &Assembled) -> Vec<Vec<u8>> {
        let generation = &assembled.generation;
        let mut all: Vec<Vec<u8>> = generation.bundles.values().map(|b| codec::encode(b).expect("CBOR")).collect();
        all.push(codec::encode(&generation.manifest).expect("CBOR"));
        all
    }

    #[test]
    fn a_bundle_contains_only_the_objects_of_its_host() {
        let mut sketch = Sketch::new();
        sketch.host("empty").kind("other", &["off", "on"], &["off>on", "on>off"]);
        sketch.cob("n1/a", "up").cob_of("other", "n2/b", "on");
        sketch.file("n1/a", "a.conf", b"for a").file("n2/b", "b.conf", b"for b");
        let generation = sketch.assembled().generation;
        let seen: Vec<String> = generation
            .bundles
            .iter()
            .map(|(host, bundle)| {
                bundle.validate().expect("valid");
                let blobs: Vec<_> = bundle.blobs.values().map(|b| String::from_utf8_lossy(b)).collect();
                format!("{host}: {:?} {:?} {blobs:?}", bundle.kinds.keys(), bundle.cobs.keys())
            })
            .collect();
        assert_eq!(seen, [r#"empty: [] [] []"#, r#"n1: [simple] [n1/a] ["for a"]"#, r#"n2: [other] [n2/b] ["for b"]"#]);
        assert_eq!(generation.manifest.cobs, 2);
    }

    #[test]
    fn expects_names_only_the_dependencies() {
        let mut sketch = Sketch::new();
        sketch.cob("n/a", "up").cob("n/b", "up").cob("n/c", "up").requires("n/a", "n/b");
        let generation = sketch.assembled().generation;
        let cobs = &generation.bundles.values().next().expect("one host").cobs;
        let expected = [(cobs["n/b"].id.clone(), cobs["n/b"].fingerprint)].into();
        assert_eq!(cobs["n/a"].expects, expected);
        assert!(cobs["n/c"].expects.is_empty());
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let mut sketch = Sketch::new();
        sketch.cob("n/a", "up").cob("n/b", "up").cob_of("missing", "n/c", "up");
        sketch.file("n/a", "x", b"lost");
        sketch.draft.blobs.clear();
        sketch.draft.hosts.clear();
        let refusal = sketch.assemble().expect_err("faults");
        insta::assert_snapshot!(refusal, @r#"
        model.yaml:3:5: the content of the file x of n/a is missing (it should have the hash 76f75e6129fe30135bd44d80ab7cc46fdba81907758dc808f3e2517beef2b1e9)
        model.yaml:3:5: n/a is on n, a host that the model does not have; add it under `hosts`
        model.yaml:4:5: n/b is on n, a host that the model does not have; add it under `hosts`
        model.yaml:5:5: n/c is on n, a host that the model does not have; add it under `hosts`
        model.yaml:5:5: n/c is of the kind missing, which does not exist; add it under `kinds`
        "#);
    }

    #[test]
    fn more_dependencies_than_a_daemon_serves_are_refused() {
        let sketch = |members: usize| {
            let mut sketch = Sketch::new();
            for n in 0..members {
                sketch.cob(&format!("n1/a{n}"), "up").cob(&format!("n2/b{n}"), "up");
            }
            for (a, b) in (0..members).flat_map(|a| (0..members).map(move |b| (a, b))) {
                sketch.lock(&format!("n2/b{b}"), "up", &format!("n1/a{a}@up"));
            }
            sketch
        };
        assert_eq!(sketch(141).assemble().map(|_| ()), Ok(()));
        let refusal = sketch(142).assemble().expect_err("20,164 pairs");
        insta::assert_snapshot!(refusal, @"model.yaml:2:5: the bundle of n1: 20164 dependencies of change objects of n2 on change objects of this host; at most 20000 are allowed; let a single change object of each host depend on it, and the others on that object");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The order of names in a model does not affect the result.
        #[test]
        fn the_same_content_gives_the_same_bytes((sketch, shuffled) in random::shuffled_pair()) {
            match (sketch.assemble(), shuffled.assemble()) {
                (Ok(one), Ok(other)) => prop_assert_eq!(bytes(&one), bytes(&other)),
                (one, other) => prop_assert_eq!(one.is_ok(), other.is_ok()),
            }
        }
    }
}
