//! Hostile users: what one tenant can do to the hub and to other tenants.

use std::fs;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use cob_tests::wait::comes_true;
use serde_json::{Value, json};

use crate::faults::{slow, web};
use crate::yard::{PATIENCE, Yard, text};

#[test]
fn foreign_and_unknown_things_look_the_same() {
    let mut yard = web(&[]);
    yard.tenant("evil", &["eve"]);
    slow(&yard, "20");
    let id = yard.create("web/ann", "shop", "slow", 1);
    let own = json!({ "actions": { "install": "true", "start": "true", "stop": "true", "remove": "true" } });
    let (status, answer) = yard.user("web/adm", "PUT", "/v1/catalogue/services/secret", Some(own));
    assert_eq!(status, 200, "{answer}");
    let stop = json!({ "operation": "stop" });
    let pairs: [(&str, String, String, Option<Value>); 10] = [
        ("GET", "/v1/clusters/shop".to_owned(), "/v1/clusters/none".to_owned(), None),
        (
            "POST",
            "/v1/clusters/shop/operations".to_owned(),
            "/v1/clusters/none/operations".to_owned(),
            Some(stop.clone()),
        ),
        ("POST", "/v1/clusters/shop/preview".to_owned(), "/v1/clusters/none/preview".to_owned(), Some(stop)),
        (
            "PUT",
            "/v1/clusters/shop/lease".to_owned(),
            "/v1/clusters/none/lease".to_owned(),
            Some(json!({ "lease_s": 9 })),
        ),
        ("GET", format!("/v1/jobs/{id}"), "/v1/jobs/77".to_owned(), None),
        ("GET", format!("/v1/jobs/{id}/log"), "/v1/jobs/77/log".to_owned(), None),
        ("POST", format!("/v1/jobs/{id}/cancel"), "/v1/jobs/77/cancel".to_owned(), None),
        ("PUT", format!("/v1/jobs/{id}/priority"), "/v1/jobs/77/priority".to_owned(), Some(json!({ "priority": 9 }))),
        ("GET", "/v1/catalogue/services/secret".to_owned(), "/v1/catalogue/services/none".to_owned(), None),
        ("GET", "/v1/clusters?tenant=web".to_owned(), "/v1/clusters?tenant=none".to_owned(), None),
    ];
    for (method, foreign, unknown, body) in pairs {
        let ask = |path: &str| {
            let (status, answer) = yard.user("evil/eve", method, path, body.clone());
            (
                status,
                answer
                    .to_string()
                    .replace(&id.to_string(), "77")
                    .replace("shop", "none")
                    .replace("secret", "none")
                    .replace("web", "none"),
            )
        };
        assert_eq!(ask(&foreign), ask(&unknown), "{method} {foreign}");
        assert_eq!(ask(&foreign).0, 404, "{method} {foreign}");
        let time = |path: &str| {
            let mut all: Vec<Duration> = (0..15)
                .map(|_| {
                    let begun = Instant::now();
                    ask(path);
                    begun.elapsed()
                })
                .collect();
            all.sort();
            all[7]
        };
        // Other programs may disturb a measurement; a difference of the hub is in all of them.
        let (mut here, mut there) = Default::default();
        let is_alike = comes_true(PATIENCE, || {
            (here, there) = (time(&foreign), time(&unknown));
            here.max(there) < here.min(there) * 3 + Duration::from_millis(5)
        });
        assert!(is_alike, "{method} {foreign}: {here:?} and {there:?}");
    }
    for path in ["/v1/clusters", "/v1/jobs", "/v1/machines"] {
        assert_eq!(yard.user("evil/adm", "GET", path, None), (200, json!([])), "{path}");
    }
    let (_, names) = yard.user("evil/adm", "GET", "/v1/catalogue/services", None);
    assert!(!names.to_string().contains("secret"), "{names}");
    assert!(!yard.user("evil/adm", "GET", "/v1/directory", None).1.to_string().contains("web"));
    let (_, lines) = yard.user("evil/adm", "GET", "/v1/audit", None);
    assert!(lines.as_array().expect("lines").iter().all(|line| line["tenant"] == "evil"), "{lines}");
}

