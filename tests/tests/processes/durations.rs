//! Plans use the durations that the hosts have recorded.

use std::process::{Command, Output};

use cob_tests::cluster::Cluster;

use crate::{PATIENCE, cluster};

const MODEL: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
hardwaretypes: {small: {}}
imagetypes: {linux: {}}
services:
  db: {actions: {install: "sleep 0.3", start: "true", stop: "true"}}
  app: {actions: {install: "true", start: "sleep 0.5", stop: "true"}, dependencies: {runtime: {requires: [db]}}}
  gate: {cobs: {open: {kind: quick}}}
templates:
  t: {defaults: {services: [db, app, gate], hardwaretype: small, imagetype: linux}, compatibility: {services: [db, app, gate]}}
clusters: {c: {template: t, nodes: [n1, n2]}}
"#;

fn cob(cluster: &Cluster, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cob"));
    command.args(args).env_clear().current_dir(cluster.path(""));
    command.output().expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn recorded_durations_give_the_time_of_a_plan() {
    let mut cluster = cluster(&["n1", "n2"]);
    let model = cluster.write_model("model", &[("model.yaml", MODEL), crate::QUICK, crate::CHECK]);
    let generation = cluster.generate(&model);
    cluster.start_all();
    let addresses = ["n1", "n2"].map(|host| format!("tcp://{}", cluster.address(host)));
    let durations = ["cobctl", "--host", &addresses[0], "--host", &addresses[1], "durations"];
    let nothing = cob(&cluster, &durations);
    assert_eq!((nothing.status.code(), text(&nothing.stdout).trim()), (Some(1), "{}"), "{nothing:?}");

    cluster.switch_all(generation);
    cluster.wait_converged(generation, PATIENCE);
    let printed = cob(&cluster, &durations);
    assert!(printed.status.success(), "{printed:?}");
    assert!(text(&printed.stderr).contains("2 transitions of change objects without service actions"), "{printed:?}");
    std::fs::write(cluster.path("durations.json"), &printed.stdout).expect("written");

    let model = model.display().to_string();
    let plan =
        cob(&cluster, &["cobgen", "plan", &model, "--operation", "create", "--durations", "durations.json", "--json"]);
    assert!(plan.status.success(), "{plan:?}");
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let times = &plan["plans"][0]["times"];
    // 0.3 s of installing db and 0.5 s of starting app are sequential.
    let ordered = times["ordered_ms"].as_u64().expect("a number");
    assert!((800..30_000).contains(&ordered), "{times}");
    assert!(times["staged_ms"].as_u64() >= Some(ordered), "{times}");
}

const TWO: &str = r#"
security: loopback-only
hosts:
  n1: {address: "tcp://127.0.0.1:1"}
  n2: {address: "tcp://127.0.0.1:2"}
cobs:
  n1/a: {kind: quick}
"#;

#[test]
fn a_plan_begins_where_the_hosts_are() {
    let mut cluster = cluster(&["n1", "n2"]);
    let files = [crate::QUICK, crate::CHECK];
    let first = cluster.write_model("first", &[&[("model.yaml", TWO)], &files[..]].concat());
    let first = cluster.generate(&first);
    let second = TWO.to_owned() + "  n2/b: {kind: quick, requires: [n1/a]}\n";
    let second = cluster.write_model("second", &[&[("model.yaml", second.as_str())], &files[..]].concat());
    let plan = |cluster: &Cluster, generation: &str| {
        let told = cob(cluster, &["cobctl", "--depot", "depot", "plan", generation, "--json"]);
        let plan = serde_json::from_slice::<serde_json::Value>(&told.stdout).expect("a plan");
        let moves = plan["transitions"].as_array().expect("transitions").iter();
        let moves = moves.map(|t| format!("{} {} -> {}", t["cob"], t["from"], t["to"]).replace('"', ""));
        let generations = (plan["from"].as_u64(), plan["to"].as_u64());
        (told.status.code(), generations, moves.collect::<Vec<_>>(), text(&told.stderr))
    };
    let (exit, generations, moves, said) = plan(&cluster, "1");
    assert_eq!((exit, generations, moves), (Some(3), (Some(0), Some(1)), vec!["n1/a down -> up".to_owned()]), "{said}");
    assert!(said.contains("n1 and n2 could not be reached: assumed to be new hosts"), "{said}");

    cluster.bring_up(first, PATIENCE);
    cluster.generate(&second);
    let up = vec!["n2/b down -> up".to_owned()];
    assert_eq!(plan(&cluster, "latest"), (Some(0), (Some(1), Some(2)), up.clone(), String::new()));

    // A user has stopped it, and a pause keeps it down for now.
    for (path, body) in [("/v1/pause", "{}"), ("/v1/check", "{\"cobs\":[]}")] {
        cluster.http("n1", "POST", path, body).unwrap_or_else(|e| panic!("{path}: {e}"));
        let _ = std::fs::remove_file(cluster.path("n1/cobs/n1+a/state"));
    }
    let is_down = |c: &Cluster| c.cob("n1/a").is_some_and(|a| a.state.is_some_and(|state| state == *"down"));
    cluster.until(PATIENCE, || is_down(&cluster), "it is found down");
    let (exit, _, moves, said) = plan(&cluster, "2");
    assert_eq!((exit, moves), (Some(0), [vec!["n1/a down -> up".to_owned()], up].concat()), "{said}");
    assert!(said.contains("note: not converged, planned from the present state: n1"), "{said}");
    assert_eq!(cluster.status("n2").and_then(|n2| n2.generation), Some(first), "nothing was touched");
}
