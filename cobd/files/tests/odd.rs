//! Odd cases: full disk, read-only disk, large trees, strange contents. COB does the right thing or reports the reason,
//! and no data is lost. Tests that need a mount are skipped if mounting is not permitted.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cob_files::{Applied, Content, Files, FilesError, Job, NoVault, State, TreePath, Wanted};

const COB: &str = "n1/files";

fn open(folder: &Path) -> Files {
    Files::open(&folder.join("files"), Arc::new(NoVault)).expect("opened")
}

fn wanted(json: serde_json::Value, payload: &Path) -> Wanted {
    let spec = json.to_string();
    let content: Content = serde_json::from_value(json).expect("a content");
    Wanted::new(content, payload, &spec).expect("makes sense")
}

fn apply(files: &Files, wanted: &Wanted) -> Result<Applied, FilesError> {
    files.apply(&Job { cob: COB, generation: 1, wanted, is_cancelled: &|| false })
}

fn retire(files: &Files, wanted: &Wanted) -> Result<Applied, FilesError> {
    files.retire(&Job { cob: COB, generation: 1, wanted, is_cancelled: &|| false })
}

/// A small file system, mounted until it is dropped.
struct Mount(PathBuf);

impl Mount {
    /// `None` if mounting is not permitted.
    fn new(path: &Path, options: &str) -> Option<Self> {
        fs::create_dir_all(path).expect("made");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(path.to_owned()));
        }
        eprintln!("nothing can be mounted here: left out");
        None
    }

    fn remount(&self, options: &str) {
        let mounted = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0).status();
        assert!(mounted.expect("run").success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_keeps_the_old_content_and_gives_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mount) = Mount::new(&folder.path().join("small"), "size=256k") else { return };
    let files = open(folder.path());
    let (path, other) = (mount.0.join("x.conf"), mount.0.join("y.conf"));
    let tree = |text: &str| {
        wanted(
            serde_json::json!({"files": {(path.to_str().expect("text")): {"content": text},
                (other.to_str().expect("text")): {"content": "small\n"}}}),
            folder.path(),
        )
    };
    apply(&files, &tree("first\n")).expect("there is room");
    let large = tree(&"x".repeat(400 << 10));
    let error = apply(&files, &large).expect_err("there is no room").to_string();
    assert!(error.contains("x.conf") && error.contains("make room"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("read"), "first\n");
    assert_eq!(fs::read_dir(&mount.0).expect("listed").count(), 2, "nothing is left beside");
    assert_eq!(files.check(COB, &large).expect("looked").state, State::Outdated);
    // The action succeeds when there is space; a rollback needs none.
    mount.remount("size=2m");
    apply(&files, &large).expect("there is room");
    retire(&files, &large).expect("retired");
    assert_eq!(fs::read_dir(&mount.0).expect("listed").count(), 0);
}

#[test]
fn a_read_only_file_system_stays_unchanged_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mount) = Mount::new(&folder.path().join("fixed"), "size=256k") else { return };
    let files = open(folder.path());
    let path = mount.0.join("x.conf");
    let tree = |text: &str| {
        wanted(serde_json::json!({"files": {(path.to_str().expect("text")): {"content": text}}}), folder.path())
    };
    apply(&files, &tree("first\n")).expect("applied");
    mount.remount("ro");
    for moved in [apply(&files, &tree("second\n")), retire(&files, &tree("first\n"))] {
        let error = moved.expect_err("read-only").to_string();
        assert!(error.contains("read-only") && error.contains("cobctl retry"), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).expect("read"), "first\n");
    mount.remount("rw");
    retire(&files, &tree("first\n")).expect("retired");
    assert!(!path.exists());
}

#[test]
fn another_file_system_below_a_whole_folder_is_not_entered() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = folder.path().join("whole");
    let Some(mount) = Mount::new(&whole.join("mounted"), "size=64k") else { return };
    fs::write(mount.0.join("precious"), "x").expect("written");
    let files = open(folder.path());
    let tree = wanted(
        serde_json::json!({"files": {(whole.to_str().expect("text")): {"folder": true, "whole": true}}}),
        folder.path(),
    );
    let error = apply(&files, &tree).expect_err("a mount").to_string();
    assert!(error.contains("another file system is mounted"), "{error}");
    assert!(mount.0.join("precious").exists());
}

