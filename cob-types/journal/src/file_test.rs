//! The journal in files: records that survive a cut or an altered byte at any place, and refused states.

use proptest::prelude::*;

use super::*;

const KEEP: Keep = Keep { segments: 2, bytes: 0 };

impl FileJournal {
    /// The committed and kept records from `seq` on, oldest first, including snapshots, read independently of [`Past`].
    ///
    /// [`Past`]: crate::Past
    pub(crate) fn entries_since(&self, seq: u64) -> Box<dyn Iterator<Item = Result<Entry, JournalError>> + '_> {
        let all = match segments(&self.folder) {
            Ok(all) => all,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        // The last segment that starts at or before `seq`, and all later segments.
        let begin = all.iter().rposition(|first| *first <= seq).unwrap_or(0);
        let wanted = all.into_iter().skip(begin).filter(|first| *first <= self.segment);
        Box::new(
            wanted.flat_map(move |first| self.kept(first)).filter(move |e| e.as_ref().map_or(true, |e| e.seq >= seq)),
        )
    }

    /// The committed records of a kept segment; an error in it comes after its good records.
    fn kept(&self, segment: u64) -> Vec<Result<Entry, JournalError>> {
        let path = self.folder.join(name(segment));
        let mut bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) => return vec![Err(error)],
        };
        if segment == self.segment {
            bytes.truncate(usize::try_from(self.committed).unwrap_or(usize::MAX));
        }
        let scan = record::scan(&bytes, segment);
        let fault = fault(&path, &scan);
        scan.entries.into_iter().map(Ok).chain(fault.map(Err)).collect()
    }
}

fn open(folder: &Path) -> Opened {
    try_open(folder).expect("opens")
}

/// Opens the journal as soon as its lock is free: a process that another test is just starting holds every lock of this
/// process, for the moment between fork and exec.
fn try_open(folder: &Path) -> Result<Opened, JournalError> {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(120);
    loop {
        match FileJournal::open(folder, KEEP) {
            Err(JournalError::InUse { .. }) if std::time::Instant::now() < limit => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

fn payloads(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|e| String::from_utf8_lossy(&e.payload).into_owned()).collect()
}

fn history(journal: &FileJournal, seq: u64) -> Vec<String> {
    payloads(&journal.entries_since(seq).map(|e| e.expect("readable")).collect::<Vec<_>>())
}

/// Appends and commits each text separately.
fn write(journal: &mut FileJournal, texts: &[&str]) {
    for text in texts {
        journal.append(text.as_bytes()).expect("taken");
        journal.commit().expect("committed");
    }
}

#[test]
fn committed_records_come_back_and_uncommitted_records_do_not() {
    let folder = tempfile::tempdir().expect("folder");
    let mut opened = open(folder.path());
    assert!(opened.entries.is_empty() && opened.torn.is_none());
    assert_eq!(opened.journal.append(b"a").expect("taken"), 1);
    assert_eq!(opened.journal.append(b"").expect("taken"), 2);
    opened.journal.commit().expect("committed");
    assert_eq!(opened.journal.append(b"never").expect("taken"), 3);
    drop(opened);
    let opened = open(folder.path());
    assert_eq!(payloads(&opened.entries), ["a", ""]);
    assert_eq!(opened.journal.last_seq(), 2);
}

#[test]
fn a_burst_is_held_in_little_memory_and_shown_only_after_the_commit() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    write(&mut journal, &["one"]);
    let burst = vec![b'x'; 10 << 10];
    for _ in 0..60 {
        journal.append(&burst).expect("taken");
        assert!(journal.held.len() < MAX_HELD);
    }
    let end = journal.segment_bytes();
    assert!(end > 600 << 10 && fs::metadata(journal.path()).expect("a file").len() > 500 << 10);
    assert_eq!(history(&journal, 0), ["one"]);
    // A daemon that ends here has done no work that relies on it: a prefix of the records may come back.
    drop(journal);
    let Opened { mut journal, entries, torn } = open(folder.path());
    assert!(torn.is_none() && (51..61).contains(&entries.len()), "{}", entries.len());
    for _ in 0..60 {
        journal.append(&burst).expect("taken");
    }
    journal.commit().expect("committed");
    assert_eq!(history(&journal, 0).len(), entries.len() + 60);
    drop(journal);
    assert_eq!(open(folder.path()).entries.len(), entries.len() + 60);
}

#[test]
fn a_second_daemon_on_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let first = open(folder.path());
    assert!(matches!(FileJournal::open(folder.path(), KEEP), Err(JournalError::InUse { .. })));
    drop(first);
    open(folder.path());
}

