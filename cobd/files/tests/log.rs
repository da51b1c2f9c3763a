//! Records that are not in the repository yet survive a kill, count once, and a torn end costs no complete record.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_files::{Content, Files, Job, NoVault, Reason, State, TreePath, Wanted};

fn open(folder: &Path) -> Files {
    Files::open(&folder.join("files"), Arc::new(NoVault)).expect("opened")
}

fn wanted(host: &Path, name: &str, text: &str) -> Wanted {
    let path = host.join(name).display().to_string();
    let json = serde_json::json!({"files": {path: {"content": text}}});
    let content: Content = serde_json::from_value(json).expect("a content");
    Wanted::new(content, host, &format!("{name} {text}")).expect("makes sense")
}

fn apply(files: &Files, cob: &str, wanted: &Wanted) {
    files.apply(&Job { cob, generation: 1, wanted, is_cancelled: &|| false }).expect("applied");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("listed").flatten() {
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let log = fs::read_dir(folder.join("files/store.git/log")).expect("listed").flatten();
    let mut all: Vec<_> = log.map(|entry| entry.path()).collect();
    all.sort();
    all
}

/// A copy of the disk's state, as if the process were killed now.
fn killed(folder: &Path) -> tempfile::TempDir {
    let after = tempfile::tempdir().expect("a folder");
    copy(&folder.join("files"), &after.path().join("files"));
    after
}

#[test]
fn waiting_log_records_survive_a_kill_and_count_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("host");
    fs::create_dir(&host).expect("made");
    fs::write(host.join("x"), "before\n").expect("written");
    let (files, tree) = (open(folder.path()), wanted(&host, "x", "one\n"));
    apply(&files, "n1/x", &tree);
    let after = killed(folder.path());
    assert!(fs::metadata(segments(after.path()).last().expect("one")).expect("there").len() > 100, "it waits");
    let again = open(after.path());
    assert_eq!(again.check("n1/x", &tree).expect("looked").state, State::Present);
    let log = again.log("n1/x", 10).expect("read");
    assert_eq!(log.iter().map(|v| v.info.reason).collect::<Vec<_>>(), [Reason::Applied, Reason::Before]);
    let path = TreePath::new(host.join("x").to_str().expect("text")).expect("a path");
    assert_eq!(again.before("n1/x", &log[0].id, &path).expect("kept"), b"before\n");
    // The repository has the record, and the log still has it: it counts once.
    let kept = segments(after.path());
    drop(again);
    let old = after.path().join("old");
    copy(&folder.path().join("files/store.git/log"), &old);
    for entry in fs::read_dir(&old).expect("listed").flatten() {
        let place = after.path().join("files/store.git/log").join(entry.file_name());
        assert!(!kept.contains(&place), "the segment was removed");
        fs::copy(entry.path(), place).expect("put back");
    }
    assert_eq!(open(after.path()).log("n1/x", 10).expect("read").len(), 2);
}

