//! The examples: each is a valid model, and its scripts work.

use std::path::{Path, PathBuf};
use std::process::Command;

use cobgen::cli::{self, Terminal};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn cobgen(args: &[&str]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("cobgen").chain(args.iter().copied()).map(Into::into);
    let status =
        cli::run(args.collect(), &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false });
    (status, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
}

/// A change object's folder and content, as its scripts see them.
struct Place {
    scripts: PathBuf,
    dir: tempfile::TempDir,
}

impl Place {
    fn new(scripts: PathBuf, content: &str) -> Self {
        let place = Self { scripts, dir: tempfile::tempdir().expect("a folder") };
        std::fs::create_dir(place.dir.path().join("state")).expect("made");
        place.content(content);
        place
    }

    fn content(&self, content: &str) {
        std::fs::write(self.dir.path().join("content"), content).expect("written");
    }

    fn run(&self, script: &str, from: &str, to: &str) -> String {
        let output = Command::new("/bin/sh")
            .args(["-c", script])
            .current_dir(&self.scripts)
            .env("COB_ID", "n1/x")
            .env("COB_FROM", from)
            .env("COB_TO", to)
            .env("COB_STATE_DIR", self.dir.path().join("state"))
            .env("COB_CONTENT", self.dir.path().join("content"))
            .output()
            .expect("a shell");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    }

    fn check(&self) -> String {
        self.run("./check.sh", "", "")
    }
}

#[test]
fn every_example_is_right() {
    let mut found = 0;
    for example in std::fs::read_dir(examples()).expect("the folder") {
        let path = example.expect("an entry").path();
        if !path.join("model.yaml").exists() {
            // A client of the API, or rules for another program.
            continue;
        }
        let (status, out, err) = cobgen(&["check", path.to_str().expect("UTF-8")]);
        assert_eq!((status, err.as_str()), (0, ""), "{}", path.display());
        assert!(out.contains(": ok: "), "{out}");
        found += 1;
    }
    assert!(found >= 7, "{found} examples");
}