#[test]
fn all_kinds_of_contents_are_written_and_restored_byte_for_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("host");
    fs::create_dir(&host).expect("made");
    let files = open(folder.path());
    let contents: [(&str, &[u8]); 5] = [
        ("binary", b"\x00\xff\x00\xfe"),
        ("windows", b"a\r\nb\r\n"),
        ("no-end", b"a\nb"),
        ("empty", b""),
        (".gitattributes", b"* text=auto\n"),
    ];
    let mut entries = serde_json::Map::new();
    for (name, bytes) in contents {
        fs::write(folder.path().join(name), bytes.iter().rev().copied().collect::<Vec<_>>()).expect("the payload");
        fs::write(host.join(name), bytes).expect("what was before");
        entries.insert(host.join(name).display().to_string(), serde_json::json!({"from": name, "manage": "merge"}));
    }
    let tree = wanted(serde_json::json!({ "files": entries }), folder.path());
    apply(&files, &tree).expect("applied");
    for (name, bytes) in contents {
        let reversed: Vec<_> = bytes.iter().rev().copied().collect();
        assert_eq!(fs::read(host.join(name)).expect("read"), reversed, "{name}");
    }
    retire(&files, &tree).expect("retired");
    for (name, bytes) in contents {
        assert_eq!(fs::read(host.join(name)).expect("read"), bytes, "{name}");
    }
}

#[test]
fn extended_attributes_and_names_that_are_no_text_are_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("host");
    fs::create_dir(&host).expect("made");
    let strange = host.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff\xfe x"));
    fs::write(&strange, "strange").expect("written");
    let path = host.join("x");
    fs::write(&path, "before").expect("written");
    let set = rustix::fs::setxattr(&path, "user.origin", b"theirs", rustix::fs::XattrFlags::empty());
    let attributes = set.is_ok();
    let files = open(folder.path());
    let mut item = serde_json::json!({"content": "ours"});
    if attributes {
        item["xattrs"] = serde_json::json!({"user.origin": "ours"});
    }
    let tree = wanted(
        serde_json::json!({"files": {(host.to_str().expect("text")): {"folder": true, "whole": true},
            (path.to_str().expect("text")): item}}),
        folder.path(),
    );
    let read = || {
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(&path, "user.origin", &mut value).expect("there");
        value[..length].to_vec()
    };
    apply(&files, &tree).expect("applied");
    assert!(!strange.exists());
    if attributes {
        assert_eq!(read(), b"ours");
    }
    retire(&files, &tree).expect("retired");
    assert_eq!(fs::read_to_string(&strange).expect("back"), "strange");
    assert_eq!(fs::read_to_string(&path).expect("back"), "before");
    if attributes {
        assert_eq!(read(), b"theirs");
    }
}

