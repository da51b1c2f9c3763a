//! Log-ins that other systems check: a provider of OpenID Connect with faults, and a real LDAP server.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use cob_tests::wait::comes_true;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::faults::web;
use crate::log_in::{browser, log_in, session, set, whoami};
use crate::yard::{Answer, PATIENCE, Yard, text};

/// A provider of identities. It knows each person whom it gave a code, with the challenge of the log-in.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The challenge, nonce and claims of each code.
    codes: BTreeMap<String, (String, String, Value)>,
    /// The address that the provider calls itself.
    issuer: String,
    /// The answer instead of a description.
    description: Option<String>,
}

impl Provider {
    /// A provider that serves until the end of the tests.
    fn new() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let provider = Self::default();
        provider.state().issuer = format!("http://{address}/realm");
        let own = provider.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may leave.
                let _ = own.answer(stream);
            }
        });
        (provider, address)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut head, mut line) = (Vec::new(), String::new());
        while reader.read_line(&mut line)? > 2 {
            head.push(line.trim_end().to_owned());
            line.clear();
        }
        let header = |name: &str| {
            let found =
                head.iter().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_owned())
        };
        let mut body = vec![0; header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let path = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
        let (status, answer) = match path {
            "/realm/.well-known/openid-configuration" => (200, self.describe()),
            "/realm/token" => self.token(header("authorization"), &fields(&String::from_utf8_lossy(&body))),
            _ => (404, json!({}).to_string()),
        };
        let length = answer.len();
        write!(stream, "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{answer}")
    }

    fn describe(&self) -> String {
        let state = self.state();
        let issuer = &state.issuer;
        state.description.clone().unwrap_or_else(|| {
            let endpoint = |name: &str| format!("{issuer}/{name}");
            json!({
                "issuer": issuer, "authorization_endpoint": endpoint("authorize"), "token_endpoint": endpoint("token"),
            })
            .to_string()
        })
    }

    fn token(&self, authorization: Option<String>, fields: &BTreeMap<String, String>) -> (u16, String) {
        let refuse = |error: &str| (400, json!({ "error": error, "error_description": "so" }).to_string());
        let expected = format!("Basic {}", BASE64_STANDARD.encode("cob-hub:s%3Acret%20%22word%22"));
        if authorization != Some(expected) {
            return refuse("invalid_client");
        }
        let of = |key: &str| fields.get(key).map(String::as_str).unwrap_or_default();
        let Some((challenge, nonce, mut claims)) = self.state().codes.remove(of("code")) else {
            return refuse("invalid_grant");
        };
        if BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(of("code_verifier"))) != challenge {
            return refuse("invalid_grant");
        }
        if claims["nonce"] == "own" {
            claims["nonce"] = json!(nonce);
        }
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let token = format!("{}.{}.c2ln", part(&json!({ "alg": "RS256" })), part(&claims));
        (200, json!({ "access_token": "x", "token_type": "Bearer", "id_token": token }).to_string())
    }

    /// The person logs in at the address, and comes back with a code.
    fn visit(&self, url: &str, claims: Value) -> String {
        let query = fields(url.split_once('?').expect("a query").1);
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["code_challenge_method"], "S256");
        assert_eq!(query["scope"], "openid profile");
        let code = format!("code of {}", query["state"]);
        let known = (query["code_challenge"].clone(), query["nonce"].clone(), claims);
        self.state().codes.insert(code.clone(), known);
        code
    }

    fn claims(&self, user: &str) -> Value {
        let issuer = self.state().issuer.clone();
        json!({ "iss": issuer, "aud": "cob-hub", "exp": 4e9, "nonce": "own", "preferred_username": user })
    }
}

fn fields(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let pair: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&pair, 16).expect("two digits"));
            } else {
                bytes.push(byte);
            }
        }
        String::from_utf8(bytes).expect("text")
    };
    text.split('&').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (decode(key), decode(value))).collect()
}

/// Writes a file that its owner alone can read.
fn keep(file: &Path, text: &str) {
    fs::write(file, text).expect("written");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("a mode");
}

