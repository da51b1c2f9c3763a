//! Checkouts of a repository in a folder that stands for a host.

use std::fs;

use super::super::tests::{host, moved, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

/// Runs git in a repository of a test.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
    let out = command.args(["-c", "init.defaultBranch=main"]).args(arguments).output().expect("git runs");
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}

/// A host with a repository that has two versions.
fn with_repository(files: &[(&str, &str)]) -> tempfile::TempDir {
    let host = host(files);
    let repo = host.path().join("srv/repo");
    fs::create_dir_all(&repo).expect("made");
    git(&repo, &["init", "--quiet"]);
    commit(&repo, &[("app/run", "one\n"), (".gitignore", "*.log\ncache/\n")]);
    git(&repo, &["tag", "v1"]);
    commit(&repo, &[("app/run", "two\n"), ("more", "x")]);
    git(&repo, &["tag", "-a", "-m", "second", "v2"]);
    host
}

fn commit(repo: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = repo.join(name);
        fs::create_dir_all(path.parent().expect("below")).expect("made");
        fs::write(path, text).expect("written");
    }
    git(repo, &["add", "."]);
    git(repo, &["commit", "--quiet", "-m", "files"]);
}

fn content(root: &Path, reference: &str) -> String {
    format!(r#"{{"root":"{}","repo":"/srv/repo","path":"/opt/app","ref":"{reference}"}}"#, root.display())
}

#[tokio::test]
async fn git_checkouts_keep_the_contract() {
    for files in [&[][..], &[("opt/app/theirs", "theirs")]] {
        let host = with_repository(files);
        let [own, other] = ["v1", "main"].map(|reference| content(host.path(), reference));
        fs::create_dir_all(host.path().join("opt")).expect("made");
        let case = Case::new(setting("git-checkout"), &own).other(&other).watching(host.path().join("opt")).kills(3);
        holds(&case, &[]).await;
        assert_eq!(fs::read_dir(host.path().join("opt")).expect("listed").count(), files.len());
    }
}

#[tokio::test]
async fn branches_tags_and_commits_are_checked_out() {
    let host = with_repository(&[]);
    let (repo, place) = (host.path().join("srv/repo"), host.path().join("opt/app"));
    let first = git(&repo, &["rev-parse", "v1"]);
    let mut bench = Bench::new();
    let mut from = "absent";
    for (reference, text) in [("main", "two\n"), (first.as_str(), "one\n"), ("v2", "two\n")] {
        let context = bench.context(&setting("git-checkout"), &content(host.path(), reference));
        moved(&mut bench, &context, from, "present").await;
        assert_eq!(fs::read_to_string(place.join("app/run")).expect("read"), text, "{reference}");
        from = "outdated";
    }
    // A branch stays at its commit until the content changes.
    let context = bench.context(&setting("git-checkout"), &content(host.path(), "main"));
    moved(&mut bench, &context, "outdated", "present").await;
    commit(&repo, &[("app/run", "three\n")]);
    assert_eq!(bench.state(&context).await, "present");
    moved(&mut bench, &context, "present", "absent").await;
    assert!(!host.path().join("opt").exists());
    for (reference, words) in
        [("v9", "has no branch, tag or commit v9"), (&"0".repeat(40), "has no branch, tag or commit")]
    {
        let context = bench.context(&setting("git-checkout"), &content(host.path(), reference));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{why}");
        assert!(!place.exists());
    }
}

#[tokio::test]
async fn changes_of_users_are_never_overwritten() {
    let host = with_repository(&[]);
    let place = host.path().join("opt/app");
    let mut bench = Bench::new();
    let [one, two] =
        ["v1", "v2"].map(|reference| bench.context(&setting("git-checkout"), &content(host.path(), reference)));
    moved(&mut bench, &one, "absent", "present").await;
    // What git ignores is no change, and moves to the next checkout.
    fs::create_dir_all(place.join("cache/deep")).expect("made");
    fs::write(place.join("cache/deep/x"), "cached").expect("written");
    fs::write(place.join("app/a.log"), "logged").expect("written");
    assert_eq!(bench.state(&one).await, "present");
    moved(&mut bench, &two, "outdated", "present").await;
    let kept = || ["cache/deep/x", "app/a.log"].map(|path| fs::read_to_string(place.join(path)).unwrap_or_default());
    assert_eq!(kept(), ["cached", "logged"]);
    // An edit, a new file and a commit are conflicts.
    type Edit<'a> = &'a dyn Fn();
    let edits: [(Edit<'_>, &str, Edit<'_>); 3] = [
        (&|| fs::write(place.join("app/run"), "edited").expect("written"), "app/run is changed", &|| {
            fs::write(place.join("app/run"), "two\n").expect("written")
        }),
        (&|| fs::write(place.join("new"), "new").expect("written"), "new is new", &|| {
            fs::remove_file(place.join("new")).expect("removed")
        }),
        (
            &|| drop(git(&place, &["commit", "--quiet", "--allow-empty", "-m", "local"])),
            ".git/HEAD is changed",
            &|| drop(git(&place, &["checkout", "--quiet", "--detach", "v2"])),
        ),
    ];
    for (edit, words, undo) in edits {
        edit();
        let found = bench.check(&two).await;
        assert!(found.difference.contains(words), "{}", found.difference);
        for context in [&two, &one] {
            let why = reason(bench.transition(context, "outdated", "present").await);
            assert!(why.contains("has local changes, which COB does not overwrite") && why.contains(words), "{why}");
        }
        undo();
        assert_eq!(bench.state(&two).await, "present");
    }
    // At the departure the folder is kept beside.
    fs::write(place.join("app/run"), "edited").expect("written");
    moved(&mut bench, &two, "outdated", "absent").await;
    let changed = host.path().join("opt/.app.cob-changed");
    assert_eq!(fs::read_to_string(changed.join("app/run")).expect("read"), "edited");
    assert!(!place.exists());
}

#[tokio::test]
async fn an_exchange_is_completed_after_a_kill() {
    let host = with_repository(&[]);
    let mut bench = Bench::new();
    let [one, two] =
        ["v1", "v2"].map(|reference| bench.context(&setting("git-checkout"), &content(host.path(), reference)));
    moved(&mut bench, &one, "absent", "present").await;
    let [record, new] = [RECORD, NEW_RECORD].map(|name| bench.path("cobs/n1+a+b").join(name));
    // Killed after the exchange.
    let before = fs::read(&record).expect("read");
    moved(&mut bench, &two, "outdated", "present").await;
    fs::rename(&record, &new).expect("renamed");
    fs::write(&record, &before).expect("written");
    assert_eq!(bench.state(&two).await, "outdated");
    moved(&mut bench, &two, "outdated", "present").await;
    assert!(!new.exists());
    // Killed before the exchange, and the former content is wanted again.
    fs::write(&new, &before).expect("written");
    assert_eq!(bench.state(&two).await, "outdated");
    moved(&mut bench, &two, "outdated", "present").await;
    assert!(!new.exists());
}

#[tokio::test]
async fn submodules_are_checked_out() {
    let host = with_repository(&[]);
    let (repo, library) = (host.path().join("srv/repo"), host.path().join("srv/library"));
    fs::create_dir_all(&library).expect("made");
    git(&library, &["init", "--quiet"]);
    commit(&library, &[("code", "library")]);
    let from = library.display().to_string();
    git(&repo, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &from, "lib"]);
    git(&repo, &["commit", "--quiet", "-m", "library"]);
    let mut bench = Bench::new();
    let more = content(host.path(), "main").replace("\"ref\"", "\"submodules\":true,\"ref\"");
    let context = bench.context(&setting("git-checkout"), &more);
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(fs::read_to_string(host.path().join("opt/app/lib/code")).expect("read"), "library");
    fs::write(host.path().join("opt/app/lib/code"), "edited").expect("written");
    assert_eq!(bench.state(&context).await, "outdated");
}