#[test]
fn a_crash_at_every_byte_leaves_a_prefix() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    journal.rotate(b"snapshot").expect("rotated");
    let whole = usize::try_from(journal.segment_bytes()).expect("small");
    write(&mut journal, &["one", "two", "three"]);
    let path = journal.path();
    drop(journal);
    let bytes = fs::read(&path).expect("read");
    for length in (whole..=bytes.len()).rev() {
        fs::write(&path, &bytes[..length]).expect("written");
        let mut opened = open(folder.path());
        let found = payloads(&opened.entries);
        assert_eq!(found, ["snapshot", "one", "two", "three"][..found.len()], "cut at {length}");
        let torn = opened.torn.as_ref().map_or(0, |t| t.bytes);
        assert_eq!(opened.journal.segment_bytes() + torn, length as u64, "no more than the tail is cut");
        assert_eq!(fs::read(&path).expect("read").len(), length, "opening it changes nothing");
        // The journal continues from there.
        let seq = opened.journal.append(b"next").expect("taken");
        assert_eq!(seq, 2 + found.len() as u64);
        opened.journal.commit().expect("committed");
        drop(opened);
        assert_eq!(payloads(&open(folder.path()).entries).last().map(String::as_str), Some("next"));
    }
    // The snapshot was durable before the segment appeared, so it can't be torn.
    fs::write(&path, &bytes[..whole - 1]).expect("written");
    let error = try_open(folder.path()).map(drop).expect_err("refused").to_string();
    assert!(error.contains("snapshot") && error.contains("byte 0"), "{error}");
}

#[test]
fn damage_in_the_middle_stops_with_the_place_and_the_way_out() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    write(&mut journal, &["one", "two", "three"]);
    let path = journal.path();
    drop(journal);
    let mut bytes = fs::read(&path).expect("read");
    bytes[27 + 25] ^= 4;
    fs::write(&path, &bytes).expect("written");
    let error = try_open(folder.path()).map(drop).expect_err("refused").to_string();
    for word in [path.to_str().expect("text"), "byte 27", "record 2", "record 3", "Way out"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert_eq!(fs::read(&path).expect("read"), bytes, "nothing was touched");
}

/// Two segments: damage in the newest stops the daemon or, in the last record, is cut with a warning; damage in the
/// older is reported when the history is read. Wrong records are never returned.
#[test]
fn every_altered_byte_is_named_or_cut_from_the_end() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    write(&mut journal, &["one", "two"]);
    let old = journal.path();
    journal.rotate(b"snapshot").expect("rotated");
    let before_last = {
        write(&mut journal, &["three", "four"]);
        usize::try_from(journal.segment_bytes()).expect("small")
    };
    write(&mut journal, &["five"]);
    let new = journal.path();
    drop(journal);
    let right = ["one", "two", "snapshot", "three", "four", "five"];
    let mut cut = 0;
    for path in [&old, &new] {
        let bytes = fs::read(path).expect("read");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut altered = bytes.clone();
                altered[at] ^= 1 << bit;
                fs::write(path, &altered).expect("written");
                let place = format!("{}: bit {bit} of byte {at}", path.display());
                match try_open(folder.path()) {
                    Err(error) => {
                        assert!(path == &new, "{place}: recovery needs the newest segment alone");
                        let said = error.to_string();
                        assert!(
                            said.contains(path.to_str().expect("text")) && said.contains("byte "),
                            "{place}: {said}"
                        );
                        assert_eq!(fs::read(path).expect("read"), altered, "{place}: nothing was touched");
                    }
                    Ok(opened) if path == &new => {
                        assert!(at >= before_last && opened.torn.is_some(), "{place}: not noticed");
                        assert_eq!(payloads(&opened.entries), right[2..5], "{place}");
                        cut += 1;
                    }
                    Ok(opened) => {
                        assert!(opened.torn.is_none(), "{place}");
                        assert_eq!(payloads(&opened.entries), right[2..], "{place}");
                        let told: Vec<_> = opened.journal.entries_since(0).collect();
                        assert!(told.iter().any(Result::is_err), "{place}: not noticed");
                        for entry in told.iter().flatten() {
                            let seq = usize::try_from(entry.seq).expect("small");
                            assert_eq!(entry.payload, right[seq - 1].as_bytes(), "{place}: record {seq}");
                        }
                    }
                }
            }
        }
        fs::write(path, &bytes).expect("written");
    }
    assert!(cut > 0, "the last record can be torn");
    assert_eq!(history(&open(folder.path()).journal, 0), right);
}

