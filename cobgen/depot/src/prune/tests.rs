//! Tests which data pruning removes, which data stays, and that no needed data is ever lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cob_types::trust::{PublicKey, Signature, Signed};

use super::*;
use crate::objects::PACK_FROM;
use crate::pins::Pin;
use crate::testing::{publication, sketch_of};
use crate::{Publication, Published};

const AT_ONCE: Rule = Rule { keep: Some(3), since: None, grace: Duration::ZERO };

fn n(number: u64) -> GenerationNumber {
    GenerationNumber(number)
}

/// Generations 1 to `last`, all different, ten seconds apart; the first and the sixth are written as packs.
fn filled(path: &Path, last: u64) -> Depot {
    let depot = Depot::create_or_open(path).expect("made");
    let names: Vec<String> = (0..PACK_FROM + 5).map(|i| format!("h{i:04}")).collect();
    for number in 1..=last {
        let version = |i: usize| if i < 5 { number * 1000 } else { number };
        let hosts = names.iter().enumerate().map(|(i, name)| (name.as_str(), version(i)));
        let hosts: Vec<_> = hosts.take(if number % 5 == 1 { names.len() } else { 5 }).collect();
        publish(&depot, &sketch_of(number, &hosts));
    }
    depot
}

fn publish(depot: &Depot, generation: &cob_types::Generation) {
    let number = generation.manifest.generation;
    let signed = Signed { key: PublicKey([7; 32]), signature: Signature([u8::try_from(number.0).expect("few"); 64]) };
    let model = BTreeMap::from([("model.yaml".to_owned(), format!("# {number}\n").into_bytes())]);
    let time = 1000 + i64::try_from(number.0).expect("few") * 10;
    let publication = Publication { signatures: &[signed], model: &model, time, ..publication(generation, "one more") };
    assert_eq!(depot.publish(&publication).expect("published"), Published::New(number));
}

fn numbers(depot: &Depot) -> Vec<u64> {
    depot.newest_first().expect("listed").into_iter().map(|number| number.0).collect()
}

fn bytes_of(path: &Path) -> u64 {
    fs::read_dir(path).map_or(0, |all| {
        let all = all.map(|entry| entry.expect("an entry").path());
        all.map(|path| if path.is_dir() { bytes_of(&path) } else { fs::metadata(&path).map_or(0, |f| f.len()) }).sum()
    })
}

/// Asserts that the whole depot is intact: by our own check, and by git's if git is installed.
fn assert_whole(path: &Path) {
    let depot = Depot::open(path).expect("a depot");
    let report = depot.fsck(|_, _| true).expect("gone through");
    assert_eq!(report.faults, []);
    assert_eq!(report.signatures, report.generations.len() as u64);
    let git = Command::new("git").arg("-C").arg(path).args(["fsck", "--strict", "--no-dangling"]).output();
    if let Ok(output) = git {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn prune_deletes_old_generations_and_frees_their_space() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    let depot = filled(&path, 9);
    let pin = Pin { reason: "before the move".to_owned(), by: "Ann".to_owned(), at: 5 };
    depot.pin(n(2), &pin).expect("pinned");
    let before = bytes_of(&path.join("objects"));
    let would = depot.would_prune(&AT_ONCE).expect("said");
    assert_eq!(would.gone, [1, 3, 4, 5, 6].map(n));
    assert_eq!(would.stays, BTreeMap::from([(n(2), Reason::Pinned("before the move".to_owned()))]));
    assert_eq!((would.freed, bytes_of(&path.join("objects"))), (None, before), "nothing is done yet");
    let read = |number| (depot.read(n(number)).expect("read"), depot.read_model(n(number)).expect("read"));
    let kept: Vec<_> = [2, 7, 8, 9].map(read).into_iter().collect();

    let pruned = depot.prune(&AT_ONCE).expect("pruned");
    assert_eq!((&pruned.gone, &pruned.stays), (&would.gone, &would.stays));
    let after = bytes_of(&path.join("objects"));
    assert_eq!(pruned.freed, Some(before - after));
    assert!(after < before, "{before} and then {after}");
    let depot = Depot::open(&path).expect("opened");
    assert_eq!(numbers(&depot), [9, 8, 7, 2]);
    let read = |number| (depot.read(n(number)).expect("read"), depot.read_model(n(number)).expect("read"));
    assert_eq!([2, 7, 8, 9].map(read).into_iter().collect::<Vec<_>>(), kept);
    assert_eq!(depot.signatures(n(2)).expect("read").len(), 1);
    let error = depot.read_manifest(n(5)).expect_err("gone").to_string();
    assert!(error.contains("generation 5 is not in the depot: the latest is 9"), "{error}");
    assert!(!path.join("refs/signatures/5").exists());
    assert_whole(&path);

    // Pruning again has no effect, and the count goes on.
    let again = depot.prune(&AT_ONCE).expect("pruned");
    assert_eq!((again.gone.len(), again.freed), (0, Some(0)));
    publish(&depot, &sketch_of(10, &[("h0000", 1)]));
    assert!(depot.unpin(n(2)).expect("unpinned") && !depot.unpin(n(2)).expect("once"));
    depot.prune(&AT_ONCE).expect("pruned");
    assert_eq!(numbers(&depot), [10, 9, 8]);
    assert_whole(&path);
}

#[test]
fn age_the_newest_and_ways_back_count() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    let depot = filled(&path, 5);
    let mut with_ways = sketch_of(6, &[("h0000", 6)]);
    let way = |number| {
        let bytes = depot.read_manifest_bytes(n(number)).expect("read");
        cob_types::generation::RollbackTarget {
            generation: n(number),
            manifest: cob_types::canonical::blob_hash(&bytes),
        }
    };
    with_ways.manifest.back = vec![way(5), way(3)];
    publish(&depot, &with_ways);
    publish(&depot, &sketch_of(7, &[("h0000", 7)]));
    let gone = |rule: Rule| depot.would_prune(&rule).expect("said").gone.iter().map(|n| n.0).collect::<Vec<_>>();
    let older = |since| Rule { since: Some(since), ..Rule::default() };
    assert_eq!(gone(older(1030)), [1, 2]);
    assert_eq!(gone(older(i64::MAX)), [1, 2, 4], "the newest, and where hosts may go back to, stay");
    let stays = depot.would_prune(&older(i64::MAX)).expect("said").stays;
    let back_of = |number| Reason::WayBack(n(number));
    assert_eq!(stays, BTreeMap::from([(n(3), back_of(6)), (n(5), back_of(6)), (n(6), back_of(7))]));
    assert_eq!(gone(Rule { keep: Some(5), ..older(i64::MAX) }), [1, 2]);
    assert_eq!(gone(Rule { keep: Some(0), ..Rule::default() }), [1, 2, 4]);
}

