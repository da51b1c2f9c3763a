//! Diversions by the real program, in a folder that stands for a host.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::tests::{content, host, moved, read, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::has_program;
use crate::kinds::testing::{Bench, reason};

/// A host with a file of a package, and diversions of a package and of an administrator. Returns `None` without dpkg.
fn packaged() -> Option<tempfile::TempDir> {
    if !has_program(PROGRAM) || !has_program("dpkg-deb") || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it takes dpkg and root");
        return None;
    }
    let host = host(&[
        ("usr/bin/tool", "of the package"),
        ("usr/bin/other", ""),
        ("var/lib/dpkg/status", ""),
        ("var/lib/dpkg/info/format", "1\n"),
        ("var/lib/dpkg/updates/.x", ""),
        ("var/lib/dpkg/diversions", "/bin/sh\n/bin/sh.real\ndash\n/usr/bin/other\n/usr/bin/other.real\n:\n"),
    ]);
    fs::remove_file(host.path().join("var/lib/dpkg/updates/.x")).expect("removed");
    Some(host)
}

/// The diversions in their order by path: dpkg changes the order.
fn record(root: &Path) -> String {
    let mut all = diversions(&read(root.join(RECORD.trim_start_matches('/'))));
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all.iter().map(|Diversion { path, to, package }| format!("{path}\n{to}\n{package}\n")).collect()
}

