//! Logical volumes on loop devices, with the real programs of LVM and without a device-mapper: `activation = 0` in
//! `lvm.conf`, so that only the metadata change.

use std::fs;
use std::path::Path;

use super::super::tests::{in_namespaces, moved, own_fstab, run, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::has_program;
use crate::kinds::testing::{Bench, reason};

const MIB: u64 = 1 << 20;

/// Loop devices, until they are dropped.
struct Disks {
    folder: tempfile::TempDir,
    paths: Vec<String>,
    group: String,
}

impl Disks {
    /// So many devices of 64 MiB, in an own namespace. `None`: the test is left out, or runs in its namespace.
    fn of(test: &str, number: usize) -> Option<Self> {
        if !has_program(tools::PROGRAM) || !has_program("wipefs") {
            eprintln!("skipped: there is no lvm or wipefs");
            return None;
        }
        if in_namespaces(&format!("kinds::settings::lvm_volume::lvm_volume_test::{test}"), &[]).is_some() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        own_fstab(folder.path(), "");
        run("mkdir -p /etc/lvm && printf 'global { activation = 0 }\\n' > /etc/lvm/lvm.conf");
        run("mkdir -p /run/lock && mount -t tmpfs none /run/lock");
        let mut disks = Self { folder, paths: Vec::new(), group: format!("cobtest{}", std::process::id()) };
        for at in 0..number {
            let image = disks.image(at);
            fs::File::create(&image).and_then(|file| file.set_len(64 * MIB)).expect("made");
            let made = std::process::Command::new("losetup").args(["--find", "--show", &image]).output().expect("run");
            if !made.status.success() {
                eprintln!("skipped: {}", String::from_utf8_lossy(&made.stderr));
                return None;
            }
            disks.paths.push(String::from_utf8_lossy(&made.stdout).trim().to_owned());
        }
        Some(disks)
    }

    fn image(&self, at: usize) -> String {
        self.folder.path().join(format!("disk{at}")).display().to_string()
    }

    fn content(&self, devices: &[usize], more: &str) -> String {
        let devices: Vec<&String> = devices.iter().map(|at| &self.paths[*at]).collect();
        format!(r#"{{"group":"{}","devices":{},"name":"www",{more}}}"#, self.group, json!(devices))
    }

    fn volume(&self) -> Option<Logical> {
        tools::group(&self.group).expect("reported")?.volume("www").cloned()
    }

    fn signatures(&self, at: usize) -> String {
        run(&format!("wipefs --noheadings --output TYPE {}", self.paths[at]))
    }

    fn sum(&self, at: usize) -> String {
        run(&format!("sha256sum < {}", self.paths[at]))
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        let _ = std::process::Command::new("lvm").args(["vgremove", "--yes", "--force", &self.group]).output();
        let _ = std::process::Command::new("losetup").arg("--detach").args(&self.paths).status();
    }
}

/// The groups and volumes without their random identities, and the signatures.
fn seen(group: &str, paths: &[String]) -> String {
    let volumes = run(&format!("lvm lvs --noheadings --options lv_name,lv_size --select vg_name={group} 2>/dev/null"));
    let devices = run(&format!("lvm pvs --noheadings --options pv_name,pv_size --select vg_name={group} 2>/dev/null"));
    let types = run(&format!("for d in {}; do wipefs --noheadings --output TYPE $d; done", paths.join(" ")));
    format!("{volumes}\n{devices}\n{types}")
}

#[tokio::test]
async fn volumes_keep_the_contract() {
    let Some(disks) = Disks::of("volumes_keep_the_contract", 2) else { return };
    // A content with less is satisfied by more.
    let own = disks.content(&[0, 1], r#""size":"100%","on_departure":"erase""#);
    let other = disks.content(&[0], r#""size":"20M","on_departure":"erase""#);
    let (group, paths) = (disks.group.clone(), disks.paths.clone());
    let case = Case::new(setting("lvm-volume"), &own).other(&other).probing(move || seen(&group, &paths)).kills(3);
    holds(&case, &[]).await;
    for at in [0, 1] {
        assert_eq!(disks.signatures(at), "");
    }
}

#[tokio::test]
async fn a_volume_is_made_grown_and_kept() {
    let Some(disks) = Disks::of("a_volume_is_made_grown_and_kept", 3) else { return };
    let mut bench = Bench::new();
    let kind = setting("lvm-volume");
    let first = bench.context(&kind, &disks.content(&[0], r#""size":"18M""#));
    assert_eq!(bench.state(&first).await, "absent");
    moved(&mut bench, &first, "absent", "present").await;
    let made = disks.volume().expect("made");
    assert_eq!((made.size, made.layout.as_str()), (20 * MIB, "linear"), "whole extents");
    moved(&mut bench, &first, "outdated", "present").await;
    assert_eq!(disks.volume().map(|volume| volume.uuid), Some(made.uuid.clone()), "the same volume");
    // It grows, also with a new device of the group, and never shrinks.
    let all = bench.context(&kind, &disks.content(&[0, 1], r#""size":"100%""#));
    let found = bench.check(&all).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    assert!(
        found.difference.contains("not in the group") && found.difference.contains(&disks.paths[1]),
        "{}",
        found.difference
    );
    moved(&mut bench, &all, "outdated", "present").await;
    assert_eq!(disks.volume().map(|volume| volume.size), Some(120 * MIB));
    let small = bench.context(&kind, &disks.content(&[0, 1], r#""size":"20M""#));
    assert_eq!(bench.state(&small).await, "present");
    moved(&mut bench, &small, "outdated", "present").await;
    assert_eq!(disks.volume().map(|volume| (volume.size, volume.uuid)), Some((120 * MIB, made.uuid.clone())));
    // A device that was enlarged counts.
    run(&format!("truncate -s 128M {} && losetup --set-capacity {}", disks.image(0), disks.paths[0]));
    let found = bench.check(&all).await;
    assert!(found.difference.contains("larger than in the group"), "{}", found.difference);
    moved(&mut bench, &all, "outdated", "present").await;
    assert_eq!(disks.volume().map(|volume| volume.size), Some(184 * MIB));
    // More than the group has: the volume stays as it is, with the reason.
    let large = bench.context(&kind, &disks.content(&[0, 1], r#""size":"1G""#));
    let why = reason(bench.transition(&large, "outdated", "present").await);
    assert!(why.contains("lvm lvextend") && why.to_lowercase().contains("insufficient free space"), "{why}");
    // A removal that did not begin leaves the volume whole.
    let record = bench.path("cobs/n1+a+b").join(RECORD);
    let text = fs::read_to_string(&record).expect("read");
    fs::write(&record, text.replace("\"made\"", "\"erasing\"")).expect("written");
    moved(&mut bench, &all, "outdated", "present").await;
    assert_eq!(disks.volume().map(|volume| volume.uuid), Some(made.uuid.clone()));
    assert_eq!(fs::read_to_string(&record).expect("read"), text);
    // The data stay after the departure, and a later change object finds them.
    moved(&mut bench, &all, "present", "absent").await;
    assert_eq!(disks.volume().map(|volume| volume.uuid), Some(made.uuid.clone()));
    let erasing = bench.context(&kind, &disks.content(&[0, 1], r#""size":"100%","on_departure":"erase""#));
    moved(&mut bench, &erasing, "absent", "present").await;
    moved(&mut bench, &erasing, "present", "absent").await;
    assert_eq!(disks.volume().map(|volume| volume.uuid), Some(made.uuid), "it was there first, so it is not erased");
    // A second volume of the group needs no devices.
    let keys = format!(r#"{{"group":"{}","name":"logs","size":"8M"}}"#, disks.group);
    let why = reason(bench.transition(&bench.context(&kind, &keys), "absent", "present").await);
    assert!(why.contains("insufficient free space"), "{why}");
    run(&format!("lvm lvreduce --force --yes --size 40M {}/www 2>/dev/null", disks.group));
    let logs = bench.context(&kind, &keys);
    moved(&mut bench, &logs, "outdated", "present").await;
    assert_eq!(tools::group(&disks.group).expect("reported").expect("there").volumes.len(), 2);
}

#[tokio::test]
async fn data_and_groups_of_others_survive_every_attempt() {
    let Some(disks) = Disks::of("data_and_groups_of_others_survive_every_attempt", 2) else { return };
    let kind = setting("lvm-volume");
    let other = format!("{}x", disks.group);
    let plants = [
        ("mkfs.ext4 -q -U 00000000-0000-4000-8000-000000000001 $d".to_owned(), "00000000-0000-4000-8000-000000000001"),
        ("printf secret | dd of=$d bs=1 seek=100 conv=notrunc 2>/dev/null".to_owned(), "data without a signature"),
        ("lvm pvcreate -q $d 2>/dev/null".to_owned(), "LVM2_member"),
        (format!("lvm vgcreate -q {other} $d 2>/dev/null"), "LVM2_member"),
    ];
    for (plant, word) in plants {
        let device = &disks.paths[1];
        run(&format!(
            "wipefs -qa {device}; dd if=/dev/zero of={device} bs=1M count=2 2>/dev/null; d={device}; {plant}"
        ));
        let before = disks.sum(1);
        let mut bench = Bench::new();
        for (devices, more) in [(&[1][..], ""), (&[0, 1], r#","on_departure":"erase""#)] {
            let context = bench.context(&kind, &disks.content(devices, &format!(r#""size":"8M"{more}"#)));
            let found = bench.check(&context).await;
            assert!(found.state.is_ok_and(|state| state == *"absent") && found.difference.contains(word), "{plant}");
            for _ in 0..2 {
                let why = reason(bench.transition(&context, "absent", "present").await);
                assert!(why.contains(word) && why.contains("is not overwritten"), "{plant}: {why}");
            }
            let _ = bench.transition(&context, "outdated", "absent").await;
            assert_eq!(disks.sum(1), before, "{plant}");
            assert_eq!(disks.signatures(0), "", "{plant}: no device was prepared");
        }
    }
    run(&format!("lvm vgremove -q {other} 2>/dev/null; lvm pvremove -q {} 2>/dev/null", disks.paths[1]));
    // A group of others is used only by its UUID.
    run(&format!("lvm vgcreate -q {} {} 2>/dev/null", disks.group, disks.paths[0]));
    let uuid = tools::group(&disks.group).expect("reported").expect("there").uuid;
    let before = disks.sum(0);
    let mut bench = Bench::new();
    for more in ["", r#","adopt":"kjpraW-AYaT-yRNl-q0x2-Thfv-pT8N-opMzX3""#] {
        let context = bench.context(&kind, &disks.content(&[], &format!(r#""size":"8M"{more}"#)));
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains("others made the volume group") && why.contains(&format!("adopt: \"{uuid}\"")), "{why}");
        assert_eq!(disks.sum(0), before);
    }
    let keys = format!(r#""size":"8M","adopt":"{uuid}","on_departure":"erase""#);
    let adopted = bench.context(&kind, &disks.content(&[], &keys));
    moved(&mut bench, &adopted, "absent", "present").await;
    moved(&mut bench, &adopted, "present", "absent").await;
    let left = tools::group(&disks.group).expect("reported").expect("the group of others stays");
    assert_eq!((left.volumes.len(), left.devices.len()), (0, 1));
}

#[tokio::test]
async fn a_lost_volume_is_not_made_again() {
    let Some(disks) = Disks::of("a_lost_volume_is_not_made_again", 1) else { return };
    let (mut bench, kind) = (Bench::new(), setting("lvm-volume"));
    let context = bench.context(&kind, &disks.content(&[0], r#""size":"20M""#));
    moved(&mut bench, &context, "absent", "present").await;
    let uuid = disks.volume().expect("made").uuid;
    run(&format!("lvm lvremove -q --yes {}/www 2>/dev/null", disks.group));
    assert_eq!(bench.state(&context).await, "outdated");
    let why = reason(bench.transition(&context, "outdated", "present").await);
    assert!(why.contains(&format!("overwrite: \"{uuid}\"")), "{why}");
    assert!(disks.volume().is_none());
    let allowed = disks.content(&[0], &format!(r#""size":"20M","overwrite":"{uuid}""#));
    let allowed = bench.context(&kind, &allowed);
    moved(&mut bench, &allowed, "outdated", "present").await;
    assert!(disks.volume().is_some_and(|volume| volume.uuid != uuid));
    // A volume of another type is not touched.
    run(&format!(
        "lvm lvremove -q --yes {0}/www 2>/dev/null; lvm lvcreate -q --yes --type snapshot --virtualsize 8M --extents 2 --name www {0} 2>/dev/null || true",
        disks.group
    ));
    if let Some(other) = disks.volume() {
        let why = reason(bench.transition(&context, "outdated", "present").await);
        assert!(why.contains(&format!("as a volume of the type {}", other.layout)), "{why}");
    }
}

#[tokio::test]
async fn a_host_that_can_not_have_the_volume_says_why() {
    let Some(disks) = Disks::of("a_host_that_can_not_have_the_volume_says_why", 1) else { return };
    let (mut bench, kind) = (Bench::new(), setting("lvm-volume"));
    for (keys, words) in [
        (disks.content(&[], r#""size":"8M""#), "name its `devices`"),
        (disks.content(&[0], r#""size":"8M""#).replace(&disks.paths[0], "/dev/nosuch"), "/dev/nosuch does not exist"),
        (disks.content(&[0], r#""size":"8M""#).replace(&disks.paths[0], &disks.image(0)), "is a file"),
    ] {
        let context = bench.context(&kind, &keys);
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(words), "{why}");
        bench = Bench::new();
    }
    let context = bench.context(&kind, &disks.content(&[0], r#""size":"8M""#));
    if !tools::has_mapper() {
        fs::write("/etc/lvm/lvm.conf", "").expect("written");
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains("has no device-mapper") && disks.signatures(0).is_empty(), "{why}");
    }
    assert!(Path::new(&disks.paths[0]).exists());
}