/// A hub with a file of log-ins.
fn hub(dir: &Path, log_ins: &str) -> Yard {
    let file = dir.join("log-ins.yaml");
    fs::write(&file, log_ins).expect("written");
    web(&["--log-ins", file.to_str().expect("text")])
}

fn from_page(yard: &Yard, path: &str, body: &Value) -> Answer {
    let host = yard.listen.to_string();
    browser(yard, "POST", path, [&host, &format!("http://{host}"), "same-origin"], "", Some(body))
}

#[test]
fn a_provider_of_identities_confirms_users_of_its_tenants() {
    let dir = tempfile::tempdir().expect("a folder");
    let (provider, address) = Provider::new();
    let secret = dir.path().join("secret");
    keep(&secret, "s:cret \"word\"\n");
    let settings = format!(
        "company:\n  tenants: [web]\n  oidc:\n    issuer: http://{address}/realm\n    client: cob-hub\n    \
         secret_file: {}\n",
        secret.display()
    );
    let yard = hub(dir.path(), &settings);
    let (status, all) = yard.root("GET", "/v1/log-ins", None);
    assert_eq!((status, &all), (200, &json!([{ "name": "company" }])));
    let begin = || {
        let (status, begun) = from_page(&yard, "/v1/log-ins/company", &json!({ "tenant": "web" }));
        assert_eq!(status, 200, "{begun}\n{}", yard.log());
        (text(&begun["url"]), text(&begun["state"]))
    };
    let end = |state: &str, code: &str| {
        from_page(&yard, "/v1/log-ins/company/session", &json!({ "state": state, "code": code }))
    };

    let (url, state) = begin();
    let query = fields(url.split_once('?').expect("a query").1);
    assert_eq!(query["redirect_uri"], format!("http://{}/", yard.listen));
    let code = provider.visit(&url, provider.claims("ann"));
    let token = session(end(&state, &code));
    let (status, me) = whoami(&yard, &token);
    assert_eq!((status, &me["user"], &me["tenant"]), (200, &json!("ann"), &json!("web")));
    assert_eq!(end(&state, &code).0, 401, "a log-in ends once");

    // Other persons, other log-ins, and answers with faults.
    let refused = |claims: Value| {
        let (url, state) = begin();
        let code = provider.visit(&url, claims);
        end(&state, &code)
    };
    let (status, answer) = refused(provider.claims("nobody"));
    assert_eq!(status, 401, "{answer}");
    assert!(text(&answer["error"]).contains("no user web/nobody"), "{answer}");
    for (key, value) in
        [("iss", json!("http://127.0.0.1")), ("aud", json!("x")), ("exp", json!(1)), ("nonce", json!("n"))]
    {
        let mut claims = provider.claims("ann");
        claims[key] = value;
        let (status, answer) = refused(claims);
        assert_eq!(status, 502, "{key}: {answer}");
        assert_eq!(answer["error"], "the log-in company does not work at present");
    }
    // A code of another log-in has another challenge.
    let ((url, _), (_, other)) = (begin(), begin());
    let stolen = provider.visit(&url, provider.claims("ann"));
    let (status, answer) = end(&other, &stolen);
    assert_eq!(status, 401, "{answer}");
    assert!(text(&answer["error"]).contains("company refuses the log-in: invalid_grant so"), "{answer}");
    assert_eq!(end("", "").0, 401);
    // Super administrators and other tenants do not belong to it.
    for body in [json!({}), json!({ "tenant": "other" })] {
        assert_eq!(from_page(&yard, "/v1/log-ins/company", &body).0, 404, "{body}");
    }
    assert_eq!(from_page(&yard, "/v1/log-ins/none", &json!({ "tenant": "web" })).0, 404);
    assert_eq!(yard.root("POST", "/v1/log-ins/company", Some(json!({ "tenant": "web" }))).0, 400, "without a page");
    yard.audit_is_whole();
    let audit = fs::read_to_string(yard.folder().join("audit")).expect("an audit");
    assert!(audit.contains("allowed by company"), "{audit}");
}

