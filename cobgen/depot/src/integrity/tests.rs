//! Damage that a single altered byte can't cause.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use cob_types::GenerationNumber;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest as _, Sha1};

use super::file;
use crate::testing::{publication, sketch_of};
use crate::{Depot, DepotError};

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("packed");
    encoder.finish().expect("packed")
}

fn name_of(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The error of checking a loose object whose file has these bytes.
fn said_of(file: &[u8], name: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join(name);
    fs::write(&path, file).expect("written");
    file::check_loose(&path, name).map_err(|error| {
        let said = error.to_string();
        assert!(said.contains(name) && said.contains("git fsck"), "{said}");
        said
    })
}

#[test]
fn a_loose_object_must_match_its_name_and_header() {
    let object = b"blob 5\0hello";
    let (name, file) = (name_of(object), packed(object));
    assert_eq!(name, "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0", "as git names it");
    assert_eq!(said_of(&file, &name), Ok(()));
    let says = |file: &[u8], object: &[u8], words: &str| {
        let said = said_of(file, &name_of(object)).expect_err("damaged");
        assert!(said.contains(words), "{said}");
    };
    for len in 0..file.len() {
        said_of(&file[..len], &name).expect_err("cut off");
    }
    says(&[&file[..], b"x"].concat(), object, "after its end");
    says(&file, b"blob 5\0other", "but its name says another hash");
    for (object, words) in [
        (&b"blob 4\0hello"[..], "longer than the 4 bytes"),
        (b"blob 6\0hello", "is 5 bytes long and says 6"),
        (b"blob 99999999999\0hello", "at most"),
        (b"blob 99999999999999999999999\0", "header"),
        (b"blob +5\0hello", "header"),
        (b"bulb 5\0hello", "header"),
        (b"blob 5", "header does not end"),
        (&[b'x'; 100], "header is too long"),
    ] {
        says(&packed(object), object, words);
    }
    // 64 MiB out of 64 KiB: unpacking stops at the length in the header.
    let bomb = [&b"blob 5\0"[..], &vec![0; 64 << 20]].concat();
    says(&packed(&bomb), &bomb, "longer than the 5 bytes");
}

struct Fixture {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("depot");
        let depot = Depot::create_or_open(&path).expect("made");
        depot.publish(&publication(&sketch_of(1, &[("n1", 1)]), "")).expect("published");
        Self { _folder: folder, path }
    }

    fn put(&self, file: &str, bytes: &[u8]) {
        let file = self.path.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, bytes).expect("written");
    }

    fn read(&self) -> Result<(), DepotError> {
        Depot::open(&self.path)?.read(GenerationNumber(1)).map(drop)
    }
}

#[test]
fn other_files_that_git_reads_are_refused_or_whole() {
    for name in
        ["objects/info/commit-graph", "objects/info/commit-graphs/graph-1.graph", "objects/pack/multi-pack-index"]
    {
        let fixture = Fixture::new();
        let mut bytes = b"something".to_vec();
        fixture.put(name, &bytes);
        let said = fixture.read().expect_err("no checksum").to_string();
        assert!(said.contains(name), "{said}");
        bytes.extend(Sha1::digest(&bytes));
        fixture.put(name, &bytes);
        if !name.starts_with("objects/pack") {
            fixture.read().expect("whole");
        }
    }
    let fixture = Fixture::new();
    fixture.put("objects/info/alternates", b"/elsewhere\n");
    let said = fixture.read().expect_err("refused").to_string();
    assert!(said.contains("objects/info/alternates") && said.contains("other folders"), "{said}");
}

/// Opening a pipe would block the reader.
#[test]
fn a_loose_object_that_is_a_folder_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let path: &Path = &folder.path().join("0123");
    fs::create_dir(path).expect("made");
    let said = file::check_loose(path, "0123").expect_err("a folder").to_string();
    assert!(said.contains("is not a file"), "{said}");
}

/// A publisher refuses to build on a damaged object.
#[test]
fn publishing_on_a_damaged_object_is_refused() {
    let fixture = Fixture::new();
    let depot = Depot::open(&fixture.path).expect("opened");
    let tree = depot.commit(GenerationNumber(1)).expect("there").tree().expect("there");
    let bundles = tree.get_name("bundles").expect("there").id();
    let id = depot.repo.find_tree(bundles).expect("there").get_name("n1.cbor").expect("there").id().to_string();
    let file = format!("objects/{}/{}", &id[..2], &id[2..]);
    fs::remove_file(fixture.path.join(&file)).expect("removed");
    fixture.put(&file, b"x");
    let next = sketch_of(2, &[("n1", 1), ("n2", 1)]);
    let said = depot.publish(&publication(&next, "")).expect_err("refused").to_string();
    assert!(said.contains(&file), "{said}");
    assert_eq!(depot.latest().expect("read"), Some(GenerationNumber(1)));
}
