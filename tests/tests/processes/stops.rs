//! Services that an operator stops, starts and restarts, with real daemons: in the order of their dependencies, over
//! kills, until they are started or a new generation comes.

use std::fs;

use cob_tests::cluster::Cluster;
use cob_types::CobId;

use crate::words::{cobctl, run};
use crate::{PATIENCE, cluster};

const HOSTS: [&str; 2] = ["n1", "n2"];

struct Shop {
    cluster: Cluster,
    log: std::path::PathBuf,
}

impl Shop {
    /// A server on n1 and an application on n2 that requires it; each logs its starts and stops.
    fn new() -> Self {
        let mut cluster = cluster(&HOSTS);
        let log = cluster.path("log");
        let first = cluster.generate(&Self::model(&cluster, 1));
        cluster.bring_up(first, PATIENCE);
        let shop = Self { cluster, log };
        assert_eq!(shop.said(), ["start db", "start app"]);
        shop
    }

    fn model(cluster: &Cluster, version: u32) -> std::path::PathBuf {
        let log = cluster.path("log").display().to_string();
        let model = format!(
            r#"
security: loopback-only
hosts:
  n1: {{address: "tcp://127.0.0.1:1", labels: {{rack: 1}}}}
  n2: {{address: "tcp://127.0.0.1:2"}}
services:
  db:
    actions: {{start: "echo start db >> {log}", stop: "echo stop db >> {log}"}}
  app:
    dependencies: {{runtime: {{requires: [db]}}}}
    actions: {{start: "echo start app >> {log}", stop: "echo stop app >> {log}", configure: "true # {version}"}}
clusters: {{c: {{services: {{db: [n1], app: [n2]}}}}}}
"#
        );
        cluster.write_model(&format!("model{version}"), &[("model.yaml", &model)])
    }

    /// The log since the last call.
    fn said(&self) -> Vec<String> {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        fs::write(&self.log, "").expect("emptied");
        said.lines().map(ToOwned::to_owned).collect()
    }

    fn cobctl(&self, words: &[&str]) -> (i32, String) {
        run(cobctl(&self.cluster, &[], words))
    }

    fn stopped(&self, cob: &str) -> Option<String> {
        let id = CobId::new(cob).expect("an id");
        let host = self.cluster.status(id.host_str()).expect("it answers");
        host.cobs.into_iter().find(|c| c.id == id).and_then(|c| c.stopped).map(|stopped| stopped.in_words())
    }
}

#[test]
fn dependents_stop_first_and_start_last_over_kills() {
    let mut shop = Shop::new();
    let (code, said) = shop.cobctl(&["stop", "db", "--plan"]);
    assert!(code == 0 && said.contains("2 transitions in"), "{said}");
    assert!(shop.said().is_empty(), "a plan does nothing");
    let (code, said) = shop.cobctl(&["stop", "db", "--wait", "60s"]);
    assert!(code == 0 && said.contains("2 change objects stopped"), "{said}");
    assert_eq!(shop.said(), ["stop app", "stop db"]);
    let app = shop.stopped("n2/app/instance").expect("it is stopped");
    assert!(app.starts_with("stopped with n1/db/instance by order of "), "{app}");
    let (code, said) = shop.cobctl(&["status"]);
    assert!(code == 0 && said.contains("stopped by order of"), "{said}");
    let (code, said) = shop.cobctl(&["switch", "1", "--wait", "2s"]);
    assert!(code == 1 && said.contains("n1/db/instance is stopped by order of"), "the generation wants it up: {said}");
    // Neither a killed daemon nor the same order again changes this.
    for host in HOSTS {
        shop.cluster.kill(host);
        shop.cluster.start(host);
    }
    for host in HOSTS {
        shop.cluster.wait_answers(host);
    }
    let (code, said) = shop.cobctl(&["stop", "db", "--wait", "60s"]);
    assert!(code == 0 && said.contains("n1: stopped already"), "{said}");
    assert!(shop.said().is_empty());
    let (code, said) = shop.cobctl(&["start", "app"]);
    assert!(code == 1 && said.contains("need n1/db/instance, and n1/db/instance is stopped by order of"), "{said}");
    let (code, said) = shop.cobctl(&["start", "db", "--wait", "60s"]);
    assert!(code == 0 && said.contains("2 change objects started"), "{said}");
    assert_eq!(shop.said(), ["start db", "start app"]);
    let orders = |event: &str| shop.cluster.history("n1").iter().filter(|entry| entry.event == event).count();
    assert_eq!((orders("ordered-stop"), orders("ordered-start")), (1, 1));
}