#[test]
fn a_torn_end_loses_no_earlier_record_and_other_damage_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("host");
    fs::create_dir(&host).expect("made");
    let files = open(folder.path());
    let trees: Vec<_> = (0..3).map(|n| wanted(&host, &format!("f{n}"), "text\n")).collect();
    for (n, tree) in trees.iter().enumerate() {
        apply(&files, &format!("n1/f{n}"), tree);
    }
    let whole = killed(folder.path());
    let segment = segments(whole.path()).pop().expect("one");
    let bytes = fs::read(&segment).expect("read");
    for cut in [1, 7, 8, 9, 15, 16, 100, bytes.len() / 2, bytes.len() - 1] {
        let torn = tempfile::tempdir().expect("a folder");
        copy(&whole.path().join("files"), &torn.path().join("files"));
        let segment = segments(torn.path()).pop().expect("one");
        fs::write(&segment, &bytes[..cut]).expect("cut");
        // Twice: the cut segment is no longer the newest then, and must not count as damaged.
        drop(open(torn.path()));
        let files = open(torn.path());
        let known = (0..3).filter(|n| !files.log(&format!("n1/f{n}"), 9).expect("read").is_empty()).count();
        assert!(known <= cut * 3 / bytes.len() + 1, "{known} of {cut}");
        // The store continues to work.
        apply(&files, "n1/f0", &trees[0]);
        assert_eq!(files.check("n1/f0", &trees[0]).expect("looked").state, State::Present);
    }
    // In an older segment, an incomplete frame is damage: it was acknowledged.
    fs::write(&segment, &bytes[..bytes.len() - 1]).expect("cut");
    let newer = segment.with_file_name(format!("{:020}", 99));
    fs::write(newer, b"cobfile1").expect("written");
    let told = Files::open(&whole.path().join("files"), Arc::new(NoVault)).err().expect("refused").to_string();
    assert!(told.contains("is damaged at byte"), "{told}");
    fs::write(&segment, b"cobfile2 and more").expect("written");
    let told = Files::open(&whole.path().join("files"), Arc::new(NoVault)).err().expect("refused").to_string();
    assert!(told.contains("newer cobd"), "{told}");
}

#[test]
fn trees_with_common_new_folders_are_created_at_the_same_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("host");
    let files = open(folder.path());
    std::thread::scope(|scope| {
        for n in 0..64 {
            let (files, host) = (&files, &host);
            scope.spawn(move || {
                let tree = wanted(host, &format!("a/b{}/c/f{n}", n % 4), "text\n");
                apply(files, &format!("n1/f{n}"), &tree);
                assert_eq!(files.check(&format!("n1/f{n}"), &tree).expect("looked").state, State::Present);
            });
        }
    });
    files.settle().expect("written");
    let repo = git2::Repository::open_bare(folder.path().join("files/store.git")).expect("a repository");
    let mut walk = repo.revwalk().expect("walked");
    walk.push_head().expect("a branch");
    let packs = fs::read_dir(folder.path().join("files/store.git/objects/pack")).expect("listed").count() / 2;
    // A single pack, unless the machine was so busy that a flush happened meanwhile.
    assert!((1..10).contains(&packs), "{packs} packs for 128 records");
    let commits = walk.count();
    assert!(commits <= 2 * packs, "{commits} commits: all of before in one, all that was applied in the next");
}

#[test]
fn records_left_in_the_log_count_at_once_and_reach_the_repository_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("host");
    fs::create_dir(&host).expect("made");
    fs::write(host.join("x"), "before\n").expect("written");
    let tree = wanted(&host, "x", "text\n");
    apply(&open(folder.path()), "n1/x", &tree);
    let after = killed(folder.path());
    let head = |folder: &Path| {
        let repo = git2::Repository::open_bare(folder.join("files/store.git")).expect("a repository");
        repo.refname_to_id("refs/heads/main").ok()
    };
    // The next record builds on a record that is only in the log, and is newer than it.
    let files = open(after.path());
    assert_eq!(files.check("n1/x", &tree).expect("looked").state, State::Present);
    let newer = wanted(&host, "x", "newer text\n");
    assert_eq!(files.check("n1/x", &newer).expect("looked").state, State::Outdated);
    apply(&files, "n1/x", &newer);
    // Old versions are pruned in the background.
    files.prune_later(u64::MAX);
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let commits = || {
        let repo = git2::Repository::open_bare(after.path().join("files/store.git")).expect("a repository");
        let mut walk = repo.revwalk().expect("walked");
        walk.push_head().map_or(0, |()| walk.count())
    };
    while head(after.path()).is_none() || commits() != 1 {
        assert!(std::time::Instant::now() < limit, "it has not come there");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(files.check("n1/x", &newer).expect("looked").state, State::Present);
    // The entry from before the first version is still known.
    files.retire(&Job { cob: "n1/x", generation: 3, wanted: &newer, is_cancelled: &|| false }).expect("retired");
    assert_eq!(fs::read_to_string(host.join("x")).expect("back"), "before\n");
}
