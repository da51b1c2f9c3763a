//! Arrays on loop devices, where the kernel has software RAID, and the reading of reports everywhere.

use std::fs;
use std::os::unix::fs::symlink;

use super::super::tests::{in_namespaces, moved, own_fstab, run, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::has_program;
use crate::kinds::testing::{Bench, reason};

const MIB: u64 = 1 << 20;
const UUID: &str = "0b2f5a10-1111-8222-8333-444444636f62";

#[test]
fn an_array_is_read_from_the_kernel_and_its_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), format!("{text}\n")).expect("written");
    for (name, text) in [("level", "raid1"), ("raid_disks", "3 (2)"), ("array_state", "clean")] {
        write(name, text);
    }
    for (name, state, slot) in
        [("vdb", "in_sync", "0"), ("vdc", "faulty", "none"), ("vdd", "spare", "none"), ("vde", "spare", "1")]
    {
        fs::create_dir(folder.path().join(format!("dev-{name}"))).expect("made");
        write(&format!("dev-{name}/state"), state);
        write(&format!("dev-{name}/slot"), slot);
        symlink(format!("../../../{name}"), folder.path().join(format!("dev-{name}/block"))).expect("linked");
    }
    let detail = "MD_LEVEL=raid1\nMD_UUID=0b2f5a10:11118222:83334444:44636f62\nMD_DEVNAME=data\nMD_NAME=any:data\n";
    let array = tools::array(folder.path(), "/dev/md127".into(), detail).expect("read");
    assert_eq!((array.uuid.as_str(), array.name.as_str(), array.level, array.slots), (UUID, "data", Some(1), 3));
    let roles: Vec<Role> = array.members.iter().map(|member| member.role).collect();
    assert_eq!(roles, [Role::Data, Role::Faulty, Role::Spare, Role::Data]);
    assert!(array.is_active && array.missing() == 0, "the spare replaces the faulty device");
    write("dev-vdd/state", "faulty,spare");
    write("array_state", "inactive");
    let array = tools::array(folder.path(), "/dev/md127".into(), detail).expect("read");
    assert!(!array.is_active && array.missing() == 1);
    let text = "MD_NAME=any:data\nMD_UUID=0b2f5a10:11118222:83334444:44636f62\n\
                MD_DEV_UUID=4b59cb8e:410f827e:8d0613b1:9ebb492f\nMD_EVENTS=16\n";
    let block = tools::superblock_in(text).expect("read");
    assert_eq!((block.uuid.as_str(), block.events, block.name.as_str()), (UUID, 16, "any:data"));
    assert_eq!(tools::superblock_in("MD_LEVEL=raid1\n"), None);
}

/// Loop devices, until they are dropped.
struct Disks {
    folder: tempfile::TempDir,
    paths: Vec<String>,
    name: String,
}

impl Disks {
    /// So many devices of 32 MiB, in an own namespace. `None`: the test is left out, or runs in its namespace.
    fn of(test: &str, number: usize) -> Option<Self> {
        if !has_program(tools::PROGRAM) || !has_program("wipefs") {
            eprintln!("skipped: there is no mdadm or wipefs");
            return None;
        }
        if in_namespaces(&format!("kinds::settings::raid::raid_test::{test}"), &[]).is_some() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        own_fstab(folder.path(), "");
        let mut disks = Self { folder, paths: Vec::new(), name: format!("cobtest{}", std::process::id()) };
        for at in 0..number {
            let image = disks.folder.path().join(format!("disk{at}"));
            fs::File::create(&image).and_then(|file| file.set_len(32 * MIB)).expect("made");
            let made =
                std::process::Command::new("losetup").args(["--find", "--show"]).arg(&image).output().expect("run");
            if !made.status.success() {
                eprintln!("skipped: {}", String::from_utf8_lossy(&made.stderr));
                return None;
            }
            disks.paths.push(String::from_utf8_lossy(&made.stdout).trim().to_owned());
        }
        Some(disks)
    }