#[test]
fn a_provider_that_lies_or_is_silent_lets_nobody_in() {
    let dir = tempfile::tempdir().expect("a folder");
    let (provider, address) = Provider::new();
    let settings =
        format!("company:\n  tenants: [web]\n  oidc: {{issuer: \"http://{address}/realm\", client: cob-hub}}\n");
    let yard = hub(dir.path(), &settings);
    let other = json!({
        "issuer": "http://127.0.0.1/realm", "authorization_endpoint": "https://x/a", "token_endpoint": "https://x/t",
    });
    let plain = json!({
        "issuer": format!("http://{address}/realm"), "authorization_endpoint": "http://example.org/a",
        "token_endpoint": "https://x/t",
    });
    for description in [other.to_string(), plain.to_string(), "{".to_owned(), " ".repeat(2 << 20)] {
        provider.state().description = Some(description.clone());
        let (status, answer) = from_page(&yard, "/v1/log-ins/company", &json!({ "tenant": "web" }));
        assert_eq!(status, 502, "{answer}");
        assert!(!answer.to_string().contains("127.0.0.1"), "strangers learn no address: {answer}");
    }
    assert!(yard.log().contains("a log-in fails"), "{}", yard.log());
}

#[test]
fn a_file_with_faults_names_them_all() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("log-ins.yaml");
    let start = |text: &str| {
        fs::write(&file, text).expect("written");
        let yard = Yard::stopped(&["--log-ins", file.to_str().expect("text")]);
        let status = yard.command().status().expect("a hub");
        assert_eq!(status.code(), Some(1), "{}", yard.log());
        yard.log()
    };
    let log = start(
        "a: {tenants: [web], ldap: {url: \"ldap://example.org\", user: \"uid={user}\"}}\n\
         b: {oidc: {issuer: \"https://x\", client: c}}\n",
    );
    for word in ["log-ins.yaml: ", "a: `url` has no encryption", "b: nobody can use it"] {
        assert!(log.contains(word), "{word}: {log}");
    }
    let open = dir.path().join("open");
    fs::write(&open, "x").expect("written");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("a mode");
    let provider = |file: &Path| {
        format!("{{tenants: [web], oidc: {{issuer: \"https://x\", client: c, secret_file: {}}}}}", file.display())
    };
    let log = start(&format!("a: {}\nb: {}\n", provider(&open), provider(&dir.path().join("none"))));
    for word in ["a: all users of the machine can read", "b: ", "No such file"] {
        assert!(log.contains(word), "{word}: {log}");
    }
    let log = start("a: {tenants: [web], ldap: {url: \"ldaps://example.org\", usr: \"uid={user}\"}}\n");
    assert!(log.contains("log-ins.yaml:1:") && log.contains("usr"), "{log}");
}

/// An LDAP server that ends with the test.
struct Slapd(Child);

