//! File trees on a real disk: applied, changed by others, retired.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_files::{Applied, Choice, Content, Files, FilesError, Job, NoVault, Reason, State, TreePath, Wanted};

mod back;
mod by_model;
mod leaving;
mod off;
mod planted;
mod planted_random;
mod shown;

const COB: &str = "n1/files";

struct Bench {
    folder: tempfile::TempDir,
    files: Files,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("host")).expect("made");
        let files = open(folder.path());
        Self { folder, files }
    }

    /// Another daemon takes over.
    fn again(&mut self) {
        self.files.settle().expect("written");
        self.files = open(self.folder.path());
    }

    fn host(&self, name: &str) -> PathBuf {
        self.folder.path().join("host").join(name)
    }

    fn tree_path(&self, name: &str) -> TreePath {
        TreePath::new(self.host(name).to_str().expect("text")).expect("a path")
    }

    /// A content; `@` stands for the host's folder.
    fn wanted(&self, json: &str) -> Wanted {
        let json = json.replace('@', self.host("").to_str().expect("text").trim_end_matches('/'));
        let content: Content = serde_json::from_str(&json).expect("a content");
        let spec = format!("{json:?}");
        Wanted::new(content, &self.folder.path().join("payload"), &spec).expect("makes sense")
    }

    fn one(&self, text: &str, more: &str) -> Wanted {
        self.wanted(&format!(r#"{{"files": {{"@/x.conf": {{"content": {}}}}}{more}}}"#, serde_json::json!(text)))
    }

    fn apply(&self, wanted: &Wanted) -> Result<Applied, FilesError> {
        self.apply_to(COB, wanted)
    }

    fn retire(&self, wanted: &Wanted) -> Result<Applied, FilesError> {
        self.retire_of(COB, wanted)
    }

    fn off(&self, wanted: &Wanted) -> Result<Applied, FilesError> {
        self.off_of(COB, wanted)
    }

    fn off_of(&self, cob: &str, wanted: &Wanted) -> Result<Applied, FilesError> {
        self.files.put_off(&Job { cob, generation: 2, wanted, is_cancelled: &|| false })
    }

    fn apply_to(&self, cob: &str, wanted: &Wanted) -> Result<Applied, FilesError> {
        self.files.apply(&Job { cob, generation: 1, wanted, is_cancelled: &|| false })
    }

    fn retire_of(&self, cob: &str, wanted: &Wanted) -> Result<Applied, FilesError> {
        self.files.retire(&Job { cob, generation: 2, wanted, is_cancelled: &|| false })
    }

    /// An action that is cancelled as soon as a path exists; without a path, before any file is in its place.
    fn interrupted(&self, wanted: &Wanted, off: bool, path: Option<&str>) {
        let is_cancelled = &|| path.is_none_or(|path| self.host(path).exists());
        let job = Job { cob: COB, generation: 1, wanted, is_cancelled };
        let moved = if off { self.files.put_off(&job) } else { self.files.apply(&job) };
        let error = moved.map(drop).expect_err("the caller has asked for the end");
        assert!(matches!(error, FilesError::Cancelled), "{error}");
    }

    fn state(&self, wanted: &Wanted) -> State {
        self.files.settle().expect("written");
        let before = snapshot(self.folder.path());
        let state = self.files.check(COB, wanted).expect("looked").state;
        assert_eq!(snapshot(self.folder.path()), before, "a look changes nothing");
        state
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.host(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.host(name).parent().expect("a folder")).expect("made");
        fs::write(self.host(name), text).expect("written");
    }
}

fn open(folder: &Path) -> Files {
    Files::open(&folder.join("files"), Arc::new(NoVault)).expect("opened")
}

/// Every path with its type, mode, owner and content.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (u32, u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("listed").flatten() {
            let (path, meta) = (entry.path(), entry.path().symlink_metadata().expect("there"));
            let content = if meta.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).expect("read")
            };
            all.insert(path, (meta.mode(), meta.uid(), content));
        }
    }
    all
}

