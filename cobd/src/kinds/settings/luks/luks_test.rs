//! Headers in image files everywhere, and open devices where the kernel has a device-mapper.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::super::tests::{content, host, in_namespaces, moved, own_fstab, run, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::{Host, has_program};
use crate::kinds::testing::{Bench, reason};

const MIB: u64 = 1 << 20;
/// Options with which a test takes no memory.
const QUICK: &str = r#""options":{"--pbkdf":"pbkdf2","--pbkdf-force-iterations":1000}"#;

fn has() -> bool {
    let is_there = has_program("wipefs") && has_program(tools::PROGRAM);
    if !is_there {
        eprintln!("skipped: there is no wipefs or cryptsetup");
    }
    is_there
}

/// An image of 32 MiB and a key.
fn image(root: &Path) -> PathBuf {
    let path = root.join("image");
    fs::File::create(&path).and_then(|file| file.set_len(32 * MIB)).expect("made");
    key(root, "key", "correct horse");
    path
}

fn key(root: &Path, name: &str, text: &str) {
    fs::write(root.join(name), text).expect("written");
    fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o600)).expect("set");
}

fn keys(more: &str) -> String {
    format!(r#""device":"/image","name":"vault","key_file":"/key",{QUICK}{more}"#)
}

fn sum(path: &Path) -> String {
    run(&format!("sha256sum < {}", path.display()))
}

fn uuid(path: &Path) -> String {
    run(&format!("wipefs --noheadings --output UUID {} | sort -u", path.display()))
}

#[test]
fn the_uuid_of_a_header_is_in_the_identity_of_its_device() {
    let uuid = Some("11111111-2222-8333-8444-555555636f62".to_owned());
    assert_eq!(tools::uuid_in("CRYPT-LUKS2-11111111222283338444555555636f62-my-vault"), uuid);
    assert_eq!(tools::uuid_in("CRYPT-LUKS1-11111111222283338444555555636f62-vault"), uuid);
    for other in ["", "LVM-x", "CRYPT-PLAIN-vault", "CRYPT-LUKS2-short-vault"] {
        assert_eq!(tools::uuid_in(other), None);
    }
}

#[tokio::test]
async fn headers_keep_the_contract() {
    if !has() {
        return;
    }
    for table in [None, Some("# <name> <device> <key> <options>\nswap /dev/vdz /dev/urandom swap")] {
        let host = host(&[]);
        let path = image(host.path());
        if let Some(text) = table {
            fs::create_dir_all(host.path().join("etc")).expect("made");
            fs::write(host.path().join("etc/crypttab"), text).expect("written");
        }
        let own = content(host.path(), &keys(r#","on_departure":"erase""#));
        let other = content(host.path(), &keys(r#","on_departure":"erase","open_at_boot":false"#));
        let tables = host.path().join("etc/crypttab");
        let seen = move || {
            let types = run(&format!("wipefs --noheadings --output TYPE {}", path.display()));
            let lines = fs::read_to_string(&tables).unwrap_or_else(|_| "none".to_owned());
            let uuid = lines.split("UUID=").nth(1).map(|rest| rest[..36].to_owned()).unwrap_or_default();
            format!("{types}\n{}", if uuid.is_empty() { lines } else { lines.replace(&uuid, "its own") })
        };
        let case = Case::new(setting("luks"), &own).other(&other).probing(seen).kills(4);
        holds(&case, &[]).await;
        assert_eq!(fs::read_to_string(host.path().join("etc/crypttab")).ok().as_deref(), table);
    }
}

#[tokio::test]
async fn a_header_is_made_once_and_stays() {
    if !has() {
        return;
    }
    let host = host(&[]);
    let path = image(host.path());
    let mut bench = Bench::new();
    let context = bench.context(&setting("luks"), &content(host.path(), &keys("")));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    let (made, header) = (sum(&path), uuid(&path));
    assert!(is_marked(&header), "{header}");
    let table = fs::read_to_string(host.path().join("etc/crypttab")).expect("read");
    assert_eq!(table, format!("# cob n1/a/b\nvault UUID={header} /key luks\n"));
    let record = fs::read_to_string(bench.path("cobs/n1+a+b").join(RECORD)).expect("read");
    assert!(!record.contains("correct horse"));
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(sum(&path), made, "the data stay");
    assert!(!host.path().join("etc/crypttab").exists());
    // A later change object knows the header, and does not erase it.
    let again = bench.context(&setting("luks"), &content(host.path(), &keys(r#","on_departure":"erase""#)));
    moved(&mut bench, &again, "absent", "present").await;
    // Another key is added with the earlier key.
    key(host.path(), "second", "battery staple");
    let text = keys(r#","on_departure":"erase""#).replace(r#""/key""#, r#""/second""#);
    let second = bench.context(&setting("luks"), &content(host.path(), &text));
    assert_eq!(bench.state(&second).await, "outdated");
    moved(&mut bench, &second, "outdated", "present").await;
    assert!(
        tools::opens(&path.display().to_string(), &host.path().join("second").display().to_string()).expect("tried")
    );
    moved(&mut bench, &second, "present", "absent").await;
    assert_eq!(uuid(&path), header, "it was there first, so it is not erased");
}

#[tokio::test]
async fn keys_and_data_of_others_are_refused() {
    if !has() || !has_program("mkfs.ext4") {
        return;
    }
    let host = host(&[]);
    let path = image(host.path());
    let kind = setting("luks");
    let mut bench = Bench::new();
    let context = bench.context(&kind, &content(host.path(), &keys("")));
    for (prepare, words) in [
        ("chmod 0644 $r/key", "others than root can read /key"),
        ("chmod 0600 $r/key; : > $r/key", "/key is empty"),
        ("rm $r/key", "can't be read"),
    ] {
        run(&format!("r={}; {prepare}", host.path().display()));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{why}");
    }
    key(host.path(), "key", "correct horse");
    for (plant, word) in [
        ("mkfs.ext4 -q -F -U 00000000-0000-4000-8000-000000000001 $f", "00000000-0000-4000-8000-000000000001"),
        ("printf secret | dd of=$f bs=1 seek=100 conv=notrunc 2>/dev/null", "data-"),
    ] {
        let path = image(host.path());
        run(&format!("f={}; {plant}", path.display()));
        let before = sum(&path);
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(word) && why.contains("is not overwritten"), "{why}");
        assert_eq!(sum(&path), before);
    }
    // A header of others: only with its UUID and its key.
    let theirs = "00000000-0000-4000-8000-000000000002";
    image(host.path());
    key(host.path(), "theirs", "another key");
    let root = host.path().display();
    run(&format!(
        "cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --uuid {theirs} --key-file \
         {root}/theirs {root}/image"
    ));
    let before = sum(&path);
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("others made the LUKS header") && why.contains(&format!("adopt: \"{theirs}\"")), "{why}");
    let adopting = format!(r#","adopt":"{theirs}","on_departure":"erase""#);
    let adopted = bench.context(&kind, &content(host.path(), &keys(&adopting)));
    let why = reason(bench.transition(&adopted, "absent", "present").await);
    assert!(why.contains("the key in /key does not open /image"), "{why}");
    let text = keys(&adopting).replace(r#""/key""#, r#""/theirs""#);
    let adopted = bench.context(&kind, &content(host.path(), &text));
    moved(&mut bench, &adopted, "absent", "present").await;
    moved(&mut bench, &adopted, "present", "absent").await;
    assert_eq!(sum(&path), before);
    // A lost header is not made again.
    let mut bench = Bench::new();
    image(host.path());
    moved(&mut bench, &context, "absent", "present").await;
    let lost = uuid(&path);
    image(host.path());
    let why = reason(bench.transition(&context, "outdated", "present").await);
    assert!(why.contains("has lost its LUKS header") && why.contains(&format!("overwrite: \"{lost}\"")), "{why}");
    let allowed = keys(&format!(r#","overwrite":"{lost}""#));
    let allowed = bench.context(&kind, &content(host.path(), &allowed));
    moved(&mut bench, &allowed, "outdated", "present").await;
    assert!(!uuid(&path).is_empty() && uuid(&path) != lost);
    // A line of others about the name.
    let mut bench = Bench::new();
    image(host.path());
    fs::write(host.path().join("etc/crypttab"), "vault /dev/vdz none luks\n").expect("written");
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("has a line about vault already") && uuid(&path).is_empty(), "{why}");
}

#[tokio::test]
async fn a_device_is_opened_grown_and_closed() {
    if !has() || !has_mapper() {
        return eprintln!("skipped: there is no cryptsetup, or no device-mapper");
    }
    if in_namespaces("kinds::settings::luks::luks_test::a_device_is_opened_grown_and_closed", &[]).is_some() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    own_fstab(folder.path(), "");
    run("rm -f /etc/crypttab");
    let path = image(folder.path());
    let loop_of = |path: &Path| run(&format!("losetup --find --show {}", path.display()));
    let device = loop_of(&path);
    let name = format!("cobtest{}", std::process::id());
    let key_file = folder.path().join("key");
    let text =
        format!(r#"{{"device":"{device}","name":"{name}","key_file":{key_file:?},{QUICK},"on_departure":"erase"}}"#);
    let (mut bench, kind) = (Bench::new(), setting("luks"));
    let context = bench.context(&kind, &text);
    moved(&mut bench, &context, "absent", "present").await;
    let mapping = tools::mapping(&name).expect("open");
    assert_eq!(mapping.size, 16 * MIB);
    let opened = Device::find(&Host::below(None).expect("this host"), &format!("/dev/mapper/{name}"));
    assert_eq!(opened.expect("found").expect("there").data().expect("read"), Data::Nothing, "it looks empty");
    run(&format!("printf kept | dd of=/dev/mapper/{name} bs=1 seek=5000000 conv=notrunc,fsync 2>/dev/null"));
    assert!(fs::read_to_string("/etc/crypttab").is_ok_and(|table| table.contains(&name)));
    // A person closed the device.
    run(&format!("cryptsetup close {name}"));
    assert_eq!(bench.state(&context).await, "outdated");
    moved(&mut bench, &context, "outdated", "present").await;
    // It grows with its device.
    run(&format!("truncate -s 48M {} && losetup --set-capacity {device}", path.display()));
    let found = bench.check(&context).await;
    assert!(found.difference.contains("bytes less than the device"), "{}", found.difference);
    moved(&mut bench, &context, "outdated", "present").await;
    assert_eq!(tools::mapping(&name).expect("open").size, 32 * MIB);
    assert_eq!(run(&format!("dd if=/dev/mapper/{name} bs=1 skip=5000000 count=4 2>/dev/null")), "kept");
    // In use it stays.
    let user = loop_of(Path::new(&format!("/dev/mapper/{name}")));
    let why = reason(bench.transition(&context, "present", "absent").await);
    assert!(why.contains("can't be closed, as it is in use"), "{why}");
    run(&format!("losetup --detach {user}"));
    moved(&mut bench, &context, "outdated", "absent").await;
    assert!(tools::mapping(&name).is_none() && !Path::new("/etc/crypttab").exists());
    assert_eq!(run(&format!("wipefs --noheadings {device}")), "");
    run(&format!("losetup --detach {device}"));
}