#[test]
fn rotation_keeps_a_bounded_history() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    for round in 0..5 {
        write(&mut journal, &[&format!("r{round}a"), &format!("r{round}b")]);
        assert_eq!(journal.rotate(format!("s{round}").as_bytes()).expect("rotated"), 3 * (round + 1));
    }
    write(&mut journal, &["last"]);
    assert_eq!(segments(folder.path()).expect("list").len(), 3, "two old ones and the current one");
    assert_eq!(history(&journal, 0), ["s2", "r3a", "r3b", "s3", "r4a", "r4b", "s4", "last"]);
    assert_eq!(history(&journal, 14), ["r4b", "s4", "last"]);
    assert_eq!(history(&journal, 17), [""; 0]);
    drop(journal);
    assert_eq!(payloads(&open(folder.path()).entries), ["s4", "last"], "recovery needs the newest alone");
    // More segments are kept while they are short.
    let long = |segment: &u64| fs::metadata(folder.path().join(name(*segment))).expect("there").len();
    let kept = |bytes| {
        drop(FileJournal::open(folder.path(), Keep { segments: 1, bytes }).expect("opens"));
        segments(folder.path()).expect("list")
    };
    let all = segments(folder.path()).expect("list");
    let older: u64 = all[..2].iter().map(long).sum();
    assert_eq!((kept(older), kept(older - 1)), (all.clone(), all[1..].to_vec()));
}

/// Segments older than the newest take bounded space, even if the snapshots are as long as other hosts make them.
#[test]
fn long_segments_are_not_kept_beyond_their_bound() {
    let most = Keep::FOR_HISTORY.bytes;
    for (snapshot, payload) in [(24 << 20, 1 << 20), (1 << 10, 12 << 20), (most as usize + (8 << 20), 1 << 10)] {
        let folder = tempfile::tempdir().expect("folder");
        let mut journal = FileJournal::open(folder.path(), Keep::FOR_HISTORY).expect("opens").journal;
        let (snapshot, payload) = (vec![b's'; snapshot], vec![b'p'; payload]);
        for _ in 0..8 {
            journal.append(&payload).expect("taken");
            journal.rotate(&snapshot).expect("rotated");
        }
        let long = |segment: u64| fs::metadata(folder.path().join(name(segment))).expect("there").len();
        let mut all = segments(folder.path()).expect("list");
        assert_eq!(all.pop(), Some(journal.segment), "the newest is there");
        let older: u64 = all.iter().copied().map(long).sum();
        assert!(older <= most || all.len() == 1, "{older} bytes in {} segments", all.len());
        assert!(!all.is_empty(), "the history can be read anew");
    }
}

#[test]
fn recovery_does_not_read_old_segments_and_history_names_their_damage() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    write(&mut journal, &["one", "two"]);
    let old = journal.path();
    journal.rotate(b"snapshot").expect("rotated");
    drop(journal);
    let mut bytes = fs::read(&old).expect("read");
    bytes[30] ^= 1;
    fs::write(&old, bytes).expect("written");
    let opened = open(folder.path());
    assert_eq!(payloads(&opened.entries), ["snapshot"]);
    let found = opened.journal.entries_since(0).collect::<Vec<_>>();
    let good = found.iter().filter_map(|e| e.as_ref().ok()).map(|e| e.seq).collect::<Vec<_>>();
    assert_eq!(good, [1, 3]);
    assert!(matches!(found[1], Err(JournalError::Damaged { .. })), "{:?}", found[1]);
}

#[test]
fn an_empty_journal_can_be_rotated() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    assert_eq!(journal.rotate(b"s").expect("rotated"), 2);
    drop(journal);
    let opened = open(folder.path());
    assert_eq!((payloads(&opened.entries), opened.journal.last_seq()), (vec!["s".to_owned()], 2));
}