#[test]
fn a_file_is_created_and_removed_with_its_folders() {
    let mut bench = Bench::new();
    let wanted = bench.wanted(r#"{"files": {"@/a/b/motd": {"content": "hello\n", "mode": "0640"}}}"#);
    let before = snapshot(&bench.host(""));
    assert_eq!(bench.state(&wanted), State::Absent);
    bench.apply(&wanted).expect("applied");
    assert_eq!(bench.state(&wanted), State::Present);
    assert_eq!(bench.read("a/b/motd"), "hello\n");
    assert_eq!(fs::metadata(bench.host("a/b/motd")).expect("there").permissions().mode() & 0o7777, 0o640);
    assert_eq!(bench.apply(&wanted).expect("again").changed, 0);
    bench.again();
    assert_eq!(bench.state(&wanted), State::Present);
    bench.retire(&wanted).expect("retired");
    assert_eq!(bench.state(&wanted), State::Absent);
    assert_eq!(snapshot(&bench.host("")), before);
    bench.retire(&wanted).expect("again");
    bench.apply(&wanted).expect("and again");
    assert_eq!(bench.files.log(COB, 100).expect("read").len(), 6, "before, applied; found, retired; before, applied");
}

#[test]
fn the_original_files_are_restored_completely() {
    let bench = Bench::new();
    bench.write("x.conf", "theirs\n");
    fs::set_permissions(bench.host("x.conf"), fs::Permissions::from_mode(0o604)).expect("set");
    symlink("nowhere", bench.host("link")).expect("a link");
    let before = snapshot(&bench.host(""));
    let wanted = bench.wanted(
        r#"{"files": {"@/x.conf": {"content": "ours\n", "mode": "0755"}, "@/link": {"link": "x.conf"},
            "@/empty": {"folder": true, "mode": "0711"}, "@/.git": {"content": "x"}}}"#,
    );
    bench.apply(&wanted).expect("applied");
    assert_eq!((bench.read("x.conf"), bench.read("link")), ("ours\n".to_owned(), "ours\n".to_owned()));
    assert_eq!(bench.read(".git"), "x");
    assert_eq!(fs::metadata(bench.host("empty")).expect("there").permissions().mode() & 0o7777, 0o711);
    // Another content, without some of the paths.
    let less = bench.one("other\n", "");
    assert_eq!(bench.state(&less), State::Outdated);
    bench.apply(&less).expect("applied");
    assert_eq!(bench.state(&less), State::Present);
    assert!(!bench.host("empty").exists() && !bench.host(".git").exists());
    assert_eq!(fs::read_link(bench.host("link")).expect("a link"), Path::new("nowhere"));
    bench.retire(&less).expect("retired");
    assert_eq!(snapshot(&bench.host("")), before, "also the mode that only the first content managed");
}

#[test]
fn changes_by_others_are_healed_and_kept_in_the_history() {
    let bench = Bench::new();
    let wanted = bench.one("ours\n", "");
    bench.apply(&wanted).expect("applied");
    bench.write("x.conf", "mine\n");
    let checked = bench.files.check(COB, &wanted).expect("looked");
    assert_eq!(checked.state, State::Outdated);
    assert!(checked.difference.contains("-mine\n+ours\n"), "{}", checked.difference);
    bench.apply(&wanted).expect("healed");
    assert_eq!(bench.read("x.conf"), "ours\n");
    let log = bench.files.log(COB, 10).expect("read");
    assert_eq!(log[1].info.reason, cob_files::Reason::Found);
    let path = bench.tree_path("x.conf");
    assert_eq!(bench.files.content(COB, &log[1].id, &path).expect("kept"), b"mine\n");
    bench.files.restore(COB, &log[1].id[..10], &path).expect("restored");
    assert_eq!(bench.read("x.conf"), "mine\n");
    fs::remove_file(bench.host("x.conf")).expect("removed");
    assert_eq!(bench.state(&wanted), State::Outdated);
    bench.apply(&wanted).expect("healed");
    assert_eq!(bench.state(&wanted), State::Present);
}

