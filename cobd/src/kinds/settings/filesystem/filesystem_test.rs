//! File systems on image files and loop devices.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::tests::{content, host, in_namespaces, moved, run, setting};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::has_program;
use crate::kinds::testing::{Bench, reason};

const UUID: &str = "6d1f7a3c-0000-4000-8000-00000000000a";
/// A size that each type accepts.
const SIZE: u64 = 320 << 20;
const MIB: u64 = 1 << 20;

/// Whether the programs of a type are installed.
fn has(kind: &str) -> bool {
    let is_there = has_program("wipefs") && has_program(&format!("mkfs.{kind}"));
    if !is_there {
        eprintln!("skipped: there is no wipefs or mkfs.{kind}");
    }
    is_there
}

/// An image of this size.
fn image(root: &Path, size: u64) -> PathBuf {
    let path = root.join("image");
    fs::File::create(&path).and_then(|file| file.set_len(size)).expect("made");
    path
}

fn signatures(path: &Path) -> String {
    run(&format!("wipefs --noheadings --output TYPE,UUID {}", path.display()))
}

fn sum(path: &Path) -> String {
    run(&format!("sha256sum < {}", path.display()))
}

#[tokio::test]
async fn file_systems_keep_the_contract() {
    for kind in ["ext4", "xfs", "btrfs"].into_iter().filter(|kind| has(kind)) {
        let host = host(&[]);
        let path = image(host.path(), if kind == "ext4" { 8 * MIB } else { SIZE });
        fs::copy(&path, host.path().join("other")).expect("copied");
        let keys =
            |device: &str| format!(r#""device":"{device}","type":"{kind}","uuid":"{UUID}","on_departure":"erase""#);
        let (own, other) = (content(host.path(), &keys("/image")), content(host.path(), &keys("/other")));
        let seen = move || {
            let other = path.with_file_name("other");
            [&path, &other].map(|path| signatures(path)).join("\n")
        };
        let case = Case::new(setting("filesystem"), &own).other(&other).probing(seen).kills(if kind == "ext4" {
            6
        } else {
            2
        });
        holds(&case, &[]).await;
    }
}

#[tokio::test]
async fn a_file_system_is_made_once_and_stays() {
    if !has("ext4") {
        return;
    }
    let host = host(&[]);
    let path = image(host.path(), 8 * MIB);
    let mut bench = Bench::new();
    let keys = r#""device":"/image","type":"ext4","label":"data","options":{"-m":0,"-O":"^has_journal"}"#;
    let context = bench.context(&setting("filesystem"), &content(host.path(), keys));
    assert_eq!(bench.state(&context).await, "absent");
    moved(&mut bench, &context, "absent", "present").await;
    let (made, label) = (sum(&path), run(&format!("blkid -p -s LABEL -o value {}", path.display())));
    assert_eq!(label, "data");
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(sum(&path), made, "the data stay");
    // The file system is found again, and is nobody else's afterwards.
    let erasing = content(host.path(), &format!(r#"{keys},"on_departure":"erase""#));
    let again = bench.context(&setting("filesystem"), &erasing);
    moved(&mut bench, &again, "absent", "present").await;
    moved(&mut bench, &again, "present", "absent").await;
    assert_eq!(sum(&path), made, "it was there first, so it is not erased");
}

/// Data of others, and a word of the refusal.
const PLANTS: [(&str, &str); 7] = [
    ("mkfs.ext4 -q -F -U 00000000-0000-4000-8000-000000000001 $f", "00000000-0000-4000-8000-000000000001"),
    ("mkswap --uuid 00000000-0000-4000-8000-000000000002 $f", "00000000-0000-4000-8000-000000000002"),
    (
        r"printf '\125\252' | at 510; printf '\203' | at 450; printf '\001\0\0\0\001' | at 454; printf '\010' | at 459",
        "dos",
    ),
    (r"printf 'LUKS\272\276\0\001' | at 0", "crypto_LUKS"),
    ("printf secret | at 0", "data-"),
    ("printf secret | at 8388602", "data-"),
    ("yes | head -c 2000000 | at 3000000", "data-"),
];

#[tokio::test]
async fn data_of_others_survive_every_attempt() {
    if !has("ext4") || !has_program("mkswap") {
        return;
    }
    for (plant, word) in PLANTS {
        let host = host(&[]);
        let path = image(host.path(), 8 * MIB);
        let at = "at() { dd of=$f bs=4k conv=notrunc oflag=seek_bytes seek=$1 2>/dev/null; }";
        run(&format!("f={}; {at}; {plant} >/dev/null 2>&1", path.display()));
        assert_eq!(fs::metadata(&path).expect("there").len(), 8 * MIB, "{plant}");
        let before = sum(&path);
        let mut bench = Bench::new();
        let with = |more: &str| format!(r#""device":"/image","type":"ext4","uuid":"{UUID}"{more}"#);
        for more in ["", r#","overwrite":"nothing""#, r#","overwrite":"ext4","on_departure":"erase""#] {
            let context = bench.context(&setting("filesystem"), &content(host.path(), &with(more)));
            let found = bench.check(&context).await;
            assert!(found.state.is_ok_and(|state| state == *"absent") && found.difference.contains(word), "{plant}");
            for _ in 0..3 {
                let why = reason(bench.transition(&context, "absent", "present").await);
                assert!(why.contains(word) && why.contains("is not overwritten"), "{plant}: {why}");
            }
            let _ = bench.transition(&context, "outdated", "absent").await;
            assert_eq!(sum(&path), before, "{plant}");
        }
        // Only the word of the refusal allows the loss.
        let context = bench.context(&setting("filesystem"), &content(host.path(), &with("")));
        let why = reason(bench.transition(&context, "absent", "present").await);
        let word = why.split("overwrite: \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a word");
        let allowed = with(&format!(r#","overwrite":"{word}""#));
        let context = bench.context(&setting("filesystem"), &content(host.path(), &allowed));
        moved(&mut bench, &context, "absent", "present").await;
        assert_eq!(signatures(&path), format!("ext4 {UUID}"), "{plant}");
    }
}

#[tokio::test]
async fn a_lost_file_system_is_not_made_again() {
    if !has("ext4") || !has_program("mkswap") {
        return;
    }
    let host = host(&[]);
    let path = image(host.path(), 8 * MIB);
    let mut bench = Bench::new();
    let with = |more: &str| content(host.path(), &format!(r#""device":"/image","type":"ext4"{more}"#));
    let context = bench.context(&setting("filesystem"), &with(""));
    moved(&mut bench, &context, "absent", "present").await;
    let uuid = signatures(&path).replace("ext4 ", "");
    // A superblock is damaged: the data may still be saved.
    run(&format!("dd if=/dev/zero of={} bs=1024 seek=1 count=1 conv=notrunc 2>/dev/null", path.display()));
    let before = sum(&path);
    assert_eq!(bench.state(&context).await, "outdated");
    let why = reason(bench.transition(&context, "outdated", "present").await);
    assert!(why.contains(&format!("/image has lost its ext4 with the UUID {uuid}")), "{why}");
    assert_eq!(sum(&path), before);
    // The device is replaced by an empty device.
    let _ = image(host.path(), 8 * MIB);
    let why = reason(bench.transition(&context, "outdated", "present").await);
    assert!(why.contains(&format!("overwrite: \"{uuid}\"")), "{why}");
    let allowed = bench.context(&setting("filesystem"), &with(&format!(r#","overwrite":"{uuid}""#)));
    moved(&mut bench, &allowed, "outdated", "present").await;
    let second = signatures(&path).replace("ext4 ", "");
    assert!(!second.is_empty() && second != uuid);
    // Another type is data of another type, also for its own file system.
    let xfs = bench.context(&setting("filesystem"), &with("").replace("ext4", "btrfs"));
    let why = reason(bench.transition(&xfs, "outdated", "present").await);
    assert!(why.contains(&second) || why.contains("mkfs.btrfs: not found"), "{why}");
    // A device that does not exist is named.
    fs::remove_file(&path).expect("removed");
    let why = reason(bench.transition(&allowed, "outdated", "present").await);
    assert!(why.contains("/image does not exist on this host"), "{why}");
    moved(&mut bench, &allowed, "outdated", "absent").await;
}

/// Whether the kernel lets this process grow a file system of the type.
fn may_grow(kind: &str) -> bool {
    const SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").expect("read");
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim).expect("a line");
    let may = kind != "ext4" || u64::from_str_radix(rights, 16).expect("a number") & SYS_RESOURCE != 0;
    if !may {
        eprintln!("skipped: the growth of ext4 takes CAP_SYS_RESOURCE");
    }
    may
}

/// Runs the rest of a test in its own mount namespace.
fn is_apart(test: &str) -> bool {
    has("ext4") && in_namespaces(&format!("kinds::settings::filesystem::filesystem_test::{test}"), &[]).is_none()
}

#[tokio::test]
async fn a_file_system_grows_with_its_image_and_keeps_its_files() {
    if !is_apart("a_file_system_grows_with_its_image_and_keeps_its_files") {
        return;
    }
    for kind in ["ext4", "xfs", "btrfs"].into_iter().filter(|kind| has(kind)) {
        let host = host(&[]);
        let path = image(host.path(), SIZE);
        let place = host.path().join("place");
        fs::create_dir(&place).expect("made");
        let mut bench = Bench::new();
        let keys = format!(r#"{{"device":{path:?},"type":"{kind}","uuid":"{UUID}"}}"#);
        let context = bench.context(&setting("filesystem"), &keys);
        moved(&mut bench, &context, "absent", "present").await;
        let (on, off) =
            (format!("mount -o loop {0} {1}", path.display(), place.display()), format!("umount {}", place.display()));
        let room = || {
            run(&format!("{on} && df -B1 --output=size {} | tail -n 1; {off}", place.display())).trim().parse::<u64>()
        };
        run(&format!("{on} && echo kept > {}/file; {off}", place.display()));
        let small = room().expect("a number");
        if !may_grow(kind) {
            continue;
        }
        let without = bench.context(&setting("filesystem"), &keys.replace("}", r#","grow":false}"#));
        run(&format!("truncate -s {} {}", 2 * SIZE, path.display()));
        assert_eq!(bench.state(&without).await, "present", "{kind}");
        let found = bench.check(&context).await;
        assert!(found.state.is_ok_and(|state| state == *"outdated") && found.difference.contains("bytes"), "{kind}");
        moved(&mut bench, &context, "outdated", "present").await;
        assert!(room().expect("a number") > small + SIZE / 2, "{kind}");
        // Also while it is mounted.
        run(&on);
        run(&format!("truncate -s {} {}", 3 * SIZE, path.display()));
        assert_eq!(bench.state(&context).await, "outdated", "{kind}");
        moved(&mut bench, &context, "outdated", "present").await;
        assert_eq!(run(&format!("cat {}/file", place.display())), "kept", "{kind}");
        run(&off);
        assert!(room().expect("a number") > small + SIZE * 3 / 2, "{kind}");
        assert_eq!(bench.state(&context).await, "present", "{kind}");
        // Never smaller.
        run(&format!("truncate -s {} {}", 2 * SIZE, path.display()));
        let why = reason(bench.transition(&context, "outdated", "present").await);
        assert!(why.contains("it was cut"), "{why}");
    }
}

/// A loop device, until it is dropped.
struct Loop(String);

impl Loop {
    /// `None`: this machine has no loop devices.
    fn of(path: &Path) -> Option<Self> {
        let made =
            std::process::Command::new("losetup").args(["--find", "--show"]).arg(path).output().expect("losetup");
        let name = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        if !made.status.success() {
            eprintln!("skipped: {}", String::from_utf8_lossy(&made.stderr));
        }
        made.status.success().then_some(Self(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[tokio::test]
async fn a_block_device_is_made_grown_and_left_alone_in_use() {
    if !is_apart("a_block_device_is_made_grown_and_left_alone_in_use") {
        return;
    }
    for kind in ["ext4", "xfs", "btrfs"].into_iter().filter(|kind| has(kind)) {
        let host = host(&[]);
        let path = image(host.path(), SIZE);
        let Some(device) = Loop::of(&path) else { return };
        let place = host.path().join("place");
        fs::create_dir(&place).expect("made");
        let mut bench = Bench::new();
        // The image belongs to the loop device.
        let of_image = bench.context(&setting("filesystem"), &format!(r#"{{"device":{path:?},"type":"{kind}"}}"#));
        let why = reason(bench.transition(&of_image, "absent", "present").await);
        assert!(why.contains(&format!("is in use by {}", device.0)), "{why}");
        let keys = format!(r#"{{"device":"{}","type":"{kind}","on_departure":"erase"}}"#, device.0);
        let context = bench.context(&setting("filesystem"), &keys);
        moved(&mut bench, &context, "absent", "present").await;
        run(&format!("mount {} {} && echo kept > {1}/file", device.0, place.display()));
        if may_grow(kind) {
            run(&format!("truncate -s {} {} && losetup --set-capacity {}", 2 * SIZE, path.display(), device.0));
            assert_eq!(bench.state(&context).await, "outdated", "{kind}");
            moved(&mut bench, &context, "outdated", "present").await;
        }
        // The kernel may write a new size to the device only later.
        assert_eq!(bench.state(&context).await, "present", "{kind}");
        let why = reason(bench.transition(&context, "present", "absent").await);
        assert!(why.contains("in use by a mount on") && why.contains("place"), "{why}");
        let uuid = run(&format!("blkid -p -s UUID -o value {}", device.0));
        let other =
            keys.replace("\"on_departure\"", &format!(r#""overwrite":"{uuid}","uuid":"{UUID}","on_departure""#));
        let other = bench.context(&setting("filesystem"), &other);
        let why = reason(bench.transition(&other, "outdated", "present").await);
        assert!(why.contains("in use by a mount on"), "{why}");
        assert_eq!(run(&format!("cat {}/file; umount {0}", place.display())), "kept", "{kind}");
        moved(&mut bench, &context, "outdated", "absent").await;
        assert_eq!(signatures(Path::new(&device.0)), "", "{kind}");
    }
}
