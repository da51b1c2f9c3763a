//! The report of a version, and the files in it.

use super::*;

fn newest(bench: &Bench, reason: Reason) -> String {
    let log = bench.files.log(COB, 100).expect("read");
    log.into_iter().find(|version| version.info.reason == reason).expect("there").id
}

fn shown(bench: &Bench, reason: Reason) -> String {
    bench.files.show(COB, &newest(bench, reason)).expect("shown")
}

impl Bench {
    /// Nine files: eight copied files and a shared file.
    fn nine(&self, workers: u32) -> Wanted {
        let files: Vec<_> = (1..9).map(|n| format!(r#""@/f{n}": {{"content": "text {n}\n"}}"#)).collect();
        let shared =
            format!(r#""@/local.conf": {{"manage": "merge", "content": "workers {workers}\nlog warn\n\n\nend\n"}}"#);
        self.wanted(&format!(r#"{{"files": {{{}, {shared}}}}}"#, files.join(", ")))
    }
}

#[test]
fn a_version_shows_only_its_own_changes() {
    let bench = Bench::new();
    bench.write("f1", "theirs\n");
    bench.apply(&bench.nine(4)).expect("applied");
    let before = shown(&bench, Reason::Before);
    assert!(before.contains("before ") && before.contains("/f1\n") && before.contains("+theirs\n"), "{before}");
    assert!(before.contains("/f2: not there\n"), "{before}");
    let applied = shown(&bench, Reason::Applied);
    assert_eq!(applied.matches("applied ").count(), 9, "{applied}");
    assert!(applied.contains("-theirs\n+text 1\n"), "{applied}");

    bench.apply(&bench.nine(8)).expect("applied");
    let applied = shown(&bench, Reason::Applied);
    assert_eq!(applied.matches("applied ").count(), 1, "{applied}");
    assert!(applied.contains("local.conf\n") && applied.contains("-workers 4\n+workers 8\n"), "{applied}");
    let found = shown(&bench, Reason::Found);
    assert_eq!(found, "found: no difference to the version before\n");

    // The text of others is shown against the applied text, and the repair against the text of others.
    bench.write("f2", "mine\n");
    bench.apply(&bench.nine(8)).expect("healed");
    let found = shown(&bench, Reason::Found);
    assert_eq!(found.matches("found ").count(), 1, "{found}");
    assert!(found.contains("-text 2\n+mine\n"), "{found}");
    let applied = shown(&bench, Reason::Applied);
    assert_eq!(applied.matches("applied ").count(), 1, "{applied}");
    assert!(applied.contains("-mine\n+text 2\n"), "{applied}");

    // Paths that the model no longer names, and then all paths.
    let only = bench.wanted(r#"{"files": {"@/f1": {"content": "text 1\n"}}}"#);
    bench.apply(&only).expect("applied");
    let applied = shown(&bench, Reason::Applied);
    assert_eq!(applied.matches("applied ").count(), 8, "{applied}");
    assert!(applied.contains("/f2: not there\n"), "{applied}");
    bench.retire(&only).expect("retired");
    let retired = shown(&bench, Reason::Retired);
    assert_eq!(retired.matches("retired ").count(), 1, "{retired}");
    assert!(retired.contains("-text 1\n+theirs\n"), "{retired}");
}

#[test]
fn an_applied_version_has_a_shared_file_as_it_was() {
    let bench = Bench::new();
    let path = bench.tree_path("local.conf");
    let content =
        |version: &str| String::from_utf8(bench.files.content(COB, version, &path).expect("kept")).expect("text");
    bench.apply(&bench.nine(4)).expect("applied");
    let first = newest(&bench, Reason::Applied);
    bench.write("local.conf", "workers 4\nlog warn\n\n\nend\nmine\n");
    bench.apply(&bench.nine(8)).expect("merged");
    let merged = "workers 8\nlog warn\n\n\nend\nmine\n";
    assert_eq!(bench.read("local.conf"), merged);
    let second = newest(&bench, Reason::Applied);
    assert_eq!(content(&first), "workers 4\nlog warn\n\n\nend\n");
    assert_eq!(content(&second), merged);
    let applied = bench.files.show(COB, &second).expect("shown");
    assert!(applied.contains("-workers 4\n+workers 8\n") && !applied.contains("-mine"), "{applied}");
    // A version about another path has the file as in the previous version.
    bench.write("f1", "mine\n");
    bench.apply(&bench.nine(8)).expect("healed");
    let third = newest(&bench, Reason::Applied);
    assert_eq!(content(&third), merged);
    bench.files.restore(COB, &first, &path).expect("restored");
    assert_eq!(bench.read("local.conf"), "workers 4\nlog warn\n\n\nend\n");
    bench.files.restore(COB, &third, &path).expect("restored");
    assert_eq!(bench.read("local.conf"), merged);

    // If a person decides that the file stays, the version has it as it stays.
    bench.write("local.conf", "workers 77\n");
    let next = bench.nine(9);
    bench.files.resolve(COB, &next, false, None, None, &Choice::Ours).expect("decided");
    bench.apply(&next).expect("applied");
    let here = bench.read("local.conf");
    assert!(here.starts_with("workers 77\n"), "{here}");
    assert_eq!(content(&newest(&bench, Reason::Applied)), here);
}

#[test]
fn a_version_shows_all_its_changes_after_earlier_ones_are_pruned() {
    let bench = Bench::new();
    bench.apply(&bench.nine(4)).expect("applied");
    bench.apply(&bench.nine(8)).expect("applied");
    bench.files.prune(u64::MAX).expect("pruned");
    assert_eq!(bench.files.log(COB, 10).expect("read").len(), 1);
    let applied = shown(&bench, Reason::Applied);
    assert!(applied.contains("local.conf\n") && applied.contains("+workers 8\n"), "{applied}");
}