#[test]
fn reported_changes_stay_until_the_model_changes_the_file() {
    let bench = Bench::new();
    let report = r#", "on_drift": "report""#;
    let wanted = bench.one("ours\n", report);
    bench.apply(&wanted).expect("applied");
    bench.write("x.conf", "mine\n");
    let checked = bench.files.check(COB, &wanted).expect("looked");
    assert_eq!((checked.state, checked.paths.len()), (State::Present, 1));
    assert!(checked.difference.contains("-mine"), "{}", checked.difference);
    assert_eq!(bench.apply(&wanted).expect("nothing").changed, 0);
    assert_eq!(bench.read("x.conf"), "mine\n");
    let next = bench.one("ours too\n", report);
    bench.apply(&next).expect("applied");
    assert_eq!(bench.read("x.conf"), "ours too\n");
}

#[test]
fn a_user_s_lines_survive_both_directions_in_a_merged_file() {
    let bench = Bench::new();
    let merge = r#", "manage": "merge""#;
    let text = |port: &str| format!("one\ntwo\nport {port}\nthree\nfour\nfive\n");
    let first = bench.one(&text("1"), merge);
    let second = bench.one(&text("2"), merge);
    bench.write("x.conf", "from the distribution\n");
    bench.apply(&first).expect("applied");
    bench.write("x.conf", &format!("{}mine\n", text("1")));
    assert_eq!(bench.state(&first), State::Present, "a user's line is no drift");
    assert_eq!(bench.state(&second), State::Outdated);
    bench.apply(&second).expect("merged");
    assert_eq!(bench.read("x.conf"), format!("{}mine\n", text("2")));
    bench.apply(&first).expect("back");
    assert_eq!(bench.read("x.conf"), format!("{}mine\n", text("1")));
    // The earlier text and the user's line exclude each other: a person has to decide.
    let error = bench.retire(&first).expect_err("a conflict");
    assert!(error.to_string().contains("conflict in"), "{error}");
    assert_eq!(bench.read("x.conf"), format!("{}mine\n", text("1")));
    assert_eq!(bench.files.resolve(COB, &first, true, None, None, &Choice::Theirs).expect("decided"), 1);
    bench.retire(&first).expect("retired");
    assert_eq!(bench.read("x.conf"), "from the distribution\n");
}

#[test]
fn a_conflict_leaves_the_file_and_waits_for_a_decision() {
    let bench = Bench::new();
    let merge = r#", "manage": "merge""#;
    let (first, second) = (bench.one("port 1\n", merge), bench.one("port 2\n", merge));
    for (choice, expected) in [
        (Choice::Ours, "port 9\n"),
        (Choice::Theirs, "port 2\n"),
        (Choice::Edited(b"port 2 # was 9\n".to_vec()), "port 2 # was 9\n"),
    ] {
        bench.apply(&first).expect("applied");
        bench.write("x.conf", "port 9\n");
        let checked = bench.files.check(COB, &second).expect("looked");
        assert_eq!(checked.state, State::Conflict);
        let (path, hunks, _) = bench.files.hunks(COB, &second, false, None).expect("to be edited");
        assert_eq!(path, bench.tree_path("x.conf"));
        assert!(String::from_utf8_lossy(&hunks).contains("=======\nport 2\n"), "{hunks:?}");
        bench.apply(&second).expect_err("a conflict");
        assert_eq!(bench.read("x.conf"), "port 9\n");
        assert_eq!(bench.files.resolve(COB, &second, false, None, None, &choice).expect("decided"), 1);
        assert_eq!(bench.state(&second), State::Outdated);
        bench.apply(&second).expect("applied");
        assert_eq!(bench.read("x.conf"), expected);
        assert_eq!(bench.state(&second), State::Present);
        bench.files.resolve(COB, &second, false, None, None, &choice).expect_err("there is none any more");
        bench.write("x.conf", "port 2\n");
    }
}

