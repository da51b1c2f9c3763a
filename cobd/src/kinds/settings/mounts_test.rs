//! Mounts in odd places, each in a namespace of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use super::tests::{content, host, in_a_namespace, is_mounted, mount, moved, own_fstab, read, run, setting};
use crate::kinds::native::Turn;
use crate::kinds::testing::{Bench, reason};

#[tokio::test]
async fn below_a_link_there_is_one_mount_and_it_goes() {
    if in_a_namespace("kinds::settings::mounts_test::below_a_link_there_is_one_mount_and_it_goes").is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "");
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    fs::create_dir(&real).expect("made");
    symlink(&real, &link).expect("made");
    let mut bench = Bench::new();
    let content = mount(&link.join("x"), "t", r#""type":"tmpfs","options":["size=1m"]"#);
    let context = bench.context(&setting("mount"), &content);
    moved(&mut bench, &context, "absent", "present").await;
    assert!(is_mounted(&real.join("x")));
    // As one that knew no links has left them.
    run(&format!("mount -t tmpfs t {}", real.join("x").display()));
    moved(&mut bench, &context, "present", "absent").await;
    assert!(!is_mounted(&real.join("x")) && !real.join("x").exists());
    assert_eq!(read("/etc/fstab".into()), "");
}

#[tokio::test]
async fn what_hides_it_is_noticed_and_it_is_mounted_where_it_is_seen() {
    if in_a_namespace("kinds::settings::mounts_test::what_hides_it_is_noticed_and_it_is_mounted_where_it_is_seen")
        .is_some()
    {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "");
    let nest = folder.path().join("nest");
    let data = nest.join("data");
    let mut bench = Bench::new();
    let context = bench.context(&setting("mount"), &mount(&data, "t", r#""type":"tmpfs""#));
    moved(&mut bench, &context, "absent", "present").await;
    run(&format!("mount -t tmpfs later {}", nest.display()));
    let found = bench.check(&context).await;
    let told = format!("hidden by what was mounted on {} later", nest.display());
    assert!(found.state.is_ok_and(|s| s == *"outdated") && found.difference.contains(&told), "{}", found.difference);
    moved(&mut bench, &context, "outdated", "present").await;
    assert!(data.is_dir());
    // The first one can't be reached before the other one has gone.
    let why = reason(bench.transition(&context, "present", "absent").await);
    assert!(why.contains("is hidden by what was mounted on"), "{why}");
    run(&format!("umount {}", nest.display()));
    moved(&mut bench, &context, "outdated", "absent").await;
    assert!(!is_mounted(&data) && !nest.exists());
    assert_eq!(read("/etc/fstab".into()), "");
}

#[tokio::test]
async fn who_waits_keeps_only_those_from_their_work_that_change_the_same() {
    let host = host(&[("etc/hosts", ""), ("etc/fstab", "")]);
    let mut bench = Bench::new();
    fs::create_dir_all(bench.path("cobs/n1+a+b")).expect("made");
    let held = ["settings", "accounts", "fstab"]
        .map(|what| Turn::wait(&bench.path("cobs/other"), what, Duration::ZERO).expect("free"));
    for (kind, keys) in [
        ("sysctl", r#""key":"kernel.pid_max","value":9"#),
        ("cron", r#""schedule":"@daily","command":"true""#),
        ("host-entry", r#""address":"10.0.0.1","names":["db"]"#),
        ("kernel-module", r#""name":"loop""#),
    ] {
        let context = bench.context(&setting(kind), &content(host.path(), keys));
        moved(&mut bench, &context, "absent", "present").await;
        moved(&mut bench, &context, "present", "absent").await;
    }
    let mut kind = setting("mount");
    kind.transitions.iter_mut().for_each(|transition| transition.timeout_ms = 1000);
    let keys = r#""path":"/srv/x","source":"t","type":"tmpfs""#;
    let context = bench.context(&kind, &content(host.path(), keys));
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("worked on fstab for all of 500ms"), "{why}");
    drop(held);
    moved(&mut bench, &context, "outdated", "present").await;
}