#[test]
fn a_restart_also_restarts_the_dependents() {
    let shop = Shop::new();
    let (code, said) = shop.cobctl(&["restart", "db", "--plan"]);
    assert!(code == 0 && said.contains("4 transitions in"), "{said}");
    let (code, said) = shop.cobctl(&["restart", "db", "--wait", "60s"]);
    assert!(code == 0 && said.contains("2 change objects restarted"), "{said}");
    shop.cluster.wait_converged(cob_types::GenerationNumber(1), PATIENCE);
    assert_eq!(shop.said(), ["stop app", "stop db", "start db", "start app"]);
    assert_eq!(shop.stopped("n1/db/instance"), None);
}

#[test]
fn a_new_generation_ends_the_order() {
    let mut shop = Shop::new();
    let (code, said) = shop.cobctl(&["stop", "n2", "--wait", "60s"]);
    assert!(code == 0, "{said}");
    assert_eq!(shop.said(), ["stop app"]);
    let second = shop.cluster.generate(&Shop::model(&shop.cluster, 2));
    shop.cluster.switch_all(second);
    shop.cluster.wait_converged(second, PATIENCE);
    assert_eq!(shop.stopped("n2/app/instance"), None);
    assert_eq!(shop.said().last().map(String::as_str), Some("start app"));
}

/// Reboots a host: its daemon dies, and restarts in another boot.
fn reboot(cluster: &mut Cluster, host: &str) {
    cluster.kill(host);
    let path = cluster.path(&format!("{host}/boot-id"));
    let noted = fs::read_to_string(&path).expect("noted");
    let boots = noted.lines().nth(1).expect("the count");
    fs::write(path, format!("another boot\n{boots}\n")).expect("written");
    cluster.start(host);
}

#[test]
fn a_drained_host_runs_no_services_until_its_reboot() {
    let mut cluster = cluster(&HOSTS);
    let asked = cluster.path("reboot");
    cluster.configure("n1", &format!("reboot = \"touch {}\"", asked.display()));
    let log = cluster.path("log");
    let first = cluster.generate(&Shop::model(&cluster, 1));
    cluster.bring_up(first, PATIENCE);
    let mut shop = Shop { cluster, log };
    assert_eq!(shop.said(), ["start db", "start app"]);
    let refused = shop.cluster.http("n1", "POST", "/v1/reboot", "{}").expect_err("something runs");
    assert!(refused.contains("these still run: n1/db/instance"), "{refused}");
    let mut drain = cobctl(&shop.cluster, &[], &["drain", "n1", "--reboot", "--wait", "60s"]);
    drain.stdout(std::process::Stdio::piped());
    let drain = drain.spawn().expect("cobctl");
    shop.cluster.until(PATIENCE, || asked.exists(), "the host is told to reboot");
    assert_eq!(shop.said(), ["stop app", "stop db"]);
    reboot(&mut shop.cluster, "n1");
    let ended = drain.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success() && said.contains("n1: all services have returned"), "{said}");
    shop.cluster.wait_converged(first, PATIENCE);
    assert_eq!(shop.said(), ["start db", "start app"]);
    let orders: Vec<String> = shop.cluster.history("n1").into_iter().map(|entry| entry.event).collect();
    let count = |event: &str| orders.iter().filter(|e| *e == event).count();
    assert_eq!((count("ordered-stop"), count("reboot"), count("ordered-start")), (1, 1, 1));
}

