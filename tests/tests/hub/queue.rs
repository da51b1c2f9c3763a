//! The queue as administrators keep it: priorities, rules, drain.

use serde_json::{Value, json};

use crate::yard::{PATIENCE, Yard, job, text};
use cob_tests::wait::comes_true;

/// A hub with the templates `slow`, whose creation lasts until the file `go` exists, and `shop`.
fn yard(more: &[&str]) -> Yard {
    let mut yard = Yard::new(more);
    yard.catalogue();
    yard.tenant("web", &["ann", "ben"]);
    let go = yard.dir.path().join("go");
    let install = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    let actions = json!({ "install": install, "start": "true", "stop": "true", "remove": "true" });
    yard.shared("services/slow", json!({ "actions": actions }));
    yard.shared("templates/slow", json!({ "defaults": { "services": ["slow"] } }));
    yard
}

fn go(yard: &Yard) {
    std::fs::write(yard.dir.path().join("go"), "").expect("written");
}

fn order(name: &str, template: &str) -> Value {
    json!({ "name": name, "wanted": { "template": template, "nodes": 1 } })
}

/// Orders a cluster whose job has a priority.
fn create(yard: &Yard, user: &str, name: &str, template: &str, priority: i8) -> u64 {
    job(yard.user(user, "POST", &format!("/v1/clusters?priority={priority}"), Some(order(name, template))))
}

fn state(yard: &Yard, id: u64) -> Value {
    yard.user("web/adm", "GET", &format!("/v1/jobs/{id}"), None).1
}

/// Waits until the job runs.
fn runs(yard: &Yard, id: u64) {
    assert!(comes_true(PATIENCE, || state(yard, id)["state"] == "running"), "{}", state(yard, id));
}

fn rule(yard: &Yard, user: &str, name: &str, content: Value) {
    let path = format!("/v1/queue/rules/{name}");
    let (status, answer) = if user == "root" {
        yard.root("PUT", &path, Some(content))
    } else {
        yard.user(user, "PUT", &path, Some(content))
    };
    assert_eq!(status, 204, "{answer}");
}

