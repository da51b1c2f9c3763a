//! Users, files and processes that misbehave: each fault has a clear answer, and loses nothing.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::process::Stdio;

use cob_tests::processes::{self, Signal};
use cob_tests::wait::comes_true;
use serde_json::{Value, json};

use crate::yard::{PATIENCE, Yard, job, text};

const NONE: Vec<Value> = Vec::new();

/// A hub with a catalogue and the tenant `web` with the users `ann` and `bob`.
pub(crate) fn web(more: &[&str]) -> Yard {
    let mut yard = Yard::new(more);
    yard.catalogue();
    yard.tenant("web", &["ann", "bob"]);
    yard
}

/// A template whose service takes so long to install.
pub(crate) fn slow(yard: &Yard, seconds: &str) {
    let install = format!("sleep {seconds}");
    let actions = json!({ "install": install, "start": "true", "stop": "true", "remove": "true" });
    yard.shared("services/slow", json!({ "actions": actions }));
    yard.shared("templates/slow", json!({ "defaults": { "services": ["slow"] } }));
}

#[test]
fn a_user_who_owns_clusters_stays() {
    let yard = web(&[]);
    yard.succeeds("web/ann", yard.create("web/ann", "shop", "shop", 2));
    let remove = json!({ "remove-user": { "tenant": "web", "user": "ann" } });
    let (status, answer) = yard.root("POST", "/v1/directory", Some(remove.clone()));
    assert_eq!(status, 409, "{answer}");
    assert!(text(&answer["error"]).contains("shop"), "{answer}");
    yard.succeeds("web/ann", yard.operate("web/ann", "shop", json!({ "operation": "delete" })));
    yard.change(remove);
    assert_eq!(yard.user("web/ann", "GET", "/v1/whoami", None).0, 401);
    // A later user of the same name begins without the tokens of the former.
    yard.change(json!({ "add-user": { "tenant": "web", "user": "ann" } }));
    let (status, refusal) = yard.user("web/ann", "GET", "/v1/whoami", None);
    assert_eq!(status, 401);
    assert!(!text(&refusal["hint"]).contains("cobhub token"), "{refusal}");
}

#[test]
fn grants_end_with_their_cluster() {
    let yard = web(&[]);
    let delete = json!({ "operation": "delete" });
    yard.succeeds("web/ann", yard.create("web/ann", "shop", "shop", 2));
    let on = json!({ "kind": "cluster", "names": { "listed": ["shop"] } });
    let give = json!({ "give": { "tenant": "web", "to": { "user": "bob" }, "actions": ["read"], "on": on } });
    assert_eq!(yard.user("web/ann", "POST", "/v1/directory", Some(give)).0, 204);
    assert_eq!(yard.user("web/bob", "GET", "/v1/clusters/shop", None).0, 200);
    yard.succeeds("web/ann", yard.operate("web/ann", "shop", delete));
    yard.succeeds("web/ann", yard.create("web/ann", "shop", "shop", 2));
    assert_eq!(yard.user("web/bob", "GET", "/v1/clusters/shop", None).0, 404);
}

#[test]
fn a_request_larger_than_the_store_keeps_is_refused() {
    let mut yard = web(&[]);
    yard.succeeds("web/ann", yard.create("web/ann", "shop", "shop", 2));
    let large = json!({ "operation": "configure", "config": { "key": "x".repeat(3 << 20) } });
    let (status, answer) = yard.user("web/ann", "POST", "/v1/clusters/shop/operations", Some(large));
    assert_eq!(status, 400, "{answer}");
    let names: Vec<String> = (0..60_000).map(|number| format!("cluster-{number}")).collect();
    let scope = json!([{ "actions": ["read"], "kind": "cluster", "names": { "listed": names } }]);
    let (status, answer) = yard.user("web/ann", "POST", "/v1/tokens", Some(json!({ "scope": scope })));
    assert_eq!(status, 400, "{answer}");
    assert_eq!(yard.user("web/ann", "POST", "/v1/tokens", Some(json!("x".repeat(9 << 20)))).0, 413);
    let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let (status, _) = yard.user("web/ann", "POST", "/v1/clusters/shop/operations", Some(json!(deep)));
    assert!((400..500).contains(&status), "{status}");
    assert_eq!(yard.status(), None, "{}", yard.log());
    assert_eq!(yard.user("web/ann", "GET", "/v1/clusters/shop", None).0, 200);
}

