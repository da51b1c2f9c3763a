//! Passwords, sessions, and the requests of browsers.

use serde_json::{Value, json};

use crate::faults::web;
use crate::yard::{Answer, Yard, exchange_with, text};

/// A request at the hub's address as a browser sends it: the origin of its page, and the page's relation to the hub.
pub(crate) fn browser(
    yard: &Yard,
    method: &str,
    path: &str,
    page: [&str; 3],
    token: &str,
    body: Option<&Value>,
) -> Answer {
    let [host, origin, site] = page;
    let of = |name, value: &str| (!value.is_empty()).then(|| (name, value.to_owned()));
    let bearer = (!token.is_empty()).then(|| ("Authorization", format!("Bearer {token}")));
    let headers = [of("Host", host), of("Origin", origin), of("Sec-Fetch-Site", site), bearer];
    exchange_with(yard.connect().expect("a connection"), method, path, &headers, body).expect("an answer")
}

pub(crate) fn log_in(yard: &Yard, user: &str, password: &str) -> Answer {
    let host = yard.listen.to_string();
    let (tenant, name) = user.split_once('/').map_or((None, user), |(tenant, name)| (Some(tenant), name));
    let body = json!({ "user": { "tenant": tenant, "name": name }, "password": password });
    let page = [host.as_str(), &format!("http://{host}"), "same-origin"];
    browser(yard, "POST", "/v1/sessions", page, "", Some(&body))
}

pub(crate) fn set(yard: &Yard, user: &str, password: Option<&str>) -> Answer {
    let (tenant, name) = user.split_once('/').map_or((None, user), |(tenant, name)| (Some(tenant), name));
    let body = json!({ "user": { "tenant": tenant, "name": name }, "password": password });
    yard.root("PUT", "/v1/password", Some(body))
}

pub(crate) fn session(answer: Answer) -> String {
    assert_eq!(answer.0, 200, "{}", answer.1);
    text(&answer.1["token"])
}

pub(crate) fn whoami(yard: &Yard, token: &str) -> Answer {
    yard.try_with(token, "GET", "/v1/whoami", None).expect("an answer")
}

#[test]
fn a_password_begins_a_session_that_ends() {
    let mut yard = web(&[]);
    // Nobody has a password at first, and a wrong password says no more than an unknown user.
    let refused = log_in(&yard, "web/ann", "correct horse");
    assert_eq!(refused.0, 401, "{}", refused.1);
    assert_eq!(log_in(&yard, "web/nobody", "correct horse"), refused);
    assert_eq!(log_in(&yard, "none/ann", "correct horse"), refused);
    assert_eq!(log_in(&yard, "root", ""), refused);

    assert_eq!(set(&yard, "web/ann", Some("short")).0, 400);
    assert_eq!(set(&yard, "web/nobody", Some("correct horse")).0, 404);
    assert_eq!(set(&yard, "web/ann", Some("correct horse")).0, 204);
    assert_eq!(log_in(&yard, "web/ann", "correct hors"), refused);
    let token = session(log_in(&yard, "web/ann", "correct horse"));
    let (status, me) = whoami(&yard, &token);
    assert_eq!((status, &me["user"], &me["tenant"]), (200, &json!("ann"), &json!("web")));

    // The session survives a crash of the hub, and ends by a log-out.
    yard.restart();
    assert_eq!(whoami(&yard, &token).0, 200);
    let other = session(log_in(&yard, "web/ann", "correct horse"));
    let end = |token: &str| yard.try_with(token, "DELETE", "/v1/session", None).expect("an answer").0;
    assert_eq!(end(&token), 204);
    assert_eq!(whoami(&yard, &token).0, 401);
    assert_eq!(whoami(&yard, &other).0, 200, "other sessions go on");
    assert_eq!(end(yard.token("web/ann")), 409, "a token of the API is no session");

    // A new password ends all sessions, and no token.
    assert_eq!(set(&yard, "web/ann", Some("another horse")).0, 204);
    assert_eq!(whoami(&yard, &other).0, 401);
    assert_eq!(whoami(&yard, yard.token("web/ann")).0, 200);
    assert_eq!(log_in(&yard, "web/ann", "correct horse"), refused);
    let token = session(log_in(&yard, "web/ann", "another horse"));

    // A user who is removed and comes again has no password.
    yard.change(json!({ "remove-user": { "tenant": "web", "user": "ann" } }));
    assert_eq!(whoami(&yard, &token).0, 401);
    yard.change(json!({ "add-user": { "tenant": "web", "user": "ann" } }));
    assert_eq!(log_in(&yard, "web/ann", "another horse"), refused);
    yard.audit_is_whole();
    // No password and no token is in the hub's files.
    for name in ["store", "audit"] {
        let found = std::process::Command::new("grep")
            .args(["-rc", "-e", "another horse", "-e", &token])
            .arg(yard.folder().join(name))
            .output()
            .expect("grep");
        assert_eq!(found.status.code(), Some(1), "{name}: {}", String::from_utf8_lossy(&found.stdout));
    }
}