impl Drop for Slapd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts OpenLDAP in a folder, if it is installed.
fn slapd(dir: &Path) -> Option<(Slapd, SocketAddr)> {
    let program = "/usr/sbin/slapd";
    if !Path::new(program).exists() {
        eprintln!("skipped: slapd is not installed");
        return None;
    }
    let [port] = cob_processes::free_ports().expect("free");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let data = dir.join("data");
    fs::create_dir(&data).expect("a folder");
    let config = format!(
        "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\n\
         include /etc/ldap/schema/inetorgperson.schema\npidfile {0}/pid\nmodulepath /usr/lib/ldap\n\
         moduleload back_mdb\ndatabase mdb\nsuffix \"dc=example,dc=org\"\nrootdn \"cn=admin,dc=example,dc=org\"\n\
         rootpw \"word of the admin\"\ndirectory {1}\n",
        dir.display(),
        data.display()
    );
    fs::write(dir.join("slapd.conf"), config).expect("written");
    let person = |name: &str, mail: &str, word: &str| {
        format!(
            "\ndn: uid={name},ou=people,dc=example,dc=org\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: x\n\
             mail: {mail}\nuserPassword: {word}\n"
        )
    };
    let entries = format!(
        "dn: dc=example,dc=org\nobjectClass: dcObject\nobjectClass: organization\no: x\ndc: example\n\n\
         dn: ou=people,dc=example,dc=org\nobjectClass: organizationalUnit\nou: people\n{}{}{}",
        person("ann", "ann@example.org", "ann's: \"word\""),
        person("bob", "team@example.org", "bob's word"),
        person("eve", "team@example.org", "eve's word")
    );
    fs::write(dir.join("entries"), entries).expect("written");
    let mut add = Command::new("/usr/sbin/slapadd");
    let added = add.arg("-f").arg(dir.join("slapd.conf")).arg("-l").arg(dir.join("entries")).output().expect("slapadd");
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let child = Command::new(program)
        .arg("-f")
        .arg(dir.join("slapd.conf"))
        .args(["-h", &format!("ldap://{address}"), "-d", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("slapd");
    let server = Slapd(child);
    assert!(comes_true(PATIENCE, || TcpStream::connect(address).is_ok()), "slapd listens");
    Some((server, address))
}

#[test]
fn a_directory_takes_passwords_of_its_tenants() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some((server, address)) = slapd(dir.path()) else { return };
    let by_name = "uid={user},ou=people,dc=example,dc=org";
    let settings = format!("staff:\n  tenants: [web]\n  ldap: {{url: \"ldap://{address}\", user: \"{by_name}\"}}\n");
    let mut yard = hub(dir.path(), &settings);
    let token = session(log_in(&yard, "web/ann", "ann's: \"word\""));
    let (_, me) = whoami(&yard, &token);
    assert_eq!((&me["user"], &me["tenant"]), (&json!("ann"), &json!("web")));
    let refused = log_in(&yard, "web/ann", "bob's word");
    assert_eq!(refused.0, 401, "{}", refused.1);
    // A directory takes a name without a password for a guest, and the hub does not.
    assert_eq!(log_in(&yard, "web/ann", ""), refused);
    assert_eq!(log_in(&yard, "web/eve", "eve's word"), refused, "the hub has no such user");
    assert_eq!(log_in(&yard, "eve", "eve's word"), refused, "super administrators do not belong to it");
    // A password in the hub is taken, too.
    assert_eq!(set(&yard, "web/bob", Some("correct horse")).0, 204);
    session(log_in(&yard, "web/bob", "correct horse"));
    session(log_in(&yard, "web/bob", "bob's word"));

    // A search finds the name; several results are none.
    let secret = dir.path().join("secret");
    keep(&secret, "word of the admin\n");
    let search = |filter: &str, bind: &str| {
        format!(
            "staff:\n  tenants: [web]\n  ldap:\n    url: ldap://{address}\n    search: {{base: \"dc=example,dc=org\", \
             filter: \"{filter}\"{bind}}}\n"
        )
    };
    let bind = format!(", bind: \"cn=admin,dc=example,dc=org\", password_file: {}", secret.display());
    let file = dir.path().join("log-ins.yaml");
    fs::write(&file, search("(&(objectClass=person)(uid={user}))", &bind)).expect("written");
    yard.restart();
    session(log_in(&yard, "web/ann", "ann's: \"word\""));
    assert_eq!(log_in(&yard, "web/ann", "eve's word").0, 401);
    assert_eq!(log_in(&yard, "web/none", "eve's word").0, 401);
    fs::write(&file, search("(|(uid={user})(mail=team@example.org))", "")).expect("written");
    yard.restart();
    let (status, answer) = log_in(&yard, "web/ann", "ann's: \"word\"");
    assert_eq!(status, 502, "{answer}");
    assert!(yard.log().contains("`filter` finds several entries"), "{}", yard.log());
    // A dead directory is no wrong password; the password in the hub goes on.
    drop(server);
    let (status, answer) = log_in(&yard, "web/ann", "ann's: \"word\"");
    assert_eq!(status, 502, "{answer}");
    session(log_in(&yard, "web/bob", "correct horse"));
    yard.audit_is_whole();
    // No password is in a log.
    for word in ["ann's", "word of the admin"] {
        assert!(!yard.log().contains(word), "{}", yard.log());
    }
}