/// `COB_FILES=100000` sets the size that the design promises; the figures are printed.
#[test]
fn a_large_tree_is_applied_changed_and_removed() {
    let count: usize = std::env::var("COB_FILES").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    let base = std::env::var_os("COB_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(base).expect("a folder");
    let host = folder.path().join("host");
    fs::create_dir(&host).expect("made");
    let tree = |changed: usize, manage: &str| {
        let file = |n: usize| {
            let lines: String = (0..10).map(|line| format!("line {line} of {n}\n")).collect();
            let text = format!("{lines}setting = {}\n{lines}", usize::from(n < changed));
            (
                host.join(format!("d{}/f{n}", n % 100)).display().to_string(),
                serde_json::json!({"content": text, "manage": manage}),
            )
        };
        wanted(serde_json::json!({"files": (0..count).map(file).collect::<serde_json::Map<_, _>>()}), folder.path())
    };
    let mut files = open(folder.path());
    let timed = |what: &str, begun: Instant| {
        let took: Duration = begun.elapsed();
        println!("{count} files: {what} {took:.2?}");
    };
    let (first, second) = (tree(0, "merge"), tree(1, "merge"));
    let begun = Instant::now();
    assert!(apply(&files, &first).expect("applied").changed >= count);
    timed("first apply", begun);
    let begun = Instant::now();
    assert_eq!(files.check(COB, &first).expect("looked").state, State::Present);
    timed("check", begun);
    let begun = Instant::now();
    assert_eq!(apply(&files, &second).expect("applied").changed, 1);
    timed("one file changed", begun);
    for n in 0..100 {
        let path = host.join(format!("d{}/f{n}", n % 100));
        let text = fs::read_to_string(&path).expect("read");
        fs::write(&path, format!("mine\n{text}")).expect("edited");
    }
    files.settle().expect("written");
    files = open(folder.path());
    let third = tree(count, "merge");
    let begun = Instant::now();
    apply(&files, &third).expect("merged");
    timed("all changed, 100 merged with edits", begun);
    let merged = fs::read_to_string(host.join("d7/f7")).expect("read");
    assert!(merged.starts_with("mine\n") && merged.contains("setting = 1\n"), "{merged}");
    let path = TreePath::new(host.join("d7/f7").to_str().expect("text")).expect("a path");
    files.resolve(COB, &third, true, None, None, &cob_files::Choice::Theirs).expect("the edited ones are in conflict");
    let begun = Instant::now();
    retire(&files, &third).expect("retired");
    timed("taken back", begun);
    assert_eq!(fs::read_dir(&host).expect("listed").count(), 0);
    let log = files.log(COB, 2).expect("read");
    assert!(String::from_utf8_lossy(&files.content(COB, &log[1].id, &path).expect("kept")).starts_with("mine\n"));
}

#[test]
fn a_thousand_generations_stay_small_and_each_can_be_restored() {
    let rounds: u64 = std::env::var("COB_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.conf");
    let files = open(folder.path());
    let text = |round: u64| {
        (0..200).map(|n| format!("setting {n} = {}\n", if n == round % 200 { round } else { 0 })).collect::<String>()
    };
    let tree = |round| {
        wanted(serde_json::json!({"files": {(path.to_str().expect("text")): {"content": text(round)}}}), folder.path())
    };
    for round in 0..rounds {
        apply(&files, &tree(round)).expect("applied");
    }
    let packs = || fs::read_dir(folder.path().join("files/store.git/objects/pack")).expect("listed").count();
    files.settle().expect("settled");
    assert!(packs() <= 2 * 51 + 2, "small packs are made one: {}", packs());
    let log = files.log(COB, usize::MAX).expect("read");
    let tree_path = TreePath::new(path.to_str().expect("text")).expect("a path");
    for (n, version) in log.iter().filter(|v| v.info.reason == cob_files::Reason::Applied).enumerate() {
        let content = files.content(COB, &version.id, &tree_path).expect("kept");
        assert_eq!(String::from_utf8_lossy(&content), text(rounds - 1 - n as u64));
    }
    let size = |folder: &Path| -> u64 {
        let entries = fs::read_dir(folder).expect("listed").flatten();
        entries.map(|e| e.metadata().map_or(0, |m| m.len())).sum()
    };
    let pack = folder.path().join("files/store.git/objects/pack");
    println!("{rounds} generations of a file of {} bytes: {} bytes", text(0).len(), size(&pack));
    // Prune all versions except the newest.
    let before = size(&pack);
    assert_eq!(files.prune(u64::MAX).expect("pruned"), 1);
    assert!(size(&pack) < before / 10, "{} of {before}", size(&pack));
    assert_eq!(files.check(COB, &tree(rounds - 1)).expect("looked").state, State::Present);
    assert_eq!(files.log(COB, 10).expect("read").len(), 1);
    let again = open(folder.path());
    apply(&again, &tree(rounds)).expect("applied");
    retire(&again, &tree(rounds)).expect("retired");
    assert!(!path.exists());
}

#[test]
fn an_unknown_owner_is_reported_and_does_not_block_a_departure() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = open(folder.path());
    let path = folder.path().join("x.conf");
    let of = |owner: &str| {
        let file = serde_json::json!({"content": "mine\n", "owner": owner});
        wanted(serde_json::json!({"files": {(path.to_str().expect("text")): file}}), folder.path())
    };
    let nobody = of("nobodyatall");
    let checked = files.check(COB, &nobody).expect("it can be told");
    assert_eq!(checked.state, State::Absent);
    assert!(checked.difference.contains("there is no user \"nobodyatall\""), "{}", checked.difference);
    assert!(matches!(apply(&files, &nobody), Err(FilesError::Unknown { .. })));
    assert!(!path.exists(), "nothing was changed");
    retire(&files, &nobody).expect("nothing is there to be taken back");

    // An owner that was deleted since does not hinder the check or the retirement of the file.
    let me = rustix::process::geteuid().as_raw().to_string();
    apply(&files, &of(&me)).expect("applied");
    let checked = files.check(COB, &nobody).expect("it can be told");
    assert_eq!(checked.state, State::Outdated, "another content");
    retire(&files, &nobody).expect("taken back");
    assert!(!path.exists());
}

