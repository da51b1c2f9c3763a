//! Partitions of images and, where there are loop devices, of disks that the kernel knows.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use super::super::tests::{content, host, in_namespaces, run, setting};
use super::*;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::native::has_program;
use crate::kinds::testing::{Bench, cob_id, reason};
use crate::kinds::{Context, JobEnd, Outcome};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 16 * MIB;
const THEIRS: &str = "6d1f7a3c-0000-4000-8000-00000000000a";

/// Whether the programs are installed.
fn has_programs() -> bool {
    let is_there = ["sfdisk", "wipefs", "partx", "resizepart"].into_iter().all(has_program);
    if !is_there {
        eprintln!("skipped: there is no sfdisk, wipefs, partx or resizepart");
    }
    is_there
}

/// An image with zeros.
fn image(root: &Path, size: u64) -> PathBuf {
    let path = root.join("image");
    fs::File::create(&path).and_then(|file| file.set_len(size)).expect("made");
    path
}

fn keys(name: &str, more: &str) -> String {
    format!(r#""disk":"/image","name":"{name}",{more}"#)
}

fn sum(path: &Path) -> String {
    run(&format!("sha256sum < {}", path.display()))
}

/// The partitions as `NAME START SIZE` in MiB.
fn parts(path: &Path) -> Vec<String> {
    let device = Device::find(&Host::below(None).expect("absolute"), path.to_str().expect("text"));
    let device = device.expect("found").expect("there");
    let disk = Disk::read(device).expect("read");
    let mib = |sectors: u64| sectors * disk.sector / MIB;
    let parts = disk.table.gpt().map_or(&[][..], |table| &table.parts);
    parts.iter().map(|part| format!("{} {} {}", part.name, mib(part.start), mib(part.size))).collect()
}

/// The table without random identities, and the signatures.
fn seen(path: &Path) -> String {
    let path = path.display();
    let dump = format!("sfdisk --dump {path} 2>/dev/null | sed 's/^label-id.*//; s/uuid=[-0-9A-F]*//'");
    format!("{}\n{}", run(&dump), run(&format!("wipefs --noheadings --output TYPE {path}")))
}

/// Whether both copies of the table are whole and the same.
fn is_whole(path: &Path) -> bool {
    let said = run(&format!("sfdisk --verify {} 2>&1 || true", path.display()));
    let bytes = fs::read(path).expect("read");
    let (head, tail) = (&bytes[1024..1024 + 16384], &bytes[bytes.len() - 512 - 16384..bytes.len() - 512]);
    said.contains("No errors detected") && !said.contains("corrupt") && head == tail
}

/// A transition that succeeds, and its exported values.
async fn moved(bench: &mut Bench, context: &Context, from: &str, to: &str) -> Values {
    match bench.transition(context, from, to).await {
        Outcome::Done { exports, .. } => {
            let found = bench.check(context).await;
            assert_eq!(found.state.map(|state| state.to_string()), Ok(to.to_owned()), "{}", found.difference);
            exports
        }
        other @ (Outcome::Failed { .. } | Outcome::Conflict { .. } | Outcome::Cancelled | Outcome::Lost) => {
            panic!("{from} -> {to}: {other:?}")
        }
    }
}

/// A content below the host's folder, of a change object with its own id.
fn of(bench: &Bench, host: &Path, name: &str, more: &str) -> Context {
    let mut context = bench.context(&setting("partition"), &content(host, &keys(name, more)));
    Arc::make_mut(&mut context.cob).id = cob_id(&format!("n1/{name}"));
    context
}

fn record_of(bench: &Bench, name: &str) -> PathBuf {
    bench.path(&format!("cobs/n1+{name}")).join(RECORD)
}

#[tokio::test]
async fn partitions_of_images_keep_the_contract() {
    if !has_programs() {
        return;
    }
    let host = host(&[]);
    let path = image(host.path(), SIZE);
    let own = content(host.path(), &keys("data", r#""rest":true,"type":"lvm","on_departure":"erase""#));
    let other = content(host.path(), &keys("data", r#""size":"2M","on_departure":"erase""#));
    let of_probe = path.clone();
    let case = Case::new(setting("partition"), &own).other(&other).probing(move || seen(&of_probe)).kills(6);
    holds(&case, &[]).await;
    assert!(fs::read(&path).expect("read").iter().all(|byte| *byte == 0), "the disk is blank again");
}

#[tokio::test]
async fn partitions_share_a_disk_grow_and_stay() {
    if !has_programs() {
        return;
    }
    let host = host(&[]);
    let path = image(host.path(), SIZE);
    let mut bench = Bench::new();
    let [data, logs] = ["data", "logs"].map(|name| of(&bench, host.path(), name, r#""size":3000000"#));
    assert_eq!(bench.state(&data).await, "absent");
    // At the same time, on a blank disk.
    let begun = [&data, &logs].map(|context| bench.begin(context, "absent", "present"));
    for _ in &begun {
        let ended = bench.ended().await;
        assert!(matches!(ended.end, JobEnd::Moved(Outcome::Done { .. })), "{ended:?}");
    }
    drop(begun);
    let mut both = parts(&path);
    both.sort();
    let firsts: Vec<&str> = both.iter().map(|part| part.split(' ').next().expect("a name")).collect();
    assert_eq!(firsts, ["data", "logs"]);
    assert!(both.iter().any(|part| part.ends_with(" 1 3")) && both.iter().any(|part| part.ends_with(" 4 3")));
    assert!(is_whole(&path));
    let (first, second) = if both[0] == "data 1 3" { ("data", "logs") } else { ("logs", "data") };
    let made = sum(&path);
    let first_again = of(&bench, host.path(), first, r#""size":3000000"#);
    let values = moved(&mut bench, &first_again, "outdated", "present").await;
    assert_eq!(sum(&path), made, "nothing is left to do");
    assert!(values["uuid"].ends_with("636f62\"") && !values.contains_key("device"), "{values:?}");
    // The first has no space behind it, and the second has.
    let larger = of(&bench, host.path(), first, r#""size":"4M""#);
    assert_eq!(bench.state(&larger).await, "outdated");
    let why = reason(bench.transition(&larger, "outdated", "present").await);
    assert!(why.contains("can't have more than 3 MiB"), "{why}");
    let larger = of(&bench, host.path(), second, r#""size":"5M""#);
    let found = bench.check(&larger).await;
    assert!(found.difference.contains("3145728 of 5242880 bytes"), "{}", found.difference);
    // Data in the partition stay.
    let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
    file.write_all_at(b"precious", 4 * MIB + 5).expect("written");
    moved(&mut bench, &larger, "outdated", "present").await;
    assert!(parts(&path).contains(&format!("{second} 4 5")) && is_whole(&path));
    // Never smaller.
    let small = of(&bench, host.path(), second, r#""size":"3M""#);
    let found = bench.check(&small).await;
    assert!(found.state.is_ok_and(|state| state == *"outdated"));
    let made = sum(&path);
    let why = reason(bench.transition(&small, "outdated", "present").await);
    assert!(why.contains("has 5 MiB, and no partition becomes smaller: write `size: 5M`"), "{why}");
    assert_eq!(sum(&path), made);
    // With all the rest, also when the disk has grown, and with another type.
    let rest = of(&bench, host.path(), second, r#""rest":true,"type":"0657FD6D-A4AB-43C4-84E5-0933C84B4F4F""#);
    moved(&mut bench, &rest, "outdated", "present").await;
    assert!(parts(&path).contains(&format!("{second} 4 11")));
    run(&format!("truncate -s 32M {}", path.display()));
    assert_eq!(bench.state(&rest).await, "outdated");
    moved(&mut bench, &rest, "outdated", "present").await;
    assert!(parts(&path).contains(&format!("{second} 4 27")) && is_whole(&path), "{:?}", parts(&path));
    // No space is left for another.
    let third = of(&bench, host.path(), "third", r#""size":"1M""#);
    assert!(bench.check(&third).await.difference.contains("largest free space has 0 bytes"));
    let why = reason(bench.transition(&third, "absent", "present").await);
    assert!(why.contains("/image has no 1 MiB for third"), "{why}");
    // They leave: data stay in any case, and an empty partition goes if it may.
    let [first_gone, second_gone] =
        [first, second].map(|name| of(&bench, host.path(), name, r#""rest":true,"on_departure":"erase""#));
    moved(&mut bench, &first_gone, "outdated", "present").await;
    moved(&mut bench, &second_gone, "outdated", "present").await;
    moved(&mut bench, &second_gone, "present", "absent").await;
    moved(&mut bench, &first_gone, "present", "absent").await;
    assert_eq!(parts(&path), [format!("{second} 4 27")]);
    let bytes = fs::read(&path).expect("read");
    assert!(bytes[4 * 1024 * 1024 + 5..].starts_with(b"precious"));
    // A change object finds it again by its mark, and does not remove it, for it was there first.
    let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
    file.write_all_at(&[0; 8], 4 * MIB + 5).expect("written");
    moved(&mut bench, &second_gone, "absent", "present").await;
    moved(&mut bench, &second_gone, "present", "absent").await;
    assert_eq!(parts(&path), [format!("{second} 4 27")]);
}

/// Names and types near the border of what is accepted.
fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[-a-zA-Z0-9+_.]{0,40}",
        ".{0,8}",
        "[a-z]{1,4}[\"',=\n :/$][a-z]{0,4}",
        "[0-9a-fA-F]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        Just("lvm".to_owned()),
    ]
}

proptest! {
    #[test]
    fn an_accepted_content_is_safe_in_a_script_of_sfdisk(
        (name, kind, adopt) in (words(), words(), prop::option::of(words())),
        (size, rest) in (prop::option::of(any::<u64>()), prop::option::of(any::<bool>())),
    ) {
        let mut content = json!({ "disk": "/dev/vdb", "name": name, "type": kind, "adopt": adopt });
        if let Some(size) = size {
            content["size"] = json!(size);
        }
        if let Some(rest) = rest {
            content["rest"] = json!(rest);
        }
        if let Ok(content) = cob_kinds::read::<Partition>(&content.to_string()) {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
            prop_assert!((1..=36).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('-'));
            prop_assert_ne!(content.rest, size.is_some());
            prop_assert!(size != Some(0));
            for guid in [Some(content.kind.guid().to_owned()), adopt].into_iter().flatten() {
                prop_assert!(guid.len() == 36 && guid.chars().all(|c| c == '-' || c.is_ascii_hexdigit()));
            }
        }
    }

    #[test]
    fn the_words_of_a_refusal_are_accepted(bytes in 1_u64..) {
        let size: cob_kinds::Size = serde_json::from_value(json!(as_size(bytes))).expect("a size");
        prop_assert_eq!(size.0, bytes);
        let uuid = marked_uuid().expect("random");
        prop_assert!(is_marked(&uuid) && !is_marked(THEIRS));
        let content = json!({ "disk": "/dev/vdb", "name": "data", "rest": true, "adopt": uuid, "overwrite": uuid });
        prop_assert!(cob_kinds::read::<Partition>(&content.to_string()).is_ok());
    }
}

/// Data of others, and words of the refusal.
const PLANTS: [(&str, &str); 11] = [
    ("mkfs.ext4 -q -F -U 00000000-0000-4000-8000-000000000001 $f", "ext4 with the UUID 00000000-0000"),
    ("mkswap --uuid 00000000-0000-4000-8000-000000000002 $f", "swap with the UUID"),
    ("echo 'start=2048' | sfdisk -q --label dos $f", "table of the type dos"),
    (r"printf 'LUKS\272\276\0\001' | at 0", "crypto_LUKS"),
    ("printf secret | at 0", "data without a signature"),
    ("printf secret | at 16777200", "data without a signature"),
    ("yes | head -c 2000000 | at 3000000", "data without a signature"),
    // The rest of a table of others.
    ("echo label: gpt | sfdisk -q $f; head -c 512 /dev/zero | at 0", "gpt"),
    (
        "printf 'size=2M,name=data,uuid=6D1F7A3C-0000-4000-8000-00000000000A\\n' | sfdisk -q --label gpt $f",
        "others made the partition data of /image with the UUID 6d1f7a3c-0000-4000-8000-00000000000a",
    ),
    ("printf 'size=2M,name=data\\nsize=2M,name=data\\n' | sfdisk -q --label gpt $f", "2 partitions with the name data"),
    ("printf 'size=13M,name=x\\n' | sfdisk -q --label gpt $f", "its largest free space has 1 MiB"),
];

#[tokio::test]
async fn data_of_others_survive_every_attempt() {
    if !has_programs() || !has_program("mkfs.ext4") || !has_program("mkswap") {
        return;
    }
    for (plant, words) in PLANTS {
        let host = host(&[]);
        let path = image(host.path(), SIZE);
        let at = "at() { dd of=$f bs=4k conv=notrunc oflag=seek_bytes seek=$1 2>/dev/null; }";
        run(&format!("f={}; {at}; ({plant}) >/dev/null 2>&1", path.display()));
        let before = sum(&path);
        let mut bench = Bench::new();
        for more in ["", r#","overwrite":"6d1f7a3c-0000-4000-8000-00000000000b","on_departure":"erase""#] {
            let context = of(&bench, host.path(), "data", &format!(r#""size":"2M"{more}"#));
            let found = bench.check(&context).await;
            assert!(found.state.is_ok_and(|state| state == *"absent"), "{plant}");
            assert!(found.difference.contains(words), "{plant}: {}", found.difference);
            for _ in 0..2 {
                let why = reason(bench.transition(&context, "absent", "present").await);
                assert!(why.contains(words), "{plant}: {why}");
            }
            let _ = bench.transition(&context, "outdated", "absent").await;
            assert_eq!(sum(&path), before, "{plant}");
        }
    }
}

#[tokio::test]
async fn a_partition_of_others_is_managed_only_by_its_uuid() {
    if !has_programs() {
        return;
    }
    let host = host(&[]);
    let path = image(host.path(), SIZE);
    let script = format!("size=2M,name=\"a b\"\\nsize=2M,name=data,uuid={THEIRS},attrs=LegacyBIOSBootable\\n");
    run(&format!("printf '{script}' | sfdisk -q --label gpt {}", path.display()));
    let mut bench = Bench::new();
    let mut observed = of(&bench, host.path(), "data", r#""size":"2M""#);
    Arc::make_mut(&mut observed.cob).observe = true;
    assert_eq!(bench.state(&observed).await, "present");
    let wrong = of(&bench, host.path(), "data", r#""size":"2M","adopt":"6d1f7a3c-0000-4000-8000-00000000000b""#);
    let why = reason(bench.transition(&wrong, "absent", "present").await);
    assert!(why.contains(&format!("adopt: \"{THEIRS}\"")), "{why}");
    let more = format!(r#""size":"4M","adopt":"{THEIRS}","on_departure":"erase""#);
    let adopted = of(&bench, host.path(), "data", &more);
    moved(&mut bench, &adopted, "absent", "present").await;
    assert_eq!(parts(&path), ["a b 1 2", "data 3 4"]);
    moved(&mut bench, &adopted, "present", "absent").await;
    let dump = run(&format!("sfdisk --dump {}", path.display()));
    assert!(dump.contains("LegacyBIOSBootable") && dump.contains("name=\"a b\"") && dump.contains("name=\"data\""));
}

#[tokio::test]
async fn a_lost_partition_is_not_made_again() {
    if !has_programs() {
        return;
    }
    let host = host(&[]);
    let path = image(host.path(), SIZE);
    let mut bench = Bench::new();
    let context = of(&bench, host.path(), "data", r#""size":"2M""#);
    let uuid = moved(&mut bench, &context, "absent", "present").await["uuid"].trim_matches('"').to_owned();
    // Another name, no partition, and an empty disk.
    for (by, words) in [
        ("sfdisk -q --part-label $f 1 other", "has the name other now"),
        ("sfdisk -q --delete $f 1", "has lost its partition data with the UUID"),
        ("cp /dev/null $f; truncate -s 16M $f", "has lost its partition data with the UUID"),
    ] {
        run(&format!("f={}; {by}", path.display()));
        let before = sum(&path);
        let found = bench.check(&context).await;
        assert!(found.state.is_ok_and(|state| state == *"outdated") && found.difference.contains(words), "{by}");
        let why = reason(bench.transition(&context, "outdated", "present").await);
        assert!(why.contains(words), "{why}");
        assert_eq!(sum(&path), before, "{by}");
    }
    let more = format!(r#""size":"2M","overwrite":"{uuid}""#);
    let allowed = of(&bench, host.path(), "data", &more);
    let second = moved(&mut bench, &allowed, "outdated", "present").await["uuid"].clone();
    assert!(!second.contains(&uuid), "the word allows the loss once");
    // A disk that does not exist is named.
    fs::remove_file(&path).expect("removed");
    let why = reason(bench.transition(&allowed, "outdated", "present").await);
    assert!(why.contains("/image does not exist on this host"), "{why}");
    moved(&mut bench, &allowed, "outdated", "absent").await;
}

/// The disk after each write of sfdisk on the way from a table to another, and in the middle of each. A sector is written
/// whole.
fn halves(from: &[u8], to: &[u8]) -> Vec<Vec<u8>> {
    let end = from.len();
    let writes = [end - 512 - 16384..end - 512, end - 512..end, 1024..1024 + 16384, 512..1024, 0..512];
    let mut disk = from.to_vec();
    let mut all = vec![disk.clone()];
    for write in writes {
        if write.len() > 512 {
            let middle = write.start + 64;
            disk[write.start..middle].copy_from_slice(&to[write.start..middle]);
            all.push(disk.clone());
        }
        disk[write.clone()].copy_from_slice(&to[write]);
        all.push(disk.clone());
    }
    assert_eq!(all.last().map(Vec::as_slice), Some(to));
    all
}

#[tokio::test]
async fn a_killed_write_leaves_the_former_table_or_the_new() {
    if !has_programs() {
        return;
    }
    let host = host(&[]);
    let path = image(host.path(), SIZE);
    let mut bench = Bench::new();
    let with = |bench: &Bench, size: &str| {
        of(bench, host.path(), "data", &format!(r#""size":"{size}","on_departure":"erase""#))
    };
    let (small, large) = (with(&bench, "2M"), with(&bench, "4M"));
    let blank = fs::read(&path).expect("read");
    moved(&mut bench, &small, "absent", "present").await;
    let (two, record) = (fs::read(&path).expect("read"), record_of(&bench, "data"));
    let made = fs::read_to_string(&record).expect("read");
    run(&format!("sfdisk -q --delete {} 1", path.display()));
    let empty = fs::read(&path).expect("read");
    fs::write(&path, &two).expect("written");
    moved(&mut bench, &large, "outdated", "present").await;
    let four = fs::read(&path).expect("read");
    let writing = made.replace("\"writing\":false", "\"writing\":true");
    assert_ne!(made, writing);
    let [making, erasing] = ["making", "erasing"].map(|stage| writing.replace("\"made\"", &format!("\"{stage}\"")));
    let changes = [
        ([&blank, &empty], &making, &[][..]),
        ([&empty, &two], &making, &["data 1 2"]),
        ([&two, &four], &writing, &["data 1 2", "data 1 4"]),
        ([&two, &empty], &erasing, &["data 1 2"]),
    ];
    for (number, ([from, to], record_then, possible)) in changes.into_iter().enumerate() {
        for (at, disk) in halves(from, to).into_iter().enumerate() {
            // Both tables are read as a whole, and nothing else.
            fs::write(&path, &disk).expect("written");
            let read = parts(&path);
            assert!(read.is_empty() || possible.contains(&read.join(", ").as_str()), "{number} {at}: {read:?}");
            assert!(!read.is_empty() || number != 2, "{at}: the partition is never away");
            // The attempt is repeated.
            fs::write(&record, record_then).expect("written");
            let found = bench.check(&large).await;
            assert!(found.state.is_ok_and(|state| state == *"outdated") && found.difference.contains("unfinished"));
            moved(&mut bench, &large, "outdated", "present").await;
            assert!(parts(&path) == ["data 1 4"] && is_whole(&path), "{number} {at}: {:?}", parts(&path));
            // The change object departs instead.
            fs::write(&path, &disk).expect("written");
            fs::write(&record, record_then).expect("written");
            moved(&mut bench, &large, "outdated", "absent").await;
            let left = fs::read(&path).expect("read");
            assert!(left == blank, "{number} {at}: {:?} {}", parts(&path), seen(&path));
            // For the next round, with a note.
            moved(&mut bench, &large, "absent", "present").await;
        }
    }
    // The removal of a table.
    for length in [0, 512, 1024] {
        let mut disk = empty.clone();
        disk[..length].fill(0);
        fs::write(&path, &disk).expect("written");
        fs::write(&record, &erasing).expect("written");
        moved(&mut bench, &large, "outdated", "absent").await;
        assert!(fs::read(&path).expect("read") == blank, "{length}");
        moved(&mut bench, &large, "absent", "present").await;
    }
}

/// A loop device that the kernel may partition, until it is dropped.
struct Loop(String);

impl Loop {
    /// `None`: this machine has no loop devices.
    fn of(path: &Path, sector: u64) -> Option<Self> {
        let sector = sector.to_string();
        let words = ["--find", "--show", "--partscan", "--sector-size", &sector];
        let made = std::process::Command::new("losetup").args(words).arg(path).output().expect("losetup");
        let name = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        if !made.status.success() {
            eprintln!("skipped: {}", String::from_utf8_lossy(&made.stderr));
        }
        made.status.success().then_some(Self(name))
    }

    /// The partitions that the kernel knows, as `NUMBER START SIZE` in MiB.
    fn known(&self) -> Vec<String> {
        let name = self.0.trim_start_matches("/dev/");
        let all = run(&format!(
            "for p in /sys/block/{name}/{name}p*; do [ ! -e $p ] || echo $(cat $p/partition $p/start $p/size); done"
        ));
        let mib = |text: &str| text.parse::<u64>().expect("a number") * 512 / MIB;
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            format!("{} {} {}", words[0], mib(words[1]), mib(words[2]))
        };
        all.lines().map(line).collect()
    }

    fn content(&self, more: &str) -> String {
        format!(r#"{{"disk":"{}","name":"data",{more}}}"#, self.0)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("partx").args(["--delete", &self.0]).output();
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Runs the rest of a test in its own mount namespace.
fn is_apart(test: &str) -> bool {
    let name = format!("kinds::settings::partition::partition_test::{test}");
    has_programs() && has_program("mkfs.ext4") && in_namespaces(&name, &[]).is_none()
}

#[tokio::test]
async fn partitions_of_disks_keep_the_contract() {
    if !is_apart("partitions_of_disks_keep_the_contract") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(folder.path(), SIZE);
    let Some(disk) = Loop::of(&path, 512) else { return };
    let own = disk.content(r#""size":"4M","on_departure":"erase""#);
    let other = disk.content(r#""size":"2M","on_departure":"erase""#);
    let (name, number) = (disk.0.clone(), disk.0.trim_start_matches("/dev/").to_owned());
    let probe = move || {
        let known = run(&format!("cat /sys/block/{number}/{number}p*/size 2>/dev/null || true"));
        format!("{}\n{known}", seen(Path::new(&name)))
    };
    holds(&Case::new(setting("partition"), &own).other(&other).probing(probe).kills(4), &[]).await;
    assert!(disk.known().is_empty());
}

#[tokio::test]
async fn the_kernel_knows_the_partition_of_a_disk() {
    if !is_apart("the_kernel_knows_the_partition_of_a_disk") {
        return;
    }
    for sector in [512, 4096] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = image(folder.path(), 2 * SIZE);
        let Some(disk) = Loop::of(&path, sector) else { return };
        let part = format!("{}p1", disk.0);
        let mut bench = Bench::new();
        let kind = setting("partition");
        let small = bench.context(&kind, &disk.content(r#""size":"8M""#));
        let values = moved(&mut bench, &small, "absent", "present").await;
        assert_eq!((values["device"].as_str(), disk.known()), (format!("{part:?}").as_str(), vec!["1 1 8".to_owned()]));
        assert!(run(&format!("sfdisk --verify {} 2>&1", disk.0)).contains("No errors detected"));
        // The kernel's view is lost, or is old, as after a kill.
        for by in [format!("partx --delete {}", disk.0), format!("resizepart {} 1 8192", disk.0)] {
            run(&by);
            let found = bench.check(&small).await;
            assert!(found.state.is_ok_and(|state| state == *"outdated") && found.difference.contains("kernel"), "{by}");
            moved(&mut bench, &small, "outdated", "present").await;
            assert_eq!(disk.known(), ["1 1 8"], "{by}");
        }
        // It grows while it is mounted, and stays while it has a user.
        let place = folder.path().join("place");
        fs::create_dir(&place).expect("made");
        run(&format!("mkfs.ext4 -q -F {part} && mount {part} {0} && echo kept > {0}/file", place.display()));
        // Another comes and goes beside it.
        let logs = disk.content(r#""size":"4M","on_departure":"erase""#).replace("\"data\"", "\"logs\"");
        let mut logs = bench.context(&kind, &logs);
        Arc::make_mut(&mut logs.cob).id = cob_id("n1/logs");
        moved(&mut bench, &logs, "absent", "present").await;
        assert_eq!(disk.known(), ["1 1 8", "2 9 4"]);
        moved(&mut bench, &logs, "present", "absent").await;
        assert_eq!(disk.known(), ["1 1 8"]);
        let large = bench.context(&kind, &disk.content(r#""rest":true,"on_departure":"erase""#));
        assert_eq!(bench.state(&large).await, "outdated");
        moved(&mut bench, &large, "outdated", "present").await;
        assert_eq!(disk.known(), ["1 1 30"]);
        // The disk grows, too.
        run(&format!("truncate -s 48M {} && losetup --set-capacity {}", path.display(), disk.0));
        assert_eq!(bench.state(&large).await, "outdated");
        moved(&mut bench, &large, "outdated", "present").await;
        assert_eq!(disk.known(), ["1 1 46"]);
        let of_part = bench.context(&kind, &disk.content(r#""rest":true"#).replace(&disk.0, &part));
        let why = reason(bench.transition(&of_part, "absent", "present").await);
        assert!(why.contains("is a partition: name the whole disk"), "{why}");
        moved(&mut bench, &large, "present", "absent").await;
        assert_eq!(run(&format!("cat {}/file", place.display())), "kept");
        run(&format!("umount {}", place.display()));
        assert_eq!(disk.known(), ["1 1 46"], "it has data");
    }
}

#[tokio::test]
async fn a_disk_in_use_stays_as_it_is() {
    if !is_apart("a_disk_in_use_stays_as_it_is") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(folder.path(), SIZE);
    let Some(disk) = Loop::of(&path, 512) else { return };
    let (mut bench, kind) = (Bench::new(), setting("partition"));
    let context = bench.context(&kind, &disk.content(r#""size":"2M""#));
    // The image belongs to the loop device.
    let of_image = disk.content(r#""size":"2M""#).replace(&disk.0, path.to_str().expect("text"));
    let of_image = bench.context(&kind, &of_image);
    let why = reason(bench.transition(&of_image, "absent", "present").await);
    assert!(why.contains(&format!("is in use by {}", disk.0)), "{why}");
    // A file system on the whole disk.
    let place = folder.path().join("place");
    fs::create_dir(&place).expect("made");
    run(&format!("mkfs.ext4 -q -F {0} && mount {0} {1}", disk.0, place.display()));
    let why = reason(bench.transition(&context, "absent", "present").await);
    assert!(why.contains("is in use by a mount on"), "{why}");
    run(&format!("umount {} && wipefs -qa {}", place.display(), disk.0));
    // Zeros, and a partition that the kernel still has.
    run(&format!("head -c {SIZE} /dev/zero > {}; partx --show {} >/dev/null 2>&1 || true", disk.0, disk.0));
    run(&format!("printf 'size=2M,start=2048\\n' | sfdisk -q --label gpt {0} && partx --update {0}", disk.0));
    run(&format!("head -c {SIZE} /dev/zero > {}", disk.0));
    if !disk.known().is_empty() {
        let why = reason(bench.transition(&context, "absent", "present").await);
        assert!(why.contains(&format!("partx --delete {}", disk.0)), "{why}");
    }
    run(&format!("partx --delete {} 2>/dev/null || true", disk.0));
    moved(&mut bench, &context, "absent", "present").await;
}

#[test]
fn sfdisk_that_is_killed_at_any_write_leaves_a_whole_table() {
    if !has_programs() || !has_program("strace") {
        eprintln!("skipped: there is no strace");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(folder.path(), SIZE);
    let disk = path.display();
    run(&format!("printf 'start=2048,size=2M,name=data\\n' | sfdisk -q --label gpt {disk}"));
    let before = fs::read(&path).expect("read");
    let mut seen = std::collections::BTreeSet::new();
    for number in 1.. {
        fs::write(&path, &before).expect("written");
        // Only writes at places of the disk, each with a flush behind it.
        let trace =
            format!("strace -o {disk}.trace -P {disk} -e trace=fsync,write -e inject=write:signal=KILL:when={number}");
        let change = "start=2048,size=4M\\n";
        let line = format!(
            "printf '{change}' | {trace} sfdisk -q -N 1 --no-reread --no-tell-kernel {disk} >/dev/null 2>&1; echo $?"
        );
        let ended = run(&line);
        if !Path::new(&format!("{disk}.trace")).exists() || (number == 1 && ended == "1") {
            eprintln!("skipped: strace can't trace here");
            return;
        }
        let now = parts(&path);
        assert!(now == ["data 1 2"] || now == ["data 1 4"], "{number}: {now:?}");
        seen.insert(now);
        if ended == "0" {
            assert!(number > 4, "sfdisk made {number} writes");
            break;
        }
    }
    assert_eq!(seen.len(), 2);
}
