//! `cobctl notify` with real daemons: each condition is told once when it begins and once when it ends, also across kills
//! of the observer and failures of the receiver.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};

use cob_tests::cluster::Cluster;
use serde_json::Value;

use crate::{CHECK, PATIENCE, cluster};

const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
kinds:
  fragile:
    states: [down, up]
    preferred: up
    pre_remove: down
    retries: 0
    check: {run: ./check.sh, interval: 100ms}
    transitions:
      - {from: down, to: up, run: "test ! -e BROKEN && echo up > $COB_STATE_DIR/state"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
cobs:
  n1/db: {kind: fragile}
  n2/app: {kind: fragile, requires: [n1/db]}
"#;

struct Observer<'c> {
    cluster: &'c Cluster,
    child: Child,
}

impl<'c> Observer<'c> {
    fn start(cluster: &'c Cluster) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_cob"))
            .arg("cobctl")
            .args(["--depot", &cluster.path("depot").display().to_string(), "notify"])
            .arg(cluster.path("notify.toml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        Self { cluster, child }
    }

    /// All received notices, `begun failed n1/db`. A message that arrived twice counts once: the kill came before the
    /// observer knew of its arrival.
    fn received(&self) -> Vec<String> {
        let text = fs::read_to_string(self.cluster.path("received")).unwrap_or_default();
        let messages = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a message"));
        let word = |notice: &Value, key: &str| notice[key].as_str().unwrap_or_default().to_owned();
        let mut known = BTreeSet::new();
        messages
            .flat_map(|message| message["notices"].as_array().cloned().unwrap_or_default())
            .filter(|notice| known.insert(word(notice, "id") + &word(notice, "state")))
            .map(|n| {
                let about = [word(&n, "cob"), word(&n, "host")].into_iter().find(|w| !w.is_empty());
                format!("{} {} {}", word(&n, "state"), word(&n, "kind"), about.unwrap_or_default())
            })
            .collect()
    }

    fn until(&self, notice: &str) {
        self.cluster.until(PATIENCE, || self.received().iter().any(|n| n == notice), notice);
    }
}

impl Drop for Observer<'_> {
    fn drop(&mut self) {
        // As a power failure: nothing is written at the end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn conditions_are_told_once_also_across_kills_and_failures() {
    let mut cluster = cluster(&["n1", "n2"]);
    let broken = cluster.path("broken");
    let model = MODEL.replace("BROKEN", &broken.display().to_string());
    let model = cluster.write_model("model", &[("model.yaml", &model), CHECK]);
    let generation = cluster.generate(&model);
    fs::write(&broken, "").expect("written");
    let deaf = cluster.path("deaf");
    let receiver = format!(
        "away_after = \"1s\"\n[[receiver]]\nname = \"log\"\nevery = \"100ms\"\n\
         command = \"test ! -e {} && {{ cat; echo; }} >> {}\"\n",
        deaf.display(),
        cluster.path("received").display()
    );
    fs::write(cluster.path("notify.toml"), receiver).expect("written");
    cluster.start_all();
    cluster.switch_all(generation);
    // n2/app waits for the failed object: the failure is the notice, and no second one.
    let observer = Observer::start(&cluster);
    observer.until("begun failed n1/db");
    drop(observer);

    // The condition ends while nobody observes, and the receiver fails when the observer is back.
    fs::remove_file(&broken).expect("removed");
    fs::write(&deaf, "").expect("written");
    assert!(cluster.http("n1", "POST", "/v1/retry", r#"{"cob": "n1/db"}"#).is_ok());
    cluster.wait_converged(generation, PATIENCE);
    let observer = Observer::start(&cluster);
    let kept = || fs::read_to_string(cluster.path("notify.state.json")).unwrap_or_default();
    cluster.until(PATIENCE, || kept().contains("resolved: n1/db"), "the unsent notice is kept");
    drop(observer);
    fs::remove_file(&deaf).expect("removed");
    let observer = Observer::start(&cluster);
    observer.until("ended failed n1/db");

    // Drift, from the history.
    fs::remove_file(cluster.path("n2/cobs/n2+app/state")).expect("removed");
    observer.until("happened drift n2/app");
    drop(observer);

    cluster.kill("n2");
    let observer = Observer::start(&cluster);
    observer.until("begun host-away n2");
    drop(observer);
    cluster.start("n2");
    let observer = Observer::start(&cluster);
    observer.until("ended host-away n2");

    let mut all = observer.received();
    all.retain(|notice| !notice.contains("drift"));
    assert_eq!(
        all,
        ["begun failed n1/db", "ended failed n1/db", "begun host-away n2", "ended host-away n2"],
        "each is told once"
    );
}