/// The states that a crash during a rotation can leave.
#[test]
fn a_crash_at_each_step_of_a_rotation_loses_no_record() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    write(&mut journal, &["one", "two"]);
    drop(journal);
    let mut snapshot = Vec::new();
    record::encode(&mut snapshot, 3, What::Snapshot, 0, b"snapshot");
    // 1: while the new segment is written under its temporary name.
    let temp = folder.path().join(format!("{}{TEMP_SUFFIX}", name(3)));
    for length in 0..=snapshot.len() {
        fs::write(&temp, &snapshot[..length]).expect("written");
        assert_eq!(payloads(&open(folder.path()).entries), ["one", "two"]);
        assert!(!temp.exists(), "left-overs are cleared away");
    }
    // 2: after the rename, before the old segment is deleted.
    fs::write(folder.path().join(name(3)), &snapshot).expect("written");
    let opened = FileJournal::open(folder.path(), Keep { segments: 0, bytes: 0 }).expect("opens");
    assert_eq!(payloads(&opened.entries), ["snapshot"]);
    // 3: the next start deletes it.
    assert_eq!(segments(folder.path()).expect("list"), [3]);
}

#[test]
fn a_full_disk_stops_the_journal_and_loses_no_committed_record() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    write(&mut journal, &["one"]);
    let real = std::mem::replace(&mut journal.file, OpenOptions::new().write(true).open("/dev/full").expect("device"));
    journal.append(b"two").expect("taken");
    let error = journal.commit().expect_err("no room");
    assert!(error.to_string().contains("make room"), "{error}");
    // Even if the disk has space again: its content is not known any more.
    journal.file = real;
    for result in [journal.commit(), journal.append(b"three").map(|_| ()), journal.rotate(b"s").map(|_| ())] {
        assert!(matches!(result, Err(JournalError::Stopped { .. })), "{result:?}");
    }
    drop(journal);
    assert_eq!(payloads(&open(folder.path()).entries), ["one"]);
}

#[test]
fn a_rotation_that_fails_leaves_the_journal_in_use() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    write(&mut journal, &["one"]);
    // A folder under the temporary name can't be replaced by a file.
    let obstacle = folder.path().join(format!("{}{TEMP_SUFFIX}", name(2)));
    fs::create_dir(&obstacle).expect("made");
    assert!(matches!(journal.rotate(b"s"), Err(JournalError::Io { .. })));
    write(&mut journal, &["two"]);
    fs::remove_dir(&obstacle).expect("removed");
    journal.rotate(b"s").expect("rotated");
    drop(journal);
    assert_eq!(payloads(&open(folder.path()).entries), ["s"]);
}

#[test]
fn a_too_long_record_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    let payload = vec![0; MAX_PAYLOAD + 1];
    assert!(matches!(journal.append(&payload), Err(JournalError::TooLong { .. })));
    assert!(matches!(journal.rotate(&payload), Err(JournalError::TooLong { .. })));
    write(&mut journal, &["fine"]);
    drop(journal);
    assert_eq!(payloads(&open(folder.path()).entries), ["fine"]);
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u8>),
    Commit,
    Rotate(Vec<u8>),
    /// The process dies; this part of the open commit had reached the disk.
    Crash(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..30).prop_map(Step::Append),
        2 => Just(Step::Commit),
        1 => proptest::collection::vec(any::<u8>(), 0..30).prop_map(Step::Rotate),
        1 => any::<prop::sample::Index>().prop_map(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    /// All committed records come back, and a prefix of the open commit.
    #[test]
    fn committed_records_survive_any_sequence_of_crashes(steps in proptest::collection::vec(step(), 1..25)) {
        let folder = tempfile::tempdir().expect("folder");
        let mut journal = open(folder.path()).journal;
        let mut durable: Vec<Vec<u8>> = Vec::new();
        let mut open_commit: Vec<Vec<u8>> = Vec::new();
        for step in steps {
            match step {
                Step::Append(payload) => {
                    journal.append(&payload).expect("taken");
                    open_commit.push(payload);
                }
                Step::Commit => {
                    journal.commit().expect("committed");
                    durable.append(&mut open_commit);
                }
                Step::Rotate(snapshot) => {
                    journal.rotate(&snapshot).expect("rotated");
                    open_commit.clear();
                    durable = vec![snapshot];
                }
                Step::Crash(reached) => {
                    let torn = journal.held[..reached.index(journal.held.len() + 1)].to_vec();
                    journal.file.write_all(&torn).expect("written");
                    drop(journal);
                    let opened = open(folder.path());
                    journal = opened.journal;
                    let found: Vec<_> = opened.entries.iter().map(|e| e.payload.to_vec()).collect();
                    prop_assert!(found.starts_with(&durable));
                    prop_assert!(open_commit.starts_with(&found[durable.len()..]));
                    durable = found;
                    open_commit.clear();
                }
            }
        }
    }
}

