//! Mounts in odd places, each in a namespace of its own.

use std::fs;
use std::os::unix::fs::symlink;

use super::tests::{in_a_namespace, is_mounted, mount, moved, own_fstab, read, run, setting};
use crate::kinds::testing::Bench;

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