#[test]
fn an_important_job_overtakes_and_lists_are_filtered() {
    let yard = yard(&["--parallel-jobs", "1"]);
    let first = create(&yard, "web/ann", "a", "slow", 0);
    runs(&yard, first);
    let [low, middle, high] = [("b", 9), ("c", 5), ("d", 0)].map(|(name, p)| create(&yard, "web/ann", name, "shop", p));
    // A user can't take the priorities of administrators.
    let path = |id: u64| format!("/v1/jobs/{id}/priority");
    let (status, refused) = yard.user("web/ann", "PUT", &path(low), Some(json!({ "priority": -1 })));
    assert_eq!((status, &refused["error"]), (403, &json!("a user gives the priorities 0 to 19, not -1")));
    let (status, _) = yard.user("web/ann", "POST", "/v1/clusters?priority=-1", Some(order("x", "shop")));
    assert_eq!((status, yard.user("web/ann", "GET", "/v1/clusters/x", None).0), (403, 404));
    assert_eq!(
        yard.user("web/ben", "PUT", &path(low), Some(json!({ "priority": 1 }))).0,
        404,
        "the job of another user"
    );
    let (status, changed) = yard.user("web/adm", "PUT", &path(low), Some(json!({ "priority": -10 })));
    assert_eq!((status, &changed["priority"], &changed["state"]), (200, &json!(-10), &json!("queued")));
    assert_eq!(yard.user("web/adm", "PUT", &path(first), Some(json!({ "priority": 1 }))).0, 409, "it runs");
    assert_eq!(yard.root("PUT", &path(low), Some(json!({ "priority": 20 }))).0, 400);

    let ids = |query: &str| -> Vec<u64> {
        let (status, jobs) = yard.user("web/adm", "GET", &format!("/v1/jobs?{query}"), None);
        assert_eq!(status, 200, "{jobs}");
        jobs.as_array().expect("jobs").iter().filter_map(|job| job["id"].as_u64()).collect()
    };
    assert_eq!(ids("limit=2"), [high, middle]);
    assert_eq!(ids(&format!("limit=2&before={middle}")), [low, first]);
    assert_eq!((ids("state=running"), ids("cluster=c")), (vec![first], vec![middle]));
    assert_eq!((ids("user=web/ann").len(), ids("user=web/ben").len()), (4, 0));
    assert_eq!((ids("operation=create").len(), ids("operation=resize").len()), (4, 0));
    let (status, refused) = yard.user("web/adm", "GET", "/v1/jobs?operation=fly", None);
    assert!(status == 400 && text(&refused["error"]).contains("no operation \"fly\"; there are create"), "{refused}");
    let since = state(&yard, high)["submitted_ms"].as_u64().expect("a time");
    assert!(ids(&format!("since_ms={since}")).contains(&high) && ids(&format!("since_ms={}", since + 1)).is_empty());

    go(&yard);
    let ended: Vec<Value> = [first, low, high, middle].map(|id| yard.succeeds("web/ann", id)).into();
    for pair in ended.windows(2) {
        assert!(pair[0]["ended_ms"].as_u64() <= pair[1]["started_ms"].as_u64(), "{ended:?}");
    }
    let (_, lines) = yard.user("web/adm", "GET", "/v1/audit", None);
    assert!(lines.to_string().contains("allowed: priority -10"), "{lines}");

    // Each page has whole clusters.
    let page = |query: &str| -> Vec<String> {
        let cluster = |machine: &Value| format!("{}/{}", text(&machine["tenant"]), text(&machine["cluster"]));
        yard.machine_page(query).iter().map(cluster).collect()
    };
    assert_eq!((page("?limit=1"), page("?limit=2")), (vec!["web/a".to_owned()], vec!["web/a".into(), "web/b".into()]));
    assert_eq!(page("?limit=9&after=b&after_tenant=web"), ["web/c", "web/d"]);
    assert_eq!(page("?after=d&after_tenant=web"), [""; 0]);
    assert_eq!(page("?after=a&after_tenant=abc").len(), 4, "an earlier tenant");
}

#[test]
fn rules_hold_jobs_name_themselves_and_survive_a_kill_of_the_hub() {
    let mut yard = yard(&[]);
    go(&yard);
    let freeze = json!({ "action": "pause", "reason": "audit week", "jobs": { "providers": ["process"] } });
    rule(&yard, "root", "freeze", freeze);
    let held = create(&yard, "web/ann", "a", "shop", 0);
    let waits = "the rule freeze pauses it: audit week";
    assert_eq!(state(&yard, held)["reason"], waits);
    // An operation on a cluster that has no machines yet: its provider is that of the creation.
    let resize = yard.operate("web/ann", "a", json!({ "operation": "resize", "nodes": 2 }));
    assert!(text(&state(&yard, resize)["reason"]).contains(waits), "{}", state(&yard, resize));
    // Clusters of other providers go on, and so does a job that an earlier rule accepts.
    yard.succeeds("web/ann", create(&yard, "web/ann", "o", "odd", 0));
    yard.restart();
    assert_eq!(state(&yard, held)["reason"], waits);
    rule(&yard, "root", "urgent", json!({ "action": "accept", "priority": 1, "jobs": { "ids": [held] } }));
    yard.succeeds("web/ann", held);
    assert_eq!(state(&yard, resize)["reason"], waits, "{}", state(&yard, resize));

    // A tenant's administrator keeps rules for the tenant, and lifts none of the hub.
    let all = json!({ "action": "accept", "priority": 0 });
    rule(&yard, "web/adm", "all", all.clone());
    assert_eq!(state(&yard, resize)["reason"], waits);
    assert_eq!(yard.user("web/ann", "PUT", "/v1/queue/rules/mine", Some(all)).0, 403);
    let other = json!({ "action": "pause", "jobs": { "clusters": ["db/shop"] } });
    assert_eq!(yard.user("web/adm", "PUT", "/v1/queue/rules/other", Some(other)).0, 400);
    let (_, queue) = yard.user("web/adm", "GET", "/v1/queue", None);
    let names: Vec<&Value> = queue["rules"].as_array().expect("rules").iter().map(|rule| &rule["name"]).collect();
    assert_eq!((names, &queue["waiting"]), (vec![&json!("all")], &json!(1)), "{queue}");
    assert_eq!(yard.root("DELETE", "/v1/queue/rules/freeze", None).0, 204);
    yard.succeeds("web/ann", resize);
    assert_eq!(yard.root("DELETE", "/v1/queue/rules/freeze", None).0, 404);

    // A rejection cancels jobs that wait, and refuses orders with its reason.
    assert_eq!(yard.user("web/adm", "DELETE", "/v1/queue/rules/all", None).0, 204);
    rule(&yard, "root", "hold", json!({ "action": "pause" }));
    let waiting = yard.operate("web/ann", "a", json!({ "operation": "stop" }));
    let unpaid = json!({ "action": "reject", "priority": 1, "reason": "unpaid", "jobs": { "operations": ["stop"] } });
    rule(&yard, "web/adm", "unpaid", unpaid);
    let ended = yard.end_of("web/ann", waiting);
    let why = "the rule web/unpaid rejects it: unpaid";
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("canceled"), &json!(why)));
    yard.restart();
    let (status, refused) =
        yard.user("web/ann", "POST", "/v1/clusters/a/operations", Some(json!({ "operation": "stop" })));
    assert_eq!((status, &refused["error"]), (409, &json!("the rule web/unpaid rejects this order: unpaid")));
    let (_, lines) = yard.root("GET", "/v1/audit?newest=true", None);
    for noted in
        ["allowed: reject: unpaid", "allowed: pause: audit week", "refused: only administrators keep rules of jobs"]
    {
        assert!(lines.to_string().contains(noted), "{noted}: {lines}");
    }
    yard.audit_is_whole();
}

