//! A tree that is put off and comes back, while it stays in the model: users' changes come back with it.

use super::*;

const BEFORE: &str = "workers 1\nlog warn\ncolour blue\nsize 7\n";
const OURS: &str = "workers 4\nlog warn\ncolour blue\nsize 7\n";
const WITH_MINE: &str = "workers 4\nlog warn\ncolour blue\nmine\nsize 7\n";

impl Bench {
    fn shared(&self, text: &str) -> Wanted {
        self.one(text, r#", "manage": "merge""#)
    }

    /// Applies the tree over an earlier text, and then a user edits the file.
    fn with(&self, before: Option<&str>, mine: &str) -> Wanted {
        if let Some(text) = before {
            self.write("x.conf", text);
        }
        let wanted = self.shared(OURS);
        self.apply(&wanted).expect("applied");
        self.write("x.conf", mine);
        wanted
    }

    fn now(&self) -> Option<String> {
        fs::read_to_string(self.host("x.conf")).ok()
    }
}

#[test]
fn a_user_s_line_returns_with_its_tree() {
    // Merged with the earlier text; in its place, if there was no earlier text; on lines that the model has changed.
    let touches = "workers 4\nmine\nlog warn\ncolour blue\nsize 7\n";
    let merged = "workers 1\nlog warn\ncolour blue\nmine\nsize 7\n";
    for (before, mine, off) in
        [(Some(BEFORE), WITH_MINE, merged), (None, WITH_MINE, WITH_MINE), (Some(BEFORE), touches, touches)]
    {
        let mut bench = Bench::new();
        let wanted = bench.with(before, mine);
        for _ in 0..3 {
            bench.off(&wanted).expect("there is nothing to decide");
            assert_eq!(bench.now().as_deref(), Some(off));
            bench.again();
            assert_eq!(bench.state(&wanted), State::Absent);
            bench.apply(&wanted).expect("applied");
            assert_eq!((bench.read("x.conf").as_str(), bench.state(&wanted)), (mine, State::Present));
        }
        // And with another text of the model.
        bench.off(&wanted).expect("off");
        let next = bench.shared(&OURS.replace("size 7", "size 7\nport 80"));
        let both = mine.replace("size 7", "size 7\nport 80");
        if before.is_none() || mine == touches {
            bench.apply(&next).expect("applied");
            assert_eq!(bench.read("x.conf"), both);
        }
    }
}

#[test]
fn an_original_text_that_a_user_restored_stays_with_the_user() {
    let mut bench = Bench::new();
    let wanted = bench.with(Some(BEFORE), BEFORE);
    bench.off(&wanted).expect("off");
    bench.again();
    bench.apply(&wanted).expect("applied");
    assert_eq!(bench.read("x.conf"), BEFORE);
    let mine = BEFORE.replace("size 7", "size 8");
    bench.write("x.conf", &mine);
    bench.off(&wanted).expect("off");
    bench.apply(&wanted).expect("applied");
    assert_eq!(bench.read("x.conf"), mine);
}

#[test]
fn changes_made_while_a_tree_is_off_are_merged() {
    for before in [Some(BEFORE), None] {
        let bench = Bench::new();
        let wanted = bench.with(before, WITH_MINE);
        bench.off(&wanted).expect("off");
        bench.write("x.conf", &format!("{}since\n", bench.read("x.conf")));
        bench.apply(&wanted).expect("applied");
        assert_eq!(bench.read("x.conf"), format!("{WITH_MINE}since\n"));
        assert_eq!(bench.state(&wanted), State::Present);
    }
}

#[test]
fn a_change_against_a_stored_edit_is_a_conflict() {
    for (choice, workers) in [(Choice::Ours, 2), (Choice::Theirs, 4)] {
        let bench = Bench::new();
        let wanted = bench.with(Some(BEFORE), WITH_MINE);
        bench.off(&wanted).expect("off");
        bench.write("x.conf", &bench.read("x.conf").replace("mine", "mine, since").replace("workers 1", "workers 2"));
        let error = bench.apply(&wanted).map(drop).expect_err("both are a user's");
        assert!(matches!(error, FilesError::Conflict(_)), "{error}");
        assert_eq!(bench.state(&wanted), State::Conflict);
        bench.files.resolve(COB, &wanted, false, None, None, &choice).expect("decided");
        bench.apply(&wanted).expect("decided");
        let comes = format!("workers {workers}\nlog warn\ncolour blue\nmine, since\nsize 7\n");
        assert_eq!(bench.read("x.conf"), comes, "{choice:?}");
        assert_eq!(bench.state(&wanted), State::Present);
    }
}

#[test]
fn a_tree_that_was_off_restores_the_original_file_when_it_departs() {
    for before in [Some(BEFORE), None] {
        let mut bench = Bench::new();
        let wanted = bench.with(before, WITH_MINE);
        bench.off(&wanted).expect("off");
        bench.again();
        bench.apply(&wanted).expect("applied");
        if before.is_none() {
            let error = bench.retire(&wanted).map(drop).expect_err("for good is another thing");
            assert!(matches!(error, FilesError::Conflict(_)), "{error}");
        }
        bench.write("x.conf", OURS);
        bench.retire(&wanted).expect("retired");
        assert_eq!(bench.now().as_deref(), before);
        // The file was restored as a whole: no change is left for the next application.
        bench.apply(&wanted).expect("applied");
        assert_eq!(bench.read("x.conf"), OURS);
    }
}

#[test]
fn folders_of_a_file_that_stays_are_removed_with_the_file() {
    let mut bench = Bench::new();
    let before = snapshot(&bench.host(""));
    let wanted = |name: &str| {
        bench.wanted(&format!(r#"{{"files": {{"@/a/b/{name}": {{"content": "ours\n"}}}}, "manage": "merge"}}"#))
    };
    let (one, other) = (wanted("x"), wanted("y"));
    bench.apply(&one).expect("applied");
    bench.write("a/b/x", "ours\nmine\n");
    bench.off(&one).expect("off");
    assert_eq!(bench.read("a/b/x"), "ours\nmine\n");
    bench.again();
    // The file belongs to the tree, and can't be removed while a user's line is in it.
    let error = bench.apply(&other).map(drop).expect_err("it leaves");
    assert!(matches!(error, FilesError::Conflict(_)), "{error}");
    bench.write("a/b/x", "ours\n");
    bench.apply(&other).expect("applied");
    assert!(!bench.host("a/b/x").exists());
    bench.retire(&other).expect("retired");
    assert_eq!(snapshot(&bench.host("")), before);
}

#[test]
fn a_mode_that_a_user_has_set_returns_with_its_tree() {
    let bench = Bench::new();
    bench.write("x.conf", "before\n");
    let wanted = bench.wanted(r#"{"files": {"@/x.conf": {"content": "ours\n", "mode": "0640"}}, "manage": "merge"}"#);
    let mode = || fs::metadata(bench.host("x.conf")).expect("there").permissions().mode() & 0o7777;
    bench.apply(&wanted).expect("applied");
    fs::set_permissions(bench.host("x.conf"), fs::Permissions::from_mode(0o600)).expect("set");
    bench.off(&wanted).expect("off");
    bench.apply(&wanted).expect("applied");
    assert_eq!((bench.read("x.conf").as_str(), mode()), ("ours\n", 0o600));
}

#[test]
fn a_reported_change_returns_with_its_tree() {
    let mut bench = Bench::new();
    bench.write("x.conf", "before\n");
    let wanted = bench.one("ours\n", r#", "on_drift": "report""#);
    bench.apply(&wanted).expect("applied");
    bench.write("x.conf", "theirs\n");
    bench.off(&wanted).expect("off");
    assert_eq!(bench.read("x.conf"), "before\n");
    bench.again();
    bench.apply(&wanted).expect("applied");
    assert_eq!(bench.read("x.conf"), "theirs\n");
    bench.off(&wanted).expect("off");
    bench.apply(&bench.one("new\n", r#", "on_drift": "report""#)).expect("the model has changed it");
    assert_eq!(bench.read("x.conf"), "new\n");
}

#[test]
fn a_user_s_lines_stay_in_a_shared_file_after_its_trees_were_off() {
    for a_first in [true, false] {
        let mut bench = Bench::new();
        let (a, b) = (bench.shared(OURS), bench.shared(&OURS.replace("size 7", "size 8")));
        bench.write("x.conf", BEFORE);
        bench.apply_to("n1/a", &a).expect("applied");
        bench.write("x.conf", "mine\n\n\nworkers 4\nlog warn\ncolour blue\nsize 7\n");
        bench.apply_to("n1/b", &b).expect("applied");
        assert!(bench.read("x.conf").contains("mine") && bench.read("x.conf").contains("size 8"));
        bench.off_of("n1/a", &a).expect("off");
        bench.off_of("n1/b", &b).expect("off");
        bench.again();
        // Either of the trees can come back, without the other.
        let (cob, wanted) = if a_first { ("n1/a", &a) } else { ("n1/b", &b) };
        bench.apply_to(cob, wanted).expect("applied");
        let text = bench.read("x.conf");
        assert!(text.starts_with("mine\n") && text.contains("workers 4"), "{text}");
    }
}

/// The action is killed before the file is in its place, or after.
#[test]
fn a_stored_edit_survives_interrupted_transitions() {
    let interrupted = |bench: &Bench, wanted: &Wanted, off: bool| {
        bench.interrupted(wanted, off, (!off).then_some("new/0000"));
    };
    // With so many files there are several batches: x.conf is in the first batch, zz.conf is not.
    for name in ["x.conf", "zz.conf"] {
        let mut bench = Bench::new();
        let many: String = (0..1100).map(|n| format!(r#""@/new/{n:04}": {{"content": "new\n"}}, "#)).collect();
        let item = |text: &str| format!(r#""@/{name}": {{"content": {}, "manage": "merge"}}"#, serde_json::json!(text));
        let few = bench.wanted(&format!(r#"{{"files": {{{}}}}}"#, item(OURS)));
        let all = |text: &str| {
            let text = format!(r#"{{"files": {{{many}{}, "@/zzz": {{"content": "z\n"}}}}}}"#, item(text));
            bench.wanted(&text)
        };
        let (all, next) = (all(OURS), all(&OURS.replace("workers 4", "workers 5")));
        bench.write(name, BEFORE);
        bench.write("zzz", "before\n");
        bench.apply(&few).expect("applied");
        bench.write(name, WITH_MINE);
        bench.off(&few).expect("off");
        for wanted in [&all, &next] {
            interrupted(&bench, wanted, false);
            bench.again();
        }
        bench.apply(&next).expect("applied");
        let mine = WITH_MINE.replace("workers 4", "workers 5");
        assert_eq!(bench.read(name), mine);
        // The action that puts the tree off is interrupted; then the tree is applied, at once or after another attempt.
        for goes_on in [false, true] {
            interrupted(&bench, &next, true);
            bench.again();
            if goes_on {
                bench.off(&next).expect("off");
            }
            bench.apply(&next).expect("applied");
            assert_eq!(bench.read(name), mine);
        }
        // An interrupted application, after which the tree is put off again.
        bench.off(&next).expect("off");
        interrupted(&bench, &next, false);
        bench.again();
        bench.off(&next).expect("off");
        bench.apply(&next).expect("applied");
        assert_eq!(bench.read(name), mine);
        bench.write(name, &OURS.replace("workers 4", "workers 5"));
        bench.retire(&next).expect("retired");
        assert_eq!(bench.read(name), BEFORE);
    }
}
