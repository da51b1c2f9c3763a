//! The life of a cluster, as its user sees it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use cob_tests::processes;
use cob_tests::wait::comes_true;
use serde_json::{Value, json};

use crate::yard::{PATIENCE, Yard, hosts, text};

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[test]
fn a_user_sees_each_step_of_a_clusters_life() {
    let mut yard = Yard::new(&[]);
    yard.catalogue();
    yard.tenant("web", &["ann"]);
    let ann = "web/ann";
    let preview = json!({ "name": "shop", "wanted": { "template": "shop", "nodes": 2 } });
    let (status, preview) = yard.user(ann, "POST", "/v1/preview", Some(preview));
    assert_eq!((status, &preview["create"]), (200, &json!(["shop-1", "shop-2"])), "{preview}");
    let first = yard.create(ann, "shop", "shop", 2);
    let second = yard.operate(ann, "shop", json!({ "operation": "resize", "nodes": 3 }));
    let waiting = yard.user(ann, "GET", &format!("/v1/jobs/{second}"), None).1;
    assert_eq!(waiting["state"], "queued", "{waiting}");
    assert!(text(&waiting["reason"]).contains(&format!("job {first}")), "{waiting}");
    let (first, second) = (yard.succeeds(ann, first), yard.succeeds(ann, second));
    assert!(first["ended_ms"].as_u64() <= second["started_ms"].as_u64(), "{first} {second}");
    let shop = yard.cluster(ann, "shop");
    assert_eq!((&shop["state"], &shop["generation"]), (&json!("active"), &json!(2)), "{shop}");
    assert_eq!(hosts(&shop), names(["shop-1", "shop-2", "shop-3"]));
    assert!(shop["machines"].as_array().expect("machines").iter().all(|m| m["state"] == "confirmed"), "{shop}");

    yard.succeeds(ann, yard.operate(ann, "shop", json!({ "operation": "resize", "nodes": 2 })));
    assert_eq!(hosts(&yard.cluster(ann, "shop")).len(), 2);
    assert_eq!(yard.existing("process").len(), 2);
    yard.succeeds(ann, yard.operate(ann, "shop", json!({ "operation": "services", "add": ["cache"] })));
    let shop = yard.cluster(ann, "shop");
    assert_eq!(shop["wanted"]["services"], json!(["app", "cache", "db"]), "{shop}");
    let refused = yard.operate(ann, "shop", json!({ "operation": "services", "remove": ["nothing"] }));
    let refused = yard.end_of(ann, refused);
    assert_eq!(refused["state"], "failed");
    assert!(text(&refused["reason"]).contains("app, cache, db"), "{refused}");
    assert_eq!(yard.cluster(ann, "shop")["state"], "active");
    let config = json!({ "operation": "configure", "config": { "colour": "blue" } });
    yard.succeeds(ann, yard.operate(ann, "shop", config));
    assert_eq!(yard.cluster(ann, "shop")["wanted"]["config"]["colour"], "blue");
    for operation in ["stop", "start", "restart"] {
        yard.succeeds(ann, yard.operate(ann, "shop", json!({ "operation": operation })));
        assert_eq!(yard.cluster(ann, "shop")["state"], "active");
    }

    let before = text(&yard.cluster(ann, "shop")["catalogue"]);
    let one_db = json!({ "services": { "db": { "quantities": { "min": 1, "max": 1 } } } });
    yard.shared(
        "templates/shop",
        json!({ "defaults": { "services": ["db", "app"], "config": { "size": 7 } }, "constraints": one_db }),
    );
    yard.succeeds(ann, yard.operate(ann, "shop", json!({ "operation": "sync" })));
    assert_ne!(text(&yard.cluster(ann, "shop")["catalogue"]), before);
    yard.succeeds(ann, yard.operate(ann, "shop", json!({ "operation": "rollback" })));
    assert_eq!(text(&yard.cluster(ann, "shop")["catalogue"]), before);

    let old = yard.cluster(ann, "shop")["machines"][0].clone();
    yard.succeeds(ann, yard.operate(ann, "shop", json!({ "operation": "replace", "node": old["host"] })));
    let new = yard.cluster(ann, "shop")["machines"][0].clone();
    assert_eq!(new["host"], old["host"]);
    assert_ne!(new["token"], old["token"]);
    assert_eq!(yard.existing("process").len(), 2);
    assert_eq!(yard.orphans(), Vec::<serde_json::Value>::new());

    let delete = yard.operate(ann, "shop", json!({ "operation": "delete" }));
    yard.succeeds(ann, delete);
    assert_eq!(yard.user(ann, "GET", "/v1/clusters/shop", None).0, 404);
    assert_eq!(yard.existing("process").len(), 0);
    assert!(!yard.folder().join("clusters/web/shop").exists());
    let folder = yard.folder().join("providers").display().to_string();
    assert_eq!(processes::mentioning(&folder), Vec::<u32>::new(), "a daemon lives");
    let log = yard.user(ann, "GET", &format!("/v1/jobs/{delete}/log"), None).1;
    assert!(text(&log["text"]).contains("delete machines"), "{log}");
    assert_eq!(log["complete"], true);
    yard.audit_is_whole();
}