#[test]
fn changes_of_many_keys_are_written() {
    let mut yard = web(&[]);
    for user in ["web/ann", "web/bob"] {
        for _ in 0..90 {
            assert_eq!(yard.user(user, "POST", "/v1/tokens", Some(json!({}))).0, 200);
        }
    }
    for _ in 0..20 {
        yard.user("web/ann", "POST", "/v1/tokens", Some(json!({})));
    }
    let (status, answer) = yard.user("web/ann", "POST", "/v1/tokens", Some(json!({})));
    assert_eq!(status, 409, "{answer}");
    yard.change(json!({ "remove-tenant": { "tenant": "web" } }));
    assert_eq!(yard.status(), None, "{}", yard.log());
    yard.restart();
    assert_eq!(yard.user("web/ann", "GET", "/v1/whoami", None).0, 401);
}

#[test]
fn a_second_hub_in_the_folder_changes_nothing() {
    let yard = web(&[]);
    let audit = yard.folder().join("audit");
    // As if the first hub were within a write.
    OpenOptions::new().append(true).open(&audit).and_then(|mut file| file.write_all(b"{\"number\"")).expect("written");
    let before = fs::read(&audit).expect("read");
    let second = yard.command().stderr(Stdio::piped()).output().expect("a hub");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("in use"), "{said}");
    assert_eq!(fs::read(&audit).expect("read"), before);
    assert_eq!(yard.root("GET", "/v1/whoami", None).0, 200);
}

#[test]
fn programs_of_a_dead_job_are_ended() {
    let yard = web(&[]);
    // All calls hang: if the list of machines answered, a later process would adopt a machine, and call for it no more.
    yard.faults(json!({ "hang": 1000 }));
    let id = yard.create("web/ann", "a", "odd", 2);
    let folder = yard.folder().join(format!("jobs/{id}")).display().to_string();
    let leader = || fs::read_to_string(format!("{folder}/alive")).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let calls = || processes::mentioning(&folder).len();
    let mut last = None;
    let ended = comes_true(PATIENCE, || {
        let now = leader();
        if now != last && calls() > 2 {
            now.into_iter().for_each(|pid| processes::signal(pid, Signal::KILL));
            last = now;
        }
        let job = yard.user("web/ann", "GET", &format!("/v1/jobs/{id}"), None).1;
        job["state"] == "failed"
    });
    assert!(ended, "{}", yard.log_of(id));
    assert_eq!(processes::mentioning(&folder), Vec::<u32>::new(), "{}", yard.log_of(id));
    yard.faults(json!({}));
    assert_eq!(yard.cluster("web/ann", "a")["state"], "incomplete");
    assert_eq!(yard.orphans(), NONE);
    yard.succeeds("web/ann", yard.operate("web/ann", "a", json!({ "operation": "delete" })));
    assert_eq!(yard.existing("odd").len(), 0);
}

#[test]
fn parallel_jobs_follow_the_quota_of_the_tenant_and_of_the_user() {
    let mut yard = web(&[]);
    slow(&yard, "1");
    let overlap = |yard: &Yard| {
        let jobs = ["a", "b"].map(|name| yard.create("web/ann", name, "slow", 1));
        let [a, b] = jobs.map(|id| yard.succeeds("web/ann", id));
        for name in ["a", "b"] {
            yard.succeeds("web/ann", yard.operate("web/ann", name, json!({ "operation": "delete" })));
        }
        a["started_ms"].as_u64() < b["ended_ms"].as_u64() && b["started_ms"].as_u64() < a["ended_ms"].as_u64()
    };
    assert!(overlap(&yard));
    let open = json!({});
    let one = json!({ "parallel_jobs": 1 });
    yard.change(json!({ "set-quota": { "tenant": "web", "quota": one, "per_user": open } }));
    assert!(!overlap(&yard));
    yard.restart();
    assert!(!overlap(&yard));
    yard.change(json!({ "set-quota": { "tenant": "web", "quota": open, "per_user": one } }));
    assert!(!overlap(&yard));
}

#[test]
fn quotas_count_what_waiting_jobs_will_take() {
    let yard = web(&[]);
    slow(&yard, "1");
    yard.change(json!({ "set-quota": { "tenant": "web", "quota": { "machines": 5 }, "per_user": {} } }));
    for name in ["a", "b"] {
        yard.create("web/ann", name, "slow", 1);
    }
    let resize = json!({ "operation": "resize", "nodes": 3 });
    let order =
        |name: &str| yard.user("web/ann", "POST", &format!("/v1/clusters/{name}/operations"), Some(resize.clone()));
    let first = job(order("a"));
    assert_eq!(order("b").0, 409);
    yard.succeeds("web/ann", first);
    // The way back is a way to more machines, too.
    yard.succeeds("web/ann", yard.operate("web/ann", "a", json!({ "operation": "resize", "nodes": 1 })));
    yard.succeeds("web/ann", yard.operate("web/ann", "b", resize.clone()));
    let back = yard.user("web/ann", "POST", "/v1/clusters/a/operations", Some(json!({ "operation": "rollback" })));
    assert_eq!(back.0, 409, "{}", back.1);
}

