//! Tests what the index keeps, finds and deletes.

use cob_types::{GenerationNumber, HostName};
use proptest::prelude::*;

use super::*;

fn entry(seq: u64, cob: Option<&str>, event: &str) -> HistoryEntry {
    HistoryEntry {
        ts_ns: seq * 1000,
        host: HostName::new("n1").expect("name"),
        seq,
        lamport: seq,
        generation: GenerationNumber(1),
        cob: cob.map(|c| CobId::new(c).expect("id")),
        event: event.to_owned(),
        from: None,
        to: None,
        attempt: None,
        ok: None,
        detail: String::new(),
        heard_ns: None,
        facts: None,
    }
}

/// Records 1 to 20: odd numbers about n1/a, even numbers about n1/b, each with a second line about the host.
fn filled(folder: &Path) -> Index {
    let mut index = Index::open(folder).expect("opens");
    for seq in 1..=20 {
        let cob = if seq % 2 == 1 { "n1/a" } else { "n1/b" };
        let history = vec![entry(seq, Some(cob), "start"), entry(seq, None, "order")];
        index.add(seq, [IndexEntry { seq, history }]).expect("added");
    }
    index
}

/// The index of [`filled`], opened again; no index was moved aside.
fn as_it_was(folder: &Path) -> Index {
    let index = Index::open(folder).expect("opens");
    assert_eq!(index.upto(), 20);
    assert!(!folder.with_extension("damaged").exists());
    index
}

fn ask(index: &Index, since: u64, cob: Option<&str>, limit: usize, newest: bool) -> Vec<(u64, String)> {
    let cob = cob.map(|c| CobId::new(c).expect("id"));
    let found = index.history(&Query { since, cob, limit, newest }).expect("answers");
    found.into_iter().map(|e| (e.seq, e.event)).collect()
}

#[test]
fn history_is_found_by_time_and_by_change_object() {
    let folder = tempfile::tempdir().expect("folder");
    let index = filled(&folder.path().join("index"));
    assert_eq!(ask(&index, 0, None, 3, false), [(1, "start".into()), (1, "order".into()), (2, "start".into())]);
    assert_eq!(ask(&index, 19, Some("n1/b"), 9, false), [(20, "start".into())]);
    assert_eq!(ask(&index, 0, Some("n1/a"), 2, true), [(17, "start".into()), (19, "start".into())]);
    assert_eq!(ask(&index, 0, Some("n1/a"), 99, false).len(), 10);
    assert_eq!(ask(&index, 0, Some("n1/c"), 99, false).len(), 0);
    assert_eq!(ask(&index, 21, None, 99, false).len(), 0);
}

#[test]
fn the_newest_lines_of_the_history_are_kept() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("index");
    let mut index = filled(&path);
    index.most = 30;
    let one = |seq| IndexEntry { seq, history: vec![entry(seq, Some("n1/b"), "end")] };
    let batch = FORGET_BATCH as u64;
    // The index has 40 lines already.
    index.add(20 + batch - 11, (21..20 + batch - 10).map(one)).expect("added");
    assert_eq!(ask(&index, 0, None, 1, false), [(1, "start".into())], "not yet");
    index.add(20 + batch - 10, [one(20 + batch - 10)]).expect("added");
    assert_eq!(ask(&index, 0, None, usize::MAX, false).len(), 30);
    let first = ask(&index, 0, None, 1, false);
    assert_eq!(first, ask(&index, 0, Some("n1/b"), 1, false), "no change object points to what is gone");
    assert!(ask(&index, 0, Some("n1/a"), 9, false).is_empty());
    drop(index);
    // The number of lines is known, unless a program has added lines without counting.
    let mut index = Index::open(&path).expect("opens");
    assert_eq!((index.lines, index.upto()), (Some(30), 20 + batch - 10));
    index.tree.insert(b"u", &5000u64.to_be_bytes()).expect("written");
    drop(index);
    index = Index::open(&path).expect("opens");
    assert_eq!((index.lines, index.lines().expect("counted")), (None, 30));
}

/// Records `from` to `upto`, each with a line of this event.
fn add_events(index: &mut Index, event: &str, from: u64, upto: u64) {
    let one = |seq| IndexEntry { seq, history: vec![entry(seq, Some("n1/b"), event)] };
    index.add(upto, (from..=upto).map(one)).expect("added");
}

