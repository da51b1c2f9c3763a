//! The recorded outcome of a switch in the depot if a host is away when it is recorded.

use std::fs;
use std::path::PathBuf;

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;

use crate::words::{cobctl, logged, run, told};
use crate::{PATIENCE, cluster};

const HOSTS: [&str; 2] = ["n1", "n2"];

/// n1/app can't start with its second content while the file `broken` exists, and waits while `wait` exists.
fn model(version: u32, folder: &str) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
kinds:
  app:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    retries: 0
    check: {{run: 'if [ ! -e "$COB_STATE_DIR/up" ]; then echo down; elif cmp -s "$COB_STATE_DIR/up" "$COB_CONTENT"; then echo up; else echo outdated; fi'}}
    transitions:
      - {{from: down, to: up, failure: down, run: 'if [ -e {folder}/broken ] && grep -q 2 "$COB_CONTENT"; then exit 1; fi; while [ -e {folder}/wait ]; do sleep 0.05; done; cp "$COB_CONTENT" "$COB_STATE_DIR/up"'}}
      - {{from: up, to: down, run: 'rm "$COB_STATE_DIR/up"'}}
      - {{from: outdated, to: down, run: 'rm "$COB_STATE_DIR/up"'}}
cobs:
  n1/app: {{kind: app, content: {{v: {version}}}}}
  n2/lib: {{kind: noop}}
"#
    )
}

/// The switches to newer generations in the depot's log.
fn switches(cluster: &Cluster) -> Vec<String> {
    logged(cluster).lines().filter(|line| line.contains("switched 20")).map(ToOwned::to_owned).collect()
}

/// Two hosts with the first generation, and the second in the depot.
fn broken() -> (Cluster, GenerationNumber, PathBuf) {
    let mut cluster = cluster(&HOSTS);
    let folder = cluster.path("folder");
    fs::create_dir(&folder).expect("a folder");
    let publish = |cluster: &mut Cluster, version| {
        let text = model(version, &folder.display().to_string());
        let model = cluster.write_model("model", &[("model.yaml", &text)]);
        cluster.generate(&model)
    };
    let one = publish(&mut cluster, 1);
    cluster.bring_up(one, PATIENCE);
    publish(&mut cluster, 2);
    fs::write(folder.join("broken"), "").expect("written");
    (cluster, one, folder)
}

#[test]
fn a_withdrawn_switch_is_one_outcome_without_the_withdrawing_host() {
    let (mut cluster, one, folder) = broken();
    fs::write(folder.join("wait"), "").expect("written");
    let switch = cobctl(&cluster, &HOSTS, &["switch", "2", "--on-failure", "rollback", "--wait", "60s"]).spawn();
    let switch = switch.expect("it runs");
    cluster.until(PATIENCE, || !told(&cluster, "n2", "return").is_empty(), "n2 goes back");
    cluster.kill("n1");
    let said = switch.wait_with_output().expect("it ends");
    let (code, said) = (said.status.code(), String::from_utf8_lossy(&said.stdout).into_owned());
    assert!(code == Some(1) && said.contains("generation 2 was rolled back:"), "{code:?} {said}");
    assert!(
        said.contains("n2 has rolled back from generation 2 to 1") && said.contains("n1 does not answer now"),
        "{said}"
    );
    let noted = switches(&cluster);
    assert!(noted.len() == 1 && noted[0].contains(": rolled back (no report from n1) after "), "{noted:?}");

    // When it answers again, the log shows a single switch.
    fs::remove_file(folder.join("wait")).expect("removed");
    cluster.start("n1");
    cluster.wait_converged(one, PATIENCE);
    let (_, said) = run(cobctl(&cluster, &HOSTS, &["outcomes", "--record"]));
    assert!(said.contains("recorded in the depot"), "{said}");
    let noted = switches(&cluster);
    assert!(noted.len() == 1 && noted[0].contains(": rolled back after "), "{noted:?}");
    assert!(noted[0].contains(" on 2 hosts; failed: n1/app"), "{noted:?}");
}

#[test]
fn a_switch_that_a_retry_completes_is_noted_anew() {
    let (cluster, _, folder) = broken();
    let (code, said) = run(cobctl(&cluster, &HOSTS, &["switch", "2", "--wait", "60s"]));
    assert!(code == 1 && said.contains("n1/app"), "{code} {said}");
    let noted = switches(&cluster);
    assert!(noted.len() == 1 && noted[0].contains(": failed on 1 of 2 hosts; failed: n1/app"), "{noted:?}");
    fs::remove_file(folder.join("broken")).expect("removed");
    let (code, said) = run(cobctl(&cluster, &HOSTS, &["retry", "n1/app", "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    let noted = switches(&cluster);
    assert!(noted.len() == 1 && noted[0].contains(": converged after "), "{noted:?}");
}