#[test]
fn a_decision_affects_only_the_lines_that_both_sides_changed() {
    let bench = Bench::new();
    let merge = r#", "manage": "merge""#;
    let text = |port: &str, last: &str| format!("one\nport {port}\ntwo\nthree\nfour\n{last}\n");
    let (first, second) = (bench.one(&text("1", "five"), merge), bench.one(&text("2", "5"), merge));
    for (choice, port) in [(Choice::Ours, "9"), (Choice::Theirs, "2")] {
        bench.apply(&first).expect("applied");
        bench.write("x.conf", &format!("mine\n{}", text("9", "five")));
        bench.apply(&second).expect_err("a conflict");
        assert_eq!(bench.files.resolve(COB, &second, false, None, None, &choice).expect("decided"), 1);
        bench.apply(&second).expect("applied");
        assert_eq!(bench.read("x.conf"), format!("mine\n{}", text(port, "5")), "{choice:?}");
        assert_eq!(bench.state(&second), State::Present);
        bench.write("x.conf", &text("2", "5"));
    }
}

#[test]
fn a_decision_does_not_hold_for_a_later_edit() {
    let bench = Bench::new();
    let merge = r#", "manage": "merge""#;
    let (first, second) = (bench.one("port 1\n", merge), bench.one("port 2\n", merge));
    bench.apply(&first).expect("applied");
    bench.write("x.conf", "port 9\n");
    bench.files.resolve(COB, &second, false, None, None, &Choice::Theirs).expect("decided");
    bench.write("x.conf", "port 10\n");
    assert_eq!(bench.state(&second), State::Conflict);
}