#[test]
fn figure_1_expands_to_the_documented_dependencies() {
    let (status, out, _) = cobgen(&["show", examples().join("fig1").to_str().expect("UTF-8"), "n1/svc-a"]);
    assert_eq!(status, 0);
    let dependencies: Vec<&str> = out
        .lines()
        .filter_map(|l| l.trim().strip_prefix('(').map(|_| l.trim().split("   ").next().unwrap_or_default()))
        .collect();
    insta::assert_snapshot!(dependencies.join("\n"), @"
    (n1/svc-a, down, up) <- (n1/cfg-a, up)
    (n1/svc-a, outdated, down) <- (n2/svc-b, down)
    (n1/svc-a, up, down) <- (n2/svc-b, down)
    (n1/svc-a, up) <- (n1/cfg-a, up)
    ");
}

#[test]
fn the_scripts_of_simple_move_it_through_its_states() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let content = |more: &str| format!(r#"{{{more}"log":"{}"}}"#, log.path().display());
    let place = Place::new(examples().join("simple"), &content(""));
    assert_eq!(place.check(), "down");
    place.run("./start.sh", "down", "up");
    assert_eq!(place.check(), "up");
    place.content(&content(r#""changed":1,"#));
    assert_eq!(place.check(), "outdated");
    place.run("./restart.sh", "outdated", "up");
    assert_eq!(place.check(), "up");
    // A second run has the same result.
    place.run("./stop.sh", "up", "down");
    place.run("./stop.sh", "up", "down");
    assert_eq!(place.check(), "down");
    place.run("./start.sh", "down", "up");
    place.content(&content(""));
    place.run("./cleanup.sh", "outdated", "down");
    assert_eq!(place.check(), "down");

    let text = std::fs::read_to_string(log.path()).expect("the log");
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split(' ').collect()).collect();
    assert_eq!(lines.len(), 2 * 6, "{text}");
    for pair in lines.chunks(2) {
        let [start, end] = pair else { panic!("an odd number of lines: {text}") };
        assert_eq!((start[0], end[0]), ("start", "end"), "{text}");
        assert_eq!(start[1..4], end[1..4], "{text}");
        let time = |line: &[&str]| line[4].parse::<u128>().expect("nanoseconds");
        assert!(time(start) <= time(end), "{text}");
    }
    assert_eq!(lines[0][1..4], ["n1/x", "down", "up"]);
}

#[test]
fn the_scripts_of_figure_1_and_of_init_move_between_down_and_up() {
    let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/init");
    for (folder, on, off) in [(examples().join("fig1"), "install", "remove"), (init, "start", "stop")] {
        let place = Place::new(folder, r#"{"port":80}"#);
        assert_eq!(place.check(), "down");
        place.run(&format!("./{on}.sh"), "down", "up");
        assert_eq!(place.check(), "up");
        place.content(r#"{"port":81}"#);
        assert_eq!(place.check(), "outdated");
        place.run(&format!("./{off}.sh"), "outdated", "down");
        assert_eq!(place.check(), "down");
    }
}

#[test]
fn the_scripts_of_the_web_shop_keep_a_file_as_it_is_to_be() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("etc/shop.conf");
    let content = |price: u32| format!(r#"{{"path":"{}","text":"goods = teapot\nprice = {price}\n"}}"#, file.display());
    let place = Place::new(examples().join("webshop"), &content(10));
    assert_eq!(place.check(), "absent");
    place.run("./write.sh", "absent", "present");
    assert_eq!(place.check(), "present");
    assert_eq!(std::fs::read_to_string(&file).expect("written"), "goods = teapot\nprice = 10\n");
    place.content(&content(12));
    assert_eq!(place.check(), "outdated");
    place.run("./write.sh", "outdated", "present");
    assert_eq!(place.check(), "present");
    std::fs::write(&file, "edited by hand\n").expect("written");
    assert_eq!(place.check(), "outdated");
    for _ in 0..2 {
        place.run("./remove.sh", "outdated", "absent");
        assert_eq!(place.check(), "absent");
    }
}

#[test]
fn etcd_takes_its_data_away() {
    let place = Place::new(examples().join("etcd"), "{}");
    let into = place.dir.path().join("into");
    std::fs::create_dir(&into).expect("made");
    let data = |what: &str| place.run(&format!("./data.sh {what} {}", into.display()), "", "");
    assert_eq!(data("check"), "down");
    data("make");
    std::fs::write(into.join("private/etcd/x"), "stored").expect("written");
    std::os::unix::fs::symlink("private/etcd", into.join("etcd")).expect("linked");
    data("make");
    assert_eq!(data("check"), "up");
    data("remove");
    data("remove");
    assert_eq!(data("check"), "down");
    assert!(into.join("etcd").symlink_metadata().is_err());
}

#[test]
fn etcd_has_a_member_on_each_host_and_no_waits_between_hosts() {
    let path = examples().join("etcd");
    let (status, out, _) = cobgen(&["show", path.to_str().expect("UTF-8"), "h2/etcd/server"]);
    assert_eq!(status, 0);
    assert!(out.contains("budget     h1/budget/etcd"), "{out}");
    let needs: Vec<&str> = out.lines().filter(|line| line.contains(" <- (")).collect();
    assert!(!needs.is_empty() && needs.iter().all(|line| !line.contains("h1/") && !line.contains("h3/")), "{out}");
    let (status, out, _) = cobgen(&["show", path.to_str().expect("UTF-8"), "h2/etcd/settings"]);
    assert_eq!(status, 0);
    let cluster = "initial-cluster: h1=http://127.0.0.1:2380,h2=http://127.0.0.2:2380,h3=http://127.0.0.3:2380\\n";
    assert!(out.contains("\\nname: h2\\n") && out.contains(cluster), "{out}");
}

#[test]
fn the_storage_cluster_is_laid_out_generated_and_planned() {
    let example = examples().join("ha-storage");
    let model = example.to_str().expect("UTF-8");
    let data = std::fs::read_to_string(example.join("model.yaml")).expect("read");
    assert!(data.lines().count() <= 60, "the data are short");
    let (status, out, err) = cobgen(&["solve", model]);
    assert_eq!(status, 0, "{err}");
    insta::assert_snapshot!(out.trim_end(), @"
    lab: 8 nodes
      adm1 (admin): base, logs, monitored, monitoring, policy, time
      adm2 (admin): base, monitored, monitoring, time
      cl1 (compute): base, client, monitored, time
      mds1, mds2, mds3 (meta): base, metadata, monitored, time
      oss1, oss2 (disks): base, chunks, monitored, time
    ");
    // The resources wait for the cluster of all hosts.
    let (status, out, err) = cobgen(&["show", model, "mds1/metadata/set"]);
    assert_eq!(status, 0, "{err}");
    for host in ["mds1", "mds2", "mds3"] {
        assert!(
            out.contains(&format!("(mds1/metadata/set, stopped, up) <- ({host}/metadata/cluster, present)")),
            "{out}"
        );
    }
    let depot = tempfile::tempdir().expect("a folder");
    let depot = depot.path().join("depot");
    let depot = depot.to_str().expect("UTF-8");
    let (status, _, err) = cobgen(&["generate", model, "--depot", depot]);
    assert_eq!(status, 0, "{err}");
    let (status, out, err) = cobgen(&["plan", model, "--operation", "create"]);
    assert_eq!(status, 0, "{err}");
    let at = |task: &str| out.find(task).unwrap_or_else(|| panic!("{task} is missing:\n{out}"));
    assert!(at("metadata") < at("client"), "{out}");
}
