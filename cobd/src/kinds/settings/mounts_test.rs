//! Mounts in odd places, each in a namespace of its own.

use std::fs;
use std::os::unix::fs::symlink;

use super::tests::{in_a_namespace, is_mounted, mount, moved, own_fstab, read, run, setting};
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
