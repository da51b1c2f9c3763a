//! Publishing: round trips, races, crashes and damage.

use std::fs::File;
use std::path::PathBuf;

use cob_types::HostName;

use super::*;
use crate::testing::{publication, sketch_of};

struct Fixture {
    _folder: tempfile::TempDir,
    path: PathBuf,
    depot: Depot,
}

/// A depot with this many generations of two hosts; the second host never changes.
fn depot_of(generations: u64) -> Fixture {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    let depot = Depot::create_or_open(&path).expect("made");
    for number in 1..=generations {
        let generation = sketch_of(number, &[("n1", number), ("n2", 0)]);
        depot.publish(&publication(&generation, "")).expect("published");
    }
    Fixture { _folder: folder, path, depot }
}

fn number(number: u64) -> GenerationNumber {
    GenerationNumber(number)
}

fn host(name: &str) -> HostName {
    HostName::new(name).expect("name")
}

/// The file of an object that is not packed.
fn object_file(fixture: &Fixture, at: &str) -> PathBuf {
    let tree = fixture.depot.commit(number(1)).expect("there").tree().expect("tree");
    let id = tree.get_path(Path::new(at)).expect("there").id().to_string();
    fixture.path.join("objects").join(&id[..2]).join(&id[2..])
}

#[test]
fn a_published_generation_is_read_back_unchanged() {
    let fixture = depot_of(2);
    let generation = sketch_of(3, &[("n1", 3), ("n2", 0), (".git", 1)]);
    let model = BTreeMap::from([
        ("model.yaml".to_owned(), b"hosts: {}".to_vec()),
        ("parts/db/check.sh".to_owned(), b"#!/bin/sh\n".to_vec()),
        ("parts/x".to_owned(), Vec::new()),
    ]);
    let whole = Publication { model: &model, provenance: b"{}", ..publication(&generation, "third") };
    assert_eq!(fixture.depot.publish(&whole).expect("published"), Published::New(number(3)));
    let depot = Depot::open(&fixture.path).expect("opened");
    assert_eq!(depot.latest().expect("read"), Some(number(3)));
    assert_eq!(depot.read(number(3)).expect("read"), generation);
    assert_eq!(depot.read_bundle(number(3), &host("n1")).expect("read"), generation.bundles["n1"]);
    assert_eq!(depot.read_model(number(3)).expect("read"), model);
    assert_eq!(depot.read_provenance(number(3)).expect("read").as_deref(), Some(&b"{}"[..]));
    assert_eq!(depot.read_provenance(number(2)).expect("read"), None);
    assert_eq!(depot.read_model(number(2)).expect("read"), BTreeMap::new());
    assert_eq!(depot.read(number(1)).expect("read"), sketch_of(1, &[("n1", 1), ("n2", 0)]));
    let main = depot.repo.find_reference(MAIN).and_then(|main| main.peel_to_commit()).expect("there");
    assert_eq!(main.id(), depot.commit(number(3)).expect("there").id());
    assert_eq!(main.parent(0).expect("there").id(), depot.commit(number(2)).expect("there").id());
}

#[test]
fn the_same_content_makes_no_generation() {
    let fixture = depot_of(1);
    let same = sketch_of(2, &[("n1", 1), ("n2", 0)]);
    let published = fixture.depot.publish(&publication(&same, "again")).expect("answered");
    assert_eq!(published, Published::Unchanged(number(1)));
    assert_eq!(fixture.depot.latest().expect("read"), Some(number(1)));
}

#[test]
fn numbers_may_leave_a_gap_and_never_go_back() {
    let fixture = depot_of(1);
    let mut generation = sketch_of(5, &[("n1", 5)]);
    let error = fixture.depot.publish(&publication(&generation, "")).expect_err("made after 4").to_string();
    assert!(error.contains("made after 4, but the depot's latest is 1"), "{error}");
    generation.manifest.parent = number(1);
    assert_eq!(fixture.depot.publish(&publication(&generation, "")).expect("published"), Published::New(number(5)));
    let low = sketch_of(2, &[("n1", 2)]);
    let error = fixture.depot.publish(&publication(&low, "")).expect_err("overtaken");
    assert!(matches!(error, PublishError::Overtaken { latest: Some(GenerationNumber(5)), .. }), "{error}");
}

