//! Accounts and groups that must not exist, in a folder that stands for a host.

use std::collections::BTreeMap;
use std::fs;

use super::super::tests::{content, host, moved, read, setting};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

/// The account files of a host. No program is needed, and no rights of root.
const FILES: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nbob:x:1001:1001:Bob:/srv/bob:/bin/sh\nada:x:1002:1002::/srv/ada:/bin/sh\n",
    ),
    ("etc/shadow", "root:*:1::::::\nbob:$y$hash:19000:0:99999:7:::\nada:!:1::::::\n"),
    ("etc/group", "root:x:0:\nwheel:x:600:ada,bob,root\nbob:x:1001:\nada:x:1002:\ndev:x:601:bob\nops:x:602:ada\n"),
    ("etc/gshadow", "root:*::\nwheel:!:bob:ada,bob,root\nbob:!::\nada:!::\ndev:!::bob\nops:!:ada:ada"),
    ("etc/subuid", "bob:100000:65536\nbob:300000:65536\nada:165536:65536\n"),
    ("etc/subgid", "ada:165536:65536\nbob:100000:65536"),
    ("srv/bob/file", "his"),
];

fn texts(host: &tempfile::TempDir) -> BTreeMap<String, String> {
    FILES.iter().map(|(file, _)| ((*file).to_owned(), read(host.path().join(file)))).collect()
}

#[tokio::test]
async fn a_user_is_removed_with_all_lines_and_returns_byte_for_byte() {
    let host = host(FILES);
    let was = texts(&host);
    let mut bench = Bench::new();
    let context = bench.context(&setting("user"), &content(host.path(), r#""name":"bob","absent":true"#));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    let now = texts(&host);
    for (file, text) in &now {
        assert!(!text.contains("bob"), "{file}: {text}");
    }
    assert_eq!(now["etc/group"], "root:x:0:\nwheel:x:600:ada,root\nada:x:1002:\ndev:x:601:\nops:x:602:ada\n");
    assert_eq!(now["etc/gshadow"], "root:*::\nwheel:!::ada,root\nada:!::\ndev:!::\nops:!:ada:ada");
    assert_eq!(now["srv/bob/file"], "his");
    // Somebody makes the account anew: it goes, too, and the first one returns.
    fs::write(host.path().join("etc/passwd"), now["etc/passwd"].clone() + "bob:x:7:7::/:/bin/sh\n").expect("written");
    let found = bench.check(&context).await;
    assert_eq!(found.difference, r#"wanted [], found ["/etc/passwd"]"#);
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(texts(&host), was);
}

#[tokio::test]
async fn account_lines_changed_by_others_meanwhile_stay() {
    let host = host(FILES);
    let mut bench = Bench::new();
    let context = bench.context(&setting("user"), &content(host.path(), r#""name":"bob","absent":true"#));
    moved(&mut bench, &context, "absent", "present").await;
    let group = host.path().join("etc/group");
    let changed =
        read(group.clone()).replace("wheel:x:600:ada,root", "wheel:x:600:root,eve").replace("dev:x:601:\n", "");
    fs::write(&group, changed).expect("written");
    let passwd = host.path().join("etc/passwd");
    fs::write(&passwd, read(passwd.clone()) + "eve:x:1001:5::/:/bin/sh\n").expect("written");
    let why = reason(bench.transition(&context, "present", "absent").await);
    assert!(why.contains("eve has its number 1001 now"), "{why}");
    fs::write(&passwd, read(passwd.clone()).replace(":1001:5:", ":1009:5:")).expect("written");
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(read(group), "root:x:0:\nwheel:x:600:root,eve,bob\nbob:x:1001:\nada:x:1002:\nops:x:602:ada\n");
    assert!(read(passwd.clone()).contains("bob:x:1001:1001:Bob:") && read(passwd.clone()).contains("eve:"));
    // An account that was made anew stays as it is.
    moved(&mut bench, &context, "absent", "present").await;
    fs::write(&passwd, "bob:x:5:5::/:/bin/sh\n").expect("written");
    moved(&mut bench, &context, "outdated", "absent").await;
    assert_eq!(read(passwd), "bob:x:5:5::/:/bin/sh\n");
}

#[tokio::test]
async fn a_group_with_other_members_and_a_user_with_processes_stay() {
    let host = host(FILES);
    let group = host.path().join("etc/group");
    fs::write(&group, read(group.clone()).replace("bob:x:1001:\n", "bob:x:1001:bob,ada\n")).expect("written");
    let was = texts(&host);
    let mut bench = Bench::new();
    let context = bench.context(&setting("user"), &content(host.path(), r#""name":"bob","absent":true"#));
    for (number, state) in [("17", "S (sleeping)"), ("18", "Z (zombie)")] {
        let folder = host.path().join("proc").join(number);
        fs::create_dir_all(&folder).expect("made");
        let status = format!("Name:\tvim\nState:\t{state}\nUid:\t0\t1001\t0\t0\n");
        fs::write(folder.join("status"), status).expect("written");
    }
    let found = bench.check(&context).await;
    assert!(found.difference.contains("processes of the user bob run: 17 (vim); stop them"), "{}", found.difference);
    assert!(found.state.is_ok_and(|state| state == *"absent"));
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("processes of the user bob run: 17 (vim)"), "{why}");
    assert_eq!(texts(&host), was, "nothing has changed");
    fs::remove_dir_all(host.path().join("proc/17")).expect("removed");
    moved(&mut bench, &context, "absent", "present").await;
    assert!(read(group).contains("bob:x:1001:ada\n"));
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(texts(&host), was);
}

#[tokio::test]
async fn a_group_goes_and_returns_unless_it_is_a_first_group() {
    let host = host(FILES);
    let was = texts(&host);
    let mut bench = Bench::new();
    let first = bench.context(&setting("group"), &content(host.path(), r#""name":"ada","absent":true"#));
    let found = bench.check(&first).await;
    assert!(found.difference.contains("the group ada is the first group of ada"), "{}", found.difference);
    let why = reason(bench.transition(&first, "absent", "present").await);
    assert!(why.contains("the group ada is the first group of ada"), "{why}");
    let context = bench.context(&setting("group"), &content(host.path(), r#""name":"ops","absent":true"#));
    moved(&mut bench, &context, "absent", "present").await;
    assert!(
        !read(host.path().join("etc/group")).contains("ops") && !read(host.path().join("etc/gshadow")).contains("ops")
    );
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(texts(&host), was);
    // From absent to present by another content: the earlier group is there again first.
    let made = bench.context(&setting("group"), &content(host.path(), r#""name":"new","absent":true"#));
    moved(&mut bench, &made, "absent", "present").await;
    moved(&mut bench, &made, "present", "absent").await;
    assert_eq!(texts(&host), was);
}

#[tokio::test]
async fn absent_accounts_keep_the_contract() {
    for (backend, own, other) in [("group", "dev", "ops"), ("user", "bob", "ada")] {
        let host = host(FILES);
        let keys = |name: &str| content(host.path(), &format!(r#""name":"{name}","absent":true"#));
        let case = Case::new(setting(backend), &keys(own)).other(&keys(other));
        holds(&case.watching(host.path()).kills(4), &[]).await;
    }
}
