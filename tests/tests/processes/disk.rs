//! A daemon with a full disk, a damaged journal, or a missing index.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;
use cob_types::canonical::blob_hash;
use cob_types::history::HistoryEntry;
use cobgen::depot::PublishError;
use cobgen::publish::Refused;

use crate::{CHECK, PATIENCE, cluster};

const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
kinds:
  quick:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: ./check.sh}
    transitions:
      - {from: down, to: up, run: "echo x >> $COB_STATE_DIR/starts; echo up > $COB_STATE_DIR/state"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
cobs:
  n1/a: {kind: quick}
  n1/b: {kind: quick, requires: [a]}
"#;

/// A daemon with a generation of two change objects, not yet started.
fn one_host() -> (Cluster, GenerationNumber) {
    let mut cluster = cluster(&["n1"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), CHECK]);
    let generation = cluster.generate(&model);
    (cluster, generation)
}

fn converged() -> (Cluster, GenerationNumber) {
    let (mut cluster, generation) = one_host();
    cluster.bring_up(generation, PATIENCE);
    (cluster, generation)
}

fn return_of(cluster: &mut Cluster, generation: GenerationNumber) {
    cluster.start("n1");
    cluster.wait_converged(generation, PATIENCE);
}

/// The journal's only segment.
fn segment(cluster: &Cluster) -> PathBuf {
    let all = fs::read_dir(cluster.path("n1/journal")).expect("a journal").map(|e| e.expect("a file").path());
    let all: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "journal")).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// A small file system in memory; dropping this value unmounts it.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` if this user may not mount file systems.
    fn mount(at: &Path, size: &str) -> Option<Self> {
        fs::create_dir(at).expect("made");
        let options = format!("size={size},mode=0700");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "cob-test"]).arg(at).output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            Ok(output) => {
                eprintln!("skipped: no tmpfs can be mounted: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                eprintln!("skipped: no tmpfs can be mounted: mount: {error}");
                None
            }
        }
    }

    /// Writes into a file until there is no space left.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).expect("made");
        let mut piece = 64 << 10;
        while piece > 0 {
            if file.write_all(&vec![b'x'; piece]).is_err() {
                piece /= 2;
            }
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Programs that still use it end with the cluster.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn on_a_full_disk_no_generation_is_made_and_the_disk_is_named() {
    let cluster = cluster(&["n1"]);
    // Random data, which can't be compressed.
    let model = |seed: u64| {
        let noise = (0..4_000_u64).map(|n| format!("# {}\n", blob_hash(&(seed << 32 | n).to_be_bytes())));
        MODEL.replace("kinds:\n", &format!("{}kinds:\n", noise.collect::<String>()))
    };
    let folder = cluster.write_model("model", &[("model.yaml", &model(1)), CHECK]);
    let Some(disk) = SmallDisk::mount(&cluster.path("small"), "2m") else { return };
    let depot = cluster.path("small/depot");
    cobgen::publish(&folder, &depot, "").expect("there is room");
    let filler = disk.fill();
    let with = |cob: &str| model(2).replace("n1/b:", &format!("n1/{cob}: {{kind: quick}}\n  n1/b:"));
    for (cob, left) in [("c", 0), ("d", 30_000)] {
        // With no space left, and with too little.
        File::options().write(true).open(&filler).and_then(|f| f.set_len(f.metadata()?.len() - left)).expect("cut");
        cluster.write_model("model", &[("model.yaml", &with(cob)), CHECK]);
        let refused = cobgen::publish(&folder, &depot, "").expect_err("there is no room");
        assert!(matches!(refused, Refused::Depot(PublishError::Depot(_))), "{refused:?}");
        assert!(refused.to_string().contains("there is no room for generation 2 in "), "{refused}");
    }
    fs::remove_file(filler).expect("removed");
    cobgen::publish(&folder, &depot, "").expect("there is room again");
}

#[test]
fn a_full_disk_stops_the_daemon_without_loss_of_orders() {
    let (mut cluster, generation) = one_host();
    let Some(disk) = SmallDisk::mount(&cluster.path("n1"), "4m") else { return };
    cluster.bring_up(generation, PATIENCE);

    let filler = disk.fill();
    // Answered orders are durable; the first order that can't be made durable gets no answer.
    let words = ["pause", "resume"].into_iter().cycle();
    let taken = words.take(10_000).take_while(|word| cluster.http("n1", "POST", &format!("/v1/{word}"), "{}").is_ok());
    let taken = taken.count();
    assert!(taken < 10_000, "a full disk was not noticed");
    let status = cluster.wait_stopped("n1");
    let log = cluster.log("n1");
    let told: Vec<_> = log.lines().filter(|l| l.starts_with("error: ")).collect();
    assert_eq!((status.code(), told.len()), (Some(1), 1), "{log}");
    for words in ["the journal can't be written, so the daemon stops", "No space left on device", "make room"] {
        assert!(told[0].contains(words), "{words:?} is not in {:?}", told[0]);
    }
    assert!(!log.contains("panicked"), "{log}");

    // Without space it reports the same error, or comes up and stops; it does no harm.
    let (status, said) = cluster.start_in_vain("n1");
    assert!(!status.success() && said.contains("No space left on device"), "{said}");

    fs::remove_file(filler).expect("removed");
    return_of(&mut cluster, generation);
    assert_eq!(cluster.status("n1").expect("answers").paused, taken % 2 == 1, "after {taken} words");
    let orders = cluster.history("n1").into_iter().filter(|e| ["pause", "resume"].contains(&e.event.as_str()));
    assert_eq!(orders.count(), taken);
    for cob in ["a", "b"] {
        let starts = fs::read_to_string(cluster.path(&format!("n1/cobs/n1+{cob}/starts"))).expect("started");
        assert_eq!(starts, "x\n", "nothing is done twice");
    }
}

#[test]
fn an_unfinished_commit_at_the_journals_end_is_cut_off() {
    let (mut cluster, generation) = converged();
    for round in 0..2 {
        cluster.kill("n1");
        let path = segment(&cluster);
        let file = OpenOptions::new().write(true).open(&path).expect("opened");
        let length = file.metadata().expect("there").len();
        if round == 0 {
            file.set_len(length - 5).expect("cut");
        } else {
            file.write_all_at(&[0xA5; 100], length).expect("written");
        }
        return_of(&mut cluster, generation);
    }
    let warned = cluster.log("n1").matches("an unfinished commit at the journal's end was cut off").count();
    assert_eq!(warned, 2);
}

#[test]
fn damage_in_the_middle_of_the_journal_is_refused() {
    let (mut cluster, generation) = converged();
    cluster.kill("n1");
    let path = segment(&cluster);
    let whole = fs::read(&path).expect("read");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0x10;
    fs::write(&path, &damaged).expect("written");
    let (status, said) = cluster.start_in_vain("n1");
    assert_eq!(status.code(), Some(1), "{said}");
    for words in ["journal: damaged at byte", "not the end of the file", "Way out", "cobctl fence"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(fs::read(&path).expect("read"), damaged, "nothing was changed");
    // The remedy.
    fs::write(&path, &whole).expect("written");
    return_of(&mut cluster, generation);
}

#[test]
fn a_journal_that_has_lost_its_end_is_refused() {
    let (mut cluster, generation) = converged();
    // A query of the history brings it up to date: the index knows all durable records.
    assert!(!cluster.history("n1").is_empty());
    cluster.stop("n1");
    let path = segment(&cluster);
    let whole = fs::read(&path).expect("read");
    // Cut off; or a last commit that looks torn, although the index shows that it was whole.
    let mut spoilt = whole.clone();
    *spoilt.last_mut().expect("not empty") ^= 0x10;
    for lost in [&whole[..whole.len() / 2], &spoilt] {
        fs::write(&path, lost).expect("written");
        let (status, said) = cluster.start_in_vain("n1");
        assert_eq!(status.code(), Some(1), "{said}");
        for words in ["it ends with record", "the index in", "knows record", "this host was in use", "cobctl fence"] {
            assert!(said.contains(words), "{words:?} is not in {said}");
        }
        assert_eq!(fs::read(&path).expect("read"), lost, "nothing was changed");
    }
    // The remedy.
    fs::write(&path, &whole).expect("written");
    return_of(&mut cluster, generation);
}

#[test]
fn a_journal_that_is_empty_or_gone_is_no_new_host() {
    let (mut cluster, generation) = converged();
    cluster.kill("n1");
    let path = segment(&cluster);
    let whole = fs::read(&path).expect("read");
    let refused = |what: &str| {
        let (status, said) = cluster.start_in_vain("n1");
        assert_eq!(status.code(), Some(1), "{said}");
        for words in [what, "this host was in use", "Way out", "cobctl fence"] {
            assert!(said.contains(words), "{words:?} is not in {said}");
        }
    };
    fs::write(&path, "").expect("emptied");
    refused("it holds no record");
    assert_eq!(fs::read(&path).expect("read"), b"", "nothing was changed");
    fs::remove_file(&path).expect("removed");
    refused("this file is missing");
    fs::remove_dir_all(cluster.path("n1/journal")).expect("removed");
    refused("this file is missing");
    assert!(!path.exists());
    // The remedy.
    fs::create_dir_all(cluster.path("n1/journal")).expect("made");
    fs::write(&path, &whole).expect("put back");
    return_of(&mut cluster, generation);
}

/// The history without the entries that each start of the daemon adds.
fn told(cluster: &Cluster) -> Vec<HistoryEntry> {
    let all = cluster.history("n1");
    assert!(all.iter().filter(|e| e.event == "end").count() >= 2, "{all:?}\n{}", cluster.log("n1"));
    all
}

#[test]
fn an_index_that_is_gone_or_spoilt_is_made_again() {
    let (mut cluster, generation) = converged();
    let index = cluster.path("n1/index");
    let spoil = |how: &str| match how {
        "gone" => fs::remove_dir_all(&index).expect("removed"),
        "garbage" => fs::write(index.join("db"), [0x5A; 70_000]).expect("written"),
        "empty" => fs::write(index.join("db"), "").expect("written"),
        "configuration" => fs::write(index.join("conf"), "nonsense").expect("written"),
        "file" => {
            fs::remove_dir_all(&index).expect("removed");
            fs::write(&index, "a file in its place").expect("written");
        }
        other => unreachable!("{other}"),
    };
    for how in ["gone", "garbage", "empty", "configuration", "file", "garbage"] {
        let before = told(&cluster);
        cluster.stop("n1");
        spoil(how);
        return_of(&mut cluster, generation);
        let after = told(&cluster);
        assert_eq!(after[..before.len()], before, "{how}");
        assert_eq!(after[before.len()].event, "daemon", "{how}");
    }
    assert!(!cluster.log("n1").contains("history is not available"), "{}", cluster.log("n1"));
}

#[test]
fn an_ordinary_stop_keeps_the_whole_history() {
    let mut cluster = cluster(&["n1"]);
    let blind = "check: {run: '[ ! -e $COB_STATE_DIR/blind ] && ./check.sh', interval: 20ms}";
    let model = MODEL.replace("check: {run: ./check.sh}", blind);
    let model = cluster.write_model("model", &[("model.yaml", &model), CHECK]);
    let generation = cluster.generate(&model);
    cluster.bring_up(generation, PATIENCE);
    // A failed check is worth a line of the history, but no wait for the disk.
    fs::write(cluster.path("n1/cobs/n1+a/blind"), "").expect("written");
    let failed = |all: &[HistoryEntry]| all.iter().any(|e| e.event == "check" && e.detail.contains("exit status 1"));
    cluster.until(PATIENCE, || failed(&told(&cluster)), "a check could not tell");
    let before = told(&cluster);
    cluster.stop("n1");
    // A restarted daemon relies on no state before a check has found it.
    fs::remove_file(cluster.path("n1/cobs/n1+a/blind")).expect("removed");
    return_of(&mut cluster, generation);
    assert_eq!(told(&cluster)[..before.len()], before);
    assert!(!cluster.log("n1").contains("put aside"), "{}", cluster.log("n1"));
}

#[test]
fn a_state_folder_that_can_not_be_written_is_told() {
    let (mut cluster, generation) = converged();
    cluster.kill("n1");
    let journal = cluster.path("n1/journal");
    let path = segment(&cluster);
    // A folder in place of the next segment's temporary file; root can't be stopped by permissions.
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o700)).expect("set");
    fs::rename(&path, journal.join("away")).expect("moved");
    fs::create_dir(&path).expect("in the way");
    let (status, said) = cluster.start_in_vain("n1");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("journal") && said.contains("Is a directory"), "{said}");
    fs::remove_dir(&path).expect("removed");
    fs::rename(journal.join("away"), &path).expect("moved");
    return_of(&mut cluster, generation);
}