#[test]
fn prune_frees_no_files_within_the_grace_time() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    let depot = filled(&path, 9);
    let rule = Rule { grace: Duration::from_secs(3600), ..AT_ONCE };
    assert_eq!(depot.prune(&rule).expect("pruned").freed, Some(0));
    assert_eq!(numbers(&depot), [9, 8, 7]);
    assert!(depot.prune(&AT_ONCE).expect("pruned").freed.is_some_and(|bytes| bytes > 0));
    assert_whole(&path);
}

#[test]
fn prune_deletes_no_files_of_a_damaged_depot() {
    for (file, bytes) in [("refs/generations/8", "no object"), ("refs/signatures/8/ff", "x"), ("shallow", "x\n")] {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("depot");
        let depot = filled(&path, 9);
        fs::write(path.join(file), bytes).expect("written");
        let before = bytes_of(&path.join("objects"));
        let error = depot.prune(&AT_ONCE).expect_err(file).to_string();
        assert!(error.contains("damaged") || error.contains("generation 8"), "{file}: {error}");
        assert_eq!((numbers(&depot).len(), bytes_of(&path.join("objects"))), (9, before), "{file}");
        assert!(!depot.fsck(|_, _| true).expect("gone through").faults.is_empty(), "{file}");
    }
}

#[test]
fn publishers_and_readers_go_on_meanwhile() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    drop(filled(&path, 6));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let depot = Depot::open(&path).expect("opened");
            for number in 7..=20 {
                publish(&depot, &sketch_of(number, &[("h0000", number), ("h0001", number / 4)]));
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                Depot::open(&path).and_then(|d| d.read(d.latest()?.expect("some"))).expect("the newest can be read");
            }
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            Depot::open(&path).expect("opened").prune(&AT_ONCE).expect("pruned");
        }
    });
    Depot::open(&path).expect("opened").prune(&AT_ONCE).expect("pruned");
    assert_eq!(numbers(&Depot::open(&path).expect("opened")), [20, 19, 18]);
    assert_whole(&path);
}

/// A helper for the test below: prunes the depot in `COB_PRUNE` until it is killed.
#[test]
#[ignore = "run by another test, as a process of its own"]
fn prunes_for_another() {
    let Some(path) = std::env::var_os("COB_PRUNE").map(PathBuf::from) else { return };
    Depot::open(&path).expect("opened").prune(&AT_ONCE).expect("pruned");
}

#[test]
fn killed_at_any_moment_it_has_all_that_is_to_stay() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("depot");
    let original = folder.path().join("original");
    drop(filled(&original, 9));
    let this = std::env::current_exe().expect("this program");
    let kept = |path: &Path| {
        let depot = Depot::open(path).expect("opened");
        [7, 8, 9].map(|number| (depot.read(n(number)).expect("read"), depot.signatures(n(number)).expect("read")))
    };
    let wanted = kept(&original);
    let mut seen = BTreeSet::new();
    for nth in 0..8u64 {
        let _ = fs::remove_dir_all(&path);
        copy(&original, &path);
        let mut child = Command::new(&this)
            .args(["prune::tests::prunes_for_another", "--exact", "--ignored"])
            .env("COB_PRUNE", &path)
            .stdout(Stdio::null())
            .spawn()
            .expect("runs");
        let begin = std::time::Instant::now();
        // Kills as soon as pruning has begun, and a little later each time.
        while !path.join("shallow").exists() && begin.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(nth * nth * nth * 100));
        let _ = child.kill();
        let _ = child.wait();
        assert!(kept(&path) == wanted, "killed at {nth}");
        seen.insert(numbers(&Depot::open(&path).expect("opened")).len());
        Depot::open(&path).expect("opened").prune(&AT_ONCE).expect("the next one does the rest");
        assert!(kept(&path) == wanted, "after {nth}");
        assert_eq!(numbers(&Depot::open(&path).expect("opened")), [9, 8, 7]);
    }
    assert_whole(&path);
    assert!(seen.len() > 1, "it was killed between two steps: {seen:?}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("listed") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() { copy(&path, &to) } else { _ = fs::copy(&path, &to).expect("copied") }
    }
}