#[test]
fn a_lost_newest_segment_is_detected() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    write(&mut journal, &["one", "two"]);
    journal.rotate(b"snapshot").expect("rotated");
    write(&mut journal, &["three"]);
    let path = journal.path();
    drop(journal);
    let bytes = fs::read(&path).expect("read");
    fs::remove_file(&path).expect("removed");
    let error = try_open(folder.path()).map(drop).expect_err("the older one is no truth");
    assert!(matches!(&error, JournalError::Lost { file, .. } if *file == path), "{error}");
    assert!(!path.exists() && error.to_string().contains("Way out"), "{error}");
    fs::write(&path, bytes).expect("put back");
    assert_eq!(payloads(&open(folder.path()).entries), ["snapshot", "three"]);
    // If the only segment is missing, that is noticed, too.
    fs::read_dir(folder.path()).expect("read").map(|e| e.expect("an entry").path()).for_each(|path| {
        if path.extension().is_some_and(|e| e == "journal") {
            fs::remove_file(path).expect("removed");
        }
    });
    assert!(matches!(try_open(folder.path()), Err(JournalError::Lost { .. })));
}

#[test]
fn an_empty_journal_is_a_loss_only_on_a_host_that_was_in_use() {
    let state = tempfile::tempdir().expect("folder");
    let (folder, trace) = (state.path().join("journal"), state.path().join("boot-id"));
    let used = || FileJournal::hold(&folder).expect("free").open(KEEP, Some(&trace));
    assert!(matches!(used(), Err(JournalError::Lost { what, .. }) if what == "this file is missing"));
    assert!(!folder.join("newest").exists(), "nothing is written where it is refused");
    // After a first start that ended before or in its first record, the journal may start again.
    drop(open(&folder));
    assert!(matches!(used(), Err(JournalError::Lost { what, .. }) if what == "it holds no record"));
    let mut journal = open(&folder).journal;
    write(&mut journal, &["one"]);
    let path = journal.path();
    drop(journal);
    drop(used().expect("it has a record"));
    let bytes = fs::read(&path).expect("read");
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).expect("cut");
        assert!(matches!(used(), Err(JournalError::Lost { .. })), "{cut}");
        assert_eq!(fs::read(&path).expect("read"), bytes[..cut], "nothing is cut off where it is refused");
        assert!(open(&folder).entries.is_empty(), "{cut}");
    }
}

#[test]
fn a_journal_resumes_without_the_records_of_the_failed_commit() {
    for refused in [true, false] {
        let folder = tempfile::tempdir().expect("folder");
        let mut journal = open(folder.path()).journal;
        write(&mut journal, &["one"]);
        for lost in ["lost", "lost too"] {
            journal.append(lost.as_bytes()).expect("taken");
        }
        journal.write_held("writing").expect("written");
        journal.stopped = Some(Stopped { because: "the test says so".to_owned(), refused });
        journal.append(b"refused").expect_err("stopped");
        journal.resume(&mut |to| to.write_all(b"snapshot of one")).expect("resumed");
        write(&mut journal, &["two"]);
        drop(journal);
        let expected = if refused { ["one", "two"] } else { ["snapshot of one", "two"] };
        let opened = open(folder.path());
        assert_eq!(payloads(&opened.entries), expected);
        assert!(opened.torn.is_none() && opened.journal.last_seq() >= 2);
    }
}

#[test]
fn a_journal_that_cannot_resume_stays_stopped() {
    let folder = tempfile::tempdir().expect("folder");
    let mut journal = open(folder.path()).journal;
    write(&mut journal, &["one"]);
    journal.stopped = Some(Stopped { because: "the test says so".to_owned(), refused: false });
    journal.resume(&mut |_| Err(io::Error::other("no snapshot"))).expect_err("no snapshot");
    journal.append(b"two").expect_err("still stopped");
    journal.resume(&mut |to| to.write_all(b"snapshot")).expect("resumed");
    write(&mut journal, &["two"]);
    drop(journal);
    assert_eq!(payloads(&open(folder.path()).entries), ["snapshot", "two"]);
}