#[test]
fn names_and_paths_do_not_leave_their_place() {
    let yard = web(&[]);
    let actions = json!({ "actions": {} });
    for name in ["..", "%2e%2e", "a%2Fb", ".git", "%00", "a%0Ab", "%F0%9F%90%99", &"x".repeat(200)] {
        let (status, answer) =
            yard.user("web/adm", "PUT", &format!("/v1/catalogue/services/{name}"), Some(actions.clone()));
        assert!((400..500).contains(&status), "{name}: {status} {answer}");
    }
    for path in
        ["..%2F..%2Fstore", "a/../../x", ".hidden", "a//b", "a%5Cb", "%2Fetc%2Fpasswd", "cluster-of-the-hub.json"]
    {
        let (status, answer) = yard.user("web/adm", "PUT", &format!("/v1/files/{path}"), Some(json!({})));
        assert!((400..500).contains(&status), "{path}: {status} {answer}");
    }
    for name in ["..", "A", "a/b", "", "-a", &"x".repeat(41)] {
        let body = json!({ "name": name, "wanted": { "template": "shop", "nodes": 2 } });
        let (status, answer) = yard.user("web/ann", "POST", "/v1/clusters", Some(body));
        assert!((400..500).contains(&status), "{name}: {status} {answer}");
    }
    assert_eq!(yard.user("web/ann", "GET", &format!("/v1/jobs/1/log?from={}", u64::MAX), None).0, 404);
    assert_eq!(yard.user("web/bob", "PUT", "/v1/files/x.sh", Some(json!({}))).0, 403);
}

#[test]
fn templates_read_neither_files_nor_the_environment_of_the_hub() {
    let yard = web(&[]);
    fs::write(yard.dir.path().join("secret"), "the-secret-word").expect("written");
    let place = yard.dir.path().join("secret").display().to_string();
    let hostile = [
        "{{ env.PATH }}".to_owned(),
        "{{ environ }}".to_owned(),
        format!("{{% include '{place}' %}}"),
        format!("{{% import '{place}' as x %}}{{{{ x }}}}"),
        format!("{{{{ file('{place}') }}}}"),
        format!("{{{{ lookup('file', '{place}') }}}}"),
        "{{ [].__class__.__mro__ }}".to_owned(),
        "{% for a in range(100000000) %}{% for b in range(100000000) %}x{% endfor %}{% endfor %}".to_owned(),
    ];
    for text in hostile {
        let config = json!({ "word": text });
        let body = json!({ "name": "x", "wanted": { "template": "shop", "nodes": 2, "config": config } });
        let (_, answer) = yard.user("web/ann", "POST", "/v1/preview", Some(body));
        assert!(!answer.to_string().contains("the-secret-word"), "{answer}");
    }
    for run in [place.clone(), "../../../../secret".to_owned(), "./../../../../../secret".to_owned()] {
        let actions = json!({ "install": { "run": run }, "start": "true", "stop": "true", "remove": "true" });
        let (status, answer) =
            yard.user("web/adm", "PUT", "/v1/catalogue/services/thief", Some(json!({ "actions": actions })));
        assert!(!answer.to_string().contains("the-secret-word"), "{status} {answer}");
    }
    let depots = yard.folder().join("clusters");
    let found =
        std::process::Command::new("grep").args(["-r", "the-secret-word"]).arg(depots).output().expect("searched");
    assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
}

