//! Paths that depart: after interrupted actions, when other change objects have the paths, and with other attributes.

use std::collections::BTreeMap;

use cob_files::Item;

use super::*;

/// So many files that they are moved into their places in several batches.
const MANY: usize = 1100;

impl Bench {
    /// Applies a content only in part: the action fails when many files are in their places.
    fn begin(&self, more: &str) -> Wanted {
        let many: String = (0..MANY).map(|n| format!(r#""@/new/{n:04}": {{"content": "new\n"}}, "#)).collect();
        let wanted = self.wanted(&format!(r#"{{"files": {{{many}{more}"@/zzz": {{"content": "not to be had\n"}}}}}}"#));
        self.interrupted(&wanted, false, Some("new/0000"));
        assert!(self.host("new/0000").exists(), "some are");
        wanted
    }

    /// A file whose text holds a secret.
    fn secret(&self, text: &str) -> Wanted {
        let path = self.host("x.conf").display().to_string();
        let item = Item { content: Some(text.to_owned()), secret: true, ..Item::default() };
        let (manage, on_drift, on_conflict) = Default::default();
        let content = Content { files: [(path, item)].into(), manage, on_drift, on_conflict };
        Wanted::new(content, &self.folder.path().join("payload"), text).expect("makes sense")
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.host(name)).expect("there").permissions().mode() & 0o7777
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.host(name), fs::Permissions::from_mode(mode)).expect("set");
    }

    fn is_as(&self, before: &BTreeMap<PathBuf, (u32, u32, Vec<u8>)>) {
        let now = snapshot(&self.host(""));
        assert!(
            now == *before,
            "left: {:?}",
            now.keys().filter(|path| !before.contains_key(*path)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn an_interrupted_action_is_undone() {
    for leaves in [false, true] {
        let mut bench = Bench::new();
        bench.write("first.conf", "theirs\n");
        bench.write("mode.conf", "as it is\n");
        bench.write("link.conf", "theirs\n");
        bench.write("whole/stranger", "theirs\n");
        bench.set_mode("mode.conf", 0o604);
        let before = snapshot(&bench.host(""));
        let one = bench.wanted(r#"{"files": {"@/keep.conf": {"content": "ours\n"}}}"#);
        if !leaves {
            bench.apply(&one).expect("applied");
        }
        let two = bench.begin(
            r#""@/first.conf": {"content": "ours\n"}, "@/mode.conf": {"content": "as it is\n", "mode": "0640"},
               "@/link.conf": {"link": "first.conf"}, "@/empty": {"folder": true},
               "@/whole": {"folder": true, "whole": true}, "#,
        );
        bench.again();
        if leaves {
            bench.retire(&two).expect("retired");
        } else {
            assert_eq!(bench.state(&one), State::Outdated);
            bench.apply(&one).expect("applied");
            assert_eq!(bench.state(&one), State::Present);
            assert_eq!(bench.apply(&one).expect("again").changed, 0);
            assert!(!bench.host("new").exists() && bench.read("first.conf") == "theirs\n");
            bench.retire(&one).expect("retired");
        }
        bench.is_as(&before);
    }
}

#[test]
fn a_user_s_edit_of_a_file_not_reached_by_an_action_stays() {
    let bench = Bench::new();
    bench.write("zz.conf", "theirs\n");
    let two = bench.begin(r#""@/zz.conf": {"content": "ours\n"}, "#);
    assert_eq!(bench.read("zz.conf"), "theirs\n", "it did not come so far");
    bench.write("zz.conf", "theirs, edited\n");
    bench.retire(&two).expect("retired");
    assert_eq!(bench.read("zz.conf"), "theirs, edited\n");
    assert!(!bench.host("new").exists());
}

#[test]
fn a_path_that_moves_to_another_tree_is_restored_by_the_last_tree() {
    for other_first in [false, true] {
        let mut bench = Bench::new();
        bench.write("y.conf", "distro\n");
        let before = snapshot(&bench.host(""));
        let text = |y: &str| format!(r#""@/y.conf": {{"content": "{y}"}}"#);
        let both = bench.wanted(&format!(r#"{{"files": {{"@/x.conf": {{"content": "x\n"}}, {}}}}}"#, text("ours\\n")));
        let less = bench.wanted(r#"{"files": {"@/x.conf": {"content": "x\n"}}}"#);
        let other = bench.wanted(&format!(r#"{{"files": {{{}}}}}"#, text("ours\\n")));
        bench.apply_to("n1/a", &both).expect("applied");
        if other_first {
            bench.apply_to("n1/b", &other).expect("applied");
            bench.apply_to("n1/a", &less).expect("applied");
        } else {
            bench.apply_to("n1/a", &less).expect("applied");
            assert_eq!(bench.read("y.conf"), "distro\n");
            bench.apply_to("n1/b", &other).expect("applied");
        }
        assert_eq!(bench.read("y.conf"), "ours\n");
        bench.again();
        let state = |cob: &str, wanted: &Wanted| bench.files.check(cob, wanted).expect("looked").state;
        assert_eq!((state("n1/a", &less), state("n1/b", &other)), (State::Present, State::Present));
        bench.retire_of("n1/a", &less).expect("retired");
        assert_eq!(bench.read("y.conf"), "ours\n");
        bench.retire_of("n1/b", &other).expect("retired");
        bench.is_as(&before);
    }
}

#[test]
fn a_user_s_lines_stay_when_a_path_moves_to_another_tree() {
    let bench = Bench::new();
    let one = |text: &str| bench.one(text, r#", "manage": "merge""#);
    bench.apply_to("n1/a", &one("a\nb\nc\n")).expect("applied");
    bench.write("x.conf", "a\nb\nc\nmine\n");
    bench.apply_to("n1/b", &one("A\nb\nc\n")).expect("applied");
    assert_eq!(bench.read("x.conf"), "A\nb\nc\nmine\n");
    bench.retire_of("n1/a", &one("a\nb\nc\n")).expect("retired");
    assert_eq!(bench.read("x.conf"), "A\nb\nc\nmine\n");
}

#[test]
fn a_folder_is_removed_with_the_last_tree_that_has_it() {
    for folder_first in [true, false] {
        let bench = Bench::new();
        let before = snapshot(&bench.host(""));
        let folder = bench.wanted(r#"{"files": {"@/log": {"folder": true, "mode": "0750"}}}"#);
        let file = bench.wanted(r#"{"files": {"@/log/x.conf": {"content": "x\n"}}}"#);
        let order =
            if folder_first { [("n1/a", &folder), ("n1/b", &file)] } else { [("n1/b", &file), ("n1/a", &folder)] };
        for (cob, wanted) in order {
            bench.apply_to(cob, wanted).expect("applied");
        }
        bench.retire_of("n1/b", &file).expect("retired");
        assert_eq!(bench.mode("log"), 0o750, "it is the other one's");
        bench.retire_of("n1/a", &folder).expect("retired");
        bench.is_as(&before);
    }
    // And with two trees that have the same folder.
    let bench = Bench::new();
    let before = snapshot(&bench.host(""));
    let folder = bench.wanted(r#"{"files": {"@/log": {"folder": true}}}"#);
    for cob in ["n1/a", "n1/b"] {
        bench.apply_to(cob, &folder).expect("applied");
    }
    bench.retire_of("n1/a", &folder).expect("retired");
    assert!(bench.host("log").exists());
    bench.retire_of("n1/b", &folder).expect("retired");
    bench.is_as(&before);
}

#[test]
fn trees_that_depart_together_leave_no_files() {
    for _ in 0..20 {
        let bench = Bench::new();
        let before = snapshot(&bench.host(""));
        let cobs: Vec<(String, Wanted)> = (0..8)
            .map(|n| {
                let wanted =
                    format!(r#"{{"files": {{"@/a/b": {{"folder": true}}, "@/a/b/{n}": {{"content": "x"}}}}}}"#);
                (format!("n1/c{n}"), bench.wanted(&wanted))
            })
            .collect();
        for (cob, wanted) in &cobs {
            bench.apply_to(cob, wanted).expect("applied");
        }
        std::thread::scope(|scope| {
            for (cob, wanted) in &cobs {
                scope.spawn(|| bench.retire_of(cob, wanted).expect("retired"));
            }
        });
        bench.is_as(&before);
    }
}

#[test]
fn a_departing_merged_file_beside_copied_files_keeps_a_user_s_lines() {
    let bench = Bench::new();
    let shared = r#""@/a.conf": {"content": "a\nb\n", "manage": "merge"}, "#;
    let wanted = |shared: &str| bench.wanted(&format!(r#"{{"files": {{{shared}"@/b.conf": {{"content": "b\n"}}}}}}"#));
    bench.write("a.conf", "before\n");
    bench.apply(&wanted(shared)).expect("applied");
    bench.write("a.conf", "a\nb\nmine\n");
    let error = bench.apply(&wanted("")).expect_err("a conflict: what was before excludes them");
    assert!(matches!(error, FilesError::Conflict(_)), "{error}");
    assert_eq!(bench.read("a.conf"), "a\nb\nmine\n");
}

#[test]
fn a_file_that_departs_from_a_whole_folder_returns_with_the_folder() {
    let bench = Bench::new();
    bench.write("conf.d/default.conf", "distro\n");
    let before = snapshot(&bench.host(""));
    let wanted = |files: &str| {
        bench.wanted(&format!(r#"{{"files": {{"@/conf.d": {{"folder": true, "whole": true}}{files}}}}}"#))
    };
    let both = wanted(r#", "@/conf.d/default.conf": {"content": "ours\n"}, "@/conf.d/a.conf": {"content": "a\n"}"#);
    let less = wanted(r#", "@/conf.d/a.conf": {"content": "a\n"}"#);
    bench.apply(&both).expect("applied");
    bench.apply(&less).expect("applied");
    assert!(!bench.host("conf.d/default.conf").exists(), "it has no place there");
    assert_eq!(bench.state(&less), State::Present);
    bench.apply(&both).expect("applied");
    assert_eq!(bench.read("conf.d/default.conf"), "ours\n");
    bench.apply(&less).expect("applied");
    bench.retire(&less).expect("retired");
    bench.is_as(&before);
}

#[test]
fn a_recreated_file_keeps_its_original_mode() {
    let bench = Bench::new();
    bench.write("x.conf", "password=old\n");
    bench.set_mode("x.conf", 0o600);
    let before = snapshot(&bench.host(""));
    let wanted = bench.one("password=new\n", "");
    bench.apply(&wanted).expect("applied");
    fs::remove_file(bench.host("x.conf")).expect("removed");
    bench.apply(&wanted).expect("healed");
    assert_eq!(bench.mode("x.conf"), 0o600);
    fs::remove_file(bench.host("x.conf")).expect("removed");
    bench.retire(&wanted).expect("retired");
    bench.is_as(&before);
}

#[test]
fn an_attribute_that_the_model_no_longer_names_is_restored() {
    let bench = Bench::new();
    bench.write("x.conf", "text\n");
    bench.set_mode("x.conf", 0o604);
    let wanted = |more: &str| bench.wanted(&format!(r#"{{"files": {{"@/x.conf": {{"content": "ours\n"{more}}}}}}}"#));
    bench.apply(&wanted(r#", "mode": "0640""#)).expect("applied");
    bench.apply(&wanted("")).expect("applied");
    assert_eq!(bench.mode("x.conf"), 0o604);
    // A mode that a user has set since stays.
    bench.apply(&wanted(r#", "mode": "0640""#)).expect("applied");
    bench.set_mode("x.conf", 0o600);
    bench.apply(&wanted("")).expect("applied");
    assert_eq!(bench.mode("x.conf"), 0o600);
}

#[test]
fn an_extended_attribute_of_the_model_is_removed_with_it() {
    let bench = Bench::new();
    let path = bench.host("x.conf");
    let get = |name: &str| {
        let mut value = [0; 16];
        rustix::fs::getxattr(&path, name, value.as_mut_slice()).ok().map(|n| value[..n].to_vec())
    };
    bench.write("x.conf", "text\n");
    if rustix::fs::setxattr(&path, "user.theirs", b"1", rustix::fs::XattrFlags::empty()).is_err() {
        eprintln!("no extended attributes on this file system");
        return;
    }
    let wanted = |more: &str| bench.wanted(&format!(r#"{{"files": {{"@/x.conf": {{"content": "text\n"{more}}}}}}}"#));
    let both = wanted(r#", "xattrs": {"user.ours": "2", "user.theirs": "2"}"#);
    bench.apply(&both).expect("applied");
    assert_eq!((get("user.ours"), get("user.theirs")), (Some(b"2".to_vec()), Some(b"2".to_vec())));
    bench.apply(&wanted("")).expect("applied");
    assert_eq!((get("user.ours"), get("user.theirs")), (None, Some(b"1".to_vec())));
    bench.apply(&both).expect("applied");
    bench.retire(&both).expect("retired");
    assert_eq!((get("user.ours"), get("user.theirs")), (None, Some(b"1".to_vec())));
}

#[test]
fn a_decision_about_lines_does_not_change_the_mode() {
    let bench = Bench::new();
    let wanted = |text: &str| {
        bench.wanted(&format!(
            r#"{{"files": {{"@/x.conf": {{"content": "{text}", "mode": "0644", "manage": "merge"}}}}}}"#
        ))
    };
    bench.apply(&wanted("a\\n")).expect("applied");
    bench.write("x.conf", "mine\n");
    bench.set_mode("x.conf", 0o600);
    let next = wanted("ours\\n");
    bench.apply(&next).expect_err("a conflict");
    bench.files.resolve(COB, &next, false, None, None, &Choice::Theirs).expect("decided");
    bench.apply(&next).expect("applied");
    assert_eq!((bench.read("x.conf").as_str(), bench.mode("x.conf")), ("ours\n", 0o600));
}

#[test]
fn an_earlier_secret_is_not_shown_when_the_file_has_none_any_more() {
    for manage in ["copy", "merge"] {
        let mut bench = Bench::new();
        let one = bench.secret("password=hunter2\n");
        let two = bench.one("nothing\n", &format!(r#", "manage": "{manage}""#));
        bench.apply(&one).expect("applied");
        let checked = bench.files.check(COB, &two).expect("looked");
        assert_eq!(checked.state, State::Outdated);
        assert!(checked.difference.contains("held a secret") && !checked.difference.contains("hunter2"));
        bench.apply(&two).expect("applied");
        assert_eq!((bench.read("x.conf").as_str(), bench.state(&two)), ("nothing\n", State::Present));
        bench.again();
        for version in bench.files.log(COB, 10).expect("read") {
            assert!(!bench.files.show(COB, &version.id).expect("shown").contains("hunter2"));
            let content = bench.files.content(COB, &version.id, &bench.tree_path("x.conf"));
            assert!(content.is_err() || content.is_ok_and(|content| content == b"nothing\n"));
        }
    }
}

#[test]
fn a_secret_is_not_kept_when_its_path_moves_to_another_tree() {
    let bench = Bench::new();
    bench.apply_to("n1/a", &bench.secret("password=hunter2\n")).expect("applied");
    let other = bench.one("nothing\n", "");
    bench.apply_to("n1/b", &other).expect("applied");
    assert_eq!(bench.read("x.conf"), "nothing\n");
    bench.retire_of("n1/a", &bench.secret("password=hunter2\n")).expect("retired");
    assert_eq!(bench.read("x.conf"), "nothing\n");
    bench.retire_of("n1/b", &other).expect("retired");
    assert!(!bench.host("x.conf").exists());
}

#[test]
fn a_link_is_restored_as_a_link() {
    let bench = Bench::new();
    symlink("nowhere", bench.host("link")).expect("a link");
    let wanted = bench.wanted(r#"{"files": {"@/link": {"link": "x.conf"}}}"#);
    bench.apply(&wanted).expect("applied");
    let version = bench.files.log(COB, 10).expect("read").pop().expect("the first").id;
    for there in [true, false] {
        if !there {
            fs::remove_file(bench.host("link")).expect("removed");
        }
        bench.files.restore(COB, &version, &bench.tree_path("link")).expect("restored");
        assert_eq!(fs::read_link(bench.host("link")).expect("a link"), Path::new("nowhere"));
    }
}

#[test]
fn a_decision_applies_only_to_the_conflict_that_was_shown() {
    let bench = Bench::new();
    let wanted = |text: &str| bench.one(text, r#", "manage": "merge""#);
    bench.apply(&wanted("a\n")).expect("applied");
    bench.write("x.conf", "mine\n");
    let next = wanted("ours\n");
    let (path, _, shown) = bench.files.hunks(COB, &next, false, None).expect("to be edited");
    bench.write("x.conf", "mine\nprecious\n");
    let edited = Choice::Edited(b"edited\n".to_vec());
    let decide = |id: &str| bench.files.resolve(COB, &next, false, Some(&path), Some(id), &edited);
    let error = decide(&shown).expect_err("it is another conflict");
    assert!(error.to_string().contains("look at it again"), "{error}");
    let (_, _, shown) = bench.files.hunks(COB, &next, false, None).expect("to be edited");
    assert_eq!(decide(&shown).expect("decided"), 1);
}

#[test]
fn a_conflict_of_a_departing_tree_can_be_shown_and_edited() {
    let bench = Bench::new();
    bench.write("x.conf", "before\n");
    let wanted = bench.one("ours\n", r#", "manage": "merge""#);
    bench.apply(&wanted).expect("applied");
    bench.write("x.conf", "mine\n");
    bench.retire(&wanted).expect_err("a conflict");
    let looked = bench.files.look(COB, &wanted, true).expect("looked");
    assert_eq!(looked.state, State::Conflict);
    assert!(looked.difference.contains("+before"), "{}", looked.difference);
    let (path, hunks, shown) = bench.files.hunks(COB, &wanted, true, None).expect("to be edited");
    assert!(String::from_utf8_lossy(&hunks).contains("before"));
    let edited = Choice::Edited(b"both\n".to_vec());
    bench.files.resolve(COB, &wanted, true, Some(&path), Some(&shown), &edited).expect("decided");
    bench.retire(&wanted).expect("retired");
    assert_eq!(bench.read("x.conf"), "both\n");
}

#[test]
fn a_tree_that_never_managed_a_file_departs_without_changes() {
    let bench = Bench::new();
    fs::create_dir(bench.host("real")).expect("made");
    symlink("real", bench.host("lnk")).expect("a link");
    let wanted = bench.wanted(r#"{"files": {"@/lnk/ww": {"content": "y"}}}"#);
    let error = bench.files.check(COB, &wanted).expect_err("a link on the way");
    assert!(error.to_string().contains("follows no link"), "{error}");
    bench.apply(&wanted).expect_err("a link on the way");
    assert!(!bench.files.is_managed(COB));
    let looked = bench.files.look(COB, &wanted, true).expect("it does not matter");
    assert_eq!((looked.state, looked.difference.as_str()), (State::Absent, ""));
    assert_eq!(bench.retire(&wanted).expect("nothing").changed, 0);
}

#[test]
fn the_message_of_a_conflict_begins_with_the_commands_to_solve_it() {
    let bench = Bench::new();
    bench.write("x.conf", "before\n");
    let wanted = bench.one("ours\n", r#", "on_drift": "adopt""#);
    bench.apply(&wanted).expect("applied");
    bench.write("x.conf", "mine\n");
    let error = bench.retire(&wanted).expect_err("a conflict").to_string();
    assert!(error.starts_with("`cobctl diff` shows both sides, `cobctl resolve` decides: conflict in "), "{error}");
}
