//! File trees on real daemons: brought about, healed, merged over generations, taken back, and whole after kills.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_tests::cluster::Cluster;

use crate::{PATIENCE, cluster};

/// A model with its tree below the cluster's folder.
fn write(cluster: &Cluster, content: &str) -> PathBuf {
    let root = cluster.path("host");
    let model = format!(
        "security: loopback-only\nhosts: {{n1: {{address: \"tcp://127.0.0.1:1\"}}}}\ncobs:\n  n1/files:\n    kind: file-tree\n    \
         content: {{root: {}, {content}}}\n",
        root.display()
    );
    cluster.write_model("model", &[("model.yaml", &model)])
}

fn go(cluster: &mut Cluster, content: &str) {
    let model = write(cluster, content);
    let generation = cluster.generate(&model);
    cluster.switch_all(generation);
    cluster.wait_converged(generation, PATIENCE);
}

/// Every file below a folder with its content.
fn tree(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                all.push((path.clone(), fs::read(&path).unwrap_or_default()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn a_tree_is_brought_about_healed_merged_and_taken_back() {
    let mut cluster = cluster(&["n1"]);
    let conf = cluster.path("host/a/x.conf");
    fs::create_dir_all(cluster.path("host/a")).expect("made");
    fs::write(&conf, "before\n").expect("written");
    let before = tree(&cluster.path("host"));
    let shared = |port: u32| {
        format!(
            "files: {{a/x.conf: {{content: \"one\\n\"}}, a/y.conf: {{manage: merge, content: \"a\\nb\\nport {port}\\nc\\nd\\n\"}}}}"
        )
    };
    // The model is known before the daemon starts.
    let model = write(&cluster, &shared(1));
    let first = cluster.generate(&model);
    cluster.start_all();
    cluster.switch_all(first);
    cluster.wait_converged(first, PATIENCE);
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    assert_eq!(read(&conf), "one\n");

    // What somebody else writes is seen at once, and overwritten.
    let edited = Instant::now();
    fs::write(&conf, "mine\n").expect("edited");
    cluster.until(PATIENCE, || read(&conf) == "one\n", "it is healed");
    let took = edited.elapsed();
    assert!(took < Duration::from_secs(60), "by a hint, not by the check after five minutes: {took:?}");
    let drift = cluster.history("n1").into_iter().find(|e| e.event == "drift").expect("told");
    assert!(drift.detail.contains("-mine\n+one\n"), "{}", drift.detail);

    // In a merged file the user's line survives both ways.
    let shared_file = cluster.path("host/a/y.conf");
    fs::write(&shared_file, format!("{}mine\n", read(&shared_file))).expect("edited");
    go(&mut cluster, &shared(2));
    assert_eq!(read(&shared_file), "a\nb\nport 2\nc\nd\nmine\n");
    go(&mut cluster, &shared(1));
    assert_eq!(read(&shared_file), "a\nb\nport 1\nc\nd\nmine\n");

    // It outlives the daemon, and leaves what was there before.
    fs::write(&shared_file, "a\nb\nport 1\nc\nd\n").expect("edited");
    cluster.kill("n1");
    cluster.start("n1");
    let mut draft = cluster.load(&model);
    draft.cobs.clear();
    let last = cluster.publish_draft(&draft);
    cluster.switch_all(last);
    cluster.wait_converged(last, PATIENCE);
    assert_eq!(tree(&cluster.path("host")), before);
}

#[test]
fn the_example_is_brought_about() {
    let mut cluster = cluster(&["n1"]);
    let model = cluster.copy_example("files");
    let root = cluster.path("host");
    let file = model.join("model.yaml");
    let text = fs::read_to_string(&file).expect("text").replace("/tmp/cob-example-files", root.to_str().expect("text"));
    fs::write(&file, text).expect("written");
    let first = cluster.generate(&model);
    cluster.start_all();
    cluster.switch_all(first);
    cluster.wait_converged(first, PATIENCE);
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(read("www/index.html"), "<h1>It works</h1>\n");
    assert_eq!(read("www/robots.txt"), "User-agent: *\n");
    assert!(read("etc/current").contains(":8080\n"), "{}", read("etc/current"));
    assert!(root.join("log").is_dir());
    // Strangers have no place in a whole folder.
    fs::write(root.join("www/stranger"), "x").expect("written");
    cluster.until(PATIENCE, || !root.join("www/stranger").exists(), "it is gone");
}