#[test]
fn a_rate_limit_runs_so_many_jobs_at_a_time() {
    let yard = yard(&[]);
    rule(&yard, "root", "one", json!({ "action": { "rate-limit": 1 }, "jobs": { "operations": ["create"] } }));
    let first = create(&yard, "web/ann", "a", "slow", 0);
    let second = create(&yard, "web/ann", "b", "slow", 0);
    runs(&yard, first);
    assert_eq!(state(&yard, second)["reason"], "1 jobs of the rule one run, its most");
    go(&yard);
    let [first, second] = [first, second].map(|id| yard.succeeds("web/ann", id));
    assert!(first["ended_ms"].as_u64() <= second["started_ms"].as_u64(), "{first} {second}");
    // The rule concerns creations only.
    yard.succeeds("web/ann", yard.operate("web/ann", "a", json!({ "operation": "stop" })));
}

#[test]
fn a_drained_hub_finishes_its_jobs_and_stays_drained_after_a_kill() {
    let mut yard = yard(&["--parallel-jobs", "1"]);
    let first = create(&yard, "web/ann", "a", "slow", 0);
    runs(&yard, first);
    let second = create(&yard, "web/ann", "b", "shop", 0);
    let reason = json!({ "reason": "the hub moves" });
    assert_eq!(yard.user("web/adm", "PUT", "/v1/queue/drain", Some(reason.clone())).0, 403);
    assert_eq!(yard.root("PUT", "/v1/queue/drain", Some(reason)).0, 204);
    yard.restart();
    let (status, refused) = yard.user("web/ann", "POST", "/v1/clusters", Some(order("c", "shop")));
    let why = "the hub is drained and accepts no new orders: the hub moves";
    assert_eq!((status, &refused["error"]), (409, &json!(why)));
    assert_eq!(yard.user("web/ann", "GET", "/v1/clusters/c", None).0, 404);
    let (_, queue) = yard.user("web/ann", "GET", "/v1/queue", None);
    let drain = &queue["drain"];
    assert_eq!((&drain["reason"], &drain["by"]), (&json!("the hub moves"), &json!("root")), "{queue}");
    assert_eq!((&queue["running"], &queue["waiting"]), (&json!(1), &json!(1)), "{queue}");
    go(&yard);
    yard.succeeds("web/ann", first);
    yard.succeeds("web/ann", second);
    assert_eq!(yard.root("DELETE", "/v1/queue/drain", None).0, 204);
    yard.restart();
    yard.succeeds("web/ann", yard.create("web/ann", "c", "shop", 1));
}