#[test]
fn a_decision_about_a_future_content_survives_a_repair() {
    let mut bench = Bench::new();
    let with = |port: u32| {
        let shared = format!(r#""@/x.conf": {{"content": "port {port}\n", "manage": "merge"}}"#);
        bench.wanted(&format!(r#"{{"files": {{{shared}, "@/y.conf": {{"content": "ours\n"}}}}}}"#))
    };
    let (first, second) = (with(1), with(2));
    bench.apply(&first).expect("applied");
    bench.write("x.conf", "port 9\n");
    bench.files.resolve(COB, &second, false, None, None, &Choice::Theirs).expect("decided");
    bench.write("y.conf", "mine\n");
    assert_eq!(bench.state(&first), State::Outdated);
    bench.apply(&first).expect("healed");
    bench.again();
    bench.apply(&second).expect("decided before");
    assert_eq!((bench.read("x.conf"), bench.read("y.conf")), ("port 2\n".to_owned(), "ours\n".to_owned()));
}

#[test]
fn a_decision_about_a_future_content_survives_that_the_tree_is_off() {
    for (choice, port) in [(Choice::Ours, 9), (Choice::Theirs, 2)] {
        let bench = Bench::new();
        let with = |port: u32| bench.one(&format!("port {port}\n"), r#", "manage": "merge""#);
        bench.write("x.conf", "port 7\n");
        bench.apply(&with(1)).expect("applied");
        bench.write("x.conf", "port 9\n");
        assert_eq!(bench.state(&with(2)), State::Conflict);
        bench.files.resolve(COB, &with(2), false, None, None, &choice).expect("decided");
        bench.off(&with(2)).expect("off");
        bench.apply(&with(2)).expect("decided before");
        assert_eq!(bench.read("x.conf"), format!("port {port}\n"), "{choice:?}");
        assert_eq!(bench.state(&with(2)), State::Present);
    }
}

#[test]
fn a_decision_about_all_files_leaves_earlier_decisions() {
    let bench = Bench::new();
    let with = |port: u32| {
        let file = |name: &str| format!(r#""@/{name}.conf": {{"content": "port {port}\n"}}"#);
        bench.wanted(&format!(r#"{{"manage": "merge", "files": {{{}, {}, {}}}}}"#, file("a"), file("b"), file("c")))
    };
    bench.apply(&with(1)).expect("applied");
    ["a.conf", "b.conf", "c.conf"].iter().for_each(|name| bench.write(name, "port 9\n"));
    let resolve = |path: Option<&str>, choice: &Choice| {
        let path = path.map(|path| bench.tree_path(path));
        bench.files.resolve(COB, &with(2), false, path.as_ref(), None, choice).expect("decided")
    };
    assert_eq!(resolve(Some("b.conf"), &Choice::Edited(b"port 5\n".to_vec())), 1);
    assert_eq!(resolve(None, &Choice::Theirs), 2);
    // All are decided, so the next decision is about all again.
    assert_eq!(resolve(None, &Choice::Ours), 3);
    assert_eq!(resolve(Some("b.conf"), &Choice::Edited(b"port 5\n".to_vec())), 1);
    bench.apply(&with(2)).expect("applied");
    assert_eq!(["a.conf", "b.conf", "c.conf"].map(|name| bench.read(name)), ["port 9\n", "port 5\n", "port 9\n"]);
}

#[test]
fn a_decision_can_be_changed_and_is_shown() {
    let bench = Bench::new();
    let with = |port: u32| bench.one(&format!("mine?\nport {port}\n"), r#", "manage": "merge""#);
    bench.apply(&with(1)).expect("applied");
    bench.write("x.conf", "mine?\nport 9\n");
    let second = with(2);
    for choice in [Choice::Theirs, Choice::Ours, Choice::Theirs] {
        assert_eq!(bench.files.resolve(COB, &second, false, None, None, &choice).expect("decided"), 1);
    }
    let (_, hunks, _) = bench.files.hunks(COB, &second, false, None).expect("to be edited all the same");
    assert!(String::from_utf8_lossy(&hunks).contains("=======\nport 2\n"), "{hunks:?}");
    let told = bench.files.preview(COB, &second, false).expect("looked").difference;
    assert!(told.contains("the same lines were changed here and in the model; decided: theirs\n"), "{told}");
    assert!(told.contains("-port 9\n+port 2\n"), "{told}");
    bench.files.undecide(COB);
    assert_eq!(bench.state(&second), State::Conflict);
}

#[test]
fn a_preview_shows_planned_changes_and_no_lines_of_users() {
    let bench = Bench::new();
    let with = |port: u32| bench.one(&format!("port {port}\ntwo\nthree\n"), r#", "manage": "merge""#);
    bench.apply(&with(1)).expect("applied");
    bench.write("x.conf", "port 1\ntwo\nthree\nmine\n");
    let told = |checked: cob_files::Checked| checked.difference;
    let written = told(bench.files.preview(COB, &with(2), false).expect("looked"));
    assert!(written.contains("-port 1\n+port 2\n") && !written.contains("-mine"), "{written}");
    assert!(told(bench.files.check(COB, &with(2)).expect("looked")).contains("-mine"));
    assert_eq!(told(bench.files.preview(COB, &with(1), false).expect("looked")), "", "nothing would be");
}

#[test]
fn modes_are_merged_field_by_field() {
    let bench = Bench::new();
    let with = |mode: &str| {
        bench
            .wanted(&format!(r#"{{"manage": "merge", "files": {{"@/x.conf": {{"content": "x", "mode": "{mode}"}}}}}}"#))
    };
    let mode = || fs::metadata(bench.host("x.conf")).expect("there").permissions().mode() & 0o7777;
    bench.apply(&with("0644")).expect("applied");
    fs::set_permissions(bench.host("x.conf"), fs::Permissions::from_mode(0o600)).expect("set");
    assert_eq!(bench.state(&with("0644")), State::Present);
    assert_eq!(bench.state(&with("0640")), State::Conflict);
    bench.files.resolve(COB, &with("0640"), false, None, None, &Choice::Theirs).expect("decided");
    bench.apply(&with("0640")).expect("applied");
    assert_eq!(mode(), 0o640);
    bench.apply(&with("0400")).expect("nobody else has changed it");
    assert_eq!(mode(), 0o400);
}

#[test]
fn a_whole_folder_removes_other_files_and_returns_them() {
    let bench = Bench::new();
    bench.write("conf.d/old.conf", "old\n");
    bench.write("conf.d/sub/deep", "deep\n");
    let before = snapshot(&bench.host(""));
    let wanted = bench.wanted(
        r#"{"files": {"@/conf.d": {"folder": true, "whole": true}, "@/conf.d/ours.conf": {"content": "ours\n"}}}"#,
    );
    bench.apply(&wanted).expect("applied");
    let names = |folder: &Path| fs::read_dir(folder).expect("listed").count();
    assert_eq!(names(&bench.host("conf.d")), 1);
    assert_eq!(bench.state(&wanted), State::Present);
    bench.write("conf.d/stranger", "strange\n");
    bench.write("conf.d/.ours.conf.cob-new", "left by a kill");
    assert_eq!(bench.state(&wanted), State::Outdated);
    bench.apply(&wanted).expect("healed");
    assert_eq!(names(&bench.host("conf.d")), 1);
    let log = bench.files.log(COB, 10).expect("read");
    assert_eq!(bench.files.content(COB, &log[1].id, &bench.tree_path("conf.d/stranger")).expect("kept"), b"strange\n");
    bench.retire(&wanted).expect("retired");
    assert_eq!(snapshot(&bench.host("")), before);
}

#[test]
fn a_link_is_not_followed_and_a_file_of_another_type_stays() {
    let bench = Bench::new();
    fs::create_dir(bench.host("outside")).expect("made");
    symlink(bench.host("outside"), bench.host("way")).expect("a link");
    let refused = |json: &str, word: &str| {
        let before = snapshot(&bench.host(""));
        let wanted = bench.wanted(json);
        let error = bench.apply(&wanted).expect_err(json).to_string();
        assert!(error.contains(word), "{error}");
        assert_eq!(snapshot(&bench.host("")), before);
    };
    refused(r#"{"files": {"@/way/x": {"content": "x"}}}"#, "is a link to");
    bench.write("folder/keep", "keep");
    refused(r#"{"files": {"@/folder": {"content": "x"}}}"#, "is a folder, but the model wants a file");
    refused(r#"{"files": {"@/way": {"folder": true}}}"#, "is a link");
    bench.write("file", "x");
    refused(r#"{"files": {"@/file/x": {"content": "x"}}}"#, "file");
    // A link as the last part of a path is replaced, not followed.
    symlink(bench.host("outside/target"), bench.host("x.conf")).expect("a link");
    let wanted = bench.one("x", "");
    bench.apply(&wanted).expect("applied");
    assert!(!bench.host("outside/target").exists() && bench.read("x.conf") == "x");
    bench.retire(&wanted).expect("retired");
    assert!(bench.host("x.conf").is_symlink());
}

#[test]
fn a_file_too_large_for_the_store_is_not_changed() {
    let bench = Bench::new();
    let file = fs::File::create(bench.host("x.conf")).expect("made");
    file.set_len(4 << 30).expect("with a hole");
    let error = bench.apply(&bench.one("x", "")).expect_err("too large").to_string();
    assert!(error.contains("4294967296 bytes") && error.contains("64 MiB"), "{error}");
    assert_eq!(fs::metadata(bench.host("x.conf")).expect("there").len(), 4 << 30);
}

#[test]
fn a_shared_folder_is_removed_with_the_last_tree_in_it() {
    let mut bench = Bench::new();
    fs::create_dir(bench.host("old")).expect("made");
    let of = |name: &str| {
        bench.wanted(&format!(
            r#"{{"files": {{"@/new/deep/{name}": {{"content": "x"}}, "@/old/{name}": {{"content": "x"}}}}}}"#
        ))
    };
    let trees = ["a", "b", "c"].map(of);
    let job = |at: usize| Job {
        cob: ["n1/a", "n1/b", "n1/c"][at],
        generation: 1,
        wanted: &trees[at],
        is_cancelled: &|| false,
    };
    bench.files.apply(&job(0)).expect("made");
    bench.files.apply(&job(1)).expect("made");
    bench.again();
    bench.files.apply(&job(2)).expect("made");
    // The change object that has made the folders departs first.
    for at in [0, 2] {
        bench.files.retire(&job(at)).expect("taken back");
        assert_eq!(bench.read("new/deep/b"), "x");
        assert_eq!(bench.files.check("n1/b", &trees[1]).expect("looked").state, State::Present);
    }
    bench.again();
    bench.files.retire(&job(1)).expect("taken back");
    assert!(!bench.host("new").exists(), "it was not there before the first");
    assert_eq!(fs::read_dir(bench.host("old")).expect("there").count(), 0, "it was there before, and is empty again");
}

#[test]
fn a_check_of_some_paths_covers_only_these_paths() {
    let bench = Bench::new();
    let json = r#"{"files": {"@/a/x": {"content": "x\n"}, "@/a/y": {"content": "y\n"}, "@/own": {"folder": true, "whole": true}}}"#;
    let wanted = bench.wanted(json);
    let only = |wanted: &Wanted, names: &[&str]| {
        let paths: Vec<PathBuf> = names.iter().map(|name| bench.host(name)).collect();
        bench.files.check_only(COB, wanted, paths.iter().map(PathBuf::as_path)).expect("looked")
    };
    assert!(only(&wanted, &["a/x"]).is_none(), "it was never brought about");
    bench.apply(&wanted).expect("applied");
    assert_eq!(only(&wanted, &["a/x", "a/y"]).expect("known").state, State::Present);
    bench.write("a/x", "other\n");
    let seen = only(&wanted, &["a/x"]).expect("known");
    assert_eq!((seen.state, seen.paths), (State::Outdated, vec![bench.tree_path("a/x")]));
    assert!(seen.difference.contains("-other\n+x\n") && seen.drifted, "{}", seen.difference);
    assert_eq!(only(&wanted, &["a/y"]).expect("known").state, State::Present, "nothing is said of the other one");
    fs::remove_file(bench.host("a/y")).expect("removed");
    assert_eq!(only(&wanted, &["a/y"]).expect("known").state, State::Outdated);
    for all in [["own"], ["a"], ["a/z"], ["own/stranger"]] {
        assert!(only(&wanted, &all).is_none(), "{all:?} needs the whole tree");
    }
    let other = bench.wanted(&json.replace("x\\n", "new\\n"));
    assert!(only(&other, &["a/x"]).is_none(), "another content was brought about");
    bench.retire(&wanted).expect("taken back");
    assert!(only(&wanted, &["a/x"]).is_none());
}

#[test]
fn a_link_or_file_in_place_of_a_parent_folder_is_refused() {
    let bench = Bench::new();
    let wanted = bench.wanted(r#"{"files": {"@/way/in/x": {"content": "x\n"}, "@/way/y": {"content": "y\n"}}}"#);
    fs::create_dir_all(bench.host("elsewhere/in")).expect("made");
    symlink(bench.host("elsewhere"), bench.host("way")).expect("linked");
    assert!(bench.apply(&wanted).is_err());
    fs::remove_file(bench.host("way")).expect("removed");
    bench.write("way", "a file\n");
    assert!(bench.apply(&wanted).is_err());
    assert_eq!(bench.read("way"), "a file\n");
    fs::remove_file(bench.host("way")).expect("removed");
    bench.apply(&wanted).expect("applied");
    assert_eq!(bench.state(&wanted), State::Present);
    fs::remove_dir_all(bench.host("way/in")).expect("removed");
    assert_eq!(bench.state(&wanted), State::Outdated);
    assert_eq!(fs::read_dir(bench.host("elsewhere/in")).expect("listed").count(), 0);
}
