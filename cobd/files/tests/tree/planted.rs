//! Files that a user with write permission plants in a managed folder: they crash no process, take no more than the
//! allowed space, and give no access that the model does not grant.

use std::os::unix::fs::{OpenOptionsExt as _, chown};

use super::*;

/// Another user than the user that runs the tests.
pub(super) const USER: u32 = 4321;

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An access list in the kernel's format: `u::rw-`, `u:USER:rw-`, `g::r--`, `m::rw-`, `o::---`.
pub(super) fn access_list() -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in
        [(1_u16, 6_u16, u32::MAX), (2, 6, USER), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
    {
        bytes.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

pub(super) fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    let length = rustix::fs::getxattr(path, name, &mut value).ok()?;
    Some(value[..length].to_vec())
}

/// Returns whether the attribute could be set: some file systems do not support it.
pub(super) fn plant(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

/// Nested folders, deeper than the longest path.
pub(super) fn nested(folder: &Path, levels: usize) {
    let at = rustix::fs::open(folder, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty());
    let mut at = at.expect("opened");
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::from_raw_mode(0o755)).expect("made");
        at = rustix::fs::openat(&at, "d", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).expect("opened");
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    rustix::fs::openat(&at, "leaf", flags, rustix::fs::Mode::from_raw_mode(0o644)).expect("made");
}

/// A quarter of the stack of the daemon's threads: reveals a recursion per level, even with small frames.
pub(super) fn on_a_small_stack(what: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, what);
        thread.expect("begun").join().expect("no panic");
    });
}

#[test]
fn thousands_of_nested_folders_are_kept_and_removed_and_come_back() {
    let mut bench = Bench::new();
    let wanted = bench.wanted(r#"{"files": {"@/w": {"folder": true, "whole": true}, "@/w/a": {"content": "a\n"}}}"#);
    fs::create_dir(bench.host("w")).expect("made");
    nested(&bench.host("w"), 3000);
    on_a_small_stack(|| {
        assert_eq!(bench.files.check(COB, &wanted).expect("looked").state, State::Absent);
        bench.apply(&wanted).expect("applied");
        assert!(!bench.host("w/d").exists());
        // The check finds it, too.
        nested(&bench.host("w"), 3000);
        assert_eq!(bench.files.check(COB, &wanted).expect("looked").state, State::Outdated);
        bench.apply(&wanted).expect("healed");
        assert!(!bench.host("w/d").exists());
        bench.files.settle().expect("written");
        // Pruning walks all kept trees.
        bench.files.prune(u64::MAX).expect("pruned");
        bench.again();
        bench.retire(&wanted).expect("retired");
    });
    assert!(bench.host("w/d/d/d/d").is_dir(), "what was before is there again");
    on_a_small_stack(|| {
        bench.apply(&wanted).expect("applied");
        bench.files.prune(u64::MAX).expect("pruned");
    });
    assert!(!bench.host("w/d").exists());
}

/// The peak memory of this process.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("read");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

pub(super) fn sparse(path: &Path, size: u64) {
    fs::File::create(path).and_then(|file| file.set_len(size)).expect("made");
}

#[test]
fn large_files_are_kept_and_restored_with_little_memory() {
    const SIZE: u64 = 50 << 20;
    const FILES: usize = 12;
    let mut bench = Bench::new();
    let wanted = bench.wanted(r#"{"files": {"@/w": {"folder": true, "whole": true}, "@/x": {"content": "x\n"}}}"#);
    fs::create_dir(bench.host("w")).expect("made");
    let large = |bench: &Bench| {
        for n in 0..FILES {
            sparse(&bench.host(&format!("w/{n}")), SIZE);
        }
    };
    large(&bench);
    sparse(&bench.host("x"), SIZE);
    let before = peak();
    bench.files.check(COB, &wanted).expect("looked");
    bench.apply(&wanted).expect("applied");
    assert_eq!(fs::read_dir(bench.host("w")).expect("listed").count(), 0);
    large(&bench);
    sparse(&bench.host("x"), SIZE);
    bench.files.check(COB, &wanted).expect("looked");
    bench.apply(&wanted).expect("healed");
    let grown = peak() - before;
    // Other tests run at the same time; to hold all files would take 1.2 million.
    assert!(grown < 300_000, "{grown} KiB for files of {} KiB", (2 * FILES as u64 * SIZE) >> 10);
    bench.again();
    bench.retire(&wanted).expect("retired");
    for n in 0..FILES {
        assert_eq!(fs::metadata(bench.host(&format!("w/{n}"))).expect("back").len(), SIZE);
    }
    assert_eq!(fs::metadata(bench.host("x")).expect("back").len(), SIZE);
    let store: u64 = fs::read_dir(bench.folder.path().join("files/store.git/objects/pack"))
        .expect("listed")
        .flatten()
        .map(|entry| entry.metadata().expect("there").len())
        .sum();
    assert!(store < 2 << 20, "the same content is there once: {store} bytes");
}

#[test]
fn a_taken_temporary_name_does_not_block_a_tree() {
    let bench = Bench::new();
    let wanted = bench.wanted(
        r#"{"files": {"@/w": {"folder": true, "whole": true}, "@/w/a": {"content": "a\n"}, "@/w/b/c": {"content": "c\n"},
            "@/x": {"content": "x\n"}, "@/l": {"link": "x"}, "@/f/g": {"content": "g\n"}}}"#,
    );
    let taken = ["w/.a.cob-new/in", "w/.b.cob-new/in", ".x.cob-new/in", ".l.cob-new/in", ".f.cob-new/in"];
    let take = || taken.iter().for_each(|name| bench.write(name, "mine\n"));
    take();
    bench.apply(&wanted).expect("applied");
    let has_place = |name: &str| !name.starts_with("w/");
    for name in taken {
        assert_eq!(bench.host(name).exists(), has_place(name), "{name}");
    }
    // Again, with entries that are to be removed as well.
    take();
    bench.write("w/stranger", "theirs\n");
    bench.write("w/.stranger.cob-new/in", "mine\n");
    bench.write("x", "theirs\n");
    fs::remove_file(bench.host("l")).expect("removed");
    fs::remove_dir_all(bench.host("f")).expect("removed");
    bench.apply(&wanted).expect("healed");
    for (name, text) in [("w/a", "a\n"), ("w/b/c", "c\n"), ("x", "x\n"), ("l", "x\n"), ("f/g", "g\n")] {
        assert_eq!(bench.read(name), text);
    }
    assert_eq!(bench.files.check(COB, &wanted).expect("looked").state, State::Present);
    assert_eq!(fs::read_dir(bench.host("w")).expect("listed").count(), 2);
    bench.retire(&wanted).expect("retired");
}