#[test]
fn rules_end_with_their_tenant() {
    let mut yard = Yard::new(&[]);
    yard.tenant("web", &[]);
    rule(&yard, "web/adm", "freeze", json!({ "action": "pause" }));
    rule(&yard, "root", "all", json!({ "action": { "rate-limit": 9 }, "jobs": { "tenants": ["web"] } }));
    let names = |yard: &Yard| -> Vec<Value> {
        let (_, queue) = yard.root("GET", "/v1/queue", None);
        queue["rules"].as_array().expect("rules").iter().map(|rule| rule["name"].clone()).collect()
    };
    assert_eq!(names(&yard), ["all", "freeze"]);
    yard.change(json!({ "remove-tenant": { "tenant": "web" } }));
    assert_eq!(names(&yard), ["all"]);
    yard.restart();
    yard.tenant("web", &[]);
    assert_eq!(names(&yard), ["all"], "a later tenant of the same name has no rules");
    let wrong = [
        (json!({ "action": { "rate-limit": 0 } }), "a rate limit is at least 1"),
        (json!({ "action": "pause", "reason": "a\nb" }), "a reason is one line"),
        (json!({ "action": "pause", "jobs": { "operations": ["fly"] } }), "there is no operation \"fly\""),
        (json!({ "action": "pause", "jobs": { "tenants": ["web2"] } }), "there is no tenant web2"),
        (json!({ "action": "stop" }), "unknown variant `stop`"),
        (json!({ "action": "pause", "job": [] }), "unknown field `job`"),
    ];
    for (content, told) in wrong {
        let (status, refused) = yard.root("PUT", "/v1/queue/rules/wrong", Some(content));
        assert!(status == 400 && text(&refused["error"]).contains(told), "{told}: {status} {refused}");
    }
    assert_eq!(names(&yard), ["all"]);
}

#[test]
fn jobs_of_a_canceled_creation_make_no_cluster_and_its_name_is_free_after_them() {
    let yard = yard(&["--parallel-jobs", "1"]);
    let first = create(&yard, "web/ann", "a", "slow", 0);
    runs(&yard, first);
    let creation = create(&yard, "web/ann", "b", "shop", 0);
    let resize = yard.operate("web/ann", "b", json!({ "operation": "resize", "nodes": 2 }));
    let deletion = yard.operate("web/ann", "b", json!({ "operation": "delete" }));
    let cancel = |id: u64| yard.user("web/ann", "POST", &format!("/v1/jobs/{id}/cancel"), None).0;
    assert_eq!(cancel(creation), 202);
    let ended = state(&yard, resize);
    let why = format!("it depends on job {creation}, which was canceled");
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("canceled"), &json!(why)));
    let again = || yard.user("web/ann", "POST", "/v1/clusters", Some(order("b", "shop")));
    let (status, refused) = again();
    let why = format!("job {deletion} of a former cluster b has not ended; wait for its end, or cancel it");
    assert_eq!((status, &refused["error"]), (409, &json!(why)));
    assert_eq!(cancel(deletion), 202);
    let second = job(again());
    go(&yard);
    yard.succeeds("web/ann", first);
    yard.succeeds("web/ann", second);
    assert_eq!(yard.cluster("web/ann", "b")["state"], "active");
}

#[test]
fn the_open_jobs_of_a_cluster_are_bounded_and_a_first_deletion_is_always_possible() {
    let yard = yard(&[]);
    let first = create(&yard, "web/ann", "a", "slow", 0);
    runs(&yard, first);
    let order = |operation: &str| {
        yard.user("web/ann", "POST", "/v1/clusters/a/operations", Some(json!({ "operation": operation }))).0
    };
    assert_eq!((1..50).map(|_| order("stop")).collect::<Vec<_>>(), [202; 49]);
    assert_eq!([order("stop"), order("delete"), order("delete")], [409, 202, 409]);
}