    /// The same, if the kernel has arrays.
    fn with_arrays(test: &str, number: usize) -> Option<Self> {
        if !tools::has_arrays() {
            eprintln!("skipped: the kernel has no software RAID");
            return None;
        }
        Self::of(test, number)
    }

    fn content(&self, devices: &[usize], more: &str) -> String {
        let devices: Vec<&String> = devices.iter().map(|at| &self.paths[*at]).collect();
        format!(r#"{{"name":"{}","level":1,"devices":{}{more}}}"#, self.name, json!(devices))
    }

    fn array(&self) -> Option<Array> {
        tools::arrays().expect("reported").into_iter().find(|array| array.name == self.name)
    }

    fn sum(&self, at: usize) -> String {
        run(&format!("sha256sum < {}", self.paths[at]))
    }

    fn signatures(&self, at: usize) -> String {
        run(&format!("wipefs --noheadings --output TYPE {}", self.paths[at]))
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for array in tools::arrays().unwrap_or_default().iter().filter(|array| array.name == self.name) {
            let _ = mdadm(&["--stop", &array.word()]);
        }
        let _ = std::process::Command::new("losetup").arg("--detach").args(&self.paths).status();
    }
}

#[tokio::test]
async fn arrays_keep_the_contract() {
    let Some(disks) = Disks::with_arrays("arrays_keep_the_contract", 3) else { return };
    let own = disks.content(&[0, 1], r#","on_departure":"erase""#);
    let other = disks.content(&[0, 1], &format!(r#","spares":["{}"],"on_departure":"erase""#, disks.paths[2]));
    let paths = disks.paths.join(" ");
    // The array of no state has a spare.
    let seen = move || run(&format!("for d in {paths}; do wipefs --noheadings --output TYPE $d; done"));
    let case = Case::new(setting("raid"), &own).other(&other).probing(seen).kills(3);
    holds(&case, &[]).await;
    for at in [0, 1, 2] {
        assert_eq!(disks.signatures(at), "");
    }
}

#[tokio::test]
async fn a_missing_device_returns_and_a_faulty_device_is_replaced() {
    let Some(disks) = Disks::with_arrays("a_missing_device_returns_and_a_faulty_device_is_replaced", 3) else { return };
    let (mut bench, kind) = (Bench::new(), setting("raid"));
    let first = bench.context(&kind, &disks.content(&[0, 1], ""));
    assert_eq!(bench.state(&first).await, "absent");
    moved(&mut bench, &first, "absent", "present").await;
    let made = disks.array().expect("made");
    assert!(is_marked(&made.uuid) && made.is_active && made.level == Some(1));
    let md = made.word();
    run(&format!("mdadm --wait {md} 2>/dev/null; printf kept | dd of={md} bs=1 seek=1000000 conv=notrunc 2>/dev/null"));
    // A device that was away returns.
    run(&format!("mdadm -q {md} --fail {0} --remove {0}", disks.paths[1]));
    let found = bench.check(&first).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    assert!(found.difference.contains(&disks.paths[1]), "{}", found.difference);
    moved(&mut bench, &first, "outdated", "present").await;
    run(&format!("mdadm --wait {md} 2>/dev/null || true"));
    // A faulty device is named, and never taken again by itself.
    run(&format!("mdadm -q {md} --fail {}", disks.paths[1]));
    let found = bench.check(&first).await;
    assert!(found.state.is_ok_and(|state| state == *"present"), "the array works without it");
    assert!(found.difference.contains("is faulty: name another device"), "{}", found.difference);
    // Another device takes its place.
    let second = bench.context(&kind, &disks.content(&[0, 2], ""));
    moved(&mut bench, &second, "outdated", "present").await;
    run(&format!("mdadm --wait {md} 2>/dev/null || true"));
    assert_eq!(run(&format!("dd if={md} bs=1 skip=1000000 count=4 2>/dev/null")), "kept");
    assert!(disks.array().is_some_and(|array| array.missing() == 0 && array.uuid == made.uuid));
    // An array that was stopped is assembled, and its level stays.
    run(&format!("mdadm -q --stop {md}"));
    let found = bench.check(&second).await;
    assert!(found.difference.contains("not there"), "{}", found.difference);
    moved(&mut bench, &second, "outdated", "present").await;
    let level = bench.context(&kind, &disks.content(&[0, 2], "").replace(r#""level":1"#, r#""level":10"#));
    let why = reason(bench.transition(&level, "outdated", "present").await);
    assert!(why.contains("never changes its level"), "{why}");
    // It stays after the departure, and a later change object knows it.
    moved(&mut bench, &second, "present", "absent").await;
    assert!(disks.array().is_some());
    let third = bench.context(&kind, &disks.content(&[0, 2], r#","on_departure":"erase""#));
    moved(&mut bench, &third, "absent", "present").await;
    moved(&mut bench, &third, "present", "absent").await;
    assert!(disks.array().is_some(), "it was there first, so it is not erased");
    run(&format!(
        "mdadm -q --stop {}; mdadm -q --zero-superblock {} {}",
        disks.array().expect("there").word(),
        disks.paths[0],
        disks.paths[2]
    ));
}

#[tokio::test]
async fn data_of_others_survive_every_attempt() {
    let Some(disks) = Disks::of("data_of_others_survive_every_attempt", 2) else { return };
    let bench = Bench::new();
    let own = bench.path("cobs/n1+a+b");
    let plan = |content: &str| Entry::<Raid>::read(content, "n1/a/b", &own, std::time::Duration::ZERO)?.plan();
    let plants = [
        ("mkfs.ext4 -q -U 00000000-0000-4000-8000-000000000001 $d", "00000000-0000-4000-8000-000000000001"),
        ("printf secret | dd of=$d bs=1 seek=100 conv=notrunc 2>/dev/null", "data without a signature"),
    ];
    for (plant, word) in plants {
        let device = &disks.paths[1];
        run(&format!("wipefs -qa {device}; dd if=/dev/zero of={device} bs=1M 2>/dev/null; d={device}; {plant}"));
        let before = disks.sum(1);
        let why = plan(&disks.content(&[0, 1], "")).expect_err("data");
        assert!(why.contains(word) && why.contains("is not overwritten"), "{why}");
        assert_eq!(disks.sum(1), before);
    }
    let gone = disks.content(&[0, 1], "").replace(&disks.paths[1], "/dev/nosuch");
    let why = plan(&gone).expect_err("no device");
    assert!(why.contains("/dev/nosuch does not exist"), "{why}");
    let file =
        disks.content(&[0, 1], "").replace(&disks.paths[1], &disks.folder.path().join("disk1").display().to_string());
    assert!(plan(&file).expect_err("a file").contains("is a file"));
}

#[tokio::test]
async fn arrays_of_others_are_taken_with_their_uuid_only() {
    let Some(disks) = Disks::with_arrays("arrays_of_others_are_taken_with_their_uuid_only", 2) else { return };
    let (mut bench, kind) = (Bench::new(), setting("raid"));
    run(&format!(
        "mdadm -q --create /dev/md/{} --run --homehost any --metadata 1.2 --level 1 --raid-devices 2 {} {} 2>&1",
        disks.name, disks.paths[0], disks.paths[1]
    ));
    let uuid = disks.array().expect("made").uuid;
    let wrong = format!(r#","adopt":"{UUID}""#);
    for more in ["", &wrong] {
        let context = bench.context(&kind, &disks.content(&[0, 1], more));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains("others made an array") && why.contains(&format!("adopt: \"{uuid}\"")), "{why}");
    }
    let keys = format!(r#","adopt":"{uuid}","on_departure":"erase""#);
    let adopted = bench.context(&kind, &disks.content(&[0, 1], &keys));
    moved(&mut bench, &adopted, "absent", "present").await;
    moved(&mut bench, &adopted, "present", "absent").await;
    assert!(disks.array().is_some_and(|array| array.uuid == uuid));
}