#[test]
fn an_order_that_others_end_is_not_called_done() {
    let shop = Shop::new();
    // In a pause, so that the order can be revoked before it is carried out.
    assert_eq!(shop.cobctl(&["pause"]).0, 0);
    let waits = cobctl(&shop.cluster, &[], &["stop", "db", "--wait", "60s"]).spawn().expect("cobctl");
    let taken = || shop.stopped("n1/db/instance").is_some() && shop.stopped("n2/app/instance").is_some();
    shop.cluster.until(PATIENCE, taken, "the order is taken");
    assert_eq!(shop.cobctl(&["start", "db"]).0, 0);
    assert_eq!(shop.cobctl(&["resume"]).0, 0);
    let ended = waits.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.code() == Some(1) && said.contains("is not stopped any more"), "{said}");
    assert!(shop.said().is_empty());
}

#[test]
fn a_stop_order_survives_a_restart_order_and_a_boot() {
    let mut shop = Shop::new();
    assert_eq!(shop.cobctl(&["drain", "n1", "--wait", "60s"]).0, 0);
    let (code, said) = shop.cobctl(&["restart", "app"]);
    assert!(code == 1 && said.contains("n1/db/instance stopped until the next boot of its host"), "{said}");
    let body = "{\"cobs\":[{\"cob\":\"n1/db/instance\"}],\"restart\":true}";
    let refused = shop.cluster.http("n1", "POST", "/v1/stop", body).expect_err("it is stopped");
    assert!(refused.contains("n1/db/instance is stopped"), "{refused}");
    assert_eq!(shop.cobctl(&["stop", "db", "--wait", "60s"]).0, 0);
    reboot(&mut shop.cluster, "n1");
    shop.cluster.wait_answers("n1");
    let said = shop.stopped("n1/db/instance").expect("its own order holds");
    assert!(said.starts_with("stopped by order of"), "{said}");
    // A host that does not answer is named: its stopped services stay stopped.
    shop.cluster.kill("n2");
    let (code, said) = shop.cobctl(&["start", "db", "--timeout", "2s"]);
    assert!(code == 3 && said.contains("error: n2: "), "{said}");
}

#[test]
fn clusters_and_labels_select_objects() {
    let shop = Shop::new();
    let (code, said) = shop.cobctl(&["stop", "c", "--wait", "60s"]);
    assert!(code == 0 && said.contains("2 change objects stopped"), "{said}");
    assert_eq!(shop.said(), ["stop app", "stop db"]);
    let (code, said) = shop.cobctl(&["start", "cluster:c", "--label", "rack=2"]);
    assert!(code == 2 && said.contains("no host has the label rack=2") && said.contains("rack=1"), "{said}");
    let (code, said) = shop.cobctl(&["start", "cluster:c", "--label", "rack", "--wait", "60s"]);
    assert!(code == 0 && said.contains("1 change object started"), "{said}");
    assert_eq!(shop.said(), ["start db"]);
    let (code, said) = shop.cobctl(&["start", "c", "--wait", "60s"]);
    assert!(code == 0 && said.contains("1 change object started"), "{said}");
    assert_eq!(shop.said(), ["start app"]);
}

/// Two services on two hosts each; one service has the name of a host.
fn pairs(cluster: &Cluster) -> std::path::PathBuf {
    let log = cluster.path("log").display().to_string();
    let host = |n: usize| format!("  n{n}: {{address: \"tcp://127.0.0.1:{n}\", labels: {{pool: a}}}}\n");
    let hosts: String = (1..=4).map(host).collect();
    let model = format!(
        "security: loopback-only\nhosts:\n{hosts}services:\n  \
         web: {{actions: {{start: \"echo start web >> {log}\", stop: \"echo stop web >> {log}\"}}}}\n  \
         n4: {{actions: {{start: \"echo start db >> {log}\", stop: \"echo stop db >> {log}\"}}}}\n\
         clusters: {{c: {{services: {{web: [n1, n2], n4: [n3, n4]}}}}}}\n"
    );
    cluster.write_model("pairs", &[("model.yaml", &model)])
}