fn count_events(index: &Index, event: &str) -> usize {
    ask(index, 0, None, usize::MAX, false).iter().filter(|(_, e)| e == event).count()
}

#[test]
fn orders_and_switches_stay_in_the_index_under_a_flood_of_other_events() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("index");
    let mut index = Index::open(&path).expect("opens");
    index.most = 30;
    add_events(&mut index, "pause", 1, 71);
    add_events(&mut index, "activate", 72, 80);
    for flood in 0..5 {
        add_events(&mut index, "grant", 81 + flood * 2000, 80 + (flood + 1) * 2000);
        assert_eq!((count_events(&index, "pause"), count_events(&index, "activate")), (71, 9));
        assert!(count_events(&index, "grant") < 30 + FORGET_BATCH);
        // Also by change object, and after the next start.
        assert!(ask(&index, 0, Some("n1/b"), 1, false).contains(&(1, "pause".into())));
        drop(index);
        index = Index::open(&path).expect("opens");
        index.most = 30;
    }
    // An earlier version has not written pointers to orders.
    for pointer in index.tree.scan_prefix(b"o").keys().collect::<Result<Vec<_>, _>>().expect("keys") {
        index.tree.remove(pointer).expect("removed");
    }
    drop(index);
    index = Index::open(&path).expect("opens");
    index.most = 30;
    add_events(&mut index, "grant", 20_000, 24_000);
    assert_eq!((count_events(&index, "pause"), index.kept_lines().expect("counted")), (71, [71, 9]));
}

#[test]
fn the_newest_orders_are_kept() {
    let folder = tempfile::tempdir().expect("folder");
    let mut index = Index::open(&folder.path().join("index")).expect("opens");
    index.most_kept = 100;
    add_events(&mut index, "activate", 1, 5);
    add_events(&mut index, "retry", 6, 3000);
    let kept = count_events(&index, "retry");
    assert!((100..100 + FORGET_BATCH).contains(&kept), "{kept}");
    assert_eq!(count_events(&index, "activate"), 5, "they take no place of switches");
    assert_eq!(ask(&index, 0, None, 1, true), [(3000, "retry".into())]);
    assert_eq!(index.lines().expect("counted"), 5 + kept as u64);
}

#[test]
fn a_wrong_count_is_corrected() {
    let folder = tempfile::tempdir().expect("folder");
    let mut index = filled(&folder.path().join("index"));
    index.lines = Some(u64::from(u32::MAX));
    index.add(21, [IndexEntry { seq: 21, history: vec![entry(21, None, "order")] }]).expect("added");
    assert_eq!((index.lines, ask(&index, 0, None, 99, false).len()), (Some(0), 0));
}

#[test]
fn the_index_continues_where_it_ended_and_takes_a_record_once() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("index");
    let index = filled(&path);
    index.flush().expect("flushed");
    drop(index);
    let mut index = as_it_was(&path);
    let again = IndexEntry { seq: 20, history: vec![entry(20, None, "again")] };
    index.add(20, [again]).expect("left out");
    assert!(!ask(&index, 20, None, 9, false).iter().any(|(_, event)| event == "again"));
}

#[test]
fn many_records_are_added_together_and_each_counts_once() {
    let folder = tempfile::tempdir().expect("folder");
    let many = 3 * TOGETHER as u64 + 7;
    let mut index = Index::open(&folder.path().join("index")).expect("opens");
    let one = |seq| IndexEntry { seq, history: vec![entry(seq, Some("n1/a"), "end")] };
    index.add(many, (1..=many).map(one)).expect("added");
    index.add(many, (1..=many).map(one)).expect("left out");
    assert_eq!(index.upto(), many);
    let found = ask(&index, 0, Some("n1/a"), usize::MAX, false);
    assert_eq!(found.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), (1..=many).collect::<Vec<_>>());
}

#[test]
fn leftovers_of_a_killed_start_do_not_damage_the_index() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("index");
    // Killed before more than a part of the store's own settings was written.
    fs::create_dir_all(&path).expect("made");
    fs::write(path.join("conf"), b"segment_size: 65").expect("written");
    drop(filled(&path));
    // Killed while a snapshot of the store was being written; sled uses the last by name.
    fs::write(path.join("snap.FFFFFFFFFFFFFFFF.generating"), b"the first bytes of").expect("written");
    drop(as_it_was(&path));
}

