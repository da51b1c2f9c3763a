//! Running machines that are taken over: observed by a generation, managed by the next.

use std::fs;
use std::path::PathBuf;

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;
use cob_types::status::Wait;

use crate::{CHECK, PATIENCE, cluster};

fn model(cluster: &Cluster, mode: &str) -> PathBuf {
    let model = format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"{mode}}}
  n2: {{address: "tcp://127.0.0.1:2"}}
kinds:
  looked:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {{run: ./check.sh, interval: 100ms}}
    transitions:
      - {{from: down, to: up, run: "echo up > $COB_STATE_DIR/state"}}
      - {{from: up, to: down, run: "rm $COB_STATE_DIR/state"}}
cobs:
  n1/db: {{kind: looked}}
  n1/cache: {{kind: looked}}
  n2/app: {{kind: looked, requires: [n1/db]}}
"#
    );
    cluster.write_model("model", &[("model.yaml", &model), CHECK])
}

/// The file with the state of a change object of n1.
fn file(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.path(&format!("n1/cobs/n1+{name}/state"))
}

fn state(cluster: &Cluster, cob: &str) -> String {
    cluster.cob(cob).and_then(|cob| cob.state).map(|state| state.to_string()).unwrap_or_default()
}

/// Every transition that was started on n1.
fn moves(cluster: &Cluster) -> Vec<String> {
    let begun = cluster.history("n1").into_iter().filter(|e| e.event == "start");
    begun.filter_map(|e| Some(format!("{} in {}", e.cob?, e.generation))).collect()
}

fn go(cluster: &mut Cluster, mode: &str) -> GenerationNumber {
    let model = model(cluster, mode);
    let generation = cluster.generate(&model);
    cluster.switch_all(generation);
    generation
}

#[test]
fn a_machine_is_looked_at_and_then_taken_over() {
    let mut cluster = cluster(&["n1", "n2"]);
    let path = model(&cluster, ", mode: observe");
    let first = cluster.generate(&path);
    cluster.start_all();
    cluster.switch_all(first);
    let waits = |cluster: &Cluster| {
        let app = cluster.cob("n2/app").map(|app| app.waits_for).unwrap_or_default();
        app.iter().any(|wait| matches!(wait, Wait::Lock { cob, .. } if cob.as_str() == "n1/db"))
    };
    cluster.until(PATIENCE, || waits(&cluster), "the app waits for what nobody starts");
    // It may be requested before its first check.
    let is_done = |cluster: &Cluster| cluster.status("n1").is_some_and(|n1| n1.converged);
    cluster.until(PATIENCE, || is_done(&cluster), "nothing is left to do on n1");
    let db = cluster.cob("n1/db").expect("there");
    let would = |wait: &Wait| matches!(wait, Wait::Observed { to } if to.as_str() == "up");
    assert!(db.observed && db.waits_for.iter().any(would), "{db:?}");

    // The machine's administrator starts it; a check finds that, and the app may start.
    fs::create_dir_all(file(&cluster, "db").parent().expect("a folder")).expect("made");
    fs::write(file(&cluster, "db"), "up\n").expect("written");
    cluster.wait_converged(first, PATIENCE);
    assert_eq!((state(&cluster, "n2/app"), state(&cluster, "n1/cache")), ("up".to_owned(), "down".to_owned()));
    cluster.kill("n1");
    cluster.start("n1");
    cluster.until(PATIENCE, || state(&cluster, "n1/cache") == "down", "it is known after a return");
    assert_eq!(moves(&cluster), [""; 0]);

    // After the takeover, existing change objects stay, and missing change objects are started.
    let second = go(&mut cluster, "");
    cluster.wait_converged(second, PATIENCE);
    assert_eq!(moves(&cluster), [format!("n1/cache in {second}")]);

    // Back in observe mode it is not changed, even when it departs.
    let third = go(&mut cluster, ", mode: observe");
    cluster.wait_converged(third, PATIENCE);
    fs::remove_file(file(&cluster, "cache")).expect("removed");
    cluster.until(PATIENCE, || state(&cluster, "n1/cache") == "down", "it is seen");
    let mut draft = cluster.load(&path);
    draft.cobs.retain(|id, _| id.host_str() != "n1");
    draft.cobs.values_mut().for_each(|app| app.value.arrows.clear());
    let last = cluster.publish_draft(&draft);
    cluster.switch_all(last);
    cluster.wait_converged(last, PATIENCE);
    assert_eq!(moves(&cluster).len(), 1);
    assert_eq!(fs::read_to_string(file(&cluster, "db")).ok().as_deref(), Some("up\n"));
}

/// A file of the host, and a tree with the same content.
fn tree(cluster: &Cluster, mode: &str) -> PathBuf {
    let root = cluster.path("host");
    let model = format!(
        "security: loopback-only\nhosts: {{n1: {{address: \"tcp://127.0.0.1:1\"{mode}}}}}\ncobs:\n  n1/files: {{kind: file-tree, \
         content: {{root: {}, files: {{a.conf: {{content: \"one\\n\"}}}}}}}}\n",
        root.display()
    );
    cluster.write_model("model", &[("model.yaml", &model)])
}

#[test]
fn observed_files_with_the_wanted_content_count_as_present() {
    let mut cluster = cluster(&["n1"]);
    let conf = cluster.path("host/a.conf");
    fs::create_dir_all(conf.parent().expect("a folder")).expect("made");
    fs::write(&conf, "one\n").expect("written");
    let path = tree(&cluster, ", mode: observe");
    let first = cluster.generate(&path);
    cluster.start_all();
    cluster.switch_all(first);
    cluster.until(PATIENCE, || state(&cluster, "n1/files") == "present", "it is as wanted");
    // A user changes it: that is noticed, and not reverted.
    fs::write(&conf, "mine\n").expect("written");
    cluster.until(PATIENCE, || state(&cluster, "n1/files") == "absent", "it is noticed");
    assert_eq!((moves(&cluster), fs::read_to_string(&conf).ok().as_deref()), (Vec::new(), Some("mine\n")));
    // Corrected by hand and then taken over, the file is managed without being written.
    fs::write(&conf, "one\n").expect("written");
    cluster.until(PATIENCE, || state(&cluster, "n1/files") == "present", "it is noticed");
    let path = tree(&cluster, "");
    let second = cluster.generate(&path);
    cluster.switch_all(second);
    cluster.until(PATIENCE, || moves(&cluster).len() == 1, "it is taken over");
    cluster.wait_converged(second, PATIENCE);
    fs::write(&conf, "mine\n").expect("written");
    cluster.until(PATIENCE, || fs::read_to_string(&conf).is_ok_and(|text| text == "one\n"), "it is healed");
}
