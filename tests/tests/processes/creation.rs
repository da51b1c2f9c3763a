//! The first generation on real daemons: before it the hosts have the empty generation.

use std::fs;
use std::path::PathBuf;

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;
use cob_types::status::HostStatus;

use crate::{PATIENCE, cluster, words};

const NOTHING: GenerationNumber = GenerationNumber(0);
const HOSTS: [&str; 2] = ["n1", "n2"];

/// A database and an application that requires it. Each logs its actions; the application does not start while the file
/// `broken` exists.
fn model(folder: &str, version: u32) -> String {
    format!(
        r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1"}}
  n2: {{address: "tcp://127.0.0.1:2"}}
kinds:
  server:
    states: [down, up]
    preferred: up
    pre_remove: down
    retries: 0
    check: {{run: "test -e {folder}/${{COB_ID#*/}} && echo up || echo down"}}
    transitions:
      - {{from: down, to: up, failure: down, run: "if [ ${{COB_ID#*/}} = app ] && [ -e {folder}/broken ]; then exit 1; fi; echo +${{COB_ID#*/}} >> {folder}/log; touch {folder}/${{COB_ID#*/}}"}}
      - {{from: up, to: down, run: "echo -${{COB_ID#*/}} >> {folder}/log; rm {folder}/${{COB_ID#*/}}"}}
cobs:
  n1/files: {{kind: file-tree, content: {{root: {folder}/etc, files: {{app.conf: {{content: "version {version}\n"}}}}}}}}
  n1/db: {{kind: server, requires: [n1/files]}}
  n2/app: {{kind: server, content: {{version: {version}}}, requires: [n1/db]}}
"#
    )
}

struct Created {
    cluster: Cluster,
    folder: PathBuf,
}

impl Created {
    fn new() -> Self {
        let cluster = cluster(&HOSTS);
        let folder = cluster.path("created");
        fs::create_dir(&folder).expect("a folder");
        Self { cluster, folder }
    }

    fn publish(&mut self, version: u32) -> GenerationNumber {
        let text = model(&self.folder.display().to_string(), version);
        let model = self.cluster.write_model("model", &[("model.yaml", &text)]);
        self.cluster.generate(&model)
    }

    fn ctl(&self, said: &[&str]) -> (i32, String) {
        words::run(words::cobctl(&self.cluster, &[], said))
    }

    fn log(&self) -> Vec<String> {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default().lines().map(ToOwned::to_owned).collect()
    }

    /// Every host has the empty generation, and no change object of the first is left.
    fn is_empty(&self) -> bool {
        let empty = |s: HostStatus| s.generation == Some(NOTHING) && s.converged && s.cobs.is_empty();
        let all_empty = HOSTS.iter().all(|host| self.cluster.status(host).is_some_and(empty));
        all_empty && ["etc/app.conf", "db", "app"].iter().all(|file| !self.folder.join(file).exists())
    }

    fn wait_empty(&self, what: &str) {
        self.cluster.until(PATIENCE, || self.is_empty(), what);
    }

    fn restart(&mut self) {
        for host in HOSTS {
            self.cluster.kill(host);
            self.cluster.start(host);
            self.cluster.wait_answers(host);
        }
    }
}

#[test]
fn a_creation_that_fails_removes_all_that_it_has_made() {
    let mut created = Created::new();
    created.publish(1);
    fs::write(created.folder.join("broken"), "").expect("written");
    HOSTS.iter().for_each(|host| created.cluster.start(host));
    HOSTS.iter().for_each(|host| created.cluster.wait_answers(host));
    let switch = |created: &Created, to: &str| {
        created.ctl(&["switch", to, "--on-failure", "rollback", "--wait", &format!("{}s", PATIENCE.as_secs())])
    };
    let (code, said) = switch(&created, "1");
    assert!(code == 1 && said.contains("n2/app"), "{said}");
    created.wait_empty("the creation was taken back");
    assert_eq!(created.log(), ["+db", "-db"]);
    let (code, said) = created.ctl(&["status"]);
    assert_eq!(code, 0, "{said}");
    // A restart preserves this.
    created.restart();
    created.wait_empty("the daemons have returned to it");
    // The next generation fails too, and leads back to the empty generation: the first was rolled back.
    created.publish(2);
    let (code, said) = switch(&created, "2");
    assert_eq!(code, 1, "{said}");
    created.wait_empty("the second one was taken back");
    fs::remove_file(created.folder.join("broken")).expect("removed");
    let three = created.publish(3);
    let (code, said) = switch(&created, "3");
    assert_eq!(code, 0, "{said}");
    created.cluster.wait_converged(three, PATIENCE);
}

#[test]
fn the_first_generation_is_removed_by_an_order_that_says_so() {
    let mut created = Created::new();
    let one = created.publish(1);
    created.cluster.bring_up(one, PATIENCE);
    let settled = || HOSTS.iter().all(|host| created.cluster.status(host).is_some_and(|s| s.settled));
    created.cluster.until(PATIENCE, settled, "it has settled");
    let (code, said) = created.ctl(&["rollback"]);
    assert!(code == 1 && said.contains("`cobctl rollback 0` removes all its change objects"), "{said}");
    let (code, said) = created.ctl(&["rollback", "0", "--wait", &format!("{}s", PATIENCE.as_secs())]);
    assert!(code == 0 && said.contains("generation 0"), "{said}");
    assert!(created.is_empty());
    assert_eq!(created.log(), ["+db", "+app", "-app", "-db"]);
    created.restart();
    created.wait_empty("the daemons have returned to it");
    let two = created.publish(2);
    let (code, said) = created.ctl(&["switch", "latest", "--wait", &format!("{}s", PATIENCE.as_secs())]);
    assert_eq!(code, 0, "{said}");
    created.cluster.wait_converged(two, PATIENCE);
}