#[test]
fn slow_and_silent_clients_do_not_hold_up_others() {
    let yard = web(&[]);
    let mut kept = Vec::new();
    for number in 0..600 {
        let Ok(mut stream) = yard.connect() else { continue };
        if number % 2 == 0 {
            let _ = stream.write_all(b"POST /v1/clusters HTTP/1.1\r\nHost: hub\r\n");
        }
        kept.push(stream);
    }
    let begun = Instant::now();
    assert_eq!(yard.user("web/ann", "GET", "/v1/whoami", None).0, 200);
    assert!(begun.elapsed() < Duration::from_secs(2));
    // Bodies that never come, of a user with a token: the places of one tenant are not all places.
    let head = format!(
        "POST /v1/clusters HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\n\r\n{{",
        yard.token("web/ann")
    );
    for _ in 0..200 {
        let mut stream = yard.connect().expect("connected");
        let _ = stream.write_all(head.as_bytes());
        kept.push(stream);
    }
    let others =
        || yard.try_with(yard.token("web/adm"), "GET", "/v1/whoami", None).is_ok_and(|(status, _)| status == 429);
    assert!(comes_true(PATIENCE, others), "the tenant has too many requests");
    assert_eq!(yard.root("GET", "/v1/whoami", None).0, 200);
    let token = yard.root("POST", "/v1/tokens", Some(json!({}))).1;
    assert_eq!(yard.try_with(&text(&token["token"]), "GET", "/v1/whoami", None).expect("an answer").0, 200);
    drop(kept);
    // A silent connection is closed.
    let mut silent = yard.connect().expect("connected");
    let mut text = Vec::new();
    silent.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    silent.read_to_end(&mut text).expect("closed by the hub");
}

/// Runs git in the folder of a copy of the catalogue.
fn git(yard: &Yard, words: &[&str]) -> bool {
    let mut command = std::process::Command::new("git");
    command.args(["-c", "user.name=x", "-c", "user.email=x@x"]).args(words).current_dir(yard.dir.path());
    command.output().expect("git").status.success()
}

#[test]
fn pushes_and_requests_change_the_catalogue_together() {
    let yard = web(&[]);
    assert!(git(&yard, &["clone", "-q", "h/catalogue.git", "copy"]));
    let pushed = std::thread::scope(|scope| {
        let pushes = scope.spawn(|| {
            let push = |number: i32| {
                let name = format!("copy/shared/services.pushed-{number}.json");
                let text = json!({ "services": { (format!("pushed-{number}")): { "actions": {} } } });
                fs::write(yard.dir.path().join(name), text.to_string()).expect("written");
                assert!(git(&yard, &["-C", "copy", "add", "."]) && git(&yard, &["-C", "copy", "commit", "-qm", "x"]));
                comes_true(PATIENCE, || {
                    git(&yard, &["-C", "copy", "pull", "-q", "--rebase"]) && git(&yard, &["-C", "copy", "push", "-q"])
                })
            };
            (0..5).filter(|number| push(*number)).count()
        });
        for number in 0..5 {
            yard.shared(&format!("services/asked-{number}"), json!({ "actions": {} }));
        }
        pushes.join().expect("pushed")
    });
    assert_eq!(pushed, 5);
    let (_, names) = yard.user("web/ann", "GET", "/v1/catalogue/services", None);
    for number in 0..5 {
        for name in [format!("pushed-{number}"), format!("asked-{number}")] {
            assert!(names.to_string().contains(&name), "{names}");
        }
    }
    // An invalid push is told by the next operation, and harms no other tenant's answer.
    fs::write(yard.dir.path().join("copy/shared/services.bad.json"), "{").expect("written");
    assert!(git(&yard, &["-C", "copy", "add", "."]) && git(&yard, &["-C", "copy", "commit", "-qm", "bad"]));
    assert!(git(&yard, &["-C", "copy", "pull", "-q", "--rebase"]) && git(&yard, &["-C", "copy", "push", "-q"]));
    let ended = yard.end_of("web/ann", yard.create("web/ann", "a", "shop", 2));
    assert_eq!(ended["state"], "failed", "{ended}");
    assert!(text(&ended["reason"]).contains("model is refused"), "{ended}");
}