#[test]
fn an_inconsistent_generation_is_not_published() {
    let fixture = depot_of(0);
    let refused = |change: fn(&mut Generation)| {
        let mut generation = sketch_of(1, &[("n1", 1)]);
        change(&mut generation);
        fixture.depot.publish(&publication(&generation, "")).expect_err("unfit").to_string()
    };
    assert!(refused(|g| g.manifest.format = 2).contains("format 2"));
    assert!(refused(|g| g.manifest.parent = g.manifest.generation).contains("must be higher than"));
    assert!(refused(|g| g.bundles.clear()).contains("same hosts"));
    assert!(refused(|g| g.bundles.values_mut().for_each(|b| b.kinds.clear())).contains("hash"));
    assert_eq!(fixture.depot.latest().expect("read"), None);
}

#[test]
fn names_that_git_or_a_reader_can_not_keep_are_refused() {
    let fixture = depot_of(0);
    let generation = sketch_of(1, &[("n1", 1)]);
    let deep = "a/".repeat(40) + "x";
    for name in ["/etc/passwd", "a/../b", "a//b", "", ".git/config", "a/.git", deep.as_str()] {
        let model = BTreeMap::from([(name.to_owned(), b"x".to_vec())]);
        let error = fixture.depot.publish(&Publication { model: &model, ..publication(&generation, "") });
        assert!(matches!(error, Err(PublishError::ModelPath { .. })), "{name}: {error:?}");
    }
    let both = BTreeMap::from([("a".to_owned(), Vec::new()), ("a/b".to_owned(), Vec::new())]);
    let error = fixture.depot.publish(&Publication { model: &both, ..publication(&generation, "") });
    assert!(matches!(error, Err(PublishError::ModelPath { .. })), "{error:?}");
    assert_eq!(fixture.depot.latest().expect("read"), None);
}

#[test]
fn many_bundles_become_a_few_packs() {
    let fixture = depot_of(0);
    let names: Vec<String> = (0..2 * PACK_FROM + 1).map(|i| format!("h{i:04}")).collect();
    let hosts: Vec<(&str, u64)> = names.iter().zip(0..).map(|(name, i)| (name.as_str(), i)).collect();
    let generation = sketch_of(1, &hosts);
    fixture.depot.publish(&publication(&generation, "")).expect("published");
    let depot = Depot::open(&fixture.path).expect("opened");
    assert_eq!(depot.read(number(1)).expect("read"), generation);
    let folders = fs::read_dir(fixture.path.join("objects")).expect("listed");
    let loose = folders.filter(|entry| entry.as_ref().is_ok_and(|e| e.file_name().len() == 2)).count();
    assert_eq!(loose, 0);
    let packs = fs::read_dir(fixture.path.join("objects/pack")).expect("listed").count() / 2;
    assert!((2..=3).contains(&packs), "two of bundles where there are two processors, and one of all else: {packs}");
    // The next generation, with one change, is written as single files.
    let mut next = hosts.clone();
    next[7].1 = 1_000_000;
    let generation = sketch_of(2, &next);
    fixture.depot.publish(&publication(&generation, "")).expect("published");
    assert_eq!(Depot::open(&fixture.path).expect("opened").read(number(2)).expect("read"), generation);
}