#[test]
fn a_failed_stop_leaves_the_cluster_active() {
    let yard = web(&[]);
    yard.succeeds("web/ann", yard.create("web/ann", "a", "shop", 2));
    for operation in ["stop", "start"] {
        let id = yard.operate("web/ann", "a", json!({ "operation": operation, "services": ["nothing"] }));
        assert_eq!(yard.end_of("web/ann", id)["state"], "failed");
        assert_eq!(yard.cluster("web/ann", "a")["state"], "active");
    }
}

#[test]
fn a_damaged_record_is_told_and_hides_no_machine() {
    let yard = web(&[]);
    slow(&yard, "60");
    let id = yard.create("web/ann", "a", "slow", 1);
    assert!(comes_true(PATIENCE, || yard.log_of(id).contains("== switch the hosts")));
    let folder = yard.folder().join(format!("jobs/{id}"));
    let mut record = OpenOptions::new().append(true).open(folder.join("record")).expect("a record");
    record.write_all(b"\x00\x00\x00\n{\"entry\":\"canceled\"}\n").expect("written");
    let leader = fs::read_to_string(folder.join("alive")).expect("a lock").trim().parse().expect("a process");
    processes::signal(leader, Signal::KILL);
    let ended = yard.end_of("web/ann", id);
    assert_eq!(ended["state"], "failed", "{ended}");
    assert!(text(&ended["reason"]).contains("damaged"), "{ended}");
    assert_eq!(yard.cluster("web/ann", "a")["state"], "incomplete");
    assert_eq!(yard.machines().len(), 1);
    yard.succeeds("web/ann", yard.operate("web/ann", "a", json!({ "operation": "delete" })));
    assert_eq!(yard.existing("process").len(), 0);
}

#[test]
fn a_damaged_list_of_machines_is_told_and_kept() {
    let yard = web(&[]);
    yard.succeeds("web/ann", yard.create("web/ann", "a", "shop", 2));
    let file = yard.folder().join("clusters/web/a/machines.json");
    let good = fs::read(&file).expect("read");
    fs::write(&file, &good[..good.len() / 2]).expect("written");
    for (status, answer) in [
        yard.user("web/ann", "GET", "/v1/clusters/a", None),
        yard.root("GET", "/v1/machines", None),
        yard.root("GET", "/v1/machines?orphans=true", None),
    ] {
        assert_eq!(status, 500, "{answer}");
        assert!(text(&answer["error"]).contains("machines.json"), "{answer}");
    }
    let id = yard.operate("web/ann", "a", json!({ "operation": "delete" }));
    let ended = yard.end_of("web/ann", id);
    assert!(text(&ended["reason"]).contains("machines"), "{ended}");
    assert!(text(&ended["hint"]).contains("machines.json"), "{ended}");
    fs::write(&file, &good).expect("written");
    assert_eq!(yard.machines().len(), 2);
    yard.succeeds("web/ann", yard.operate("web/ann", "a", json!({ "operation": "delete" })));
    assert_eq!(yard.orphans(), NONE);
}

#[test]
fn machines_of_a_lost_folder_are_listed_as_orphans() {
    let mut yard = web(&[]);
    yard.succeeds("web/ann", yard.create("web/ann", "a", "shop", 2));
    fs::remove_dir_all(yard.folder().join("clusters/web/a")).expect("removed");
    yard.restart();
    assert_eq!(yard.orphans().len(), 2);
    yard.succeeds("web/ann", yard.operate("web/ann", "a", json!({ "operation": "delete" })));
    assert_eq!(yard.orphans().len(), 2);
}

#[test]
fn orphans_of_providers_with_the_same_name_are_listed() {
    let mut yard = web(&[]);
    yard.tenant("zoo", &["eve"]);
    yard.faults(json!({}));
    let faults = yard.dir.path().join("faults.json");
    for (tenant, sort) in [("web", "odd"), ("zoo", "process")] {
        let provider = json!({ "type": sort, "settings": { "faults": faults } });
        let set = |path: &str, body: Value| {
            let answer = yard.root("PUT", &format!("/v1/catalogue/{path}?tenant={tenant}"), Some(body));
            assert_eq!(answer.0, 200, "{}", answer.1);
        };
        set("providers/mine", provider);
        set("templates/own", json!({ "defaults": { "services": ["db"], "provider": "mine" } }));
    }
    yard.succeeds("web/ann", yard.create("web/ann", "a", "own", 1));
    let label = text(&yard.cluster("web/ann", "a")["machines"][0]["token"]);
    fs::remove_dir_all(yard.folder().join("clusters/web/a")).expect("removed");
    let orphans = yard.orphans();
    assert!(orphans.iter().any(|machine| machine["token"] == *label), "{orphans:?}");
}

