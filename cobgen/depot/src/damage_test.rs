//! Alters every byte of a small depot in turn: reading either returns the written data, or reports the damage. In
//! packs, which are large, only some bytes are altered.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cob_types::trust::{PublicKey, Signature, Signed};
use cob_types::{GenerationNumber, HostName};

use crate::objects::PACK_FROM;
use crate::testing::{publication, sketch_of};
use crate::{Depot, DepotError, Publication, enrolled};

/// A depot with all possible content: two generations, a model, signatures, an enrolled host.
fn depot(path: &Path) {
    let depot = Depot::create_or_open(path).expect("made");
    let model = BTreeMap::from([("model.yaml".to_owned(), b"hosts: {n1: {}}\n".to_vec())]);
    for number in 1..=2 {
        let generation = sketch_of(number, &[("n1", number), ("n2", 0)]);
        let key = u8::try_from(number).expect("small");
        let signed = Signed { key: PublicKey([key; 32]), signature: Signature([key; 64]) };
        let publication = Publication {
            model: &model,
            provenance: b"{}",
            signatures: &[signed],
            ..publication(&generation, "more of everything")
        };
        depot.publish(&publication).expect("published");
    }
    let host = HostName::new("n1").expect("name");
    enrolled::add(path, &host, PublicKey([9; 32]), "2026-11-21T12:00:00Z", enrolled::Former::Revoke).expect("added");
}

/// All readable content of a depot, as text.
fn read_all(path: &Path) -> Result<String, DepotError> {
    let depot = Depot::open(path)?;
    let list = depot.list()?;
    let mut all = format!("{:?} {list:?} {:?}", depot.latest()?, enrolled::read(path)?);
    for number in list.iter().map(|entry| entry.generation) {
        let read = (depot.read(number)?, depot.read_manifest_bytes(number)?, depot.read_model(number)?);
        let beside = (depot.read_provenance(number)?, depot.signatures(number)?);
        all += &format!("{read:?} {beside:?}");
    }
    Ok(all)
}

/// In larger files this many bytes are altered, drawn by the seed.
const ALL_UP_TO: usize = 1500;
/// In larger files this many bytes at each end are always altered.
const ENDS: usize = 100;

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A depot with so many hosts that the first generation is a pack; the second is written beside it.
fn packed(path: &Path) {
    let depot = Depot::create_or_open(path).expect("made");
    let names: Vec<String> = (0..PACK_FROM).map(|i| format!("h{i:04}")).collect();
    for number in 1..=2 {
        let mut hosts: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        hosts[7].1 = number;
        depot.publish(&publication(&sketch_of(number, &hosts), "")).expect("published");
    }
}

/// Alters every byte of the chosen files in a way that the seed decides, and counts the noticed alterations.
fn alter_each_byte(path: &Path, chosen: impl Fn(&Path) -> bool) -> usize {
    let seed = std::env::var("COB_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1u64);
    println!("COB_SEED={seed}");
    let mut state = seed;
    let right = read_all(path).expect("whole");
    let mut noticed = 0;
    for file in files(path).into_iter().filter(|file| chosen(file)) {
        let bytes = fs::read(&file).expect("read");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("set");
        let each = bytes.len() <= ALL_UP_TO;
        for nth in 0..bytes.len().min(ALL_UP_TO) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let drawn = usize::try_from((state >> 16) % bytes.len() as u64).expect("small");
            // In a large file both ends are always altered: headers and checksums are there.
            let at = match nth {
                nth if each || nth < ENDS => nth,
                nth if nth < 2 * ENDS => bytes.len() - 1 - (nth - ENDS),
                _ => drawn,
            };
            let mask = u8::try_from(state >> 56).expect("a byte").max(1);
            let mut altered = bytes.clone();
            altered[at] ^= mask;
            fs::write(&file, &altered).expect("written");
            let place = format!("{}: byte {at} ^ {mask:#04x}, COB_SEED={seed}", file.display());
            match read_all(path) {
                Ok(read) => assert!(read == right, "{place}: not noticed, and something else is read"),
                Err(error) => {
                    noticed += 1;
                    let said = error.to_string();
                    let named = said.contains("generation") || said.contains(&path.display().to_string());
                    assert!(named, "{place}: does not say where: {said}");
                }
            }
        }
        fs::write(&file, &bytes).expect("written");
    }
    assert_eq!(read_all(path).expect("whole again"), right);
    noticed
}

#[test]
fn every_altered_byte_of_a_pack_is_found() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    packed(&path);
    let packs = path.join("objects/pack");
    let found = files(&packs);
    assert_eq!(found.len(), 4, "a pack of bundles and one of all else, with their indexes: {found:?}");
    let altered = |file: &PathBuf| fs::read(file).expect("read").len().min(ALL_UP_TO);
    assert_eq!(alter_each_byte(&path, |file| file.starts_with(&packs)), found.iter().map(altered).sum::<usize>());
}

#[test]
fn every_altered_byte_is_found_or_does_not_matter() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    depot(&path);
    let noticed = alter_each_byte(&path, |_| true);
    assert!(noticed > 2000, "only {noticed}");
}

/// The newest generation does not vanish with its ref: otherwise an older generation would pass for the newest.
#[test]
fn a_damaged_ref_is_reported_and_not_taken_for_absent() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    depot(&path);
    fs::write(path.join("refs/generations/2"), "no object").expect("written");
    let depot = Depot::open(&path).expect("opened");
    assert_eq!(depot.latest().expect("read"), Some(GenerationNumber(2)));
    let error = depot.read(GenerationNumber(2)).expect_err("damaged").to_string();
    assert!(error.contains("generation 2"), "{error}");
    depot.read(GenerationNumber(1)).expect("the other one is whole");
}

/// With any bytes in the files, fsck ends and reports all faults.
#[test]
fn hostile_bytes_are_found_by_going_through_it() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    depot(&path);
    let whole = Depot::open(&path).and_then(|depot| depot.fsck(|_, _| true)).expect("gone through");
    assert_eq!((whole.faults.len(), whole.generations.len(), whole.signatures), (0, 2, 2));
    let mut found = 0;
    for file in files(&path) {
        let bytes = fs::read(&file).expect("read");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("set");
        for hostile in [&b""[..], b"\xff\xff\xff\xff", &[0x78, 0x9c].repeat(300), &bytes[..bytes.len() / 2]] {
            fs::write(&file, hostile).expect("written");
            match Depot::open(&path).and_then(|depot| depot.fsck(|_, _| true)) {
                Ok(report) if report.faults.is_empty() => {}
                Ok(_) | Err(_) => found += 1,
            }
        }
        fs::write(&file, &bytes).expect("written");
    }
    assert!(found > 60, "only {found}");
}