#[test]
fn users_manage_their_own_password_alone() {
    let yard = web(&[]);
    let own = |user: &str, body: Value| yard.user(user, "PUT", "/v1/password", Some(body)).0;
    assert_eq!(own("web/ann", json!({ "password": "correct horse" })), 204);
    session(log_in(&yard, "web/ann", "correct horse"));
    let of_ann = json!({ "user": { "tenant": "web", "name": "ann" }, "password": "stolen horse" });
    assert_eq!(own("web/bob", of_ann.clone()), 403);
    assert_eq!(own("web/adm", of_ann), 204, "an administrator of the tenant");
    session(log_in(&yard, "web/ann", "stolen horse"));
    let of_root = json!({ "user": { "name": "root" }, "password": "stolen horse" });
    assert_eq!(own("web/adm", of_root), 404);
    assert_eq!(own("web/ann", json!({})), 204, "a user may remove it");
    assert_eq!(log_in(&yard, "web/ann", "stolen horse").0, 401);
    // A session needs the present password: an open page is no way to take over its user.
    assert_eq!(own("web/ann", json!({ "password": "correct horse" })), 204);
    let token = session(log_in(&yard, "web/ann", "correct horse"));
    let change = |body: Value| yard.try_with(&token, "PUT", "/v1/password", Some(&body)).expect("an answer").0;
    assert_eq!(change(json!({ "password": "another horse" })), 400);
    assert_eq!(change(json!({ "password": "another horse", "present": "a guess" })), 403);
    assert_eq!(change(json!({ "password": "another horse", "present": "correct horse" })), 204);
    assert_eq!(whoami(&yard, &token).0, 401);
    session(log_in(&yard, "web/ann", "another horse"));
    // A narrowed token is no way to all rights.
    let scope = json!({ "scope": [{ "actions": ["read", "execute"], "kind": "user", "names": "all" }] });
    let (status, answer) = yard.user("web/ann", "POST", "/v1/tokens", Some(scope));
    assert_eq!(status, 200, "{answer}");
    let body = json!({ "password": "correct horse" });
    let asked = yard.try_with(&text(&answer["token"]), "PUT", "/v1/password", Some(&body)).expect("an answer");
    assert_eq!((asked.0, &asked.1["error"]), (403, &json!("a token with a scope sets no password")));
}