#[test]
fn of_many_publishers_each_makes_its_own() {
    let fixture = depot_of(0);
    let threads = 6;
    let path = &fixture.path;
    let made: Vec<u64> = std::thread::scope(|scope| {
        let publishers: Vec<_> = (0..threads)
            .map(|me| {
                scope.spawn(move || {
                    let depot = Depot::create_or_open(path).expect("opened");
                    loop {
                        let next = depot.latest().expect("read").unwrap_or_default().0 + 1;
                        match depot.publish(&publication(&sketch_of(next, &[("n1", 100 + me)]), "")) {
                            Ok(Published::New(number)) => return number.0,
                            Ok(unchanged) => panic!("nobody else publishes this: {unchanged:?}"),
                            Err(PublishError::Overtaken { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        publishers.into_iter().map(|publisher| publisher.join().expect("done")).collect()
    });
    let mut sorted = made.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=threads).collect::<Vec<_>>(), "one number each: {made:?}");
    for (me, made) in made.iter().enumerate() {
        let expected = sketch_of(*made, &[("n1", 100 + me as u64)]);
        assert_eq!(fixture.depot.read(number(*made)).expect("read"), expected);
    }
    let main = fixture.depot.repo.refname_to_id(MAIN).expect("there");
    assert_eq!(main, fixture.depot.commit(number(threads)).expect("there").id());
}

#[test]
fn a_publisher_killed_before_the_refs_publishes_nothing() {
    let fixture = depot_of(1);
    let generation = sketch_of(2, &[("n1", 2)]);
    let publication = publication(&generation, "");
    let encoded = Encoded::of(&publication).expect("fits");
    fixture.depot.write_objects(&publication, &encoded).expect("written");
    let depot = Depot::create_or_open(&fixture.path).expect("opened");
    assert_eq!(depot.latest().expect("read"), Some(number(1)));
    assert_eq!(depot.list().expect("read").len(), 1);
    assert_eq!(depot.publish(&publication).expect("published"), Published::New(number(2)));
}

#[test]
fn killed_between_the_refs_main_is_set_right() {
    let fixture = depot_of(1);
    let generation = sketch_of(2, &[("n1", 2)]);
    let publication = publication(&generation, "");
    let encoded = Encoded::of(&publication).expect("fits");
    let commit = fixture.depot.write_objects(&publication, &encoded).expect("written");
    fixture.depot.set_ref(&ref_of(number(2)), commit, false).expect("set");
    // Readers see it; opening for reading changes no ref.
    let reader = Depot::open(&fixture.path).expect("opened");
    assert_eq!(reader.read(number(2)).expect("read"), generation);
    assert_ne!(reader.repo.refname_to_id(MAIN).expect("there"), commit);
    let depot = Depot::create_or_open(&fixture.path).expect("opened");
    assert_eq!(depot.repo.refname_to_id(MAIN).expect("there"), commit);
}

#[test]
fn an_old_ref_lock_is_removed_and_a_recent_one_is_respected() {
    let fixture = depot_of(1);
    let lock = fixture.path.join(format!("{MAIN}.lock"));
    let commit = fixture.depot.commit(number(1)).expect("there").id();
    let file = File::create(&lock).expect("made");
    let error = fixture.depot.set_ref(MAIN, commit, true).expect_err("held").to_string();
    assert!(error.contains("main.lock; try again, or remove the file"), "{error}");
    file.set_modified(SystemTime::now() - 2 * LEFT_BEHIND).expect("set");
    fixture.depot.set_ref(MAIN, commit, true).expect("passed");
    assert!(!lock.exists());
}

#[test]
fn a_generation_that_is_there_counts_though_main_could_not_follow() {
    let fixture = depot_of(1);
    let lock = fixture.path.join(format!("{MAIN}.lock"));
    File::create(&lock).expect("made");
    let generation = sketch_of(2, &[("n1", 2)]);
    let published = fixture.depot.publish(&publication(&generation, "")).expect("published");
    assert_eq!(published, Published::New(number(2)));
    fs::remove_file(&lock).expect("removed");
    let depot = Depot::create_or_open(&fixture.path).expect("opened");
    assert_eq!(depot.repo.refname_to_id(MAIN).expect("there"), depot.commit(number(2)).expect("there").id());
}

#[test]
fn the_publishers_lock_keeps_others_out_until_it_is_dropped() {
    let fixture = depot_of(0);
    let held = PublisherLock::take(&fixture.path, Duration::ZERO).expect("free");
    let busy = PublisherLock::take(&fixture.path, Duration::ZERO);
    assert!(matches!(busy, Err(PublishError::Busy { .. })));
    drop(held);
    PublisherLock::take(&fixture.path, Duration::ZERO).expect("free again");
}

#[test]
fn damage_is_found_and_named() {
    let read = |fixture: &Fixture| Depot::open(&fixture.path).expect("opened").read_bundle(number(1), &host("n1"));
    let writable = |path: &Path| {
        fs::remove_file(path).expect("removed");
        path.to_owned()
    };

    let fixture = depot_of(1);
    fs::write(writable(&object_file(&fixture, "bundles/n1.cbor")), b"garbage").expect("written");
    let error = read(&fixture).expect_err("damaged").to_string();
    assert!(error.contains("the bundle of n1 of generation 1 is damaged"), "{error}");

    // A valid object file, but with content that does not match its name.
    let fixture = depot_of(1);
    let other = fs::read(object_file(&fixture, "bundles/n2.cbor")).expect("read");
    fs::write(writable(&object_file(&fixture, "bundles/n1.cbor")), other).expect("written");
    let error = read(&fixture).expect_err("damaged").to_string();
    assert!(error.contains("the bundle of n1 of generation 1 is damaged"), "{error}");

    let fixture = depot_of(1);
    fs::remove_file(object_file(&fixture, "bundles/n1.cbor")).expect("removed");
    let error = read(&fixture).expect_err("missing").to_string();
    assert!(error.contains("the bundle of n1 of generation 1 is missing"), "{error}");
    assert!(Depot::open(&fixture.path).expect("opened").read_bundle(number(1), &host("n2")).is_ok());
}

#[test]
fn foreign_commits_with_inconsistent_content_are_refused() {
    let fixture = depot_of(1);
    let put = |change: &dyn Fn(&mut Generation), bundle: Option<&[u8]>| {
        let mut generation = sketch_of(9, &[("n1", 9)]);
        change(&mut generation);
        let mut objects = Objects::open(&fixture.depot, false).expect("opened");
        let own = codec::encode(&generation.bundles["n1"]).expect("CBOR");
        let bytes = bundle.map_or(own, <[u8]>::to_vec);
        let id = objects.blob(&bytes).expect("written");
        let encoded = Encoded {
            manifest: codec::encode(&generation.manifest).expect("CBOR"),
            bundles: vec![Blob { name: "n1.cbor".to_owned(), bytes, id }],
        };
        let tree = encoded.write(&mut objects, None, b"").expect("written");
        let author = Signature::new("x", "x", &git2::Time::new(0, 0)).expect("author");
        let commit = objects.commit(tree, None, "", &author).expect("written");
        fixture.depot.set_ref(&ref_of(number(9)), commit, true).expect("set");
        fixture.depot.read_bundle(number(9), &host("n1")).expect_err("not believed").to_string()
    };
    assert!(put(&|g| g.manifest.generation = number(8), None).contains("manifest of generation 8"));
    assert!(put(&|g| g.manifest.format = 2, None).contains("format 2; this program reads 1"));
    assert!(put(&|_| {}, Some(b"x")).contains("another hash"));
    assert!(put(&|g| g.manifest.hosts.clear(), None).contains("has no host n1"));
    let seal = |g: &mut Generation| {
        let bytes = codec::encode(&g.bundles["n1"]).expect("CBOR");
        g.manifest.hosts.get_mut("n1").expect("there").bundle = canonical::blob_hash(&bytes);
    };
    let newer = put(
        &|g| {
            g.bundles.get_mut("n1").expect("there").format = 7;
            seal(g);
        },
        None,
    );
    assert!(newer.contains("the bundle of n1 of generation 9 has format 7"), "{newer}");
    let other = put(
        &|g| {
            g.bundles.get_mut("n1").expect("there").host = host("n2");
            seal(g);
        },
        None,
    );
    assert!(other.contains("it is the bundle of n2"), "{other}");
}

#[test]
fn a_manifest_above_the_size_limit_is_not_read() {
    let fixture = depot_of(1);
    let view_error = fixture.depot.read_manifest_bytes(number(1)).map(|bytes| bytes.len());
    assert!(view_error.expect("read") < 1000);
    let mut objects = Objects::open(&fixture.depot, false).expect("opened");
    let long = objects.blob(&vec![0; cob_types::generation::MAX_MANIFEST + 1]).expect("written");
    let files = BTreeMap::from([(MANIFEST.to_owned(), long)]);
    let tree = objects.folder(&files, &BTreeMap::new()).expect("written");
    let author = Signature::new("x", "x", &git2::Time::new(0, 0)).expect("author");
    let commit = objects.commit(tree, None, "", &author).expect("written");
    fixture.depot.set_ref(&ref_of(number(2)), commit, true).expect("set");
    let error = fixture.depot.read_manifest(number(2)).expect_err("too long");
    assert!(matches!(error, DepotError::TooLarge { .. }), "{error}");
}

#[test]
fn reading_changes_no_file() {
    fn files(folder: &Path, found: &mut BTreeMap<PathBuf, (SystemTime, u64)>) {
        for entry in fs::read_dir(folder).expect("listed") {
            let entry = entry.expect("listed");
            let about = entry.metadata().expect("there");
            found.insert(entry.path(), (about.modified().expect("known"), about.len()));
            if about.is_dir() {
                files(&entry.path(), found);
            }
        }
    }
    let fixture = depot_of(3);
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    files(&fixture.path, &mut before);
    let depot = Depot::open(&fixture.path).expect("opened");
    depot.list().expect("read");
    depot.read(number(2)).expect("read");
    depot.read_model(number(2)).expect("read");
    files(&fixture.path, &mut after);
    assert_eq!(before, after);
}

#[test]
fn an_open_reader_sees_later_generations() {
    let fixture = depot_of(1);
    let reader = Depot::open(&fixture.path).expect("opened");
    assert_eq!(reader.latest().expect("read"), Some(number(1)));
    let names: Vec<String> = (0..PACK_FROM).map(|i| format!("h{i}")).collect();
    let hosts: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 7)).collect();
    let generation = sketch_of(2, &[hosts, vec![("n1", 2)]].concat());
    fixture.depot.publish(&publication(&generation, "")).expect("published");
    assert_eq!(reader.latest().expect("read"), Some(number(2)));
    assert_eq!(reader.read(number(2)).expect("read"), generation);
}
