//! Mounts in unusual places, each test in its own namespace.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use super::tests::{content, host, in_a_namespace, is_mounted, mount, moved, own_fstab, read, run, setting};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::Turn;
use crate::kinds::testing::{Bench, reason};

#[tokio::test]
async fn a_mount_below_a_link_is_removed_at_its_real_path() {
    if in_a_namespace("kinds::settings::mounts_test::a_mount_below_a_link_is_removed_at_its_real_path").is_some() {
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
    // Left by a version that did not resolve links.
    run(&format!("mount -t tmpfs t {}", real.join("x").display()));
    moved(&mut bench, &context, "present", "absent").await;
    assert!(!is_mounted(&real.join("x")) && !real.join("x").exists());
    assert_eq!(read("/etc/fstab".into()), "");
}

#[tokio::test]
async fn a_hidden_mount_is_detected_and_mounted_again_where_it_is_visible() {
    if in_a_namespace("kinds::settings::mounts_test::a_hidden_mount_is_detected_and_mounted_again_where_it_is_visible")
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
    let told = format!("hidden by a later mount on {}", nest.display());
    assert!(found.state.is_ok_and(|s| s == *"outdated") && found.difference.contains(&told), "{}", found.difference);
    moved(&mut bench, &context, "outdated", "present").await;
    assert!(data.is_dir());
    // The first mount is unreachable until the second is gone.
    let why = reason(bench.transition(&context, "present", "absent").await);
    assert!(why.contains("is hidden by a later mount on"), "{why}");
    run(&format!("umount {}", nest.display()));
    moved(&mut bench, &context, "outdated", "absent").await;
    assert!(!is_mounted(&data) && !nest.exists());
    assert_eq!(read("/etc/fstab".into()), "");
}

#[tokio::test]
async fn a_later_mount_of_others_blocks_the_departure_and_is_named() {
    let name = "kinds::settings::mounts_test::a_later_mount_of_others_blocks_the_departure_and_is_named";
    if in_a_namespace(name).is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "");
    let path = folder.path().join("data");
    let mut bench = Bench::new();
    let context = bench.context(&setting("mount"), &mount(&path, "t", r#""type":"tmpfs""#));
    moved(&mut bench, &context, "absent", "present").await;
    run(&format!("mount -t tmpfs theirs {}", path.display()));
    let why = reason(bench.transition(&context, "outdated", "absent").await);
    assert!(why.contains("is hidden by a later mount on") && why.contains("unmount it first"), "{why}");
    run(&format!("umount {}", path.display()));
    moved(&mut bench, &context, "outdated", "absent").await;
    assert!(!is_mounted(&path) && !path.exists());
    assert_eq!(read("/etc/fstab".into()), "");
}

#[tokio::test]
async fn a_setting_waits_only_for_settings_that_change_the_same_file() {
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

#[tokio::test]
async fn options_that_a_remount_ignores_are_brought_into_effect_or_named() {
    let name = "kinds::settings::mounts_test::options_that_a_remount_ignores_are_brought_into_effect_or_named";
    if in_a_namespace(name).is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "");
    let path = folder.path().join("scratch");
    let mut bench = Bench::new();
    let with = |options: &str| {
        let keys = format!(r#""type":"tmpfs","options":[{options}]"#);
        bench.context(&setting("mount"), &mount(&path, "tmpfs", &keys))
    };
    let (open, private) = (with(r#""size=1m""#), with(r#""size=2m","mode=0700","uid=1""#));
    let (unlimited, bad, small) = (with(r#""mode=0750""#), with(r#""size=much""#), with(r#""size=4k""#));
    let is = || run(&format!("stat -c '%a %u' {path}; findmnt -n -b -o SIZE {path}", path = path.display()));
    moved(&mut bench, &open, "absent", "present").await;
    assert_eq!(is(), "1777 0\n1048576");
    moved(&mut bench, &private, "outdated", "present").await;
    assert_eq!(is(), "700 1\n2097152");
    moved(&mut bench, &unlimited, "outdated", "present").await;
    assert!(is().starts_with("750 0\n") && !is().ends_with("\n2097152"), "{}", is());
    // A rejection by the kernel is a failure, and the table stays as it was.
    let why = reason(bench.transition(&bad, "outdated", "present").await);
    assert!(why.contains("can't be remounted") && !why.contains("dmesg(1)"), "{why}");
    assert!(why.contains("the kernel does not take the option `size=much`"), "{why}");
    run(&format!("head -c 1000000 /dev/zero > {}/data", path.display()));
    let why = reason(bench.transition(&small, "outdated", "present").await);
    assert!(why.contains("Too small a size"), "{why}");
    run(&format!("rm {}/data", path.display()));
    assert!(read("/etc/fstab".into()).contains("mode=0750"));
    moved(&mut bench, &bad, "outdated", "absent").await;
    assert!(!is_mounted(&path));
}

#[tokio::test]
async fn an_existing_mount_gets_its_options_and_root_folder_back() {
    let name = "kinds::settings::mounts_test::an_existing_mount_gets_its_options_and_root_folder_back";
    if in_a_namespace(name).is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scratch");
    fs::create_dir(&path).expect("made");
    let shown = path.display();
    own_fstab(folder.path(), "");
    run(&format!("mount -t tmpfs -o size=3m,mode=700,nosuid tmpfs {shown}; chown 1:2 {shown}; chmod 2751 {shown}"));
    let is = || run(&format!("stat -c '%a %u %g' {shown}; findmnt -n -o OPTIONS {shown}"));
    let before = is();
    let mut bench = Bench::new();
    let inodes = || run(&format!("stat -f -c %c {shown}"));
    let inodes_before = inodes();
    let keys = r#""type":"tmpfs","options":["size=4m","mode=0755","uid=5","noexec","nr_inodes=99"]"#;
    let context = bench.context(&setting("mount"), &mount(&path, "tmpfs", keys));
    moved(&mut bench, &context, "outdated", "present").await;
    assert!(is().starts_with("755 5 2") && is().contains("size=4096k"), "{}", is());
    // Without options for owner and mode, they get their original values.
    let less = bench.context(&setting("mount"), &mount(&path, "tmpfs", r#""type":"tmpfs","options":["size=4m"]"#));
    moved(&mut bench, &less, "outdated", "present").await;
    assert!(is().starts_with("2751 1 2"), "{}", is());
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!((is().replace(&format!(",nr_inodes={inodes_before}"), ""), inodes()), (before, inodes_before));
    let wrong = bench.context(
        &setting("mount"),
        &mount(&folder.path().join("new"), "tmpfs", r#""type":"tmpfs","options":["bogus"]"#),
    );
    let why = reason(bench.transition(&wrong, "absent", "present").await);
    assert!(why.contains("the kernel does not take the option `bogus`"), "{why}");
}

#[tokio::test]
async fn systemd_reads_the_table_again_after_each_change() {
    let name = "kinds::settings::mounts_test::systemd_reads_the_table_again_after_each_change";
    if in_a_namespace(name).is_some() || !std::path::Path::new("/usr/bin/systemctl").exists() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "");
    let (log, refuses) = (folder.path().join("told"), folder.path().join("refuses"));
    let fake = folder.path().join("systemctl");
    let script = format!(
        "#!/bin/sh\n[ ! -e {} ] || {{ echo no bus >&2; exit 1; }}\necho \"$@ $(grep -c scratch /etc/fstab)\" >> {}\n",
        refuses.display(),
        log.display()
    );
    fs::write(&fake, script).expect("written");
    run(&format!("chmod 755 {fake}; mount --bind {fake} /usr/bin/systemctl", fake = fake.display()));
    run("mount -t tmpfs t /run && mkdir -p /run/systemd/system");
    let path = folder.path().join("scratch");
    let mut bench = Bench::new();
    let context = bench.context(&setting("mount"), &mount(&path, "scratch", r#""type":"tmpfs""#));
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(read(log.clone()), "daemon-reload 1\n");
    // The transition is incomplete until systemd has read the table.
    fs::write(&refuses, "").expect("written");
    let other = bench.context(&setting("mount"), &mount(&path, "scratch", r#""type":"tmpfs","options":["ro"]"#));
    let why = reason(bench.transition(&other, "outdated", "present").await);
    assert!(why.contains("systemd does not read it again: no bus"), "{why}");
    let found = bench.check(&other).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    assert!(found.difference.contains("has not read /etc/fstab again"), "{}", found.difference);
    fs::remove_file(&refuses).expect("removed");
    moved(&mut bench, &other, "outdated", "present").await;
    moved(&mut bench, &other, "present", "absent").await;
    assert_eq!(read(log), "daemon-reload 1\ndaemon-reload 1\ndaemon-reload 0\n");
}

#[tokio::test]
async fn a_table_keeps_its_line_ends_and_findmnt_reads_the_new_line() {
    let mut bench = Bench::new();
    for table in [
        "",
        "/dev/sda1 / ext4 defaults 0 1\r\n/dev/sdb /srv/x xfs noauto 0 0\r\n",
        "proc /proc proc defaults 0 0\n/dev/sdb /srv/x xfs noauto 0 0",
        "proc /proc proc defaults 0 0\n/dev/sdb /other xfs noauto 0 0",
    ] {
        let host = host(&[("etc/fstab", table)]);
        let keys = r#""path":"/srv/x","source":"/dev/a b#c","type":"ext4","options":["ro","x-mine=a#b"]"#;
        let context = bench.context(&setting("mount"), &content(host.path(), keys));
        let file = host.path().join("etc/fstab");
        moved(&mut bench, &context, "absent", "present").await;
        // The devices need not exist here.
        let verify = format!("findmnt --verify --tab-file {} 2>&1 || true", file.display());
        let said = run(&verify);
        assert!(said.contains("0 parse errors") || said.contains("Success"), "{said}\n{}", read(file.clone()));
        let listed = run(&format!("findmnt --fstab --tab-file {} -n -o SOURCE,OPTIONS /srv/x", file.display()));
        assert_eq!(listed.split_whitespace().collect::<Vec<_>>().join(" "), "/dev/a b#c ro,x-mine=a#b");
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!(read(file), table);
    }
    // The mount of the parent folder stays first.
    let host = host(&[("etc/fstab", "/dev/sdb /srv xfs defaults 0 0")]);
    let keys = r#""path":"/srv/x","source":"/dev/sdc","type":"ext4""#;
    let context = bench.context(&setting("mount"), &content(host.path(), keys));
    moved(&mut bench, &context, "absent", "present").await;
    let lines = "/dev/sdb /srv xfs defaults 0 0\n# cob n1/a/b\n/dev/sdc /srv/x ext4 defaults 0 0\n";
    assert_eq!(read(host.path().join("etc/fstab")), lines);
}

#[tokio::test]
async fn a_table_that_a_mount_alone_needed_goes_with_it() {
    let mut bench = Bench::new();
    for table in [None, Some("# cob n1/other\n/dev/sdd /srv/y ext4 defaults 0 0\n"), Some("")] {
        let host = host(&[("etc/hosts", "")]);
        let file = host.path().join("etc/fstab");
        if let Some(table) = table {
            std::fs::write(&file, table).expect("written");
        }
        let keys = r#""path":"/srv/x","source":"/dev/sdc","type":"ext4""#;
        let context = bench.context(&setting("mount"), &content(host.path(), keys));
        moved(&mut bench, &context, "absent", "present").await;
        assert!(read(file.clone()).contains("/dev/sdc /srv/x ext4"));
        moved(&mut bench, &context, "present", "absent").await;
        assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), table);
    }
}

#[tokio::test]
async fn an_unwanted_mount_is_removed_and_returns() {
    if in_a_namespace("kinds::settings::mounts_test::an_unwanted_mount_is_removed_and_returns").is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data");
    fs::create_dir(&path).expect("made");
    let table = format!(
        "# first\r\n/dev/sdz / ext4 defaults 0 1\nt {path} tmpfs size=1m,noexec 0 0\n# last\nt2 {path}/ tmpfs noauto 0 0",
        path = path.display()
    );
    own_fstab(folder.path(), &table);
    run(&format!("mount -t tmpfs -o size=1m,noexec,mode=750 t {}", path.display()));
    let seen = || run(&format!("findmnt -n -o SOURCE,FSTYPE,OPTIONS --mountpoint {}", path.display()));
    let was = seen();
    let mut bench = Bench::new();
    let context = bench.context(&setting("mount"), &format!(r#"{{"path":{path:?},"absent":true}}"#));
    // A file would be lost.
    fs::write(path.join("file"), "1").expect("written");
    let found = bench.check(&context).await;
    assert!(found.difference.contains("has files, which would be lost"), "{}", found.difference);
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("has files, which would be lost: remove them first"), "{why}");
    fs::remove_file(path.join("file")).expect("removed");
    moved(&mut bench, &context, "absent", "present").await;
    assert!(!is_mounted(&path) && path.is_dir());
    assert_eq!(read("/etc/fstab".into()), "# first\r\n/dev/sdz / ext4 defaults 0 1\n# last\n");
    run(&format!("mount -t tmpfs other {}", path.display()));
    let found = bench.check(&context).await;
    assert_eq!(found.difference, r#"wanted {"mounted":[]}, found {"mounted":["other (tmpfs)"]}"#);
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!((read("/etc/fstab".into()), seen()), (table, was));
}

#[tokio::test]
async fn an_unwanted_bind_mount_returns_from_its_folder() {
    if in_a_namespace("kinds::settings::mounts_test::an_unwanted_bind_mount_returns_from_its_folder").is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "");
    let (from, path) = (folder.path().join("from"), folder.path().join("data"));
    fs::create_dir_all(from.join("deep")).expect("made");
    fs::create_dir(&path).expect("made");
    fs::write(from.join("deep/file"), "1").expect("written");
    run(&format!("mount --bind {} {}", from.join("deep").display(), path.display()));
    run(&format!("mount -o remount,bind,ro,nosuid {}", path.display()));
    let seen = || run(&format!("findmnt -n -o OPTIONS --mountpoint {}", path.display()));
    let was = seen();
    let mut bench = Bench::new();
    let context = bench.context(&setting("mount"), &format!(r#"{{"path":{path:?},"absent":true}}"#));
    moved(&mut bench, &context, "absent", "present").await;
    assert!(!path.join("file").exists());
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!((read(path.join("file")).as_str(), seen()), ("1", was));
    let case = Case::new(setting("mount"), &format!(r#"{{"path":{path:?},"absent":true}}"#));
    let probe = path.join("file");
    let case = case.watching("/etc/fstab").probing(move || probe.exists().to_string()).kills(3);
    // Without another content it is never outdated.
    let outdated = ["outdated -> present", "outdated -> absent"];
    holds(&case, &[outdated, outdated].concat()).await;
}

#[tokio::test]
async fn below_a_root_folder_only_the_table_counts() {
    let table = "a /srv/x ext4 defaults 0 0\nb /srv/y ext4 defaults 0 0\n";
    let host = host(&[("etc/fstab", table)]);
    let keys = |path: &str| content(host.path(), &format!(r#""path":"{path}","absent":true"#));
    let mut bench = Bench::new();
    let context = bench.context(&setting("mount"), &keys("/srv/x"));
    moved(&mut bench, &context, "absent", "present").await;
    assert_eq!(read(host.path().join("etc/fstab")), "b /srv/y ext4 defaults 0 0\n");
    moved(&mut bench, &context, "present", "absent").await;
    let case = Case::new(setting("mount"), &keys("/srv/x")).other(&keys("/srv/y")).watching(host.path());
    holds(&case.kills(4), &[]).await;
    assert_eq!(read(host.path().join("etc/fstab")), table);
}