#[test]
fn wrong_passwords_delay_their_user_alone() {
    let yard = web(&[]);
    for user in ["web/ann", "web/bob"] {
        assert_eq!(set(&yard, user, Some("correct horse")).0, 204);
    }
    for _ in 0..5 {
        assert_eq!(log_in(&yard, "web/ann", "wrong").0, 401);
    }
    let (status, answer) = log_in(&yard, "web/ann", "correct horse");
    assert_eq!(status, 429, "{answer}");
    assert!(text(&answer["error"]).starts_with("too many wrong passwords: the next attempt may begin in "), "{answer}");
    session(log_in(&yard, "web/bob", "correct horse"));
    assert_eq!(whoami(&yard, yard.token("web/ann")).0, 200, "tokens are not delayed");
    // A body that no log-in needs is refused before it is read.
    let long = json!({ "user": { "name": "root" }, "password": "x".repeat(5000) });
    assert_eq!(yard.root("POST", "/v1/sessions", Some(long)).0, 413);
}

#[test]
fn a_proxy_tells_who_guesses() {
    let yard = web(&["--page", "https://hub.example"]);
    assert_eq!(set(&yard, "web/ann", Some("correct horse")).0, 204);
    let from = |address: &str, password: &str| {
        let body = json!({ "user": { "tenant": "web", "name": "ann" }, "password": password });
        let headers = [("Host", "hub.example"), ("X-Forwarded-For", address)];
        let headers = headers.map(|(name, value)| Some((name, value.to_owned())));
        let stream = yard.connect().expect("a connection");
        exchange_with(stream, "POST", "/v1/sessions", &headers, Some(&body)).expect("an answer").0
    };
    // The proxy adds the address that it has seen to whatever the caller claims.
    for claimed in 0..5 {
        assert_eq!(from(&format!("192.0.2.{claimed}, 198.51.100.7"), "wrong"), 401);
    }
    assert_eq!(from("192.0.2.9, 198.51.100.7", "correct horse"), 429);
    assert_eq!(from("203.0.113.5", "correct horse"), 200, "a person elsewhere is not delayed");
}

#[test]
fn only_the_hubs_own_page_may_ask() {
    let yard = web(&["--page", "https://hub.example"]);
    let here = yard.listen.to_string();
    let own = format!("http://{here}");
    let token = yard.token("web/ann");
    let ask = |page| browser(&yard, "GET", "/v1/whoami", page, token, None).0;
    assert_eq!(ask([&here, &own, "same-origin"]), 200);
    assert_eq!(ask([&here, "", "same-origin"]), 200);
    assert_eq!(ask(["hub.example", "https://hub.example", "same-origin"]), 200);
    for page in [
        [here.as_str(), "http://evil.example", "cross-site"],
        [&here, "http://evil.example", ""],
        [&here, "null", ""],
        [&here, "", "cross-site"],
        [&here, "", "same-site"],
        // A name of another page's owner that leads here.
        ["evil.example", "", "same-origin"],
        ["evil.example", "http://evil.example", "same-origin"],
    ] {
        assert_eq!(ask(page), 403, "{page:?}");
        let body = json!({ "user": { "tenant": "web", "name": "ann" }, "password": "guess" });
        assert_eq!(browser(&yard, "POST", "/v1/sessions", page, "", Some(&body)).0, 403, "{page:?}");
    }
    // The page itself has no secrets, and a link from elsewhere may open it.
    for site in ["none", "cross-site"] {
        let (status, html) = browser(&yard, "GET", "/", [&here, "", site], "", None);
        assert_eq!(status, 200);
        assert!(text(&html).contains("/hub.js"), "{html}");
    }
    assert_eq!(browser(&yard, "GET", "/", ["evil.example", "", "none"], "", None).0, 403);
    // The socket serves no browser, whatever it says.
    let headers = [Some(("Host", "hub".to_owned())), Some(("Sec-Fetch-Site", "same-origin".to_owned()))];
    let socket = || std::os::unix::net::UnixStream::connect(yard.folder().join("hub.sock")).expect("a connection");
    assert_eq!(exchange_with(socket(), "GET", "/v1/whoami", &headers, None).expect("an answer").0, 403);
    assert_eq!(exchange_with(socket(), "GET", "/", &headers[..1], None).expect("an answer").0, 404);
}