fn text(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

#[tokio::test]
async fn a_file_is_diverted_and_gets_its_name_back() {
    let Some(host) = packaged() else { return };
    let (root, mut bench, kind) = (host.path(), Bench::new(), setting("divert"));
    let before = record(root);
    let context = bench.context(&kind, &content(root, r#""path":"/usr/bin/tool""#));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(record(root), format!("{before}/usr/bin/tool\n/usr/bin/tool.distrib\n:\n"));
    assert_eq!([text(root, "usr/bin/tool"), text(root, "usr/bin/tool.distrib")], [None, Some("of the package".into())]);
    // An installation of the package goes to the other path, beside a file of others.
    fs::write(root.join("usr/bin/tool"), "ours").expect("written");
    install(root);
    assert_eq!(text(root, "usr/bin/tool.distrib").as_deref(), Some("new"));
    assert_eq!(bench.state(&context).await, "present");
    let why = reason(bench.transition(&context, "present", "absent").await);
    assert!(why.contains("/usr/bin/tool has another file, so /usr/bin/tool.distrib can't get its name back"), "{why}");
    fs::remove_file(root.join("usr/bin/tool")).expect("removed");
    // An administrator removes the diversion.
    fs::write(root.join("var/lib/dpkg/diversions"), &before).expect("written");
    assert_eq!(bench.state(&context).await, "outdated");
    moved(&mut bench, &context, "outdated", "present").await;
    // Another path in the same change object.
    let other = bench.context(&kind, &content(root, r#""path":"/usr/bin/tool","to":"/usr/bin/tool.real""#));
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "present").await;
    assert_eq!([text(root, "usr/bin/tool.distrib"), text(root, "usr/bin/tool.real")], [None, Some("new".into())]);
    moved(&mut bench, &other, "present", "absent").await;
    assert_eq!((record(root), text(root, "usr/bin/tool").as_deref()), (before.clone(), Some("new")));
    // Without a rename.
    let kept = bench.context(&kind, &content(root, r#""path":"/usr/bin/tool","rename":false"#));
    moved(&mut bench, &kept, "absent", "present").await;
    assert_eq!([text(root, "usr/bin/tool"), text(root, "usr/bin/tool.distrib")], [Some("new".into()), None]);
    moved(&mut bench, &kept, "present", "absent").await;
    assert_eq!((record(root), text(root, "usr/bin/tool").as_deref()), (before, Some("new")));
}

/// Installs a package with the file.
fn install(root: &Path) {
    let control = "Package: tool\nVersion: 2\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: a tool\n";
    let tree = host(&[("DEBIAN/control", control), ("usr/bin/tool", "new")]);
    let file = root.join("tool.deb");
    let built = Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).args([tree.path(), &file]).output();
    assert!(built.expect("run").status.success());
    let mut install = Command::new("dpkg");
    let installed = install.arg("--root").arg(root).args(["--log=/dev/null", "--install"]).arg(&file).output();
    let installed = installed.expect("run");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
}

#[tokio::test]
async fn diversions_of_others_stay() {
    let Some(host) = packaged() else { return };
    let (root, mut bench, kind) = (host.path(), Bench::new(), setting("divert"));
    let before = record(root);
    fs::write(root.join("usr/bin/tool.distrib"), "theirs").expect("written");
    fs::create_dir_all(root.join("srv/data")).expect("made");
    for (keys, word) in [
        (r#""path":"/bin/sh""#, "the package dash diverts /bin/sh to /bin/sh.real; remove that diversion"),
        (r#""path":"/usr/bin/other""#, "an administrator diverts /usr/bin/other to /usr/bin/other.real"),
        (r#""path":"/usr/bin/tool","to":"/bin/sh""#, "the package dash diverts"),
        (r#""path":"/usr/bin/tool""#, "/usr/bin/tool and /usr/bin/tool.distrib exist; remove either file"),
        (r#""path":"/srv/data""#, "/srv/data is a folder"),
    ] {
        let context = bench.context(&kind, &content(root, keys));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(word), "{why}");
        moved(&mut bench, &context, "outdated", "absent").await;
        assert_eq!(record(root), before);
    }
    assert_eq!(text(root, "usr/bin/tool.distrib").as_deref(), Some("theirs"));
    // An equal diversion of an administrator stays when the change object leaves.
    let equal = bench.context(&kind, &content(root, r#""path":"/usr/bin/other","to":"/usr/bin/other.real""#));
    moved(&mut bench, &equal, "absent", "present").await;
    moved(&mut bench, &equal, "present", "absent").await;
    assert_eq!(record(root), before);
    assert!(root.join("usr/bin/other").exists());
    // A diversion that replaced that of the change object.
    let context = bench.context(&kind, &content(root, r#""path":"/usr/bin/tool","to":"/usr/bin/tool.real""#));
    moved(&mut bench, &context, "absent", "present").await;
    let theirs = record(root).replace("tool.real\n:", "tool.real\nothers");
    fs::write(root.join("var/lib/dpkg/diversions"), &theirs).expect("written");
    assert!(bench.check(&context).await.difference.contains("others"));
    let why = reason(bench.transition(&context, "outdated", "present").await);
    assert!(why.contains("the package others diverts /usr/bin/tool"), "{why}");
    moved(&mut bench, &context, "outdated", "absent").await;
    assert_eq!(record(root), theirs);
    // A host without packages.
    let none = super::super::tests::host(&[("etc/x", "")]);
    let context = bench.context(&kind, &content(none.path(), r#""path":"/etc/x""#));
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("var/lib/dpkg: not found"), "{why}");
}

#[tokio::test]
async fn a_killed_rename_is_completed() {
    let Some(host) = packaged() else { return };
    let (root, mut bench, kind) = (host.path(), Bench::new(), setting("divert"));
    let before = record(root);
    let context = bench.context(&kind, &content(root, r#""path":"/usr/bin/tool""#));
    let [tool, distrib] = ["usr/bin/tool", "usr/bin/tool.distrib"].map(|path| root.join(path));
    for ends in ["present", "absent"] {
        moved(&mut bench, &context, "absent", "present").await;
        // Killed between the record and the rename.
        fs::rename(&distrib, &tool).expect("renamed");
        assert_eq!(bench.state(&context).await, "outdated");
        moved(&mut bench, &context, "outdated", ends).await;
        assert_eq!((tool.exists(), distrib.exists()), (ends == "absent", ends == "present"));
        // Killed between the copy to another file system and the removal.
        if ends == "present" {
            fs::rename(&distrib, &tool).expect("renamed");
            fs::copy(&tool, &distrib).expect("copied");
            moved(&mut bench, &context, "outdated", "present").await;
            assert!(!tool.exists());
            // Killed after the record was removed, before the file was renamed.
            fs::write(root.join("var/lib/dpkg/diversions"), &before).expect("written");
            moved(&mut bench, &context, "outdated", "absent").await;
        }
        assert_eq!((record(root), text(root, "usr/bin/tool").as_deref()), (before.clone(), Some("of the package")));
    }
}

#[tokio::test]
async fn diversions_keep_the_contract() {
    let Some(host) = packaged() else { return };
    let own = content(host.path(), r#""path":"/usr/bin/tool""#);
    let other = content(host.path(), r#""path":"/usr/bin/tool","to":"/usr/bin/tool.real""#);
    let root = host.path().to_owned();
    let case = Case::new(setting("divert"), &own).other(&other).kills(6).probing(move || record(&root));
    holds(&case.watching(host.path().join("usr")), &[]).await;
}