#[test]
fn an_index_ahead_of_its_journal_shows_that_records_are_lost() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("index");
    drop(filled(&path));
    let ahead = |error| matches!(error, IndexError::Ahead { knows: 20, .. });
    let known = |last| Index::known_beside(&path, last);
    assert!(known(19).is_err_and(ahead) && Index::open_beside(&path, 7).is_err_and(ahead));
    assert!(!folder.path().join("index.damaged").exists(), "nothing was changed");
    assert_eq!((known(20).expect("beside it"), known(99).expect("beside it")), (20, 20));
    drop(as_it_was(&path));
}

#[test]
fn the_position_of_an_index_is_read_from_its_note_or_its_store() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("index");
    let known = |last| Index::known_beside(&path, last).map_err(|error| error.to_string());
    assert_eq!(known(7), Ok(0));
    assert!(!path.exists(), "it was not made");
    let index = filled(&path);
    // The store is in use, so it can't be opened.
    assert_eq!(known(20), Ok(20));
    // Killed before the recorded number was added.
    index.note(25).expect("noted");
    drop(index);
    assert_eq!(known(30), Ok(25));
    // The recorded number was committed before.
    assert!(known(22).is_err_and(|error| error.ends_with("knows record 25")));
    let note = path.join(KNOWS);
    // Written by a version without the number file, half written, or damaged by the disk.
    for damage in ["", "2x", "9999999", "30 1f\n", &"7".repeat(1 << 20)] {
        fs::write(&note, damage).expect("written");
        assert_eq!(known(22), Ok(20));
    }
    fs::remove_file(&note).expect("removed");
    assert_eq!(known(22), Ok(20));
    // A start that detects lost records leaves the evidence for the next start.
    for _ in 0..2 {
        assert!(known(19).is_err_and(|error| error.ends_with("knows record 20")));
    }
    assert_eq!(fs::read_to_string(&note).expect("noted"), "20 14\n");
    fs::remove_file(&note).expect("removed");
    rustix::fs::mkfifoat(rustix::fs::CWD, &note, rustix::fs::Mode::RUSR).expect("a pipe");
    assert_eq!(known(22), Ok(20), "nobody waits for its other end");
    fs::remove_file(&note).expect("removed");
    // An unreadable index contains no records.
    fs::write(path.join("db"), [0x5A; 70_000]).expect("written");
    assert_eq!(known(22), Ok(0));
    assert!(folder.path().join("index.damaged").exists());
}

#[test]
fn a_folder_in_the_place_of_the_note_is_damage() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("index");
    for name in ["knows", "knows.tmp"] {
        drop(filled(&path));
        let _ = fs::remove_file(path.join(name));
        fs::create_dir(path.join(name)).expect("made");
        assert_eq!(Index::open(&path).expect("opens").upto(), 0);
        assert!(folder.path().join("index.damaged").join(name).is_dir());
    }
}

#[test]
fn the_index_waits_for_a_store_that_is_released_late() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("index");
    let index = filled(&path);
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(index);
    });
    drop(as_it_was(&path));
    holder.join().expect("ended");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// With any damage to its files the index opens, and returns only entries that were added.
    #[test]
    fn damaged_files_are_put_aside(
        at in any::<prop::sample::Index>(),
        noise in proptest::collection::vec(any::<u8>(), 1..64),
        cut in any::<bool>(),
        which in 0..2,
    ) {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("index");
        let index = filled(&path);
        index.flush().expect("flushed");
        let whole = ask(&index, 0, None, 99, false);
        drop(index);
        let file = path.join(if which == 0 { "db" } else { "conf" });
        let mut bytes = fs::read(&file).expect("read");
        let at = at.index(bytes.len().min(4096));
        if cut {
            bytes.truncate(at);
        } else {
            let until = (at + noise.len()).min(bytes.len());
            bytes[at..until].copy_from_slice(&noise[..until - at]);
        }
        fs::write(&file, bytes).expect("written");
        let opened = Index::open(&path).expect("opens");
        let found = ask(&opened, 0, None, 99, false);
        prop_assert!(whole.starts_with(&found));
        let upto = usize::try_from(opened.upto()).expect("small");
        prop_assert_eq!(found.len(), 2 * upto);
    }
}