/// A user edits while the tree is applied: during the reads, during the staging, and while files are moved into place.
#[test]
fn an_edit_during_the_application_of_a_tree_is_merged_or_kept() {
    const FILES: usize = 400;
    let folder = tempfile::tempdir().expect("a folder");
    let files = open(folder.path());
    let at = |n: usize| folder.path().join(format!("tree/f{n}"));
    let tree = |version: u32| {
        let file = |n| (at(n).display().to_string(), serde_json::json!({"content": format!("a {version}\nb\nc\n")}));
        let all: serde_json::Map<String, serde_json::Value> = (0..FILES).map(file).collect();
        wanted(serde_json::json!({"manage": "merge", "files": all}), folder.path())
    };
    apply(&files, &tree(0)).expect("applied");
    let mut written = 0;
    for version in 1..=12 {
        let edited: Vec<usize> = std::thread::scope(|scope| {
            let beside = folder.path().join("tree");
            let editor = scope.spawn(move || {
                let began = Instant::now();
                // As soon as a file is staged; in each iteration a little later.
                while began.elapsed() < Duration::from_secs(5)
                    && !fs::read_dir(&beside)
                        .expect("a folder")
                        .flatten()
                        .any(|e| e.file_name().as_encoded_bytes()[0] == b'.')
                {}
                std::thread::sleep(Duration::from_micros(u64::from(version) * 300));
                let some: Vec<usize> = (0..FILES).rev().step_by(37).collect();
                for n in &some {
                    let mut file = fs::OpenOptions::new().append(true).open(at(*n)).expect("there");
                    std::io::Write::write_all(&mut file, format!("user {version}\n").as_bytes()).expect("appended");
                }
                some
            });
            apply(&files, &tree(version)).expect("applied");
            editor.join().expect("edited")
        });
        // Edits made after the end are merged by the next action.
        apply(&files, &tree(version)).expect("applied");
        for n in edited {
            let text = fs::read_to_string(at(n)).expect("there");
            assert!(text.contains(&format!("user {version}\n")), "round {version}, file {n}: {text:?}");
            assert!(text.starts_with(&format!("a {version}\nb\nc\n")), "round {version}, file {n}: {text:?}");
            written += 1;
        }
    }
    assert_eq!(written, 12 * FILES.div_ceil(37));
    let left = fs::read_dir(folder.path().join("tree")).expect("a folder").flatten();
    assert!(left.into_iter().all(|e| e.file_name().as_encoded_bytes()[0] != b'.'), "nothing is left beside");
}