#[test]
fn lost_answers_create_nothing_twice() {
    let yard = web(&[]);
    yard.faults(json!({ "lose": 400, "slow": 300, "ignores_tokens": true, "action": "create" }));
    let jobs: Vec<u64> = (0..4).map(|n| yard.create("web/ann", &format!("c{n}"), "odd", 3)).collect();
    for id in jobs {
        yard.end_of("web/ann", id);
    }
    let known: BTreeSet<String> = yard.machines().iter().map(|machine| text(&machine["id"])).collect();
    assert_eq!(yard.orphans(), NONE);
    assert_eq!(yard.existing("odd"), known);
}

#[test]
fn an_interrupted_call_creates_no_machine_later() {
    let yard = web(&[]);
    for _ in 0..5 {
        yard.faults(json!({ "slow": 1000, "action": "create" }));
        let id = yard.create("web/ann", "a", "odd", 2);
        assert!(comes_true(PATIENCE, || yard.log_of(id).contains("a-2: create")));
        yard.user("web/ann", "POST", &format!("/v1/jobs/{id}/cancel"), None);
        assert_eq!(yard.end_of("web/ann", id)["state"], "canceled");
        yard.faults(json!({}));
        assert_eq!(yard.existing("odd").len(), 0, "{}", yard.log_of(id));
    }
    assert_eq!(yard.orphans(), NONE);
}

#[test]
fn answers_that_are_garbage_or_too_long_are_refused() {
    let yard = web(&[]);
    let delete = || yard.succeeds("web/ann", yard.operate("web/ann", "a", json!({ "operation": "delete" })));
    for (fault, says) in [("garbage", "is not valid"), ("huge", "is longer than")] {
        // The machines exist, and are adopted.
        yard.faults(json!({ fault: 1000, "action": "create" }));
        yard.succeeds("web/ann", yard.create("web/ann", "a", "odd", 2));
        assert_eq!(yard.existing("odd").len(), 2);
        yard.faults(json!({}));
        delete();
        yard.faults(json!({ fault: 1000 }));
        let ended = yard.end_of("web/ann", yard.create("web/ann", "a", "odd", 2));
        assert_eq!(ended["state"], "failed", "{ended}");
        assert!(text(&ended["reason"]).contains(says), "{ended}");
        assert_eq!(yard.cluster("web/ann", "a")["state"], "incomplete");
        yard.faults(json!({}));
        assert_eq!(yard.orphans(), NONE);
        delete();
        assert_eq!(yard.existing("odd").len(), 0);
    }
    yard.faults(json!({ "refuse": 1000, "action": "create" }));
    let ended = yard.end_of("web/ann", yard.create("web/ann", "a", "odd", 2));
    assert!(text(&ended["reason"]).contains("the provider refuses"), "{ended}");
    assert_eq!(yard.cluster("web/ann", "a")["state"], "terminated");
    assert_eq!(yard.orphans(), NONE);
}

#[test]
fn a_provider_that_hides_its_machines_leaves_listed_orphans() {
    let yard = web(&[]);
    yard.faults(json!({ "lose": 1000, "ignores_tokens": true, "lists_nothing": true }));
    let ended = yard.end_of("web/ann", yard.create("web/ann", "a", "odd", 2));
    assert_eq!(ended["state"], "failed", "{ended}");
    yard.faults(json!({}));
    yard.succeeds("web/ann", yard.operate("web/ann", "a", json!({ "operation": "delete" })));
    let left: BTreeSet<String> = yard.orphans().iter().map(|machine| text(&machine["id"])).collect();
    assert_eq!(yard.existing("odd"), left);
}

#[test]
fn a_narrowed_token_makes_no_wider_token() {
    let yard = web(&[]);
    let scope = json!([{ "actions": ["read", "execute"], "kind": "user", "names": "all" }]);
    let narrow = yard.user("web/ann", "POST", "/v1/tokens", Some(json!({ "scope": scope }))).1;
    let wide = yard.try_with(&text(&narrow["token"]), "POST", "/v1/tokens", Some(&json!({}))).expect("an answer");
    assert_eq!(wide.0, 403, "{}", wide.1);
    let short = yard.user("web/ann", "POST", "/v1/tokens", Some(json!({ "lives_s": 2 }))).1;
    let long = yard.try_with(&text(&short["token"]), "POST", "/v1/tokens", Some(&json!({}))).expect("an answer");
    assert_eq!(long.0, 200, "{}", long.1);
    let ends = || yard.try_with(&text(&long.1["token"]), "GET", "/v1/whoami", None).expect("an answer").0 == 401;
    assert!(comes_true(PATIENCE, ends));
}