/// Folders from before the tree, with the names of staged files beside other files.
#[test]
fn a_folder_with_a_temporary_name_is_restored_with_its_file() {
    let mut bench = Bench::new();
    let wanted = bench.wanted(r#"{"files": {"@/w": {"folder": true, "whole": true}, "@/w/mine": {"content": "m\n"}}}"#);
    let theirs = ["w/a", "w/.a.cob-new/in", "w/b", "w/mine", "w/.mine.cob-new/in"];
    theirs.iter().for_each(|name| bench.write(name, "theirs\n"));
    fs::create_dir(bench.host("w/.b.cob-new")).expect("made");
    symlink("a", bench.host("w/l")).expect("linked");
    fs::create_dir_all(bench.host("w/.l.cob-new")).expect("made");
    let before = snapshot(&bench.host("w"));
    bench.apply(&wanted).expect("applied");
    assert_eq!(fs::read_dir(bench.host("w")).expect("listed").count(), 1);
    // An interrupted repair does not lose the earlier entries.
    bench.write("w/mine", "theirs again\n");
    bench.interrupted(&wanted, false, None);
    bench.again();
    bench.apply(&wanted).expect("healed");
    bench.retire(&wanted).expect("retired");
    assert_eq!(snapshot(&bench.host("w")), before);
}

#[test]
fn a_planted_file_gives_no_access_beyond_the_model() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let wanted = bench.wanted(
        r#"{"files": {"@/s640": {"content": "s\n", "mode": "0640", "owner": 0, "group": 0},
            "@/nomode": {"content": "x\n", "owner": 0}, "@/same": {"content": "same\n", "owner": 0},
            "@/plain": {"content": "plain\n"},
            "@/fold": {"folder": true, "owner": 0}, "@/fold/in": {"content": "y\n", "owner": 0, "mode": "0640"}}}"#,
    );
    let files = ["s640", "nomode", "same", "plain", "fold/in"];
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let plant_all = || {
        let mut planted = 0;
        fs::create_dir_all(bench.host("fold")).expect("made");
        chown(bench.host("fold"), Some(USER), Some(USER)).expect("given");
        for name in files {
            let path = bench.host(name);
            let _ = fs::remove_file(&path);
            fs::write(&path, if name == "same" { "same\n" } else { "planted\n" }).expect("written");
            chown(&path, Some(USER), Some(USER)).expect("given");
            planted += usize::from(plant(&path, "system.posix_acl_access", &access_list()));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("set");
            planted += usize::from(plant(&path, "security.capability", &capability));
        }
        planted += usize::from(plant(&bench.host("fold"), "system.posix_acl_default", &access_list()));
        planted += usize::from(plant(&bench.host("fold"), "system.posix_acl_access", &access_list()));
        planted
    };
    for again in [false, true] {
        if again {
            // A user who has a planted file open can still write to it, but not to the file in its place.
            plant_all();
        } else if plant_all() == 0 {
            eprintln!("this file system has no access lists: only modes are looked at");
        }
        let mut open = fs::OpenOptions::new().append(true).open(bench.host("same")).expect("opened");
        bench.apply(&wanted).expect("applied");
        std::io::Write::write_all(&mut open, b"mine\n").expect("written");
        assert_eq!(bench.read("same"), "same\n");
        for name in files {
            let meta = fs::metadata(bench.host(name)).expect("there");
            assert_eq!(meta.mode() & 0o6000, 0, "{name}: {:o}", meta.mode());
            assert_eq!(attribute(&bench.host(name), "security.capability"), None, "{name}");
            let states = name != "plain";
            assert_eq!(meta.uid(), if states { 0 } else { USER }, "{name}");
            assert!(!states || attribute(&bench.host(name), "system.posix_acl_access").is_none(), "{name}");
        }
        for name in ["s640", "fold/in"] {
            assert_eq!(fs::metadata(bench.host(name)).expect("there").mode() & 0o7777, 0o640, "{name}");
        }
        assert_eq!(attribute(&bench.host("fold"), "system.posix_acl_default"), None);
        assert_eq!(attribute(&bench.host("fold"), "system.posix_acl_access"), None);
        assert_eq!(bench.files.check(COB, &wanted).expect("looked").state, State::Present);
    }
    // Attributes that are planted on a file in its place are found.
    if plant(&bench.host("s640"), "system.posix_acl_access", &access_list()) {
        let checked = bench.files.check(COB, &wanted).expect("looked");
        assert_eq!(checked.state, State::Outdated);
        assert!(checked.difference.contains("access that the model does not grant"), "{}", checked.difference);
        bench.apply(&wanted).expect("healed");
        assert_eq!(attribute(&bench.host("s640"), "system.posix_acl_access"), None);
        assert_eq!(fs::metadata(bench.host("s640")).expect("there").mode() & 0o7777, 0o640);
    }
}