#[test]
fn operations_on_different_clusters_run_at_the_same_time() {
    let mut yard = Yard::new(&[]);
    yard.catalogue();
    yard.tenant("web", &["ann"]);
    let slow = json!({ "actions": { "install": "sleep 1", "start": "true", "stop": "true", "remove": "true" } });
    yard.shared("services/slow", slow);
    yard.shared("templates/slow", json!({ "defaults": { "services": ["slow"] } }));
    let jobs = ["a", "b"].map(|name| yard.create("web/ann", name, "slow", 1));
    let [a, b] = jobs.map(|id| yard.succeeds("web/ann", id));
    assert!(a["started_ms"].as_u64() < b["ended_ms"].as_u64(), "{a} {b}");
    assert!(b["started_ms"].as_u64() < a["ended_ms"].as_u64(), "{a} {b}");
}

#[test]
fn a_cluster_whose_lease_has_ended_is_deleted() {
    let heard = tempfile::tempdir().expect("a folder");
    let callback = heard.path().join("callback");
    let said = heard.path().join("said");
    let script = format!("#!/bin/sh\n[ $1 != lease ] || cat $2 >> {}\n", said.display());
    fs::write(&callback, script).expect("written");
    fs::set_permissions(&callback, fs::Permissions::from_mode(0o755)).expect("set");
    let program = callback.to_str().expect("text");
    let mut yard = Yard::new(&["--longest-lease", "3600", "--callback", program]);
    yard.catalogue();
    yard.tenant("web", &["ann"]);
    let wanted = json!({ "template": "shop", "nodes": 1, "services": ["db"] });
    let too_long = json!({ "name": "shop", "wanted": wanted, "lease_s": 3601 });
    assert_eq!(yard.user("web/ann", "POST", "/v1/clusters", Some(too_long)).0, 400);
    let request = json!({ "name": "shop", "wanted": wanted, "lease_s": 4 });
    let (status, answer) = yard.user("web/ann", "POST", "/v1/clusters", Some(request));
    assert_eq!(status, 202, "{answer}");
    yard.succeeds("web/ann", 1);
    let gone = comes_true(PATIENCE, || yard.user("web/ann", "GET", "/v1/clusters/shop", None).0 == 404);
    assert!(gone, "{}", yard.log());
    assert_eq!(yard.existing("process").len(), 0);
    let (_, lines) = yard.user("web/adm", "GET", "/v1/audit", None);
    let lapsed = lines.as_array().expect("lines").iter().any(|line| line["request"] == "the lease has ended");
    assert!(lapsed, "{lines}");
    // The owner was warned before, once.
    assert_eq!(lines.to_string().matches("a warning for web/ann").count(), 1, "{lines}");
    let warning: Value = serde_json::from_str(&fs::read_to_string(&said).expect("read")).expect("one warning");
    let expected = json!({ "event": "lease", "tenant": "web", "cluster": "shop", "owner": "ann" });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(warning[key], *value, "{warning}");
    }
}

#[test]
fn a_canceled_creation_leaves_nothing() {
    let mut yard = Yard::new(&[]);
    yard.catalogue();
    yard.tenant("web", &["ann"]);
    let slow = json!({ "actions": { "install": "sleep 30", "start": "true", "stop": "true", "remove": "true" } });
    yard.shared("services/slow", slow);
    yard.shared("templates/slow", json!({ "defaults": { "services": ["slow"] } }));
    let id = yard.create("web/ann", "a", "slow", 1);
    assert!(comes_true(PATIENCE, || yard.log_of(id).contains("== switch the hosts")));
    assert_eq!(yard.user("web/ann", "POST", &format!("/v1/jobs/{id}/cancel"), None).0, 202);
    assert_eq!(yard.end_of("web/ann", id)["state"], "canceled");
    assert_eq!(yard.cluster("web/ann", "a")["state"], "terminated");
    assert_eq!(yard.existing("process").len(), 0);
    // The name is free again, and the new cluster has no trace of the former.
    yard.succeeds("web/ann", yard.create("web/ann", "a", "shop", 2));
    assert_eq!(yard.cluster("web/ann", "a")["generation"], 1);
    let began = std::time::Instant::now();
    yard.succeeds("web/ann", yard.operate("web/ann", "a", json!({ "operation": "delete" })));
    assert!(began.elapsed() < Duration::from_secs(30));
}