#[test]
fn a_pipe_in_place_of_a_file_stays_and_a_restore_keeps_a_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = open(folder.path());
    let path = folder.path().join("x.conf");
    let file = |text: &str| {
        let files = serde_json::json!({(path.to_str().expect("text")): {"content": text}});
        wanted(serde_json::json!({"manage": "merge", "files": files}), folder.path())
    };
    apply(&files, &file("a\nb\n")).expect("applied");
    fs::write(&path, "a\nb\nprecious\n").expect("edited");
    let tree_path = TreePath::new(path.to_str().expect("text")).expect("a path");
    let versions = files.log(COB, 10).expect("versions");
    files.restore(COB, &versions[0].id, &tree_path).expect("put back");
    assert_eq!(fs::read_to_string(&path).expect("there"), "a\nb\n");
    let newest = &files.log(COB, 10).expect("versions")[0];
    assert!(files.show(COB, &newest.id).expect("shown").contains("precious"), "it is a version of its own");
    assert_eq!(files.check(COB, &file("a\nb\n")).expect("looked").state, State::Present);
    // A restored file can be restored again.
    files.restore(COB, &newest.id, &tree_path).expect("put back");
    assert_eq!(fs::read_to_string(&path).expect("there"), "a\nb\nprecious\n");

    fs::remove_file(&path).expect("removed");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .expect("a pipe");
    assert!(matches!(apply(&files, &file("c\n")), Err(FilesError::InTheWay { .. })));
    assert!(path.symlink_metadata().expect("there").file_type().is_fifo());
}

#[test]
fn an_incomplete_store_is_not_recreated() {
    type Loss = fn(&Path);
    let remove = |path: PathBuf| {
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("removed");
    };
    let losses: [(&str, Loss); 8] = [
        ("store.git", |_| {}),
        ("store.git/refs/heads/main", |_| {}),
        ("store.git/refs", |_| {}),
        ("store.git/objects", |_| {}),
        ("store.git/objects/pack", |_| {}),
        ("store.git/log", |_| {}),
        // If both are gone, the trace tells.
        ("store.git/refs/heads/main", |store| fs::remove_dir_all(store.join("log")).expect("removed")),
        // The store of an earlier version, which has no trace.
        ("store.git/refs/heads/main", |store| fs::remove_file(store.join("trace")).expect("removed")),
    ];
    for (lost, also) in losses {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.conf");
        let file = serde_json::json!({(path.to_str().expect("text")): {"content": "a\n"}});
        let tree = wanted(serde_json::json!({"manage": "merge", "files": file}), folder.path());
        let files = open(folder.path());
        apply(&files, &tree).expect("applied");
        files.settle().expect("written");
        drop(files);
        fs::write(&path, "a\nprecious\n").expect("edited");
        let kept = folder.path().join("files");
        also(&kept.join("store.git"));
        remove(kept.join(lost));
        let refused = match Files::open(&kept, Arc::new(NoVault)) {
            Err(error) => error.to_string(),
            Ok(files) => apply(&files, &tree).map(drop).expect_err("it would take the user's line away").to_string(),
        };
        assert!(refused.contains("gone") && refused.contains("from a copy"), "{lost}: {refused}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "a\nprecious\n");
        // A person has decided to continue without the store.
        fs::remove_dir_all(&kept).expect("removed");
        apply(&open(folder.path()), &tree).expect("applied");
    }
}

#[test]
fn records_lost_from_the_log_are_detected() {
    for newest in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.conf");
        let tree = |text: &str| {
            let file = serde_json::json!({(path.to_str().expect("text")): {"content": text}});
            wanted(serde_json::json!({"files": file}), folder.path())
        };
        apply(&open(folder.path()), &tree("first\n")).expect("applied");
        // Another start of the store writes into another segment.
        let again = open(folder.path());
        apply(&again, &tree("second\n")).expect("applied");
        std::mem::forget(again);
        let log = folder.path().join("files/store.git/log");
        let mut segments: Vec<_> = fs::read_dir(&log).expect("listed").flatten().map(|entry| entry.path()).collect();
        segments.sort();
        let gone = if newest { segments.last() } else { segments.first() }.expect("one").clone();
        let was = fs::read(&gone).expect("read");
        fs::remove_file(&gone).expect("removed");
        let kept = folder.path().join("files");
        let error = Files::open(&kept, Arc::new(NoVault)).map(drop).expect_err("something is missing").to_string();
        assert!(error.contains("missing") || error.contains("gone"), "{error}");
        fs::write(&gone, was).expect("put back");
        assert_eq!(open(folder.path()).check(COB, &tree("second\n")).expect("looked").state, State::Present);
    }
}