#[test]
fn the_stated_access_is_set_and_the_original_access_returns() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    bench.write("x", "before\n");
    chown(bench.host("x"), Some(USER), Some(USER)).expect("given");
    let has_lists = plant(&bench.host("x"), "system.posix_acl_access", &access_list());
    let wanted = bench.wanted(
        r#"{"files": {"@/x": {"content": "x\n", "owner": 0, "mode": "0600"}, "@/tool": {"content": "t\n", "mode": "4755"}}}"#,
    );
    bench.apply(&wanted).expect("applied");
    assert_eq!(fs::metadata(bench.host("tool")).expect("there").mode() & 0o7777, 0o4755);
    assert_eq!(attribute(&bench.host("x"), "system.posix_acl_access"), None);
    bench.retire(&wanted).expect("retired");
    assert_eq!(bench.read("x"), "before\n");
    assert_eq!(fs::metadata(bench.host("x")).expect("there").uid(), USER);
    if has_lists {
        assert_eq!(attribute(&bench.host("x"), "system.posix_acl_access"), Some(access_list()));
    }
}

/// A file of another user has a second name in the tree.
#[test]
fn a_hard_link_to_a_file_does_not_change_the_owner_of_that_file() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let secret = bench.folder.path().join("shadow");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).mode(0o600).open(&secret).expect("made");
    fs::write(&secret, "x\n").expect("written");
    fs::hard_link(&secret, bench.host("x")).expect("linked");
    let wanted =
        bench.wanted(&format!(r#"{{"files": {{"@/x": {{"content": "x\n", "owner": {USER}, "mode": "0666"}}}}}}"#));
    bench.apply(&wanted).expect("applied");
    let meta = fs::metadata(&secret).expect("there");
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (0, 0o600));
    assert_eq!(fs::metadata(bench.host("x")).expect("there").uid(), USER);
}
