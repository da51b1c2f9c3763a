//! Accounts and groups in a folder that stands for a host.

use std::fs;
use std::path::Path;

use super::tests::{content, host, moved, read, setting};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

/// A host with accounts. Returns `None` without root or the programs.
fn accounts() -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/sbin/useradd").exists() {
        eprintln!("skipped: it takes root and useradd");
        return None;
    }
    Some(host(&[
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nold:x:500:500:Old:/srv/old:/bin/sh\n"),
        ("etc/shadow", "root:*:1::::::\nold:*:1::::::\n"),
        ("etc/group", "root:x:0:\nold:x:500:\nwheel:x:600:old\ndev:x:601:\n"),
        ("etc/gshadow", "root:*::\nold:!::\nwheel:!::old\ndev:!::\n"),
        ("etc/login.defs", "UID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\nUSERGROUPS_ENAB yes\n"),
        ("etc/default/useradd", "SHELL=/bin/sh\n"),
    ]))
}

/// The lines of a file with this prefix.
fn lines(host: &tempfile::TempDir, file: &str, beginning: &str) -> Vec<String> {
    let text = read(host.path().join("etc").join(file));
    text.lines().filter(|line| line.starts_with(beginning)).map(str::to_owned).collect()
}

#[tokio::test]
async fn an_account_is_created_changed_and_removed() {
    let Some(host) = accounts() else { return };
    let mut bench = Bench::new();
    let keys = r#""name":"web","uid":1234,"home":"/srv/web","shell":"/bin/false","groups":["dev"]"#;
    let context = bench.context(&setting("user"), &content(host.path(), keys));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    let line = lines(&host, "passwd", "web:");
    assert!(
        line.len() == 1 && line[0].starts_with("web:x:1234:") && line[0].ends_with(":/srv/web:/bin/false"),
        "{line:?}"
    );
    assert_eq!(lines(&host, "group", "dev:"), ["dev:x:601:web"]);
    // A content with more fields and another value.
    let more = bench.context(
        &setting("user"),
        &content(host.path(), r#""name":"web","shell":"/bin/sh","comment":"The web","groups":["dev","wheel"]"#),
    );
    assert_eq!(bench.state(&more).await, "outdated");
    moved(&mut bench, &more, "outdated", "present").await;
    assert!(lines(&host, "passwd", "web:")[0].contains(":The web:/srv/web:/bin/sh"));
    assert_eq!(lines(&host, "group", "wheel:"), ["wheel:x:600:old,web"]);
    moved(&mut bench, &more, "present", "absent").await;
    for file in ["passwd", "shadow", "group", "gshadow"] {
        assert_eq!(lines(&host, file, "web:"), [""; 0], "{file}");
    }
    assert_eq!(lines(&host, "group", "wheel:"), ["wheel:x:600:old"]);
}

#[tokio::test]
async fn leftovers_of_a_killed_removal_are_removed() {
    let Some(host) = accounts() else { return };
    let mut bench = Bench::new();
    for (kind, keys) in [("user", r#""name":"web""#), ("group", r#""name":"web""#)] {
        let context = bench.context(&setting(kind), &content(host.path(), keys));
        moved(&mut bench, &context, "absent", "present").await;
        // The program has written the first files, and not the others; its locks stay.
        for (file, line) in [
            ("gshadow", "web:!::\n"),
            ("subuid", "web:100000:65536\n"),
            ("gshadow.lock", "2147483647\0"),
            ("group.2147483647", "2147483647\0"),
        ] {
            let path = host.path().join("etc").join(file);
            let mut text = std::fs::read_to_string(&path).unwrap_or_default();
            if !text.contains(line) {
                text.push_str(line);
            }
            std::fs::write(path, text).expect("written");
        }
        for file in ["passwd", "shadow", "group"] {
            let text: String = read(host.path().join("etc").join(file))
                .lines()
                .filter(|l| !l.starts_with("web:"))
                .map(|l| format!("{l}\n"))
                .collect();
            std::fs::write(host.path().join("etc").join(file), text).expect("written");
        }
        moved(&mut bench, &context, "present", "absent").await;
        for file in ["passwd", "shadow", "group", "gshadow"] {
            assert_eq!(lines(&host, file, "web:"), [""; 0], "{kind}: {file}");
        }
        if kind == "user" {
            assert_eq!(lines(&host, "subuid", "web:"), [""; 0]);
        }
        for file in ["gshadow.lock", "group.2147483647"] {
            assert!(!host.path().join("etc").join(file).exists(), "{kind}: {file}");
        }
        std::fs::remove_file(host.path().join("etc/subuid")).expect("removed");
    }
}

#[tokio::test]
async fn an_existing_account_is_restored() {
    let Some(host) = accounts() else { return };
    let mut bench = Bench::new();
    let first = bench.context(&setting("user"), &content(host.path(), r#""name":"old","shell":"/bin/false""#));
    moved(&mut bench, &first, "absent", "present").await;
    let second = bench.context(
        &setting("user"),
        &content(host.path(), r#""name":"old","shell":"/bin/false","groups":[],"comment":"New""#),
    );
    assert_eq!(bench.state(&second).await, "outdated");
    moved(&mut bench, &second, "outdated", "present").await;
    assert_eq!(lines(&host, "passwd", "old:"), ["old:x:500:500:New:/srv/old:/bin/false"]);
    moved(&mut bench, &second, "present", "absent").await;
    assert_eq!(lines(&host, "passwd", "old:"), ["old:x:500:500:Old:/srv/old:/bin/sh"]);
    assert_eq!(lines(&host, "group", "wheel:"), ["wheel:x:600:old"]);
}

#[tokio::test]
async fn the_original_account_is_forgotten_when_its_change_is_kept() {
    let Some(host) = accounts() else { return };
    let mut bench = Bench::new();
    let shell = |shell: &str| {
        let keys = format!(r#""name":"old","shell":"{shell}""#);
        bench.context(&setting("user"), &content(host.path(), &keys))
    };
    let (first, second) = (shell("/bin/false"), shell("/bin/true"));
    moved(&mut bench, &first, "absent", "present").await;
    bench.kinds.forget_kept(&first.cob.id);
    moved(&mut bench, &second, "outdated", "present").await;
    moved(&mut bench, &second, "present", "absent").await;
    assert_eq!(lines(&host, "passwd", "old:"), ["old:x:500:500:Old:/srv/old:/bin/false"]);
}

#[tokio::test]
async fn the_present_content_decides_whether_a_home_is_removed() {
    let Some(host) = accounts() else { return };
    let at = tempfile::tempdir().expect("a folder");
    let home = at.path().join("web");
    let mut bench = Bench::new();
    let with = |keys: &str| {
        let keys = format!(r#""name":"web","home":{home:?},"create_home":true,{keys}"#);
        bench.context(&setting("user"), &content(host.path(), &keys))
    };
    let (removing, keeping) = (with(r#""remove_home":true"#), with(r#""remove_home":false"#));
    let home = host.path().join(home.strip_prefix("/").expect("absolute"));
    for (first, then, stays) in [(&removing, &keeping, true), (&keeping, &removing, false)] {
        moved(&mut bench, first, "absent", "present").await;
        assert!(home.is_dir());
        // No transition is needed.
        assert_eq!(bench.state(then).await, "present");
        moved(&mut bench, then, "present", "absent").await;
        assert_eq!(home.is_dir(), stays);
        assert_eq!(lines(&host, "passwd", "web:"), [""; 0]);
    }
}

#[tokio::test]
async fn an_own_group_is_removed_although_the_content_names_another_group() {
    let Some(host) = accounts() else { return };
    fs::write(host.path().join("etc/login.defs"), "UID_MIN 1000\nGID_MIN 1000\nUSERGROUPS_ENAB no\n").expect("written");
    let mut bench = Bench::new();
    let first = bench.context(&setting("user"), &content(host.path(), r#""name":"web""#));
    moved(&mut bench, &first, "absent", "present").await;
    let other = bench.context(&setting("user"), &content(host.path(), r#""name":"web","group":"dev""#));
    assert_eq!(bench.state(&other).await, "outdated");
    moved(&mut bench, &other, "outdated", "absent").await;
    assert_eq!(lines(&host, "group", "web:"), [""; 0]);
}

#[tokio::test]
async fn a_group_of_others_stays_when_the_account_is_removed() {
    let Some(host) = accounts() else { return };
    let mut bench = Bench::new();
    let context = bench.context(&setting("user"), &content(host.path(), r#""name":"dev""#));
    moved(&mut bench, &context, "absent", "present").await;
    assert!(lines(&host, "passwd", "dev:")[0].contains(":601:"));
    fs::write(host.path().join("etc/login.defs"), "USERGROUPS_ENAB no\n").expect("written");
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(lines(&host, "group", "dev:"), ["dev:x:601:"]);
    let nobody = bench.context(&setting("user"), &content(host.path(), r#""name":"x","group":"nobody-has-this""#));
    let why = reason(bench.transition(&nobody, "absent", "present").await);
    assert!(why.contains("there is no group nobody-has-this; let the user come `after`"), "{why}");
    fs::remove_file(bench.path("cobs/n1+a+b/before.json")).expect("noted");
    // An account with only half of its lines is created again.
    let context = bench.context(&setting("user"), &content(host.path(), r#""name":"half""#));
    moved(&mut bench, &context, "absent", "present").await;
    let shadow = host.path().join("etc/shadow");
    let text = read(shadow.clone());
    let without: String =
        text.lines().filter(|line| !line.starts_with("half:")).map(|line| format!("{line}\n")).collect();
    fs::write(&shadow, without).expect("written");
    assert_eq!(bench.state(&context).await, "outdated");
    moved(&mut bench, &context, "outdated", "present").await;
}

#[tokio::test]
async fn a_group_is_created_changed_and_removed() {
    let Some(host) = accounts() else { return };
    let mut bench = Bench::new();
    let context = bench.context(&setting("group"), &content(host.path(), r#""name":"ops","gid":777"#));
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(lines(&host, "group", "ops:"), ["ops:x:777:"]);
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(lines(&host, "group", "ops:"), [""; 0]);
    let there = bench.context(&setting("group"), &content(host.path(), r#""name":"dev","gid":888"#));
    moved(&mut bench, &there, "absent", "present").await;
    assert_eq!(lines(&host, "group", "dev:"), ["dev:x:888:"]);
    moved(&mut bench, &there, "present", "absent").await;
    assert_eq!(lines(&host, "group", "dev:"), ["dev:x:601:"]);
}

#[tokio::test]
async fn accounts_keep_the_contract() {
    let Some(host) = accounts() else { return };
    // The backup files of the programs do not count.
    let watched = ["passwd", "group"].map(|file| host.path().join("etc").join(file));
    for (backend, own, other) in [
        ("group", r#""name":"ops","gid":777"#, r#""name":"ops","gid":778"#),
        ("user", r#""name":"web","uid":1234,"groups":["dev"]"#, r#""name":"web","uid":1235,"groups":[]"#),
    ] {
        let case = Case::new(setting(backend), &content(host.path(), own)).other(&content(host.path(), other));
        let case = watched.iter().fold(case.kills(3), |case, file| case.watching(file));
        holds(&case, &[]).await;
    }
}