#[test]
fn waves_leave_a_host_of_each_service_and_follow_each_other() {
    let mut cluster = cluster(&["n1", "n2", "n3", "n4"]);
    let asked = |cluster: &Cluster, host: &str| cluster.path(&format!("reboot-{host}"));
    for host in ["n1", "n2", "n3", "n4"] {
        let command = format!("reboot = \"touch {}\"", asked(&cluster, host).display());
        cluster.configure(host, &command);
    }
    let first = cluster.generate(&pairs(&cluster));
    cluster.bring_up(first, PATIENCE);
    let (code, said) = run(cobctl(&cluster, &[], &["stop", "n4"]));
    assert!(code == 2 && said.contains("n4 has several meanings: write service:n4 or host:n4"), "{said}");
    let plan = ["drain", "--label", "pool=a", "--reboot", "--waves", "--plan"];
    let (code, said) = run(cobctl(&cluster, &[], &plan));
    assert_eq!(code, 0, "{said}");
    for line in ["wave 1 of 2: n1 and n3", "wave 2 of 2: n2 and n4", "4 hosts in 2 waves, the fewest possible"] {
        assert!(said.contains(line), "{said}");
    }
    assert!(said.contains("service web of c: 1 at a time"), "{said}");
    let waves = ["drain", "--label", "pool=a", "--reboot", "--waves", "--wait", "60s"];
    let mut drain = cobctl(&cluster, &[], &waves);
    let drain = drain.stdout(std::process::Stdio::piped()).spawn().expect("cobctl");
    for (wave, later) in [(["n1", "n3"], Some("n2")), (["n2", "n4"], None)] {
        cluster.until(PATIENCE, || wave.iter().all(|host| asked(&cluster, host).exists()), "a wave is told to reboot");
        assert!(later.is_none_or(|host| !asked(&cluster, host).exists()), "the next wave has to wait");
        wave.iter().for_each(|host| reboot(&mut cluster, host));
    }
    let ended = drain.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success() && said.matches("all services have returned").count() == 4, "{said}");
    cluster.wait_converged(first, PATIENCE);
}

#[test]
fn a_reboot_that_fails_says_why_and_ends_the_waves() {
    let mut cluster = cluster(&["n1", "n2", "n3", "n4"]);
    for host in ["n1", "n2", "n3", "n4"] {
        cluster.configure(host, "reboot = \"echo no power >&2; false\"");
    }
    let first = cluster.generate(&pairs(&cluster));
    cluster.bring_up(first, PATIENCE);
    let (code, said) = run(cobctl(&cluster, &[], &["drain", "n1", "n2", "--reboot", "--wait", "60s"]));
    assert!(code == 1 && said.contains("the reboot failed") && said.contains("no power"), "{said}");
    assert!(said.contains("not drained, because of this wave: n2"), "{said}");
    let status = cluster.status("n2").expect("it answers");
    assert!(status.cobs.iter().all(|cob| cob.stopped.is_none()), "{status:?}");
    let (code, said) = run(cobctl(&cluster, &[], &["start", "host:n1", "--wait", "60s"]));
    assert!(code == 0 && said.contains("1 change object started"), "{said}");
}

#[test]
fn a_stop_of_unknown_objects_is_refused_with_a_proposal() {
    let shop = Shop::new();
    let (code, said) = shop.cobctl(&["stop", "dbb", "n9"]);
    assert!(code == 2 && said.contains("did you mean `db`?") && said.contains("n9"), "{said}");
    let (code, said) = shop.cobctl(&["stop", "db", "--hosts", "n2"]);
    assert!(code == 2 && said.contains("db has no running object on n2"), "{said}");
    let body = "{\"cobs\":[{\"cob\":\"n1/nothing\"},{\"cob\":\"n1/db/instance\"}]}";
    let refused = shop.cluster.http("n1", "POST", "/v1/stop", body).expect_err("it is not there");
    assert!(refused.contains("n1/nothing is not here"), "{refused}");
    assert_eq!(shop.stopped("n1/db/instance"), None, "all of them, or none");
    let refused = shop.cluster.http("n1", "POST", "/v1/stop", "{\"cobs\":[]}").expect_err("it is empty");
    assert!(refused.contains("names no change object"), "{refused}");
}
